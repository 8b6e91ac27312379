"""Why a statement is refused: a fault in a piece of it, or too much work, counted before it is done."""

from __future__ import annotations

from typing import Any, Final

from stream_dp.errors import QuerySort
from stream_dp.sql.reading.grammar import Grammar

_MOST_LOOKED_AT: Final = 1 << 19
"""The most values that one text looks at: eight times the periods of the largest attribute."""


class Fault(Exception):
    """A piece of a statement cannot be asked. ``StatementText.pointing`` makes the error that people read.

    Attributes:
        at: The piece, as sqlglot reads it, or an offset into the text.
        problem: What is wrong.
        fix: What to write instead.
        reason: The code of the error, if it has one of its own.
        of_name: Whether a name that lacks its double quotes may have caused it.
        sort: The sort of the error. An unknown attribute has its own.
    """

    def __init__(
        self,
        at: Any,
        problem: str,
        fix: str,
        *,
        reason: str | None = None,
        of_name: bool = False,
        sort: QuerySort = "other",
    ) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem
        self.fix = fix
        self.reason = reason
        self.of_name = of_name
        self.sort: QuerySort = "no_column" if reason == "unknown_attribute" else sort


def short(piece: Any) -> str:
    """Formats a piece of SQL for a message, and cuts a long one."""
    text: str = piece if isinstance(piece, str) else piece.sql(Grammar)
    return text if len(text) <= 60 else f"{text[:60]}..."


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
