"""Slabs in a bucket of a real S3 server, which is killed at every step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.errors import ServerUnavailable
from stream_dp.pipeline.rows.slab_files import SlabFiles, SlabPlace
from stream_dp.state.private_names import name_of, new_salt
from tests.pipeline import scenarios
from tests.pipeline.durable import differences
from tests.pipeline.s3_server import CREDENTIALS, S3Server, gateway
from tests.pipeline.world import World
from tests.pipeline.world_files import WorldFiles

pytestmark = [pytest.mark.slow]

KEY = bytes(range(32))


@pytest.fixture
def bucket(
    needed: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Server]:
    with needed():
        gateway()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = S3Server(tmp_path / "server")
    yield server
    server.kill()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_a_slab_of_a_million_rows_is_read_by_column(bucket: S3Server, key: bytes | None) -> None:
    files = SlabFiles.opened(SlabPlace(bucket.url, key))
    rng = np.random.default_rng(1)
    columns = {str(a): rng.integers(0, 4, 2**20).astype(np.uint8) for a in range(9)}
    parts = Slab(2**20, 2**20, columns).stored(new_salt())
    name = name_of(parts[0])
    files.put("flights", name, parts)
    first, second, ninth = files.parts("flights", name, [0, 2, 9])
    assert first is not None
    index = SlabIndex.from_bytes(bytes(first))
    assert second is not None
    assert ninth is not None
    assert index.has(2, second)
    assert index.has(9, ninth)
    assert np.array_equal(index.column(9, ninth), columns["8"])
    assert files.names("flights") == {name}
    assert files.parts("flights", bytes(16), [0]) == [None]
    files.drop("flights", name)
    files.drop("flights", name)
    assert files.names("flights") == set()
    assert SlabFiles.opened(SlabPlace(bucket.url, key)).has(files.id)


def test_rights_that_are_missing_are_said_without_the_secret(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    with pytest.raises(ServerUnavailable) as refused:
        SlabFiles.opened(SlabPlace(bucket.url))
    assert "hidden" not in str(refused.value)
    assert refused.value.__context__ is None or refused.value.__suppress_context__


async def test_a_server_that_is_killed_at_any_step_loses_and_spoils_nothing(
    make_world: Callable[..., World], bucket: S3Server
) -> None:
    world = make_world()
    files = WorldFiles.at(world, bucket.url)
    kills = itertools.count(1)

    def happens(step: int, what: str) -> None:
        del step, what
        next(kills)
        bucket.kill(again_after_s=0.2)

    files.happens = happens
    await world.lives(*scenarios.ERASED, goodbye=True, files=files)
    assert next(kills) > 10
    files.happens = lambda *_: None
    world.rules = {**world.rules, "files": files}
    assert world.complaints() == []
    assert await differences(world) == []
    for held in world.durable().values():
        assert files.names(held.name) == {one.name for one in held.named().values() if one.store}
