"""The journal is deleted up to the first answer that is still kept, where there are many of them."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.journal import checkpoint_rounds
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from tests.pipeline.scenarios import AA, DAY_MS, NOV_1
from tests.pipeline.world import World
from tests.view import MemoryView

EACH = 20


async def lived(world: World, days: int, **changes: Any) -> list[int]:
    """Asks ten records of queries each day; returns how long the journal was at the end of each day."""
    world.often = Often(n_bytes=150_000)
    process = await world.owner()
    world.now_ms = NOV_1
    world.define("flights", mechanism={"base_share": 0.0}, **changes)
    world.cells("flights", "first", n=4)
    await process.run()
    lengths = []
    for day in range(1, days):
        world.now_ms = NOV_1 + day * DAY_MS
        for number in range(10):
            asked = [{"query_id": f"{day}-{number}-{one}", "where": AA} for one in range(EACH)]
            world.ask_many("flights", asked)
            await process.run()
        lengths.append(sum(map(len, world.journal)) - sum(world.forgotten))
    await process.kill()
    return lengths


async def test_it_follows_the_days_that_answers_are_kept(world: Any) -> None:
    lengths = await lived(world, 24, retention={"answers": {"days": 2}})
    assert len(world.held("flights").answers) > 10 * EACH, "too many to be carried"
    assert max(lengths) < 150, "about four days and a round, of 480 entries"
    world.view = MemoryView()
    other = await world.owner()
    world.ask("flights", "23-9-0", AA)
    world.ask("flights", "22-0-3", AA)
    await other.run()
    for one in ("23-9-0", "22-0-3"):
        first, *again = [a for a in world.released("answers") if a["query_id"] == one]
        assert again
        assert all(one == first for one in again)
    assert world.complaints() == []


async def test_a_cut_above_the_first_one_is_noticed(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = checkpoint_rounds._first_kept
    monkeypatch.setattr(checkpoint_rounds, "_first_kept", lambda begun: right(begun) + 20)
    await lived(world, 8)
    world.view = MemoryView()
    other = await world.owner()
    world.ask("flights", "1-0-0", AA)
    await other.run()
    assert "not where it was committed" in other.worker.stopped["flights"]


async def test_no_round_is_due_for_the_checkpoints_that_a_start_has_read(world: Any) -> None:
    """Else each start would write all of them again."""
    await lived(world, 16)
    rounds_made = []
    for number in range(3):
        world.often = Often(n_bytes=70_000)
        process = await world.owner()
        world.ask("flights", f"then-{number}", AA)
        await process.run()
        await process.kill()
        entries = [entry for partition in world.journal for entry in partition]
        rounds_made.append(sum(dict(entry.headers)["kind"] == b"end" for entry in entries))
    checkpoints = [e for e in entries if dict(e.headers)["kind"] == b"checkpoint"]
    assert len(checkpoints[-1].value) > 70_000
    assert rounds_made[0] == rounds_made[1] == rounds_made[2]
