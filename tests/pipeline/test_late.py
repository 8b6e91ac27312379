"""Rows that come to the phase of their own period after it has closed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.clocked import BY_CLOCK, at, clock
from tests.pipeline.flights import judged
from tests.pipeline.test_calendar import phases
from tests.pipeline.test_clock import come

pytestmark = judged

LATE = {**BY_CLOCK, "late": {"within": "3 days"}}


async def tell(world: Any, process: Any, when_ms: int) -> None:
    """The clock is read at a time."""
    world.now_ms = when_ms
    clock(world)
    await process.run()


def where(world: Any) -> list[tuple[Any, ...]]:
    return [
        (e["batch_id"], e["waiting"], e["late"], e.get("late_phase"))
        for e in world.events("batch_accepted")
    ]


def complete(world: Any) -> list[tuple[Any, ...]]:
    return [(e["phase"], e["rows"], e["since"], e["until"]) for e in world.events("phase_complete")]


async def test_late_rows_come_to_the_phase_of_their_day_once_it_is_complete(
    world: Any, process: Any
) -> None:
    world.define("flights", phase=LATE)
    await come(world, process, at(1, 9), ("2026-11-01", 120))
    await come(world, process, at(2, 9), ("2026-11-02", 100))
    await come(world, process, at(2, 10), ("2026-11-01", 30))
    await come(world, process, at(3, 9), ("2026-11-03", 110), ("2026-11-01", 12), ("2026-10-30", 5))
    assert [one[0] for one in phases(world)] == [120, 100]
    assert where(world) == [
        ("01-120", 120, False, None),
        ("02-100", 100, False, None),
        ("01-30", 100, True, 1),
        ("03-110", 110, False, None),
        ("01-12", 110, True, 1),
        ("30-5", 115, True, None),
    ]
    await tell(world, process, at(5, 0))
    assert complete(world) == [(1, 42, "2026-11-01", "2026-11-02")]
    await tell(world, process, at(6, 0))
    assert complete(world)[1:] == [(2, 0, "2026-11-02", "2026-11-03")]
