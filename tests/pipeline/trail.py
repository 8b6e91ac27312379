"""What happens in a run: records are sent, commits are made, and private rows are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.pipeline.records import Outgoing, commit_of
from stream_dp.state.schema import Commit


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
    """A commit has landed on the journal."""

    process: int
    commit: Commit = field(repr=False)


@dataclass(frozen=True)
class Looked:
    """The data of a data set was read."""

    process: int
    dataset: str
    blocks: range
