"""The error and the price that a query names, through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import InvalidDefinition, InvalidMessage
from stream_dp.messages import Definition, QueryFields
from tests.pipeline.world import definition

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}
N_AA, N = 9_000, 21_000


@pytest.fixture
async def flights(world: Any) -> Any:
    """Asks in rounds; a data set in its first phase, and nothing measured yet."""

    def begin(world: Any) -> None:
        world.define("flights", mechanism={"base_share": 0.0, "pacing": False})

    await world.run(rounds=(begin, lambda world: world.cells("flights", "first")))

    async def ask(*queries: dict[str, Any]) -> list[dict[str, Any]]:
        ids = [f"{world.next_offset('queries', 'flights')}-{i}" for i in range(len(queries))]
        items = [
            {"query_id": query_id, **query} for query_id, query in zip(ids, queries, strict=True)
        ]
        await world.run(rounds=(lambda world: world.ask_many("flights", items),))
        assert world.complaints() == []
        return [world.answer(query_id) for query_id in ids]

    ask.world = world  # type: ignore[attr-defined]
    return ask


async def test_the_answer_is_as_precise_as_was_asked_and_a_quote_says_so_before(
    flights: Any,
) -> None:
    for error in (0.02, 0.005, {"value": 50}):
        share = error if isinstance(error, float) else 50 / N
        asked = {"where": AA, "error": error}
        (quote,) = await flights({**asked, "quote": True})
        (answer,) = await flights(asked)
        assert 0.8 * share < answer["error_bar"] <= share * (1 + 1e-6)
        assert quote["error_bar"] == pytest.approx(answer["error_bar"], rel=1e-9)
        assert quote["privacy_loss"] == answer["privacy_loss"]
        assert "expected" not in quote
        assert abs(answer["count"] - N_AA) <= answer["error_bar"] * N + 1


async def test_a_relative_error_takes_several_looks_and_says_what_they_cost_together(
    flights: Any,
) -> None:
    asked = {"where": AA, "error": {"relative": 0.03}}
    (quote,) = await flights({**asked, "quote": True})
    assert quote["expected"] is True
    assert "10%" in quote["note"]
    before = flights.world.held("flights").spent
    assert before == [(0, 0)]
    (answer,) = await flights(asked)
    assert (answer["difficulty"], answer["path"]) == ("hard", "measured")
    assert abs(answer["count"] - N_AA) <= 0.03 * N_AA
    assert answer["error_bar"] * N <= 0.03 * answer["count"]
    ((rho, _),) = flights.world.held("flights").spent
    assert answer["privacy_loss"]["blocks"] == 1
    assert answer["privacy_loss"]["share"] == pytest.approx(rho / 2**50, rel=1e-9)
    again, coarse = await flights(asked, {"where": AA, "error": {"relative": 0.5}})
    assert (again["path"], coarse["path"]) == ("repeat", "repeat")
    assert again["count"] == answer["count"]


async def test_a_query_above_its_price_is_refused_and_nothing_is_spent(flights: Any) -> None:
    (quote,) = await flights({"where": AA, "error": 0.002, "quote": True})
    price = quote["privacy_loss"]["share"]
    refused, quoted = await flights(
        {"where": AA, "error": 0.002, "at_most": price / 2},
        {"where": AA, "error": 0.002, "at_most": price / 2, "quote": True},
    )
    for reply in (refused, quoted):
        assert reply["reason"]["code"] == "price_too_high"
        assert "at_most" in reply["reason"]["message"]
    assert flights.world.held("flights").spent == [(0, 0)]
    (answer,) = await flights({"where": AA, "error": 0.002, "at_most": 1.01 * price})
    assert answer["path"] == "measured"


async def test_an_id_stands_for_one_error(flights: Any) -> None:
    world = flights.world

    def ask(world: Any) -> None:
        world.ask("flights", "one", AA, error=0.01)

    def otherwise(world: Any) -> None:
        world.ask("flights", "one", AA, error=0.02)
        world.ask("flights", "one", AA, at_most=0.5)
        world.ask("flights", "one", AA)

    await world.run(rounds=(ask,))
    before = world.answer("one")
    await world.run(rounds=(otherwise, ask))
    assert world.answer("one") == before
    codes = [r["reason"]["code"] for replies in world.rejections().values() for r in replies]
    assert codes == ["id_reused"] * 3
    assert world.complaints() == []


async def test_a_relative_error_of_nothing_costs_little_and_promises_nothing(flights: Any) -> None:
    nothing = {"all": [AA, LATE]}
    (answer,) = await flights({"where": nothing, "error": {"relative": 0.05}})
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


async def test_other_profiles_refuse_a_target(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "error", AA, error=0.01)
        world.ask("flights", "price", AA, at_most=0.01)
        world.ask("flights", "plain", AA)

    await world.run(
        rounds=(
            lambda world: world.define("flights", mechanism={"profile": "counts"}),
            lambda world: world.cells("flights", "first"),
            ask,
        )
    )
    for query_id, field in (("error", "error"), ("price", "at_most")):
        reason = world.answer(query_id)["reason"]
        assert reason["code"] == "invalid_query"
        assert reason["message"].startswith(f"{field}: ")
    assert world.answer("plain")["status"] == "answered"


def test_limits_are_read_and_written_only_where_a_definition_names_them() -> None:
    plain = Definition.read(definition("flights"))
    assert b"least_error" not in plain.to_bytes()
    assert b"query_share" not in plain.to_bytes()
    accuracy = {"error": 0.02, "least_error": 0.001, "query_share": 0.05}
    limited = Definition.read(definition("flights", accuracy=accuracy))
    assert Definition.read(limited.model_dump(mode="json")) == limited
    assert b'"least_error":0.001,"query_share":0.05' in limited.to_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": {"error": 0.02, "query_share": 0.1}, "mechanism": {"profile": "counts"}},
        {"accuracy": {"error": 0.02, "least_error": 0.01}, "mechanism": {"profile": "whole_table"}},
        {"accuracy": {"error": 0.02, "least_error": 0.03}},
        {"accuracy": {"error": 0.02, "query_share": 0}},
    ],
)
def test_limits_that_no_query_could_use_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        Definition.read(definition("flights", **changes))


async def test_the_definition_limits_what_a_query_takes(world: Any) -> None:
    def begin(world: Any) -> None:
        accuracy = {"error": 0.02, "least_error": 0.001, "query_share": 0.001}
        world.define("flights", accuracy=accuracy, mechanism={"base_share": 0.0, "pacing": False})

    def ask(world: Any) -> None:
        world.ask("flights", "dear", AA, error=0.002)
        world.ask("flights", "allowed", AA, error=0.002, at_most=0.9)
        world.ask("flights", "small", AA, error=0.0005)

    await world.run(rounds=(begin, lambda world: world.cells("flights", "first"), ask))
    assert world.answer("dear")["reason"]["code"] == "price_too_high"
    assert world.answer("allowed")["status"] == "answered"
    assert world.answer("small")["reason"]["message"].startswith("error: ")
    assert world.complaints() == []
