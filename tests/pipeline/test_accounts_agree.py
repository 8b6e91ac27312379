"""What the client works out of the ledger topic is what the worker keeps, to the unit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import OWNER, UNITS
from stream_dp.messages import entry_of

NAMES = ["ann", "bob", "team-a", "team-b", "nightly", "guest"]
RULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "ann": {"share": 0.2},
            "team-*": {"share": 0.1, "together": 0.15},
            "nightly": {"owner": True},
            "*": {"share": 0.05},
        },
        {"owner": {"share": 0.3}},
    ),
    ({"ann": {"share": 0.01}, "bob": {}, "team-*": {}, "nightly": {"owner": True}, "g*": {}}, {}),
    (
        {"ann": {}, "team-a": {"share": 0.4}, "team-*": {"together": 0.3}, "nightly": {}, "b*": {}},
        {"owner": {"share": 0.1}},
    ),
]
TILE = {"where": {"attribute": "cancelled", "eq": True}}


def _items(draw: random.Random, prefix: str, count: int, **more: Any) -> Iterator[dict[str, Any]]:
    for number in range(count):
        where = {
            "all": [
                {"attribute": "cancelled", "eq": draw.random() < 0.5},
                {"attribute": "delay", "ge": draw.choice([0, 10, 30])},
                {"attribute": "carrier", "eq": draw.choice(["AA", "UA"])},
            ]
        }
        window = {"window": {"last_phases": 1}} if draw.random() < 0.4 else {}
        yield {"query_id": f"{prefix}-{number}", "where": where, "fresh": True, **window, **more}


@pytest.mark.parametrize("begins_with", [0, 1, 2, None])
async def test_the_odometer_and_the_worker_agree_on_every_account(
    world: Any, process: Any, begins_with: int | None
) -> None:
    draw = random.Random(begins_with)
    analysts, more = (None, {}) if begins_with is None else RULES[begins_with]
    world.define(
        "flights",
        privacy={"epsilon": 0.2, "delta": 1e-9},
        mechanism={"base_share": 0.05, "workload": [TILE]},
        analysts=analysts,
        **more,
    )
    await process.run()
    orders = [begins_with, *draw.sample(range(len(RULES)), 3)]
    for step, number in enumerate(orders):
        if step:
            analysts, more = RULES[number or 0]
            change = {"version": 1, "dataset": "flights", "change": "analysts"}
            world.produce("datasets", {**change, "analysts": analysts, **more})
        if step in (0, 2):
            world.cells("flights", f"rows-{step}")
            await process.run()
        for name in draw.sample(_allowed(analysts), len(_allowed(analysts))):
            world.ask_many(
                "flights", list(_items(draw, f"{step}-{name}-{draw.random()}", 6)), analyst=name
            )
        world.ask_many("flights", [{"query_id": f"tile-{step}", **TILE}], analyst="ann")
        await process.run()
        odometer = Odometer.read(world.released("ledger"))
        _same_accounts(world, odometer)
        if odometer.rules is not None:
            await _same_left(world, process, odometer, draw)
    assert world.complaints() == []
    charged = {name for block in odometer.blocks for name in block.paid}
    assert len(charged) > 3, "so there is something to compare"
    assert OWNER in charged


def _same_accounts(world: Any, odometer: Odometer) -> None:
    """Compares what the store has of each account and block."""
    kept = {
        (int(name.split()[1]), name.partition(" ")[2].partition(" ")[2]): value
        for name, value in world.held("flights").meta.items()
        if name.startswith("account ")
    }
    assert kept == {
        (block, "" if name == OWNER else name): f"{parts.rho} {parts.delta}"
        for block, line in enumerate(odometer.blocks)
        for name, parts in line.paid.items()
    }


async def _same_left(world: Any, process: Any, odometer: Odometer, draw: random.Random) -> None:
    """Compares what a quote about each phase says of the analyst's own part, and of the whole."""
    assert odometer.rules is not None
    quotes = [
        (name, phase, f"quote-{draw.random()}")
        for name in _allowed(odometer.rules.analysts)
        for phase in range(1, len(odometer.blocks) + 1)
    ]
    for name, phase, query_id in quotes:
        window = {"phases": [phase, phase]}
        quote = {"query_id": query_id, "fresh": True, "quote": True, "window": window, **TILE}
        world.ask_many("flights", [quote], analyst=name)
    await process.run()
    for name, phase, query_id in quotes:
        position, budget = odometer.position(name, phase), world.answer(query_id)["budget"]
        assert budget["yours"] == {
            "spent": round(position.spent / UNITS, 6),
            "left": round(position.left / UNITS, 6),
        }, (name, phase)
        assert budget["left"] == round(position.whole / UNITS, 6)


def _allowed(analysts: Mapping[str, Any] | None) -> list[str]:
    return NAMES if analysts is None else [name for name in NAMES if entry_of(analysts, name)]
