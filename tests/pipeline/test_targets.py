"""The error and the price that a query names, through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import InvalidMessage
from stream_dp.messages import QueryFields
from tests.pipeline.flights import (
    AA,
    LATE,
    asked,
    asked_in_turn,
    assert_said,
    judged,
    opened,
    spent,
    within,
)

pytestmark = judged

N_AA, N = 9_000, 21_000
UNPACED = {"base_share": 0.0, "pacing": False}


@pytest.fixture
async def flights(world: Any) -> Any:
    """A data set in its first phase, and nothing measured yet."""
    return await opened(world, mechanism=UNPACED)


async def test_the_answer_is_as_precise_as_was_asked_and_a_quote_says_so_before(
    flights: Any,
) -> None:
    for error in (0.02, 0.005, {"value": 50}):
        share = error if isinstance(error, float) else 50 / N
        query = {"where": AA, "error": error}
        quote, answer = await asked_in_turn(flights, {**query, "quote": True}, query)
        assert 0.8 * share < answer["error_bar"] <= share * (1 + 1e-6)
        assert quote["error_bar"] == pytest.approx(answer["error_bar"], rel=1e-9)
        assert quote["privacy_loss"] == answer["privacy_loss"]
        assert "expected" not in quote
        assert within(answer["count"], N_AA, answer["error_bar"] * N + 1)


async def test_a_relative_error_takes_several_looks_and_says_what_they_cost_together(
    flights: Any,
) -> None:
    query = {"where": AA, "error": {"relative": 0.03}}
    [quote] = await asked(flights, {**query, "quote": True})
    assert quote["expected"] is True
    assert "10%" in quote["note"]
    assert spent(flights) == 0
    [answer] = await asked(flights, query)
    assert (answer["difficulty"], answer["path"]) == ("hard", "measured")
    assert within(answer["count"], N_AA, 0.03 * N_AA)
    assert answer["error_bar"] * N <= 0.03 * answer["count"]
    assert answer["privacy_loss"]["blocks"] == 1
    assert answer["privacy_loss"]["share"] == pytest.approx(spent(flights), rel=1e-9)
    again, coarse = await asked(flights, query, {"where": AA, "error": {"relative": 0.5}})
    assert (again["path"], coarse["path"]) == ("repeat", "repeat")
    assert again["count"] == answer["count"]


async def test_a_query_above_its_price_is_refused_and_nothing_is_spent(flights: Any) -> None:
    query = {"where": AA, "error": 0.002}
    [quote] = await asked(flights, {**query, "quote": True})
    price = quote["privacy_loss"]["share"]
    half = {**query, "at_most": price / 2}
    cases = [(half, "price_too_high", "at_most"), (half | {"quote": True}, "price_too_high", "at_")]
    await assert_said(flights, cases)
    assert spent(flights) == 0
    [answer] = await asked(flights, {**query, "at_most": 1.01 * price})
    assert answer["path"] == "measured"


async def test_a_relative_error_of_nothing_costs_little_and_promises_nothing(flights: Any) -> None:
    nothing = {"where": {"all": [AA, LATE]}, "error": {"relative": 0.05}}
    [answer] = await asked(flights, nothing)
    assert answer["path"] == "unverified"
    assert answer["value"] <= answer["error_bar"] < 0.2
    assert answer["privacy_loss"]["share"] < 0.02


@pytest.mark.parametrize(
    ("fields", "field", "fix"),
    [
        ({"error": 0}, "error", "greater than 0"),
        ({"error": 1}, "error", "less than 1"),
        ({"error": "5%"}, "error", '{"relative": 0.05}'),
        ({"error": {"relative": 0.05, "value": 2}}, "error", '{"value": 2.5}'),
        ({"error": {"relatively": 0.05}}, "error", '{"relative": 0.05}'),
        ({"error": {"mean": 2}}, "message", "as a share"),
        ({"error": {"relative": 1.5}}, "error.relative", "less than 1"),
        ({"error": {"value": -1}}, "error.value", "greater than 0"),
        ({"at_most": 2}, "at_most", "at most 1"),
        ({"at_most": "2%"}, "at_most", "without quotes"),
        ({"kind": "median", "attribute": "delay", "error": 0.1}, "message", "remove it"),
        ({"kind": "mode", "attribute": "delay", "at_most": 0.1}, "message", "remove it"),
        (
            {"kind": "table", "group_by": ["carrier"], "error": {"relative": 0.1}},
            "message",
            "share",
        ),
        ({"kind": "sum", "attribute": "delay", "error": {"relative": 0.1}}, "message", "share"),
        (
            {"kind": "sum", "attribute": "delay", "error": {"value": 9}, "count_rows": True},
            "message",
            "remove count_rows",
        ),
    ],
)
def test_a_wrong_target_is_refused_with_its_field_and_the_fix(
    fields: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(InvalidMessage) as caught:
        QueryFields.read({"query_id": "q", **fields})
    assert caught.value.field == field
    assert fix in f"{caught.value.problem}; {caught.value.fix}"


async def test_the_definition_limits_what_a_query_takes(world: Any) -> None:
    accuracy = {"error": 0.02, "least_error": 0.001, "query_share": 0.001}
    await opened(world, accuracy=accuracy, mechanism=UNPACED)
    dear = {"where": AA, "error": 0.002}
    cases = [(dear, "price_too_high", ""), (dear | {"error": 0.0005}, "invalid_query", "error: ")]
    await assert_said(world, cases)
    [allowed] = await asked(world, {**dear, "at_most": 0.9})
    assert allowed["status"] == "answered"
