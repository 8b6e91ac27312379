"""A worker says what came back from the journal, and which data sets nobody can serve."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from stream_dp.state.journal import CommitRecord
from stream_dp.state.local import LocalStore
from tests.pipeline.referee.evidence import journaled

AA = {"attribute": "carrier", "eq": "AA"}


@pytest.fixture
async def lost(world: Any) -> Any:
    """Two data sets with a phase each, and a store that has forgotten both."""
    for name in ("flights", "trains"):
        world.define(name)
        world.cells(name, "one")
    world.ask("flights", "before", AA)
    await world.run()
    world.store = LocalStore()
    return world


def _figure(process: Any, series: str) -> float | None:
    """The value of a series in a scrape; None if it is absent."""
    for line in process.worker.metrics.exposition().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name == f"stream_dp_{series}":
            return float(value)
    return None


async def test_each_data_set_that_came_back_is_announced_once_with_its_commits(lost: Any) -> None:
    commits = {name: len(records) for name, records in journaled(lost).items()}
    assert set(commits) == {"flights", "trains"}
    process = lost.process()
    await process.assign()
    await process.run()
    events = lost.events("healed")
    assert {event["dataset"]: event["commits"] for event in events} == commits
    assert len(events) == 2
    assert all(f"{event['commits']} commits" in event["note"] for event in events)
    for name, number in commits.items():
        assert _figure(process, f'healed_total{{dataset="{name}"}}') == number
        assert _figure(process, f'stopped{{dataset="{name}"}}') == 0
    await process.kill()
    assert lost.complaints() == []
    before = len(lost.events("healed"))
    await lost.run()
    assert len(lost.events("healed")) == before, "a store that lacks nothing is not healed"


async def test_these_events_follow_from_no_commit(lost: Any) -> None:
    await lost.run()
    sent = [
        event.outgoing
        for event in lost.trail
        if hasattr(event, "outgoing") and event.outgoing.role == "events"
    ]
    headers = {
        json.loads(one.value or b"")["event"]: {name for name, _ in one.headers} for one in sent
    }
    assert "commit" not in headers["healed"]
    assert "commit" in headers["phase_opened"]


async def test_a_data_set_that_cannot_be_healed_stops_alone_and_says_why(lost: Any) -> None:
    _write_again(lost, "trains", definition=b'{"version": 99}')
    process = lost.process()
    await process.assign()
    asked = lost.ask("trains", "in vain", AA)
    lost.ask("flights", "after", AA)
    await process.run()
    ((name, why),) = process.worker.stopped.items()
    assert name == "trains"
    events = lost.events("stopped")
    assert {event["dataset"] for event in events} == {"trains"}
    assert {event["reason"]["code"] for event in events} == {"stopped"}
    assert {event["reason"]["message"] for event in events} == {why}
    assert why.startswith("version: ")
    assert {event["dataset"] for event in lost.events("healed")} == {"flights"}
    assert _figure(process, 'stopped{dataset="trains"}') == 1
    assert _figure(process, 'stopped{dataset="flights"}') == 0
    assert lost.rejection(asked)["reason"]["code"] == "stopped"
    assert lost.answer("after")["status"] == "answered"
    await process.kill()


def _write_again(world: Any, name: str, **changes: Any) -> None:
    """Changes the first record of a data set on the journal, as another release might have written it."""
    for entries in world.journal:
        for place, entry in enumerate(entries):
            if entry.key == name.encode() and dict(entry.headers)["type"] == b"commit":
                record, _ = CommitRecord.from_bytes(entry.value)
                value, _ = dataclasses.replace(record, **changes).to_bytes()
                entries[place] = dataclasses.replace(entry, value=value)
                return
    raise AssertionError(f"{name} is not on the journal")
