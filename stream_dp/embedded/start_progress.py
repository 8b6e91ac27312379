"""The reports of a server that is starting."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """The receiver of reports about a start. A command line draws them, a test ignores them.

    Calls come one at a time, but not always from the thread that started the servers.
    """

    def step(self, text: str) -> None:
        """Reports that a new step begins. ``text`` describes it for people."""
        ...

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        """Reports how many of the broker's jars are in place and how many bytes were downloaded."""
        ...


class Silent:
    """Ignores all reports."""

    def step(self, text: str) -> None:
        pass

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        pass
