"""What the two embedded servers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from stream_dp.embedded.child import Child

GRACE_S = 15.0


class EmbeddedServer(ABC):
    """A server with its data in a folder, as a child that dies with us.

    Args:
        folder: Its data, kept from run to run. Raw rows are in it.
        log: File that gets its output.
        hold: File descriptors that it keeps open as long as it lives.
    """

    name: ClassVar[str]

    def __init__(self, folder: Path, *, log: Path, hold: tuple[int, ...] = ()) -> None:
        self._folder = folder.resolve()
        self._log = log
        self._hold = hold
        self._child: Child | None = None
        self._cancelled = False

    @abstractmethod
    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            ServerUnavailable: It cannot be started; says why and what to do.
        """

    @property
    def pid(self) -> int:
        """Its process id; 0 when it was not started."""
        return self._child.pid if self._child is not None else 0

    def cancel(self) -> None:
        """Makes a ``start`` that runs in another thread give up."""
        self._cancelled = True

    def failure(self) -> str | None:
        """Why it does not run, for people; None while it runs."""
        if self._child is None:
            return f"{self.name} was not started"
        code = self._child.exit_code()
        if code is None:
            return None
        return self._child.explain(f"{self.name} ended with code {code}")

    def ask_to_stop(self) -> None:
        """Asks it to stop, without waiting."""
        if self._child is not None:
            self._child.ask_to_stop()

    def stop(self) -> None:
        """Stops it and waits for the end; its data stays."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _run(self, command: list[str]) -> Child:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._child = Child(
            self.name,
            command,
            log=self._log,
            folder=self._folder,
            grace_s=GRACE_S,
            hold=self._hold,
        )
        self._child.start()
        return self._child

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


__all__ = ["GRACE_S", "EmbeddedServer"]
