"""Every mechanism but the calibrated one answers through the worker, and survives a restart."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.pipeline.flights import AA, FLOWN, asked, asked_in_turn, judged, opened, ran
from tests.pipeline.world import MEMORY

pytestmark = judged

PURE = {"epsilon": 1.0, "delta": 0}
OTHERS: dict[str, dict[str, Any]] = {
    "gated": {"mechanism": {"profile": "gated", "segments": 20}},
    "gated, carried over": {
        "mechanism": {"profile": "gated", "segments": 20, "prior": "carry_over"}
    },
    "counts": {"mechanism": {"profile": "counts"}},
    "counts, pure": {"mechanism": {"profile": "counts"}, "privacy": PURE},
    "whole table": {"mechanism": {"profile": "whole_table"}},
    "weights": {"mechanism": {"profile": "weights"}},
    "weights, pure": {"mechanism": {"profile": "weights"}, "privacy": PURE},
    "weights, fixed": {"mechanism": {"profile": "weights", "growing": False}},
    "bypass": {"mechanism": {"profile": "bypass"}},
    "bypass, pure": {"mechanism": {"profile": "bypass"}, "privacy": PURE},
}
PAPERS: dict[str, dict[str, Any]] = {
    "median": {"profile": "median", "queries": 10},
    "sequential": {"profile": "sequential", "queries_per_phase": 10, "phases": 2},
    "memory": {"profile": "memory", "queries_per_phase": 10, "phases": 2},
}
THESIS: dict[str, Any] = {
    **{name: value for name, value in MEMORY.items() if name != "mechanism"},
    "privacy": {"epsilon": 2.0, "delta": 0.01},
}
BOTH = {"all": [AA, FLOWN]}


def many(n: int = 50_000_000) -> dict[str, Any]:
    """Rows of which two thirds are of AA, two thirds have flown, and one third both."""
    kinds = (("AA", False), ("AA", True), ("UA", False))
    return {"cells": [{"carrier": c, "cancelled": gone, "count": n} for c, gone in kinds]}


async def assert_answers(world: Any, truths: tuple[float, ...], error: float) -> list[Any]:
    """Asks a worker about the carrier and the cancelled, and the next one about both, and again."""
    replies = await asked(world, {"where": AA}, {"where": FLOWN})
    replies += await asked(world, {"where": BOTH}, {"where": AA})
    for reply, truth in zip(replies, truths, strict=True):
        assert reply["status"] == "answered", reply
        assert abs(reply["value"] - truth) <= error
        assert reply["budget"]["spent"] <= 1
    return replies


@pytest.mark.parametrize(
    ("profile", "representation", "doubling"),
    [*product(PAPERS, ("exhaustive", "entropic", "polytope"), (False, True))],
)
async def test_the_papers_answer_queries_and_survive_a_restart(
    world: Any, profile: str, representation: str, doubling: bool
) -> None:
    settings = {"hypothesis_rows": 3, "representation": representation, "doubling": doubling}
    mechanism = {**PAPERS[profile], **settings}
    await opened(world, rows=many(), **THESIS, mechanism=mechanism)
    replies = await assert_answers(world, (2 / 3, 2 / 3, 1 / 3, 2 / 3), 0.3)
    assert {reply["path"] for reply in replies} <= {"gated", "measured"}


@pytest.mark.parametrize("name", OTHERS)
async def test_so_does_every_other_one(world: Any, name: str) -> None:
    await opened(world, rows=many(700_000), **OTHERS[name])
    replies = await assert_answers(world, (2 / 3, 2 / 3, 1 / 3, 2 / 3), 0.02)
    if name != "weights, fixed":
        await ran(world, lambda world: world.batch("flights", "more", **many(700_000)))
        [later] = await asked(world, {"where": AA})
        assert (later["status"], later["n"]) == ("answered", 4_200_000)
        assert abs(later["value"] - 2 / 3) <= 0.02
        replies.append(later)
    assert [reply["error_bar"] for reply in replies] == [pytest.approx(0.02)] * len(replies)


@pytest.mark.parametrize("name", ["gated", "weights", "weights, pure"])
async def test_a_restart_begins_a_new_segment_and_every_phase_pays_for_it(
    world: Any, name: str
) -> None:
    """The threshold of the running one was a secret of the process that ended."""
    everything: dict[str, Any] = {}  # what is predicted of all rows always stands
    process = await world.owner()
    await opened(process, rows=many(700_000), **OTHERS[name])
    replies = await asked_in_turn(process, everything, everything)
    await ran(process, lambda world: world.batch("flights", "more", **many(700_000)))
    replies += await asked(process, everything)
    await process.kill()
    replies += await asked(world, everything, everything)
    assert {reply["path"] for reply in replies} == {"gated"}
    losses = [reply["privacy_loss"] for reply in replies]
    assert [loss["blocks"] for loss in losses] == [1, 0, 1, 2, 0], (
        "the second phase joins the first"
    )
    assert losses[2]["share"] == losses[0]["share"]


async def test_queries_beyond_the_stage_begin_the_next_and_the_ledger_says_so(world: Any) -> None:
    settings = {"hypothesis_rows": 3, "representation": "exhaustive", "doubling": True}
    mechanism = {"profile": "median", "queries": 2, **settings}
    rows = {"cells": [{"carrier": "AA", "cancelled": False, "count": 10**9}]}
    await opened(world, rows=rows, **THESIS, mechanism=mechanism)
    process = await world.owner()
    await asked_in_turn(process, *[{"where": AA}] * 5)
    await process.kill()
    looks = [look for entry in world.released("ledger") for look in entry.get("looks", [])]
    assert [look["stage"] for look in looks] == [1, 1, 1, 2, 2, 2]
    assert [look["queries"] for look in looks] == [2, 2, 2, 4, 4, 4]
