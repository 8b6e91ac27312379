"""The whole system on a real Apache Kafka and a real Valkey: define, send, ask, and read it all again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.errors import InvalidQuery
from stream_dp.state import ledger

pytestmark = pytest.mark.kafka

FLIGHTS = {
    "version": 1,
    "dataset": "flights",
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True, "missing": True},
        {"name": "cancelled", "type": "boolean"},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 1e-7},
    "phase": {"min_rows": 20_000},
}

THESIS = {
    "version": 1,
    "dataset": "thesis",
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {"name": "cancelled", "type": "boolean"},
    ],
    "privacy": {"epsilon": 20.0, "delta": 0.01},
    "accuracy": {"error": 0.3, "failure_probability": 0.5},
    "phase": {"min_rows": 1},  # the profile says how many it needs
    "mechanism": {
        "profile": "memory",
        "queries_per_phase": 10,
        "phases": 3,
        "hypothesis_rows": 3,
        "representation": "exhaustive",
    },
}

# 10,000 rows in each form: six of ten AA, three UA, one of another carrier that came late.
ROWS = (
    [{"carrier": "AA", "delay": 5, "cancelled": False}] * 6_000
    + [{"carrier": "UA", "delay": 45, "cancelled": True}] * 3_000
    + [{"carrier": "ZZ", "delay": None, "cancelled": False}] * 1_000
)
COLUMNS = {name: [row[name] for row in ROWS] for name in ("carrier", "delay", "cancelled")}
CELLS: list[dict[str, Any]] = [
    {"carrier": "AA", "delay": 5, "cancelled": False, "count": 6_000},
    {"carrier": "UA", "delay": 45, "cancelled": True, "count": 3_000},
    {"carrier": "ZZ", "delay": None, "cancelled": False, "count": 1_000},
]


def _arrow() -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    table = pa.table(COLUMNS)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_two_data_sets_from_definition_to_answers(deployment: Any) -> None:
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(FLIGHTS)
        with pytest.warns(
            UserWarning, match=r"privacy.delta 0.01 is large for phases of 1,175,331"
        ):
            client.define(THESIS)
        assert client.send("flights", rows=ROWS).waiting == 10_000
        assert client.send("flights", columns=COLUMNS).phase == 1
        deployment.produce(
            "batches",
            _arrow(),
            key="flights",
            headers=[
                ("content-type", b"application/vnd.apache.arrow.stream"),
                ("batch_id", b"arrow"),
            ],
        )
        client.send("flights", cells=CELLS, batch_id="cells")
        assert client.send("thesis", cells=[{"carrier": "AA", "count": 1_200_000}]).phase == 1

        share = client.ask("flights", "carrier = 'AA'")
        assert abs(share.value - 0.6) <= share.error_bar <= 0.02
        assert share.n == 40_000
        late = client.ask(
            "flights", "SELECT COUNT(*) FROM flights WHERE delay >= 30", last_phases=1
        )
        assert abs(late.value - 0.3) <= late.error_bar
        assert late.n == 20_000
        assert client.ask("flights", "delay IS NULL").value == pytest.approx(0.1, abs=0.02)
        table = client.ask(
            "flights", "SELECT carrier, COUNT(*) FROM flights GROUP BY carrier"
        ).table
        assert table.labels == (("AA", "UA", "other"),)
        assert table.values == pytest.approx((0.6, 0.3, 0.1), abs=0.02)
        quote = client.quote("flights", "cancelled AND carrier = 'UA'")
        assert quote.status == "quoted"
        with pytest.raises(InvalidQuery, match="carier"):
            client.ask("flights", "carier = 'AA'")
        thesis = client.ask("thesis", "carrier = 'AA'")
        assert thesis.status == "answered"
        assert abs(thesis.value - 1.0) <= 0.3

        again = client.ask("flights", "carrier = 'AA'", query_id=share.query_id)
        assert again == share
        assert set(client.catalog()) == {"flights", "thesis"}
        for name in ("flights", "thesis"):
            _check_ledger(deployment, name)
        metrics = worker.page("/metrics") or b""
        assert b'stream_dp_phase{dataset="flights"} 2.0' in metrics
        assert b'stream_dp_rows_sealed{dataset="thesis"} 1.2e+06' in metrics
    assert worker.stop() == 0, worker.output
    assert "Traceback" not in worker.output


PROFILES: dict[str, dict[str, Any]] = {
    "gated": {"mechanism": {"profile": "gated", "segments": 20, "prior": "carry_over"}},
    "counts": {"mechanism": {"profile": "counts"}},
    "pure": {"mechanism": {"profile": "counts"}, "privacy": {"epsilon": 1.0, "delta": 0}},
    "table": {"mechanism": {"profile": "whole_table"}},
    "weights": {"mechanism": {"profile": "weights"}},
    "fixed": {"mechanism": {"profile": "weights", "growing": False}},
    "bypass": {"mechanism": {"profile": "bypass"}},
}


def test_a_data_set_of_every_profile_answers(served_deployment: Any) -> None:
    many = [{**cell, "count": 100 * int(cell["count"])} for cell in CELLS]
    with served_deployment.client() as client:
        for name, changes in PROFILES.items():
            client.define({**FLIGHTS, **changes, "dataset": name})
            assert client.send(name, cells=many).phase == 1
            answer = client.ask(name, "carrier = 'AA'")
            assert abs(answer.value - 0.6) <= answer.error_bar == 0.02
            assert answer.n == 1_000_000
            assert 0 < max(answer.privacy_loss.share, answer.budget.spent) <= 1
    for name in ("gated", "pure"):
        _check_ledger(served_deployment, name)


def _check_ledger(deployment: Any, dataset: str) -> None:
    """What was published is a whole chain, and its charges are what the journal has spent."""
    entries: list[bytes] = []
    for record in deployment.read("ledger"):
        if record.key == dataset.encode() and record.value not in entries:
            entries.append(record.value)
    ledger.Chain(dataset, entries)
    charged: dict[int, int] = {}
    for entry in entries:
        for block, rho, _ in json.loads(entry).get("charges", []):
            charged[block] = charged.get(block, 0) + rho
    spent = deployment.durable().spent(dataset)
    assert charged == {block: spent[f"{block}:rho"] for block in range(len(spent) // 2)}
