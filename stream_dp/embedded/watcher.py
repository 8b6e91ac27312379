"""Stands between a process and the server it started, so that the server never outlives it.

Run as a file, not imported: ``python -I -S watcher.py GRACE_S COMMAND...``. Standard input is a pipe whose
other end only the starting process holds; it is never written to. However that process ends, kill -9
included, the pipe ends with it, and the server is asked to stop, then killed. SIGTERM does the same. On
Linux the kernel also kills the server when this process is killed. (Linux can tie a child to its parent
directly, but to the parent's *thread*: a server started from a worker thread would die with that thread.)

Standard output gets one line, the server's process id; what the server prints goes to standard error.
The exit code is the server's.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIFELINE = 0


def _die_with_this_process() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    watcher = os.getpid()

    def in_the_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != watcher:  # it was killed before the kernel was told
            os._exit(1)

    return in_the_child


def main(grace_s: float, command: list[str]) -> int:
    """Runs the server until it ends or is asked to stop, and returns its exit code."""
    asked_to_stop = False

    def on_signal(number: int, _frame: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = asked_to_stop or number == signal.SIGTERM

    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    # A handler, not "ignore": a server would inherit that.
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)

    server = subprocess.Popen(  # noqa: S603 - what the starting process asked for
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=2,
        close_fds=False,  # what the starting process passed on is meant for the server too
        preexec_fn=_die_with_this_process(),
    )
    os.write(1, b"%d\n" % server.pid)
    while server.poll() is None and not asked_to_stop:
        readable, _, _ = select.select([_LIFELINE, wake], [], [])
        if wake in readable:
            os.read(wake, 512)
        asked_to_stop = asked_to_stop or _LIFELINE in readable
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(grace_s)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]} cannot be run: {error}\n")
        sys.exit(127)
