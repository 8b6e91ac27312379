"""What was fetched reaches the worker whole and in order, whatever the size of a bunch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from stream_dp.messages import Topics
from stream_dp.pipeline.app import _Bunch, _Bunches, _Consumer, _records
from stream_dp.pipeline.intake.records import Record


def _fetched(n: int) -> list[Any]:
    return [
        SimpleNamespace(
            offset=7 + number,
            timestamp=1_000,
            timestamp_type=0,
            key=b"key",
            value=b"value %d" % number,
            headers=(("name", b"content"),),
        )
        for number in range(n)
    ]


def test_each_partition_keeps_all_its_records_in_order() -> None:
    counts = {TP("queries", 0): 1_000, TP("queries", 1): 1, TP("batches", 0): 33}
    arrived: dict[TP, list[Record]] = {tp: [] for tp in counts}
    for tp, some in _Bunches().iterate({tp: _fetched(n) for tp, n in counts.items()}):
        bunch = _Bunch(tp, some, generation=3)
        records = _records(Topics(""), bunch)
        assert bunch.offset == records[-1].offset
        arrived[tp] += records
    for tp, n in counts.items():
        assert [record.offset for record in arrived[tp]] == list(range(7, 7 + n))
        assert [record.value for record in arrived[tp]] == [b"value %d" % i for i in range(n)]
        for record in arrived[tp]:
            assert (record.topic, record.partition, record.generation) == (*tp, 3)
            assert record.headers == {"name": b"content"}


def test_partitions_take_turns() -> None:
    fetched = {TP("queries", 0): _fetched(1_000), TP("batches", 0): _fetched(1)}
    first_two = [tp for tp, _ in _Bunches().iterate(fetched)][:2]
    assert set(first_two) == set(fetched)


def test_a_position_that_is_not_known_yet_does_not_end_the_worker() -> None:
    """Records were deleted that were to come next, and the client looks up where to go on."""

    def unknown(now: float, tp: TP) -> None:
        raise AssertionError

    consumer: Any = object.__new__(_Consumer)
    consumer._thread = SimpleNamespace(verify_event_path=unknown)
    consumer.verify_event_path(5.0, TP("batches", 0))
