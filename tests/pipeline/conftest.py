"""Worlds, see ``world.World``, in which every reading of private rows is watched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from stream_dp.pipeline.journal import redis_follower
from stream_dp.pipeline.kafka import patience
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.tokens import Verifier
from tests.pipeline.crash import CopyingFuse, CountingFuse
from tests.pipeline.world import World, watch_looks
from tests.signing import Issuer


@pytest.fixture
async def worlds(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[World]]:
    """Worlds in which each reading of private rows is put on the trail. Their workers die in the end."""
    worlds: list[World] = []
    watch_looks(monkeypatch.setattr, worlds)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)
    monkeypatch.setattr(redis_follower, "_GATHER_S", 0.0)
    yield worlds
    for world in worlds:
        for process in world.processes:
            await process.kill()


@pytest.fixture
def make_world(worlds: list[World]) -> Callable[..., World]:
    """``make_world(seed=1)``: empty logs, an empty Redis."""

    def make(**settings: Any) -> World:
        worlds.append(World(**settings))
        return worlds[-1]

    return make


class Die(Protocol):
    def __call__(
        self,
        rounds: Sequence[Callable[[World], object]],
        places: Container[int],
        *,
        points: Collection[CrashPoint] = (),
        deaths: int = 1,
        seed: int = 1,
        **settings: Any,
    ) -> AsyncIterator[tuple[str, World]]: ...


@pytest.fixture
def die(worlds: list[World], make_world: Callable[..., World]) -> Die:
    """``async for at, world in die(rounds, {0, 7})``: worlds in which a worker died, and the next went on.

    It dies at these effects or, with ``points``, at the last of these occurrences of each point. With two
    ``deaths`` the next worker dies too. Other named arguments are attributes of the world. A death leaves the
    logs and Redis alone. So the rounds are run once, and what follows a death is run on a copy of what it
    leaves.
    """

    async def run(
        rounds: Sequence[Callable[[World], object]],
        places: Container[int],
        *,
        points: Collection[CrashPoint] = (),
        deaths: int = 1,
        seed: int = 1,
        **settings: Any,
    ) -> AsyncIterator[tuple[str, World]]:
        world = make_world(seed=seed)
        vars(world).update(settings)
        fuse = CopyingFuse(world, places, points)
        await world.run(fuse, rounds=rounds)
        assert fuse.left, "nobody died"
        for at, number, left in fuse.left:
            worlds.append(left)
            left.random.seed(f"{seed} {at}")
            again = [CountingFuse(left.random.randrange(40)) for _ in range(deaths - 1)]
            await left.run(*again, rounds=[lambda _: None, *rounds[number + 1 :]])
            yield at, left
            worlds.remove(left)

    return run


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Empty logs and an empty Redis."""
    return make_world()


@pytest.fixture
def judged(world: World) -> Iterator[None]:
    """Has the referee judge the world when a test is over, and its worker has ended."""
    yield
    if world.processes:
        assert world.complaints() == []


@pytest.fixture
async def process(world: World) -> Any:
    """A worker that has taken all partitions over."""
    return await world.owner()


@pytest.fixture
async def first(world: World, process: Any) -> World:
    """A world with a data set in its first phase, and nothing measured yet."""
    world.define("flights", mechanism={"base_share": 0.0})
    await process.run()
    world.cells("flights", "first")
    await process.run()
    return world


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    """Someone who signs tokens, with a file of public keys."""
    return Issuer(tmp_path)


@pytest.fixture
def verifier(issuer: Issuer) -> Verifier:
    """What verifies the tokens of that issuer."""
    made = Verifier(str(issuer.file))
    made.load()
    return made
