"""The common base of the two embedded servers."""

from __future__ import annotations

import importlib.util
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self

from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.errors import ServerUnavailable

GRACE_S = 15.0
_PORT_ATTEMPTS = 3
_PORT_TAKEN = "ddress already in use"


def find_program(
    package: str, place: str, names: Sequence[str], *, server: str, instead: str
) -> Path:
    """Finds the program of a server: that of a package, or else one on the PATH.

    Args:
        package: The package. It is looked up and not imported, because the import may load a whole client.
        place: The pattern of the program's place in the package.
        names: The names of the program on the PATH.
        server: The name of the server.
        instead: What a user can pass instead.

    Raises:
        ServerUnavailable: There is no such program.
    """
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for program in sorted(Path(folder).glob(place)):
            return program
    for name in names:
        if on_path := shutil.which(name):
            return Path(on_path)
    raise ServerUnavailable(
        f"the embedded {server} needs packages that are not installed: "
        f"pip install 'stream-dp[embedded]', or pass {instead}"
    )


class EmbeddedServer(ABC):
    """A server that keeps its data in a folder and ends with this process.

    Args:
        folder: The folder of its data, which it keeps between runs. It holds raw rows.
        log: The file for its output.
        port: The port for clients on the loopback address. None takes the usual one of the folder if it is
            free, or else a free port.
        hold: File descriptors that stay open while the server runs.
    """

    name: ClassVar[str]

    def __init__(
        self, folder: Path, *, log: Path, port: int | None = None, hold: tuple[int, ...] = ()
    ) -> None:
        self.port = 0
        self._given, self._folder = port, folder.resolve()
        self._log, self._hold = log, hold
        self._child: Child | None = None
        self._cancelled = False

    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            ServerUnavailable: The server cannot be started. The error says why and what to do.
        """
        wished: int | None = ports.usual(self._folder)
        for left in reversed(range(_PORT_ATTEMPTS)):
            try:
                self.port = ports.choose(self.name, self._given, wished)
                self._start()
            except ServerUnavailable:
                taken = self._child is not None and self._child.printed(_PORT_TAKEN)
                self.stop()
                wished = None
                # Another program may have taken the port after we checked it.
                if not taken or self._given is not None or not left:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    @abstractmethod
    def _start(self) -> None:
        """Starts the server on ``port`` and waits until it answers. ``start`` cleans up if that fails."""

    @property
    def pid(self) -> int:
        """The process id. 0 if the server was not started."""
        return self._child.pid if self._child is not None else 0

    def cancel(self) -> None:
        """Makes a ``start`` that runs in another thread give up."""
        self._cancelled = True

    def failure(self) -> str | None:
        """The reason why the server does not run, for people. None while it runs."""
        if self._child is None:
            return f"{self.name} was not started"
        code = self._child.exit_code()
        if code is None:
            return None
        how = f"was ended by signal {code - 128}" if code > 128 else f"ended with code {code}"
        return self._child.explain(f"{self.name} {how}")

    def ask_to_stop(self) -> None:
        """Asks it to stop, without waiting."""
        if self._child is not None:
            self._child.ask_to_stop()

    def stop(self) -> None:
        """Stops the server and waits for its end. Its data stays."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _run(self, command: list[str], ready: Callable[[], bool], timeout_s: float) -> None:
        """Runs a command of the server, and waits until it is ready."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        child = self._child = Child(
            self.name, command, log=self._log, folder=self._folder, grace_s=GRACE_S, hold=self._hold
        )
        child.start()

        def is_ready() -> bool:
            if child.printed(_PORT_TAKEN):
                child.kill()  # Kafka takes half a minute to give up, and has nothing to lose yet
                raise ServerUnavailable(child.explain(f"{self.name} found its port taken"))
            return ready()

        child.wait_until(is_ready, timeout_s=timeout_s, cancelled=lambda: self._cancelled)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
