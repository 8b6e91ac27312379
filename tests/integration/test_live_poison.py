"""Hostile records on a real broker: each is rejected once, and the worker lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.kafka

DEFINITION = {
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
CANARY = "canary-7f3a"
BATCH = {"version": 1, "dataset": "flights", "batch_id": "bad"}
QUERY = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "bad"}


class _Bytes(str):
    """A header's name that is no UTF-8: kafka-python encodes it by asking."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        return b"\xff\xfe"


def _raw(base: dict[str, Any], name: str, value: str) -> bytes:
    return f'{json.dumps(base)[:-1]}, "{name}": {value}}}'.encode()


POISON: list[tuple[str, bytes | None, bytes | None]] = [
    ("queries", None, b"flights"),
    ("queries", b"", b"flights"),
    ("batches", None, b"flights"),
    ("datasets", b"", b"flights"),
    ("datasets", None, b"\xff\xfe"),
    ("queries", b'{"version": 1', b"flights"),
    ("queries", b"\xff\xfe\x00", b"flights"),
    ("queries", b'{"version": 1, "version": 1}', b"flights"),
    ("batches", b"[" * 100_000, b"flights"),
    ("queries", _raw(QUERY, "where", '{"not":' * 20_000), b"flights"),
    ("batches", _raw(BATCH, "rows", json.dumps([CANARY] * 350_000)), b"flights"),  # 5 MB
    ("batches", json.dumps({**BATCH, "rows": []}).encode(), None),
    ("batches", json.dumps({**BATCH, "rows": []}).encode(), b"trains"),
    ("queries", json.dumps({**QUERY, "analyst": "\ud800"}).encode(), b"flights"),
    ("queries", json.dumps({**QUERY, "dataset": "nobody"}).encode(), b"nobody"),
    ("queries", json.dumps({**QUERY, "query_id": "good"}).encode(), b"flights"),  # a known id
    ("queries", json.dumps({**QUERY, "query_id": "\udfff"}).encode(), b"flights"),
    ("queries", json.dumps({**QUERY, "kind": "mean"}).encode(), b"flights"),
]
REFUSED: list[Any] = [
    {"attribute": "carier", "eq": "AA"},
    {"attribute": "delay", "ge": 7},
    {"attribute": "\ud800", "eq": "AA"},
    {"attribute": "delay", "lt": 10**4_000},
    5 * [{}],
]


def test_poison_is_rejected_once_each_and_the_worker_lives(deployment: Any) -> None:
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
        client.send("flights", cells=[{"carrier": "AA", "count": 30_000}])
        client.ask("flights", "carrier = 'AA'", query_id="good")
        places = [deployment.produce(role, value, key=key) for role, value, key in POISON]
        # As a client built on librdkafka would place it.
        right = client.ask("flights", None)
        assert right.status == "answered"
        for partition in range(2):
            document = {**QUERY, "query_id": f"on-{partition}"}
            place = deployment.produce("queries", document, key=b"flights", partition=partition)
            places.append(place)
        for n, where in enumerate(REFUSED):
            document = {**QUERY, "query_id": f"refused-{n}", "where": where}
            deployment.produce("queries", document, key=b"flights")
        deployment.produce(
            "batches",
            b"\0" * 1_000,
            key=b"flights",
            headers=[
                ("content-type", b"application/vnd.apache.arrow.stream"),
                ("batch_id", b"\xff"),
            ],
        )
        deployment.produce(
            "batches",
            {**BATCH, "rows": [], "columns": {}},
            key=b"flights",
            headers=[("é", b"\xff")],
        )
        places.append(
            deployment.produce("queries", QUERY, key=b"flights", headers=[(_Bytes("x"), b"")])
        )
        for analyst in ("bob", "cid"):
            with deployment.client(analyst) as other:
                assert other.ask("flights", "carrier = 'AA'").status == "answered"
    rejected = deployment.replies("rejected")
    found = [(reply["topic"], reply["partition"], reply["offset"]) for reply in rejected]
    assert len(found) == len(set(found))
    # One of the two partitions was right, one query refuses only itself, and two batches came last.
    assert len(set(found) & set(places)) == len(places) - 1
    assert len(found) == len(places) - 1 + 1 + 2
    answers = {reply["query_id"]: reply for reply in deployment.replies("answers")}
    for n in range(len(REFUSED) - 1):
        assert answers[f"refused-{n}"]["status"] == "refused"
    for role in ("answers", "events", "rejected", "ledger", "catalog"):
        assert all(CANARY.encode() not in (r.value or b"") for r in deployment.read(role))
    assert CANARY not in worker.output
    assert worker.stop() == 0, worker.output
