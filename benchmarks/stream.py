"""Throughput and latency of the whole pipeline on this machine, beside a bare Faust echo agent.

    python benchmarks/stream.py [--messages 20000] [--rounds 2]

Everything in one run, on one broker. Records are on their topics before a worker starts, so that no load
generator competes with it. A rate is the number of results over the time from its start to the last result,
less the time of a start with nothing to do; that of the echo counts from its first result on. The CPU time
of the worker for each result leaves out that of such a start too, and says more than rates where other
programs are at work; it needs Linux. Latency is
measured at a quarter and at half of the rate that single queries reached; then the load generator shares the
cores with what it loads, so that half of the rate may be all that the machine holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from rich.console import Console
from rich.table import Table
from system import System, running_system
from workloads import KindQuery, flight_queries

from stream_dp.client import Client
from stream_dp.embedded import ports
from stream_dp.messages import Topics
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.samples import FLIGHTS_DEFINITION, Flights, flights

TOPICS = Topics()
PARTITIONS = 4
PHASES = 3
PATIENCE_S = 180.0
LATENCY_S = 15
LOADS = (0.25, 0.5)
KEY = "customer"
BATCHES = 120


@dataclass(frozen=True)
class Rate:
    results: int
    seconds: float
    cpu_s: float = 0.0

    @property
    def per_second(self) -> float:
        return self.results / self.seconds

    @property
    def cpu(self) -> str:
        """The CPU time of the worker for each result, in words."""
        return f"{1e6 * self.cpu_s / self.results:,.0f} us of CPU each"


class Meter:
    """Counts what arrives on a topic and when the first and the last did, by the broker's clock."""

    def __init__(self, system: System, topic: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=system.addresses.bootstrap_servers, max_poll_records=5000
        )
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._consumer.assign(self._places)
        self._starts = self._consumer.end_offsets(self._places)

    def wait(
        self,
        results: int,
        wanted: Callable[[bytes], bool] = lambda _: True,
        *,
        since: float | None = None,
    ) -> Rate:
        """Returns when so many wanted records are there.

        Args:
            results: The number of records.
            wanted: Whether a value is that of a wanted record.
            since: The time from which on it counts, in seconds since 1970. None for that of the first record.
        """
        deadline = time.monotonic() + PATIENCE_S
        while sum(self._ends().values()) - sum(self._starts.values()) < results:
            if time.monotonic() > deadline:
                sys.exit(f"only {sum(self._ends().values()) - sum(self._starts.values())} results")
            time.sleep(0.25)
        times: list[int] = []
        for place, start in self._starts.items():
            self._consumer.seek(place, start)
        while len(times) < results:
            for records in self._consumer.poll(timeout_ms=1000).values():
                times += [record.timestamp for record in records if wanted(record.value)]
        self._consumer.close()
        return Rate(results, max(times) / 1000 - (min(times) / 1000 if since is None else since))

    def _ends(self) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = self._consumer.end_offsets(self._places)
        return ends


def dataset_names(of: str) -> list[str]:
    """One data set for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        name = f"{of}-{number}"
        found.setdefault(partition_of(name.encode(), PARTITIONS), name)
        number += 1
    return [found[partition] for partition in sorted(found)]


class Load:
    """Makes records and puts them on the topics."""

    def __init__(self, system: System, sample: Flights) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=system.addresses.bootstrap_servers,
            linger_ms=20,
            max_request_size=6_291_456,
        )
        self._sample = sample
        self._made = 0
        self.names = dataset_names("flights")
        self.of_persons = dataset_names("passengers")

    def define(self, client: Client) -> None:
        for name in self.names:
            client.define({**FLIGHTS_DEFINITION, "dataset": name})
            for month in range(1, PHASES + 1):
                client.send(name, columns=self._sample.of_month(month), timeout_s=120)
        unit = {"key": KEY, "rows_per_phase": 2, "phases": 12}
        privacy = {**FLIGHTS_DEFINITION["privacy"], "unit": unit}
        for name in self.of_persons:
            client.define({**FLIGHTS_DEFINITION, "dataset": name, "privacy": privacy})

    def messages(self, n: int, seed: int, per_message: int = 1) -> list[tuple[str, bytes]]:
        """``n`` fresh random conjunctions in all, the data sets by turns: their name, and the message."""
        waiting = {
            name: [self._item(a) for a in flight_queries(seed + at, PHASES - 1, n // PARTITIONS)]
            for at, name in enumerate(self.names)
        }
        found = []
        for start in range(0, n // PARTITIONS, per_message):
            for name, items in waiting.items():
                some = items[start : start + per_message]
                head = {"version": 1, "dataset": name, "analyst": "benchmark"}
                body = some[0] if per_message == 1 else {"queries": some}
                found.append((name, _encoded({**head, **body})))
        return found

    def put_queries(self, messages: Sequence[tuple[str, bytes]]) -> None:
        for name, value in messages:
            self.put("queries", name, value)
        self._producer.flush()

    def _item(self, asked: KindQuery) -> dict[str, object]:
        self._made += 1
        window = {"window": {"last_phases": asked.last_phases}} if asked.last_phases else {}
        return {"query_id": f"q{self._made}", "where": asked.where, **window}

    def put_batches(self, n: int, *, persons: bool) -> int:
        """``n`` batches of a month each; returns their rows.

        Args:
            n: The number of batches.
            persons: Whether each row says whose it is: one of 20,000 persons, some of whom come often.
        """
        rows = 0
        for number in range(n):
            columns = self._sample.of_month(number % 12 + 1)
            n_rows = len(columns["carrier"])
            rows += n_rows
            if persons:
                ids = np.random.default_rng(number).zipf(1.2, n_rows) % 20_000
                columns = {**columns, KEY: [f"customer-{person}" for person in ids.tolist()]}
            self._made += 1
            batch = {"version": 1, "batch_id": f"b{self._made}", "columns": columns}
            names = self.of_persons if persons else self.names
            name = names[number % len(names)]
            self.put("batches", name, _encoded({**batch, "dataset": name}))
        self._producer.flush()
        return rows

    def put(self, role: str, name: str, value: bytes) -> None:
        self._producer.send(TOPICS.name(role), key=name.encode(), value=value)

    def put_raw(self, topic: str, n: int, size: int) -> None:
        for number in range(n):
            self._producer.send(topic, key=b"%d" % number, value=b"x" * size)
        self._producer.flush()


@contextmanager
def echo_agent(system: System) -> Iterator[None]:
    command = [sys.executable, __file__.replace("stream.py", "echo.py")]
    command += [system.addresses.bootstrap_servers, "echo-in", "echo-out"]
    command += [str(system.folder / "echo"), str(ports.choose("the echo's pages", None))]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def echo_rate(system: System, load: Load, n: int) -> Rate:
    meter = Meter(system, "echo-out")
    load.put_raw("echo-in", n, 200)
    with echo_agent(system):
        return meter.wait(n)


def worker_rate(
    system: System,
    topic: str,
    fill: Callable[[], int],
    wanted: Callable[[bytes], bool] = lambda _: True,
) -> Rate:
    """Fills the topics while the worker is down, then starts it; see above what counts."""
    started = _started(system)  # with nothing to do
    idle = _cpu_s(system.worker.pid)
    system.worker.stop()
    meter = Meter(system, TOPICS.name(topic))
    results = fill()
    began = time.time()
    system.start_worker()
    rate = meter.wait(results, wanted, since=began + started)
    return replace(rate, cpu_s=_cpu_s(system.worker.pid) - idle)


def _cpu_s(pid: int) -> float:
    """The CPU time of a process so far, its threads included; 0 where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _started(system: System) -> float:
    """Seconds that a start of the worker takes."""
    system.worker.stop()
    began = time.time()
    system.start_worker()
    return time.time() - began


async def latencies(
    system: System, queries: Sequence[tuple[str, bytes]], per_second: float
) -> list[float]:
    """Seconds from sending a query to reading its answer, at an even rate, ascending."""
    servers = system.addresses.bootstrap_servers
    consumer = AIOKafkaConsumer(TOPICS.name("answers"), bootstrap_servers=servers)
    started: dict[bytes, float] = {}
    taken: list[float] = []

    async def read() -> None:
        async for record in consumer:
            taken.append(time.perf_counter() - started[dict(record.headers)["query_id"]])
            if len(taken) == len(queries):
                return

    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer, consumer:
        reading = asyncio.create_task(read())
        begin = time.perf_counter()
        for place, (name, value) in enumerate(queries):
            await asyncio.sleep(max(0.0, begin + place / per_second - time.perf_counter()))
            started[json.loads(value)["query_id"].encode()] = time.perf_counter()
            await producer.send(TOPICS.name("queries"), key=name.encode(), value=value)
        await asyncio.wait_for(reading, PATIENCE_S)
    return sorted(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    n = arguments.messages
    console = Console(width=None if sys.stdout.isatty() else 120)
    sample = flights()
    echo: list[float] = []
    single: list[float] = []
    many: list[float] = []
    rows: list[float] = []
    keyed: list[float] = []
    with running_system(console) as system, system.client() as client:
        admin = KafkaAdminClient(bootstrap_servers=system.addresses.bootstrap_servers)
        options = {"num_partitions": PARTITIONS, "replication_factor": 1}
        admin.create_topics({"echo-in": options, "echo-out": options})
        admin.close()
        load = Load(system, sample)

        def say(text: str) -> None:
            console.print(f"[dim]{time.strftime('%X')}[/dim] {text}")

        def asked(count: int, per_message: int, seed: int) -> Callable[[], int]:
            def fill() -> int:
                load.put_queries(load.messages(count, seed, per_message))
                return count

            return fill

        batch_rows = 0

        def batches(*, persons: bool) -> Callable[[], int]:
            def fill() -> int:
                nonlocal batch_rows
                batch_rows = load.put_batches(BATCHES, persons=persons)
                return BATCHES

            return fill

        if "--enable-optimizations" not in str(sysconfig.get_config_var("CONFIG_ARGS")):
            say("this Python was built without optimisation: all rates are some 20% lower")
        say("four data sets of three phases, and queries to warm up")
        load.define(client)
        worker_rate(system, "answers", asked(n, 100, seed=1000))
        for round_ in range(arguments.rounds):
            echo.append(echo_rate(system, load, n).per_second)
            say(f"echo: {echo[-1]:,.0f} messages/s")
            rate = worker_rate(system, "answers", asked(n, 1, 2000 + 10 * round_))
            single.append(rate.per_second)
            say(f"single queries: {single[-1]:,.0f} answers/s, {rate.cpu}")
            rate = worker_rate(system, "answers", asked(5 * n, 100, 3000 + 10 * round_))
            many.append(rate.per_second)
            say(f"100 queries a message: {many[-1]:,.0f} answers/s, {rate.cpu}")
        taken: dict[float, list[float]] = {}
        for number, share in enumerate(LOADS):
            say(f"latency at {share:.2g} of that rate")
            pace = share * statistics.median(single)
            count = int(LATENCY_S * pace) // PARTITIONS * PARTITIONS
            queries = load.messages(count, seed=4000 + 10 * number)
            taken[pace] = asyncio.run(latencies(system, queries, pace))
        for _ in range(arguments.rounds):
            for found, persons in ((rows, False), (keyed, True)):
                rate = worker_rate(
                    system,
                    "events",
                    batches(persons=persons),
                    lambda value: b'"batch_accepted"' in value,
                )
                found.append(batch_rows / rate.seconds)
                say(f"columnar batches{' with keys' * persons}: {found[-1]:,.0f} rows/s")
    table = Table("what", "per second", "wanted", title="medians of " + str(arguments.rounds))
    base = statistics.median(echo)
    table.add_row("bare Faust echo", f"{base:,.0f}", "")
    ratio = statistics.median(single) / base
    table.add_row(
        "one query a message",
        f"{statistics.median(single):,.0f} ({ratio:.2f} of the echo)",
        "0.8",
    )
    table.add_row("100 queries a message", f"{statistics.median(many):,.0f}", "5,000")
    table.add_row("rows in columnar batches", f"{statistics.median(rows):,.0f}", "300,000")
    ratio = statistics.median(keyed) / statistics.median(rows)
    table.add_row(
        "the same with keys of persons",
        f"{statistics.median(keyed):,.0f} ({ratio:.2f} of those without)",
        "0.5",
    )
    for pace, times in taken.items():
        table.add_row(
            f"latency at {pace:,.0f} queries/s",
            f"p50 {1e3 * _quantile(times, 0.5):.0f} ms, p99 {1e3 * _quantile(times, 0.99):.0f} ms",
            "",
        )
    console.print(table)


def _encoded(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
