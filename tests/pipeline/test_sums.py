"""Sums, means and shares through the worker: within their bars, and with as many rows as they say."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import (
    TOPICS,
    BudgetShares,
    PrivacyLoss,
    ShareByGroupAnswer,
    ShareTable,
    SumByGroupAnswer,
    SumTable,
)
from stream_dp.pipeline.queries.compiler import MOST_SUMS, MOST_SUMS_AND_ROWS
from tests.pipeline.flights import (
    AA,
    PRECISE,
    TWO_ATTRIBUTES,
    TWO_ROWS,
    UA,
    UNMEASURED,
    VERY_LATE,
    asked,
    asked_in_turn,
    judged,
    opened,
    table,
    within,
)

pytestmark = judged

UNKNOWN = {"attribute": "delay", "is_missing": True}
PRESENT = {"attribute": "delay", "is_missing": False}
SUM: dict[str, Any] = {"kind": "sum", "attribute": "delay"}
SHARE: dict[str, Any] = {"kind": "share", "share_of": VERY_LATE}
EACH = {"group_by": ["carrier"]}
TRUTH = {"AA": (9_000 * 4.5 + 2_000 * 30, 11_000), "UA": (8_000 * 19.5 + 1_000 * -1, 9_000)}

BASES = pytest.mark.parametrize("base_share", [0.0, 0.2], ids=["measured", "certified"])


async def opened_with(world: Any, **definition: Any) -> None:
    await opened(world, rows=TWO_ROWS, **{"attributes": TWO_ATTRIBUTES, **definition})


async def test_a_sum_its_mean_and_their_table_are_within_their_bars(world: Any) -> None:
    await opened_with(world, mechanism=UNMEASURED)
    whole, each = await asked(world, SUM, {**SUM, **EACH})
    [again] = await asked(world, SUM)
    total = sum(part for part, _ in TRUTH.values())
    rows = sum(part for _, part in TRUTH.values())
    assert (whole["difficulty"], whole["path"]) == ("hard", "measured")
    assert abs(whole["total"] - total) <= whole["total_bar"] <= 0.02 * 24_000 * 30
    assert abs(whole["mean"] - total / rows) <= whole["mean_bar"] < 1.0
    assert within(whole["count"], rows, whole["error_bar"] * 24_000)
    assert "representative" in whole["note"]
    assert again["difficulty"] == "easy"
    assert again["total"] == pytest.approx(whole["total"], abs=whole["total_bar"])
    columns = table(each, "totals", "total_bars", "means", "mean_bars")
    for (sum_, sum_bar, mean, bar), (part, n) in zip(columns, TRUTH.values(), strict=True):
        assert within(sum_, part, sum_bar)
        assert abs(mean - part / n) <= bar < 1.5


COUNTED: dict[str, tuple[Any, dict[str, int], dict[str, int]]] = {
    # The condition; of each carrier all rows that satisfy it, and those that have a delay.
    "every row": (None, {"AA": 15_000, "UA": 9_000}, {"AA": 11_000, "UA": 9_000}),
    "a carrier": (AA, {"AA": 15_000, "UA": 0}, {"AA": 11_000, "UA": 0}),
    "unknown or late": (
        {"any": [UNKNOWN, VERY_LATE]},
        {"AA": 6_000, "UA": 0},
        {"AA": 2_000, "UA": 0},
    ),
    "of one carrier where it is unknown": (
        {"any": [{"all": [AA, UNKNOWN]}, PRESENT]},
        {"AA": 15_000, "UA": 9_000},
        {"AA": 11_000, "UA": 9_000},
    ),
    "of the other where it is unknown": (
        {"any": [{"all": [UA, UNKNOWN]}, PRESENT]},
        {"AA": 11_000, "UA": 9_000},
        {"AA": 11_000, "UA": 9_000},
    ),
}


@BASES
@pytest.mark.parametrize("name", COUNTED)
async def test_all_rows_of_the_condition_are_counted_beside_those_with_a_value(
    world: Any, name: str, base_share: float
) -> None:
    """At a confidence of 1 - 1e-9 for each of some 60 bars."""
    where, rows, valued = COUNTED[name]
    await opened_with(world, mechanism={"base_share": base_share}, **PRECISE)
    query = {**SUM, "where": where, "count_rows": True}
    price, whole, each = await asked_in_turn(world, {**query, "quote": True}, query, query | EACH)
    assert whole["path"] == ("certified" if base_share else "measured")
    assert price["privacy_loss"] == whole["privacy_loss"]
    assert within(whole["rows"], sum(rows.values()), whole["rows_bar"] + 0.5)
    assert whole["rows_bar"] <= 0.05 * 24_000
    assert (whole["rows_bar"] == 0.0) is (where is None)
    assert within(whole["count"], sum(valued.values()), whole["error_bar"] * 24_000 + 0.5)
    columns = table(each, "rows", "rows_bars", "counts", "error_bars")
    for carrier, (n, bar, count, error) in zip(("AA", "UA"), columns, strict=True):
        assert within(n, rows[carrier], bar + 0.5)
        assert bar <= 0.05 * 24_000
        assert within(count, valued[carrier], error * 24_000 + 0.5)


async def test_the_count_of_all_rows_keeps_the_promise_even_where_the_sum_needs_less(
    world: Any,
) -> None:
    """Representatives that hardly differ from 0 but for one: the sum is known long before the count is."""
    number = {**TWO_ATTRIBUTES[1], "representatives": [-0.01, 0.01, 10.01, 3000]}
    late = {"attribute": "delay", "lt": 30}
    await opened_with(world, attributes=[TWO_ATTRIBUTES[0], number], mechanism=UNMEASURED)
    both = {**SUM, "where": {"any": [late, UNKNOWN]}, "count_rows": True}
    alone, counted = await asked_in_turn(world, {**SUM, "where": late}, both)
    assert alone["error_bar"] > 0.02  # the count of rows with a value has no promise
    assert counted["path"] == "measured"
    assert abs(counted["rows"] - 22_000) <= counted["rows_bar"] <= 0.02 * 24_000


async def test_declared_representatives_are_what_is_added_up(world: Any) -> None:
    number = {**TWO_ATTRIBUTES[1], "representatives": [-5, 5, 20, 60]}
    await opened_with(world, attributes=[TWO_ATTRIBUTES[0], number])
    [late] = await asked(world, {**SUM, "where": VERY_LATE})
    assert within(late["mean"], 60.0, late["mean_bar"])
    assert "up to 10 off between 0 and 30" in late["note"]


async def test_a_query_may_say_how_precise_its_mean_must_be(world: Any) -> None:
    """The price of all its looks is that of the answer, and the ledger has each of them."""
    await opened_with(world, mechanism=UNMEASURED)
    query = {**SUM, "where": AA}
    mean = {**query, "error": {"mean": 0.4}}
    [quoted], [answer] = await asked(world, {**mean, "quote": True}), await asked(world, mean)
    later, refused = await asked_in_turn(
        world,
        {**query, "error": {"mean": 0.5}},
        {**query, "error": {"mean": 0.2}, "at_most": 0.001},
    )
    assert (answer["path"], later["path"]) == ("measured", "certified")
    part, n = TRUTH["AA"]
    for one, most in ((answer, 0.4), (later, 0.5)):
        assert abs(one["mean"] - part / n) <= one["mean_bar"] <= most
    assert later["privacy_loss"]["share"] == 0.0
    assert refused["reason"]["code"] == "price_too_high"
    paid = answer["privacy_loss"]["share"]
    assert quoted["expected"]
    assert quoted["privacy_loss"]["share"] == pytest.approx(paid, rel=0.5), "not the first alone"
    assert paid <= quoted["most"] <= 1.0


@BASES
async def test_a_share_and_its_table_are_within_their_bars(world: Any, base_share: float) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""
    await opened_with(world, mechanism={"base_share": base_share}, **PRECISE)
    query = {**SHARE, "where": AA}
    near = {**query, "error": {"value": 0.05}}
    price, one, near = await asked(world, {**query, "quote": True}, query, near)
    again, each = await asked(world, query, {**SHARE, **EACH})
    exact = {"AA": 2_000 / 15_000, "UA": 0.0}
    assert price["privacy_loss"] == one["privacy_loss"]
    assert one["path"] == ("certified" if base_share else "measured")
    assert abs(one["both"] - 2_000) <= one["both_bar"] <= 0.05 * 24_000
    assert within(one["count"], 15_000, one["error_bar"] * 24_000)
    assert near["share_bar"] <= 0.05
    for answer in (one, near, again):
        assert within(answer["share"], exact["AA"], answer["share_bar"])
    assert again["difficulty"] == "easy"
    assert each["kind"] == "share_by_group"
    for (share, bar), truth in zip(
        table(each, "shares", "share_bars"), exact.values(), strict=True
    ):
        assert within(share, truth, bar)
        assert 0.0 <= share <= 1.0


async def test_without_budget_sums_and_shares_say_so(world: Any) -> None:
    await opened_with(world, privacy={"epsilon": 0.001, "delta": 1e-9})
    whole, share, _ = await asked(
        world,
        SUM,
        {**SHARE, "where": AA},
        {**SHARE, "where": AA, "error": {"value": 0.001}, "at_most": 0.0001},
    )
    assert whole["path"] == share["path"] == "unverified"
    assert "share" not in share


# ---------------------------------------------------------------- the size of a record

ROUNDED, LARGE = 0.0001234567890123456, -1.2345678901234567e300
COLUMNS: dict[type[SumTable | ShareTable], dict[float, str]] = {
    SumTable: {
        ROUNDED: "values error_bars",
        LARGE: "totals total_bars means mean_bars mean_binnings total_lows total_highs mean_lows "
        "mean_highs",
        10**18: "counts lows highs",
    },
    ShareTable: {
        ROUNDED: "values error_bars shares share_bars share_lows share_highs",
        LARGE: "both_bars",
        10**18: "counts lows highs both",
    },
}


@pytest.mark.parametrize(
    ("kind", "most", "more"),
    [
        (SumByGroupAnswer, MOST_SUMS, {}),
        (SumByGroupAnswer, MOST_SUMS_AND_ROWS, {10**18: "rows", LARGE: "rows_bars"}),
        (ShareByGroupAnswer, MOST_SUMS, {}),
    ],
)
def test_the_longest_numbers_of_the_largest_tables_fit_into_a_record(
    kind: type[SumByGroupAnswer | ShareByGroupAnswer], most: int, more: dict[float, str]
) -> None:
    of: Any = SumTable if kind is SumByGroupAnswer else ShareTable
    columns: dict[str, Any] = {
        name: (number,) * most
        for numbers in (COLUMNS[of], more)
        for number, names in numbers.items()
        for name in names.split()
    }
    answer = kind(
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
        table=of(attributes=("carrier",), labels=(tuple(map(str, range(most))),), **columns),
    )
    assert len(answer.to_bytes()) < TOPICS["answers"].max_message_bytes - 100_000


@pytest.mark.parametrize(
    ("most", "query"), [(MOST_SUMS, SUM), (MOST_SUMS_AND_ROWS, {**SUM, "count_rows": True})]
)
async def test_a_larger_table_of_sums_is_refused(world: Any, most: int, query: Any) -> None:
    many = {**TWO_ATTRIBUTES[0], "values": [*("AA", "UA"), *(f"{i:x}" for i in range(most - 1))]}
    await opened_with(world, attributes=[many, TWO_ATTRIBUTES[1]])
    [each] = await asked(world, {**query, **EACH})
    assert each["reason"]["code"] == "too_many_cells"
