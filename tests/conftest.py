"""Fixtures that more than one area shares."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import logging
import os
import re
import secrets
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
import pytest

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas in a way that Python 3.11 and 3.12 deprecate, and 3.13 does not. It
    # reads more of them later, hence the filter below.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from stream_dp.errors import ServerUnavailable
from tests.waiting import PATIENCE_S, until
from tests.workers import ROUND_BYTES, CommandProcess, GatewayProcess, WorkerProcess

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

    from stream_dp.client import Client
    from stream_dp.embedded.kafka_server import KafkaServer
    from stream_dp.state.schema import State
    from tests.durable import Durable


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs us in the background has us ignore Ctrl-C, and what we start would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = [hypothesis.HealthCheck.too_slow]  # whether examples come fast is the machine's affair
    hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("patient")
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )
    # Its threads tell what they do while other tests look at what was logged.
    logging.getLogger("kafka").setLevel(logging.WARNING)


def pytest_xdist_auto_num_workers() -> int:
    """More processes than cores: those that wait for servers leave room."""
    return (os.cpu_count() or 1) + 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=_share,
        metavar="K/N",
        help="run one share of the tests that are chosen otherwise: every N-th, from the K-th on",
    )


def _share(text: str) -> tuple[int, int]:
    """Reads ``3/12``."""
    share = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    number, shares = map(int, share.groups()) if share else (0, 0)
    if not 1 <= number <= shares:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be K/N with K from 1 to N, for example 3/12"
        )
    return number, shares


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes a share, and spreads what waits for servers.

    Each process gets a stretch of the tests, and those that are done early help the others from behind. So
    of four processes two begin with tests that wait for servers, and two keep the cores busy meanwhile.
    """
    if (share := config.getoption("share")) is not None:
        number, shares = share
        left_out = [item for at, item in enumerate(items) if at % shares != number - 1]
        items[:] = items[number - 1 :: shares]
        config.hook.pytest_deselected(items=left_out)
    waiting = [item for item in items if item.get_closest_marker("kafka") is not None]
    others = [item for item in items if item.get_closest_marker("kafka") is None]
    files = list(dict.fromkeys(item.path for item in waiting))
    halves = [[item for item in waiting if item.path in files[half::2]] for half in range(2)]
    middle = max(0, len(items) // 2 - len(halves[0]))
    items[:] = [*halves[0], *others[:middle], *halves[1], *others[middle:]]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _needed() -> Iterator[None]:
    """Where a server cannot run, what needs it is skipped; in CI it fails."""
    try:
        yield
    except ServerUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def needed() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """``with needed(): ...``: where that cannot run, the test is skipped; in CI it fails."""
    return _needed


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    """The class path of the embedded Apache Kafka; downloaded once into the user's cache."""
    from stream_dp.embedded import jars
    from stream_dp.embedded.folders import cache_folder

    with _needed():
        return jars.resolve(cache_folder(os.environ), jars.Silent())


@contextlib.contextmanager
def _one_for_all_processes(
    made: pytest.TempPathFactory,
    name: str,
    start: Callable[[Path], contextlib.AbstractContextManager[str]],
) -> Iterator[str]:
    """What ``start`` says of something that one process of this run starts, and all of them use.

    The process that has started it waits in the end until no other one uses it. One that had no use for it so
    far starts another one then.
    """
    folder = made.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (
        (folder / f"{name} users").open("w") as users,
        (folder / name).open("a+", encoding="utf-8") as said,
    ):
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(said, fcntl.LOCK_EX)
        said.seek(0)
        if found := said.read():
            fcntl.flock(said, fcntl.LOCK_UN)
            yield found
            return
        with start(made.mktemp(name)) as found:
            said.write(found)
            said.flush()
            fcntl.flock(said, fcntl.LOCK_UN)
            yield found
            fcntl.flock(users, fcntl.LOCK_EX)
            said.truncate(0)  # a process that comes later starts it again


@pytest.fixture(scope="session")
def kafka_server(
    kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Bootstrap servers of one real broker for the whole run: keep to ``topic_prefix``."""
    from stream_dp.embedded.kafka_server import KafkaServer

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[str]:
        server = KafkaServer(folder / "kafka", kafka_jars, log=folder / "kafka.log")
        with _needed():
            server.start()
        yield server.bootstrap_servers
        server.stop()

    with _one_for_all_processes(tmp_path_factory, "kafka", start) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def own_kafka(kafka_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker of this test's own, which it may stop or kill."""
    from stream_dp.embedded.kafka_server import KafkaServer

    server = KafkaServer(tmp_path / "kafka", kafka_jars, log=tmp_path / "kafka.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of one real Redis for the whole run: use a key prefix of your own."""

    with _valkey(tmp_path_factory) as url:
        yield url


@contextlib.contextmanager
def _valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from stream_dp.embedded.valkey_server import ValkeyServer

    folder = tmp_path_factory.mktemp("valkey")
    server = ValkeyServer(folder / "valkey", log=folder / "valkey.log")
    with _needed():
        server.start()
    yield server.url
    server.stop()


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics, groups and keys that no other test has."""
    return f"t{secrets.token_hex(6)}."


Started = TypeVar("Started", bound=CommandProcess)


def _variables(settings: Mapping[str, object]) -> dict[str, str]:
    return {f"STREAM_DP_{name.upper()}": str(value) for name, value in settings.items()}


class Deployment:
    """Topics, keys and workers of one test, on servers that other tests use too.

    Attributes:
        prefix: Of its topics; its keys and its consumer group are named after it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        redis_url: str,
        prefix: str,
        folder: Path,
        partitions: int,
        replication: int = 1,
    ) -> None:
        from stream_dp.client.kafka.deployment_topics import create_topics
        from stream_dp.messages import Topics

        self.bootstrap_servers = bootstrap_servers
        self.redis_url = redis_url
        self.prefix = prefix
        self.topics = Topics(prefix)
        self._folder = folder
        self._processes: list[CommandProcess] = []
        if partitions:
            create_topics(
                bootstrap_servers, self.topics, partitions=partitions, replication=replication
            )

    def worker(
        self, *options: str, round_bytes: int | None = None, **settings: object
    ) -> WorkerProcess:
        """Starts one more worker.

        Args:
            options: Options of the command.
            round_bytes: The bytes of entries after which it makes a round of checkpoints.
            settings: ``STREAM_DP_*`` variables in lower case.
        """
        from stream_dp.embedded import ports

        number = len(self._processes)
        port = ports.choose("the worker", None)
        environment = {
            "STREAM_DP_SESSION_TIMEOUT_S": "6",
            "STREAM_DP_DATA_DIR": str(self._folder / f"data{number}"),
            **({} if round_bytes is None else {ROUND_BYTES: str(round_bytes)}),
        }
        arguments = ["--redis-url", self.redis_url, "--web-port", str(port), *options]
        return self._started(WorkerProcess, port, arguments, environment | _variables(settings))

    def gateway(self, **settings: object) -> GatewayProcess:
        """Starts a gateway; ``settings`` as for a worker."""
        from stream_dp.embedded import ports

        port = ports.choose("the gateway", None)
        return self._started(GatewayProcess, port, ["--port", str(port)], _variables(settings))

    def _started(
        self, kind: type[Started], port: int, arguments: list[str], environment: dict[str, str]
    ) -> Started:
        servers = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        log = self._folder / f"{kind.command}{len(self._processes)}.log"
        process = kind([*servers, *arguments], {**os.environ, **environment}, log, port)
        self._processes.append(process)
        return process

    def client(self, analyst: str = "ana") -> Client:
        from stream_dp.client import Client

        return Client(self.bootstrap_servers, analyst=analyst, topic_prefix=self.prefix)

    def produce(
        self, role: str, value: object, *, key: str | bytes | None, **more: Any
    ) -> tuple[str, int, int]:
        """Appends any record at all; returns its place. ``more`` goes to kafka-python's ``send``."""
        if isinstance(value, dict):
            value = json.dumps(value).encode()
        if isinstance(key, str):
            key = key.encode()
        if not hasattr(self, "_producer"):
            self._producer = KafkaProducer(
                bootstrap_servers=self.bootstrap_servers, acks="all", max_request_size=8 << 20
            )
        sent = self._producer.send(self.topics.name(role), key=key, value=value, **more).get(
            PATIENCE_S
        )
        return sent.topic, sent.partition, sent.offset

    def read(self, role: str) -> list[Any]:
        """Every record of a topic, as the broker has it."""
        topic = self.topics.name(role)
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap_servers, enable_auto_commit=False)
        try:
            places = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
            ends = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            found = []
            while any(consumer.position(place) < ends[place] for place in places):
                for records in consumer.poll(timeout_ms=500).values():
                    found += records
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def widen(self, admin: KafkaAdminClient, *roles: str) -> None:
        """Gives topics a third partition, and waits until the broker tells everybody."""
        names = [self.topics.name(role) for role in roles]
        admin.create_partitions(dict.fromkeys(names, 3))
        until(lambda: all(len(topic["partitions"]) == 3 for topic in admin.describe_topics(names)))

    def replies(self, role: str) -> list[dict[str, Any]]:
        """Every record of an output topic, parsed."""
        return [json.loads(record.value or b"null") for record in self.read(role)]

    def durable(self) -> Durable:
        """What the journal says now."""
        from tests.durable import looked

        return looked(self.bootstrap_servers, self.topics)

    def private(self, dataset: str) -> dict[str, list[bytes]]:
        """The parts of the private values of a data set, such as ``block 1 0``, from their topic."""
        from tests.durable import private

        return private(self.bootstrap_servers, self.topics, self.durable().states[dataset])

    def in_redis(self, *names: str) -> dict[str, State | None]:
        """The states that Redis has of some data sets; None where it has none that is whole."""
        from tests.durable import in_redis

        return in_redis(self.topics, self.redis_url, names)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        if hasattr(self, "_producer"):
            self._producer.close()


@pytest.fixture
def make_deployment(
    kafka_server: str, valkey_server: str, tmp_path: Path
) -> Iterator[Callable[..., Deployment]]:
    """``make_deployment(partitions=2)``: fresh topics and keys; its workers end with the test."""
    made: list[Deployment] = []

    def make(
        *,
        partitions: int = 2,
        replication: int = 1,
        bootstrap_servers: str = kafka_server,
        redis_url: str = valkey_server,
    ) -> Deployment:
        folder = tmp_path / f"deployment{len(made)}"
        folder.mkdir()
        prefix = f"t{secrets.token_hex(6)}."
        made.append(
            Deployment(bootstrap_servers, redis_url, prefix, folder, partitions, replication)
        )
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


@contextlib.contextmanager
def _shared(
    kafka_server: str, valkey_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    made = Deployment(kafka_server, valkey_server, f"t{secrets.token_hex(6)}.", folder, 2)
    with contextlib.closing(made):
        yield made


@pytest.fixture(scope="module")
def module_deployment(
    kafka_server: str, valkey_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Topics and keys that the tests of a module share, for those that change nothing of each other's."""
    with _shared(kafka_server, valkey_server, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="session")
def served_deployment(
    kafka_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Topics under which one worker answers for the whole run: name each data set as no other is.

    Its Redis is its own, so that no test that fills the other one slows it down.
    """

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[str]:
        with (
            _valkey(tmp_path_factory) as store,
            _shared(kafka_server, store, tmp_path_factory) as made,
        ):
            made.worker().wait_ready()
            yield f"{store} {made.prefix}"

    with _one_for_all_processes(tmp_path_factory, "served", start) as found:
        store, prefix = found.split()
        folder = tmp_path_factory.mktemp("deployment")
        with contextlib.closing(Deployment(kafka_server, store, prefix, folder, 0)) as made:
            yield made


@pytest.fixture
def deployment(make_deployment: Callable[..., Deployment]) -> Deployment:
    """Fresh topics and keys on the servers of the whole run."""
    return make_deployment()
