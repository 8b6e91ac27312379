"""Topics that exist already, with one row a message: packed into batches, each row once.

A source is read in the order of its partitions' logs. For each partition the store keeps one mark: where the
next batch begins and, once that is decided, where it ends. The end is written down before the batch is sent,
the first one wins, and the batch's id names its range of offsets; once the broker has it the next one begins.
So whoever reads a range again, after a crash, a rebalance or beside another reader, makes the same batch
under the same id, and the data set's owner knows it (``docs/guarantee.md``, Theorem 10). What lies below the
mark was sent and is never read again, wherever the consumer group stands: its offsets are for those who
watch.

Every record is one row, whatever it holds: what is no JSON object is a row without values. Else the number
of rows, which is public, would depend on what is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Annotated, Literal

import numpy as np
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.universe import COUNT, Universe
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import TOPICS, AttributeName, DatasetName, Definition, Topics
from stream_dp.messages.base import validated
from stream_dp.pipeline.building import build, in_order
from stream_dp.pipeline.connecting import described_topics, store_of
from stream_dp.pipeline.records import Outgoing
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.sending import Sender
from stream_dp.settings import WorkerSettings
from stream_dp.state.store import Store

__all__ = ["Packing", "Source", "SourceReader", "row_of", "run_sources"]

_log = logging.getLogger(__name__)

_MAX_ID = 128
_POLL_MS = 100
_MAX_BYTES = TOPICS["batches"].max_value_bytes
_FEW_CELLS = 4096
_ROWS_A_CELL = 4


class Source(BaseModel):
    """A topic of rows, and the data set that they belong to.

    Attributes:
        fields: Attribute -> where a message has its value, a path such as ``customer.city``. Without any,
            each attribute is the field of its name.
        constants: Attribute -> the value of every row.
        batch_rows: Rows that make a batch at once.
        wait_seconds: After this long fewer make one too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    dataset: DatasetName
    topic: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
    fields: dict[AttributeName, str] = {}
    constants: dict[AttributeName, str | int | float | bool | None] = {}
    batch_rows: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0

    @classmethod
    def read(cls, document: object) -> Source:
        """Validates a parsed source file.

        Raises:
            InvalidInput: It names the field and the fix.
        """
        return validated(cls, document, InvalidInput, quoting=True)

    def paths(self, universe: Universe) -> dict[str, tuple[str, ...]]:
        """Where a message has the value of each attribute that is no constant.

        Raises:
            InvalidInput: A name is no attribute of the data set, or is both a field and a constant.
        """
        names = universe.names
        for place, given in (("fields", self.fields), ("constants", self.constants)):
            for name in given:
                if name not in names:
                    raise InvalidInput(
                        f"{place}.{name}",
                        f"{self.dataset} has no such attribute",
                        f"use {', '.join(names)}",
                    )
        if both := sorted(self.fields.keys() & self.constants.keys()):
            raise InvalidInput(
                f"constants.{both[0]}", "it is a field too", "leave one of the two out"
            )
        return {
            name: tuple(self.fields.get(name, name).split("."))
            for name in names
            if name not in self.constants
        }


def row_of(value: bytes | None, paths: Mapping[str, Sequence[str]]) -> list[object]:
    """The values of a message at ``paths``, in their order; None where there is none. Never raises."""
    try:
        document = from_json(value or b"")
    except ValueError:
        document = None
    found: list[object] = []
    for path in paths.values():
        inner = document
        for step in path:
            inner = inner.get(step) if isinstance(inner, dict) else None
        found.append(inner if isinstance(inner, str | int | float | bool) else None)
    return found


class Packing:
    """How rows of a source become the value of a batch: its form and its size follow from public facts.

    A value is sent as the sample of its cell, so that no text or number of a row can make a batch too large,
    or one that JSON does not allow.

    Args:
        paths: Where a message has the value of each attribute that is no constant.
        in_order: Whether rows are answered one by one, so that they must not be counted together.
    """

    def __init__(
        self,
        source: Source,
        universe: Universe,
        paths: Mapping[str, Sequence[str]],
        *,
        in_order: bool = False,
    ) -> None:
        self._source = source
        self._universe = universe
        self._names = tuple(paths)
        self._in_order = in_order
        self._samples = [attribute.samples for attribute in universe.attributes]
        self._longest_row = sum(1 + max(len(to_json(s)) for s in each) for each in self._samples)

    def batch(self, batch_id: str, rows: Sequence[Sequence[object]]) -> bytes:
        """A batch of these rows: all cells of the universe with their counts, where these are few; else
        columns.
        """
        values: dict[str, list[object]] = {
            name: list(column)
            for name, column in zip(self._names, zip(*rows, strict=True), strict=True)
        }
        values |= {name: [value] * len(rows) for name, value in self._source.constants.items()}
        codes = self._universe.encode_columns(values).codes
        if not self._listed(len(rows)):
            return self._columns(batch_id, [code.tolist() for code in codes])
        shape = self._universe.shape
        cells = np.ravel_multi_index(tuple(c.astype(np.int64) for c in codes), shape)
        return self._cells(batch_id, np.bincount(cells, minlength=self._universe.n_cells).tolist())

    def fitting(self, n_rows: int) -> int:
        """How many of so many rows make a batch that is served, whatever they hold."""
        while n_rows > 1 and self._largest(n_rows) > _MAX_BYTES:
            n_rows //= 2
        return n_rows

    def _largest(self, n_rows: int) -> int:
        """Bytes of the largest batch of so many rows."""
        batch_id = "?" * _MAX_ID
        if self._listed(n_rows):
            return len(self._cells(batch_id, [n_rows] * self._universe.n_cells))
        none = len(self._columns(batch_id, [[] for _ in self._samples]))
        return none + n_rows * self._longest_row

    def _listed(self, n_rows: int) -> bool:
        few = min(_FEW_CELLS, n_rows // _ROWS_A_CELL)
        return not self._in_order and self._universe.n_cells <= few

    def _columns(self, batch_id: str, codes: Sequence[Sequence[int]]) -> bytes:
        columns = {
            name: [sample[code] for code in column]
            for name, sample, column in zip(self._universe.names, self._samples, codes, strict=True)
        }
        return to_json({**self._head(batch_id), "columns": columns})

    def _cells(self, batch_id: str, counts: Sequence[int]) -> bytes:
        listed = [
            {
                name: sample[code]
                for name, sample, code in zip(
                    self._universe.names, self._samples, place, strict=True
                )
            }
            | {COUNT: count}
            for place, count in zip(np.ndindex(*self._universe.shape), counts, strict=True)
        ]
        return to_json({**self._head(batch_id), "cells": listed})

    def _head(self, batch_id: str) -> dict[str, object]:
        return {"version": 1, "dataset": self._source.dataset, "batch_id": batch_id}


@dataclass
class _Partition:
    """What is read of one partition and not in a batch yet.

    Attributes:
        name: Of its mark in the store.
        first: Offset that the next batch begins at.
        end: Last offset of that batch, once that is written down.
        rows: Offset and values of each record from ``first`` on.
        since: When the first of them came.
    """

    name: str
    first: int
    end: int | None = None
    rows: deque[tuple[int, list[object]]] = field(default_factory=deque, repr=False)
    since: float = 0.0

    @property
    def mark(self) -> bytes:
        """What the store keeps of this."""
        return b"%d" % self.first if self.end is None else b"%d-%d" % (self.first, self.end)

    def stand_at(self, mark: bytes) -> None:
        """Takes over what the store keeps; rows that it has passed are dropped."""
        first, _, end = mark.partition(b"-")
        self.first, self.end = int(first), int(end) if end else None
        while self.rows and self.rows[0][0] < self.first:
            self.rows.popleft()


class SourceReader:
    """Reads one source with whoever else reads it, each partition by one of them.

    Args:
        definition_of: The definition of a data set, None while there is none; asked in a thread.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        sender: Sender,
        definition_of: Callable[[str], Definition | None],
        *,
        settings: WorkerSettings,
    ) -> None:
        self._source = source
        self._store = store
        self._sender = sender
        self._definition_of = definition_of
        self._broker = settings.broker
        self._group = f"{settings.group_id}-source-{source.dataset}-{source.topic}"
        self._session_ms = round(1000 * settings.session_timeout_s)
        self._reading = _Reading()

    async def run(self) -> None:
        """Reads until it is cancelled.

        Raises:
            InvalidInput: The source does not fit the data set's definition.
            ServerUnavailable: No broker, or no such topic.
        """
        source = self._source
        universe, mechanism = await self._built()
        paths = source.paths(universe)
        packing = Packing(source, universe, paths, in_order=bool(in_order(mechanism)))
        log_id = await self._topic_id()
        consumer = AIOKafkaConsumer(
            **self._broker.arguments(),
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=self._session_ms // 5,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        consumer.subscribe([source.topic], listener=self._reading)
        try:
            await consumer.start()
            while True:
                fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=source.batch_rows)
                turn = self._reading.turn
                for place, records in fetched.items():
                    state = self._reading.partitions.get(place)
                    if turn != self._reading.turn:
                        break
                    if state is None:
                        await self._stand(consumer, place, turn, log_id)
                        continue  # these records come again, from there on
                    if not state.rows:
                        state.since = monotonic()
                    state.rows.extend(
                        (r.offset, row_of(r.value, paths))
                        for r in records
                        if r.offset >= state.first
                    )
                for place, state in list(self._reading.partitions.items()):
                    await self._batches(consumer, place, state, packing, log_id)
        except KafkaError as error:
            raise ServerUnavailable(
                f"the broker does not serve {source.topic} ({type(error).__name__})"
            ) from error
        finally:
            await consumer.stop()

    async def _stand(
        self, consumer: AIOKafkaConsumer, place: TopicPartition, turn: int, log_id: str
    ) -> None:
        """Goes to where a partition is read on, unless the turn is over before that is known."""
        # The group's own offset counts once, while nothing is sent yet: so a topic's history can be left out.
        committed = await consumer.committed(place)
        name = f"source {self._source.dataset} {place.topic} {log_id} {place.partition}"
        state = _Partition(name, committed or 0)
        state.stand_at(await persistently(lambda: self._store.swap(name, b"", state.mark)))
        if turn == self._reading.turn:
            self._reading.partitions[place] = state
            consumer.seek(place, state.first)

    async def _batches(
        self,
        consumer: AIOKafkaConsumer,
        place: TopicPartition,
        state: _Partition,
        packing: Packing,
        log_id: str,
    ) -> None:
        """Sends what is due of one partition."""
        source = self._source
        while state.rows and self._reading.partitions.get(place) is state:
            waited = monotonic() - state.since >= source.wait_seconds
            if state.end is None:
                if len(state.rows) < source.batch_rows and not waited:
                    return
                last = state.rows[packing.fitting(min(len(state.rows), source.batch_rows)) - 1][0]
                await self._write_down(place, state, b"%d-%d" % (state.first, last))
                continue
            if state.rows[-1][0] < state.end:
                return  # another reader's batch went further: read on
            rows = []
            while state.rows and state.rows[0][0] <= state.end:
                rows.append(state.rows.popleft()[1])
            if rows:  # else the topic has dropped a range that was sent before
                value = packing.batch(_batch_id(place, log_id, state.first, state.end), rows)
                await (await self._sender.send(Outgoing("batches", source.dataset, value)))
            await self._write_down(place, state, b"%d" % (state.end + 1))
            state.since = monotonic()
            if self._reading.partitions.get(place) is state:
                # Lost to a new deal: whoever reads there next knows from the mark.
                with contextlib.suppress(CommitFailedError, IllegalStateError):
                    await consumer.commit({place: state.first})

    async def _write_down(self, place: TopicPartition, state: _Partition, mark: bytes) -> None:
        """Moves a mark, or learns where another reader has moved it meanwhile."""
        found = await persistently(lambda: self._store.swap(state.name, state.mark, mark))
        if int(found.partition(b"-")[0]) >= state.first:
            state.stand_at(found)
        else:  # an older copy of the store: what lies between is read, and sent, again
            self._reading.partitions.pop(place, None)

    async def _built(self) -> tuple[Universe, Mechanism]:
        """The data set's, as soon as it is defined: rows sent before would be rejected."""
        waits = False
        while True:
            definition = await asyncio.to_thread(self._definition_of, self._source.dataset)
            if definition is not None:
                return build(definition)
            if not waits:
                _log.warning("%s is not defined yet; its source waits", self._source.dataset)
            waits = True
            await asyncio.sleep(2.0)

    async def _topic_id(self) -> str:
        """Tells a topic from a later one of its name."""
        (topic,) = await described_topics(self._broker, [self._source.topic])
        if topic["error_code"] != 0:
            raise ServerUnavailable(
                f"there is no topic {self._source.topic}; mend the source, or make it"
            )
        return str(topic["topic_id"])[:8]


async def run_sources(
    settings: WorkerSettings,
    sources: Sequence[Source],
    definition_of: Callable[[str], Definition | None],
) -> None:
    """Reads sources until it is cancelled or one of them fails; see ``SourceReader``."""
    store = store_of(settings)
    sender = Sender(settings.broker, Topics(settings.topic_prefix))
    try:
        await sender.start()
        readers = [
            SourceReader(source, store, sender, definition_of, settings=settings)
            for source in sources
        ]
        async with asyncio.TaskGroup() as tasks:
            for reader in readers:
                tasks.create_task(reader.run())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await sender.stop()
        await store.close()


def _batch_id(place: TopicPartition, log_id: str, first: int, last: int) -> str:
    spelt = f"{place.topic}@{log_id}:{place.partition}:{first}-{last}"
    if len(spelt) <= _MAX_ID:
        return spelt
    return blake2b(spelt.encode(), digest_size=16).hexdigest()


class _Reading(ConsumerRebalanceListener):  # type: ignore[misc]
    """What is read of the partitions that are ours, until they are dealt anew.

    Attributes:
        turn: How often they were dealt anew. Each deal goes back to the committed offsets, so what was
            fetched in an earlier turn would be read twice.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, _Partition] = {}
        self.turn = 0

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Forgets everything: those that stay ours are read again too."""
        self.partitions.clear()
        self.turn += 1

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Each is read from its committed offset on."""
