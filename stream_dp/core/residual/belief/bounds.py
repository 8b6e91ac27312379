"""Between what a count must lie, whatever the data, given what is published about smaller ones.

For conditions a, b, c the eight disjoint regions that they cut out hold no negative number of rows.
Written with the counts of sub-conjunctions this bounds the count of all three from both sides
(Fréchet 1935; Bonferroni 1936):

    n_ab + n_ac - n_a <= n_abc <= n_ab,    0 <= n_abc <= n - n_a - n_b - n_c + n_ab + n_ac + n_bc.

Each side is a linear form in published residuals, so its error has a closed-form variance; the best
estimate of the count itself serves as one more form on both sides. Each form is allowed an equal
part of the failure probability, one-sided. A region that must be nearly empty is certified this way
although its interaction was never measured.

Which forms take part follows from public variances alone; what they say is published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri_exp

from stream_dp.core.residual.belief.linear_forms import Floats, Form

if TYPE_CHECKING:
    from stream_dp.core.residual.belief.residuals import WindowView


def two_sided(log_probability: float) -> float:
    """Returns the z with ``log(Pr[|Z| > z])`` = ``log_probability`` for a standard normal Z.

    Takes a logarithm because simultaneous bars ask for probabilities far below the floats.
    """
    return one_sided(log_probability - math.log(2.0))


def one_sided(log_probability: float) -> float:
    """Returns the z with ``log(Pr[Z > z])`` = ``log_probability`` for a standard normal Z."""
    return float(-ndtri_exp(log_probability))


@dataclass(frozen=True, slots=True)
class Sides:
    """Everything that bounds some answers from above or below, and how well each is known.

    Attributes:
        n_rows: Rows of the window; no more can count.
        centres: Estimates of the answers, shape (sides, answers).
        deviations: Their standard deviations, shape (sides,); infinite where nothing was measured.
        n_upper: The number of upper sides. They come first.
        values: Best estimates of the answers themselves, which are sides of both kinds.
        own: Their standard deviations, shape (answers,) or (1,).
        n_sides: The number of finite sides, which share the probability of failing.
    """

    n_rows: float
    centres: Floats
    deviations: Floats
    n_upper: int
    values: Floats
    own: Floats
    n_sides: int

    def interval(self, log_failure: float) -> tuple[Floats, Floats]:
        """Bounds that hold together, for each answer, except with a probability.

        Args:
            log_failure: Logarithm of that probability, which may lie below the floats.

        Returns:
            Lowest and highest number of rows, each of shape (answers,), within [0, n_rows]. Where
            noise makes them cross, both are the middle.
        """
        if self.n_sides == 0:
            return np.zeros(len(self.values)), np.full(len(self.values), self.n_rows)
        z = one_sided(log_failure - math.log(self.n_sides))
        reaches = z * self.deviations[:, None]
        split = self.n_upper
        low = (self.centres[split:] - reaches[split:]).max(axis=0, initial=0.0)
        high = (self.centres[:split] + reaches[:split]).min(axis=0, initial=self.n_rows)
        reach = z * self.own
        low = np.minimum(np.maximum(low, self.values - reach), self.n_rows)
        high = np.maximum(np.minimum(high, self.values + reach), 0.0)
        crossed = low > high
        if crossed.any():
            low[crossed] = high[crossed] = 0.5 * (low[crossed] + high[crossed])
        return low, high


def sides(form: Form, view: WindowView, values: Floats, variances: Floats) -> Sides:
    """Returns what bounds the live answers of a form.

    Args:
        form: The form of the query.
        view: The published residuals about the window.
        values: The best estimates of the answers, shape (answers,).
        variances: The variances of these estimates, shape (answers,) or (1,).
    """
    own = np.sqrt(variances)
    n_own = 2 * bool(np.isfinite(own).all())
    events = form.events(view)
    if events is None:
        none = np.empty((0, len(values)))
        return Sides(view.n_rows, none, none[:, 0], 0, values, own, n_own)
    forms, n_upper = _forms(len(events.shares))
    if events.complement:
        # What bounds the rows of the conjunction from below bounds all others from above.
        forms, n_upper = np.concatenate([-forms[n_upper:], -forms[:n_upper]]), len(forms) - n_upper
        forms[:, 0] += 1.0
    # A form over counts of sub-conjunctions, written over residuals of norm 1: condition i contributes
    # its share where attribute i is not in T, and its spread where it is.
    over_residuals = forms.T
    for share, spread in zip(events.shares, events.spreads, strict=True):
        parts = np.array([[1.0, *[0.0] * len(spread)], [share, *map(math.sqrt, spread)]])
        over_residuals = over_residuals.reshape(2, -1).T @ parts
    norms = np.square(over_residuals).reshape(len(forms), len(view.variances))
    deviations = np.sqrt(view.variance(norms))
    n_sides = n_own + int(np.count_nonzero(np.isfinite(deviations)))
    centres = forms @ events.counts
    return Sides(view.n_rows, centres, deviations, n_upper, values, own, n_sides)


@cache
def _forms(k: int) -> tuple[Floats, int]:
    """Coefficients over the 2^k sub-conjunctions, upper forms first, and how many those are."""
    uppers: list[dict[frozenset[int], float]] = []
    lowers: list[dict[frozenset[int], float]] = []
    everyone = range(k)
    if k == 3:
        pairs = [frozenset(pair) for pair in combinations(everyone, 2)]
        every = dict.fromkeys(pairs, 1.0) | {frozenset({i}): -1.0 for i in everyone}
        uppers = [*({pair: 1.0} for pair in pairs), every | {frozenset(): 1.0}]
        lowers = [
            {frozenset({i, j}): 1.0, frozenset({i, h}): 1.0, frozenset({i}): -1.0}
            for i, j, h in ((0, 1, 2), (1, 0, 2), (2, 0, 1))
        ]
    elif k > 1:
        # The full family grows as 4^k; pairs are what is always published.
        uppers = [{frozenset(some): 1.0} for some in combinations(everyone, min(2, k - 1))]
        lowers = [{frozenset({i}): 1.0 for i in everyone} | {frozenset(): 1.0 - k}]
    coefficients = np.zeros((len(uppers) + len(lowers), 2**k))
    for row, form in zip(coefficients, uppers + lowers, strict=True):
        for members, coefficient in form.items():
            row[sum(1 << (k - 1 - i) for i in members)] = coefficient
    return coefficients, len(uppers)
