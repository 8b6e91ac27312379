"""Figures in words: all numbers that people read of answers and prices are rounded here.

Counts are whole numbers already, see ``profiles.answer_fields``.
"""

from __future__ import annotations

import math
from typing import Final

from stream_dp.display.figures import Figure, FigureUnit

UNKNOWN: Final = "unknown"
"""In place of a value without an error bar, which is a guess."""

_ROWS: Final = ("rows", "more_rows")


def percent(part: float) -> str:
    """A share as a percentage."""
    return f"{100 * part:.2f}%"


def share(part: float) -> str:
    """A percentage that never shows a cost as nothing."""
    return percent(part) if part >= 5e-5 or part == 0 else "less than 0.01%"


def share_range(least: float, most: float) -> str:
    """Two percentages, rounded outwards, or one where they are the same."""
    low = share(math.floor(least * 1e4) / 1e4)
    high = share(min(1.0, math.ceil(most * 1e4) / 1e4))
    if least == most:
        return share(least)
    return low if low == high else f"{low} to {high}"


def within(bar: float) -> str:
    """A half width that was promised, or that a rank has, as a share."""
    return f"± {100 * bar:.2g}%"


def coefficient(value: float) -> str:
    """A number from -1 to 1 that says how well two things go together."""
    return f"{value:.3f}"


def rows_in_words(rows: Figure) -> str:
    """A count of rows with a bar that is rounded up."""
    bar = "any number" if rows.bar is None else f"{math.ceil(rows.bar):,}"
    return f"{rows.value:,} ± {bar}"


def text(figure: Figure, unit: FigureUnit, least: int | None = None) -> str:
    """A figure with its half width, or from where to where it may be if that reaches beyond what is possible.

    Args:
        figure: The figure.
        unit: What it counts or measures.
        least: The least count of rows that people read. Of one that is surely lower they read that alone.
    """
    value, bar = figure.value, figure.bar
    if value is None:
        return "missing" if bar == 0.0 else UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    if unit in ("about", "at_most"):
        return f"{'about ' * (unit == 'about')}{value:,}"
    if isinstance(value, str) or unit == "label":
        ranked = isinstance(value, str) and bar and unit != "label"
        return f"{value} (rank {within(bar)})" if ranked and bar else str(value)
    if unit == "rows" and figure.is_below(least):
        return f"fewer than {least:,}"
    if bar is None:
        return UNKNOWN
    if unit == "correlation":
        low, high = figure.ends or (value, value)
        return f"{coefficient(value)} ({coefficient(low)} to {coefficient(high)})"
    after = " percentage points" if unit == "points" else ""
    if figure.known is not None and reaches_beyond(figure, 1.0 if unit in _ROWS else 0.0):
        low_text, high_text = (_number(end, bar, unit) for end in figure.known)
        return f"{low_text} to {high_text}{after}"
    shown = _number(value, bar, unit)
    if bar == 0.0 or (unit in _ROWS and not round(bar)):
        return f"{shown}{after}"
    return f"{shown} ± {_number(bar, bar, unit).removeprefix('+')}{after}"


def _number(value: float, bar: float, unit: FigureUnit) -> str:
    """A number with as many decimals as its bar leaves sense to."""
    match unit:
        case "rows":
            return f"{round(value):,}"
        case "more_rows":
            return f"{round(value):+,}"
        case "share":
            return percent(value)
        case "points":
            return f"{100 * value:+.2f}"
    if bar == 0.0:
        return f"{value:z,.6g}"
    return f"{value:z,.{max(0, 1 - math.floor(math.log10(bar)))}f}"


def reaches_beyond(figure: Figure, rounded: float) -> bool:
    """Whether a bar reaches beyond the ends of a value, or to 0 where no less is possible."""
    value, bar = figure.number, figure.bar
    if value is None or bar is None or figure.known is None:
        return False
    (low, high), slack = figure.known, max(rounded, 1e-6 * bar)
    to_zero = bar > 0.0 and low >= 0.0 >= value - bar
    return to_zero or not low - slack <= value - bar <= value + bar <= high + slack
