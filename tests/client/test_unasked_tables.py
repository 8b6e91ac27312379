"""Tables that show no row, and the declared edges of numbers, are there without a query."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from tests.answers import table_of

PEOPLE: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
    {"name": "age", "type": "number", "edges": [18, 30, 65], "integer": True},
    {"name": "income", "type": "number", "edges": [0.5, 1000], "missing": True},
    {"name": "member", "type": "boolean"},
    {"name": "visited", "type": "date", "by": "day", "from": "2026-01-01", "until": "2026-02-02"},
]
NO_ROW = ["WHERE FALSE", "WHERE 1 = 0", "WHERE NOT 1 = 1 AND age >= 30", "WHERE 'a' <> 'a'", "LIMIT 0",
          "WHERE age = 18 LIMIT 0", "FETCH FIRST 0 ROWS ONLY", "WHERE city = ANY('{}')"]  # fmt: skip


@pytest.mark.parametrize("none", NO_ROW)
@pytest.mark.parametrize(
    ("selected", "columns"),
    [
        ("*", {"city": "text", "age": "integer", "income": "real", "member": "boolean", "visited": "text"}),
        ("age AS a, people.city, TRUE AS yes", {"a": "integer", "city": "text", "yes": "boolean"}),
        ("TRUE AS _", {"_": "boolean"}),
    ],
)  # fmt: skip
def test_a_list_of_rows_that_shows_none_has_its_columns(
    selected: str, columns: dict[str, str], none: str
) -> None:
    table = table_of(f"SELECT {selected} FROM people {none}", PEOPLE)
    assert {column.name: column.type for column in table.columns} == columns
    assert table.rows == []


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT * FROM (SELECT age, city AS city FROM people) AS t WHERE 0 = 1", ["age", "city"]),
        ("SELECT t.* FROM (SELECT * FROM people) AS t LIMIT 0", [one["name"] for one in PEOPLE]),
        ("SELECT city FROM (SELECT * FROM people WHERE FALSE) AS t", ["city"]),
        ("SELECT DISTINCT city FROM people WHERE FALSE", ["city"]),
        ("SELECT city FROM people WHERE FALSE GROUP BY city", ["city"]),
    ],
)
def test_subqueries_and_declared_values_show_none_either(statement: str, names: list[str]) -> None:
    table = table_of(statement, PEOPLE)
    assert [column.name for column in table.columns] == names
    assert table.rows == []


@pytest.mark.parametrize("none", NO_ROW)
@pytest.mark.parametrize(
    "asked",
    [
        "SELECT city, COUNT(*) AS n, AVG(age), MEDIAN(age), STDDEV(age) FROM people {} GROUP BY city",
        "SELECT day, COUNT(*) FROM people {} GROUP BY day",
        "SELECT FLOOR(age / 100) AS x, member AND age < 30 AS y, SUM(age) FROM people {} GROUP BY 1, 2",
        "SELECT city, COUNT(*) AS n FROM people {} GROUP BY city HAVING COUNT(*) > 5 ORDER BY n DESC",
    ],
)
def test_groups_of_no_rows_are_not_asked_for(asked: str, none: str) -> None:
    where, last = (none, "") if none.startswith("WHERE") else ("", none)
    if "LIMIT" in where:
        where, last = where.split(" LIMIT")[0], "LIMIT 0"
    table = table_of(f"{asked.format(where)} {last}", PEOPLE)
    assert table.rows == []
    assert not any("chose" in note for note in table.notes)


def test_without_groups_there_is_one_row_as_in_a_database_unless_it_is_cut() -> None:
    asked = "SELECT COUNT(*), SUM(age), AVG(age), MIN(age), 7 AS x FROM people"
    table = table_of(f"{asked} WHERE FALSE", PEOPLE)
    bars = [column.bar_of is not None for column in table.columns]
    (row,) = table.rows
    assert [one for one, is_bar in zip(row, bars, strict=True) if not is_bar] == [0, *[None] * 3, 7]
    assert table_of(f"{asked} LIMIT 0", PEOPLE).rows == []
    assert (
        table_of("SELECT COUNT(*) FROM people WHERE FALSE HAVING COUNT(*) > 0", PEOPLE).rows == []
    )


def test_a_message_still_asks_for_a_condition_that_is_never_true() -> None:
    assert sql.parse("SELECT COUNT(*) FROM people WHERE FALSE", PEOPLE)["where"] == {"any": []}


# ---------------------------------------------------------------- MIN and MAX


@pytest.mark.parametrize(
    ("selected", "row"),
    [
        ("MIN(age), MAX(age)", (18, 65)),
        ("MIN(people.income) AS low, MAX(income)", (0.5, 1000)),
        ("MAX(age) - MIN(age)", (47,)),
    ],
)
def test_min_and_max_alone_are_the_declared_edges(selected: str, row: tuple[Any, ...]) -> None:
    table = table_of(f"SELECT {selected} FROM public.people LIMIT 1000", PEOPLE)
    assert table.rows == [row]
    assert [column.bar_of for column in table.columns] == [None] * len(row)
    assert "declared edges" in table.notes[0]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT MIN(age) FROM people WHERE member",
        "SELECT city, MIN(age) FROM people GROUP BY city",
        "SELECT MIN(age), COUNT(*) FROM people",
        "SELECT MIN(age) FILTER (WHERE member) FROM people",
        "SELECT MIN(age) FROM people ORDER BY COUNT(*)",
        "SELECT MIN(age) FROM people WHERE day >= '2026-01-01'",
        "SELECT MAX(visited) FROM people",
        "SELECT (SELECT MIN(age) FROM people WHERE member) FROM people",
    ],
)
def test_beside_anything_else_they_are_bins_of_rows(statement: str) -> None:
    assert any(query["kind"] == "quantile" for query in sql.plan(statement, PEOPLE).queries)
