"""The easiness of a query for the consistent set, and its test, with noise, against a random threshold.

Roth & Roughgarden 2010 (Fig. 1) and Kim 2017 (Algorithm 1). Every number that meets a count is an integer
or a fraction: counts pass 2**53, where a float would be many rows wide and leak. Each constant is rounded
towards more privacy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.logarithms import ln_bounds
from stream_dp.core.median.consistent_set.set_interface import Distribution
from stream_dp.core.median.formulas import MAX_ERROR, MIN_ERROR

MAX_SUPPORT: Final = 2**18
"""Most values of a distribution for which the error bound of ``Easiness`` is proved."""
MAX_THRESHOLD: Final = 1024
"""Thresholds beyond this index are dropped: together they have probability 2**-1024."""
MIN_UNITS: Final = 4
"""Fewest units a sensitivity must have for its doubling to hold the rounding; see ``EasinessTest``."""

_BITS: Final = 192
_ONE: Final = 1 << _BITS
_LN2: Final = math.floor(Fraction(Context(prec=80).ln(Decimal(2))) * _ONE)
_TERMS: Final = 48  # 0.7**48 / 48! < 2**-200
EASINESS_ERROR: Final = Fraction(1, 2**128)
"""How far a computed easiness may be from the exact one."""


def _exp_of_minus(x: int) -> int:
    """``exp(-x)`` for ``x >= 0``; both in units of 2**-192. As many steps whatever ``x`` is.

    Within ``x / ln 2 + 100`` units: the reduction loses one unit a multiple of ln 2, each of 48 terms two.
    """
    halvings, rest = divmod(x, _LN2)
    term = total = _ONE
    for i in range(1, _TERMS + 1):
        term = -(term * rest >> _BITS) // i
        total += term
    return total >> halvings


class Easiness:
    """``r(D) = mean over S in C of exp(-|f(D) - f(S)| / eps)`` of one query, to be asked for any count.

    The set's part is summed once, from public values: to the left of a share x the sum is
    ``exp(-(x - v) / eps)`` times the sum up to the nearest value v, and so to the right. What is left to do
    with the count is two exponentials in fixed point, the same steps for every count.

    Every operation loses at most a unit of 2**-192 and every factor is at most one, so the result is within
    ``(4 MAX_SUPPORT + 4) (2 / MIN_ERROR + 102)`` units of the exact mean: less than ``EASINESS_ERROR``.

    Args:
        distribution: The distribution of the query over the consistent set.
        error: eps.
        n_rows: n, so that a count is a share.
    """

    __slots__ = ("_error", "_from_left", "_from_right", "_n_rows", "_values")

    def __init__(self, distribution: Distribution, error: Fraction, n_rows: int) -> None:
        if len(distribution.values) > MAX_SUPPORT:
            raise ValueError(f"a distribution over more than {MAX_SUPPORT} values")
        if not MIN_ERROR <= error < MAX_ERROR:
            raise ValueError("the error is outside the range for which the arithmetic is proved")
        self._error = error
        self._n_rows = n_rows
        total = sum(distribution.weights)
        weights = [(weight << _BITS) // total for weight in distribution.weights]
        self._values = [
            (value.numerator << _BITS) // value.denominator for value in distribution.values
        ]
        decays = [
            self._decay(right - left)
            for left, right in zip(self._values, self._values[1:], strict=False)
        ]
        self._from_left = _running(weights, decays)
        self._from_right = _running(weights[::-1], decays[::-1])[::-1]

    def _decay(self, distance: int) -> int:
        return _exp_of_minus(distance * self._error.denominator // self._error.numerator)

    def __call__(self, count: int) -> Fraction:
        """Easiness where ``count`` of the rows satisfy the query; in [0, 1]. Secret, as the count is."""
        share = (count << _BITS) // self._n_rows
        right = bisect_right(self._values, share)
        left = max(0, right - 1)
        after = min(right, len(self._values) - 1)
        # Both sides are always computed: a share beyond the ends has nothing on one of them.
        from_left = self._from_left[left] * self._decay(abs(share - self._values[left]))
        from_right = self._from_right[after] * self._decay(abs(self._values[after] - share))
        total = from_left * (right > 0) + from_right * (right < len(self._values))
        return Fraction(min(total >> _BITS, _ONE), _ONE)


def _running(weights: list[int], decays: list[int]) -> list[int]:
    """Sum of all weights up to each place, each decayed over the way there."""
    sums = [weights[0]]
    for weight, decay in zip(weights[1:], decays, strict=True):
        sums.append((sums[-1] * decay >> _BITS) + weight)
    return sums


@dataclass(frozen=True, slots=True)
class EasinessTest:
    """Decides whether a query is easy: is its noisy easiness at least a random threshold?

    All in integer units. ``one`` units make an easiness of 1, chosen so that the papers' sensitivity of the
    easiness, ``2 / (eps n)``, is ``sensitivity`` units. An easiness is rounded down to units before the
    noise.

    *The noise covers the rounding.* ``exp(-|x| / eps)`` is 1/eps-Lipschitz, so one row moves the exact
    easiness by ``1 / (eps n)`` at most, half of the papers' bound; with the rounding error added to it, by
    ``sensitivity / 2 + 1 + 2 EASINESS_ERROR one`` units, less than ``sensitivity`` from ``MIN_UNITS`` = 4 on.
    So the papers' scale to the letter, ``2 / (eps n alpha')``, which is ``sensitivity / alpha'`` units, makes
    the test alpha'-private with its rounding included.

    *The step* between thresholds is ``gamma = 4 / (alpha' eps n) ln(2k/x)``, that is ``2 scale ln(2k/x)``
    units, rounded up; x is alpha in the median mechanism and alpha' in the memory mechanism. Where the
    easiness of one dataset is a step above the threshold, a neighbour is called hard with probability
    ``e^(-(step - sensitivity + 1)/scale) / (1 + e^(-1/scale))``, at most ``x/(4k)`` while
    ``x e^alpha' <= 2k``, as Kim 2017, Lemma 3.9 needs it.

    Attributes:
        one: Units of an easiness of 1.
        sensitivity: Units that replacing one row is taken to move the easiness.
        scale: Scale of the noise in units, ``sensitivity / alpha'``.
        base: Lowest threshold, 3/4, in units, rounded up.
        step: gamma in units, rounded up.
        last: L, the last threshold index, ``floor(3 / (20 gamma))``, at most ``MAX_THRESHOLD``.
    """

    one: int
    sensitivity: int
    scale: int
    base: int
    step: int
    last: int

    @classmethod
    def of(
        cls,
        *,
        n_rows: int,
        n_queries: int,
        error: Fraction,
        inverse_privacy: int,
        inverse_slip: Fraction,
        sensitivity: int,
    ) -> EasinessTest:
        """The test for ``n_rows`` rows; ``last`` is 0 where there are too few.

        Args:
            n_rows: n, rows in the window.
            n_queries: k, in the logarithm of gamma.
            error: eps.
            inverse_privacy: ``1 / alpha'``.
            inverse_slip: ``1 / x``.
            sensitivity: Units to resolve the papers' sensitivity into, at least ``MIN_UNITS``.
        """
        if sensitivity < MIN_UNITS:
            raise ValueError("the rounding of the easiness would not be covered by its noise")
        one = math.floor(sensitivity * error * n_rows / 2)
        scale = sensitivity * inverse_privacy
        _, logarithm = ln_bounds(2 * n_queries * inverse_slip)
        step = math.ceil(2 * scale * logarithm)
        last = min(MAX_THRESHOLD, 3 * one // (20 * step))
        return cls(one, sensitivity, scale, -(-3 * one // 4), step, last)

    def units(self, easiness: Fraction) -> int:
        """An easiness in units, rounded down."""
        return math.floor(easiness * self.one)

    def is_easy(self, units: int, *, noise: int, index: int) -> bool:
        """Returns whether the noisy easiness reaches threshold number ``index``."""
        return units + noise >= self.base + index * self.step
