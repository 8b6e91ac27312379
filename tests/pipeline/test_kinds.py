"""Kinds of query answer through the worker, are charged once, and survive a restart."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.flights import (
    AA,
    UNMEASURED,
    VERY_LATE,
    asked,
    asked_in_turn,
    judged,
    opened,
    ran,
    within,
)

pytestmark = judged

CURVE: dict[str, Any] = {"kind": "threshold", "attribute": "delay"}
EARLY = {"attribute": "delay", "lt": 0}
BATCH: dict[str, Any] = {
    "kind": "prefix_batch",
    "attribute": "delay",
    "wheres": [EARLY, VERY_LATE],
}
MEDIAN: dict[str, Any] = {"kind": "median", "attribute": "delay"}


async def test_all_thresholds_cost_one_look_an_attribute(world: Any) -> None:
    await opened(world, kinds={"threshold": {"share": 0.2}})
    [late] = await asked(world, {**CURVE, "where": VERY_LATE})
    assert (late["difficulty"], late["path"]) == ("hard", "measured")
    assert late["privacy_loss"] == {"share": pytest.approx(0.2), "blocks": 1}
    assert abs(late["count"] - 8_000) <= late["error_bar"] * 21_000 < 1_000
    early = {**CURVE, "where": {"attribute": "delay", "lt": 10}}
    curve, *others = await asked(world, CURVE, early, {**early, "quote": True})
    assert curve["table"]["counts"][-1] == 21_000
    for answer in (curve, *others):
        assert answer["privacy_loss"]["share"] == 0.0
        assert answer["difficulty"] == "easy"
        assert answer["budget"] == late["budget"]


async def test_an_answer_says_its_own_kind_where_one_kind_of_query_has_two(world: Any) -> None:
    """A condition that all rows satisfy is the same as none, in answers, quotes and repeated answers."""
    await opened(world, kinds={"threshold": {"share": 0.2}})
    every: dict[str, Any] = {**CURVE, "where": {"all": []}}
    cuts = {**CURVE, "where": {"attribute": "delay", "ge": 31}}
    queries: list[tuple[dict[str, Any], str]] = [
        ({**CURVE, "where": VERY_LATE}, "threshold"),
        (CURVE, "threshold_curve"),
        (every, "threshold_curve"),
        ({**every, "quote": True}, "threshold_curve"),
        ({"kind": "sum", "attribute": "delay"}, "sum"),
        ({"kind": "sum", "attribute": "delay", "group_by": ["carrier"]}, "sum_by_group"),
        ({}, "predicate"),
        (cuts, "threshold"),
    ]
    found = await asked(world, *(query for query, _ in queries))
    assert [answer["kind"] for answer in found] == [kind for _, kind in queries]
    assert found[1]["table"] == found[2]["table"]
    assert found[-1]["status"] == "refused"


async def test_a_kind_that_the_definition_does_not_name_is_refused(world: Any) -> None:
    await opened(world)
    [answer] = await asked(world, CURVE)
    assert answer["reason"]["code"] == "unsupported_kind"
    for words in (
        "correlation, difference, predicate, quantile, share, sum, table",
        'turns it on by "threshold" under "kinds"',
    ):
        assert words in answer["reason"]["message"]


async def test_a_line_that_is_full_refuses_the_next_look(world: Any) -> None:
    await opened(world, kinds={"threshold": {"share": 1.0}})
    [answer] = await asked(world, CURVE)
    assert answer["reason"]["code"] == "budget_exhausted"


async def test_a_batch_of_conditions_is_answered_in_its_order_and_free_again(world: Any) -> None:
    await opened(world, kinds={"prefix_batch": {"share": 0.2}})
    [first] = await asked(world, BATCH)
    assert (first["difficulty"], first["path"]) == ("hard", "measured")
    assert first["privacy_loss"] == {"share": pytest.approx(0.2), "blocks": 1}
    for value, count, exact in zip(*first["batch"].values(), (4_000, 8_000), strict=True):
        assert abs(value - exact / 21_000) <= first["error_bar_simultaneous"] < 0.1
        assert count == round(value * 21_000)
    turned = {**BATCH, "wheres": [VERY_LATE, EARLY]}
    found = await asked(world, BATCH, turned, {**BATCH, "quote": True})
    assert found[0]["batch"] == first["batch"]
    assert found[1]["batch"]["values"] == first["batch"]["values"][::-1]
    for answer in found:
        assert answer["privacy_loss"]["share"] == 0.0
        assert answer["budget"] == first["budget"]


# ---------------------------------------------------------------- values that are stable


@pytest.mark.parametrize(
    ("kind", "attribute", "label", "share"),
    [
        ("median", "delay", "0 to 9", 0.05),
        ("mode", "cancelled", "false", 0.05),
        ("mode", "carrier", "AA", 0.3),
    ],
)
async def test_what_is_stable_is_named_once_paid_and_repeated(
    world: Any, kind: str, attribute: str, label: str, share: float
) -> None:
    await opened(world, kinds={kind: {"share": share}})
    query = {"kind": kind, "attribute": attribute}
    quote, first, again = await asked_in_turn(world, {**query, "quote": True}, query, query)
    assert quote["privacy_loss"] == first["privacy_loss"]
    assert first["privacy_loss"] == {"share": pytest.approx(share), "blocks": 1}
    assert first["found"]["label"] == label
    assert "no_answer" not in first
    assert (first["difficulty"], first["path"]) == ("hard", "measured")
    assert (again["difficulty"], again["path"]) == ("easy", "repeat")
    assert again["found"] == first["found"]
    assert again["privacy_loss"]["share"] == 0.0
    if kind == "median":
        assert (first["found"]["low"], first["found"]["high"]) == (0.0, 10.0)
        assert (first["error_bar"], first["confidence"]) == (0.0, 1.0)


async def test_no_answer_is_an_answer_that_is_paid_once(world: Any) -> None:
    """AA leads by 1,000 rows of 21,000: at this share that is too few."""
    await opened(world, kinds={"mode": {"share": 0.01}})
    first, again = await asked_in_turn(world, *[{"kind": "mode", "attribute": "carrier"}] * 2)
    assert first["no_answer"] is again["no_answer"] is True
    assert "found" not in first
    assert (first["path"], again["path"]) == ("measured", "repeat")
    assert again["budget"] == first["budget"]


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
@pytest.mark.parametrize(("query", "share"), [(MEDIAN, 0.05), (BATCH, 0.2)])
async def test_a_crash_after_the_charge_pays_a_second_look_and_answers_once(
    world: Any, point: CrashPoint, query: dict[str, Any], share: float
) -> None:
    await opened(world, kinds={query["kind"]: {"share": share}}, mechanism=UNMEASURED)
    world.ask("flights", "q", **query)
    assert await world.run(world.Fuse(0, point)) == 1
    answer = world.answer("q")
    assert answer["path"] == "measured"
    assert answer["privacy_loss"]["share"] == pytest.approx(share)
    assert answer["budget"]["spent"] == pytest.approx(2 * share, rel=1e-4)


# ---------------------------------------------------------------- rows that respond

VECTOR = {"correlated_vector": {"share": 0.3, "attribute": "cancelled"}}
RESPONSES: dict[str, Any] = {"kind": "correlated_vector", "attribute": "cancelled"}


def rows_one_by_one(n: int = 1) -> dict[str, Any]:
    """The rows of ``world.cells``: 9,000 n of AA, 8,000 n of UA, cancelled, and 4,000 n others."""
    rows = [("AA", 5, False, 9_000), ("UA", 45, True, 8_000), ("ZZ", -3, False, 4_000)]
    every = [(carrier, delay, gone) for carrier, delay, gone, k in rows for _ in range(k * n)]
    columns = map(list, zip(*every, strict=True))
    return {"columns": dict(zip(("carrier", "delay", "cancelled"), columns, strict=True))}


def signs(answer: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    packed = np.frombuffer(base64.b64decode(answer["vector"]["bits"]), dtype=np.uint8)
    return 2 * np.unpackbits(packed, count=answer["n"]).astype(np.int64) - 1


async def test_each_row_responds_once_and_every_query_is_free(world: Any) -> None:
    await opened(world, rows=rows_one_by_one(), kinds=VECTOR)
    windows = [RESPONSES, {**RESPONSES, "window": {"last_phases": 1}}]
    replies = await asked(world, *windows)
    await ran(world, lambda world: world.batch("flights", "two", **rows_one_by_one()))
    replies += await asked(world, *windows)
    replies += await asked(world, *windows)
    first, first_latest, both, latest, again, latest_again = map(signs, replies)
    assert first.tolist() == first_latest.tolist() == both[:21_000].tolist()
    assert latest.tolist() == both[21_000:].tolist() != first.tolist()
    assert (again.tolist(), latest_again.tolist()) == (both.tolist(), latest.tolist())
    for reply in replies:
        assert (reply["difficulty"], reply["privacy_loss"]["share"]) == ("easy", 0.0)
        assert reply["vector"]["agreement"] == pytest.approx(0.0474, abs=0.0001)
    truth = np.tile(np.repeat([-1, 1, -1], [9_000, 8_000, 4_000]), 2)
    estimate = float(both @ truth) / len(truth) / replies[2]["vector"]["agreement"]
    assert abs(estimate - 1.0) <= replies[2]["error_bar"] < 0.4


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_responses_that_a_crash_loses_are_drawn_when_the_next_phase_opens(
    world: Any, point: CrashPoint
) -> None:
    await ran(world, lambda world: world.define("flights", kinds=VECTOR))
    world.batch("flights", "one", **rows_one_by_one())
    assert await world.run(world.Fuse(0, point)) == 1
    [lost] = await asked(world, RESPONSES)
    assert (lost["reason"]["code"], lost["reason"]["retriable"]) == ("retry_after", True)
    await ran(world, lambda world: world.batch("flights", "two", **rows_one_by_one()))
    [drawn] = await asked(world, RESPONSES)
    assert len(signs(drawn)) == 42_000
    assert drawn["budget"]["spent"] >= 0.6


async def test_rows_that_are_only_counted_are_refused_where_rows_respond(world: Any) -> None:
    await opened(world, kinds=VECTOR)
    (refused,) = world.events("batch_refused")
    assert "send rows or columns" in refused["reason"]["message"]


async def test_several_kinds_on_one_data_set_share_its_lines_over_phases_and_restarts(
    world: Any,
) -> None:
    kinds = {
        "threshold": {"share": 0.1, "partition": True},
        "median": {"share": 0.05},
        "mode": {"share": 0.05, "groups": 2_000},
        **VECTOR,
    }
    queries: dict[str, dict[str, Any]] = {
        "predicate": {"where": AA},
        "threshold": {"attribute": "delay", "where": VERY_LATE},
        "quantile": {"attribute": "delay", "rank": 0.9},
        "median": {"attribute": "delay"},
        "mode": {"attribute": "cancelled"},
        "correlated_vector": {"attribute": "cancelled"},
    }

    async def all_asked() -> dict[str, Any]:
        replies = await asked(world, *({"kind": kind, **q} for kind, q in queries.items()))
        return dict(zip(queries, replies, strict=True))

    await opened(world, rows=rows_one_by_one(2), kinds=kinds, privacy={"epsilon": 4, "delta": 1e-6})
    first = await all_asked()
    await ran(world, lambda world: world.batch("flights", "two", **rows_one_by_one()))
    both, again = await all_asked(), await all_asked()
    for found, n in ((first, 42_000), (both, 63_000), (again, 63_000)):
        assert {(answer["status"], answer["n"]) for answer in found.values()} == {("answered", n)}
        late = found["threshold"]
        assert within(late["count"], 8 * n / 21, late["error_bar"] * n)
        assert late["error_bar"] < 0.5
        assert found["quantile"]["found"]["low"] == 30
        assert found["median"]["found"]["label"] == "0 to 9"
        assert found["mode"]["found"]["label"] == "false"
        assert len(signs(found["correlated_vector"])) == n
    # The second phase pays for its own part; a new median, or mode, looks at the first one again.
    paid = {kind: answer["privacy_loss"] for kind, answer in both.items()}
    assert paid["threshold"] == {"share": pytest.approx(0.1), "blocks": 1}
    for kind in ("median", "mode"):
        assert paid[kind] == {"share": pytest.approx(0.05), "blocks": 2}
    assert both["correlated_vector"]["budget"]["spent"] > 0.3 + 0.1 + 4 * 0.05
    for kind in queries:
        assert again[kind]["difficulty"] == "easy"
        assert again[kind]["budget"] == both["correlated_vector"]["budget"]
        for field in ("value", "count", "found", "vector"):
            assert again[kind].get(field) == both[kind].get(field)
