"""A journal that was cut: data sets that Redis has whole go on, others are stopped or written off."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.core.budget.accountant import UNITS
from stream_dp.errors import CorruptState, Fenced, InvalidInput
from stream_dp.messages import Definition
from stream_dp.pipeline.datasets.transcript import GIVEN_UP, LOST
from stream_dp.pipeline.intake.records import place_in
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.entries import entries_of
from stream_dp.pipeline.journal.releaser import following
from stream_dp.pipeline.journal.unsent import unsent
from stream_dp.pipeline.repair import journal_repair, write_off
from stream_dp.pipeline.repair import offline as offline_tools
from stream_dp.pipeline.repair.journal_repair import Repair
from stream_dp.pipeline.repair.witnesses import Said, Witnesses, chained
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state import ledger as ledgers
from stream_dp.state.schema import State, StateTable, weight
from tests.pipeline.commands import (
    cut,
    cut_last,
    mend_all,
    offline,
    repairs,
    served,
    states,
)
from tests.pipeline.crash import CountingFuse
from tests.pipeline.scenarios import (
    AA,
    DAY_MS,
    EVERY,
    FLIGHTS,
    LAST,
    LATE,
    NOV_1,
    ROUNDS,
    THESIS,
    UA,
    asks,
    flights,
)
from tests.pipeline.trail import Committed, Looked, Sent
from tests.pipeline.world import World, definition
from tests.view import MemoryView

ALL = EVERY | {"the thesis profile": THESIS}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_repair, "BEYOND", 40)
    monkeypatch.setattr(offline_tools, "_FILLED_AT_ONCE", 30)


def alone(world: World) -> None:
    """Has all data sets in one partition."""
    world.partitions = 1
    world.log = {f"in.{role}:0": [] for role in ("datasets", "batches", "queries")}
    world.journal, world.forgotten = [[]], [0]


async def two_alone(world: World) -> None:
    """Two data sets with a phase each, all in one partition."""
    alone(world)
    for name in ("flights", "trains"):
        world.define(name, **FLIGHTS)
        world.cells(name, "one")
    await served(world, [lambda _: None])


def pairs_of(process: Any) -> dict[str, dict[Any, bytes]]:
    return {name: dict(state.pairs) for name, state in states(process).items()}


async def judged(world: World, name: str = "flights", **changes: Any) -> Any:
    """What is found of a data set. Nothing is changed."""
    partition = world.home(name)
    plan = await repairs(world, partition, **changes).plan()
    (one,) = [one for one in plan.datasets if one.dataset == name]
    return one


def repaired(world: World) -> list[str]:
    """The data sets of which events say that they are served again, each as often as it is said."""
    return sorted(event["dataset"] for event in world.events("repaired"))


# ---------------------------------------------------------------- from Redis


@pytest.fixture
async def asked(first: Any, process: Any) -> Any:
    """A world with an answer, which Redis has too, and no worker any more."""
    first.ask("flights", "q1", AA)
    await process.run()
    await process.kill()
    await served(first)
    return first


@pytest.mark.parametrize("name", ALL)
async def test_what_redis_has_whole_goes_on_and_needs_redis_no_more(world: Any, name: str) -> None:
    process = await served(world, ALL[name])
    before, answers = pairs_of(process), len(world.answers())
    cut(world)
    lost = {world.home(name) for name in before}
    process = await served(world)
    assert process.worker.aside
    assert process.worker.aside <= lost
    found = await mend_all(world)
    assert set(found.values()) <= {"redis", "whole"}
    again = sorted(name for name, verdict in found.items() if verdict == "redis")
    assert again
    process = await served(world)
    assert (process.worker.aside, process.worker.stopped) == (set(), {})
    assert pairs_of(process) == before
    assert repaired(world) == again, "so that clients know it"
    world.view = MemoryView()
    process = await served(world)
    assert process.worker.stopped == {}
    assert pairs_of(process) == before
    assert repaired(world) == again, "once"
    assert len(world.answers()) >= answers
    if name != "answers rotate":  # an id whose answer was dropped may have another one
        assert world.several_answers() == []


async def test_a_plan_changes_nothing_and_what_is_whole_needs_none(asked: Any) -> None:
    before = copy.deepcopy(asked.journal)
    plans = [await repairs(asked, one).apply() for one in range(asked.partitions)]
    assert [plan.needed for plan in plans] == [False, False]
    assert {one.verdict for plan in plans for one in plan.datasets} == {"whole"}
    assert asked.journal == before
    cut(asked)
    before = copy.deepcopy(asked.journal)
    assert (await judged(asked)).verdict == "redis"
    assert asked.journal == before


async def test_a_second_repair_finds_nothing_to_do_and_a_second_cut_is_repaired_too(
    asked: Any,
) -> None:
    for number in range(3):
        cut_last(asked, "flights")
        assert (await mend_all(asked))["flights"] == "redis", number
        asked.ask("flights", f"again-{number}", LATE)
        worker = await served(asked)
        assert (worker.worker.aside, worker.worker.stopped) == (set(), {})
        assert (await mend_all(asked))["flights"] == "whole"
    assert asked.several_answers() == []


async def test_repeats_get_the_same_bytes_where_redis_is_lost_after_the_repair(asked: Any) -> None:
    asked.ask("flights", "q2", LATE)
    before = states(await served(asked))["flights"]
    cut(asked, 0.3)
    await mend_all(asked)
    asked.view = MemoryView()
    sent = len(asked.left("answers"))
    for query_id, where in (("q1", AA), ("q2", LATE)):
        asked.ask("flights", query_id, where)
    asked.cells("flights", "first")
    after = states(await served(asked))["flights"]
    assert len(asked.left("answers")) == sent + 2
    assert asked.several_answers() == []
    assert after.table(StateTable.SPENT) == before.table(StateTable.SPENT)
    assert len(asked.events("batch_accepted")) == 1


@pytest.mark.parametrize("has", ["nothing", "another answer"])
async def test_an_answer_that_redis_lacks_or_has_wrong_is_taken_from_its_topic(
    asked: Any, has: str
) -> None:
    """Nobody knows what was asked, so a repeat is refused and gets no other answer."""
    cut(asked, 0.3)
    answers = asked.view.generations["flights"][0]
    if has == "nothing":
        for generation in asked.view.generations["flights"]:
            generation.clear()
    else:
        answers[StateTable.ANSWER, b"ana q1"] = answers[StateTable.ANSWER, b"ana q1"][:-2] + b" }"
    assert (await mend_all(asked))["flights"] == "redis"
    record = asked.ask("flights", "q1", AA)
    asked.cells("flights", "first")
    await served(asked)
    assert asked.rejection(record)["reason"]["code"] == "already_answered"
    assert len(asked.events("batch_accepted")) == 1
    assert asked.several_answers() == []


async def test_what_had_not_left_leaves_with_the_repair(world: Any) -> None:
    """It is on the journal, of which nobody reads that part any more."""
    await two_alone(world)
    world.ask("trains", "q1", AA)
    await served(world)
    entries = zip(world.kinds(0), world.journal[0], strict=True)
    commits = [(at, one.key) for at, (kind, one) in enumerate(entries) if kind == "commit"]
    last, name = commits[-1]
    assert name == b"trains"
    del world.journal[0][last + 1 :]
    world.trail = [
        one
        for one in world.trail
        if not isinstance(one, Sent)
        or (place := place_in(one.outgoing.headers)) is None
        or place.offset < last
    ]
    assert not world.answers()
    at = next(at for at, name in commits if name == b"flights")
    world.journal[0][at] = replace(world.journal[0][at], value=b"spoiled")
    assert await mend_all(world) == {"flights": "redis", "trains": "whole"}
    assert world.answer("q1")["status"] == "answered"
    process = await served(world)
    assert process.worker.stopped == {}
    assert set(process.worker.datasets) == {"flights", "trains"}


async def test_a_look_that_was_announced_before_a_repair_is_lost_and_stays_charged(
    world: Any,
) -> None:
    """All that followed from its charge has left, Redis has the charge, and the journal lacks it."""
    flights(world)
    world.cells("flights", "one")
    await served(world, [lambda _: None])
    world.ask("flights", "q1", AA)
    with contextlib.suppress(world.Crash):
        await world.lives(fuse=CountingFuse(0, CrashPoint.AFTER_LOOK))
    partition = world.home("flights")
    owned = await offline(world).journal().look(partition)
    for one in unsent(owned):
        world.sent(0, following(*one))
    state = owned.chains["flights"].build()
    assert len(state.table(StateTable.INTENT)) == 1
    spent = state.pairs[StateTable.SPENT, b"0"]
    await world.view.rewrite(state)
    cut_last(world, "flights")
    assert (await mend_all(world))["flights"] == "redis"
    world.view = MemoryView()
    process = await served(world)
    assert process.worker.stopped == {}
    after = states(process)["flights"]
    assert after.table(StateTable.INTENT) == {}
    assert [one[:1] for one in after.numbered(StateTable.TRANSCRIPT)].count(LOST) == 1
    assert int(after.pairs[StateTable.SPENT, b"0"].split()[0]) == 2 * int(spent.split()[0])
    assert world.answer("q1")["status"] == "answered"
    assert world.several_answers() == []
    assert verify("flights", world.ledger()).faults == []


# ---------------------------------------------------------------- from nothing


async def two_of_which_one_is_lost(world: Any, lost: str) -> None:
    await two_alone(world)
    older = copy.deepcopy(world.view)
    world.ask("flights", "q1", AA)
    await served(world)
    cut(world, 0.3)
    if lost == "older":
        world.view.states["flights"] = older.states["flights"]
    elif lost == "wrong in a byte":
        state = world.view.states["flights"]
        state.pairs[StateTable.SPENT, b"0"] = b"0 0"
    else:
        del world.view.states["flights"]


@pytest.mark.parametrize("lost", ["older", "empty", "wrong in a byte"])
async def test_what_is_behind_what_was_seen_is_stopped_and_others_go_on(
    world: Any, lost: str
) -> None:
    await two_of_which_one_is_lost(world, lost)
    found = {one.dataset: one for one in (await repairs(world, 0).plan()).datasets}
    assert found["flights"].verdict == "lost"
    assert found["trains"].verdict in ("redis", "whole")
    assert "topic answers shows its commit" in found["flights"].why
    assert (await mend_all(world))["flights"] == "lost"
    for _ in range(2):  # for ever, also where Redis is empty
        process = await served(world)
        assert "--write-off flights" in process.worker.stopped["flights"]
        assert "run `stream-dp journal repair`" in process.worker.stopped["flights"]
        assert set(process.worker.datasets) == {"trains"}
        record = flights(world)
        await served(world)
        assert world.rejection(record)["reason"]["code"] == "stopped"
        world.view = MemoryView()
    world.ask("trains", "q2", AA)
    await served(world)
    assert world.answer("q2")["status"] == "answered"
    plan = await repairs(world, 0).apply()
    assert not plan.needed, "what is stopped stays so"


async def test_a_redis_that_comes_back_whole_is_taken_by_the_next_repair(asked: Any) -> None:
    whole = copy.deepcopy(asked.view)
    cut(asked, 0.4)
    asked.view = MemoryView()
    assert (await mend_all(asked))["flights"] == "lost"
    asked.view = whole
    worker = await served(asked)
    assert "flights" not in worker.worker.datasets, "a repair looks at it first"
    assert (await mend_all(asked))["flights"] == "redis"
    worker = await served(asked)
    assert worker.worker.stopped == {}
    asked.ask("flights", "q2", LATE)
    await served(asked)
    assert asked.answer("q2")["status"] == "answered"
    assert asked.several_answers() == []


async def test_a_data_set_of_which_nothing_is_left_stays_stopped_for_ever(world: Any) -> None:
    alone(world)
    world.often = Often(n_bytes=2_000, per_id=0)
    flights(world)
    world.cells("flights", "one")
    world.ask("flights", "q1", AA)
    await served(world, [lambda _: None])
    world.journal[0].clear()
    world.view = MemoryView()
    assert await mend_all(world) == {"flights": "lost"}

    async def again() -> None:
        flights(world)
        world.cells("flights", "one")
        world.ask("flights", "q1", AA)
        process = await served(world)
        assert "flights" in process.worker.stopped
        assert "flights" not in process.worker.datasets

    await again()
    world.define("trains", **FLIGHTS)
    await served(world)
    world.cells("trains", "one")
    await served(world)
    for number in range(20):
        world.ask("trains", f"t{number}", AA)
        if number % 10 == 9:
            await again()
    world.view = MemoryView()
    await again()
    nothing: dict[str, Any] = {"outputs": {}}  # as if the outputs had expired
    plan = await repairs(world, 0, **nothing).apply()
    assert {one.dataset: one.verdict for one in plan.datasets}["flights"] == "lost"
    await again()
    assert world.answer("t19")["status"] == "answered"
    assert world.several_answers() == []


async def test_what_protects_persons_for_life_is_not_told_of_a_write_off(world: Any) -> None:
    alone(world)
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2, "lifetime": True}
    world.define("flights", privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit})
    world.define("trains")
    for name in ("flights", "trains"):
        columns = {"carrier": ["AA", "UA"] * 20, "user_id": [*range(40)]}
        world.batch(name, "one", columns=columns if name == "flights" else {"carrier": ["AA"]})
    await served(world)
    cut(world, 0.3)
    world.view = MemoryView()
    found = {one.dataset: one for one in (await repairs(world, 0).apply()).datasets}
    assert {one.verdict for one in found.values()} == {"lost"}
    stopped = (await served(world)).worker.stopped
    assert "protects persons for life, so it cannot be written off" in stopped["flights"]
    assert "--write-off" not in stopped["flights"]
    assert "--write-off trains" in stopped["trains"]
    with pytest.raises(InvalidInput, match="protects persons for life"):
        await repairs(world, 0, "flights").apply()
    assert (await mend_all(world, "trains"))["trains"] == "written off"


async def test_another_history_than_what_was_seen_is_not_taken(asked: Any) -> None:
    """Redis with as many commits, and another trail or ledger than the topics."""
    cut(asked, 0.4)
    state = asked.view.states["flights"]

    async def verdict(changed: State) -> tuple[str, str]:
        asked.view.states["flights"] = changed
        found = await judged(asked)
        return found.verdict, found.why

    last = (await judged(asked)).said.commit
    other = state.copied()
    other.trail = bytes(32)
    assert other.number >= last
    if other.number == last:
        assert "another history" in (await verdict(other))[1]
    other = state.copied()
    head = StateTable.FACT, b"ledger head"
    other.sum = (other.sum - weight(head, other.pairs[head]) + weight(head, b"00" * 32)) % 2**128
    other.pairs[head] = b"00" * 32
    assert "its ledger on the topic is not the one" in (await verdict(other))[1]
    assert (await verdict(state))[0] == "redis"


@pytest.mark.parametrize(
    ("role", "why"),
    [("ledger", "two entries"), ("answers", "topic answers has two answers under one id: ana q1")],
)
async def test_a_topic_that_contradicts_itself_stops_its_data_set_until_it_is_written_off(
    asked: Any, role: str, why: str
) -> None:
    *_, last = asked.left(role)
    asked.sent(0, last)
    assert (await judged(asked)).verdict == "whole", "the same one may come again"
    other = {"ledger": last.value[:-1] + b',"zz":1}', "answers": last.value + b" "}[role]
    asked.sent(0, replace(last, value=other))
    found = await judged(asked)
    assert found.verdict == "lost"
    assert why in found.why
    assert (await mend_all(asked, "flights"))["flights"] == "written off"
    assert (await judged(asked)).verdict == "whole"
    assert (await served(asked)).worker.stopped == {}


# ---------------------------------------------------------------- other cuts


async def test_a_new_journal_begins_with_what_redis_has_of_the_former_one(asked: Any) -> None:
    before = pairs_of(await served(asked))
    asked.journal = [[] for _ in range(asked.partitions)]
    assert (await mend_all(asked))["flights"] == "redis"
    asked.ask("flights", "q1", AA)
    process = await served(asked)
    assert process.worker.stopped == {}
    assert (
        pairs_of(process)["flights"].items()
        >= {
            pair: value for pair, value in before["flights"].items() if pair[0] is StateTable.SPENT
        }.items()
    )
    assert asked.several_answers() == []


@pytest.mark.parametrize("has_redis", [True, False], ids=["with Redis", "without"])
async def test_a_journal_that_lost_its_beginning_is_mended_too(world: Any, has_redis: bool) -> None:
    alone(world)
    flights(world)
    world.cells("flights", "one")
    world.ask("flights", "q1", AA)
    await served(world, [lambda _: None])
    world.forgotten[0] = len(world.journal[0]) // 2
    world.define("trains", **FLIGHTS)
    assert (await world.lives()).worker.aside == {0}
    if not has_redis:
        world.view = MemoryView()
    plan = await repairs(world, 0).apply()
    assert "it begins at" in plan.problem
    verdict = "redis" if has_redis else "lost"
    assert [one.verdict for one in plan.datasets] == [verdict]
    assert not (await repairs(world, 0).plan()).needed
    process = await served(world)
    assert process.worker.aside == set()
    assert set(process.worker.datasets) == {"trains"} | ({"flights"} if has_redis else set())
    world.ask("flights", "q1", AA)
    await served(world)
    assert world.several_answers() == []


@pytest.mark.parametrize("has_redis", [True, False], ids=["with Redis", "without"])
async def test_answers_that_went_with_the_beginning_are_carried_or_stop_their_data_set(
    world: Any, has_redis: bool
) -> None:
    """What the state needs is there, and somebody has deleted entries with answers."""
    alone(world)
    world.often = Often(n_bytes=20_000, per_id=10**6)  # rounds that cut nothing
    flights(world)
    world.cells("flights", "one")
    for number in range(12):
        world.ask("flights", f"q{number}", AA)
    await served(world, [lambda _: None])
    world.forgotten[0] = max(at for at, kind in enumerate(world.kinds(0)) if kind == "begin")
    if not has_redis:
        for generation in world.view.generations["flights"]:
            generation.clear()
        for one in [one for one in world.trail if isinstance(one, Sent)][:]:
            if one.outgoing.role == "answers":
                world.trail.remove(one)
    found = (await mend_all(world))["flights"]
    assert found == ("redis" if has_redis else "lost")
    process = await served(world)
    assert process.worker.aside == set()
    if has_redis:
        world.view = MemoryView()
        for number in range(12):
            world.ask("flights", f"q{number}", AA)
        await served(world)
        assert world.several_answers() == []


async def runs_on(world: Any, process: Any) -> bool:
    """Repairs the journal between two appends of a live worker; returns whether it shows more then."""
    world.ask("flights", "q1", AA)
    await process.run()
    await process.worker.following.joined()
    commits, repaired = len(world.trail), list[int]()

    async def interrupt(_: int) -> None:
        if any(isinstance(one, Committed) for one in world.trail[commits:]) and not repaired:
            repaired.append(len(world.trail))
            lengths = [len(entries) for entries in world.journal]
            cut(world, 0.3)
            await mend_all(world)
            for entries, length in zip(world.journal, lengths, strict=True):
                entries += entries_of("fill", "", b"", b"") * (length - len(entries))

    process.interrupt = interrupt
    for number in range(4):
        world.ask("flights", f"later-{number}", (LATE, UA)[number % 2])
        with contextlib.suppress(Fenced, CorruptState):
            await process.run()
    assert repaired
    # What was acknowledged before the cut may leave; nothing that was appended after it may.
    shown = [one for one in world.trail[repaired[0] :] if isinstance(one, Sent)]
    return any(one.process == process.number and b"later-3" in one.outgoing.value for one in shown)


async def test_a_worker_that_runs_meanwhile_shows_nothing_more(first: Any, process: Any) -> None:
    assert not await runs_on(first, process)


async def test_a_repair_that_does_not_fill_the_log_would_let_it_show_more(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy: the log has exactly the length again at which the worker appends next."""

    async def not_filled(*_: object) -> None:
        pass

    monkeypatch.setattr(offline_tools, "filled", not_filled)
    assert await runs_on(first, process)


async def test_wherever_a_repair_breaks_off_it_is_repeated(make_world: Callable[..., Any]) -> None:
    deaths = 0
    for place in range(200):
        world = make_world(seed=place + 1)
        before = pairs_of(await served(world, ROUNDS[:3]))
        cut_last(world, "flights", 2)
        partition = world.home("flights")
        try:
            await repairs(world, partition, fuse=CountingFuse(place)).apply()
        except world.Crash:
            deaths += 1
            process = await served(world)
            is_served = partition not in process.worker.aside
            if is_served:  # then all of it was there
                assert process.worker.stopped == {}
                here = pairs_of(process)
                assert {name: before[name] for name in here} == here
        else:
            assert deaths > 4
            return
        await mend_all(world)
        world.view = MemoryView() if place % 4 < 2 else world.view
        process = await served(world)
        assert process.worker.stopped == {}
        assert process.worker.aside == set()
        assert pairs_of(process) == before
        assert world.several_answers() == []
    raise AssertionError("there are more steps than places")


# ---------------------------------------------------------------- witnesses


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


# ---------------------------------------------------------------- writing off


async def seen_and_lost(world: Any, *, empty: bool = False, second: bool = True) -> None:
    """Charges, answers and rows that are on the output topics alone."""
    world.deaths = 0
    await served(world, [flights, lambda w: w.cells("flights", "one"), asks("q1")])
    older = copy.deepcopy(world.view)
    journal = [list(entries) for entries in world.journal]
    await served(
        world,
        [
            asks("q2", LATE),
            lambda w: w.cells("flights", "two") if second else None,
            asks("q3", UA),
            lambda w: w.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}]),
        ],
    )
    world.view = MemoryView() if empty else older
    for entries, before in zip(world.journal, journal, strict=True):
        entries[:] = [] if empty else before


def faults(world: World, at: int, state: State, name: str = "flights") -> list[str]:
    """What is wrong after rows were written off, from what was seen alone.

    Args:
        world: The world.
        at: The length of its trail when they were.
        state: What is durable of the data set at the end.
        name: The data set.
    """
    said = []
    catalog = Definition.read(definition(name, **FLIGHTS))
    report = verify(name, world.ledger(name), catalog=catalog)
    said += [str(fault) for fault in report.faults]
    opened = {event["phase"]: event["rows"] for event in world.events("phase_opened")}
    before = [
        json.loads(event.outgoing.value).get("phase") or 0
        for event in world.trail[:at]
        if isinstance(event, Sent) and event.outgoing.role == "events"
    ]
    for number, block in enumerate(report.blocks, 1):
        if number <= max(before) and max(block.spent) != UNITS:
            said.append(f"phase {number} has something left")
    for event in world.trail[at:]:
        if isinstance(event, Looked) and event.blocks.start < max(before):
            said.append(f"the rows of phase {event.blocks.start + 1} were looked at again")
    sizes: dict[str, int] = {}
    for record in [r for place, some in world.log.items() if "batches" in place for r in some]:
        document = json.loads(record.value or b"{}")
        rows = sum(cell["count"] for cell in document.get("cells") or ())
        sizes[document["batch_id"]] = rows or len(document.get("rows") or ())
    taken = {e["batch_id"] for e in world.events("batch_accepted")}
    if sum(opened.values()) > sum(sizes[batch] for batch in taken):
        said.append("rows have counted twice")
    said += [f"{one} has two answers" for one in world.several_answers()]
    spent = [tuple(map(int, one.split())) for one in state.numbered(StateTable.SPENT)]
    published = [tuple(block.spent) for block in report.blocks]
    if published != spent:
        said.append(f"{spent} is spent, and {published} is published")
    return said


async def written_off_and_used(
    world: Any, *, empty: bool = False, second: bool = True
) -> list[str]:
    """Writes rows off and goes on: old ids, old batches, new rows."""
    await seen_and_lost(world, empty=empty, second=second)
    at = len(world.trail)
    assert (await judged(world)).verdict == "lost"
    assert (await mend_all(world, "flights"))["flights"] == "written off"
    process = await served(world)
    for produce in (
        lambda w: w.cells("flights", "one"),
        lambda w: w.cells("flights", "two"),
        asks("q2", LATE),
        asks("q3", UA),
        asks("old", {"any": [AA, LATE]}),
        lambda w: w.cells("flights", "three"),
        asks("new", **LAST),
        asks("all", {"any": [UA, LATE]}),
    ):
        produce(world)
        process = await served(world)
    found = states(process).get("flights") or State("flights")
    return [*faults(world, at, found), *map(str, process.worker.stopped.values())]


@pytest.mark.parametrize("empty", [False, True], ids=["older", "empty"])
async def test_what_is_written_off_keeps_its_promise_and_goes_on(world: Any, empty: bool) -> None:
    assert await written_off_and_used(world, empty=empty) == []
    (event,) = world.events("written_off")
    assert event["phases"] == [1, 2]
    assert world.answer("new")["status"] == "answered"
    assert world.answer("new")["window"] == [3, 3]
    for query_id in ("old", "all"):
        assert world.answer(query_id)["reason"]["code"] in ("rows_gone", "budget_exhausted")
    rejected = [reply["reason"]["code"] for reply in world.released("rejected")]
    assert set(rejected) == {"already_answered"}
    assert [e["rows"] for e in world.events("phase_opened")][-1] == 21_000
    world.view = MemoryView()
    process = await served(world)
    state = states(process)["flights"]
    spent = [tuple(map(int, one.split())) for one in state.numbered(StateTable.SPENT)]
    assert spent[:2] == [(UNITS, UNITS)] * 2
    assert 0 < max(spent[2]) < UNITS
    if not empty:
        world.ask("flights", "again", AA, window={"phases": [1, 1]})
        await served(world)
        assert world.answer("again")["path"] == "repeat", "what was published goes on answering"
        world.ask("flights", "q1", AA)
        await served(world)
        assert world.answer("q1")["status"] == "answered", "the request is known"


async def test_answers_that_a_journal_that_was_cut_still_has_go_on_without_redis(
    world: Any,
) -> None:
    """Topics show later commits. The journal has the bytes of those before them."""
    await seen_and_lost(world)
    world.view = MemoryView()
    assert (await mend_all(world, "flights"))["flights"] == "written off"
    for query_id, where in (("q1", AA), ("q2", LATE)):
        world.ask("flights", query_id, where)
    await served(world)
    assert world.answer("q1")["status"] == "answered"
    (rejected,) = world.released("rejected")
    assert (rejected["query_id"], rejected["reason"]["code"]) == ("q2", "already_answered")
    assert world.several_answers() == []


async def test_the_index_of_a_journal_of_another_history_is_not_used_by_a_later_repair(
    world: Any,
) -> None:
    """The first repair stops the data set, and its checkpoint hides what the journal had."""
    await seen_and_lost(world)
    world.view = MemoryView()
    place = next(
        place
        for one in world.trail
        if isinstance(one, Sent) and (place := place_in(one.outgoing.headers)) is not None
    )
    (event,) = [one for one in world.trail if isinstance(one, Sent)][-1:]
    other = place._replace(trail=bytes(8)).to_bytes()
    outgoing = replace(event.outgoing, headers=(("commit", other),))
    world.trail.append(Sent(0, outgoing, event.journal))
    assert (await mend_all(world))["flights"] == "lost"
    assert (await mend_all(world, "flights"))["flights"] == "written off"
    record = world.ask("flights", "q1", AA)
    await served(world)
    assert world.rejection(record)["reason"]["code"] == "already_answered"


@pytest.mark.parametrize("name", [name for name in ALL if name != "lives"])
@pytest.mark.parametrize("restored", ["half", "all", "nothing"])
async def test_after_a_restore_of_everything_all_is_written_off(
    world: Any, name: str, restored: str
) -> None:
    """The journal, Redis and topics are older copies of one moment, and nothing shows that more was seen."""
    await served(world, ALL[name])
    names = [*states(world.processes[-1])]
    retired = {event["dataset"] for event in world.events("dataset_retired")}
    share = {"half": 0.5, "all": 1.0, "nothing": 0.0}[restored]
    cut(world, share)
    if restored != "all":
        world.view = MemoryView()
    names = [name for name in names if name not in retired]
    found = await mend_all(world, *names)
    assert {found[name] for name in names} == {"written off"}
    process = await served(world)
    assert process.worker.aside == set()
    assert set(process.worker.stopped) <= retired
    for name in names:
        state = states(process)[name]
        spent = {pair: one for pair, one in state.pairs.items() if pair[0] is StateTable.SPENT}
        assert set(spent.values()) <= {b"%d %d" % (UNITS, UNITS)}
        assert {*state.table(StateTable.KEPT)} <= {b"person"}, "the rows of before are erased"
        assert not [key for key in state.table(StateTable.FACT) if key.startswith(b"standing ")]
        report = verify(name, world.ledger(name))
        assert report.faults == []
    listed = {one.key: one.value for one in world.left("standing")}
    assert not any(listed.values()), "standing queries end"
    assert [event["dataset"] for event in world.events("written_off")] == sorted(names)
    assert (await mend_all(world)) | dict.fromkeys(retired, "whole") == dict.fromkeys(
        [*names, *retired], "whole"
    )


@pytest.mark.parametrize("empty", [False, True], ids=["older", "empty"])
async def test_what_was_written_off_never_counts_though_outcomes_are_dropped(
    world: Any, empty: bool
) -> None:
    world.now_ms, ids = NOV_1, ("one", "two", "waits")

    def first(w: Any) -> None:
        w.define("flights", **FLIGHTS, retention={"answers": {"days": 2}})
        w.cells("flights", "one")
        w.counted("flights", "till", 0, rows=[{"carrier": "AA"}])
        w.ask("flights", "q1", AA)

    await served(world, [first])
    older, before = copy.deepcopy(world.view), [list(entries) for entries in world.journal]

    def second(w: Any) -> None:
        w.cells("flights", "two")
        w.counted("flights", "till", 1, rows=[{"carrier": "AA"}])
        w.batch("flights", "waits", rows=[{"carrier": "AA", "delay": 3}])
        w.ask("flights", "q2", LATE)

    await served(world, [second])
    world.view = MemoryView() if empty else older
    for entries, earlier in zip(world.journal, before, strict=True):
        entries[:] = [] if empty else earlier
    assert (await mend_all(world, "flights"))["flights"] == "written off"
    phases = len(world.events("phase_opened"))
    for day in range(8):
        world.now_ms += DAY_MS
        world.ask("flights", f"day-{day}", AA)
        process = await served(world)
    chain = process.worker.journal.chain("flights")
    pair = StateTable.OUTCOME, b"one"
    assert chain.ids.find([pair])[pair].offset == -1, "outcomes were dropped"
    accepted = len(world.events("batch_accepted"))
    for batch in ids:
        world.cells("flights", batch)
    for sequence in (0, 1):
        world.counted("flights", "till", sequence, rows=[{"carrier": "UA"}])
    await served(world)
    assert len(world.events("batch_accepted")) == accepted
    assert len(world.events("phase_opened")) == phases
    assert {one.get("batch_id") for one in world.events("batch_known")} >= set(ids)
    world.counted("flights", "till", 2, rows=[{"carrier": "UA"}])
    await served(world)
    assert len(world.events("batch_accepted")) == accepted + 1
    assert world.several_answers() == []


Break = Callable[[pytest.MonkeyPatch], None]
BROKEN: dict[str, tuple[Break, str]] = {}


def broken(complaint: str) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        BROKEN[function.__name__] = function, complaint
        return function

    return register


@broken("is missing|times, each time with another content|to what follows|is spent, and")
def the_charges_of_the_ledger_topic_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    known = write_off.known_of

    def own(name: str, bases: Any, said: Any) -> Any:
        found = known(name, bases, said)
        count = int(found.base.pairs[StateTable.FACT, b"ledger"])
        return found._replace(ledger=found.ledger[:count])

    patch.setattr(write_off, "known_of", own)


@broken("rows have counted twice")
def old_batches_count_again(patch: pytest.MonkeyPatch) -> None:
    done = write_off.written_off

    def forgetful(*arguments: Any, **named: Any) -> Any:
        return done(*arguments, **named | {"refused": []})

    patch.setattr(write_off, "written_off", forgetful)
    carried = Repair._carried

    async def without(*arguments: Any, **named: Any) -> Any:
        found = await carried(*arguments, **named)
        return {pair: value for pair, value in found.items() if pair[0] is not StateTable.OUTCOME}

    patch.setattr(Repair, "_carried", without)


def _with(patch: pytest.MonkeyPatch, change: Callable[[State], dict[Any, bytes]]) -> None:
    """Changes the state with which a data set begins again."""
    done = write_off.written_off

    def changed(*arguments: Any, **named: Any) -> Any:
        made = done(*arguments, **named)
        made.state.pairs.update(change(made.state))
        made.state.sum = sum(weight(*one) for one in made.state.pairs.items()) % 2**128
        return made

    patch.setattr(write_off, "written_off", changed)


@broken("has something left")
def a_phase_keeps_what_is_left_of_its_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_off, "UNITS", 2**49)


@broken("were looked at again")
def rows_of_an_old_phase_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_off, "UNITS", 2**49)

    def with_rows(state: State) -> dict[Any, bytes]:
        named = {pair: one for pair, one in state.pairs.items() if pair[0] is StateTable.KEPT}
        ((_, stored), *_) = named.items()
        transcript = state.numbered(StateTable.TRANSCRIPT)
        at = next(at for at, entry in enumerate(transcript) if entry[:1] == GIVEN_UP)
        return {
            (StateTable.KEPT, b"block 1 0"): stored,
            (StateTable.TRANSCRIPT, b"%d" % at): GIVEN_UP + b"0 1",
        }

    _with(patch, with_rows)


@broken("has two answers")
def answers_of_the_topic_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    carried = Repair._carried

    async def without(self: Repair, one: Any, *rest: Any, **named: Any) -> Any:
        one.said.answers.clear()
        return await carried(self, one, *rest, **named)

    patch.setattr(Repair, "_carried", without)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_copy_of_a_write_off_is_caught(
    world: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    break_it, complaint = BROKEN[name]
    break_it(monkeypatch)
    try:
        said = await written_off_and_used(world, second="old_phase" not in name)
    except CorruptState as error:
        said = [str(error)]
    assert any(re.search(complaint, one) for one in said), said


async def test_wherever_a_write_off_breaks_off_it_is_repeated(
    make_world: Callable[..., Any],
) -> None:
    deaths = 0
    for place in range(100):
        world = make_world(seed=place + 1)
        await seen_and_lost(world, second=place % 2 == 0)
        await mend_all(world)  # which stops it
        at = len(world.trail)
        partition = world.home("flights")
        try:
            await repairs(world, partition, "flights", fuse=CountingFuse(place)).apply()
        except world.Crash:
            deaths += 1
            process = await served(world)
            if "flights" not in process.worker.datasets:
                await repairs(world, partition, "flights").apply()
        await served(world)
        world.cells("flights", "three")
        await served(world)
        world.ask("flights", "new", AA, window={"last_phases": 1})
        process = await served(world)
        assert world.answer("new")["status"] == "answered", place
        assert len({e["phases"][1] for e in world.events("written_off")}) == 1, place
        assert faults(world, at, states(process)["flights"]) == [], place
        if deaths <= place:
            assert deaths > 4
            return
    raise AssertionError("there are more steps than places")


async def test_what_is_not_there_is_not_written_off(first: Any, process: Any) -> None:
    await process.kill()
    name = next(f"other-{n}" for n in range(9) if first.home(f"other-{n}") == 0)
    with pytest.raises(InvalidInput, match="there is no data set"):
        await repairs(first, 0, name).plan()


async def test_a_ledger_with_a_gap_is_not_adopted(world: Any) -> None:
    await seen_and_lost(world)
    missing = world.left("ledger")[-2]
    world.trail = [
        one for one in world.trail if not (isinstance(one, Sent) and one.outgoing is missing)
    ]
    with pytest.raises(CorruptState, match="is not on the topic"):
        await mend_all(world, "flights")


def forged(entries: list[bytes], change: Callable[[dict[str, Any]], None]) -> list[bytes]:
    """The same ledger with its last entry changed, and the chain made right."""
    body = json.loads(entries[-1])
    change(body)
    head = ledgers.Chain("flights", entries[:-1]).head
    for name in ("version", "dataset", "seq", "prev"):
        del body[name]
    entry, _ = ledgers.append(head, len(entries) - 1, "flights", body.pop("kind"), body)
    return [*entries[:-1], entry]


async def test_the_price_checker_finds_what_is_not_written_off(world: Any) -> None:
    await seen_and_lost(world)
    await mend_all(world, "flights")
    await served(world)
    whole = world.ledger()
    assert json.loads(whole[-1])["kind"] == "written_off"
    assert verify("flights", whole).faults == []

    def said(change: Callable[[dict[str, Any]], None]) -> str:
        return "; ".join(map(str, verify("flights", forged(whole, change)).faults))

    assert "and has some left" in said(lambda body: body["charges"].pop())
    assert "units and" in said(lambda body: body["charges"][0].__setitem__(1, 5))
    assert "writes off 1 phases where 2 are open" in said(lambda body: body.update(phases=1))
    head = ledgers.Chain("flights", whole).head
    charge, _ = ledgers.append(
        head, len(whole), "flights", "charge", {"looks": [], "charges": [[0, 0, 0]]}
    )
    report = verify("flights", [*whole, charge])
    assert any("whose rows are written off" in str(fault) for fault in report.faults)
