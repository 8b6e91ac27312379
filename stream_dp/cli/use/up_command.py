"""``stream-dp up``."""

from __future__ import annotations

import getpass
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from stream_dp.cli.command_options import (
    DEFAULT_PREFIX,
    PERSON_KEY,
    last_words,
    state_dir_option,
    topic_prefix_option,
    up_log,
)
from stream_dp.cli.text.progress_bar import StartProgress
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import Running, StateFolder, cache_folder
from stream_dp.errors import ServerUnavailable

if TYPE_CHECKING:
    from stream_dp.embedded.stack import Servers

_WEB_PORT = 6066
_GATEWAY_PORT = 5433
_RESTART_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_STABLE_S = 60.0
_READY_S = 180.0
_WORKER_READY_S = 60.0
_NO_WORKER = "no worker"


@click.command()
@topic_prefix_option
@state_dir_option
@click.option(
    "--web-port",
    type=click.IntRange(1, 65535),
    help=f"The port of the dashboard, /healthz and /metrics.  [default: {_WEB_PORT}, or a free port]",
)
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C instead of returning.")
@click.option("--no-worker", is_flag=True, help="Start no worker.")
def command(
    topic_prefix: str | None,
    state_dir: Path,
    web_port: int | None,
    foreground: bool,
    no_worker: bool,
) -> None:
    """Start Kafka, Valkey, a worker and a gateway on this machine. Use `stream-dp down` to stop them."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    folder, ready = StateFolder(state_dir), _ready_file(state_dir)
    if folder.running() is not None and ready.exists():
        found = _checked(state_dir, topic_prefix, no_worker=no_worker)
        console.print(f"already up: {_described(found, state_dir)}")
        return
    folder.prepare()
    if folder.in_use():
        with _status(console) as say:
            say("Waiting for servers that are starting or stopping")
            _await_other(folder, say)
    if not folder.in_use():
        ready.unlink(missing_ok=True)
        port = None if no_worker else _web_port(web_port, state_dir, console)
        up = _Up(state_dir, port, topic_prefix or DEFAULT_PREFIX)
        if foreground:
            up.run(console)
            return
        with _status(console) as say:
            up.detach(say)
    found = _checked(state_dir, topic_prefix, no_worker=no_worker)
    console.print(f"up: {_described(found, state_dir)}")
    if no_worker:
        console.print("to go on with a worker: stream-dp down, then stream-dp up")
    else:
        console.print(f"data in {state_dir}; next: stream-dp dataset create DEFINITION.json")
        console.print(f"tools that know Postgres: psql {_ready_addresses(state_dir)[1]}")


def _checked(state_dir: Path, prefix: str | None, *, no_worker: bool) -> Running:
    """Returns the servers that run, if they are those that are wanted."""
    found = StateFolder(state_dir).running()
    assert found is not None, "ready says that they run"
    if prefix and prefix != found.topic_prefix:
        raise ServerUnavailable(
            f"the servers already run with the topics {found.topic_prefix}*, not {prefix}*; stop them first "
            "with `stream-dp down`, or omit --topic-prefix and STREAM_DP_TOPIC_PREFIX"
        )
    runs = _pages(state_dir) != _NO_WORKER
    if runs == no_worker:
        raise ServerUnavailable(
            f"the servers already run {'with' if runs else 'without'} a worker; stop them first with "
            "`stream-dp down`"
        )
    return found


def worker_child(
    addresses: Running, state_dir: Path, web_port: int, topic_prefix: str = DEFAULT_PREFIX
) -> Child:
    """Starts a worker on the embedded servers, as a child that ends with this process."""
    options = {
        "bootstrap-servers": addresses.bootstrap_servers,
        "redis-url": addresses.redis_url,
        "web-port": str(web_port),
        "instance-id": "embedded",
        "topic-prefix": topic_prefix,
        "log-format": "text",  # commands read the end of its log, whatever STREAM_DP_LOG_FORMAT says
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return Child(
        "the worker",
        [sys.executable, "-m", "stream_dp", "worker", *words],
        log=state_dir / "logs" / "worker.log",
        folder=state_dir,
        variables={PERSON_KEY: str(StateFolder(state_dir).made_person_key())},
    )


def _gateway_child(addresses: Running, state_dir: Path, port: int, topic_prefix: str) -> Child:
    """Starts a gateway to the embedded broker, as a child that ends with this process."""
    words = ["--bootstrap-servers", addresses.bootstrap_servers, "--topic-prefix", topic_prefix]
    return Child(
        "the gateway",
        [sys.executable, "-m", "stream_dp", "gateway", *words, "--port", str(port)],
        log=state_dir / "logs" / "gateway.log",
        folder=state_dir,
    )


def await_worker(
    worker: Child, web_port: int, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Returns when the worker answers requests.

    Raises:
        ServerUnavailable: The worker ended or took too long. The error quotes the last lines of its log.
    """

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/healthz", timeout=1) as reply:
                return bool(reply.status == HTTPStatus.OK)
        except OSError:
            return False

    worker.wait_until(ready, timeout_s=_WORKER_READY_S, cancelled=cancelled)


def _web_port(given: int | None, state_dir: Path, console: Console) -> int:
    """Chooses the given port, or else the usual one, the previous one, or any free port."""
    if given is not None and not ports.is_free(given):
        raise ServerUnavailable(
            f"port {given} is taken by another program; pass another --web-port for the worker's pages"
        )
    if given is not None or ports.is_free(_WEB_PORT):
        return given or _WEB_PORT
    chosen = ports.choose("the worker's pages", None, ports.usual(state_dir / "pages"))
    console.print(
        f"port {_WEB_PORT} is taken by another program, so the worker's pages are on {chosen}"
    )
    return chosen


@dataclass(frozen=True)
class _Up:
    """Servers and a worker to start.

    Attributes:
        state_dir: The folder of their data.
        web_port: The port of the worker's pages. None for no worker.
        topic_prefix: The prefix of all topic names.
    """

    state_dir: Path
    web_port: int | None
    topic_prefix: str

    # ---------------------------------------------------------------- the process that stays

    def run(self, console: Console) -> None:
        """Runs all of it until this process is told to stop."""
        stopping = threading.Event()
        try:
            self._supervise(console, stopping)
        except ServerUnavailable:
            if not stopping.is_set():  # otherwise it was told to stop before it was up
                raise
        console.print(f"stopped; the data stays in {self.state_dir}")

    def _supervise(self, console: Console, stopping: threading.Event) -> None:
        from stream_dp.client.kafka.deployment_topics import create_topics
        from stream_dp.embedded.stack import Servers
        from stream_dp.messages import Topics

        state, prefix, port = self.state_dir, self.topic_prefix, self.web_port
        with _Steps(console, state) as progress:
            cache = cache_folder(os.environ)
            servers = Servers(state, cache, topic_prefix=prefix, progress=progress)

            def stop(*_: object) -> None:
                stopping.set()
                servers.cancel()

            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, stop)
            with servers as addresses:
                progress.step("Creating the topics")
                create_topics(addresses.bootstrap_servers, Topics(prefix))
                with ExitStack() as stack:
                    try:
                        children, postgres = [], ""
                        if port is not None:
                            progress.step("Starting the worker and the gateway")
                            wished = (
                                _GATEWAY_PORT
                                if ports.is_free(_GATEWAY_PORT)
                                else ports.usual(state)
                            )
                            at = ports.choose("the gateway", None, wished)
                            worker = worker_child(addresses, state, port, prefix)
                            gateway = _gateway_child(addresses, state, at, prefix)
                            children = [
                                _Kept(stack.enter_context(one)) for one in (worker, gateway)
                            ]
                            await_worker(worker, port, stopping.is_set)
                            gateway.wait_until(
                                lambda: ports.accepts(at),
                                timeout_s=_WORKER_READY_S,
                                cancelled=stopping.is_set,
                            )
                            postgres = f"postgresql://{_login_name()}@{ports.HOST}:{at}/stream_dp"
                        self._say_ready(postgres)
                        progress.step(f"Running; Kafka is at {addresses.bootstrap_servers}")
                        _keep(servers, children, stopping)
                    finally:
                        _ready_file(state).unlink(missing_ok=True)
                        progress.step("Stopping")

    def _say_ready(self, postgres: str) -> None:
        """Writes where the pages and the gateway are, in one step for those who wait."""
        new = self.state_dir / "ready.new"
        page = f"http://127.0.0.1:{self.web_port}/"
        new.write_text(f"{_NO_WORKER if self.web_port is None else page}\n{postgres}\n")
        new.replace(_ready_file(self.state_dir))

    # ---------------------------------------------------------------- the process that returns

    def detach(self, say: Callable[[str], None]) -> None:
        """Starts a process that runs all of it, and returns when all servers answer."""
        log = up_log(self.state_dir)
        log.parent.mkdir(exist_ok=True)
        (self.state_dir / "step").unlink(missing_ok=True)
        words = ["up", "--foreground", "--state-dir", str(self.state_dir)]
        words += ["--topic-prefix", self.topic_prefix]
        words += ["--no-worker"] if self.web_port is None else ["--web-port", str(self.web_port)]
        with log.open("wb") as output:
            supervisor = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "stream_dp", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            _wait(self.state_dir, lambda: supervisor.poll() is not None, say)
        except BaseException:
            if supervisor.poll() is None:
                say("Stopping")
                supervisor.terminate()
                supervisor.wait()
            raise


class _Kept:
    """A child that is started again when it ends. That takes longer each time if it ends soon."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ends = 0
        self._started = time.monotonic()
        self._due = 0.0

    def look(self) -> None:
        """Starts it again if it has ended, and it is time to."""
        if self._child.exit_code() is None:
            return
        now = time.monotonic()
        if not self._due:
            self._ends = 0 if now - self._started > _STABLE_S else self._ends
            self._due = now + _RESTART_S[min(self._ends, len(_RESTART_S) - 1)]
        elif now > self._due:
            self._ends, self._started, self._due = self._ends + 1, now, 0.0
            self._child.stop()
            self._child.start()


def _keep(servers: Servers, children: Sequence[_Kept], stopping: threading.Event) -> None:
    """Keeps the worker and the gateway running."""
    while not stopping.wait(0.2):
        if problem := servers.failure():
            raise ServerUnavailable(problem)
        for child in children:
            child.look()


class _Steps(StartProgress):
    """Draws the start here and writes each step to a file for a process that waits."""

    def __init__(self, console: Console, state_dir: Path) -> None:
        super().__init__(console)
        self._file = state_dir / "step"

    def step(self, text: str) -> None:
        super().step(text)
        self._write(text)

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        super().downloaded(jars, jars_total, n_bytes)
        self._write(
            f"Downloading Apache Kafka, {jars} of {jars_total} jars, {n_bytes / 1e6:.0f} MB"
        )

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write_text(text)


def _wait(state_dir: Path, ended: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Returns when all servers answer and gives up if nothing happens for long.

    Raises:
        ServerUnavailable: The supervisor ended. The error says why.
    """
    step, changed = "", time.monotonic()
    while not _ready_file(state_dir).exists():
        if ended():
            raise ServerUnavailable(_why(state_dir))
        with suppress(OSError):
            now = (state_dir / "step").read_text()
            if now and now != step:
                step, changed = now, time.monotonic()
                say(step)
        if time.monotonic() - changed > _READY_S:
            raise ServerUnavailable(
                f"nothing happened for {_READY_S:g} seconds; see {state_dir / 'logs'}"
            )
        time.sleep(0.1)


def _await_other(folder: StateFolder, say: Callable[[str], None]) -> None:
    """Returns when the servers that another command started answer or have ended."""
    try:
        _wait(folder.path, lambda: not folder.in_use(), say)
    except ServerUnavailable:
        if folder.in_use():
            raise


def _why(state_dir: Path) -> str:
    """Returns the last words of the supervisor."""
    if said := last_words(state_dir):
        return said
    log = up_log(state_dir)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"the servers did not start; {log} ends with:\n" + "\n".join(lines[-10:])


@contextmanager
def _status(console: Console) -> Iterator[Callable[[str], None]]:
    """Shows the current step: in one line on a terminal, or else line by line."""
    if console.is_terminal:
        with console.status("Starting") as status:
            yield status.update
    else:
        yield console.print


def _ready_file(state_dir: Path) -> Path:
    """The file that is there while all servers answer. It says where the pages and the gateway are."""
    return state_dir / "ready"


def _described(found: Running, state_dir: Path) -> str:
    topics = f", topics {found.topic_prefix}*" if found.topic_prefix != DEFAULT_PREFIX else ""
    return f"Kafka at [b]{found.bootstrap_servers}[/b]{topics}, {_pages(state_dir)}"


def _pages(state_dir: Path) -> str:
    with suppress(OSError):
        url, _ = _ready_addresses(state_dir)
        return _NO_WORKER if url == _NO_WORKER else f"dashboard at [b]{url}[/b]"
    return "the worker is restarting"


def _ready_addresses(state_dir: Path) -> tuple[str, str]:
    """Returns the addresses of the pages and of the gateway."""
    pages, postgres = _ready_file(state_dir).read_text().splitlines()
    return pages, postgres


def _login_name() -> str:
    """Returns the name under which this person asks, if that is one of an analyst without special signs."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # of a user without a name
        name = ""
    return name if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) else "ann"
