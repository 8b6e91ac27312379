"""A journal without its first entries, which no worker has deleted, is not served if the store is new."""

from __future__ import annotations

import pytest

from stream_dp.pipeline.decoding import partition_of
from stream_dp.state.local import LocalStore
from tests.pipeline.scenarios import AA, LATE
from tests.pipeline.test_healing import started
from tests.pipeline.test_repairing import repair_all, several_answers
from tests.pipeline.world import World

IDLE, BUSY = "flights", "cars"  # on one partition


@pytest.fixture
async def begun(world: World) -> World:
    """A journal of which retention has deleted all that was there of one of two data sets."""
    assert len({partition_of(name.encode(), world.partitions) for name in (IDLE, BUSY)}) == 1
    world.deaths = 0
    for name in (IDLE, BUSY):
        world.define(name, mechanism={"base_share": 0.0})
        await world.run()
        world.cells(name, "one")
        await world.run()
        world.ask(name, "q1", AA)
        await world.run()
        await started(world)  # which notes that all of it is read
        if name == IDLE:
            partition = partition_of(name.encode(), world.partitions)
            world.forgotten[partition] = len(world.journal[partition])
    return world


def again(world: World) -> None:
    """The clients of the idle data set begin again, with the same ids."""
    world.define(IDLE, mechanism={"base_share": 0.0})
    world.cells(IDLE, "one")
    world.ask(IDLE, "q1", AA)


@pytest.mark.parametrize("shows_ledger", [True, False])
async def test_what_was_deleted_with_the_store_is_not_begun_again(
    begun: World, shows_ledger: bool
) -> None:
    """The idle data set had a second budget, and a second answer under the same id."""
    begun.shows_ledger = shows_ledger
    begun.store = LocalStore()
    again(begun)
    process = await started(begun)
    assert process.worker.aside == {partition_of(IDLE.encode(), begun.partitions)}
    assert process.datasets == {}
    assert several_answers(begun) == []


async def test_a_repair_stops_what_is_lost_and_all_else_goes_on(begun: World) -> None:
    begun.store = LocalStore()
    await started(begun)
    assert await repair_all(begun) == {IDLE: "lost", BUSY: "heals"}
    for _ in range(2):
        again(begun)
        begun.ask(BUSY, "q2", LATE)
        process = await started(begun)
        assert process.worker.aside == frozenset()
        assert process.worker.stopped.keys() == {IDLE}
        assert process.datasets.keys() == {BUSY}
        begun.store = LocalStore()
    assert several_answers(begun) == []
    assert begun.answer("q2")["status"] == "answered"


async def test_a_store_that_is_whole_goes_on(begun: World) -> None:
    begun.ask(IDLE, "q2", LATE)
    begun.ask(BUSY, "q3", LATE)
    process = await started(begun)
    assert process.datasets.keys() == {IDLE, BUSY}
    assert begun.answer("q2")["status"] == begun.answer("q3")["status"] == "answered"
