"""Stored bytes and back. The first byte is a version; what a version means never changes.

The encodings are plain lengths and bytes, so that encoding cannot fail on what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_dp.core.encoding import IDENTITY_BYTES, Format, fields, part

DIGEST_BYTES = IDENTITY_BYTES
_OUTBOX = Format("outbox")
_ANSWER = Format("answer")


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


def outbox_to_bytes(records: Sequence[OutboxRecord | str]) -> bytes:
    """Records of one commit as bytes; of a stored answer its name alone, for it is stored once."""
    parts = [fields(">I", len(records))]
    for record in records:
        if isinstance(record, str):
            parts += (part(None), part(record.encode()))
            continue
        role, key, headers, value = record
        parts += (part(role.encode()), part(key), fields(">I", len(headers)))
        for name, content in headers:
            parts += (part(name.encode()), part(content))
        parts.append(part(value))
    return _OUTBOX.pack(*parts)


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
