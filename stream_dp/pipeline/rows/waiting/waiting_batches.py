"""The batches of one data set that wait for a phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import numpy as np

from stream_dp.calendar_periods import LATEST_MS
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons, PersonSecret, Slots
from stream_dp.core.rows.row_changes import live_rows
from stream_dp.core.rows.slabs import fits
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch, InvalidDefinition
from stream_dp.messages import Batch
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.rows.own_values import CAME_WHEN, PERSON, WAITING, OwnValues
from stream_dp.pipeline.rows.waiting.batch_places import BatchPlaces
from stream_dp.pipeline.rows.waiting.row_times import EVERY_TIME, Gathering
from stream_dp.pipeline.rows.waiting.waiting_changes import WaitingChanges, changes_of
from stream_dp.pipeline.rows.waiting.waiting_lots import WaitingLots
from stream_dp.pipeline.rows.waiting.waiting_rows import Taken, Waits, read_again, rows_of
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

CHANGED: Final = "changes"
"""The fact that says how many batches with changes there were."""


class WaitingBatches:
    """Rows that were accepted and are not sealed yet, by the numbers of their batches. Private.

    Attributes:
        lots: Those that are kept as slabs. The others are in memory.
        changes: What is to be changed of rows that came before.
        places: Where batches are that are to be read again.
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
        self.places = BatchPlaces(draft)
        self._found: frozenset[int] = frozenset()
        self._pending: dict[int, Rows] = {}
        self._periods: dict[int, int] = {}
        self._secret: bytes | None = None
        self.lots = WaitingLots(values)
        self.changes = WaitingChanges()
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

    @property
    def secret(self) -> bytes:
        """The secret of the digests of persons."""
        assert self._secret is not None, "it is there until the data set is retired"
        return self._secret

    async def new_secret(self, noise: NoiseSource) -> None:
        """Draws and keeps the secret of the digests of persons, if the definition protects persons."""
        erases = self._engine.definition.erasure is not None
        if erases and self._tools.key_file is None:
            raise InvalidDefinition(
                "erasure",
                "this deployment has no key file of persons, with which digests are kept apart from rows",
                "set STREAM_DP_PERSON_KEY_FILE for all workers, or remove erasure",
            )
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
        waits = {number: self.places[number] for number in self.places}
        found = await read_again(
            name, waits, self._tools.rows, self._tools.partitions, self.taken_of
        )
        for number in sorted(found):
            changes = found[number].changes
            if changes is not None and waits[number].n_changes:
                self.changes.add(waits[number].after, changes)
        self._pending = {
            number: self.changes.after(waits[number].after).of_rows(found[number].rows)
            for number in sorted(found)
            if waits[number].rows
        }
        self._periods = {number: waits[number].period for number in self._pending}
        self._found = frozenset(found)
        await self.lots.read(whole=whole)
        await self._count_ticks(waits)

    async def _count_ticks(self, waits: Mapping[int, Waits]) -> None:
        """Counts the ticks of what was read again."""
        if self.ticks is None:
            return
        plans = plans_of(self._engine.mechanism.running)
        for slab in self.lots:
            whose = await self.lots.whose_of(slab) if self._of_persons else None
            came = (await self.lots.read_slab(CAME_WHEN, slab)).columns
            waiting = await self.lots.read_slab(WAITING, slab)
            self.ticks.restore(plans, waiting, came, whose)
        for number, rows in self._pending.items():
            place = Place(*waits[number].came)
            self._came[number] = self.ticks.add(plans.get(place.period), place, rows)

    def forget_lost(self) -> tuple[int, list[str]]:
        """Drafts that batches do not wait that were not found again.

        Returns:
            How many batches with rows these are, and the ids of those with changes.
        """
        lost = {number: self.places[number] for number in self.places if number not in self._found}
        self._forget(lost)
        of_changes = [number for number, one in lost.items() if one.n_changes]
        self.places.forget_changes(of_changes)
        n_lost = sum(one.rows > 0 for one in lost.values())
        return n_lost + self.lots.forget_lost(), [lost[number].batch_id for number in of_changes]

    def taken_of(self, batch: Batch) -> Taken:
        """What a batch brings: its rows, encoded as those of each phase in which they may be, and changes.

        Raises:
            InvalidBatch: They are not rows of this data set, or it takes no such changes.
        """
        persons, erasure = None, self._engine.definition.erasure
        unit = self._engine.definition.privacy.unit
        if unit is not None:
            row = None if erasure is None else erasure.row
            persons = Persons(unit.key, self.secret, batch.name, row)
        in_order = self._engine.mechanism.in_order
        found = [rows_of(batch, universe, persons, in_order) for universe in self.universes]
        rows = found[0].and_of(found[1:])
        if not batch.changes:
            return Taken(rows)
        if erasure is None or persons is None:
            raise InvalidBatch(
                "erase" if batch.correct is None else "correct",
                "this data set takes no changes of rows",
                'define it with privacy.unit and "erasure", or send rows alone',
            )
        if batch.forget and not (unit is not None and unit.lifetime):
            raise InvalidBatch(
                "forget",
                "the promise of this data set is not for life, so nothing is kept of what is used",
                "leave it out: erase is enough",
            )
        every = self._engine.rows_universes(range(self.blocks_to_come.stop))
        return Taken(rows, changes_of(batch, every, persons))

    @property
    def blocks_to_come(self) -> range:
        """The blocks in which a batch may be that is not late."""
        first = self._n_blocks()
        return range(first, first + len(self.gathering.periods) + 1)

    @property
    def universes(self) -> list[Universe]:
        """What rows are encoded with: the attributes of each phase in which a batch may be."""
        return self._engine.rows_universes(self.blocks_to_come)

    # ------------------------------------------------------------ waiting

    async def join(
        self, batch: Batch, taken: Taken, record_id: str, period: int, came: Place = NO_TICK
    ) -> None:
        """Drafts that a batch waits. What it changes of rows in memory is changed at once.

        Args:
            batch: The batch.
            taken: What it brings. Of an empty batch nothing is to be read again.
            record_id: The record that it came in.
            period: The time under which it waits, see ``Times.with_batch``.
            came: The tick in which its rows come.
        """
        rows, changes = taken.rows, taken.changes
        if changes is not None:
            self._draft.note(CHANGED, str(self.n_changed + 1))
            self.changes.add(self.n_changed, changes)
            self._pending = {
                number: changes.of_rows(rows) for number, rows in self._pending.items()
            }
        if not rows.n_rows and changes is None:
            return
        n_slots = sum(waiting.n_entries for waiting in self._pending.values())
        if n_slots and not fits(n_slots + rows.n_entries):
            await self.keep_lot()
        place, _, offset = record_id.rpartition(":")
        number = self.places.add(
            Waits(
                place,
                int(offset or 0),
                rows.n_rows,
                self._draft.dated_ms,
                period,
                came,
                taken.n_changes,
                self.n_changed,
                batch.name,
            )
        )
        if rows.n_rows:
            self._pending[number], self._periods[number] = rows, period
        if self.ticks is not None:
            plan = plans_of(self._engine.mechanism.running).get(came.period)
            self._came[number] = self.ticks.add(plan, came, rows)

    @property
    def n_changed(self) -> int:
        """The number of batches with changes so far. It is public."""
        return int(self._draft.facts.get(CHANGED, "0"))

    def store_outcome(self, batch: Batch, what: str, **facts: Any) -> bytes:
        """Announces the outcome of a batch and drafts it under its id, if it has one."""
        outcome = self._draft.announce(what, **batch.named, **facts)
        if batch.batch_id is not None:
            self._draft.put(StateTable.OUTCOME, batch.batch_id, outcome)
            days = self._engine.definition.kept_answers_days
            if what == "batch_accepted" and days is not None:
                self._draft.put(StateTable.TAKEN, batch.batch_id, b"")
        return outcome

    async def keep_apart(self, before_ms: float) -> None:
        """Keeps the rows in memory as a lot if some wait since before a time: batches may be deleted soon.

        Args:
            before_ms: The time, in milliseconds since 1970. Batches without a time are kept as well.
        """
        if any(self.places[number].dated_ms < before_ms for number in self._pending):
            await self.keep_lot()

    async def keep_lot(self) -> None:
        """Keeps the rows in memory as lots, and drafts that their batches are not needed any more."""
        by_period = sorted(self._pending, key=lambda number: (self._periods[number], number))
        for period, numbers in groupby(by_period, self._periods.__getitem__):
            some = [*numbers]
            rows = self.in_memory(range(period, period + 1))
            came = [self._came[number] for number in some if number in self._came]
            more = {name: np.concatenate([one[name] for one in came]) for name in CAME if came}
            in_order = self._engine.mechanism.in_order
            await self.lots.add(rows, period, len(some), in_order, self.n_changed, came=more)
            self._forget(some)

    async def change_a_lot(self, times: range) -> bool:
        """Makes all changes in the next slab of a lot that waits under some times; False if none is left."""
        for slab in self.lots.among(times):
            if slab.key.after < self.n_changed:
                await self.lots.change(slab, self.changes.after(slab.key.after), self.n_changed)
                return True
        return False

    # ------------------------------------------------------------ those of one block

    def _in_memory(self, times: range) -> list[int]:
        return [number for number in self._pending if self._periods[number] in times]

    def in_memory(self, times: range) -> Rows:
        """The rows in memory that wait under some times, of which there are some, as they came. Private.

        Where persons can be erased, a row that came again is a blank slot.
        """
        rows = Rows.concat([self._pending[number] for number in self._in_memory(times)])
        return rows if self._engine.definition.erasure is None else live_rows(rows)

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
        self._forget(self.places.among(times))
        self.lots.discard(times)

    def retire(self) -> None:
        """Drafts that no batch waits any more, and forgets the secret of the digests."""
        self.forget(EVERY_TIME)
        self.forget_changes()
        self._secret = None

    def forget_changes(self) -> None:
        """Drafts that no change waits any more: a sweep has made all of them."""
        self.places.forget_changes(self.places.with_changes)
        self.changes.forget()

    def _forget(self, numbers: Iterable[int]) -> None:
        """Drafts that the rows of some batches wait no more."""
        numbers = [*numbers]
        self.places.forget_rows(numbers)
        for of_batches in (self._pending, self._periods, self._came):
            for number in numbers:
                of_batches.pop(number, None)
