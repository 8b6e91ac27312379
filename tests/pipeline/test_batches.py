"""What a producer gets: every batch counts once, and phases open as promised."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.state.schema import StateTable


@pytest.fixture(autouse=True)
async def defined(world: Any, process: Any) -> None:
    world.define("flights")
    await process.run()


@pytest.mark.parametrize(
    ("form", "said", "n_rows"),
    [({"rows": [{"carrier": "AA"}]}, "batch_accepted", 1), ({"columns": {}}, "batch_refused", 0)],
)
async def test_a_repeated_id_with_other_rows_has_the_same_outcome(
    world: Any, process: Any, form: Any, said: str, n_rows: int
) -> None:
    """Else the outcome would tell whether two batches are equal."""
    world.batch("flights", "one", **form)
    await process.run()
    (before,) = world.events(said)
    world.batch("flights", "one", rows=[{"carrier": "UA"}, {"carrier": "UA"}])
    world.batch("flights", "one", columns={"no": 5})
    await process.run()
    assert [e for e in world.released("events") if e.get("batch_id") == "one"] == [before] * 3
    assert process.datasets["flights"].rows.waiting.n_rows == n_rows
    assert world.complaints() == []


async def test_empty_batches_open_nothing_and_do_not_wait(world: Any, process: Any) -> None:
    """Else each would be read again at every take-over, and its loss would count as a loss of rows."""
    world.batch("flights", "rows", rows=[])
    world.batch("flights", "one", rows=[{"carrier": "AA"}])
    world.batch("flights", "columns", columns={c: [] for c in ("carrier", "delay", "cancelled")})
    world.batch("flights", "cells", cells=[])
    world.batch("flights", "zeros", cells=[{"carrier": "AA", "count": 0}])
    await process.run()
    assert [e["rows"] for e in world.events("batch_accepted")] == [0, 1, 0, 0, 0]
    assert len(world.held("flights").table(StateTable.WAITING)) == 1
    await process.kill()
    other = await world.lives()
    assert other.datasets["flights"].rows.waiting.n_rows == 1
    await world.lives(lambda w: w.cells("flights", "last"))
    assert [e["rows"] for e in world.events("phase_opened")] == [21_001]
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
