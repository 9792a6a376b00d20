"""From what a client asked for to the grammar that masks sampling, and which tools stream live.

Every grammar is compiled once in a process of its own, within a budget, before the first worker
sees it: a schema that would keep an engine busy for seconds gets the widest grammar instead (names
and tags only) and the guard does the rest. Agents send the same tools every turn, so the outcome
is kept. New ones are read in a thread, one after the other: large schemas take a second, and the
answers that stream meanwhile must not wait for it.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import orjson

import observe
from router.errors import InvalidRequest
from router.metrics import GRAMMAR_S, GRAMMARS, UNENFORCED
from router.render import Renderer
from toolcall.compiling.checker import Compiled, GrammarChecker, Refused, Unavailable
from toolcall.errors import GrammarTooLarge, InvalidToolRequest, ToolCallError
from toolcall.formats.table import WireFormat
from toolcall.grammar.build import Effort, build, needs_grammar
from toolcall.plan import AnswerStart, OutputPlan
from toolcall.requests import plan_output

Key = TypeVar("Key")
Value = TypeVar("Value")

log = observe.get_logger(__name__)

MOST_KEPT = 512
"""Plans kept with their grammars; some 100 KB each for large tool sets."""


@dataclass(frozen=True)
class Constraint:
    """What one answer may be, and how it is enforced."""

    plan: OutputPlan = field(default_factory=OutputPlan)
    format: WireFormat | None = None
    start: AnswerStart = "fresh"
    grammar: str | None = None
    live_tools: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Wishes:
    """The fields of a request that shape its answer, as decoded JSON."""

    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    response_format: Any = None
    guided: Mapping[str, Any] | None = None
    is_chat: bool = True
    """False for completions: raw text, without reasoning or calls."""

    def digest(self) -> bytes:
        """Equal for equal wishes."""
        fields = [
            self.tools,
            self.tool_choice,
            self.parallel_tool_calls,
            self.response_format,
            dict(self.guided or {}),
            self.is_chat,
        ]
        try:
            return hashlib.sha256(orjson.dumps(fields)).digest()
        except TypeError as error:  # it reads deeper nesting than it writes
            raise InvalidRequest(
                "Expected tools and schemas of at most 64 levels of nesting, got far more."
                " Use $ref for repeated parts, or flatten them."
            ) from error


class Constrainer:
    """Makes and keeps the constraints of one model."""

    def __init__(self, renderer: Renderer, checker: GrammarChecker) -> None:
        self._renderer = renderer
        self._checker = checker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plan-answers")
        self._plans: OrderedDict[bytes, OutputPlan] = OrderedDict()
        self._constraints: OrderedDict[tuple[bytes, AnswerStart], Constraint] = OrderedDict()

    async def plan(self, wishes: Wishes) -> OutputPlan:
        """The checked plan. Raises InvalidRequest with the path of the fault."""
        key = wishes.digest()
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        try:
            plan = await self._in_thread(
                partial(
                    plan_output,
                    tools=wishes.tools,
                    tool_choice=wishes.tool_choice,
                    parallel_tool_calls=wishes.parallel_tool_calls,
                    response_format=wishes.response_format,
                    guided=wishes.guided,
                )
            )
        except InvalidToolRequest as error:
            raise InvalidRequest(str(error), param=error.param) from error
        if plan.tools and self._renderer.format is None:
            raise InvalidRequest(
                "This model's chat template has no tools. Leave out tools, or ask another model.",
                param="tools",
                code="unsupported_parameter",
            )
        for tool in plan.tools:
            for gap in tool.schema.unenforced:
                UNENFORCED.labels(gap.keyword).inc()
        _keep(self._plans, key, plan)
        return plan

    async def constrain(self, wishes: Wishes, plan: OutputPlan, prompt_text: str) -> Constraint:
        """The constraint of an answer to this prompt."""
        tool_format = self._renderer.format if wishes.is_chat else None
        start: AnswerStart = "after_reasoning"
        if tool_format is not None:
            start = self._renderer.answer_start(prompt_text)
        key = (wishes.digest(), start)
        if key in self._constraints:
            self._constraints.move_to_end(key)
            return self._constraints[key]
        began = time.monotonic()
        constraint, is_final = await self._build(plan, tool_format, start)
        GRAMMAR_S.observe(time.monotonic() - began)
        if is_final:
            _keep(self._constraints, key, constraint)
        return constraint

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _build(
        self, plan: OutputPlan, tool_format: WireFormat | None, start: AnswerStart
    ) -> tuple[Constraint, bool]:
        free = Constraint(plan, tool_format, start)
        if not needs_grammar(plan):
            return free, True
        efforts: tuple[Effort, ...] = ("full", "widest")
        for effort in efforts:
            try:
                marks = self._renderer.marks
                grammar = await self._in_thread(
                    partial(build, plan, tool_format, marks, start, effort=effort)
                )
            except (GrammarTooLarge, RecursionError) as error:
                log.warning("grammar_not_built", effort=effort, reason=str(error))
                GRAMMARS.labels("over_budget").inc()
                continue
            except InvalidToolRequest as error:
                raise InvalidRequest(str(error), param=error.param) from error
            except ToolCallError as error:
                raise InvalidRequest(
                    f"Expected something that an answer can satisfy: {error}.", param=_source(plan)
                ) from error
            checked = await self._checker.check(grammar.ebnf)
            bound = Constraint(plan, tool_format, start, grammar.ebnf, grammar.exact_tools)
            match checked:
                case Compiled():
                    GRAMMARS.labels("widened" if grammar.is_widened else "whole").inc()
                    return bound, True
                case Unavailable(message) if effort == "widest":
                    # An engine compiles what it gets and cannot be stopped: only what is cheap.
                    log.warning("grammar_unchecked", reason=message)
                    GRAMMARS.labels("unchecked").inc()
                    return bound, False
                case Unavailable():
                    continue
                case Refused(message):
                    log.error("grammar_refused", effort=effort, reason=message)
                    GRAMMARS.labels("refused").inc()
                case _:
                    GRAMMARS.labels("over_budget").inc()
        raise InvalidRequest(
            "The grammar of these tools or of this response_format takes too long to compile."
            " Send fewer tools, or smaller schemas.",
            param=_source(plan),
        )


def _source(plan: OutputPlan) -> str:
    """The field from which most of the grammar came."""
    return "tools" if plan.tools else "response_format"


def _keep(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    if len(kept) > MOST_KEPT:
        kept.popitem(last=False)
