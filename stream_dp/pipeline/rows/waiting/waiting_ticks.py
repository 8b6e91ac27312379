"""In which tick the rows that wait came, and what the rows of each tick count.

A row counts in one tick of one period. Where persons are protected, the first rows of each in a period do, in
the order in which they came: so what counts follows from a person's own rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Digests, Slots
from stream_dp.core.rows.slabs import WEIGHT, Slab, TableAsked, slabs_of
from stream_dp.core.running.running_periods import RunningPeriods
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.tick_counts import TickCounts
from stream_dp.core.running.tick_look import counts_of_tick
from stream_dp.pipeline.rows.person_allowance import Used

CAME: Final = ("came period", "came tick")
"""The columns that say in which tick of which period a row came; 0 for a row that counts in none."""

Columns: TypeAlias = dict[str, npt.NDArray[np.uint32]]


class Place(NamedTuple):
    """A tick of a period; both are 0 for none.

    Attributes:
        period: The number of the period.
        tick: The number of the tick, from 1.
    """

    period: int = 0
    tick: int = 0


NO_TICK: Final = Place()


class WaitingTicks:
    """The ticks of the periods of one data set that wait. Private.

    Args:
        most: The most rows of a person that count in a period. None where rows are protected.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._counts: dict[Place, TickCounts] = {}
        self._rows: Counter[Place] = Counter()
        self._used: dict[int, Used] = {}  # rows of persons that count, by the period

    def __repr__(self) -> str:
        return f"WaitingTicks({len(self._counts)} ticks)"

    def add(self, plan: RunningPlan | None, place: Place, rows: Rows) -> Columns:
        """Counts rows that come in a tick.

        Args:
            plan: How the running totals of the period are measured. None where the rows are in no tick.
            place: The tick.
            rows: The rows.

        Returns:
            The columns ``CAME``, shape (n_entries,).
        """
        marks = np.ones(rows.n_entries, np.uint8)
        if plan is None:
            marks[:] = 0
        else:
            if rows.whose is not None:
                marks = self._counted(place.period, rows.whose.digests)
            self._rows[place] += rows.n_rows
            slabs = [*slabs_of(rows, more={} if rows.whose is None else {WEIGHT: marks})]
            self._count(plan, place, slabs)
        came = zip(CAME, place, strict=True)
        return {name: (marks * np.uint32(number)).astype(np.uint32) for name, number in came}

    def restore(
        self,
        plans: Mapping[int, RunningPlan],
        slab: Slab,
        came: Mapping[str, npt.NDArray[Any]],
        whose: Slots | None,
    ) -> None:
        """Counts the rows of a slab again, whose columns ``CAME`` are told."""
        both = np.stack([came[name] for name in CAME], axis=1)
        for period, tick in np.unique(both, axis=0).tolist():
            plan = plans.get(period)
            if plan is None:
                continue
            place = Place(period, tick)
            marks = (both == place).all(axis=1)
            columns = {**slab.columns, WEIGHT: marks.astype(np.uint8)}
            one = Slab(slab.n_rows, slab.n_slots, columns)
            self._rows[place] += int(TableAsked((), 0, None).table(plan.promise.shape, one))
            self._count(plan, place, [one])
            if whose is not None:
                self._use(period, whose.digests, marks)

    def counts(self, plan: RunningPlan, number: int, tick: int) -> list[TickCounts]:
        """The exact counts of each tick of a period up to one. Private."""
        nothing = _nothing(plan)
        return [self._counts.get(Place(number, one), nothing) for one in range(1, tick + 1)]

    def n_rows(self, taken: Mapping[int, int]) -> int:
        """How many rows came in ticks of some periods, up to the tick that each has taken. Public."""
        return sum(
            rows for place, rows in self._rows.items() if place.tick <= taken.get(place.period, 0)
        )

    def forget(self, periods: Collection[int]) -> None:
        """Forgets the rows of periods that wait no more."""
        for place in [place for place in self._counts if place.period in periods]:
            del self._counts[place]
        for place in [place for place in self._rows if place.period in periods]:
            del self._rows[place]
        for number in periods:
            self._used.pop(number, None)

    def _counted(self, number: int, digests: Digests) -> npt.NDArray[np.uint8]:
        """Marks the rows that count, shape (n_entries,): the first ones of each person in a period."""
        assert self._most is not None, "persons are protected"
        used = self._used.get(number)
        before = 0 if used is None else used.of(digests)
        in_order = Slots(digests, np.arange(len(digests), dtype=np.uint64))
        marks = in_order.counted(np.maximum(self._most - before, 0))
        self._use(number, digests, marks)
        return marks.astype(np.uint8)

    def _use(self, number: int, digests: Digests, marks: npt.NDArray[np.bool_]) -> None:
        """Says that the rows of marked slots count in a period."""
        used, more = self._used.get(number), Used.one_each(digests, marks)
        self._used[number] = more if used is None else used.and_by(more)

    def _count(self, plan: RunningPlan, place: Place, slabs: Iterable[Slab]) -> None:
        asked = [TableAsked(tile.attributes, 0, None) for tile in plan.tiles]
        counts = self._counts.setdefault(place, _nothing(plan))
        for slab in slabs:
            more = counts_of_tick(
                plan.tiles, [one.table(plan.promise.shape, slab) for one in asked]
            )
            for table, added in zip(counts.tables, more.tables, strict=True):
                table += added


def _nothing(plan: RunningPlan) -> TickCounts:
    return TickCounts(tuple(np.zeros(size, np.int64) for size in plan.sizes))


def plans_of(running: RunningPeriods | None) -> dict[int, RunningPlan]:
    """The plans of the periods that are open, by their numbers."""
    return (
        {} if running is None else {number: one.totals.plan for number, one in running.open.items()}
    )
