"""The real servers: they keep what they acknowledged, and two never share a folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from stream_dp.embedded import ports, valkey_server
from stream_dp.embedded.folders import (
    StateFolder,
    cache_folder,
    state_folder,
    stop_running,
)
from stream_dp.embedded.kafka_server import KafkaServer, escaped
from stream_dp.embedded.stack import Servers
from stream_dp.embedded.valkey_server import ValkeyServer
from stream_dp.errors import ServerUnavailable
from tests.waiting import PATIENCE_S, until

PARENT = """
import os, sys, time
from pathlib import Path
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.stack import Servers
with Servers(Path(sys.argv[1]), cache_folder(os.environ)) as addresses:
    print(addresses.bootstrap_servers, addresses.redis_url, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def elsewhere(
    kafka_jars: tuple[Path, ...],
) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts servers on a folder from a process of their own, and waits until they answer."""
    processes = []

    def start(state: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(state)], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _servers(state: Path) -> Servers:
    return Servers(state, cache_folder(os.environ))


def _keep(bootstrap_servers: str, topic: str, value: bytes) -> None:
    """Creates a topic of one record."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, max_request_size=8 * 2**20)
    try:
        producer.send(topic, value).get(PATIENCE_S)
    finally:
        producer.close()


def _kept(bootstrap_servers: str, topic: str) -> bytes:
    """The first record of a topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(1_000 * PATIENCE_S),
        max_partition_fetch_bytes=8 * 2**20,
        group_id=None,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.slow
@pytest.mark.kafka
class TestServers:
    def test_a_restart_keeps_records_keys_and_addresses_for_the_owners_eyes_only(
        self, kafka_jars: tuple[Path, ...], tmp_path: Path
    ) -> None:
        state = tmp_path / "a state ü 🙂"  # Java reads its settings as Latin-1
        with _servers(state) as first:
            assert _mode(state) == 0o700
            assert _mode(state / "servers.json") == 0o600
            _keep(first.bootstrap_servers, "kept", b"record")
            with redis.Redis.from_url(first.redis_url) as store:
                store.set("kept", "value")
        assert StateFolder(state).running() is None
        with _servers(state) as second:
            assert replace(second, pids=first.pids) == first
            assert _kept(second.bootstrap_servers, "kept") == b"record"
            with redis.Redis.from_url(second.redis_url) as store:
                assert store.get("kept") is None, "the topics have all of it"
                for setting, value in [("appendonly", "no"), ("save", "")]:
                    assert store.config_get(setting) == {setting: value}

    @pytest.mark.slow
    def test_servers_die_with_a_parent_killed_by_kill_9_and_lose_nothing(
        self,
        elsewhere: Callable[[Path], subprocess.Popen[str]],
        gone: Callable[..., bool],
        tmp_path: Path,
    ) -> None:
        parent = elsewhere(tmp_path)
        found = StateFolder(tmp_path).running()
        assert found is not None
        assert found.pid == parent.pid
        _keep(found.bootstrap_servers, "kept", b"record")
        pids = list(found.pids.values())
        assert not any(gone(pid, within_s=0) for pid in pids)

        parent.kill()

        # The next start waits for them: at no moment do two servers write to one folder.
        with _servers(tmp_path) as addresses:
            assert gone(*pids)
            assert _kept(addresses.bootstrap_servers, "kept") == b"record"

    @pytest.mark.slow
    def test_a_second_start_on_one_folder_is_refused_in_words_and_down_ends_the_first(
        self,
        elsewhere: Callable[[Path], subprocess.Popen[str]],
        gone: Callable[..., bool],
        tmp_path: Path,
    ) -> None:
        parent = elsewhere(tmp_path)
        found = StateFolder(tmp_path).running()
        assert found is not None
        with pytest.raises(ServerUnavailable) as refused:
            _servers(tmp_path).start()
        for word in (str(parent.pid), found.bootstrap_servers, "--state-dir", "stream-dp down"):
            assert word in str(refused.value)
        assert StateFolder(tmp_path).running() == found  # the refusal disturbed nothing

        assert stop_running(tmp_path) == found
        assert gone(*found.pids.values())
        assert StateFolder(tmp_path).running() is None
        assert stop_running(tmp_path) is None

    @pytest.mark.slow
    def test_they_tell_of_a_failure(
        self, kafka_jars: tuple[Path, ...], gone: Callable[..., bool], tmp_path: Path
    ) -> None:
        servers = _servers(tmp_path)
        with servers:
            assert servers.failure() is None
            found = StateFolder(tmp_path).running()
            assert found is not None
            os.kill(found.pids["kafka"], signal.SIGKILL)
            until(servers.failure)
            problem = str(servers.failure())
            assert "Apache Kafka was ended by signal 9" in problem
            assert str(tmp_path / "logs" / "kafka.log") in problem
        assert gone(*found.pids.values())

    def test_a_start_that_is_cancelled_leaves_nothing_behind(
        self, kafka_jars: tuple[Path, ...], tmp_path: Path
    ) -> None:
        servers = _servers(tmp_path)
        timer = threading.Timer(1.0, servers.cancel)
        timer.start()
        with pytest.raises(ServerUnavailable, match="was stopped"):
            servers.start()
        timer.join()
        assert not StateFolder(tmp_path).in_use()


@pytest.mark.kafka
class TestKafka:
    def test_a_value_over_our_own_limit_still_arrives(
        self, kafka_server: str, topic_prefix: str
    ) -> None:
        value = os.urandom(5 * 2**20)
        _keep(kafka_server, f"{topic_prefix}large", value)
        assert _kept(kafka_server, f"{topic_prefix}large") == value

    def test_a_topic_is_not_made_by_a_typing_error(
        self, kafka_server: str, topic_prefix: str
    ) -> None:
        topic = f"{topic_prefix}typo"
        producer = KafkaProducer(bootstrap_servers=kafka_server, max_block_ms=500)
        admin = KafkaAdminClient(bootstrap_servers=kafka_server)
        try:
            with pytest.raises(KafkaTimeoutError):
                producer.send(topic, b"")
            assert topic not in admin.list_topics()
        finally:
            producer.close()
            admin.close()

    def test_a_broker_that_cannot_start_says_why(self, tmp_path: Path) -> None:
        for folder, said in (("a,b", "comma"), ("kafka", "ClassNotFoundException")):
            server = KafkaServer(tmp_path / folder, [tmp_path / "no.jar"], log=tmp_path / "log")
            with pytest.raises(ServerUnavailable, match=said):
                server.start()

    @pytest.mark.slow
    def test_a_port_taken_at_the_last_moment_is_replaced(
        self, kafka_jars: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server((ports.HOST, 0)) as other:
            taken = other.getsockname()[1]
            monkeypatch.setattr(ports, "is_free", lambda _: True)
            monkeypatch.setattr(ports, "usual", lambda _: taken)
            with ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log") as valkey:
                assert valkey.port != taken
            with KafkaServer(tmp_path / "kafka", kafka_jars, log=tmp_path / "kafka.log") as kafka:
                assert kafka.port != taken
            given = ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log", port=taken)
            with pytest.raises(ServerUnavailable, match="ddress already in use"):
                given.start()

    def test_paths_are_escaped_for_java(self) -> None:
        assert escaped("/a b/ü\\🙂") == "/a b/\\u00fc\\\\\\ud83d\\ude42"


class TestValkey:
    def test_a_port_in_use_is_refused_in_words(self, valkey_server: str, tmp_path: Path) -> None:
        port = int(valkey_server.rsplit(":", 1)[1].split("/")[0])
        server = ValkeyServer(tmp_path / "valkey", log=tmp_path / "log", port=port)
        with pytest.raises(ServerUnavailable, match=f"port {port} of 127.0.0.1"):
            server.start()

    def test_it_starts_empty_after_kill_9(self, tmp_path: Path) -> None:
        with ValkeyServer(tmp_path / "valkey", log=tmp_path / "log") as server:
            with redis.Redis.from_url(server.url) as store:
                store.set("kept", "value")
            os.kill(server.pid, signal.SIGKILL)
        with (
            ValkeyServer(tmp_path / "valkey", log=tmp_path / "log") as server,
            redis.Redis.from_url(server.url) as store,
        ):
            assert store.dbsize() == 0
        assert not list((tmp_path / "valkey").glob("*aof*"))

    def test_a_server_that_cannot_start_says_why(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(valkey_server, "find_valkey", lambda: Path("/bin/false"))
        server = ValkeyServer(tmp_path / "valkey", log=tmp_path / "log")
        with pytest.raises(ServerUnavailable, match="stopped while starting") as refused:
            server.start()
        assert str(tmp_path / "log") in str(refused.value)


class TestFolders:
    def test_the_environment_may_move_them(self, tmp_path: Path) -> None:
        assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "stream-dp"
        assert state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "stream-dp"
        assert cache_folder({}) == Path.home() / ".cache" / "stream-dp"
        assert state_folder({"XDG_STATE_HOME": "relative"}) == (
            Path.home() / ".local" / "state" / "stream-dp"
        )

    def test_one_that_others_could_look_into_is_closed_to_them(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        StateFolder(tmp_path).prepare()
        assert _mode(tmp_path) == 0o700

    def test_the_key_of_persons_is_made_once_and_read_by_its_owner_alone(
        self, tmp_path: Path
    ) -> None:
        file = StateFolder(tmp_path).made_person_key()
        key = file.read_bytes()
        assert (_mode(file), len(key)) == (0o600, 64)
        assert StateFolder(tmp_path).made_person_key().read_bytes() == key
        assert [one.name for one in tmp_path.iterdir()] == [file.name]

    def test_a_file_left_by_a_crash_names_no_running_servers(self, tmp_path: Path) -> None:
        assert StateFolder(tmp_path / "never").running() is None
        left = {"pid": os.getpid(), "bootstrap_servers": "a", "redis_url": "b"}
        (tmp_path / "servers.json").write_text(json.dumps(left))
        (tmp_path / "lock").touch()
        assert StateFolder(tmp_path).running() is None
        folder = StateFolder(tmp_path)
        folder.lock(timeout_s=0)
        assert StateFolder(tmp_path).running() is None  # what is starting has no address yet
        with pytest.raises(ServerUnavailable, match="is starting servers"):
            StateFolder(tmp_path).lock(timeout_s=0.1)
        folder.release()

    def test_a_folder_that_cannot_be_made_is_refused_in_words(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ServerUnavailable, match="--state-dir"):
            StateFolder(tmp_path / "file" / "state").prepare()
