"""Rows that are too few to open a phase by themselves can be closed as one, down to a quarter."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import Definition

CLOSE = {"version": 1, "dataset": "flights", "close": True}


def rows(n_rows: int) -> dict[str, list[Any]]:
    return {"carrier": ["AA"] * n_rows, "delay": [3] * n_rows, "cancelled": [False] * n_rows}


def opened(world: Any) -> list[int]:
    return [event["rows"] for event in world.events("phase_opened")]


async def test_the_last_rows_of_a_table_open_a_phase_when_they_are_told_to(
    world: Any, process: Any
) -> None:
    world.define("flights", phase={"min_rows": 400})
    for batch, n_rows in enumerate((400, 99)):
        world.batch("flights", f"{batch}", columns=rows(n_rows))
    await process.run()
    too_few = world.produce("datasets", CLOSE)
    await process.run()
    assert world.rejection(too_few)["reason"]["code"] == "too_few_rows"
    assert "A quarter of phase.min_rows is enough" in world.rejection(too_few)["reason"]["message"]
    world.batch("flights", "one-more", columns=rows(1))
    world.produce("datasets", {**CLOSE, "phase": 2})
    await process.run()
    world.produce("datasets", {**CLOSE, "phase": 2})  # sent again, and nothing happens twice
    await process.run()
    assert opened(world) == [400, 100]
    assert {event["phase"] for event in world.events("phase_closed")} == {2}
    world.ask("flights", "all", {"attribute": "carrier", "eq": "AA"})
    world.batch("flights", "later", columns=rows(399))
    await process.run()
    assert world.answer("all")["n"] == 500
    assert opened(world) == [400, 100], "rows by themselves still open a phase at min_rows alone"
    assert world.complaints() == []


@pytest.mark.parametrize(("waiting", "sizes"), [(101, []), (100, [100])])
async def test_rows_for_which_delta_is_large_wait_until_they_open_a_phase_by_themselves(
    world: Any, process: Any, waiting: int, sizes: list[int]
) -> None:
    """A delta that is usual for the rows that wait is enough, although it is not for min_rows."""
    world.define("flights", privacy={"epsilon": 1.0, "delta": 1e-4}, phase={"min_rows": 400})
    world.batch("flights", "one", columns=rows(waiting))
    await process.run()
    world.produce("datasets", CLOSE)
    await process.run()
    assert opened(world) == sizes
    assert len(world.rejections()) == 1 - len(sizes)
    assert world.complaints() == []


async def test_a_phase_that_would_take_what_is_kept_for_somebody_is_not_opened(
    world: Any, process: Any
) -> None:
    """Few rows have a dearer opening. Here it is within what is left at 4,000 rows, and not at 1,000."""
    analysts = {"ann": {"share": 0.985}}
    world.define("flights", phase={"min_rows": 4_000}, analysts=analysts, accuracy={"error": 0.1})
    world.batch("flights", "one", columns=rows(1_000))
    await process.run()
    refused = world.produce("datasets", CLOSE)
    await process.run()
    assert world.rejection(refused)["reason"]["code"] == "too_few_rows"
    world.batch("flights", "two", columns=rows(3_000))
    await process.run()
    assert opened(world) == [4_000]
    assert world.complaints() == []


@pytest.mark.parametrize(
    ("min_rows", "delta", "waiting", "least"),
    [
        (20_000, 1e-9, 7_782, 5_000),
        (20_001, 1e-9, 7_782, 5_001),
        (20_000, 1e-5, 1_000, 5_000),
        (20_000, 1e-5, 1_001, 20_000),
        (1, 0.0, 0, 1),
    ],
)
def test_a_quarter_is_enough_where_delta_is_as_small_as_usual(
    min_rows: int, delta: float, waiting: int, least: int
) -> None:
    definition = Definition.read(
        {
            "version": 1,
            "dataset": "flights",
            "attributes": [{"name": "late", "type": "boolean"}],
            "privacy": {"epsilon": 1.0, "delta": delta},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": min_rows},
        }
    )
    assert definition.least_to_close(waiting) == least
