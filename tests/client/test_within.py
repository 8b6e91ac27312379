"""WITHIN and COSTING AT MOST in SQL, and the same as options and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.client.statements.written_query import Query, as_message
from stream_dp.errors import InvalidInput, InvalidQuery
from stream_dp.messages import QueryFields
from stream_dp.precision_texts import as_at_most
from stream_dp.sql import parse
from tests.sql.schemas import counted, of

SCHEMA: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "edges": [18, 30, 65]},
    {"name": "within", "type": "number", "edges": [5, 9]},
    {"name": "city", "type": "category", "values": ["Bonn", "all within 5%"]},
]
AGE = of("age", ge=30)


def read(sql: str) -> dict[str, Any]:
    return parse(sql, SCHEMA)


@pytest.mark.parametrize(
    ("clauses", "fields"),
    [
        ("WITHIN 5%", {"error": {"relative": 0.05}}),
        ("within 0.5% of rows", {"error": 0.005}),
        ("WITHIN 1e-1% OF\nROWS", {"error": 0.001}),
        ("WITHIN 50", {"error": {"value": 50.0}}),
        ("COSTING AT MOST 2%", {"at_most": 0.02}),
        ("WITHIN 5% COSTING AT MOST 2%", {"error": {"relative": 0.05}, "at_most": 0.02}),
        ("WITHIN 5% -- or so", {"error": {"relative": 0.05}}),
    ],
)
@pytest.mark.parametrize(
    "query", ["age >= 30", "SELECT COUNT(*) WHERE age >= 30", "WHERE age >= 30"]
)
def test_clauses_at_the_end_are_fields_of_the_query(
    query: str, clauses: str, fields: dict[str, Any]
) -> None:
    assert read(f"{query} {clauses}") == counted(AGE, **fields)
    QueryFields.read({"query_id": "q", **read(f"{query} {clauses}")})


SHARE = "AVG(CASE WHEN age >= 30 THEN 1 ELSE 0 END)"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("city, COUNT(*) GROUP BY city WITHIN 1% OF ROWS", 0.01),
        ("SUM(age) WITHIN 900", {"value": 900.0}),
        ("AVG(age) WITHIN 2.5", {"mean": 2.5}),
        ("city, AVG(age) GROUP BY city WITHIN 2.5", {"mean": 2.5}),
        ("AVG(age), COUNT(*) WITHIN 1% OF ROWS COSTING AT MOST 3%", 0.01),
        (f"{SHARE} WITHIN 0.01 COSTING AT MOST 3%", {"value": 0.01}),
        (f"{SHARE} WITHIN 1% OF ROWS", 0.01),
        ("CORR(age, within) WITHIN 0.03", {"value": 0.03}),
    ],
)  # fmt: skip
def test_other_kinds_take_them_too(sql: str, error: Any) -> None:
    asked = read(f"SELECT {sql}")
    assert asked["error"] == error
    assert asked.get("at_most") == (0.03 if "COSTING" in sql else None)


@pytest.mark.parametrize(
    ("sql", "fields"),
    [
        *[(sql, {}) for sql in (
            "within >= 5 AND within < 9",
            '"within" >= 5',
            "city = 'all within 5%'",
            "age >= 30 -- WITHIN 5%",
            "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age)",
            "SELECT within, COUNT(*) GROUP BY within",
        )],
        ("within >= 5 AND within < 9 WITHIN 9", {"error": {"value": 9.0}}),
    ],
)  # fmt: skip
def test_the_word_alone_is_no_clause(sql: str, fields: dict[str, Any]) -> None:
    asked = read(sql)
    assert {name: asked[name] for name in asked.keys() & {"error", "at_most"}} == fields


@pytest.mark.parametrize(
    ("sql", "column", "problem"),
    [
        ("age >= 30 WITHIN", 17, "a number is expected"),
        ("age >= 30 WITHIN five", 18, "a number is expected"),
        ("age >= 30 WITHIN -5%", 18, "a number is expected"),
        ("age >= 30 WITHIN 0%", 18, "not a number above 0"),
        ("age >= 30 WITHIN 1e-999", 18, "not a number above 0"),
        ("age >= 30 WITHIN 150%", 18, "not below 100%"),
        ("age >= 30 WITHIN 5 PERCENT", 20, "PERCENT is not understood"),
        ("age >= 30 WITHIN 5% AND age < 65", 21, "AND is not understood"),
        ("age >= 30 WITHIN 5% OF PEOPLE", 24, "ROWS is expected"),
        ("age >= 30 WITHIN 5% WITHIN 4%", 21, "there twice"),
        ("age >= 30 COSTING 2%", 19, "AT MOST is expected"),
        ("age >= 30 COSTING AT MOST 2", 28, "% is expected"),
        ("age >= 30 COSTING AT MOST 200%", 27, "above 100%"),
        ("SELECT MEDIAN(age) WITHIN 5%", 20, "the error of a quantile is a share of the rows"),
        ("SELECT MODE(age) COSTING AT MOST 5%", 18, "mode has neither"),
        ("SELECT city, COUNT(*) GROUP BY city WITHIN 5%", 37, "one COUNT only"),
        ("SELECT SUM(age), AVG(age) WITHIN 2.5", 27, "not for both"),
        ("SELECT AVG(age), SUM(age) WITHIN 2.5", 27, "not for both"),
        ("SELECT AVG(age), COUNT(*) WITHIN 2.5", 27, "without COUNT(*)"),
        ("SELECT SUM(age), COUNT(*) WITHIN 2.5", 27, "without COUNT(*)"),
        ("SELECT SUM(2 * age) WITHIN 50", 21, "of one attribute, without arithmetic"),
        (f"SELECT {SHARE} WITHIN 5%", 51, "one COUNT only"),
        (f"SELECT {SHARE} WITHIN 2", 51, "the error of a share is not below 1"),
        ("SELECT CORR(age, within) WITHIN 1.5", 26, "the error of a correlation is not below 1"),
    ],
)
def test_an_error_points_at_what_is_wrong_with_a_clause(
    sql: str, column: int, problem: str
) -> None:
    with pytest.raises(InvalidQuery, match=rf"line 1, column {column}: ") as caught:
        read(sql)
    assert problem in caught.value.problem
    assert caught.value.fix


def test_an_option_is_written_as_its_clause_is() -> None:
    assert as_at_most("2%") == 0.02
    assert read("age >= 30 WITHIN 0.5 % OF ROWS")["error"] == 0.005
    for text in ("", "5 rows", "5% rows", "nan"):
        with pytest.raises(InvalidQuery):
            read(f"age >= 30 WITHIN {text}")
    for text in ("0.02", "2% of it"):
        with pytest.raises(InvalidQuery):
            as_at_most(text)


@pytest.mark.parametrize(
    "query",
    [
        Query("age >= 30", error={"relative": 0.05}, at_most=0.02),
        Query("age >= 30 WITHIN 5%", at_most=0.02),
        Query("age >= 30 WITHIN 5% COSTING AT MOST 2%"),
    ],
)
def test_a_query_holds_an_error_and_a_price(query: Query[Any]) -> None:
    item = as_message(query, read)
    assert (item["error"], item["at_most"]) == ({"relative": 0.05}, 0.02)
    QueryFields.read(item)


def test_an_error_of_sums_by_group_is_an_argument_too() -> None:
    assert as_message(Query.sum("age", error=0.01, group_by=["city"]), read)["error"] == 0.01


def test_an_error_is_said_once() -> None:
    with pytest.raises(InvalidInput, match="error: the SQL says it too"):
        as_message(Query("age >= 30 WITHIN 5%", error=0.01), read)
    with pytest.raises(InvalidInput, match="one price for all"):
        as_message(Query.prefix_batch("age", ["age < 30 WITHIN 5%"]), read)
