"""Two runs whose blocks are on the topic alone look the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.core.blocks import Block
from tests.pipeline.blindfold.lives import LIVES

ON_TOPIC = ("calibrated", "calibrated, values are kept", "calibrated, rows are erased")


@pytest.mark.parametrize("name", ON_TOPIC)
async def test_two_runs_whose_blocks_are_on_the_topic_alone_look_the_same(
    both: Callable[..., Any], name: str
) -> None:
    runs = await both(LIVES[name], blocks="topic")
    for world in runs.worlds:
        assert world.complaints() == []
    assert runs.seen[0]["places"]
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


async def test_a_copy_whose_blocks_are_as_long_as_their_cells_are_many_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = Block._merged_to_bytes

    def shorter(self: Block) -> bytes:
        return padded(replace(self, capacity=len(self.counts)))

    monkeypatch.setattr(Block, "_merged_to_bytes", shorter)
    runs = await both(LIVES["calibrated"], blocks="topic")
    assert runs.seen[0]["places"] != runs.seen[1]["places"]
