"""A store that was emptied knows nothing of the topics: the journal says with which it was written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stream_dp.pipeline.checkpoints import Often
from stream_dp.pipeline.journal import OtherTopics, Reading, check_journal
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Note
from tests.pipeline.crash import CountingFuse
from tests.pipeline.fakes import FakeLog
from tests.pipeline.scenarios import ROTATED
from tests.pipeline.test_healing import started

TOPICS = {"datasets": "d", "batches": "b", "queries": "q", "journal": "j", "blocks": "k"}
FACTS = {"partitions": 2, "topics": TOPICS}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partitions": 4}, "the topics have 4 partitions and had 2"),
        (
            {"topics": {**TOPICS, "batches": "another"}},
            "topic batches was deleted and created again",
        ),
    ],
)
async def test_no_worker_begins_with_other_topics_on_an_empty_store(
    world: Any, change: dict[str, Any], said: str
) -> None:
    world.define("flights")
    await started(world, facts=FACTS)
    before = world.held("flights").trail
    world.store = LocalStore()
    for _ in range(2):  # what one that was refused has said of itself does not count
        with pytest.raises(OtherTopics, match=said):
            await started(world, facts={**FACTS, **change})
        assert world.store._datasets == {}
    await started(world, facts=FACTS)
    assert world.held("flights").trail == before


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
    """An earlier release has said nothing of partitions. A journal that was created again is repaired."""
    world.define("flights")
    await started(world, facts=facts)
    world.store = LocalStore()
    await started(world, facts=FACTS)
    assert world.held("flights").seq == 1


async def test_a_store_that_knows_nothing_has_all_of_the_journal_compared(world: Any) -> None:
    """A worker that takes only new partitions over finds nothing on them."""
    world.define("flights")
    await started(world, facts=FACTS)
    process = world.process()
    log, heartbeat = FakeLog(world, process.number, CountingFuse()), Heartbeat()
    other = {**FACTS, "partitions": 4}
    await check_journal(
        log, world.store, "journal", other, heartbeat
    )  # the store's own guard is enough
    with pytest.raises(OtherTopics):
        await check_journal(log, LocalStore(), "journal", other, heartbeat)
    await check_journal(log, LocalStore(), "journal", FACTS, heartbeat)
    await process.kill()


async def test_a_journal_that_was_shortened_still_says_it(world: Any) -> None:
    world.often = Often(12, per_id=0)
    process = world.process(facts=FACTS)
    await process.assign()
    for produce in ROTATED:
        produce(world)
        await process.run()
    await process.kill()
    shortened = [at for at, first in enumerate(world.forgotten) if first]
    assert shortened
    for partition in shortened:
        log = FakeLog(world, process.number, CountingFuse())
        first, end = await log.bounds(partition)
        kinds = [dict(entry.headers)["type"] for entry in world.journal[partition][first:]]
        assert b"epoch" not in kinds
        reading = Reading(log, partition, Note(first), {}, heartbeat=Heartbeat())
        async for _ in reading.to(end):
            pass
        assert reading.facts == FACTS
    other = copy.deepcopy(FACTS) | {"partitions": 4}
    world.store = LocalStore()
    with pytest.raises(OtherTopics):
        await started(world, facts=other)
