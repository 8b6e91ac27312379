"""The record in hand, and what it has led to: how much work, and what was paid for it. All of it is public.

It stands among the facts of a data set, in the commit of each charge. So a record that a crash cut short goes
on with what it had taken by then, also with its next owner.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.mechanism import dearest

_WORK, _PAID, _UNASKED = "work", "paid", "unasked"

IN_HAND: Final = (_WORK, _PAID, _UNASKED)
"""The facts that say which record was in hand last, and what it had led to."""

MOST_DRAWN: Final = 2**23
"""Draws of noise, and below seconds that looks may last, after which a record gets no further look."""
MOST_SECONDS: Final = 10.0


@dataclass
class InHand:
    """What was taken for the record in hand.

    Attributes:
        record: Its id. Empty for what is done for no record.
        limit: The units that it may take of any line; None for no limit.
        drawn: The draws of noise that its looks needed.
        seconds: How long they may have lasted.
        paid: What each block has paid for it, if it has a limit.
        unasked: What each block has paid for those of its queries that say neither an error nor a price.
        to_come: The number of its queries from the one in hand on.
    """

    record: str = ""
    limit: int | None = None
    drawn: int = 0
    seconds: float = 0.0
    paid: tuple[Charge, ...] = ()
    unasked: tuple[Charge, ...] = ()
    to_come: int = 1

    @classmethod
    def of(cls, record: str, limit: int | None, facts: Mapping[str, str]) -> InHand:
        """A record, with what the facts of its data set say of it."""
        found = cls(record, limit)
        for name in IN_HAND:
            last, _, told = facts.get(name, "").partition(" ")
            if last != record or not told:
                continue
            if name == _WORK:
                drawn, seconds = told.split()
                found.drawn, found.seconds = int(drawn), float(seconds)
            else:
                setattr(found, name, tuple(Charge(*one) for one in json.loads(told)))
        return found

    def facts(self) -> dict[str, str]:
        """The facts that say it."""
        told = {_WORK: f"{self.drawn} {self.seconds:g}"}
        for name, charges in ((_PAID, self.paid), (_UNASKED, self.unasked)):
            if charges:
                units = [[one.block, one.rho, one.delta] for one in charges]
                told[name] = json.dumps(units, separators=(",", ":"))
        return {name: f"{self.record} {text}" for name, text in told.items()}

    @property
    def exhausted(self) -> bool:
        """Whether the record has led to as many looks as one record may."""
        return self.drawn >= MOST_DRAWN or self.seconds >= MOST_SECONDS

    def paid_on(self, blocks: Container[int]) -> list[Charge]:
        """What was paid on some blocks."""
        return [charge for charge in self.paid if charge.block in blocks]

    def would_pass_limit(self, charges: Sequence[Charge]) -> bool:
        """Whether the record would take more of some line than it may, with these charges."""
        if self.limit is None:
            return False
        paid = self.paid_on({charge.block for charge in charges})
        return dearest(summed([*paid, *charges])) > self.limit

    def pay(self, charges: Sequence[Charge]) -> None:
        """Counts charges, if the record has a limit."""
        if self.limit is not None:
            self.paid = summed([*self.paid, *charges])
