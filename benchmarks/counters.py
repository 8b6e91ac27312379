"""Rows a second through the counting role: one row a message on a topic, read by one counter, and by two.

Then the same rows of a table with keys, as the change events of Debezium that a counter reads: of ten events,
eight create a row, one updates one, and one deletes one.

    python benchmarks/counters.py [--rows 400000]

Both in one run, on one broker, and the ratio is what counts; on a machine with two cores the counters share
them with the broker, the store and the worker that owns the data set. The rows are on their topic before a
counter starts. A rate is the number of rows over the time between the first and the last batch that was
accepted, by the broker's clock, the first one's rows left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from rich.console import Console
from rich.progress import track
from rich.table import Table
from system import System, running_system

from stream_dp.client import Client
from stream_dp.messages import Topics

PARTITIONS = 4
PATIENCE_S = 300.0
DEFINITION = {
    "version": 1,
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon", "Oslo"]},
        {"name": "amount", "type": "number", "edges": [10, 20, 50, 100, 200, 500]},
        {"name": "hour", "type": "number", "edges": [6, 9, 12, 15, 18, 21], "integer": True},
        {"name": "member", "type": "boolean"},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02},
    "phase": {"min_rows": 10**9},
}


KEYED = {
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-9,
        "unit": {"key": "person", "rows_per_phase": 4, "phases": 1},
    },
    "erasure": {"within": "24 hours", "row": "id"},
}


def event(row: dict[str, object], n: int) -> dict[str, object]:
    """The n-th change event, about a row of this content; an earlier one created what it changes."""
    op = "ccccccccud"[n % 10]
    number = n - n % 10 if op in "ud" else n
    keyed = {"id": number, "person": number % 50_000, **row}
    before, after = {"c": (None, keyed), "u": (keyed, keyed), "d": (keyed, None)}[op]
    source = {"connector": "postgresql", "sequence": f'["{n}","{n + 1}"]', "table": "orders"}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": n}


def fill(system: System, topic: str, n_rows: int, *, events: bool) -> None:
    admin = KafkaAdminClient(bootstrap_servers=system.addresses.bootstrap_servers)
    admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=system.addresses.bootstrap_servers, linger_ms=50)
    draw = random.Random(1)
    rows = [
        {
            "order": {"id": draw.randrange(10**9), "amount": round(draw.expovariate(0.01), 2)},
            "city": draw.choice(["Bonn", "Graz", "Lyon", "Oslo", "Rome"]),
            "hour": draw.randrange(24),
            "member": draw.random() < 0.3,
        }
        for _ in range(5_000)
    ]
    for i in track(range(n_rows), f"filling {topic}", transient=True):
        row: dict[str, object] = rows[i % len(rows)]
        value = json.dumps(event(row, i) if events else row).encode()
        # a key is always on one partition, and ten events in a row are about the same ones
        producer.send(topic, value, partition=(i // 10 if events else i) % PARTITIONS)
    producer.flush()
    producer.close()


def rate(
    system: System, client: Client, name: str, n_rows: int, counters: int, *, events: bool = False
) -> float:
    """Rows a second, or change events, through so many counters."""
    client.define({**DEFINITION, **(KEYED if events else {}), "dataset": name})
    fill(system, name, n_rows, events=events)
    source = system.folder / f"{name}.json"
    document = {"version": 1, "dataset": name, "topic": name, "fields": {"amount": "order.amount"}}
    if events:
        document["format"] = "debezium"
    source.write_text(json.dumps({**document, "batch_rows": 5_000}))
    running = [start(system, source) for _ in range(counters)]
    try:
        return settled(system, name, n_rows)
    finally:
        for process in running:
            process.kill()
            process.wait()


def start(system: System, source: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "stream_dp", "worker", "--role", "counter"),
            *("--source", str(source), "--redis-url", system.addresses.redis_url),
            *("--bootstrap-servers", system.addresses.bootstrap_servers),
        ],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )


def settled(system: System, name: str, n_rows: int) -> float:
    """Waits until so many rows were accepted, and reads from the broker when."""
    consumer = KafkaConsumer(
        Topics().name("events"),
        bootstrap_servers=system.addresses.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    accepted: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(rows for _, rows in accepted) < n_rows:
        if time.monotonic() > deadline:
            sys.exit(f"only {sum(rows for _, rows in accepted):,} of {n_rows:,} rows")
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                said = json.loads(record.value)
                if said["dataset"] == name and said["event"] == "batch_accepted":
                    accepted.append((record.timestamp, said["rows"] + said.get("changes", 0)))
    consumer.close()
    accepted.sort()
    rows = sum(rows for _, rows in accepted[1:])
    return 1000 * rows / (accepted[-1][0] - accepted[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    n_rows = parser.parse_args().rows
    console = Console(width=None if sys.stdout.isatty() else 120)
    with running_system(console) as system, system.client() as client:
        rates = {
            f"rows, by {many}": rate(system, client, f"counted-by-{n}", n_rows, n)
            for n, many in ((1, "one counter"), (2, "two"))
        }
        events = rate(system, client, "changed", n_rows, 1, events=True)
    rates["change events, by one counter"] = events
    table = Table("what", "a second", "of rows by one")
    for what, found in rates.items():
        table.add_row(what, f"{found:,.0f}", f"{found / rates['rows, by one counter']:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
