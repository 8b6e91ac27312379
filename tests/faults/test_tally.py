"""What soaks have tried adds up from run to run."""

from __future__ import annotations

from pathlib import Path

from tests.faults.soak import TRIED, WANTED
from tests.faults.tally import Tally


def test_counts_of_several_runs_add_up(tmp_path: Path) -> None:
    file = tmp_path / "tried.json"
    for run in (1, 2):
        tally = Tally({"a": 6, "b": 3, "never": 1})
        tally.add(file)
        tally.tried("a", 1.26)
        tally.tried("b", times=2)
        if run == 2:
            tally.broken(["b"], "a promise was broken")
        tally.write(file)
    total = Tally({"a": 6, "b": 3, "never": 1})
    total.add(file)
    a, b, never = total.lines.values()
    assert (a.trials, a.violations, a.seconds) == (2, 0, [1.3, 1.3])
    assert (b.trials, b.violations, b.bound) == (4, 1, None)
    assert never.trials == 0
    assert [total.left(kind) for kind in total.lines] == [4, 0, 1]


def test_what_was_tried_so_far_broke_no_promise() -> None:
    """A change that mends what a soak has found takes its counts out."""
    tally = Tally(WANTED)
    tally.add(TRIED)
    assert {kind: line.violations for kind, line in tally.lines.items() if line.violations} == {}
