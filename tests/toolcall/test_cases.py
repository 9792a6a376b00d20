"""The cases themselves: many, none twice, each format and each rule covered."""

from collections import Counter

import pytest

from toolcall.formats.table import FORMATS
from toolcheck_suite import cases, live, requests
from toolcheck_suite.notation import BadNotation, Output, Piece, parse
from toolcheck_suite.rules import value_at_fault


def test_guillemets_tell_control_tokens_from_text_that_spells_them():
    output = parse("a«/think»</think>«=｜DSML｜»")

    assert output == Output(
        (Piece("a"), Piece("</think>", True), Piece("</think>"), Piece("｜DSML｜", True))
    )


def test_the_place_of_refusal_does_not_change_the_text():
    output = parse("9¦9")

    assert output == Output((Piece("99"),), refused_at=1)


@pytest.mark.parametrize("written", ["a«/think", "1¦2¦"])
def test_a_slip_in_the_notation_is_told(written):
    with pytest.raises(BadNotation):
        parse(written)


def test_there_are_cases_for_every_format_and_every_kind_of_fault():
    found = cases.load()

    assert len(found) >= 400
    assert set(FORMATS) == {case.format for case in found}
    assert {case.expected.fault for case in found} == {
        None,
        "undeclared_tool",
        "invalid_arguments",
        "malformed_call",
        "wrong_tool",
        "too_many_calls",
        "missing_call",
        "invalid_content",
    }


def test_every_row_of_the_conformance_table_has_a_case():
    named = Counter(
        row for case in cases.load() for row in case.source.replace(";", ",").split(",")
    )

    for row in range(1, 25):
        assert any(name.strip() == f"C{row}" for name in named), f"C{row}"


def test_no_two_cases_say_the_same():
    seen = Counter(
        (
            str(sorted(case.request.items(), key=str)),
            case.format,
            case.start,
            case.output,
            case.ends,
        )
        for case in cases.load()
        if case.then is None
    )

    assert [key for key, count in seen.items() if count > 1] == []


def test_every_bad_request_names_a_field_of_its_own():
    found = requests.load()

    assert len(found) >= 60
    assert len({bad.id for bad in found}) == len(found)


@pytest.mark.parametrize("entry", live.live_schemas(), ids=lambda entry: entry["name"])
def test_a_live_schemas_instances_fit_and_fail(entry):
    assert value_at_fault(entry["schema"], entry["fits"]) is None
    assert value_at_fault(entry["schema"], entry["fails"]) is not None
