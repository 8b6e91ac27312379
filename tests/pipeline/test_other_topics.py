"""The journal says with which topics it was written: no worker goes on with others."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.entries import object_in
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import OtherTopics
from tests.pipeline.crash import CountingFuse
from tests.pipeline.fakes import FakeLog
from tests.pipeline.scenarios import ROTATED
from tests.view import MemoryView

TOPICS = {"datasets": "d", "batches": "b", "queries": "q", "journal": "j", "blocks": "k"}
FACTS = {"partitions": 2, "topics": TOPICS}
OTHERS = [
    ({"partitions": 4}, "the topics have 4 partitions and had 2"),
    ({"topics": {**TOPICS, "batches": "another"}}, "topic batches was deleted and created again"),
]


def log_of(world: Any) -> FakeLog:
    world.processes[-1].is_dead = False  # somebody else reads it
    return FakeLog(world, len(world.processes) - 1, CountingFuse())


async def check(log: FakeLog, facts: dict[str, Any]) -> None:
    tools: dict[str, Any] = {"context": Context()}
    await Journal(log, facts=facts, is_held=lambda _: False, **tools).check_facts()


@pytest.mark.parametrize(("change", "said"), OTHERS)
async def test_no_worker_goes_on_with_other_topics(
    world: Any, change: dict[str, Any], said: str
) -> None:
    world.define("flights")
    await world.lives(facts=FACTS)
    before = world.held("flights").trail
    world.view = MemoryView()
    for _ in range(2):  # what one that was refused has said of itself does not count
        with pytest.raises(OtherTopics, match=said):
            await world.lives(facts={**FACTS, **change})
        with pytest.raises(OtherTopics, match=said):
            await check(log_of(world), {**FACTS, **change})
    assert world.view.states == {}
    await check(log_of(world), FACTS)
    world.ask("flights", "all")
    await world.lives(facts=FACTS)
    assert world.held("flights").said[0].number == 1
    assert world.held("flights").valid[0].trail == before
    assert world.answer("all") is not None
    assert world.complaints() == []


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"partitions": 2},
        {"topics": TOPICS},
        {**FACTS, "topics": {**TOPICS, "journal": "another", "blocks": "another"}},
    ],
)
async def test_what_is_not_said_is_not_compared_and_private_topics_may_be_others(
    world: Any, facts: dict[str, Any]
) -> None:
    """A journal that was created again is repaired."""
    world.define("flights")
    await world.lives(facts=facts)
    await check(log_of(world), FACTS)
    await world.lives(facts=FACTS)
    assert world.held("flights").seq == 1


async def test_all_of_the_journal_is_compared_at_the_start(world: Any) -> None:
    """A worker that takes only new partitions over finds nothing on them."""
    world.define("flights")
    await world.lives(facts=FACTS)
    other = {**FACTS, "partitions": 4}
    empty = 1 - world.held("flights").valid[0].partition
    assert [entry.headers[0] for entry in world.journal[empty]] == [("kind", b"epoch")]
    process = world.process(facts=other)
    await process.assign([empty])
    await process.run()
    await process.kill()
    with pytest.raises(OtherTopics):
        await check(log_of(world), other)
    await check(log_of(world), FACTS)


@pytest.mark.parametrize(("change", "said"), OTHERS)
async def test_a_journal_that_was_shortened_still_says_it(
    world: Any, change: dict[str, Any], said: str
) -> None:
    world.often = Often(n_bytes=20_000, per_id=0)
    process = await world.owner(facts=FACTS)
    for produce in ROTATED:
        produce(world)
        await process.run()
    await process.kill()
    shortened = [at for at, first in enumerate(world.forgotten) if first]
    assert shortened
    for partition in shortened:
        kept = world.journal[partition][world.forgotten[partition] :]
        kinds = [dict(entry.headers)["kind"] for entry in kept]
        assert b"epoch" not in kinds
        assert object_in(kept[kinds.index(b"begin")].value).items() >= FACTS.items()
    other = {**FACTS, **change}
    with pytest.raises(OtherTopics, match=said):
        await check(log_of(world), other)
    with pytest.raises(OtherTopics, match=said):
        await world.lives(facts=other)
    await world.lives(facts=FACTS)
