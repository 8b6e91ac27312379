"""Tables for which nothing is asked: columns without rows, values of no rows, and declared edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Constant,
    Output,
    Published,
    StatementPlan,
    ValueType,
)
from stream_dp.sql.reading.literals import is_number
from stream_dp.sql.reading.scopes import Scope, name_of
from stream_dp.sql.terms.aggregates import Atom
from stream_dp.sql.terms.columns import Columns

_OF_ROWS: Final = (exp.Star, exp.Column)
_CONSTANTS: Final = (exp.Literal, exp.Boolean, exp.Null)

ENDS_NOTE: Final = (
    "MIN and MAX are the outermost declared edges here, and not the least and the largest value of the rows; "
    "QUANTILE(x, 0) and QUANTILE(x, 1) ask about the rows"
)


def lists_rows(select: Any) -> bool:
    """Returns whether a SELECT lists columns of rows, and neither groups nor computes anything."""
    if select.args.get("group") or select.args.get("distinct"):
        return False
    items = [item.unalias() for item in select.expressions]
    are_plain = all(isinstance(each, (*_OF_ROWS, *_CONSTANTS)) for each in items)
    return are_plain and any(isinstance(each, _OF_ROWS) for each in items)


def columns_alone(scope: Scope, columns: Columns) -> StatementPlan:
    """Returns the plan of a list of rows that shows none: its columns with their types.

    Raises:
        Fault: It names an unknown attribute, or computes something.
    """
    outputs = tuple(
        Output(name_of(item), _type_of(item.unalias(), columns), Constant(None))
        for item in _without_stars(scope.select.expressions, scope, columns)
    )
    return StatementPlan(queries=(), groups=(), cases=(), outputs=outputs, limit=0)


def _without_stars(items: Iterable[Any], scope: Scope, columns: Columns) -> Iterator[Any]:
    for item in items:
        if item.is_star:
            yield from scope.starred or map(exp.column, columns.schema)
        else:
            yield item


def _type_of(node: Any, columns: Columns) -> ValueType:
    """Returns the type of the values that a column or a constant has in rows."""
    if isinstance(node, exp.Boolean):
        return "boolean"
    if is_number(node):
        return "integer" if node.this.isdecimal() else "real"
    if isinstance(node, _CONSTANTS):
        return "text"
    if (joined := columns.joined(node)) is not None:
        return joined.type
    attribute = columns.attribute(node)
    if attribute["type"] == "number":
        return "integer" if attribute.get("integer") else "real"
    return "boolean" if attribute["type"] == "boolean" else "text"


def of_no_rows(atoms: Iterable[Atom]) -> dict[Atom, Published]:
    """Returns what publishes each value where no row counts: nothing does."""
    parts = {"present": "count"}
    return {
        atom: Published(parts.get(atom.part, atom.part), (NO_ROWS,), atom.grouped)  # type: ignore[arg-type]
        for atom in atoms
    }


def asks_ends(select: Any, columns: Columns) -> bool:
    """Returns whether a SELECT without groups and conditions has MIN and MAX of numbers and nothing else."""
    order = select.args.get("order")
    parts: Sequence[Any] = [*select.expressions, *([] if order is None else [order])]
    asked = [node for part in parts for node in part.find_all(exp.AggFunc, exp.Filter, exp.Select)]
    return bool(asked) and all(
        isinstance(node, exp.Min | exp.Max)
        and isinstance(node.this, exp.Column)
        and columns.attribute(node.this)["type"] == "number"
        for node in asked
    )
