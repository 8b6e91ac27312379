"""The words of a rejection compare a batch with nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


async def test_a_guess_at_a_rejected_batch_is_rejected_in_words_that_compare_with_nothing(
    make_world: Callable[..., Any],
) -> None:
    """The batch comes before its data set, and a guess at its bytes comes on another topic."""
    said = []
    for guess in ("UA", "AA"):
        world = make_world()
        batch = world.batch("flights", "b", rows=[{"carrier": "UA", "delay": 5, "cancelled": None}])
        guessed = (batch.value or b"").replace(b"UA", guess.encode())
        asked = world.produce("queries", guessed, key="flights")
        await world.run()
        said.append([world.rejection(batch), world.rejection(asked)])
    assert said[0] == said[1]
    assert set(said[0][0]) == {"version", "topic", "partition", "offset", "dataset", "reason"}
