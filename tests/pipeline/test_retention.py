"""Rows that are erased some phases after their own, through the worker: what goes, what stays, who knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.core.residual.plan.planner import BudgetAllocator
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.slabs import SlabIndex, TableAsked
from stream_dp.errors import Fenced, RowsGone
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.fakes import FakeKept
from tests.pipeline.flights import AA, LAST, LATE, UA, UNMEASURED, asked, judged, opened, ran
from tests.pipeline.test_prices import forged
from tests.pipeline.world import World

pytestmark = judged

EITHER = {"any": [AA, LATE]}


def define(world: World, **changes: Any) -> None:
    settings = {
        "mechanism": UNMEASURED,
        "on_exhausted": "refuse",
        "retention": {"phases": 1},
        **changes,
    }
    world.define("flights", **settings)


def phase(world: World) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=2)


def retire(world: World) -> None:
    world.produce("datasets", None, key="flights")


def asks(query_id: str, where: Any, **item: Any) -> Callable[[World], None]:
    def ask(world: World) -> None:
        world.ask("flights", query_id, where, **item)

    return ask


def dataset_of(process: Any) -> Dataset:
    found: Dataset = process.worker.datasets["flights"]
    return found


def stored(world: World) -> bytes:
    """All that is on private topics now, and in Redis."""
    view = world.view
    return pickle.dumps((world.journal, world.kept, view.states, view.generations, view.values))


def phases_kept(world: World) -> list[int]:
    """The phases whose rows are on the topic of blocks; 0 for each value that no commit names."""
    named = world.held("flights").named("block ")
    names = {one.name.hex(): int(of.split(" ")[0]) for of, one in named.items()}
    keys = [key.decode().partition("/")[2] for key in world.kept if key.startswith(b"flights/")]
    return sorted(names.get(key, 0) for key in keys)


def counts_in(parts: Sequence[bytes]) -> bytes:
    """The column of how many rows each entry is."""
    index = SlabIndex.from_bytes(parts[0])
    return parts[index.place("entry 0")]


async def test_the_rows_are_gone_from_topics_redis_and_memory(world: Any, process: Any) -> None:
    await ran(process, define)
    dataset, sealed = dataset_of(process), []
    for n in (1, 2, 3):
        world.cells("flights", f"batch-{n}", n=n)
        await process.run()
        await process.settled()
        held = world.held("flights")
        (parts,) = held.blocks[-1]
        sealed.append(parts)
        kept = [
            [part in stored(world) for part in (parts[0], counts_in(parts))] for parts in sealed
        ]
        assert kept == [[False] * 2] * (n - 1) + [[True] * 2]
        assert held.blocks == [[sealed[-1]]]
        (named,) = held.named("block ").values()
        assert world.view.values["flights"] == dict(zip(named.fields(), parts, strict=True))
        memory = dataset._tools.cache
        assert not memory._kept, "of a phase that nobody looked at, and of those before it"
        reader, looks = dataset.rows.blocks.stored, [TableAsked((0,), n - 1)]
        async with reader.readable():
            await asyncio.to_thread(list, reader.tables(looks))
        assert {key.name for key in memory._kept} == {named.name}
    assert (
        dataset.rows.blocks.data.erased,
        dataset.phase,
        dataset.rows.blocks.n_rows(range(3)),
    ) == (2, 3, 6 * 21_000)
    assert len(held.transcript) == len(held.spent) == 3, "what is public stays"


async def test_rows_leave_the_topic_when_the_journal_says_that_they_are_erased(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If their worker died just before, the next one would lack them."""
    define(world)
    drop, dropped = FakeKept._drop, []

    async def watched(self: FakeKept, key: bytes) -> None:
        held, name = world.held("flights"), bytes.fromhex(key.partition(b"/")[2].decode())
        dropped.append((held.ever[name], name in held.names, held.retired))
        await drop(self, key)

    monkeypatch.setattr(FakeKept, "_drop", watched)
    process = await world.owner()
    await ran(process, phase, phase, phase)
    assert dropped == [("block 1 0", False, False), ("block 2 0", False, False)]
    await ran(process, retire)
    assert dropped[2:] == [("block 3 0", False, True)]
    await process.kill()


async def test_a_worker_that_dies_before_it_commits_a_block_leaves_nothing_for_ever(
    make_world: Callable[..., Any],
) -> None:
    """What nobody names goes with the second erasure."""
    left, place = 0, 0
    while True:
        world = make_world(seed=place + 1)
        fuse = world.Fuse(place, CrashPoint.BEFORE_COMMIT)
        died = await world.run(fuse, rounds=(define, *[phase] * 5))
        assert world.complaints() == []
        left += phases_kept(world).count(0)
        await world.run(rounds=(phase, phase))
        assert phases_kept(world) == [7]
        assert world.complaints() == []
        if not died:
            break
        place += 1
    assert left > 0
    assert place > 4, "it died at some of the seals"


def keeper_of(process: Any) -> Keeper:
    """What a worker puts values on the topic with."""
    return Keeper(process.kept, Context())


async def test_values_that_no_commit_names_go_with_the_second_erasure(world: Any) -> None:
    """A worker died after it had kept rows that waited, say."""
    define(world)
    await world.run(rounds=(phase, phase))
    await world.run()  # and notes what the last one has erased
    dead = world.process()
    await keeper_of(dead).keep("flights", [[b"rows"], [b"index", b"more rows"]])
    await dead.kill()
    await world.run(rounds=(phase,))
    assert phases_kept(world) == [0, 0, 3], "they may be those of a worker that has taken over"
    await world.run(rounds=(phase,))
    assert phases_kept(world) == [4]


@pytest.mark.parametrize("knows", [False, True])
async def test_a_worker_erases_nothing_if_the_journal_does_not_take_the_commit_that_does(
    world: Any, knows: bool
) -> None:
    """Another worker has taken over. It has the rows in its state, and may look at them."""
    define(world)
    phase(world)
    former, later = world.process(), world.process()
    await former.assign()
    await former.run()
    kept = set(world.kept)
    append, was_late = former.worker.journal._log.append, list[int]()

    async def late(partition: int, entries: Any) -> Any:
        if b"commit" in {dict(entry.headers)["kind"] for entry in entries} and not was_late:
            was_late.append(len(former.worker.datasets["flights"].accounts.spent))
            await later.assign()
            if knows:
                former.worker.revoked(range(world.partitions))
        return await append(partition, entries)

    former.worker.journal._log.append = late
    phase(world)
    with contextlib.nullcontext() if knows else pytest.raises(Fenced):
        await former.run()
    assert was_late == [2], "it has sealed the second phase, and erased the first one"
    assert world.kept.keys() >= kept
    world.ask("flights", "one", AA)
    for process in (former, later):
        await process.kill()
    await world.run()
    assert len(world.held("flights").spent) == 2
    assert world.kept.keys().isdisjoint(kept)


async def test_what_a_former_worker_writes_after_an_erasure_goes_with_those_to_come(
    world: Any,
) -> None:
    former = keeper_of(world.process())
    define(world)
    await world.run(rounds=(phase, phase, phase))
    await world.run()  # and notes what the last one has erased
    await former.keep("flights", [[b"index", b"rows of the first phase"]])
    await former.keep("flights", [[b"another", b"rows of the fourth phase"]])
    await world.run(rounds=(phase,))
    assert phases_kept(world) == [0, 0, 4]
    await world.run(rounds=(phase,))
    assert phases_kept(world) == [5]
    for _ in range(2):
        await ran(world, retire)
        await world.run()
        assert not world.kept, "and to retire it once more is enough"
        await former.keep("flights", [[b"index", b"rows of another phase"]])
    await world.run()
    assert len(world.kept) == 1
    assert world.complaints() == []
    await world.processes[0].kill()


async def test_what_a_worker_that_died_has_left_goes_when_the_data_set_is_retired(
    world: Any,
) -> None:
    """No commit has named a value of the data set by then, and rows may be there all the same."""
    define(world)
    await world.run()
    await keeper_of(world.process()).keep("flights", [[b"index", b"rows that no commit names"]])
    await world.run()
    assert len(world.kept) == 1
    await ran(world, retire)
    assert not world.kept


async def test_what_was_answered_before_is_answered_for_ever_and_nothing_else(world: Any) -> None:
    await ran(world, define, phase)
    one = {"query_id": "one", "where": AA}
    before = await asked(world, one)
    await ran(world, phase)
    again, new, quote, newest = await asked(
        world,
        one,
        {"where": EITHER},
        {"where": EITHER, "quote": True},
        {"where": EITHER, **LAST},
    )
    assert [again] == before
    [more] = await asked(world, {"where": AA, "window": {"last_phases": 2}})
    assert again["path"] == more["path"] == "measured", "the newest phase pays for what is lacking"
    for answer in (new, quote):
        reason = answer["reason"]
        assert reason["code"] == "rows_erased"
        assert reason["message"].startswith("window: the rows of some of its phases are erased")
        assert "ask about the last phases" in reason["message"]
        assert not reason["retriable"]
    assert newest["status"] == "answered"


async def test_a_worker_that_takes_over_knows_what_is_erased(world: Any) -> None:
    await ran(world, define, phase, asks("one", AA), phase, phase)
    process = await world.owner()
    dataset = dataset_of(process)
    assert (
        dataset.rows.blocks.data.erased,
        dataset.phase,
        dataset.rows.blocks.n_rows(range(3)),
    ) == (2, 3, 3 * 42_000)
    every, last = await asked(process, {"where": UA}, {"where": UA, **LAST})
    assert every["reason"]["code"] == "rows_erased"
    assert last["status"] == "answered"
    await process.kill()


async def test_a_bundle_says_which_of_its_queries_need_rows_that_are_gone(world: Any) -> None:
    await ran(world, define, phase, phase)
    items = ({"where": AA}, {"where": AA, **LAST}, {"where": LATE, "fresh": True})
    await asked(world, *items, quote="together", query_id="bundle")
    queries = world.answer("bundle")["queries"]
    codes = [(query.get("reason") or {}).get("code") for query in queries]
    assert codes == ["rows_erased", None, "rows_erased"]


async def test_the_ledger_says_with_which_phase_rows_were_erased(world: Any) -> None:
    await world.run(rounds=(lambda w: define(w, retention={"phases": 2}), *[phase] * 4))
    entries = [json.loads(entry) for entry in world.held("flights").ledger]
    opened = [entry for entry in entries if entry["kind"] == "phase"]
    assert [entry.get("erased") for entry in opened] == [None, None, 1, 2]


async def test_a_ledger_that_charges_or_reads_what_is_erased_is_at_fault(world: Any) -> None:
    between = {"kind": "between", "low": 0.2, "high": 0.7}
    begin = partial(define, kinds={"between": {"share": 0.05, "answers": 2}})
    runs = asks("a", AA, **between), asks("b", UA, **between)
    await ran(world, begin, phase, asks("one", AA), *runs, phase)
    entries = world.held("flights").ledger
    assert verify("flights", entries).faults == []
    charges = [n for n, entry in enumerate(entries) if json.loads(entry)["kind"] == "charge"]
    *_, opens = (n for n, entry in enumerate(entries) if json.loads(entry)["kind"] == "phase")
    free = charges[-1]
    assert json.loads(entries[free])["charges"] == [], "a run is paid for once"

    changes: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
        "charges phase 1, whose rows are erased": lambda all_: all_.append(all_.pop(charges[0])),
        "reads phase 1, whose rows are erased": lambda all_: all_.append(all_.pop(free)),
        "the rows of the first 1 phases are erased": lambda all_: all_[opens].pop("erased"),
        "the rows of the first 0 phases are erased": lambda all_: all_[0]["definition"].pop(
            "retention"
        ),
    }
    for said, change in changes.items():
        found = verify("flights", forged(entries, change)).faults
        assert said in "\n".join(map(str, found))


async def test_runs_end_with_their_rows_and_their_secrets_go(world: Any) -> None:
    """A run over two phases goes on about the one that has rows; one about a single point cannot."""
    kinds = {
        "between": {"share": 0.1, "answers": 2},
        "interior_point": {"share": 0.05, "points": 9},
        "threshold": {"share": 0.01},
    }
    point = {"kind": "interior_point", "attribute": "delay"}
    side = {"kind": "between", "low": 0.3, "high": 0.6}
    early, curve = {"attribute": "delay", "lt": 0}, {"kind": "threshold", "attribute": "delay"}
    privacy = {"epsilon": 20.0, "delta": 1e-6}
    rounds = (
        partial(define, kinds=kinds, retention={"phases": 2}, privacy=privacy),
        phase,
        asks("b1", AA, **side),
        asks("c1", LATE, **curve),
        phase,
        asks("b2", AA, **side),
        asks("p2", early, **point),
        phase,
    )
    await world.run(rounds=rounds)
    assert sorted(world.held("flights").vault) == ["between 0 2"]
    erased, gone, two, known, _ = await asked(
        world,
        {"where": LATE, **side},
        {"where": {"attribute": "delay", "lt": 10}, **point},
        {"where": LATE, "window": {"last_phases": 2}, **side},
        {"where": {"attribute": "delay", "ge": 0}, **curve},
        {"query_id": "b2", "where": AA, **side},
    )
    assert erased["reason"]["code"] == gone["reason"]["code"] == "rows_erased"
    assert two["status"] == "answered"
    assert known["status"] == "answered", "phase 1 was looked at in time"


@pytest.mark.parametrize("kept", [1, 2])
async def test_responses_that_a_crash_lost_are_drawn_again_only_while_there_are_rows(
    make_world: Callable[..., World], kept: int
) -> None:
    world = make_world()
    kinds = {"correlated_vector": {"attribute": "cancelled", "share": 0.01}}

    def small(world: World) -> None:
        define(world, kinds=kinds, phase={"min_rows": 5}, retention={"phases": kept})

    def five(world: World) -> None:
        name = f"batch-{world.next_offset('batches', 'flights')}"
        world.batch("flights", name, rows=[{"cancelled": True}] * 5)

    about = {"kind": "correlated_vector", "attribute": "cancelled"}
    await world.run(rounds=(small,))
    await world.run(
        world.Fuse(0, CrashPoint.AFTER_LOOK), rounds=(five, asks("lost", None, **about))
    )
    await world.run(rounds=(five, asks("after", None, **about)))
    codes = [(world.answer(name).get("reason") or {}).get("code") for name in ("lost", "after")]
    assert codes == (["retry_after", None] if kept == 2 else ["rows_erased", "rows_erased"])


@pytest.mark.parametrize("forgets", ["the planner", "the planner and the blocks"])
async def test_a_broken_planner_sees_nothing_of_rows_that_are_gone(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, forgets: str
) -> None:
    """Broken copies: the data set refuses before the charge, and behind it there are no rows to look at."""
    world = make_world()
    process = await world.owner()
    await ran(process, define, phase, phase)
    dataset = dataset_of(process)
    monkeypatch.setattr(BudgetAllocator, "erased", 0)
    errors: type[Exception] = ValueError
    if forgets == "the planner and the blocks":
        monkeypatch.setattr(Blocks, "check", lambda self, blocks: None)
        errors = RowsGone
    before, spent = dataset.draft.state.number, list(world.held("flights").spent)
    world.ask("flights", "new", AA)
    with pytest.raises(errors):
        await process.run()
    assert world.released("answers") == []
    if errors is ValueError:
        assert world.held("flights").spent == spent
        assert dataset.draft.state.number == before
    await process.kill()


# ---------------------------------------------------------------- other profiles


@pytest.mark.parametrize("profile", ["counts", "whole_table"])
async def test_other_profiles_that_look_once_keep_answering_too(world: Any, profile: str) -> None:
    mechanism, accuracy = {"profile": profile}, {"error": 0.05}
    begin = partial(define, mechanism=mechanism, accuracy=accuracy)
    await ran(world, begin, phase, asks("one", AA), phase)
    every, last = await asked(world, {"where": AA}, {"where": AA, **LAST})
    code = every.get("reason", {}).get("code")
    assert code == ("rows_erased" if profile == "counts" else None)
    assert last["status"] == "answered"


# ---------------------------------------------------------------- frozen bytes


async def test_a_table_over_an_erased_phase_of_which_more_is_known_is_answered(world: Any) -> None:
    """A rounding error had let the erased phase take part in the look, which ended each worker."""
    cells = [
        {"carrier": "AA", "delay": 5, "cancelled": False, "count": 1_500},
        {"carrier": "UA", "delay": 45, "cancelled": True, "count": 1_300},
    ]
    await opened(
        world,
        rows={"cells": cells},
        privacy={"epsilon": 5.0, "delta": 1e-9},
        mechanism=UNMEASURED,
        phase={"min_rows": 2_000},
        retention={"phases": 2},
    )
    await asked(world, {"kind": "table", "group_by": ["carrier", "delay", "cancelled"]})
    for batch in "bc":
        world.batch("flights", batch, cells=cells)
        await world.run()
    [coarse] = await asked(world, {"kind": "table", "group_by": ["carrier"]})
    assert coarse["status"] == "answered"
