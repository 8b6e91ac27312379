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
from functools import cache
from itertools import combinations

import numpy as np
from scipy.special import ndtri_exp

from stream_dp.core.belief.forms import Events, Floats, Form, View, variance


def two_sided(log_probability: float) -> float:
    """z with ``log(Pr[|Z| > z])`` = ``log_probability`` for a standard normal Z.

    Takes a logarithm because simultaneous bars ask for probabilities far below the floats.
    """
    return float(-ndtri_exp(log_probability - math.log(2.0)))


def interval(
    form: Form, view: View, values: Floats, variances: Floats, log_failure: float
) -> tuple[Floats, Floats]:
    """Bounds that hold together, for each answer, except with a probability.

    Args:
        values: Best estimates of the live answers, shape (answers,).
        variances: Their variances, shape (answers,) or (1,).
        log_failure: Logarithm of that probability, which may lie below the floats.

    Returns:
        Lowest and highest number of rows, each of shape (answers,), within [0, n_rows]. Where noise
        makes them cross, both are the middle.
    """
    events = form.events(view)
    if events is None:
        z = two_sided(log_failure)
        reach = z * np.sqrt(variances)
        low, high = values - reach, values + reach
    else:
        low, high = _conjunction(events, view, values, variances, log_failure)
    n = view.n_rows
    if events is not None and events.complement:
        low, high = n - high, n - low
    low, high = np.clip(low, 0.0, n), np.clip(high, 0.0, n)
    crossed = low > high
    middle = 0.5 * (low + high)
    return np.where(crossed, middle, low), np.where(crossed, middle, high)


def _conjunction(
    events: Events, view: View, values: Floats, variances: Floats, log_failure: float
) -> tuple[Floats, Floats]:
    centres, deviations, n_upper = _sides(events, view)
    own = np.sqrt(variances)  # of the count itself: may know more than the tables do
    known = np.isfinite(deviations)
    n_sides = np.count_nonzero(known) + 2 * bool(np.isfinite(own).all())
    if n_sides == 0:
        return np.zeros(1), np.full(1, view.n_rows)
    z = -float(ndtri_exp(log_failure - math.log(n_sides)))
    reaches = z * deviations[:, None]
    count = view.n_rows - values if events.complement else values
    high = (centres + reaches)[:n_upper].min(axis=0, initial=math.inf)
    low = (centres - reaches)[n_upper:].max(axis=0, initial=-math.inf)
    return np.maximum(low, count - z * own), np.minimum(high, count + z * own)


def _sides(events: Events, view: View) -> tuple[Floats, Floats, int]:
    """Estimates of the sides, shape (sides, answers), their standard deviations, how many are upper."""
    k = len(events.shares)
    forms, n_upper = _forms(k)
    # A form over counts of sub-conjunctions, written over residuals: condition i contributes its
    # share where attribute i is not in T.
    over_residuals = forms.reshape(len(forms), *(2,) * k).copy()
    for axis, share in enumerate(events.shares, start=1):
        without, within = (over_residuals.swapaxes(1, axis)[:, bit] for bit in (0, 1))
        without += share * within
    spreads = [1.0]
    for spread in events.spreads:
        spreads = [s * part for s in spreads for part in (1.0, spread)]
    norms = np.square(over_residuals.reshape(forms.shape)) * spreads
    return forms @ events.counts, np.sqrt(variance(norms, view.variances)), n_upper


@cache
def _forms(k: int) -> tuple[Floats, int]:
    """Coefficients over the 2^k sub-conjunctions, upper forms first, and how many those are."""
    uppers: list[dict[frozenset[int], float]] = []
    lowers: list[dict[frozenset[int], float]] = []
    everyone = range(k)
    if k == 2:
        uppers = [{frozenset({i}): 1.0} for i in everyone]
        lowers = [{frozenset({0}): 1.0, frozenset({1}): 1.0, frozenset(): -1.0}]
    elif k == 3:
        pairs = [frozenset(pair) for pair in combinations(everyone, 2)]
        uppers = [{pair: 1.0} for pair in pairs]
        uppers.append(
            dict.fromkeys(pairs, 1.0)
            | {frozenset({i}): -1.0 for i in everyone}
            | {frozenset(): 1.0}
        )
        lowers = [
            {frozenset({i, j}): 1.0, frozenset({i, h}): 1.0, frozenset({i}): -1.0}
            for i, j, h in ((0, 1, 2), (1, 0, 2), (2, 0, 1))
        ]
    elif k > 3:
        # The full family grows as 4^k; pairs are what is always published.
        uppers = [{frozenset(pair): 1.0} for pair in combinations(everyone, 2)]
        lowers = [
            {frozenset({i}): 1.0 for i in everyone} | {frozenset(): 1.0 - k},
        ]
    coefficients = np.zeros((len(uppers) + len(lowers), 2**k))
    for row, form in zip(coefficients, uppers + lowers, strict=True):
        for members, coefficient in form.items():
            row[sum(1 << (k - 1 - i) for i in members)] = coefficient
    return coefficients, len(uppers)


__all__ = ["interval", "two_sided"]
