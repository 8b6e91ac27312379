"""What the journal says of one data set: a checkpoint, and the commits behind it. Knows no broker.

The owner of the data set adds its commits here when they are decided, and says when they are on the journal.
So one object has all that is durable of the data set, for its owner, for the next checkpoint and for Redis.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stream_dp.errors import CorruptState
from stream_dp.state.ids import NOWHERE, IdPlace, Ids
from stream_dp.state.schema import Checkpoint, Commit, Pair, State, StateTable

_TAKEN: Final = IdPlace(NOWHERE, b"")


class Stored(NamedTuple):
    """What is known of the content under an id.

    Attributes:
        value: The content, if it is in memory.
        found: Where it is on the journal, if it is not.
    """

    value: bytes | None = None
    found: IdPlace = _TAKEN


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit where it is on the journal.

    Attributes:
        offset: The offset of its first entry.
        commit: The commit.
        trail: The trail behind it.
    """

    offset: int
    commit: Commit = field(repr=False)
    trail: bytes


@dataclass
class JournalChain:
    """All that is durable of one data set.

    Attributes:
        name: The name of the data set.
        state: What its commits add up to, those included that are decided and not on the journal yet. None
            until ``build``.
        ids: Where the contents under its ids are on the journal.
        problem: Why it cannot be served. Empty if it can.
        tail: The commits that were read, with their offsets. Empty after ``build``.
    """

    name: str
    state: State | None = None
    ids: Ids = field(default_factory=Ids, repr=False)
    problem: str = ""
    checkpoint_at: int = -1
    _checkpoint: bytes = field(default=b"", repr=False)
    tail: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    _unlanded: dict[Pair, bytes] = field(default_factory=dict, repr=False)

    # ------------------------------------------------------------ reading

    def begins(self, offset: int, checkpoint: bytes, *, restarts: bool = False) -> None:
        """Takes the checkpoint of the round that reading began with, or one that restarts it."""
        self.checkpoint_at, self._checkpoint = offset, checkpoint
        if restarts:
            self.tail.clear()
            self.problem = ""

    def follows(self, offset: int, commit: bytes) -> None:
        """Takes the next commit. Empty bytes are an entry that is not as it was written."""
        self.tail.append((offset, commit))

    @property
    def has_entries(self) -> bool:
        """Whether anything that was read is as it was written."""
        return self.checkpoint_at >= 0 or any(stored for _, stored in self.tail)

    def behind(self, offset: int) -> Iterator[Committed]:
        """The commits that count among those that were read, from an offset on.

        An append that came late is there a second time, behind later commits. What does not decode is left to
        ``build``, with all that follows it.
        """
        with contextlib.suppress(CorruptState):
            number = Checkpoint.number_in(self._checkpoint) if self._checkpoint else 0
            for at, stored in self.tail:
                if Commit.number_in(stored) <= number:
                    continue
                number += 1
                if at >= offset:
                    yield Committed(at, *Commit.from_bytes(stored))

    def build(self) -> State:
        """Adds up what was read; returns the state. Again it does nothing.

        Raises:
            CorruptState: It is not whole. ``problem`` says so from then on.
        """
        if self.problem:
            raise CorruptState(self.problem)
        if self.state is None:
            try:
                self.state = self._built()
            except CorruptState as error:
                self.problem = str(error)
                raise
            self._checkpoint, self.tail = b"", []
        return self.state

    def _built(self) -> State:
        state = State(self.name)
        if self._checkpoint:
            checkpoint = Checkpoint.from_bytes(self._checkpoint)
            state = checkpoint.state
            if checkpoint.ids:
                self.ids = Ids.from_bytes(checkpoint.ids)
            for pair in checkpoint.carried:
                self.ids.move(pair, self.checkpoint_at)
        if state.dataset != self.name:
            raise CorruptState(
                f"the checkpoint of {self.name} on the journal is that of {state.dataset}"
            )
        for offset, stored in self.tail:
            if not stored:
                raise CorruptState(
                    f"{self.name}: entry {offset} of the journal is not as it was written"
                )
            commit, trail = Commit.from_bytes(stored)
            if state.apply(commit, trail):
                self._take_ids(commit, offset)
        return state

    # ------------------------------------------------------------ owning

    def add(self, commit: Commit, trail: bytes) -> None:
        """Takes a commit that its owner has decided."""
        assert self.state is not None, "its owner has built it"
        self.state.apply(commit, trail)
        self._unlanded |= dict(commit.by_id())

    def landed(self, commit: Commit, offset: int) -> None:
        """Says that a commit is on the journal. They come in order."""
        self._take_ids(commit, offset)
        for pair, value in commit.by_id():
            if self._unlanded.get(pair) is value:
                del self._unlanded[pair]

    def _take_ids(self, commit: Commit, offset: int) -> None:
        if commit.rotates:
            self.ids.rotate()
        self.ids.put(dict(commit.by_id()), offset)

    def find(self, pairs: Iterable[Pair]) -> Mapping[Pair, Stored]:
        """What is known of the contents under these ids. An id of which nothing is stored is left out."""
        unlanded, asked = self._unlanded, list(pairs)
        found = {pair: Stored(unlanded[pair]) for pair in asked if pair in unlanded}
        left = [pair for pair in asked if pair not in found]
        there = self.ids.find(left)
        for pair in left:
            if pair in there:
                found[pair] = Stored(found=there[pair])
            elif pair[0] is StateTable.OUTCOME and (StateTable.TAKEN, pair[1]) in unlanded:
                found[pair] = Stored()
        return found
