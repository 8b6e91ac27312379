"""A source whose messages are not JSON objects stops and says so, and fills no phase with empty rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from stream_dp.pipeline.intake import sources
from stream_dp.pipeline.intake.source_packing import is_framed
from tests.pipeline.test_sources import LOG, Owner, Record, Topic, ran

MANY = sources._MOST_STRANGE
GOOD = b'{"delay":5}'
FRAMED = b"\x00\x00\x00\x00\x07" + GOOD
STRANGE = {
    "framed": [FRAMED],
    "no_objects": [b"delay=5", b"[5]", b"5", b"\x00", b'"text"', b"<row/>", FRAMED],
}


class Says(Topic):
    """A topic whose messages are these."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        super().__init__(range(len(values)))
        self._values = values

    async def getmany(self, *_: object, **__: object) -> Any:
        found = await super().getmany()
        self.is_read = not self._fetches  # a source that stops asks for no more
        return {
            place: [_Message(self._values[r.offset], r) for r in rs] for place, rs in found.items()
        }


class _Message:
    def __init__(self, value: bytes | None, record: Record) -> None:
        self.value, self.offset, self.timestamp = value, record.offset, record.timestamp


class Notices(Owner):
    """An owner that refuses the notices that a source has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[Any] = []

    async def send_and_locate(self, record: Any) -> tuple[str, int]:
        if (said := json.loads(record.value)).get("unreadable") is None:
            return await super().send_and_locate(record)
        self.notices.append(said)
        return "batches:0", len(self.log) - 1


async def read(
    patch: pytest.MonkeyPatch, values: Sequence[bytes | None], **changes: Any
) -> Notices:
    owner = Notices()
    with contextlib.suppress(asyncio.CancelledError):
        await ran(owner, Says(values), patch, batch_rows=1_000, **changes)
    return owner


@pytest.mark.parametrize("why", STRANGE)
async def test_a_source_of_other_messages_stops_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    values = (STRANGE[why] * MANY)[:MANY]
    owner = await read(monkeypatch, values)
    assert owner.log == [], "no row of it counts"
    (notice,) = owner.notices
    assert notice["unreadable"] == why
    assert (notice["source"]["first"], notice["source"]["last"]) == (0, MANY - 1)
    (told,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    assert "the source of flights has stopped: 100 messages in a row" in told.getMessage()
    assert ("schema registry" in told.getMessage()) == (why == "framed")
    assert "delay" not in caplog.text


@pytest.mark.parametrize(
    "values",
    [
        [FRAMED] * (MANY - 1),
        [*[FRAMED] * (MANY - 1), GOOD, *[FRAMED] * (MANY - 1)],
        [None, b""] * (2 * MANY),
    ],
    ids=["too few", "an object among them", "tombstones"],
)
async def test_a_source_goes_on_while_fewer_messages_in_a_row_are_strange(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes | None]
) -> None:
    owner = await read(monkeypatch, values)
    assert (len(owner.rows), owner.notices) == (len(values), [])


async def test_an_operator_may_have_all_messages_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = await read(monkeypatch, [FRAMED] * (3 * MANY), unreadable="count")
    assert (len(owner.rows), owner.notices) == (3 * MANY, [])


async def test_the_source_says_it_again_and_from_where_it_counts_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_SAY_AGAIN_S", 0.01)
    owner = Notices()
    owner.cursor["source shop.flights@log:0"] = 3
    with contextlib.suppress(asyncio.CancelledError):
        await ran(owner, Says([*[GOOD] * 3, *[FRAMED] * MANY]), monkeypatch)
    assert len(owner.notices) > 1
    assert {notice["source"]["first"] for notice in owner.notices} == {3}


async def test_everybody_learns_that_a_source_has_stopped(world: Any) -> None:
    """By an event and a metric. Nothing of it counts, and it goes on from the same record later."""
    process = await world.owner()
    world.define("flights")
    await process.run()
    span = {"topic": "t", "id": "log", "partition": 0, "first": 0, "last": 99}
    world.batch("flights", "t@log:0:0-99", source=span, unreadable="framed")
    world.batch("flights", "t@log:0:0-99", source=span, unreadable="framed")
    await process.run()
    said = world.events("batch_refused")
    assert {event["reason"]["code"] for event in said} == {"source_unreadable"}
    assert "schema registry" in said[0]["reason"]["message"]
    exposition = process.worker.context.metrics.exposition().decode()
    assert 'stream_dp_source_unreadable_total{dataset="flights"} 2.0' in exposition
    rows = [{"carrier": "AA"}] * 100
    world.batch("flights", "t@log:0:0-99", source=span, rows=rows)
    await process.run()
    assert [event["rows"] for event in world.events("batch_accepted")] == [100]
    assert world.complaints() == []


async def test_only_a_source_can_say_it(world: Any) -> None:
    process = await world.owner()
    world.define("flights")
    record = world.batch("flights", "b", unreadable="framed")
    await process.run()
    assert "unreadable is said of a source" in world.rejection(record)["reason"]["message"]


def test_a_frame_is_a_byte_0_and_four_more() -> None:
    assert [is_framed(v) for v in (FRAMED, b"\0\0\0\0\7", b"\0\0\0\0", b"{}", b"\1\0\0\0\7")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def _stops(are_objects: Sequence[bool], run: int) -> bool:
    """Whether a source of such messages stops once ``run`` in a row are no objects."""
    state = sources._Partition(LOG, 0)
    longest = 0
    for is_object in are_objects:
        state.notice(b"{}" if is_object else b"x", {} if is_object else None)
        longest = max(longest, state.strange)
    return longest >= run


@pytest.mark.parametrize("run", [2, 3, 4])
def test_no_single_message_decides_where_two_of_each_run_are_objects(run: int) -> None:
    """All topics of nine messages, and each message of them. With one object in a run, that one decides."""
    decides = set()
    for topic in product((True, False), repeat=9):
        fewest = min(sum(topic[at : at + run]) for at in range(len(topic) - run + 1))
        others = ([*topic[:at], not topic[at], *topic[at + 1 :]] for at in range(len(topic)))
        if any(_stops(other, run) != _stops(topic, run) for other in others):
            decides.add(fewest)
    assert decides == {0, 1}
