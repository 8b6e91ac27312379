"""Records as they come from and go to the broker, whatever client carries them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stream_dp.messages import QueryFields
from stream_dp.pipeline.journal.chain import Committed, JournalChain
from stream_dp.state.schema import Commit

COMMIT: Final = "commit"
"""Header that says from which commit of its data set a record follows: the number of the commit, its offset
on the journal, and the first bytes of the trail behind it."""

_TRAIL_BYTES: Final = 8
_PLACE: Final = re.compile(rb"(\d{1,18}) (\d{1,18}) ([0-9a-f]{16})")
_LONGEST_MESSAGE: Final = 1_000


class CommitPlace(NamedTuple):
    """Where a commit is on the journal, as what follows from it says.

    Attributes:
        number: The number of the commit.
        offset: Its offset.
        trail: The first 8 bytes of the trail behind it.
    """

    number: int
    offset: int
    trail: bytes

    def to_bytes(self) -> bytes:
        return b"%d %d %b" % (self.number, self.offset, self.trail.hex().encode())


def place_in(headers: Iterable[tuple[str, bytes | None]]) -> CommitPlace | None:
    """The place of the commit that a record follows from. None where it does not say."""
    found = _PLACE.fullmatch(dict(headers).get(COMMIT) or b"")  # a header may have no value
    if found is None:
        return None
    return CommitPlace(int(found[1]), int(found[2]), bytes.fromhex(found[3].decode()))


def commit_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The number of the commit that a record follows from. -1 where it does not say."""
    named, _, _ = (dict(headers).get(COMMIT) or b"").partition(b" ")
    return int(named) if named.isdigit() and len(named) <= 18 else -1


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

    @classmethod
    def received(
        cls, role: str, topic: str, partition: int, fetched: Any, generation: int = 0
    ) -> Record:
        """A record of a broker, as a consumer has fetched it."""
        return cls(
            role=role,
            topic=topic,
            partition=partition,
            offset=fetched.offset,
            key=fetched.key,
            value=fetched.value,
            headers=dict(fetched.headers),
            generation=generation,
            timestamp_ms=fetched.timestamp,
        )

    @property
    def topic_partition(self) -> str:
        """``topic:partition``, under which reading positions are kept."""
        return f"{self.topic}:{self.partition}"

    @property
    def record_id(self) -> str:
        """``topic:partition:offset``, which no other record has."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class AuditedReply:
    """What a reply answers, for the audit log.

    Attributes:
        record: The id of the record. Empty for an answer that a standing query gets by itself.
        time_ms: Kafka's time of the record, in milliseconds since 1970. -1 if it has none.
        analyst: Who asked. None where the record cannot be read.
        query_id: The id of the query; None where it has none.
        queries: The queries as they were read. Empty where none can be read.
        again: Whether the reply was given before.
    """

    record: str
    time_ms: int
    analyst: str | None = None
    query_id: str | None = None
    queries: Sequence[QueryFields] = ()
    again: bool = False

    @property
    def begins_or_ends(self) -> bool:
        """Whether a standing query is to begin or to end."""
        return any(query.standing is not None for query in self.queries)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to release. ``role`` names the topic in ``messages.TOPICS``.

    Attributes:
        answer: Name of the stored answer that it is; None for all else.
        asked_ms: Timestamp of the query that it is the first reply to; -1 for all else.
        dated_ms: Timestamp of the record that it answers, which it carries in place of the time at which it
            was ready: that may depend on rows. -1 where the record has none, or is not known any more. None
            for what answers nothing: it carries the time at which it leaves.
        asked: What it replies to. None for all else, and where that is not known any more.
    """

    role: str
    key: str
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()
    answer: str | None = None
    asked_ms: int = -1
    dated_ms: int | None = None
    asked: AuditedReply | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True, eq=False)
class Decided:
    """A commit that is decided: it is in the memory of its owner, and on its way to the journal.

    Attributes:
        commit: The commit.
        trail: The trail behind it.
        stored: What the journal is to have of it. Empty if it is there already.
        kept: The private values that it names for the first time, by their names. Private.
        chain: What its owner has of the data set. None if it is there already.
        offset: Its offset on the journal. -1 until it is there.
    """

    commit: Commit
    trail: bytes
    stored: bytes = field(default=b"", repr=False)
    kept: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    chain: JournalChain | None = field(default=None, repr=False)
    offset: int = -1

    @classmethod
    def of(cls, committed: Committed) -> Decided:
        """One that is there already."""
        return cls(committed.commit, committed.trail, offset=committed.offset)

    @property
    def dataset(self) -> str:
        """The name of its data set."""
        return self.commit.dataset

    @property
    def place(self) -> bytes:
        """What records that follow from it say in their header ``COMMIT``."""
        return CommitPlace(self.commit.number, self.offset, self.trail[:_TRAIL_BYTES]).to_bytes()


@dataclass(slots=True)
class Releasable:
    """The records that may leave as soon as the journal has the commits that they follow from.

    Attributes:
        commits: The commits, those of one data set in order.
        outgoing: The commit that each record follows from, and the record, in the order in which they leave.
            One that follows from no commit goes with the partition that it is about.
        watermarks: ``topic:partition`` -> the offset below which every record is done with once this has
            left.
        ends: Partition -> the offset of the journal below which all output has left once this has.
        appended: Those who wait until the journal has the commits.
    """

    commits: list[Decided] = field(default_factory=list)
    outgoing: list[tuple[Decided | int, Outgoing]] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    appended: list[asyncio.Future[None]] = field(default_factory=list, compare=False)

    def __bool__(self) -> bool:
        return bool(self.outgoing or self.watermarks or self.commits or self.ends)

    def add(self, commit: Decided, outgoing: Iterable[Outgoing]) -> None:
        """Adds a commit and what leaves after it."""
        self.commits.append(commit)
        self.outgoing += [(commit, one) for one in outgoing]

    def tell(self, partition: int, outgoing: Outgoing) -> None:
        """Adds a record about a partition that follows from no commit."""
        self.outgoing.append((partition, outgoing))

    def append(self, later: Releasable) -> None:
        """Adds what leaves after this."""
        self.commits += later.commits
        self.outgoing += later.outgoing
        self.watermarks.update(later.watermarks)
        self.ends.update(later.ends)
        self.appended += later.appended
