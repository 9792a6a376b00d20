"""The grammar of a whole answer, from what the client asked for and how the model writes.

    answer  ::= [reasoning] body          as far as the prompt has not opened or closed reasoning
    body    ::= text [calls]              tools, the model's choice
              | calls                     a call is required; exactly one for a named tool or
                                          without parallel calls
              | text                      no calls: their tags are out of reach
              | structure [| calls]       structured content, with tools of the model's choice

After calls the answer is over. Invariant (soundness): every answer that the plan allows can be
written, but for what the README's list of limits names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from toolcall.errors import GrammarTooLarge, ToolCallError
from toolcall.formats.table import JsonCall, TaggedArguments, WireFormat
from toolcall.grammar.calls import CallWriter
from toolcall.grammar.ebnf import ANY_TEXT, Rules, literal, sequence
from toolcall.grammar.exactness import gaps
from toolcall.grammar.objects import window_for
from toolcall.grammar.strings import Strings
from toolcall.grammar.values import Spacing, Values
from toolcall.grammar.wire import Wire, prose_unlike_calls
from toolcall.marks import Marks
from toolcall.plan import BLANK_LINES, AnswerStart, OutputPlan, Structure
from toolcall.schema.nodes import Array, Node, Object, Union

MOST_RULES = 20_000
"""xgrammar would take about a second, and the request has better uses for it."""
MOST_NOTES = 100

Effort = Literal["full", "widest"]


@dataclass(frozen=True)
class Grammar:
    """A grammar in xgrammar's language, and what it leaves to the guard."""

    ebnf: str
    exact_tools: frozenset[str]
    """The tools whose arguments satisfy their schema whenever the grammar accepts them."""
    rules: int
    is_widened: bool
    """True when arguments are not checked at all, because checking them would cost too much."""
    notes: tuple[str, ...]
    """What the guard alone sees, tool by tool."""


def needs_grammar(plan: OutputPlan) -> bool:
    """True when not every text is an answer. With tools but without calls, tags are kept out."""
    return bool(plan.tools) or plan.structure is not None


def build(
    plan: OutputPlan,
    format: WireFormat | None,
    marks: Marks,
    start: AnswerStart,
    *,
    effort: Effort = "full",
) -> Grammar:
    """The grammar of an answer.

    "widest" checks names and tags only. Raises ToolCallError when calls may be made and the model's
    format is unknown, or when no answer satisfies the plan; InvalidToolRequest for a tool that the
    format cannot call; GrammarTooLarge when even the widest grammar has too many rules.
    """
    if plan.may_call and format is None:
        raise ToolCallError("the model's format of tool calls is unknown")
    answer = _Answer(plan, format, marks, is_shaped=effort == "full")
    grammar = answer.grammar(start)
    if grammar.rules <= MOST_RULES:
        return grammar
    if effort == "widest":
        raise GrammarTooLarge(f"expected at most {MOST_RULES} rules: {grammar.rules}")
    return build(plan, format, marks, start, effort="widest")


class _Answer:
    """Builds one grammar."""

    def __init__(
        self, plan: OutputPlan, format: WireFormat | None, marks: Marks, *, is_shaped: bool
    ) -> None:
        self._plan, self._format, self._is_shaped = plan, format, is_shaped
        self._rules = Rules()
        self._wire = Wire(self._rules, marks, format)
        self._strings = Strings(self._rules)
        self._window = window_for(_object_sizes(plan)) if is_shaped else 1
        self._values: Values | None = None
        self._notes: list[str] = []

    def grammar(self, start: AnswerStart) -> Grammar:
        """The whole answer after a prompt that leaves reasoning as `start` says."""
        root = self._reasoned(self._rules.choice(self._bodies()), start)
        exact = frozenset(self._exact_tools())
        return Grammar(
            ebnf=self._rules.text(root),
            exact_tools=exact,
            rules=len(self._rules) + 1,
            is_widened=not self._is_shaped,
            notes=tuple(dict.fromkeys(self._notes))[:MOST_NOTES],
        )

    def _reasoned(self, body: str, start: AnswerStart) -> str:
        """The body after reasoning that is yet to come, if any."""
        if start == "after_reasoning" or self._format is None or self._format.reasoning is None:
            return body
        opening, closing = self._format.reasoning
        # Where a token closes reasoning, calls that text opens are not looked for in it: xgrammar
        # loses its way in two texts without a literal when a token follows one of them.
        stops = [closing, *self._openings()] if self._wire.is_text(closing) else [closing]
        thought = self._wire.prose(stops)
        rest = sequence(thought, self._wire.literal(closing), body)
        if start == "in_reasoning":
            return rest
        return f"{body} | {self._led(sequence(self._wire.literal(opening), rest))}"

    def _led(self, expression: str, lead: str = BLANK_LINES) -> str:
        """The expression after blank lines, which templates put between reasoning and body."""
        # Not a rule of blanks: where that ends xgrammar would be in doubt of half the vocabulary.
        name = self._rules.share(expression)
        counts = range(len(lead) + 1)
        return self._rules.choice(sequence(literal(lead[:count]), name) for count in counts)

    def _bodies(self) -> Iterator[str]:
        calls = self._calls() if self._plan.may_call else None
        mode, structure = self._plan.choice.mode, self._plan.structure
        if calls is not None and mode in ("required", "named"):
            yield self._led(calls)
        elif structure is not None:
            yield self._led(self._structured(structure), structure.lead)
            if calls is not None:
                yield self._led(calls)
        elif self._format is not None and self._format.starts_the_answer and self._plan.tools:
            yield self._untagged_text(self._format)
            if calls is not None:
                yield self._led(calls)
        else:
            yield self._wire.prose_before(self._openings(), calls)

    def _openings(self) -> list[str]:
        """The literal that opens calls, if there is one."""
        if self._format is None:
            return []
        opening = self._format.section_open or self._format.call_open
        return [opening] if opening and not self._format.starts_the_answer else []

    def _untagged_text(self, format: WireFormat) -> str:
        """Text where calls have no tags: it only must not begin as one."""
        if isinstance(format.arguments, JsonCall):
            return prose_unlike_calls(self._rules, format, format.arguments)
        return ANY_TEXT

    def _calls(self) -> str:
        assert self._format is not None
        plan = self._plan
        self._values = self._new_values("tight")
        return CallWriter(self._rules, self._wire, self._values, self._format).calls(
            plan.callable_tools(),
            checks_arguments=self._is_shaped,
            is_parallel=plan.is_parallel and plan.choice.mode != "named",
        )

    def _structured(self, structure: Structure) -> str:
        match structure:
            case Structure(kind="json") if not self._is_shaped:
                self._notes.append("content: the whole schema")
                return self._new_values("pretty").anything()
            case Structure(kind="regex") if not self._is_shaped:
                self._notes.append("content: the whole pattern")
                return ANY_TEXT
            case Structure(kind="json", schema=schema) if schema is not None:
                values = self._new_values("pretty")
                found = values.expression(schema, schema.root)
                if found is None:
                    raise ToolCallError("no content satisfies the schema")
                self._notes += [f"content: {gap}" for gap in gaps(schema, values, is_tagged=False)]
                return found
            case Structure(kind="regex", pattern=pattern) if pattern is not None:
                whole = self._strings.whole(pattern)
                if whole is None:
                    self._notes.append(f"content: the pattern {pattern}")
                return whole or ANY_TEXT
            case _:
                return self._rules.choice(map(literal, structure.choices))

    def _new_values(self, spacing: Spacing) -> Values:
        return Values(self._rules, self._strings, spacing, self._window)

    def _exact_tools(self) -> Iterator[str]:
        if self._values is None:
            return
        assert self._format is not None
        is_tagged = isinstance(self._format.arguments, TaggedArguments)
        for tool in self._plan.callable_tools():
            if not tool.is_strict or not self._is_shaped:
                self._notes.append(f"{tool.name}: all arguments")
                continue
            found = list(gaps(tool.schema, self._values, is_tagged=is_tagged))
            if not found:
                yield tool.name
            self._notes += [f"{tool.name}: {reason}" for reason in found]


def _object_sizes(plan: OutputPlan) -> Iterator[int]:
    """The number of keys of every object that the grammar describes."""
    schemas = [tool.schema for tool in plan.callable_tools() if tool.is_strict]
    if plan.structure is not None and plan.structure.schema is not None:
        schemas.append(plan.structure.schema)
    for schema in schemas:
        for node in (schema.root, *schema.definitions.values()):
            yield from _sizes(node)


def _sizes(node: Node) -> Iterator[int]:
    match node:
        case Object(properties):
            yield len(properties)
            for _, each in properties:
                yield from _sizes(each)
            yield from _sizes(node.additional)
        case Array(prefix, items):
            for each in (*prefix, items):
                yield from _sizes(each)
        case Union(options):
            for option in options:
                yield from _sizes(option)
