"""Two real workers: one dies, or sleeps longer than its session and wakes up; the other takes over."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.kafka

NAMES = ("flights", "trains", "buses", "ships")  # on both partitions


@pytest.mark.slow
def test_two_workers_share_and_the_other_takes_over_when_one_is_killed(
    deployment: Any, make_life: Callable[..., Any]
) -> None:
    life = make_life(deployment, NAMES)
    workers = [deployment.worker() for _ in range(2)]
    for worker in workers:
        worker.wait_ready()
    with deployment.client() as client:
        life.define(client)
        life.phase(client)
        shown = [worker.page("/metrics").count(b"stream_dp_phase{") for worker in workers]
        assert sum(shown) == len(NAMES)
        assert all(shown), "each has a partition"
        workers[0].kill()
        life.phase(client)
        life.phase(client, 1)
    life.wait_until_released(workers[1])
    assert workers[1].page("/metrics").count(b"stream_dp_phase{") == len(NAMES)
    assert workers[1].stop() == 0, workers[1].output
    assert life.complaints() == []


@pytest.mark.slow
def test_a_worker_that_sleeps_past_its_session_changes_nothing_when_it_wakes_up(
    deployment: Any, make_life: Callable[..., Any]
) -> None:
    life = make_life(deployment, NAMES)
    workers = [deployment.worker() for _ in range(2)]
    for worker in workers:
        worker.wait_ready()
    with deployment.client() as client:
        life.define(client)
        life.phase(client)
        workers[0].signal(signal.SIGSTOP)
        life.phase(client)  # waits until the other has taken over
        workers[0].signal(signal.SIGCONT)
        life.phase(client)
        life.phase(client, 1)
    life.wait_until_released(workers[1])
    # It joins again, or it notices that it was fenced and ends in words.
    code = workers[0].exit_code
    assert code in (None, 1), workers[0].output
    for worker in workers:
        worker.kill()
    assert life.complaints() == []


@pytest.mark.slow
def test_a_third_worker_joins_and_leaves_while_queries_are_asked(
    deployment: Any, make_life: Callable[..., Any]
) -> None:
    life = make_life(deployment, NAMES)
    staying = deployment.worker().wait_ready()
    with deployment.client() as client:
        life.define(client)
        life.phase(client)
        coming = deployment.worker()
        life.phase(client)
        coming.wait_ready()
        life.phase(client)
        assert coming.stop() == 0, coming.output
        life.phase(client)
    life.wait_until_released(staying)
    assert staying.stop() == 0, staying.output
    assert life.complaints() == []
