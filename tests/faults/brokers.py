"""A cluster of three brokers that tests may kill, each a process with a folder of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from tests.waiting import until

CLUSTER_ID = "c3RyZWFtX2RwX3Rlc3RzMQ"
CONTROLLER = 9
"""The number of the process that only votes, in a cluster that has one."""

# As an operator sets up a cluster: an acknowledged record is on two of three, and not on disk first.
_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # A dead broker is noticed sooner than after nine seconds.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
_ALONE = {"log.flush.interval.messages"}
"""What only a single broker sets."""


class _Node(KafkaServer):
    """One process of a cluster. It starts again at the same ports, with what it had."""

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        number: int,
        settings: Mapping[str, str],
        port: int,
    ) -> None:
        log = folder.with_suffix(".log")
        super().__init__(folder, jars, log=log, port=port, cluster=CLUSTER_ID)
        self._number = number
        self._more = settings

    def _write_settings(self) -> None:
        super()._write_settings()
        lines = self._settings.read_text(encoding="ascii").splitlines()
        named = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        named |= {"node.id": str(self._number), **_REPLICATED, **self._more}
        kept = {name: value for name, value in named.items() if value and name not in _ALONE}
        text = "\n".join(f"{name}={value}" for name, value in kept.items())
        self._settings.write_text(f"{text}\n", encoding="ascii")

    def _command(self, main: str, *arguments: str) -> list[str]:
        words = super()._command(main, *arguments)
        return ["-Xmx256m" if word.startswith("-Xmx") else word for word in words]

    def _answers(self, cluster: str) -> bool:
        if self._more.get("process.roles") == "controller":
            return ports.accepts(self.port)
        return super()._answers(cluster)

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        if self._child is not None:
            self._child.kill()
        self.stop()


class Brokers:
    """Three brokers, numbered from 1, on one machine.

    Args:
        folder: The folder for the data and logs of all of them.
        jars: The class path.
        apart: Whether a fourth process is the only controller, so that a broker that is alone still learns
            who leads and which replicas are in sync. Else each broker is a controller too, as in a small
            deployment, and one alone decides nothing.
    """

    def __init__(self, folder: Path, jars: Sequence[Path], *, apart: bool = False) -> None:
        self.numbers = (1, 2, 3)
        self._apart = apart
        voters = (CONTROLLER,) if apart else self.numbers
        controllers = {number: ports.choose("a controller", None) for number in voters}
        listening = {number: ports.choose("a broker", None) for number in self.numbers}
        self._nodes = {
            number: _Node(
                folder / f"node{number}",
                jars,
                number,
                _listeners(listening.get(number), controllers.get(number))
                | {"controller.quorum.voters": _quorum(controllers)},
                listening.get(number) or controllers[number],
            )
            for number in {**listening, **controllers}
        }
        self.bootstrap_servers = ",".join(f"{ports.HOST}:{port}" for port in listening.values())

    def start(self, *numbers: int) -> None:
        """Starts these brokers, or all that there are, at once, and waits until they answer.

        Raises:
            ServerUnavailable: One of them did not start.
        """
        chosen = numbers or tuple(self._nodes)
        with ThreadPoolExecutor(len(chosen)) as pool:
            list(pool.map(lambda number: self._nodes[number].start(), chosen))

    def kill(self, *numbers: int) -> None:
        """kill -9."""
        for number in numbers:
            self._nodes[number].kill()

    def signal(self, number: int, what: signal.Signals) -> None:
        """Sends a signal to a process, such as to stop it for a while."""
        os.kill(self._nodes[number].pid, what)

    def address(self, *numbers: int) -> str:
        """Where these brokers listen."""
        return ",".join(f"{ports.HOST}:{self._nodes[number].port}" for number in numbers)

    def stop(self) -> None:
        """Ends all of them. What they have needs not outlive the test."""
        self.kill(*self._nodes)

    def partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        """What the brokers that answer say about each partition: ``leader`` (-1: none) and ``isr``."""
        with self.admin() as admin:
            (described,) = admin.describe_topics([topic])
        return {
            part["partition_index"]: {
                "leader": part["leader_id"],
                "isr": sorted(part["isr_nodes"]),
                "replicas": list(part["replica_nodes"]),
            }
            for part in described["partitions"]
        }

    def wait_in_sync(self, topic: str, numbers: Collection[int] = (1, 2, 3)) -> None:
        """Waits until exactly these replicas of each partition are in sync, and one of them leads."""
        self.wait(
            lambda: all(
                part["isr"] == sorted(numbers) and part["leader"] in numbers
                for part in self.partitions(topic).values()
            )
        )

    def wait(self, condition: Callable[[], bool]) -> None:
        """Waits until this is true. It is asked again when no broker answers yet."""
        until(condition, "the cluster did not get there", every_s=0.2, ignoring=(KafkaError,))

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """A client that changes and describes topics."""
        client = KafkaAdminClient(
            bootstrap_servers=self.bootstrap_servers, bootstrap_timeout_ms=10_000
        )
        try:
            yield client
        finally:
            client.close()


def _quorum(controllers: Mapping[int, int]) -> str:
    return ",".join(f"{number}@{ports.HOST}:{port}" for number, port in controllers.items())


def _listeners(port: int | None, controller: int | None) -> dict[str, str]:
    """The settings of a process that listens for clients, for controllers, or for both."""
    clients = "" if port is None else f"PLAINTEXT://{ports.HOST}:{port}"
    voters = "" if controller is None else f"CONTROLLER://{ports.HOST}:{controller}"
    roles = (("broker", clients), ("controller", voters))
    return {
        "process.roles": ",".join(role for role, listener in roles if listener),
        "listeners": ",".join(listener for _, listener in roles if listener),
        "advertised.listeners": clients,  # a controller alone has none
        "inter.broker.listener.name": "PLAINTEXT" if clients else "",
    }
