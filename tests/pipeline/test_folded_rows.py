"""What all rows of a person in a phase say together, from a definition to an answer."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.core.rows import slabs
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition
from tests.pipeline.flights import asked, judged, within
from tests.pipeline.world import definition

pytestmark = judged

MEASURE = {"unit": 1, "low": 0, "high": 100}
UNIT = {"key": "customer", "rows_per_phase": 1, "phases": 2}
PRIVACY: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-9, "unit": UNIT}
SHOP = definition(
    "shop",
    attributes=[
        {"name": "visits", "type": "number", "edges": [2, 4], "integer": True, "fold": "count"},
        {"name": "bought", "type": "boolean", "fold": "any"},
        {
            "name": "spent",
            "type": "number",
            "edges": [10, 50],
            "integer": True,
            "measure": MEASURE,
            "fold": "sum",
        },
        {"name": "page", "type": "category", "values": ["home", "cart"]},
        {
            "name": "in_cart",
            "type": "boolean",
            "fold": "any",
            "where": {"all": [{"attribute": "page", "eq": "cart"}, {"attribute": "till", "eq": 2}]},
        },
        {"name": "till", "type": "number", "edges": [2, 3], "integer": True, "missing": True},
        {
            "name": "plan",
            "type": "category",
            "values": ["free", "paid"],
            "missing": True,
            "other": False,
            "fold": "last",
        },
    ],
    privacy=PRIVACY,
    phase={"min_rows": 3000},
    accuracy={"error": 0.05, "failure_probability": 1e-6},
)
EARLY = {"attribute": "till", "lt": 2}


def visits() -> dict[str, list[Any]]:
    """Of 1,000 persons, 200 come once, 400 three times, and 400 four times. Most buy at their first visit."""
    persons = [f"C-{n}" for n in range(1000) for _ in range(1 if n < 200 else 3 if n < 600 else 4)]
    first = [at == 0 or persons[at - 1] != one for at, one in enumerate(persons)]
    return {
        "customer": persons,
        "page": ["home", "cart"] * (len(persons) // 2),
        "bought": [new and int(one[2:]) % 4 > 0 for one, new in zip(persons, first, strict=True)],
        "spent": [5] * len(persons),
        "till": [int(one[2:]) % 3 + 1 for one in persons],
        "plan": [
            None if new else ("free", "paid")[int(one[2:]) % 5 == 0]
            for one, new in zip(persons, first, strict=True)
        ],
    }


async def shop(world: Any, **changes: Any) -> Any:
    """A worker, with a phase of 3,000 visits."""
    world.key_file = bytes(range(64))
    process = await world.owner()
    world.produce("datasets", {**SHOP, **changes})
    every = visits()
    for n, part in enumerate((slice(0, 1234), slice(1234, 3000))):
        columns = {name: column[part] for name, column in every.items()}
        world.batch("shop", f"b-{n}", columns=columns)
    await process.run()
    assert not world.released("rejected"), world.released("rejected")
    assert [event["phase"] for event in world.events("phase_opened")] == [1]
    return process


FORMS: dict[str, dict[str, Any]] = {
    "merged": {},
    "owned": {"erasure": {"within": "24 hours"}},
    "for life": {"privacy": {**PRIVACY, "unit": {**UNIT, "lifetime": True}}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lots", [False, True], ids=["in memory", "kept as slabs"])
async def test_persons_are_counted_by_what_all_their_rows_say(
    world: Any, monkeypatch: pytest.MonkeyPatch, lots: bool, form: str
) -> None:
    if lots:
        monkeypatch.setattr(slabs, "SLOTS", 500)
    await shop(world, **FORMS[form])
    by_visits, bought, spent, in_cart, by_plan = await asked(
        world,
        {"kind": "table", "group_by": ["visits"]},
        {"where": {"attribute": "bought", "eq": True}},
        {"kind": "sum", "attribute": "spent"},
        {"where": {"attribute": "in_cart", "eq": True}},
        {"kind": "table", "group_by": ["plan"]},
        dataset="shop",
    )
    every = visits()
    carts = {
        person
        for person, page, till in zip(
            *(every[name] for name in ("customer", "page", "till")), strict=True
        )
        if page == "cart" and till == 2
    }
    assert within(in_cart["count"], len(carts), in_cart["count_bar"]), (in_cart, len(carts))
    plans = [0, 0, 200]  # who comes once has none
    for person in range(200, 1000):
        plans[person % 5 == 0] += 1
    for count, bar, truth in zip(
        *(by_plan["table"][name] for name in ("counts", "count_bars")), plans, strict=True
    ):
        assert within(count, truth, bar), (by_plan, plans)
    for count, bar, truth in zip(
        *(by_visits["table"][name] for name in ("counts", "count_bars")),
        (200, 400, 400),
        strict=True,
    ):
        assert within(count, truth, bar), by_visits
    assert within(bought["count"], 750, bought["count_bar"])
    total = 200 * 5 + 400 * 15 + 400 * 20
    assert within(spent["total"], total, spent["total_bar"]), spent


async def test_a_person_who_is_erased_takes_the_record_away(world: Any) -> None:
    process = await shop(world, erasure={"within": "24 hours"})
    world.batch("shop", "gone", erase=[f"C-{n}" for n in range(600)])
    world.batch("shop", "later", columns={name: of[:3] for name, of in visits().items()})
    world.produce(
        "batches", {"version": 1, "dataset": "shop", "clock": True, "sweep": True}, key="shop"
    )
    await process.run()
    assert [receipt["sweep"] for receipt in world.events("swept")] == [1]
    (left,) = await asked(world, {"where": {"attribute": "visits", "ge": 4}}, dataset="shop")
    (gone,) = await asked(
        world, {"where": {"attribute": "visits", "lt": 4}, "error": 0.03}, dataset="shop"
    )
    assert within(left["count"], 400, left["count_bar"])
    assert within(gone["count"], 0, gone["count_bar"])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"privacy": {"epsilon": 1.0, "delta": 1e-9}},
            "attributes.0.fold: rows of a person are folded into one: add privacy.unit",
        ),
        (
            {"privacy": {**PRIVACY, "unit": {**UNIT, "rows_per_phase": 2}}},
            "attributes.0.fold: rows of a person are folded into one",
        ),
        (
            {"erasure": {"within": "24 hours", "row": "order"}},
            "a row that was folded cannot be corrected by itself",
        ),
        (
            {
                "phase": {
                    "min_rows": 1000,
                    "every": "1 day",
                    "close": {"after": "1 hour"},
                    "late": {"within": "2 days"},
                }
            },
            "rows are folded as a phase opens: remove running and phase.late",
        ),
        (
            {"attributes": [{"name": "x", "type": "number", "edges": [1], "fold": "sum"}]},
            "attributes.0.fold: a sum is of values that are kept: add measure",
        ),
        (
            {"attributes": [{"name": "x", "type": "boolean", "fold": "count"}]},
            "attributes.0.fold",
        ),
        (
            {
                "attributes": [
                    {"name": "x", "type": "boolean", "where": {"attribute": "x", "eq": True}}
                ]
            },
            'attributes.0: where goes with "fold": "any"',
        ),
        (
            {
                "attributes": [
                    {
                        "name": "x",
                        "type": "category",
                        "find": {},
                        "fold": "first",
                    }
                ]
            },
            "attributes.0: fold: values are found of the row that counts",
        ),
    ],
)
def test_a_definition_whose_rows_cannot_be_folded_is_refused(
    changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InvalidDefinition, match=fault):
        Definition.read({**SHOP, **changes})


async def test_a_fold_is_for_ever(world: Any) -> None:
    process = await shop(world)
    attributes = [{**one} for one in SHOP["attributes"]]
    del attributes[1]["fold"]
    change = {"version": 1, "dataset": "shop", "change": "schema", "schema_version": 2}
    record = world.produce("datasets", {**change, "attributes": attributes})
    await process.run()
    reason = world.rejection(record)["reason"]["message"]
    assert "attributes.1.fold: rows are folded otherwise" in reason


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ({"attribute": "visits", "ge": 2}, "it is about visits, which is not known of each row"),
        ({"attribute": "nobody", "eq": 1}, "attributes.4.where"),
        ({"attribute": "page", "in": ["home", "cart"]}, None),
        ({"any": [EARLY, {"not": EARLY}]}, "it holds for all rows"),
    ],
)
async def test_a_condition_must_be_known_of_each_row(
    world: Any, where: dict[str, Any], fault: str | None
) -> None:
    world.key_file = bytes(range(64))
    process = await world.owner()
    attributes = [{**one} for one in SHOP["attributes"]]
    attributes[4]["where"] = where
    record = world.produce("datasets", {**SHOP, "attributes": attributes})
    await process.run()
    if fault is None:
        assert not world.released("rejected")
    else:
        assert fault in world.rejection(record)["reason"]["message"]
