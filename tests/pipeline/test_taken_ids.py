"""Batches that come again when their outcomes are dropped: they count once for ever, and that is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.state.schema import StateTable
from tests.indexes import counts
from tests.pipeline.scenarios import DAY_MS, NOV_1, ROTATED
from tests.pipeline.test_producers import move
from tests.pipeline.world import World

KEPT: dict[str, Any] = {"retention": {"answers": {"days": 10}}, "mechanism": {"base_share": 0.0}}
ONE: list[dict[str, Any]] = [{"carrier": "AA"}]
OTHERS: list[dict[str, Any]] = [{"carrier": "UA"}] * 3


def begin(world: World, **changes: Any) -> None:
    world.now_ms = NOV_1
    world.define("flights", **{**KEPT, **changes})


def on_day(world: World, day: int) -> World:
    world.now_ms = NOV_1 + day * DAY_MS
    return world


def held(world: World) -> Any:
    return world.held("flights")


def said_of(world: World, batch_id: str) -> list[str]:
    return [
        event["event"] for event in world.released("events") if event.get("batch_id") == batch_id
    ]


async def test_a_batch_counts_once_though_its_outcome_is_dropped(world: Any, process: Any) -> None:
    begin(world)
    world.batch("flights", "bad", columns={})  # so that what follows drops nothing
    await process.run()
    world.batch("flights", "one", rows=ONE)
    await process.run()
    for day in (9, 10, 19, 20, 21, 300):
        on_day(world, day).batch("flights", "one", rows=OTHERS)
        await process.run()
    # The record of day 20 still finds what it drops itself, as a query does.
    assert said_of(world, "one") == ["batch_accepted"] * 5 + ["batch_known"] * 2
    assert process.worker.datasets["flights"].rows.waiting.n_rows == 1
    assert (held(world).batches, held(world).previous_batches) == ({}, {})
    assert held(world).taken == {"one"}
    known = world.events("batch_known")[0]
    assert (known["waiting"], known["phase"]) == (1, 0)
    assert known["note"] == "it was taken in before, and its outcome is not kept any more"
    assert known.keys() == {"version", "dataset", "event", "batch_id", "waiting", "phase", "note"}
    assert world.complaints() == []


async def test_what_was_refused_is_free_again_when_its_outcome_is_dropped(
    world: Any, process: Any
) -> None:
    begin(world)
    forms: list[dict[str, Any]] = [{"columns": {}}, {"rows": ONE}]
    for day, form in enumerate(forms):
        on_day(world, day).batch("flights", "one", **form)
        await process.run()
    assert said_of(world, "one") == ["batch_refused"] * 2
    for day in (10, 20):
        on_day(world, day).cells("flights", f"day {day}".replace(" ", "-"))
        await process.run()
    on_day(world, 21).batch("flights", "one", rows=ONE)
    await process.run()
    assert said_of(world, "one")[2:] == ["batch_accepted"]
    assert "one" in held(world).taken


async def test_without_the_setting_every_outcome_stays_and_no_id_is_kept_besides(
    world: Any, process: Any
) -> None:
    begin(world, retention={"phases": 3})
    world.batch("flights", "one", rows=ONE)
    for day in (100, 200, 300):
        on_day(world, day).batch("flights", "one", rows=OTHERS)
        await process.run()
    assert said_of(world, "one") == ["batch_accepted"] * 4
    assert (held(world).taken, held(world).previous_batches) == (set(), {})
    assert world.complaints() == []


def sends_again(world: World) -> list[str]:
    """Sends a batch of each data set again that counted long ago."""
    for name in ("flights", "trains"):
        world.batch(name, "first", rows=OTHERS)
    return ["first"] * 2


@pytest.mark.parametrize("days", [3, 8])
async def test_ids_move_with_their_data_set(
    make_world: Callable[..., Any], tmp_path: Any, days: int
) -> None:
    here, new = make_world(), make_world(seed=2)
    await here.run(rounds=ROTATED[:days])
    await new.lives()
    for name in ("flights", "trains"):
        await move(name, here, new, tmp_path)
    process = await new.lives()
    assert process.worker.stopped == {}
    for name in ("flights", "trains"):
        taken = here.held(name).taken
        ids = process.worker.journal.chain(name).ids
        assert taken
        assert counts(ids)[-1] == len(taken)
        assert all(ids.find([(StateTable.TAKEN, one.encode())]) for one in taken)
        assert not ids.find([(StateTable.TAKEN, b"another")])
        assert process.datasets[name].draft.cursor["producer till-7"] == days
    waiting = {name: one.rows.waiting.n_rows for name, one in process.datasets.items()}
    new.now_ms = here.now_ms
    sends_again(new)
    process = await new.lives()
    assert {name: one.rows.waiting.n_rows for name, one in process.datasets.items()} == waiting
    assert len(said_of(new, "first")) == 2
