"""Two runs that differ in a row look the same, whatever profile or kind answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.median.phase_looks import PhaseLook
from tests.pipeline.blindfold.lives import LIVES


@pytest.mark.parametrize("name", LIVES)
async def test_two_runs_that_differ_in_a_row_look_the_same(
    both: Callable[..., Any], name: str
) -> None:
    life = LIVES[name]
    runs = await both(life)
    assert runs.complaints == []
    assert runs.noise[1].told_apart >= life.looks - {PhaseLook}
    replies = [reply["status"] for reply in runs.worlds[0].released("answers")]
    assert replies.count("answered") > len(replies) / 2
    rejected = runs.worlds[0].released("rejected")
    assert len(rejected) >= 8
    assert runs.unlike == set()


async def test_without_the_compensation_the_runs_are_told_apart(both: Callable[..., Any]) -> None:
    """The data does differ: the test above compares what it should."""
    runs = await both(LIVES["calibrated"], compensated=False)
    assert "released" in runs.unlike
