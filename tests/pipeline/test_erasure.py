"""Persons who are erased, and rows that are corrected, wherever the worker keeps them."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from stream_dp.audit.verify import verify
from stream_dp.core.rows import slabs
from stream_dp.core.rows.person_slots import Slots, digests
from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.errors import CorruptState, InvalidDefinition
from stream_dp.messages import Definition
from stream_dp.pipeline.rows import private_rows
from stream_dp.pipeline.rows.block_owners import veiled
from stream_dp.pipeline.rows.waiting import waiting_lots
from stream_dp.receipts import is_signed
from tests.pipeline.flights import judged, table, within
from tests.pipeline.referee.lives import kept_slots
from tests.pipeline.referee.persons import secret_of
from tests.pipeline.world import definition

pytestmark = judged

HOUR = 3_600_000
UNIT = {"key": "customer", "rows_per_phase": 2, "phases": 1}
SHOP = definition(
    "shop",
    attributes=[
        {"name": "page", "type": "category", "values": ["home", "cart", "paid"], "other": False},
        {"name": "total", "type": "number", "edges": [10, 50], "integer": True},
    ],
    privacy={
        "epsilon": 4.0,
        "delta": 1e-9,
        "unit": UNIT,
    },
    phase={"min_rows": 1000},
    accuracy={"error": 0.05, "failure_probability": 1e-6},
    erasure={"within": "24 hours", "row": "order"},
)
PAGES = ["home", "cart", "paid"]


def rows(*persons: int, start: int = 0, page: str | None = None) -> dict[str, list[Any]]:
    """One row of each of these persons, in columns. Person -1 is nobody."""
    order = range(start, start + len(persons))
    return {
        "page": [page or PAGES[n % 3] for n in order],
        "total": [n % 70 for n in order],
        "customer": [None if person < 0 else f"C-{person}" for person in persons],
        "order": [f"o-{n}" for n in order],
    }


async def shop(world: Any, *, first: Any = None, **changes: Any) -> Any:
    """A worker with the data set, and perhaps with the columns of a first batch."""
    world.key_file = bytes(range(64))
    world.now_ms = 1_790_000_000_000
    process = await world.owner()
    world.produce("datasets", {**SHOP, **changes})
    await process.run()
    assert not world.released("rejected"), world.released("rejected")
    if first is not None:
        await sent(world, process, "first", columns=first)
    return process


async def sent(world: Any, process: Any, batch_id: str, **form: Any) -> dict[str, Any]:
    """The event about a batch."""
    world.batch("shop", batch_id, **form)
    await process.run()
    event = world.events()[-1]
    found = [e for e in world.events() if e.get("batch_id") == batch_id]
    assert found, event
    return found[-1]


async def swept(world: Any, process: Any, hours: float = 9) -> list[dict[str, Any]]:
    """The receipts, once the clock has shown a later time."""
    world.now_ms += int(hours * HOUR)
    world.produce("batches", {"version": 1, "dataset": "shop", "clock": True}, key="shop")
    await process.run()
    return world.events("swept")


def dataset(world: Any) -> Any:
    return world.processes[-1].datasets["shop"]


def exactly(world: Any, phase: int = 1) -> list[int]:
    """Exact counts of the pages of a phase, as it is kept."""
    slots = kept_slots(world, world.held("shop"), phase)
    assert slots is not None
    found = Counter(dict(slot.says)["0"] for slot in slots if slot.counts)
    return [found[page] for page in range(len(PAGES))]


async def test_a_person_is_erased_from_a_block_and_from_rows_that_wait(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "second", columns=rows(*range(100), start=5000))
    assert exactly(world) == [400, 400, 400]
    event = await sent(world, process, "gone", erase=["C-3", None, "C-4", "C-9999"])
    assert (event["rows"], event["changes"], event["change_number"]) == (0, 4, 1)
    assert event["due"] == "2026-09-21T22:13:20+00:00"
    assert exactly(world) == [400, 400, 400], "not before the sweep"
    (receipt,) = await swept(world, process)
    assert exactly(world) == [399, 399, 400]
    waiting = dataset(world).rows.waiting
    assert waiting.n_rows == 100, "how many wait is public"
    lots = Slots.concat(await waiting.lots.whose())
    assert np.count_nonzero(~lots.digests.any(axis=1)) == 2
    assert receipt["sweep"] == 1
    assert receipt["phases"] == [1, 1]
    assert receipt["changes"] == 4


async def test_a_row_is_corrected_and_erased_by_its_key(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "second", columns=rows(*range(100), start=5000))
    correct = [
        {"person": "C-0", "row": "o-0", "set": {"page": "paid", "total": 5}},
        {"person": "C-1", "row": "o-1", "erase": True},
        {"person": "C-7", "row": "o-2", "erase": True},
        None,
        {"person": "C-0", "row": "o-5000", "set": {"page": "paid", "total": 5}},
    ]
    event = await sent(world, process, "fixed", correct=correct)
    assert (event["event"], event["changes"]) == ("batch_accepted", 5), event
    await swept(world, process)
    assert exactly(world) == [399, 399, 401]
    await sent(world, process, "third", columns=rows(*range(100, 1000), start=6000))
    before = [
        sum(n % 3 == page for n in [*range(5000, 5100), *range(6000, 6900)]) for page in range(3)
    ]
    found = exactly(world, 2)
    page = 5000 % 3
    before[page] -= 1
    before[2] += 1
    assert found == before


def released(world: Any) -> list[tuple[str, bytes | None]]:
    """All that has left, in order."""
    return [(one.role, one.value) for one in world.left()]


def kept_columns(world: Any) -> dict[str, dict[str, list[int]]]:
    """The columns of all slabs that are kept."""
    held, found = world.held("shop"), dict[str, dict[str, list[int]]]()
    for what, named in held.named().items():
        parts = held.parts(named)
        if len(parts) > 1:
            slab = Slab.of_stored(parts)
            if what.startswith("owner "):
                slab = veiled(secret_of(world, held), SlabIndex.from_bytes(parts[0]).salt, slab)
            found[what] = {name: column.tolist() for name, column in slab.columns.items()}
            found[what]["rows and slots"] = [slab.n_rows, slab.n_slots]
    return found


FOUND = {"name": "page", "type": "category", "find": {"most": 9, "windows": [1, 2], "share": 0.1}}
FORMS: dict[str, dict[str, Any]] = {
    "listed values": {},
    "found values": {"attributes": [FOUND, *SHOP["attributes"][1:]]},
    "for life": {"privacy": {**SHOP["privacy"], "unit": {**UNIT, "phases": 9, "lifetime": True}}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lots", [False, True], ids=["in memory", "kept as slabs"])
async def test_nobody_can_tell_whether_a_person_was_there(
    make_world: Any, monkeypatch: pytest.MonkeyPatch, lots: bool, form: str
) -> None:
    """What leaves is the same, and what is kept is that of the rows without the person."""
    if lots:
        monkeypatch.setattr(slabs, "SLOTS", 500)
    for module in (private_rows, waiting_lots):
        monkeypatch.setattr(module, "secret_order", np.arange)
    outputs, kept = [], []
    for there in (7, -1):
        world = make_world()
        process = await shop(world, **FORMS[form])
        first = rows(*range(100, 1100), there, *range(1100, 1299))
        waits = rows(*range(50, 150), there, start=5000)
        if there < 0:  # a blank slot says nothing that anybody keeps
            for columns, at in ((first, 1000), (waits, 100)):
                columns["page"][at], columns["total"][at], columns["order"][at] = None, 33, None
        await sent(world, process, "first", columns=first)
        await sent(world, process, "second", columns=waits)
        await sent(world, process, "more", columns=rows(*range(2000, 2450), start=5200))
        await sent(world, process, "gone", erase=["C-7"])
        await swept(world, process)
        kept.append([kept_columns(world)])
        await sent(world, process, "third", columns=rows(*range(200, 1200), start=7000))
        receipts = [*world.ledger("shop")[-1:], *(one.value for one in world.left("events"))]
        lengths = [[*map(len, parts)] for _, parts in world.kept_log]
        outputs.append(
            [len(released(world)), [r for r, _ in released(world)], receipts[1:], lengths]
        )
        kept[-1].append(kept_columns(world))
    assert outputs[0] == outputs[1]
    for one, blank in zip(*kept, strict=True):
        assert one.keys() == blank.keys()
        for what in one:
            if not what.startswith("used "):  # what a person has used for life stays
                assert one[what] == blank[what], what


async def test_a_receipt_is_signed_and_says_nothing_of_the_person(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "gone", erase=["C-3"])
    (receipt,) = await swept(world, process)
    first, *_, last = map(json.loads, world.ledger("shop"))
    assert first["kind"] == "dataset"
    assert is_signed(first["receipts"], receipt, receipt["signature"])
    assert is_signed(first["receipts"], last, last["signature"])
    for name in receipt.keys() - {"version", "event", "signature"}:
        other = {**receipt, name: "shops" if name == "dataset" else 2}
        assert not is_signed(first["receipts"], other, receipt["signature"]), name
    assert last["kind"] == "sweep"
    assert receipt["at"] == "2026-09-21T23:13:20+00:00"
    report = verify("shop", world.ledger("shop"))
    assert report.faults == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"erasure": {"within": "1 hour"}}, "erasure.within is not between 12 hours and 21 days"),
        (
            {"erasure": {"within": "24 hours", "row": "page"}},
            "erasure.row is the name of an attribute",
        ),
        ({"erasure": {"within": "24 hours", "row": "customer"}}, "erasure.row is the name"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-9}}, "erasure: it is persons who are erased"),
        (
            {
                "phase": {
                    "min_rows": 1000,
                    "every": "1 day",
                    "close": {"after": "1 hour"},
                    "late": {"within": "2 days"},
                }
            },
            "late rows, cannot be erased",
        ),
    ],
)
def test_a_definition_that_cannot_erase_is_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidDefinition, match=fault):
        Definition.read({**SHOP, **changes})


async def test_without_a_key_file_nothing_can_be_erased(world: Any) -> None:
    process = await world.owner()
    record = world.produce("datasets", SHOP)
    await process.run()
    assert "set STREAM_DP_PERSON_KEY_FILE" in world.rejection(record)["reason"]["message"]


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ({"correct": [{"person": "C-1"}]}, "correct: an entry does not say which row it is about"),
        ({"correct": [{"person": "C-1", "row": "o-1"}]}, "what becomes of a row"),
        ({"correct": [{"person": 1, "row": 2, "set": {}, "erase": True}]}, "what becomes of a row"),
        (
            {"correct": [{"person": 1, "row": 2, "set": {"colour": 1}}]},
            "correct.set: a name is not",
        ),
        ({"correct": ["o-1"]}, "correct: an entry does not say which row"),
        ({"erase": ["C-1"], "rows": [{"colour": 1}]}, "rows: a name is not an attribute"),
    ],
)
async def test_a_change_that_says_nothing_clear_is_refused(
    world: Any, form: dict[str, Any], fault: str
) -> None:
    process = await shop(world)
    event = await sent(world, process, "wrong", **form)
    assert event["event"] == "batch_refused"
    assert fault in event["reason"]["message"]
    assert world.held("shop").meta.get("changes", "0") == "0"


async def test_other_data_sets_take_no_changes(world: Any) -> None:
    process = await shop(world, erasure=None)
    event = await sent(world, process, "wrong", erase=["C-1"])
    assert "this data set takes no changes of rows" in event["reason"]["message"]
    process = await shop(world, dataset="plain", erasure={"within": "24 hours"})
    world.batch("plain", "wrong", correct=[{"person": 1, "row": 2, "erase": True}])
    await process.run()
    assert "the rows of this data set have no key" in world.events()[-1]["reason"]["message"]


async def test_a_request_comes_once_and_again(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    once = await sent(world, process, "gone", erase=["C-3"])
    assert await sent(world, process, "gone", erase=["C-3", "C-4"]) == once
    await swept(world, process)
    assert await sent(world, process, "gone", erase=["C-3"]) == once
    assert len(await swept(world, process)) == 1, "nothing is left to be swept"
    assert sum(exactly(world)) == 1199


async def test_a_person_who_comes_back_is_not_erased_again(world: Any) -> None:
    """A change is about slots before it, also where the next phase opens before the sweep."""
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "gone", erase=["C-3"], columns=rows(3, start=3000))
    await sent(world, process, "second", columns=rows(*range(1199), start=4000))
    await swept(world, process)
    assert sum(exactly(world)) == 1199
    assert sum(exactly(world, 2)) == 1200


@pytest.mark.parametrize("swept_before", [False, True], ids=["next phase first", "sweep first"])
async def test_who_is_forgotten_may_use_the_whole_promise_again(
    world: Any, swept_before: bool
) -> None:
    """Others, and who is erased alone, have used up all they may for life."""
    process = await shop(world, privacy={**SHOP["privacy"], "unit": {**UNIT, "lifetime": True}})
    twice = [person for person in range(600) for _ in range(2)]
    await sent(world, process, "first", columns=rows(*twice))
    await sent(world, process, "gone", erase=["C-1", None])
    told = await sent(world, process, "forgotten", erase=["C-2", None, "nobody"], forget=True)
    assert told["changes"] == 3
    if swept_before:
        await swept(world, process)
    again = [*range(3), *range(10_000, 11_000)]
    await sent(world, process, "second", columns=rows(*again, start=4000))
    if not swept_before:
        await swept(world, process)
    assert sum(exactly(world)) == 1196
    assert sum(exactly(world, 2)) == 1001, "C-2 counts again, and C-0 and C-1 do not"
    await process.kill()
    process = await world.owner()
    await sent(world, process, "third", columns=rows(*range(3), *range(20_000, 21_000), start=9000))
    assert sum(exactly(world, 3)) == 1001, "what was used since then is kept: one row of two"
    await sent(world, process, "fourth", columns=rows(2, *range(30_000, 31_000), start=15000))
    assert sum(exactly(world, 4)) == 1001


async def test_nothing_is_forgotten_where_nothing_is_kept(world: Any) -> None:
    process = await shop(world)
    refused = await sent(world, process, "gone", erase=["C-1"], forget=True)
    assert refused["event"] == "batch_refused"
    assert "forget: the promise of this data set is not for life" in refused["reason"]["message"]
    record = world.batch("shop", "alone", forget=True, columns=rows(1))
    await process.run()
    assert "forget goes with erase" in world.rejection(record)["reason"]["message"]


async def test_a_row_that_comes_again_counts_as_it_came_last(world: Any) -> None:
    process = await shop(world, phase={"min_rows": 1004})
    again = rows(1, 2, 3)
    await sent(world, process, "first", columns=rows(*range(1000)))
    again["page"], again["customer"], again["order"] = (
        ["paid"] * 3,
        ["C-0", "C-0", "C-5"],
        ["o-0", "o-1", "o-5"],
    )
    await sent(world, process, "again", columns=again)
    await sent(world, process, "last", columns=rows(9999, start=9999))
    # o-0 was "home"; the row o-1 is C-1's, not C-0's, and so is another one; o-5 was "paid".
    assert exactly(world) == [334 - 1 + 1, 333, 333 + 1 + 1]


async def test_a_row_that_comes_again_in_a_later_phase_is_another_one(world: Any) -> None:
    process = await shop(world, first=rows(*range(1000), page="home"))
    await sent(world, process, "again", columns=rows(*range(1000), page="paid"))
    await sent(world, process, "gone", erase=["C-3"])
    await swept(world, process)
    assert (exactly(world), exactly(world, 2)) == ([999, 0, 0], [0, 0, 999])


async def test_a_correction_of_a_row_that_is_not_there_makes_none(world: Any) -> None:
    process = await shop(world, first=rows(*range(1000), page="home"))
    strange = [
        {"person": "C-7", "row": "o-5", "set": {"page": "cart", "total": 5}},
        {"person": "C-5000", "row": "o-5000", "set": {"page": "cart", "total": 5}},
    ]
    event = await sent(world, process, "strange", correct=strange)
    assert event["waiting"] == 0
    await swept(world, process)
    await sent(world, process, "second", columns=rows(*range(1000), start=6000, page="home"))
    assert (exactly(world), exactly(world, 2)) == ([1000, 0, 0], [1000, 0, 0])


@pytest.mark.parametrize("gone", range(3))
async def test_no_row_that_did_not_count_takes_the_place_of_one_that_is_erased(
    world: Any, gone: int
) -> None:
    """Of three rows of a person two count. Which ones does not change any more."""
    process = await shop(world)
    three = rows(5000, 5000, 5000, start=5001)
    three["page"] = PAGES
    await sent(world, process, "first", columns=rows(*range(900)))
    await sent(world, process, "three", columns=three)
    await sent(world, process, "last", columns=rows(*range(1000, 1100), start=1000, page="home"))
    sealed = exactly(world)
    own = [n - of_others for n, of_others in zip(sealed, (400, 300, 300), strict=True)]
    assert sorted(own) == [0, 1, 1]
    erased = {"person": "C-5000", "row": f"o-{5001 + gone}", "erase": True}
    await sent(world, process, "gone", correct=[erased])
    await swept(world, process)
    sealed[gone] -= own[gone]
    assert exactly(world) == sealed


async def test_a_row_that_does_not_count_says_no_value_whatever_it_is_corrected_to(
    world: Any,
) -> None:
    process = await shop(world, first=rows(*range(997), *[5000] * 3), **FORMS["found values"])
    correct = [
        {"person": "C-5000", "row": f"o-{n}", "set": {"page": "help", "total": 5}}
        for n in range(997, 1000)
    ]
    await sent(world, process, "fixed", correct=correct)
    await swept(world, process)
    kept = kept_columns(world)
    words = [column for name, column in kept["text 1 0"].items() if name.startswith("key 0 ")]
    said = [any(of_slot) for of_slot in zip(*words, strict=True)]
    assert said == list(map(bool, kept["block 1 0"]["weight"]))
    assert Counter(said) == {True: 999, False: 1}


async def test_rows_that_wait_are_read_again_with_the_changes_behind_them(world: Any) -> None:
    process = await shop(world)
    await sent(world, process, "waits", columns=rows(*range(500), page="home"))
    fix = {"person": "C-0", "row": "o-0", "set": {"page": "paid", "total": 5}}
    await sent(world, process, "gone", erase=["C-3"], correct=[fix])
    await sent(world, process, "again", columns=rows(3, start=3000, page="home"))
    await process.kill()
    process = await world.owner()
    await sent(world, process, "opens", columns=rows(*range(1000, 1500), start=4000, page="home"))
    assert exactly(world) == [999, 0, 1]


async def test_the_next_owner_reads_what_a_sweep_has_kept(world: Any) -> None:
    process = await shop(
        world, first=rows(*range(3000), page="cart"), mechanism={"base_share": 0.0}
    )
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(1500)])
    await swept(world, process)
    for name in ("same", "next"):
        world.ask("shop", name, {"attribute": "page", "eq": "cart"}, fresh=True)
        await process.run()
        await process.kill()
        process = await world.owner()
        answer = world.answer(name)
        assert abs(answer["count"] - 1500) <= answer["count_bar"] < 500
    await process.run()


async def test_whose_rows_they_are_is_veiled_on_the_private_topic(world: Any) -> None:
    process = await shop(world, first=rows(*[5000] * 500, *range(500)))
    await process.settled()
    held = world.held("shop")
    (named,) = held.named("owner ").values()
    parts = held.parts(named)
    assert parts is not None
    columns = Slab.of_stored(parts).columns
    whose = digests(secret_of(world, held), ["C-5000"]).view("<u4")[0]
    for at in range(3):
        seen = Counter(columns[f"digest {at}"].tolist())
        assert whose[at] not in seen
        assert max(seen.values()) < 3, "nobody can tell that rows are of one person"
    assert not any(key in world.view.values["shop"] for key in named.fields()), "nor is it in Redis"


async def test_what_was_answered_stays_and_a_fresh_count_is_about_what_is_left(world: Any) -> None:
    process = await shop(world, first=rows(*range(3000), page="cart"))
    cart = {"attribute": "page", "eq": "cart"}
    world.ask("shop", "before", cart)
    await process.run()
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(1500)])
    await swept(world, process)
    for name, more in (("after", {}), ("fresh", {"fresh": True})):
        world.ask("shop", name, cart, **more)
    await process.run()
    before, after, fresh = map(world.answer, ("before", "after", "fresh"))
    assert "changed_at_most" not in before
    assert after["changed_at_most"] == fresh["changed_at_most"] == 3000
    assert after["count"] == before["count"], "what is published of the rows as they were sealed"
    assert abs(before["count"] - 3000) <= before["count_bar"]
    assert abs(fresh["count"] - 1500) <= fresh["count_bar"]


async def test_a_hard_answer_is_about_the_rows_that_are_left(world: Any) -> None:
    """What was measured before is about other rows, so a look answers by itself, and a repeat is free."""
    process = await shop(
        world, first=rows(*range(3000), page="cart"), mechanism={"base_share": 0.0}
    )
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(1500)])
    await swept(world, process)
    cart = {"attribute": "page", "eq": "cart"}
    for name in ("hard", "repeat"):
        world.ask("shop", name, cart)
        world.ask("shop", f"by-page-{name}", kind="table", group_by=["page"])
        await process.run()
    hard, repeat = world.answer("hard"), world.answer("repeat")
    assert (hard["path"], repeat["path"]) == ("measured", "repeat")
    assert hard["count"] == repeat["count"]
    assert abs(hard["count"] - 1500) <= hard["count_bar"]
    counts = table(world.answer("by-page-hard"), "counts", "count_bars")
    assert all(within(count, [0, 1500, 0][at], bar) for at, (count, bar) in enumerate(counts))


async def test_what_is_measured_of_changed_rows_answers_nothing_else(world: Any) -> None:
    """With what was measured before it would be about no rows that ever were."""

    def half(start: int) -> dict[str, list[Any]]:
        return {**rows(*range(2000), start=start), "page": ["cart"] * 1000 + ["home"] * 1000}

    process = await shop(world, mechanism={"base_share": 0.05})
    await sent(world, process, "first", columns=half(0))
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(750)])
    await swept(world, process)
    await sent(world, process, "second", columns=half(9000))
    cart = {"attribute": "page", "eq": "cart"}
    for name, error, phases in (("look", 0.03, 1), ("easy", 0.04, 2), ("hard", 0.032, 2)):
        world.ask("shop", name, cart, error=error, window={"phases": [1, phases]})
        await process.run()
    for name, path, n_rows in (
        ("look", "measured", 250),
        ("easy", "certified", 2000),
        ("hard", "measured", 1250),
    ):
        answer = world.answer(name)
        assert answer["path"] == path
        assert abs(answer["count"] - n_rows) <= answer["count_bar"] < 150


async def test_a_look_at_changed_rows_costs_what_it_has_cost_before(world: Any) -> None:
    process = await shop(
        world, first=rows(*range(3000), page="cart"), mechanism={"base_share": 0.0}
    )
    cart = {"attribute": "page", "eq": "cart"}
    world.ask("shop", "before", cart, fresh=True)
    await process.run()
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(1500)])
    await swept(world, process)
    for name, more in (("after", {"fresh": True}), ("hard", {})):
        world.ask("shop", name, cart, **more)
        await process.run()
    entries = [json.loads(entry) for entry in world.ledger("shop")]
    charges = [entry["charges"] for entry in entries if entry["kind"] == "charge"]
    before, after, hard = charges[-3:]
    assert before == after == hard
    assert before[0][1] > 0


async def test_changes_that_are_nowhere_any_more_are_asked_for_again(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "lost", erase=["C-3"])
    await sent(world, process, "kept", erase=["C-4"])
    world.expired |= {
        one.record_id
        for one in world.log[f"in.batches:{world.home('shop')}"]
        if b'"lost"' in (one.value or b"")
    }
    await process.kill()
    process = await world.owner()
    (receipt,) = await swept(world, process)
    (event,) = world.events("changes_lost")
    assert event["batch_id"] == "lost"
    assert (receipt["changes"], receipt["lost"]) == (1, 1)
    assert sum(exactly(world)) == 1199


async def test_batches_are_deleted_once_they_are_swept(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "waits", columns=rows(*range(100), start=5000))
    await process.worker.tidy()
    assert not world.deleted
    await sent(world, process, "gone", erase=["C-3"])
    await swept(world, process)
    await sent(world, process, "later", columns=rows(*range(10), start=6000))
    await process.worker.tidy()
    await process.run()
    gone = {record_id.rpartition(":")[2] for record_id in world.deleted}
    assert gone == {"0", "1", "2"}, "batches, and the request, which names the person"
    await process.worker.tidy()
    assert len(world.deleted) == 3
    await process.kill()
    process = await world.owner()
    await sent(world, process, "more", columns=rows(*range(1000), start=7000))
    assert sum(exactly(world, 2)) == 1100, "of ten persons who came three times two rows count"


async def test_a_data_set_may_be_handed_over_while_a_worker_tidies(make_world: Any) -> None:
    for step in range(8):
        world = make_world()
        process = await shop(world)
        await sent(world, process, "waits", columns=rows(*range(100)))
        first = process.effects + 1

        async def leave(effect: int, at: int = first + step, process: Any = process) -> None:
            if effect == at:
                process.revoke([0, 1])

        process.interrupt = leave
        process.datasets["shop"].used_at -= 2 * 86_400.0
        await process.worker.tidy()
        await process.kill()


async def test_batches_stay_while_rows_in_them_wait(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those of a data set that nobody can serve."""
    process = await shop(world)
    other = next(
        name for name in map("{}".format, "abcd") if world.home(name) == world.home("shop")
    )
    world.produce("datasets", {**SHOP, "dataset": other})
    await process.run()
    world.batch(other, "waits", columns=rows(*range(100)))
    await sent(world, process, "first", columns=rows(*range(1200)))
    await sent(world, process, "gone", erase=["C-3"])
    await swept(world, process)
    process.worker._holdings.stop(other, CorruptState("it was moved"))
    await process.worker.tidy()
    await process.run()
    assert not world.deleted
    assert "keeps batches that a sweep has gone through: rows in them wait" in caplog.text


async def test_batches_stay_while_nobody_knows_what_a_data_set_of_their_partition_needs(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its journal has a wrong byte. The worker goes on, and deletes them once that is repaired."""
    process = await shop(world)
    other = next(
        name for name in map("{}".format, "abcd") if world.home(name) == world.home("shop")
    )
    world.produce("datasets", {**SHOP, "dataset": other})
    await process.run()
    world.batch(other, "done", columns=rows(*range(1100)))
    await sent(world, process, "first", columns=rows(*range(1200)))
    await sent(world, process, "gone", erase=["C-3"])
    await swept(world, process)
    await process.kill()
    sound = copy.deepcopy(world.journal)
    here = world.journal[world.home(other)]
    (*_, at) = (at for at, entry in enumerate(here) if entry.key == other.encode())
    here[at] = dataclasses.replace(here[at], value=here[at].value[:-1])
    process = await world.owner()
    await process.run()
    assert process.worker.stopped.keys() == {other}
    await process.worker.tidy()
    await process.run()
    assert not world.deleted
    assert "batches that a sweep has gone through stay on in.batches" in caplog.text
    await process.kill()
    world.journal = [
        [*was, *now[len(was) :]] for was, now in zip(sound, world.journal, strict=True)
    ]
    process = await world.owner()
    await process.run()
    await process.worker.tidy()
    assert world.deleted


async def test_an_older_redis_brings_no_erased_row_back(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200), page="cart"))
    older = copy.deepcopy(world.view)
    await sent(world, process, "gone", erase=[f"C-{n}" for n in range(1100)])
    await swept(world, process)
    await process.kill()
    world.view = older
    process = await world.owner()
    world.ask("shop", "fresh", {"attribute": "page", "eq": "cart"}, fresh=True, error=0.2)
    await process.run()
    fresh = world.answer("fresh")
    assert abs(fresh["count"] - 100) <= fresh["count_bar"] < 500
    assert sum(exactly(world)) == 100
