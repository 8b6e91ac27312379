"""What the promises are judged by: the journal, the records that came in, and the commits that count."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState
from stream_dp.messages import Definition
from stream_dp.pipeline.intake.records import Record
from stream_dp.state.private_names import Named, unsalted
from stream_dp.state.schema import StateTable
from tests.pipeline.held import Held, Said, batch_name
from tests.pipeline.trail import Committed, Looked, Sent
from tests.pipeline.world import World


def history(world: World) -> Iterator[Sent | Committed | Looked]:
    """The trail without the commits that are void, and with what the others say."""
    counts = {
        (one.partition, one.offset): said
        for held in world.durable().values()
        for one, said in zip(held.valid, held.said, strict=True)
    }
    for event in world.trail:
        if not isinstance(event, Committed):
            yield event
        elif event.place in counts:
            yield replace(event, said=counts[event.place])


def commits_by_then(world: World, event: Sent) -> list[Said]:
    """The commits that counted, of the data set that a record is about, when it left."""
    name, _ = event.commit
    held = world.durable().get(name)
    if held is None:
        return []
    # Whether one counts follows from entries before it alone.
    end = event.journal[held.valid[0].partition]
    return held.said[: bisect_left(held.valid, end, key=lambda one: one.offset)]


def records_of(world: World, name: str) -> Iterator[Record]:
    """The records that name a data set."""
    for record in (record for records in world.log.values() for record in records):
        if (parsed(record) or {}).get("dataset") == name:
            yield record


def parsed(record: Record) -> dict[str, Any] | None:
    try:
        document = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def asked_in(document: Mapping[str, Any]) -> list[Any]:
    """What gets a reply of its own: each query, or a quote for several of them together."""
    if document.get("quote") == "together" and "queries" in document:
        return [document]
    return list(document.get("queries", [document]))


def id_of(item: Any) -> str | None:
    query_id = item.get("query_id") if isinstance(item, dict) else None
    valid = isinstance(query_id, str) and re.fullmatch(r"[\x21-\x7e]{1,128}", query_id)
    return query_id if valid else None


def first_batches(world: World) -> dict[str, dict[str, Record]]:
    """The first record of each batch that was not rejected, by data set and name of the batch.

    Of a producer that counts its batches, a number that was refused is used again: the first record that was
    not refused has it.
    """
    rejected = world.rejections()
    found: dict[str, dict[str, Record]] = defaultdict(dict)
    for topic_partition, records in world.log.items():
        if not topic_partition.startswith("in.batches:"):
            continue
        for record in records:
            if (record.topic, record.partition, record.offset) in rejected:
                continue
            document = parsed(record) or {}
            named = batch_name(document) if "unreadable" not in document else ""
            if named and not ("producer" in document and _is_broken(document)):
                found[document["dataset"]].setdefault(named, record)
    return found


def _is_broken(document: Mapping[str, Any]) -> bool:
    """Whether a batch is refused whatever its data set is: the scenarios leave columns out."""
    return "columns" in document and len(document["columns"]) < 2


def given_up_batches(world: World, name: str) -> set[str]:
    """The batches that waited, are on their topic no more, and were given up by a commit."""
    return set[str]().union(*given_up_by_commit(world, name).values())


def given_up_by_commit(world: World, name: str) -> dict[int, set[str]]:
    """Number of a commit -> the batches that it gave up. One that is there was not to be given up."""
    found: dict[int, set[str]] = {}
    for one in world.held(name).said:
        lost = {
            batch
            for batch, record_id, named in one.given_up
            if (record_id in world.expired if named is None else was_lost(world, name, named))
        }
        if lost:
            found[one.number] = lost
    return found


def was_lost(world: World, name: str, named: Named) -> bool:
    """Whether a private value is gone, and no worker has erased it."""
    key = _key(name, named)
    return key not in world.kept and key not in world.dropped


def _key(name: str, named: Named) -> bytes:
    return f"{name}/{named.name.hex()}".encode()


def every_block(world: World, name: str, universe: Universe) -> list[bytes]:
    """The blocks of all phases in order, as they were when they were sealed, also if they are erased."""
    found: dict[int, bytes] = {}
    ever = dict(world.kept_log)
    for one in world.held(name).said:
        put = {
            key.decode(): Named.from_bytes(value)
            for (table, key), value in one.puts.items()
            if table is StateTable.KEPT and value is not None
        }
        # One that is sealed and erased in the same commit is named as one to be erased, with other things.
        erased = [n for what, n in put.items() if what.startswith("gone ")]
        stored = (unsalted(ever.get(_key(name, n), b"")) for n in erased)
        others = (block for block in stored if _is_block(universe, block))
        for phase in one.phases:
            named = put.get(f"block {phase}")
            found[phase] = (
                next(others, b"") if named is None else unsalted(ever.get(_key(name, named), b""))
            )
    return [found[phase] for phase in sorted(found)]


def _is_block(universe: Universe, stored: bytes) -> bool:
    try:
        Block.from_bytes(universe, stored)
    except (CorruptState, ValueError):
        return False
    return True


def definition_of(held: Held) -> Any:
    return Definition.read(json.loads(held.definition or b""))


def grows(said: Said) -> bool:
    return any(look.get("reason") == "growth" for look in said.looks)
