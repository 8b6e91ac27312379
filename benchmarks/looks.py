"""Looks at columns in Redis, in files and on a Dask cluster, beside DuckDB on the same files.

    python benchmarks/looks.py [--rows N] [--folder FOLDER] [--draw FILE]

Rows have 64 attributes: 60 of 4 cells, 2 of 60 and 2 of 12. Every way reads from its store each time, and
gives the same tables. Times are the least of three rounds: CPU of this process with its threads, and on the
clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.dataset as ds
import redis
from distributed import LocalCluster
from distributed.security import Security
from system import running_servers

from stream_dp.core.rows.slabs import Slab, TableAsked
from stream_dp.core.rows.slot_counts import Counts
from stream_dp.messages import Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.rows import counting_cluster, stored_blocks
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import CountingCluster
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.slab_files import SETTING, SlabFiles, SlabPlace
from stream_dp.pipeline.rows.stored_blocks import StoredBlocks
from stream_dp.state.private_names import Named, name_of, new_salt
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import ORIGIN

NAMES: Final = Topics("bench-looks.")
DATASET: Final = "wide"
ROUNDS: Final = 3
SIZES: Final = (*[4] * 60, 60, 60, 12, 12)
VALUE: Final = 64
LOOKS: Final[dict[str, tuple[tuple[int, ...], bool, int | None]]] = {
    "1 of 4": ((3,), False, None),
    "1 of 60": ((60,), False, None),
    "2, 4 x 4": ((3, 7), False, None),
    "2, 60 x 60": ((60, 61), False, None),
    "4 of 4": ((3, 7, 11, 19), False, None),
    "sum, by 1 of 4": ((3,), False, VALUE),
    "persons, 4 x 4": ((3, 7), True, None),
}
TWO: Final = "2, 4 x 4"
NOBODY: Final[Any] = None
"""The topic, which nobody reads here."""

Layers = tuple[Named, ...]
Took = tuple[float, float]
"""Seconds on the clock, and of CPU."""


class Rows:
    """Blocks of random rows, alike in every way of keeping them."""

    def __init__(self, n_blocks: int, n_rows: int) -> None:
        self.n_blocks, self.n_rows = n_blocks, n_rows
        self._drawn = np.random.default_rng(1).integers(0, 256, 2**25, dtype=np.uint8)

    @property
    def n_slots(self) -> int:
        return self.n_blocks * self.n_rows

    def _some(self, block: int, column: int) -> Any:
        start = (block * 7919 + column * 104729) % (len(self._drawn) - 4 * self.n_rows)
        return self._drawn[start:]

    def slabs(self) -> Iterator[tuple[Slab, Slab]]:
        """The rows of each block, and which of them count where persons are protected."""
        n = self.n_rows
        for block in range(self.n_blocks):
            columns = {str(a): self._some(block, a)[:n] % size for a, size in enumerate(SIZES)}
            units = np.frombuffer(self._some(block, VALUE)[: 4 * n].tobytes(), np.uint32) >> 12
            columns[f"value {VALUE}"] = units
            weight = self._some(block, VALUE + 1)[:n] >> 7
            yield (
                Slab(n, n, {**columns, "w": weight}),  # for DuckDB, which has no layers
                Slab(n, n, {"weight": weight}),
            )


def n_bytes(look: str, n_slots: int) -> int:
    """The bytes that a look needs."""
    attributes, persons, measured = LOOKS[look]
    return n_slots * (len(attributes) + persons + 4 * (measured is not None))


async def least(call: Callable[[], Awaitable[Any]]) -> tuple[float, float, Any]:
    """The least seconds on the clock and of CPU, and what was found."""
    walls, cpus, found = [], [], None
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        found = await call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus), found


class Engine:
    """Looks as a worker takes them: in a thread, from what the event loop reads."""

    def __init__(
        self,
        named: Sequence[tuple[Layers, Layers]],
        parts: Any,
        rows: Rows,
        cluster: CountingCluster | None = None,
    ) -> None:
        self._named, self._parts, self._rows, self._cluster = named, parts, rows, cluster

    async def table(self, look: str) -> Counts:
        """The table of all blocks together, with nothing in memory before."""
        attributes, persons, measured = LOOKS[look]
        stored = StoredBlocks(
            DATASET,
            lambda _: SIZES,
            ColumnCache(1),
            lambda block, _: [self._named[block][persons]],
            self._parts,
            lambda: [self._rows.n_rows] * self._rows.n_blocks,
            self._cluster,
        )
        asked = [TableAsked(attributes, block, measured) for block in range(self._rows.n_blocks)]
        async with stored.readable():
            return await asyncio.to_thread(lambda: np.sum(list(stored.tables(asked)), axis=0))


class DuckDb:
    """The same looks by SQL on the same files."""

    def __init__(self, files: Sequence[str], threads: int) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"set threads={threads}")
        self._connection.register("t", ds.dataset(list(files), format="ipc"))

    async def table(self, look: str) -> Counts:
        attributes, persons, measured = LOOKS[look]
        keys = ", ".join(f'"{a}"' for a in attributes)
        what = "count(*)" if measured is None else f'sum("value {measured}")'
        where = "where w = 1" if persons else ""
        sql = f"select {keys}, {what} from t {where} group by {keys}"
        table = np.zeros(tuple(SIZES[a] for a in attributes), dtype=np.int64)
        for *cell, counted in self._connection.execute(sql).fetchall():
            table[tuple(cell)] = counted
        return table


@contextmanager
def cluster_of(folder: Path, processes: int) -> Iterator[CountingCluster]:
    """A Dask cluster with TLS on this machine, whose processes read the folder."""
    os.environ[SETTING] = folder.as_uri()
    security = Security.temporary()
    with LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        protocol="tls",
        security=security,
        dashboard_address=None,
        memory_limit=0,
    ) as local:
        tls = (security.tls_ca_file, security.tls_client_cert, security.tls_client_key)
        found = CountingCluster(local.scheduler_address, tls)
        yield found
        found.close()


@asynccontextmanager
async def in_redis(rows: Rows) -> AsyncIterator[tuple[Engine, Callable[[], float]]]:
    """Puts blocks into Redis: what looks at them, and the CPU of the server so far."""
    with running_servers(NAMES) as (_, addresses):
        context = Context()
        view = RedisView(addresses.redis_url, prefix="bench", journal="journal")
        follower = RedisFollower(view, lambda _: None, context)
        keeper = Keeper(NOBODY, context, follower)
        named: list[tuple[Layers, Layers]] = []
        for slabs in rows.slabs():
            layers = []
            for slab in slabs:
                parts = slab.stored(new_salt())
                one = Named(name_of(parts[0]), tuple(range(len(parts))))
                await view.keep(DATASET, dict(zip(one.fields(), parts, strict=True)), (0, ORIGIN))
                layers.append(one)
            named.append(((layers[0],), (layers[0], layers[1])))
        server = redis.Redis.from_url(addresses.redis_url)

        def busy() -> float:
            said: Any = server.info("cpu")
            return float(said["used_cpu_user"] + said["used_cpu_sys"])

        yield Engine(named, partial(keeper.parts, DATASET), rows), busy
        server.close()
        await view.close()


async def in_files(folder: Path, rows: Rows) -> tuple[list[tuple[Layers, Layers]], Any]:
    """Puts blocks into files; returns their names and what reads them."""
    files = await asyncio.to_thread(SlabFiles.opened, SlabPlace(folder.as_uri()))
    keeper = Keeper(NOBODY, Context(), files=files)
    named: list[tuple[Layers, Layers]] = []
    began = time.perf_counter()
    for slabs in rows.slabs():
        content, weight = await keeper.keep(DATASET, [slab.stored(new_salt()) for slab in slabs])
        named.append(((content,), (content, weight)))
    print(f"  put into files in {time.perf_counter() - began:.1f} s")
    return named, partial(keeper.parts, DATASET)


def memory_gb_s() -> float:
    """What one thread reads of memory in a second."""
    large = np.ones(2**27, dtype=np.uint64)
    began = time.perf_counter()
    large.max()
    return float(large.nbytes / (time.perf_counter() - began) / 1e9)


class Table:
    """What was measured, as it is printed and drawn."""

    def __init__(self, rows: Rows, speed: float) -> None:
        self.rows, self.speed = rows, speed
        self.took: dict[tuple[str, str], tuple[float, float]] = {}
        self._truth: dict[str, Counts] = {}

    async def fill(self, way: str, engine: Any, looks: Sequence[str] = tuple(LOOKS)) -> None:
        for look in looks:
            wall, cpu, counts = await least(partial(engine.table, look))
            truth = self._truth.setdefault(look, counts)
            assert np.array_equal(truth, counts), f"{way} counts otherwise: {look}"
            self.took[way, look] = wall, cpu
            n = self.rows.n_slots
            memory = n_bytes(look, n) / (self.speed * 1e9) / wall
            print(
                f"  {way:24} {look:16} {wall:7.3f} s {cpu:7.3f} s CPU "
                f"{1e9 * wall / n:6.2f} ns a slot {memory:6.1%} of the speed of memory",
                flush=True,
            )

    def ratio(self, what: str, way: str, other: str, most: float, *, of_cpu: bool = True) -> None:
        """Prints a ratio of a look at two columns, and whether it was reached."""
        found = self.took[way, TWO][of_cpu] / self.took[other, TWO][of_cpu]
        said = "reached" if found <= most else "not reached"
        print(f"  {what}: {found:.2f} (wanted <= {most}): {said}")

    def draw(self, file: Path) -> None:
        ways = list(dict.fromkeys(way for way, _ in self.took))
        looks = [look for look in LOOKS if all((way, look) in self.took for way in ways)]
        figure, axes = plt.subplots(figsize=(10, 5))
        for at, way in enumerate(ways):
            places = [place + at / (len(ways) + 1) for place in range(len(looks))]
            times = [1e9 * self.took[way, look][0] / self.rows.n_slots for look in looks]
            axes.bar(places, times, width=0.9 / (len(ways) + 1), label=way)
        axes.set_xticks([place + 0.4 for place in range(len(looks))], looks)
        axes.set_ylabel("ns a slot, on the clock")
        axes.set_title(f"Looks at {self.rows.n_slots:,} rows of 64 attributes")
        axes.legend()
        figure.tight_layout()
        figure.savefig(file, dpi=120)


async def measured(asked: argparse.Namespace, folder: Path) -> None:
    speed = memory_gb_s()
    print(f"memory gives one thread {speed:.1f} GB/s")
    few = Rows(200, 100_000)
    table = Table(few, speed)
    print(f"{few.n_blocks} blocks of {few.n_rows:,} rows")
    async with in_redis(few) as (engine, busy):
        before = busy()
        await table.fill("Redis", engine)
        used = (busy() - before) / (ROUNDS * len(LOOKS) * few.n_blocks)
        print(f"  Redis itself uses {1e3 * used:.2f} ms a block")
    rows = Rows(asked.rows // 2**20 or 1, min(asked.rows, 2**20))
    table = Table(rows, speed)
    print(f"{rows.n_blocks} blocks of {rows.n_rows:,} rows")
    named, parts = await in_files(folder, rows)
    await table.fill("files, one thread", Engine(named, parts, rows))
    with cluster_of(folder, 2) as cluster:
        for module in (counting_cluster, stored_blocks):
            setattr(module, "TASK_SLABS", 10)  # noqa: B010 - so that few rows are many tasks
        await table.fill("Dask, two processes", Engine(named, parts, rows, cluster))
    names = [str(folder / DATASET / f"{one.name.hex()}.arrow") for ((one,), _) in named]
    for threads in (1, 2):
        await table.fill(f"DuckDB, {threads} thread{'s'[: threads - 1]}", DuckDb(names, threads))
    table.ratio("files beside DuckDB, CPU", "files, one thread", "DuckDB, 1 thread", 0.6)
    table.ratio(
        "Dask beside one thread", "Dask, two processes", "files, one thread", 0.7, of_cpu=False
    )
    table.draw(asked.draw)
    print(f"drawn in {asked.draw}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=40 * 2**20, help="rows in files")
    parser.add_argument("--folder", type=Path, help="where files are kept; a temporary folder")
    parser.add_argument("--draw", type=Path, default=Path("build/looks.png"))
    asked = parser.parse_args()
    asked.draw.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stream-dp-bench-", dir=asked.folder) as name:
        asyncio.run(measured(asked, Path(name)))


if __name__ == "__main__":
    main()
