"""Where something of one person still is, by all that is kept of a data set."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stream_dp.errors import InvalidInput, WrongStore
from stream_dp.pipeline.intake.decoder import ARROW
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair.person_traces import PersonSearch, PersonTrace, sought
from stream_dp.pipeline.rows.slab_files import SlabFiles, SlabPlace
from tests.local_logs import LocalLog
from tests.pipeline import commands
from tests.pipeline.test_erasure import SHOP, dataset, rows, sent, shop, swept

KEPT, ERASED = "kept", "erased"


def batches(world: Any) -> LocalLog:
    """The batches that were not deleted."""
    log = LocalLog(world.partitions)
    for partition, entries in enumerate(commands.inputs(world)["batches"].entries):
        records = world.log[f"in.batches:{partition}"]
        log.entries[partition] = [
            LogEntry(b"", b"") if record.record_id in world.expired else entry
            for record, entry in zip(records, entries, strict=True)
        ]
    return log


async def kept_apart(world: Any, process: Any) -> None:
    """Rows that wait are kept as slabs, and Redis has them."""
    await dataset(world).keep_waiting(math.inf)
    process.worker.releaser.gathered.append(dataset(world).draft.collect())
    await process.worker.releaser.hand_over()
    await process.settled()


async def found(
    world: Any, key: str = "C-3", files: SlabFiles | None = None, **changes: Any
) -> set[tuple[str, str, int, str]]:
    """What is found of a person: the place without its number, what it is, the slots and the state."""
    secret = dataset(world).rows.waiting.secret
    changes = {"inputs": {"batches": batches(world)}, **changes}
    tools = commands.offline(world, **changes)
    search = PersonSearch(tools, "shop", sought(key, "customer", secret))
    await search.begin(files)
    await search.in_redis()
    await search.on_blocks()
    await search.on_batches()
    if files is not None:
        search.in_files(files, iter)
    assert min(search.read.values()) >= 0
    return {
        (place.partition(":")[0].partition(" ")[0], what, slots, state)
        for place, what, slots, state in search.traces
    }


async def test_a_person_is_found_in_blocks_and_waiting_rows_and_nowhere_once_erased(
    world: Any,
) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await sent(world, process, "second", columns=rows(*range(100), 3, start=5000))
    await kept_apart(world, process)
    before = {
        ("blocks", "rows of phase 1", 1, KEPT),
        ("blocks", "rows that wait", 2, KEPT),
        ("Redis", "rows that wait", 2, KEPT),
        ("batches", "rows of batch first", 1, "batch"),
        ("batches", "rows of batch second", 2, "batch"),
    }
    assert await found(world) == before
    assert await found(world, "C-1200") == set(), "nobody else is told of"
    await sent(world, process, "gone", erase=["C-3", None, "C-3"])
    asked = ("batches", "a request to erase, batch gone", 2, "batch")
    assert await found(world) == before | {asked}
    await swept(world, process)
    await process.worker.tidy()
    await process.settled()
    after = await found(world)
    assert after == {
        ("blocks", "a value that no commit names", 1, ERASED),
        ("blocks", "a value that no commit names", 2, ERASED),
    }, "until the topic is compacted"
    world.kept_log = [one for one in world.kept_log if one[0] in world.kept]
    assert await found(world) == set()
    assert await found(world, "C-4") != set(), "others stay"


async def test_a_value_that_no_commit_names_and_one_that_is_about_to_be_erased_are_told_apart(
    world: Any,
) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await process.settled()
    (key, parts) = next(
        (key, parts) for key, parts in world.kept_log[::-1] if len(parts) == 6
    )  # a slab of owners: the index, three words and two
    for state, name in (("unnamed", b"\1" * 16), ("behind", b"\2" * 16)):
        if state == "unnamed":
            world.put(0, b"shop/%b" % name.hex().encode(), parts)
        else:
            values = world.view.values["shop"]
            values |= {name: parts[0]}
            values |= {name + at.to_bytes(4): part for at, part in enumerate(parts[1:], 1)}
    assert key in world.kept
    assert await found(world) == {
        ("blocks", "rows of phase 1", 1, KEPT),
        ("blocks", "a value that no commit names", 1, "unnamed"),
        ("Redis", "a value that no commit names", 1, "behind"),
        ("batches", "rows of batch first", 1, "batch"),
    }


async def test_columns_whose_index_has_left_the_topic_are_found_if_they_are_plain(
    world: Any,
) -> None:
    process = await shop(world, first=rows(*range(100)))
    await kept_apart(world, process)
    blocks = commands.blocks(world)
    for entries in blocks.entries:
        entries[:] = [
            LogEntry(b"/", b"") if entry.key.endswith(b"/0") else entry for entry in entries
        ]
    whole = await found(world, inputs={"batches": LocalLog(2)})
    assert await found(world, blocks=blocks, inputs={"batches": LocalLog(2)}) == whole
    assert ("blocks", "rows that wait", 1, KEPT) in whole


async def test_a_value_that_a_dying_worker_has_put_in_part_is_found_by_two_words(
    world: Any,
) -> None:
    process = await shop(world, first=rows(*range(1200)))
    await process.settled()
    blocks, parts = commands.blocks(world), [b"/1", b"/2", b"/3"]
    for left_out, slots in ((parts[:1], 1), (parts[2:], 1), (parts[:2], 0)):
        log = LocalLog(world.partitions)
        log.entries = [
            [entry for entry in entries if entry.key[-2:] not in left_out]
            for entries in blocks.entries
        ]
        there = await found(world, blocks=log, inputs={"batches": LocalLog(2)})
        assert there == ({("blocks", "rows of phase 1", 1, KEPT)} if slots else set())


async def test_what_a_person_has_used_for_life_and_what_rows_say_are_found(world: Any) -> None:
    unit = {"key": "customer", "rows_per_phase": 2, "phases": 4, "lifetime": True}
    pages = {"name": "page", "type": "category", "find": {"windows": [1, 2], "share": 0.3}}
    process = await shop(
        world,
        privacy={**SHOP["privacy"], "unit": unit},
        attributes=[pages, SHOP["attributes"][1]],
    )
    await sent(world, process, "first", columns=rows(*range(1200)))
    await process.settled()
    on_blocks = {one[1:] for one in await found(world) if one[0] == "blocks"}
    assert on_blocks == {
        ("rows of phase 1", 1, KEPT),
        ("what rows of phase 1 say of found values", 1, KEPT),
        ("what the person has used for life", 1, "for life"),
    }


async def test_every_form_of_a_batch_is_read_and_one_that_is_refused_too(world: Any) -> None:
    process = await shop(world)
    columns = rows(17, 18)
    columns["customer"] = [17, 18]
    listed = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    await sent(world, process, "rows", rows=[*listed, "no row"])
    await sent(world, process, "columns", columns={**columns, "customer": [17.0, None]})
    correct = [{"person": "17", "row": "o-0", "erase": True}, None, 17]
    world.batch("shop", "fix", correct=correct)
    sink = pa.BufferOutputStream()
    table = pa.table({**columns, "customer": pa.array(["17", "17"]).dictionary_encode()})
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    headers = {"content-type": ARROW.encode(), "batch_id": b"arrow"}
    world.produce("batches", sink.getvalue().to_pybytes(), key="shop", headers=headers)
    world.produce("batches", b'{"customer": "17", ', key="shop")
    world.produce("batches", b"17", key="other")
    await process.run()
    assert {one for one in await found(world, " 17 ") if one[0] == "batches"} == {
        ("batches", "rows of batch rows", 1, "batch"),
        ("batches", "rows of batch columns", 1, "batch"),
        ("batches", "a request to correct, batch fix", 1, "batch"),
        ("batches", "rows of batch arrow", 2, "batch"),
        ("batches", "a record that cannot be read", 1, "batch"),
    }


async def test_files_are_read_and_another_store_is_no_proof(world: Any, tmp_path: Path) -> None:
    place = SlabPlace((tmp_path / "rows").as_uri())
    files = SlabFiles.opened(place)
    world.rules = {"files": files}
    process = await shop(world, first=rows(*range(1200)))
    await process.settled()
    assert await found(world, files=files) == {
        ("file", "rows of phase 1", 1, KEPT),
        ("batches", "rows of batch first", 1, "batch"),
    }
    with pytest.raises(WrongStore):
        await found(world)
    with pytest.raises(WrongStore):
        await found(world, files=SlabFiles.opened(SlabPlace((tmp_path / "other").as_uri())))
    await sent(world, process, "gone", erase=["C-3"])
    await swept(world, process)
    await process.worker.tidy()
    await process.settled()
    assert await found(world, files=files) == set()


async def test_of_a_retired_data_set_nothing_is_found(world: Any) -> None:
    process = await shop(world, first=rows(*range(1200)))
    secret = dataset(world).rows.waiting.secret
    world.produce("datasets", None, key="shop")
    await process.run()
    await process.settled()
    world.expire()
    tools = commands.offline(world, inputs={"batches": batches(world)})
    search = PersonSearch(tools, "shop", sought("C-3", "customer", secret))
    await search.begin(None)
    await search.on_blocks()
    await search.on_batches()
    assert {trace.state for trace in search.traces} == {ERASED}
    assert all(isinstance(trace, PersonTrace) for trace in search.traces)


def test_an_empty_key_is_nobody() -> None:
    with pytest.raises(InvalidInput, match="--key: it is empty"):
        sought("  ", "customer", bytes(32))


async def test_a_data_set_that_is_not_there_is_said(world: Any) -> None:
    process = await shop(world)
    await process.settled()
    search = PersonSearch(commands.offline(world), "shpo", sought("C-3", "customer", bytes(32)))
    with pytest.raises(InvalidInput, match="there is no data set 'shpo'"):
        await search.begin(None)
