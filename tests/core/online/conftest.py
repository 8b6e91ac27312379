"""Noise for statistical tests: quick, seeded, and by choice of a wrong scale."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.noise import Kind, NoiseSource

Draws = npt.NDArray[np.int64]


class QuickNoise:
    """Discrete Laplace draws as differences of geometric ones, from numpy's generator: for tests only.

    Args:
        factor: What every scale is multiplied by: 1.1 makes a broken copy of whatever draws from it.
    """

    _CHUNK = 4096

    def __init__(self, seed: int, factor: float = 1.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._factor = factor
        self._waiting: dict[Fraction, Draws] = {}

    def gaussian(self, sigma: Fraction, size: int) -> Draws:
        raise NotImplementedError

    def laplace(self, scale: Fraction, size: int) -> Draws:
        waiting = self._waiting.get(scale, np.empty(0, dtype=np.int64))
        if len(waiting) < size:
            p = 1.0 - np.exp(-1.0 / (self._factor * float(scale)))
            fresh = self._rng.geometric(p, (2, size + self._CHUNK))
            waiting = np.concatenate([waiting, fresh[0] - fresh[1]])
        self._waiting[scale] = waiting[size:]
        return waiting[:size]

    def geometric_half(self, limit: int) -> int:
        raise NotImplementedError

    def uniform(self, limit: int, size: int) -> Draws:
        return self._rng.integers(limit, size=size, dtype=np.int64)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        pass

    def refill(self, budget: int) -> int:
        return 0


@pytest.fixture
def quick_noise() -> Callable[..., NoiseSource]:
    """``quick_noise(seed, factor=1.0)``."""
    return QuickNoise
