"""Postgres' types: their numbers, their sizes, and their names in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class PgType:
    """A row of ``pg_type``; its fields are columns there, without the ``typ``.

    Attributes:
        receive: The oid of the function that reads the type in binary. 0: There is none.
        receive_name: The name of this function.
        input: The oid of the function that reads the type in text.
        of_range: The type of a range's ends, the range of a multirange, or 0.
    """

    oid: int
    name: str
    namespace: str
    length: int
    by_value: bool
    kind: str
    category: str
    is_preferred: bool
    element: int
    array: int
    delimiter: str
    receive: int
    receive_name: str
    input: int
    input_name: str
    base: int
    is_not_null: bool
    of_range: int


def _truth(field: str) -> bool:
    return field == "1"


_READERS: Final[tuple[Callable[[str], Any], ...]] = (
    *(int, str, str, int, _truth, str, str, _truth, int, int, str),
    *(int, str, int, str, int, _truth, int),
)
_LINES: Final = (files(__package__) / "catalogs/types.txt").read_text("utf-8").splitlines()
PG_TYPES: Final = tuple(
    PgType(*(read(field) for read, field in zip(_READERS, line.split(" "), strict=True)))
    for line in _LINES
    if not line.startswith("#")
)
"""The types of Postgres 15 but those of its tables, by oid."""

OIDS: Final[Mapping[str, int]] = {one.name: one.oid for one in PG_TYPES}
"""The oid of each type. An array has the name of its items after ``_``."""

NAMES: Final[Mapping[int, str]] = {one.oid: one.name for one in PG_TYPES}
BASES: Final = {one.name: NAMES[one.base] for one in PG_TYPES if one.kind == "d"}
"""The type under each domain."""

SIZES: Final[Mapping[str, int]] = {one.name: one.length for one in PG_TYPES}
"""The size of a value of each type, in bytes; negative if it varies."""

SQL_NAMES: Final[Mapping[str, str]] = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "char": '"char"',
    "bit": "bit",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""The name that Postgres shows for a type, where it is another one."""

_WRITTEN: Final = {shown: name for name, shown in SQL_NAMES.items()} | {
    "int": "int4",
    "float": "float8",
    "decimal": "numeric",
    "dec": "numeric",
    "char": "bpchar",
    "nchar": "bpchar",
    "national character": "bpchar",
    "time": "time",
    "timestamp": "timestamp",
    '"char"': "char",
}
_LENGTHS: Final = re.compile(r"\s*\([\d\s,]*\)")
_ARRAY: Final = re.compile(r"(\s*\[\d*\])+$|\s+array$")


def type_named(text: str) -> str | None:
    """Returns the type that a name in SQL stands for: ``int4`` for ``integer``, ``_text`` for ``text[]``.

    Args:
        text: The name, with a schema, a length and brackets as they come. None is returned if there is
            no such type.
    """
    words = _LENGTHS.sub("", " ".join(text.split()).lower())
    bare = _ARRAY.sub("", words).removeprefix("pg_catalog.").removeprefix("information_schema.")
    plain = bare if bare == '"char"' else bare.replace('"', "")
    name = _WRITTEN.get(plain, plain)
    if name not in OIDS:
        return None
    if bare.startswith('"') and bare != '"char"' and bare[1:-1] in OIDS:
        name = bare[1:-1]
    if _ARRAY.search(words) is None:
        return name
    return f"_{name}" if f"_{name}" in OIDS else None


def shown_type(name: str) -> str:
    """Returns the name that Postgres shows for a type: ``integer`` for ``int4``, ``text[]`` for ``_text``."""
    if name.startswith("_") and name[1:] in OIDS:
        return f"{shown_type(name[1:])}[]"
    return SQL_NAMES.get(name, name)
