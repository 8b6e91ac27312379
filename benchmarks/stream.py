"""Throughput and latency of the whole pipeline on this machine, beside programs that carry messages alone.

    python benchmarks/stream.py [--messages 20000] [--rounds 2]

Everything in one run, on one broker, by turns. Only ratios count: rates and latencies depend on the machine.
``echo.py`` has the programs beside it. Those with a journal do what a worker must do at least: they append
what came to one topic, and send it on when the broker has it.

Records are on their topics before a program starts, so that no load generator competes with it. A rate is the
number of results over the time from a worker's start to the last result, less the time of a start with
nothing to do; that of an echo counts from its first record on. The CPU time for each result leaves out that
of a start too, and needs Linux. Latency is measured at a quarter of the rate that single queries reached
in the first round. All programs are up then, and get a few seconds of load by turns, so that what else the
machine does meets all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from echo import BEGUN, PARTITIONS
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
PHASES = 3
PATIENCE_S = 180.0
LOAD = 0.25
TURNS = 6
TURN_S = 3.0
KEY = "customer"
BATCHES = 120
PER_MESSAGE = 100
REPEATED = 1000
"""Different questions of a data set, where they are repeated."""

WORKER, FRESH, REPEATS = "one query a message", "100 a message, fresh", "100 a message, repeated"
ROWS, KEYED = "rows in columnar batches", "rows with keys of persons"
ECHOES = {
    "faust": "Faust's echo",
    "record": "aiokafka's echo, by record",
    "batch": "aiokafka's echo, by batch",
    "journal": "aiokafka with a journal",
    "lanes": "aiokafka with a journal, in lanes",
}


@dataclass(frozen=True)
class Rate:
    results: int
    seconds: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.results / self.seconds

    @property
    def cpu_us(self) -> float:
        """The CPU time for each result, in microseconds."""
        return 1e6 * self.cpu_s / self.results


class Meter:
    """Counts what arrives on a topic, and when the last did, by the broker's clock."""

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
        cpu_s: Callable[[], float],
        wanted: Callable[[bytes], bool] = lambda _: True,
        *,
        since: float,
    ) -> Rate:
        """Returns when so many wanted records are there.

        Args:
            results: The number of records.
            cpu_s: The CPU time that counts, asked for when they are there.
            wanted: Whether a value is that of a wanted record.
            since: The time from which on it counts, in seconds since 1970.
        """
        deadline = time.monotonic() + PATIENCE_S
        while sum(self._ends().values()) - sum(self._starts.values()) < results:
            if time.monotonic() > deadline:
                sys.exit(f"only {sum(self._ends().values()) - sum(self._starts.values())} results")
            time.sleep(0.25)
        taken = cpu_s()
        times: list[int] = []
        for place, start in self._starts.items():
            self._consumer.seek(place, start)
        while len(times) < results:
            for records in self._consumer.poll(timeout_ms=1000).values():
                times += [record.timestamp for record in records if wanted(record.value)]
        self._consumer.close()
        return Rate(results, max(times) / 1000 - since, taken)

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

    def messages(
        self, n: int, seed: int, per_message: int = 1, different: int | None = None
    ) -> list[tuple[str, bytes]]:
        """``n`` random conjunctions in all, the data sets by turns: their name, and the message.

        Args:
            n: The number of queries.
            seed: What chooses them. The same seed gives the same ones, with other ids.
            per_message: The queries of a message.
            different: How many of a data set are different. None for all.
        """
        count = n // PARTITIONS
        waiting = {}
        for at, name in enumerate(self.names):
            some = [*flight_queries(seed + at, PHASES - 1, min(count, different or count))]
            waiting[name] = [self._item(one) for one in islice(cycle(some), count)]
        found = []
        for start in range(0, count, per_message):
            for name, items in waiting.items():
                of_message = items[start : start + per_message]
                head = {"version": 1, "dataset": name, "analyst": "benchmark"}
                body = of_message[0] if per_message == 1 else {"queries": of_message}
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
        headers = [("query_id", b"q123456")]
        for number in range(n):
            self._producer.send(topic, key=b"%d" % number, value=b"x" * size, headers=headers)
        self._producer.flush()


@contextmanager
def echo_of(system: System, way: str, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("echo.py")), way]
    command += [system.addresses.bootstrap_servers, name]
    command += [str(system.folder / name), str(ports.choose("the echo's pages", None))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def begun(process: subprocess.Popen[str]) -> tuple[float, float]:
    """When an echo came to its first record, in seconds since 1970, and the CPU time that it took."""
    assert process.stdout is not None
    lines = (line.partition(BEGUN) for line in process.stdout)  # Faust says something as well
    at, cpu_s = next(found[2] for found in lines if found[1]).split()
    return float(at), float(cpu_s)


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
    cpu_s = partial(_cpu_s, system.worker.pid, idle)
    return meter.wait(results, cpu_s, wanted, since=began + started)


def _cpu_s(pid: int, before: float = 0.0) -> float:
    """The CPU time of a process so far, its threads included; not a number where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return math.nan
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") - before


def _started(system: System) -> float:
    """Seconds that a start of the worker takes."""
    system.worker.stop()
    began = time.time()
    system.start_worker()
    return time.time() - began


async def latencies(
    system: System,
    queries: Sequence[tuple[str, bytes]],
    per_second: float,
    source: str,
    target: str,
) -> list[float]:
    """Milliseconds from sending a query to reading what comes back, at an even rate, ascending."""
    servers = system.addresses.bootstrap_servers
    consumer = AIOKafkaConsumer(target, bootstrap_servers=servers)
    started: dict[bytes, float] = {}
    taken: list[float] = []

    async def read() -> None:
        async for record in consumer:
            taken.append(1e3 * (time.perf_counter() - started[dict(record.headers)["query_id"]]))
            if len(taken) == len(queries):
                return

    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=2) as producer, consumer:
        await consumer.seek_to_end()
        for place in consumer.assignment():
            await consumer.position(place)
        reading = asyncio.create_task(read())
        begin = time.perf_counter()
        for place, (name, value) in enumerate(queries):
            await asyncio.sleep(max(0.0, begin + place / per_second - time.perf_counter()))
            query_id = json.loads(value)["query_id"].encode()
            started[query_id] = time.perf_counter()
            headers = [("query_id", query_id)]
            await producer.send(source, key=name.encode(), value=value, headers=headers)
        await asyncio.wait_for(reading, PATIENCE_S)
    return sorted(taken)


class Run:
    """A run of the benchmark.

    Attributes:
        found: What was found in each round, by what was measured and the figure.
    """

    def __init__(self, system: System, load: Load, n: int, say: Callable[[str], None]) -> None:
        self._system, self._load, self._n, self._say = system, load, n, say
        self._pace = 0.0
        self._seed = 10_000
        self.found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def median(self, what: str, figure: str) -> float:
        return statistics.median(self.found[what, figure])

    def warm_up(self) -> None:
        self._asked(self._n, PER_MESSAGE, 1000)
        self._asked(PARTITIONS * REPEATED, PER_MESSAGE, 1500)

    def queries(self, number: int) -> None:
        """A round of all that carries queries or messages."""
        n, many = self._n, 5 * self._n
        self._note(WORKER, self._asked(n, 1, 2000 + 10 * number))
        self._pace = self._pace or LOAD * self.found[WORKER, "rate"][0]
        self._note(FRESH, self._asked(many, PER_MESSAGE, 3000 + 10 * number))
        self._note(REPEATS, self._asked(many, PER_MESSAGE, 1500, REPEATED))
        with ExitStack() as stack:
            places = {WORKER: (TOPICS.name("queries"), TOPICS.name("answers"))}
            for way, what in ECHOES.items():
                name = f"{way}-{number}"
                self._note(what, self._echoed(way, name, stack))
                places[what] = f"{name}-in", f"{name}-out"
            for turn in range(TURNS):
                for what in [*places][:: 1 if turn % 2 else -1]:
                    self._note_latencies(what, *places[what])
        for what in places:
            p50, p99 = (self.median(what, figure) for figure in ("p50", "p99"))
            self._say(f"{what}: p50 {p50:.0f} ms, p99 {p99:.0f} ms")

    def rows(self) -> None:
        """A round of rows. It opens phases."""
        for what, persons in ((ROWS, False), (KEYED, True)):
            self._note(what, self._batches(persons=persons))

    def _asked(self, count: int, per_message: int, seed: int, different: int | None = None) -> Rate:
        def fill() -> int:
            self._load.put_queries(self._load.messages(count, seed, per_message, different))
            return count

        return worker_rate(self._system, "answers", fill)

    def _batches(self, *, persons: bool) -> Rate:
        rows = 0

        def fill() -> int:
            nonlocal rows
            rows = self._load.put_batches(BATCHES, persons=persons)
            return BATCHES

        rate = worker_rate(self._system, "events", fill, lambda value: b'"batch_accepted"' in value)
        return replace(rate, results=rows)

    def _echoed(self, way: str, name: str, stack: ExitStack) -> Rate:
        """Starts a program of ``echo.py`` on topics of its own, and leaves it to the stack."""
        meter = Meter(self._system, f"{name}-out")
        count = self._n if way == "faust" else 5 * self._n
        self._load.put_raw(f"{name}-in", count, 200)
        process = stack.enter_context(echo_of(self._system, way, name))
        at, cpu_s = begun(process)
        return meter.wait(count, partial(_cpu_s, process.pid, cpu_s), since=at)

    def _note(self, what: str, rate: Rate) -> None:
        self.found[what, "rate"].append(rate.per_second)
        self.found[what, "cpu"].append(rate.cpu_us)
        self._say(f"{what}: {rate.per_second:,.0f}/s, {rate.cpu_us:,.1f} us of CPU each")

    def _note_latencies(self, what: str, source: str, target: str) -> None:
        count = int(TURN_S * self._pace) // PARTITIONS * PARTITIONS
        self._seed += 10
        queries = self._load.messages(count, self._seed)
        taken = asyncio.run(latencies(self._system, queries, self._pace, source, target))
        self.found[what, "p50"].append(taken[len(taken) // 2])
        self.found[what, "p99"].append(taken[int(0.99 * len(taken))])

    def figures(self) -> Table:
        """All that was measured."""
        table = Table(
            *("what", "per second", "us of CPU each", "p50, ms", "p99, ms"),
            title=f"medians; latency at {self._pace:,.0f}/s",
        )
        for what in dict.fromkeys(what for what, _ in self.found):
            figures = [("rate", ",.0f"), ("cpu", ",.1f"), ("p50", ",.0f"), ("p99", ",.0f")]
            cells = [
                format(self.median(what, figure), form) if (what, figure) in self.found else ""
                for figure, form in figures
            ]
            table.add_row(what, *cells)
        return table

    def aims(self) -> Table:
        """The ratios that are wanted, and whether they were reached."""
        faust, lanes = ECHOES["faust"], ECHOES["lanes"]
        aims = [
            (WORKER, lanes, "p50", 1.2),
            (WORKER, lanes, "p99", 1.2),
            (FRESH, faust, "rate", 2.0),
            (REPEATS, faust, "rate", 4.0),
            (KEYED, ROWS, "rate", 0.5),
        ]
        table = Table("ratio", "found", "by CPU", "aim", "")
        for what, base, figure, aim in aims:
            ratio = self.median(what, figure) / self.median(base, figure)
            is_rate = figure == "rate"
            by_cpu = self.median(base, "cpu") / self.median(what, "cpu")
            table.add_row(
                f"{figure}: {what} / {base}",
                f"{ratio:.2f}",
                f"{by_cpu:.2f}" if is_rate else "",
                f"at {'least' if is_rate else 'most'} {aim:g}",
                "reached" if (ratio >= aim if is_rate else ratio <= aim) else "not reached",
            )
        return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    sample = flights()

    def say(text: str) -> None:
        console.print(f"[dim]{time.strftime('%X')}[/dim] {text}")

    with running_system(console) as system, system.client() as client:
        admin = KafkaAdminClient(bootstrap_servers=system.addresses.bootstrap_servers)
        options = {"num_partitions": PARTITIONS, "replication_factor": 1}
        rounds = range(arguments.rounds)
        topics = [f"{way}-{number}" for number in rounds for way in ECHOES]
        ends = ("in", "out", "journal")
        admin.create_topics({f"{name}-{end}": options for name in topics for end in ends})
        admin.close()
        if "--enable-optimizations" not in str(sysconfig.get_config_var("CONFIG_ARGS")):
            say("this Python was built without optimisation: all rates are some 20% lower")
        say("four data sets of three phases, and queries to warm up")
        load = Load(system, sample)
        load.define(client)
        run = Run(system, load, arguments.messages, say)
        run.warm_up()
        for number in rounds:
            run.queries(number)
        for _ in rounds:
            run.rows()
    console.print(run.figures())
    console.print(run.aims())


def _encoded(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
