"""A worker that takes over finds on the journal all that was durable, whatever Redis holds by then."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from stream_dp.errors import Fenced
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.journal import Journal
from stream_dp.pipeline.marks import Marks
from stream_dp.pipeline.ownership import REJECTED
from stream_dp.pipeline.records import Decided, Releasable
from stream_dp.pipeline.rounds import Often
from stream_dp.state.kept import salted
from stream_dp.state.schema import State, Table
from tests.pipeline.crash import CopyingFuse, CountingFuse
from tests.pipeline.held import Held, held_of, valid_commits
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    GATED,
    LATE,
    LIVES,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.trail import Sent
from tests.pipeline.world import World
from tests.slow import rest_is_slow
from tests.view import MemoryView

SOON = Often(n_bytes=40_000, per_id=1)
"""Rounds of checkpoints as often as a short test needs them."""


# ---------------------------------------------------------------- what is found


async def started(world: Any, **changes: Any) -> Any:
    """A worker that has taken all partitions over, has nothing left to do, and has died."""
    process = world.process(**changes)
    try:
        await process.assign()
        await process.run()
    finally:
        await process.kill()
    return process


def durable(held: Held) -> dict[str, Any]:
    """What is durable of a data set."""
    parts = ("answers", "previous", "batches", "previous_batches", "taken", "ledger")
    return {"pairs": dict(held.pairs)} | {part: copy.copy(getattr(held, part)) for part in parts}


async def differences(world: World, process: Any) -> list[str]:
    """Where a worker that has taken over differs from the journal, read by rules of its own."""
    found = [f"{name} is stopped: {why}" for name, why in process.worker.stopped.items()]
    journal = process.worker.journal
    for name, held in held_of(world).items():
        chain = journal.chain(name)
        found += [] if chain.build().pairs == held.pairs else [f"{name}: other pairs"]
        found += [] if chain.build().number == held.seq else [f"{name}: another number"]
        kept = {(Table.ANSWER, key.encode()): one for key, one in (held.previous | held.answers).items()}
        kept |= {
            (Table.OUTCOME, key.encode()): one
            for key, one in (held.previous_batches | held.batches).items()
        }
        there = chain.find([*kept])
        at = {pair: one.found for pair, one in there.items()}
        found += [] if at.keys() == kept.keys() else [f"{name}: an id is not known"]
        found += [] if await journal.contents(name, at) == kept else [f"{name}: other contents"]
        counts = (len(held.answers), len(set(held.previous) - set(held.answers)))
        counts += (len(held.batches), len(set(held.previous_batches) - set(held.batches)))
        if tuple(chain.ids.counts()) != (*counts, len(held.taken)):
            found.append(f"{name}: {chain.ids.counts()}, and not {counts} and {len(held.taken)}")
    return found


@pytest.mark.parametrize("often", [Often(), SOON], ids=["commits", "checkpoints"])
@pytest.mark.parametrize(
    "rounds",
    [ROUNDS, RUNS, PERSONS, LIVES, ERASED, STANDING, GATED, ROTATED],
    ids=["all", "runs", "persons", "lives", "erased", "standing", "gated", "rotated"],
)
async def test_what_is_found_is_what_commits_add_up_to(
    world: World, rounds: Any, often: Often
) -> None:
    world.often = often
    await world.run(rounds=rounds)
    before = {name: durable(held) for name, held in held_of(world).items()}
    process = await started(world)
    assert before
    assert await differences(world, process) == []
    assert {name: durable(held) for name, held in held_of(world).items()} == before
    assert world.complaints() == []


async def test_rows_that_wait_are_read_again(world: World) -> None:
    for name in ("flights", "trains"):
        world.define(name, mechanism={"base_share": 0.0})
    former = await started(world)
    for number in range(3):
        world.batch("flights", f"b{number}", rows=[{"carrier": "AA", "delay": number}, {}])
    former = await started(world)
    rows = [one.to_bytes() for one in former.datasets["flights"]._pending]
    assert len(rows) == 3
    world.view = MemoryView()
    again = await started(world)
    assert [one.to_bytes() for one in again.datasets["flights"]._pending] == rows
    assert again.datasets["flights"].waiting == 6
    assert again.datasets["trains"].waiting == 0
