"""Seeded noise for experiments on synthetic rows. It keeps nobody's secret."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np

from stream_dp.core.randomness.noise_sources import IntArray


class SeededNoise:
    """A ``core.randomness.noise_sources.NoiseSource`` that draws from numpy's generator.

    Laplace draws are discrete as the real ones are; Gaussian ones are rounded, which nobody could tell apart.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def gaussian(self, sigma: Fraction, size: int) -> IntArray:
        return np.rint(self._rng.normal(0.0, float(sigma), size)).astype(np.int64)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        success = -math.expm1(-1.0 / float(scale))
        return self._rng.geometric(success, size) - self._rng.geometric(success, size)

    def geometric_half(self, limit: int) -> int:
        weights = 0.5 ** np.arange(limit + 1)
        return int(self._rng.choice(limit + 1, p=weights / weights.sum()))

    def uniform(self, limit: int, size: int) -> IntArray:
        return self._rng.integers(limit, size=size, dtype=np.int64)

    def reserve(self, kind: Literal["gaussian", "laplace"], scale: Fraction, size: int) -> None:
        """Nothing: a draw takes no time here."""

    def discard(self) -> None:
        """Nothing: nothing was reserved."""
