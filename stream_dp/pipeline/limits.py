"""Who may ask a data set, and how fast one analyst may ask and spend.

A minute is one of Kafka's time of the records, never of the worker's clock: everyone who reads the records
again decides alike. What was used of a minute stands among the facts that the store keeps of a data set. So
it is durable in one commit with what was counted, also where a crash cuts a record with many queries in two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.mechanism import dearest
from stream_dp.errors import InvalidMessage, TooSoon
from stream_dp.messages import AnalystSpec, entry_of
from stream_dp.pipeline.records import Record
from stream_dp.profiles.shares import units_of

__all__ = ["MOST_NAMES", "Limits"]

MOST_NAMES: Final = 10_000
"""The most analysts of a data set that are counted in one minute: each has a place among its stored facts."""

_MINUTE_MS: Final = 60_000

_LAST_MINUTE: Final = 253_402_300_740 // 60  # of the year 9999: later ones have no date

_COUNTED: Final = (
    "limits"  # the minute, the record in hand, and how many of its queries are decided
)

_SLOT: Final = (
    "limits "  # and a number: a minute, and the queries, units and name of an analyst in it
)


@dataclass(slots=True)
class _Used:
    """What an analyst has used of the minute.

    Attributes:
        slot: Where it is stored.
        queries: Queries that were answered, refused or quoted.
        units: Units of a line: the sum, over the charges, of what the dearest block of each has paid.
    """

    slot: int
    queries: int = 0
    units: int = 0


@dataclass(frozen=True, slots=True)
class _Asking:
    """The analyst of the record in hand, and the most that they may use of a minute; None for no limit."""

    analyst: str
    queries: int | None
    units: int | None

    @classmethod
    def of(cls, analyst: str, spec: AnalystSpec | None) -> _Asking | None:
        """Returns None for an analyst without a limit."""
        if spec is None or spec.queries_per_minute is spec.spending_per_minute is None:
            return None
        return cls(analyst, spec.queries_per_minute, units_of(spec.spending_per_minute))


class Limits:
    """What each analyst has used of the newest minute of one data set. It is public.

    Times that go back do not open a new minute. Nothing is counted for analysts without a limit.

    Args:
        meta: The public facts that the store has of the data set.
        note: Drafts a public fact.
    """

    def __init__(self, meta: Mapping[str, str], note: Callable[[str, str], None]) -> None:
        self._note = note
        self._asking: _Asking | None = None
        self._stranger = ""
        minute, self._record, done = meta.get(_COUNTED, "0  0").split(" ")
        self._minute, self._done = int(minute), int(done)
        self._used: dict[str, _Used] = {}
        slots = [(name, *text.split(" ")) for name, text in meta.items() if name.startswith(_SLOT)]
        # A charge may have opened a minute before the first of its queries was decided.
        self._minute = max([self._minute, *(int(minute) for _, minute, *_ in slots)])
        for name, minute, queries, units, analyst in slots:
            if int(minute) == self._minute:
                slot = int(name.removeprefix(_SLOT))
                self._used[analyst] = _Used(slot, int(queries), int(units))

    # ------------------------------------------------------------ the record in hand

    def enter(
        self, record: Record, analyst: str, analysts: Mapping[str, AnalystSpec] | None
    ) -> None:
        """Says whose queries are in hand. A record that a crash cut short goes on where its commits end.

        Args:
            record: The record.
            analyst: Who asks.
            analysts: What is allowed to whom; None where all is allowed to everybody.
        """
        self.leave()
        entry = None if analysts is None else entry_of(analysts, analyst)
        if analysts is None or entry is None:
            self._stranger = "" if analysts is None else analyst
            return
        self._asking = _Asking.of(analyst, analysts[entry])
        if self._asking is None:
            return
        minute = max(self._minute, record.timestamp_ms // _MINUTE_MS)
        if minute > self._minute:
            self._minute, self._used = minute, {}
        if record.record_id != self._record:
            self._record, self._done = record.record_id, 0

    def leave(self) -> None:
        """Says that nobody's queries are in hand."""
        self._asking, self._stranger = None, ""

    def check_name(self) -> None:
        """Checks that the analyst may ask at all.

        Raises:
            InvalidMessage: Nothing is allowed to them.
        """
        if self._stranger:
            raise InvalidMessage(
                "analyst",
                f"this data set allows nothing to {self._stranger!r}",
                "ask its owner to name you in analysts, or ask another data set",
                reason="not_allowed",
            )

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Counts what is done in this context for nobody."""
        in_hand, self._asking = self._asking, None
        try:
            yield
        finally:
            self._asking = in_hand

    def is_done(self, index: int) -> bool:
        """Returns whether a commit has decided this query of the record, whose reply then leaves with it."""
        return self._asking is not None and index < self._done

    def done(self, index: int) -> None:
        """Drafts that a query of the record is decided, with all that it was counted for."""
        if self._asking is not None:
            self._done = index + 1
            self._note(_COUNTED, f"{self._minute} {self._record} {self._done}")

    # ------------------------------------------------------------ queries

    def admit(self, queries: int = 1) -> None:
        """Checks that the analyst may ask this number of queries more in this minute.

        Raises:
            TooSoon: They may in a later one.
            InvalidMessage: They may in none.
        """
        if self._asking is None:
            return
        analyst, most = self._asking.analyst, self._asking.queries
        used = self._used.get(analyst)
        if used is None and len(self._used) >= MOST_NAMES:
            raise self._too_soon(
                "too_many_queries",
                f"{MOST_NAMES:,} analysts have asked this data set in this minute",
            )
        if most is None:
            return
        if queries > most:
            raise InvalidMessage(
                "queries",
                f"{queries:,} together are more than the {most:,} a minute that are allowed to {analyst!r}",
                "send fewer together",
                reason="too_many_queries",
            )
        if queries + (0 if used is None else used.queries) > most:
            raise self._too_soon(
                "too_many_queries", f"{most:,} a minute are allowed to {analyst!r}"
            )

    def count(self, queries: int = 1) -> None:
        """Drafts that the analyst has asked this number of queries more."""
        if self._asking is not None and self._asking.queries is not None:
            self._use(self._asking.analyst, queries, 0)

    # ------------------------------------------------------------ spending

    @property
    def bounds_spending(self) -> bool:
        """Whether the analyst of the record in hand may newly charge so much a minute only."""
        return self._asking is not None and self._asking.units is not None

    def afford(self, charges: Sequence[Charge]) -> None:
        """Checks that the analyst may newly charge this in this minute.

        Raises:
            TooSoon: They may in a later one.
            InvalidMessage: They may in none.
        """
        if self._asking is None or self._asking.units is None:
            return
        analyst, most, price = self._asking.analyst, self._asking.units, dearest(charges)
        used = self._used.get(analyst)
        allowance = f"{most / UNITS:.4g} of a block's budget a minute is allowed to {analyst!r}"
        if price > most:
            raise InvalidMessage(
                "queries",
                f"this one would charge {price / UNITS:.4g} at once, and {allowance}",
                "ask for a larger error, or ask the owner for a larger spending_per_minute",
                reason="spending_too_fast",
            )
        if price + (0 if used is None else used.units) > most:
            raise self._too_soon("spending_too_fast", allowance)

    def pay(self, charges: Sequence[Charge]) -> None:
        """Drafts that the analyst has newly charged this, for the commit that makes the charges durable."""
        if charges and self._asking is not None and self._asking.units is not None:
            self._use(self._asking.analyst, 0, dearest(charges))

    def _use(self, analyst: str, queries: int, units: int) -> None:
        used = self._used.setdefault(analyst, _Used(len(self._used)))
        used.queries += queries
        used.units += units
        self._note(f"{_SLOT}{used.slot}", f"{self._minute} {used.queries} {used.units} {analyst}")

    def _too_soon(self, reason: str, problem: str) -> TooSoon:
        when = "in the next minute"
        if 0 < self._minute < _LAST_MINUTE:
            begins = datetime.fromtimestamp((self._minute + 1) * 60, UTC)
            when = f"from {begins:%Y-%m-%dT%H:%MZ} on"
        return TooSoon("queries", problem, f"ask again {when}, under the same id", reason=reason)
