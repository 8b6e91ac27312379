"""What soaks have tried and found, by kind of fault. Each goes on where the one before it has ended."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Line:
    """One kind of fault.

    Attributes:
        wanted: The number of trials after which there are enough.
        trials: How often it was tried.
        violations: The trials after which a promise was broken, or might have been: of several faults before
            one violation each counts.
        seconds: Where clients waited: seconds from a fault until they had another phase answered.
    """

    wanted: int
    trials: int = 0
    violations: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def bound(self) -> float | None:
        """Of the probability that such a fault breaks a promise, at 95%; None where nothing is known."""
        return 3.0 / self.trials if self.trials >= 3 and not self.violations else None


class Pace:
    """How much was asked and answered in this run, with Redis and without.

    Attributes:
        asked: The number of questions.
        answered: The number of those that were answered in the time that a client has.
        redis_is_there: Whether Redis answers just now.
    """

    def __init__(self) -> None:
        self.asked = self.answered = 0
        self._lock = threading.Lock()
        self._goes_away = False  # now and then
        self._is_there, self._is_quiet = True, False
        self._since = time.monotonic()
        self._seconds = {
            True: 0.0,
            False: 0.0,
        }  # with Redis and without, in rounds where it goes away
        self._quiet_s = {True: 0.0, False: 0.0}  # with Redis and without, and without another fault
        self._quiet = {True: 0, False: 0}  # the answers in that time

    def counted(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """A function that asks, and counts."""

        def asked(*words: Any, **more: Any) -> Any:
            with self._lock:
                self.asked += 1
            answer = ask(*words, **more)
            with self._lock:
                self.answered += 1
                self._quiet[self._is_there] += self._is_quiet
            return answer

        return asked

    @property
    def redis_is_there(self) -> bool:
        return self._is_there

    @redis_is_there.setter
    def redis_is_there(self, now: bool) -> None:
        self._changes(is_there=now)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing else fails meanwhile."""
        self._changes(is_quiet=True)
        yield
        self._changes(is_quiet=False)

    @contextlib.contextmanager
    def outages(self) -> Iterator[None]:
        """Redis goes away now and then."""
        self._changes(goes_away=True)
        yield
        self._changes(goes_away=False, is_there=True)

    def _changes(
        self,
        *,
        goes_away: bool | None = None,
        is_there: bool | None = None,
        is_quiet: bool | None = None,
    ) -> None:
        with self._lock:
            now = time.monotonic()
            self._seconds[self._is_there] += (now - self._since) * self._goes_away
            self._quiet_s[self._is_there] += (now - self._since) * self._is_quiet
            self._since = now
            self._goes_away = self._goes_away if goes_away is None else goes_away
            self._is_there = self._is_there if is_there is None else is_there
            self._is_quiet = self._is_quiet if is_quiet is None else is_quiet

    @property
    def share(self) -> float:
        """The share of the questions that was answered."""
        return self.answered / max(1, self.asked)

    def report(self) -> str:
        """It as text."""
        self._changes()
        away = self._seconds[False] / max(1e-9, sum(self._seconds.values()))
        lines = [f"{self.answered} of {self.asked} questions answered ({self.share:.4f})"]
        lines.append(f"Redis away for {away:.0%} of the time where it has no replica")
        for is_there, said in ((False, "without Redis"), (True, "with Redis")):
            answers, seconds = self._quiet[is_there], self._quiet_s[is_there]
            rate = answers / max(1e-9, seconds)
            counted = f"{rate:.1f} answers a second while nothing else failed"
            lines.append(f"{said}: {counted} ({answers} in {seconds:.0f} s)")
        return "\n".join(lines)


class Tally:
    """Counts trials and violations.

    Args:
        wanted: How many trials of each kind are enough, in the order of the report.

    Attributes:
        found: What was broken in this run.
        pace: How much was answered in it.
    """

    def __init__(self, wanted: Mapping[str, int]) -> None:
        self.lines = {kind: Line(number) for kind, number in wanted.items()}
        self.found: list[str] = []
        self.pace = Pace()

    @property
    def trials(self) -> int:
        return sum(line.trials for line in self.lines.values())

    @property
    def wanted(self) -> int:
        return sum(line.wanted for line in self.lines.values())

    def left(self, kind: str) -> int:
        """How many trials of a kind are still wanted."""
        line = self.lines[kind]
        return max(0, line.wanted - line.trials)

    def tried(self, kind: str, seconds: float | None = None, *, times: int = 1) -> None:
        """Counts trials of a kind."""
        self.lines[kind].trials += times
        if seconds is not None:
            self.lines[kind].seconds.append(seconds)

    def broken(self, kinds: Collection[str], said: str) -> None:
        """Counts a violation that any of these kinds may have led to."""
        for kind in set(kinds):
            self.lines[kind].violations += 1
        self.found.append(said)

    def add(self, file: Path) -> None:
        """Adds what was counted before, and written to a file. Without the file there is nothing to add."""
        if not file.exists():
            return
        before = json.loads(file.read_text(encoding="utf-8"))
        for kind, counts in before.items():
            if (line := self.lines.get(kind)) is not None:
                line.trials += counts["trials"]
                line.violations += counts["violations"]
                line.seconds += counts["seconds"]

    def write(self, file: Path) -> None:
        """Writes the counts, for the next soak."""
        counts = {
            kind: {
                "trials": line.trials,
                "violations": line.violations,
                "seconds": [round(seconds, 1) for seconds in line.seconds],
            }
            for kind, line in self.lines.items()
            if line.trials
        }
        lines = (f"  {json.dumps(kind)}: {json.dumps(counts[kind])}" for kind in counts)
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def report(self) -> str:
        """All of it, as text."""
        head = f"{'kind of fault':56}{'wanted':>8}{'trials':>8}{'violations':>12}"
        lines = [f"{head}{'95% bound':>11}{'median s':>10}{'longest s':>11}"]
        for kind, line in self.lines.items():
            said = f"{kind:56}{line.wanted:8}{line.trials:8}{line.violations:12}"
            said += f"{line.bound:11.2g}" if line.bound is not None else f"{'':11}"
            if line.seconds:
                middle = sorted(line.seconds)[len(line.seconds) // 2]
                said += f"{middle:10.1f}{max(line.seconds):11.1f}"
            lines.append(said.rstrip())
        lines.append(f"{self.trials} trials, {len(self.found)} violations in this run")
        if self.pace.asked:
            lines.append(self.pace.report())
        return "\n".join([*lines, *self.found])
