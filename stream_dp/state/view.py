"""The interface of a view of the data sets. It follows behind the journal and decides nothing.

A view may be empty, older, newer, of another history, wrong in a byte, or out of reach. So what is read of it
is a proposal. A state has a sum and a trail, and an answer has a digest, and the reader knows these from the
journal. Whatever does not fit counts as missing. It has neither rows nor secrets.

A commit is put where the view stands at the commit before it. When one is refused, its caller rewrites the
whole state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_dp.state.schema import Commit, Pair, State

__all__ = ["Usage", "View"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has used.

    Attributes:
        server: What it is, such as "Valkey 9.1.0".
        release: The release of Redis that it is, or is compatible with.
        memory: The bytes of memory that count towards the limit.
        limit: The bytes at which the server evicts or takes no more writes; without one, those of its host.
        limited: Whether the server has a limit of its own (maxmemory).
        evicts: Whether it drops keys at its limit, which costs time and nothing else.
    """

    server: str
    release: int
    memory: int
    limit: int
    limited: bool
    evicts: bool

    @property
    def share(self) -> float:
        """The share of the limit that is used."""
        return self.memory / self.limit if self.limit else 0.0


class View(Protocol):
    """What readers find sooner than on the journal. Every method may raise a StoreError.

    Commits and rewrites of one data set come one after the other.
    """

    async def apply(self, commits: Sequence[tuple[Commit, bytes]]) -> Collection[str]:
        """Puts commits, each with the trail behind it, in order and in one round trip.

        Returns:
            The data sets that do not stand behind the last commit of theirs now. Another state is there, and
            ``rewrite`` is due.
        """

    async def rewrite(self, state: State) -> None:
        """Puts a whole state, as of the call, in place of what there is.

        Answers stay, unless what there is was made of another journal, or before answers rotated last.
        """

    async def state(self, dataset: str) -> State | None:
        """The state, if its pairs are those of its sum. The caller compares number and trail."""

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """The number and trail of each data set that is there, in one round trip."""

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        """Answers and outcomes of both generations, those that are there, in one round trip. Unchecked."""

    async def contents(self, dataset: str) -> dict[Pair, bytes]:
        """All answers and outcomes. Unchecked."""

    async def cursors(self, dataset: str, keys: Sequence[str]) -> dict[str, int]:
        """Cursors, those that are there. Unchecked: a hint for readers of sources."""

    async def usage(self) -> Usage | None:
        """What the server has used, or of several the one with the least left. None if there is no server."""

    async def close(self) -> None:
        """Closes the connections."""
