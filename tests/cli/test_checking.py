"""What is said of columns that are probably not read as they were meant."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from stream_dp.cli.files.row_files import RowFile, pointed
from stream_dp.cli.files.value_survey import Complaint, Survey, reading_table, tell_unread
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Boolean, Category, Date, Number, Universe
from stream_dp.messages import Definition

DAY = Category("day", ("2026-11-01", "2026-11-02"))
AMOUNT = Number("amount", (20.0, 50.0, 100.0))
PAID = Boolean("paid")


def survey(attribute: Any, column: list[Any], *, times: int = 100, **how: Any) -> list[Complaint]:
    """What is said of a column that repeats these values."""
    found = Survey(Universe((attribute,)), **how)
    columns = {attribute.name: column * times}
    for start in range(0, len(columns[attribute.name]), 7):
        part = {attribute.name: columns[attribute.name][start : start + 7]}
        found.take(part, part)
    return found.complaints()


def test_times_where_days_are_listed_are_told_with_three_of_them() -> None:
    times = [f"2026-11-01T10:00:0{n}Z" for n in range(9)]
    (said,) = survey(DAY, [*times, "2026-11-02"])
    assert said.text == "of 1,000 rows 90.0% are not listed and count as other"
    assert said.examples == tuple(repr(time) for time in times[:3])
    assert "2026-11-01T" not in said.words(with_examples=False)
    assert "such as '2026-11-01T10:00:00Z', " in said.words(with_examples=True)
    assert "T10" not in repr(said)


@pytest.mark.parametrize(
    ("attribute", "column"),
    [
        (
            DAY,
            ["2026-11-01"] * 700 + [f"x{n}" for n in range(300)],
        ),  # three in ten are other, as declared
        (DAY, ["2026-11-01"] * 6 + [None] * 4),
        (AMOUNT, [10, 30, 60, 120]),
        (AMOUNT, [10] * 8 + [30, 120]),  # skewed, as amounts are
        (AMOUNT, ["10"] * 100 + ["32.75"] * 100 + ["n/a"]),
        (PAID, ["yes"] * 199 + [""]),
        (
            Number("gain", (1.0, 3000.0, 10000.0)),
            [0] * 92 + [2000, 5000, 20000, 4000] * 2,
        ),  # mostly none
        (Number("amount", (20.0,)), [10] * 99 + [30]),
        (Number("amount", (20.0, 50.0), missing=True), [30, None, None, 10, 60]),
    ],
)
def test_what_a_definition_expects_is_not_complained_of(attribute: Any, column: list[Any]) -> None:
    assert survey(attribute, column) == []


def test_rows_that_mostly_have_no_value_are_told() -> None:
    (said,) = survey(Number("amount", (20.0, 50.0), missing=True), [30, None, None])
    assert said.text == "of 300 rows 66.7% are empty and count as missing"
    assert said.examples == ()


def test_values_that_count_as_others_which_they_are_not_are_told_sooner() -> None:
    (said,) = survey(AMOUNT, [30, 60, None, "x", 10, 10, 10])
    assert said.text == "of 700 rows 14.3% are not a number and 14.3% are empty and count as < 20"
    (said,) = survey(AMOUNT, [10, 60, 30, None])
    assert said.text == "of 400 rows 25.0% are empty and count as < 20"
    assert said.fix == 'a definition with "missing": true distinguishes them'
    (said,) = survey(PAID, ["ja", "nein", "yes"])
    assert said.text == "of 300 rows 66.7% are neither true nor false and count as false"


def test_zeros_say_nothing_of_the_unit_and_hide_no_wrong_one() -> None:
    gain = Number("gain", (1.0, 3000.0, 10000.0))
    (said,) = survey(gain, ["0"] * 92 + [20_000] * 8)
    assert said.text == "100.0% of its 800 numbers other than 0 are >= 10000, in an end bin"


def test_a_few_values_that_count_as_others_are_told_without_a_question() -> None:
    (said,) = survey(PAID, ["yes"] * 95 + ["ja"] * 5)
    assert said.text == "of 10,000 rows 5.0% are neither true nor false and count as false"
    assert said.fix.endswith('or add "missing": true to the definition to count them apart')
    assert not said.asks
    (said,) = survey(PAID, ["yes"] * 85 + ["ja"] * 15)
    assert said.asks


def test_one_value_that_is_not_listed_is_told_where_many_rows_have_it() -> None:
    (said,) = survey(DAY, ["2026-11-01"] * 19 + ["2026-11-03"])
    assert said.text == (
        "of 2,000 rows 5.0% have the same value, which is not listed and counts as other"
    )
    assert said.fix == "list it in a definition, if it is a value of its own"
    assert said.examples == ("'2026-11-03'",)
    assert "11-03" not in said.words(with_examples=False)
    assert not said.asks
    assert survey(DAY, ["2026-11-01"] * 199 + ["2026-11-03"], times=1) == []


def test_a_text_that_stands_for_a_missing_value_is_told_with_how_to_declare_it() -> None:
    (said,) = survey(DAY, ["2026-11-01"] * 19 + ["?"])
    assert '"na": [...]' in said.fix
    (said,) = survey(AMOUNT, [30, 60, 10, "n/a"])
    assert '"na": [...]' in said.fix
    declared = Category("day", DAY.values, missing=True, na=("?",))
    assert survey(declared, ["2026-11-01"] * 19 + ["?"]) == []
    found = Survey(Universe((declared,)))
    found.take({"day": ["?", None, "x"]}, {"day": ["?", None, "x"]})
    assert (found.readings["day"].empty, found.readings["day"].strange.rows) == (2, 1)


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        (["40,5", "12,75"], "pass --decimal ,"),
        (["1,234.50", "1,300.00"], "pass --decimal ."),
        (["1.234,50", "7,00"], "pass --decimal ,"),
        (["1,234", "2,500"], "pass --decimal , if commas mark decimals, or --decimal . if"),
        (["1,234", "999.50"], "pass --decimal ."),
    ],
)
def test_numbers_in_another_notation_are_told_with_the_option_that_reads_them(
    values: list[str], fix: str
) -> None:
    """Few of them are enough: these rows are lost for nothing."""
    (said,) = survey(AMOUNT, [*values, *["10", "30", "60"] * 20])
    assert "have a number in another notation and count as < 20" in said.text
    assert said.fix.startswith(fix)
    assert survey(AMOUNT, [*values, "1000"], decimal=".")[0].fix != fix
    (said,) = survey(AMOUNT, [*values, "10", "30"], can_say=False)
    assert "--decimal" not in said.fix


def test_a_point_that_may_stand_between_thousands_is_asked_about() -> None:
    (said,) = survey(AMOUNT, ["1.234", "12.500", "30", "60"])
    assert said.text == "a point in its numbers may mark decimals or separate thousands"
    assert said.examples == ("'1.234'", "'12.500'")
    assert survey(AMOUNT, ["1.234", "12.500", "30", "60"], decimal=".") == []
    assert survey(AMOUNT, ["1.234", "12.5", "30", "60"]) == []
    assert survey(AMOUNT, [1.234, 12.5, 30, 60]) == []


def test_numbers_that_nearly_all_lie_in_an_end_bin_are_told_apart_from_unreadable_ones() -> None:
    (said,) = survey(AMOUNT, [4050, 1275, 9900] * 3 + [30])
    assert said.text == "90.0% of its 1,000 numbers are >= 100, in an end bin"
    assert said.examples == ("'4050'", "'1275'", "'9900'")
    unreadable, low = survey(AMOUNT, ["x", "10"])
    assert unreadable.text == "of 200 rows 50.0% are not a number and count as < 20"
    assert low.text == "100.0% of its 100 numbers are < 20, in an end bin"
    assert survey(AMOUNT, [4050], times=20) == []  # too few to tell


def test_many_values_that_are_not_between_the_ends_of_a_measure_are_told() -> None:
    kept = Number("amount", (20.0, 50.0, 100.0), measure=Measure(0.01, 0.0, 120.0))
    (said,) = survey(kept, ["-1", 10, 30, 60, "300", 90])
    assert said.text == (
        "33.3% of its 600 numbers are not between 0 and 120, and add to sums as the nearer of the two"
    )
    assert said.examples == ("'-1'", "'300'")
    assert survey(kept, [10, 30, 60, 120, 7] * 5 + [121]) == []  # few are


@pytest.mark.parametrize(
    ("attribute", "column", "proposed"),
    [
        (AMOUNT, [10, "40", 55.0, None, "x"], True),
        (AMOUNT, [10, "40", 55.5], False),
        (Number("amount", (20.0, 50.0), integer=True), [10, 40], False),
        (Number("amount", (20.0, 50.5)), [10, 40], False),
        (Number("amount", (20.0, 50.0), measure=Measure(1.0, 0.0, 99.0)), [10, 40], True),
        (Number("amount", (20.0, 50.0), measure=Measure(0.1, 0.0, 99.0)), [10, 40], False),
    ],
)
def test_a_definition_that_does_not_say_that_all_numbers_are_whole_is_told_to(
    attribute: Number, column: list[Any], proposed: bool
) -> None:
    found = Survey(Universe((attribute,)))
    for rows in (column * 100, column):
        part = {"amount": rows}
        found.take(part, part)
    words = 'amount: all of its numbers are whole; add "integer": true to the definition, or nobody can '
    said = [each.words(with_examples=True) for each in found.proposals()]
    assert said == [f"{words}ask for <= 19, which then means < 20"] * int(proposed)


MONTH = Date("month", "month", "2026-01-01", "2027-01-01", missing=True)


def test_dates_that_are_not_read_are_told_with_the_forms_that_are() -> None:
    (said,) = survey(MONTH, ["14.03.2026", "15.03.2026", "2026-03-14"])
    assert said.text == "of 300 rows 66.7% are not a date and count as missing"
    assert said.fix.startswith("write dates as in ISO 8601, such as 2026-03-14 or")
    assert said.examples == ("'14.03.2026'", "'15.03.2026'")
    assert survey(MONTH, ["2026-03-14", "2026-04", "2026-05-01T10:00Z"]) == []


def test_numbers_and_days_that_another_definition_would_read_are_told_so() -> None:
    (said,) = survey(MONTH, [1773446400000, "1773446400000"])
    assert said.fix == 'a definition with "epoch": "s", or "ms", reads numbers as dates'
    hours = Date("hour", "hour_of_day")
    (said,) = survey(hours, ["2026-03-14", "2026-03-15"])
    assert said.text == "of 200 rows 100.0% are not a date and count as 00"
    assert said.fix == 'these are days without a time: a definition with "by": "day" reads them'
    assert survey(hours, ["2026-03-14T10:00"]) == []
    for attribute in (DAY, AMOUNT):
        (said, *_) = survey(attribute, ["2026-03-14T10:00", "2026-03-15"])
        assert said.fix == 'an attribute of "type": "date" reads dates'


def test_dates_outside_the_bounds_are_told() -> None:
    (said,) = survey(MONTH, ["2025-12-31", "2026-03-14", "2027-01-01", "2027-01-02"])
    assert said.text == "75.0% of its 400 dates are < 2026-01 or >= 2027-01, outside the bounds"
    assert said.fix == "compare the dates with from and until in the definition"
    assert said.examples == ("'2027-01-01'", "'2027-01-02'")
    assert survey(MONTH, [*["2026-03-14"] * 39, "2027-01-01"]) == []  # few are


def test_the_table_of_a_check_counts_dates_outside_the_bounds() -> None:
    universe = Universe((MONTH,))
    found = Survey(universe)
    part = {"month": ["2026-03-14", "2025-01-01", "x", None]}
    found.take(part, part)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(reading_table(universe, found))
    lines = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert "out of bounds: '2025-01-01' 1 < 2026-01" in lines
    assert "not a date: 'x' 1 missing" in lines
    assert "month a date 2 itself" in lines


def test_each_column_with_values_that_cannot_be_read_has_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However few they are, and whether or not they count apart."""
    universe = Universe((AMOUNT, PAID, DAY, MONTH))
    found = Survey(universe)
    tell_unread(found)
    assert capsys.readouterr().err == ""
    good: dict[str, list[Any]] = {
        "amount": [30], "paid": ["no"], "day": ["2026-11-01"], "month": ["2026-03"]
    }  # fmt: skip
    part = {name: values * 999 + [None] for name, values in good.items()}
    part["amount"] = ["30"] * 949 + ["(238.49)"] * 50 + [""]
    part["paid"][3:5] = ["ja", "nein"]
    part["day"][0] = "1. November"
    part["month"][7] = "14.03.2026"
    found.take({**part, "amount": [value or None for value in part["amount"]]}, part)
    tell_unread(found)
    assert capsys.readouterr().err.splitlines() == [
        "50 of 999 values of amount are not numbers and count as < 20",
        "2 of 999 values of paid are neither true nor false and count as false",
        "1 of 999 values of day are not listed and count as other",
        "1 of 999 values of month are not dates and count as missing",
    ]
    (few,) = found.complaints()
    assert (few.attribute, few.asks) == ("amount", False)


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("40,5", ",", "40.5"),
        (" 1.234.567,5 ", ",", "1234567.5"),
        ("1.234", ",", "1234"),
        ("12.5", ",", None),
        ("1234,5", ",", "1234.5"),
        ("-7", ",", "-7"),
        ("1.23,4", ",", None),
        ("1,234.5", ".", "1234.5"),
        ("1,234", ".", "1234"),
        ("40,5", ".", None),
        ("1,2345", ".", None),
        ("1 234.5", ".", "1234.5"),
        ("1\u202f234\u202f567,5", ",", "1234567.5"),
        ("1'234 567", ".", None),
        ("1e3", ".", "1e3"),
        ("1,5e3", ",", "1.5e3"),
        (",5", ",", ".5"),
        ("", ",", None),
        ("n/a", ".", None),
    ],
)
def test_a_mark_before_decimals_leaves_the_other_one_between_thousands_only(
    text: str, decimal: str, number: str | None
) -> None:
    assert pointed(text, decimal) == number


def test_a_decimal_comma_is_read_in_columns_of_numbers_alone(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "dataset": "orders",
        "attributes": [
            {"name": "amount", "type": "number", "edges": [20, 50]},
            {"name": "place", "type": "category", "values": ["1,5", " Ulm"]},
            {"name": "paid", "type": "boolean"},
        ],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02},
        "phase": {"min_rows": 20_000},
    }
    file = tmp_path / "orders.csv"
    file.write_text("amount;place;paid\n 1.040,5 ; 1,5 ; yes \n12.5; Ulm;  \n  ;Ulm ;\n")
    source = RowFile(file, Definition.read(document), 10, delimiter=";", decimal=",")
    ((columns, _),) = source.columns()
    assert columns == {
        "amount": ["1.040,5", "12.5", None],
        "place": ["1,5", " Ulm", "Ulm"],  # as it is listed, else without its blanks
        "paid": ["yes", None, None],
    }
    assert source.values(columns)["amount"] == ["1040.5", None, None]
    assert source.values(columns)["place"] == columns["place"]
    lines = tmp_path / "orders.ndjson"
    lines.write_text(
        "\n".join(
            json.dumps({"amount": amount, "place": "", "paid": True}) for amount in (1.5, "1,5")
        )
    )
    source = RowFile(lines, Definition.read(document), 10, decimal=",")
    ((columns, _),) = source.columns()
    assert source.values(columns)["amount"] == [1.5, "1.5"]
    exact = pa.table({"amount": [Decimal("1.5")], "place": ["1,5"], "paid": [True]})
    pq.write_table(exact, tmp_path / "orders.parquet")
    source = RowFile(tmp_path / "orders.parquet", Definition.read(document), 10, decimal=",")
    ((columns, _),) = source.columns()
    assert source.values(columns) == {"amount": ["1.5"], "place": ["1,5"], "paid": [True]}


@pytest.mark.parametrize(("synthetic_rows", "base_share"), [(500, 0.0), (500, 0.9), (0, 0.0)])
def test_rows_that_would_be_poor_are_warned_of_where_a_definition_asks_for_rows(
    run: Any, definition: dict[str, Any], tmp_path: Path, synthetic_rows: int, base_share: float
) -> None:
    file = tmp_path / "definition.json"
    mechanism = {"profile": "calibrated", "base_share": base_share}
    file.write_text(
        json.dumps({**definition, "mechanism": mechanism, "synthetic_rows": synthetic_rows})
    )
    ended = run("dataset", "check", file)
    assert ended.code == 0, ended.err
    said = "synthetic rows will be poor: opening a phase publishes too little about "
    assert (said in ended.err) is (synthetic_rows > 0 and base_share == 0.0)
    assert ("mechanism.base_share" in ended.err) is (said in ended.err)
