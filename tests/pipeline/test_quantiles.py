"""Quantiles through the worker: by groups, with conditions, for persons and as series."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import QuantileAnswer, QuantileByGroupAnswer, SeriesAnswer, read_answer
from tests.pipeline.flights import AA, asked, asked_in_turn, judged, opened, within

pytestmark = judged

MEDIAN: dict[str, Any] = {"kind": "quantile", "attribute": "delay", "rank": 0.5}


async def test_quantiles_of_groups_and_conditions_need_no_kind_and_survive_a_restart(
    world: Any,
) -> None:
    await opened(world)
    near = {**MEDIAN, "error": 0.005}
    of_groups = {**near, "group_by": ["carrier"]}
    every, by_group = await asked(world, near, of_groups)
    again, of_one, most = await asked(world, of_groups, {**near, "where": AA}, {**near, "rank": 1})
    groups, some = read_answer(by_group), read_answer(of_one)
    assert isinstance(groups, QuantileByGroupAnswer)
    assert isinstance(some, QuantileAnswer)
    assert groups.difficulty == "hard"
    assert again["table"] == by_group["table"]
    assert [one["privacy_loss"]["share"] for one in (again, of_one, most)] == [0.0] * 3
    assert some.lies_in == groups.table.lies_in[groups.table.labels[0].index("AA")]
    assert some.count == pytest.approx(groups.table.counts[0], abs=2)
    assert every["lies_in"]["label"] == "0 to 9"
    assert most["lies_in"]["label"] == ">= 30"


async def test_a_quote_is_what_the_quantile_costs(world: Any) -> None:
    await opened(world)
    near = {**MEDIAN, "error": 0.002}
    quote, answer = await asked_in_turn(world, {**near, "quote": True}, near)
    assert quote["privacy_loss"] == answer["privacy_loss"]
    assert quote["privacy_loss"]["share"] > 0.0
    assert 0.0 < quote["error_bar"] <= 0.002


async def test_quantiles_are_answered_where_persons_are_protected(world: Any) -> None:
    """Each has two rows, of which one counts."""
    unit = {"key": "user_id", "rows_per_phase": 1, "phases": 2}
    row = {"carrier": "AA", "delay": 15, "cancelled": False}
    rows = {"rows": [{**row, "user_id": f"u{i // 2}"} for i in range(21_000)]}
    await opened(world, rows=rows, privacy={"epsilon": 4.0, "delta": 1e-6, "unit": unit})
    answer = read_answer((await asked(world, MEDIAN))[0])
    assert isinstance(answer, QuantileAnswer)
    assert answer.lies_in is not None
    assert answer.counted is not None
    assert answer.counted_bar is not None
    assert within(answer.counted, 10_500, answer.counted_bar)


async def test_a_series_asks_each_phase(world: Any) -> None:
    await opened(world)
    world.cells("flights", "two")
    await world.run()
    answer = read_answer((await asked(world, {**MEDIAN, "series": "phase"}))[0])
    assert isinstance(answer, SeriesAnswer)
    assert [part.answer.kind for part in answer.parts] == ["quantile", "quantile"]
