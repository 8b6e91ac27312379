"""Every kind of query answers through the worker, is charged once, and survives a restart."""

from __future__ import annotations

from typing import Any

import pytest

LATE = {"attribute": "delay", "ge": 30}
EARLY = {"attribute": "delay", "lt": 10}


def define(world: Any, **kinds: Any) -> None:
    world.define("flights", kinds=kinds)


def open_phase(world: Any) -> None:
    world.cells("flights", "one")


async def answers(world: Any, *rounds: Any, **kinds: Any) -> dict[str, Any]:
    """Replies by query id: a data set of 21,000 rows, and queries in rounds, each by a new process."""
    await world.run(rounds=(lambda world: define(world, **kinds), open_phase))
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


async def test_all_thresholds_cost_one_look_an_attribute(world: Any) -> None:
    def first(world: Any) -> None:
        world.ask("flights", "late", LATE, kind="threshold", attribute="delay")

    def then(world: Any) -> None:
        world.ask("flights", "curve", kind="threshold", attribute="delay")
        world.ask("flights", "early", EARLY, kind="threshold", attribute="delay")
        world.ask("flights", "price", LATE, kind="threshold", attribute="delay", quote=True)

    found = await answers(world, first, then, threshold={"share": 0.2})
    late = found["late"]
    assert (late["difficulty"], late["path"]) == ("hard", "measured")
    assert late["privacy_loss"] == {"share": pytest.approx(0.2), "blocks": 1}
    assert abs(late["count"] - 8_000) <= late["error_bar"] * 21_000 < 1_000
    assert found["curve"]["table"]["counts"][-1] == 21_000
    for name in ("curve", "early", "price"):
        assert found[name]["privacy_loss"]["share"] == 0.0
        assert found[name]["difficulty"] == "easy"
        assert found[name]["budget"] == late["budget"]


async def test_an_answer_says_its_own_kind_where_one_kind_of_query_has_two(world: Any) -> None:
    """A condition that all rows satisfy is the same as none, in answers, quotes and repeated answers."""
    every: dict[str, Any] = {"all": []}
    threshold = {"kind": "threshold", "attribute": "delay"}

    def ask(world: Any) -> None:
        world.ask("flights", "some", LATE, **threshold)
        world.ask("flights", "curve", **threshold)
        world.ask("flights", "every", every, **threshold)
        world.ask("flights", "price", every, **threshold, quote=True)
        world.ask("flights", "sum", kind="sum", attribute="delay")
        world.ask("flights", "sums", kind="sum", attribute="delay", group_by=["carrier"])
        world.ask("flights", "count")
        world.ask("flights", "cuts", {"attribute": "delay", "ge": 31}, **threshold)

    found = await answers(world, ask, threshold={"share": 0.2})
    assert {name: answer["kind"] for name, answer in found.items()} == {
        "some": "threshold",
        "curve": "threshold_curve",
        "every": "threshold_curve",
        "price": "threshold_curve",
        "sum": "sum",
        "sums": "sum_by_group",
        "count": "predicate",
        "cuts": "threshold",
    }
    assert found["every"]["table"] == found["curve"]["table"]
    assert found["cuts"]["status"] == "refused"


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({"kind": "threshold", "attribute": "carrier"}, "invalid_query", "no order"),
        ({"kind": "threshold", "attribute": "speed"}, "unknown_attribute", "attribute: "),
        (
            {
                "kind": "threshold",
                "attribute": "delay",
                "where": {"attribute": "carrier", "eq": "AA"},
            },
            "invalid_query",
            "one attribute",
        ),
        (
            {
                "kind": "threshold",
                "attribute": "delay",
                "where": {"not": {"attribute": "delay", "between": [0, 9]}},
            },
            "invalid_query",
            "one range",
        ),
    ],
)
async def test_a_query_that_does_not_fit_its_kind_is_refused_in_words(
    world: Any, asked: dict[str, Any], code: str, words: str
) -> None:
    found = await answers(
        world, lambda world: world.ask("flights", "q", **asked), threshold={"share": 0.2}
    )
    assert found["q"]["reason"]["code"] == code
    assert words in found["q"]["reason"]["message"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"kind": "quantile", "attribute": "delay"}, "add it"),
        ({"kind": "quantile", "attribute": "delay", "rank": 1.5}, "rank"),
        ({"kind": "threshold", "attribute": "delay", "group_by": ["carrier"]}, "remove it"),
        ({"kind": "predicate", "rank": 0.5}, "remove it"),
    ],
)
async def test_fields_that_do_not_go_with_the_kind_are_rejected_by_name(
    world: Any, asked: dict[str, Any], words: str
) -> None:
    define(world)
    record = world.ask("flights", "q", **asked)
    await world.run()
    assert words in world.rejection(record)["reason"]["message"]


async def test_a_kind_that_the_definition_does_not_name_is_refused(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", kind="threshold", attribute="delay")

    found = await answers(world, ask)
    assert found["q"]["reason"]["code"] == "unsupported_kind"
    assert (
        "correlation, difference, predicate, quantile, share, sum, table"
        in found["q"]["reason"]["message"]
    )
    assert 'turns it on by "threshold" under "kinds"' in found["q"]["reason"]["message"]


async def test_a_line_that_is_full_refuses_the_next_look(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "q", kind="threshold", attribute="delay")

    found = await answers(world, ask, threshold={"share": 1.0})
    assert found["q"]["reason"]["code"] == "budget_exhausted"
