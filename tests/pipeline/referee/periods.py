"""P16: by the calendar, a phase opens when its period ends or is closed."""

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
        if len(periods.phases) - 1 != len(held.spent):
            yield f"P16: {name} has {len(held.spent)} phases and opened {len(periods.phases) - 1}"
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


class Periods:
    """What the journal says of a data set by the calendar, day by day.

    Its records of batches are read again in their order, and after each what must have happened is compared
    with what was announced.

    Attributes:
        phases: The names of the batches of each phase, and last of those that wait.
        closed: How many outcomes of closings there are.
        said: What is wrong.
    """

    def __init__(self, world: World, name: str) -> None:
        self.phases: list[list[str]] = []
        self.closed = 0
        self.said: list[str] = []
        self._zone, self._name = calendar_of(world, name), name
        self._first = first_batches(world).get(name, {})
        definition = json.loads(world.held(name).definition or b"")
        self._least = definition["phase"]["min_rows"]
        self._after = definition["phase"].get("close", {}).get("after")
        self._delta = Fraction(str(definition["privacy"]["delta"]))
        self._waiting: list[
            tuple[str, int, date | None]
        ] = []  # a name, its rows, and its day if not late
        self._periods: list[Waiting] = []
        self._ended: date | None = None  # all days before this one
        self._late, self._now, self._versions = 0, -1.0, list[int]()
        self._events = self._told(world)
        at = f"in.batches:{partition_of(name.encode(), world.partitions)}"
        for record in world.log.get(at, ()):
            if not self._events:
                break
            self._read(record)
        self._next(None)
        if self._events:
            self.said.append(f"P16: {name} has told of {self._events[0]} before its time")
        self.phases.append([name for name, _, _ in self._waiting])

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
                if event["event"] in ("phase_opened", "phase_closed", "schema_changed"):
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
                self._waiting = [one for one in self._waiting if one[0] not in lost]
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
        while self._ends(day):
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

    def _ends(self, day: date | None) -> bool:
        if not self._periods:
            return False
        first = self._periods[0]
        if first.due is not None and first.due <= self._now:
            return True
        waits_for_clock = first.due is not None and first.due == self._due(first.until, 0)
        return not waits_for_clock and day is not None and day >= first.until

    def _rows_before(self, until: date) -> int:
        return sum(rows for _, rows, day in self._waiting if day is None or day < until)

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
        size, opened = self._size_of(named), len(self.phases)
        inside = day is not None and any(p.since <= day < p.until for p in self._periods)
        splits = day is not None and any(p.since > day for p in self._periods)
        changes = any(opened + 1 < v <= opened + 1 + len(self._periods) for v in self._versions)
        late = day is not None and not inside
        late = late and bool((self._ended and day < self._ended) or (splits and changes))  # type: ignore[operator]
        if late:
            self._late += 1
        elif day is not None and not inside:
            until = day + timedelta(days=1)
            self._periods.append(Waiting(day, until, self._due(until, now)))
            self._periods.sort(key=lambda one: one.since)
        self._waiting.append((named, size, None if late else day))
        waiting = sum(rows for _, rows, _ in self._waiting)
        told = event["phase"], event["waiting"], event["rows"], event["late"], event.get("since")
        if told != (opened, waiting, size, late, None if day is None else str(day)):
            self.said.append(f"P16: {self._name} has told otherwise what {named} has come to")

    def _opened(self, event: Mapping[str, Any], day: date | None, *, closed: bool) -> None:
        """Compares a phase with what waited. It was closed, or has ended."""
        phase = len(self.phases) + 1
        first = self._periods[0] if self._periods else None
        end = first.until if first else date.max
        of_it = [one for one in self._waiting if one[2] is None or one[2] < end]
        rows = sum(rows for _, rows, _ in of_it)
        may_be_small = closed and 100 * rows * self._delta <= 1
        if rows < (math.ceil(self._least / 4) if may_be_small else self._least):
            self.said.append(f"P16: {self._name} has opened phase {phase} before its time")
        since, until = (first.since, first.until) if first else (self._ended, self._ended)
        dates = str(since or ""), str(until or "")
        told = event.get("since", ""), event.get("until", "")
        if (event["phase"], event["rows"], event["late_batches"], *told) != (
            *(phase, rows, self._late),
            *dates,
        ):
            self.said.append(f"P16: phase {phase} of {self._name} is another one than was told")
        self._waiting = [one for one in self._waiting if one not in of_it]
        self._periods, self._late = self._periods[1:], 0
        if first is not None:
            self._ended = first.until
            if day is not None:
                later = min([day, *(one.since for one in self._periods)])
                self._ended = max(self._ended, later)
        self.phases.append([name for name, _, _ in of_it])
