"""What aiokafka would stop at is read all the same."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords

from stream_dp.pipeline.kafka import parser


class Name(str):
    """A header's name whose bytes are no UTF-8."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        return b"\xff\xfe"


def _batch(*names: str, first: int = 0) -> bytes:
    """A batch of records, each with a header of this name."""
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
    for n, name in enumerate(names):
        builder.append(n, 1_000, b"key", b"value %d" % n, [(name, None)])
    batch = bytearray(builder.build())
    batch[:8] = first.to_bytes(8, "big")  # as the broker does it; the checksum leaves it out
    return bytes(batch)


def _read(*batches: bytes) -> list[Any]:
    records = parser._Records(b"".join(batches))
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.key, r.value, list(r.headers)) for r in batch]
    return found


def test_whole_records_are_read_as_ever() -> None:
    found = _read(_batch("a", "b"), _batch("c", first=2))
    assert [(offset, headers) for offset, _, _, headers in found] == [
        (0, [("a", None)]),
        (1, [("b", None)]),
        (2, [("c", None)]),
    ]
    assert found[1][1:3] == (b"key", b"value 1")


@pytest.mark.parametrize("bad", [(0,), (1,), (3,), (0, 1), (1, 2, 3), (0, 1, 2, 3)])
def test_a_record_that_cannot_be_parsed_comes_without_key_and_value(bad: tuple[int, ...]) -> None:
    names = [Name("x") if n in bad else "ok" for n in range(4)]
    found = _read(_batch(*names, first=70), _batch("next", first=74))
    assert [offset for offset, *_ in found] == [70, 71, 72, 73, 74]
    for n, (_, key, value, headers) in enumerate(found[:4]):
        if n in bad:
            assert (key, value, headers) == (None, None, [])
        else:
            assert (key, value, headers) == (b"key", b"value %d" % n, [("ok", None)])


def test_aiokafka_still_fails_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it does not, ``parser`` can go."""
    records = MemoryRecords(_batch(Name("x")))
    with pytest.raises(UnicodeDecodeError):
        list(records.next_batch())
    monkeypatch.setattr(fetcher, "MemoryRecords", fetcher.MemoryRecords)
    parser.install()
    assert len(list(fetcher.MemoryRecords(_batch(Name("x"))).next_batch())) == 1
