"""How long a look at many wide blocks takes: counted in the thread of the look, and in processes.

    python benchmarks/look_processes.py [--blocks 200] [--rows 100000] [--attributes 64] [--processes 2]
        [--topic] [--rounds 3]

The blocks are put into a Valkey of its own, or on the private topic of a Kafka of its own with ``--topic``.
A fresh process takes the data set over, as a worker does, and counts one attribute in all blocks: in the
thread, then in processes, and so on in turn. The counts are compared. Memory is what the process has more of
in the end than before the take-over; what the processes have comes on top. It needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blocks_memory import NAME, Counting, memory_mb, wide

from stream_dp.broker import Broker
from stream_dp.client.topics import create_topics
from stream_dp.core.blocks import Block
from stream_dp.core.noise import PooledNoise
from stream_dp.core.universe import Rows
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.progress import Silent
from stream_dp.embedded.stack import Servers
from stream_dp.embedded.valkey import ValkeyServer, find_valkey
from stream_dp.messages import Definition, Topics
from stream_dp.pipeline import counting, stored_blocks
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.fetching import Fetcher
from stream_dp.pipeline.keeping import Keeper, field_of
from stream_dp.pipeline.local_logs import LocalKept
from stream_dp.pipeline.logs import KafkaKept, KafkaLog
from stream_dp.pipeline.sending import Sender
from stream_dp.pipeline.stored_blocks import BlockCache
from stream_dp.profiles.building import build
from stream_dp.state.ledger import GENESIS
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import Transition

NAMES = Topics("bench.")


@dataclass(frozen=True)
class Places:
    """Where the servers are. Without a broker, blocks are in the store."""

    store: str
    broker: str | None


@contextlib.asynccontextmanager
async def keeping(places: Places) -> AsyncIterator[Keeper]:
    if places.broker is None:
        yield Keeper(LocalKept(), 1)
        return
    broker = Broker(places.broker)
    sender, fetcher = Sender(broker, NAMES), Fetcher(broker, NAMES.name("blocks"))
    await sender.start()
    try:
        log = KafkaLog(broker, NAMES.name("blocks"), 1, sender.producer)
        yield Keeper(KafkaKept(log, fetcher), 1, blocks="topic")
    finally:
        await fetcher.close()
        await sender.stop()


async def fill(places: Places, definition: Definition, blocks: int, n_rows: int) -> None:
    universe, _ = build(definition)
    random = np.random.default_rng(1)
    store = RedisStore.from_url(places.store)
    token = (await store.acquire(NAME)).token
    async with keeping(places) as keeper:
        for seq in range(blocks):
            codes = random.integers(0, 16, (len(universe.shape), n_rows), dtype=np.uint8)
            seal, meta = Block.seal(universe, Rows(tuple(codes), None)).to_bytes(), {}
            if places.broker is not None:
                name, seal = await keeper.keep_block(NAME, seq + 1, seal)
                meta[field_of(seq + 1)] = name
            await store.commit(
                Transition(
                    dataset=NAME,
                    token=token,
                    seq=seq,
                    head=GENESIS,
                    new_head=GENESIS,
                    definition=None if seq else definition.to_bytes(),
                    meta=meta,
                    seal=seal,
                    transcript=[b"\x00%d" % n_rows],
                )
            )
    await store.close()


async def serve(places: Places, given: argparse.Namespace) -> dict[str, Any]:
    store = RedisStore.from_url(places.store)
    before = memory_mb("VmRSS")
    found: dict[str, Any] = {"thread": [], "processes": [], "counts": set()}
    found |= {"cpu in thread": [], "cpu in processes": []}
    setattr(stored_blocks, "LONG", 0)  # noqa: B010 - shorter looks are to be compared as well
    pool = counting.Counting(given.processes)
    async with keeping(places) as keeper:
        cache = BlockCache(given.cache << 20)
        snapshot = await store.acquire(NAME)
        dataset = Dataset.stored(store, PooledNoise(), snapshot, cache=cache, keeper=keeper)
        for number in range(2 * given.rounds + 2):
            form = "processes" if number % 2 else "thread"
            cache.counting = pool if form == "processes" else None
            look: Any = Counting(range(dataset.phase))
            started, used = time.perf_counter(), time.process_time()
            (rows,) = await dataset._taken([look])  # noqa: SLF001 - a look without a charge
            if number >= 2:  # the first ones warm up, and start the processes
                found[form].append(time.perf_counter() - started)
                found[f"cpu in {form}"].append(time.process_time() - used)
            found["counts"].add(rows)
    found["most_mb"] = memory_mb("VmHWM") - before
    found["process_mb"] = max(
        memory_mb("VmRSS", process._child.pid)  # noqa: SLF001
        for process in pool._there.values()  # noqa: SLF001
    )
    pool.drop(0)
    started = time.perf_counter()
    pool.give(0, dataset.universe, b"", [])
    pool.take(0)
    found["start"] = time.perf_counter() - started
    pool.close()
    await store.close()
    return found


def in_a_process(places: Places, given: argparse.Namespace, results: Any) -> None:
    results.put(asyncio.run(serve(places, given)))


def run(places: Places, given: argparse.Namespace) -> None:
    asyncio.run(fill(places, wide(given.attributes), given.blocks, given.rows))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    worker = context.Process(target=in_a_process, args=(places, given, results))
    worker.start()
    found = results.get()
    worker.join()
    assert len(found["counts"]) == 1, "the counts differ"
    where = "on the topic" if given.topic else "in the store"
    print(
        f"{given.blocks} blocks of {given.rows:,} rows of {given.attributes} attributes {where}, "
        f"{os.cpu_count()} cores"
    )
    thread, processes = (statistics.median(found[form]) for form in ("thread", "processes"))
    print(f"in the thread       {thread:6.2f} s, {min(found['thread']):.2f} at best")
    print(
        f"in {given.processes} processes      {processes:6.2f} s, {min(found['processes']):.2f} at best"
    )
    print(f"ratio               {thread / processes:6.2f}")
    cpu = [statistics.median(found[f"cpu in {form}"]) for form in ("thread", "processes")]
    print(f"the worker's own CPU time was {cpu[0]:.2f} s, and {cpu[1]:.2f} s with processes")
    print(
        f"each process has {found['process_mb']:.0f} MB, and took {found['start']:.2f} s to start"
    )
    print(f"the worker had at most {found['most_mb']:.0f} MB more than before the take-over")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--attributes", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--topic", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if given.topic:
            servers = Servers(folder, cache_folder(os.environ), progress=Silent())
            addresses = stack.enter_context(servers)
            create_topics(addresses.bootstrap_servers, NAMES, partitions=1)
            run(Places(addresses.redis_url, addresses.bootstrap_servers), given)
        else:
            valkey = ValkeyServer(folder / "data", log=folder / "log", program=find_valkey())
            valkey.start()
            stack.callback(valkey.stop)
            run(Places(valkey.url, None), given)


if __name__ == "__main__":
    main()
