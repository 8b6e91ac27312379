"""Who may ask a data set, and how fast one analyst may ask, spend, and have answers sent again.

A minute is one of Kafka's time of the records, never of the worker's clock: everyone who reads the records
again decides alike. A time that goes back by more than a minute begins a new one. Otherwise a broker whose
clock was ahead for one record would end everybody's minutes for as long as it was ahead. What was used of a
minute stands among the facts that the store keeps of a data set. So it is durable in one commit with what was
counted, also where a crash cuts a record with many queries in two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.mechanism import dearest
from stream_dp.errors import InvalidMessage, TooSoon
from stream_dp.messages import AnalystSpec, entry_of
from stream_dp.pipeline.intake.records import Record
from stream_dp.profiles.share_settings import units_of

MOST_NAMES: Final = 10_000
"""The most analysts of a data set that are counted in one minute: each has a place among its stored facts."""

MOST_AGAIN_BYTES: Final = 2**23
"""The most bytes of answers that are sent again to one analyst in one minute. The first one may be larger."""

_MINUTE_MS: Final = 60_000

_LAST_MINUTE: Final = 253_402_300_740 // 60  # of the year 9999: later ones have no date

_COUNTED: Final = "limits"
"""The number of minutes begun, the last one, the record in hand, and how many of its queries are decided."""

_SLOT: Final = "limits "
"""And a number: the number of minutes begun, and what an analyst has used of the last one, and their name."""


@dataclass(slots=True)
class _Used:
    """What an analyst has used of the minute.

    Attributes:
        slot: Where it is stored.
        queries: Queries that were answered, refused or quoted.
        units: Units of a line: the sum, over the charges, of what the dearest block of each has paid.
        again: Bytes of answers that were sent again.
    """

    slot: int
    queries: int = 0
    units: int = 0
    again: int = 0


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


class AnalystLimits:
    """What each analyst has used of the last minute of one data set. It is public.

    A time that goes back by a minute at most does not begin a new one: leaders of a partition whose clocks
    differ a little may take turns. Nothing is counted for analysts without a limit.

    Args:
        meta: The public facts that the store has of the data set.
        note: Drafts a public fact.
    """

    def __init__(self, meta: Mapping[str, str], note: Callable[[str, str], None]) -> None:
        self._note = note
        self._asking: _Asking | None = None
        self._stranger = ""
        begun, minute, self._record, done = meta.get(_COUNTED, "0 0  0").split(" ")
        # A minute may come twice, so what was used is told apart by the number of those that have begun.
        self._begun, self._minute, self._done = int(begun), int(minute), int(done)
        self._used: dict[str, _Used] = {}
        for name, text in meta.items():
            if name.startswith(_SLOT) and text.startswith(f"{self._begun} "):
                _, queries, units, again, analyst = text.split(" ")
                slot = int(name.removeprefix(_SLOT))
                self._used[analyst] = _Used(slot, int(queries), int(units), int(again))

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
        minute = record.timestamp_ms // _MINUTE_MS
        if minute > self._minute or 0 <= minute < self._minute - 1:
            self._begun, self._minute, self._used = self._begun + 1, minute, {}
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
            self._note_counted()

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
        asked = self._found(analyst).queries
        if most is None:
            return
        if queries > most:
            raise InvalidMessage(
                "queries",
                f"{queries:,} together are more than the {most:,} a minute that are allowed to {analyst!r}",
                "send fewer together",
                reason="too_many_queries",
            )
        if queries + asked > most:
            raise self._too_soon(
                "too_many_queries", f"{most:,} a minute are allowed to {analyst!r}"
            )

    def count(self, queries: int = 1) -> None:
        """Drafts that the analyst has asked this number of queries more."""
        if self._asking is not None and self._asking.queries is not None:
            self._use(self._asking.analyst, queries=queries)

    def send_again(self, n_bytes: int) -> None:
        """Drafts that the analyst gets an answer of this size once more, which costs and counts as no query.

        Raises:
            TooSoon: They may in a later minute. The first one of a minute may have any size.
        """
        if self._asking is None:
            return
        analyst = self._asking.analyst
        sent = self._found(analyst).again
        if sent and sent + n_bytes > MOST_AGAIN_BYTES:
            raise self._too_soon(
                "sent_again_too_fast",
                f"{MOST_AGAIN_BYTES:,} bytes of earlier answers a minute are sent again to {analyst!r}",
            )
        self._use(analyst, again=n_bytes)

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
        spent = self._used.get(analyst, _Used(0)).units
        allowance = f"{most / UNITS:.4g} of a phase's budget a minute is allowed to {analyst!r}"
        if price > most:
            raise InvalidMessage(
                "queries",
                f"this one would charge {price / UNITS:.4g} at once, and {allowance}",
                "ask for a larger error, or ask the owner for a larger spending_per_minute",
                reason="spending_too_fast",
            )
        if price + spent > most:
            raise self._too_soon("spending_too_fast", allowance)

    def pay(self, charges: Sequence[Charge]) -> None:
        """Drafts that the analyst has newly charged this, for the commit that makes the charges durable."""
        if charges and self._asking is not None and self._asking.units is not None:
            self._use(self._asking.analyst, units=dearest(charges))

    def _found(self, analyst: str) -> _Used:
        """What an analyst has used of the minute.

        Raises:
            TooSoon: The analyst has no place among the facts, and there is none left in this minute.
        """
        if analyst not in self._used and len(self._used) >= MOST_NAMES:
            raise self._too_soon(
                "too_many_queries",
                f"{MOST_NAMES:,} analysts have asked this data set in this minute",
            )
        return self._used.get(analyst, _Used(len(self._used)))

    def _use(self, analyst: str, *, queries: int = 0, units: int = 0, again: int = 0) -> None:
        used = self._used.setdefault(analyst, _Used(len(self._used)))
        used.queries += queries
        used.units += units
        used.again += again
        numbers = f"{self._begun} {used.queries} {used.units} {used.again}"
        self._note(f"{_SLOT}{used.slot}", f"{numbers} {analyst}")
        self._note_counted()  # a charge may be durable before the first query of its minute is decided

    def _note_counted(self) -> None:
        self._note(_COUNTED, f"{self._begun} {self._minute} {self._record} {self._done}")

    def _too_soon(self, reason: str, problem: str) -> TooSoon:
        when = "in the next minute"
        if 0 < self._minute < _LAST_MINUTE:
            begins = datetime.fromtimestamp((self._minute + 1) * 60, UTC)
            when = f"from {begins:%Y-%m-%dT%H:%MZ} on"
        return TooSoon("queries", problem, f"ask again {when}, under the same id", reason=reason)
