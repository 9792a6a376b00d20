"""The parser alone, with every case in every split: the same answer, the expected one."""

import codecs

import pytest

from tests.toolcall.parsing import differences, parse, plan_of
from tests.toolcall.splits import cut_at, every_cut
from tests.toolcall.vocabulary import vocabulary
from toolcheck_suite import cases
from toolcheck_suite.notation import Output, Piece

CASES = [case for case in cases.load() if case.then is None]
MOST_CHARACTERS_ALONE = 400
"""Longer outputs are cut by tokens only: each character alone would double the time."""


def ids(case):
    return f"{case.group}-{case.id}"


def splits_of(case, words):
    """Lists of pieces of the case's text."""
    token_ids = words.encode(case.output)
    texts = list(words.texts(token_ids))
    for cuts in every_cut(len(texts)):
        yield ["".join(piece) for piece in cut_at(texts, cuts)]
    text = words.marked(case.output)
    assert "".join(texts) == text
    if len(text) <= MOST_CHARACTERS_ALONE:
        yield list(text)
        yield [part for character in text for part in ("", character)]
        yield bytewise(text)
    yield [*texts, ""]


def bytewise(text):
    """Each byte alone, decoded as a stream: a character comes with its last byte."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    return [decoder.decode(bytes([byte])) for byte in text.encode("utf-8", "surrogatepass")]


@pytest.mark.parametrize(
    "is_live",
    [pytest.param(False, marks=pytest.mark.engine, id="held"), pytest.param(True, id="live")],
)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_every_split_gives_the_expected_answer(case, is_live):
    words = vocabulary(has_family_tokens=case.has_family_tokens)
    plan = plan_of(case)
    live = frozenset(tool.name for tool in plan.tools) if is_live else frozenset()

    for pieces in splits_of(case, words):
        parsed = parse(case, plan, words, pieces, live)
        assert differences(case.expected, parsed) == [], f"pieces {pieces}"


def test_a_number_that_python_cannot_read_is_a_fault_and_no_crash():
    """Python converts no more than 4300 digits to a number, nor do many clients."""
    (case,) = [case for case in CASES if case.id == "integer-of-30-digits"]
    digits = "7" * 5000
    pieces = tuple(
        Piece(piece.text.replace("123456789012345678901234567890", digits), piece.is_control)
        for piece in case.output.pieces
    )
    words = vocabulary(has_family_tokens=False)

    parsed = parse(case, plan_of(case), words, [words.marked(Output(pieces))])

    assert parsed.fault is not None
    assert parsed.fault.kind == "invalid_arguments"
    assert parsed.calls == []


def test_nothing_follows_a_fault():
    (case,) = [case for case in CASES if case.id == "undeclared-then-declared"]
    words = vocabulary(has_family_tokens=False)

    parsed = parse(case, plan_of(case), words, [*words.marked(case.output), "more", "\n"])

    assert parsed.problems == []
    assert parsed.fault is not None
