"""Downloads the jars of Apache Kafka that our lock file pins, from a Maven repository.

The lock names every artifact with its digest, and each one is downloaded separately. Resolving the broker's
dependencies again would let a foreign file choose versions: jgo 3.2.0 chooses a client library with which the
broker does not start.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from stream_dp.embedded.start_progress import Progress
from stream_dp.errors import ServerUnavailable

KAFKA_VERSION: Final = "4.3.0"
_THREADS: Final = 8
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 30


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

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Reads a lock with a line ``group:artifact:version sha256:...`` for each jar."""
    jars = []
    for line in text.splitlines():
        if line.strip():
            coordinates, digest = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group, artifact, version, digest.removeprefix("sha256:")))
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
    try:
        return _resolve(wanted, folder, progress, repository, cancelled)
    except OSError as error:
        raise ServerUnavailable(
            f"the jars of Apache Kafka cannot be kept in {folder}: {error}; make room or pass another "
            f"cache folder"
        ) from error


def _resolve(
    wanted: tuple[Jar, ...],
    folder: Path,
    progress: Progress,
    repository: str | None,
    cancelled: threading.Event | None,
) -> tuple[Path, ...]:
    paths = tuple(folder / jar.file_name for jar in wanted)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="jars") as pool:
        present = list(pool.map(_present, wanted, paths))
    missing = [
        (jar, path) for jar, path, there in zip(wanted, paths, present, strict=True) if not there
    ]
    if missing:
        _download_all(missing, folder, progress, len(wanted), repository, cancelled)
    else:
        progress.downloaded(len(wanted), len(wanted), 0)
    return paths


def _present(jar: Jar, path: Path) -> bool:
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


def _download_all(
    missing: Sequence[tuple[Jar, Path]],
    folder: Path,
    progress: Progress,
    total: int,
    repository: str | None,
    cancelled: threading.Event | None,
) -> None:
    progress.step(f"Downloading Apache Kafka {KAFKA_VERSION} (once, about 43 MB)")
    tally = _Tally(progress, total - len(missing), total)
    halted = threading.Event()

    def check() -> None:
        if halted.is_set() or (cancelled is not None and cancelled.is_set()):
            raise _Cancelled

    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In the cache's own file system, so that a finished jar moves into place in one step.
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=folder) as incoming:

            def one(item: tuple[Jar, Path]) -> None:
                jar, path = item
                _download(jar, path, Path(incoming), tally, repository, check)
                tally.jar()

            with ThreadPoolExecutor(_THREADS, thread_name_prefix="jars") as pool:
                try:
                    for _ in pool.map(one, missing):
                        pass
                except BaseException:
                    halted.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    except _Cancelled as error:
        raise ServerUnavailable("the download of Apache Kafka was stopped") from error


def _download(
    jar: Jar,
    path: Path,
    incoming: Path,
    tally: _Tally,
    repository: str | None,
    check: Callable[[], None],
) -> None:
    try:
        # Takes most of a second to import, and is needed once.
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise ServerUnavailable(
            "the embedded Apache Kafka needs packages that are not installed: "
            "pip install 'stream-dp[embedded]', or pass --bootstrap-servers of a broker you have"
        ) from error

    @contextmanager
    def transfer(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        def update(n_bytes: int) -> None:
            check()
            tally.bytes(n_bytes)

        yield update

    for attempt in range(1, _ATTEMPTS + 1):
        check()
        # jgo writes to the final name as it goes: a folder for each attempt keeps half files out.
        repo_cache = incoming / f"{jar.artifact}-{attempt}"
        context = MavenContext(
            resolver=PythonResolver(progress_callback=transfer),
            repo_cache=repo_cache,
            remote_repos=None if repository is None else {"given": repository},
            timeout=_TIMEOUT_S,
        )
        try:
            fetched: Path = (
                context.project(jar.group, jar.artifact)
                .at_version(jar.version)
                .artifact()
                .resolve()
            )
        except _Cancelled:
            raise
        except Exception as error:
            if attempt == _ATTEMPTS:
                raise ServerUnavailable(
                    f"{jar} cannot be downloaded ({error}); check the network or its proxy settings, or "
                    f"pass --bootstrap-servers of a broker you have"
                ) from error
            continue
        _verify(jar, fetched)
        fetched.replace(path)
        shutil.rmtree(repo_cache, ignore_errors=True)
        return


class _Cancelled(Exception):
    """The caller stopped waiting."""


class _Tally:
    """Counts for all threads and passes on one call at a time."""

    def __init__(self, progress: Progress, jars: int, total: int) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._jars = jars
        self._total = total
        self._bytes = 0

    def bytes(self, n_bytes: int) -> None:
        with self._lock:
            self._bytes += n_bytes
            self._report()

    def jar(self) -> None:
        with self._lock:
            self._jars += 1
            self._report()

    def _report(self) -> None:
        self._progress.downloaded(self._jars, self._total, self._bytes)
