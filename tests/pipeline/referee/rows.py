"""P3: the rows that are held are those of the accepted batches, each counted once.

``persons`` compares them where persons are protected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import Rows, Universe
from stream_dp.profiles.builder import build
from stream_dp.state import private_names
from stream_dp.state.private_names import Named, unsalted
from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import (
    definition_of,
    every_block,
    first_batches,
    given_up_batches,
)
from tests.pipeline.referee.persons import rows_of_persons_once, secret_of
from tests.pipeline.world import World


def rows_once(world: World) -> Iterator[str]:
    """P3: the cells and values that are kept are those of the accepted batches, each counted once."""
    for name, held in world.durable().items():
        if held.retired:
            continue
        universe, _ = build(definition_of(held))
        try:
            waiting = list(_waiting(world, held, universe))
        except LookupError as error:
            yield f"P3: {name} has no batch any more that waits: {error}"
            continue
        yield from _names_fit(world, held)
        blocks = every_block(world, name, universe)
        if not all(blocks):
            yield f"P3: {name} has named a block that was never kept"
            continue
        if definition_of(held).privacy.unit is not None:
            yield from rows_of_persons_once(world, held, universe, waiting)
            continue
        found: Counter[tuple[int, ...]] = Counter()
        values: Counter[tuple[int, ...]] = Counter()
        for stored in blocks:
            block = Block.from_bytes(universe, stored)
            found += _histogram(block.codes, block.counts)
            for totals in block.totals.values():
                values += _histogram(block.codes, totals)
        for rows in waiting:
            found += _histogram(rows.codes, rows.entry_counts)
            values += _values(rows)
        expected: Counter[tuple[int, ...]] = Counter()
        sent: Counter[tuple[int, ...]] = Counter()
        told_of = [e for e in world.events("batch_accepted") if e["dataset"] == name]
        accepted = {batch_name(event) for event in told_of} - given_up_batches(world, name)
        for named, record in first_batches(world).get(name, {}).items():
            if named not in accepted:
                continue
            rows = encoded(universe, json.loads(record.value or b""))
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


def encoded(universe: Universe, document: Any, persons: Persons | None = None) -> Rows:
    """The rows of a batch."""
    if "cells" in document:
        return universe.encode_cells(document["cells"])
    if "rows" in document:
        return universe.encode_rows(document["rows"], persons)
    return universe.encode_columns(document["columns"], persons)


def _waiting(world: World, held: Held, universe: Universe) -> Iterator[Rows]:
    """The rows that wait, in order: each batch from where it is, and those that are kept by themselves.

    What was lost since may be in Redis, or in memory. It waits until a commit gives it up.

    Raises:
        LookupError: A batch is not where it is said to be.
    """
    unit, ever = definition_of(held).privacy.unit, dict(world.kept_log)
    for where in held.waits:
        if isinstance(where, Named):
            stored = ever[f"{held.name}/{where.name.hex()}".encode()]
            yield Rows.from_bytes(universe, unsalted(stored))
            continue
        record = world.log[where.topic_partition][where.offset]
        document = json.loads(record.value or b"")
        if (document["dataset"], batch_name(document)) != (held.name, where.batch_id):
            raise LookupError(where.batch_id)
        persons = Persons(unit.key, secret_of(world, held), where.batch_id) if unit else None
        rows = encoded(universe, document, persons)
        if rows.n_rows != where.rows:
            raise LookupError(f"{where.batch_id} has {rows.n_rows} rows, and not {where.rows}")
        yield rows


def _names_fit(world: World, held: Held) -> Iterator[str]:
    for what, named in held.named().items():
        stored = world.kept.get(f"{held.name}/{named.name.hex()}".encode())
        if stored is not None and private_names.name_of(stored) != named.name:
            yield f"P3: {held.name} has another {what} than the one that was named"


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
