"""No word of a row leaves, is logged, or is shown by a repr."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.messages import Batch
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.rounds import rounds_of
from tests.pipeline.blindfold.two_rows import CANARY


async def test_no_word_of_a_row_leaves_or_is_logged(
    make_world: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    row = {"carrier": CANARY, "delay": CANARY, "cancelled": CANARY}
    caplog.set_level(logging.DEBUG)
    await world.run(
        world.Fuse(60),
        rounds=[one for rounds in rounds_of(LIVES["calibrated"], row) for one in rounds],
    )
    said = b"".join(
        e.outgoing.value + str(e.outgoing).encode() for e in world.trail if hasattr(e, "outgoing")
    )
    assert CANARY.encode() not in said
    assert CANARY not in caplog.text
    worker = world.processes[-1].worker
    assert CANARY.encode() not in worker.context.metrics.exposition()


async def test_no_repr_shows_what_is_private(world: Any) -> None:
    seen: list[str] = []
    process = await world.owner()
    world.define("flights")
    await process.run()
    count = 918_273
    record = world.batch("flights", "b", cells=[{"carrier": CANARY, "count": count}])
    world.batch("flights", "rows", rows=[{"carrier": CANARY}])
    await process.run()
    dataset = process.worker.datasets["flights"]
    seen += [
        repr(record),
        repr(dataset),
        repr(dataset.rows.blocks.data),
        repr(dataset.rows.blocks.stored),
        repr(dataset.rows.waiting.lots),
        repr(dataset._tools.cache),
        repr(dataset.rows.waiting._pending),
        repr(dataset.draft._chain),
    ]
    seen += [repr(dataset.mechanism), repr(dataset.draft), repr(process.worker), repr(world.view)]
    for event in world.trail:
        seen += [repr(event), repr(getattr(event, "commit", ""))]
    seen.append(
        repr(Batch.read({"version": 1, "dataset": "flights", "batch_id": "b", "rows": [CANARY]}))
    )
    everything = "".join(seen)
    assert CANARY not in everything
    ((parts,),) = world.held("flights").blocks
    slab = Slab.of_stored(parts)
    everything += repr(slab) + repr(SlabIndex.from_bytes(parts[0]))
    assert {len(part) for part in parts} >= {1, 4}, (
        "a byte a code, and four for the digit of a count"
    )
    for part in (part for part in parts if len(part) >= 4):
        assert part.hex() not in everything
        assert repr(part) not in everything
        assert str([*part]) not in everything
    await process.kill()
