"""The columns of Postgres' catalogs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from stream_dp.gateway.pg_types import NAMES, OIDS, PG_TYPES

_BASES: Final = {one.name: NAMES[one.base] for one in PG_TYPES if one.kind == "d"}
Columns = tuple[tuple[str, str], ...]
"""The name and the type of each column."""


def _read(line: str) -> tuple[str, int, Columns]:
    relation, oid, *columns = line.split(" ")
    pairs = (column.rsplit(":", 1) for column in columns)
    return relation, int(oid), tuple((name, _BASES.get(kind, kind)) for name, kind in pairs)


_LINES: Final = (files(__package__) / "shapes.txt").read_text("utf-8").splitlines()
_SHAPES: Final = [_read(line) for line in _LINES if not line.startswith("#")]

CATALOGS: Final[Mapping[str, Columns]] = {name: columns for name, _, columns in _SHAPES}
"""The columns of each catalog, such as ``pg_catalog.pg_class``. A type is never a domain."""

CATALOG_OIDS: Final[Mapping[str, int]] = {name: oid for name, oid, _ in _SHAPES}


def _usual_types() -> dict[str, str]:
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for columns in CATALOGS.values():
        for name, kind in columns:
            kinds[name][kind] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in kinds.items()}


_USUAL: Final = _usual_types()


def type_of_column(name: str) -> str | None:
    """Returns the type that columns of catalogs with this name usually have; None if there is none."""
    kind = _USUAL.get(name)
    return kind if kind in OIDS else None


def catalog_named(schema: str, name: str) -> str | None:
    """Returns the catalog that a name stands for, such as ``pg_catalog.pg_class``.

    Args:
        schema: The schema; empty if none is written.
        name: The name, as Postgres folds it.
    """
    full = f"{schema or 'pg_catalog'}.{name}"
    return full if full in CATALOGS else None
