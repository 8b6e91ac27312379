"""A data set that nobody can serve stops alone, and says why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.pipeline.journal.entries import entries_of, with_digest
from stream_dp.state.schema import Commit, State, StateTable
from tests.pipeline.scenarios import AA


@pytest.fixture
async def served(world: Any) -> Any:
    """Two data sets with a phase each, and no worker."""
    names = ("flights", "trains")
    rounds = [
        lambda world: [world.define(name) for name in names],
        lambda world: [world.cells(name, "one") for name in names],
        lambda world: [world.ask(name, "before", AA) for name in names],
    ]
    await world.run(rounds=rounds)
    return world


def _figure(process: Any, series: str) -> float | None:
    """The value of a series in a scrape; None if it is absent."""
    for line in process.worker.context.metrics.exposition().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name == f"stream_dp_{series}":
            return float(value)
    return None


def _commits(world: Any, name: str) -> list[tuple[int, int]]:
    """Where the commits of a data set are: partition and offset."""
    return [(one.partition, one.offset) for one in world.held(name).valid]


def _written(world: Any, place: tuple[int, int], value: bytes) -> None:
    partition, offset = place
    entry = world.journal[partition][offset]
    headers = [one for one in entry.headers if one[0] != "digest"]
    world.journal[partition][offset] = with_digest(entry.key, value, headers)


def missing(world: Any) -> None:
    """In the place of a commit is another one."""
    first, second, *_ = _commits(world, "trains")
    partition, offset = first
    _written(world, second, world.journal[partition][offset].value)


def another_history(world: Any) -> None:
    """A commit has what another one with its number would have."""
    last = _commits(world, "trains")[-1]
    state = State("trains", number=len(_commits(world, "trains")) - 1)
    _written(world, last, state.drafted({(StateTable.FACT, b"n"): b"1"}).to_bytes()[0])


def newer_table(world: Any) -> None:
    """A newer release has a table that this one does not know."""
    last = _commits(world, "trains")[-1]
    partition, offset = last
    commit, _ = Commit.from_bytes(world.journal[partition][offset].value)
    pairs: dict[Any, bytes | None] = {**commit.pairs, (99, b"key"): b"value"}
    _written(world, last, dataclasses.replace(commit, pairs=pairs).to_bytes()[0])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (missing, "does not continue"),
        (another_history, "does not continue"),
        (newer_table, "unknown to this release"),
    ],
)
async def test_a_data_set_that_is_not_whole_on_the_journal_stops_alone_and_says_why(
    served: Any, fault: Callable[[Any], None], said: str
) -> None:
    """Redis has it as it was, and is not asked. ``test_wrong_bytes`` has what is not as it was written."""
    served.shows_outputs = False  # else the whole partition is taken for cut
    fault(served)
    process = await served.owner()
    asked = served.ask("trains", "in vain", AA)
    served.ask("flights", "after", AA)
    await process.run()
    ((name, why),) = process.worker.stopped.items()
    assert name == "trains"
    assert said in why
    events = served.events("stopped")
    assert {event["dataset"] for event in events} == {"trains"}
    assert {event["reason"]["code"] for event in events} == {"stopped"}
    assert {event["reason"]["message"] for event in events} == {why}
    assert _figure(process, 'stopped{dataset="trains"}') == 1
    assert _figure(process, 'stopped{dataset="flights"}') == 0
    assert served.rejection(asked)["reason"]["code"] == "stopped"
    assert served.answer("after")["status"] == "answered"


async def test_a_definition_of_a_newer_release_stops_its_data_set(served: Any) -> None:
    commit = State("ships").drafted({(StateTable.DEFINITION, b""): b'{"version": 99}'})
    partition = served.define("ships").partition
    epochs = [dict(entry.headers)["epoch"] for entry in served.journal[partition]]
    served.append(-1, partition, entries_of("commit", "ships", commit.to_bytes()[0], epochs[-1]))
    process = await served.owner()
    await process.run()
    ((name, why),) = process.worker.stopped.items()
    assert name == "ships"
    assert why.startswith("version: ")


async def test_this_event_follows_from_no_commit(served: Any) -> None:
    served.shows_outputs = False
    missing(served)
    await served.run()
    sent = [
        event.outgoing
        for event in served.trail
        if hasattr(event, "outgoing") and event.outgoing.role == "events"
    ]
    headers = {
        json.loads(one.value or b"")["event"]: {name for name, _ in one.headers} for one in sent
    }
    assert "commit" not in headers["stopped"]
    assert "commit" in headers["phase_opened"]
