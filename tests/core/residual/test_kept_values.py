"""Sums of the values themselves: what a look adds up, its price over all pairs of rows, and its bars.

The exact check of Theorem 19: each pair of raw rows goes through the encoding, the block and the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from stream_dp.audit.line_limits import Line
from stream_dp.audit.look_charges import Looks, _ends_of_bins
from stream_dp.audit.numbers import Wrong
from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Path, Summed
from stream_dp.core.queries.conditions import compile_group_by, compile_total
from stream_dp.core.queries.query import LinearQuery, Total
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.sums import SumEvidence
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.residual.looks.table_looks import QUERY, Part, TablesLook
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Category, Number, Rows, Universe
from stream_dp.messages import Definition, NumberAttribute
from tests.noise import FakeNoise, QuickNoise
from tests.slow import rest_is_slow

ALARM = 1e-6
ROUNDS = 40
PRIVACY = Privacy(1.0, 1e-9)
AMOUNT, STATUS = range(2)

Raw = tuple[float | None, str]


def asked(
    universe: Universe,
    where: dict[str, Any] | None = None,
    group_by: Sequence[str] = (),
    *,
    count_rows: bool = False,
    phases: int = 1,
    up_to: float | None = None,
) -> LinearQuery:
    total, every, predicate = compile_total(universe, "amount", where, group_by, up_to)
    groups = compile_group_by(universe, group_by, predicate) if group_by else ()
    return LinearQuery(predicate, range(phases), groups, total, every if count_rows else None)


def sealed(universe: Universe, raw: Sequence[Raw]) -> Blocks:
    columns: dict[str, list[Any]] = {
        "amount": [amount for amount, _ in raw],
        "status": [status for _, status in raw],
    }
    return Blocks(universe, [Block.seal(universe, universe.encode_columns(columns))])


# ---------------------------------------------------------------- the price, over all pairs of rows

SMALL = Universe(
    (
        Number("amount", (2, 4), missing=True, measure=Measure(0.5, 1.0, 5.0)),
        Category("status", ("a", "b", "c"), other=False),
    )
)
RAW: list[Raw] = [
    (amount, status)
    for amount, status in product((None, -7.0, 1.2, 1.9, 2.0, 3.3, 3.9, 4.0, 4.6, 99.0), "abc")
]
AMONG = [
    (where, group_by, rows, None)
    for where in (
        None,
        {"attribute": "amount", "lt": 2},
        {"attribute": "amount", "ge": 2},
        {"all": [{"attribute": "amount", "ge": 2}, {"attribute": "amount", "lt": 4}]},
        {"attribute": "status", "eq": "a"},
        {
            "any": [
                {"attribute": "status", "eq": "a"},
                {"all": [{"attribute": "amount", "ge": 4}, {"attribute": "status", "eq": "b"}]},
            ]
        },
    )
    for group_by in ((), ("status",))
    for rows in (False, True)
] + [
    (where, group_by, False, up_to)
    for where in (None, {"attribute": "amount", "ge": 2}, {"attribute": "amount", "ge": 4})
    for group_by in ((), ("status",))
    for up_to in (2.0, 4.0)
]
SCALES = ((3.0, 1.0), (20.0, 1.0), (3.0, 6.0))

Sums = Callable[[SumLook, Blocks, int], npt.NDArray[np.int64]]


def looks() -> Iterator[SumLook]:
    """Looks at the small data set: every query, each with several centres."""
    for where, group_by, counted, up_to in AMONG:
        query = asked(SMALL, where, group_by, count_rows=counted, up_to=up_to)
        values = WholeValues.of(query)
        every = query.predicate.constant is True
        rests = counted and not every and query.rows != query.predicate
        rests = rests and not (query.rows is not None and query.rows.constant and not group_by)
        shape = SumShape(
            values.low, values.high, values.low + values.high, bool(group_by), every, rests
        )
        for centre in {shape.centre, 2 * values.low, 2 * values.high, shape.centre + 1}:
            tried = replace(shape, centre=centre)
            yield SumLook(query, values, tried, ((0, 0, 0),), 3 if group_by else 1, ())


def overcharged(added_up: Sums) -> Iterator[bool]:
    """For each look and scale whether some pair of rows loses more than the price, by Theorem 1."""
    each = [sealed(SMALL, [raw]) for raw in RAW]
    for look in looks():
        vectors = [added_up(look, data, 0) for data in each]
        every = {
            tuple(np.square(one - other).sum(axis=1).tolist())
            for one, other in combinations(vectors, 2)
        }
        for tau, sigma in SCALES:
            scales = [Fraction(tau), *[Fraction(sigma)] * (look.shape.vectors - 1)]
            worst = max(
                sum(
                    (Fraction(q) / (2 * s * s) for q, s in zip(squares, scales, strict=True)),
                    Fraction(0),
                )
                for squares in every
            )
            price = look.shape.rho(scales[0], scales[1] if look.shape.counts else None)
            yield worst > price


def test_no_pair_of_rows_loses_more_than_the_price_of_a_look() -> None:
    found = list(overcharged(exact_sums))
    assert len(found) > 200
    assert not any(found)


def test_no_row_that_becomes_blank_loses_more_than_the_price_of_a_look() -> None:
    each = [sealed(SMALL, [raw]) for raw in RAW]
    forgotten = False
    for look in looks():
        blank = replace(look, shape=replace(look.shape, blank=True))
        for tau, sigma in SCALES:
            scales = [Fraction(tau), *[Fraction(sigma)] * (blank.shape.vectors - 1)]
            losses = [
                sum(
                    Fraction(int(np.square(vector).sum())) / (2 * scale**2)
                    for vector, scale in zip(exact_sums(blank, data, 0), scales, strict=True)
                )
                for data in each
            ]
            assert max(losses) <= blank.shape.rho(scales[0], scales[1])
            forgotten |= max(losses) > Fraction(blank.shape.size) ** 2 / (2 * scales[0] ** 2)
    assert forgotten, "a price without the count is too low for some row"


def values_outside_their_cells(look: SumLook, data: Blocks, block: int) -> npt.NDArray[np.int64]:
    """As if a row's value were not held between the ends of its cell."""
    exact = exact_sums(look, data, block)
    (rows,) = data.marginal((AMOUNT,), range(block, block + 1))
    exact[0] += 2 * int(rows[2]) * (exact[0] != 0)
    return exact


def unclamped(look: SumLook, data: Blocks, block: int) -> npt.NDArray[np.int64]:
    """As if a row at the upper end counted for a unit more."""
    exact = exact_sums(look, data, block)
    (above,) = data.totals(AMOUNT, (), range(block, block + 1))
    exact[0] += 2 * (above == 8) * (exact[0] != 0)
    return exact


def counted_from_another_end(look: SumLook, data: Blocks, block: int) -> npt.NDArray[np.int64]:
    """As if the lower end of the attribute were 0."""
    assert look.query.total is not None
    assert look.query.total.kept is not None
    kept = replace(look.query.total.kept, base=0)
    moved = replace(look.query, total=replace(look.query.total, kept=kept))
    return exact_sums(replace(look, query=moved), data, block)


@pytest.mark.parametrize(
    "broken",
    rest_is_slow([unclamped, values_outside_their_cells, counted_from_another_end], first=1),
)
def test_a_copy_that_adds_up_other_values_is_noticed(broken: Sums) -> None:
    assert any(overcharged(broken))


def test_the_range_is_that_of_the_bins_that_the_condition_leaves() -> None:
    below = WholeValues.of(asked(SMALL, {"attribute": "amount", "lt": 2}))
    assert (below.low, below.high, below.unit, below.slack) == (2, 4, 0.5, 0.0)
    every = WholeValues.of(asked(SMALL))
    assert (every.low, every.high) == (2, 10)
    apart = WholeValues.of(
        asked(
            Universe((Number("amount", (9, 10), measure=Measure(1.0, 0.0, 5.0)),)),
            {"attribute": "amount", "ge": 10},
        )
    )
    assert (apart.low, apart.high) == (5, 6), "one value gets noise as if there were a second one"
    below_zero = WholeValues.of(
        asked(Universe((Number("amount", (-2, 4), measure=Measure(0.5, -5.0, 5.0)),)))
    )
    assert (below_zero.low, below_zero.high) == (-10, 10)


# ---------------------------------------------------------------- what is added up

EDGES = (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500)
ORDERS = Universe(
    (
        Number("amount", EDGES, missing=True, measure=Measure(0.01, 0.0, 500.0)),
        Category("status", tuple("abcde"), other=False),
    )
)


@cache
def orders(n_rows: int, seed: int) -> list[Raw]:
    draw = np.random.default_rng(seed)
    amounts = np.exp(draw.normal(3.6, 0.95, n_rows)).round(3)
    unknown = draw.random(n_rows) < 0.1
    status = draw.choice(list("abcde"), n_rows, p=[0.6, 0.2, 0.1, 0.07, 0.03])
    return [
        (None if no else amount, str(s))
        for amount, no, s in zip(amounts.tolist(), unknown.tolist(), status, strict=True)
    ]


@cache
def block_of(n_rows: int, seed: int) -> Block:
    raw = orders(n_rows, seed)
    columns: dict[str, list[Any]] = {
        "amount": [amount for amount, _ in raw],
        "status": [status for _, status in raw],
    }
    return Block.seal(ORDERS, ORDERS.encode_columns(columns))


def kept(amount: float) -> Fraction:
    return Fraction(round(min(Fraction(repr(amount)), Fraction(500)) * 100), 100)


ASKED: list[tuple[dict[str, Any] | None, tuple[str, ...], Callable[[Raw], bool]]] = [
    (None, (), lambda raw: raw[0] is not None),
    ({"attribute": "status", "eq": "b"}, (), lambda raw: raw[0] is not None and raw[1] == "b"),
    ({"attribute": "amount", "lt": 50}, (), lambda raw: raw[0] is not None and raw[0] < 50),
    (
        {
            "any": [
                {"attribute": "amount", "ge": 500},
                {"all": [{"attribute": "amount", "lt": 5}, {"attribute": "status", "eq": "a"}]},
            ]
        },
        (),
        lambda raw: raw[0] is not None and (raw[0] >= 500 or (raw[0] < 5 and raw[1] == "a")),
    ),
    (None, ("status",), lambda raw: raw[0] is not None),
    ({"attribute": "amount", "ge": 75}, ("status",), lambda raw: (raw[0] or 0) >= 75),
]


def truth(
    raw: Sequence[Raw], group_by: tuple[str, ...], counts: Callable[[Raw], bool]
) -> tuple[list[Fraction], list[int]]:
    """The sum of the clamped and rounded values and their number, of each answer."""
    groups = "abcde" if group_by else ["abcde"]
    sums, numbers = [], []
    for group in groups:
        amounts = [one[0] for one in raw if counts(one) and one[1] in group]
        sums.append(sum((kept(a) for a in amounts if a is not None), Fraction(0)))
        numbers.append(len(amounts))
    return sums, numbers


@cache
def by_status(n_rows: int, seed: int) -> tuple[list[Fraction], list[int]]:
    return truth(orders(n_rows, seed), ("status",), lambda one: one[0] is not None)


@pytest.mark.parametrize(("where", "group_by", "counts"), ASKED)
def test_a_look_adds_up_the_values_of_rows(
    where: dict[str, Any] | None, group_by: tuple[str, ...], counts: Callable[[Raw], bool]
) -> None:
    raw = orders(3_000, 5)
    query = asked(ORDERS, where, group_by)
    values = WholeValues.of(query)
    shape = SumShape(values.low, values.high, values.low + values.high, bool(group_by), False)
    look = SumLook(query, values, shape, ((0, 0, 0),), 5 if group_by else 1, ())
    sums, numbers = exact_sums(look, sealed(ORDERS, raw), 0).tolist()
    wanted, rows = truth(raw, group_by, counts)
    assert numbers == rows
    found = [Fraction(x + shape.centre * n, 2) / 100 for x, n in zip(sums, numbers, strict=True)]
    assert found == wanted


# ---------------------------------------------------------------- what is known, and the bars


class Trial:
    """A data set of orders that is asked for sums, and what it took."""

    def __init__(
        self, noise: NoiseSource, n_rows: int = 20_000, phases: int = 1, **more: Any
    ) -> None:
        accuracy = Accuracy(more.pop("error", 0.02), more.pop("beta", 0.01))
        settings = {"base_share": 0.0, "pacing": False} | more
        self.mechanism = Calibrated(ORDERS, PRIVACY, accuracy, CalibratedSettings(**settings))
        self.noise, self.data = noise, Blocks(ORDERS)
        self.raw = [orders(n_rows, seed) for seed in range(phases)]
        self.looks: list[Look] = []
        for phase in range(phases):
            self.data.append(block_of(n_rows, phase))
            for look in self.mechanism.open_phase(n_rows):
                self.take(look)

    def take(self, look: Look) -> Release:
        look.reserve(self.noise)
        self.mechanism.charged(look.charges)
        stored = look.take(self.noise, self.data).to_bytes()
        self.looks.append(look)
        release = self.mechanism.release_from_bytes(stored)
        self.mechanism.absorb(release)
        return release

    def ask(self, query: LinearQuery) -> Summed:
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            step = self.mechanism.conclude(query, step, self.take(step))
        assert isinstance(step, Summed)
        return step

    def table(self, block: int, units: int = UNITS // 10) -> None:
        """Measures the table over amounts and statuses."""
        prices = Prices(self.mechanism.state.promise.budget)
        step = prices.least_step(units, 2)
        assert step is not None
        charges = (Charge(block, prices.units(step, 2)),)
        self.take(
            TablesLook(QUERY, (Part((AMOUNT, STATUS), block, step),), (ORDERS.shape,), charges)
        )


EVERY, BY_STATUS = asked(ORDERS), asked(ORDERS, None, ["status"])


def test_tables_say_how_many_rows_there_are_and_not_what_they_count_for() -> None:
    trial = Trial(QuickNoise(1))
    trial.table(0)
    known = trial.mechanism.state.belief.sums(BY_STATUS).sums
    assert np.isinf(known.moments.totals).all()
    assert not known.moments.both.any()
    assert np.isfinite(known.moments.counts).all()
    step = trial.mechanism.answer(BY_STATUS)
    assert isinstance(step, SumLook), "a table does not certify it, nor is one bought"
    assert step.description["measured"] is True


def test_counts_of_a_look_are_combined_with_tables_and_totals_are_not() -> None:
    trials = [Trial(QuickNoise(2)), Trial(QuickNoise(2))]
    trials[1].table(0)
    alone, both = (trial.mechanism for trial in trials)
    step = alone.answer(BY_STATUS)
    assert isinstance(step, SumLook)
    sums = []
    for mechanism, trial in zip((alone, both), trials, strict=True):
        before = mechanism.state.belief.sums(BY_STATUS).sums.moments.counts
        trial.take(step)
        sums.append(mechanism.state.belief.sums(BY_STATUS).sums)
        assert (sums[-1].variance_of_counts < before).all()
    assert (sums[1].variance_of_counts < sums[0].variance_of_counts).all()
    # The count corrects the total where the look's errors go together, and nothing else does.
    tau = float(grid_sigma(step.steps[0][1]))
    least = (0.5 * 0.01 * tau / 500.0) ** 2
    assert (sums[1].variance_of_totals >= least * (1.0 - 1e-9)).all()
    assert (sums[1].variance_of_totals <= sums[0].variance_of_totals * (1.0 + 1e-9)).all()


def covered(trials: Sequence[Trial]) -> tuple[npt.NDArray[np.int64], int]:
    """How many bars of totals, counts and means hold the truth, and of how many."""
    found, tried = np.zeros(3, dtype=np.int64), 0
    for trial in trials:
        for phase, raw in enumerate(trial.raw):
            query = replace(BY_STATUS, window=range(phase, phase + 1))
            sums, rows = by_status(len(raw), phase)
            cells = trial.ask(query).cells[:3]
            for cell, exact, n in zip(cells, map(float, sums), rows, strict=False):
                assert cell.total_bar is not None
                assert cell.count_bar is not None
                assert cell.mean is not None
                assert cell.mean_bar is not None
                found[0] += abs(cell.total - exact) <= cell.total_bar
                found[1] += abs(cell.count - n) <= cell.count_bar
                found[2] += abs(cell.mean - exact / n) <= cell.mean_bar
                tried += 1
    return found, tried


class Wider(FakeNoise):
    """Rounded normal noise of another scale than the one asked for."""

    def __init__(self, seed: int, factor: float) -> None:
        self._noise = QuickNoise(seed, factor)

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._noise.gaussian(sigma, size)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False)])
def test_bars_cover_the_values_themselves_as_often_as_they_say(factor: float, holds: bool) -> None:
    """At 80%, with tables besides. False alarm 1e-6 for each of three; a tenth more noise is noticed."""
    trials = []
    for seed in range(ROUNDS):
        trial = Trial(Wider(seed, factor), n_rows=4_000, phases=24, error=0.01, beta=0.2)
        for block in range(0, 24, 2):
            trial.table(block)
        trials.append(trial)
    found, tried = covered(trials)
    for times in found.tolist():
        assert (binomtest(times, tried, 0.8, "less").pvalue < ALARM) is not holds


def test_a_copy_that_takes_tables_for_the_values_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SumEvidence, "kept", property(lambda _: False))
    trials = []
    for seed in range(10):
        trial = Trial(QuickNoise(seed), n_rows=20_000, phases=6, error=0.0005, beta=0.2)
        for block in range(6):
            trial.table(block, UNITS * 9 // 10)
        trials.append(trial)
    found, tried = covered(trials)
    assert binomtest(int(found[2]), tried, 0.8, "less").pvalue < ALARM


@pytest.mark.parametrize("tables", [False, True])
def test_with_no_budget_left_the_bars_reach_to_the_ends_of_the_bins(tables: bool) -> None:
    trial = Trial(QuickNoise(3), phases=2)
    if tables:
        trial.table(0)
    trial.ask(replace(EVERY, window=range(1, 2)))
    for block in range(2):
        left = UNITS - int(trial.mechanism.lines.worst(range(block, block + 1)).rho)
        trial.mechanism.charged((Charge(block, left),))
    both = replace(EVERY, window=range(2))
    answer = trial.ask(both)
    assert answer.path is Path.UNVERIFIED
    raw = [*trial.raw[0], *trial.raw[1]]
    sums, rows = truth(raw, (), lambda one: one[0] is not None)
    (cell,) = answer.cells
    if not tables:
        assert cell.total_bar is None
        assert cell.mean_bar is None
        return
    assert cell.total_bar is not None
    assert cell.mean is not None
    assert cell.mean_bar is not None
    assert abs(cell.total - float(sums[0])) <= cell.total_bar
    assert abs(cell.mean - float(sums[0]) / rows[0]) <= cell.mean_bar
    lows, highs = (np.array(each) for each in zip(*ends(), strict=True))
    (table,) = trial.data.marginal((AMOUNT,), range(1))
    width = float(((highs - lows) @ table) / 100.0)
    assert cell.total_bar >= width / 2, "no bar is narrower than what the bins hide"
    assert cell.total_bar <= 1.5 * width, "and it is not much wider"


def ends() -> list[tuple[int, int]]:
    return list(ORDERS.measured[AMOUNT].measured_ends)


OF_AMOUNTS: dict[str, Any] = {
    "name": "amount",
    "type": "number",
    "edges": list(EDGES),
    "missing": True,
}
OF_STATUS = {"name": "status", "type": "category", "values": list("abcde"), "other": False}
AMOUNTS_KEPT = {**OF_AMOUNTS, "measure": {"unit": 0.01, "low": 0, "high": 500}}


def defined(*attributes: Any) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "d",
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 100},
            "attributes": attributes,
        }
    )


def test_the_auditor_prices_a_look_and_compares_it_with_what_is_kept() -> None:
    trial = Trial(QuickNoise(8))
    line = Line(trial.mechanism.state.promise.budget.rho, Fraction(0), linear=False, recorded=True)
    definition = defined(AMOUNTS_KEPT, OF_STATUS)
    for where, group_by, _ in ASKED:
        look = trial.mechanism.answer(asked(ORDERS, where, group_by))
        assert isinstance(look, SumLook)
        ((block, due),) = Looks(definition, line).owed(look.description, [20_000])
        assert (block, due.rho.least, due.rho.most) == (0, *(look.charges[0].rho,) * 2)
    sound = trial.mechanism.answer(EVERY)
    assert isinstance(sound, SumLook)
    for wrong in (
        {"measured": False},
        {"unit": 0.02},
        {"range": [1, 50_000]},
        {"range": [0, 49_999]},
        {"range": [0, 2]},
        {"range": [-5, 50_000]},
    ):
        with pytest.raises(Wrong):
            Looks(definition, line).owed({**sound.description, **wrong}, [20_000])
    plain = defined(OF_AMOUNTS, OF_STATUS)
    with pytest.raises(Wrong):
        Looks(plain, line).owed(sound.description, [20_000])


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("unit", [1.0, 3.0, 0.01, 7.0])
@pytest.mark.parametrize("edges", [EDGES, (-21, 0, 21, 84), (0.5, 1.25, 3.999)])
def test_the_auditor_works_the_ends_of_bins_out_by_itself(
    edges: tuple[float, ...], unit: float, integer: bool
) -> None:
    if integer and not (unit.is_integer() and all(float(e).is_integer() for e in edges)):
        return
    ends = Measure(unit, -21.0 * unit, 147.0 * unit)
    core = Number("x", edges, integer=integer, measure=ends)
    measure = {"unit": ends.unit, "low": ends.low, "high": ends.high}
    spec = {"name": "x", "type": "number", "edges": edges, "integer": integer, "measure": measure}
    (read,) = defined(spec).attributes
    assert isinstance(read, NumberAttribute)
    lows, highs = zip(*core.measured_ends, strict=True)
    assert _ends_of_bins(read) == (set(lows), set(highs))


def test_a_mean_may_name_its_error() -> None:
    trial = Trial(QuickNoise(4), n_rows=20_000)
    paid = asked(ORDERS, {"attribute": "status", "eq": "a"})
    answer = trial.ask(replace(paid, target=Target(mean=3.0)))
    sums, rows = truth(trial.raw[0], (), lambda one: one[0] is not None and one[1] == "a")
    (cell,) = answer.cells
    assert answer.path is Path.MEASURED
    assert cell.mean is not None
    assert cell.mean_bar is not None
    assert abs(cell.mean - float(sums[0]) / rows[0]) <= cell.mean_bar <= 3.0


@pytest.mark.parametrize("error", [15.0, 8.0])
def test_bars_to_the_ends_of_the_bins_may_suffice_for_the_error_of_a_mean(error: float) -> None:
    """The bins are up to 100 wide, and most are narrower. Then no look is taken."""
    trial = Trial(QuickNoise(9), n_rows=20_000)
    trial.table(0, UNITS // 2)
    answer = trial.ask(replace(EVERY, target=Target(mean=error)))
    sums, rows = truth(trial.raw[0], (), lambda one: one[0] is not None)
    (cell,) = answer.cells
    assert cell.mean is not None
    assert cell.mean_bar is not None
    assert abs(cell.mean - float(sums[0]) / rows[0]) <= cell.mean_bar <= error
    assert (answer.path is Path.CERTIFIED) is (len(trial.looks) == 1) is (error > 10.0)


def test_a_filter_is_answered_from_the_look_at_a_group_by() -> None:
    trial = Trial(QuickNoise(5), error=0.01)
    trial.ask(BY_STATUS)
    taken = len(trial.looks)
    paid = asked(ORDERS, {"attribute": "status", "in": ["a", "b"]})
    known = trial.mechanism.state.belief.sums(paid)
    assert known.looked
    assert np.isfinite(known.sums.moments.totals).all()
    trial.mechanism.answer(replace(paid, target=Target(share=0.05)))
    assert len(trial.looks) == taken


def test_bundles_imagine_the_look_and_not_its_values() -> None:
    trial = Trial(QuickNoise(6))
    rehearsal = trial.mechanism.rehearse(sparing=True)
    first, second = rehearsal.quote(BY_STATUS), rehearsal.quote(BY_STATUS)
    assert first.charges
    assert not second.charges
    assert trial.mechanism.lines.worst(range(1)).rho == 0


def test_sums_of_an_attribute_without_kept_values_have_the_keys_that_they_always_had() -> None:
    plain = Universe((replace(ORDERS.attributes[0], measure=None), ORDERS.attributes[1]))  # type: ignore[arg-type]
    query, here = asked(plain), asked(ORDERS)
    assert isinstance(query.total, Total)
    assert query.total.identity == (AMOUNT, query.total.values)
    assert query.key != here.key


def test_no_repr_shows_a_value() -> None:
    rows: Rows = ORDERS.encode_rows([{"amount": 471.13, "status": "a"}])
    block = Block.seal(ORDERS, rows)
    step = Trial(QuickNoise(7)).mechanism.answer(BY_STATUS)
    for shown in (repr(rows), repr(block), repr(Blocks(ORDERS, [block])), repr(step)):
        assert "471" not in shown
