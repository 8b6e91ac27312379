"""The polytope: its walk against exact marginals, its predictions against the other representations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.median.consistent_set import (
    ConsistentSet,
    Distribution,
    Entropic,
    Exhaustive,
    Polytope,
)
from stream_dp.core.median.consistent_set.polytope import LEAST_DEPTH, _Body, sufficient_rows
from stream_dp.core.median.easiness import Easiness
from stream_dp.core.median.formulas import hypothesis_rows
from stream_dp.errors import InvalidDefinition

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Answers = list[tuple[Mask, range, str, str]]

ERROR = Fraction(1, 10)


def mask(*cells: int, of: int) -> Mask:
    chosen = np.zeros(of, dtype=np.bool_)
    chosen[list(cells)] = True
    return chosen


def prune(representation: ConsistentSet, answers: Answers) -> None:
    for query, window, value, tolerance in answers:
        representation.prune(query, window, Fraction(value), Fraction(tolerance))


def filled(n_cells: int, sizes: tuple[int, ...], answers: Answers, draws: int = 512) -> Polytope:
    polytope = Polytope(n_cells, len(sizes), draws=draws)
    for size in sizes:
        polytope.add_block(size)
    prune(polytope, answers)
    return polytope


def told_apart(n_cells: int) -> Answers:
    """Answers that cut nothing, and tell every cell from every other: only reflections move a chain."""
    return [(mask(cell, of=n_cells), range(1), "0.5", "0.75") for cell in range(n_cells)]


# ---------------------------------------------------------------- the walk
#
# False alarms: at most 1e-6 for each law. A tenth of the trajectories is kept, as good as independent.

_THINNING = 10


def _worst_p_value(points: Floats, law: Callable[[Floats], Floats]) -> float:
    """The least p-value of a cell's law, Bonferroni-corrected; ``points`` of shape (..., n_cells)."""
    kept = points[::_THINNING].reshape(-1, points.shape[-1])
    return kept.shape[1] * min(float(stats.kstest(column, law).pvalue) for column in kept.T)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_cells", [1, 2, 3, 5])
def test_points_of_a_simplex_are_uniform(n_cells: int) -> None:
    polytope = filled(n_cells, (1,), told_apart(n_cells), draws=32 * 250)
    assert _worst_p_value(polytope.sample()[:, :, 0], stats.beta(1, n_cells).cdf) > 1e-6


def _without(part: str) -> Callable[..., Floats]:
    """A walk with one thing wrong."""

    def reflected(
        self: _Body, entries: Floats, velocity: Floats, products: Floats, duration: float
    ) -> Floats:
        slack = self._slack(entries)
        if part == "reflections":  # stops short of the first wall
            with np.errstate(divide="ignore"):
                times = np.where(velocity < 0, -slack / velocity, np.inf).min(axis=1)
            return (slack + velocity * np.minimum(times * 0.99, duration)[:, None])[
                :, : entries.shape[1]
            ]
        if part == "a random direction":  # towards the unused mass more often than back
            velocity = np.where(velocity[:, [0]] > 0, -velocity, velocity)
        if part == "a speed of its own":  # slower where the first cell is large
            velocity = velocity * np.where(entries[:, [0]] > 0.3, 0.1, 1.0)
        return original(self, entries, velocity, products, duration)

    original = _Body._reflected
    return reflected


@pytest.mark.parametrize("part", ["reflections", "a random direction", "a speed of its own"])
def test_a_walk_with_one_thing_wrong_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Body, "_reflected", _without(part))
    polytope = filled(3, (1,), told_apart(3), draws=32 * 250)
    assert _worst_p_value(polytope.sample()[:, :, 0], stats.beta(1, 3).cdf) < 1e-6


def test_points_of_a_cut_simplex_are_uniform() -> None:
    """The first cell between 0.4 and 0.5, its density falling as ``(1 - x)^2``; the others share the rest."""
    answers = [*told_apart(3), (mask(0, of=3), range(1), "0.45", "0.05")]
    points = filled(3, (1,), answers, draws=32 * 600).sample()[:, :, 0]

    def first(x: Floats) -> Floats:
        part = (0.6**3 - (1 - np.clip(x, 0.4, 0.5)) ** 3) / (0.6**3 - 0.5**3)
        return np.asarray(part)

    assert points[..., 0].min() >= 0.4 - 1e-9
    assert points[..., 0].max() <= 0.5 + 1e-9
    assert _worst_p_value(points[..., :1], first) > 1e-6
    rest = points[..., 1:] / (1.0 - points[..., :1])
    assert _worst_p_value(rest, stats.beta(1, 2).cdf) > 1e-6
    flat = stats.uniform(0.4, 0.1).cdf
    assert _worst_p_value(points[..., :1], flat) < 1e-6  # a level density would be noticed


@pytest.mark.parametrize(
    ("n_cells", "sizes", "answers"),
    [
        (4, (1,), [((0, 1), range(1), "0.6", "0.1"), ((1, 2), range(1), "0.5", "0.05")]),
        (3, (1, 3), [((0,), range(2), "0.3", "0.05"), ((0, 1), range(1), "0.7", "0.1")]),
        (2, (2, 1, 1), [((0,), range(3), "0.5", "0.05"), ((1,), range(1, 3), "0.4", "0.1")]),
    ],
)
def test_points_of_a_product_cut_by_joint_half_spaces_are_those_that_rejection_keeps(
    n_cells: int, sizes: tuple[int, ...], answers: list[tuple[tuple[int, ...], range, str, str]]
) -> None:
    cuts = [(mask(*cells, of=n_cells), *rest) for cells, *rest in answers]
    polytope = filled(n_cells, sizes, cuts, draws=32 * 250)  # type: ignore[arg-type]
    points = polytope.sample().reshape(250, 32, -1)
    rng = np.random.default_rng(1)
    free = rng.dirichlet(np.ones(n_cells + 1), size=(200_000, len(sizes)))[..., :n_cells]
    kept = np.ones(len(free), dtype=np.bool_)
    for query, window, value, tolerance in cuts:
        weights = np.array([n if i in window else 0 for i, n in enumerate(sizes)], dtype=float)
        shares = free[..., list(query)].sum(axis=-1) @ weights / weights.sum()
        kept &= np.abs(shares - float(value)) <= float(tolerance)  # type: ignore[arg-type]
    exact = free[kept].reshape(-1, n_cells * len(sizes))
    assert len(exact) > 2_000
    walked = points[::_THINNING].reshape(-1, exact.shape[1])
    for cell in range(exact.shape[1]):
        assert stats.ks_2samp(walked[:, cell], exact[:, cell]).pvalue > 1e-7


def test_every_point_is_in_the_body() -> None:
    rng = np.random.default_rng(3)
    truth = rng.dirichlet(np.full(40, 0.5), size=2)
    answers: Answers = []
    for _ in range(25):
        query = rng.random(40) < 0.5
        share = (truth[0, query].sum() + 2 * truth[1, query].sum()) / 3
        answers.append((query, range(2), repr(float(share + rng.uniform(-1e-3, 1e-3))), "0.002"))
    polytope = filled(40, (100, 200), answers)
    points = polytope.sample()
    assert points.shape == (16, 32, 2, 40)
    assert points.min() >= -1e-12
    assert points.sum(axis=-1).max() <= 1 + 1e-12
    for query, _, value, tolerance in answers:
        shares = points[..., query].sum(axis=-1) @ [1 / 3, 2 / 3]
        assert np.abs(shares - float(value)).max() <= float(tolerance) + 1e-9
        assert abs(polytope.point()[:, query].sum(axis=1) @ [1 / 3, 2 / 3] - float(value)) <= 0.002


# ---------------------------------------------------------------- beside the other representations


def _easiness_apart(one: Distribution, other: Distribution) -> float:
    first, second = (Easiness(d, ERROR, 1_000) for d in (one, other))
    return max(abs(float(first(count) - second(count))) for count in range(0, 1_001, 40))


def _lattice(n_cells: int, rows: int, answers: Answers) -> tuple[Floats, ...]:
    """All datasets of at most ``rows`` rows that agree with the answers, each counted once."""
    places = itertools.combinations(range(rows + n_cells), n_cells)
    bars = np.array([(-1, *place) for place in places])
    points = (np.diff(bars, axis=1) - 1) / rows
    for query, _, value, tolerance in answers:
        points = points[
            np.abs(points[:, query].sum(axis=1) - float(value)) <= float(tolerance) + 1e-9
        ]
    return tuple(points)


@pytest.mark.parametrize(
    "cuts",
    [[], [((0,), "0.5", "0.1")], [((0, 1), "0.6", "0.1"), ((1, 2), "0.5", "0.1")]],
)
def test_on_a_tiny_universe_it_is_the_set_of_all_histograms_each_counted_once(
    cuts: list[tuple[tuple[int, ...], str, str]],
) -> None:
    answers: Answers = [(mask(*cells, of=3), range(1), v, t) for cells, v, t in cuts]
    polytope = filled(3, (1_000,), answers, draws=2_048)
    lattice = np.array(_lattice(3, 60, answers))
    for width in (1, 2):
        for cells in itertools.combinations(range(3), width):
            query = mask(*cells, of=3)
            values, counts = np.unique(
                np.rint(lattice[:, query].sum(axis=1) * 60), return_counts=True
            )
            exact = Distribution(
                tuple(Fraction(int(v), 60) for v in values), tuple(int(c) for c in counts)
            )
            walked = polytope.distribution(query, range(1))
            assert float(walked.lower_median) == pytest.approx(float(exact.lower_median), abs=0.035)
            assert _easiness_apart(walked, exact) < 0.035


@pytest.mark.parametrize("n_cells", [2, 3])
def test_its_medians_and_easiness_are_those_of_the_exhaustive_set_of_as_many_rows_as_cells(
    n_cells: int,
) -> None:
    """The unused mass is one more cell; with ``n_cells + 2`` rows mean and variance are the same."""
    polytope = filled(n_cells, (1_000,), [], draws=4_096)
    exhaustive = Exhaustive(n_cells + 1, n_cells + 2, 1)
    exhaustive.add_block(1_000)
    for width in range(1, n_cells):
        for cells in itertools.combinations(range(n_cells), width):
            walked = polytope.distribution(mask(*cells, of=n_cells), range(1))
            listed = exhaustive.distribution(mask(*cells, of=n_cells + 1), range(1))
            assert float(walked.mean) == pytest.approx(float(listed.mean), abs=0.01)
            step = 1 / (n_cells + 2)
            assert float(walked.lower_median) == pytest.approx(float(listed.lower_median), abs=step)
            near = Easiness(walked, Fraction(1, 2), 100), Easiness(listed, Fraction(1, 2), 100)
            for count in (0, 30, 60, 100):
                assert float(near[0](count)) == pytest.approx(float(near[1](count)), abs=0.05)


def _random_answers(rng: np.random.Generator, n_cells: int, n_answers: int) -> Answers:
    truth = rng.dirichlet(np.full(n_cells, 2.0))
    answers: Answers = []
    for _ in range(n_answers):
        query = rng.random(n_cells) < 0.5
        value = float(truth[query].sum() + rng.uniform(-0.001, 0.001))
        answers.append((query, range(1), repr(value), "0.002"))
    return answers


def _apart(polytope: Polytope, entropic: Entropic, n_cells: int) -> Floats:
    """How far apart median and easiness are over 30 random queries, mean and largest."""
    rng, found = np.random.default_rng(7), []
    for _ in range(30):
        query = rng.random(n_cells) < 0.5
        walked, near = (s.distribution(query, range(1)) for s in (polytope, entropic))
        found.append(
            (abs(float(walked.lower_median - near.lower_median)), _easiness_apart(walked, near))
        )
    return np.array([np.mean(found, axis=0), np.max(found, axis=0)])


@pytest.mark.parametrize(("n_cells", "n_answers"), [(64, 0), (64, 10), (128, 20)])
def test_on_a_larger_universe_it_predicts_what_the_entropic_set_of_as_many_rows_as_cells_does(
    n_cells: int, n_answers: int
) -> None:
    answers = _random_answers(np.random.default_rng(5), n_cells, n_answers)
    polytope = filled(n_cells, (1_000,), answers, draws=1_024)
    entropic = Entropic(n_cells, n_cells + 1)
    entropic.add_block(1_000)
    prune(entropic, answers)
    assert np.all(_apart(polytope, entropic, n_cells) < [[0.012, 0.04], [0.035, 0.1]])


def test_the_comparison_would_notice_one_answer_that_is_left_out() -> None:
    answers = _random_answers(np.random.default_rng(5), 64, 10)
    polytope = filled(64, (1_000,), answers, draws=1_024)
    entropic = Entropic(64, 65)
    entropic.add_block(1_000)
    prune(entropic, answers[1:])
    query = answers[0][0]
    walked, near = (s.distribution(query, range(1)) for s in (polytope, entropic))
    assert _easiness_apart(walked, near) > 0.1


# ---------------------------------------------------------------- what it promises


def test_the_sample_depends_on_what_was_published_alone() -> None:
    answers = _random_answers(np.random.default_rng(5), 16, 6)
    straight, asked = filled(16, (1_000,), answers), filled(16, (1_000,), [])
    for answer in answers:
        asked.distribution(answer[0], range(1))
        prune(asked, [answer])
    assert np.array_equal(straight.sample(), asked.sample())
    other = filled(16, (1_000,), [*answers[:-1], (*answers[-1][:2], "0.5", "0.002")])
    assert not np.array_equal(straight.sample(), other.sample())


def test_a_sample_tells_what_it_is_worth() -> None:
    """Independent draws are worth their number, and those of a long walk less."""
    free = filled(200, (1,), []).distribution(mask(*range(100), of=200), range(1)).effective_size
    answers = _random_answers(np.random.default_rng(5), 64, 30)
    walked = filled(64, (1,), answers).distribution(mask(*range(30), of=64), range(1))
    assert free is not None
    assert walked.effective_size is not None
    assert 250 < free <= 512
    assert 60 < walked.effective_size <= 512


def test_the_effective_size_is_that_of_the_error() -> None:
    """Over 40 samples the median's mean spreads as that of so many independent draws does, or less."""
    answers = _random_answers(np.random.default_rng(5), 12, 8)
    query = mask(0, 1, 2, 3, 4, of=12)
    means, spreads, sizes = [], [], []
    for size in range(1, 41):  # another size of the block is another seed
        polytope = filled(12, (size,), answers, draws=128)
        values = polytope.sample()[..., 0, :][..., query].sum(axis=-1)
        found = polytope.distribution(query, range(1)).effective_size
        assert found is not None
        means.append(values.mean())
        spreads.append(values.var())
        sizes.append(found)
    expected = np.mean(spreads) / np.median(sizes)
    # 39 times the ratio is chi-squared, 39 degrees of freedom, times the estimate's own quarter.
    assert np.var(means, ddof=1) < 2.6 * expected


def test_contradicting_answers_empty_the_set() -> None:
    polytope = filled(4, (1,), [(mask(0, of=4), range(1), "0.5", "0.01")])
    assert not polytope.empty
    prune(polytope, [(mask(0, 1, of=4), range(1), "0.4", "0.01")])
    assert polytope.empty
    polytope.add_block(1)
    assert polytope.empty
    for ask in (polytope.sample, polytope.point):
        with pytest.raises(ValueError, match="empty"):
            ask()


@pytest.mark.parametrize(("value", "empty"), [("0.0199", False), ("0.0201", True)])
def test_an_answer_to_a_query_that_no_cell_satisfies_is_taken_as_it_is(
    value: str, *, empty: bool
) -> None:
    polytope = filled(4, (1,), [(mask(of=4), range(1), value, "0.02")])
    assert polytope.empty == empty


def test_a_body_too_thin_for_the_walk_is_not_entered() -> None:
    def body(apart: float) -> Polytope:
        low = (mask(0, of=4), range(1), "0.5", "0.01")
        return filled(4, (1,), [low, (mask(0, of=4), range(1), repr(0.52 - apart), "0.01")])

    assert body(-1e-4).empty
    assert body(1e-9).empty
    assert not body(1e-4).empty
    points = body(1e-4).sample()[..., 0, 0]
    assert 0.5098 < points.min() <= points.max() < 0.5102


@pytest.mark.parametrize("error", ["0.1", "0.02"])
def test_a_body_whose_answers_are_within_a_hundredth_is_deep_enough_to_enter(error: str) -> None:
    """At least eps/200, whatever the dataset: here one on the walls, with the noise at its worst."""
    eps, rng = float(error), np.random.default_rng(2)
    truth = np.zeros(30)
    truth[:2] = 0.3, 0.7
    polytope = filled(30, (1,), [])
    for _ in range(60):
        query = rng.random(30) < 0.5
        value = truth[query].sum() + rng.choice([-1, 1]) * eps / 100
        prune(polytope, [(query, range(1), repr(float(value)), repr(eps / 50))])
    assert not polytope.empty
    assert polytope._walls.depth > eps / 200 > LEAST_DEPTH
    assert polytope.distribution(mask(0, of=30), range(1)).mean == pytest.approx(0.3, abs=eps / 10)


def test_a_body_with_too_many_variables_is_refused() -> None:
    Polytope(512, 2)
    with pytest.raises(InvalidDefinition, match='use "entropic"'):
        Polytope(512, 3)
    with pytest.raises(ValueError, match="multiple"):
        Polytope(4, 1, draws=100)


def test_the_rows_that_it_needs_are_few() -> None:
    assert [sufficient_rows(n, ERROR) for n in (4, 16, 64, 256, 512)] == [12, 24, 63, 189, 335]
    assert hypothesis_rows(100, ERROR) == 169_660_740


@pytest.mark.parametrize("n_cells", [4, 64, 512])
def test_no_more_hard_queries_fit_into_the_volume_than_the_limit_has(n_cells: int) -> None:
    """By the logarithm of the volume: 0.9585 a hard query, and ``(eps/100)^N`` is left at the end."""
    for error in (Fraction(1, 10), Fraction(1, 50)):
        hard = n_cells * math.log(100 / error) / math.log(1 / 0.9585)
        limit = 40 * sufficient_rows(n_cells, error) * math.log(n_cells)
        assert hard <= limit < hard + 40 * math.log(n_cells) + 1
    assert (0.91 + 0.02) / math.exp(-0.03) < 0.9585
