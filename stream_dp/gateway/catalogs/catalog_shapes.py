"""The columns of Postgres' catalogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from stream_dp.gateway.pg_types import BASES, OIDS

Columns = tuple[tuple[str, str], ...]
"""The name and the type of each column."""


def _read(line: str) -> tuple[str, int, Columns]:
    relation, oid, *columns = line.split(" ")
    pairs = (column.rsplit(":", 1) for column in columns)
    return relation, int(oid), tuple((name, BASES.get(kind, kind)) for name, kind in pairs)


_LINES: Final = (files(__package__) / "shapes.txt").read_text("utf-8").splitlines()
_SHAPES: Final = [_read(line) for line in _LINES if not line.startswith("#")]

CATALOGS: Final[Mapping[str, Columns]] = {name: columns for name, _, columns in _SHAPES}
"""The columns of each catalog, such as ``pg_catalog.pg_class``. A type is never a domain."""

CATALOG_OIDS: Final[Mapping[str, int]] = {name: oid for name, oid, _ in _SHAPES}


_COUNTED: Final = Counter(column for columns in CATALOGS.values() for column in columns)
_USUAL: Final = dict(column for column, _ in reversed(_COUNTED.most_common()))
USUAL_TYPES: Final[Mapping[str, str]] = {n: kind for n, kind in _USUAL.items() if kind in OIDS}
"""The type that columns of catalogs usually have, by their name."""


def catalog_named(schema: str, name: str) -> str | None:
    """Returns the catalog that a name stands for, such as ``pg_catalog.pg_class``.

    Args:
        schema: The schema; empty if none is written.
        name: The name, as Postgres folds it.
    """
    full = f"{schema or 'pg_catalog'}.{name}"
    return full if full in CATALOGS else None
