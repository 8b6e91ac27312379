"""A server process that ends when we do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from stream_dp.embedded import watcher
from stream_dp.errors import ServerUnavailable

_ROTATE_BYTES = 2**20
_TAIL_LINES = 12
_DETAILS = ("\t", "    ", "WARNING: ")
_TAIL_BYTES = 65_536


class Child:
    """A command that runs under a watcher. It ends with this process, even after kill -9.

    Args:
        name: The name of the server in error messages.
        command: The program and its arguments.
        log: The file for its output. A grown log of earlier runs is kept next to it.
        folder: The working directory.
        grace_s: The seconds that it may take to stop before it is killed.
        hold: File descriptors, such as locks, that stay open while it runs.
        variables: The environment that it needs besides a path and a locale.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        folder: Path,
        grace_s: float = 10.0,
        hold: tuple[int, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log, self.pid = name, log, 0
        self._command, self._folder = list(command), folder
        self._grace_s, self._hold = grace_s, hold
        self._variables = dict(variables or {})
        self._log_start = 0
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the command and returns as soon as it runs, whether it is ready or not.

        Raises:
            ServerUnavailable: The program cannot be run.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _ROTATE_BYTES:
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._watcher = subprocess.Popen(  # noqa: S603 - our own programs
                [sys.executable, "-I", "-S", watcher.__file__, str(self._grace_s), *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=self._folder,
                # The caller's settings (JAVA_TOOL_OPTIONS, CLASSPATH...) must not reach our servers.
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **self._variables},
                pass_fds=self._hold,
                # Ctrl-C in a terminal is for us: we stop the servers in order, after their users.
                start_new_session=True,
            )
        assert self._watcher.stdout is not None
        line = self._watcher.stdout.readline()
        if not line:
            self.stop()
            raise ServerUnavailable(self.explain(f"{self.name} cannot be started"))
        self.pid = int(line)

    def exit_code(self) -> int | None:
        """The exit code, 128 + n after signal n, or None while the command runs."""
        return None if self._watcher is None else self._watcher.poll()

    def wait_until(
        self, ready: Callable[[], bool], *, timeout_s: float, cancelled: Callable[[], bool]
    ) -> None:
        """Returns when ``ready()`` is true. It asks about 50 times a second.

        Raises:
            ServerUnavailable: The command ended, took longer than ``timeout_s``, or was cancelled.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # Before the question: it may end between the two, and its end may be what is waited for.
            ended = self.exit_code() is not None
            if ready():
                return
            if ended:
                raise ServerUnavailable(self.explain(f"{self.name} stopped while starting"))
            if cancelled():
                raise ServerUnavailable(f"the start of {self.name} was stopped")
            if time.monotonic() > deadline:
                raise ServerUnavailable(
                    self.explain(f"{self.name} is not ready after {timeout_s:g} seconds")
                )
            time.sleep(0.02)

    def ask_to_stop(self) -> None:
        """Asks it to stop, without waiting."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()

    def kill(self) -> None:
        """Kills it, without waiting."""
        if self.exit_code() is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stops it, kills it if it takes longer than its grace, and waits for the end."""
        if self._watcher is None:
            return
        self.ask_to_stop()
        try:
            self._watcher.wait(self._grace_s + 5)
        except subprocess.TimeoutExpired:
            self._watcher.kill()
            self._watcher.wait()
        if self._watcher.stdout is not None:
            self._watcher.stdout.close()

    def log_tail(self) -> str:
        """Returns the last lines of this run, without stack traces and Java's own warnings."""
        lines = [line[:300] for line in self._printed() if not line.startswith(_DETAILS)]
        return "\n".join(lines[-_TAIL_LINES:])

    def printed(self, words: str) -> bool:
        """Returns whether the last output of this run contains ``words``."""
        return any(words in line for line in self._printed())

    def _printed(self) -> list[str]:
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                return log.read().decode(errors="replace").splitlines()
        except OSError:
            return []

    def explain(self, what: str) -> str:
        """Returns ``what`` with the last lines of the log and the path of the log."""
        tail = self.log_tail()
        return (
            f"{what}; its log {self.log} ends with:\n{tail}" if tail else f"{what}; see {self.log}"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
