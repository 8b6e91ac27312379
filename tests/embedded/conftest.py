"""Looking at processes without a package for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended stays in the table until its parent asks; an orphan's may never do so.
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


@pytest.fixture
def gone() -> Callable[..., bool]:
    """``gone(*pids, within_s=...)``: whether all of these processes have ended by then."""

    def wait(*pids: int, within_s: float = PATIENCE_S) -> bool:
        deadline = time.monotonic() + within_s
        while any(_alive(pid) for pid in pids):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait
