"""A replica takes the place of a primary that is away, and workers behind Sentinels go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import StoreUnavailable
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import State, StateTable
from stream_dp.state.view import ViewChange
from tests.faults.replicas import Replicas

pytestmark = pytest.mark.slow


@pytest.fixture
def replicas(tmp_path: Path, needed: Callable[..., Any]) -> Iterator[Replicas]:
    """A primary, its replica and a Sentinel of this test's own."""
    made = Replicas(tmp_path / "replicas")
    with needed():
        made.__enter__()
    yield made
    made.stop()


def _view(url: str) -> RedisView:
    return RedisView(url, prefix="stream-dp", journal="journal")


async def test_a_view_follows_the_sentinels_to_the_new_primary(replicas: Replicas) -> None:
    view, state = _view(replicas.url), State("flights")
    try:
        await view.rewrite(state)
        await view.keep("flights", {b"early": b"first"}, (0, state.trail))
        await asyncio.to_thread(replicas.wait_in_sync)
        await asyncio.to_thread(replicas.promote)
        commit = state.drafted({(StateTable.FACT, b"a"): b"b"})
        _, trail = commit.to_bytes()
        state.apply(commit, trail)
        change = ViewChange(commit, trail, {b"late": b"second"})
        assert await patiently(lambda: view.apply([change]), "putting it") == set()
        assert await view.state("flights") == state
        kept = await view.kept("flights", [b"early", b"late"])
        assert kept == [None, b"second"], "what was there before its first commit is not its own"
    finally:
        await view.close()


async def test_a_replica_that_a_sentinel_takes_for_the_primary_takes_no_writes(
    replicas: Replicas,
) -> None:
    """Sentinels may be out of date. What is read there may be older, as anything that Redis has."""
    view = _view(replicas.misname("wrong"))
    try:
        with pytest.raises(StoreUnavailable):
            await view.rewrite(State("flights"))
        assert await view.state("flights") is None
    finally:
        await view.close()


async def test_a_sentinel_that_is_away_does_not_matter_while_another_answers(
    replicas: Replicas,
) -> None:
    away = "redis+sentinel://127.0.0.1:1,"
    view = _view(replicas.url.replace("redis+sentinel://", away))
    alone = _view(f"{away.removesuffix(',')}/store")
    try:
        assert (await view.usage()).memory > 0
        with pytest.raises(StoreUnavailable):
            await alone.usage()
    finally:
        await view.close()
        await alone.close()
