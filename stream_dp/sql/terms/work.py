"""What the translation of one text may do, counted before it is done."""

from __future__ import annotations

from typing import Any, Final

from stream_dp.sql.reading.faults import Fault

_MOST_LOOKED_AT: Final = 1 << 19
"""The most values that one text looks at: eight times the periods of the largest attribute."""


class Work:
    """Counts the values that one text looks at."""

    def __init__(self) -> None:
        self._looked_at = 0

    def look_at(self, at: Any, n: int) -> None:
        """Counts the ``n`` values that a piece looks at. Call it before they are looked at.

        Raises:
            Fault: There are too many of them in this text.
        """
        self._looked_at += n
        if self._looked_at > _MOST_LOOKED_AT:
            raise Fault(
                at,
                f"this text looks at more than {_MOST_LOOKED_AT:,} values of attributes and groups",
                "ask in parts, for fewer groups, or compare dates with a range, such as d < '2026-03'",
            )
