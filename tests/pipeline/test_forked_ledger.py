"""A journal and a store that go back together: the next worker notices, and else the ledger shows it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.core.accounting import UNITS
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.journal import Superseded
from stream_dp.state.local import LocalStore
from tests.pipeline.fakes import FakePublished
from tests.pipeline.scenarios import AA, LATE
from tests.pipeline.test_healing import started
from tests.pipeline.test_repairing import on_topic, repair_all, repairs, several_answers
from tests.pipeline.world import World

UA = {"attribute": "carrier", "eq": "UA"}
NAMES = ("flights", "trains")  # on the two partitions


async def asked(world: World, *asks: tuple[str, Any], name: str = "flights") -> None:
    """Asks one after the other, each of a worker that ends then."""
    for query_id, where in asks:
        world.ask(name, query_id, where, error=0.005)
        await world.run()


async def went_back(
    world: World, seen: Sequence[tuple[str, Any]] = (("q1", AA),), *, is_hidden: bool = False
) -> None:
    """Has the journal and the store go back to before charges that were seen.

    Args:
        world: The world.
        seen: What was asked after what they go back to.
        is_hidden: Whether workers read no ledger, as where it has gone back as well.
    """
    world.deaths = 0
    for name in NAMES:
        world.define(name, mechanism={"base_share": 0.0})
        await world.run()
        world.cells(name, "one")
        await world.run()
    store, journal = copy.deepcopy(vars(world.store)), copy.deepcopy(world.journal)
    await asked(world, *seen)
    world.store = LocalStore()
    vars(world.store).update(store)
    world.journal = journal
    world.shows_ledger = not is_hidden


def found(world: World) -> list[str]:
    return [str(fault) for fault in verify("flights", [*dict.fromkeys(on_topic(world))]).faults]


async def test_a_worker_serves_no_partition_of_which_more_was_published_than_it_has(
    world: World,
) -> None:
    await went_back(world)
    world.ask("trains", "q1", AA)
    process = await started(world)
    partition = partition_of(b"flights", world.partitions)
    assert process.worker.aside == {partition}
    assert sorted(process.datasets) == ["trains"], "the other partition is served"
    assert several_answers(world) == []
    assert found(world) == []
    assert (await repair_all(world))["flights"] == "lost"
    assert (await repair_all(world, "flights"))["flights"] == "lost"
    process = await started(world)
    assert process.worker.aside == frozenset()
    assert max(process.datasets["flights"].spent) == (UNITS, UNITS)
    assert several_answers(world) == []


async def test_a_worker_that_was_followed_takes_no_newer_output_for_a_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one takes over between its reading of the journal and that of the ledger."""
    await went_back(world, seen=())
    bounds, other = FakePublished.bounds, list[bool]()

    async def overtaken(self: Any, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        if not other:
            other.append(True)
            await asked(world, ("q1", AA))
        return await bounds(self, partition, reaches=reaches)

    monkeypatch.setattr(FakePublished, "bounds", overtaken)
    world.ask("flights", "q2", LATE)
    with pytest.raises(Superseded):
        await started(world)
    assert world.processes[-1].worker.aside == frozenset()


async def test_a_budget_that_is_spent_twice_is_a_fault_of_the_ledger(world: World) -> None:
    """The same query is charged again: both charges were the same bytes once, and counted as one."""
    await went_back(world, is_hidden=True)
    await started(world)
    assert several_answers(world) == ["q1 has two answers"]
    assert any("it is on the topic 2 times" in one for one in found(world)), found(world)


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        pytest.param([("q1", AA)], [], id="alike"),
        pytest.param([("q1", AA), ("q2", LATE), ("q3", UA)], [], id="longer"),
        pytest.param([("q1", AA)], [("q4", LATE), ("q5", UA)], id="shorter"),
    ],
)
async def test_a_data_set_that_was_charged_twice_is_found_and_written_off(
    world: World, seen: Any, again: Any
) -> None:
    """Whichever of both branches of its ledger is the longer one."""
    await went_back(world, seen, is_hidden=True)
    if len(seen) > 1:  # the broker has dropped the other queries by now
        partition = partition_of(b"flights", world.partitions)
        world.log[f"in.queries:{partition}"] = world.log[f"in.queries:{partition}"][:1]
    await started(world)
    await asked(world, *again)
    partition = partition_of(b"flights", world.partitions)
    judged = {one.dataset: one for one in await repairs(world, partition).judged()}
    assert judged["flights"].verdict == "lost"
    assert "has two entries" in judged["flights"].why
    assert await repairs(world, partition).is_cut()
    await repair_all(world, "flights")
    process = await started(world)
    assert set(process.datasets["flights"].spent) == {(UNITS, UNITS)}
    world.cells("flights", "two")
    await started(world)
    world.ask("flights", "new", AA, window={"last_phases": 1})
    await world.run()
    assert world.answer("new")["status"] == "answered"
    (one,) = [w for w in await repairs(world, partition).judged() if w.dataset == "flights"]
    assert one.verdict == "whole", "what was written off is settled"


async def test_what_nothing_shows_to_be_lost_is_closed_if_its_operator_says_so(
    world: World,
) -> None:
    """Everything was restored from older copies, the topics of answers and charges too."""
    await went_back(world, seen=())
    partition = partition_of(b"flights", world.partitions)
    (one,) = await repairs(world, partition, "flights", whole=True).repair()
    assert (one.dataset, one.verdict) == ("flights", "whole")
    process = await started(world)
    assert process.datasets["flights"].spent == [(UNITS, UNITS)]
    assert process.datasets["trains"].spent != [(UNITS, UNITS)]
    assert found(world) == []
