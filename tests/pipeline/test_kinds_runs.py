"""Kinds whose runs keep a secret answer through the worker, and the secret never leaves its place."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.private_names import Named
from stream_dp.state.schema import StateTable
from tests.noise import ScriptedNoise
from tests.pipeline.flights import AA, asked, judged, opened, ran
from tests.view import MemoryView

pytestmark = judged

KINDS: dict[str, Any] = {
    "between": {"share": 0.15, "answers": 2},
    "interior_point": {"share": 0.1, "points": 100},
    "adaptive_threshold": {"share": 0.2, "chunks": 4, "queries": 50},
}
DEFINED: dict[str, Any] = {"kinds": KINDS, "privacy": {"epsilon": 20.0, "delta": 1e-6}}
SOME = {"kind": "between", "where": AA, "low": 0.1, "high": 0.3}  # and it is 3 of 7 rows


def asks(kind: str, name: str, *numbers: int) -> Callable[[Any], None]:
    """Queries of a kind: thresholds around 3 of 7, or points of the delay."""

    def ask(world: Any) -> None:
        for number in numbers:
            query_id = f"{name}-{number}"
            if kind == "between":
                item = {"low": 0.1 + number / 100, "high": 0.3}
                world.ask("flights", query_id, AA, kind=kind, **item)
            else:
                where = {"attribute": "delay", "lt": (0, 10, 30)[number]}
                world.ask("flights", query_id, where, kind=kind, attribute="delay")

    return ask


def vault(world: Any) -> dict[str, bytes]:
    return dict(world.held("flights").vault)


def runs(world: Any) -> list[tuple[str, int, list[int]]]:
    """Of each look of these kinds: the kind, the run's number, and the blocks that paid."""
    return [
        (look["kind"], look["run"], [block for block, *_ in entry["charges"]])
        for entry in map(json.loads, world.held("flights").ledger)
        for look in entry.get("looks", [])
        if "run" in look
    ]


async def test_all_of_them_answer_on_one_data_set_over_two_phases_and_restarts(world: Any) -> None:
    await opened(world, **DEFINED)
    for kind in KINDS:
        await ran(world, asks(kind, f"{kind}-a", 0, 1))
    before = vault(world)
    for kind in KINDS:
        await ran(world, asks(kind, f"{kind}-b", 1, 2))
    assert vault(world) == before
    await ran(world, lambda world: world.cells("flights", "two"))
    for kind in KINDS:
        await ran(world, asks(kind, f"{kind}-c", 0, 1), asks(kind, f"{kind}-d", 1))
    assert vault(world).items() > before.items()
    assert sorted(vault(world)) == [
        *("adaptive_threshold 1 0 1", "adaptive_threshold 1 0 2", "between 0 1", "between 0 2"),
        *("interior_point 1 0 1", "interior_point 1 0 2"),
    ]
    paid = [run for run in runs(world) if run[2]]
    assert sorted(paid) == [
        ("adaptive_threshold", 1, [0]),
        ("adaptive_threshold", 2, [0, 1]),
        ("between", 1, [0]),
        ("between", 2, [0, 1]),
        ("interior_point", 1, [0]),
        ("interior_point", 2, [0, 1]),
    ]
    for kind in KINDS:
        answers = {name: world.answer(f"{kind}-{name}") for name in ("a-0", "a-1", "b-1", "b-2")}
        assert [a["path"] for a in answers.values()] == ["measured", "gated", "repeat", "gated"]
        assert [a["privacy_loss"]["blocks"] for a in answers.values()] == [1, 0, 0, 0]
        assert world.answer(f"{kind}-c-0")["path"] == "measured"
        assert world.answer(f"{kind}-d-1")["path"] == "repeat"
        assert world.answer(f"{kind}-d-1")["window"] == [1, 2]
    assert {a["side"] for n, a in named(world) if n.startswith("between")} == {"above"}
    for name, answer in named(world):
        if name.startswith("adaptive"):
            truth = (4, 13, 21)[int(name[-1])] / 21
            assert abs(answer["value"] - truth) <= answer["error_bar"] < 0.3


def named(world: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(name[-1], answer) for name, answer in world.answers().items()]


async def test_an_interior_point_that_is_kept_is_named_and_frees_its_secret(world: Any) -> None:
    world.make_noise = lambda _: ScriptedNoise()
    counts = (0, 116, 9_000, 11_884)
    delays = (-5, 5, 20, 40)

    cells = [{"delay": d, "count": n} for d, n in zip(delays, counts, strict=True)]
    await opened(world, rows={"cells": cells}, **DEFINED)
    for number in (2, 0, 1):
        await ran(world, asks("interior_point", "i", number))
    assert vault(world) == {}
    await ran(world, asks("interior_point", "again", 2, 0))
    kept = world.answer("i-1")
    assert (kept["side"], kept["path"], kept["difficulty"]) == ("above", "measured", "hard")
    assert kept["found"] == {"label": "0 to 9", "low": 0.0, "high": 10.0}
    assert [world.answer(f"again-{n}")["side"] for n in (0, 2)] == ["below", "above"]


async def test_a_free_query_is_quoted_at_nothing(world: Any) -> None:
    await opened(world, **DEFINED)
    await ran(world, asks("between", "b", 0))
    [quote] = await asked(world, {**SOME, "low": 0.2, "high": 0.6, "quote": True})
    assert quote["privacy_loss"] == {"share": 0.0, "blocks": 0}


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
@pytest.mark.parametrize("kind", ["interior_point", "adaptive_threshold"])
async def test_a_crash_with_an_answer_on_its_way_abandons_the_run_and_another_is_paid(
    world: Any, kind: str, point: CrashPoint
) -> None:
    await opened(world, **DEFINED)
    first = world.Fuse(0, point)
    assert await world.run(first, rounds=(asks(kind, "a", 0),)) == 1
    abandoned = vault(world)
    second = world.Fuse(0, point)
    assert await world.run(second, rounds=(asks(kind, "b", 1),)) == 1
    await ran(world, asks(kind, "c", 0, 2))
    assert runs(world) == [
        *((kind, 1, [0]), (kind, 2, [0])),
        *((kind, 2, []), (kind, 3, [0])),
        (kind, 3, []),
    ]
    assert vault(world).keys() == abandoned.keys()
    assert vault(world) != abandoned
    assert world.answer("c-0")["path"] == "repeat"


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_an_answer_that_a_crash_lost_counts_as_between(world: Any, point: CrashPoint) -> None:
    """Of two that are allowed, crashes use both up, though every answer is "above"."""
    world.make_noise = lambda _: ScriptedNoise()
    await opened(world, **DEFINED)
    for numbers in ((0, 1), (2, 3)):
        lost = world.Fuse(0, point)
        assert await world.run(lost, rounds=(asks("between", "b", *numbers),)) == 1
    await ran(world, asks("between", "b", 4))
    assert [(number, paid) for _, number, paid in runs(world)] == [
        *((1, [0]), (1, []), (1, []), (1, [])),
        *((2, [0]), (2, []), (2, [])),
    ]
    assert {world.answer(f"b-{number}")["side"] for number in range(5)} == {"above"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_a_crash_ended_keeps_no_secret(world: Any, kind: str) -> None:
    """Whoever reads it and the answers that the run gave would learn more than the promise allows."""

    rows = {"cells": [{"carrier": c, "delay": 5, "count": 10**5} for c in ("AA", "UA")]}
    await opened(world, rows=rows, kinds={**KINDS, "between": {"share": 0.15, "answers": 1}})
    lost = world.Fuse(0, CrashPoint.AFTER_LOOK)
    assert await world.run(lost, rounds=(asks(kind, "a", 1),)) == 1
    began, dropped, *_ = [names for said in commits(world) if (names := of_runs(said))]
    assert began.keys() == dropped.keys()
    assert None not in began.values()
    assert set(dropped.values()) == {None}
    for named in began.values():
        key = f"flights/{Named.from_bytes(named).name.hex()}".encode()
        assert key in {key for key, _ in world.kept_log}
        assert key not in world.kept


def commits(world: Any) -> list[Any]:
    """What each commit of the data set says, in order."""
    return list(world.held("flights").said)


def of_runs(said: Any) -> dict[bytes, Any]:
    """The secrets of runs that a commit names, or drops, by their names."""
    return {
        key: value
        for (table, key), value in said.puts.items()
        if table is StateTable.KEPT and key.startswith(b"run ")
    }


async def test_secrets_are_durable_in_the_commit_that_pays_for_them(world: Any) -> None:
    await opened(world, **DEFINED)
    await ran(world, *(asks(kind, kind, 0, 1) for kind in KINDS))
    begun = 0
    for said in commits(world):
        if any(of_runs(said).values()):
            begun += 1
            assert said.charges
            (intent,) = [
                value for (table, _), value in said.puts.items() if table is StateTable.INTENT
            ]
            (look,) = json.loads(intent)
            assert look["run"] == 1
    assert begun == len(KINDS)


async def test_a_secret_shows_nowhere_but_in_the_vault(world: Any) -> None:
    """Searched as bytes and as a number; whether the search finds anything is tried on the vault."""
    numbers = iter(range(7_300_031, 7_400_000, 1_013))
    script: dict[Fraction, Iterator[int]] = {}
    world.make_noise = lambda _: ScriptedNoise(by_scale=script)
    await opened(world, **DEFINED)
    for entry in await descriptions(world):
        script[Fraction(entry["offset_scale"])] = numbers
    await ran(world, *(asks(kind, kind, 0, 1, 2) for kind in KINDS))
    held = world.held("flights")
    drawn = [
        number
        for secret in held.vault.values()
        for number in struct.unpack(f"<{len(secret) // 8}q", secret[1:])
        if number > 7_000_000
    ]
    assert len(drawn) == 1 + 1 + 4
    (dataset,) = (d for d in world.processes[-1].worker.datasets.values() if d.name == "flights")
    public = [world.trail, [(said.puts, said.out) for said in commits(world)], dataset]
    public += [dataset.rows.blocks.data, dataset.mechanism]
    public += map(vars, dataset.mechanism.answerers)
    stored = [*held.transcript, *held.ledger, *held.answers.values(), *held.batches.values()]
    seen = repr(public).encode() + b"".join(stored)
    for number in drawn:
        packed = struct.pack("<q", number)
        assert packed in b"".join(held.vault.values())
        for written in (packed, repr(packed).encode()[2:-1], str(number).encode()):
            assert written not in seen


async def descriptions(world: Any) -> list[dict[str, Any]]:
    """Of the first look of each kind, on a data set of its own."""
    await opened(world, "other", **DEFINED)
    on_delay = {"attribute": "delay", "where": {"attribute": "delay", "lt": 0}}
    others = ({"kind": kind, **on_delay} for kind in ("interior_point", "adaptive_threshold"))
    await asked(world, SOME, *others, dataset="other")
    entries = map(json.loads, world.held("other").ledger)
    return [look for entry in entries for look in entry.get("looks", []) if "run" in look]


# Secrets that are gone ------------------------------------------------------------------------------

ENDED = b"\x03"
"""The kind of a transcript entry that names the secrets that are gone."""


def ended(world: Any) -> list[list[str]]:
    transcript = world.held("flights").transcript
    return [json.loads(entry[1:]) for entry in transcript if entry[:1] == ENDED]


async def test_runs_end_when_their_secrets_are_nowhere_and_what_they_said_stays(world: Any) -> None:
    await opened(world, **DEFINED)
    await ran(world, *(asks(kind, f"{kind}-a", 0) for kind in KINDS))
    before = vault(world)
    assert len(before) == len(KINDS)
    for named in world.held("flights").named("run ").values():
        del world.kept[f"flights/{named.name.hex()}".encode()]
    world.view = MemoryView()
    await ran(world, *(asks(kind, f"{kind}-b", 0, 1) for kind in KINDS))
    assert ended(world) == [sorted(before)]
    # Another worker folds the same end again, and goes on with the new runs.
    secrets = vault(world)
    await ran(world, *(asks(kind, f"{kind}-c", 0, 1, 2) for kind in KINDS))
    assert ended(world) == [sorted(before)], "they end once"
    assert vault(world) == secrets
    assert not set(secrets.values()) & set(before.values())
    assert sorted(runs(world)) == sorted(
        (kind, number, paid) for kind in KINDS for number, paid in ((1, [0]), (2, [0]), (2, []))
    )
    for kind in KINDS:
        said = {name: world.answer(f"{kind}-{name}") for name in ("a-0", "b-0", "c-0", "b-1")}
        assert said["b-0"]["path"] == said["c-0"]["path"] == "repeat"
        shown = "value" if kind == "adaptive_threshold" else "side"
        assert said["a-0"][shown] == said["b-0"][shown] == said["c-0"][shown]
        assert (said["b-1"]["path"], said["b-1"]["privacy_loss"]["blocks"]) == ("measured", 1)
        assert world.answer(f"{kind}-c-1")["path"] == "repeat"
        assert world.answer(f"{kind}-c-2")["privacy_loss"]["blocks"] == 0


@pytest.mark.parametrize("lost", ["Redis", "topic"])
async def test_runs_go_on_when_their_secrets_are_in_one_place(world: Any, lost: str) -> None:
    await opened(world, **DEFINED)
    await ran(world, *(asks(kind, f"{kind}-a", 0) for kind in KINDS))
    before = vault(world)
    if lost == "Redis":
        world.view = MemoryView()
    else:  # the topic was restored from a copy: the same keys are at other offsets
        world.kept_log += world.kept.items()
    await ran(world, *(asks(kind, f"{kind}-b", 1) for kind in KINDS))
    assert ended(world) == []
    assert vault(world) == before
    assert {number for _, number, _ in runs(world)} == {1}


async def test_no_run_is_continued_with_a_secret_that_is_older_than_what_it_said(
    make_world: Callable[..., Any],
) -> None:
    """Redis and the topic go back to when there were the first runs, and the second ones have other names."""
    world = make_world()
    points = ("interior_point", "adaptive_threshold")
    await ran(
        world,
        lambda world: world.define("flights", **DEFINED),
        lambda world: world.cells("flights", "one"),
        *(asks(kind, f"{kind}-a", 0) for kind in points),
    )
    older, kept, before = copy.deepcopy(world.view), dict(world.kept), vault(world)
    for kind in points:  # a lost answer ends the run, and the next query begins another
        lost = world.Fuse(0, CrashPoint.AFTER_LOOK)
        assert await world.run(lost, rounds=(asks(kind, f"{kind}-b", 1),)) == 1
    second = vault(world)
    assert second.keys() == before.keys()
    assert not set(second.values()) & set(before.values())
    world.view, world.kept = older, kept
    await ran(world, *(asks(kind, f"{kind}-c", 2) for kind in points))
    assert ended(world) == [sorted(before)]
    assert sorted(vault(world)) == sorted(before)
    assert not set(vault(world).values()) & (set(before.values()) | set(second.values()))
    assert {number for _, number, paid in runs(world) if paid} == {1, 2, 3}
    # The topic has what was erased again, until somebody looks through it.
    assert [one for one in world.complaints() if "has erased a private value" not in one] == []
