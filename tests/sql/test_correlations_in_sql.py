"""CORR(x, y) in SQL is one query for a correlation, with its condition and its error."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery

PEOPLE: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True, "missing": True},
    {"name": "hours", "type": "number", "edges": [10, 30, 50], "integer": True},
    {"name": "smoker", "type": "boolean", "missing": False},
]
ASKED = {"kind": "correlation", "attribute": "age", "other": "hours"}
SMOKERS = {"attribute": "smoker", "eq": True}


@pytest.mark.parametrize(
    ("statement", "asked"),
    [
        ("SELECT CORR(age, hours) FROM people", {"where": None}),
        ("SELECT CORR(age, hours) FROM people WHERE smoker", {"where": SMOKERS}),
        ("SELECT CORR(age, hours) FILTER (WHERE smoker) FROM people", {"where": SMOKERS}),
        (
            "SELECT CORR(age, hours) FROM people WITHIN 0.03 COSTING AT MOST 2%",
            {"where": None, "error": {"value": 0.03}, "at_most": 0.02},
        ),
    ],
)
def test_it_is_one_query(statement: str, asked: dict[str, Any]) -> None:
    (query,) = sql.plan(statement, PEOPLE, dataset="people").queries
    assert dict(query) == {**ASKED, **asked}


def test_it_stands_beside_other_values() -> None:
    plan = sql.plan("SELECT COUNT(*), CORR(age, hours), AVG(age) FROM people", PEOPLE)
    assert sorted(query["kind"] for query in plan.queries) == ["correlation", "sum"]


@pytest.mark.parametrize(
    ("statement", "fix"),
    [
        ("SELECT smoker, CORR(age, hours) FROM people GROUP BY smoker", "with WHERE"),
        ("SELECT CORR(age, age) FROM people", "name two attributes"),
        ("SELECT CORR(age + 1, hours) FROM people", "name two attributes"),
        ("SELECT CORR(age, smoker) FROM people", "name a number"),
        ("SELECT CORR(age, hours) FROM people WITHIN 1.5", "WITHIN 0.01 for a correlation"),
    ],
)
def test_what_it_cannot_be_says_how_to_ask_instead(statement: str, fix: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        sql.plan(statement, PEOPLE, dataset="people")
    assert fix in str(caught.value)
