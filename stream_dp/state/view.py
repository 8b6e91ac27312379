"""The interface of a view of the data sets. It follows behind the journal and decides nothing.

A view may be empty, older, newer, of another history, wrong in a byte, or out of reach. So what is read of it
is a proposal. A state has a sum and a trail, an answer has a digest, and a private value has a name, and the
reader knows each of these from the journal. Whatever does not fit counts as missing.

A change is put where the view stands at the commit before it. When one is refused, its caller rewrites the
whole state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from stream_dp.state.schema import Commit, Pair, Pairs, State

__all__ = ["Change", "Usage", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit changes in the view.

    Attributes:
        dataset: The name of the data set.
        owner: The offset of the owner's epoch on the journal.
        number: The number of commits with this one.
        prev: The trail before it, 32 bytes.
        trail: The trail behind it, 32 bytes.
        sum: The sum of the state after it.
        pairs: What it puts.
        rotates: Whether it begins a generation of answers, which drops those before the last rotation.
        kept: Private values to keep, by their names.
        gone: The names of private values that are erased.
    """

    dataset: str
    owner: int
    number: int
    prev: bytes
    trail: bytes
    sum: int
    pairs: Pairs = field(repr=False)
    rotates: bool = False
    kept: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    gone: Sequence[bytes] = ()

    @classmethod
    def of(
        cls,
        commit: Commit,
        trail: bytes,
        owner: int,
        *,
        rotates: bool = False,
        kept: Mapping[bytes, bytes] = MappingProxyType({}),
        gone: Sequence[bytes] = (),
    ) -> Change:
        """The change that a commit makes. The arguments are those of the class."""
        return cls(
            dataset=commit.dataset,
            owner=owner,
            number=commit.number,
            prev=commit.prev,
            trail=trail,
            sum=commit.sum,
            pairs=commit.pairs,
            rotates=rotates,
            kept=kept,
            gone=gone,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has used.

    Attributes:
        memory: The bytes of memory that count towards the limit.
        limit: The bytes at which the server evicts or takes no more writes; without one, those of its host.
        limited: Whether the server has a limit of its own (maxmemory).
        evicts: Whether it drops keys at its limit, which costs time and nothing else.
    """

    memory: int
    limit: int
    limited: bool
    evicts: bool

    @property
    def share(self) -> float:
        """The share of the limit that is used."""
        return self.memory / self.limit if self.limit else 0.0


class View(Protocol):
    """What readers and starts find sooner than on the journal. Every method may raise a StoreError.

    Changes and rewrites of one data set come one after the other.
    """

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Puts changes, in order and in one round trip.

        Returns:
            Of each change, whether its data set now stands behind the last change of it. Where it does not,
            another state or a later owner is there, and ``rewrite`` is due.
        """

    async def rewrite(self, state: State, owner: int, kept: Collection[bytes]) -> bool:
        """Puts a whole state in place of what there is, at once. Answers stay.

        Args:
            state: The state. It may change while this goes on; what was there at the call is put.
            owner: The offset of the owner's epoch on the journal.
            kept: The names of all private values that may stay; others are erased.

        Returns:
            False if a later owner is there, or if what is being put was lost meanwhile.
        """

    async def forget(self, dataset: str) -> None:
        """Drops all of a data set, and does not ask who owns it.

        It is for an owner that ``rewrite`` refuses, and that knows from the journal that nobody has followed
        it: the journal went back, or the stored owner is wrong in a byte.
        """

    async def state(self, dataset: str) -> State | None:
        """The state, if its pairs are those of its sum. The caller compares number and trail."""

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """The number and trail of each data set that is there, in one round trip."""

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        """Answers and outcomes of both generations, those that are there, in one round trip. Unchecked."""

    async def owner(self, dataset: str) -> int:
        """The offset of the epoch of the last owner that is there; 0 if none is."""

    def contents(self, dataset: str) -> AsyncIterator[Mapping[Pair, bytes]]:
        """Yields all answers and outcomes, some at a time, the older generation first. Unchecked."""

    async def kept(self, dataset: str, name: bytes) -> bytes | None:
        """A private value, if it is there. Unchecked."""

    async def keep(self, dataset: str, name: bytes, value: bytes, owner: int) -> None:
        """Keeps a private value, unless a later owner is there, which may have erased it."""

    async def cursors(self, dataset: str, keys: Sequence[str] | None) -> dict[str, int]:
        """Cursors, those that are there; all of them for None. Unchecked: a hint for readers of sources."""

    async def ping(self) -> None:
        """Returns if the server answers."""

    async def usage(self) -> Usage | None:
        """What the server has used, or of several the one with the least left. None if there is no server."""

    async def close(self) -> None:
        """Closes the connections that the view has opened."""
