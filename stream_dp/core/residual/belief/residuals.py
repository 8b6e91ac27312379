"""The residual memory: everything that noisy marginals ever said, in closed form.

A marginal over attributes S of one block, with independent noise of variance s^2 on each cell, gives
for every non-empty subset T of S the T-residual of the counts plus noise of variance
``v = s^2 * prod(n_i for i in S without T)`` in its own subspace. These noises are uncorrelated across T
(the subspaces are orthogonal) and independent across measurements, so the best linear unbiased estimate
from everything measured is, for each block and T alone, the mean weighted by 1/v. Nothing is ever solved
again, the order does not matter but for rounding, and the state is a fold over what was published.

Noise that is integer is not independent across T: a 2 x 2 table's row and column differences are both even
or both odd. Nothing here needs more than variances that add. What an answer promises rests on its error as
a whole, one weighted sum of the independent noises on cells: it has the variance stated, is sub-Gaussian
with it, and nearly Gaussian where scales are more than a few rows (docs/proofs, Theorems 3 and 4).

The idea is ResidualPlanner's (Xiao, He, Zhang, Kifer 2023), used online and block by block.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.residual.belief.levels import Layout, Part, axes_of
from stream_dp.core.residual.belief.linear_forms import (
    Floats,
    part_infinite,
    spectrum,
    variance_of_parted,
)
from stream_dp.core.residual.belief.local_fit import fit
from stream_dp.core.residual.belief.shelf import Shelf

_MAX_VIEW_ENTRIES = 2**23
_MAX_TOTALS = 8


class WindowView:
    """The measurements of some attributes in one window. A view knows no blocks.

    Attributes:
        n_rows: Rows of the window; no more can count.
        layout: The attributes, and the parts of their spectrum.
        spectrum: Best estimates of all residuals; zeros where nothing was measured.
        variances: v_T for each T, shape (parts,); 0 for the empty one where all rows count.
        bars: Bars for all times that were worked out: of one answer with these norms, at this margin and
            failure probability, from what was measured alone.
    """

    def __init__(self, n_rows: float, spectrum: Floats, variances: Floats, layout: Layout) -> None:
        self.n_rows = n_rows
        self.layout = layout
        self.spectrum = spectrum
        self.variances = variances
        self.bars: dict[tuple[bytes, float, float], Floats] = {}
        self._parted = part_infinite(variances)

    def __deepcopy__(self, memo: dict[int, Any]) -> WindowView:
        return self  # nothing changes it

    def variance(self, norms: Floats) -> Floats:
        """Returns the variance, shape (rows,), of answers with norms |x_T|^2 of shape (rows, parts)."""
        return variance_of_parted(norms, *self._parted)

    @property
    def total(self) -> float:
        """The best estimate of the rows that count; 0 where nothing is known of their number."""
        return float(self.spectrum[self.layout.slices[0]])

    @property
    def likely_total(self) -> float:
        """The same within what is possible; ``n_rows`` where nothing is known."""
        if not math.isfinite(self.variances[0]):
            return self.n_rows
        return min(max(self.total, 0.0), self.n_rows)

    def noise(self, members: tuple[bool, ...]) -> float:
        """The expected squared norm of the noise of what some of the attributes say together."""
        dimensions = self.layout.dimensions
        return math.fsum(
            v * dimensions[index]
            for index, (levels, v) in enumerate(
                zip(self.layout.levels, self.variances.tolist(), strict=True)
            )
            if tuple(map(bool, levels)) == members
        )

    @cached_property
    def likely(self) -> Floats:
        """A non-negative table that agrees with what was measured; see ``local_fit``."""
        return fit(self)


class _Interaction:
    """One T-residual: in each block its best estimate, and the variance v of that."""

    __slots__ = ("_estimates", "_totals", "_variances")

    def __init__(self) -> None:
        self._estimates: dict[int, Floats] = {}  # blocks never measured take no room
        self._variances = np.full(16, math.inf)
        self._totals: dict[tuple[int, int], tuple[Floats | None, float]] = {}

    def copied(self) -> _Interaction:
        """The same, to be changed; estimates are replaced and never changed, so they are shared."""
        copy = _Interaction()
        copy._estimates = dict(self._estimates)
        copy._variances = self._variances.copy()
        return copy

    def add(self, block: int, residual: Floats, variance: float) -> None:
        while block >= len(self._variances):
            self._variances = np.append(self._variances, np.full(len(self._variances), math.inf))
        known = self._estimates.get(block)
        if known is None:
            self._estimates[block] = residual.copy()
            self._variances[block] = variance
        else:
            combined = 1.0 / (1.0 / self._variances[block] + 1.0 / variance)
            self._estimates[block] = known + (combined / variance) * (residual - known)
            self._variances[block] = combined
        self._totals.clear()

    def measures(self, block: int) -> bool:
        return block in self._estimates

    def forget(self, block: int) -> None:
        del self._estimates[block]
        self._variances[block] = math.inf
        self._totals.clear()

    def variances(self, start: int, stop: int) -> Floats:
        """Returns v in each block, infinite where never measured, shape (stop - start,)."""
        known = self._variances[start:stop]
        missing = stop - start - len(known)
        return np.append(known, np.full(missing, math.inf)) if missing else known

    def total(self, start: int, stop: int) -> tuple[Floats | None, float]:
        """Sums over a window of the estimates there are, and of the variances."""
        total = self._totals.get((start, stop))
        if total is None:
            if len(self._totals) >= _MAX_TOTALS:
                self._totals.clear()
            measured = [self._estimates[b] for b in range(start, stop) if b in self._estimates]
            estimate = np.add.reduce(measured) if measured else None
            total = (estimate, float(self.variances(start, stop).sum()))
            self._totals[start, stop] = total
        return total


class ResidualMemory:
    """Best estimates of all interactions of all blocks, from published marginals alone.

    Args:
        shape: Sizes of the universe's attributes.
        total_known: Whether all rows count, so that their number is public. Otherwise the number of rows that
            count is estimated like every other residual: it is that of no attributes at all.
    """

    def __init__(self, shape: tuple[int, ...], *, total_known: bool = True) -> None:
        self.total_known = total_known
        self._axes = axes_of(shape, total_known=total_known)
        self._rows_before = [0]
        self._interactions = Shelf[Part, _Interaction](_Interaction, _Interaction.copied)
        self._views: dict[tuple[tuple[int, ...], int, int], WindowView] = {}
        self._view_entries = 0

    def add_attributes(self, shape: tuple[int, ...]) -> None:
        """Goes on with more attributes; those that there are stay as they are."""
        self._axes = axes_of(shape, total_known=self.total_known)
        self._forget_views()

    def __len__(self) -> int:
        return len(self._rows_before) - 1

    def __repr__(self) -> str:
        return f"ResidualMemory({len(self)} blocks, {len(self._interactions)} interactions)"

    def open_block(self, n_rows: int) -> None:
        """Adds a block of which only the number of rows is known."""
        self._rows_before.append(self._rows_before[-1] + n_rows)

    def rows(self, window: range) -> int:
        """Rows of the window, those that do not count included; public."""
        return self._rows_before[window.stop] - self._rows_before[window.start]

    def add_rows(self, block: int, n_rows: int) -> None:
        """Forgets what was measured of a block, which has more rows from now on."""
        for place in range(block + 1, len(self._rows_before)):
            self._rows_before[place] += n_rows
        for part in self._interactions:
            known = self._interactions.get(part)
            if known is not None and known.measures(block):
                self._interactions.own(part).forget(block)
        self._forget_views()

    def absorb(
        self, attributes: tuple[int, ...], block: int, table: Floats, variance: float
    ) -> None:
        """Folds in a published marginal of one block.

        Args:
            attributes: Indices, ascending, at least one.
            block: The absolute index of the block.
            table: Noisy counts, shape (size of each attribute), or the groups of a level in place of a size.
            variance: The variance of the independent noise on each count.
        """
        assert 0 <= block < len(self), "the block is open"
        layout = self._axes.layout(attributes)
        table = np.asarray(table, dtype=np.float64)
        if layout.graded:
            levels = layout.levels_of(table.shape)
            parts = layout.split(table, levels)
        else:
            levels = layout.finest
            whole = spectrum(table, average=False)
            parts = {i: whole[part_slice] for i, part_slice in enumerate(layout.slices)}
        for index, raised in layout.variances(levels, variance):
            part = np.asarray(parts[index])
            self._interactions.own(layout.parts[index]).add(block, part, raised)
        self._forget_views()

    def _forget_views(self) -> None:
        self._views.clear()
        self._view_entries = 0

    def view(self, attributes: tuple[int, ...], window: range) -> WindowView:
        """Everything known about ``attributes`` in the window, added up over its blocks."""
        key = (attributes, window.start, window.stop)
        view = self._views.get(key)
        if view is None:
            view = self._assemble(attributes, window)
            self._view_entries += view.spectrum.size
            if self._view_entries > _MAX_VIEW_ENTRIES:
                self._views.clear()
                self._view_entries = view.spectrum.size
            self._views[key] = view
        return view

    def measured(self, attributes: tuple[int, ...], window: range) -> bool:
        """Returns whether each block of the window has a published table with all these attributes."""
        interaction = self._interactions.get(attributes)
        if interaction is None:
            return False
        return bool(np.isfinite(interaction.variances(window.start, window.stop)).all())

    def variances(self, attributes: tuple[int, ...], window: range) -> Floats:
        """v_T in each block, shape (parts, len(window)); 0 for the empty T where all rows count."""
        layout = self._axes.layout(attributes)
        result = np.full((len(layout.parts), len(window)), math.inf)
        if self.total_known:
            result[0] = 0.0
        for index, interaction in self._known(layout):
            result[index] = interaction.variances(window.start, window.stop)
        return result

    def _assemble(self, attributes: tuple[int, ...], window: range) -> WindowView:
        layout = self._axes.layout(attributes)
        n_rows = float(self.rows(window))
        parts = np.zeros([chain.size + 1 for chain in layout.chains])
        variances = np.full(len(layout.parts), math.inf)
        if self.total_known:
            parts[layout.slices[0]], variances[0] = n_rows, 0.0
        for index, interaction in self._known(layout):
            estimate, variances[index] = interaction.total(window.start, window.stop)
            if estimate is None:
                continue
            if layout.graded:
                parts[layout.slices[index]] += layout.spread(index, estimate)
            else:
                parts[layout.slices[index]] = estimate
        return WindowView(n_rows, parts, variances, layout)

    def _known(self, layout: Layout) -> list[tuple[int, _Interaction]]:
        known = map(self._interactions.get, layout.parts)
        return [(index, one) for index, one in enumerate(known) if one is not None]
