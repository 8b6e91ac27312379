"""Functions of attributes that are dates, such as EXTRACT and DATE_TRUNC: what they give for each period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.attribute_dates import CYCLES, beginnings_in, calendar_of, parts_in, parts_of
from stream_dp.sql.reading.attribute_names import name_in_sql
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.terms.attribute_cells import values_of
from stream_dp.sql.terms.buckets import value_at
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

_COMPUTES: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Floor)


def periods_of(columns: Columns, item: Any) -> tuple[Attribute, Sequence[str | int]]:
    """Returns the attribute of a function of a date, and what it gives for each of its periods.

    Raises:
        Fault: It is not of a date, or not the same for all dates of a period.
    """
    truncated, taken = truncation_of(item), part_of(item)
    if (part := computed_part(item)) is not None:
        attribute, taken_of = periods_of(columns, part)
        columns.work.look_at(item, len(taken_of) * sum(1 for _ in item.find_all(*_COMPUTES)))
        known = {each: value_at(item, int(each)) for each in {*taken_of}}
        return attribute, [known[each] for each in taken_of]
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
    n_columns, n_floors = (len(list(item.find_all(kind))) for kind in (exp.Column, exp.Floor))
    return parts[0] if len(parts) == n_columns == 1 and n_floors < 2 else None


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
