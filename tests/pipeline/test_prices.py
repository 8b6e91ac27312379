"""The price checker knows every look that a worker takes, and every charge is to the unit what it says."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from stream_dp.audit import Report, verify

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 30}
EARLY = {"attribute": "delay", "lt": 10}
SHORT = {"attribute": "cancelled", "eq": False}
PURE = {"epsilon": 1.0, "delta": 0}


def records(world: Any) -> dict[str, list[bytes]]:
    """The topic ``ledger``, by key, repeated records too."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for event in world.trail:
        outgoing = getattr(event, "outgoing", None)
        if outgoing is not None and outgoing.role == "ledger":
            found[outgoing.key].append(outgoing.value)
    return found


def define(**changes: Any) -> Any:
    return lambda world: world.define("flights", **changes)


def rows(world: Any) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)


def few_rows(world: Any) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}")


def ask(*items: dict[str, Any]) -> Any:
    def asked(world: Any) -> None:
        for item in items:
            world.ask("flights", f"q-{world.next_offset('queries', 'flights')}", **item)

    return asked


PREDICATES = ask({"where": AA}, {"where": SHORT}, {"where": {"all": [AA, SHORT]}}, {"where": AA})
OTHERS: dict[str, dict[str, Any]] = {
    "gated": {"mechanism": {"profile": "gated", "segments": 20}},
    "gated, carried over": {"mechanism": {"profile": "gated", "segments": 20, "prior": "carry_over"}},
    "counts": {"mechanism": {"profile": "counts"}},
    "counts, pure": {"mechanism": {"profile": "counts"}, "privacy": PURE},
    "whole table": {"mechanism": {"profile": "whole_table"}},
    "weights": {"mechanism": {"profile": "weights"}},
    "weights, pure": {"mechanism": {"profile": "weights"}, "privacy": PURE},
    "weights, fixed": {"mechanism": {"profile": "weights", "growing": False}},
    "bypass": {"mechanism": {"profile": "bypass"}},
    "bypass, pure": {"mechanism": {"profile": "bypass"}, "privacy": PURE},
}
EVERYTHING = {
    "threshold": {"share": 0.1},
    "median": {"share": 0.05},
    "mode": {"share": 0.05},
    "prefix_batch": {"share": 0.05},
    "correlated_vector": {"share": 0.1, "attribute": "cancelled"},
    "between": {"share": 0.1, "answers": 2},
    "interior_point": {"share": 0.05, "points": 100},
    "adaptive_threshold": {"share": 0.1, "chunks": 4, "queries": 50},
}
QUESTIONS = ask(
    {"where": AA},
    {"kind": "table", "group_by": ["carrier"]},
    {"kind": "table", "group_by": ["carrier", "delay"]},
    {"kind": "threshold", "attribute": "delay", "where": LATE},
    {"kind": "quantile", "attribute": "delay", "rank": 0.5},
    {"kind": "median", "attribute": "delay"},
    {"kind": "mode", "attribute": "cancelled"},
    {"kind": "prefix_batch", "attribute": "delay", "wheres": [EARLY, LATE]},
    {"kind": "correlated_vector", "attribute": "cancelled"},
    {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
    {"kind": "between", "where": SHORT, "low": 0.1, "high": 0.3},
    {"kind": "interior_point", "attribute": "delay", "where": EARLY},
    {"kind": "adaptive_threshold", "attribute": "delay", "where": EARLY},
)


async def ledger_of(world: Any, *rounds: Any) -> list[bytes]:
    await world.run(rounds=rounds[:-1])
    await world.run(rounds=rounds[-1:])  # another process
    assert world.complaints() == []
    return records(world)["flights"]


def right(entries: list[bytes]) -> Report:
    report = verify("flights", entries, catalog=json.loads(entries[0])["definition"])
    assert report.faults == []
    assert report.notes == []
    assert {block.difference for block in report.blocks} == {(0, 0)}
    return report


@pytest.mark.parametrize("name", OTHERS)
async def test_so_does_every_other_one(world: Any, name: str) -> None:
    report = right(await ledger_of(world, define(**OTHERS[name]), rows, PREDICATES, rows, PREDICATES))
    print(report)
    assert report.charges



def columns(world: Any) -> None:
    """21,000 rows that each are an entry of their own, so that they can respond."""
    n = 7_000
    world.batch(
        "flights",
        f"batch-{world.next_offset('batches', 'flights')}",
        columns={
            "carrier": ["AA", "UA", "AA"] * n,
            "delay": [5, 45, 20] * n,
            "cancelled": [False, True, False] * n,
        },
    )


async def test_kinds(world: Any) -> None:
    ledger = await ledger_of(world, define(kinds=EVERYTHING, privacy={"epsilon": 20.0, "delta": 1e-6}), columns, QUESTIONS, columns, QUESTIONS)
    looks = {look["kind"] for e in ledger for look in json.loads(e).get("looks", [])}
    print(looks)
    print({k: json.loads(e) for e in ledger for k in [look["kind"] for look in json.loads(e).get("looks", [])]})
    for a in world.answers().values():
        if a["status"] == "refused": print(a["reason"])
    print(right(ledger))

async def test_partition(world: Any) -> None:
    ledger = await ledger_of(world, define(kinds={"threshold": {"share": 0.1, "partition": True}}), columns, QUESTIONS, columns, QUESTIONS)
    print(right(ledger))

PROFILES: dict[str, dict[str, Any]] = {
    "median": {"profile": "median", "queries": 3},
    "sequential": {"profile": "sequential", "queries_per_phase": 3, "phases": 2},
    "memory": {"profile": "memory", "queries_per_phase": 10, "phases": 2},
}
@pytest.mark.parametrize("doubling", [False, True], ids=["known", "doubling"])
@pytest.mark.parametrize("representation", ["exhaustive", "entropic", "polytope"])
@pytest.mark.parametrize("profile", PROFILES)
async def test_papers(world: Any, profile: str, representation: str, doubling: bool) -> None:
    def define(world: Any) -> None:
        world.define_papers(
            "flights",
            **PROFILES[profile],
            hypothesis_rows=3,
            representation=representation,
            doubling=doubling,
        )

    def many(world: Any) -> None:
        cells = [
            {"carrier": carrier, "cancelled": cancelled, "count": 500_000_000}
            for carrier, cancelled in (("AA", False), ("AA", True), ("UA", False))
        ]
        world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", cells=cells)
    ledger = await ledger_of(world, define, many, PREDICATES, many, *[PREDICATES] * 4)
    for a in world.answers().values():
        if a["status"] == "refused": print(a["reason"])
    print([e.decode() for e in ledger if b'"phase"' in e])
    print(right(ledger))
