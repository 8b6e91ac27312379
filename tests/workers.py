"""Workers and gateways of the tests: the commands themselves, in processes that begin with modules loaded.

A worker reads some two thousand modules, which takes two seconds of a core, and the tests start hundreds of
workers. So one process loads them, and each worker is a fork of it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, NoReturn

from tests.waiting import PATIENCE_S, until

ROUND_BYTES = "TESTS_ROUND_BYTES"
"""The variable that says how often a worker makes rounds of checkpoints: no test lasts long enough for one.

Then answers are carried in checkpoints, too, where there are fewer of them than entries.
"""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.workers_preloaded"])


def _run(command: str, arguments: list[str], environment: dict[str, str], log: Path) -> NoReturn:
    """What ``python -m stream_dp worker`` does, or another command."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["stream-dp", command, *arguments]
    if n_bytes := environment.get(ROUND_BYTES):
        from stream_dp.pipeline import worker
        from stream_dp.pipeline.journal import checkpoint_rounds

        vars(worker)["Often"] = partial(checkpoint_rounds.Often, n_bytes=int(n_bytes), per_id=1)
    from stream_dp.cli import main

    main()


def _execute(script: str, output: Path, errors: Path) -> None:
    """What ``python -c`` does."""
    for number, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    try:
        exec(script, {"__name__": "__main__"})
    except Exception:  # noqa: BLE001 - the hook is what tests ask for
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def run_script(script: str, folder: Path) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr of a script, in a process that begins with the modules of a worker."""
    output, errors = folder / "stdout", folder / "stderr"
    output.unlink(missing_ok=True)
    errors.unlink(missing_ok=True)
    process = _FORKS.Process(target=_execute, args=(script, output, errors))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode, output.read_text(), errors.read_text()


class CommandProcess:
    """A command as an operator runs it, in a process of its own, that serves on a port."""

    command: ClassVar[str]

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path, port: int):
        self.log = log
        self.port = port
        log.touch()
        self._process = _FORKS.Process(
            target=_run, args=(self.command, arguments, environment, log)
        )
        self._process.start()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def until(self, condition: Callable[[], object], *, alive: bool = False) -> None:
        def holds() -> object:
            if alive:
                assert self.exit_code is None, self.output
            return condition()

        until(holds, lambda: f"timed out\n{self.output}")

    def wait(self) -> int:
        """Waits for its end; the exit code."""
        self._process.join(PATIENCE_S)
        code = self.exit_code
        assert code is not None, f"it runs on\n{self.output}"
        return code

    def signal(self, number: int) -> None:
        pid = self._process.pid
        if self.exit_code is None and pid is not None:
            os.kill(pid, number)

    def kill(self) -> None:
        """kill -9, also of a process that is stopped, and wait for the end."""
        self.signal(signal.SIGKILL)
        self._process.join()

    def stop(self) -> int:
        """Asks it to end."""
        self.signal(signal.SIGTERM)
        return self.wait()


class WorkerProcess(CommandProcess):
    """A worker."""

    command = "worker"

    @property
    def url(self) -> str:
        """Where its web server answers."""
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str) -> bytes | None:
        """A page of its web server; None while it does not answer with 200."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=2) as reply:
                return bytes(reply.read())
        except OSError:
            return None

    def wait_ready(self) -> WorkerProcess:
        """Waits until it answers requests."""
        self.until(lambda: self.page("/healthz") is not None, alive=True)
        return self


class GatewayProcess(CommandProcess):
    """A gateway."""

    command = "gateway"

    @property
    def address(self) -> str:
        """Where ann connects to it."""
        return f"postgresql://ann@127.0.0.1:{self.port}/stream_dp"

    def wait_ready(self) -> GatewayProcess:
        """Waits until it takes connections."""
        self.until(lambda: "listens on" in self.output, alive=True)
        return self
