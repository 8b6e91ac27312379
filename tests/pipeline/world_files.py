"""The files of slabs of a ``World``: real ones, of which the world knows like of what is on a topic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from stream_dp.errors import ServerUnavailable
from stream_dp.pipeline.rows.slab_files import SlabFiles, SlabPlace
from tests.pipeline.crash import Crash
from tests.pipeline.world import World


class WorldFiles(SlabFiles):
    """Files in a folder, told to a world. At each step something may happen.

    Attributes:
        world: The world that is told.
        steps: The steps so far: ``put`` and ``drop``, each before and after.
        happens: Called with the number of each step and what it is; it may raise.
    """

    world: World
    steps: itertools.count[int]
    happens: Callable[[int, str], None]

    @classmethod
    def of(cls, world: World, folder: Path, key: bytes | None = None) -> WorldFiles:
        return cls.at(world, folder.as_uri(), key)

    @classmethod
    def at(cls, world: World, url: str, key: bytes | None = None) -> WorldFiles:
        files = cls.opened(SlabPlace(url, key))
        files.world, files.steps, files.happens = world, itertools.count(1), lambda *_: None
        return files

    def put(self, dataset: str, name: bytes, parts: Sequence[bytes]) -> None:
        self.happens(next(self.steps), "before put")
        super().put(dataset, name, parts)
        self.world.put(len(self.world.processes) - 1, _key(dataset, name), tuple(parts))
        self.happens(next(self.steps), "after put")

    def drop(self, dataset: str, name: bytes) -> None:
        self.happens(next(self.steps), "before drop")
        super().drop(dataset, name)
        self.world.drop(_key(dataset, name))
        self.happens(next(self.steps), "after drop")


def dies_at(step: int) -> Callable[[int, str], None]:
    """The worker dies at a step."""

    def happens(number: int, what: str) -> None:
        if number == step:
            raise Crash(f"{what}, step {number}")

    return happens


def away_for(steps: int) -> Callable[[int, str], None]:
    """The store does not answer at first."""

    def happens(number: int, what: str) -> None:
        if number <= steps and what.startswith("before"):
            raise ServerUnavailable("the store is away")

    return happens


def _key(dataset: str, name: bytes) -> bytes:
    return f"{dataset}/{name.hex()}".encode()
