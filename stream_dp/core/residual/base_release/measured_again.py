"""What a block is measured with again once its late rows are in, and the units that are kept for that.

What was measured before says nothing of the late rows. So it is forgotten, and the tables of the opening are
measured once more, of all rows together; tables of the running totals come with them. A part of the line is
kept for this until the block is complete (docs/proofs, Theorem 37).
"""

from __future__ import annotations

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.base_release.base_plan import NOTHING, BaseRelease
from stream_dp.core.residual.belief.levels import Part as Components
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.looks.counted_rows import RowsLook
from stream_dp.core.residual.looks.table_looks import BASE, Part, TablesLook
from stream_dp.core.residual.plan.planner import Units, step_below
from stream_dp.core.residual.public_state import PublicState


class MeasuredAgain:
    """The blocks of one data set that may still get late rows: a fold over phases and releases.

    Args:
        state: What is published, promised and left to spend.

    Attributes:
        units_besides: Units of a line that being measured again takes besides the tables of the opening.
    """

    def __init__(self, state: PublicState) -> None:
        self._state = state
        self._complete = 0  # the number of first blocks that get no more rows
        self._opened: dict[int, list[Part]] = {}
        state.spending.allocator.again = self.kept
        self.plan_again()

    def plan_again(self) -> None:
        """Plans what is measured besides the tables of openings, for the attributes that new rows have."""
        self._besides = self._running_tables()
        self.units_besides = self._besides.units + self._state.rows_look

    def _running_tables(self) -> BaseRelease:
        """The tables that stand for last running totals, which are forgotten too."""
        running, prices = self._state.settings.running, self._state.prices
        if running is None:
            return NOTHING
        within, found = running.within / self._state.promise.z, dict[Components, int]()
        for tile in running.tiles:
            components, deviation = self._table(tile)
            step = int(step_below(np.array([within / deviation])).item())
            found[components] = min(step, found.get(components, step))
        return BaseRelease.of(found.items(), prices)

    def _table(self, tile: LinearQuery) -> tuple[Components, float]:
        """The table that tells a tile, and the deviation of an answer if that of each cell is 1."""
        axes, form = self._state.promise.axes, form_of(tile, self._state.shape)
        layout = axes.layout(form.attributes)
        of_part = np.zeros(len(layout.parts))
        for index, variance in layout.variances(layout.finest, 1.0):
            of_part[index] = variance
        return axes.part(form.attributes, layout.finest), float((form.norms @ of_part).max()) ** 0.5

    def opened(self, part: Part) -> None:
        """Notes a table that was measured as a block opened."""
        if part.block >= self._complete:
            self._opened.setdefault(part.block, []).append(part)

    def kept(self, window: range) -> Units:
        """Units that are kept on each line of a window, shape (len(window),)."""
        found = np.zeros(len(window), dtype=np.int64)
        for block in range(max(window.start, self._complete), window.stop):
            found[block - window.start] = self._units(block) + self.units_besides
        return found

    def _units(self, block: int) -> int:
        """Units that the tables of the opening take once more."""
        prices = self._state.prices
        return prices.total([part.step for part in self._opened.get(block, ())], prices.table)

    def completed(self, block: int) -> list[Look]:
        """Takes note that a block gets no more rows; returns the looks at all that it has."""
        state, units = self._state, self._units(block) + self._besides.units
        parts, more = self._opened.pop(block, []), self._besides.look(state.shape, BASE, block)
        self._complete = block + 1
        tables = TablesLook.of(BASE, (*parts, *more.parts), state.shape, (Charge(block, units),))
        at_rows = [] if state.counted is None else [RowsLook.at(block, state.prices)]
        return [*at_rows, *([tables] if tables.parts else ())]
