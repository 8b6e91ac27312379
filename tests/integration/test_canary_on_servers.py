"""Nothing of a record's content is found in what a worker on a real broker writes, not even at debug.

``tests/pipeline/test_canary.py`` tries far more places. Here the libraries, the log and the pages are real.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from stream_dp.messages import INPUTS, TOPICS
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

WORD = "zyzzyva"
NUMBER = 731_000_000_017
ARROW = "application/vnd.apache.arrow.stream"
DEFINITION: dict[str, Any] = {
    "version": 1,
    "dataset": "flights",
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}
QUERY: dict[str, Any] = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "q"}
BATCH: dict[str, Any] = {"version": 1, "dataset": "flights", "batch_id": "b"}
ROW = {"carrier": WORD, "delay": NUMBER, WORD: WORD}


def documents() -> Iterator[tuple[str, Any]]:
    """(topic, document): with the word as a value, a name, and of a wrong type."""
    for role, sound in (("datasets", DEFINITION), ("queries", QUERY), ("batches", BATCH)):
        yield role, ROW
        yield role, {**ROW, "version": 1, "dataset": "flights"}
        yield role, {**sound, WORD: NUMBER}
        for name in sound.keys() - {"dataset"}:
            for value in (f" {WORD}", NUMBER + 0.5, {WORD: WORD}, [WORD]):
                yield role, {**sound, name: value}
    attribute = {"name": WORD, "type": "category", "values": [WORD, WORD]}
    yield "datasets", {**DEFINITION, "dataset": "d", "attributes": [attribute]}
    wheres: list[Any] = [{"attribute": WORD, "eq": 1}, {"attribute": "delay", "ge": NUMBER}]
    for n, where in enumerate([ROW, {"attribute": "carrier", "eq": WORD}, *wheres]):
        yield "queries", {**QUERY, "query_id": f"where-{n}", "where": where}
    forms: list[dict[str, Any]] = [
        {"rows": [ROW, WORD]},
        {"columns": {"carrier": WORD, "delay": WORD}},
        {"cells": [{**ROW, "count": WORD}]},
    ]
    for n, form in enumerate(forms):
        yield "batches", {**BATCH, "batch_id": f"form-{n}", **form}


class Header(str):
    """A header's name whose bytes are no UTF-8: kafka-python encodes it by asking."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        return WORD.encode() + b"\xff\xfe"


def values() -> Iterator[bytes]:
    """What is no document at all."""
    row = json.dumps(ROW).encode()
    yield from (WORD.encode(), row[:-3], row.replace(b"}", b', "a": "\xff\xfe"}'))
    yield b"[" * 1_000 + row


@pytest.mark.slow
def test_no_word_of_a_record_is_found_in_anything_that_a_worker_writes(deployment: Any) -> None:
    worker = deployment.worker("--log-level", "debug").wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
        client.send("flights", cells=[{"carrier": "AA", "count": 30_000}])
        partition = deployment.produce("queries", b"", key=b"flights")[1]
        sent = [(role, json.dumps(document).encode()) for role, document in documents()]
        sent += [(role, value) for role in INPUTS for value in values()]
        sent.append(
            ("batches", json.dumps([WORD] * 300_000).encode())
        )  # more than a worker accepts
        for role, value in sent:
            key = (
                json.loads(value).get("dataset", "flights")
                if value.startswith(b'{"version"')
                else "flights"
            )
            deployment.produce(role, value, key=key)
        arrow = [("content-type", ARROW.encode()), ("batch_id", b"arrow")]
        for role in INPUTS:
            for other in (None, b"{}", WORD.encode()):
                deployment.produce(role, other, key=f" {WORD}".encode(), partition=partition)
                named = [(WORD, WORD.encode())], [(Header("x"), b"")]
                for headers in (*named, [("content-type", WORD.encode())], arrow):
                    if other is not None:  # an empty one would retire the data set
                        deployment.produce(role, other, key=b"flights", headers=headers)
        # Each topic is read in order, so when these are answered, all of the above is.
        client.define(DEFINITION)
        client.send("flights", rows=[{"carrier": "AA"}])
        assert client.ask("flights", "carrier = 'AA'").status == "answered"
    _speak_no_http(worker)
    written = {
        role: b"".join(
            b"%s %s %s\n" % (record.key or b"", record.value or b"", repr(record.headers).encode())
            for record in deployment.read(role)
        )
        for role in TOPICS.keys() - {*INPUTS, "blocks"}  # which holds rows, for workers alone
    }
    assert written["rejected"].count(b"\n") > 60
    written |= {path: worker.page(path) for path in ("/healthz", "/metrics")}
    written |= {view: b"".join(_shown(worker, view)) for view in ("operator", "analyst")}
    assert b"flights" in written["operator"]
    assert worker.stop() == 0, worker.output
    written["log"] = worker.output.encode()
    assert b"DEBUG" in written["log"]
    for what, content in written.items():
        assert WORD.encode() not in content.lower(), what
        for number in (f"{NUMBER}", f"{NUMBER:,}", "7.31e+11"):
            assert number.encode() not in content, what


def _shown(worker: Any, view: str) -> Iterator[bytes]:
    """What a page is told; but for the queries, which operators may see."""
    with urllib.request.urlopen(
        f"{worker.url}/stream/{view}?dataset=flights", timeout=PATIENCE_S
    ) as told:
        for line in told:
            if line == b"event: here\n":
                return
            if line == b"event: questions\n":
                next(told)
            else:
                yield line


def _speak_no_http(worker: Any) -> None:
    port = int(worker.url.rpartition(":")[2])
    for value in (WORD.encode(), b"GET /%s HTTP/1.1\r\n%s\r\n" % (WORD.encode(), WORD.encode())):
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(value + b"\r\n\r\n")
            one.shutdown(socket.SHUT_WR)
            while one.recv(65_536):
                pass
