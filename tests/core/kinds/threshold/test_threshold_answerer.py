"""Thresholds and ranges of windows, from a tree or a partition a block.

Statistical tests have seeded noise and fail by chance with probability at most 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.kinds.threshold.curve_answerer import MOST_DRAWN, Thresholds
from stream_dp.core.outcome import Path, RefusalCode, TableAnswered
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState
from tests.core.kinds.conftest import beside
from tests.noise import QuickNoise

ALARM = 1e-6
UNIVERSE = Universe(
    (
        Number("delay", tuple(range(1, 60)), integer=True),
        Number("speed", (10, 20, 30), missing=True),
        Category("city", ("Bonn", "Graz"), other=False),
    )
)
DELAY, SPEED, CITY = range(3)
N_BINS = 60

Counts = npt.NDArray[np.int64]
forms = pytest.mark.parametrize("partition", [False, True])


def rows(delays: npt.ArrayLike) -> dict[str, list[Any]]:
    """One row a delay; every third has no speed."""
    values = np.asarray(delays).tolist()
    speeds = [None, 5, 25] * len(values)
    return {"delay": values, "speed": speeds[: len(values)], "city": ["Bonn"] * len(values)}


def some_delays(seed: int, n_rows: int = 6_000) -> Counts:
    return np.minimum(np.random.default_rng(seed).geometric(0.08, n_rows) - 1, N_BINS - 1)


def condition(where: dict[str, Any]) -> dict[str, Any]:
    return {"predicate": compile_where(UNIVERSE, where)}


@forms
def test_a_block_pays_once_for_an_attribute_and_all_else_is_free(partition: bool) -> None:
    world = beside(Thresholds, UNIVERSE, partition=partition)
    for seed in range(2):
        world.open(rows(some_delays(seed)))
    late = condition({"attribute": "delay", "ge": 30})
    first = world.ask("threshold", DELAY, last=1, **late)
    assert (first.path, first.n) == (Path.MEASURED, 6_000)
    assert world.rho == {1: pytest.approx(0.1 * UNITS)}
    early = condition({"attribute": "delay", "lt": 10})
    assert world.ask("threshold", DELAY, last=1, **early).path is Path.CERTIFIED
    whole = world.ask("threshold", DELAY)
    assert (whole.path, whole.shape) == (Path.MEASURED, (N_BINS,))
    assert world.rho == {0: world.rho[1], 1: world.rho[1]}
    world.restart()
    again = world.ask("threshold", DELAY, last=1, **late)
    assert (again.count, again.error_bar, again.path) == (
        first.count,
        first.error_bar,
        Path.CERTIFIED,
    )
    assert [cell.count for cell in world.ask("threshold", DELAY).cells] == [
        cell.count for cell in whole.cells
    ]
    slow = condition({"attribute": "speed", "lt": 10})
    assert world.ask("threshold", SPEED, last=1, **slow).path is Path.MEASURED
    assert world.rho == {0: world.rho[0], 1: 2 * world.rho[0]}
    assert not any(world.delta.values())


@forms
def test_a_lost_look_stays_paid_and_the_next_query_takes_another(partition: bool) -> None:
    world = beside(Thresholds, UNIVERSE, partition=partition)
    world.open(rows(some_delays(1)))
    world.lose("threshold", DELAY)
    world.restart()
    assert world.ask("threshold", DELAY).path is Path.MEASURED
    assert world.rho[0] == pytest.approx(0.2 * UNITS)


@forms
def test_answers_are_within_their_bars_as_often_as_promised(partition: bool) -> None:
    """Over 25 data sets of three phases; bars around the answers of another table are noticed."""
    wrong, wrong_elsewhere = np.zeros(3, dtype=int), np.zeros(3, dtype=int)
    for seed in range(25):
        world = beside(Thresholds, UNIVERSE, share=1.0, noise=QuickNoise(seed), partition=partition)
        phases = [some_delays(10 * seed + phase) for phase in range(3)]
        for delays in phases:
            world.open(rows(delays))
        delays = np.concatenate(phases)
        wrong += misses(world, delays)
        wrong_elsewhere += misses(world, np.minimum(delays + 12, N_BINS - 1))
    for count in wrong.tolist():
        assert stats.binomtest(count, 25, 0.05, alternative="greater").pvalue > ALARM
    for count in wrong_elsewhere.tolist():
        assert stats.binomtest(count, 25, 0.05, alternative="greater").pvalue < ALARM


def misses(world: Any, delays: Counts) -> Counts:
    """Whether a threshold, a range, and some point of the curve are off."""
    n, up_to = len(delays), np.cumsum(np.bincount(delays, minlength=N_BINS))
    threshold = world.ask("threshold", DELAY, **condition({"attribute": "delay", "le": 12}))
    some = world.ask("threshold", DELAY, **condition({"attribute": "delay", "between": [1, 11]}))
    curve = world.ask("threshold", DELAY)
    errors = [abs(c.count - t) for c, t in zip(curve.cells, up_to.tolist(), strict=True)]
    return np.array(
        [
            abs(threshold.count - up_to[12]) > threshold.error_bar * n,
            abs(some.count - (up_to[11] - up_to[0])) > some.error_bar * n,
            any(e > c.error_bar_simultaneous * n for e, c in zip(errors, curve.cells, strict=True)),
        ],
        dtype=int,
    )


def test_the_whole_range_is_certain_and_its_parts_are_not() -> None:
    for partition in (False, True):
        world = beside(Thresholds, UNIVERSE, share=1.0, partition=partition)
        world.open(rows(some_delays(1)))
        curve = world.ask("threshold", DELAY)
        assert isinstance(curve, TableAnswered)
        last = curve.cells[-1]
        assert (last.count, last.error_bar, last.error_bar_simultaneous) == (6_000, 0.0, 0.0)
        assert all(cell.error_bar for cell in curve.cells[:-1])


def test_a_partition_adds_up_what_each_phase_may_be_off() -> None:
    world = beside(Thresholds, UNIVERSE, share=1.0, partition=True)
    for seed in range(3):
        world.open(rows(some_delays(seed)))
    late = condition({"attribute": "delay", "le": 20})
    bars = [world.ask("threshold", DELAY, last=k, **late).error_bar * 6_000 * k for k in (1, 3)]
    assert 3 * bars[0] < bars[1] < 4 * bars[0]


@pytest.mark.parametrize(
    ("attribute", "more", "words"),
    [
        (CITY, {"attribute": "city", "eq": "Bonn"}, "no order"),
        (DELAY, {"attribute": "city", "eq": "Bonn"}, "about one attribute"),
        (DELAY, {"not": {"attribute": "delay", "between": [3, 4]}}, "one range"),
    ],
)
def test_what_is_not_about_order_is_refused_before_any_look(
    attribute: int, more: dict[str, Any], words: str
) -> None:
    world = beside(Thresholds, UNIVERSE)
    world.open(rows([1]))
    refused = world.ask("threshold", attribute, **condition(more))
    assert (refused.code, words in refused.message) == (RefusalCode.INVALID_QUERY, True)
    assert not world.rho


@forms
def test_bytes_read_back_and_others_are_corrupt(partition: bool) -> None:
    world = beside(Thresholds, UNIVERSE, share=1.0, partition=partition)
    for seed in range(2):
        world.open(rows(some_delays(seed)))
    world.ask("threshold", DELAY)
    data = world.transcript[-1]
    assert world.answerer.release_from_bytes(data).to_bytes() == data
    other_attribute = data[:1] + bytes([SPEED]) + data[2:]
    no_attribute = data[:1] + bytes([CITY]) + data[2:]
    wrong = (b"", b"\x02" + data[1:], data[:-1], data + b"\0", other_attribute, no_attribute)
    for bad in wrong:
        with pytest.raises(CorruptState):
            world.answerer.release_from_bytes(bad)
    with pytest.raises(CorruptState):
        beside(Thresholds, UNIVERSE, partition=not partition).answerer.release_from_bytes(data)


@forms
def test_more_noise_than_one_look_may_draw_is_asked_for_in_parts(partition: bool) -> None:
    """Refused from public facts: drawn, it would hold up the worker, or end it."""
    many = Universe((Number("id", tuple(range(2**17 // 4 - 1))),))
    at_once = MOST_DRAWN // many.shape[0]
    world = beside(Thresholds, many, partition=partition)
    for _ in range(at_once + 1):
        world.open([{"id": 3, "count": 10}])
    refused = world.ask("threshold", 0)
    assert refused.code is RefusalCode.INVALID_QUERY
    look = world.look(world.asked("threshold", 0, last=at_once))
    assert len(look.charges) == at_once
    assert world.rho == {}
