"""Values that a data set finds by itself, through the worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.audit.verify import verify
from stream_dp.messages import Definition
from stream_dp.pipeline.rows.waiting import waiting_batches
from stream_dp.profiles.line_units import epsilon_of_person
from tests.pipeline.flights import judged
from tests.pipeline.people import verified
from tests.pipeline.world import Process

pytestmark = judged

FIND = {"most": 20, "windows": [1, 2], "share": 0.2}
PAGES: dict[str, Any] = {
    "attributes": [
        {"name": "page", "type": "category", "find": FIND},
        {"name": "bot", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.3},
    "phase": {"min_rows": 1_000},
    "accuracy": {"error": 0.05, "failure_probability": 1e-4},
}
JUNK = {f"junk-{n}": 1 for n in range(200)}


def rows_of(pages: Mapping[str, int], **more: Any) -> list[dict[str, Any]]:
    return [{"page": page, "bot": False, **more} for page, n in pages.items() for _ in range(n)]


async def opened(process: Process, *phases: Mapping[str, int], **changes: Any) -> Any:
    world = process.world
    world.define("visits", **{**PAGES, **changes})
    for number, pages in enumerate(phases):
        world.batch("visits", f"b{number}", rows=rows_of(pages))
    await process.run()
    assert [r["reason"] for r in world.released("rejected")] == []
    return world


async def asked(process: Process, query_id: str, **query: Any) -> Any:
    process.world.ask("visits", query_id, **query)
    await process.run()
    return process.world.answer(query_id)


def columns_of(answer: Mapping[str, Any], *names: str) -> dict[str, tuple[Any, ...]]:
    """The columns of a table by the label of its only attribute."""
    (labels,) = answer["table"]["labels"]
    columns = zip(*(answer["table"][name] for name in names), strict=True)
    return dict(zip(labels, columns, strict=True))


def within(answer: Mapping[str, Any], count: float) -> bool:
    return bool(answer["low"] <= count <= answer["high"])


async def test_values_that_many_rows_have_are_found_and_told_apart(process: Any) -> None:
    world = await opened(
        process, {"/home": 900, "/a": 500, **JUNK}, {"/home": 1_000, "/new": 400, "/a": 9}
    )
    events = [(e["phase"], e["values"]) for e in world.events("values_found")]
    assert events == [(1, 2), (2, 1)]
    catalog = json.loads(world.left("catalog")[-1].value)
    assert catalog["attributes"][0]["values"] == ["/home", "/a", "/new"]
    table = await asked(process, "q1", kind="table", group_by=["page"])
    found = columns_of(table, "lows", "highs", "unrecorded_at_most")
    assert list(found) == ["/home", "/a", "/new", "other"], "cells without a value are not told"
    for page, count in {"/home": 1_900, "/a": 509, "/new": 400, "other": 200}.items():
        assert found[page][0] <= count <= found[page][1], page
    assert table["recorded_since"] == 2
    assert 200 <= found["/new"][2] < 400
    assert [found[page][2] for page in ("/home", "/a", "other")] == [0, 0, 0]


async def test_the_catalog_says_since_when_values_are_and_how_many_have_them(process: Any) -> None:
    """The newest of the longest windows counts, also what was found in a shorter one."""
    world = await opened(
        process,
        {"/home": 900, "/a": 500, **JUNK},
        {"/home": 1_000, "/new": 400, "/a": 9},
        {"/home": 1_000, "/third": 600},
    )
    await process.kill()
    other = await world.owner()
    renamed = {"name": "site", "was": ["page"], "type": "category", "find": FIND}
    world.change_schema("visits", [renamed, PAGES["attributes"][1]])
    await other.run()
    before, after = (json.loads(one.value) for one in world.left("catalog")[-2:])
    assert {one["attribute"] for one in before["found"]} == {"page"}
    assert {one["attribute"] for one in after["found"]} == {"site"}
    for catalog in (before, after):
        found = {one["value"]: one for one in catalog["found"]}
        assert {value: (one["since"], one["phases"]) for value, one in found.items()} == {
            "/home": (1, [1, 2]),
            "/a": (1, [1, 2]),
            "/new": (2, [1, 2]),
            "/third": (3, [3, 3]),
        }
        counts = {"/home": 1_900, "/a": 509, "/new": 400, "/third": 600}
        for value, count in counts.items():
            assert abs(found[value]["count"] - count) <= found[value]["error_bar"] < 300
        assert [one["value"] for one in catalog["found"]] == ["/home", "/third", "/a", "/new"]
    ledger = world.ledger("visits")
    assert verify("visits", ledger, catalog=Definition.read(after)).faults == []


async def test_a_condition_on_a_value_counts_since_it_was_found(process: Any) -> None:
    await opened(process, {"/home": 900, "/new": 30, **JUNK}, {"/home": 800, "/new": 400})
    new = await asked(process, "q1", where={"attribute": "page", "eq": "/new"})
    assert within(new, 400)
    assert new["recorded_since"] == 2
    assert 30 <= new["unrecorded_at_most"] <= 400
    late = await asked(
        process, "q2", where={"attribute": "page", "eq": "/new"}, window={"last_phases": 1}
    )
    assert within(late, 400)
    assert "recorded_since" not in late
    home = await asked(process, "q3", where={"attribute": "page", "eq": "/home"})
    assert within(home, 1_700)
    assert "recorded_since" not in home
    others = await asked(process, "q4", where={"attribute": "page", "is_other": True})
    assert within(others, 230)
    unknown = await asked(process, "q5", where={"attribute": "page", "eq": "/x"})
    assert unknown["reason"]["code"] == "invalid_query"
    assert "listed" in unknown["reason"]["message"]


async def test_values_that_come_slowly_are_found_in_longer_windows(process: Any) -> None:
    """The longest one counts both phases: half of what either needs is enough in each."""
    world = await opened(process, {"/home": 1_000, "/slow": 130}, {"/home": 1_000, "/slow": 130})
    table = await asked(process, "q1", kind="table", group_by=["page"])
    assert [(e["phase"], e["values"]) for e in world.events("values_found")] == [(1, 1), (2, 1)]
    found = columns_of(table, "lows", "highs")
    assert found["/slow"][0] <= 130 <= found["/slow"][1], "rows of phase 1 stay in other"


async def test_listed_values_have_cells_from_the_beginning(process: Any) -> None:
    listed = {"name": "page", "type": "category", "values": ["/home", "/rare"], "find": FIND}
    world = await opened(
        process,
        {"/home": 1_000, "/rare": 3, "/a": 500},
        attributes=[{**listed, "also": {"/index": "/home"}}, PAGES["attributes"][1]],
    )
    catalog = json.loads(world.left("catalog")[-1].value)
    assert catalog["attributes"][0]["values"] == ["/home", "/rare", "/a"]
    rare = await asked(process, "q1", where={"attribute": "page", "eq": "/rare"})
    assert within(rare, 3)
    assert "recorded_since" not in rare


async def test_the_ledger_has_what_finding_costs_and_the_audit_agrees(process: Any) -> None:
    world = await opened(process, {"/home": 1_500}, {"/home": 1_500})
    assert verify("visits", world.ledger("visits")).faults == []
    entries = [json.loads(entry) for entry in world.ledger("visits")]
    looks = [e for e in entries if e["kind"] == "charge" and e["looks"][0]["kind"] == "keys"]
    shares = [[rho / 2**50 for _, rho, _ in entry["charges"]] for entry in looks]
    assert [len(of) for of in shares] == [1, 1]
    assert all(0.199 < share <= 0.2 for (share,) in shares)
    assert all(delta == 0 for entry in looks for _, _, delta in entry["charges"])
    failures = [
        sum(Fraction(level["failure"]) for level in look["levels"])
        for entry in looks
        for look in entry["looks"]
    ]
    assert failures == [Fraction(entries[0]["line"]["delta"])] * 2
    assert Fraction(entries[0]["line"]["delta"]) == Fraction(1e-9 / 2)


async def test_persons_are_counted_once_in_a_window(process: Any) -> None:
    unit = {"key": "user", "rows_per_phase": 1, "phases": 2}
    world = process.world
    privacy = {"epsilon": 2.0, "delta": 1e-9, "unit": unit}
    world.define("visits", **{**PAGES, "privacy": privacy})
    loud = [{"page": "/loud", "bot": False, "user": "one"} for _ in range(500)]
    many = [{"page": "/home", "bot": False, "user": f"u{n}"} for n in range(1_200)]
    for number in range(2):
        world.batch("visits", f"b{number}", rows=[*loud, *many])
        await process.run()
    assert [r["reason"] for r in world.released("rejected")] == []
    catalog = json.loads(world.left("catalog")[-1].value)
    report = verify("visits", world.ledger("visits"))
    assert report.faults == []
    assert report.full == pytest.approx(2.0, rel=1e-3), "half of delta is for naming values"
    lost = epsilon_of_person(Definition.read(catalog), [1.0, 1.0])
    assert lost == pytest.approx(2.0, rel=1e-6)
    assert catalog["attributes"][0]["values"] == ["/home"], "one person does not name a value"
    (home,) = catalog["found"]
    assert abs(home["count"] - 1_200) <= home["error_bar"] < 600, "each person once in both phases"


async def test_an_owner_goes_on_where_another_one_died(process: Any) -> None:
    world = await opened(process, {"/home": 900, "/a": 500}, {"/home": 800, "/new": 400})
    first = await asked(process, "q1", kind="table", group_by=["page"])
    await process.kill()
    other = await world.owner()
    world.ask("visits", "q2", kind="table", group_by=["page"])
    await other.run()
    world.batch("visits", "b2", rows=rows_of({"/home": 800, "/third": 500}))
    await other.run()
    again = world.answer("q2")
    assert again["table"]["labels"] == first["table"]["labels"]
    assert again["table"]["counts"] == first["table"]["counts"]
    catalog = json.loads(world.left("catalog")[-1].value)
    assert catalog["attributes"][0]["values"] == ["/home", "/a", "/new", "/third"]


async def test_rows_that_wait_in_lots_are_counted_too(
    process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_batches, "fits", lambda n_slots: n_slots <= 600)
    world = process.world
    world.define("visits", **{**PAGES, "phase": {"min_rows": 2_000}})
    for number in range(5):
        pages = {"/home": 250, "/a": 150, **{f"junk-{number}-{n}": 1 for n in range(60)}}
        world.batch("visits", f"b{number}", rows=rows_of(pages))
        await process.run()
    assert len(world.events("phase_opened")) == 1
    table = await asked(process, "q1", kind="table", group_by=["page"])
    found = columns_of(table, "lows", "highs")
    assert list(found) == ["/home", "/a", "other"]
    for page, count in {"/home": 1_250, "/a": 750, "other": 300}.items():
        assert found[page][0] <= count <= found[page][1], page


async def test_an_owner_can_change_other_attributes(process: Any) -> None:
    world = await opened(process, {"/home": 900, "/a": 500})
    catalog = json.loads(world.left("catalog")[-1].value)
    page, bot = catalog["attributes"]
    paid = {"name": "paid", "type": "boolean", "missing": True}
    # The owner read the catalog before /a was found.
    stale = {**page, "name": "path", "was": ["page"], "values": ["/home"]}
    world.change_schema("visits", [stale, bot, paid])
    await process.run()
    world.batch("visits", "b1", rows=rows_of({"/home": 700, "/new": 500}, paid=True))
    await process.run()
    assert [r["reason"] for r in world.released("rejected")] == []
    table = await asked(process, "q1", kind="table", group_by=["path"])
    found = columns_of(table, "lows", "highs")
    assert list(found) == ["/home", "/a", "/new", "other"]
    assert found["/home"][0] <= 1_600 <= found["/home"][1]
    finer = {**stale, "find": {**FIND, "most": 30}}
    record = world.change_schema("visits", [finer, bot, paid], 3)
    more = {**stale, "name": "referrer", "was": ["from"], "missing": True}
    another = world.change_schema("visits", [stale, bot, paid, more], 3)
    await process.run()
    assert "0.find: values of it are found" in world.rejection(record)["reason"]["message"]
    assert "3.find: each line" in world.rejection(another)["reason"]["message"]


async def test_a_window_of_which_a_phase_has_not_paid_is_a_fault(process: Any) -> None:
    world = await opened(process, {"/home": 1_500}, {"/home": 1_500})
    entries = [json.loads(entry) for entry in world.ledger("visits")]
    first = next(e for e in entries if e["kind"] == "charge" and e["looks"][0]["kind"] == "keys")
    first["looks"], first["charges"] = [], []
    found = verified(entries)
    assert any("a phase of its window has not paid for it" in text for text in found), found
    first["looks"] = [{"kind": "keys", "attribute": 1, "block": 0, "levels": []}]
    found = verified(entries)
    assert any("all are listed" in text for text in found), found
