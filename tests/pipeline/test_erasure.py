"""Persons who are erased, and rows that are corrected, wherever the worker keeps them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from stream_dp.core.rows.person_slots import Slots
from tests.pipeline.flights import judged
from tests.pipeline.referee.lives import kept_slots
from tests.pipeline.world import definition

pytestmark = judged

HOUR = 3_600_000
SHOP = definition(
    "shop",
    attributes=[
        {"name": "page", "type": "category", "values": ["home", "cart", "paid"], "other": False},
        {"name": "total", "type": "number", "edges": [10, 50], "integer": True},
    ],
    privacy={
        "epsilon": 4.0,
        "delta": 1e-9,
        "unit": {"key": "customer", "rows_per_phase": 2, "phases": 1},
    },
    phase={"min_rows": 1000},
    accuracy={"error": 0.05, "failure_probability": 1e-6},
    erasure={"within": "24 hours", "row": "order"},
)
PAGES = ["home", "cart", "paid"]


def rows(*persons: int, start: int = 0, page: str | None = None) -> dict[str, list[Any]]:
    """One row of each of these persons, in columns. Person -1 is nobody."""
    order = range(start, start + len(persons))
    return {
        "page": [page or PAGES[n % 3] for n in order],
        "total": [n % 70 for n in order],
        "customer": [None if person < 0 else f"C-{person}" for person in persons],
        "order": [f"o-{n}" for n in order],
    }


async def shop(world: Any, **changes: Any) -> Any:
    """A worker with the data set."""
    world.key_file = bytes(range(64))
    world.now_ms = 1_790_000_000_000
    process = await world.owner()
    world.produce("datasets", {**SHOP, **changes})
    await process.run()
    assert not world.released("rejected"), world.released("rejected")
    return process


async def sent(world: Any, process: Any, batch_id: str, **form: Any) -> dict[str, Any]:
    """The event about a batch."""
    world.batch("shop", batch_id, **form)
    await process.run()
    event = world.events()[-1]
    found = [e for e in world.events() if e.get("batch_id") == batch_id]
    assert found, event
    return found[-1]


async def swept(world: Any, process: Any, hours: float = 9) -> list[dict[str, Any]]:
    """The receipts, once the clock has shown a later time."""
    world.now_ms += int(hours * HOUR)
    world.produce("batches", {"version": 1, "dataset": "shop", "clock": True}, key="shop")
    await process.run()
    return world.events("swept")


def dataset(world: Any) -> Any:
    return world.processes[-1].datasets["shop"]


def exactly(world: Any, phase: int = 1) -> list[int]:
    """Exact counts of the pages of a phase, as it is kept."""
    slots = kept_slots(world, world.held("shop"), phase)
    assert slots is not None
    found = Counter(dict(slot.says)["0"] for slot in slots if slot.counts)
    return [found[page] for page in range(len(PAGES))]


async def test_a_person_is_erased_from_a_block_and_from_rows_that_wait(world: Any) -> None:
    process = await shop(world)
    await sent(world, process, "first", columns=rows(*range(1200)))
    await sent(world, process, "second", columns=rows(*range(100), start=5000))
    assert exactly(world) == [400, 400, 400]
    event = await sent(world, process, "gone", erase=["C-3", None, "C-4", "C-9999"])
    assert (event["rows"], event["changes"], event["change_number"]) == (0, 4, 1)
    assert event["due"] == "2026-09-21T22:13:20+00:00"
    assert exactly(world) == [400, 400, 400], "not before the sweep"
    (receipt,) = await swept(world, process)
    assert exactly(world) == [399, 399, 400]
    waiting = dataset(world).rows.waiting
    assert waiting.n_rows == 100, "how many wait is public"
    lots = Slots.concat(await waiting.lots.whose())
    assert np.count_nonzero(~lots.digests.any(axis=1)) == 2
    assert receipt["sweep"] == 1
    assert receipt["phases"] == [1, 1]
    assert receipt["changes"] == 4


async def test_a_row_is_corrected_and_erased_by_its_key(world: Any) -> None:
    process = await shop(world)
    await sent(world, process, "first", columns=rows(*range(1200)))
    await sent(world, process, "second", columns=rows(*range(100), start=5000))
    correct = [
        {"person": "C-0", "row": "o-0", "set": {"page": "paid", "total": 5}},
        {"person": "C-1", "row": "o-1", "erase": True},
        {"person": "C-7", "row": "o-2", "erase": True},
        None,
        {"person": "C-0", "row": "o-5000", "set": {"page": "paid", "total": 5}},
    ]
    event = await sent(world, process, "fixed", correct=correct)
    assert (event["event"], event["changes"]) == ("batch_accepted", 5), event
    await swept(world, process)
    assert exactly(world) == [399, 399, 401]
    await sent(world, process, "third", columns=rows(*range(100, 1000), start=6000))
    before = [
        sum(n % 3 == page for n in [*range(5000, 5100), *range(6000, 6900)]) for page in range(3)
    ]
    found = exactly(world, 2)
    page = 5000 % 3
    before[page] -= 1
    before[2] += 1
    assert found == before
