"""What one record may ask for, and what it may cost the data sets of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.pipeline.datasets import dataset
from stream_dp.pipeline.intake import backlog
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS
from stream_dp.pipeline.spending import in_hand
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.driven import take_all
from tests.pipeline.crash import Crash
from tests.pipeline.flights import AA, UNMEASURED, asked, opened, rejected
from tests.pipeline.marked import watermarks

TABLE: dict[str, Any] = {
    "kind": "table",
    "group_by": ["carrier", "delay", "cancelled"],
}  # 3 * 4 * 2 values


@pytest.fixture
async def filled(world: Any) -> Any:
    """A world with two data sets in their first phase; everything is read."""

    for name in ("flights", "trains"):
        await opened(world, name, mechanism=UNMEASURED)
    return world


def tables(*names: str) -> list[dict[str, Any]]:
    return [{"query_id": name, **TABLE} for name in names]


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """``deadly()``: from now on each worker dies of what it reads when it takes flights over."""
    replay = dataset.Dataset._replay

    def dies(self: Any) -> None:
        if self.name == "flights":
            raise Crash
        replay(self)

    return lambda: monkeypatch.setattr(dataset.Dataset, "_replay", dies)


async def test_a_record_asks_for_so_many_values_and_the_rest_is_rejected_free(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's answer may be megabytes, and asking for it takes some fifty bytes."""
    monkeypatch.setattr(backlog, "MOST_VALUES", 60)
    await asked(filled, *tables("q0", "q1", "q2", "q3", "q4"))
    assert rejected(filled) == dict.fromkeys(("q2", "q3", "q4"), "too_much_work")
    assert filled.answer("q1")["status"] == "answered"
    [later] = await asked(filled, *tables("q3"))
    assert later["status"] == "answered"


@pytest.mark.parametrize("where", [None, {"all": []}, {"not": {"any": []}}])
async def test_a_curve_counts_as_all_its_values_however_every_row_is_asked_for(
    world: Any, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any] | None
) -> None:
    await opened(world, kinds={"threshold": {"share": 0.1}})
    monkeypatch.setattr(backlog, "MOST_VALUES", 10)  # delay has four bins
    curve: dict[str, Any] = {"kind": "threshold", "attribute": "delay", "where": where}
    await asked(world, *({"query_id": f"q{n}", **curve} for n in range(3)))
    assert rejected(world) == {"q2": "too_much_work"}


async def test_what_was_answered_before_counts_too_when_it_is_sent_again(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(filled, *tables("q0", "q1", "q2", "q3"))
    filled.trail.clear()
    monkeypatch.setattr(backlog, "MOST_VALUES", 60)
    await asked(filled, *tables("q0", "q1", "q2", "q3"))
    assert set(rejected(filled)) == {"q2", "q3"}
    assert len(filled.released("answers")) == 2


async def test_one_query_is_always_answered(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MOST_VALUES", 2)
    [large] = await asked(filled, *tables("large"))
    assert large["status"] == "answered"


async def test_a_record_leads_to_so_many_draws_also_when_a_crash_cuts_it_short(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_hand, "MOST_DRAWN", 2)
    wheres = [{"attribute": "delay", "ge": edge} for edge in (0, 10, 30)] + [AA]
    queries = [{"query_id": f"q{n}", "where": where} for n, where in enumerate(wheres)]
    filled.ask_many("flights", [*queries, {"query_id": "free", "where": wheres[0]}])
    assert await filled.run(filled.Fuse(0, CrashPoint.AFTER_CHARGE)) == 1
    assert set(rejected(filled).values()) == {"too_much_work"}
    answered = {name for _, _, name in filled.answers()} - {"free"}
    assert answered == {"q0"}, "its look was taken twice, which is all there may be"
    assert answered | set(rejected(filled)) == {"q0", "q1", "q2", "q3"}
    assert filled.answer("free")["path"] == "repeat", "what costs nothing is answered all the same"
    assert filled.complaints() == []


async def test_a_long_record_leaves_room_for_another_data_set_after_each_step(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_STEP_QUERIES", 3)
    await _goodbye(filled)
    long = filled.ask_many("flights", [{"query_id": f"q{n}", "where": AA} for n in range(10)])
    behind = filled.ask("flights", "behind", AA)
    other = filled.ask("trains", "other", AA)
    process = filled.process()
    await process.assign()
    progress = process.worker.context.heartbeat.count
    await process.worker.take([process.fetched(record) for record in (long, behind, other)])
    assert process.worker.behind == 2
    assert process.worker.context.heartbeat.count > progress + 3, (
        "the watchdog is told of each query"
    )
    await process.worker.releaser.joined()
    names = {query_id for _, _, query_id in filled.answers()}
    assert names == {"q0", "q1", "q2", "other"}
    done = watermarks(filled) | process.watermarks
    assert done.get(long.topic_partition, 0) == long.offset, "it is read again"
    await take_all(process.worker, ())
    await process.drained()
    names = {query_id for _, _, query_id in filled.answers()}
    assert names == {*(f"q{n}" for n in range(10)), "behind", "other"}
    done = watermarks(filled) | process.watermarks
    assert done[long.topic_partition] == behind.offset + 1
    await process.kill()
    assert filled.complaints() == []


async def _goodbye(world: Any) -> None:
    """Has a worker end as it should: the next one need not look for the record that ended it."""
    process = await world.owner()
    await process.run()
    await process.stop()


async def test_names_that_nobody_defined_leave_nothing_behind(world: Any) -> None:
    for number in range(20):
        world.ask(f"nobody-{number}", "q", AA)
        world.batch(f"nobody-{number}", "b", rows=[])
    bad = world.define("refused", mechanism={"profile": "median", "queries": 1})
    await world.run()
    assert world.durable() == world.view.states == {}
    assert world.kept == {}
    assert world.rejection(bad)["reason"]["code"] == "invalid_definition"


async def test_a_take_over_that_ends_workers_again_and_again_quarantines_its_data_set(
    filled: Any, deadly: Callable[[], None]
) -> None:
    """A death by memory, say: nobody has a record in hand then."""
    filled.ask("flights", "q", AA)
    filled.ask("trains", "other", AA)
    deadly()
    assert await filled.run(*[filled.Fuse() for _ in range(10)]) == MOST_ATTEMPTS
    (event,) = filled.events("quarantined")
    assert event["dataset"] == "flights"
    assert "the take-over of flights" in event["reason"]["message"]
    assert filled.answer("other")["status"] == "answered"
    assert set(rejected(filled).values()) == {"quarantined"}


async def test_what_has_not_left_leaves_though_its_data_set_is_quarantined_at_the_take_over(
    filled: Any, deadly: Callable[[], None]
) -> None:
    """A mark says that all below it has left, and nobody looks there again."""
    first = filled.process()
    await first.assign()
    send = first.worker.releaser._send

    async def die(outgoing: Any) -> Any:
        if outgoing.role == "answers":
            raise filled.Crash
        return await send(outgoing)

    first.worker.releaser._send = die
    filled.ask("flights", "q", AA)
    with pytest.raises(filled.Crash):
        await first.run()
    await first.kill()
    assert filled.released("answers") == []
    deadly()
    assert await filled.run(*[filled.Fuse() for _ in range(10)]) == MOST_ATTEMPTS
    assert len(filled.events("quarantined")) == 1
    assert filled.answer("q")["status"] == "answered"
    entries = filled.held("flights").ledger
    left = filled.released("ledger")
    assert [entry for entry in map(json.loads, entries) if entry not in left] == []
