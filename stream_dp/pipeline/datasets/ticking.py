"""The ticks of the periods of one data set: when one is due, and what it publishes.

What periods cost and which ticks are taken follows from the log and the state alone, as for phases.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from stream_dp.calendar_periods import Calendar
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.running.running_periods import RunningPeriod, RunningPeriods
from stream_dp.core.running.tick_look import TickLook, TickRelease
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import RunningTable, RunningTick
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.rows.waiting.row_times import Period, TimeSpan
from stream_dp.pipeline.rows.waiting.waiting_ticks import NO_TICK, Place
from stream_dp.profiles.running_tiles import ticks_of
from stream_dp.state.schema import StateTable

_MINUTE_MS: Final = 60_000


class DueTick(NamedTuple):
    """A tick that is due.

    Attributes:
        at_ms: When, in milliseconds since 1970.
        period: Its period.
    """

    at_ms: int
    period: RunningPeriod


@dataclass(eq=False)
class Ticking:
    """Takes the ticks of one data set."""

    _engine: Engine
    _draft: Draft
    _rows: PrivateRows
    _looks: PaidLooks

    @property
    def _running(self) -> RunningPeriods | None:
        return self._engine.mechanism.running

    @cached_property
    def _calendar(self) -> Calendar:
        return ticks_of(self._engine.first)

    # ------------------------------------------------------------ rows that come

    def begin(self, span: TimeSpan, dated_ms: int) -> None:
        """Begins the running totals of a period, if its first rows come: drafts what it pays.

        One whose time is over has none, and so has one that may have other attributes than rows that come.
        """
        running, number, until = self._running, span.since // _MINUTE_MS, span.until
        if running is None or number in running.open:
            return
        due = [one.due for one in self._rows.waiting.gathering.periods if one.until == until]
        current = due and self._engine.times.is_current(Period(span.since, until, due[0]))
        if not current or len(self._rows.waiting.universes) > 1:
            return
        first, last = self._calendar.period(span.since), self._calendar.period(until)
        begins = min(max(self._calendar.period(dated_ms), first), last)
        try:
            plan = running.plan(last - begins) if last > begins else None
        except InvalidDefinition:  # it has more ticks than any that the definition was checked for
            return
        if plan is None or not running.affords(plan):
            return
        written = self._engine.times.written
        self._draft.write_ledger(
            "running",
            {
                "period": number,
                "since": written(span.since),
                "until": written(until),
                **plan.description,
            },
        )
        running.begin(number, plan)
        self._keep(number)

    def place(self, label: int) -> Place:
        """The tick in which rows come that wait under a time."""
        running, periods = self._running, self._rows.waiting.gathering.periods
        if running is None:
            return NO_TICK
        covering = [one for one in periods if label == 0 or one.since <= label < one.until]
        found = self._of(covering[0]) if covering else None
        tick = None if found is None else found.next_tick
        return NO_TICK if found is None or tick is None else Place(found.number, tick)

    def _of(self, period: Period) -> RunningPeriod | None:
        """The running totals of a period that waits; of several that have joined, those of the last."""
        assert self._running is not None, "the caller looks"
        begins = range(period.since // _MINUTE_MS, period.until // _MINUTE_MS)
        numbers = [number for number in self._running.open if number in begins]
        return self._running.open[max(numbers)] if numbers else None

    # ------------------------------------------------------------ ticks

    def due(self) -> DueTick | None:
        """The next tick that comes before its period closes."""
        running = self._running
        if running is None:
            return None
        found = []
        for period in self._rows.waiting.gathering.periods:
            one = self._of(period)
            if one is None or one.next_tick is None:
                continue
            left = one.totals.plan.factor.ticks - one.next_tick
            if left:
                end = self._calendar.period(period.until)
                found.append(DueTick(self._calendar.start(end - left), one))
        return min(found, key=lambda due: due.at_ms, default=None)

    def last(self) -> RunningPeriod | None:
        """The running totals of the first period that waits, which is to close, if they have a tick left."""
        periods = self._rows.waiting.gathering.periods
        found = self._of(periods[0]) if periods and self._running is not None else None
        return None if found is None or found.next_tick is None else found

    async def take(self, period: RunningPeriod, *, closes: bool = False) -> None:
        """Takes the next tick of a period, and drafts what is published.

        Args:
            period: The period.
            closes: Whether it closes, so that this is its last tick.
        """
        tick, plan = period.next_tick, period.totals.plan
        assert tick is not None, "the caller looks"
        assert self._rows.waiting.ticks is not None, "there are running totals"
        ticks = self._rows.blocks.data.ticks
        ticks[period.number] = self._rows.waiting.ticks.counts(plan, period.number, tick)
        await self._looks.take([TickLook(plan, period.number, tick)], asked=False)
        del ticks[period.number]
        if closes:
            period.stopped = True
            self._keep(period.number)
        self._draft.release(Outgoing("running", self._draft.dataset, self._told(period).to_bytes()))

    def _told(self, period: RunningPeriod) -> RunningTick:
        """What is published of the newest tick of a period."""
        running, totals, plan = self._engine.first.running, period.totals, period.totals.plan
        assert running is not None, "there are running totals"
        tick, universe, written = totals.tick, self._engine.universe, self._engine.times.written
        span, first = self.span_of(period.number), self._calendar.period(period.number * _MINUTE_MS)
        until = self.newest_tick(period)
        tiles = []
        for number, (tile, said) in enumerate(zip(plan.tiles, running.tiles, strict=True)):
            counts = totals.counts(number, tick).values
            last = totals.counts(number, tick, tick - 1).values
            tiles.append(
                RunningTable(
                    where=said.where,
                    group_by=said.group_by,
                    labels=tuple(universe.attributes[a].labels for a in tile.group_by),
                    counts=tuple(round(float(count), 2) for count in counts),
                    count_bar=round(plan.bar(tick), 2),
                    count_bar_all_ticks=round(plan.bar_all_ticks(tick), 2),
                    last_counts=tuple(round(float(count), 2) for count in last),
                    last_count_bar=round(plan.bar(tick, tick - 1), 2),
                )
            )
        return RunningTick(
            dataset=self._draft.dataset,
            since=written(span.since),
            until=written(span.until if period.stopped else until),
            tick=self._calendar.period(until) - first,
            ticks=self._calendar.period(span.until) - first,
            rows=self.n_rows(period),
            confidence=plan.promise.confidence,
            tiles=tuple(tiles),
            share=round(period.units / UNITS, 6),
            least_cell=self._engine.first.least_cell,
        )

    # ------------------------------------------------------------ public facts

    def span_of(self, number: int) -> TimeSpan:
        """The time that a period is about."""
        calendar, since = self._engine.times.phase.calendar, number * _MINUTE_MS
        assert calendar is not None, "only periods have running totals"
        return TimeSpan(since, calendar.start(calendar.period(since) + 1))

    def newest_tick(self, period: RunningPeriod) -> int:
        """The time of the newest tick of a period; before the first one, the time from which rows count."""
        left = period.totals.plan.factor.ticks - period.totals.tick
        end = self._calendar.period(self.span_of(period.number).until)
        return self._calendar.start(end - left)

    def told(self) -> RunningPeriod | None:
        """The newest open period of which a tick was taken."""
        found = {} if self._running is None else self._running.open
        return max(
            (one for one in found.values() if one.totals.tick),
            key=lambda one: one.number,
            default=None,
        )

    @property
    def newest_minute(self) -> int:
        """When the newest tick of an open period was, in minutes since 1970. 0 without one."""
        period = self.told()
        return 0 if period is None else self.newest_tick(period) // _MINUTE_MS

    def n_rows(self, period: RunningPeriod) -> int:
        """The number of rows of a period that had come by its newest tick."""
        assert self._rows.waiting.ticks is not None, "there are running totals"
        return self._rows.waiting.ticks.n_rows({period.number: period.totals.tick})

    # ------------------------------------------------------------ the seal

    def seal(self) -> None:
        """Says that the rows of the first period are sealed: its running totals end, and its block pays."""
        running, waiting = self._running, self._rows.waiting
        if running is None or waiting.ticks is None or not waiting.gathering.periods:
            return
        until = waiting.gathering.end // _MINUTE_MS
        taken = {number: one.totals.tick for number, one in running.open.items() if number < until}
        whole = waiting.ticks.n_rows(taken) == waiting.n_first_rows
        running.sealed(until, whole=whole)
        waiting.ticks.forget(taken)
        for key in list(self._draft.state.table(StateTable.RUNNING)):
            if int(key.split(b" ")[0]) in taken:
                self._draft.put(StateTable.RUNNING, key, None)

    # ------------------------------------------------------------ what is durable

    def _keep(self, number: int) -> None:
        assert self._running is not None, "there are running totals"
        one = self._running.open[number]
        plan = one.totals.plan
        said = {
            "ticks": plan.factor.ticks,
            "step": plan.step,
            "version": one.version,
            "units": one.units,
            "stopped": one.stopped,
        }
        self._draft.put(StateTable.RUNNING, number, json.dumps(said).encode())

    def stop(self) -> None:
        """Drafts that no open period has another tick: the attributes change, and its tiles do not."""
        if self._running is not None:
            for number, one in self._running.open.items():
                one.stopped = True
                self._keep(number)

    def read(self) -> None:
        """Folds what ticks of open periods have published."""
        running = self._running
        if running is None:
            return
        table = self._draft.state.table(StateTable.RUNNING)
        for key in sorted(table, key=lambda key: [*map(int, key.split(b" "))]):
            number, _, tick = key.partition(b" ")
            if tick:
                running.absorb(TickRelease.from_bytes(table[key]))
                continue
            said = json.loads(table[key])
            one = running.begun(int(number), said["ticks"], said["step"], said["version"])
            one.units, one.stopped = said["units"], said["stopped"]

    def settled(self) -> None:
        """Drafts what periods pay whose ticks a crash has lost."""
        if self._running is not None:
            for number in self._running.open:
                self._keep(number)
