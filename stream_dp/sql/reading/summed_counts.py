"""Sums of what a SELECT below has counted by groups, as Superset asks of its virtual data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from stream_dp.sql.reading.literals import whole_number


def unwrap(select: Any) -> None:
    """Takes off a SELECT that adds up what one below has counted: its sums are those of the rows below.

    Nothing else may be done below than to count by groups, unless the groups around are the same.
    """
    origin = select.args.get("from_")
    below = origin.this if origin is not None and isinstance(origin.this, exp.Subquery) else None
    inner = None if below is None else below.this
    if not isinstance(inner, exp.Select) or inner.args.get("group") is None:
        return
    named = {item.output_name.lower(): item.unalias() for item in inner.expressions}
    added = [
        node
        for part in (*select.expressions, select.args.get("order"), select.args.get("having"))
        if part is not None
        for node in part.find_all(exp.AggFunc)
    ]
    around = [] if select.args.get("group") is None else select.args["group"].expressions
    aliases = {i.alias.lower(): i.this for i in select.expressions if isinstance(i, exp.Alias)}
    meant = [_meant(each, select.expressions, aliases) for each in around]
    groups = {each.name.lower() for each in meant}
    counted = {name for name, item in named.items() if item.find(exp.AggFunc) is not None}
    keys = named.keys() - counted
    names = [_added(node) for node in added]
    if not added or not groups <= keys or not all(name in counted for name in names):
        return
    if not all(isinstance(each, exp.Column) for each in meant):
        return
    if groups == keys and len(inner.args["group"].expressions) == len(keys):
        _take_off(select, added)
    elif all(isinstance(node, exp.Sum) for node in added):
        _merge(select, inner, named, added, aliases)


def _meant(piece: Any, items: Sequence[Any], aliases: Mapping[str, Any]) -> Any:
    """Returns the column that a position or a name in GROUP BY stands for."""
    place = whole_number(piece.unnest())
    if place is not None and 1 <= place <= len(items):
        return items[place - 1].unalias()
    return aliases.get(piece.name.lower(), piece)


def _added(node: Any) -> str:
    """Returns the name of the column that an aggregate of one row is of; empty for other aggregates."""
    is_of_one = isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max)
    is_column = is_of_one and isinstance(node.this, exp.Column)
    in_window = node.find_ancestor(exp.Window, exp.Filter, exp.Select)
    return node.this.name.lower() if is_column and isinstance(in_window, exp.Select) else ""


def _take_off(select: Any, added: Sequence[Any]) -> None:
    """Each group around is one row below, so that an aggregate of it is the value itself."""
    for node in added:
        node.replace(node.this)
    select.set("group", None)
    if (having := select.args.get("having")) is not None:
        where = select.args.get("where")
        both = [having.this] if where is None else [where.this, having.this]
        select.set("where", exp.Where(this=exp.and_(*both, copy=False)))
        select.set("having", None)


def _merge(
    select: Any,
    inner: Any,
    named: Mapping[str, Any],
    added: Sequence[Any],
    aliases: Mapping[str, Any],
) -> None:
    """Groups the rows below by the fewer groups around."""
    plain = ("expressions", "from_", "where", "joins", "group", "order")
    more = any(content for clause, content in inner.args.items() if clause not in plain)
    sums = [named[node.this.name.lower()] for node in added]
    chosen = [] if select.args.get("where") is None else select.args["where"].find_all(exp.Column)
    are_plain = all(isinstance(named.get(c.name.lower()), exp.Column) for c in chosen)
    if more or not are_plain or not all(map(_adds_up, sums)):
        return
    if any(item.find(exp.Column) is None for item in named.values() if not _adds_up(item)):
        return  # a number in GROUP BY would be a position
    for column in list(select.find_all(exp.Column)):
        name, around = column.name.lower(), column.find_ancestor(exp.AggFunc, exp.Order, exp.Select)
        is_alias = isinstance(around, exp.Order) and name in aliases
        is_here = column.find_ancestor(exp.Select) is select and not isinstance(around, exp.AggFunc)
        if is_here and not is_alias and name in named and not _adds_up(named[name]):
            column.replace(named[name].copy())
    for node, value in zip(added, sums, strict=True):
        node.replace(value.copy())
    wheres = [each.args["where"].this for each in (inner, select) if each.args.get("where")]
    select.set("from_", inner.args["from_"])
    select.set("joins", inner.args.get("joins"))
    if wheres:
        select.set("where", exp.Where(this=exp.and_(*wheres, copy=False)))


def _adds_up(value: Any) -> bool:
    """Returns whether a value of several groups together is the sum of theirs."""
    bare = value.this if isinstance(value, exp.Filter) else value
    is_sum = isinstance(bare, exp.Count | exp.Sum | exp.CountIf)
    return is_sum and not isinstance(bare.this, exp.Distinct)
