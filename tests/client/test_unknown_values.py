"""A value that nobody knows is not a missing one, whatever a statement would put in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.statement_table import evaluate
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


def _answered(**fields: Any) -> NoisyAnswer:
    said = json.loads((GOLDEN.parent / "predicate.json").read_bytes())
    said = {
        name: value for name, value in said.items() if name in read_answer(said).model_fields_set
    }
    for name in ("value", "count", "error_bar", "error_bar_simultaneous", "error_bar_anytime"):
        said.pop(name, None)
    found = read_answer({**said, "n": 1_000, **fields})
    assert isinstance(found, NoisyAnswer)
    return found


SHARES = {
    "attributes": ["carrier"],
    "labels": [["AA", "UA", "other"]],
    "values": [0.4, 0.03, 0.0],
    "counts": [400, 30, 0],
    "error_bars": [0.0455, 0.0455, 0.0455],
    "both": [100, 12, 0],
    "both_bars": [40.0, 40.0, 40.0],
    "shares": [0.25, None, None],
    "share_bars": [0.1, None, None],
}


def test_a_share_that_nobody_knows_says_why_with_both_counts() -> None:
    statement = (
        "SELECT carrier, COUNT(*) FILTER (WHERE delay >= 30) / COUNT(*) AS late FROM f GROUP BY 1"
    )
    plan = sql.plan(statement, SCHEMA)
    found = evaluate(plan, "f", [_answered(kind="share_by_group", table=SHARES)])
    assert [row[1] for row in found.rows] == [0.25, None, None]
    (note,) = [note for note in found.notes if "too few rows" in note]
    assert note == (
        "late is unknown where a group may have too few rows, or none: UA: 12 ± 40 of 30 ± 46 rows; "
        "other: 0 ± 40 of 0 ± 46 rows"
    )
    known = {**SHARES, "shares": [0.25] * 3, "share_bars": [0.1] * 3}
    found = evaluate(plan, "f", [_answered(kind="share_by_group", table=known)])
    assert not any("too few rows" in note for note in found.notes)


def test_a_share_of_all_rows_of_a_condition_says_so_too() -> None:
    said = {"value": 0.01, "count": 10, "error_bar": 0.05, "both": 3, "both_bar": 41.5}
    statement = (
        "SELECT AVG(CASE WHEN delay >= 30 THEN 1 ELSE 0 END) AS late FROM f WHERE carrier = 'AA'"
    )
    found = evaluate(sql.plan(statement, SCHEMA), "f", [_answered(kind="share", **said)])
    (note,) = [note for note in found.notes if "too few rows" in note]
    assert note.endswith("all rows: 3 ± 42 of 10 ± 50 rows")


def test_a_series_says_which_parts_are_of_no_use() -> None:
    parts = json.loads(GOLDEN.read_bytes())["parts"]
    bad = {**parts[1]["answer"], "useful": "no", "suggestion": "ask about more phases at once"}
    plan = sql.plan("SELECT week, SUM(delay) AS s FROM f GROUP BY week", SCHEMA)
    dated = {**bad, "since": "2026-11-08T00:00", "until": "2026-11-15T00:00"}
    for part, when in (
        (dated, "from 2026-11-08"),
        ({**bad, "since": None, "window": [2, 3]}, "phases 2 to 3"),
    ):
        notes = evaluate(plan, "flights", [series(part)]).notes
        assert (
            f"some values ({when}) are not precise enough to use: ask about more phases at once"
        ) in notes
