"""Counts large looks on a Dask cluster: a task is names of slabs, and gives exact tables to the worker alone.

A look is decided and charged before, and noise is added after, in the worker. A task has no noise, no query,
no secret and no address: the processes of the cluster have settings of their own. It has a random key, so no
earlier result serves. One that is lost runs again and counts the same. What the cluster does not count, the
worker counts itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import uuid4

from stream_dp.core.rows.blocks import ShapeAt
from stream_dp.core.rows.slabs import SLOTS, Slab, SlabIndex, TableAsked
from stream_dp.core.rows.slot_counts import Counts
from stream_dp.errors import CorruptState, InvalidInput, ServerUnavailable
from stream_dp.pipeline.rows.slab_files import SlabFiles, files_of
from stream_dp.settings import WorkerSettings
from stream_dp.state.private_names import name_of

_log = logging.getLogger(__name__)

SETTING: Final = "STREAM_DP_COUNT_WITH"
TASK_SLABS: Final = 2**27 // SLOTS
"""The slabs of a task, of which one takes a third of a second from memory."""

_PATIENCE_S: Final = 60.0
_AGAIN: Final = 3
_AHEAD: Final = 4
_M_TRIM_THRESHOLD: Final = -1  # of malloc.h
_M_MMAP_THRESHOLD: Final = -3


class SlabStep(NamedTuple):
    """A slab that is counted for a table.

    Attributes:
        table: The number of the table in the look.
        asked: The table.
        layers: The names of the values that have its columns.
    """

    table: int
    asked: TableAsked
    layers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CountTask:
    """What a process of the cluster is told. Its repr is in logs of the cluster.

    Attributes:
        dataset: The name of the data set.
        shapes: The sizes of all attributes in each block.
        steps: What is counted, in order.
    """

    dataset: str
    shapes: Mapping[int, tuple[int, ...]] = field(repr=False)
    steps: tuple[SlabStep, ...] = field(repr=False)


class CountedTable(NamedTuple):
    """A table of some slabs.

    Attributes:
        counts: The exact counts or sums. Private.
        n_rows: The number of rows that were counted, those included that are in no cell.
    """

    counts: Counts
    n_rows: int

    def and_in(self, others: CountedTable | None) -> CountedTable:
        """The table of these slabs and of others."""
        if others is None:
            return self
        return CountedTable(self.counts + others.counts, self.n_rows + others.n_rows)

    def __repr__(self) -> str:
        return "CountedTable()"


class CountFailed(Exception):
    """A task could not be done. What it says is in logs of the cluster."""


def count(task: CountTask) -> dict[int, CountedTable]:
    """Does a task, in a process of the cluster; returns the tables of its slabs, by their numbers.

    Raises:
        CountFailed: The store does not answer, or a slab is not there.
    """
    try:
        return counted_in(_own_files(), task)
    except Exception as error:  # noqa: BLE001 - what it says may not be logged
        raise CountFailed(type(error).__name__) from None


@cache
def _own_files() -> SlabFiles:
    _reuse_memory()
    files = files_of(WorkerSettings())
    if files is None:
        raise InvalidInput(
            "STREAM_DP_ROWS", "it is not set", "set it for the cluster as for workers"
        )
    return files


def _reuse_memory() -> None:
    """Has glibc reuse the memory of a slab for the next one.

    Dask starts its processes so that they give it back each time, and then a count takes three times as long.
    """
    with contextlib.suppress(AttributeError, OSError):  # another library has no such function
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, 64 << 20)
        allocator.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def counted_in(files: SlabFiles, task: CountTask) -> dict[int, CountedTable]:
    """Does a task with the files of a store.

    Raises:
        CorruptState: A slab is not there, or is another one.
        ServerUnavailable: The store does not answer.
    """
    found: dict[int, CountedTable] = {}
    for step, slab in zip(task.steps, _read_ahead(files, task), strict=True):
        counts = step.asked.table(task.shapes[step.asked.block], slab)
        # Of a slab of merged rows, and of sums, the index alone tells how many rows there are.
        tells = step.asked.measured is None and not slab.is_merged
        n_rows = int(counts.sum()) + slab.n_out if tells else slab.n_rows
        found[step.table] = CountedTable(counts, n_rows).and_in(found.get(step.table))
    return found


def _read_ahead(files: SlabFiles, task: CountTask) -> Iterator[Slab]:
    """The slabs of a task, some of which are read while one is counted."""
    with ThreadPoolExecutor(_AHEAD) as threads:
        reading = deque[Future[Slab]]()
        for step in task.steps:
            reading.append(threads.submit(_slab, files, task.dataset, step))
            if len(reading) > _AHEAD:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()


def _slab(files: SlabFiles, dataset: str, step: SlabStep) -> Slab:
    """Reads what a step needs, and compares it with its names."""
    indexes: dict[bytes, SlabIndex] = {}
    for name in step.layers:
        (first,) = files.parts(dataset, name, [0])
        if first is None or name_of(first) != name:
            raise CorruptState("a slab is not there, or is another one")
        indexes[name] = SlabIndex.from_bytes(first)
    there = {column: name for name, index in indexes.items() for column in index.names}
    columns = {}
    needed = step.asked.needs(there)
    for name, index in indexes.items():
        places = sorted(index.place(column) for column in needed if there[column] == name)
        for place, part in zip(places, files.parts(dataset, name, places), strict=True):
            if part is None or not index.has(place, part):
                raise CorruptState("a column is not there, or is another one")
            columns[index.names[place - 1]] = index.column(place, part)
    first_index = indexes[step.layers[0]]
    return Slab(first_index.n_rows, first_index.n_slots, columns)


class CountingCluster:
    """A Dask cluster, which is connected to when it is first needed.

    Args:
        address: The scheduler, ``tls://host:8786``.
        tls: The files of the CA, of the certificate and of its key.
        beat: Called with every task that is done.

    Raises:
        InvalidInput: The address is not encrypted, or Dask is missing.
    """

    def __init__(
        self,
        address: str,
        tls: tuple[str | None, str | None, str | None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        if not address.startswith("tls://"):
            raise InvalidInput(SETTING, "it is not encrypted", "use tls://HOST:8786")
        try:
            import distributed  # noqa: F401 - an extra
        except ImportError:
            raise InvalidInput(
                SETTING, "Dask is missing", "pip install stream-dp[cluster]"
            ) from None
        self._address, self._tls, self._beat = address, tls, beat
        self._client: Any = None

    def tables(
        self, dataset: str, shape_at: ShapeAt, steps: Sequence[SlabStep]
    ) -> dict[int, CountedTable]:
        """Returns the tables of some steps, by their numbers, those that the cluster has counted.

        It is called in the thread of a look.

        Args:
            dataset: The name of the data set.
            shape_at: Returns the sizes of all attributes in a block, 1 for those that its rows do not have.
            steps: What is to be counted, those of a table together.
        """
        tasks = []
        for at in range(0, len(steps), TASK_SLABS):
            some = tuple(steps[at : at + TASK_SLABS])
            shapes = {step.asked.block: shape_at(step.asked.block) for step in some}
            tasks.append(CountTask(dataset, shapes, some))
        counted = self._counted(tasks)
        found: dict[int, CountedTable] = {}
        lost: set[int] = set()
        for number, task in enumerate(tasks):
            for table in {step.table for step in task.steps}:
                one = counted.get(number, {}).get(table)
                if one is None:
                    lost.add(table)
                else:
                    found[table] = one.and_in(found.get(table))
        return {table: one for table, one in found.items() if table not in lost}

    def _counted(self, tasks: Sequence[CountTask]) -> Mapping[int, Mapping[int, CountedTable]]:
        """What the cluster counts of some tasks, by their numbers; each once."""
        from distributed import wait

        found: dict[int, Mapping[int, CountedTable]] = {}
        numbers: dict[Any, int] = {}
        try:
            client = self._connected()
            for number, task in enumerate(tasks):
                key = f"count-{uuid4().hex}"
                future = client.submit(count, task, key=key, pure=False, retries=_AGAIN)
                numbers[future] = number
            pending = set(numbers)
            with client.as_current():
                while pending:
                    first = "FIRST_COMPLETED"
                    done, pending = wait(pending, timeout=_PATIENCE_S, return_when=first)
                    self._beat()
                    for future in done:
                        if future.status == "finished":
                            found[numbers[future]] = future.result(timeout=_PATIENCE_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, this worker counts
            _log.warning("the Dask cluster does not count: %s", type(error).__name__)
            for future in numbers:
                future.release()
            self.close()
        return found

    def n_processes(self) -> int:
        """Returns the number of processes that count.

        Raises:
            ServerUnavailable: The scheduler does not answer, or refuses the certificate.
        """
        try:
            return len(self._connected().nthreads())
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody counts there
            raise ServerUnavailable(
                f"the scheduler of STREAM_DP_COUNT_WITH does not answer ({type(error).__name__})"
            ) from None

    def _connected(self) -> Any:
        if self._client is None:
            from distributed import Client, Security

            ca, cert, key = self._tls
            security = Security(
                tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
            )
            self._client = Client(
                self._address, security=security, timeout=_PATIENCE_S, set_as_default=False
            )
        return self._client

    def close(self) -> None:
        """Ends the connection. The next look begins another one."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=1)
