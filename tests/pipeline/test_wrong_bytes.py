"""A wrong byte in Redis changes nothing. A wrong byte on the journal stops its data set, and no other one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.queries.query_answerer import answer_name
from stream_dp.state.schema import Pair, State, StateTable, sum_of
from tests.pipeline.commands import mend_all, served
from tests.pipeline.durable import SOON, differences
from tests.pipeline.held import valid_commits
from tests.pipeline.scenarios import AA, LATE
from tests.pipeline.world import World
from tests.view import MemoryView

NAMES = ("flights", "trains", "cars")  # the first and the last are in one partition


@pytest.fixture
async def asked(world: World) -> World:
    """Three data sets of which a query was asked."""
    world.deaths = 0
    for name in NAMES:
        world.define(name, mechanism={"base_share": 0.0})
    await world.run()
    for name in NAMES:
        world.cells(name, "one")
    await world.run()
    for name in NAMES:
        world.ask(name, "q1", AA)
    await world.run()
    await world.lives()
    return world


# ---------------------------------------------------------------- Redis


def less_is_spent(pairs: dict[Pair, bytes]) -> None:
    rho, delta = pairs[StateTable.SPENT, b"0"].split()
    pairs[StateTable.SPENT, b"0"] = b"%d %d" % (int(rho) // 2, int(delta))


def it_is_retired(pairs: dict[Pair, bytes]) -> None:
    pairs[StateTable.FACT, b"retired"] = b"1"


def a_batch_is_still_to_come(pairs: dict[Pair, bytes]) -> None:
    for pair in [pair for pair in pairs if pair[0] is StateTable.CURSOR]:
        del pairs[pair]


CHANGES: list[Callable[[dict[Pair, bytes]], None]] = [
    less_is_spent,
    it_is_retired,
    a_batch_is_still_to_come,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
async def test_what_was_changed_in_redis_changes_nothing(
    asked: World, change: Callable[[Any], None]
) -> None:
    """Not even if somebody has seen to it that it looks whole."""
    state = asked.view.states["flights"]
    change(state.pairs)
    state.sum = State("flights").drafted(state.pairs).sum
    assert sum_of(state.pairs) == state.sum
    for name in NAMES:
        asked.ask(name, "q1", AA)
        asked.cells(name, "one")
        asked.ask(name, "q2", LATE)
    before = asked.answers()
    process = await asked.lives()
    assert process.worker.stopped == {}
    assert await differences(asked) == []
    assert len(asked.answers()) == 2 * len(NAMES)
    assert asked.several_answers() == []
    assert {key: asked.answers()[key] for key in before} == before
    assert [one for one in asked.complaints() if one[:3] != "P17"] == []


# ---------------------------------------------------------------- the journal


def spoil(world: World, offset: int, at: int, name: str = "flights") -> None:
    """Changes a bit of an entry. A negative place counts from its end."""
    entries = world.journal[world.home(name)]
    value = bytearray(entries[offset].value)
    value[at] ^= 4
    entries[offset] = replace(entries[offset], value=bytes(value))


@pytest.mark.parametrize("which", range(4))
async def test_a_wrong_byte_in_a_commit_stops_its_data_set_alone(
    asked: World, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever commit it is in. All that is served goes on, and nothing of the other one is answered."""
    caplog.set_level(logging.DEBUG)
    commits = valid_commits(asked)["flights"]
    assert len(commits) >= 4
    place = commits[which - 4].offset
    length = len(asked.journal[asked.home("flights")][place].value)
    sound = copy.deepcopy(asked.journal)
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    for at in (0, 1, 2, 9, length // 3, length // 2, -1):
        world = asked.copy()
        world.journal = copy.deepcopy(sound)
        spoil(world, place, at)
        process = await world.lives()
        assert process.worker.aside == frozenset()
        assert process.worker.stopped.keys() == {"flights"}
        assert process.datasets.keys() == {"trains", "cars"}
        (event,) = world.events("stopped")
        assert event["dataset"] == "flights"
        assert world.answers().keys() == {
            *((name, "ana", "q1") for name in NAMES),
            *((name, "ana", "q2") for name in ("trains", "cars")),
        }
        ((rejected,),) = world.rejections().values()
        assert (rejected["dataset"], rejected["reason"]["code"]) == ("flights", "stopped")
        again = await world.lives()
        assert again.worker.stopped.keys() == {"flights"}, "for every owner alike"
        world.journal = [
            [*was, *now[len(was) :]] for was, now in zip(sound, world.journal, strict=True)
        ]
        world.ask("flights", "q2", LATE)
        healthy = await world.lives()
        assert healthy.worker.stopped == {}, "it goes on if the journal is restored"
        assert world.answers().keys() >= {("flights", "ana", "q2")}
        assert world.several_answers() == []


async def test_a_wrong_byte_in_a_checkpoint_stops_its_data_set_alone(asked: World) -> None:
    asked.often = SOON
    for number in range(60):
        asked.ask("flights", f"more-{number}", AA)
        asked.ask("cars", f"more-{number}", AA)
    await asked.lives()
    asked.often = type(SOON)()
    here = asked.home("flights")
    checkpoints = [
        offset
        for offset, entry in enumerate(asked.journal[here])
        if dict(entry.headers)["kind"] == b"checkpoint" and entry.key == b"flights"
    ]
    assert checkpoints
    for at in (0, 9, 50, -1):
        world = asked.copy()
        world.journal = copy.deepcopy(asked.journal)
        for offset in checkpoints:
            spoil(world, offset, at)
        for name in NAMES:
            world.ask(name, "q2", LATE)
        process = await world.lives()
        assert process.worker.aside == frozenset()
        assert process.worker.stopped.keys() == {"flights"}
        assert process.datasets.keys() == {"trains", "cars"}
        assert {n for n, _, query_id in world.answers() if query_id == "q2"} == {"cars", "trains"}


def changed_header(entry: LogEntry, name: str) -> LogEntry:
    headers = dict(entry.headers)
    if name in headers:
        headers[name] = headers[name][:-1] + bytes((headers[name][-1] ^ 1,))
    return replace(entry, headers=tuple(headers.items()))


@pytest.mark.parametrize("header", ["kind", "epoch", "digest"])
async def test_a_wrong_byte_beside_the_last_commit_stops_its_data_set_alone(
    asked: World, header: str
) -> None:
    """Void it would be forgotten, with what it charged, and its query answered again."""
    place = valid_commits(asked)["flights"][-1].offset
    entries = asked.journal[asked.home("flights")]
    entries[place] = changed_header(entries[place], header)
    asked.shows_outputs = False  # they would show it, unless others have published much since
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    process = await asked.lives()
    assert process.worker.aside == frozenset()
    assert process.worker.stopped.keys() == {"flights"}
    assert "is not as it was written" in process.worker.stopped["flights"]
    assert {name for name, _, query_id in asked.answers() if query_id == "q2"} == {"cars", "trains"}


async def test_a_checkpoint_that_is_not_where_its_round_says_stops_its_data_set_alone(
    asked: World,
) -> None:
    """Otherwise it would be as if it had never been: nothing spent, and no id taken."""
    asked.often = SOON
    for number in range(60):
        asked.ask("cars", f"more-{number}", AA)
    process = await asked.lives()
    made = process.worker.journal.owned()[asked.home("flights")].begin
    entries = asked.journal[asked.home("flights")]
    gone = 0
    for at in range(made, len(entries)):
        entry = entries[at]
        if dict(entry.headers)["kind"] == b"checkpoint" and entry.key == b"flights":
            entries[at] = LogEntry(b"", b"")
            gone += 1
    assert gone
    asked.shows_outputs = False
    for name in NAMES:
        asked.define(name, mechanism={"base_share": 0.0})
        asked.ask(name, "q2", LATE)
    process = await asked.lives()
    assert process.worker.aside == frozenset()
    assert process.worker.stopped.keys() == {"flights"}
    assert {name for name, _, query_id in asked.answers() if query_id == "q2"} == {"cars", "trains"}


def changed_key(entry: LogEntry) -> LogEntry:
    return replace(entry, key=b"flighty")


def changed_value(entry: LogEntry) -> LogEntry:
    """Another number, where there is one."""
    at = max(entry.value.find(b"9"), entry.value.find(b"1"), len(entry.value) // 2)
    return replace(entry, value=entry.value[:at] + b"2" + entry.value[at + 1 :])


OF_NOBODY: list[tuple[str, Callable[[LogEntry], LogEntry]]] = [
    ("commit", changed_key),
    ("mark", changed_value),
    ("begin", changed_value),
    ("end", changed_value),
    ("epoch", changed_value),
    ("epoch", lambda entry: changed_header(entry, "epoch")),
    ("mark", lambda entry: changed_header(entry, "newest")),
]


@pytest.mark.parametrize(("kind", "change"), OF_NOBODY)
async def test_a_wrong_byte_in_what_is_of_no_data_set_for_certain_stops_its_partition_alone(
    asked: World, kind: str, change: Callable[[LogEntry], LogEntry]
) -> None:
    asked.often = SOON
    for number in range(60):
        asked.ask("flights", f"more-{number}", AA)
    await asked.lives()
    asked.often = type(SOON)()
    asked.ask("flights", "last", AA)  # so there is an entry of each kind behind the last round
    await asked.lives()
    before = asked.answers()
    here = asked.home("flights")
    sound = list(asked.journal[here])
    (*_, place) = (
        at
        for at, entry in enumerate(sound)
        if dict(entry.headers)["kind"] == kind.encode() and change(entry) != entry
    )
    asked.journal[here][place] = change(sound[place])
    asked.shows_outputs = False
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    process = await asked.lives()
    assert process.worker.aside == {here}
    assert process.datasets.keys() == {"trains"}
    assert asked.answers().keys() == {*before, ("trains", "ana", "q2")}
    world = asked.copy()
    world.journal[here][place] = sound[place]
    await world.lives()
    assert await differences(world) == []
    assert world.answers().keys() >= {(name, "ana", "q2") for name in NAMES}
    assert (await mend_all(asked)).keys() == set(NAMES)
    process = await served(asked)
    assert (process.worker.aside, process.worker.stopped) == (frozenset(), {})
    assert {key: asked.answers()[key] for key in before} == before
    assert asked.answers().keys() >= {(name, "ana", "q2") for name in NAMES}
    assert asked.several_answers() == []


async def test_an_answer_with_a_wrong_byte_stops_its_data_set_alone_when_somebody_asks_for_it(
    asked: World,
) -> None:
    """It is below the checkpoint from which its data set was read, and Redis has dropped it."""
    pair = (StateTable.ANSWER, answer_name("ana", "q1").encode())
    (answered,) = [one for one in valid_commits(asked)["flights"] if pair in one.commit.pairs]
    asked.often = replace(SOON, per_id=10_000)  # so no answer is carried
    for number in range(60):
        asked.ask("flights", f"more-{number}", AA)
    process = await asked.lives()
    here = asked.home("flights")
    assert process.worker.journal.owned()[here].begin > answered.offset >= asked.forgotten[here]
    asked.often = type(SOON)()
    asked.view = MemoryView()
    spoil(asked, answered.offset, -1)
    before = asked.answers()
    process = await asked.lives()
    assert process.worker.stopped == {}, "nobody has asked"
    for name in NAMES:
        asked.ask(name, "q1", AA)
        asked.ask(name, "q2", LATE)
    process = await asked.lives()
    assert process.worker.stopped.keys() == {"flights"}
    assert "is not where it was committed" in process.worker.stopped["flights"]
    assert process.datasets.keys() == {"cars", "trains"}
    assert {name for name, _, query_id in asked.answers() if query_id == "q2"} == {"cars", "trains"}
    assert {key: asked.answers()[key] for key in before} == before
    (event,) = asked.events("stopped")
    assert event["dataset"] == "flights"


@pytest.fixture
async def stood(asked: World) -> World:
    """The first answer to a standing query has a wrong byte, and Redis has nothing."""
    asked.ask("flights", "s", AA, standing=True)
    await asked.lives()
    pair = (StateTable.ANSWER, answer_name("ana", "s@1").encode())
    (answered,) = [one for one in valid_commits(asked)["flights"] if pair in one.commit.pairs]
    asked.often = replace(SOON, per_id=10_000)  # so no answer is carried
    for number in range(60):
        asked.ask("flights", f"more-{number}", AA)
    process = await asked.lives()
    begin = process.worker.journal.owned()[asked.home("flights")].begin
    assert begin > answered.offset >= asked.forgotten[asked.home("flights")]
    asked.often = type(SOON)()
    asked.view = MemoryView()
    spoil(asked, answered.offset, -1)
    return asked


async def test_a_standing_answer_with_a_wrong_byte_keeps_nobody_from_taking_over(
    stood: World,
) -> None:
    for name in NAMES:
        stood.ask(name, "q2", LATE)
    process = await stood.lives()
    assert process.worker.stopped == {}, "nobody has asked for it"
    assert len([one for one in stood.answers() if one[2] == "q2"]) == len(NAMES)


async def test_a_standing_answer_with_a_wrong_byte_stops_its_data_set_alone_when_somebody_asks_for_it(
    stood: World,
) -> None:
    again = stood.ask("flights", "s", AA, standing=True)
    for name in NAMES:
        stood.ask(name, "q2", LATE)
    process = await stood.lives()
    assert process.worker.stopped.keys() == {"flights"}
    assert process.datasets.keys() == {"cars", "trains"}
    assert {name for name, _, query_id in stood.answers() if query_id == "q2"} == {"cars", "trains"}
    assert stood.rejection(again)["reason"]["code"] == "stopped"
    (event,) = stood.events("stopped")
    assert event["dataset"] == "flights"


async def test_a_standing_answer_that_is_due_and_has_a_wrong_byte_stops_its_data_set_alone(
    stood: World,
) -> None:
    """It has been given: its query ended and began again in the same phase."""
    stood.ask("flights", "s", AA, standing=False)
    stood.ask("flights", "s", AA, standing=True)
    for name in NAMES:
        stood.ask(name, "q2", LATE)
    process = await stood.lives()
    assert process.worker.stopped.keys() == {"flights"}
    assert {name for name, _, query_id in stood.answers() if query_id == "q2"} == {"cars", "trains"}
    assert stood.several_answers() == []


async def test_an_answer_with_a_wrong_byte_is_not_carried_and_keeps_the_journal(
    asked: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A round that would lose it is given up, and not begun again with each step. All goes on."""
    pair = (StateTable.ANSWER, answer_name("ana", "q1").encode())
    (answered,) = [one for one in valid_commits(asked)["flights"] if pair in one.commit.pairs]
    asked.often = replace(SOON, per_id=0)  # so answers are carried
    process = await asked.owner()
    await process.run()
    spoil(asked, answered.offset, -1)  # after it was read
    asked.group = 1
    for number in range(100):
        asked.ask("flights", f"more-{number}", AA)
    await process.run()
    await process.kill()
    assert len(asked.answers()) == len(NAMES) + 100
    here = asked.home("flights")
    kinds = [dict(entry.headers)["kind"] for entry in asked.journal[here]]
    assert kinds.count(b"end") == 0
    assert 1 <= kinds.count(b"begin") <= len(kinds) / 5
    assert asked.forgotten[here] == 0
    assert "was given up: flights: an answer is not where it was committed" in caplog.text


async def test_what_cannot_be_read_stops_alone_and_says_nothing_of_what_was_read(
    asked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Dataset.stored

    async def unreadable(chain: Any, *rest: Any, **named: Any) -> Dataset:
        if chain.name == "flights":
            raise ValueError("canary")
        return await stored(chain, *rest, **named)

    monkeypatch.setattr(Dataset, "stored", unreadable)
    for name in NAMES:
        asked.ask(name, "q2", LATE)
    process = await asked.lives()
    assert process.datasets.keys() == set(NAMES) - {"flights"}
    assert process.worker.stopped.keys() == {"flights"}
    (event,) = asked.events("stopped")
    assert event["dataset"] == "flights"
    assert "canary" not in str(event) + str(process.worker.stopped)
    assert len([one for one in asked.answers() if one[2] == "q2"]) == len(NAMES) - 1
