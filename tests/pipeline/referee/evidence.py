"""What the promises are judged by: the journal, the records that came in, and the commits that count."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.slabs import Slab
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import ChangeSchema, Definition
from stream_dp.pipeline.intake.records import Record
from stream_dp.profiles.builder import declared_in
from stream_dp.state.private_names import Named
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


def every_block(world: World, name: str) -> list[list[Slab]]:
    """The slabs of all phases in order, as they were when they were sealed, also if they are erased.

    Each with all its columns. Those of a phase of which one was never kept are empty.
    """
    found: dict[int, list[Slab]] = {}
    kept, before = _Kept(world, name), set[bytes]()
    for one in world.held(name).said:
        put = {
            key.decode(): Named.from_bytes(value)
            for (table, key), value in one.puts.items()
            if table is StateTable.KEPT and value is not None
        }
        # One that is sealed and erased in the same commit is named as one to be erased, with other things.
        blocks, weights = (
            iter(
                kept.in_order(
                    named
                    for what, named in put.items()
                    if what.startswith(f"gone {kind} ") and named.name not in before
                )
            )
            for kind in ("block", "weight")
        )
        sizes = {event["phase"]: event["rows"] for event in one.events("phase_opened")}
        sizes |= {phase: n_rows for phase, n_rows in one.late.items() if n_rows}
        for phase in sorted(sizes):
            named = [it for it in _numbered(put, f"block {phase} ") if it.name not in before]
            slabs = kept.slabs(named) if named else kept.slabs(blocks, sizes[phase])
            of_each = [it for it in _numbered(put, f"weight {phase} ") if it.name not in before]
            more = kept.weighed(slabs, iter(of_each) if named else weights)
            found[phase] = [*found.get(phase, ()), *more]
        before |= {
            named.name
            for what, named in put.items()
            if what.startswith(("block ", "weight ", "gone "))
        }
    return [found[phase] for phase in sorted(found)]


def _numbered(put: Mapping[str, Named], start: str) -> list[Named]:
    """The values whose purpose begins so, in the order of the numbers behind that."""
    found = {int(w.removeprefix(start)): named for w, named in put.items() if w.startswith(start)}
    return [found[at] for at in sorted(found)]


class _Kept:
    """All that was ever kept of a data set."""

    def __init__(self, world: World, name: str) -> None:
        self._name, self._ever = name, dict(world.kept_log)
        self._order = {key: at for at, (key, _) in enumerate(world.kept_log)}
        self._of_persons = definition_of(world.held(name)).privacy.unit is not None

    def in_order(self, named: Iterable[Named]) -> list[Named]:
        """Values in the order in which they were kept."""
        return sorted(named, key=lambda one: self._order.get(_key(self._name, one), -1))

    def slabs(self, named: Iterable[Named], n_rows: float = math.inf) -> list[Slab]:
        """Slabs, as many of the first ones as have so many rows; none if one of them was never kept."""
        found: list[Slab] = []
        for one in named:
            parts = self._ever.get(_key(self._name, one))
            if parts is None:
                return []
            found.append(Slab.of_stored(parts))
            if sum(slab.n_rows for slab in found) >= n_rows:
                break
        return found

    def weighed(self, slabs: list[Slab], weights: Iterator[Named]) -> list[Slab]:
        """Slabs with their weights, which those of lots have beside them."""
        found: list[Slab] = []
        for slab in slabs:
            whole = slab
            if self._of_persons and not {"weight", "row 0"} & slab.columns.keys():
                weight = next(weights, None)
                parts = None if weight is None else self._ever.get(_key(self._name, weight))
                if parts is None:
                    return []
                columns = {**slab.columns, **Slab.of_stored(parts).columns}
                whole = replace(slab, columns=columns)
            found.append(whole)
        return found


Cells = Counter[tuple[int, ...]]


def schema_of(world: World, held: Held) -> Schema:
    """The attributes of a data set, version by version, by the changes that were accepted."""
    definition = definition_of(held)
    found: dict[str, tuple[str, ...]] = {}
    if (
        definition.finds
    ):  # in the end: what cells their rows are in is compared by test_found_values
        newest = Definition.read(json.loads(world.left("catalog", held.name)[-1].value))
        found = {
            name: one.values
            for one in newest.attributes
            if one.type == "category" and one.find
            for name in one.names
        }
    definition = definition.with_found(found)
    schema = Schema.of(declared_in(definition))
    sent = {
        document["schema_version"]: document
        for topic_partition, records in world.log.items()
        if topic_partition.startswith("in.datasets:")
        for record in reversed(records)
        if (document := parsed(record) or {}).get("change") == "schema"
        and document.get("dataset") == held.name
        and (record.topic, record.partition, record.offset) not in world.rejections()
    }
    first = {
        event["schema_version"]: event["phase"]
        for event in world.events("schema_changed")
        if event["dataset"] == held.name
    }
    for version in sorted(first):
        change = ChangeSchema.read(sent[version])
        definition = definition.changed(change, first[version]).with_found(found)
        schema = schema.changed(declared_in(definition), first[version] - 1)
    return schema


def cells_of(universe: Universe, slabs: Iterable[Slab]) -> tuple[Cells, Cells]:
    """The rows of each cell that count, and what they count for together, in Python's own integers.

    A cell begins with the numbers of its attributes, so that cells of several versions differ.
    """
    rows, values = Cells(), Cells()
    indices = sorted(universe.in_force)
    shape = [universe.shape[at] for at in indices]
    for slab in slabs:
        of = {name: column.tolist() for name, column in slab.columns.items()}
        merged = "row 0" in of
        for at in universe.found:  # the cells of values that are found: see test_found_values
            of[str(at)] = [0] * slab.n_slots
        for slot in range(slab.n_slots):
            if merged:
                cell = *indices, *map(int, np.unravel_index(slot, shape))
                n_rows = of["row 0"][slot] + (of["row 1"][slot] << 32)
            else:
                cell = *indices, *(of[str(at)][slot] for at in indices)
                n_rows = of["entry 0"][slot] + (of["entry 1"][slot] << 32) if "entry 0" in of else 1
                n_rows *= of["weight"][slot] if "weight" in of else 1
            rows[cell] += n_rows
            for measured in universe.measured:
                if merged:
                    low, high = (of[f"sum {measured} {place}"][slot] for place in (0, 1))
                    values[cell] += low + (high << 32)
                else:
                    values[cell] += n_rows * of[f"value {measured}"][slot]
    return +rows, +values


def contents_of(slabs: Iterable[Slab]) -> Cells:
    """How often each slot is there, by all of its columns: in whatever order slots are."""
    found = Cells()
    for slab in slabs:
        found.update(
            zip(*(slab.columns[name].tolist() for name in sorted(slab.columns)), strict=True)
        )
    return found


def definition_of(held: Held) -> Any:
    return Definition.read(json.loads(held.definition or b""))


def grows(said: Said) -> bool:
    return any(look.get("reason") == "growth" for look in said.looks)
