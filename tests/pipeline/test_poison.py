"""Every malformed record gets exactly one rejection or refusal, never its body, and the worker lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

CANARY = "canary-7f3a"
DEEP = 100_000

QUERY = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "q"}
BATCH = {"version": 1, "dataset": "flights", "batch_id": "b"}


def _query(**item: Any) -> bytes:
    return json.dumps({**QUERY, **item}).encode()


def _batch(**form: Any) -> bytes:
    return json.dumps({**BATCH, **form}).encode()


def _raw(base: dict[str, Any], name: str, value: str) -> bytes:
    """A message with one more field, as it stands in the text."""
    return f'{json.dumps(base)[:-1]}, "{name}": {value}}}'.encode()


# What a producer may send to each topic, and the reason code that it is rejected with.
REJECTED: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("queries", b"", "bad_json"),
    "half a message": ("queries", b'{"version": 1, "dataset', "bad_json"),
    "a list": ("queries", b"[1, 2]", "invalid_message"),
    "bad UTF-8": ("queries", b'{"version": 1, "dataset": "\xff\xfe"}', "bad_json"),
    "a key twice": ("queries", b'{"version": 1, "version": 1}', "invalid_message"),
    "a row's key twice": (
        "batches",
        _raw(BATCH, "rows", f'[{{"carrier": "{CANARY}", "carrier": 1}}]'),
        "invalid_message",
    ),
    "beyond all floats, asked": (
        "queries",
        _raw(QUERY, "where", '{"attribute": "delay", "ge": 1e400}'),
        "invalid_message",
    ),
    "brackets": ("batches", b"[" * DEEP, "invalid_message"),
    "braces in a query": (
        "queries",
        _raw(QUERY, "where", '{"not":' * DEEP + "{}" + "}" * DEEP)[:200_000],
        "invalid_message",
    ),
    "a batch that is too large": (
        "batches",
        _batch(rows=[{"carrier": CANARY}] * 200_000),
        "too_large",
    ),
    "a query that is too large": (
        "queries",
        _query(where={"attribute": "carrier", "in": [CANARY] * 50_000}),
        "too_large",
    ),
    "another version": ("queries", _query(version=2), "invalid_message"),
    "an unknown field": ("queries", _query(wehre={}), "invalid_message"),
    "two forms": ("batches", _batch(rows=[], cells=[]), "invalid_message"),
    "no analyst": (
        "queries",
        json.dumps({"version": 1, "dataset": "flights", "query_id": "q"}).encode(),
        "invalid_message",
    ),
    "an analyst with a space": ("queries", _query(analyst="a b"), "invalid_message"),
    "no queries": (
        "queries",
        json.dumps({"version": 1, "dataset": "flights", "analyst": "ana", "queries": []}).encode(),
        "invalid_message",
    ),
    "half a character": (
        "queries",
        b'{"version": 1, "dataset": "flights", "analyst": "\\ud800", "query_id": "q"}',
        "invalid_message",
    ),
}


@pytest.fixture
async def ready(world: Any) -> Any:
    """A world with a data set in its first phase, and a running worker."""
    process = await world.owner()
    world.define("flights")
    await process.run()
    world.cells("flights", "first")
    await process.run()
    return world


async def _is_alive(world: Any) -> None:
    """The worker answers, and every promise holds."""
    (process,) = world.processes
    world.ask("flights", "alive", {"attribute": "carrier", "eq": "AA"})
    await process.run()
    assert world.answer("alive")["status"] == "answered"
    assert world.complaints() == []
    await process.kill()


def _public(world: Any) -> bytes:
    return (
        b"".join(event.outgoing.value for event in world.trail if hasattr(event, "outgoing"))
        + world.processes[0].worker.context.metrics.exposition()
    )


@pytest.mark.parametrize("name", REJECTED)
async def test_a_record_that_cannot_be_read_is_rejected_once(ready: Any, name: str) -> None:
    role, value, code = REJECTED[name]
    record = ready.produce(role, value, key="flights")
    await ready.processes[0].run()
    rejection = ready.rejection(record)
    assert rejection["reason"]["code"] == code
    assert len(rejection["reason"]["message"]) < 500
    assert len(ready.released("rejected")) == 1
    assert CANARY.encode() not in _public(ready)
    await _is_alive(ready)


ITEMS: dict[str, tuple[Any, str]] = {
    "a list": ([1], "invalid_message"),
    "no id": ({"where": None}, "invalid_message"),
    "an id with half a character": ({"query_id": "\ud800"}, "invalid_message"),
    "an id of 100,000 characters": ({"query_id": "x" * 100_000}, "invalid_message"),
    "an unknown field": ({"query_id": "q", "epsilon": 3}, "invalid_message"),
    "a table without attributes": ({"query_id": "q", "kind": "table"}, "invalid_message"),
    "an empty window": ({"query_id": "q", "window": {"last_phases": 0}}, "invalid_message"),
    "a where that is a list": ({"query_id": "q", "where": []}, "invalid_message"),
}


@pytest.mark.parametrize("name", ITEMS)
async def test_a_bad_query_refuses_only_itself(ready: Any, name: str) -> None:
    item, code = ITEMS[name]
    record = ready.ask_many("flights", [{"query_id": "before"}, item, {"query_id": "behind"}])
    await ready.processes[0].run()
    assert ready.rejection(record)["reason"]["code"] == code
    assert len(json.dumps(ready.rejection(record))) < 2_000
    assert ready.answer("before")["status"] == ready.answer("behind")["status"] == "answered"
    await _is_alive(ready)


WHERES: dict[str, tuple[Any, str]] = {
    "an unknown attribute": ({"attribute": "carier", "eq": "AA"}, "unknown_attribute"),
    "a value with half a character": ({"attribute": "carrier", "eq": "\udfff"}, "invalid_query"),
    "a cut bin": ({"attribute": "delay", "ge": 7}, "cuts_bin"),
    "a bin cut by 4,000 digits": ({"attribute": "delay", "lt": 10**4_000}, "cuts_bin"),
    "an unknown comparison": ({"attribute": "carrier", "like": "A%"}, "invalid_query"),
    "a condition on a number": ({"attribute": 5, "eq": 5}, "unknown_attribute"),
    "null as a value": ({"attribute": "carrier", "eq": None}, "invalid_query"),
    "in nothing": ({"attribute": "carrier", "in": []}, ""),
    "any of nothing": ({"any": []}, ""),
    "17 levels": (json.loads('{"not":' * 17 + '{"all":[]}' + "}" * 17), "invalid_query"),
    "200 conditions": (
        {"any": [{"attribute": "carrier", "eq": "AA"}] * 200},
        "invalid_query",
    ),
}


@pytest.mark.parametrize("name", WHERES)
async def test_a_query_that_cannot_be_asked_is_refused_once(ready: Any, name: str) -> None:
    where, code = WHERES[name]
    ready.ask("flights", "odd", where)
    await ready.processes[0].run()
    reply = ready.answer("odd")
    if code:
        assert reply["status"] == "refused"
        assert reply["reason"]["code"] in {code, "invalid_query"}
        assert len(reply["reason"]["message"]) < 1_000
    assert len(ready.released("answers")) == 1
    await _is_alive(ready)


async def test_a_record_on_another_partition_is_rejected_with_the_fix(ready: Any) -> None:
    right = ready.ask("flights", "right").partition
    record = ready.produce("queries", _query(), key="flights", partition=1 - right)
    await ready.processes[0].run()
    assert ready.rejection(record)["reason"]["code"] == "wrong_partition"
    assert "murmur2_random" in ready.rejection(record)["reason"]["message"]
    await _is_alive(ready)


ARROW = {"content-type": b"application/vnd.apache.arrow.stream"}
MISPLACED: list[tuple[str, bytes | None, bytes | None, dict[str, Any], str]] = [
    *(
        (role, value, key, {}, "invalid_message")
        for key in (None, b"", b"trains", b"\xff\xfe", b"flights\n")
        for role, value in (("queries", _query()), ("batches", _batch(rows=[])))
    ),
    *(
        ("datasets", None, key, {}, "invalid_message")
        for key in (None, b"", b"\xff", b"Flights", b"x" * 100)
    ),
    ("datasets", b"", b"flights", {}, "bad_json"),  # only a null value is a tombstone
    *(
        (
            "batches",
            value,
            b"flights",
            headers,
            "too_large" if len(value or b"") > 10**6 else "invalid_message",
        )
        for value in (None, b"", b"ARROW1\0\0", b"\xff" * 100, b"\0" * 5_000_000)
        for headers in (ARROW, ARROW | {"batch_id": None}, ARROW | {"batch_id": b"\xff"})
    ),
]
"""Keys that do not fit, tombstones under no name, and what is not Arrow: each with its code."""


@pytest.mark.parametrize("at", range(len(MISPLACED)))
async def test_a_record_in_the_wrong_place_or_form_is_rejected(ready: Any, at: int) -> None:
    role, value, key, headers, code = MISPLACED[at]
    if headers:
        pytest.importorskip("pyarrow")
    record = ready.produce(role, value, key=key, headers=headers)
    await ready.processes[0].run()
    assert ready.rejection(record)["reason"]["code"] == code
    await _is_alive(ready)


def _stream(table: Any) -> bytes:
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


async def test_a_few_bytes_of_arrow_cannot_stand_for_any_number_of_values(ready: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    value = _stream(pa.table({"delay": pa.nulls(2**23 + 1)}))
    assert len(value) < 1_000
    record = ready.produce("batches", value, key="flights", headers=ARROW | {"batch_id": b"long"})
    await ready.processes[0].run()
    assert ready.rejection(record)["reason"]["code"] == "too_large"
    await _is_alive(ready)


async def test_arrow_without_an_id_is_rejected(ready: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    value = _stream(pa.table({name: [CANARY] for name in ("carrier", "delay", "cancelled")}))
    for headers in (ARROW, ARROW | {"batch_id": None}, ARROW | {"batch_id": b"a b"}):
        record = ready.produce("batches", value, key="flights", headers=headers)
        await ready.processes[0].run()
        assert ready.rejection(record)["reason"]["code"] == "invalid_message"
    ready.produce("batches", value, key="flights", headers=ARROW | {"batch_id": b"whole"})
    await ready.processes[0].run()
    assert ready.events("batch_accepted")[-1]["batch_id"] == "whole"
    assert CANARY.encode() not in _public(ready)


BATCHES: dict[str, dict[str, Any]] = {
    "a row that is a list": {"rows": [[CANARY]]},
    "an unknown name": {"rows": [{CANARY: 1}]},
    "a column that is text": {"columns": {"carrier": CANARY, "delay": [1], "cancelled": [1]}},
    "a column too few": {"columns": {"carrier": [CANARY]}},
    "columns of two lengths": {"columns": {"carrier": [CANARY], "delay": [], "cancelled": []}},
    "a cell without a count": {"cells": [{"carrier": CANARY}]},
    "a negative count": {"cells": [{"carrier": CANARY, "count": -1}]},
    "a count that is true": {"cells": [{"count": True}]},
    "too many rows": {"cells": [{"count": 2**62}, {"count": 1}]},
    "a count of 4,000 digits": {"cells": [{"count": 10**4_000}]},
}


@pytest.mark.parametrize("name", BATCHES)
async def test_a_batch_with_a_fault_of_structure_is_refused_once(ready: Any, name: str) -> None:
    ready.batch("flights", "odd", **BATCHES[name])
    await ready.processes[0].run()
    (event,) = ready.events("batch_refused")
    assert event["batch_id"] == "odd"
    assert event["reason"]["code"] == "invalid_batch"
    assert CANARY.encode() not in _public(ready)
    await _is_alive(ready)


VALUES: list[Any] = [
    *(None, True, 0, -0.0, 1e308, -1e308, 10**4_000, "", "AA", CANARY, "\ud800", "NaN", "1e999"),
    *([], [1], {}, {"a": {"b": []}}, json.loads("[" * 500 + "]" * 500), "9" * 1_000),
]


async def test_no_content_of_a_row_refuses_a_batch(ready: Any) -> None:
    rows = [{"carrier": v, "delay": v, "cancelled": v} for v in VALUES]
    ready.batch("flights", "rows", rows=rows)
    ready.batch("flights", "columns", columns=dict.fromkeys(rows[0], VALUES))
    ready.batch("flights", "cells", cells=[row | {"count": 2} for row in rows])
    await ready.processes[0].run()
    taken = {e["batch_id"]: e["rows"] for e in ready.events("batch_accepted")}
    n = len(VALUES)
    assert {k: taken[k] for k in ("rows", "columns", "cells")} == {
        "rows": n,
        "columns": n,
        "cells": 2 * n,
    }
    await _is_alive(ready)


async def test_a_bare_row_sent_to_the_wrong_topic_is_rejected_without_a_word_of_it(
    world: Any,
) -> None:
    row = {"name": "Alice Smith", "HIV+": True, "dataset": "Bob Jones", "version": 1}
    sent = [
        world.produce(role, {**row, **more}, key="flights")
        for role, more in (
            ("datasets", {}),
            ("datasets", {"attributes": [{"name": "Alice", "type": "Alice"}], "kinds": {"Al": 1}}),
            ("queries", {}),
            ("queries", {"dataset": "flights", "analyst": "Alice Smith"}),
            ("batches", {"dataset": "flights", "batch_id": "b", "rows": []}),
        )
    ]
    await world.run()
    said = b"".join(e.outgoing.value for e in world.trail if hasattr(e, "outgoing")).decode()
    assert all(world.rejection(record) for record in sent)
    assert not [word for word in ("Al", "Smith", "HIV", "Bob", "Jones") if word in said]
    assert "it has an unknown field; remove it" in said
