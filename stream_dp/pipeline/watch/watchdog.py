"""Notices a worker that no longer gets on, whatever holds it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Heartbeat:
    """Counts what gets done. A worker in which nothing beats any more is stuck."""

    def __init__(self) -> None:
        self.count = 0

    def beat(self) -> None:
        """Counts one more thing that got done."""
        self.count += 1


class Watchdog:
    """Bites when there was work for a while and nothing of it was done.

    A thread of its own: an event loop that is held up cannot watch itself, and while it hangs the consumer's
    thread keeps its partitions alive, so that no other worker would take them.

    Args:
        progress: A number that changes whenever something is done.
        has_work: Whether something waits to be done. Called from the thread.
        bite: Ends the process; called once.
        patience_s: The longest time in which nothing may be done.
    """

    def __init__(
        self,
        progress: Callable[[], int],
        has_work: Callable[[], bool],
        bite: Callable[[], None],
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._has_work = has_work
        self._bite = bite
        self._patience_s = patience_s
        self._clock = clock
        self._seen = progress()
        self._since = clock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Starts the thread that watches."""
        threading.Thread(target=self._watch, name="stream-dp-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Tells the thread to end, without waiting for it."""
        self._stopped.set()

    def look(self) -> bool:
        """Looks once. Returns whether it has bitten."""
        now, progress = self._clock(), self._progress()
        if progress != self._seen or not self._has_work():
            self._seen, self._since = progress, now
        elif now - self._since >= self._patience_s:
            self._bite()
            return True
        return False

    def _watch(self) -> None:
        while not self._stopped.wait(self._patience_s / 10) and not self.look():
            pass
