"""HAVING, WHERE around a subquery, ORDER BY and DISTINCT choose and sort groups as a database does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dp.errors import InvalidQuery
from tests.sql.random_statements import Draw, SQLite, answered, names_in, shown


@pytest.fixture(scope="module")
def sqlite() -> SQLite:
    return SQLite()


def difference(draw: Draw, sqlite: SQLite) -> str | None:
    """Returns what a statement at random and the database differ in; None if they agree."""
    ours, theirs, is_ordered = draw.statement()
    names = names_in(ours)
    counted = "COUNT(*)" in theirs
    expected = [
        (*shown(row[: len(names)], names), *row[len(names) :]) for row in sqlite.ask(theirs)
    ]
    try:
        found = answered(ours)
    except InvalidQuery as refused:
        return f"{ours}\n{refused}"
    same: Any = Counter(found) == Counter(expected)
    if is_ordered and same:
        same = _keys(found, len(names), counted) == _keys(expected, len(names), counted)
    return None if same else f"{ours}\n{theirs}\nfound {found}\nexpected {expected}"


def _keys(rows: Sequence[tuple[Any, ...]], n: int, counted: bool) -> list[Any]:
    return [row[:n] for row in rows] if counted else list(rows)


@pytest.mark.parametrize(
    ("seed", "n"), [(1, 300), pytest.param(2, 3500, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_the_rows_are_those_of_a_database(sqlite: SQLite, seed: int, n: int) -> None:
    draw = Draw(seed)
    differing = [found for _ in range(n) if (found := difference(draw, sqlite)) is not None]
    assert not differing, f"{len(differing)} of {n}:\n" + "\n\n".join(differing[:5])
