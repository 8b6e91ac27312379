"""Searches for the median by adaptive threshold queries, and compares with the rows that any search needs.

Bun, Steinke, Ullman 2016, Lemma 5.5 and Figure 6 (the search), Lemma 5.6 (packing), with the derivation of
its constants. The universe is {1, ..., T}. The search halves it until one value is left: each threshold
depends on the answers before it. The packing data sets ``x_t`` are near each other and each has another
median, so an epsilon-private search that is right on all of them needs rows in proportion to ``ln T``.

A search is private here with the plainest of answers: each count with discrete Laplace noise of scale
``k / epsilon`` for k queries, ``epsilon``-DP by composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Answer: TypeAlias = Callable[[Ints], Floats]
"""``answer(thresholds)``: the share of rows at or below it, for each search, shape (n_searches,)."""


def search(answer: Answer, *, size: int, n_searches: int = 1) -> Ints:
    """Values of {1, ..., size} that are medians up to the error of the answers, shape (n_searches,).

    The searches run side by side and are independent. With answers accurate to ``alpha``, at least
    ``1/2 - alpha`` of the rows are at or below the value, and as many at or above it.
    """
    low, high = np.zeros(n_searches, dtype=np.int64), np.full(n_searches, size, dtype=np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        upper_half = answer(middle) < 0.5
        low = np.where(upper_half & (high - low > 1), middle, low)
        high = np.where(upper_half, high, middle)
    return high


def most_queries(size: int) -> int:
    """Queries that a search of {1, ..., size} never passes: ``ceil(1 + log2(size))``."""
    return 1 + (size - 1).bit_length()


def private_answer(
    rng: np.random.Generator, counts: Callable[[Ints], Ints], *, n_rows: int, scale: float
) -> Answer:
    """Shares from counts with fresh discrete Laplace noise of ``scale``, in rows."""
    success = -math.expm1(-1.0 / scale)

    def answer(thresholds: Ints) -> Floats:
        size = thresholds.shape
        noise = rng.geometric(success, size) - rng.geometric(success, size)
        return np.asarray((counts(thresholds) + noise) / n_rows)

    return answer


def packing_tail(n_rows: int, alpha: float) -> int:
    """h, rows at either end of a packing data set: ``ceil((1/2 - alpha) n) - 1``."""
    return math.ceil((0.5 - alpha) * n_rows) - 1


def packing_counts(values: Ints, *, size: int, n_rows: int, alpha: float) -> Callable[[Ints], Ints]:
    """Rows at or below a threshold in the packing data sets of ``values``, shape (n_searches,).

    ``x_t`` has h rows of 1, h of ``size``, and all others are t, its only alpha-approximate median.
    """
    tail = packing_tail(n_rows, alpha)

    def counts(thresholds: Ints) -> Ints:
        inner = np.where(thresholds >= values, n_rows - tail, tail * (thresholds >= 1))
        return np.where(thresholds >= size, n_rows, inner)

    return counts


class SearchTerms(TypedDict):
    """What is promised: a rank within ``alpha`` of the middle, but with ``failure_probability``."""

    alpha: float
    epsilon: float
    failure_probability: float


def packing_bound(size: int, *, alpha: float, epsilon: float, failure_probability: float) -> float:
    """Rows below which no epsilon-private search is right on each packing data set.

    ``(ln((T - 1)(1 - beta)) - 2 epsilon) / (2 alpha epsilon)``: T data sets, each with its own only possible
    answer, differ in at most ``2 alpha n + 2`` rows (Bun, Steinke, Ullman 2016, Lemma 5.6).
    """
    packed = math.log((size - 1) * (1.0 - failure_probability))
    return (packed - 2.0 * epsilon) / (2.0 * alpha * epsilon)


def enough_rows(size: int, *, alpha: float, epsilon: float, failure_probability: float) -> float:
    """Rows at which all noise of the private search is proved small: ``k ln(k / beta) / (alpha epsilon)``."""
    k = most_queries(size)
    return k * math.log(k / failure_probability) / (alpha * epsilon)


def failure_rate(
    rng: np.random.Generator,
    *,
    size: int,
    n_rows: int,
    alpha: float,
    epsilon: float,
    n_searches: int,
) -> float:
    """Share of private searches that miss the median of a random packing data set."""
    values = rng.integers(2, size, n_searches)
    counts = packing_counts(values, size=size, n_rows=n_rows, alpha=alpha)
    answer = private_answer(rng, counts, n_rows=n_rows, scale=most_queries(size) / epsilon)
    return float(np.mean(search(answer, size=size, n_searches=n_searches) != values))


@dataclass(frozen=True)
class Needed:
    """Rows for one size of the universe.

    Attributes:
        bound: No private search does with fewer.
        used: The fewest with which the private search was right often enough, to 2%.
        enough: The private search is proved to do with these.
    """

    size: int
    queries: int
    bound: float
    used: int
    enough: float


def experiment(
    rng: np.random.Generator, *, sizes: Sequence[int], n_searches: int, **terms: Unpack[SearchTerms]
) -> Iterator[Needed]:
    """The three numbers of rows for each size of the universe, from bisections of ``n_searches`` a step."""
    alpha, epsilon = terms["alpha"], terms["epsilon"]
    for size in sizes:
        bound, enough = packing_bound(size, **terms), enough_rows(size, **terms)
        low, high = max(1, math.floor(bound)), math.ceil(enough)
        while high > 1.02 * low:
            n = math.isqrt(low * high)
            missed = failure_rate(
                rng, size=size, n_rows=n, alpha=alpha, epsilon=epsilon, n_searches=n_searches
            )
            low, high = (low, n) if missed <= terms["failure_probability"] else (n, high)
        yield Needed(size, most_queries(size), bound, high, enough)
