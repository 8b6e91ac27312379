"""P15: no person uses more than is allowed for life, and what persons have used is not forgotten."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.attributes import Attribute, Boolean, Number
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons, PersonSecret
from stream_dp.core.rows.slabs import Slab, slabs_of
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import UnitSpec
from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import (
    cells_of,
    contents_of,
    definition_of,
    every_block,
    first_batches,
    given_up_batches,
)
from tests.pipeline.referee.periods import Periods, calendar_of
from tests.pipeline.world import World


def rows_of_persons_once(
    world: World, held: Held, schema: Schema, waiting: Sequence[Slab]
) -> Iterator[str]:
    """P3 where persons are protected: the blocks are those of the accepted batches in order, slot for slot.

    Which rows count is decided here once more, row by row, from the log and the secret in the vault. P15:
    what persons have used for life, by what is kept, is what counts, and no more than is allowed.
    """
    name, unit = held.name, definition_of(held).privacy.unit
    secret = secret_of(world, held)
    records = first_batches(world).get(name, {})
    (*sealed, left), late = _batches_of_phases(world, name)
    used: Counter[bytes] = Counter()
    every = (*sealed, left, *late.values())
    unknown = [named for batches in every for named in batches if named not in records]
    if unknown:
        yield f"P3: {name} has accepted {unknown}, whose records were rejected"
        return

    def rows_of(batches: Iterable[str], phase: int) -> list[Rows]:
        found, universe = [], schema.rows_universe(phase)
        for named in batches:
            document = json.loads(records[named].value or b"")
            persons = Persons(unit.key, secret, named)
            found.append(
                universe.encode_rows(document["rows"], persons)
                if "rows" in document
                else universe.encode_columns(document["columns"], persons)
            )
        return found

    blocks: list[list[Slab]] = []
    for phase, batches in enumerate(sealed):
        so_far: Counter[bytes] = Counter()
        blocks.append([])
        for some in (batches, late.get(phase + 1, ())):
            if some:
                rows = Rows.concat(rows_of(some, phase))
                rows = folded_row_by_row(rows, schema.rows_universe(phase))
                weight = counted_row_by_row(rows, unit, used, so_far).astype(np.uint8)
                blocks[-1] += slabs_of(rows, more={"weight": weight})
    kept = every_block(world, name)
    held_cells, cells = (
        [cells_of(schema.rows_universe(phase), block) for phase, block in enumerate(found)]
        for found in (kept, blocks)
    )
    if held_cells != cells:
        yield f"P3: {name} holds other blocks than those of its {len(blocks)} phases"
    for block, found in zip(blocks, kept, strict=False):
        apart = all("weight" in slab.columns for slab in found)
        if apart and contents_of(block) != contents_of(found):
            yield f"P3: {name} holds other rows that do not count than those of its phases"
    left_rows = [rows for rows in rows_of(left, len(sealed)) if rows.whose is not None]
    wait = chain.from_iterable(slabs_of(rows, more=_whose(rows)) for rows in left_rows)
    if contents_of(wait) != contents_of(waiting):
        yield f"P3: {name} holds other rows than the {len(left)} batches that wait"
    if unit.lifetime:
        units = units_of(held)
        if used - units:
            yield f"P15: {name} has forgotten what {len(used - units)} persons have used for life"
        if max(units.values(), default=0) > unit.phases * unit.rows_per_phase**2:
            yield f"P15: a person has used more of {name} than is allowed for life"


def folded_row_by_row(rows: Rows, universe: Universe) -> Rows:
    """The rows of each person as one record: worked out person by person, in Python's own numbers."""
    assert rows.whose is not None, "the rows are those of persons"
    slots: defaultdict[bytes, list[int]] = defaultdict(list)
    for slot, digest in enumerate(rows.whose.digests):
        if digest.any():
            slots[digest.tobytes()].append(slot)
    codes = [column.copy() for column in rows.codes]
    measures = {at: units.copy() for at, units in rows.measures.items()}
    for at, attribute in universe.folded.items():
        if attribute.fold == "since":
            continue  # see ``lives``
        units = measures.get(at, np.zeros(rows.n_entries, np.uint32))
        for some in slots.values():
            said = [(int(_said(universe, rows, at, slot)), int(units[slot])) for slot in some]
            known = [one for one in said if one[0] != attribute.missing_cell]
            one = _folded(attribute, known, len(some))
            codes[at][some], units[some] = one or (attribute.missing_cell or 0, 0)
    return replace(rows, codes=tuple(codes), measures=measures)


def _said(universe: Universe, rows: Rows, at: int, slot: int) -> int:
    """What one row says of an attribute, or what a condition on the row says."""
    attribute = universe.attributes[at]
    if not isinstance(attribute, Boolean) or attribute.where is None:
        return int(rows.codes[at][slot])
    cells = [int(rows.codes[universe.positions[name]][slot]) for name in attribute.where.names]
    return int(attribute.where.mask[tuple(cells)])


def _folded(
    attribute: Attribute, known: list[tuple[int, int]], n_rows: int
) -> tuple[int, int] | None:
    """What the rows of a person say together: a cell, and units above the lower end of what is measured."""
    if attribute.fold in ("first", "last"):
        return known[0 if attribute.fold == "first" else -1] if known else None
    if isinstance(attribute, Boolean) or attribute.fold == "max":
        return max(known, default=None)
    if attribute.fold == "min":
        return min(known, default=None)
    assert isinstance(attribute, Number), "other folds are of numbers"
    number, measure = float(n_rows), attribute.measure
    if attribute.fold == "sum":
        if not known:
            return None
        assert measure is not None, "sums are of kept values"
        low, high = measure.ends
        total = min(max(sum(low + units for _, units in known), low), high)
        number = float(total * measure.exact_unit)
    if measure is None:
        return int(attribute.encode([number])[0]), 0
    codes, units = attribute.encode_measured([number])
    return int(codes[0]), int(units[0])


def secret_of(world: World, held: Held) -> bytes:
    """The secret of the digests of persons."""
    stored = held.private(held.named()["person"])
    assert stored is not None, f"the secret of {held.name} is nowhere"
    return PersonSecret.from_bytes(stored, held.name, world.key_file).value


def units_of(held: Held) -> Counter[bytes]:
    """What each person has used for life, by its digest, as it is kept."""
    units: Counter[bytes] = Counter()
    for named in held.named("used ").values():
        slab = Slab.of_stored(held.parts(named) or ())
        words = [slab.columns[f"digest {at}"].astype("<u4") for at in range(3)]
        for *person, used in zip(*words, slab.columns["units"].tolist(), strict=True):
            if any(person):
                units[b"".join(word.tobytes() for word in person)] += used
    return units


def _whose(rows: Rows) -> dict[str, npt.NDArray[np.uint32]]:
    assert rows.whose is not None, "persons are protected"
    return rows.whose.columns


def _batches_of_phases(world: World, name: str) -> tuple[list[list[str]], dict[int, list[str]]]:
    """The batches of each phase in order as it opened, and last those that wait; then its late ones.

    Lost ones are left out.
    """
    late: dict[int, list[str]] = {}
    if calendar_of(world, name) is not None:
        periods = Periods(world, name)
        phases, late = periods.opened, periods.late
    else:
        phases = [[]]
        for event in world.events("batch_accepted"):
            if event["dataset"] == name:
                phases[-1].append(batch_name(event))
                if event["phase"] == len(phases):
                    phases.append([])
    lost = given_up_batches(world, name)

    def kept(batches: Iterable[str]) -> list[str]:
        return [named for named in batches if named not in lost]

    return list(map(kept, phases)), {phase: kept(some) for phase, some in late.items()}


def counted_row_by_row(
    rows: Rows, unit: UnitSpec, used: Counter[bytes], so_far: Counter[bytes] | None = None
) -> npt.NDArray[np.bool_]:
    """The rows of least rank of each person, row by row; adds what they use for life to ``used``.

    ``so_far`` has how many of the same phase count already, and these are added.
    """
    assert rows.whose is not None
    digests = [bytes(digest) for digest in rows.whose.digests]
    marks = np.zeros(len(digests), dtype=np.bool_)
    so_far = Counter() if so_far is None else so_far
    for _, slot in sorted((int(rank), slot) for slot, rank in enumerate(rows.whose.ranks)):
        person = digests[slot]
        more = so_far[person] + 1
        fits = used[person] + more**2 <= unit.phases * unit.rows_per_phase**2
        if any(person) and more <= unit.rows_per_phase and (fits or not unit.lifetime):
            so_far[person] = more
            marks[slot] = True
    for person, rows_of_person in so_far.items():
        used[person] += rows_of_person**2
    return marks
