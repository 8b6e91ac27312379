"""What the time of a record says: when something was asked, never how long the rows took."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

from stream_dp.core.residual.looks import table_looks
from stream_dp.pipeline.kafka.sender import _dated
from tests.driven import take_all
from tests.waiting import PATIENCE_S

AA = {"attribute": "carrier", "eq": "AA"}
HOUR = 3_600_000


async def test_a_reply_carries_the_time_of_the_record_that_it_answers(world: Any) -> None:
    sent = [
        world.batch("flights", "early", rows=[]),
        world.define("flights"),
        world.cells("flights", "b"),
        world.ask("flights", "q", AA),
        world.ask("flights", "wrong", {"attribute": "nothing", "eq": 1}),
        world.ask_many("flights", [{"query_id": "q", "where": AA}, 7]),
        world.produce("queries", b"{", key="flights"),
    ]
    for number, record in enumerate(sent):
        records = world.log[record.topic_partition]
        records[record.offset] = dataclasses.replace(record, timestamp_ms=1_000 + number)
    process = await world.owner()
    for record in sent:
        await take_all(
            process.worker, [process.fetched(world.log[record.topic_partition][record.offset])]
        )
        await process.drained()
        replies = [e.outgoing for e in world.trail if hasattr(e, "outgoing")]
        world.trail.clear()
        expected = world.log[record.topic_partition][record.offset].timestamp_ms
        assert replies
        assert {one.dated_ms for one in replies} == {expected}
    await process.kill()


@pytest.mark.parametrize(
    ("answered", "dated"),
    [
        (10 * HOUR + 7, 10 * HOUR + 7),
        (9 * HOUR + 8, 9 * HOUR + 8),
        (9 * HOUR + 6, 10 * HOUR),
        (0, 10 * HOUR),
        (-1, 10 * HOUR),
    ],
)
def test_a_reply_to_an_old_record_is_dated_by_the_hour_alone(answered: int, dated: int) -> None:
    """So retention does not take it at once, and the time of a look does not show."""
    assert _dated(answered, 10 * HOUR + 7) == dated


async def test_while_the_rows_are_looked_at_others_are_served(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, looked = threading.Event(), []
    for kind in (table_looks.CountsLook, table_looks.TablesLook):

        def slow(self: Any, noise: Any, data: Any, take: Any = kind.take) -> Any:
            looked.append(served.wait(PATIENCE_S))
            return take(self, noise, data)

        monkeypatch.setattr(kind, "take", slow)
    rounds = [
        lambda w: w.define("flights", mechanism={"base_share": 0}),
        lambda w: w.cells("flights", "b"),
        lambda w: w.ask("flights", "q", AA),
    ]

    async def serve() -> None:
        await asyncio.sleep(0.05)
        served.set()

    await asyncio.gather(world.run(rounds=rounds), serve())
    assert looked, world.answer("q")
    assert all(looked), "the event loop stood still"
