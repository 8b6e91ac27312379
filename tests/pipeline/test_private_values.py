"""Private values: blocks, secrets and rows that wait are found by their names, or are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time
from typing import Any, cast

import numpy as np
import pytest

from stream_dp.core.rows.slabs import Slab
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.kafka import topic_log
from stream_dp.pipeline.kafka.topic_log import KeyedTopic, LogEntry
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS
from stream_dp.pipeline.repair.unlock import lift
from stream_dp.pipeline.rows.private_values import LOOKED, Keeper, Looked
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches
from stream_dp.state.private_names import Named, name_of, new_salt, part_name, salted, unsalted
from tests import local_logs
from tests.local_logs import LocalLog
from tests.pipeline import scenarios
from tests.pipeline.commands import offline
from tests.pipeline.fakes import FakeKept
from tests.pipeline.held import Waiting
from tests.pipeline.scenarios import DAY_MS, RUNS, asks, flights, phase
from tests.pipeline.world import World
from tests.slow import rest_is_slow
from tests.view import MemoryView
from tests.waiting import PATIENCE_S


def moved(world: World) -> None:
    """The topic was restored from a copy: all of it is at other offsets."""
    world.kept_log += [*world.kept.items()]


def emptied(world: World) -> None:
    """Redis is."""
    world.view = MemoryView()


def wrong(world: World) -> None:
    """Redis has a wrong byte in each value."""
    for values in world.view.values.values():
        for name, value in values.items():
            values[name] = value[:-1] + bytes([value[-1] ^ 1])


def swapped(world: World) -> None:
    """Redis has each value under the name of another one."""
    for values in world.view.values.values():
        names = list(values)
        turned = dict(zip(names, [values[name] for name in (*names[1:], *names[:1])], strict=True))
        values.update(turned)


def away(world: World) -> None:
    """Redis is."""
    world.view_away = True


# What is where ----------------------------------------------------------------------------------


SCENARIOS = ["LIVES", "RUNS", "KEPT", "GATED", "ROUNDS", "ERASED", "STANDING", "PERSONS", "STAGED"]


@pytest.mark.parametrize("rounds", rest_is_slow(SCENARIOS, first=4))
async def test_answers_do_not_depend_on_what_redis_has(
    make_world: Callable[..., World], rounds: str
) -> None:
    """A new worker comes with each round, and what Redis has is faulty before."""
    answers: list[Any] = []
    for faults in ([], [emptied], [wrong], [swapped], [emptied, moved], [away]):
        world = make_world()
        for produce in getattr(scenarios, rounds):
            for fault in faults:
                fault(world)
            await world.run(rounds=(produce,))
        # What is right in Redis beside what is wrong may stay there: nobody asks for it.
        world.spoiled = {*world.durable()} if wrong in faults or swapped in faults else set()
        assert world.complaints() == []
        answers.append(world.answers())
    assert all(found == answers[0] for found in answers)
    assert answers[0]


# Secrets of runs ---------------------------------------------------------------------------------


async def test_a_run_whose_secret_is_nowhere_ends(world: World) -> None:
    await world.run(rounds=RUNS[:3])
    emptied(world)
    secrets = world.held("flights").named("run ")
    lost = min(secrets)
    del world.kept[f"flights/{secrets[lost].name.hex()}".encode()]
    await world.run()
    held = world.held("flights")
    (ended,) = [one for one in held.transcript if one[:1] == b"\x03"]
    assert lost in ended.decode()
    assert held.named("run ").keys() == secrets.keys() - {lost}
    await world.run(rounds=RUNS[3:])
    assert world.complaints() == []


# Rows that wait ----------------------------------------------------------------------------------


def few(world: World) -> None:
    """A batch that opens no phase."""
    world.batch(
        "flights", f"few-{world.next_offset('batches', 'flights')}", rows=[{"carrier": "AA"}]
    )


async def waits_since(world: World, *days: float) -> None:
    """Batches of these days, counted back from now, which wait."""
    await world.run(rounds=(flights,))
    await waits_since_then(world, *days)


async def waits_since_then(world: World, *days: float) -> None:
    """More of them."""
    for ago in days:
        world.now_ms = -1 if ago < 0 else round(1_000 * time() - ago * DAY_MS)
        await world.run(rounds=(few,))


async def tidied(world: World, days: float = 30.0) -> list[type]:
    """Has a worker do what it does each minute, where batches last so many days; what waits then, and how."""
    process = await world.owner(batches_last_s=days * 86_400)
    await process.run()
    await process.worker.tidy()
    await process.drained()
    await process.settled()
    await process.kill()
    return [type(one) for one in world.held("flights").waits]


async def test_a_data_set_that_is_put_away_keeps_its_rows_apart(world: World) -> None:
    """Nobody looks from then on at how old their batches are."""
    await waits_since(world, 1.0)
    process = await world.owner()
    await process.run()
    process.datasets["flights"].used_at -= 2 * 86_400.0
    await process.worker.tidy()
    await process.drained()
    await process.settled()
    assert "flights" in process.worker.parked
    await process.kill()
    assert [*map(type, world.held("flights").waits)] == [Named]


@pytest.mark.parametrize("first", [8.0, -1])
async def test_rows_are_kept_when_one_has_waited_for_a_quarter_of_the_time_that_batches_last(
    world: World, first: float
) -> None:
    """Also where nobody knows since when it waits."""
    await waits_since(world, first, 1.0, 2.0)
    assert await tidied(world) == [Named]
    n_kept = len(world.kept)
    assert await tidied(world, 1.0) == [Named]
    assert len(world.kept) == n_kept, "what was kept is not kept again"
    await world.run(rounds=(few,))
    assert await tidied(world) == [Named, Waiting]
    assert world.complaints() == []


async def test_rows_that_have_waited_for_less_are_read_again_where_they_came_from(
    world: World,
) -> None:
    await waits_since(world, 7.0, 1.0)
    for days in (30.0, 29.0):
        assert await tidied(world, days) == [Waiting, Waiting]
    assert len(world.kept) == 0
    assert await tidied(world, 27.0) == [Named]
    assert world.complaints() == []


@pytest.mark.parametrize("faults", [[], [emptied], [wrong], [emptied, moved], [away]])
async def test_the_next_owner_finds_rows_that_were_kept_and_those_that_were_not(
    world: World, faults: Any
) -> None:
    await waits_since(world, 8.0, 1.0)
    assert await tidied(world) == [Named]
    await waits_since_then(world, 1.0, 2.0)
    assert await tidied(world) == [Named, Waiting, Waiting]
    names = [one.batch_id for one in world.held("flights").waits if isinstance(one, Waiting)]
    world.expire(lambda one: any(name.encode() in (one.value or b"") for name in names))
    for fault in faults:
        fault(world)
    process = await world.owner()
    await process.run()
    waiting = process.datasets["flights"].rows.waiting
    assert (waiting.lots.n_rows, len(waiting._pending), waiting.n_rows) == (2, 2, 4)
    phase(world)
    await process.run()
    await process.settled()
    await process.kill()
    assert world.events("rows_lost") == []
    assert world.held("flights").waits == []
    left = {key.split(" ")[0] for key in world.held("flights").named()}
    assert left == {"block"}, "of the rows that waited nothing is kept beside the block"
    world.spoiled = {"flights"}
    assert world.complaints() == []


async def test_rows_of_a_data_set_that_was_quarantined_at_its_take_over_outlast_their_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waits_since(world, 8.0, 1.0)
    with monkeypatch.context() as patch:

        def deadly(self: Dataset) -> None:
            raise world.Crash

        patch.setattr(Dataset, "_replay", deadly)
        await world.run(*[world.Fuse() for _ in range(10)])
        assert world.events("quarantined")
        assert await tidied(world, 40.0) == [Waiting, Waiting]
        assert await tidied(world) == [Named], "each owner reads them"
    world.expire()
    await lift(offline(world), "flights")
    assert await tidied(world) == [Named]
    assert world.processes[-1].datasets["flights"].rows.waiting.n_rows == 2
    assert world.events("rows_lost") == []


async def test_a_data_set_whose_rows_are_deadly_to_read_is_read_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ended of that again and again would serve no other data set."""
    await waits_since(world, 8.0)
    with monkeypatch.context() as patch:

        async def deadly(self: WaitingBatches, **_: object) -> None:
            raise world.Crash

        patch.setattr(WaitingBatches, "read", deadly)
        deaths = await world.run(*[world.Fuse() for _ in range(10)])
        assert deaths == MOST_ATTEMPTS + 1
        assert world.events("quarantined")
        assert await tidied(world) == [Waiting]
    await lift(offline(world), "flights")
    assert await tidied(world) == [Named]
    assert world.processes[-1].datasets["flights"].rows.waiting.n_rows == 1


# A broker that is away ---------------------------------------------------------------------------


async def test_a_worker_that_ends_waits_for_no_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.run(rounds=(flights, phase))
    emptied(world)
    asked = asyncio.Event()

    async def fetched(self: FakeKept, key: bytes, number: int, offset: int) -> bytes | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(FakeKept, "fetch", fetched)
    process = await world.owner()
    asks("one")(world)
    running = asyncio.create_task(process.run())
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE_S)


# What is kept as records ------------------------------------------------------------------------


@pytest.fixture
def log() -> LocalLog:
    return LocalLog(1)


KEY = b"flights/name"


def keeper_of(log: LocalLog, context: Context | None = None) -> Keeper:
    """A keeper, without Redis."""
    return Keeper(KeyedTopic(log), context or Context())


def secret(value: bytes = b"rows") -> list[bytes]:
    """A value of one part."""
    return [salted(value)]


def slab(number: int = 0) -> list[bytes]:
    """A value of three parts: an index, and two columns of nine slots."""
    columns = {name: np.arange(9, dtype=np.uint8) + number + int(name) for name in ("0", "1")}
    return Slab(9, 9, columns).stored(new_salt())


async def kept_by(keeper: Keeper, *values: list[bytes], dataset: str = "flights") -> list[Named]:
    return await keeper.keep(dataset, values)


async def _put(kept: KeyedTopic, key: bytes, parts: Sequence[bytes]) -> tuple[int, ...]:
    (offsets,) = await kept.put([(key, parts)])
    return offsets


async def _fetched(kept: KeyedTopic, key: bytes, offsets: Sequence[int]) -> list[bytes | None]:
    return [await kept.fetch(key, *place) for place in enumerate(offsets)]


async def _there(kept: KeyedTopic, dataset: str = "flights") -> dict[bytes, dict[int, int]]:
    """The offsets of the parts that are there, by key and number."""
    found, _ = await kept.parts(dataset)
    return found


def _entries(key: bytes, parts: Sequence[bytes]) -> list[LogEntry]:
    return [LogEntry(b"%s/%d" % (key, number), part) for number, part in enumerate(parts)]


def _key(named: Named) -> bytes:
    return f"flights/{named.name.hex()}".encode()


async def test_what_is_not_exactly_there_is_not_taken(log: LocalLog) -> None:
    keeper, kept, parts = keeper_of(log), KeyedTopic(log), slab()
    (named,) = await kept_by(keeper, parts)
    key = _key(named)
    forged = [bytes(byte ^ 1 for byte in part) for part in parts]
    assert named.offsets == (0, 1, 2)
    other = await _put(kept, b"flights/second", parts)
    fork = await _put(kept, key, forged)
    assert await _fetched(kept, key, other) == [None] * 3, "the key is another one"
    assert await _fetched(kept, key, (0, 2, 1)) == [parts[0], None, None], "the number is"
    assert await _fetched(kept, key, (0, 1, 99)) == [*parts[:2], None]
    for mixed in ((0, 1), (0, 1, fork[2]), (fork[0], 1, 2), fork):
        assert None not in await _fetched(kept, key, mixed)
    for wrong in (other, (0, 2, 1), (0, 1, 99), (0, 1), (0, 1, fork[2]), (fork[0], 1, 2), fork):
        assert await keeper_of(log).whole("flights", replace(named, offsets=wrong)) is None
    assert await keeper_of(log).whole("flights", named) == parts
    await kept.drop({key: 3})
    assert await _fetched(kept, key, fork) == forged, "the broker has not compacted the topic yet"


@pytest.mark.parametrize("fault", ["a byte", "shorter", "longer", "erased", "of a fork"])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_value_of_which_a_part_is_damaged_is_not_taken(
    log: LocalLog, number: int, fault: str
) -> None:
    keeper, others = keeper_of(log), slab(1)
    wrong, whole = await kept_by(keeper, slab(), others)
    entry = log.entries[0][number]
    damaged = {
        "a byte": entry.value[:-1] + bytes([entry.value[-1] ^ 1]),
        "shorter": entry.value[:-1],
        "longer": entry.value + b"\x00",
        "erased": b"",
        "of a fork": bytes(byte ^ 1 for byte in entry.value),
    }
    log.entries[0][number] = replace(entry, value=damaged[fault])
    assert await keeper.whole("flights", wrong) is None
    assert (await keeper.find("flights", wrong) is None) == (number == 0)
    assert await keeper.whole("flights", whole) == others
    await keeper.drop_unnamed("flights", {whole.name}, Looked(), at_once=True)
    assert await _left(KeyedTopic(log)) == _hex(whole)


async def test_a_value_that_is_put_at_an_unknown_offset_is_put_once_more(log: LocalLog) -> None:
    append, lost = log.append, [True, False]

    async def appended(partition: int, entries: Sequence[Any]) -> int | None:
        found = await append(partition, entries)
        return None if lost and lost.pop(0) else found

    log.append = appended  # type: ignore[method-assign]
    kept = KeyedTopic(log)
    offsets = await _put(kept, KEY, [b"some", b"rows"])
    assert offsets == (2, 3)
    assert await _fetched(kept, KEY, offsets) == [b"some", b"rows"]


def _rows_of(log: LocalLog) -> set[bytes]:
    """The data sets of which a compacted topic still has content, whoever asks for it."""
    left = {one.key: one.value for one in log.entries[0]}
    return {key.partition(b"/")[0] for key, value in left.items() if value}


@pytest.mark.parametrize("erased", [(), (0,), (0, 1), (1,), (2,)])
async def test_a_value_whose_erasure_was_interrupted_leaves_whole(
    log: LocalLog, erased: tuple[int, ...]
) -> None:
    """Records of one erasure may be in several batches, and a worker dies between two."""
    kept, keeper = KeyedTopic(log), keeper_of(log)
    (named,) = await kept_by(keeper, slab())
    looked = await keeper.drop_unnamed("flights", (), Looked())
    await log.append(0, [LogEntry(b"%s/%d" % (_key(named), number), b"") for number in erased])
    assert len((await _there(kept))[_key(named)]) == 3 - len(erased)
    await keeper.drop_unnamed("flights", (), looked)
    assert await _there(kept) == {}
    assert _rows_of(log) == set()


@pytest.mark.parametrize("make", [secret, slab])
async def test_a_value_is_found_by_its_name_and_names_tell_nothing(
    log: LocalLog, make: Callable[[], list[bytes]]
) -> None:
    keeper, values = keeper_of(log), [make(), make()]
    one, two = await kept_by(keeper, *values)
    assert one.name != two.name, "the same rows have another name each time"
    assert [name_of(parts[0]) for parts in values] == [one.name, two.name]
    for named, parts in zip((one, two), values, strict=True):
        for asked in (keeper, keeper_of(log)):
            assert await asked.find("flights", named) == parts[0]
            assert await asked.whole("flights", named) == parts
            assert await asked.find("trains", named) is None
            assert await asked.whole("trains", named) is None
    assert unsalted(secret(b"rows")[0]) == b"rows" not in one.to_bytes()
    assert Named.from_bytes(one.to_bytes()) == one


async def test_a_value_whose_place_has_moved_is_found_and_all_is_read_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A topic that was restored from a copy has the same keys at other offsets."""
    log, restored = CountedLog(1), CountedLog(1)
    values = [slab(number) for number in range(5)]
    kept = await kept_by(keeper_of(log), *values)
    await restored.append(
        0, [LogEntry(b"another/name/0", b""), *log.entries[0][2:], *log.entries[0][:2]]
    )
    keeper = keeper_of(restored)
    for number in (3, 0, 4, 1, 2):
        assert await keeper.whole("flights", kept[number]) == values[number]
    assert restored.readings == 1
    assert caplog.text.count("is not where it was on the topic of blocks") == 1


async def test_for_many_that_are_nowhere_all_is_read_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = CountedLog(1)
    keeper = keeper_of(log)
    kept = await kept_by(keeper, *(slab(number) for number in range(5)))
    stays = log.entries[0][7]
    log.entries[0][:] = [LogEntry(b"", b"")] * 7 + [stays] + [LogEntry(b"", b"")] * 7
    places = [(named, number) for named in kept for number in range(3)]
    assert await keeper.parts("flights", places) == [None] * 7 + [stays.value] + [None] * 7
    assert log.readings == 1
    assert caplog.text.count("is not where it was on the topic of blocks") == 1


class Redis:
    """What Redis has of values, in place of ``RedisFollower``."""

    def __init__(self, parts: dict[bytes, bytes]) -> None:
        self.parts = parts
        self.asked: list[Sequence[bytes]] = []

    async def kept(self, dataset: str, names: Sequence[bytes]) -> list[bytes | None]:
        self.asked.append(names)
        return [self.parts.get(name) for name in names]

    def keep(self, dataset: str, name: bytes, value: bytes) -> None:
        self.parts[name] = value


@pytest.mark.parametrize("fault", ["missing", "wrong", "short", "empty", "of another"])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_what_redis_lacks_or_has_wrong_is_read_from_the_topic_and_given_to_it(
    log: LocalLog, number: int, fault: str
) -> None:
    parts, other = slab(), slab(1)
    (named,) = await kept_by(keeper_of(log), parts)
    right = {part_name(named.name, at): part for at, part in enumerate(parts)}
    part, name = parts[number], part_name(named.name, number)
    wrong = {
        "wrong": part[:-1] + b"S",
        "short": part[:-1],
        "empty": b"",
        "of another": other[number],
    }
    redis = Redis(right | {name: wrong.get(fault, b"")})
    if fault == "missing":
        del redis.parts[name]
    keeper = Keeper(KeyedTopic(log), Context(), cast("Any", redis))
    assert await keeper.whole("flights", named) == parts
    assert redis.parts == right
    log.entries[0].clear()
    assert await keeper.whole("flights", named) == parts, "from Redis alone"


async def test_parts_are_asked_of_redis_in_one_round_trip(log: LocalLog) -> None:
    values = [slab(number) for number in range(3)]
    kept = await kept_by(keeper_of(log), *values)
    redis = Redis({})
    keeper = Keeper(KeyedTopic(log), Context(), cast("Any", redis))
    places = [(named, number) for number in (2, 0) for named in kept]
    wanted = [parts[number] for number in (2, 0) for parts in values]
    for n_asked in (1, 2):
        assert await keeper.parts("flights", places) == wanted
        assert redis.asked == [[part_name(named.name, at) for named, at in places]] * n_asked
    assert await keeper.parts("flights", places, on_topic=True) == wanted
    assert len(redis.asked) == 2


# Many values -----------------------------------------------------------------------------------


class CountedLog(LocalLog):
    """A log that counts how often all of it is read, and what is appended at once."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.readings = 0
        self.appended: list[int] = []

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        self.appended.append(len(entries))
        return await super().append(partition, entries)

    def read(self, partition: int, start: int, end: int) -> Any:
        self.readings += end - start > 1
        return super().read(partition, start, end)


async def test_many_values_are_kept_and_erased_some_at_a_time() -> None:
    """A worker that keeps them one by one is taken for one that is stuck."""
    log, context = CountedLog(1), Context()
    keeper, heartbeat = keeper_of(log, context), context.heartbeat
    rows = [secret(b"rows of batch %d" % number) for number in range(300)]
    named = await kept_by(keeper, *rows)
    assert (log.appended, heartbeat.count) == ([128, 128, 44], 3)
    assert [[await keeper.find("flights", one)] for one in named] == rows
    log.appended.clear()
    before = heartbeat.count
    await keeper.drop("flights", named)
    assert (log.appended, heartbeat.count - before) == ([128, 128, 44], 3)
    assert await _left(KeyedTopic(log)) == []


async def test_large_parts_travel_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_log, "_TOGETHER_BYTES", 25)
    counted, beats = CountedLog(1), list[int]()
    sizes = [(2,), (10, 10, 10, 5), (5, 40), (1,), (10, 10)]
    values = [(b"flights/name-%d" % number, [*map(bytes, of)]) for number, of in enumerate(sizes)]
    kept = KeyedTopic(counted)
    offsets = await kept.put(values, beat=lambda: beats.append(1))
    assert counted.appended == [3, 3, 1, 3]
    assert len(beats) == 4
    assert offsets == [(0,), (1, 2, 3, 4), (5, 6), (7,), (8, 9)]
    for (key, parts), of in zip(values, offsets, strict=True):
        assert await _fetched(kept, key, of) == parts
    keys = [key for key, _ in values]
    assert await _there(kept) == dict(zip(keys, map(dict, map(enumerate, offsets)), strict=True))


# Where values are --------------------------------------------------------------------------------


PARTS = [b"index", b"column 0", b"column 1"]


async def test_all_parts_that_are_there_are_found_with_their_last_offsets(log: LocalLog) -> None:
    kept = KeyedTopic(log)
    await log.append(0, _entries(b"flights/a", PARTS)[:2])
    await log.append(0, _entries(b"flights/b", PARTS)[1:2])
    await _put(kept, b"flights/c", PARTS)
    await _put(kept, b"flights/c", PARTS[::-1])
    begun = {b"flights/a": {0: 0, 1: 1}, b"flights/b": {1: 2}}
    assert await _there(kept) == {**begun, b"flights/c": {0: 6, 1: 7, 2: 8}}
    await kept.drop({b"flights/c": 2})
    assert await _there(kept) == {**begun, b"flights/c": {2: 8}}
    await kept.drop({b"flights/a": 3, b"flights/b": 3, b"flights/c": 3})
    assert await _there(kept) == {}
    await _put(kept, KEY, [b"short"])
    await _put(kept, b"trains/name", [b"short"])
    await log.append(0, [LogEntry(b"flights/whoever wrote this", b"content")])
    assert {*await _there(kept)} == {KEY}
    assert {*await _there(kept, "trains")} == {b"trains/name"}
    assert await _there(kept, "boats") == {}


async def test_a_value_takes_the_place_of_an_older_one_with_more_parts(log: LocalLog) -> None:
    kept, keeper = KeyedTopic(log), keeper_of(log)
    await _put(kept, KEY, PARTS)
    newer = await _put(kept, KEY, [b"short"])
    assert await _fetched(kept, KEY, newer) == [b"short"]
    assert await _there(kept) == {KEY: {0: 3, 1: 1, 2: 2}}, "rows of the older one"
    await keeper.drop_unnamed("flights", (), Looked(), at_once=True)
    erased = {entry.key for entry in log.entries[0] if entry.key != b"/" and not entry.value}
    assert erased == {b"%s/%d" % (KEY, number) for number in range(3)}
    assert await _left(kept) == []


async def test_an_interrupted_rewrite_gives_the_same_value_or_none(log: LocalLog) -> None:
    """Also where compaction has taken the parts that were there before."""
    keeper, parts = keeper_of(log), slab()
    (named,) = await kept_by(keeper, parts)
    await log.append(0, _entries(_key(named), parts)[:1])
    log.entries[0][0] = LogEntry(b"", b"")
    assert await keeper.whole("flights", named) == parts
    assert await _there(KeyedTopic(log)) == {_key(named): {0: 3, 1: 1, 2: 2}}
    await log.append(0, _entries(_key(named), slab(1))[:1])
    log.entries[0][3] = LogEntry(b"", b"")
    assert await keeper_of(log).whole("flights", named) is None, "its parts are of two values"


# What no commit names ----------------------------------------------------------------------------


async def _left(kept: KeyedTopic) -> list[str]:
    found = await _there(kept)
    return [key.decode().removeprefix("flights/") for key in found]


async def test_what_no_commit_names_goes_when_it_was_there_at_two_erasures(log: LocalLog) -> None:
    """At the first one it may belong to a worker that has taken over, and is about to commit."""
    kept, keeper = KeyedTopic(log), keeper_of(log)
    (rows,) = await kept_by(keeper, slab())
    died = await kept_by(keeper, slab(), secret())
    waits = await kept_by(keeper, slab(), slab())
    (others,) = await kept_by(keeper, slab(), dataset="trains")
    looked = await keeper.drop_unnamed("flights", {rows.name}, Looked())
    assert await _left(kept) == _hex(rows, *died, *waits)
    (late,) = await kept_by(keeper, slab())
    await keeper.drop_unnamed("flights", {rows.name, *(one.name for one in waits)}, looked)
    assert await _left(kept) == _hex(rows, *waits, late)
    looked = await keeper.drop_unnamed("flights", {rows.name}, looked)
    assert await _left(kept) == _hex(rows, late)
    looked = await keeper.drop_unnamed("flights", {late.name}, looked)
    assert await _left(kept) == _hex(rows, late), "what was named is dropped by its name"
    assert (await _there(kept, "trains")).keys() == {f"trains/{others.name.hex()}".encode()}


def _hex(*named: Named) -> list[str]:
    return [one.name.hex() for one in named]


async def test_only_what_was_put_since_the_last_erasure_is_read_again(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, starts, read = KeyedTopic(log), [], LocalLog.read

    def counted(self: LocalLog, partition: int, start: int, end: int) -> Any:
        starts.append((start, end))
        return read(self, partition, start, end)

    monkeypatch.setattr(LocalLog, "read", counted)
    keeper, looked, names = keeper_of(log), Looked(), set[bytes]()
    for _ in range(5):
        names |= {one.name for one in await kept_by(keeper, slab())}
        looked = await keeper.drop_unnamed("flights", names, looked)
    assert starts == [(0, 3), (3, 7), (7, 11), (11, 15), (15, 19)], "with a mark at each end"
    (stray,) = await kept_by(keeper, slab())
    looked = await keeper.drop_unnamed("flights", names, looked)
    assert looked == Looked(20, 23), "it is looked at again"
    assert Looked.of({LOOKED: looked.to_text()}) == looked
    looked = await keeper.drop_unnamed("flights", names, looked)
    assert stray.name.hex() not in await _left(kept)
    assert looked.start == looked.end == 24
    assert Looked.of({}) == Looked.of({LOOKED: ""}) == Looked()


async def test_a_worker_that_looks_through_much_is_not_stuck(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_logs, "_PIECE", 2)
    context = Context()
    keeper, heartbeat = keeper_of(log, context), context.heartbeat
    for _ in range(4):
        await kept_by(keeper, slab())
    assert heartbeat.count == 4
    looked = await keeper.drop_unnamed("flights", set(), Looked())
    assert heartbeat.count == 4 + 6
    await keeper.drop_unnamed("flights", set(), looked)
    assert heartbeat.count == 4 + 6 + 7 + 1, "of all that was there, and nobody names"
    await kept_by(keeper, slab())
    before = heartbeat.count
    await keeper.drop_unnamed("flights", (), Looked(), at_once=True)
    assert heartbeat.count == before + 15 + 1


async def test_a_topic_that_ends_earlier_than_it_did_is_looked_through_anew(log: LocalLog) -> None:
    kept, keeper = KeyedTopic(log), keeper_of(log)
    stays, goes = await kept_by(keeper, slab(), slab())
    looked = await keeper.drop_unnamed("flights", {stays.name}, Looked(900, 1_000))
    assert await _left(kept) == _hex(stays, goes), "who knows who has written it"
    assert looked.start > 0
    await keeper.drop_unnamed("flights", {stays.name}, looked)
    assert await _left(kept) == _hex(stays)
