"""The look at a sum: its price against all pairs of rows, its numbers, its memory, and its bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.audit.line_limits import Line
from stream_dp.audit.look_charges import Looks
from stream_dp.audit.numbers import Wrong
from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target, Unit
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Path, Summed
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.sums import SumEstimate, ratio_bar
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.counted_rows import RowsLook, RowsRelease
from stream_dp.core.residual.looks.sum_look import SumLook, SumRelease, exact_sums
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.core.residual.plan.planner import Prices, Terms
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand, SumPlanner
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Category, Number, Rows, Universe
from stream_dp.messages import Definition, UnitSpec
from tests.noise import FakeNoise, QuickNoise

ALARM = 1e-6
PRIVACY = Privacy(1.0, 1e-9)
Z = float(norm.isf(0.005))

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
    answers = range(3 if shape.grouped else 1)
    found = []
    for answer in answers:
        for number in range(shape.low, shape.high + 1):
            vector = np.zeros((3, len(answers)), dtype=np.int64)
            vector[0, answer], vector[1, answer] = 2 * number - shape.centre, 1
            found.append(vector)
        if shape.rests:
            vector = np.zeros((3, len(answers)), dtype=np.int64)
            vector[2, answer] = 1
            found.append(vector)
    if not shape.every_row:
        found.append(np.zeros((3, len(answers)), dtype=np.int64))
    return found


def lost(squares: Sequence[int], shape: SumShape, scales: list[Fraction | None]) -> Fraction:
    """The loss of a change of what is released, by Theorem 1 for each number alone."""
    loss = Fraction(0)
    for square, scale in zip(squares, scales, strict=True):
        if scale is not None:
            loss += Fraction(square) / (2 * scale * scale)
        else:
            assert not square or shape.counts is False
    return loss


@cache
def changes(shape: SumShape) -> set[tuple[int, ...]]:
    """The squares of what two rows change, or a row and a blank: of sums, counts, rows without a number."""
    rows = rows_of(shape)
    others = [np.zeros_like(rows[0])] if shape.blank else rows
    return {
        tuple(np.square(one - other).sum(axis=1).tolist()) for one, other in product(rows, others)
    }


@cache
def dearest(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    """The loss of the two rows that the look tells apart best, or of the row that it tells from a blank."""
    return max(lost(squares, shape, [tau, sigma, sigma]) for squares in changes(shape))


def wrong_prices(rho: Rho, shapes: list[SumShape] = SHAPES) -> int:
    """How many prices are not those of the two rows that are told apart best."""
    wrong = 0
    for shape, tau, sigma in product(shapes, SCALES, SCALES):
        noise = sigma if shape.counts else None
        wrong += rho(shape, tau, noise) != dearest(shape, tau, noise)
    return wrong


def test_the_price_is_that_of_the_two_rows_that_are_told_apart_best() -> None:
    assert wrong_prices(SumShape.rho) == 0


def forgets_enter(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    every = replace(shape, every_row=True, rests=False)
    return every.rho(tau, sigma if every.counts else None)


def same_as_for_a_move(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    halved = Fraction(shape.width) ** 2 / (2 * tau * tau)
    others = (
        replace(shape, low=shape.high) if shape.size == abs(2 * shape.high - shape.centre) else None
    )
    return halved if others is None else max(halved, others.rho(tau, sigma))


def counts_are_free(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return shape.rho(tau, None if sigma is None else 10**9 * sigma)


def forgets_the_rest(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return replace(shape, rests=False).rho(tau, sigma)


@pytest.mark.parametrize(
    "broken", [forgets_enter, same_as_for_a_move, counts_are_free, forgets_the_rest]
)
def test_a_price_that_forgets_a_pair_of_rows_is_noticed(broken: Rho) -> None:
    assert wrong_prices(broken) > 0


def test_the_price_of_a_row_that_becomes_blank_is_that_of_the_row_with_the_largest_part() -> None:
    assert wrong_prices(SumShape.rho, BLANKS) == 0


def takes_the_count_for_public(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    return shape.size**2 / (2 * tau * tau)


def halves_a_replacement(shape: SumShape, tau: Fraction, sigma: Fraction | None) -> Fraction:
    other = replace(shape, blank=False)
    return other.rho(tau, sigma if other.counts else None) / 2


@pytest.mark.parametrize("broken", [takes_the_count_for_public, halves_a_replacement])
def test_another_price_of_a_row_that_becomes_blank_is_noticed(broken: Rho) -> None:
    for every_row in (False, True):
        shapes = [shape for shape in BLANKS if shape.every_row == every_row]
        assert wrong_prices(broken, shapes) > 0


def test_several_rows_that_become_blank_cost_the_square_of_their_number_and_no_more() -> None:
    for shape, number in product(BLANKS, (2, 3)):
        several = combinations_with_replacement(rows_of(shape), number)
        lengths = {tuple(np.square(sum(rows)).sum(axis=1).tolist()) for rows in several}
        for tau, sigma in product(SCALES, SCALES):
            scales = (tau, sigma, sigma)
            worst = max(
                sum(Fraction(n) / (2 * s * s) for n, s in zip(found, scales, strict=True))
                for found in lengths
            )
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


def test_bars_of_means_are_fiellers() -> None:
    z, known = 2.5758293035, (100.0**2, 120.0**2)
    assert ratio_bar(1000, 5000, known, 0.0, z) == pytest.approx(0.05385383722, abs=1e-11)
    assert ratio_bar(1000, 5000, known, 6000.0, z) == pytest.approx(0.04750981421, abs=1e-11)
    wide = (5_749_801.0**2, 115.57**2)
    assert ratio_bar(-5e6, 62_119, wide, 0.0, z) == pytest.approx(238.42641, abs=1e-5)
    assert ratio_bar(1000, 300, known, 0.0, z) is None


def test_the_best_ratio_of_the_scales_makes_the_error_of_a_mean_least() -> None:
    """Against every ratio of a fine grid, at one price."""
    for shape in (ORDERS, PAID, replace(PAID, centre=11_000), replace(PAID, rests=True)):
        for spread in (0.0, 100.0, 30_000.0, 60_000.0):

            def error(ratio: float, shape: SumShape = shape, spread: float = spread) -> float:
                fixed = Fraction(round(ratio * 10**9), 10**9)
                loss = shape.rho(Fraction(1), fixed)
                return float(loss) * (1.0 + spread**2 * ratio**2)

            best = error(shape.ratio(spread))
            grid = shape.ratio(spread) * np.exp(np.linspace(-2.0, 2.0, 401))
            assert best <= min(map(error, grid.tolist())) * 1.001


def test_where_a_row_becomes_blank_the_best_ratio_leaves_a_quarter_to_the_count() -> None:
    for shape in (ORDERS, PAID, replace(PAID, centre=11_000), replace(PAID, rests=True)):
        blank = replace(shape, blank=True)
        for spread in (0.0, 10_000.0, 60_000.0, float(blank.centre)):

            def error(ratio: float, blank: SumShape = blank, spread: float = spread) -> float:
                loss = blank.rho(Fraction(1), Fraction(round(ratio * 10**9), 10**9))
                return float(loss) * (1.0 + spread**2 * ratio**2)

            found = blank.ratio(spread)
            grid = found * np.exp(np.linspace(-2.0, 2.0, 401))
            of_count = 1.0 / (1.0 + (blank.size * found) ** 2)
            allowed = 1.001 if of_count > 0.2501 else 4.0 / 3.0
            assert error(found) <= min(map(error, grid.tolist())) * allowed
            assert of_count >= 0.25 * (1 - 1e-9)
        assert blank.ratio() == blank.ratio(blank.centre), "the best one for the sum itself"


@pytest.mark.parametrize("group_by", [(), (1,)])
def test_a_data_set_that_protects_persons_looks_at_sums_at_the_price_of_blanks(
    group_by: tuple[int, ...],
) -> None:
    numbers = Number("amount", tuple(range(10, 210, 10)), integer=False)
    universe = Universe((numbers, Category("status", ("a", "b"), other=False)))
    total, within = Total(0, numbers.values), Target(value=4_000.0 * max(numbers.values))
    query = LinearQuery(EVERYTHING, range(1), group_by, total, target=within)
    engine = Calibrated(
        universe,
        Privacy(1.0, 1e-9, Unit(2, 3)),
        Accuracy(0.02, 0.01),
        CalibratedSettings(base_share=0.0),
    )
    (counting,) = engine.open_phase(200_000)
    assert isinstance(counting, RowsLook)
    engine.absorb(RowsRelease(0, counting.step, 200_000))
    look = engine.answer(query)
    assert isinstance(look, SumLook)
    assert look.shape.blank
    assert look.shape.vectors == 2, "the number of rows that count is measured too"
    ((_, step, counted),), (charge,) = look.steps, look.charges
    x = Fraction(look.shape.size)
    rho = (x**2 / grid_sigma(step) ** 2 + 1 / grid_sigma(counted) ** 2) / 2
    assert charge.rho == math.ceil(rho * 3 * 2**2 / Budget.of(PRIVACY).rho * UNITS)


def test_no_look_is_precise_enough_where_perhaps_no_row_counts() -> None:
    demand = SumDemand.of_totals(Terms.of(Accuracy(0.02, 0.01)), 0, rows=True)
    assert 0.0 < demand.limits.max() == demand.rows < float(grid_sigma(-320)) ** 2


def test_the_auditor_prices_a_look_from_its_rows() -> None:
    definition = Definition.read(
        {
            "version": 1,
            "dataset": "d",
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 100},
            "attributes": [
                {"name": "g", "type": "category", "values": ["a", "b", "c"], "other": False},
                {"name": "x", "type": "number", "edges": [1, 2]},
            ],
        }
    )
    budget = Budget.of(PRIVACY)
    line = Line(budget.rho, Fraction(0), linear=False, recorded=True)
    of_persons = replace(line, unit=UnitSpec(key="user_id", rows_per_phase=1, phases=1))
    prices = Prices(budget)
    for shape, step, counted in product([*SHAPES, *BLANKS], (200, 260), (150, 220)):
        look = {
            "kind": "sums",
            "predicate": "00",
            "attributes": [0, 1],
            "attribute": 1,
            "group_by": [0] if shape.grouped else [],
            "answers": 3 if shape.grouped else 1,
            "every_row": shape.every_row,
            "rests": shape.rests,
            "range": [shape.low, shape.high],
            "centre": shape.centre,
            "unit": 0.5,
            "blocks": [[0, step, counted] if shape.counts else [0, step]],
        }
        priced = Looks(definition, of_persons if shape.blank else line)
        ((block, due),) = priced.owed(look, [100])
        sigma = grid_sigma(counted) if shape.counts else None
        units = prices.of(shape.rho(grid_sigma(step), sigma))
        assert (block, due.rho.least, due.rho.most) == (0, units, units)
    for broken in (
        {"answers": 4},
        {"range": [3, 1]},
        {"range": [0, 0.5]},
        {"centre": None},
        {"rests": 1},
        {"every_row": True, "rests": True},
        {"attribute": 0},
        {"blocks": [[0, 200]]},
        {"blocks": [[1, 200, 150]]},
    ):
        with pytest.raises(Wrong):
            priced.owed({**look, **broken}, [100])


# ---------------------------------------------------------------- whole numbers

AMOUNTS = (2.5, 7.5, 15.0, 25.0, 40.0, 62.5, 87.5, 125.0, 175.0, 225.0, 275.0, 400.0, 500.0)
AMOUNT, STATUS = range(2)


def asked(
    values: tuple[float, ...], cells: list[int] | None = None, group_by: tuple[int, ...] = ()
) -> LinearQuery:
    predicate = EVERYTHING
    if cells is not None:
        mask = np.zeros(len(values), dtype=np.bool_)
        mask[cells] = True
        predicate = Predicate.conjunction({AMOUNT: mask})
    return LinearQuery(predicate, range(1), group_by, Total(AMOUNT, values))


@pytest.mark.parametrize(
    ("values", "cells", "unit", "ends"),
    [
        (AMOUNTS, None, 0.1, (25, 5000)),
        (AMOUNTS, [10, 11, 12], 1.0, (275, 500)),
        ((0.0, 20.0, 300.0), None, 10.0, (0, 30)),
        ((-1.25, 7.0), None, 0.01, (-125, 700)),
        ((7.0, 0.0), [0], 1.0, (7, 8)),
    ],
)
def test_the_unit_is_the_largest_power_of_ten_that_divides_what_counts(
    values: tuple[float, ...], cells: list[int] | None, unit: float, ends: tuple[int, int]
) -> None:
    whole = WholeValues.of(asked(values, cells))
    assert (whole.unit, (whole.low, whole.high), whole.slack) == (unit, ends, 0.0)


def test_values_that_no_unit_divides_are_rounded_and_the_bar_says_so() -> None:
    values = (0.0, 1.0 / 3.0, 2.0)
    whole = WholeValues.of(asked(values))
    assert whole.high - whole.low <= 2**20
    assert 0.0 < whole.slack <= whole.unit / 2
    for value, number in zip(values, whole.numbers, strict=True):
        assert abs(number * whole.unit - value) <= whole.slack * (1 + 1e-9)


# ---------------------------------------------------------------- the look itself

N_STATUS = 5
UNIVERSE = Universe(
    (
        Number(
            "amount",
            (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500),
            representatives=AMOUNTS,
            missing=True,
        ),
        Category("status", tuple("abcde"), other=False),
    )
)
VALUES = (*AMOUNTS, 0.0)
PRESENT = np.arange(14) < 13


def present(*statuses: int) -> Predicate:
    """Rows with an amount, of these statuses; of all if none is given."""
    factors = {AMOUNT: PRESENT}
    if statuses:
        factors[STATUS] = np.isin(np.arange(N_STATUS), statuses)
    return Predicate.conjunction(factors)


def block_of(n_rows: int, seed: int) -> Block:
    draw = np.random.default_rng(seed)
    amount = np.minimum(draw.geometric(0.2, n_rows) - 1, 13).astype(np.uint8)
    status = draw.choice(N_STATUS, n_rows, p=[0.6, 0.2, 0.1, 0.07, 0.03]).astype(np.uint8)
    return Block.seal(UNIVERSE, Rows((amount, status), None))


def query(
    predicate: Predicate, *, by_status: bool = False, rows: Predicate | None = None, phases: int = 1
) -> LinearQuery:
    group_by = (STATUS,) if by_status else ()
    return LinearQuery(predicate, range(phases), group_by, Total(AMOUNT, VALUES), rows)


class Trial:
    """A data set that is asked for sums, and what it took."""

    def __init__(
        self, noise: NoiseSource, n_rows: int = 20_000, phases: int = 1, **more: object
    ) -> None:
        settings = {"error": 0.02, "beta": 0.01, "base_share": 0.0, "pacing": False} | more
        accuracy = Accuracy(settings.pop("error"), settings.pop("beta"))  # type: ignore[arg-type]
        self.mechanism = Calibrated(UNIVERSE, PRIVACY, accuracy, CalibratedSettings(**settings))  # type: ignore[arg-type]
        self.noise, self.data = noise, Blocks(UNIVERSE)
        self.looks: list[Look] = []
        self.stored: list[int | bytes] = []
        for phase in range(phases):
            self.data.append(block_of(n_rows, phase))
            self.stored.append(n_rows)
            for look in self.mechanism.open_phase(n_rows):
                self.take(look)

    def take(self, look: Look) -> bytes:
        look.reserve(self.noise)
        self.mechanism.charged(look.charges)
        stored = look.take(self.noise, self.data).to_bytes()
        self.looks.append(look)
        self.stored.append(stored)
        self.mechanism.absorb(self.mechanism.release_from_bytes(stored))
        return stored

    def ask(self, query: LinearQuery) -> Summed:
        step = self.mechanism.answer(query)
        if isinstance(step, Look):
            release = self.mechanism.release_from_bytes(self.take(step))
            step = self.mechanism.conclude(query, step, release)
        assert isinstance(step, Summed)
        return step

    def truth(self, query: LinearQuery) -> npt.NDArray[np.float64]:
        """Sum and count of each answer, and the rows of the condition; shape (3, answers)."""
        table = self.data.marginal((AMOUNT, STATUS), query.window).sum(axis=0)
        masks = []
        for predicate in (query.predicate, query.rows or query.predicate):
            shape = [n if a in predicate.attributes else 1 for a, n in enumerate(table.shape)]
            masks.append(table * predicate.mask.reshape(shape))
        each = [np.array(VALUES) @ masks[0], masks[0].sum(axis=0), masks[1].sum(axis=0)]
        return np.array([part if query.group_by else part.sum(keepdims=True) for part in each])


EVERY = [
    query(present()),
    query(present(0)),
    query(present(1, 2), rows=Predicate.conjunction({STATUS: np.isin(np.arange(5), [1, 2])})),
    query(present(), by_status=True),
    query(present(), by_status=True, rows=EVERYTHING),
    query(present(0, 1), by_status=True),
]
IDS = ["all", "one status", "and rows", "by status", "by status and rows", "two of them"]


@pytest.mark.parametrize("wanted", EVERY, ids=IDS)
def test_what_a_look_adds_noise_to_is_the_sum_and_the_count(wanted: LinearQuery) -> None:
    trial = Trial(QuickNoise(1, 0.0))
    look = trial.mechanism.answer(wanted)
    assert isinstance(look, SumLook)
    exact = exact_sums(look, trial.data, 0)
    total, count, rows = trial.truth(wanted)
    assert exact[1] == pytest.approx(count)
    unit, centre = look.values.unit, look.shape.centre
    assert unit * (exact[0] + centre * exact[1]) / 2 == pytest.approx(total)
    if look.shape.rests:
        assert exact[1] + exact[2] == pytest.approx(rows)
    outcome = trial.ask(wanted)
    assert outcome.path is Path.MEASURED
    assert [cell.total for cell in outcome.cells] == pytest.approx(total.tolist())
    assert [cell.count for cell in outcome.cells] == pytest.approx(count.tolist())
    if wanted.rows is not None:
        assert [cell.rows for cell in outcome.cells] == pytest.approx(rows.tolist())


@pytest.mark.parametrize("wanted", EVERY, ids=IDS)
@pytest.mark.parametrize("phases", [1, 3])
def test_a_sum_keeps_its_promise_at_a_price_below_that_of_the_table(
    wanted: LinearQuery, phases: int
) -> None:
    wanted = replace(wanted, window=range(phases))
    trial = Trial(QuickNoise(2), phases=phases)
    n_rows = 20_000 * phases
    outcome = trial.ask(wanted)
    (look,) = trial.looks
    assert isinstance(look, SumLook)
    for cell in outcome.cells:
        assert cell.total_bar is not None
        assert cell.total_bar <= 0.02 * n_rows * 500.0 * (1 + 1e-6)
        if wanted.rows is not None:
            assert cell.rows_bar is not None
            assert cell.rows_bar <= 0.02 * n_rows * (1 + 1e-6)
    again = trial.ask(wanted)
    assert again.path is Path.CERTIFIED
    assert again.cells == outcome.cells


def test_every_row_in_one_answer_needs_no_count() -> None:
    numbers = Universe((Number("x", (1, 2, 3), representatives=(0, 1, 2, 3)),))
    mechanism = Calibrated(
        numbers, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
    )
    mechanism.open_phase(20_000)
    wanted = LinearQuery(EVERYTHING, range(1), (), Total(0, (0.0, 1.0, 2.0, 3.0)), EVERYTHING)
    look = mechanism.answer(wanted)
    assert isinstance(look, SumLook | TablesLook)
    if isinstance(look, SumLook):
        assert (look.shape.vectors, look.shape.every_row) == (1, True)
        assert all(len(block) == 2 for block in look.description["blocks"])  # type: ignore[attr-defined]


def test_the_counts_of_a_look_serve_queries_for_counts() -> None:
    trial, counts = Trial(QuickNoise(3)), LinearQuery(present(), range(1), (STATUS,))
    (before,) = trial.mechanism.quote(counts).charges
    trial.ask(query(present(), by_status=True))
    (after,) = trial.mechanism.quote(counts).charges
    assert after.rho < 0.65 * before.rho


def test_what_was_stored_says_the_same_after_a_restart() -> None:
    trial = Trial(QuickNoise(4), phases=2)
    wanted = [replace(each, window=range(2)) for each in EVERY]
    found = [trial.ask(each).cells for each in wanted]
    found = [trial.ask(each).cells for each in wanted]
    other = Trial(QuickNoise(5), phases=0)
    for entry in trial.stored:
        if isinstance(entry, int):
            other.mechanism.open_phase(entry)
        else:
            other.mechanism.absorb(other.mechanism.release_from_bytes(entry))
    assert [other.ask(each).cells for each in wanted] == found
    assert other.looks == []


def test_large_blocks_and_wide_offsets_are_left_to_the_table() -> None:
    mechanism = Calibrated(
        UNIVERSE, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
    )
    mechanism.open_phase(2**41)
    assert isinstance(mechanism.answer(EVERY[1]), TablesLook)
    far = Universe((Number("x", (1e30,), representatives=(1e30 - 2e14, 1e30)),))
    mechanism = Calibrated(far, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0))
    mechanism.open_phase(20_000)
    wanted = LinearQuery(EVERYTHING, range(1), (), Total(0, (1e30 - 2e14, 1e30)))
    assert not isinstance(mechanism.answer(wanted), SumLook)


# ---------------------------------------------------------------- memory


def test_two_estimates_are_combined_as_gauss_and_markov_say() -> None:
    draw = np.random.default_rng(6)
    for _ in range(50):
        parts, precision, weighted = [], np.zeros((2, 2)), np.zeros((2, 3))
        for _ in range(2):
            root = draw.normal(size=(2, 2))
            cov = root @ root.T + 0.01 * np.eye(2)
            values = draw.normal(size=(2, 3))
            parts.append(SumEstimate(values[0], values[1], cov[0, 0], cov[1, 1], cov[0, 1]))
            precision += np.asarray(np.linalg.inv(cov), np.float64)
            weighted += np.asarray(np.linalg.inv(cov), np.float64) @ values
        best, left = parts[0].with_another(parts[1]), np.linalg.inv(precision)
        assert np.array([best.totals, best.counts]) == pytest.approx(left @ weighted)
        assert [best.of_totals, best.both, best.of_counts] == pytest.approx(
            [left[0, 0], left[0, 1], left[1, 1]]
        )


def remembering(*, table: float | None, status: float | None = None) -> tuple[Belief, LinearQuery]:
    """Tables with so much noise on a cell, and a look at the query."""
    belief, wanted = Belief(UNIVERSE.shape), query(present(0))
    belief.open_block(1000)
    counts = np.arange(70.0).reshape(14, 5)
    if table is not None:
        belief.absorb_table((AMOUNT, STATUS), 0, counts, table)
    if status is not None:
        belief.absorb_table((STATUS,), 0, counts.sum(axis=0), status)
    return belief, wanted


def test_a_look_and_tables_are_combined_as_gauss_and_markov_say() -> None:
    belief, wanted = remembering(table=100.0)
    before = belief.sums(wanted).sums
    look = SumEstimate(np.array([7e4]), np.array([440.0]), 4e7, 90.0, 1e4)
    key = replace(wanted, rows=None).key
    belief.absorb_sums(key, (0, 1), 0, look)
    after = belief.sums(wanted).sums
    tables = np.array(
        [
            [before.moments.totals[0], before.moments.both[0]],
            [before.moments.both[0], before.moments.counts[0]],
        ]
    )
    looked = np.array([[4e7 / 500**2, 1e4 / 500], [1e4 / 500, 90.0]])
    inverses = np.linalg.inv(tables), np.linalg.inv(looked)
    cov = np.linalg.inv(inverses[0] + inverses[1])
    best: npt.NDArray[np.float64] = cov @ (
        inverses[0] @ [before.totals[0], before.counts[0]] + inverses[1] @ [7e4 / 500, 440.0]
    )
    assert [after.totals[0], after.counts[0]] == pytest.approx(best.tolist())
    assert after.moments.totals[0] == pytest.approx(cov[0, 0])
    assert after.moments.both[0] == pytest.approx(cov[0, 1])
    assert after.moments.counts[0] == pytest.approx(cov[1, 1])


def test_a_table_that_knows_the_count_alone_helps_the_total_by_it() -> None:
    """Of all rows with a status, with an amount or not, nothing is known; so it does not help here."""
    belief, wanted = remembering(table=None, status=25.0)
    look = SumEstimate(np.array([7e4]), np.array([440.0]), 4e7, 90.0, 1e4)
    belief.absorb_sums(wanted.key, (0, 1), 0, look)
    known = belief.sums(wanted).sums
    assert known.moments.totals[0] == pytest.approx(4e7 / 500**2)
    # Where every row counts, the status alone says how many: regress the total on that count.
    plain = LinearQuery(
        Predicate.conjunction({STATUS: np.arange(5) == 0}), range(1), (), Total(0, VALUES)
    )
    belief.absorb_sums(plain.key, (0, 1), 0, look)
    known = belief.sums(plain).sums
    # One cell of five whose sum is public has four fifths of the noise.
    left = 4e7 - 1e4**2 / (90.0 + 20.0)
    count = 1.0 / (1.0 / 90.0 + 1.0 / 20.0)
    assert known.moments.totals[0] == pytest.approx(left / 500**2)
    assert known.moments.counts[0] == pytest.approx(count)


def test_a_filter_is_answered_by_the_groups_that_add_up_to_it() -> None:
    """One group costs nothing; two have twice the noise, so that a little is lacking; and all of them."""
    trial = Trial(QuickNoise(21))
    groups = trial.ask(query(present(), by_status=True))
    paid = trial.ask(query(present(0)))
    assert paid.path is Path.CERTIFIED
    assert paid.cells == groups.cells[:1]
    assert len(trial.looks) == 1
    known = trial.mechanism.state.belief.sums(query(present(0, 2))).sums
    one = trial.mechanism.state.belief.sums(query(present(0))).sums
    each = 500.0 * trial.mechanism.state.belief.sums(query(present(), by_status=True)).sums.totals
    shown = [cell.total for cell in groups.cells]
    assert shown == pytest.approx(np.maximum(each, 0.0)), "no total of such amounts is below 0"
    assert known.totals[0] * 500.0 == pytest.approx(each[0] + each[2])
    assert known.moments.totals[0] == pytest.approx(2.0 * one.moments.totals[0])
    assert known.moments.both[0] == pytest.approx(2.0 * one.moments.both[0])
    every = trial.mechanism.state.belief.sums(query(present())).sums
    assert every.totals[0] * 500.0 == pytest.approx(each.sum())
    assert every.moments.totals[0] == pytest.approx(5.0 * one.moments.totals[0])
    # A condition that is not a product, or on the amount itself, has no such groups.
    some = Predicate.conjunction({AMOUNT: np.arange(14) < 5, STATUS: np.arange(5) == 0})
    assert not trial.mechanism.state.belief.sums(query(some)).looked
    odd = np.zeros((14, 5), dtype=np.bool_)
    odd[:3, :2] = odd[3:9, 1:] = True
    assert not trial.mechanism.state.belief.sums(query(Predicate.of_mask((0, 1), odd))).looked


def test_groups_and_a_look_of_its_own_are_combined() -> None:
    trial = Trial(QuickNoise(22))
    trial.ask(query(present(), by_status=True))
    before = trial.mechanism.state.belief.sums(query(present(0, 1, 2))).sums.moments.totals[0]
    n_looks = len(trial.looks)
    outcome = trial.ask(query(present(0, 1, 2)))
    assert outcome.path is Path.MEASURED
    (look,) = trial.looks[n_looks:]
    fresh = Trial(QuickNoise(23)).mechanism.quote(query(present(0, 1, 2)))
    assert look.charges[0].rho < fresh.charges[0].rho
    after = trial.mechanism.state.belief.sums(query(present(0, 1, 2))).sums.moments.totals[0]
    assert after < before
    (cell,) = outcome.cells
    (total,), _, _ = trial.truth(query(present(0, 1, 2)))
    assert cell.total_bar is not None
    assert abs(cell.total - total) <= cell.total_bar


def test_what_is_known_by_tables_makes_the_look_cheaper() -> None:
    alone, helped = Trial(QuickNoise(7)), Trial(QuickNoise(7), base_share=0.0005)
    prices = []
    for trial in (alone, helped):
        n_before = len(trial.looks)
        trial.ask(EVERY[1])
        (look,) = trial.looks[n_before:]
        prices.append(look.charges[0].rho)
    assert prices[1] < prices[0]


def test_once_looks_have_cost_enough_the_table_is_bought() -> None:
    trial = Trial(QuickNoise(8), n_rows=200_000, error=0.05)
    rng = np.random.default_rng(9)
    for _ in range(200):
        chosen = rng.choice(N_STATUS, rng.integers(1, N_STATUS), replace=False)
        trial.ask(query(present(*chosen.tolist())))
        if isinstance(trial.looks[-1], TablesLook):
            break
    assert isinstance(trial.looks[0], SumLook)
    assert isinstance(trial.looks[-1], TablesLook)
    assert trial.looks[-1].charges[0].rho > trial.looks[0].charges[0].rho


# ---------------------------------------------------------------- demands


def planner_for(trial: Trial, wanted: LinearQuery, demand: SumDemand) -> SumPlanner:
    belief = trial.mechanism.state.belief
    return SumPlanner(belief.sums(wanted), None, trial.mechanism.state.evidence(wanted), demand)


def test_a_mean_can_be_asked_more_precisely_and_its_bar_says_so() -> None:
    trial, wanted = Trial(QuickNoise(10), n_rows=100_000), EVERY[1]
    outcome = trial.ask(wanted)
    (before,) = outcome.cells
    assert before.mean_bar is not None
    aim = before.mean_bar / 4.0
    known = trial.mechanism.state.belief.sums(wanted).sums
    demand = SumDemand.of_means(known, aim / 500.0, Z)
    assert demand is not None
    planner = planner_for(trial, wanted, demand)
    prices = Prices(trial.mechanism.state.promise.budget)
    measure = planner.look(prices, trial.mechanism.lines.left(range(1)))
    assert isinstance(measure, MeasureSums)
    assert measure.shape.centre != measure.shape.low + measure.shape.high, "near twice the mean"
    trial.take(SumLook(wanted, measure.values, measure.shape, measure.steps, 1, measure.charges))
    (after,) = trial.ask(wanted).cells
    assert after.mean_bar is not None
    assert 0.9 * aim < after.mean_bar <= 1.1 * aim
    # The centre of the values would have cost more for the same mean.
    centred = replace(measure.shape, centre=measure.shape.low + measure.shape.high)
    twice = 2.0 * float(demand.slopes[0]) * 500.0 / measure.values.unit
    dearer = planner._look_of(
        measure.values,
        centred,
        centred.ratio(twice - centred.centre),
        prices,
        trial.mechanism.lines.left(range(1)),
    )
    assert dearer is not None
    assert measure.total < dearer.total


def test_a_mean_of_which_nothing_is_known_cannot_be_planned() -> None:
    trial = Trial(QuickNoise(11))
    known = trial.mechanism.state.belief.sums(EVERY[1]).sums
    assert SumDemand.of_means(known, 0.01, Z) is None


def test_terms_of_a_query_say_how_precise_its_total_must_be() -> None:
    """A query with an error of its own is planned with these terms; nothing else changes."""
    trial = Trial(QuickNoise(12))
    prices = Prices(trial.mechanism.state.promise.budget)
    totals = []
    for error in (0.02, 0.01):
        demand = SumDemand.of_totals(Terms.of(Accuracy(error, 0.01)), 20_000, rows=False)
        look = planner_for(trial, EVERY[1], demand).look(prices, np.array([UNITS]))
        assert look is not None
        totals.append(look.total)
    assert totals[1] / totals[0] == pytest.approx(4.0, rel=0.1)


# ---------------------------------------------------------------- bars


class Wider(FakeNoise):
    """Rounded normal noise of another scale than the one asked for."""

    def __init__(self, seed: int, factor: float) -> None:
        self._noise = QuickNoise(seed, factor)

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._noise.gaussian(sigma, size)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False)])
def test_bars_of_sums_counts_and_means_cover_as_often_as_they_say(
    factor: float, holds: bool
) -> None:
    """At 80%. False alarm 1e-6 for each of three; noise a tenth wider than said is noticed."""
    phases, rounds = 60, 16
    covered = np.zeros(3, dtype=np.int64)
    tried = 0
    for number in range(rounds):
        trial = Trial(Wider(number, factor), n_rows=20_000, phases=phases, error=0.01, beta=0.2)
        for phase in range(phases):
            wanted = replace(
                query(present(0, 1, 2), by_status=True), window=range(phase, phase + 1)
            )
            total, count, _ = trial.truth(wanted)
            for cell, exact, rows in zip(trial.ask(wanted).cells[:3], total, count, strict=False):
                assert cell.total_bar is not None
                assert cell.count_bar is not None
                assert cell.mean is not None
                assert cell.mean_bar is not None
                covered[0] += abs(cell.total - exact) <= cell.total_bar
                covered[1] += abs(cell.count - rows) <= cell.count_bar
                covered[2] += abs(cell.mean - exact / rows) <= cell.mean_bar
                tried += 1
    for found in covered.tolist():
        alarm = binomtest(found, tried, 0.8, "less").pvalue < ALARM
        assert alarm is not holds


def test_a_bar_wider_than_all_values_is_none() -> None:
    trial = Trial(QuickNoise(13), n_rows=2000, error=0.5)
    rare = trial.ask(query(present(), by_status=True)).cells[-1]
    assert rare.mean_bar is None or rare.mean_bar <= 497.5
    assert (rare.mean is None) is (rare.mean_bar is None)


def test_releases_of_another_universe_are_noticed() -> None:
    trial = Trial(QuickNoise(14))
    trial.ask(EVERY[3])
    stored = trial.stored[-1]
    assert isinstance(stored, bytes)
    release = trial.mechanism.release_from_bytes(stored)
    assert isinstance(release, SumRelease)
    assert release.to_bytes() == stored
