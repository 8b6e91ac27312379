"""The error of a mean: how a mean is measured to within a given value.

How precise a look has to be follows from the count of the rows and from the mean itself, which nobody knows
beforehand. So *pilots* bring the total to fixed precisions, each twice as fine as the one before, until the
count is known well enough. Then one *final look* is sized by what was published. It stands alone: the answer
is what this look finds, and nothing from before. The proof is docs/proofs, Theorem 15.

The state of all this is what was published. All decisions follow from published numbers and prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.sums import (
    Moments,
    SumEvidence,
    Sums,
    least_deviations,
    pairs_of,
)
from stream_dp.core.residual.plan.planner import Prices, Terms
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand, SumPlanner

_MOST_PILOTS: Final = 8
_AIM: Final = 0.98
"""The part of the error that a final look is planned for: its own estimate decides about its bar."""

_LOW: Final = 3.0
"""Standard deviations by which the counts of a final look may come out low without making a bar too wide."""

_MOST_TRIES: Final = 8
_LEAST_PART: Final = 0.7

_KNOWN: Final = 0.6
"""A count is known well enough once its lower end is this part of it."""

_Room = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MeanStage:
    """The next look of a mean.

    Attributes:
        measure: What to measure.
        final: Whether its result is the answer.
    """

    measure: MeasureSums
    final: bool


def next_stage(
    planner: SumPlanner,
    alone: SumEvidence,
    terms: Terms,
    error: float,
    failure: float,
    prices: Prices,
    room: _Room,
) -> MeanStage | None:
    """The next look of a mean with an error of its own; None if the room is too small for it.

    Args:
        planner: What is known about the query.
        alone: The same query with nothing known about it.
        terms: The accuracy promised by the data set.
        error: Largest half width around each mean, in units of the largest value.
        failure: The probability with which each bar misses.
        prices: The prices of noise scales, in units of a line.
        room: Units that each block may spend, shape (len(window),).
    """
    z = two_sided(math.log(failure))
    sums, means = planner.known.sums, replace(planner, known=alone)
    demand = SumDemand.of_means(sums, _AIM * error, z)
    at_least = sums.counts - z * np.sqrt(sums.moments.counts)
    if demand is None or (at_least < _KNOWN * sums.counts).any():
        n_rows = float(sum(planner.known.rows_by_block))
        for stage in range(_MOST_PILOTS):
            finer = replace(terms, error=terms.error * 2.0**-stage)
            pilot = replace(planner, demand=SumDemand.of_totals(finer, n_rows, rows=False))
            if not pilot.certified:
                found = pilot.look(prices, room)
                return None if found is None else MeanStage(found, final=False)
    if demand is None:
        return None
    aim, last = error, replace(means, demand=demand).look(prices, room)
    for _ in range(_MOST_TRIES):
        if last is None:
            return None
        widest = _widest_bar(sums, means.moments_after(last), failure)
        if widest <= error:
            break
        # The count that the look finds may be low, so that its bar comes out wider than planned.
        aim *= max(error / widest, _LEAST_PART)
        demand = SumDemand.of_means(sums, _AIM * aim, z)
        assert demand is not None, "it was one for a larger aim"
        last = replace(means, demand=demand).look(prices, room)
    return None if last is None else MeanStage(last, final=True)


def _widest_bar(known: Sums, after: Moments, failure: float) -> float:
    """The widest bar of a mean that a look by itself finds if its counts come out low.

    Args:
        known: The best estimates.
        after: The covariances of what the look finds.
        failure: The probability with which each bar misses.
    """
    z, least = two_sided(math.log(failure)), least_deviations(max(1, len(known.counts)), failure)
    counts = known.counts - _LOW * np.sqrt(after.counts)
    totals = known.totals / known.counts * counts
    bars = [pair.bar(z, least) for pair in pairs_of(totals, counts, after)]
    return max((math.inf if bar is None else bar for bar in bars), default=0.0)
