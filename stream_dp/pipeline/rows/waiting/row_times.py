"""The times of the rows that wait: which periods they are about, and when a period has ended.

Everything here follows from the times of batches, which their producers or the broker set. No clock is read,
so batches in the same order lead to the same phases, whenever they are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from stream_dp.calendar_periods import LATEST_MS, Length, span_of, written, zone_of
from stream_dp.messages import PhaseSpec

EVERY_TIME: Final = range(-(2**31), LATEST_MS)
"""All times under which rows wait."""


def late_time(phase: int) -> range:
    """The time under which the late rows of a phase wait: its number below 0."""
    return range(-phase, 1 - phase)


@dataclass(frozen=True, slots=True, order=True)
class TimeSpan:
    """A stretch of time, in milliseconds since 1970.

    Attributes:
        since: The time at which it begins.
        until: The time at which it has ended. A phase of late batches alone ends where it begins.
    """

    since: int
    until: int

    def overlaps(self, other: TimeSpan) -> bool:
        """Whether some time is in both."""
        return self.since < other.until and other.since < self.until


class Dates(TypedDict):
    """The stretch of time that some phases cover; None where it is not known."""

    since: str | None
    until: str | None


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """A stretch of time whose rows wait: one period, or several of which the first ones had too few rows.

    Attributes:
        since: The time at which it begins.
        until: The time at which it ends.
        due: The time of the broker's clock at which it closes. None where a batch of a later period, or a
            message, closes it.
    """

    since: int
    until: int
    due: int | None = None


@dataclass(frozen=True, slots=True)
class Gathering:
    """The public facts about the times of the rows that wait.

    Attributes:
        periods: The periods that wait, in order. Where phases do not follow the calendar it is one at most.
        closed: The time up to which all periods have closed. A batch about an earlier time is late.
        late: The number of late batches that wait. They join the phase that opens next.
        now: The latest time that the broker's clock showed, where it closes periods.
    """

    periods: tuple[Period, ...] = ()
    closed: int | None = None
    late: int = 0
    now: int | None = None

    @classmethod
    def from_text(cls, text: str) -> Gathering:
        """Reads what ``to_text`` wrote. An empty text is that of a data set in which no time was seen."""
        said = json.loads(text) if text else {}
        periods = tuple(Period(*one) for one in said.pop("periods", ()))
        return cls(periods, **said)

    def to_text(self) -> str:
        """Writes what is set as JSON, to be kept with the data set."""
        periods = [[one.since, one.until, one.due] for one in self.periods]
        said = {"periods": periods or None, "closed": self.closed, "late": self.late or None}
        known = {**said, "now": self.now}
        return json.dumps({name: value for name, value in known.items() if value is not None})

    @property
    def span(self) -> TimeSpan | None:
        """The stretch of time that a phase covers if it opens now. None if no time is known."""
        if self.periods:
            return TimeSpan(self.periods[0].since, self.periods[0].until)
        if self.late and self.closed is not None:
            return TimeSpan(self.closed, self.closed)
        return None

    @property
    def end(self) -> int:
        """When the first period ends."""
        return self.periods[0].until if self.periods else LATEST_MS

    @property
    def first(self) -> range:
        """The times under which the rows wait that are in the phase that opens next."""
        return range(self.end)


@dataclass(frozen=True, slots=True)
class Times:
    """The rules by which times of batches become times of phases.

    A period closes when the broker's clock says so, or when a batch of a later one comes. The second holds
    where nothing is said of the clock, and for what is in the past when its first batch comes: so a table's
    history makes a phase of each period, as fast as it is sent.

    Attributes:
        phase: The setting of the data set.
    """

    phase: PhaseSpec

    def span(self, time: str | None, dated_ms: int) -> TimeSpan | None:
        """Returns the stretch of time that a batch is about. None if it has no time.

        Args:
            time: The time that the batch names.
            dated_ms: The timestamp of its record, or -1 if it has none. One of the far future does not count.
        """
        if time is not None:
            span = TimeSpan(*span_of(time, zone_of(self.phase.timezone)))
        elif 0 <= dated_ms < LATEST_MS:
            span = TimeSpan(dated_ms, dated_ms + 1)
        else:
            return None
        calendar = self.phase.calendar
        if calendar is None:
            return span
        period = calendar.period(span.since)
        return TimeSpan(calendar.start(period), calendar.start(period + 1))

    def period(self, dated_ms: int) -> TimeSpan | None:
        """Returns the period of a time. None if phases do not follow the calendar, or if there is no time."""
        return None if self.phase.calendar is None else self.span(None, dated_ms)

    # ------------------------------------------------------------ when periods close

    def at(self, waiting: Gathering, dated_ms: int) -> Gathering:
        """Returns the facts once the broker's clock has shown a time."""
        if self.phase.close is None or dated_ms >= LATEST_MS or dated_ms <= (waiting.now or -1):
            return waiting
        return replace(waiting, now=dated_ms)

    def ends(self, waiting: Gathering, batch: TimeSpan | None) -> bool:
        """Returns whether the first period that waits closes, by the clock or before a batch joins."""
        if self.phase.calendar is None or not waiting.periods:
            return False
        first = waiting.periods[0]
        if first.due is not None and waiting.now is not None and first.due <= waiting.now:
            return True
        return not self.is_current(first) and batch is not None and batch.since >= first.until

    def is_current(self, period: Period) -> bool:
        """Whether a period had not closed when its first rows came, so that the clock alone closes it."""
        return period.due is not None and period.due == self._due(period.until, period.until)

    def _due(self, until: int, dated_ms: int) -> int | None:
        """When a period closes whose first batch has come at a time; None where no clock closes any."""
        if self.phase.close is None or dated_ms < 0:
            return None
        after, zone = Length.read(self.phase.close.after), zone_of(self.phase.timezone)
        due = after.after(until, zone)
        return due if dated_ms < due else after.after(dated_ms, zone)

    def joined(self, waiting: Gathering, batch: TimeSpan | None) -> Gathering:
        """Returns the facts once the first period, which has too few rows, joins the next one.

        That is the one that waits behind it, or else that of the batch, which is later; or none so far.
        """
        first, *others = waiting.periods
        if others:
            first, *others = replace(others[0], since=first.since), *others[1:]
        elif batch is not None and batch.since >= first.until:
            first = Period(first.since, batch.until, self._due(batch.until, waiting.now or -1))
        else:
            first = replace(first, due=None)
        return replace(waiting, periods=(first, *others))

    def after_phase(self, waiting: Gathering, batch: TimeSpan | None = None) -> Gathering:
        """Returns the facts once the first period has opened a phase.

        Args:
            waiting: The facts about what waited.
            batch: What the batch in hand is about. None if there is none.
        """
        if self.phase.calendar is None:
            return Gathering()
        closed, left = waiting.closed, waiting.periods[1:]
        if waiting.periods:
            closed = waiting.periods[0].until
            later = [one.since for one in (*left, batch) if one is not None]
            if batch is not None:
                closed = max(closed, min(later))
        return replace(waiting, periods=left, closed=closed, late=0)

    # ------------------------------------------------------------ a batch

    def with_batch(
        self, waiting: Gathering, batch: TimeSpan | None, *, dated_ms: int = -1, splits: bool = True
    ) -> tuple[Gathering, int]:
        """Returns the facts about what waits once a batch has joined it, and the time that it waits under.

        Args:
            waiting: The facts about what waits.
            batch: What the batch is about; None where no time is known. It joins the phase that opens next.
            dated_ms: The time of the broker's clock.
            splits: Whether its period may become one that comes before others that wait.
        """
        if batch is None:
            return waiting, 0
        if self.phase.calendar is None:
            known = (*waiting.periods, Period(batch.since, batch.until))
            since, until = min(one.since for one in known), max(one.until for one in known)
            return Gathering((Period(since, until),)), 0
        for one in waiting.periods:
            if one.since <= batch.since < one.until:
                return waiting, batch.since
        later = [one for one in waiting.periods if one.since > batch.since]
        if (waiting.closed is not None and batch.since < waiting.closed) or (later and not splits):
            return replace(waiting, late=waiting.late + 1), 0
        period = Period(batch.since, batch.until, self._due(batch.until, dated_ms))
        return replace(waiting, periods=tuple(sorted((*waiting.periods, period)))), batch.since

    def dates(self, spans: Sequence[TimeSpan | None]) -> Dates:
        """Returns when some phases begin and have ended, as messages write it."""
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return Dates(since=None, until=None)
        since, until = min(span.since for span in known), max(span.until for span in known)
        return Dates(since=self.written(since), until=self.written(until))

    def written(self, time_ms: int) -> str:
        """Writes a time as the messages do: as a date of the data set's zone, or with an offset."""
        return written(time_ms, zone_of(self.phase.timezone))
