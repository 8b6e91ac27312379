from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.cli import doctor
from stream_dp.cli.connection import unreachable
from stream_dp.client import Query
from stream_dp.client.topics import TopicState, describe_topics
from stream_dp.embedded import ports
from stream_dp.embedded.valkey import ValkeyServer
from stream_dp.messages import INPUTS, PRIVATE, TOPICS, Definition
from stream_dp.pipeline.closing import FOR_LIFE
from stream_dp.pipeline.health import MOVED
from stream_dp.state.ledger import GENESIS
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import Transition
from tests.contracts.conftest import dump_server
from tests.pipeline.world import definition as definition_of
from tests.signing import Issuer
from tests.waiting import until

pytestmark = pytest.mark.kafka

Examine = Callable[..., dict[str, list[tuple[str, str]]]]


@pytest.fixture
def examine(run: Callable[..., Any], deployment: Any) -> Examine:
    """``examine(...)``: findings by health, each with its fix; the exit code must fit to them."""

    def examine(*flags: str, **other: str) -> dict[str, list[tuple[str, str]]]:
        options = {
            "bootstrap-servers": deployment.bootstrap_servers,
            "redis-url": deployment.redis_url,
            "topic-prefix": deployment.prefix,
            **{name.replace("_", "-"): value for name, value in other.items()},
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        ended = run("doctor", "--json", *flags, *words)
        found: dict[str, list[tuple[str, str]]] = {"good": [], "note": [], "bad": []}
        for line in ended.out.splitlines():
            finding = json.loads(line)
            found[finding["health"]].append((finding["finding"], finding["fix"]))
        assert ended.code == (1 if found["bad"] else 0), ended.err
        return found

    return examine


@pytest.fixture
def admin(kafka_server: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka_server)
    yield client
    client.close()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[str]:
    """A store whose settings a test may spoil."""
    server = ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log")
    server.start()
    yield server.url
    server.stop()


def test_a_data_set_that_was_exported_is_no_fault_and_what_is_for_life_is_not_closed() -> None:
    moved = doctor._stopped("people", MOVED)
    assert (moved.health.value, moved.fix) == ("note", "")
    lost = "the journal was cut. Restore Redis and run `stream-dp journal mend --dataset people`"
    closed = doctor._stopped("people", f"{lost}, or run `stream-dp dataset close people`")
    assert closed.health.value == "bad"
    assert closed.fix.endswith("without one, run: stream-dp dataset close people")
    for_life = doctor._stopped("people", f"{lost}. {FOR_LIFE}")
    assert for_life.health.value == "bad"
    assert for_life.fix.endswith("stream-dp journal mend --dataset people")


def record(deployment: Any) -> None:
    """What a worker notes in the store when it starts for the first time."""

    async def note() -> None:
        store = RedisStore.from_url(deployment.redis_url, prefix=deployment.prefix.rstrip("."))
        for role in INPUTS:
            await store.partitions(deployment.topics.name(role), 2)
        await store.close()

    asyncio.run(note())


def test_a_good_setup_is_called_good_and_nothing_is_written(
    examine: Examine, deployment: Any
) -> None:
    found = examine()
    assert found["bad"] == []
    good = "; ".join(text for text, _ in found["good"])
    assert "has the packages it was tested with" in good
    assert f"answers at {deployment.bootstrap_servers}" in good
    assert f"all {len(TOPICS)} topics exist; the inputs have 2 partitions each" in good
    assert "the settings of Redis are safe (appendonly, noeviction)" in good
    ((note, fix),) = found["note"]
    assert "no worker runs" in note
    assert fix == "run `stream-dp worker` or `stream-dp up`"
    with redis.Redis.from_url(deployment.redis_url) as client:
        assert client.keys(f"*{deployment.prefix.rstrip('.')}*") == []


def test_tokens_need_keys_and_times_that_no_sender_chooses(
    examine: Examine,
    deployment: Any,
    admin: KafkaAdminClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    issuer = Issuer(tmp_path)
    monkeypatch.setenv("STREAM_DP_IDENTITY", "required")
    assert "STREAM_DP_IDENTITY_KEYS: it is missing" in str(examine()["bad"])
    monkeypatch.setenv("STREAM_DP_IDENTITY_KEYS", str(issuer.file))
    found = examine()
    assert ("queries need a signed token; they are verified with 1 key", "") in found["good"]
    assert found["bad"] == []
    name = deployment.topics.name("queries")
    dated = {"message.timestamp.type": "CreateTime"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, dated)])
    found = examine()
    fixes = [fix for text, fix in found["bad"] if "senders choose the times" in text]
    assert fixes == ["stream-dp topics create"]


def test_rows_on_a_topic_alone_need_its_replicas(
    examine: Examine, deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"the rows of phases are on {deployment.prefix}blocks alone"
    assert not any(text in one for found in examine().values() for one, _ in found)
    monkeypatch.setenv("STREAM_DP_BLOCKS", "topic")
    note, fix = next(one for one in examine()["note"] if text in one[0])
    assert note.endswith("which has 1 replica: a lost disk can lose them")
    assert "three replicas" in fix
    servers = Broker(deployment.bootstrap_servers)
    there = describe_topics(servers, deployment.topics)["blocks"]
    found = doctor._rows_on_topic(replace(there, replicas=3))
    assert (found.health.value, found.fix) == ("good", "")


def test_a_source_whose_producers_choose_its_times_is_noted_by_the_calendar(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    topic = f"{deployment.prefix}shop"
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    place = {f"source {topic}@one:0": 7, f"source {topic}@two:0": 7, "producer shop": 3}

    def notes() -> list[tuple[str, str]]:
        return [one for one in examine()["note"] if "message.timestamp.type" in one[0]]

    for name, phase in (("by-day", {"every": "1 day"}), ("by-rows", {})):
        defined = definition_of(name, phase={"min_rows": 100, **phase})
        deployment.produce("catalog", defined, key=name)
        with redis.Redis.from_url(deployment.redis_url) as client:
            client.hset(f"{{{deployment.prefix.rstrip('.')}:{name}}}:cursor", mapping=place)
    ((text, fix),) = notes()
    assert text.startswith(
        f"by-day: {topic} has message.timestamp.type CreateTime: its producers choose"
    )
    assert fix.startswith(f"set message.timestamp.type=LogAppendTime for {topic}")
    dated = {"message.timestamp.type": "LogAppendTime"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dated)])
    assert notes() == []


def test_a_data_set_that_nobody_can_serve_is_bad_also_for_status(
    examine: Examine, deployment: Any, run: Callable[..., Any]
) -> None:
    reason = {"code": "stopped", "message": "the journal was cut"}
    event = {"version": 1, "dataset": "people", "event": "stopped", "reason": reason}
    deployment.produce("events", event, key="people")
    assert "people is stopped: the journal was cut" in dict(examine()["bad"])
    servers = ("--bootstrap-servers", deployment.bootstrap_servers)
    ended = run("status", *servers, "--topic-prefix", deployment.prefix)
    assert "people is stopped: the journal was cut" in ended.err
    healed = {"version": 1, "dataset": "people", "event": "healed", "commits": 3}
    deployment.produce("events", healed, key="people")
    assert examine()["bad"] == []


def test_redis_that_can_forget_is_bad_and_each_setting_has_its_fix(
    examine: Examine, own_valkey: str
) -> None:
    with redis.Redis.from_url(own_valkey) as client:
        client.config_set("appendonly", "no")
        client.config_set("maxmemory-policy", "allkeys-lru")
    faults = dict(examine(redis_url=own_valkey)["bad"])
    appendonly = next(text for text in faults if text.startswith("appendonly is no"))
    assert "CONFIG SET appendonly yes" in faults[appendonly]
    eviction = next(text for text in faults if text.startswith("maxmemory-policy is allkeys-lru"))
    assert "CONFIG SET maxmemory-policy noeviction" in faults[eviction]


def test_it_says_what_redis_has_used_and_by_what(examine: Examine, own_valkey: str) -> None:
    async def fill() -> None:
        store = RedisStore.from_url(own_valkey, prefix="stream-dp")
        token = (await store.acquire("flights")).token
        await store.commit(
            Transition(
                dataset="flights",
                token=token,
                seq=0,
                head=GENESIS,
                new_head=GENESIS,
                definition=b"x",
                answers={"a": b"x" * 3_000_000},
            )
        )
        await store.close()

    def said(found: list[tuple[str, str]]) -> tuple[str, str]:
        (one,) = [one for one in found if one[0].startswith("Redis uses ")]
        return one

    asyncio.run(fill())
    options = {"redis_url": own_valkey, "topic_prefix": "stream-dp."}
    text, _ = said(examine(**options)["good"])
    assert "of its host's memory, as it has no maxmemory" in text
    assert "it does not tell how much disk is free" in text
    with redis.Redis.from_url(own_valkey) as client:
        client.config_set("maxmemory", 5_000_000)
    found = examine(**options)
    text, fix = said(found["note"])
    assert re.search(r"Redis uses [\d.]+ MB of memory, \d\d\.\d\d% of its limit", text)
    assert "docs/capacity.md" in fix
    (parts,) = [text for text, _ in found["good"] if text.startswith("flights: about ")]
    assert re.search(r"about 3 MB of Redis: answers 3 MB, ", parts)


def test_servers_that_do_not_answer_are_named_and_the_rest_is_still_checked(
    examine: Examine,
) -> None:
    nobody = f"127.0.0.1:{ports.choose('nobody', None)}"
    found = examine(bootstrap_servers=nobody)
    ((fault, fix),) = found["bad"]
    assert fault == f"no Kafka broker answers at {nobody} (Connection refused)"
    assert fix == "start one with `stream-dp up`, or pass --bootstrap-servers"
    assert any("settings of Redis are safe" in text for text, _ in found["good"])
    ((fault, fix),) = examine(redis_url=f"redis://:secret@{nobody}/0")["bad"]
    assert fault == f"Redis does not answer at redis://{nobody}"
    assert fix == "start it, or pass another --redis-url"


@pytest.mark.parametrize(
    ("url", "cluster", "said"),
    [
        (
            "redis://:secret@one:6379/0",
            False,
            ("Redis does not answer at redis://one:6379", "start it, or pass another --redis-url"),
        ),
        (
            "redis://:secret@one:6379/0",
            True,
            (
                "the Redis Cluster of redis://one:6379 does not answer, or a part of it does not",
                "see which: redis-cli --cluster check one:6379",
            ),
        ),
        (
            "redis+sentinel://:secret@one:26379,two:26379/mymaster?db=0",
            False,
            (
                (
                    "the Sentinels of redis+sentinel://one:26379,two:26379/mymaster do not answer, or name "
                    "no primary that does"
                ),
                "see what they know: redis-cli -h one -p 26379 SENTINEL masters",
            ),
        ),
    ],
)
def test_of_a_store_that_does_not_answer_it_says_what_to_look_at(
    url: str, cluster: bool, said: tuple[str, str]
) -> None:
    assert unreachable(url, cluster=cluster) == said


def test_a_journal_that_was_created_again_is_known_by_what_redis_has_noted() -> None:
    journal = TopicState("journal", 2, {}, "new")
    old = {b"old:0": b"", b"old:1": b"", b"old:7": b""}
    assert doctor._unknown_journal(old, journal) == [0, 1]
    assert doctor._unknown_journal({**old, b"new:1": b""}, journal) == [0]
    assert doctor._unknown_journal({b"new:0": b""}, journal) == []
    assert doctor._unknown_journal(old, None) == doctor._unknown_journal({}, journal) == []


def test_a_redis_that_says_nothing_is_bad_and_not_waited_for_for_ever(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        nobody = f"127.0.0.1:{ports.choose('nobody', None)}"
        found = examine(
            bootstrap_servers=nobody, redis_url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        )
    faults = dict(found["bad"])
    assert (
        faults["Redis accepted the connection but has not answered for 0.5 seconds"]
        == "find out what it is doing, then restart it"
    )


def test_missing_topics_are_listed(examine: Examine, make_deployment: Callable[..., Any]) -> None:
    prefix = make_deployment(partitions=0).prefix
    ((fault, fix),) = examine(topic_prefix=prefix)["bad"]
    assert fault.startswith(f"topics are missing: {prefix}datasets, {prefix}batches")
    assert fix == f"stream-dp topics create --topic-prefix {prefix}"


def _grow(admin: KafkaAdminClient, deployment: Any, roles: tuple[str, ...]) -> None:
    """Gives topics a third partition and waits until the broker tells everybody."""
    names = [deployment.topics.name(role) for role in roles]
    admin.create_partitions(dict.fromkeys(names, 3))
    until(lambda: all(len(topic["partitions"]) == 3 for topic in admin.describe_topics(names)))


def test_a_changed_partition_count_is_bad_before_a_worker_meets_it(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    record(deployment)
    assert examine()["bad"] == []
    _grow(admin, deployment, (*INPUTS, *PRIVATE))
    faults = examine()["bad"]
    assert len(faults) == 3
    assert f"{deployment.prefix}queries has 3 partitions but had 2" in faults[2][0]
    assert "start again under another --topic-prefix" in faults[2][1]


def test_inputs_that_differ_in_their_partitions_are_bad(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    _grow(admin, deployment, ("queries",))
    ((fault, fix),) = examine()["bad"]
    assert "the input topics differ in their number of partitions" in fault
    assert "under another --topic-prefix" in fix


@pytest.mark.slow
def test_a_journal_with_other_partitions_than_the_inputs_is_bad_and_no_worker_starts(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    _grow(admin, deployment, ("journal",))
    ((fault, fix),) = examine()["bad"]
    assert fault == (
        f"{deployment.prefix}journal has 3 partitions and the inputs have 2, so no worker serves them"
    )
    assert "under another --topic-prefix" in fix
    worker = deployment.worker()
    assert worker.wait() == 1
    assert "journal has 3 partitions and the inputs have 2" in worker.output
    _grow(admin, deployment, INPUTS)
    fixes = dict(examine()["bad"])
    assert fixes[
        f"{deployment.prefix}blocks has 2 partitions and the inputs have 3, so no worker serves them"
    ] == (f"kafka-topics.sh --alter --topic {deployment.prefix}blocks --partitions 3")


def test_what_could_lose_records_of_the_journal_is_bad(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    name = deployment.topics.name("journal")
    configs = {
        "cleanup.policy": "compact",
        "retention.ms": "1000",
        "retention.bytes": "1000000000",
        "unclean.leader.election.enable": "true",
    }
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=configs)])
    for _ in range(50):  # the broker takes a moment to show what it was told
        faults = dict(examine()["bad"])
        if len(faults) == 4:
            break
    assert set(faults.values()) == {deployment.topics.creating()}
    for setting, value, loses in (
        (
            "cleanup.policy",
            "compact, not delete",
            "Kafka does not keep the records that it must keep",
        ),
        ("retention.ms", "1000, not -1", "Kafka deletes records that must be kept for ever"),
        (
            "retention.bytes",
            "1000000000, not -1",
            "Kafka deletes records that must be kept for ever",
        ),
        (
            "unclean.leader.election.enable",
            "true, not false",
            "a lost disk could take acknowledged records with it",
        ),
    ):
        assert f"{name} has {setting} {value}: {loses}, and no worker runs" in faults


@pytest.mark.slow
def test_a_topic_that_was_made_again_is_bad(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    from stream_dp.client.topics import create_topics

    deployment.worker().wait_ready().stop()
    assert examine()["bad"] == []
    admin.delete_topics([deployment.topics.name("batches")])
    for _ in range(50):
        try:
            if create_topics(deployment.bootstrap_servers, deployment.topics, partitions=2).created:
                break
        except KafkaError:
            pass
    ((fault, _),) = examine()["bad"]
    assert f"{deployment.prefix}batches was deleted and created again" in fault


@pytest.mark.parametrize(
    ("days", "found", "kept"),
    [(30, None, None), (29, None, "for 30 days"), (40, "-1", "for ever"), (40, "1000", None)],
)
def test_a_topic_that_keeps_queries_longer_than_answers_are_stored_is_worth_a_note(
    days: int, found: str | None, kept: str | None
) -> None:
    wrong = {} if found is None else {"retention.ms": (found, "2592000000")}
    queries = TopicState("my.queries", 2, wrong)
    definition = Definition.read(definition_of("people", retention={"answers": {"days": days}}))
    notes = [*doctor._answers("people", definition, queries)]
    assert len(notes) == (kept is not None)
    for note in notes:
        assert f"stored for at least {days} days, and my.queries keeps queries {kept}" in note.text
        assert note.fix.endswith(
            f"--topic my.queries --add-config retention.ms={days * 86_400_000}"
        )
    assert [*doctor._answers("people", Definition.read(definition_of("people")), queries)] == []


def test_settings_of_topics_are_compared_and_what_loses_data_is_bad(
    examine: Examine, deployment: Any, admin: KafkaAdminClient
) -> None:
    def alter(role: str, **settings: str) -> None:
        name = deployment.topics.name(role)
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=configs)])

    alter("ledger", retention_ms="1000")
    alter("batches", retention_ms="3600000", max_message_bytes="6291456")
    alter("queries", message_timestamp_type="CreateTime")
    for _ in range(50):  # the broker takes a moment to show what it was told
        found = examine()
        if len(found["bad"]) == 2 and any("1 hours" in text for text, _ in found["note"]):
            break
    (queries, (fault, fix)) = sorted(found["bad"], key=lambda one: "ledger" in one[0])
    assert queries[0] == (
        f"{deployment.prefix}queries has message.timestamp.type CreateTime, not LogAppendTime: "
        "Kafka deletes records with old times before anyone reads them"
    )
    assert queries[1] == f"stream-dp topics create --topic-prefix {deployment.prefix}"
    assert fault == (
        f"{deployment.prefix}ledger has retention.ms 1000, not -1: "
        "Kafka deletes records that must be kept for ever"
    )
    assert fix == queries[1]
    assert any(
        "records that no worker reads within 1 hours never count" in text
        for text, _ in found["note"]
    )


@pytest.mark.slow
def test_a_forged_ledger_is_bad(
    examine: Examine, deployment: Any, definition: dict[str, Any]
) -> None:
    deployment.worker().wait_ready()
    with deployment.client() as client:
        name = client.define(definition).dataset
        examined = examine()
        assert any(f"{name}: 0 phases, 0 rows" in text for text, _ in examined["good"])
        assert any("1 worker in the group" in text for text, _ in examined["good"])
        entry = client.ledger(name)[0]
    deployment.produce("ledger", {**entry, "seq": 1, "kind": "retired"}, key=name)
    ((fault, _),) = examine()["bad"]
    assert f"{name}: the published ledger has a fault: entry 0: it is not what the next" in fault


@pytest.mark.slow
def test_a_store_whose_sums_are_not_those_of_its_ledger_is_bad(
    examine: Examine, deployment: Any, definition: dict[str, Any]
) -> None:
    """``spent`` set to 0, an entry taken away, another one in its place: each is said as what it is."""
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        name = client.define(definition).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}])
        client.ask(name, "age < 30")
    worker.stop()
    good = "; ".join(text for text, _ in examine()["good"])
    assert f"{name}: the sums in Redis match its ledger, which has every entry of the topic" in good
    assert "and every price is right" in good

    tag = f"{{{deployment.prefix.rstrip('.')}:{name}}}"
    with redis.Redis.from_url(deployment.redis_url) as client:
        (spent,) = client.hmget(f"{tag}:spent", "0:rho")
        client.hset(f"{tag}:spent", "0:rho", 0)
        ((fault, fix),) = examine()["bad"]
        assert fault == (
            f"{name}: Redis says that phase 1 has spent 0 units and 0 of delta, and the charges of its "
            f"ledger, in Redis and on the topic, come to {int(spent):,} and 0"
        )
        assert "sums are right" in fix
        client.hset(f"{tag}:spent", "0:rho", spent)

        last = client.rpop(f"{tag}:ledger")
        number = json.loads(last)["seq"]
        faults = [fault for fault, _ in examine()["bad"]]
        assert any(f"{name}: Redis lacks entry {number} of the ledger" in fault for fault in faults)
        client.rpush(f"{tag}:ledger", last.replace(b'"version":1', b'"version":1 '))
        faults = [fault for fault, _ in examine()["bad"]]
        assert any(f"{name}: Redis has a different entry {number}" in f for f in faults)


def everything(deployment: Any) -> Any:
    """All that the servers have of a deployment."""
    topics = {role: [(r.offset, r.key, r.value) for r in deployment.read(role)] for role in TOPICS}
    return topics, dump_server(deployment.redis_url, f"{{{deployment.prefix.rstrip('.')}")


@pytest.mark.slow
def test_a_rehearsal_builds_data_sets_again_next_to_a_worker_and_changes_nothing(
    examine: Examine, deployment: Any, definition: dict[str, Any], run: Callable[..., Any]
) -> None:
    worker = deployment.worker().wait_ready()
    noted = [text for text, _ in examine("--rehearse")["note"]]
    assert "nothing was rehearsed: there is no data set yet" in noted
    with deployment.client() as client:
        name = client.define(definition).dataset
        other = client.define({**definition, "dataset": f"{name}-empty"}).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}])
        client.ask(name, "age < 30")
        client.send(name, cells=[{"city": "Graz", "count": 7}])
        worker.until(lambda: not deployment.stored(name, "outbox"))
        before = everything(deployment)
        good = [text for text, _ in examine("--rehearse")["good"]]
        assert everything(deployment) == before
        found = [text for text in good if "built from the topics, it is what Redis has" in text]
        # A partition of the journal after the other, and in each by name.
        assert {text.partition(":")[0] for text in found} == {name, other}
        assert any("2 of 2 data sets would come back as Redis has it now" in text for text in good)
        (length,) = [text for text in good if "journal has" in text]
        assert "with entries; of the " in length
        assert f"{name} needs" in length or f"{other} needs" in length
        client.ask(name, "age < 45")
    worker.stop()

    tag = f"{{{deployment.prefix.rstrip('.')}:{name}}}"
    with redis.Redis.from_url(deployment.redis_url) as store:
        (block,) = store.lrange(f"{tag}:blocks", 0, -1)
        store.lset(f"{tag}:blocks", 0, block[:-1] + bytes([block[-1] ^ 1]))
        (fault, fix), (summary, _) = examine("--rehearse")["bad"]
        assert "; 1 of 2 data sets would come back" in summary
        assert fault.startswith(f"{name}: built from the topics, it is not what Redis has.")
        assert "They differ in: blocks (phase 1) (" in fault
        assert "'Rehearse a loss of Redis'" in fix
        assert not [text for text, _ in examine()["bad"]], "only a rehearsal reads blocks"
        store.lset(f"{tag}:blocks", 0, block)

    words = [
        *("--bootstrap-servers", deployment.bootstrap_servers),
        *("--redis-url", deployment.redis_url, "--topic-prefix", deployment.prefix),
    ]
    ended = run("doctor", "--rehearse", "--json", *words)
    facts = [json.loads(line).get("rehearsal") for line in ended.out.splitlines()]
    (one,) = [fact for fact in facts if fact is not None and fact["dataset"] == name]
    assert one["equal"]
    assert one["commits"] == int(deployment.stored(name, "control")[b"seq"])
    assert one["bytes_read"] > 0
    assert (one["differs"], one["phases"], one["problem"]) == ([], [], "")
    assert "healed" not in ended.err


def test_a_large_delta_and_a_spent_line_are_noted(
    examine: Examine, served_deployment: Any, definition: dict[str, Any]
) -> None:
    """A count takes 9% of the line, and eighteen are asked."""
    definition["privacy"] = {"epsilon": 0.3, "delta": 8e-6}
    definition["phase"] = {"min_rows": 1000}
    definition["accuracy"] = {"error": 0.05, "failure_probability": 0.01}
    definition["mechanism"] = {"profile": "counts"}
    asked = itertools.product((18, 30, 45), ("Bonn", "Graz", "Lyon"), ("TRUE", "FALSE"))
    with served_deployment.client() as client:
        name = client.define(definition).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}])
        client.ask_many(
            name,
            [Query(f"age < {age} AND city = '{city}' AND smoker IS {s}") for age, city, s in asked],
        )
    notes = [text for text, _ in examine(topic_prefix=served_deployment.prefix)["note"]]
    assert any("delta 8e-06 is large for 2,000 rows" in text for text in notes), notes
    assert any(
        f"{name}: more than 90% of the budget is spent on phase 1" in text for text in notes
    ), notes


def test_another_version_of_a_pinned_package_is_bad(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    pinned = metadata.version

    def version(name: str) -> str:
        return "0.0.1" if name == "mode-streaming" else pinned(name)

    monkeypatch.setattr(metadata, "version", version)
    ((fault, fix),) = examine()["bad"]
    assert fault.startswith("mode-streaming is 0.0.1 and must be ")
    assert "pip install" in fix


def test_without_the_address_of_redis_an_analyst_still_gets_the_rest(
    run: Callable[..., Any], deployment: Any
) -> None:
    assert "STREAM_DP_REDIS_URL" not in os.environ
    words = ("--bootstrap-servers", deployment.bootstrap_servers)
    ended = run("doctor", *words, "--topic-prefix", deployment.prefix)
    assert ended.code == 0
    assert "note  Redis was not checked" in ended.out
    assert "all checks passed" in ended.out
