"""Bounds that are proposed for a number: what is measured and charged for them, and what they rest on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from stream_dp.audit.verify import verify
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.looks.table_looks import TablesRelease, measured_from_bytes
from stream_dp.messages import Definition
from stream_dp.number_grid import grid_edges
from stream_dp.pipeline.datasets.transcript import RELEASE
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.schema import StateTable
from tests.pipeline import flights, orders
from tests.pipeline.conftest import Die
from tests.pipeline.flights import judged
from tests.pipeline.people import verified
from tests.pipeline.world import World

pytestmark = judged

asked = partial(flights.asked, dataset="orders")

AMOUNT = {"attribute": "amount"}


async def opened(process: Any, *rounds: Any, **definition: Any) -> Any:
    for one in (partial(orders.define, **definition), orders.phase, *rounds):
        one(process.world)
        await process.run()
    assert not process.world.released("rejected"), process.world.released("rejected")
    return process.world


def entries(world: Any, kind: str) -> list[dict[str, Any]]:
    return [one for entry in world.ledger("orders") if (one := json.loads(entry))["kind"] == kind]


def tables(world: Any) -> dict[tuple[int, ...], tuple[int, Any]]:
    """The tables that were published of the first phase: their scales, and their noisy counts."""
    found = {}
    for said in world.held("orders").said:
        for entry in said.transcript:
            if entry[:1] == RELEASE:
                release = measured_from_bytes((3, 403), entry[1:])
                assert isinstance(release, TablesRelease)
                for part, table in zip(release.parts, release.tables, strict=True):
                    if part.block == 0:
                        found[part.attributes] = part.step, table
    return found


async def test_an_event_proposes_bins_once_the_first_phase_is_open(
    world: Any, process: Any
) -> None:
    world = await opened(process, orders.phase)
    (event,) = world.events("bounds_proposed")
    assert (event["attribute"], event["phase"]) == ("amount", 1)
    # An octave beyond the cells of 1.5 and 500, although five rows say nine billion.
    assert (event["low"], event["high"]) == (0.75, 1024)
    assert {*event["edges"]} <= {*grid_edges()}
    first, second, third = event["edges"]
    assert 1.5 < first <= 4
    assert 4 < second <= 10
    assert 10 < third < 500


async def test_what_is_proposed_follows_from_what_was_published(world: Any, process: Any) -> None:
    """From the noisy table alone, by a computation of its own."""
    world = await opened(process)
    (event,) = world.events("bounds_proposed")
    published = tables(world)
    assert published.keys() == {(0,), (1,)}, "each is measured alone"
    step, noisy = published[1,]
    exact = np.zeros(403)
    for _, amount, n in orders.ROWS:
        exact[np.searchsorted(grid_edges(), amount, side="right")] += n
    assert 0 < np.abs(noisy - exact).max() < 10 * float(grid_sigma(step))
    least = float(grid_sigma(step)) * NormalDist().inv_cdf(1 - 1e-9 / 403)
    filled = np.flatnonzero(noisy >= math.ceil(least + 0.5))
    edges = np.array(grid_edges())
    low, high = edges[filled[0] - 1 - 4], edges[filled[-1] + 4]
    assert (event["low"], event["high"]) == (low, high)
    counts = np.maximum(noisy[filled[0] - 4 : filled[-1] + 5], 0)
    shares = np.cumsum(counts)[:-1] / counts.sum()
    ends = edges[filled[0] - 4 : filled[-1] + 4]
    for number, edge in enumerate(event["edges"], 1):
        off = np.abs(shares - number / 4)
        assert off[ends == edge] == pytest.approx(off.min())


async def test_the_price_is_the_declared_share_and_on_the_ledger(world: Any, process: Any) -> None:
    world = await opened(process, orders.phase)
    with_look, without = entries(world, "charge")
    sizes = [[attributes for attributes, *_ in look["tables"]] for look in with_look["looks"]]
    assert sizes == [[[0], [1]]]
    assert [t[0] for look in without["looks"] for t in look["tables"]] == [[0]], "once for ever"
    (first,), (second,) = (
        [rho for _, rho, _ in entry["charges"]] for entry in (with_look, without)
    )
    # Phases are alike, so that what the second one does not pay is the look. Scales are on a grid.
    assert 0.95 * orders.SHARE <= (first - second) / UNITS <= orders.SHARE
    report = verify("orders", world.ledger("orders"))
    assert (report.faults, report.notes) == ([], [])
    assert [block.recomputed[0] for block in report.blocks] == [first, second]


async def test_what_opening_takes_is_told_with_it(world: Any, process: Any) -> None:
    world = await opened(process)
    mechanism = process.datasets["orders"].mechanism
    (entry,) = entries(world, "charge")
    assert mechanism.opening_units(orders.N) == entry["charges"][0][1]


QUERIES: list[tuple[dict[str, Any], int]] = [
    ({"where": {**AMOUNT, "ge": 8}}, 5_000),
    ({"where": {**AMOUNT, "lt": 4}}, 2_500),
    ({"where": {**AMOUNT, "lt": -1}}, 0),
    ({"where": {"all": [{**AMOUNT, "ge": 8}, {"attribute": "country", "eq": "DE"}]}}, 2_505),
]


async def test_queries_are_answered_on_the_grid_until_then(world: Any, process: Any) -> None:
    await opened(process)
    replies = await asked(process, *(query for query, _ in QUERIES))
    for reply, (_, count) in zip(replies, QUERIES, strict=True):
        assert reply["status"] == "answered"
        assert abs(reply["count"] - count) <= reply["error_bar"] * reply["n"] + 1
    median, table, cut, total = await asked(
        process,
        {"kind": "quantile", "attribute": "amount", "rank": 0.5},
        {"kind": "table", "group_by": ["amount"]},
        {"where": {**AMOUNT, "ge": 8.5}},
        {"kind": "sum", "attribute": "amount"},
    )
    assert median["status"] == table["status"] == "answered"
    assert len(table["table"]["counts"]) == 403
    assert cut["reason"]["code"] == "cuts_bin"
    assert "not known yet" in total["reason"]["message"]


async def test_bins_that_are_accepted_count_in_old_rows_exactly(world: Any, process: Any) -> None:
    world = await opened(process)
    (event,) = world.events("bounds_proposed")
    before = world.held("orders").spent
    orders.change(world, orders.accepted(event["edges"]))
    await process.run()
    assert world.held("orders").spent == before, "a change costs nothing"
    orders.phase(world)
    await process.run()
    first, second, third = event["edges"]
    cases = [
        ({"where": {**AMOUNT, "lt": first}}, 5_000),
        ({"where": {**AMOUNT, "lt": second}}, 10_000),
        ({"where": {**AMOUNT, "ge": third}}, 5_000),
        (
            {"where": {"all": [{**AMOUNT, "lt": third}, {"attribute": "country", "eq": "DE"}]}},
            10_000,
        ),
    ]
    *replies, table = await asked(
        process, *(query for query, _ in cases), {"kind": "table", "group_by": ["amount"]}
    )
    for reply, (_, count) in zip(replies, cases, strict=True):
        assert (reply["status"], reply["window"]) == ("answered", [1, 2])
        assert "unrecorded_at_most" not in reply
        assert abs(reply["count"] - count) <= reply["error_bar"] * reply["n"] + 1
    assert "unrecorded_at_most" not in table["table"]
    bars = zip(table["table"]["counts"], table["table"]["error_bars"], strict=True)
    assert all(abs(count - 5_000) <= bar * table["n"] + 1 for count, bar in bars)
    assert len(world.events("bounds_proposed")) == 1
    report = verify("orders", world.ledger("orders"))
    assert (report.faults, report.notes) == ([], [])


async def test_accepted_bins_are_counted_together_in_old_rows(world: Any, process: Any) -> None:
    """An outer bin is some 180 cells of the grid, and a table costs what it costs in phases with the bins."""
    world = await opened(process, mechanism={"base_share": 0.0})
    orders.change(world, orders.accepted([3, 8, 64]))
    await process.run()
    orders.phase(world)
    await process.run()
    where = {"attribute": "country", "eq": "DE"}
    table = {"kind": "table", "group_by": ["amount"], "where": where, "error": {"value": 100}}
    old, new = ({**table, "window": {"phases": [n, n]}} for n in (1, 2))
    quote, first, second, both = await asked(
        process, {**old, "quote": True}, old, new, {**table, "error": {"value": 150}}
    )
    for reply, times in ((first, 1), (second, 1), (both, 2)):
        for cell, count in zip(reply["table"]["counts"], (2_500, 0, 2_500, 5), strict=True):
            assert abs(cell - times * count) <= 151
    shares = [reply["privacy_loss"]["share"] for reply in (quote, first, second, both)]
    assert shares == [shares[0], shares[0], pytest.approx(shares[0], rel=0.15), 0.0]
    ledger = [json.loads(entry) for entry in world.ledger("orders")]
    assert verified(ledger) == []
    looks = [look for entry in ledger for look in entry.get("looks", ()) if "looks" in look]
    merged = [one for look in looks for one in look["looks"] if one.get("merged")]
    assert [one["answers"] for one in merged] == [4]
    merged[0]["answers"] = 404
    assert any("404 answers" in fault for fault in verified(ledger))


KEPT = {"unit": 0.5, "low": 0.5, "high": 1024}


@pytest.mark.parametrize("measure", [None, KEPT], ids=["bins", "values"])
async def test_sums_are_about_phases_with_bounds(world: Any, process: Any, measure: Any) -> None:
    """Rows on the grid do not say what they count for: its ends are too far apart."""
    world = await opened(process)
    (event,) = world.events("bounds_proposed")
    kept = {} if measure is None else {"measure": measure}
    orders.change(world, orders.accepted(event["edges"], **kept))
    await process.run()
    orders.phase(world)
    await process.run()
    amounts = {"kind": "sum", "attribute": "amount"}
    both, first, second, since = await asked(
        process,
        amounts,
        {**amounts, "window": {"phases": [1, 1]}},
        {**amounts, "window": {"phases": [2, 2]}},
        {**amounts, "across": "since"},
    )
    assert both["reason"]["code"] == first["reason"]["code"] == "not_recorded"
    assert second["window"] == since["window"] == [2, 2]
    assert second["status"] == since["status"] == "answered"
    if measure is not None:
        total = sum(min(amount, 1024) * n for _, amount, n in orders.ROWS)
        assert abs(second["total"] - total) <= second["total_bar"]


BY_AMOUNT: dict[str, Any] = {"group_by": ["amount"], "window": {"last_phases": 1}}


@pytest.mark.parametrize(
    "others", [[], [{"group_by": ["country"]}]], ids=["alone", "next to others"]
)
async def test_tiles_of_such_a_number_are_planned_once_it_has_edges(
    world: Any, process: Any, others: Any
) -> None:
    workload = [BY_AMOUNT, {"group_by": ["country", "amount"]}, *others]
    world = await opened(process, mechanism={"workload": workload})
    assert tables(world).keys() == {(1,), *((0,) for _ in others)}
    (event,) = world.events("bounds_proposed")
    orders.change(world, orders.accepted(event["edges"]))
    await process.run()
    orders.phase(world)
    await process.run()
    *_, last = entries(world, "charge")
    assert [2] in [attributes for look in last["looks"] for attributes, *_ in look["tables"]]
    (reply,) = await asked(process, {"kind": "table", **BY_AMOUNT})
    assert reply["difficulty"] == "easy"


@pytest.mark.parametrize("waiting", [0, 5])
async def test_edges_of_the_owner_come_first(world: Any, process: Any, waiting: int) -> None:
    """Nothing is measured for a proposal that nobody wants any more."""
    orders.define(world)
    world.batch("orders", "first", cells=[{"country": "DE", "amount": 3.0, "count": waiting}])
    await process.run()
    orders.change(world, orders.accepted([10, 100]))
    await process.run()
    orders.phase(world)
    await process.run()
    orders.phase(world)
    await process.run()
    assert [event["phase"] for event in world.events("schema_changed")] == [2 if waiting else 1]
    assert len(world.events("phase_opened")) == 2
    assert not world.events("bounds_proposed")
    assert all(rho <= 0.1 * UNITS for e in entries(world, "charge") for _, rho, _ in e["charges"])


async def test_a_number_that_is_added_later_has_its_own_first_phase(
    world: Any, process: Any
) -> None:
    added = {"name": "weight", "type": "number", "propose": {"bins": 2}, "missing": True}
    world = await opened(
        process,
        lambda w: orders.change(w, [*orders.ATTRIBUTES, added]),
        partial(orders.phase, weight=70.0),
        partial(orders.phase, weight=70.0),
    )
    said = [(event["attribute"], event["phase"]) for event in world.events("bounds_proposed")]
    assert said == [("amount", 1), ("weight", 2)]
    *_, event = world.events("bounds_proposed")
    assert (event["low"], event["high"]) == (32, 160)


async def test_the_catalog_keeps_what_was_proposed(world: Any, process: Any) -> None:
    """Events last for a month. A new owner knows it too, and the checker finds no fault with it."""
    world = await opened(process)
    (event,) = world.events("bounds_proposed")
    wanted = [{name: event[name] for name in ("attribute", "low", "high", "edges")}]
    listed = json.loads(world.left("catalog")[-1].value)
    assert listed["proposals"] == wanted
    report = verify("orders", world.ledger("orders"), catalog=Definition.read(listed))
    assert (report.faults, report.notes) == ([], [])
    await process.kill()
    other = await world.owner()
    renamed = {**orders.ATTRIBUTES[1], "name": "paid", "was": ["amount"]}
    orders.change(world, [orders.ATTRIBUTES[0], renamed])
    await other.run()
    assert json.loads(world.left("catalog")[-1].value)["proposals"] == wanted


async def test_too_few_rows_propose_nothing_and_say_so(world: Any, process: Any) -> None:
    tiny = [{**orders.ATTRIBUTES[1], "propose": {"share": 0.001}}]
    world.define("orders", attributes=tiny, privacy={"epsilon": 0.05, "delta": 1e-9},
                 phase={"min_rows": orders.N})  # fmt: skip
    world.batch("orders", "b", cells=[{"amount": a, "count": n} for _, a, n in orders.ROWS])
    await process.run()
    (event,) = world.events("bounds_proposed")
    assert "edges" not in event
    assert "too few rows" in event["note"]


async def test_missing_values_are_not_taken_for_small_ones(world: Any, process: Any) -> None:
    """They count in the first cell where they have none of their own."""
    rows = [*orders.ROWS[:3], ("DE", None, 2_500)]
    world = process.world
    orders.define(world)
    orders.phase(world, rows)
    await process.run()
    (event,) = world.events("bounds_proposed")
    assert event["low"] == 0.75


async def test_persons_have_proposals_too(world: Any, process: Any) -> None:
    unit = {"key": "who", "rows_per_phase": 1, "phases": 2}
    orders.define(world, privacy={"epsilon": 8.0, "delta": 1e-9, "unit": unit})
    await process.run()
    rows = [
        {"country": c, "amount": a, "who": f"{at}-{i}"}
        for at, (c, a, n) in enumerate(orders.ROWS)
        for i in range(n)
    ]
    world.batch("orders", "b", rows=rows)
    await process.run()
    (event,) = world.events("bounds_proposed")
    assert (event["low"], event["high"]) == (0.75, 1024)
    report = verify("orders", world.ledger("orders"))
    assert (report.faults, report.notes) == ([], [])


async def test_the_event_comes_once_wherever_the_worker_dies(die: Die) -> None:
    """A look that is lost stays charged, and the next phase takes it again."""
    rounds: list[Callable[[World], object]] = [orders.define, orders.phase, orders.phase]
    again = 0
    async for at, world in die(rounds, {0, 1}, points=[*CrashPoint]):
        told = {one.value for one in world.left("events") if b"bounds_proposed" in one.value}
        assert len(told) == 1, at
        entries_of = world.held("orders").pairs.items()
        releases = [v for (table, _), v in entries_of if table is StateTable.TRANSCRIPT]
        stored = [
            part
            for entry in releases
            if entry is not None and entry[:1] == RELEASE
            for part in measured_from_bytes((3, 403), entry[1:]).parts  # type: ignore[union-attr]
            if part.attributes == (1,)
        ]
        assert len(stored) == 1, at
        assert world.complaints() == []
        again += json.loads(next(iter(told)))["phase"] == 2
    assert again, "some of them lost a look"
