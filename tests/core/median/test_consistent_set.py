"""The consistent set: the exhaustive one against its definition, the entropic one against the exhaustive."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize

from stream_dp.core.median.consistent_set import ConsistentSet, Distribution, Entropic, Exhaustive
from stream_dp.errors import InvalidDefinition

Mask = npt.NDArray[np.bool_]


def mask(*cells: int, of: int) -> Mask:
    chosen = np.zeros(of, dtype=np.bool_)
    chosen[list(cells)] = True
    return chosen


def moments(distribution: Distribution) -> tuple[float, float]:
    """Mean and standard deviation, by floats."""
    values = np.array([float(value) for value in distribution.values])
    weights = np.array([weight / sum(distribution.weights) for weight in distribution.weights])
    mean = float(weights @ values)
    return mean, math.sqrt(float(weights @ (values - mean) ** 2))


# ---------------------------------------------------------------- distributions


@pytest.mark.parametrize(
    ("weights", "median"),
    [((1, 1), 0), ((1, 2), 1), ((2, 1, 1), 0), ((1, 1, 1), 1), ((1, 1, 3), 2)],
)
def test_the_median_is_the_lower_one(weights: tuple[int, ...], median: int) -> None:
    values = tuple(Fraction(i, 10) for i in range(len(weights)))
    assert Distribution(values, weights).lower_median == values[median]


def test_the_median_lies_where_more_than_half_of_the_weight_lies() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        weights = tuple(int(w) for w in rng.integers(1, 20, size=9))
        values = tuple(Fraction(i, 9) for i in range(9))
        low, high = sorted(rng.choice(9, 2, replace=False))
        if 2 * sum(weights[low : high + 1]) > sum(weights):
            assert values[low] <= Distribution(values, weights).lower_median <= values[high]


# ---------------------------------------------------------------- exhaustive


class ByDefinition:
    """Every sequence of rows, one by one: ``X^m`` a phase."""

    def __init__(self, n_cells: int, rows: int) -> None:
        self.n_cells, self.rows = n_cells, rows
        self.sizes: list[int] = []
        self.members: list[tuple[tuple[int, ...], ...]] = [()]

    def add_block(self, n_rows: int) -> None:
        self.sizes.append(n_rows)
        sequences = list(itertools.product(range(self.n_cells), repeat=self.rows))
        self.members = [(*member, s) for member in self.members for s in sequences]

    def value(self, member: tuple[tuple[int, ...], ...], query: Mask, window: range) -> Fraction:
        total = sum(self.sizes[block] for block in window)
        return sum(
            (
                Fraction(self.sizes[block], total)
                * Fraction(sum(bool(query[cell]) for cell in member[block]), self.rows)
                for block in window
            ),
            Fraction(0),
        )

    def prune(self, query: Mask, window: range, answer: Fraction, tolerance: Fraction) -> None:
        self.members = [
            s for s in self.members if abs(self.value(s, query, window) - answer) <= tolerance
        ]

    def distribution(self, query: Mask, window: range) -> Distribution:
        counts = Counter(self.value(member, query, window) for member in self.members)
        values = sorted(counts)
        return Distribution(tuple(values), tuple(counts[value] for value in values))


@pytest.mark.parametrize(
    ("n_cells", "rows", "phases"), [(2, 5, 2), (3, 3, 2), (4, 3, 1), (2, 3, 3)]
)
def test_the_exhaustive_set_is_the_set_of_all_sequences(
    n_cells: int, rows: int, phases: int
) -> None:
    listed, oracle = Exhaustive(n_cells, rows, phases), ByDefinition(n_cells, rows)
    rng = np.random.default_rng(n_cells * 100 + rows * 10 + phases)
    for phase in range(phases):
        n_rows = int(rng.integers(1, 2**62))
        listed.add_block(n_rows)
        oracle.add_block(n_rows)
        for _ in range(3):
            query = rng.random(n_cells) < 0.5
            start = int(rng.integers(0, phase + 1))
            window = range(start, phase + 1)
            assert listed.distribution(query, window) == oracle.distribution(query, window)
            kept = oracle.distribution(query, window)
            answer = kept.values[int(rng.integers(len(kept.values)))] + Fraction(1, 100)
            for side in (listed, oracle):
                side.prune(query, window, answer, Fraction(1, 5))
            assert not listed.empty
    assert listed.distribution(query, window) == oracle.distribution(query, window)


def test_pruning_keeps_a_hypothesis_exactly_on_the_bound() -> None:
    for answer, left in ((Fraction(1, 2), 1), (Fraction(1, 2) + Fraction(1, 10**40), 0)):
        listed = Exhaustive(2, 4, 1)
        listed.add_block(10)
        listed.prune(mask(0, of=2), range(1), answer, Fraction(1, 4))
        values = listed.distribution(mask(0, of=2), range(1)).values
        assert (Fraction(1, 4) in values) == bool(left)


def test_an_emptied_exhaustive_set_stays_empty() -> None:
    listed = Exhaustive(2, 4, 2)
    listed.add_block(10)
    listed.prune(mask(0, of=2), range(1), Fraction(1, 8), Fraction(1, 20))
    assert listed.empty
    listed.add_block(10)
    listed.prune(mask(0, of=2), range(2), Fraction(1, 2), Fraction(1))
    assert listed.empty
    with pytest.raises(ValueError, match="empty"):
        listed.distribution(mask(0, of=2), range(1))


@pytest.mark.parametrize(
    ("n_cells", "rows", "phases"),
    [(4, 100, 2), (64, 4, 1), (2, 10**9, 1), (10**9, 1, 1), (2, 1, 18)],
)
def test_an_exhaustive_set_too_large_to_list_is_refused(
    n_cells: int, rows: int, phases: int
) -> None:
    with pytest.raises(InvalidDefinition, match='use "entropic"'):
        Exhaustive(n_cells, rows, phases)


# ---------------------------------------------------------------- entropic against exhaustive

_CASES = [
    # cells, rows, sizes of the blocks, answers: (cells of the query, window, answer, tolerance)
    (2, 600, (1_000,), [((0,), range(1), "0.62", "0.02")]),
    (3, 200, (1_000,), [((0,), range(1), "0.62", "0.02"), ((0, 2), range(1), "0.7", "0.03")]),
    (4, 70, (1_000,), [((0,), range(1), "0.5", "0.05"), ((1, 2), range(1), "0.4", "0.05")]),
    (2, 120, (1_000, 3_000), [((0,), range(2), "0.62", "0.02"), ((0,), range(1), "0.7", "0.03")]),
    (2, 24, (10, 10, 20), [((0,), range(3), "0.6", "0.05"), ((1,), range(1, 3), "0.3", "0.05")]),
]


@pytest.mark.parametrize(("n_cells", "rows", "sizes", "answers"), _CASES)
def test_the_entropic_set_predicts_what_the_exhaustive_one_does(
    n_cells: int,
    rows: int,
    sizes: tuple[int, ...],
    answers: list[tuple[tuple[int, ...], range, str, str]],
) -> None:
    exhaustive, entropic = Exhaustive(n_cells, rows, len(sizes)), Entropic(n_cells, rows)
    sets: tuple[ConsistentSet, ...] = (exhaustive, entropic)
    for representation in sets:
        for size in sizes:
            representation.add_block(size)
    queries = [
        mask(*cells, of=n_cells)
        for width in range(1, n_cells)
        for cells in itertools.combinations(range(n_cells), width)
    ]
    windows = [range(a, b) for a in range(len(sizes)) for b in range(a + 1, len(sizes) + 1)]
    for step in range(len(answers) + 1):
        for query, window in itertools.product(queries, windows):
            exact_mean, exact_spread = moments(exhaustive.distribution(query, window))
            mean, spread = moments(entropic.distribution(query, window))
            # The point is off by O(1/m), the spread by a share of itself that shrinks as well.
            assert mean == pytest.approx(exact_mean, abs=1.0 / rows + 0.25 * exact_spread)
            assert spread == pytest.approx(exact_spread, abs=0.5 / rows + 0.25 * exact_spread)
        if step < len(answers):
            cells, window, answer, tolerance = answers[step]
            for representation in sets:
                representation.prune(
                    mask(*cells, of=n_cells), window, Fraction(answer), Fraction(tolerance)
                )
                assert not representation.empty


def test_the_comparison_would_notice_a_spread_10_percent_off() -> None:
    """On the untouched set, where the entropic spread is exact up to its discretisation."""
    exhaustive, entropic = Exhaustive(2, 600, 1), Entropic(2, 600)
    for representation in (exhaustive, entropic):
        representation.add_block(1)
    _, exact = moments(exhaustive.distribution(mask(0, of=2), range(1)))
    _, spread = moments(entropic.distribution(mask(0, of=2), range(1)))
    assert spread == pytest.approx(exact, rel=0.02)


def test_more_rows_a_hypothesis_bring_the_two_sets_together() -> None:
    def distance(rows: int) -> float:
        exhaustive, entropic = Exhaustive(3, rows, 1), Entropic(3, rows)
        for representation in (exhaustive, entropic):
            representation.add_block(1)
            representation.prune(mask(0, of=3), range(1), Fraction(3, 5), Fraction(1, 20))
        query = mask(1, of=3)
        exact, near = (s.distribution(query, range(1)) for s in (exhaustive, entropic))
        return abs(moments(exact)[0] - moments(near)[0])

    near, further, far = distance(360), distance(120), distance(40)
    assert near < further / 2
    assert further < far / 2


# ---------------------------------------------------------------- entropic by itself


def _random_answers(
    rng: np.random.Generator, n_cells: int, n_blocks: int, n_answers: int
) -> list[tuple[Mask, range, Fraction, Fraction]]:
    truth = rng.dirichlet([0.5] * n_cells, size=n_blocks)
    answers = []
    for _ in range(n_answers):
        query = rng.random(n_cells) < 0.5
        start = int(rng.integers(n_blocks))
        window = range(start, int(rng.integers(start + 1, n_blocks + 1)))
        value = truth[window.start : window.stop, query].sum() / len(window)
        answers.append((query, window, Fraction(value + rng.uniform(-0.01, 0.01)), Fraction(1, 50)))
    return answers


def _filled(
    n_cells: int, n_blocks: int, answers: list[tuple[Mask, range, Fraction, Fraction]]
) -> Entropic:
    entropic = Entropic(n_cells, 10**8)
    for _ in range(n_blocks):
        entropic.add_block(10**17)
    for answer in answers:
        entropic.prune(*answer)
    return entropic


@pytest.mark.parametrize(("n_cells", "n_blocks", "seed"), [(4, 1, 1), (6, 2, 2), (5, 3, 3)])
def test_the_point_has_the_most_entropy_of_all_that_satisfy_the_answers(
    n_cells: int, n_blocks: int, seed: int
) -> None:
    answers = _random_answers(np.random.default_rng(seed), n_cells, n_blocks, 5)
    point = _filled(n_cells, n_blocks, answers).point()

    def divergence(flat: npt.NDArray[np.float64]) -> float:
        cells = np.maximum(flat, 1e-15)
        return float(np.sum(cells * np.log(cells * n_cells)))

    bounds = []
    for query, window, value, tolerance in answers:
        row = np.zeros((n_blocks, n_cells))
        row[window.start : window.stop, query] = 1.0 / len(window)
        bounds.append((row.reshape(-1), float(value), float(tolerance)))
    matrix = np.array([row for row, _, _ in bounds])
    low = np.array([value - tolerance for _, value, tolerance in bounds])
    high = np.array([value + tolerance for _, value, tolerance in bounds])
    # The stubs of scipy know no list of constraints.
    found = optimize.minimize(  # type: ignore[call-overload]
        divergence,
        np.full(n_blocks * n_cells, 1.0 / n_cells),
        method="SLSQP",
        bounds=[(1e-12, 1.0)] * (n_blocks * n_cells),
        constraints=[
            {"type": "ineq", "fun": lambda p: matrix @ p - low},
            {"type": "ineq", "fun": lambda p: high - matrix @ p},
            {"type": "eq", "fun": lambda p: p.reshape(n_blocks, n_cells).sum(axis=1) - 1.0},
        ],
        options={"maxiter": 1_000, "ftol": 1e-14},
    )
    assert found.success
    assert np.all(matrix @ point.reshape(-1) <= high + 1e-7)
    assert np.all(matrix @ point.reshape(-1) >= low - 1e-7)
    assert divergence(point.reshape(-1)) <= divergence(found.x) + 1e-3 * 0.02**2
    assert point.reshape(-1) == pytest.approx(found.x, abs=0.03 * 0.02)


def test_the_point_depends_neither_on_the_order_of_answers_nor_on_queries_in_between() -> None:
    answers = _random_answers(np.random.default_rng(7), 16, 2, 12)
    straight, asked = _filled(16, 2, answers), _filled(16, 2, [])
    for query, window, value, tolerance in answers:
        asked.distribution(query, window)
        asked.prune(query, window, value, tolerance)
    assert np.array_equal(straight.point(), asked.point())
    assert straight.point() == pytest.approx(_filled(16, 2, answers[::-1]).point(), abs=1e-6)


def test_with_the_papers_rows_an_answered_query_is_predicted_within_its_bounds() -> None:
    answers = _random_answers(np.random.default_rng(8), 64, 3, 60)
    entropic = _filled(64, 3, answers)
    fluctuation = Fraction(1, 10**4)  # 1 / sqrt(rows)
    for query, window, value, tolerance in answers:
        distribution = entropic.distribution(query, window)
        assert distribution.values[-1] <= value + tolerance + fluctuation
        assert distribution.values[0] >= value - tolerance - fluctuation


def test_many_answers_to_few_queries_are_taken_in() -> None:
    """Far more answers than cells, each query answered many times with other noise."""
    rng = np.random.default_rng(9)
    truth = rng.dirichlet([0.5] * 6)
    entropic = Entropic(6, 5)
    entropic.add_block(10**9)
    for _ in range(150):
        query = rng.random(6) < 0.5
        value = Fraction(truth[query].sum() + rng.uniform(-0.001, 0.001))
        entropic.prune(query, range(1), value, Fraction(1, 500))
    assert not entropic.empty
    assert entropic.point()[0] == pytest.approx(truth, abs=0.01)


def test_contradicting_answers_empty_the_set() -> None:
    inner, outer = mask(0, 1, of=8), mask(0, 1, 2, 3, of=8)
    entropic = _filled(8, 1, [(inner, range(1), Fraction(1, 2), Fraction(1, 100))])
    assert not entropic.empty
    entropic.prune(outer, range(1), Fraction(4, 10), Fraction(1, 100))
    assert entropic.empty
    entropic.add_block(5)
    assert entropic.empty
    with pytest.raises(ValueError, match="empty"):
        entropic.distribution(inner, range(1))


def test_answers_that_only_just_agree_leave_the_set_alive() -> None:
    inner, outer = mask(0, 1, of=8), mask(0, 1, 2, 3, of=8)
    entropic = _filled(8, 1, [(inner, range(1), Fraction(1, 2), Fraction(1, 100))])
    entropic.prune(outer, range(1), Fraction(1, 2) - Fraction(199, 10_000), Fraction(1, 100))
    assert not entropic.empty


def test_a_hypothesis_keeps_no_closer_to_an_answer_than_its_rows_allow() -> None:
    entropic = Entropic(4, 2)
    entropic.add_block(100)
    entropic.prune(mask(0, of=4), range(1), Fraction(1, 3), Fraction(1, 1_000))
    _, spread = moments(entropic.distribution(mask(0, of=4), range(1)))
    assert spread > 0.1  # shares of two rows are 0, 1/2 and 1


def test_a_large_universe_is_served_and_a_larger_one_refused() -> None:
    entropic = Entropic(2**16, 10**6)
    entropic.add_block(10**12)
    query = np.arange(2**16) < 2**12
    entropic.prune(query, range(1), Fraction(1, 2), Fraction(1, 100))
    mean, _ = moments(entropic.distribution(~query, range(1)))
    assert mean == pytest.approx(0.51, abs=1e-3)
    with pytest.raises(InvalidDefinition, match="cells"):
        Entropic(2**20 + 1, 10**6)
