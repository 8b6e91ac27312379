"""Counts stored blocks in processes of their own, which know nothing else: no secret, noise or connection.

A process gets the stored bytes of a block and public parameters, and returns exact counts. The bytes go
through memory that has no name and is gone with the processes. Counting draws nothing, so what a process
that died was given is simply counted again by the one that asked.

    python -m stream_dp.pipeline.rows.counting_processes FD

is such a process. It ends when its input does, and so with the worker.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from stream_dp.core.rows.blocks import BlockCounts, counted
from stream_dp.core.rows.universe import Universe

_UNIVERSES: Final = 4
_LEAST_BYTES: Final = 2**16
_USUALLY_AT_MOST: Final = 4
_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG")


@dataclass(frozen=True, slots=True)
class _Job:
    """What a process is told; all of it is public. The block is in the memory that it shares.

    Attributes:
        n_bytes: The length of the block.
        universe: The possible rows, encoded. The same for many jobs.
        asked: The attributes of each table to count.
    """

    n_bytes: int
    universe: bytes = field(repr=False)
    asked: tuple[tuple[int, ...], ...]


class CountingProcesses:
    """Processes that count blocks. They are started when they are first needed.

    One thread at a time uses them. It takes the counts of a block before it gives that process another one.

    Args:
        processes: The number of processes.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._there: dict[int, _Process] = {}
        self._universe: Universe | None = None
        self._encoded = b""

    def give(
        self, number: int, universe: Universe, stored: bytes, asked: Sequence[tuple[int, ...]]
    ) -> None:
        """Lets a process count.

        Args:
            number: The process, from 0.
            universe: The possible rows.
            stored: The stored bytes of a block. Private.
            asked: The attributes of each table.
        """
        if self._universe is not universe:
            self._universe, self._encoded = universe, pickle.dumps(universe)
        # One that has died is noticed when its counts are taken.
        with contextlib.suppress(OSError):
            process = self._there.get(number)
            if process is None:
                process = self._there[number] = _Process()
            process.give(_Job(len(stored), self._encoded, tuple(asked)), stored)

    def take(self, number: int) -> BlockCounts | None:
        """Waits for what a process has counted. Private. None if it could not, or has died."""
        process = self._there.get(number)
        if process is None:
            return None
        try:
            found = process.take()
        except (OSError, EOFError, pickle.UnpicklingError):
            self.drop(number)
            return None
        return found

    def drop(self, number: int) -> None:
        """Ends a process whose counts nobody wants. Another one is started when it is needed."""
        process = self._there.pop(number, None)
        if process is not None:
            process.end()

    def close(self) -> None:
        """Ends all processes."""
        for number in list(self._there):
            self.drop(number)


def counting_in(processes: int | None) -> CountingProcesses | None:
    """Returns processes to count in; None where one would be as good as this one, or none can share memory.

    Args:
        processes: The most processes. None for as many as there are cores, at most four.
    """
    if sys.platform != "linux":
        return None
    cores = len(os.sched_getaffinity(0))
    found = min(cores, _USUALLY_AT_MOST if processes is None else processes)
    return CountingProcesses(found) if found > 1 else None


class _Process:
    """One process, and the memory that it shares with this one."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("stream-dp-block")
        self._mapped: mmap.mmap | None = None
        # Of the environment it gets nothing that may hold a password.
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment["OPENBLAS_NUM_THREADS"] = "1"
        try:
            self._child = subprocess.Popen(  # noqa: S603 - of ourselves
                [sys.executable, "-P", "-m", __name__, str(self._memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[self._memory],
                env=environment,
            )
        except OSError:
            os.close(self._memory)
            raise

    def give(self, job: _Job, stored: bytes) -> None:
        self._mapped = _mapped(self._memory, self._mapped, job.n_bytes, grow=True)
        self._mapped[: job.n_bytes] = stored
        assert self._child.stdin is not None, "it is a pipe"
        pickle.dump(job, self._child.stdin)
        self._child.stdin.flush()

    def take(self) -> BlockCounts | None:
        assert self._child.stdout is not None, "it is a pipe"
        found: BlockCounts | None = pickle.load(self._child.stdout)  # noqa: S301 - of our own child
        return found

    def end(self) -> None:
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._child.wait()
        if self._mapped is not None:
            self._mapped.close()
        os.close(self._memory)


def _mapped(memory: int, mapped: mmap.mmap | None, n_bytes: int, *, grow: bool) -> mmap.mmap:
    """Memory that has room for a block; what was mapped before, if it has."""
    if mapped is not None and len(mapped) >= n_bytes:
        return mapped
    if mapped is not None:
        mapped.close()
    if grow:
        size = max(n_bytes, _LEAST_BYTES)
        os.ftruncate(memory, size)
    else:
        size = os.fstat(memory).st_size
    return mmap.mmap(memory, size)


def _serve(memory: int, jobs: IO[bytes], found: IO[bytes]) -> None:
    """Counts what comes, until nothing more comes."""
    universes: OrderedDict[bytes, Universe] = OrderedDict()
    mapped: mmap.mmap | None = None
    while True:
        try:
            job: _Job = pickle.load(jobs)  # noqa: S301 - of our own parent
        except EOFError:
            return
        universe = universes.pop(job.universe, None) or pickle.loads(job.universe)  # noqa: S301
        universes[job.universe] = universe
        while len(universes) > _UNIVERSES:
            universes.popitem(last=False)
        mapped = _mapped(memory, mapped, job.n_bytes, grow=False)
        result: BlockCounts | None = None
        # Whatever it is, the one that asked meets it too, and says it in words that show no row.
        with contextlib.suppress(Exception):
            result = counted(universe, mapped[: job.n_bytes], job.asked)
        pickle.dump(result, found, protocol=pickle.HIGHEST_PROTOCOL)
        found.flush()


if __name__ == "__main__":
    # Its jobs are of the module that this one is there.
    from stream_dp.pipeline.rows import counting_processes

    counting_processes._serve(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)  # noqa: SLF001
