"""Exact answers about the demo's public file, which it works out a second way: with SQLite."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from stream_dp.samples import FLIGHTS_DEFINITION, Flights

ATTRIBUTES: Final[dict[str, dict[str, Any]]] = {
    attribute["name"]: attribute for attribute in FLIGHTS_DEFINITION["attributes"]
}


class ExactFlights:
    """What is true of the flights of some phases.

    Args:
        sample: The file.
        phases: The phase of each flight.
    """

    def __init__(self, sample: Flights, phases: Sequence[int]) -> None:
        self._database = sqlite3.connect(":memory:")
        names = list(sample.columns)
        self._database.execute(f"CREATE TABLE flights (phase, {', '.join(names)})")
        self._database.executemany(
            f"INSERT INTO flights VALUES (?{', ?' * len(names)})",  # noqa: S608 - our own names
            zip(phases, *sample.columns.values(), strict=True),
        )

    def values(
        self, select: str, window: tuple[int, int], group_by: Sequence[str] = ()
    ) -> list[float]:
        """Returns a value for each cell, in the order of an answer's table. It is 0 where there is no row.

        Args:
            select: An expression of SQL. ``:last`` is the last phase.
            window: The first and the last phase.
            group_by: The attributes that tell cells apart.
        """
        cells = [_cell(name) for name in group_by]
        found = self._database.execute(
            f"SELECT {', '.join([*cells, select])} FROM flights "  # noqa: S608 - our own words
            "WHERE phase BETWEEN :first AND :last"
            + (f" GROUP BY {', '.join(cells)}" if cells else ""),
            dict(zip(("first", "last"), window, strict=True)),
        )
        by_cell = {tuple(cell): value for *cell, value in found}
        sizes = map(n_cells, group_by)
        return [by_cell.get(cell) or 0 for cell in itertools.product(*map(range, sizes))]

    def counts(
        self, condition: str | None, window: tuple[int, int], group_by: Sequence[str] = ()
    ) -> list[int]:
        """Returns the number of rows that satisfy a condition, of each cell."""
        counted = f"COUNT(*) FILTER (WHERE {condition or 'TRUE'})"
        return [int(count) for count in self.values(counted, window, group_by)]


def n_cells(name: str) -> int:
    """Returns the number of cells of an attribute, without that of missing values."""
    attribute = ATTRIBUTES[name]
    return len(attribute["values"]) if "values" in attribute else len(attribute["edges"]) + 1


def _cell(name: str) -> str:
    """Returns a SQL expression for the index of a row's cell."""
    attribute = ATTRIBUTES[name]
    if attribute["type"] == "category":
        cases = " ".join(f"WHEN '{v}' THEN {i}" for i, v in enumerate(attribute["values"]))
        return f"CASE {name} {cases} END"
    return " + ".join(f"({name} >= {edge})" for edge in attribute["edges"])
