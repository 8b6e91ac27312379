"""Sums that are measured up to a cut, with the rest from published bins: docs/guarantee.md, Theorem 25."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

import stream_dp.core.residual.ways.totals as totals
from stream_dp.core.accounting import Charge
from stream_dp.core.blocks import Block, Blocks
from stream_dp.core.conditions import compile_group_by, compile_total
from stream_dp.core.measure import Measure
from stream_dp.core.mechanism import Look
from stream_dp.core.noise import NoiseSource, grid_sigma
from stream_dp.core.outcome import Path, Summed
from stream_dp.core.parameters import Accuracy, Privacy, Target
from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.cuts import Cut, Rest, cuts_of, measured_alone
from stream_dp.core.residual.measuring import QUERY, Part, TablesLook
from stream_dp.core.residual.sum_look import SumLook, exact_sums
from stream_dp.core.residual.sum_price import SumShape, WholeValues
from stream_dp.core.universe import Category, Number, Universe
from stream_dp.errors import InvalidQuery
from tests.noise import FakeNoise, QuickNoise

ALARM = 1e-6
STAY, WARD = range(2)
STAYS = Universe(
    (
        Number("stay", (1, 2, 4, 7, 14, 21, 30, 60), measure=Measure(1.0, 0.0, 365.0)),
        Category("ward", ("a", "b"), other=False),
    )
)
N_ROWS = 4_000
FINE = -120
"""A step of the grid of scales at which bins are known to a fraction of a row."""


def stays(seed: int, n_rows: int = N_ROWS) -> tuple[npt.NDArray[np.float64], list[str]]:
    draw = np.random.default_rng(seed)
    return np.exp(draw.normal(1.2, 0.8, n_rows)), draw.choice(["a", "b"], n_rows).tolist()


def asked(
    group_by: Sequence[str] = (), *, block: int = 0, up_to: float | None = None, **target: Any
) -> LinearQuery:
    total, _, predicate = compile_total(STAYS, "stay", None, group_by, up_to)
    groups = compile_group_by(STAYS, group_by, predicate) if group_by else ()
    window = range(block, block + 1)
    return LinearQuery(predicate, window, groups, total, None, Target(**target))


class Trial:
    """A data set of stays whose bins were published."""

    def __init__(
        self, noise: NoiseSource, step: int | None, *, blocks: int = 1, beta: float = 0.01
    ) -> None:
        accuracy = Accuracy(0.02, beta)
        self.mechanism = Calibrated(STAYS, Privacy(8.0, 1e-6), accuracy, base_share=0.0)
        self.noise, self.data, self.looks = noise, Blocks(STAYS), list[Look]()
        self.stays, self.wards = stays(1)
        block = Block.seal(
            STAYS, STAYS.encode_columns({"stay": self.stays.tolist(), "ward": self.wards})
        )
        for number in range(blocks):
            self.data.append(block)
            assert not self.mechanism.open_phase(N_ROWS)
            if step is not None:
                part = Part((STAY, WARD), number, step)
                self.take(TablesLook(QUERY, (part,), ((9, 2),), (Charge(number, 1),)))

    def take(self, look: Look) -> Any:
        self.mechanism.charged(look.charges)
        release = look.take(self.noise, self.data)
        self.mechanism.absorb(release)
        self.looks.append(look)
        return release

    def ask(self, query: LinearQuery) -> Summed:
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            release = self.take(step)
            step = self.mechanism.conclude(query, step, release)
        assert isinstance(step, Summed)
        return step

    @property
    def kept(self) -> npt.NDArray[np.float64]:
        """What each row counts for."""
        return np.rint(self.stays)


# ---------------------------------------------------------------- what is added up


def test_a_sum_is_that_of_a_cut_and_of_a_rest_between_the_ends_of_the_bins() -> None:
    """Exact, for all cuts: min(u, c), and then the counts of the bins above c."""
    trial = Trial(QuickNoise(1), FINE)
    (table,) = trial.data.marginal((STAY,), range(1))
    ends = np.array(STAYS.measured[STAY].measured_ends)
    places = [cut.at for cut in cuts_of(asked(), trial.mechanism.belief, 0.01)]
    assert places == [1.0, 2.0, 4.0, 7.0, 14.0, 21.0, 30.0, 60.0]
    for at in places:
        query = asked(up_to=at)
        values = WholeValues.of(query)
        assert (values.low, values.high) == (0, at)
        shape = SumShape(0, int(at), int(at), False, True)
        look = SumLook(query, values, shape, ((0, 0, 0),), 1, ())
        ((doubled,),) = exact_sums(look, trial.data, 0)
        below = (int(doubled) + int(at) * N_ROWS) / 2
        assert below == np.minimum(trial.kept, at).sum()
        least, most = (np.maximum(each - at, 0) @ table for each in ends.T)
        assert below + least <= trial.kept.sum() <= below + most


@pytest.mark.parametrize(("up_to", "fix"), [(5.0, "4 or 7"), (0.0, "1 or 2"), (400.0, "30 or 60")])
def test_a_number_that_is_no_edge_cannot_be_a_cut(up_to: float, fix: str) -> None:
    with pytest.raises(InvalidQuery, match=fix) as fault:
        asked(up_to=up_to)
    assert fault.value.field == "up_to"


def test_values_that_are_not_kept_have_cuts_that_queries_name_and_no_others() -> None:
    plain = Universe((replace(STAYS.attributes[0], measure=None), STAYS.attributes[1]))  # type: ignore[arg-type]
    total, _, predicate = compile_total(plain, "stay", None, (), 7.0)
    assert total.largest == 7.0
    assert total.values == (1.0, 1.5, 3.0, 5.5, 7.0, 7.0, 7.0, 7.0, 7.0)
    belief = Calibrated(plain, Privacy(1.0, 1e-6), Accuracy(0.02, 0.01)).belief
    whole, _, _ = compile_total(plain, "stay", None, ())
    assert not cuts_of(LinearQuery(predicate, range(1), (), whole), belief, 0.01)


# ---------------------------------------------------------------- what is planned


@pytest.mark.parametrize("group_by", [(), ("ward",)])
def test_a_wide_sum_is_measured_up_to_a_cut_where_bins_are_known(
    group_by: tuple[str, ...],
) -> None:
    query = asked(group_by, value=1_200.0)
    trial, unknown = Trial(QuickNoise(2), FINE), Trial(QuickNoise(2), None)
    answer, whole = trial.ask(query), unknown.ask(query)
    assert whole.cut is None
    assert answer.cut is not None
    assert answer.path is Path.MEASURED
    prices = [one.looks[-1].charges[0].rho for one in (trial, unknown)]
    assert 10 * prices[0] < prices[1], "a cut makes it much cheaper"
    wards = np.array(trial.wards)
    for cell, ward in zip(answer.cells, "ab" if group_by else [""], strict=True):
        there = trial.kept[wards == ward] if ward else trial.kept
        assert cell.total_bar is not None
        assert cell.total_bar <= 1_200.0 * (1.0 + 1e-6)
        assert abs(cell.total - there.sum()) <= cell.total_bar
        assert cell.mean is not None
        assert cell.mean_bar is not None
        assert abs(cell.mean - there.mean()) <= cell.mean_bar


def test_a_repeat_is_free_and_the_same() -> None:
    trial = Trial(QuickNoise(3), FINE)
    query = asked(("ward",), value=1_200.0)
    first = trial.ask(query)
    taken = len(trial.looks)
    again = trial.ask(query)
    assert len(trial.looks) == taken
    assert again == replace(first, path=Path.CERTIFIED)
    assert trial.mechanism.quote(query).charges == ()


def test_a_quote_is_what_is_paid_and_names_the_bar() -> None:
    trial = Trial(QuickNoise(4), FINE)
    query = asked(value=1_000.0)
    quote = trial.mechanism.quote(query)
    answer = trial.ask(query)
    assert quote.charges == trial.looks[-1].charges
    assert quote.error_bar is not None
    (cell,) = answer.cells
    assert cell.total_bar == pytest.approx(quote.error_bar * N_ROWS * 365.0, rel=1e-6)


def test_bins_that_are_hardly_known_leave_everything_as_it_was() -> None:
    query = asked(value=20_000.0)
    found = []
    for step in (None, 300):
        trial = Trial(QuickNoise(5), step)
        (cell,) = trial.ask(query).cells
        found.append((trial.looks[-1].charges, cell.total, cell.total_bar))
    assert found[0][0] == found[1][0]
    assert found[0][2] == pytest.approx(found[1][2])


def test_a_mean_with_an_error_is_measured_up_to_a_cut_too() -> None:
    query = asked(("ward",), mean=0.7)
    trial, unknown = Trial(QuickNoise(6), FINE), Trial(QuickNoise(6), None)
    answer, whole = trial.ask(query), unknown.ask(query)
    assert answer.cut is not None
    assert whole.cut is None
    paid = [sum(look.charges[0].rho for look in one.looks) for one in (trial, unknown)]
    assert 10 * paid[0] < paid[1]
    for cell, ward in zip(answer.cells, "ab", strict=True):
        assert cell.mean is not None
        assert cell.mean_bar is not None
        there = trial.kept[np.array(trial.wards) == ward]
        assert abs(cell.mean - there.mean()) <= cell.mean_bar <= 0.7
    taken = len(trial.looks)
    assert trial.ask(query).path is Path.CERTIFIED
    assert len(trial.looks) == taken


def test_a_cut_that_a_query_names_is_all_that_it_pays_for() -> None:
    trial = Trial(QuickNoise(7), None)
    narrow, wide = asked(up_to=7.0, value=4_000.0), asked(value=4_000.0)
    assert narrow.total is not None
    assert narrow.total.largest == 7.0
    prices = [sum(c.rho for c in trial.mechanism.quote(q).charges) for q in (narrow, wide)]
    assert 1_000 * prices[0] < prices[1]
    (cell,) = trial.ask(narrow).cells
    assert cell.total_bar is not None
    assert abs(cell.total - np.minimum(trial.kept, 7.0).sum()) <= cell.total_bar <= 4_000.0


def test_all_cuts_share_one_failure_probability() -> None:
    """The cut is chosen by published estimates, so the ends of all rests must hold at once."""
    trial = Trial(QuickNoise(8), FINE)
    cuts = cuts_of(asked(), trial.mechanism.belief, 0.01)
    assert [cut.z for cut in cuts] == [two_sided(np.log(0.01 / 8))] * 8


def test_what_is_measured_up_to_a_cut_stands_alone() -> None:
    """Its rows are known from tables too, but these have chosen the cut."""
    trial = Trial(QuickNoise(10), FINE)
    answer = trial.ask(asked(("ward",), value=1_200.0))
    (cut,) = (
        c for c in cuts_of(asked(("ward",)), trial.mechanism.belief, 0.01) if c.at == answer.cut
    )
    look = trial.looks[-1]
    assert isinstance(look, SumLook)
    ((_, _, of_counts),) = look.steps
    alone = measured_alone(trial.mechanism.belief, cut).sums
    assert alone.variance_of_counts == pytest.approx(float(grid_sigma(of_counts)) ** 2)


def test_the_plan_and_the_answer_follow_from_what_is_published_alone() -> None:
    """Data sets that differ in every value, and publish the same, take the same look."""
    trial, other = Trial(QuickNoise(9), FINE), Trial(QuickNoise(9), FINE)
    other.data = Blocks(STAYS)
    for query in (asked(value=1_200.0), asked(("ward",), mean=0.7)):
        assert trial.mechanism.answer(query) == other.mechanism.answer(query)


# ---------------------------------------------------------------- how often the bars hold


class Rounded(FakeNoise):
    """Rounded normal noise."""

    def __init__(self, seed: int) -> None:
        self._noise = QuickNoise(seed)

    def gaussian(self, sigma: Any, size: int) -> npt.NDArray[np.int64]:
        return self._noise.gaussian(sigma, size)


def missed(n_blocks: int, seed: int, step: int = 30) -> tuple[int, int, int]:
    """How often the ends of a total, and of a mean, miss; and how often a cut was taken."""
    trial = Trial(Rounded(seed), step, blocks=n_blocks, beta=0.2)
    true, found = trial.kept.sum(), np.zeros(3, dtype=np.int64)
    for block in range(n_blocks):
        answer = trial.ask(asked(block=block, value=3_000.0))
        (cell,) = answer.cells
        found[2] += answer.cut is not None
        low, high = cell.total_ends
        found[0] += not low <= true <= high
        if cell.mean_ends is not None:
            low, high = cell.mean_ends
            found[1] += not low <= true / N_ROWS <= high
    of_totals, of_means, cut = found.tolist()
    return of_totals, of_means, cut


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_the_ends_of_a_cut_sum_hold_as_often_as_they_say(part: int) -> None:
    """1,000 answers of 10,000 at 80%. Each of two claims fails by chance with probability 1e-6 at most."""
    n, totals_missed, means_missed, cut = 0, 0, 0, 0
    for seed in range(10 * part, 10 * part + 10):
        of_totals, of_means, taken = missed(100, seed)
        n, cut = n + 100, cut + taken
        totals_missed, means_missed = totals_missed + of_totals, means_missed + of_means
    assert cut > n / 2, "most answers are about a cut"
    for times in (totals_missed, means_missed):
        assert binomtest(times, n, 0.2, "greater").pvalue > ALARM


def no_rest(cut: Cut) -> list[Rest]:
    """As if rows counted for nothing beyond the cut."""
    return [Rest(0.0, 0.0, 0.0, 0.0) for _ in cut.low.totals]


def one_bin(cut: Cut) -> list[Rest]:
    """As if all rows above the cut were at the lower end of their bin."""
    return [
        Rest(float(total) * cut.largest, 0.0, float(total / count) * cut.largest, 0.0)
        for total, count in zip(cut.low.totals, cut.low.counts, strict=True)
    ]


@pytest.mark.parametrize("broken", [no_rest, one_bin])
def test_a_copy_that_knows_too_much_of_the_rest_is_noticed(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cut, "rests", property(broken))
    monkeypatch.setattr(totals, "_TRIED", 1)
    n = 60
    times, _, _ = missed(n, 5, FINE)
    assert binomtest(times, n, 0.2, "greater").pvalue < ALARM


def test_the_ends_hold_for_some() -> None:
    """60 answers at 80%, with a probability of a false alarm of 1e-6 at most."""
    times, of_means, cut = missed(60, 5, FINE)
    assert cut == 60
    for each in (times, of_means):
        assert binomtest(each, 60, 0.2, "greater").pvalue > ALARM
