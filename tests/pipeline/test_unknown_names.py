"""Records about names that nobody has defined: a bounded number of steps for all of them together."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dp.pipeline.datasets.holdings import Holdings
from stream_dp.pipeline.intake.ownership import GROUP_SIZE, REJECTED
from stream_dp.tokens import Verifier
from tests.pipeline.marked import watermarks
from tests.pipeline.scenarios import AA
from tests.signing import NOW_MS, Issuer

MANY = 64


@pytest.fixture
async def idle(world: Any) -> Any:
    """A world whose only worker has nothing to do."""
    world.group = GROUP_SIZE
    world.first = await world.owner()
    await world.first.run()
    yield world
    await world.first.kill()


async def _calls(world: Any, names: list[str]) -> Counter[str]:
    """The calls of Redis, and the appends to the journal, that one query about each name leads to."""
    steps, journal = world.first.view.steps, sum(map(len, world.journal))
    before = len(steps)
    records = [world.ask(name, f"q{number}", AA) for number, name in enumerate(names)]
    await world.first.run()
    for record in records:
        assert world.rejection(record)["reason"]["code"] == "unknown_dataset"
    calls = Counter(steps[before:])
    calls["append"] = sum(map(len, world.journal)) - journal
    return calls


@pytest.mark.parametrize("names", [1, MANY])
async def test_many_records_take_as_many_calls_as_few(idle: Any, names: int) -> None:
    few = await _calls(idle, [f"x{number % names}" for number in range(2)])
    many = await _calls(idle, [f"y{number % names}" for number in range(MANY)])
    assert many.total() <= few.total() + idle.partitions
    assert 1 <= many.pop("append") <= idle.partitions
    assert not many.total(), "Redis knows of no data sets that are not"
    assert idle.complaints() == []


async def test_a_name_is_looked_up_again_once_nothing_waits_for_it(idle: Any) -> None:
    await _calls(idle, ["flights"])
    idle.define("flights")
    await idle.first.run()
    assert len(idle.events("dataset_accepted")) == 1


async def test_a_rejection_waits_for_what_is_undecided_below_it(idle: Any) -> None:
    """Its mark would say that the record below was rejected too, should the worker die now."""
    idle.define("flights", mechanism={"base_share": 0.0})
    idle.cells("flights", "first")
    await idle.first.run()
    long = idle.ask_many("flights", [{"query_id": f"q{n}", "where": AA} for n in range(600)])
    names = [f"x{n}" for n in range(100)]
    name = next(x for x in names if idle.home(x) == long.partition)
    behind = [idle.ask(name, "a"), idle.ask(name, "b")]
    records = [dataclasses.replace(one, generation=idle.generation) for one in (long, *behind)]
    await idle.first.worker.take(records)
    mark = REJECTED + long.topic_partition
    await asyncio.sleep(0.01)
    assert watermarks(idle).get(mark, 0) <= long.offset
    await idle.first.worker.take(())
    await idle.first.drained()
    assert watermarks(idle)[mark] == behind[-1].offset + 1
    assert len(idle.released("rejected")) == 2
    assert idle.complaints() == []


async def test_who_may_not_ask_makes_nobody_look_a_name_up(
    world: Any, verifier: Verifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, looked_up = Holdings.look_up, list[str]()

    async def watched(self: Holdings, names: Sequence[str]) -> None:
        looked_up.extend(names)
        await look_up(self, names)

    monkeypatch.setattr(Holdings, "look_up", watched)
    world.now_ms = NOW_MS
    process = await world.owner(verifier=verifier)
    await process.run()
    stranger = world.ask("nobody", "q", AA)
    await process.run()
    assert world.rejection(stranger)["reason"]["code"] == "unauthorized"
    assert looked_up == []
    head = {"version": 1, "dataset": "nobody", "analyst": "ana", "query_id": "q"}
    ana = world.produce("queries", head, headers=issuer.header(aud="nobody"))
    await process.run()
    assert world.rejection(ana)["reason"]["code"] == "unknown_dataset"
    assert looked_up == ["nobody"]
    assert world.complaints() == []


async def test_a_stranger_is_told_the_same_when_the_record_is_read_again(
    world: Any, verifier: Verifier
) -> None:
    """Also if the data set was defined in the meantime, and the mark says that the record was rejected."""
    world.now_ms = NOW_MS
    process = await world.owner(verifier=verifier)
    record = world.ask("flights", "q", AA)
    await process.run()
    await process.kill()
    told = world.rejection(record)
    assert watermarks(world) == {REJECTED + record.topic_partition: record.offset + 1}
    world.define("flights")
    second = await world.owner(verifier=verifier)
    await second.run()
    assert world.released("rejected") == [told, told]
