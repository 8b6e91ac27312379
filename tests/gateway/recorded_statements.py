"""Statements that tools send about catalogs, and the columns and numbers of rows of Postgres 15."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from stream_dp.gateway.catalogs.catalog_tables import CatalogTable, CatalogView, TableColumn
from stream_dp.gateway.protocol.session_settings import SessionSettings

FILE = Path(__file__).with_name("recorded_statements.json")


def _columns(**said: str) -> tuple[TableColumn, ...]:
    """Columns by name: a type, ``?`` where a value may be NULL, and a comment."""
    found = []
    for name, written in said.items():
        kind, _, comment = written.partition(" ")
        found.append(TableColumn(name, kind.rstrip("?"), kind.endswith("?"), comment or None))
    return tuple(found)


_PEOPLE = _columns(
    city="text", age="int4 bins: 0, 18, 30, 65", employed="bool?", income="float8?", born="date?"
)
_FLIGHTS = _columns(origin="text", destination="text?", delay="float8?")
_COUNTRIES = _columns(code="text ISO 3166", name="text?", population="int8?")
_BUDGET = _columns(period="text?", spent="float8?")
TABLES = (
    CatalogTable("public", "people", "People of three cities", _PEOPLE, None),
    CatalogTable("public", "flights", None, _FLIGHTS, None),
    CatalogTable(
        "public",
        "countries",
        None,
        _COUNTRIES,
        (("AT", "Austria", 9132383), ("DE", "Germany", 83280000), ("LI", "Liechtenstein", 39584)),
    ),
    CatalogTable(
        "synthetic",
        "people",
        None,
        _PEOPLE,
        (("Graz", 30, True, 1200.5, "1990-01-02"), ("Bonn", 41, False, None, "1980-05-06")),
    ),
    CatalogTable("stream_dp", "budget", None, _BUDGET, ()),
)
VIEW = CatalogView("ann-1", "stream_dp", "ann", TABLES)
SETTINGS = SessionSettings({}, "ann").values


@dataclass(frozen=True)
class Recorded:
    """A statement, and what Postgres answered.

    Attributes:
        tool: Who sends it.
        statement: Its text. ``{oid of public.people}`` stands for an oid.
        columns: The name and the type of each column.
        rows: The number of rows.
        fewer: Why the port has fewer rows. None: It has as many.
    """

    tool: str
    statement: str
    columns: tuple[tuple[str, str], ...]
    rows: int
    fewer: str | None = None

    def sent(self, oid: Callable[[str], int]) -> str:
        """The statement for a server that has these oids."""
        return re.sub(r"\{oid of (\S+)\}", lambda found: str(oid(found[1])), self.statement)


def recorded() -> list[Recorded]:
    return [
        Recorded(**one | {"columns": tuple(map(tuple, one["columns"]))})
        for one in json.loads(FILE.read_text())
    ]


def write(statements: list[Recorded]) -> None:
    FILE.write_text(json.dumps(list(map(asdict, statements)), indent=1, ensure_ascii=False) + "\n")
