"""A data set moves to another deployment: it ends here for good, and goes on there with what it has spent."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import CorruptState, InvalidInput, LedgerBroken
from stream_dp.pipeline.fuse import CrashPoint, unarmed
from stream_dp.pipeline.keeping import Looked
from stream_dp.pipeline.local_logs import LocalKept, LocalLog
from stream_dp.pipeline.moving import Moving
from stream_dp.state import journal, local
from stream_dp.state.journal import Checkpoint
from stream_dp.state.local import LocalStore
from stream_dp.state.moved import MovedFolder, MovingFolder
from tests.pipeline.fakes import FakeRows
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    GATED,
    LIVES,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.simulator import lose_rows
from tests.pipeline.test_healing import durable, started
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def moving(world: World, fuse: Any = unarmed) -> Moving:
    log, kept = LocalLog(world.partitions), LocalKept()
    log.entries = world.journal
    kept.values = world.kept
    return Moving(
        log=log,
        rows=FakeRows(world),
        kept=kept,
        store=world.store,
        published=published_in(world),
        identity="journal",
        facts={},
        key_file=world.key_file,
        fuse=fuse,
    )


def published_in(world: World) -> Any:
    async def published(name: str) -> list[bytes]:
        found = [one.outgoing.value for one in sent(world, "ledger") if one.outgoing.key == name]
        return list(dict.fromkeys(found))

    return published


def there(world: World) -> list[str]:
    """The data sets that can be exported."""
    held = world.store._datasets
    return [name for name in sorted(held) if held[name].definition and not held[name].retired]


@pytest.mark.parametrize("rounds", [ROUNDS, RUNS, GATED, PERSONS, LIVES, ERASED, STANDING, ROTATED])
async def test_it_goes_on_with_all_that_it_had(
    make_world: Callable[..., Any], tmp_path: Path, rounds: Any
) -> None:
    here, new = make_world(), make_world(seed=2)
    await here.run(rounds=rounds)
    new.key_file = here.key_file
    names = there(here)
    assert names
    for name in names:
        await moving(here).out(name, MovingFolder(tmp_path / name))
        assert await moving(new).into(MovedFolder(tmp_path / name)) == name
    process = await started(new)
    assert process.worker.stopped == {}
    for name in names:
        mine, theirs = durable(here.store._datasets[name]), durable(new.store._datasets[name])
        theirs["intents"] = {}
        assert theirs == mine
        persons = here.store._datasets[name].persons
        assert new.store._datasets[name].persons == persons
    catalog = {json.loads(record.outgoing.value)["dataset"] for record in sent(new, "catalog")}
    assert catalog == set(names)
    for name in names:
        published = [one.outgoing.value for one in sent(new, "ledger") if one.outgoing.key == name]
        ledger = await published_in(here)(name)
        assert published[: len(ledger)] == ledger
        assert len(ledger) >= len(here.store._datasets[name].ledger)


async def test_how_far_the_topic_of_blocks_was_looked_through_stays_behind(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    """The offsets of another topic would have a worker miss rows that no commit names."""
    here, new = make_world(), make_world(seed=2)
    await here.run(rounds=ERASED)
    await here.run()
    assert Looked.of(here.store._datasets["flights"].meta).end > 0
    await moving(here).out("flights", MovingFolder(tmp_path / "flights"))
    await moving(new).into(MovedFolder(tmp_path / "flights"))
    await started(new)
    assert Looked.of(new.store._datasets["flights"].meta) == Looked()


@pytest.fixture
def short_tail(monkeypatch: pytest.MonkeyPatch) -> int:
    """Stores keep three entries of a ledger, so that most of them are on the topic alone."""
    for module in (local, journal):
        monkeypatch.setattr(module, "LEDGER_TAIL", 3)
    return 3


async def test_its_ledger_is_taken_from_the_topic_where_the_store_has_the_last_entries_alone(
    make_world: Callable[..., Any], tmp_path: Path, short_tail: int
) -> None:
    await test_it_goes_on_with_all_that_it_had(make_world, tmp_path, ERASED)
    ((_, stored),) = MovedFolder(tmp_path / "flights").contents("checkpoint")
    assert len(Checkpoint.from_bytes(stored).ledger) > 2 * short_tail


@pytest.mark.parametrize("fault", ["lacks one", "has another one", "is cut"])
async def test_nothing_leaves_if_the_topic_does_not_have_all_of_its_ledger(
    make_world: Callable[..., Any], tmp_path: Path, short_tail: int, fault: str
) -> None:
    world = make_world()
    await world.run(rounds=ERASED)
    whole = await published_in(world)("flights")

    async def published(name: str) -> list[bytes]:
        if fault == "lacks one":
            return [*whole[:4], *whole[5:]]
        if fault == "is cut":
            return whole[: len(whole) - short_tail - 1]
        return [*whole[:4], whole[4].replace(b"charge", b"phase"), *whole[5:]]

    with pytest.raises(LedgerBroken):
        await dataclasses.replace(moving(world), published=published).out(
            "flights", MovingFolder(tmp_path / "flights")
        )
    assert not world.held("flights").meta.get("moved")


def sent(world: World, role: str) -> list[Sent]:
    return [one for one in world.trail if isinstance(one, Sent) and one.outgoing.role == role]


async def moved(first: Any, new: Any, tmp_path: Path) -> None:
    await moving(first).out("flights", MovingFolder(tmp_path / "flights"))
    await moving(new).into(MovedFolder(tmp_path / "flights"))


async def test_ids_rows_that_wait_and_budgets_are_the_same_there(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    first.ask("flights", "q1", AA)
    first.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
    await process.run()
    await process.kill()
    waiting, spent = (
        first.store._datasets["flights"].pending,
        first.store._datasets["flights"].spent,
    )
    assert waiting
    assert spent[0][0] > 0
    new = make_world(seed=5)
    await moved(first, new, tmp_path)
    worker = new.process()
    await worker.assign()
    await worker.run()
    assert new.store._datasets["flights"].pending == waiting
    assert new.store._datasets["flights"].spent == spent
    new.ask("flights", "q1", AA)
    await worker.run()
    assert new.answer("q1") == first.answer("q1")
    assert new.store._datasets["flights"].spent == spent, "the same id costs nothing again"
    new.cells("flights", "first")  # its rows were counted in the other deployment
    new.cells("flights", "more")
    await worker.run()
    await worker.kill()
    assert len(new.store._datasets["flights"].blocks) == 2
    new.store = LocalStore()  # and it heals from the journal there
    worker = await started(new)
    assert worker.worker.stopped == {}
    assert len(new.store._datasets["flights"].blocks) == 2


async def test_it_is_never_served_again_where_it_left_also_from_an_older_store(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await process.kill()
    older = copy.deepcopy(first.store)
    await moved(first, make_world(), tmp_path)
    for store in (first.store, older, LocalStore()):
        first.store = store
        worker = await started(first)
        assert "exported to another deployment" in worker.worker.stopped["flights"]
        assert worker.worker.datasets == {}
        said = worker.worker.metrics.exposition().decode()
        assert 'stream_dp_stopped{dataset="flights"} 0.0' in said, "that is no fault"
    record = first.ask("flights", "q9")
    await started(first)
    reason = first.rejection(record)["reason"]
    assert reason["code"] == "stopped"
    assert "moved to another deployment" in reason["message"]
    await moving(first).out("flights", MovingFolder(tmp_path / "again"))
    mine, again = MovedFolder(tmp_path / "flights"), MovedFolder(tmp_path / "again")
    assert mine.manifest.files == again.manifest.files, "to export again is harmless"


async def test_a_deployment_that_did_not_know_would_spend_the_budget_again(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    """The broken copy: here the commit that says that the data set has left says nothing."""
    await process.kill()
    new = make_world(seed=2)
    await moved(first, new, tmp_path)
    first.store._datasets["flights"].meta["moved"] = ""
    for world in (first, new):
        world.ask("flights", "q1", AA)
        worker = await started(world)
        assert worker.worker.stopped == {}
        assert world.answers()
    mine, theirs = (world.held("flights").spent[0][0] for world in (first, new))
    assert mine > 0
    assert theirs > 0


async def test_a_worker_that_runs_meanwhile_is_fenced(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await moved(first, make_world(), tmp_path)
    charged = list(first.store._datasets["flights"].spent)
    first.ask("flights", "q1", AA)
    with pytest.raises(Exception, match="another worker has taken over"):
        await process.run()
    assert first.store._datasets["flights"].spent == charged
    assert not first.answers()


async def test_a_name_that_is_or_was_there_is_refused(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    await process.kill()
    new = make_world()
    await moved(first, new, tmp_path)
    folder = MovedFolder(tmp_path / "flights")
    await started(new)
    for world in (first, new):
        journal = copy.deepcopy(world.journal)
        if world is new:
            world.ask("flights", "q1", AA)
            await started(world)
        with pytest.raises(InvalidInput, match="is or was here; if you have imported this folder"):
            await moving(world).into(folder)
        kinds = [dict(entry.headers)["type"] for entries in world.journal for entry in entries]
        assert kinds.count(b"checkpoint") == (world is new), journal


@pytest.mark.parametrize("way", ["out", "into"])
async def test_wherever_it_breaks_off_it_is_repeated(
    first: Any, process: Any, make_world: Callable[..., Any], tmp_path: Path, way: str
) -> None:
    await process.kill()
    deaths = 0
    for place in range(20):
        here, new = copy.deepcopy(first.store.__dict__), make_world(seed=place)
        journal, kept = copy.deepcopy(first.journal), dict(first.kept)
        fuse = first.Fuse(place)
        out, into = (fuse, unarmed) if way == "out" else (unarmed, fuse)
        for attempt, (leave, arrive) in enumerate([(out, into), (unarmed, unarmed)]):
            path = tmp_path / f"{place} {attempt}"
            try:
                await moving(first, leave).out("flights", MovingFolder(path))
                await moving(new, arrive).into(MovedFolder(path))
            except first.Crash:
                deaths += 1
            except InvalidInput:
                assert (way, attempt) == ("into", 1), "all of it was there when it broke off"
            else:
                break
        worker = await started(new)
        assert worker.worker.stopped == {}
        mine, theirs = (world.held("flights") for world in (first, new))
        assert durable(theirs) == durable(mine)
        first.store.__dict__ = here
        first.journal[:] = journal
        first.kept.clear()
        first.kept.update(kept)
    assert deaths > 1


async def test_a_folder_is_for_its_owner_alone_and_is_whole_or_refused(
    first: Any, process: Any, tmp_path: Path
) -> None:
    await process.kill()
    path = tmp_path / "flights"
    await moving(first).out("flights", MovingFolder(path))
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
    folder.add("checkpoint", b"what commits add up to")
    folder.add("kept", b"a block", "1/00112233445566ff/0")
    folder.add("waiting", b"rows")
    folder.finish("people", "0123456789abcdef")
    assert (tmp_path / "folder" / "manifest.json").read_bytes() == FROZEN.read_bytes()
    found = MovedFolder(tmp_path / "folder")
    assert [*found.contents("kept")] == [("1/00112233445566ff/0", b"a block")]
    assert [*found.contents("waiting")] == [("", b"rows")]


@pytest.mark.parametrize("fault", ["block", "spent"])
async def test_what_is_not_whole_does_not_leave(
    first: Any, process: Any, tmp_path: Path, fault: str
) -> None:
    await process.kill()
    held = first.store._datasets["flights"]
    if fault == "block":
        first.kept.clear()
    else:
        held.spent[0] = (5, 0)
    with pytest.raises(
        CorruptState, match=r"are not kept any more|is spent is not what its ledger"
    ):
        await moving(first).out("flights", MovingFolder(tmp_path / "flights"))
    assert not held.meta.get("moved")
    with pytest.raises(InvalidInput, match=r"manifest\.json is missing"):
        MovedFolder(tmp_path / "flights")


async def test_what_has_not_left_yet_leaves_before_an_export(world: Any, tmp_path: Path) -> None:
    """The other deployment sends nothing of what was committed here."""
    world.define("flights", mechanism={"base_share": 0.0})
    await started(world)
    world.cells("flights", "one")
    await started(world)
    world.ask("flights", "q1", AA)
    worker = world.process(world.Fuse(1, CrashPoint.AFTER_APPEND))
    await worker.assign()
    with pytest.raises(world.Crash):
        await worker.run()
    await worker.kill()
    with pytest.raises(InvalidInput, match="have not left yet"):
        await moving(world).out("flights", MovingFolder(tmp_path / "early"))
    assert not world.held("flights").meta.get("moved")
    await started(world)
    await moving(world).out("flights", MovingFolder(tmp_path / "flights"))
    assert world.answer("q1")["status"] == "answered"


async def test_what_is_not_there_or_has_no_rows_is_not_exported(
    first: Any, process: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="there is no data set 'other'"):
        await moving(first).out("other", MovingFolder(tmp_path / "other"))


async def test_rows_that_are_lost_are_given_up_before_it_leaves(
    make_world: Callable[..., Any], tmp_path: Path
) -> None:
    here, new = make_world(), make_world(seed=2)
    here.define("flights", mechanism={"base_share": 0.0})
    await started(here)
    here.batch("flights", "waits", rows=[{"carrier": "AA"}])
    await started(here)
    lose_rows(here)
    here.store = LocalStore()
    with pytest.raises(InvalidInput, match="no worker has given them up yet"):
        await moving(here).out("flights", MovingFolder(tmp_path / "refused"))
    assert not here.store._datasets["flights"].meta.get("moved")
    await started(here)
    assert [event["batches"] for event in here.events("rows_lost")] == [1]
    await moving(here).out("flights", MovingFolder(tmp_path / "flights"))
    assert await moving(new).into(MovedFolder(tmp_path / "flights")) == "flights"
    process = await started(new)
    assert process.worker.stopped == {}
    assert new.events("rows_lost") == []
