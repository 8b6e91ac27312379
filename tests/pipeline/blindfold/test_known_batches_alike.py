"""A batch that is known is answered alike, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.messages import Batch
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake import batches
from tests.pipeline.blindfold.two_rows import THESE, THOSE, Row


def _rows_that_come_again(row: Row) -> Callable[[Any], list[Callable[[Any], None]]]:
    """Rounds in which batches come again when their outcomes are dropped, with one row that is another."""

    def rounds(world: Any) -> list[Callable[[Any], None]]:
        kept = {"mechanism": {"base_share": 0.0}, "retention": {"answers": {"days": 1}}}
        world.now_ms = 0

        def day(_: Any) -> None:
            world.now_ms += 86_400_000
            world.batch("flights", "again", rows=[row, THESE])
            world.counted("flights", "till-7", 3, rows=[row])
            world.batch("flights", f"new-{world.now_ms}", rows=[row])

        return [lambda _: world.define("flights", **kept), *[day] * 5]

    return rounds


def _says_which_rows_came(patch: pytest.MonkeyPatch) -> None:
    known = batches.known_before

    def telling(dataset: Dataset, batch: Batch) -> None:
        announce = dataset.draft.announce

        def with_note(what: str, **facts: Any) -> bytes:
            return announce(what, **{**facts, "note": f"{batch.rows}"})

        with patch.context() as more:
            more.setattr(dataset.draft, "announce", with_note)
            known(dataset, batch)

    patch.setattr(batches, "known_before", telling)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_batch_that_is_known_is_answered_alike_whatever_it_holds(
    lived: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Else a repeat would tell whether its rows are those that were counted."""
    if is_broken:
        _says_which_rows_came(monkeypatch)

    async def live(world: Any, _: Any, row: Row) -> None:
        await world.run(rounds=_rows_that_come_again(row)(world))
        assert {event["event"] for event in world.events()} >= {"batch_accepted", "batch_known"}
        assert len(world.events("batch_known")) >= 2

    runs = await lived(live, THESE, THOSE)
    assert runs.unlike == ({"released", "journal", "redis"} if is_broken else set())
