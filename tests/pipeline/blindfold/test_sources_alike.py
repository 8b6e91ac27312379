"""Two topics of somebody else that differ in a message are counted alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from stream_dp.messages import PhaseSpec
from stream_dp.pipeline.intake import sources
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import Packing
from stream_dp.pipeline.intake.sources import SourceReader
from stream_dp.pipeline.rows.waiting.row_times import Times
from stream_dp.settings import WorkerSettings
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.source_broker import Broker, Message

N_MESSAGES: Final = 240
MESSAGE: Final = b'{"carrier":"AA","delay":5,"cancelled":false}'
OTHERS: Final = {
    "of another cell": b'{"carrier":"canary-7f3a","delay":1e30,"cancelled":null}',
    "that is not JSON": b'{"carrier":',
    "of a hundred kilobytes": b'{"carrier":"%s"}' % (b"x" * 100_000),
    "without a value": None,
}


async def _read(
    monkeypatch: pytest.MonkeyPatch,
    process: Any,
    other: bytes | None,
    batch_rows: int,
    *,
    time_ms: int = Message.timestamp,
) -> Broker:
    """Reads a topic whose message in the middle is ``other``, of this time."""
    values: list[bytes | None] = [MESSAGE] * N_MESSAGES
    values[N_MESSAGES // 2] = other
    broker = Broker(values, process, {N_MESSAGES // 2: time_ms})

    async def described(_: Any, topics: Sequence[str]) -> list[dict[str, Any]]:
        return [{"error_code": 0, "topic_id": "0" * 8} for _topic in topics]

    monkeypatch.setattr(sources, "AIOKafkaConsumer", broker.consumer)
    monkeypatch.setattr(sources, "described_topics", described)
    monkeypatch.setattr(sources, "_IDLE_S", 3600.0)
    source = TopicSource(
        version=1,
        dataset="flights",
        topic="shop.flights",
        batch_rows=batch_rows,
        wait_seconds=3600.0,
    )
    definition = process.worker.datasets["flights"].definition
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    unlike: Any = broker
    view = process.world.view
    reader = SourceReader(source, view, unlike, lambda _: definition, settings=settings)
    reading = asyncio.create_task(reader.run())
    is_read = asyncio.create_task(broker.is_read.wait())
    await asyncio.wait({reading, is_read}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, is_read):
        task.cancel()
    ended = await asyncio.gather(reading, is_read, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError), ended[0]
    return broker


async def _defined(world: Any, **phase: Any) -> Any:
    """A worker that holds a data set whose phases open with all messages of a topic."""
    process = await world.owner()
    phase = {"min_rows": N_MESSAGES, **phase}
    world.define("flights", phase=phase, mechanism={"base_share": 0.2})
    await process.run()
    return process


def _facts(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What a batch off a source says beside its rows, how many these are, and in which form they come."""
    rows: Any = batch["columns"]["carrier"] if "columns" in batch else batch["cells"]
    n_rows = len(rows) if "columns" in batch else sum(cell["count"] for cell in rows)
    rest = {name: value for name, value in batch.items() if name not in {"cells", "columns"}}
    return {**rest, "rows": n_rows, "entries": len(rows), "listed": "cells" in batch}


@pytest.mark.parametrize("batch_rows", [40, 240], ids=["columns", "cells"])
@pytest.mark.parametrize("other", OTHERS)
async def test_two_topics_that_differ_in_a_message_are_counted_alike(
    lived: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, other: str, batch_rows: int
) -> None:
    """The batches' ids, sizes, form and order are the same, and what the worker makes of them."""
    brokers = list[Broker]()

    async def live(world: Any, _: Any, value: bytes | None) -> None:
        process = await _defined(world)
        brokers.append(await _read(monkeypatch, process, value, batch_rows))
        LIVES["calibrated"].ask(world, "flights", "q")
        await process.run()
        await process.kill()
        assert len(world.events("phase_opened")) == 1

    runs = await lived(live, MESSAGE, OTHERS[other])
    assert list(map(_facts, brokers[0].sent)) == list(map(_facts, brokers[1].sent))
    assert len(brokers[0].sent) == N_MESSAGES // batch_rows
    assert brokers[0].seen == brokers[1].seen
    assert brokers[0].sent != brokers[1].sent
    assert runs.noise[1].told_apart
    assert runs.complaints == []
    assert runs.unlike == set()


async def test_a_reader_that_drops_what_it_cannot_read_is_told_apart(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of batches can fail."""
    batch = Packing.batch

    def without(self: Packing, of_it: Any, rows: Sequence[Sequence[object]], about: Any) -> bytes:
        return batch(self, of_it, [row for row in rows if row[0] is not None], about)

    monkeypatch.setattr(Packing, "batch", without)
    facts = []
    for value in (MESSAGE, OTHERS["that is not JSON"]):
        process = await _defined(make_world())
        broker = await _read(monkeypatch, process, value, 40)
        await process.kill()
        facts.append(list(map(_facts, broker.sent)))
    assert facts[0] != facts[1]


HOUR_MS: Final = 3_600_000
EARLIER: Final = (-HOUR_MS, 1, 5 * HOUR_MS, 86_400_000)
"""Milliseconds between a message and all others, which are of midnight. The last one is the next day."""


async def _shown(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, ahead_ms: int, **phase: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The batches of a topic, and the events, where one message has a time of its own."""
    world = make_world()
    world.now_ms = Message.timestamp + 2 * 86_400_000
    monkeypatch.setattr(time, "time", lambda: world.now_ms / 1000)
    process = await _defined(world, **phase)
    time_ms = Message.timestamp + ahead_ms
    broker = await _read(monkeypatch, process, MESSAGE, 240, time_ms=time_ms)
    await process.kill()
    return broker.sent, world.released("events")


@pytest.mark.parametrize("ahead_ms", EARLIER)
async def test_without_a_calendar_no_time_of_a_message_is_seen(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    sent, events = await _shown(make_world, monkeypatch, ahead_ms)
    assert (sent, events) == await _shown(make_world, monkeypatch, 0)
    assert not any("time" in batch for batch in sent)


async def test_with_a_calendar_a_batch_says_its_period_alone(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So times within it cannot be told apart. Another period can: which one it is, is public."""
    by_day = {"every": "1 day", "timezone": "Europe/Berlin"}
    alike = [await _shown(make_world, monkeypatch, ahead, **by_day) for ahead in (0, *EARLIER[:3])]
    assert alike[0][0][0]["time"] == "2026-11-01"
    assert all(shown == alike[0] for shown in alike)
    other, _ = await _shown(make_world, monkeypatch, EARLIER[3], **by_day)
    assert [(batch["time"], _facts(batch)["rows"]) for batch in other] == [("2026-11-01", 120)]


async def test_a_copy_that_says_the_time_of_its_last_message_is_told_apart(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = Times.span
    monkeypatch.setattr(
        Times, "period", lambda self, ms: exact(Times(PhaseSpec(min_rows=1)), None, ms)
    )
    monkeypatch.setattr(sources._Partition, "ended", lambda *_: 0)
    sent, events = await _shown(make_world, monkeypatch, 1)
    assert (sent, events) != await _shown(make_world, monkeypatch, 0)
