"""Grammars are compiled in a process of its own: what it answers, and what happens to that process.

The process is real, with the small model's real tokenizer; its faults are real signals.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from launcher import model
from tests.fixtures.wait import until, until_sync
from toolcall.compiling.checker import (
    Compiled,
    GrammarChecker,
    OverBudget,
    Refused,
    Unavailable,
)
from toolcall.compiling.child import FRAME_LENGTH
from toolcall.compiling.tokens import TokenizerFile, padded_vocab_size

SIMPLE = r'root ::= [^\0]* Token(49161) "ab" Token(49162)'
# A union of bounded repetitions whose bounds overlap: half a minute for 200, minutes for 400.
HEAVY = "root ::= " + " | ".join(f'[a-z]{{{n},{n + 7}}} "q{n}"' for n in range(1, 400))
# Ends within a second, but only after much memory: each rule begins with the next one.
LARGE = "root ::= r0\n" + "".join(
    f"r{n} ::= [a-z] r{n + 1} | r{n + 1} [0-9]\n" for n in range(30_000)
)
LARGE += "r30000 ::= [q]*"
PARENT = """
import sys
from pathlib import Path
import uvloop
from toolcall.compiling.checker import GrammarChecker

async def main():
    checker = GrammarChecker(Path(sys.argv[1]), budget_s=60, patience_s=60)
    await checker.start()
    await checker.check('root ::= "a"')
    print(checker.pid, flush=True)
    await checker.check(sys.stdin.read())

uvloop.run(main())
"""


@pytest.fixture(scope="module")
def model_dir():
    return model.ensure("smollm2-glm")


@pytest.fixture(scope="module")
async def checker(model_dir):
    """Most tests share one process: each start costs a second."""
    checker = GrammarChecker(model_dir, budget_s=1.0, patience_s=60)
    await checker.start()
    yield checker
    await checker.close()


async def fresh_pid(checker, old_pid):
    return await until(
        lambda: checker.pid if checker.pid not in (None, old_pid) else None, within_s=60
    )


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_grammar_of_text_and_control_tokens_compiles(checker):
    checked = await checker.check(SIMPLE)

    assert isinstance(checked, Compiled)
    assert 0 < checked.seconds < 1
    assert checked.bytes > 0


async def test_what_xgrammar_refuses_is_told_in_its_words_without_its_source_lines(checker):
    unknown = await checker.check("root ::= other")
    beyond = await checker.check("root ::= Token(49216)")
    last = await checker.check("root ::= Token(49215)")

    assert unknown == Refused('EBNF parser error at line 1, column 10: Rule "other" is not defined')
    assert isinstance(beyond, Refused)
    assert "out of the vocabulary range [0, 49216)" in beyond.message
    assert isinstance(last, Compiled), "the padded vocabulary counts, as in the engine's masks"


async def test_a_grammar_that_is_no_text_is_refused_without_a_process(checker):
    assert isinstance(await checker.check('root ::= "\ud800"'), Refused)


async def test_equal_grammars_share_one_compilation_now_and_later(checker):
    ebnf = 'root ::= "shared" [0-9]*'

    first, second = await asyncio.gather(checker.check(ebnf), checker.check(ebnf))
    third = await checker.check(ebnf)

    assert isinstance(first, Compiled)
    assert first is second
    assert first is third


async def test_a_grammar_over_its_budget_is_given_up_and_remembered(checker):
    await checker.check(SIMPLE)
    old_pid = checker.pid

    slow = await checker.check(HEAVY)
    again = await checker.check(HEAVY)
    next_one = await checker.check('root ::= "after the slow one"')

    assert isinstance(slow, OverBudget)
    assert (
        1.0 <= slow.seconds < 30
    )  # its budget, and room for a busy machine; alone it takes minutes
    assert again is slow
    assert isinstance(next_one, Compiled)
    assert checker.pid != old_pid
    assert is_gone(old_pid)


async def test_time_in_which_the_loop_was_busy_does_not_count_against_a_grammar(checker):
    await checker.check(SIMPLE)
    old_pid = checker.pid
    check = asyncio.create_task(checker.check('root ::= "innocent"'))
    for _ in range(4):  # passes of the loop until the grammar is on its way
        await asyncio.sleep(0)

    time.sleep(1.2)  # noqa: ASYNC251 # longer than the budget, while the process is long done

    assert isinstance(await check, Compiled)
    assert checker.pid == old_pid


@pytest.mark.fault
async def test_a_grammar_that_needs_too_much_memory_is_over_budget_and_the_process_survives(
    model_dir,
):
    checker = GrammarChecker(model_dir, budget_s=60, patience_s=60)
    await checker.start()
    try:
        await checker.check(SIMPLE)
        old_pid = checker.pid

        large = await checker.check(LARGE)

        assert isinstance(large, OverBudget)
        assert checker.pid == old_pid
        assert isinstance(await checker.check('root ::= "still here"'), Compiled)
    finally:
        await checker.close()


async def test_a_grammar_whose_process_is_killed_is_compiled_by_the_next_one(checker):
    await checker.check(SIMPLE)
    victim = checker.pid
    os.kill(victim, signal.SIGSTOP)
    check = asyncio.create_task(checker.check('root ::= "killed once"'))
    done, _ = await asyncio.wait([check], timeout=0.1)
    assert not done, "the stopped process cannot have answered"

    os.kill(victim, signal.SIGKILL)

    assert isinstance(await check, Compiled)
    assert checker.pid != victim


async def test_a_process_that_died_between_grammars_is_replaced_unnoticed(checker):
    await checker.check(SIMPLE)
    victim = checker.pid

    os.kill(victim, signal.SIGKILL)
    await until(lambda: is_gone(victim))

    assert isinstance(await checker.check('root ::= "replaced"'), Compiled)


async def test_a_grammar_that_takes_the_process_down_twice_is_refused(model_dir):
    checker = GrammarChecker(model_dir, budget_s=60, patience_s=60)
    await checker.start()
    try:
        await checker.check(SIMPLE)
        first = checker.pid
        check = asyncio.create_task(checker.check(HEAVY))
        done, _ = await asyncio.wait([check], timeout=0.1)
        assert not done

        os.kill(first, signal.SIGKILL)
        os.kill(await fresh_pid(checker, first), signal.SIGKILL)
        checked = await check

        assert isinstance(checked, Refused)
        assert "died 2 times" in checked.message
        assert await checker.check(HEAVY) is checked
    finally:
        await checker.close()


async def test_without_a_process_checks_are_unavailable_at_once(tmp_path, capfd):
    checker = GrammarChecker(tmp_path, vocab_size=10)
    await checker.start()
    try:
        checked = await checker.check('root ::= "a"')
        began = time.monotonic()
        again = await checker.check('root ::= "b"')

        assert isinstance(checked, Unavailable)
        assert "exit code 1" in checked.message
        assert "tokenizer.json" in capfd.readouterr().err
        assert isinstance(again, Unavailable)
        assert time.monotonic() - began < 0.5, "no second try within the pause"
    finally:
        await checker.close()


async def test_checks_that_wait_too_long_or_are_too_many_are_unavailable_and_end_with_the_checker(
    model_dir,
):
    checker = GrammarChecker(model_dir, budget_s=60, patience_s=0.3, most_waiting=1)
    await checker.start()
    # The process is not ready yet: the first waits in the queue and fills it.
    waits = asyncio.create_task(checker.check(HEAVY))
    await asyncio.sleep(0)

    one_too_many = await checker.check('root ::= "b"')
    same = asyncio.create_task(checker.check(HEAVY))

    assert one_too_many == Unavailable("1 grammars already wait")
    assert await waits == Unavailable("no answer within 0.3 s")
    assert isinstance(await same, Unavailable)

    late = asyncio.create_task(checker.check(HEAVY))
    await asyncio.sleep(0)
    await checker.close()

    assert await late == Unavailable("the grammar checker was closed")
    assert await checker.check(SIMPLE) == Unavailable("the grammar checker has stopped")


def test_the_process_dies_with_its_parent_even_while_it_compiles(model_dir):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.stdin.write(HEAVY)
        parent.stdin.close()
        idle = child.cpu_times().user
        until_sync(lambda: child.cpu_times().user > idle + 0.2, within_s=30, what="it compiles")

        parent.kill()

    until_sync(lambda: is_gone(child.pid), what="the process died with its parent")


def test_nothing_but_frames_comes_out_and_the_process_ends_with_its_input(model_dir):
    grammars = [SIMPLE, "root ::= other", 'root ::= root "x" | ""', "root ::= [^]"]
    command = [sys.executable, "-m", "toolcall.compiling.child", str(model_dir), "49216"]
    asked = b"".join(FRAME_LENGTH.pack(len(g)) + g.encode() for g in grammars)

    done = subprocess.run(
        [*command, str(os.getpid())], input=asked, capture_output=True, timeout=60, check=True
    )

    frames, out = [], done.stdout
    while out:
        (length,) = FRAME_LENGTH.unpack(out[: FRAME_LENGTH.size])
        frames.append(json.loads(out[FRAME_LENGTH.size :][:length]))
        out = out[FRAME_LENGTH.size + length :]
    assert len(frames) == 1 + len(grammars)
    assert frames[0] == {"is_ready": True}
    assert done.stderr == b""


async def test_the_process_is_light_because_torch_stays_out_of_it(checker):
    await checker.check(SIMPLE)

    process = psutil.Process(checker.pid)

    assert not [entry.path for entry in process.memory_maps() if "torch" in entry.path]
    # Measured 40-47 MB with this tokenizer; torch and transformers would add 130 MB.
    assert process.memory_full_info().pss < 100e6


def test_a_tokenizer_file_is_read_as_transformers_would_read_it(model_dir):
    tokenizer = TokenizerFile(model_dir)

    vocab = tokenizer.get_vocab()

    assert len(vocab) == 49_170
    assert vocab["<tool_call>"] == 49_161
    assert tokenizer.eos_token_id == vocab["<|im_end|>"]
    assert {vocab["<tool_call>"], vocab["</arg_value>"], vocab["<|user|>"]} <= tokenizer.controls
    assert padded_vocab_size(model_dir) == 49_216


def test_a_unigram_tokenizer_and_a_config_with_parts_are_read_too(tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "model": {"type": "Unigram", "vocab": [["<unk>", 0], ["▁a", -1.5]]},
                "added_tokens": [
                    {"id": 0, "content": "<unk>", "special": True},
                    {"id": 2, "content": "<think>", "special": False},
                    {"id": 3, "content": "   ", "special": False},
                ],
            }
        )
    )
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<unk>"}}')
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 64}}')

    tokenizer = TokenizerFile(tmp_path)

    assert tokenizer.get_vocab() == {"<unk>": 0, "▁a": 1, "<think>": 2, "   ": 3}
    assert tokenizer.controls == {0, 2}
    assert tokenizer.eos_token_id == 0
    assert padded_vocab_size(tmp_path) == 64
