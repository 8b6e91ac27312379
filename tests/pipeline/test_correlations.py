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
from stream_dp.messages import CorrelationAnswer, read_answer
from tests.pipeline.flights import asked, judged, opened

pytestmark = judged

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


async def people(world: Any) -> None:
    await opened(world, "people", rows={"cells": cells(2_000)}, **DEFINED)


async def asks(world: Any, *queries: dict[str, Any]) -> list[Any]:
    return await asked(world, *({**ASKED, **query} for query in queries), dataset="people")


async def test_a_correlation_is_answered_once_and_then_repeated(world: Any) -> None:
    await people(world)
    some: list[Any] = [{}, {"where": SMOKERS}, {"error": {"value": 0.04}}]
    replies = await asks(world, *some)
    replies += await asks(world, {"attribute": "hours", "other": "age"})
    found = [read_answer(reply) for reply in replies]
    for answer in found:
        assert isinstance(answer, CorrelationAnswer)
        assert -1.0 <= answer.value_low <= answer.value <= answer.value_high <= 1.0
        assert answer.value_low < 0.8376 < answer.value_high, "by the middles of bins"
        assert answer.note is not None
        assert "2.5 deviations" in answer.note
    everyone, *_, turned = found
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
    await people(world)
    [answer] = await asks(world, {"error": {"value": 0.04}})
    assert (answer["path"], answer["difficulty"]) == ("unverified", "hard")
    assert answer["privacy_loss"]["share"] > 0.0


async def test_a_quote_says_what_the_first_look_costs_and_all_at_most(world: Any) -> None:
    await people(world)
    [quote] = await asks(world, {"quote": True})
    [answer] = await asks(world, {})
    first, paid = quote["privacy_loss"]["share"], answer["privacy_loss"]["share"]
    assert 0.0 < first <= paid <= quote["most"]


async def test_correlations_are_answered_where_persons_are_protected(world: Any) -> None:
    unit = {"key": "user_id", "rows_per_phase": 1, "phases": 2}
    rows = [
        {"age": age, "hours": hours, "smoker": False, "user_id": f"u{number}-{age}-{hours}"}
        for number in range(1_300)
        for (age, hours), count in COUNTS.items()
        for _ in range(count)
    ]
    privacy = {"epsilon": 4.0, "delta": 1e-6, "unit": unit}
    await opened(world, "people", rows={"rows": rows}, **DEFINED, privacy=privacy)
    answer = read_answer((await asks(world, {"error": {"value": 0.2}}))[0])
    assert isinstance(answer, CorrelationAnswer)
    assert answer.value_low < answer.value_high < 1.0


async def test_a_statement_shows_the_correlation_with_its_bar_and_says_of_what(world: Any) -> None:
    text = "SELECT COUNT(*) AS n, CORR(age, hours) AS r FROM people WHERE smoker"
    plan = sql.plan(text, ATTRIBUTES, dataset="people")
    await people(world)
    found = await asked(world, *plan.queries, dataset="people")
    replies = [read_answer(json.dumps(reply).encode()) for reply in found]
    table = Statement(text, "people", plan).table(replies)
    assert isinstance(table, ResultTable)
    assert [column.name for column in table.columns][2:] == ["r", "r_error_bar"]
    ((_, _, value, bar),) = table.rows
    assert isinstance(value, float)
    assert isinstance(bar, float)
    assert abs(value - 0.8376) <= bar < 0.3
    assert any("2.5 deviations" in note for note in table.notes)
