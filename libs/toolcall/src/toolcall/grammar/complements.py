"""Texts that are none of some words, or do not begin with them: what is left beside a word list.

Built as a tree of the words' beginnings: at each one the text may leave the words by a character
that none of them has there, and is free from then on.
"""

from collections.abc import Collection
from typing import Any

from toolcall.grammar.characters import EVERY, Characters, one_of
from toolcall.grammar.regular import EMPTY, One, Regular, Repeat, concat, either, optional, text

MOST_CHARACTERS = 300
"""Letters of all words together. After each any character may follow, so that xgrammar takes some
5 ms for it; where that is over its budget no argument is checked at all."""
LONGEST_WORD = 48
"""Letters of one word; each is some eight calls deep in Python, which has a thousand for all."""
_END = ""
_Words = dict[str, Any]


def other_than(words: Collection[str], taboo: Characters | None = None) -> Regular:
    """Any text that is none of the words and has no taboo characters.

    Words that are too many or too long are not excluded.
    """
    found = _beside(_tree(words), _free(taboo), may_begin=True)
    assert found is not None, "a text longer than every word is always left"
    return found


def not_beginning_with(words: Collection[str]) -> Regular:
    """Any text that begins with none of the words."""
    return _beside(_tree(words), EVERY, may_begin=False) or EMPTY


def _free(taboo: Characters | None) -> Characters:
    return EVERY if taboo is None else EVERY - taboo


def _tree(words: Collection[str]) -> _Words:
    root: _Words = {}
    left = MOST_CHARACTERS
    for word in sorted(words, key=lambda word: (len(word), word)):
        if len(word) > min(LONGEST_WORD, left):
            break
        left -= len(word)
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[_END] = {}
    return root


def _beside(words: _Words, free: Characters, *, may_begin: bool) -> Regular | None:
    """What may follow the beginning that the words have in common; None when nothing may."""
    if _END in words and not may_begin:
        return None
    options: list[Regular] = []
    for character, longer in words.items():
        if character == _END or character not in free:
            continue
        after = _beside(longer, free, may_begin=may_begin)
        if after is not None:
            options.append(concat(text(character), after))
    leaving = free - one_of("".join(words))
    if leaving:
        options.append(concat(One(leaving), Repeat(One(free), 0, None)))
    found = either(*options)
    return found if _END in words else optional(found)
