"""Buckets of a number are unions of its bins, and are refused where they would cut one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp import sql
from stream_dp.errors import InvalidQuery
from stream_dp.sql.plan.statement_plan import NO_ROWS, Published
from tests.sql.schemas import of

AGE = {"name": "age", "type": "number", "edges": [17, 20, 25, 30, 40, 50], "integer": True}
WEIGHT = {"name": "weight", "type": "number", "edges": [0, 2.5, 5, 7.5, 10]}
CITY = {"name": "city", "type": "category", "values": ["Bonn", "Graz"], "other": False}
SCHEMA: list[dict[str, Any]] = [AGE, WEIGHT, CITY]


def bucketed(expression: str, attribute: dict[str, Any]) -> dict[Any, Any]:
    """The condition of each bucket. Means of buckets are not added up from cells."""
    asked = f"SELECT {expression} AS b, AVG(x) FROM t GROUP BY b"
    found = sql.plan(asked, [attribute, {"name": "x", "type": "number", "edges": [1, 2]}])
    wheres = [query["where"] for query in found.queries]
    return {value: where for (value,), where in zip(found.cases, wheres, strict=True)}


def test_a_bucket_holds_the_bins_between_its_ends() -> None:
    tens: dict[Any, Any] = {
        10: of("age", lt=20),
        **{ten: {"all": [of("age", ge=ten), of("age", lt=ten + 10)]} for ten in (20, 30, 40)},
        50: of("age", ge=50),
        None: of("age", is_missing=True),
    }
    assert bucketed("FLOOR(age / 10) * 10", {**AGE, "missing": True}) == tens
    assert list(bucketed("WIDTH_BUCKET(age, 20, 50, 3)", AGE)) == [0, 1, 2, 3, 4]
    assert list(bucketed("FLOOR(weight / 5) * 5 / 2", WEIGHT)) == [-2.5, 0, 2.5, 5]


@pytest.mark.parametrize(
    ("expression", "computed"),
    [
        ("FLOOR(age / 10) * 10", lambda x: math.floor(x / 10) * 10),
        ("FLOOR((age - 20) / 5.0) + 1", lambda x: math.floor((x - 20) / 5.0) + 1),
        ("3 - FLOOR(age * 0.1)", lambda x: 3 - math.floor(x * 0.1)),
        ("WIDTH_BUCKET(age, 20, 50, 3)", lambda x: min(max(math.floor((x - 20) / 10) + 1, 0), 4)),
    ],
)
@given(number=st.integers(17, 49))
def test_every_number_is_in_the_bucket_that_the_expression_says(
    expression: str, computed: Any, number: int
) -> None:
    ages = {**AGE, "edges": [17, 20, *range(25, 51, 5)]}
    (found,) = [
        value for value, where in bucketed(expression, ages).items() if _holds(where, number)
    ]
    assert found == computed(number)


def _holds(where: dict[str, Any], number: int) -> bool:
    if "all" in where:
        return all(_holds(part, number) for part in where["all"])
    return number >= where["ge"] if "ge" in where else number < where["lt"]


@pytest.mark.parametrize(("step", "kinds"), [(5, ["table"]), (2, ["predicate"] * 9)])
def test_counts_of_buckets_of_few_bins_are_added_up_from_one_table(
    step: int, kinds: list[str]
) -> None:
    """With two bins each, a table takes less than nine counts of buckets; with five it takes more."""
    ages = {**AGE, "edges": [*range(20, 91, step)]}
    plan = sql.plan("SELECT FLOOR(age / 10) AS ten, COUNT(*) FROM t GROUP BY 1", [ages])
    assert [query["kind"] for query in plan.queries] == kinds


def test_buckets_that_are_bins_are_one_table() -> None:
    tens = {**AGE, "edges": [20, 30, 40], "missing": True}
    found = sql.plan(
        "SELECT FLOOR(age / 10) AS ten, city, COUNT(*) FROM t GROUP BY 1, 2", [tens, CITY]
    )
    (asked,) = found.queries
    assert (asked["kind"], asked["group_by"]) == ("table", ["age", "city"])
    assert found.groups[0].values == (1, 2, 3, 4, None)
    note = "FLOOR(age / 10) is 1 for all values below 20, and 4 for all from 40 on"
    assert found.notes == (note,)


def test_the_median_of_missing_values_is_not_asked() -> None:
    statement = "SELECT FLOOR(age / 30) AS b, COUNT(*) AS n, MEDIAN(age) AS m FROM t GROUP BY b"
    found = sql.plan(statement, [{**AGE, "missing": True}])
    assert [case for (case,) in found.cases] == [0, 1, None]
    asked = [
        [query != NO_ROWS for query in output.expression.queries]
        for output in found.outputs
        if isinstance(output.expression, Published)
    ]
    assert asked == [[True, True, True], [True, True, False]]
    assert {query["kind"] for query in found.queries} == {"predicate", "quantile"}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("FLOOR(age / 7)", "begin at edges, such as 20 and 25, or GROUP BY age for its bins"),
        ("FLOOR(age / 15) * 15", "within the bin of age from 40 to 50"),
        ("FLOOR(weight)", "within the bin of weight from 0 to 2.5"),
        ("FLOOR(city / 10)", "city is a category; make buckets of a number"),
        ("FLOOR(-age / 10)", "this falls where the number grows"),
        ("FLOOR(10 / age)", "this does not make buckets"),
        ("FLOOR(age / 0)", "this does not make buckets"),
        ("WIDTH_BUCKET(age, 50, 20, 3)", "this does not make buckets"),
        ("age / 10 * 10", "write FLOOR(age / 10) * 10 for buckets, or GROUP BY age for its bins"),
        ("age - age % 10", "write FLOOR(age / 10) * 10 for buckets"),
        ("ROUND(weight, -1)", "write FLOOR(weight / 10) * 10 for buckets"),
        ("age + weight", "is not a group; group by an attribute"),
    ],
)
def test_buckets_that_are_no_unions_of_bins_are_refused_with_the_nearest_edges(
    expression: str, words: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        sql.plan(f"SELECT {expression}, COUNT(*) FROM t GROUP BY 1", SCHEMA)
    assert words in str(refused.value)
