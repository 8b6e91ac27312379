"""Nothing of a record's content leaves, wherever it stood and whatever was wrong with the record.

Each record of a run has a word of its own at one place: a value, a name, a key, a header. The places are
those of the messages' own models. Afterwards no word is found in anything that the worker has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from pydantic import BaseModel

from stream_dp.messages import (
    FIELDS,
    Batch,
    ChangeAnalysts,
    ChangeSchema,
    ClosePhase,
    Definition,
    QueryEnvelope,
    SingleQuery,
)
from stream_dp.pipeline.watch.audit_log import LOGGER
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Views, health_document

# They stand in for those of each record, which are as long.
WORD = "zyzzyva00000"
NUMBER = 731_000_000_000
NAME = "flights-00000"

PUBLIC = frozenset({"dataset", "batch_id", "analyst", "query_id"})
"""What senders choose, and replies are found by. It is repeated where it is spelt as it must be."""

ARROW = {"content-type": b"application/vnd.apache.arrow.stream"}

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Placed:
    """A record with ``WORD`` or ``NUMBER`` at one place.

    Attributes:
        where: The place, for people.
        public: Whether its sender has chosen to publish them.
    """

    where: str
    role: str
    value: bytes | None = field(repr=False)
    key: bytes = b"flights"
    headers: Mapping[str, bytes] = field(default_factory=dict)
    public: bool = False


# ---------------------------------------------------------------- documents without a fault

CARRIER = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}
WHERES: list[dict[str, Any]] = [
    {"all": [CARRIER, {"any": [LATE, {"not": {"attribute": "cancelled", "eq": True}}]}]},
    {"attribute": "carrier", "in": ["AA", "UA"]},
    {"attribute": "carrier", "is_other": True},
    {"attribute": "carrier", "is_missing": True},
    {"attribute": "delay", "between": [0, 9]},
    {"attribute": "delay", "in": list(range(10))},
    {"attribute": "delay", "gt": 9},
    {"attribute": "delay", "le": 9},
    {"attribute": "delay", "lt": 10},
    {"attribute": "delay", "eq": 5},
    {"attribute": "cancelled", "in": [True]},
]
VALUES: dict[str, Any] = {
    "where": CARRIER,
    "wheres": [LATE, {"attribute": "delay", "lt": 0}],
    "group_by": ["carrier", "cancelled"],
    "attribute": "delay",
    "other": "distance",
    "rank": 0.5,
    "up_to": 30.0,
    "mean": True,
    "low": 0.2,
    "high": 0.4,
    "count_rows": True,
    "error": 0.05,
    "at_most": 0.5,
    "fresh": True,
    "once": "away",
    "share_of": LATE,
    "minus_window": {"previous_phases": 1},
}
ASKED = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "q"}
ERRORS: dict[str, Any] = {"correlation": {"error": {"value": 0.05}}}
QUERIES: list[dict[str, Any]] = [
    *({**ASKED, "where": where} for where in WHERES),
    *(
        {
            **ASKED,
            "kind": kind,
            **{name: VALUES[name] for name in shape.names},
            **ERRORS.get(kind, {}),
        }
        for kind, shape in FIELDS.items()
    ),
    {**ASKED, "kind": "table", "group_by": ["carrier", "cancelled"], "error": {"value": 500}},
    {**ASKED, "where": CARRIER, "error": {"relative": 0.05}},
    {**ASKED, "kind": "sum", "attribute": "delay", "error": {"mean": 5}},
    {**ASKED, "where": CARRIER, "window": {"last_phases": 1}, "quote": True},
    {**ASKED, "where": CARRIER, "window": {"last": "7 days"}, "series": "day", "frame": 3},
    {**ASKED, "where": CARRIER, "window": {"since": "2026-11-01", "until": "2026-11-08"}},
    {**ASKED, "where": CARRIER, "window": {"phases": [1, 1]}},
    {**ASKED, "where": CARRIER, "window": {"last": "7 days", "running": True}},
    {**ASKED, "where": CARRIER, "across": "since"},
    {
        **ASKED,
        "kind": "difference",
        "window": {"last_phases": 1},
        "minus_window": {"previous": "1 day"},
    },
    {**ASKED, "where": CARRIER, "standing": True, "alert": {"above": 0.2}},
    {**ASKED, "kind": "table", "group_by": ["carrier"], "standing": True, "alert": {"below": 0.2}},
    {**ASKED, "standing": False},
    {
        **{name: ASKED[name] for name in ("version", "dataset", "analyst")},
        "queries": [{"query_id": "q1", "where": CARRIER}, {"query_id": "q2", "kind": "table"}],
    },
]

SENT = {"version": 1, "dataset": "flights", "batch_id": "b"}
ROW = {"carrier": "AA", "delay": 7, "cancelled": False}
BATCHES: list[dict[str, Any]] = [
    {**SENT, "rows": [ROW, {"carrier": "UA"}], "time": "2026-11-01"},
    {**SENT, "columns": {name: [value] for name, value in ROW.items()}},
    {
        **SENT,
        "erase": ["ana"],
        "forget": True,
        "correct": [{"person": "ana", "row": "t-1", "set": ROW}],
    },
    {**SENT, "cells": [{**ROW, "count": 3}]},
    {
        **SENT,
        "source": {
            "topic": "shop.rows",
            "id": "AAAA",
            "partition": 0,
            "first": 0,
            "last": 1,
            "position": 7,
            "schema_version": 1,
        },
        "rows": [ROW, ROW],
    },
    {
        **SENT,
        "source": {
            "topic": "shop.rows",
            "id": "BBBB",
            "partition": 1,
            "first": 0,
            "last": 1,
            "begins": True,
        },
        "unreadable": "framed",
    },
    {"version": 1, "dataset": NAME, "producer": "till-7", "sequence": 1, "rows": [ROW]},
]

FOLDED: list[dict[str, Any]] = [
    {"name": "trips", "type": "number", "edges": [2, 4], "fold": "count"},
    {"name": "flew_aa", "type": "boolean", "fold": "any", "where": CARRIER},
    {
        "name": "away",
        "type": "number",
        "fold": "since",
        "phases": 3,
        "of": "flew_aa",
        "missing": True,
    },
]
ATTRIBUTES: list[dict[str, Any]] = [
    {
        "name": "carrier",
        "type": "category",
        "values": ["AA", "UA"],
        "other": True,
        "missing": True,
        "na": ["?"],
        "ordered": True,
    },
    {
        "name": "delay",
        "type": "number",
        "edges": [0, 10, 30],
        "integer": True,
        "missing": False,
        "representatives": [-5, 5, 20, 40],
        "measure": {"unit": 1, "low": -20, "high": 90},
    },
    {"name": "cancelled", "type": "boolean", "missing": False},
    {
        "name": "day",
        "type": "date",
        "by": "quarter",
        "from": "2026-01-01",
        "until": "2027-01-01",
        "timezone": "Europe/Berlin",
        "epoch": "ms",
        "missing": True,
    },
]
DEFINED: dict[str, Any] = {
    "version": 1,
    "dataset": NAME,
    "attributes": ATTRIBUTES,
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}
KINDS = {
    "threshold": {"share": 0.1, "partition": False},
    "median": {"share": 0.1},
    "mode": {"share": 0.2, "groups": 100},
    "prefix_batch": {"share": 0.1},
    "correlated_vector": {"share": 0.1, "attribute": "cancelled"},
    "between": {"share": 0.1, "answers": 2},
    "interior_point": {"share": 0.1, "points": 2},
    "adaptive_threshold": {"share": 0.1, "chunks": 2, "queries": 10},
}
PAPERS = {"hypothesis_rows": 3, "representation": "exhaustive", "doubling": False}
MECHANISMS: list[dict[str, Any]] = [
    {"profile": "calibrated", "base_share": 0.2, "pacing": True, "growth": "never"},
    {
        "profile": "calibrated",
        "queries_per_phase": 50,
        "workload": [
            {"where": CARRIER, "group_by": ["cancelled"], "window": {"last_phases": 2}},
            {"where": LATE, "attribute": "delay", "weight": 2.0},
        ],
    },
    {
        "profile": "calibrated",
        "workload": {"tables": ["carrier", ["carrier", "cancelled"]], "windows": [1, "all"]},
    },
    {"profile": "median", "queries": 10, **PAPERS},
    {"profile": "sequential", "queries_per_phase": 10, "phases": 3, "composition": 3.0, **PAPERS},
    {"profile": "memory", "queries_per_phase": 10, "phases": 3, **PAPERS},
    {"profile": "gated", "segments": 4, "prior": "uniform"},
    {"profile": "counts"},
    {"profile": "whole_table"},
    {"profile": "weights", "growing": True},
    {"profile": "bypass"},
]
SMALL = {
    "attributes": [ATTRIBUTES[2]],
    "privacy": {"epsilon": 20.0, "delta": 0.01},
    "accuracy": {"error": 0.3, "failure_probability": 0.5},
}
AIM = {"aim": 0.1, "rough": 0.25, "easy_share": 0.01, "query_share": 0.05, "day_share": 0.1}
UNIT = {"key": "user_id", "rows_per_phase": 2, "phases": 3, "lifetime": False}
RULES: dict[str, Any] = {
    "analysts": {
        "ana": {},
        "team-*": {
            "share": 0.1,
            "together": 0.2,
            "queries_per_minute": 60,
            "spending_per_minute": 0.1,
        },
        "own": {"owner": True},
    },
    "owner": {"share": 0.3},
}
DEFINITIONS: list[dict[str, Any]] = [
    {
        **DEFINED,
        "accuracy": {**DEFINED["accuracy"], "least_error": 0.001, "query_share": 0.5},
        "on_exhausted": "refuse",
        "synthetic_rows": 10,
        "least_cell": 10,
        "kinds": KINDS,
        "retention": {"phases": 3, "answers": {"days": 30}},
        "phase": {"min_rows": 20_000, "every": "1 day", "timezone": "Europe/Berlin"},
    },
    {
        **DEFINED,
        "phase": {
            "min_rows": 20_000,
            "every": "1 day",
            "close": {"after": "2 hours"},
            "late": {"within": "7 days"},
        },
        "running": {
            "every": "6 hours",
            "within_rows": 400,
            "tiles": [
                {"group_by": ["carrier"]},
                {"where": {"attribute": "cancelled", "eq": True}},
            ],
        },
    },
    {**DEFINED, "accuracy": {**DEFINED["accuracy"], **AIM}},
    {
        **DEFINED,
        "privacy": {**DEFINED["privacy"], "unit": UNIT},
        "erasure": {"within": "24 hours", "row": "trip"},
    },
    {
        **DEFINED,
        "attributes": [*ATTRIBUTES, *FOLDED],
        "erasure": {"within": "24 hours"},
        "privacy": {**DEFINED["privacy"], "unit": {**UNIT, "rows_per_phase": 1}},
    },
    {**DEFINED, **RULES},
    *(
        {
            **DEFINED,
            **(SMALL if PAPERS.items() <= mechanism.items() else {}),
            "mechanism": mechanism,
        }
        for mechanism in MECHANISMS
    ),
]


CLOSES: list[dict[str, Any]] = [{"version": 1, "dataset": "flights", "close": True, "phase": 2}]
CHANGES: list[dict[str, Any]] = [
    {"version": 1, "dataset": "flights", "change": "analysts", **RULES}
]
NEWER: list[dict[str, Any]] = [
    {
        **ATTRIBUTES[0],
        "name": "airline",
        "was": ["carrier"],
        "values": ["AA", "UA", "DL"],
        "also": {"US": "AA"},
    },
    *ATTRIBUTES[1:3],
    {**ATTRIBUTES[3], "deprecated": True},
    {"name": "seat", "type": "category", "values": ["window", "aisle"], "before": "aisle"},
]
SCHEMAS: list[dict[str, Any]] = [
    {
        "version": 1,
        "dataset": "flights",
        "change": "schema",
        "schema_version": 2,
        "attributes": [*NEWER, *FOLDED],
    }
]
UNKNOWN: list[dict[str, Any]] = [
    {
        **DEFINED,
        "attributes": [
            {"name": "page", "type": "category", "find": {"most": 9, "share": 0.1, "windows": [1]}},
            {"name": "paid", "type": "number", "propose": {"bins": 4, "share": 0.1, "unit": 0.5}},
        ],
    }
]
CATALOGED: list[dict[str, Any]] = [  # as the worker writes it, and nobody may send it
    {
        **DEFINED,
        "versions": [{"schema_version": 1, "first_phase": 1, "attributes": ATTRIBUTES[2:3]}],
        "proposals": [{"attribute": "paid", "low": 1.0, "high": 8.0, "edges": [2.0]}],
        "found": [
            {
                "attribute": "page",
                "value": "/a",
                "since": 1,
                "phases": [1, 8],
                "count": 812,
                "error_bar": 40,
            }
        ],
    }
]


def test_each_field_of_each_message_is_a_place() -> None:
    every: tuple[tuple[Any, list[Any]], ...] = (
        ([*DEFINITIONS, *SCHEMAS, *UNKNOWN, *CATALOGED], [Definition]),
        (BATCHES, [Batch]),
        (QUERIES, [SingleQuery, QueryEnvelope]),
        (CLOSES, [ClosePhase]),
        (CHANGES, [ChangeAnalysts]),
        ([*SCHEMAS, *UNKNOWN], [ChangeSchema]),
    )
    for documents, models in every:
        names = {str(path[-1]) for document in documents for path in paths(document) if path}
        for model in models:
            assert fields(model) <= names, model


def fields(model: type[BaseModel]) -> set[str]:
    """Names of the model's fields, and of those of all models within."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return {name for part in parts for name in part.get("properties", {})}


# ---------------------------------------------------------------- a word at each place


def paths(document: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for step, inner in items:
        yield from paths(inner, (*path, step))


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A copy with another value at one place."""
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def spoilt(document: dict[str, Any]) -> Iterator[tuple[Path, str, Any]]:
    """(place, what stands there, the document) for each place and thing that can be wrong there."""
    for path in paths(document):
        there = at(document, path)
        for what, value in (
            ("a word", WORD),
            ("a word with blanks", f" {WORD} é"),
            ("a number", NUMBER),
            ("a fraction", NUMBER + 0.5),
            ("an object", {WORD: {WORD: NUMBER}}),
            ("a list", [WORD, [NUMBER]]),
        ):
            yield path, what, replaced(document, path, value)
        if isinstance(there, dict):
            yield path, "one more name", replaced(document, path, {**there, WORD: NUMBER})
            yield path, "one more name, first", replaced(document, path, {WORD: WORD, **there})
            for key in there:
                renamed = {WORD if name == key else name: value for name, value in there.items()}
                yield path, f"another name for {key}", replaced(document, path, renamed)
        if isinstance(there, list):
            yield path, "one more item", replaced(document, path, [*there, WORD])
            yield path, "one more row", replaced(document, path, [*there, {WORD: NUMBER}])


def is_public(role: str, path: Path, what: str) -> bool:
    """Whether this is an id, a name, or a number of rows."""
    last = path[-1] if path else ""
    counted = role == "batches" and last == "count" and what == "a number"
    allowed = path == ("analysts",) and what.startswith("another name")  # the ledger says to whom
    return (last in PUBLIC and what == "a word") or counted or allowed


SPOILT_AGAIN = (("mechanism",), ("privacy",), ("analysts",), ("owner",))


def in_json() -> Iterator[Placed]:
    """Documents with one fault each."""
    every = (
        ("queries", QUERIES),
        ("batches", BATCHES),
        ("datasets", DEFINITIONS),
        ("datasets", CLOSES),
        ("datasets", CHANGES),
        ("datasets", SCHEMAS),
        ("datasets", UNKNOWN),
        ("datasets", CATALOGED),
    )
    for role, documents in every:
        for n, document in enumerate(documents):
            for path, what, changed in spoilt(document):
                if role == "datasets" and n > 0 and path[:1] not in SPOILT_AGAIN:
                    continue  # as in the first
                where = f"{role} {n}: {what} at {'.'.join(map(str, path)) or 'the top'}"
                key = WORD if path == ("dataset",) else document["dataset"]
                value = json.dumps(changed).encode()
                yield Placed(where, role, value, key.encode(), public=is_public(role, path, what))


def not_json() -> Iterator[Placed]:
    """What is no document at all, and rows that went astray."""
    row = {"name": WORD, "age": NUMBER, WORD: 1}
    base = json.dumps({**SENT, "rows": [row]}).encode()
    deep = b"[" * 100_000
    values = {
        "a word": WORD.encode(),
        "a text": json.dumps(WORD).encode(),
        "a list": json.dumps([WORD, row]).encode(),
        "a row": json.dumps(row).encode(),
        "a row and a name": json.dumps({**row, "version": 1, "dataset": "flights"}).encode(),
        "a row and an id": json.dumps({**ASKED, **row}).encode(),
        "a table": f"name,age\n{WORD},{NUMBER}\n".encode(),
        "a name twice": b'{"%s": 1, "%s": 2}' % (WORD.encode(), WORD.encode()),
        "a row's name twice": base.replace(b'"name"', b'"age"'),
        "not a number": base.replace(b": 1}", b": NaN}"),
        "an infinity": base.replace(b": 1}", b": -Infinity}"),
        "a large number": base.replace(b": 1}", b": 1e999}"),
        "5,000 digits": base.replace(b": 1}", b": %s}" % (str(NUMBER).encode() * 420)),
        "no UTF-8": base.replace(b": 1}", b': "\xff\xfe"}'),
        "half a character": base.replace(b": 1}", b': "\\ud800"}'),
        "UTF-16": base.decode().encode("utf-16"),
        "a mark": b"\xef\xbb\xbf" + base,
        "a word behind": base + WORD.encode(),
        "a word before": WORD.encode() + base,
        "brackets": base.replace(b": 1}", b": %s}" % deep),
        "braces": base.replace(b": 1}", b": %s1%s}" % (b'{"a":' * 80, b"}" * 80)),
        "too much": base.replace(b": 1}", b': "%s"}' % (WORD.encode() * 400_000)),
    }
    values |= {f"{n} of 9 parts": base[: len(base) * n // 9] for n in range(1, 9)}
    for role in ("queries", "batches", "datasets"):
        for what, value in values.items():
            yield Placed(f"{role}: {what}", role, value)


def beside_the_value() -> Iterator[Placed]:
    """Words in keys and headers."""
    documents = {"queries": QUERIES[0], "batches": BATCHES[0], "datasets": DEFINITIONS[0]}
    for role, document in documents.items():
        sound = json.dumps(document).encode()
        for what, value in (("", sound), (", nothing", None), (", no JSON", b"{")):
            yield Placed(f"{role}: a key that is no name{what}", role, value, f" {WORD}".encode())
            yield Placed(
                f"{role}: a key{what}", role, value, WORD.encode(), public=role == "datasets"
            )
            for name, content in (
                (WORD, WORD),
                ("content-type", WORD),
                ("content-type", f"application/vnd.apache.arrow.stream; {WORD}"),
                ("batch_id", f" {WORD}"),
            ):
                key = document["dataset"].encode()
                headers = {name: content.encode()}
                yield Placed(f"{role}: a header {name}{what}", role, value, key, headers)


def in_arrow() -> Iterator[Placed]:
    """Batches in Arrow, some with a fault."""
    pa = pytest.importorskip("pyarrow")

    def stream(table: Any, **options: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)
        ) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    words = pa.array([WORD, WORD])
    sound = {"carrier": words, "delay": pa.array([NUMBER, 1]), "cancelled": words}
    repeating = {**sound, "carrier": words.dictionary_encode()}
    nested = pa.array([{WORD: WORD}, {WORD: WORD}])
    meta = {WORD: WORD}
    tables = {
        "rows": stream(pa.table(sound)),
        "rows that repeat": stream(pa.table(repeating)),
        "one column": stream(pa.table({"carrier": words})),
        "one more column": stream(pa.table({**sound, WORD: words})),
        "a column twice": stream(pa.Table.from_arrays([words, words], names=[WORD, WORD])),
        "a struct": stream(pa.table({**sound, "carrier": nested})),
        "a list": stream(pa.table({**sound, "carrier": pa.array([[WORD], [WORD]])})),
        "a date": stream(
            pa.table({**sound, "carrier": pa.array([NUMBER, 1], pa.timestamp("ms", tz=WORD))})
        ),
        "a dictionary of dates": stream(
            pa.table(
                {**sound, "carrier": pa.array([NUMBER, 1], pa.timestamp("s")).dictionary_encode()}
            )
        ),
        "a time": stream(pa.table({"carrier": pa.array([1, 2], pa.timestamp("ns", tz=WORD))})),
        "metadata": stream(pa.table(sound).replace_schema_metadata(meta)),
        "metadata of a field": stream(
            pa.table([words], schema=pa.schema([pa.field("carrier", pa.string(), metadata=meta)]))
        ),
        "an extension": stream(
            pa.table(
                [words],
                schema=pa.schema(
                    [
                        pa.field(
                            "carrier",
                            pa.string(),
                            metadata={"ARROW:extension:name": WORD, WORD: WORD},
                        )
                    ]
                ),
            )
        ),
        "packed": stream(pa.table(sound), compression="zstd"),
        "cut": stream(pa.table(sound))[:-40],
        "a word behind": stream(pa.table(sound)) + WORD.encode() * 3,
    }
    for what, value in tables.items():
        for batch_id, public in (
            (b"a-00000", False),
            (WORD.encode(), True),
            (f" {WORD}".encode(), False),
        ):
            headers = {**ARROW, "batch_id": batch_id}
            yield Placed(
                f"Arrow: {what}, {batch_id!r}", "batches", value, headers=headers, public=public
            )


def numbered(content: bytes, serial: int) -> bytes:
    """With the record's own word, number and name."""
    for general, own in (
        (WORD, f"{WORD[:-5]}{serial:05}"),
        (str(NUMBER), str(NUMBER + serial)),
        (NAME, f"{NAME[:-5]}{serial:05}"),
        ("a-00000", f"a-{serial:05}"),
    ):
        content = content.replace(general.encode(), own.encode())
        content = content.replace(general.encode("utf-16-le"), own.encode("utf-16-le"))
    return content.replace(NUMBER.to_bytes(8, "little"), (NUMBER + serial).to_bytes(8, "little"))


SERIAL = re.compile(rb"(?i)zyzzyva(\d{5})|731,?000,?0(\d{2},?\d{3})")
PART = re.compile(rb"(?i)zyzz|7\.31\d*e\+?11")


def found_in(written: bytes) -> set[int]:
    """Serial numbers of the records whose word or number is there; -1 for a part of one."""
    serials = {int((a or b).replace(b",", b"")) for a, b in SERIAL.findall(written)}
    return serials | ({-1} if PART.search(SERIAL.sub(b"", written)) else set())


# ---------------------------------------------------------------- the run


async def test_no_word_of_a_record_is_found_in_anything_that_is_written(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    caplog.set_level(1, LOGGER)  # a command that ran here before may have switched it off
    records = [*in_json(), *not_json(), *beside_the_value(), *in_arrow()]
    assert len(records) > 3_000
    world.group = 128
    process = await world.owner()
    world.define("flights")
    world.cells("flights", "first")
    await process.run()
    for serial, one in enumerate(records):
        world.produce(
            one.role,
            None if one.value is None else numbered(one.value, serial),
            key=numbered(one.key, serial),
            headers={
                numbered(name.encode(), serial).decode(): numbered(value, serial)
                for name, value in one.headers.items()
            },
        )
    await process.run()
    accepted = {event["dataset"] for event in world.events("dataset_accepted")}
    public = {
        serial
        for serial, one in enumerate(records)
        if one.public or numbered(NAME.encode(), serial).decode() in accepted
    }
    assert len(public) < len(records) / 4
    outgoing = [event.outgoing for event in world.trail if hasattr(event, "outgoing")]
    written = {
        "the log": _lines(caplog, lambda name: name != LOGGER),
        AUDIT: _lines(caplog, lambda name: name == LOGGER),
        "the metrics": process.worker.context.metrics.exposition(),
        "the pages": b"".join(pages(world, outgoing)),
        **{
            f"the topic {role}": b"\n".join(
                b"%s %s %s" % (one.key.encode(), one.value, repr(one.headers).encode())
                for one in outgoing
                if one.role == role
            )
            for role in {one.role for one in outgoing}
        },
    }
    found = {what: found_in(content) for what, content in written.items()}
    assert found["the topic rejected"] & public, "they can be found"
    assert found[AUDIT], "and there too"
    leaks = [
        f"{what}: {'a part of a word' if serial < 0 else records[serial].where}"
        for what, serials in found.items()
        for serial in sorted(serials - public)
        # It says what was asked, which operators may see; of what is no query it has no word.
        if what != AUDIT or serial < 0 or records[serial].role != "queries"
    ]
    assert not leaks, "\n".join(leaks)
    await process.kill()


AUDIT = "the audit log"


def _lines(caplog: pytest.LogCaptureFixture, of: Callable[[str], bool]) -> bytes:
    formatted = (caplog.handler.format(one) for one in caplog.records if of(one.name))
    return "\n".join(formatted).encode()


def pages(world: Any, outgoing: Iterable[Any]) -> Iterator[bytes]:
    """What both pages show while the topics are read; but for the queries, which operators may see."""
    published = PublishedState()
    views = Views(published)
    asked = [record for n in range(world.partitions) for record in world.log[f"in.queries:{n}"]]
    told = [("queries", "", record.value) for record in asked]
    told += [(one.role, one.key, one.value) for one in outgoing]
    for n, (role, key, value) in enumerate(told):
        with suppress(ValueError, KeyError, IndexError, TypeError):  # as the feed does
            published.take(role, key, value, n)
        if n % 10 == 0:
            for name, section in views.operator("flights").items():
                if name != "questions":
                    yield section
    worker = world.processes[0].worker
    waiting = {name: dataset.rows.waiting.n_rows for name, dataset in worker.datasets.items()}
    yield health_document(Health(ready=worker.ready, waiting=waiting))
