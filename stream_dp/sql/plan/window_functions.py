"""OVER: window functions on the parts of a series, such as running sums, moving averages and LAG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from sqlglot import exp

from stream_dp.errors import InvalidQuery
from stream_dp.sql.reading.grammar import Grammar

_Error = Callable[..., InvalidQuery]

Frame: TypeAlias = int | Literal["running"]
"""The number of parts that a window function is of, the last one its own, or all up to its own."""

FRAMED: Final = (exp.Sum, exp.Avg)
"""The functions of the parts of a frame."""

SHIFTED: Final = {exp.Lag: 1, exp.Lead: -1}
"""The functions of one other part, with the direction in which it lies."""

_MOST: Final = 1_000
_WRITE: Final = "write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW, or UNBOUNDED PRECEDING"


def frame_of(window: Any, error: _Error) -> Frame:
    """Returns the frame of a window function that is ordered by the period of a series.

    Args:
        window: The function with its OVER, as sqlglot reads it.
        error: A function that makes the error at a piece, from the problem and the fix.

    Raises:
        InvalidQuery: It is another frame than some of the last parts.
    """
    spec = window.args.get("spec")
    if spec is None:
        return "running"
    end = spec.args.get("end")
    start = spec.args.get("start")
    to_here = end is None or end == "CURRENT ROW"
    if to_here and start == "UNBOUNDED" and spec.args.get("start_side") == "PRECEDING":
        return "running"  # no two rows have the same period, so that RANGE is the same
    if to_here and spec.args.get("kind") == "ROWS":
        if start == "CURRENT ROW":
            return 1
        if isinstance(start, exp.Literal) and spec.args.get("start_side") == "PRECEDING":
            return 1 + _whole(start, 0, _MOST - 1, _WRITE, error)
    raise error(window, "this frame is not one of the last periods", _WRITE)


def parts_before(shift: Any, error: _Error) -> int:
    """Returns how many parts before its own LAG or LEAD takes; of LEAD it is below 0."""
    offset = shift.args.get("offset")
    fix = f"write {shift.this.sql(Grammar)} and a number, as in LAG(x, 7)"
    return SHIFTED[type(shift)] * (1 if offset is None else _whole(offset, 0, _MOST, fix, error))


def _whole(node: Any, least: int, most: int, fix: str, error: _Error) -> int:
    text = node.this if isinstance(node, exp.Literal) and not node.is_string else ""
    if not (text.isdecimal() and len(text) < 9 and least <= int(text) <= most):
        raise error(node, f"this is not a whole number from {least} to {most:,}", fix)
    return int(text)
