"""The dialect of SQLAlchemy for data sets: ``streamdp://ann@host:port/?topic_prefix=stream-dp.``.

The password of the address is the signed token of the analyst, where queries need one.

A data set is a table, and its attributes are the columns. After each column of published values, a result has
a column with their error bars, whose name ends in ``_error_bar``, and one with each of their ends.
The last columns say which rows are sure, where LIMIT or HAVING chooses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from sqlalchemy import Connection, types
from sqlalchemy.engine import ConnectArgsType, default, reflection
from sqlalchemy.engine.interfaces import (
    DBAPIModule,
    ReflectedColumn,
    ReflectedForeignKeyConstraint,
    ReflectedIndex,
    ReflectedPrimaryKeyConstraint,
    ReflectedTableComment,
)
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import ArgumentError, CompileError, NoSuchTableError
from sqlalchemy.sql import compiler

from stream_dp.client import Client
from stream_dp.dbapi.dbapi_errors import InterfaceError
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import AttributeSpec, Definition, DimensionTable, DimensionType
from stream_dp.sql import PERIODS

_OPTIONS: Final = {"topic_prefix": str, "last_phases": int, "at_most": float, "timeout_s": float}


class _ReadOnly(compiler.SQLCompiler):
    """Writes SELECT, and says why there is nothing else."""

    def visit_insert(self, *_: Any, **__: Any) -> NoReturn:
        raise CompileError("rows are sent with `stream-dp ingest`, or by a producer on Kafka")

    def visit_update(self, *_: Any, **__: Any) -> NoReturn:
        raise CompileError("a row never changes once it is sent")

    def visit_delete(self, *_: Any, **__: Any) -> NoReturn:
        raise CompileError("rows are erased with their data set: stream-dp dataset delete")


class _NoDefinitions(compiler.DDLCompiler):
    """Says how data sets are defined."""

    def process(self, *_: Any, **__: Any) -> NoReturn:
        raise CompileError(
            "a data set is defined with its promise of privacy: stream-dp dataset create"
        )


class StreamDPDialect(default.DefaultDialect):
    """Asks data sets in SQL, through ``stream_dp.dbapi``."""

    name = "streamdp"
    driver = "kafka"
    default_paramstyle = "qmark"
    statement_compiler = _ReadOnly
    ddl_compiler = _NoDefinitions
    supports_statement_cache = True
    supports_native_boolean = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_empty_insert = False
    postfetch_lastrowid = False
    requires_name_normalize = False

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        """Returns the driver."""
        from stream_dp import dbapi

        return cast("DBAPIModule", dbapi)

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Returns the arguments of ``connect`` that an address stands for.

        Raises:
            ArgumentError: The address has a part that means nothing here.
        """
        if url.database:
            raise ArgumentError(
                f"url: /{url.database} means nothing here; the data set stands in FROM"
            )
        unknown = sorted(url.query.keys() - _OPTIONS.keys())
        if unknown:
            raise ArgumentError(f"url: {unknown[0]} is unknown; use {', '.join(_OPTIONS)}")
        options: dict[str, Any] = {
            name: _option(name, url.query[name]) for name in _OPTIONS if name in url.query
        }
        if url.host is not None:
            host = f"[{url.host}]" if ":" in url.host else url.host
            options["bootstrap_servers"] = f"{host}:{url.port or 9092}"
        if url.username:
            options["analyst"] = url.username
        if url.password:
            options["token"] = str(url.password)
        return [], options

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        """Returns whether an error says that the connection is lost."""
        return isinstance(e, InterfaceError) or isinstance(e.__cause__, ServerUnavailable)

    # ------------------------------------------------------------ introspection

    @reflection.cache
    def get_table_names(
        self, connection: Connection, schema: str | None = None, **_: Any
    ) -> list[str]:
        """Returns the names of the data sets, and of the public tables that statements can join."""
        if schema:
            return []
        client = _client(connection)
        return sorted({*client.catalog(), *client.dimensions()})

    @reflection.cache
    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[ReflectedColumn]:
        """Returns the attributes of a data set and the names of its time, or the columns of a public table.

        The type of an attribute is that of the values in rows, with which conditions compare and which SUM
        and AVG add up. Grouped by a number, a result has the names of its bins, which are texts: a comment
        says so.

        Raises:
            NoSuchTableError: There is none of that name.
        """
        found = _definition(connection, table_name, schema)
        if isinstance(found, Definition):
            return _columns_of(found)
        kinds = zip(found.columns, found.types, strict=True)
        return [_column(name, _KINDS[kind](), name != found.key) for name, kind in kinds]

    @reflection.cache
    def get_table_comment(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> ReflectedTableComment:
        """Returns what a table is: a data set, whose answers are noisy, or a public table.

        Raises:
            NoSuchTableError: There is none of that name.
        """
        if isinstance(_definition(connection, table_name, schema), DimensionTable):
            return {"text": "A public table. Answers about it are exact and free."}
        return {
            "text": "A private data set. Each answer is noisy, and stands next to its error bar; rows are "
            "never shown."
        }

    @reflection.cache
    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Returns whether there is a data set or a public table of that name."""
        return table_name in self.get_table_names(connection, schema, **kw)

    def get_schema_names(self, connection: Connection, **_: Any) -> list[str]:
        """Returns nothing: data sets are not in schemas."""
        return []

    def get_view_names(
        self, connection: Connection, schema: str | None = None, **_: Any
    ) -> list[str]:
        """Returns nothing: there are no views."""
        return []

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> ReflectedPrimaryKeyConstraint:
        """Returns no key: rows cannot be told apart."""
        self.get_columns(connection, table_name, schema)
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[ReflectedForeignKeyConstraint]:
        """Returns nothing: no row refers to another one."""
        self.get_columns(connection, table_name, schema)
        return []

    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[ReflectedIndex]:
        """Returns nothing: there are no indexes."""
        self.get_columns(connection, table_name, schema)
        return []


def _option(name: str, text: str | tuple[str, ...]) -> Any:
    """Returns an option of an address.

    Raises:
        ArgumentError: It is given several times, or is not a number where it must be one.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"url: {name} is there {len(text)} times; give it once")
    try:
        return _OPTIONS[name](text)
    except ValueError:
        kind = "a whole number" if _OPTIONS[name] is int else "a number"
        raise ArgumentError(f"url: {name}={text} is not {kind}; write {name}=1") from None


def _client(connection: Connection) -> Client:
    return cast("Client", connection.connection.dbapi_connection.client)  # type: ignore[union-attr]


def _definition(
    connection: Connection, name: str, schema: str | None
) -> Definition | DimensionTable:
    """Returns the definition of a data set, or a public table. None is in a schema.

    Raises:
        NoSuchTableError: There is none of that name.
    """
    if schema:
        raise NoSuchTableError(f"{schema}.{name}")
    client = _client(connection)
    try:
        return client.definition(name)
    except InvalidInput as unknown:
        table = client.dimensions().get(name)
        if table is None:
            raise NoSuchTableError(name) from unknown
        return table


def _columns_of(definition: Definition) -> list[ReflectedColumn]:
    """Returns the attributes of a data set, and what statements may name besides them.

    That is the time of rows, and whose row it is.
    """
    found = [
        _column(one.name, _type(one), one.missing, _BINS if one.type == "number" else None)
        for one in definition.attributes
    ]
    taken = {attribute.name.lower() for attribute in definition.attributes}
    others = [
        _column(name, types.Integer() if name == "phase" else types.Date(), False, _TIME)
        for name in PERIODS
    ]
    if definition.privacy.unit is not None:
        others.append(_column(definition.privacy.unit.key, types.String(), False, _WHOSE))
    return found + [one for one in others if one["name"].lower() not in taken]


_BINS: Final = "Grouped by, a result has the names of its bins, which are texts."
_TIME: Final = "The time of rows: group by it for a series, or compare it for a window."
_WHOSE: Final = "Whose row it is: COUNT(DISTINCT ...) counts persons, and nothing else names it."
_KINDS: Final[Mapping[DimensionType, type[types.TypeEngine[Any]]]] = {
    "text": types.String,
    "integer": types.Integer,
    "real": types.Float,
    "boolean": types.Boolean,
}


def _column(
    name: str,
    kind: types.TypeEngine[Any],
    nullable: bool,  # noqa: FBT001 - as SQLAlchemy calls it
    comment: str | None = None,
) -> ReflectedColumn:
    return {"name": name, "type": kind, "nullable": nullable, "default": None, "comment": comment}


def _type(attribute: AttributeSpec) -> types.TypeEngine[Any]:
    """Returns the type of the values of an attribute in rows."""
    if attribute.type == "boolean":
        return types.Boolean()
    if attribute.type == "number":
        return types.Integer() if attribute.integer else types.Float()
    return types.String()
