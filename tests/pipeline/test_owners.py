"""Who owns a data set: rebalances, zombies, and records that come out of an old buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.errors import InvalidInput
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.marks import Marks
from stream_dp.pipeline.repair.input_repair import read_again
from tests.driven import take_all
from tests.local_logs import LocalLog
from tests.pipeline.commands import offline
from tests.pipeline.fakes import bounds
from tests.pipeline.marked import cuts, watermarks
from tests.pipeline.scenarios import AA, LATE

NAMES = ("flights", "trains", "buses", "ships")  # on both partitions


def _fill(world: Any) -> None:
    """Definitions first: topics have no mutual order."""
    for name in NAMES:
        world.cells(name, "one")
        world.cells(name, "two")
        world.ask(name, "aa", AA)
        world.ask_many(name, [{"query_id": "late", "where": LATE}, {"query_id": "all"}])
        world.ask(name, "aa", AA)
        world.batch(name, "three", rows=[{"carrier": "AA"}])


@pytest.fixture
def make_filled(make_world: Callable[..., Any]) -> Callable[[], Any]:
    """``await make_filled()``: a world with four data sets, and records that nobody has read yet."""

    async def make() -> Any:
        world = make_world()
        await world.run(
            rounds=[lambda w: [w.define(name, mechanism={"base_share": 0.0005}) for name in NAMES]]
        )
        _fill(world)
        return world

    return make


async def test_two_workers_share_the_work(make_filled: Any) -> None:
    world = await make_filled()
    assert {world.home(name) for name in NAMES} == {0, 1}
    one, two = world.process(), world.process()
    await one.assign([0])
    await two.assign([1])
    await asyncio.gather(one.run(), two.run())
    assert set(one.worker.datasets).isdisjoint(two.worker.datasets)
    assert set(one.worker.datasets) | set(two.worker.datasets) == set(NAMES)
    for process in (one, two):
        await process.settled()
        await process.kill()
    assert world.complaints() == []


async def test_records_out_of_a_buffer_that_a_rebalance_left_behind_are_dropped(
    make_filled: Any,
) -> None:
    """Taken, they would come before the records that are read again, and those would count as read."""
    world = await make_filled()
    process = await world.owner()
    process.fetch(10)
    buffered = process.fetch(10)
    process.worker.revoked([0, 1])
    await process.assign()
    await take_all(process.worker, buffered)
    assert all(
        process.worker.ownership.next_offset(topic_partition) == 0
        for topic_partition in process.positions
        if "queries" in topic_partition
    )
    await process.run()
    assert world.complaints() == []


async def test_records_are_dropped_until_the_reading_position_is_set(make_filled: Any) -> None:
    world = await make_filled()
    process = world.process()
    process.worker.assigned([0, 1], 7)
    record = process.fetched(world.log["in.queries:0"][0])
    for generation, position in ((7, {}), (6, {record.topic_partition: 0})):
        process.worker.ownership.reading_from(position, generation)
        await take_all(process.worker, [process.fetched(record)])
        assert process.worker.ownership.next_offset(record.topic_partition) is None


async def _read_to_the_end(world: Any) -> tuple[Any, str, int]:
    """Returns a process that has taken all there is, a ``topic:partition`` that it reads, and its end."""
    process = await world.owner()
    await process.run()
    await process.settled()
    (topic_partition,) = [
        topic_partition
        for topic_partition in world.log
        if world.log[topic_partition] and topic_partition.endswith("queries:0")
    ]
    return process, topic_partition, len(world.log[topic_partition])


async def test_a_log_that_a_former_owner_reads_on_meanwhile_was_not_cut(make_filled: Any) -> None:
    """Its end is asked for when it is known up to where it was read, however long that took."""
    world = await make_filled()
    process, topic_partition, end = await _read_to_the_end(world)
    heir = world.process()

    async def read_on(_: int) -> None:
        heir.interrupt = None
        world.ask("flights", "meanwhile", AA)
        world.ask("flights", "meanwhile too", AA)
        await process.run()
        await process.settled()

    heir.interrupt = read_on
    await heir.assign()
    assert heir.positions[topic_partition] == end + 2
    assert heir.worker.cut == {}


async def test_a_partition_that_was_cut_is_not_read_and_all_others_are(make_filled: Any) -> None:
    """Nor is it once it has grown again: its new records have offsets that others had."""
    world = await make_filled()
    process, topic_partition, end = await _read_to_the_end(world)
    await process.kill()
    whole = list(world.log[topic_partition])
    del world.log[topic_partition][-1:]
    for _ in range(3):
        process = await world.owner()
        world.ask("flights", f"lost-{end}", AA)
        world.cells("flights", f"more-{len(world.processes)}")
        await process.run()
        assert process.worker.ownership.cut == {topic_partition: end}
        assert process.worker.ownership.next_offset(topic_partition) is None
        await process.kill()
    accepted = [event["batch_id"] for event in world.events("batch_accepted")]
    assert [one for one in accepted if one.startswith("more")] != []
    assert len(world.log[topic_partition]) > end
    asked = {query_id for _, _, query_id in world.answers()}
    assert f"lost-{end}" not in asked

    del world.log[topic_partition][end - 1 :]
    with pytest.raises(InvalidInput, match=f"ends at {end - 1}, so not all of it was put back"):
        await read_again(offline(world), "queries", topic_partition, is_restored=True)
    # Put back as it was, it is read from where it was left, also if it is cut again before more is read.
    for again in range(3):
        world.log[topic_partition][:] = whole
        await read_again(offline(world), "queries", topic_partition, is_restored=True)
        process = await world.owner()
        assert process.worker.ownership.cut == {}
        assert process.worker.ownership.next_offset(topic_partition) == end
        await process.kill()
        if again < 2:
            del world.log[topic_partition][-1:]
            process = await world.owner()
            assert process.worker.ownership.cut == {topic_partition: end}
            assert cuts(world) == {topic_partition: end}
            await process.kill()
    process = await world.owner()
    world.ask("flights", "after", AA)
    await process.run()
    assert process.worker.ownership.cut == {}
    assert world.answer("after")["status"] == "answered"
    with pytest.raises(InvalidInput, match="was not cut"):
        await read_again(offline(world), "queries", topic_partition, is_restored=True)
    assert world.complaints() == []


async def test_a_partition_of_the_journal_that_was_cut_is_not_served_and_all_others_are(
    make_filled: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_filled()
    await world.run()
    await world.run()  # the second worker notes that all of it is read
    partition = world.home("flights")
    whole = list(world.journal[partition])
    del world.journal[partition][5:]
    for _ in range(2):
        process = await world.owner()
        query_id = f"after-{len(world.processes)}"
        for name in NAMES:
            world.ask(name, query_id, AA)
        await process.run()
        assert process.worker.aside == {partition}
        shown = process.worker.context.metrics.exposition().decode()
        assert f'stream_dp_partition_cut{{place="journal:{partition}"}} 1.0' in shown
        appended = [dict(entry.headers)["kind"] for entry in world.journal[partition][5:]]
        assert set(appended) <= {b"epoch", b"mark"}, "nothing is committed there"
        answered = {name for name, _, asked in world.answers() if asked == query_id}
        assert answered == {name for name in NAMES if world.home(name) != partition}
        await process.kill()
    assert (
        f"partition {partition} of the journal is not whole: something was published" in caplog.text
    )

    world.journal[partition][:] = whole
    await world.run()
    assert {name for name, _, asked in world.answers() if asked == query_id} == set(NAMES)
    assert world.complaints() == []


PLACE = "in.queries:0"


@pytest.mark.parametrize(
    ("read", "there", "position", "told"),
    [
        (None, (0, 3), 0, ""),
        (None, (17, 20), 17, f"records 0 to 16 of {PLACE} were deleted before anyone read them"),
        (5, (8, 10), 8, f"records 5 to 7 of {PLACE} were deleted before anyone read them"),
        (5, (5, 5), 5, ""),  # after they were read
        (5, (0, 4), None, f"{PLACE} was read to offset 5, was cut, and ends at 4"),
    ],
)
async def test_reading_goes_on_at_the_first_record_that_there_is_and_what_is_missing_is_told_once(
    world: Any,
    caplog: pytest.LogCaptureFixture,
    read: int | None,
    there: tuple[int, int],
    position: int | None,
    told: str,
) -> None:
    process = world.process()
    process.worker.assigned([0], 1)
    owner = process.worker.ownership
    marks = {} if read is None else {0: Marks(watermarks={PLACE: read})}
    for _ in range(2):  # a rebalance is no news
        found = await owner.positions(bounds({PLACE: there}), marks)
        assert found == ({} if position is None else {PLACE: position})
        owner.reading_from(found, 1)
    assert {one.getMessage()[: len(told)] for one in caplog.records} == {told} - {""}
    assert len(caplog.records) <= 1 + (position is None)
    shown = process.worker.context.metrics.exposition().decode()
    lost = 0 if position is None else position - (read or 0)
    assert owner.deleted == ({PLACE: lost} if lost else {})
    assert (f'stream_dp_records_deleted_unread{{place="{PLACE}"}} {lost}.0' in shown) is bool(lost)
    assert (f'stream_dp_partition_cut{{place="{PLACE}"}} 1.0' in shown) is (position is None)


async def test_what_holds_no_record_is_passed_over_from_where_reading_stands_alone(
    make_filled: Any,
) -> None:
    world = await make_filled()
    process, topic_partition, end = await _read_to_the_end(world)
    # Something was taken meanwhile.
    await process.worker.pass_over(topic_partition, end - 1, end + 5)
    await process.worker.pass_over("in.queries:7", 0, 5)  # another worker's
    assert process.worker.ownership.next_offset(topic_partition) == end
    assert process.worker.ownership.next_offset("in.queries:7") is None
    await process.worker.pass_over(topic_partition, end, end + 2)
    await process.drained()
    await process.settled()
    assert (
        watermarks(world)[topic_partition]
        == process.worker.ownership.next_offset(topic_partition)
        == end + 2
    )


async def test_after_a_step_that_was_cut_short_a_worker_takes_nothing_more(
    make_filled: Any,
) -> None:
    """What it holds in memory may be ahead of the journal; only a new one may go on."""
    world = await make_filled()
    process = await world.owner()
    process.interrupt = lambda _: asyncio.sleep(10)
    step = asyncio.ensure_future(take_all(process.worker, process.fetch(5)))
    await asyncio.sleep(0.01)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    process.interrupt = None
    with pytest.raises(RuntimeError, match="start another"):
        await take_all(process.worker, process.fetch(5))
    await process.kill()
    await world.run()
    assert world.complaints() == []


async def test_a_restarted_worker_knows_exactly_what_the_living_one_knows(make_filled: Any) -> None:
    """Folding what is stored gives the same mechanism: every quote is the same."""
    world = await make_filled()
    living = await world.owner()
    await living.run()
    wheres = [AA, LATE, {"all": [AA, LATE]}, {"attribute": "cancelled", "eq": True}]
    items = [
        {"query_id": f"{n}-{w}", "where": where, "quote": True, **window}
        for n, where in enumerate(wheres)
        for w, window in enumerate(({}, {"window": {"last_phases": 1}}))
    ]
    for name in NAMES:
        world.ask_many(name, items, analyst="bob")
    await living.run()
    known = {name: reply for name, reply in world.answers().items() if name[1] == "bob"}
    budgets = {
        name: d.accounts.budget(range(d.phase)) for name, d in living.worker.datasets.items()
    }
    await living.kill()
    reborn = await world.owner()
    for name in NAMES:
        world.ask_many(name, items, analyst="cid")
    await reborn.run()
    again = {
        (n, "bob", q): {**reply, "analyst": "bob"}
        for (n, analyst, q), reply in world.answers().items()
        if analyst == "cid"
    }
    assert again == known
    assert {
        n: d.accounts.budget(range(d.phase)) for n, d in reborn.worker.datasets.items()
    } == budgets


async def test_who_was_followed_enters_a_partition_again_only_where_reading_begins_anew() -> None:
    """Else it goes on with reading positions, and with rejections, of before the other one came."""
    log = LocalLog(1)

    def journal() -> Journal:
        return Journal(
            log,
            facts={},
            is_held=lambda _: True,
            context=Context(),
        )

    first, second = journal(), journal()
    before = await first.entered(0)
    assert await first.mark(before, watermarks={"in.queries:0": 7})
    await second.entered(0)
    assert not await first.mark(before, watermarks={"in.queries:0": 8})
    assert await first.entered(0) is before
    assert first.lost(0)
    assert not await first.mark(before, watermarks={"in.queries:0": 8})
    first.keep(frozenset())
    anew = await first.entered(0)
    assert anew.marks.watermarks == {"in.queries:0": 7}
    assert not await first.mark(before, watermarks={"in.queries:0": 9})
    assert await first.mark(anew, watermarks={"in.queries:0": 10})
    assert not first.lost(0)
