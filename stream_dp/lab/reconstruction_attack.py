"""The reconstruction attack: search queries chosen by earlier answers give the private bits away.

Bun, Steinke, Ullman 2016, section 4, Lemma 4.3; ``vector_law`` defines the queries.
The first query has no vectors, and query i has all answers so far. Answers that are good for them agree
little with each other, as if drawn independently. Then their coordinate-wise majority agrees with the private
vector far more than any differentially private answer may.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Signs: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Respond: TypeAlias = Callable[[Signs], Signs]
"""``respond(vectors)``: an answer in {-1, 1}^n, shape (n,), to the query of vectors, shape (n_vectors, n)."""


def majority_attack(respond: Respond, *, n_rows: int, n_queries: int) -> Signs:
    """Asks each query of the answers so far; the majority of all answers, shape (n_rows,).

    Args:
        respond: Answers a query, given the answers so far.
        n_rows: The number of private bits.
        n_queries: k, odd, so that there is a majority.
    """
    if n_queries % 2 == 0:
        raise ValueError(f"an even number of answers may have no majority: {n_queries}")
    answers = np.empty((n_queries, n_rows), dtype=np.int8)
    for i in range(n_queries):
        answers[i] = respond(answers[:i])
    return np.where(answers.sum(axis=0, dtype=np.int64) > 0, 1, -1)


def agreement(a: Signs, b: Signs) -> float:
    """``<a, b> / n``: 1 for equal vectors, 0 for unrelated ones."""
    return float(np.mean(a * b))


def expected_agreement(response: float, n_queries: int) -> float:
    """Agreement of the majority with the private vector, for independent answers of ``response`` each.

    ``2 Pr[Bin(k, (1 + a) / 2) > k / 2] - 1``, summed exactly enough.
    """
    p = (1.0 + response) / 2.0
    terms = [
        math.exp(
            math.lgamma(n_queries + 1)
            - math.lgamma(i + 1)
            - math.lgamma(n_queries - i + 1)
            + i * math.log(p)
            + (n_queries - i) * math.log1p(-p)
        )
        for i in range(n_queries // 2 + 1, n_queries + 1)
    ]
    return 2.0 * math.fsum(terms) - 1.0


def private_agreement(epsilon: float, delta: float) -> float:
    """The most that an (epsilon, delta)-private answer agrees with a uniformly random vector, on average.

    ``(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1)``.
    """
    return (math.exp(epsilon) - 1.0 + 2.0 * delta) / (math.exp(epsilon) + 1.0)
