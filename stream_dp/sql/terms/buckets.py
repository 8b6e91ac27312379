"""Buckets of a number, such as ``FLOOR(x / 10) * 10`` and ``WIDTH_BUCKET(x, 0, 100, 10)``: unions of bins."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.plan.statement_plan import Scalar
from stream_dp.sql.reading.attribute_names import name_in_sql
from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.literals import exact, is_number
from stream_dp.sql.terms.attribute_cells import cases_of
from stream_dp.sql.terms.trees import Cases

_STEPS: Final = (exp.Floor, exp.WidthBucket)
_ARITHMETIC: Final[dict[Any, Callable[[Fraction, Fraction], Fraction]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}
_FIX: Final = "write FLOOR(x / 10) * 10, or WIDTH_BUCKET(x, 0, 100, 10), of a number x"


def bucketed(node: Any) -> Any:
    """Returns the one column of which an expression makes buckets; None for any other expression."""
    if isinstance(node, exp.Column) or node.find(exp.AggFunc, exp.Select) is not None:
        return None
    steps, columns = list(node.find_all(*_STEPS)), list(node.find_all(exp.Column))
    if len(steps) != 1 or len(columns) != 1:
        return None
    return columns[0] if columns[0].find_ancestor(*_STEPS) is not None else None


def buckets_of(node: Any, attribute: Mapping[str, Any]) -> tuple[tuple[Scalar, ...], Cases]:
    """Returns the bucket of each cell of a number, and each bucket with the condition of its rows.

    The bucket of missing values is None. Values below the first edge are in the bucket right below it, and
    values from the last edge on in the one that begins there.

    Args:
        node: An expression for which ``bucketed`` returns the column.
        attribute: The attribute of the column, of type number, as in the catalog.

    Raises:
        Fault: The buckets are not unions of bins, or cannot be computed.
    """
    name, edges, whole = attribute["name"], attribute["edges"], bool(attribute.get("integer"))

    def at(number: float) -> Fraction:
        return _value(node, Fraction(repr(number)), below=False)

    def before(number: float) -> Fraction:
        if whole:
            return at(math.ceil(number) - 1)
        return _value(node, Fraction(repr(number)), below=True)

    values = [before(edges[0])]
    for low, high in pairwise(edges):
        if at(low) != before(high):
            raise Fault(
                node,
                f"a bucket begins within the bin of {name} from {low:.15g} to {high:.15g}",
                f"let buckets begin at edges, such as {low:.15g} and {high:.15g}, or GROUP BY "
                f"{name_in_sql(name)} for its bins",
                reason="cuts_bin",
            )
        values.append(at(low))
    values.append(at(edges[-1]))
    found: list[Scalar] = [int(v) if v.denominator == 1 else float(v) for v in values]
    cases = [*cases_of(attribute, enumerate(found)).items()]
    if attribute.get("missing"):
        found.append(None)
        cases.append((None, {"attribute": name, "is_missing": True}))
    return tuple(found), tuple(cases)


def _value(node: Any, number: Fraction, *, below: bool) -> Fraction:
    """Returns the value of an expression at a number, or right below it."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return number
    if is_number(node):
        return exact(node)
    if isinstance(node, exp.Neg):
        return -_value(node.this, number, below=below)
    if isinstance(node, exp.Floor) and node.args.get("decimals") is None:
        return _floor(node.this, number, below=below)
    if isinstance(node, exp.WidthBucket):
        low, high, n = (
            _value(node.args[key], number, below=False)
            for key in ("min_value", "max_value", "num_buckets")
        )
        if not low < high or n < 1 or n.denominator != 1:
            raise Fault(node, "this does not make buckets", "write WIDTH_BUCKET(x, 0, 100, 10)")
        place = _value(node.this, number, below=below)
        place = _whole((place - low) * n / (high - low), below=below)
        return min(max(place + 1, Fraction(0)), n + 1)
    if type(node) in _ARITHMETIC:
        left, right = (_value(each, number, below=below) for each in (node.this, node.expression))
        if not (isinstance(node, exp.Div) and (right == 0 or node.expression.find(exp.Column))):
            return _ARITHMETIC[type(node)](left, right)
    raise Fault(node, "this does not make buckets", _FIX)


def _floor(inner: Any, number: Fraction, *, below: bool) -> Fraction:
    """Returns the floor of what grows with a number, at it or right below it."""
    ends = [_value(inner, Fraction(place), below=False) for place in (0, 1)]
    if ends[0] >= ends[1]:
        raise Fault(inner, "this falls where the number grows", _FIX)
    return _whole(_value(inner, number, below=below), below=below)


def _whole(number: Fraction, *, below: bool) -> Fraction:
    return Fraction(math.ceil(number) - 1 if below else math.floor(number))
