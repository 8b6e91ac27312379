"""What a data set promises to whom, and what a person in every phase has lost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_dp.cli.use.budget_command import (
    _memory_lines,
    _tau_line,
    epsilons_of,
    in_every_phase,
    promise,
    table_lines,
)
from stream_dp.client.budget.odometer import Odometer
from stream_dp.core.budget.accountant import epsilon_of, rho_max
from stream_dp.messages import Definition
from stream_dp.profiles.builder import build
from tests.cli.conftest import printed
from tests.pipeline import world

PEOPLE = world.definition("people")
FULL = 2**50


def people(**unit: Any) -> Definition:
    """A data set that protects persons if a unit is given, and otherwise rows."""
    whose = {"unit": {"key": "user_id", "rows_per_phase": 1, "phases": 12, **unit}} if unit else {}
    return Definition.read({**PEOPLE, "privacy": {**PEOPLE["privacy"], **whose}})


def spent(*units: int) -> Odometer:
    """A phase for each of these numbers of units, which its line has spent."""
    opened = [{"seq": n, "kind": "phase", "rows": 20_000} for n in range(len(units))]
    looks = [{"kind": "tables"}]
    charge = {"seq": len(units), "kind": "charge", "looks": looks}
    charges = [[block, rho, 0] for block, rho in enumerate(units)]
    return Odometer.read([*opened, {**charge, "charges": charges}])


def test_the_promise_says_to_whom_and_for_how_long() -> None:
    for unit, said in (
        ({}, "every row, for ever"),
        ({"phases": 12}, "every person, in any 12 phases"),
        ({"phases": 1}, "every person, in any one phase"),
        ({"lifetime": True}, "every person, for life"),
    ):
        told = f"epsilon 1 at delta 1e-09 is promised to {said}; 1 look at the rows so far"
        assert promise(people(**unit), spent(FULL)) == told


def test_how_many_rows_of_a_person_count_is_said() -> None:
    at_most = "at most {} with the same user_id {} in a phase"
    until = ", until the squares of these numbers add up to 192"
    for unit, said in (
        ({"rows_per_phase": 1}, at_most.format("1 row", "counts")),
        ({"rows_per_phase": 4}, at_most.format("4 rows", "count")),
        ({"rows_per_phase": 4, "lifetime": True}, at_most.format("4 rows", "count") + until),
    ):
        found = people(**unit).privacy.unit
        assert found is not None
        assert found.counting == said


@pytest.mark.parametrize("rows_per_phase", [1, 4])
def test_a_person_in_every_phase_loses_what_the_guarantee_says(rows_per_phase: int) -> None:
    """At any k, because a line holds as much less: the golden numbers for P = 12 at epsilon 1."""
    definition = people(rows_per_phase=rows_per_phase)
    for phases, lost in ((12, 1.0), (24, 1.4371), (36, 1.7784), (60, 2.3289), (120, 3.3678)):
        assert in_every_phase(definition, spent(*[FULL] * phases)) == pytest.approx(lost, abs=5e-5)


def test_what_counts_is_what_each_line_has_spent() -> None:
    definition, rho = people(rows_per_phase=2, phases=3), rho_max(1.0, 1e-9)
    found = in_every_phase(definition, spent(FULL, FULL // 2, 0, FULL // 4))
    assert found == pytest.approx(epsilon_of(rho * 7 / 12, 1e-9), rel=1e-9)
    assert found > epsilon_of(rho * 6 / 12, 1e-9) * 1.01, "what the window of the promise has spent"
    each = epsilons_of(definition, spent(FULL, 0))
    assert each == [pytest.approx(epsilon_of(rho / 3, 1e-9), rel=1e-9), 0.0]


def test_a_pure_promise_is_spent_as_a_sum_of_epsilons() -> None:
    pure = {"privacy": {"epsilon": 0.003, "delta": 0}, "mechanism": {"profile": "counts"}}
    definition = Definition.read({**PEOPLE, **pure})
    assert epsilons_of(definition, spent(FULL // 2, FULL // 4)) == pytest.approx([0.0015, 0.00075])
    said = "epsilon 0.003 at delta 0 is promised to every row, for ever; 1 look"
    assert promise(definition, spent(FULL)).startswith(said)


def test_a_profile_of_the_papers_says_what_its_phase_still_answers() -> None:
    papers = {"profile": "memory", "queries_per_phase": 8, "phases": 1, "hypothesis_rows": 30}
    accuracy = {"error": 0.5, "failure_probability": 0.5}
    promised = {"privacy": {"epsilon": 10.0, "delta": 1e-3}, "accuracy": accuracy}
    definition = Definition.read({**PEOPLE, **promised, "mechanism": papers})
    constants = build(definition)[1].published_budget
    assert constants is not None
    assert "of its delta the mechanism may use" in _tau_line(constants)
    opens = {"kind": "phase", "queries": 8, "hard_limit": 9, "count_scale": 50}
    of_phase = {"mechanism": "memory", "phase": 1, "window": [0, 1]}
    looks = [{**opens, **of_phase}, {"kind": "query", **of_phase}]
    charge = {"seq": 1, "kind": "charge", "charges": [[0, FULL, 0]], "looks": looks}
    odometer = Odometer.read([{"seq": 0, "kind": "phase", "rows": 20_000}, charge])
    (said,) = _memory_lines(definition, odometer, constants)
    assert "1 of 8 queries asked; up to 9 hard answers in all phases so far" in said
    assert epsilons_of(definition, odometer) == [10.0]


def test_a_loss_is_never_said_to_pass_a_promise_that_covers_it() -> None:
    full = spent(*[FULL] * 24)
    assert in_every_phase(people(lifetime=True), full) == 1.0
    assert in_every_phase(people(phases=24), full) == 1.0
    assert in_every_phase(people(phases=23), full) > 1.0


@pytest.mark.parametrize(
    ("unit", "phases", "said"),
    [
        ({"rows_per_phase": 4}, 24,
         ("a person with 4 rows in every phase so far has lost at most epsilon 1.437: the promise is about "
          "any 12 of these 24 phases in a row")),
        ({}, 2, None),
        ({"rows_per_phase": 1}, 12,
         "a person with 1 row in every phase so far has lost at most epsilon 1.000"),
    ],
)  # fmt: skip
def test_the_loss_of_a_person_stands_below_the_table(
    unit: dict[str, Any], phases: int, said: str | None
) -> None:
    lines = table_lines(people(**unit), spent(*[FULL] * phases))
    summary, head, line, *rows = printed(*lines)
    assert summary == f"{phases} phases are open; none has spent more than 100.00% of its budget"
    assert line.split()[:4] == ["1", "to", str(phases), f"{20_000 * phases:,}"]
    assert rows == [said] if said else re.search(r" 1\.000 +1$", line)
    assert ("epsilon in this phase" if said else "epsilon so far") in head


def test_phases_that_have_spent_the_same_one_after_another_are_one_line() -> None:
    lines = table_lines(people(), spent(FULL // 4, FULL // 4, FULL // 2, FULL // 4))
    summary, _, *rows = printed(*lines)
    assert summary == "4 phases are open; none has spent more than 50.00% of its budget"
    assert [row.strip().split("  ")[0] for row in rows] == ["1 to 2", "3", "4"]
    assert [re.search(r"(\d+)\.00%", row)[1] for row in rows] == ["25", "50", "25"]  # type: ignore[index]
    assert "phases are open" not in str(printed(*table_lines(people(), spent(FULL // 4))))
