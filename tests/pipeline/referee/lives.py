"""P20: what changes say is done, once, and a receipt is sent only when it is.

Each slot is followed on its own here, from the batch that brings it through all changes that come behind it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.slabs import Slab, SlabIndex, row_columns
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import UnitSpec
from stream_dp.pipeline.rows.block_owners import veiled
from stream_dp.state.private_names import Named
from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import definition_of, first_batches, schema_of
from tests.pipeline.referee.persons import (
    counted_row_by_row,
    folded_row_by_row,
    secret_of,
    units_of,
)
from tests.pipeline.world import World

_NOBODY = bytes(12)


@dataclass(frozen=True)
class Slot:
    """What is in a slot, in Python's own numbers."""

    person: bytes
    own: int
    says: tuple[tuple[str, int], ...]
    counts: int = 0

    @property
    def blank(self) -> Slot:
        return Slot(_NOBODY, 0, tuple((name, 0) for name, _ in self.says), 0)


@dataclass
class Lives:
    """The slots of one data set, as they are to be.

    Attributes:
        sealed: The slots of each phase.
        waiting: The batches that wait, and their slots.
        there: The persons who were there in each phase, and are not erased, with what their records say.
    """

    unit: UnitSpec
    schema: Schema
    sealed: list[list[Slot]] = field(default_factory=list)
    waiting: list[tuple[Rows, list[Slot]]] = field(default_factory=list)
    used: Counter[bytes] = field(default_factory=Counter)
    there: list[dict[bytes, tuple[int, ...]]] = field(default_factory=list)

    @property
    def universe(self) -> Universe:
        return self.schema.rows_universe(len(self.sealed))

    def seal(self) -> None:
        """A phase opens of all that waits."""
        rows = Rows.concat([one for one, _ in self.waiting])
        slots = [slot for _, some in self.waiting for slot in some]
        last = {slot.own: at for at, slot in enumerate(slots) if slot.own}
        live = [
            slot.person != _NOBODY and last.get(slot.own, at) == at for at, slot in enumerate(slots)
        ]
        rows = _of_live(rows, slots, live)
        marks = counted_row_by_row(rows, self.unit, self.used).tolist()
        records = slots  # where rows are folded, none is corrected
        if self.universe.folded:
            records = _slots(self._with_phases_since(folded_row_by_row(rows, self.universe)))
        self.sealed.append(
            [
                replace(slot, says=record.says if live[at] else slot.says, counts=int(marks[at]))
                for at, (slot, record) in enumerate(zip(slots, records, strict=True))
            ]
        )
        self.waiting.clear()

    def _with_phases_since(self, rows: Rows) -> Rows:
        """The records with how many phases ago persons were there before, person by person."""
        assert rows.whose is not None, "persons are protected"
        persons = [one.tobytes() for one in rows.whose.digests]
        codes = [column.copy() for column in rows.codes]
        for at, attribute in self.universe.folded.items():
            if attribute.fold != "since":
                continue
            of = None if attribute.of is None else self.universe.positions[attribute.of]
            for slot, person in enumerate(persons):
                if person == _NOBODY:
                    continue
                ago = (
                    back
                    for back, those in enumerate(reversed(self.there), 1)
                    if person in those and (of is None or those[person][of] == 1)
                )
                code = min(next(ago, attribute.size), len(attribute.edges) + 1) - 1
                is_meant = of is None or codes[of][slot] == 1
                codes[at][slot] = code if is_meant else attribute.size - 1
        self.there.append(
            {
                person: tuple(int(column[slot]) if len(column) else 0 for column in codes)
                for slot, person in enumerate(persons)
                if person != _NOBODY
            }
        )
        return replace(rows, codes=tuple(codes))

    def change(self, erased: set[bytes], corrected: Mapping[int, Slot | None]) -> None:
        """What a batch with changes does to all slots that came before it."""

        def changed(slot: Slot) -> Slot:
            if slot.person in erased and slot.person != _NOBODY:
                return slot.blank
            if slot.own == 0 or slot.own not in corrected:
                return slot
            new = corrected[slot.own]
            if new is None:
                return slot.blank
            return replace(slot, says=new.says) if new.person == slot.person else slot

        for those in self.there:
            for person in erased:
                those.pop(person, None)
        self.sealed = [[*map(changed, some)] for some in self.sealed]
        self.waiting = [(rows, [*map(changed, some)]) for rows, some in self.waiting]


def _of_live(rows: Rows, slots: list[Slot], live: list[bool]) -> Rows:
    """The rows, with nobody in those slots that are not live."""
    assert rows.whose is not None, "persons are protected"
    digests = rows.whose.digests.copy()
    for at, slot in enumerate(slots):
        if not live[at]:
            digests[at] = 0
        else:
            assert bytes(digests[at]) == slot.person, "a change gives no row to another person"
    return replace(rows, whose=replace(rows.whose, digests=digests))


def lives_hold(world: World) -> Iterator[str]:
    """P20: each kept slot is what the changes before the last sweep, or before its seal, make of it."""
    for name, held in world.durable().items():
        definition = definition_of(held) if held.definition else None
        if definition is None or definition.erasure is None or held.retired:
            continue
        yield from _receipts(world, held)
        for _, record_id, _ in (given for one in held.said for given in one.given_up):
            if record_id in world.deleted:
                yield f"P20: {name} lacks a batch that a worker has deleted"
        lives, number = _lived(world, held)
        if held.meta.get("sweeping"):
            yield f"P20: {name} is in the midst of a sweep"
            continue
        units = units_of(held)
        if definition.privacy.unit.lifetime and units != +lives.used:
            yield f"P20: {name} does not keep what its persons have used, and have not had forgotten"
        for phase, slots in enumerate(lives.sealed, 1):
            kept = kept_slots(world, held, phase)
            if kept is None:
                continue
            if Counter(filter(_count, kept)) != Counter(filter(_count, slots)):
                yield f"P20: phase {phase} of {name} counts other slots than after {number} changes"
            # A row that came again may be blank, and is not to count.
            if Counter(filter(_wait, kept)) - Counter(filter(_wait, slots)):
                yield f"P20: phase {phase} of {name} holds a slot that changes have made blank"


def _count(slot: Slot) -> bool:
    return slot.counts == 1


def _wait(slot: Slot) -> bool:
    return slot.counts == 0 and slot.person != _NOBODY


def _receipts(world: World, held: Held) -> Iterator[str]:
    """P20: a receipt is sent when nothing is left that its changes were not made in."""
    number = 0
    for one in held.said:
        for event in one.events("swept"):
            number = event["change_number"]
    for key in held.named("owner "):
        phase, _, after = map(int, key.split(" "))
        if after < number:
            yield f"P20: {held.name} has sent a receipt, and phase {phase} is not swept"
    for key in held.named("waiting "):
        *_, after = map(int, key.split(" "))
        if after < number:
            yield f"P20: {held.name} has sent a receipt, and rows that wait are not swept"


def _lived(world: World, held: Held) -> tuple[Lives, int]:
    """The slots as they are to be, by the order in which batches were accepted, and phases opened.

    Changes that came behind the last sweep are made in rows that were sealed later.
    """
    name, definition = held.name, definition_of(held)
    lives = Lives(definition.privacy.unit, schema_of(world, held))
    secret, records = secret_of(world, held), first_batches(world).get(name, {})
    swept = max(
        (e["change_number"] for e in world.events("swept") if e["dataset"] == name), default=0
    )
    lost = {batch_name(e) for e in world.events("changes_lost") if e["dataset"] == name}
    n_changes, seen = 0, set[str]()
    for event in world.events():
        if event["dataset"] != name:
            continue
        if event["event"] == "phase_opened":
            lives.seal()
        if event["event"] != "batch_accepted" or batch_name(event) in seen:
            continue
        seen.add(batch_name(event))
        document = json.loads(records[batch_name(event)].value or b"")
        persons = Persons(
            definition.privacy.unit.key, secret, batch_name(event), definition.erasure.row
        )
        if "erase" in document or "correct" in document:
            n_changes += 1
            made = _changes(lives.universe, document, persons)
            if batch_name(event) not in lost:
                _make(lives, made, sealed=n_changes <= swept)
                for person in made[0] if document.get("forget") else ():
                    lives.used.pop(person, None)
        rows = _rows(lives.universe, document, persons)
        if rows.n_rows:
            lives.waiting.append((rows, _slots(rows)))
    return lives, swept


def _make(lives: Lives, made: tuple[set[bytes], dict[int, Slot | None]], *, sealed: bool) -> None:
    """Makes changes: of sealed rows only if a sweep has made them."""
    as_sealed = lives.sealed
    lives.change(*made)
    if not sealed:
        lives.sealed = as_sealed


def _changes(
    universe: Universe, document: Mapping[str, Any], persons: Persons
) -> tuple[set[bytes], dict[int, Slot | None]]:
    erased = {bytes(one) for one in persons.digests(document.get("erase", []))}
    corrected: dict[int, Slot | None] = {}
    for entry in document.get("correct", []):
        if entry is None:
            continue
        row = {**entry.get("set", {}), persons.key: entry["person"], persons.row: entry["row"]}
        (slot,) = _slots(universe.encode_rows([row], persons))
        known = corrected.get(slot.own, slot)
        corrected[slot.own] = None if known is None or "erase" in entry else slot
    return erased, corrected


def _rows(universe: Universe, document: Mapping[str, Any], persons: Persons) -> Rows:
    if "columns" in document:
        return universe.encode_columns(document["columns"], persons)
    return universe.encode_rows(document.get("rows", []), persons)


def _slots(rows: Rows) -> list[Slot]:
    assert rows.whose is not None, "persons are protected"
    slab = Slab(rows.n_rows, rows.n_entries, row_columns(rows) if rows.n_rows else {})
    return _of_slab(
        slab, [bytes(one) for one in rows.whose.digests], _numbers(rows.whose.own, rows)
    )


def _numbers(own: Any, rows: Rows) -> list[int]:
    return [0] * rows.n_rows if own is None else own.tolist()


def _of_slab(slab: Slab, persons: Iterable[bytes], own: Iterable[int]) -> list[Slot]:
    names = sorted(name for name in slab.columns if name != "weight")
    columns = [slab.columns[name].tolist() for name in names]
    says = zip(*columns, strict=True) if columns else iter(())
    weights = slab.columns["weight"].tolist() if "weight" in slab.columns else [0] * slab.n_slots
    return [
        Slot(person, key, tuple(zip(names, one, strict=True)), weight)
        for person, key, one, weight in zip(persons, own, says, weights, strict=True)
    ]


def kept_slots(world: World, held: Held, phase: int) -> list[Slot] | None:
    """The slots of a phase as they are kept. None where they are erased, or gone."""
    secret, found = secret_of(world, held), list[Slot]()
    of_slab: dict[int, dict[str, Named]] = {}
    for kind in ("block ", "weight ", "owner "):
        for key, named in held.named(kind).items():
            of, at, *_ = map(int, key.split(" "))
            if of == phase:
                of_slab.setdefault(at, {})[kind] = named
    for at in sorted(of_slab):
        read = {kind: held.parts(named) for kind, named in of_slab[at].items()}
        parts = {kind: one for kind, one in read.items() if one is not None}
        if len(parts) < len(read) or not {"block ", "owner "} <= parts.keys():
            return None
        slab = Slab.of_stored(parts["block "])
        if "weight " in parts:
            slab = replace(
                slab, columns={**slab.columns, **Slab.of_stored(parts["weight "]).columns}
            )
        index = parts["owner "]
        owners = veiled(secret, SlabIndex.from_bytes(index[0]).salt, Slab.of_stored(index))
        words = [owners.columns[f"digest {n}"].astype("<u4").tolist() for n in range(3)]
        persons = [
            b"".join(word.to_bytes(4, "little") for word in three)
            for three in zip(*words, strict=True)
        ]
        own = [0] * slab.n_slots
        if "own 0" in owners.columns:
            low, high = (owners.columns[f"own {n}"].tolist() for n in range(2))
            own = [a + (b << 32) for a, b in zip(low, high, strict=True)]
        found += _of_slab(slab, persons, own)
    return found or None
