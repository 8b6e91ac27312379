"""The units that each query may take of the lines, and why one may not take enough.

A line is the privacy budget of a block. What a query may take of it follows from the settings, from what is
kept for declared tiles, from what the one who pays may spend, and from what may be taken unasked: all public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.share_bounds import Payers, Room
from stream_dp.core.mechanism import ROWS_ERASED, SHARE_SPENT, Spending
from stream_dp.core.outcome import RefusalCode, Refused
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.plan.planner import BudgetAllocator, Lack, Units
from stream_dp.core.residual.plan.reserve import Reserve

REFUSALS: Final[Mapping[Lack, Refused]] = {
    Lack.TILES: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a phase's budget is kept for the tiles that the definition declares; ask again "
        "when they were asked about the newest phase",
        retriable=True,
    ),
    Lack.PACE: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a phase's budget is kept for later phases; ask again after the next one "
        "opens, or about younger phases only",
        retriable=True,
    ),
    Lack.LATE: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a phase's budget is kept to measure it again with its late rows; ask again when its "
        "days are complete",
        retriable=True,
    ),
    Lack.SHARE: SHARE_SPENT,
    Lack.BUDGET: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "a block of the window has no budget left for this; what publications already answer, and "
        "windows of younger phases, can still be asked",
    ),
    Lack.ERASED: ROWS_ERASED,
    Lack.ROWS: Refused(
        RefusalCode.WINDOW_TOO_SMALL,
        "the window has too few rows for the promised accuracy; ask about more phases",
    ),
}
"""The refusals of queries that nothing can be promised for."""


class LineRules(Spending):
    """The rules of one data set.

    Args:
        settings: The settings of the data set.

    Attributes:
        allocator: What each line may still spend.
        reserve: What is kept for declared tiles; None if there are none.
        payers: Who may pay for the query in hand; None where nobody's part of a line is bounded.
        unasked: Units of each line of a window that the query in hand may take unasked, besides what each
            query may. None for no such bound.
    """

    def __init__(self, settings: CalibratedSettings) -> None:
        self._settings = settings
        pacing = settings.learns if settings.pacing is None else settings.pacing
        self.allocator = BudgetAllocator(pacing=pacing, kept=settings.kept)
        self.reserve: Reserve | None = None
        self.payers: Payers | None = None
        self.unasked: Room | None = None

    def part_now(self, window: range) -> Floats:
        return self.allocator.part_now(window)

    def kept_for_later(self, block: int) -> int:
        window = range(block, block + 1)
        return int((self.allocator.left(window) - self.allocator.room_of_tiles(window)).item())

    def paid_by_owner(self, query: AnyQuery) -> bool:
        """Whether a query is a tile that the definition declares, about the newest phase."""
        tiles = self.reserve
        return tiles is not None and isinstance(query, LinearQuery) and tiles.is_for(query)

    def pays(self, payers: Payers | None) -> None:
        self.payers = payers

    def takes_unasked(self, room: Room | None) -> None:
        self.unasked = room

    def is_unasked(self, query: AnyQuery) -> bool:
        if not isinstance(query, LinearQuery) or query.target.at_most is not None:
            return False
        return self.is_aimed(query)

    def is_aimed(self, query: LinearQuery) -> bool:
        """Whether the data set decides how precise the answer is."""
        aimed = self._settings.aim is not None and query.target.is_open
        return aimed and not query.fresh and not self.paid_by_owner(query)

    def most(self, query: LinearQuery) -> int | None:
        """Units that a query may take of any line; None for no limit."""
        most, aim = self._settings.limits.most(query.target), self._settings.aim
        if aim is None or not self.is_unasked(query):
            return most
        unasked = math.floor(aim.query_share * UNITS)
        if self.unasked is not None:
            unasked = min(unasked, int(self.unasked(query.window).min()))
        return unasked if most is None else min(most, unasked)

    def lines_for(self, query: LinearQuery, most: int | None) -> BudgetAllocator:
        """The lines for a query that may take at most ``most`` units of each."""
        payers, declared = self.payers, self.paid_by_owner(query)
        payer = None if payers is None else payers.room(owner=declared)
        # What is kept for tiles is the owner's. It is out of reach of those who have a pool of their own.
        apart = payers is not None and payers.apart
        kept = None if self.reserve is None or declared or apart else self.reserve.kept
        return self.allocator.within(most, kept, payer)

    def room(self, query: LinearQuery, most: int | None, paid: Mapping[int, int]) -> Units:
        """Units of each line that a query may still take.

        Args:
            query: The query.
            most: Units that it may take of any line; None for no limit.
            paid: Units that it has taken of each block's line so far.

        Returns:
            Units, shape (len(window),).
        """
        room = self.lines_for(query, None).room(query.window)
        if most is None:
            return room
        taken = np.array([paid.get(block, 0) for block in query.window])
        return np.asarray(np.minimum(room, np.maximum(most - taken, 0)))

    def stuck(self, query: LinearQuery, paid: Mapping[int, int]) -> Lack:
        """The reason why a query that is answered in several looks gets no further one.

        Args:
            query: The query.
            paid: Units that it has taken of each block's line so far. One that has paid is not refused for
                the share of the one who pays: it gets what it has paid for.
        """
        if query.window.start < self.allocator.erased:
            return Lack.ERASED
        if self.payers is None or paid:
            return Lack.BUDGET
        mine = self.lines_for(query, None).room(query.window)
        return Lack.SHARE if (mine < self.allocator.left(query.window)).any() else Lack.BUDGET

    def refusal(self, lack: Lack) -> Refused | None:
        """The refusal of a query that nothing can be promised for.

        None for a data set that answers it all the same, which a spent share does not allow.
        """
        refuses = self._settings.on_exhausted == "refuse" or lack is Lack.SHARE
        return REFUSALS[lack] if refuses else None

    def imagine(self, charges: tuple[Charge, ...], query: LinearQuery | None) -> None:
        """Takes charges off that nobody has made, as a rehearsal does.

        Args:
            charges: The charges.
            query: Who they are for; None for the data set itself.
        """
        taken = {charge.block: charge.rho for charge in charges}
        if self.payers is not None:
            self.payers.imagine(charges, owner=query is None or self.paid_by_owner(query))
        room = self.unasked
        if room is not None and query is not None and self.is_unasked(query):
            self.unasked = lambda window: np.asarray(
                np.maximum(room(window) - [taken.get(block, 0) for block in window], 0)
            )
