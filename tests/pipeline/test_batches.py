"""What a producer gets: every batch counts once, and phases open as promised."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.state.schema import StateTable


@pytest.fixture
async def process(world: Any) -> Any:
    process = await world.owner()
    world.define("flights")
    await process.run()
    yield process
    await process.kill()


async def test_a_batch_counts_once_however_often_it_comes(world: Any, process: Any) -> None:
    for _ in range(3):
        world.cells("flights", "one")
        await process.run()
    world.cells("flights", "one")
    world.cells("flights", "one")
    await process.run()
    assert len(world.events("phase_opened")) == 1
    assert len(world.released("events")) == 1 + 1 + 1 + 4  # defined, accepted, opened, said again
    assert world.complaints() == []


async def test_a_repeated_id_with_other_rows_has_the_same_outcome(world: Any, process: Any) -> None:
    """Else the outcome would tell whether two batches are equal."""
    world.batch("flights", "one", rows=[{"carrier": "AA"}])
    await process.run()
    (before,) = world.events("batch_accepted")
    world.batch("flights", "one", rows=[{"carrier": "UA"}, {"carrier": "UA"}])
    world.batch("flights", "one", columns={"no": 5})
    await process.run()
    assert [e for e in world.released("events") if e.get("batch_id") == "one"] == [before] * 3
    assert process.worker.datasets["flights"].rows.waiting.n_rows == 1
    assert world.complaints() == []


async def test_a_refused_id_stays_refused(world: Any, process: Any) -> None:
    world.batch("flights", "one", columns={})
    await process.run()
    world.batch("flights", "one", rows=[{"carrier": "AA"}])
    await process.run()
    assert {e["event"] for e in world.events() if e.get("batch_id")} == {"batch_refused"}
    assert process.worker.datasets["flights"].rows.waiting.n_rows == 0
    assert world.complaints() == []


async def test_of_an_empty_batch_nothing_waits(world: Any, process: Any) -> None:
    """Else each would be read again at every take-over, and its loss would count as a loss of rows."""
    for name, rows in (("one", []), ("two", [{"carrier": "AA"}]), ("three", [])):
        world.batch("flights", name, rows=rows)
    await process.run()
    assert len(world.events("batch_accepted")) == 3
    assert len(world.held("flights").table(StateTable.WAITING)) == 1
    await process.kill()
    other = await world.owner()
    await other.run()
    assert other.worker.datasets["flights"].rows.waiting.n_rows == 1
    world.cells("flights", "last")
    await other.run()
    assert len(world.events("phase_opened")) == 1
    await other.kill()
    assert world.complaints() == []


async def test_ids_belong_to_their_data_set(world: Any, process: Any) -> None:
    world.define("trains")
    await process.run()
    for dataset in ("flights", "trains"):
        world.batch(dataset, "one", rows=[{"carrier": "AA"}])
    await process.run()
    assert [e["rows"] for e in world.events("batch_accepted")] == [1, 1]
    assert world.complaints() == []


async def test_a_phase_seals_everything_that_waits(world: Any, process: Any) -> None:
    world.batch("flights", "little", rows=[{"carrier": "AA"}] * 3)
    await process.run()
    world.cells("flights", "much", n=2)
    await process.run()
    (opened,) = world.events("phase_opened")
    assert (opened["phase"], opened["rows"]) == (1, 42_003)
    assert [(e["waiting"], e["phase"]) for e in world.events("batch_accepted")] == [(3, 0), (0, 1)]
    assert world.complaints() == []


async def test_empty_batches_count_nothing_and_open_nothing(world: Any, process: Any) -> None:
    columns: dict[str, list[object]] = {name: [] for name in ("carrier", "delay", "cancelled")}
    world.batch("flights", "rows", rows=[])
    world.batch("flights", "columns", columns=columns)
    world.batch("flights", "cells", cells=[])
    world.batch("flights", "zeros", cells=[{"carrier": "AA", "count": 0}])
    await process.run()
    assert [e["rows"] for e in world.events("batch_accepted")] == [0, 0, 0, 0]
    world.cells("flights", "one")
    await process.run()
    assert [e["rows"] for e in world.events("phase_opened")] == [21_000]
    assert world.complaints() == []


async def test_many_batches_of_one_group_open_many_phases(world: Any, process: Any) -> None:
    world.group = 64
    for n in range(9):
        world.cells("flights", f"batch{n}")
    await process.run()
    assert [e["phase"] for e in world.events("phase_opened")] == list(range(1, 10))
    assert world.complaints() == []


async def test_rows_beyond_62_bits_are_refused_whatever_waits(world: Any, process: Any) -> None:
    privacy = {"epsilon": 1.0, "delta": 1e-20}
    world.define("huge", phase={"min_rows": 2**62}, privacy=privacy)
    await process.run()
    world.batch("huge", "most", cells=[{"carrier": "AA", "count": 2**62 - 1}])
    world.batch("huge", "more", cells=[{"carrier": "AA", "count": 2}])
    world.batch("huge", "last", cells=[{"carrier": "AA", "count": 1}])
    await process.run()
    outcomes = {e["batch_id"]: e["event"] for e in world.events() if e.get("batch_id")}
    assert outcomes == {
        "most": "batch_accepted",
        "more": "batch_refused",
        "last": "batch_accepted",
    }
    assert [e["rows"] for e in world.events("phase_opened")] == [2**62]
    assert world.complaints() == []


async def test_the_thesis_profile_waits_for_its_own_number_of_rows(
    world: Any, process: Any
) -> None:
    world.define_memory("thesis")
    await process.run()
    for n in range(5):
        world.batch("thesis", f"b{n}", cells=[{"carrier": "AA", "count": 1_100_000}])
        await process.run()
    assert [e["rows"] for e in world.events("phase_opened")] == [2_200_000, 2_200_000]
    assert world.complaints() == []
