"""Servers, a worker and a client for a demo, and what every demo does with them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stream_dp.audit import Report
from stream_dp.cli.operate.ledger_command import published, reports
from stream_dp.cli.text.progress_bar import StartProgress
from stream_dp.cli.use.up_command import await_worker, worker_child
from stream_dp.client import Client
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.stack import Servers
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import Topics


@dataclass(frozen=True)
class DemoDeployment:
    """A worker of a demo, and a client."""

    client: Client
    worker: Child

    @classmethod
    @contextmanager
    def started(cls, console: Console) -> Iterator[DemoDeployment]:
        """Starts everything in a folder of its own, and stops it in the end."""
        with ExitStack() as stack:
            state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-dp-demo-")))
            with StartProgress(console) as progress:
                servers = Servers(state / "servers", cache_folder(os.environ), progress=progress)
                addresses = stack.enter_context(servers)
                progress.step("Starting the worker")
                create_topics(addresses.bootstrap_servers, Topics())
                web_port = ports.choose("the worker's pages", None)
                worker = stack.enter_context(worker_child(addresses, state, web_port))
                await_worker(worker, web_port)

            def check_worker(_: str) -> None:
                if worker.exit_code() is not None:
                    raise ServerUnavailable(worker.explain("the worker ended"))

            client = Client(addresses.bootstrap_servers, analyst="demo", on_delay=check_worker)
            yield cls(stack.enter_context(client), worker)

    def kill_worker(self) -> None:
        """Kills the worker with kill -9, and starts another one."""
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.stop()
        self.worker.start()

    def reports(self, *datasets: str) -> list[Report]:
        """Recomputes the prices of data sets from the topics, as anyone can."""
        return list(reports(*published(self.client), datasets))


def summarise(
    console: Console, lines: Iterator[str], found: Sequence[Report], *, kept: bool
) -> None:
    """Says what a demo has shown, and raises if a promise did not hold.

    Args:
        console: Where it is printed.
        lines: What was shown.
        found: What the ledgers say.
        kept: Whether all other promises were kept.
    """
    for line in ("", *lines):
        console.print(line)
    if not kept:
        raise StreamDPError("the demo did not keep its promises; please report this")
    for fault in (fault for report in found for fault in report.faults):
        raise StreamDPError(f"the ledger has a fault: {fault}; please report this")
    blocks = [block for report in found for block in report.blocks]
    charges = sum(report.charges for report in found)
    units = sum(abs(part) for block in blocks for part in block.difference)
    console.print(
        f"the ledger, recomputed from the topic alone as `stream-dp ledger verify` does: "
        f"{len(blocks)} phases, {charges} charges, [b]{units} units[/b] of difference"
    )
