"""Records as they come from and go to the broker, whatever client carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Outgoing", "Record", "Releasable", "plain"]

_LONGEST_MESSAGE = 1_000


def plain(text: str) -> str:
    """An error's words as every reader can take them: not too long, halves of characters written out."""
    cut = text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."
    return cut.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Record:
    """One input record. Its value may hold rows, so it is in no repr.

    Attributes:
        role: The role of the topic, see ``messages.TOPICS``.
        generation: The generation of the consumer group when the record was fetched.
        timestamp_ms: Kafka's time of the record, in milliseconds since 1970. -1 if it has none.
    """

    role: str
    topic: str
    partition: int
    offset: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    generation: int = 0
    timestamp_ms: int = -1

    @property
    def topic_partition(self) -> str:
        """``topic:partition``, under which reading positions are kept."""
        return f"{self.topic}:{self.partition}"

    @property
    def record_id(self) -> str:
        """``topic:partition:offset``, which no other record has."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to release. ``role`` names the topic in ``messages.TOPICS``.

    Attributes:
        answer: Name of the stored answer that it is; None for all else.
        asked_ms: Timestamp of the query that it is the first reply to; -1 for all else.
        dated_ms: Timestamp of the record that it answers, which it carries in place of the time at which it
            was ready: that may depend on rows. -1 where the record has none, or is not known any more. None
            for what answers nothing: it carries the time at which it leaves.
    """

    role: str
    key: str
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()
    answer: str | None = None
    asked_ms: int = -1
    dated_ms: int | None = None


@dataclass(slots=True)
class Releasable:
    """The records that may leave, because everything that they follow from is durable.

    Attributes:
        outgoing: The records, in the order in which they leave.
        commits: Data set -> the token of its owner, and the seq of its last commit that ``outgoing`` covers.
        watermarks: ``topic:partition`` -> the offset below which every record is done with once this has
            left.
    """

    outgoing: list[Outgoing] = field(default_factory=list)
    commits: dict[str, tuple[int, int]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)

    def append(self, later: Releasable) -> None:
        """Adds what leaves after this."""
        self.outgoing += later.outgoing
        self.commits.update(later.commits)
        self.watermarks.update(later.watermarks)
