"""Bytes of what persons have used, for life. A table may have 10^8 of them, so they are as short as can be.

A person is kept under a digest of 12 bytes, in 7 bytes: the units used before a phase, the phase, and the
rows reserved in it. The units used after it follow. Numbers are big-endian. There is no room for a version: a
later layout must have another length. What comes and goes is packed in the same way.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream_dp.core.lifetimes import Numbers, units_after
from stream_dp.core.persons import DIGEST_BYTES, Digests
from stream_dp.state.store import Reservation

_VALUE: Final = np.dtype([("before", ">u2"), ("phase", ">u4"), ("rows", "u1")])
_ENTRY: Final = np.dtype([("digest", "u1", DIGEST_BYTES), ("before", ">u2"), ("rows", "u1")])

VALUE_BYTES: Final = _VALUE.itemsize


def entries_to_bytes(reservation: Reservation) -> bytes:
    """A reservation's persons, units before and rows, 15 bytes for each slot."""
    entries = np.empty(len(reservation.digests), dtype=_ENTRY)
    entries["digest"] = reservation.digests
    entries["before"] = reservation.before
    entries["rows"] = reservation.rows
    return entries.tobytes()


def digests_to_bytes(digests: Digests) -> bytes:
    """Persons, 12 bytes for each slot."""
    return digests.tobytes()


def units_before(values: bytes, phase: int) -> Numbers | None:
    """Returns the units that persons have used before a phase, shape (n_slots,).

    Args:
        values: What is kept of each of them, all zero where nothing is.
        phase: The phase, from 1.

    Returns:
        The units. None if something was reserved for a later phase, which no seal can have followed.
    """
    kept = np.frombuffer(values, dtype=_VALUE)
    if np.any(kept["phase"] > phase):
        return None
    before = kept["before"].astype(np.int64)
    after = units_after(before, kept["rows"].astype(np.int64))
    return np.where(kept["phase"] == phase, before, after)


__all__ = ["VALUE_BYTES", "digests_to_bytes", "entries_to_bytes", "units_before"]
