"""Medians, modes and response vectors through the worker, each alone and all at once."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.pipeline.watch.crash_points import CrashPoint


async def ask_all(world: Any, *items: dict[str, Any], **kinds: Any) -> dict[str, Any]:
    """Replies by query id, from a data set of 21,000 rows; every query is asked of a new process."""

    def define(world: Any) -> None:
        world.define("flights", kinds=kinds)

    await world.run(rounds=(define, lambda world: world.cells("flights", "one")))
    for number, item in enumerate(items):
        await world.run(
            rounds=(lambda world, n=number, i=item: world.ask("flights", f"q{n}", **i),)
        )
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


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
    asked = {"kind": kind, "attribute": attribute}
    found = await ask_all(world, {**asked, "quote": True}, asked, asked, **{kind: {"share": share}})
    quote, first, again = found["q0"], found["q1"], found["q2"]
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
    asked = {"kind": "mode", "attribute": "carrier"}
    found = await ask_all(world, asked, asked, mode={"share": 0.01})
    assert [found[name]["no_answer"] for name in ("q0", "q1")] == [True, True]
    assert "found" not in found["q0"]
    assert [found[name]["path"] for name in ("q0", "q1")] == ["measured", "repeat"]
    assert found["q1"]["budget"] == found["q0"]["budget"]


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_a_crash_after_the_charge_pays_a_second_look_and_answers_once(
    world: Any, point: CrashPoint
) -> None:
    def define(world: Any) -> None:
        world.define("flights", kinds={"median": {"share": 0.05}}, mechanism={"base_share": 0.0})

    def ask(world: Any) -> None:
        world.ask("flights", "q", kind="median", attribute="delay")

    await world.run(rounds=(define, lambda world: world.cells("flights", "one")))
    assert await world.run(world.Fuse(0, point), rounds=(ask,)) == 1
    assert world.complaints() == []
    answer = world.answer("q")
    assert answer["found"]["label"] == "0 to 9"
    assert answer["privacy_loss"]["share"] == pytest.approx(0.05)
    assert answer["budget"]["spent"] == pytest.approx(0.1, rel=1e-4)


async def test_a_definition_whose_groups_could_name_nothing_is_refused(world: Any) -> None:
    record = world.define("flights", kinds={"mode": {"share": 0.05, "groups": 100}})
    await world.run()
    reason = world.rejection(record)["reason"]
    assert reason["message"].startswith("kinds.mode.groups: at this share fewer than")


VECTOR = {"correlated_vector": {"share": 0.3, "attribute": "cancelled"}}


def fill(world: Any, batch_id: str, n: int = 1) -> None:
    """The rows of ``world.cells``, one by one: 9,000 n of AA, 8,000 n of UA, cancelled, 4,000 n others."""
    columns = {
        "carrier": ["AA"] * 9_000 * n + ["UA"] * 8_000 * n + ["ZZ"] * 4_000 * n,
        "delay": [5] * 9_000 * n + [45] * 8_000 * n + [-3] * 4_000 * n,
        "cancelled": [False] * 9_000 * n + [True] * 8_000 * n + [False] * 4_000 * n,
    }
    world.batch("flights", batch_id, columns=columns)


def signs(answer: dict[str, Any]) -> npt.NDArray[np.int64]:
    packed = np.frombuffer(base64.b64decode(answer["vector"]["bits"]), dtype=np.uint8)
    return 2 * np.unpackbits(packed, count=answer["n"]).astype(np.int64) - 1


async def test_each_row_responds_once_and_every_query_is_free(world: Any) -> None:
    def ask(world: Any) -> None:
        n = len(world.answers())
        for window in (None, {"last_phases": 1}):
            name = f"{n} {window}".replace(" ", "")
            world.ask(
                "flights", name, kind="correlated_vector", attribute="cancelled", window=window
            )

    await world.run(
        rounds=(
            lambda world: world.define("flights", kinds=VECTOR),
            lambda world: fill(world, "one"),
            ask,
            lambda world: fill(world, "two"),
            ask,
        )
    )
    await world.run(rounds=(ask,))
    assert world.complaints() == []
    replies = [answer for _, answer in sorted(world.answers().items())]
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
    def ask(world: Any) -> None:
        name = f"q{len(world.answers())}"
        world.ask("flights", name, kind="correlated_vector", attribute="cancelled")

    await world.run(rounds=(lambda world: world.define("flights", kinds=VECTOR),))
    opening = (lambda world: fill(world, "one"), ask, lambda world: fill(world, "two"), ask)
    assert await world.run(world.Fuse(0, point), rounds=opening) == 1
    assert world.complaints() == []
    reason = world.answer("q0")["reason"]
    assert (reason["code"], reason["retriable"]) == ("retry_after", True)
    assert len(signs(world.answer("q1"))) == 42_000
    assert world.answer("q1")["budget"]["spent"] >= 0.6


async def test_rows_that_are_only_counted_are_refused_where_rows_respond(world: Any) -> None:
    await world.run(
        rounds=(
            lambda world: world.define("flights", kinds=VECTOR),
            lambda world: world.cells("flights", "one"),
        )
    )
    (refused,) = world.events("batch_refused")
    assert "send rows or columns" in refused["reason"]["message"]
    assert world.complaints() == []


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
        "predicate": {"where": {"attribute": "carrier", "eq": "AA"}},
        "threshold": {"attribute": "delay", "where": {"attribute": "delay", "ge": 30}},
        "quantile": {"attribute": "delay", "rank": 0.9},
        "median": {"attribute": "delay"},
        "mode": {"attribute": "cancelled"},
        "correlated_vector": {"attribute": "cancelled"},
    }

    def ask(prefix: str) -> Any:
        items = [
            {"query_id": f"{prefix}-{kind}", "kind": kind, **query}
            for kind, query in queries.items()
        ]
        return lambda world: world.ask_many("flights", items)

    def define(world: Any) -> None:
        world.define("flights", kinds=kinds, privacy={"epsilon": 4.0, "delta": 1e-6})

    for rounds in (
        (define, lambda world: fill(world, "one", 2), ask("first")),
        (lambda world: fill(world, "two"), ask("both")),
        (ask("again"),),
    ):
        await world.run(rounds=rounds)  # each by a new process
    assert world.complaints() == []

    found = {name[-1]: answer for name, answer in world.answers().items()}
    assert {answer["status"] for answer in found.values()} == {"answered"}
    for prefix, n in (("first", 42_000), ("both", 63_000)):
        assert {found[f"{prefix}-{kind}"]["n"] for kind in queries} == {n}
        late = found[f"{prefix}-threshold"]
        assert abs(late["count"] - 8 * n / 21) <= late["error_bar"] * n < n / 2
        assert found[f"{prefix}-quantile"]["found"]["low"] == 30
        assert found[f"{prefix}-median"]["found"]["label"] == "0 to 9"
        assert found[f"{prefix}-mode"]["found"]["label"] == "false"
        assert len(signs(found[f"{prefix}-correlated_vector"])) == n
    # The second phase pays for its own part; a new median, or mode, looks at the first one again.
    paid = {kind: found[f"both-{kind}"]["privacy_loss"] for kind in queries}
    assert paid["threshold"] == {"share": pytest.approx(0.1), "blocks": 1}
    for kind in ("median", "mode"):
        assert paid[kind] == {"share": pytest.approx(0.05), "blocks": 2}
    assert found["both-correlated_vector"]["budget"]["spent"] > 0.3 + 0.1 + 4 * 0.05
    for kind in queries:
        both, again = found[f"both-{kind}"], found[f"again-{kind}"]
        assert again["difficulty"] == "easy"
        assert again["budget"] == found["both-correlated_vector"]["budget"]
        for field in ("value", "count", "found", "vector"):
            assert again.get(field) == both.get(field)
