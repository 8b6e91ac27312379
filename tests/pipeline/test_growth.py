"""A base release that grows, through the worker: who is charged for it, and what the ledger says."""

from __future__ import annotations

import json
import random
from typing import Any

from stream_dp.core.accounting import UNITS
from tests.pipeline.world import World

SIZES = {"airline": 16, "origin": 3, "month": 6, "hour": 8, "day": 4}


def define(world: World) -> None:
    attributes = [
        {"name": name, "type": "category", "values": [f"v{i}" for i in range(n - 1)], "other": True}
        for name, n in SIZES.items()
    ]
    world.define("many", attributes=attributes)


def open_phase(world: World) -> None:
    world.batch("many", "rows", cells=[{**dict.fromkeys(SIZES, "v0"), "count": 27_000}])


def queries(n: int) -> list[dict[str, Any]]:
    draw, found = random.Random(7), []
    for number in range(n):
        names = draw.sample(list(SIZES), draw.choice([2, 3]))
        parts = [
            {
                "attribute": a,
                "in": [f"v{i}" for i in draw.sample(range(SIZES[a] - 1), SIZES[a] // 2)],
            }
            for a in names
        ]
        found.append({"query_id": f"q{number}", "where": {"all": parts}})
    return found


async def grown(world: World, process: Any, **envelope: Any) -> list[dict[str, Any]]:
    """A data set that has grown; returns its answers."""
    define(world)
    await process.run()
    open_phase(world)
    await process.run()
    world.ask_many("many", queries(150), **envelope)
    await process.run()
    return world.released("answers")


async def growths(world: World) -> list[dict[str, Any]]:
    """The charges in the ledger of what the data set measured on its own account."""
    entries = [json.loads(line) for line in await world.store.ledger("many")]
    return [
        entry
        for entry in entries
        if any(look.get("reason") == "growth" for look in entry.get("looks", []))
    ]


async def test_no_query_is_charged_for_it(world: World, process: Any) -> None:
    answers = await grown(world, process)
    [entry] = await growths(world)
    [[block, units, _]] = entry["charges"]
    paid = sum(answer["privacy_loss"]["share"] for answer in answers)
    base = 0.031
    spent = world.store._datasets["many"].spent[block][0] / UNITS
    assert units / UNITS > base, "it more than doubles what the phase has measured"
    assert spent - units / UNITS - paid < 1.2 * base
    assert not world.complaints()


async def test_a_limit_covers_all_that_the_line_pays_because_of_a_record(
    world: World, process: Any
) -> None:
    """It waits for queries that may take as much."""
    answers = await grown(world, process, at_most=0.05)
    assert not await growths(world)
    assert {answer["status"] for answer in answers} == {"answered"}
    world.ask_many(
        "many",
        [
            {**one, "query_id": f"at-{i}", "at_most": 0.01}
            for i, one in enumerate(queries(160)[150:])
        ],
    )
    await process.run()
    assert not await growths(world)
    world.ask_many(
        "many", [{**one, "query_id": f"more-{i}"} for i, one in enumerate(queries(170)[160:])]
    )
    await process.run()
    [entry] = await growths(world)
    assert entry["charges"][0][1] > 0.05 * UNITS
    assert not world.complaints()
