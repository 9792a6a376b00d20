"""The grammar accepts exactly what is right, and stops what is not at the very token.

A case with ¦ is refused at the token that holds the character behind it; every other case is
accepted whole (or, where a limit cut it, as a beginning).
"""

import pytest

from tests.toolcall import masks
from tests.toolcall.parsing import plan_of
from tests.toolcall.vocabulary import vocabulary
from toolcall.formats.detect import by_name
from toolcall.grammar.build import build, needs_grammar
from toolcheck_suite import cases

BOUND = [case for case in cases.load() if needs_grammar(plan_of(case))]


def grammar_of(case, effort="full"):
    words = vocabulary(has_family_tokens=case.has_family_tokens)
    return build(plan_of(case), by_name(case.format), words.marks, case.start, effort=effort)


def wanted_refusals(case, token_ids):
    """The indexes of which one must be the first refused token; None alone: no refusal."""
    words = vocabulary(has_family_tokens=case.has_family_tokens)
    at = case.output.refused_at
    return [None] if at is None else words.tokens_at(token_ids, at)


def first_refused(case, token_ids, ebnf):
    """The index of the first refused token; that a cut answer may not end there is as it should."""
    refused = masks.first_refused(ebnf, token_ids, has_family_tokens=case.has_family_tokens)
    return None if case.grammar == "prefix" and refused == len(token_ids) else refused


@pytest.mark.parametrize("case", BOUND, ids=lambda case: f"{case.group}-{case.id}")
def test_exactly_the_right_tokens_are_accepted(case):
    words = vocabulary(has_family_tokens=case.has_family_tokens)
    token_ids = words.encode(case.output)
    grammar = grammar_of(case)

    refused = first_refused(case, token_ids, grammar.ebnf)

    tokens = [words.marks.spell(text) for text in words.texts(token_ids)]
    shown = f"tokens {list(enumerate(tokens))}\n{grammar.ebnf[:4000]}"
    assert refused in wanted_refusals(case, token_ids), shown


@pytest.mark.parametrize(
    "case",
    [case for case in BOUND if case.grammar != "refuse" and case.request.get("tools")],
    ids=lambda case: case.id,
)
def test_the_widest_grammar_of_tools_refuses_nothing_right(case):
    token_ids = vocabulary(has_family_tokens=case.has_family_tokens).encode(case.output)

    assert first_refused(case, token_ids, grammar_of(case, "widest").ebnf) is None


@pytest.mark.parametrize(
    "case",
    [case for case in BOUND if case.unenforced is not None and case.request.get("tools")],
    ids=lambda case: case.id,
)
def test_what_the_guard_has_to_refuse_does_not_stream_live(case):
    """Arguments that left could not be taken back."""
    called = max((case.output.text.rfind(tool.name), tool.name) for tool in plan_of(case).tools)

    assert called[1] not in grammar_of(case).exact_tools


def test_no_stop_token_may_come_inside_reasoning_or_a_call():
    """GLM has three of them, two are turn tokens; a second one must not slip through the mask."""
    (case,) = [case for case in cases.load() if case.id == "text-before-a-call"]
    words = vocabulary(has_family_tokens=False)
    token_ids = words.encode(case.output)
    texts = list(words.texts(token_ids))
    first = texts.index(words.marks.encode("</think>")) + 1
    call = texts.index(words.marks.encode("<tool_call>")) + 1

    allowed = masks.ends_allowed(grammar_of(case).ebnf, token_ids)

    everywhere = [bool(stops) for stops in allowed]
    assert everywhere[:first] == [False] * first
    assert all(everywhere[first:call])
    assert everywhere[call:-1] == [False] * (len(token_ids) - call)
    assert everywhere[-1]
    assert len(set(map(tuple, filter(None, allowed)))) == 1


def test_ordinary_tools_stream_live():
    (case,) = [case for case in cases.load() if case.id == "every-argument"]

    assert grammar_of(case).exact_tools == {"forecast"}


def test_the_same_plan_gives_the_same_grammar():
    """Compiled grammars are kept by their text."""
    (case,) = [case for case in cases.load() if case.id == "names-that-begin-alike"]

    assert grammar_of(case).ebnf == grammar_of(case).ebnf
