"""Whether a grammar compiles, and in how long, before an engine gets it.

A grammar comes from a client's schemas, and xgrammar's time for it has no bound that could be read
off them: 200 repetitions in a union took half a minute, and in an engine nothing can stop that. So
it is compiled first in a process of its own, which is killed when a grammar takes too long.

Invariants: every check gets an answer within `patience_s`; one grammar never costs two compilations
while its answer is remembered; nothing that killed the compiler twice is called good.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcall.compiling.process import (
    CompilerDied,
    CompilerNotStarted,
    CompilerProcess,
    CompilerTooSlow,
)
from toolcall.compiling.tokens import padded_vocab_size

log = logging.getLogger(__name__)

START_S = 30.0
"""The process needs 0.6 s on an idle core; a busy host may take many times that."""
PAUSE_S = 5.0
"""Between tries after the process could not be started."""
TRIES = 2
"""A process that died may have been another's victim (out of memory); twice is the grammar."""


@dataclass(frozen=True)
class Compiled:
    """The engine can use it: how long xgrammar took, and the size of the result."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class Refused:
    """xgrammar says no, or did not survive it."""

    message: str


@dataclass(frozen=True)
class OverBudget:
    """Too slow, or too large: more than the budget in seconds, or than the process may hold."""

    seconds: float


@dataclass(frozen=True)
class Unavailable:
    """Nobody could say: no compiler process, or too many grammars before this one. Never kept."""

    message: str


Checked = Compiled | Refused | OverBudget | Unavailable


class GrammarChecker:
    """Checks grammars for one model; `start` it, `close` it.

    `budget_s` is for one grammar; `patience_s` is for one check, with the wait for the process to
    start and for the grammars before it. A new grammar that finds `most_waiting` others before it
    is answered Unavailable at once. `most_kept` answers are remembered, some 200 bytes each; those
    not asked for longest go first.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        vocab_size: int | None = None,
        budget_s: float = 2.0,
        patience_s: float = 20.0,
        most_waiting: int = 64,
        most_kept: int = 4096,
    ) -> None:
        self._model_dir = model_dir
        self._vocab_size = padded_vocab_size(model_dir) if vocab_size is None else vocab_size
        self._budget_s, self._patience_s, self._most_kept = budget_s, patience_s, most_kept
        self._kept: OrderedDict[bytes, Checked] = OrderedDict()
        self._waiting: dict[bytes, asyncio.Future[Checked]] = {}
        self._grammars: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(most_waiting)
        self._process: CompilerProcess | None = None
        self._not_started = ""
        self._next_try = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The compiler process, None while there is none."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Begins to start the compiler process; checks may come at once."""
        self._task = asyncio.create_task(self._serve(), name="grammar-checker")
        self._task.add_done_callback(_note_end)

    async def close(self) -> None:
        """Ends the process; checks that wait are answered Unavailable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._process is not None:
            await self._process.kill()
        for answer in self._waiting.values():
            answer.set_result(Unavailable("the grammar checker was closed"))
        self._waiting.clear()

    async def check(self, ebnf: str) -> Checked:
        """The answer for this grammar; equal ones that are asked for meanwhile share it."""
        assert self._task is not None, "start() comes first"
        try:
            content = ebnf.encode()
        except UnicodeEncodeError as error:
            return Refused(f"the grammar is not text: {error}")
        key = hashlib.sha256(content).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._task.done():
            return Unavailable("the grammar checker has stopped")
        answer = self._waiting.get(key)
        if answer is None:
            if self._grammars.full():
                return Unavailable(f"{self._grammars.qsize()} grammars already wait")
            answer = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._grammars.put_nowait((key, content))
        try:
            # Shielded: the others who wait for it, and the cache, want it even so.
            async with asyncio.timeout(self._patience_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            return Unavailable(f"no answer within {self._patience_s:g} s")

    async def _serve(self) -> None:
        """Answers one grammar after the other; between them it keeps a process ready."""
        while True:
            await self._ready_process()
            key, content = await self._grammars.get()
            checked = await self._answer(content)
            if not isinstance(checked, Unavailable):
                self._keep(key, checked)
            self._waiting.pop(key).set_result(checked)

    async def _answer(self, content: bytes) -> Checked:
        for _ in range(TRIES):
            process = await self._ready_process()
            if process is None:
                return Unavailable(self._not_started)
            began = time.monotonic()
            try:
                said = await process.compile(content, self._budget_s)
            except CompilerTooSlow:
                return OverBudget(time.monotonic() - began)
            except CompilerDied as error:
                log.warning("compiler_died: %s", error)
                continue
            return _checked(said, time.monotonic() - began)
        return Refused(f"the compiler died {TRIES} times while it compiled this grammar")

    async def _ready_process(self) -> CompilerProcess | None:
        """The process between two grammars; None, with the reason kept, when there is none."""
        if self._process is not None and not self._process.has_ended:
            return self._process
        self._process = None
        if time.monotonic() < self._next_try:
            return None
        try:
            self._process = await CompilerProcess.start(self._model_dir, self._vocab_size, START_S)
        except CompilerNotStarted as error:
            log.error("compiler_not_started: %s", error)
            self._not_started = str(error)
            self._next_try = time.monotonic() + PAUSE_S
        return self._process

    def _keep(self, key: bytes, checked: Checked) -> None:
        self._kept[key] = checked
        if len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)


def _note_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("grammar_checker_stopped", exc_info=error)


def _checked(said: dict[str, Any], seconds: float) -> Checked:
    if said.get("is_too_large"):
        return OverBudget(seconds)
    if "refused" in said:
        return Refused(said["refused"])
    return Compiled(said["seconds"], said["bytes"])
