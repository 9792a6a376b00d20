"""A format's literals with marks, cut into the pieces that a reader looks for.

Line ends and blanks beside a tag mean nothing, whatever the row writes, so that GLM-4.5's and
GLM-4.7's forms are both read under either row. A literal is therefore a few pieces with optional
blanks between them. Where a literal holds a control token its first piece is enough to know it; one
that is text only must be there as a whole, because prose may mention its beginning.
"""

import re
from dataclasses import dataclass

from toolcall.formats.table import TaggedArguments, WireFormat
from toolcall.marks import Marks
from toolcall.parser.source import BLANKS, has_mark

_BETWEEN_TAGS = re.compile(r"(?<=>)\s*(?=<)")


@dataclass(frozen=True)
class Opening:
    """What opens calls in free text, the pieces that must follow, and what closes a section."""

    trigger: str
    rest: tuple[str, ...]
    is_section: bool = False
    is_variant: bool = False

    @property
    def is_text(self) -> bool:
        """True when no control token is part of the trigger."""
        return not has_mark(self.trigger)


class Tags:
    """The literals of one format for one tokenizer."""

    def __init__(self, format: WireFormat, marks: Marks) -> None:
        self._marks = marks
        self.call_open = self._pieces(format.call_open)
        self.call_close = self._pieces(format.call_close)
        self.name_close = self._pieces(format.name_close)
        self.separator = format.separator.strip(BLANKS)
        self.section_open = marks.encode(format.section_open)
        self.section_closes = tuple(
            marks.encode(close).strip(BLANKS)
            for close in (format.section_close, *(v[1] for v in format.section_variants))
            if close
        )
        self.variant_opens = tuple(marks.encode(v[0]) for v in format.section_variants)
        self.reasoning = tuple(map(marks.encode, format.reasoning or ()))
        arguments = format.arguments
        if isinstance(arguments, TaggedArguments):
            self.key_open = self._pieces(arguments.key_open)[0]
            self.key_close = self._pieces(arguments.key_close)
            self.after_key = _trailing_blanks(arguments.key_close)
            self.string_end = marks.encode(arguments.string_end)
            self.value_close = marks.encode(arguments.value_close).strip(BLANKS)
            self.type_tags = tuple(map(marks.encode, arguments.type_tags or ()))
        self.openings = self._openings(format)
        call_text = marks.encode("".join(_call_literals(format)))
        self.of_calls = frozenset(filter(has_mark, call_text))
        """The marks that make up calls; elsewhere in content they show that a call is broken."""
        self.never_in_values = self.of_calls | frozenset(filter(has_mark, "".join(self.reasoning)))

    def _pieces(self, literal: str) -> tuple[str, ...]:
        pieces = _BETWEEN_TAGS.split(literal.strip(BLANKS))
        return tuple(self._marks.encode(piece) for piece in pieces if piece)

    def _openings(self, format: WireFormat) -> dict[str, Opening]:
        """By trigger. Where calls stand at the answer's start only, control tokens alone tell."""
        has_section = bool(format.section_open)
        openings = []
        if has_section:
            openings.append(Opening(*self._trigger(format.section_open), is_section=True))
        for variant, _ in format.section_variants:
            openings.append(Opening(*self._trigger(variant), is_section=True, is_variant=True))
        if format.call_open:
            openings.append(Opening(*self._trigger(format.call_open)))
        return {
            opening.trigger: opening
            for opening in openings
            if not opening.is_text
            or (not format.starts_the_answer and (opening.is_section or not has_section))
        }

    def _trigger(self, literal: str) -> tuple[str, tuple[str, ...]]:
        first, *rest = self._pieces(literal)
        if has_mark(first):
            return first, tuple(rest)
        return self._marks.encode(literal.lstrip(BLANKS)), ()


def _trailing_blanks(literal: str) -> str:
    return literal[len(literal.rstrip(BLANKS)) :]


def _call_literals(format: WireFormat) -> list[str]:
    literals = [format.call_open, format.name_close, format.call_close]
    literals += [format.section_open, format.section_close]
    literals += [tag for variant in format.section_variants for tag in variant]
    if isinstance(arguments := format.arguments, TaggedArguments):
        literals += [arguments.key_open, arguments.key_close, arguments.value_close]
    return literals
