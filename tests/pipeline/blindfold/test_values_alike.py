"""Two runs that differ in a value within a cell look the same, where values are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.messages import Batch
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.two_rows import THESE


@pytest.mark.parametrize("delay", [7, 5.5, "9", 0])
async def test_two_runs_that_differ_in_a_value_within_a_cell_look_the_same(
    both: Callable[..., Any], delay: Any
) -> None:
    """Only a look at a sum of values can see another row then."""
    runs = await both(LIVES["calibrated, values are kept"], other={**THESE, "delay": delay})
    assert runs.complaints == []
    assert runs.noise[1].told_apart == ({SumLook} if delay != 5.5 else set())
    assert runs.unlike == set()


async def test_a_copy_that_says_how_many_values_are_clamped_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WaitingBatches.store_outcome

    def counting(self: WaitingBatches, batch: Batch, what: str, **facts: Any) -> bytes:
        top = [int((rows.measures[1] == 70).sum()) for rows in self._pending.values()]
        return store(self, batch, what, **facts, note=f"{sum(top)} values are clamped")

    monkeypatch.setattr(WaitingBatches, "store_outcome", counting)
    runs = await both(LIVES["calibrated, values are kept"])
    assert "released" in runs.unlike
