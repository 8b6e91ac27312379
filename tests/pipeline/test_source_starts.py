"""A topic that may be a copy of one whose rows have counted begins only where an operator says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream_dp.errors import InvalidInput
from stream_dp.messages import Batch, SourceRange
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import SourceLog
from stream_dp.pipeline.intake.sources import SourceReader
from stream_dp.settings import WorkerSettings
from tests.pipeline.test_producers import move
from tests.pipeline.test_sources import Consumer, Owner, Topic, ran

ROW = {"carrier": "AA", "delay": 5, "cancelled": False}


def send(world: Any, topic: str, log_id: str, first: int = 0, at: int = 0, **more: Any) -> Any:
    """Three records of a topic, as a reader packs them."""
    named = {"topic": topic, "id": log_id, "partition": at, "first": first, "last": first + 2}
    batch_id = f"{topic}@{log_id}:{at}:{first}"
    return world.batch("flights", batch_id, source={**named, **more}, rows=[ROW] * 3)


def counted(world: Any) -> list[str]:
    return [event["batch_id"] for event in world.events("batch_accepted")]


@pytest.fixture
async def process(world: Any) -> Any:
    """A worker whose data set has counted three records of ``orders``, under its first id."""
    process = await world.owner()
    world.define("flights")
    send(world, "orders", "A")
    await process.run()
    yield process
    assert world.complaints() == []
    await process.kill()


@pytest.mark.parametrize("topic", ["orders", "eu.orders"])
async def test_a_copy_of_a_topic_does_not_count_until_its_start_is_named(
    world: Any, process: Any, topic: str
) -> None:
    """A mirror keeps the name of a topic, or puts that of its cluster before it."""
    refused = send(world, topic, "B")
    await process.run()
    assert world.rejection(refused)["reason"]["code"] == "start_unknown"
    assert len(counted(world)) == 1
    send(world, topic, "B", first=7, begins=True)
    send(world, topic, "B", first=10)
    await process.run()
    assert counted(world)[1:] == [f"{topic}@B:0:7", f"{topic}@B:0:10"]
    refused = send(world, topic, "B", at=1)
    await process.run()
    assert world.rejection(refused)["reason"]["code"] == "start_unknown", (
        "each partition has a start"
    )


@pytest.mark.parametrize(("topic", "log_id", "at"), [("orders", "A", 1), ("returns", "B", 0)])
async def test_another_partition_and_another_topic_begin_by_themselves(
    world: Any, process: Any, topic: str, log_id: str, at: int
) -> None:
    send(world, topic, log_id, at=at)
    await process.run()
    assert len(counted(world)) == 2


async def test_a_data_set_that_has_moved_asks_for_the_start_of_a_mirrored_topic(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    """The topic there has another id, so nothing else would tell its history from new rows."""
    here, new = make_world(), make_world(seed=2)
    await here.run(rounds=[lambda w: w.define("flights"), lambda w: send(w, "orders", "A")])
    await here.run()
    await new.run()
    await move("flights", here, new, tmp_path)
    await new.run()
    await new.run(rounds=[lambda w: send(w, "orders", "B")])
    assert counted(new) == []
    await new.run(rounds=[lambda w: send(w, "orders", "B", first=3, begins=True)])
    assert counted(new) == ["orders@B:0:3"]


async def test_a_copy_that_begins_by_itself_would_count_every_row_again(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(SourceRange, "may_be_copy", lambda *_: False)
    send(world, "orders", "B")
    await process.run()
    assert len(counted(world)) == 2


# ---------------------------------------------------------------- the reader

START = {"id": "log", "offsets": [4, 9]}


async def test_a_reader_stops_until_its_source_file_names_the_start_and_sends_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner()
    owner.cursor["source shop.flights@before:0"] = 20
    with pytest.raises(
        InvalidInput, match=r'write "start": \{"id": "log", "offsets": \[\.\.\.\]\}'
    ):
        await ran(owner, Topic(range(10)), monkeypatch)
    assert owner.log == []
    with pytest.raises(InvalidInput, match="may be a copy of it"):  # it is that of another topic
        await ran(owner, Topic(range(10)), monkeypatch, start={**START, "id": "older"})
    assert owner.log == []
    await ran(owner, Topic(range(4, 10), range(10, 20)), monkeypatch, start=START)
    assert owner.rows == list(range(4, 20))
    assert [_begins(batch) for batch in owner.log] == [True, *[None] * (len(owner.log) - 1)]
    sent = len(owner.log)
    await ran(owner, Topic(range(20, 25)), monkeypatch)
    assert owner.rows == list(range(4, 25)), "once it has begun, the file need not say it"
    assert not any(_begins(batch) for batch in owner.log[sent:])


def _begins(batch: Batch) -> bool | None:
    assert batch.source is not None
    return batch.source.begins


async def test_each_partition_needs_a_start() -> None:
    unused: Any = None
    source = TopicSource.read(
        {"version": 1, "dataset": "flights", "topic": "shop.flights", "start": START}
    )
    owner: Any = Owner()
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    reader = SourceReader(source, owner, unused, unused, settings=settings)
    consumer: Any = Consumer()
    with pytest.raises(InvalidInput, match="has a partition 2, and there is no offset"):
        await reader._stand(consumer, SourceLog(TopicPartition("shop.flights", 2), "log"), 0)


@pytest.mark.parametrize("start", [{"id": "a", "offsets": []}, {"id": "a"}, {"id": "", "offsets": [0]},
                                   {"id": "a", "offsets": [-1]}, [0]])  # fmt: skip
def test_a_start_that_says_no_offset_is_refused(start: Any) -> None:
    document = {"version": 1, "dataset": "flights", "topic": "t", "start": start}
    with pytest.raises(InvalidInput, match=r"^start"):
        TopicSource.read(json.loads(json.dumps(document)))
