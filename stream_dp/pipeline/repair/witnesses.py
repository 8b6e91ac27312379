"""What the output topics say of data sets: how far each was, its ledger, and what was seen under its ids.

Everything on these topics follows from a commit that the journal had. So they are witnesses where the journal
was cut: a state that lacks something of it is behind what was seen.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final

from stream_dp.errors import CorruptState
from stream_dp.messages import DATASET_PATTERN
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import CommitPlace, place_in
from stream_dp.pipeline.journal.entries import object_in
from stream_dp.pipeline.journal.newest import dataset_of
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import LogEntry, TopicLog
from stream_dp.state import ledger

WITNESSES: Final = ("catalog", "ledger", "events", "answers", "synthetic", "standing")
"""The roles of the topics that say from which commit their records follow."""

_MOST_COMMITS: Final = 10**12
"""No data set has more commits than that, nor the journal more entries: a record that says so is forged."""

_OUTCOMES: Final = frozenset({"batch_accepted", "batch_refused"})


@dataclass
class Said:
    """What was seen of a data set.

    Attributes:
        commit: The largest number of a commit that a record names. 0 if none names one.
        topic: The role of the topic with that record.
        places: Where each commit that a record names is on the journal. Of two histories, there are two.
        entries: The entries of its ledger, by their numbers. There may be several under one number.
        answers: The digests of the answers, by the names under which they are stored.
        answered_twice: The name of one with two different answers. Where answers are dropped after some days,
            there may be several.
        outcomes: The announced outcomes of batches, by their ids.
        producers: The number of the next batch of each producer that counts its batches.
        phases: The rows of the phases that were announced as open.
        newest: The newest phase that any record names.
        standing: The keys of the standing queries that are listed.
        retired: Whether it was announced as retired.
    """

    commit: int = 0
    topic: str = ""
    places: set[CommitPlace] = field(default_factory=set, repr=False)
    entries: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list), repr=False)
    answers: dict[str, bytes] = field(default_factory=dict, repr=False)
    answered_twice: str = ""
    outcomes: dict[str, bytes] = field(default_factory=dict, repr=False)
    producers: dict[str, int] = field(default_factory=dict)
    phases: dict[int, int] = field(default_factory=dict)
    newest: int = 0
    standing: set[str] = field(default_factory=set)
    retired: bool = False

    @property
    def ledger(self) -> list[bytes]:
        """The chain of its ledger from the first entry on, as far as it holds."""
        return chained(self.entries)[0]

    def ledgers(self, name: str) -> list[list[bytes]]:
        """The ledger to its last entry. There is one, unless it has forked.

        Args:
            name: The name of the data set.

        Raises:
            CorruptState: The ledger on the topic has a gap.
        """
        chains = chained(self.entries)
        if len(chains[0]) <= max(self.entries, default=-1):
            raise CorruptState(
                f"{name}: entry {len(chains[0])} of its ledger is not on the topic, or does not continue the "
                "one before it. Restore the topic ledger"
            )
        return chains

    @property
    def forked(self) -> int | None:
        """The number of the first of two entries that continue the same one. None if there are no such two.

        No two charges have the same entry. So a charge was forgotten, and budget was spent again. A write-off
        since then has made all of that worthless.
        """
        over = [n for n, one in enumerate(self.ledger) if ledger.read(one)["kind"] == "written_off"]
        for number in range(max(over, default=-1) + 1, max(self.entries, default=-1) + 1):
            continued = [_prev(one) for one in self.entries.get(number, ())]
            if len(set(continued)) < len(continued):
                return number
        return None


class Witnesses:
    """Reads the output topics about the data sets of one partition of the journal.

    Args:
        outputs: The topics, by role.
        partitions: The number of partitions of the journal.
        partition: The partition.

    Attributes:
        said: Data set -> what was seen of it.
    """

    def __init__(self, outputs: Mapping[str, TopicLog], partitions: int, partition: int) -> None:
        self.said: dict[str, Said] = defaultdict(Said)
        self._outputs = outputs
        self._partitions = partitions
        self._partition = partition
        self._read: dict[tuple[str, int], int] = {}

    async def read(self) -> None:
        """Reads all that has come since the last call.

        Raises:
            ServerUnavailable: No broker answers.
        """
        for role, log in self._outputs.items():
            # Then the keys are where ours are. A standing query has a key of its own.
            alike = log.partitions == self._partitions and role != "standing"
            for partition in [self._partition] if alike else range(log.partitions):
                bounds = partial(log.bounds, partition)
                first, end = await patiently(bounds, f"reading {role}")
                start = max(first, self._read.get((role, partition), 0))
                async for piece in log.read(partition, start, end):
                    for _, entry in piece:
                        self._take(role, entry)
                self._read[role, partition] = end

    def _take(self, role: str, entry: LogEntry) -> None:
        key = entry.key.decode(errors="replace")
        name = dataset_of(key) if role == "standing" else key
        if (
            re.fullmatch(DATASET_PATTERN, name) is None
            or partition_of(name.encode(), self._partitions) != self._partition
        ):
            return
        said, place = self.said[name], place_in(entry.headers)
        if place is not None and max(place.number, place.offset) <= _MOST_COMMITS:
            said.places.add(place)
            if place.number > said.commit:
                said.commit, said.topic = place.number, role
        if role == "ledger":
            self._ledger(said, entry.value)
        elif role == "events":
            self._event(said, entry.value)
        elif role == "answers":
            self._answer(said, dict(entry.headers), entry.value)
        elif role == "standing":
            (said.standing.add if entry.value else said.standing.discard)(key)

    @staticmethod
    def _ledger(said: Said, value: bytes) -> None:
        try:
            fields = ledger.read(value)
        except CorruptState:
            return
        number = fields.get("seq")
        if type(number) is int and number >= 0 and value not in said.entries[number]:
            said.entries[number].append(value)

    @staticmethod
    def _event(said: Said, value: bytes) -> None:
        event = object_in(value)
        phase, rows, kind = event.get("phase"), event.get("rows"), event.get("event")
        if not isinstance(kind, str):
            return
        if kind in _OUTCOMES and isinstance(event.get("batch_id"), str):
            said.outcomes.setdefault(event["batch_id"], value)
        elif kind == "batch_accepted":
            _counted(said, event.get("producer"), event.get("sequence"))
        elif kind == "phase_opened" and type(phase) is int and type(rows) is int:
            said.phases.setdefault(phase, rows)
        said.retired = said.retired or kind == "dataset_retired"
        if type(phase) is int:
            said.newest = max(said.newest, phase)

    @staticmethod
    def _answer(said: Said, headers: Mapping[str, bytes], value: bytes) -> None:
        answer = object_in(value)
        if type(phase := answer.get("phase")) is int:
            said.newest = max(said.newest, phase)
        if answer.get("status") == "quoted":
            return  # a quote is not stored, so its id is free
        analyst, query_id = headers.get("analyst", b""), headers.get("query_id", b"")
        name = f"{analyst.decode(errors='replace')} {query_id.decode(errors='replace')}"
        # An id whose answer was dropped may be answered again: the newest one is in force.
        if said.answers.get(name, digest(value)) != digest(value):
            said.answered_twice = said.answered_twice or name
        said.answers[name] = digest(value)


def _counted(said: Said, producer: object, sequence: object) -> None:
    """Takes note of a batch of a producer that counts its batches."""
    if isinstance(producer, str) and type(sequence) is int and 0 <= sequence < 2**63 - 1:
        said.producers[producer] = max(sequence + 1, said.producers.get(producer, 0))


def digest(answer: bytes) -> bytes:
    """What tells one answer from another, 16 bytes."""
    return blake2b(answer, digest_size=16).digest()


def chained(entries: Mapping[int, Iterable[bytes]]) -> list[list[bytes]]:
    """The chains of a ledger from the first entry on that hold furthest. There is one, unless it has forked.

    Args:
        entries: The entries, by their numbers.
    """
    # Of each number: the head of the ledger behind an entry -> the entry, and the head before it.
    steps: list[dict[bytes, tuple[bytes, bytes]]] = []
    heads: Collection[bytes] = [ledger.GENESIS]
    while heads:
        some = [(one, _prev(one)) for one in entries.get(len(steps), ())]
        steps.append({ledger.extend(head, one): (one, head) for one, head in some if head in heads})
        heads = steps[-1].keys()
    chains = []
    for head in steps[-2] if len(steps) > 1 else ():
        chain, before = list[bytes](), head
        for step in reversed(steps[:-1]):
            one, before = step[before]
            chain.append(one)
        chains.append(chain[::-1])
    return chains or [[]]


def _prev(entry: bytes) -> bytes:
    try:
        return bytes.fromhex(json.loads(entry)["prev"])
    except (KeyError, TypeError, ValueError):
        return b""
