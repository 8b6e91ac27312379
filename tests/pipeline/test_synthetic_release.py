"""Synthetic rows leave with each phase, as they are stored, for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import PhasedSpec
from stream_dp.profiles.builder import PROFILES
from tests.pipeline.flights import AA, FLOWN, asked, judged, opened, ran
from tests.pipeline.world import MEMORY

pytestmark = judged


def retire(world: Any) -> None:
    world.produce("datasets", None, key="flights")


def _missing(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "missing": True, **more}


async def test_rows_of_each_phase_leave_with_labels_and_what_is_proved(world: Any) -> None:
    attributes = [
        _missing("carrier", "category", values=["AA", "UA"]),
        _missing("delay", "number", edges=[0, 10], integer=True),
        _missing("cancelled", "boolean"),
    ]
    await opened(world, attributes=attributes, synthetic_rows=1_000)
    await ran(world, lambda world: world.cells("flights", "two", 2))
    first, second = world.released("synthetic")
    assert (first["phase"], first["window"], first["n"], first["rows"]) == (
        1,
        [1, 1],
        21_000,
        1_000,
    )
    assert (second["phase"], second["window"], second["n"]) == (2, [1, 2], 63_000)
    labels = {name: column["labels"] for name, column in second["columns"].items()}
    assert labels == {
        "carrier": ["AA", "UA", "other", None],
        "delay": ["< 0", "0 to 9", ">= 10", None],
        "cancelled": [False, True, None],
    }
    carriers = second["columns"]["carrier"]["codes"]
    error = second["error"]
    assert carriers.count(0) / 1_000 == pytest.approx(9 / 21, abs=error)
    assert carriers.count(1) / 1_000 == pytest.approx(8 / 21, abs=error)
    assert error == max(table["distance"] + table["error_bar"] for table in second["tables"])
    assert ["carrier", "cancelled"] in [table["attributes"] for table in second["tables"]]
    assert second["note"].startswith(
        f"The share of each cell of the {len(second['tables'])} tables"
    )
    assert second["confidence"] == 0.99


async def test_they_cost_nothing_and_leave_an_empty_value_when_the_data_set_is_retired(
    make_world: Any,
) -> None:
    spent = []
    for n_rows in (0, 50):
        world = await opened(make_world(), synthetic_rows=n_rows)
        await asked(world, {"where": {"any": [AA, FLOWN]}})
        spent.append(world.held("flights").spent)
        await ran(world, retire)
        assert world.complaints() == []
        assert bool(world.released("synthetic")) == bool(n_rows)
    assert spent[0] == spent[1] != [(0, 0)]
    assert world.released("synthetic")[-1] is None


async def test_what_is_sent_again_after_a_crash_is_the_same(world: Any) -> None:
    """The process dies when they are committed and not sent."""
    await ran(world, lambda world: world.define("flights", synthetic_rows=50))
    world.cells("flights", "one")
    process = await world.owner()
    sent = process._send

    async def dying(outgoing: Any) -> Any:
        if outgoing.role == "synthetic":
            raise world.Crash
        return await sent(outgoing)

    process.worker.releaser._send = dying
    with pytest.raises(world.Crash):
        await process.run()
    await process.kill()
    (stored,) = [
        record.value for one in world.held("flights").said for record in one.records("synthetic")
    ]
    await world.run()
    sent_again = [e.outgoing for e in world.trail if hasattr(e, "outgoing")]
    (rows,) = [one.value for one in sent_again if one.role == "synthetic"]
    assert rows == stored


async def test_a_crash_at_any_effect_leaves_rows_of_the_newest_phase(make_world: Any) -> None:
    """The referee looks for them; tables that a crash lost cost the newest phase its place in the rows."""

    def define(world: Any) -> None:
        both = [{"name": name, "type": "boolean"} for name in ("carrier", "cancelled")]
        world.define("flights", attributes=both, synthetic_rows=3)

    def fill(world: Any) -> None:
        batch = f"b{world.next_offset('batches', 'flights')}"
        world.batch(
            "flights", batch, cells=[{"carrier": True, "cancelled": False, "count": 20_000}]
        )

    left_out = 0
    for at in range(0, 1_000, 2):
        world = make_world()
        died = await world.run(world.Fuse(at), rounds=(define, fill, fill))
        assert world.complaints() == []
        left_out += world.released("synthetic")[-1]["window"] == [1, 1]
        if not died:
            break
    assert at > 20
    assert 0 < left_out < at / 4


async def test_rows_of_a_consistent_set_come_again_as_often_as_looks_double(world: Any) -> None:
    """Opening the phase is the first look; of seven queries the first, third and seventh follow."""
    memory: Any = MEMORY["mechanism"]
    mechanism = {**memory, "phases": 2, "representation": "entropic"}
    cells = [
        {"carrier": "AA", "cancelled": False, "count": 90_000_000},
        {"carrier": "UA", "cancelled": True, "count": 30_000_000},
    ]
    defined: Any = {**MEMORY, "mechanism": mechanism, "synthetic_rows": 100}
    process = await world.owner()
    await opened(process, rows={"cells": cells}, **defined)
    for turn in range(7):
        world.ask("flights", f"q{turn}", AA if turn % 2 else FLOWN)
    await process.run()
    await process.kill()
    hard = [world.answer(f"q{turn}")["difficulty"] == "hard" for turn in range(7)]
    found = world.released("synthetic")
    assert [(rows.get("answers") or {"compared": 0})["compared"] for rows in found] == [
        sum(hard[:n]) for n in (0, 1, 3, 7)
    ]
    assert "error" not in found[0]
    assert found[0]["note"].startswith("Nothing is proved")
    assert found[-1]["error"] < 0.3
    assert "hard queries" in found[-1]["note"]


NOT_PAPERS = [name for name, one in PROFILES.items() if not issubclass(one.spec, PhasedSpec)]
REQUIRED: dict[str, dict[str, Any]] = {"gated": {"segments": 20}}


@pytest.mark.parametrize("profile", NOT_PAPERS)
async def test_every_profile_has_rows_but_counts_alone(world: Any, profile: str) -> None:
    mechanism = {"profile": profile, **REQUIRED.get(profile, {})}
    record = world.define("flights", mechanism=mechanism, synthetic_rows=10)
    await world.run()
    if profile == "counts":
        assert "has no synthetic rows" in world.rejection(record)["reason"]["message"]
        return
    await ran(world, lambda world: world.cells("flights", "one", 10))
    (rows,) = world.released("synthetic")
    assert [len(column["codes"]) for column in rows["columns"].values()] == [10] * 3
    assert ("error" in rows) is (profile in {"calibrated", "whole_table"})
