"""The way on for a partition of an input topic that was cut: it ends before the offset it was read to.

Offsets are in ids of records and in the cursors of data sets, so none may come twice. Empty records fill the
log until it ends beyond all that was ever read of it, and reading goes on behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.pipeline.logs import KafkaLog, place_of
from stream_dp.pipeline.ownership import MOST_IN_HAND, RESTORED, cut_logs, newest_cut
from stream_dp.state.store import DeploymentStore

__all__ = ["accept_cut", "end_of", "restored"]

# Cursors of data sets are beyond the watermark, by what a worker had in hand.
_BEYOND: Final = 16 * MOST_IN_HAND
_AT_ONCE: Final = 1_000


async def restored(
    store: DeploymentStore, place: str, ask_end: Callable[[int], Awaitable[int]]
) -> None:
    """Says that a log was put back as it was: reading goes on where it stopped.

    Args:
        store: The store of the workers.
        place: The log, as ``topic:partition``.
        ask_end: Asks where it ends now. It is told how far it was read, see ``end_of``.

    Raises:
        InvalidInput: It was not cut, or not all of it is back.
    """
    marks = await store.watermarks()
    read = _read(marks, place)
    end = await ask_end(read)
    if end < read:
        raise InvalidInput(
            place,
            f"it was read to offset {read:,} and ends at {end:,}, so not all of it was put back",
            "put the rest back too, or leave --restored out",
        )
    await store.mark({}, {RESTORED + place: newest_cut(marks, place)})


async def end_of(broker: Broker, place: str, reaches: int = 0) -> int:
    """Returns the offset behind the last record of a log.

    Args:
        broker: The broker.
        place: The log, as ``topic:partition``.
        reaches: An offset up to which it was read, see ``Log.bounds``.

    Raises:
        ServerUnavailable: No broker answers.
    """
    partition = place_of(place)
    log = KafkaLog(broker, partition.topic, 0, None)
    _, end = await log.bounds(partition.partition, reaches=reaches)
    return end


async def accept_cut(store: DeploymentStore, broker: Broker, place: str) -> int:
    """Fills a log with empty records up to beyond what was read of it; returns where reading goes on.

    Args:
        store: The store of the workers.
        broker: The broker.
        place: The log, as ``topic:partition``.

    Raises:
        InvalidInput: It was not cut.
        ServerUnavailable: No broker answers.
    """
    wanted = _read(await store.watermarks(), place) + _BEYOND
    partition = place_of(place)
    producer = AIOKafkaProducer(**broker.arguments(), acks="all", enable_idempotence=True)
    consumer = AIOKafkaConsumer(**broker.arguments(), enable_auto_commit=False)
    try:
        await producer.start()
        await consumer.start()
        end: int
        while (end := (await consumer.end_offsets([partition]))[partition]) < wanted:
            for _ in range(min(_AT_ONCE, wanted - end)):
                await producer.send(partition.topic, b"", partition=partition.partition)
            await producer.flush()
    except KafkaError as error:
        raise ServerUnavailable(f"the broker took no records ({type(error).__name__})") from error
    finally:
        await producer.stop()
        await consumer.stop()
    await store.mark({}, {place: end})
    return end


def _read(marks: Mapping[str, int], place: str) -> int:
    """The offset up to which a log that was cut was read."""
    found = cut_logs(marks).get(place)
    if found is None:
        raise InvalidInput(
            place,
            "was not cut, as far as a worker has found",
            "pass the topic and the partition that `stream-dp doctor` names",
        )
    return found
