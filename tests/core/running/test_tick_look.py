"""The look of a tick: what it publishes, stores and says, and what one row changes."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.tick_counts import MOST_ROWS, TickCounts
from stream_dp.core.running.tick_factor import factor_of
from stream_dp.core.running.tick_look import TickLook, TickRelease, counts_of_tick
from stream_dp.errors import CorruptState
from tests.core.running.periods import (
    BOTH,
    PAID,
    SIZES,
    SMALL,
    STATUS,
    Draws,
    a_period,
    plan_of,
    published,
)
from tests.noise import RoundedNoise


def test_golden_ticks() -> None:
    plan, came = plan_of(PAID, ticks=4), [5, 0, 2, 7]
    noise = Draws(1000, -500, 250, 0)
    totals, found = a_period(plan, lambda totals: [[came[totals.tick]]], noise)
    assert [release.tables[0].tolist() for release in found] == [[5195], [1600], [3657], [9394]]
    estimates = [totals.counts(0, tick).values[0] for tick in (1, 2, 3, 4)]
    assert estimates == pytest.approx([6.191895113, 5.039134805, 7.448360802, 14.327362593])


def test_a_tick_publishes_whole_numbers_of_all_tiles() -> None:
    plan = plan_of(STATUS, PAID, BOTH, ticks=SMALL)
    rng = np.random.default_rng(1)
    came = [[rng.integers(0, 90, size) for size in plan.sizes] for _ in range(3)]
    noise = RoundedNoise(2)
    _, found = a_period(plan, lambda totals: came[totals.tick], noise)
    assert noise.drawn == [(plan.sigma, size) for size in (4, 1, 12)] * 3
    again = RoundedNoise(2)
    for tick, release in enumerate(found):
        assert (release.period, release.tick) == (7, tick + 1)
        for number, table in enumerate(release.tables):
            exact = sum(SMALL[tick, u] * came[u][number] for u in range(tick + 1))
            assert table.dtype == np.int64
            assert (table - exact).tolist() == again.gaussian(plan.sigma, len(table)).tolist()


def test_it_takes_the_noise_that_it_reserved() -> None:
    plan, noise = plan_of(STATUS, PAID), PooledNoise()
    look, data = TickLook(plan, 0, 1), Blocks(lambda _: SIZES)
    look.reserve(noise)
    assert noise.waiting == 5
    data.ticks[0] = [TickCounts((np.zeros(4, np.int64), np.zeros(1, np.int64)))]
    look.take(noise, data)
    assert noise.waiting == 0


def test_what_it_says_and_shows_has_nothing_of_a_row() -> None:
    plan, data = plan_of(STATUS), Blocks(lambda _: SIZES)
    counts = TickCounts((np.array([4321, 0, 1, 2]),))
    look = TickLook(plan, 3, 1)
    data.ticks[3] = [counts]
    said = json.dumps(look.description)
    assert json.loads(said) == {"kind": "tick", "period": 3, "tick": 1, "step": 64}
    assert look.charges == ()
    assert list(look.reads) == []
    for text in (
        said,
        repr(counts),
        repr(data),
        repr(look),
        repr(look.take(Draws(*[9] * 4), data)),
    ):
        assert "4321" not in text
        assert "4330" not in text


def test_counts_of_a_tick_come_in_the_order_of_the_answers() -> None:
    table = np.arange(12, dtype=np.int64).reshape(SIZES)
    found = counts_of_tick((STATUS, PAID, BOTH), (table.sum(axis=1), table.sum(axis=1), table))
    assert [one.tolist() for one in found.tables] == [
        [3, 12, 21, 30],
        [3],
        table.T.reshape(-1).tolist(),
    ]


def test_stored_bytes_are_read_back_and_refused_where_they_do_not_fit() -> None:
    release = TickRelease(1, 2, (np.array([-5, 2**60]), np.array([7])))
    read = TickRelease.from_bytes(release.to_bytes())
    assert (read.period, read.tick) == (1, 2)
    assert [table.tolist() for table in read.tables] == [[-5, 2**60], [7]]
    for data in (release.to_bytes()[:-1], release.to_bytes() + b"\0", b"\x01\x08"):
        with pytest.raises(CorruptState):
            TickRelease.from_bytes(data)


def test_the_most_rows_stay_inside_64_bits() -> None:
    plan = plan_of(PAID, ticks=24)
    assert max(plan.factor.row(tick).max() for tick in range(1, 25)) == 2**10
    counts = np.zeros((24, 1), dtype=np.int64)
    counts[-1] = MOST_ROWS
    assert published(plan, counts)[-1, 0] == 2**62


@pytest.mark.parametrize("ticks", [4, 24])
def test_what_one_row_changes_is_what_the_price_is_for(ticks: int) -> None:
    """A replaced row in any tick, by the looks themselves: a table moves by sqrt(2) columns at most."""
    plan, counts = plan_of(STATUS, ticks=ticks), np.zeros((ticks, 4), dtype=np.int64)
    without, losses = published(plan, counts), []
    for came in range(ticks):
        for moved in ((1, -1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)):
            counts[came] = moved
            square = int(np.square(published(plan, counts) - without).sum())
            losses.append(Fraction(square) / (2 * plan.sigma**2))
        counts[came] = 0
    assert max(losses) == plan.rho
    assert plan.rho == Fraction(2 * factor_of(ticks).column_square) / (2 * plan.sigma**2)


def test_a_factor_with_halves_would_show_the_row() -> None:
    """With R = [[1, 0], [1/2, 1]] the fraction of the second number says whether a row came first.

    Twice the factor is whole, and a shift by (2, 1).
    """
    x = np.arange(-48, 49)
    law = np.exp(-np.square(x / 4.0) / 2)
    law /= law.sum()

    def hockey(factor: tuple[Fraction, Fraction]) -> float:
        """The delta at epsilon 1 between a row in the first tick and none."""
        found = 0.0
        of_first = dict(zip((int(at) + factor[0] for at in x), law, strict=True))
        of_second = dict(zip((int(at) + factor[1] for at in x), law, strict=True))
        without = dict(zip(map(Fraction, x.tolist()), law, strict=True))
        for first, p in of_first.items():
            for second, q in of_second.items():
                alike = without.get(first, 0.0) * without.get(second, 0.0)
                found += max(p * q - np.e * alike, 0.0)
        return found

    assert hockey((Fraction(1), Fraction(1, 2))) == pytest.approx(1.0)
    assert hockey((Fraction(2), Fraction(1))) == pytest.approx(1.317e-2, rel=1e-3)
