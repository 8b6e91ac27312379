"""A record that kills the worker again and again stops its data set, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.queries import conditions
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import ServerUnavailable
from stream_dp.pipeline import group_steps
from stream_dp.pipeline.intake import decider, decoder
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.queries import query_answerer
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS
from stream_dp.pipeline.repair.unlock import lift
from tests.driven import take_all
from tests.pipeline.commands import offline
from tests.pipeline.fakes import FakeRows
from tests.pipeline.marked import left, tried, trying
from tests.pipeline.scenarios import AA, LATE
from tests.view import MemoryView


@pytest.fixture
async def defined(world: Any) -> Any:
    """A world with two data sets in their first phase; everything is read."""

    def define(world: Any) -> None:
        world.define("flights", mechanism={"base_share": 0.05})  # each phase opens with a look
        world.define("trains")

    def fill(world: Any) -> None:
        world.cells("flights", "one")
        world.cells("trains", "one")

    await world.run(rounds=[define, fill])
    return world


Deadly = Callable[[str], None]


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch, world: Any) -> Deadly:
    """``deadly(where)``: from now on a worker dies of the query or batch that holds the word."""
    take = decider.Decider.handle
    decode = decoder.decode

    def poison(where: str) -> None:
        async def handle(self: Any, piece: Any, *rest: Any) -> None:
            value = piece.record.value or b""
            if where == "decision" and b"deadly" in value and not piece.suspect:
                raise world.Crash
            await take(self, piece, *rest)

        def read(record: Any, partitions: int) -> Any:
            if where == "reading" and record.value and b"deadly" in record.value:
                raise world.Crash
            return decode(record, partitions)

        monkeypatch.setattr(decider.Decider, "handle", handle)
        monkeypatch.setattr(group_steps, "decode", read)

    return poison


async def _deaths(world: Any) -> int:
    fuses = [world.Fuse() for _ in range(10)]
    return int(await world.run(*fuses))


@pytest.mark.parametrize("often", [Often(), Often(n_bytes=1, per_id=0)], ids=["", "rounds"])
@pytest.mark.parametrize("role", ["queries", "batches"])
async def test_a_deadly_record_quarantines_its_data_set_and_no_other(
    defined: Any, deadly: Deadly, often: Often, role: str
) -> None:
    defined.often = often
    deadly("decision")
    defined.ask("flights", "before", AA)
    if role == "queries":
        record = defined.ask("flights", "deadly", AA)
    else:
        record = defined.batch("flights", "deadly", rows=[{"carrier": "AA"}])
    defined.ask("flights", "behind", AA)
    defined.batch("flights", "more", rows=[])
    defined.ask("trains", "aa", AA)
    assert await _deaths(defined) == MOST_ATTEMPTS
    (event,) = defined.events("quarantined")
    assert event["dataset"] == "flights"
    assert f"{record.topic_partition}:{record.offset}" in event["reason"]["message"]
    assert role == "batches" or defined.answer("before")["status"] == "answered"
    assert defined.rejection(record)["reason"]["code"] == "quarantined"
    assert defined.rejection(record).get("query_id") == ("deadly" if role == "queries" else None)
    assert defined.held("flights").waiting == []
    assert defined.answer("aa")["status"] == "answered"
    codes = {r["reason"]["code"] for found in defined.rejections().values() for r in found}
    assert codes == {"quarantined"}
    assert defined.complaints() == []


async def test_what_was_answered_before_is_answered_again_in_quarantine(
    defined: Any, deadly: Deadly
) -> None:
    defined.ask("flights", "aa", AA)
    await defined.run()
    answer = defined.answer("aa")
    deadly("decision")
    defined.ask("flights", "deadly", AA)
    await _deaths(defined)
    defined.ask("flights", "aa", AA)
    defined.cells("flights", "one")
    late = defined.batch("flights", "late", rows=[])
    await defined.run()
    assert defined.answer("aa") == answer
    assert [e["batch_id"] for e in defined.released("events") if e.get("batch_id")][-1] == "one"
    assert defined.rejection(late)["reason"]["code"] == "quarantined"
    assert defined.complaints() == []


async def test_a_query_that_was_answered_is_not_rejected_when_the_worker_dies_behind_it(
    defined: Any, deadly: Deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first item is committed; the second kills. The record is suspect, its first item has an answer."""
    real = query_answerer.answer

    async def answer(dataset: Any, analyst: str, query: Any, **facts: Any) -> Any:
        if query.query_id == "second":
            dataset.draft.commit()
            await dataset.looks._appended(dataset.draft.collect())
            raise defined.Crash
        return await real(dataset, analyst, query, **facts)

    monkeypatch.setattr(query_answerer, "answer", answer)
    record = defined.ask_many("flights", [{"query_id": "first"}, {"query_id": "second"}])
    assert await _deaths(defined) == MOST_ATTEMPTS
    assert defined.answer("first")["status"] == "answered"
    assert defined.rejection(record)["query_id"] == "second"
    assert defined.complaints() == []


async def test_a_record_that_kills_when_it_is_read_is_rejected_alone(
    defined: Any, deadly: Deadly
) -> None:
    deadly("reading")
    record = defined.ask("flights", "deadly", AA)
    defined.ask("flights", "behind", AA)
    assert await _deaths(defined) == MOST_ATTEMPTS + 1
    assert defined.rejection(record)["reason"]["code"] == "unreadable"
    assert defined.answer("behind")["status"] == "answered"
    assert defined.events("quarantined") == []
    assert defined.complaints() == []


async def test_an_error_while_reading_rejects_the_record_at_once_and_quotes_nothing(
    defined: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decode = decoder.decode

    def read(record: Any, partitions: int) -> Any:
        if b"deadly" in record.value:
            raise KeyError("a row: canary")
        return decode(record, partitions)

    monkeypatch.setattr(group_steps, "decode", read)
    record = defined.ask("flights", "deadly", AA)
    assert await _deaths(defined) == 0
    assert defined.rejection(record)["reason"]["code"] == "unreadable"
    assert "canary" not in str(defined.rejection(record)) + caplog.text
    assert "KeyError" in caplog.text


async def test_an_error_while_compiling_refuses_the_query_at_once(
    defined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(conditions, "compile_where", fail)
    defined.ask("flights", "q", AA)
    assert await _deaths(defined) == 0
    assert defined.answer("q")["reason"]["code"] == "invalid_query"


async def test_a_definition_that_kills_is_rejected(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = Universe.__post_init__

    def deadly(self: Universe) -> None:
        if any(attribute.name == "deadly" for attribute in self.attributes):
            raise world.Crash
        init(self)

    monkeypatch.setattr(Universe, "__post_init__", deadly)
    record = world.define("flights", attributes=[{"name": "deadly", "type": "boolean"}])
    assert await _deaths(world) == 1 + MOST_ATTEMPTS  # the first took it among others
    assert world.rejection(record)["dataset"] == "flights"
    world.define("flights")
    assert await _deaths(world) == 0
    assert world.complaints() == []


async def test_a_data_set_in_quarantine_can_be_retired(defined: Any, deadly: Deadly) -> None:
    deadly("decision")
    defined.ask("flights", "deadly", AA)
    await _deaths(defined)
    defined.produce("datasets", None, key="flights")
    await defined.run()
    assert defined.events("dataset_retired")
    assert defined.held("flights").blocks == []


async def test_an_operator_lifts_the_quarantine(
    defined: Any, deadly: Deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly("decision")
    record = defined.ask("flights", "deadly", AA)
    await _deaths(defined)
    monkeypatch.undo()
    assert await lift(offline(defined), "flights") == f"{record.topic_partition}:{record.offset}"
    assert await lift(offline(defined), "flights") == ""
    defined.ask("flights", "deadly", AA)  # the same id: it was rejected, not answered
    assert await defined.run() == 0
    assert defined.answer("deadly")["status"] == "answered"


def _ask_five(world: Any) -> list[Any]:
    return [world.ask("flights", f"q{n}", AA) for n in range(4)] + [world.ask("trains", "q", AA)]


async def test_a_worker_whose_forerunner_said_goodbye_takes_records_in_groups(defined: Any) -> None:
    """As few steps as there can be: one append for each partition."""
    before = await defined.owner()
    await before.stop()
    assert left(defined) == [True, True]
    records = _ask_five(defined)
    process = await defined.owner()
    n_entries = [len(entries) for entries in defined.journal]
    await process.step(5)
    await process.drained()
    appended = [
        dict(entry.headers)["kind"]
        for entries, before in zip(defined.journal, n_entries, strict=True)
        for entry in entries[before:]
    ]
    assert appended.count(b"commit") == len({record.key for record in records}) == 2
    assert tried(defined) == []
    assert defined.complaints() == []


async def test_after_a_death_only_what_may_have_caused_it_is_taken_alone(defined: Any) -> None:
    """Neither what its data set has passed, nor what came after the death."""
    dead = await defined.owner()
    _ask_five(defined)
    await dead.step(2)
    await dead.kill()
    n_left = 5 - 2
    process = await defined.owner()
    _ask_five(defined)
    await process.run()
    assert len(tried(defined)) == n_left
    assert defined.complaints() == []


@pytest.mark.parametrize("goodbye", [True, False])
async def test_who_is_stopped_in_the_middle_of_a_group_was_not_ended_by_it(
    defined: Any, goodbye: bool
) -> None:
    stopped = await defined.owner()
    _ask_five(defined)
    stopped.interrupt = lambda _: asyncio.sleep(10)
    step = asyncio.ensure_future(take_all(stopped.worker, stopped.fetch(5)))
    await asyncio.sleep(0.01)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    stopped.interrupt = None
    await (stopped.stop() if goodbye else stopped.kill())
    process = await defined.owner()
    await process.run()
    assert bool(tried(defined)) is not goodbye
    assert defined.complaints() == []


async def test_an_error_is_no_goodbye_though_the_process_ends_in_order(
    defined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the goodbye of the next one, before it has come to the record at fault."""

    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    _ask_five(defined)
    failed = await defined.owner()
    with monkeypatch.context() as patch:
        patch.setattr(decider.Decider, "handle", fail)
        with pytest.raises(ZeroDivisionError):
            await failed.run()
    await failed.stop()
    hasty = await defined.owner()
    await hasty.stop()
    process = await defined.owner()
    await process.run()
    alone = tried(defined)
    assert alone
    await process.stop()
    last = await defined.owner()
    _ask_five(defined)
    await last.run()
    assert tried(defined) == alone
    assert defined.complaints() == []


async def test_two_deaths_are_forgotten_once_the_record_is_through(defined: Any) -> None:
    for _ in range(3):
        defined.ask("flights", f"q{len(defined.answers())}", AA)
        assert await defined.run(defined.Fuse(8), defined.Fuse(8)) == 2
    assert defined.events("quarantined") == []
    assert trying(defined) == {}
    assert defined.complaints() == []


async def test_attempts_are_counted_whatever_redis_forgets(defined: Any, deadly: Deadly) -> None:
    deadly("decision")
    record = defined.ask("flights", "deadly", AA)
    for number in range(1, MOST_ATTEMPTS + 1):
        process = await defined.owner()
        with pytest.raises(defined.Crash):
            await process.run()
        await process.kill()
        defined.view = MemoryView()
        assert trying(defined) == {record.record_id: number}
    assert await _deaths(defined) == 0
    assert defined.rejection(record)["reason"]["code"] == "quarantined"
    assert trying(defined) == {}
    assert defined.complaints() == []


async def test_a_broker_that_is_away_counts_as_nobody_s_death(
    defined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise ServerUnavailable("no broker")
        yield

    await defined.run(rounds=[lambda world: world.batch("flights", "waits", rows=[{}])])
    defined.ask("flights", "q", LATE)
    for _ in range(MOST_ATTEMPTS + 2):
        with monkeypatch.context() as patch:
            patch.setattr(FakeRows, "records", away)
            with pytest.raises(ServerUnavailable):
                await defined.run()
        await defined.processes[-1].kill()
        assert trying(defined) == {}
    assert await defined.run() == 0
    assert defined.answer("q")["status"] == "answered"
    assert defined.events("quarantined") == []
    assert defined.complaints() == []


async def test_a_deadly_standing_query_quarantines_its_data_set_and_can_be_ended_then(
    defined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    defined.ask("flights", "deadly", AA, standing=True, window={"last_phases": 1})
    defined.ask("flights", "late", LATE, standing=True)
    await defined.run()
    take = query_answerer.answer

    async def answer(dataset: Any, analyst: str, query: Any, **more: Any) -> Any:
        if query.query_id == "deadly@2":
            raise defined.Crash
        return await take(dataset, analyst, query, **more)

    monkeypatch.setattr(query_answerer, "answer", answer)
    defined.cells("flights", "two")
    defined.ask("trains", "aa", AA)
    await _deaths(defined)
    (event,) = defined.events("quarantined")
    assert event["dataset"] == "flights"
    assert defined.answer("aa")["status"] == "answered"
    defined.ask("flights", "deadly", standing=False)
    await defined.run()
    assert defined.rejections() == {}
    await lift(offline(defined), "flights")
    defined.ask("flights", "behind", AA)
    await defined.run()
    names = [query_id for _, _, query_id in defined.answers()]
    assert names[-2:] == ["late@2", "behind"]
    assert defined.complaints() == []
