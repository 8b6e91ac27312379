# ruff: noqa: DTZ001 - what clocks showed has no zone
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.attribute_dates import Zone, labels_of, parts_in, parts_of, period_bounds, span_of
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.attributes import Category, Date
from stream_dp.core.rows.cell_shape import MAX_FLAT, Shape
from stream_dp.core.rows.row_moments import DAY, MONTH, TIME, from_texts
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition, InvalidQuery

EPOCH = datetime(1970, 1, 1)
MONTHS = Date("month", "month", "2026-01-01", "2027-01-01", missing=True)
WEEKDAYS = Date("weekday", "weekday")
HOURS = Date("hour", "hour_of_day", missing=True)
SIZES = Category("size", ("S", "M", "L"), other=True, missing=True, ordered=True)
EVERY = [
    MONTHS,
    WEEKDAYS,
    HOURS,
    Date("d", "year", "2020-01-01", "2027-01-01", missing=True),
    Date("d", "quarter", "2026-04-01"),
    Date("d", "week", "2026-01-05", missing=True),
    Date("d", "day", "2024-02-29"),
    Date("d", "hour", "2026-03-28", "2026-03-30", zone=Zone("Europe/Berlin"), missing=True),
    Date("d", "month_of_year", epoch="s", missing=True),
]

# ---------------------------------------------------------------- texts

FORM = re.compile(
    r"\d{4}-\d\d(-\d\d([Tt ]\d\d(:\d\d(:\d\d([.,]\d{1,9})?)?)?([Zz]|[+-]\d\d(:?[0-5]\d)?)?)?)?",
    re.ASCII,
)


def expected(text: str) -> tuple[int, int, bool] | None:
    """Seconds, precision and whether it is an instant; read by Python, one text at a time."""
    if not FORM.fullmatch(text):
        return None
    if len(text) == 7:
        text, precision = f"{text}-01", MONTH
    else:
        precision = DAY if len(text) == 10 else TIME
    try:
        found = datetime.fromisoformat(text.upper())
        instant = found.tzinfo is not None
        found = found.astimezone(UTC).replace(tzinfo=None) if instant else found
    except (ValueError, OverflowError):
        return None
    return (found - EPOCH) // timedelta(seconds=1), precision, instant


ODD = [
    "", "x", "2026", "2026-02-29", "2024-02-29", "2026-13-01", "2026-00", "0000-01-01", "2026-04-31",
    "2026-03-14T24:00", "2026-03-14T10:60", "2026-03-14T10:00:60", "2026-03-14T", "2026-03-14T10:00.5",
    "2026-03-14Z", "2026-03Z", "2026-03-14T10Z", "2026-03-14 10:00:00.123456789-11:30",
    "2026-03-14T10:00:00.1234567890", "2026-03-14T10:00+24:00", "2026-03-14T10:00+01:60",
    "2026-03-14T10:00+1", "2026-03-14T10:00+010", "2026-03-14T10:00+0100", "2026-03-14T10:00+01:",
    "٢٠٢٦-03-14", "2026-03\0-14", "\ud800", "2026-03-14" + " " * 40, "9999-12-31T23:59:59,9z",
    "2026/03/14", "14.03.2026", "20260314", "2026-03-14T10:00:00.123456789+01:00x", "2" * 5000,
]  # fmt: skip
near = st.from_regex(FORM, fullmatch=True) | st.text(alphabet="0123456789-:T.Z+ ", max_size=40)
moments = st.datetimes(min_value=datetime(1, 1, 1), timezones=st.sampled_from([None, UTC])).map(
    datetime.isoformat
)


@given(texts=st.lists(near | moments | st.sampled_from(ODD), max_size=6))
def test_a_text_is_a_date_if_python_reads_it_as_one_of_the_documented_forms(
    texts: list[str],
) -> None:
    found = from_texts(texts)
    for row, text in enumerate(texts):
        wanted = expected(text) or (0, 0, found.are_instants[row])
        assert (found.seconds[row], found.precision[row], found.are_instants[row]) == wanted


def test_the_odd_texts_are_read_as_python_reads_them() -> None:
    known = [text for text, p in zip(ODD, from_texts(ODD).precision, strict=True) if p]
    assert known == [text for text in ODD if expected(text)]
    assert "2026-03-14T10Z" in known


def test_a_column_of_moments_shows_nothing_in_its_repr() -> None:
    assert "1773" not in repr(from_texts(["2026-03-14"]))


# ---------------------------------------------------------------- time zones


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "UTC"])
@given(instant=st.integers(0, 130 * 365 * 86_400))
def test_clocks_show_what_the_database_of_zones_says(name: str, instant: int) -> None:
    zone = Date("h", "hour_of_day", zone=Zone(name))
    shown = datetime.fromtimestamp(instant, ZoneInfo(name))
    text = datetime.fromtimestamp(instant, UTC).isoformat()
    assert zone.encode([text]) == [shown.hour]
    assert zone.encode([shown.isoformat()]) == [shown.hour]


def test_an_hour_that_comes_twice_is_one_and_one_that_is_left_out_is_empty() -> None:
    autumn = Date("h", "hour", "2026-10-25", "2026-10-26", zone=Zone("Europe/Berlin"))
    found = autumn.encode([f"2026-10-25T{hour:02}:30Z" for hour in range(-0, 4)])
    assert [autumn.labels[code][-3:] for code in found] == ["T02", "T02", "T03", "T04"]
    spring = Date("h", "hour", "2026-03-29", "2026-03-30", zone=Zone("Europe/Berlin"))
    found = spring.encode([f"2026-03-29T{hour:02}:30Z" for hour in range(3)])
    assert [spring.labels[code][-3:] for code in found] == ["T01", "T03", "T04"]


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize("attribute", EVERY, ids=repr)
def test_each_label_of_a_cell_is_a_value_of_it(attribute: Date) -> None:
    assert list(attribute.encode(list(attribute.samples))) == list(range(attribute.size))
    assert len(set(attribute.labels)) == attribute.size


@pytest.mark.parametrize("attribute", EVERY, ids=repr)
@given(moment=st.datetimes(min_value=datetime(2019, 1, 1), max_value=datetime(2029, 1, 1)))
def test_a_moment_falls_into_the_period_that_python_names(
    attribute: Date, moment: datetime
) -> None:
    year, week, weekday = moment.isocalendar()
    label = {
        "year": f"{moment:%Y}",
        "quarter": f"{moment.year}-Q{(moment.month - 1) // 3 + 1}",
        "month": f"{moment:%Y-%m}",
        "week": f"{year}-W{week:02}",
        "day": f"{moment:%Y-%m-%d}",
        "hour": f"{moment:%Y-%m-%dT%H}",
        "weekday": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][weekday - 1],
        "month_of_year": f"{moment:%b}",
        "hour_of_day": f"{moment:%H}",
    }[attribute.by]
    if label not in attribute.labels:
        early = moment < EPOCH + timedelta(seconds=attribute.edges[0])
        label = attribute.labels[0 if early else len(attribute.edges)]
    assert attribute.labels[attribute.encode([moment.isoformat()])[0]] == label


def test_a_date_without_an_upper_bound_ends_two_years_later() -> None:
    assert Date("d", "month", "2026-01-01").labels[-2:] == ("2027-12", ">= 2028-01")
    assert Date("d", "day", "2024-02-29").labels[-1] == ">= 2026-03-01"
    assert Date("d", "week", "2026-01-05").labels[-2:] == ("2028-W01", ">= 2028-W02")


def test_what_is_less_precise_than_the_periods_is_missing() -> None:
    for attribute, missing in ((MONTHS, []), (HOURS, ["2026-03", "2026-03-14"])):
        texts = ["2026-03", "2026-03-14", "2026-03-14T10"]
        found = attribute.encode(texts) == attribute.missing_cell
        assert [t for t, unknown in zip(texts, found, strict=True) if unknown] == missing


@pytest.mark.parametrize("column", [[None], [True], ["x"], [[1]], [{}], [float("nan")], [1e300]])
def test_what_is_no_date_is_missing_or_in_the_first_cell(column: list[Any]) -> None:
    assert MONTHS.encode(column) == [MONTHS.missing_cell]
    assert WEEKDAYS.encode(column) == [0]


def test_numbers_are_dates_only_where_their_unit_is_named() -> None:
    seconds = 1_773_446_400  # 2026-03-14
    for unit, factor in (("s", 1), ("ms", 1000)):
        months = Date("m", "month", "2026-01-01", "2027-01-01", epoch=unit, missing=True)
        column = [seconds * factor, float(seconds * factor), str(seconds * factor), "2026-04", True]
        labels = ["2026-03", "2026-03", "2026-03", "2026-04", "missing"]
        assert [months.labels[code] for code in months.encode(column)] == labels
        beyond = [10**400, float("inf"), -(10**400), 10**15]
        assert set(months.encode(beyond)) == {months.missing_cell}
    assert MONTHS.encode([seconds, str(seconds)]).tolist() == [MONTHS.missing_cell] * 2


def test_dates_of_python_numpy_and_pandas_are_read() -> None:
    pd = pytest.importorskip("pandas")
    column = [
        datetime(2026, 3, 14, 10),
        datetime(2026, 3, 14).date(),
        np.datetime64("2026-03-14"),
        pd.Timestamp("2026-03-14 10:00:00.123456789", tz="Asia/Tokyo"),
        pd.NaT,
        np.datetime64("NaT"),
    ]
    labels = [MONTHS.labels[code] for code in MONTHS.encode(column)]
    assert labels == ["2026-03"] * 4 + ["missing"] * 2
    array = np.array(["2026-03-14", "NaT"], dtype="datetime64[D]")
    assert [MONTHS.labels[code] for code in MONTHS.encode(array)] == ["2026-03", "missing"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"by": "month"}, "from"),
        ({"by": "month", "first": "2026-01-02"}, "from"),
        ({"by": "quarter", "first": "2026-02-01"}, "from"),
        ({"by": "year", "first": "2026-02-01"}, "from"),
        ({"by": "week", "first": "2026-01-01"}, "from"),
        ({"by": "day", "first": "2026-01-01T10:00"}, "from"),
        ({"by": "day", "first": "2026-02-30"}, "from"),
        ({"by": "month", "first": "2026-01-01", "until": "2026-01-31"}, "until"),
        ({"by": "day", "first": "2026-01-01", "until": "2026-01-01"}, "until"),
        ({"by": "day", "first": "9999-01-01"}, "until"),
        ({"by": "hour", "first": "2026-01-01", "until": "2036-01-01"}, "until"),
        ({"by": "weekday", "first": "2026-01-05"}, "from"),
        ({"by": "hour_of_day", "until": "2026-01-05"}, "until"),
    ],
)
def test_bounds_that_do_not_begin_a_period_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        Date("d", **given)
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["Mars/Base", "", "../zone", "Europe"])
def test_a_time_zone_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(InvalidDefinition, match="there is no such time zone"):
        Zone(name)


def test_many_periods_or_values_in_order_have_levels() -> None:
    values = tuple(map(str, range(MAX_FLAT + 1)))
    shape = Universe(
        (
            Date("d", "day", "2026-01-01"),
            Category("c", values, ordered=True),
            Category("e", values),
            WEEKDAYS,
        )
    ).shape
    assert isinstance(shape, Shape)
    assert shape.ordered == {0, 1}


# ---------------------------------------------------------------- conditions

BOTH = Universe((MONTHS, WEEKDAYS, HOURS, SIZES))


def cells(where: dict[str, Any]) -> list[str]:
    found = compile_where(BOTH, where)
    assert len(found.attributes) == 1
    labels = BOTH.attributes[found.attributes[0]].labels
    return [labels[cell] for cell in np.flatnonzero(found.mask)]


@pytest.mark.parametrize(
    ("operator", "value", "labels"),
    [
        ("eq", "2026-03", ["2026-03"]),
        ("eq", "2026-Q1", ["2026-01", "2026-02", "2026-03"]),
        ("in", ["2026-03", "2026-07"], ["2026-03", "2026-07"]),
        ("between", ["2026-03-01", "2026-04-30"], ["2026-03", "2026-04"]),
        ("between", ["2026-11", "2026-12-31"], ["2026-11", "2026-12"]),
        ("lt", "2026-02-01", ["< 2026-01", "2026-01"]),
        ("le", "2026-01-31", ["< 2026-01", "2026-01"]),
        ("gt", "2026-11", ["2026-12", ">= 2027-01"]),
        ("ge", "2026-12-01T00:00", ["2026-12", ">= 2027-01"]),
        ("is_missing", True, ["missing"]),
    ],
)
def test_a_comparison_holds_for_whole_periods(
    operator: str, value: object, labels: list[str]
) -> None:
    assert cells({"attribute": "month", operator: value}) == labels


@pytest.mark.parametrize(
    ("operator", "value", "fix"),
    [
        ("ge", "2026-03-14", "ask >= 2026-03 or >= 2026-04"),
        ("le", "2026-03-30", "ask < 2026-03 or < 2026-04"),
        ("eq", "2026-03-14", "ask >= and < at edges, such as 2026-03 or 2026-04"),
        ("between", ["2026-02", "2026-03-14"], "ask >= and < at edges, such as 2026-03 or 2026-04"),
        ("eq", "2025", "ask >= and < at edges, such as 2026-01"),
        ("ge", "2028", "ask >= 2027-01"),
    ],
)
def test_a_comparison_that_cuts_a_period_is_refused_with_the_nearest_edges(
    operator: str, value: object, fix: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        cells({"attribute": "month", operator: value})
    assert refused.value.fix == fix
    assert refused.value.reason == "cuts_bin"


@pytest.mark.parametrize("value", [7, True, "x", "2026-03-14T10:00Z", None, ["2026-03"]])
def test_what_is_no_period_is_refused_without_being_repeated(value: object) -> None:
    with pytest.raises(InvalidQuery) as refused:
        cells({"attribute": "month", "eq": value})
    assert refused.value.field == "where.eq"
    assert str(value) not in refused.value.problem


@pytest.mark.parametrize(
    ("attribute", "operator", "value", "labels"),
    [
        ("weekday", "between", ["Mon", "Wed"], ["Mon", "Tue", "Wed"]),
        ("weekday", "ge", 6, ["Sat", "Sun"]),
        ("weekday", "eq", "Sun", ["Sun"]),
        ("weekday", "in", [1, "Sun"], ["Mon", "Sun"]),
        ("hour", "lt", 2, ["00", "01"]),
        ("hour", "gt", "21", ["22", "23"]),
        ("size", "ge", "M", ["M", "L"]),
        ("size", "lt", "M", ["S"]),
        ("size", "le", "M", ["S", "M"]),
        ("size", "gt", "S", ["M", "L"]),
        ("size", "between", ["S", "M"], ["S", "M"]),
        ("size", "is_other", True, ["other"]),
    ],
)
def test_periods_that_come_again_and_ordered_values_are_compared_in_their_order(
    attribute: str, operator: str, value: object, labels: list[str]
) -> None:
    assert cells({"attribute": attribute, operator: value}) == labels


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("weekday", 0), ("weekday", 8), ("weekday", "mon"), ("hour", 24), ("size", "XL")],
)
def test_what_has_no_place_in_an_order_is_refused(attribute: str, value: object) -> None:
    with pytest.raises(InvalidQuery):
        cells({"attribute": attribute, "ge": value})


def test_values_without_an_order_cannot_be_compared() -> None:
    plain = Universe((Category("size", ("S", "M")),))
    with pytest.raises(InvalidQuery, match="size is a category and has no such comparison"):
        compile_where(plain, {"attribute": "size", "ge": "S"})


# ---------------------------------------------------------------- periods


@pytest.mark.parametrize("attribute", EVERY, ids=repr)
def test_the_parts_that_a_period_tells_are_those_of_all_its_dates(attribute: Date) -> None:
    calendar = attribute.by, attribute.first, attribute.until
    names = {
        "year": "%Y", "isoyear": "%G", "month": "%m", "week": "%V", "day": "%d", "dow": "%w",
        "isodow": "%u", "doy": "%j", "hour": "%H",
    }  # fmt: skip
    moments = [datetime(2026, 5, 1) + timedelta(hours=7 * n) for n in range(300)]
    codes = attribute.encode([moment.isoformat() for moment in moments])
    for part in parts_of(attribute.by):
        told = dict(zip(labels_of(*calendar), parts_in(*calendar, part), strict=True))
        for moment, code in zip(moments, codes, strict=True):
            label, quarter = attribute.labels[code], (moment.month + 2) // 3
            value = quarter if part == "quarter" else int(moment.strftime(names[part]))
            assert told.get(label, value) == value


def test_a_period_is_as_long_as_it_is_written_precisely() -> None:
    lengths = {
        "2026": 365, "2026-Q1": 90, "2026-02": 28, "2026-W01": 7, "2026-03-14": 1, "2026-12": 31,
    }  # fmt: skip
    for text, days in lengths.items():
        start, end = span_of(text) or (0, 0)
        assert end - start == days * 86_400
    for text, seconds in {
        "2026-03-14T10": 3600,
        "2026-03-14 10:00": 60,
        "2026-03-14T10:00:00.0": 1,
    }.items():
        start, end = span_of(text) or (0, 0)
        assert end - start == seconds
    for text in ("2026-W54", "2026-Q5", "2026-02-30", "9999", "0000", "2026-3"):
        assert span_of(text) is None


def test_the_periods_that_begin_in_a_written_one_have_a_first_and_a_last() -> None:
    assert period_bounds("week", "2026-01-05") == ("2026-W02", "2026-W02")
    assert period_bounds("week", "2026-01-06") == ("2026-W03", "2026-W02"), "none begins in it"
    assert period_bounds("month", "2026-Q4") == ("2026-10", "2026-12")
    assert period_bounds("quarter", "2026-11-30T10") == ("2027-Q1", "2026-Q4")
    assert period_bounds("hour", "2026-01-05T10:00") == ("2026-01-05T10", "2026-01-05T10")
    assert period_bounds("hour", "2026-01-05 10:59:59") == ("2026-01-05T11", "2026-01-05T10")
    assert period_bounds("day", "9999-12-31T23:00") is None, "no day begins after it"
    assert period_bounds("day", "2026-02-30") is None
    assert period_bounds("decade", "2020-01-01") is None


@pytest.mark.parametrize("epoch", ["s", "ms"])
@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize(
    ("by", "first", "until"),
    [("hour_of_day", None, None), ("weekday", None, None), ("year", "2020-01-01", "2030-01-01")],
)
def test_labels_of_cells_are_read_as_such_also_where_numbers_are_seconds(
    by: str, first: str | None, until: str | None, epoch: Any, has_missing: bool
) -> None:
    date = Date("d", by, first, until, Zone("UTC"), epoch, has_missing)
    assert date.encode(list(date.samples)).tolist() == list(range(date.size))
