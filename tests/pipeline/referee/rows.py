"""P3: the rows that are held are those of the accepted batches, each counted once.

``persons`` compares them where persons are protected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stream_dp.core.blocks import Block
from stream_dp.core.universe import Rows
from stream_dp.profiles.building import build
from stream_dp.state.store import Snapshot
from tests.pipeline.referee.evidence import (
    batch_name,
    definition_of,
    every_block,
    first_batches,
    given_up_batches,
)
from tests.pipeline.referee.persons import rows_of_persons_once
from tests.pipeline.world import World


def rows_once(world: World) -> Iterator[str]:
    """P3: the cells and values in the store are those of the accepted batches, each counted once."""
    for name, held in world.store._datasets.items():
        if held.definition is None or held.retired:
            continue
        snapshot = _snapshot(world, name)
        universe, _ = build(definition_of(snapshot))
        if definition_of(snapshot).privacy.unit is not None:
            yield from rows_of_persons_once(world, name, snapshot)
            continue
        found: Counter[tuple[int, ...]] = Counter()
        values: Counter[tuple[int, ...]] = Counter()
        for stored in every_block(world, name):
            block = Block.from_bytes(universe, stored)
            found += _histogram(block.codes, block.counts)
            for totals in block.totals.values():
                values += _histogram(block.codes, totals)
        for stored in snapshot.pending:
            rows = Rows.from_bytes(universe, stored)
            found += _histogram(rows.codes, rows.entry_counts)
            values += _values(rows)
        expected: Counter[tuple[int, ...]] = Counter()
        sent: Counter[tuple[int, ...]] = Counter()
        told_of = [e for e in world.events("batch_accepted") if e["dataset"] == name]
        accepted = {batch_name(event) for event in told_of} - given_up_batches(world, name)
        for named, record in first_batches(world).get(name, {}).items():
            document = json.loads(record.value or b"")
            if named not in accepted:
                continue
            rows = (
                universe.encode_cells(document["cells"])
                if "cells" in document
                else universe.encode_rows(document["rows"])
                if "rows" in document
                else universe.encode_columns(document["columns"])
            )
            expected += _histogram(rows.codes, rows.entry_counts)
            sent += _values(rows)
        if found != expected:
            yield f"P3: {name} holds {found.total()} rows and accepted {expected.total()}"
        if values != sent:
            yield f"P3: {name} holds {values.total()} units and accepted {sent.total()}"
        opened = [e for e in world.events("phase_opened") if e["dataset"] == name]
        told = [event["phase"] for event in told_of]
        if [e["phase"] for e in opened] != list(range(1, len(held.spent) + 1)):
            yield f"P3: {name} has {len(held.spent)} phases and announced {len(opened)}"
        if max(told, default=0) > len(held.spent):
            yield f"P3: {name} has {len(held.spent)} phases and told a producer of {max(told)}"


def _values(rows: Rows) -> Counter[tuple[int, ...]]:
    """What the rows of each cell count for together, in units above the lower ends."""
    values: Counter[tuple[int, ...]] = Counter()
    for offsets in rows.measures.values():
        values += _histogram(rows.codes, offsets.astype("int64") * rows.entry_counts)
    return values


def _histogram(codes: Sequence[Any], counts: Any) -> Counter[tuple[int, ...]]:
    """Rows of each cell, in Python's own integers."""
    cells: Counter[tuple[int, ...]] = Counter()
    for *cell, count in zip(*(column.tolist() for column in codes), counts.tolist(), strict=True):
        cells[tuple(cell)] += count
    return +cells


def _snapshot(world: World, name: str) -> Snapshot:
    held = world.held(name)
    return Snapshot(
        dataset=name,
        token=held.token,
        seq=held.seq,
        head=held.head,
        trail=held.trail,
        definition=held.definition,
        meta=held.meta,
        cursor=held.cursor,
        pending=tuple(held.pending),
        n_blocks=len(held.blocks),
        vault=held.vault,
        spent=tuple(held.spent),
        transcript=tuple(held.transcript),
        verified=held.verified,
        intents=held.intents,
        outbox=(),
    )
