"""How precise an answer is worth having: its size, what is paid for it, and the bars of the three ways to it.

docs/proofs, Theorem 24. How often these bars miss is in ``tests/statistical/test_aimed_coverage.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy.stats import norm

from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Target, Unit
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    Quantiles,
    Refused,
    Summed,
    TableAnswered,
    Useful,
    use_of_outcome,
)
from stream_dp.core.queries.query import (
    EVERYTHING,
    Indicator,
    LinearQuery,
    Predicate,
    Rank,
    total_of,
)
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
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
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Boolean, Category, Number, Rows, Universe
from stream_dp.errors import InvalidDefinition
from tests.noise import RoundedNoise

BETA = 0.05
PRIVACY = Privacy(1.0, 1e-9)
PERSONS = Privacy(1.0, 1e-9, Unit(1, 12))
PRICES = Prices(Budget.of(PRIVACY))
PLAIN = 2.5758293  # z at 0.99
WARDS = Universe(
    (
        Category("ward", ("a", "b", "c", "d"), other=False),
        Number("stay", (1, 2, 4, 8), representatives=(0.5, 1.5, 3.0, 6.0, 12.0)),
        Boolean("late"),
    )
)
A_WARD = Predicate.conjunction({0: np.array([True, False, False, False])})
LATE = Predicate.conjunction({2: np.array([False, True])})


@dataclass
class Life:
    """A data set with an aim, beside its rows."""

    counts: Sequence[int] = (40_000, 30_000, 20_000, 10_000)
    aim: Aim | None = field(default_factory=lambda: Aim(0.1))
    phases: int = 1
    seed: int = 1
    base_share: float | None = 0.0
    beta: float = BETA

    def __post_init__(self) -> None:
        self.noise = RoundedNoise(self.seed)
        accuracy = Accuracy(0.02, self.beta)
        self.mechanism = Calibrated(
            WARDS, PRIVACY, accuracy, CalibratedSettings(base_share=self.base_share, aim=self.aim)
        )
        n = sum(self.counts)
        draw = np.random.default_rng(5)
        ward = np.repeat(np.arange(4), self.counts).astype(np.uint8)
        stay = draw.choice(5, n, p=[0.2, 0.3, 0.3, 0.15, 0.05]).astype(np.uint8)
        late = (draw.random(n) < 0.4).astype(np.uint8)
        block = Block.seal(WARDS, Rows((ward, stay, late), None))
        self.data, self.window = Blocks(WARDS), range(self.phases)
        self.looks: list[Look] = []
        self.releases: list[Release] = []
        for _ in range(self.phases):
            self.data.append(block)
            for look in self.mechanism.open_phase(n):
                self.take(look)
        self.looks.clear()

    def take(self, look: Look, *, read_back: bool = False) -> Release:
        self.looks.append(look)
        self.mechanism.charged(look.charges)
        release = look.take(self.noise, self.data)
        if read_back:
            release = self.mechanism.release_from_bytes(release.to_bytes())
        self.releases.append(release)
        self.mechanism.absorb(release)
        return release

    def ask(self, query: LinearQuery, *, read_back: bool = False) -> Outcome:
        self.looks.clear()
        self.releases.clear()
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            release = self.take(step, read_back=read_back)
            step = self.mechanism.conclude(query, step, release)
        return step

    def count(self, predicate: Predicate = A_WARD) -> LinearQuery:
        return LinearQuery(predicate, self.window)

    def by_ward(self) -> LinearQuery:
        return LinearQuery(EVERYTHING, self.window, (0,))

    def sums(self, *group_by: int, mean: bool = False) -> LinearQuery:
        total = total_of(1, WARDS.attributes[1])  # type: ignore[arg-type]
        target = Target(of_mean=mean)
        return LinearQuery(EVERYTHING, self.window, group_by, total, target=target)

    def medians(self) -> LinearQuery:
        return LinearQuery(EVERYTHING, self.window, (0,), rank=Rank(1, 0.5, tuple(range(5))))

    def shares(self) -> LinearQuery:
        return LinearQuery(EVERYTHING, self.window, (0,), Indicator(LATE))

    def paid(self) -> float:
        """The share of the line that the last query took."""
        return sum(max(c.rho for c in look.charges) for look in self.looks) / UNITS


def cells(outcome: Outcome) -> tuple[Answered, ...]:
    assert isinstance(outcome, Answered | TableAnswered)
    return (outcome,) if isinstance(outcome, Answered) else outcome.cells


def useful(outcome: Outcome) -> Useful:
    use = use_of_outcome(outcome)
    assert use is not None
    return use.useful


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


def test_noise_makes_no_typical_cell_small() -> None:
    """Of a hundred cells that are alike, the smaller ones of 80% are 30% off by noise alone."""
    noise = np.random.default_rng(1).normal(0.0, 300.0, (200, 100))
    sizes = [typical(1000.0 + drawn, 300.0) for drawn in noise]
    assert np.mean(sizes) == pytest.approx(1000.0, rel=0.05)


def test_nothing_is_made_of_too_few_cells_nor_of_nothing() -> None:
    assert typical(np.array([5.0, 1.0]), 100.0) == 5.0
    assert typical(np.zeros(4), 1.0) == 0.0
    assert typical(np.array([]), 1.0) == 0.0


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

    found = Rule(Aim(0.1)).choose(price, math.inf, 1.0, lambda units: units, look)
    if taken is None:
        assert found is None
        return
    assert found is not None
    part, most = taken
    assert found[0] == pytest.approx(part, rel=0.03)
    assert found[1] <= most * UNITS


def test_an_answer_is_as_useful_as_its_look_was_planned_for_while_its_bar_leaves_that_open() -> (
    None
):
    aim = Aim(0.1)
    assert [grade(part, aim) for part in (0.1, 0.11, 0.25, 0.26)] == [
        Useful.YES,
        Useful.ROUGH,
        Useful.ROUGH,
        Useful.NO,
    ]
    assert grade(0.105, aim, 0.1) is Useful.YES
    assert grade(0.3, aim, 0.25) is Useful.ROUGH
    assert grade(0.32, aim, 0.25) is Useful.NO


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
    found = dict(opening_columns(sizes, 48_842, Aim(0.1), z, PRICES))
    # 64 cells of 48,842 rows would be rough for 1.7%, and 65 cells are too many.
    assert sorted(found) == [0, 1, 2]
    for column in (0, 1):
        bar = z * float(grid_sigma(found[column]))
        assert 0.97 * 0.1 * 48_842 / sizes[column] < bar <= 0.1 * 48_842 / sizes[column]
    assert PRICES.units(found[2], PRICES.table) <= 0.01 * UNITS
    assert 0.1 < z * float(grid_sigma(found[2])) / (48_842 / 42) < 0.25


def test_an_opening_takes_a_tenth_of_a_line_at_most_cheapest_first() -> None:
    sizes = (30,) * 11 + (2,)
    found = opening_columns(sizes, 40_000, Aim(0.1), 3.09, PRICES)
    units = [PRICES.units(step, PRICES.table) for _, step in found]
    assert sum(units) <= 0.1 * UNITS < sum(units) + max(units)
    assert found[-1][0] == 11
    assert not opening_columns(sizes, 0, Aim(0.1), 3.09, PRICES)


def test_phases_of_a_window_share_the_noise_that_an_opening_leaves() -> None:
    (one,) = opening_columns((12,), 3_700, Aim(0.1), 3.09, Prices(Budget.of(PERSONS)), phases=144)
    (four,) = opening_columns((12,), 7_400, Aim(0.1), 3.09, Prices(Budget.of(PERSONS)), phases=36)
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
    life = Life((26_000, 25_000, 25_000, 24_000), base_share=None)
    outcome = life.ask(life.by_ward())
    assert not life.looks
    assert useful(outcome) is Useful.YES
    assert {cell.path for cell in cells(outcome)} == {Path.CERTIFIED}
    evidence = life.mechanism.state.belief.at_opening(
        life.mechanism.state.evidence(life.by_ward()).form, life.window
    )
    z = norm.isf(aim_rule.OPENING * BETA / 2)
    for cell, value in zip(cells(outcome), evidence.values, strict=True):
        assert cell.error_bar == pytest.approx(z * math.sqrt(evidence.variances[0]) / cell.n)
        assert cell.count == pytest.approx(value)


@pytest.mark.parametrize("kind", ["count", "by_ward"])
def test_the_last_look_alone_is_the_answer_whatever_the_pilot_said(kind: str) -> None:
    life = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02))
    query = getattr(life, kind)()
    outcome = life.ask(query)
    pilot, last = life.looks
    assert not getattr(pilot, "final")  # noqa: B009 - of several classes
    assert getattr(last, "final")  # noqa: B009
    release = life.releases[1]
    if kind == "count":
        values, steps = release.values.sum(axis=0), release.steps  # type: ignore[attr-defined]
    else:
        values = release.tables[0]  # type: ignore[attr-defined]
        steps = [(part.block, part.step) for part in release.parts]  # type: ignore[attr-defined]
    sd = math.sqrt(sum(float(grid_sigma(step)) ** 2 for _, step in steps))
    assert [cell.count for cell in cells(outcome)] == pytest.approx(values.tolist())
    for cell in cells(outcome):
        bar = norm.isf(aim_rule.LAST * BETA / 2) * sd / cell.n
        assert cell.error_bar == pytest.approx(bar, rel=1e-6)
        assert cell.error_bar_simultaneous is None
        assert cell.error_bar_anytime is None


def test_a_pilot_alone_is_what_a_useless_answer_says() -> None:
    life = Life(counts=(300, 200, 200, 99_300), aim=Aim(0.01, rough=0.02))
    outcome = life.ask(life.count())
    assert len(life.looks) == 1
    assert useful(outcome) is Useful.NO
    (release,) = life.releases
    assert cells(outcome)[0].count == pytest.approx(max(0, release.values.sum()))  # type: ignore[attr-defined]
    steps: list[tuple[int, int]] = list(release.steps)  # type: ignore[attr-defined]
    sd = math.sqrt(sum(float(grid_sigma(step)) ** 2 for _, step in steps))
    bar = norm.isf(aim_rule.PILOT * BETA / 2) * sd / cells(outcome)[0].n
    assert cells(outcome)[0].error_bar == pytest.approx(bar, rel=1e-6)
    assert life.paid() <= 0.2 * 0.01 * 1.05
    use = use_of_outcome(outcome)
    assert use is not None
    assert use.aim_price is None or use.aim_price > 0.05


def test_best_estimates_are_free_by_their_bars_for_all_times_only() -> None:
    """What queries had measured was chosen by noise: the precision of their looks follows from pilots."""
    life = Life(aim=Aim(0.05, rough=0.1, easy_share=0.02))
    life.ask(life.by_ward())
    outcome = life.ask(life.count())
    evidence = life.mechanism.state.evidence(life.count())
    if life.looks:
        pytest.fail("the table is precise enough for its largest cell, also by these bars")
    (bar,) = evidence.anytime(0.02 * evidence.n_rows, aim_rule.ALL_TIMES * BETA / 0.1)
    plain = norm.isf(BETA / 2) * math.sqrt(evidence.variances[0])
    assert cells(outcome)[0].error_bar == pytest.approx(bar / evidence.n_rows)
    assert bar > 1.4 * plain


@pytest.mark.parametrize("mean", [False, True])
def test_a_sum_is_what_its_last_look_says_by_itself(mean: bool) -> None:
    life = Life(aim=Aim(0.02, rough=0.05))
    outcome = life.ask(life.sums(0, mean=mean))
    assert isinstance(outcome, Summed)
    assert useful(outcome) in (Useful.YES, Useful.ROUGH)
    last = life.looks[-1]
    release = life.releases[-1]
    looks = {0: release.estimates(outcome.n, 0)}  # type: ignore[attr-defined]
    alone = life.mechanism.state.belief.sums_alone(life.sums(0, mean=mean), looks)
    z = norm.isf(aim_rule.LAST * BETA / 2)
    largest = life.sums(0).total.largest  # type: ignore[union-attr]
    bars = z * np.sqrt(alone.sums.moments.totals) * largest
    assert [cell.total for cell in outcome.cells] == pytest.approx(
        (alone.sums.totals * largest).tolist()
    )
    assert [cell.total_bar for cell in outcome.cells] == pytest.approx(bars.tolist(), rel=1e-6)
    assert getattr(last, "final")  # noqa: B009


def test_a_rank_is_within_half_of_what_is_aimed_at() -> None:
    """A tenth is 5% of the rows of a typical group, by the last look alone."""
    life = Life()
    outcome = life.ask(life.medians())
    assert isinstance(outcome, Quantiles)
    assert useful(outcome) is Useful.YES
    *_, last = life.releases
    (step,) = [part.step for part in last.parts]  # type: ignore[attr-defined]
    z = norm.isf(aim_rule.LAST * BETA / 2)
    bar = z * float(grid_sigma(step)) * math.sqrt(5) / 2
    for cell, n_rows in zip(outcome.cells, life.counts, strict=True):
        assert cell.bar == pytest.approx(bar, rel=1e-6)
        assert bar <= 0.05 * 20_000 * 1.1, "wards of this size and larger ones hold four fifths"
        assert abs(cell.rows - n_rows) < 2 * bar
    table = last.tables[0]  # type: ignore[attr-defined]
    passed = table.cumsum(axis=1)[:, :-1] - 0.5 * table.sum(axis=1, keepdims=True)
    first = [(row + bar >= 0).tolist().index(True) for row in np.hstack([passed, [[bar]] * 4])]
    assert [cell.first for cell in outcome.cells] == first


def test_means_and_shares_are_as_precise_as_they_are_worth() -> None:
    life = Life(aim=Aim(0.05, rough=0.1))
    means, shares = life.ask(life.sums(0, mean=True)), life.ask(life.shares())
    assert isinstance(means, Summed)
    assert isinstance(shares, Summed)
    for outcome, low, high in ((means, 0.5, 12.0), (shares, 0.0, 2.0)):
        assert useful(outcome) is not Useful.NO
        large = [cell for cell in outcome.cells if cell.count > 19_000]
        assert len(large) == 3
        for cell in large:
            assert cell.mean is not None
            assert cell.mean_bar is not None
            assert cell.mean_bar <= 0.11 * min(cell.mean - low, high - cell.mean)


# ---------------------------------------------------------------- once, for all, and by what is published


@pytest.mark.parametrize("kind", ["count", "by_ward", "sums", "shares", "medians"])
def test_a_query_is_looked_at_once_and_answered_alike_ever_after(kind: str) -> None:
    life = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02))
    query = getattr(life, kind)()
    first = life.ask(query)
    assert life.looks
    stored = life.mechanism.remembered()
    again = life.ask(query)
    assert not life.looks
    assert use_of_outcome(again) == use_of_outcome(first)
    other = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02), seed=9)
    other.mechanism.recall(stored)
    restarted = other.ask(query)
    assert not other.looks
    assert restarted == again
    if isinstance(first, Summed | Quantiles):
        assert isinstance(again, Summed | Quantiles)
        assert again.cells == first.cells
    else:
        assert [c.count for c in cells(again)] == [c.count for c in cells(first)]
        assert [c.error_bar for c in cells(again)] == [c.error_bar for c in cells(first)]


@pytest.mark.parametrize("aim", [Aim(0.1), Aim(0.01, rough=0.02, easy_share=0.02)])
@pytest.mark.parametrize("kind", ["count", "by_ward", "sums", "shares", "medians"])
def test_all_decisions_follow_from_the_bytes_that_are_published(kind: str, aim: Aim) -> None:
    lives = [Life(aim=aim) for _ in range(2)]
    outcomes = [
        life.ask(getattr(life, kind)(), read_back=read_back)
        for life, read_back in zip(lives, (False, True), strict=True)
    ]
    assert outcomes[0] == outcomes[1]
    described = [[look.description for look in life.looks] for life in lives]
    assert described[0] == described[1]


def test_queries_that_name_an_error_are_answered_as_without_an_aim() -> None:
    targets = [Target(share=0.01), Target(relative=0.05), Target(value=900)]
    found = []
    for aim in (None, Aim(0.1)):
        life = Life(aim=aim)
        answers = [life.ask(LinearQuery(A_WARD, life.window, target=t)) for t in targets]
        found.append([(c.count, c.error_bar, c.path) for a in answers for c in cells(a)])
        uses = {use_of_outcome(answer) is None for answer in answers}
        assert uses == {aim is None}, "how useful they are is said all the same"
    assert found[0] == found[1]


def test_a_quote_is_exact_where_no_pilot_decides_and_says_the_most_where_one_does() -> None:
    life = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02))
    quote = life.mechanism.quote(life.count())
    assert quote.expected
    assert quote.most == math.floor(0.05 * UNITS)
    life.ask(life.count())
    assert quote.charges == life.looks[0].charges
    assert life.paid() <= 0.05
    # A pilot of this table is not needed: what is known of its cells says how large they are.
    life = Life(base_share=0.001, aim=Aim(0.01, rough=0.02, easy_share=0.02))
    quote = life.mechanism.quote(life.by_ward())
    assert not quote.expected
    assert quote.most is None
    outcome = life.ask(life.by_ward())
    assert quote.charges == life.looks[0].charges
    assert quote.error_bar == pytest.approx(cells(outcome)[0].error_bar)


def test_what_may_be_taken_unasked_bounds_all_looks_of_an_answer() -> None:
    life = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02))
    life.mechanism.spending.takes_unasked(
        lambda _: np.array([UNITS // 5000 - round(life.paid() * UNITS)])
    )
    outcome = life.ask(life.count())
    assert life.paid() <= 1 / 5000
    use = use_of_outcome(outcome)
    assert use is not None
    assert use.guarded
    assert use.useful is Useful.NO
    life.mechanism.spending.takes_unasked(None)
    assert useful(life.ask(life.count())) is not Useful.NO, "the next day"


@pytest.mark.parametrize("kind", ["count", "by_ward", "sums", "shares", "medians"])
def test_a_pilot_that_a_guard_withholds_is_said_to_be_withheld(kind: str) -> None:
    """Without a pilot nobody knows how large a sum is, and so no last look can be planned."""
    life = Life(aim=Aim(0.01, rough=0.02, easy_share=0.02))
    life.mechanism.spending.takes_unasked(lambda window: np.zeros(len(window), np.int64))
    outcome = life.ask(getattr(life, kind)())
    assert not life.looks
    use = use_of_outcome(outcome)
    assert use is not None
    assert use.guarded


# ---------------------------------------------------------------- a price that a query names


def with_price(query: LinearQuery, at_most: float) -> LinearQuery:
    return replace(query, target=replace(query.target, at_most=at_most))


def enough(price: float | None) -> float:
    """What buys an answer that has this price: the noise of looks is on a grid of scales."""
    assert price is not None
    return 1.1 * price


@pytest.mark.parametrize(
    ("kind", "share"),
    [("count", 0.001), ("by_ward", 0.01), ("sums", 0.002), ("shares", 0.01), ("medians", 0.01)],
)
def test_the_prices_that_an_answer_names_can_be_bought(kind: str, share: float) -> None:
    """Each by its name alone, whatever may be taken unasked."""
    life = Life(aim=Aim(share, 2.2 * share, easy_share=0.002, query_share=0.002))
    query = getattr(life, kind)()
    use = use_of_outcome(life.ask(query))
    assert use is not None
    assert use.useful is not Useful.YES
    life.mechanism.spending.takes_unasked(lambda window: np.zeros(len(window), np.int64))
    while use.useful is not Useful.YES:
        expected = Useful.YES if use.useful is Useful.ROUGH else Useful.ROUGH
        price = enough(use.aim_price if use.useful is Useful.ROUGH else use.rough_price)
        use = use_of_outcome(life.ask(with_price(query, price)))
        assert use is not None
        assert use.useful is expected
        assert life.looks
        assert life.paid() <= price
        again = life.ask(with_price(query, price))
        assert not life.looks, "it was bought"
        assert useful(again) is expected
    assert useful(life.ask(query)) is Useful.YES, "what one has bought others have for free"
    assert not life.looks


def test_the_newest_last_look_alone_is_the_answer_to_a_price() -> None:
    life = Life(aim=Aim(0.001, rough=0.0022, easy_share=0.002, query_share=0.002))
    found = []
    outcome = life.ask(life.count())
    for useful in (Useful.ROUGH, Useful.YES):
        use = use_of_outcome(outcome)
        assert use is not None
        outcome = life.ask(with_price(life.count(), enough(use.rough_price or use.aim_price)))
        (release,) = life.releases
        steps: list[tuple[int, int]] = list(release.steps)  # type: ignore[attr-defined]
        sd = math.sqrt(sum(float(grid_sigma(step)) ** 2 for _, step in steps))
        (cell,) = cells(outcome)
        assert cell.count == release.values.sum()  # type: ignore[attr-defined]
        assert cell.error_bar == pytest.approx(norm.isf(aim_rule.LAST * BETA / 2) * sd / cell.n)
        assert cell.use is not None
        assert cell.use.useful is useful
        found.append(cell.count)
    assert found[0] != found[1]


def test_a_price_that_buys_nothing_better_leaves_the_answer_as_it_was() -> None:
    life = Life(aim=Aim(0.01, rough=0.022, easy_share=0.002, query_share=0.002))
    first = life.ask(life.by_ward())
    assert useful(first) is Useful.ROUGH
    again = life.ask(with_price(life.by_ward(), 0.003))
    assert not life.looks
    assert [cell.count for cell in cells(again)] == [cell.count for cell in cells(first)]


def test_a_price_is_a_limit_and_no_more_is_paid_than_an_answer_is_worth() -> None:
    life = Life(aim=Aim(0.01, rough=0.02))
    outcome = life.ask(with_price(life.count(), 0.9))
    assert useful(outcome) is Useful.YES
    assert life.paid() < 0.1
    life = Life(aim=Aim(0.01, rough=0.02))
    outcome = life.ask(with_price(life.count(), 0.0001))
    assert useful(outcome) is Useful.NO
    assert life.paid() <= 0.0001


def test_a_line_that_is_spent_is_said_to_be_so_where_the_data_set_refuses() -> None:
    for on_exhausted, told in (("refuse", Refused), ("unverified", Answered | Summed)):
        life = Life()
        life.mechanism = Calibrated(
            WARDS,
            PRIVACY,
            Accuracy(0.02, BETA),
            CalibratedSettings(
                base_share=0.0,
                on_exhausted=on_exhausted,  # type: ignore[arg-type]
                aim=Aim(0.1),
            ),
        )
        life.mechanism.open_phase(sum(life.counts))
        life.mechanism.charged((Charge(0, UNITS),))
        for query in (life.count(), life.sums(0)):
            assert isinstance(life.ask(query), told)
            assert not life.looks
