"""What the metrics say is what was published, and docs/metrics.md says what they are."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_dp.client.budget.odometer import Odometer
from stream_dp.core import outcome
from stream_dp.core.budget.accountant import UNITS
from stream_dp.messages import INPUTS
from stream_dp.pipeline.journal import releaser
from stream_dp.pipeline.watch.metrics import Metrics
from stream_dp.profiles.builder import epsilon_spent
from stream_dp.state.view import Usage
from tests.pipeline.flights import AA, BEFORE, UNMEASURED, asked, next_phase, opened, ran
from tests.pipeline.flights import VERY_LATE as LATE

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()


@pytest.fixture
async def alone(world: Any) -> Any:
    """A worker that holds nothing."""
    process = await world.owner()
    yield process
    await process.kill()


@pytest.fixture
async def process(alone: Any) -> Any:
    """A worker, and on its log a data set with one phase and some rows that wait."""
    await opened(alone)
    await ran(alone, lambda world: world.batch("flights", "second", rows=[{"carrier": "AA"}] * 7))
    return alone


def _families(metrics: Metrics) -> dict[str, Any]:
    """Everything a scrape shows, by name, in Prometheus' own reading."""
    text = metrics.exposition().decode()
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
    }


def _shown(process: Any, name: str, **labels: str) -> list[float]:
    """Values of the series of ``process`` with these labels among theirs."""
    return [
        sample.value
        for sample in _families(process.worker.context.metrics)[f"stream_dp_{name}"].samples
        if labels.items() <= sample.labels.items()
    ]


async def _lost(process: Any) -> float:
    """Waits until a worker has seen that Redis is away; returns since when it is."""
    for _ in range(5_000):
        if (since := process.worker.following.contact.away_since) is not None:
            return float(since)
        await asyncio.sleep(0.001)
    raise AssertionError("Redis is not away")


def _date(world: Any, record: Any) -> None:
    """Gives a record that is not read yet a time."""
    dated = dataclasses.replace(record, timestamp_ms=1_700_000_000_000)
    world.log[record.topic_partition][record.offset] = dated


def _table() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric on the page."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|.*\| (?:public|inside) \|$", PAGE, re.MULTILINE
    )
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


async def test_the_page_lists_every_metric_with_its_type_and_labels(
    world: Any, process: Any
) -> None:
    world.ask("flights", "q", AA)
    _date(world, world.ask("flights", "tile", AA, standing=True))
    world.ask("flights", "bad", {"attribute": "nothing", "eq": 1})
    world.produce("queries", b"{", key="flights")
    world.define("shared", analysts={"ana": {"share": 0.5}}, owner={"share": 0.4})
    await process.run()
    world.cells("shared", "first")
    await process.run()
    metrics = process.worker.context.metrics
    metrics.lags = lambda: [("queries", 0, 3)]
    metrics.usage = Usage(memory=800, limit=1_000)
    metrics.rows_lost("flights", 2)
    metrics.source_unreadable("flights")
    process.worker.ownership.deleted["in.batches:1"] = 4
    process.worker.ownership.cut["in.batches:1"] = 7
    found = {
        name: (family.type, set().union(*(sample.labels for sample in family.samples)) - {"le"})
        for name, family in _families(metrics).items()
    }
    assert len(_table()) == len(re.findall(r"^\| `stream_dp_", PAGE, re.MULTILINE))
    assert found == _table()


@pytest.mark.parametrize(
    ("times_s", "jumps"),
    [
        ([0, 1, -59, 2], 0),
        ([-3600, 0, 3600], 0),  # of the past, as when a worker was away
        ([0, -61, -60], 1),
        ([0, 86_400, 0], 2),  # ahead of this machine's clock, and back again
    ],
)
async def test_records_that_a_clock_has_dated_wrong_are_counted(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch, times_s: list[int], jumps: int
) -> None:
    now_s = 1_700_010_000 if times_s[-1] == 3600 else 1_700_000_010
    monkeypatch.setattr(time, "time", lambda: now_s)
    for number, time_s in enumerate(times_s):
        record = world.ask("flights", f"q-{number}", AA)
        dated = dataclasses.replace(record, timestamp_ms=1000 * (1_700_000_000 + time_s))
        world.log[record.topic_partition][record.offset] = dated
    await process.run()
    assert _shown(process, "clock_jumps_total", topic="queries") == [jumps]
    for again in list(world.log[record.topic_partition]):  # they say nothing new
        process.worker.context.metrics.record(again)
    assert _shown(process, "clock_jumps_total", topic="queries") == [jumps]


async def test_labels_come_from_short_lists_and_name_no_one(world: Any, process: Any) -> None:
    world.ask("flights", "secret-id", AA)
    world.ask("flights", "another-id", {"attribute": "nothing", "eq": 1})
    world.ask("nowhere", "third-id", AA)
    world.ask("flights", "tile", AA, standing=True)
    await process.run()
    metrics = process.worker.context.metrics
    known: dict[str, set[str] | None] = {
        "dataset": {"flights"},
        "tile": {"tile"},
        "cell": {""},
        "difficulty": {"easy", "hard"},
        "path": set(outcome.Path),
        "topic": set(INPUTS),
        "reason": {*outcome.RefusalCode, "unknown_dataset"},
        "le": None,
    }
    for family in _families(metrics).values():
        for sample in family.samples:
            for label, value in sample.labels.items():
                allowed = known[label]
                assert allowed is None or value in allowed, sample
    for name in (b"ana", b"secret-id", b"another-id", b"third-id"):
        assert not re.search(rb'"[^"\n]*' + name, metrics.exposition())


async def test_the_budget_shown_is_the_one_in_the_ledger(world: Any, process: Any) -> None:
    await asked(process, *({"where": where} for where in (AA, LATE, {"all": [AA, LATE]})))
    spent = Odometer.read(world.released("ledger")).most_spent
    definition = process.worker.datasets["flights"].definition
    assert spent > 0.0
    assert _shown(process, "budget_spent_ratio") == [spent]
    assert _shown(process, "privacy_spent_epsilon") == [epsilon_spent(definition, spent)]
    assert _shown(process, "privacy_limit_epsilon") == [definition.privacy.epsilon]
    assert _shown(process, "privacy_delta") == [definition.privacy.delta]


async def test_what_a_share_has_left_is_what_the_ledger_says_it_has_not_charged(
    world: Any, alone: Any
) -> None:
    process = alone
    analysts = {"ana": {"share": 0.01}, "team-*": {"share": 0.02, "together": 0.03}, "eve": {}}
    base = {"base_share": 0.002}
    world.define("shared", mechanism=base, analysts=analysts, owner={"share": 0.1})
    await process.run()
    assert _shown(process, "share_left_ratio") == []
    world.cells("shared", "first")
    await process.run()
    for analyst, error in (("ana", 0.015), ("team-1", 0.007), ("team-2", 0.005)):
        await asked(process, {"where": AA, "error": error}, dataset="shared", analyst=analyst)
    await asked(process, {"where": AA}, dataset="shared", analyst="somebody")
    charged: Counter[str] = Counter()
    for entry in world.released("ledger"):
        if entry["kind"] == "charge":
            ((_, rho, _),) = entry["charges"]
            charged[entry.get("analyst", "")] += rho
    assert charged.keys() == {"", "ana", "team-1", "team-2"}
    spent = {name: units / UNITS for name, units in charged.items()}

    def left(**labels: str) -> float:
        (value,) = _shown(process, "share_left_ratio", **labels)
        return value

    assert left(analyst="ana") == pytest.approx(1 - spent["ana"] / 0.01)
    together = 0.03 - spent["team-1"] - spent["team-2"]
    assert left(analyst="team-*") == pytest.approx(min(0.02, together) / 0.02)
    assert together < 0.02, "else nothing of the team is seen"
    assert _shown(process, "owner_share_left_ratio") == [pytest.approx(1 - spent[""] / 0.1)]
    assert len(_shown(process, "share_left_ratio")) == 2, "eve has no share, and somebody no entry"


@pytest.mark.parametrize("kinds", [{}, {"median": {"share": 0.05}}])
async def test_what_queries_may_take_now_is_what_pacing_does_not_keep(
    world: Any, alone: Any, kinds: dict[str, Any]
) -> None:
    process = alone
    world.define("paced", mechanism={"base_share": 0.0, "pacing": True}, kinds=kinds)
    world.define("free", mechanism=UNMEASURED)
    await process.run()
    assert _shown(process, "newest_free_ratio") == []
    for name, kept in (("paced", 0.5), ("free", 0.0)):
        await next_phase(process, name)
        await asked(process, {"where": AA}, dataset=name)
        ledger = [entry for entry in world.released("ledger") if entry["dataset"] == name]
        spent = Odometer.read(ledger).most_spent
        assert spent > 0
        (left,) = _shown(process, "newest_left_ratio", dataset=name)
        (now,) = _shown(process, "newest_free_ratio", dataset=name)
        assert (left, now) == (pytest.approx(1 - spent), pytest.approx(1 - spent - kept))


async def test_a_full_line_has_spent_all_of_epsilon_and_half_of_one_more_than_half(
    process: Any,
) -> None:
    definition = process.worker.datasets["flights"].definition
    epsilon = definition.privacy.epsilon
    assert epsilon_spent(definition, 0.0) == 0.0
    assert epsilon / 2 < epsilon_spent(definition, 0.5) < epsilon
    assert epsilon_spent(definition, 1.0) == epsilon


async def test_rows_and_phases_are_those_that_were_announced(world: Any, process: Any) -> None:
    accepted = world.events("batch_accepted")
    assert _shown(process, "rows_accepted_total") == [sum(e["rows"] for e in accepted)]
    assert _shown(process, "rows_waiting") == [accepted[-1]["waiting"]] == [7]
    assert _shown(process, "rows_sealed") == [sum(e["rows"] for e in world.events("phase_opened"))]
    assert _shown(process, "phase") == [1]


@pytest.mark.parametrize("define", ["define", "define_memory"])
async def test_the_next_phase_opens_at_the_rows_said_to_be_needed_and_not_before(
    world: Any, alone: Any, define: str
) -> None:
    process = alone
    getattr(world, define)("flights")
    await process.run()
    (needed,) = _shown(process, "phase_rows_needed")
    for count, phase in ((int(needed) - 1, 0), (1, 1)):
        world.batch("flights", f"b{count}", cells=[{"carrier": "AA", "count": count}])
        await process.run()
        assert _shown(process, "phase") == [phase]


async def test_nothing_is_needed_where_no_phase_is_left(world: Any, alone: Any) -> None:
    process = alone
    world.define_memory("thesis")
    await process.run()
    while needed := _shown(process, "phase_rows_needed"):
        (phase,) = _shown(process, "phase")
        cells = [{"carrier": "AA", "count": int(needed[0])}]
        world.batch("thesis", f"b{phase}", cells=cells)
        await process.run()
        assert _shown(process, "phase") == [phase + 1]
    assert phase > 0


async def test_answers_and_refusals_are_counted_once_however_often_they_are_sent(
    world: Any, process: Any
) -> None:
    for _ in range(3):
        world.ask("flights", "q", AA)
        world.ask("flights", "bad", {"attribute": "nothing", "eq": 1})
        world.ask("flights", "quote", LATE, quote=True)
        await process.run()
    reply = world.answer("q")
    labels = {"difficulty": reply["difficulty"], "path": reply["path"], "dataset": "flights"}
    assert _shown(process, "answers_total") == _shown(process, "answers_total", **labels) == [1]
    assert _shown(process, "refusals_total") == [1]
    assert _shown(process, "refusals_total", reason="unknown_attribute") == [1]


async def test_replies_are_timed_from_the_timestamp_of_the_query(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "time", lambda: 1_000.0)
    for seconds, names in ((0.02, ["a", "b"]), (3.0, ["c"]), (100.0, ["d"]), (-5.0, ["e"])):
        items = [{"query_id": name, "where": AA} for name in names]
        record = world.ask_many("flights", items)
        log = world.log[record.topic_partition]
        log[-1] = dataclasses.replace(record, timestamp_ms=round(1000 * (1_000.0 - seconds)))
    world.ask("flights", "without a time", AA)
    await process.run()
    family = _families(process.worker.context.metrics)["stream_dp_answer_latency_seconds"]
    at_most = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert at_most["0.005"] == at_most["0.01"] == 1
    assert at_most["0.025"] == at_most["2.5"] == 3
    assert at_most["5.0"] == at_most["60.0"] == 4
    assert at_most["+Inf"] == 5
    totals = {s.name.rpartition("_")[2]: s.value for s in family.samples if "le" not in s.labels}
    assert totals == {"count": 5, "sum": pytest.approx(2 * 0.02 + 3 + 100)}


async def test_commits_are_those_of_the_store_and_a_new_owner_has_not_committed_yet(
    world: Any, process: Any
) -> None:
    assert _shown(process, "commits_total") == [world.held("flights").seq]
    assert len(_shown(process, "last_commit_timestamp_seconds")) == 1
    await process.stop()
    heir = await world.owner()
    await heir.drained()
    assert _shown(heir, "commits_total") == [world.held("flights").seq]
    assert _shown(heir, "last_commit_timestamp_seconds") == []
    await heir.kill()


async def test_what_has_not_left_is_in_the_outbox(world: Any, process: Any) -> None:
    send, gate = process.worker.releaser._send, []

    async def hold(outgoing: Any) -> Any:
        gate.append(_shown(process, "outbox_records"))
        return await send(outgoing)

    process.worker.releaser._send = hold
    world.ask("flights", "q", AA)
    await process.run()
    assert gate[0][0] >= 1
    assert _shown(process, "outbox_records") == [0]


async def test_a_data_set_that_went_or_was_retired_is_no_longer_shown(
    world: Any, process: Any
) -> None:
    world.define("trains")
    await process.run()
    assert len(_shown(process, "phase")) == 2
    world.produce("datasets", None, key="trains")
    await process.run()
    assert _shown(process, "phase") == _shown(process, "phase", dataset="flights") == [1]
    process.worker.revoked(range(world.partitions))
    assert _shown(process, "phase") == _shown(process, "privacy_spent_epsilon") == []


async def test_what_redis_has_used_is_shown_once_it_is_known(process: Any) -> None:
    names = ("memory_bytes", "memory_limit_bytes")
    assert [_shown(process, f"store_{name}") for name in names] == [[], []]
    used = Usage(memory=800, limit=1_000)
    process.worker.context.metrics.usage = used
    assert [_shown(process, f"store_{name}") for name in names] == [[800], [1_000]]


async def test_a_redis_that_is_away_shows_for_how_long_and_how_far_it_is_behind(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await process.worker.following.joined()
    assert _shown(process, "view_away_seconds") == _shown(process, "view_behind_commits") == [0]
    world.view.down = True
    commits = world.held("flights").seq
    world.ask("flights", "q", AA)
    await process.run()
    more = world.held("flights").seq - commits
    assert more > 0
    await _lost(process)
    now_s = time.time() + 700
    monkeypatch.setattr(time, "time", lambda: now_s)
    assert _shown(process, "view_away_seconds") == [pytest.approx(700, abs=60)]
    assert _shown(process, "view_behind_commits") == [more]
    world.view.down = False
    await process.worker.following.joined()
    assert _shown(process, "view_away_seconds") == _shown(process, "view_behind_commits") == [0]


async def test_a_redis_that_is_away_is_not_taken_for_back_where_nothing_is_to_be_written(
    world: Any, process: Any
) -> None:
    await process.stop()
    world.view.down = True
    heir = await world.owner()
    contact = heir.worker.following.contact
    since = await _lost(heir)
    for _ in range(50):
        await asyncio.sleep(0.01)
        assert contact.away_since == since
    await heir.kill()


async def test_a_tile_shows_its_newest_answer_with_the_ends_of_its_bar(
    world: Any, process: Any
) -> None:
    by = {"kind": "table", "group_by": ["carrier", "cancelled"]}
    tiles: dict[str, Any] = {"late": {"where": LATE}, "by": by}
    await asked(process, *({"query_id": n, "standing": True, **q} for n, q in tiles.items()))
    await next_phase(process)
    answer = world.answer("late@2")
    value, error_bar = answer["value"], answer["error_bar"]
    for name, wanted in {
        "answer": value,
        "answer_low": value - error_bar,
        "answer_high": value + error_bar,
        "answer_phase": 2,
    }.items():
        assert _shown(process, name, dataset="flights", tile="late") == [wanted]
    table = world.answer("by@2")["table"]
    assert _shown(process, "answer", tile="by", cell="AA, false") == [table["values"][0]]
    assert _shown(process, "answer", tile="by") == table["values"]
    await process.kill()
    after = await world.owner()
    await after.run()
    for name in ("answer", "answer_low", "answer_phase"):
        assert _shown(after, name) == _shown(process, name)
    world.ask("flights", "late", standing=False)
    await after.run()
    assert _shown(after, "answer", tile="late") == []
    await after.kill()


async def test_of_a_large_table_the_first_hundred_cells_are_shown(alone: Any) -> None:
    wide = {"name": "c", "type": "category", "values": [f"c{n}" for n in range(120)]}
    await opened(alone, rows={"cells": [{"c": "c0", "count": 21_000}]}, attributes=[wide])
    tile = {"query_id": "by", "kind": "table", "group_by": ["c"], "standing": True}
    await asked(alone, tile)
    assert len(_shown(alone, "answer", tile="by")) == 100


async def test_a_refused_tile_shows_no_number_and_its_age_is_that_of_its_record(
    world: Any, process: Any
) -> None:
    record = world.ask("flights", "late", LATE, kind="difference", standing=True, **BEFORE)
    _date(world, record)
    await process.run()
    assert world.answer("late@1")["status"] == "refused"
    assert _shown(process, "answer", tile="late") == []
    assert _shown(process, "answer_phase", tile="late") == [1]
    assert _shown(process, "answer_timestamp_seconds", tile="late") == [1_700_000_000]
