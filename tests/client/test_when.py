"""Windows and series in SQL, and the same as arguments."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.client.statements.written_query import Query, as_message
from stream_dp.errors import InvalidInput, InvalidQuery
from stream_dp.messages import QueryFields
from stream_dp.sql import parse
from tests.sql.schemas import counted, of

SCHEMA: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "edges": [18, 30, 65]},
    {"name": "smoker", "type": "boolean"},
]
AGE = of("age", ge=30)
WEEK = {"since": "2026-11-02", "until": "2026-11-09"}


def read(sql: str) -> dict[str, Any]:
    return parse(sql, SCHEMA)


@pytest.mark.parametrize(
    ("time", "window"),
    [
        ("day >= DATE '2026-11-02' AND day < DATE '2026-11-09'", WEEK),
        ("day >= '2026-11-02' AND day <= '2026-11-08'", WEEK),
        ("day >= '2026-11-01' AND day < '2026-11-09' AND week = '2026-11-02'", WEEK),
        ("1 = 1 AND week = TIMESTAMP '2026-11-02 00:00:00'", WEEK),
        ("day >= '2026-11-02 00:00:00.000000' AND day < '2026-11-09 00:00:00.000000'", WEEK),
        ("day BETWEEN '2026-11-02' AND '2026-11-08 23:59:59.999'", WEEK),
        ("day > '2026-11-01 23:59:59' AND day <= '2026-11-08T23:59'", WEEK),
        (
            "day >= '2026-11-02T00:00:00Z' AND day <= TIMESTAMPTZ '2026-11-08 23:59:59.999+01:00'",
            {"since": "2026-11-02T00:00:00+00:00", "until": "2026-11-08T23:00:00+00:00"},
        ),
        ("day = DATE '2026-11-02'", {"since": "2026-11-02", "until": "2026-11-03"}),
        ("month = '2026-12-01'", {"since": "2026-12-01", "until": "2027-01-01"}),
        ("month >= '2026-12-01'", {"since": "2026-12-01"}),
        ("phase BETWEEN 3 AND 7", {"phases": [3, 7]}),
        ("phase = 3", {"phases": [3, 3]}),
        ("7 >= phase", {"phases": [1, 7]}),
    ],
)
def test_conditions_about_time_are_a_window(time: str, window: dict[str, Any]) -> None:
    assert read(time)["window"] == window
    asked = read(f"SELECT COUNT(*) WHERE age >= 30 AND {time}")
    assert asked == counted(AGE, window=window)
    QueryFields.read({"query_id": "q", **asked})


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("day, COUNT(*) GROUP BY day", counted(None, series="day")),
        ("week, smoker, AVG(age) WHERE age >= 30 GROUP BY smoker, week",
         {"kind": "sum", "attribute": "age", "mean": True, "group_by": ["smoker"], "where": AGE,
          "series": "week"}),
        ("AVG(CASE WHEN smoker THEN 1 ELSE 0 END) GROUP BY phase",
         {"kind": "share", "share_of": of("smoker", eq=True), "where": None, "series": "phase"}),
    ],
)  # fmt: skip
def test_a_group_of_periods_is_a_series(sql: str, asked: dict[str, Any]) -> None:
    assert read(f"SELECT {sql}") == asked


def test_an_attribute_of_that_name_is_the_attribute() -> None:
    schema = [*SCHEMA, {"name": "Day", "type": "category", "values": ["Mon", "Tue"]}]
    assert parse("day = 'Mon'", schema)["where"] == of("Day", eq="Mon")
    table = parse("SELECT Day, COUNT(*) GROUP BY Day", schema)
    assert (table["group_by"], "series" in table) == (["Day"], False)
    assert parse("week = '2026-11-02'", schema)["window"] == WEEK


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("smoker OR day = '2026-11-01'", "day is the time of the query, which cannot be part"),
        ("NOT day = '2026-11-01'", "day is the time of the query, which cannot be part"),
        ("day <> '2026-11-01'", "day is the time of the query, which cannot be part"),
        ("day >= 5", "this is not a date"),
        ("day >= 'Monday'", "this is not a date"),
        ("day >= '2026-11-02 10:00:00'", "this is not midnight"),
        ("day >= '2026-11-02 00:00:00.5'", "has a fraction of a second"),
        ("week = '2026-11-02T00:00:00Z'", "this is not a Monday"),
        ("day >= '2026-11-02T00:00Z' AND day < '2026-11-09'", "one bound has an offset from UTC"),
        ("day >= '2026-11-02T00:00Z' AND day > '2026-11-09'", "one bound has an offset from UTC"),
        ("week = '2026-11-03'", "this is not a Monday"),
        ("month = '2026-11-03'", "this is not the first day of a month"),
        ("phase > 3", "the last phase is missing"),
        ("phase = 1.5", "this is not the number of a phase"),
        ("phase BETWEEN 7 AND 3", "no phase satisfies this"),
        ("day < '2026-11-01' AND day > '2026-11-01'", "no day satisfies this"),
        ("phase = 3 AND day = '2026-11-01'", "a window is by date or by phase"),
        ("DATE_TRUNC('month', day) = '2026-11-03'", "this is not the first day of a month"),
        ("DATE_TRUNC('year', day) = '2026-01-01'", "day is the time of the query"),
        ("SELECT COUNT(*) GROUP BY day, week", "a series is of one period"),
        ("SELECT MODE(age) GROUP BY day", r"MODE\(age\) is about all rows"),
        ("SELECT day, COUNT(*)", "day is the time of the query, and cannot stand here"),
    ],
)
def test_what_cannot_be_a_window_or_a_series_is_pointed_at(sql: str, problem: str) -> None:
    with pytest.raises(InvalidQuery, match=problem) as raised:
        read(sql)
    assert raised.value.field.startswith("line 1, column")


def message(query: Query[Any]) -> dict[str, Any]:
    item = as_message(query, read)
    del item["query_id"]
    return item


LAST = {"last": "7 days"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query("age >= 30", window=LAST, series="day"), counted(AGE, window=LAST, series="day")),
        (Query("day >= '2026-11-02' AND day < '2026-11-09'", window=WEEK), {"window": WEEK}),
        (
            Query.difference("smoker", {"previous": "7 days"}, window=LAST),
            {"minus_window": {"previous": "7 days"}},
        ),
        (Query.sum("age", series="week"), {"series": "week"}),
    ],
)
def test_arguments_say_the_same(query: Query[Any], said: dict[str, Any]) -> None:
    asked = message(query)
    assert {**asked, **said} == asked


@pytest.mark.parametrize(
    "query",
    [
        Query("smoker", last_phases=7, window={"last": "7 days"}),
        Query("day = '2026-11-01'", last_phases=7),
        Query("SELECT COUNT(*) GROUP BY day", series="week"),
        Query.share("day = '2026-11-01'"),
        Query.prefix_batch("age", ["age < 30", "day = '2026-11-01'"]),
    ],
)
def test_time_is_said_once_and_for_the_whole_query(query: Query[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"window|series|time"):
        message(query)
