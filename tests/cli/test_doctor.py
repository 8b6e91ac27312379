"""``stream-dp doctor`` finds what is wrong with a deployment, and says what to do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka.admin import KafkaAdminClient

from stream_dp.broker import Broker
from stream_dp.cli.operate import doctor_command
from stream_dp.client.kafka.deployment_topics import describe_topics
from stream_dp.embedded import ports
from stream_dp.messages import INPUTS, PRIVATE, TOPICS
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.journal import marks
from stream_dp.pipeline.journal.entries import Kind, entries_of
from stream_dp.pipeline.journal.journal import facts_of
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import Pairs, State, StateTable
from tests.cli.conftest import Run, delete_topic, servers_of

pytestmark = pytest.mark.kafka

Examine = Callable[..., dict[str, list[tuple[str, str]]]]


@pytest.fixture
def examine(run: Run, deployment: Any) -> Examine:
    """``examine(...)``: findings by health, each with its fix; the exit code must fit to them."""

    def examine(*flags: str, **other: str) -> dict[str, list[tuple[str, str]]]:
        given = [f"--{name.replace('_', '-')}={value}" for name, value in other.items()]
        ended = run("doctor", "--json", *flags, *servers_of(deployment), *given)
        found: dict[str, list[tuple[str, str]]] = {"good": [], "note": [], "bad": []}
        for line in ended.out.splitlines():
            finding = json.loads(line)
            found[finding["health"]].append((finding["finding"], finding["fix"]))
        assert ended.code == (1 if found["bad"] else 0), ended.err
        return found

    return examine


EPOCH = bytes(range(16))


class Journal:
    """The journal of a deployment, written as a worker does."""

    def __init__(self, deployment: Any) -> None:
        self._deployment = deployment
        self.states: dict[str, State] = {}
        self._entered: set[int] = set()

    def append(self, partition: int, kind: Kind, name: str, value: bytes) -> int:
        """Appends an entry, behind an epoch; returns its offset."""
        if partition not in self._entered:
            self._entered.add(partition)
            servers = Broker(self._deployment.bootstrap_servers)
            there = describe_topics(servers, self._deployment.topics)
            ids = {role: there[role].topic_id for role in INPUTS}
            self.append(partition, "epoch", "", marks.said(**facts_of(2, ids)))
        (entry,) = entries_of(kind, name, value, EPOCH)
        _, _, offset = self._deployment.produce(
            "journal",
            entry.value,
            key=entry.key,
            partition=partition,
            headers=list(entry.headers),
        )
        return int(offset)

    def commit(self, name: str, pairs: Pairs) -> int:
        """Appends a commit; returns its offset."""
        state = self.states.setdefault(name, State(name))
        stored, trail = (made := state.drafted(pairs)).to_bytes()
        state.apply(made, trail)
        return self.append(partition_of(name.encode(), 2), "commit", name, stored)


@pytest.fixture
def journal(deployment: Any) -> Journal:
    return Journal(deployment)


def test_a_good_setup_is_called_good_and_nothing_is_written(
    examine: Examine, deployment: Any
) -> None:
    found = examine()
    assert found["bad"] == []
    good = "; ".join(text for text, _ in found["good"])
    assert f"answers at {deployment.bootstrap_servers}" in good
    assert f"all {len(TOPICS)} topics exist; the inputs have 2 partitions each" in good
    assert "Redis answers at " in good
    ((note, fix),) = found["note"]
    assert "no worker runs" in note
    assert fix == "run `stream-dp worker` or `stream-dp up`"
    with redis.Redis.from_url(deployment.redis_url) as client:
        assert client.keys(f"*{deployment.prefix.rstrip('.')}*") == []


def test_a_data_set_that_nobody_can_serve_is_bad_also_for_status(
    examine: Examine, deployment: Any, run: Run
) -> None:
    reason = {"code": "stopped", "message": "the journal was cut"}
    event = {"version": 1, "dataset": "people", "event": "stopped", "reason": reason}
    deployment.produce("events", event, key="people")
    assert "people is stopped: the journal was cut" in dict(examine()["bad"])
    ended = run("status", *servers_of(deployment)[:4])
    assert "people is stopped: the journal was cut" in ended.err
    again = {"version": 1, "dataset": "people", "event": "repaired"}
    deployment.produce("events", again, key="people")
    assert examine()["bad"] == []


def test_it_says_how_far_redis_is_behind_the_journal_and_whether_it_is_right(
    examine: Examine, deployment: Any, journal: Journal
) -> None:
    async def write(state: State) -> None:
        view = RedisView(deployment.redis_url, prefix=deployment.prefix.rstrip("."))
        await view.rewrite(state)
        await view.close()

    def of_redis() -> tuple[str, str]:
        found = [(kind, text) for kind, some in examine().items() for text, _ in some]
        ((kind, text),) = [one for one in found if one[1].startswith("people: ")]
        return kind, text

    journal.commit("people", {(StateTable.FACT, b"fact"): b"one"})
    assert of_redis() == (
        "note",
        "people: Redis has nothing of it; a worker that serves it writes it there",
    )
    asyncio.run(write(journal.states["people"]))
    assert of_redis() == ("good", "people: Redis has the 1 commits of the journal")
    journal.commit("people", {(StateTable.FACT, b"fact"): b"two"})
    journal.commit("people", {(StateTable.FACT, b"fact"): b"three"})
    assert of_redis() == ("note", "people: Redis is 2 commits behind the journal")
    asyncio.run(write(journal.states["people"]))
    with redis.Redis.from_url(deployment.redis_url) as client:
        (key,) = client.keys(f"*{deployment.prefix.rstrip('.')}*:people}}:state")
        client.hset(key, "2 fact", "four")
    kind, text = of_redis()
    assert kind == "note"
    assert text.startswith("people: what Redis has of it is wrong")


def test_a_journal_that_was_cut_is_bad(examine: Examine, deployment: Any, journal: Journal) -> None:
    at = journal.commit("people", {(StateTable.FACT, b"fact"): b"one"})
    trail = journal.states["people"].trail[:8].hex()
    event = {"version": 1, "dataset": "people", "event": "dataset_accepted"}

    def publish(offset: int, trail: str) -> None:
        place = f"1 {offset} {trail}".encode()
        partition = partition_of(b"people", 2)
        headers = [("commit", place)]
        deployment.produce("events", event, key="people", partition=partition, headers=headers)

    publish(at, trail)
    assert examine()["bad"] == []
    publish(at + 7, trail)
    ((fault, fix),) = examine()["bad"]
    partition = partition_of(b"people", 2)
    assert fault.startswith(
        f"partition {partition} of the journal is not whole: something was published"
    )
    assert fix.endswith(f"stream-dp journal repair --partition {partition}")


def test_servers_that_do_not_answer_are_named(examine: Examine) -> None:
    nobody = f"127.0.0.1:{ports.choose('nobody', None)}"
    found = examine(bootstrap_servers=nobody)
    ((fault, fix),) = found["bad"]
    assert fault == f"no Kafka broker answers at {nobody} (Connection refused)"
    assert fix == "start one with `stream-dp up`, or pass --bootstrap-servers"
    ((fault, fix),) = examine(redis_url=f"redis://:secret@{nobody}/0")["bad"]
    assert fault.startswith(f"Redis does not answer at redis://{nobody}; workers go on")
    assert fix == "start it, or pass another --redis-url"


def test_a_redis_that_says_nothing_is_bad_and_not_waited_for_for_ever(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_command, "_PATIENCE_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = examine(redis_url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
    silence = "Redis accepted the connection but has not answered for 0.5 seconds"
    assert dict(found["bad"])[silence] == "find out what it is doing, then restart it"


def test_the_store_of_rows_is_looked_at_and_the_journal_also_while_it_is_away(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAM_DP_ROWS", (tmp_path / "rows").as_uri())
    found = examine()
    assert found["bad"] == []
    assert any("keeps, gives and deletes files" in text for text, _ in found["good"])
    (tmp_path / "file").touch()
    monkeypatch.setenv("STREAM_DP_ROWS", (tmp_path / "file/rows").as_uri())
    found = examine()
    ((fault, _),) = found["bad"]
    assert fault.startswith("the store of STREAM_DP_ROWS does not answer, or refuses (")
    assert any("of the journal has" in text for text, _ in found["good"])


def test_topics_with_more_partitions_than_the_journal_says_are_bad_before_a_worker_meets_them(
    examine: Examine, deployment: Any, journal: Journal
) -> None:
    journal.append(0, "mark", "", marks.said())
    assert examine()["bad"] == []
    with KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers) as admin:
        deployment.widen(admin, *INPUTS, *PRIVATE)
    ((fault, fix),) = examine()["bad"]
    assert "the topics have 3 partitions and had 2" in fault
    assert "start again under another topic prefix" in fix


@pytest.mark.slow
def test_a_topic_that_was_made_again_is_bad(examine: Examine, deployment: Any) -> None:
    deployment.worker().wait_ready().stop()
    assert examine()["bad"] == []
    delete_topic(deployment, "batches")
    ((fault, _),) = examine()["bad"]
    assert "topic batches was deleted and created again since the journal was written" in fault


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
def test_the_journal_of_a_worker_is_compared_with_the_ledger_and_with_redis(
    examine: Examine, deployment: Any, definition: dict[str, Any]
) -> None:
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        name = client.define(definition).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}])
        client.ask(name, "age < 30")
        worker.until(lambda: not deployment.durable().unsent)
        assert examine()["bad"] == []
    worker.stop()
    found = examine()
    assert found["bad"] == []
    good = "; ".join(text for text, _ in found["good"])
    assert f"{name}: the sums on the journal match its ledger" in good
    assert re.search(rf"{name}: Redis has the \d+ commits of the journal", good)
    assert "and every price is right" in good
    assert re.search(
        r"partition \d of the journal has \d+ entries, of which a worker reads \d+", good
    )


def test_without_the_address_of_redis_an_analyst_still_gets_the_rest(
    run: Run, deployment: Any
) -> None:
    assert "STREAM_DP_REDIS_URL" not in os.environ
    ended = run("doctor", *servers_of(deployment)[:4])
    assert ended.code == 0
    assert "note  the journal and Redis were not checked" in ended.out
    assert "all checks passed" in ended.out


def test_what_is_stopped_or_cut_is_bad_and_has_its_command(
    examine: Examine, deployment: Any, journal: Journal
) -> None:
    journal.commit("people", {(StateTable.FACT, b"fact"): b"one"})
    why, place = "the journal was cut", f"{deployment.topics.name('queries')}:1"
    stopped = marks.said(stopped={"people": f"{why}: run `stream-dp journal repair`"})
    journal.append(partition_of(b"people", 2), "mark", "", stopped)
    journal.append(1, "mark", "", marks.said(cut={place: 70}))
    found = examine()
    (fault, fix), (cut, way) = sorted(found["bad"], key=lambda one: place in one[0])
    assert fault.startswith(f"the journal has people, and it is not whole: {why}")
    assert fix == "stop all workers and run: stream-dp journal repair"
    assert cut.startswith(f"{place} was read to offset 70 and was cut")
    assert f"stream-dp journal repair --input {place} --apply --restored" in way
    moved = doctor_command._stopped("people", MOVED)
    assert (moved.health, moved.fix) == ("note", ""), "it is as it should be"
