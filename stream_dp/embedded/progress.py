"""What a starting server tells whoever waits for it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where the start of the servers reports to; a command line draws it, a test ignores it.

    Calls come one at a time, but not always from the thread that started the servers.
    """

    def step(self, text: str) -> None:
        """A new step begins; ``text`` says which, for people."""
        ...

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        """So many of the broker's jars are in place; ``n_bytes`` were downloaded so far."""
        ...


class Silent:
    """Reports to nobody."""

    def step(self, text: str) -> None:
        pass

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        pass


__all__ = ["Progress", "Silent"]
