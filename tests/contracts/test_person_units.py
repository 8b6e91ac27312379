"""What every store promises of the units that persons use for life, and what only a server can get wrong."""

from __future__ import annotations

import copy
import json
import pathlib
import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import redis
from redis.asyncio.cluster import RedisCluster

from stream_dp.errors import Conflict, CorruptState, Fenced, StoreError, StoreRefused
from stream_dp.state.local import LocalStore
from stream_dp.state.persons import VALUE_BYTES, units_before
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import MOST_PERSONS, Reservation, Store
from tests.waiting import until

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/persons.json"
PERSONS = "{stream-dp:flights}:persons"


def digest(person: int) -> bytes:
    """The digest of a person; those of 0 to 15 lie in one bucket."""
    return person.to_bytes(12, "little")[::-1]


def digests(*persons: int) -> Any:
    return np.frombuffer(b"".join(map(digest, persons)), np.uint8).reshape(-1, 12)


def reservation(owner: Any, phase: int, entries: dict[int, tuple[int, int]]) -> Reservation:
    """A reservation for persons, each with the units used before and the rows."""
    return Reservation(
        dataset=owner.dataset,
        token=owner.token,
        phase=phase,
        digests=digests(*entries),
        before=np.array([before for before, _ in entries.values()], dtype=np.int64),
        rows=np.array([rows for _, rows in entries.values()], dtype=np.int64),
    )


async def used(owner: Any, phase: int, *persons: int) -> list[int]:
    found = await owner.store.units(owner.dataset, owner.token, phase, digests(*persons))
    units: list[int] = found.tolist()
    return units


@pytest.fixture
async def holder(backend: Any, own: Any) -> Any:
    """The owner of a data set with no phase yet."""
    owner = await own(backend.store())
    await owner.commit()
    return owner


async def test_nobody_has_used_anything_at_first(holder: Any) -> None:
    assert await used(holder, 1, 5, 2**95, 5) == [0, 0, 0]
    assert await used(holder, 1) == []


async def test_what_is_reserved_is_used_from_the_next_phase_on(backend: Any, holder: Any) -> None:
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3), 2**95: (0, 1), 6: (0, 0)}))
    assert await used(holder, 1, 5, 6, 2**95) == [0, 0, 0]
    await holder.commit(seal=b"block 0")
    assert await used(holder, 2, 2**95, 7, 6, 5) == [1, 0, 0, 9]
    await holder.store.reserve(reservation(holder, 2, {5: (9, 2), 7: (0, 255)}))
    assert await used(holder, 2, 5, 7) == [9, 0]
    await holder.commit(seal=b"block 1")
    await holder.commit(seal=b"block 2")
    holder.store = backend.store()
    assert await used(holder, 4, 5, 7, 2**95) == [13, 65_025, 1]


async def test_what_was_reserved_for_a_phase_can_be_reserved_again(
    backend: Any, holder: Any
) -> None:
    one = reservation(holder, 1, {5: (0, 3), 6: (0, 1)})
    await holder.store.reserve(one)
    once = backend.dump()
    await holder.store.reserve(one)
    assert backend.dump() == once


async def test_the_larger_reservation_of_a_phase_stays(holder: Any) -> None:
    for rows in (2, 3, 1, 0):
        await holder.store.reserve(reservation(holder, 1, {5: (0, rows)}))
        assert await used(holder, 1, 5) == [0]
    await holder.commit(seal=b"block 0")
    assert await used(holder, 2, 5) == [9]


async def test_a_seal_follows_from_all_of_its_reservations(holder: Any) -> None:
    first = reservation(holder, 1, {5: (0, 3)})
    second = replace(reservation(holder, 1, {7: (0, 1)}), part=1)
    sealed = holder.transition(seal=b"block", reserved=2)
    with pytest.raises(Conflict, match="does not have the reservations before part 1"):
        await holder.store.reserve(second)
    await holder.store.reserve(first)
    with pytest.raises(Conflict, match="does not have the reservations before part 2"):
        await holder.store.reserve(replace(second, part=2))
    for missing in (first, None):
        with pytest.raises(Conflict, match="does not have all reservations"):
            await holder.store.commit(sealed)
        await holder.store.reserve(first if missing else second)
        await holder.store.reserve(first if missing else second)
    await holder.store.commit(sealed)
    holder.moved(sealed)
    assert await used(holder, 2, 5, 7) == [9, 1]
    later = holder.transition(seal=b"block", reserved=1)
    with pytest.raises(Conflict, match="does not have all reservations"):
        await holder.store.commit(later)


async def test_a_seal_is_refused_by_a_store_that_has_gone_back_to_before_a_reservation(
    backend: Any, holder: Any
) -> None:
    """The copy has all commits, and not what persons may not use again."""
    older = copy.deepcopy(backend._local.__dict__)
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3)}))
    if backend.url is None:
        holder.store.__dict__ = older
    else:
        with redis.Redis.from_url(backend.url) as client:
            prefix = f"{{{backend.prefix}:flights}}"
            client.delete(*client.scan_iter(match=f"{prefix}:persons:*"))
            client.hdel(f"{prefix}:control", "reserved")
    with pytest.raises(Conflict, match="does not have all reservations"):
        await holder.commit(seal=b"block", reserved=1)
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3)}))
    await holder.commit(seal=b"block", reserved=1)
    assert await used(holder, 2, 5) == [9]


async def test_a_person_with_several_slots_is_reserved_once(holder: Any) -> None:
    several = Reservation(
        dataset="flights",
        token=holder.token,
        phase=1,
        digests=digests(5, 6, 5, 5),
        before=np.zeros(4, dtype=np.int64),
        rows=np.array([2, 1, 3, 1], dtype=np.int64),
    )
    await holder.store.reserve(several)
    await holder.commit(seal=b"block 0")
    assert await used(holder, 2, 5, 6) == [9, 1]


@pytest.mark.parametrize("at", range(12))
async def test_digests_that_differ_in_one_byte_are_two_persons(holder: Any, at: int) -> None:
    one, other = 0x5A5A5A5A5A5A5A5A5A5A5A5A, 0x5A5A5A5A5A5A5A5A5A5A5A5A ^ (1 << (8 * at + 3))
    await holder.store.reserve(reservation(holder, 1, {one: (0, 3)}))
    await holder.commit(seal=b"block 0")
    assert await used(holder, 2, one, other) == [9, 0]


async def test_data_sets_share_no_person(backend: Any, holder: Any, own: Any) -> None:
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3)}))
    other = await own(backend.store(), "weather")
    await other.commit(seal=b"block 0")
    await holder.commit(seal=b"block 0")
    assert await used(other, 2, 5) == [0]
    assert await used(holder, 2, 5) == [9]


async def test_as_many_persons_as_fit_into_a_call(holder: Any) -> None:
    chance = random.Random(4)
    persons = {chance.getrandbits(96) | 1: (0, chance.randrange(5)) for _ in range(MOST_PERSONS)}
    await holder.store.reserve(reservation(holder, 1, persons))
    await holder.commit(seal=b"block 0")
    assert await used(holder, 2, *persons) == [rows * rows for _, rows in persons.values()]


# Checks -----------------------------------------------------------------------------------------

Step = Callable[[Any, Any], Awaitable[object]]

REFUSED: dict[str, tuple[Step, type[StoreError], str]] = {
    "an old token": (lambda owner, one: owner.reserve(replace(one, token=0)), Fenced, "another"),
    "a token from the future": (
        lambda owner, one: owner.reserve(replace(one, token=2)),
        Fenced,
        "another",
    ),
    "a data set that nobody took": (
        lambda owner, one: owner.reserve(replace(one, dataset="weather")),
        Fenced,
        "another",
    ),
    "a phase that is sealed": (
        lambda owner, one: owner.reserve(replace(one, phase=1)),
        Conflict,
        "phase 1 is not the one that is sealed next",
    ),
    "a phase after the next": (
        lambda owner, one: owner.reserve(replace(one, phase=3)),
        Conflict,
        "phase 3",
    ),
    "too few units before": (
        lambda owner, one: owner.reserve(replace(one, before=one.before - np.array([0, 1]))),
        Conflict,
        "other units",
    ),
    "too many units before": (
        lambda owner, one: owner.reserve(replace(one, before=one.before + np.array([1, 0]))),
        Conflict,
        "other units",
    ),
    "two numbers of units of one person": (
        lambda owner, one: owner.reserve(replace(one, digests=digests(5, 5))),
        Conflict,
        "other units",
    ),
    "a look with an old token": (
        lambda owner, one: owner.units("flights", 0, 2, one.digests),
        Fenced,
        "another",
    ),
    "a look before a sealed phase": (
        lambda owner, one: owner.units("flights", one.token, 1, one.digests),
        Conflict,
        "phase 1",
    ),
    "erasing what is not retired": (
        lambda owner, one: owner.forget_persons("flights", one.token),
        Conflict,
        "not retired",
    ),
    "erasing with an old token": (
        lambda owner, one: owner.forget_persons("flights", 0),
        Fenced,
        "another",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
async def test_a_refused_call_leaves_no_trace(backend: Any, holder: Any, fault: str) -> None:
    attempt, error, words = REFUSED[fault]
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3)}))
    await holder.commit(seal=b"block 0")
    one = reservation(holder, 2, {7: (0, 1), 5: (9, 2)})
    before = backend.dump()
    with pytest.raises(error, match=words) as caught:
        await attempt(holder.store, one)
    assert backend.dump() == before
    assert "persons:" not in str(caught.value)
    # The fault alone was to blame.
    await holder.store.reserve(one)
    assert backend.dump() != before


async def test_a_former_owner_can_neither_read_nor_reserve(
    backend: Any, holder: Any, own: Any
) -> None:
    one = reservation(holder, 1, {5: (0, 3)})
    successor = await own(backend.store())
    before = backend.dump()
    for step in (
        holder.store.reserve(one),
        holder.store.units("flights", holder.token, 1, one.digests),
        holder.store.forget_persons("flights", holder.token),
    ):
        with pytest.raises(Fenced):
            await step
    assert backend.dump() == before
    await successor.store.reserve(replace(one, token=successor.token))


async def test_a_retired_data_set_forgets_its_persons_and_takes_no_more(
    backend: Any, holder: Any
) -> None:
    everybody = {1 << at: (0, 2) for at in range(96)}
    await holder.store.reserve(reservation(holder, 1, everybody))
    await holder.commit(erase=True)
    while await holder.store.forget_persons("flights", holder.token):
        pass
    kept = backend.dump()
    if backend.url is None:
        assert kept["_datasets"]["flights"].persons == {}
    else:
        assert not [key for key in kept if b":persons" in key]
    with pytest.raises(Conflict, match="retired"):
        await holder.store.reserve(reservation(holder, 1, {5: (0, 1)}))
    with pytest.raises(Conflict, match="retired"):
        await used(holder, 1, 5)
    assert not await holder.store.forget_persons("flights", holder.token)
    assert backend.dump() == kept


async def test_a_data_set_that_begins_anew_forgets_its_persons_until_its_first_commit(
    backend: Any, holder: Any, own: Any
) -> None:
    store = holder.store
    await store.reserve(reservation(holder, 1, {1 << at: (0, 2) for at in range(96)}))
    with pytest.raises(Conflict, match="not retired"):
        await store.forget_persons("flights", holder.token)
    await store.rebuild("flights", 8, seq=5, trail=bytes([7]) * 32)
    with pytest.raises(Fenced):
        await store.forget_persons("flights", holder.token)
    while await store.forget_persons("flights", 8):
        pass
    assert persons_kept(backend) == 0
    again = await own(store)
    assert await used(again, 1, 1, 2, 4) == [0, 0, 0]
    await again.commit()
    before = backend.dump()
    with pytest.raises(Conflict, match="not retired"):
        await store.forget_persons("flights", again.token)
    assert backend.dump() == before


async def test_what_another_history_used_in_a_later_phase_is_not_taken_for_what_was_used_before(
    holder: Any, own: Any
) -> None:
    """A new beginning does not forget by itself."""
    store = holder.store
    await holder.commit(seal=b"block 0")
    await store.reserve(reservation(holder, 2, {5: (0, 3)}))
    await store.rebuild("flights", 8, seq=0, trail=bytes([7]) * 32)
    again = await own(store)
    with pytest.raises(CorruptState):
        await used(again, 1, 5)
    with pytest.raises(CorruptState):
        await store.reserve(reservation(again, 1, {5: (0, 3)}))
    assert await used(again, 1, 6) == [0]
    while await store.forget_persons("flights", again.token):
        pass
    assert await used(again, 1, 5) == [0]
    await store.reserve(reservation(again, 1, {5: (0, 3)}))


async def test_what_persons_use_after_a_new_beginning_is_forgotten_when_it_retires(
    backend: Any, holder: Any, own: Any
) -> None:
    """How far the first erasure came says nothing about the second one."""
    store = holder.store
    await store.rebuild("flights", 8, seq=5, trail=bytes([7]) * 32)
    while await store.forget_persons("flights", 8):
        pass
    again = await own(store)
    await again.commit()
    await store.reserve(reservation(again, 1, {1 << at: (0, 2) for at in range(96)}))
    assert persons_kept(backend) > 0
    await again.commit(erase=True)
    while await store.forget_persons("flights", again.token):
        pass
    assert persons_kept(backend) == 0


def persons_kept(backend: Any) -> int:
    kept = backend.dump()
    if backend.url is None:
        return len(kept["_datasets"]["flights"].persons)
    return len([key for key in kept if b":persons" in key])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset": "no name"}, "name"),
        ({"phase": 0}, "phase"),
        ({"phase": 2**32}, "phase"),
        ({"digests": np.zeros((2, 11), dtype=np.uint8)}, "12 bytes"),
        ({"digests": np.zeros((3, 12), dtype=np.uint8)}, "each slot"),
        ({"rows": np.array([1])}, "each slot"),
        ({"rows": np.array([1, 256])}, "255 rows"),
        ({"rows": np.array([1, -1])}, "255 rows"),
        ({"before": np.array([0, -1])}, "65535 units"),
        ({"before": np.array([0, 65_535])}, "65535 units"),
    ],
)
def test_a_reservation_that_cannot_be_kept_is_not_made(changes: Any, words: str) -> None:
    whole: dict[str, Any] = {
        "dataset": "flights",
        "token": 1,
        "phase": 1,
        "digests": digests(5, 6),
        "before": np.array([0, 65_534]),
        "rows": np.array([255, 1]),
    }
    Reservation(**whole)
    with pytest.raises(ValueError, match=words):
        Reservation(**{**whole, **changes})


async def test_a_call_about_too_many_persons_is_refused() -> None:
    with pytest.raises(ValueError, match="10000"):
        await LocalStore().units("flights", 1, 1, np.zeros((MOST_PERSONS + 1, 12), dtype=np.uint8))


def test_a_reservation_shows_nobody() -> None:
    shown = repr(
        Reservation(
            dataset="flights",
            token=1,
            phase=1,
            digests=digests(5),
            before=np.array([7]),
            rows=np.array([2]),
        )
    )
    assert shown == "Reservation(dataset='flights', token=1, phase=1)"


def test_what_was_reserved_for_a_later_phase_is_not_read() -> None:
    kept = bytes.fromhex(json.loads(GOLDEN.read_text())["value"])
    assert len(kept) == VALUE_BYTES
    before, at, after = (units_before(kept + bytes(7), phase) for phase in (2, 3, 2**32 - 1))
    assert before is None
    assert at is not None
    assert at.tolist() == [65_026, 0]
    assert after is not None
    assert after.tolist() == [65_026 + 22 * 22, 0]


# Servers ----------------------------------------------------------------------------------------


@pytest.fixture
async def stores() -> Any:
    """``stores(url)``: a store that is closed at the end."""
    made: list[RedisStore] = []

    def make(url: str) -> Store:
        made.append(RedisStore.from_url(url))
        return made[-1]

    yield make
    for store in made:
        await store.close()


def plain(url: str) -> Any:
    return redis.Redis.from_url(url)


async def test_what_is_kept_of_a_person_is_frozen(make_server: Any, stores: Any, own: Any) -> None:
    """Later releases must find and read it: it is never written anew."""
    golden = json.loads(GOLDEN.read_text())
    url = make_server().url
    holder = await own(stores(url))
    person = int(golden["digest"], 16)
    with plain(url) as client:
        for phase, (before, rows) in enumerate(((0, 255), (65_025, 1), (65_026, 22)), start=1):
            await holder.store.reserve(reservation(holder, phase, {person: (before, rows)}))
            if phase < golden["phase"]:
                await holder.commit(seal=b"block")
        (bucket,) = client.keys(f"{PERSONS}*")
        assert bucket.decode() == golden["bucket"]
        assert client.hgetall(bucket) == {
            bytes.fromhex(golden["field"]): bytes.fromhex(golden["value"])
        }
        assert client.ttl(bucket) == -1
    assert await used(holder, 3, person) == [golden["before"]]


async def test_buckets_are_as_short_as_can_be(make_server: Any, stores: Any, own: Any) -> None:
    """A listpack has no pointers; a hash table takes four times as much memory."""
    url = make_server().url
    holder = await own(stores(url))
    for start in range(0, 500, 100):
        persons = {2**80 + person: (0, 1) for person in range(start, start + 100)}
        await holder.store.reserve(reservation(holder, 1, persons))
    with plain(url) as client:
        (bucket,) = client.keys(f"{PERSONS}*")
        assert client.hlen(bucket) == 500
        assert client.object("encoding", bucket) == b"listpack"
        assert client.memory_usage(bucket) / 500 < 30


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client, bucket, field: client.hset(bucket, field, b"12345678"),
        lambda client, bucket, field: client.hset(bucket, field, b""),
        lambda client, bucket, field: client.hset(bucket, field, bytes.fromhex("00000000000901")),
        lambda client, bucket, field: client.set(bucket, "something else"),
        lambda client, bucket, field: client.set("{stream-dp:flights}:spent", "something else"),
    ],
)
async def test_what_is_not_ours_is_found_before_anything_is_written(
    make_server: Any, stores: Any, own: Any, dump: Any, spoil: Any
) -> None:
    url = make_server().url
    holder = await own(stores(url))
    await holder.store.reserve(reservation(holder, 1, {5: (0, 3)}))
    with plain(url) as client:
        (bucket,) = client.keys(f"{PERSONS}*")
        (field,) = client.hkeys(bucket)
        spoil(client, bucket, field)
    before = dump(url, "{stream-dp")
    for step in (
        holder.store.reserve(reservation(holder, 1, {2**90: (0, 1), 5: (0, 3)})),
        used(holder, 1, 2**90, 5),
    ):
        with pytest.raises(CorruptState) as caught:
            await step
        assert bucket.decode() not in str(caught.value), "its name tells something of a person"
    assert dump(url, "{stream-dp") == before


async def test_persons_are_erased_in_bounded_steps_that_another_worker_goes_on_with(
    make_server: Any, stores: Any, own: Any
) -> None:
    url = make_server().url
    holder = await own(stores(url))
    ends = (3_999, 4_000, 2**20 - 1)  # of the first step, the next one, and the last one
    everywhere = {(at << 76) + 1: (0, 1) for at in (*range(0, 2**20, 2**10), *ends)}
    await holder.store.reserve(reservation(holder, 1, everywhere))
    await holder.commit(erase=True)
    steps, left = 0, []
    with plain(url) as client:
        while True:
            steps += 1
            more = await holder.store.forget_persons("flights", holder.token)
            left.append(len(client.keys(f"{PERSONS}:*")))
            if not more:
                break
            if steps % 50 == 0:  # another worker takes over
                holder = await own(stores(url))
    assert left == sorted(left, reverse=True)
    assert left[0] > 1_000, "a step is small"
    assert left[-1] == 0
    assert 200 < steps < 400


async def test_a_full_server_takes_a_reservation_whole_or_not_at_all(
    make_server: Any, stores: Any, own: Any, dump: Any
) -> None:
    url = make_server().url
    holder = await own(stores(url))
    one = reservation(holder, 1, {1 << at: (0, 2) for at in range(96)})
    before = dump(url, "{stream-dp")
    with plain(url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreRefused, match="maxmemory"):
            await holder.store.reserve(one)
        assert dump(url, "{stream-dp") == before
        client.config_set("maxmemory", 0)
    await holder.store.reserve(one)


async def test_a_killed_server_has_every_acknowledged_reservation(
    make_server: Any, stores: Any, own: Any
) -> None:
    server = make_server()
    holder = await own(stores(server.url))
    await holder.commit()
    await holder.store.reserve(reservation(holder, 1, {1 << at: (0, 2) for at in range(96)}))
    server.kill()
    server.start()
    holder = await own(stores(server.url))
    await holder.commit(seal=b"block")
    assert await used(holder, 2, *(1 << at for at in range(96))) == [4] * 96


@pytest.mark.parametrize("seed", range(2))
async def test_a_cut_file_never_has_a_seal_without_its_reservation(
    make_server: Any, stores: Any, own: Any, seed: int
) -> None:
    """Power loss: the file ends anywhere. A person may lose units, and never uses one twice."""
    chance = random.Random(seed)
    server = make_server()
    holder = await own(stores(server.url))
    await holder.commit()
    start = server.log.stat().st_size
    everybody = [1 << at for at in range(96)]
    for phase in range(1, 6):
        before = 4 * (phase - 1)
        await holder.store.reserve(
            reservation(holder, phase, dict.fromkeys(everybody, (before, 2)))
        )
        await holder.commit(seal=b"block")
    server.kill()
    end = server.log.stat().st_size
    for _ in range(8):
        damaged = server.folder.with_name("damaged")
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(server.folder, damaged)
        with max(damaged.glob("appendonlydir/*.incr.aof")).open("r+b") as file:
            file.truncate(chance.randrange(start, end))
        restarted = make_server(copy_of=damaged)
        store = stores(restarted.url)
        taken = await store.acquire("flights")
        sealed = taken.n_blocks
        found = await store.units("flights", taken.token, sealed + 1, digests(*everybody))
        assert set(found.tolist()) == {4 * sealed}
        restarted.kill()


# A Cluster --------------------------------------------------------------------------------------

SLOTS = ((0, 5_460), (5_461, 10_922), (10_923, 16_383))


def three_nodes(make_server: Any) -> list[str]:
    """URLs of three servers that share the slots."""
    servers = [make_server(cluster_enabled="yes") for _ in SLOTS]
    urls = [server.url for server in servers]
    clients = [plain(url) for url in urls]
    for client, slots in zip(clients, SLOTS, strict=True):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
    for client, server in zip(clients[1:], servers[1:], strict=True):
        bus = int(client.config_get("cluster-port")["cluster-port"])
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
    until(lambda: all(_is_whole(client) for client in clients), "the nodes did not meet")
    for client in clients:
        client.close()
    return urls


def _is_whole(client: Any) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and int(info["cluster_size"]) == len(SLOTS)


@pytest.mark.slow
async def test_a_cluster_of_three_nodes_keeps_each_data_sets_persons_on_one(
    make_server: Any, own: Any
) -> None:
    urls = three_nodes(make_server)
    client = RedisCluster.from_url(urls[0])
    store = RedisStore(client)
    persons = {1 << at: (0, 2) for at in range(96)}
    names = ("north", "east", "south", "west")
    for name in names:
        holder = await own(store, name)
        await holder.commit()
        assert await used(holder, 1, *persons) == [0] * 96
        await store.reserve(reservation(holder, 1, persons))
        await store.reserve(reservation(holder, 1, persons))
        await holder.commit(seal=b"block")
        assert await used(holder, 2, *persons) == [4] * 96
        successor = await own(store, name)
        with pytest.raises(Fenced):
            await store.reserve(reservation(holder, 2, {5: (0, 1)}))
        await store.reserve(reservation(successor, 2, {7: (0, 1)}))
    homes = []
    for url in urls:
        with plain(url) as node:
            keys = {key.decode() for key in node.scan_iter(count=1_000) if b":persons:" in key}
        homes.append({name for name in names if f"{{stream-dp:{name}}}:persons:" in str(keys)})
    assert sum(map(len, homes)) == len(names), "no data set is on two nodes"
    assert sum(map(bool, homes)) > 1, "and not all are on one"
    await successor.commit(erase=True)
    while await store.forget_persons(names[-1], successor.token):
        pass
    for url in urls:
        with plain(url) as node:
            assert not [key for key in node.scan_iter(count=1_000) if b"west}:persons" in key]
    await client.aclose()
