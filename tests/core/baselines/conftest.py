"""The universe and the questions of W3, without its rows: a baseline's price does not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from stream_dp.core.query import Predicate, Question
from stream_dp.core.universe import Universe

SHAPE = (2, 2, 5, 7)  # sex, income, race, marital status: 140 cells, 35,433 conjunctions


def _asks(seed: int) -> Iterator[Question]:
    """Zipf 0: all but the empty and the whole set of each attribute's values, or it is left out."""
    rng = np.random.default_rng(seed)
    while True:
        factors = {}
        for attribute, size in enumerate(SHAPE):
            subset = int(rng.integers(1, 2**size))  # the whole set stands for an absent attribute
            factors[attribute] = (subset >> np.arange(size) & 1).astype(np.bool_)
        predicate = Predicate.conjunction(factors)
        if predicate.attributes:
            yield Question(predicate, range(1))


@pytest.fixture
def adult(make_universe: Callable[..., Universe]) -> Universe:
    return make_universe(*SHAPE)


@pytest.fixture
def make_asks() -> Callable[[int], Iterator[Question]]:
    """``make_asks(seed)``: questions drawn from all 35,433 conjunctions, each as likely."""
    return _asks
