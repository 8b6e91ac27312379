"""The look at a sum: its price against all pairs of rows, its numbers, its memory, and its bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.outcome import Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.sums import SumEstimate, Sums
from stream_dp.core.residual.looks.counted_rows import RowsLook, RowsRelease
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.core.residual.plan.planner import Prices, Terms
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand, SumPlanner
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import ALARM, PRIVACY, Host, aimed, dearest, sealed, where
from tests.core.residual.least_squares import belief_of
from tests.noise import QuickNoise

# ---------------------------------------------------------------- the price

Rho = Callable[[SumShape, Fraction, Fraction | None], Fraction]

SHAPES = [
    SumShape(low, high, centre, grouped=grouped, every_row=every_row, rests=rests)
    for low, high in ((0, 1), (-1, 3), (4, 6))
    for centre in (low + high, 0, 2 * low, 3)
    for grouped in (False, True)
    for every_row, rests in ((False, False), (True, False), (False, True))
]
BLANKS = [replace(shape, blank=True) for shape in SHAPES]
SCALES = (Fraction(1, 2), Fraction(3), Fraction(20))


def rows_of(shape: SumShape) -> list[npt.NDArray[np.int64]]:
    """What each row that can be adds to what is released: sums, counts, rows without a number."""
    n_answers = 3 if shape.grouped else 1
    adds = [(2 * number - shape.centre, 1, 0) for number in range(shape.low, shape.high + 1)]
    adds += [(0, 0, 1)] * shape.rests
    answers = np.eye(n_answers, dtype=np.int64)
    found = [np.outer(each, answer) for answer in answers for each in adds]
    return found if shape.every_row else [*found, np.zeros_like(found[0])]


@cache
def right_price(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return dearest(rows_of(shape), [tau, sigma, sigma], blank=shape.blank)


def wrong_prices(rho: Rho, shapes: Sequence[SumShape] = SHAPES) -> int:
    """How many prices are not those of the two rows that are told apart best."""
    wrong = 0
    for shape, tau, sigma in product(shapes, SCALES, SCALES):
        noise = sigma if shape.counts else None
        wrong += rho(shape, tau, noise) != right_price(shape, tau, noise)
    return wrong


def test_the_price_is_that_of_the_two_rows_that_are_told_apart_best() -> None:
    """Or of the row with the largest part, where one becomes blank."""
    assert wrong_prices(SumShape.rho) == wrong_prices(SumShape.rho, BLANKS) == 0


def forgets_enter(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    every = replace(shape, every_row=True, rests=False)
    return every.rho(tau, sigma if every.counts else None)


def same_as_for_a_move(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    halved = Fraction(shape.width) ** 2 / (2 * tau * tau)
    if shape.size != abs(2 * shape.high - shape.centre):
        return halved
    return max(halved, replace(shape, low=shape.high).rho(tau, sigma))


def counts_are_free(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return shape.rho(tau, None if sigma is None else 10**9 * sigma)


def forgets_the_rest(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return replace(shape, rests=False).rho(tau, sigma)


def takes_the_count_for_public(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return shape.size**2 / (2 * tau * tau)


def halves_a_replacement(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    other = replace(shape, blank=False)
    return other.rho(tau, sigma if other.counts else None) / 2


@pytest.mark.parametrize(
    ("broken", "shapes"),
    [
        (forgets_enter, SHAPES),
        (same_as_for_a_move, SHAPES),
        (counts_are_free, SHAPES),
        (forgets_the_rest, SHAPES),
        (takes_the_count_for_public, [shape for shape in BLANKS if shape.every_row]),
        (takes_the_count_for_public, [shape for shape in BLANKS if not shape.every_row]),
        (halves_a_replacement, [shape for shape in BLANKS if shape.every_row]),
        (halves_a_replacement, [shape for shape in BLANKS if not shape.every_row]),
    ],
)
def test_a_price_that_forgets_a_pair_of_rows_is_noticed(
    broken: Rho, shapes: list[SumShape]
) -> None:
    assert wrong_prices(broken, shapes) > 0


def test_several_rows_that_become_blank_cost_the_square_of_their_number_and_no_more() -> None:
    for shape, number in product(BLANKS, (2, 3)):
        several = [sum(rows) for rows in combinations_with_replacement(rows_of(shape), number)]
        for tau, sigma in product(SCALES, SCALES):
            worst = dearest(several, [tau, sigma, sigma], blank=True)  # type: ignore[arg-type]
            assert worst == number**2 * shape.rho(tau, sigma)


def test_the_price_of_the_examples_of_the_theorem() -> None:
    shape = SumShape(0, 3, 3, grouped=True, every_row=False)
    tau, sigma = Fraction(20), Fraction(3)
    assert shape.rho(tau, sigma) == Fraction(481, 3600)
    assert replace(shape, grouped=False).rho(tau, sigma) == Fraction(481, 7200)
    assert replace(shape, grouped=False, every_row=True).rho(tau, None) == Fraction(9, 200)


ORDERS = SumShape(250, 50_000, 50_250, grouped=True, every_row=True)
PAID = replace(ORDERS, grouped=False, every_row=False)


@pytest.mark.parametrize(
    ("shape", "steps", "units", "part"),
    [
        (ORDERS, (719, 219), 11_223_623_885_527, 0.01),
        (PAID, (719, 194), 11_179_662_682_754, 0.01),
        (ORDERS, (666, 166), 111_506_954_525_297, 0.1),
        (PAID, (666, 141), 111_065_715_109_900, 0.1),
    ],
    ids=["by status, 1%", "paid, 1%", "by status, 10%", "paid, 10%"],
)
def test_the_finest_look_within_a_part_of_a_line(
    shape: SumShape, steps: tuple[int, int], units: int, part: float
) -> None:
    prices, most = Prices(Budget.of(PRIVACY)), math.floor(part * UNITS)

    def price(of_sums: int, of_counts: int) -> int:
        return prices.of(shape.rho(grid_sigma(of_sums), grid_sigma(of_counts)))

    assert price(*steps) == units <= most
    assert price(steps[0] - 1, steps[1]) > most
    assert price(steps[0], steps[1] - 1) > most


def test_at_one_per_cent_of_a_line_the_scales_are_these() -> None:
    tau = ORDERS.width * math.sqrt(2.0 / (0.01 * float(Budget.of(PRIVACY).rho)))
    assert tau == pytest.approx(5_749_801.27, abs=0.01)
    assert tau * ORDERS.ratio() == pytest.approx(115.57389, abs=1e-5)
    assert tau * PAID.ratio() == pytest.approx(66.726619, abs=1e-6)


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("spread", [0.0, 100.0, 10_000.0, 30_000.0, 60_000.0, None])
def test_the_best_ratio_of_the_scales_makes_the_error_of_a_mean_least(
    blank: bool, spread: float | None
) -> None:
    """Against every ratio of a fine grid, at one price.

    Where a row becomes blank it leaves a quarter to the count.
    """
    for plain in (ORDERS, PAID, replace(PAID, centre=11_000), replace(PAID, rests=True)):
        shape = replace(plain, blank=blank)
        wide = float(shape.centre) if spread is None else spread

        def error(ratio: float, shape: SumShape = shape, wide: float = wide) -> float:
            loss = shape.rho(Fraction(1), Fraction(round(ratio * 10**9), 10**9))
            return float(loss) * (1.0 + wide**2 * ratio**2)

        found = shape.ratio(wide)
        grid = found * np.exp(np.linspace(-2.0, 2.0, 401))
        of_count = 1.0 / (1.0 + (shape.size * found) ** 2)
        bound = blank and of_count <= 0.2501
        assert error(found) <= min(map(error, grid.tolist())) * (4 / 3 if bound else 1.001)
        if blank:
            assert of_count >= 0.25 * (1 - 1e-9)
            assert shape.ratio() == shape.ratio(shape.centre), "the best one for the sum itself"


@pytest.mark.parametrize("group_by", [(), (1,)])
def test_a_data_set_that_protects_persons_looks_at_sums_at_the_price_of_blanks(
    group_by: tuple[int, ...],
) -> None:
    numbers = Number("amount", tuple(range(10, 210, 10)), integer=False)
    universe = Universe((numbers, Category("status", ("a", "b"), other=False)))
    query = LinearQuery(EVERYTHING, range(1), group_by, Total(0, numbers.values))
    it = Host(universe, privacy=Privacy(1.0, 1e-9, Unit(2, 3)), base_share=0.0)
    (counting,) = it.mechanism.open_phase(200_000)
    assert isinstance(counting, RowsLook)
    it.mechanism.absorb(RowsRelease(0, counting.step, 200_000))
    look = it.step(aimed(query, value=4_000.0 * max(numbers.values)))
    assert look.shape.blank
    assert look.shape.vectors == 2, "the number of rows that count is measured too"
    ((_, step, counted),), (charge,) = look.steps, look.charges
    x = Fraction(look.shape.size)
    rho = (x**2 / grid_sigma(step) ** 2 + 1 / grid_sigma(counted) ** 2) / 2
    assert charge.rho == math.ceil(rho * 3 * 2**2 / Budget.of(PRIVACY).rho * UNITS)


def test_no_look_is_precise_enough_where_perhaps_no_row_counts() -> None:
    demand = SumDemand.of_totals(Terms.of(Accuracy(0.02, 0.01)), 0, rows=True)
    assert 0.0 < demand.limits.max() == demand.rows < float(grid_sigma(-320)) ** 2


# ---------------------------------------------------------------- whole numbers

AMOUNTS = (2.5, 7.5, 15.0, 25.0, 40.0, 62.5, 87.5, 125.0, 175.0, 225.0, 275.0, 400.0, 500.0)
AMOUNT, STATUS = range(2)


@pytest.mark.parametrize(
    ("values", "cells", "unit", "ends"),
    [
        (AMOUNTS, range(13), 0.1, (25, 5000)),
        (AMOUNTS, range(10, 13), 1.0, (275, 500)),
        ((0.0, 20.0, 300.0), range(3), 10.0, (0, 30)),
        ((-1.25, 7.0), range(2), 0.01, (-125, 700)),
        ((7.0, 0.0), range(1), 1.0, (7, 8)),
    ],
)
def test_the_unit_is_the_largest_power_of_ten_that_divides_what_counts(
    values: tuple[float, ...], cells: range, unit: float, ends: tuple[int, int]
) -> None:
    predicate = where((len(values),), {0: cells})
    whole = WholeValues.of(LinearQuery(predicate, range(1), (), Total(0, values)))
    assert (whole.unit, (whole.low, whole.high), whole.slack) == (unit, ends, 0.0)


def test_values_that_no_unit_divides_are_rounded_and_the_bar_says_so() -> None:
    values = (0.0, 1.0 / 3.0, 2.0)
    whole = WholeValues.of(LinearQuery(EVERYTHING, range(1), (), Total(0, values)))
    assert whole.high - whole.low <= 2**20
    assert 0.0 < whole.slack <= whole.unit / 2
    for value, number in zip(values, whole.numbers, strict=True):
        assert abs(number * whole.unit - value) <= whole.slack * (1 + 1e-9)


# ---------------------------------------------------------------- the look itself

EDGES = (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500)
UNIVERSE = Universe(
    (
        Number("amount", EDGES, representatives=AMOUNTS, missing=True),
        Category("status", tuple("abcde"), other=False),
    )
)
SHAPE = UNIVERSE.shape
VALUES = (*AMOUNTS, 0.0)


def present(*statuses: int) -> Predicate:
    """Rows with an amount, of these statuses; of all if none is given."""
    return where(SHAPE, {AMOUNT: range(13), **({STATUS: statuses} if statuses else {})})


def asked(predicate: Predicate, **more: Any) -> LinearQuery:
    return replace(LinearQuery(predicate, range(1), total=Total(AMOUNT, VALUES)), **more)


def orders(
    noise: QuickNoise, n_rows: int = 20_000, phases: int = 1, error: float = 0.02, **more: Any
) -> Host:
    blocks = []
    for phase in range(phases):
        draw = np.random.default_rng(phase)
        amount = np.minimum(draw.geometric(0.2, n_rows) - 1, 13)
        status = draw.choice(5, n_rows, p=[0.6, 0.2, 0.1, 0.07, 0.03])
        blocks.append(sealed(UNIVERSE, amount, status))
    options = {"base_share": 0.0, "pacing": False, **more}
    return Host(UNIVERSE, *blocks, noise=noise, error=error, **options)


def truth(it: Host, query: LinearQuery) -> npt.NDArray[np.float64]:
    """Sum and count of each answer, and the rows of the condition; shape (3, answers)."""
    table = it.data.marginal((AMOUNT, STATUS), query.window).sum(axis=0)
    inside, every = (
        table * p.along((AMOUNT, STATUS)) for p in (query.predicate, query.rows or query.predicate)
    )
    each = [np.array(VALUES) @ inside, inside.sum(axis=0), every.sum(axis=0)]
    return np.array([part if query.group_by else part.sum(keepdims=True) for part in each])


def sums(it: Host, query: LinearQuery) -> Sums:
    return it.state.belief.sums(query).sums


BY_STATUS = asked(present(), group_by=(STATUS,))
ONE = asked(present(0))
EVERY = {
    "all": asked(present()),
    "one status": ONE,
    "and rows": asked(present(1, 2), rows=where(SHAPE, {STATUS: (1, 2)})),
    "by status": BY_STATUS,
    "by status and rows": replace(BY_STATUS, rows=EVERYTHING),
    "two of them": asked(present(0, 1), group_by=(STATUS,)),
}
every = pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())


@every
def test_what_a_look_adds_noise_to_is_the_sum_and_the_count(query: LinearQuery) -> None:
    it = orders(QuickNoise(1, 0.0))
    look = it.step(query)
    exact = exact_sums(look, it.data, 0)
    total, count, rows = truth(it, query)
    assert exact[1] == pytest.approx(count)
    unit, centre = look.values.unit, look.shape.centre
    assert unit * (exact[0] + centre * exact[1]) / 2 == pytest.approx(total)
    assert not look.shape.rests or exact[1] + exact[2] == pytest.approx(rows)
    outcome = it.ask(query)
    assert outcome.path is Path.MEASURED
    assert [cell.total for cell in outcome.cells] == pytest.approx(total.tolist())
    assert [cell.count for cell in outcome.cells] == pytest.approx(count.tolist())
    if query.rows is not None:
        assert [cell.rows for cell in outcome.cells] == pytest.approx(rows.tolist())


@every
@pytest.mark.parametrize("phases", [1, 3])
def test_a_sum_keeps_its_promise_at_a_price_below_that_of_the_table(
    query: LinearQuery, phases: int
) -> None:
    it, query = orders(QuickNoise(2), phases=phases), replace(query, window=range(phases))
    outcome = it.ask(query)
    (look,) = it.looks
    assert isinstance(look, SumLook)
    for cell in outcome.cells:
        assert cell.total_bar <= 0.02 * 20_000 * phases * 500.0 * (1 + 1e-6)
        assert query.rows is None or cell.rows_bar <= 0.02 * 20_000 * phases * (1 + 1e-6)
    for one in (it, it.restarted()):
        again = one.ask(query)
        assert again.path is Path.CERTIFIED
        assert again.cells == outcome.cells
        assert not one.looks


def test_every_row_in_one_answer_needs_no_count() -> None:
    it = Host(Universe((Number("x", EDGES, representatives=AMOUNTS),)), base_share=0.0)
    it.mechanism.open_phase(20_000)
    query = LinearQuery(EVERYTHING, range(1), (), Total(0, AMOUNTS), EVERYTHING)
    look = it.step(query)
    assert (look.shape.vectors, look.shape.every_row) == (1, True)
    assert all(len(block) == 2 for block in look.description["blocks"])


def test_the_counts_of_a_look_serve_queries_for_counts() -> None:
    it, counts = orders(QuickNoise(3)), LinearQuery(present(), range(1), (STATUS,))
    (before,) = it.mechanism.quote(counts).charges
    it.ask(BY_STATUS)
    (after,) = it.mechanism.quote(counts).charges
    assert after.rho < 0.65 * before.rho


def test_large_blocks_and_wide_offsets_are_left_to_the_table() -> None:
    large = Host(UNIVERSE, base_share=0.0)
    large.mechanism.open_phase(2**41)
    assert isinstance(large.step(ONE), TablesLook)
    far = Host(Universe((Number("x", (1e30,), representatives=(1e30 - 2e14, 1e30)),)), base_share=0)
    far.mechanism.open_phase(20_000)
    query = LinearQuery(EVERYTHING, range(1), (), Total(0, (1e30 - 2e14, 1e30)))
    assert not isinstance(far.step(query), SumLook)


# ---------------------------------------------------------------- memory


def test_a_table_that_knows_the_count_alone_helps_the_total_by_it() -> None:
    """Of all rows with a status, with an amount or not, nothing is known; so it does not help here."""
    belief = belief_of(SHAPE, [], n_rows=1000)
    belief.absorb_table((STATUS,), 0, np.arange(5.0) * 100, 25.0)
    look = SumEstimate(np.array([7e4]), np.array([440.0]), 4e7, 90.0, 1e4)
    # Where every row counts, the status alone says how many: regress the total on that count.
    plain = asked(where(SHAPE, {STATUS: [0]}))
    for query in (ONE, plain):
        belief.absorb_sums(query.key, (0, 1), 0, look)
    assert belief.sums(ONE).sums.moments.totals[0] == pytest.approx(4e7 / 500**2)
    moments = belief.sums(plain).sums.moments
    # One cell of five whose sum is public has four fifths of the noise.
    assert moments.totals[0] == pytest.approx((4e7 - 1e4**2 / (90.0 + 20.0)) / 500**2)
    assert moments.counts[0] == pytest.approx(1.0 / (1.0 / 90.0 + 1.0 / 20.0))


def test_a_filter_is_answered_by_the_groups_that_add_up_to_it() -> None:
    """One group costs nothing; two have twice the noise, so that a little is lacking; and all of them."""
    it = orders(QuickNoise(21))
    groups = it.ask(BY_STATUS)
    paid = it.ask(ONE)
    assert paid.path is Path.CERTIFIED
    assert paid.cells == groups.cells[:1]
    assert not it.looks
    each = sums(it, BY_STATUS).totals
    shown = [cell.total for cell in groups.cells]
    assert shown == pytest.approx(np.maximum(500.0 * each, 0.0)), "no such total is below 0"
    one = sums(it, ONE).moments
    for statuses, times in (((0, 2), 2.0), (range(5), 5.0)):
        known = sums(it, asked(present(*statuses)))
        assert known.totals[0] == pytest.approx(each[list(statuses)].sum())
        assert known.moments.totals[0] == pytest.approx(times * one.totals[0])
        assert known.moments.both[0] == pytest.approx(times * one.both[0])
    # A condition that is not a product, or on the amount itself, has no such groups.
    odd = np.zeros(SHAPE, dtype=np.bool_)
    odd[:3, :2] = odd[3:9, 1:] = True
    some = where(SHAPE, {AMOUNT: range(5), STATUS: [0]})
    for predicate in (some, Predicate.of_mask((0, 1), odd)):
        assert not it.state.belief.sums(asked(predicate)).looked


def test_groups_and_a_look_of_its_own_are_combined() -> None:
    it, query = orders(QuickNoise(22)), asked(present(0, 1, 2))
    (alone,) = it.mechanism.quote(query).charges
    it.ask(BY_STATUS)
    before = sums(it, query).moments.totals[0]
    outcome = it.ask(query)
    assert outcome.path is Path.MEASURED
    (look,), (cell,) = it.looks, outcome.cells
    assert look.charges[0].rho < alone.rho
    assert sums(it, query).moments.totals[0] < before
    assert abs(cell.total - truth(it, query)[0, 0]) <= cell.total_bar


def test_what_is_known_by_tables_makes_the_look_cheaper() -> None:
    alone, helped = (orders(QuickNoise(7), base_share=share) for share in (0.0, 0.0005))
    assert helped.step(ONE).charges[0].rho < alone.step(ONE).charges[0].rho


def test_once_looks_have_cost_enough_the_table_is_bought() -> None:
    it, rng = orders(QuickNoise(8), n_rows=200_000, error=0.05), np.random.default_rng(9)
    while len(it.taken) < 200 and not any(isinstance(look, TablesLook) for look in it.taken):
        chosen = rng.choice(5, rng.integers(1, 5), replace=False)
        it.ask(asked(present(*chosen.tolist())))
    first, *_, last = it.taken
    assert isinstance(first, SumLook)
    assert isinstance(last, TablesLook)
    assert last.charges[0].rho > first.charges[0].rho


# ---------------------------------------------------------------- demands


def planner_for(it: Host, demand: SumDemand) -> SumPlanner:
    return SumPlanner(it.state.belief.sums(ONE), None, it.state.evidence(ONE), demand)


def test_a_mean_can_be_asked_more_precisely_and_its_bar_says_so() -> None:
    it = orders(QuickNoise(10), n_rows=100_000)
    z = float(norm.isf(0.005))
    assert SumDemand.of_means(sums(it, ONE), 0.01, z) is None, "nothing is known of it"
    (before,) = it.ask(ONE).cells
    aim = before.mean_bar / 4.0
    demand = SumDemand.of_means(sums(it, ONE), aim / 500.0, z)
    assert demand is not None
    planner, prices = planner_for(it, demand), it.state.promise.prices
    left = it.mechanism.lines.left(range(1))
    measure = planner.look(prices, left)
    assert isinstance(measure, MeasureSums)
    assert measure.shape.centre != measure.shape.low + measure.shape.high, "near twice the mean"
    it.take(SumLook(ONE, measure.values, measure.shape, measure.steps, 1, measure.charges))
    (after,) = it.ask(ONE).cells
    assert 0.9 * aim < after.mean_bar <= 1.1 * aim
    # The centre of the values would have cost more for the same mean.
    centred = replace(measure.shape, centre=measure.shape.low + measure.shape.high)
    twice = 2.0 * float(demand.slopes[0]) * 500.0 / measure.values.unit
    ratio = centred.ratio(twice - centred.centre)
    dearer = planner._look_of(measure.values, centred, ratio, prices, left)
    assert dearer is not None
    assert measure.total < dearer.total


def test_terms_of_a_query_say_how_precise_its_total_must_be() -> None:
    """A query with an error of its own is planned with these terms; nothing else changes."""
    it, totals = orders(QuickNoise(12)), []
    for error in (0.02, 0.01):
        demand = SumDemand.of_totals(Terms.of(Accuracy(error, 0.01)), 20_000, rows=False)
        look = planner_for(it, demand).look(it.state.promise.prices, np.array([UNITS]))
        assert look is not None
        totals.append(look.total)
    assert totals[1] / totals[0] == pytest.approx(4.0, rel=0.1)


# ---------------------------------------------------------------- bars


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False)])
def test_bars_of_sums_counts_and_means_cover_as_often_as_they_say(
    factor: float, holds: bool
) -> None:
    """At 80%. False alarm 1e-6 for each of three; noise a tenth wider than said is noticed."""
    phases, rounds = 60, 16
    covered = np.zeros(3, dtype=np.int64)
    for number in range(rounds):
        it = orders(QuickNoise(number, factor), phases=phases, error=0.01, beta=0.2)
        for phase in range(phases):
            window = range(phase, phase + 1)
            query = asked(present(0, 1, 2), group_by=(STATUS,), window=window)
            total, count, _ = truth(it, query)
            for cell, exact, rows in zip(it.ask(query).cells[:3], total, count, strict=False):
                covered[0] += abs(cell.total - exact) <= cell.total_bar
                covered[1] += abs(cell.count - rows) <= cell.count_bar
                covered[2] += abs(cell.mean - exact / rows) <= cell.mean_bar
    for found in covered.tolist():
        alarm = binomtest(found, 3 * phases * rounds, 0.8, "less").pvalue < ALARM
        assert alarm is not holds


def test_a_bar_wider_than_all_values_is_none() -> None:
    rare = orders(QuickNoise(13), n_rows=2000, error=0.5).ask(BY_STATUS).cells[-1]
    assert rare.mean_bar is None or rare.mean_bar <= 497.5
    assert (rare.mean is None) is (rare.mean_bar is None)
