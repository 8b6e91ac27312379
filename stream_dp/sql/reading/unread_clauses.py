"""Refuses what a statement says and no part of the translation reads, so that nothing is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from stream_dp.errors import InvalidQuery
from stream_dp.sql.reading.grammar import Grammar

_Error = Callable[..., InvalidQuery]

_TABLE: Final = "name the data set or the table alone, as in FROM sales AS s"
_LIMIT: Final = "write LIMIT 10 at the end"

_READ: Final[Mapping[Any, tuple[frozenset[str], str]]] = {
    exp.Table: (frozenset({"this", "db", "catalog", "alias"}), _TABLE),
    exp.Subquery: (frozenset({"this", "alias"}), "write only the SELECT in parentheses and a name"),
    exp.TableAlias: (frozenset({"this"}), "name the table alone; name columns in SELECT, with AS"),
    exp.CTE: (frozenset({"this", "alias", "materialized"}), "write WITH name AS (SELECT ...)"),
    exp.With: (frozenset({"expressions", "recursive"}), "write WITH name AS (SELECT ...)"),
    exp.Join: (
        frozenset({"this", "side", "kind", "method", "on", "using"}),
        "write JOIN t ON attribute = t.key",
    ),
    exp.Fetch: (frozenset({"direction", "count", "limit_options"}), _LIMIT),
    exp.LimitOptions: (frozenset({"rows"}), _LIMIT),
    exp.Limit: (frozenset({"this", "expression"}), _LIMIT),
    exp.Offset: (frozenset({"this", "expression"}), "write OFFSET 10 at the end"),
    exp.Order: (frozenset({"this", "expressions"}), "write ORDER BY and names, with DESC or not"),
    exp.Ordered: (
        frozenset({"this", "desc", "nulls_first"}),
        "write ORDER BY and names, with DESC or not",
    ),
    exp.Distinct: (frozenset({"expressions"}), "write DISTINCT alone"),
    exp.Count: (frozenset({"this", "big_int"}), "write COUNT(*), or COUNT(x) of one attribute"),
    exp.Round: (frozenset({"this", "decimals"}), "write ROUND(x, 1)"),
    exp.Window: (
        frozenset({"this", "over", "partition_by", "order", "spec"}),
        "write OVER (ORDER BY day)",
    ),
    exp.WindowSpec: (
        frozenset({"kind", "start", "start_side", "end", "end_side"}),
        "write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW",
    ),
    exp.Lag: (frozenset({"this", "offset"}), "write LAG(x) or LAG(x, 2)"),
    exp.Lead: (frozenset({"this", "offset"}), "write LEAD(x) or LEAD(x, 2)"),
    exp.Between: (frozenset({"this", "low", "high"}), "put the lower bound first"),
    exp.Cast: (frozenset({"this", "to", "safe"}), "write CAST(x AS REAL)"),
    exp.TryCast: (frozenset({"this", "to", "safe"}), "write CAST(x AS REAL)"),
}
"""What is read of each piece, or refused by name elsewhere, and what to write instead of the rest."""

_WORDS: Final = {
    "sample": "TABLESAMPLE",
    "version": "a version of a table",
    "pivots": "PIVOT or UNPIVOT",
    "columns": "a list of columns after a table's name",
    "symmetric": "SYMMETRIC",
    "percent": "PERCENT",
    "with_ties": "WITH TIES",
    "default": "a third argument of LAG and LEAD",
    "on": "DISTINCT ON",
    "truncate": "a third argument of ROUND",
}


def check_read(
    select: Any, attributes: Sequence[Mapping[str, Any]], error: Callable[..., InvalidQuery]
) -> None:
    """Refuses pieces of a statement that would be left out.

    Args:
        select: The statement, as sqlglot reads it.
        attributes: The attributes. Casts are not checked where there are none.
        error: A function that makes the error at a piece, from the problem and the fix.

    Raises:
        InvalidQuery: The statement says something that nothing reads.
    """
    for node in select.walk():
        if type(node) in _READ:
            _check_arguments(node, error)
        if isinstance(node, exp.Select) and node.args.get("distinct") and node.args.get("group"):
            raise error(
                node.args["group"],
                "DISTINCT with GROUP BY is not answered",
                "omit DISTINCT: each group is there once",
            )
        if isinstance(node, exp.Cast | exp.TryCast) and attributes:
            _check_cast(node, attributes, error)


def _check_arguments(node: Any, error: _Error) -> None:
    """Refuses what a piece says besides what is read of it."""
    read, fix = _READ[type(node)]
    for name, content in node.args.items():
        if content and name not in read:
            if isinstance(node, exp.Count):
                word = "COUNT of several attributes"
            elif isinstance(node, exp.Limit):
                word = "LIMIT BY"
            else:
                word = _WORDS.get(name, f"{name.strip('_').replace('_', ' ').upper()} here")
            raise error(node, f"{word} is not answered", fix)
    if isinstance(node, exp.TableAlias) and not isinstance(node.this, exp.Identifier):
        raise error(node, f"{node.sql(Grammar)} is not a name", fix)


def _check_cast(cast: Any, attributes: Sequence[Mapping[str, Any]], error: _Error) -> None:
    """Refuses a cast to whole numbers of what may be another number: casts change no value here."""
    if cast.to.this not in exp.DataType.INTEGER_TYPES:
        return
    by_name = {attribute["name"].lower(): attribute for attribute in attributes}
    columns = [column.name.lower() for column in cast.find_all(exp.Column)]
    if cast.find_ancestor(exp.Where) and all(name in by_name for name in columns):
        return  # a condition on rows has no casts at all, which is said there
    if not _is_whole(cast.this, by_name):
        raise error(
            cast,
            "a cast to whole numbers rounds nothing here",
            "omit the cast, or write ROUND of the aggregate",
        )


def _is_whole(node: Any, by_name: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether an expression is a whole number in any case."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        attribute = by_name.get(node.name.lower(), {"type": ""})
        return attribute["type"] == "boolean" or bool(attribute.get("integer"))
    if isinstance(node, exp.Literal):
        return not node.is_string and node.this.isdecimal()
    if isinstance(node, exp.Count | exp.CountIf | exp.Predicate | exp.Connector | exp.Not):
        return True
    if isinstance(node, exp.Boolean | exp.Null | exp.Extract):
        return True
    if isinstance(node, exp.Sum):  # a sum of an attribute counts the middle of each bin
        summed = node.this.unnest()
        columns = [] if isinstance(summed, exp.Predicate) else _values_of(summed)
        return all(_is_whole(each, by_name) and not _is_number(each, by_name) for each in columns)
    if isinstance(node, exp.Round):
        return node.args.get("decimals") is None
    if isinstance(node, exp.Case | exp.If):
        return all(_is_whole(each, by_name) for each in _values_of(node))
    if isinstance(node, exp.Select):
        return all(_is_whole(each.unalias(), by_name) for each in node.expressions)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return _is_whole(node.this, by_name) and _is_whole(node.expression, by_name)
    if isinstance(node, exp.Coalesce):
        return all(_is_whole(each, by_name) for each in (node.this, *node.expressions))
    if isinstance(node, exp.Neg | exp.Abs | exp.Nullif | exp.Filter | exp.Window | exp.Cast):
        return _is_whole(node.this, by_name)
    return False


def _is_number(node: Any, by_name: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether an expression has an attribute that is a number in it."""
    return any(
        by_name.get(column.name.lower(), {}).get("type") == "number"
        for column in node.find_all(exp.Column)
    )


def _values_of(node: Any) -> list[Any]:
    """Returns the values of a CASE, or an expression that is none by itself."""
    if isinstance(node, exp.Case):
        values = [each.args["true"] for each in node.args["ifs"]]
        return [*values, *filter(None, [node.args.get("default")])]
    if isinstance(node, exp.If):
        return [node.args["true"], *filter(None, [node.args.get("false")])]
    return [node]
