"""A journal that was cut: data sets that are whole in the store go on, others are stopped or closed."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.core.accounting import UNITS
from stream_dp.errors import CorruptState, Fenced, InvalidInput
from stream_dp.messages import Definition
from stream_dp.pipeline import closing, repairing
from stream_dp.pipeline.chains import Reader
from stream_dp.pipeline.checkpoints import Often
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.keeping import Finder, Keeper, field_of
from stream_dp.pipeline.local_logs import LocalKept, LocalLog
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.lost_rows import GONE, Gone
from stream_dp.pipeline.repairing import Repairing, cut_partitions
from stream_dp.pipeline.witnesses import WITNESSES, Said, Witnesses, chained
from stream_dp.state import journal, local
from stream_dp.state import ledger as ledgers
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Snapshot
from tests.pipeline.crash import CountingFuse
from tests.pipeline.fakes import FakeRows
from tests.pipeline.referee.ledger import ledger_holds
from tests.pipeline.referee.outcomes import at_rest, one_outcome
from tests.pipeline.referee.rows import rows_once
from tests.pipeline.scenarios import (
    AA,
    DAY_MS,
    ERASED,
    GATED,
    LATE,
    LIVES,
    NOV_1,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
    THESIS,
)
from tests.pipeline.simulator import lose_rows
from tests.pipeline.test_healing import announced, durable, lost_looks, started
from tests.pipeline.trail import Committed, Looked, Sent
from tests.pipeline.world import World, definition

UA = {"attribute": "carrier", "eq": "UA"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "BEYOND", 40)
    monkeypatch.setattr(repairing, "_FILLED_AT_ONCE", 30)


class FusedLog(LocalLog):
    """The journal of a world, with a fuse before and after each append."""

    def __init__(self, world: World, fuse: CountingFuse) -> None:
        super().__init__(world.partitions)
        self.entries, self._firsts, self._fuse = world.journal, world.forgotten, fuse

    async def append(self, partition: int, entries: Sequence[Entry]) -> int | None:
        self._fuse("before append")
        first = await super().append(partition, entries)
        self._fuse("after append")
        return first


def outputs(world: World) -> dict[str, LocalLog]:
    """What has left, as topics of one partition."""
    logs = {role: LocalLog(1) for role in WITNESSES}
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role in logs:
            one = event.outgoing
            entry = Entry(one.key.encode(), one.value, one.headers)
            logs[one.role].entries[0].append(entry)
    return logs


def inputs(world: World) -> dict[str, LocalLog]:
    logs = {role: LocalLog(world.partitions) for role in ("batches", "queries")}
    for role, log in logs.items():
        for partition in range(world.partitions):
            log.entries[partition] = [
                Entry(
                    record.key or b"",
                    record.value or b"",
                    tuple((name, value or b"") for name, value in record.headers.items()),
                )
                for record in world.log[f"in.{role}:{partition}"]
            ]
    return logs


def repairs(
    world: World, partition: int, *closes: str, fuse: CountingFuse | None = None, **changes: Any
) -> Repairing:
    kept = LocalKept()
    kept.values = world.kept
    settings: dict[str, Any] = {
        "partition": partition,
        "log": FusedLog(world, fuse or CountingFuse()),
        "rows": FakeRows(world),
        "kept": kept,
        "store": world.store,
        "identity": "journal",
        "facts": {},
        "key_file": world.key_file,
        "outputs": outputs(world),
        "inputs": inputs(world),
        "names": {"batches": "in.batches", "queries": "in.queries"},
        "closes": frozenset(closes),
    }
    return Repairing(**(settings | changes))


async def repair_all(world: World, *closes: str) -> dict[str, str]:
    """Repairs every partition; returns what was found of each data set."""
    found: dict[str, str] = {}
    for partition in range(world.partitions):
        here = [
            name for name in closes if partition_of(name.encode(), world.partitions) == partition
        ]
        for one in await repairs(world, partition, *here).repair():
            found[one.dataset] = one.verdict
    return found


def cut(world: World, share: float = 0.5) -> None:
    for entries in world.journal:
        del entries[int(len(entries) * share) :]


def complaints(world: World) -> list[str]:
    """What the referee says, but for what it reads on the journal: that was cut."""
    checks = (
        rows_once,
        one_outcome,
        at_rest,
        ledger_holds,
    )
    whole = world.trail
    world.trail = [
        one for one in whole if getattr(one, "record", b"-")
    ]  # without parts of checkpoints
    try:
        return [*several_answers(world), *(one for check in checks for one in check(world))]
    finally:
        world.trail = whole


def several_answers(world: World) -> list[str]:
    answers: dict[tuple[str, str], set[bytes]] = {}
    for event in world.trail:
        one = event.outgoing if isinstance(event, Sent) else None
        if (
            one is not None
            and one.role == "answers"
            and json.loads(one.value)["status"] != "quoted"
        ):
            query_id = dict(one.headers)["query_id"].decode()
            answers.setdefault((one.key, query_id), set()).add(one.value)
    return [
        f"{query_id} has two answers" for (_, query_id), some in answers.items() if len(some) > 1
    ]


async def served(world: Any, rounds: Any) -> None:
    await world.run(rounds=rounds)
    await started(world)  # which notes that all of it is read


ALL = [ROUNDS, RUNS, GATED, PERSONS, ERASED, STANDING, ROTATED, THESIS]


def served_again(world: Any) -> list[str]:
    """The data sets of which events say that the journal was repaired, each as often as it is said."""
    healed = [event for event in world.released("events") if event["event"] == "healed"]
    return sorted(event["dataset"] for event in healed if event["commits"] == 0)


@pytest.mark.parametrize("rounds", ALL)
async def test_what_is_whole_in_the_store_goes_on_and_survives_the_loss_of_the_store(
    world: Any, rounds: Any
) -> None:
    await served(world, rounds)
    cut(world)
    process = await started(world)
    assert process.worker.aside == {0, 1}
    before = {name: durable(held) for name, held in world.store._datasets.items()}
    found = await repair_all(world)
    assert set(found.values()) <= {"store", "whole"}
    assert "store" in found.values()
    process = await started(world)
    assert process.worker.aside == set()
    assert process.worker.stopped == {}
    assert {name: durable(held) for name, held in world.store._datasets.items()} == before
    again = sorted(name for name, verdict in found.items() if verdict == "store")
    assert served_again(world) == again, "so that clients know it"
    await started(world)
    assert served_again(world) == again, "once"
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    after = {name: durable(held) for name, held in world.store._datasets.items()}
    assert after == before
    # An id whose answer was dropped may have another one.
    assert rounds is ROTATED or complaints(world) == []


async def test_new_work_after_a_repair_is_healed_from_the_journal_as_ever(
    first: Any, process: Any
) -> None:
    first.ask("flights", "q1", AA)
    first.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
    await process.run()
    await process.kill()
    await started(first)
    older = copy.deepcopy(first.store)
    cut(first)
    await repair_all(first)
    first.ask("flights", "q1", AA)
    first.ask("flights", "q2", LATE)
    await started(first)
    before = durable(first.store._datasets["flights"])
    for store in (older, LocalStore()):
        first.store = store
        worker = await started(first)
        assert worker.worker.stopped == {}
        assert durable(first.store._datasets["flights"]) == before
    assert complaints(first) == []


async def lost_after_a_repair(world: Any) -> None:
    """Some answers have not left when the journal is cut, and the store is lost behind its repair."""
    world.define("flights", mechanism={"base_share": 0.0})
    world.cells("flights", "one")
    await started(world)
    await started(world)
    for number in range(3):
        world.ask("flights", f"q{number}", (AA, LATE)[number % 2])
    process = world.process(CountingFuse(0, CrashPoint.BEFORE_SEND))
    with contextlib.suppress(world.Crash):
        await process.assign()
        await process.run()
    await process.kill()
    assert world.held("flights").outbox
    assert not any(isinstance(one, Sent) and one.outgoing.role == "answers" for one in world.trail)
    cut(world, 0.0)
    assert await repair_all(world) == {"flights": "store"}
    world.store = LocalStore()
    worker = await started(world)
    assert worker.worker.stopped == {}


async def test_what_had_not_left_before_a_repair_leaves_though_the_store_is_lost_then(
    world: Any,
) -> None:
    await lost_after_a_repair(world)
    assert complaints(world) == []
    assert world.answer("q2")["status"] == "answered"


async def test_a_repair_that_puts_only_a_checkpoint_on_the_journal_would_lose_answers(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "queued", lambda *_: ())
    await lost_after_a_repair(world)
    assert complaints(world) != []


async def believed(first: Any, process: Any) -> bool:
    """Whether a copy is believed whose notes are of offsets that other records have now."""
    await process.run()
    await process.kill()
    await started(first)
    older = copy.deepcopy(first.store)
    cut(first)
    await repair_all(first)
    first.ask("flights", "q1", AA)
    await started(first)
    before = durable(first.store._datasets["flights"])
    (key,) = older._datasets["flights"].notes
    note = older._datasets["flights"].notes[key]
    partition = partition_of(b"flights", first.partitions)
    behind = len(first.journal[partition])  # as if the log had been as long before it was cut
    older._datasets["flights"].notes[key] = type(note)(behind, note.epoch, note.seq)
    first.store = older
    await started(first)
    return durable(first.store._datasets["flights"]) != before


async def test_an_older_copy_noted_beyond_the_repair_is_not_believed(
    first: Any, process: Any
) -> None:
    assert not await believed(first, process)


async def test_a_reader_that_does_not_notice_the_epoch_of_a_repair_would_believe_it(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy."""
    read = Reader.read

    def blind(self: Reader, offset: int, entry: Entry) -> Any:
        found = read(self, offset, entry)
        self.skipped = False
        return found

    monkeypatch.setattr(Reader, "read", blind)
    assert await believed(first, process)


async def test_a_repair_without_witnesses_would_take_a_store_that_is_behind(
    first: Any, process: Any
) -> None:
    """The broken copy: it reads no output topic."""
    first.ask("flights", "q1", AA)
    await process.run()
    older = copy.deepcopy(first.store)
    first.ask("flights", "q2", LATE)
    await process.run()
    await process.kill()
    cut(first, 0.3)
    first.store = older
    partition = partition_of(b"flights", first.partitions)
    blind = repairs(first, partition, outputs={})
    (one,) = [one for one in await blind.judged() if one.dataset == "flights"]
    assert one.verdict == "store"
    (one,) = [one for one in await repairs(first, partition).judged() if one.dataset == "flights"]
    assert one.verdict == "lost"


@pytest.mark.parametrize("lost", ["older", "empty"])
async def test_a_store_that_is_behind_what_was_seen_is_stopped_and_others_go_on(
    make_world: Any, lost: str
) -> None:
    world = make_world()
    world.partitions = 1
    world.log = {f"in.{role}:0": [] for role in ("datasets", "batches", "queries")}
    world.journal = [[]]
    world.define("flights", mechanism={"base_share": 0.0})
    world.define("trains", mechanism={"base_share": 0.0})
    world.cells("flights", "one")
    world.cells("trains", "one")
    await served(world, [lambda _: None])
    older = copy.deepcopy(world.store)
    world.ask("flights", "q1", AA)
    await started(world)
    cut(world, 0.3)
    held = world.store._datasets
    if lost == "older":
        held["flights"] = older._datasets["flights"]
    else:
        del held["flights"]
    (repairing_one,) = [repairs(world, 0)]
    judged = {one.dataset: one for one in await repairing_one.judged()}
    assert judged["flights"].verdict == "lost"
    assert "shows its commit" in judged["flights"].why
    assert judged["trains"].verdict == "store"
    entries = len(world.journal[0])
    assert entries == len(world.journal[0]), "to look changes nothing"
    await repairing_one.repair()
    for _ in range(2):  # for ever, also where the store is empty
        process = await started(world)
        assert "dataset close flights" in process.worker.stopped["flights"]
        assert "stream-dp journal mend --dataset flights" in process.worker.stopped["flights"]
        assert set(process.worker.datasets) == {"trains"}
        record = world.define("flights", mechanism={"base_share": 0.0})
        await started(world)
        assert world.rejection(record)["reason"]["code"] == "stopped"
        del held["flights"]
        world.store._listed.clear()
    world.ask("trains", "q2", AA)
    await started(world)
    assert world.answer("q2")["status"] == "answered"


async def test_what_protects_persons_for_life_is_not_sent_to_a_closing_that_would_refuse_it(
    make_world: Any,
) -> None:
    world = make_world()
    world.partitions = 1
    world.log = {f"in.{role}:0": [] for role in ("datasets", "batches", "queries")}
    world.journal = [[]]
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2, "lifetime": True}
    world.define("flights", privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit})
    world.define("trains")
    for name in ("flights", "trains"):
        columns = {"carrier": ["AA", "UA"] * 20, "user_id": [*range(40)]}
        world.batch(name, "one", columns=columns if name == "flights" else {"carrier": ["AA"]})
    await started(world)
    cut(world, 0.3)
    world.store._datasets.clear()
    judged = {one.dataset: one for one in await repairs(world, 0).repair()}
    assert {one: (judged[one].verdict, judged[one].for_life) for one in judged} == {
        "flights": ("lost", True),
        "trains": ("lost", False),
    }
    stopped = (await started(world)).worker.stopped
    assert "protects persons for life, so it cannot be closed" in stopped["flights"]
    assert "stream-dp journal mend --dataset flights" in stopped["flights"]
    assert "dataset close" not in stopped["flights"]
    assert "dataset close trains" in stopped["trains"]


@pytest.mark.parametrize("soon", [True, False], ids=["before it is served", "later"])
async def test_a_look_that_was_announced_before_a_repair_stays_lost_if_the_store_is_lost(
    make_world: Any, soon: bool
) -> None:
    world = make_world()
    await announced(world)
    spent = list(world.held("flights").spent)
    cut(world)
    assert (await repair_all(world))["flights"] == "store"
    held = world.held("flights")
    assert held.intents == {}
    assert held.spent == spent
    assert len(lost_looks(world)) == 1
    if not soon:
        process = await started(world)
        assert process.worker.stopped == {}
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    assert len(lost_looks(world)) == 1
    assert world.answer("q1")["status"] == "answered"
    assert several_answers(world) == []
    # What had not left before the repair is in no checkpoint.
    assert soon or complaints(world) == []


async def noted_as_gone(world: Any) -> None:
    """The store was healed without rows that are lost, and the worker has died before it gave them up."""
    world.define("flights", **FLIGHTS)
    await started(world)
    for batch in ("one", "two"):
        world.cells("flights", batch)
        await started(world)
    world.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
    await started(world)
    lose_rows(world)
    world.store = LocalStore()
    process = world.process(CountingFuse(0, CrashPoint.BEFORE_COMMIT))
    with contextlib.suppress(world.Crash):
        await process.assign()
        await process.run()
    await process.kill()
    assert world.held("flights").vault[GONE] == b"2 1"
    assert world.held("flights").blocks == [b"", b""]


async def given_up_after_a_repair(world: Any, *, soon: bool, noted: bool = True) -> None:
    await noted_as_gone(world)
    if not noted:  # as where a later commit was to erase the rows, and was cut off
        del world.held("flights").vault[GONE]
    cut(world)
    assert (await repair_all(world))["flights"] == "store"
    if not soon:
        await started(world)
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    (event,) = world.events("rows_lost")
    assert (event["phases"], event["batches"]) == ([1, 2], 1 if noted else 0)
    assert world.held("flights").vault == {}
    world.ask("flights", "q1", AA)
    await started(world)
    world.cells("flights", "three")
    await started(world)
    world.ask("flights", "q2", AA, window={"last_phases": 1})
    await started(world)
    assert world.answer("q1")["reason"]["code"] == "rows_gone"
    assert world.answer("q2")["status"] == "answered"
    assert world.answer("q2")["window"] == [3, 3]


@pytest.mark.parametrize("soon", [True, False], ids=["before it is served", "later"])
async def test_rows_that_were_noted_as_lost_before_a_repair_stay_lost(
    make_world: Any, soon: bool
) -> None:
    await given_up_after_a_repair(make_world(), soon=soon)


async def test_rows_that_a_store_lacks_without_a_note_are_given_up_after_a_repair(
    make_world: Any,
) -> None:
    await given_up_after_a_repair(make_world(), soon=False, noted=False)


async def test_a_repair_that_keeps_nothing_as_a_block_ends_the_worker_later(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy: what stands in place of a lost block is kept and found again as if it were one."""

    async def keeps(self: Repairing, snapshot: Snapshot) -> tuple[dict[str, str], Gone]:
        keeper = Keeper(self.kept, self.log.partitions)
        names = [await keeper.keep("flights", phase, b"") for phase in (1, 2)]
        return {field_of(phase): name for phase, name in enumerate(names, 1)}, Gone()

    async def finds(self: Finder, dataset: str, phase: int, name: str) -> bytes | None:
        return await self.find(dataset, phase, name)

    monkeypatch.setattr(Repairing, "_keep", keeps)
    monkeypatch.setattr(Finder, "find_block", finds)
    with pytest.raises(CorruptState, match="is cut short"):
        await asked_after_a_repair(make_world())


async def asked_after_a_repair(world: Any) -> None:
    """Loses the store after a repair of a data set whose rows are lost, and asks what needs them."""
    await noted_as_gone(world)
    cut(world)
    await repair_all(world)
    world.store = LocalStore()
    world.ask("flights", "q1", AA)
    await started(world)


async def test_a_block_that_an_earlier_repair_has_kept_empty_is_lost(make_world: Any) -> None:
    world = make_world()
    await served(world, [flights, lambda w: w.cells("flights", "one")])
    cut(world)
    world.kept.clear()
    await repair_all(world)
    (name,) = world.kept
    world.kept[name] = b""
    world.store = LocalStore()
    world.ask("flights", "q1", AA)
    process = await started(world)
    assert process.worker.stopped == {}
    assert [event["phases"] for event in world.events("rows_lost")] == [[1, 1]]
    assert world.answer("q1")["reason"]["code"] == "rows_gone"


async def for_life(world: Any, *, lost: str) -> dict[str, int]:
    """Repairs data sets that protect persons for life whose blocks are lost, or all that is kept of them.

    Returns:
        For each data set, in how many phases nothing but the store knows what persons have used.
    """
    await served(world, LIVES)
    cut(world)
    phases = [name for name in world.kept if name.split(b"/")[1].isdigit()]
    for name in phases:
        if lost == "all" or name.endswith(b"/0"):
            del world.kept[name]
    found: dict[str, int] = {}
    for partition in range(world.partitions):
        for one in await repairs(world, partition).repair():
            assert one.verdict in ("store", "whole")
            found[one.dataset] = one.unkept
    process = await started(world)
    assert process.worker.stopped == {}
    return found


async def test_a_repair_keeps_what_persons_have_used_for_life_next_to_a_block_that_was_lost(
    world: Any,
) -> None:
    assert set((await for_life(world, lost="blocks")).values()) == {0}
    before = {name: (durable(one), one.persons) for name, one in world.store._datasets.items()}
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    after = {name: (durable(one), one.persons) for name, one in world.store._datasets.items()}
    assert after == before


async def test_a_repair_says_where_nothing_but_the_store_knows_what_persons_have_used_for_life(
    world: Any,
) -> None:
    found = await for_life(world, lost="all")
    unkept = {name for name, phases in found.items() if phases}
    assert unkept
    for name, phases in found.items():
        assert phases in (0, len(world.held(name).spent))
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped.keys() == unkept
    assert all("used for life is on no topic" in why for why in process.worker.stopped.values())


async def started_on(world: Any, identity: str) -> Any:
    """A worker that has nothing left to do, on a journal of some identity."""
    process = world.process(identity=identity)
    await process.assign()
    await process.run()
    await process.kill()
    return process


async def on_a_new_topic(world: Any) -> LocalStore:
    """A data set that is whole in the store, and a new topic as its journal; returns an older copy."""
    world.define("flights", mechanism={"base_share": 0.0})
    await started(world)
    world.cells("flights", "one")
    world.ask("flights", "q1", AA)
    await started(world)
    await started(world)
    older = copy.deepcopy(world.store)
    world.ask("flights", "q2", LATE)
    await started(world)
    world.journal = [[] for _ in range(world.partitions)]
    world.forgotten = [0] * world.partitions
    return older


@pytest.mark.parametrize("closes", [(), ("flights",)], ids=["mend", "close"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "expired"])
@pytest.mark.parametrize("first", [True, False], ids=["worker first", "repair first"])
async def test_a_new_journal_begins_with_what_the_store_has(
    make_world: Any, first: bool, seen: bool, closes: tuple[str, ...]
) -> None:
    world = make_world()
    await on_a_new_topic(world)
    partition = partition_of(b"flights", world.partitions)
    if first:
        process = await started_on(world, "other")
        assert "journal mend" in process.worker.stopped["flights"]
    before = durable(world.held("flights"))
    witnesses: dict[str, Any] = {} if seen else {"outputs": {}}
    verdicts = []
    for _ in range(2):
        repair = repairs(world, partition, *closes, identity="other", **witnesses)
        verdicts += [(one.verdict, one.stored) for one in await repair.repair()]
    stored = world.held("flights").seq
    assert verdicts == [
        ("store", stored - 1),
        ("whole", stored),
    ]  # with the commit that tells clients
    process = await started_on(world, "other")
    assert process.worker.stopped == {}
    assert durable(world.held("flights")) == before
    assert world.events("written_off") == []
    world.store = LocalStore()
    process = await started_on(world, "other")
    assert process.worker.stopped == {}
    assert durable(world.held("flights")) == before
    assert several_answers(world) == []


async def test_on_a_new_journal_a_store_that_is_behind_is_lost(make_world: Any) -> None:
    world = make_world()
    world.store = await on_a_new_topic(world)
    partition = partition_of(b"flights", world.partitions)
    for _ in range(2):
        (one,) = await repairs(world, partition, identity="other").repair()
        assert one.verdict == "lost"
        assert f"the store and the journal have {one.stored:,} commits" in one.why
        process = await started_on(world, "other")
        assert "dataset close flights" in process.worker.stopped["flights"]


async def test_what_was_never_noted_begins_again_with_what_the_store_has(make_world: Any) -> None:
    """The worker has died before it noted anything, and then the journal was cut."""
    world = make_world()
    world.define("flights", mechanism={"base_share": 0.0})
    process = world.process(CountingFuse(0, CrashPoint.AFTER_RELEASE))
    await process.assign()
    with contextlib.suppress(world.Crash):
        await process.run()
    await process.kill()
    held = world.held("flights")
    assert held.seq == 1
    assert held.notes == {}
    partition = partition_of(b"flights", world.partitions)
    while dict(world.journal[partition][-1].headers)["type"] != b"epoch":
        world.journal[partition].pop()
    (one,) = await repairs(world, partition).repair()
    assert one.verdict == "store"
    before = durable(held)
    for store in (world.store, LocalStore()):
        world.store = store
        process = await started(world)
        assert process.worker.stopped == {}
        assert durable(world.held("flights")) == before


async def lost_altogether(world: Any) -> list[str]:
    """What is wrong after the journal and the store of a data set were lost, whatever comes then."""
    world.partitions, world.often = 1, Often(12, per_id=0)
    world.log = {f"in.{role}:0": [] for role in ("datasets", "batches", "queries")}
    world.journal, world.forgotten = [[]], [0]
    world.define("flights", mechanism={"base_share": 0.0})
    world.cells("flights", "one")
    world.ask("flights", "q1", AA)
    await served(world, [lambda _: None])
    world.journal[0].clear()
    world.forgotten[0] = 0
    world.store = LocalStore()
    assert await repair_all(world) == {"flights": "lost"}
    said: list[str] = []

    async def again(when: str) -> None:
        world.define("flights", mechanism={"base_share": 0.0})
        world.cells("flights", "one")
        world.ask("flights", "q1", AA)
        process = await started(world)
        if "flights" not in process.worker.stopped or "flights" in process.worker.datasets:
            said.append(f"served {when}")

    await again("at once")
    await again("behind the repair")
    world.define("trains", mechanism={"base_share": 0.0})
    await started(world)
    world.cells("trains", "one")
    await started(world)
    for number in range(40):  # by then checkpoints of trains are on the journal
        world.ask("trains", f"t{number}", AA)
        if number % 10 == 9:
            await again("next to other work")
    types = [dict(entry.headers)["type"] for entry in world.journal[0]]
    assert types.count(b"checkpoint") > 1
    world.store._listed.clear()
    await again("where the store has noted nothing")
    world.store = LocalStore()
    await again("from an empty store")
    await again("behind that")
    blind = await repairs(world, 0, outputs={}).repair()  # as if the outputs had expired
    if "lost" not in [one.verdict for one in blind if one.dataset == "flights"]:
        said.append("not lost any more")
    await again("after another repair")
    await again("behind that one")
    assert world.answer("t39")["status"] == "answered"
    return [*said, *several_answers(world)]


async def test_a_data_set_of_which_nothing_is_left_stays_stopped_for_ever(make_world: Any) -> None:
    assert await lost_altogether(make_world()) == []


async def test_a_store_that_does_not_list_it_would_let_it_be_served_again(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy: of a data set of which the journal has no record, the name is not noted."""
    noted = LocalStore.note_listed

    async def forgetful(
        self: LocalStore, partition: str, note: Any, names: Any, watermarks: Any, *, since: Any
    ) -> None:
        named = [one for one in names if one != "flights"]
        await noted(self, partition, note, named, watermarks, since=since)

    monkeypatch.setattr(LocalStore, "note_listed", forgetful)
    world = make_world()
    world.shows_ledger = False  # or the ledger would show it
    said = await lost_altogether(world)
    assert "served behind the repair" in said
    assert "q1 has two answers" in said


async def test_a_store_that_comes_back_whole_is_taken_by_the_next_repair(
    first: Any, process: Any
) -> None:
    first.ask("flights", "q1", AA)
    await process.run()
    await process.kill()
    await started(first)
    whole = copy.deepcopy(first.store)
    cut(first, 0.4)
    first.store = LocalStore()
    assert (await repair_all(first))["flights"] == "lost"
    first.store = whole
    process = await started(first)
    assert "flights" not in process.worker.datasets, "a repair looks at it first"
    assert (await repair_all(first))["flights"] == "store"
    process = await started(first)
    assert process.worker.stopped == {}
    first.ask("flights", "q2", LATE)
    await started(first)
    assert complaints(first) == []


async def test_another_history_than_what_was_seen_is_not_taken(first: Any, process: Any) -> None:
    """A store with as many commits, and another answer or ledger entry than the topics."""
    first.ask("flights", "q1", AA)
    await process.run()
    await process.kill()
    await started(first)
    held = first.store._datasets["flights"]
    cut(first, 0.4)
    stored = held.answers["ana q1"]
    held.answers["ana q1"] = stored[:-2] + b" }"
    assert (await repair_all(first))["flights"] == "lost"
    held.answers["ana q1"] = stored
    held.ledger[-1] = held.ledger[-1] + b" "
    assert (await repair_all(first))["flights"] == "lost"


async def runs_on(world: Any, process: Any) -> bool:
    """Repairs the journal between a commit of a live worker and its record; returns whether more is shown."""
    world.ask("flights", "q1", AA)
    await process.run()
    commits, repaired = len(world.trail), list[bool]()

    async def interrupt(_: int) -> None:
        made = [one for one in world.trail[commits:] if isinstance(one, Committed)]
        if made and not repaired:
            repaired.append(True)
            lengths = [len(entries) for entries in world.journal]
            cut(world, 0.6)
            await repair_all(world)
            for entries, length in zip(world.journal, lengths, strict=True):
                entries += [Entry(b"", b"")] * (length - len(entries))

    process.interrupt = interrupt
    world.ask("flights", "q2", LATE)
    with contextlib.suppress(Fenced, CorruptState):
        await process.run()
    assert repaired
    return any(name == "q2" for _, _, name in world.answers())


async def test_what_the_store_keeps_beyond_the_journal_is_there_after_a_repair(
    first: Any, process: Any
) -> None:
    """It may have been seen: its record was on the part that was cut."""
    await process.run()
    await process.kill()
    first.ask("flights", "q2", LATE)
    dying = first.process(CountingFuse(0, CrashPoint.AFTER_RELEASE))
    with contextlib.suppress(first.Crash):
        await dying.assign()
        await dying.run()
    await dying.kill()
    before = first.store._datasets["flights"].ledger
    partition = partition_of(b"flights", first.partitions)
    del first.journal[partition][-1:]
    verdicts = {one.dataset: one.verdict for one in await repairs(first, partition).repair()}
    assert verdicts["flights"] == "store"
    first.store = LocalStore()
    last = await started(first)
    assert last.worker.stopped == {}
    assert first.store._datasets["flights"].ledger[: len(before)] == before


async def test_a_worker_that_runs_meanwhile_shows_nothing_more(first: Any, process: Any) -> None:
    assert not await runs_on(first, process)


async def test_a_repair_that_does_not_fill_the_log_would_let_it_show_more(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy: the log has exactly the length again at which the worker appends next."""

    async def no_fill(self: Repairing, wanted: int) -> None:
        del self, wanted

    async def untaken(self: LocalStore, name: str, **rest: Any) -> Any:
        seen = await self.look(name)  # the store would fence it as well
        assert seen is not None
        # A commit of the repair would keep the worker from its own.
        meta = {**seen.snapshot.meta, "moved": "so nothing is to be told"}
        return replace(seen.snapshot, meta=meta, intents={})

    monkeypatch.setattr(Repairing, "_fill", no_fill)
    monkeypatch.setattr(repairing, "queued", lambda *_: [])
    monkeypatch.setattr(LocalStore, "acquire", untaken)
    assert await runs_on(first, process)


async def test_wherever_a_repair_breaks_off_it_is_repeated(make_world: Callable[..., Any]) -> None:
    deaths = 0
    for place in range(100):
        world = make_world(seed=place + 1)
        await served(world, ROUNDS[:3])
        before = {name: durable(held) for name, held in world.store._datasets.items()}
        cut(world)
        partition = place % 2
        try:
            await repairs(world, partition, fuse=CountingFuse(place // 2)).repair()
        except world.Crash:
            deaths += 1
            finished = b'"done": true' in world.journal[partition][-1].value
            process = await started(world)
            assert finished or partition in process.worker.aside, "nothing is served before"
        else:
            assert deaths > 4
            return
        await repair_all(world)
        world.store = LocalStore() if place % 4 < 2 else world.store
        process = await started(world)
        assert process.worker.stopped == {}
        assert process.worker.aside == set()
        after = {name: durable(held) for name, held in world.store._datasets.items()}
        for some in (before, after):
            for held in some.values():
                held["intents"] = {}
        assert after == before
    raise AssertionError("there are more steps than places")


async def test_records_that_are_missing_in_the_middle_stop_their_data_set_alone(
    first: Any, process: Any
) -> None:
    first.ask("flights", "q1", AA)
    await process.run()
    await process.kill()
    await started(first)
    partition = partition_of(b"flights", first.partitions)
    commits = [
        place
        for place, entry in enumerate(first.journal[partition])
        if dict(entry.headers)["type"] == b"commit"
    ]
    del first.journal[partition][commits[1]]
    first.journal[partition].append(Entry(b"", b""))
    first.store = LocalStore()
    process = await started(first)
    assert "journal mend --dataset flights" in process.worker.stopped["flights"]


async def test_a_partition_that_was_cut_is_named_until_its_repair_is_finished(
    first: Any, process: Any
) -> None:
    await process.run()
    await process.kill()
    await started(first)
    log = FusedLog(first, CountingFuse())

    async def named() -> dict[int, str]:
        return await cut_partitions(first.store, log, "journal")

    assert await named() == {}
    partition = partition_of(b"flights", first.partitions)
    del first.journal[partition][3:]
    assert [*await named()] == [partition]
    for place in range(100):
        try:
            await repairs(first, partition, fuse=CountingFuse(place)).repair()
        except first.Crash:
            finished = b'"done": true' in first.journal[partition][-1].value
            assert finished or [*await named()] == [partition]
        else:
            break
    assert await named() == {}


def test_of_several_entries_under_a_number_the_one_counts_that_is_continued() -> None:
    head, entries = ledgers.GENESIS, []
    for number in range(3):
        entry, head = ledgers.append(head, number, "flights", "phase", {"phase": number})
        entries.append(entry)
    forged, _ = ledgers.append(ledgers.GENESIS, 0, "flights", "phase", {"phase": 7})
    assert chained({0: [forged, entries[0]], 1: [entries[1]], 2: [b"{}", entries[2]]}) == [entries]
    assert chained({0: [entries[0]], 2: [entries[2]]}) == [entries[:1]]
    assert chained({0: [b"no", b"[]"]}) == [[]]


@pytest.mark.parametrize(
    "value", [b"x", b"[]", b"{}", b'{"event": []}', b'{"event": {}, "phase": 7}']
)
def test_an_event_that_is_none_says_nothing(value: bytes) -> None:
    said = Said()
    Witnesses._event(said, value)
    assert said == Said()


# ---------------------------------------------------------------- closing


def flights(world: Any) -> None:
    world.define("flights", **FLIGHTS)


FLIGHTS: dict[str, Any] = {"mechanism": {"base_share": 0.0}, "on_exhausted": "refuse"}


async def seen_and_lost(world: Any, *, empty: bool = False, second: bool = True) -> None:
    """Charges, answers and rows that are on the output topics alone."""
    world.deaths = 0
    await served(
        world, [flights, lambda w: w.cells("flights", "one"), lambda w: w.ask("flights", "q1", AA)]
    )
    older = copy.deepcopy(world.store)
    journal = [list(entries) for entries in world.journal]
    await served(
        world,
        [
            lambda w: w.ask("flights", "q2", LATE),
            lambda w: w.cells("flights", "two") if second else None,
            lambda w: w.ask("flights", "q3", UA),
            lambda w: w.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}]),
        ],
    )
    world.store = LocalStore() if empty else older
    for entries, before in zip(world.journal, journal, strict=True):
        entries[:] = before[: len(before) // 2] if empty else before


def on_topic(world: World, name: str = "flights") -> list[bytes]:
    return [
        event.outgoing.value
        for event in world.trail
        if isinstance(event, Sent)
        and event.outgoing.role == "ledger"
        and event.outgoing.key == name
    ]


def faults(world: World, closed_at: int, name: str = "flights") -> list[str]:
    """What is wrong after a data set was closed, from what was seen alone.

    Args:
        world: The world.
        closed_at: The length of its trail when the data set was closed.
        name: The data set.
    """
    said = []
    catalog = Definition.read(definition(name, **FLIGHTS))
    report = verify(name, on_topic(world, name), catalog=catalog)
    said += [str(fault) for fault in report.faults]
    opened = {event["phase"]: event["rows"] for event in world.events("phase_opened")}
    before = [
        json.loads(event.outgoing.value).get("phase") or 0
        for event in world.trail[:closed_at]
        if isinstance(event, Sent) and event.outgoing.role == "events"
    ]
    for number, block in enumerate(report.blocks, 1):
        if number <= max(before) and max(block.spent) != UNITS:
            said.append(f"phase {number} has something left")
    for event in world.trail[closed_at:]:
        if isinstance(event, Looked) and event.blocks.start < max(before):
            said.append(f"the rows of phase {event.blocks.start + 1} were looked at again")
    sizes: dict[str, int] = {}
    for record in [r for at, some in world.log.items() if "batches" in at for r in some]:
        document = json.loads(record.value or b"{}")
        rows = sum(cell["count"] for cell in document.get("cells") or ())
        sizes[document["batch_id"]] = rows or len(document.get("rows") or ())
    taken = {e["batch_id"] for e in world.events("batch_accepted")}
    if sum(opened.values()) > sum(sizes[batch] for batch in taken):
        said.append("rows have counted twice")
    said += several_answers(world)
    held = world.store._datasets.get(name)
    if held is not None and (report.blocks or held.spent):
        spent = [tuple(block.spent) for block in report.blocks]
        if spent != held.spent:
            said.append(f"the store has spent {held.spent}, and {spent} is published")
    return said


async def closed_and_used(world: Any, *, empty: bool = False, second: bool = True) -> list[str]:
    """Closes a data set and goes on with it: old ids, old batches, new rows, and an empty store later."""
    await seen_and_lost(world, empty=empty, second=second)
    at = len(world.trail)
    assert (await repair_all(world, "flights"))["flights"] == "lost"
    await started(world)
    for produce in (
        lambda w: w.cells("flights", "one"),
        lambda w: w.cells("flights", "two"),
        lambda w: w.ask("flights", "q2", LATE),
        lambda w: w.ask("flights", "q3", UA),
        lambda w: w.ask("flights", "old", {"any": [AA, LATE]}),
        lambda w: w.cells("flights", "three"),
        lambda w: w.ask("flights", "new", AA, window={"last_phases": 1}),
        lambda w: w.ask("flights", "all", {"any": [UA, LATE]}),
    ):
        produce(world)
        await started(world)
    return faults(world, at)


@pytest.mark.parametrize("empty", [False, True], ids=["older", "empty"])
async def test_a_closed_data_set_keeps_its_promise_and_goes_on(world: Any, empty: bool) -> None:
    assert await closed_and_used(world, empty=empty) == []
    (event,) = world.events("written_off")
    assert event["phases"] == [1, 2]
    assert world.answer("new")["status"] == "answered"
    assert world.answer("new")["window"] == [3, 3]
    for query_id in ("old", "all"):
        assert world.answer(query_id)["reason"]["code"] in ("rows_gone", "budget_exhausted")
    rejected = [reply["reason"]["code"] for reply in world.released("rejected")]
    assert set(rejected) == {"already_answered"}
    assert [e["rows"] for e in world.events("phase_opened")][-1] == 21_000
    assert world.held("flights").spent[:2] == [(UNITS, UNITS)] * 2
    assert 0 < max(world.held("flights").spent[2]) < UNITS
    before = durable(world.held("flights"))
    world.store = LocalStore()
    await started(world)
    assert durable(world.held("flights")) == before, "and it heals"
    if not empty:
        world.ask("flights", "again", AA, window={"phases": [1, 1]})
        await started(world)
        assert world.answer("again")["path"] == "repeat", "what was published goes on answering"
        world.ask("flights", "q1", AA)
        await started(world)
        assert world.answer("q1")["status"] == "answered", (
            "the same bytes, where the request is known"
        )


@pytest.mark.parametrize("empty", [False, True], ids=["older", "empty"])
async def test_what_was_written_off_never_counts_though_outcomes_are_dropped(
    world: Any, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    """Nor does the rest of its promise need more of the ledger than the store has."""
    for module in (local, journal):
        monkeypatch.setattr(module, "LEDGER_TAIL", 2)
    world.now_ms, ids = NOV_1, ("one", "two", "waits")

    def first(w: Any) -> None:
        w.define("flights", **FLIGHTS, retention={"answers": {"days": 2}})
        w.cells("flights", "one")
        w.counted("flights", "till", 0, rows=[{"carrier": "AA"}])
        w.ask("flights", "q1", AA)

    await served(world, [first])
    older, before = copy.deepcopy(world.store), [list(entries) for entries in world.journal]

    def second(w: Any) -> None:
        w.cells("flights", "two")
        w.counted("flights", "till", 1, rows=[{"carrier": "AA"}])
        w.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
        w.ask("flights", "q2", LATE)

    await served(world, [second])
    assert len(on_topic(world)) > 4
    world.store = LocalStore() if empty else older
    for entries, earlier in zip(world.journal, before, strict=True):
        entries[:] = earlier[: len(earlier) // 2] if empty else earlier
    assert (await repair_all(world, "flights"))["flights"] == "lost"
    phases = len(world.events("phase_opened"))
    for day in range(8):
        world.now_ms += DAY_MS
        world.ask("flights", f"day-{day}", AA)
        await started(world)
    assert world.held("flights").previous_batches == {}, "outcomes were dropped"
    accepted = len(world.events("batch_accepted"))
    for batch in ids:
        world.cells("flights", batch)
    for sequence in (0, 1):
        world.counted("flights", "till", sequence, rows=[{"carrier": "UA"}])
    await started(world)
    assert len(world.events("batch_accepted")) == accepted
    assert len(world.events("phase_opened")) == phases
    assert {one.get("batch_id") for one in world.events("batch_known")} >= set(ids)
    world.counted("flights", "till", 2, rows=[{"carrier": "UA"}])
    await started(world)
    assert len(world.events("batch_accepted")) == accepted + 1
    assert several_answers(world) == []


Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[str, tuple[Break, str]] = {}


def broken(complaint: str) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        BROKEN[function.__name__] = function, complaint
        return function

    return register


@broken("is missing|times, each time with another content|to what follows")
def the_charges_of_the_ledger_topic_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def own(name: str, bases: Any, said: Any) -> Any:
        base = max(bases, key=lambda base: base.seq)
        return base, list(base.ledger)

    patch.setattr(closing, "chosen", own)


@broken("rows have counted twice")
def old_batches_count_again(patch: pytest.MonkeyPatch) -> None:
    done = closing.closed

    def forgetful(name: str, base: Any, said: Any, ledger: Any, *, inputs: Any, **rest: Any) -> Any:
        said.outcomes.clear()
        inputs.batches.clear()
        return done(name, base, said, ledger, inputs=inputs, **rest)

    patch.setattr(closing, "closed", forgetful)


def _with(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    from dataclasses import replace

    done = closing.closed

    def changed(*arguments: Any, **named: Any) -> Any:
        closed = done(*arguments, **named)
        return replace(
            closed,
            checkpoint=replace(
                closed.checkpoint, **{k: v(closed.checkpoint) for k, v in changes.items()}
            ),
        )

    patch.setattr(closing, "closed", changed)


@broken("has something left")
def a_phase_keeps_what_is_left_of_its_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(closing, "UNITS", 2**49)


@broken("were looked at again")
def rows_of_an_old_phase_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(closing, "UNITS", 2**49)
    _with(
        patch,
        erased=lambda _: 0,
        transcript=lambda one: [entry for entry in one.transcript if entry[:1] != b"\x04"],
    )


@broken("has two answers")
def answers_of_the_topic_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    done = closing.closed

    def forgetful(name: str, base: Any, said: Any, *rest: Any, **named: Any) -> Any:
        said.answers.clear()
        return done(name, base, said, *rest, **named)

    patch.setattr(closing, "closed", forgetful)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_copy_of_closing_is_caught(
    world: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import re

    break_it, complaint = BROKEN[name]
    break_it(monkeypatch)
    try:
        said = await closed_and_used(world, second="old_phase" not in name)
    except CorruptState as error:
        said = [str(error)]
    assert any(re.search(complaint, one) for one in said), said


async def test_wherever_closing_breaks_off_it_is_repeated(make_world: Callable[..., Any]) -> None:
    deaths = 0
    for place in range(100):
        world = make_world(seed=place + 1)
        await seen_and_lost(world, second=place % 2 == 0)
        await repair_all(world)  # which stops it
        at = len(world.trail)
        partition = partition_of(b"flights", world.partitions)
        try:
            await repairs(world, partition, "flights", fuse=CountingFuse(place)).repair()
        except world.Crash:
            deaths += 1
            finished = b'"done": true, "stopped": {}' in world.journal[partition][-1].value
            process = await started(world)
            assert finished or process.worker.datasets == {}
            if not finished:
                await repairs(world, partition, "flights").repair()
        await started(world)
        world.cells("flights", "three")
        await started(world)
        world.ask("flights", "new", AA, window={"last_phases": 1})
        await started(world)
        assert world.answer("new")["status"] == "answered", place
        assert len(world.events("written_off")) == 1, place
        assert faults(world, at) == [], place
        if deaths <= place:
            assert deaths > 4
            return
    raise AssertionError("there are more steps than places")


async def test_what_is_whole_is_never_closed(first: Any, process: Any) -> None:
    await process.run()
    await process.kill()
    cut(first, 0.5)
    assert (await repair_all(first, "flights"))["flights"] == "store"
    await started(first)
    assert first.events("written_off") == []


async def test_a_data_set_that_protects_persons_for_life_is_not_closed(world: Any) -> None:
    await served(world, LIVES[:3])
    names = [name for name, held in world.store._datasets.items() if held.seq]
    world.store = LocalStore()
    cut(world, 0.3)
    with pytest.raises(InvalidInput, match="protects persons for life"):
        await repair_all(world, *names)


async def test_a_ledger_with_a_gap_is_not_adopted(world: Any) -> None:
    await seen_and_lost(world)
    ledger = [
        event
        for event in world.trail
        if isinstance(event, Sent) and event.outgoing.role == "ledger"
    ]
    world.trail.remove(ledger[-2])
    with pytest.raises(CorruptState, match="is not on the topic"):
        await repair_all(world, "flights")


def forged(entries: list[bytes], change: Callable[[dict[str, Any]], None]) -> list[bytes]:
    """The same ledger with its last entry changed, and the chain made right."""
    body = json.loads(entries[-1])
    change(body)
    head = ledgers.verify(entries[:-1])
    for name in ("version", "dataset", "seq", "prev"):
        del body[name]
    entry, _ = ledgers.append(head, len(entries) - 1, "flights", body.pop("kind"), body)
    return [*entries[:-1], entry]


async def test_the_price_checker_finds_what_is_not_written_off(world: Any) -> None:
    await seen_and_lost(world)
    await repair_all(world, "flights")
    await started(world)
    whole = on_topic(world)
    whole = list(dict.fromkeys(whole))
    assert json.loads(whole[-1])["kind"] == "written_off"
    assert verify("flights", whole).faults == []

    def said(change: Callable[[dict[str, Any]], None]) -> str:
        return "; ".join(map(str, verify("flights", forged(whole, change)).faults))

    assert "and has some left" in said(lambda body: body["charges"].pop())
    assert "units and" in said(lambda body: body["charges"][0].__setitem__(1, 5))
    assert "writes off 1 phases where 2 are open" in said(lambda body: body.update(phases=1))
    head = ledgers.verify(whole)
    charge, _ = ledgers.append(
        head, len(whole), "flights", "charge", {"looks": [], "charges": [[0, 0, 0]]}
    )
    report = verify("flights", [*whole, charge])
    assert any("whose rows are written off" in str(fault) for fault in report.faults)
