"""Quantiles through the worker: by groups, with conditions, for persons and as series."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import QuantileAnswer, QuantileByGroupAnswer, SeriesAnswer, read_answer

AA = {"attribute": "carrier", "eq": "AA"}
MEDIAN = {"kind": "quantile", "attribute": "delay", "rank": 0.5}


async def answers(world: Any, *rounds: Any, **settings: Any) -> dict[str, Any]:
    """Replies by query id: a data set of 21,000 rows, and queries in rounds, each by a new process."""
    await world.run(
        rounds=(
            lambda world: world.define("flights", **settings),
            lambda world: world.cells("flights", "one"),
        )
    )
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


async def test_quantiles_of_groups_and_conditions_need_no_kind_and_survive_a_restart(
    world: Any,
) -> None:
    def first(world: Any) -> None:
        world.ask("flights", "all", None, **MEDIAN, error=0.005)
        world.ask("flights", "groups", None, **MEDIAN, group_by=["carrier"], error=0.005)

    def then(world: Any) -> None:
        world.ask("flights", "again", None, **MEDIAN, group_by=["carrier"], error=0.005)
        world.ask("flights", "some", AA, **MEDIAN, error=0.005)
        world.ask(
            "flights", "most", None, kind="quantile", attribute="delay", rank=1.0, error=0.005
        )

    found = await answers(world, first, then)
    groups = read_answer(found["groups"])
    assert isinstance(groups, QuantileByGroupAnswer)
    assert groups.difficulty == "hard"
    assert found["again"]["table"] == found["groups"]["table"]
    for name in ("again", "some", "most"):
        assert found[name]["privacy_loss"]["share"] == 0.0, name
    some = read_answer(found["some"])
    assert isinstance(some, QuantileAnswer)
    assert some.lies_in == groups.table.lies_in[groups.table.labels[0].index("AA")]
    assert some.count == pytest.approx(groups.table.counts[0], abs=2)
    assert found["all"]["lies_in"]["label"] == "0 to 9"
    assert found["most"]["lies_in"]["label"] == ">= 30"


async def test_a_quote_is_what_the_quantile_costs(world: Any) -> None:
    def quote(world: Any) -> None:
        world.ask("flights", "quote", None, **MEDIAN, error=0.002, quote=True)

    def ask(world: Any) -> None:
        world.ask("flights", "asked", None, **MEDIAN, error=0.002)

    found = await answers(world, quote, ask)
    assert found["quote"]["privacy_loss"] == found["asked"]["privacy_loss"]
    assert found["quote"]["privacy_loss"]["share"] > 0.0
    assert 0.0 < found["quote"]["error_bar"] <= 0.002


async def test_quantiles_are_answered_where_persons_are_protected(world: Any) -> None:
    unit = {"key": "user_id", "rows_per_phase": 1, "phases": 2}
    privacy = {"epsilon": 4.0, "delta": 1e-6, "unit": unit}
    await world.run(
        rounds=(
            lambda world: world.define("flights", privacy=privacy),
            lambda world: world.batch("flights", "one", rows=_rows(21_000)),
            lambda world: world.ask("flights", "middle", None, **MEDIAN),
        )
    )
    assert world.complaints() == []
    answer = read_answer(world.answer("middle"))
    assert isinstance(answer, QuantileAnswer)
    assert answer.lies_in is not None
    assert answer.counted is not None
    assert answer.counted_bar is not None
    assert abs(answer.counted - 10_500) <= answer.counted_bar


def _rows(n: int) -> list[dict[str, Any]]:
    """Two rows of each person."""
    return [
        {"carrier": "AA", "delay": 15, "cancelled": False, "user_id": f"u{i // 2}"}
        for i in range(n)
    ]


async def test_a_series_asks_each_phase(world: Any) -> None:
    await world.run(
        rounds=(
            lambda world: world.define("flights"),
            lambda world: world.cells("flights", "one"),
            lambda world: world.cells("flights", "two"),
            lambda world: world.ask("flights", "q", None, **MEDIAN, series="phase"),
        )
    )
    assert world.complaints() == []
    answer = read_answer(world.answer("q"))
    assert isinstance(answer, SeriesAnswer)
    assert [part.answer.kind for part in answer.parts] == ["quantile", "quantile"]


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({**MEDIAN, "attribute": "carrier"}, "invalid_query", "have no order"),
        ({**MEDIAN, "attribute": "speed"}, "unknown_attribute", "attribute"),
        ({**MEDIAN, "group_by": ["delay"]}, "invalid_query", "whose quantile is asked"),
        ({**MEDIAN, "where": {"any": []}}, "invalid_query", "no row can satisfy it"),
        ({**MEDIAN, "where": {"attribute": "delay", "lt": 7}}, "cuts_bin", "ask < 0 or < 10"),
    ],
)
async def test_what_has_no_quantile_is_refused_in_words(
    world: Any, asked: dict[str, Any], code: str, words: str
) -> None:
    found = await answers(world, lambda world: world.ask("flights", "q", **asked))
    assert found["q"]["reason"]["code"] == code
    assert words in found["q"]["reason"]["message"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"error": {"value": 50}}, "share of the rows"),
        ({"error": {"relative": 0.1}}, "relative error"),
        ({"count_rows": True}, "count_rows: remove it"),
    ],
)
async def test_fields_that_a_quantile_does_not_have_are_rejected(
    world: Any, more: dict[str, Any], words: str
) -> None:
    world.define("flights")
    record = world.ask("flights", "q", None, **MEDIAN, **more)
    await world.run()
    assert words in world.rejection(record)["reason"]["message"]


async def test_another_profile_says_what_answers_quantiles(world: Any) -> None:
    found = await answers(
        world,
        lambda world: world.ask("flights", "q", None, **MEDIAN),
        mechanism={"profile": "counts"},
    )
    assert found["q"]["reason"]["code"] == "unsupported_kind"
    assert "calibrated" in found["q"]["reason"]["message"]
