"""P16: by the calendar, a phase opens when its period ends or is closed, and gets its late rows once."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import Record
from tests.pipeline.held import batch_name
from tests.pipeline.referee.evidence import first_batches, given_up_by_commit, parsed, records_of
from tests.pipeline.world import World


def periods_hold(world: World) -> Iterator[str]:
    """P16: by the calendar, a phase opens when its period ends or is closed; a closing has one outcome.

    Which batch is late, and which days a phase covers, follows from the log and the order of what is on the
    journal. Whether a period ends is decided here once more, day by day.
    """
    for name, held in world.durable().items():
        if held.definition is None or calendar_of(world, name) is None:
            continue
        periods = Periods(world, name)
        yield from periods.said
        if len(periods.opened) - 1 != len(held.spent):
            yield f"P16: {name} has {len(held.spent)} phases and opened {len(periods.opened) - 1}"
        rejected = world.rejections()
        closings = [
            record
            for record in records_of(world, name)
            if record.role == "datasets"
            and "close" in (parsed(record) or {})
            and (record.topic, record.partition, record.offset) not in rejected
        ]
        if len(closings) != periods.closed:
            yield f"P16: {name} has closed {periods.closed} times, and was told to {len(closings)} times"


def joined(world: World, name: str) -> dict[str, int]:
    """The block that each accepted batch joined, or will at the earliest."""
    if calendar_of(world, name) is not None:
        phases = Periods(world, name).phases
        return {named: at for at, some in enumerate(phases) for named in some}
    found, opened = dict[str, int](), 0  # those of a phase are told of before it opens
    for event in world.events():
        if event["dataset"] == name:
            opened += event["event"] == "phase_opened"
            if event["event"] == "batch_accepted":
                found.setdefault(batch_name(event), opened)
    return found


def calendar_of(world: World, name: str) -> ZoneInfo | None:
    """The time zone of a data set whose phases follow the days. None if they go by rows alone."""
    phase = json.loads(world.held(name).definition or b"{}").get("phase", {})
    assert phase.get("every") in (None, "1 day"), "the referee counts in days"
    return ZoneInfo(phase.get("timezone", "UTC")) if "every" in phase else None


@dataclass
class Waiting:
    """A period that waits, in days. Of ``due`` the referee knows the time by which the clock closes it."""

    since: date
    until: date
    due: float | None


@dataclass
class Batch:
    """A batch that waits. One without a day is in the phase that opens next, one that is late in its own."""

    named: str
    rows: int
    day: date | None
    late_phase: int | None


class Periods:
    """What the journal says of a data set by the calendar, day by day.

    Its records of batches are read again in their order, and after each what must have happened is compared
    with what was announced.

    Attributes:
        phases: The names of the batches of each phase, and last of those that wait.
        opened: The same as phases opened: late ones do not count there.
        late: The names of the batches that came to each phase late, by its number.
        closed: How many outcomes of closings there are.
        said: What is wrong.
    """

    def __init__(self, world: World, name: str) -> None:
        self.opened: list[list[str]] = []
        self.late: dict[int, list[str]] = {}
        self.closed = 0
        self.said: list[str] = []
        self._zone, self._name = calendar_of(world, name), name
        self._first = first_batches(world).get(name, {})
        definition = json.loads(world.held(name).definition or b"")
        self._least = definition["phase"]["min_rows"]
        self._after = definition["phase"].get("close", {}).get("after")
        self._within = definition["phase"].get("late", {}).get("within")
        self._kept = (definition.get("retention") or {}).get("phases")
        self._delta = Fraction(str(definition["privacy"]["delta"]))
        self._waiting: list[Batch] = []
        self._dates: list[tuple[date | None, date | None]] = []  # of each phase
        self._periods: list[Waiting] = []
        self._ended: date | None = None  # all days before this one
        self._n_late, self._now, self._versions = 0, -1.0, list[int]()
        self._events = self._told(world)
        at = f"in.batches:{partition_of(name.encode(), world.partitions)}"
        for record in world.log.get(at, ()):
            if not self._events:
                break
            self._read(record)
        self._next(None)
        if self._events:
            self.said.append(f"P16: {name} has told of {self._events[0]} before its time")
        self.opened.append([one.named for one in self._waiting if one.late_phase is None])
        wait = [one.named for one in self._waiting if one.late_phase is not None]
        self.phases = [[*of, *self.late.get(at, ())] for at, of in enumerate(self.opened, 1)]
        self.phases[-1] += wait

    def _told(self, world: World) -> deque[dict[str, Any]]:
        """What was announced about periods, each batch once."""
        events = deque[dict[str, Any]]()
        gone, known = given_up_by_commit(world, self._name), set[str]()
        for one in world.held(self._name).said:
            if one.number in gone:
                events.append({"event": "given up", "batches": gone[one.number]})
            for event in one.events():
                # One whose records were all rejected breaks P4, and nobody knows what was in it.
                named = batch_name(event) if event["event"] == "batch_accepted" else ""
                kinds = ("phase_opened", "phase_closed", "phase_complete", "schema_changed")
                if event["event"] in kinds:
                    events.append(event)
                elif named in self._first and named not in known:
                    known.add(named)
                    events.append(event)
        return events

    def _next(self, kind: str | None) -> dict[str, Any] | None:
        """The next event if it is of this kind. What no batch leads to is done before."""
        while self._events:
            event = self._events[0]
            if event["event"] == "phase_closed":
                self.closed += 1
                self._events.popleft()
                opened = self._events[0] if self._events else {}
                if opened.get("event") == "phase_opened" and opened["phase"] == event["phase"]:
                    self._opened(self._events.popleft(), None, closed=True)
            elif event["event"] == "given up":
                lost = self._events.popleft()["batches"]
                self._waiting = [one for one in self._waiting if one.named not in lost]
            elif event["event"] == "phase_complete" and kind != "phase_complete" and self._early():
                self._complete(self._events.popleft())
            elif event["event"] == "schema_changed":
                self._versions.append(self._events.popleft()["phase"])
            else:
                return event if event["event"] == kind else None
        return None

    def _read(self, record: Record) -> None:
        """Follows one record of the topic of batches."""
        document = parsed(record) or {}
        named = batch_name(document) if "clock" not in document else ""
        ours = self._first.get(named) is record or (
            "clock" in document and document["dataset"] == self._name
        )
        if not ours or (named and not any(self._is_about(named, event) for event in self._events)):
            return  # another's, or never accepted
        self._next(None)
        day = self._day(named) if named else None
        self._now = max(self._now, record.timestamp_ms)
        while (complete := self._completes(day)) or self._ends(day):
            if complete:
                if self._next("phase_complete") is None:
                    return  # it is in hand
                self._complete(self._events.popleft())
                continue
            first = self._periods[0]
            opened = self._next("phase_opened")
            if self._rows_before(first.until) >= self._least:
                if opened is None:
                    if named and self._next("batch_accepted"):
                        self.said.append(
                            f"P16: {self._name} has not opened a phase before {named} of {day}"
                        )
                    return  # it is in hand
                self._opened(self._events.popleft(), day, closed=False)
            elif len(self._periods) > 1:
                self._periods[:2] = [replace(self._periods[1], since=first.since)]
            elif day is not None and day >= first.until:
                until = day + timedelta(days=1)
                self._periods = [Waiting(first.since, until, self._due(until, self._now))]
            else:
                first.due = None
        accepted = self._next("batch_accepted") if named else None
        if accepted is not None and batch_name(accepted) == named:
            self._accepted(named, day, record.timestamp_ms, self._events.popleft())

    @staticmethod
    def _is_about(named: str, event: Mapping[str, Any]) -> bool:
        return event["event"] == "batch_accepted" and batch_name(event) == named

    def _ms(self, day: date) -> float:
        return 1000 * datetime.combine(day, time.min, self._zone).timestamp()

    def _due(self, until: date, now: float) -> float | None:
        if self._after is None or now < 0:
            return None
        number, unit = self._after.split(" ")
        after = int(number) * {"minute": 60_000, "hour": 3_600_000}[unit.removesuffix("s")]
        regular = self._ms(until) + after
        return regular if now < regular else now + after

    def _completes(self, day: date | None) -> bool:
        """Whether the next phase is complete, before a period that closes now does so."""
        number = len(self.late)
        if self._within is None or number == len(self.opened):
            return False
        until = self._dates[number][1]
        due = self._complete_at(until) if until else 0
        ends = self._periods[0].due if self._ends(day) else None
        return due <= (self._now if ends is None else min(self._now, ends))

    def _complete_at(self, until: date) -> float:
        number, unit = self._within.split(" ")
        assert unit.removesuffix("s") == "day", "the referee counts in days"
        return self._ms(until + timedelta(days=int(number)))

    def _early(self) -> bool:
        """Whether phases are complete before the time: attributes change, or the rows are to be erased."""
        then = next((e for e in self._events if e["event"] != "phase_complete"), {"event": ""})
        if then["event"] == "schema_changed":
            return True
        if self._kept is None or then["event"] not in ("phase_opened", "phase_closed"):
            return False
        return bool(self._events[0]["phase"] <= int(then["phase"]) - self._kept)

    def _complete(self, event: Mapping[str, Any]) -> None:
        """Compares what came to a phase late with what waited for it."""
        phase = len(self.late) + 1
        of_it = [one for one in self._waiting if one.late_phase == phase]
        since, until = self._dates[phase - 1]
        told = event["phase"], event["rows"], event.get("since", ""), event.get("until", "")
        rows = sum(one.rows for one in of_it)
        if told != (phase, rows, str(since or ""), str(until or "")):
            self.said.append(
                f"P16: {self._name} has told otherwise what came late to phase {phase}"
            )
        self._waiting = [one for one in self._waiting if one not in of_it]
        self.late[phase] = [one.named for one in of_it]

    def _late_phase(self, day: date, now: float) -> int | None:
        """The phase that late rows of a day come to: the first incomplete one that ends behind it."""
        if self._within is None or self._complete_at(day + timedelta(days=1)) <= max(
            now, self._now
        ):
            return None
        ends = [until for _, until in self._dates]
        later = [phase for phase, until in enumerate(ends, 1) if until is not None and until > day]
        phase = min(later, default=0)
        to_come = range(len(ends) + 1, len(ends) + 2 + len(self._periods))
        versions = {sum(v <= one for v in self._versions) for one in (phase, *to_come)}
        return phase if phase > len(self.late) and len(versions) == 1 else None

    def _ends(self, day: date | None) -> bool:
        if not self._periods:
            return False
        first = self._periods[0]
        if first.due is not None and first.due <= self._now:
            return True
        waits_for_clock = first.due is not None and first.due == self._due(first.until, 0)
        return not waits_for_clock and day is not None and day >= first.until

    def _rows_before(self, until: date) -> int:
        to_come = (one for one in self._waiting if one.late_phase is None)
        return sum(one.rows for one in to_come if one.day is None or one.day < until)

    def _size_of(self, named: str) -> int:
        document = json.loads(self._first[named].value or b"")
        if "cells" in document:
            return sum(cell["count"] for cell in document["cells"])
        rows: Any = document.get("rows") or next(iter(document.get("columns", {"": []}).values()))
        return len(rows)

    def _day(self, named: str) -> date | None:
        """The day that a batch is about: the one that it names, or that of its record."""
        record = self._first[named]
        said = json.loads(record.value or b"").get("time")
        if said is not None:
            return date.fromisoformat(said)
        if record.timestamp_ms < 0:
            return None
        return datetime.fromtimestamp(record.timestamp_ms / 1000, self._zone).date()

    def _accepted(self, named: str, day: date | None, now: float, event: Mapping[str, Any]) -> None:
        size, opened = self._size_of(named), len(self.opened)
        inside = day is not None and any(p.since <= day < p.until for p in self._periods)
        splits = day is not None and any(p.since > day for p in self._periods)
        changes = any(opened + 1 < v <= opened + 1 + len(self._periods) for v in self._versions)
        late = day is not None and not inside
        late = late and bool((self._ended and day < self._ended) or (splits and changes))  # type: ignore[operator]
        came_to = None
        if late and day is not None and self._ended and day < self._ended:
            came_to = self._late_phase(day, now)
        if late:
            self._n_late += came_to is None
        elif day is not None and not inside:
            until = day + timedelta(days=1)
            self._periods.append(Waiting(day, until, self._due(until, now)))
            self._periods.sort(key=lambda one: one.since)
        self._waiting.append(Batch(named, size, None if late else day, came_to))
        waiting = sum(one.rows for one in self._waiting if one.late_phase is None)
        about = event["late"], event.get("late_phase"), event.get("since")
        told = event["phase"], event["waiting"], event["rows"], *about
        if told != (opened, waiting, size, late, came_to, None if day is None else str(day)):
            self.said.append(f"P16: {self._name} has told otherwise what {named} has come to")

    def _opened(self, event: Mapping[str, Any], day: date | None, *, closed: bool) -> None:
        """Compares a phase with what waited. It was closed, or has ended."""
        phase = len(self.opened) + 1
        first = self._periods[0] if self._periods else None
        end = first.until if first else date.max
        to_come = [one for one in self._waiting if one.late_phase is None]
        of_it = [one for one in to_come if one.day is None or one.day < end]
        rows = sum(one.rows for one in of_it)
        may_be_small = closed and 100 * rows * self._delta <= 1
        if rows < (math.ceil(self._least / 4) if may_be_small else self._least):
            self.said.append(f"P16: {self._name} has opened phase {phase} before its time")
        since, until = (first.since, first.until) if first else (self._ended, self._ended)
        dates = str(since or ""), str(until or "")
        told = event.get("since", ""), event.get("until", "")
        if (event["phase"], event["rows"], event["late_batches"], *told) != (
            *(phase, rows, self._n_late),
            *dates,
        ):
            self.said.append(f"P16: phase {phase} of {self._name} is another one than was told")
        self._waiting = [one for one in self._waiting if one not in of_it]
        self._dates.append((since, until))
        self._periods, self._n_late = self._periods[1:], 0
        if first is not None:
            self._ended = first.until
            if day is not None:
                later = min([day, *(one.since for one in self._periods)])
                self._ended = max(self._ended, later)
        self.opened.append([one.named for one in of_it])
