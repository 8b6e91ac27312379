"""Tables of statements at the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from stream_dp.cli.tables import result_lines, statement_lines
from stream_dp.client import Column, ResultTable
from stream_dp.messages import NoisyAnswer, read_answer


def answer(cost: float, left: float) -> NoisyAnswer:
    found = read_answer(
        {
            "version": 1, "dataset": "people", "query_id": "q", "analyst": "ann", "status": "answered",
            "kind": "predicate", "n": 200, "value": 0.25, "count": 50, "error_bar": 0.01, "confidence": 0.99,
            "difficulty": "hard", "path": "measured", "privacy_loss": {"share": cost, "blocks": 1},
            "budget": {"spent": 1 - left, "left": left}, "phase": 2, "window": [1, 2],
        }
    )  # fmt: skip
    assert isinstance(found, NoisyAnswer)
    return found


def table(rows: list[tuple[Any, ...]], **more: Any) -> ResultTable:
    columns = (
        Column("city [x]", "text"),
        Column("n", "integer"),
        Column("n_error_bar", "real", "n"),
        Column("mean", "real"),
        Column("mean_error_bar", "real", "mean"),
    )
    return ResultTable("people", columns, rows, **{"phases": (1, 2), **more})


def printed(found: ResultTable) -> list[str]:
    text = io.StringIO()
    console = Console(width=200, file=text)
    for piece in result_lines(found):
        console.print(piece)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_each_value_stands_with_its_half_width_and_the_price_of_all_queries_below() -> None:
    rows = [
        ("Bonn", 1200, 34.4, 31.4159, 0.21),
        (None, 1200, 0.0, 31.5, 0.0),
        ("Graz [b]", 7, None, None, None),
    ]
    answers = (answer(0.01, 0.9), answer(0.02, 0.8))
    heads, bonn, missing, graz, price, note = printed(
        table(rows, answers=answers, notes=("ask again tomorrow, or with at_most",))
    )
    assert heads.split() == ["city", "[x]", "n", "mean"]
    assert bonn.split("  ")[0] == "Bonn"
    assert bonn.endswith("1,200 ± 34  31.42 ± 0.21")
    assert missing.split() == ["missing", "1,200", "31.5"]
    assert graz.startswith("Graz [b]")
    assert graz.endswith("7, no error bar known       unknown")
    assert (
        price
        == "2 queries; cost 3.00% of a phase's budget, 80.00% of the budget left; phases 1 to 2"
    )
    assert note == "note: ask again tomorrow, or with --at-most"
    noted = answers[0].model_copy(update={"note": "ask with at_most"})
    (*_, said) = statement_lines(table(rows, answers=answers, answer=noted))
    assert str(said) == "note: ask with --at-most"


@pytest.mark.parametrize(
    ("answers", "phases", "last"),
    [
        ((answer(0.0, 0.5),), (2, 2), "1 query; free, 50.00% of the budget left; phase 2"),
        ((), None, "note: nothing was asked"),
    ],
)
def test_what_is_free_or_not_asked_says_so(answers: Any, phases: Any, last: str) -> None:
    notes = () if answers else ("nothing was asked",)
    lines = printed(table([], answers=answers, phases=phases, notes=notes))
    assert lines[-1] == last
