"""Profiles that test take the same steps for easy and hard queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.median.easiness import EasinessTest
from stream_dp.core.sparse_vector import gates
from stream_dp.state.schema import StateTable
from tests.pipeline.blindfold.queries import AA
from tests.pipeline.trail import Committed, Sent


def _memory_decides(patch: pytest.MonkeyPatch, easy: bool) -> None:
    patch.setattr(EasinessTest, "is_easy", lambda *_, **__: easy)


def _segment_decides(patch: pytest.MonkeyPatch, easy: bool) -> None:
    def is_below(segment: gates.Segment, *_: object, **__: object) -> bool:
        segment.open = easy
        return easy

    patch.setattr(gates.Segment, "is_below", is_below)


@pytest.mark.parametrize(
    ("mechanism", "decides"),
    [
        (None, _memory_decides),
        ({"profile": "gated", "segments": 20}, _segment_decides),
        ({"profile": "weights"}, _segment_decides),
    ],
)
async def test_a_profile_that_tests_takes_the_same_steps_for_easy_and_hard(
    make_world: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mechanism: dict[str, Any] | None,
    decides: Callable[[pytest.MonkeyPatch, bool], None],
) -> None:
    """Whether a query was easy is published; nothing else may tell how near it was."""

    def define(world: Any) -> None:
        if mechanism is None:
            world.define_memory("tested")
        else:
            world.define("tested", mechanism=mechanism)

    steps = []
    for easy in (True, False):
        caplog.clear()
        world = make_world()
        with monkeypatch.context() as patch:
            decides(patch, easy)
            await world.run(
                rounds=[
                    define,
                    lambda w: w.batch("tested", "b", cells=[{"carrier": "AA", "count": 1_200_000}]),
                    lambda w: w.ask("tested", "q", AA),
                ]
            )
        commits = [event.commit for event in world.trail if isinstance(event, Committed)]
        steps.append(
            (
                [
                    [
                        (pair[0], len(value or b""))
                        for pair, value in one.pairs.items()
                        if pair[0] is StateTable.TRANSCRIPT
                    ]
                    for one in commits
                ],
                [len(event.outgoing.role) for event in world.trail if isinstance(event, Sent)],
                [r.getMessage() for r in caplog.records],
                world.processes[-1].effects,
            )
        )
        assert world.answer("q")["path"] == ("gated" if easy else "measured")
    assert steps[0] == steps[1]
