"""Records as aiokafka parses them, for topics on which anybody may write anything.

A header whose name is not UTF-8 is an exception in aiokafka 0.14 (the broker lets it pass), and the worker
would meet it again after every restart. Such a record is read without key, value and headers instead, which
the worker rejects like any other that has no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint


def install() -> None:
    """Makes aiokafka's consumers read so."""
    fetcher.MemoryRecords = _Records


class _Records(_MemoryRecordsPy):  # type: ignore[misc]
    """Batches of a fetch."""

    def next_batch(self) -> Any:
        piece = self._next_slice
        batch = super().next_batch()
        return _Batch(batch, piece) if getattr(batch, "magic", 0) >= 2 else batch


class _Batch:
    """A batch of aiokafka's quick parser, and of the patient one behind the first record it fails at."""

    def __init__(self, batch: Any, piece: memoryview) -> None:
        self._batch = batch
        self._piece = piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """A control record, of a batch that holds nothing else."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                read += 1
                yield record
        except UnicodeDecodeError:
            yield from islice(_Patient(self._piece), read, None)


class _Patient(_DefaultRecordBatchPy):  # type: ignore[misc]
    _pos: int

    def _read_msg(self) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            length, position = decode_varint(self._buffer, self._pos)
            self._pos = position + length
            for _ in ("attributes", "timestamp", "offset"):
                delta, position = decode_varint(self._buffer, position)
            return _DefaultRecordPy(self.base_offset + delta, 0, 0, None, None, [])
