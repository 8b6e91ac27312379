"""Nothing that leaves tells one row from another, beyond what the noisy releases themselves say.

Two runs differ in one row. Their noise is chosen so that every release comes out alike (``Compensating``);
then everything else that can be seen must come out alike too, byte for byte: all topics, ``rejected`` among
them, all log records, the text of ``/metrics``, what the pages show, the number of steps and the stored
sizes. There is no exception. It is so for every profile and kind that a definition can name, and
``test_broken_copies`` shows that the comparison can fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from stream_dp.core.rows.blocks import Blocks
from stream_dp.pipeline.datasets import draft
from stream_dp.pipeline.journal import journal, redis_follower, releaser
from stream_dp.pipeline.rows import private_values
from stream_dp.pipeline.rows.stored_blocks import StoredBlocks
from stream_dp.state import private_names, schema
from tests.pipeline.blindfold.compensating_noise import Compensating
from tests.pipeline.blindfold.draws import Script
from tests.pipeline.blindfold.life import Life
from tests.pipeline.blindfold.rounds import rounds_of
from tests.pipeline.blindfold.statistics_of_looks import looks
from tests.pipeline.blindfold.two_rows import THESE, THOSE, Row
from tests.pipeline.blindfold.visible import Both, visible


@pytest.fixture
def drawn_alike(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """``drawn_alike()``: what is drawn from now on, but for noise, is what was drawn after the last call.

    A private value is named by its salt alone here, which is behind the version of an index. In earnest it is
    named by salt and value, and as nobody sees the salt, the name looks drawn at random, whatever the value
    is.
    """

    def draw() -> None:
        drawn = count()
        for module in (draft, journal, private_names, schema):
            monkeypatch.setattr(module, "token_bytes", lambda n: next(drawn).to_bytes(n))
        for module in (private_values, private_names):
            monkeypatch.setattr(module, "name_of", lambda first: first[1:17])
        # How long a run lasts is not compared: nothing is done for want of other work.
        monkeypatch.setattr(releaser, "_IDLE_S", 3600.0)
        monkeypatch.setattr(redis_follower, "_ANSWER_S", 3600.0)

    return draw


@pytest.fixture
def showing(
    monkeypatch: pytest.MonkeyPatch, drawn_alike: Callable[[], None]
) -> Callable[[Compensating], None]:
    """``showing(noise)``: from now on this noise is told of every look. All else is drawn alike.

    Looks are not taken in a thread of their own: what leaves meanwhile depends on how long they last, and
    running times are not compared.
    """
    shown: list[Compensating] = []

    async def at_once(step: Callable[..., Any], *arguments: Any) -> Any:
        return step(*arguments)

    def read_at_once(blocks: StoredBlocks, places: Any, *, on_topic: bool = False) -> Future[Any]:
        reading: Any = blocks._parts([place[1:] for place in places], on_topic=on_topic)
        with pytest.raises(StopIteration) as done:  # topics in memory let nobody wait
            reading.send(None)
        found: Future[Any] = Future()
        found.set_result(done.value.value)
        return found

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr(StoredBlocks, "_asked", read_at_once)

    def told(take: Callable[..., Any]) -> Callable[..., Any]:
        def taken(look: Any, noise: Any, data: Blocks) -> Any:
            return shown[-1].look(take, look, data) if shown else take(look, noise, data)

        return taken

    taking = {look: look.take for look in looks()}  # one may inherit that of another
    for look, take in taking.items():
        monkeypatch.setattr(look, "take", told(take))

    def show(noise: Compensating) -> None:
        shown.append(noise)
        drawn_alike()

    return show


@pytest.fixture
def lived(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    caplog: pytest.LogCaptureFixture,
) -> Callable[..., Any]:
    """``await lived(live, *cases)``: the runs in which ``await live(world, noise, case)`` was done."""

    async def run(live: Callable[..., Any], *cases: Any, compensated: bool = True) -> Both:
        script, found = Script(), Both([], [], [])
        for case in cases:
            first = not (compensated and found.noise)
            noise = Compensating(script if compensated else Script(), first=first)
            showing(noise)
            caplog.clear()
            caplog.set_level(logging.DEBUG)
            world = make_world()
            noise.play_in(world)
            await live(world, noise, case)
            found.seen.append(visible(world, caplog))
            found.worlds.append(world)
            found.noise.append(noise)
        return found

    return run


@pytest.fixture
def both(lived: Callable[..., Any]) -> Callable[..., Any]:
    """``await both(life)``: its two runs."""

    async def run(life: Life, *, compensated: bool = True, other: Row = THOSE) -> Any:
        async def live(world: Any, _: Compensating, row: Row) -> None:
            life.prepare(world)
            for rounds in rounds_of(life, row):
                await world.run(rounds=rounds)

        return await lived(live, THESE, other, compensated=compensated)

    return run
