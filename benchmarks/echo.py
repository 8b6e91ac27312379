"""What ``stream.py`` measures a worker against: a program that carries messages and does nothing else.

    python benchmarks/echo.py WAY SERVERS NAME FOLDER PORT

It sends every record of the topic NAME-in on to NAME-out, and prints when it came to the first one, and the
CPU time that it took until then. The ways are ``faust``, a bare agent, and four with aiokafka. ``record``
sends each record by itself, ``batch`` those of a partition that came together as one batch. ``journal``
appends such a batch to NAME-journal first, and reads on when it has left. ``lanes`` does the same for each
partition by itself. Not part of the product.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

PARTITIONS = 4
BEGUN = "begun at"
_MOST = 512  # records at a time
_BATCH_BYTES = 2**19  # as the worker's


def say_begun() -> None:
    print(BEGUN, time.time(), time.process_time(), flush=True)


def echo_with_faust(servers: str, name: str, folder: str, port: str) -> None:
    import faust

    app = faust.App(
        "echo",
        broker=f"kafka://{servers}",
        datadir=folder,
        web_port=int(port),
        web_bind="127.0.0.1",
        topic_disable_leader=True,
        value_serializer="raw",
    )
    kinds = {"key_type": bytes, "value_type": bytes, "value_serializer": "raw"}
    source, target = app.topic(f"{name}-in", **kinds), app.topic(f"{name}-out", **kinds)

    @app.agent(source)  # type: ignore[untyped-decorator]
    async def echo(stream: Any) -> None:
        has_begun = False
        async for event in stream.events():
            if not has_begun:
                has_begun = True
                say_begun()
            headers = list(event.headers.items())
            await target.send(key=event.key, value=event.value, headers=headers)

    sys.argv = sys.argv[:1]
    faust.Worker(app, loglevel="error", redirect_stdouts=False).execute_from_commandline()


class Echo:
    """Carries records with aiokafka. The journal has a connection of its own, as that of a worker."""

    def __init__(self, servers: str, name: str, way: str) -> None:
        self._name, self._way = name, way
        options = {"bootstrap_servers": servers}
        self._consumer = AIOKafkaConsumer(
            **options, auto_offset_reset="earliest", enable_auto_commit=False
        )
        self._sender, self._appender = (
            AIOKafkaProducer(**options, acks="all", max_batch_size=_BATCH_BYTES) for _ in range(2)
        )

    async def run(self) -> None:
        clients = self._consumer, self._sender, self._appender
        await asyncio.gather(*(client.start() for client in clients))
        self._consumer.assign([TopicPartition(f"{self._name}-in", at) for at in range(PARTITIONS)])
        carry = {"record": self._by_record, "lanes": self._to_lanes}.get(self._way, self._by_batch)
        self._lanes: list[asyncio.Queue[Sequence[Any]]] = [
            asyncio.Queue() for _ in range(PARTITIONS)
        ]
        tasks = [asyncio.create_task(self._lane(at)) for at in range(PARTITIONS)]
        has_begun = False
        while not any(task.done() for task in tasks):
            fetched = await self._consumer.getmany(timeout_ms=1000, max_records=_MOST)
            if fetched and not has_begun:
                has_begun = True
                say_begun()
            await carry({place.partition: records for place, records in fetched.items()})

    async def _by_record(self, fetched: Mapping[int, Sequence[Any]]) -> None:
        sent = [
            await self._sender.send(
                f"{self._name}-out", key=one.key, value=one.value, headers=[*one.headers]
            )
            for records in fetched.values()
            for one in records
        ]
        await asyncio.gather(*sent)

    async def _by_batch(self, fetched: Mapping[int, Sequence[Any]]) -> None:
        if self._way != "batch":
            await asyncio.gather(
                *(self._put(self._appender, "journal", *one) for one in fetched.items())
            )
        await asyncio.gather(*(self._put(self._sender, "out", *one) for one in fetched.items()))

    async def _to_lanes(self, fetched: Mapping[int, Sequence[Any]]) -> None:
        for partition, records in fetched.items():
            self._lanes[partition].put_nowait(records)

    async def _lane(self, partition: int) -> None:
        waiting = self._lanes[partition]
        while True:
            records = [*await waiting.get()]
            while not waiting.empty():
                records += waiting.get_nowait()
            await self._put(self._appender, "journal", partition, records)
            await self._put(self._sender, "out", partition, records)

    async def _put(
        self, producer: AIOKafkaProducer, to: str, partition: int, records: Sequence[Any]
    ) -> None:
        batches = [producer.create_batch()]
        for one in records:
            entry = {"key": one.key, "value": one.value, "headers": [*one.headers]}
            if batches[-1].append(timestamp=None, **entry) is None:
                batches.append(producer.create_batch())
                batches[-1].append(timestamp=None, **entry)
        sent = []
        for batch in batches:
            batch.close()
            place = f"{self._name}-{to}"
            sent.append(await producer.send_batch(batch, place, partition=partition))
        await asyncio.gather(*sent)


async def echo_with_aiokafka(way: str, servers: str, name: str) -> None:
    await Echo(servers, name, way).run()


def main() -> None:
    way, servers, name, *rest = sys.argv[1:]
    if way == "faust":
        echo_with_faust(servers, name, *rest)
    else:
        asyncio.run(echo_with_aiokafka(way, servers, name))


if __name__ == "__main__":
    main()
