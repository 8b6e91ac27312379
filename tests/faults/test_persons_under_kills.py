"""kill -9 while persons are protected for life: the same blocks, and no unit is lost or used twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis

from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.person_slots import Persons, PersonSecret
from stream_dp.core.rows.slabs import Slab
from stream_dp.messages import Definition
from stream_dp.pipeline.rows.person_allowance import Used
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.profiles.builder import build
from stream_dp.state.private_names import unsalted
from tests.durable import keys_on_blocks
from tests.pipeline.referee.persons import counted_row_by_row
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

NAME = "visits"
DEFINITION = {
    "version": 1,
    "dataset": NAME,
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
        {"name": "age", "type": "number", "edges": [18, 30, 65], "integer": True},
    ],
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-9,
        "unit": {"key": "user_id", "rows_per_phase": 3, "phases": 2, "lifetime": True},
    },
    "accuracy": {"error": 0.2, "failure_probability": 0.01},
    "phase": {"min_rows": 3_000},
}
Q = 2 * 3**2

# At which occurrence: each worker has at least one phase of its own.
DEATHS = {
    CrashPoint.BEFORE_KEEP: 2,
    CrashPoint.AFTER_KEEP: 2,
    CrashPoint.BEFORE_COMMIT: 6,
    CrashPoint.AFTER_LOOK: 2,
    CrashPoint.IN_PHASE: 2,
    CrashPoint.AFTER_CHARGE: 2,
}


def _columns(number: int) -> dict[str, list[Any]]:
    """Some come in every batch and often, others once in a while, and some rows are nobody's."""
    rng = np.random.default_rng(number)
    persons = (rng.zipf(1.4, 12_000) % 2_000).tolist()
    return {
        "city": rng.choice(["Bonn", "Graz", "Lyon"], 12_000).tolist(),
        "age": rng.integers(0, 90, 12_000).tolist(),
        "user_id": [None if person == 0 else f"u{person}" for person in persons],
    }


def _live(client: Any, number: int) -> None:
    client.send(NAME, columns=_columns(number), batch_id=f"batch-{number}", timeout_s=PATIENCE_S)
    for n, query in enumerate(("city = 'Bonn'", "age >= 30", "city = 'Graz' AND age < 30")):
        client.ask(NAME, query, query_id=f"{number}-{n}", timeout_s=PATIENCE_S)


def _kept(deployment: Any) -> tuple[list[list[Slab]], bytes, Counter[bytes]]:
    """What is kept: the slabs of each block, the secret, and the units of each person."""
    private = deployment.private(NAME)
    slabs = {what: Slab.of_stored(value) for what, value in private.items() if what != "person"}
    blocks: dict[int, list[Slab]] = {}
    used: Counter[bytes] = Counter()
    for what, slab in slabs.items():
        kind, number, *_ = what.split(" ")
        if kind == "block":
            blocks.setdefault(int(number), []).append(slab)
        elif kind == "used":
            some = Used.of_slabs([slab])
            for key, units in zip(some.keys.view((np.uint8, 12)), some.units, strict=True):
                used[key.tobytes()] += int(units)
    (secret,) = private["person"]
    return [slabs for _, slabs in sorted(blocks.items())], unsalted(secret), used


def _nothing_is_left(deployment: Any) -> bool:
    """Whether neither the topic of blocks nor Redis has anything private of the data set."""
    with redis.Redis.from_url(deployment.redis_url) as client:
        pattern = f"{{{deployment.prefix.rstrip('.')}:*:{NAME}}}:kept"
        in_redis = list(client.scan_iter(match=pattern, count=10_000))
    on_topic = keys_on_blocks(deployment.bootstrap_servers, deployment.topics, NAME)
    return not in_redis and not on_topic


def _complaints(
    blocks: list[list[Slab]], secret: bytes, used: Counter[bytes], phases: int
) -> list[str]:
    """What is wrong with what is kept, by the batches that were sent, row by row."""
    definition = Definition.read(DEFINITION)
    unit, (universe, _) = definition.privacy.unit, build(definition)
    assert unit is not None
    value = PersonSecret.from_bytes(secret, NAME, None).value
    wanted: list[list[list[int]]] = []
    counted: Counter[bytes] = Counter()
    for number in range(1, phases + 1):
        persons = Persons(unit.key, value, f"batch-{number}")
        rows = universe.encode_columns(_columns(number), persons)
        marks = counted_row_by_row(rows, unit, counted)
        table = np.zeros(universe.shape, int)
        np.add.at(table, rows.codes, marks)
        wanted.append(table.tolist())
    said = []
    data = Blocks(universe, [Block(sum(s.n_rows for s in slabs), tuple(slabs)) for slabs in blocks])
    if data.marginal((0, 1), range(len(blocks))).tolist() != wanted:
        said.append(f"{len(blocks)} blocks are other ones than the {len(wanted)} of the batches")
    if used != counted:
        said.append(f"{sum(used.values())} units are kept, and {sum(counted.values())} were used")
    if max(used.values()) != Q:
        said.append(f"somebody could use {Q} units, and the most were {max(used.values())}")
    return said


@pytest.mark.slow
def test_no_unit_is_lost_and_no_block_is_another_one(make_deployment: Callable[..., Any]) -> None:
    deployment = make_deployment()
    points = list(DEATHS)
    workers = [deployment.worker(crash_at=f"{points[0]}:{DEATHS[points[0]]}", instance_id="one")]

    def replace() -> None:
        for n, point in enumerate(points, start=1):
            assert workers[-1].wait() == -9, f"{point}: {workers[-1].output}"
            then = points[n] if n < len(points) else None
            crash = {} if then is None else {"crash_at": f"{then}:{DEATHS[then]}"}
            workers.append(deployment.worker(instance_id="one", **crash))

    watching = threading.Thread(target=replace)
    watching.start()
    phases = 0
    with deployment.client() as client:
        client.define(DEFINITION, timeout_s=PATIENCE_S)
        while phases < 3 or watching.is_alive():
            phases += 1
            _live(client, phases)
        assert len(workers) == len(points) + 1, workers[-1].output
        blocks, secret, used = _kept(deployment)
        assert not _nothing_is_left(deployment)
        # What is private is erased, though a worker dies in the midst of it.
        workers[-1].kill()
        workers.append(deployment.worker(crash_at=f"{CrashPoint.IN_ERASURE}:1", instance_id="one"))
        replacing = threading.Thread(target=lambda: _follow(deployment, workers))
        replacing.start()
        client.retire(NAME, timeout_s=PATIENCE_S)
        replacing.join()
    workers[-1].until(lambda: _nothing_is_left(deployment))
    assert deployment.private(NAME) == {}
    assert _complaints(blocks, secret, used, phases) == []


def _follow(deployment: Any, workers: list[Any]) -> None:
    assert workers[-1].wait() == -9, workers[-1].output
    workers.append(deployment.worker(instance_id="one"))
