"""The death of a process in a test, and the fuse that brings it about."""

from __future__ import annotations

from stream_dp.pipeline.fuse import CrashPoint


class Crash(BaseException):
    """The process died here: nobody may catch it but the test."""


class CountingFuse:
    """Counts effects and blows at one of them; -1 never blows."""

    def __init__(self, at: int = -1, point: CrashPoint | None = None) -> None:
        self.at = at
        self.point = point
        self.met = 0

    def __call__(self, met: str) -> None:
        if self.point is not None and met is not self.point:
            return
        if self.met == self.at:
            self.met += 1
            raise Crash(met)
        self.met += 1
