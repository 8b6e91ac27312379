"""The tracing attack: many prefix queries that are shown one at a time tell whether a row is in the data.

Bun, Steinke, Ullman 2016, section 3.2 and appendix A, with the derivations of its expectations.

A row is its own number and k signs. Sign j has the mean ``p_j``, uniform in [-1, 1]. Query j asks for the
share of rows whose sign j is 1, as a prefix query: the n strings of each row's number, its signs before j,
and 1. So query j reveals the columns before j and never column j: that is where showing queries one at a
time matters, for the mechanism must answer j before column j is public. The score of a row is ``sum_j (2
a_j - 1)(c_j - p_j)``: for a row that answers depend on it grows with k, for any other it is noise of size
``sqrt(k)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Signs: TypeAlias = npt.NDArray[np.int8]
Answer: TypeAlias = Callable[[npt.NDArray[np.int64], int], Floats]
"""``answer(counts, n_rows)``: a share for each query, shape (n_queries,), from exact counts."""


@dataclass(frozen=True)
class Traced:
    """Scores of one experiment.

    Attributes:
        inside: The score of each row of the data, shape (n_rows,).
        outside: The scores of rows that are not in the data, shape (n_outside,).
    """

    inside: Floats
    outside: Floats


def trace(
    rng: np.random.Generator, *, n_rows: int, n_queries: int, answer: Answer, n_outside: int = 1
) -> Traced:
    """Runs the attack twice: on the data, and with one row replaced in the data by fair coins.

    ``outside`` scores that row in the second run, and more rows like it: all have the law of a row that the
    answers do not depend on.
    """
    means = rng.uniform(-1.0, 1.0, n_queries)
    data = _signs(rng, means, n_rows)
    inside = scores(_answers(data, answer), data, means)
    replaced = data.copy()
    replaced[0] = _signs(rng, np.zeros(n_queries), 1)
    strangers = np.vstack([data[:1], _signs(rng, means, n_outside - 1)])
    return Traced(inside, scores(_answers(replaced, answer), strangers, means))


def scores(answers: Floats, rows: Signs, means: Floats) -> Floats:
    """``sum_j (2 a_j - 1)(c_j - p_j)`` of each row, shape (n_rows,)."""
    weights = 2.0 * answers - 1.0
    return np.asarray(rows @ weights - means @ weights)


def expected_inside(n_rows: int, n_queries: int) -> float:
    """Mean score of a row of the data, for answers that are right on average: ``2 k / (3 n)``."""
    return 2.0 * n_queries / (3.0 * n_rows)


def deviation_outside(n_rows: int, n_queries: int, noise_scale: float) -> float:
    """Standard deviation of the score of a row that is not in the data.

    For exact shares with continuous Laplace noise of scale b, not clipped; n rows, k queries::

        k (((n - 1) / n)^2 (2/15 + 8 / (15 (n - 1))) + 2 / (3 n^2) + 16 b^2 / 3)
    """
    n = n_rows
    signal = ((n - 1) / n) ** 2 * (2 / 15 + 8 / (15 * (n - 1))) + 2 / (3 * n**2)
    return math.sqrt(n_queries * (signal + 16 * noise_scale**2 / 3))


def _signs(rng: np.random.Generator, means: Floats, n_rows: int) -> Signs:
    ones = rng.random((n_rows, len(means)), dtype=np.float32) < (1.0 + means) / 2.0
    return np.where(ones, 1, -1).astype(np.int8)


def _answers(rows: Signs, answer: Answer) -> Floats:
    return answer((rows == 1).sum(axis=0), len(rows))
