"""Groups of several cells: their counts add up, with independent noise where one look measured them all."""

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
