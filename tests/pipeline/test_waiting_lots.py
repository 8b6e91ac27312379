"""Rows that wait become lots when a slab is full: the same phases, in the memory of a slab, nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest

from stream_dp.core.kinds.correlated_vector import vector_answerer
from stream_dp.core.rows import blocks as blocks_module
from stream_dp.core.rows import slabs
from stream_dp.core.rows.slabs import Slab
from stream_dp.pipeline.rows import sealed_blocks
from stream_dp.pipeline.rows.own_values import OwnValues
from stream_dp.pipeline.rows.secret_order import secret_order
from stream_dp.pipeline.rows.waiting import waiting_lots
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches
from stream_dp.pipeline.rows.waiting.waiting_lots import WaitingLots
from stream_dp.profiles.builder import build
from stream_dp.state.private_names import Named
from tests.pipeline.conftest import Die
from tests.pipeline.held import Waiting
from tests.pipeline.referee.evidence import cells_of, contents_of, definition_of, every_block
from tests.pipeline.referee.persons import units_of
from tests.pipeline.world import World
from tests.view import MemoryView

SLOTS = 100
ENOUGH = 600
"""Rows that open a phase."""

SIZES = (30, 120, 40, 10, 250, 160)
"""Batches of the first phase. With 100 slots there are lots of 30, 120, 40 + 10, 250 and 160 rows."""

ROW = ("AA", 5, False), ("UA", 45, True), ("ZZ", -3, False), ("UA", None, True), ("AA", 12, True)


def rows(n: int, start: int) -> list[dict[str, Any]]:
    names = ("carrier", "delay", "cancelled")
    return [dict(zip(names, ROW[at * at % 5], strict=True)) for at in range(start, start + n)]


def owned(n: int, start: int) -> list[dict[str, Any]]:
    """Rows of 130 persons, and of nobody. One of them comes more often than all others."""
    who = [None, *(f"p{at}" for at in range(129)), *["often"] * 20]
    of = [who[at * 7 % 150] for at in range(start, start + n)]
    return [{**row, "user_id": one} for row, one in zip(rows(n, start), of, strict=True)]


def columns(n: int, start: int) -> dict[str, Any]:
    found = rows(n, start)
    return {"columns": {name: [row[name] for row in found] for name in found[0]}}


@dataclass(frozen=True)
class Form:
    """How rows come, and what is kept of them.

    Attributes:
        batch: A batch of some rows, the first of which has this number.
        definition: What its data set has of its own.
        query: What is asked of it.
    """

    batch: Callable[[int, int], dict[str, Any]]
    definition: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(
        default_factory=lambda: {"where": {"attribute": "carrier", "eq": "AA"}}
    )


def _unit(**more: Any) -> dict[str, Any]:
    unit = {"key": "user_id", "rows_per_phase": 3, **more}
    return {"privacy": {"epsilon": 8.0, "delta": 1e-9, "unit": unit}}


def _counted(n: int, start: int) -> dict[str, Any]:
    """Some entries count no row, or several; all of them together n."""
    counts = [2, 0, 1] * (n // 3) + [1] * (n % 3)
    entries = zip(rows(len(counts), start), counts, strict=True)
    return {"cells": [{**row, "count": count} for row, count in entries]}


MEASURED = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
    {
        "name": "delay",
        "type": "number",
        "edges": [0, 10, 30],
        "missing": True,
        "measure": {"unit": 0.5, "low": -10, "high": 60},
    },
    {"name": "cancelled", "type": "boolean"},
]

FORMS = {
    "rows": Form(lambda n, start: {"rows": rows(n, start)}),
    "cells": Form(_counted),
    "values are kept": Form(
        lambda n, start: {"rows": rows(n, start)},
        {"attributes": MEASURED},
        {"kind": "sum", "attribute": "delay"},
    ),
    "persons": Form(lambda n, start: {"rows": owned(n, start)}, _unit(phases=4)),
    "lives": Form(lambda n, start: {"rows": owned(n, start)}, _unit(phases=2, lifetime=True)),
    "in order": Form(
        columns,
        {"kinds": {"correlated_vector": {"attribute": "cancelled", "share": 0.1}}},
        {"kind": "correlated_vector", "attribute": "cancelled"},
    ),
}
OF_PERSONS = ("persons", "lives")

Rounds = list[Callable[[World], None]]


def rounds_of(form: Form, phases: int = 3) -> Rounds:
    """Phases of several batches, of which some wait for the next one, and a query after each."""

    def define(world: World) -> None:
        settings = {
            "mechanism": {"base_share": 0.0},
            "privacy": {"epsilon": 8.0, "delta": 1e-9},
            "accuracy": {"error": 0.3},
            "phase": {"min_rows": ENOUGH},
            **form.definition,
        }
        world.define("flights", **settings)

    def fill(number: int) -> Callable[[World], None]:
        def filled(world: World) -> None:
            at = 1_000 * number
            for n in SIZES[number:] + SIZES[:number]:
                world.batch("flights", f"batch-{at}", **form.batch(n, at))
                at += n

        return filled

    def ask(number: int) -> Callable[[World], None]:
        def asked(world: World) -> None:
            head = {"version": 1, "dataset": "flights", "analyst": "ana"}
            world.produce("queries", {**head, "query_id": f"query-{number}", **form.query})

        return asked

    return [define, *(step for number in range(phases) for step in (fill(number), ask(number)))]


@pytest.fixture
def lots(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """``lots(n_slots)``: from now on a slab has so many slots; how many rows each lot has, as they come.

    Nothing is merged.
    """
    found: list[int] = []
    for module in (blocks_module, sealed_blocks):
        monkeypatch.setattr(module, "merges", lambda *_: False)
    add = WaitingLots.add

    async def added(self: WaitingLots, rows: Any, *arguments: Any, **came: Any) -> None:
        found.append(rows.n_rows)
        await add(self, rows, *arguments, **came)

    monkeypatch.setattr(WaitingLots, "add", added)

    def have(n_slots: int) -> list[int]:
        monkeypatch.setattr(slabs, "SLOTS", n_slots)
        found.clear()
        return found

    return have


async def lived(world: World, rounds: Rounds, *, alone: bool) -> None:
    """Runs rounds: by one worker, or by another one each."""
    if alone:
        await world.run(rounds=rounds)
    else:
        for produce in rounds:
            await world.run(rounds=(produce,))


def sealed(world: World) -> list[Any]:
    """What is in the cells of each block, and what values count for together."""
    universe, _ = build(definition_of(world.held("flights")))
    return [cells_of(universe, block) for block in every_block(world, "flights")]


async def in_order(world: World, attribute: int) -> list[list[int] | None]:
    """The codes of an attribute as they came, of each block."""
    process = await world.owner()
    stored, found = process.datasets["flights"].rows.blocks.stored, []
    for block in range(len(every_block(world, "flights"))):
        async with stored.readable():
            codes = await asyncio.to_thread(stored.in_order, attribute, block)
        found.append(None if codes is None else codes.tolist())
    await process.kill()
    return found


# The same phases --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_slots", "alone"), [(70, True), (SLOTS, False), (300, True)])
@pytest.mark.parametrize("name", FORMS)
async def test_a_phase_of_several_lots_is_the_one_of_the_same_rows_in_memory(
    make_world: Callable[..., World],
    lots: Callable[[int], list[int]],
    name: str,
    n_slots: int,
    alone: bool,
) -> None:
    form, seen = FORMS[name], list[Any]()
    for slots in (2**20, n_slots):
        there, world = lots(slots), make_world()
        await lived(world, rounds_of(form), alone=alone)
        assert bool(there) == (slots < 2**20)
        assert world.complaints() == []
        answers = [world.answer(f"query-{number}") for number in range(3)]
        assert {answer["status"] for answer in answers} <= {"answered", "refused"}
        blocks = every_block(world, "flights")
        assert len(blocks) == 3
        assert all(len(block) > 2 for block in blocks) == (slots < 2**20)
        contents = [contents_of(block) for block in blocks]
        used = units_of(world.held("flights"))
        codes = await in_order(world, 2)
        assert (None in codes) == (name != "in order")
        told = [(e["phase"], e["rows"]) for e in world.events("phase_opened")]
        seen.append((sealed(world), contents, used if name == "lives" else None, codes, told))
        seen[-1] += ([answer.get("value", answer.get("sum")) for answer in answers],)
    assert seen[0] == seen[1]
    if name in OF_PERSONS:
        counted = [cells.total() for cells, _ in seen[1][0]]
        two = [*zip(counted, seen[1][4], strict=True)][:2]
        assert all(0 < n < rows for n, (_, rows) in two)
        assert (counted[2] == 0) == (name == "lives"), "all is used by then"


@pytest.mark.parametrize("name", FORMS)
async def test_lots_are_merged_where_cells_are_far_fewer_than_slots(
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    lots: Callable[[int], list[int]],
    name: str,
) -> None:
    for module in (blocks_module, sealed_blocks):
        monkeypatch.setattr(module, "merges", lambda *_: True)
    form, seen = FORMS[name], list[Any]()
    for slots in (2**20, SLOTS):
        lots(slots)
        world = make_world()
        await lived(world, rounds_of(form), alone=False)
        assert world.complaints() == []
        assert all("row 0" in slab.columns for [slab] in every_block(world, "flights"))
        kinds = {key.split(" ")[0] for key in world.held("flights").named()}
        assert "weight" not in kinds
        seen.append((sealed(world), await in_order(world, 2)))
    assert seen[0] == seen[1]


async def test_more_rows_than_are_kept_in_order_are_not_kept_in_order(
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    lots: Callable[[int], list[int]],
) -> None:
    for module in (blocks_module, sealed_blocks, vector_answerer):
        monkeypatch.setattr(module, "MAX_ORDERED", ENOUGH - 1)
    for slots in (2**20, SLOTS):
        lots(slots)
        world = make_world()
        await world.run(rounds=rounds_of(FORMS["in order"])[:2])
        assert await in_order(world, 2) == [None]
        assert {key.split(" ")[0] for key in world.held("flights").named()} == {"block"}
        assert world.complaints() == []


# What waits, and where --------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
async def test_what_is_full_becomes_a_lot_and_its_batches_wait_no_more(
    world: World, lots: Callable[[int], list[int]], name: str
) -> None:
    there, form = lots(SLOTS), FORMS[name]
    process = await world.owner()
    define, *_ = rounds_of(form)
    define(world)
    await process.run()
    at, waiting = 0, process.datasets["flights"].rows.waiting
    for number, n in enumerate(SIZES[:-1]):
        world.batch("flights", f"batch-{at}", **form.batch(n, at))
        at += n
        await process.run()
        assert waiting.n_rows == sum(SIZES[: number + 1])
        n_slots = sum(rows.n_entries for rows in waiting._pending.values())
        assert n_slots <= max(SLOTS, n), "a batch alone may be larger"
        held = world.held("flights")
        assert len(held.waiting) == len(waiting._pending)
        assert waiting.n_rows == sum(there) + sum(one.rows for one in held.waiting)
    assert there == [30, 120, 40 + 10]
    assert [*held.named("waiting ")] == ["0 1 0 1 0", "0 2 0 1 0", "0 2 1 1 0", "0 3 0 2 0"]
    kinds = {key.split(" ")[0] for key in held.named()}
    of_persons = name in OF_PERSONS
    assert kinds == {
        "waiting",
        *(["whose", "person"] if of_persons else []),
        *(["arrived"] if name == "in order" else []),
    }
    for kind in kinds - {"waiting", "person"}:
        assert held.named(f"{kind} ").keys() == held.named("waiting ").keys()
    world.batch("flights", "opens", **form.batch(SIZES[-1], at))
    await process.run()
    await process.settled()
    held = world.held("flights")
    assert held.waits == []
    if of_persons:
        assert held.named("weight ").keys() == held.named("block ").keys()
    assert {key.split(" ")[0] for key in held.named()} == {
        "block",
        *(["weight", "person"] if of_persons else []),
        *(["used"] if name == "lives" else []),
        *(["ordered"] if name == "in order" else []),
    }, "whose rows they were is forgotten"
    assert {key.decode().partition("/")[2] for key in world.kept} == {
        one.name.hex() for one in held.named().values()
    }, "on the topic, too"
    assert {field[:16] for field in world.view.values["flights"]} == {
        one.name for one in held.named().values()
    }
    await process.kill()
    assert world.complaints() == []


async def test_of_a_retired_data_set_no_lot_is_left(
    world: World, lots: Callable[[int], list[int]]
) -> None:
    there = lots(SLOTS)
    define, *_ = rounds_of(FORMS["lives"])
    await world.run(rounds=(define, *(batches_of("lives", number) for number in range(3))))
    assert there
    assert world.held("flights").named("whose ")
    world.produce("datasets", None, key="flights")
    await world.run()
    assert world.held("flights").named() == {}
    assert world.kept == {}
    assert world.view.values["flights"] == {}
    assert world.complaints() == []


def batches_of(
    name: str, number: int, sizes: Sequence[int] = (60, 60, 10)
) -> Callable[[World], None]:
    """Some batches."""

    def produce(world: World) -> None:
        for at, n in enumerate(sizes):
            start = 10_000 * number + 1_000 * at
            world.batch("flights", f"b-{number}-{at}", **FORMS[name].batch(n, start))

    return produce


# Lots that are lost -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        *((name, f"waiting {which}") for name in FORMS for which in ("0 2 0 2 0", "0 3 1 1 0")),
        ("persons", "whose 0 2 0 2 0"),
        ("lives", "whose 0 3 1 1 0"),
        ("in order", "arrived 0 2 0 2 0"),
        ("in order", "arrived 0 3 0 1 0"),
    ],
)
async def test_a_lot_that_is_nowhere_is_given_up_with_all_its_batches(
    world: World, lots: Callable[[int], list[int]], name: str, lost: str
) -> None:
    lots(SLOTS)
    define, *_ = rounds_of(FORMS[name])
    batches = batches_of(name, 0, (80, 50, 40, 120, 20))
    await world.run(rounds=(define, batches))
    held = world.held("flights")
    assert [*held.named("waiting ")] == ["0 1 0 1 0", "0 2 0 2 0", "0 3 0 1 0", "0 3 1 1 0"]
    del world.kept[f"flights/{held.named()[lost].name.hex()}".encode()]
    world.view = MemoryView()
    _, _, gone, _, n_batches, _ = lost.split(" ")
    n_rows = {"2": 50 + 40, "3": 120}[gone]
    await world.run()
    (event,) = world.events("rows_lost")
    assert (event["batches"], event.get("phases")) == (int(n_batches), None)
    held = world.held("flights")
    for kind in ("waiting", "whose", "arrived"):
        assert gone not in {key.split(" ")[1] for key in held.named(f"{kind} ")}
    process = await world.owner()
    await process.run()
    assert process.datasets["flights"].rows.waiting.n_rows == 310 - n_rows
    await process.kill()
    await world.run(rounds=(batches_of(name, 1, (250, 250)),))
    (opened,) = world.events("phase_opened")
    assert opened["rows"] == 310 - n_rows + 500
    assert len(world.events("rows_lost")) == 1, "it is said once"
    assert world.complaints() == []


async def test_batches_that_are_in_a_lot_are_not_read_again(
    world: World, lots: Callable[[int], list[int]]
) -> None:
    """Their topic may have lost them by then."""
    lots(SLOTS)
    define, *_ = rounds_of(FORMS["rows"])
    await world.run(rounds=(define, batches_of("rows", 0, (80, 50, 40))))
    waits = world.held("flights").waits
    assert list(map(type, waits)) == [Named, Waiting, Waiting]
    (first, *_) = [
        record for records in world.log.values() for record in records if record.role == "batches"
    ]
    world.expired.add(first.record_id)
    await world.run(rounds=(batches_of("rows", 1, (250, 250)),))
    assert world.events("rows_lost") == []
    (opened,) = world.events("phase_opened")
    assert opened["rows"] == 170 + 500
    assert world.complaints() == []


# Crashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cells", "lives", "in order"])
async def test_wherever_a_worker_dies_each_row_is_in_a_lot_or_waits_and_counts_once(
    make_world: Callable[..., World], die: Die, lots: Callable[[int], list[int]], name: str
) -> None:
    lots(SLOTS)
    rounds = rounds_of(FORMS[name], phases=2)
    alone = make_world()
    await alone.run(rounds=rounds)
    expected, codes = sealed(alone), await in_order(alone, 2)
    deaths = 0
    async for at, world in die(rounds, range(10, 1_000, 5)):
        assert world.complaints() == [], at
        if name != "lives":  # else another secret may decide which rows count
            assert sealed(world) == expected, at
        assert world.events("rows_lost") == [], at
        if name == "in order" and deaths % 5 == 0:
            assert await in_order(world, 2) == codes, at
        deaths += 1
    assert deaths > 30


# The order of slots -----------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["in memory", "in lots"])
async def test_no_slab_shows_in_which_order_its_rows_came(
    world: World, lots: Callable[[int], list[int]], waits: str
) -> None:
    """With probability 1 - 1 / 60!, or 4 / 30! of lots."""
    there = lots(30 if waits == "in lots" else 2**20)

    def define(world: World) -> None:
        number = {"name": "delay", "type": "number", "edges": [*range(120)], "integer": True}
        world.define(
            "flights",
            attributes=[number],
            mechanism={"base_share": 0.0},
            accuracy={"error": 0.3},
            phase={"min_rows": 60},
        )

    def thirty(batch_id: str, start: int) -> Callable[[World], object]:
        some = [{"delay": at} for at in range(start, start + 30)]
        return lambda world: world.batch("flights", batch_id, rows=some)

    batches = [thirty(f"b-{number}", number % 2 * 30) for number in range(4)]
    await world.run(rounds=(define, *batches))
    assert bool(there) == (waits == "in lots")
    first, second = every_block(world, "flights")
    arrived = [*range(1, 61)]
    for block in (first, second):
        found = [_codes(slab) for slab in block]
        assert sorted(chain(*found)) == arrived
        assert not any(one == sorted(one) for one in found)
    orders = [_codes(slab) for slab in (*first, *second)]
    assert len({tuple(np.argsort(one)) for one in orders}) == len(orders), "each has its own"
    assert Counter(map(len, orders)) == ({30: 4} if waits == "in lots" else {60: 2})


def _codes(slab: Slab) -> list[int]:
    found: list[int] = slab.columns["0"].tolist()
    return found


# Broken copies ----------------------------------------------------------------------------------


def _batches_wait_in_their_lot_and_by_themselves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitingBatches, "_forget", lambda self, numbers: self._pending.clear())


def _a_lot_does_not_name_whose_rows_it_has(patch: pytest.MonkeyPatch) -> None:
    keep = OwnValues.keep_slabs

    async def unnamed(self: Any, kept: Any) -> Any:
        return await keep(self, {k: v for k, v in kept.items() if not k.startswith("whose ")})

    patch.setattr(OwnValues, "keep_slabs", unnamed)


def _whose_rows_they_are_stays_after_the_seal(patch: pytest.MonkeyPatch) -> None:
    def left(self: WaitingLots, times: range) -> None:
        self._slabs = []

    patch.setattr(WaitingLots, "discard", left)


def _weights_are_of_the_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    """Slots lie in another order than batches came in."""
    order = secret_order
    patch.setattr(waiting_lots, "secret_order", lambda n: order(n)[::-1])
    whose = WaitingLots.whose

    async def sorted_ones(self: WaitingLots) -> Any:
        found = await whose(self)
        return [type(one)(one.digests[::-1], one.ranks[::-1]) for one in found]

    patch.setattr(WaitingLots, "whose", sorted_ones)


BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "P3": ("lives", _batches_wait_in_their_lot_and_by_themselves),
    "rows that wait are on no topic any more": ("lives", _a_lot_does_not_name_whose_rows_it_has),
    "whose": ("lives", _whose_rows_they_are_stays_after_the_seal),
    "P3: flights holds other blocks": ("persons", _weights_are_of_the_order_of_arrival),
}


@pytest.mark.parametrize("said", BROKEN)
async def test_a_broken_copy_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch, lots: Callable[[int], list[int]], said: str
) -> None:
    lots(SLOTS)
    name, break_it = BROKEN[said]
    break_it(monkeypatch)
    try:
        for produce in rounds_of(FORMS[name], phases=2)[:4]:
            await world.run(rounds=(produce,))
    except Exception as error:  # noqa: BLE001 - that is how it is caught
        found = [str(error)]
    else:
        found = [*world.complaints(), *world.held("flights").named()]
    assert any(one.startswith(said) or said in one for one in found), found
