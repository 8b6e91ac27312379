"""The ids of batches whose rows count, in 16 bytes each: what is left when their outcomes are dropped.

Of an id the first 16 bytes of its SHA-256 are kept. Two ids with the same bytes take 2^64 attempts to find,
and only a producer who sends both loses by it: the second batch does not count, as if it had not been sent.

In a server the bytes lie in one hash with a field for each two first bytes, whose value is the rest of each
id, one after the other. So a million ids take 18 bytes each, and of ten million a commit writes some 2 kB for
each new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

__all__ = ["COUNT", "TAKEN", "TAKEN_BYTES", "fields_of", "found_in", "in_fields", "taken_id"]

TAKEN_BYTES: Final = 16

TAKEN: Final = b""
"""What is found under the id of a batch whose rows count, and whose outcome is not kept any more."""

COUNT: Final = b"n"
"""The field that has the number of all of them. All other fields have names of two bytes."""

_FIELD_BYTES: Final = 2
_REST_BYTES: Final = TAKEN_BYTES - _FIELD_BYTES


def taken_id(batch_id: str) -> bytes:
    """Returns what is kept of an id for ever, 16 bytes."""
    encoded = batch_id.encode("utf-8", "surrogatepass")
    return hashlib.sha256(encoded).digest()[:TAKEN_BYTES]


def fields_of(taken: Iterable[bytes]) -> list[bytes]:
    """Returns the fields in which some of them lie if they are there, each once."""
    return list(dict.fromkeys(one[:_FIELD_BYTES] for one in taken))


def found_in(stored: Mapping[bytes, bytes | None], taken: Sequence[bytes]) -> set[bytes]:
    """Returns those that are there, by the values of their fields.

    Raises:
        ValueError: A value is not ours.
    """
    there = {field: _rests(value) for field, value in stored.items() if value is not None}
    return {one for one in taken if one[_FIELD_BYTES:] in there.get(one[:_FIELD_BYTES], ())}


def in_fields(stored: Mapping[bytes, bytes]) -> set[bytes]:
    """Returns all that lie in some fields.

    Raises:
        ValueError: A value is not ours.
    """
    return {
        field + rest for field, value in stored.items() if field != COUNT for rest in _rests(value)
    }


def _rests(value: bytes) -> set[bytes]:
    if len(value) % _REST_BYTES:
        raise ValueError("ids of another length")
    return {value[at : at + _REST_BYTES] for at in range(0, len(value), _REST_BYTES)}
