"""Sums of the values themselves: what a look adds up, its price over all pairs of rows, and its bars.

The exact check of Theorem 19: each pair of raw rows goes through the encoding, the block and the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.outcome import Path
from stream_dp.core.queries.conditions import compile_group_by, compile_total
from stream_dp.core.queries.query import LinearQuery, Total
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.sums import SumEvidence
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.residual.looks.table_looks import QUERY, Part, TablesLook
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidQuery
from tests.core.residual.host import ALARM, Host, aimed, dearest
from tests.noise import QuickNoise
from tests.slow import rest_is_slow

AMOUNT, STATUS = range(2)
Raw = tuple[float | None, str]
Tree = dict[str, Any]


def asked(
    universe: Universe,
    where: Tree | None = None,
    group_by: Sequence[str] = (),
    *,
    count_rows: bool = False,
    up_to: float | None = None,
) -> LinearQuery:
    total, every, predicate = compile_total(universe, "amount", where, group_by, up_to)
    groups = compile_group_by(universe, group_by, predicate) if group_by else ()
    return LinearQuery(predicate, range(1), groups, total, every if count_rows else None)


def block(universe: Universe, raw: Sequence[Raw]) -> Block:
    amounts, statuses = zip(*raw, strict=True)
    columns: dict[str, list[Any]] = {"amount": list(amounts), "status": list(statuses)}
    return Block.seal(universe, universe.encode_columns(columns))


def look_at(query: LinearQuery, n_groups: int, *, rests: bool = False) -> SumLook:
    """The look at a query that is centred between the ends of its values."""
    values, grouped = WholeValues.of(query), bool(query.group_by)
    every_row = query.predicate.constant is True
    shape = SumShape(values.low, values.high, values.low + values.high, grouped, every_row, rests)
    return SumLook(query, values, shape, ((0, 0, 0),), n_groups if grouped else 1, ())


# ---------------------------------------------------------------- the price, over all pairs of rows

SMALL = Universe(
    (
        Number("amount", (2, 4), missing=True, measure=Measure(0.5, 1.0, 5.0)),
        Category("status", ("a", "b", "c"), other=False),
    )
)
AMOUNTS = (None, -7.0, 1.2, 1.9, 2.0, 3.3, 3.9, 4.0, 4.6, 99.0)
ROWS = [Blocks(SMALL, [block(SMALL, [raw])]) for raw in product(AMOUNTS, "abc")]
"""A data set of one row, for each row."""
AT_LEAST_2: Tree = {"attribute": "amount", "ge": 2}
AT_LEAST_4: Tree = {"attribute": "amount", "ge": 4}
IN_A: Tree = {"attribute": "status", "eq": "a"}
CONDITIONS: list[Tree | None] = [
    None,
    {"attribute": "amount", "lt": 2},
    AT_LEAST_2,
    {"all": [AT_LEAST_2, {"attribute": "amount", "lt": 4}]},
    IN_A,
    {"any": [IN_A, {"all": [AT_LEAST_4, {"attribute": "status", "eq": "b"}]}]},
]
SCALES = ((3.0, 1.0), (20.0, 1.0), (3.0, 6.0))

Sums = Callable[[SumLook, Blocks, int], npt.NDArray[np.int64]]


def looks() -> Iterator[SumLook]:
    """Looks at the small data set: every query, each with several centres."""
    plain = product(CONDITIONS, ((), ("status",)), (False, True), (None,))
    limited = product((None, AT_LEAST_2, AT_LEAST_4), ((), ("status",)), (False,), (2.0, 4.0))
    for condition, group_by, counted, up_to in [*plain, *limited]:
        query = asked(SMALL, condition, group_by, count_rows=counted, up_to=up_to)
        rests = query.predicate.constant is not True and query.rows not in (None, query.predicate)
        if query.rows is not None and query.rows.constant and not group_by:
            rests = False
        look = look_at(query, 3, rests=rests)
        low, high, centre = look.shape.low, look.shape.high, look.shape.centre
        for centred in {centre, 2 * low, 2 * high, centre + 1}:
            yield replace(look, shape=replace(look.shape, centre=centred))


def overcharged(added_up: Sums, *, blank: bool = False) -> Iterator[bool]:
    """For each look and scale whether some pair of rows loses more than the price, by Theorem 1."""
    for look in looks():
        shape = replace(look.shape, blank=blank)
        rows = [added_up(replace(look, shape=shape), data, 0) for data in ROWS]
        for tau, sigma in SCALES:
            scales = [Fraction(tau), *[Fraction(sigma)] * (shape.vectors - 1)]
            price = shape.rho(scales[0], scales[1] if shape.counts else None)
            yield dearest(rows, scales, blank=blank) > price


@pytest.mark.parametrize("blank", [False, True], ids=["pairs of rows", "a row that becomes blank"])
def test_no_pair_of_rows_loses_more_than_the_price_of_a_look(*, blank: bool) -> None:
    found = list(overcharged(exact_sums, blank=blank))
    assert len(found) > 200
    assert not any(found)


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
    total = look.query.total
    assert total is not None
    assert total.kept is not None
    moved = replace(look.query, total=replace(total, kept=replace(total.kept, base=0)))
    return exact_sums(replace(look, query=moved), data, block)


@pytest.mark.parametrize(
    "broken",
    rest_is_slow([unclamped, values_outside_their_cells, counted_from_another_end], first=1),
)
def test_a_copy_that_adds_up_other_values_is_noticed(broken: Sums) -> None:
    assert any(overcharged(broken))


@pytest.mark.parametrize(
    ("edges", "ends", "condition", "low", "high"),
    [
        ((2, 4), (0.5, 1.0, 5.0), {"attribute": "amount", "lt": 2}, 2, 4),
        ((2, 4), (0.5, 1.0, 5.0), None, 2, 10),
        # One value gets noise as if there were a second one.
        ((9, 10), (1.0, 0.0, 5.0), {"attribute": "amount", "ge": 10}, 5, 6),
        ((-2, 4), (0.5, -5.0, 5.0), None, -10, 10),
    ],
)
def test_the_range_is_that_of_the_bins_that_the_condition_leaves(
    edges: tuple[float, ...],
    ends: tuple[float, float, float],
    condition: Tree | None,
    low: int,
    high: int,
) -> None:
    universe = Universe((Number("amount", edges, measure=Measure(*ends)),))
    values = WholeValues.of(asked(universe, condition))
    assert (values.low, values.high, values.unit, values.slack) == (low, high, ends[0], 0.0)


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
    return block(ORDERS, orders(n_rows, seed))


def kept(amount: float, up_to: float = 500.0) -> Fraction:
    return Fraction(round(min(Fraction(repr(amount)), Fraction(up_to)) * 100), 100)


def truth(
    raw: Sequence[Raw],
    groups: Sequence[str] = ("abcde",),
    counts: Callable[[float, str], bool] = lambda amount, status: True,
    up_to: float = 500.0,
) -> tuple[list[Fraction], list[int]]:
    """The sum of the clamped and rounded values and their number, of each answer."""
    each = [
        [a for a, status in raw if a is not None and counts(a, status) and status in group]
        for group in groups
    ]
    return [sum((kept(a, up_to) for a in one), Fraction()) for one in each], list(map(len, each))


@cache
def by_status(n_rows: int, seed: int) -> tuple[list[Fraction], list[int]]:
    return truth(orders(n_rows, seed), "abcde")


FIFTHS: Tree = {
    "any": [
        {"attribute": "amount", "ge": 500},
        {"all": [{"attribute": "amount", "lt": 5}, {"attribute": "status", "eq": "a"}]},
    ]
}


@pytest.mark.parametrize(
    ("condition", "group_by", "up_to", "counts"),
    [
        (None, (), None, lambda amount, status: True),
        (None, (), 100.0, lambda amount, status: True),
        (None, (), 5.0, lambda amount, status: True),
        ({"attribute": "status", "eq": "b"}, (), None, lambda amount, status: status == "b"),
        ({"attribute": "amount", "lt": 50}, (), None, lambda amount, status: amount < 50),
        (FIFTHS, (), None, lambda amount, status: amount >= 500 or (amount < 5 and status == "a")),
        (None, ("status",), None, lambda amount, status: True),
        (None, ("status",), 300.0, lambda amount, status: True),
        ({"attribute": "amount", "ge": 75}, ("status",), None, lambda amount, status: amount >= 75),
    ],
)
def test_a_look_adds_up_the_values_of_rows(
    condition: Tree | None,
    group_by: tuple[str, ...],
    up_to: float | None,
    counts: Callable[[float, str], bool],
) -> None:
    """Exact; rows beyond a limit count for the limit."""
    raw = orders(3_000, 5)
    look = look_at(asked(ORDERS, condition, group_by, up_to=up_to), 5)
    sums, numbers = exact_sums(look, Blocks(ORDERS, [block(ORDERS, raw)]), 0).tolist()
    found = [
        Fraction(x + look.shape.centre * n, 2) / 100 for x, n in zip(sums, numbers, strict=True)
    ]
    groups = "abcde" if group_by else ("abcde",)
    assert (found, numbers) == truth(raw, groups, counts, up_to or 500.0)
    assert up_to is None or look.shape.high == round(100 * up_to), "it pays for the range up to it"


# ---------------------------------------------------------------- sums up to a limit


@pytest.mark.parametrize(
    ("up_to", "fix"), [(7.0, "5 or 10"), (0.0, "5 or 10"), (600.0, "300 or 500")]
)
def test_a_limit_that_is_no_edge_is_refused_with_the_nearest(up_to: float, fix: str) -> None:
    with pytest.raises(InvalidQuery, match=fix) as fault:
        asked(ORDERS, up_to=up_to)
    assert fault.value.field == "up_to"


def test_bins_count_as_their_middles_up_to_the_limit_where_no_values_are_kept() -> None:
    plain = Universe((Number("amount", (1, 2, 4, 7, 14), measure=None),))
    total = asked(plain, up_to=7.0).total
    assert isinstance(total, Total)
    assert total.largest == 7.0
    assert total.values == (1.0, 1.5, 3.0, 5.5, 7.0, 7.0)


def test_a_limit_is_all_that_a_query_pays_for() -> None:
    it = selling(QuickNoise(7))
    narrow, wide = (aimed(asked(ORDERS, up_to=up_to), value=20_000.0) for up_to in (10.0, None))
    prices = [sum(c.rho for c in it.mechanism.quote(query).charges) for query in (narrow, wide)]
    assert 500 * prices[0] < prices[1]
    (cell,) = it.ask(narrow).cells
    (exact,), _ = truth(orders(20_000, 0), up_to=10.0)
    assert abs(cell.total - float(exact)) <= cell.total_bar <= 20_000.0


# ---------------------------------------------------------------- what is known, and the bars


def selling(noise: QuickNoise, n_rows: int = 20_000, phases: int = 1, **more: Any) -> Host:
    blocks = (block_of(n_rows, phase) for phase in range(phases))
    return Host(ORDERS, *blocks, noise=noise, **{"base_share": 0.0, "pacing": False, **more})


def measure_table(it: Host, at: int, units: int = UNITS // 10) -> None:
    """Measures the table over amounts and statuses."""
    prices = it.state.promise.prices
    step = prices.least_step(units, 2)
    assert step is not None
    charges, part = (Charge(at, prices.units(step, 2)),), Part((AMOUNT, STATUS), at, step)
    it.take(TablesLook(QUERY, (part,), (ORDERS.shape,), charges))


EVERY, BY_STATUS = asked(ORDERS), asked(ORDERS, None, ["status"])


def test_tables_say_how_many_rows_there_are_and_not_what_they_count_for() -> None:
    it = selling(QuickNoise(1))
    measure_table(it, 0)
    known = it.state.belief.sums(BY_STATUS).sums.moments
    assert np.isinf(known.totals).all()
    assert not known.both.any()
    assert np.isfinite(known.counts).all()
    step = it.step(BY_STATUS)
    assert isinstance(step, SumLook), "a table does not certify it, nor is one bought"
    assert step.description["measured"] is True


def test_counts_of_a_look_are_combined_with_tables_and_totals_are_not() -> None:
    alone, both = selling(QuickNoise(2)), selling(QuickNoise(2))
    measure_table(both, 0)
    step, found = alone.step(BY_STATUS), []
    for it in (alone, both):
        before = it.state.belief.sums(BY_STATUS).sums.moments.counts
        it.take(step)
        found.append(it.state.belief.sums(BY_STATUS).sums.moments)
        assert (found[-1].counts < before).all()
    assert (found[1].counts < found[0].counts).all()
    # The count corrects the total where the look's errors go together, and nothing else does.
    tau = float(grid_sigma(step.steps[0][1]))
    least = (0.5 * 0.01 * tau / 500.0) ** 2
    assert (found[1].totals >= least * (1.0 - 1e-9)).all()
    assert (found[1].totals <= found[0].totals * (1.0 + 1e-9)).all()


def covered(hosts: Sequence[Host]) -> tuple[npt.NDArray[np.int64], int]:
    """How many bars of totals, counts and means hold the truth, and of how many."""
    found, tried = np.zeros(3, dtype=np.int64), 0
    for it in hosts:
        for phase in it.window:
            query = replace(BY_STATUS, window=range(phase, phase + 1))
            sums, rows = by_status(it.data.sizes[phase], phase)
            for cell, exact, n in zip(it.ask(query).cells[:3], sums, rows, strict=False):
                found[0] += abs(cell.total - float(exact)) <= cell.total_bar
                found[1] += abs(cell.count - n) <= cell.count_bar
                found[2] += abs(cell.mean - float(exact) / n) <= cell.mean_bar
                tried += 1
    return found, tried


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False)])
def test_bars_cover_the_values_themselves_as_often_as_they_say(factor: float, holds: bool) -> None:
    """At 80%, with tables besides. False alarm 1e-6 for each of three; a tenth more noise is noticed."""
    hosts = []
    for seed in range(40):
        it = selling(QuickNoise(seed, factor), n_rows=4_000, phases=24, error=0.01, beta=0.2)
        for at in range(0, 24, 2):
            measure_table(it, at)
        hosts.append(it)
    found, tried = covered(hosts)
    for times in found.tolist():
        assert (binomtest(times, tried, 0.8, "less").pvalue < ALARM) is not holds


def test_a_copy_that_takes_tables_for_the_values_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SumEvidence, "kept", property(lambda _: False))
    hosts = []
    for seed in range(10):
        it = selling(QuickNoise(seed), phases=6, error=0.0005, beta=0.2)
        for at in range(6):
            measure_table(it, at, UNITS * 9 // 10)
        hosts.append(it)
    found, tried = covered(hosts)
    assert binomtest(int(found[2]), tried, 0.8, "less").pvalue < ALARM


@pytest.mark.parametrize("tables", [False, True])
def test_with_no_budget_left_the_bars_reach_to_the_ends_of_the_bins(tables: bool) -> None:
    it = selling(QuickNoise(3), phases=2)
    if tables:
        measure_table(it, 0)
    it.ask(replace(EVERY, window=range(1, 2)))
    for at, left in enumerate(it.mechanism.lines.left(range(2)).tolist()):
        it.mechanism.charged((Charge(at, left),))
    answer = it.ask(replace(EVERY, window=range(2)))
    assert answer.path is Path.UNVERIFIED
    (cell,) = answer.cells
    if not tables:
        assert (cell.total_bar, cell.mean_bar) == (None, None)
        return
    (total,), (rows,) = truth([*orders(20_000, 0), *orders(20_000, 1)])
    assert abs(cell.total - float(total)) <= cell.total_bar
    assert abs(cell.mean - float(total) / rows) <= cell.mean_bar
    lows, highs = np.array(ORDERS.measured[AMOUNT].measured_ends).T
    (table,) = it.data.marginal((AMOUNT,), range(1))
    width = float(((highs - lows) @ table) / 100.0)
    assert cell.total_bar >= width / 2, "no bar is narrower than what the bins hide"
    assert cell.total_bar <= 1.5 * width, "and it is not much wider"


def test_a_mean_may_name_its_error() -> None:
    answer = selling(QuickNoise(4)).ask(aimed(asked(ORDERS, IN_A), mean=3.0))
    (sums, *_), (rows, *_) = by_status(20_000, 0)
    (cell,) = answer.cells
    assert answer.path is Path.MEASURED
    assert abs(cell.mean - float(sums) / rows) <= cell.mean_bar <= 3.0


@pytest.mark.parametrize("error", [15.0, 8.0])
def test_bars_to_the_ends_of_the_bins_may_suffice_for_the_error_of_a_mean(error: float) -> None:
    """The bins are up to 100 wide, and most are narrower. Then no look is taken."""
    it = selling(QuickNoise(9))
    measure_table(it, 0, UNITS // 2)
    answer = it.ask(aimed(EVERY, mean=error))
    (total,), (rows,) = truth(orders(20_000, 0))
    (cell,) = answer.cells
    assert abs(cell.mean - float(total) / rows) <= cell.mean_bar <= error
    assert (answer.path is Path.CERTIFIED) is (not it.looks) is (error > 10.0)


def test_a_filter_is_answered_from_the_look_at_a_group_by() -> None:
    it = selling(QuickNoise(5), error=0.01)
    it.ask(BY_STATUS)
    paid = asked(ORDERS, {"attribute": "status", "in": ["a", "b"]})
    known = it.state.belief.sums(paid)
    assert known.looked
    assert np.isfinite(known.sums.moments.totals).all()
    it.ask(aimed(paid, share=0.05))
    assert not it.looks


def test_bundles_imagine_the_look_and_not_its_values() -> None:
    it = selling(QuickNoise(6))
    rehearsal = it.mechanism.rehearse(sparing=True)
    first, second = rehearsal.quote(BY_STATUS), rehearsal.quote(BY_STATUS)
    assert first.charges
    assert not second.charges
    assert it.mechanism.lines.worst(range(1)).rho == 0


def test_sums_of_an_attribute_without_kept_values_have_the_keys_that_they_always_had() -> None:
    plain = Universe((replace(ORDERS.attributes[0], measure=None), ORDERS.attributes[1]))  # type: ignore[arg-type]
    query = asked(plain)
    assert isinstance(query.total, Total)
    assert query.total.identity == (AMOUNT, query.total.values)
    assert query.key != EVERY.key


def test_no_repr_shows_a_value() -> None:
    rows: Rows = ORDERS.encode_rows([{"amount": 471.13, "status": "a"}])
    one = Block.seal(ORDERS, rows)
    step = selling(QuickNoise(7)).step(BY_STATUS)
    for shown in (repr(rows), repr(one), repr(Blocks(ORDERS, [one])), repr(step)):
        assert "471" not in shown
