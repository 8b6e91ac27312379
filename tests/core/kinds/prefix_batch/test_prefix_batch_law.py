"""Prefix queries by the exponential mechanism: restriction, exact laws, exact loss."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stream_dp.core.kinds.prefix_batch.batch_law import (
    BatchConditions,
    PrefixPlan,
    _Nested,
    _pieces,
    all_histograms,
    enumerated,
    layered,
)
from tests.noise import QuickNoise

ALARM = 1e-6
Counts = npt.NDArray[np.int64]


def dyadic(start: int, stop: int, depth: int) -> frozenset[str]:
    """The fewest prefixes that hold for the codes from ``start`` up to ``stop``."""
    found = []
    while start < stop:
        bits = min(
            (start & -start).bit_length() - 1 if start else depth, (stop - start).bit_length() - 1
        )
        length = depth - bits
        found.append(format(start >> bits, f"0{length}b") if length else "")
        start += 1 << bits
    return frozenset(found)


def of_prefixes(queries: Sequence[Iterable[str]], depth: int) -> BatchConditions:
    """The cells of queries that are sets of strings of ``0`` and ``1``; a bin is one of ``depth``."""
    codes = [format(code, f"0{depth}b") for code in range(1 << depth)]
    return BatchConditions(
        np.array([[code.startswith(tuple(query)) for code in codes] for query in queries])
    )


def shares(p: PrefixPlan, histogram: Counts) -> npt.NDArray[np.float64]:
    """The answers of a histogram, each query's share of rows."""
    return np.asarray(p.cells.holds @ histogram / p.hypothesis_rows)


THRESHOLDS = of_prefixes([dyadic(0, j, 3) for j in range(1, 6)], 3)
DATA = np.array([30, 5, 20, 5, 30, 10, 0, 0])


def plan(epsilon: Fraction = Fraction(1), kind: type[PrefixPlan] = PrefixPlan) -> PrefixPlan:
    return kind(THRESHOLDS, epsilon, 12)


def law(p: PrefixPlan, counts: Counts) -> npt.NDArray[np.float64]:
    """Probability of every histogram, shape (n_histograms,)."""
    histograms = all_histograms(p.cells.n_cells, p.hypothesis_rows)
    weights = np.exp(-float(p.rate) * p.misfit(histograms, p.cells.count(counts)))
    return np.asarray(weights / weights.sum())


def errors(p: PrefixPlan, counts: Counts) -> npt.NDArray[np.float64]:
    """Largest error of each histogram's answers, from the answers themselves."""
    truth = np.cumsum(counts)[:5] / counts.sum()
    histograms = all_histograms(p.cells.n_cells, p.hypothesis_rows)
    return np.array([np.abs(shares(p, y) - truth).max() for y in histograms])


queries = st.lists(
    st.frozensets(st.text("01", min_size=0, max_size=4), min_size=0, max_size=4),
    min_size=1,
    max_size=5,
).filter(lambda qs: any(qs))


@given(queries, st.lists(st.integers(0, 5), min_size=16, max_size=16))
def test_cells_answer_every_query_as_the_rows_do(
    sets: list[frozenset[str]], counts: list[int]
) -> None:
    cells = of_prefixes(sets, 4)
    answers = cells.holds @ cells.count(np.array(counts))
    for query, answer in zip(sets, answers, strict=True):
        rows = sum(
            count
            for code, count in enumerate(counts)
            if any(format(code, "04b").startswith(prefix) for prefix in query)
        )
        assert answer == rows
    assert cells.count(np.array(counts)).sum() == sum(counts)
    assert cells.n_cells == len({tuple(column) for column in cells.holds.T})
    assert cells.n_cells <= len(set().union(*sets)) + 1


@given(queries)
def test_replacing_a_row_replaces_at_most_a_row_of_the_cells(sets: list[frozenset[str]]) -> None:
    cells = of_prefixes(sets, 4)
    single = np.array([cells.count(row) for row in np.eye(16, dtype=np.int64)])
    assert (single.sum(axis=1) == 1).all()


class TestGolden:
    def test_the_histograms_and_the_best_of_them(self) -> None:
        p = plan()
        assert p.n_histograms == 6188 == len(all_histograms(6, 12))
        assert errors(p, DATA).min() == pytest.approx(0.03333, abs=0.00001)

    @pytest.mark.parametrize(
        ("epsilon", "mean", "within"),
        [(Fraction(1), 0.083213, 0.89480), (Fraction(1, 2), 0.140139, 0.51520)],
    )
    def test_the_law_of_the_error(self, epsilon: Fraction, mean: float, within: float) -> None:
        p = plan(epsilon)
        weights, err = law(p, DATA), errors(p, DATA)
        assert weights @ err == pytest.approx(mean, abs=0.000001)
        # The published probability is that of an error below 0.15; 0.15 itself has 9% more.
        assert weights[err < 0.15 - 1e-12].sum() == pytest.approx(within, abs=0.00001)

    @pytest.mark.parametrize(("epsilon", "worst"), [(Fraction(1), 0.652), (Fraction(1, 2), 0.305)])
    def test_the_exact_worst_log_ratio(self, epsilon: Fraction, worst: float) -> None:
        found = worst_log_ratio(plan(epsilon))
        assert found == pytest.approx(worst, abs=0.001)
        assert found <= epsilon

    def test_of_broken_copies_it_is_another_or_breaks_the_promise(self) -> None:
        class TenthTooSure(PrefixPlan):
            @property
            def rate(self) -> Fraction:
                return Fraction(11, 10) * self.epsilon / (2 * self.hypothesis_rows)

        class WithoutTheHalf(PrefixPlan):
            @property
            def rate(self) -> Fraction:
                return 2 * self.epsilon / self.hypothesis_rows

        assert worst_log_ratio(plan(kind=TenthTooSure)) > 0.652 * 1.05
        assert worst_log_ratio(plan(kind=WithoutTheHalf)) > 1.0


def worst_log_ratio(p: PrefixPlan) -> float:
    here, worst = np.log(law(p, DATA)), 0.0
    for source, target in itertools.permutations(range(6), 2):
        other = DATA.copy()
        other[source] -= 1
        other[target] += 1
        worst = max(worst, float(np.abs(here - np.log(law(p, other))).max()))
    return worst


SMALL = PrefixPlan(of_prefixes([{"0"}, {"00"}, {"11"}], 2), Fraction(1), 3)
OVERLAPPING = PrefixPlan(of_prefixes([{"0"}, {"01", "10"}], 2), Fraction(1), 3)
ROWS = np.array([9, 3, 1, 7])


class TestSamplers:
    """Each draw against the exact law of all histograms; false alarm 1e-6."""

    @pytest.mark.parametrize(
        ("sampler", "p"),
        [
            (enumerated, SMALL),
            (enumerated, OVERLAPPING),
            (layered, SMALL),
        ],
    )
    def test_histograms_come_with_their_probabilities(self, sampler: Any, p: PrefixPlan) -> None:
        n, noise, cells = 600, QuickNoise(1), p.cells.count(ROWS)
        histograms = [tuple(y) for y in all_histograms(p.cells.n_cells, p.hypothesis_rows).tolist()]
        seen = Counter(tuple(sampler(p, cells, noise).tolist()) for _ in range(n))
        assert set(seen) <= set(histograms)
        observed = [seen[y] for y in histograms]
        assert stats.chisquare(observed, n * law(p, ROWS)).pvalue > ALARM
        wrong = law(PrefixPlan(p.cells, p.epsilon * 4, p.hypothesis_rows), ROWS)
        assert stats.chisquare(observed, n * wrong).pvalue < ALARM

    @pytest.mark.parametrize("sampler", [enumerated, layered])
    def test_the_golden_errors_come_out(self, sampler: Any) -> None:
        p, noise, n = plan(), QuickNoise(2), 120
        cells, truth = p.cells.count(DATA), np.cumsum(DATA)[:5] / 100
        found = np.array(
            [np.abs(shares(p, sampler(p, cells, noise)) - truth).max() for _ in range(n)]
        )
        spread = math.sqrt(law(p, DATA) @ (errors(p, DATA) - 0.083213) ** 2)
        assert abs(found.mean() - 0.083213) < 5.2 * spread / math.sqrt(n)
        below = int(np.sum(found < 0.15 - 1e-12))
        assert stats.binomtest(below, n, 0.8948).pvalue > ALARM

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.integers(0, 6), min_size=8, max_size=8).filter(any), st.data())
    def test_the_layers_count_what_there_is(self, counts: list[int], data: st.DataObject) -> None:
        """Of every nested family, N(v) by the tree is N(v) by writing all histograms down."""
        families = [
            [dyadic(0, j, 3) for j in (2, 3, 5)],
            [frozenset({p}) for p in ("0", "00", "01", "1", "111")],
            [
                frozenset({"0"}),
                frozenset({"0"}),
                frozenset[str](),
                frozenset({""}),
                frozenset({"10"}),
            ],
            [dyadic(j, 8, 3) for j in (2, 5)] + [dyadic(0, j, 3) for j in (2, 4)],
        ]
        p = PrefixPlan(of_prefixes(data.draw(st.sampled_from(families)), 3), Fraction(1), 4)
        assert p.cells.nested
        cells = p.cells.count(np.array(counts))
        misfits = p.misfit(all_histograms(p.cells.n_cells, 4), cells)
        tree = _Nested(p, cells)
        for v in {0, *misfits.tolist(), *(misfits - 1).tolist()} - {-1}:
            assert tree.number(v) == int(np.sum(misfits <= v))

    @pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(40)])
    def test_whatever_the_data_one_of_e_draws_is_kept(self, epsilon: Fraction) -> None:
        random = np.random.default_rng(1)
        for _ in range(20):
            counts = random.multinomial(500, random.dirichlet(np.full(8, 0.5)))
            p = plan(epsilon)
            cells = p.cells.count(counts)
            cuts, numbers = _pieces(p, _Nested(p, cells))
            ends = np.exp(-float(epsilon) / 24 * (np.array([*cuts, np.inf]) - cuts[0]))
            misfits = p.misfit(all_histograms(6, 12), cells) - cuts[0]
            kept = np.exp(-float(epsilon) / 24 * misfits).sum()
            drawn = -np.diff(ends) @ np.array([float(number) for number in numbers])
            assert kept <= drawn <= 1.01 * math.e * kept

    def test_histograms_too_many_to_write_down_are_drawn_by_layers(self) -> None:
        queries = [dyadic(0, j, 5) for j in range(1, 20)]
        p = PrefixPlan(of_prefixes(queries, 5), Fraction(1), 20)
        counts, noise = np.array([500] * 20 + [0] * 12), QuickNoise(3)
        assert p.n_histograms > 10**10
        histogram = p.measure(counts, noise)
        assert histogram.sum() == 20
        truth = np.arange(1, 20) / 20
        assert np.abs(shares(p, histogram) - truth).max() < p.error(10_000, 1e-6)
        with pytest.raises(ValueError, match="too many"):
            enumerated(p, p.cells.count(counts), noise)

    def test_queries_that_overlap_are_not_drawn_by_layers(self) -> None:
        assert not OVERLAPPING.cells.nested
        assert OVERLAPPING.measure(ROWS, QuickNoise(4)).sum() == 3
        with pytest.raises(ValueError, match="overlap"):
            layered(OVERLAPPING, OVERLAPPING.cells.count(ROWS), QuickNoise(4))


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=5))
def test_nested_is_what_any_two_sides_say(masks: list[list[bool]]) -> None:
    cells = BatchConditions(np.array(masks))
    sides = [{*np.flatnonzero(side)} for side in cells.sides]
    pairs = itertools.combinations(sides, 2)
    assert cells.nested == all(a <= b or b <= a or not a & b for a, b in pairs)


def test_the_error_promised_is_kept() -> None:
    p = plan()
    weights, err = law(p, DATA), errors(p, DATA)
    for failure in (0.3, 0.05, 0.001):
        assert weights[err > p.error(100, failure)].sum() <= failure


@pytest.mark.parametrize("m", [1, 2, 5])
def test_some_histogram_of_nested_queries_is_within_a_row(m: int) -> None:
    """Of any data, however they fall between whole rows; without the rounding it would not be."""
    queries = [{"0"}, {"00"}, {"01"}, {"10"}, {"110"}, {"0", "10"}]
    p = PrefixPlan(of_prefixes(queries, 3), Fraction(1), m)
    assert p.cells.nested
    random = np.random.default_rng(1)
    for _ in range(200):
        cells = p.cells.count(random.multinomial(97, random.dirichlet(np.full(8, 0.5))))
        best = p.misfit(all_histograms(p.cells.n_cells, m), cells).min() / (97 * m)
        assert best < 1 / m
    assert p.error(10**12, 0.01) == pytest.approx(1 / m, rel=1e-6)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="a row for each query"):
        BatchConditions(np.zeros((0, 3), dtype=np.bool_))
    with pytest.raises(ValueError):
        PrefixPlan(THRESHOLDS, Fraction(1), 0)
    with pytest.raises(ValueError, match="too many rows"):
        plan().misfit(np.zeros((1, 6), dtype=np.int64), np.full(6, 2**60))
