"""A child ends when its parent does, however that comes about, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.embedded.child import Child
from stream_dp.errors import ServerUnavailable
from tests.waiting import PATIENCE_S

PARENT = """
import sys, threading, time
from pathlib import Path
from stream_dp.embedded.child import Child
folder = Path(sys.argv[1])
child = Child("sleeper", sys.argv[2:], log=folder / "log", folder=folder, grace_s=1)
child.start()
print(child.pid, child._watcher.pid, flush=True)
while True:  # one long sleep may miss a signal that comes as it begins
    time.sleep(0.1)
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stubborn", flush=True)
time.sleep(600)
"""


def _child(folder: Path, *command: str, grace_s: float = 10) -> Child:
    return Child("sleeper", command, log=folder / "log", folder=folder, grace_s=grace_s)


def _wait(child: Child, ready: Callable[[], bool]) -> None:
    child.wait_until(ready, timeout_s=PATIENCE_S, cancelled=lambda: False)


def _wait_for_its_end(child: Child) -> None:
    _wait(child, lambda: child.exit_code() == 0)


@pytest.mark.parametrize("command", [["sleep", "600"], [sys.executable, "-c", STUBBORN]])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_dies_when_its_parent_is_killed_even_if_it_ignores_being_asked(
    gone: Callable[..., bool], tmp_path: Path, command: list[str], number: signal.Signals
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    child, watcher = map(int, parent.stdout.readline().split())
    assert not gone(child, within_s=0)
    parent.send_signal(number)
    parent.communicate()
    assert gone(child, watcher)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can promise this")
def test_it_dies_when_its_watcher_is_killed(gone: Callable[..., bool], tmp_path: Path) -> None:
    child = _child(tmp_path, sys.executable, "-c", STUBBORN)
    with child:
        assert child._watcher is not None
        child._watcher.kill()
        assert gone(child.pid)
        assert child.exit_code() == -signal.SIGKILL


def test_it_outlives_the_thread_that_started_it(gone: Callable[..., bool], tmp_path: Path) -> None:
    child = _child(tmp_path, "sleep", "600")
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    try:
        time.sleep(0.2)
        assert child.exit_code() is None
        assert not gone(child.pid, within_s=0)
    finally:
        child.stop()
    assert gone(child.pid, within_s=0)


def test_ctrl_c_is_not_for_it(tmp_path: Path) -> None:
    with _child(tmp_path, "sleep", "600") as child:
        assert os.getpgid(child.pid) != os.getpgid(0)


def test_it_is_killed_when_it_takes_longer_than_its_grace(
    gone: Callable[..., bool], tmp_path: Path
) -> None:
    child = _child(tmp_path, sys.executable, "-c", STUBBORN, grace_s=0.2)
    with child:
        _wait(child, lambda: "stubborn" in child.log_tail())
    assert child.exit_code() == 128 + signal.SIGKILL
    assert gone(child.pid, within_s=0)


def test_it_gets_none_of_our_environment_and_nothing_to_read(tmp_path: Path) -> None:
    program = "import os, sys; print(sorted(os.environ), repr(sys.stdin.read()))"
    with _child(tmp_path, sys.executable, "-I", "-c", program) as child:
        _wait_for_its_end(child)
    assert child.log_tail() == "['LC_ALL', 'PATH'] ''"


def test_one_whose_end_is_waited_for_may_end_right_after_the_question(tmp_path: Path) -> None:
    with _child(tmp_path, "sleep", "0.2") as child:

        def ended() -> bool:
            had_ended = child.exit_code() == 0
            while child.exit_code() is None:
                time.sleep(0.01)
            return had_ended

        _wait(child, ended)


def test_a_program_that_does_not_exist_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match=r"sleeper cannot be started(.|\n)*No such file"):
        _child(tmp_path, "/nonexistent/program").start()


def test_one_that_stops_while_starting_says_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier run\n")
    program = "import sys; print(*range(100), sep='\\n', flush=True); sys.exit('the reason')"
    with (
        _child(tmp_path, sys.executable, "-c", program) as child,
        pytest.raises(ServerUnavailable) as failed,
    ):
        _wait(child, lambda: False)
    assert "sleeper stopped while starting" in str(failed.value)
    assert str(failed.value).endswith("98\n99\nthe reason")
    assert "earlier" not in str(failed.value)
    assert "\n50\n" not in str(failed.value)


def test_waiting_ends_with_its_time_and_when_it_is_cancelled(tmp_path: Path) -> None:
    with _child(tmp_path, "sleep", "600") as child:
        with pytest.raises(ServerUnavailable, match=r"not ready after 0\.1 seconds"):
            child.wait_until(lambda: False, timeout_s=0.1, cancelled=lambda: False)
        with pytest.raises(ServerUnavailable, match="was stopped"):
            child.wait_until(lambda: False, timeout_s=PATIENCE_S, cancelled=lambda: True)


def test_a_log_that_has_grown_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (2**20 + 1))
    with _child(tmp_path, "echo", "new") as child:
        _wait_for_its_end(child)
    assert (tmp_path / "log").read_text() == "new\n"
    assert (tmp_path / "log.1").stat().st_size == 2**20 + 1
