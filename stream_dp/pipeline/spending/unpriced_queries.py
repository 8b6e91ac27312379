"""What queries take that say neither an error nor a price: those of one record, and of one analyst in a day.

Where a definition says what answers are worth (``accuracy.aim``), the data set itself decides what such a
query takes. Two guards bound that. The queries of one record take ``query_share`` of any line (a block's
privacy budget) together, and those of one analyst take ``day_share`` in 24 hours. Both stand among the facts
that the store keeps of a data set, in the commit of the charge. So they are the same after a crash, and for
the next owner.

The time is Kafka's of the records, as for minutes (``limits``). A day is the hour of a record and the 24
before it. What an analyst has taken in an hour is the sum, over the records, of what the dearest line has
paid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.parameters import Aim
from stream_dp.core.budget.share_bounds import Room, Units
from stream_dp.core.mechanism import dearest
from stream_dp.core.residual.plan.targets import percent
from stream_dp.pipeline.spending.in_hand import InHand

MOST_NAMES: Final = 10_000
"""The most analysts of a data set of whom a day is kept: each has a place among its stored facts."""

_HOUR_MS: Final = 3_600_000
_HOURS: Final = 24

_SLOT: Final = "unasked "
"""And a number: an analyst, and the hours in which the analyst has taken something, with its units."""


class Unasked:
    """What was taken of the lines of one data set unasked. It is public.

    Attributes:
        aim: What the data set aims at; None where it decides about no query.

    Args:
        aim: The same.
        meta: The public facts that the store has of the data set.
        note: Drafts a public fact.
    """

    def __init__(
        self, aim: Aim | None, meta: Mapping[str, str], note: Callable[[str, str], None]
    ) -> None:
        self.aim, self._note = aim, note
        self._hours: dict[str, dict[int, int]] = {}
        self._slots: dict[str, int] = {}
        for name, text in meta.items():
            if name.startswith(_SLOT):
                analyst, *hours = text.split(" ")
                self._slots[analyst] = int(name.removeprefix(_SLOT))
                self._hours[analyst] = {
                    int(hour): int(units) for hour, _, units in (h.partition(":") for h in hours)
                }

    def room(self, analyst: str, time_ms: int, paid: Sequence[Charge]) -> Room | None:
        """What the next query of an analyst may take of each line unasked; None where nothing bounds it.

        Args:
            analyst: Who asks.
            time_ms: The timestamp of the record in hand.
            paid: What was taken unasked for that record.
        """
        aim = self.aim
        if aim is None:
            return None
        of_record = math.floor(aim.query_share * UNITS)
        # What the record has taken stands in the hour too, as what its dearest line has paid.
        of_day = self._left_of_day(analyst, time_ms) + dearest(paid)

        def room(window: range) -> Units:
            taken = np.zeros(len(window), dtype=np.int64)
            for charge in paid:
                if charge.block in window:
                    taken[charge.block - window.start] = charge.rho
            return np.asarray(np.maximum(min(of_record, of_day) - taken, 0))

        return room

    def pay(self, analyst: str, time_ms: int, in_hand: InHand, charges: Sequence[Charge]) -> None:
        """Drafts what a query has taken unasked, for the commit that makes the charges durable."""
        before = dearest(in_hand.unasked)
        in_hand.unasked = summed([*in_hand.unasked, *charges])
        units = dearest(in_hand.unasked) - before
        if units <= 0:
            return
        now = time_ms // _HOUR_MS
        hours = self._near(analyst, now)
        hours[now] = hours.get(now, 0) + units
        slot = self._slots.get(analyst)
        slot = self._free_slot(now) if slot is None else slot
        self._slots[analyst], self._hours[analyst] = slot, hours
        said = " ".join(f"{hour}:{n}" for hour, n in sorted(hours.items()))
        self._note(f"{_SLOT}{slot}", f"{analyst} {said}")

    def why(self, analyst: str, time_ms: int, paid: Sequence[Charge]) -> str:
        """Says which guard leaves an analyst less, and what to do."""
        aim = self.aim
        assert aim is not None, "a guard has kept something from a query"
        left = math.floor(aim.query_share * UNITS) - dearest(paid)
        if self._left_of_day(analyst, time_ms) < left:
            return (
                f"your queries would take more than {percent(aim.day_share)} of a phase's budget unasked in "
                f"24 hours: ask again {self._when(analyst, time_ms)}, or name a price with at_most"
            )
        return (
            f"the queries of this record would take more than {percent(aim.query_share)} of a phase's budget "
            "together unasked: ask in another record, or name a price with at_most"
        )

    def _when(self, analyst: str, time_ms: int) -> str:
        """Says when an analyst may take as much as one record again."""
        assert self.aim is not None, "the data set says what a day is"
        left, now = self._left_of_day(analyst, time_ms), time_ms // _HOUR_MS
        for hour, units in sorted(self._near(analyst, now).items()):
            left += units
            if left >= math.floor(self.aim.query_share * UNITS):
                then = datetime.fromtimestamp((hour + _HOURS + 1) * 3600, UTC)
                return f"after {then:%Y-%m-%d %H:%M} UTC"
        return "tomorrow"

    def _left_of_day(self, analyst: str, time_ms: int) -> int:
        assert self.aim is not None, "the data set says what a day is"
        now = time_ms // _HOUR_MS
        if analyst not in self._slots and len(self._slots) >= MOST_NAMES and not self._old(now):
            return 0  # there is no place for another analyst today
        return math.floor(self.aim.day_share * UNITS) - sum(self._near(analyst, now).values())

    def _free_slot(self, now: int) -> int:
        """A place among the facts: a new one, or that of someone who has taken nothing for a day."""
        if len(self._slots) < MOST_NAMES:
            return len(self._slots)
        gone = self._old(now)[0]
        self._hours.pop(gone)
        return self._slots.pop(gone)

    def _old(self, now: int) -> list[str]:
        return [name for name in self._hours if not self._near(name, now)]

    def _near(self, analyst: str, now: int) -> dict[int, int]:
        """What an analyst has taken in the hours that count now.

        A time that went back does not count for as long as it was ahead.
        """
        hours = self._hours.get(analyst, {})
        return {hour: units for hour, units in hours.items() if abs(now - hour) <= _HOURS}
