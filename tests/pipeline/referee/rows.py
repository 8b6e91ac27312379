"""P3: the rows that are held are those of the accepted batches, each counted once.

``persons`` compares them where persons are protected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.slabs import Slab, SlabIndex, slabs_of
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import Definition
from stream_dp.state import private_names
from stream_dp.state.private_names import Named
from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import (
    cells_of,
    definition_of,
    every_block,
    first_batches,
    given_up_batches,
    schema_of,
)
from tests.pipeline.referee.periods import joined
from tests.pipeline.referee.persons import rows_of_persons_once, secret_of
from tests.pipeline.world import World


def rows_once(world: World) -> Iterator[str]:
    """P3: the cells and values that are kept are those of the accepted batches, each counted once."""
    for name, held in world.durable().items():
        if held.retired:
            continue
        if definition_of(held).erasure is not None:
            continue  # rows may be changed: ``lives`` follows them
        schema, places = schema_of(world, held), joined(world, name)
        universe = schema.rows_universe(len(held.spent))
        try:
            waiting = list(_waiting(world, held, universe))
        except LookupError as error:
            yield f"P3: {name} has no batch any more that waits: {error}"
            continue
        yield from _names_fit(world, held)
        blocks = every_block(world, name)
        if not all(blocks):
            yield f"P3: {name} has named a block that was never kept"
            continue
        if definition_of(held).privacy.unit is not None:
            yield from rows_of_persons_once(world, held, schema, waiting)
            continue
        found, values = cells_of(universe, waiting)
        for at, block in enumerate(blocks):
            rows_there, units_there = cells_of(schema.rows_universe(at), block)
            found += rows_there
            values += units_there
        expected: Counter[tuple[int, ...]] = Counter()
        sent: Counter[tuple[int, ...]] = Counter()
        told_of = [e for e in world.events("batch_accepted") if e["dataset"] == name]
        accepted = {batch_name(event) for event in told_of} - given_up_batches(world, name)
        for named, record in first_batches(world).get(name, {}).items():
            if named not in accepted:
                continue
            there = schema.rows_universe(places.get(named, len(held.spent)))
            rows = encoded(there, json.loads(record.value or b""))
            cells, units = cells_of(there, slabs_of(rows))
            expected += cells
            sent += units
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


def found_values_have_cells(world: World) -> Iterator[str]:
    """P18: rows are in the cells of the values that were found up to their phase, all others in ``other``."""
    for name, held in world.durable().items():
        definition = definition_of(held)
        if held.retired or not definition.finds or definition.privacy.unit is not None:
            continue
        newest = Definition.read(json.loads(world.left("catalog", name)[-1].value))
        places = joined(world, name)
        told = {named for event in world.events("batch_accepted") if (named := batch_name(event))}
        for at, one in enumerate(newest.attributes):
            if one.type != "category" or one.find is None:
                continue
            known = list(definition.attributes[at].values)
            left = iter(one.values[len(known) :])
            for phase in range(1, len(held.spent) + 1):
                for event in world.events("values_found"):
                    if (event["dataset"], event["phase"]) == (name, phase):
                        known += islice(left, event["values"])
                said = Counter(
                    value
                    for named, record in first_batches(world).get(name, {}).items()
                    if named in told and places.get(named) == phase - 1
                    for value in _said(json.loads(record.value or b""), one.names)
                )
                expected = [said.pop(value, 0) for value in known]
                slabs = [held.parts(found) for found in held.named(f"found {phase} ").values()]
                if any(parts is None for parts in slabs):
                    continue  # lost, or erased
                codes = [Slab.of_stored(parts).columns[str(at)] for parts in slabs if parts]
                cells = np.bincount(np.concatenate(codes), minlength=one.find.most + 1)
                if cells[: len(known)].tolist() != expected:
                    yield f"P18: rows of phase {phase} of {name} are in other cells than they say"
                if cells[one.find.most] != said.total():
                    yield f"P18: other rows of phase {phase} of {name} are not told from it"


def _said(document: Any, names: Sequence[str]) -> list[str]:
    """What the rows of a batch say of an attribute, which has one of these names there."""
    if "columns" in document:
        column = next(document["columns"][name] for name in names if name in document["columns"])
    else:
        column = [next(row[name] for name in names if name in row) for row in document["rows"]]
    return list(map(str, column))


def encoded(universe: Universe, document: Any, persons: Persons | None = None) -> Rows:
    """The rows of a batch."""
    if "cells" in document:
        return universe.encode_cells(document["cells"])
    if "rows" in document:
        return universe.encode_rows(document["rows"], persons)
    return universe.encode_columns(document["columns"], persons)


def _waiting(world: World, held: Held, universe: Universe) -> Iterator[Slab]:
    """The rows that wait, in order: those that are kept as slabs, then each batch from where it is.

    What was lost since may be in Redis, or in memory. It waits until a commit gives it up.

    Raises:
        LookupError: A batch is not where it is said to be.
    """
    unit, ever = definition_of(held).privacy.unit, dict(world.kept_log)
    named = held.named("whose ").items()  # those of lots, by the numbers of these
    whose = {tuple(map(int, key.split()))[1:]: one for key, one in named}
    owners = [whose[key] for key in sorted(whose)]
    for where in held.waits:
        if isinstance(where, Named):
            slab = Slab.of_stored(ever[f"{held.name}/{where.name.hex()}".encode()])
            if unit:
                of_whom = Slab.of_stored(ever[f"{held.name}/{owners.pop(0).name.hex()}".encode()])
                slab = replace(slab, columns={**slab.columns, **of_whom.columns})
            yield slab
            continue
        record = world.log[where.topic_partition][where.offset]
        document = json.loads(record.value or b"")
        if (document["dataset"], batch_name(document)) != (held.name, where.batch_id):
            raise LookupError(where.batch_id)
        persons = Persons(unit.key, secret_of(world, held), where.batch_id) if unit else None
        rows = encoded(universe, document, persons)
        if rows.n_rows != where.rows:
            raise LookupError(f"{where.batch_id} has {rows.n_rows} rows, and not {where.rows}")
        yield from slabs_of(rows, more=None if rows.whose is None else rows.whose.columns)


def _names_fit(world: World, held: Held) -> Iterator[str]:
    for what, named in held.named().items():
        stored = held.parts(named)
        if stored is not None and not _is_whole(stored, named):
            yield f"P3: {held.name} has another {what} than the one that was named"


def _is_whole(parts: Sequence[bytes], named: Named) -> bool:
    if private_names.name_of(parts[0]) != named.name:
        return False
    if len(parts) == 1:
        return True
    index = SlabIndex.from_bytes(parts[0])
    return all(index.has(at, part) for at, part in enumerate(parts[1:], 1))
