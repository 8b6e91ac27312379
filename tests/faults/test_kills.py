"""kill -9 at every named point of a real worker: the next goes on; nothing is lost, doubled or redrawn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stream_dp.pipeline.watch.crash_points import CrashPoint

pytestmark = pytest.mark.kafka

# At which occurrence: late enough that the worker has a past.
POINTS = {
    CrashPoint.AFTER_FETCH: 7,
    CrashPoint.AFTER_DECODE: 8,
    CrashPoint.BEFORE_KEEP: 2,
    CrashPoint.AFTER_KEEP: 3,
    CrashPoint.BEFORE_CHARGE: 5,
    CrashPoint.AFTER_CHARGE: 4,
    CrashPoint.AFTER_LOOK: 3,
    CrashPoint.IN_PHASE: 2,
    CrashPoint.BEFORE_COMMIT: 12,
    CrashPoint.AFTER_COMMIT: 12,
    CrashPoint.BEFORE_APPEND: 19,
    CrashPoint.AFTER_APPEND: 19,
    CrashPoint.BEFORE_SEND: 8,
    CrashPoint.AFTER_SEND: 7,
    CrashPoint.AFTER_RELEASE: 8,
    CrashPoint.AFTER_MARK: 4,
    CrashPoint.BEFORE_CHECKPOINT: 1,
    CrashPoint.AFTER_CHECKPOINT: 2,
    CrashPoint.BEFORE_TRUNCATION: 1,
    CrashPoint.AFTER_TRUNCATION: 1,
}
ELSEWHERE = {CrashPoint.IN_ERASURE, CrashPoint.IN_SWEEP}
"""See ``test_persons_under_kills`` and ``test_sweeps_under_kills``."""
CHAINS = 2
"""Lives that are lived at once; in each, one worker after the other dies, every one at another point."""
ROUND_BYTES = 100_000
"""Some phases long."""


def test_every_point_is_tried() -> None:
    assert set(POINTS) | ELSEWHERE == set(CrashPoint)


def _survives(life: Any, points: list[CrashPoint]) -> list[str]:
    """Lives on while one worker after the other dies; a fixed name gives the next its partitions at once."""

    def start(**more: str) -> Any:
        return life.deployment.worker(instance_id="one", round_bytes=ROUND_BYTES, **more)

    workers = [start(crash_at=f"{points[0]}:{POINTS[points[0]]}")]

    def replace() -> None:
        for n, point in enumerate(points, start=1):
            assert workers[-1].wait() == -9, f"{point}: {workers[-1].output}"
            then = {"crash_at": f"{points[n]}:{POINTS[points[n]]}"} if n < len(points) else {}
            workers.append(start(**then))

    watching = threading.Thread(target=replace)
    watching.start()
    with life.deployment.client() as client:
        life.define(client)
        while life.phases < 2 or watching.is_alive():
            life.phase(client)
        life.phase(client, 1)
    assert len(workers) == len(points) + 1, workers[-1].output
    life.wait_until_released(workers[-1])
    life.wait_until_followed(workers[-1])
    workers[-1].kill()
    said: list[str] = life.complaints()
    return said


@pytest.mark.slow
def test_a_kill_at_any_point_breaks_no_promise(
    make_deployment: Callable[..., Any], make_life: Callable[..., Any]
) -> None:
    chains = [list(POINTS)[n::CHAINS] for n in range(CHAINS)]
    of = {"retention": {"answers": {"days": 30}}}
    lives = [make_life(make_deployment(), ["flights", "trains"], **of) for _ in chains]
    with ThreadPoolExecutor(CHAINS) as pool:
        said = list(pool.map(_survives, lives, chains))
    assert [complaint for complaints in said for complaint in complaints] == []
