"""Grammars in a real engine: what the mask allows, how answers go on, what happens when one fails.

Scripts are forced (`forced_tokens`): an answer that is equal to its script was allowed throughout.
When `test_upstream_is_what_a_hook_was_written_for` fails after an upgrade, read that part of vLLM
again.
"""

import itertools
import json
import subprocess
import sys

import pytest

from engine import grammars
from launcher import model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

CALL, CALL_END, THINK, THINK_END, USER = 49161, 49162, 49159, 49160, 49156
CONTROLS = (*range(17), *range(49152, 49170))
VALUE = rf"root ::= Token({CALL}) [^\0]* Token({CALL_END})"
FREE_TEXT = f"root ::= ExcludeToken({', '.join(map(str, CONTROLS))})*"
DIGITS = f'root ::= ([0-9]+ "," Token({THINK}))* Token({CALL})'
"""Endless as far as a greedy model is concerned, with control tokens in between."""

HOOK_PROBE = """
import json
from vllm.plugins import load_general_plugins
from engine import grammars
fits = {hook.name: hook.fits() for hook in grammars.HOOKS}
before = grammars.missing_hooks()
load_general_plugins()
print("probe", json.dumps([before, grammars.missing_hooks(), fits,
    {hook.name: hook.fits() for hook in grammars.HOOKS}]))
"""

PARAMS_PROBE = """
import json, sys
from engine.requests import sampling_params
for role, request in json.load(sys.stdin):
    params = sampling_params(request, role, {}, 100)
    print("probe", json.dumps([params.structured_outputs is not None, params.extra_args]))
"""


def probe(*arguments, stdin=""):
    """What a fresh process prints: vLLM and transformers warn, which is an error under pytest."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("probe ")]
    return [json.loads(line.removeprefix("probe ")) for line in lines]


@pytest.fixture(scope="module")
def prompt(real_engine):
    return real_engine.ids("<|user|>", "Name some numbers.", "<|assistant|>")


@pytest.fixture
def allowed(real_engine, prompt):
    """How many tokens of a script the mask allows under a grammar; all of them, or fewer."""

    def count(grammar, script):
        answer = real_engine.answer(prompt, grammar=grammar, forced=script, most=len(script))
        assert answer.error is None, answer
        equal = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(answer.tokens, script, strict=False)
        )
        return sum(1 for _ in equal)

    return count


def test_upstream_is_what_a_hook_was_written_for_and_vllm_installs_it():
    [[before, after, fits_stock, fits_hooked]] = probe("-c", HOOK_PROBE)

    names = [hook.name for hook in grammars.HOOKS]
    assert before == names
    assert after == []
    for hook in grammars.HOOKS:
        assert fits_stock[hook.name], f"read again: {hook.upstream}"
        assert fits_hooked[hook.name], "the check looks through the hook at upstream"


def test_engine_and_compiler_process_know_the_same_bytes_of_every_token(tmp_path):
    glm, sentencepiece = probe(
        *("-m", "tests.libs.engine.tokenizers_probe"),
        *(str(model.ensure("smollm2-glm")), str(tmp_path)),
    )

    assert glm["is_same"]
    assert [bytes.fromhex(text) for text in glm["shown"]] == [
        b"\xff<tool_call>",
        b"\xff</tool_call>",
        b"\xff<|im_end|>",
        b"\n",
    ]
    assert (glm["stop"], glm["size"], glm["without_bytes"]) == ([2], 49_216, 46)
    assert sentencepiece["is_same"]
    assert [bytes.fromhex(text) for text in sentencepiece["shown"]] == [
        b"\n",
        b" ",
        b"a",
        b" a",
        b"\x80",
        b"\xff<think>",
    ]
    assert (sentencepiece["stop"], sentencepiece["size"]) == ([1], 192)


def test_a_prefill_offer_gets_no_grammar_and_the_prefix_reaches_vllm_only_with_one():
    asked = {
        "token_ids": [5, 6, 7],
        "sampling_options": {"guided_decoding": {"grammar": FREE_TEXT}},
        "extra_args": {"kv_handoff": "offer", "grammar_prefix_tokens": 2},
    }
    free = {**asked, "sampling_options": {}}

    offered, masked, plain = probe(
        *("-c", PARAMS_PROBE),
        stdin=json.dumps([("prefill", asked), ("decode", asked), ("decode", free)]),
    )

    assert offered[0] is False
    assert list(offered[1]) == ["kv_transfer_params"]
    assert masked == [True, {"grammar_prefix_tokens": 2}]
    assert plain == [False, None]


@pytest.mark.parametrize("count", [-1, 4, True, "2", 1.0])
def test_a_prefix_that_is_no_number_of_prompt_tokens_is_refused(count):
    with pytest.raises(ValueError, match="grammar_prefix_tokens must be a number"):
        grammars.prefix_tokens({"grammar_prefix_tokens": count}, 3)


def test_a_control_token_inside_a_value_is_impossible(real_engine, allowed):
    for control in (THINK, CALL, USER, 2):
        assert allowed(VALUE, [CALL, *real_engine.ids("a"), control, CALL_END]) == 2


def test_text_inside_a_value_may_spell_control_tokens(real_engine, allowed):
    spelt = real_engine.ids("if a </", "tool", "_call> <", "|user|", "> b")

    assert not set(spelt) & set(CONTROLS)
    assert allowed(VALUE, [CALL, *spelt, CALL_END, USER]) == len(spelt) + 3


def test_a_control_token_is_not_the_text_that_it_is_written_as(real_engine, allowed):
    spelt = real_engine.ids("<", "tool", "_call>")

    assert allowed('root ::= "<tool_call>"', spelt) == len(spelt)
    assert allowed('root ::= "<tool_call>"', [CALL]) == 0
    assert allowed(f"root ::= Token({CALL})", [CALL]) == 1
    assert allowed(f"root ::= Token({CALL})", spelt) == 0


def test_free_text_excludes_control_tokens_and_may_end_at_any_end_token(real_engine, allowed):
    text = real_engine.ids("Grüße, 世界 🙂\n")

    for end in (2, USER, 49158):
        assert allowed(FREE_TEXT, [*text, end]) == len(text) + 1
    for control in (CALL, CALL_END, THINK, 49155, 0):
        assert allowed(FREE_TEXT, [*text, control]) == len(text)


def test_an_answer_cannot_end_before_its_grammar_does(allowed):
    assert allowed(VALUE, [CALL, 2]) == 1
    assert allowed(VALUE, [CALL, CALL_END, 2]) == 3
    assert allowed(VALUE, [CALL, CALL_END, CALL]) == 2


def test_an_answer_goes_on_elsewhere_as_if_nothing_had_happened(real_engine, prompt):
    whole = real_engine.answer(prompt, grammar=DIGITS, most=48)
    assert len(whole.tokens) == 48
    assert THINK in whole.tokens, "the prefix is to hold control tokens"

    for done in (1, whole.tokens.index(THINK) + 1, 40):
        rest = real_engine.answer(
            [*prompt, *whole.tokens[:done]], grammar=DIGITS, prefix=done, most=48 - done
        )

        assert rest.error is None
        assert whole.tokens[:done] + rest.tokens == whole.tokens


def test_a_whole_answer_as_prefix_leaves_nothing_but_its_end(real_engine, prompt):
    done = [CALL, *real_engine.ids("a b"), CALL_END]

    answer = real_engine.answer([*prompt, *done], grammar=VALUE, prefix=len(done), most=5)

    assert len(answer.tokens) == 1
    assert answer.tokens[0] in (2, USER, 49158)
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    "prefix",
    [[CALL_END], [CALL, CALL_END, 2], [CALL, CALL_END, CALL]],
    ids=["wrong from the start", "holds a stop token", "wrong at the end"],
)
def test_a_prefix_that_the_grammar_refuses_fails_its_request_and_no_other(
    real_engine, prompt, prefix
):
    other = real_engine.call(prompt, grammar=DIGITS, most=60)
    other.wait_for_first_token()

    failed = real_engine.answer([*prompt, *prefix], grammar=VALUE, prefix=len(prefix))

    assert failed.tokens == []
    assert failed.finish_reason == (
        f"error: the engine could not follow the grammar of this answer behind its first"
        f" {len(prefix)} tokens; the worker's log says why"
    )
    assert f"the last {len(prefix)} prompt tokens do not follow the grammar" in real_engine.log()
    assert len(other.answer().tokens) == 60


def test_a_grammar_that_the_engine_cannot_compile_fails_its_request_and_no_other(
    real_engine, prompt
):
    # It parses, so vLLM's front end lets it through; only the compiler knows the vocabulary.
    unknown = "root ::= Token(999999)"

    alone = real_engine.answer(prompt, grammar=unknown)
    other = real_engine.call(prompt, grammar=DIGITS, most=60)
    other.wait_for_first_token()
    beside = real_engine.answer(prompt, grammar=unknown)

    for failed in (alone, beside):
        assert failed.tokens == []
        assert failed.finish_reason.startswith("error: the engine could not follow the grammar")
    assert len(other.answer().tokens) == 60


def test_a_grammar_that_does_not_parse_or_must_not_end_is_the_callers_fault(real_engine, prompt):
    wrong = real_engine.answer(prompt, grammar="root ::= other")
    endless = real_engine.answer(prompt, grammar=VALUE, ignore_eos=True)
    counted = real_engine.answer(prompt, grammar=VALUE, prefix=len(prompt) + 1)

    assert [answer.error for answer in (wrong, endless, counted)] == ["InvalidArgument"] * 3
    assert "ignore_eos does not go with a grammar" in endless.message
    assert "grammar_prefix_tokens must be a number" in counted.message


def test_other_guides_than_grammars_still_work(real_engine, prompt):
    regex = real_engine.answer(prompt, guided={"regex": "[0-9]{3}x"})
    choice = real_engine.answer(prompt, guided={"choice": ["yes", "no"], "regex": None})

    text = real_engine.tokenizer.decode(regex.tokens, skip_special_tokens=True)
    assert text[:3].isdigit()
    assert text[3:] == "x"
    assert real_engine.tokenizer.decode(choice.tokens, skip_special_tokens=True) in ("yes", "no")


def test_a_script_without_a_grammar_is_followed_to_the_letter(real_engine, prompt):
    script = [CALL, THINK_END, *real_engine.ids("any thing"), CALL_END, 2]

    answer = real_engine.answer(prompt, forced=script)

    assert answer.tokens == script
    assert answer.finish_reason == "stop"
