"""Whose rows these are, from a record to the sealed block."""

from __future__ import annotations

import asyncio
import csv
import json
import logging
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.row_files import RowFile
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.rows.frames import arrow_stream, frame_columns
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import WHOSE_COLUMNS, Slots
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, RowsGone, WrongKeyFile
from stream_dp.messages import Definition, SourceRange
from stream_dp.pipeline.intake import source_packing
from stream_dp.pipeline.intake.decoder import ARROW
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import Packing, document_of, row_of
from stream_dp.profiles.builder import build
from tests.pipeline.flights import BEFORE, LAST, asked, table, within
from tests.pipeline.scenarios import PERSONS
from tests.pipeline.world import definition
from tests.view import MemoryView

UNIT = {"key": "user_id", "rows_per_phase": 2, "phases": 3}
DEFINITION = definition(
    "clicks",
    attributes=[
        {"name": "page", "type": "category", "values": ["a", "b"]},
        {"name": "paid", "type": "boolean"},
    ],
    privacy={"epsilon": 1.0, "delta": 1e-9, "unit": UNIT},
    phase={"min_rows": 1000},
)
COLUMNS = {"page": ["a"] * 4, "paid": [True] * 4}
PAGE_A = {"attribute": "page", "eq": "a"}
CANARY = "canary-7f3a"
NAMES = ("clicks", "other")


def define(world: Any, name: str = "clicks", **changes: Any) -> None:
    world.produce("datasets", {**DEFINITION, "dataset": name, **changes})


async def working(world: Any, **changes: Any) -> Any:
    """A worker that holds the data set."""
    process = await world.owner(**changes)
    define(world)
    await process.run()
    return process


async def taken_over(process: Any) -> None:
    await process.assign()
    await process.run()


def waiting(world: Any, name: str = "clicks") -> list[Rows]:
    """The rows that wait for a phase, as the last worker has them."""
    return list(world.processes[-1].datasets[name].rows.waiting._pending.values())


def words_of(digest: bytes) -> list[bytes]:
    """A digest as columns have it."""
    return [digest[at : at + 4] for at in range(0, len(digest), 4)]


def digests(rows: Rows) -> list[bytes]:
    assert rows.whose is not None
    return [bytes(digest) for digest in rows.whose.digests]


async def test_one_person_is_the_same_in_every_form_of_a_batch(world: Any, tmp_path: Path) -> None:
    process = await working(world)
    clicks = Definition.read(DEFINITION)
    names = ["page", "paid", "user_id"]

    def batch(batch_id: str, **form: Any) -> None:
        document = {"version": 1, "dataset": "clicks", "batch_id": batch_id, **form}
        world.produce("batches", to_json(document), key="clicks")

    def arrow(batch_id: str, keys: Any) -> None:
        table = pa.table({**COLUMNS, "user_id": keys})
        headers = {"content-type": ARROW.encode(), "batch_id": batch_id.encode()}
        world.produce("batches", arrow_stream(table, names), key="clicks", headers=headers)

    batch("columns", columns={**COLUMNS, "user_id": ["17", 17, 17.0, None]})
    listed = [{"page": "a", "user_id": key} for key in (17.0, " 17 ", "17")]
    batch("rows", rows=[*listed, {"page": "a"}])
    arrow("integers", pa.array([17, 17, 17, None], pa.int64()))
    arrow("floats", pa.array([17.0, 17.0, 17.0, None]))
    arrow("texts", pa.array(["17", "17", "17 ", ""]))
    arrow("dictionary", pa.array(["17", "17", "17", None]).dictionary_encode())
    frame = pd.DataFrame({**COLUMNS, "user_id": [17, 17, 17, None]})
    assert frame["user_id"].dtype == np.float64, "as pandas makes of ids with gaps"
    batch("frame", columns=frame_columns(frame, names))
    file = tmp_path / "clicks.csv"
    with file.open("w") as text:
        writer = csv.writer(text)
        writer.writerow(["who", "page", "paid"])
        writer.writerows([[who, "a", "true"] for who in ("17", " 17", "17", "")])
    frame.to_parquet(tmp_path / "clicks.parquet")
    for path, person in ((file, "who"), (tmp_path / "clicks.parquet", "user_id")):
        (read,) = RowFile(path, clicks, 100, FileReading(person=person)).batches()
        batch(path.name, columns=read.columns)
    spelt = [b'{"id":{"of":"17"}}', b'{"id":{"of":17}}', b'{"id":{"of":17.0}}', b'{"id":[17]}']
    world.produce("batches", off_source(spelt), key="clicks")
    await process.run()
    await process.kill()
    found = [digests(rows) for rows in waiting(world)]
    assert len(found) == len(world.events("batch_accepted")) == 10
    ana = found[0][0]
    assert any(ana)
    assert found == [[ana, ana, ana, bytes(12)]] * len(found)
    process = world.process()
    await taken_over(process)
    await process.kill()
    assert [digests(rows) for rows in waiting(world)] == found, "the next owner reads them again"


async def test_no_key_refuses_a_row_or_a_batch(world: Any) -> None:
    process = await working(world)
    keys: list[Any] = [[], {}, [[1]], {"a": 1}, "", None, True, "\x00", "x" * 100_000, 1e308]
    keys.append(10**400)
    page = ["a"] * len(keys)
    world.batch("clicks", "columns", columns={"page": page, "paid": page, "user_id": keys})
    world.batch("clicks", "rows", rows=[{"user_id": key} for key in keys])
    await process.run()
    await process.kill()
    assert [event["rows"] for event in world.events("batch_accepted")] == [len(keys)] * 2
    by_column, by_row = (digests(rows) for rows in waiting(world))
    assert by_column == by_row
    assert [any(digest) for digest in by_row] == [False] * 6 + [True] * 5


FAULTS: dict[str, dict[str, Any]] = {
    "columns: there is no column user_id; it says whose row each is": {"columns": COLUMNS},
    "cells: rows that are only counted do not say whose they are; send rows or columns": {
        "cells": [{"page": "a", "count": 2}]
    },
    "columns: a column is not a list; give a list of values": {
        "columns": {**COLUMNS, "user_id": CANARY}
    },
    "columns: lengths differ; give every column one value a row": {
        "columns": {**COLUMNS, "user_id": [CANARY]}
    },
    "rows: a name is not an attribute of the data set; use page, paid, user_id": {
        "rows": [{"user_id": CANARY, CANARY: CANARY}]
    },
}


async def test_a_structural_fault_is_refused_in_words_that_say_no_key(world: Any) -> None:
    process = await working(world)
    for number, form in enumerate(FAULTS.values()):
        world.batch("clicks", f"bad-{number}", **form)
    await process.run()
    await process.kill()
    reasons = [event["reason"] for event in world.events("batch_refused")]
    assert [reason["message"] for reason in reasons] == [*FAULTS]
    assert {reason["code"] for reason in reasons} == {"invalid_batch"}
    assert waiting(world) == []


async def test_where_rows_are_protected_a_column_of_keys_is_unknown(world: Any) -> None:
    process = await working(world)
    define(world, "rows", privacy={"epsilon": 1.0, "delta": 1e-9})
    await process.run()
    world.batch("rows", "bad", columns={**COLUMNS, "user_id": [1, 2, 3, 4]})
    await process.run()
    await process.kill()
    assert len(world.events("batch_refused")) == 1
    assert world.held("rows").named() == {}


def stored(world: Any) -> bytes:
    """All that is on private topics and in Redis."""
    view = world.view
    parts = (world.journal, world.kept, view.states, view.generations, view.values)
    return pickle.dumps(parts)


async def test_no_key_is_stored_or_reaches_anyone(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    process = await working(world, batches_last_s=-1e12)  # so rows that wait are kept at once
    rows = [{"page": "a", "user_id": f"{CANARY}{n % 300}"} for n in range(1000)]
    world.batch("clicks", "waits", rows=rows[:10])
    world.batch("clicks", "bad", rows=[*rows[:10], {"more": 1}])
    world.batch("nobody", "lost", rows=rows[:10])
    world.produce("batches", b'{"rows": [{"user_id": "canary-7f3a"', key="clicks")
    world.produce("batches", json.dumps({"user_id": CANARY}).encode(), key="clicks")
    await process.run()
    await process.worker.tidy()
    await process.settled()
    before = stored(world)
    (lot,) = (process.worker.datasets["clicks"].rows.waiting.lots,)
    assert [slab.n_rows for slab in lot] == [10]
    (whose,) = await lot.whose()
    digest = bytes(whose.digests[0])
    assert [word in before for word in words_of(digest)] == [True] * 3, "each in its column"
    world.batch("clicks", "opens", rows=rows)
    world.ask("clicks", "all", error=0.5)
    await process.run()
    await process.settled()
    after = stored(world)
    assert not any(word in after for word in words_of(digest)), "the digests go with the seal"
    names = {
        name
        for parts in (*world.kept.values(), [*world.view.values["clicks"].values()])
        for part in parts
        for name in WHOSE_COLUMNS
        if name.encode() in part
    }
    assert names == set(), "and so do their columns"
    said = b"".join(
        e.outgoing.value + str(e.outgoing).encode() for e in world.trail if hasattr(e, "outgoing")
    )
    metrics = process.worker.context.metrics.exposition()
    for seen in (before, after, said, caplog.text.encode(), metrics):
        assert CANARY.encode() not in seen
    (opened,) = world.events("phase_opened")
    assert opened["rows"] == 1010, "how many of them count is private"
    await process.kill()
    assert len(world.rejections()) == 3


async def test_the_secret_is_committed_with_the_definition_and_goes_with_the_data_set(
    world: Any,
) -> None:
    process = await working(world)
    define(world, "other")
    await process.run()
    world.batch("clicks", "one", rows=[{"user_id": "ana"}])
    world.batch("other", "one", rows=[{"user_id": "ana"}])
    await process.run()
    kept = world.held("clicks").named()
    assert kept.keys() == {"person"}
    secret, other = (world.held(n).private(world.held(n).named()["person"]) for n in NAMES)
    assert None not in (secret, other)
    assert secret != other
    assert digests(waiting(world)[0]) != digests(waiting(world, "other")[0])
    dataset = process.worker.datasets["clicks"]
    assert dataset.rows.blocks.data.vault == {}, "no look has it at hand"
    # A look, after which secrets that nobody needs are dropped, and another worker.
    world.batch("clicks", "opens", rows=[{"page": "a", "user_id": n} for n in range(1000)])
    world.ask("clicks", "all", error=0.5)
    await process.run()
    await process.kill()
    assert world.held("clicks").named("person") == {"": kept["person"]}
    process = await world.owner()
    world.batch("clicks", "two", rows=[{"user_id": "ana"}])
    world.batch("other", "two", rows=[{"user_id": "ana"}])
    await process.run()
    one, two = waiting(world, "other")
    assert digests(one) == digests(two)
    world.produce("datasets", None, key="clicks")
    world.batch("clicks", "late", rows=[{"user_id": "ana"}])
    await process.run()
    await process.kill()
    assert world.held("clicks").named() == {}
    assert secret not in stored(world)
    assert world.complaints() == []
    assert [event["batch_id"] for event in world.events("batch_refused")] == ["late"]


async def test_with_a_key_file_what_is_stored_undoes_no_digest(
    make_world: Callable[..., Any],
) -> None:
    worlds = [make_world() for _ in range(2)]
    for world in worlds:
        world.key_file = bytes(range(64))
        process = await working(world)
        world.batch("clicks", "one", rows=[{"user_id": "ana"}])
        await process.run()
        await process.kill()
    one, other = (waiting(world)[0] for world in worlds)
    assert digests(one) == digests(other), "the file and the name alone decide"
    world = worlds[0]
    for key_file in (None, b"another file of thirty-two bytes"):
        world.key_file = key_file
        for _ in range(5):  # more often than a worker may die of a data set
            process = world.process()
            with pytest.raises(WrongKeyFile, match="clicks was defined with another key file"):
                await taken_over(process)
            await process.kill()
    world.key_file = bytes(range(64))
    process = await world.owner()
    world.batch("clicks", "two", rows=[{"user_id": "ana"}])
    await process.run()
    await process.kill()
    assert [digests(rows) for rows in waiting(world)] == [digests(one)] * 2
    assert process.worker.datasets["clicks"].quarantined == ""


async def test_a_key_file_that_comes_later_changes_no_data_set(world: Any) -> None:
    """Else the rows that wait would be another person's than those to come."""
    process = await working(world)
    await process.kill()
    world.batch("clicks", "one", rows=[{"user_id": "ana"}])
    await world.run()
    world.key_file = bytes(64)
    world.batch("clicks", "two", rows=[{"user_id": "ana"}])
    await world.run()
    one, two = waiting(world)
    assert digests(one) == digests(two)


async def read(process: Any) -> None:
    """Takes over, and reads the blocks as a look does."""
    await taken_over(process)
    dataset = process.worker.datasets["clicks"]
    async with dataset.rows.blocks.stored.readable():
        await asyncio.to_thread(dataset.rows.blocks.data.marginal, (), range(dataset.phase))


@pytest.mark.parametrize("what", ["block 1 0", "waiting 0 1 0 1 0", "whose 0 1 0 1 0", "person"])
@pytest.mark.parametrize("swapped", ["all of it", "but for its index"])
async def test_rows_of_which_nobody_knows_whose_they_are_are_not_gone_on_from(
    world: Any, swapped: str, what: str
) -> None:
    """All of them would count otherwise, or each person would become another one."""
    process = await working(world, batches_last_s=-1e12)
    define(world, "rows", privacy={"epsilon": 1.0, "delta": 1e-9})
    await process.run()
    for name in ("clicks", "rows"):
        row = {"page": "a", "user_id": 7} if name == "clicks" else {"page": "b"}
        world.batch(name, "one", rows=[row] * 1000)
        world.batch(name, "two", rows=[row] * 2)
    await process.run()
    await process.worker.tidy()
    await process.drained()
    await process.kill()
    of_persons, of_rows = (world.held(name) for name in ("clicks", "rows"))
    assert of_persons.named().keys() == {
        "block 1 0",
        "waiting 0 1 0 1 0",
        "whose 0 1 0 1 0",
        "person",
    }
    mine = f"clicks/{of_persons.named()[what].name.hex()}".encode()
    like = what if what in of_rows.named() else "block 1 0"
    theirs = of_rows.parts(of_rows.named()[like])
    assert theirs is not None
    process = world.process()
    await read(process)
    await (process.kill() if swapped == "all of it" else process.stop())
    first = theirs[0] if swapped == "all of it" or what == "person" else world.kept[mine][0]
    world.kept[mine] = (first, *theirs[1:])
    world.view = MemoryView()
    process = world.process()
    if what == "block 1 0":
        with pytest.raises(RowsGone):
            await read(process)
    elif what == "person":
        await taken_over(process)
        assert process.worker.stopped.keys() == {"clicks"}
    elif swapped == "all of it":
        await taken_over(process)
        assert process.worker.datasets["clicks"].rows.waiting.n_rows == 0
        assert [event["batches"] for event in world.events("rows_lost")] == [1]
    else:
        await taken_over(process)
        world.batch("clicks", "three", rows=[{"page": "a", "user_id": 8}] * 998)
        with pytest.raises(CorruptState, match="clicks: rows that wait are on no topic any more"):
            await process.run()
        assert len(world.events("phase_opened")) == 2
        await process.kill()
        process = world.process()
        await taken_over(process)  # it looks for all of them, since the last owner has died
        assert [event["batches"] for event in world.events("rows_lost")] == [1]
    await process.kill()


async def test_without_the_secret_of_its_persons_a_data_set_is_stopped(world: Any) -> None:
    """Else each person would become another one. With the topic of blocks it goes on."""
    process = await working(world)
    world.batch("clicks", "one", rows=[{"page": "a", "user_id": 7}])
    await process.run()
    await process.kill()
    world.view = MemoryView()
    kept = dict(world.kept)
    world.kept.clear()
    process = world.process()
    await taken_over(process)
    assert "the secret of its digests is on no topic any more" in process.worker.stopped["clicks"]
    await process.kill()
    world.kept.update(kept)
    process = world.process()
    await taken_over(process)
    assert process.worker.stopped == {}
    assert [len(digests(rows)) for rows in waiting(world)] == [1]
    await process.kill()


async def test_a_choice_that_a_crash_makes_anew_is_caught(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of crashes can fail: here an owner draws the ranks when it seals."""
    counted = Slots.counted
    draw = np.random.default_rng(1)

    def drawing(self: Slots, most: Any) -> Any:
        fresh = draw.integers(2**63, size=len(self.ranks)).astype(np.uint64)
        return counted(Slots(self.digests, fresh), most)

    monkeypatch.setattr(Slots, "counted", drawing)
    world = make_world()
    await world.run(rounds=PERSONS)
    assert any(
        complaint.startswith("P3: flights holds other blocks") for complaint in world.complaints()
    )


# ---------------------------------------------------------------- sources


SOURCE = {
    "version": 1,
    "dataset": "clicks",
    "topic": "shop.clicks",
    "fields": {"user_id": "id.of"},
    "constants": {"paid": True},
}


def universe_of_clicks() -> Universe:
    return build(Definition.read(DEFINITION))[0]


def off_source(values: list[bytes]) -> bytes:
    """The batch that a counter makes of these messages."""
    universe, source = universe_of_clicks(), TopicSource.read(SOURCE)
    paths = source.paths(universe, ("user_id",))
    found = SourceRange(topic="shop.clicks", id="log", partition=0, first=0, last=len(values) - 1)
    packing = Packing(source, universe, paths, keys=("user_id",))
    return packing.batch(
        found, [row_of(document_of(value), paths, ("user_id",)) for value in values]
    )


async def test_a_count_of_one_phase_says_that_its_rows_are_persons_where_one_row_of_each_counts(
    world: Any,
) -> None:
    """Persons 0 to 1,499 have two rows in each phase. Only one row of each may count for this."""
    persons = {name: dict(UNIT, rows_per_phase=most) for name, most in (("one", 1), ("two", 2))}
    for name, unit in persons.items():
        define(world, name, privacy={"epsilon": 8.0, "delta": 1e-9, "unit": unit})
    keys = [n % 1500 for n in range(3000)]
    columns = {"page": ["a", "b"] * 1500, "paid": [True] * 3000, "user_id": keys}
    for name in persons:
        for phase in range(2):
            world.batch(name, f"{name}-{phase}", columns=columns)
    await world.run()
    queries: list[dict[str, Any]] = [
        {**LAST, "error": 0.2},
        {**LAST, "kind": "table", "group_by": ["page"], "error": 0.2},
        {"error": 0.2},
        {**LAST, "kind": "share", "share_of": PAGE_A},
        {**LAST, "quote": True},
    ]
    found = {name: await asked(world, *queries, dataset=name) for name in persons}
    said = "each row that counts is one person's"
    notes = {name: [reply.get("note") == said for reply in found[name]] for name in persons}
    assert notes == {"one": [True, True, False, False, False], "two": [False] * 5}
    count = found["one"][0]
    assert within(count["count"], 1500, count["count_bar"])


@pytest.mark.parametrize("aim", [None, 0.1])
async def test_a_difference_of_windows_lies_within_what_both_allow(
    world: Any, aim: float | None
) -> None:
    """At a confidence of 1 - 1e-9 for each window."""
    unit = dict(UNIT, rows_per_phase=1)
    accuracy = {"error": 0.2, "failure_probability": 1e-9, **({} if aim is None else {"aim": aim})}
    define(world, privacy={"epsilon": 8.0, "delta": 1e-9, "unit": unit}, accuracy=accuracy)
    for phase, n_first in enumerate((600, 1_200)):
        pages = ["a"] * n_first + ["b"] * (2_000 - n_first)
        columns = {"page": pages, "paid": [True] * 2_000, "user_id": list(range(2_000))}
        world.batch("clicks", f"phase-{phase}", columns=columns)
    await world.run()
    each = {"kind": "difference", **BEFORE}
    query = {**each, "where": PAGE_A}
    price, one, by_page, overlap = await asked(
        world,
        *({**query, "quote": True}, query, {**each, "group_by": ["page"]}),
        {**query, "minus_window": {"last_phases": 2}},
        dataset="clicks",
    )
    of_pages = table(by_page, "values", "counts", "error_bars", "count_bars")
    assert (one["window"], one["minus_window"]) == ([2, 2], [1, 1])
    assert one["confidence"] == pytest.approx(1.0 - 2e-9, abs=1e-15)
    assert abs(one["value"] - (0.6 - 0.3)) <= one["error_bar"] < 0.25
    assert abs(one["count"] - 600) <= one["count_bar"] < 500
    truths = ((0.3, 600), (-0.3, -600), (0.0, 0))
    for (share, count), (value, shown, bar, rows) in zip(truths, of_pages, strict=False):
        assert within(value, share, bar)
        assert within(shown, count, rows)
    assert price["privacy_loss"]["blocks"] in (0, 2)
    assert (one.get("useful") is None) is (aim is None)
    assert overlap["reason"]["message"].startswith("minus_window: it shares phases")


def test_a_source_says_where_the_key_is() -> None:
    source = TopicSource.read(SOURCE)
    paths = source.paths(universe_of_clicks(), ("user_id",))
    assert paths == {"page": ("page",), "user_id": ("id", "of")}
    with pytest.raises(Exception, match=r"fields.user_id: clicks has no such attribute"):
        source.paths(universe_of_clicks())
    constant = TopicSource.read({**SOURCE, "fields": {}, "constants": {"user_id": 1}})
    with pytest.raises(Exception, match=r"constants.user_id: it says whose row each is"):
        constant.paths(universe_of_clicks(), ("user_id",))


def test_rows_of_persons_are_never_only_counted() -> None:
    document = json.loads(off_source([b'{"page":"a","id":{"of":7}}'] * 5000))
    assert document.keys() >= {"columns"}
    assert document["columns"]["user_id"] == ["7"] * 5000


LONG = [b"x" * 100_000, b"\\u0001" * 64, b'\\"' * 64, "\u00e9".encode() * 5000, b"y" * 64, b""]


@pytest.mark.parametrize("key", LONG, ids=range(len(LONG)))
def test_as_many_rows_fit_whatever_key_they_have(key: bytes) -> None:
    universe, source = universe_of_clicks(), TopicSource.read(SOURCE)
    paths = source.paths(universe, ("user_id",))
    packing = Packing(source, universe, paths, keys=("user_id",))
    n_rows = packing.fitting(20_000)
    assert n_rows > 5000
    value = b'{"page":"a","id":{"of":"%s"}}' % key
    batch = off_source([value] * n_rows)
    assert len(batch) <= source_packing.MAX_BYTES
    longer = b'{"page":"a","id":{"of":"%s%s"}}' % (key, b"z" * 5000)
    assert row_of(document_of(longer), paths, ("user_id",)) != row_of(
        document_of(value), paths, "user_id"
    )
    endings = {
        str(
            row_of(document_of(b'{"id":{"of":"%s%s"}}' % (b"x" * 5000, end)), paths, ("user_id",))[
                1
            ]
        )
        for end in (b"1", b"2")
    }
    assert len(endings) == 2, "or long keys would be one person"


def test_whole_floats_beyond_what_a_float_tells_apart_stay_one_key() -> None:
    """What pandas has rounded is rounded; text and integers are not."""
    paths = {"user_id": ("id",)}
    exact = row_of(document_of(b'{"id":9007199254740993}'), paths, ("user_id",))
    assert exact == ["9007199254740993"]
    assert row_of(document_of(b'{"id":NaN}'), paths, ("user_id",)) == [None]
    assert math.isinf(
        float(str(row_of(document_of(b'{"id":1e999}'), paths, ("user_id",))[0] or "inf"))
    )
