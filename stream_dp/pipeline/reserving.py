"""What each person may add to a phase, where the promise is for life: reserved before the phase is sealed.

Units are charged before anything is counted, as a look is charged before it is taken. If the worker dies
between the reservation and the commit of the seal, the next one reads the same units again, and chooses the
same rows. If the phase then has other rows, what was reserved stays reserved: a person can lose units, but
never uses one twice.

A store may go back to before a reservation, and keep all commits. So each call says which one it follows, and
the commit of the seal says how many there were: a store that has forgotten one refuses what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from stream_dp.core.lifetimes import Numbers, allowances_of_slots
from stream_dp.core.packing import Format, array, fields
from stream_dp.core.parameters import Unit
from stream_dp.core.persons import DIGEST_BYTES, Digests
from stream_dp.core.universe import Rows
from stream_dp.pipeline.fuse import CrashPoint, Fuse, unarmed
from stream_dp.pipeline.retrying import persistently
from stream_dp.state.store import MOST_PERSONS, PersonStore, Reservation

__all__ = [
    "calls_for",
    "counted",
    "forget",
    "reserve",
    "reserve_again",
    "reserved_from_bytes",
    "reserved_to_bytes",
]

_RESERVED = Format("reservation", 1)


async def reserve(
    store: PersonStore,
    dataset: str,
    token: int,
    *,
    phase: int,
    digests: Digests,
    unit: Unit,
    fuse: Fuse = unarmed,
) -> Numbers:
    """Reserves units for the phase that is sealed next.

    The number of calls and their sizes depend on the number of slots alone, which is public.

    Args:
        store: The store of the data set.
        dataset: The name of the data set.
        token: The owner's fencing token.
        phase: The phase, from 1.
        digests: The person of each slot of the phase, shape (n_slots, 12), all zero for nobody. Private.
        unit: The promise, which is for life.
        fuse: The fuse of the worker.

    Returns:
        For each slot, how many rows of its person count in the phase, shape (n_slots,). Private.

    Raises:
        Fenced: Another worker has taken the data set over.
        Conflict: Another phase is sealed next, or the data set is retired.
        StoreUnavailable: The store stayed away.
    """
    before = await _units(store, dataset, token, phase, digests)
    rows = allowances_of_slots(digests, before, unit)
    await _put(store, dataset, token, phase, digests, before, rows, fuse)
    return rows


async def counted(
    store: PersonStore,
    dataset: str,
    token: int,
    *,
    phase: int,
    rows: Rows,
    unit: Unit | None,
    fuse: Fuse = unarmed,
) -> tuple[npt.NDArray[np.bool_] | None, bytes | None]:
    """Marks the rows that count in the phase that is sealed next; reserves units if the promise is for life.

    It follows from the rows, and from what each person had used before this phase. So an owner who repeats a
    seal that a crash cut short does the same. Raises as ``reserve`` does.

    Returns:
        A mark for each row, shape (n_rows,), or None where rows are protected; and what was reserved, as
        ``reserved_to_bytes`` stores it, or None. Private.
    """
    if unit is None:
        return None, None
    assert rows.whose is not None, "it was checked when they were accepted, or read"
    if not unit.lifetime:
        return rows.whose.counted(unit.rows_per_phase), None
    digests = rows.whose.digests
    allowed = await reserve(
        store, dataset, token, phase=phase, digests=digests, unit=unit, fuse=fuse
    )
    return rows.whose.counted(allowed), reserved_to_bytes(digests, allowed)


async def reserve_again(
    store: PersonStore, dataset: str, token: int, *, phase: int, digests: Digests, rows: Numbers
) -> None:
    """Reserves what was reserved for a phase before, in a store that has forgotten it.

    Args:
        store: The store of the data set.
        dataset: The name of the data set.
        token: The owner's fencing token.
        phase: The phase that is sealed next, from 1.
        digests: The person of each slot, shape (n_slots, 12). Private.
        rows: The rows that count of each, shape (n_slots,). Private.
    """
    before = await _units(store, dataset, token, phase, digests)
    await _put(store, dataset, token, phase, digests, before, rows, unarmed)


def reserved_to_bytes(digests: Digests, rows: Numbers) -> bytes:
    """What was reserved for a phase as bytes; their length follows from the number of slots."""
    return _RESERVED.pack(fields("<Q", len(digests)), array(digests), array(rows.astype(np.uint8)))


def reserved_from_bytes(data: bytes) -> tuple[Digests, Numbers]:
    """Inverse of ``reserved_to_bytes``. Raises CorruptState."""
    reader = _RESERVED.read(data)
    (n_slots,) = reader.fields("<Q")
    digests = reader.array(np.dtype(np.uint8), n_slots * DIGEST_BYTES).reshape(-1, DIGEST_BYTES)
    rows = reader.array(np.dtype(np.uint8), n_slots).astype(np.int64)
    reader.end()
    return digests, rows


async def forget(store: PersonStore, dataset: str, token: int, *, fuse: Fuse = unarmed) -> None:
    """Erases what persons have used, of a data set that is retired or has just been rebuilt, in steps.

    A crash leaves the rest to the next owner.

    Raises:
        Fenced: Another worker has taken the data set over.
        Conflict: The data set is neither.
        StoreUnavailable: The store stayed away.
    """
    while await persistently(partial(store.forget_persons, dataset, token)):
        fuse(CrashPoint.IN_ERASURE)


async def _units(
    store: PersonStore, dataset: str, token: int, phase: int, digests: Digests
) -> Numbers:
    """What the person of each slot has used before a phase, shape (n_slots,)."""
    used = np.zeros(len(digests), dtype=np.int64)
    for part in _parts(len(digests)):
        used[part] = await persistently(partial(store.units, dataset, token, phase, digests[part]))
    return used


async def _put(
    store: PersonStore,
    dataset: str,
    token: int,
    phase: int,
    digests: Digests,
    before: Numbers,
    rows: Numbers,
    fuse: Fuse,
) -> None:
    for number, part in enumerate(_parts(len(digests))):
        reservation = Reservation(
            dataset=dataset,
            token=token,
            phase=phase,
            digests=digests[part],
            before=before[part],
            rows=rows[part],
            part=number,
        )
        fuse(CrashPoint.BEFORE_RESERVE)
        await persistently(partial(store.reserve, reservation))
        fuse(CrashPoint.AFTER_RESERVE)


def calls_for(n_slots: int) -> int:
    """Returns the number of calls that reserve for a number of slots."""
    return len(list(_parts(n_slots)))


def _parts(n_slots: int) -> Iterator[slice]:
    for start in range(0, n_slots, MOST_PERSONS):
        yield slice(start, start + MOST_PERSONS)
