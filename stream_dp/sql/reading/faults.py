"""What is wrong with a piece of a statement, as each part of the translation says it."""

from __future__ import annotations

from typing import Any

from stream_dp.sql.reading.grammar import Grammar


class Fault(Exception):
    """A piece of a statement cannot be asked. ``StatementText.pointing`` makes the error that people read.

    Attributes:
        at: The piece, as sqlglot reads it, or an offset into the text.
        problem: What is wrong.
        fix: What to write instead.
        reason: The code of the error, if it has one of its own.
        of_name: Whether a name that lacks its double quotes may have caused it.
    """

    def __init__(
        self, at: Any, problem: str, fix: str, *, reason: str | None = None, of_name: bool = False
    ) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem
        self.fix = fix
        self.reason = reason
        self.of_name = of_name


def short(piece: Any) -> str:
    """Formats a piece of SQL for a message, and cuts a long one."""
    text: str = piece if isinstance(piece, str) else piece.sql(Grammar)
    return text if len(text) <= 60 else f"{text[:60]}..."
