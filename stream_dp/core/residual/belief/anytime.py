"""Error bars that hold at all times at once, for a query that is asked when its estimate looks off.

The plain bar of an answer holds at a time that was fixed beforehand. Estimates change as more is measured,
and someone who watches them can pick the time at which one is furthest off. These bars hold for all of them
at once. For a query that was fixed beforehand, the errors of its best estimates are a Brownian motion in
their precision, divided by the precision. The bars are a boundary that such a motion crosses at any time
with at most the failure probability (Robbins 1970; docs/guarantee.md, Theorem 13).
"""

from __future__ import annotations

import math

import numpy as np

from stream_dp.core.residual.belief.forms import Floats

_START = 0.125
"""The least bar, in deviations, is near this share of the precision that the promise needs.

The choice costs little: 3.6 deviations at that precision and at 4 times as much, for a failure probability
of .01, where the plain bar is 2.6. It must not depend on what was measured or asked.
"""


def anytime_bars(variances: Floats, promised: float, failure_probability: float) -> Floats:
    """Half widths, in rows, that hold for the best estimates of one query at all times at once.

    Args:
        variances: The variances of the best estimates now, infinite where nothing is known.
        promised: The variance that the data set's promise asks for, in its own accuracy and whatever the
            query asks. Positive, and the same at all times.
        failure_probability: The probability that one of the estimates of a query is further off at any time.

    Returns:
        The half widths, of the shape of ``variances``.

    docs/guarantee.md, Theorem 13.
    """
    if len(variances) == 1:
        return np.array([anytime_bar(float(variances[0]), promised, failure_probability)])
    log_factor = -2.0 * math.log(failure_probability)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The precision at which the boundary begins, over that of now.
        spent = _START / promised * variances
        squares = variances * (1.0 + spent) * (np.log1p(1.0 / spent) + log_factor)
    return np.asarray(np.sqrt(np.where(variances == 0.0, 0.0, squares)))


def anytime_bar(variance: float, promised: float, failure_probability: float) -> float:
    """The same for one variance, which is worked out faster without arrays."""
    if variance in (0.0, math.inf):
        return variance
    log_factor = -2.0 * math.log(failure_probability)
    spent = _START / promised * variance
    return math.sqrt(variance * (1.0 + spent) * (math.log1p(1.0 / spent) + log_factor))


__all__ = ["anytime_bar", "anytime_bars"]
