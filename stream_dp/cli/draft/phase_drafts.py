"""When the phases of a draft open, by the rows of a sample and the days that they are about."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from stream_dp.calendar_periods import Length, Unit
from stream_dp.cli.terminal import many

_ENOUGH: Final = 20_000
"""The rows of a phase that answers many queries."""
_A_TABLE: Final = 1_000
"""The rows from which a file is taken for a table, and not for a few rows that somebody made up."""
_MOST: Final = 1_000_000
"""The most rows of a phase of a table that is sent once."""
_LENGTHS: Final[Mapping[Unit, int]] = {"day": 365, "week": 52, "month": 12}
"""The periods of a draft, and how many of them are about a year."""


def drafted_phase(rows: int, days: Counter[int], zone: str | None) -> tuple[dict[str, Any], str]:
    """Returns when phases open, as in a definition, and why.

    Args:
        rows: The rows of the sample. 0 if there is none.
        days: Days since 1970 -> rows. Empty if phases do not follow the calendar.
        zone: The time zone of the days. None is UTC.
    """
    few = f"{many(rows, 'row')} cannot say how many you will send" if rows < _A_TABLE else ""
    if not days:
        if few:
            return {"min_rows": _ENOUGH}, few
        phases = -(-rows // _MOST)
        return {"min_rows": rows // phases}, f"the file has {many(rows, 'row')}"
    unit, periods = next(
        (unit, periods)
        for unit in _LENGTHS
        if _middle(periods := _periods(days, Length(1, unit))) >= _ENOUGH or unit == "month"
    )
    usual = _middle(periods)
    least = min(list(periods.values())[1:-1] or [usual])
    n_rows = _two_digits(max(least, usual // 2)) if rows >= _A_TABLE else _ENOUGH
    phase = {"every": f"1 {unit}", "timezone": zone or "UTC", "min_rows": n_rows}
    return phase, few or f"the file has {many(len(periods), unit)} of usually {many(usual, 'row')}"


def phases_of_a_year(phase: Mapping[str, Any]) -> int:
    """Returns for how many phases persons are protected: those of a year, or 12."""
    return _LENGTHS[Length.read(phase.get("every", "1 month")).unit]


def _periods(days: Counter[int], length: Length) -> Counter[int]:
    """Returns the rows of each period, in order."""
    periods = Counter[int]()
    for day, rows in sorted(days.items()):
        periods[length.number(datetime(1970, 1, 1) + timedelta(days=day))] += rows  # noqa: DTZ001
    return periods


def _middle(periods: Counter[int]) -> int:
    return statistics.median_low(periods.values())


def _two_digits(number: int) -> int:
    """Rounds a number down to two digits."""
    step = int(10 ** max(0, int(math.log10(max(1, number))) - 1))
    return max(1, number // step * step)
