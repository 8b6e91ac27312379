"""A batch that is quarantined leaves the same traces, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.pipeline import group_steps
from stream_dp.pipeline.intake import decider
from stream_dp.pipeline.intake.backlog import Piece
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.two_rows import THESE, THOSE, Row


@pytest.mark.parametrize("where", ["handle", "decode"])
async def test_a_batch_that_kills_the_worker_is_quarantined_alike_whatever_it_holds(
    lived: Callable[..., Any], world: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It ends the worker when it is decided on, or already when it is read."""
    owner: Any = group_steps if where == "decode" else decider.Decider
    step = getattr(owner, where)

    def deadly(*arguments: Any) -> Any:
        piece = next((one for one in arguments if isinstance(one, Piece)), None)
        record = arguments[0] if piece is None else piece.record
        if b"deadly" in (record.value or b"") and not (piece and piece.suspect):
            raise world.Crash
        return step(*arguments)

    monkeypatch.setattr(owner, where, deadly)

    async def live(world: Any, _: Any, row: Row) -> None:
        await world.run(rounds=[lambda w: LIVES["calibrated"].define(w, "flights")])

        def fill(world: Any) -> None:
            world.batch("flights", "deadly", rows=[THESE, row])
            world.batch("flights", "behind", rows=[row])

        assert await world.run(*[world.Fuse() for _ in range(10)], rounds=[fill]) > 1
        codes = {reply["reason"]["code"] for reply in world.released("rejected")}
        assert codes == {"quarantined" if where == "handle" else "unreadable"}

    runs = await lived(live, THESE, THOSE)
    assert runs.complaints == []
    assert runs.unlike == set()
