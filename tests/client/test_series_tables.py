"""The period of a series is a date in its table: the first day of the period, which compares as one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.errors import InvalidQuery
from tests.answers import count_answer, series_answer, table_of

SCHEMA: list[dict[str, Any]] = [
    {"name": "delay", "type": "number", "edges": [0, 30], "integer": True},
    {"name": "mon", "type": "date", "by": "month", "from": "2026-01-01", "until": "2027-01-01"},
]
SINCE = ["2026-10-24", "2026-11-02T06:00+01:00"]


def table(period: str, rest: str) -> ResultTable:
    """The table of a series whose phases begin at ``SINCE``."""
    parts = ((phase, since, count_answer(9, 1)) for phase, since in enumerate(SINCE, 1))
    statement = f"SELECT {period}, COUNT(*) AS n FROM f GROUP BY {period}"
    return table_of(rest.format(statement), SCHEMA, series_answer(period, parts), dataset="f")


@pytest.mark.parametrize(
    ("period", "days"),
    [
        ("day", ["2026-10-24", "2026-11-02"]),
        ("week", ["2026-10-19", "2026-11-02"]),
        ("month", ["2026-10-01", "2026-11-01"]),
    ],
)
def test_the_first_day_of_the_period_names_a_part(period: str, days: list[str]) -> None:
    found = table(period, "{}")
    assert found.column(period) == days
    assert found.columns[0].type == "date"
    assert table(period, f"{{}} ORDER BY {period} DESC").column(period) == days[::-1]


@pytest.mark.parametrize(
    ("condition", "n"),
    [
        ("{0} <= '{1}T23:59:59'", 1),
        ("{0} < '{1}T00:00:00'", 0),
        ("{0} >= '{1} 00:00:01'", 1),
        ("{0} BETWEEN '{1} 00:00:00' AND '{2} 23:59:59'", 2),
        ("{0} NOT BETWEEN '{1}T00:00:01' AND '{2} 23:59:59'", 1),
        ("{0} IN ('{1}', NULL)", 1),
        ("{0} NOT IN ('{1}', NULL)", 0),
    ],
)
@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_the_first_day_of_a_period_compares_with_times(period: str, condition: str, n: int) -> None:
    days = table(period, "{}").column(period)
    having = condition.format(period, *days)
    assert len(table(period, f"{{}} HAVING {having}").rows) == n


def test_a_date_that_begins_no_period_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="this is not the first day of a month"):
        table("month", "{} HAVING month = DATE '2026-10-24'")
    with pytest.raises(InvalidQuery, match="a day has no offset from UTC, and this has one"):
        table("day", "{} HAVING day <= '2026-10-24T23:59:59Z'")
    with pytest.raises(InvalidQuery, match="no date comes after this one; omit this bound"):
        table("day", "{} HAVING day <= '9999-12-31'")
    with pytest.raises(InvalidQuery, match=re.escape("this is not a date")):
        table("day", "{} HAVING day IN ('Monday')")


@pytest.mark.parametrize("word", ["day", "week", "month", "phase"])
def test_a_name_that_a_subquery_gives_is_no_time(word: str) -> None:
    inner = f"SELECT DATE_TRUNC('month', mon) AS {word}, COUNT(*) AS n FROM f GROUP BY 1"
    plan = sql.plan(f"SELECT n FROM ({inner}) WHERE {word} >= DATE '2026-11-01'", SCHEMA)
    assert "window" not in plan.queries[0]
    assert plan.having is not None
    views = f"WITH v AS ({inner}) SELECT n FROM v WHERE {word} >= DATE '2026-11-01'"
    assert "window" not in sql.plan(views, SCHEMA).queries[0]
