"""Synthetic rows from the consistent set: post-processing of what was published, and so free.

The rows follow one hypothesis of the set, its ``point``: the mean of all, or the point of maximum entropy. A
window's shares are those of its blocks, weighted by their public sizes.

**How far off.** Every hypothesis is within eps/50 of each published hard answer about the window, and that
answer within eps/100 of the truth while the noise is as small as the mechanism promises (Kim 2017, Lemma
3.3). So the shares are within ``3 eps/100`` of the truth on queries that were hard; what a polytope's point
lacks of the whole mass comes on top. About other queries nothing is proved: an easy query's *median* is
right, and one hypothesis need not be. Whole rows add their rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.phased import Phased

_Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Rows in place of those of a window.

    Attributes:
        counts: Rows in each cell of the universe, row-major, int64, shape (n_cells,).
        proved_error: How far the share of a query that was hard, about this very window, may be from the
            truth, except with the mechanism's failure probability; rounding not counted. Zero hard queries
            make it say nothing.
        hard_queries: How many there were.
        worst: Largest distance of these rows to the published answer of one; 0 without any.
        rounding: How far rounding to whole rows moves any one share, except with probability ``beta``.
    """

    counts: npt.NDArray[np.int64]
    proved_error: float
    hard_queries: int
    worst: float
    rounding: float


def synthetic(
    mechanism: Phased,
    window: range,
    n_rows: int,
    generator: np.random.Generator,
    *,
    beta: float = 0.01,
) -> Synthetic:
    """Draws ``n_rows`` rows for a window.

    Args:
        n_rows: As many as are wanted, at least 1; the window's own number is public.
        generator: Public randomness, for the rounding.
        beta: Probability of a larger rounding, for each share.

    Raises:
        ValueError: No hypothesis agrees with all published answers, or ``n_rows`` is below 1.
    """
    if n_rows < 1:
        raise ValueError("no rows were asked for")
    shares = mechanism.hypothesis(window)
    mass = float(shares.sum())
    counts, left = whole_rows(shares / mass, n_rows, generator)
    answers = [(cells, share) for cells, about, share in mechanism.hard_answers if about == window]
    off = [abs(float(counts[cells].sum()) / n_rows - float(share)) for cells, share in answers]
    return Synthetic(
        counts=counts,
        proved_error=0.03 * float(mechanism.constants.error) + max(0.0, 1.0 - mass),
        hard_queries=len(answers),
        worst=max(off, default=0.0),
        rounding=math.sqrt(left * math.log(2.0 / beta) / 2.0) / n_rows,
    )


def whole_rows(
    shares: _Floats, n_rows: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], int]:
    """Whole rows whose expected shares are exactly these, and how many of them were drawn at random.

    A cell gets the whole part of ``share * n_rows`` for sure; the rows that are left are drawn independently
    by the remainders. By Hoeffding a predicate's count is off by ``sqrt(left ln(2/beta) / 2)`` rows at most,
    except with probability beta; ``left`` is below the number of cells.

    Args:
        shares: Sum to 1, shape (n_cells,).
    """
    wanted = shares * n_rows
    counts = np.floor(wanted).astype(np.int64)
    left = n_rows - int(counts.sum())
    if left > 0:
        rest = wanted - counts
        counts += generator.multinomial(left, rest / rest.sum())
    return counts, max(left, 0)


__all__ = ["Synthetic", "synthetic", "whole_rows"]
