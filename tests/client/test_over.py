"""Window functions over the periods of a series give what a database gives, with bars."""

from __future__ import annotations

import math
import re
import sqlite3
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.errors import InvalidQuery
from stream_dp.messages import NoisyAnswer
from tests.answers import count_answer, series_answer, table_answer, table_of

SCHEMA: list[dict[str, Any]] = [
    {"name": "ward", "type": "category", "values": ["a", "b"], "other": False},
    {"name": "stay", "type": "number", "edges": [1, 2, 3], "integer": True},
]
DAYS = [f"2026-11-{day:02}" for day in range(1, 11)]
COUNTS = [[3 + 2 * (n % 4), 1 + n] for n in range(10)]
STAYS = [[5 * n + ward for ward in (0, 7)] for n in range(10)]
"""What is in the table: the rows of each day and ward, and the sum of their stays."""


def answered(query: dict[str, Any], bar: float) -> NoisyAnswer:
    """The exact answer to a query about the days, with this bar, in rows, around each count."""
    frame = query.get("frame", 1)
    last = 10 if frame == "running" else int(frame)
    parts = []
    for day in range(10):
        first, wards = max(0, day - last + 1), {"ward": "ab"}
        counts, stays = (
            [sum(day[ward] for day in numbers[first : day + 1]) for ward in (0, 1)]
            for numbers in (COUNTS, STAYS)
        )
        n = sum(counts)
        if query["kind"] == "sum":
            sums = {
                "totals": stays,
                "total_bars": [bar] * 2,
                "rows": counts,
                "rows_bars": [bar] * 2,
            }
            means = {"means": [None] * 2, "mean_bars": [None] * 2}
            more: Any = {"kind": "sum_by_group", "attribute": "stay", "cells": {**sums, **means}}
            answer = table_answer(wards, counts, bar, n=n, **more)
        elif "group_by" in query:
            answer = table_answer(wards, counts, bar, n=n)
        else:
            answer = count_answer(n, bar, n=n)
        parts.append((day + 1, DAYS[day], answer))
    return series_answer("day", parts, phase=10, window=[1, 10])


def ours(statement: str, bar: float = 0.0) -> ResultTable:
    queries = sql.plan(statement, SCHEMA, dataset="t").queries
    return table_of(statement, SCHEMA, *[answered(query, bar) for query in queries], dataset="t")


def in_database(statement: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (day TEXT, ward TEXT, stay INTEGER)")
    for day, counts, stays in zip(DAYS, COUNTS, STAYS, strict=True):
        for ward, count, stay in zip("ab", counts, stays, strict=True):
            rows = [(day, ward, stay)] + [(day, ward, 0)] * (count - 1)
            database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    return database.execute(statement).fetchall()


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


OVER_EACH = "OVER (PARTITION BY ward ORDER BY day"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT day, COUNT(*) AS n, LAG(COUNT(*)) OVER (ORDER BY day) AS b FROM t GROUP BY day",
        "SELECT day, COUNT(*) - LAG(COUNT(*), 3) OVER (ORDER BY day) AS c FROM t GROUP BY 1",
        "SELECT day, LEAD(COUNT(*)) OVER (ORDER BY day) AS b FROM t GROUP BY day ORDER BY day DESC",
        "SELECT day, SUM(COUNT(*)) OVER (ORDER BY day) AS s FROM t GROUP BY day",
        "SELECT day, SUM(COUNT(*)) OVER (ORDER BY day RANGE UNBOUNDED PRECEDING) AS s FROM t GROUP BY day",
        ("SELECT day, AVG(COUNT(*)) OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS m "
         "FROM t GROUP BY day LIMIT 9 OFFSET 1"),
        "SELECT day, AVG(COUNT(*)) OVER (ORDER BY day ROWS 2 PRECEDING) AS m FROM t GROUP BY day",
        f"SELECT day, ward, SUM(COUNT(*)) {OVER_EACH}) AS s FROM t GROUP BY day, ward ORDER BY 1, 2",
        f"SELECT ward, day, COUNT(*) - LAG(COUNT(*)) {OVER_EACH}) AS s FROM t GROUP BY 2, 1 ORDER BY 2, 1",
        f"SELECT ward, SUM(SUM(stay)) {OVER_EACH} ROWS 3 PRECEDING) s FROM t GROUP BY day, 1 ORDER BY day, 1",
        (f"SELECT day, ward, SUM(SUM(stay)) {OVER_EACH}) * 1.0 / SUM(COUNT(*)) {OVER_EACH}) AS mean "
         "FROM t GROUP BY day, ward ORDER BY day, ward"),
        ("SELECT day, n - LAG(n) OVER (ORDER BY day) AS c FROM "
         "(SELECT day, COUNT(*) AS n FROM t GROUP BY day)"),
        ("WITH d AS (SELECT day, COUNT(*) AS n FROM t GROUP BY day) SELECT day, "
         "100.0 * (n - LAG(n) OVER (ORDER BY day)) / LAG(n) OVER (ORDER BY day) AS percent, -n * 2 FROM d"),
        ("SELECT * FROM (SELECT day, COUNT(*) AS n, LAG(COUNT(*)) OVER (ORDER BY day) AS b FROM t "
         "GROUP BY day) WHERE n > 10"),
        "SELECT day, COALESCE(LAG(COUNT(*)) OVER (ORDER BY day), 0) AS b FROM t GROUP BY day",
        "SELECT day, ABS(n - 8) + n * (n - 1) AS x FROM (SELECT day, COUNT(*) AS n FROM t GROUP BY day)",
    ],
)  # fmt: skip
def test_a_statement_gives_what_a_database_gives(statement: str) -> None:
    found = ours(statement)
    values = [
        tuple(
            value
            for value, column in zip(row, found.columns, strict=True)
            if not (column.bar_of or column.sure_of)
        )
        for row in found.rows
    ]
    expected = in_database(statement)
    assert len(values) == len(expected) > 0
    assert [[_rounded(v) for v in row] for row in values] == [
        [_rounded(v) for v in row] for row in expected
    ]


def test_the_bar_of_a_change_is_that_of_both_periods_and_the_note_says_how_sure_it_is() -> None:
    below = "SELECT day, COUNT(*) AS n FROM t GROUP BY day"
    statement = f"SELECT day, n, n - LAG(n) OVER (ORDER BY day) AS c FROM ({below})"
    found = ours(statement, bar=2.0)
    assert found.column("n_error_bar") == pytest.approx([2.0] * 10)
    assert found.column("c_error_bar")[0] is None
    assert found.column("c_error_bar")[1:] == pytest.approx([4.0] * 9)
    assert any("confidence of at least 98%" in note for note in found.notes)


def test_the_bar_of_a_moving_average_is_that_of_its_sum_by_the_number_of_periods() -> None:
    found = ours(
        "SELECT day, AVG(COUNT(*)) OVER (ORDER BY day ROWS 2 PRECEDING) AS m FROM t GROUP BY day",
        bar=2.0,
    )
    bars = found.column("m_error_bar")
    assert bars == pytest.approx([2.0, 1.0, *[2.0 / 3.0] * 8])
    assert not any("confidence" in note for note in found.notes)
    assert all(math.isfinite(bar) for bar in bars if isinstance(bar, float))


def test_a_sum_and_a_count_of_the_same_frame_are_one_query() -> None:
    plan = sql.plan(
        f"SELECT SUM(SUM(stay)) {OVER_EACH}), SUM(COUNT(*)) {OVER_EACH}) FROM t GROUP BY day, ward",
        SCHEMA,
    )
    (query,) = plan.queries
    assert (query["kind"], query["frame"], query["count_rows"]) == ("sum", "running", True)
    plan = sql.plan(
        f"SELECT day, ward, SUM(SUM(stay)) {OVER_EACH}), COUNT(*) FROM t GROUP BY day, ward", SCHEMA
    )
    assert [query.get("frame") for query in plan.queries] == ["running", None]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("day, SUM(COUNT(*)) OVER (ORDER BY ward) GROUP BY day, ward", "write OVER (ORDER BY day)"),
        ("day, SUM(COUNT(*)) OVER (ORDER BY day DESC) GROUP BY day", "write OVER (ORDER BY day)"),
        ("day, SUM(COUNT(*)) OVER (ORDER BY day) GROUP BY day, ward", "PARTITION BY ward ORDER BY day"),
        ("day, LAG(COUNT(*)) OVER (PARTITION BY ward ORDER BY day) GROUP BY day", "omit PARTITION BY"),
        ("ward, SUM(COUNT(*)) OVER (ORDER BY ward) GROUP BY ward", "GROUP BY day, week, month or phase"),
        ("day, AVG(AVG(stay)) OVER (ORDER BY day) GROUP BY day", "SUM(SUM(x)) OVER (...) / SUM(COUNT(x))"),
        ("day, SUM(COUNT(*) + 1) OVER (ORDER BY day) GROUP BY day", "not a sum over periods"),
        ("day, SUM(COUNT(*)) OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) GROUP BY day",
         "this frame is not one of the last periods"),
        ("day, SUM(COUNT(*)) OVER (ORDER BY day RANGE 2 PRECEDING) GROUP BY day", "not one of the last"),
        ("day, LAG(COUNT(*), 1.5) OVER (ORDER BY day) GROUP BY day", "whole number from 0 to 1,000"),
        ("day, LAG(COUNT(*), 1, 0) OVER (ORDER BY day) GROUP BY day", "a third argument of LAG"),
        ("day, LAG(COUNT(*)) OVER (ORDER BY day) GROUP BY day HAVING COUNT(*) > 3", "put the condition"),
        ("day, RANK() OVER (ORDER BY day) FROM t GROUP BY day", "only SUM, AVG, LAG and LEAD have OVER"),
    ],
)  # fmt: skip
def test_what_is_no_function_of_the_last_periods_is_refused_in_words(
    statement: str, words: str
) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(words)):
        sql.plan(f"SELECT {statement}", SCHEMA)
