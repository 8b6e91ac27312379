"""Queries about time that is not over: sealed phases, and open periods with their newest ticks.

Nothing is looked at for them. An answer says until which tick each open period counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stream_dp.calendar_periods import LATEST_MS, Calendar, Length, span_of
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.running.counts_so_far import CountsSoFar, counts_so_far
from stream_dp.core.running.running_periods import RunningPeriod
from stream_dp.errors import InvalidQuery
from stream_dp.messages import Answer, BudgetShares, PeriodSoFar, QueryFields, Series, Window
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.queries.compiler import Compiled
from stream_dp.pipeline.queries.reply import DatedPart, ReplyMaker
from stream_dp.pipeline.queries.windows import calendar_of, parts_of, phases_between
from stream_dp.pipeline.rows.waiting.row_times import TimeSpan


class _Open(NamedTuple):
    """An open period of a window.

    Attributes:
        span: The time that it is about.
        period: Its running totals.
    """

    span: TimeSpan
    period: RunningPeriod


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a window with running holds.

    Attributes:
        sealed: Its sealed phases, from 0. There may be none.
        open: Its open periods, in order. There may be none.
    """

    sealed: range
    open: Sequence[_Open]

    def span(self, dataset: Dataset) -> TimeSpan:
        """The time that it is about."""
        sealed = (dataset.phases.spans[phase] for phase in self.sealed)
        spans = [one for one in (*sealed, *(one.span for one in self.open)) if one is not None]
        return TimeSpan(min(one.since for one in spans), max(one.until for one in spans))

    def window(self, dataset: Dataset) -> tuple[int, int]:
        """The first and the last phase, counted from 1. What is open goes by the phase that is to open."""
        first = self.sealed.start if self.sealed else dataset.phase
        return first + 1, dataset.phase + 1 if self.open else self.sealed.stop


def is_running(window: Window | None) -> bool:
    """Whether the rows so far of open periods count in a window."""
    return window is not None and window.running is True


def answer_so_far(replying: ReplyMaker, compiled: Compiled) -> Answer:
    """Answers or quotes a query whose window has ``running``. It costs nothing.

    Raises:
        InvalidQuery: The window cuts a phase or a period.
    """
    dataset, window = replying.dataset, replying.query.window
    assert window is not None, "the caller looks"
    if dataset.mechanism.running is None:
        return replying.refused(
            _not_running(
                "this data set has no running totals, so nothing is told before a phase opens; leave running "
                "out and ask about dates, such as since 2026-11-01 (in SQL: day >= DATE '2026-11-01')"
            )
        )
    found = _asked_of(dataset, window)
    if isinstance(found, Refused):
        return replying.refused(found)
    series = replying.query.series
    if series is None:
        return _told(replying, compiled, found)
    single = replace(replying, query=replying.query.model_copy(update={"series": None}))
    dates = dataset.engine.times.dates
    parts = [
        DatedPart(one.window(dataset), dates([one.span(dataset)]), _told(single, compiled, one))
        for one in _parts(dataset, found, series)
    ]
    return replying.series_so_far(parts, _facts(replying, found))


def _told(replying: ReplyMaker, compiled: Compiled, found: _Asked) -> Answer:
    """The answer or the quote about a window, or about one part of a series."""
    dataset = replying.dataset
    asked = compiled.on(found.sealed or range(dataset.phase, dataset.phase + 1))
    outcome = _outcome(dataset, asked, found)
    recorded = dataset.mechanism.recorded(asked) if found.sealed else None
    return replying.so_far(asked, outcome, _facts(replying, found), recorded)


def _parts(dataset: Dataset, found: _Asked, series: Series) -> list[_Asked]:
    """The parts of a series, in order. Open periods are in the last ones."""
    parts = [_Asked(phases, []) for phases in parts_of(dataset, found.sealed, series)]
    for one in found.open:
        calendar = calendar_of(dataset, "day" if series == "phase" else series)
        if series != "phase" and parts:
            ends = calendar.period(parts[-1].span(dataset).until - 1)
            if ends == calendar.period(one.span.since):
                parts[-1] = _Asked(parts[-1].sealed, [*parts[-1].open, one])
                continue
        parts.append(_Asked(range(0), [one]))
    return parts


def _outcome(dataset: Dataset, asked: AnyQuery, found: _Asked) -> Outcome:
    assert isinstance(asked, LinearQuery), "counts and tables alone are asked so"
    shape = dataset.universe.shape
    came = CountsSoFar.nothing(math.prod(shape[a] for a in asked.group_by))
    for _, period in found.open:
        if period.totals.tick:
            one = counts_so_far(period.totals, asked, dataset.phases.ticking.n_rows(period))
            if one is None:
                return _not_running(_untold(dataset, period))
            came = came.plus(one)
    assert isinstance(dataset.mechanism, Calibrated), "no other mechanism has running totals"
    return dataset.mechanism.so_far(asked, found.sealed, came)


def _untold(dataset: Dataset, period: RunningPeriod) -> str:
    running, periods = dataset.engine.first.running, dataset.mechanism.running
    assert running is not None and periods is not None, "there are running totals"  # noqa: PT018
    if not periods.is_current(period):
        return (
            "the attributes have changed since this period began, and its running totals are of the older "
            "ones; ask again when it has closed"
        )
    tiles = ", ".join(tile.model_dump_json(exclude_defaults=True) for tile in running.tiles)
    return (
        f"the running totals do not tell this: their tiles are {tiles}; ask for sums of the cells of one of "
        "them, or leave running out and ask about phases that have closed"
    )


# ---------------------------------------------------------------- alerts at ticks


def holds_one_period(dataset: Dataset, query: QueryFields) -> bool:
    """Whether the window of a query is the open period alone, at any time."""
    every, window = dataset.definition.phase.every, query.window
    if every is None or window is None or window.last is None:
        return False
    return Length.read(window.last) == Length.read(every)


def wider_at_all_ticks(dataset: Dataset, since_ms: int) -> float | None:
    """How many times as wide the bar is that holds at all ticks of the newest period.

    None if the period began before a time: an analyst may have seen what was published of it.
    """
    period = dataset.phases.ticking.told()
    if period is None or dataset.phases.ticking.span_of(period.number).since < since_ms:
        return None
    plan, tick = period.totals.plan, period.totals.tick
    return plan.bar_all_ticks(tick) / plan.bar(tick)


# ---------------------------------------------------------------- the window


def _asked_of(dataset: Dataset, window: Window) -> _Asked | Refused:
    """What a window holds, or why that is not told."""
    every, asked = list(_open(dataset)), _time_of(dataset, window)
    found = [one for one in every if one.span.overlaps(asked)]
    written = dataset.engine.times.written
    for span, _ in found:
        if not (asked.since <= span.since and span.until <= asked.until):
            raise InvalidQuery(
                "window",
                f"it cuts the period {written(span.since)}, and a window holds whole periods",
                f"ask about all of it, since {written(span.since)} until {written(span.until)}",
            )
    untold = [one for one in _waiting(dataset) if one.overlaps(asked)]
    for span in untold:
        if all(span != one.span for one in found):
            return _not_running(
                f"rows of {written(span.since)} may wait, and this period has no running totals; ask about "
                "other days, or again when it has closed"
            )
    sealed = phases_between(dataset, asked.since, asked.until)
    if not sealed and not found:
        return _not_running(
            "no row of this time has come; ask again later under a new id", later=True
        )
    if not sealed and not any(one.period.totals.tick for one in found):
        return _not_running(
            "the first tick of this period is still to come; ask again then under a new id",
            later=True,
        )
    return _Asked(sealed, found)


def _open(dataset: Dataset) -> Iterator[_Open]:
    """The open periods that have running totals, in order."""
    ticking, running = dataset.phases.ticking, dataset.mechanism.running
    assert running is not None, "there are running totals"
    for number in sorted(running.open):
        yield _Open(ticking.span_of(number), running.open[number])


def _waiting(dataset: Dataset) -> Iterator[TimeSpan]:
    """The periods of which rows may wait."""
    calendar = dataset.engine.times.phase.calendar
    assert calendar is not None, "only periods have running totals"
    for one in dataset.rows.waiting.gathering.periods:
        for number in range(calendar.period(one.since), calendar.period(one.until)):
            yield TimeSpan(calendar.start(number), calendar.start(number + 1))


def _time_of(dataset: Dataset, window: Window) -> TimeSpan:
    zone = calendar_of(dataset, "day").zone
    if window.last is None:
        since = 0 if window.since is None else span_of(window.since, zone)[0]
        until = LATEST_MS if window.until is None else span_of(window.until, zone)[0]
        return TimeSpan(since, until)
    now, asked_ms = dataset.rows.waiting.gathering.now or 0, dataset.draft.dated_ms
    return _last(dataset, window.last, max(now, asked_ms if asked_ms < LATEST_MS else 0))


def at_tick(dataset: Dataset, window: Window, minute: int) -> Window:
    """The same window by its dates, as it is at the tick at a minute since 1970."""
    if window.last is None:
        return window
    span, written = _last(dataset, window.last, 60_000 * minute - 1), dataset.engine.times.written
    return Window(since=written(span.since), until=written(span.until), running=True)


def _last(dataset: Dataset, text: str, now: int) -> TimeSpan:
    length, zone = Length.read(text), calendar_of(dataset, "day").zone
    calendar = dataset.engine.times.phase.calendar
    assert calendar is not None, "only periods have running totals"
    units = calendar, Calendar(Length(1, length.unit), zone)
    until = max(unit.start(unit.period(now) + 1) for unit in units)
    return TimeSpan(length.before(until, zone), until)


def _not_running(why: str, *, later: bool = False) -> Refused:
    return Refused(RefusalCode.NOT_RUNNING, f"window: {why}", retriable=later)


# ---------------------------------------------------------------- what the answer says


def _facts(replying: ReplyMaker, found: _Asked) -> dict[str, Any]:
    """The fields of the answer about its window."""
    dataset, phase = replying.dataset, replying.dataset.phase
    ticking, written = dataset.phases.ticking, dataset.engine.times.written
    periods = tuple(
        PeriodSoFar(
            since=written(span.since),
            until=written(ticking.newest_tick(period)),
            rows=ticking.n_rows(period),
        )
        for span, period in found.open
    )
    if found.sealed:
        facts: dict[str, Any] = {**dataset.facts_of(found.sealed, replying.analyst)}
    else:
        spent = max(period.units for _, period in found.open) / UNITS
        budget = BudgetShares(spent=round(spent, 6), left=round(1.0 - spent, 6))
        facts = {"n": 0, "budget": budget, "phase": phase, "since": periods[0].since}
    if periods:
        facts |= {"window": found.window(dataset), "until": periods[-1].until}
    return {**facts, "n": facts["n"] + sum(one.rows for one in periods), "running": periods}
