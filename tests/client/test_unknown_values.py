"""A value that nobody knows is not a missing one, whatever a statement would put in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.evaluating import evaluate
from stream_dp.messages import NoisyAnswer, read_answer

GOLDEN = Path(__file__).parents[1] / "golden/answers/series-sum.json"
SCHEMA: list[dict[str, Any]] = [
    {"name": "delay", "type": "number", "edges": [0, 30], "integer": True},
    {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
]


def series(part: dict[str, Any]) -> NoisyAnswer:
    """A series of sums whose second part is this one."""
    document = json.loads(GOLDEN.read_bytes())
    document["parts"][1]["answer"] = part
    found = read_answer(json.dumps(document).encode())
    assert isinstance(found, NoisyAnswer)
    return found


def test_a_part_that_was_refused_is_no_zero() -> None:
    first = json.loads(GOLDEN.read_bytes())["parts"][0]["answer"]
    head = {name: first[name] for name in ("version", "dataset", "query_id", "analyst")}
    reason = {"code": "price_too_high", "message": "too dear", "retriable": True}
    refused = {**head, "status": "refused", "kind": "sum", "reason": reason}
    plan = sql.plan("SELECT week, COALESCE(SUM(delay), 0) AS s FROM f GROUP BY week", SCHEMA)
    table = evaluate(plan, "flights", [series(refused)])
    assert [row[1] is None for row in table.rows] == [False, True]
    assert [row[2] is None for row in table.rows] == [False, True]
    assert any("too dear" in note for note in table.notes)


def test_the_sum_of_no_rows_is_a_missing_value() -> None:
    statement = (
        "SELECT COALESCE(SUM(delay) FILTER (WHERE carrier = 'AA' AND carrier = 'UA'), 7) AS s"
    )
    table = evaluate(sql.plan(f"{statement}, COUNT(*) AS n FROM f", SCHEMA), "f", _counts())
    assert table.rows[0][0] == pytest.approx(7.0)


def _counts() -> list[NoisyAnswer]:
    found = read_answer((GOLDEN.parent / "predicate.json").read_bytes())
    assert isinstance(found, NoisyAnswer)
    return [found]
