"""Expressions mean what Python means by them, and no text can make them slow."""

import re
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from toolcall.schema.linear_regex import NotRegular, automaton_of
from toolcall.schema.patterns import fault_of, matches_whole, may_be_slow, search, tree_of
from toolcall.schema.work import TooMuchWork, Work

CHARACTERS = st.sampled_from(
    ("a", "b", "A", "1", "_", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", "\n", "é")
)
ZERO_WIDTH = st.sampled_from(
    ("^", "$", r"\A", r"\Z", r"\b", r"\B", "(?<=a)", "(?<!ab)", "(?<=^)", "(?!)", "()")
)
REPEATS = ("*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?")
PATTERNS = st.recursive(
    CHARACTERS | ZERO_WIDTH,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"({pair[0]}){pair[1]}"),
        inner.map(lambda part: f"(?={part})"),
        inner.map(lambda part: f"(?!{part})"),
        inner.map(lambda part: f"(?i:{part})"),
    ),
    max_leaves=8,
)
FLAGS = st.sampled_from(("", "", "(?i)", "(?m)", "(?s)", "(?a)"))
TEXTS = st.lists(st.text("abA1_ \né", max_size=7), min_size=6, max_size=6)


@given(st.builds(str.__add__, FLAGS, PATTERNS), TEXTS)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_an_expression_means_what_python_means_by_it(pattern, texts):
    try:
        compiled = re.compile(pattern)
    except re.error:
        assume(False)
    automaton = automaton_of(re._parser.parse(pattern))

    for text in texts:
        found, whole = compiled.search(text) is not None, compiled.fullmatch(text) is not None
        assert (automaton.finds(text, Work()), automaton.matches_whole(text, Work())) == (
            found,
            whole,
        )
        assert (search(pattern, text), matches_whole(pattern, text)) == (found, whole)


EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+"
    r"[A-Za-z]{2,}$"
)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^(a+)+$", "a" * 20_000 + "!", False),
        ("^(a+)+$", "a" * 20_000, True),
        ("(a|a)*b", "a" * 20_000, False),
        ("^(a|ab|b)*c$", "ab" * 10_000, False),
        ("a*b", "a" * 20_000, False),
        (r"(x+x+)+y", "x" * 20_000, False),
        ("(a?){30}a{30}$", "a" * 29, False),
        ("^(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9]{8,}$", "a" * 20_000 + "A1", True),
        (EMAIL, "first.last@" + "b." * 5_000 + "org", True),
        (EMAIL, "first..last@b.org", False),
        (EMAIL, "a@" + "b." * 5_000, False),
        ("[a-z]{1,5000}", "1" * 20_000 + "a", True),
        (r".*.*.*(?:){4294967294}(?:){0,4294967294}x", "a" * 100, False),
        (".*.*.*(?=(?=(?=a{100}){100}){100}){100}", "a" * 101, True),
        (".*.*.*" + r"(?!\ba)" * 400 + r"\b" * 400, "b " * 10, True),
    ],
)
def test_no_expression_is_slow(pattern, text, found):
    began = time.process_time()

    assert fault_of(pattern) is None
    assert search(pattern, text) is found

    # Backtracking would take hours; the bound leaves room for a slow machine.
    assert time.process_time() - began < 5


def test_what_would_still_be_slow_is_given_up():
    with pytest.raises(TooMuchWork):
        search("x.{0,2000}y", "x" * 100_000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(", "does not compile"),
        (r"\p{L}", "does not compile"),
        ("a{99999999999999999999}", "does not compile"),
        (r"(a+)\1*$", "back reference"),
        ("(?>a*)*b", "atomic group"),
        ("a*+b", "possessive repeat"),
        ("x.{0,5000}y", "more than 2500 states"),
        (".*.*.*" + "(?=a{500})" * 6, "more than 2500 states"),
        ("a" * 10_001, "more than 10,000 characters"),
        ("(?i)" + "[\x00-\U0010ffff]" * 100, "too wide classes"),
        ("(?:[\u0100-\u0200\u0300-\u0400z]){2}" * 400, "too many or"),
    ],
)
def test_an_expression_that_cannot_be_served_says_why(pattern, text):
    assert text in fault_of(pattern)


def test_searches_together_are_given_up_when_they_take_too_long():
    work = Work(100_000)
    began = time.process_time()

    with pytest.raises(TooMuchWork):
        any(search("^a*a*a*c", "a" * 250 + str(at), work) for at in range(1_000))

    # One at a time by backtracking: 10 ms each.
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    "pattern", [r"^(a)\1$", "^.{1,100000}$", "[a-z]{1,100000}", "", "[[a]", "(?x) a  # comment"]
)
def test_an_expression_that_python_matches_fast_is_served(pattern):
    assert fault_of(pattern) is None


def test_a_whole_match_has_no_place_to_begin_but_one():
    assert fault_of("a" * 9_000) is not None
    assert fault_of("a" * 9_000, is_whole=True) is None


def test_names_are_looked_for_by_python_only_where_that_is_fast():
    assert may_be_slow("^(a+)+$")
    assert may_be_slow("^a*a*c")
    assert not may_be_slow("^x-[a-z]{1,8}-[a-z]+$")


def test_an_automaton_forgets_when_it_remembers_too_much(monkeypatch):
    monkeypatch.setattr("toolcall.schema.linear_regex.MOST_KEPT", 10)
    automaton = automaton_of(re._parser.parse("(a|b)*c"))

    assert [automaton.finds(text, Work()) for text in ("abac", "abab", "c", "")] == [
        True,
        False,
        True,
        False,
    ]


def test_only_what_an_automaton_can_do_becomes_one():
    with pytest.raises(NotRegular):
        automaton_of(re._parser.parse("(?P<a>x)(?P=a)"))


def test_patterns_read_in_two_threads_leave_the_processes_warnings_as_they_were():
    patterns = [f"[[a]{{{number}}}" for number in range(1000)]

    def read(start):
        for pattern in patterns[start::2]:
            tree_of(pattern)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with warnings.catch_warnings(record=True) as warned, ThreadPoolExecutor(2) as threads:
            warnings.simplefilter("always")
            before = list(warnings.filters)
            list(threads.map(read, range(2)))
            after = list(warnings.filters)
    finally:
        sys.setswitchinterval(interval)

    assert [str(each.message) for each in warned] == []
    assert after == before
