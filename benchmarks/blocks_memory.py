"""Memory of a worker with many wide blocks, and what a look at some of them costs.

    python benchmarks/blocks_memory.py [--blocks 200] [--rows 20000] [--attributes 64] [--cache 256]

The blocks are put into a Valkey of its own. Then a fresh process takes the data set over, as a worker does,
and counts one attribute in a window of 1 and of 50 blocks, twice each: first the blocks are read from the
store, then they are in the cache as far as it has room. Memory is what the process has more of than before
the take-over, in the end after a look at all blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.core.blocks import Block, Blocks, tables_of
from stream_dp.core.noise import PooledNoise
from stream_dp.core.universe import Rows
from stream_dp.embedded.valkey import ValkeyServer, find_valkey
from stream_dp.messages import Definition
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.stored_blocks import BlockCache
from stream_dp.profiles.building import build
from stream_dp.state.ledger import GENESIS
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import Transition

WINDOWS = (1, 50)
NAME = "wide"


@dataclass(frozen=True)
class Result:
    """What a worker needed, in units of 2^20 bytes and in milliseconds."""

    taken_over_mb: float
    most_mb: float
    take_over_ms: float
    looks_ms: dict[tuple[int, str], float]


class Counting:
    """A look that counts one attribute in a window, and publishes nothing."""

    seconds: ClassVar[float] = 0.0

    def __init__(self, window: range) -> None:
        self.window = window

    def take(self, _noise: object, data: Blocks) -> int:
        return sum(int(table[0]) for table in tables_of(data, (0,), self.window))


def wide(attributes: int) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": NAME,
            "attributes": [
                {"name": f"a{n}", "type": "number", "edges": list(range(1, 16))}
                for n in range(attributes)
            ],
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.05, "failure_probability": 0.05},
            "phase": {"min_rows": 1_000},
            "mechanism": {"base_share": 0.0},
        }
    )


async def fill(url: str, definition: Definition, blocks: int, n_rows: int) -> int:
    """Stores the blocks; returns the bytes of one."""
    universe, _ = build(definition)
    random = np.random.default_rng(1)
    store = RedisStore.from_url(url)
    token = (await store.acquire(NAME)).token
    seal = b""
    for seq in range(blocks):
        codes = random.integers(0, 16, (len(universe.shape), n_rows), dtype=np.uint8)
        seal = Block.seal(universe, Rows(tuple(codes), None)).to_bytes()
        await store.commit(
            Transition(
                dataset=NAME,
                token=token,
                seq=seq,
                head=GENESIS,
                new_head=GENESIS,
                definition=None if seq else definition.to_bytes(),
                seal=seal,
                transcript=[b"\x00%d" % n_rows],
            )
        )
    await store.close()
    return len(seal)


def memory_mb(field: str, process: int | str = "self") -> float:
    """The memory of a process: now (``VmRSS``), or the most so far (``VmHWM``)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024


async def serve(url: str, cache_mb: int) -> Result:
    store = RedisStore.from_url(url)
    before, started = memory_mb("VmRSS"), time.perf_counter()
    snapshot = await store.acquire(NAME)
    cache = BlockCache(cache_mb << 20)
    dataset = Dataset.stored(store, PooledNoise(), snapshot, cache=cache)
    del snapshot
    took, taken_over = time.perf_counter() - started, memory_mb("VmRSS") - before
    looks: dict[tuple[int, str], float] = {}
    for size in WINDOWS:
        for state in ("cold", "warm"):
            look: Any = Counting(range(dataset.phase - size, dataset.phase))
            if state == "cold":
                cache.forget(dataset._stored_blocks)  # noqa: SLF001
            started = time.perf_counter()
            await dataset._taken([look])  # noqa: SLF001 - a look without a charge
            looks[size, state] = 1000 * (time.perf_counter() - started)
    everything: Any = Counting(range(dataset.phase))
    await dataset._taken([everything])  # noqa: SLF001
    await store.close()
    return Result(taken_over, memory_mb("VmHWM") - before, 1000 * took, looks)


def in_a_process(url: str, cache_mb: int, results: Any) -> None:
    results.put(asyncio.run(serve(url, cache_mb)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--attributes", type=int, default=64)
    parser.add_argument("--cache", type=int, nargs="+", default=[256, 64])
    asked = parser.parse_args()
    definition = wide(asked.attributes)
    table = Table("cache MB", "taken over MB", "most MB", "take-over ms", "look: blocks, ms")
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(
            Path(folder) / "data", log=Path(folder) / "log", program=find_valkey()
        )
        server.start()
        try:
            size = asyncio.run(fill(server.url, definition, asked.blocks, asked.rows))
            for cache_mb in asked.cache:
                results = processes.Queue()
                worker = processes.Process(
                    target=in_a_process, args=(server.url, cache_mb, results)
                )
                worker.start()
                found = results.get()
                worker.join()
                looks = [f"{n} {state} {ms:.1f}" for (n, state), ms in found.looks_ms.items()]
                numbers = (found.taken_over_mb, found.most_mb, found.take_over_ms)
                table.add_row(str(cache_mb), *(f"{n:.0f}" for n in numbers), ", ".join(looks))
        finally:
            server.stop()
    print(f"{asked.blocks} blocks of {asked.rows} rows and {size / 2**20:.2f} MB each")
    Console().print(table)


if __name__ == "__main__":
    main()
