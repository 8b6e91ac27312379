"""A data set moves to another deployment: it ends here for good, and goes on there with what it has spent."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dp.core.rows import slabs
from stream_dp.core.rows.slabs import SLOTS, Slab
from stream_dp.errors import CorruptState, InvalidInput, LedgerBroken, RowsGone
from stream_dp.messages import SourceRange
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair import move
from stream_dp.pipeline.repair.move import bring_in, take_out
from stream_dp.pipeline.rows.private_values import LOOKED
from stream_dp.pipeline.spending.in_hand import IN_HAND
from stream_dp.state import ledger as ledgers
from stream_dp.state.moved import MovedFolder, MovingFolder
from stream_dp.state.private_names import Named
from stream_dp.state.schema import State, StateTable
from tests.pipeline.commands import mend_all, offline, outputs, served, states
from tests.pipeline.crash import CountingFuse
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    ERASING,
    EVERY,
)
from tests.pipeline.world import World
from tests.view import MemoryView

OF_LOTS = ("persons", "lives")
"""Scenarios of which some rows wait, as lots where slabs are small."""


async def out(
    world: World,
    path: Path,
    name: str = "flights",
    fuse: CountingFuse | None = None,
    ledger: Sequence[bytes] | None = None,
) -> None:
    """Exports a data set. The topic of ledgers has these entries of it, if any are given."""
    logs = outputs(world)
    if ledger is not None:
        logs["ledger"].entries[0] = [LogEntry(name.encode(), one, ()) for one in ledger]
    await take_out(offline(world, fuse, outputs=logs), name, MovingFolder(path))


async def into(world: World, path: Path, fuse: CountingFuse | None = None) -> str:
    if not world.processes:
        world.process()
    return await bring_in(offline(world, fuse), MovedFolder(path))


def same(state: State) -> dict[Any, bytes]:
    """What a data set has in each deployment. Names of private values and places of this one are left out."""
    return {
        (table, key): value
        for (table, key), value in state.pairs.items()
        if not (
            table in (StateTable.KEPT, StateTable.WAITING, StateTable.INTENT)
            or (table is StateTable.CURSOR and b"in." in key)
            or (table is StateTable.FACT and key.decode() in ("moved", LOOKED, *IN_HAND))
        )
    }


def private(world: World, state: State) -> dict[bytes, tuple[bytes, ...]]:
    """The parts of the private values that are kept, by what they are kept for."""
    return {
        what: world.kept[f"{state.dataset}/{Named.from_bytes(one).name.hex()}".encode()]
        for what, one in state.table(StateTable.KEPT).items()
        if not what.startswith(b"gone ")
    }


@pytest.mark.parametrize(
    ("name", "slots"), [*((name, SLOTS) for name in EVERY), *((name, 6) for name in OF_LOTS)]
)
async def test_it_goes_on_with_all_that_it_had(
    make_world: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    slots: int,
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", slots)
    here, new = make_world(), make_world(seed=2)
    before = states(await served(here, EVERY[name]))
    new.key_file = here.key_file
    retired = {
        name for name, state in before.items() if state.pairs.get((StateTable.FACT, b"retired"))
    }
    names = sorted(before.keys() - retired)
    assert names
    for name in names:
        await out(here, tmp_path / name, name)
        assert await into(new, tmp_path / name) == name
    kinds = {what.split()[0] for name in names for what in before[name].table(StateTable.KEPT)}
    assert slots == SLOTS or kinds & {b"waiting", b"weight", b"ordered"}, "of lots"
    process = await served(new)
    assert process.worker.stopped == {}
    for name in names:
        theirs = states(process)[name]
        assert same(theirs) == same(before[name])
        mine = private(here, before[name])
        assert private(new, theirs).items() >= mine.items()
        more = {what.split()[0] for what in private(new, theirs).keys() - mine.keys()}
        if before[name].table(StateTable.WAITING):
            assert {b"waiting"} <= more <= {b"waiting", b"whose", b"arrived", b"came"}
        else:
            assert more == set()
        # The offsets of another topic would have a worker miss rows that no commit names.
        assert (StateTable.FACT, LOOKED.encode()) not in theirs.pairs
    assert {record["dataset"] for record in new.released("catalog")} == set(names)
    for name in names:
        listed, also = here.left("catalog", name), new.left("catalog", name)
        assert also[-1].value == listed[-1].value, "with its versions, and all that was found"
        ledger = here.ledger(name)
        assert new.ledger(name)[: len(ledger)] == ledger


async def test_changes_are_made_before_it_leaves_and_others_once_it_is_there(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    here, new = make_world(), make_world(seed=2)
    here.key_file = new.key_file = b"k" * 32
    await served(here, ERASING[:3])
    with pytest.raises(
        InvalidInput, match="changes of rows of flights wait for a sweep"
    ) as refused:
        await out(here, tmp_path / "refused")
    assert "Client().sweep('flights')" in str(refused.value)
    await served(here, [lambda w: _clock(w, sweep=True)])
    await out(here, tmp_path / "flights")
    assert await into(new, tmp_path / "flights") == "flights"
    counted = []
    for changes in ([], [lambda w: w.batch("flights", "gone", erase=[7])]):
        state = states(await served(new, [*changes, lambda w: _clock(w, sweep=True)]))["flights"]
        there = (StateTable.FACT, b"batches swept") in state.pairs
        assert there == bool(changes), "what was noted before is an offset of another topic"
        slab = Slab.of_stored(private(new, state)[b"block 1 0"])
        counted.append(int(slab.columns["weight"].sum()))
    assert counted[0] - counted[1] == 2


def _clock(world: World, **more: bool) -> object:
    """A record that has the clock read."""
    record = {"version": 1, "dataset": "flights", "clock": True, **more}
    return world.produce("batches", record, key="flights")


@pytest.mark.parametrize(
    "what", ["block 1 1", "weight 1 0", "waiting 0 1 0 1 0", "whose 0 1 0 1 0"]
)
async def test_what_lacks_a_slab_does_not_leave(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", 6)
    world = make_world()
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2}
    world.define(
        "flights",
        mechanism={"base_share": 0.0},
        privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit},
        phase={"min_rows": 10},
    )
    for number in range(4):
        rows = [{"carrier": "AA", "user_id": n} for n in range(5)]
        world.batch("flights", f"batch-{number}", rows=rows)
    await served(world)
    world.batch("flights", "more", rows=rows)
    world.batch("flights", "again", rows=rows[:4])
    await served(world)
    state = world.held("flights")
    del world.kept[f"flights/{state.named()[what].name.hex()}".encode()]
    phases = what.startswith(("block", "weight"))
    said = "lacks the rows of phase 1 of flights" if phases else "has given them up yet"
    with pytest.raises(InvalidInput, match=said):
        await out(world, tmp_path / "flights")
    await is_served(world)


REFUSED = {
    "lacks one": CorruptState,
    "has another one": CorruptState,
    "goes on": LedgerBroken,
    "lacks the last one": InvalidInput,  # it has not left yet, and nobody would send it there
}


@pytest.mark.parametrize("fault", REFUSED)
async def test_nothing_leaves_if_the_topic_has_another_ledger(
    make_world: Callable[..., Any], tmp_path: Path, fault: str
) -> None:
    world = make_world()
    await served(world, ERASED)
    whole = world.ledger("flights")
    if fault == "lacks one":
        ledger = [*whole[:4], *whole[5:], whole[-1]]
    elif fault == "lacks the last one":
        ledger = whole[:-1]
    elif fault == "goes on":
        entry, _ = ledgers.append(
            ledgers.Chain("flights", whole).head, len(whole), "flights", "retired", {}
        )
        ledger = [*whole, entry]
    else:
        ledger = [*whole[:4], whole[4].replace(b"charge", b"phase"), *whole[5:]]
    with pytest.raises(REFUSED[fault]):
        await out(world, tmp_path / "flights", ledger=ledger)
    await is_served(world)


async def is_served(world: World) -> None:
    """Checks that a data set has not left."""
    process = await served(world)
    assert "flights" in process.worker.datasets


async def moved(first: Any, new: Any, tmp_path: Path) -> None:
    await out(first, tmp_path / "flights")
    await into(new, tmp_path / "flights")


async def test_ids_rows_that_wait_and_budgets_are_the_same_there(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    first.ask("flights", "q1", AA)
    first.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
    await process.run()
    await process.kill()
    before = states(await served(first))["flights"]
    assert len(before.table(StateTable.WAITING)) == 1
    assert before.pairs[StateTable.SPENT, b"0"] != b"0 0"
    new = make_world(seed=5)
    await moved(first, new, tmp_path)
    new.view = MemoryView()
    new.ask("flights", "q1", AA)
    worker = await served(new)
    after = states(worker)["flights"]
    assert len(private(new, after)) == len(private(first, before)) + 1
    assert new.answer("q1") == first.answer("q1")
    assert after.pairs[StateTable.SPENT, b"0"] == before.pairs[StateTable.SPENT, b"0"], (
        "the same id costs nothing again"
    )
    new.cells("flights", "first")  # its rows were counted in the other deployment
    new.cells("flights", "more")
    worker = await served(new)
    phases = len(states(worker)["flights"].table(StateTable.SPENT))
    assert phases == len(before.table(StateTable.SPENT)) + 1
    new.ask("flights", "q2", AA, window={"last_phases": 1})
    await served(new)
    assert new.answer("q2")["n"] == 21_001, "the row that waited is in it, and no other one twice"


async def test_it_is_never_served_again_where_it_left_also_with_an_older_redis(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await process.kill()
    await served(first)
    older = copy.deepcopy(first.view)
    await moved(first, make_world(), tmp_path)
    for view in (first.view, older, MemoryView()):
        first.view = view
        worker = await served(first)
        assert "exported to another deployment" in worker.worker.stopped["flights"]
        assert worker.worker.datasets == {}
        said = worker.worker.context.metrics.exposition().decode()
        assert 'stream_dp_stopped{dataset="flights"} 0.0' in said, "that is no fault"
    record = first.ask("flights", "q9")
    await served(first)
    reason = first.rejection(record)["reason"]
    assert reason["code"] == "stopped"
    assert "moved to another deployment" in reason["message"]
    await out(first, tmp_path / "again")
    mine, again = MovedFolder(tmp_path / "flights"), MovedFolder(tmp_path / "again")
    assert mine.manifest.export == again.manifest.export, "to export again is harmless"
    assert {one.sha256 for one in mine.manifest.files} == {
        one.sha256 for one in again.manifest.files
    }


async def test_a_worker_that_runs_meanwhile_is_followed(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await moved(first, make_world(), tmp_path)
    first.ask("flights", "q1", AA)
    with pytest.raises(Exception, match="another worker has taken over"):
        await process.run()
    assert not first.answers()


async def test_a_name_that_is_or_was_there_is_refused(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await process.kill()
    new = make_world()
    await moved(first, new, tmp_path)
    await served(new)
    for world in (first, new):
        if world is new:
            world.ask("flights", "q1", AA)
            await served(world)
        with pytest.raises(InvalidInput, match="is or was here; if you have imported this folder"):
            await into(world, tmp_path / "flights")
        kinds = [dict(entry.headers)["kind"] for entries in world.journal for entry in entries]
        assert kinds.count(b"restart") == (world is new)


@pytest.mark.parametrize("way", ["out", "into"])
async def test_wherever_it_breaks_off_it_is_repeated(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path, way: str
) -> None:
    first.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
    await process.run()
    await process.kill()
    mine = same(states(await served(first))["flights"])
    deaths = 0
    for place in range(40):
        here, new = first.copy(), make_world(seed=place)
        here.processes = first.processes
        fuse = CountingFuse(place)
        fuses = (fuse, None) if way == "out" else (None, fuse)
        done = False
        for attempt, (leave, arrive) in enumerate([fuses, (None, None)]):
            path = tmp_path / f"{place} {attempt}"
            try:
                await out(here, path, fuse=leave)
                await into(new, path, arrive)
            except first.Crash:
                deaths += 1
            except InvalidInput:
                assert (way, attempt) == ("into", 1), "all of it was there when it broke off"
                done = True
            else:
                done = True
                break
        assert done
        worker = await served(new)
        assert worker.worker.stopped == {}
        assert same(states(worker)["flights"]) == mine
        if deaths <= place:
            break
    assert deaths > 1


@pytest.mark.parametrize("key", ["used 9 0", "run 9", "gone 9"])
async def test_a_folder_whose_private_values_have_other_names_is_refused(
    make_world: Any, tmp_path: Path, key: str
) -> None:
    """What persons have used would be forgotten, or a block be counted for another one."""
    here, new = make_world(), make_world(seed=2)
    found = states(await served(here, EVERY["lives"]))
    name = next(
        name
        for name, state in found.items()
        if any(what.startswith(b"used ") for what in state.table(StateTable.KEPT))
    )
    new.key_file = here.key_file
    path = tmp_path / name
    await out(here, path, name)
    manifest = path / "manifest.json"
    kept = next(
        one.key
        for one in MovedFolder(path).manifest.files
        if one.kind == "kept" and one.key.startswith("used ")
    )
    manifest.write_text(manifest.read_text().replace(f'"{kept}"', f'"{key}"'))
    with pytest.raises(InvalidInput, match="its private values are not those of its data set"):
        await into(new, path)
    manifest.write_text(manifest.read_text().replace(f'"{key}"', f'"{kept}"'))
    assert await into(new, path) == name


def test_what_a_source_has_counted_goes_with_its_data_set() -> None:
    of = SourceRange(topic="db.orders", id="x", partition=0, first=0, last=4)
    assert move._goes((StateTable.CURSOR, of.cursor_key.encode()))
    assert move._goes((StateTable.CURSOR, of.position_key.encode()))
    assert not move._goes((StateTable.CURSOR, b"in.batches:0"))


async def test_a_folder_is_for_its_owner_alone_and_is_whole_or_refused(
    first: Any, process: Any, tmp_path: Path
) -> None:
    await process.kill()
    path = tmp_path / "flights"
    await out(first, path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    with pytest.raises(InvalidInput, match="is not empty"):
        MovingFolder(path)
    block = next(path / one.file for one in MovedFolder(path).manifest.files if one.kind == "kept")
    content = block.read_bytes()
    block.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidInput, match="is not the file that was written"):
        MovedFolder(path)
    block.unlink()
    with pytest.raises(InvalidInput, match="is missing"):
        MovedFolder(path)
    (path / "manifest.json").write_text('{"version": 2}')
    with pytest.raises(InvalidInput, match="no version"):
        MovedFolder(path)


FROZEN = Path(__file__).parents[1] / "golden" / "moved-manifest-v1.json"


def test_a_folder_is_written_as_its_frozen_example_says(tmp_path: Path) -> None:
    folder = MovingFolder(tmp_path / "folder")
    folder.add("kept", b"a block", "block 1")
    folder.add("ledger", b"{}\n{}")
    folder.add("checkpoint", b"what commits add up to")
    folder.finish("people", "0123456789abcdef")
    assert (tmp_path / "folder" / "manifest.json").read_bytes() == FROZEN.read_bytes()
    found = MovedFolder(tmp_path / "folder")
    assert [*found.contents("kept")] == [("block 1", b"a block")]
    assert [*found.contents("ledger")] == [("", b"{}\n{}")]


async def test_what_is_not_whole_does_not_leave(first: Any, process: Any, tmp_path: Path) -> None:
    await process.kill()
    first.kept.clear()
    with pytest.raises(InvalidInput, match="lacks the rows of phase 1 of flights") as refused:
        await out(first, tmp_path / "flights")
    assert "put the topic back" in str(refused.value)
    assert "ask something new about phase 1" in str(refused.value)
    await is_served(first)
    with pytest.raises(InvalidInput, match=r"manifest\.json is missing"):
        MovedFolder(tmp_path / "flights")


async def test_what_is_not_there_or_has_no_rows_is_not_exported(
    first: Any, process: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="there is no data set 'other'"):
        await out(first, tmp_path / "other", "other")
    first.produce("datasets", None, key="flights")
    await served(first)
    with pytest.raises(InvalidInput, match="is retired"):
        await out(first, tmp_path / "retired")


async def test_rows_that_are_lost_are_given_up_before_it_leaves(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    here, new = make_world(), make_world(seed=2)
    here.define("flights", mechanism={"base_share": 0.0})
    await served(here)
    record = here.batch("flights", "waits", rows=[{"carrier": "AA"}])
    await served(here)
    here.expired.add(record.record_id)
    with pytest.raises(InvalidInput, match="no worker has given them up yet"):
        await out(here, tmp_path / "refused")
    await is_served(here)
    assert [event["batches"] for event in here.events("rows_lost")] == [1]
    await out(here, tmp_path / "flights")
    assert await into(new, tmp_path / "flights") == "flights"
    process = await served(new)
    assert process.worker.stopped == {}
    assert new.events("rows_lost") == []


@pytest.mark.parametrize("way", ["a look", "a write-off"])
async def test_rows_that_no_look_has_missed_are_given_up_in_the_ways_that_the_error_names(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path, way: str
) -> None:
    await process.kill()
    await served(first)
    first.kept.clear()
    first.view = MemoryView()
    with pytest.raises(InvalidInput, match="lacks the rows of phase 1 of flights"):
        await out(first, tmp_path / "early")
    if way == "a look":
        first.ask("flights", "q1", AA, window={"phases": [1, 1]})
        with pytest.raises(RowsGone):
            await served(first)
        await served(first)
    else:
        assert (await mend_all(first, "flights"))["flights"] == "written off"
        await served(first)
    await moved(first, new := make_world(seed=2), tmp_path)
    process = await served(new)
    assert process.worker.stopped == {}
    assert "flights" in process.worker.datasets
