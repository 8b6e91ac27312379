"""A partition of the journal that a worker owns, and why one may not be."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.errors import CorruptState, Fenced
from stream_dp.pipeline.journal.chain import Committed, JournalChain
from stream_dp.pipeline.journal.marks import Marks


class Superseded(Fenced):
    """Another worker has taken the partition of the journal over."""


class OtherTopics(CorruptState):
    """The topics are not those with which the journal was written."""


class AnswerGone(CorruptState):
    """An answer, or the outcome of a batch, is not where it was committed."""


class JournalCut(CorruptState):
    """A partition of the journal lacks entries that it had, or one of them is not as it was written.

    Attributes:
        partition: The partition.
        read: The offset that it was read to, or at which it begins.
    """

    def __init__(self, partition: int, read: int, why: str) -> None:
        self.partition = partition
        self.read = read
        super().__init__(
            f"partition {partition} of the journal is not whole: {why}. Nothing of it is served. Restore the "
            f"topic, or see: stream-dp journal repair --partition {partition}"
        )


@dataclass
class Owned:
    """A partition of the journal that this worker owns, from one take-over until it is let go of.

    Attributes:
        partition: The partition.
        epoch: The id of its epoch, 16 bytes.
        at: The offset of its epoch.
        expected: The offset at which the next entry must land.
        chains: What the journal says of each data set.
        marks: What it says of the rest.
        first: The offset of the first entry that is there.
        to_read: What the next owner has to read: the bytes of the entries since ``begin``, but for those of
            checkpoints, and 4,096 more for each entry.
        newest: The offset of the newest ``end`` of a round that counts. None if there is none.
        begin: The offset at which reading begins: the ``begin`` of that round.
        wrong: The offset of an entry that is not as it was written, and may be of any data set. -1 for none.
        superseded: Whether another worker has taken it over since.
    """

    partition: int
    epoch: bytes
    at: int = 0
    expected: int = 0
    chains: dict[str, JournalChain] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    first: int = 0
    newest: int | None = None
    begin: int = 0
    to_read: int = 0
    wrong: int = -1
    superseded: bool = False

    def chain(self, name: str) -> JournalChain:
        """The chain of a data set, which may have no commit yet."""
        if name not in self.chains:
            self.chains[name] = JournalChain(name)
        return self.chains[name]

    def unreleased(self) -> list[Committed]:
        """The commits whose output may not have left, in the order of the journal."""
        found = [one for chain in self.chains.values() for one in chain.behind(self.marks.released)]
        return sorted(found, key=lambda one: one.offset)


def problem_of(owned: Owned) -> str:
    """Why a partition cannot be entered, as far as the journal itself says it; empty if it can."""
    first = owned.first
    if first > owned.begin:
        return f"it begins at {first}, behind all that it needs"
    if first > owned.marks.first:
        return f"it begins at {first}, and workers deleted entries below {owned.marks.first} alone"
    if owned.wrong >= 0:
        return f"its entry {owned.wrong} is not as it was written"
    return "its repair was begun and is not finished" if owned.marks.repairing else ""
