"""Blocks that are on the private topic alone: the same answers, no rows in the store, and no other block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import CorruptState, RowsGone, ServerUnavailable
from stream_dp.pipeline import local_logs, logs, retrying
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.keeping import LOOKED, WAITING, Keeper, Looked, field_of
from stream_dp.pipeline.local_logs import LocalLog
from stream_dp.pipeline.logs import Entry, KafkaKept, Traces
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state import kept as kept_values
from stream_dp.state.kept import Part, Place
from stream_dp.state.local import LocalStore
from stream_dp.state.moved import MovedFolder, MovingFolder
from tests.pipeline import scenarios
from tests.pipeline.conftest import Die
from tests.pipeline.fakes import FakeKept
from tests.pipeline.scenarios import ERASED, LIVES
from tests.pipeline.simulator import lose_rows
from tests.pipeline.test_moving import moving
from tests.pipeline.test_rehearsing import everything, rehearsed
from tests.pipeline.world import World
from tests.waiting import PATIENCE_S

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


def define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0}, on_exhausted="refuse")


def phase(world: World) -> None:
    number = world.next_offset("batches", "flights")
    world.cells("flights", f"batch-{number}", n=1 + number)


def ask(query_id: str, where: Any = AA, **item: Any) -> Callable[[World], object]:
    return lambda world: world.ask("flights", query_id, where, **item)


def stored(world: World, name: str = "flights") -> list[bytes]:
    blocks: list[bytes] = world.held(name).blocks
    return blocks


def on_topic(world: World) -> list[bool]:
    return [Place.is_in(one) for one in stored(world)]


@pytest.fixture
def topical(make_world: Callable[..., World]) -> World:
    """A world whose workers put blocks on the topic alone."""
    world = make_world()
    world.blocks = "topic"
    return world


# What is where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rounds",
    ["ROUNDS", "GATED", "RUNS", "ERASED", "STANDING", "PERSONS", "LIVES", "STAGED", "KEPT"],
)
async def test_answers_do_not_depend_on_where_blocks_are(
    make_world: Callable[..., World], rounds: str
) -> None:
    answers: list[Any] = []
    for blocks in ("store", "topic"):
        world = make_world()
        world.blocks = blocks
        await world.run(rounds=getattr(scenarios, rounds))
        assert world.complaints() == []
        answers.append(world.answers())
        lengths = [len(one) for held in world.store._datasets.values() for one in held.blocks]
        assert lengths or rounds == "ROUNDS", "that one retires its data sets"
        if blocks == "topic":
            assert set(lengths) <= {1 + 8 + 4 + 8}
    assert answers[0] == answers[1]


async def test_the_setting_may_change_at_any_time(make_world: Callable[..., World]) -> None:
    world = make_world()
    await world.run(rounds=(define, phase, phase))
    world.blocks = "topic"
    await world.run(rounds=(phase, phase))
    world.blocks = "store"
    await world.run(rounds=(phase, ask("one"), ask("two", LATE)))
    assert on_topic(world) == [False, False, True, True, False]
    assert world.complaints() == []
    other = make_world()
    for rounds in ((define, phase, phase), (phase, phase), (phase, ask("one"), ask("two", LATE))):
        await other.run(rounds=rounds)
    assert world.answers() == other.answers()


async def test_a_store_that_is_lost_comes_back_with_blocks_where_the_setting_says(
    topical: World,
) -> None:
    await topical.run(rounds=(define, phase, phase))
    places = stored(topical)
    topical.store = LocalStore()
    await topical.run(rounds=(ask("one"),))
    assert stored(topical) == places
    topical.store, topical.blocks = LocalStore(), "store"
    await topical.run(rounds=(ask("two"),))
    assert on_topic(topical) == [False, False]
    assert topical.complaints() == []


async def test_a_block_that_is_sealed_again_from_its_batches_is_on_the_topic_again(
    topical: World,
) -> None:
    await topical.run(rounds=(define, phase, phase))
    before = dict(topical.kept)
    topical.store = LocalStore()
    lose_rows(topical, batches=False)
    assert len(topical.kept) < len(before)
    await topical.run(rounds=(ask("one"),))
    assert on_topic(topical) == [True, True]
    assert topical.kept == before
    assert topical.answer("one")["status"] == "answered"
    assert topical.complaints() == []


@pytest.mark.parametrize("rounds", ["ROUNDS", "ERASED", "LIVES"])
async def test_a_loss_of_the_store_is_rehearsed_with_blocks_on_the_topic(
    topical: World, rounds: str
) -> None:
    await topical.run(rounds=getattr(scenarios, rounds))
    before = everything(topical)
    found = await rehearsed(topical)
    assert [one for one in found.values() if not one.equal] == []
    assert everything(topical) == before


async def test_a_rehearsal_names_the_phase_whose_place_has_nothing(topical: World) -> None:
    await topical.run(rounds=(define, phase, phase))
    lose_rows(topical, blocks=1, batches=False)
    found = await rehearsed(topical)
    assert found["flights"].phases == [1], "its batch builds it, and a look would not find it"


@pytest.mark.parametrize("places", [("topic", "topic"), ("topic", "store"), ("store", "topic")])
async def test_a_data_set_moves_wherever_its_blocks_are(
    make_world: Callable[..., World], tmp_path: Path, places: tuple[Any, Any]
) -> None:
    here, new = make_world(), make_world(seed=2)
    here.blocks, new.blocks = places
    await here.run(rounds=(define, phase, phase, ask("one")))
    out = replace(moving(here), blocks=here.blocks)
    await out.out("flights", MovingFolder(tmp_path / "flights"))
    assert await moving(new).into(MovedFolder(tmp_path / "flights")) == "flights"
    await new.run(rounds=(ask("one"), ask("two", LATE)))
    assert on_topic(new) == [new.blocks == "topic"] * 2
    assert new.answer("one")["value"] == here.answer("one")["value"]
    assert new.answer("two")["status"] == "answered"


# What is missing --------------------------------------------------------------------------------


async def test_rows_that_are_gone_are_given_up_and_the_charge_stays(topical: World) -> None:
    await topical.run(rounds=(define, phase, phase, ask("old")))
    process = topical.process()
    await process.assign()
    lose_rows(topical, blocks=1)
    topical.ask("flights", "new", LATE)
    with pytest.raises(RowsGone, match="the rows of phase 1 are gone"):
        await process.run()
    await process.kill()
    charged = list(topical.store._datasets["flights"].spent)
    await topical.run(rounds=(lambda _: None, phase, ask("newest", window={"last_phases": 1})))
    (lost,) = topical.events("rows_lost")
    assert lost["phases"] == [1, 1]
    assert topical.answer("new")["reason"]["code"] == "rows_gone"
    assert topical.answer("newest")["status"] == "answered"
    spent = topical.store._datasets["flights"].spent
    assert all(now >= before for now, before in zip(spent, charged, strict=False))
    assert on_topic(topical) == [True, True]
    assert topical.complaints() == []


async def test_a_topic_that_has_the_same_at_other_offsets_loses_nothing(topical: World) -> None:
    await topical.run(rounds=(define, phase, phase))
    before = [topical.block_of(place) for place in stored(topical)]
    topical.kept_log.insert(0, (b"another/1/name/0", b""))
    after = [topical.block_of(place) for place in stored(topical)]
    assert not set(before) & {after[0]}, "nothing is kept there"
    assert after[1] == before[0], "another phase is where the last one was"
    await topical.run(rounds=(ask("one"),))
    assert topical.answer("one")["status"] == "answered"
    assert not topical.events("rows_lost")


async def test_a_broker_that_is_away_for_a_moment_costs_nothing(
    topical: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "_PAUSE_S", 0.001)
    away, fetch = [5], FakeKept.fetch

    async def fetched(self: FakeKept, key: bytes, place: Place) -> bytes | None:
        if away[0]:
            away[0] -= 1
            raise ServerUnavailable("away for a moment")
        return await fetch(self, key, place)

    monkeypatch.setattr(FakeKept, "fetch", fetched)
    await topical.run(rounds=(define, phase, phase))
    away[0] = 5
    await topical.run(rounds=(ask("one"),))
    assert away == [0]
    assert topical.answer("one")["status"] == "answered"
    assert topical.complaints() == []


async def test_a_worker_that_ends_waits_for_no_broker(
    topical: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topical.run(rounds=(define, phase))
    asked = asyncio.Event()

    async def fetched(self: FakeKept, key: bytes, place: Place) -> bytes | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(FakeKept, "fetch", fetched)
    process = topical.process()
    await process.assign()
    ask("one")(topical)
    running = asyncio.create_task(process.run())
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE_S)
    await process.kill()


# Another block than the one asked for ------------------------------------------------------------

TWINS = (
    lambda world: world.define("flights", mechanism={"base_share": 0.0}),
    lambda world: world.batch("flights", "one", cells=[_cells("AA", 25_000), _cells("UA", 5_000)]),
    lambda world: world.batch("flights", "two", cells=[_cells("AA", 5_000), _cells("UA", 25_000)]),
)
"""Two phases of the same size with other rows."""


def _cells(carrier: str, count: int) -> dict[str, Any]:
    return {"carrier": carrier, "delay": 5, "cancelled": False, "count": count}


async def _asked_of_the_first(world: World) -> float:
    await world.run(rounds=(ask("one", window={"phases": [1, 1]}),))
    value: float = world.answer("one")["value"]
    return value


async def _swapped(world: World) -> None:
    await world.run(rounds=TWINS)
    blocks = stored(world)
    assert [Place.from_bytes(one).n_bytes for one in blocks[:1]] == [
        Place.from_bytes(one).n_bytes for one in blocks[1:]
    ]
    blocks[0], blocks[1] = blocks[1], blocks[0]


async def test_the_place_of_another_phase_never_gives_its_rows(topical: World) -> None:
    await _swapped(topical)
    assert abs(await _asked_of_the_first(topical) - 25 / 30) < 0.1


async def test_it_would_if_the_key_were_not_compared(
    topical: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trusting(self: FakeKept, key: bytes, place: Place) -> bytes | None:
        return self._world.kept_log[place.offsets[0]][1]

    monkeypatch.setattr(FakeKept, "fetch", trusting)
    await _swapped(topical)
    assert abs(await _asked_of_the_first(topical) - 5 / 30) < 0.1


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_place_of_another_size_is_not_believed(topical: World, change: int) -> None:
    await topical.run(rounds=(define, phase))
    (place,) = map(Place.from_bytes, stored(topical))
    stored(topical)[0] = Place(place.n_bytes + change, place.offsets).to_bytes()
    process = topical.process()
    await process.assign()
    ask("one")(topical)
    with pytest.raises(CorruptState, match="the block of phase 1 has another size"):
        await process.run()
    await process.kill()


async def test_a_place_without_a_name_is_not_believed(topical: World) -> None:
    await topical.run(rounds=(define, phase))
    process = topical.process()
    await process.assign()
    del process.worker.datasets["flights"].meta[field_of(1)]
    ask("one")(topical)
    with pytest.raises(CorruptState, match="phase 1 has a place on a topic and no name"):
        await process.run()
    await process.kill()


# What is kept as records ------------------------------------------------------------------------


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LocalLog:
    monkeypatch.setattr(kept_values, "PART_BYTES", 10)
    return LocalLog(1)


KEY = b"flights/1/name/0"


async def _put(kept: KafkaKept, key: bytes, value: bytes) -> Place:
    (place,) = await kept.put([(key, value)])
    return place


async def test_a_value_is_fetched_from_its_parts(log: LocalLog) -> None:
    kept, value = KafkaKept(log), bytes(range(25))
    assert await _put(kept, b"other/1/name/0", b"something") == Place(9, (0,))
    place = await _put(kept, KEY, value)
    assert place == Place(25, (1, 2, 3))
    assert await kept.fetch(KEY, place) == value
    assert await kept.places(["flights"], 0) == {KEY: place}


async def test_what_is_not_exactly_there_is_not_fetched(log: LocalLog) -> None:
    kept, value = KafkaKept(log), bytes(range(25))
    place = await _put(kept, KEY, value)
    other = await _put(kept, b"flights/2/name/0", value)
    fork = await _put(kept, KEY, value[::-1])
    assert await kept.fetch(KEY, other) is None, "the key is another one"
    assert await kept.fetch(KEY, Place(25, (0, 2, 1))) is None
    assert await kept.fetch(KEY, Place(25, (0, 1))) is None
    assert await kept.fetch(KEY, Place(24, (0, 1, 2))) is None
    assert await kept.fetch(KEY, Place(25, (0, 1, 9))) is None
    assert await kept.fetch(KEY, Place(25, (*place.offsets[:2], fork.offsets[2]))) is None
    assert await kept.fetch(KEY, fork) == value[::-1]
    await kept.drop({KEY: 3})
    assert await kept.fetch(KEY, fork) == value[::-1], "the broker has not compacted the topic yet"
    (entry,) = log.entries[0][1:2]
    log.entries[0][1] = type(entry)(entry.key, entry.value[:-1] + b"x")
    assert await kept.fetch(KEY, place) is None, "it does not have the digest of the whole"


async def test_a_value_that_is_put_at_an_unknown_offset_is_put_once_more(log: LocalLog) -> None:
    append, lost = log.append, [True, False]

    async def appended(partition: int, entries: Sequence[Any]) -> int | None:
        found = await append(partition, entries)
        return None if lost and lost.pop(0) else found

    log.append = appended  # type: ignore[method-assign]
    kept = KafkaKept(log)
    place = await _put(kept, KEY, b"some rows")
    assert place.offsets == (1,)
    assert await kept.fetch(KEY, place) == b"some rows"


async def test_a_keeper_says_what_the_store_is_to_have(log: LocalLog) -> None:
    for blocks in ("store", "topic"):
        keeper = Keeper(KafkaKept(log), 1, blocks=blocks)
        name, held = await keeper.keep_block("flights", 1, b"block", b"reserved")
        assert (held == b"block") is (blocks == "store")
        assert await keeper.block("flights", 1, name, held) == b"block"
        again = await keeper.keep_again("flights", 1, name, b"block")
        assert await keeper.block("flights", 1, name, again) == b"block"
        assert await keeper.keep_again("flights", 1, None, b"block") == b"block"
        finder = keeper.finder(["flights"])
        assert await finder.find("flights", 1, name, 1) == b"reserved"
        assert await finder.find_block("flights", 1, name) == again


async def test_a_reading_holds_no_rows_of_what_nobody_has_asked_for(log: LocalLog) -> None:
    """Of a store that is behind by a phase it passes nearly all of a table."""
    kept = KafkaKept(log)
    keeper = Keeper(kept, 1)
    names = [await keeper.keep("flights", phase, b"rows of %d" % phase) for phase in range(1, 6)]
    finder = keeper.finder(["flights"])
    assert await finder.find("flights", 5, names[4]) == b"rows of 5"
    assert finder._places is not None
    assert [type(one) for one in finder._places.values()] == [Place] * 5
    found = [await finder.find("flights", phase, names[phase - 1]) for phase in (4, 1, 2)]
    assert found == [b"rows of 4", b"rows of 1", b"rows of 2"]


async def test_a_value_of_which_a_part_is_missing_leaves_with_its_data_set(log: LocalLog) -> None:
    """A worker died while it kept the value, so nobody can read it, and some of its rows are there."""
    kept = KafkaKept(log)
    keeper = Keeper(kept, 1)
    await keeper.keep("flights", 1, b"rows of the first phase")
    first, _, last = kept_values.cut(bytes(range(25)))
    for key, part in ((b"flights/2/name/0", first), (b"flights/2/other/0", last)):
        await log.append(0, [Entry(b"%s/%d" % (key, part.number), part.to_bytes())])
    await keeper.keep("trains", 1, b"rows of others")
    assert len(await kept.places(["flights"], 0)) == 1
    found, _ = await kept.keys(b"flights/", 0)
    assert len(found) == 3
    await keeper.drop_all("flights")
    assert (await kept.keys(b"flights/", 0))[0] == {}
    left = {one.key: one.value for one in log.entries[0]}
    assert {key[:7] for key, value in left.items() if value} == {b"trains/"}


# Many values, and many data sets ---------------------------------------------------------------


class CountedLog(LocalLog):
    """A log that counts how often all of it is read, and what is appended at once."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.readings = 0
        self.appended: list[int] = []

    async def append(self, partition: int, entries: Sequence[Entry]) -> int | None:
        self.appended.append(len(entries))
        return await super().append(partition, entries)

    def read(self, partition: int, start: int, end: int) -> Any:
        self.readings += end - start > 1
        return super().read(partition, start, end)


async def test_data_sets_that_are_healed_together_read_their_partition_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_logs, "_PIECE", 2)
    names, log, heartbeat = ["flights", "trains", "ships"], CountedLog(1), Heartbeat()
    before = Keeper(KafkaKept(log), 1)
    kept = {name: await before.keep(name, 1, name.encode(), b"more") for name in names}
    others = await before.keep("others", 1, b"rows of others")
    keeper = Keeper(KafkaKept(log), 1, heartbeat=heartbeat)
    finder = keeper.finder(names)
    assert log.readings == 0, "nobody has asked yet"
    assert await finder.find("ships", 1, kept["ships"]) == b"ships"
    assert heartbeat.count == 4 + 1, "with each piece, and with the value"
    for name, kept_as in kept.items():
        assert await finder.find(name, 1, kept_as) == name.encode()
        assert await finder.find(name, 1, kept_as, 1) == b"more"
        assert await finder.find(name, 2, kept_as) is None
    assert log.readings == 1
    assert heartbeat.count == 4 + 1 + 6
    assert await finder.find("others", 1, others) is None, "it holds no more than it is asked for"


async def test_a_worker_that_heals_several_data_sets_reads_what_is_kept_once(
    topical: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, read = FakeKept.places, list[tuple[int, set[str]]]()

    async def counted(
        self: FakeKept, datasets: Iterable[str], partition: int, **named: Any
    ) -> dict[bytes, Place]:
        read.append((partition, set(datasets)))
        return await places(self, [*datasets], partition, **named)

    monkeypatch.setattr(FakeKept, "places", counted)
    names = [f"flights-{number}" for number in range(8)]
    for name in names:
        topical.define(name)
        topical.cells(name, "one")
        topical.cells(name, "two", n=2)
    await topical.run(rounds=(lambda _: None,))
    assert read == []
    topical.store = LocalStore()
    await topical.run(rounds=(lambda _: None,))
    assert len({partition for partition, _ in read}) == len(read) < len(names)
    assert set().union(*(some for _, some in read)) == set(names)
    assert topical.complaints() == []


async def test_many_values_are_kept_and_erased_some_at_a_time() -> None:
    """A worker that keeps them one by one is taken for one that is stuck."""
    log, heartbeat = CountedLog(1), Heartbeat()
    keeper = Keeper(KafkaKept(log), 1, heartbeat=heartbeat)
    rows = [b"rows of batch %d" % number for number in range(300)]
    name = await keeper.keep("flights", WAITING, *rows)
    assert (log.appended, heartbeat.count) == ([128, 128, 44], 3)
    finder = keeper.finder(["flights"])
    assert [await finder.find("flights", WAITING, name, at) for at in range(300)] == rows
    log.appended.clear()
    before = heartbeat.count
    await keeper.drop("flights", WAITING, name, 300)
    assert (log.appended, heartbeat.count - before) == ([128, 128, 44], 3)
    assert await _left(KafkaKept(log)) == []


async def test_a_worker_that_has_not_kept_a_value_erases_as_many_parts_as_there_can_be(
    log: LocalLog,
) -> None:
    first = Keeper(KafkaKept(log), 1)
    name = await first.keep("flights", WAITING, bytes(25), b"short")
    there = len(log.entries[0])
    await Keeper(KafkaKept(log), 1).drop("flights", WAITING, name, 2)
    assert len(log.entries[0]) - there == 2 * kept_values.MOST_PARTS
    assert await _left(KafkaKept(log)) == []
    name = await first.keep("flights", WAITING, bytes(25), b"short")
    there = len(log.entries[0])
    await first.drop("flights", WAITING, name, 2)
    assert len(log.entries[0]) - there == 2 * 3
    assert await _left(KafkaKept(log)) == []


async def test_large_values_travel_with_few_others(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_TOGETHER_BYTES", 100)
    counted, beats = CountedLog(1), list[int]()
    values = [(b"flights/1/name/%d" % size, bytes(size)) for size in (0, 35, 5, 1, 25)]
    kept = KafkaKept(counted)
    places = await kept.put(values, beat=lambda: beats.append(1))
    assert counted.appended == [3, 3, 3, 1], "each part has 25 bytes more than its content"
    assert len(beats) == 4
    assert [place.offsets for place in places] == [(0,), (1, 2, 3, 4), (5,), (6,), (7, 8, 9)]
    for (key, value), place in zip(values, places, strict=True):
        assert await kept.fetch(key, place) == value
    assert await kept.places(["flights"], 0) == dict(
        zip((key for key, _ in values), places, strict=True)
    )


# Where values are --------------------------------------------------------------------------------


def _entries(key: bytes, value: bytes) -> list[Entry]:
    parts = kept_values.cut(value)
    return [Entry(b"%s/%d" % (key, part.number), part.to_bytes()) for part in parts]


async def test_only_whole_values_have_places(log: LocalLog) -> None:
    kept, value = KafkaKept(log), bytes(range(25))
    begun = {
        b"flights/1/a/0": _entries(KEY, value)[:2],
        b"flights/1/b/0": _entries(KEY, value)[1:],
    }
    for key, entries in begun.items():
        number = entries[0].key.rpartition(b"/")[2]
        await log.append(0, [Entry(b"%s/%s" % (key, number), entries[0].value)])
    erased = await _put(kept, b"flights/1/c/0", value)
    assert await kept.places(["flights"], 0) == {b"flights/1/c/0": erased}
    await kept.drop({b"flights/1/c/0": 3})
    assert await kept.places(["flights"], 0) == {}
    whole = await _put(kept, KEY, value)
    other = await _put(kept, b"trains/1/name/0", value)
    assert await kept.places(["flights"], 0) == {KEY: whole}
    assert await kept.places(["trains", "flights"], 0) == {KEY: whole, b"trains/1/name/0": other}
    assert await kept.places([], 0) == {}


async def test_a_value_takes_the_place_of_an_older_one_with_more_parts(log: LocalLog) -> None:
    kept, keeper = KafkaKept(log), Keeper(KafkaKept(log), 1)
    await _put(kept, KEY, bytes(25))
    newer = await _put(kept, KEY, b"short")
    assert await kept.places(["flights"], 0) == {KEY: newer}
    assert await kept.fetch(KEY, newer) == b"short"
    assert await kept.keys(b"flights/", 0) == ({KEY: Traces(1, 3)}, 5), "rows of the older one"
    await keeper.drop_all("flights")
    erased = {entry.key for entry in log.entries[0] if entry.key != b"/" and not entry.value}
    assert erased == {b"%s/%d" % (KEY, number) for number in range(3)}
    assert await _left(kept) == []


async def test_what_was_put_again_after_the_last_erasure_goes_with_all_its_parts(
    log: LocalLog,
) -> None:
    """Only what is new on the topic is read, and older records may have had more parts."""
    kept, keeper = KafkaKept(log), Keeper(KafkaKept(log), 1)
    await _put(kept, KEY, bytes(25))
    looked = await keeper.drop_unnamed("flights", {"1/name"}, 0, Looked())
    await log.append(0, _entries(KEY, b"short"))
    await keeper.drop_unnamed("flights", {"1/name"}, 1, looked)
    assert await _left(kept) == []


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_value_that_does_not_decode_is_not_taken_for_one_that_is_gone(
    log: LocalLog, number: int
) -> None:
    kept, keeper = KafkaKept(log), Keeper(KafkaKept(log), 1)
    name = await keeper.keep("flights", 1, bytes(25))
    whole = await keeper.keep("flights", 2, bytes(25))
    log.entries[0][number] = replace(log.entries[0][number], value=b"\xff")
    finder = keeper.finder(["flights"])
    with pytest.raises(CorruptState):
        await finder.find("flights", 1, name)
    assert await finder.find("flights", 2, whole) == bytes(25)
    found, _ = await kept.keys(f"flights/1/{name}".encode(), 0)
    assert [one.parts for one in found.values()] == [kept_values.MOST_PARTS]


async def test_an_interrupted_rewrite_gives_the_same_value_or_none(log: LocalLog) -> None:
    kept, value = KafkaKept(log), bytes(range(25))
    await _put(kept, KEY, value)
    await log.append(0, _entries(KEY, value)[:1])
    assert await kept.places(["flights"], 0) == {KEY: Place(25, (3, 1, 2))}
    assert await kept.fetch(KEY, Place(25, (3, 1, 2))) == value
    await log.append(0, _entries(KEY, value[::-1])[:1])
    assert await kept.places(["flights"], 0) == {}


async def test_a_value_that_is_put_elsewhere_meanwhile_is_found(log: LocalLog) -> None:
    kept, keeper = KafkaKept(log), Keeper(KafkaKept(log), 1)
    name, late = await keeper.keep("flights", 1, b"rows"), await keeper.keep("flights", 2, b"late")
    finder = keeper.finder(["flights"])
    assert await finder.find("flights", 2, late) == b"late"
    await _put(kept, f"flights/1/{name}/0".encode(), b"rows")
    log.entries[0][:2] = [Entry(b"", b""), Entry(b"", b"")]  # the topic was compacted
    assert await finder.find("flights", 1, name) == b"rows"
    assert await finder.find("flights", 2, late) is None


async def test_a_block_that_is_sealed_again_is_found_from_then_on(log: LocalLog) -> None:
    keeper = Keeper(KafkaKept(log), 1, blocks="topic")
    name = await keeper.keep("flights", 2, b"another block")
    finder = keeper.finder(["flights"])
    assert await finder.find_block("flights", 1, name) is None
    stored = await finder.keep_again("flights", 1, name, b"block")
    assert await finder.find_block("flights", 1, name) == stored
    assert await keeper.block("flights", 1, name, stored) == b"block"


async def test_in_a_simulation_what_is_found_in_order_is_no_effect(world: World) -> None:
    process = world.process()
    keeper = Keeper(process.kept, 1)
    names = [await keeper.keep("flights", phase, b"rows") for phase in (1, 2, 3)]
    finder, found = keeper.finder(["flights"]), []
    for phase in (2, 1, 3, 1):
        before = process.effects
        assert await finder.find("flights", phase, names[phase - 1]) == b"rows"
        found.append(process.effects - before)
    assert found == [0, 1, 0, 1]


# What no commit names ----------------------------------------------------------------------------


async def _left(kept: KafkaKept) -> list[str]:
    found, _ = await kept.keys(b"flights/", 0)
    return [key.decode().removeprefix("flights/") for key in found]


async def test_what_no_commit_names_goes_when_it_was_there_at_two_erasures(log: LocalLog) -> None:
    """At the first one it may belong to a worker that has taken over, and is about to commit."""
    kept = KafkaKept(log)
    keeper = Keeper(kept, 1)
    named = {f"5/{await keeper.keep('flights', 5, b'rows')}"}
    await keeper.keep("flights", 5, b"rows of a worker that died", b"and what persons have used")
    waits = await keeper.keep("flights", "waiting", b"rows that wait", b"and more")
    others = await keeper.keep("trains", 5, b"rows of others")
    looked = await keeper.drop_unnamed("flights", named, 3, Looked())
    before = await _left(kept)
    assert len(before) == 5
    late = await keeper.keep("flights", 6, b"rows of the worker that has taken over")
    await keeper.drop_unnamed("flights", named | {f"waiting/{waits}"}, 3, looked)
    assert await _left(kept) == [before[0], *before[3:], f"6/{late}/0"]
    looked = await keeper.drop_unnamed("flights", named, 4, looked)
    assert await _left(kept) == [before[0], f"6/{late}/0"]
    looked = await keeper.drop_unnamed("flights", named | {f"6/{late}"}, 5, looked)
    assert await _left(kept) == [before[0], f"6/{late}/0"], "what is named is dropped by its name"
    assert (await kept.keys(b"trains/", 0))[0].keys() == {f"trains/5/{others}/0".encode()}


async def test_of_phases_whose_rows_are_erased_goes_all_but_what_persons_have_used(
    log: LocalLog,
) -> None:
    kept = KafkaKept(log)
    keeper = Keeper(kept, 1)
    name = await keeper.keep("flights", 1, b"rows", b"what persons have used")
    await keeper.keep("flights", 1, b"rows of a worker that died", b"what they would have used")
    (part,) = kept_values.cut(b"no more")
    await log.append(
        0, [Entry(b"flights/1/another/0/1", replace(part, number=1, parts=2).to_bytes())]
    )
    later = await keeper.keep("flights", 2, b"rows of a phase that stays")
    named = {f"1/{name}", f"2/{later}"}
    looked = await keeper.drop_unnamed("flights", named, 1, Looked())
    assert await _left(kept) == [f"1/{name}/1", f"2/{later}/0"]
    await keeper.keep("flights", 1, b"rows of a worker that was followed")
    await keeper.keep_again("flights", 1, name, b"rows")
    await _put(kept, f"flights/1/{name}/0".encode(), b"rows")
    await keeper.drop_unnamed("flights", named, 1, looked)
    assert await _left(kept) == [f"1/{name}/1", f"2/{later}/0"]


async def test_only_what_was_put_since_the_last_erasure_is_read_again(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, starts, read = KafkaKept(log), [], LocalLog.read

    def counted(self: LocalLog, partition: int, start: int, end: int) -> Any:
        starts.append((start, end))
        return read(self, partition, start, end)

    monkeypatch.setattr(LocalLog, "read", counted)
    keeper, looked, named = Keeper(kept, 1), Looked(), set[str]()
    for phase in range(1, 6):
        named.add(f"{phase}/{await keeper.keep('flights', phase, bytes(25))}")
        looked = await keeper.drop_unnamed("flights", named, 0, looked)
    assert starts == [(0, 3), (3, 7), (7, 11), (11, 15), (15, 19)], "with a mark at each end"
    stray = await keeper.keep("flights", 6, b"who died")
    looked = await keeper.drop_unnamed("flights", named, 0, looked)
    assert looked == Looked(20, 21), "it is looked at again"
    assert Looked.of({LOOKED: looked.to_text()}) == looked
    looked = await keeper.drop_unnamed("flights", named, 0, looked)
    assert f"6/{stray}/0" not in await _left(kept)
    assert looked.start == looked.end == 22
    assert Looked.of({}) == Looked.of({LOOKED: ""}) == Looked()


async def test_a_worker_that_looks_through_much_is_not_stuck(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_logs, "_PIECE", 2)
    heartbeat = Heartbeat()
    keeper = Keeper(KafkaKept(log), 1, heartbeat=heartbeat)
    for phase in range(1, 5):
        await keeper.keep("flights", phase, bytes(25))
    assert heartbeat.count == 4
    looked = await keeper.drop_unnamed("flights", set(), 0, Looked())
    assert heartbeat.count == 4 + 6
    await keeper.drop_unnamed("flights", set(), 0, looked)
    assert heartbeat.count == 4 + 6 + 7 + 1, "of all that was there, and nobody names"
    await keeper.keep("flights", 5, bytes(25))
    before = heartbeat.count
    await keeper.drop_all("flights")
    assert heartbeat.count == before + 15 + 1


async def test_a_topic_that_ends_earlier_than_it_did_is_looked_through_anew(log: LocalLog) -> None:
    kept = KafkaKept(log)
    keeper = Keeper(kept, 1)
    name = await keeper.keep("flights", 2, b"rows")
    await keeper.keep("flights", 1, b"rows that are erased")
    looked = await keeper.drop_unnamed("flights", set(), 1, Looked(900, 1_000))
    assert await _left(kept) == [f"2/{name}/0"], "who knows who has written it"
    assert looked.start == 0


def test_parts_make_a_value_only_all_together(log: LocalLog) -> None:
    parts = kept_values.cut(bytes(range(25)))
    assert kept_values.joined(parts) == bytes(range(25))
    others: Iterable[list[Part]] = ([], parts[:2], parts[::-1], [*parts[:2], parts[1]])
    assert [kept_values.joined(one) for one in others] == [None] * 4


# Crashes ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_crash_around_a_seal_loses_no_block(die: Die) -> None:
    rounds = (define, phase, phase, ask("one"), phase, ask("two", LATE))
    async for at, world in die(rounds, range(1_000), deaths=2, blocks="topic"):
        assert world.complaints() == [], at
        assert on_topic(world) == [True] * 3


@pytest.mark.parametrize("rounds", [ERASED, LIVES])
async def test_nor_does_a_crash_at_a_named_point(die: Die, rounds: Any) -> None:
    async for at, world in die(rounds, {0, 9}, points=[*CrashPoint], blocks="topic"):
        assert world.complaints() == [], at
