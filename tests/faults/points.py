"""Deaths at the points that only data sets meet whose persons are protected for life.

They are tried in one process. Where persons reserve, a worker dies over a store in memory, and the referee of
the simulator reads the end. Erasure is in several steps on a real server alone, so there it is a real one.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import redis

from stream_dp.core.persons import DIGEST_BYTES
from stream_dp.embedded import ports
from stream_dp.pipeline import reserving
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import Reservation
from tests.contracts.conftest import Owner
from tests.faults.replicas import Node
from tests.pipeline.crash import Crash
from tests.pipeline.scenarios import LIVES
from tests.pipeline.world import World

__all__ = ["OF_PERSONS", "trial"]

OF_PERSONS: Final = (
    CrashPoint.BEFORE_RESERVE,
    CrashPoint.AFTER_RESERVE,
    CrashPoint.IN_ERASURE,
)

_PERSONS = 9_000  # of which each is a key, and 4,000 are erased at once


def trial(point: CrashPoint, folder: Path, seed: int) -> list[str]:
    """Dies at such a point, goes on, and returns what is wrong in the end."""
    if point is CrashPoint.IN_ERASURE:
        return asyncio.run(_erased(folder / "persons", seed))
    return asyncio.run(_reserved(point, seed))


async def _reserved(point: CrashPoint, seed: int) -> list[str]:
    choice = random.Random(seed)
    group, lagging = choice.choice((1, 3, 5)), choice.random() < 0.3
    n_met = await _times_met(point, seed, group, lagging=lagging)
    # Threads and tasks take turns as they like, so another run may meet it less often.
    for place in (choice.randrange(n_met), 0):
        world = World(seed=seed)
        world.group, world.lagging = group, lagging
        if await world.run(World.Fuse(place, point), rounds=LIVES):
            return world.complaints()
    return ["it has not died"]


async def _times_met(point: CrashPoint, seed: int, group: int, *, lagging: bool) -> int:
    world = World(seed=seed)
    world.group, world.lagging = group, lagging
    fuse = World.Fuse(10**9, point)
    await world.run(fuse, rounds=LIVES)
    return fuse.met


async def _erased(folder: Path, seed: int) -> list[str]:
    """A retired data set forgets its persons; another one keeps its own."""
    choice = random.Random(seed)
    left = choice.randrange(1, 3)

    def dies(met: CrashPoint) -> None:
        nonlocal left
        left -= met is CrashPoint.IN_ERASURE
        if left == 0:
            raise Crash(met)

    with Node(folder, ports.choose("a store", None), {}) as node:
        store = RedisStore.from_url(node.url)
        for name in ("gone", "serves"):
            owner = Owner(store, await store.acquire(name))
            await owner.commit()
            await store.reserve(_reservation(name, owner.token, seed))
            if name == "gone":
                await owner.commit(erase=True)
                token = owner.token
        before = _keys(node, "serves")
        try:
            await reserving.forget(store, "gone", token, fuse=dies)
        except Crash:
            died = True
        else:
            died = False
        await store.close()
        said = [] if died else ["it has not died"]
        if not _keys(node, "gone"):
            said.append("everything was erased before it died")
        store = RedisStore.from_url(node.url)
        await reserving.forget(store, "gone", (await store.acquire("gone")).token)
        await store.close()
        if left := len(_keys(node, "gone")):
            said.append(f"{left} keys of persons are left")
        if _keys(node, "serves") != before or not before:
            said.append("persons of another data set were erased")
    shutil.rmtree(folder)
    return said


def _reservation(name: str, token: int, seed: int) -> Reservation:
    draw = np.random.default_rng(seed)
    return Reservation(
        dataset=name,
        token=token,
        phase=1,
        digests=draw.integers(0, 256, (_PERSONS, DIGEST_BYTES)).astype(np.uint8),
        before=np.zeros(_PERSONS, dtype=np.int64),
        rows=np.ones(_PERSONS, dtype=np.int64),
    )


def _keys(node: Node, name: str) -> dict[bytes, Any]:
    with redis.Redis.from_url(node.url) as client:
        keys = sorted(client.scan_iter(match=f"*:{name}*:persons:*", count=10_000))
        return {key: client.dump(key) for key in keys}
