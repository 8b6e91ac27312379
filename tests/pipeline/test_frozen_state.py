"""A store as this release leaves it, which every later release must go on from.

``tests/golden/state`` holds a small run of every profile and kind of query, cut short by a crash: all keys
of the store, all records of the topics, of the journal and of the topic of blocks, and what a worker sent
that went on from there. The keys are written as types and contents, so that any server and the store in
memory can load them.

To make it again, run ``FREEZE=1 pytest tests/pipeline/test_frozen_state.py``. Do so only before the first
release: from then on somebody has such a store.
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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import redis

from stream_dp.audit import verify
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.records import Outgoing
from stream_dp.state import ledger
from stream_dp.state.local import LocalStore, _Dataset
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import Note
from tests.noise import FakeNoise

GOLDEN = Path(__file__).parents[1] / "golden/state"
FREEZE = bool(os.environ.get("FREEZE"))

Sent = list[Outgoing]
Content = Any
"""Of one key: a dictionary, a list or a set of bytes."""


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

AA = {"attribute": "carrier", "eq": "AA"}
SHORT = {"attribute": "cancelled", "eq": False}
EARLY = {"attribute": "delay", "lt": 10}
LATE = {"attribute": "delay", "ge": 30}
PURE = {"epsilon": 1.0, "delta": 0}
LARGE = {"epsilon": 20.0, "delta": 1e-6}

KINDS: dict[str, dict[str, Any]] = {
    "threshold": {"share": 0.1},
    "median": {"share": 0.05},
    "mode": {"share": 0.05},
    "prefix_batch": {"share": 0.05},
    "correlated_vector": {"share": 0.1, "attribute": "cancelled"},
    "between": {"share": 0.1, "answers": 3},
    "interior_point": {"share": 0.05, "points": 100},
    "adaptive_threshold": {"share": 0.05, "chunks": 4, "queries": 50},
}

PREDICATES: list[dict[str, Any]] = [
    {"where": AA},
    {"where": SHORT},
    {"where": {"all": [AA, SHORT]}},
]
TABLES: list[dict[str, Any]] = [
    *PREDICATES,
    {"where": {"any": [AA, LATE]}},
    {"kind": "table", "group_by": ["carrier"]},
    {"kind": "table", "group_by": ["carrier", "delay"], "where": SHORT},
    {"kind": "sum", "attribute": "delay", "where": AA, "count_rows": True},
    {"kind": "sum", "attribute": "delay", "group_by": ["cancelled"]},
    {"where": {"attribute": "delay", "ge": 7}},  # cuts a bin
    {"kind": "quantile", "attribute": "delay", "rank": 0.75},
    {
        "kind": "quantile",
        "attribute": "delay",
        "rank": 0.5,
        "group_by": ["carrier"],
        "where": SHORT,
    },
]
QUERIES: list[dict[str, Any]] = [
    {"kind": "threshold", "attribute": "delay", "where": LATE},
    {"kind": "threshold", "attribute": "delay"},
    {"kind": "median", "attribute": "delay"},
    {"kind": "mode", "attribute": "cancelled"},
    {"kind": "prefix_batch", "attribute": "delay", "wheres": [EARLY, LATE]},
    {"kind": "correlated_vector", "attribute": "cancelled"},
    {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
    {"kind": "interior_point", "attribute": "delay", "where": EARLY},
    {"kind": "adaptive_threshold", "attribute": "delay", "where": EARLY},
    {"where": AA},
]
LATER = {"where": {"any": [AA, SHORT]}}


def _papers(representation: str, *, doubling: bool = False, **mechanism: Any) -> dict[str, Any]:
    settings = {"representation": representation, "doubling": doubling, "hypothesis_rows": 3}
    return {"mechanism": {**mechanism, **settings}}


MEDIAN: dict[str, Any] = {"profile": "median", "queries": 6}
SEQUENTIAL: dict[str, Any] = {"profile": "sequential", "queries_per_phase": 6, "phases": 3}
MEMORY: dict[str, Any] = {"profile": "memory", "queries_per_phase": 10, "phases": 3}

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
        else:
            world.cells(name, f"batch-{number}", n=100)


def _ask(world: Any, number: int, names: Iterable[str] = DATASETS) -> None:
    for name in names:
        for at, query in enumerate(DATASETS[name][1]):
            if not (at == 0 and number == 3):  # one is left for those who go on
                world.ask(name, f"{number}-{at}", **query)


def _waiting(world: Any) -> None:
    """Rows that wait, in each form, a record that is refused, and a data set that is retired."""
    row = {"carrier": "AA", "delay": None, "cancelled": True}
    world.batch("calibrated", "waits", rows=[row, {"carrier": "ZZ", "delay": 12}])
    world.batch("kinds", "waits", columns={name: [value] for name, value in row.items()})
    world.batch("counts", "waits", cells=[{**row, "count": 77}])
    world.produce("queries", b"not JSON", key="kinds")
    world.produce("datasets", None, key="retired")


def _interrupted(world: Any) -> None:
    world.ask("kinds", "interrupted", kind="between", where=LATE, low=0.1, high=0.7)


def _recorded(world: Any, store: Any) -> Sent:
    """What the workers of a world send, which keep their state in this store."""
    sent: Sent = []
    world.store = store
    world.sent = lambda _, outgoing: sent.append(outgoing)
    world.make_noise = lambda _: FixedNoise()
    return sent


async def _live(world: Any) -> None:
    """What happened before the state was frozen."""
    rounds = [_define, lambda w: _rows(w, 1), lambda w: _ask(w, 1)]
    rounds += [lambda w: _rows(w, 2), lambda w: _ask(w, 2), _waiting]
    await world.run(rounds=rounds)
    _interrupted(world)
    fuse = world.Fuse(0, CrashPoint.AFTER_CHARGE)
    process = world.process(fuse)
    await process.assign()
    with contextlib.suppress(world.Crash, Exception):  # or what its other half says when it is gone
        await process.run()
    await process.kill()
    assert fuse.met == 1


async def _go_on(world: Any, sent: Sent) -> dict[str, Sent]:
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

    process = world.process()
    await process.assign()
    stages = {
        "taken over": lambda _: None,
        "again": again,
        "new": new,
        "rows": lambda w: _rows(w, 3, alive),
        "after rows": lambda w: _ask(w, 3, alive),
    }
    found = {}
    for stage, produce in stages.items():
        produce(world)
        await process.run()
        found[stage] = sent.copy()
        sent.clear()
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


def _key_line(name: str, kind: str, content: Content) -> dict[str, Any]:
    if kind == "hash":
        items: Any = sorted([_text(field), _text(value)] for field, value in content.items())
    else:
        items = [_text(item) for item in (content if kind == "list" else sorted(content))]
    return {"key": name, "type": kind, "content": items}


def _keys() -> Iterator[tuple[str, str, str, Content]]:
    """Data set ("" for the keys of the deployment), part, type and content of every key."""
    for line in _read("keys"):
        dataset, _, part = line["key"].rpartition(":")
        if line["type"] == "hash":
            content: Content = {_bytes(field): _bytes(value) for field, value in line["content"]}
        else:
            content = [_bytes(item) for item in line["content"]]
        yield dataset, part, line["type"], content


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


def _load_log(world: Any) -> None:
    for line in _read("journal"):
        headers = tuple((name, _bytes(value)) for name, value in line["headers"])
        entry = Entry(_bytes(line["key"]), _bytes(line["value"]), headers)
        world.journal[line["partition"]].append(entry)
    for line in _read("kept"):
        key, value = _bytes(line["key"]), _bytes(line["value"])
        world.kept_log.append((key, value))
        if value is not None:  # else it was dropped, or another one came after it
            world.kept[key] = value
    for line in _read("log"):
        world.produce(
            line["role"],
            _bytes(line["value"]),
            key=_bytes(line["key"]),
            partition=line["partition"],
        )


# ---------------------------------------------------------------- stores


def _dump(client: Any, prefix: str) -> Iterator[dict[str, Any]]:
    for key in sorted(client.scan_iter(match=f"{{{prefix}*", count=1_000)):
        named: Any = client.type(key)
        kind = named.decode()
        read: Mapping[str, Callable[[bytes], Content]] = {
            "hash": client.hgetall,
            "list": lambda key: client.lrange(key, 0, -1),
            "set": client.smembers,
        }
        assert client.ttl(key) == -1
        name = key.decode().removeprefix(f"{{{prefix}").replace("}", "").removeprefix(":")
        yield _key_line(name, kind, read[kind](key))


def _load_redis(client: redis.Redis, prefix: str) -> None:
    for dataset, part, kind, content in _keys():
        name = f"{{{prefix}:{dataset}}}:{part}" if dataset else f"{{{prefix}}}:{part}"
        if kind == "hash":
            client.hset(name, mapping=content)
        elif kind == "list":
            client.rpush(name, *content)
        else:
            client.sadd(name, *content)


def _local() -> LocalStore:
    parts: dict[str, dict[str, Content]] = defaultdict(dict)
    for dataset, part, _, content in _keys():
        parts[dataset][part] = content
    store, shared = LocalStore(), parts.pop("")
    store._watermarks = {place.decode(): int(at) for place, at in shared["watermarks"].items()}
    store._listed = {place.decode(): _note(noted) for place, noted in shared["listed"].items()}
    for name, held in parts.items():
        store._datasets[name] = _held(held)
    return store


def _note(noted: bytes) -> Note:
    return Note(*map(int, noted.split()))


def _held(parts: Mapping[str, Content]) -> _Dataset:
    control, spent = parts["control"], parts.get("spent", {})

    def named(part: str) -> dict[str, bytes]:
        return {field.decode(): value for field, value in parts.get(part, {}).items()}

    def numbered(part: str) -> dict[int, bytes]:
        return {int(field): value for field, value in parts.get(part, {}).items()}

    return _Dataset(
        token=int(control[b"token"]),
        seq=int(control[b"seq"]),
        head=bytes.fromhex(control[b"head"].decode()),
        trail=bytes.fromhex(control[b"trail"].decode()),
        notes={
            field.removeprefix(b"journal ").decode(): _note(noted)
            for field, noted in control.items()
            if field.startswith(b"journal ")
        },
        last=control[b"last"],
        definition=control[b"definition"],
        retired=b"retired" in control,
        meta={name: value.decode() for name, value in named("meta").items()},
        cursor={name: int(value) for name, value in named("cursor").items()},
        answers=named("answers"),
        batches=named("batches"),
        pending=list(parts.get("pending", ())),
        blocks=list(parts.get("blocks", ())),
        spent=[
            (int(spent[b"%d:rho" % block]), int(spent[b"%d:delta" % block]))
            for block in range(len(spent) // 2)
        ],
        transcript=list(parts.get("transcript", ())),
        verified=dict(parts.get("verified", {})),
        intents=numbered("intents"),
        ledger=list(parts.get("ledger", ())),
        outbox=numbered("outbox"),
        vault=named("vault"),
    )


@pytest.fixture
async def open_store(
    request: pytest.FixtureRequest, topic_prefix: str
) -> AsyncIterator[Callable[[str], Any]]:
    """``open_store("local")`` with the frozen state, ``open_store("valkey", empty=True)`` without."""
    opened = []

    def open_one(kind: str, *, empty: bool = False) -> Any:
        if kind == "local":
            return _local()
        url = request.getfixturevalue("valkey_server")
        if not empty:
            with redis.Redis.from_url(url) as client:
                _load_redis(client, topic_prefix)
        opened.append(RedisStore.from_url(url, prefix=topic_prefix))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.mark.skipif(not FREEZE, reason="the state is frozen")
async def test_freeze(
    world: Any, open_store: Callable[..., Any], valkey_server: str, topic_prefix: str
) -> None:
    store = open_store("valkey", empty=True)
    sent = _recorded(world, store)
    await store.partitions("in.queries", world.partitions)
    await store.constant("example", b"value")
    await _live(world)
    with redis.Redis.from_url(valkey_server) as client:
        _write("keys", _dump(client, topic_prefix))
    _write(
        "journal",
        (
            {
                "partition": partition,
                "key": _text(entry.key),
                "value": _text(entry.value),
                "headers": [[name, _text(value)] for name, value in entry.headers],
            }
            for partition, entries in enumerate(world.journal)
            for entry in entries
        ),
    )
    kept = (
        {"key": _text(key), "value": _text(value if world.kept.get(key) is value else None)}
        for key, value in world.kept_log
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
    stages = {"before": sent.copy()}
    sent.clear()
    stages |= await _go_on(world, sent)
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


def _part(name: str, part: str) -> Content:
    return next(content for at, found, _, content in _keys() if (at, found) == (name, part))


@pytest.mark.skipif(FREEZE, reason="it is being frozen")
@pytest.mark.parametrize("kind", ["local", "valkey"])
async def test_a_worker_goes_on_from_the_frozen_state(
    kind: str, world: Any, open_store: Callable[..., Any]
) -> None:
    frozen = _frozen_sent()
    store = open_store(kind)
    sent = _recorded(world, store)
    _load_log(world)
    found = await _go_on(world, sent)

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

    for name in DATASETS:
        stored = _part(name, "ledger")
        whole = await store.ledger(name)
        assert whole[: len(stored)] == stored
        published = [entry for stage in found for entry in _entries(found[stage], name)]
        # What the crash left in the outbox leaves now, and is stored already.
        new = [entry for entry in published if entry not in stored]
        assert whole[len(stored) :] == new
        ledger.verify(whole, dataset=name)
        report = verify(name, whole)
        assert (report.faults, report.notes) == ([], [])
        snapshot = await store.acquire(name)
        assert [block.spent for block in report.blocks] == list(snapshot.spent)
        assert (snapshot.intents, snapshot.outbox) == ({}, ())


def _rejected_id(one: Outgoing) -> bool:
    """Whether an id was taken for that of another request."""
    return one.role == "rejected" and json.loads(one.value)["reason"]["code"] == "id_reused"


def test_the_frozen_state_has_something_of_everything() -> None:
    held: dict[str, set[str]] = defaultdict(set)
    for name, part, _, content in _keys():
        assert content
        held[part].add(name)
    alive = DATASETS.keys() - {"retired"}
    for part in ("control", "meta", "cursor", "answers", "batches", "spent", "ledger"):
        assert held[part] == DATASETS.keys(), part
    assert held["blocks"] == held["transcript"] == alive
    assert held["pending"] == {"calibrated", "kinds", "counts", *OF_ONE_PHASE}
    assert held["verified"] >= {"calibrated", "kinds"}
    assert held["intents"] == held["vault"] == {"kinds"}
    assert "" in held["watermarks"]
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
    assert size < 300_000
