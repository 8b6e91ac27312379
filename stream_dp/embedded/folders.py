"""The folders for downloads and data, and the lock on a state folder."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from stream_dp.embedded.embedded_server import GRACE_S
from stream_dp.errors import ServerUnavailable

_LOCK_FILE: Final = "lock"
_STARTER_FILE: Final = "starter.lock"
_CERTAIN_S: Final = 1.0
_KEY_BYTES: Final = 64
_RUNNING_FILE: Final = "servers.json"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder for downloads: ``$XDG_CACHE_HOME/stream-dp``, or else ``~/.cache/stream-dp``."""
    return _base(environment, "XDG_CACHE_HOME", ".cache") / "stream-dp"


def state_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder for data: ``$XDG_STATE_HOME/stream-dp``, or else ``~/.local/state/stream-dp``."""
    return _base(environment, "XDG_STATE_HOME", ".local/state") / "stream-dp"


def _base(environment: Mapping[str, str], variable: str, default: str) -> Path:
    given = Path(environment.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default


@dataclass(frozen=True, slots=True)
class Running:
    """The running servers of a state folder.

    Attributes:
        pid: The process that started the servers. They end with it.
        bootstrap_servers: The address of the broker, as ``host:port``.
        redis_url: The address of Valkey.
        pids: The process ids of the servers.
        topic_prefix: The prefix of the topics that their worker serves.
    """

    pid: int
    bootstrap_servers: str
    redis_url: str
    pids: dict[str, int] = field(default_factory=dict)
    topic_prefix: str = "stream-dp."


class StateFolder:
    """A folder with the data of one pair of servers. At most one pair uses it at a time.

    The lock is on an open file that the servers inherit. So it is free exactly when the last process that
    uses the data has ended, however it ended. Only the starter holds a second lock. So a process id that a
    crash left behind, that belongs to a zombie, or that was reused misleads nobody.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._locks: list[int] = []

    def prepare(self) -> None:
        """Creates the folder so that only its owner can read it.

        Raises:
            ServerUnavailable: The folder cannot be created, or it belongs to another user.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_uid != os.geteuid():
                raise ServerUnavailable(
                    f"{self.path} belongs to another user, who could read the rows kept there; "
                    f"pass another --state-dir"
                )
            self.path.chmod(0o700)
        except OSError as error:
            raise ServerUnavailable(
                f"{self.path} cannot be used for data: {error}; pass another --state-dir"
            ) from error

    @property
    def person_key(self) -> Path:
        """The file of the key from which a worker on these servers makes the digests of persons."""
        return self.path / "persons.key"

    def made_person_key(self) -> Path:
        """Makes that file of random bytes, which only its owner can read, unless it is there."""
        if not self.person_key.exists():
            begun = self.person_key.with_suffix(".new")
            begun.touch(mode=0o600)
            with begun.open("wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            begun.replace(self.person_key)
        return self.person_key

    def lock(self, *, timeout_s: float) -> int:
        """Locks the folder and returns the descriptor that the servers must inherit.

        Waits for servers whose starter has died to finish stopping.

        Raises:
            ServerUnavailable: The folder is in use.
        """
        descriptor = self._open(_LOCK_FILE)
        began = time.monotonic()
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            running, started = self._read(), self.has_starter()
            waited_s = time.monotonic() - began
            # A starter that was killed a moment ago still counts as alive.
            if waited_s > (_CERTAIN_S if running is not None and started else timeout_s):
                os.close(descriptor)
                raise ServerUnavailable(self._clash(running, started=started))
            time.sleep(0.05)
        starter = self._open(_STARTER_FILE)
        fcntl.flock(starter, fcntl.LOCK_EX)  # others only look at it for a moment
        self._locks = [descriptor, starter]
        (self.path / _RUNNING_FILE).unlink(missing_ok=True)
        return descriptor

    def release(self) -> None:
        """Unlocks the folder. Call it after the servers have stopped."""
        if self._locks:
            (self.path / _RUNNING_FILE).unlink(missing_ok=True)
        while self._locks:
            os.close(self._locks.pop())

    def in_use(self) -> bool:
        """Returns whether servers run on the folder, or are starting or stopping."""
        return self._held(_LOCK_FILE)

    def has_starter(self) -> bool:
        """Returns whether the process that started its servers is alive."""
        return self._held(_STARTER_FILE)

    def _clash(self, running: Running | None, *, started: bool) -> str:
        if running is None:
            return f"another process is starting servers in {self.path}; try again in a moment"
        if not started:
            pids = ", ".join(f"{name} {pid}" for name, pid in running.pids.items())
            return (
                f"the servers of a process that has died still use {self.path} ({pids}); "
                f"wait until they have ended, or end them"
            )
        return (
            f"servers already run on {self.path}: process {running.pid} started them, Kafka is at "
            f"{running.bootstrap_servers} and Valkey at {running.redis_url}; use those, stop them with "
            f"`stream-dp down`, or pass another --state-dir"
        )

    def announce(self, running: Running) -> None:
        """Writes the addresses of the servers. Only the owner can read them."""
        fresh = self.path / f"{_RUNNING_FILE}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            json.dump(asdict(running), file, indent=2)
        fresh.replace(self.path / _RUNNING_FILE)

    def running(self) -> Running | None:
        """Returns the servers that run on this folder now, or None."""
        # A crash left a file without the lock behind.
        return self._read() if self.in_use() else None

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _held(self, name: str) -> bool:
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _try_lock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _read(self) -> Running | None:
        try:
            return Running(**json.loads((self.path / _RUNNING_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def stop_running(state: Path, *, timeout_s: float = 2 * GRACE_S) -> Running | None:
    """Asks the process that started the servers of a folder to end, and waits until they have ended.

    Returns:
        The servers that ran, or None.

    Raises:
        ServerUnavailable: They still run after ``timeout_s``, or belong to another user.
    """
    folder = StateFolder(state)
    found = folder.running()
    if found is None:
        return None
    if folder.has_starter():  # else its servers are stopping already
        try:
            os.kill(found.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise ServerUnavailable(f"process {found.pid} belongs to another user") from error
    deadline = time.monotonic() + timeout_s
    while folder.in_use():
        if time.monotonic() > deadline:
            raise ServerUnavailable(
                f"the servers of {folder.path} still run {timeout_s:g} seconds after process {found.pid} "
                f"was asked to stop; find out what it does, or end it with kill -9: the data survives that"
            )
        time.sleep(0.05)
    return found
