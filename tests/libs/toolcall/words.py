"""Is a word in the language of a regular tree? Asked of Python's own regular expressions."""

import re
from functools import lru_cache

from toolcall.grammar.regular import Concat, Either, One, Repeat


def has_word(tree, word):
    """True when the whole word is one of the tree's."""
    return _compiled(tree).fullmatch(word) is not None


@lru_cache(maxsize=4096)
def _compiled(tree):
    return re.compile(_pattern(tree), re.DOTALL)


def _pattern(tree):
    match tree:
        case One(allowed):
            ranges = "".join(f"{_code(first)}-{_code(last)}" for first, last in allowed.ranges)
            return f"[{ranges}]"
        case Concat(parts):
            return "".join(map(_pattern, parts))
        case Either(options):
            return f"(?:{'|'.join(map(_pattern, options))})"
        case Repeat(part, low, high):
            return f"(?:{_pattern(part)}){{{low},{'' if high is None else high}}}"


def _code(code):
    return f"\\U{code:08x}"
