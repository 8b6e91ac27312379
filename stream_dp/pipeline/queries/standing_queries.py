"""The standing queries of one data set, as its stored facts say. Knows no store and no mechanism.

Each has a slot among the facts that the store keeps of a data set. So it begins and ends in one commit with
what follows from it. Next to them stands how far the answers of the newest phase, and tick, have come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from stream_dp.display.answer_cells import MainFigure
from stream_dp.errors import CorruptState
from stream_dp.messages import MOST_STANDING, PrivacyLoss, QueryFields, StandingQuery

MOST_BYTES: Final = 2**22
"""The most bytes of all standing queries of a data set: its next owner reads them at once."""

MOST_CELLS: Final = 100
"""The cells of an answer that are kept for gauges, and named in an alert."""

_SLOT = "standing "  # and a number: a standing query, or nothing
_ANSWERED = "standing answered"  # the phase, the serial up to which it was answered, and when

_TICKED = "standing ticked"  # the same of those that are answered at each tick

_ENDED = "standing ended"  # the analyst and id of each of the last that ended, and stand no more

_MOST_ENDED = MOST_STANDING
"""A worker that slept knows no more of them, and may still say that they stand."""

_VERSION = 1  # of the stored text; what a version means never changes

_ENVELOPE = {"version", "dataset", "analyst", "standing"}


class Moment(NamedTuple):
    """What standing queries are answered for by now.

    Attributes:
        phase: The newest phase. 0 without one.
        tick: When the newest tick of an open period was, in minutes since 1970. 0 without one.
    """

    phase: int
    tick: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingEntry:
    """One standing query.

    Attributes:
        slot: Where it is stored.
        serial: Grows with each one that begins. Answers are given in this order.
        analyst: The name of the analyst.
        fields: The fields of the query as they were sent.
        since_phase: The number of phases that were open when it began.
        since_ms: The time of the message that began it. -1 if it has none.
        alert_since: The first of the phases without a gap in which its alert held. None while it does not.
    """

    slot: int
    serial: int
    analyst: str
    fields: Mapping[str, Any]
    since_phase: int
    since_ms: int
    alert_since: int | None = None

    @property
    def query_id(self) -> str:
        """The id of the query."""
        return str(self.fields["query_id"])

    @property
    def query(self) -> QueryFields:
        """The query, with its alert."""
        return QueryFields.read({**self.fields, "standing": True})

    @property
    def is_running(self) -> bool:
        """Whether it is answered at each tick, since the rows so far count, and not in each phase."""
        return bool((self.fields.get("window") or {}).get("running"))

    def number(self, now: Moment) -> int:
        """The phase or the tick that it is answered for by now."""
        return now.tick if self.is_running else now.phase

    def asks(self, query: QueryFields) -> bool:
        """Returns whether a query has the fields of this one."""
        return self.fields == _fields(query)

    def listed(self, dataset: str, phase: int | None, loss: PrivacyLoss | None) -> StandingQuery:
        """Returns what is published of it.

        Args:
            dataset: The data set.
            phase: The phase of its newest answer.
            loss: What that has cost. None for a refusal.
        """
        return StandingQuery(
            dataset=dataset,
            analyst=self.analyst,
            query_id=self.query_id,
            query=dict(self.fields),
            since_phase=self.since_phase,
            since_ms=None if self.since_ms < 0 else self.since_ms,
            phase=phase,
            next_loss=loss,
        )

    def to_text(self) -> str:
        """Writes it as it is stored."""
        written = {
            "version": _VERSION,
            "serial": self.serial,
            "analyst": self.analyst,
            "query": self.fields,
            "since_phase": self.since_phase,
            "since_ms": self.since_ms,
        }
        if self.alert_since is not None:
            written["alert_since"] = self.alert_since
        return json.dumps(written, separators=(",", ":"))

    @classmethod
    def from_text(cls, dataset: str, slot: int, text: str) -> StandingEntry:
        """Reads what ``to_text`` wrote.

        Raises:
            CorruptState: It cannot be read.
        """
        try:
            written = json.loads(text)
            if written.pop("version") != _VERSION:
                raise ValueError("a newer release wrote it")
            return cls(slot=slot, fields=written.pop("query"), **written)
        except (KeyError, TypeError, ValueError):
            raise CorruptState(
                f"{dataset}: the standing query in slot {slot} cannot be read; if a newer release wrote it, "
                "start that one"
            ) from None


@dataclass(frozen=True, slots=True)
class Latest:
    """What the gauges show of a standing query.

    Attributes:
        phase: The phase of its newest answer.
        dated_ms: The time of the record that the answer followed. -1 if it is not known.
        figures: Its first numbers; none for a refusal.
    """

    phase: int
    dated_ms: int
    figures: tuple[MainFigure, ...] = ()


class StandingQueries:
    """The standing queries of a data set, in the order in which they began.

    Attributes:
        latest: (analyst, id of a standing query) -> what the gauges show of it.

    Args:
        dataset: The name of the data set.
        meta: The stored facts of the data set.
        keep: A function that keeps one of them with the next commit.
    """

    def __init__(
        self, dataset: str, meta: Mapping[str, str], keep: Callable[[str, str], None]
    ) -> None:
        self._keep = keep
        *passed, self.dated_ms = _answered(meta.get(_ANSWERED, "0 0 -1"))
        *ticked, dated_ms = _answered(meta.get(_TICKED, "0 0 -1"))
        self.dated_ms = max(self.dated_ms, dated_ms)
        # The phase or the tick, and the serial number up to which it was answered, by ``is_running``.
        self._passed = {False: tuple(passed), True: tuple(ticked)}
        found = [
            StandingEntry.from_text(dataset, int(name.removeprefix(_SLOT)), text)
            for name, text in meta.items()
            if name.startswith(_SLOT) and name not in (_ANSWERED, _TICKED, _ENDED) and text
        ]
        ended: list[list[str]] = json.loads(meta.get(_ENDED, "[]"))
        self._ended = dict.fromkeys((analyst, query_id) for analyst, query_id in ended)
        found.sort(key=lambda entry: entry.serial)
        self._entries = {(entry.analyst, entry.query_id): entry for entry in found}
        serials = [serial for _, serial in self._passed.values()]
        self._next = max([*serials, *(entry.serial for entry in found)]) + 1
        self._bytes = sum(len(entry.to_text()) for entry in found)
        self.latest: dict[tuple[str, str], Latest] = {}

    def __iter__(self) -> Iterator[StandingEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def number(self, entry: StandingEntry) -> int:
        """The newest phase, or tick, that any query like one was answered for."""
        return self._passed[entry.is_running][0]

    @property
    def ended(self) -> list[tuple[str, str]]:
        """The analyst and id of the last that ended, and stand no more, in the order in which they did."""
        return list(self._ended)

    def find(self, analyst: str, query_id: str) -> StandingEntry | None:
        """Returns the standing query of this name, if there is one."""
        return self._entries.get((analyst, query_id))

    def is_due(self, now: Moment) -> bool:
        """Returns whether one is still to be answered for this moment; it is asked with each record."""
        for running in (False, True) if now.tick else (False,):
            alike = (one for one in reversed(self._entries.values()) if one.is_running is running)
            last = next(alike, None)
            if last is not None and self._is_due(last, now):
                return True
        return False

    def due(self, now: Moment) -> list[StandingEntry]:
        """Returns those that are still to be answered for this moment, in order."""
        return [entry for entry in self._entries.values() if self._is_due(entry, now)]

    def _is_due(self, entry: StandingEntry, now: Moment) -> bool:
        return self._passed[entry.is_running] < (entry.number(now), entry.serial) > (1, 0)

    def has_room(self, query: QueryFields) -> bool:
        """Returns whether another one may begin."""
        size = len(json.dumps(_fields(query)))
        return len(self._entries) < MOST_STANDING and size + self._bytes <= MOST_BYTES

    def begin(
        self, analyst: str, query: QueryFields, *, phase: int, since_ms: int
    ) -> StandingEntry:
        """Begins a standing query with the next commit."""
        taken = {entry.slot for entry in self._entries.values()}
        entry = StandingEntry(
            slot=next(slot for slot in range(len(taken) + 1) if slot not in taken),
            serial=self._next,
            analyst=analyst,
            fields=_fields(query),
            since_phase=phase,
            since_ms=since_ms,
        )
        self._next += 1
        self._store(entry)
        if (analyst, query.query_id) in self._ended:
            del self._ended[analyst, query.query_id]
            self._keep_ended()
        return entry

    def end(self, entry: StandingEntry) -> None:
        """Ends a standing query with the next commit."""
        self._bytes -= len(self._entries.pop((entry.analyst, entry.query_id)).to_text())
        self.latest.pop((entry.analyst, entry.query_id), None)
        self._keep(f"{_SLOT}{entry.slot}", "")
        self._ended[entry.analyst, entry.query_id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._keep_ended()

    def answered(self, entry: StandingEntry, number: int, dated_ms: int) -> None:
        """Notes, with the next commit, that all like this one up to it have their answer for a number."""
        self._passed[entry.is_running], self.dated_ms = (number, entry.serial), dated_ms
        name = _TICKED if entry.is_running else _ANSWERED
        self._keep(name, f"{number} {entry.serial} {dated_ms}")

    def alerted(self, entry: StandingEntry, since: int | None) -> None:
        """Notes, with the next commit, since which phase the alert of a standing query holds."""
        if entry.alert_since != since:
            self._store(replace(entry, alert_since=since))

    def _keep_ended(self) -> None:
        self._keep(_ENDED, json.dumps(self.ended, separators=(",", ":")))

    def _store(self, entry: StandingEntry) -> None:
        before, text = self._entries.get((entry.analyst, entry.query_id)), entry.to_text()
        self._entries[entry.analyst, entry.query_id] = entry
        self._bytes += len(text) - (0 if before is None else len(before.to_text()))
        self._keep(f"{_SLOT}{entry.slot}", text)


def _answered(text: str) -> tuple[int, int, int]:
    phase, serial, dated_ms = map(int, text.split(" "))
    return phase, serial, dated_ms


def _fields(query: QueryFields) -> dict[str, Any]:
    """The fields of a query as they were sent, without those of its message."""
    return query.model_dump(mode="json", exclude_unset=True, exclude=_ENVELOPE)
