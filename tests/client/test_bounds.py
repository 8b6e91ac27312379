"""ERROR_BAR, LOWER_BOUND and UPPER_BOUND say what the columns of bars and ends say of the same values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import BAR
from stream_dp.errors import InvalidQuery
from tests.answers import noisy_answer, table_answer, table_of

PEOPLE: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "other": False},
    {"name": "age", "type": "number", "edges": [18, 30, 65], "integer": True},
    {"name": "member", "type": "boolean"},
]
COUNTS = table_answer({"city": ["Bonn", "Graz", "Lyon"]}, [500.0, 3.0, 70.0], [4.0, 9.0, None])
BY_CITY = "SELECT city, {} FROM people GROUP BY city"


@pytest.mark.parametrize("of", ["COUNT(*)", "2 * COUNT(*)", "COUNT(*) / 10", "100 - COUNT(*)", "n"])
def test_they_are_the_bar_and_the_ends_of_the_value(of: str) -> None:
    value = "COUNT(*) + 1" if of == "n" else of
    functions = [f"{name}({of}) AS {name}" for name in ("error_bar", "lower_bound", "upper_bound")]
    table = table_of(BY_CITY.format(f"{value} AS n, {', '.join(functions)}"), PEOPLE, COUNTS)
    names = [column.name for column in table.columns]
    assert names == ["city", "n", f"n{BAR}", "error_bar", "lower_bound", "upper_bound"]
    assert table.column("error_bar") == table.column(f"n{BAR}")
    ends = [one for (one,) in table.ends]
    assert list(zip(table.column("lower_bound"), table.column("upper_bound"), strict=True)) == ends
    kinds = {column.name: column.type for column in table.columns}
    assert kinds["error_bar"] == "real"
    assert kinds["lower_bound"] == kinds["upper_bound"] == kinds["n"]
    assert [None in row for row in table.rows] == [False, False, True], (
        "no bar is known of the last"
    )


def test_a_count_is_never_below_0() -> None:
    table = table_of(BY_CITY.format("LOWER_BOUND(COUNT(*)) AS n__yhat_lower"), PEOPLE, COUNTS)
    assert table.column("n__yhat_lower") == [496, 0, None]
    assert [column.name for column in table.columns] == ["city", "n__yhat_lower"]


def test_what_computes_with_them_has_a_bar_if_the_rest_has_one() -> None:
    asked = "COUNT(*) - ERROR_BAR(COUNT(*)) AS low, LOWER_BOUND(COUNT(*)) + 1 AS more, 5 AS five"
    table = table_of(BY_CITY.format(asked), PEOPLE, COUNTS)
    assert [column.name for column in table.columns] == ["city", "low", f"low{BAR}", "more", "five"]
    assert table.column("low") == [496.0, -6.0, None]
    assert table.column("more") == [497, 1, None]


def test_rows_are_sorted_by_them_without_ranks_that_would_say_what_is_true() -> None:
    asked = BY_CITY.format("COUNT(*) AS n")
    for order, first in (("LOWER_BOUND(n) DESC", "Bonn"), ("ERROR_BAR(n) DESC", "Graz")):
        table = table_of(f"{asked} ORDER BY {order} LIMIT 1", PEOPLE, COUNTS)
        assert table.column("city") == [first]
        assert not any(column.sure_of for column in table.columns)
        assert any("published values chose these rows" in note for note in table.notes)
    by_value = table_of(f"{asked} ORDER BY n DESC LIMIT 1", PEOPLE, COUNTS)
    assert any(column.sure_of for column in by_value.columns)


def test_a_mean_that_is_unknown_has_no_bar_and_no_ends() -> None:
    sums = {"total": 3.0, "total_error_bar": 9.0, "mean": None, "mean_error_bar": None}
    counts = {"value": 0.1, "count": 1, "error_bar": 1.0}
    empty = noisy_answer(9, kind="sum", attribute="age", **sums, **counts)
    table = table_of(
        "SELECT AVG(age) AS a, ERROR_BAR(a) AS b, UPPER_BOUND(a) AS u FROM people", PEOPLE, empty
    )
    assert table.rows == [(None, None, None, None)]


@pytest.mark.parametrize(
    ("selected", "words"),
    [
        (
            "LOWER_BOUND(city)",
            "LOWER_BOUND(city) is not of one value with a bar; write LOWER_BOUND(n)",
        ),
        ("ERROR_BAR(5)", "is not of one value with a bar"),
        ("ERROR_BAR()", "is not of one value with a bar"),
        ("ERROR_BAR(COUNT(*), 1)", "is not of one value with a bar"),
        ("ERROR_BAR(UPPER_BOUND(COUNT(*)))", "is not of one value with a bar"),
        ("UPPER_BOUND(MEDIAN(age))", "is of bins, which have no bounds"),
        ("LOWER_BOUND(age)", "age is not grouped by"),
        ("LOWER_BOUND(foo)", "there is no attribute foo"),
    ],
)
def test_other_pieces_are_refused(selected: str, words: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(words)):
        sql.plan(BY_CITY.format(f"COUNT(*) AS n, {selected}"), PEOPLE)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT city, COUNT(*) AS n, 5 AS five, ERROR_BAR(n), n + LOWER_BOUND(n) FROM people GROUP BY city",
        "SELECT city, COUNT(*) AS n, MEDIAN(age), AVG(age) FROM people GROUP BY city LIMIT 0",
        "SELECT MIN(age), MAX(age) + 1 FROM people",
        "SELECT * FROM people WHERE FALSE",
        "SELECT COUNT(*), COUNT(*) / 2, COALESCE(AVG(age), 0), UPPER_BOUND(AVG(age)) FROM people WHERE FALSE",
    ],
)
def test_a_plan_says_which_columns_the_table_has(statement: str) -> None:
    plan = sql.plan(statement, PEOPLE)
    answers = [COUNTS] * len(plan.queries)
    table = table_of(statement, PEOPLE, *answers)
    said = [
        name for one in plan.outputs for name in [one.name, *[f"{one.name}{BAR}"] * one.has_bar]
    ]
    assert said == [column.name for column in table.columns]
