"""The compiler process seen from its parent: start it, give it one grammar at a time, kill it.

Invariant: after any failure the process is dead; a live one is always between two grammars.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from toolcall.compiling.child import FRAME_LENGTH
from toolcall.errors import ToolCallError

TICKS = 10
"""Parts of a budget. However late the loop comes back to one, it counts as one part: other work
there, or an answer that nobody could read meanwhile, is not the grammar's fault."""


class CompilerNotStarted(ToolCallError):
    """The process could not be started, or was not ready in time."""


class CompilerDied(ToolCallError):
    """The process ended while it compiled a grammar."""


class CompilerTooSlow(ToolCallError):
    """The grammar was not compiled within its budget, and the process was killed."""


class CompilerProcess:
    """One process of `toolcall.compiling.child`; `start` makes it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    @classmethod
    async def start(cls, model_dir: Path, vocab_size: int, within_s: float) -> "CompilerProcess":
        """A process that is ready. Raises CompilerNotStarted.

        Call it on the thread that lives as long as this process: Linux takes the end of the thread
        that started a child for the end of its parent.
        """
        arguments = (str(model_dir), str(vocab_size), str(os.getpid()))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "toolcall.compiling.child", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CompilerNotStarted(f"the compiler process did not start: {error}") from error
        compiler = cls(process)
        try:
            await compiler._until_ready(within_s)
        except BaseException:
            await compiler.kill()
            raise
        return compiler

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once it is gone, for whatever reason."""
        return self._process.returncode is not None

    async def compile(self, ebnf: bytes, budget_s: float) -> dict[str, Any]:
        """What the process says of this grammar (`toolcall.compiling.child`).

        Raises CompilerTooSlow or CompilerDied; the process is dead after either.
        """
        answer = asyncio.ensure_future(self._ask(ebnf))
        try:
            for _ in range(TICKS):
                await asyncio.wait({answer}, timeout=budget_s / TICKS)
                if answer.done():
                    return answer.result()
            await self.kill()
            raise CompilerTooSlow(f"not compiled within {budget_s:g} s")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.kill()
            raise CompilerDied(
                f"the compiler process ended with exit code {self._process.returncode}"
            ) from error
        finally:
            answer.cancel()

    async def kill(self) -> None:
        """Ends the process at once."""
        if not self.has_ended:
            self._process.kill()
        self._stdin.close()
        await self._process.wait()

    async def _until_ready(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._read()
        except TimeoutError as error:
            raise CompilerNotStarted(
                f"the compiler process was not ready within {within_s:g} s"
            ) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()
            raise CompilerNotStarted(
                f"the compiler process ended with exit code {code} before it was ready; its last"
                " words are on standard error"
            ) from error

    async def _ask(self, ebnf: bytes) -> dict[str, Any]:
        self._stdin.write(FRAME_LENGTH.pack(len(ebnf)) + ebnf)
        await self._stdin.drain()
        return await self._read()

    async def _read(self) -> dict[str, Any]:
        (length,) = FRAME_LENGTH.unpack(await self._stdout.readexactly(FRAME_LENGTH.size))
        answer: dict[str, Any] = json.loads(await self._stdout.readexactly(length))
        return answer
