"""Clients of a worker in this process: no broker, no store, and real answers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_dp.broker import Broker
from stream_dp.client import AsyncClient, Client
from stream_dp.client.kafka.mailbox import CLOSED, Mailbox
from stream_dp.client.kafka.session import Session
from stream_dp.errors import StreamDPError
from stream_dp.messages import DimensionTable, Topics, read_json
from tests.pipeline.trail import Sent
from tests.pipeline.world import Process, World

TOPICS = Topics("in.")


class QuietMailbox(Mailbox):
    """A mailbox whose replies come from the test."""

    def __init__(self, schema_versions: dict[str, int] | None = None) -> None:
        super().__init__(Broker("127.0.0.1:1"), {}, TOPICS, schema_versions=schema_versions)

    def _open(self, config: Mapping[str, object]) -> Any:
        return None

    def _read(self) -> None:
        self._stopping.wait()
        self._finish(StreamDPError(CLOSED))

    def deliver(self, role: str, value: bytes | None) -> None:
        self._sort(role, value)


class QuietSession(Session):
    """A session with a broker that listens, and whose records nobody reads.

    Attributes:
        sent: The topic, the key, the value and the headers of each record.
        records: What ``published`` reads, by the role of the topic.
        takes_s: How long the broker takes for a record.
    """

    takes_s = 0.0

    def __init__(self, analyst: str = "ann") -> None:
        self.analyst = analyst
        self.definitions = {}
        self.schema_versions = {}
        self.published: Any = self
        self.mailbox = QuietMailbox(self.schema_versions)
        self.closing = False
        self.sent: list[tuple[str, str, bytes | None, dict[str, bytes]]] = []
        self.records: dict[str, list[tuple[str, bytes | None]]] = {}
        self._credentials = None
        self._on_delay = None
        self._topics = TOPICS
        self._sender: Any = self
        self._lock = threading.Lock()
        self._mailbox = self.mailbox
        self._server = socket.create_server(("127.0.0.1", 0))
        self._broker = Broker("{}:{}".format(*self._server.getsockname()))

    def read(self, role: str, *, latest: int | None = None) -> list[tuple[str, bytes | None]]:
        return self.records.get(role, [])[-(latest or 0) :]

    def send(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        *,
        timeout_s: float,
    ) -> tuple[str, int, int]:
        time.sleep(self.takes_s)
        self.sent.append((topic, key, value, dict(headers)))
        return topic, 0, len(self.sent)

    def close(self) -> None:
        self.closing = True
        self.mailbox.close()
        self._server.close()

    def worker_problem(self) -> str | None:
        return "no worker runs"


class WorldSession(QuietSession):
    """A session with a worker of this process, which has replied when ``send`` returns.

    Args:
        analyst: The name of the analyst.
        rules: The rules of the worker that are not those of others.

    Attributes:
        readers: Functions that receive the role, the key and the value of each record of a topic.
        is_asleep: Whether the worker reads nothing.
    """

    def __init__(self, analyst: str = "ann", **rules: Any) -> None:
        super().__init__(analyst)
        self.world = World()
        self.readers: list[Callable[[str, str, bytes | None], None]] = []
        self.is_asleep = False
        self._rules = rules
        self._loop = asyncio.new_event_loop()
        self._process: Process | None = None
        self._one = threading.RLock()

    def send(self, topic: str, key: str, value: bytes | None, headers: Any, **_: Any) -> Any:
        super().send(topic, key, value, headers, timeout_s=1.0)
        role = topic.removeprefix("in.")
        if role == "dimensions":
            self.records.setdefault(role, []).append((key, value))
            return topic, 0, 0
        with self._one:
            record = self.world.produce(role, value, key=key, headers=dict(headers))
            for reader in self.readers:
                reader(role, key, value)
            if not self.is_asleep:
                self.run()
        return topic, record.partition, record.offset

    def run(self) -> None:
        """Lets the worker read all records, and delivers what it sends."""
        with self._one:
            before = len(self.world.trail)
            self._loop.run_until_complete(self._work())
            for one in self.world.trail[before:]:
                if isinstance(one, Sent):
                    role, key, value = one.outgoing.role, one.outgoing.key, one.outgoing.value
                    self.records.setdefault(role, []).append((key, value or None))
                    for reader in self.readers:
                        reader(role, key, value or None)
                    if role in ("answers", "events", "rejected", "running"):
                        self.mailbox.deliver(role, value)

    async def _work(self) -> None:
        if self._process is None:
            self._process = self.world.process(**self._rules)
            await self._process.assign()
        await self._process.run()

    def end(self) -> None:
        """Ends the worker."""
        if self._process is not None:
            self._loop.run_until_complete(self._process.kill())
        self._loop.close()
        self.close()


class SessionClient(Client):
    """A client on a session of a test."""

    def __init__(self, session: Session) -> None:
        self._begin(lambda: session)


class AsyncSessionClient(AsyncClient):
    """A client for asyncio on a session of a test."""

    def __init__(self, session: Session) -> None:
        self._begin(lambda: session)


CARRIERS = DimensionTable(
    dimension="carriers",
    key="code",
    columns=("code", "region", "planes"),
    types=("text", "text", "integer"),
    rows=(("AA", "west", 900), ("UA", "east", None)),
)


class WorldClient(SessionClient):
    """A client with the data set ``flights``, in its first phase of 21,000 rows, and a public table."""

    def __init__(self) -> None:
        self.session = WorldSession()
        super().__init__(self.session)
        self.produce(lambda world: world.define("flights"))
        self.produce(lambda world: world.cells("flights", "first"))
        self.put_dimension(CARRIERS)
        self.session.sent.clear()

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """The queries that were sent, each by its fields."""
        found: list[Mapping[str, Any]] = []
        for topic, _, value, _ in self.session.sent:
            if topic == TOPICS.name("queries") and value is not None:
                document = read_json(value, max_bytes=10_000_000)
                if "quote" not in document:
                    found += document.get("queries", [document])
        return found

    def produce(self, produce: Callable[[World], object]) -> None:
        """Lets a test write records of its own, and the worker read them."""
        produce(self.session.world)
        self.session.run()

    def end(self) -> None:
        """Ends the worker."""
        self.session.end()
