"""Client patterns as trees: the words of a tree against what Python's `re.search` finds."""

import json
import random
import re
import time

import pytest
import xgrammar
from xgrammar.testing import _is_grammar_accept_string as accepts_text

from tests.libs.toolcall.words import has_word
from toolcall.grammar.automata import automaton, in_json, known_in_json
from toolcall.grammar.characters import EVERY, characters, one_of
from toolcall.grammar.complements import not_beginning_with, other_than
from toolcall.grammar.ebnf import ANY_CHARACTER, ANY_TEXT, Rules, character_class, literal
from toolcall.grammar.patterns import translate
from toolcall.grammar.regular import (
    Either,
    One,
    Repeat,
    concat,
    cost_ms,
    either,
    fitted,
    lengths,
    relaxed,
    text,
    without,
)
from toolcall.schema.string_formats import FORMATS

EXACT = [
    "",
    "^$",
    "foo",
    "^foo",
    "foo$",
    r"^[A-Z]{3}$",
    "(^|,)a(,|$)",
    "^(a|b)+$",
    r"^\d{3}-\d{4}$",
    r"\s",
    r"^\S*$",
    "a|^b|c$",
    "^[a-z][a-z0-9-]*$",
    "^.{2,4}$",
    "[^a]",
    "^(?:a|bc){2}$",
    r'^["\\/]+$',
    r"^[\n\t ]*$",
    "é+",
    '^[^"]*$',
    "^a?b*?c+?$",
    r"^[\]\-^]+$",
    "(((a)))$",
    "^(^a)",
    r"^\x00",
    "[🙂-🙃]",
    "^(x(y|$))",
    r"\Aab\Z",
    "(?s)^a.b$",
    "(?x) ^ a  b $ # a remark",
    "^(a*)*b$",
    "^(a?b?)+$",
    "(?P<name>ab)+",
    *FORMATS.values(),
]
WIDER = [r"^\w+$", r"^[^\W\d]+$", r"^\D\W[^\d][^\s]$"]
UNTRANSLATABLE = [
    "(?=a)b",
    "(?!x)y",
    "(?<=a)b",
    r"(a)\1",
    r"\bfoo\b",
    "(?i)a",
    "(?m)^a$",
    "(?i:a)b",
    "a^b",
    "a$b",
    "(^a)*",
    "(?>a)b",
    "a*+b",
    "[a-",
]
LETTERS = 'abcfoxyzABC019-_ ,"\\/\n\t\0é日🙂.@:TZ^]'
SAMPLES = [
    "2024-02-30",
    "2024-02-29",
    "12:30:00Z",
    "2024-01-31T12:30:00.5+01:00",
    "a.b@c-d.example",
    "256.1.1.1",
    "127.0.0.1",
    "123e4567-e89b-12d3-a456-426614174000",
    "555-1234",
    "ABC",
]


@pytest.mark.parametrize("pattern", EXACT)
def test_a_tree_has_the_words_in_which_python_finds_the_pattern(pattern):
    translation = translate(pattern)

    assert translation.is_exact
    for word in _words(pattern):
        assert has_word(translation.tree, word) == _is_found(pattern, word), word


@pytest.mark.parametrize("pattern", WIDER)
def test_a_tree_that_is_wider_than_the_pattern_says_so(pattern):
    translation = translate(pattern)

    assert not translation.is_exact
    for word in _words(pattern):
        assert has_word(translation.tree, word) or not _is_found(pattern, word), word


@pytest.mark.parametrize("pattern", UNTRANSLATABLE)
def test_what_a_regular_language_lacks_is_not_translated(pattern):
    assert translate(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "is_translated"),
    [
        ("(^|)" * 40 + "b", False),
        ("a" + "($|)" * 40, False),
        ("(?:|^)" * 4_000, False),
        ("(^|)" * 6 + "a" * 20_000, False),
        ("(^|)" * 6 + "a", True),
        (f"[{''.join(chr(0x4E00 + 2 * at) for at in range(10_000))}]", True),
    ],
)
def test_a_pattern_is_translated_or_given_up_in_little_time(pattern, is_translated):
    began = time.process_time()

    assert (translate(pattern) is not None) == is_translated
    assert time.process_time() - began < 4


def test_digits_are_ascii_and_the_end_is_the_very_end():
    assert not has_word(translate(r"^\d$").tree, "٣")
    assert not has_word(translate("^a$").tree, "a\n")


def test_a_pattern_can_be_read_as_the_whole_text():
    assert has_word(translate("a|b+", is_whole=True).tree, "bb")
    assert not has_word(translate("a|b+", is_whole=True).tree, "abb")


@pytest.mark.parametrize("pattern", [*EXACT, *WIDER])
def test_inside_json_the_same_words_are_written_with_escapes(pattern):
    tree = translate(pattern).tree
    quoted = in_json(tree)

    for word in _words(pattern)[:150]:
        assert has_word(quoted, json.dumps(word, ensure_ascii=False)[1:-1]) == has_word(tree, word)
    assert not any(has_word(quoted, raw) for raw in ['"', "\n", "\x00", "a\\"])


@pytest.mark.parametrize("pattern", [*EXACT, *WIDER])
def test_the_grammar_of_a_tree_accepts_its_words(pattern):
    tree = translate(pattern).tree
    words = random.Random(1).sample(_words(pattern), 60)
    raw, quoted = _grammar(tree), _grammar(in_json(tree))

    for word in words:
        written = json.dumps(word, ensure_ascii=False)[1:-1]
        assert accepts_text(raw, f"{word}|") == has_word(tree, word), word
        assert accepts_text(quoted, f"{written}|") == has_word(tree, word), word


@pytest.mark.parametrize("seed", range(3))
def test_the_grammar_of_a_random_tree_accepts_its_words_only(seed):
    pick = random.Random(seed)
    for _ in range(60):
        tree = _random_tree(pick, 4)
        grammar = _grammar(tree)

        for _ in range(40):
            word = "".join(pick.choice("abc") for _ in range(pick.randint(0, 6)))
            assert accepts_text(grammar, f"{word}|") == has_word(tree, word), (tree, word)


def test_every_escape_of_json_is_taken_where_any_character_may_stand():
    any_character = in_json(One(EVERY))
    good = ["a", "é", "🙂", r"\"", r"\\", r"\/", r"\n", r"\u0041", r"\u00e9", r"\ud83d\ude42"]
    bad = ['"', "\\", "\n", "\x1f", r"\x41", r"\u12", r"\ud83d", r"\ude42", r"\ud83dx"]

    assert all(has_word(any_character, written) for written in good)
    assert not any(has_word(any_character, written) for written in bad)


def test_a_known_text_may_be_escaped_beyond_ascii_only():
    tree = known_in_json('é\n"🙂a')

    assert has_word(tree, 'é\\n\\"🙂a')
    assert has_word(tree, r"\u00E9\u000a\"\ud83d\ude42a")
    assert not has_word(tree, r"é\n\"🙂\u0061")


@pytest.mark.parametrize("known", ["größe", "\x01a", "é1", "\x7ff", '"\\\n\t', "日a", "🙂"])
def test_a_literal_means_itself_also_after_xgrammar_has_printed_it(known):
    for expression in (literal(known), f"{character_class(one_of(known))}{{{len(known)}}}"):
        grammar = xgrammar.Grammar.from_ebnf(f"root ::= {expression}\n")
        printed = xgrammar.Grammar.from_ebnf(str(grammar))

        assert accepts_text(grammar, known)
        assert accepts_text(printed, known)
        assert not accepts_text(printed, known + "x")


def test_a_literal_may_hold_a_nul():
    grammar = xgrammar.Grammar.from_ebnf(f"root ::= {literal('a' + chr(0) + 'b')}\n")

    assert accepts_text(grammar, "a\0b")
    assert not accepts_text(grammar, "a")


def test_lengths_narrow_the_one_part_that_can_vary():
    name = translate("^[a-z][a-z0-9-]*$").tree

    assert lengths(fitted(name, 3, 8)) == (3, 8)
    assert fitted(translate("^a*b*$").tree, 1, 8) is None
    assert fitted(translate("^[a-z]{2}$").tree, 3, 8) is None


def test_repeats_that_cost_too_much_are_counted_no_further_than_one():
    slug = translate("^[a-z0-9-]{2,63}-[0-9]{4}$").tree
    wide = relaxed(slug, 16.0)

    assert cost_ms(wide) < 16.0
    assert has_word(wide, "a-2024")
    assert has_word(wide, "a" * 99 + "-2024")
    assert not has_word(wide, "-2024")
    assert not has_word(wide, "abc-24")


def test_a_tree_without_some_characters_keeps_the_words_that_lack_them():
    tree = without(either(text("a<b"), Repeat(One(EVERY), 1, 3)), one_of("<"))

    assert has_word(tree, "abc")
    assert not has_word(tree, "a<b")
    assert without(text("<"), one_of("<")) is None


@pytest.mark.parametrize("words", [["a"], ["ab", "abc", "b"], ["", "x"], ["a" * 30]])
def test_other_names_are_all_but_the_words(words):
    tree = other_than(words)
    pick = random.Random(0)
    names = ["", "a", "ab", "abc", "abcd", "b", "x", "xx", "a" * 30, "a" * 31]

    for name in [*names, *("".join(pick.choices("abx\n", k=3)) for _ in range(50))]:
        assert has_word(tree, name) == (name not in words), name


def test_text_that_does_not_begin_with_the_words():
    tree = not_beginning_with(['name"', "no"])

    assert all(has_word(tree, each) for each in ["", "n", 'name\\"', "nam", "x no"])
    assert not any(has_word(tree, each) for each in ["no", "not", 'name"', 'name": 1'])


@pytest.mark.parametrize(
    "expression", [ANY_CHARACTER, ANY_TEXT, character_class(one_of("a").complement())]
)
def test_half_a_surrogate_pair_is_no_character(expression):
    vocabulary = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)])
    compiled = xgrammar.GrammarCompiler(vocabulary).compile_grammar(f"root ::= {expression}")

    for character in ("\ud7ff", "\ue000", "日", "🙂", "\0"):
        assert xgrammar.GrammarMatcher(compiled).accept_string(character.encode())
    for half in ("\ud800", "\udfff"):
        matcher = xgrammar.GrammarMatcher(compiled)
        assert not matcher.accept_string(half.encode(errors="surrogatepass"))
    assert characters([(0, 0x10FFFF)]) == EVERY
    assert translate(r"\ud800") is None


def test_a_set_of_characters_is_what_its_ranges_hold():
    vowels = one_of("aeiou")

    assert "e" in vowels
    assert "f" not in vowels
    assert "f" in vowels.complement()
    assert not vowels - vowels
    assert (vowels | one_of("b")) & one_of("bc") == one_of("b")
    assert characters([(1, 5), (4, 9), (10, 12)]).ranges == ((1, 12),)


def _words(pattern):
    pick = random.Random(pattern)
    found = {"".join(pick.choice(LETTERS) for _ in range(pick.randint(0, 6))) for _ in range(400)}
    # Before a last line feed `$` holds for Python only.
    return sorted(word for word in found if not word.endswith("\n")) + SAMPLES


def _is_found(pattern, word):
    return re.search(pattern, word) is not None


def _grammar(tree):
    rules = Rules()
    return xgrammar.Grammar.from_ebnf(rules.text(automaton(rules, tree, '"|"')))


def _random_tree(pick, depth):
    if depth == 0 or pick.random() < 0.3:
        return One(one_of(pick.choice(["a", "b", "c", "ab", "bc"])))
    parts = [_random_tree(pick, depth - 1) for _ in range(pick.randint(1, 3))]
    match pick.choice(["concat", "either", "repeat"]):
        case "concat":
            return concat(*parts)
        case "either":
            return Either(tuple(parts))
        case _:
            low = pick.randint(0, 2)
            return Repeat(parts[0], low, pick.choice([None, low, low + 1, low + 2]))


@pytest.mark.parametrize("nothing", ["(?:){1000000}", "(?:(?:){9}|){0,4294967294}"])
def test_nothing_repeated_is_nothing(nothing):
    assert translate(f"a{nothing}b") == translate("ab")
