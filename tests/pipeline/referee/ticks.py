"""P19: running totals count the rows that came by their tick, each once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from stream_dp.messages import Definition
from stream_dp.pipeline.intake.records import Record
from tests.pipeline.held import batch_name
from tests.pipeline.referee.evidence import definition_of, first_batches
from tests.pipeline.trail import Sent
from tests.pipeline.world import World

_FAR = 3.0
"""How many bars a count may lie off what it counts: noise never does."""


def ticks_hold(world: World) -> Iterator[str]:
    """P19: each tick is told once, with the rows that came by then, late ones included."""
    for name, held in world.durable().items():
        if held.definition is None or definition_of(held).running is None:
            continue
        definition, records = definition_of(held), first_batches(world).get(name, {})
        accepted: dict[str, str] = {}  # of each batch, when its period begins
        told: dict[tuple[str, int], bytes] = {}
        waiting: set[str] = set()
        for event in world.trail:
            if not isinstance(event, Sent) or event.outgoing.key != name:
                continue
            role, value = event.outgoing.role, event.outgoing.value
            said = json.loads(value) if role in ("events", "running") else {}
            if said.get("event") == "batch_accepted":
                since = min(waiting, default="") if said["late"] else said["since"]
                since = "" if "late_phase" in said else since
                waiting |= {since} - {""}
                accepted.setdefault(batch_name(said), since)
            elif said.get("event") == "phase_opened":
                waiting = {since for since in waiting if since >= said["until"]}
            elif role == "running":
                place = said["since"], said["tick"]
                if told.setdefault(place, value) != value:
                    yield f"P19: {name} has told tick {place} in two ways"
                came = [records[one] for one, since in accepted.items() if since == said["since"]]
                if said["tick"] < said["ticks"] and "T" in said["until"]:
                    until = datetime.fromisoformat(said["until"]).timestamp() * 1000
                    came = [record for record in came if record.timestamp_ms < until]
                yield from _compared(definition, said, came)


def _compared(definition: Definition, said: Mapping[str, Any], came: list[Record]) -> Iterator[str]:
    what = f"tick {said['tick']} of {said['since']} of {said['dataset']}"
    rows = [pair for record in came for pair in _rows(json.loads(record.value or b""))]
    n_rows = sum(n for _, n in rows)
    if said["rows"] != n_rows:
        yield f"P19: {what} says that {said['rows']} rows have come, and {n_rows} have"
    unit = definition.privacy.unit
    if unit is not None:
        seen: Counter[Any] = Counter()
        counted = []
        for row, n in rows:
            seen[row[unit.key]] += 1
            if row[unit.key] is not None and seen[row[unit.key]] <= unit.rows_per_phase:
                counted.append((row, n))
        rows = counted
    for tile in said["tiles"]:
        if tile.get("where"):
            attribute, value = tile["where"]["attribute"], tile["where"]["eq"]
            expected = [sum(n for row, n in rows if row.get(attribute) == value)]
        else:
            (by,) = tile["group_by"]
            of: Counter[Any] = Counter()
            for row, n in rows:
                of[row.get(by) if row.get(by) in tile["labels"][0] else "other"] += n
            expected = [of[label] for label in tile["labels"][0]]
        pairs = zip(tile["counts"], expected, strict=True)
        if any(abs(count - true) > _FAR * tile["count_bar"] for count, true in pairs):
            yield f"P19: {what} counts {tile['counts']} where {expected} rows have come"


def _rows(document: Mapping[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """The rows of a batch, each with how many it stands for."""
    if "columns" in document:
        columns = document["columns"]
        some = zip(*columns.values(), strict=True)
        return [(dict(zip(columns, row, strict=True)), 1) for row in some]
    if "cells" in document:
        return [(cell, cell["count"]) for cell in document["cells"]]
    return [(row, 1) for row in document["rows"]]
