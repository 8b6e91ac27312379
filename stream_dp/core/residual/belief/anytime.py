"""Error bars that hold at all times at once, also if others chose what was measured until then.

Estimates change as more is measured. Someone who watches them can ask when one is furthest off, or have more
measured until it is. These bars hold for all estimates of a query at once, and the choice of the looks may
depend on published values. The error of an estimate is a sum of independent ones, one for each residual and
block: its *directions*. Each of them times its precision is a martingale as more is measured. The mean of
exponentials of all of them is a boundary for the sum (docs/proofs, Theorem 13; Robbins 1970).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import Floats

BOUNDS: Final = 0.2
"""The part of the failure probability that is for answers that smaller counts bound."""

ALL_TIMES: Final = 0.1
"""The part that is for the bars here. The rest is for the error that was asked for."""

_START: Final = 0.125
"""The boundary begins near this share of the precision that a direction needs, or has from the beginning.

The choice costs little, but it must not depend on what was asked or measured since.
"""

_MOST_NUMBERS: Final = 2**20
"""The most numbers that are worked out at once."""

_TIE: Final = 1.0 + 1e-9  # floats that should be equal are


@cache
def z_steered(log_failure: float) -> float:
    """The deviations of an estimate that the error asked for must cover, where others chose what is measured.

    A Brownian motion is beyond a level at some time twice as likely as at the end (reflection). So this is
    the quantile of half of what may fail.

    Args:
        log_failure: Logarithm of the failure probability of an answer.
    """
    return two_sided(log_failure + math.log((1.0 - BOUNDS - ALL_TIMES) / 2.0))


@cache
def z_learned(log_failure: float) -> float:
    """The same for what openings measured of several phases, where what was asked before decided how precise.

    Bounds have no part in it, so more may fail by this.

    Args:
        log_failure: Logarithm of the failure probability of an answer.
    """
    return two_sided(log_failure + math.log((1.0 - ALL_TIMES) / 2.0))


@dataclass(frozen=True, slots=True)
class Directions:
    """What the errors of some answers are made of.

    Attributes:
        norms: The squared norm of each residual in each answer, shape (answers, parts), or (1, parts).
        known: The variances of the residuals by tables now, shape (parts, blocks). Infinite where unknown.
        before: The same as the phases opened.
        counted: The precision of counts of the answer itself in each block, shape (blocks,).
    """

    norms: Floats
    known: Floats
    before: Floats
    counted: Floats

    def bars(self, margin: float, failure_probability: float) -> Floats:
        """Half widths, in rows, of the shape of ``norms`` without its parts; infinite where nothing is known.

        Args:
            margin: The error asked for, in rows. Positive, and the same at all times.
            failure_probability: The failure probability of an answer.

        docs/proofs, Theorem 13.
        """
        promised = (margin / z_steered(math.log(failure_probability))) ** 2
        parts = (self.norms > 0.0).any(axis=0) & (self.known > 0.0).any(axis=1)
        known, before = self.known[parts], self.before[parts]
        least = _START * known.size / promised
        log_factor = -2.0 * math.log(ALL_TIMES * failure_probability)
        norms, at_once = self.norms[:, parts, None], max(1, _MOST_NUMBERS // max(1, known.size))
        if len(norms) <= at_once:
            return self._bars(norms, known, before, least, log_factor)
        bars = [
            self._bars(some, known, before, least, log_factor)
            for some in np.split(norms, range(at_once, len(norms), at_once))
        ]
        return np.concatenate(bars)

    def _bars(
        self, norms: Floats, known: Floats, before: Floats, least: float, log_factor: float
    ) -> Floats:
        """The same for some answers: ``norms`` has the shape (answers, parts, 1)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            there = norms > 0.0
            own = np.where(there, norms * known, 0.0)
            start = np.where(there, np.maximum(least, _START / (norms * before)), least)
            lost = np.isinf(own)
            spent = np.where(lost, 0.0, start * own)
            variance, unknown = own.sum(axis=1), lost.sum(axis=1)
            after = 1.0 / (1.0 / variance + self.counted)
            # What is unknown but for counts bears the whole error, in equal parts.
            weighted = (spent * np.where(lost, 0.0, own)).sum(axis=1) * (after / variance) ** 2
            weighted = np.where(unknown > 0, least * after**2 / unknown, weighted)
            weighted = np.where(variance > 0.0, weighted, 0.0)
            logs = np.where(spent > 0.0, np.log1p(1.0 / spent), 0.0).sum(axis=1)
            reach = np.where(lost, 1.0 / start, own / (1.0 + spent)).sum(axis=1)
            factor = (logs + np.log1p(self.counted * reach)).sum(axis=1) + log_factor
            return np.asarray(np.sqrt((after + weighted).sum(axis=1) * factor))


def promised_bars(
    variances: Floats, anytime: Floats, margin: float, failure_probability: float
) -> Floats:
    """The error asked for, where estimates are precise enough for it, or the bars for all times if narrower.

    Args:
        variances: The variances of the best estimates, shape (answers,) or (1,).
        anytime: Their bars for all times, of the same shape.
        margin: The error asked for, in rows.
        failure_probability: The failure probability of an answer.
    """
    enough = z_steered(math.log(failure_probability)) * np.sqrt(variances) <= margin * _TIE
    return np.minimum(anytime, np.where(enough, margin, math.inf))
