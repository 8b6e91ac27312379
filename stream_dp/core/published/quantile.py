"""Quantiles as functions of published counts: docs/proofs, Theorem 23.

A bin is *passed* by the rows up to it, less the rank's share of all rows. The quantile lies in the first bin
that is passed by at least 0. Estimates of these numbers, and half widths around each, rule bins out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def weights(n_cells: int, bins: Sequence[int], up_to: int, rank: float) -> Floats:
    """Returns what a row of each cell adds to the number by which a bin is passed, shape (n_cells,).

    Args:
        n_cells: The cells of the attribute, that of missing values included.
        bins: The cells with rows that count, ascending.
        up_to: The place in ``bins`` of the bin that is passed.
        rank: The rank of the quantile, as a share of the rows that count, in [0, 1].
    """
    each = np.zeros(n_cells)
    each[list(bins)] = -rank
    each[list(bins[: up_to + 1])] += 1.0
    return each


def likely(passed: Floats) -> Integers:
    """Returns the place of the bin that each quantile lies in by the estimates, shape (groups,).

    Args:
        passed: The numbers by which all bins but the last are passed, shape (groups, bins - 1).
    """
    always = np.ones((len(passed), 1), dtype=np.bool_)
    reached = np.hstack([passed >= 0.0, always])
    return np.asarray(reached.argmax(axis=1))


def hulls(passed: Floats, bars: Floats) -> tuple[Integers, Integers]:
    """Returns the places of the first and the last bin that each quantile may lie in, shape (groups,) each.

    Args:
        passed: The numbers by which all bins but the last are passed, shape (groups, bins - 1).
        bars: The half widths around them, of the same shape. Infinite where nothing is known.

    The bin of ``likely`` is always between the two.
    """
    always = np.ones((len(passed), 1), dtype=np.bool_)
    before = np.hstack(
        [always, passed - bars < 0.0]
    )  # the rows before the bin may not reach the rank
    within = np.hstack([passed + bars >= 0.0, always])  # the rows up to the bin may reach it
    may_be = before & within
    last = may_be.shape[1] - 1 - may_be[:, ::-1].argmax(axis=1)
    return np.asarray(may_be.argmax(axis=1)), np.asarray(last)
