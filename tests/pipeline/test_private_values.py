"""Private values: blocks, secrets and rows that wait are found by their names, or are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time
from typing import Any, cast

import pytest

from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.journal import redis_follower
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.kafka import topic_log
from stream_dp.pipeline.kafka.topic_log import KeyedTopic, LogEntry
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS
from stream_dp.pipeline.repair.unlock import lift
from stream_dp.pipeline.rows.private_values import LOOKED, Keeper, Looked
from stream_dp.pipeline.rows.waiting_batches import WaitingBatches
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state import private_names as kept_values
from stream_dp.state.private_names import Named, name_of
from stream_dp.state.schema import State, StateTable
from tests import local_logs
from tests.local_logs import LocalLog
from tests.pipeline import scenarios
from tests.pipeline.commands import offline
from tests.pipeline.conftest import Die
from tests.pipeline.crash import CountingFuse, Crash
from tests.pipeline.fakes import FakeKept
from tests.pipeline.held import Waiting
from tests.pipeline.scenarios import DAY_MS, ERASED, LIVES, RUNS
from tests.pipeline.world import World
from tests.slow import rest_is_slow
from tests.view import MemoryView
from tests.waiting import PATIENCE_S

LATE = {"attribute": "delay", "ge": 10}


def define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0}, on_exhausted="refuse")


def phase(world: World) -> None:
    number = world.next_offset("batches", "flights")
    world.cells("flights", f"batch-{number}", n=1 + number)


def ask(query_id: str, where: Any = AA, **item: Any) -> Callable[[World], object]:
    return lambda world: world.ask("flights", query_id, where, **item)


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


async def test_a_value_is_on_the_topic_before_the_commit_that_names_it(world: World) -> None:
    process = await world.owner()
    log, there = cast("Any", process.worker.journal._log), list[bool]()
    append = log.append

    async def watched(partition: int, entries: Sequence[LogEntry]) -> int | None:
        before = set(world.kept)
        first: int | None = await append(partition, entries)
        for held in world.durable().values():
            there.extend(f"{held.name}/{name.hex()}".encode() in before for name in held.names)
        return first

    log.append = watched
    for produce in RUNS:
        produce(world)
        await process.run()
    await process.kill()
    assert len(there) > 10
    assert all(there)


# Secrets of runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [[emptied], [wrong], [swapped], [emptied, moved], [away]])
async def test_runs_go_on_whatever_redis_has_forgotten(world: World, faults: Any) -> None:
    await world.run(rounds=RUNS[:3])
    secrets = world.held("flights").vault
    assert len(secrets) >= 2
    assert None not in secrets.values()
    for fault in faults:
        fault(world)
    process = await world.owner()
    await process.run()
    assert process.datasets["flights"].rows.blocks.data.vault == secrets
    await process.kill()
    await world.run(rounds=RUNS[3:])
    assert not [one for one in world.held("flights").transcript if one[:1] == b"\x03"], "none ended"
    world.spoiled = {*world.durable()}
    assert world.complaints() == []


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


def expires(world: World) -> None:
    """All batches are deleted."""
    for place, records in world.log.items():
        world.expired |= {one.record_id for one in records if place.startswith("in.batches")}


async def waits_since(world: World, *days: float) -> None:
    """Batches of these days, counted back from now, which wait."""
    await world.run(rounds=(define,))
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


async def test_rows_that_wait_for_a_quarter_of_the_time_that_batches_last_are_kept(
    world: World,
) -> None:
    await waits_since(world, 8.0, 7.0, -1, 9.0)
    assert await tidied(world) == [Named, Waiting, Named, Named]
    assert await tidied(world, 29.0) == [Named, Waiting, Named, Named]
    n_kept = len(world.kept)
    assert await tidied(world, 27.0) == [Named] * 4
    assert len(world.kept) == n_kept + 1, "what was kept is not kept again"
    assert world.complaints() == []


@pytest.mark.parametrize("faults", [[emptied], [wrong], [emptied, moved], [away]])
async def test_the_next_owner_finds_rows_that_were_kept_and_those_that_were_not_in_order(
    world: World, faults: Any
) -> None:
    await waits_since(world, 8.0, 1.0, 9.0, 2.0)
    assert await tidied(world) == [Named, Waiting, Named, Waiting]
    before = [
        rows.to_bytes()
        for rows in world.processes[-1].datasets["flights"].rows.waiting._pending.values()
    ]
    names = [one.batch_id for one in world.held("flights").waits if isinstance(one, Waiting)]
    for place, records in world.log.items():
        if place.startswith("in.batches"):
            world.expired |= {
                one.record_id
                for one in records
                if not any(name.encode() in (one.value or b"") for name in names)
            }
    for fault in faults:
        fault(world)
    process = await world.owner()
    await process.run()
    assert [
        rows.to_bytes() for rows in process.datasets["flights"].rows.waiting._pending.values()
    ] == before
    phase(world)
    await process.run()
    await process.settled()
    await process.kill()
    assert world.events("rows_lost") == []
    assert world.held("flights").waits == []
    assert len(world.held("flights").named()) == 1, "of the rows that waited nothing is kept"
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
        assert await tidied(world) == [Named, Waiting]
        assert await tidied(world, 1.0) == [Named, Named], "each owner reads them"
    expires(world)
    await lift(offline(world), "flights")
    assert await tidied(world) == [Named, Named]
    assert world.processes[-1].datasets["flights"].rows.waiting.n_rows == 2
    assert world.events("rows_lost") == []


async def test_a_data_set_whose_rows_are_deadly_to_read_is_read_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ended of that again and again would serve no other data set."""
    await waits_since(world, 8.0)
    with monkeypatch.context() as patch:

        async def deadly(self: WaitingBatches) -> None:
            raise world.Crash

        patch.setattr(WaitingBatches, "read", deadly)
        deaths = await world.run(*[world.Fuse() for _ in range(10)])
        assert deaths == MOST_ATTEMPTS + 1
        assert world.events("quarantined")
        assert await tidied(world) == [Waiting]
    await lift(offline(world), "flights")
    assert await tidied(world) == [Named]
    assert world.processes[-1].datasets["flights"].rows.waiting.n_rows == 1


class Armed(CountingFuse):
    """Blows at a point of this name, once it is armed."""

    def __init__(self, point: str) -> None:
        super().__init__()
        self._named = point
        self.is_armed = False

    def __call__(self, met: str) -> None:
        if self.is_armed and met == self._named:
            raise Crash(met)


@pytest.mark.parametrize("point", ["before put", "after put", "before append", "after append"])
async def test_a_crash_while_rows_are_kept_loses_none(world: World, point: str) -> None:
    await waits_since(world, 8.0, 9.0)
    fuse = Armed(point)
    process = await world.owner(fuse, batches_last_s=86_400)
    await process.run()
    await process.settled()
    fuse.is_armed = True

    async def tidy() -> None:
        await process.worker.tidy()
        await process.drained()

    with pytest.raises(Crash):
        await tidy()
    await process.kill()
    assert await tidied(world) == [Named, Named]
    assert world.processes[-1].datasets["flights"].rows.waiting.n_rows == 2
    expires(world)
    await world.run(rounds=(phase, phase, phase))
    assert [event["rows"] % 21_000 for event in world.events("phase_opened")] == [2, 0, 0]
    assert world.events("rows_lost") == []
    assert world.complaints() == []


# A broker that is away ---------------------------------------------------------------------------


async def test_a_worker_that_ends_waits_for_no_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.run(rounds=(define, phase))
    emptied(world)
    asked = asyncio.Event()

    async def fetched(self: FakeKept, key: bytes, offsets: Sequence[int]) -> bytes | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(FakeKept, "fetch", fetched)
    process = await world.owner()
    ask("one")(world)
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


async def test_a_block_that_redis_has_under_the_name_of_another_never_gives_its_rows(
    world: World,
) -> None:
    await world.run(rounds=TWINS)
    swapped(world)
    assert abs(await _asked_of_the_first(world) - 25 / 30) < 0.1


async def test_it_would_if_names_were_not_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would notice: the blocks have the same size."""

    async def trusting(self: Keeper, dataset: str, named: Named) -> bytes | None:
        assert self._view is not None
        kept = await self._view.kept(dataset, named.name)
        return None if kept is None else kept_values.unsalted(kept)

    monkeypatch.setattr(Keeper, "find", trusting)
    await world.run(rounds=TWINS)
    swapped(world)
    assert abs(await _asked_of_the_first(world) - 5 / 30) < 0.1


# What is kept as records ------------------------------------------------------------------------


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LocalLog:
    monkeypatch.setattr(kept_values, "PART_BYTES", 10)
    return LocalLog(1)


KEY = b"flights/name"


def keeper_of(log: LocalLog, context: Context | None = None) -> Keeper:
    """A keeper, without Redis."""
    return Keeper(KeyedTopic(log), context or Context())


async def _put(kept: KeyedTopic, key: bytes, value: bytes) -> tuple[int, ...]:
    (offsets,) = await kept.put([(key, value)])
    return offsets


async def _there(kept: KeyedTopic, dataset: str = "flights") -> dict[bytes, dict[int, int]]:
    """The offsets of the parts that are there, by key and number."""
    found, _ = await kept.parts(dataset)
    return found


def _entries(key: bytes, value: bytes) -> list[LogEntry]:
    parts = enumerate(kept_values.cut(value))
    return [LogEntry(b"%s/%d" % (key, number), part) for number, part in parts]


def _key(named: Named) -> bytes:
    return f"flights/{named.name.hex()}".encode()


async def test_a_value_is_fetched_from_its_parts(log: LocalLog) -> None:
    kept, value = KeyedTopic(log), bytes(range(25))
    assert await _put(kept, b"other/name", b"something") == (0,)
    offsets = await _put(kept, KEY, value)
    assert offsets == (1, 2, 3)
    assert await kept.fetch(KEY, offsets) == value
    assert await kept.parts("flights") == ({KEY: {0: 1, 1: 2, 2: 3}}, 4)


async def test_what_is_not_exactly_there_is_not_taken(log: LocalLog) -> None:
    keeper, kept = keeper_of(log), KeyedTopic(log)
    ((named, value),) = await keeper.keep("flights", bytes(range(9)))
    key, forged = _key(named), bytes(byte ^ 1 for byte in value)
    assert named.offsets == (0, 1, 2)
    other = await _put(kept, b"flights/second", value)
    fork = await _put(kept, key, forged)
    assert await kept.fetch(key, other) is None, "the key is another one"
    assert await kept.fetch(key, (0, 2, 1)) is None, "the number is"
    assert await kept.fetch(key, (0, 1, 99)) is None
    for mixed in ((0, 1), (0, 1, fork[2]), (fork[0], 1, 2), fork):
        assert await kept.fetch(key, mixed) is not None
    for wrong in (other, (0, 2, 1), (0, 1, 99), (0, 1), (0, 1, fork[2]), (fork[0], 1, 2), fork):
        assert await keeper_of(log).find("flights", replace(named, offsets=wrong)) is None
    assert await keeper_of(log).find("flights", named) == bytes(range(9))
    await kept.drop({key: 3})
    assert await kept.fetch(key, fork) == forged, "the broker has not compacted the topic yet"


@pytest.mark.parametrize("fault", ["a byte", "shorter", "longer", "erased", "of a fork"])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_value_of_which_a_part_is_damaged_is_not_taken(
    log: LocalLog, number: int, fault: str
) -> None:
    keeper = keeper_of(log)
    ((wrong, _),) = await keeper.keep("flights", bytes(9))
    ((whole, _),) = await keeper.keep("flights", bytes(9))
    entry = log.entries[0][number]
    damaged = {
        "a byte": entry.value[:-1] + bytes([entry.value[-1] ^ 1]),
        "shorter": entry.value[:-1],
        "longer": entry.value + b"\x00",
        "erased": b"",
        "of a fork": bytes(byte ^ 1 for byte in entry.value),
    }
    log.entries[0][number] = replace(entry, value=damaged[fault])
    assert await keeper.find("flights", wrong) is None
    assert await keeper.find("flights", whole) == bytes(9)
    await keeper.drop_unnamed("flights", {whole.name}, Looked(), at_once=True)
    assert await _left(KeyedTopic(log)) == _hex(whole.name)


async def test_parts_that_were_swapped_are_not_taken(log: LocalLog) -> None:
    """Also where each key has the place of the other one, so that only the contents are wrong."""
    keeper = keeper_of(log)
    ((named, value),) = await keeper.keep("flights", bytes(range(14)))
    one, other, _ = log.entries[0][:3]
    assert (len(one.value), len(other.value)) == (10, 10)
    log.entries[0][:2] = [replace(one, value=other.value), replace(other, value=one.value)]
    assert await KeyedTopic(log).fetch(_key(named), named.offsets) not in (None, value)
    assert await keeper.find("flights", named) is None
    log.entries[0][:2] = [other, one]
    assert await keeper.find("flights", named) == bytes(range(14)), "each has its own key"


async def test_a_value_that_is_put_at_an_unknown_offset_is_put_once_more(log: LocalLog) -> None:
    append, lost = log.append, [True, False]

    async def appended(partition: int, entries: Sequence[Any]) -> int | None:
        found = await append(partition, entries)
        return None if lost and lost.pop(0) else found

    log.append = appended  # type: ignore[method-assign]
    kept = KeyedTopic(log)
    offsets = await _put(kept, KEY, b"some rows")
    assert offsets == (1,)
    assert await kept.fetch(KEY, offsets) == b"some rows"


async def test_a_value_of_which_a_part_is_missing_leaves_with_its_data_set(log: LocalLog) -> None:
    """A worker died while it kept the value, so nobody can read it, and some of its rows are there."""
    kept, keeper = KeyedTopic(log), keeper_of(log)
    await keeper.keep("flights", b"rows of the first phase")
    await log.append(0, _entries(b"flights/second", bytes(range(25)))[:1])
    await log.append(0, _entries(b"flights/third", bytes(range(25)))[2:])
    await keeper.keep("trains", b"rows of others")
    found = await _there(kept)
    assert len(found) == 3
    assert (found[b"flights/second"].keys(), found[b"flights/third"].keys()) == ({0}, {2})
    await keeper.drop_unnamed("flights", (), Looked(), at_once=True)
    assert await _there(kept) == {}
    assert _rows_of(log) == {b"trains"}


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
    ((named, _),) = await keeper.keep("flights", bytes(9))
    assert len(named.offsets) == 3
    looked = await keeper.drop_unnamed("flights", (), Looked())
    await log.append(0, [LogEntry(b"%s/%d" % (_key(named), number), b"") for number in erased])
    assert len((await _there(kept))[_key(named)]) == 3 - len(erased)
    await keeper.drop_unnamed("flights", (), looked)
    assert await _there(kept) == {}
    assert _rows_of(log) == set()


async def test_a_value_is_found_by_its_name_and_names_tell_nothing(log: LocalLog) -> None:
    keeper = keeper_of(log)
    ((one, _),) = await keeper.keep("flights", b"rows")
    ((two, kept),) = await keeper.keep("flights", b"rows")
    assert one.name != two.name, "the same rows have another name each time"
    assert name_of(kept) == two.name
    assert kept.endswith(b"rows")
    for named in (one, two):
        assert await keeper.find("flights", named) == b"rows"
        assert await keeper_of(log).find("flights", named) == b"rows"
        assert await keeper_of(log).find("trains", named) is None
    assert b"rows" not in one.to_bytes()
    assert Named.from_bytes(one.to_bytes()) == one


async def test_a_value_whose_place_has_moved_is_found_and_all_is_read_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was restored from a copy has the same keys at other offsets."""
    log, restored = CountedLog(1), CountedLog(1)
    kept = await keeper_of(log).keep("flights", *[b"rows of phase %d" % n for n in range(5)])
    await restored.append(
        0, [LogEntry(b"another/name/0", b""), *log.entries[0][2:], *log.entries[0][:2]]
    )
    keeper = keeper_of(restored)
    for number in (3, 0, 4, 1, 2):
        assert await keeper.find("flights", kept[number][0]) == b"rows of phase %d" % number
    assert restored.readings == 1
    assert caplog.text.count("is not where it was on the topic of blocks") == 1


async def test_a_value_in_whose_place_another_one_is_is_not_believed(log: LocalLog) -> None:
    """Also under its own key: the name is a digest of the value."""
    keeper, kept = keeper_of(log), KeyedTopic(log)
    ((named, value),) = await keeper.keep("flights", b"rows")
    forged = value[:-1] + b"S"
    offsets = await _put(kept, _key(named), forged)
    log.entries[0][: len(named.offsets)] = [LogEntry(b"", b"")] * len(named.offsets)
    assert await kept.fetch(_key(named), offsets) == forged
    assert await keeper_of(log).find("flights", named) is None
    assert await keeper_of(log).find("flights", replace(named, offsets=offsets)) is None


async def test_what_a_look_reads_does_not_pile_up_for_a_slow_redis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_follower, "_MOST_BYTES", 100)
    view = MemoryView()
    names = [bytes([number]) * 16 for number in range(9)]
    pairs = {
        (StateTable.KEPT, b"block %d" % number): Named(name, (number,)).to_bytes()
        for number, name in enumerate(names)
    }
    state = State("flights", pairs=pairs)
    behind = RedisFollower(view, lambda _: state, Context())
    for name in names:
        behind.keep("flights", name, bytes(30))
    running = asyncio.create_task(behind.run())
    await behind.joined()
    assert [*view.values["flights"]] == names[:3]
    behind.keep("flights", names[8], bytes(30))
    await behind.joined()
    assert names[8] in view.values["flights"]
    running.cancel()


class Redis:
    """What Redis has of values, in place of ``RedisFollower``."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values

    async def kept(self, dataset: str, name: bytes) -> bytes | None:
        return self.values.get(name)

    def keep(self, dataset: str, name: bytes, value: bytes) -> None:
        self.values[name] = value


@pytest.mark.parametrize("fault", ["missing", "wrong", "short", "empty"])
async def test_what_redis_lacks_or_has_wrong_is_read_from_the_topic_and_given_to_it(
    log: LocalLog, fault: str
) -> None:
    ((named, value),) = await keeper_of(log).keep("flights", b"rows")
    wrong = {"wrong": value[:-1] + b"S", "short": value[:-1], "empty": b""}
    redis = Redis({} if fault == "missing" else {named.name: wrong[fault]})
    keeper = Keeper(KeyedTopic(log), Context(), cast("Any", redis))
    assert await keeper.find("flights", named) == b"rows"
    assert redis.values == {named.name: value}
    log.entries[0].clear()
    assert await keeper.find("flights", named) == b"rows", "from Redis alone"


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
    rows = [b"rows of batch %d" % number for number in range(300)]
    named = [one for one, _ in await keeper.keep("flights", *rows)]
    assert (log.appended, heartbeat.count) == ([128, 128, 44], 3)
    assert [await keeper.find("flights", one) for one in named] == rows
    log.appended.clear()
    before = heartbeat.count
    await keeper.drop("flights", named)
    assert (log.appended, heartbeat.count - before) == ([128, 128, 44], 3)
    assert await _left(KeyedTopic(log)) == []


async def test_a_value_is_erased_with_all_its_parts(log: LocalLog) -> None:
    """Their number is in its name, so whoever erases it need not have kept it."""
    ((long, _), (short, _)) = await keeper_of(log).keep("flights", bytes(25), b"short")
    there = len(log.entries[0])
    await keeper_of(log).drop("flights", [long, short])
    assert len(log.entries[0]) - there == len(long.offsets) + len(short.offsets) == 5 + 3
    assert await _left(KeyedTopic(log)) == []


async def test_large_values_travel_with_few_others(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "_TOGETHER_BYTES", 25)
    counted, beats = CountedLog(1), list[int]()
    values = [(b"flights/name-%d" % size, bytes(size)) for size in (2, 35, 5, 1, 25)]
    kept = KeyedTopic(counted)
    offsets = await kept.put(values, beat=lambda: beats.append(1))
    assert counted.appended == [3, 4, 3]
    assert len(beats) == 3
    assert offsets == [(0,), (1, 2, 3, 4), (5,), (6,), (7, 8, 9)]
    for (key, value), of in zip(values, offsets, strict=True):
        assert await kept.fetch(key, of) == value
    keys = [key for key, _ in values]
    assert await _there(kept) == dict(zip(keys, map(dict, map(enumerate, offsets)), strict=True))


# Where values are --------------------------------------------------------------------------------


async def test_all_parts_that_are_there_are_found_with_their_last_offsets(log: LocalLog) -> None:
    kept, value = KeyedTopic(log), bytes(range(25))
    await log.append(0, _entries(b"flights/a", value)[:2])
    await log.append(0, _entries(b"flights/b", value)[1:2])
    await _put(kept, b"flights/c", value)
    await _put(kept, b"flights/c", value[::-1])
    begun = {b"flights/a": {0: 0, 1: 1}, b"flights/b": {1: 2}}
    assert await _there(kept) == {**begun, b"flights/c": {0: 6, 1: 7, 2: 8}}
    await kept.drop({b"flights/c": 2})
    assert await _there(kept) == {**begun, b"flights/c": {2: 8}}
    await kept.drop({b"flights/a": 3, b"flights/b": 3, b"flights/c": 3})
    assert await _there(kept) == {}
    await _put(kept, KEY, b"short")
    await _put(kept, b"trains/name", b"short")
    await log.append(0, [LogEntry(b"flights/whoever wrote this", b"content")])
    assert {*await _there(kept)} == {KEY}
    assert {*await _there(kept, "trains")} == {b"trains/name"}
    assert await _there(kept, "boats") == {}


async def test_a_value_takes_the_place_of_an_older_one_with_more_parts(log: LocalLog) -> None:
    kept, keeper = KeyedTopic(log), keeper_of(log)
    await _put(kept, KEY, bytes(25))
    newer = await _put(kept, KEY, b"short")
    assert await kept.fetch(KEY, newer) == b"short"
    assert await _there(kept) == {KEY: {0: 3, 1: 1, 2: 2}}, "rows of the older one"
    await keeper.drop_unnamed("flights", (), Looked(), at_once=True)
    erased = {entry.key for entry in log.entries[0] if entry.key != b"/" and not entry.value}
    assert erased == {b"%s/%d" % (KEY, number) for number in range(3)}
    assert await _left(kept) == []


async def test_an_interrupted_rewrite_gives_the_same_value_or_none(log: LocalLog) -> None:
    """Also where compaction has taken the parts that were there before."""
    keeper = keeper_of(log)
    ((named, value),) = await keeper.keep("flights", bytes(9))
    await log.append(0, _entries(_key(named), value)[:1])
    log.entries[0][0] = LogEntry(b"", b"")
    assert await keeper.find("flights", named) == bytes(9)
    assert await _there(KeyedTopic(log)) == {_key(named): {0: 3, 1: 1, 2: 2}}
    await log.append(0, _entries(_key(named), value[::-1])[:1])
    log.entries[0][3] = LogEntry(b"", b"")
    assert await keeper_of(log).find("flights", named) is None, "its parts are of two values"


# What no commit names ----------------------------------------------------------------------------


async def _left(kept: KeyedTopic) -> list[str]:
    found = await _there(kept)
    return [key.decode().removeprefix("flights/") for key in found]


async def named(keeper: Keeper, *values: bytes, dataset: str = "flights") -> list[bytes]:
    """Keeps values; returns their names."""
    return [one.name for one, _ in await keeper.keep(dataset, *values)]


async def test_what_no_commit_names_goes_when_it_was_there_at_two_erasures(log: LocalLog) -> None:
    """At the first one it may belong to a worker that has taken over, and is about to commit."""
    kept, keeper = KeyedTopic(log), keeper_of(log)
    (rows,) = await named(keeper, b"rows")
    died = await named(keeper, b"rows of a worker that died", b"and what persons have used")
    waits = await named(keeper, b"rows that wait", b"and more")
    (others,) = await named(keeper, b"rows of others", dataset="trains")
    looked = await keeper.drop_unnamed("flights", {rows}, Looked())
    assert await _left(kept) == _hex(rows, *died, *waits)
    (late,) = await named(keeper, b"rows of the worker that has taken over")
    await keeper.drop_unnamed("flights", {rows, *waits}, looked)
    assert await _left(kept) == _hex(rows, *waits, late)
    looked = await keeper.drop_unnamed("flights", {rows}, looked)
    assert await _left(kept) == _hex(rows, late)
    looked = await keeper.drop_unnamed("flights", {late}, looked)
    assert await _left(kept) == _hex(rows, late), "what was named is dropped by its name"
    assert (await _there(kept, "trains")).keys() == {f"trains/{others.hex()}".encode()}


def _hex(*names: bytes) -> list[str]:
    return [name.hex() for name in names]


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
        names |= {*await named(keeper, bytes(9))}
        looked = await keeper.drop_unnamed("flights", names, looked)
    assert starts == [(0, 3), (3, 7), (7, 11), (11, 15), (15, 19)], "with a mark at each end"
    (stray,) = await named(keeper, b"who died")
    looked = await keeper.drop_unnamed("flights", names, looked)
    assert looked == Looked(20, 23), "it is looked at again"
    assert Looked.of({LOOKED: looked.to_text()}) == looked
    looked = await keeper.drop_unnamed("flights", names, looked)
    assert stray.hex() not in await _left(kept)
    assert looked.start == looked.end == 24
    assert Looked.of({}) == Looked.of({LOOKED: ""}) == Looked()


async def test_a_worker_that_looks_through_much_is_not_stuck(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_logs, "_PIECE", 2)
    context = Context()
    keeper, heartbeat = keeper_of(log, context), context.heartbeat
    for _ in range(4):
        await keeper.keep("flights", bytes(9))
    assert heartbeat.count == 4
    looked = await keeper.drop_unnamed("flights", set(), Looked())
    assert heartbeat.count == 4 + 6
    await keeper.drop_unnamed("flights", set(), looked)
    assert heartbeat.count == 4 + 6 + 7 + 1, "of all that was there, and nobody names"
    await keeper.keep("flights", bytes(9))
    before = heartbeat.count
    await keeper.drop_unnamed("flights", (), Looked(), at_once=True)
    assert heartbeat.count == before + 15 + 1


async def test_a_topic_that_ends_earlier_than_it_did_is_looked_through_anew(log: LocalLog) -> None:
    kept, keeper = KeyedTopic(log), keeper_of(log)
    names = await named(keeper, b"rows", b"rows that nobody names")
    looked = await keeper.drop_unnamed("flights", {names[0]}, Looked(900, 1_000))
    assert await _left(kept) == _hex(*names), "who knows who has written it"
    assert looked.start > 0
    await keeper.drop_unnamed("flights", {names[0]}, looked)
    assert await _left(kept) == _hex(names[0])


# Crashes ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_crash_around_a_seal_loses_no_block(die: Die) -> None:
    rounds = (define, phase, phase, ask("one"), phase, ask("two", LATE))
    async for at, world in die(rounds, range(1_000), deaths=2):
        assert world.complaints() == [], at
        assert None not in world.held("flights").blocks
        assert len(world.held("flights").blocks) == 3


@pytest.mark.parametrize("rounds", [ERASED, LIVES])
async def test_nor_does_a_crash_at_a_named_point(die: Die, rounds: Any) -> None:
    async for at, world in die(rounds, {0, 9}, points=[*CrashPoint]):
        assert world.complaints() == [], at
