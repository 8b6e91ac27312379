"""What is durable as this release leaves it, which every later release must go on from.

``tests/golden/state`` holds a small run of every profile and kind of query, cut short by a crash: all records
of the topics, of the journal and of the topic of blocks, and what a worker sent that went on from there. The
journal has rounds of checkpoints and was shortened.

To make it again, run ``FREEZE=1 pytest tests/pipeline/test_frozen_state.py``. Do so only before the first
release: from then on somebody has such a journal.
"""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.audit import verify
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.entries import Kind
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state import ledger
from stream_dp.state.schema import StateTable
from tests.noise import FakeNoise
from tests.pipeline.flights import AA, EVERY_KIND, FLOWN, VERY_LATE
from tests.pipeline.trail import Sent as OnTrail

GOLDEN = Path(__file__).parents[1] / "golden/state"
FREEZE = bool(os.environ.get("FREEZE"))
ROUNDS = Often(n_bytes=400_000, per_id=1)
"""Rounds of checkpoints as often as a short run needs them."""

Sent = list[Outgoing]


class FixedNoise(FakeNoise):
    """Draws that depend on their scale alone, so that they come out the same in whatever order looks are.

    Uniform ones go on where the last ones ended, for samplers draw them until they like what they see.
    """

    def __init__(self) -> None:
        self._random = random.Random(1)

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        spread = float(sigma) * math.sqrt(3.0)
        return np.array(
            [round((2 * u - 1) * spread) for u in self._uniform("gaussian", sigma, size)]
        )

    def laplace(self, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
        spread = float(scale) * math.sqrt(6.0)
        return np.array(
            [round((2 * u - 1) * spread) for u in self._uniform("laplace", scale, size)]
        )

    def geometric_half(self, limit: int) -> int:
        return min(limit, 1)

    def uniform(self, limit: int, size: int) -> npt.NDArray[np.int64]:
        return np.array([int(self._random.random() * limit) for _ in range(size)], dtype=np.int64)

    @staticmethod
    def _uniform(kind: str, scale: Fraction, size: int) -> list[float]:
        draw = random.Random(f"{kind} {scale}").random
        return [draw() for _ in range(size)]


# ---------------------------------------------------------------- what happened

EARLY = {"attribute": "delay", "lt": 10}
PURE = {"epsilon": 1.0, "delta": 0}
LARGE = {"epsilon": 20.0, "delta": 1e-6}

KINDS = {**EVERY_KIND, "between": {"share": 0.1, "answers": 3}}

PREDICATES: list[dict[str, Any]] = [
    {"where": AA},
    {"where": FLOWN},
    {"where": {"all": [AA, FLOWN]}},
]
TABLES: list[dict[str, Any]] = [
    *PREDICATES,
    {"where": {"any": [AA, VERY_LATE]}},
    {"kind": "table", "group_by": ["carrier"]},
    {"kind": "table", "group_by": ["carrier", "delay"], "where": FLOWN},
    {"kind": "sum", "attribute": "delay", "where": AA, "count_rows": True},
    {"kind": "sum", "attribute": "delay", "group_by": ["cancelled"]},
    {"where": {"attribute": "delay", "ge": 7}},  # cuts a bin
    {"kind": "quantile", "attribute": "delay", "rank": 0.75},
    {
        "kind": "quantile",
        "attribute": "delay",
        "rank": 0.5,
        "group_by": ["carrier"],
        "where": FLOWN,
    },
]
QUERIES: list[dict[str, Any]] = [
    {"kind": "threshold", "attribute": "delay", "where": VERY_LATE},
    {"kind": "threshold", "attribute": "delay"},
    {"kind": "median", "attribute": "delay"},
    {"kind": "mode", "attribute": "cancelled"},
    {"kind": "prefix_batch", "attribute": "delay", "wheres": [EARLY, VERY_LATE]},
    {"kind": "correlated_vector", "attribute": "cancelled"},
    {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
    {"kind": "interior_point", "attribute": "delay", "where": EARLY},
    {"kind": "adaptive_threshold", "attribute": "delay", "where": EARLY},
    {"where": AA},
]
LATER = {"where": {"any": [AA, FLOWN]}}


def _papers(representation: str, *, doubling: bool = False, **mechanism: Any) -> dict[str, Any]:
    settings = {"representation": representation, "doubling": doubling, "hypothesis_rows": 3}
    return {"mechanism": {**mechanism, **settings}}


MEDIAN: dict[str, Any] = {"profile": "median", "queries": 6}
SEQUENTIAL: dict[str, Any] = {"profile": "sequential", "queries_per_phase": 6, "phases": 3}
MEMORY: dict[str, Any] = {"profile": "memory", "queries_per_phase": 10, "phases": 3}

UNIT = {"key": "user_id", "rows_per_phase": 2, "phases": 2, "lifetime": True}

DATASETS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "calibrated": (
        {
            "mechanism": {"profile": "calibrated", "base_share": 0},
            "accuracy": {"error": 0.01},
            "synthetic_rows": 20,
        },
        TABLES,
    ),
    "kinds": ({"kinds": KINDS, "privacy": LARGE}, QUERIES),
    "partition": ({"kinds": {"threshold": {"share": 0.1, "partition": True}}}, QUERIES[:2]),
    "gated": ({"mechanism": {"profile": "gated", "segments": 20}}, PREDICATES),
    "counts": ({"mechanism": {"profile": "counts"}}, PREDICATES),
    "counts-pure": ({"mechanism": {"profile": "counts"}, "privacy": PURE}, PREDICATES),
    "whole-table": ({"mechanism": {"profile": "whole_table"}}, PREDICATES),
    "weights": ({"mechanism": {"profile": "weights"}}, PREDICATES),
    "weights-fixed": ({"mechanism": {"profile": "weights", "growing": False}}, PREDICATES),
    "bypass": ({"mechanism": {"profile": "bypass"}}, PREDICATES),
    "median": (_papers("exhaustive", **MEDIAN), PREDICATES),
    "median-polytope": (_papers("polytope", **MEDIAN), PREDICATES),
    "median-doubling": (_papers("entropic", doubling=True, **MEDIAN), PREDICATES),
    "sequential": (_papers("entropic", **SEQUENTIAL), PREDICATES),
    "sequential-doubling": (_papers("entropic", doubling=True, **SEQUENTIAL), PREDICATES),
    "memory": (_papers("exhaustive", **MEMORY), PREDICATES),
    "memory-doubling": (_papers("entropic", doubling=True, **MEMORY), PREDICATES),
    "persons": (
        {
            "mechanism": {"base_share": 0.0},
            "accuracy": {"error": 0.3},
            "privacy": {"epsilon": 4.0, "delta": 1e-9, "unit": UNIT},
            "phase": {"min_rows": 60},  # so few are not merged
        },
        PREDICATES,
    ),
    "retired": ({}, PREDICATES[:1]),
}
PAPERS = [name for name in DATASETS if name.startswith(("median", "sequential", "memory"))]
OF_ONE_PHASE = {name for name in DATASETS if name.startswith("median")} | {"weights-fixed"}
SAMPLED = {"median-polytope"}
"""Their answers come from a sample, which depends on the machine and on the release of numpy."""
RANDOM = {"nonce", "prev"}
"""What entries of the ledger have that is drawn anew, and what follows from it."""


def _define(world: Any) -> None:
    for name, (changes, _) in DATASETS.items():
        if name in PAPERS:
            world.define_papers(name, **changes["mechanism"])
        else:
            world.define(name, **changes)


def _rows(world: Any, number: int, names: Iterable[str] = DATASETS) -> None:
    """A batch that opens a phase."""
    for name in names:
        if name in PAPERS:
            pairs = (("AA", False), ("AA", True), ("UA", False))
            cells = [{"carrier": c, "cancelled": x, "count": 10**13} for c, x in pairs]
            world.batch(name, f"batch-{number}", cells=cells)
        elif name == "kinds":  # it answers row by row, so each row is an entry of its own
            columns = {
                "carrier": ["AA", "UA", "AA"] * 7_000,
                "delay": [5, 45, 20] * 7_000,
                "cancelled": [False, True, False] * 7_000,
            }
            world.batch(name, f"batch-{number}", columns=columns)
        elif name == "persons":
            some = [(("AA", "UA")[n % 2], 10 * (n % 5), f"p{n * number % 25}") for n in range(60)]
            rows = [{"carrier": c, "delay": d, "user_id": who} for c, d, who in some]
            world.batch(name, f"batch-{number}", rows=rows)
        else:
            world.cells(name, f"batch-{number}", n=100)


def _ask(world: Any, number: int, names: Iterable[str] = DATASETS) -> None:
    for name in names:
        for at, query in enumerate(DATASETS[name][1]):
            if not (at == 0 and number == 3):  # one is left for those who go on
                world.ask(name, f"{number}-{at}", **query)


def _few(world: Any, batch_id: str) -> None:
    """Rows that wait, in each form."""
    row = {"carrier": "AA", "delay": None, "cancelled": True}
    world.batch("calibrated", batch_id, rows=[row, {"carrier": "ZZ", "delay": 12}])
    world.batch("kinds", batch_id, columns={name: [value] for name, value in row.items()})
    world.batch("counts", batch_id, cells=[{**row, "count": 77}])
    world.batch("persons", batch_id, rows=[row | {"user_id": "ana"}] * 3)


async def _apart(world: Any, batch_id: str) -> None:
    """Rows that wait, and are kept by themselves since they have waited for long."""
    process = await world.owner(batches_last_s=-1e12)
    _few(world, batch_id)
    await process.run()
    await process.worker.tidy()
    await process.drained()
    await process.settled()
    await process.kill()


def _waiting(world: Any) -> None:
    """Rows that wait, a record that is refused, and a data set that is retired."""
    _few(world, "waits")
    world.produce("queries", b"not JSON", key="kinds")
    world.produce("datasets", None, key="retired")


def _interrupted(world: Any) -> None:
    world.ask("kinds", "interrupted", kind="between", where=VERY_LATE, low=0.1, high=0.7)


def _of(world: Any, *, since: int = 0) -> Sent:
    """What the workers of a world have sent since some place of its trail."""
    return [one.outgoing for one in world.trail[since:] if isinstance(one, OnTrail)]


async def _live(world: Any) -> None:
    """What happened before the state was frozen."""
    world.often = ROUNDS
    world.make_noise = lambda _: FixedNoise()
    await world.run(rounds=[_define, lambda w: _rows(w, 1), lambda w: _ask(w, 1)])
    await _apart(world, "early")
    await world.run(rounds=[lambda w: _rows(w, 2), lambda w: _ask(w, 2)])
    await _apart(world, "apart")
    await world.run(rounds=[_waiting])
    _interrupted(world)
    fuse = world.Fuse(0, CrashPoint.AFTER_CHARGE)
    process = await world.owner(fuse)
    with contextlib.suppress(world.Crash, Exception):  # or what its other half says when it is gone
        await process.run()
    await process.kill()
    assert fuse.met == 1


async def _go_on(world: Any) -> dict[str, Sent]:
    """What a worker sends that takes over: at once, to the same queries, to new ones, after rows."""
    alive = [name for name in DATASETS if name != "retired"]
    asked = {role: list(records) for role, records in world.log.items() if "queries" in role}

    def again(world: Any) -> None:
        for records in asked.values():
            for record in records:
                world.produce("queries", record.value, key=record.key)

    def new(world: Any) -> None:
        for name in alive:
            world.ask(name, "new", **LATER)

    world.often, world.make_noise = Often(), lambda _: FixedNoise()
    process = await world.owner()
    stages = {
        "taken over": lambda _: None,
        "again": again,
        "new": new,
        "rows": lambda w: _rows(w, 3, alive),
        "after rows": lambda w: _ask(w, 3, alive),
    }
    found = {}
    for stage, produce in stages.items():
        since = len(world.trail)
        produce(world)
        await process.run()
        found[stage] = _of(world, since=since)
    await process.kill()
    return found


# ---------------------------------------------------------------- files


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: Any) -> Any:
    return None if text is None else base64.b64decode(text)


def _write(name: str, lines: Iterable[Any]) -> None:
    GOLDEN.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (GOLDEN / f"{name}.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def _read(name: str) -> Iterator[Any]:
    text = lzma.decompress((GOLDEN / f"{name}.jsonl.xz").read_bytes())
    return map(json.loads, text.splitlines())


def _sent_line(stage: str, one: Outgoing) -> dict[str, Any]:
    headers = [[name, _text(value)] for name, value in one.headers]
    return {
        "stage": stage,
        "role": one.role,
        "key": one.key,
        "headers": headers,
        "value": _text(one.value),
    }


def _frozen_sent() -> dict[str, Sent]:
    found: dict[str, Sent] = defaultdict(list)
    for line in _read("sent"):
        headers = tuple((name, _bytes(value)) for name, value in line["headers"])
        found[line["stage"]].append(
            Outgoing(line["role"], line["key"], _bytes(line["value"]), headers)
        )
    return found


def _entry_line(partition: int, is_there: bool, entry: LogEntry) -> dict[str, Any]:
    """An entry of the journal. No worker sees those that were deleted; the tests add them up."""
    return {
        "partition": partition,
        "is_there": is_there,
        "key": _text(entry.key),
        "value": _text(entry.value),
        "headers": [[name, _text(value)] for name, value in entry.headers],
    }


def _journal() -> Iterator[tuple[int, bool, LogEntry]]:
    for line in _read("journal"):
        headers = tuple((name, _bytes(value)) for name, value in line["headers"])
        entry = LogEntry(_bytes(line["key"]), _bytes(line["value"]), headers)
        yield line["partition"], line["is_there"], entry


def _load(world: Any) -> None:
    """What the frozen run has left, without Redis."""
    for partition, is_there, entry in _journal():
        world.journal[partition].append(entry)
        world.forgotten[partition] += not is_there
    for line in _read("kept"):
        key, parts = _bytes(line["key"]), tuple(map(_bytes, line["parts"]))
        world.kept_log.append((key, parts))
        if line["is_there"]:  # else it was dropped, or another one came after it
            world.kept[key] = parts
    for line in _read("log"):
        world.produce(
            line["role"],
            _bytes(line["value"]),
            key=_bytes(line["key"]),
            partition=line["partition"],
        )
    world.trail += [OnTrail(0, outgoing) for outgoing in _frozen_sent()["before"]]


@pytest.mark.skipif(not FREEZE, reason="the state is frozen")
async def test_freeze(world: Any) -> None:
    await _live(world)
    _write(
        "journal",
        (
            _entry_line(partition, at >= world.forgotten[partition], entry)
            for partition, entries in enumerate(world.journal)
            for at, entry in enumerate(entries)
        ),
    )
    kept = (
        {"key": _text(key), "parts": [*map(_text, parts)], "is_there": True}
        if world.kept.get(key) is parts
        else {"key": _text(key), "parts": [""] * len(parts), "is_there": False}
        for key, parts in world.kept_log
    )
    _write("kept", kept)
    records = [record for place in world.log.values() for record in place]
    _write(
        "log",
        (
            {
                "role": record.role,
                "partition": record.partition,
                "key": _text(record.key),
                "value": _text(record.value),
            }
            for record in records
        ),
    )
    stages = {"before": _of(world)}
    # Those who go on find no Redis, as later releases do.
    world.view = type(world.view)()
    stages |= await _go_on(world)
    _write("sent", (_sent_line(stage, one) for stage, some in stages.items() for one in some))


# ---------------------------------------------------------------- later releases


def _known(sent: Sent, role: str) -> list[dict[str, Any]]:
    return [json.loads(one.value) for one in sent if one.role == role and one.value]


def _by_id(sent: Sent) -> dict[tuple[str, str], bytes]:
    """Answers by data set and id."""
    replies = [(json.loads(one.value), one.value) for one in sent if one.role == "answers"]
    return {(reply["dataset"], reply["query_id"]): value for reply, value in replies}


def _entries(sent: Sent, name: str) -> list[bytes]:
    return [one.value for one in sent if one.role == "ledger" and one.key == name]


def _says(now: Any, frozen: Any) -> bool:
    """Whether all that was said is said still; there may be more fields."""
    if isinstance(frozen, dict):
        return isinstance(now, dict) and all(
            key in now and (key in RANDOM or _says(now[key], value))
            for key, value in frozen.items()
        )
    if isinstance(frozen, list):
        return isinstance(now, list) and len(now) == len(frozen) and all(map(_says, now, frozen))
    if isinstance(frozen, float) and isinstance(now, int | float):
        return math.isclose(now, frozen, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(frozen, int) and not isinstance(frozen, bool) and isinstance(now, int):
        # An estimate of 1e13 rows is rounded from a float, and processors differ in its last bits.
        return abs(now - frozen) <= 1e-12 * abs(frozen)
    return bool(now == frozen)


@pytest.mark.skipif(FREEZE, reason="it is being frozen")
async def test_a_worker_goes_on_from_the_frozen_state(world: Any) -> None:
    frozen = _frozen_sent()
    _load(world)
    before_it = {name: _entries(frozen["before"], name) for name in DATASETS}
    found = await _go_on(world)

    before = _by_id(frozen["before"])
    again = _by_id(found["again"])
    interrupted = _by_id(found["taken over"])
    assert again == before | interrupted, "every answer comes back, byte for byte"
    assert set(interrupted) == {("kinds", "interrupted")}
    assert {one.role for one in found["again"]} == {"answers", "rejected"}, "and nothing is charged"
    assert not any(map(_rejected_id, found["again"]))

    for stage in ("taken over", "new", "rows", "after rows"):
        for role in ("answers", "events", "ledger", "rejected"):
            for name in DATASETS.keys() - SAMPLED:
                expected = _known([one for one in frozen[stage] if one.key == name], role)
                now = _known([one for one in found[stage] if one.key == name], role)
                assert len(now) == len(expected), (stage, role, name)
                for one, other in zip(now, expected, strict=True):
                    assert _says(one, other), (stage, role, name)
    opened = {
        event["dataset"]
        for event in _known(found["rows"], "events")
        if event["event"] == "phase_opened"
    }
    assert opened == DATASETS.keys() - {"retired", *OF_ONE_PHASE}

    durable = world.durable()
    for name in DATASETS:
        published = [entry for stage in found for entry in _entries(found[stage], name)]
        # What may not have left before the crash leaves again.
        known = before_it[name]
        whole = known + [entry for entry in published if entry not in known]
        ledger.Chain(name, whole)
        report = verify(name, whole)
        assert (report.faults, report.notes) == ([], [])
        assert [block.spent for block in report.blocks] == list(durable[name].spent)
        assert not durable[name].pairs.get((StateTable.INTENT, b"0"))


def _rejected_id(one: Outgoing) -> bool:
    """Whether an id was taken for that of another request."""
    return one.role == "rejected" and json.loads(one.value)["reason"]["code"] == "id_reused"


def test_the_frozen_state_has_something_of_everything(world: Any) -> None:
    there = [entry for _, is_there, entry in _journal() if is_there]
    kinds = {dict(entry.headers)["kind"].decode() for entry in there}
    assert kinds == {*get_args(Kind)} - {"restart", "fill"}
    assert len(there) < sum(1 for _ in _journal()), "it was shortened"
    _load(world)
    tables: dict[StateTable, set[str]] = defaultdict(set)
    kept: dict[str, set[str]] = defaultdict(set)
    for name, held in world.durable().items():
        for table, key in held.pairs:
            tables[table].add(name)
            if table is StateTable.KEPT:
                kept[key.decode().partition(" ")[0]].add(name)
    alive = DATASETS.keys() - {"retired"}
    assert tables[StateTable.DEFINITION] >= alive
    for table in (StateTable.FACT, StateTable.CURSOR, StateTable.SPENT):
        assert tables[table] == DATASETS.keys(), table
    assert tables[StateTable.TRANSCRIPT] == kept["block"] == alive
    few = {"calibrated", "kinds", "counts", "persons"}
    assert tables[StateTable.WAITING] >= few
    assert kept["waiting"] >= few | OF_ONE_PHASE, "and some are kept by themselves"
    assert kept["ordered"] == kept["arrived"] == {"kinds"}
    for what in ("person", "used", "whose", "weight"):
        assert kept[what] == {"persons"}, what
    assert tables[StateTable.VERIFIED] >= {"calibrated", "kinds"}
    assert tables[StateTable.INTENT] == kept["run"] == {"kinds"}
    asked, answered = set(), set()
    for value in _by_id(_frozen_sent()["before"]).values():
        reply = json.loads(value)
        number, _, at = reply["query_id"].partition("-")
        kind = DATASETS[reply["dataset"]][1][int(at)].get("kind", "predicate")
        asked.add(kind)
        if (number, reply["status"]) == ("2", "answered"):
            answered.add(kind)
    assert answered == asked
    assert asked == {"predicate", "table", "sum", "quantile", *KINDS}
    size = sum(file.stat().st_size for file in GOLDEN.iterdir())
    assert size < 450_000
