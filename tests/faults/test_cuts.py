"""What a store loads from an append-only file that was cut is what it held after a whole number of commits.

All 10,000 cuts: ``make soak``.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded.valkey import find_valkey
from tests.faults.cuts import Cuts, History, cut, steps_in, written

SEED = 3_000_000


@pytest.fixture(autouse=True)
def program(needed: Any) -> Iterator[None]:
    with needed():
        find_valkey()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return written(tmp_path_factory.mktemp("cuts") / "history", SEED)


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_gives_a_state_that_was(tmp_path: Path) -> None:
    seed = secrets.randbelow(10**6)
    cuts = Cuts(tmp_path, seed)
    for _ in range(2):
        cuts.run(100)
    assert cuts.violations == [], f"seed {seed}: {cuts.report()}"


def test_a_commit_is_one_step_of_the_file(history: History) -> None:
    assert history.said == []
    assert max(len(step.commands) for step in history.steps) > 5
    assert len(history.steps) > 100


def test_a_file_that_lacks_a_step_in_its_middle_is_noticed(history: History) -> None:
    ends = [step.end for step in history.steps]
    middle = len(ends) // 2
    begin, end = next(
        (begin, end)
        for at, (begin, end) in enumerate(itertools.pairwise(ends))
        if at > middle and history.held(begin) != history.held(end)
    )
    assert cut(history, history.file[:begin]) is None
    assert cut(history, history.file[:begin] + history.file[end:]) is not None


def test_a_commit_in_several_steps_is_noticed(history: History) -> None:
    """As by a server that writes what a script does command by command: a cut may fall between."""
    begin = 0
    for step in history.steps:
        if len(step.commands) > 5:
            break
        begin = step.end
    loose = history.file[begin : step.end].replace(b"*1\r\n$5\r\nMULTI\r\n", b"")
    loose = loose.replace(b"*1\r\n$4\r\nEXEC\r\n", b"")
    parts = [one.end for one in steps_in(loose)]
    assert len(parts) > 5
    left = history.file[:begin] + loose[: parts[2]]
    assert history.held(len(history.file[:begin])) != history.held(step.end)
    assert cut(history, left) is not None
