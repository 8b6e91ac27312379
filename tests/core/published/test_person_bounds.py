"""Of whom one row counts in a phase: a phase has at most all persons, and all phases together at least."""

from __future__ import annotations

import itertools

VALUES = ("-", "x", "y")
"""What the row of a person that counts in a phase may be: none, one of a group, or one of another group."""


def test_persons_lie_between_every_phase_and_the_sum_of_all_in_every_table() -> None:
    attained = set()
    for rows in itertools.product(VALUES, repeat=9):
        phases = [rows[i : i + 3] for i in range(0, 9, 3)]
        for group in ("x", "y", "xy"):
            counts = [sum(row in group for row in phase) for phase in phases]
            persons = sum(any(phase[person] in group for phase in phases) for person in range(3))
            assert max(counts) <= persons <= sum(counts)
            attained.add(
                (max(counts) == persons, persons == sum(counts), max(counts) < sum(counts))
            )
    assert {(True, False, True), (False, True, True)} <= attained, "no narrower bounds hold"
