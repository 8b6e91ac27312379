"""The points at which a worker may die, named, so that tests can kill it at each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """In the order in which a record meets them."""

    AFTER_FETCH = "after-fetch"
    AFTER_DECODE = "after-decode"
    BEFORE_KEEP = "before-keep"
    AFTER_KEEP = "after-keep"
    BEFORE_CHARGE = "before-charge"
    AFTER_CHARGE = "after-charge"
    AFTER_LOOK = "after-look"
    IN_PHASE = "in-phase"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    IN_SWEEP = "in-sweep"
    IN_ERASURE = "in-erasure"
    BEFORE_APPEND = "before-append"
    AFTER_APPEND = "after-append"
    BEFORE_SEND = "before-send"
    AFTER_SEND = "after-send"
    AFTER_RELEASE = "after-release"
    AFTER_MARK = "after-mark"
    BEFORE_CHECKPOINT = "before-checkpoint"
    AFTER_CHECKPOINT = "after-checkpoint"
    BEFORE_TRUNCATION = "before-truncation"
    AFTER_TRUNCATION = "after-truncation"


Fuse = Callable[[CrashPoint], None]


def unarmed(_: CrashPoint) -> None:
    """The fuse of production."""


def kill_at(point: CrashPoint, times: int = 1) -> Fuse:
    """A fuse that kills this process, as kill -9 would, when ``point`` is met for the n-th time."""
    left = times

    def fuse(met: CrashPoint) -> None:
        nonlocal left
        if met is point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return fuse
