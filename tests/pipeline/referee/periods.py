"""P16: by the calendar, a phase opens when its period ends or is closed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

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


def calendar_of(world: World, name: str) -> ZoneInfo | None:
    """The time zone of a data set whose phases follow the days. None if they go by rows alone."""
    phase = json.loads(world.held(name).definition or b"{}").get("phase", {})
    assert phase.get("every") in (None, "1 day"), "the referee counts in days"
    return ZoneInfo(phase.get("timezone", "UTC")) if "every" in phase else None


class Periods:
    """What the journal says of a data set by the calendar, day by day.

    Attributes:
        phases: The names of the batches of each phase, and last of those that wait.
        closed: How many outcomes of closings there are.
        said: What is wrong.
    """

    def __init__(self, world: World, name: str) -> None:
        self.phases: list[list[str]] = [[]]
        self.closed = 0
        self.said: list[str] = []
        self._zone, self._name = calendar_of(world, name), name
        self._first = first_batches(world).get(name, {})
        definition = json.loads(world.held(name).definition or b"")
        self._least = definition["phase"]["min_rows"]
        self._delta = Fraction(str(definition["privacy"]["delta"]))
        self._rows = 0  # of those that wait
        self._since: date | None = None
        self._until: date | None = None
        self._ended: date | None = None  # all days before this one
        self._late = 0
        events: list[dict[str, Any]] = []
        gone, known = given_up_by_commit(world, name), set[str]()
        for one in world.held(name).said:
            if one.number in gone:
                events.append({"event": "given up", "batches": gone[one.number]})
            # One whose records were all rejected breaks P4, and nobody knows what was in it.
            events += [
                event
                for event in one.events()
                if event["event"] != "batch_accepted" or batch_name(event) in self._first
            ]
        for at, event in enumerate(events):
            kind = event["event"]
            if kind == "given up":
                self._rows -= sum(
                    self._size_of(one) for one in event["batches"] if one in self._first
                )
                self.phases[-1] = [one for one in self.phases[-1] if one not in event["batches"]]
            elif kind == "batch_accepted" and (named := batch_name(event)) not in known:
                known.add(named)
                self._accepted(named, event)
            elif kind == "phase_closed":
                self.closed += 1
            elif kind == "phase_opened":
                before = events[at - 1]
                is_closed = (
                    before.get("event") == "phase_closed" and before["phase"] == event["phase"]
                )
                following = (e for e in events[at:] if e["event"] == "batch_accepted")
                by = None if is_closed else next(following, None)
                day = None if by is None else self._day(batch_name(by))
                self._opened(event, day, closed=is_closed)

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

    def _accepted(self, named: str, event: Mapping[str, Any]) -> None:
        day, size = self._day(named), self._size_of(named)
        self.phases[-1].append(named)
        if self._until and day and day >= self._until and self._rows >= self._least:
            self.said.append(f"P16: {self._name} has not opened a phase before {named} of {day}")
        self._rows += size
        told = event["phase"], event["waiting"], event["rows"]
        if told != (len(self.phases) - 1, self._rows, size):
            self.said.append(f"P16: {self._name} has told otherwise what {named} has come to")
        begins = self._since or self._ended
        if day is None:
            return
        if begins and day < begins:
            self._late += 1
            return
        self._since = self._since or day
        self._until = max(self._until or date.min, day + timedelta(days=1))

    def _opened(self, event: Mapping[str, Any], by: date | None, *, closed: bool) -> None:
        """Compares a phase with what waited. It was closed, or ended by a batch about a day."""
        phase, ended = len(self.phases), by or self._until or self._ended
        may_be_small = closed and 100 * self._rows * self._delta <= 1
        least = math.ceil(self._least / 4) if may_be_small else self._least
        if self._rows < least or (by and not (self._until and by >= self._until)):
            self.said.append(f"P16: {self._name} has opened phase {phase} before its time")
        since, until = self._since or self._ended, self._until or self._ended
        dates = str(since or ""), str(until or "")
        told = event.get("since", ""), event.get("until", "")
        if (event["phase"], event["rows"], event["late_batches"], *told) != (
            *(phase, self._rows, self._late),
            *dates,
        ):
            self.said.append(f"P16: phase {phase} of {self._name} is another one than was told")
        self._since = self._until = None
        self._ended, self._late, self._rows = ended, 0, 0
        self.phases.append([])
