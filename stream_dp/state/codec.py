"""Stored bytes and back. The first byte is a version; what a version means never changes.

The encodings are plain lengths and bytes, so that encoding cannot fail on what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from stream_dp.core.accounting import UNITS, summed
from stream_dp.core.packing import IDENTITY_BYTES, Format, fields, part
from stream_dp.errors import StoreError
from stream_dp.state.store import Transition, account_field

DIGEST_BYTES = IDENTITY_BYTES
MAX_BYTES = 256 << 20  # half of what Redis and Valkey take as one argument, unless told otherwise
_OUTBOX = Format("outbox record", 1, 2)  # 1 had no stored answers
_ANSWER = Format("answer", 1)


class OutboxRecord(NamedTuple):
    """One record that is to leave after a commit.

    Attributes:
        role: The role of its topic.
        key: Record key; None for none.
        headers: (name, bytes) pairs, in order.
        value: Record value; None is a tombstone.
    """

    role: str
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    value: bytes | None


class StoredAnswer(NamedTuple):
    """The part of an answered request that is kept.

    Attributes:
        digest: The digest of the request, 16 bytes. It tells a repetition from an id used twice.
        answer: The bytes that were released, and are released again on a repetition.
    """

    digest: bytes
    answer: bytes


def outbox_to_bytes(records: Iterable[OutboxRecord | str]) -> bytes:
    """Records of one commit as bytes; of a stored answer its name alone, for it is stored once."""
    parts: list[bytes] = []
    count = 0
    for record in records:
        count += 1
        if isinstance(record, str):
            parts += (part(None), part(record.encode()))
            continue
        role, key, headers, value = record
        parts += (part(role.encode()), part(key), fields(">I", len(headers)))
        for name, content in headers:
            parts += (part(name.encode()), part(content))
        parts.append(part(value))
    return _OUTBOX.pack(fields(">I", count), *parts)


def outbox_from_bytes(data: bytes) -> list[OutboxRecord | str]:
    """Inverse of ``outbox_to_bytes``.

    Raises:
        CorruptState: The bytes do not decode, or their version is unknown.
    """
    reader = _OUTBOX.read(data)
    records: list[OutboxRecord | str] = []
    (count,) = reader.fields(">I")
    for _ in range(count):
        role = reader.text()
        if role is None:
            records.append(reader.required_text())
            continue
        key = reader.part()
        (n_headers,) = reader.fields(">I")
        headers = tuple((reader.required_text(), reader.required()) for _ in range(n_headers))
        records.append(OutboxRecord(role, key, headers, reader.part()))
    reader.end()
    return records


def answer_to_bytes(digest: bytes, answer: bytes) -> bytes:
    """A stored answer as bytes.

    Raises:
        ValueError: ``digest`` has not 16 bytes.
    """
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a request's digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return _ANSWER.pack(digest, answer)


def answer_from_bytes(data: bytes) -> StoredAnswer:
    """Inverse of ``answer_to_bytes``.

    Raises:
        CorruptState: The bytes do not decode, or their version is unknown.
    """
    reader = _ANSWER.read(data)
    digest = reader.take(DIGEST_BYTES)
    return StoredAnswer(digest, reader.rest())


def flatten(transition: Transition) -> list[bytes]:
    """A transition as the flat list of arguments that ``scripts/commit.lua`` reads.

    Numbers are decimal strings. After the fixed ones comes one section for each field: the number of its
    arguments, then the arguments. Rows and secrets that the same transition erases are not sent at all, so
    that not even a digest of them is left behind.
    """
    pending, seal, vault = transition.pending, transition.seal, transition.vault
    if transition.erase:
        pending, seal, vault = (), (None if seal is None else b""), dict.fromkeys(vault, b"")
    flat = [
        b"%d" % transition.token,
        b"%d" % transition.seq,
        b"%d" % (transition.seq + 1),
        transition.head.hex().encode(),
        transition.new_head.hex().encode(),
        b"%d" % transition.erase,
        b"%d" % UNITS,
        b"%d" % transition.erased,
        transition.trail.hex().encode(),
        transition.new_trail.hex().encode(),
        b"%d" % transition.rotate,
        b"%d" % transition.reserved,
    ]
    _section(flat, _maybe(transition.definition))
    _section(flat, _pairs(transition.meta.items()))
    _section(
        flat, [part for at, to in transition.cursor.items() for part in (at.encode(), b"%d" % to)]
    )
    _section(flat, _stored(transition.answers))
    _section(flat, _stored(transition.batches))
    _section(flat, pending)
    _section(flat, _maybe(seal))
    _section(
        flat,
        [
            b"%d" % number
            for block, (rho, delta) in totals(transition).items()
            for number in (block, rho, delta)
        ],
    )
    _section(flat, transition.transcript)
    _section(flat, [part for pair in transition.verified.items() for part in pair])
    _section(flat, _maybe(transition.intent))
    _section(flat, [b"%d" % seq for seq in transition.settles])
    _section(flat, transition.ledger)
    _section(flat, _maybe(transition.outbox))
    _section(flat, _stored(vault))
    _section(flat, transition.taken)
    _section(
        flat,
        [
            part
            for one in transition.limits
            for part in (
                account_field(one.block, one.account).encode(),
                b"%d" % one.block,
                b"%d" % one.rho,
                b"%d" % one.delta,
            )
        ],
    )
    return flat


def totals(transition: Transition) -> dict[int, tuple[int, int]]:
    """Charges of a transition summed for each block, (rho, delta) in units of budget / 2**50.

    A sum over the whole budget is cut to one unit over it: refused all the same, and every number that
    reaches a script stays far below 2**53, where Lua numbers stop being exact.
    """
    return {
        charge.block: (min(charge.rho, UNITS + 1), min(charge.delta, UNITS + 1))
        for charge in summed(transition.charges)
    }


def pack(flat: Sequence[bytes]) -> bytes:
    """A flat transition as one MessagePack array of strings, which ``commit.lua`` unpacks.

    One argument instead of hundreds saves a third of the time a client needs to send it. The strings are
    binary all the same: the unpacker of Redis knows the type ``str``, not the newer ``bin``.

    Raises:
        StoreError: It is larger than a server takes in one piece.
    """
    parts = [fields(">BI", 0xDD, len(flat))]  # array 32
    for item in flat:
        parts.append(fields(">BI", 0xDB, len(item)))  # str 32
        parts.append(item)
    packed = b"".join(parts)
    if len(packed) > MAX_BYTES:
        raise StoreError(
            f"a commit has more than {MAX_BYTES >> 20} MiB; take fewer records at once"
        )
    return packed


def fingerprint(packed: bytes) -> bytes:
    """Tells whether two packed transitions are the same one, 32 hexadecimal digits.

    It is kept next to the state so that a repeated commit is recognised. It never leaves the store, which
    holds the rows themselves.
    """
    return blake2b(packed, digest_size=DIGEST_BYTES).hexdigest().encode()


def _section(flat: list[bytes], parts: Sequence[bytes]) -> None:
    flat.append(b"%d" % len(parts))
    flat.extend(parts)


def _maybe(part: bytes | None) -> tuple[bytes, ...]:
    return () if part is None else (part,)


def _pairs(items: Iterable[tuple[str, str]]) -> list[bytes]:
    return [part.encode() for pair in items for part in pair]


def _stored(items: Mapping[str, bytes]) -> list[bytes]:
    flat: list[bytes] = []
    for name, content in items.items():
        flat.append(name.encode())
        flat.append(content)
    return flat


__all__ = [
    "DIGEST_BYTES",
    "MAX_BYTES",
    "OutboxRecord",
    "StoredAnswer",
    "answer_from_bytes",
    "answer_to_bytes",
    "fingerprint",
    "flatten",
    "outbox_from_bytes",
    "outbox_to_bytes",
    "pack",
    "totals",
]
