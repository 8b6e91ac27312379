"""Casts between the types of Postgres, as SQLite computes them."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_functions import ViewFunctions, array_items
from stream_dp.gateway.catalogs.catalog_scopes import UNKNOWN, Typed
from stream_dp.gateway.pg_types import BASES, OIDS
from stream_dp.gateway.protocol.sql_fault import SqlFault

WHOLE: Final = frozenset({"int2", "int4", "int8", "oid", "xid", "cid"})
FLOATS: Final = frozenset({"float4", "float8", "numeric"})
TEXTS: Final = frozenset({"text", "varchar", "name", "bpchar", "char"})
NAMED: Final = frozenset(
    {"regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regcollation"}
)
"""The types whose values are oids, and are shown as names."""


def item_type(kind: str | None) -> str | None:
    """Returns the type of the items of an array."""
    if kind is not None and kind.startswith("_"):
        return kind[1:]
    return {"int2vector": "int2", "oidvector": "oid"}.get(kind or "")


def call(name: str, *arguments: Any) -> Any:
    """Returns a call of a function of SQLite."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def text(value: str) -> Any:
    """Returns a literal."""
    return exp.Literal.string(value)


def is_text(node: Any) -> bool:
    """Returns whether a node is a text between quotes."""
    return isinstance(node, exp.Literal) and bool(node.is_string)


def cast(node: Any, kind: str | None, to: str, functions: ViewFunctions) -> Typed:
    """Returns a value as another type.

    Args:
        node: The value, as SQLite computes it.
        kind: Its type.
        to: The type to give it.
        functions: What knows the names of oids.

    Raises:
        SqlFault: The type does not exist, or it has no such value.
    """
    to = BASES.get(to, to)
    if to not in OIDS:
        raise SqlFault("42704", f"type {to} does not exist")
    if isinstance(node, exp.Null):
        return node, to
    if to in NAMED:
        return _to_named(node, kind, to, functions), to
    if to == "bool":
        return (call("catalog_bool", node) if kind in TEXTS | {UNKNOWN, None} else node), to
    if to in WHOLE:
        return (node if kind in WHOLE | NAMED else _to_whole(node)), to
    if to in FLOATS:
        return exp.Cast(this=node, to=exp.DataType.build("real", dialect="sqlite")), "float8"
    if to in TEXTS:
        return as_text(node, kind), to
    if to == "date":
        return call("date", node), to
    if to == "timestamp":
        return call("datetime", node), to
    if to.startswith("_") or to.endswith("vector"):
        return _to_array(node, kind, to), to
    return node, to


def _to_named(node: Any, kind: str | None, to: str, functions: ViewFunctions) -> Any:
    if is_text(node):
        return exp.Literal.number(functions.oid_of(to, str(node.this)))
    if kind in WHOLE | NAMED:
        return node
    return call("catalog_oid", text(to), node)


def _to_whole(node: Any) -> Any:
    if is_text(node) and str(node.this).strip().lstrip("-").isdigit():
        return exp.Literal.number(int(node.this))
    return call("catalog_whole", node)


def _to_array(node: Any, kind: str | None, to: str) -> Any:
    if is_text(node):
        items: list[Any] = array_items(str(node.this))
        if to[1:] in WHOLE:
            items = [None if item is None else _whole(item) for item in items]
        return text(json.dumps(items))
    return call("catalog_array", node) if kind in TEXTS else node


def _whole(item: str) -> int:
    try:
        return int(item)
    except ValueError:
        raise SqlFault("22P02", "invalid input for a whole number") from None


def as_text(node: Any, kind: str | None) -> Any:
    """Returns a value as the text that Postgres shows."""
    if is_text(node) or kind in TEXTS or kind == UNKNOWN:
        return node
    if kind in NAMED:
        return call("catalog_name", text(str(kind)), node)
    if kind == "bool":
        return call("catalog_bool_text", node)
    if kind in FLOATS:
        return call("catalog_float_text", node)
    if kind is not None and kind.startswith("_"):
        return call("catalog_array_text", node)
    return exp.Cast(this=node, to=exp.DataType.build("text", dialect="sqlite"))


def fitted(node: Any, kind: str | None, other: str | None, functions: ViewFunctions) -> Any:
    """Returns a value as the type of what it is compared with, if it is a text between quotes."""
    if kind != UNKNOWN or other in TEXTS | {UNKNOWN, None} or not is_text(node):
        return node
    return cast(node, kind, str(other), functions)[0] if str(other) in OIDS else node
