"""No order of steps and faults makes recovery forget, repeat or contradict what was seen.

Small cases are searched exhaustively, and larger ones where tests may be slow. With ``SOAK=1`` the largest
are, too. Each rule that is broken on purpose must be noticed, so the model can see such a fault.
"""

from __future__ import annotations

import os

import pytest

from tests.model.cases import CASES, case
from tests.model.recovery import Break, Case, Model, State
from tests.model.searching import Verdict, search, walk

LARGE = {"one query, three workers, a crash", "two queries, a crash"}
"""A minute and more."""

QUICK = {
    "one query, a crash",
    "one query and Redis, two faults",
    "two rows of a source and Redis",
    "a private value, a crash",
    "a rejection, a crash",
    "a rejection and a query",
    "a round",
}
"""Some seconds at most. Random runs of larger cases, and broken copies, meet the same rules."""

LATE = {"23: a restore under a live worker"}
"""Broken copies that are caught after two seconds and more."""

RUNS = 40

large = pytest.mark.skipif("SOAK" not in os.environ, reason="set SOAK=1 to search large cases")


def of(cases: list[Case]) -> list[object]:
    """Parameters for cases."""

    def marks(one: Case) -> pytest.MarkDecorator | tuple[()]:
        if one.name in LARGE:
            return large
        is_quick = one.name in QUICK or one.walk or (one.violates and one.name not in LATE)
        return () if is_quick else pytest.mark.slow

    return [pytest.param(one, id=one.name, marks=marks(one)) for one in cases]


HOLD = of([one for one in CASES if not one.violates and not one.walk])
WALK = of([one for one in CASES if not one.violates and one.walk])
BROKEN = of([one for one in CASES if one.violates])


@pytest.mark.parametrize("one", HOLD)
def test_every_invariant_holds_in_every_state(one: Case) -> None:
    found = search(one)
    assert found.verdict is Verdict.HOLDS, str(found)
    assert found.calm > 0


@pytest.mark.parametrize("one", WALK)
def test_every_invariant_holds_in_random_runs(one: Case) -> None:
    found = walk(one, runs=RUNS)
    assert found.verdict is Verdict.WALKED, str(found)
    assert found.states > 10 * RUNS


@pytest.mark.parametrize("one", BROKEN)
def test_a_broken_copy_is_caught(one: Case) -> None:
    found = walk(one, runs=RUNS) if one.walk else search(one)
    assert found.verdict is Verdict.VIOLATED
    assert found.invariant == one.violates, str(found)
    assert found.steps


def test_every_rule_is_broken_by_a_case_and_caught_but_for_one_that_is_kept_to_be_sure() -> None:
    """An end that names itself speaks of a beginning that was acknowledged. So it is true even if void."""
    assert {rule for one in CASES for rule in one.broken} == set(Break)
    caught = {rule for one in CASES if one.violates for rule in one.broken}
    assert set(Break) - caught == {Break.OTHERS}


def test_a_violation_is_told_in_sentences() -> None:
    told = str(search(case("13: a look before its charge")))
    assert "I2: a look was taken whose charge is not in the recovered ledger" in told
    assert "worker a decides commit 1: announces and pays a look for A" in told
    assert told.splitlines()[1].strip() == "1. worker a appends EPOCH, at 0"


def test_what_happens_after_a_fault_is_told_too() -> None:
    told = str(search(case("10: nothing is released again")))
    assert "I6: no progress, although the faults are over" in told
    assert "all workers stop, and the faults are over" in told
    assert "worker z reads up to it" in told


@pytest.mark.parametrize(
    "one",
    [
        Case("a fault", crashes=0, view=True),
        Case("a crash", queries="", rejection=True, rounds=1, seals=1),
        Case("a source", queries="", rows=1, sends=1),
    ],
    ids=lambda one: one.name,
)
def test_states_that_are_called_the_same_lead_to_the_same(one: Case) -> None:
    """What a search leaves out, because it is like something else, leads nowhere else."""
    model = Model(one)

    def reached(*, same: bool) -> set[State]:
        seen, todo = {model.start}, [model.start]
        while todo:
            for _, new in model.steps(todo.pop()):
                new = model.canonical(new) if same else new
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
        return seen

    everything, searched = reached(same=False), reached(same=True)
    assert {model.canonical(state) for state in everything} == searched
    assert len(everything) > len(searched)
