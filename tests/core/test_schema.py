"""Versions of the attributes: what rows of an older one say, found out by rows that say everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from stream_dp.core.queries.projection import Projection
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Rank, Total, total_of
from stream_dp.core.rows.attribute_versions import Declared, Schema, relation_of
from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.errors import InvalidDefinition

CITY = Category("city", ("Bonn", "Graz"))
AGE = Number("age", (30.0, 45.0), missing=True)

CHANGES: dict[str, tuple[Attribute, Attribute, Sequence[Any]]] = {
    "a value more": (
        CITY,
        Category("city", ("Bonn", "Graz", "Lyon")),
        ("Bonn", "Graz", "Lyon", "Oslo", None, "other"),
    ),
    "a value more, and nothing else has a cell": (
        Category("city", ("Bonn", "Graz"), other=False),
        Category("city", ("Bonn", "Lyon", "Graz"), other=False),
        ("Bonn", "Graz", "Lyon", "Oslo", None),
    ),
    "a value and a cell for missing ones": (
        CITY,
        Category("city", ("Bonn", "Graz", "Lyon"), missing=True, na=("?",)),
        ("Bonn", "Graz", "Lyon", "?", None, "Oslo"),
    ),
    "two values are one": (
        CITY,
        Category("city", ("Bonn",), also=(("Graz", "Bonn"),)),
        ("Bonn", "Graz", "Oslo", None),
    ),
    "an edge more": (AGE, replace(AGE, edges=(30.0, 35.0, 45.0)), (*range(20, 50), None, "x")),
    "an edge less": (AGE, replace(AGE, edges=(45.0,)), (*range(20, 50), None, "x")),
    "edges beyond": (AGE, replace(AGE, edges=(10.0, 30.0, 45.0, 80.0)), (*range(100), None)),
    "more months": (
        Date("day", "month", "2026-01-01", "2026-07-01"),
        Date("day", "month", "2025-11-01", "2026-09-01"),
        [f"{year}-{month:02}-15" for year in (2024, 2025, 2026, 2027) for month in range(1, 13)],
    ),
    "missing answers": (
        Boolean("smoker"),
        Boolean("smoker", missing=True, na=("?",)),
        (True, False, None, "?", "yes"),
    ),
}


@pytest.mark.parametrize(("old", "new", "values"), CHANGES.values(), ids=CHANGES)
def test_rows_of_an_old_cell_may_be_where_some_value_of_it_is(
    old: Attribute, new: Attribute, values: Sequence[Any]
) -> None:
    """Every pair of cells that some value is in is known, and no other one."""
    found = np.zeros((old.size, new.size), np.bool_)
    found[old.encode(list(values)), new.encode(list(values))] = True
    relation = relation_of(old, new)
    assert (relation.maybe == found).all(), relation.maybe
    assert (relation.counts_as <= relation.maybe).all()
    assert relation.counts_as.any(axis=1).all(), "a row counts as something"


def test_rows_that_had_no_cell_of_their_own_count_as_other_for_ever() -> None:
    relation = relation_of(CITY, Category("city", ("Bonn", "Graz", "Lyon")))
    assert relation.place.tolist() == [0, 1, 3]
    assert relation_of(AGE, replace(AGE, edges=(30.0, 35.0, 45.0))).place.tolist() == [0, -1, 3, 4]


def test_a_new_name_of_a_value_was_not_said_before() -> None:
    renamed = Category("city", ("Bonn am Rhein", "Graz"), also=(("Bonn", "Bonn am Rhein"),))
    assert (relation_of(CITY, renamed).maybe == np.eye(3, dtype=np.bool_)).all()
    schema = Schema.of([Declared(CITY)]).changed([Declared(renamed)], 1)
    assert schema.newest.indices == (0,), "it is the same attribute"
    assert renamed.encode(["Bonn", "Bonn am Rhein"]).tolist() == [0, 0]


NEW: tuple[Attribute, ...] = (
    Category("city", ("Bonn", "Graz", "Lyon")),
    replace(AGE, edges=(30.0, 35.0, 45.0)),
    Boolean("vip", missing=True),
)
SCHEMA = Schema.of([Declared(CITY), Declared(AGE)]).changed([Declared(one) for one in NEW], 2)
ROWS = list(product(("Bonn", "Graz", "Lyon", "Oslo"), (20, 32, 40, 50, None), (True, False, None)))


def _masks(rng: np.random.Generator) -> list[Predicate]:
    sizes = [one.size for one in NEW]
    found = []
    for chosen in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)):
        for _ in range(12):
            mask = rng.random([sizes[i] for i in chosen]) < 0.6
            found.append(Predicate.of_mask([SCHEMA.newest.indices[i] for i in chosen], mask))
            each = {SCHEMA.newest.indices[i]: rng.random(sizes[i]) < 0.6 for i in chosen}
            found.append(Predicate.conjunction(each))
    return found


def _holds(predicate: Predicate, cells: dict[int, int]) -> bool:
    return bool(predicate.mask[tuple(cells[a] for a in predicate.attributes)])


def test_old_rows_satisfy_a_condition_surely_or_possibly() -> None:
    """Compared with all rows: those of one old cell are asked one by one (Theorem 33 (b))."""
    projection, old = Projection(SCHEMA), SCHEMA.versions[0].universe
    for predicate in _masks(np.random.default_rng(5)):
        if predicate.constant is not None:
            continue
        (part,) = projection.parts(LinearQuery(predicate, range(2))) or ()
        possible = part.possible or part.query
        outcomes: dict[tuple[int, ...], set[bool]] = {}
        recorded: dict[tuple[int, ...], set[bool]] = {}
        for city, age, _ in ROWS:
            (at,) = zip(
                *(c.tolist() for c in old.encode_rows([{"city": city, "age": age}]).codes),
                strict=True,
            )
            codes = [
                one.encode([value]).item()
                for one, value in zip(NEW, (city, age, None), strict=True)
            ]
            cells = dict(zip(SCHEMA.newest.indices, codes, strict=True))
            outcomes.setdefault(at, set()).add(_holds(predicate, cells))
            if city == "Lyon":  # which was not listed then
                cells[SCHEMA.newest.indices[0]] = NEW[0].encode(["Oslo"]).item()
            recorded.setdefault(at, set()).add(_holds(predicate, cells))
        for at, found in outcomes.items():
            cells = dict(enumerate(at))
            assert _holds(part.query.predicate, cells) is (recorded[at] == {True}), (at, predicate)
            assert _holds(possible.predicate, cells) is (True in found), (at, predicate)


def test_a_query_about_blocks_that_have_its_attributes_is_whole() -> None:
    projection, (city, _, vip) = Projection(SCHEMA), SCHEMA.newest.indices
    bonn = Predicate.conjunction({city: np.array([True, False, False, False])})
    assert projection.parts(LinearQuery(bonn, range(2, 4))) is None
    assert projection.parts(LinearQuery(EVERYTHING, range(4))) is None
    old = Predicate.conjunction({0: np.array([True, False, False])})
    assert projection.parts(LinearQuery(old, range(2))) is None, "it is asked in its own cells"
    before, after = projection.parts(LinearQuery(bonn, range(4))) or ()
    assert before.query.key == LinearQuery(old, range(2)).key, "what was known of it is found"
    assert (before.query.window, after.query.window) == (range(2), range(2, 4))
    (known,) = projection.parts(LinearQuery(EVERYTHING, range(1, 2), (vip,))) or ()
    assert (known.query.group_by, known.places is not None and known.places.tolist()) == ((), [2])


def test_versions_that_change_nothing_about_a_query_are_one_part() -> None:
    schema = SCHEMA
    for number in range(3, 20):
        city = Category("city", ("Bonn", "Graz", "Lyon", *map(str, range(number))))
        schema = schema.changed([Declared(city), *map(Declared, NEW[1:])], number)
    age, edges = schema.newest.indices[1], NEW[1].size
    mask = Predicate.conjunction({age: np.arange(edges) < 2})
    assert len(Projection(schema).parts(LinearQuery(mask, range(30))) or ()) == 2


@pytest.mark.parametrize("taken", [True, False], ids=["rows came", "no rows came"])
def test_a_version_that_no_block_has_gives_way_to_the_next(taken: bool) -> None:
    first = Schema.of([Declared(CITY)])
    second = first.changed([Declared(Category("city", ("Bonn", "Graz", "Lyon")))], 1)
    third = second.changed(
        [Declared(Category("city", ("Bonn", "Graz", "Lyon", "Oslo")))], 1 + taken
    )
    assert len(third.versions) == 2 + taken
    assert third.newest.indices == (2,)
    assert third.at(0).indices == (0,)


def test_columns_of_other_versions_are_read_or_left_alone() -> None:
    older, newer = SCHEMA.rows_universe(0), SCHEMA.rows_universe(2)
    row = {"city": "Lyon", "age": 33, "vip": True}
    assert [codes.tolist() for codes in older.encode_rows([row]).codes] == [[2], [1]]
    assert [len(codes) for codes in newer.encode_rows([row]).codes] == [0, 0, 1, 1, 1]
    columns: dict[str, Any] = {"city": ["Lyon"], "age": [33]}
    assert newer.encode_columns(columns).codes[4].tolist() == [2], "it is missing"
    always = Schema.of([Declared(CITY)]).changed(
        [Declared(CITY), Declared(Boolean("vip"), before=True)], 1
    )
    assert always.rows_universe(1).encode_rows([{"city": "Bonn"}]).codes[1].tolist() == [1]


def test_a_version_that_comes_later_does_not_change_how_rows_are_read() -> None:
    renamed = Schema.of([Declared(CITY)]).changed(
        [Declared(Category("town", ("Bonn", "Graz", "Lyon")), was=("city",))], 1
    )
    for block in (0, 1):
        for name in ("city", "town"):
            codes = renamed.rows_universe(block).encode_columns({name: ["Lyon"]}).codes
            assert codes[block].tolist() == [2]


KEPT = Number("spent", (50.0,), measure=Measure(1.0, 0.0, 100.0))


def kept(low: float, high: float, *edges: float) -> Number:
    return Number("spent", (50.0, *edges), measure=Measure(1.0, low, high))


def test_only_sums_ask_within_which_bounds_values_are_kept() -> None:
    """Wider bounds change no cell, so what is published of the number is about all phases."""
    steps = (kept(0.0, 200.0), kept(-10.0, 200.0, 80.0), kept(-10.0, 300.0, 80.0))
    schema = Schema.of([Declared(KEPT)])
    for block, number in enumerate(steps, 1):
        schema = schema.changed([Declared(number)], block)
    assert [version.indices for version in schema.versions] == [(0,), (0,), (1,), (1,)]
    projection, every, last = Projection(schema), range(4), range(2, 4)
    high = Predicate.conjunction({1: np.array([False, False, True])})
    for count in (LinearQuery(high, last), LinearQuery(EVERYTHING, last, (1,))):
        assert projection.parts(count) is None
    ranked = LinearQuery(EVERYTHING, last, rank=Rank(1, 0.5, (0, 1, 2)))
    assert projection.parts(ranked) is None
    total = LinearQuery(EVERYTHING, every, total=total_of(1, steps[-1]))
    parts = projection.parts(total) or ()
    assert [part.query.window for part in parts] == [range(b, b + 1) for b in every]
    found = [part.query.total for part in parts]
    for one, index, number in zip(found, (0, 0, 1, 1), (KEPT, *steps), strict=True):
        assert isinstance(one, Total)
        assert (one.attribute, one.kept) == (index, total_of(index, number).kept)
    for part in parts:
        assert projection.parts(part.query) is None, "it is asked as its block keeps it"
    assert projection.parts(replace(total, window=range(3, 4))) is None
    assert projection.clamped_until(total) == 3


def test_a_limit_below_all_bounds_adds_up_alike_in_all_phases() -> None:
    schema = Schema.of([Declared(KEPT)]).changed([Declared(kept(0.0, 200.0))], 1)
    total = total_of(0, kept(0.0, 200.0))
    for limit, n_parts in ((50.0, None), (200.0, 2)):
        parts = Projection(schema).parts(
            LinearQuery(EVERYTHING, range(2), total=total.up_to(limit))
        )
        assert (parts and len(parts)) == n_parts


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (CITY, Number("city", (1.0,)), "another type"),
        (CITY, Category("city", ("Bonn",)), "no Graz any more"),
        (CITY, Category("city", ("Bonn", "Graz"), other=False), "no cell for other"),
        (CITY, Category("city", ("Bonn", "Graz"), ordered=True), "another order"),
        (
            Category("size", ("S", "M"), ordered=True),
            Category("size", ("M", "S"), ordered=True),
            "another order",
        ),
        (AGE, replace(AGE, missing=False), "missing values have a cell"),
        (AGE, replace(AGE, integer=True), "it changes"),
        (KEPT, replace(KEPT, measure=Measure(1.0, 0.0, 99.0)), "less wide"),
        (KEPT, replace(KEPT, measure=Measure(2.0, 0.0, 100.0)), "another unit"),
        (KEPT, replace(KEPT, measure=None), "another unit"),
        (
            Date("day", "month", "2026-01-01", "2026-07-01"),
            Date("day", "month", "2026-02-01", "2026-07-01"),
            "fewer periods",
        ),
        (
            Date("day", "month", "2026-01-01", "2026-07-01"),
            Date("day", "week", "2026-01-05", "2026-07-06"),
            "other periods",
        ),
    ],
)
def test_what_must_not_change(old: Attribute, new: Attribute, words: str) -> None:
    with pytest.raises(InvalidDefinition, match=words):
        Schema.of([Declared(old)]).changed([Declared(new)], 1)


def test_an_attribute_has_one_successor() -> None:
    schema = Schema.of([Declared(CITY), Declared(AGE)])
    town = Declared(Category("town", ("Bonn", "Graz")), was=("city",))
    with pytest.raises(InvalidDefinition, match="one successor"):
        schema.changed([Declared(CITY), town, Declared(AGE)], 1)
    with pytest.raises(InvalidDefinition, match="no age any more"):
        schema.changed([town], 1)
    with pytest.raises(InvalidDefinition, match="say nothing of it"):
        schema.changed([Declared(CITY), Declared(AGE), Declared(Boolean("vip"))], 1)
