"""The real engine under the grammar: it writes what is right and is stopped at what is not.

A logits processor forces each case's tokens; where the grammar's mask has forbidden the next one,
the engine goes its own way. So the first token that differs is the first refused one.
"""

import pytest

from tests.toolcall.masks import EOS
from tests.toolcall.parsing import plan_of
from tests.toolcall.vocabulary import vocabulary
from toolcall.formats.detect import by_name
from toolcall.grammar.build import build
from toolcheck_suite import cases

pytestmark = pytest.mark.engine

WRITTEN = (
    "one-call",
    "one-call-newline-form",
    "no-arguments",
    "five-calls",
    "text-before-a-call",
    "arguments-in-another-order",
    "reasoning-opened-by-the-model-then-a-call",
    "quotes-braces-and-backslashes",
    "unicode",
    "spelt-whole-call",
    "pattern",
    "integer-of-30-digits",
    "nested",
    "recursion",
    "required-with-a-call",
    "named-with-arguments",
    "schema",
    "regex",
    "hermes-one-call",
    "qwen-typed-values",
)
STOPPED = (
    "undeclared",
    "missing-required",
    "a-duplicate-key",
    "integer-out-of-bounds",
    "outside-the-enum",
    "control-call-close-in-a-string",
    "control-think-close-in-a-string",
    "ref-to-an-object-missed",
    "none-with-a-call",
    "required-with-prose",
    "required-prose-after-a-call",
    "named-another-tool",
    "parallel-off-two-calls",
    "never-closed",
    "schema-wrong-type",
    "choice-begun",
)
BY_ID = {case.id: case for case in cases.load()}
PROMPT = "Say something. "


def answer_of(engine, case, token_ids, most):
    words = vocabulary(has_family_tokens=False)
    grammar = build(plan_of(case), by_name(case.format), words.marks, case.start, effort="full")
    prompt = words.text.encode(PROMPT).ids
    return engine.answer(prompt, grammar=grammar.ebnf, forced=[*token_ids, EOS], most=most)


@pytest.mark.parametrize("case_id", WRITTEN)
def test_the_engine_writes_what_is_right(case_id, real_engine):
    case = BY_ID[case_id]
    token_ids = vocabulary(has_family_tokens=False).encode(case.output)

    answer = answer_of(real_engine, case, token_ids, len(token_ids) + 1)

    assert answer.error is None, answer.message
    assert answer.tokens[: len(token_ids)] == token_ids
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("case_id", STOPPED)
def test_the_engine_is_stopped_at_the_first_wrong_token(case_id, real_engine):
    case = BY_ID[case_id]
    words = vocabulary(has_family_tokens=False)
    token_ids = words.encode(case.output)
    (at,) = words.tokens_at(token_ids, case.output.refused_at)

    answer = answer_of(real_engine, case, token_ids, at + 1)

    assert answer.error is None, answer.message
    assert answer.tokens[:at] == token_ids[:at]
    assert answer.tokens[at] != [*token_ids, EOS][at]
