"""Rows that are erased or corrected: every small history, and the code against one row after the other.

docs/proofs, Theorem 38. Nothing here is drawn at random but the examples of properties, which hold for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product, zip_longest
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.key_texts import columns_of
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import Persons, Slots, digests
from stream_dp.core.rows.row_changes import RowChanges, live_rows
from stream_dp.core.rows.slabs import Slab, row_columns
from stream_dp.core.rows.universe import Universe
from stream_dp.pipeline.rows.person_allowance import Used, UsedUnits
from tests.slow import rest_is_slow

SECRET: Final = bytes(range(32))
CELLS: Final = Universe((Category("cell", ("x", "y"), other=False),))


# ---------------------------------------------------------------- every small history


class Sent(NamedTuple):
    """What somebody sends: a row, or what becomes of one.

    Attributes:
        person: Whose it is.
        row: The key of the row. Empty for all rows of the person.
        cell: The cell of the row. Empty where it is erased.
    """

    person: str
    row: str = ""
    cell: str = ""


ROWS: Final = (Sent("u", "a", "x"), Sent("u", "a", "y"), Sent("u", "b", "x"), Sent("v", "a", "x"))
"""Both persons have a row with the key ``a``."""

CHANGES: Final = (
    Sent("u"),
    Sent("v"),
    *(Sent(*of, cell) for of in (("u", "a"), ("v", "a")) for cell in ("y", "")),
    Sent("u", "b", "y"),
)

STEPS: Final = "SSSC|CS!|C!"
"""Slots and changes as they come. ``|`` seals what waits as a block, and ``!`` is a sweep."""

History: TypeAlias = tuple[Sent | None, ...]
"""What is sent in each ``S`` and ``C``; None for a blank slot, and for a blank entry."""


class Slot(NamedTuple):
    """What is in a slot that waits, or of a block."""

    cell: int
    person: bytes
    own: int
    rank: int = 0
    counts: int = 0


Some: TypeAlias = tuple[Slot, ...]


class Kept(NamedTuple):
    """What is kept after a step: the rows that wait, the blocks, and what persons have used for life."""

    waiting: Some = ()
    blocks: tuple[Some, ...] = ()
    used: tuple[tuple[bytes, int], ...] = ()


class Worker:
    """What the code makes of slots and changes. Each step is done once for the same slots and changes.

    Args:
        unit: The promise.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.comes, self.changes = cache(self._comes), cache(self._changes)
        self.waits, self.seals = cache(self._waits), cache(self._seals)
        self.sweeps = cache(self._sweeps)

    def after(self, history: History) -> Iterator[Kept]:
        """What is kept after each seal and sweep."""
        kept, requests, numbers = Kept(), list[Sent | None](), list[int]()
        sent = enumerate(history)
        for step in STEPS:
            if step == "S":
                number, row = next(sent)
                kept = kept._replace(waiting=kept.waiting + self.comes(number, row))
            elif step == "C":
                _, change = next(sent)
                requests.append(change)
                kept = self.requested(kept, change)
            elif step == "|":
                kept = self.opened(kept)
                numbers.append(len(requests))
                yield kept
            else:
                later = [tuple(requests[number:]) for number in numbers]
                blocks = map(self.sweeps, kept.blocks, later)
                kept = kept._replace(blocks=tuple(blocks))
                numbers = [len(requests)] * len(numbers)
                yield kept

    def opened(self, kept: Kept) -> Kept:
        """A phase opens of the rows that wait."""
        block, used = self.seals(kept.waiting, kept.used)
        return Kept((), (*kept.blocks, block), used)

    def requested(self, kept: Kept, change: Sent | None) -> Kept:
        """A change comes: rows in memory are changed at once."""
        return kept._replace(waiting=self.waits(kept.waiting, change))

    def _comes(self, number: int, row: Sent | None) -> Some:
        persons = Persons("who", SECRET, f"batch {number}", "row")
        rows = CELLS.encode_rows([_named(row)], persons)
        return tuple(_slots(rows.codes[0], _whose(rows)))

    def _changes(self, changes: tuple[Sent | None, ...]) -> RowChanges:
        return RowChanges.concat([_as_changes(one) for one in changes])

    def _waits(self, waiting: Some, change: Sent | None) -> Some:
        rows = self.changes((change,)).of_rows(_rows(waiting))
        return tuple(_slots(rows.codes[0], _whose(rows)))

    def _seals(
        self, waiting: Some, before: tuple[tuple[bytes, int], ...]
    ) -> tuple[Some, tuple[tuple[bytes, int], ...]]:
        rows, used = live_rows(_rows(waiting)), UsedUnits(cast("Any", None))
        used._used = {0: _used(before)}
        marks, more = used.counted(rows.whose, self.unit)
        block = Block.seal(CELLS, rows, counted=marks, owned=True)
        (slab,), (owners,) = block.slabs, block.owners
        after = before if more is None else _pairs(_used(before).and_by(more))
        return _of_slabs(slab, owners), after

    def _sweeps(self, block: Some, changes: tuple[Sent | None, ...]) -> Some:
        slab, owners = _slabs(block)
        made = self.changes(changes)
        hits = made.hits(Slots.of_columns(owners.columns))
        return _of_slabs(made.of_slab(slab, hits), made.of_slab(owners, hits))


def _named(row: Sent | None) -> dict[str, object]:
    return {} if row is None else {"who": row.person, "row": row.row, "cell": row.cell or None}


def _whose(rows: Rows) -> Slots:
    assert rows.whose is not None
    return rows.whose


def _as_changes(change: Sent | None) -> RowChanges:
    """One change. A blank one is a blank entry of each sort."""
    everything = [None if change is None or change.row else change.person]
    row = _named(change) if change is not None and change.row else {}
    rows = CELLS.encode_rows([row], Persons("who", SECRET, "changes", "row"))
    gone = change is None or not change.cell
    return RowChanges(digests(SECRET, everything), rows, np.array([gone], np.bool_))


def _slots(cells: Any, whose: Slots, counts: Sequence[int] = ()) -> Iterator[Slot]:
    assert whose.own is not None
    for at, person in enumerate(whose.digests):
        numbers = int(whose.own[at]), int(whose.ranks[at])
        yield Slot(int(cells[at]), bytes(person), *numbers, counts[at] if len(counts) else 0)


def _rows(waiting: Some) -> Rows:
    persons = np.frombuffer(b"".join(one.person for one in waiting), np.uint8).reshape(-1, 12)
    ranks, own = (np.array([one[at] for one in waiting], np.uint64) for at in (3, 2))
    cells = np.array([one.cell for one in waiting], np.uint8)
    return Rows((cells,), whose=Slots(persons, ranks, own))


def _slabs(block: Some) -> tuple[Slab, Slab]:
    rows, n = _rows(block), len(block)
    counts = np.array([one.counts for one in block], np.uint8)
    return Slab(n, n, {"0": rows.codes[0], "weight": counts}), Slab(n, n, _whose(rows).owners)


def _of_slabs(slab: Slab, owners: Slab) -> Some:
    counts = slab.columns["weight"].tolist()
    return tuple(_slots(slab.columns["0"], Slots.of_columns(owners.columns), counts))


def _used(pairs: tuple[tuple[bytes, int], ...]) -> Used:
    keys = np.array([key for key, _ in pairs], "S12")
    return Used(keys, np.array([units for _, units in pairs], np.uint16), len(pairs))


def _pairs(used: Used) -> tuple[tuple[bytes, int], ...]:
    return tuple(zip(used.keys.tolist(), used.units.tolist(), strict=True))


# What somebody could get wrong ------------------------------------------------------------------


class ByRowAlone(Worker):
    """A change of a row is about the rows with this key of all persons."""

    def _changes(self, changes: tuple[Sent | None, ...]) -> RowChanges:
        both = [
            one._replace(person=person) if one is not None and one.row else one
            for one in changes
            for person in "uv"
        ]
        return super()._changes(tuple(both))


class MakesSlots(Worker):
    """A correction of a row that does not wait makes a slot."""

    def requested(self, kept: Kept, change: Sent | None) -> Kept:
        after = super().requested(kept, change)
        if change is None or not change.cell or after != kept:
            return after
        return after._replace(waiting=after.waiting + self.comes(99, change))


class MovesRows(Worker):
    """A correction moves a sealed row to the block that is open."""

    def requested(self, kept: Kept, change: Sent | None) -> Kept:
        gone = None if change is None else change._replace(cell="")
        blocks = tuple(self.sweeps(block, (gone,)) for block in kept.blocks)
        if change is None or not change.cell or blocks == kept.blocks:
            return super().requested(kept, change)
        return Kept(kept.waiting + self.comes(99, change), blocks, kept.used)


class CapsBlocks(Worker):
    """At most so many rows of a block count, whosever they are."""

    def _seals(self, waiting: Some, before: Any) -> Any:
        block, used = super()._seals(waiting, before)
        found: list[Slot] = []
        for slot in block:
            full = sum(one.counts for one in found) >= self.unit.rows_per_phase
            found.append(slot._replace(counts=0) if full else slot)
        return tuple(found), used


class CorrectsSealedRows(Worker):
    """A row whose key is sealed corrects it, too."""

    def opened(self, kept: Kept) -> Kept:
        new = {one.own: one.cell for one in kept.waiting if one.own}
        blocks = tuple(
            tuple(slot._replace(cell=new.get(slot.own, slot.cell)) for slot in block)
            for block in kept.blocks
        )
        return super().opened(kept._replace(blocks=blocks))


class CountsWithoutLimit(Worker):
    """All rows of a person count."""

    def _seals(self, waiting: Some, before: Any) -> Any:
        block, used = super()._seals(waiting, before)
        return tuple(one._replace(counts=int(any(one.person))) for one in block), used


class ForgetsUnits(Worker):
    """What an erased person has used for life is forgotten."""

    def requested(self, kept: Kept, change: Sent | None) -> Kept:
        after = super().requested(kept, change)
        return after if change is None or change.row else after._replace(used=())


# Neighbours -------------------------------------------------------------------------------------


DIGESTS: Final = {who: bytes(digests(SECRET, [who])[0]) for who in "uv"}


class Neighbours(NamedTuple):
    """What is blank on one side.

    Attributes:
        person: Whose slots.
        blocks: The blocks in which they are blank.
        changes: Whether the person's changes are blank, too.
    """

    person: str
    blocks: tuple[int, ...]
    changes: bool

    def blank(self, history: History) -> History:
        """The history with these slots blank."""
        sent, block, found = iter(history), 0, list[Sent | None]()
        for step in STEPS:
            if step == "|":
                block += 1
            elif step != "!":
                one = next(sent)
                gone = self.changes if step == "C" else block in self.blocks
                found.append(
                    None if one is not None and one.person == self.person and gone else one
                )
        return tuple(found)

    def differ(self, one: Kept, other: Kept) -> str:
        """What differs that must not. Empty for nothing."""
        for at, (here, there) in enumerate(zip(one.blocks, other.blocks, strict=True)):
            if len(here) != len(there):
                return "the number of slots"
            if here != there and at not in self.blocks:
                return "a block outside"
            for both in zip(here, there, strict=True):
                if both[0] != both[1] and DIGESTS[self.person] not in (
                    both[0].person,
                    both[1].person,
                ):
                    return "a slot of somebody else"
        return ""


def distances(one: Kept, other: Kept) -> list[int]:
    """The squared distance of the counts of each block."""
    return [
        sum((_count(here, cell) - _count(there, cell)) ** 2 for cell in (0, 1))
        for here, there in zip(one.blocks, other.blocks, strict=True)
    ]


def _count(block: Some, cell: int) -> int:
    return sum(slot.counts for slot in block if slot.cell == cell)


def compared(
    worker: Worker, history: History, neighbours: Sequence[Neighbours]
) -> Iterator[tuple[str, list[int]]]:
    """What differs that must not between a history and each neighbour of it.

    Next to it stands the largest distance of the counts of each block, over all versions of the block.
    """
    kept = [*worker.after(history)]
    for about in neighbours:
        other = about.blank(history)
        if other == history:
            continue
        most: list[int] = []
        for both in zip(kept, worker.after(other), strict=True):
            if said := about.differ(*both):
                yield said, []
                break
            most = [*map(max, zip_longest(most, distances(*both), fillvalue=0))]
        else:
            yield "", most


def wrong(worker: Worker, history: History, neighbours: Sequence[Neighbours]) -> set[str]:
    """What a history and its neighbours show that Theorem 38 (a) excludes."""
    k, most = worker.unit.rows_per_phase, worker.unit.squares
    found = set[str]()
    for said, apart in compared(worker, history, neighbours):
        if said:
            found.add(said)
        elif max(apart) > k**2 or (worker.unit.lifetime and sum(apart) > most):
            found.add("the counts")
    return found


def left(worker: Worker, history: History, about: Neighbours) -> bool:
    """Whether something is left of a person after the sweep that erases all of their rows."""
    (*_, one), (*_, blank) = worker.after(history), worker.after(about.blank(history))
    return one.blocks != blank.blocks


FOR_LIFE: Final = [Neighbours(who, (0, 1), True) for who in "uv"]
WINDOWS: Final = [
    *(Neighbours(who, of, False) for who in "uv" for of in ((0,), (1,), (0, 1))),
    *FOR_LIFE,
]

UNITS: Final = {
    "one row in one phase": (Unit(1, 1), WINDOWS),
    "two rows": (Unit(2, 1), WINDOWS),
    "one row for life": (Unit(1, 1, lifetime=True), FOR_LIFE),
    "two rows for life": (Unit(2, 1, lifetime=True), FOR_LIFE),
}

FEW: Final = 167
"""Of so many histories one is tried at first. Both numbers of contents are prime to it."""


def histories(every: int) -> Iterator[History]:
    """Each so-many-th history."""
    kinds = [(None, *(ROWS if step == "S" else CHANGES)) for step in STEPS if step in "SC"]
    for number, history in enumerate(product(*kinds)):
        if number % every == 0:
            yield history


@pytest.mark.parametrize(
    ("name", "every"),
    rest_is_slow(
        [*((name, FEW) for name in UNITS), ("two rows", 1), ("one row for life", 1)],
        first=len(UNITS),
        unpack=True,
    ),
)
def test_a_person_changes_no_slot_of_others_and_counts_by_no_more_than_the_limit(
    name: str, every: int
) -> None:
    unit, neighbours = UNITS[name]
    worker = Worker(unit)
    for history in histories(every):
        assert wrong(worker, history, neighbours) == set(), history


@pytest.mark.parametrize("name", UNITS)
def test_the_limit_of_what_a_person_counts_is_reached(name: str) -> None:
    unit, neighbours = UNITS[name]
    worker = Worker(unit)
    most = max(
        distance
        for history in histories(FEW)
        for _, apart in compared(worker, history, neighbours)
        for distance in apart
    )
    assert most == unit.rows_per_phase**2


@pytest.mark.parametrize("name", UNITS)
def test_who_is_erased_leaves_what_is_kept_of_blank_slots(name: str) -> None:
    unit, _ = UNITS[name]
    worker, met = Worker(unit), 0
    for history in histories(FEW):
        for who in "uv":
            erased = (*history[:-1], Sent(who))
            met += Neighbours(who, (0, 1), True).blank(history) != history
            for changes in (False, True):
                assert not left(worker, erased, Neighbours(who, (0, 1), changes)), erased
    assert met > 500


BROKEN: Final[Mapping[type[Worker], str]] = {
    ByRowAlone: "a slot of somebody else",
    MakesSlots: "the number of slots",
    MovesRows: "the number of slots",
    CapsBlocks: "a slot of somebody else",
    CorrectsSealedRows: "a block outside",
    CountsWithoutLimit: "the counts",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
def test_a_broken_copy_is_found(broken: type[Worker]) -> None:
    worker, said = broken(Unit(1, 1)), set[str]()
    for history in histories(FEW):
        said |= wrong(worker, history, WINDOWS)
        if BROKEN[broken] in said:
            return
    raise AssertionError(said)


def test_a_broken_copy_that_forgets_what_persons_have_used_is_found() -> None:
    worker = ForgetsUnits(Unit(1, 1, lifetime=True))
    assert any(wrong(worker, one, FOR_LIFE) == {"the counts"} for one in histories(FEW))


# ---------------------------------------------------------------- one row after the other

EVERY: Final = Universe(
    (
        Category("color", ("red", "blue"), missing=True),
        Number("size", (0.0, 10.0, 20.0), measure=Measure(1.0, 0.0, 30.0)),
        Category("page", (), spare=3, finds=True),
    )
)
"""A cell, a value that is kept, and a value that is found."""

Row: TypeAlias = dict[str, Any]

PERSON: Final = st.sampled_from([None, "u", "v", "w"])
CONTENT: Final = st.fixed_dictionaries(
    {
        "color": st.sampled_from(["red", "blue", None]),
        "size": st.integers(0, 30),
        "page": st.sampled_from(["/a", "/b", "/with a long name", None]),
    }
)
SENT: Final = st.builds(
    lambda who, row, content: {"who": who, "row": row, **content},
    PERSON,
    st.sampled_from([None, "a", "b"]),
    CONTENT,
)


class Asked(NamedTuple):
    """Changes of one batch.

    Attributes:
        persons: Who is erased; None for nobody.
        rows: Rows as they are to be; None for no row.
        gone: Which of these rows are erased.
    """

    persons: list[str | None]
    rows: list[Row | None]
    gone: list[bool]

    @property
    def changes(self) -> RowChanges:
        rows = [row or {} for row in self.rows]
        persons = Persons("who", SECRET, "changes", "row")
        return RowChanges(
            digests(SECRET, self.persons),
            EVERY.encode_rows(rows, persons),
            np.array(self.gone, np.bool_),
        )


CHANGED: Final = st.builds(
    lambda persons, rows: Asked(persons, [row for row, _ in rows], [gone for _, gone in rows]),
    st.lists(PERSON, max_size=3),
    st.lists(st.tuples(st.none() | SENT, st.booleans()), max_size=5),
)


def encoded(rows: Sequence[Row]) -> Rows:
    return EVERY.encode_rows(rows, Persons("who", SECRET, "batch", "row"))


def one_by_one(rows: Sequence[Row], batches: Sequence[Asked]) -> list[Row]:
    """Rows after some changes in order; what is erased says nothing and is nobody's."""
    found: list[Row] = [dict(row) for row in rows]
    for asked in batches:
        for row in found:
            if row.get("who") is not None and row["who"] in asked.persons:
                row.clear()
        for change, gone in zip(asked.rows, asked.gone, strict=True):
            for row in found:
                named = row.get("who"), row.get("row")
                if change is None or None in named or named != (change["who"], change["row"]):
                    continue
                row.clear()
                if not gone:
                    row.update(change)
    return found


def columns(rows: Rows) -> dict[str, list[Any]]:
    """All that rows say, and whose they are."""
    return {name: column.tolist() for name, column in _every_column(rows).items()}


def _every_column(rows: Rows) -> dict[str, Any]:
    return {**row_columns(rows), **columns_of(rows.texts), **_whose(rows).owners}


@given(st.lists(SENT, min_size=1, max_size=8), st.lists(CHANGED, max_size=4))
def test_changes_at_once_are_changes_of_one_row_after_the_other(
    rows: list[Row], batches: list[Asked]
) -> None:
    before, every = encoded(rows), RowChanges.concat([one.changes for one in batches])
    changed = every.of_rows(before)
    in_turn = before
    for one in batches:
        in_turn = one.changes.of_rows(in_turn)
    assert columns(changed) == columns(in_turn)
    expected = columns(encoded(one_by_one(rows, batches)))
    gone = [not row for row in one_by_one(rows, batches)]
    found = columns(changed)
    for name, column in expected.items():
        blank = [0 if no_row else value for no_row, value in zip(gone, column, strict=True)]
        assert found[name] == blank, name
    assert _whose(changed).ranks.tolist() == _whose(before).ranks.tolist()


@given(st.lists(SENT, min_size=1, max_size=8), st.lists(CHANGED, max_size=4))
def test_a_slab_changes_as_rows_do(rows: list[Row], batches: list[Asked]) -> None:
    before, made = encoded(rows), RowChanges.concat([one.changes for one in batches])
    slab = Slab(len(rows), len(rows), _every_column(before))
    texts = {} if made.rows is None else columns_of(made.rows.texts)
    changed = made.of_slab(slab, made.hits(_whose(before)), texts)
    found = {name: column.tolist() for name, column in changed.columns.items()}
    assert found == columns(made.of_rows(before))
    assert (changed.n_rows, changed.n_slots) == (slab.n_rows, slab.n_slots)


@given(st.lists(SENT, min_size=1, max_size=8), st.lists(CHANGED, min_size=1, max_size=4))
def test_what_is_made_of_rows_has_the_same_form_whether_changes_find_any(
    rows: list[Row], batches: list[Asked]
) -> None:
    """All arrays have the lengths and types that the numbers of slots and entries decide."""
    before, made = encoded(rows), RowChanges.concat([one.changes for one in batches])
    nobody = [Asked([None] * len(a.persons), [None] * len(a.rows), a.gone) for a in batches]
    vain = RowChanges.concat([one.changes for one in nobody])
    assert repr(vain) == repr(made)
    forms = []
    for one in (made, vain):
        hits = one.hits(_whose(before))
        of = [hits.kept, hits.corrected, *_every_column(one.of_rows(before)).values()]
        forms.append([(column.dtype, column.shape) for column in of])
    assert forms[0] == forms[1]
    assert columns(vain.of_rows(before)) == columns(before)


def alike(rows: Rows) -> Rows:
    """The same, where the own keys of all rows have one digest."""
    whose = _whose(rows)
    return replace(rows, whose=replace(whose, own=np.full(len(whose), 7, np.uint64)))


def test_a_change_of_a_row_is_about_the_row_of_that_person() -> None:
    """Also where the own keys of two persons have one digest, and both are changed."""
    rows = encoded([{"who": who, "row": "a", "color": "red"} for who in "uvw"])
    blue = [{"who": who, "row": "a", "color": "blue"} for who in "uvu"]
    for gone, kept in (([False] * 3, [1, 1, 1]), ([False, True, False], [1, 0, 1])):
        made = Asked([], list(blue), gone).changes
        assert made.rows is not None
        chance = replace(made, rows=alike(made.rows))
        for one, whose in ((made, _whose(rows)), (chance, _whose(alike(rows)))):
            hits = one.hits(whose)
            assert (hits.corrected.tolist(), hits.kept.tolist()) == ([2, 1, -1], kept)


def test_a_row_that_comes_again_hides_no_row_of_somebody_else() -> None:
    """Also where their own keys have one digest."""
    rows = [{"who": who, "row": "a"} for who in "uvuwv"] + [{"who": "u"}, {"row": "a"}]
    whose = _whose(encoded(rows))
    assert whose.newest.tolist() == [0, 0, 1, 1, 1, 1, 1]
    chance = Slots(whose.digests, whose.ranks, np.where(whose.own == 0, 0, np.uint64(7)))
    assert chance.newest.tolist() == whose.newest.tolist()
