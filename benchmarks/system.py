"""The whole system on this machine, for benchmarks: real Kafka, real Valkey, a worker, a client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from rich.console import Console

from stream_dp.cli.text.progress_bar import StartProgress
from stream_dp.cli.use.up_command import await_worker, worker_child
from stream_dp.client import Client
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import Running, cache_folder
from stream_dp.embedded.stack import Servers
from stream_dp.messages import Topics
from stream_dp.messages.topics import TIMES


@dataclass(frozen=True)
class System:
    """A running system; its worker can be stopped and started again."""

    addresses: Running
    worker: Child
    web_port: int
    folder: Path

    def client(self) -> Client:
        return Client(self.addresses.bootstrap_servers, analyst="benchmark")

    def start_worker(self) -> None:
        self.worker.start()
        await_worker(self.worker, self.web_port)


def _time_replies(addresses: Running, roles: Sequence[str]) -> None:
    """Has the broker date replies when it takes them: a worker dates them by what they answer."""
    admin = KafkaAdminClient(bootstrap_servers=addresses.bootstrap_servers)
    admin.alter_configs(
        [
            ConfigResource(ConfigResourceType.TOPIC, Topics().name(role), {TIMES: "LogAppendTime"})
            for role in roles
        ]
    )
    admin.close()


@contextmanager
def running_system(console: Console, *, dated: Sequence[str] = ()) -> Iterator[System]:
    """Servers and a worker in a temporary folder, gone afterwards.

    Args:
        console: Where progress is shown.
        dated: The roles of topics that the broker dates, besides answers and events.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-dp-bench-")))
        with StartProgress(console) as progress:
            servers = Servers(folder / "servers", cache_folder(os.environ), progress=progress)
            addresses = stack.enter_context(servers)
            create_topics(addresses.bootstrap_servers, Topics())
            _time_replies(addresses, ("answers", "events", *dated))
            web_port = ports.choose("the worker's pages", None)
            worker = worker_child(addresses, folder, web_port)
            stack.callback(worker.stop)
            system = System(addresses, worker, web_port, folder)
            progress.step("Starting the worker")
            system.start_worker()
        yield system


def memory_mb(field: str, process: int | str = "self") -> float:
    """The memory of a process: now (``VmRSS``), or the most so far (``VmHWM``)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024


@contextmanager
def running_servers(names: Topics, below: Path | None = None) -> Iterator[tuple[Path, Running]]:
    """Servers in a temporary folder, gone afterwards, with topics of one partition."""
    with (
        tempfile.TemporaryDirectory(prefix="stream-dp-bench-", dir=below) as name,
        Servers(Path(name), cache_folder(os.environ)) as addresses,
    ):
        create_topics(addresses.bootstrap_servers, names, partitions=1)
        yield Path(name), addresses
