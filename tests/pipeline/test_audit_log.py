"""The audit log: a line for each reply to a query, once it is durable, and never a word of a row."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.pipeline.watch.audit_log import LOGGER
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.crash import CountingFuse, Crash
from tests.pipeline.flights import AA, LATE, UNMEASURED, next_phase, opened
from tests.pipeline.scenarios import HURRIED, NOV_1
from tests.pipeline.trail import Sent

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message"}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """``lines()``: the named fields of each line so far, and its text."""
    with caplog.at_level(logging.INFO, logger=LOGGER):
        yield lambda: [
            {name: value for name, value in vars(one).items() if name not in _USUAL}
            | {"text": one.getMessage()}
            for one in caplog.records
            if one.name == LOGGER
        ]


@pytest.fixture
async def open_now(world: Any) -> Any:
    """A world with a data set in its first phase, which allows three queries a minute to bob."""

    world.now_ms = NOV_1
    analysts = {"ana": {}, "bob": {"queries_per_minute": 3}}
    return await opened(world, mechanism=UNMEASURED, analysts=analysts)


async def test_a_line_says_who_asked_what_when_and_at_what_price(open_now: Any, lines: Any) -> None:
    record = open_now.ask("flights", "q1", AA, error=0.05)
    await open_now.run()
    (line,) = lines()
    share = open_now.answer("q1")["privacy_loss"]["share"]
    assert share > 0
    assert line.pop("text") == " ".join(f"{name}={value}" for name, value in line.items())
    assert line == {
        "analyst": "ana",
        "dataset": "flights",
        "query_id": "q1",
        "kind": "predicate",
        "record": record.record_id,
        "asked_at": "2026-11-01T00:00:00.000Z",
        "status": "answered",
        "difficulty": "hard",
        "path": "measured",
        "share": share,
        "blocks": 1,
        "query": '{"where":{"attribute":"carrier","eq":"AA"},"error":0.05}',
    }


async def test_each_reply_has_a_line_whatever_came_of_the_query(open_now: Any, lines: Any) -> None:
    items: list[dict[str, Any]] = [
        {"query_id": "answered", "where": AA},
        {"query_id": "answered", "where": AA},
        {"query_id": "answered", "where": LATE},
        {"query_id": "refused", "where": {"attribute": "nothing", "eq": 1}},
        {"query_id": "price", "where": LATE, "quote": True},
        {"query_id": "stranger", "where": "not a condition"},
        {"query_id": "tile", "where": AA, "standing": True},
        {"query_id": "too fast", "where": AA},
        {"query_id": "too-fast", "where": LATE},
    ]
    open_now.ask_many("flights", items, analyst="bob")
    open_now.ask("flights", "not-allowed", AA, analyst="eve")
    pair = [{"query_id": "x", "where": AA}, {"query_id": "y", "where": LATE}]
    open_now.ask_many("flights", pair, query_id="both", quote="together")
    await open_now.run()
    named = [(one.get("analyst"), one.get("query_id"), one["status"]) for one in lines()]
    more = [(one.get("again", False), one.get("code") or one.get("path")) for one in lines()]
    assert [who + how for who, how in zip(named, more, strict=True)] == [
        ("bob", "answered", "answered", False, "measured"),
        ("bob", "answered", "answered", True, "measured"),
        ("bob", "answered", "rejected", False, "id_reused"),
        ("bob", "refused", "refused", False, "unknown_attribute"),
        ("bob", "price", "quoted", False, "measured"),
        ("bob", "stranger", "rejected", False, "invalid_message"),
        ("bob", "tile", "rejected", False, "too_many_queries"),
        ("bob", None, "rejected", False, "invalid_message"),
        ("bob", "too-fast", "rejected", False, "too_many_queries"),
        ("eve", "not-allowed", "rejected", False, "not_allowed"),
        ("ana", "both", "quoted", False, None),
    ]
    both = lines()[-1]
    assert both["share"] > 0
    assert json.loads(both["query"]) == [{"where": AA}, {"where": LATE}]


async def test_a_standing_query_has_a_line_when_it_begins_for_each_answer_and_when_it_ends(
    open_now: Any, lines: Any
) -> None:
    begins = open_now.ask("flights", "tile", AA, standing=True, window={"last_phases": 1})
    await open_now.run()
    await next_phase(open_now)
    ends = open_now.ask("flights", "tile", standing=False)
    await open_now.run()
    found = [(one["query_id"], one["status"], one.get("record")) for one in lines()]
    assert found == [
        ("tile", "stands", begins.record_id),
        ("tile@1", "answered", None),
        ("tile@2", "answered", None),
        ("tile", "ended", ends.record_id),
    ]
    assert {one["analyst"] for one in lines()} == {"ana"}


async def test_no_line_holds_an_answer_or_a_word_of_what_is_no_query(
    open_now: Any, lines: Any
) -> None:
    secret = "Ada Lovelace"
    rows = {"version": 1, "dataset": "flights", "analyst": "ana", "rows": [{"carrier": secret}]}
    open_now.produce("queries", rows)
    open_now.produce(
        "queries", {**rows, "query_id": "q2"} | {"queries": [{"query_id": "q", secret: 1}]}
    )
    open_now.produce("queries", secret.encode(), key="flights")
    open_now.ask("flights", "table", kind="table", group_by=["carrier"])
    await open_now.run()
    found = lines()
    assert [one["status"] for one in found] == ["rejected", "rejected", "rejected", "answered"]
    assert secret not in json.dumps(found)
    assert found[-1].keys() == {
        *("analyst", "dataset", "query_id", "kind", "record", "asked_at"),
        *("status", "difficulty", "path", "share", "blocks", "query", "text"),
    }
    assert found[0]["record"] == "in.queries:0:0"


async def test_a_batch_that_is_rejected_has_no_line(open_now: Any, lines: Any) -> None:
    open_now.batch("nothing", "one", rows=[{"carrier": "AA"}])
    open_now.produce("batches", b"no batch", key="flights")
    await open_now.run()
    assert len(open_now.released("rejected")) == 2
    assert lines() == []


async def test_a_long_query_is_cut_and_a_time_that_is_no_date_left_out(
    open_now: Any, lines: Any
) -> None:
    open_now.now_ms = 2**62
    open_now.ask("flights", "long", {"any": [AA] * 100})
    await open_now.run()
    (line,) = lines()
    assert len(line["query"]) == 2_000
    assert "asked_at" not in line


async def test_without_the_setting_there_is_no_line(
    open_now: Any, caplog: pytest.LogCaptureFixture
) -> None:
    open_now.ask("flights", "q1", AA)
    await open_now.run()
    assert [one for one in caplog.records if one.name == LOGGER] == []


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.BEFORE_COMMIT,
        CrashPoint.AFTER_COMMIT,
        CrashPoint.AFTER_APPEND,
        CrashPoint.BEFORE_SEND,
        CrashPoint.AFTER_SEND,
        CrashPoint.AFTER_RELEASE,
    ],
)
async def test_nothing_that_anybody_has_read_lacks_a_line_and_no_line_is_of_what_is_not_durable(
    make_world: Callable[..., Any], lines: Any, caplog: pytest.LogCaptureFixture, point: CrashPoint
) -> None:
    for place in range(3, 60, 8):
        caplog.clear()
        world = make_world()
        await world.run(world.Fuse(place, point), rounds=HURRIED)
        named = {(one.get("analyst"), one.get("query_id")) for one in lines()}
        sent = {
            (reply.get("analyst"), reply.get("query_id"))
            for role in ("answers", "rejected")
            for reply in world.released(role)
            if role == "answers" or reply["topic"] == "in.queries"
        }
        together = {("ana", f"{n}-{name}") for n in (0, 1) for name in ("first", "second")}
        assert sent - {(None, None)} <= named
        assert named - sent <= together | {("ana", f"tile-{n}") for n in (0, 1)}


class _OnceItsAnswerIsAppended(CountingFuse):
    """Blows when the journal has the answer of a paid look, and before anything is written of it."""

    looked = False

    def __call__(self, met: str) -> None:
        self.looked = self.looked or met is CrashPoint.AFTER_LOOK
        if self.looked and met is CrashPoint.AFTER_APPEND:
            raise Crash(met)


async def test_a_successor_writes_the_lines_of_what_it_sends(open_now: Any, lines: Any) -> None:
    open_now.ask("flights", "q1", AA)
    assert await open_now.run(open_now.Fuse(0, CrashPoint.BEFORE_COMMIT)) == 1
    assert lines()
    assert [one for one in open_now.trail if isinstance(one, Sent)]
    lines_before = len(lines())
    open_now.ask("flights", "q2", LATE)
    assert await open_now.run(_OnceItsAnswerIsAppended()) == 1
    (line,) = lines()[lines_before:]
    assert (line["analyst"], line["query_id"], line["status"]) == ("ana", "q2", "answered")
    assert "query" not in line, "only the record says it, and that is not read again"
