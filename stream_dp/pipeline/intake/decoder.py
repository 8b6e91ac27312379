"""Bytes to requests, with limits. What cannot be decoded is rejected in words that quote no row."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kafka.partitioner.default import murmur2
from pydantic import TypeAdapter, ValidationError

from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.messages import (
    DATASET_PATTERN,
    TOPICS,
    Batch,
    ChangeAnalysts,
    ChangeSchema,
    ClockRecord,
    ClosePhase,
    Definition,
    Id,
    QueryEnvelope,
    QueryFields,
    SingleQuery,
    read_json,
)
from stream_dp.pipeline.intake.arrow import read_columns
from stream_dp.pipeline.intake.plain_counts import read_counts
from stream_dp.pipeline.intake.records import Record

_ID: TypeAdapter[str] = TypeAdapter(Id)
_QUERIES = TypeAdapter(list[QueryFields])

ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Define:
    """A request to define a data set."""

    dataset: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Retire:
    """A request to retire a data set."""

    dataset: str


@dataclass(frozen=True, slots=True)
class Close:
    """A request to end the period that is open.

    Attributes:
        phase: The number of the phase that is to open; None for the next one.
    """

    dataset: str
    phase: int | None = None


@dataclass(frozen=True, slots=True)
class ReadClock:
    """A request to read the broker's time of the record.

    Attributes:
        sweep: Whether changes of rows are to be made at once.
    """

    dataset: str
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A request to change what is allowed to whom, or the attributes."""

    dataset: str
    change: ChangeAnalysts | ChangeSchema


@dataclass(frozen=True, slots=True)
class Ingest:
    """A request to take in a batch of rows."""

    dataset: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class BadQuery:
    """An item of a query message that is not a query. It refuses only itself."""

    query_id: str | None
    error: InvalidMessage


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to answer queries about a data set.

    Attributes:
        at_most: The largest share of any line that all queries of the record may take together.
    """

    dataset: str
    analyst: str
    queries: Sequence[QueryFields | BadQuery]
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class QuoteTogether:
    """A request to say what several queries would cost together."""

    dataset: str
    analyst: str
    query_id: str
    queries: Sequence[QueryFields | BadQuery]


@dataclass(frozen=True, slots=True)
class Repeat:
    """What is left of a record that made standing queries due: they are to be answered."""

    dataset: str


Request = Define | Retire | Close | ReadClock | Change | Ingest | Ask | QuoteTogether | Repeat


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition that Kafka's default partitioner (Java, kafka-python, aiokafka) gives ``key``."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def partition_in(topic_partition: str) -> int:
    """Returns the partition in ``topic:partition``, whatever the first part of it is."""
    return int(topic_partition.rpartition(":")[2])


def ingested(record: Record, partitions: int) -> Ingest | None:
    """The request with the batch that a record brings; None if it brings none that is valid."""
    try:
        request = decode(record, partitions)
    except InvalidInput:
        return None
    return request if isinstance(request, Ingest) else None


def decode(record: Record, partitions: int) -> Request:
    """Decodes the request that a record makes.

    Raises:
        InvalidInput: The record is not a valid request. ``reason`` is the code that is published.
    """
    if record.key is None:
        raise InvalidMessage("key", "the record has none", "set the key to the data set's name")
    limit = TOPICS[record.role].max_value_bytes
    if record.role == "datasets" and record.value is None:
        request: Request = Retire(_name(record.key))
    elif record.role == "batches" and record.headers.get("content-type") == ARROW.encode():
        request = _arrow(record, limit)
    elif record.role == "queries" and (counts := _counts(record.value, limit)) is not None:
        request = counts
    else:
        document = read_json(record.value or b"", max_bytes=limit, private=record.role == "batches")
        request = _READERS[record.role](document)
    if record.key != request.dataset.encode():
        raise InvalidMessage(
            "key", "it is not the data set's name", "set the record's key to the data set's name"
        )
    if partition_of(record.key, partitions) != record.partition:
        raise InvalidMessage(
            "partition",
            "this key belongs on another partition",
            "set partitioner=murmur2_random in clients built on librdkafka",
            reason="wrong_partition",
        )
    return request


def _name(key: bytes) -> str:
    name = key.decode(errors="replace")
    if re.fullmatch(DATASET_PATTERN, name) is None:
        raise InvalidMessage(
            "key", "it is not the name of a data set", f"names match {DATASET_PATTERN}"
        )
    return name


def _define(document: Mapping[str, Any]) -> Define | Close | Change:
    if document.get("change") == "schema":
        schema = ChangeSchema.read(document)
        return Change(schema.dataset, schema)
    if "change" in document:
        rules = ChangeAnalysts.read(document)
        return Change(rules.dataset, rules)
    if "close" in document:
        close = ClosePhase.read(document)
        return Close(close.dataset, close.phase)
    definition = Definition.read(document)
    return Define(definition.dataset, definition)


def _ingest(document: Mapping[str, Any]) -> Ingest | ReadClock:
    if "clock" in document:
        clock = ClockRecord.read(document)
        return ReadClock(clock.dataset, clock.sweep is True)
    batch = Batch.read(document)
    return Ingest(batch.dataset, batch)


def _ask(document: Mapping[str, Any]) -> Ask | QuoteTogether:
    if "queries" not in document:
        with contextlib.suppress(ValidationError):
            single = SingleQuery.model_validate(document)
            return Ask(single.dataset, single.analyst, (single,))
    envelope = QueryEnvelope.read(document)
    queries = _queries(envelope.queries)
    if envelope.quote is not None:
        assert envelope.query_id is not None, "the envelope was checked"
        return QuoteTogether(envelope.dataset, envelope.analyst, envelope.query_id, queries)
    return Ask(envelope.dataset, envelope.analyst, queries, envelope.at_most)


def _counts(value: bytes | None, limit: int) -> Ask | None:
    """The request of a record with counts alone; None where it is to be read with more care."""
    if value is None or len(value) > limit:
        return None
    found = read_counts(value)
    return None if found is None else Ask(*found)


def _queries(items: list[Any]) -> Sequence[QueryFields | BadQuery]:
    """All at once, which is quicker; one by one where one has a fault, which refuses only itself."""
    try:
        return _QUERIES.validate_python(items)
    except ValidationError:
        return [_query(item) for item in items]


def _query(item: object) -> QueryFields | BadQuery:
    try:
        return QueryFields.read(item)
    except InvalidMessage as error:
        return BadQuery(_id_of(item), error)


def _id_of(item: object) -> str | None:
    """Returns the id of an invalid query if the id is valid, because its sender waits under it."""
    try:
        return _ID.validate_python(item["query_id"]) if isinstance(item, dict) else None
    except (KeyError, ValidationError):
        return None


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Request]] = {
    "datasets": _define,
    "batches": _ingest,
    "queries": _ask,
}


def _arrow(record: Record, limit: int) -> Ingest:
    value = record.value or b""
    if len(value) > limit:
        raise InvalidMessage(
            "value", f"more than {limit:,} bytes", "split the batch", reason="too_large"
        )
    try:
        columns = read_columns(value)
    except ImportError:
        raise InvalidMessage(
            "content-type",
            "this worker reads no Arrow",
            "install stream-dp[arrow] on the worker, or send JSON",
        ) from None
    named: dict[str, str | int] = {
        name: said.decode(errors="replace")
        for name in ("batch_id", "producer", "time")
        if (said := record.headers.get(name)) is not None
    }
    sequence = record.headers.get("sequence")
    if sequence is not None:
        # What is not a decimal number is left as text, for the envelope to refuse.
        is_number = sequence.isdigit() and len(sequence) < 20
        named["sequence"] = int(sequence) if is_number else sequence.decode(errors="replace")
    batch = Batch.read(
        {
            **named,
            "version": 1,
            "dataset": (record.key or b"").decode(errors="replace"),
            "columns": columns,
        }
    )
    return Ingest(batch.dataset, batch)
