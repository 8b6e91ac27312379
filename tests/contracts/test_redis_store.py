"""What only a server can get wrong: lost replies, flushed scripts, unsafe settings, kills, cut files."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.errors import (
    Conflict,
    CorruptState,
    Fenced,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from stream_dp.state.ledger import verify
from stream_dp.state.redis import PARTS, RedisStore
from stream_dp.state.store import ORIGIN, Note, Place, Released, Store, Usage
from stream_dp.state.taken import TAKEN, taken_id

PREFIX = "stream-dp"


def impatient(url: str, *, retries: int = 0) -> RedisStore:
    client = redis.asyncio.Redis.from_url(
        url, retry=Retry(NoBackoff(), retries), socket_timeout=20, socket_connect_timeout=20
    )
    return RedisStore(client)


@contextmanager
def command(url: str) -> Iterator[Any]:
    with redis.Redis.from_url(url) as client:
        yield client


def key(part: str, dataset: str = "flights") -> str:
    return f"{{{PREFIX}:{dataset}}}:{part}"


@pytest.fixture
async def stores() -> Any:
    """``stores(url)``: a store that is closed at the end."""
    made: list[Any] = []

    def make(url: str, **options: Any) -> Store:
        made.append(RedisStore.from_url(url, **options))
        return made[-1]

    yield make
    for store in made:
        await store.close()


# Keys -------------------------------------------------------------------------------------------


async def test_every_key_has_our_prefix_and_no_time_to_live(
    make_server: Any, stores: Any, own: Any, dump: Any
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    await owner.commit(answers={"before": b""}, batches={"before": b""})
    await owner.commit(
        rotate=True,
        meta={"a": "b"},
        cursor={"a": 1},
        answers={"a": b""},
        batches={"a": b""},
        taken=[bytes(16)],
        pending=[b"row"],
        seal=b"block",
        transcript=[b"m"],
        verified={b"a": b""},
        intent=b"look",
        outbox=b"records",
        vault={"a": b"secret"},
    )
    await store.mark(watermarks={"a": 1})
    await store.partitions("a", 1)
    await store.constant("a", b"")
    await store.attempts("a")
    await store.hold("a", [1])
    await store.note_listed("t:0", Note(1), ["flights"])
    with command(url) as client:
        assert client.dbsize() == len(dump(url, f"{{{PREFIX}"))
    contents = dump(url, f"{{{PREFIX}")
    of_data_set = {key(part).encode() for part in PARTS}
    parts = (b"datasets", b"watermarks", b"partitions", b"constants", b"attempts", b"hands")
    shared = {b"{stream-dp}:" + part for part in (*parts, b"listed")}
    assert contents.keys() == of_data_set | shared
    assert {ttl for _, ttl, _ in contents.values()} == {-1}


async def test_state_of_the_release_before_the_vault_has_an_empty_one(
    make_server: Any, stores: Any, own: Any
) -> None:
    url = make_server().url
    owner = await own(stores(url))
    await owner.commit(seal=b"block")
    with command(url) as client:
        assert not client.exists(key("vault"))
    owner = await own(stores(url))
    assert (await owner.store.acquire("flights")).vault == {}


async def test_state_of_the_release_before_the_journal_stands_at_its_origin_and_goes_on(
    make_server: Any, stores: Any, own: Any
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    await owner.commit(outbox=b"\x02")
    with command(url) as client:
        assert client.hdel(key("control"), "trail") == 1
    at = (await store.places(lambda _: "t:0"))["flights"]
    assert (at.seq, at.trail, at.note) == (1, ORIGIN, Note())
    await store.note("t:0", {"flights": Note(4, 1)}, {"flights": at})
    assert (await store.places(lambda _: "t:0"))["flights"].note == Note(4, 1)
    owner = await own(stores(url))
    assert owner.trail == ORIGIN
    with pytest.raises(Conflict, match="another history"):
        await owner.store.commit(owner.transition(trail=bytes([7]) * 32))
    with pytest.raises(Conflict, match="not retired"):
        await store.forget_persons("flights", owner.token)
    behind = (await owner.commit()).new_trail
    assert (await store.acquire("flights")).trail == behind != ORIGIN


@pytest.mark.parametrize("part", PARTS)
async def test_a_key_of_another_type_is_found_before_anything_is_written(
    make_server: Any, stores: Any, own: Any, dump: Any, part: str
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    await owner.commit(intent=b"look", seal=b"block")
    with command(url) as client:
        client.delete(key(part))
        client.set(key(part), "something else")
    before = dump(url, f"{{{PREFIX}")
    for step in (
        store.commit(
            owner.transition(
                meta={"a": "b"},
                cursor={"a": 1},
                answers={"a": b""},
                batches={"a": b""},
                taken=[bytes(16)],
                pending=[b"row"],
                seal=b"block",
                charges=[Charge(0, 1)],
                transcript=[b"m"],
                verified={b"a": b""},
                settles=[1],
                outbox=b"records",
                vault={"a": b"secret"},
            )
        ),
        store.acquire("flights"),
    ):
        with pytest.raises(CorruptState, match="not ours"):
            await step
    assert dump(url, f"{{{PREFIX}") == before


@pytest.mark.parametrize(
    ("part", "field", "value", "changes"),
    [
        ("spent", "0:rho", "1.5", {"charges": [Charge(0, 1)]}),
        ("spent", "0:delta", "", {"charges": [Charge(0, 1)]}),
        ("spent", "0:rho", "-1", {"charges": [Charge(0, 1)]}),
        ("spent", "0:rho", "9" * 17, {"charges": [Charge(0, 1)]}),
        ("spent", "extra", "1", {"meta": {"a": "b"}}),
        ("cursor", "queries:0", "x", {"cursor": {"queries:0": 1}}),
    ],
)
async def test_a_number_that_is_none_is_found_before_anything_is_written(
    make_server: Any,
    stores: Any,
    own: Any,
    dump: Any,
    part: str,
    field: str,
    value: str,
    changes: dict[str, Any],
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    await owner.commit(seal=b"block")
    with command(url) as client:
        client.hset(key(part), field, value)
    before = dump(url, f"{{{PREFIX}")
    with pytest.raises(CorruptState, match=part):
        await store.commit(owner.transition(pending=[b"row"], **changes))
    assert dump(url, f"{{{PREFIX}") == before


async def test_two_tokens_that_are_one_floating_point_number_are_two_owners(
    make_server: Any, stores: Any, own: Any
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    with command(url) as client:
        client.hset(key("control"), "token", 2**53)
    assert (await store.acquire("flights")).token == 2**53 + 1
    with pytest.raises(Fenced):
        await store.commit(replace(owner.transition(), token=2**53))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("control", "token", "x"),
        ("control", "token", "9" * 19),
        ("control", "head", "00"),
        ("control", "head", "zz"),
        ("control", "seq", "x"),
        ("cursor", "a", "x"),
        ("intents", "x", "x"),
        ("spent", "5:rho", "1"),
    ],
)
async def test_a_snapshot_that_does_not_decode_is_said_to_be_corrupt(
    make_server: Any, stores: Any, own: Any, part: str, field: str, value: str
) -> None:
    url = make_server().url
    store = stores(url)
    await (await own(store)).commit(seal=b"block", cursor={"a": 1})
    with command(url) as client:
        client.hset(key(part), field, value)
        if part == "spent":
            client.hset(key(part), "6:rho", value)
    with pytest.raises(CorruptState):
        await store.acquire("flights")


async def test_a_takeover_while_a_snapshot_is_read_is_noticed(make_server: Any, own: Any) -> None:
    """A commit of the later owner may have torn what was read."""
    url = make_server().url

    class Interrupted(redis.asyncio.Redis):
        async def execute_command(self, *arguments: Any, **options: Any) -> Any:
            if arguments[:2] == ("HGETALL", key("verified")):
                await later.acquire("flights")
            return await super().execute_command(*arguments, **options)

    later = RedisStore.from_url(url)
    client = Interrupted.from_url(url)
    try:
        with pytest.raises(Fenced):
            await RedisStore(client).acquire("flights")
        assert (await later.acquire("flights")).token == 3
    finally:
        await later.close()
        await client.aclose()


# Clients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_both_protocol_versions_work(make_server: Any, own: Any, protocol: int) -> None:
    client = redis.asyncio.Redis.from_url(make_server().url, protocol=protocol)
    store = RedisStore(client)
    owner = await own(store)
    await owner.commit(meta={"a": "b"}, verified={b"a": b"b"}, cursor={"a": 1}, seal=b"block")
    snapshot = await store.acquire("flights")
    assert snapshot.meta == {"a": "b"}
    assert snapshot.verified == {b"a": b"b"}
    assert await store.problems() == ()
    connection = await client.client_id()
    await store.close()
    assert await client.client_id() == connection, "the one who opened it closes it"
    await client.aclose()


async def test_it_says_what_it_has_used_of_its_own_limit_or_of_its_host(
    make_server: Any, own: Any, stores: Any
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    before = await store.usage()
    assert not before.limited
    assert before.limit > before.memory > 0
    assert before.rewritten
    with command(url) as client:
        client.config_set("maxmemory", 1 << 30)
    await owner.commit(answers={"a": b"x" * 1_000_000}, pending=[b"y" * 500_000])
    after = await store.usage()
    assert after.limited
    assert after.limit == 1 << 30
    assert after.share == after.memory / after.limit
    assert 1_500_000 <= after.memory - before.memory < 10_000_000  # with buffers of clients
    assert after.disk - before.disk >= 1_500_000
    sizes = await store.sizes("flights")
    assert sizes["answers"] >= 1_000_000
    assert 500_000 <= sizes["pending"] < 1_000_000
    assert "blocks" not in sizes
    assert await store.sizes("unknown") == {}


async def test_of_a_cluster_the_node_with_the_least_left_is_told(monkeypatch: Any) -> None:
    class Node:
        def __init__(self, used: int, limit: int, rewrite: str) -> None:
            self.info = {
                "used_memory": str(used),
                "mem_not_counted_for_evict": "10",
                "maxmemory": str(limit),
                "aof_current_size": "5",
                "aof_last_bgrewrite_status": rewrite,
            }

        async def execute_command(self, _: str) -> dict[str, str]:
            return self.info

    async def nodes(_: RedisStore) -> list[Any]:
        return [Node(510, 10_000, "ok"), Node(410, 500, "err"), Node(610, 1_000, "ok")]

    monkeypatch.setattr(RedisStore, "_nodes", nodes)
    store = RedisStore.from_url("redis://127.0.0.1:1")
    assert await store.usage() == Usage(400, 500, limited=True, disk=5, rewritten=False)
    await store.close()


def form_cluster(url: str) -> None:
    with command(url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    await_cluster(url)


def await_cluster(url: str) -> None:
    with command(url) as client:
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.01)


async def test_a_cluster_works_as_one_server_does(make_server: Any, own: Any) -> None:
    server = make_server(cluster_enabled="yes", cluster_require_full_coverage="no")
    form_cluster(server.url)
    client = RedisCluster.from_url(server.url)
    store = RedisStore(client)
    assert await store.problems() == ()
    for name in ("flights", "weather"):
        owner = await own(store, name)
        await owner.commit(pending=[b"row"], outbox=b"records", answers={"a": b"b"})
        assert (await store.acquire(name)).pending == (b"row",)
        with pytest.raises(Fenced):
            await owner.commit()
        assert await store.answers({name: ["a"]}) == {(name, "a"): b"b"}
    assert await store.datasets() == ("flights", "weather")
    assert {"answers", "pending"} <= (await store.sizes("weather")).keys()
    assert (await store.usage()).memory > 0
    await store.mark(watermarks={"queries:0": 5})
    assert await store.watermarks() == {"queries:0": 5}
    assert await store.partitions("queries", 5) == 5
    assert await store.attempts("x") == 1
    owners = [await own(store, name) for name in ("flights", "weather")]
    with command(server.url) as plain:
        plain.config_set("appendfsync", "no")
        plain.script_flush()
    commits = [owner.transition(answers={"new": b"c"}) for owner in owners]
    assert await store.commit_all(commits) == [None, None]
    assert len(await store.answers({owner.dataset: ["new"] for owner in owners})) == 2
    released = {"flights": Released(owners[0].token, 1), "weather": Released(1, 1)}
    assert await store.mark(released, {"a": 1}) == ("weather",)
    assert await store.hold("one", [1]) == set()
    places = await store.places("t:{}".format)
    assert {name: at.seq for name, at in places.items()} == {"flights": 2, "weather": 2}
    noted = {name: Note(7, 1, 2) for name in places}
    await store.note("t:0", noted, places)
    assert {at.note for at in (await store.places(lambda _: "t:0")).values()} == {Note(7, 1, 2)}
    await store.note_listed("t:0", Note(7, 1), ["flights", "weather", "trains"])
    assert await store.listed("t:0") == Note(7, 1)
    taken = taken_id("gone")
    owners[0].moved(commits[0])
    await owners[0].commit(taken=[taken])
    asked = {owner.dataset: ["gone"] for owner in owners}
    assert await store.batches(asked) == {("flights", "gone"): TAKEN}
    kept = {"a": b"b", "new": b"c"}
    assert await store.outcomes("flights") == (kept, {}, {}, {}, frozenset({taken}))
    assert len(await store.problems()) == 1
    assert (await store.acquire("flights")).token == 4
    await store.rebuild("flights", 5, seq=0, trail=bytes(32))
    assert (await store.acquire("flights", token=5)).outbox == ()
    await client.aclose()


async def test_a_client_that_decodes_is_refused() -> None:
    client = redis.asyncio.Redis(decode_responses=True)
    with pytest.raises(ValueError, match="decode_responses"):
        RedisStore(client)
    await client.aclose()


@pytest.mark.parametrize("prefix", ["", "a{b", "a}"])
async def test_a_prefix_that_would_break_the_hash_tag_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        RedisStore.from_url("redis://127.0.0.1:1", prefix=prefix)


# Replies that do not come -----------------------------------------------------------------------


class LossyProxy:
    """Between client and server; loses the next ``lose`` replies to a script, with their connection."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        self.lost = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, there = await asyncio.open_connection("127.0.0.1", self._target)
        doomed = False

        async def ask() -> None:
            nonlocal doomed
            while data := await client.read(1 << 20):
                if b"EVALSHA" in data and self.lose:
                    self.lose -= 1
                    doomed = True
                there.write(data)
            there.close()

        async def reply() -> None:
            while data := await server.read(1 << 20):
                if doomed:
                    self.lost += 1
                    break
                back.write(data)
            back.close()

        asking = asyncio.create_task(ask())
        try:
            await reply()
        finally:
            asking.cancel()
            there.close()

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()


async def test_a_commit_whose_reply_is_lost_happens_once(
    make_server: Any, own: Any, stores: Any
) -> None:
    """The client library sends it again on its own."""
    server = make_server()
    direct = stores(server.url)
    async with LossyProxy(server.port) as proxy:
        store = impatient(proxy.url, retries=3)
        owner = await own(store)
        await owner.commit(seal=b"block", outbox=b"records")
        for lost in (1, 2, 3):
            proxy.lose = lost
            await owner.commit(answers={f"a{lost}": b"x"}, pending=[b"row"], charges=[Charge(0, 7)])
            await asyncio.sleep(0)
        proxy.lose = 1
        await store.mark({"flights": Released(owner.token, 1)})
        proxy.lose = 1
        snapshot = await store.acquire("flights")
        assert proxy.lost == 8
        assert snapshot.token == 3, (
            "a take-over that was sent twice is two, and only the last counts"
        )
        assert snapshot.seq == owner.seq == 4
        assert snapshot.spent == ((21, 0),)
        assert snapshot.pending == (b"row",) * 3
        assert snapshot.outbox == ()
        assert len(await direct.ledger("flights")) == 4
        await store._client.aclose()


async def test_a_lost_reply_says_unknown_and_the_same_commit_may_be_repeated(
    make_server: Any, own: Any
) -> None:
    server = make_server()
    async with LossyProxy(server.port) as proxy:
        store = impatient(proxy.url)
        owner = await own(store)
        await owner.commit(seal=b"block")
        transition = owner.transition(answers={"a": b"x"}, charges=[Charge(0, UNITS)])
        proxy.lose = 2
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="unknown") as caught:
                await store.commit(transition)
            assert caught.value.retriable
        await store.commit(transition)
        owner.moved(transition)
        await owner.commit()
        assert (await store.acquire("flights")).spent == ((UNITS, 0),)
        await store._client.aclose()


async def test_a_server_that_is_gone_is_unavailable_and_not_an_error_of_ours(
    make_server: Any, own: Any
) -> None:
    server = make_server()
    store = impatient(server.url)
    owner = await own(store)
    await owner.commit()
    server.kill()
    for call in (
        store.problems(),
        store.usage(),
        store.sizes("flights"),
        store.datasets(),
        store.acquire("flights"),
        store.commit(owner.transition()),
        store.answers({"flights": ["a"]}),
        store.ledger("flights"),
        store.counts("flights"),
        store.mark({"flights": Released(1, 1)}),
        store.watermarks(),
        store.mark(watermarks={"a": 1}),
        store.partitions("a", 1),
        store.constant("a", b""),
        store.attempts("a"),
        store.clear_attempts("a"),
        store.hold("a", [1]),
        store.cursors("flights", ["a"]),
        store.cursors("flights"),
        store.outcomes("flights"),
        store.places(str),
        store.note("t:0", {"flights": Note(1)}, {"flights": Place(1, 1, bytes(32))}),
        store.listed("t:0"),
        store.note_listed("t:0", Note(1), []),
        store.rebuild("flights", 2, seq=0, trail=bytes(32)),
    ):
        with pytest.raises(StoreUnavailable):
            await call
    server.start()
    await owner.commit()
    await store._client.aclose()


async def test_a_server_that_forgot_the_scripts_gets_them_again(
    make_server: Any, own: Any, stores: Any
) -> None:
    url = make_server().url
    owner = await own(stores(url))
    with command(url) as client:
        for _ in range(3):
            client.script_flush()
            await owner.commit(outbox=b"records")
            client.script_flush()
            await owner.store.mark({"flights": Released(owner.token, owner.seq)})
            client.script_flush()
            await owner.store.mark(watermarks={"a": owner.seq})
        client.script_flush()
        assert (await owner.store.acquire("flights")).seq == 3
        owner.token += 1
        await owner.commit()
        # Known again: sent by their digest alone.
        client.config_resetstat()
        await owner.commit()
        assert "cmdstat_eval" not in client.info("commandstats")


# Servers that will not --------------------------------------------------------------------------


async def test_a_full_server_takes_a_commit_whole_or_not_at_all(
    make_server: Any, own: Any, stores: Any, dump: Any
) -> None:
    url = make_server().url
    owner = await own(stores(url))
    await owner.commit(seal=b"block")
    before = dump(url, f"{{{PREFIX}")
    with command(url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreRefused, match="maxmemory") as caught:
            await owner.store.commit(
                owner.transition(pending=[b"row"] * 100, charges=[Charge(0, 1)], settles=[])
            )
        assert not caught.value.retriable
        assert dump(url, f"{{{PREFIX}") == before
        client.config_set("maxmemory", 0)
    await owner.commit(pending=[b"row"] * 100, charges=[Charge(0, 1)])


async def test_a_replica_is_refused_in_words(
    make_server: Any, own: Any, stores: Any, dump: Any
) -> None:
    url = make_server().url
    store = stores(url)
    owner = await own(store)
    await owner.commit()
    before = dump(url, f"{{{PREFIX}")
    with command(url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreRefused, match="primary"):
            await owner.commit()
        assert any("replica" in problem for problem in await store.problems())
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert dump(url, f"{{{PREFIX}") == before
    await owner.commit()


async def test_wrong_passwords_and_missing_rights_are_refused_in_words(
    make_server: Any, own: Any, stores: Any
) -> None:
    server = make_server()
    with command(server.url) as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+info")
    address = f"127.0.0.1:{server.port}/0"
    with pytest.raises(StoreRefused, match="password"):
        await stores(f"redis://reader:wrong@{address}").acquire("flights")
    with pytest.raises(StoreRefused, match="EVALSHA"):
        await stores(f"redis://reader:secret@{address}").acquire("flights")


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ("MISCONF Errors writing to the AOF file: No space left", StoreRefused, "disk"),
        ("NOREPLICAS Not enough good replicas to write.", StoreRefused, "replicas"),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreRefused, "maxmemory"),
        ("READONLY You can't write against a read only replica.", StoreRefused, "primary"),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable, "unknown"),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable, "unknown"),
        ("WRONGTYPE Operation against a key", CorruptState, "restore"),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'a row'", StoreError, "ERR"),
        ("BUSY Redis is busy running a script.", StoreError, "BUSY"),
    ],
)
async def test_what_a_server_refuses_is_said_in_our_words(
    reply: str, kind: type[StoreError], words: str
) -> None:
    """A server may quote what it was sent; we never do."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            for _ in range(data.count(b"\r\n*") + 1):
                writer.write(f"-{reply}\r\n".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = redis.asyncio.Redis(
        port=port, protocol=2, retry=Retry(NoBackoff(), 0), driver_info=None
    )
    with pytest.raises(kind, match=words) as caught:
        await RedisStore(client).ledger("flights")
    assert type(caught.value) is kind
    assert "a row" not in str(caught.value)
    await client.aclose()
    server.close()


# Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "no"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxmemory-policy", "volatile-ttl"),
    ],
)
async def test_an_unsafe_setting_is_found_while_running_and_its_fix_mends_it(
    make_server: Any, stores: Any, setting: str, value: str
) -> None:
    url = make_server().url
    store = stores(url)
    assert await store.problems() == ()
    with command(url) as client:
        client.config_set(setting, value)
        (problem,) = await store.problems()
        assert setting in problem
        assert value in problem
        fix = re.search(r"`redis-cli (CONFIG SET \S+ \S+)`", problem)
        assert fix is not None
        client.execute_command(*fix[1].split())
        await_rewrite(client)
    assert await store.problems() == ()


@pytest.mark.parametrize(
    ("setting", "value"), [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")]
)
async def test_a_setting_that_lets_the_last_commits_go_is_none(
    make_server: Any, stores: Any, setting: str, value: str
) -> None:
    url = make_server().url
    with command(url) as client:
        client.config_set(setting, value)
    assert await stores(url).problems() == ()


def await_rewrite(client: Any) -> None:
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.01)


async def test_a_file_switched_on_is_a_problem_until_it_is_complete(
    make_server: Any, stores: Any
) -> None:
    """Until then a crash forgets what was acknowledged, though the server says it is enabled."""
    url = make_server(appendonly="no", rdb_key_save_delay="5000").url
    watching = stores(url)
    assert len(await watching.problems()) == 1
    with command(url) as client:
        for number in range(100):
            client.set(f"other-{number}", "x")
        client.config_set("appendonly", "yes")
        for store in (watching, stores(url)):
            (problem,) = await store.problems()
            assert "not complete" in problem
        await_rewrite(client)
        assert await watching.problems() == ()
        # An ordinary rewrite is none: the file before it is kept until it is done.
        client.bgrewriteaof()
        assert client.info("persistence")["aof_rewrite_in_progress"]
        assert await watching.problems() == await stores(url).problems() == ()


async def test_several_problems_are_told_at_once(make_server: Any, stores: Any) -> None:
    url = make_server(appendonly="no", appendfsync="no", maxmemory_policy="allkeys-lru").url
    problems = await stores(url).problems()
    assert [problem.split()[0] for problem in problems] == [
        "appendonly",
        "appendfsync",
        "maxmemory-policy",
    ]


async def test_a_server_that_hides_its_settings_must_be_vouched_for(
    make_server: Any, stores: Any
) -> None:
    server = make_server()
    with command(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-config")
        url = f"redis://app:secret@127.0.0.1:{server.port}/0"
        (problem,) = await stores(url).problems()
        assert "CONFIG" in problem
        assert "STREAM_DP_REDIS_DURABILITY=declared" in problem
        declared = stores(url, durability_declared=True)
        assert await declared.problems() == ()
        # What it does not hide still counts.
        client.config_set("maxmemory-policy", "allkeys-lru")
        (problem,) = await declared.problems()
        assert "maxmemory-policy" in problem


# Crashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_a_killed_server_has_every_acknowledged_commit(
    make_server: Any, own: Any, seed: int
) -> None:
    server = make_server()
    store = impatient(server.url)
    owner = await own(store)
    await owner.commit(seal=b"block")

    chance = random.Random(seed)
    warm = asyncio.Event()
    after = chance.randrange(5, 60)

    async def work() -> None:
        while True:
            number = owner.seq
            if number == after:
                warm.set()
            await owner.commit(
                answers={f"a{number}": b"%d" % number}, charges=[Charge(0, 1)], outbox=b"x" * 5_000
            )

    working = asyncio.create_task(work())
    await warm.wait()
    await asyncio.sleep(chance.uniform(0, 0.01))  # anywhere within a commit
    await asyncio.get_running_loop().run_in_executor(None, server.kill)
    with pytest.raises(StoreUnavailable):
        await working
    acknowledged = owner.seq
    assert acknowledged >= after
    server.start()
    snapshot = await store.acquire("flights")
    # The commit in flight may have happened; none before it may be missing.
    assert snapshot.seq in (acknowledged, acknowledged + 1)
    assert snapshot.spent == ((snapshot.seq - 1, 0),)
    assert len(snapshot.outbox) == snapshot.seq - 1
    stored = await store.answers({"flights": [f"a{i}" for i in range(1, snapshot.seq)]})
    assert [*stored.values()] == [b"%d" % i for i in range(1, snapshot.seq)]
    entries = await store.ledger("flights")
    assert verify(entries, head=snapshot.head) == snapshot.head
    await store._client.aclose()


@pytest.mark.parametrize("seed", range(3))
async def test_a_cut_file_holds_a_whole_number_of_commits(
    make_server: Any, own: Any, stores: Any, dump: Callable[..., Any], seed: int
) -> None:
    """Power loss: the file ends anywhere. What it says is the state after the last whole commit, no other."""
    chance = random.Random(seed)
    server = make_server()
    store = stores(server.url)
    owner = await own(store)
    states = [(server.log.stat().st_size, dump(server.url, key("")[:-1]))]

    def note() -> None:
        states.append((server.log.stat().st_size, dump(server.url, key("")[:-1])))

    for number in range(12):
        await owner.commit(
            meta={"phase": str(number)},
            cursor={"queries:0": number},
            answers={f"a{number}-{i}": chance.randbytes(50) for i in range(3)},
            batches={f"b{number}": b"\r\n*1\r\n"},
            pending=[chance.randbytes(chance.randrange(300))],
            seal=chance.randbytes(200) if number % 3 == 0 else None,
            charges=[Charge(0, number + 1, 1)],
            transcript=[b"m"],
            verified={b"%d" % number: b"v"},
            intent=b"look" if number % 2 == 0 else None,
            settles=[number] if number % 2 else [],
            outbox=b"records",
            vault={f"v{number % 5}": b"secret" if number % 4 else b""},
        )
        note()
        await store.mark({"flights": Released(owner.token, number)})
        note()
    owner = await own(store)
    note()
    await owner.commit(erase=True)
    note()
    server.kill()

    end = states[-1][0]
    assert server.log.stat().st_size == end, "an acknowledged commit is in the file at once"
    # Half of the cuts fall near the end of a commit, where it is closest to whole.
    cuts = [chance.randrange(states[0][0], end) for _ in range(6)]
    cuts += [max(1, chance.choice(states)[0] - chance.randrange(30)) for _ in range(6)]
    for cut in cuts:
        damaged = server.folder.with_name("damaged")
        copy_cut(server, damaged, cut)
        restarted = make_server(copy_of=damaged)
        expected = [state for size, state in states if size <= cut]
        if expected:
            assert dump(restarted.url, key("")[:-1]) == expected[-1]
        restarted.kill()


def copy_cut(server: Any, target: Any, cut: int) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(server.folder, target)
    log = max(target.glob("appendonlydir/*.incr.aof"))
    with log.open("r+b") as file:
        file.truncate(cut)


async def test_an_older_copy_of_the_server_is_a_conflict_for_who_went_on(
    make_server: Any, own: Any, stores: Any
) -> None:
    """A restore that a live worker notices by itself; the journal is for the rest."""
    server = make_server()
    owner = await own(stores(server.url))
    await owner.commit(seal=b"block")
    server.kill()
    older = server.folder.with_name("older")
    shutil.copytree(server.folder, older)
    server.start()
    await owner.commit(charges=[Charge(0, UNITS)])
    server.kill()
    shutil.rmtree(server.folder)
    shutil.copytree(older, server.folder)
    server.start()
    with pytest.raises(Conflict):
        await owner.store.commit(owner.transition(charges=[Charge(0, 1)]))


async def test_ids_that_are_taken_and_are_not_ours_are_found_and_nothing_is_written(
    make_server: Any, stores: Any, own: Any, dump: Any
) -> None:
    url = make_server().url
    owner = await own(stores(url))
    taken = taken_id("gone")
    await owner.commit(taken=[taken])
    for field, value in ((taken[:2], taken[2:] + b"x"), (b"n", b"many")):
        with command(url) as client:
            before = client.hget(key("taken"), field)
            client.hset(key("taken"), field, value)
        kept = dump(url, f"{{{PREFIX}")
        other = taken[:2] + bytes(14)
        with pytest.raises(CorruptState, match="taken holds something that is not ours"):
            await owner.store.commit(owner.transition(taken=[other]))
        if field != b"n":
            for step in (
                owner.store.batches({"flights": ["gone"]}),
                owner.store.taken("flights", [other]),
                owner.store.outcomes("flights"),
            ):
                with pytest.raises(CorruptState, match="taken holds something"):
                    await step
        assert dump(url, f"{{{PREFIX}") == kept
        with command(url) as client:
            client.hset(key("taken"), field, before)
    await owner.commit(taken=[other])


async def test_ids_that_are_taken_lie_close_together(
    make_server: Any, stores: Any, own: Any
) -> None:
    url = make_server().url
    owner = await own(stores(url))
    for start in range(0, 20_000, 2_000):
        await owner.commit(taken=[taken_id(f"{start + n}") for n in range(2_000)])
    sizes = await owner.store.sizes("flights", samples=0)
    assert sizes["taken"] / 20_000 < 70, "with its outcome one takes two hundred and more"
    assert len((await owner.store.outcomes("flights")).taken) == 20_000
