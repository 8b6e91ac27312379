"""A journal without its first entries, which no worker has said to be deleted, is not served."""

from __future__ import annotations

import pytest

from tests.pipeline.durable import SOON
from tests.pipeline.scenarios import AA, LATE, ROTATED
from tests.pipeline.world import World
from tests.view import MemoryView

IDLE, BUSY = "flights", "cars"  # on one partition


@pytest.fixture
async def begun(world: World) -> World:
    """A journal of which retention has deleted all that was there of one of two data sets."""
    assert len({world.home(name) for name in (IDLE, BUSY)}) == 1
    world.deaths = 0
    for name in (IDLE, BUSY):
        world.define(name, mechanism={"base_share": 0.0})
        await world.run()
        world.cells(name, "one")
        await world.run()
        world.ask(name, "q1", AA)
        await world.run()
        await world.lives()
        if name == IDLE:
            partition = world.home(name)
            world.forgotten[partition] = len(world.journal[partition])
    return world


@pytest.mark.parametrize("shows_outputs", [True, False])
@pytest.mark.parametrize("is_redis_whole", [True, False])
async def test_what_was_deleted_is_not_begun_again(
    begun: World, shows_outputs: bool, is_redis_whole: bool
) -> None:
    """The idle data set had a second budget, and a second answer under the same id."""
    begun.shows_outputs = shows_outputs
    if not is_redis_whole:
        begun.view = MemoryView()
    begun.define(IDLE, mechanism={"base_share": 0.0})  # its clients begin again, with the same ids
    begun.cells(IDLE, "one")
    begun.ask(IDLE, "q1", AA)
    begun.ask(BUSY, "q2", LATE)
    for _ in range(2):
        process = await begun.lives()
        assert process.worker.aside == {begun.home(IDLE)}
        assert process.datasets == {}
    assert begun.several_answers() == []


async def test_all_is_served_if_nothing_of_it_was_deleted(begun: World) -> None:
    """The test above can fail."""
    begun.forgotten = [0] * begun.partitions
    process = await begun.lives()
    assert process.datasets.keys() == {IDLE, BUSY}


async def test_a_beginning_that_a_worker_has_deleted_is_none_to_miss_and_what_is_behind_it_is(
    world: World,
) -> None:
    """One entry more than workers have said is gone, though all checkpoints are there."""
    world.often = SOON
    for produce in ROTATED:
        await world.run(rounds=[produce])
    assert max(world.forgotten) > 0
    process = await world.lives()
    assert (process.worker.aside, process.worker.stopped) == (frozenset(), {})
    here = world.forgotten.index(max(world.forgotten))
    owned = process.worker.journal.owned()[here]
    assert owned.marks.first == owned.first == world.forgotten[here]
    world.forgotten[here] += 1
    process = await world.lives()
    assert process.worker.aside == {here}
