"""What is kept for declared tiles: only they may spend it, and only until they are certified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Total
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.plan.reserve import Reserve
from tests.core.residual.host import SIZES, Host, opened, stream, where

BY_FIRST = PlannedTile(LinearQuery(EVERYTHING, range(1), (0,)), 1)
HALF = PlannedTile(LinearQuery(where(SIZES, {1: [0]}), range(1)), 2)
TILES = (BY_FIRST, HALF)


def reserving(n_phases: int = 1, tiles: tuple[PlannedTile, ...] = TILES, **options: Any) -> Host:
    """At an error at which a line of these rows pays for some twenty counts."""
    settings = {"base_share": 0.0, "error": 0.005, "on_exhausted": "refuse", **options}
    return opened(n_phases, tiles=tiles, **settings)


def reserve_of(it: Host) -> Reserve:
    reserve = it.state.spending.reserve
    assert reserve is not None
    return reserve


def kept(it: Host) -> list[int]:
    return [int(units) for units in reserve_of(it).kept(it.window)]


def about(tile: PlannedTile, n_phases: int = 1) -> LinearQuery:
    """The tile after the newest phase."""
    length = n_phases if tile.phases is None else min(tile.phases, n_phases)
    return replace(tile.query, window=range(n_phases - length, n_phases))


def exhaust(it: Host) -> None:
    """Asks counts about the only phase until the line refuses some."""
    outcomes = it.ask_all(stream(11, 400, 1))
    assert 0 < sum(isinstance(outcome, Refused) for outcome in outcomes) < len(outcomes)


def test_tiles_are_answered_whatever_else_was_asked_first() -> None:
    reserved, taken = reserving(), reserving(tiles=())
    for it in (reserved, taken):
        exhaust(it)
    for tile in TILES:
        assert reserved.ask(about(tile)).path is not Path.UNVERIFIED
    assert isinstance(taken.ask(about(BY_FIRST)), Refused), "nothing was left for it"


def test_what_is_kept_pays_for_the_tiles_and_is_free_once_they_are_certified() -> None:
    it = reserving()
    (before,) = kept(it)
    it.ask_all(map(about, TILES))
    assert 0.8 * before < sum(charge.rho for charge in it.charges) <= before
    assert kept(it) == [0]


def test_another_query_is_refused_until_the_tiles_were_asked() -> None:
    it = reserving()
    exhaust(it)
    assert it.mechanism.lines.left(range(1))[0] >= kept(it)[0] > 0
    waiting = [r for r in map(it.ask, stream(12, 40, 1)) if isinstance(r, Refused)]
    assert any("kept for the tiles" in r.message and r.retriable for r in waiting)
    assert {r.code for r in waiting} == {RefusalCode.BUDGET_EXHAUSTED}


@pytest.mark.parametrize(
    "change",
    [
        {"window": range(1)},
        {"fresh": True},
        {"target": Target(share=0.001)},
        {"target": Target(at_most=0.01)},
        {"group_by": (1,)},
    ],
)
def test_only_a_declared_tile_about_the_newest_phase_may_spend_it(change: dict[str, Any]) -> None:
    reserve = reserve_of(reserving(2))
    tile = about(HALF if "fresh" in change else BY_FIRST, 2)
    assert reserve.is_for(tile)
    assert not reserve.is_for(replace(tile, **change))


def test_a_base_release_that_certifies_a_tile_leaves_nothing_to_keep() -> None:
    assert kept(reserving(base_share=0.9, tiles=(BY_FIRST,))) == [0]
    assert kept(reserving(error=1e-5)) == [0], "no line can pay for them"


def test_each_phase_expects_the_tiles_again_about_windows_that_end_with_it() -> None:
    it = reserving(2)
    first, second = kept(it)
    assert 0 < first < second, "the shorter window is about the second phase alone"
    it.ask(about(HALF, 2))
    assert kept(it)[0] == 0
    assert 0 < kept(it)[1] < second


def test_sums_are_kept_for_too() -> None:
    total = Total(3, tuple(float(v) for v in range(1, SIZES[3] + 1)))
    query = LinearQuery(EVERYTHING, range(1), (0,), total)
    it = reserving(tiles=(PlannedTile(query, 1),), error=0.02)
    (before,), (charge,) = kept(it), it.mechanism.quote(query).charges
    assert charge.rho <= before <= 1.2 * charge.rho
    it.ask(query)
    assert kept(it) == [0]


def test_a_restart_and_a_rehearsal_keep_the_same() -> None:
    it = reserving(2)
    it.ask_all([*stream(13, 12, 2), about(HALF, 2)])
    later, before = it.restarted(), kept(it)
    assert kept(later) == before
    for query in stream(14, 30, 2):
        assert later.mechanism.quote(query) == it.mechanism.quote(query)
    assert sum(before) > 0
    it.mechanism.quote_together([about(BY_FIRST, 2), about(HALF, 2)])
    assert kept(it) == before
