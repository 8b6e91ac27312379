"""What is said of columns that are probably not read as they were meant."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dp.cli.checks.definition_check import checked
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.row_files import RowFile, pointed
from stream_dp.cli.files.value_survey import Complaint, Survey, reading_table, tell_unread
from stream_dp.core.rows.attributes import Boolean, Category, Date, Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import Definition
from tests.cli.conftest import printed
from tests.pipeline import world

DAY = Category("day", ("2026-11-01", "2026-11-02"))
AMOUNT = Number("amount", (20.0, 50.0, 100.0))
PAID = Boolean("paid")
GAIN = Number("gain", (1.0, 3000.0, 10000.0))
KEPT = Number("amount", (20.0, 50.0, 100.0), measure=Measure(0.01, 0.0, 120.0))
MONTH = Date("month", "month", "2026-01-01", "2027-01-01", missing=True)
HOURS = Date("hour", "hour_of_day")
TIMES = [f"2026-11-01T10:00:0{n}Z" for n in range(9)]


def survey(attribute: Any, column: list[Any], *, times: int = 100, **how: Any) -> list[Complaint]:
    """What is said of a column that repeats these values."""
    found = Survey(Universe((attribute,)), **how)
    values = column * times
    for start in range(0, len(values), 7):
        part = {attribute.name: values[start : start + 7]}
        found.take(part, part)
    assert found.rows == len(values)
    return found.complaints()


@pytest.mark.parametrize(
    ("attribute", "column"),
    [
        (DAY, ["2026-11-01"] * 700 + [f"x{n}" for n in range(300)]),  # three in ten are other, as declared
        (DAY, ["2026-11-01"] * 6 + [None] * 4),
        (AMOUNT, [10, 30, 60, 120]),
        (AMOUNT, [10] * 8 + [30, 120]),  # skewed, as amounts are
        (AMOUNT, ["10"] * 100 + ["32.75"] * 100 + ["n/a"]),
        (AMOUNT, ["1.234", "12.5", "30", "60"]),
        (AMOUNT, [1.234, 12.5, 30, 60]),
        (PAID, ["yes"] * 199 + [""]),
        (GAIN, [0] * 92 + [2000, 5000, 20000, 4000] * 2),  # mostly none
        (Number("amount", (20.0,)), [10] * 99 + [30]),
        (Number("amount", (20.0, 50.0), missing=True), [30, None, None, 10, 60]),
        (KEPT, [10, 30, 60, 120, 7] * 5 + [121]),  # few are beyond the ends
        (MONTH, ["2026-03-14", "2026-04", "2026-05-01T10:00Z"]),
        (MONTH, [*["2026-03-14"] * 39, "2027-01-01"]),
        (HOURS, ["2026-03-14T10:00"]),
        (Category("day", DAY.values, missing=True, na=("?",)), ["2026-11-01"] * 19 + ["?"]),
    ],
)  # fmt: skip
def test_what_a_definition_expects_is_not_complained_of(attribute: Any, column: list[Any]) -> None:
    assert survey(attribute, column) == []


@pytest.mark.parametrize(
    ("attribute", "column", "text", "examples", "asks"),
    [
        (DAY, [*TIMES, "2026-11-02"],
         "of 1,000 rows 90.0% are not listed and count as other", TIMES[:3], True),
        (Number("amount", (20.0, 50.0), missing=True), [30, None, None],
         "of 300 rows 66.7% are empty and count as missing", [], True),
        (AMOUNT, [30, 60, None, "x", 10, 10, 10],
         "of 700 rows 14.3% are not a number and 14.3% are empty and count as < 20", ["x"], True),
        (AMOUNT, [10, 60, 30, None], "of 400 rows 25.0% are empty and count as < 20", [], True),
        (PAID, ["ja", "nein", "yes"], "of 300 rows 66.7% are neither true nor false and count as false",
         ["ja", "nein"], True),
        (PAID, ["yes"] * 95 + ["ja"] * 5, "of 10,000 rows 5.0% are neither true nor false and count as false",
         ["ja"], False),
        (DAY, ["2026-11-01"] * 19 + ["?"],
         "of 2,000 rows 5.0% have the same value, which is not listed and counts as other", ["?"], False),
        (GAIN, ["0"] * 92 + [20_000] * 8,
         "100.0% of its 800 numbers other than 0 are >= 10000, in an end bin", ["20000"], True),
        (AMOUNT, ["1.234", "12.500", "30", "60"],
         "a point in its numbers may mark decimals or separate thousands", ["1.234", "12.500"], True),
        (AMOUNT, [4050, 1275, 9900] * 3 + [30], "90.0% of its 1,000 numbers are >= 100, in an end bin",
         ["4050", "1275", "9900"], True),
        (KEPT, ["-1", 10, 30, 60, "300", 90],
         "33.3% of its 600 numbers are not between 0 and 120, and add to sums as the nearer of the two",
         ["-1", "300"], True),
        (MONTH, ["14.03.2026", "15.03.2026", "2026-03-14"],
         "of 300 rows 66.7% are not a date and count as missing", ["14.03.2026", "15.03.2026"], True),
        (MONTH, ["2025-12-31", "2026-03-14", "2027-01-01", "2027-01-02"],
         "75.0% of its 400 dates are < 2026-01 or >= 2027-01, outside the bounds",
         ["2027-01-01", "2027-01-02"], True),
    ],
)  # fmt: skip
def test_a_column_that_is_probably_misread_is_told_with_what_to_look_at(
    attribute: Any, column: list[Any], text: str, examples: list[str], asks: bool
) -> None:
    (said,) = survey(attribute, column)
    assert (said.text, said.asks) == (text, asks)
    assert said.examples[: len(examples)] == tuple(map(repr, examples))
    assert not any(
        example in said.words(with_examples=False) + repr(said) for example in said.examples
    )
    assert all(example in said.words(with_examples=True) for example in said.examples)


@pytest.mark.parametrize(
    ("attribute", "column", "fix"),
    [
        (AMOUNT, [10, 60, 30, None], 'a definition with "missing": true distinguishes them'),
        (PAID, ["yes"] * 95 + ["ja"] * 5, 'or add "missing": true to the definition to count them apart'),
        (DAY, ["2026-11-01"] * 19 + ["?"], '"na": [...] says so'),
        (AMOUNT, [30, 60, 10, "n/a"], '"na": [...] says so'),
        (MONTH, ["14.03.2026", "2026-03-14"], "2026-03-14 or 2026-03-14T10:00+01:00"),
        (MONTH, [1773446400000, "1773446400000"],
         'a definition with "epoch": "s", or "ms", reads numbers as dates'),
        (HOURS, ["2026-03-14", "2026-03-15"], 'a definition with "by": "day" reads them'),
        (DAY, ["2026-03-14T10:00", "2026-03-15"], 'an attribute of "type": "date" reads dates'),
        (AMOUNT, ["2026-03-14T10:00", "2026-03-15"], 'an attribute of "type": "date" reads dates'),
        (MONTH, ["2025-12-31", "2026-03-14"], "compare the dates with from and until in the definition"),
    ],
)  # fmt: skip
def test_a_complaint_says_how_to_mend_it(attribute: Any, column: list[Any], fix: str) -> None:
    assert survey(attribute, column)[0].fix.endswith(fix)


def test_what_few_rows_say_is_no_reason_to_complain() -> None:
    assert survey(AMOUNT, [4050], times=20) == []
    assert survey(DAY, ["2026-11-01"] * 199 + ["2026-11-03"], times=1) == []
    unreadable, low = survey(AMOUNT, ["x", "10"])
    assert unreadable.text == "of 200 rows 50.0% are not a number and count as < 20"
    assert low.text == "100.0% of its 100 numbers are < 20, in an end bin"


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
    part = {"amount": column * 100}
    found.take(part, part)
    said = [each.words(with_examples=True) for each in found.proposals()]
    words = 'amount: all of its numbers are whole; add "integer": true to the definition, or nobody can '
    assert said == [f"{words}ask for <= 19, which then means < 20"] * proposed


def test_the_table_of_a_check_counts_dates_outside_the_bounds() -> None:
    found = Survey(Universe((MONTH,)))
    part = {"month": ["2026-03-14", "2025-01-01", "x", None]}
    found.take(part, part)
    assert [" ".join(line.split()) for line in printed(reading_table(found))[1:]] == [
        "month a date 2 itself",
        "out of bounds: '2025-01-01' 1 < 2026-01",
        "empty 1 missing",
        "not a date: 'x' 1 missing",
    ]


def test_each_column_with_values_that_cannot_be_read_has_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However few they are, and whether or not they count apart."""
    found = Survey(Universe((AMOUNT, PAID, DAY, MONTH)))
    tell_unread(found)
    assert capsys.readouterr().err == ""
    part: dict[str, list[Any]] = {"amount": ["30"] * 949 + ["(238.49)"] * 50 + [None]}
    part["paid"] = ["ja", "nein", *["no"] * 997, None]
    part["day"] = ["1. November", *["2026-11-01"] * 998, None]
    part["month"] = ["14.03.2026", *["2026-03"] * 998, None]
    found.take(part, part)
    tell_unread(found)
    assert capsys.readouterr().err.splitlines() == [
        "50 of 999 values of amount are not numbers and count as < 20",
        "2 of 999 values of paid are neither true nor false and count as false",
        "1 of 999 values of day are not listed and count as other",
        "1 of 999 values of month are not dates and count as missing",
    ]
    tell_unread(found, but={"amount", "paid", "day"})
    assert (
        capsys.readouterr().err == "1 of 999 values of month are not dates and count as missing\n"
    )
    (few,) = found.complaints()
    assert (few.attribute, few.asks) == ("amount", False)


NEW_WARDS = ["Surgery"] * 90 + ["Oncology 2"] * 6 + ["Ward x"] * 3 + ["?"]


@pytest.mark.parametrize(
    ("column", "dataset", "said"),
    [
        (NEW_WARDS, "stays",
         ("1,000 of 10,000 rows have a ward that is not listed, and count as other: Oncology 2 (600), "
          "Ward x (300), ...; if everybody may know them, add them with:\n"
          "stream-dp schema add-value stays ward 'Oncology 2' 'Ward x'")),
        (NEW_WARDS, None,
         ("1,000 of 10,000 rows have a ward that is not listed, and count as other: Oncology 2 (600), "
          "Ward x (300), ...; list them in the definition if everybody may know them")),
        (["Surgery"] * 300 + ["Oncology-2"], "stays", None),  # too few rows to matter
        (["Surgery"] * 9 + ["?"], "stays", None),  # which says that it is missing
        (["Surgery"] * 9 + [None], "stays", None),
    ],
)  # fmt: skip
def test_values_that_are_not_listed_are_named_to_their_owner(
    column: list[Any], dataset: str | None, said: str | None
) -> None:
    found = Survey(Universe((Category("ward", ("Surgery", "ICU")),)))
    part = {"ward": column * 100}
    found.take(part, part)
    assert found.unlisted(dataset) == ({} if said is None else {"ward": said})


def test_values_that_differ_in_each_row_are_not_worth_listing() -> None:
    found = Survey(Universe((Category("ward", ("Surgery", "ICU")),)))
    part = {"ward": ["Surgery"] * 90 + [f"bed {n}" for n in range(10)]}
    found.take(part, part)
    assert found.unlisted("stays") == {}


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("40,5", ",", "40.5"), (" 1.234.567,5 ", ",", "1234567.5"), ("1.234", ",", "1234"),
        ("12.5", ",", None), ("1234,5", ",", "1234.5"), ("-7", ",", "-7"), ("1.23,4", ",", None),
        ("1,234.5", ".", "1234.5"), ("1,234", ".", "1234"), ("40,5", ".", None), ("1,2345", ".", None),
        ("1 234.5", ".", "1234.5"), ("1\u202f234\u202f567,5", ",", "1234567.5"), ("1'234 567", ".", None),
        ("1e3", ".", "1e3"), ("1,5e3", ",", "1.5e3"), (",5", ",", ".5"), ("", ",", None), ("n/a", ".", None),
    ],
)  # fmt: skip
def test_a_mark_before_decimals_leaves_the_other_one_between_thousands_only(
    text: str, decimal: str, number: str | None
) -> None:
    assert pointed(text, decimal) == number


@pytest.mark.parametrize(
    ("kind", "content", "amounts"),
    [
        ("csv", b"amount;place;paid\n1.040,5;1,5;yes\n12.5; Ulm;\n; Ulm ;", ["1040.5", None, None]),
        ("ndjson", b'{"amount":1.5,"place":" Ulm","paid":true}\n{"amount":"1,5"}', [1.5, "1.5"]),
        ("parquet", b"", ["1.5"]),
    ],
)
def test_a_decimal_comma_is_read_in_columns_of_numbers_alone(
    tmp_path: Path, kind: str, content: bytes, amounts: list[Any]
) -> None:
    amount = {"name": "amount", "type": "number", "edges": [20], "missing": True}
    place = {"name": "place", "type": "category", "values": ["1,5", " Ulm"]}
    attributes = [amount, place, {"name": "paid", "type": "boolean"}]
    described = Definition.read(world.definition("orders", attributes=attributes))
    file = tmp_path / f"orders.{kind}"
    file.write_bytes(content)
    if kind == "parquet":
        exact = pa.table({"amount": [Decimal("1.5")], "place": ["1,5"], "paid": [True]})
        pq.write_table(exact, file)
    source = RowFile(file, described, 10, FileReading(decimal=","))
    ((columns, _),) = source.columns()
    values = source.values(columns)
    assert values["amount"] == amounts
    assert values["place"] == columns["place"]
    # A value that is listed with blanks keeps them.
    assert set(columns["place"]) <= {"1,5", " Ulm", "Ulm", None}


def test_a_check_says_when_a_day_closes_and_what_its_totals_take() -> None:
    day = {"every": "1 day", "min_rows": 1000, "close": {"after": "2 hours"}}
    tiles = [{"group_by": ["carrier"]}]
    document = world.definition(
        "flights",
        phase=day,
        running={"every": "1 hour", "within_rows": 400, "tiles": tiles},
        privacy={"epsilon": 1.0, "delta": 1e-9},
    )
    said = checked(Definition.read({"version": 1, "dataset": "flights", **document}))
    assert "a phase opens 2 hours after a period of 1 day ends (UTC)" in said
    assert (
        "24 totals in 1 day within 400 rows take 1.01% of its budget (24 separate tables: 6.65%)"
        in said
    )
    assert "late rows" not in said
    late = {**document, "phase": {**day, "late": {"within": "7 days"}}}
    said = checked(Definition.read({"version": 1, "dataset": "flights", **late}))
    assert "late rows are taken for 7 days, and a phase that gets some is measured again" in said
