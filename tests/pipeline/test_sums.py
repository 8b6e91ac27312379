"""Sums and means of a number through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import TOPICS, BudgetShares, PrivacyLoss, SumByGroupAnswer, SumTable
from stream_dp.pipeline.queries.compiler import MOST_SUMS, MOST_SUMS_AND_ROWS

ATTRIBUTES = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"], "other": False},
    {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True, "missing": True},
]
AA, UA = ({"attribute": "carrier", "eq": name} for name in ("AA", "UA"))
PRESENT = {"attribute": "delay", "is_missing": False}
SUM: dict[str, Any] = {"kind": "sum", "attribute": "delay"}
TRUTH = {"AA": (9_000 * 4.5 + 2_000 * 30, 11_000), "UA": (8_000 * 19.5 + 1_000 * -1, 9_000)}


def prepare(world: Any, **changes: Any) -> None:
    world.define("flights", **{"attributes": ATTRIBUTES, **changes})


def fill(world: Any) -> None:
    counts = [("AA", 5, 9_000), ("AA", 45, 2_000), ("UA", 20, 8_000), ("UA", -3, 1_000)]
    cells = [{"carrier": c, "delay": d, "count": n} for c, d, n in counts]
    world.batch("flights", "one", cells=[*cells, {"carrier": "AA", "count": 4_000}])


async def asked(world: Any, *rounds: Any, **changes: Any) -> dict[str, Any]:
    await world.run(rounds=(lambda world: prepare(world, **changes), fill))
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


async def test_a_sum_its_mean_and_their_table_are_within_their_bars(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "all", kind="sum", attribute="delay")
        world.ask("flights", "each", kind="sum", attribute="delay", group_by=["carrier"])

    def again(world: Any) -> None:
        world.ask("flights", "again", kind="sum", attribute="delay")

    found = await asked(world, ask, again, mechanism={"profile": "calibrated", "base_share": 0.0})
    total = sum(part for part, _ in TRUTH.values())
    rows = sum(part for _, part in TRUTH.values())
    whole = found["all"]
    assert (whole["difficulty"], whole["path"]) == ("hard", "measured")
    assert abs(whole["total"] - total) <= whole["total_bar"] <= 0.02 * 24_000 * 30
    assert abs(whole["mean"] - total / rows) <= whole["mean_bar"] < 1.0
    assert abs(whole["count"] - rows) <= whole["error_bar"] * 24_000
    assert "representative" in whole["note"]
    assert found["again"]["difficulty"] == "easy"
    assert found["again"]["total"] == pytest.approx(whole["total"], abs=whole["total_bar"])
    table = found["each"]["table"]
    for i, (part, n) in enumerate(TRUTH.values()):
        assert abs(table["totals"][i] - part) <= table["total_bars"][i]
        assert abs(table["means"][i] - part / n) <= table["mean_bars"][i] < 1.5


COUNTED: dict[str, tuple[Any, dict[str, int], dict[str, int]]] = {
    # The condition; of each carrier all rows that satisfy it, and those that have a delay.
    "every row": (None, {"AA": 15_000, "UA": 9_000}, {"AA": 11_000, "UA": 9_000}),
    "a carrier": (AA, {"AA": 15_000, "UA": 0}, {"AA": 11_000, "UA": 0}),
    "unknown or late": (
        {"any": [{"attribute": "delay", "is_missing": True}, {"attribute": "delay", "ge": 30}]},
        {"AA": 6_000, "UA": 0},
        {"AA": 2_000, "UA": 0},
    ),
    "of one carrier where it is unknown": (
        {"any": [{"all": [AA, {"attribute": "delay", "is_missing": True}]}, PRESENT]},
        {"AA": 15_000, "UA": 9_000},
        {"AA": 11_000, "UA": 9_000},
    ),
    "of the other where it is unknown": (
        {"any": [{"all": [UA, {"attribute": "delay", "is_missing": True}]}, PRESENT]},
        {"AA": 11_000, "UA": 9_000},
        {"AA": 11_000, "UA": 9_000},
    ),
}


@pytest.mark.parametrize("base_share", [0.0, 0.2], ids=["measured", "certified"])
@pytest.mark.parametrize("name", COUNTED)
async def test_all_rows_of_the_condition_are_counted_beside_those_with_a_value(
    world: Any, name: str, base_share: float
) -> None:
    """At a confidence of 1 - 1e-9 for each of some 60 bars."""
    where, rows, valued = COUNTED[name]

    def ask(world: Any) -> None:
        world.ask("flights", "price", where, **SUM, count_rows=True, quote=True)

    def pay(world: Any) -> None:
        world.ask("flights", "all", where, **SUM, count_rows=True)

    def ask_each(world: Any) -> None:
        world.ask("flights", "each", where, **SUM, count_rows=True, group_by=["carrier"])

    found = await asked(
        world,
        ask,
        pay,
        ask_each,
        mechanism={"profile": "calibrated", "base_share": base_share},
        accuracy={"error": 0.05, "failure_probability": 1e-9},
        privacy={"epsilon": 4.0, "delta": 1e-9},
    )
    whole, table = found["all"], found["each"]["table"]
    assert whole["path"] == ("certified" if base_share else "measured")
    assert found["price"]["privacy_loss"] == whole["privacy_loss"]
    assert abs(whole["rows"] - sum(rows.values())) <= whole["rows_bar"] + 0.5
    assert whole["rows_bar"] <= 0.05 * 24_000
    assert (whole["rows_bar"] == 0.0) is (where is None)
    assert abs(whole["count"] - sum(valued.values())) <= whole["error_bar"] * 24_000 + 0.5
    for i, carrier in enumerate(("AA", "UA")):
        assert abs(table["rows"][i] - rows[carrier]) <= table["rows_bars"][i] + 0.5
        assert table["rows_bars"][i] <= 0.05 * 24_000
        assert abs(table["counts"][i] - valued[carrier]) <= table["error_bars"][i] * 24_000 + 0.5


async def test_the_count_of_all_rows_keeps_the_promise_even_where_the_sum_needs_less(
    world: Any,
) -> None:
    """Representatives that hardly differ from 0 but for one: the sum is known long before the count is."""
    number = {**ATTRIBUTES[1], "representatives": [-0.01, 0.01, 10.01, 3000]}
    where = {"any": [{"attribute": "delay", "lt": 30}, {"attribute": "delay", "is_missing": True}]}
    late = {"attribute": "delay", "lt": 30}

    def ask(world: Any) -> None:
        world.ask("flights", "alone", late, **SUM)

    def both(world: Any) -> None:
        world.ask("flights", "both", where, **SUM, count_rows=True)

    settings: Any = {
        "mechanism": {"profile": "calibrated", "base_share": 0.0},
        "attributes": [ATTRIBUTES[0], number],
    }
    found = await asked(world, ask, both, **settings)
    assert found["alone"]["error_bar"] > 0.02  # the count of rows with a value has no promise
    assert found["both"]["path"] == "measured"
    assert found["both"]["rows_bar"] <= 0.02 * 24_000
    assert abs(found["both"]["rows"] - 22_000) <= found["both"]["rows_bar"]


async def test_a_sum_with_and_without_the_count_are_two_queries_under_one_id(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", **SUM)

    def reuse(world: Any) -> None:
        world.ask("flights", "q", **SUM, count_rows=True)
        world.ask("flights", "q", **SUM)

    await asked(world, ask, reuse)
    ((rejected,),) = world.rejections().values()
    assert rejected["reason"]["code"] == "id_reused"
    assert "rows" not in world.answer("q")


async def test_declared_representatives_are_what_is_added_up(world: Any) -> None:
    number = {**ATTRIBUTES[1], "representatives": [-5, 5, 20, 60]}

    def ask(world: Any) -> None:
        world.ask(
            "flights", "late", {"attribute": "delay", "ge": 30}, kind="sum", attribute="delay"
        )

    found = await asked(world, ask, attributes=[ATTRIBUTES[0], number])
    assert abs(found["late"]["mean"] - 60.0) <= found["late"]["mean_bar"]
    assert "up to 10 off between 0 and 30" in found["late"]["note"]


async def test_without_budget_a_sum_says_so_or_is_refused(world: Any) -> None:
    small = {"privacy": {"epsilon": 0.001, "delta": 1e-9}}

    def ask(world: Any) -> None:
        world.ask("flights", "q", kind="sum", attribute="delay")

    found = await asked(world, ask, **small)
    assert found["q"]["path"] == "unverified"


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"attribute": "carrier"}, "no numbers"),
        ({"attribute": "carrier", "count_rows": True}, "no numbers"),
        ({"attribute": "delay", "group_by": ["delay"]}, "other attributes"),
        ({"attribute": "delay", "where": {"attribute": "delay", "is_missing": True}}, "no row"),
        ({"attribute": "delay", "where": {"attribute": "delay", "ge": 7}}, "cuts the bin"),
    ],
)
async def test_sums_that_cannot_be_are_refused_in_words(
    world: Any, item: dict[str, Any], words: str
) -> None:
    found = await asked(world, lambda world: world.ask("flights", "q", kind="sum", **item))
    assert words in found["q"]["reason"]["message"]


async def test_the_papers_mechanisms_do_not_answer_sums(world: Any) -> None:
    def define(world: Any) -> None:
        world.define_memory("thesis")

    def ask(world: Any) -> None:
        world.ask("thesis", "q", kind="sum", attribute="carrier")

    await world.run(rounds=(define, ask))
    assert world.answer("q")["reason"]["code"] == "unsupported_kind"


@pytest.mark.parametrize(("most", "counted"), [(MOST_SUMS, False), (MOST_SUMS_AND_ROWS, True)])
def test_the_longest_numbers_of_the_largest_table_of_sums_fit_into_a_record(
    most: int, counted: bool
) -> None:
    share, rows = (0.0001234567890123456,) * most, (10**18,) * most
    sums = (-1.2345678901234567e300,) * most
    facts: dict[str, Any] = {
        **dict.fromkeys(("values", "error_bars"), share),
        **dict.fromkeys(("totals", "total_bars", "means", "mean_bars", "mean_binnings"), sums),
        **dict.fromkeys(("total_lows", "total_highs", "mean_lows", "mean_highs"), sums),
        **dict.fromkeys(("counts", "lows", "highs"), rows),
        **({"rows": rows, "rows_bars": sums} if counted else {}),
    }
    labels = (tuple(map(str, range(most))),)
    table = SumTable(attributes=("carrier",), labels=labels, **facts)
    answer = SumByGroupAnswer(
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


@pytest.mark.parametrize(
    ("most", "more"), [(MOST_SUMS, {}), (MOST_SUMS_AND_ROWS, {"count_rows": True})]
)
async def test_a_larger_table_of_sums_is_refused(
    world: Any, most: int, more: dict[str, Any]
) -> None:
    many = {**ATTRIBUTES[0], "values": [f"{i:x}" for i in range(most + 1)]}

    def ask(world: Any) -> None:
        world.ask("flights", "each", **SUM, **more, group_by=["carrier"])

    found = await asked(world, ask, attributes=[many, ATTRIBUTES[1]])
    assert found["each"]["reason"]["code"] == "too_many_cells"


async def test_a_query_may_say_how_precise_its_mean_must_be(world: Any) -> None:
    """The price of all its looks is that of the answer, and the ledger has each of them."""

    def quote(world: Any) -> None:
        world.ask("flights", "quoted", AA, **SUM, error={"mean": 0.4}, quote=True)

    def ask(world: Any) -> None:
        world.ask("flights", "mean", AA, **SUM, error={"mean": 0.4})

    def again(world: Any) -> None:
        world.ask("flights", "later", AA, **SUM, error={"mean": 0.5})
        world.ask("flights", "x", AA, **SUM, error={"mean": 0.2}, at_most=0.001)

    found = await asked(
        world, quote, ask, again, mechanism={"profile": "calibrated", "base_share": 0.0}
    )
    mean, later, refused = found["mean"], found["later"], found["x"]
    assert (mean["path"], later["path"]) == ("measured", "certified")
    part, n = TRUTH["AA"]
    for answer, most in ((mean, 0.4), (later, 0.5)):
        assert answer["mean_bar"] <= most
        assert abs(answer["mean"] - part / n) <= answer["mean_bar"]
    assert later["privacy_loss"]["share"] == 0.0
    assert refused["reason"]["code"] == "price_too_high"
    quoted, paid = found["quoted"], mean["privacy_loss"]["share"]
    assert quoted["expected"]
    assert quoted["privacy_loss"]["share"] == pytest.approx(paid, rel=0.5), (
        "all looks, not the first"
    )
    assert paid <= quoted["most"] <= 1.0
