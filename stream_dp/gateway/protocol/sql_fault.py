"""What the server says went wrong, with the SQLSTATE that drivers look at."""

from __future__ import annotations

from typing import Literal


class SqlFault(Exception):
    """An error, or with another severity a notice, as a message of the protocol says it.

    Attributes:
        state: The SQLSTATE: five letters and digits, as in appendix A of the manual of Postgres.
        message: What is wrong.
        hint: What to do.
        detail: What a program may want to know, such as the code of a refusal.
        position: The character of the statement at which it is wrong, counted from 1.
        severity: ``FATAL`` ends the connection.
    """

    def __init__(
        self,
        state: str,
        message: str,
        *,
        hint: str | None = None,
        detail: str | None = None,
        position: int | None = None,
        severity: Literal["ERROR", "FATAL", "NOTICE"] = "ERROR",
    ) -> None:
        super().__init__(message)
        self.state = state
        self.message = message
        self.hint = hint
        self.detail = detail
        self.position = position
        self.severity = severity


def unreadable(problem: str) -> SqlFault:
    """Returns the fault of a message that the protocol does not have. It ends the connection."""
    return SqlFault("08P01", problem, severity="FATAL")


def refused_login(problem: str, hint: str | None = None) -> SqlFault:
    """Returns what a client is told that may not log in in this way."""
    return SqlFault("28000", problem, hint=hint, severity="FATAL")


def wrong_password(user: str) -> SqlFault:
    """Returns the one fault of every login that fails, so that it tells nothing of why."""
    return SqlFault(
        "28P01",
        f'password authentication failed for user "{user}"',
        hint="the password is your signed token and the user is its sub, or an account of this gateway",
        severity="FATAL",
    )
