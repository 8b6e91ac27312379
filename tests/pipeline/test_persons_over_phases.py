"""How many phases ago persons were there before, and persons who are counted once in several phases."""

from __future__ import annotations

from typing import Any, Final

import pytest

from stream_dp import sql
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows import slabs
from stream_dp.errors import InvalidDefinition, InvalidQuery
from stream_dp.messages import Definition
from stream_dp.profiles.builder import universe_of
from tests.pipeline.flights import asked, judged, within
from tests.pipeline.world import definition

pytestmark = judged

UNIT: Final = {"key": "customer", "rows_per_phase": 1, "phases": 2}
SHOP: Final = definition(
    "shop",
    attributes=[
        {"name": "page", "type": "category", "values": ["home", "cart"]},
        {"name": "bought", "type": "boolean", "fold": "any"},
        {"name": "away", "type": "number", "fold": "since", "phases": 3},
        {
            "name": "bought_before",
            "type": "number",
            "fold": "since",
            "phases": 3,
            "of": "bought",
            "missing": True,
        },
    ],
    privacy={"epsilon": 8.0, "delta": 1e-9, "unit": UNIT},
    erasure={"within": "24 hours"},
    phase={"min_rows": 2000},
    accuracy={"error": 0.05, "failure_probability": 1e-6},
)
PHASES: Final = (range(1000), range(600, 1600), range(1000), range(1200, 2200))
"""Who comes in each phase, twice each."""
BUYS: Final = (lambda who: who % 2 == 0, lambda who: who % 3 == 0, lambda _: False, lambda _: True)
"""Who of them buys something, at the first visit of two."""


async def shop(world: Any, phases: int = 4) -> Any:
    world.key_file = bytes(range(64))
    process = await world.owner()
    world.produce("datasets", SHOP)
    for phase in range(phases):
        visit(world, phase)
        await process.run()
    assert not world.released("rejected"), world.released("rejected")
    assert [event["phase"] for event in world.events("phase_opened")] == [*range(1, phases + 1)]
    return process


def visit(world: Any, phase: int) -> None:
    persons = [who for who in PHASES[phase] for _ in range(2)]
    bought = [BUYS[phase](who) and at % 2 == 0 for at, who in enumerate(persons)]
    columns = {
        "customer": [f"C-{who}" for who in persons],
        "page": ["home", "cart"] * (len(persons) // 2),
        "bought": bought,
    }
    world.batch("shop", f"b-{phase}", columns=columns)


def ago(phase: int, who: int, *, bought: bool = False) -> int:
    """How many phases ago somebody was there before; 3 for at least so many."""
    for before in range(phase - 1, max(-1, phase - 3), -1):
        if who in PHASES[before] and (not bought or BUYS[before](who)):
            return phase - before
    return 3


@pytest.mark.parametrize("lots", [False, True], ids=["in memory", "kept as slabs"])
async def test_persons_are_told_apart_by_how_long_they_were_away(
    world: Any, monkeypatch: pytest.MonkeyPatch, lots: bool
) -> None:
    if lots:
        monkeypatch.setattr(slabs, "SLOTS", 500)
    await shop(world)
    for phase in range(4):
        of_phase = {"phases": [phase + 1, phase + 1]}
        away, bought = await asked(
            world,
            {"kind": "table", "group_by": ["away"], "window": of_phase},
            {"kind": "table", "group_by": ["bought_before"], "window": of_phase},
            dataset="shop",
        )
        truth = [0, 0, 0]
        buyers = [0, 0, 0, 0]
        for who in PHASES[phase]:
            truth[ago(phase, who) - 1] += 1
            buyers[ago(phase, who, bought=True) - 1 if BUYS[phase](who) else 3] += 1
        for answer, exact in ((away, truth), (bought, buyers)):
            assert len(answer["table"]["counts"]) == len(exact)
            for count, bar, wanted in zip(
                *(answer["table"][name] for name in ("counts", "count_bars")), exact, strict=True
            ):
                assert within(count, wanted, bar), (phase, answer["table"], exact)


def first_of(window: range, who: int, *, bought: bool = False) -> int | None:
    """The first phase of a window in which somebody is there."""
    those = (at for at in window if who in PHASES[at] and (not bought or BUYS[at](who)))
    return next(those, None)


async def test_each_person_is_counted_once_in_several_phases(world: Any) -> None:
    await shop(world)
    window = {"last_phases": 3}
    every, buyers, by_page, one = await asked(
        world,
        {"once": "away", "window": window},
        {"once": "bought_before", "window": window},
        {"kind": "table", "group_by": ["away"], "once": "away", "window": window},
        {"once": "away", "window": {"last_phases": 1}},
        dataset="shop",
    )
    phases = range(1, 4)
    truth = sum(first_of(phases, who) is not None for who in range(2200))
    assert truth == 2200, "some are there in all of them"
    assert within(every["count"], truth, every["count_bar"]), every
    assert every["count_bar"] < 0.1 * truth
    wanted = sum(first_of(phases, who, bought=True) is not None for who in range(2200))
    assert within(buyers["count"], wanted, buyers["count_bar"]), (buyers, wanted)
    cells = [0, 0, 0]
    for who in range(2200):
        first = first_of(phases, who)
        if first is not None:
            cells[ago(first, who) - 1] += 1
    for count, bar, exact in zip(
        *(by_page["table"][name] for name in ("counts", "count_bars")), cells, strict=True
    ):
        assert within(count, exact, bar), (by_page["table"], cells)
    assert within(one["count"], 1000, one["count_bar"])


async def test_series_prices_and_errors_are_those_of_counts(world: Any) -> None:
    await shop(world)
    last = {"window": {"last_phases": 3}}
    series, price, relative = await asked(
        world,
        {"once": "away", "series": "phase", "frame": 2},
        {"once": "away", "quote": True, "error": 0.001, **last},
        {"once": "away", "error": {"relative": 0.2}, **last},
        dataset="shop",
    )
    for phase, part in enumerate(series["parts"]):
        window, answer = range(max(0, phase - 1), phase + 1), part["answer"]
        truth = sum(first_of(window, who) is not None for who in range(2200))
        assert within(answer["count"], truth, answer["count_bar"]), (phase, part)
    assert price["status"] == "quoted"
    assert relative["status"] == "answered"
    assert within(relative["count"], 2200, relative["count_bar"])
    assert relative["count_bar"] < 0.2 * 2200


async def test_looks_at_changed_rows_count_persons_who_are_left_once(world: Any) -> None:
    process = await shop(world)
    world.batch("shop", "gone", erase=[f"C-{who}" for who in range(700)])
    clock = {"version": 1, "dataset": "shop", "clock": True, "sweep": True}
    world.produce("batches", clock, key="shop")
    await process.run()
    (left,) = await asked(
        world,
        {"once": "away", "window": {"last_phases": 3}, "fresh": True, "error": 0.1},
        dataset="shop",
    )
    assert left["changed_at_most"] > 0
    assert within(left["count"], 1500, left["count_bar"]), left


async def test_who_is_erased_and_comes_again_is_new(world: Any) -> None:
    process = await shop(world, phases=1)
    world.batch("shop", "gone", erase=[f"C-{who}" for who in range(600, 700)])
    await process.run()
    visit(world, 1)
    await process.run()
    (away,) = await asked(
        world,
        {"kind": "table", "group_by": ["away"], "window": {"last_phases": 1}},
        dataset="shop",
    )
    for count, bar, exact in zip(
        *(away["table"][name] for name in ("counts", "count_bars")), (300, 0, 700), strict=True
    ):
        assert within(count, exact, bar), away["table"]


async def test_a_window_that_is_too_long_and_another_attribute_are_rejected(world: Any) -> None:
    await shop(world)
    last, of_away = {"window": {"last_phases": 1}}, {"attribute": "away", "ge": 2}
    bought = {"attribute": "bought", "eq": True}
    said = [
        one["reason"]["message"]
        for one in await asked(
            world,
            {"once": "away"},
            {"once": "bought", **last},
            {"kind": "share", "share_of": bought, "once": "away"},
            {"kind": "sum", "attribute": "away"},
            {"kind": "share", "share_of": of_away},
            {"kind": "share", "share_of": bought, "where": of_away},
            {"kind": "correlation", "attribute": "away", "other": "bought_before"},
            dataset="shop",
        )
    ]
    assert "away tells persons apart over 3 phases, and it has 4" in said[0]
    assert "it does not say how many phases ago persons were there before" in said[1]
    assert 'kind "share" has no once: remove it' in said[2]
    for problem in said[3:]:
        assert "away counts phases" in problem
        assert "group by it, or ask for counts" in problem
    (by_away,) = await asked(
        world, {"kind": "share", "share_of": bought, "group_by": ["away"], **last}, dataset="shop"
    )
    assert by_away["status"] == "answered"


AWAY: Final = SHOP["attributes"][2]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"erasure": None}, "attributes.2.fold: it is kept who was there in earlier phases"),
        ({"retention": {"phases": 1}}, "it is about 2 phases before, and rows are kept for 1"),
        ({"attributes": [{**AWAY, "phases": None}]}, "add phases, from 2 to 256"),
        ({"attributes": [{**AWAY, "edges": [2, 5]}]}, "leave out edges and integer"),
        (
            {"attributes": [{**AWAY, "of": "x", "missing": True}]},
            "attributes.0.of: name a boolean",
        ),
        ({"attributes": [{**AWAY, "missing": True}]}, 'of goes with "missing": true'),
        ({"attributes": [{**AWAY, "fold": "max", "edges": [2]}]}, 'phases and of go with "fold"'),
        (
            {"privacy": {**SHOP["privacy"], "unit": {**UNIT, "lifetime": True}}},
            "a person counts in few phases of a life",
        ),
    ],
)
def test_a_definition_that_cannot_count_phases_is_refused(
    changes: dict[str, Any], fault: str
) -> None:
    document = {**SHOP, **changes}
    with pytest.raises(InvalidDefinition, match=fault):
        Definition.read({name: of for name, of in document.items() if of is not None})


async def test_such_an_attribute_stays_as_it_is(world: Any) -> None:
    process = await shop(world, phases=1)
    attributes = [{**one} for one in SHOP["attributes"]]
    for changed, fault in (
        ([*attributes, {**AWAY, "name": "more"}], "it is there from the first phase on"),
        ([*attributes[:2], {**AWAY, "phases": 4}, attributes[3]], "rows are folded otherwise"),
    ):
        change = {"version": 1, "dataset": "shop", "change": "schema", "schema_version": 2}
        record = world.produce("datasets", {**change, "attributes": changed})
        await process.run()
        assert fault in world.rejection(record)["reason"]["message"]


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        ({"eq": 1}, [True, False, False]),
        ({"in": [0, 1, 2, 1.5]}, [True, True, False]),
        ({"eq": 0}, [False, False, False]),
        ({"ge": 1}, [True, True, True]),
        ({"gt": 0.5}, [True, True, True]),
        ({"lt": 1}, [False, False, False]),
        ({"le": 1}, [True, False, False]),
        ({"between": [1, 2]}, [True, True, False]),
    ],
)
def test_conditions_know_that_phases_are_counted_from_one(
    condition: dict[str, Any], cells: list[bool]
) -> None:
    universe = universe_of(Definition.read(SHOP))
    at = universe.positions["away"]
    assert universe.attributes[at].labels == ("1", "2", ">= 3")
    found = compile_where(universe, {"attribute": "away", **condition})
    assert found.cells_of(at, 3).tolist() == cells
    symbols = {"eq": "=", "ge": ">=", "gt": ">", "lt": "<", "le": "<="}
    ((word, value),) = condition.items()
    written = f"away {symbols.get(word)} {value}"
    if word == "in":
        written = f"away IN ({', '.join(map(str, value))})"
    if word == "between":
        written = f"away BETWEEN {value[0]} AND {value[1]}"
    schema = Definition.read(SHOP).model_dump(mode="json", exclude_none=True)["attributes"]
    plan = sql.plan(f"SELECT away, COUNT(*) FROM shop WHERE {written} GROUP BY away", schema)
    assert all(query["where"] for query in plan.queries)
    case = f"SELECT CASE WHEN {written} THEN 'a' ELSE 'b' END AS x, COUNT(*) FROM shop GROUP BY x"
    assert sql.plan(case, schema).queries


def test_a_condition_that_cuts_the_last_cell_is_refused() -> None:
    universe = universe_of(Definition.read(SHOP))
    with pytest.raises(InvalidQuery, match="this cuts the bin >= 3 of away"):
        compile_where(universe, {"attribute": "away", "eq": 3})
