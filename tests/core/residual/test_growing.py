"""What sealed blocks lack is bought once queries have paid enough for it, and never before."""

from __future__ import annotations

import copy
import math
import random
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget, gaussian_rho, summed
from stream_dp.core.outcome import Answered, Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Rank
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import CAP, NOTHING, BaseRelease
from stream_dp.core.residual.base_release.growth import PAID, PAID_AT_FIRST, Bought, is_time
from stream_dp.core.residual.base_release.replay import Choice, Replay
from stream_dp.core.residual.belief.levels import Part
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.belief.rank_forms import rank_forms
from stream_dp.core.residual.looks.table_looks import GROWTH, TablesLook
from stream_dp.core.residual.plan.planner import Prices, certifies
from tests.core.residual.host import PRIVACY, Host, halves, names, sealed

SIZES = (16, 3, 6, 8, 4)
UNIVERSE = names(*SIZES)
N_ROWS = 27_000
ERROR = 0.005
"""At this error a line pays for so few of the queries below that far more is worth measuring."""


class Growing(Host):
    """The data set, which also takes the looks that follow from what was asked.

    Attributes:
        growths: What it measured of sealed blocks on its own account.
    """

    def __init__(self, *, error: float = 0.02, **options: Any) -> None:
        self.growths: list[TablesLook] = []
        super().__init__(UNIVERSE, error=error, **options)
        self.open_next()

    def open_next(self) -> None:
        """Opens a phase, and takes the looks that follow at once."""
        draw = np.random.default_rng(len(self.stored))
        self.open(sealed(UNIVERSE, *(draw.integers(0, n, N_ROWS) for n in SIZES)))
        self.grow(self.mechanism.growth())

    def grow(self, looks: Any) -> None:
        for look in looks:
            assert isinstance(look, TablesLook)
            assert look.reason == GROWTH
            self.growths.append(look)
            self.take(look)

    def ask(self, query: LinearQuery) -> Any:
        outcome = super().ask(query)
        paid = summed(charge for look in self.looks for charge in look.charges)
        self.grow(self.mechanism.was_asked(query, paid))
        self.remembered |= self.mechanism.remembered()
        return outcome

    def keeps(self, query: LinearQuery) -> bool:
        """Whether the answer keeps its promise."""
        outcome = self.ask(query)
        return isinstance(outcome, Answered) and outcome.path is not Path.UNVERIFIED


def stream(n: int, seed: int = 3, window: range = range(1)) -> list[LinearQuery]:
    """Conjunctions over two or three attributes, each with about half of its cells."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(n):
        chosen = sorted(draw.choice(len(SIZES), size=draw.integers(2, 4), replace=False).tolist())
        found.append(halves(draw, SIZES, chosen, window))
    return found


# ---------------------------------------------------------------- through the mechanism


def test_few_queries_let_nothing_grow() -> None:
    it = Growing()
    it.ask_all(stream(3))
    assert it.growths == []


def test_many_queries_let_it_grow_and_more_of_them_are_answered() -> None:
    it, small = Growing(error=ERROR), Growing(error=ERROR, grows=False)
    kept = [0, 0]
    for query in stream(500):
        for number, one in enumerate((it, small)):
            kept[number] += one.keeps(query)
    assert it.growths
    assert small.growths == []
    assert kept[0] > kept[1]


def tiles(phase: int) -> list[LinearQuery]:
    """What a dashboard asks after each phase: tables and counts about the last one, and about all."""
    found = []
    for window in (range(phase - 1, phase), range(phase)):
        groups = [*((a,) for a in range(5)), (0, 2), (1, 3), (2, 4), (3, 4)]
        found += [LinearQuery(EVERYTHING, window, group) for group in groups]
        found += [LinearQuery(query.predicate, window) for query in stream(14)]
    return found


def test_what_comes_again_lets_nothing_grow() -> None:
    """The replay knew of it as the phase opened, and has found that it is cheaper to let it pay."""
    it, openings = Growing(error=0.006), []
    for phase in range(1, 5):
        it.ask_all(tiles(phase))
        openings.append(it.state.bought.units(phase - 1))
        it.open_next()
    assert openings[3] < openings[0], "it learns"
    assert it.state.bought.rent(3) > PAID * openings[3], "queries pay enough for more"
    assert it.growths == []


@pytest.mark.parametrize("scarce", [True, False])
def test_as_a_phase_opens_sealed_blocks_grow_where_lines_are_scarce_alone(
    scarce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are not, a block that did for its phase does for what comes, or queries pay again."""
    it = Growing(error=ERROR)
    it.ask_all(stream(40))
    assert it.growths == []
    monkeypatch.setattr(Replay, "choice", lambda *_, **__: Choice(share=0.5, scarce=scarce))
    it.open_next()
    assert len(it.growths) == scarce


def test_the_first_phase_buys_early_and_at_most_a_quarter_of_a_line() -> None:
    it = Growing(error=0.02)
    bought = it.state.bought
    before, queries = 0, iter(stream(300))
    while not it.growths:
        before = bought.rent(0)
        it.ask(next(queries))
    [look] = it.growths
    assert before < look.charges[0].rho * PAID / 2, "later phases would wait for more"
    assert bought.rent(0) >= look.charges[0].rho * PAID_AT_FIRST
    assert bought.units(0) <= CAP * UNITS


def test_a_quote_says_what_leaves_the_line() -> None:
    """Price and growth, to the unit, for each query on the way; free queries included."""
    it, grew = Growing(error=ERROR), 0
    for query in stream(200):
        before = it.mechanism.lines.worst(range(1)).rho
        quote = it.mechanism.quote(query)
        it.ask(query)
        said = sum(charge.rho for charge in (*quote.charges, *quote.growth))
        assert it.mechanism.lines.worst(range(1)).rho - before == said
        grew += bool(quote.growth)
    assert grew == len(it.growths) > 0


def test_a_rehearsal_finds_what_grows_on_the_way_and_what_is_free_from_then_on() -> None:
    it = Growing(error=0.006)
    quotes = it.mechanism.quote_together(stream(200)).quotes
    [grown, *_] = [number for number, quote in enumerate(quotes) if quote.growth]
    free = [not quote.charges for quote in quotes]
    before, after = sum(free[:grown]) / grown, sum(free[grown + 1 :]) / len(free[grown + 1 :])
    assert after > 2.0 * before
    assert it.growths == [], "nothing was asked"


def test_whoever_opens_a_phase_opens_it_with_the_same_release() -> None:
    it, sizes = Growing(error=ERROR), []
    for phase in range(1, 4):
        it.ask_all(stream(110, seed=phase, window=range(phase)))
        other, here = it.restarted().mechanism, copy.deepcopy(it.mechanism)
        looks = [[*one.open_phase(N_ROWS), *one.growth()] for one in (other, here)]
        assert looks[0] == looks[1]
        sizes.append(sum(len(look.parts) for look in looks[0] if isinstance(look, TablesLook)))
        it.open_next()
    assert max(sizes) > 0


def test_a_restart_decides_the_same_after_every_query() -> None:
    it = Growing(error=ERROR)
    for number, query in enumerate(stream(140)):
        if number % 20 == 19:
            other = it.restarted().mechanism
            assert other.quote(query).growth == it.mechanism.quote(query).growth
        it.ask(query)
    assert it.growths


def test_a_look_that_a_crash_lost_is_not_taken_again_at_once() -> None:
    """Its charge stays. What queries pay from then on may pay for another one."""
    it, queries = Growing(error=ERROR), iter(stream(400))
    while not it.growths:
        it.ask(next(queries))
    assert isinstance(it.stored.pop(), bytes)
    other = it.restarted().mechanism
    other.lost(it.growths[0].description)
    assert other.quote(next(queries)).growth == ()


@pytest.mark.parametrize(
    "options",
    [{"queries_per_phase": 300}, {"base_share": 0.0}, {"base_share": 0.02}, {"grows": False}],
    ids=["number named", "no base release", "share named", "never"],
)
def test_a_definition_that_says_what_to_measure_is_taken_at_its_word(
    options: dict[str, Any],
) -> None:
    it = Growing(error=ERROR, **options)
    it.ask_all(stream(150))
    it.open_next()
    assert it.growths == []


def test_nothing_that_is_measured_unasked_passes_what_was_announced() -> None:
    it = Growing(error=ERROR)
    for phase in range(1, 4):
        it.ask_all(stream(100, seed=phase, window=range(phase)))
        it.open_next()
    assert it.growths
    bought = [it.state.bought.units(block) / UNITS for block in range(4)]
    assert max(bought) <= it.mechanism.openings.most_measured / UNITS
    assert max(bought) > 0.3, "and much is"


# ---------------------------------------------------------------- what is lacking


def test_what_a_block_lacks_brings_it_to_the_release_and_costs_what_its_tables_cost() -> None:
    prices, budget = Prices(Budget.of(PRIVACY)), Budget.of(PRIVACY)
    have: list[tuple[Part, int]] = [((0,), 60), ((0,), 64), ((1, 2), 70)]
    large = BaseRelease((((0,), 40), ((1, 2), 80), ((3,), 66)), 0)
    bought = Bought(prices)
    for table, step in have:
        bought.buy(0, table, step, opening=True)
    growth = bought.lacking(0, large)
    assert [table for table, _ in growth.tables] == [(0,), (3,)]
    for table, step in growth.tables:
        known = sum(1 / grid_sigma(s) ** 2 for t, s in [*have, (table, step)] if t == table)
        wanted = dict(large.tables)[table]
        assert known >= 1 / grid_sigma(wanted) ** 2
        assert known - 1 / grid_sigma(step + 1) ** 2 > 0
    exact = sum(gaussian_rho(grid_sigma(s), squared_sensitivity=2) for _, s in growth.tables)
    assert exact <= Fraction(growth.units, UNITS) * budget.rho


# ---------------------------------------------------------------- Theorem 30


def bought_by_rule(prices: list[int], rents: list[int]) -> list[tuple[int, int]]:
    """Which increment is bought after which query, by the rule, and for what price."""
    bought, found, rent, largest = Bought(_Flat()), [], 0, 0  # type: ignore[arg-type]
    for number, (paid, wanted) in enumerate(zip(rents, prices, strict=True)):
        bought.pay(0, paid)
        before, rent = rent, rent + paid
        largest = max(largest, wanted)
        growth = BaseRelease((((0,), largest),), largest)
        if is_time(before, rent) and bought.is_worth(0, growth, rent, PAID):
            bought.buy(0, (0,), largest, opening=False)
            found.append((number, largest))
    return found


class _Flat:
    """Prices by which a step costs itself."""

    table = 2

    def units(self, step: int, squared_sensitivity: int) -> int:
        return step


def test_whatever_is_asked_purchases_are_at_most_eight_times_the_rent() -> None:
    """Theorem 30, first claim: 2/g = 8, after every query of every sequence tried; and it comes near."""
    draw, worst = random.Random(1), Fraction(0)
    for _ in range(400):
        n = draw.randrange(1, 40)
        scale = UNITS // draw.choice([20, 50, 200])
        rents = [draw.randrange(scale) for _ in range(n)]
        # An adversary that knows what was paid makes what is lacking as dear as the rule lets it be.
        prices = [int(rent / PAID * draw.choice([0.3, 1.0, 1.0])) for rent in accumulate(rents)]
        paid = list(accumulate(rents))
        spent = 0
        for number, price in bought_by_rule(prices, rents):
            spent += price
            assert spent <= 2 / Fraction(PAID) * paid[number]
            worst = max(worst, Fraction(spent, max(1, paid[number])))
    assert worst > 5


def test_what_has_its_price_paid_is_bought_by_the_time_rent_has_grown_by_half() -> None:
    """Theorem 30, second claim: rent before the purchase is at most 1.5*g*P and one query more."""
    draw = random.Random(2)
    for _ in range(200):
        price, dearest = draw.randrange(UNITS // 20, UNITS // 2), UNITS // 100
        rents = [draw.randrange(1, dearest) for _ in range(400)]
        [(number, found), *_] = bought_by_rule([price] * 400, rents)
        assert found == price
        paid = sum(rents[: number + 1])
        assert PAID * price <= paid <= 1.5 * PAID * price + dearest


def test_where_lines_are_scarce_blocks_are_made_alike_at_an_opening_without_rent() -> None:
    bought = Bought(_Flat())  # type: ignore[arg-type]
    bought.buy(0, (0,), 100, opening=True)
    growth = BaseRelease((((1,), 30),), 30)
    assert not bought.is_worth(0, growth, 0, PAID)
    assert bought.is_worth(0, growth, 0, 0.0)
    assert not bought.is_worth(0, BaseRelease((((1,), 20),), 20), 0, 0.0), "not for so little"
    assert not bought.is_worth(0, NOTHING, 0, 0.0)


# ---------------------------------------------------------------- Theorem 13 (d)


def missed(z: float, n_phases: int) -> float:
    """The probability with which somebody makes the error of a sum over phases larger than ``z`` deviations.

    All variances together are at most 1. Who sees an error that is large enough has nothing but precise
    phases from then on, so a walk of equal steps is beyond ``z`` as soon as it was there once.
    """
    at, weight = np.linspace(-z, z, 801), np.full(801, 2.0 * z / 800)
    weight[[0, -1]] /= 2.0
    step = np.sqrt(n_phases / (2.0 * np.pi)) * np.exp(-0.5 * n_phases * (at[:, None] - at) ** 2)
    inside = step[400]
    for _ in range(n_phases - 1):
        inside = step @ (inside * weight)
    return 1.0 - float(inside @ weight)


def test_who_steers_openings_makes_answers_miss_no_more_often_than_promised() -> None:
    it, beta = Growing(error=ERROR), 0.01
    it.open_next()
    it.open_next()
    state, kept, lost = it.state, list[float](), list[float]()
    for number, query in enumerate(stream(600)):
        window = range(number % 2, 3)
        asked = LinearQuery(query.predicate, window)
        evidence = it.state.belief.at_opening(form_of(asked, state.shape), window)
        z = ERROR * evidence.n_rows / float(evidence.variances[0]) ** 0.5
        (lost if state.at_opening(asked) is None else kept).append(z)
    assert missed(min(kept), 12) < 2.0 * math.erfc(min(kept) / 2**0.5) <= 0.9 * beta
    fixed = [z for z in lost if z > state.terms.z]
    assert missed(min(fixed), 12) > beta, "what suffices for openings that nobody steers does not"


def test_an_answer_about_several_phases_has_the_error_asked_for_as_its_bar() -> None:
    """What was asked before decided how precise the later phase is, so its precision is no bar by itself."""
    window, predicate = range(2), Predicate.conjunction({1: np.array([True, False, False])})
    it = Growing()
    it.open_next()
    query = LinearQuery(predicate, window)
    evidence = it.state.at_opening(query)
    assert evidence is not None, "openings answer it"
    assert it.state.terms.z * evidence.variances[0] ** 0.5 / evidence.n_rows < 0.0195
    outcome, own = it.ask(query), it.ask(LinearQuery(predicate, range(1)))
    assert outcome.error_bar == pytest.approx(0.02)
    assert own.error_bar < 0.0195, "one phase has the bar of its precision"


def test_a_quantile_of_several_phases_has_no_bar_of_what_learned_openings_say_by_themselves() -> (
    None
):
    it = Growing()
    it.open_next()
    widths = []
    for window in (range(1), range(2)):
        query = LinearQuery(EVERYTHING, window, rank=Rank(1, 0.5, (0, 1, 2)))
        forms = rank_forms(query, it.state.shape)
        opening = it.state.belief.at_opening(forms[0][0], window)
        z, error = it.state.terms.z, it.state.terms.error
        assert certifies(opening, error, z), "by itself it is as precise as is asked"
        outcome = it.ask(query)
        assert outcome.path is Path.CERTIFIED
        own = z * max(
            it.state.belief.at_opening(form, window).variances[0] ** 0.5 for form, _ in forms[:-1]
        )
        widths.append((outcome.cells[0].bar or 0.0) / own)
    assert widths[0] < 1.01 < 1.05 < widths[1]
