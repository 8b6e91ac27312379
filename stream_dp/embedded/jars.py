"""Downloads the jars of Apache Kafka that our lock file pins, from a Maven repository.

The lock names every artifact with its digest, and each one is downloaded separately. Resolving the broker's
dependencies again would let a foreign file choose versions.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

from stream_dp.errors import ServerUnavailable

KAFKA_VERSION: Final = "4.3.0"
_MAVEN_CENTRAL: Final = "https://repo.maven.apache.org/maven2"
_THREADS: Final = 8
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 30
_CHUNK_BYTES: Final = 1 << 16


class Progress(Protocol):
    """The receiver of reports about a start. A command line draws them, a test ignores them.

    Calls come one at a time, but not always from the thread that started the servers.
    """

    def step(self, text: str) -> None:
        """Reports that a new step begins. ``text`` describes it for people."""
        ...

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        """Reports how many of the broker's jars are in place and how many bytes were downloaded."""
        ...


class Silent:
    """Ignores all reports."""

    def step(self, text: str) -> None:
        pass

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of the lock: its coordinates in a Maven repository and its digest."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file: the artifact and its version."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where it is in a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Reads a lock with a line ``group:artifact:version sha256:...`` for each jar."""
    jars = []
    for line in filter(None, text.splitlines()):
        group, artifact, version, digest = line.replace(" sha256:", ":").split(":")
        jars.append(Jar(group, artifact, version, digest))
    return tuple(jars)


def kafka_lock() -> tuple[Jar, ...]:
    """Returns the jars of the broker that this release runs."""
    lock = files("stream_dp.embedded").joinpath(f"kafka-{KAFKA_VERSION}.lock")
    return parse_lock(lock.read_text(encoding="ascii"))


def resolve(
    cache: Path,
    progress: Progress,
    *,
    lock: Sequence[Jar] | None = None,
    repository: str | None = None,
    cancelled: threading.Event | None = None,
) -> tuple[Path, ...]:
    """Returns the paths of all jars in the lock's order, and downloads those that ``cache`` lacks.

    It compares every jar with its digest every time, even one that was downloaded before.

    Args:
        cache: The folder for downloads, which is created if missing. Several processes may share it.
        progress: It is told about each jar.
        lock: The wanted jars. None takes the broker's jars.
        repository: The address of a Maven repository. None takes Maven Central.
        cancelled: An event that stops the download.

    Raises:
        ServerUnavailable: A download failed, or a jar is not the one that is pinned; it was deleted.
    """
    wanted = kafka_lock() if lock is None else tuple(lock)
    folder = cache / f"kafka-{KAFKA_VERSION}"
    if os.pathsep in str(folder):
        raise ServerUnavailable(
            f"the jars of Apache Kafka cannot be kept in {folder}: a {os.pathsep!r} separates jars in a "
            f"class path; pass another cache folder"
        )
    paths = tuple(folder / jar.file_name for jar in wanted)
    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="jars") as pool:
            present = pool.map(_is_there, wanted, paths)
            missing = [jar for jar, there in zip(wanted, present, strict=True) if not there]
        downloads = _Downloads(progress, len(wanted), len(missing), repository, cancelled)
        downloads.run(missing, folder)
    except OSError as error:
        raise ServerUnavailable(
            f"the jars of Apache Kafka cannot be kept in {folder}: {error}; make room or pass another "
            f"cache folder"
        ) from error
    return paths


def _is_there(jar: Jar, path: Path) -> bool:
    try:
        _verify(jar, path)
    except FileNotFoundError:
        return False
    return True


def _verify(jar: Jar, path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        path.unlink(missing_ok=True)
        raise ServerUnavailable(
            f"{jar} is not the jar that this release pins (its sha256 is {found}, expected {jar.sha256}): "
            f"{path} was deleted and will not be run; start again to download it again. If that fails "
            f"too, find out what changes files between this machine and the Maven repository"
        )


class _Stopped(Exception):
    """Another download failed, or the caller stopped waiting."""


class _Downloads:
    """Downloads that run side by side. They report one at a time."""

    def __init__(
        self,
        progress: Progress,
        total: int,
        missing: int,
        repository: str | None,
        cancelled: threading.Event | None,
    ) -> None:
        self._progress, self._total = progress, total
        self._jars, self._bytes = total - missing, 0
        self._repository = repository or _MAVEN_CENTRAL
        self._stops = [threading.Event(), cancelled or threading.Event()]
        self._lock = threading.Lock()

    def run(self, missing: Sequence[Jar], folder: Path) -> None:
        """Downloads jars into a folder."""
        if not missing:
            self._report()
            return
        self._progress.step(f"Downloading Apache Kafka {KAFKA_VERSION} (once, about 43 MB)")
        folder.mkdir(parents=True, exist_ok=True)
        # In the cache's own file system, so that a finished jar moves into place in one step.
        with (
            tempfile.TemporaryDirectory(prefix=".incoming-", dir=folder) as incoming,
            ThreadPoolExecutor(_THREADS, thread_name_prefix="jars") as pool,
        ):
            try:
                for _ in pool.map(lambda jar: self._one(jar, Path(incoming), folder), missing):
                    pass
            except _Stopped:
                raise ServerUnavailable("the download of Apache Kafka was stopped") from None
            except BaseException:
                self._stops[0].set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _one(self, jar: Jar, incoming: Path, folder: Path) -> None:
        part = incoming / jar.file_name
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._fetch(jar, part)
                break
            except (OSError, HTTPException) as error:
                if not left:
                    raise ServerUnavailable(
                        f"{jar} cannot be downloaded ({error}); check the network or its proxy settings, or "
                        f"pass --bootstrap-servers of a broker you have"
                    ) from error
        _verify(jar, part)
        part.replace(folder / jar.file_name)
        self._report(jars=1)

    def _fetch(self, jar: Jar, part: Path) -> None:
        address = f"{self._repository}/{jar.path}"
        with (
            urllib.request.urlopen(address, timeout=_TIMEOUT_S) as reply,  # noqa: S310 - ours
            part.open("wb") as file,
        ):
            while chunk := reply.read(_CHUNK_BYTES):
                if any(event.is_set() for event in self._stops):
                    raise _Stopped
                file.write(chunk)
                self._report(n_bytes=len(chunk))
            if reply.length:
                raise OSError("the connection broke off")

    def _report(self, *, jars: int = 0, n_bytes: int = 0) -> None:
        with self._lock:
            self._jars += jars
            self._bytes += n_bytes
            self._progress.downloaded(self._jars, self._total, self._bytes)
