"""Sums of a wide attribute: measured up to a cut, with the rest from published bins.

A look pays for the largest value that a row can count for, and few rows have values near it. So a look adds
up ``min(u, c)`` for a cut ``c``, and the bins above say between which ends the rest lies. Which cuts may be
taken, and how far the rest of each can reach, follows from the definition and from published tables. Why the
bars hold stands in docs/guarantee.md, Theorem 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from stream_dp.core.query import LinearQuery, Total
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.forms import Floats
from stream_dp.core.residual.belief.sums import SumEvidence, Sums, ratio_bar
from stream_dp.core.residual.sum_price import WholeValues, counting_ends

_MOST_CUTS: Final = 16
_PROMISING: Final = 0.8
"""A cut is promising if it brings a bar down to this part of it where the rest is known but for its noise."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What rows count for beyond a cut: the middles and the half widths of a total and of a mean.

    Attributes:
        total: In the attribute's own unit.
        mean: The same for each row that counts. None where nothing is known of it.
    """

    total: float
    total_half: float
    mean: float | None
    mean_half: float


@dataclass(frozen=True)
class Cut:
    """A value up to which rows can be measured, and what tables say of the rest.

    Attributes:
        query: The query for numbers up to the cut.
        at: The cut, in the attribute's own unit.
        low: The least rest that bins allow, and the counts, in units of the largest value of the whole query.
        high: The largest one.
        largest: The largest value of the whole query, in the attribute's own unit.
        z: Deviations that no end of the rest is off, above all cuts at once.
    """

    query: LinearQuery
    at: float
    low: Sums
    high: Sums
    largest: float
    z: float

    @property
    def noise(self) -> Floats:
        """How far noise alone moves the ends of the rests apart, shape (answers,), free of estimates."""
        both = np.sqrt(self.low.variance_of_totals) + np.sqrt(self.high.variance_of_totals)
        return np.asarray(self.z * both * self.largest)

    @cached_property
    def rests(self) -> list[Rest]:
        """The rest of each live answer."""
        return [
            _rest(*ends, self.z, self.largest)
            for ends in zip(_each(self.low), _each(self.high), strict=True)
        ]

    @cached_property
    def halves(self) -> Floats:
        """The half widths of the rests of totals, shape (answers,)."""
        return np.array([rest.total_half for rest in self.rests])

    @property
    def half_of_means(self) -> float:
        """The largest half width of the rest of a mean. Infinite where one is not known."""
        return max((math.inf if r.mean is None else r.mean_half for r in self.rests), default=0.0)


_One = tuple[float, float, float, float, float]
"""A total, its count, their variances and their covariance."""


def _each(sums: Sums) -> list[_One]:
    columns = (
        sums.totals,
        sums.counts,
        sums.variance_of_totals,
        sums.variance_of_counts,
        sums.covariances,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _rest(low: _One, high: _One, z: float, unit: float) -> Rest:
    """The rest between two ends that tables estimate. It is never below 0."""
    least = max(0.0, low[0] - z * math.sqrt(low[2]))
    most = max(least, high[0] + z * math.sqrt(high[2]))
    total, half = 0.5 * unit * (least + most), 0.5 * unit * (most - least)
    bars = [ratio_bar(one[0], one[1], (one[2], one[3]), one[4], z) for one in (low, high)]
    if bars[0] is None or bars[1] is None:
        return Rest(total, half, None, math.inf)
    least = max(0.0, low[0] / low[1] - bars[0])
    most = max(least, high[0] / high[1] + bars[1])
    return Rest(total, half, 0.5 * unit * (least + most), 0.5 * unit * (most - least))


def cuts_of(query: LinearQuery, belief: Belief, failure: float) -> list[Cut]:
    """The cuts of a query whose rest tables tell, from the lowest one; none unless values of rows are kept.

    Args:
        query: A query with a total.
        belief: What is published.
        failure: The probability with which a rest reaches beyond its ends, for any of the cuts.
    """
    total = query.total
    if not isinstance(total, Total) or total.kept is None:
        return []
    unit, ends = total.kept.unit, counting_ends(query)
    # All rows of a bin are below the cut, or all are above it.
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    places = sorted({high for _, high in ends if lowest < high < highest})
    places = [at for at in places if not any(low < at < high for low, high in ends)]
    if len(places) > _MOST_CUTS:
        chosen = np.linspace(0, len(places) - 1, _MOST_CUTS).round().astype(int)
        places = [places[index] for index in chosen]
    if not places:
        return []
    z = two_sided(math.log(failure / len(places)))
    lows, highs = np.array(total.kept.ends, dtype=np.float64).T
    found = []
    for at in reversed(places):
        low, high = (
            belief.sums_by_tables(query, unit * np.maximum(each - at, 0.0)).sums
            for each in (lows, highs)
        )
        if not np.isfinite(high.variance_of_totals).all():
            break  # tables that do not tell the last bins tell no more of them and others
        capped = replace(query, total=total.up_to(unit * at))
        found.append(Cut(capped, unit * at, low, high, total.largest, z))
    return found[::-1]


def promising(cuts: list[Cut], query: LinearQuery, error: float) -> list[Cut]:
    """These cuts, if one of them would make a bar much narrower; which holds whatever tables estimate.

    Args:
        cuts: The cuts of a query.
        query: The query.
        error: The largest half width around a total, in the attribute's own unit.
    """
    whole = width_of(query)
    narrow = any(
        bool((0.5 * cut.noise + error * width_of(cut.query) / whole <= _PROMISING * error).all())
        for cut in cuts
    )
    return cuts if narrow else []


def width_of(query: LinearQuery) -> float:
    """How far two values that rows count for are apart, which a look pays for."""
    values = WholeValues.of(query)
    return values.unit * (values.high - values.low)


def measured_alone(belief: Belief, cut: Cut) -> SumEvidence:
    """What looks up to a cut say by themselves."""
    return belief.sums_alone(cut.query, belief.looks_at(cut.query))


__all__ = ["Cut", "Rest", "cuts_of", "measured_alone", "promising", "width_of"]
