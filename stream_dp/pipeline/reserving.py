"""What each person may add to a phase, where the promise is for life, and what persons have used so far.

Units are charged before anything is counted, as a look is charged before it is taken: what a phase uses is on
the private topic before the commit that seals it. A worker that dies in between has used nothing, and the
next one, which reads the same units, chooses the same rows.

What was used in several phases is merged now and then into one value, so that there are few of them. The
owner has them in memory: 14 bytes for each person in each value. The length of a value follows from numbers
of rows, which are public: a person who comes twice leaves an empty place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stream_dp.core.lifetimes import Numbers, allowances_of_slots
from stream_dp.core.packing import Format, array, fields
from stream_dp.core.parameters import Unit
from stream_dp.core.persons import DIGEST_BYTES, Digests
from stream_dp.core.universe import Rows

__all__ = ["Used", "counted"]

_USED = Format("units of persons", 1)
_DIGEST = np.dtype(f"S{DIGEST_BYTES}")


class Used:
    """The units that persons have used, for life. Private.

    Args:
        digests: The person of each place, shape (n_places, 12), all zero for nobody; each person once.
        units: What it has used, shape (n_places,).
    """

    def __init__(self, digests: Digests, units: npt.NDArray[np.uint16]) -> None:
        self._n_places = len(digests)
        keys = np.ascontiguousarray(digests).view(_DIGEST).reshape(-1)
        is_person = digests.any(axis=1)
        order = np.argsort(keys[is_person], kind="stable")
        self._keys, self._units = keys[is_person][order], units[is_person][order]

    def __repr__(self) -> str:
        return f"Used({self._n_places} places)"

    @classmethod
    def nothing(cls) -> Used:
        """Nobody has used anything."""
        return cls(np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros(0, np.uint16))

    @classmethod
    def by(cls, digests: Digests, rows: Numbers) -> Used:
        """What the persons of the slots of a phase use there.

        Args:
            digests: The person of each slot, shape (n_slots, 12), all zero for nobody.
            rows: The rows that count of each, shape (n_slots,), the same for all slots of a person.
        """
        keys = np.ascontiguousarray(digests).view(_DIGEST).reshape(-1)
        _, first = np.unique(keys, return_index=True)
        once = np.zeros_like(digests)
        once[first] = digests[first]
        units = np.zeros(len(digests), np.uint16)
        units[first] = (rows[first] ** 2).astype(np.uint16)
        return cls(once, units)

    @property
    def n_places(self) -> int:
        """The number of places, which is public."""
        return self._n_places

    def of(self, digests: Digests) -> Numbers:
        """Returns the units that the person of each slot has used, shape (n_slots,). Private."""
        found = np.zeros(len(digests), dtype=np.int64)
        if len(self._keys):
            keys = np.ascontiguousarray(digests).view(_DIGEST).reshape(-1)
            at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            known = self._keys[at] == keys
            found[known] = self._units[at[known]]
        return found

    def and_by(self, later: Used) -> Used:
        """What persons have used in all: here and later. It has as many places as both together."""
        at = np.searchsorted(
            self._keys, later._keys
        )  # both are in order: to sort again takes seconds
        known = at < len(self._keys)
        known[known] = self._keys[at[known]] == later._keys[known]
        units = self._units.copy()
        units[at[known]] += later._units[known]
        keys = np.insert(self._keys, at[~known], later._keys[~known])
        units = np.insert(units, at[~known], later._units[~known])
        return Used._in_order(keys, units, self.n_places + later.n_places)

    @classmethod
    def _in_order(
        cls, keys: npt.NDArray[np.bytes_], units: npt.NDArray[np.uint16], n_places: int
    ) -> Used:
        used = cls(np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros(0, np.uint16))
        used._keys, used._units, used._n_places = keys, units, n_places
        return used

    def to_bytes(self) -> bytes:
        """It as bytes, whose number follows from the number of places. Private."""
        digests = np.zeros(self._n_places, _DIGEST)
        units = np.zeros(self._n_places, np.uint16)
        digests[: len(self._keys)], units[: len(self._keys)] = self._keys, self._units
        return _USED.pack(fields("<Q", self._n_places), digests.tobytes(), array(units))

    @classmethod
    def from_bytes(cls, data: bytes) -> Used:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _USED.read(data)
        (n_places,) = reader.fields("<Q")
        digests = reader.array(np.dtype(np.uint8), n_places * DIGEST_BYTES)
        units = reader.array(np.dtype(np.uint16), n_places)
        reader.end()
        return cls(digests.reshape(-1, DIGEST_BYTES), units)


def counted(
    rows: Rows, unit: Unit | None, used: Iterable[Used]
) -> tuple[npt.NDArray[np.bool_] | None, Used | None]:
    """Marks the rows that count in the phase that is sealed next.

    It follows from the rows, and from what each person had used before this phase. So an owner who repeats a
    seal that a crash cut short does the same.

    Args:
        rows: The rows of the phase.
        unit: The promise to a person; None where rows are protected.
        used: What persons have used before, added up.

    Returns:
        A mark for each row, shape (n_rows,), or None where rows are protected; and what its persons use in
        this phase, or None where the promise is not for life. Private.
    """
    if unit is None:
        return None, None
    assert rows.whose is not None, "it was checked when they were accepted, or read"
    if not unit.lifetime:
        return rows.whose.counted(unit.rows_per_phase), None
    digests = rows.whose.digests
    before = sum((one.of(digests) for one in used), np.zeros(len(digests), np.int64))
    allowed = allowances_of_slots(digests, before, unit)
    return rows.whose.counted(allowed), Used.by(digests, allowed)
