"""Tables of statements at the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stream_dp import sql
from stream_dp.cli.text.reply_text import answer_lines, view_lines
from stream_dp.client import Column, ResultTable
from stream_dp.client.statements.statement_table import evaluate
from stream_dp.messages import NoisyAnswer, read_answer
from tests.answers import noisy_answer
from tests.cli.conftest import printed

GOLDEN = Path(__file__).parents[1] / "golden/answers"


def answer(cost: float, left: float) -> NoisyAnswer:
    more = {
        "privacy_loss": {"share": cost, "blocks": 1},
        "budget": {"spent": 1 - left, "left": left},
    }
    return noisy_answer(200, kind="predicate", value=0.25, count=50, error_bar=0.01, **more)


def table(rows: list[tuple[Any, ...]], **more: Any) -> ResultTable:
    columns = (
        Column("city [x]", "text"),
        Column("n", "integer"),
        Column("n_error_bar", "real", "n"),
        Column("mean", "real"),
        Column("mean_error_bar", "real", "mean"),
    )
    return ResultTable("people", columns, rows, **{"phases": (1, 2), **more})


def test_each_value_stands_with_its_half_width_and_the_price_of_all_queries_below() -> None:
    rows = [
        ("Bonn", 1200, 34.4, 31.4159, 0.21),
        (None, 1200, 0.0, 31.5, 0.0),
        ("Graz [b]", 7, None, None, None),
    ]
    answers = (answer(0.01, 0.9), answer(0.02, 0.8))
    noisy = table(rows, answers=answers, notes=("values are noisy",))
    heads, bonn, missing, graz, price, note = printed(*view_lines(noisy.view))
    assert heads.split() == ["city", "[x]", "n", "mean"]
    assert bonn.split("  ")[0] == "Bonn"
    assert bonn.endswith("1,200 ± 34  31.42 ± 0.21")
    assert missing.split() == ["missing", "1,200", "31.5"]
    assert graz.startswith("Graz [b]")
    assert graz.split()[-2:] == ["unknown", "unknown"], "7 is a guess"
    left = "80.00% of the budget left; phases 1 to 2"
    assert price == f"2 queries; cost 3.00% of a phase's budget, {left}"
    assert note == "note: values are noisy"
    alone = table([], answers=(answer(0.0, 0.5),), phases=(2, 2))
    assert (
        printed(*view_lines(alone.view))[-1] == "1 query; free, 50.00% of the budget left; phase 2"
    )
    unasked = table([], phases=None, notes=("nothing was asked",))
    assert printed(*view_lines(unasked.view))[-1] == "note: nothing was asked"
    noted = answers[0].model_copy(update={"note": "ask with at_most"})
    (*_, said) = view_lines(table(rows, answers=answers, answer=noted).view)
    assert str(said) == "note: ask with COSTING AT MOST"


# ---------------------------------------------------------------- one answer, read as it was asked


def asked(text: str, answer: Any) -> str:
    """What somebody reads who asked a text of one query."""
    schema = [{"name": "delay", "type": "number", "edges": [0, 30], "integer": True}]
    plan = sql.plan(text, schema)
    return "\n".join(printed(*view_lines(evaluate(plan, "flights", [answer]).view)))


def series_of_sums(**part: Any) -> Any:
    """The sums of two weeks. ``part`` replaces fields of the second one."""
    document = json.loads((GOLDEN / "series-sum.json").read_bytes())
    document["parts"][1]["answer"] |= part
    return read_answer(document)


def test_a_series_shows_the_column_that_was_asked_with_order_by_and_without() -> None:
    use = {"useful": "rough", "suggestion": "within a quarter; a tenth would take 3%"}
    text = "SELECT week, SUM(delay) AS d FROM flights GROUP BY week"
    said = asked(text, series_of_sums(**use))
    assert said == asked(f"{text} ORDER BY week", series_of_sums(**use))
    assert said.split()[:2] == ["week", "d"]
    assert "2026-11-02  38,381 ± 4,703" in said
    assert "1 query; cost 0.96% of a phase's budget" in said
    assert (
        "note: some values (from 2026-11-09) are rough: within a quarter; a tenth would take 3%"
        in said
    )


def test_a_series_of_a_condition_is_one_answer_with_the_use_and_notes_of_its_parts() -> None:
    said = [*map(str, answer_lines(series_of_sums(useful="no", suggestion="ask less")))][-2:]
    assert said[0] == "some values (from 2026-11-09) are not precise enough to use: ask less"
    assert said[1].startswith("note: the bars leave the width of the bins out")
    whole = read_answer((GOLDEN / "sum.json").read_bytes())
    text = "SELECT SUM(delay) AS total, AVG(delay) AS mean_delay FROM flights"
    assert asked(text, whole).split()[:2] == ["total", "mean_delay"], "as the statement names them"
    assert asked("SELECT SUM(delay), AVG(delay) FROM flights", whole).startswith("sum ")
    assert "sum" not in asked("WHERE delay >= 0 GROUP BY week", counts_by_week())


def counts_by_week() -> Any:
    document = json.loads((GOLDEN / "series.json").read_bytes())
    return read_answer({**document, "series": "week"})


def test_parts_that_are_refused_for_one_reason_are_named_once() -> None:
    document = json.loads((GOLDEN / "series-sum.json").read_bytes())
    for part, price in zip(document["parts"], (63.5, 53.4), strict=True):
        reason = {"code": "cost_above_limit", "message": f"the answer would take {price}%"}
        names = ("version", "dataset", "query_id", "analyst")
        known = {name: part["answer"][name] for name in names}
        part["answer"] = {**known, "status": "refused", "reason": reason}
    text = "SELECT week, SUM(delay) AS d FROM flights GROUP BY week"
    found = asked(text, read_answer(document)).splitlines()
    said = "(2 parts; this is why the first is): the answer would take 63.5%"
    assert [line for line in found if "missing" in line] == [
        f"note: some values are missing {said}"
    ]
