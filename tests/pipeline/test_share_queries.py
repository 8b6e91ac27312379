"""Shares of the rows of a condition through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import TOPICS, BudgetShares, PrivacyLoss, ShareByGroupAnswer, ShareTable
from stream_dp.pipeline.queries.compiler import MOST_SUMS

AA, LATE = {"attribute": "carrier", "eq": "AA"}, {"attribute": "delay", "ge": 30}
SHARE: dict[str, Any] = {"kind": "share", "share_of": LATE}
ATTRIBUTES = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"], "other": False},
    {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True, "missing": True},
]
EXACT = {"AA": 2_000 / 15_000, "UA": 0.0}


def fill(world: Any) -> None:
    counts = [("AA", 5, 9_000), ("AA", 45, 2_000), ("UA", 20, 8_000), ("UA", -3, 1_000)]
    cells = [{"carrier": c, "delay": d, "count": n} for c, d, n in counts]
    world.batch("flights", "one", cells=[*cells, {"carrier": "AA", "count": 4_000}])


async def asked(world: Any, *rounds: Any, **changes: Any) -> dict[str, Any]:
    def define(world: Any) -> None:
        world.define("flights", **{"attributes": ATTRIBUTES, **changes})

    await world.run(rounds=(define, fill))
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


@pytest.mark.parametrize("base_share", [0.0, 0.2], ids=["measured", "certified"])
async def test_a_share_and_its_table_are_within_their_bars(world: Any, base_share: float) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""

    def ask(world: Any) -> None:
        world.ask("flights", "price", AA, **SHARE, quote=True)
        world.ask("flights", "one", AA, **SHARE)
        world.ask("flights", "near", AA, **SHARE, error={"value": 0.05})

    def again(world: Any) -> None:
        world.ask("flights", "again", AA, **SHARE)
        world.ask("flights", "each", **SHARE, group_by=["carrier"])

    mechanism = {"profile": "calibrated", "base_share": base_share}
    accuracy = {"error": 0.05, "failure_probability": 1e-9}
    privacy = {"epsilon": 4.0, "delta": 1e-9}
    found = await asked(world, ask, again, mechanism=mechanism, accuracy=accuracy, privacy=privacy)
    one, table = found["one"], found["each"]["table"]
    assert found["price"]["privacy_loss"] == one["privacy_loss"]
    assert one["path"] == ("certified" if base_share else "measured")
    assert abs(one["both"] - 2_000) <= one["both_bar"] <= 0.05 * 24_000
    assert abs(one["count"] - 15_000) <= one["error_bar"] * 24_000
    assert found["near"]["share_bar"] <= 0.05
    for name in ("one", "near", "again"):
        assert abs(found[name]["share"] - EXACT["AA"]) <= found[name]["share_bar"]
    assert found["again"]["difficulty"] == "easy"
    assert found["each"]["kind"] == "share_by_group"
    for i, exact in enumerate(EXACT.values()):
        assert abs(table["shares"][i] - exact) <= table["share_bars"][i]
        assert 0.0 <= table["shares"][i] <= 1.0


async def test_two_ways_to_write_a_share_are_one_request(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", AA, **SHARE)

    def reuse(world: Any) -> None:
        both = {"all": [LATE, AA]}
        world.ask(
            "flights",
            "q",
            {"not": {"attribute": "carrier", "eq": "UA"}},
            kind="share",
            share_of=both,
        )
        world.ask("flights", "q", AA, kind="share", share_of={"attribute": "delay", "lt": 30})

    await asked(world, ask, reuse)
    ((rejected,),) = world.rejections().values()
    assert rejected["reason"]["code"] == "id_reused"


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"share_of": AA, "where": {"attribute": "carrier", "eq": "UA"}}, "the share is 0"),
        ({"share_of": AA, "where": {"all": [AA, LATE]}}, "the share is 1"),
        ({"share_of": AA, "where": {"any": []}}, "where: no row can satisfy it"),
        ({"share_of": {"attribute": "delay", "ge": 7}}, "share_of.ge: this cuts the bin"),
        ({"share_of": {"all": [{"attribute": "town", "eq": 1}]}}, "share_of.all[0].attribute"),
        ({}, 'kind "share" needs share_of: add it'),
        ({**SHARE, "fresh": True}, 'kind "share" has no fresh: remove it'),
        ({**SHARE, "error": {"relative": 0.1}}, "no relative error"),
        ({**SHARE, "error": {"mean": 0.1}}, 'write {"value": 0.01}'),
        ({**SHARE, "error": {"value": 1.5}}, "below 1"),
        ({"kind": "predicate", "share_of": AA}, 'kind "predicate" has no share_of'),
    ],
)
async def test_shares_that_cannot_be_are_refused_in_words(
    world: Any, item: dict[str, Any], words: str
) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", **{"kind": "share", **item})

    found = await asked(world, ask)
    rejected = [
        reply["reason"]["message"] for replies in world.rejections().values() for reply in replies
    ]
    said = [answer["reason"]["message"] for answer in found.values()]
    (message,) = rejected + said
    assert words in message


@pytest.mark.parametrize("profile", ["gated", "counts", "whole_table"])
async def test_other_profiles_say_what_to_ask_instead(world: Any, profile: str) -> None:
    mechanism = {"profile": profile, **({"segments": 20} if profile == "gated" else {})}

    def ask(world: Any) -> None:
        world.ask("flights", "q", **SHARE)

    found = await asked(world, ask, mechanism=mechanism, attributes=ATTRIBUTES)
    assert found["q"]["reason"]["code"] == "unsupported_kind"
    assert "ask for both counts" in found["q"]["reason"]["message"]


async def test_without_budget_a_share_says_so(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", AA, **SHARE)
        world.ask("flights", "near", AA, **SHARE, error={"value": 0.001}, at_most=0.0001)

    found = await asked(world, ask, privacy={"epsilon": 0.001, "delta": 1e-9})
    assert found["q"]["path"] == "unverified"
    assert "share" not in found["q"]


def test_the_longest_numbers_of_the_largest_table_of_shares_fit_into_a_record() -> None:
    share = (0.0001234567890123456,) * MOST_SUMS
    rows, bars = (10**18,) * MOST_SUMS, (1.2345678901234567e300,) * MOST_SUMS
    table = ShareTable(
        attributes=("carrier",),
        labels=(tuple(map(str, range(MOST_SUMS))),),
        values=share,
        error_bars=share,
        shares=share,
        share_bars=share,
        share_lows=share,
        share_highs=share,
        counts=rows,
        lows=rows,
        highs=rows,
        both=rows,
        both_bars=bars,
    )
    answer = ShareByGroupAnswer(
        dataset="d",
        query_id="q",
        analyst="a",
        n=10**18,
        difficulty="hard",
        path="measured",
        privacy_loss=PrivacyLoss(share=0.1),
        budget=BudgetShares(spent=0.1, left=0.9),
        phase=1,
        window=(1, 1),
        table=table,
    )
    assert len(answer.to_bytes()) < TOPICS["answers"].max_message_bytes - 100_000
