"""The times of the rows that wait: which periods they are about, and when a period has ended.

Everything here follows from the times of batches, which their producers or the broker set. No clock is read,
so batches in the same order lead to the same phases, whenever they are read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from stream_dp.calendar_periods import LATEST_MS, span_of, written, zone_of
from stream_dp.messages import PhaseSpec


@dataclass(frozen=True, slots=True, order=True)
class TimeSpan:
    """A stretch of time, in milliseconds since 1970.

    Attributes:
        since: The time at which it begins.
        until: The time at which it has ended. A phase of late batches alone ends where it begins.
    """

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Gathering:
    """The public facts about the times of the rows that wait.

    Attributes:
        since: The time at which the first period begins that waits. None while none does.
        until: The time at which the last one ends.
        closed: The time up to which all periods have ended. A batch about an earlier time is late.
        late: The number of late batches that wait.
    """

    since: int | None = None
    until: int | None = None
    closed: int | None = None
    late: int = 0

    @classmethod
    def from_text(cls, text: str) -> Gathering:
        """Reads what ``to_text`` wrote. An empty text is that of a data set in which no time was seen."""
        return cls(**json.loads(text)) if text else cls()

    def to_text(self) -> str:
        """Writes what is set as JSON, to be kept with the data set."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.late:
            del said["late"]
        return json.dumps(said)

    @property
    def span(self) -> TimeSpan | None:
        """The stretch of time that a phase covers if it opens now. None if no time is known."""
        if self.since is not None and self.until is not None:
            return TimeSpan(self.since, self.until)
        if self.late and self.closed is not None:
            return TimeSpan(self.closed, self.closed)
        return None


@dataclass(frozen=True, slots=True)
class Times:
    """The rules by which times of batches become times of phases.

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

    def ends(self, waiting: Gathering, batch: TimeSpan | None) -> bool:
        """Returns whether a batch is about a later period than all that wait, which have ended then."""
        return (
            self.phase.calendar is not None
            and batch is not None
            and waiting.until is not None
            and batch.since >= waiting.until
        )

    def with_batch(self, waiting: Gathering, batch: TimeSpan | None) -> Gathering:
        """Returns the facts about what waits once a batch has joined it."""
        if batch is None:
            return waiting
        if self.phase.calendar is None:
            since = batch.since if waiting.since is None else min(waiting.since, batch.since)
            until = batch.until if waiting.until is None else max(waiting.until, batch.until)
            return Gathering(since, until)
        begins = waiting.closed if waiting.since is None else waiting.since
        if begins is not None and batch.since < begins:
            return replace(waiting, late=waiting.late + 1)
        if waiting.since is None:
            return replace(waiting, since=batch.since, until=batch.until)
        assert waiting.until is not None, "they are set together"
        return replace(waiting, until=max(waiting.until, batch.until))

    def after_phase(self, waiting: Gathering, batch: TimeSpan | None = None) -> Gathering:
        """Returns the facts once everything that waited has opened a phase.

        Args:
            waiting: The facts about what waited.
            batch: What the batch is about that has ended the periods. None if they were closed.
        """
        if self.phase.calendar is None:
            return Gathering()
        if batch is not None:
            return Gathering(closed=batch.since)
        return Gathering(closed=waiting.closed if waiting.until is None else waiting.until)

    def written(self, time_ms: int) -> str:
        """Writes a time as the messages do: as a date of the data set's zone, or with an offset."""
        return written(time_ms, zone_of(self.phase.timezone))
