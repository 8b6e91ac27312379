"""Queries in words, as the lists of answers and the tiles have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.messages import QueryFields
from stream_dp.web.page_data.query_words import queries, sql_of, words_of

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
    {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True},
    {"name": "smoker", "type": "boolean", "missing": True},
]
OLD = {"attribute": "age", "ge": 18}
WEEK = {"last": "7 days"}


def words_in(item: dict[str, Any]) -> list[tuple[Any, str]]:
    """What is said of the query of a record."""
    record = {"version": 1, "dataset": "people", "analyst": "ann", "query_id": "q", **item}
    return list(queries(json.dumps(record).encode()))


@pytest.mark.parametrize(
    "condition",
    [
        "city = 'Bonn'",
        "age >= 30 AND age < 45",
        "city IN ('Bonn', 'Graz') OR smoker = TRUE",
        "(city = 'Bonn' OR city = 'Graz') AND age < 18",
        "NOT (age >= 30 AND city = 'Bonn') AND smoker IS NOT NULL",
        "city <> 'Bonn' AND age BETWEEN 18 AND 44",
        "city = 'other' OR smoker IS NULL",
    ],
)
def test_a_condition_in_words_is_the_sql_that_asks_for_it(condition: str) -> None:
    where = sql.parse(condition, ATTRIBUTES)["where"]
    ((name, words),) = words_in({"where": where})
    assert name == ("people", "ann", "q")
    assert sql.parse(words, ATTRIBUTES)["where"] == where, words


@pytest.mark.parametrize(
    "where", [{"zyzzyva": 1}, {"not": {"name": "zyzzyva"}}, {"all": [{"zyzzyva": []}]}]
)
def test_what_is_no_condition_is_not_shown_to_operators_either(where: dict[str, Any]) -> None:
    """It may be a row that somebody has sent to the wrong topic."""
    ((_, words),) = words_in({"where": where})
    assert "an invalid condition" in words
    assert "zyzzyva" not in words


@pytest.mark.parametrize("fields", [{"kind": "nonsense"}, {"where": {"all": 7}}, {"quote": True}])
def test_what_is_no_query_and_what_is_a_quote_has_no_words(fields: dict[str, Any]) -> None:
    assert words_in(fields) == []


@pytest.mark.parametrize(
    "words",
    [
        "age >= 18",
        "SELECT city, age, COUNT(*) GROUP BY city, age",
        "SELECT city, COUNT(*) WHERE age >= 18 GROUP BY city",
        "SELECT QUANTILE(age, 0.9)",
        "SELECT city, QUANTILE(age, 0) GROUP BY city",
        "SELECT city, SUM(age) WHERE age >= 18 GROUP BY city",
        "SELECT AVG(age)",
        "SELECT COUNT(*), AVG(age)",
        "SELECT COUNT(*) FILTER (WHERE smoker = TRUE) / COUNT(*) WHERE age >= 18",
        "SELECT MODE(age)",
    ],
)
def test_a_query_in_words_is_a_statement_that_asks_for_it(words: str) -> None:
    query = QueryFields.read({"query_id": "q", **sql.parse(words, ATTRIBUTES)})
    assert words_of(query) == sql_of(query) == words


MOVED = {"kind": "difference"}
LAST, BEFORE = {"last_phases": 3}, {"previous_phases": 3}
NOVEMBER = {"since": "2026-11-01", "until": "2026-11-08"}
IN_SQL = [
    ("every row", {}),
    ("every row, last 7 days, by day", {"window": WEEK, "series": "day"}),
    ("every row, last 3 phases", {"window": LAST}),
    ("every row, phases 3 to 7", {"window": {"phases": [3, 7]}}),
    ("every row, since 2026-11-01 until 2026-11-08", {"window": NOVEMBER}),
]
IN_WORDS = [
    ("every row", {"error": 0.01}),
    ("median(age)", {"kind": "median", "attribute": "age"}),
    ("threshold(age)", {"kind": "threshold", "attribute": "age"}),
    (
        "difference age >= 18, last 3 phases, minus the 3 phases before",
        {**MOVED, "where": OLD, "window": LAST, "minus_window": BEFORE},
    ),
    (
        "difference, last 7 days, minus the 7 days before",
        {**MOVED, "window": WEEK, "minus_window": {"previous": "7 days"}},
    ),
    (
        "difference GROUP BY city, minus the last 2 phases",
        {**MOVED, "group_by": ["city"], "minus_window": {"last_phases": 2}},
    ),
]


@pytest.mark.parametrize(("words", "fields"), [*IN_SQL, *IN_WORDS])
def test_times_and_other_kinds_have_words_and_a_link_has_sql_where_there_is_any(
    words: str, fields: dict[str, Any]
) -> None:
    query = QueryFields.read({"query_id": "q", **fields})
    assert words_of(query) == words
    assert (sql_of(query) is not None) is ((words, fields) in IN_SQL)
