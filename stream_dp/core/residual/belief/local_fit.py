"""A likely table where no promise can be made: maximum entropy over a few attributes.

What is published about subsets of the attributes is made non-negative and fitted by iterative
proportional scaling, from the uniform table on (Deming and Stephan 1940). The fit knows no
interaction that was never measured; its answers are close in practice and promised by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from stream_dp.core.residual.belief.linear_forms import Floats, table

if TYPE_CHECKING:
    from stream_dp.core.residual.belief.residuals import WindowView

MAX_FIT_CELLS = 2**17
"""Above this the unknown interactions are left out instead: a fit would take too long."""

_SWEEPS = 60


def fit(view: WindowView) -> Floats:
    """Non-negative counts over the view's attributes that sum to its rows.

    Fitted to the largest proper subsets of the attributes of which everything was measured.

    Returns:
        Shape (size of each attribute).
    """
    k = view.spectrum.ndim
    sizes = tuple(n - 1 for n in view.spectrum.shape)
    if math.prod(sizes) > MAX_FIT_CELLS:
        return non_negative(table(view.spectrum, axes=range(k)), view.likely_total)
    targets = {axes: _published(view, axes) for axes in _measured(view, k)}
    return maximum_entropy(sizes, targets, view.likely_total)


def maximum_entropy(
    sizes: tuple[int, ...], targets: Mapping[tuple[int, ...], Floats], n_rows: float
) -> Floats:
    """The least presuming counts with these marginals; near to them where they contradict each other.

    Args:
        sizes: Cells along each axis.
        targets: Non-negative counts over ascending axes, fitted in this order again and again.
        n_rows: The sum of the counts.

    Returns:
        Non-negative counts, shape ``sizes``.
    """
    counts = np.full(sizes, n_rows / math.prod(sizes))
    for _ in range(_SWEEPS if len(targets) > 1 else len(targets)):
        change = 0.0
        for axes, target in targets.items():
            others = tuple(axis for axis in range(len(sizes)) if axis not in axes)
            current = counts.sum(axis=others, keepdims=True)
            wanted = target.reshape(current.shape)
            change = max(change, float(np.abs(current - wanted).max()))
            counts = counts * np.divide(
                wanted, current, out=np.zeros_like(current), where=current > 0.0
            )
        if change < 1e-4 * n_rows:
            break
    return counts


def _measured(view: WindowView, k: int) -> list[tuple[int, ...]]:
    """The largest proper subsets with every interaction measured, as axes."""
    # Along a chain, what finer levels would say is left out where only groups were measured.
    known = {
        frozenset(axis for axis, level in enumerate(levels) if level)
        for levels, v in zip(view.layout.levels, view.variances, strict=True)
        if max(levels, default=0) <= 1 and math.isfinite(v)
    }
    # A marginal brings all its subsets along, so what is known is closed downwards.
    proper = [s for s in known if 0 < len(s) < k]
    largest = [s for s in proper if not any(s < other for other in proper)]
    return sorted(tuple(sorted(s)) for s in largest)


def _published(view: WindowView, axes: tuple[int, ...]) -> Floats:
    """The best estimate of the counts over ``axes``, made non-negative."""
    part_slice = tuple(slice(None) if axis in axes else 0 for axis in range(view.spectrum.ndim))
    part = view.spectrum[part_slice]
    return non_negative(table(part, axes=range(part.ndim)), view.likely_total)


def non_negative(counts: Floats, n_rows: float) -> Floats:
    """The nearest non-negative table that sums to ``n_rows``.

    Cutting negative cells off and scaling would instead count the noise of every empty cell as rows.
    """
    descending = np.sort(counts, axis=None)[::-1]
    excess = (np.cumsum(descending) - n_rows) / np.arange(1, counts.size + 1)
    n_kept = np.count_nonzero(descending > excess)
    return np.asarray(np.maximum(counts - excess[n_kept - 1], 0.0))
