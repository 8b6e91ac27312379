"""Functions of attributes that are dates, such as EXTRACT and DATE_TRUNC: what they give for each period."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import add, mul, neg, sub
from typing import Any, Final

from sqlglot import exp

from stream_dp.attribute_dates import CYCLES, beginnings_in, calendar_of, parts_in, parts_of
from stream_dp.sql.reading.attribute_names import name_in_sql
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.literals import exact, is_number
from stream_dp.sql.terms.attribute_cells import values_of
from stream_dp.sql.terms.columns import Attribute, Columns
from stream_dp.sql.terms.comparisons import Comparison
from stream_dp.sql.terms.sql_dates import (
    ENDS,
    PART_KINDS,
    on_clocks,
    part_of,
    period_compared,
    truncation_of,
)

_OPERATORS: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    exp.Add: add,
    exp.Sub: sub,
    exp.Mul: mul,
    exp.Div: Fraction,
}
_COMPUTES: Final = (*_OPERATORS, exp.Neg, exp.Floor)


def periods_of(columns: Columns, item: Any) -> tuple[Attribute, Sequence[str | int]]:
    """Returns the attribute of a function of a date, and what it gives for each of its periods.

    Raises:
        Fault: It is not of a date, or not the same for all dates of a period.
    """
    truncated, taken = truncation_of(item), part_of(item)
    if (part := computed_part(item)) is not None:
        attribute, taken_of = periods_of(columns, part)
        columns.work.look_at(item, len(taken_of) * sum(1 for _ in item.find_all(*_COMPUTES)))
        compute = _computed(item, part)
        known = {each: compute(each) for each in {*taken_of}}
        if any(value.denominator != 1 for value in known.values()):
            problem = f"{short(item)} is not a whole number for some {attribute['by']}"
            raise Fault(item, problem, "write FLOOR around what divides")
        return attribute, [int(known[each]) for each in taken_of]
    unit, of = truncated or taken or ("", item)
    attribute = _dated(columns, item, of)
    name, by = attribute["name"], attribute["by"]
    bounds = by, attribute.get("from"), attribute.get("until")
    columns.work.look_at(item, len(values_of(attribute)))
    if unit == "epoch" and by not in CYCLES:
        return attribute, calendar_of(*bounds)[:-1]
    if truncated and (values := beginnings_in(*bounds, unit)) is not None:
        return attribute, values
    if taken and unit in parts_of(by):
        return attribute, parts_in(*bounds, unit)
    problem = f"{short(item)} is not the same for all dates of a {by} of {name}"
    fix = f"ask for {' or '.join(each.upper() for each in parts_of(by))}"
    if truncated:
        problem = f"a {by} of {name} does not lie in one group of {short(item)}"
        fix = f"GROUP BY {name_in_sql(name)}"
    raise Fault(item, problem, fix, reason="cuts_bin")


def computed_part(item: Any) -> Any:
    """Returns the part of a date of which a piece computes something, such as the hour in HOUR(d) + 1."""
    if not isinstance(item, _COMPUTES) or item.find(exp.AggFunc, exp.Select) is not None:
        return None
    parts = [each for each in item.find_all(*PART_KINDS) if part_of(each)]
    is_one = len(parts) == 1 and len(list(item.find_all(exp.Column))) == 1
    return parts[0] if is_one else None


def _computed(node: Any, part: Any) -> Callable[[Any], Any]:
    """Returns what an expression comes to for each value of the part of a date in it, exactly."""
    node = node.unnest()
    if node is part:
        return lambda value: value
    if is_number(node):
        constant = exact(node)
        return lambda _: constant if constant.denominator != 1 else constant.numerator
    if isinstance(node, exp.Neg | exp.Floor) and node.args.get("decimals") is None:
        inner, apply = _computed(node.this, part), neg if isinstance(node, exp.Neg) else math.floor
        return lambda value: apply(inner(value))
    if type(node) in _OPERATORS:
        left, right = (_computed(each, part) for each in (node.this, node.expression))
        divides = isinstance(node, exp.Div)
        if not divides or (node.expression.find(exp.Column) is None and right(0)):
            operate = _OPERATORS[type(node)]
            return lambda value: operate(left(value), right(value))
    fix = "compute with + - * / and FLOOR, such as FLOOR(EXTRACT(EPOCH FROM d) / 86400) * 86400"
    raise Fault(node, f"{short(node)} is not computed here", fix)


def of_whole_periods(columns: Columns, comparison: Comparison) -> Comparison:
    """Returns a comparison of DATE_TRUNC as one of the date itself with whole periods.

    Any other comparison stays as it is.

    Raises:
        Fault: No period begins at a constant.
    """
    item = comparison.subject
    if (truncated := truncation_of(item)) is None:
        return comparison
    unit, of = truncated
    attribute = _dated(columns, item, of)
    labels = []
    for constant, compared in comparison.pairs():
        text = on_clocks(constant, attribute.get("timezone"), ends=compared in ENDS)
        label = text and period_compared(unit, text, compared)
        if not label:
            fix = f"compare {short(item)} with the first day of a {unit}"
            raise Fault(item, f"{short(constant)} does not begin a {unit}", fix)
        labels.append(exp.Literal.string(label))
    return replace(comparison, subject=of, constants=tuple(labels))


def _dated(columns: Columns, item: Any, of: Any) -> Attribute:
    """Returns the attribute of type date of which a function is taken."""
    attribute = columns.attribute(of)
    if attribute["type"] != "date":
        problem = f"{attribute['name']} is a {attribute['type']} and no date"
        raise Fault(item, problem, "compare the attribute itself with a constant")
    return attribute
