"""The signed token of a client, which says who asks."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

from stream_dp.broker import hide_what_is_sent
from stream_dp.errors import InvalidInput
from stream_dp.messages.message_base import ID_PATTERN

TokenSource = str | Callable[[], str]
"""A token, or a function that returns one that has not expired."""


class Credentials:
    """A token that goes with each query. It is not verified here, and no error or repr shows it.

    Args:
        token: The token, or a function that returns a fresh one. It is called for each record.
        analyst: The name of the analyst. None takes that of the token.

    Attributes:
        analyst: The name of the analyst in the token.

    Raises:
        InvalidInput: It is not a token, or is that of another analyst.
    """

    def __init__(self, token: TokenSource, analyst: str | None = None) -> None:
        hide_what_is_sent()
        self._token = token
        self._checked = self._fresh()
        self.analyst = _subject(self._checked)
        self._check(self.analyst, analyst or self.analyst)

    def header(self) -> tuple[str, bytes]:
        """Returns the header that carries the token.

        Raises:
            InvalidInput: It is not a token any more, or is that of another analyst.
        """
        token = self._fresh()
        if token != self._checked:
            self._check(_subject(token), self.analyst)
            self._checked = token
        return "authorization", f"Bearer {token}".encode()

    def _fresh(self) -> str:
        token = self._token() if callable(self._token) else self._token
        if not isinstance(token, str):
            raise _NOT_A_TOKEN
        return token.strip()

    @staticmethod
    def _check(found: str, analyst: str) -> None:
        if found != analyst:
            raise InvalidInput(
                "analyst",
                f"the token is that of {found}, not of {analyst}",
                "omit the analyst, or give a token of that name",
            )


_NOT_A_TOKEN = InvalidInput(
    "token",
    "it is not a JSON Web Token with the name of an analyst in sub",
    "give the token alone, as its issuer returned it",
)


def _subject(token: str) -> str:
    """Returns the name of the analyst in a token."""
    try:
        _, claims, _ = token.encode("ascii").split(b".")
        found = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["sub"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _NOT_A_TOKEN from None
    if not isinstance(found, str) or re.fullmatch(ID_PATTERN, found) is None:
        raise _NOT_A_TOKEN
    return found
