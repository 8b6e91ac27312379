"""Attributes that change while a data set is in use: what rows of each version say, and what that costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from stream_dp.audit.verify import verify
from stream_dp.messages import Definition, SourceRange
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import Packing
from stream_dp.profiles.builder import build
from tests.pipeline import flights
from tests.pipeline.flights import BEFORE, judged
from tests.pipeline.people import (
    ATTRIBUTES,
    IT,
    ROWS,
    SPLIT,
    N,
    change,
    changed,
    define,
    phase,
    verified,
)
from tests.pipeline.scenarios import NOV_1

pytestmark = judged

asked = partial(flights.asked, dataset="people")


async def opened(process: Any, *rounds: Any, **definition: Any) -> Any:
    for one in (partial(define, **definition), phase, *rounds):
        one(process.world)
        await process.run()
    assert not process.world.released("rejected"), process.world.released("rejected")
    return process.world


def close(reply: Mapping[str, Any], count: float) -> bool:
    """Whether a count is as large as it is, but for its bar."""
    bar = reply.get("count_bar") or (reply["error_bar"] or 0.0) * reply["n"]
    return abs(reply["count"] - count) <= bar + 0.5


def where(attribute: str, **condition: Any) -> dict[str, Any]:
    return {"where": {"attribute": attribute, **condition}}


SPENT = {"kind": "sum", "attribute": "spent"}
WIDER = changed(ATTRIBUTES, "spent", measure={"unit": 1, "low": 0, "high": 200})
COUNTRY = {"kind": "table", "group_by": ["country"]}


async def test_a_change_counts_from_the_next_phase_without_rows(world: Any, process: Any) -> None:
    world = await opened(process, lambda w: change(w, IT))
    (event,) = world.events("schema_changed")
    assert (event["schema_version"], event["phase"]) == (2, 2)
    process.world.batch("people", "some", cells=[{"country": "IT", "count": 5}])
    await process.run()
    change(process.world, SPLIT, 3)
    await process.run()
    *_, event = world.events("schema_changed")
    assert (event["schema_version"], event["phase"]) == (3, 3), "rows of phase 2 wait already"
    catalog = json.loads(world.left("catalog")[-1].value)
    assert catalog["attributes"] == SPLIT or Definition.read(catalog).schema_version == 3
    assert [one["first_phase"] for one in catalog["versions"]] == [1, 2, 3]
    entries = [json.loads(entry) for entry in world.ledger("people")]
    kinds = [entry["kind"] for entry in entries]
    assert kinds.count("schema") == 2
    assert [e["indices"] for e in entries if e["kind"] == "schema"] == [[3, 1, 2], [3, 4, 2]]


async def test_a_change_costs_nothing_and_the_ledger_is_right(world: Any, process: Any) -> None:
    world = await opened(process)
    before = world.held("people").spent
    for version, attributes in ((2, IT), (3, SPLIT)):
        change(world, attributes, version)
        await process.run()
    assert world.held("people").spent == before
    phase(world)
    await process.run()
    replies = await asked(process, where("country", eq="IT"), COUNTRY, where("age", ge=35))
    assert [reply["status"] for reply in replies] == ["answered"] * 3
    report = verify("people", world.ledger("people"))
    assert (report.faults, report.notes) == ([], [])


GERMANY = changed(ATTRIBUTES, "country", values=["Germany", "FR"], also={"DE": "Germany"})
LAND = changed(ATTRIBUTES, "country", name="land", was=["country"])
VIP = {"name": "vip", "type": "boolean"}
DE = where("country", eq="DE")
NOT_DE = {"where": {"not": DE["where"]}}
CASES: dict[str, tuple[Any, dict[str, Any], float, int | None]] = {
    "an old value": (IT, DE, 8_000, None),
    "all but an old value": (IT, NOT_DE, 12_000, None),
    "a new value": (IT, where("country", eq="IT"), 2_000, 3_000),
    "not listed": (IT, where("country", is_other=True), 3_000 + 1_000, None),
    "an old edge": (SPLIT, where("age", ge=45), 2_000, None),
    "a new edge": (SPLIT, where("age", ge=35), 2 * 1_000 + 2_000, 5_000),
    "both": (
        SPLIT,
        {"where": {"all": [where("country", eq="FR")["where"], where("age", lt=35)["where"]]}},
        3_000,
        3_000,
    ),
    "a removed edge": (changed(ATTRIBUTES, "age", edges=[45]), where("age", ge=45), 2_000, None),
    "merged values": (
        changed(ATTRIBUTES, "country", values=["DE"], also={"FR": "DE"}),
        DE,
        14_000,
        None,
    ),
    "a renamed value": (GERMANY, where("country", eq="Germany"), 8_000, None),
    "its old name": (GERMANY, DE, 8_000, None),
    "a renamed attribute": (LAND, where("land", eq="DE"), 8_000, None),
    "its old name too": (LAND, DE, 8_000, None),
    "a new attribute": (
        [*ATTRIBUTES, {**VIP, "missing": True}],
        where("vip", is_missing=True),
        20_000,
        None,
    ),
    "a new attribute that was always so": (
        [*ATTRIBUTES, {**VIP, "before": False}],
        where("vip", eq=False),
        20_000,
        None,
    ),
    "a deprecated attribute": (changed(ATTRIBUTES, "country", deprecated=True), DE, 8_000, None),
}


@pytest.mark.parametrize(("attributes", "query", "count", "unrecorded"), CASES.values(), ids=CASES)
async def test_counts_over_two_versions(
    world: Any, process: Any, attributes: Any, query: Any, count: float, unrecorded: int | None
) -> None:
    """One phase of either version, with the same rows."""
    await opened(process, lambda w: change(w, attributes), phase)
    (reply,) = await asked(process, query)
    assert reply["status"] == "answered", reply
    assert close(reply, count), reply
    if unrecorded is None:
        assert "unrecorded_at_most" not in reply
    else:
        assert unrecorded <= reply["unrecorded_at_most"] <= 1.2 * unrecorded
        assert reply["recorded_since"] == 2


async def test_a_table_over_three_versions(world: Any, process: Any) -> None:
    await opened(process, lambda w: change(w, IT), phase, lambda w: change(w, SPLIT, 3), phase)
    by_country, by_age = await asked(process, COUNTRY, {"kind": "table", "group_by": ["age"]})
    table = by_country["table"]
    assert table["labels"] == [["DE", "FR", "IT", "other"]]
    for cell, count in enumerate((12_000, 9_000, 4_000, 3_000 + 2 * 1_000)):
        assert abs(table["counts"][cell] - count) <= table["error_bars"][cell] * by_country["n"] + 1
    assert table["unrecorded_at_most"][:2] == [0, 0]
    assert table["unrecorded_at_most"][3] == 0
    assert 3_000 <= table["unrecorded_at_most"][2] <= 3_600
    assert by_country["recorded_since"] == 2
    table = by_age["table"]
    assert by_age["recorded_since"] == 3
    for cell, count in enumerate((12_000, 3_000, 2_000, 3_000)):
        assert abs(table["counts"][cell] - count) <= table["error_bars"][cell] * by_age["n"] + 1
    assert [n > 0 for n in table["unrecorded_at_most"]] == [False, True, True, False]


async def test_last_years_answers_go_on(world: Any, process: Any) -> None:
    """What was answered before a change is repeated, and other kinds are answered about old phases."""
    world = await opened(process)
    old = {"window": {"phases": [1, 1]}}
    median = {"kind": "quantile", "attribute": "age", "rank": 0.5, **old}
    mean = {"kind": "sum", "attribute": "spent", "group_by": ["age"], **old}
    first = await asked(process, {**DE, **old}, median, mean)
    for version, attributes in ((2, IT), (3, SPLIT)):
        change(world, attributes, version)
        await process.run()
    phase(world)
    await process.run()
    again = await asked(process, {**DE, **old}, median, mean)
    assert [reply["status"] for reply in (*first, *again)] == ["answered"] * 6
    assert again[0]["count"] == first[0]["count"]
    assert again[1]["found"] == first[1]["found"]
    assert again[2]["table"]["labels"] == first[2]["table"]["labels"]
    assert [reply["privacy_loss"]["share"] for reply in again] == [0.0] * 3


async def test_batches_may_have_the_names_of_any_version(world: Any, process: Any) -> None:
    later = [
        *changed(IT, "country", name="land", was=["country"]),
        {"name": "vip", "type": "boolean", "missing": True},
    ]
    world = await opened(process, lambda w: change(w, later), lambda w: phase(w, vip=True))
    world.batch("people", "new", rows=[{"land": "DE", "vip": False}] * 3)
    world.batch("people", "columns", columns={"country": ["DE"], "age": [3], "spent": [1]})
    world.batch(
        "people", "both", columns={"country": ["DE"], "land": ["DE"], "age": [3], "spent": [1]}
    )
    world.batch("people", "unknown", rows=[{"ward": "DE"}])
    await process.run()
    refused = {
        event["batch_id"]: event["reason"]["message"] for event in world.events("batch_refused")
    }
    assert set(refused) == {"both", "unknown"}
    assert "two columns for land" in refused["both"]


REFUSED: dict[str, tuple[Any, str]] = {
    "another type": (
        changed(ATTRIBUTES, "age", type="boolean", edges=None, integer=None),
        "another type",
    ),
    "a value is gone": (changed(ATTRIBUTES, "country", values=["DE"]), "no FR any more"),
    "an attribute is gone": (ATTRIBUTES[1:], "no country any more"),
    "less range": (
        changed(ATTRIBUTES, "spent", measure={"unit": 1, "low": 0, "high": 99}),
        "less wide",
    ),
    "another unit": (
        changed(ATTRIBUTES, "spent", measure={"unit": 2, "low": 0, "high": 100}),
        "another unit",
    ),
    "an order": (changed(ATTRIBUTES, "country", ordered=True), "another order"),
    "nothing about older rows": ([*ATTRIBUTES, VIP], "say nothing of it"),
}


@pytest.mark.parametrize(("attributes", "words"), REFUSED.values(), ids=REFUSED)
async def test_what_must_not_change_is_rejected(
    world: Any, process: Any, attributes: Any, words: str
) -> None:
    world = await opened(process)
    attributes = [{k: v for k, v in one.items() if v is not None} for one in attributes]
    record = change(world, attributes)
    await process.run()
    assert words in world.rejection(record)["reason"]["message"]
    assert not world.events("schema_changed")
    change(world, IT)
    await process.run()
    assert world.events("schema_changed"), "the next one is taken"


async def test_a_workload_keeps_what_it_asks_about(world: Any, process: Any) -> None:
    """Also before there are phases: a change may come first."""
    tiles = [{"where": {"attribute": "age", "ge": 30}}, {"group_by": ["country"]}]
    define(world, mechanism={"workload": tiles})
    refused = change(world, changed(ATTRIBUTES, "age", edges=[45]))
    change(world, SPLIT)
    await process.run()
    assert world.rejection(refused)["reason"]["message"] == (
        "mechanism.workload.0.where.ge: this cuts the bin < 45 of age; the workload cannot change: "
        "leave the edges, values and names that it asks about"
    )
    phase(world)
    phase(world)
    await process.run()
    (tile,) = await asked(process, where("age", ge=30))
    assert tile["window"] == [1, 2]
    assert close(tile, 12_000)


async def test_a_change_comes_once_and_in_order(world: Any, process: Any) -> None:
    world = await opened(process, lambda w: change(w, IT))
    change(world, IT)
    late, other = change(world, SPLIT, 4), change(world, SPLIT, 2)
    await process.run()
    for record in (late, other):
        assert "not one more" in world.rejection(record)["reason"]["message"]
    told = [one for one in world.left("events") if b"schema_changed" in one.value]
    assert len(told) == 2, "the same again is told again"
    assert [json.loads(e)["kind"] for e in world.ledger("people")].count("schema") == 1


@pytest.mark.parametrize("how", [{"kinds": {"median": {"share": 0.1}}}, {"synthetic_rows": 100}])
async def test_data_sets_that_cannot_change(world: Any, process: Any, how: Any) -> None:
    define(world, **how)
    record = change(world, IT)
    await process.run()
    assert "cannot change" in world.rejection(record)["reason"]["message"]


TOTALS: dict[str, tuple[Any, dict[str, Any], float]] = {
    "an old value": (IT, DE, 80_000),
    "all but an old value": (IT, NOT_DE, 940_000),
    "a new value": (IT, where("country", eq="IT"), 200_000),
    "all": (SPLIT, {}, 1_020_000),
    "a new edge": (SPLIT, where("age", ge=35), 380_000),
}


@pytest.mark.parametrize(("attributes", "query", "total"), TOTALS.values(), ids=TOTALS)
async def test_sums_over_two_versions(
    world: Any, process: Any, attributes: Any, query: Any, total: float
) -> None:
    """What counts is what is sure: rows of before that may satisfy a condition besides add nothing."""
    await opened(process, lambda w: change(w, attributes), phase)
    (reply,) = await asked(process, {"kind": "sum", "attribute": "spent", **query})
    assert reply["status"] == "answered", reply
    assert reply["total_bar"] < 100_000
    assert abs(reply["total"] - total) <= reply["total_bar"], reply
    report = verify("people", world.ledger("people"))
    assert (report.faults, report.notes) == ([], [])


async def test_shares_and_means_by_group_over_two_versions(world: Any, process: Any) -> None:
    await opened(process, lambda w: change(w, IT), phase)
    share, mean = await asked(
        process,
        {"kind": "share", "share_of": {"attribute": "age", "ge": 45}, "group_by": ["country"]},
        {"kind": "sum", "attribute": "spent", "group_by": ["country"]},
    )
    assert share["table"]["labels"] == mean["table"]["labels"] == [["DE", "FR", "IT", "other"]]
    cells = share["table"]
    for found, bar, true in zip(
        cells["shares"], cells["share_bars"], (0.0, 0.0, 0.0, 2_000 / 4_000), strict=True
    ):
        assert bar is None or abs(found - true) <= bar
    cells = mean["table"]
    for found, bar, true in zip(
        cells["totals"], cells["total_bars"], (80_000, 360_000, 200_000, 380_000), strict=True
    ):
        assert abs(found - true) <= bar


async def test_what_no_phase_of_a_window_has_alike_is_refused(world: Any, process: Any) -> None:
    wider = changed(WIDER, "spent", edges=[50, 80])
    await opened(
        process,
        lambda w: change(w, wider),
        phase,
        lambda w: change(w, changed(wider, "age", edges=[30, 35, 45]), 3),
        phase,
    )
    median = {"kind": "quantile", "attribute": "age", "rank": 0.5}
    total = {"kind": "sum", "attribute": "spent", "up_to": 80}
    replies = await asked(
        process,
        median,
        total,
        {**median, "window": {"last_phases": 1}},
        {**total, "window": {"last_phases": 2}},
        {**median, "window": {"phases": [1, 2]}},
        {**SPENT, "window": {"phases": [1, 1]}},
    )
    codes = [reply.get("reason", {}).get("code") for reply in replies]
    assert codes == ["not_recorded", "not_recorded", None, None, None, None]
    assert "from 3 on" in replies[0]["reason"]["message"]
    assert "from 2 on" in replies[1]["reason"]["message"]
    assert abs(replies[3]["total"] - 2 * 460_000) <= replies[3]["total_bar"]
    assert abs(replies[5]["total"] - 510_000) <= replies[5]["total_bar"]


async def test_a_sum_adds_up_what_each_phase_keeps(world: Any, process: Any) -> None:
    """Values of 150 count for 100 in the first two phases, and as they are from the third on."""
    await opened(
        process,
        lambda w: change(w, IT),
        phase,
        lambda w: change(w, changed(WIDER, "country", values=["DE", "FR", "IT"]), 3),
        phase,
    )
    of_bins = {"kind": "sum", "attribute": "age", "error": {"value": 5_000}}
    replies = await asked(
        process,
        SPENT,
        {**SPENT, "group_by": ["country"]},
        {**SPENT, "where": {"attribute": "spent", "lt": 50}},
        {**SPENT, "window": {"last_phases": 1}},
        {**SPENT, "window": {"phases": [1, 1]}},
        {**SPENT, "series": "phase"},
        of_bins,
    )
    every, by_country, *_, series, ages = replies
    assert [reply["status"] for reply in replies] == ["answered"] * 7, replies
    assert every["total_bar"] < 400_000
    assert abs(every["total"] - (2 * 510_000 + 610_000)) <= every["total_bar"]
    cells = by_country["table"]
    for found, bar, true in zip(
        cells["totals"], cells["total_bars"], (120_000, 540_000, 500_000, 470_000), strict=True
    ):
        assert abs(found - true) <= bar, by_country
    told = [reply.get("clamped_until") for reply in replies[:5]]
    assert told == [2, 2, None, None, 1]
    parts = [part["answer"].get("clamped_until") for part in series["parts"]]
    assert parts == [1, 2, None]
    assert abs(ages["total"] - 3 * 346_000) <= ages["total_bar"] <= 5_000
    report = verify("people", world.ledger("people"))
    assert (report.faults, report.notes) == ([], [])


async def test_wider_bounds_change_no_count_median_or_correlation(world: Any, process: Any) -> None:
    """They are about all phases, as if nothing had changed. Only sums are about what each phase keeps."""
    finer = changed(ATTRIBUTES, "spent", edges=[20, 50, 80, 120])
    wider = changed(finer, "spent", measure={"unit": 1, "low": 0, "high": 200})
    widest = changed(wider, "spent", measure={"unit": 1, "low": -50, "high": 300})
    world = await opened(
        process,
        lambda w: change(w, wider),
        phase,
        lambda w: change(w, widest, 3),
        phase,
        attributes=finer,
    )
    spent = {"kind": "quantile", "attribute": "spent", "rank": 0.5}
    replies = await asked(
        process,
        spent,
        {**spent, "group_by": ["country"]},
        {"kind": "correlation", "attribute": "age", "other": "spent"},
        {"kind": "table", "group_by": ["spent"]},
        where("spent", ge=120),
        SPENT,
    )
    median, by_country, both, table, high, total = replies
    assert [reply["status"] for reply in replies] == ["answered"] * 6, replies
    assert all(reply["window"] == [1, 3] for reply in replies)
    assert not any({"recorded_since", "unrecorded_at_most"} & {*reply} for reply in replies)
    assert (median["lies_in"]["low"], median["lies_in"]["high"]) == (50, 80)
    places = by_country["table"]["lies_in"]
    assert [place.get("low") for place in places] == [None, 50, 120]
    # Of bins that count as 19, 35, 65, 100 and 120, and of ages that count as 29, 37 and 45.
    said = [(29, 20), (37, 65), (37, 120), (45, 100)]
    truth = np.corrcoef(
        *np.array([p for p, (*_, n) in zip(said, ROWS, strict=True) for _ in range(n)]).T
    )
    assert both["value_low"] <= truth[0, 1] <= both["value_high"]
    assert both["value_high"] - both["value_low"] < 0.2
    for count, bar, true in zip(
        table["table"]["counts"],
        table["table"]["error_bars"],
        (12_000, 0, 9_000, 3_000, 6_000),
        strict=True,
    ):
        assert abs(count - true) <= bar * table["n"] + 1
    assert close(high, 6_000)
    assert total["clamped_until"] == 2
    assert abs(total["total"] - (510_000 + 2 * 610_000)) <= total["total_bar"]
    report = verify("people", world.ledger("people"))
    assert (report.faults, report.notes) == ([], [])


async def test_persons_rows_are_added_up_over_two_versions(world: Any, process: Any) -> None:
    """Each person has a row in either phase. Their number is private, and so are the rows that count."""
    unit = {"key": "who", "rows_per_phase": 1, "phases": 12}

    def rows_of_persons(w: Any) -> None:
        said = [(c, a, s) for c, a, s, n in ROWS for _ in range(n)]
        columns = dict(
            zip(("country", "age", "spent"), map(list, zip(*said, strict=True)), strict=True)
        )
        number = w.next_offset("batches", "people")
        w.batch("people", f"batch-{number}", columns={**columns, "who": [*range(N)]})

    privacy = {"epsilon": 8.0, "delta": 1e-9, "unit": unit}
    for one in (
        partial(define, privacy=privacy, mechanism={}),
        rows_of_persons,
        lambda w: change(w, WIDER),
        rows_of_persons,
    ):
        one(process.world)
        await process.run()
    replies = await asked(process, SPENT, {**SPENT, "group_by": ["country"]})
    every, by_country = replies
    assert abs(every["total"] - 1_120_000) <= every["total_bar"] < 400_000, every
    cells = by_country["table"]
    for found, bar, true in zip(
        cells["totals"], cells["total_bars"], (80_000, 360_000, 680_000), strict=True
    ):
        assert abs(found - true) <= bar < 400_000
    assert [reply["clamped_until"] for reply in replies] == [1, 1]
    report = verify("people", world.ledger("people"))
    assert (report.faults, report.notes) == ([], [])


async def test_a_sum_by_bins_takes_those_of_each_phase(world: Any, process: Any) -> None:
    """Ages 30 to 44 count for 37 in phase 1. In phase 2 they count for 32 up to 34, and for 39.5."""
    await opened(process, lambda w: change(w, SPLIT), phase, mechanism={"base_share": 0.0})
    ages = {"kind": "sum", "attribute": "age", "error": {"value": 3_000}}
    (reply,) = await asked(process, ages)
    old = 4_000 * 29 + 5_000 * 37 + 1_000 * 45
    new = 4_000 * 29 + 3_000 * 32 + 2_000 * 39.5 + 1_000 * 45
    assert abs(reply["total"] - old - new) <= reply["total_bar"] <= 3_000
    assert "up to 7 off" in reply["note"]
    assert reply["mean_binning"] == 7.0
    assert "clamped_until" not in reply


async def test_quotes_over_two_versions_are_what_is_charged(world: Any, process: Any) -> None:
    await opened(process, lambda w: change(w, SPLIT), phase, mechanism={"base_share": 0.0})
    queries = [
        {**where("country", eq="FR"), "error": {"value": 300}},
        {**COUNTRY, "error": {"value": 300}},
        {"kind": "share", "share_of": where("age", ge=35)["where"], "error": {"value": 0.05}},
    ]
    quotes = await asked(process, *({**query, "quote": True} for query in queries))
    for quote, query in zip(quotes, queries, strict=True):
        (reply,) = await asked(process, query)
        assert quote["status"] == "quoted", quote
        assert reply["difficulty"] == "hard"
        assert quote["privacy_loss"] == reply["privacy_loss"] or query is not queries[0]


async def test_an_id_has_the_same_answer_after_a_change(world: Any, process: Any) -> None:
    """Also one that was asked in cells that are no more, and one that was refused."""
    await opened(process)
    items = [
        {"query_id": "it", **where("country", eq="IT")},
        {"query_id": "de", **DE},
        {"query_id": "by", **COUNTRY},
        {"query_id": "grown", "kind": "difference", **where("age", ge=45), **BEFORE},
    ]
    world.ask_many("people", items)
    await process.run()
    before = world.left("answers")
    for version, attributes in ((2, IT), (3, SPLIT)):
        change(world, attributes, version)
    await process.run()
    world.ask_many("people", items)
    world.ask_many("people", [{"query_id": "de", **where("country", eq="FR")}])
    await process.run()
    after = world.left("answers")[len(before) :]
    assert [one.value for one in after] == [one.value for one in before]
    rejected = world.released("rejected")
    assert [one["reason"]["code"] for one in rejected] == ["id_reused"], rejected


async def test_a_question_about_old_phases_is_paid_once(world: Any, process: Any) -> None:
    """What was measured for it before a change answers it afterwards, word for word and in new cells."""
    old = {"window": {"phases": [1, 1]}, "error": {"value": 100}}
    await opened(process, mechanism={"base_share": 0.0})
    first = await asked(process, {**DE, **old}, {**COUNTRY, **old})
    assert [reply["difficulty"] for reply in first] == ["hard", "hard"]
    change(world, IT)
    phase(world)
    await process.run()
    again = await asked(process, {**DE, **old}, {**COUNTRY, **old})
    assert [reply["difficulty"] for reply in again] == ["easy", "easy"]
    assert again[0]["error_bar"] <= first[0]["error_bar"]
    assert again[1]["table"]["counts"][2] == 0
    assert again[1]["table"]["labels"] == [["DE", "FR", "IT", "other"]]
    assert again[1]["table"]["unrecorded_at_most"][2] > 0


async def test_a_window_may_begin_where_all_is_recorded(world: Any, process: Any) -> None:
    await opened(process, lambda w: change(w, IT), phase, lambda w: change(w, SPLIT, 3), phase)
    italian, since = where("country", eq="IT"), {"across": "since"}
    median = {"kind": "quantile", "attribute": "age", "rank": 0.5}
    replies = await asked(
        process,
        {**italian, **since},
        {**DE, **since},
        {**median, **since},
        {**COUNTRY, **since, "series": "phase"},
        {**italian, **since, "window": {"phases": [1, 1]}},
    )
    assert [reply.get("window") for reply in replies[:3]] == [[2, 3], [1, 3], [3, 3]]
    assert close(replies[0], 4_000)
    assert "unrecorded_at_most" not in replies[0]
    assert replies[4]["reason"]["code"] == "not_recorded"
    parts = [part["answer"].get("reason", {}).get("code") for part in replies[3]["parts"]]
    assert parts == ["not_recorded", None, None]


async def test_a_batch_that_ends_a_period_has_the_attributes_of_the_next(
    world: Any, process: Any
) -> None:
    """It comes while rows of the period before wait, which have older ones."""

    def day(number: int) -> Callable[[Any], object]:
        def fill(w: Any) -> None:
            w.now_ms = NOV_1 + (number - 1) * 86_400_000
            rows = [{"country": "IT", "age": 33, "spent": 5, "count": N}]
            w.batch("people", f"day-{number}", cells=rows, time=f"2026-11-0{number}")

        return fill

    by_day = {"every": "1 day", "timezone": "Europe/Berlin", "min_rows": 100}
    for one in (partial(define, phase=by_day), day(1), lambda w: change(w, IT), day(2), day(3)):
        one(process.world)
        await process.run()
    assert [event["phase"] for event in world.events("schema_changed")] == [2]
    first, second = await asked(
        process, *({**where("country", eq="IT"), "window": {"phases": [n, n]}} for n in (1, 2))
    )
    assert first["unrecorded_at_most"] >= N
    assert close(second, N), second


async def test_rows_that_a_source_has_packed_before_the_change_are_asked_for_again(
    world: Any, process: Any
) -> None:
    """Otherwise a value that is listed by now would count among the others, in silence."""
    wards = [{"name": "ward", "type": "category", "values": ["A", "B"]}]
    more = [{"name": "ward", "type": "category", "values": ["A", "B", "Neurology"]}]
    world.define(
        "stays", attributes=wards, phase={"min_rows": 1_000}, mechanism={"base_share": 0.3}
    )
    await process.run()
    source = TopicSource.read({"version": 1, "dataset": "stays", "topic": "t"})

    def packed(version: int) -> None:
        universe, _ = build(Definition.read(json.loads(world.left("catalog")[-1].value)))
        of = SourceRange(topic="t", id="x", partition=0, first=0, last=9, schema_version=version)
        batch = Packing(source, universe, source.paths(universe)).batch(of, [["Neurology"]] * 10)
        sent.append(json.loads(batch))

    sent: list[Any] = []
    packed(1)
    world.change_schema("stays", more)
    await process.run()
    world.produce("batches", sent[0])
    await process.run()
    (rejected,) = [one["reason"] for one in world.released("rejected")]
    assert (rejected["code"], "version 2" in rejected["message"]) == ("not_next", True)
    packed(2)
    world.produce("batches", sent[1])
    await process.run()
    assert [one["rows"] for one in world.events("batch_accepted")] == [10]


async def test_ledgers_with_wrong_versions_have_faults(world: Any, process: Any) -> None:
    world = await opened(process, lambda w: change(w, IT), phase)
    await asked(process, {**where("country", eq="IT"), "error": {"value": 50}})
    entries = [json.loads(one) for one in world.ledger("people")]
    assert verified(entries) == []
    at = next(n for n, entry in enumerate(entries) if entry["kind"] == "schema")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"phase": 1}, "which is open"),
        ({"indices": [0, 1, 2]}, "an attribute that cannot have it"),
        ({"indices": [3, 1]}, "a number of its own"),
        ({"schema_version": 3}, "not the next"),
    ]
    for change_of, words in wrong:
        found = verified([*entries[:at], {**entries[at], **change_of}, *entries[at + 1 :]])
        assert any(words in fault for fault in found), (change_of, found)
    without = verified([*entries[:at], *entries[at + 1 :]])
    assert without, "looks name an attribute that there is not"


async def test_looks_at_what_a_phase_does_not_have_are_faults(world: Any, process: Any) -> None:
    world = await opened(process, lambda w: change(w, IT), phase, mechanism={"base_share": 0.0})
    await asked(process, {**DE, "error": {"value": 50}})
    entries = [json.loads(one) for one in world.ledger("people")]
    assert verified(entries) == []
    (joined,) = (look for entry in entries for look in entry.get("looks", ()))
    first, second = joined["looks"]
    assert (first["attributes"], second["attributes"]) == ([0], [3])
    first["attributes"] = [3]
    assert any("do not have" in fault for fault in verified(entries))


async def test_a_look_that_was_the_last_one_is_taken_once(world: Any, process: Any) -> None:
    """Where answers are as precise as they are worth having, a question has one last look for ever."""
    both = {"all": [DE["where"], where("age", lt=30)["where"]]}
    old = {"where": both, "window": {"phases": [1, 1]}}
    privacy = {"epsilon": 1.0, "delta": 1e-9}
    await opened(process, accuracy={"aim": 0.02}, privacy=privacy, mechanism={})
    (first,) = await asked(process, old)
    assert first["difficulty"] == "hard"
    change(world, SPLIT)
    await process.run()
    (again,) = await asked(process, old)
    assert (again["difficulty"], again["count"]) == ("easy", first["count"])
