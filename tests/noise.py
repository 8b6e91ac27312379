"""Sources of noise for tests: exact and repeatable, quick, or none but what a test writes down.

A test that needs another one derives it from ``FakeNoise``, and says only what is particular to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stream_dp.core.randomness.noise_sources import MAX_SCALE, MIN_SCALE, Kind

Ints = npt.NDArray[np.int64]


class FakeNoise:
    """A whole source of noise in which every draw fails the test; derived ones give some of them."""

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        raise AssertionError("no Gaussian noise is drawn in this test")

    def laplace(self, scale: Fraction, size: int) -> Ints:
        raise AssertionError("no Laplace noise is drawn in this test")

    def geometric_half(self, limit: int) -> int:
        raise AssertionError("no geometric number is drawn in this test")

    def uniform(self, limit: int, size: int) -> Ints:
        raise AssertionError("no uniform number is drawn in this test")

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        """Draws nothing ahead."""

    def discard(self) -> None:
        """Has nothing to discard."""


class ScriptedNoise(FakeNoise):
    """Laplace draws that are written down. All other draws are zero.

    Args:
        draws: The draws in order; there are no more of them. Without them every draw is ``constant``.
        by_scale: Draws for some scales, in order; after them comes ``constant``.

    Attributes:
        constant: The Laplace draw where none is written down.
        asked: The scale of each Laplace draw so far.
    """

    def __init__(
        self,
        *draws: int,
        by_scale: Mapping[Fraction, Iterable[int]] | None = None,
        constant: int = 0,
    ) -> None:
        self.by_scale: dict[Fraction, Iterator[int]] = {
            scale: iter(some) for scale, some in (by_scale or {}).items()
        }
        self.constant = constant
        self.asked: list[Fraction] = []
        self._draws = list(draws) if draws else None

    def laplace(self, scale: Fraction, size: int) -> Ints:
        self.asked += [scale] * size
        return np.array([self._next(scale) for _ in range(size)], dtype=np.int64)

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    def uniform(self, limit: int, size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    def _next(self, scale: Fraction) -> int:
        if scale in self.by_scale:
            return next(self.by_scale[scale], self.constant)
        return self.constant if self._draws is None else self._draws.pop(0)


def _bernoulli_exp(randbelow: Callable[[int], int], p: int, q: int) -> bool:
    """True with probability exp(-p / q). Canonne, Kamath, Steinke 2020, Algorithm 1."""
    while p > q:
        if not _bernoulli_exp(randbelow, 1, 1):
            return False
        p -= q
    k = 1
    while randbelow(q * k) < p:
        k += 1
    return k % 2 == 1


def _discrete_laplace(randbelow: Callable[[int], int], scale: Fraction) -> int:
    """Canonne, Kamath, Steinke 2020, Algorithm 2, with ``scale`` = t / s."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = randbelow(t)
        if not _bernoulli_exp(randbelow, u, t):
            continue
        v = 0
        while _bernoulli_exp(randbelow, 1, 1):
            v += 1
        magnitude = (u + t * v) // s
        negative = randbelow(2) == 1
        if magnitude or not negative:
            return -magnitude if negative else magnitude


def _discrete_gaussian(randbelow: Callable[[int], int], sigma: Fraction) -> int:
    """Canonne, Kamath, Steinke 2020, Algorithm 3."""
    a, b = (sigma * sigma).as_integer_ratio()
    t = math.floor(sigma) + 1
    while True:
        draw = _discrete_laplace(randbelow, Fraction(t))
        if _bernoulli_exp(randbelow, (abs(draw) * b * t - a) ** 2, 2 * a * b * t * t):
            return draw


class SeededNoise:
    """Exact noise that a seed repeats: a second computation of the sampler, for tests only."""

    def __init__(self, seed: int) -> None:
        self._randbelow = random.Random(seed).randrange

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        return self._draws(_discrete_gaussian, sigma, size)

    def laplace(self, scale: Fraction, size: int) -> Ints:
        return self._draws(_discrete_laplace, scale, size)

    def geometric_half(self, limit: int) -> int:
        if limit < 0:
            raise ValueError(f"the limit must not be negative: {limit}")
        weights = [2 ** (limit - x) for x in range(limit + 1)]
        place = self._randbelow(sum(weights))
        x = 0
        while place >= weights[x]:
            place -= weights[x]
            x += 1
        return x

    def uniform(self, limit: int, size: int) -> Ints:
        return np.array([self._randbelow(limit) for _ in range(size)], dtype=np.int64)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        self._check(scale, size)

    def discard(self) -> None:
        pass

    def _draws(
        self, draw: Callable[[Callable[[int], int], Fraction], int], scale: Fraction, size: int
    ) -> Ints:
        self._check(scale, size)
        return np.array([draw(self._randbelow, scale) for _ in range(size)], dtype=np.int64)

    @staticmethod
    def _check(scale: Fraction, size: int) -> None:
        if not isinstance(scale, Fraction):
            raise TypeError("a noise scale is a Fraction")
        if not MIN_SCALE <= scale <= MAX_SCALE or Fraction(float(scale)) != scale:
            raise ValueError(f"not a scale that a float holds exactly: {scale}")
        if size < 0:
            raise ValueError(f"the number of draws must not be negative: {size}")


class QuickNoise(FakeNoise):
    """Quick seeded draws by numpy, for statistical tests: discrete Laplace as differences of geometric ones.

    Gaussian ones are rounded normal ones: right where the scale is many rows.

    Args:
        factor: A number that multiplies every scale. 1.1 breaks any mechanism that draws from this source.
    """

    _CHUNK = 4096

    def __init__(self, seed: int, factor: float = 1.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._factor = factor
        self._waiting: dict[Fraction, Ints] = {}

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        return np.rint(self._rng.normal(0.0, self._factor * float(sigma), size)).astype(np.int64)

    def laplace(self, scale: Fraction, size: int) -> Ints:
        waiting = self._waiting.get(scale, np.empty(0, dtype=np.int64))
        if len(waiting) < size:
            p = 1.0 - np.exp(-1.0 / (self._factor * float(scale)))
            fresh = self._rng.geometric(p, (2, size + self._CHUNK))
            waiting = np.concatenate([waiting, fresh[0] - fresh[1]])
        self._waiting[scale] = waiting[size:]
        return waiting[:size]

    def uniform(self, limit: int, size: int) -> Ints:
        return self._rng.integers(limit, size=size, dtype=np.int64)


class RoundedNoise(FakeNoise):
    """Rounded real numbers, for tests in which the identity of a draw matters and not its law.

    It takes the scales that the exact samplers take, and no others.

    Attributes:
        drawn: Scale and size of each Gaussian draw.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.drawn: list[tuple[Fraction, int]] = []

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        self.drawn.append((sigma, size))
        return np.rint(self._random.normal(0.0, self._checked(sigma), size)).astype(np.int64)

    def laplace(self, scale: Fraction, size: int) -> Ints:
        return np.rint(self._random.laplace(0.0, self._checked(scale), size)).astype(np.int64)

    def geometric_half(self, limit: int) -> int:
        return min(limit, int(self._random.geometric(0.5)) - 1)

    def uniform(self, limit: int, size: int) -> Ints:
        return self._random.integers(limit, size=size)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        del kind, size
        self._checked(scale)

    @staticmethod
    def _checked(scale: Fraction) -> float:
        assert MIN_SCALE <= scale <= MAX_SCALE
        assert Fraction(float(scale)) == scale
        return float(scale)
