"""Fixtures that more than one area shares."""

from __future__ import annotations

import contextlib
import math
import os
import random
import secrets
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.noise import MAX_SCALE, MIN_SCALE, Kind, NoiseSource
from stream_dp.errors import ServerUnavailable


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python 3.0 reads its schemas this way; Python 3.11 and 3.12 deprecate it, 3.13 does not.
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


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

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._draws(_discrete_gaussian, sigma, size)

    def laplace(self, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
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

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        self._check(scale, size)

    def refill(self, budget: int) -> int:
        return 0

    def _draws(
        self, draw: Callable[[Callable[[int], int], Fraction], int], scale: Fraction, size: int
    ) -> npt.NDArray[np.int64]:
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


@pytest.fixture
def make_seeded_noise() -> Callable[[int], NoiseSource]:
    """``make_seeded_noise(seed)``: as many seeded noise sources as a test needs."""
    return SeededNoise


@pytest.fixture
def seeded_noise() -> NoiseSource:
    """Exact noise, the same in every run of the test."""
    return SeededNoise(20_261_121)


@contextlib.contextmanager
def _needed() -> Iterator[None]:
    """Where a server cannot run, what needs it is skipped; in CI it fails."""
    try:
        yield
    except ServerUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    """The class path of the embedded Apache Kafka; downloaded once into the user's cache."""
    from stream_dp.embedded import jars
    from stream_dp.embedded.folders import cache_folder
    from stream_dp.embedded.progress import Silent

    with _needed():
        return jars.resolve(cache_folder(os.environ), Silent())


@pytest.fixture(scope="session")
def kafka_server(
    kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Bootstrap servers of one real broker for the whole run: keep to ``topic_prefix``."""
    from stream_dp.embedded.kafka import KafkaServer

    folder = tmp_path_factory.mktemp("kafka")
    server = KafkaServer(folder / "kafka", kafka_jars, log=folder / "kafka.log")
    with _needed():
        server.start()
    yield server.bootstrap_servers
    server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of one real store for the whole run, every write on disk: use a key prefix of your own."""
    from stream_dp.embedded.valkey import ValkeyServer

    folder = tmp_path_factory.mktemp("valkey")
    server = ValkeyServer(folder / "valkey", log=folder / "valkey.log")
    with _needed():
        server.start()
    yield server.url
    server.stop()


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics, groups and keys that no other test has."""
    return f"t{secrets.token_hex(6)}."
