"""A data set that was changed in the store is built again from the journal, and all others are served."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.pipeline.dataset import Dataset
from tests.pipeline.scenarios import AA, LATE
from tests.pipeline.test_healing import durable, started
from tests.pipeline.world import World

NAMES = ("flights", "trains", "cars")


def less_is_spent(held: Any) -> None:
    ((rho, delta),) = held.spent
    held.spent[0] = (rho // 2, delta)


def an_entry_is_changed(held: Any) -> None:
    held.ledger[-1] = held.ledger[-1].replace(b'"kind"', b'"kinds"')


def the_last_entry_is_missing(held: Any) -> None:
    held.ledger.pop()


def a_fact_is_no_number(held: Any) -> None:
    held.meta["limits"] = "a b"


def the_length_of_the_ledger_is_no_number(held: Any) -> None:
    held.meta["ledger"] = "x"


def the_definition_is_cut_short(held: Any) -> None:
    held.definition = held.definition[:-1]


CHANGES: list[Callable[[Any], None]] = [
    less_is_spent,
    an_entry_is_changed,
    the_last_entry_is_missing,
    a_fact_is_no_number,
    the_length_of_the_ledger_is_no_number,
    the_definition_is_cut_short,
]


@pytest.fixture
async def asked(world: World) -> World:
    """Three data sets of which a query was asked."""
    world.deaths = 0
    for name in NAMES:
        world.define(name, mechanism={"base_share": 0.0})
    await world.run()
    for name in NAMES:
        world.cells(name, "one")
    await world.run()
    for name in NAMES:
        world.ask(name, "q1", AA)
    await world.run()
    return world


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
async def test_what_was_changed_in_the_store_is_built_again_and_ends_no_worker(
    asked: World, change: Callable[[Any], None]
) -> None:
    held = asked.store._datasets["flights"]
    before = copy.deepcopy(durable(held))
    change(held)
    assert held.seq > 0
    for name in NAMES:
        asked.ask(name, "q1", AA)
    process = await started(asked)
    assert process.datasets.keys() == set(NAMES)
    assert durable(asked.store._datasets["flights"]) == before
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    await started(asked)
    assert len(asked.answers()) == 2 * len(NAMES)
    assert asked.complaints() == []


async def test_what_cannot_be_built_again_stops_alone_and_says_nothing_of_what_was_read(
    asked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Dataset.stored

    def unreadable(store: Any, noise: Any, snapshot: Any, **named: Any) -> Dataset:
        if snapshot.dataset == "flights":
            raise ValueError("canary")
        return stored(store, noise, snapshot, **named)

    monkeypatch.setattr(Dataset, "stored", unreadable)
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    process = await started(asked)
    assert process.datasets.keys() == set(NAMES) - {"flights"}
    assert process.worker.stopped.keys() == {"flights"}
    (event,) = asked.events("stopped")
    assert event["dataset"] == "flights"
    assert "canary" not in str(event) + str(process.worker.stopped)
    assert len([one for one in asked.answers() if one[2] == "q2"]) == len(NAMES) - 1
