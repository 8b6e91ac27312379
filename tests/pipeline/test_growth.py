"""Growth of a base release through the worker: who is charged, who says so, and what the ledger says."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from tests.pipeline.flights import judged, ran, spent
from tests.pipeline.world import World

pytestmark = judged

SIZES = {"airline": 16, "origin": 3, "month": 6, "hour": 8, "day": 4}


def define(world: World, **more: Any) -> None:
    attributes = [
        {"name": name, "type": "category", "values": [f"v{i}" for i in range(n - 1)], "other": True}
        for name, n in SIZES.items()
    ]
    accuracy = {"error": 0.005, "failure_probability": 0.01}
    world.define("many", attributes=attributes, accuracy=accuracy, **more)


def open_phase(world: World) -> None:
    draw = random.Random(5)
    cells = [
        {**{name: f"v{draw.randrange(n - 1)}" for name, n in SIZES.items()}, "count": 450}
        for _ in range(60)
    ]
    world.batch("many", "rows", cells=cells)


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


async def grown(
    world: World,
    process: Any,
    *,
    definition: dict[str, Any] | None = None,
    of_each: dict[str, Any] | None = None,
    **envelope: Any,
) -> list[dict[str, Any]]:
    """A data set that has grown; returns its answers."""
    await ran(process, lambda world: define(world, **(definition or {})), open_phase)
    asked = [{**query, **(of_each or {})} for query in queries(150)]
    world.ask_many("many", asked, **envelope)
    await process.run()
    return world.released("answers")


def ledger(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.held("many").ledger]


def growths(world: World) -> list[dict[str, Any]]:
    """The charges in the ledger of what the data set measured on its own account."""
    return [
        entry
        for entry in ledger(world)
        if any(look.get("reason") == "growth" for look in entry.get("looks", []))
    ]


async def test_a_repeat_has_it_grow_like_any_other_query(world: World, process: Any) -> None:
    await ran(process, define, open_phase)
    first, *others = queries(150)
    asked = [first, first, first]
    for query in others:
        asked += [query, first]
    world.ask_many(
        "many", [{**one, "query_id": f"{n}-{one['query_id']}"} for n, one in enumerate(asked)]
    )
    await process.run()
    answers = world.released("answers")
    said = [answer["query_id"] for answer in answers if "owner_pays" in answer]
    assert any(name.endswith("-q0") for name in said)


async def test_no_query_is_charged_for_it_and_one_says_so(world: World, process: Any) -> None:
    answers = await grown(world, process)
    entries = growths(world)
    assert entries
    assert all("analyst" not in entry for entry in entries)
    units = sum(entry["charges"][0][1] for entry in entries)
    paid = sum(answer.get("privacy_loss", {"share": 0.0})["share"] for answer in answers)
    said = [answer["owner_pays"]["share"] for answer in answers if "owner_pays" in answer]
    assert said == pytest.approx([entry["charges"][0][1] / UNITS for entry in entries])
    [base] = [
        e for e in ledger(world) if any(x.get("reason") == "base" for x in e.get("looks", []))
    ]
    assert spent(world, "many") == pytest.approx((units + base["charges"][0][1]) / UNITS + paid)


async def test_it_waits_for_a_record_that_may_take_as_much(world: World, process: Any) -> None:
    answers = await grown(world, process, at_most=0.1)
    assert not growths(world)
    paid = sum(answer.get("privacy_loss", {"share": 0.0})["share"] for answer in answers)
    assert 0.0 < paid <= 0.1
    more = [{**one, "query_id": f"more-{i}"} for i, one in enumerate(queries(220)[150:])]
    world.ask_many("many", more)
    await process.run()
    [entry, *_] = growths(world)
    assert entry["charges"][0][1] > 0.1 * UNITS


async def test_it_waits_for_a_query_that_may_take_as_much(world: World, process: Any) -> None:
    await grown(world, process, of_each={"at_most": 0.05})
    assert not growths(world)


async def test_a_definition_may_forbid_it(world: World, process: Any) -> None:
    await grown(world, process, definition={"mechanism": {"growth": "never"}})
    assert growths(world) == []


async def test_what_the_owner_may_not_spend_does_not_grow(world: World, process: Any) -> None:
    """Half of each line is kept for an analyst: what opens a phase, and growth, leave that alone."""
    rules = {"analyst": {"share": 0.5}}
    await grown(world, process, definition={"analysts": rules})
    own = sum(
        units
        for entry in ledger(world)
        if entry.get("looks") and "analyst" not in entry
        for _, units, _ in entry["charges"]
    )
    assert own <= 0.5 * UNITS


async def test_a_quote_says_what_leaves_the_line(world: World, process: Any) -> None:
    await grown(world, process)
    for query in queries(190)[150:]:
        query["query_id"] = "again-" + query["query_id"]
        before = spent(world, "many")
        world.ask_many("many", [{**query, "query_id": "quote-" + query["query_id"], "quote": True}])
        world.ask_many("many", [query])
        await process.run()
        quote, answer = world.released("answers")[-2:]
        owner = [one.get("owner_pays", {"share": 0.0})["share"] for one in (quote, answer)]
        losses = [one.get("privacy_loss", {"share": 0.0})["share"] for one in (quote, answer)]
        paid = spent(world, "many") - before
        assert owner[0] + losses[0] == pytest.approx(owner[1] + losses[1]) == pytest.approx(paid)
