from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from stream_dp.cli.demo.demo_view import AskedTable, DemoQuery, Story, plain_line, plain_table, view
from stream_dp.messages import PredicateAnswer, TableAnswer
from tests.answers import count_answer, table_answer

LONG = "carrier IN ('AA', 'DL', 'UA') AND origin = 'JFK' AND arr_delay >= 30 AND distance < 872"
FACTS: dict[str, Any] = {"n": 336_776, "phase": 12, "budget": {"spent": 0.2, "left": 0.8}}


def query(text: str, *, hard: bool = False) -> DemoQuery:
    path = {"difficulty": "hard"} if hard else {"difficulty": "easy", "path": "unverified"}
    more = {**FACTS, **path, "window": [1, 12]}
    answer = count_answer(58_659, 0, value=0.1742, error_bar=0.005, **more)
    assert isinstance(answer, PredicateAnswer)
    return DemoQuery(text, answer, 58_665)


def table(cells: int) -> AskedTable:
    labels = tuple(f"LGA {number} to {number + 4}" for number in range(cells))
    counts = [FACTS["n"] * 0.5 / (i + 1) for i in range(cells)]
    bars = {"error_bars": [0.01] * (cells - 1) + [None]}
    more = {**FACTS, "difficulty": "easy", "path": "certified", "window": [1, 12]}
    answer = table_answer({"origin": labels}, counts, None, cells=bars, **more)
    assert isinstance(answer, TableAnswer)
    return AskedTable("GROUP BY origin WHERE arr_delay >= 30", answer, labels, (168_000,) * cells)


def story(n_queries: int, cells: int) -> Story:
    asked = [query(LONG if i % 2 else "carrier = 'UA'", hard=i % 3 == 0) for i in range(n_queries)]
    tables = [table(cells)] if cells else []
    return Story(12, 7, 336_776, asked, tables, "sending 29,425 flights of Jul")


@pytest.mark.parametrize("size", [(150, 44), (120, 30), (119, 30), (80, 23), (200, 60)])
@pytest.mark.parametrize(("n_queries", "cells"), [(0, 0), (1, 0), (3, 3), (200, 18), (200, 0)])
def test_the_picture_fits_the_terminal_and_no_figure_is_cut(
    size: tuple[int, int], n_queries: int, cells: int
) -> None:
    width, height = size
    console = Console(file=io.StringIO(), width=width, height=height, record=True, highlight=False)
    console.print(view(story(n_queries, cells), width, height))
    text = console.export_text()
    lines = text.splitlines()
    assert len(lines) <= height
    assert {len(line) for line in lines} == {width}
    assert "336,776 rows in" in text
    assert "sending 29,425 flights of Jul" in text
    if n_queries:
        assert "17.42%   0.50%  17.42%" in text
        assert "largest error 0.00%" in text
    if n_queries > 3:
        assert "measured" in text
        assert "unverified" in text
        assert ("…" in text) == (width < 200)
    if cells:
        assert "GROUP BY origin WHERE arr_delay >= 30" in text
        assert "┃" in text
        assert "50.00%" in text


def test_a_line_without_a_terminal_is_a_line_of_readable_width() -> None:
    assert plain_line(query("carrier = 'UA'", hard=True)) == (
        "Jan-Dec  17.42% ±  0.50%  exact  17.42%  hard, measured   carrier = 'UA'"
    )
    assert len(plain_line(query(LONG))) == 120
    assert len(plain_table(table(18))) <= 120
    assert "17 outside" not in plain_table(table(18))


def test_an_answer_outside_its_bar_is_seen() -> None:
    right = query("carrier = 'UA'")
    assert not right.outside
    wrong = DemoQuery(right.query, right.answer, right.exact + 2000)
    assert wrong.outside
    assert table(3).outside == 1
