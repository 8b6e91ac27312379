"""What happens in a run: records are sent, commits are made, and private rows are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.pipeline.records import Outgoing
from stream_dp.state.store import Transition


@dataclass(frozen=True)
class Sent:
    """A record reached the broker."""

    process: int
    outgoing: Outgoing
    spent: int
    stored: bytes | None = field(repr=False)
    journal: tuple[int, ...] = ()

    @property
    def commit(self) -> tuple[str, int]:
        """The data set and the commit that it says to follow from; 0 if from none."""
        commit = dict(self.outgoing.headers).get("commit", b"0")
        return self.outgoing.key.partition(" ")[0], int(commit)


@dataclass(frozen=True)
class Committed:
    process: int
    transition: Transition = field(repr=False)
    record: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Looked:
    """The data of a data set was read."""

    process: int
    dataset: str
    blocks: range
