"""Sums and means of a number through the worker."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import TOPICS, Answer, Table
from stream_dp.pipeline.compiling import MOST_SUMS

ATTRIBUTES = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"], "other": False},
    {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True, "missing": True},
]
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


def test_the_longest_numbers_of_the_largest_table_of_sums_fit_into_a_record() -> None:
    share, rows = (0.0001234567890123456,) * MOST_SUMS, (10**18,) * MOST_SUMS
    sums = (-1.2345678901234567e300,) * MOST_SUMS
    table = Table(
        attributes=("carrier",),
        labels=(tuple(map(str, range(MOST_SUMS))),),
        **dict.fromkeys(("values", "error_bars"), share),
        **dict.fromkeys(("totals", "total_bars", "means", "mean_bars"), sums),
        counts=rows,
    )
    answer = Answer(dataset="d", query_id="q", analyst="a", status="answered", table=table)
    assert len(answer.to_bytes()) < TOPICS["answers"].max_message_bytes - 100_000


async def test_a_larger_table_of_sums_is_refused(world: Any) -> None:
    many = {**ATTRIBUTES[0], "values": [f"{i:x}" for i in range(MOST_SUMS + 1)]}

    def ask(world: Any) -> None:
        world.ask("flights", "each", kind="sum", attribute="delay", group_by=["carrier"])

    found = await asked(world, ask, attributes=[many, ATTRIBUTES[1]])
    assert found["each"]["reason"]["code"] == "too_many_cells"
