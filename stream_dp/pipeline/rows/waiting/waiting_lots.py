"""Rows that wait and are kept as slabs: their batches need not be read again.

When as many rows wait in memory as a slab has slots, or when their batches may be deleted soon, they become a
lot: slabs of these rows, of whose they are, and of some codes as they came. So a worker never has more of a
phase in memory, and its slabs are there when it is sealed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.key_texts import columns_of
from stream_dp.core.rows.person_slots import WHOSE_COLUMNS, Slots
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.slabs import Slab, slabs_in_order, slabs_of
from stream_dp.pipeline.rows.own_values import ARRIVED, CAME_WHEN, SAID, WAITING, WHOSE, OwnValues
from stream_dp.pipeline.rows.secret_order import secret_order
from stream_dp.pipeline.rows.waiting.row_times import EVERY_TIME
from stream_dp.pipeline.rows.waiting.waiting_ticks import Columns


class LotKey(NamedTuple):
    """What tells a slab of a lot from others of its kind. Its text follows the kind, see ``OwnValues``.

    Attributes:
        period: The time under which its rows wait, see ``Times.with_batch``.
        lot: The number of the lot.
        at: The number of the slab in it.
        n_batches: The number of batches of the lot.
        after: The number of the last batch whose changes are made in it, see ``waiting_changes``.
    """

    period: int
    lot: int
    at: int
    n_batches: int
    after: int

    def __str__(self) -> str:
        return " ".join(map(str, self))


@dataclass(frozen=True, slots=True)
class LotSlab:
    """A slab of a lot; all of it but the number of rows is public.

    Attributes:
        key: Its key.
        n_rows: The number of rows of the slab, see ``Slab``.
        n_slots: The number of its slots.
    """

    key: LotKey
    n_rows: int = field(repr=False)
    n_slots: int


class WaitingLots:
    """The lots of one data set, in order.

    Args:
        values: The private values of the data set.
    """

    def __init__(self, values: OwnValues) -> None:
        self._values = values
        self._slabs: list[LotSlab] = []
        self._times = EVERY_TIME

    def __bool__(self) -> bool:
        return bool(self._slabs)

    def __iter__(self) -> Iterator[LotSlab]:
        return iter(self._slabs)

    def among(self, times: range) -> WaitingLots:
        """Those that wait under some times, to be read."""
        found = WaitingLots(self._values)
        found._slabs = [slab for slab in self._slabs if slab.key.period in times]
        found._times = times
        return found

    @property
    def n_rows(self) -> int:
        """The number of rows; public."""
        return sum(slab.n_rows for slab in self._slabs)

    @property
    def n_slots(self) -> int:
        """The number of slots; public."""
        return sum(slab.n_slots for slab in self._slabs)

    async def read(self, *, whole: bool) -> None:
        """Reads how many rows each has, as far as it is anywhere.

        Args:
            whole: Whether to look for all of each. Redis may have the beginning of a slab whose rest is lost.

        Raises:
            CorruptState: An index does not decode.
        """
        lost: set[int] = set()
        found: list[LotSlab] = []
        for kind in _KINDS:
            for key in self._keys(kind):
                what = f"{kind}{key}"
                index = await self._values.index(what)
                if index is None or (whole and await self._values.slab(what) is None):
                    lost.add(key.lot)
                elif kind == WAITING:
                    found.append(LotSlab(key, index.n_rows, index.n_slots))
        self._slabs = [slab for slab in found if slab.key.lot not in lost]

    def forget_lost(self) -> int:
        """Drafts that lots do not wait that are nowhere any more; returns how many batches these are."""
        found = {slab.key.lot for slab in self._slabs}
        lost = {key.lot: key.n_batches for key in self._keys() if key.lot not in found}
        self._discard(lost)
        return sum(lost.values())

    async def add(
        self,
        rows: Rows,
        period: int,
        n_batches: int,
        in_order: Collection[int],
        after: int = 0,
        *,
        came: Columns | None = None,
    ) -> None:
        """Keeps rows as the next lot.

        Args:
            rows: The rows.
            period: The time under which they wait.
            n_batches: The number of their batches.
            in_order: The attributes whose codes are kept as they came, too.
            after: The number of the last batch whose changes are made in them.
            came: In which tick each row came; None where nothing is said of that.
        """
        lot = max((key.lot for key in self._keys()), default=0) + 1
        whose = {} if rows.whose is None else rows.whose.columns
        said, ticks = columns_of(rows.texts), came or {}
        for at, slab in enumerate(slabs_of(rows, secret_order, more={**whose, **said, **ticks})):
            key = LotKey(period, lot, at, n_batches, after)
            content, of_persons = slab.split(WHOSE_COLUMNS)
            content, texts = content.split(said)
            content, when = content.split(ticks)
            await self._values.keep_slabs({f"{WAITING}{key}": content})
            for kind, more in ((WHOSE, of_persons), (SAID, texts), (CAME_WHEN, when)):
                if more.columns:
                    await self._values.keep_slabs({f"{kind}{key}": more})
            self._slabs.append(LotSlab(key, slab.n_rows, slab.n_slots))
        arrived = {
            f"{ARRIVED}{LotKey(period, lot, at, n_batches, after)}": slab
            for at, slab in enumerate(slabs_in_order(rows, in_order))
        }
        await self._values.keep_slabs(arrived)

    async def change(self, slab: LotSlab, changes: RowChanges, after: int) -> None:
        """Keeps a slab after changes that came behind it, whether or not they find a row of it.

        Args:
            slab: The slab.
            changes: The changes.
            after: The number of the last of them.

        Raises:
            CorruptState: It is nowhere any more.
        """
        now, hits = slab.key._replace(after=after), changes.hits(await self.whose_of(slab))
        texts = {} if changes.rows is None else columns_of(changes.rows.texts)
        for kind in (WAITING, WHOSE, SAID):
            if self._values.has(f"{kind}{slab.key}"):
                changed = changes.of_slab(await self.read_slab(kind, slab), hits, texts)
                self._values.discard(f"{kind}{slab.key}")
                await self._values.keep_slabs({f"{kind}{now}": changed})
        self._slabs[self._slabs.index(slab)] = replace(slab, key=now)

    async def whose(self) -> list[Slots]:
        """Reads whose the rows in the slots of each slab are. Private.

        Raises:
            CorruptState: It is nowhere any more.
        """
        return [await self.whose_of(slab) for slab in self._slabs]

    async def whose_of(self, slab: LotSlab) -> Slots:
        """Reads whose the rows in the slots of one slab are. Private.

        Raises:
            CorruptState: It is nowhere any more.
        """
        return Slots.of_columns((await self.read_slab(WHOSE, slab)).columns)

    async def read_slab(self, kind: str, slab: LotSlab) -> Slab:
        """Reads what is kept of a slab. Private.

        Args:
            kind: Its rows (``WAITING``), in which tick they came (``CAME_WHEN``), or what they say of values
                that are found (``SAID``).
            slab: The slab.

        Raises:
            CorruptState: It is nowhere any more.
        """
        found = await self._values.slab(f"{kind}{slab.key}")
        if found is None:
            raise self._values.nowhere("rows that wait are")
        return found

    def arrived(self) -> list[str]:
        """What the slabs of codes as they came are kept for, in order."""
        keys = self._keys(ARRIVED)
        return [f"{ARRIVED}{key}" for key in keys if key.period in self._times]

    def discard(self, times: range) -> None:
        """Drafts that nothing is kept any more of those that wait under some times."""
        keys = [key for kind in _KINDS for key in self._keys(kind)]
        self._discard({key.lot for key in keys if key.period in times})
        # Those of a block that was sealed were renamed.
        self._slabs = [slab for slab in self._slabs if slab.key.period not in times]

    def _discard(self, lots: Collection[int]) -> None:
        for kind in _KINDS:
            for key in self._keys(kind):
                if key.lot in lots:
                    self._values.discard(f"{kind}{key}")
        self._slabs = [slab for slab in self._slabs if slab.key.lot not in lots]

    def _keys(self, kind: str = WAITING) -> list[LotKey]:
        """The keys of the slabs of a kind, in order of the lots."""
        found = [LotKey(*map(int, key.split(" "))) for key in self._values.named(kind)]
        return sorted(found, key=lambda key: (key.lot, key.at))


_KINDS = (WAITING, WHOSE, ARRIVED, SAID, CAME_WHEN)
