"""The dialect on a catalog in memory, in which CREATE TABLE defines a data set.

SQLAlchemy's suite creates the tables that it reflects. Here, and only here, a table becomes a data set. No
rows are sent, so nothing is answered but what follows from definitions.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from sqlalchemy import types
from sqlalchemy.sql import compiler

from stream_dp import dbapi
from stream_dp.client import ResultTable
from stream_dp.dbapi.connections import Connection
from stream_dp.dbapi.dialect import StreamDPDialect
from stream_dp.messages import Definition
from stream_dp.sql import PERIODS
from tests.client.world_client import QuietSession, SessionClient
from tests.pipeline.world import definition

_NOTHING = ResultTable("", (), [], None)


class Catalog(SessionClient):
    """A client that knows definitions, and has no broker."""

    def __init__(self) -> None:
        self.session = QuietSession()
        super().__init__(self.session)

    def create(self, name: str, attributes: list[dict[str, Any]]) -> None:
        self.session.definitions[name] = Definition.read(definition(name, attributes=attributes))
        self._publish()

    def drop(self, name: str) -> None:
        del self.session.definitions[name]
        self._publish()

    def _publish(self) -> None:
        known = self.session.definitions.items()
        self.session.records["catalog"] = [(name, one.to_bytes()) for name, one in known]

    def close(self) -> None:
        """Does nothing, because all connections share it."""


_CATALOG = Catalog()  # the suite opens several engines on one server


class CatalogConnection(Connection):
    def ask(self, statement: str) -> ResultTable:
        verb, _, arguments = statement.partition(" ")
        if verb in ("create", "drop"):
            getattr(self.client, verb)(*json.loads(arguments))
            return _NOTHING
        return super().ask(statement)


class _Definitions(compiler.DDLCompiler):
    def visit_create_table(self, create: Any, **_: Any) -> str:
        table = create.element
        return f"create {json.dumps([table.name, [_attribute(one) for one in table.columns]])}"

    def visit_create_index(self, *_: Any, **__: Any) -> str:
        return "SELECT 1"  # some tables of the suite have indexes, whatever it may expect

    visit_create_view = visit_drop_view = visit_create_index

    def visit_drop_table(self, drop: Any, **_: Any) -> str:
        return f"drop {json.dumps([drop.element.name])}"


def _attribute(column: Any) -> dict[str, Any]:
    attribute = {"name": column.name, "missing": bool(column.nullable)}
    if isinstance(column.type, types.Integer):
        return {**attribute, "type": "number", "edges": [0], "integer": True}
    if isinstance(column.type, types.Numeric | types.Float):
        return {**attribute, "type": "number", "edges": [0.5]}
    return {**attribute, "type": "category", "values": ["a"]}


class CatalogDialect(StreamDPDialect):
    """The dialect that the suite tests."""

    supports_statement_cache = True
    ddl_compiler = _Definitions  # type: ignore[assignment]

    def get_columns(self, connection: Any, table_name: str, *about: Any, **more: Any) -> Any:
        """Leaves out the names of the time, and comments: the suite expects what it has written."""
        found = super().get_columns(connection, table_name, *about, **more)
        return [
            {name: said for name, said in column.items() if name != "comment"}
            for column in found
            if column["name"] not in PERIODS
        ]

    @classmethod
    def import_dbapi(cls) -> Any:
        module = ModuleType("in_memory")
        vars(module).update({name: getattr(dbapi, name) for name in dbapi.__all__})
        module.connect = lambda **_: CatalogConnection(_CATALOG)  # type: ignore[attr-defined]
        return module
