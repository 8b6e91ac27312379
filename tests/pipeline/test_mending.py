"""A journal that was cut: data sets that Redis has whole go on, others are stopped or written off."""
from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline import mending
from tests.pipeline.commands import cut, mend_all, mends, served, states
from tests.pipeline.scenarios import ROUNDS, RUNS, GATED, PERSONS, ERASED, STANDING, ROTATED, THESIS

ALL = [ROUNDS, RUNS, GATED, PERSONS, ERASED, STANDING, ROTATED, THESIS]

@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "BEYOND", 40)
    monkeypatch.setattr(mending, "_FILLED_AT_ONCE", 30)

@pytest.mark.parametrize("rounds", ALL)
async def test_what_redis_has_whole_goes_on(world: Any, rounds: Any) -> None:
    process = await served(world, rounds)
    before = states(process)
    cut(world)
    process = await served(world)
    assert process.worker.aside == {0, 1}
    for p in range(2):
        print(await mends(world, p).plan())
    found = await mend_all(world)
    assert set(found.values()) <= {"redis", "whole"}
    assert "redis" in found.values()
    process = await served(world)
    assert process.worker.aside == set()
    assert process.worker.stopped == {}
    after = states(process)
    for name in before:
        b = dict(before[name].pairs); a = dict(after[name].pairs)
        assert a == b
