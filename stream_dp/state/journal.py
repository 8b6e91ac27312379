"""What the journal says of a data set: a record for each commit, and now and then the sum of all of them.

A record is the public part of a commit. A data set's records form a chain: ``trail = SHA-256(trail before it
+ content)``, from 32 zero bytes, where the content names the trail before it. So a record fits one place of
one history only. A nonce of its drafter keeps two histories apart that would say the same: what they keep
secret differs. A checkpoint says what the records up to a trail add up to, and has no place in the chain
itself.

Rows, blocks and secrets have no field here. What is stored is a version and the content, compressed.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from types import MappingProxyType
from typing import Final

from stream_dp.core.accounting import Charge
from stream_dp.core.packing import Format, Reader, fields, part
from stream_dp.state.codec import OutboxRecord, outbox_from_bytes, outbox_to_bytes
from stream_dp.state.ledger import GENESIS, HEAD_BYTES, extend
from stream_dp.state.ledger import read as ledger_entry
from stream_dp.state.store import (
    LEDGER_TAIL,
    TRAIL_BYTES,
    AccountLimit,
    Outcomes,
    Snapshot,
    Transition,
)
from stream_dp.state.taken import TAKEN_BYTES, taken_id

__all__ = [
    "LARGEST_CHECKPOINT",
    "NONCE_BYTES",
    "Accepted",
    "Checkpoint",
    "CommitRecord",
    "is_record",
    "noting",
    "summed",
    "transition_of",
]

NONCE_BYTES: Final = 16

LARGEST_CHECKPOINT: Final = 256 << 20
"""The most bytes of a checkpoint that is written regularly: a worker has it in memory, twice for a while."""

_LARGEST: Final = 1 << 31  # of a content; zlib would make anything of a few bytes

# Versions 1 and 2 of what a commit leaves behind are outbox records, of releases that had no journal.
# Version 4 of a record, and version 2 of a checkpoint, are written only where answers have rotated. Version 3
# of a checkpoint ends with a list of parts, each with the number of what it holds. Those that are empty are
# left out, and one that has none but the first is of version 1 or 2.
_RECORD = Format("record of a commit", 3, 4)
_PLAIN, _ROTATED, _NUMBERED = 1, 2, 3
_CHECKPOINT = Format("checkpoint", _PLAIN, _ROTATED, _NUMBERED)
_PREVIOUS, _PREVIOUS_BATCHES, _TAKEN, _BEFORE, _PARTIAL = 1, 2, 3, 4, 5
_YES = b"\x01"


def is_record(stored: bytes) -> bool:
    """Returns whether what a commit left behind is a record, and not the outbox of an earlier release."""
    return any(_RECORD.is_of(stored, version) for version in _RECORD.versions)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Rows that a commit has taken in, by the place where they can be read again.

    Attributes:
        topic_partition: ``topic:partition`` of their batch.
        offset: The offset of their batch there.
        batch_id: The id of their batch.
        rows: The number of rows.
    """

    topic_partition: str
    offset: int
    batch_id: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The public part of one commit. Fields without a line here are those of ``state.store.Transition``.

    Attributes:
        seq: The number of commits with this one.
        prev: The trail before it, 32 bytes.
        nonce: Random bytes of its drafter, 16.
        accepted: The rows that it takes in, in order.
        sealed: The number of rows of the phase that it opens: of those that waited, then of ``accepted``.
            None where it opens none.
        outbox: What leaves after it: records, and the names of answers.
    """

    dataset: str
    seq: int
    prev: bytes
    nonce: bytes
    definition: bytes | None = field(default=None, repr=False)
    meta: Mapping[str, str] = field(default_factory=dict)
    cursor: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    batches: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    accepted: Sequence[Accepted] = ()
    sealed: int | None = None
    erased: int = 0
    charges: Sequence[Charge] = ()
    transcript: Sequence[bytes] = field(default=(), repr=False)
    verified: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    intent: bytes | None = field(default=None, repr=False)
    settles: Sequence[int] = ()
    ledger: Sequence[bytes] = field(default=(), repr=False)
    outbox: Sequence[OutboxRecord | str] = field(default=(), repr=False)
    erase: bool = False
    rotate: bool = False

    def to_bytes(self) -> tuple[bytes, bytes]:
        """What is stored, and the trail behind it.

        Raises:
            ValueError: The trail or the nonce has another length.
        """
        if len(self.prev) != TRAIL_BYTES or len(self.nonce) != NONCE_BYTES:
            raise ValueError(f"a trail has {TRAIL_BYTES} bytes, and a nonce {NONCE_BYTES}")
        content = b"".join(
            (
                part(self.dataset.encode()),
                fields(">Q", self.seq),
                self.prev,
                self.nonce,
                part(self.definition),
                _texts(self.meta),
                _numbers(self.cursor),
                _stored(self.answers),
                _stored(self.batches),
                _accepted(self.accepted),
                fields(">q", -1 if self.sealed is None else self.sealed),
                fields(">I", self.erased),
                _charges(self.charges),
                _list(self.transcript),
                _pairs(self.verified.items()),
                part(self.intent),
                fields(f">I{len(self.settles)}Q", len(self.settles), *self.settles),
                _list(self.ledger),
                part(outbox_to_bytes(self.outbox)),
                fields(">?", self.erase),
                fields(">?", True) if self.rotate else b"",
            )
        )
        stored = _RECORD.pack(zlib.compress(content, 1), version=4 if self.rotate else 3)
        return stored, _after(self.prev, content)

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[CommitRecord, bytes]:
        """The record, and the trail behind it. Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        content = _inflated(_RECORD, data)
        reader = Reader(content, _RECORD.name)
        dataset = reader.required_text()
        (seq,) = reader.fields(">Q")
        prev, nonce = reader.take(TRAIL_BYTES), reader.take(NONCE_BYTES)
        definition, meta, cursor = reader.part(), _read_texts(reader), _read_numbers(reader)
        answers, batches = _read_stored(reader), _read_stored(reader)
        accepted = _read_accepted(reader)
        (sealed,) = reader.fields(">q")
        (erased,) = reader.fields(">I")
        record = cls(
            dataset=dataset,
            seq=seq,
            prev=prev,
            nonce=nonce,
            definition=definition,
            meta=meta,
            cursor=cursor,
            answers=answers,
            batches=batches,
            accepted=accepted,
            sealed=None if sealed < 0 else sealed,
            erased=erased,
            charges=_read_charges(reader),
            transcript=_read_list(reader),
            verified=dict(_read_pairs(reader)),
            intent=reader.part(),
            settles=_read_settles(reader),
            ledger=_read_list(reader),
            outbox=tuple(outbox_from_bytes(reader.required())),
            erase=reader.fields(">?")[0],
            rotate=_RECORD.is_of(data, 4) and reader.fields(">?")[0],
        )
        reader.end()
        return record, _after(prev, content)


def transition_of(
    record: CommitRecord,
    trail: bytes,
    *,
    token: int,
    head: bytes,
    outbox: bytes | None,
    pending: Sequence[bytes] = (),
    seal: bytes | None = None,
    reserved: int = 0,
    vault: Mapping[str, bytes] = MappingProxyType({}),
    limits: Sequence[AccountLimit] = (),
    drops_outcomes: bool = False,
) -> Transition:
    """The commit of which a record is the public part.

    Args:
        record: The record.
        trail: The trail behind it, 32 bytes.
        token: The owner's fencing token.
        head: The ledger head before the commit, 32 bytes.
        outbox: The record as it is stored. None if all that it queues has left.
        pending: as in ``Transition``. Private.
        seal: as in ``Transition``. Private.
        reserved: as in ``Transition``.
        vault: as in ``Transition``. Private.
        limits: as in ``Transition``. A commit that was made before needs none.
        drops_outcomes: Whether outcomes of batches rotate in this data set, so that of the ids of those that
            are accepted something is kept for ever.
    """
    accepted = [one.batch_id for one in record.accepted if one.batch_id in record.batches]
    return Transition(
        dataset=record.dataset,
        token=token,
        seq=record.seq - 1,
        head=head,
        new_head=functools.reduce(extend, record.ledger, head),
        trail=record.prev,
        new_trail=trail,
        definition=record.definition,
        meta=record.meta,
        cursor=record.cursor,
        answers=record.answers,
        batches=record.batches,
        taken=[taken_id(one) for one in accepted] if drops_outcomes else (),
        pending=pending,
        seal=seal,
        reserved=reserved,
        vault=vault,
        erased=record.erased,
        charges=record.charges,
        limits=limits,
        transcript=record.transcript,
        verified=record.verified,
        intent=record.intent,
        settles=record.settles,
        ledger=record.ledger,
        outbox=outbox,
        erase=record.erase,
        rotate=record.rotate,
    )


def noting(
    snapshot: Snapshot,
    meta: Mapping[str, str],
    *,
    transcript: Sequence[bytes] = (),
    settles: Sequence[int] = (),
    outbox: Sequence[OutboxRecord | str] = (),
) -> Transition:
    """The commit that sets public facts of a data set, for its present owner, and does nothing else.

    Args:
        snapshot: The data set.
        meta: The facts.
        transcript: What it adds to the transcript.
        settles: The announced looks that it settles.
        outbox: What leaves after it.
    """
    record = CommitRecord(
        dataset=snapshot.dataset,
        seq=snapshot.seq + 1,
        prev=snapshot.trail,
        nonce=token_bytes(NONCE_BYTES),
        meta=meta,
        transcript=transcript,
        settles=settles,
        outbox=outbox,
    )
    stored, trail = record.to_bytes()
    return transition_of(record, trail, token=snapshot.token, head=snapshot.head, outbox=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the records of a data set up to one of them add up to.

    Attributes:
        dataset: The name of the data set.
        seq: The number of commits so far.
        trail: The trail behind the last of them, 32 bytes.
        definition: The definition.
        meta: Public counters and flags.
        cursor: ``topic:partition`` -> the next offset.
        answers: The answers that are kept and on no record that is kept, by name. Those of ``previous`` are
            left out.
        batches: The outcomes of batches, by id. Those of ``previous_batches`` are left out.
        accepted: The rows that wait, in order.
        spent: (rho, delta) spent on each block, units of its budget / 2**50.
        erased: The number of first blocks whose rows are gone.
        transcript: The published measurements, in order.
        verified: The verified answers kept for repeats.
        ledger: The last entries of the ledger, in order; those before them are on its topic.
        retired: Whether the data set is retired.
        previous: The answers that were stored before the last rotation, by name.
        previous_batches: The outcomes of batches that were stored before the last rotation, by id.
        taken: What is kept for ever of ids of batches, 16 bytes each.
        before: The head of the ledger before these entries, 32 bytes.
        partial: Whether what was stored before the last rotation is left out although there is some. Together
            with later records it makes the whole state from the next rotation on, which drops it.
    """

    dataset: str
    seq: int
    trail: bytes
    definition: bytes = field(repr=False)
    meta: Mapping[str, str]
    cursor: Mapping[str, int]
    answers: Mapping[str, bytes] = field(repr=False)
    batches: Mapping[str, bytes] = field(repr=False)
    accepted: Sequence[Accepted]
    spent: Sequence[tuple[int, int]]
    erased: int
    transcript: Sequence[bytes] = field(repr=False)
    verified: Mapping[bytes, bytes] = field(repr=False)
    ledger: Sequence[bytes] = field(repr=False)
    retired: bool
    previous: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    previous_batches: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    taken: Collection[bytes] = frozenset()
    before: bytes = GENESIS
    partial: bool = False

    def tail(self) -> Checkpoint:
        """The same one with those entries of the ledger alone that a store keeps."""
        cut = max(0, len(self.ledger) - LEDGER_TAIL)
        before = functools.reduce(extend, self.ledger[:cut], self.before)
        return replace(self, ledger=self.ledger[cut:], before=before)

    def to_bytes(self) -> bytes:
        """The checkpoint as bytes.

        Raises:
            ValueError: The head or the trail has another length.
        """
        if len(self.before) != HEAD_BYTES or len(self.trail) != TRAIL_BYTES:
            raise ValueError(f"a trail has {TRAIL_BYTES} bytes, and a ledger head {HEAD_BYTES}")
        version = self._version
        content = b"".join(
            (
                part(self.dataset.encode()),
                fields(">Q", self.seq),
                self.trail,
                part(self.definition),
                _texts(self.meta),
                _numbers(self.cursor),
                _stored(self.answers),
                _stored(self.batches),
                _accepted(self.accepted),
                _charges(
                    [Charge(block, rho, delta) for block, (rho, delta) in enumerate(self.spent)]
                ),
                fields(">I", self.erased),
                _list(self.transcript),
                _pairs(self.verified.items()),
                _list(self.ledger),
                fields(">?", self.retired),
                self._rest(version),
            )
        )
        return _CHECKPOINT.pack(zlib.compress(content, 1), version=version)

    @property
    def _version(self) -> int:
        """The oldest version that can say all of it, so that older releases read what they can."""
        if self.taken or self.previous_batches or self.partial or self.before != GENESIS:
            return _NUMBERED
        return _ROTATED if self.previous else _PLAIN

    def _rest(self, version: int) -> bytes:
        """What follows the fields that every version has."""
        if version != _NUMBERED:
            return _stored(self.previous) if self.previous else b""
        parts = [
            (_PREVIOUS, _stored(self.previous) if self.previous else b""),
            (_PREVIOUS_BATCHES, _stored(self.previous_batches) if self.previous_batches else b""),
            (_TAKEN, b"".join(sorted(self.taken))),
            (_BEFORE, self.before if self.before != GENESIS else b""),
            (_PARTIAL, _YES if self.partial else b""),
        ]
        return _numbered([(number, content) for number, content in parts if content])

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader, version = Reader(_inflated(_CHECKPOINT, data), _CHECKPOINT.name), data[0]
        dataset = reader.required_text()
        (seq,) = reader.fields(">Q")
        trail, definition = reader.take(TRAIL_BYTES), reader.required()
        meta, cursor = _read_texts(reader), _read_numbers(reader)
        answers, batches = _read_stored(reader), _read_stored(reader)
        accepted = _read_accepted(reader)
        spent = [(charge.rho, charge.delta) for charge in _read_charges(reader)]
        (erased,) = reader.fields(">I")
        checkpoint = cls(
            dataset=dataset,
            seq=seq,
            trail=trail,
            definition=definition,
            meta=meta,
            cursor=cursor,
            answers=answers,
            batches=batches,
            accepted=accepted,
            spent=spent,
            erased=erased,
            transcript=_read_list(reader),
            verified=dict(_read_pairs(reader)),
            ledger=_read_list(reader),
            retired=reader.fields(">?")[0],
            previous=_read_stored(reader) if version == _ROTATED else {},
        )
        if version == _NUMBERED:
            known = {_PREVIOUS, _PREVIOUS_BATCHES, _TAKEN, _BEFORE, _PARTIAL}
            parts = _read_numbered(reader, known)
            before = parts.get(_BEFORE, GENESIS)
            reader.require(len(before) == HEAD_BYTES, "has a ledger head of another length")
            reader.require(parts.get(_PARTIAL, _YES) == _YES, "has an unknown flag")
            checkpoint = replace(
                checkpoint,
                previous=_whole(parts, _PREVIOUS),
                previous_batches=_whole(parts, _PREVIOUS_BATCHES),
                taken=_read_taken(reader, parts.get(_TAKEN, b"")),
                before=before,
                partial=_PARTIAL in parts,
            )
        reader.end()
        return checkpoint


def summed(
    snapshot: Snapshot, outcomes: Outcomes, ledger: Sequence[bytes], *, partial: bool = False
) -> Checkpoint:
    """What the commits of a data set add up to. It does not say where the rows that wait came from.

    Args:
        snapshot: The data set.
        outcomes: All that is stored of it under ids.
        ledger: The last entries of its ledger, or all of them.
        partial: Whether ``outcomes`` lacks what was stored before the last rotation.

    Raises:
        CorruptState: The first of the entries does not decode.
    """
    assert snapshot.definition is not None, "a data set with a commit is defined"
    return Checkpoint(
        dataset=snapshot.dataset,
        seq=snapshot.seq,
        trail=snapshot.trail,
        definition=snapshot.definition,
        meta=snapshot.meta,
        cursor=snapshot.cursor,
        answers=outcomes.answers,
        batches=outcomes.batches,
        previous=outcomes.previous,
        previous_batches=outcomes.previous_batches,
        taken=outcomes.taken,
        before=bytes.fromhex(ledger_entry(ledger[0])["prev"]) if ledger else snapshot.head,
        partial=partial,
        accepted=(),
        spent=snapshot.spent,
        erased=len(snapshot.spent) - snapshot.n_blocks,
        transcript=snapshot.transcript,
        verified=snapshot.verified,
        ledger=ledger,
        retired=snapshot.meta.get("retired") == "1",
    )


def _after(trail: bytes, content: bytes) -> bytes:
    return hashlib.sha256(trail + content).digest()


def _inflated(form: Format, data: bytes) -> bytes:
    reader = form.read(data)
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(reader.rest(), _LARGEST)
    except zlib.error:
        reader.fail("does not decompress")
    reader.require(inflating.eof and not inflating.unused_data, "is cut short, or too long")
    return content


# Parts of contents, each followed by its inverse.


def _list(items: Sequence[bytes]) -> bytes:
    return b"".join((fields(">I", len(items)), *map(part, items)))


def _read_list(reader: Reader) -> tuple[bytes, ...]:
    (count,) = reader.fields(">I")
    return tuple(reader.required() for _ in range(count))


def _pairs(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    return _list([one for pair in items for one in pair])


def _read_pairs(reader: Reader) -> Iterator[tuple[bytes, bytes]]:
    flat = _read_list(reader)
    reader.require(len(flat) % 2 == 0)
    return zip(flat[::2], flat[1::2], strict=True)


def _stored(items: Mapping[str, bytes]) -> bytes:
    return _pairs((name.encode(), content) for name, content in items.items())


def _read_stored(reader: Reader) -> dict[str, bytes]:
    return {_text(reader, name): content for name, content in _read_pairs(reader)}


def _whole(parts: Mapping[int, bytes], number: int) -> dict[str, bytes]:
    if number not in parts:
        return {}
    reader = Reader(parts[number], _CHECKPOINT.name)
    found = _read_stored(reader)
    reader.end()
    return found


def _numbered(parts: Sequence[tuple[int, bytes]]) -> bytes:
    return fields(">I", len(parts)) + b"".join(
        fields(">B", number) + part(content) for number, content in parts
    )


def _read_numbered(reader: Reader, known: Collection[int]) -> dict[int, bytes]:
    (count,) = reader.fields(">I")
    found: dict[int, bytes] = {}
    for _ in range(count):
        (number,) = reader.fields(">B")
        reader.require(number in known and number not in found, "has a part of an unknown number")
        found[number] = reader.required()
    return found


def _read_taken(reader: Reader, content: bytes) -> frozenset[bytes]:
    reader.require(len(content) % TAKEN_BYTES == 0, "has an id of another length")
    starts = range(0, len(content), TAKEN_BYTES)
    found = frozenset(content[start : start + TAKEN_BYTES] for start in starts)
    reader.require(len(found) == len(starts), "has an id twice")
    return found


def _texts(items: Mapping[str, str]) -> bytes:
    return _pairs((name.encode(), text.encode()) for name, text in items.items())


def _read_texts(reader: Reader) -> dict[str, str]:
    return {_text(reader, name): _text(reader, text) for name, text in _read_pairs(reader)}


def _numbers(items: Mapping[str, int]) -> bytes:
    return b"".join(
        (fields(">I", len(items)), *(part(k.encode()) + fields(">Q", n) for k, n in items.items()))
    )


def _read_numbers(reader: Reader) -> dict[str, int]:
    (count,) = reader.fields(">I")
    return {reader.required_text(): reader.fields(">Q")[0] for _ in range(count)}


def _accepted(batches: Sequence[Accepted]) -> bytes:
    parts = [fields(">I", len(batches))]
    for one in batches:
        parts += (part(one.topic_partition.encode()), part(one.batch_id.encode()))
        parts.append(fields(">QQ", one.offset, one.rows))
    return b"".join(parts)


def _read_accepted(reader: Reader) -> tuple[Accepted, ...]:
    (count,) = reader.fields(">I")
    found = []
    for _ in range(count):
        topic_partition, batch_id = reader.required_text(), reader.required_text()
        offset, rows = reader.fields(">QQ")
        found.append(Accepted(topic_partition, offset, batch_id, rows))
    return tuple(found)


def _charges(charges: Sequence[Charge]) -> bytes:
    return b"".join(
        (
            fields(">I", len(charges)),
            *(fields(">IQQ", charge.block, charge.rho, charge.delta) for charge in charges),
        )
    )


def _read_charges(reader: Reader) -> tuple[Charge, ...]:
    (count,) = reader.fields(">I")
    return tuple(Charge(*reader.fields(">IQQ")) for _ in range(count))


def _read_settles(reader: Reader) -> tuple[int, ...]:
    (count,) = reader.fields(">I")
    return reader.fields(f">{count}Q")


def _text(reader: Reader, encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        reader.fail("has a name that is not UTF-8")
