"""Messages of a source: how their values are read, and how they are packed into batches.

Every message is one row, whatever it holds. The form of a batch and its size follow from public facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from aiokafka import TopicPartition
from pydantic_core import from_json, to_json

from stream_dp.core.rows.attributes.attribute_base import COUNT
from stream_dp.core.rows.column_values import MAX_SCALAR
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.key_texts import spoken
from stream_dp.core.rows.person_slots import LONGEST_KEY, canonical
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import TOPICS, SourceRange
from stream_dp.pipeline.intake.source_file import TopicSource

_MAX_ID = 128
MAX_BYTES = TOPICS["batches"].max_value_bytes
_FEW_CELLS = 4096
_ROWS_A_CELL = 4
_LONGEST_NUMBER = 24  # bytes of a float in JSON
LONGEST_TIME = "2026-11-01T06:00:00.000+01:00"


def document_of(value: bytes | None) -> dict[str, object] | None:
    """The JSON object that a message is; None if it is none. Never raises."""
    try:
        document = from_json(value or b"")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def is_framed(value: bytes) -> bool:
    """Returns whether a message begins as serializers of a schema registry write it: 0, and four bytes."""
    return len(value) > 4 and value[0] == 0


def row_of(
    document: Mapping[str, object] | None,
    paths: Mapping[str, Sequence[str]],
    keys: Sequence[str] = (),
) -> list[object]:
    """The values of a message at ``paths``, in their order; None where there is none. Never raises.

    Those called ``keys`` are made canonical, so that no id is too long for a batch. It is the same person as
    in a batch of another form, and takes no secret.
    """
    found: list[object] = []
    for name, path in paths.items():
        inner: object = document
        for step in path:
            inner = inner.get(step) if isinstance(inner, dict) else None
        if name in keys:
            inner = canonical(inner)
        elif isinstance(inner, str):
            inner = inner[:MAX_SCALAR]  # longer than any listed value all the same
        found.append(inner if isinstance(inner, str | int | float | bool) else None)
    return found


class Packing:
    """Packs rows of a source into the value of a batch. Its form and its size follow from public facts.

    Each value is sent as the sample of its cell, or, where values are kept, as a number that counts for the
    same, or, where values are found, as a short text. So no string or number of a row can make a batch too
    large, or one that JSON does not allow.

    Args:
        paths: The path in a message to the value of each attribute that is not a constant.
        keys: The columns that say whose row it is, and which. A row has their canonical texts in the places
            of their paths.
        in_order: Whether rows are answered one by one, so that they must not be counted together.
    """

    def __init__(
        self,
        source: TopicSource,
        universe: Universe,
        paths: Mapping[str, Sequence[str]],
        *,
        keys: Sequence[str] = (),
        in_order: bool = False,
    ) -> None:
        self._source = source
        self._universe = universe
        self._names = tuple(paths)
        self._keys = tuple(keys)
        self._in_order = in_order
        self._samples = [attribute.samples for attribute in universe.attributes]
        self._longest_row = sum(1 + max(len(to_json(s)) for s in each) for each in self._samples)
        self._longest_row += len(universe.measured) * _LONGEST_NUMBER
        self._longest_row += (len(self._keys) + len(universe.found)) * (1 + LONGEST_KEY)

    def batch(
        self, source_range: SourceRange, rows: Sequence[Sequence[object]], about: str | None = None
    ) -> bytes:
        """Packs these rows: as the counts of all cells if the universe is small, or else as columns.

        Args:
            source_range: The records that the rows were read from.
            rows: The values of each row.
            about: The time that the rows are about, as a batch names it.
        """
        head = self._head(source_range, about)
        if not self._listed(len(rows)):
            return to_json({**head, "columns": self._packed(rows)})
        encoded, shape = self._universe.encode_columns(self._values(rows)), self._universe.shape
        cells = np.ravel_multi_index(tuple(c.astype(np.int64) for c in encoded.codes), shape)
        return self._cells(head, np.bincount(cells, minlength=self._universe.n_cells).tolist())

    def _values(self, rows: Sequence[Sequence[object]]) -> dict[str, list[object]]:
        """The values of rows, by the names of columns."""
        columns = zip(*rows, strict=True) if rows else [()] * len(self._names)
        values: dict[str, list[object]] = {
            name: list(column) for name, column in zip(self._names, columns, strict=True)
        }
        return values | {n: [value] * len(rows) for n, value in self._source.constants.items()}

    def _packed(self, rows: Sequence[Sequence[object]]) -> dict[str, Sequence[object]]:
        """The columns that say the same as these rows: samples of cells, numbers that are kept, and keys."""
        values = self._values(rows)
        keys = {key: values.pop(key) for key in self._keys}
        return {**self._columns(self._universe.encode_columns(values)), **keys}

    def nothing(self, source_range: SourceRange, why: str) -> bytes:
        """Packs no rows of a range, and says why: see ``Batch.unreadable``."""
        return to_json({**self._head(source_range), "unreadable": why})

    def fitting(self, n_rows: int) -> int:
        """Returns how many of these rows fit into one batch, whatever they hold."""
        while n_rows > 1 and self._largest(n_rows) > MAX_BYTES:
            n_rows //= 2
        return n_rows

    def _largest(self, n_rows: int) -> int:
        """Returns the bytes of the largest batch of this many rows."""
        if self._listed(n_rows):
            return len(self._cells(self._longest_head, [n_rows] * self._universe.n_cells))
        names = [*self._universe.names, *self._keys]
        none = len(to_json({**self._longest_head, "columns": {name: [] for name in names}}))
        return none + n_rows * self._longest_row

    def _listed(self, n_rows: int) -> bool:
        few = min(_FEW_CELLS, n_rows // _ROWS_A_CELL)
        universe = self._universe
        one_by_one = self._in_order or universe.measured or universe.found or self._keys
        return not one_by_one and universe.n_cells <= few

    def _columns(self, rows: Rows) -> dict[str, Sequence[object]]:
        columns: dict[str, Sequence[object]] = {
            name: [sample[code] for code in codes.tolist()]
            for name, sample, codes in zip(
                self._universe.names, self._samples, rows.codes, strict=True
            )
        }
        for index, attribute in self._universe.measured.items():
            columns[attribute.name] = attribute.numbers(rows.codes[index], rows.measures[index])
        for index, found in self._universe.found.items():
            columns[found.name] = spoken(rows.texts[index])
        return columns

    def _cells(self, head: Mapping[str, object], counts: Sequence[int]) -> bytes:
        named = [*zip(self._universe.names, self._samples, strict=True)]
        listed = [
            {name: of[code] for (name, of), code in zip(named, cell, strict=True)} | {COUNT: count}
            for cell, count in zip(np.ndindex(*self._universe.shape), counts, strict=True)
        ]
        return to_json({**head, "cells": listed})

    def _head(self, source_range: SourceRange, about: str | None = None) -> dict[str, object]:
        return {
            "version": 1,
            "dataset": self._source.dataset,
            "batch_id": batch_id(source_range),
            "source": source_range.model_dump(exclude_none=True),
            **({} if about is None else {"time": about}),
        }

    @property
    def _longest_head(self) -> dict[str, object]:
        log = SourceLog(TopicPartition(self._source.topic, 2**31), "x" * 64)
        longest = log.range(2**63 - 1, 2**63 - 1, begins=True, position=2**127 - 1, version=2**31)
        return {**self._head(longest, LONGEST_TIME), "batch_id": "?" * _MAX_ID}


class SourceLog(NamedTuple):
    """A partition of the topic of this id. That of a later topic of its name is another log."""

    at: TopicPartition
    id: str

    def range(
        self,
        first: int,
        last: int,
        *,
        begins: bool = False,
        position: int | None = None,
        version: int | None = None,
    ) -> SourceRange:
        """The records from ``first`` to ``last``, see ``SourceRange``."""
        return SourceRange(
            topic=self.at.topic,
            id=self.id,
            partition=self.at.partition,
            first=first,
            last=last,
            begins=begins or None,
            position=position,
            schema_version=version,
        )


def batch_id(of: SourceRange) -> str:
    """The id of the batch with a range of records."""
    written = f"{of.topic}@{of.id[:8]}:{of.partition}:{of.first}-{of.last}"
    if len(written) <= _MAX_ID:
        return written
    return blake2b(written.encode(), digest_size=16).hexdigest()
