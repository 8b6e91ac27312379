"""Running totals, closing by clock and late rows on real servers: how soon ticks come, and where rows count.

    python benchmarks/fresh.py [--minutes 10]

Ten data sets get 1,000 rows a second each, and have 100 counts each minute. All their ticks are due at once.
A data set gets no rows after its first minute. Another one gets rows about the present, and as many about any
of the minutes before. The broker dates what the worker publishes, so only its clock counts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from rich.progress import track
from rich.table import Table
from system import running_system
from workloads import console

from stream_dp.client import Client, Query
from stream_dp.client.budget.odometer import Odometer
from stream_dp.messages import NoisyAnswer, Topics

TOPICS = Topics()
BUSY, ROWS_A_SECOND = 10, 1_000
TICK_S, DAY_S = 5.0, 15.0
"""Acceptance: ticks are out within this time (p99), and a period without rows closes within this one."""

CLOSE_S, WITHIN = 60, "3 minutes"
LATEST_S = 150
LABELS = [f"{n:02}" for n in range(10)]
ATTRIBUTES = [
    {"name": name, "type": "category", "values": LABELS, "other": False}
    for name in ("kind", "place")
]
PRIVACY = {"epsilon": 1.0, "delta": 1e-9}


def definition(name: str, **phase: Any) -> dict[str, Any]:
    closes = {"timezone": "UTC", "close": {"after": "1 minute"}, **phase}
    return {
        "version": 1,
        "dataset": name,
        "attributes": ATTRIBUTES,
        "privacy": PRIVACY,
        "phase": {"min_rows": 100, **closes},
    }


def rows(n_rows: int) -> dict[str, list[str]]:
    draw = random.Random(1)
    return {name: draw.choices(LABELS, k=n_rows) for name in ("kind", "place")}


class Sender:
    """Sends rows every second: many to each busy data set, few to the one whose rows come late."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._busy = rows(ROWS_A_SECOND)
        self.late = Counter[int]()  # the rows about each minute since 1970

    def send(self, second: int) -> None:
        for number in range(BUSY):
            self._batch(f"busy-{number}", second, self._busy)
        now = int(time.time())
        for place, back in enumerate((0, random.randrange(min(second + 1, LATEST_S)))):
            about = now - back
            self.late[about // 60] += 20
            at = datetime.fromtimestamp(about, UTC).isoformat()
            self._batch("late", f"{second}-{place}", rows(20), time=at)
        if second == 0:
            self._batch("idle", second, rows(200))

    def _batch(self, name: str, number: object, columns: dict[str, list[str]], **more: str) -> None:
        said = {"version": 1, "dataset": name, "batch_id": f"{number}", "columns": columns, **more}
        self._producer.send(TOPICS.name("batches"), json.dumps(said).encode(), name.encode())


def published(servers: str, role: str) -> list[tuple[dict[str, Any], float]]:
    """All documents of a topic, each with the second at which the broker took it."""
    consumer = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=2000)
    topic = TOPICS.name(role)
    consumer.assign([TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()])
    consumer.seek_to_beginning()
    found = [(json.loads(one.value), one.timestamp / 1000) for one in consumer if one.value]
    consumer.close()
    return found


def seconds(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def lateness(servers: str) -> list[float]:
    """By how many seconds each tick came after it was due; last ones are due as their period closes."""
    return [
        at - seconds(tick["until"]) - (CLOSE_S if tick["tick"] == tick["ticks"] else 0)
        for tick, at in published(servers, "running")
    ]


def idle(servers: str) -> float:
    """By how many seconds the period without further rows closed after it was due."""
    (opened,) = (
        at - seconds(event["until"]) - CLOSE_S
        for event, at in published(servers, "events")
        if (event["dataset"], event["event"]) == ("idle", "phase_opened")
    )
    return opened


def misplaced(client: Client, sent: Counter[int]) -> tuple[int, int]:
    """The rows that count in another minute than their own, and all rows."""
    off = 0
    for block in Odometer.read(client.ledger("late")).blocks:
        since, until = block.since or "", block.until or ""
        own = sum(n for at, n in sent.items() if seconds(since) <= 60 * at < seconds(until))
        window = {"since": since, "until": until}
        told = client.ask("late", Query({"attribute": "kind", "eq": "00"}, window=window))
        off += abs(told.n - own) if isinstance(told, NoisyAnswer) else own
    return off, sum(sent.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=int, default=10)
    n_seconds = 60 * parser.parse_args().minutes
    out = console()
    with running_system(out, dated=("running",)) as system, system.client() as client:
        servers = system.addresses.bootstrap_servers
        totals = {
            "every": "1 minute",
            "within_rows": 3000,
            "tiles": [{"group_by": ["kind", "place"]}],
        }
        for number in range(BUSY):
            client.define({**definition(f"busy-{number}", every="1 hour"), "running": totals})
        client.define(definition("idle", every="1 minute"))
        client.define(definition("late", every="1 minute", late={"within": WITHIN}))
        sender = Sender(KafkaProducer(bootstrap_servers=servers, linger_ms=5))
        begun = time.time()
        for second in track(range(n_seconds), "Sending rows", console=out):
            time.sleep(max(0.0, begun + second - time.time()))
            sender.send(second)
        for _ in track(range(LATEST_S + 180), "Waiting until all is complete", console=out):
            time.sleep(1)
        late, closed = np.array(lateness(servers)), idle(servers)
        off, of = misplaced(client, sender.late)
    p99 = float(np.quantile(late, 0.99))
    table = Table("", "figure", "wanted", "reached")
    for name, figure, wanted, reached in (
        ("ticks", f"{len(late)}", "", True),
        ("  after they are due, p99", f"{p99:.1f} s", f"<= {TICK_S:.0f} s", p99 <= TICK_S),
        ("  the last of all", f"{late.max():.1f} s", "", True),
        ("a period without rows closes", f"{closed:.1f} s", f"<= {DAY_S:.0f} s", closed <= DAY_S),
        ("rows outside their minute", f"{off:,} of {of:,}", "0", off == 0),
    ):
        table.add_row(name, figure, wanted, "" if not wanted else "yes" if reached else "NO")
    out.print(table)
    return 0 if p99 <= TICK_S and closed <= DAY_S and off == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
