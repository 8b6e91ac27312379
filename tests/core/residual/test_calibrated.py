"""The calibrated profile through the interface that the pipeline uses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2, norm

from stream_dp.core.budget.accountant import UNITS, Charge, gaussian_rho
from stream_dp.core.budget.parameters import Privacy, Target
from stream_dp.core.mechanism import Look, Release
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
from stream_dp.core.randomness.noise_sources import Kind, grid_sigma
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import conjunctions_log
from stream_dp.core.residual.looks.table_looks import (
    CountsLook,
    CountsRelease,
    Part,
    TablesLook,
    variance_of,
)
from stream_dp.core.residual.plan.planner import MOST_DRAWN
from stream_dp.core.residual.plan.sum_price import MOST_ROWS
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import BudgetExceeded, CorruptState, InvalidDefinition
from tests.core.residual.host import (
    SIZES,
    UNIVERSE,
    Host,
    aimed,
    cells,
    conjunction,
    names,
    opened,
    rows,
    sealed,
    stream,
    where,
)
from tests.noise import FakeNoise, RoundedNoise

PAIR = conjunction(np.random.default_rng(4), 2)
ABOUT_TWO = {"a count": LinearQuery(PAIR, range(2)), "a table": LinearQuery(PAIR, range(2), (2, 0))}


def publish(it: Host, attributes: tuple[int, ...], step: int) -> None:
    """A table of each phase, for nothing."""
    shape = tuple(SIZES[a] for a in attributes)
    parts = tuple(Part(attributes, block, step) for block in it.window)
    it.take(TablesLook("query", parts, (shape,) * len(parts), ()))


def numbers(outcome: Outcome) -> list[tuple[float, float | None, float | None]]:
    return [(c.count, c.error_bar, c.error_bar_simultaneous) for c in cells(outcome)]


def complement(query: LinearQuery) -> LinearQuery:
    return LinearQuery(query.predicate.complement, query.window)


# ---------------------------------------------------------------- fresh answers


@pytest.mark.parametrize("kind", ABOUT_TWO)
def test_a_fresh_answer_is_its_own_look_and_no_memory_enters_it(kind: str) -> None:
    """Two data sets that know different things give the same look and the same answer."""
    query = replace(ABOUT_TWO[kind], fresh=True)
    unaware, aware = (opened(2, base_share=share) for share in (0.0, 0.4))
    aware.ask_all(stream(3, 40, 2))
    found = []
    for it in (unaware, aware):
        it.noise = RoundedNoise(5)
        outcome = it.ask(query)
        (look,), (release,) = it.looks, it.releases
        assert isinstance(look, CountsLook)
        assert look.description["fresh"] is True
        bar = two_sided(math.log(0.01)) * math.sqrt(variance_of(look.steps))
        counts = release.values.sum(axis=0)
        for cell, exact, count in zip(cells(outcome), it.exact(query), counts, strict=True):
            assert cell.path is Path.MEASURED
            if exact:  # a cell that the condition excludes is 0
                assert (cell.error_bar_simultaneous, cell.error_bar_anytime) == (None, None)
                assert cell.count == min(max(count, 0), cell.n)
                assert cell.error_bar == pytest.approx(bar / cell.n, rel=1e-9)
                assert 0.9 * 0.02 < cell.error_bar <= 0.02 * (1 + 1e-6)
        found.append((look, outcome))
    assert found[0] == found[1]


def test_a_fresh_answer_is_charged_every_time_and_enters_no_memory() -> None:
    """Theorem 16 (b): otherwise somebody could choose noise by asking fresh again.

    Whatever is asked afterwards is decided and answered as if it had not been asked.
    """
    query = ABOUT_TWO["a count"]
    asked, other = opened(2, base_share=0.05), opened(2, base_share=0.05)
    prices = []
    for kind in (*ABOUT_TWO, *ABOUT_TWO):
        fresh = replace(ABOUT_TWO[kind], fresh=True)
        quote = asked.mechanism.quote(fresh)
        asked.ask(fresh)
        (look,) = asked.looks
        assert look.charges == quote.charges
        prices.append(look.charges)
    assert prices[:2] == prices[2:]
    assert all(prices)
    again = asked.restarted()
    for it in (asked, other, again):
        it.noise = RoundedNoise(7)
    for later in [query, complement(query), *stream(8, 40, 2)]:
        expected = other.ask(later)
        assert asked.ask(later) == expected
        assert again.ask(later) == expected


def test_a_fresh_answer_that_no_line_can_pay_for_is_refused_and_what_is_certain_is_free() -> None:
    it = opened(error=0.002, on_exhausted="unverified")
    query = LinearQuery(PAIR, range(1), fresh=True)
    while isinstance(outcome := it.ask(query), Answered):
        pass
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.BUDGET_EXHAUSTED
    assert it.mechanism.quote(query).outcome == outcome
    certain = it.ask(LinearQuery(EVERYTHING, range(1), fresh=True))
    assert (certain.count, certain.error_bar) == (20_000.0, 0.0)
    assert not it.looks


def test_a_fresh_answer_has_an_error_and_a_price_of_its_own() -> None:
    """A seventh of a hundredth of a line for 2% of 20,000 rows; scales are those of the public grid."""
    it = opened()
    query = LinearQuery(PAIR, range(1), fresh=True)
    for asked, error in ((query, 0.02), (aimed(query, share=0.01), 0.01)):
        quote = it.mechanism.quote(asked)
        (charge,) = quote.charges
        sigma = error * 20_000 / two_sided(math.log(0.01))
        least = 1 / (2 * sigma**2) / float(it.state.promise.budget.rho)
        assert least == pytest.approx(0.00138 * (0.02 / error) ** 2, rel=0.01)
        assert least <= charge.rho / UNITS < 1.1 * least
        assert it.ask(asked).error_bar == pytest.approx(quote.error_bar, rel=1e-9)
        assert quote.error_bar is not None
        assert 0.9 * error < quote.error_bar <= error * (1 + 1e-6)
    refused = it.ask(aimed(query, share=0.01, at_most=1e-6))
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    with pytest.raises(ValueError, match="known beforehand"):
        replace(query, target=Target(relative=0.05))


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("size", [1, 2, 3, None], ids=["one", "two", "three", "any"])
@pytest.mark.parametrize("first_is_complement", [False, True])
def test_what_a_query_leaves_out_is_known_once_it_was_measured(
    size: int | None, first_is_complement: bool
) -> None:
    """The number of rows is public: the complement is mirrored, free, as sure, and survives a restart."""
    rng = np.random.default_rng(4)
    it = opened(2, error=0.003, base_share=0.0)
    predicate = conjunction(rng, size)
    if size is None:
        predicate = Predicate.of_mask((0, 2), rng.random((SIZES[0], SIZES[2])) < 0.5)
    first = LinearQuery(predicate, range(2))
    other = complement(first)
    if first_is_complement:
        first, other = other, first
    answer = it.ask(first)
    assert answer.path is Path.MEASURED
    for one in (it.restarted(), it):
        mirrored = one.ask(other)
        assert not one.looks
        assert mirrored.path is Path.CERTIFIED
        assert mirrored.count == pytest.approx(40_000 - answer.count, abs=1e-6)
        assert mirrored.error_bar <= answer.error_bar


def test_counts_of_both_sides_are_combined() -> None:
    """Earlier releases paid for both: each is evidence about either."""
    it = opened(error=0.003, base_share=0.0)
    query = LinearQuery(PAIR, range(1))
    evidences = []
    for one in (query, complement(query)):
        it.take(CountsLook(one, one.attributes, ((0, 500),), 1, ()))
        evidences.append(it.state.evidence(query))
    before, after = evidences
    assert after.variances == pytest.approx(before.variances / 2.0)
    mirrored = it.state.evidence(complement(query))
    assert mirrored.values == pytest.approx(20_000 - after.values)
    assert mirrored.variances == pytest.approx(after.variances)


@pytest.mark.parametrize("error", [0.05, 0.01, 0.003])
def test_answers_keep_their_promise_and_say_how_they_came_about(error: float) -> None:
    """All promised answers at once are judged by what a hundredth of them may do."""
    it = opened(3, error=error, queries_per_phase=1000)
    promised = missed = outside = 0
    paths = Counter[Path]()
    for query in stream(7, 300, 3):
        outcome = it.ask(query)
        paths[outcome.path] += 1
        for cell, exact in zip(cells(outcome), it.exact(query), strict=True):
            assert 0.0 <= cell.count <= cell.n
            assert cell.path is outcome.path
            assert (cell.path.difficulty is Difficulty.HARD) is (cell.path is Path.MEASURED)
            if cell.path is Path.UNVERIFIED:
                continue
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
    it = opened(2, error=error, base_share=0.05)
    half = 0.01 / 2.0
    n_of_any_predicate = 0
    for query in stream(11, 300, 2):
        outcome = it.ask(query)
        if isinstance(outcome, TableAnswered) or outcome.path is Path.REPEAT:
            continue
        if not 0.0 < outcome.count < outcome.n:
            continue
        evidence = it.state.at_opening(query) or it.state.evidence(query)
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
            allowed = [outcome.n, max(*allowed[1:], outcome.error_bar * outcome.n)]
        if outcome.error_bar_simultaneous is not None:
            reach = outcome.error_bar_simultaneous * outcome.n
            assert reach == pytest.approx(min(allowed), rel=1e-6)
    assert n_of_any_predicate > 50


def test_a_repeat_is_the_same_answer_for_free() -> None:
    it = opened(2)
    spelt = Predicate.of_mask((0, 1), np.repeat(np.arange(6) < 2, 3).reshape(6, 3))
    of_one_name = where(SIZES, {0: (0, 1)})
    for query in [*stream(3, 60, 2), LinearQuery(of_one_name, range(2))]:
        first = it.ask(query)
        same = replace(query, predicate=spelt) if query.predicate == of_one_name else query
        again = it.ask(same)
        assert again.path is Path.REPEAT
        assert numbers(again) == numbers(first)
        assert not it.looks


@pytest.mark.parametrize("kind", ABOUT_TWO)
def test_a_repeat_answers_with_the_smallest_bar_that_is_known_by_then(kind: str) -> None:
    """Tables that others measured say more by now; a repeat gets that for nothing, and remembers it."""
    it, query = opened(2, base_share=0.0), ABOUT_TWO[kind]
    first = it.ask(query)
    publish(it, tuple(range(4)), 40)
    for one in (it.restarted(), it):
        better = one.ask(query)
        assert better.path is Path.CERTIFIED
        evidence = one.state.evidence(query)
        (bar,) = evidence.anytime(0.02 * 40_000, 0.01).tolist()
        live = [i for i, cell in enumerate(cells(better)) if cell.error_bar]
        for i, value in zip(live, evidence.values, strict=True):
            cell = cells(better)[i]
            assert cell.count == pytest.approx(value)
            assert cell.error_bar == pytest.approx(bar / cell.n, rel=1e-6)
            assert (cell.error_bar or 1.0) < (cells(first)[i].error_bar or 0.0)
        for repeated in (one.ask(query), one.restarted().ask(query)):
            assert repeated.path is Path.REPEAT
            assert numbers(repeated) == numbers(better)
        assert not one.looks


def test_a_repeat_gets_better_by_tables_that_share_an_attribute_with_it_and_by_no_others() -> None:
    it = opened(base_share=0.0)
    publish(it, (0, 1, 2), 150)
    query = LinearQuery(where(SIZES, {0: [0], 2: [0]}), range(1))
    first = it.ask(query)
    for attributes, path in (
        ((1,), Path.REPEAT),
        ((0, 1, 2), Path.CERTIFIED),
        ((1,), Path.REPEAT),
        ((0, 2), Path.CERTIFIED),
    ):
        publish(it, attributes, 40)
        again = it.ask(query)
        assert again.path is path
        assert (again == replace(first, path=path)) is (path is Path.REPEAT)
        first = again


@pytest.mark.parametrize("group_by", [(), (0,)], ids=["a count", "a table"])
def test_what_openings_answer_stays_as_it_is_whatever_is_measured_later(
    group_by: tuple[int, ...],
) -> None:
    """So nobody can steer it. Who asks for less than the data set's error gets what is known by now."""
    it = opened(2, base_share=0.3)
    predicate = EVERYTHING if group_by else where(SIZES, {0: (0, 1)})
    query = LinearQuery(predicate, range(2), group_by)
    first = it.ask(query)
    deviation = math.sqrt(float(it.state.evidence(query).variances.max()))
    bar = norm.isf(0.01 / 2) * deviation / 40_000
    assert [cell.error_bar for cell in cells(first)] == pytest.approx([bar] * len(cells(first)))
    publish(it, (0,), 40)
    for one in (it, it.restarted()):
        assert numbers(one.ask(query)) == numbers(first)
        finer = one.ask(aimed(query, share=bar))
        assert max(cell.error_bar or 1.0 for cell in cells(finer)) <= bar * (1 + 1e-6)
        smaller = one.ask(aimed(query, share=0.9 * bar))
        evidence = one.state.evidence(query)
        assert [cell.count for cell in cells(smaller)] == pytest.approx(evidence.values)


def test_a_bar_for_all_times_surrounds_what_is_known_wherever_the_answer_lies() -> None:
    """The plain bar is not wider, and repeats keep theirs."""
    it = opened(2, base_share=0.05)
    found = Counter[str]()
    for query in stream(11, 200, 2):
        first = it.ask(query)
        if isinstance(first, TableAnswered) or first.error_bar_anytime in {None, 1.0}:
            continue
        if not 0.0 < first.count < first.n or first.path is Path.REPEAT:
            continue
        evidence = it.state.evidence(query)
        (bar,) = evidence.anytime(0.02 * first.n, 0.01).tolist()
        reach = (abs(first.count - evidence.values.item()) + bar) / first.n
        kind = first.path.value
        if it.state.at_opening(query) is not None:
            kind, reach = "opening", first.error_bar or math.nan
        found[kind] += 1
        assert first.error_bar_anytime == pytest.approx(reach, rel=1e-6)
        if first.path is Path.MEASURED:
            assert first.error_bar == 0.02  # exactly, floats and all
        assert first.path is Path.BOUNDED or first.error_bar <= first.error_bar_anytime
        assert it.ask(query).error_bar_anytime == first.error_bar_anytime
    assert found["opening"]
    assert found["certified"]
    assert found["measured"]


def test_everything_and_nothing_are_known_exactly() -> None:
    it = opened(2)
    for predicate, count in [(EVERYTHING, 40_000.0), (NOTHING, 0.0)]:
        outcome = it.ask(LinearQuery(predicate, range(2)))
        assert (outcome.count, outcome.error_bar, outcome.path) == (count, 0.0, Path.CERTIFIED)
    table = it.ask(LinearQuery(NOTHING, range(2), (1,)))
    assert [c.count for c in table.cells] == [0.0] * 3


def test_a_table_lists_its_cells_in_the_order_asked() -> None:
    it = opened(error=0.002, pacing=False)
    query = LinearQuery(where(SIZES, {0: range(3)}), range(1), (2, 0))
    table = it.ask(query)
    assert table.shape == (4, 6)
    counts = np.array([c.count for c in table.cells])
    np.testing.assert_allclose(counts, it.exact(query), atol=0.004 * 20_000)
    excluded = counts.reshape(4, 6)[:, 3:]
    assert (excluded == 0.0).all(), "cells that the condition excludes are known"


def test_a_query_pays_only_on_the_blocks_of_its_window() -> None:
    it = opened(5, error=0.005)
    before = it.mechanism.lines.left(range(5))
    it.ask_all(replace(query, window=range(2, 4)) for query in stream(5, 40, 5))
    paid = it.mechanism.lines.left(range(5)) < before
    assert paid.tolist() == [False, False, True, True, False]


def test_counts_paid_for_earlier_windows_are_used_again() -> None:
    """A query asked each month pays for the new month, not for the history again."""
    it = opened(3, error=0.003, base_share=0.0)
    predicate = conjunction(np.random.default_rng(1), 3)
    it.ask(LinearQuery(predicate, range(3)))
    it.open(rows(9))
    step = it.step(LinearQuery(predicate, range(4)))
    assert isinstance(step, CountsLook)
    assert {block for block, _ in step.steps} == {3}


def test_what_cannot_be_answered_is_refused_before_any_work() -> None:
    it = opened(0)
    for n_phases in (1, 2):
        query = LinearQuery(EVERYTHING, range(n_phases))
        assert it.step(query).code is RefusalCode.NO_PHASE
        it.mechanism.open_phase(10)
    wide = Host(names(*(200,) * 4), base_share=0.0)
    wide.mechanism.open_phase(1000)
    query = LinearQuery(where(wide.state.shape, dict.fromkeys(range(4), range(1))), range(1))
    assert wide.step(query).code is RefusalCode.TOO_MANY_CELLS
    small = opened(n=60, on_exhausted="refuse")
    assert small.step(LinearQuery(PAIR, range(1))).code is RefusalCode.WINDOW_TOO_SMALL


def test_more_noise_than_is_drawn_at_once_is_refused_before_it_is_paid() -> None:
    """Large blocks have a table measured for a sum, each one; the pool would refuse, and end the worker."""
    amounts = Number("x", tuple(range(23)))
    many = Category("c", tuple(map(str, range(1024))), other=False)
    it = Host(Universe((amounts, many)), error=0.05, base_share=0.0)
    blocks = MOST_DRAWN // math.prod(it.state.shape)
    for _ in range(blocks + 1):
        it.mechanism.open_phase(2 * MOST_ROWS)
    half = where(it.state.shape, {1: range(512)})
    every = LinearQuery(half, range(blocks + 1), (), Total(0, amounts.values))
    assert isinstance(it.step(replace(every, window=range(1, blocks + 1))), TablesLook)
    assert it.step(every).code is RefusalCode.TOO_MANY_CELLS
    assert it.mechanism.quote(every).outcome == it.step(every)


# ---------------------------------------------------------------- losses


class Witness(FakeNoise):
    """A noise source and data that check at every look that its charge was recorded before."""

    def __init__(self, data: Blocks) -> None:
        self.data = data
        self.drawn: list[tuple[Fraction, int]] = []
        self.read: list[tuple[tuple[int, ...], range]] = []
        self.looking: Look | None = None

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        assert self.looking is not None, "noise is drawn only inside a look"
        self.drawn.append((sigma, size))
        return RoundedNoise(0).gaussian(sigma, size)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        assert self.looking is None, "noise is drawn ahead of the charge"

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
    it = opened(0, error=0.01)
    witness = Witness(it.data)
    rho = it.state.promise.budget.rho

    def taken(look: Look) -> Release:
        look.reserve(witness)
        it.mechanism.charged(look.charges)
        witness.looking, witness.drawn = look, []
        release = look.take(witness, witness)  # type: ignore[arg-type]
        witness.looking = None
        it.mechanism.absorb(release)
        wanted = Counter[int]()
        if isinstance(look, TablesLook):
            draws = [(part.block, part.step, part.attributes) for part in look.parts]
            sizes = [math.prod(SIZES[a] for a in attributes) for _, _, attributes in draws]
        else:
            assert isinstance(look, CountsLook)
            draws = [(block, step, ()) for block, step in look.steps]
            sizes = [look.n_answers] * len(draws)
        for (block, step, _), size, drawn in zip(draws, sizes, witness.drawn, strict=True):
            assert drawn == (grid_sigma(step), size)
            squared = 1 if size == 1 else 2
            exact = gaussian_rho(drawn[0], squared_sensitivity=squared) / rho * UNITS
            wanted[block] += math.ceil(exact)
        assert {c.block: c.rho for c in look.charges} == wanted
        assert len({c.block for c in look.charges}) == len(look.charges)
        return release

    kinds = Counter[type]()
    for phase in range(3):
        it.data.append(rows(phase))
        for look in it.mechanism.open_phase(20_000):
            taken(look)
        for query in stream(phase, 60, phase + 1):
            step = it.step(query)
            if isinstance(step, Look):
                kinds[type(step)] += 1
                outcome = it.mechanism.conclude(query, step, taken(step))
                assert isinstance(outcome, Answered | TableAnswered)
                assert outcome.path is Path.MEASURED
    assert witness.read
    assert kinds.keys() == {TablesLook, CountsLook}


def test_a_row_that_moves_changes_a_look_by_no_more_than_it_is_charged_for() -> None:
    """Replace-one neighbours, without noise: squared distance at most 1 for a count, 2 for cells."""
    silent = RoundedNoise(0)
    silent.gaussian = lambda sigma, size: np.zeros(size, dtype=np.int64)  # type: ignore[method-assign]
    rng = np.random.default_rng(3)
    it = opened(error=0.004, base_share=0.0, pacing=False)
    base = [rng.integers(n, size=300) for n in SIZES]
    compared = Counter[type]()
    for query in stream(8, 60, 1):
        step = it.step(query)
        if not isinstance(step, TablesLook | CountsLook):
            continue
        moved, row = [column.copy() for column in base], int(rng.integers(300))
        for column, n in zip(moved, SIZES, strict=True):
            column[row] = rng.integers(n)
        values, bound = [], 0
        for content in (base, moved):
            release = step.take(silent, Blocks(UNIVERSE, [sealed(UNIVERSE, *content)]))
            if isinstance(release, CountsRelease):
                values.append(release.values.ravel())
                bound = 1 if release.values.size == 1 else 2
            else:
                values.append(np.concatenate([t.ravel() for t in release.tables]))
                bound = 2 * len(release.tables)
        assert np.square(values[0] - values[1]).sum() <= bound
        compared[type(step)] += 1
    assert compared.keys() == {TablesLook, CountsLook}


@pytest.mark.parametrize("on_exhausted", ["unverified", "refuse"])
def test_an_exhausted_line_is_never_passed(on_exhausted: str) -> None:
    it = opened(2, error=0.0015, on_exhausted=on_exhausted, pacing=False)
    outcomes = it.ask_all(stream(4, 250, 2))
    left = [UNITS - sum(c.rho for c in it.charges if c.block == b) for b in range(2)]
    assert min(left) >= 0
    refused = {o.code for o in outcomes if isinstance(o, Refused)}
    unverified = [o for o in outcomes if getattr(o, "path", None) is Path.UNVERIFIED]
    assert bool(refused) is (on_exhausted == "refuse") is not bool(unverified)
    assert refused <= {RefusalCode.BUDGET_EXHAUSTED, RefusalCode.WINDOW_TOO_SMALL}
    with pytest.raises(BudgetExceeded):
        it.mechanism.charged((Charge(0, left[0] + 1),))


def test_unverified_answers_are_not_remembered_and_still_say_what_they_know() -> None:
    it = opened(error=0.0015, pacing=False)
    it.mechanism.charged((Charge(0, UNITS - it.charges[0].rho),))
    seen = 0
    for query in stream(2, 60, 1):
        outcome = it.ask(query)
        if outcome.path is not Path.UNVERIFIED:
            continue
        assert it.ask(query).path is Path.UNVERIFIED
        for cell, exact in zip(cells(outcome), it.exact(query), strict=True):
            seen += 1
            if cell.error_bar is not None:
                assert abs(cell.count - exact) <= cell.error_bar * cell.n * 1.5
    assert seen > 20


def test_a_quote_is_exact_free_and_changes_nothing() -> None:
    it = opened(3, error=0.008)
    for query in stream(6, 80, 3):
        quote = it.mechanism.quote(query)
        assert it.mechanism.quote(query) == quote
        outcome = it.ask(query)
        assert quote.outcome == (None if it.looks else outcome)
        assert quote.charges == (it.looks[0].charges if it.looks else ())


# ---------------------------------------------------------------- public decisions and replay


def test_decisions_follow_from_what_was_published_and_from_nothing_else() -> None:
    """Other rows whose releases happen to coincide lead to the same decisions and answers."""
    one = opened(2, error=0.006)
    other = one.restarted()
    other.data = Blocks(UNIVERSE, [rows(50), rows(51)])
    for query in stream(12, 150, 2):
        first, second = one.step(query), other.step(query)
        if isinstance(first, Look):
            assert second.description == first.description
            assert second.charges == first.charges
            release = one.take(first)
            other.mechanism.charged(second.charges)
            other.mechanism.absorb(release)
            concluded = one.mechanism.conclude(query, first, release)
            assert concluded == other.mechanism.conclude(query, second, release)
        else:
            assert first == second


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_of_what_was_stored_answers_as_before(seed: int) -> None:
    it = opened(2, error=0.006, seed=10 * seed)
    it.ask_all(stream(seed, 120, 2))
    replayed = it.restarted()
    for query in stream(seed, 120, 2)[::7] + stream(seed + 40, 80, 2):
        assert replayed.mechanism.quote(query) == it.mechanism.quote(query)
    assert replayed.mechanism.lines.left().tolist() == it.mechanism.lines.left().tolist()


def test_a_lost_look_keeps_its_charge_and_nothing_else() -> None:
    it = opened(error=0.004)
    query = next(q for q in stream(1, 200, 1) if isinstance(it.step(q), Look))
    look = it.step(query)
    it.lose(look)
    assert it.step(query).description == look.description


def test_a_lost_base_release_is_taken_again_when_the_next_phase_opens() -> None:
    it = opened(0)
    for phase, blocks in enumerate(([[0]], [[0], [1]], [[2]])):
        it.data.append(rows(phase))
        looks = it.mechanism.open_phase(20_000)
        assert [[c.block for c in look.charges] for look in looks] == blocks
        if phase == 0:
            it.lose(looks[0])
        else:
            for look in looks:
                it.take(look)
    spent = [UNITS - left for left in it.mechanism.lines.left().tolist()]
    assert spent[0] == 2 * spent[2]


def test_a_lost_base_release_of_rows_that_were_changed_is_not_taken_again() -> None:
    """It would be about other rows than those that were sealed, and enter no memory."""
    it = opened(0)
    it.data.append(rows(0))
    (look,) = it.mechanism.open_phase(20_000)
    it.lose(look)
    it.mechanism.changed_rows.add(0, 5)
    it.data.append(rows(1))
    looks = it.mechanism.open_phase(20_000)
    assert [[c.block for c in look.charges] for look in looks] == [[1]]


def test_remembered_answers_are_handed_over_once() -> None:
    it = opened(base_share=0.5)
    query = LinearQuery(where(SIZES, {0: (0, 1)}), range(1))
    handed_over = []
    for _ in range(2):
        it.step(query)
        handed_over += [len(it.mechanism.remembered()) for _ in range(2)]
    assert handed_over == [1, 0, 0, 0]


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
    it = opened(error=0.004)
    it.ask_all(stream(1, 60, 1))
    stored = [entry for entry in it.stored if isinstance(entry, bytes)]
    assert len({entry[1] for entry in stored}) == 3, "all kinds of release"
    for entry in stored:
        with pytest.raises(CorruptState):
            it.mechanism.release_from_bytes(damage(entry))


def test_a_release_is_as_long_as_its_look_says_whatever_it_holds_and_shows_nothing_of_it() -> None:
    lengths = []
    for seed in (1, 77):
        it = opened(2, seed=seed)
        it.ask(stream(1, 30, 2)[0])
        lengths.append([len(entry) for entry in it.stored if isinstance(entry, bytes)])
        for thing in (it.mechanism, *it.releases, *it.looks):
            assert "array(" not in repr(thing)
            assert "values" not in repr(thing)
    assert lengths[0] == lengths[1]


def test_a_promise_without_a_delta_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"privacy\.delta"):
        opened(0, privacy=Privacy(1.0, 0.0))
