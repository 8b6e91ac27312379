"""The data set of most tests: conditions on it, how it gets its first phase, and how it is asked.

A test makes a data set with ``opened``, and asks with ``asked``, which gives the replies in the order of
the queries. Both take a worker that goes on, or a ``World``. In a world each is done by a worker of its own,
which knows of the others what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.pipeline.intake.records import Record
from tests.pipeline.world import Process, World

AA: dict[str, Any] = {"attribute": "carrier", "eq": "AA"}
UA: dict[str, Any] = {"attribute": "carrier", "eq": "UA"}
LATE: dict[str, Any] = {"attribute": "delay", "ge": 10}
VERY_LATE: dict[str, Any] = {"attribute": "delay", "ge": 30}
CUT: dict[str, Any] = {"attribute": "delay", "ge": 7}
"""This cuts a bin, so that it is refused."""
GONE: dict[str, Any] = {"attribute": "cancelled", "eq": True}
FLOWN: dict[str, Any] = {"attribute": "cancelled", "eq": False}

LAST: dict[str, Any] = {"window": {"last_phases": 1}}
BEFORE: dict[str, Any] = {**LAST, "minus_window": {"previous_phases": 1}}
BY_CARRIER: dict[str, Any] = {"kind": "table", "group_by": ["carrier"]}
EVERY_KIND: dict[str, dict[str, Any]] = {
    "threshold": {"share": 0.1},
    "median": {"share": 0.05},
    "mode": {"share": 0.05},
    "prefix_batch": {"share": 0.05},
    "correlated_vector": {"share": 0.1, "attribute": "cancelled"},
    "between": {"share": 0.1, "answers": 2},
    "interior_point": {"share": 0.05, "points": 100},
    "adaptive_threshold": {"share": 0.05, "chunks": 4, "queries": 50},
}
"""A definition of each kind, of which each takes a part of the line."""
UNMEASURED = {"base_share": 0.0}
"""A mechanism for which nothing is measured before it is asked."""
PRECISE: dict[str, Any] = {
    "accuracy": {"error": 0.05, "failure_probability": 1e-9},
    "privacy": {"epsilon": 4.0, "delta": 1e-9},
}
"""Bars that hold with a confidence of 1 - 1e-9 each, so that a test compares them with the truth."""

TWO_ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"], "other": False},
    {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True, "missing": True},
]
TWO_COUNTS = [("AA", 5, 9_000), ("AA", 45, 2_000), ("UA", 20, 8_000), ("UA", -3, 1_000)]
TWO_ROWS: dict[str, Any] = {
    "cells": [
        *({"carrier": c, "delay": d, "count": n} for c, d, n in TWO_COUNTS),
        {"carrier": "AA", "count": 4_000},
    ]
}
"""Rows of ``TWO_ATTRIBUTES``. The delay of 4,000 of them is not known."""

Produce = Callable[[World], object]


async def ran(on: World | Process, *rounds: Produce) -> World:
    """Produces in rounds, each when the one before is done."""
    if isinstance(on, World):
        await on.run(rounds=rounds)
        return on
    for produce in rounds:
        produce(on.world)
        await on.run()
    return on.world


async def opened(
    on: World | Process,
    dataset: str = "flights",
    *,
    rows: Mapping[str, Any] | None = None,
    **definition: Any,
) -> World:
    """A data set in its first phase.

    Args:
        on: The world, or a worker of it.
        dataset: Its name.
        rows: The form of its first batch. By default there are 21,000 rows, see ``World.cells``.
        definition: What its definition has besides.
    """

    def fill(world: World) -> None:
        if rows is None:
            world.cells(dataset, "first")
        else:
            world.batch(dataset, "first", **rows)

    return await ran(on, lambda world: world.define(dataset, **definition), fill)


async def next_phase(on: World | Process, dataset: str = "flights", phases: int = 1) -> None:
    """Opens more phases, each with 21,000 rows."""
    for _ in range(phases):
        await ran(
            on, lambda world: world.cells(dataset, f"{world.next_offset('batches', dataset)}")
        )


async def asked(
    on: World | Process,
    *queries: Mapping[str, Any],
    dataset: str = "flights",
    analyst: str = "ana",
    **envelope: Any,
) -> list[Any]:
    """The replies to queries that are asked in one record.

    Args:
        on: The world, or a worker of it.
        queries: They have ids of their own unless they name one.
        dataset: What they are about.
        analyst: Who asks.
        envelope: What the record says besides.
    """
    world = on if isinstance(on, World) else on.world
    place = world.next_offset("queries", dataset)
    items = [{"query_id": f"{place}-{n}", **query} for n, query in enumerate(queries)]
    record = world.ask_many(dataset, items, analyst=analyst, **envelope)
    await on.run()
    answers, rejected = world.answers(), rejections(world, record)
    names = [item["query_id"] for item in items]
    return [rejected.get(name) or answers.get((dataset, analyst, name)) for name in names]


async def asked_in_turn(on: World | Process, *queries: Mapping[str, Any], **about: Any) -> Any:
    """The replies to queries of which each waits for the reply to the one before."""
    return [(await asked(on, query, **about))[0] for query in queries]


async def assert_said(
    on: World | Process,
    cases: Iterable[tuple[Mapping[str, Any], str, str]],
    *,
    dataset: str = "flights",
    **common: Any,
) -> None:
    """Asks queries that are refused or rejected: each with the code and some words of the reason."""
    told = list(cases)
    replies = await asked(on, *({**common, **query} for query, _, _ in told), dataset=dataset)
    wrong = [
        (query, reason)
        for (query, code, words), reason in zip(
            told, (reply.get("reason") for reply in replies), strict=True
        )
        if reason is None or reason["code"] != code or words not in reason["message"]
    ]
    assert not wrong, wrong


def rejections(world: World, record: Record) -> dict[str, Any]:
    """The rejections of a record, by the ids of its queries."""
    place = record.topic, record.partition, record.offset
    return {reply.get("query_id", ""): reply for reply in world.rejections().get(place, ())}


def rejected(world: World) -> dict[str, str]:
    """Why which query was rejected."""
    every = [reply for replies in world.rejections().values() for reply in replies]
    return {reply.get("query_id", ""): reply["reason"]["code"] for reply in every}


def answered(world: World) -> set[str]:
    """The ids of all answers."""
    return {query_id for _, _, query_id in world.answers()}


def spent(world: World, dataset: str = "flights", block: int = 0) -> float:
    """The share of the line of a phase that is spent."""
    units: int = world.held(dataset).spent[block][0]
    return units / UNITS


def table(reply: Mapping[str, Any], *names: str) -> list[tuple[Any, ...]]:
    """Columns of the table of an answer, row by row."""
    return list(zip(*(reply["table"][name] for name in names), strict=True))


def within(value: float, truth: float, bar: float) -> bool:
    """Whether a value lies within its bar."""
    return abs(value - truth) <= bar


judged = pytest.mark.usefixtures("judged")
"""Tests whose world keeps all promises, as the referee says at the end of each."""
