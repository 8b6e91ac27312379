"""The phases that a query covers: its window, and the parts of a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_dp.calendar_periods import Calendar, Length, span_of, zone_of
from stream_dp.core.outcome import RefusalCode
from stream_dp.errors import InvalidQuery
from stream_dp.messages import Frame, MinusWindow, QueryFields, Series, Window
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.rows.waiting.row_times import TimeSpan


def window_of(dataset: Dataset, query: QueryFields) -> tuple[range, str | None]:
    """Returns the phases that a query covers, from 0, and a note if they differ from what was asked for.

    Raises:
        InvalidQuery: The window cuts a phase, holds none, or is not complete yet.
    """
    window, phases = query.window, dataset.phase
    if window is None:
        return range(phases), None
    if window.last_phases is not None:
        first = phases - window.last_phases
        note = f"the window was clamped to the {phases} phases there are" if first < 0 else None
        return range(max(0, first), phases), note
    if window.phases is not None:
        first, last = window.phases
        if last > phases:
            raise _not_complete(f"phase {phases} is the newest one", "end it there")
        return range(first - 1, last), None
    return _by_time(dataset, window)


def minus_window_of(dataset: Dataset, minus: MinusWindow, window: range) -> range:
    """Returns the phases that a difference takes away. There may be none before the window.

    Args:
        dataset: The data set that is asked.
        minus: The window that is taken away.
        window: The phases of the window that it is taken away from.

    Raises:
        InvalidQuery: It cuts a phase, or no time is known.
    """
    if minus.last_phases is not None:
        return range(max(0, dataset.phase - minus.last_phases), dataset.phase)
    if minus.previous_phases is not None:
        return range(max(0, window.start - minus.previous_phases), window.start)
    assert minus.previous is not None, "the message was checked"
    spans = [_dated(dataset, phase, "minus_window") for phase in window]
    until = min(span.since for span in spans)
    since = Length.read(minus.previous).before(until, calendar_of(dataset, "day").zone)
    return phases_between(dataset, since, until, "minus_window")


def parts_of(dataset: Dataset, window: range, series: Series) -> list[range]:
    """Returns the phases of each part of a series, in their order.

    A part is a phase, or the phases of a day, week or month. A phase of several periods joins them in one
    part.

    Raises:
        InvalidQuery: A series by date is asked, and of some phase no date is known.
    """
    if series == "phase":
        return [range(phase, phase + 1) for phase in window]
    calendar = calendar_of(dataset, series)
    parts: list[tuple[int, range]] = []
    for phase in window:
        span = _dated(dataset, phase, "series")
        first, last = calendar.period(span.since), calendar.period(span.until - 1)
        if span.since == span.until:
            first = last  # late batches alone follow the period that ended before
        start = phase
        while parts and first <= parts[-1][0]:
            last = max(last, parts[-1][0])
            start = parts.pop()[1].start
        parts.append((last, range(start, phase + 1)))
    return [phases for _, phases in parts]


def framed(parts: Sequence[range], frame: Frame | None) -> list[range]:
    """Returns the phases that each answer of a series is about (docs/proofs, Theorem 27).

    Args:
        parts: The phases of each part, as ``parts_of`` returns them: each begins where the last one ends.
        frame: The number of parts that are asked about together, ``running`` for all, None for one. Where
            fewer come before a part, these are taken.
    """
    n = len(parts) if frame == "running" else frame or 1
    firsts = [parts[max(0, place - n + 1)].start for place in range(len(parts))]
    return [range(first, part.stop) for first, part in zip(firsts, parts, strict=True)]


def windows_of(dataset: Dataset, window: range, query: QueryFields) -> list[range]:
    """Returns the phases of each query that a query asks: its window, or those of its series.

    They are in the order in which they are asked: of frames the last one comes first. The first ones are
    shorter, so they take more of a line, which may then have nothing left for the others.
    """
    if query.series is None:
        return [window]
    found = framed(parts_of(dataset, window, query.series), query.frame)
    return found if query.frame is None else found[::-1]


def _by_time(dataset: Dataset, window: Window) -> tuple[range, str | None]:
    spans = [span for span in dataset.phases.spans if span is not None]
    if not spans:
        raise InvalidQuery("window", "no phase has a date", "ask about the last_phases")
    zone = calendar_of(dataset, "day").zone
    if window.last is not None:
        until = _dated(dataset, dataset.phase - 1, "window").until
        since = Length.read(window.last).before(until, zone)
        note = None
    else:
        newest = max(span.until for span in spans)
        complete = max(newest, dataset.rows.waiting.gathering.closed or newest)
        since = (
            min(span.since for span in spans)
            if window.since is None
            else span_of(window.since, zone)[0]
        )
        until = newest if window.until is None else span_of(window.until, zone)[0]
        if until > complete or since >= complete:
            raise _not_complete(
                f"phases are open until {dataset.engine.times.written(complete)}", "end it there"
            )
        note = _note_of_waiting(dataset, TimeSpan(since, until)) if window.until else None
    phases = phases_between(dataset, since, until)
    if not phases:
        raise InvalidQuery("window", "no phase lies in it", f"ask about {_all_of(dataset, spans)}")
    first = min(span.since for span in spans)
    if since < first and window.until is None:
        note = f"the first phase begins at {dataset.engine.times.written(first)}"
    return phases, note


def _note_of_waiting(dataset: Dataset, asked: TimeSpan) -> str | None:
    """Says that rows of the time that was asked about still wait, where phases do not follow the calendar."""
    waiting = dataset.rows.waiting.gathering.span
    if waiting is None or dataset.engine.times.phase.every or not waiting.overlaps(asked):
        return None
    return "rows that came within this time still wait for the next phase"


def phases_between(dataset: Dataset, since: int, until: int, field: str = "window") -> range:
    """Returns the phases between two times, which ``field`` names; none if no phase lies there.

    Raises:
        InvalidQuery: They cut a phase, or the phases are not consecutive.
    """
    asked = TimeSpan(since, until)
    inside = [phase for phase, span in _known(dataset) if _holds(asked, span)]
    cut = [span for _, span in _known(dataset) if span.overlaps(asked) and not _holds(asked, span)]
    if cut:
        raise _cuts(dataset, asked, cut, inside, field)
    phases = range(inside[0], inside[-1] + 1) if inside else range(0)
    if len(phases) > len(inside):
        raise InvalidQuery(
            field,
            "between its phases lie others that are about other times, or have no date",
            'ask about phases by their numbers, such as {"phases": [3, 7]}',
        )
    return phases


def _cuts(
    dataset: Dataset, asked: TimeSpan, cut: Sequence[TimeSpan], inside: Sequence[int], field: str
) -> InvalidQuery:
    """The refusal of a window that cuts phases, with the nearest windows that do not."""
    wider = asked
    while touched := [
        span for _, span in _known(dataset) if span.overlaps(wider) and not _holds(wider, span)
    ]:
        wider = TimeSpan(
            min(wider.since, *(span.since for span in touched)),
            max(wider.until, *(span.until for span in touched)),
        )
    nearest = [wider]
    within = [span for phase, span in _known(dataset) if phase in inside]
    if within:
        nearest.append(TimeSpan(within[0].since, max(span.until for span in within)))
    written = " or ".join(_written(dataset, span) for span in nearest)
    return InvalidQuery(
        field,
        f"it cuts the phase {_written(dataset, cut[0])}, and a window holds whole phases",
        f"ask {written}",
    )


def _known(dataset: Dataset) -> Iterator[tuple[int, TimeSpan]]:
    """The phases of which the time is known, from 0."""
    return ((phase, span) for phase, span in enumerate(dataset.phases.spans) if span is not None)


def _holds(window: TimeSpan, span: TimeSpan) -> bool:
    """Whether a phase lies in a window. One of late batches alone goes with the period before it."""
    if span.since == span.until:
        return window.since < span.since <= window.until
    return window.since <= span.since and span.until <= window.until


def _dated(dataset: Dataset, phase: int, field: str) -> TimeSpan:
    span = dataset.phases.spans[phase]
    if span is None:
        raise InvalidQuery(
            field,
            f"phase {phase + 1} has no date",
            'ask about phases by their numbers, or for a series "phase"',
        )
    return span


def calendar_of(dataset: Dataset, unit: str) -> Calendar:
    """The periods of one unit in the time zone of the data set."""
    return Calendar(Length.read(f"1 {unit}"), zone_of(dataset.engine.times.phase.timezone))


def _written(dataset: Dataset, span: TimeSpan) -> str:
    written = dataset.engine.times.written
    return f"since {written(span.since)} until {written(span.until)}"


def _all_of(dataset: Dataset, spans: Sequence[TimeSpan]) -> str:
    since, until = min(span.since for span in spans), max(span.until for span in spans)
    return f"some time {_written(dataset, TimeSpan(since, until))}"


def _not_complete(problem: str, fix: str) -> InvalidQuery:
    """The refusal of a window that reaches beyond the phases that are open."""
    return InvalidQuery(
        "window",
        f"it is not complete yet: {problem}",
        f"{fix}, or ask again later under a new id",
        reason=RefusalCode.NOT_COMPLETE.value,
    )
