"""The constants that an attribute is compared with, as a message has them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from stream_dp.attribute_dates import CYCLES, first_number, span_of
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import constant_text
from stream_dp.sql.terms.columns import Attribute, Columns
from stream_dp.sql.terms.sql_dates import on_clocks
from stream_dp.sql.terms.trees import Tree, any_of

_NUMBER: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_TRUTHS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The texts that Postgres reads as truth values, as drivers send them."""


def one_of(columns: Columns, attribute: Attribute, constants: Sequence[Any]) -> Tree:
    """Returns the condition that an attribute equals one of some constants."""
    name = attribute["name"]
    read = _READ[attribute["type"]]
    values = [read(columns, attribute, constant) for constant in constants]
    others = [{"attribute": name, "is_other": True}] if None in values else []
    listed = [value for value in values if value is not None]
    if len(listed) > 1:
        return any_of([{"attribute": name, "in": listed}, *others])
    return any_of([*({"attribute": name, "eq": value} for value in listed), *others])


def check_ordered(attribute: Attribute, node: Any) -> None:
    """Refuses a comparison by order of an attribute without one."""
    if attribute["type"] in ("number", "date") or attribute.get("ordered"):
        return
    values = attribute.get("values", ())
    listed = [exp.Literal.string(value).sql(Grammar) for value in values[:6]]
    listed += ["..."] * (len(values) > 6)
    among = f": its values are {', '.join(listed)}" if values else ""
    problem = f"{attribute['name']} is a {attribute['type']} and has no order"
    raise Fault(node, problem, f"use = or IN{among}")


def in_order(columns: Columns, attribute: Attribute, node: Any, *, ends: bool = False) -> Any:
    """Returns a constant that an attribute with an order is compared with, a date by one of its ends."""
    if attribute["type"] == "date":
        return _date(columns, attribute, node, ends=ends)
    if attribute["type"] == "number":
        return _number(columns, attribute, node)
    value = _text(columns, attribute, node)
    if value is None:
        problem = "unlisted values have no place in the order"
        raise Fault(node, problem, "compare a listed value")
    return value


def _number(columns: Columns, attribute: Attribute, node: Any) -> float:
    """Returns a number. Drivers that know no types write it as a text."""
    text = constant_text(node)
    if text is not None and _NUMBER.fullmatch(text.strip()) is not None:
        value = float(text)
        if math.isfinite(value):
            return int(text) if text.strip().lstrip("-").isdecimal() else value
    number: float = columns.typed(node, "number", attribute["name"])
    return number


def _text(columns: Columns, attribute: Attribute, node: Any) -> Any:
    """Returns a listed value of a category, or None for all others. 7.0 is '7', and TRUE is 'true'."""
    name, listed = attribute["name"], attribute["values"]
    value = columns.constant(node)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if not columns.lists(attribute, text):
        text = (attribute.get("also") or {}).get(text, text)
    if columns.lists(attribute, text):
        return text
    has_other = attribute.get("other", True)
    if text == "other" and has_other:
        return None
    shown = ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
    folded = {v.lower(): v for v in listed}
    near = difflib.get_close_matches(text.lower()[:64], folded, 1)
    fixes = [f"did you mean '{folded[near[0]]}'?"] if near else []
    if not has_other:
        fixes.append("use a listed value")
    elif "other" in listed:
        fixes.append('all unlisted values together are asked by "is_other" in JSON')
    else:
        fixes.append(f"{name} = 'other' asks for all unlisted values together")
    problem = f"{short(node)} is not a listed value of {name} ({shown})"
    raise Fault(node, problem, " ".join(fixes))


def _bool(columns: Columns, attribute: Attribute, node: Any) -> bool:
    value = columns.constant(node)
    if isinstance(value, str):
        value = _TRUTHS.get(value.strip().lower(), value)
    if value not in (0, 1):
        problem = f"{attribute['name']} is true or false, not {short(node)}"
        raise Fault(node, problem, "write TRUE or FALSE")
    return bool(value)


def _date(columns: Columns, attribute: Attribute, node: Any, *, ends: bool = False) -> Any:
    """Returns a period: of the calendar as text, or one that comes again, by its label or number."""
    name, node = attribute["name"], node.unnest()
    text = on_clocks(node, attribute.get("timezone"), ends=ends)
    value = text if text is not None else columns.constant(node)
    labels = CYCLES.get(attribute["by"])
    is_date = text is not None and span_of(text) is not None
    if labels is None:
        if is_date:
            return text
        fix = "write DATE '2026-03-14', or a longer period such as '2026-03'"
        raise Fault(node, f"{short(node)} is not a date, but {name} is", fix)
    first = first_number(attribute["by"])
    numbers = range(first, first + len(labels))
    if value in labels or (isinstance(value, int) and value in numbers):
        return value
    fix = f"write '{labels[0]}' to '{labels[-1]}', or {numbers[0]} to {numbers[-1]}"
    if isinstance(value, str) and value[:3].title() in labels:
        fix = f"did you mean '{value[:3].title()}'? {fix}"
    elif text is not None and is_date and "day" not in columns.schema:
        fix += f"; where phases have dates, day >= DATE '{text[:10]}' asks about these"
    raise Fault(node, f"{short(node)} is not a period of {name}", fix)


_READ: Final[Mapping[str, Callable[..., Any]]] = {
    "category": _text,
    "number": _number,
    "boolean": _bool,
    "date": _date,
}
"""The functions that read a constant, by the type of the attribute."""
