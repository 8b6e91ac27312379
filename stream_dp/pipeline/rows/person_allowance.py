"""What each person may add to a phase that is sealed, and what persons have used so far.

Where rows come late, the rows of a person that count in a phase and those that come to it late are at most as
many as count in a phase. So it is kept how many counted, until no more rows come to it. Where the promise is
for life, it is kept what persons have used of it.

Units are charged before anything is counted, as a look is charged before it is taken: what a phase uses is on
the private topic before the commit that seals it. A worker that dies in between has used nothing, and the
next one, which reads the same units, chooses the same rows.

What was used in several phases is merged now and then into one value, so that there are few of them. The
owner has them in memory: 14 bytes for each person in each value. The length of a value follows from numbers
of rows, which are public: a person who comes twice leaves an empty place.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.rows.lifetime_slots import Numbers, allowances_of_slots
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Digests, Slots, keys_of
from stream_dp.core.rows.slabs import Slab, parts_of
from stream_dp.pipeline.rows.own_values import COUNTED, USED, OwnValues

_DIGEST: Final = np.dtype(f"S{DIGEST_BYTES}")
_WORDS: Final = tuple(f"digest {word}" for word in range(DIGEST_BYTES // 4))
_UNITS: Final = "units"


@dataclass(frozen=True, eq=False)
class Used:
    """What persons have used: units for life, or rows of a period that is open. Private.

    Attributes:
        keys: The digests of the persons, each once, in ascending order.
        units: The units or rows that each has used.
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
        keys, first = np.unique(keys_of(digests), return_index=True)
        units = (rows[first] ** 2).astype(np.uint16)
        nobody = int(b"" in keys[:1])  # comes first
        return cls(keys[nobody:], units[nobody:], len(digests))

    @classmethod
    def one_each(cls, digests: Digests, marks: npt.NDArray[np.bool_]) -> Used:
        """A row in each slot that is marked; no person has more than 255 of these.

        Args:
            digests: The person of each slot, shape (n_slots, 12).
            marks: Whether its row counts, shape (n_slots,); never where the slot is blank.
        """
        keys, rows = np.unique(keys_of(digests[marks]), return_counts=True)
        return cls(keys, rows.astype(np.uint16), len(digests))

    def of(self, digests: Digests) -> Numbers:
        """Returns what the person of each slot has used, shape (n_slots,). Private."""
        found = np.zeros(len(digests), dtype=np.int64)
        if len(self.keys):
            keys = keys_of(digests)
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

    def without(self, persons: Digests) -> Used:
        """The same, where it is forgotten what these persons have used. It has as many places."""
        left = ~np.isin(self.keys, keys_of(persons))
        return Used(self.keys[left], self.units[left], self.n_places)

    def slabs(self) -> list[Slab]:
        """It as slabs, whose lengths follow from the number of places. Private."""
        digests = np.zeros(self.n_places, _DIGEST)
        units = np.zeros(self.n_places, np.uint16)
        digests[: len(self.keys)], units[: len(self.keys)] = self.keys, self.units
        words = digests.view("<u4").reshape(-1, len(_WORDS))
        columns = {**dict(zip(_WORDS, words.T, strict=True)), _UNITS: units}
        return [
            Slab(n, n, {name: column[part] for name, column in columns.items()})
            for part in parts_of(self.n_places)
            for n in (part.stop - part.start,)
        ]

    @classmethod
    def of_slabs(cls, slabs: Sequence[Slab]) -> Used:
        """Inverse of ``slabs``."""
        words = [
            np.stack([slab.columns[word] for word in _WORDS], axis=1).astype("<u4")
            for slab in slabs
        ]
        keys = np.concatenate([np.zeros((0, len(_WORDS)), "<u4"), *words]).view(_DIGEST).reshape(-1)
        units = np.concatenate(
            [np.zeros(0, np.uint16), *(slab.columns[_UNITS].astype(np.uint16) for slab in slabs)]
        )
        n_persons = bisect(range(len(keys)), False, key=lambda place: keys[place] == b"")
        return cls(keys[:n_persons], units[:n_persons], len(keys))


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
        numbers = sorted({int(key.split(" ")[0]) for key in self._values.named(USED)})
        said = "what its persons have used for life is"
        self._used = {n: await _read(self._values, f"{USED}{n} ", said) for n in numbers}

    def counted(
        self, whose: Slots | None, unit: Unit | None
    ) -> tuple[npt.NDArray[np.bool_] | None, Used | None]:
        """Marks the slots that count in the phase that is sealed next.

        It follows from the rows, and from what each person had used before this phase. So an owner who
        repeats a seal that a crash cut short does the same.

        Args:
            whose: Says whose the rows of the phase are; None where rows are protected.
            unit: The promise to a person; None where rows are protected.

        Returns:
            A mark for each slot, shape (n_slots,), or None where rows are protected; and what its persons use
            in this phase, or None where the promise is not for life. Private.
        """
        if whose is None:
            return None, None
        assert unit is not None, "rows that say whose they are come with a promise"
        if whose.own is not None:
            whose = whose.blanked(whose.newest)
        if not unit.lifetime:
            return whose.counted(unit.rows_per_phase), None
        before = sum(
            (one.of(whose.digests) for one in self._used.values()),
            np.zeros(len(whose.digests), np.int64),
        )
        allowed = allowances_of_slots(whose.digests, before, unit)
        return whose.counted(allowed), Used.by(whose.digests, allowed)

    async def add(self, used: Used) -> None:
        """Keeps what persons use in a phase, and merges what was kept of earlier ones.

        The last value is never nearly as long as the one before it, so there are few of them.
        """
        number = max(self._used, default=0) + 1
        while self._used and self._used[last := max(self._used)].n_places <= 2 * used.n_places:
            used = self._used.pop(last).and_by(used)
            _discard(self._values, f"{USED}{last} ")
        await self._keep(number, used)

    async def _keep(self, number: int, used: Used) -> None:
        self._used[number] = used
        await _keep(self._values, f"{USED}{number} ", used)

    async def forget_persons(self, persons: Digests) -> None:
        """Keeps all again without these persons, whether or not any of them is there."""
        for number, used in [*self._used.items()]:
            await self._keep(number, used.without(persons))

    def forget(self) -> None:
        """Forgets what they have used, since no row of them counts any more."""
        self._used.clear()


class CountedInPhases:
    """How many rows of each person count in the phases that may still get late ones. Private.

    Args:
        values: The private values of the data set.
    """

    def __init__(self, values: OwnValues) -> None:
        self._values = values

    async def late(
        self, phase: int, whose: Slots | None, unit: Unit | None
    ) -> npt.NDArray[np.bool_] | None:
        """Marks the late rows of a phase that count: as many of each person as the phase has room for.

        Args:
            phase: The number of the phase.
            whose: Says whose the late rows are; None where rows are protected.
            unit: The promise to a person; None where rows are protected.

        Raises:
            CorruptState: What counted before is nowhere any more.
        """
        if whose is None:
            return None
        assert unit is not None, "rows that say whose they are come with a promise"
        said = "how many rows of its persons count in a phase is"
        used = await _read(self._values, f"{COUNTED}{phase} ", said)
        return whose.counted(unit.rows_per_phase - used.of(whose.digests))

    async def keep(self, phase: int, whose: Slots, marks: npt.NDArray[np.bool_]) -> None:
        """Keeps how many rows of each person count in a phase that is about to be sealed.

        Args:
            phase: The number of the phase.
            whose: Says whose its rows are.
            marks: Marks those that count, shape (n_slots,).
        """
        await _keep(self._values, f"{COUNTED}{phase} ", Used.one_each(whose.digests, marks))

    def forget(self, phase: int) -> None:
        """Drafts that this is erased: no more rows come to a phase."""
        _discard(self._values, f"{COUNTED}{phase} ")


async def _read(values: OwnValues, kind: str, said: str) -> Used:
    """Reads what is kept of some persons; ``said`` is what ``OwnValues.nowhere`` says if it is lost."""
    slabs = []
    for at in sorted(values.named(kind), key=int):
        slab = await values.slab(f"{kind}{at}")
        if slab is None:
            raise values.nowhere(said)
        slabs.append(slab)
    return Used.of_slabs(slabs)


async def _keep(values: OwnValues, kind: str, used: Used) -> None:
    await values.keep_slabs({f"{kind}{at}": slab for at, slab in enumerate(used.slabs())})


def _discard(values: OwnValues, kind: str) -> None:
    for at in values.named(kind):
        values.discard(f"{kind}{at}")
