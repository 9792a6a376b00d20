"""Whether one pattern holds all that another does, and what that spares: a format beside it."""

import itertools
import re
import time
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xgrammar import Grammar
from xgrammar.testing import _is_grammar_accept_string as accepts_text

from toolcall.grammar import inclusion
from toolcall.grammar.ebnf import Rules
from toolcall.grammar.inclusion import is_within
from toolcall.grammar.patterns import translate
from toolcall.grammar.strings import Strings
from toolcall.schema.nodes import String
from toolcall.schema.string_formats import FORMATS

WORDS = ["".join(word) for size in range(6) for word in itertools.product("ab", repeat=size)]
ATOMS = st.sampled_from(["a", "b", "[ab]", "(?:ab|b)", "(?:a|)"])
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
    ),
    max_leaves=5,
)


def tree(pattern, *, is_whole=True):
    translation = translate(pattern, is_whole=is_whole)
    assert translation is not None
    return translation.tree


@given(REGEXES, REGEXES)
@settings(max_examples=150, deadline=None)
def test_what_is_within_has_no_word_of_its_own(narrow, wide):
    if is_within(tree(narrow), tree(wide)):
        ours = [word for word in WORDS if re.fullmatch(narrow, word)]
        assert [word for word in ours if not re.fullmatch(wide, word)] == []


@given(REGEXES, REGEXES)
@settings(max_examples=100, deadline=None)
def test_an_alternative_is_always_within_the_whole(one, other):
    with mock.patch.object(inclusion, "MOST_WORK", 1_000_000):
        assert is_within(tree(one), tree(f"(?:{other}|{one})"))
        assert is_within(tree(one), tree(f"(?:{one}){{1,2}}"))


@pytest.mark.parametrize(
    ("pattern", "form", "relation"),
    [
        (r"^\d{4}-\d\d-\d\d$", "date", "wider"),
        (r"^\d+-\d+-\d+$", "date", "wider"),
        (r"-", "date", "wider"),
        (r"^2024-01-[0-2][1-9]$", "date", "narrower"),
        (r"^2024-01-[0-2]\d$", "date", "neither"),  # there is no 0 January
        (r"@", "email", "wider"),
        (r"^.{1,100}$", "email", "neither"),
    ],
)
def test_patterns_beside_formats(pattern, form, relation):
    ours, theirs = tree(pattern, is_whole=False), tree(FORMATS[form], is_whole=False)

    assert is_within(theirs, ours) == (relation == "wider")
    assert is_within(ours, theirs) == (relation == "narrower")


@pytest.mark.parametrize(
    ("pattern", "is_exact", "refused"),
    [(r"^\d{4}-\d\d-\d\d$", True, '"1316-13-98"'), (r"^2024-01-[0-2]\d$", False, '"2024-03-01"')],
)
def test_a_grammar_holds_both_where_one_holds_the_other(pattern, is_exact, refused):
    rules = Rules()
    strings = Strings(rules)

    ebnf = rules.text(strings.json(String(pattern=pattern, format="date")))

    assert (strings.inexact == {}) == is_exact
    assert accepts_text(Grammar.from_ebnf(ebnf), '"2024-01-17"')
    assert not accepts_text(Grammar.from_ebnf(ebnf), refused)


@pytest.mark.parametrize(
    "pattern",
    [
        "x" * 5000,
        "^(?:.*[a-z].{400}|.*)$",
        "^[a-z]*a[a-z]{300}@[a-z]*a[a-z]{300}$",
        r"^(?:[a-z0-9]{1,63}\.){1,20}@",
        "^(?:" + "|".join(f".*{c}.{{9}}" for c in "abcdefghijklmnopqrstuvwxyz") + "|.*)$",
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_clients_pattern_cannot_hold_up_the_router(pattern, form):
    ours, theirs = tree(pattern, is_whole=False), tree(FORMATS[form], is_whole=False)

    began = time.process_time()
    is_within(ours, theirs)
    is_within(theirs, ours)

    assert time.process_time() - began < 5
