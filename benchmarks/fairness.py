"""How long the long records of one data set keep the queries of another one waiting.

    python benchmarks/fairness.py

Through a real Kafka and Valkey. First a query is asked of a quiet data set again and again, while nothing
else is asked. Then the same while another data set works off long records: 2,000 paid queries, 600 tables of
48,400 cells, and the same tables once more. Both in one run, and the ratio is what counts: waiting for a
reply has the same costs in both.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from system import System, running_system

from stream_dp.client import Client
from stream_dp.messages import Topics

CELLS = 220
DEFINITION = {
    "version": 1,
    "attributes": [
        {"name": name, "type": "number", "edges": list(range(1, CELLS)), "integer": True}
        for name in ("first", "second")
    ],
    "privacy": {"epsilon": 8.0, "delta": 1e-9},
    "accuracy": {"error": 0.05},
    "phase": {"min_rows": 200_000},
    "mechanism": {"base_share": 0},
}


def fill(client: Client, name: str) -> None:
    client.define({**DEFINITION, "dataset": name})
    cells = [{"first": i % CELLS, "second": i % 7, "count": 1_000} for i in range(CELLS)]
    client.send(name, cells=cells)


def heavy() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Records that ask for as much as one may."""
    paid = [
        {
            "query_id": f"paid-{n}",
            "where": {
                "all": [
                    {"attribute": "first", "ge": n % (CELLS - 1) + 1},
                    {"attribute": "second", "lt": n // (CELLS - 1) + 1},
                ]
            },
        }
        for n in range(2_000)
    ]
    yield "2,000 paid queries", paid
    table = {"kind": "table", "group_by": ["first", "second"]}
    yield "600 tables of 48,400 cells", [{"query_id": f"t{n}", **table} for n in range(600)]
    yield "the same once more", [{"query_id": f"t{n}", **table} for n in range(600)]


def waits(client: Client, busy: threading.Event) -> list[float]:
    """Seconds until each reply to queries about the quiet data set, one after the other."""
    found: list[float] = []
    while busy.is_set() or len(found) < 20:
        begun = time.monotonic()
        client.ask("quiet", "first >= 5", timeout_s=300)
        found.append(time.monotonic() - begun)
    return found


def beside(
    system: System, client: Client, producer: KafkaProducer, queries: Sequence[Mapping[str, Any]]
) -> list[float]:
    """The waits while a record is worked off: until a query behind it is answered."""
    head = {"version": 1, "dataset": "busy", "analyst": "benchmark"}
    record = json.dumps({**head, "queries": list(queries)}).encode()
    producer.send(Topics().name("queries"), key=b"busy", value=record).get(30)
    working = threading.Event()
    working.set()

    def behind() -> None:
        with system.client() as other:
            other.ask("busy", "first >= 5", timeout_s=300)
        working.clear()

    last = threading.Thread(target=behind)
    last.start()
    found = waits(client, working)
    last.join()
    return found


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    with running_system(console) as system, system.client() as client:
        for name in ("quiet", "busy"):
            fill(client, name)
        idle = threading.Event()
        rows = [("nothing", waits(client, idle))]
        producer = KafkaProducer(bootstrap_servers=system.addresses.bootstrap_servers)
        for words, queries in track(list(heavy()), "long records", transient=True):
            rows.append((words, beside(system, client, producer, queries)))
        producer.close()
    usual = statistics.median(rows[0][1])
    table = Table("the other data set works off", "queries", "median", "worst", "worst / usual")
    for words, found in rows:
        table.add_row(
            words,
            str(len(found)),
            f"{1000 * statistics.median(found):.0f} ms",
            f"{1000 * max(found):.0f} ms",
            f"{max(found) / usual:.1f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
