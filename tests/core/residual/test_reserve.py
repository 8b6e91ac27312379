"""What is kept for declared tiles: only they may spend it, and only until they are certified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.plan.reserve import Reserve
from tests.core.residual.test_calibrated import SIZES, Host, host, stream

BY_FIRST = PlannedTile(LinearQuery(EVERYTHING, range(1), (0,)), 1)
HALF = PlannedTile(
    LinearQuery(Predicate.conjunction({1: np.arange(SIZES[1]) < SIZES[1] // 2}), range(1)), 2
)
TILES = (BY_FIRST, HALF)
SCARCE = 0.005
"""An error at which a line of these rows pays for some twenty counts."""


def opened(n_phases: int = 1, *, tiles: tuple[PlannedTile, ...] = TILES, **options: object) -> Host:
    settings = {"base_share": 0.0, "error": SCARCE, "on_exhausted": "refuse", **options}
    return host(n_phases, tiles=tiles, **settings)  # type: ignore[arg-type]


def reserve_of(it: Host) -> Reserve:
    reserve = it.mechanism.state.spending.reserve
    assert reserve is not None
    return reserve


def about(tile: PlannedTile, n_phases: int = 1) -> LinearQuery:
    """The tile after the newest phase."""
    length = n_phases if tile.phases is None else min(tile.phases, n_phases)
    return replace(tile.query, window=range(n_phases - length, n_phases))


def exhaust(it: Host, n_phases: int = 1) -> int:
    """Asks counts about the newest phase until the line refuses; returns how many were answered."""
    others = stream(11, 400, n_phases)
    newest = range(n_phases - 1, n_phases)
    answered = 0
    for query in others:
        outcome = it.ask(replace(query, window=newest))
        answered += isinstance(outcome, Answered | TableAnswered)
    return answered


def test_tiles_are_answered_whatever_else_was_asked_first() -> None:
    kept, taken = opened(), opened(tiles=())
    assert exhaust(kept) > 0
    assert exhaust(taken) > 0
    for tile in TILES:
        outcome = kept.ask(about(tile))
        assert isinstance(outcome, Answered | TableAnswered)
        assert outcome.path is not Path.UNVERIFIED
    assert isinstance(taken.ask(about(BY_FIRST)), Refused), "nothing was left for it"


def test_what_is_kept_pays_for_the_tiles_and_is_free_once_they_are_certified() -> None:
    it = opened()
    before = int(reserve_of(it).kept(range(1))[0])
    paid = 0
    for tile in TILES:
        quote = it.mechanism.quote(about(tile))
        paid += sum(charge.rho for charge in quote.charges)
        it.ask(about(tile))
    assert 0.8 * before < paid <= before
    assert reserve_of(it).kept(range(1)).tolist() == [0]


def test_another_query_is_refused_until_the_tiles_were_asked() -> None:
    it = opened()
    exhaust(it)
    left = int(it.mechanism.lines.left(range(1))[0])
    assert left >= reserve_of(it).kept(range(1))[0] > 0
    refusals = [it.ask(replace(q, window=range(1))) for q in stream(12, 40, 1)]
    waiting = [r for r in refusals if isinstance(r, Refused)]
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
def test_only_a_declared_tile_about_the_newest_phase_may_spend_it(
    change: dict[str, object],
) -> None:
    reserve = reserve_of(opened(2))
    tile = about(HALF if "fresh" in change else BY_FIRST, 2)
    assert reserve.is_for(tile)
    assert not reserve.is_for(replace(tile, **change))  # type: ignore[arg-type]


def test_a_base_release_that_certifies_a_tile_leaves_nothing_to_keep() -> None:
    assert reserve_of(opened(base_share=0.9, tiles=(BY_FIRST,))).kept(range(1)).tolist() == [0]
    too_dear = opened(error=1e-5)
    assert reserve_of(too_dear).kept(range(1)).tolist() == [0], "no line can pay for them"


def test_each_phase_expects_the_tiles_again_about_windows_that_end_with_it() -> None:
    it = opened(2)
    first, second = reserve_of(it).kept(range(2)).tolist()
    assert 0 < first < second, "the shorter window is about the second phase alone"
    it.ask(about(HALF, 2))
    assert reserve_of(it).kept(range(2)).tolist()[0] == 0
    assert 0 < reserve_of(it).kept(range(2)).tolist()[1] < second


def test_sums_are_kept_for_too() -> None:
    total = Total(3, tuple(float(v) for v in range(1, SIZES[3] + 1)))
    it = opened(tiles=(PlannedTile(LinearQuery(EVERYTHING, range(1), (0,), total), 1),), error=0.02)
    query = LinearQuery(EVERYTHING, range(1), (0,), total)
    kept = int(reserve_of(it).kept(range(1))[0])
    (charge,) = it.mechanism.quote(query).charges
    assert charge.rho <= kept <= 1.2 * charge.rho
    it.ask(query)
    assert reserve_of(it).kept(range(1)).tolist() == [0]


def test_a_restart_and_a_rehearsal_keep_the_same() -> None:
    it = opened(2)
    for query in [*stream(13, 12, 2), about(HALF, 2)]:
        it.ask(query)
    later = it.restarted(tiles=TILES, on_exhausted="refuse")
    assert reserve_of(later).kept(range(2)).tolist() == reserve_of(it).kept(range(2)).tolist()
    assert [later.mechanism.quote(q) for q in stream(14, 30, 2)] == [
        it.mechanism.quote(q) for q in stream(14, 30, 2)
    ]
    before = reserve_of(it).kept(range(2)).tolist()
    assert sum(before) > 0
    it.mechanism.quote_together([about(BY_FIRST, 2), about(HALF, 2)])
    assert reserve_of(it).kept(range(2)).tolist() == before
