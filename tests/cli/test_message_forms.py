"""Which forms the messages of a source are of, as its operator sees them."""

from __future__ import annotations

from stream_dp.cli.checks.source_check import Forms
from stream_dp.pipeline.intake.source_packing import document_of

GOOD, FRAMED = b'{"city":"Bonn"}', b'\x00\x00\x00\x00\x07{"city":"Bonn"}'


def said(*values: bytes | None) -> list[str]:
    forms = Forms()
    half = len(values) // 2
    for some in (values[:half], values[half:]):
        forms.take(some, [document_of(value) for value in some])
    return list(forms.complaints())


def test_messages_that_are_no_objects_are_counted_by_their_form() -> None:
    assert said(GOOD, b"{}") == []
    framed, strange, empty = said(FRAMED, FRAMED, b"[1]", b"\xff", b"7", None, GOOD, b"", GOOD)
    assert framed.startswith("2 of 9 messages are framed by a schema registry (a byte 0 and the id")
    assert strange.startswith("3 of 9 messages are not JSON objects, so their values are")
    assert empty.startswith("2 of 9 messages have no value")
    stops = "no message is a JSON object, so a worker stops at this source"
    assert said(FRAMED, None, b"x")[-1].startswith(stops)
    for values in ((FRAMED, GOOD), (None, b""), (GOOD,)):
        assert not any(one.startswith(stops) for one in said(*values))
