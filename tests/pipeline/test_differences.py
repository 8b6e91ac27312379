"""Differences of two windows through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Quote
from stream_dp.pipeline.queries.two_windows import quote_of_both

AA, LATE = {"attribute": "carrier", "eq": "AA"}, {"attribute": "delay", "ge": 10}
DIFFERENCE: dict[str, Any] = {"kind": "difference"}
BEFORE: dict[str, Any] = {"window": {"last_phases": 1}, "minus_window": {"previous_phases": 1}}
CALIBRATED = {"profile": "calibrated", "base_share": 0.0}


def day(name: str, late: int, early: int) -> Any:
    def fill(world: Any) -> None:
        cells = [
            {"carrier": "AA", "delay": 45, "cancelled": False, "count": late},
            {"carrier": "UA", "delay": 5, "cancelled": False, "count": early},
        ]
        world.batch("flights", name, cells=cells)

    return fill


async def asked(world: Any, *rounds: Any, days: int = 3, **changes: Any) -> dict[str, Any]:
    sizes = [(5_000, 15_000), (8_000, 16_000), (12_000, 12_000)]
    opened = [day(f"day-{n}", *sizes[n]) for n in range(days)]
    await world.run(rounds=(lambda world: world.define("flights", **changes), *opened))
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


async def test_a_difference_and_its_table_are_within_their_bars(world: Any) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""

    def price(world: Any) -> None:
        world.ask("flights", "price", LATE, **DIFFERENCE, **BEFORE, quote=True)

    def ask(world: Any) -> None:
        world.ask("flights", "day", LATE, **DIFFERENCE, **BEFORE)

    def more(world: Any) -> None:
        world.ask("flights", "again", LATE, **DIFFERENCE, **BEFORE)
        nested = {"window": {"last_phases": 1}, "minus_window": {"last_phases": 3}}
        world.ask("flights", "nested", LATE, **DIFFERENCE, **nested, error=0.03)
        world.ask("flights", "each", **DIFFERENCE, **BEFORE, group_by=["carrier"])

    accuracy = {"error": 0.05, "failure_probability": 1e-9}
    privacy = {"epsilon": 4.0, "delta": 1e-9}
    found = await asked(
        world, price, ask, more, mechanism=CALIBRATED, accuracy=accuracy, privacy=privacy
    )
    one = found["day"]
    assert (one["kind"], one["path"]) == ("difference", "measured")
    assert found["price"]["privacy_loss"] == one["privacy_loss"]
    assert found["price"]["error_bar"] == pytest.approx(one["error_bar"])
    assert (one["n"], one["window"], one["minus_n"], one["minus_window"]) == (
        24_000,
        [3, 3],
        24_000,
        [2, 2],
    )
    assert abs(one["value"] - (12 / 24 - 8 / 24)) <= one["error_bar"] <= 0.05
    assert abs(one["count"] - 4_000) <= one["count_bar"]
    assert found["again"]["value"] == one["value"]
    assert found["again"]["difficulty"] == "easy"
    nested = found["nested"]
    assert nested["minus_window"] == [1, 3]
    assert abs(nested["value"] - (12 / 24 - 25 / 68)) <= nested["error_bar"] <= 0.03
    assert found["each"]["kind"] == "difference_by_group"
    table = found["each"]["table"]
    assert table["attributes"] == ["carrier"]
    for i, (share, count) in enumerate([(12 / 24 - 8 / 24, 4_000), (12 / 24 - 16 / 24, -4_000)]):
        assert abs(table["values"][i] - share) <= table["error_bars"][i]
        assert abs(table["counts"][i] - count) <= table["count_bars"][i]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({**BEFORE, "where": None}, "where: every row satisfies it, so the difference is 0"),
        ({**BEFORE, "where": {"any": []}}, "where: no row can satisfy it, so the difference is 0"),
        ({}, 'kind "difference" needs minus_window: add it'),
        ({"minus_window": {"previous_phases": 1}}, "no phase comes before a window of all phases"),
        (
            {"minus_window": {"last_phases": 2}, "window": {"last_phases": 2}},
            "minus_window is the window itself",
        ),
        ({"minus_window": {}}, "write either last_phases, previous_phases or previous"),
        (
            {"minus_window": {"last_phases": 1, "previous_phases": 1}},
            "write either last_phases, previous_phases or previous",
        ),
        ({**BEFORE, "fresh": True}, 'kind "difference" has no fresh: remove it'),
        ({**BEFORE, "error": {"value": 0.1}}, "write it as a number such as 0.01"),
        ({**BEFORE, "error": {"relative": 0.1}}, "no relative error"),
        ({"kind": "predicate", **BEFORE}, 'kind "predicate" has no minus_window'),
    ],
)
async def test_differences_that_cannot_be_are_refused_in_words(
    world: Any, item: dict[str, Any], words: str
) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", **{"where": LATE, **DIFFERENCE, **item})

    found = await asked(world, ask)
    rejected = [reply for replies in world.rejections().values() for reply in replies]
    (reply,) = [*rejected, *found.values()]
    assert words in reply["reason"]["message"]


async def test_windows_without_earlier_phases_are_refused_until_there_are_some(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "before", LATE, **DIFFERENCE, **BEFORE)
        world.ask("flights", "all", LATE, **DIFFERENCE, minus_window={"last_phases": 9})
        quoted = {**DIFFERENCE, **BEFORE, "quote": True}
        world.ask("flights", "quote", LATE, **quoted)

    found = await asked(world, ask, days=1)
    for name, words in (("before", "no phase before"), ("all", "same phases"), ("quote", "before")):
        reason = found[name]["reason"]
        assert (reason["code"], reason["retriable"]) == ("window_too_small", True)
        assert words in reason["message"]


async def test_two_windows_are_two_requests(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", LATE, **DIFFERENCE, **BEFORE)

    def reuse(world: Any) -> None:
        other = {**BEFORE, "minus_window": {"previous_phases": 2}}
        world.ask("flights", "q", LATE, **DIFFERENCE, **other)
        world.ask("flights", "q", {"not": {"not": LATE}}, **DIFFERENCE, **BEFORE)

    await asked(world, ask, reuse)
    ((rejected,),) = world.rejections().values()
    assert rejected["reason"]["code"] == "id_reused"


@pytest.mark.parametrize("profile", ["counts", "whole_table"])
async def test_other_profiles_say_what_to_ask_instead(world: Any, profile: str) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", AA, **DIFFERENCE, **BEFORE)

    found = await asked(world, ask, mechanism={"profile": profile})
    assert found["q"]["reason"]["code"] == "unsupported_kind"
    assert "each window and subtract" in found["q"]["reason"]["message"]


def test_a_quote_of_two_windows_says_what_the_owner_pays_in_each() -> None:
    quotes = [Quote(None, (Charge(n, 5),), 0.01, growth=(Charge(n, 7 + n),)) for n in (0, 3)]
    both = quote_of_both(quotes)
    assert both.charges == (Charge(0, 5), Charge(3, 5))
    assert both.growth == (Charge(0, 7), Charge(3, 10))
