"""Grammar text for xgrammar 0.2.8: quoting, and named rules that equal parts share.

An *expression* here is one sequence, never a bare choice: a choice is always a rule of its own, so
expressions can be joined with blanks. Rules with equal bodies are one rule, whichever tool or
schema asked for them: xgrammar's time and memory grow with the number of rules.

What is used of the language (GBNF with macros): strings, character classes with `*`, `+` and
`{a,b}`, rules, `[max_chars=n]` after a rule's name, `Token(id)` and `ExcludeToken(id, ...)` for
tokens, `TagDispatch` for text without a literal, and `(= ...)` after a rule for what comes next.
Not its `Regex` macro: it joins states that differ, so that `(pxx*)?pn` accepts `xpn`.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence

from toolcall.grammar.characters import Characters

NOTHING = '""'
"""The expression of the empty text."""
ANY_CHARACTER = r"[\u0000-\ud7ff\ue000-\U0010ffff]"
"""`[^]` would let a model write the bytes of half a surrogate pair."""
ANY_TEXT = f"{ANY_CHARACTER}*"
LONGEST = 1_000_000
"""Characters above which a rule needs no limit: no answer is so long."""


class Rules:
    """The rules of one grammar."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._loops: dict[Hashable, str] = {}

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def has_limits(self) -> bool:
        """True when a rule counts its characters."""
        return bool(self._limits)

    def share(self, body: str) -> str:
        """The name of the rule with this body, a new one if there is none."""
        if body in self._bodies:
            return body
        name = self._names.get(body)
        if name is None:
            name = self.reserve()
            self._bodies[name] = body
            self._names[body] = name
        return name

    def choice(self, options: Iterable[str]) -> str:
        """An expression for any of these expressions; at least one, equal ones count once."""
        distinct = dict.fromkeys(options)
        return next(iter(distinct)) if len(distinct) == 1 else self.share(" | ".join(distinct))

    def optional(self, expression: str) -> str:
        """An expression for this or nothing."""
        return self.choice((NOTHING, expression))

    def many(self, expression: str, end: str = NOTHING) -> str:
        """An expression for this any number of times, also none, and then perhaps `end`."""
        # One recursive rule: the grammar's own `*` makes a new rule at every use.
        key = f"{expression} * {end}"
        if key not in self._names:
            name = self.reserve()
            self._names[key] = name
            options = dict.fromkeys((NOTHING, f"{expression} {name}", end))
            self.define(name, " | ".join(options))
        return self._names[key]

    def loop(self, key: Hashable, body: Callable[[str], str]) -> str:
        """The name of a rule whose body needs the name; equal keys share one."""
        if key not in self._loops:
            name = self._loops[key] = self.reserve()
            self.define(name, body(name))
        return self._loops[key]

    def limited(self, body: str, most: int) -> str:
        """The name of a rule with this body that stops at so many characters.

        A rule that cannot end there goes on until it can.
        """
        if most > LONGEST:
            return self.share(body)
        key = f"{body} <={most}"
        if key not in self._names:
            name = self.reserve()
            self._names[key], self._bodies[name], self._limits[name] = name, body, most
        return self._names[key]

    def reserve(self) -> str:
        """A name for a rule whose body needs the name; `define` it."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = NOTHING
        return name

    def define(self, name: str, body: str) -> None:
        """Gives a reserved rule its body."""
        self._bodies[name] = body

    def text(self, root: str) -> str:
        """The whole grammar; `root` is the body of its root rule."""
        limits = {name: f"[max_chars={most}]" for name, most in self._limits.items()}
        lines = [f"{name}{limits.get(name, '')} ::= {body}" for name, body in self._bodies.items()]
        return "\n".join([f"root ::= {root}", *lines, ""])


def sequence(*parts: str) -> str:
    """The expressions after each other."""
    return " ".join(part for part in parts if part != NOTHING) or NOTHING


def literal(text: str) -> str:
    """An expression for exactly this text."""
    if "\0" in text:  # it ends a string in xgrammar's text, but not a class
        return sequence(*(literal(c) if c != "\0" else f"[{_code(0)}]" for c in text))
    return " ".join(f'"{_quoted(part)}"' for part in _AMBIGUOUS.split(text)) if text else NOTHING


def character_class(allowed: Characters) -> str:
    """An expression for one character of a set, which has at least one."""
    parts = [
        _in_class(first) + (f"-{_in_class(last)}" if last > first else "")
        for first, last in allowed.ranges
    ]
    # Escapes last, as no digit may follow them; see _AMBIGUOUS.
    return f"[{''.join(sorted(parts, key=lambda part: part.startswith(_BACKSLASH)))}]"


def token(token_ids: Sequence[int]) -> str:
    """An expression for any one of these tokens."""
    return f"Token({', '.join(map(str, token_ids))})"


def any_token_but(token_ids: Sequence[int]) -> str:
    """An expression for one token that is none of these."""
    return f"ExcludeToken({', '.join(map(str, token_ids))})"


def text_without(literals: Iterable[str]) -> str:
    """A rule body for text that holds none of these literals."""
    excluded = ", ".join(f'"{_quoted(text)}"' for text in literals)
    return f"TagDispatch(excludes=({excluded}), loop_after_dispatch=false)"


_BACKSLASH = "\\"
_AMBIGUOUS = re.compile("(?<=[\x01-\x1f\x7f-\xff])(?=[0-9A-Fa-f])")
"""Where xgrammar's own printing of a grammar, which its cache reads back, joins `\\xdf` and `e`."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return "".join(_ESCAPES.get(c) or (c if " " <= c <= "~" else _code(ord(c))) for c in text)


def _in_class(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else _code(code)


def _code(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
