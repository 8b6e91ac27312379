"""The state of all data sets, computed from the topics. Analysts may see what the output topics hold."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stream_dp.client.budget.odometer import BlockSpending, Odometer
from stream_dp.client.kafka import topic_documents
from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.answer_words import short, why
from stream_dp.display.event_words import event_line, rejection_line
from stream_dp.errors import InvalidDefinition, InvalidMessage
from stream_dp.messages import (
    Definition,
    Event,
    NoisyAnswer,
    RefusedAnswer,
    Rejected,
    RunningTick,
)
from stream_dp.web.http_api.api_documents import State
from stream_dp.web.page_data.newest_period import NewestPeriod
from stream_dp.web.page_data.query_words import queries
from stream_dp.web.page_data.tile_history import Tiles

READ: Final = (
    "catalog",
    "ledger",
    "events",
    "answers",
    "standing",
    "running",
    "rejected",
    "queries",
)

_LATEST: Final = 40
_REMEMBERED: Final = 5_000
_MOST_POINTS: Final = 400
_LARGEST_ANSWER: Final = 65_536
_LARGEST_TICK: Final = 1_048_576
_SHOWN: Final = {"query_id", "analyst", "status", "difficulty", "path", "privacy_loss"}


@dataclass(slots=True)
class Tally:
    """The answers that were given while one phase was the newest."""

    easy: int = 0
    hard: int = 0
    refused: int = 0


@dataclass
class PublishedDataset:
    """The state of one data set according to its records.

    Attributes:
        definition: The definition. None until the catalog is read, or if a newer release wrote it.
        waiting: The rows that wait for the next phase. None until an event reports them.
        quarantine: The start of the latest quarantine, in milliseconds since 1970. None without one.
        stop: The time of the latest event that nobody can serve it, in milliseconds since 1970. None
            without one, and once another event follows.
        opened: The times at which the phases opened, in milliseconds since 1970.
        tallies: The answers, by the number of phases open at the time.
        spending: A sample of (milliseconds since 1970, largest spent share of any line).
        answers: The latest answers, newest first, as the pages show them.
        tiles: The standing queries and their answers.
        running: The running totals of the newest period.
        events: The latest events, newest first, as the pages show them.
    """

    definition: Definition | None = None
    retired: bool = False
    waiting: int | None = None
    quarantine: int | None = None
    stop: int | None = None
    odometer: Odometer = field(default_factory=Odometer)
    opened: list[int] = field(default_factory=list)
    spending: list[tuple[int, float]] = field(default_factory=list)
    tallies: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))
    answers: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LATEST))
    tiles: Tiles = field(default_factory=Tiles)
    running: NewestPeriod = field(default_factory=NewestPeriod)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _seen: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict, repr=False)

    @property
    def state(self) -> State:
        """Whether it answers. No event reports the end of a quarantine, but later charges show it."""
        if self.retired:
            return "retired"
        if self._lasts(self.stop):
            return "stopped"
        return "quarantined" if self._lasts(self.quarantine) else "live"

    def _lasts(self, since: int | None) -> bool:
        """Returns whether nothing was charged after that time."""
        return since is not None and (not self.spending or self.spending[-1][0] <= since)

    def phases(self) -> Iterator[tuple[int, BlockSpending, int]]:
        """Yields the number of each phase, what its block was charged, and when it opened."""
        opened = zip(self.odometer.blocks, self.opened, strict=True)
        yield from ((number, *one) for number, one in enumerate(opened, 1))

    def shares(self, *, last: int | None = None) -> list[dict[str, Any]]:
        """Returns what the owner, each entry of ``analysts`` and each analyst may spend, and have spent.

        It is empty where everybody may spend all, and where a newer release wrote the shares.

        Args:
            last: The number of phases to look at, newest last. Default: all.
        """
        with contextlib.suppress(InvalidMessage):
            return [holder.document() for holder in self.odometer.holders(last=last)]
        return []

    def define(self, value: bytes | None) -> None:
        """Takes a record of the catalog. An empty record retires the data set, for ever."""
        self.retired = self.retired or not value
        with contextlib.suppress(InvalidDefinition, ValueError):  # a newer release wrote it
            self.definition = Definition.read(json.loads(value)) if value else self.definition

    def charge(self, value: bytes, at: int) -> None:
        """Takes a record of the ledger."""
        entry: Mapping[str, Any] = json.loads(value)
        if not self.odometer.add(entry):
            return
        if entry["kind"] == "phase":
            self.opened.append(at)
        self.retired = self.retired or self.odometer.retired
        self.spending.append((at, self.odometer.most_spent))
        if len(self.spending) > _MOST_POINTS:
            del self.spending[1:-1:2]

    def announce(self, value: bytes, at: int) -> None:
        """Takes a record of the events."""
        event = topic_documents.read(Event, value)
        if event is None:
            return
        if event.waiting is not None:
            self.waiting = event.waiting
        elif event.event in ("phase_opened", "dataset_retired"):
            self.waiting = 0
        if event.event == "phase_opened" and event.until is not None:
            self.running.open(event.until)
        if event.event == "quarantined":
            self.quarantine = at
        self.stop = at if event.event == "stopped" else None
        self.events.appendleft({"at": at, "said": event_line(event)})

    def tick(self, value: bytes) -> None:
        """Takes a record of the running totals. A very large one is not shown."""
        tick = topic_documents.read(RunningTick, value) if len(value) <= _LARGEST_TICK else None
        if tick is not None:
            self.running.take(tick)

    def answer(self, value: bytes, at: int) -> None:
        """Takes a record of the answers. It ignores quotes and repeated answers."""
        answer = topic_documents.read_answer(value) if len(value) <= _LARGEST_ANSWER else None
        if not isinstance(answer, NoisyAnswer | RefusedAnswer):
            return
        name = (answer.analyst, answer.query_id)
        if name in self._seen:
            return
        self._seen[name] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if isinstance(answer, RefusedAnswer):
            self.tallies[len(self.odometer.blocks)].refused += 1
        elif answer.difficulty == "easy":
            self.tallies[answer.phase].easy += 1
        else:
            self.tallies[answer.phase].hard += 1
        self.answers.appendleft({"at": at, **_line(answer)})
        self.tiles.answer(answer, at)


def _line(answer: NoisyAnswer | RefusedAnswer) -> dict[str, Any]:
    """Returns the entry of an answer in a list: what it says in a few words, and the share that is drawn."""
    line = answer.model_dump(include=_SHOWN, exclude_none=True)
    if isinstance(answer, RefusedAnswer):
        return {**line, "said": f"refused: {why(answer.reason)}"}
    cells = AnswerCells(answer)
    drawn = {}
    if not cells.names and cells.main and cells.unit(cells.main) == "share":
        figure = cells.figure(cells.main)
        drawn = {"value": figure.number, "error_bar": figure.bar}
    return {**line, **drawn, "said": short(cells), "widest": cells.promised_bar}


class PublishedState:
    """The state of all data sets so far. One thread writes, others read under ``lock``.

    Attributes:
        version: A number that grows with every record.
        rejected: The latest rejections, newest first. Only operators may see them.
        asked: The queries as readable text, by data set, analyst and id. Those with a published answer are
            shown next to it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.version = 0
        self.datasets: dict[str, PublishedDataset] = defaultdict(PublishedDataset)
        self.rejected: deque[dict[str, Any]] = deque(maxlen=_LATEST)
        self.asked: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def known(self, seen: frozenset[str] | None = None) -> dict[str, PublishedDataset]:
        """Returns the data sets that exist or existed, by name.

        Args:
            seen: The data sets that may be seen. None for all.
        """
        return {
            name: dataset
            for name, dataset in sorted(self.datasets.items())
            if (dataset.definition is not None or dataset.retired)
            and (seen is None or name in seen)
        }

    def take(self, role: str, key: str, value: bytes | None, at: int) -> None:
        """Takes one record.

        Args:
            role: The role of the topic, one of ``READ``.
            key: The key of the record, which begins with the name of the data set.
            value: The value of the record.
            at: The time of the record, in milliseconds since 1970.
        """
        with self.lock:
            self.version += 1
            if role == "rejected":
                self._reject(value, at)
            elif role == "queries":
                for name, words in queries(value):
                    self.asked.setdefault(name, words)  # a repeated id gets its old answer
                while len(self.asked) > _REMEMBERED:
                    self.asked.popitem(last=False)
            elif role == "standing":
                self.datasets[key.partition(" ")[0]].tiles.take(key, value)
            elif role == "catalog":
                self.datasets[key].define(value)
            elif role == "ledger":
                self.datasets[key].charge(value or b"", at)
            elif role == "events":
                self.datasets[key].announce(value or b"", at)
            elif role == "answers":
                self.datasets[key].answer(value or b"", at)
            elif role == "running":
                self.datasets[key].tick(value or b"")

    def _reject(self, value: bytes | None, at: int) -> None:
        rejected = topic_documents.read(Rejected, value)
        if rejected is not None:
            self.rejected.appendleft({"at": at, "said": rejection_line(rejected)})
