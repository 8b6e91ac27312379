"""Two runs in which slots lie in other orders look the same, and publish the same.

Nobody draws noise by the place of a row. So here the noise is the same, and nothing compensates anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows import blocks, slabs
from stream_dp.core.rows.slabs import TableAsked
from stream_dp.pipeline.rows import private_rows, sealed_blocks
from stream_dp.pipeline.rows.waiting import waiting_lots
from stream_dp.pipeline.rows.waiting.waiting_lots import WaitingLots
from tests.pipeline.blindfold.compensating_noise import Compensating
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.rounds import rounds_of
from tests.pipeline.blindfold.test_whose_rows_alike import lived_by_persons
from tests.pipeline.blindfold.two_rows import THESE

ORDERS: list[Callable[[int], Any]] = [
    np.arange,
    lambda n_slots: np.arange(n_slots)[::-1],
    lambda n_slots: np.roll(np.arange(n_slots), 1),
]

Rounds = list[Callable[[Any], None]]

LIVED: dict[str, Callable[[], tuple[Rounds, ...]]] = {
    "rows": lambda: rounds_of(LIVES["calibrated"], THESE),
    "values are kept": lambda: rounds_of(LIVES["calibrated, values are kept"], THESE),
    "in order": lambda: rounds_of(LIVES["kind correlated_vector"], THESE),
    "of persons": lambda: lived_by_persons(lambda n: n % 7_000),
}


@pytest.fixture
def ordered(lived: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``await ordered(rounds)``: what is seen of a life, with slots in each of several orders."""

    async def run(lives: tuple[Rounds, ...]) -> Any:
        async def live(world: Any, _: Compensating, order: Callable[[int], Any]) -> None:
            for module in (private_rows, waiting_lots):
                monkeypatch.setattr(module, "secret_order", order)
            for rounds in lives:
                await world.run(rounds=rounds)

        return await lived(live, *ORDERS)

    return run


@pytest.mark.parametrize("waits", ["in memory", "in lots"])
@pytest.mark.parametrize("name", LIVED)
async def test_in_which_order_slots_lie_shows_nowhere(
    ordered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, waits: str
) -> None:
    add, lots = WaitingLots.add, list[int]()

    async def added(self: WaitingLots, *arguments: Any, **came: Any) -> None:
        lots.append(1)
        await add(self, *arguments, **came)

    monkeypatch.setattr(WaitingLots, "add", added)
    if waits == "in lots":
        monkeypatch.setattr(slabs, "SLOTS", 10_000 if name in ("in order", "of persons") else 3)
    for module in (blocks, sealed_blocks):  # merged, they have no order
        monkeypatch.setattr(module, "merges", lambda *_: False)
    runs = await ordered(LIVED[name]())
    assert bool(lots) == (waits == "in lots")
    stored = [[parts for _, parts in world.kept_log] for world in runs.worlds]
    assert stored[0] != stored[1] != stored[2], "there is something that could show"
    assert not any(noise.told_apart for noise in runs.noise), "each look saw the same rows"
    assert runs.complaints == []
    assert runs.unlike == set()


async def test_a_copy_that_leaves_out_the_last_slot_of_a_slab_is_told_apart(
    ordered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableAsked.table

    def short(self: TableAsked, shape: Any, slab: Any) -> Any:
        columns = {name: column[:-1] for name, column in slab.columns.items()}
        return table(self, shape, slabs.Slab(slab.n_rows, slab.n_slots - 1, columns))

    monkeypatch.setattr(TableAsked, "table", short)
    runs = await ordered(LIVED["rows"]())
    assert all(noise.told_apart for noise in runs.noise[1:])
