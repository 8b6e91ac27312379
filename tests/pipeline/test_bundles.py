"""Several queries in one record: what they would cost together, and the most that they may."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import QuotedBundle, read_answer
from stream_dp.pipeline.intake import backlog
from stream_dp.pipeline.queries import bundle_price
from stream_dp.pipeline.spending.in_hand import InHand
from tests.driven import take_all
from tests.pipeline.conftest import Die
from tests.pipeline.flights import (
    AA,
    BY_CARRIER,
    CUT,
    GONE,
    LATE,
    UA,
    UNMEASURED,
    asked,
    judged,
    spent,
)
from tests.pipeline.world import World

pytestmark = judged

TILES: list[dict[str, Any]] = [
    BY_CARRIER,
    {"where": AA},
    {"where": LATE},
    {"where": {"any": [AA, LATE]}},
    {"where": AA},
    {"where": GONE},
]


def named(tiles: list[Any], prefix: str = "t") -> list[Any]:
    return [
        {"query_id": f"{prefix}{number}", **tile} if isinstance(tile, dict) else tile
        for number, tile in enumerate(tiles)
    ]


async def quoted(process: Any, tiles: list[Any], query_id: str = "price") -> None:
    quote(process.world, tiles, query_id)
    await process.run()


def quote(world: World, tiles: list[Any], query_id: str = "price") -> Any:
    return world.ask_many("flights", named(tiles), query_id=query_id, quote="together")


# ---------------------------------------------------------------- quotes


async def test_a_bundle_is_priced_in_one_reply_and_costs_that_much_when_asked(
    first: Any, process: Any
) -> None:
    await quoted(process, TILES)
    (reply,) = first.released("answers")
    assert spent(first) == 0
    assert first.held("flights").answers == {}
    found = read_answer(reply)
    assert isinstance(found, QuotedBundle)
    assert (found.query_id, found.analyst, found.phase, found.blocks) == ("price", "ana", 1, 1)
    assert [query.query_id for query in found.queries] == [f"t{n}" for n in range(len(TILES))]
    assert [query.kind for query in found.queries] == ["table", *["predicate"] * 5]
    assert found.together.low == found.together.high > 0
    assert found.budget.spent == 0

    await asked(process, *named(TILES))
    assert spent(first) == found.together.high
    for query in found.queries:
        answer = first.answer(query.query_id)
        assert query.path == answer["path"]
        assert query.privacy_loss is not None
        assert query.privacy_loss.model_dump() == answer["privacy_loss"]
        bars = answer["table"]["error_bars"] if "table" in answer else [answer["error_bar"]]
        assert query.error_bar == pytest.approx(max(bars))
    assert found.queries[4].privacy_loss is not None
    assert found.queries[4].privacy_loss.share == 0, "it was asked before"


async def test_it_names_the_queries_that_would_be_refused_and_prices_the_others(
    first: Any, process: Any
) -> None:
    tiles = [{"where": CUT}, {"where": AA, "window": {"last_phases": 4}}, {"where": 5}, 7]
    await quoted(process, [*tiles, {"kind": "median", "attribute": "delay"}])
    cut, clamped, broken, nothing, median = first.answer("price")["queries"]
    assert cut["reason"]["code"] == "cuts_bin"
    assert clamped["path"] == "measured"
    assert "clamped" in clamped["note"]
    assert clamped["privacy_loss"]["share"] == first.answer("price")["together"]["high"] > 0
    assert (broken["query_id"], broken["reason"]["code"]) == ("t2", "invalid_message")
    assert (nothing.get("query_id"), nothing["reason"]["code"]) == (None, "invalid_message")
    assert median["reason"]["code"] == "unsupported_kind"
    assert not {"path", "privacy_loss"} & {*cut, *broken, *nothing, *median}


async def test_a_series_has_the_price_of_its_parts(first: Any, process: Any) -> None:
    tile = {**BY_CARRIER, "series": "phase"}
    await quoted(process, [tile, BY_CARRIER])
    priced, again = first.answer("price")["queries"]
    await asked(process, *named([tile]))
    answer = first.answer("t0")
    assert priced["path"] == answer["path"] == "series"
    assert priced["privacy_loss"] == answer["privacy_loss"]
    assert answer["privacy_loss"]["share"] > 0
    assert again["privacy_loss"]["share"] == 0, "the series has measured it"


async def test_looks_that_follow_from_others_have_a_price_that_they_may_not_pass(
    first: Any, process: Any
) -> None:
    mean = {"kind": "sum", "attribute": "delay", "where": AA, "error": {"mean": 0.4}}
    relative = {"where": GONE, "error": {"relative": 0.05}}
    for number, query in enumerate((mean, relative)):
        (tile,) = named([query], f"q{number}-")
        first.ask_many("flights", [tile], query_id=f"price{number}", quote="together")
        first.ask_many("flights", [{**tile, "query_id": f"single{number}", "quote": True}])
        await process.run()
        quoted = first.answer(f"price{number}")
        (query,) = quoted["queries"]
        single = first.answer(f"single{number}")
        assert query["most"] == quoted["together"]["most"] == single["most"]
        first.ask_many("flights", [tile])
        await process.run()
        paid = first.answer(tile["query_id"])["privacy_loss"]["share"]
        assert 0 < paid <= query["most"]
        assert paid == pytest.approx(query["privacy_loss"]["share"], rel=0.6)


async def test_a_repeated_quote_is_worked_out_again_and_uses_no_id_up(
    first: Any, process: Any
) -> None:
    await quoted(process, TILES)
    first.ask("flights", "aa", **BY_CARRIER)
    await process.run()
    await quoted(process, TILES)
    before, _, after = first.released("answers")
    assert after["together"]["high"] < before["together"]["high"]
    assert after["queries"][0]["path"] == "repeat"
    first.ask("flights", "price", AA)
    await process.run()
    assert first.answer("price")["status"] == "answered"
    record = quote(first, TILES)
    await process.run()
    assert first.rejection(record)["reason"]["code"] == "id_reused"


async def test_without_a_phase_and_after_retirement_it_is_refused(world: Any, process: Any) -> None:
    world.define("flights")
    await process.run()
    await quoted(process, TILES, "early")
    assert world.answer("early")["kind"] == "bundle"
    assert world.answer("early")["reason"]["code"] == "no_phase"
    world.produce("datasets", None, key="flights")
    await process.run()
    await quoted(process, TILES, "late")
    assert world.answer("late")["reason"]["code"] == "retired"


@pytest.mark.parametrize(
    ("envelope", "words"),
    [
        ({"quote": "together"}, "needs query_id"),
        ({"query_id": "price"}, 'add "quote": "together"'),
        ({"quote": True, "query_id": "price"}, "write 'together'"),
        ({"quote": "together", "query_id": "price", "at_most": 0.1}, "remove at_most"),
        ({"at_most": 0.0}, "greater than 0"),
        ({"at_most": 1.5}, "at most 1"),
        ({"quote": "together", "query_id": "price", "queries": [{}] * 501}, "500 queries"),
    ],
)
async def test_an_envelope_that_contradicts_itself_is_rejected(
    first: Any, process: Any, envelope: dict[str, Any], words: str
) -> None:
    head = {"version": 1, "dataset": "flights", "analyst": "ana", "queries": named(TILES)}
    record = first.produce("queries", {**head, **envelope})
    await process.run()
    assert words in first.rejection(record)["reason"]["message"]
    assert first.released("answers") == []


async def test_a_quote_prices_as_many_values_as_one_record_may_ask_for(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_price, "MOST_VALUES", 6)
    await quoted(process, [BY_CARRIER, BY_CARRIER, BY_CARRIER])
    codes = [query.get("reason", {}).get("code") for query in first.answer("price")["queries"]]
    assert codes == [None, None, "too_much_work"]


async def test_a_long_quote_is_the_only_work_of_its_step(first: Any, process: Any) -> None:
    """It leaves room for other data sets, as other long records do."""
    quotes = [quote(first, TILES * 50, f"q{n}") for n in range(3)]
    await process.worker.take([process.fetched(record) for record in quotes])
    assert process.worker.behind == 1
    await take_all(process.worker, ())
    await process.drained()
    assert {name for _, _, name in first.answers()} == {"q0", "q1", "q2"}


# ---------------------------------------------------------------- limits


async def test_what_would_pass_the_limit_of_a_record_is_refused_and_the_rest_is_answered(
    first: Any, process: Any
) -> None:
    await quoted(process, TILES)
    parts = [query["privacy_loss"]["share"] for query in first.answer("price")["queries"]]
    limit = parts[0] + parts[1] + parts[2]
    await asked(process, *named(TILES), at_most=limit)
    refused = [n for n in range(len(TILES)) if first.answer(f"t{n}")["status"] == "refused"]
    assert refused == [3, 5]
    reason = first.answer("t3")["reason"]
    assert (reason["code"], reason["retriable"]) == ("price_too_high", True)
    assert "at_most" in reason["message"]
    assert first.answer("t4")["path"] == "repeat", "what is free is answered all the same"
    assert spent(first) <= limit < spent(first) + parts[3]
    await asked(process, *named(TILES, "again"), at_most=limit)
    assert first.answer("again3")["status"] == "answered", "another record has a limit of its own"


async def test_a_record_sent_again_gets_the_same_answers_whatever_limit_it_names(
    first: Any, process: Any
) -> None:
    for limit in (1e-9, 1.0):
        first.ask_many("flights", named(TILES), at_most=limit)
        await process.run()
    assert {first.answer(f"t{n}")["status"] for n in range(len(TILES))} == {"refused"}
    assert spent(first) == 0


def _define(world: Any) -> None:
    world.define("flights", mechanism=UNMEASURED)


def _gather(world: Any) -> None:
    world.cells("flights", "first")


def _ask(world: Any) -> None:
    tiles = [{"where": where} for where in (AA, LATE, GONE, UA, {"any": [AA, LATE]})]
    world.ask_many("flights", named(tiles), at_most=0.005)
    world.ask_many("flights", named(tiles, "quoted"), query_id="price", quote="together")
    world.cells("flights", "second")
    world.ask_many("flights", named([{"where": {"any": [UA, LATE]}}], "more"), at_most=0.0001)


LIMITED = (_define, _gather, _ask)


async def _said(die: Die) -> list[str]:
    """What the referee says first of deaths at any effect."""
    async for at, world in die(LIMITED, range(1_000)):
        if said := [f"{at}: {complaint}" for complaint in world.complaints()]:
            return said
    return []


@pytest.mark.slow
async def test_a_limit_holds_over_steps_and_crashes_lost_looks_included(
    die: Die, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_STEP_QUERIES", 2)
    assert await _said(die) == []


async def _in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    facts = InHand.facts

    def forgotten(self: InHand) -> dict[str, str]:
        return {name: said for name, said in facts(self).items() if name != "paid"}

    patch.setattr(InHand, "facts", forgotten)


async def _not_at_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InHand, "would_pass_limit", lambda self, charges: False)


@pytest.mark.parametrize("broken", [_in_memory_alone, _not_at_all])
async def test_the_referee_hears_of_a_limit_that_is_not_kept(
    die: Die, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    """The test above can fail."""
    monkeypatch.setattr(backlog, "_STEP_QUERIES", 2)
    await broken(monkeypatch)
    assert any("P7" in complaint for complaint in await _said(die))
