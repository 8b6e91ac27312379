"""AdaptiveThresholds: constants, the pairing of cuts that its privacy rests on, and its error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.kinds.adaptive_threshold.adaptive_law import (
    AdaptivePlan,
    AdaptiveThresholds,
    chunk_counts,
)
from stream_dp.core.kinds.loss import Secret
from stream_dp.core.kinds.threshold.count_tree import prefix_sums
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.noise_sources import NoiseSource
from tests.noise import QuickNoise

ALARM = 1e-6
ONE, SMALL = Fraction(1), Fraction(1, 10**6)


def plan(n_rows: int, weight: Fraction = Fraction(4, 5)) -> AdaptivePlan:
    return AdaptivePlan(ONE, SMALL, n_rows, 8, 2000, 0.05, weight)


class TwiceTheLevels(AdaptivePlan):
    @property
    def sensitivity(self) -> int:
        return 2 * self.levels


class TestConstants:
    def test_they_are_as_published(self) -> None:
        p = plan(19_416)
        assert p.chunk.epsilon == Fraction(1, 5)
        assert p.cut_scale == 25
        assert (p.chunk.min_rows, p.cut_error, p.largest_cut_error) == (1418, 448, 1213)
        assert p.n_rows // p.n_chunks == 2427 == 2 * p.largest_cut_error + 1
        assert p.min_rows == 19_416
        assert p.error / p.n_rows == pytest.approx(0.148, abs=0.0005)

    def test_at_equal_weights_and_a_larger_sensitivity_too(self) -> None:
        p = TwiceTheLevels(ONE, SMALL, 21_520, 8, 2000, 0.05, Fraction(1, 2))
        assert p.min_rows == 21_520
        assert p.error / p.n_rows == pytest.approx(0.135, abs=0.0005)

    def test_fewer_rows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="19416"):
            plan(19_415)

    def test_the_parts_add_up_to_the_promise(self) -> None:
        p = AdaptivePlan(Fraction(1, 3), SMALL, 10**6, 5, 100, 0.1, Fraction(2, 3))
        e1, d1 = p.chunk.epsilon, p.chunk.delta
        assert 4 * e1 + p.sensitivity / p.cut_scale <= p.epsilon
        spent = float(d1) * sum(math.exp(i * e1) for i in range(4))
        assert 0.499e-6 < spent <= 0.5e-6

    @pytest.mark.parametrize(("n_chunks", "weight"), [(1, 0.5), (8, 0.0), (8, 1.0)])
    def test_what_makes_no_plan_is_refused(self, n_chunks: int, weight: float) -> None:
        with pytest.raises(ValueError):
            AdaptivePlan(ONE, SMALL, 10**6, n_chunks, 10, 0.1, Fraction(weight))


class TestPairing:
    """The proof's bijection of cuts, on random data and random noise within its bounds."""

    def instance(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Chunks that changed, and the largest change: with cuts paired as in the proof, and left alone."""
        n_chunks = int(rng.integers(2, 9))
        size = int(rng.integers(3, 7))
        n_rows = n_chunks * size + int(rng.integers(n_chunks))
        largest = (n_rows // n_chunks - 1) // 2
        n_values = int(rng.integers(2, 2 * n_rows))
        rows = rng.integers(n_values, size=n_rows)
        u, v = sorted((int(rows[0]), int(rng.integers(n_values))))
        x, y = rows.copy(), rows.copy()
        x[0], y[0] = u, v
        nominal = np.array([i * n_rows // n_chunks for i in range(1, n_chunks)])
        cuts = nominal + rng.integers(-largest, largest + 1, n_chunks - 1)
        a0, a1 = int(np.sum(x < u)), int(np.sum(x < v))
        paired = cuts - ((a0 < nominal) & (nominal <= a1))
        results: list[int] = []
        for others in (paired, cuts):
            changes = np.array(
                [
                    np.subtract(
                        chunk_counts(int(np.sum(x <= t)), cuts.tolist(), n_rows),
                        chunk_counts(int(np.sum(y <= t)), others.tolist(), n_rows),
                    )
                    for t in range(n_values)
                ]
            )
            results += [int(np.any(changes, axis=0).sum()), int(np.abs(changes).max())]
        return tuple(results)

    def test_at_most_four_chunks_change_by_one_and_without_it_more_do(self) -> None:
        rng = np.random.default_rng(5)
        found = np.array([self.instance(rng) for _ in range(400)]).max(axis=0)
        chunks, change, chunks_left, _ = found.tolist()
        assert (chunks, change) == (4, 1)
        assert chunks_left > 4

    @pytest.mark.parametrize("n_chunks", [2, 3, 5, 8, 16])
    def test_moving_a_range_of_cuts_by_one_moves_the_nodes_by_no_more_than_the_sensitivity(
        self, n_chunks: int
    ) -> None:
        """The nodes that make the prefix sums of a range 1 and all others 0 are unique."""
        n = n_chunks - 1
        of_nodes = np.array([prefix_sums(row) for row in np.eye(n, dtype=np.int64)]).T
        p = AdaptivePlan(ONE, SMALL, 10**6, n_chunks, 10, 0.1)
        moved = [
            np.abs(
                np.linalg.solve(of_nodes, ((np.arange(n) >= a) & (np.arange(n) < b)).astype(float))
            ).sum()
            for a in range(n)
            for b in range(a + 1, n + 1)
        ]
        assert round(max(moved)) <= p.sensitivity

    @pytest.mark.parametrize("factor", [1.0, 0.9, 1.1])
    def test_the_cuts_have_noise_of_their_scale(self, factor: float) -> None:
        p, noise = AdaptivePlan(ONE, SMALL, 10**6, 8, 10, 0.1), QuickNoise(2, factor)
        cut = np.array([p.draw(noise).values[3] for _ in range(20_000)]) - 500_000  # one node alone
        edges = np.arange(-100, 101, 20)
        law = stats.dlaplace(1 / float(p.cut_scale))
        mass = np.diff(law.cdf(np.concatenate([[-np.inf], edges - 1, [np.inf]])))
        seen = np.bincount(np.searchsorted(edges, cut, side="right"), minlength=len(mass))
        assert (stats.chisquare(seen, len(cut) * mass).pvalue > ALARM) == (factor == 1.0)


def ask(
    run: AdaptiveThresholds, rows: np.ndarray, code: int, secret: Secret, noise: NoiseSource
) -> int:
    known = run.answer(code)
    if known is not None:
        return known
    rank = int(np.searchsorted(rows, code, side="right"))
    return run.absorb(code, run.look(rank, secret=secret, noise=noise))


class TestAccuracy:
    @pytest.mark.parametrize("adversary", ["random", "halving"])
    @pytest.mark.parametrize("ties", [False, True])
    def test_errors_stay_within_the_promise_and_are_as_published(
        self, adversary: str, ties: bool
    ) -> None:
        """2,000 thresholds a run: largest errors of 0.09 to 0.105 of the rows, and 0.148 promised."""
        p = plan(19_416)
        noise, rng = QuickNoise(3), np.random.default_rng(4)
        n_values = 40 if ties else 2**30
        worst, wrong, runs = [], 0, 15
        for _ in range(runs):
            rows = np.sort(rng.integers(n_values, size=p.n_rows))
            run, secret = AdaptiveThresholds(p), p.draw(noise)
            codes = rng.integers(n_values, size=2000)
            if adversary == "halving":
                codes[::2] = np.quantile(rows, np.arange(1000) / 1000).astype(int)
            errors = [
                abs(ask(run, rows, code, secret, noise) - np.searchsorted(rows, code, side="right"))
                for code in codes.tolist()
            ]
            worst.append(max(errors) / p.n_rows)
            wrong += max(errors) > p.error
        assert stats.binomtest(wrong, runs, 0.05, alternative="greater").pvalue > ALARM
        assert max(worst) <= p.error / p.n_rows
        if not ties:
            assert 0.085 < np.mean(worst) < 0.11

    def test_at_equal_weights_the_errors_are_as_published_too(self) -> None:
        """Largest errors of 0.077 to 0.092 of the rows, and 0.135 promised."""
        p = TwiceTheLevels(ONE, SMALL, 21_520, 8, 2000, 0.05, Fraction(1, 2))
        noise, rng, worst = QuickNoise(8), np.random.default_rng(9), []
        for _ in range(10):
            rows = np.sort(rng.integers(2**30, size=p.n_rows))
            run, secret = AdaptiveThresholds(p), p.draw(noise)
            codes = rng.integers(2**30, size=2000).tolist()
            ranks = np.searchsorted(rows, codes, side="right")
            answers = [ask(run, rows, code, secret, noise) for code in codes]
            worst.append(np.abs(np.array(answers) - ranks).max() / p.n_rows)
        assert max(worst) <= p.error / p.n_rows
        assert 0.072 < np.mean(worst) < 0.097


class TestRun:
    P = plan(19_416)

    def test_it_is_free_once_all_chunks_have_their_points(self) -> None:
        run, noise = AdaptiveThresholds(self.P), QuickNoise(5)
        sides = (Side.BETWEEN, *[Side.BELOW] * 7)
        assert run.absorb(100, sides) == 2427
        assert run.answer(200) is None
        assert len(run.look(5000, secret=self.P.draw(noise), noise=noise)) == 7
        assert run.absorb(200, [Side.BETWEEN] * 7) == 19_416
        assert [run.answer(code) for code in (99, 100, 199, 200)] == [0, 2427, 2427, 19_416]
        assert run.look(5000, secret=self.P.draw(noise), noise=noise) == ()

    def test_a_lost_output_abandons_it(self) -> None:
        run, noise = AdaptiveThresholds(self.P), QuickNoise(6)
        run.lost()
        assert run.abandoned
        assert run.answer(3) is None
        with pytest.raises(RuntimeError):
            run.look(1, secret=self.P.draw(noise), noise=noise)

    def test_the_secret_is_as_long_as_said_and_reads_back(self) -> None:
        secret = self.P.draw(QuickNoise(7))
        again = Secret.from_bytes(secret.to_bytes(), self.P.secret_size)
        assert again.values == secret.values
        cuts = list(secret.values[:7])
        assert cuts == sorted(cuts)
        assert repr(AdaptiveThresholds(self.P)).count("None") == 8

    def test_chunks_count_every_row_once(self) -> None:
        for rank in range(13):
            assert sum(chunk_counts(rank, [3, 3, 8], 12)) == rank
        assert chunk_counts(5, [3, 3, 8], 12) == [3, 0, 2, 0]
