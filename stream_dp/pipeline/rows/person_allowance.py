"""What each person may add to a phase, where the promise is for life, and what persons have used so far.

Units are charged before anything is counted, as a look is charged before it is taken: what a phase uses is on
the private topic before the commit that seals it. A worker that dies in between has used nothing, and the
next one, which reads the same units, chooses the same rows.

What was used in several phases is merged now and then into one value, so that there are few of them. The
owner has them in memory: 14 bytes for each person in each value. The length of a value follows from numbers
of rows, which are public: a person who comes twice leaves an empty place.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.encoding import Format, array, fields
from stream_dp.core.rows.lifetime_slots import Numbers, allowances_of_slots
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Digests
from stream_dp.core.rows.universe import Rows
from stream_dp.pipeline.rows.own_values import USED, OwnValues

_USED = Format("units of persons")
_DIGEST = np.dtype(f"S{DIGEST_BYTES}")


@dataclass(frozen=True, eq=False)
class Used:
    """The units that persons have used, for life. Private.

    Attributes:
        keys: The digests of the persons, each once, in ascending order.
        units: What each has used.
        n_places: The number of places, those of nobody included. It is public.
    """

    keys: npt.NDArray[np.bytes_] = field(repr=False)
    units: npt.NDArray[np.uint16] = field(repr=False)
    n_places: int

    @classmethod
    def by(cls, digests: Digests, rows: Numbers) -> Used:
        """What the persons of the slots of a phase use there.

        Args:
            digests: The person of each slot, shape (n_slots, 12), all zero for nobody.
            rows: The rows that count of each, shape (n_slots,), the same for all slots of a person.
        """
        keys, first = np.unique(_keys(digests), return_index=True)
        units = (rows[first] ** 2).astype(np.uint16)
        nobody = int(b"" in keys[:1])  # comes first
        return cls(keys[nobody:], units[nobody:], len(digests))

    def of(self, digests: Digests) -> Numbers:
        """Returns the units that the person of each slot has used, shape (n_slots,). Private."""
        found = np.zeros(len(digests), dtype=np.int64)
        if len(self.keys):
            keys = _keys(digests)
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[at] == keys
            found[known] = self.units[at[known]]
        return found

    def and_by(self, later: Used) -> Used:
        """What persons have used in all: here and later. It has as many places as both together."""
        # Both are in order: to sort again takes seconds.
        at = np.searchsorted(self.keys, later.keys)
        known = at < len(self.keys)
        known[known] = self.keys[at[known]] == later.keys[known]
        units = self.units.copy()
        units[at[known]] += later.units[known]
        return Used(
            np.insert(self.keys, at[~known], later.keys[~known]),
            np.insert(units, at[~known], later.units[~known]),
            self.n_places + later.n_places,
        )

    def to_bytes(self) -> bytes:
        """It as bytes, whose number follows from the number of places. Private."""
        digests = np.zeros(self.n_places, _DIGEST)
        units = np.zeros(self.n_places, np.uint16)
        digests[: len(self.keys)], units[: len(self.keys)] = self.keys, self.units
        return _USED.pack(fields("<Q", self.n_places), digests.tobytes(), array(units))

    @classmethod
    def from_bytes(cls, data: bytes) -> Used:
        """Inverse of ``to_bytes``, without a copy: the event loop waits, and persons may be ten million.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _USED.read(data)
        (n_places,) = reader.fields("<Q")
        keys = reader.array(np.dtype(np.uint8), n_places * DIGEST_BYTES).view(_DIGEST)
        units = reader.array(np.dtype(np.uint16), n_places)
        reader.end()
        n_persons = bisect(range(n_places), False, key=lambda place: keys[place] == b"")
        return cls(keys[:n_persons], units[:n_persons], n_places)


def _keys(digests: Digests) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(digests).view(_DIGEST).reshape(-1)


class UsedUnits:
    """What the persons of one data set have used for life, in the values that keep it. Private.

    Args:
        values: The private values of the data set.
    """

    def __init__(self, values: OwnValues) -> None:
        self._values = values
        self._used: dict[int, Used] = {}  # by the number under which it is kept

    async def read(self) -> None:
        """Reads what they have used.

        Raises:
            CorruptState: It is nowhere any more.
        """
        for key in sorted(self._values.named(USED), key=int):
            used = await self._values.needed(USED + key, "what its persons have used for life is")
            self._used[int(key)] = Used.from_bytes(used)

    def counted(
        self, rows: Rows, unit: Unit | None
    ) -> tuple[npt.NDArray[np.bool_] | None, Used | None]:
        """Marks the rows that count in the phase that is sealed next.

        It follows from the rows, and from what each person had used before this phase. So an owner who
        repeats a seal that a crash cut short does the same.

        Args:
            rows: The rows of the phase.
            unit: The promise to a person; None where rows are protected.

        Returns:
            A mark for each row, shape (n_rows,), or None where rows are protected; and what its persons use
            in this phase, or None where the promise is not for life. Private.
        """
        if unit is None:
            return None, None
        assert rows.whose is not None, "it was checked when they were accepted, or read"
        if not unit.lifetime:
            return rows.whose.counted(unit.rows_per_phase), None
        digests = rows.whose.digests
        before = sum(
            (one.of(digests) for one in self._used.values()), np.zeros(len(digests), np.int64)
        )
        allowed = allowances_of_slots(digests, before, unit)
        return rows.whose.counted(allowed), Used.by(digests, allowed)

    async def add(self, used: Used) -> None:
        """Keeps what persons use in a phase, and merges what was kept of earlier ones.

        The last value is never nearly as long as the one before it, so there are few of them.
        """
        number = max(self._used, default=0) + 1
        while self._used and self._used[last := max(self._used)].n_places <= 2 * used.n_places:
            used = self._used.pop(last).and_by(used)
            self._values.discard(f"{USED}{last}")
        self._used[number] = used
        await self._values.keep(**{f"{USED}{number}": used.to_bytes()})

    def forget(self) -> None:
        """Forgets what they have used, since no row of them counts any more."""
        self._used.clear()
