"""The entries of a partition of the journal that count, and what they say of each data set.

An entry counts if the epoch that it names is the newest one at its place: so a worker that was followed by
another one can append what it likes. A record of a commit counts if it also continues the chain of its data
set. All else is void, for every reader and for ever. Knows no broker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.lost_rows import given_up
from stream_dp.state.journal import Checkpoint, CommitRecord
from stream_dp.state.store import ORIGIN, Place

__all__ = [
    "REPAIR_STEP",
    "Chain",
    "Found",
    "Reader",
    "entries_of",
    "fill",
    "judged",
    "repair_entries",
    "repair_of",
]

Kind = Literal["epoch", "mark", "commit", "checkpoint", "restart", "repair"]

_PART_BYTES: Final = 900_000

_FAR: Final = 1_000_000
"""An epoch that is ahead of the one in force by more is void: nobody has taken over so often."""

_NO_EPOCH_BEYOND: Final = 10**15

_KINDS: Final = frozenset({"mark", "commit", "checkpoint", "restart", "repair"})

_SKIP: Final = 1_000
REPAIR_STEP: Final = 10_000
"""By how much the epoch of a repair is larger than all that are known. A reader that goes on
from a place of before the cut notices that a repair lies in between."""

_FILL: Final = Entry(b"", b"", (("type", b"fill"),))


class Found(NamedTuple):
    """An entry that counts.

    Attributes:
        kind: Its kind.
        name: The data set; empty for an epoch or a mark.
        value: Its value, whole.
        offset: The offset of its first part.
        epoch: The epoch in force.
    """

    kind: Kind
    name: str
    value: bytes
    offset: int
    epoch: int


def entries_of(kind: Kind, name: str, value: bytes, epoch: int) -> list[Entry]:
    """The entries that carry a value, in parts that every broker takes."""
    headers = (("type", kind.encode()), ("epoch", b"%d" % epoch))
    key = name.encode()
    if len(value) <= _PART_BYTES:
        return [Entry(key, value, headers)]
    starts = range(0, len(value), _PART_BYTES)
    return [
        Entry(
            key,
            value[start : start + _PART_BYTES],
            (*headers, ("part", b"%d %d" % (number, len(starts)))),
        )
        for number, start in enumerate(starts)
    ]


def fill(count: int) -> list[Entry]:
    """Entries that only take up room, and say that the partition was cut before them."""
    return [_FILL] * count


def repair_entries(epoch: int, *, done: bool, stopped: Mapping[str, str]) -> list[Entry]:
    """The entry that says how far a repair is.

    Args:
        epoch: The epoch of the repair.
        done: Whether it is finished. Until then nothing of the partition is served.
        stopped: The data sets that are not whole -> why. They are not served from then on.
    """
    said = {"version": 1, "done": done, "stopped": dict(stopped)}
    return entries_of("repair", "", json.dumps(said, sort_keys=True).encode(), epoch)


def repair_of(value: bytes) -> tuple[bool, dict[str, str] | None]:
    """Whether the repair that an entry speaks of is finished, and which data sets it has stopped -> why.

    One that does not decode is not finished, and says nothing of data sets: another repair is to follow.
    """
    try:
        said = json.loads(value)
        done, stopped = said["done"], said["stopped"]
        names = [*stopped, *stopped.values()]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return False, None
    if type(done) is not bool or not all(isinstance(name, str) for name in names):
        return False, None
    return done, dict(stopped)


class Reader:
    """Reads a partition of the journal in order, and drops what is void.

    Args:
        epoch: The epoch in force where reading begins; 0 if that is not known.

    Attributes:
        epoch: The epoch in force.
        said: What its owner said when it began; empty if that is not known.
        void: The number of entries that were void.
        filled: The offset of the first entry that only takes up room: the partition was cut there. None if
            there is none.
        repairing: Whether a repair was begun and is not finished.
        skipped: Whether an epoch is missing: what is read does not continue the place where reading began.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.said: Mapping[str, Any] = {}
        self.void = 0
        self.filled: int | None = None
        self.repairing = False
        self.skipped = False
        self._parts: dict[bytes, tuple[int, int, list[bytes]]] = {}

    def read(self, offset: int, entry: Entry) -> Found | None:
        """Takes the next entry; returns it if it counts and is whole with this part."""
        headers = dict(entry.headers)
        kind = headers.get("type", b"").decode("ascii", "replace")
        epoch = _number(headers.get("epoch"))
        if kind == "fill":
            self.repairing, self.filled = True, offset if self.filled is None else self.filled
            return None
        if kind == "epoch":
            return self._begun(offset, entry, epoch)
        if self.epoch == 0 and 0 < epoch <= _NO_EPOCH_BEYOND:
            self.epoch = epoch  # the journal was cut off before this
        if epoch != self.epoch or kind not in _KINDS:
            self.skipped = self.skipped or self.epoch < epoch <= _NO_EPOCH_BEYOND
            self.void += 1
            return None
        part = headers.get("part")
        if part is None:
            self._parts.pop(entry.key, None)
            return self._found(kind, entry.key, entry.value, offset)
        number, _, count = part.partition(b" ")
        return self._part(kind, offset, entry, _number(number), _number(count))

    def _part(self, kind: str, offset: int, entry: Entry, number: int, count: int) -> Found | None:
        first, length, parts = self._parts.pop(entry.key, (offset, count, []))
        if number == 0:
            first, length, parts = offset, count, []
        if number != len(parts) or count != length:
            self.void += 1
            return None
        parts.append(entry.value)
        if len(parts) == count:
            return self._found(kind, entry.key, b"".join(parts), first)
        self._parts[entry.key] = first, count, parts
        return None

    def _begun(self, offset: int, entry: Entry, epoch: int) -> Found | None:
        most = _NO_EPOCH_BEYOND if self.epoch == 0 else self.epoch + _FAR
        if not self.epoch < epoch <= most:
            self.void += 1
            return None
        self.skipped = self.skipped or 0 < self.epoch < epoch - _SKIP
        self.epoch = epoch
        self._parts.clear()
        try:
            said = json.loads(entry.value)
        except (ValueError, RecursionError):
            said = {}
        self.said = said if isinstance(said, dict) else {}
        return Found("epoch", "", entry.value, offset, epoch)

    def _found(self, kind: str, key: bytes, value: bytes, offset: int) -> Found:
        name = key.decode(errors="replace")
        return Found(cast("Kind", kind), name, value, offset, self.epoch)


@dataclass(slots=True)
class Chain:
    """What the journal says of one data set, compared with what the store has of it.

    Attributes:
        place: The place at which the store has it.
        seq: The number of commits on the journal. None while it is not known.
        trail: The trail behind the last of them. None while it is not known.
        met: Whether the place of the store is on the chain, as far as it was read.
        missing: The offset and the epoch of the first record that the store lacks. None if it lacks none.
        gives_up: Whether a record that the store lacks gives batches up that waited.
        erased: The number of first blocks whose rows are erased at its end; all of them if it is retired.
        base: The offset and the epoch of the newest checkpoint from which on the chain makes the whole state.
            None if no such one was read.
        seals: The number of phases that were sealed behind it.
        gap: Whether records are missing: one that counts does not continue the one before it.
        void: The number of records that do not continue the chain.
    """

    place: Place
    seq: int | None = None
    trail: bytes | None = None
    met: bool = False
    missing: tuple[int, int] | None = None
    gives_up: bool = False
    erased: float = 0
    base: tuple[int, int] | None = None
    seals: int = 0
    gap: bool = False
    void: int = 0
    _waits: tuple[int, int] | None = None  # a partial checkpoint, for a rotation to make it a base
    _seals: int = 0  # behind that one

    @classmethod
    def noted(cls, place: Place) -> Chain:
        """The chain of a data set as it was noted when its journal was last compared."""
        if place.note.offset == 0:
            return cls(place, met=place.seq == 0, seq=0 if place.seq == 0 else None)
        seq = place.note.seq
        return cls(place, seq=seq, trail=None if seq else ORIGIN, met=place.seq >= seq)

    @classmethod
    def cut(cls, place: Place) -> Chain:
        """The chain of a data set whose journal begins behind what was noted of it.

        What was noted says nothing about what is there: the chain begins with its first commit, or with a
        checkpoint. If the place of the store is before that, it is on no chain.
        """
        return cls(place, met=place.seq == 0, seq=0)

    @property
    def end(self) -> tuple[int, bytes]:
        """The number of commits, and the trail behind them. Where none was read, the store's."""
        return self.seq or 0, self.trail or self.place.trail

    def commit(self, record: CommitRecord, trail: bytes, found: Found) -> bool:
        """Takes the next record; returns whether it continues the chain.

        Raises:
            CorruptState: What it says of lost rows does not decode. It is not taken.
        """
        follows = self.seq is None or record.seq == self.seq + 1
        if not follows or (self.trail is not None and record.prev != self.trail):
            self.void += 1
            # Owners append commits in order, so one that comes too early says that others are gone.
            self.gap = self.gap or record.seq > (self.seq or 0) + 1
            return False
        at, gone = (self.place.seq, self.place.trail), given_up(record.transcript)
        if (record.seq - 1, record.prev) == at:
            self.met, self.missing, self.gives_up = True, (found.offset, found.epoch), False
        elif record.seq == self.place.seq + 1:
            self.met = False  # another history
        self.seq, self.trail = record.seq, trail
        if any(one.batches for one in gone):
            self.gives_up = True
        self.erased = math.inf if record.erase else max(self.erased, record.erased)
        if record.rotate and self._waits is not None:
            self.base, self.seals, self._waits = self._waits, self._seals, None
        if record.sealed is not None:
            self.seals, self._seals = self.seals + 1, self._seals + 1
        if (self.seq, self.trail) == at:
            self.met, self.missing = True, None
        return True

    def checkpoint(self, checkpoint: Checkpoint, at: tuple[int, int]) -> bool:
        """Takes a checkpoint, at an offset and under an epoch; returns whether it fits the chain."""
        if not self.seq:
            self.seq, self.trail = checkpoint.seq, checkpoint.trail
            if (self.seq, self.trail) == (self.place.seq, self.place.trail):
                self.met, self.missing = True, None
        elif self.seq != checkpoint.seq or self.trail not in (None, checkpoint.trail):
            self.void += 1
            return False
        self.trail, self.gap = checkpoint.trail, False
        self.erased = math.inf if checkpoint.retired else max(self.erased, checkpoint.erased)
        if checkpoint.partial:
            self._waits, self._seals = at, 0
        else:
            self.base, self.seals, self._waits = at, 0, None
        return True

    def restart(self, checkpoint: Checkpoint, found: Found) -> None:
        """Begins again with a checkpoint, whatever the journal has of the data set before: it was cut."""
        self.seq, self.trail = checkpoint.seq, checkpoint.trail
        self.met = (self.seq, self.trail) == (self.place.seq, self.place.trail)
        self.missing, self.gives_up, self.gap = None, False, False
        self.erased = math.inf if checkpoint.retired else checkpoint.erased
        self.base, self.seals, self._waits = (found.offset, found.epoch), 0, None


Verdict = Literal["equal", "ahead", "behind", "other"]


def judged(
    chain: Chain, seq: int, trail: bytes, kept: Sequence[tuple[int, CommitRecord, bytes]]
) -> Verdict:
    """Compares what the store has of a data set with its chain.

    Args:
        chain: The chain, read to its end.
        seq: The number of commits that the store has.
        trail: The trail behind them.
        kept: The records that the store keeps until they have left: each with its number and its trail.

    Returns:
        ``equal``; ``ahead`` if the store keeps records that continue the chain; ``behind`` if the chain goes
        on from the store's place; ``other`` if neither does.
    """
    if chain.seq is None:
        return "equal" if seq == 0 else "other"
    place = chain.place.seq, chain.place.trail
    if (seq, trail) == chain.end and chain.met:
        return "equal"
    if chain.met and chain.missing is not None and (seq, trail) == place:
        return "behind"
    # The store may have gone back since its place was read, to another history of the same length.
    goes_on = any((number - 1, record.prev) == place for number, record, _ in kept)
    if chain.trail is None and (seq, trail) != place and not goes_on:
        return "other"
    at: tuple[int, bytes | None] = chain.seq, chain.trail
    for number, record, after in kept:
        if number == at[0] + 1 and at[1] in (None, record.prev):
            at = number, after
    return "ahead" if at == (seq, trail) and seq > chain.seq else "other"


def _number(text: bytes | None) -> int:
    """A decimal number of at most 18 digits; -1 for all else."""
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else -1
