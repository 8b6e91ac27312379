"""What the median mechanism is made of: its constants, its test of a query, and its probability of failure.

Roth & Roughgarden 2010 (Fig. 1, sections 3 and 4) and Kim 2017 (Algorithm 1). Every number that meets a count
is an integer or a fraction: counts pass 2**53, where a float would be many rows wide and leak. Logarithms are
bracketed by fractions and each constant is rounded towards more privacy.

Letters as in the papers, inside functions only: alpha, tau for ``privacy.epsilon``, ``privacy.delta``; eps,
delta for ``accuracy.error``, ``accuracy.failure_probability``; m rows a hypothesis, k queries, n rows, N
cells.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from stream_dp.core.consistent_set.base import Distribution

MIN_ERROR: Final = Fraction(1, 10**6)
MAX_ERROR: Final = Fraction(9, 10)
MAX_SUPPORT: Final = 2**18
"""Most values of a distribution for which the error bound of ``Easiness`` is proved."""
MAX_THRESHOLD: Final = 1024
"""Thresholds beyond this index are dropped: together they have probability 2**-1024."""
MIN_UNITS: Final = 4
"""Fewest units a sensitivity must have for its doubling to hold the rounding; see ``Gate``."""

# ---------------------------------------------------------------- logarithms

_DECIMAL: Final = Context(prec=60, Emin=-999_999, Emax=999_999)
_LN_ERROR: Final = Fraction(1, 10**50)


@lru_cache(maxsize=4096)
def ln_bounds(x: Fraction | int) -> tuple[Fraction, Fraction]:
    """Fractions below and above the natural logarithm of a positive ``x``, 1e-50 (1 + |ln|) apart or less.

    ``Decimal.ln`` is correctly rounded, here to 60 digits.
    """
    fraction = Fraction(x)
    top = _DECIMAL.ln(_DECIMAL.create_decimal(fraction.numerator))
    bottom = _DECIMAL.ln(_DECIMAL.create_decimal(fraction.denominator))
    value = Fraction(top) - Fraction(bottom)
    margin = _LN_ERROR * (1 + abs(Fraction(top)) + abs(Fraction(bottom))) / 4
    return value - margin, value + margin


def log2_bounds(x: int) -> tuple[Fraction, Fraction]:
    """Fractions below and above ``log2(x)`` for ``x >= 1``."""
    low, high = ln_bounds(x)
    low_two, high_two = ln_bounds(2)
    return max(Fraction(0), low / high_two), high / low_two


# ---------------------------------------------------------------- constants


def harmonic(n: int) -> Fraction:
    """``H_n = 1 + 1/2 + ... + 1/n``, rounded up by less than ``n 2**-192``."""
    # Exact fractions would have a denominator of thousands of digits.
    return sum((reciprocal(i) for i in range(1, n + 1)), Fraction(0))


def reciprocal(i: int) -> Fraction:
    """``1 / i``, rounded up by less than ``2**-192``."""
    one = 1 << 192
    return Fraction(-(-one // i), one)


def hypothesis_rows(n_queries: int, error: Fraction) -> int:
    """Rows of a hypothesis, ``m = 160000 ln(k) ln(1/eps) / eps^2``, rounded up.

    With so many rows some hypothesis agrees with any dataset on all queries to ``eps/400`` (Kim 2017,
    Proposition 3.5, with ``eps^2`` where it prints ``e^2``).

    Args:
        n_queries: Queries that the hypothesis must survive: k, or K k for the memory mechanism.
        error: In (0, 0.9).
    """
    _, ln_k = ln_bounds(n_queries)
    _, ln_inverse = ln_bounds(1 / error)
    return math.ceil(160_000 * ln_k * ln_inverse / error**2)


def inverse_privacy(alpha: Fraction, rows: int, n_cells: int) -> int:
    """``1 / alpha'``: how many rows wide the noise of a hard answer is, rounded up.

    ``alpha' = alpha / (720 m ln N)`` for ``rows = m`` (Kim 2017, Algorithm 1), and for ``rows = j m`` in
    phase j of the memory mechanism (Algorithm 3).
    """
    _, ln_cells = ln_bounds(n_cells)
    return math.ceil(720 * rows * ln_cells / alpha)


def hard_limit(rows: int, n_cells: int) -> int:
    """Hard queries that may be answered: ``h_max = 20 m ln N`` rounded down, ``rows`` being m or j m."""
    ln_cells, _ = ln_bounds(n_cells)
    return math.floor(20 * rows * ln_cells)


def last_threshold(n_queries: int) -> int:
    """``floor(1.125 log2 k)``: at least this is the last threshold index from ``n_min`` rows on.

    What Kim 2017, Lemma 3.8 needs of it. Exact: the largest L with ``2^(8 L) <= k^9``.
    """
    return ((n_queries**9).bit_length() - 1) // 8


def noise_failure(n_queries: int, width: float) -> float:
    """Probability that the noise of some query is too large for the accuracy proof.

    ``k (exp(-x/200) + exp(-x/100))`` with ``x = eps n alpha'``: an easiness moved by more than 1/100, or a
    hard answer by more than eps/100 (Kim 2017, Lemmas 3.2 and 3.3, in the lemmas' own numbers).

    Args:
        n_queries: k.
        width: x, how many noise scales the permitted error holds.
    """
    return n_queries * (math.exp(-width / 200.0) + math.exp(-width / 100.0))


def width_for(n_queries: int, failure_probability: float) -> float:
    """The least ``x = eps n alpha'`` at which ``noise_failure`` is no more than this; its inverse."""
    target = failure_probability / n_queries
    # y + y^2 = target for y = exp(-x/200), without cancellation.
    return -200.0 * math.log(2.0 * target / (1.0 + math.sqrt(1.0 + 4.0 * target)))


# ---------------------------------------------------------------- probability of losing privacy


@dataclass(frozen=True, slots=True)
class LogTau:
    """Natural logarithms of the two ways in which thresholds may turn out bad, and of their sum."""

    concentration: float
    last_index: float

    @property
    def total(self) -> float:
        return log_add(self.concentration, self.last_index)


def log_tau(rows: int, n_cells: int, n_queries: int, last: int) -> LogTau:
    """Log-probability that more than ``180 m ln N`` thresholds are bad, for ``rows = m`` (or ``j m``).

    The first term, ``-4.99 m ln N``: 159 m ln N queries were not good although their threshold was not the
    last. Given the past such a query is hard with probability 1/4 or more, and at most 20 m ln N are hard;
    with U for the first, Z for the second and ``e^lambda = 1 + (1 - e^-theta)/4`` the process
    ``exp(lambda sum U - theta sum Z)`` is a supermartingale, taken at ``theta = 0.58``. The second term,
    ``Pr[Bin(k, c) > m ln N]``: the last threshold, of probability ``c = 2^-L / (2 - 2^-L)``, was drawn so
    often. An explicit form of Kim 2017, Lemma 3.8.

    Args:
        rows: Rows of a hypothesis in all blocks.
        n_queries: Queries of all phases so far.
        last: Smallest L among them.
    """
    low, _ = ln_bounds(n_cells)
    extent = rows * low
    c = Fraction(1, 2 ** (last + 1) - 1)
    return LogTau(-4.99 * float(extent), log_binomial_tail(n_queries, c, math.floor(extent)))


def log_binomial_tail(n: int, p: Fraction, k: int) -> float:
    """Natural logarithm of ``Pr[Bin(n, p) > k]``; 0 where ``k`` is below the mean, for a bound is enough.

    Sums the terms from ``k + 1`` on, which fall faster than geometrically, and bounds what is left by the
    geometric series.
    """
    first = k + 1
    if first > n:
        return -math.inf
    if first <= n * p:
        return 0.0
    chance = float(p)
    odds = chance / (1.0 - chance)
    log_first = (
        math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
        + first * math.log(chance) + (n - first) * math.log1p(-chance)
    )  # fmt: skip
    total, term, at = 1.0, 1.0, first
    while at < n:
        ratio = (n - at) / (at + 1) * odds
        term *= ratio
        total += term
        at += 1
        if ratio < 1.0 and term < 1e-12 * total:
            total += term * ratio / (1.0 - ratio)
            break
    rounding = 2e-15 * math.lgamma(n + 1)
    return min(0.0, log_first + math.log(total) + rounding)


def log_add(a: float, b: float) -> float:
    """``log(exp(a) + exp(b))`` without leaving log space."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


# ---------------------------------------------------------------- easiness

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
        distribution: Of the query over the consistent set.
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


# ---------------------------------------------------------------- the test of a query


@dataclass(frozen=True, slots=True)
class Gate:
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
    ) -> Gate:
        """The gate for ``n_rows`` rows; ``last`` is 0 where there are too few.

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
        """Whether the noisy easiness reaches threshold number ``index``."""
        return units + noise >= self.base + index * self.step


__all__ = [
    "EASINESS_ERROR",
    "MAX_ERROR",
    "MAX_SUPPORT",
    "MAX_THRESHOLD",
    "MIN_ERROR",
    "MIN_UNITS",
    "Easiness",
    "Gate",
    "LogTau",
    "hard_limit",
    "harmonic",
    "hypothesis_rows",
    "inverse_privacy",
    "last_threshold",
    "ln_bounds",
    "log2_bounds",
    "log_add",
    "log_binomial_tail",
    "log_tau",
    "noise_failure",
    "reciprocal",
    "width_for",
]
