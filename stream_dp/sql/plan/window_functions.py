"""OVER: window functions on the parts of a series, such as running sums, moving averages and LAG."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import whole_number

Frame: TypeAlias = int | Literal["running"]
"""The number of parts that a window function is of, the last one its own, or all up to its own."""

FRAMED: Final = (exp.Sum, exp.Avg)
"""The functions of the parts of a frame."""

SHIFTED: Final = {exp.Lag: 1, exp.Lead: -1}
"""The functions of one other part, with the direction in which it lies."""

_MOST: Final = 1_000
_WRITE: Final = "write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW, or UNBOUNDED PRECEDING"


def frame_of(window: Any) -> Frame:
    """Returns the frame of a window function that is ordered by the period of a series.

    Args:
        window: The function with its OVER, as sqlglot reads it.

    Raises:
        Fault: It is another frame than some of the last parts.
    """
    spec = window.args.get("spec")
    if spec is None:
        return "running"
    end, start = spec.args.get("end"), spec.args.get("start")
    to_here = end is None or end == "CURRENT ROW"
    from_before = to_here and spec.args.get("start_side") == "PRECEDING"
    if from_before and start == "UNBOUNDED":
        return "running"  # no two rows have the same period, so that RANGE is the same
    if to_here and spec.args.get("kind") == "ROWS":
        if start == "CURRENT ROW":
            return 1
        if from_before and isinstance(start, exp.Literal):
            return 1 + _number_of_parts(start, _MOST - 1, _WRITE)
    raise Fault(window, "this frame is not one of the last periods", _WRITE)


def parts_before(shift: Any) -> int:
    """Returns how many parts before its own LAG or LEAD takes; of LEAD it is below 0."""
    offset = shift.args.get("offset")
    fix = f"write {shift.this.sql(Grammar)} and a number, as in LAG(x, 7)"
    return SHIFTED[type(shift)] * (1 if offset is None else _number_of_parts(offset, _MOST, fix))


def _number_of_parts(node: Any, most: int, fix: str) -> int:
    number = whole_number(node)
    if number is None or number > most:
        raise Fault(node, f"this is not a whole number from 0 to {most:,}", fix)
    return number
