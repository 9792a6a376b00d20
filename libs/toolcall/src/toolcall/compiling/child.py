"""The compiler process: `python -m toolcall.compiling.child MODEL_DIR VOCAB_SIZE PARENT_PID`.

Reads grammars from standard input and answers each in JSON on standard output, both as frames: a
length of four bytes, then so many bytes. The first frame it writes says that it is ready.

Invariants: nothing but frames reaches standard output; the process ends with its parent, whatever
it is doing; it never holds more than MOST_BYTES.
"""

import ctypes
import importlib.util
import json
import os
import re
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from toolcall.compiling.tokens import TokenizerFile, hide_controls

FRAME_LENGTH = struct.Struct(">I")
MOST_BYTES = 1 << 30
"""Of private memory. Ordinary tool sets take 1-20 MB beside the 40 MB of the process; 30,000 rules
that each begin with the next one filled this in 1.6 s."""
TRIM_AFTER_S = 0.1
"""A compilation that took longer may leave 100 MB behind that malloc keeps."""
PR_SET_PDEATHSIG = 1
UPSTREAM_PLACE = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+:\d+: ")
"""xgrammar begins its messages with a time and a line of its source."""

Answer = dict[str, Any]


def main() -> int:
    """Serves until standard input ends."""
    model_dir, vocab_size, parent_pid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _die_with(parent_pid)
    # The terminal's Ctrl-C and a supervisor's SIGTERM to the group are the parent's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    replies = _take_stdout()
    compile_ebnf = _compiler(model_dir, vocab_size)
    _return_freed_memory()  # some 25 MB of the parsed tokenizer
    # What xgrammar prints while it compiles may hold a client's schema.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    _write_frame(replies, {"is_ready": True})
    while (grammar := _read_frame(sys.stdin.buffer)) is not None:
        began = time.perf_counter()
        _write_frame(replies, _answer(compile_ebnf, grammar.decode()))
        if time.perf_counter() - began > TRIM_AFTER_S:
            _return_freed_memory()
    return 0


def _answer(compile_ebnf: Callable[[str], int], ebnf: str) -> Answer:
    began = time.perf_counter()
    try:
        size = compile_ebnf(ebnf)
    except MemoryError:
        return {"is_too_large": True}
    except (RuntimeError, ValueError) as error:
        if "bad_alloc" in str(error):
            return {"is_too_large": True}
        return {"refused": UPSTREAM_PLACE.sub("", str(error)).strip()}
    return {"seconds": time.perf_counter() - began, "bytes": size}


def _compiler(model_dir: Path, vocab_size: int) -> Callable[[str], int]:
    """A function from a grammar to the size of its compiled form."""
    _place_xgrammar()
    from xgrammar.compiler import GrammarCompiler
    from xgrammar.grammar import Grammar
    from xgrammar.tokenizer_info import TokenizerInfo

    tokenizer: Any = TokenizerFile(model_dir)
    info = hide_controls(
        TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size), tokenizer.controls
    )
    # The parent remembers answers; compiled grammars themselves are of no use here.
    compiler = GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile_ebnf(ebnf: str) -> int:
        return compiler.compile_grammar(Grammar.from_ebnf(ebnf)).memory_size_bytes

    return compile_ebnf


def _place_xgrammar() -> None:
    """Makes xgrammar's modules importable without its own __init__ (0.2.8).

    That would import torch and transformers for parts that are not used here: 4 s of CPU and 130 MB
    more, in an image that would need both. tvm_ffi does without torch and numpy where there are
    none; of transformers, tokenizer_info wants only two classes to tell tokenizers apart.
    """
    transformers = ModuleType("transformers")
    for name in ("PreTrainedTokenizerBase", "PreTrainedTokenizerFast"):
        setattr(transformers, name, TokenizerFile)
    absent: dict[str, Any] = {"torch": None, "numpy": None}
    sys.modules.update({**absent, "transformers": transformers})
    spec = importlib.util.find_spec("xgrammar")
    if spec is None:
        raise ModuleNotFoundError("xgrammar is not installed")
    sys.modules["xgrammar"] = importlib.util.module_from_spec(spec)
    importlib.import_module("xgrammar.load_binding")


def _take_stdout() -> BinaryIO:
    """The real standard output; whatever else prints there goes to standard error from now on."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame, None at the end (also when the parent died in the middle of one)."""
    header = stream.read(FRAME_LENGTH.size)
    if len(header) < FRAME_LENGTH.size:
        return None
    (length,) = FRAME_LENGTH.unpack(header)
    frame = stream.read(length)
    return frame if len(frame) == length else None


def _write_frame(stream: BinaryIO, answer: Answer) -> None:
    frame = json.dumps(answer).encode()
    stream.write(FRAME_LENGTH.pack(len(frame)) + frame)
    stream.flush()


def _die_with(parent_pid: int) -> None:
    """Linux kills this process when its parent ends, even in the middle of a compilation."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # it ended before the line above


def _return_freed_memory() -> None:
    """Gives pages that malloc holds back to Linux."""
    ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    sys.exit(main())
