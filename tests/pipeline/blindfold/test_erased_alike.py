"""Who was erased and who was never there look the same, and what is measured from then on is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.pipeline.datasets.sweeps import Sweeps
from stream_dp.pipeline.rows.sealed_blocks import SealedBlocks
from stream_dp.state.private_names import Named
from tests.pipeline.blindfold.compensating_noise import Compensating
from tests.pipeline.blindfold.life import Life
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.rounds import rounds_of
from tests.pipeline.blindfold.two_rows import NOBODY, THESE, Row

NAMES = ("calibrated, persons are erased", "calibrated, records are erased")


@pytest.fixture
def erased(lived: Callable[..., Any]) -> Callable[..., Any]:
    """``await erased()``: a run with the rows of a person who is erased, and one with blank slots.

    Also which looks of the second run saw other rows than those of the first, before and after the sweep.
    """

    async def run(life: Life = LIVES[NAMES[0]]) -> tuple[Any, list[set[type]]]:
        told_apart = list[set[type]]()

        async def live(world: Any, noise: Compensating, row: Row) -> None:
            life.prepare(world)
            before, sweep, _ = rounds_of(life, row)
            *_, after = rounds_of(life, NOBODY)  # the person sends nothing more
            await world.run(rounds=before)
            await world.run(rounds=sweep)
            told_apart.append(set(noise.told_apart))
            noise.told_apart.clear()
            await world.run(rounds=after)

        found = await lived(live, THESE, NOBODY)
        return found, [told_apart[1], found.noise[1].told_apart]

    return run


@pytest.mark.parametrize("name", NAMES)
async def test_who_was_erased_and_who_was_never_there_look_the_same(
    erased: Callable[..., Any], name: str
) -> None:
    life = LIVES[name]
    runs, (before, after) = await erased(life)
    assert runs.complaints == []
    for world in runs.worlds:
        assert [event["changes"] for event in world.events("swept")] == [4 + 3 * life.has_row_keys]
        answers = [world.answer(f"changed-{at}") for at in range(len(life.queries))]
        assert all(answer["changed_at_most"] > 0 for answer in answers)
        assert "measured" in {answer.get("path") for answer in answers}
    assert before >= {TablesLook, CountsLook}, "as long as the rows are there they are looked at"
    assert after == set(), "and then nobody looks at anything else"
    assert runs.unlike == set()


def _a_receipt_counts_who_was_found(patch: pytest.MonkeyPatch) -> None:
    hits, end, found = RowChanges.hits, Sweeps._end, [0]

    def counting(self: RowChanges, slots: Any) -> Any:
        hit = hits(self, slots)
        found[0] += int((~hit.kept).sum())
        return hit

    async def saying(self: Sweeps) -> None:
        self._draft.note("found", str(found[0]))
        await end(self)
        found[0] = 0

    patch.setattr(RowChanges, "hits", counting)
    patch.setattr(Sweeps, "_end", saying)


def _a_sweep_takes_a_step_more_for_each_row_that_it_erases(patch: pytest.MonkeyPatch) -> None:
    change = SealedBlocks.change

    async def asking(
        self: SealedBlocks, index: int, at: int, changes: RowChanges, after: int
    ) -> None:
        found = await self.owners.slots(index + 1, at)
        assert found is not None
        for _ in range(int((~changes.hits(found[0]).kept).sum())):
            await self._values._keeper.find(self._dataset, Named(bytes(16), (0,)))
        await change(self, index, at, changes, after)

    patch.setattr(SealedBlocks, "change", asking)


@pytest.mark.parametrize(
    ("where", "mutate"),
    [
        ("journal", _a_receipt_counts_who_was_found),
        ("steps", _a_sweep_takes_a_step_more_for_each_row_that_it_erases),
    ],
)
async def test_a_copy_that_shows_who_was_there_is_told_apart(
    erased: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    mutate: Callable[[pytest.MonkeyPatch], None],
) -> None:
    mutate(monkeypatch)
    runs, _ = await erased()
    assert where in runs.unlike
