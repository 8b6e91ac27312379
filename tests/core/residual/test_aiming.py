"""How precise an answer is worth having: its size, what is paid for it, and the bars of the three ways to it.

docs/proofs, Theorem 24. How often these bars miss is in ``tests/statistical/test_aimed_coverage.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Target, Unit
from stream_dp.core.outcome import (
    Answered,
    Path,
    Quantiles,
    Refused,
    Summed,
    Use,
    Useful,
    use_of_outcome,
)
from stream_dp.core.queries.query import EVERYTHING, Indicator, LinearQuery, Rank, total_of
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.plan import aim_rule
from stream_dp.core.residual.plan.aim_rule import (
    Deviations,
    Rule,
    grade,
    opening_columns,
    share_of_line,
    typical,
)
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition
from tests.core.residual.host import PRIVACY, Host, aimed, cells, sealed, where

BETA = 0.05
PERSONS = Privacy(1.0, 1e-9, Unit(1, 12))
PRICES = Prices(Budget.of(PRIVACY))
PLAIN = 2.5758293  # z at 0.99
STAY = Number("stay", (1, 2, 4, 8), representatives=(0.5, 1.5, 3.0, 6.0, 12.0))
WARDS = Universe((Category("ward", ("a", "b", "c", "d"), other=False), STAY, Boolean("late")))
COUNTS = (40_000, 30_000, 20_000, 10_000)
"""The rows of each ward."""
A_TENTH = Aim(0.1)
PRECISE = Aim(0.01, rough=0.02, easy_share=0.02)

COUNT = LinearQuery(where(WARDS.shape, {0: [0]}), range(1))
BY_WARD = LinearQuery(EVERYTHING, range(1), (0,))
SUM = LinearQuery(EVERYTHING, range(1), (), total_of(1, STAY))
SUMS = replace(SUM, group_by=(0,))
MEANS = aimed(SUMS, of_mean=True)
SHARES = LinearQuery(EVERYTHING, range(1), (0,), Indicator(where(WARDS.shape, {2: [1]})))
MEDIANS = LinearQuery(EVERYTHING, range(1), (0,), rank=Rank(1, 0.5, tuple(range(5))))
KINDS = {"count": COUNT, "table": BY_WARD, "sum": SUM, "shares": SHARES, "medians": MEDIANS}
kinds = pytest.mark.parametrize("query", KINDS.values(), ids=KINDS.keys())


def wards(
    aim: Aim | None = A_TENTH, counts: Sequence[int] = COUNTS, kind: type[Host] = Host, **more: Any
) -> Host:
    """A data set with an aim, beside its rows."""
    draw, n = np.random.default_rng(5), sum(counts)
    stay = draw.choice(5, n, p=[0.2, 0.3, 0.3, 0.15, 0.05])
    block = sealed(WARDS, np.repeat(np.arange(4), counts), stay, draw.random(n) < 0.4)
    return kind(WARDS, block, beta=BETA, aim=aim, **{"base_share": 0.0, **more})


def use_of(outcome: Any) -> Any:
    return use_of_outcome(outcome)


def useful(outcome: Any) -> Useful:
    use: Use = use_of(outcome)
    return use.useful


def deviation_of(release: Any) -> float:
    """That of each count of a look at counts or at a table."""
    steps = getattr(release, "steps", None) or [(part.block, part.step) for part in release.parts]
    return math.sqrt(sum(float(grid_sigma(step)) ** 2 for _, step in steps))


def z_of(part: float) -> float:
    return float(norm.isf(part * BETA / 2))


# ---------------------------------------------------------------- prices and sizes


def test_prices_are_those_that_were_worked_out_by_hand() -> None:
    """Of 48,842 rows in 15 cells, and of 12 months of 3,700 persons in 12 groups, at 0.99."""
    bar = 0.1 * 48_842 / 15
    assert bar / PLAIN == pytest.approx(126.411, abs=5e-4)
    price = share_of_line(bar, PLAIN, PRICES, squared_sensitivity=PRICES.table)
    assert price == pytest.approx(0.004179, abs=5e-7)
    persons = Prices(Budget.of(PERSONS))
    year = {"phases": 12, "squared_sensitivity": persons.table}
    assert share_of_line(370, PLAIN, persons, **year) == pytest.approx(0.23305, abs=5e-6)
    assert share_of_line(925, PLAIN, persons, **year) == pytest.approx(0.037288, abs=5e-7)


@pytest.mark.parametrize("seed", range(20))
def test_cells_of_the_typical_size_and_larger_ones_hold_four_fifths(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 1000, 17).astype(float)
    size = typical(counts, 0.0)
    assert counts[counts >= size].sum() >= 0.8 * counts.sum() - 1e-6
    assert counts[counts > size].sum() < 0.8 * counts.sum()


def test_noise_makes_no_typical_cell_small_and_nothing_is_made_of_too_few() -> None:
    """Of a hundred cells that are alike, the smaller ones of 80% are 30% off by noise alone."""
    noise = np.random.default_rng(1).normal(0.0, 300.0, (200, 100))
    sizes = [typical(1000.0 + drawn, 300.0) for drawn in noise]
    assert np.mean(sizes) == pytest.approx(1000.0, rel=0.05)
    assert typical(np.array([5.0, 1.0]), 100.0) == 5.0
    assert typical(np.zeros(4), 1.0) == typical(np.array([]), 1.0) == 0.0


@pytest.mark.parametrize(
    ("price", "taken"),
    [
        (0.008, (0.1, 0.01)),  # what is aimed at is easy
        (0.04, (0.2, 0.01)),  # what is easy is rough
        (0.2, (0.25, 0.05)),  # what is rough may be paid
        (0.35, (0.265, 0.05)),  # what may be paid is about rough
        (0.6, None),
    ],
)
def test_the_last_look_is_the_cheapest_that_is_worth_its_price(
    price: float, taken: tuple[float, float] | None
) -> None:
    def look(part: float, units: int) -> int | None:
        cost = price * (0.1 / part) ** 2
        return round(cost * UNITS) if cost * UNITS <= units else None

    found: Any = Rule(A_TENTH).choose(price, math.inf, 1.0, lambda units: units, look)
    if taken is None:
        assert found is None
        return
    part, most = taken
    assert found[0] == pytest.approx(part, rel=0.03)
    assert found[1] <= most * UNITS


def test_an_answer_is_as_useful_as_its_look_was_planned_for_while_its_bar_allows_that() -> None:
    for part, planned, expected in (
        (0.1, 0.0, Useful.YES),
        (0.11, 0.0, Useful.ROUGH),
        (0.25, 0.0, Useful.ROUGH),
        (0.26, 0.0, Useful.NO),
        (0.105, 0.1, Useful.YES),
        (0.3, 0.25, Useful.ROUGH),
        (0.32, 0.25, Useful.NO),
    ):
        assert grade(part, A_TENTH, planned) is expected


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"share": 0.0}, "accuracy.aim"),
        ({"share": 0.3}, "accuracy.rough"),
        ({"share": 0.25}, "accuracy.rough"),
        ({"share": 0.1, "rough": 1.5}, "accuracy.rough"),
        ({"share": 0.1, "easy_share": 0.06}, "accuracy.query_share"),
        ({"share": 0.1, "day_share": 0.02}, "accuracy.day_share"),
        ({"share": 0.1, "day_share": math.nan}, "accuracy.day_share"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(
    settings: dict[str, float], named: str
) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        Aim(**settings)
    assert caught.value.field == named


# ---------------------------------------------------------------- openings


def test_an_opening_measures_columns_that_are_cheap_and_leaves_the_others_out() -> None:
    z = Deviations.of(Accuracy(0.02, 0.01)).opening
    sizes = (2, 15, 42, 64, 65)
    found = dict(opening_columns(sizes, 48_842, A_TENTH, z, PRICES))
    # 64 cells of 48,842 rows would be rough for 1.7%, and 65 cells are too many.
    assert sorted(found) == [0, 1, 2]
    for column in (0, 1):
        bar = z * float(grid_sigma(found[column]))
        assert 0.97 * 0.1 * 48_842 / sizes[column] < bar <= 0.1 * 48_842 / sizes[column]
    assert PRICES.units(found[2], PRICES.table) <= 0.01 * UNITS
    assert 0.1 < z * float(grid_sigma(found[2])) / (48_842 / 42) < 0.25


def test_an_opening_takes_a_tenth_of_a_line_at_most_cheapest_first() -> None:
    found = opening_columns((30,) * 11 + (2,), 40_000, A_TENTH, 3.09, PRICES)
    units = [PRICES.units(step, PRICES.table) for _, step in found]
    assert sum(units) <= 0.1 * UNITS < sum(units) + max(units)
    assert found[-1][0] == 11
    assert not opening_columns((30,), 0, Aim(0.1), 3.09, PRICES)


def test_phases_of_a_window_share_the_noise_that_an_opening_leaves() -> None:
    (one,) = opening_columns((12,), 3_700, A_TENTH, 3.09, Prices(Budget.of(PERSONS)), phases=144)
    (four,) = opening_columns((12,), 7_400, A_TENTH, 3.09, Prices(Budget.of(PERSONS)), phases=36)
    assert one == four


# ---------------------------------------------------------------- the bars of the three ways


def test_the_parts_of_the_failure_probability_add_up_to_it() -> None:
    z = Deviations.of(Accuracy(0.02, BETA))
    tails = [2.0 * norm.sf(each) for each in (z.opening, z.pilot, z.last)]
    assert sum(tails) + z.all_times == pytest.approx(BETA)
    assert tails[0] == pytest.approx(aim_rule.OPENING * BETA)
    assert tails[2] == pytest.approx(aim_rule.LAST * BETA)
    # Where the number of rows that count is private, it has a tenth.
    for each, tail in zip((z.opening, z.pilot, z.last), tails, strict=True):
        assert 2.0 * norm.sf(each * z.wider) <= 0.9 * tail * (1.0 + 1e-9)
    assert 2.0 * norm.sf(z.last * z.wider) == pytest.approx(0.9 * tails[2])


def test_what_openings_answer_has_the_bar_of_openings() -> None:
    it = wards(counts=(26_000, 25_000, 25_000, 24_000), base_share=None)
    outcome = it.ask(BY_WARD)
    assert not it.looks
    assert useful(outcome) is Useful.YES
    evidence = it.state.belief.at_opening(it.state.evidence(BY_WARD).form, range(1))
    deviation = math.sqrt(evidence.variances[0])
    for cell, value in zip(outcome.cells, evidence.values, strict=True):
        assert cell.path is Path.CERTIFIED
        assert cell.error_bar == pytest.approx(z_of(aim_rule.OPENING) * deviation / cell.n)
        assert cell.count == pytest.approx(value)


@pytest.mark.parametrize("query", [COUNT, BY_WARD], ids=["count", "table"])
def test_the_last_look_alone_is_the_answer_whatever_the_pilot_said(query: LinearQuery) -> None:
    it = wards(PRECISE)
    outcome = it.ask(query)
    looks: Any = it.looks
    assert [look.final for look in looks] == [False, True]
    release = it.releases[1]
    values = release.values.sum(axis=0) if query is COUNT else release.tables[0]
    assert [cell.count for cell in cells(outcome)] == pytest.approx(values.tolist())
    for cell in cells(outcome):
        bar = z_of(aim_rule.LAST) * deviation_of(release) / cell.n
        assert cell.error_bar == pytest.approx(bar, rel=1e-6)
        assert cell.error_bar_simultaneous is None
        assert cell.error_bar_anytime is None


def test_a_pilot_alone_is_what_a_useless_answer_says() -> None:
    it = wards(Aim(0.01, rough=0.02), counts=(300, 200, 200, 99_300))
    outcome = it.ask(COUNT)
    (release,) = it.releases
    assert useful(outcome) is Useful.NO
    assert outcome.count == pytest.approx(max(0, release.values.sum()))
    bar = z_of(aim_rule.PILOT) * deviation_of(release) / outcome.n
    assert outcome.error_bar == pytest.approx(bar, rel=1e-6)
    assert it.paid <= 0.2 * 0.01 * 1.05
    price = use_of(outcome).aim_price
    assert price is None or price > 0.05


def test_best_estimates_are_free_by_their_bars_for_all_times_only() -> None:
    """What queries had measured was chosen by noise: the precision of their looks follows from pilots."""
    it = wards(Aim(0.05, rough=0.1, easy_share=0.02))
    it.ask(BY_WARD)
    outcome = it.ask(COUNT)
    assert not it.looks, "the table is precise enough for its largest cell, also by these bars"
    evidence = it.state.evidence(COUNT)
    (bar,) = evidence.anytime(0.02 * evidence.n_rows, aim_rule.ALL_TIMES * BETA / 0.1)
    assert outcome.error_bar == pytest.approx(bar / evidence.n_rows)
    assert bar > 1.4 * z_of(1.0) * math.sqrt(evidence.variances[0])


@pytest.mark.parametrize("query", [SUMS, MEANS], ids=["sums", "means"])
def test_a_sum_is_what_its_last_look_says_by_itself(query: LinearQuery) -> None:
    it = wards(Aim(0.02, rough=0.05))
    outcome = it.ask(query)
    assert useful(outcome) in (Useful.YES, Useful.ROUGH)
    looks = {0: it.releases[-1].estimates(outcome.n, 0)}
    alone = it.state.belief.sums_alone(query, looks).sums
    assert query.total is not None
    totals, deviations = alone.totals, np.sqrt(alone.moments.totals)
    largest = query.total.largest
    assert [cell.total for cell in outcome.cells] == pytest.approx(totals * largest)
    bars = z_of(aim_rule.LAST) * deviations * largest
    assert [cell.total_bar for cell in outcome.cells] == pytest.approx(bars, rel=1e-6)
    assert getattr(it.looks[-1], "final")  # noqa: B009 - of several classes


def test_a_rank_is_within_half_of_what_is_aimed_at() -> None:
    """A tenth is 5% of the rows of a typical group, by the last look alone."""
    it = wards()
    outcome = it.ask(MEDIANS)
    assert useful(outcome) is Useful.YES
    last = it.releases[-1]
    bar = z_of(aim_rule.LAST) * deviation_of(last) * math.sqrt(5) / 2
    for cell, n_rows in zip(outcome.cells, COUNTS, strict=True):
        assert cell.bar == pytest.approx(bar, rel=1e-6)
        assert bar <= 0.05 * 20_000 * 1.1, "wards of this size and larger ones hold four fifths"
        assert abs(cell.rows - n_rows) < 2 * bar
    table = last.tables[0]
    passed = table.cumsum(axis=1)[:, :-1] - 0.5 * table.sum(axis=1, keepdims=True)
    first = [(row + bar >= 0).tolist().index(True) for row in np.hstack([passed, [[bar]] * 4])]
    assert [cell.first for cell in outcome.cells] == first


def test_means_and_shares_are_as_precise_as_they_are_worth() -> None:
    it = wards(Aim(0.05, rough=0.1))
    for query, low, high in ((MEANS, 0.5, 12.0), (SHARES, 0.0, 2.0)):
        outcome = it.ask(query)
        assert useful(outcome) is not Useful.NO
        large = [cell for cell in outcome.cells if cell.count > 19_000]
        assert len(large) == 3
        for cell in large:
            assert cell.mean_bar <= 0.11 * min(cell.mean - low, high - cell.mean)


# ---------------------------------------------------------------- once, for all, and by what is published


@kinds
def test_a_query_is_looked_at_once_and_answered_alike_ever_after(query: LinearQuery) -> None:
    it = wards(PRECISE)
    first = it.ask(query)
    assert it.looks
    again = it.ask(query)
    other = wards(PRECISE, noise=9)
    other.mechanism.recall(it.remembered)
    restarted = other.ask(query)
    assert not it.looks
    assert not other.looks
    assert restarted == again
    assert use_of(again) == use_of(first)
    if isinstance(first, Summed | Quantiles):
        assert again.cells == first.cells
    else:
        told = [[(c.count, c.error_bar) for c in cells(outcome)] for outcome in (first, again)]
        assert told[0] == told[1]


class InMemory(Host):
    """It absorbs releases as the look made them, and not as they are stored."""

    def read_back(self, release: Any) -> Any:
        return release


@pytest.mark.parametrize("aim", [A_TENTH, PRECISE])
@kinds
def test_all_decisions_follow_from_the_bytes_that_are_published(
    query: LinearQuery, aim: Aim
) -> None:
    stored, here = wards(aim), wards(aim, kind=InMemory)
    assert stored.ask(query) == here.ask(query)
    described = [[look.description for look in it.looks] for it in (stored, here)]
    assert described[0] == described[1]


def test_queries_that_name_an_error_are_answered_as_without_an_aim() -> None:
    targets = [Target(share=0.01), Target(relative=0.05), Target(value=900)]
    found = []
    for aim in (None, A_TENTH):
        it = wards(aim)
        answers = [it.ask(LinearQuery(COUNT.predicate, range(1), target=t)) for t in targets]
        found.append([(a.count, a.error_bar, a.path) for a in answers])
        uses = {use_of_outcome(answer) is None for answer in answers}
        assert uses == {aim is None}, "how useful they are is said all the same"
    assert found[0] == found[1]


def test_a_quote_is_exact_where_no_pilot_decides_and_says_the_most_where_one_does() -> None:
    it = wards(PRECISE)
    quote = it.mechanism.quote(COUNT)
    assert quote.expected
    assert quote.most == math.floor(0.05 * UNITS)
    it.ask(COUNT)
    assert quote.charges == it.looks[0].charges
    assert it.paid <= 0.05
    # A pilot of this table is not needed: what is known of its cells says how large they are.
    it = wards(PRECISE, base_share=0.001)
    quote = it.mechanism.quote(BY_WARD)
    assert (quote.expected, quote.most) == (False, None)
    outcome = it.ask(BY_WARD)
    assert quote.charges == it.looks[0].charges
    assert quote.error_bar == pytest.approx(outcome.cells[0].error_bar)


def test_what_may_be_taken_unasked_bounds_all_looks_of_an_answer() -> None:
    it = wards(PRECISE)
    it.mechanism.spending.takes_unasked(
        lambda _: np.array([UNITS // 5000 - round(it.paid * UNITS)])
    )
    use = use_of(it.ask(COUNT))
    assert it.paid <= 1 / 5000
    assert (use.guarded, use.useful) == (True, Useful.NO)
    it.mechanism.spending.takes_unasked(None)
    assert useful(it.ask(COUNT)) is not Useful.NO, "the next day"


@kinds
def test_a_pilot_that_a_guard_withholds_is_said_to_be_withheld(query: LinearQuery) -> None:
    """Without a pilot nobody knows how large a sum is, and so no last look can be planned."""
    it = wards(PRECISE)
    it.mechanism.spending.takes_unasked(lambda window: np.zeros(len(window), np.int64))
    assert use_of(it.ask(query)).guarded
    assert not it.looks


# ---------------------------------------------------------------- a price that a query names


def enough(use: Any) -> float:
    """What buys a better answer: the noise of looks is on a grid of scales."""
    return float(1.1 * (use.aim_price if use.useful is Useful.ROUGH else use.rough_price))


@pytest.mark.parametrize(
    ("query", "share"),
    list(zip(KINDS.values(), (0.001, 0.01, 0.002, 0.01, 0.01), strict=True)),
    ids=KINDS.keys(),
)
def test_the_prices_that_an_answer_names_can_be_bought(query: LinearQuery, share: float) -> None:
    """Each by its name alone, whatever may be taken unasked."""
    it = wards(Aim(share, 2.2 * share, easy_share=0.002, query_share=0.002))
    use = use_of(it.ask(query))
    assert use.useful is not Useful.YES
    it.mechanism.spending.takes_unasked(lambda window: np.zeros(len(window), np.int64))
    while use.useful is not Useful.YES:
        expected = Useful.YES if use.useful is Useful.ROUGH else Useful.ROUGH
        price = enough(use)
        use = use_of(it.ask(aimed(query, at_most=price)))
        assert use.useful is expected
        assert it.looks
        assert it.paid <= price
        assert useful(it.ask(aimed(query, at_most=price))) is expected
        assert not it.looks, "it was bought"
    assert useful(it.ask(query)) is Useful.YES, "what one has bought others have for free"
    assert not it.looks


def test_the_newest_last_look_alone_is_the_answer_to_a_price() -> None:
    it = wards(Aim(0.001, rough=0.0022, easy_share=0.002, query_share=0.002))
    found, outcome = [], it.ask(COUNT)
    for expected in (Useful.ROUGH, Useful.YES):
        outcome = it.ask(aimed(COUNT, at_most=enough(use_of(outcome))))
        (release,) = it.releases
        assert outcome.count == release.values.sum()
        bar = z_of(aim_rule.LAST) * deviation_of(release)
        assert outcome.error_bar == pytest.approx(bar / outcome.n)
        assert useful(outcome) is expected
        found.append(outcome.count)
    assert found[0] != found[1]


def test_a_price_that_buys_nothing_better_leaves_the_answer_as_it_was() -> None:
    it = wards(Aim(0.01, rough=0.022, easy_share=0.002, query_share=0.002))
    first = it.ask(BY_WARD)
    assert useful(first) is Useful.ROUGH
    again = it.ask(aimed(BY_WARD, at_most=0.003))
    assert not it.looks
    assert [cell.count for cell in again.cells] == [cell.count for cell in first.cells]


@pytest.mark.parametrize(
    ("at_most", "expected", "most"), [(0.9, Useful.YES, 0.1), (0.0001, Useful.NO, 0.0001)]
)
def test_a_price_is_a_limit_and_no_more_is_paid_than_an_answer_is_worth(
    at_most: float, expected: Useful, most: float
) -> None:
    it = wards(Aim(0.01, rough=0.02))
    assert useful(it.ask(aimed(COUNT, at_most=at_most))) is expected
    assert it.paid <= most


@pytest.mark.parametrize(
    ("on_exhausted", "told"), [("refuse", Refused), ("unverified", Answered | Summed)]
)
def test_a_line_that_is_spent_is_said_to_be_so_where_the_data_set_refuses(
    on_exhausted: str, told: Any
) -> None:
    it = wards(on_exhausted=on_exhausted)
    it.mechanism.charged((Charge(0, UNITS),))
    for query in (COUNT, SUMS):
        assert isinstance(it.ask(query), told)
        assert not it.looks
