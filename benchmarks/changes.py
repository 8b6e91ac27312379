"""Change events of a table, for minutes or hours, while workers are killed: is the data set the table?

    python benchmarks/changes.py [--minutes 60] [--rate 10000]

Events in the Debezium format come at an even rate: of ten, eight create a row, one updates one of these, and
one deletes another. Every two minutes either the counter that reads them is killed, or the worker that owns
the data set. In the end a sweep makes all changes, and each cell of a table is compared with what the
events say. Noise is far below one row in a thousand, so an event that is lost or counts twice shows in the
sum of many. It also says how far the counter was behind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from counters import PARTITIONS, start
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from rich.console import Console
from rich.progress import Progress
from system import System, running_system

from stream_dp.client import Client, Query
from stream_dp.messages import TableAnswer, Topics

NAME = "orders"
CITIES = ("Bonn", "Graz", "Lyon", "Oslo")
DEFINITION = {
    "version": 1,
    "dataset": NAME,
    "attributes": [
        {"name": "city", "type": "category", "values": CITIES, "other": False},
        {"name": "hour", "type": "number", "edges": [6, 9, 12, 15, 18, 21], "integer": True},
        {"name": "member", "type": "boolean"},
    ],
    # A row is a person of its own, so all of them count.
    "privacy": {
        "epsilon": 20.0,
        "delta": 1e-9,
        "unit": {"key": "owner", "rows_per_phase": 1, "phases": 1},
    },
    "accuracy": {"error": 0.001},
    "erasure": {"within": "24 hours", "row": "id"},
}
KILL_EVERY_S = 120.0
PATIENCE_MS = 600_000
KINDS = 5_000
"""Rows of different content, which come again and again."""

Row = dict[str, object]


def kinds() -> list[Row]:
    draw = random.Random(1)
    return [
        {"city": draw.choice(CITIES), "hour": draw.randrange(24), "member": draw.random() < 0.3}
        for _ in range(KINDS)
    ]


def event(rows: list[Row], n: int) -> Row:
    """The n-th event: of each ten, the ninth updates the first row, and the tenth deletes the second."""
    first, place = n - n % 10, n % 10
    number = first if place == 8 else first + 1 if place == 9 else n
    said = {"id": number, **rows[n % KINDS]}
    op = "c" if place < 8 else "u" if place == 8 else "d"
    before, after = {"c": (None, said), "u": (said, said), "d": (said, None)}[op]
    source = {"sequence": f'["{n}","{n + 1}"]'}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": n}


def table(rows: list[Row], n_events: int) -> Counter[tuple[object, object]]:
    """The rows of the table by city and member, after so many events, a multiple of ten."""
    found: Counter[tuple[object, object]] = Counter()
    rounds, last = divmod(n_events, KINDS)
    for n in range(KINDS):
        if n % 10 in (0, 1, 9):  # what is updated, what is deleted, and what deletes
            continue
        times = rounds + (n < last)
        found[rows[n]["city"], rows[n]["member"]] += times  # of an update, the newer content
    return found


def produce(servers: str, n_events: int, rate: int) -> None:
    """Sends the events at an even rate; a row is always on one partition."""
    # On a busy machine the broker may be late, and a producer that gives up sends a smaller table.
    producer = KafkaProducer(
        bootstrap_servers=servers,
        linger_ms=50,
        delivery_timeout_ms=PATIENCE_MS,
        max_block_ms=PATIENCE_MS,
    )
    rows = kinds()
    began = time.monotonic()
    for n in range(n_events):
        if n % 1000 == 0:
            time.sleep(max(0.0, began + n / rate - time.monotonic()))
        value = json.dumps(event(rows, n)).encode()
        producer.send(NAME, value, partition=n // 10 % PARTITIONS)
    producer.flush()
    producer.close()


class Behind:
    """How many events were sent, and how many the data set has taken in by its own events."""

    def __init__(self, servers: str) -> None:
        self._sent = KafkaConsumer(bootstrap_servers=servers)
        self._parts = [TopicPartition(NAME, n) for n in range(PARTITIONS)]
        self._events = KafkaConsumer(
            Topics().name("events"), bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        self.taken = self.changes = self.made = self.sweeps = 0
        self._known = set[object]()

    def look(self) -> int:
        for records in self._events.poll(timeout_ms=500, max_records=5_000).values():
            for record in records:
                said = json.loads(record.value)
                # After a crash a worker may say again what became of a batch.
                name = said.get("batch_id") or (said.get("producer"), said.get("sequence"))
                if said["event"] == "batch_accepted" and name not in self._known:
                    self._known.add(name)
                    self.taken += said["rows"] + said.get("changes", 0)
                    self.changes = said.get("change_number", self.changes)
                if said["event"] == "swept":
                    self.made, self.sweeps = said["change_number"], self.sweeps + 1
        return int(sum(self._sent.end_offsets(self._parts).values())) - self.taken


def cells(client: Client) -> Iterator[tuple[tuple[object, object], float, float]]:
    """The published cells of the table by city and member, with their bars."""
    answer = client.ask(NAME, Query(group_by=("city", "member"), error={"value": 30}))
    assert isinstance(answer, TableAnswer), answer
    found = answer.table
    places = [(city, member) for city in found.labels[0] for member in found.labels[1]]
    for (city, member), count, bar in zip(
        places, found.counts, found.count_bars or (), strict=True
    ):
        yield (city, member == "true"), count, bar or 0.0


def run(system: System, client: Client, minutes: float, rate: int, console: Console) -> bool:
    servers = system.addresses.bootstrap_servers
    n_events = int(minutes * 60 * rate) // 10 * 10
    # Five phases open by themselves, and half of one is left to be closed.
    client.define({**DEFINITION, "phase": {"min_rows": int(0.8 * n_events / 5.5)}})
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics({NAME: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    admin.close()
    source = system.folder / "orders.json"
    said = {"version": 1, "dataset": NAME, "topic": NAME, "format": "debezium"}
    source.write_text(json.dumps({**said, "fields": {"owner": "id"}, "batch_rows": 5_000}))
    sender = multiprocessing.Process(target=produce, args=(servers, n_events, rate))
    sender.start()
    counter, behind, began = start(system, source), Behind(servers), time.monotonic()
    kills, most, next_kill = Counter[str](), 0, KILL_EVERY_S
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("events", total=n_events)
        while behind.taken < n_events:
            lag = behind.look()
            most = max(most, lag)
            progress.update(task, completed=behind.taken, description=f"{lag:,} behind")
            spent = time.monotonic() - began
            if spent > next_kill and sender.is_alive():
                next_kill += KILL_EVERY_S
                if sum(kills.values()) % 2:
                    system.worker.kill()
                    system.worker.start()
                    kills["worker"] += 1
                else:
                    counter.kill()
                    counter.wait()
                    counter = start(system, source)
                    kills["counter"] += 1
    took = time.monotonic() - began
    counter.kill()
    counter.wait()
    client.close_phase(NAME, timeout_s=600)
    client.sweep(NAME)
    while behind.made < behind.changes:
        behind.look()
    console.print(
        f"{n_events:,} events in {took:,.0f} s: {n_events / took:,.0f} a second; the data set was behind by "
        f"{most:,} at most; {kills['counter']} kills of the counter, {kills['worker']} of the worker, "
        f"{behind.sweeps} sweeps"
    )
    wanted = table(kinds(), n_events)
    is_equal = True
    for place, count, bar in cells(client):
        off = count - wanted[place]
        is_equal &= abs(off) <= bar < 0.001 * wanted[place]
        console.print(f"{place}: {wanted[place]:,} rows, published {count:,.0f} ± {bar:,.0f}")
    console.print("the table and the data set are equal" if is_equal else "they are NOT equal")
    return is_equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=10_000)
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with running_system(console) as system, system.client() as client:
        sys.exit(not run(system, client, arguments.minutes, arguments.rate, console))


if __name__ == "__main__":
    main()
