"""What happens in a run: records are sent, commits are made, and private rows are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stream_dp.pipeline.intake.records import Outgoing, commit_of
from stream_dp.state.schema import Commit

if TYPE_CHECKING:
    from tests.pipeline.held import Said


@dataclass(frozen=True)
class Sent:
    """A record reached the broker."""

    process: int
    outgoing: Outgoing
    journal: tuple[int, ...] = ()

    @property
    def commit(self) -> tuple[str, int]:
        """The data set and the commit that it says to follow from; 0 if from none."""
        return self.outgoing.key.partition(" ")[0], max(0, commit_of(self.outgoing.headers))


@dataclass(frozen=True)
class Committed:
    """A commit has landed on the journal, where it may be void.

    Attributes:
        place: The partition of the journal, and its offset there.
        kept: How much had ever been put on the topic of blocks by then.
        said: What it says, while the referee reads, which drops those that are void.
    """

    process: int
    commit: Commit = field(repr=False)
    place: tuple[int, int] = (0, 0)
    kept: int = 0
    said: Said | None = field(default=None, repr=False)

    @property
    def dataset(self) -> str:
        """The name of its data set."""
        return self.commit.dataset


@dataclass(frozen=True)
class Looked:
    """The data of a data set was read."""

    process: int
    dataset: str
    blocks: range
