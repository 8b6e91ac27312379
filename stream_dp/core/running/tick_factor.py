"""The whole numbers with which ticks add up what came before them: a factor of the triangle of ones.

Let ``A`` be the lower triangle of ones, so that ``A x`` are the totals of ticks with the counts ``x``. A tick
publishes its row of ``R x``, with noise. Its total is the row of ``L = A R^-1`` times what was published so
far. ``R`` and ``L`` are chosen so that no row of the data weighs much in ``R``, and no noise in ``L``.

All numbers of ``R`` are whole, for the noise is: an entry of 0.5 would tell by its fraction whether a row
came (docs/proofs, Theorem 36).
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular

from stream_dp.core.encoding import Integers
from stream_dp.core.residual.belief.linear_forms import Floats

MOST_TICKS: Final = 2048
"""Most ticks of a period, whose factor takes 64 MiB and half a second."""

_FIXED_BITS: Final = 40
_BITS: Final = 10
"""No entry is above this power of 2."""


class TickFactor:
    """A factor of the totals of a period. Ticks are numbered from 1.

    Args:
        matrix: R, int64, lower triangular with a positive diagonal, shape (ticks, ticks).

    Attributes:
        ticks: The number of ticks.
        column_square: The largest squared length of a column, D.
        variances: The variance of each total where that of a draw is 1: |L_t|^2, shape (ticks,).
    """

    def __init__(self, matrix: Integers) -> None:
        self.ticks = len(matrix)
        self.column_square = int(np.square(matrix).sum(axis=0).max())
        ones = np.triu(np.ones(matrix.shape))
        self._weights: Floats = solve_triangular(matrix.T.astype(np.float64), ones).T
        self.variances: Floats = np.square(self._weights).sum(axis=1)
        self._matrix = matrix

    @property
    def price(self) -> float:
        """What all totals cost together, in counts that are as precise as the least precise of them."""
        return self.column_square * float(self.variances.max())

    def row(self, tick: int) -> Integers:
        """How often each tick so far counts in what a tick publishes: R_t, int64, shape (tick,)."""
        return self._matrix[tick - 1, :tick]

    def weights(self, tick: int, after: int = 0) -> Floats:
        """How much of what each tick has published is in a total, shape (tick,).

        Args:
            tick: The last tick of the total.
            after: The tick behind which it begins. By default it is the running total.
        """
        weights = self._weights[tick - 1, :tick]
        return weights - self._weights[after - 1, :tick] if after else weights

    def variance(self, tick: int, after: int = 0) -> float:
        """The variance of the same total, where that of a draw is 1."""
        return float(np.square(self.weights(tick, after)).sum())


@lru_cache(maxsize=4)
def factor_of(ticks: int) -> TickFactor:
    """The factor of a number of ticks: the square root of the triangle, with columns of one length.

    R_ij is ``2^10 a_(i-j) / n_j``, rounded, where ``a_k = C(2k, k) / 4^k`` are the coefficients of the square
    root, and ``n_j`` makes columns equally long. All of it is whole numbers, so it is the same everywhere.

    Args:
        ticks: From 1 to ``MOST_TICKS``.
    """
    roots = [1 << _FIXED_BITS]
    for k in range(1, ticks):
        roots.append(roots[-1] * (2 * k - 1) // (2 * k))
    matrix = np.zeros((ticks, ticks), dtype=np.int64)
    square = 0
    for rows in range(1, ticks + 1):  # the last column has one
        square += roots[rows - 1] ** 2
        length = isqrt(square)
        column = np.array(roots[:rows], dtype=np.int64) << (_BITS + 1)
        matrix[-rows:, -rows] = (column + length) // (2 * length)
    return TickFactor(matrix)
