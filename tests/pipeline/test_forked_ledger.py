"""A journal that goes back: the next owner finds what was published since, and else the ledger shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.pipeline.datasets import draft
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.owned_partition import Superseded
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.crash import CountingFuse
from tests.pipeline.durable import SOON
from tests.pipeline.fakes import FakePublished
from tests.pipeline.scenarios import AA, LATE, UA
from tests.pipeline.world import World


def faults(world: World) -> list[str]:
    """What everybody can find wrong with the ledger of flights."""
    return [str(fault) for fault in verify("flights", world.ledger()).faults]


async def asked(world: World, *asks: tuple[str, Any], name: str = "flights") -> None:
    """Asks one after the other, each of a worker that ends then."""
    for query_id, where in asks:
        world.ask(name, query_id, where, error=0.005)
        await world.run()


async def opened(world: World) -> None:
    """Two data sets in their first phase, on the two partitions."""
    world.deaths = 0
    for name in ("flights", "trains"):
        world.define(name, mechanism={"base_share": 0.0})
        await world.run()
        world.cells(name, "one")
        await world.run()


def lengths(world: World) -> list[int]:
    return [*map(len, world.journal)]


def goes_back(world: World, ends: Sequence[int]) -> None:
    """Has the journal go back to these lengths."""
    for entries, end in zip(world.journal, ends, strict=True):
        del entries[end:]


async def went_back(
    world: World, seen: Sequence[tuple[str, Any]] = (("q1", AA),), *, is_hidden: bool = False
) -> None:
    """Has the journal go back to before charges that were seen.

    Args:
        world: The world.
        seen: What was asked after what it goes back to.
        is_hidden: Whether workers find nothing published, as where that has gone back as well.
    """
    await opened(world)
    before = lengths(world)
    await asked(world, *seen)
    goes_back(world, before)
    world.shows_outputs = not is_hidden


async def test_a_worker_serves_no_partition_of_which_more_was_published_than_it_has(
    world: World,
) -> None:
    await went_back(world)
    world.ask("trains", "q1", AA)
    for _ in range(3):
        process = await world.lives()
        assert process.worker.aside == {world.home("flights")}
        assert sorted(process.datasets) == ["trains"], "the other partition is served"
    assert world.answers().keys() == {("flights", "ana", "q1"), ("trains", "ana", "q1")}
    assert world.several_answers() == []
    assert faults(world) == []


@pytest.mark.parametrize("often", [Often(), SOON], ids=["commits", "checkpoints"])
async def test_wherever_a_journal_is_cut_nothing_is_answered_twice(
    make_world: Callable[..., World], often: Often
) -> None:
    """It is served where no commit is lost from which something follows that was published."""
    served = aside = 0
    for cut in range(1, 1_000):
        world = make_world()
        world.often = often
        await opened(world)
        here = world.home("flights")
        before = lengths(world)
        await asked(world, ("q1", AA), ("q2", LATE))
        ends = lengths(world)
        if cut > ends[here] - before[here] + 10:
            break
        ends[here] -= cut
        goes_back(world, ends)
        world.ask("flights", "q3", UA)
        process = await world.lives()
        aside += here in process.worker.aside
        served += "flights" in process.datasets
        assert world.several_answers() == []
        assert faults(world) == []
    assert served > 0 or often is SOON, "what is deleted is said last"
    assert aside > 5


async def test_a_worker_that_was_followed_takes_no_newer_output_for_a_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one takes over between its reading of the journal and that of what was published."""
    await opened(world)
    bounds, other = FakePublished.bounds, list[bool]()

    async def overtaken(self: Any, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        if not other:
            other.append(True)
            await asked(world, ("q1", AA))
        return await bounds(self, partition, reaches=reaches)

    monkeypatch.setattr(FakePublished, "bounds", overtaken)
    world.ask("flights", "q2", LATE)
    with pytest.raises(Superseded):
        await world.lives()
    assert world.processes[-1].worker.aside == frozenset()


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        pytest.param([("q1", AA)], [], id="alike"),
        pytest.param([("q1", AA), ("q2", LATE), ("q3", UA)], [], id="longer"),
        pytest.param([("q1", AA)], [("q4", LATE), ("q5", UA)], id="shorter"),
    ],
)
async def test_a_budget_that_is_spent_twice_is_a_fault_of_the_ledger(
    world: World, seen: Any, again: Any
) -> None:
    """Whichever of both branches is the longer one: the same charge has other bytes the second time."""
    await went_back(world, seen, is_hidden=True)
    if len(seen) > 1:  # the broker has dropped the other queries by now
        partition = world.home("flights")
        world.log[f"in.queries:{partition}"] = world.log[f"in.queries:{partition}"][:1]
    await world.lives()
    await asked(world, *again)
    assert world.several_answers() == ["q1"]
    assert any("it is on the topic 2 times" in one for one in faults(world)), faults(world)


async def test_a_branch_that_was_published_before_is_found_when_it_is_shown_again(
    world: World,
) -> None:
    """At the offset where its commit was there is another one by now, with another trail."""
    await went_back(world, is_hidden=True)
    await world.lives()
    await asked(world, ("q4", LATE), ("q5", UA))
    world.shows_outputs = True
    process = await world.lives()
    assert process.worker.aside == {world.home("flights")}


def unpaid(world: World) -> list[str]:
    """Where more answers of flights were seen than the ledger has charges, and nothing shows it."""
    entries = [json.loads(entry) for entry in {*world.ledger()}]
    n_charges = len([entry for entry in entries if entry["kind"] == "charge"])
    n_answers = len({one.value for one in world.left("answers", "flights")})
    if n_answers > n_charges and not faults(world):
        return [f"{n_answers} answers and {n_charges} charges"]
    return []


async def restored_everywhere(make_world: Callable[..., World]) -> list[str]:
    """Journal and topics go back to each length in turn, and the same is asked again; what is wrong then.

    The worker before had died between its second charge and the answer, too.
    """
    said: list[str] = []
    for cut in range(60):
        world = make_world()
        await opened(world)
        here = world.home("flights")
        opening = lengths(world)
        await asked(world, ("q1", AA))
        world.ask("flights", "q2", LATE, error=0.005)
        await world.run(CountingFuse(0, CrashPoint.AFTER_LOOK))
        ends = lengths(world)
        if ends[here] - cut < opening[here]:
            assert cut > 10
            return said
        ends[here] -= cut
        world.shows_outputs = False
        goes_back(world, ends)
        await world.lives()
        said += [f"{cut}: {one}" for one in unpaid(world)]
    raise AssertionError("there are more entries than places to cut")


async def test_each_look_that_was_seen_has_a_charge_of_its_own_or_the_ledger_has_a_fault(
    make_world: Callable[..., World],
) -> None:
    assert await restored_everywhere(make_world) == []


async def test_without_a_nonce_one_charge_would_pay_for_two_looks(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy."""
    monkeypatch.setattr(draft, "token_bytes", bytes)
    assert await restored_everywhere(make_world)
