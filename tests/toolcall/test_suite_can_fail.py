"""Without guard, grammar or plan the suite must fail: a check that cannot is a defect."""

from dataclasses import replace

import pytest

from tests.toolcall.parsing import differences, parse, plan_of
from tests.toolcall.test_grammar import BOUND, first_refused, wanted_refusals
from tests.toolcall.vocabulary import vocabulary
from toolcall.plan import ToolChoice
from toolcheck_suite import cases

CASES = [case for case in cases.load() if case.then is None]
NEED_THE_GUARD = {
    "missing-required",
    "missing-required-with-others",
    "an-unknown-key",
    "an-argument-of-a-tool-that-takes-none",
    "integer-out-of-bounds",
    "integer-with-a-fraction",
    "integer-in-quotes",
    "number-out-of-bounds",
    "null-for-an-integer",
    "boolean-one",
    "const-missed",
    "outside-the-enum",
    "too-long",
    "pattern-missed",
    "no-date",
    "object-without-a-required-key",
    "array-too-long",
    "unique-items-repeated",
    "ref-to-an-object-missed",
    "recursion-missed-below",
    "root-any-of-required-missed",
    "one-of-overlapping",
    "not-a-string-missed",
    "if-then-missed",
    "schema-missing-key",
    "schema-wrong-type",
    "json-object-gets-prose",
    "regex-missed",
    "choice-missed",
    "hermes-wrong-type",
    "qwen-missing-required",
    "deepseek-v31-wrong-type",
    "kimi-missing-required",
    "llama-missing-required",
}
NEED_THE_GRAMMAR = NEED_THE_GUARD - {
    "unique-items-repeated",
    "one-of-overlapping",
    "not-a-string-missed",
    "if-then-missed",
} | {
    "undeclared",
    "a-duplicate-key",
    "never-closed",
    "control-call-close-in-a-string",
    "none-with-a-call",
    "required-with-prose",
    "required-prose-after-a-call",
    "named-another-tool",
    "parallel-off-two-calls",
}
NEED_THE_PLAN = {
    "none-with-a-call",
    "required-with-prose",
    "required-with-nothing",
    "named-with-that-tool",
    "named-another-tool",
    "named-twice",
    "named-then-another",
    "parallel-off-two-calls",
    "parallel-off-required-two-calls",
    "deepseek-v31-parallel-off",
    "json-parallel-off",
    "json-required-without-a-list",
}


class NoGuard:
    """Lets everything through."""

    def __init__(self, plan):
        pass

    def check_call(self, name, arguments, call):  # noqa: ARG002
        return None

    def check_content(self, text):  # noqa: ARG002
        return None


@pytest.fixture(scope="module")
def anything_goes():
    """A grammar that lets every text and every control token through, by vocabulary."""

    def grammar(words):
        tokens = ", ".join(map(str, words.marks.token_ids))
        return f"root ::= ([^] | Token({tokens}))*\n"

    return grammar


def test_without_the_guard_these_cases_fail():
    failing = {case.id for case in CASES if not_expected(case, guard_of=NoGuard)}

    assert failing >= NEED_THE_GUARD
    assert len(NEED_THE_GUARD) >= 20


def test_without_the_grammar_these_cases_fail(anything_goes):
    failing = set()
    for case in BOUND:
        words = vocabulary(has_family_tokens=case.has_family_tokens)
        token_ids = words.encode(case.output)
        refused = first_refused(case, token_ids, anything_goes(words))
        if refused not in wanted_refusals(case, token_ids):
            failing.add(case.id)

    assert failing >= NEED_THE_GRAMMAR
    assert len(NEED_THE_GRAMMAR) >= 20


def test_without_the_choice_these_cases_fail():
    def with_free_choice(plan):
        return replace(plan, choice=ToolChoice("auto"), is_parallel=True)

    failing = {case.id for case in CASES if not_expected(case, change=with_free_choice)}

    assert failing >= NEED_THE_PLAN


def not_expected(case, change=lambda plan: plan, **stand_ins):
    words = vocabulary(has_family_tokens=case.has_family_tokens)
    parsed = parse(case, change(plan_of(case)), words, [words.marked(case.output)], **stand_ins)
    return differences(case.expected, parsed)
