"""The names that Postgres gives the columns of a SELECT."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_syntax import folded
from stream_dp.gateway.pg_types import type_named

UNNAMED: Final = "?column?"
_KEYWORDS: Final = {
    exp.Array: "array",
    exp.Coalesce: "coalesce",
    exp.Exists: "exists",
    exp.Nullif: "nullif",
    exp.Extract: "extract",
    exp.StrPosition: "position",
    exp.Substring: "substring",
    exp.Overlay: "overlay",
    exp.AtTimeZone: "timezone",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentRole: "current_role",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtime: "localtime",
    exp.Localtimestamp: "localtimestamp",
}
_TRIMS: Final = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def column_name(node: Any) -> str:
    """Returns the name of a column of a SELECT, as ``FigureColname`` of Postgres finds it.

    Args:
        node: The expression, in the dialect of the catalogs.
    """
    if isinstance(node, exp.Alias):
        return folded(node.args["alias"])
    return _figured(node)[0] or UNNAMED


def _figured(node: Any) -> tuple[str, bool]:
    """Returns the name that a node suggests, or "", and whether it is stronger than the name of a type."""
    if isinstance(node, exp.Column):
        return folded(node.this), True
    if isinstance(node, exp.Dot):
        last = node.expression
        return (folded(last), True) if isinstance(last, exp.Identifier) else _figured(last)
    if isinstance(
        node, (exp.Paren, exp.Bracket, exp.Window, exp.Filter, exp.Collate, exp.WithinGroup)
    ):
        return _figured(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower(), True
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position")), "btrim"), True
    if isinstance(node, exp.Cast):
        name, is_strong = _figured(node.this)
        return (name, True) if is_strong else (type_name(node.to).removeprefix("_"), False)
    if isinstance(node, exp.Case):
        name, is_strong = (
            _figured(node.args["default"]) if node.args.get("default") else ("", False)
        )
        return (name, True) if is_strong else ("case", False)
    if isinstance(node, exp.Boolean):
        return "bool", False
    if isinstance(node, exp.Interval):
        return "interval", False
    if isinstance(node, exp.Subquery):
        return _of_query(node)
    name = next((name for kind, name in _KEYWORDS.items() if isinstance(node, kind)), "")
    return name, bool(name)


def _of_query(node: Any) -> tuple[str, bool]:
    while isinstance(node, (exp.Subquery, exp.SetOperation)):
        node = node.this
    if not isinstance(node, exp.Select) or not node.expressions:
        return ("column1", True) if isinstance(node, exp.Values) else ("", False)
    first = node.expressions[0]
    return (column_name(first), True) if isinstance(first, exp.Alias) else _figured(first)


def type_name(written: Any) -> str:
    """Returns the type of Postgres of a type in a tree; the text of a type that Postgres does not have."""
    text = str(written.sql(dialect="postgres"))
    return type_named(text) or text.rsplit(".", 1)[-1].strip('"').lower()
