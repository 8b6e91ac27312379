"""Differences of two windows through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Quote
from stream_dp.pipeline.queries.two_windows import quote_of_both
from tests.pipeline.flights import (
    BEFORE,
    LAST,
    LATE,
    PRECISE,
    UNMEASURED,
    asked,
    asked_in_turn,
    judged,
    ran,
    table,
    within,
)

pytestmark = judged


async def test_a_difference_and_its_table_are_within_their_bars(world: Any) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""
    await ran(world, lambda world: world.define("flights", mechanism=UNMEASURED, **PRECISE))
    for late, early in ((5_000, 15_000), (8_000, 16_000), (12_000, 12_000)):
        cells = [
            {"carrier": "AA", "delay": 45, "cancelled": False, "count": late},
            {"carrier": "UA", "delay": 5, "cancelled": False, "count": early},
        ]
        world.batch("flights", f"{late}", cells=cells)
        await world.run()
    query = {"kind": "difference", "where": LATE, **BEFORE}
    price, one = await asked_in_turn(world, {**query, "quote": True}, query)
    nested = {**query, **LAST, "minus_window": {"last_phases": 3}, "error": 0.03}
    again, inner, each = await asked(
        world, query, nested, {**query, "where": None, "group_by": ["carrier"]}
    )
    assert (one["kind"], one["path"]) == ("difference", "measured")
    assert price["privacy_loss"] == one["privacy_loss"]
    assert price["error_bar"] == pytest.approx(one["error_bar"])
    assert (one["n"], one["window"]) == (one["minus_n"], [3, 3]) == (24_000, [3, 3])
    assert one["minus_window"] == [2, 2]
    assert abs(one["value"] - (12 / 24 - 8 / 24)) <= one["error_bar"] <= 0.05
    assert within(one["count"], 4_000, one["count_bar"])
    assert (again["value"], again["difficulty"]) == (one["value"], "easy")
    assert inner["minus_window"] == [1, 3]
    assert abs(inner["value"] - (12 / 24 - 25 / 68)) <= inner["error_bar"] <= 0.03
    assert (each["kind"], each["table"]["attributes"]) == ("difference_by_group", ["carrier"])
    columns = table(each, "values", "error_bars", "counts", "count_bars")
    truths = [(12 / 24 - 8 / 24, 4_000), (12 / 24 - 16 / 24, -4_000)]
    for (value, bar, shown, rows), (share, count) in zip(columns, truths, strict=False):
        assert within(value, share, bar)
        assert within(shown, count, rows)


def test_a_quote_of_two_windows_says_what_the_owner_pays_in_each() -> None:
    quotes = [Quote(None, (Charge(n, 5),), 0.01, growth=(Charge(n, 7 + n),)) for n in (0, 3)]
    both = quote_of_both(quotes)
    assert both.charges == (Charge(0, 5), Charge(3, 5))
    assert both.growth == (Charge(0, 7), Charge(3, 10))
