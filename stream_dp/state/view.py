"""The interface of a view of the data sets. It follows behind the journal and decides nothing.

A view may be empty, older, newer, of another history, wrong in a byte, or out of reach. So what is read of it
is a proposal. A state has a sum and a trail, an answer has a digest, and a private value has a name, and the
reader knows each of these from the journal. Whatever does not fit counts as missing.

A commit is put where the view stands at the commit before it. When one is refused, its caller rewrites the
whole state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stream_dp.state.schema import Commit, Pair, State


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A commit as a view takes it.

    Attributes:
        commit: The commit.
        trail: The trail behind it.
        kept: The parts of private values that it names for the first time, by their names.
    """

    commit: Commit
    trail: bytes
    kept: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has used.

    Attributes:
        memory: The bytes of memory that count towards the limit.
        limit: The bytes at which the server evicts or takes no more writes; without one, those of its host.
    """

    memory: int
    limit: int


class View(Protocol):
    """What readers find sooner than on the journal. Every method may raise a StoreError.

    Commits and rewrites of one data set come one after the other.
    """

    async def apply(self, changes: Sequence[ViewChange]) -> Collection[str]:
        """Puts commits, in order and in one round trip. Private values that a commit erases go with it.

        Returns:
            The data sets that do not stand behind the last commit of theirs now. Another state is there, and
            ``rewrite`` is due.
        """

    async def rewrite(self, state: State) -> None:
        """Puts a whole state, as of the call, in place of what there is.

        Answers, and the private values that the state names, stay, unless what there is was made of another
        journal, or before answers rotated last. All other private values are erased.
        """

    async def state(self, dataset: str) -> State | None:
        """The state, if its pairs are those of its sum. The caller compares number and trail."""

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """The number and trail of each data set that is there, in one round trip."""

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        """Answers and outcomes of both generations, those that are there, in one round trip. Unchecked."""

    async def contents(self, dataset: str) -> dict[Pair, bytes]:
        """All answers and outcomes. Unchecked."""

    async def kept(self, dataset: str, names: Sequence[bytes]) -> list[bytes | None]:
        """Parts of private values by their names, in order; None for what is not there. Unchecked."""

    async def kept_names(self, dataset: str) -> list[bytes]:
        """The names of all parts of private values that are there, whether or not a commit names them."""

    async def keep(
        self, dataset: str, parts: Mapping[bytes, bytes], place: tuple[int, bytes]
    ) -> None:
        """Keeps parts of private values, if the view stands at this number and trail.

        Later, they may be erased.
        """

    async def cursors(self, dataset: str, keys: Sequence[str]) -> dict[str, int]:
        """Cursors, those that are there. Unchecked: a hint for readers of sources."""

    async def usage(self) -> Usage | None:
        """What the server has used, or of several the one with the least left. None if there is no server."""

    async def close(self) -> None:
        """Closes the connections."""
