"""Groups of several cells: their counts add up, with independent noise where one look measured them all.

Dates that a function gives no value for are such a group too.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from stream_dp.client.statements.result_table import ResultTable
from tests.answers import table_answer, table_of

AGE = {"name": "age", "type": "number", "edges": [*range(20, 61, 5)], "integer": True}
COUNTS = [10, 200, 150, 120, 100, 60, 40, 3, 2, 315]
BAR = 9.0
TENS = "SELECT FLOOR(age / 10) * 10 AS ten, COUNT(*) AS n FROM people GROUP BY ten"


def tens(statement: str = TENS, cells: Any = None, **more: Any) -> ResultTable:
    labels = {"age": [f"bin {i}" for i in range(len(COUNTS))]}
    more = {"phase": 1, "window": [1, 1], **more}
    return table_of(statement, [AGE], table_answer(labels, COUNTS, BAR, cells=cells, **more))


@pytest.mark.parametrize(("apart", "factor"), [(40.0, math.sqrt(2.0)), (None, 2.0)])
def test_cells_of_one_look_have_independent_noise_and_others_add_their_bars(
    apart: float | None, factor: float
) -> None:
    found = tens(cells={} if apart is None else {"apart": apart})
    assert found.column("ten") == [10, 20, 30, 40, 50, 60]
    assert found.column("n") == [10, 350, 220, 100, 5, 315]
    bars = found.column("n_error_bar")
    assert bars[0] == pytest.approx(BAR, abs=0.01)
    assert bars[1:5] == pytest.approx([factor * BAR] * 4, abs=1.01)
    lows = [low for low in found.with_ends.column("n_low") if isinstance(low, int | float)]
    assert len(lows) == 6
    assert min(lows) >= 0.0, "no count is below 0"
    told = [note for note in found.notes if "adds up those of 2 cells" in note]
    assert bool(told) == (apart is None)
    assert all("at least 98%" in note for note in told)


def test_a_table_says_whether_a_decision_can_rest_on_it() -> None:
    for useful, suggestion, said in (
        ("no", "ask about all of age", "not precise enough to use: ask about all of age"),
        ("rough", "within a quarter", "rough: within a quarter"),
        ("yes", None, None),
    ):
        more = {} if suggestion is None else {"suggestion": suggestion}
        notes = tens(f"{TENS} HAVING n > 0", useful=useful, path="unverified", **more).notes
        assert (said in notes) == (said is not None)
        assert not any("further off than their bars" in note for note in notes)


# ---------------------------------------------------------------- dates that a function gives no value for

DATED: list[dict[str, Any]] = [
    {"name": "d", "type": "date", "by": "day", "from": "2026-01-01", "until": "2026-01-03", "missing": True},
    {"name": "x", "type": "number", "edges": [0, 10], "integer": True},
    {"name": "paid", "type": "boolean"},
]  # fmt: skip
LABELS = ["< 2026-01-01", "2026-01-01", "2026-01-02", ">= 2026-01-03", "missing"]
N = 1000
ROWS = [10, 200, 300, 40, 50]
BARS = [1.0, 2.0, 3.0, 4.0, 5.0]
DAYS = ["2026-01-01", "2026-01-02", None]


def table(kind: str, selected: str, rest: str = "", **cells: Any) -> ResultTable:
    """The table of a statement about the days, from one answer of a kind with these cells."""
    statement = f"SELECT DATE_TRUNC('day', d) AS day_of, {selected} FROM t GROUP BY 1 {rest}"
    more: Any = {"phase": 1, "window": [1, 1]}
    answer = table_answer({"d": LABELS}, ROWS, BARS, cells=cells, kind=kind, **more)
    return table_of(statement, DATED, answer, dataset="t")


def test_the_counts_of_the_cells_without_a_value_are_added_up() -> None:
    found = table("table", "COUNT(*) AS n")
    assert found.column("day_of") == DAYS
    assert found.column("n") == [200, 300, 100]
    chosen = table("table", "COUNT(*) AS n", "HAVING n < 250 ORDER BY n LIMIT 1")
    assert chosen.column("day_of") == [None], "it is chosen and sorted as one"
    assert found.column("n_error_bar") == pytest.approx([2.0, 3.0, 10.0])
    assert [note for note in found.notes if "adds up those of 3 cells" in note]
    assert "at least 97%" in found.notes[0], "each of the three bars may fail once in a hundred"


def test_a_median_of_several_cells_is_unknown_and_a_note_says_so() -> None:
    bins = [{"label": "0 to 9", "low": 0.0, "high": 10.0, "place": 1}] * 5
    cells: dict[str, Any] = {
        "values": None,
        "found": bins,
        "lies_in": bins,
        "error_bars": [0.02] * 5,
    }
    found = table("quantile_by_group", "MEDIAN(x) AS m", **cells)
    assert found.column("day_of") == DAYS
    assert found.column("m") == ["0 to 9", "0 to 9", None]
    assert found.column("m_error_bar") == [0.02, 0.02, None]
    assert "NULL is a group of 3 cells, so its medians" in found.notes[0]
    assert not [note for note in found.notes if "adds up" in note]


def test_the_mean_of_the_group_is_that_of_all_its_rows() -> None:
    totals = {"totals": [50.0, 0.0, 0.0, 80.0, 370.0], "total_bars": [1.0, 1.0, 1.0, 2.0, 7.0]}
    means = {"means": [5.0, 0.0, 0.0, 2.0, 7.4], "mean_bars": [0.1] * 5}
    cells: dict[str, Any] = {**totals, **means, "rows": [11, 200, 300, 41, 52], "rows_bars": BARS}
    found = table("sum_by_group", "SUM(x) AS s, AVG(x) AS m, COUNT(*) AS n", **cells)
    mean_bar = pytest.approx(510 / 90 - 5)
    assert found.rows[2] == (None, 500.0, 10.0, 5.0, mean_bar, 104, 10.0)


def test_the_share_of_the_group_is_that_of_all_its_rows() -> None:
    found = table(
        "share_by_group",
        "AVG(paid) AS p",
        shares=[0.1, 0.5, 0.5, 0.5, 0.58],
        share_bars=[0.1] * 5,
        both=[1, 100, 150, 20, 29],
        both_bars=[1.0, 1.0, 1.0, 2.0, 2.0],
    )
    assert found.column("p") == [0.5, 0.5, 0.5]
    assert "at least 94%" in found.notes[0], "it rests on two numbers of three cells"
    assert found.column("p_error_bar")[2] == pytest.approx(55 / 90 - 0.5)


def test_the_spread_of_the_group_is_that_of_all_its_rows() -> None:
    counts = [0, 10, 0, *[0, 10, 0], *[0, 10, 0], *[0, 10, 0], *[10, 0, 0]]
    bins = {"attributes": ["d", "x"], "labels": [LABELS, ["< 0", "0 to 9", ">= 10"]]}
    values, bars = [count / N for count in counts], [0.001] * len(counts)
    cells: dict[str, Any] = {"counts": counts, "values": values, "error_bars": bars, **bins}
    found = table("table", "VAR_POP(x) AS v", **cells)
    middle = (20 * 4.5 - 10 * 1.0) / 30
    assert found.column("v") == pytest.approx(
        [0.0, 0.0, (20 * (4.5 - middle) ** 2 + 10 * (1.0 + middle) ** 2) / 30]
    )
