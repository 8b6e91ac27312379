"""What the lines of one data set have paid, who may charge them, and what the record in hand has taken."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypedDict

import numpy as np

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.share_bounds import OWNER
from stream_dp.core.mechanism import dearest
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.errors import BudgetExceeded
from stream_dp.messages import BudgetShares, ChangeAnalysts, OwnShare
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.spending.in_hand import InHand
from stream_dp.pipeline.spending.payers import OWN, Payer, PayingAnalysts
from stream_dp.pipeline.spending.rate_limits import AnalystLimits
from stream_dp.pipeline.spending.unpriced_queries import Unasked
from stream_dp.profiles.calibrated_profile import aim_of
from stream_dp.state.schema import StateTable


class LateFacts(TypedDict, total=False):
    """What is said of late rows with an answer; nothing where no more come to its window.

    Attributes:
        late_waiting: The number of late rows of the window that wait.
        complete_at: When no more rows come to the window.
    """

    late_waiting: int
    complete_at: str


class SweepFacts(TypedDict, total=False):
    """What is said with answers about phases of which rows may have been changed.

    Attributes:
        changed_at_most: The most rows of the window that were erased or corrected since they were sealed.
    """

    changed_at_most: int


class WindowFacts(LateFacts, SweepFacts):
    """The part of an answer that depends on its window alone, until something is paid or a phase opens."""

    n: int
    budget: BudgetShares
    phase: int
    window: tuple[int, int]
    since: str | None
    until: str | None


class LineAccounts:
    """The accounts of one data set. All of it is public.

    Attributes:
        spent: What each block has paid, in units of its line: rho and delta'.
        in_hand: The record in hand, and what it has led to.
        paying: Who pays for queries, and what they may still spend.
        limits: How fast analysts may ask and spend.
        unasked: What queries take that say neither an error nor a price.
        window_facts: What answers about a window said last to an analyst. Empty again with each change.
        changes: How often anything has changed that replies follow from, see ``changed``.
    """

    def __init__(self, engine: Engine, draft: Draft) -> None:
        self._engine, self._draft = engine, draft
        definition, facts = engine.definition, draft.facts
        spent = [map(int, one.split()) for one in draft.state.numbered(StateTable.SPENT)]
        self.spent = [(rho, delta) for rho, delta in spent]
        self.in_hand = InHand()
        self.paying = PayingAnalysts(
            draft.dataset,
            definition,
            facts,
            draft.note,
            lambda window: engine.mechanism.spending.part_now(window),
        )
        self.limits = AnalystLimits(facts, draft.note)
        self.unasked = Unasked(aim_of(definition.accuracy), facts, draft.note)
        self.window_facts: dict[tuple[range, str], WindowFacts] = {}
        self.changes = 0

    # ------------------------------------------------------------ what is left

    def budget(self, window: range, analyst: str | None = None) -> BudgetShares:
        """Returns the spent and the remaining share of the line in ``window`` of which most is spent.

        Args:
            window: The blocks.
            analyst: The one who asks, whose own part is said where anybody's part is bounded.
        """
        worst = max((max(self.spent[block]) for block in window), default=0)
        shares = BudgetShares(spent=round(worst / UNITS, 6), left=round(1 - worst / UNITS, 6))
        if analyst is None or not self.paying.bounds or not window:
            return shares
        return shares.model_copy(update={"yours": self._own_share(window, analyst)})

    def _own_share(self, window: range, analyst: str) -> OwnShare:
        payer = Payer(analyst, analyst)
        lines = UNITS - np.array([self.spent[block] for block in window]).T
        left = np.minimum(self.paying.room(payer, window), lines).min(axis=0)
        least = int(left.argmin())
        spent = self.paying.spent(payer, window)[:, least].max()
        return OwnShare(spent=round(int(spent) / UNITS, 6), left=round(int(left[least]) / UNITS, 6))

    @property
    def newest_left(self) -> float:
        """The share of the newest phase's line that is left. There is one."""
        return 1.0 - max(self.spent[-1]) / UNITS

    @property
    def newest_free(self) -> float:
        """The same without what is kept for later phases."""
        kept = self._engine.mechanism.spending.kept_for_later(len(self.spent) - 1)
        return max(0.0, self.newest_left - kept / UNITS)

    def share_left(self, entry: str) -> float:
        """Returns the share of the newest phase's line that an entry of ``analysts`` may still charge now.

        Args:
            entry: The name or the pattern; of a pattern, what an analyst may who has charged nothing yet.
                Empty for the owner.
        """
        newest = range(len(self.spent) - 1, len(self.spent))
        room = self.paying.room(Payer(entry, entry), newest)
        return min(self.newest_left, int(room.min()) / UNITS)

    # ------------------------------------------------------------ who pays

    def payer(self, analyst: str, query: AnyQuery) -> Payer:
        """Returns who pays for a query of an analyst."""
        by_owner = self._engine.mechanism.spending.paid_by_owner(query)
        return Payer(analyst, OWNER if by_owner else analyst)

    def lacks(self, payer: Payer, charges: Iterable[Charge]) -> bool:
        """Returns whether charges would pass what their payer may spend now."""
        return self.paying.lacking(payer, summed(charges)) is not None

    def asked_by(self, analyst: str | None) -> AbstractContextManager[None]:
        """Has looks planned in this context within what may be spent, and may be spent unasked.

        Args:
            analyst: Who asks; None for what the data set measures on its own account.
        """
        if not self.paying.bounds and self.unasked.aim is None:
            return contextlib.nullcontext()
        return self._within_rooms(analyst)

    @contextlib.contextmanager
    def _within_rooms(self, analyst: str | None) -> Iterator[None]:
        mechanism = self._engine.mechanism
        if self.paying.bounds:
            payer = OWN if analyst is None else Payer(analyst, analyst)
            mechanism.spending.pays(self.paying.payers(payer))
        if analyst is not None:
            mechanism.spending.takes_unasked(
                self.unasked.room(analyst, self._draft.dated_ms, self.in_hand.unasked)
            )
        try:
            yield
        finally:
            mechanism.spending.pays(None)
            mechanism.spending.takes_unasked(None)

    def change_rules(self, rules: ChangeAnalysts) -> None:
        """Drafts what is allowed to whom from now on. Nothing is drafted of what is so already."""
        if (rules.analysts, rules.owner) != (self.paying.analysts, self.paying.owner):
            self._draft.write_ledger("analysts", self.paying.change(rules))
            self.changed()

    # ------------------------------------------------------------ the record in hand

    def begins(self, record_id: str, at_most: float | None) -> None:
        """Says which record is in hand. One that a crash cut short goes on with what it had taken by then.

        Args:
            record_id: The record.
            at_most: The largest share of any line that the record may take. None for no limit.
        """
        limit = None if at_most is None else math.floor(at_most * UNITS)
        self.in_hand = InHand.of(record_id, limit, self._draft.facts)
        self.limits.leave()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Counts what is done in this context for no record: a standing query is a request of its own."""
        in_hand, self.in_hand = self.in_hand, InHand()
        try:
            with self.limits.apart():
                yield
        finally:
            self.in_hand = in_hand

    def with_its_part(self, query: AnyQuery) -> AnyQuery:
        """A query, with a price where it names none and its record does: an equal part of what is left.

        It says nothing of its error either. Those behind it have their parts, and what it leaves.
        """
        limit = self.in_hand.limit
        if limit is None or not self._engine.mechanism.spending.is_unasked(query):
            return query
        assert isinstance(query, LinearQuery), "the data set decides about no other"
        left = max(0, limit - dearest(self.in_hand.paid_on(query.window)))
        part = left / UNITS / self.in_hand.to_come
        return replace(query, target=replace(query.target, at_most=part))

    # ------------------------------------------------------------ charges

    def open_line(self) -> None:
        """Drafts the line of the next phase, of which nothing is spent."""
        self._draft.put(StateTable.SPENT, len(self.spent), b"0 0")
        self.spent.append((0, 0))
        self.changed()

    def charge(
        self, payer: Payer | None, charges: Sequence[Charge], *, asked: bool, unasked: bool
    ) -> None:
        """Drafts charges. They count once the journal has them, see ``charged``.

        Args:
            payer: Who pays, within what they may spend. None for what opens a phase.
            charges: The charges, in the order of their blocks, a block once.
            asked: Whether the record in hand asks for the looks, so that they count for its limit.
            unasked: Whether the data set has decided what they take, so that they count for its guards.

        Raises:
            BudgetExceeded: They pass the line of a block, or what the payer may spend.
        """
        spent = self._with(charges)
        if max((max(units) for units in spent.values()), default=0) > UNITS:
            raise BudgetExceeded(f"{self._draft.dataset}: looks would pass the line of a block")
        for block, (rho, delta) in spent.items():
            self._draft.put(StateTable.SPENT, block, b"%d %d" % (rho, delta))
        self.paying.charge(payer, charges)
        if asked:
            self.in_hand.pay(charges)
            self.limits.pay(charges)
        if unasked and payer is not None and payer.analyst is not None:
            self.unasked.pay(payer.analyst, self._draft.dated_ms, self.in_hand, charges)
        if self.in_hand.record:
            for name, said in self.in_hand.facts().items():
                self._draft.note(name, said)

    def charged(self, charges: Sequence[Charge]) -> None:
        """Says that the journal has charges."""
        for block, units in self._with(charges).items():
            self.spent[block] = units
        self.changed()

    def changed(self) -> None:
        """Says that what was said to analysts holds no more.

        A phase opens, a look is charged, rows are erased or come late, or other rules are in force.
        """
        self.changes += 1
        self.window_facts.clear()

    def _with(self, charges: Sequence[Charge]) -> dict[int, tuple[int, int]]:
        """What blocks have paid with charges, by block."""
        return {
            one.block: (self.spent[one.block][0] + one.rho, self.spent[one.block][1] + one.delta)
            for one in charges
        }
