"""The constants of the median mechanism, and its probability of failure.

Roth & Roughgarden 2010 (Fig. 1, sections 3 and 4) and Kim 2017 (Algorithm 1). Every number that meets a count
is an integer or a fraction: counts pass 2**53, where a float would be many rows wide and leak. Logarithms are
bracketed by fractions and each constant is rounded towards more privacy.

Letters as in the papers, inside functions only: alpha, tau for ``privacy.epsilon``, ``privacy.delta``; eps,
delta for ``accuracy.error``, ``accuracy.failure_probability``; m rows a hypothesis, k queries, n rows, N
cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.logarithms import ln_bounds, log_add, log_binomial_tail

MIN_ERROR: Final = Fraction(1, 10**6)
MAX_ERROR: Final = Fraction(9, 10)

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

    With this many rows some hypothesis agrees with any dataset on all queries to ``eps/400`` (Kim 2017,
    Proposition 3.5, with ``eps^2`` where it prints ``e^2``).

    Args:
        n_queries: Queries that the hypothesis must survive: k, or K k for the memory mechanism.
        error: The papers' eps, in (0, 0.9).
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
    """The least ``x = eps n alpha'`` at which ``noise_failure`` is at most this, which is its inverse."""
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
        n_cells: N, the number of cells of the universe.
        n_queries: Queries of all phases so far.
        last: Smallest L among them.
    """
    low, _ = ln_bounds(n_cells)
    extent = rows * low
    c = Fraction(1, 2 ** (last + 1) - 1)
    return LogTau(-4.99 * float(extent), log_binomial_tail(n_queries, c, math.floor(extent)))
