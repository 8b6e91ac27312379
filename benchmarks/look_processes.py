"""How long looks at many wide blocks take, in the thread of the look and in processes, and their memory.

    python benchmarks/look_processes.py [--blocks 200] [--rows 100000] [--attributes 64] [--processes 2]
        [--topic] [--cache 256] [--rounds 3]

The blocks are put on the private topic of a Kafka of its own, and into a Valkey; with ``--topic`` there is no
Redis for whoever reads them. A fresh process takes the data set over, as a worker does, and counts one
attribute: in a window of 1 and of 50 blocks, twice each, so that the second look finds them in the cache as
far as it has room. Then it counts it in all blocks: in the thread, then in processes, and so on in turn. The
counts are compared. Memory is what the process has more of than before the take-over; what the processes have
comes on top. It needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.rows.blocks import Block, Blocks, tables_of
from stream_dp.core.rows.universe import Rows
from stream_dp.embedded.folders import Running, cache_folder
from stream_dp.embedded.stack import Servers
from stream_dp.messages import Definition, Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.kafka.sender import Sender
from stream_dp.pipeline.kafka.topic_log import KafkaInputReader, KafkaLog, KeyedTopic
from stream_dp.pipeline.rows import block_cache, counting_processes
from stream_dp.pipeline.rows.block_cache import BlockCache
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.profiles.builder import build
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import ORIGIN, Pair, State, StateTable

NAME = "wide"
NAMES = Topics("bench.")


class Counting:
    """A look that counts one attribute in a window, and publishes nothing."""

    seconds = 0.0

    def __init__(self, window: range) -> None:
        self.window = window

    def take(self, _noise: object, data: Blocks) -> int:
        return sum(int(table[0]) for table in tables_of(data, (0,), self.window))


def wide(attributes: int) -> dict[str, Any]:
    edges = list(range(1, 16))
    return {
        "version": 1,
        "dataset": NAME,
        "attributes": [
            {"name": f"a{n}", "type": "number", "edges": edges} for n in range(attributes)
        ],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.05, "failure_probability": 0.05},
        "phase": {"min_rows": 1_000},
        "mechanism": {"base_share": 0.0},
    }


def memory_mb(field: str, process: int | str = "self") -> float:
    """The memory of a process: now (``VmRSS``), or the most so far (``VmHWM``)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024


@contextmanager
def running_servers(names: Topics, below: Path | None = None) -> Iterator[tuple[Path, Running]]:
    """Servers in a temporary folder, gone afterwards, with topics of one partition."""
    with (
        tempfile.TemporaryDirectory(prefix="stream-dp-bench-", dir=below) as name,
        Servers(Path(name), cache_folder(os.environ)) as addresses,
    ):
        create_topics(addresses.bootstrap_servers, names, partitions=1)
        yield Path(name), addresses


@asynccontextmanager
async def keeping(addresses: Running, *, topic: bool) -> AsyncIterator[tuple[Keeper, RedisView]]:
    """What keeps blocks; without Redis with ``topic``."""
    broker = Broker(addresses.bootstrap_servers)
    sender = Sender(broker, NAMES)
    store = RedisView(addresses.redis_url, prefix="bench", journal="journal")
    following = RedisFollower(store, lambda name: None, Context())
    if topic:
        following.contact.lost()
    await sender.start()
    log = KafkaLog(broker, NAMES.name("blocks"), 1, sender.producer)
    try:
        yield Keeper(KeyedTopic(log), Context(), following), store
    finally:
        await log.close()
        await sender.stop()
        await store.close()


async def fill(addresses: Running, given: argparse.Namespace) -> State:
    """Keeps the blocks; returns the state that names them."""
    definition = Definition.read(wide(given.attributes))
    universe, _ = build(definition)
    random = np.random.default_rng(1)
    pairs: dict[Pair, bytes] = {(StateTable.DEFINITION, b""): definition.to_bytes()}
    async with keeping(addresses, topic=given.topic) as (keeper, view):
        for number in range(given.blocks):
            codes = random.integers(0, 16, (len(universe.shape), given.rows), dtype=np.uint8)
            seal = Block.seal(universe, Rows(tuple(codes), None)).to_bytes()
            ((named, kept),) = await keeper.keep(NAME, seal)
            if not given.topic:
                await view.keep(NAME, named.name, kept, (0, ORIGIN))
            pairs[StateTable.KEPT, b"block %d" % (number + 1)] = named.to_bytes()
            pairs[StateTable.SPENT, b"%d" % number] = b"0 0"
            pairs[StateTable.TRANSCRIPT, b"%d" % number] = b"\x00%d" % given.rows
    return State(NAME, 1, pairs=pairs)


async def serve(addresses: Running, state: State, given: argparse.Namespace) -> dict[str, Any]:
    before, began = memory_mb("VmRSS"), time.perf_counter()
    seconds, counts = defaultdict[str, list[float]](list), defaultdict[range, set[Any]](set)
    setattr(block_cache, "LONG", 0)  # noqa: B010 - shorter looks are to be compared as well
    pool, cache = (
        counting_processes.CountingProcesses(given.processes),
        BlockCache(given.cache << 20),
    )
    async with keeping(addresses, topic=given.topic) as (keeper, _):
        rows: Any = KafkaInputReader(Broker(addresses.bootstrap_servers), NAMES)
        appended: Any = None
        tools = Tools(keeper, rows, 1, appended, PooledNoise, Context(), cache=cache)
        dataset = await Dataset.stored(JournalChain(NAME, state), tools)
        taken_over = time.perf_counter() - began, memory_mb("VmRSS") - before

        async def look(form: str, n_blocks: int) -> None:
            one: Any = Counting(range(dataset.phase - n_blocks, dataset.phase))
            began = time.perf_counter()
            (found,) = await dataset.looks._looked([one])  # noqa: SLF001 - a look without a charge
            seconds[form].append(time.perf_counter() - began)
            counts[one.window].add(found)

        for n_blocks in (1, min(50, given.blocks)):
            await look(f"{n_blocks} blocks, read", n_blocks)
            await look(f"{n_blocks} blocks, again", n_blocks)
        forms = {"in the thread": None, f"in {given.processes} processes": pool}
        for form, cache.counting in [*forms.items()] * (1 + given.rounds):
            await look(f"all blocks, {form}", given.blocks)
        for form in forms:  # the first ones warm up, and start the processes
            seconds[f"all blocks, {form}"].pop(0)
    assert all(len(found) == 1 for found in counts.values()), "the counts differ"
    processes = [one._child.pid for one in pool._there.values()]  # noqa: SLF001
    process_mb = max((memory_mb("VmRSS", process) for process in processes), default=0.0)
    pool.drop(0)
    began = time.perf_counter()
    pool.give(0, dataset.universe, b"", [])
    pool.take(0)
    process_s = time.perf_counter() - began
    pool.close()
    return {
        "looks": seconds,
        "taken over": taken_over,
        "process": (process_s, process_mb),
        "most": memory_mb("VmHWM") - before,
    }


def in_a_process(results: Any, *given: Any) -> None:
    results.put(asyncio.run(serve(*given)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--attributes", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=int, default=256, help="MB for blocks that were read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--topic", action="store_true")
    given = parser.parse_args()
    with running_servers(NAMES) as (_, addresses):
        state = asyncio.run(fill(addresses, given))
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        worker = context.Process(target=in_a_process, args=(results, addresses, state, given))
        worker.start()
        found = results.get()
        worker.join()
    where = f"{'on the topic' if given.topic else 'in Redis'}, {os.cpu_count()} cores"
    print(f"{given.blocks} blocks of {given.rows:,} rows of {given.attributes} attributes {where}")
    for what, seconds in found["looks"].items():
        print(f"{what:28} {statistics.median(seconds):6.2f} s, {min(seconds):.2f} at best")
    for what in ("taken over", "process"):
        print(f"{what:28} {found[what][0]:6.2f} s, {found[what][1]:.0f} MB")
    print(f"the worker had at most {found['most']:.0f} MB more than before it was taken over")


if __name__ == "__main__":
    main()
