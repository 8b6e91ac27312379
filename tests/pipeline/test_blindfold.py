"""Nothing that leaves tells one row from another, beyond what the noisy releases themselves say.

Two runs differ in one row. Their noise is chosen so that every release comes out alike; then everything else
that can be seen must come out alike too, byte for byte: all topics, all log records, all metrics, the stored
sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core import gates, measuring, memory
from stream_dp.core.blocks import Blocks
from stream_dp.core.noise import PooledNoise

CANARY = "canary-7f3a"
AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}
THESE = {"carrier": "AA", "delay": 5, "cancelled": False}
THOSE = {"carrier": CANARY, "delay": 10**30, "cancelled": None}

Ints = npt.NDArray[np.int64]


class Compensating:
    """Noise that makes the releases of a second run equal to those of a first.

    It is shown every true answer just before the noise for it is asked for. The first run draws and
    notes what was released; the second returns what is lacking to that.
    """

    def __init__(self, released: list[Ints], *, first: bool) -> None:
        self._released = released if first else list(released)
        self._first = first
        self._source = PooledNoise()
        self.truth: Ints = np.zeros(1, dtype=np.int64)

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        if self._first:
            draws = self._source.gaussian(sigma, size)
            self._released.append(self.truth.reshape(-1) + draws)
            return draws
        return self._released.pop(0) - self.truth.reshape(-1)

    def laplace(self, scale: Fraction, size: int) -> Ints:
        raise NotImplementedError

    def geometric_half(self, limit: int) -> int:
        raise NotImplementedError

    def reserve(self, kind: Any, scale: Fraction, size: int) -> None:
        self._source.reserve(kind, scale, size)

    def discard(self) -> None:
        self._source.discard()


@pytest.fixture
def showing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Compensating], None]]:
    """``showing(noise)``: from now on this noise is shown the true answers."""
    shown: list[Compensating] = []
    marginal, exact = Blocks.marginal, measuring._exact_answers

    def watched(self: Blocks, attributes: Any, blocks: range) -> Any:
        found = marginal(self, attributes, blocks)
        if shown:
            shown[-1].truth = found
        return found

    def answers(*arguments: Any) -> Any:
        found = exact(*arguments)
        shown[-1].truth = found
        return found

    monkeypatch.setattr(Blocks, "marginal", watched)
    monkeypatch.setattr(measuring, "_exact_answers", answers)
    yield shown.append
    shown.clear()


def _rounds(row: dict[str, Any]) -> list[Callable[[Any], None]]:
    """A life of a data set in which one row is ``row``, in every form and in malformed batches too."""
    column = {name: [value] * 3 for name, value in row.items()}

    def define(world: Any) -> None:
        world.define("flights", mechanism={"base_share": 0.001}, synthetic_rows=30)
        world.define("trains", mechanism={"base_share": 0.0})

    def fill(world: Any) -> None:
        for name in ("flights", "trains"):
            world.cells(name, "many")
            world.batch(name, "rows", rows=[THESE, row, THESE])
            world.batch(name, "columns", columns=column)
            world.batch(name, "cells", cells=[row | {"count": 1}])
            world.batch(name, "rows", rows=[row])  # a repeated id
            world.cells(name, "more")

    def refuse(world: Any) -> None:
        world.batch("flights", "short", columns={"carrier": [row["carrier"]]})
        world.batch("flights", "unknown", rows=[row | {"name": row["carrier"]}])
        world.batch("flights", "negative", cells=[row | {"count": -1}])
        world.batch("nobody", "lost", rows=[row])
        text = f'{{"version": 1, "dataset": "flights", "batch_id": "x", "rows": ["{row["carrier"]}"'
        world.produce("batches", text.encode(), key="flights")
        world.produce("batches", text.encode(), key=None)

    def ask(world: Any) -> None:
        for name in ("flights", "trains"):
            world.ask(name, "aa", AA)
            world.ask(name, "either", {"any": [AA, LATE]})
            world.ask(name, "by", kind="table", group_by=["carrier", "cancelled"])
            world.ask(name, "last", LATE, window={"last_phases": 1})
            world.ask(name, "aa again", AA)

    return [define, fill, refuse, ask]


def _visible(world: Any, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Everything that can be seen of a run."""
    worker = world.processes[-1].worker
    metrics = worker._metrics.exposition().decode()
    return {
        "released": [
            (e.outgoing.role, e.outgoing.key, e.outgoing.value, e.outgoing.headers)
            for e in world.trail
            if hasattr(e, "outgoing")
        ],
        "logged": [(r.name, r.levelname, r.getMessage()) for r in caplog.records],
        # When something was committed says nothing of a row, and is never the same twice.
        "metrics": [line for line in metrics.splitlines() if "_timestamp_seconds" not in line],
        "commits": [
            (
                len(t.pending),
                [len(rows) for rows in t.pending],
                len(t.seal or b""),
                t.charges,
                t.intent,
            )
            for t in (e.transition for e in world.trail if hasattr(e, "transition"))
        ],
        "steps": sum(process.effects for process in world.processes),
    }


async def _run(
    world: Any, noise: Any, row: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    world.make_noise = lambda _: noise
    await world.run(rounds=_rounds(row))
    assert world.complaints() == []
    return _visible(world, caplog)


async def test_two_runs_that_differ_in_a_row_look_the_same(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    released: list[Ints] = []
    seen = []
    for row, first in ((THESE, True), (THOSE, False)):
        noise = Compensating(released, first=first)
        showing(noise)
        seen.append(await _run(make_world(), noise, row, caplog))
    paths = {e[2] for e in seen[0]["released"] if e[0] == "answers"}
    assert any(b'"measured"' in value for value in paths)
    for what in seen[0]:
        assert seen[0][what] == seen[1][what], what
    await _another_row_count_would_show(make_world(), seen[0], caplog)


async def _another_row_count_would_show(
    world: Any, seen: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The comparison can fail: one more row is public, and is seen."""
    rounds = _rounds(THESE)
    await world.run(
        rounds=[rounds[0], lambda w: w.batch("flights", "extra", rows=[THESE]), *rounds[1:2]]
    )
    released = _visible(world, caplog)["released"]
    assert released != seen["released"][: len(released)]


async def test_the_data_does_differ(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the compensation the two runs are told apart: the test above compares what it should."""
    released: list[Ints] = []
    seen = []
    for row in (THESE, THOSE):
        noise = Compensating(released, first=True)
        showing(noise)
        seen.append(await _run(make_world(), noise, row, caplog))
    assert seen[0]["released"] != seen[1]["released"]


async def test_no_word_of_a_row_leaves_or_is_logged(
    make_world: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    row = {"carrier": CANARY, "delay": CANARY, "cancelled": CANARY}
    caplog.set_level(logging.DEBUG)
    await world.run(world.Fuse(60), rounds=_rounds(row))
    said = b"".join(
        e.outgoing.value + str(e.outgoing).encode() for e in world.trail if hasattr(e, "outgoing")
    )
    assert CANARY.encode() not in said
    assert CANARY not in caplog.text
    worker = world.processes[-1].worker
    assert CANARY.encode() not in worker._metrics.exposition()


async def test_no_repr_shows_what_is_private(world: Any) -> None:
    seen: list[str] = []
    process = world.process()
    await process.assign()
    world.define("flights")
    await process.run()
    count = 918_273
    record = world.batch("flights", "b", cells=[{"carrier": CANARY, "count": count}])
    world.batch("flights", "rows", rows=[{"carrier": CANARY}])
    await process.run()
    dataset = process.worker.datasets["flights"]
    snapshot = await world.store.acquire("flights")
    seen += [
        repr(record),
        repr(dataset),
        repr(dataset._data),
        repr(dataset._pending),
        repr(snapshot),
    ]
    seen += [
        repr(dataset._mechanism),
        repr(dataset._draft),
        repr(process.worker),
        repr(world.store),
    ]
    for event in world.trail:
        seen += [repr(event), repr(getattr(event, "transition", ""))]
    from stream_dp.messages import Batch

    seen.append(
        repr(Batch.read({"version": 1, "dataset": "flights", "batch_id": "b", "rows": [CANARY]}))
    )
    everything = "".join(seen)
    assert CANARY not in everything
    assert snapshot.blocks[0].hex() not in everything
    assert repr(snapshot.blocks[0]) not in everything
    await process.kill()


def _memory_decides(patch: pytest.MonkeyPatch, easy: bool) -> None:
    patch.setattr(memory.Gate, "is_easy", lambda *_, **__: easy)


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
    """Whether a question was easy is published; nothing else may tell how near it was."""

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
        commits = [e.transition for e in world.trail if hasattr(e, "transition")]
        steps.append(
            (
                [len(t.transcript[0]) if t.transcript else 0 for t in commits],
                [len(e.outgoing.role) for e in world.trail if hasattr(e, "outgoing")],
                [r.getMessage() for r in caplog.records],
                world.processes[-1].effects,
            )
        )
        assert world.answer("q")["path"] == ("gated" if easy else "measured")
    assert steps[0] == steps[1]


async def test_a_guess_at_a_rejected_batch_is_rejected_in_words_that_compare_with_nothing(
    make_world: Callable[..., Any],
) -> None:
    """The batch comes before its data set, and a guess at its bytes comes on another topic."""
    said = []
    for guessed in ("UA", "AA"):
        world = make_world()
        batch = world.batch("flights", "b", rows=[{"carrier": "UA", "delay": 5, "cancelled": None}])
        guess = (batch.value or b"").replace(b"UA", guessed.encode())
        asked = world.produce("queries", guess, key="flights")
        await world.run()
        said.append([world.rejection(batch), world.rejection(asked)])
    assert said[0] == said[1]
    assert set(said[0][0]) == {"version", "topic", "partition", "offset", "dataset", "reason"}
