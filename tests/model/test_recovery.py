"""No order of steps and faults makes recovery forget, repeat or contradict what was seen.

Small cases are searched exhaustively. With ``SOAK=1`` larger ones are too, and with ``python -m
tests.model.recovery`` larger ones still. Each rule that is broken on purpose must be noticed, so the model
can see such a fault.
"""

from __future__ import annotations

import os

import pytest

from tests.model.recovery import CASES, Break, Case, Model, State, Verdict, case, search, walk

LARGE = pytest.mark.skipif("SOAK" not in os.environ, reason="set SOAK=1 to search large cases")

# Two seconds and more. Random runs of larger cases, and broken copies, meet the same rules in make test.
LONG = {"two data sets, one slot goes back alone", "two queries", "two rows of a source"}

HOLD = [
    pytest.param(
        one, id=one.name, marks=LARGE if one.slow else pytest.mark.slow if one.name in LONG else ()
    )
    for one in CASES
    if not one.violates and not one.walk
]
BROKEN = [pytest.param(one, id=one.name) for one in CASES if one.violates]
RUNS = 40


@pytest.mark.parametrize("one", HOLD)
def test_every_invariant_holds_in_every_state(one: Case) -> None:
    found = search(one)
    assert found.verdict is Verdict.HOLDS, str(found)
    assert found.calm > 0


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.name) for one in CASES if one.walk and not one.violates]
)
def test_every_invariant_holds_in_random_runs(one: Case) -> None:
    found = walk(one, runs=RUNS)
    assert found.verdict is Verdict.WALKED, str(found)
    assert found.calm > RUNS / 2


@pytest.mark.parametrize("one", BROKEN)
def test_a_broken_copy_is_caught(one: Case) -> None:
    found = walk(one, runs=RUNS) if one.walk else search(one)
    assert found.verdict is Verdict.VIOLATED
    assert found.invariant == one.violates, str(found)
    assert found.steps


def test_every_rule_is_broken_by_a_case() -> None:
    assert {rule for one in CASES for rule in one.broken} == set(Break)


def test_a_violation_is_told_in_sentences() -> None:
    told = str(search(case("14: a look before its charge is in the journal")))
    assert "I2: a look was taken whose charge is not in the recovered ledger" in told
    assert 'commits 1: announces and pays a look for query "a"' in told
    assert told.splitlines()[1].strip() == "1. worker 1 starts, and chooses epoch 1"


@pytest.mark.parametrize(
    "one",
    [
        Case("a fault", queries=("a",)),
        Case("a fault and a crash", queries=("",), rejection=True, crashes=1),
        Case("a source", queries=("",), rows=1, sends=1),
    ],
    ids=lambda one: one.name,
)
def test_states_that_are_called_the_same_lead_to_the_same(one: Case) -> None:
    """What a search leaves out, because it is like something else, leads nowhere else."""
    model = Model(one)

    def reached(same: bool) -> set[State]:
        first = model.canonical(model.start)[0] if same else model.start
        seen, todo = {first}, [first]
        while todo:
            for _, new in model.steps(todo.pop()):
                new = model.canonical(new)[0] if same else new
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
        return seen

    everything, searched = reached(same=False), reached(same=True)
    assert {model.canonical(state)[0] for state in everything} == searched
    assert len(everything) > len(searched)
