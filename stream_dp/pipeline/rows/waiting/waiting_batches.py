"""The batches of one data set that wait for a phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Final

import numpy as np

from stream_dp.calendar_periods import LATEST_MS
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons, PersonSecret, Slots
from stream_dp.core.rows.slabs import fits
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import Batch, Event
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.rows.own_values import PERSON, OwnValues
from stream_dp.pipeline.rows.waiting.row_times import EVERY_TIME, Gathering
from stream_dp.pipeline.rows.waiting.waiting_lots import WaitingLots
from stream_dp.pipeline.rows.waiting.waiting_rows import Waits, read_again, rows_of
from stream_dp.pipeline.rows.waiting.waiting_ticks import (
    CAME,
    NO_TICK,
    Columns,
    Place,
    WaitingTicks,
    plans_of,
)
from stream_dp.state.schema import StateTable

TIMES: Final = "times"
"""The fact that says what is known of the times of the rows that wait."""


class WaitingBatches:
    """Rows that were accepted and are not sealed yet, by the numbers of their batches. Private.

    Attributes:
        lots: Those that are kept as slabs. The others are in memory.
        ticks: What they count in the ticks of periods with running totals. None without these.
    """

    def __init__(
        self,
        engine: Engine,
        draft: Draft,
        values: OwnValues,
        tools: Tools,
        n_blocks: Callable[[], int],
    ) -> None:
        self._engine, self._draft, self._values, self._tools = engine, draft, values, tools
        self._n_blocks = n_blocks
        self._pending: dict[int, Rows] = {}
        self._periods: dict[int, int] = {}
        self._secret: bytes | None = None
        self.lots = WaitingLots(values)
        unit = engine.definition.privacy.unit
        most = None if unit is None else unit.rows_per_phase
        self.ticks = None if engine.definition.running is None else WaitingTicks(most)
        self._came: dict[int, Columns] = {}

    def __repr__(self) -> str:
        return f"WaitingBatches({self.n_rows} rows)"

    @property
    def n_rows(self) -> int:
        """The number of these rows. It is public."""
        return self.lots.n_rows + sum(rows.n_rows for rows in self._pending.values())

    def n_rows_of(self, times: range) -> int:
        """The number of those that wait under some times. It is public."""
        in_memory = sum(self._pending[number].n_rows for number in self._in_memory(times))
        return self.lots.among(times).n_rows + in_memory

    @property
    def n_first_rows(self) -> int:
        """The number of those that are in the next block. It is public."""
        return self.n_rows_of(self.gathering.first)

    @property
    def n_rows_to_come(self) -> int:
        """The number of those that are in blocks to come. The others are late. It is public."""
        return self.n_rows_of(range(LATEST_MS))

    @property
    def gathering(self) -> Gathering:
        """The public facts about their times."""
        return Gathering.from_text(self._draft.facts.get(TIMES, ""))

    def set_times(self, gathering: Gathering) -> None:
        """Drafts other facts about their times."""
        if gathering != self.gathering:
            self._draft.note(TIMES, gathering.to_text())

    @property
    def _of_persons(self) -> bool:
        return self._engine.definition.privacy.unit is not None

    async def new_secret(self, noise: NoiseSource) -> None:
        """Draws and keeps the secret of the digests of persons, if the definition protects persons."""
        if self._of_persons:
            secret = PersonSecret.new(noise, self._draft.dataset, self._tools.key_file)
            self._secret = secret.value
            await self._values.keep(**{PERSON: secret.to_bytes()})

    # ------------------------------------------------------------ reading

    async def read(self, *, whole: bool = False) -> None:
        """Reads the rows that wait, as far as they are anywhere.

        Args:
            whole: What ``WaitingLots.read`` takes.

        Raises:
            CorruptState: They are rows of another one, or the secret of its persons is nowhere any more.
            WrongKeyFile: The data set was defined with another key file.
        """
        name = self._draft.dataset
        if self._of_persons:
            stored = await self._values.find(PERSON)
            if stored is None:
                raise self._values.nowhere("the secret of its digests is")
            self._secret = PersonSecret.from_bytes(stored, name, self._tools.key_file).value
        waits = self._waits()
        found = await read_again(
            name, waits, self._tools.rows, self._tools.partitions, self.rows_of
        )
        self._pending = {number: found[number] for number in sorted(found)}
        self._periods = {number: waits[number].period for number in self._pending}
        await self.lots.read(whole=whole)
        await self._count_ticks(waits)

    async def _count_ticks(self, waits: Mapping[int, Waits]) -> None:
        """Counts the ticks of what was read again."""
        if self.ticks is None:
            return
        plans = plans_of(self._engine.mechanism.running)
        for slab in self.lots:
            whose = await self.lots.whose_of(slab) if self._of_persons else None
            came = (await self.lots.came(slab)).columns
            self.ticks.restore(plans, await self.lots.rows(slab), came, whose)
        for number, rows in self._pending.items():
            place = Place(*waits[number].came)
            self._came[number] = self.ticks.add(plans.get(place.period), place, rows)

    def forget_lost(self) -> int:
        """Drafts that batches do not wait that were not found again; returns how many these are."""
        lost = [number for number in self._waits() if number not in self._pending]
        self._forget(lost)
        return len(lost) + self.lots.forget_lost()

    def rows_of(self, batch: Batch) -> Rows:
        """The rows of a batch, encoded as those of each phase in which they may be.

        Raises:
            InvalidBatch: They are not rows of this data set.
        """
        unit, persons = self._engine.definition.privacy.unit, None
        if unit is not None:
            assert self._secret is not None, "it is there until the data set is retired"
            persons = Persons(unit.key, self._secret, batch.name)
        in_order = self._engine.mechanism.in_order
        found = [rows_of(batch, universe, persons, in_order) for universe in self.universes]
        return found[0].and_of(found[1:])

    @property
    def blocks_to_come(self) -> range:
        """The blocks in which a batch may be that is not late."""
        first = self._n_blocks()
        return range(first, first + len(self.gathering.periods) + 1)

    @property
    def universes(self) -> list[Universe]:
        """What rows are encoded with: the attributes of each phase in which a batch may be."""
        return self._engine.rows_universes(self.blocks_to_come)

    def _waits(self) -> dict[int, Waits]:
        """The places of the batches that can be read again, by their numbers."""
        waiting = self._draft.state.table(StateTable.WAITING)
        return {int(number): Waits.from_bytes(stored) for number, stored in waiting.items()}

    # ------------------------------------------------------------ waiting

    async def join(
        self, batch: Batch, rows: Rows, record_id: str, period: int, came: Place = NO_TICK
    ) -> None:
        """Drafts that a batch waits.

        Args:
            batch: The batch.
            rows: Its rows. Of an empty batch nothing is to be read again.
            record_id: The record that it came in.
            period: The time under which it waits, see ``Times.with_batch``.
            came: The tick in which its rows come.
        """
        if not rows.n_rows:
            return
        if self._n_slots and not fits(self._n_slots + rows.n_entries):
            await self.keep_lot()
        number = (
            max([*map(int, self._draft.state.table(StateTable.WAITING)), *self._pending, -1]) + 1
        )
        self._pending[number], self._periods[number] = rows, period
        place, _, offset = record_id.rpartition(":")
        dated_ms = self._draft.dated_ms
        waits = Waits(place, int(offset or 0), rows.n_rows, dated_ms, period, came, batch.name)
        if self.ticks is not None:
            plan = plans_of(self._engine.mechanism.running).get(came.period)
            self._came[number] = self.ticks.add(plan, came, rows)
        self._draft.put(StateTable.WAITING, number, waits.to_bytes())

    def store_outcome(self, event: Event) -> bytes:
        """Announces the outcome of a batch and drafts it under its id, if it has one."""
        assert event.batch is not None, "the event of a batch names it"
        outcome = self._draft.announce(event)
        if event.batch_id is not None:
            self._draft.put(StateTable.OUTCOME, event.batch_id, outcome)
            days = self._engine.definition.kept_answers_days
            if event.event == "batch_accepted" and days is not None:
                self._draft.put(StateTable.TAKEN, event.batch_id, b"")
        return outcome

    async def keep_apart(self, before_ms: float) -> None:
        """Keeps the rows in memory as a lot if some wait since before a time: batches may be deleted soon.

        Args:
            before_ms: The time, in milliseconds since 1970. Batches without a time are kept as well.
        """
        waits = self._waits()  # in quarantine they are not in memory
        if any(waits[number].dated_ms < before_ms for number in self._pending):
            await self.keep_lot()

    async def keep_lot(self) -> None:
        """Keeps the rows in memory as lots, and drafts that their batches are not needed any more."""
        by_period = sorted(self._pending, key=lambda number: (self._periods[number], number))
        for period, numbers in groupby(by_period, self._periods.__getitem__):
            some = [*numbers]
            rows = Rows.concat([self._pending[number] for number in some])
            came = [self._came[number] for number in some if number in self._came]
            more = {name: np.concatenate([one[name] for one in came]) for name in CAME if came}
            in_order = self._engine.mechanism.in_order
            await self.lots.add(rows, period, len(some), in_order, came=more)
            self._forget(some)

    # ------------------------------------------------------------ those of one block

    def _in_memory(self, times: range) -> list[int]:
        return [number for number in self._pending if self._periods[number] in times]

    def in_memory(self, times: range) -> Rows:
        """The rows in memory that wait under some times, of which there are some, as they came. Private."""
        return Rows.concat([self._pending[number] for number in self._in_memory(times)])

    async def whose(self, times: range) -> Slots | None:
        """Says whose the rows are that wait under some times, those of lots first. Private.

        None where rows are protected.

        Raises:
            CorruptState: It is nowhere any more.
        """
        if not self._of_persons:
            return None
        owned = await self.lots.among(times).whose()
        if self._in_memory(times):
            in_memory = self.in_memory(times).whose
            assert in_memory is not None, "it was checked when they were accepted, or read"
            owned.append(in_memory)
        return Slots.concat(owned)

    def forget(self, times: range) -> None:
        """Drafts that what waits under some times waits no more."""
        waits = [number for number, one in self._waits().items() if one.period in times]
        self._forget([*waits, *self._in_memory(times)])
        self.lots.discard(times)

    def retire(self) -> None:
        """Drafts that no batch waits any more, and forgets the secret of the digests."""
        self.forget(EVERY_TIME)
        self._secret = None

    @property
    def _n_slots(self) -> int:
        return sum(rows.n_entries for rows in self._pending.values())

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._draft.put(StateTable.WAITING, number, None)
            self._pending.pop(number, None)
            self._periods.pop(number, None)
            self._came.pop(number, None)
