"""A whole answer, from front to back: reasoning, then content and calls in any order.

Blanks directly before and between calls are markup. A call may begin while the reasoning is still
open, if what follows its opening can be nothing else; then the reasoning ends there. When no call
may be made, whatever reads as one is read and left out.
"""

from toolcall.formats.table import WireFormat
from toolcall.marks import Marks
from toolcall.parser.calls import CallReader
from toolcall.parser.delivery import Delivery, Refused
from toolcall.parser.prose import Prose
from toolcall.parser.source import END, Reading, Source, Stops, Unfinished, has_mark, stops
from toolcall.parser.tag_reader import TagReader
from toolcall.parser.tags import Opening, Tags
from toolcall.plan import AnswerStart, OutputPlan

MOST_MENTION = 2000
"""Characters within which it is clear that something is not a call: three names or keys of
MOST_NAME_CHARACTERS, tags, and the blanks between them."""


class AnswerReader:
    """Reads one answer of one format."""

    def __init__(
        self,
        plan: OutputPlan,
        format: WireFormat,
        marks: Marks,
        source: Source,
        delivery: Delivery,
    ) -> None:
        self.call_at: int | None = None
        """Where the call at hand begins, or what may be one."""
        self.body_at = 0
        """Where the reasoning has ended."""
        self.is_cut_clean = True
        """False where the text that has left before the call, or as reasoning that was never
        closed, may be the beginning of a tag or of a call: a new parser would wait for what
        follows."""
        self._mention_at = -MOST_MENTION - 1
        """Where something last began that was not a call after all."""
        self._plan, self._format, self._source, self._delivery = plan, format, source, delivery
        self._tags = Tags(format, marks)
        self._tag_reader = TagReader(source, self._tags, marks, delivery)
        self._calls = CallReader(self._tag_reader, format)
        self._thought = Prose(delivery.reasoning)
        lead = format.reasoning_padding[2] if plan.structure is None else plan.structure.lead
        self._content = Prose(delivery.add_content, lead)
        self._openings = {
            trigger: opening
            for trigger, opening in self._tags.openings.items()
            if plan.tools or not opening.is_text
        }
        self._all_openings = stops(*self._openings, *self._tags.reasoning)

    @property
    def settled(self) -> int:
        """The number of characters that have been delivered or were markup."""
        if self.call_at is not None:
            return self.call_at
        return self._source.position - self._thought.held - self._content.held

    @property
    def waiting(self) -> str:
        """Blanks of the content that are markup if a call follows, else text."""
        return self._content.waiting

    def read(self, start: AnswerStart) -> Reading[None]:
        """The answer to its end."""
        is_open = False
        if self._tags.reasoning and (yield from self._has_reasoning(start)):
            is_open = yield from self._reasoning()
        self.body_at = self.settled
        if self._format.starts_the_answer and self._plan.tools:
            yield from self._untagged_calls(is_certain=False)
        yield from self._body(self._tags.reasoning[1] if is_open else END)

    def _has_reasoning(self, start: AnswerStart) -> Reading[bool]:
        """Whether the answer begins with reasoning, after reading its opening tag."""
        source = self._source
        if start == "after_reasoning":
            return False
        blanks = "" if start == "in_reasoning" else (yield from source.blanks())
        # A model may repeat the tag that the prompt has opened.
        if (yield from source.optional(self._tags.reasoning[0])):
            yield from source.optional(self._format.reasoning_padding[0])
            return True
        self._content.write(blanks)
        return start == "in_reasoning"

    def _reasoning(self) -> Reading[bool]:
        """Reasoning to its end; True when a call ended it and the closing tag may yet come."""
        closing = self._tags.reasoning[1]
        wanted = stops(closing, *self._openings)
        while True:
            text, stop = yield from self._source.read(wanted)
            if stop == END:
                self.is_cut_clean = False
                self._thought.write(self._tag_reader.spell(text))
                self._thought.end()
                return False
            self._thought.write(text)
            if stop == closing:
                self._thought.end(self._format.reasoning_padding[1])
                return False
            if stop is None:
                continue
            if stop in self._openings and self._plan.tools:
                opening = self._openings[stop]
                if (yield from self._is_call(opening)):
                    self._thought.interrupt()
                    yield from self._calls_from(opening)
                    return True
            self._thought.write(self._tag_reader.spell(stop))

    def _body(self, late_closing: str) -> Reading[None]:
        """Content and calls; `late_closing` ends reasoning that a call has ended already."""
        wanted = stops(*self._openings, *filter(None, [late_closing]))
        while True:
            text, stop = yield from self._source.read(wanted)
            if stop == END:
                if not has_mark(text):
                    self._content.write(text)
                elif self._plan.may_call:
                    self._begin_call(text)
                    raise Unfinished("at the opening of a call")
                self._content.end()
                return
            if stop in self._tags.of_calls and stop not in self._openings:
                self._stray(stop, text, wanted)
                continue
            self._content.write(text)
            if stop is None:
                continue
            opening = self._openings.get(stop)
            if stop == late_closing:
                late_closing = END
            elif opening is not None and (yield from self._opens_calls(opening)):
                yield from self._calls_from(opening)
            else:
                self._content.write(self._tag_reader.spell(stop))

    def _opens_calls(self, opening: Opening) -> Reading[bool]:
        """A tag that is text and that the format does not ask for may be a mention."""
        if not (opening.is_text and opening.is_variant):
            return True
        return (yield from self._is_call(opening))

    def _is_call(self, opening: Opening) -> Reading[bool]:
        begun_at = self._source.position - len(opening.trigger)
        self.call_at = begun_at
        is_call = yield from self._calls.begins(opening)
        if not is_call:
            self.call_at, self._mention_at = None, begun_at
        return is_call

    def _stray(self, mark: str, text: str, wanted: Stops) -> None:
        """A control token outside a call, with what may be the beginning of its tag before it."""
        sure = min(len(text), wanted.sure_length(text + mark, 0))
        self._content.write(text[:sure])
        if not self._plan.may_call:
            return
        self._begin_call(text[sure:] + mark)
        name = self._tag_reader.spell(mark)
        self._delivery.refuse("malformed_call", f"the control token {name} outside a call")

    def _calls_from(self, opening: Opening) -> Reading[None]:
        """The calls that an opening begins, after its trigger."""
        self._begin_call(opening.trigger)
        if self._format.starts_the_answer:
            yield from self._untagged_calls(is_certain=True)
        elif not self._plan.may_call:
            yield from self._skip(is_section=opening.is_section)
        elif opening.is_section:
            yield from self._tag_reader.expect(opening.rest)
            yield from self._section()
        else:
            yield from self._call(opening.rest)
        self.call_at = None

    def _section(self) -> Reading[None]:
        """Calls up to the section's end; the answer may end without it once a call is whole."""
        first, *rest = self._tags.call_open
        wanted = stops(first, *self._tags.section_closes)
        while (yield from self._tag_or_end(wanted)) == first:
            self._begin_call(first)
            yield from self._call(tuple(rest))

    def _untagged_calls(self, *, is_certain: bool) -> Reading[None]:
        """Calls in a format without opening tags; unless certain, something else may stand here."""
        bracket = self._tags.section_open
        opening = Opening("", (bracket,) if bracket else ())
        self._content.write((yield from self._source.blanks()))
        if not is_certain and not (yield from self._is_call(opening)):
            return
        self._begin_call("")
        yield from self._tag_reader.expect(opening.rest)
        while True:
            yield from self._call_or_skip()
            self._content.write((yield from self._source.blanks()))
            if bracket:
                wanted = stops(self._tags.separator, *self._tags.section_closes)
                if (yield from self._tag_or_end(wanted)) != self._tags.separator:
                    break
            elif not (yield from self._source.optional(self._tags.separator)) and not (
                yield from self._is_call(opening)
            ):
                break
            self._begin_call("")
        self.call_at = None

    def _call_or_skip(self) -> Reading[None]:
        if self._plan.may_call:
            yield from self._call(())
        else:
            yield from self._skip(is_section=False)

    def _call(self, rest_of_opening: tuple[str, ...]) -> Reading[None]:
        self._content.interrupt()
        yield from self._tag_reader.expect(rest_of_opening)
        yield from self._calls.read()
        self.call_at = None

    def _skip(self, *, is_section: bool) -> Reading[None]:
        """Leaves a call out, as far as it can be read."""
        self._content.interrupt()
        try:
            yield from self._calls.skip(is_section=is_section)
        except (Refused, Unfinished):
            return

    def _begin_call(self, trigger: str) -> None:
        self.call_at = self._source.position - len(trigger)
        self._tag_reader.where = f"call {self._delivery.calls}"
        behind = self._source.behind(self.call_at)
        self.is_cut_clean = (
            self.call_at - self._mention_at > MOST_MENTION
            and self._all_openings.sure_length(behind, 0) == len(behind)
        )

    def _tag_or_end(self, wanted: Stops) -> Reading[str]:
        """One of the tags, or the answer's end if it leaves no call unfinished."""
        self._tag_reader.where = "between calls" if self._delivery.calls else "before a call"
        if self.call_at is None:
            self.call_at = self._source.position
        try:
            return (yield from self._tag_reader.tag(wanted))
        except Unfinished:
            if not self._delivery.calls:
                raise
            return END
