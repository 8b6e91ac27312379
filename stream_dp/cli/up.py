"""``stream-dp up``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from stream_dp.cli.connection import state_dir_option
from stream_dp.cli.progress import StartProgress
from stream_dp.client.topics import create_topics
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import cache_folder, running
from stream_dp.embedded.stack import Addresses, Servers
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics

__all__ = ["await_worker", "command", "worker_child"]

_RESTART_S = 1.0
_READY_S = 180.0
_WORKER_READY_S = 60.0


@click.command()
@state_dir_option
@click.option(
    "--web-port",
    type=click.IntRange(1, 65535),
    default=6066,
    show_default=True,
    help="Port of the worker's /healthz and /metrics.",
)
@click.option("--foreground", is_flag=True, help="Stay here until Ctrl-C instead of returning.")
def command(state_dir: Path, web_port: int, foreground: bool) -> None:  # noqa: FBT001 - click
    """Start Kafka, Valkey and a worker on this machine; `stream-dp down` stops them."""
    console = Console(stderr=True)
    found = running(state_dir)
    if found is not None:
        console.print(f"already up: Kafka at [b]{found.bootstrap_servers}[/b]")
        return
    if foreground:
        _supervise(state_dir, web_port, console)
    else:
        _detach(state_dir, web_port, console)


def worker_child(addresses: Addresses, state_dir: Path, web_port: int) -> Child:
    """A worker on the embedded servers, as a child that dies with this process."""
    arguments = ["worker", "--bootstrap-servers", addresses.bootstrap_servers]
    arguments += ["--redis-url", addresses.redis_url, "--web-port", str(web_port)]
    arguments += ["--instance-id", "embedded"]
    return Child(
        "worker",
        [sys.executable, "-m", "stream_dp", *arguments],
        log=state_dir / "logs" / "worker.log",
        folder=state_dir,
    )


def await_worker(worker: Child, web_port: int) -> None:
    """Returns when the worker answers requests.

    Raises:
        ServerUnavailable: It ended, or took too long; with the last lines of its log.
    """

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/healthz", timeout=1) as reply:
                return bool(reply.status == HTTPStatus.OK)
        except OSError:
            return False

    worker.wait_until(ready, timeout_s=_WORKER_READY_S, cancelled=lambda: False)


def _supervise(state_dir: Path, web_port: int, console: Console) -> None:
    """Runs the servers, and the worker again whenever it ends, until this process is told to stop."""
    with StartProgress(console) as progress, _stopped_by_signals() as stopping:
        servers = Servers(state_dir, cache_folder(os.environ), progress=progress)
        with servers as addresses:
            create_topics(addresses.bootstrap_servers, Topics())
            progress.step("Starting the worker")
            progress.step("Running")
            with worker_child(addresses, state_dir, web_port) as worker:
                await_worker(worker, web_port)
                (state_dir / "ready").touch()
                try:
                    while not stopping:
                        if problem := servers.failure():
                            raise ServerUnavailable(problem)
                        if worker.exit_code() is not None:
                            time.sleep(_RESTART_S)
                            worker.stop()
                            worker.start()
                        time.sleep(0.2)
                finally:
                    (state_dir / "ready").unlink(missing_ok=True)


@contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """A list that is empty until SIGTERM or SIGINT arrives."""
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    yield received


def _detach(state_dir: Path, web_port: int, console: Console) -> None:
    """Starts the supervisor in the background and returns when everything answers."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    (state_dir / "ready").unlink(missing_ok=True)
    log = state_dir / "logs" / "up.log"
    log.parent.mkdir(exist_ok=True)
    arguments = ["up", "--foreground", "--state-dir", str(state_dir), "--web-port", str(web_port)]
    with log.open("wb") as output:
        supervisor = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "stream_dp", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    with console.status("Starting Kafka, Valkey and a worker (the first time downloads 80 MB)"):
        deadline = time.monotonic() + _READY_S
        while not (state_dir / "ready").exists():
            if supervisor.poll() is not None or time.monotonic() > deadline:
                raise ServerUnavailable(
                    f"the servers did not start; {log} ends with:\n{_tail(log)}"
                )
            time.sleep(0.1)
    found = running(state_dir)
    assert found is not None, "ready says that they run"
    console.print(
        f"up: Kafka at [b]{found.bootstrap_servers}[/b], worker at "
        f"[b]http://127.0.0.1:{web_port}/healthz[/b], data in {state_dir}"
    )


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
