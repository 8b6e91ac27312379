"""The noise has the law that is charged, and each draw is used once."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.randomness import noise_sources as noise_module
from stream_dp.core.randomness.noise_sources import (
    MAX_RESERVED,
    MAX_SCALE,
    MAX_UNIFORM,
    MIN_SCALE,
    ExactSampler,
    Kind,
    NoiseSource,
    OpenDPSampler,
    PooledNoise,
    Sampler,
    grid_index,
    grid_sigma,
)
from tests.noise import SeededNoise

FALSE_ALARM = 1e-6
DRAWS = 40_000
# Small, one, a dyadic neighbour of 7/3 (a significand that reduces against small integers), middling, large.
SCALES = [Fraction(1, 2), Fraction(1), Fraction(9557, 4096), Fraction(20), Fraction(1000)]
KINDS: list[Kind] = ["gaussian", "laplace"]
Draws = npt.NDArray[np.int64]


def _masses(kind: Kind, scale: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Closed form: every integer that carries mass, and its probability."""
    reach = math.ceil(45 * scale) + 3
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2) if kind == "gaussian" else -np.abs(x) / scale)
    return x, weights / weights.sum()


def _p_value(draws: Draws, kind: Kind, scale: float, law: float | None = None) -> float:
    """Chi-square of the draws against the closed form of scale ``law``, in bins fixed by ``scale``."""
    x, mass = _masses(kind, scale)
    # Bins of about equal mass, at most 40, from the nominal law: they do not depend on the draws.
    bin_of = np.minimum((np.cumsum(mass) - mass) * 40, 39).astype(int)
    edges = x[np.flatnonzero(np.diff(bin_of)) + 1]
    x_law, mass_law = _masses(kind, scale if law is None else law)
    expected = np.bincount(np.searchsorted(edges, x_law, side="right"), mass_law, edges.size + 1)
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=edges.size + 1)
    statistic = float(np.sum((observed - draws.size * expected) ** 2 / (draws.size * expected)))
    return float(stats.chi2.sf(statistic, edges.size))


def _draw(noise: NoiseSource, kind: Kind, scale: Fraction, size: int) -> Draws:
    return noise.gaussian(scale, size) if kind == "gaussian" else noise.laplace(scale, size)


@pytest.fixture(scope="module", params=[ExactSampler, OpenDPSampler])
def sampler(request: pytest.FixtureRequest) -> Sampler:
    made: Sampler = request.param()
    return made


@pytest.fixture
def counting() -> PooledNoise:
    """A pool over a sampler that counts 1, 2, 3, ..., so that each draw can be told from all others."""
    made = 0

    def sampler(kind: Kind, scale: Fraction, size: int) -> Draws:
        nonlocal made
        made += size
        return np.arange(made - size + 1, made + 1, dtype=np.int64)

    return PooledNoise(sampler=sampler)


class TestLaw:
    """False-alarm rate of each of these tests: 1e-6."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("scale", SCALES, ids=str)
    def test_pooled_noise_has_the_charged_scale_and_not_one_a_tenth_off(
        self, sampler: Sampler, kind: Kind, scale: Fraction
    ) -> None:
        noise = PooledNoise(sampler=sampler)
        noise.reserve(kind, scale, DRAWS // 2)
        draws = _draw(noise, kind, scale, DRAWS)  # half from the pool, half on the spot
        assert _p_value(draws, kind, float(scale)) > FALSE_ALARM
        for wrong in (0.9, 1.1):
            assert _p_value(draws, kind, float(scale), float(scale) * wrong) < FALSE_ALARM

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("scale", SCALES, ids=str)
    def test_the_seeded_noise_of_the_tests_has_the_same_law(
        self, kind: Kind, scale: Fraction
    ) -> None:
        draws = _draw(SeededNoise(1), kind, scale, 20_000)
        assert _p_value(draws, kind, float(scale)) > FALSE_ALARM
        for wrong in (0.9, 1.1):
            assert _p_value(draws, kind, float(scale), float(scale) * wrong) < FALSE_ALARM

    @pytest.mark.parametrize("limit", [0, 1, 5, 30])
    def test_geometric_half_halves_at_each_step_up_to_its_limit(self, limit: int) -> None:
        noise = PooledNoise(sampler=_unused)
        draws = np.array([noise.geometric_half(limit) for _ in range(20_000)])
        assert 0 <= draws.min() <= draws.max() <= limit
        bins = min(limit, 8)
        mass = np.append(0.5 ** np.arange(bins), 0.5**bins * (2 - 0.5 ** (limit - bins)))
        observed = np.bincount(np.minimum(draws, bins), minlength=bins + 1)
        if limit:
            assert stats.chisquare(observed, draws.size * mass / mass.sum()).pvalue > FALSE_ALARM
            thirds = np.append(3.0 ** -np.arange(bins), 3.0**-bins)
            wrong = stats.chisquare(observed, draws.size * thirds / thirds.sum())
            assert wrong.pvalue < FALSE_ALARM

    @pytest.mark.parametrize("limit", [1, 2, 3, 100, 2**61 + 1, MAX_UNIFORM])
    def test_uniform_draws_are_below_their_limit_and_equally_likely(self, limit: int) -> None:
        draws = PooledNoise(sampler=_unused).uniform(limit, DRAWS)
        assert draws.shape == (DRAWS,)
        assert 0 <= draws.min() <= draws.max() < limit
        n_bins = min(limit, 30)
        starts = np.array([-(-limit * i // n_bins) for i in range(n_bins + 1)], dtype=np.uint64)
        observed = np.bincount(
            np.searchsorted(starts, draws.astype(np.uint64), side="right") - 1, minlength=n_bins
        )
        mass = np.diff(starts).astype(np.float64) / limit
        if limit > 1:
            assert stats.chisquare(observed, DRAWS * mass).pvalue > FALSE_ALARM
            tilted = mass * np.linspace(0.9, 1.1, n_bins)
            assert stats.chisquare(observed, DRAWS * tilted / tilted.sum()).pvalue < FALSE_ALARM

    @pytest.mark.parametrize("kind", KINDS)
    def test_draws_of_one_pool_are_not_correlated(self, sampler: Sampler, kind: Kind) -> None:
        draws = _draw(PooledNoise(sampler=sampler), kind, Fraction(20), 20_000)
        r = float(np.corrcoef(draws[:-1], draws[1:])[0, 1])
        assert abs(r) < 4.9 / math.sqrt(draws.size)  # two-sided 1e-6
        twice = np.repeat(draws[:10_000], 2)
        assert abs(float(np.corrcoef(twice[:-1], twice[1:])[0, 1])) > 4.9 / math.sqrt(twice.size)


class TestScale:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("scale", [*SCALES, MIN_SCALE, MAX_SCALE], ids=str)
    def test_a_scale_at_the_limits_gives_int64_of_the_asked_shape(
        self, sampler: Sampler, kind: Kind, scale: Fraction
    ) -> None:
        draws = _draw(PooledNoise(sampler=sampler), kind, scale, 3)
        assert draws.dtype == np.int64
        assert draws.shape == (3,)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "scale", [Fraction(1, 3), Fraction(7, 3), Fraction(2**53 + 1, 2**20)], ids=str
    )
    def test_a_scale_that_a_float_would_round_is_refused(self, kind: Kind, scale: Fraction) -> None:
        noise = PooledNoise(sampler=_unused)
        with pytest.raises(ValueError, match="than the one charged"):
            _draw(noise, kind, scale, 1)
        with pytest.raises(ValueError, match="than the one charged"):
            noise.reserve(kind, scale, 1)

    @pytest.mark.parametrize(
        "scale", [Fraction(0), Fraction(-1), MIN_SCALE / 2, MAX_SCALE * 2], ids=str
    )
    def test_a_scale_out_of_range_is_refused(self, scale: Fraction) -> None:
        with pytest.raises(ValueError, match="outside"):
            PooledNoise(sampler=_unused).gaussian(scale, 1)

    def test_a_float_is_no_scale(self) -> None:
        with pytest.raises(TypeError):
            PooledNoise(sampler=_unused).laplace(2.0, 1)  # type: ignore[arg-type]

    def test_a_sampler_that_would_use_another_scale_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import opendp.measurements as measurements

        make_gaussian = measurements.make_gaussian

        def rounding(domain: object, metric: object, scale: float) -> object:
            return make_gaussian(domain, metric, scale=round(scale, 3))

        monkeypatch.setattr(measurements, "make_gaussian", rounding)
        assert OpenDPSampler()("gaussian", Fraction(1, 2), 1).size == 1
        with pytest.raises(ValueError, match="another scale"):
            OpenDPSampler()("gaussian", Fraction(1, 2) + Fraction(1, 2**20), 1)

    @pytest.mark.parametrize("installed", ["0.14.0", "0.14.1", "0.9.2"])
    def test_an_opendp_with_the_biased_sampler_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, installed: str
    ) -> None:
        monkeypatch.setattr(noise_module, "version", lambda _: installed)
        with pytest.raises(RuntimeError, match=r"0\.14\.2"):
            PooledNoise()

    def test_the_grid_steps_by_the_32nd_root_of_two_and_rounds_down(self) -> None:
        for k in range(-640, 1601):
            sigma, exact = grid_sigma(k), 2.0 ** (k / 32)
            assert Fraction(float(sigma)) == sigma
            assert sigma.denominator & (sigma.denominator - 1) == 0
            assert exact * (1 - 2**-15) < float(sigma) <= exact * (1 + 1e-15)
            assert k % 32 != 0 or sigma == Fraction(2) ** (k // 32)
            assert k == -640 or grid_sigma(k - 1) < sigma

    def test_the_grid_index_is_the_largest_step_not_above(self) -> None:
        for k in range(-640, 1601, 7):
            sigma = grid_sigma(k)
            assert grid_index(float(sigma)) == k
            assert grid_index(math.nextafter(float(sigma), math.inf)) == k
            if k > -640:
                assert grid_index(math.nextafter(float(sigma), 0)) == k - 1
        assert grid_index(math.inf) == grid_index(1e300) == 1600
        for bad in (math.nan, 0.0, -1.0, float(MIN_SCALE) / 2):
            with pytest.raises(ValueError):
                grid_index(bad)
        for k in (-641, 1601):
            with pytest.raises(ValueError):
                grid_sigma(k)


class TestPool:
    def test_every_draw_is_handed_out_once_and_in_order(self, counting: PooledNoise) -> None:
        one, two = Fraction(1), Fraction(2)
        seen: list[int] = []
        for size in (1, 7, 40, 3, 0, 120):
            counting.reserve("gaussian", one, size)
            counting.reserve("laplace", one, 5)
            seen += counting.gaussian(one, size).tolist()
            seen += counting.laplace(one, 4).tolist()
            seen += counting.gaussian(two, 2).tolist()
            counting.discard()
        assert len(seen) == len(set(seen))

    def test_reservations_add_up_and_what_is_taken_comes_from_them(self) -> None:
        asked: list[int] = []

        def sampler(kind: Kind, scale: Fraction, size: int) -> Draws:
            asked.append(size)
            return np.zeros(size, dtype=np.int64)

        noise = PooledNoise(sampler=sampler)
        noise.reserve("gaussian", Fraction(3), 10)
        noise.reserve("gaussian", Fraction(3), 10)
        assert sum(asked) == 20
        noise.gaussian(Fraction(3), 10)
        noise.gaussian(Fraction(3), 10)
        assert sum(asked) == 20
        noise.gaussian(Fraction(3), 1)
        assert sum(asked) == 21

    def test_what_waits_is_what_was_drawn_and_not_handed_out(self, counting: PooledNoise) -> None:
        counting.reserve("gaussian", Fraction(3), 10)
        counting.reserve("laplace", Fraction(3), 5)
        assert counting.waiting == 15
        counting.gaussian(Fraction(3), 4)
        assert counting.waiting == 11

    def test_nothing_is_drawn_but_for_the_look_that_takes_it(self) -> None:
        """A copy of the memory between two looks, in which the process goes on, has no draw in common."""
        made: list[int] = []

        def sampler(kind: Kind, scale: Fraction, size: int) -> Draws:
            made.extend(range(len(made), len(made) + size))
            return np.array(made[-size:] if size else [], dtype=np.int64)

        noise = PooledNoise(sampler=sampler)
        for _ in range(3):
            noise.reserve("laplace", Fraction(8), 10)
            taken = noise.laplace(Fraction(8), 7)
            noise.discard()
            assert (noise.waiting, len(noise._pools)) == (0, 0)
            assert noise.laplace(Fraction(8), 1)[0] == len(made) - 1 > taken[-1] + 3

    def test_a_draw_handed_out_is_overwritten_in_the_pool(self, counting: PooledNoise) -> None:
        counting.reserve("gaussian", Fraction(1), 8)
        (pool,) = counting._pools.values()
        memory = pool._values
        handed_out = counting.gaussian(Fraction(1), 5)
        assert handed_out.tolist() == [1, 2, 3, 4, 5]
        assert memory.tolist() == [0, 0, 0, 0, 0, 6, 7, 8]
        counting.discard()
        assert memory.tolist() == [0] * 8
        assert handed_out.tolist() == [1, 2, 3, 4, 5]

    def test_no_draw_is_seen_in_a_repr_pickle_or_copy(self, counting: PooledNoise) -> None:
        counting.reserve("gaussian", Fraction(1), 50)
        assert repr(counting) == "PooledNoise()"
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="never pickled"):
                pickle.dumps(counting, protocol)
        for duplicate in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never pickled"):
                duplicate(counting)

    def test_no_draw_survives_a_fork(self) -> None:
        # In a process of its own: forking one with threads is deprecated from Python 3.12 on.
        program = """
import json, os
from fractions import Fraction
from stream_dp.core.randomness.noise_sources import PooledNoise
noise, scale = PooledNoise(), Fraction(2**40)
noise.reserve("gaussian", scale, 8)
kept = noise._pools["gaussian", scale]._values
reader, writer = os.pipe()
if os.fork() == 0:
    gone = not noise._pools and not kept.any()
    os.write(writer, json.dumps([gone, noise.gaussian(scale, 8).tolist()]).encode())
    os._exit(0)
os.wait()
print(json.dumps([json.loads(os.read(reader, 4096)), noise.gaussian(scale, 16).tolist()]))
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        (gone, child), parent = json.loads(done.stdout)
        assert gone
        assert len(set(child)) == 8
        # Neither the waiting draws nor the fresh ones after them are drawn on both sides.
        assert not set(child) & set(parent)

    def test_sizes_that_make_no_sense_are_refused(self, counting: PooledNoise) -> None:
        for bad in (
            lambda: counting.gaussian(Fraction(1), -1),
            lambda: counting.reserve("gaussian", Fraction(1), -1),
            lambda: counting.reserve("gaussian", Fraction(1), MAX_RESERVED + 1),
            lambda: counting.geometric_half(-1),
            lambda: counting.uniform(0, 1),
            lambda: counting.uniform(MAX_UNIFORM + 1, 1),
            lambda: counting.uniform(5, -1),
        ):
            with pytest.raises(ValueError):
                bad()


def _unused(kind: Kind, scale: Fraction, size: int) -> Draws:
    raise AssertionError("nothing should be drawn")
