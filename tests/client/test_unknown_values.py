"""A value that nobody knows is not a missing one, whatever a statement would put in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.messages import NoisyAnswer, read_answer
from tests.answers import count_answer, table_answer, table_of

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
    statement = "SELECT week, COALESCE(SUM(delay), 0) AS s FROM f GROUP BY week"
    table = table_of(statement, SCHEMA, series(refused), dataset="f")
    assert [row[1] is None for row in table.rows] == [False, True]
    assert [row[2] is None for row in table.rows] == [False, True]
    assert any("too dear" in note for note in table.notes)


def test_the_sum_of_no_rows_is_a_missing_value() -> None:
    of_none = "SUM(delay) FILTER (WHERE carrier = 'AA' AND carrier = 'UA')"
    statement = f"SELECT COALESCE({of_none}, 7) AS s, COUNT(*) AS n FROM f"
    table = table_of(statement, SCHEMA, count_answer(300, 5), dataset="f")
    assert table.rows[0][0] == pytest.approx(7.0)


def unknown(statement: str, answer: NoisyAnswer) -> tuple[list[Any], list[str]]:
    """The values of ``late``, and the notes on what is unknown."""
    found = table_of(statement, SCHEMA, answer, dataset="f")
    return found.column("late"), [note for note in found.notes if "too few rows" in note]


def test_a_share_that_nobody_knows_says_why_with_both_counts() -> None:
    late = "COUNT(*) FILTER (WHERE delay >= 30) / COUNT(*)"
    statement = f"SELECT carrier, {late} AS late FROM f GROUP BY 1"
    carriers, counts = {"carrier": ["AA", "UA", "other"]}, [400, 30, 0]
    both = {"both": [100, 12, 0], "both_bars": [40.0] * 3}
    some = {"shares": [0.25, None, None], "share_bars": [0.1, None, None]}
    every = {"shares": [0.25] * 3, "share_bars": [0.1] * 3}

    def answer(shares: dict[str, Any]) -> NoisyAnswer:
        cells = {**both, **shares}
        return table_answer(carriers, counts, 45.5, kind="share_by_group", cells=cells)

    values, (note,) = unknown(statement, answer(some))
    assert values == [0.25, None, None]
    assert note == (
        "late is unknown where a group may have too few rows, or none: UA: 12 ± 40 of 30 ± 46 rows; "
        "other: 0 ± 40 of 0 ± 46 rows"
    )
    assert unknown(statement, answer(every)) == ([0.25] * 3, [])


def test_a_share_of_all_rows_of_a_condition_says_so_too() -> None:
    late = "AVG(CASE WHEN delay >= 30 THEN 1 ELSE 0 END)"
    answer = count_answer(10, 50, kind="share", both=3, both_bar=41.5)
    _, (note,) = unknown(f"SELECT {late} AS late FROM f WHERE carrier = 'AA'", answer)
    assert note.endswith("all rows: 3 ± 42 of 10 ± 50 rows")


def test_a_series_says_which_parts_are_of_no_use() -> None:
    parts = json.loads(GOLDEN.read_bytes())["parts"]
    bad = {**parts[1]["answer"], "useful": "no", "suggestion": "ask about more phases at once"}
    statement = "SELECT week, SUM(delay) AS s FROM f GROUP BY week"
    dated = {**bad, "since": "2026-11-08T00:00", "until": "2026-11-15T00:00"}
    for part, when in (
        (dated, "from 2026-11-08"),
        ({**bad, "since": None, "window": [2, 3]}, "phases 2 to 3"),
    ):
        notes = table_of(statement, SCHEMA, series(part), dataset="f").notes
        assert (
            f"some values ({when}) are not precise enough to use: ask about more phases at once"
        ) in notes
