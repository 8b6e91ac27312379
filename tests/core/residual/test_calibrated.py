"""The calibrated profile through the interface that the pipeline uses."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from stream_dp.core.budget.accountant import UNITS, Charge, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look, Mechanism, Release
from stream_dp.core.outcome import (
    Answered,
    Difficulty,
    Outcome,
    Path,
    RefusalCode,
    Refused,
    TableAnswered,
)
from stream_dp.core.queries.query import EVERYTHING, NOTHING, LinearQuery, Predicate, Total
from stream_dp.core.randomness.noise_sources import Kind, NoiseSource, grid_sigma
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import conjunctions_log
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.table_looks import (
    CountsLook,
    CountsRelease,
    Part,
    TablesLook,
    TablesRelease,
)
from stream_dp.core.residual.plan.planner import MOST_DRAWN
from stream_dp.core.residual.plan.sum_price import MOST_ROWS
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Category, Number, Rows, Universe
from stream_dp.errors import BudgetExceeded, CorruptState, InvalidDefinition
from tests.noise import FakeNoise, RoundedNoise

SIZES = (6, 3, 4, 5)
UNIVERSE = Universe(
    tuple(
        Category(f"a{i}", tuple(str(v) for v in range(n)), other=False) for i, n in enumerate(SIZES)
    )
)
PRIVACY = Privacy(1.0, 1e-9)


def make(error: float = 0.02, **options: object) -> Calibrated:
    return Calibrated(UNIVERSE, PRIVACY, Accuracy(error, 0.01), CalibratedSettings(**options))  # type: ignore[arg-type]


def rows(n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    columns = [(n_cells * rng.random(n) ** 1.7).astype(np.uint8) for n_cells in SIZES]
    return Rows(tuple(columns), None)


class Host:
    """What the pipeline does: charge, look, absorb, conclude; keeps what it would store."""

    def __init__(self, mechanism: Calibrated, noise: NoiseSource) -> None:
        self.mechanism = mechanism
        self.noise = noise
        self.data = Blocks(UNIVERSE)
        self.transcript: list[int | bytes] = []
        self.charges: list[Charge] = []
        self.verified: dict[bytes, bytes] = {}
        self.looks: list[Look] = []

    def open(self, n: int, seed: int) -> None:
        self.data.append(Block.seal(UNIVERSE, rows(n, seed)))
        self.transcript.append(n)
        for look in self.mechanism.open_phase(n):
            self.take(look)

    def take(self, look: Look) -> Release:
        json.dumps(look.description)
        look.reserve(self.noise)
        self.charges += look.charges
        self.mechanism.charged(look.charges)
        stored = look.take(self.noise, self.data).to_bytes()
        self.transcript.append(stored)
        self.looks.append(look)
        release = self.mechanism.release_from_bytes(stored)
        self.mechanism.absorb(release)
        return release

    def ask(self, query: LinearQuery) -> Outcome:
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            step = self.mechanism.conclude(query, step, self.take(step))
        self.verified |= self.mechanism.remembered()
        return step

    def restarted(self, **options: object) -> Host:
        """A new process that knows only what was stored."""
        other = Host(
            make(
                self.mechanism.state.promise.accuracy.error,
                base_share=self.mechanism.state.settings.base_share,
                pacing=self.mechanism.state.spending.allocator._pacing,
                **options,
            ),
            RoundedNoise(99),
        )
        other.data = self.data
        for entry in self.transcript:
            if isinstance(entry, int):
                other.mechanism.open_phase(entry)
            else:
                other.mechanism.absorb(other.mechanism.release_from_bytes(entry))
        total = Counter[int]()
        for charge in self.charges:
            total[charge.block] += charge.rho
        other.mechanism.charged(tuple(Charge(b, rho) for b, rho in total.items()))
        other.mechanism.recall(self.verified)
        return other

    def truth(self, query: LinearQuery) -> npt.NDArray[np.int64]:
        predicate = query.predicate
        every = tuple(range(len(SIZES)))
        counts = self.data.marginal(every, query.window).sum(axis=0)
        shape = [n if a in predicate.attributes else 1 for a, n in enumerate(SIZES)]
        counts = np.where(predicate.mask.reshape(shape), counts, 0)
        kept = sorted(query.group_by)
        counts = counts.sum(axis=tuple(a for a in every if a not in kept))
        return np.asarray(counts.transpose([kept.index(a) for a in query.group_by]).reshape(-1))


def host(
    n_phases: int = 1, *, n: int = 20_000, seed: int = 1, noise_seed: int = 2, **options: object
) -> Host:
    made = Host(make(**options), RoundedNoise(noise_seed))  # type: ignore[arg-type]
    for phase in range(n_phases):
        made.open(n, seed + phase)
    return made


def conjunction(rng: np.random.Generator, size: int | None = None) -> Predicate:
    size = int(rng.integers(1, 4)) if size is None else size
    factors = {}
    for a in rng.choice(len(SIZES), size, replace=False).tolist():
        factor = np.zeros(SIZES[a], dtype=np.bool_)
        factor[rng.choice(SIZES[a], rng.integers(1, SIZES[a]), replace=False)] = True
        factors[a] = factor
    return Predicate.conjunction(factors)


def stream(seed: int, n: int, n_phases: int) -> list[LinearQuery]:
    """Conjunctions, their complements, any masks, and tables, on windows of all lengths."""
    rng = np.random.default_rng(seed)
    queries = []
    for i in range(n):
        predicate = conjunction(rng)
        group_by: tuple[int, ...] = ()
        if i % 4 == 1:
            predicate = Predicate.of_mask(predicate.attributes, ~predicate.mask)
        elif i % 4 == 2:
            attributes = tuple(sorted(rng.choice(4, 2, replace=False).tolist()))
            predicate = Predicate.of_mask(
                attributes, rng.random([SIZES[a] for a in attributes]) < 0.5
            )
        elif i % 4 == 3:
            group_by = tuple(rng.choice(4, rng.integers(1, 3), replace=False).tolist())
        first = int(rng.integers(n_phases))
        queries.append(LinearQuery(predicate, range(first, n_phases), group_by))
    return queries


# ---------------------------------------------------------------- fresh answers


def fresh(query: LinearQuery) -> LinearQuery:
    return replace(query, fresh=True)


@pytest.mark.parametrize("group_by", [(), (2, 0)], ids=["a count", "a table"])
def test_a_fresh_answer_is_its_own_look_and_no_memory_enters_it(group_by: tuple[int, ...]) -> None:
    """Two data sets that know different things give the same look and the same answer."""
    predicate = Predicate.conjunction({0: np.arange(6) < 3, 1: np.arange(3) < 2})
    query = LinearQuery(predicate, range(2), group_by)
    unaware, aware = (host(2, error=0.02, base_share=share) for share in (0.0, 0.4))
    for seen in stream(3, 40, 2):
        aware.ask(seen)
    looks = []
    for it in (unaware, aware):
        it.noise = RoundedNoise(5)
        spent = len(it.charges)
        outcome = it.ask(fresh(query))
        look = it.looks[-1]
        assert isinstance(look, CountsLook)
        assert look.description["fresh"] is True
        assert it.charges[spent:] == list(look.charges)
        assert isinstance(outcome, Answered | TableAnswered)
        cells = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
        release = it.mechanism.release_from_bytes(it.transcript[-1])  # type: ignore[arg-type]
        assert isinstance(release, CountsRelease)
        truth, counts = it.truth(query), release.values.sum(axis=0)
        bar = two_sided(math.log(0.01)) * math.sqrt(
            sum(float(grid_sigma(step)) ** 2 for _, step in look.steps)
        )
        for cell, exact, count in zip(cells, truth, counts, strict=True):
            assert cell.path is Path.MEASURED
            if exact:  # a cell that the condition excludes is 0
                assert (cell.error_bar_simultaneous, cell.error_bar_anytime) == (None, None)
                assert cell.count == min(max(count, 0), cell.n)
                assert cell.error_bar == pytest.approx(bar / cell.n, rel=1e-9)
                assert 0.9 * 0.02 < (cell.error_bar or 0.0) <= 0.02 * (1 + 1e-6)
        looks.append((look, outcome))
    assert looks[0] == looks[1]


def test_a_fresh_answer_is_charged_every_time_and_enters_no_memory() -> None:
    """Whatever is asked afterwards is decided and answered as if it had not been asked."""
    query = LinearQuery(conjunction(np.random.default_rng(4), 2), range(2))
    asked, other = host(2, base_share=0.05), host(2, base_share=0.05)
    prices = []
    for _ in range(3):
        quote = asked.mechanism.quote(fresh(query))
        before = len(asked.charges)
        asked.ask(fresh(query))
        prices.append(tuple(asked.charges[before:]))
        assert prices[-1] == quote.charges
    assert prices[0]
    assert prices[0] == prices[1] == prices[2]
    for it in (asked, other, asked.restarted()):
        it.noise = RoundedNoise(7)
    again = asked.restarted()
    again.noise = RoundedNoise(7)
    for later in [query, complement(query), *stream(8, 40, 2)]:
        expected = other.ask(later)
        assert asked.ask(later) == expected
        assert again.ask(later) == expected


def test_a_fresh_answer_that_no_line_can_pay_for_is_refused_and_what_is_certain_is_free() -> None:
    it = host(1, error=0.002, on_exhausted="unverified")
    query = LinearQuery(conjunction(np.random.default_rng(4), 2), range(1))
    outcome: Outcome = it.ask(fresh(query))
    while isinstance(outcome, Answered):
        outcome = it.ask(fresh(query))
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.BUDGET_EXHAUSTED
    assert it.mechanism.quote(fresh(query)).outcome == outcome
    spent = list(it.charges)
    certain = it.ask(LinearQuery(EVERYTHING, range(1), fresh=True))
    assert isinstance(certain, Answered)
    assert (certain.count, certain.error_bar) == (20_000.0, 0.0)
    assert it.charges == spent


def test_a_fresh_answer_costs_one_count_of_the_noise_that_the_error_allows() -> None:
    """A seventh of a hundredth of a line for 2% of 20,000 rows; scales are those of the public grid."""
    it = host(1, error=0.02)
    query = LinearQuery(conjunction(np.random.default_rng(4), 2), range(1))
    (charge,) = it.mechanism.quote(fresh(query)).charges
    sigma = 0.02 * 20_000 / two_sided(math.log(0.01))
    rho = float(it.mechanism.state.promise.budget.rho)
    least = 1 / (2 * sigma**2) / rho
    assert least == pytest.approx(0.00138, rel=0.01)
    assert least <= charge.rho / UNITS < 1.1 * least


def test_a_fresh_answer_has_an_error_and_a_price_of_its_own_and_its_quote_says_its_bar() -> None:
    it = host(2, error=0.02)
    query = fresh(LinearQuery(conjunction(np.random.default_rng(4), 2), range(2)))
    sharper = replace(query, target=Target(share=0.01))
    for asked, error in ((query, 0.02), (sharper, 0.01)):
        quote = it.mechanism.quote(asked)
        assert quote.error_bar is not None
        outcome = it.ask(asked)
        assert isinstance(outcome, Answered)
        assert outcome.error_bar == pytest.approx(quote.error_bar, rel=1e-9)
        assert 0.9 * error < quote.error_bar <= error * (1 + 1e-6)
    refused = it.ask(replace(query, target=Target(share=0.01, at_most=1e-6)))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    with pytest.raises(ValueError, match="known beforehand"):
        replace(query, target=Target(relative=0.05))


# ---------------------------------------------------------------- answers


def complement(query: LinearQuery) -> LinearQuery:
    return LinearQuery(query.predicate.complement, query.window)


@pytest.mark.parametrize("size", [1, 2, 3, None], ids=["one", "two", "three", "any"])
@pytest.mark.parametrize("first_is_complement", [False, True])
def test_what_a_query_leaves_out_is_known_once_it_was_measured(
    size: int | None, first_is_complement: bool
) -> None:
    """The number of rows is public: the complement is mirrored, free, as sure, and survives a restart."""
    rng = np.random.default_rng(4)
    it = host(2, error=0.003, base_share=0.0)
    predicate = conjunction(rng, size)
    if size is None:
        predicate = Predicate.of_mask((0, 2), rng.random((SIZES[0], SIZES[2])) < 0.5)
    first = LinearQuery(predicate, range(2))
    other = complement(first)
    if first_is_complement:
        first, other = other, first
    answer = it.ask(first)
    assert isinstance(answer, Answered)
    assert answer.path is Path.MEASURED
    spent = list(it.charges)
    for one in (it.restarted(), it):
        mirrored = one.ask(other)
        assert isinstance(mirrored, Answered)
        assert mirrored.path is Path.CERTIFIED
        assert mirrored.count == pytest.approx(40_000 - answer.count, abs=1e-6)
        assert mirrored.error_bar is not None
        assert mirrored.error_bar <= (answer.error_bar or 0.0)
    assert it.charges == spent


def test_counts_of_both_sides_are_combined() -> None:
    """Earlier releases paid for both: each is evidence about either."""
    it = host(1, error=0.003, base_share=0.0)
    query = LinearQuery(conjunction(np.random.default_rng(4), 2), range(1))
    evidences = []
    for one in (query, complement(query)):
        look = CountsLook(one, one.attributes, ((0, 500),), 1, ())
        it.take(look)
        evidences.append(it.mechanism.state.evidence(query))
    before, after = evidences
    assert after.variances == pytest.approx(before.variances / 2.0)
    mirrored = it.mechanism.state.evidence(complement(query))
    assert mirrored.values == pytest.approx(20_000 - after.values)
    assert mirrored.variances == pytest.approx(after.variances)


def test_it_is_a_mechanism() -> None:
    mechanism: Mechanism = make()
    assert mechanism.opens(20, 20)
    assert not mechanism.opens(19, 20)


@pytest.mark.parametrize("error", [0.05, 0.01, 0.003])
def test_answers_keep_their_promise_and_say_how_they_came_about(error: float) -> None:
    """All promised answers at once are judged by what a hundredth of them may do."""
    it = host(3, error=error, queries_per_phase=1000)
    promised = missed = outside = 0
    paths = Counter[Path]()
    for query in stream(7, 300, 3):
        outcome = it.ask(query)
        assert isinstance(outcome, Answered | TableAnswered)
        paths[outcome.path] += 1
        cells = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
        truth = it.truth(query)
        assert len(cells) == len(truth)
        for cell, exact in zip(cells, truth, strict=True):
            assert 0.0 <= cell.count <= cell.n
            assert cell.path is outcome.path
            assert cell.path.difficulty is (
                Difficulty.HARD if cell.path is Path.MEASURED else Difficulty.EASY
            )
            if cell.path is Path.UNVERIFIED:
                continue
            assert cell.error_bar is not None
            assert cell.error_bar_simultaneous is not None
            assert cell.error_bar <= error * (1 + 1e-6)
            assert cell.error_bar <= cell.error_bar_simultaneous
            promised += 1
            missed += abs(cell.count - exact) > error * cell.n
            outside += abs(cell.count - exact) > cell.error_bar * cell.n + 1e-6
    assert promised > 300
    assert missed <= 0.02 * promised
    assert outside <= 0.02 * promised
    assert paths[Path.MEASURED]


@pytest.mark.parametrize("error", [0.02, 0.01, 0.003])
def test_a_simultaneous_bar_reaches_from_the_answer_over_all_that_its_statement_allows(
    error: float,
) -> None:
    """Also where bounds moved the answer off the best estimate, or a count of its own moved that.

    About any predicates the statement is one about tables, whose errors have no part in the number of
    rows: a degree of freedom less than cells, however much was counted besides.
    """
    it = host(2, error=error, base_share=0.05)
    half = 0.01 / 2.0
    n_of_any_predicate = 0
    for query in stream(11, 300, 2):
        outcome = it.ask(query)
        if not isinstance(outcome, Answered) or not 0.0 < outcome.count < outcome.n:
            continue
        if outcome.path is Path.REPEAT:
            continue
        state = it.mechanism.state
        evidence = state.at_opening(query) or state.evidence(query)
        sizes = tuple(SIZES[a] for a in evidence.form.attributes)
        allowed: list[float] = [outcome.n]
        if evidence.form.conjunctive:
            log_failure = math.log(half) - conjunctions_log(sizes)
            z, centre, variance = two_sided(log_failure), evidence.values, evidence.variances
            if outcome.path in {Path.BOUNDED, Path.UNVERIFIED}:
                (low,), (high,) = evidence.interval(log_failure)
                allowed.append(max(high - outcome.count, outcome.count - low))
        else:
            z = math.sqrt(chi2.isf(half, math.prod(sizes) - 1))
            centre, variance = evidence.by_tables()
            n_of_any_predicate += 1
        allowed.append(abs(outcome.count - centre.item()) + z * math.sqrt(variance.item()))
        if outcome.path in {Path.CERTIFIED, Path.MEASURED}:
            assert outcome.error_bar is not None
            allowed = [outcome.n, max(*allowed[1:], outcome.error_bar * outcome.n)]
        if outcome.error_bar_simultaneous is not None:
            reach = outcome.error_bar_simultaneous * outcome.n
            assert reach == pytest.approx(min(allowed), rel=1e-6)
    assert n_of_any_predicate > 50


def test_a_repeat_is_the_same_answer_for_free() -> None:
    it = host(2)
    for query in stream(3, 60, 2):
        first = it.ask(query)
        spent = list(it.charges)
        again = it.ask(query)
        assert isinstance(first, Answered | TableAnswered)
        assert isinstance(again, Answered | TableAnswered)
        assert again.path is Path.REPEAT
        assert _numbers(again) == _numbers(first)
        assert it.charges == spent


@pytest.mark.parametrize("group_by", [(), (1,)], ids=["a count", "a table"])
def test_a_repeat_answers_with_the_smallest_bar_that_is_known_by_then(
    group_by: tuple[int, ...],
) -> None:
    """Tables that others measured say more by now; a repeat gets that for nothing, and remembers it."""
    it = host(2, error=0.02, base_share=0.0)
    factors = {0: np.arange(SIZES[0]) < 2, 2: np.arange(SIZES[2]) < 1}
    query = LinearQuery(Predicate.conjunction(factors), range(2), group_by)
    first = it.ask(query)
    again = it.ask(query)
    assert isinstance(again, Answered | TableAnswered)
    assert again.path is Path.REPEAT
    assert _numbers(again) == _numbers(first)
    attributes = (0, 1, 2)
    shape = tuple(SIZES[a] for a in attributes)
    parts = tuple(Part(attributes, block, 40) for block in range(2))
    it.take(TablesLook("query", parts, (shape, shape), ()))
    spent = list(it.charges)
    for one in (it.restarted(), it):
        better = one.ask(query)
        assert isinstance(better, Answered | TableAnswered)
        assert better.path is Path.CERTIFIED
        evidence = one.mechanism.state.evidence(query)
        cells = better.cells if isinstance(better, TableAnswered) else (better,)
        before = first.cells if isinstance(first, TableAnswered) else (first,)
        (bar,) = evidence.anytime(0.02 * cells[0].n, 0.01).tolist()
        for cell, old, value in zip(cells, before, evidence.values, strict=True):
            assert isinstance(old, Answered)
            assert cell.count == pytest.approx(value)
            assert cell.error_bar == pytest.approx(bar / cell.n, rel=1e-6)
            assert (cell.error_bar or 1.0) < (old.error_bar or 0.0)
        again = one.ask(query)
        assert isinstance(again, Answered | TableAnswered)
        assert again.path is Path.REPEAT
        assert _numbers(again) == _numbers(better)
        restarted = it.restarted().ask(query)
    assert _numbers(restarted) == _numbers(better)
    assert it.charges == spent


def test_a_repeat_gets_better_by_tables_that_share_an_attribute_with_it_and_by_no_others() -> None:
    it = host(1, error=0.02, base_share=0.0)

    def publish(attributes: tuple[int, ...], step: int) -> None:
        shape = tuple(SIZES[a] for a in attributes)
        it.take(TablesLook("query", (Part(attributes, 0, step),), (shape,), ()))

    publish((0, 1, 2), 150)
    factors = {0: np.arange(SIZES[0]) < 1, 2: np.arange(SIZES[2]) < 1}
    query = LinearQuery(Predicate.conjunction(factors), range(1))
    first = it.ask(query)
    for attributes, path in (
        ((1,), Path.REPEAT),
        ((0, 1, 2), Path.CERTIFIED),
        ((1,), Path.REPEAT),
        ((0, 2), Path.CERTIFIED),
    ):
        publish(attributes, 40)
        again = it.ask(query)
        assert isinstance(first, Answered)
        assert isinstance(again, Answered)
        assert again.path is path
        assert (again == replace(first, path=path)) is (path is Path.REPEAT)
        first = again


@pytest.mark.parametrize("group_by", [(), (0,)], ids=["a count", "a table"])
def test_what_openings_answer_stays_as_it_is_whatever_is_measured_later(
    group_by: tuple[int, ...],
) -> None:
    """So nobody can steer it. Who asks for less than the data set's error gets what is known by now."""
    it = host(2, error=0.02, base_share=0.3)
    factors = {} if group_by else {0: np.arange(SIZES[0]) < 2}
    predicate = Predicate.conjunction(factors) if factors else EVERYTHING
    query = LinearQuery(predicate, range(2), group_by)
    first = it.ask(query)
    deviation = math.sqrt(float(it.mechanism.state.evidence(query).variances.max()))
    bars = [bar for _, bar, _ in _numbers(first)]
    assert bars == pytest.approx([norm.isf(0.01 / 2) * deviation / 40_000] * len(bars), rel=1e-6)
    shape, parts = (SIZES[0],), tuple(Part((0,), block, 40) for block in range(2))
    it.take(TablesLook("query", parts, (shape, shape), ()))
    for one in (it, it.restarted()):
        assert _numbers(one.ask(query)) == _numbers(first)
        finer = one.ask(replace(query, target=Target(share=bars[0] or 1.0)))
        assert max(bar or 1.0 for _, bar, _ in _numbers(finer)) <= (bars[0] or 0.0) * (1 + 1e-9)
        smaller = one.ask(replace(query, target=Target(share=0.9 * (bars[0] or 1.0))))
        evidence = one.mechanism.state.evidence(query)
        assert [count for count, _, _ in _numbers(smaller)] == pytest.approx(evidence.values)


def test_a_bar_for_all_times_surrounds_what_is_known_wherever_the_answer_lies() -> None:
    """The plain bar is not wider, and repeats keep theirs."""
    it = host(2, error=0.02, base_share=0.05)
    found = Counter[str]()
    for query in stream(11, 200, 2):
        first = it.ask(query)
        if not isinstance(first, Answered) or first.error_bar_anytime in {None, 1.0}:
            continue
        if not 0.0 < first.count < first.n or first.path is Path.REPEAT:
            continue
        state = it.mechanism.state
        evidence = state.evidence(query)
        (bar,) = evidence.anytime(0.02 * first.n, 0.01).tolist()
        reach = (abs(first.count - evidence.values.item()) + bar) / first.n
        kind = first.path.value
        if state.at_opening(query) is not None:
            kind, reach = "opening", first.error_bar or math.nan
        found[kind] += 1
        assert first.error_bar_anytime == pytest.approx(reach, rel=1e-6)
        assert first.error_bar is not None
        if first.path is Path.MEASURED:
            assert first.error_bar == 0.02  # exactly, floats and all
        assert first.path is Path.BOUNDED or first.error_bar <= first.error_bar_anytime
        again = it.ask(query)
        assert isinstance(again, Answered)
        assert again.error_bar_anytime == first.error_bar_anytime
    assert found["opening"]
    assert found["certified"]
    assert found["measured"]


def _numbers(outcome: Outcome) -> list[tuple[float, float | None, float | None]]:
    assert isinstance(outcome, Answered | TableAnswered)
    cells = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
    return [(c.count, c.error_bar, c.error_bar_simultaneous) for c in cells]


def test_two_spellings_of_one_predicate_are_one_query() -> None:
    it = host()
    factor = np.arange(6) < 2
    spelt_as_mask = Predicate.of_mask((0, 1), np.repeat(factor[:, None], 3, axis=1))
    first = it.ask(LinearQuery(Predicate.conjunction({0: factor}), range(1)))
    again = it.ask(LinearQuery(spelt_as_mask, range(1)))
    assert isinstance(again, Answered)
    assert again.path is Path.REPEAT
    assert _numbers(again) == _numbers(first)


def test_everything_and_nothing_are_known_exactly() -> None:
    it = host(2)
    for predicate, count in [(EVERYTHING, 40_000.0), (NOTHING, 0.0)]:
        outcome = it.ask(LinearQuery(predicate, range(2)))
        assert isinstance(outcome, Answered)
        assert (outcome.count, outcome.error_bar, outcome.path) == (count, 0.0, Path.CERTIFIED)
    table = it.ask(LinearQuery(NOTHING, range(2), (1,)))
    assert isinstance(table, TableAnswered)
    assert [c.count for c in table.cells] == [0.0] * 3


def test_a_table_lists_its_cells_in_the_order_asked() -> None:
    it = host(error=0.002, pacing=False)
    condition = Predicate.conjunction({0: np.arange(6) < 3})
    table = it.ask(LinearQuery(condition, range(1), (2, 0)))
    assert isinstance(table, TableAnswered)
    assert table.shape == (4, 6)
    truth = it.truth(LinearQuery(condition, range(1), (2, 0))).reshape(4, 6)
    counts = np.array([c.count for c in table.cells]).reshape(4, 6)
    np.testing.assert_allclose(counts, truth, atol=0.004 * 20_000)
    assert (counts[:, 3:] == 0.0).all(), "cells that the condition excludes are known"


def test_a_query_pays_only_on_the_blocks_of_its_window() -> None:
    it = host(5, error=0.005)
    before = [it.mechanism.spent_share(range(b, b + 1)) for b in range(5)]
    for query in stream(5, 40, 5):
        inside = LinearQuery(query.predicate, range(2, 4), query.group_by)
        it.ask(inside)
    after = [it.mechanism.spent_share(range(b, b + 1)) for b in range(5)]
    assert [a > b for a, b in zip(after, before, strict=True)] == [False, False, True, True, False]


def test_counts_paid_for_earlier_windows_are_used_again() -> None:
    """A query asked each month pays for the new month, not for the history again."""
    it = host(3, error=0.003, base_share=0.0)
    predicate = conjunction(np.random.default_rng(1), 3)
    it.ask(LinearQuery(predicate, range(3)))
    it.open(20_000, 9)
    step = it.mechanism.answer(LinearQuery(predicate, range(4)))
    assert isinstance(step, CountsLook)
    assert {block for block, _ in step.steps} == {3}


def test_before_the_first_phase_and_beyond_the_last_there_is_no_answer() -> None:
    mechanism = make()
    query = LinearQuery(EVERYTHING, range(1))
    for _ in range(2):
        outcome = mechanism.answer(query)
        assert isinstance(outcome, Refused)
        assert outcome.code is RefusalCode.NO_PHASE
        query = LinearQuery(EVERYTHING, range(2))
        mechanism.open_phase(10)


def test_too_many_cells_are_refused_before_any_work() -> None:
    wide = Universe(
        tuple(Category(f"a{i}", tuple(map(str, range(200))), other=False) for i in range(4))
    )
    mechanism = Calibrated(wide, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0))
    mechanism.open_phase(1000)
    one = np.arange(200) < 1
    outcome = mechanism.answer(
        LinearQuery(Predicate.conjunction(dict.fromkeys(range(4), one)), range(1))
    )
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.TOO_MANY_CELLS


def test_more_noise_than_is_drawn_at_once_is_refused_before_it_is_paid() -> None:
    """Large blocks have a table measured for a sum, each one; the pool would refuse, and end the worker."""
    numbers = Number("x", tuple(range(23)))
    wide = Universe(
        (
            numbers,
            Category("c", tuple(map(str, range(1024))), other=False),
        )
    )
    mechanism = Calibrated(wide, PRIVACY, Accuracy(0.05, 0.01), CalibratedSettings(base_share=0.0))
    blocks = MOST_DRAWN // wide.n_cells
    for _ in range(blocks + 1):
        mechanism.open_phase(2 * MOST_ROWS)
    half = Predicate.conjunction({1: np.arange(1024) < 512})
    total = Total(0, numbers.values)
    look = mechanism.answer(LinearQuery(half, range(1, blocks + 1), (), total))
    assert isinstance(look, TablesLook)
    every = LinearQuery(half, range(blocks + 1), (), total)
    for refused in (mechanism.answer(every), mechanism.quote(every).outcome):
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.TOO_MANY_CELLS


# ---------------------------------------------------------------- losses


class Witness(FakeNoise):
    """A noise source and data that check at every look that its charge was recorded before."""

    def __init__(self, watched: Host) -> None:
        self.host = watched
        self.data = watched.data
        self.drawn: list[tuple[Fraction, int]] = []
        self.read: list[tuple[tuple[int, ...], range]] = []
        self.looking: Look | None = None

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        assert self.looking is not None, "noise is drawn only inside a look"
        self.drawn.append((sigma, size))
        return RoundedNoise(0).gaussian(sigma, size)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        assert self.looking is None, "noise is drawn ahead of the charge"

    def discard(self) -> None:
        pass

    def marginal(self, attributes: tuple[int, ...], blocks: range) -> npt.NDArray[np.int64]:
        assert self.looking is not None, "the data is read only inside a look"
        charged = {charge.block for charge in self.looking.charges}
        assert set(blocks) <= charged, "a block is read only if its line was charged"
        self.read.append((attributes, blocks))
        return self.data.marginal(attributes, blocks)

    def tables(
        self, asked: Sequence[tuple[tuple[int, ...], int]]
    ) -> Iterator[npt.NDArray[np.int64]]:
        return (self.marginal(attributes, range(at, at + 1))[0] for attributes, at in asked)


def test_every_look_is_charged_before_it_is_taken_with_the_scale_that_is_drawn() -> None:
    """Charges are recomputed from the scales that the noise source saw, in exact fractions."""
    it = host(0, error=0.01)
    witness = Witness(it)
    rho = it.mechanism.state.promise.budget.rho

    def taken(look: Look) -> Release:
        look.reserve(witness)
        it.mechanism.charged(look.charges)
        witness.looking, witness.drawn = look, []
        release = look.take(witness, witness)  # type: ignore[arg-type]
        witness.looking = None
        it.mechanism.absorb(release)
        if isinstance(look, TablesLook):
            wanted = Counter[int]()
            for part, (sigma, size) in zip(look.parts, witness.drawn, strict=True):
                assert size == math.prod(SIZES[a] for a in part.attributes)
                exact = gaussian_rho(sigma, squared_sensitivity=2) / rho * UNITS
                wanted[part.block] += math.ceil(exact)
        else:
            assert isinstance(look, CountsLook)
            wanted = Counter()
            for (block, step), (sigma, size) in zip(look.steps, witness.drawn, strict=True):
                assert sigma == grid_sigma(step)
                assert size == look.n_answers
                squared = 1 if size == 1 else 2
                exact = gaussian_rho(sigma, squared_sensitivity=squared) / rho * UNITS
                wanted[block] += math.ceil(exact)
        assert {c.block: c.rho for c in look.charges} == wanted
        assert len({c.block for c in look.charges}) == len(look.charges)
        return release

    kinds = Counter[str]()
    for phase in range(3):
        it.data.append(Block.seal(UNIVERSE, rows(20_000, phase)))
        for look in it.mechanism.open_phase(20_000):
            taken(look)
        for query in stream(phase, 60, phase + 1):
            step = it.mechanism.answer(query)
            if isinstance(step, TablesLook | CountsLook):
                kinds[type(step).__name__] += 1
                release = taken(step)
                outcome = it.mechanism.conclude(query, step, release)
                assert isinstance(outcome, Answered | TableAnswered)
                assert outcome.path is Path.MEASURED
    assert witness.read
    assert min(kinds["TablesLook"], kinds["CountsLook"]) > 0


def test_a_row_that_moves_changes_a_look_by_no_more_than_it_is_charged_for() -> None:
    """Replace-one neighbours, without noise: squared distance at most 1 for a count, 2 for cells."""
    silent = RoundedNoise(0)
    silent.gaussian = lambda sigma, size: np.zeros(size, dtype=np.int64)  # type: ignore[method-assign]
    rng = np.random.default_rng(3)
    it = host(1, error=0.004, base_share=0.0, pacing=False)
    base = rows(300, 1)
    for query in stream(8, 60, 1):
        step = it.mechanism.answer(query)
        if not isinstance(step, TablesLook | CountsLook):
            continue
        row = int(rng.integers(300))
        moved = tuple(column.copy() for column in base.codes)
        for column, n in zip(moved, SIZES, strict=True):
            column[row] = rng.integers(n)
        values = []
        for content in (base, Rows(moved, None)):
            release = step.take(silent, Blocks(UNIVERSE, [Block.seal(UNIVERSE, content)]))
            if isinstance(release, CountsRelease):
                values.append(release.values.ravel())
                bound = 1 if release.values.size == 1 else 2
            else:
                values.append(np.concatenate([t.ravel() for t in release.tables]))
                bound = 2 * len(release.tables)
        assert np.square(values[0] - values[1]).sum() <= bound


@pytest.mark.parametrize("on_exhausted", ["unverified", "refuse"])
def test_an_exhausted_line_is_never_passed(on_exhausted: str) -> None:
    it = host(2, error=0.0015, on_exhausted=on_exhausted, pacing=False)
    outcomes = [it.ask(query) for query in stream(4, 250, 2)]
    left = [UNITS - sum(c.rho for c in it.charges if c.block == b) for b in range(2)]
    assert min(left) >= 0
    unproven = [o for o in outcomes if isinstance(o, Refused) or o.path is Path.UNVERIFIED]
    assert unproven
    if on_exhausted == "refuse":
        codes = {o.code for o in unproven if isinstance(o, Refused)}
        assert codes <= {RefusalCode.BUDGET_EXHAUSTED, RefusalCode.WINDOW_TOO_SMALL}
        assert len(unproven) == sum(isinstance(o, Refused) for o in outcomes)
    with pytest.raises(BudgetExceeded):
        it.mechanism.charged((Charge(0, left[0] + 1),))


def test_unverified_answers_are_not_remembered_and_still_say_what_they_know() -> None:
    it = host(1, error=0.0015, pacing=False)
    it.mechanism.charged((Charge(0, UNITS - it.charges[0].rho),))
    seen = 0
    for query in stream(2, 60, 1):
        outcome = it.ask(query)
        assert isinstance(outcome, Answered | TableAnswered)
        if outcome.path is not Path.UNVERIFIED:
            continue
        again = it.ask(query)
        assert isinstance(again, Answered | TableAnswered)
        assert again.path is Path.UNVERIFIED
        cells = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
        for cell, exact in zip(cells, it.truth(query), strict=True):
            seen += 1
            if cell.error_bar is not None:
                assert abs(cell.count - exact) <= cell.error_bar * cell.n * 1.5
    assert seen > 20


def test_a_window_that_is_too_small_for_the_promise_is_told_so() -> None:
    it = host(1, n=60, on_exhausted="refuse")
    outcome = it.ask(LinearQuery(conjunction(np.random.default_rng(0)), range(1)))
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.WINDOW_TOO_SMALL


def test_a_quote_is_exact_free_and_changes_nothing() -> None:
    it = host(3, error=0.008)
    for query in stream(6, 80, 3):
        quote = it.mechanism.quote(query)
        assert it.mechanism.quote(query) == quote
        step = it.mechanism.answer(query)
        if not isinstance(step, Look):
            assert quote.charges == ()
            assert quote.outcome == step
        else:
            assert quote.outcome is None
            assert quote.charges == step.charges
            it.mechanism.conclude(query, step, it.take(step))


def test_spent_is_the_worst_line_of_the_window_as_epsilon() -> None:
    it = host(2)
    it.mechanism.charged((Charge(1, UNITS - it.charges[1].rho),))
    assert it.mechanism.spent(range(2)) == pytest.approx(1.0, rel=1e-9)
    assert it.mechanism.spent(range(1)) < 0.7
    assert it.mechanism.spent_share(range(2)) == 1.0


# ---------------------------------------------------------------- public decisions and replay


def test_decisions_follow_from_what_was_published_and_from_nothing_else() -> None:
    """Other rows whose releases happen to coincide lead to the same decisions and answers."""
    one = host(2, error=0.006, seed=1)
    other = Host(make(error=0.006), RoundedNoise(2))
    for phase in range(2):
        other.data.append(Block.seal(UNIVERSE, rows(20_000, 50 + phase)))
        looks = other.mechanism.open_phase(20_000)
        for look, stored in zip(looks, one.transcript[2 * phase + 1 :: 2 * 2], strict=False):
            assert isinstance(stored, bytes)
            other.mechanism.charged(look.charges)
            other.mechanism.absorb(other.mechanism.release_from_bytes(stored))
    for query in stream(12, 150, 2):
        first, second = one.mechanism.answer(query), other.mechanism.answer(query)
        if isinstance(first, TablesLook | CountsLook):
            assert isinstance(second, TablesLook | CountsLook)
            assert second.description == first.description
            assert second.charges == first.charges
            release = one.take(first)
            other.mechanism.charged(second.charges)
            other.mechanism.absorb(release)
            assert one.mechanism.conclude(query, first, release) == other.mechanism.conclude(
                query, second, release
            )
        else:
            assert first == second


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_of_what_was_stored_answers_as_before(seed: int) -> None:
    it = host(2, error=0.006, seed=10 * seed)
    for query in stream(seed, 120, 2):
        it.ask(query)
    replayed = it.restarted()
    later = stream(seed, 120, 2)[::7] + stream(seed + 40, 80, 2)
    for query in later:
        assert replayed.mechanism.quote(query) == it.mechanism.quote(query)
    assert replayed.mechanism.spent(range(2)) == it.mechanism.spent(range(2))


def test_a_lost_look_keeps_its_charge_and_nothing_else() -> None:
    it = host(1, error=0.004)
    query = next(
        q for q in stream(1, 200, 1) if isinstance(it.mechanism.answer(q), TablesLook | CountsLook)
    )
    look = it.mechanism.answer(query)
    assert isinstance(look, TablesLook | CountsLook)
    it.mechanism.charged(look.charges)
    it.mechanism.lost(json.loads(json.dumps(look.description)))
    again = it.mechanism.answer(query)
    assert isinstance(again, TablesLook | CountsLook)
    assert again.description == look.description


def test_a_lost_base_release_is_taken_again_when_the_next_phase_opens() -> None:
    it = Host(make(), RoundedNoise(1))
    for phase in range(3):
        it.data.append(Block.seal(UNIVERSE, rows(20_000, phase)))
        looks = it.mechanism.open_phase(20_000)
        assert [{c.block for c in look.charges} for look in looks] == [[{0}], [{0}, {1}], [{2}]][
            phase
        ]
        if phase == 0:
            it.mechanism.charged(looks[0].charges)
            it.mechanism.lost(json.loads(json.dumps(looks[0].description)))
        else:
            for look in looks:
                it.take(look)
    assert it.mechanism.spent_share(range(1)) == 2 * it.mechanism.spent_share(range(2, 3))


def test_remembered_answers_are_handed_over_once() -> None:
    it = host(base_share=0.5)
    query = LinearQuery(Predicate.conjunction({0: np.arange(6) < 2}), range(1))
    it.mechanism.answer(query)
    first = it.mechanism.remembered()
    assert len(first) == 1
    assert it.mechanism.remembered() == {}
    it.mechanism.answer(query)
    assert it.mechanism.remembered() == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b"\x07" + b[1:],
        lambda b: b"",
        lambda b: b[:1] + b"\x09" + b[2:],
    ],
)
def test_damaged_releases_are_refused(damage: Callable[[bytes], bytes]) -> None:
    it = host(1, error=0.004)
    for query in stream(1, 60, 1):
        it.ask(query)
    stored = [entry for entry in it.transcript if isinstance(entry, bytes)]
    assert len({entry[1] for entry in stored}) == 3, "all kinds of release"
    for entry in stored:
        assert it.mechanism.release_from_bytes(entry).to_bytes() == entry
        with pytest.raises(CorruptState):
            it.mechanism.release_from_bytes(damage(entry))


def test_releases_stored_by_version_one_are_read_for_ever() -> None:
    small = Universe(
        tuple(
            Category(f"a{i}", tuple(str(v) for v in range(n)), other=False)
            for i, n in enumerate((2, 3, 4))
        )
    )
    mechanism = Calibrated(small, PRIVACY, Accuracy(0.02, 0.01))
    tables = mechanism.release_from_bytes(
        bytes.fromhex(
            "010102000000020000010003000000a00000000100000000000000feffffffffffffff0300000000000000"
            "04000000000000000500000000000000faffffffffffffff01020004000000fbffffff0700000000000000"
            "080000000000000009000000000000000000000000010000"
        )
    )
    assert isinstance(tables, TablesRelease)
    assert tables.parts == (Part((0, 1), 3, 160), Part((2,), 4, -5))
    assert [t.tolist() for t in tables.tables] == [[[1, -2, 3], [4, 5, -6]], [7, 8, 9, 2**40]]
    counts = mechanism.release_from_bytes(
        bytes.fromhex(
            "0102000102030405060708090a0b0c0d0e0f020000000100000002000002000300000064000000040000"
            "00650000000500000000000000faffffffffffffff"
        )
    )
    assert isinstance(counts, CountsRelease)
    assert (counts.key, counts.attributes) == (bytes(range(16)), (0, 2))
    assert counts.steps == ((3, 100), (4, 101))
    assert counts.values.tolist() == [[5], [-6]]


def test_a_release_is_as_long_as_its_look_says_whatever_it_holds() -> None:
    lengths = []
    for seed in (1, 77):
        it = host(2, seed=seed)
        lengths.append([len(entry) for entry in it.transcript if isinstance(entry, bytes)])
    assert lengths[0] == lengths[1]


def test_no_repr_shows_what_was_drawn_or_counted() -> None:
    it = host(1, error=0.004)
    for query in stream(1, 30, 1):
        it.ask(query)
    release = it.mechanism.release_from_bytes(
        next(entry for entry in it.transcript[::-1] if isinstance(entry, bytes))
    )
    for thing in (it.mechanism, release, *it.looks):
        text = repr(thing)
        assert "array(" not in text
        assert "values" not in text


def test_definitions_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"privacy\.delta"):
        Calibrated(UNIVERSE, Privacy(1.0, 0.0), Accuracy(0.02, 0.01))
    with pytest.raises(InvalidDefinition, match=r"mechanism\.base_share"):
        make(base_share=1.5)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_any_stream_of_queries_is_answered_without_error(seed: int) -> None:
    it = host(3, error=0.01, noise_seed=seed % 1000)
    for query in stream(seed, 25, 3):
        assert isinstance(it.ask(query), Answered | TableAnswered)


@pytest.mark.parametrize(
    "query",
    [
        LinearQuery(conjunction(np.random.default_rng(3), 2), range(1)),
        LinearQuery(EVERYTHING, range(1), (0, 2)),
    ],
    ids=["count", "table"],
)
def test_what_a_fresh_answer_has_found_enters_no_memory(query: LinearQuery) -> None:
    """Theorem 16 (b): otherwise somebody could choose noise by asking fresh again."""
    made = host(n=200_000)
    state = made.mechanism.state
    before = state.evidence(query)
    n_looks = len(made.looks)
    made.ask(replace(query, fresh=True))
    assert len(made.looks) == n_looks + 1
    after = state.evidence(query)
    np.testing.assert_array_equal(after.values, before.values)
    np.testing.assert_array_equal(after.variances, before.variances)
