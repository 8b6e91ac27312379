"""Two runs that differ in a date look the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.two_rows import CANARY, THESE


@pytest.mark.parametrize(
    "delay",
    ["1970-02-03T10:00:00.5Z", "1970-02-03 10:00", CANARY, "1970-02-30", "x" * 4096, 1e300, None],
)
async def test_two_runs_that_differ_in_a_date_look_the_same(
    both: Callable[..., Any], delay: Any
) -> None:
    """Whether it can be read or not."""
    runs = await both(LIVES["calibrated, dates"], other={**THESE, "delay": delay})
    assert runs.complaints == []
    assert runs.unlike == set()
