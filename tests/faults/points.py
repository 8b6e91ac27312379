"""Deaths at points that no data set of the soak meets: where persons are protected for life, and in erasures.

They are tried in one process, and the referee of the simulator reads the end.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.scenarios import ERASED, LIVES
from tests.pipeline.world import World

IN_ONE_PROCESS: Final = {
    CrashPoint.BEFORE_KEEP: LIVES,
    CrashPoint.AFTER_KEEP: LIVES,
    CrashPoint.IN_ERASURE: ERASED,
}
"""The points, and what is lived through there."""


def trial(point: CrashPoint, seed: int) -> list[str]:
    """Dies at such a point, goes on, and returns what is wrong in the end."""
    return asyncio.run(_trial(point, seed))


async def _trial(point: CrashPoint, seed: int) -> list[str]:
    choice = random.Random(seed)
    group, lagging = choice.choice((1, 3, 5)), choice.random() < 0.3
    n_met = await _times_met(point, seed, group, lagging=lagging)
    if not n_met:
        return [f"{point} is not met"]
    # Threads and tasks take turns as they like, so another run may meet it less often.
    for place in (choice.randrange(n_met), 0):
        world = _world(seed, group, lagging=lagging)
        if await world.run(World.Fuse(place, point), rounds=IN_ONE_PROCESS[point]):
            return world.complaints()
    return ["it has not died"]


async def _times_met(point: CrashPoint, seed: int, group: int, *, lagging: bool) -> int:
    fuse = World.Fuse(10**9, point)
    await _world(seed, group, lagging=lagging).run(fuse, rounds=IN_ONE_PROCESS[point])
    return fuse.met


def _world(seed: int, group: int, *, lagging: bool) -> World:
    world = World(seed=seed)
    world.group, world.lagging = group, lagging
    return world
