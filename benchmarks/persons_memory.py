"""Memory and time of the units that persons use for life, in Valkey and, if it is installed, in Redis.

    python benchmarks/persons_memory.py [--most 1000000]

Persons are reserved in a table that grows to 10^4, 10^5 and 10^6 of them, by calls of 10,000, with every
write on disk before it is acknowledged. The memory of a person is what the server's own allocations
(``used_memory``) grew by. 2^20 buckets share the persons, so the memory of a person falls until each bucket
has many. The line of 10^8 is an extrapolation from 1,024 buckets with 95 persons each, as all have then.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis
from rich.console import Console
from rich.table import Table

from stream_dp.core.persons import DIGEST_BYTES, Digests
from stream_dp.embedded.valkey import ValkeyServer, find_valkey
from stream_dp.state.ledger import GENESIS
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import MOST_PERSONS, Reservation, Transition

SIZES = (10**4, 10**5, 10**6)
LARGEST = 10**8
BUCKETS = 2**20
FILLED = 2**10
TIMED_CALLS = 20


@dataclass(frozen=True)
class Line:
    """Memory of so many persons, and the median and worst time of a call about 10,000 of them."""

    server: str
    persons: int
    bytes_each: float
    read_ms: tuple[float, float] | None
    reserve_ms: tuple[float, float] | None


class Owner:
    """The owner of a data set, which reserves one row of each person in the next phase."""

    def __init__(self, store: RedisStore, dataset: str) -> None:
        self.store = store
        self.dataset = dataset
        self.token = 0

    async def take(self) -> None:
        self.token = (await self.store.acquire(self.dataset)).token

    async def read(self, digests: Digests) -> float:
        started = time.perf_counter()
        await self.store.units(self.dataset, self.token, 1, digests)
        return 1000 * (time.perf_counter() - started)

    async def reserve(self, digests: Digests) -> float:
        n_slots = len(digests)
        reservation = Reservation(
            dataset=self.dataset,
            token=self.token,
            phase=1,
            digests=digests,
            before=np.zeros(n_slots, dtype=np.int64),
            rows=np.ones(n_slots, dtype=np.int64),
        )
        started = time.perf_counter()
        await self.store.reserve(reservation)
        return 1000 * (time.perf_counter() - started)

    async def reserve_all(self, digests: Digests) -> list[float]:
        return [
            await self.reserve(digests[start : start + MOST_PERSONS])
            for start in range(0, len(digests), MOST_PERSONS)
        ]

    async def retire(self) -> float:
        """Erases everything; returns how long it took in seconds."""
        await self.store.commit(
            Transition(
                dataset=self.dataset,
                token=self.token,
                seq=0,
                head=GENESIS,
                new_head=GENESIS,
                definition=b"benchmark",
                erase=True,
            )
        )
        started = time.perf_counter()
        while await self.store.forget_persons(self.dataset, self.token):
            pass
        return time.perf_counter() - started


def some_digests(noise: np.random.Generator, n_persons: int) -> Digests:
    return noise.integers(0, 256, (n_persons, DIGEST_BYTES), dtype=np.uint8)


def in_few_buckets(digests: Digests) -> Digests:
    """The same persons, in the first 2^10 of the 2^20 buckets."""
    digests[:, 0] = 0
    digests[:, 1] &= 0x3F
    return digests


def middle_and_worst(times_ms: list[float]) -> tuple[float, float]:
    return float(np.median(times_ms)), max(times_ms)


async def measure(program: Path, folder: Path, most: int) -> tuple[list[Line], float]:
    """The lines of one server, and the seconds that it takes to erase all persons."""
    noise = np.random.default_rng(1)
    lines: list[Line] = []
    server = ValkeyServer(folder / "data", log=folder / "log", program=program)
    server.start()
    client = redis.Redis.from_url(server.url)
    info = client.info("server")
    name = f"{'Valkey' if 'valkey_version' in info else 'Redis'} "
    name += str(info.get("valkey_version", info["redis_version"]))
    store = RedisStore.from_url(server.url)
    try:
        growing = Owner(store, "growing")
        await growing.take()
        await growing.read(some_digests(noise, 1))  # the scripts are known from here on
        empty, persons = settled_memory(client), 0
        for size in [size for size in SIZES if size <= most]:
            digests = some_digests(noise, size - persons)
            reserved = await growing.reserve_all(digests)
            persons = size
            each = (settled_memory(client) - empty) / persons
            read = [await growing.read(digests[:MOST_PERSONS]) for _ in range(TIMED_CALLS)]
            lines.append(Line(name, size, each, middle_and_worst(read), middle_and_worst(reserved)))
        erased_s = await growing.retire()
        # Buckets as they are with 10^8 persons.
        full = Owner(store, "full")
        await full.take()
        before = settled_memory(client)
        each_bucket = LARGEST // BUCKETS
        await full.reserve_all(in_few_buckets(some_digests(noise, FILLED * each_bucket)))
        each = (settled_memory(client) - before) / (FILLED * each_bucket)
        lines.append(Line(name, LARGEST, each, None, None))
    finally:
        await store.close()
        client.close()
        server.stop()
    return lines, erased_s


def settled_memory(client: redis.Redis) -> int:
    """What the data take, in bytes: without the buffers of clients and of the append-only file."""
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.05)
    info = client.info("memory")
    return int(info["used_memory"]) - int(info["mem_not_counted_for_evict"])


def shown(times_ms: tuple[float, float] | None) -> str:
    return "" if times_ms is None else f"{times_ms[0]:.0f} / {times_ms[1]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    most = parser.parse_args().most
    programs = [find_valkey()]
    if found := shutil.which("redis-server"):
        programs.append(Path(found))
    table = Table(
        "server",
        "persons",
        "bytes a person",
        "in all",
        "10,000 read, ms",
        "10,000 reserved, ms",
        caption="times are the median and the worst",
    )
    console = Console(width=None if sys.stdout.isatty() else 120)
    for program in programs:
        with tempfile.TemporaryDirectory(prefix="stream-dp-bench-") as folder:
            lines, erased_s = asyncio.run(measure(program, Path(folder), most))
        for line in lines:
            table.add_row(
                line.server,
                f"{line.persons:,}" + (" (extrapolated)" if line.read_ms is None else ""),
                f"{line.bytes_each:.0f}",
                f"{line.bytes_each * line.persons / 1e9:.3f} GB",
                shown(line.read_ms),
                shown(line.reserve_ms),
            )
        console.print(f"{lines[0].server}: erasing {most:,} persons took {erased_s:.1f} s")
    console.print(table)


if __name__ == "__main__":
    main()
