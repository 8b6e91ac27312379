"""The tables that the parts of a statement see, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_syntax import folded
from stream_dp.gateway.pg_types import PG_TYPES
from stream_dp.gateway.protocol.sql_fault import SqlFault

_CATEGORIES: Final = {one.name: (one.category, one.is_preferred) for one in PG_TYPES}
_TEXTS: Final = ("name", "varchar", "bpchar")
_WHOLE: Final = ("int2", "int4", "int8")
_OF_EACH_ROW: Final = {"tableoid": "oid", "xmin": "xid"}
_FIRST_TRANSACTION: Final = 3
UNKNOWN: Final = "unknown"
"""The type of a text in a statement, until something needs another one."""


@dataclass(frozen=True, slots=True)
class TranslatedQuery:
    """A query for SQLite.

    Attributes:
        node: Its tree.
        columns: The name and the type of each column; None if nothing says the type.
        is_empty: Whether it has no rows.
    """

    node: Any
    columns: tuple[tuple[str, str | None], ...]
    is_empty: bool = False


Typed = tuple[Any, str | None]
"""An expression of SQLite, and its type of Postgres; None if nothing says it."""


def quoted(name: str) -> Any:
    """Returns a name in quotes, which a keyword needs."""
    return exp.to_identifier(name, quoted=True)


@dataclass(frozen=True, slots=True)
class Source:
    """A table of a FROM.

    Attributes:
        alias: Its name in the statement.
        columns: The type of each column, in their order.
        expression: Returns what SQLite reads for a column. Default: the column of the same name.
        is_empty: Whether it has no rows, whatever the statement says.
        oid: The oid of the table. 0: It has none.
    """

    alias: str
    columns: Mapping[str, str | None]
    expression: Callable[[str], Any] | None = None
    is_empty: bool = False
    oid: int = 0

    def column(self, name: str) -> Any:
        """Returns what SQLite reads for a column."""
        if self.expression is not None:
            return self.expression(name)
        return exp.Column(this=quoted(name), table=quoted(self.alias))


@dataclass(slots=True)
class StatementScope:
    """What the expressions of one SELECT see.

    Attributes:
        withs: The queries that have a name, by it.
        outer: The scope around it, whose columns it sees too.
        sources: The tables of its FROM, in their order.
        merged: The names of columns that USING joins.
        outputs: The types of its own columns, by name: ORDER BY and GROUP BY see them.
        faults: What is wrong with the conditions of its joins.
    """

    withs: Mapping[str, Source]
    outer: StatementScope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)
    outputs: dict[str, str | None] = field(default_factory=dict)
    faults: list[SqlFault] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether what it reads has no rows, so that its expressions are never computed."""
        return any(source.is_empty for source in self.sources)

    def resolve(self, node: Any) -> Typed:
        """Returns a column of one of the tables, and its type.

        Raises:
            SqlFault: No table has it.
        """
        name, table = folded(node.this), folded(node.args.get("table"))
        scope: StatementScope | None = self
        while scope is not None:
            for source in scope.sources:
                if table in ("", source.alias) and name in source.columns:
                    return source.column(name), source.columns[name]
                if table in ("", source.alias) and source.oid and name in _OF_EACH_ROW:
                    number = source.oid if name == "tableoid" else _FIRST_TRANSACTION
                    return exp.Literal.number(number), _OF_EACH_ROW[name]
            if not table and name in scope.outputs:
                return exp.Column(this=quoted(name)), scope.outputs[name]
            scope = scope.outer
        shown = f"{table}.{name}" if table else name
        raise SqlFault("42703", f"column {shown} does not exist")

    def starred(self, table: str) -> Iterator[tuple[str, Any, str | None]]:
        """Yields the name, the expression and the type of each column that a star stands for.

        Args:
            table: The table before the star; empty if there is none.

        Raises:
            SqlFault: There is no such table.
        """
        sources = [source for source in self.sources if table in ("", source.alias)]
        if not sources:
            if table:
                raise SqlFault("42P01", f"missing FROM-clause entry for table {table}")
            raise SqlFault("42601", "SELECT * with no tables specified is not valid")
        seen = set[str]()
        for source in sources:
            for name, kind in source.columns.items():
                if not table and name in self.merged and name in seen:
                    continue
                seen.add(name)
                yield name, source.column(name), kind


def common_type(kinds: list[str | None]) -> str | None:
    """Returns the type that CASE, COALESCE, UNION and the like give values of these types."""
    found: str | None = None
    for kind in kinds:
        if kind in (None, UNKNOWN) or kind == found:
            continue
        if found is None:
            found = kind
        elif found in _WHOLE and kind in _WHOLE:
            found = max(found, str(kind))
        else:
            category, is_preferred = _CATEGORIES.get(str(kind), ("", False))
            ours, ours_is_preferred = _CATEGORIES.get(found, ("", False))
            if category == ours and is_preferred and not ours_is_preferred and found not in _TEXTS:
                found = kind
    return found if found is not None else UNKNOWN if UNKNOWN in kinds else None
