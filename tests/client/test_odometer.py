"""What was spent, folded from ledger entries."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.client.budget.odometer import Odometer


def entries(mechanism: str, *looks: dict[str, Any]) -> list[dict[str, Any]]:
    """A phase, then the charge of each look: the first is the phase's own."""
    opened = {"seq": 0, "kind": "phase", "phase": 1, "rows": 1_000}
    charges = [
        {
            "seq": seq,
            "kind": "charge",
            "looks": [{"mechanism": mechanism, "phase": 1, "window": [0, 1], **look}],
            "charges": [[0, look.pop("rho"), 0]] if "rho" in look else [],
        }
        for seq, look in enumerate(looks, start=1)
    ]
    return [opened, *charges]


PHASE = {"kind": "phase", "queries": 2, "hard_limit": 9, "count_scale": 50}
QUERY = {"kind": "query", "count_scale": 50}


@pytest.mark.parametrize("mechanism", ["median", "sequential", "memory"])
def test_a_phase_of_the_papers_is_paid_once_and_its_queries_are_counted(mechanism: str) -> None:
    odometer = Odometer.read(
        entries(mechanism, {**PHASE, "rho": 2**49}, QUERY.copy(), QUERY.copy())
    )
    assert odometer.memory is not None
    assert (odometer.memory.asked, odometer.memory.queries) == (2, 2)
    assert odometer.looks == 2
    assert odometer.most_spent == 0.5


def test_a_new_stage_counts_its_own_queries() -> None:
    first = {"stage": 1, "queries": 2, "hard_limit": 9}
    second = {"stage": 2, "queries": 4, "hard_limit": 11, "count_scale": 200}
    looks = [{**PHASE, **first}, {**QUERY, **first}, {**QUERY, **first}]
    looks += [{**QUERY, **second, "rho": 2**48}, {**QUERY, **second}]
    odometer = Odometer.read(entries("median", *looks))
    phase = odometer.memory
    assert phase is not None
    assert (phase.stage, phase.asked, phase.queries) == (2, 2, 4)
    assert (phase.hard_limit, phase.count_scale) == (11, 200)
    assert odometer.looks == 4
    assert odometer.blocks[0].spent == 0.25


def test_a_line_is_as_full_as_the_fuller_of_its_two_sums() -> None:
    charge = {"seq": 1, "kind": "charge", "looks": [{}], "charges": [[0, 2**47, 2**49]]}
    assert Odometer.read([*entries(""), charge]).most_spent == 0.5
