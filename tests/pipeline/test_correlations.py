"""Correlations through the worker: with conditions and errors of their own, repeated, and for persons."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.core.outcome import Path, Summed
from stream_dp.core.residual.ways.correlations import Correlations
from stream_dp.errors import InvalidInput
from stream_dp.messages import CorrelationAnswer, QueryFields, read_answer

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "edges": [20, 40, 60], "integer": True, "missing": True},
    {"name": "hours", "type": "number", "edges": [10, 30, 50], "integer": True, "missing": False},
    {"name": "smoker", "type": "boolean", "missing": False},
]
ASKED = {"kind": "correlation", "attribute": "age", "other": "hours"}
SMOKERS = {"attribute": "smoker", "eq": True}
COUNTS = {
    (10, 5): 4,
    (10, 40): 1,
    (30, 20): 4,
    (50, 20): 1,
    (50, 40): 4,
    (70, 60): 3,
    (None, 40): 2,
}
DEFINED = {"attributes": ATTRIBUTES, "accuracy": {"failure_probability": 0.01, "aim": 0.1}}


def cells(n: int) -> list[dict[str, Any]]:
    """Cells of ``19 n`` rows of smokers, and as many others."""
    return [
        {"age": age, "hours": hours, "smoker": smoker, "count": n * count}
        for (age, hours), count in COUNTS.items()
        for smoker in (False, True)
    ]


async def test_a_correlation_is_answered_once_and_then_repeated(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("people", "all", None, **ASKED)
        world.ask("people", "some", SMOKERS, **ASKED)
        world.ask("people", "near", None, **ASKED, error={"value": 0.04})

    def again(world: Any) -> None:
        world.ask("people", "turned", None, kind="correlation", attribute="hours", other="age")

    await world.run(
        rounds=(
            lambda world: world.define("people", **DEFINED),
            lambda world: world.batch("people", "one", cells=cells(2_000)),
            ask,
        )
    )
    await world.run(rounds=(again,))
    assert world.complaints() == []
    found = {name: read_answer(world.answer(name)) for name in ("all", "some", "near", "turned")}
    for name, answer in found.items():
        assert isinstance(answer, CorrelationAnswer), name
        assert -1.0 <= answer.value_low <= answer.value <= answer.value_high <= 1.0
        assert answer.value_low < 0.8376 < answer.value_high, "by the middles of bins"
        assert answer.note is not None
        assert "2.5 deviations" in answer.note
    everyone, turned = found["all"], found["turned"]
    assert isinstance(everyone, CorrelationAnswer)
    assert isinstance(turned, CorrelationAnswer)
    assert everyone.useful in ("yes", "rough")
    assert turned.privacy_loss.share == 0.0
    assert (turned.value, turned.value_low) == (everyone.value, everyone.value_low)


async def test_looks_that_fall_short_of_the_error_make_a_hard_answer(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(_: object, step: object) -> object:
        return replace(step, path=Path.UNVERIFIED) if isinstance(step, Summed) else step

    monkeypatch.setattr(Correlations, "_promised", short)
    await world.run(
        rounds=(
            lambda world: world.define("people", **DEFINED),
            lambda world: world.batch("people", "one", cells=cells(2_000)),
            lambda world: world.ask("people", "near", None, **ASKED, error={"value": 0.04}),
        )
    )
    answer = world.answer("near")
    assert (answer["path"], answer["difficulty"]) == ("unverified", "hard")
    assert answer["privacy_loss"]["share"] > 0.0


async def test_a_quote_says_what_the_first_look_costs_and_all_at_most(world: Any) -> None:
    await world.run(
        rounds=(
            lambda world: world.define("people", **DEFINED),
            lambda world: world.batch("people", "one", cells=cells(2_000)),
            lambda world: world.ask("people", "quote", None, **ASKED, quote=True),
            lambda world: world.ask("people", "asked", None, **ASKED),
        )
    )
    assert world.complaints() == []
    quote, asked = world.answer("quote"), world.answer("asked")
    first, paid = quote["privacy_loss"], asked["privacy_loss"]["share"]
    assert 0.0 < first["share"] <= paid <= quote["most"]


async def test_correlations_are_answered_where_persons_are_protected(world: Any) -> None:
    unit = {"key": "user_id", "rows_per_phase": 1, "phases": 2}
    rows = [
        {"age": age, "hours": hours, "smoker": False, "user_id": f"u{number}-{age}-{hours}"}
        for number in range(1_300)
        for (age, hours), count in COUNTS.items()
        for _ in range(count)
    ]
    await world.run(
        rounds=(
            lambda world: world.define(
                "people", **DEFINED, privacy={"epsilon": 4.0, "delta": 1e-6, "unit": unit}
            ),
            lambda world: world.batch("people", "one", rows=rows),
            lambda world: world.ask("people", "q", None, **ASKED, error={"value": 0.2}),
        )
    )
    assert world.complaints() == []
    answer = read_answer(world.answer("q"))
    assert isinstance(answer, CorrelationAnswer)
    assert answer.value_low < answer.value_high < 1.0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({**ASKED, "attribute": "smoker"}, "has no numbers"),
        ({**ASKED, "other": "age"}, "it is age itself"),
        ({**ASKED, "where": {"any": []}}, "no row can satisfy it"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    world: Any, asked: dict[str, Any], words: str
) -> None:
    await world.run(
        rounds=(
            lambda world: world.define("people", **DEFINED),
            lambda world: world.batch("people", "one", cells=cells(2_000)),
            lambda world: world.ask("people", "q", **asked),
        )
    )
    assert words in str(world.answer("q")["reason"])


@pytest.mark.parametrize("error", [0.05, {"relative": 0.1}, {"mean": 0.1}, {"value": 1.5}])
def test_an_error_is_a_value_below_one(error: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        QueryFields.read({**ASKED, "query_id": "q", "error": error})
    assert "error" in str(caught.value)


async def test_a_statement_shows_the_correlation_with_its_bar_and_says_of_what(world: Any) -> None:
    text = "SELECT COUNT(*) AS n, CORR(age, hours) AS r FROM people WHERE smoker"
    plan = sql.plan(text, ATTRIBUTES, dataset="people")
    items = [{"query_id": f"q{number}", **asked} for number, asked in enumerate(plan.queries)]
    await world.run(
        rounds=(
            lambda world: world.define("people", **DEFINED),
            lambda world: world.batch("people", "one", cells=cells(2_000)),
            lambda world: world.ask_many("people", items),
        )
    )
    assert world.complaints() == []
    replies = [read_answer(json.dumps(world.answer(item["query_id"])).encode()) for item in items]
    table = Statement(text, "people", plan).table(replies)
    assert isinstance(table, ResultTable)
    assert [column.name for column in table.columns][2:] == ["r", "r_error_bar"]
    ((_, _, value, bar),) = table.rows
    assert isinstance(value, float)
    assert isinstance(bar, float)
    assert abs(value - 0.8376) <= bar < 0.3
    assert any("2.5 deviations" in note for note in table.notes)
