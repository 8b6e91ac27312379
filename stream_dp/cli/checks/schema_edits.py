"""Other attributes of a data set: one edit each, and what the worker would refuse of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np

from stream_dp.cli.text.schema_changes import proposal_for
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.measured_values import MAX_UNITS
from stream_dp.errors import InvalidInput
from stream_dp.messages import (
    AttributeSpec,
    CalibratedSpec,
    CategoryAttribute,
    ChangeSchema,
    DateAttribute,
    Definition,
    NumberAttribute,
)
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.profiles.builder import universe_of
from stream_dp.profiles.planned_tiles import tiles_of

Fields: TypeAlias = dict[str, Any]
A = TypeVar("A")


def changed(definition: Definition, attributes: Sequence[Fields], first_phase: int) -> Definition:
    """Returns the definition with other attributes in force, as the worker would have it.

    Args:
        definition: The definition, with the versions of its attributes.
        attributes: All attributes.
        first_phase: The first phase that would have them.

    Raises:
        InvalidDefinition: The worker would refuse them. The error names the field and the fix.
    """
    number = definition.schema_version + 1
    about = {"version": 1, "dataset": definition.dataset, "change": "schema"}
    change = ChangeSchema.read(
        {**about, "schema_version": number, "attributes": list(attributes)}, quoting=True
    )
    found = definition.changed(change, first_phase)
    first, *others = definition.schema_versions
    engine = Engine(
        definition.model_copy(update={"attributes": first.attributes, "versions": None})
    )
    for version in (*others, found.schema_versions[-1]):
        known = definition.model_copy(update={"attributes": version.attributes})
        engine.change(known, version.first_phase - 1)
    return found


def fields_of(attributes: Sequence[AttributeSpec]) -> list[Fields]:
    """Returns attributes as a definition writes them."""
    return [
        one.model_dump(mode="json", exclude_none=True, exclude_defaults=True, by_alias=True)
        for one in attributes
    ]


def edited(
    definition: Definition, name: str, kind: type[A], edit: Callable[[A], Mapping[str, Any]]
) -> list[Fields]:
    """Returns the attributes of a data set, with some fields of one of them replaced.

    Args:
        definition: The definition.
        name: The attribute, by its name or by one that it had.
        kind: The type that it must have.
        edit: Returns the fields that are replaced.

    Raises:
        InvalidInput: There is no such attribute, or it has another type.
    """
    place = place_of(definition, name)
    one = definition.attributes[place]
    if not isinstance(one, kind):
        raise InvalidInput(name, f"it is a {one.type}", _FITTING[one.type])
    found = fields_of(definition.attributes)
    found[place] |= edit(one)
    return found


def place_of(definition: Definition, name: str) -> int:
    """Returns the place of an attribute.

    Raises:
        InvalidInput: There is none of this name.
    """
    for place, one in enumerate(definition.attributes):
        if name in one.names:
            return place
    names = ", ".join(one.name for one in definition.attributes)
    raise InvalidInput(name, f"{definition.dataset} has no such attribute", f"use one of {names}")


_FITTING = {
    "category": "a category has values: use add-value, rename --of or merge",
    "number": "a number has edges: use split, or widen where its values are kept",
    "date": "a date has bounds: use widen with --from or --until",
    "boolean": "it has two values for ever: use rename or deprecate",
}


def with_values(added: Sequence[str]) -> Callable[[CategoryAttribute], Fields]:
    """Returns the edit that adds values to a category."""

    def edit(one: CategoryAttribute) -> Fields:
        for value in added:
            if value in one.values or value in (one.also or {}):
                raise InvalidInput(one.name, f"it has the value {value} already", "leave it out")
        return {"values": [*one.values, *added]}

    return edit


def with_edges(added: Sequence[float]) -> Callable[[NumberAttribute], Fields]:
    """Returns the edit that adds edges to a number."""

    def edit(one: NumberAttribute) -> Fields:
        if one.representatives is not None:
            fix = "write the edges and the representatives into a file, and use apply"
            raise InvalidInput(one.name, "it has representatives, one for each bin", fix)
        if one.propose is not None:
            fix = "use accept, or write edges of your own into a file, and use apply"
            raise InvalidInput(one.name, "its edges are still to be proposed", fix)
        return {"edges": sorted({*one.edges, *added})}

    return edit


def renamed(definition: Definition, old: str, new: str) -> list[Fields]:
    """Returns the attributes of a data set, one of them under another name.

    Raises:
        InvalidInput: There is no such attribute, or another one has the name.
    """
    if any(new in one.names and old not in one.names for one in definition.attributes):
        raise InvalidInput(new, "another attribute has or had this name", "choose another one")
    found, place = fields_of(definition.attributes), place_of(definition, old)
    former = [name for name in definition.attributes[place].names if name != new]
    found[place] |= {"name": new, "was": former}
    return found


def counted_as(
    old: Sequence[str], new: str, *, is_new: bool = False
) -> Callable[[CategoryAttribute], Fields]:
    """Returns the edit that has values of a category count as another one.

    Args:
        old: The values.
        new: What they count as.
        is_new: Whether this must not be a value yet.
    """

    def edit(one: CategoryAttribute) -> Fields:
        if is_new and new in one.values:
            raise InvalidInput(one.name, f"it has the value {new} already", "use merge --into")
        for value in old:
            if value not in one.values:
                fix = f"use {', '.join(one.values[:10])}{', ...' * (len(one.values) > 10)}"
                raise InvalidInput(one.name, f"it has no value {value}", fix)
        values = [value for value in one.values if value not in old or value == new]
        if new not in values:
            values.insert(one.values.index(old[0]), new)
        gone = [value for value in old if value != new]
        also = {spelling: new if of in gone else of for spelling, of in (one.also or {}).items()}
        also.pop(new, None)
        return {"values": values, "also": {**also, **dict.fromkeys(gone, new)}}

    return edit


def kept_within(low: float | None, high: float | None) -> Callable[[NumberAttribute], Fields]:
    """Returns the edit that widens the bounds of the values that are kept of a number."""

    def edit(one: NumberAttribute) -> Fields:
        if one.measure is None:
            fix = "values can be kept from the beginning only: add an attribute with another name"
            raise InvalidInput(one.name, "its values are not kept", fix)
        ends = {"low": low, "high": high}
        said = {end: number for end, number in ends.items() if number is not None}
        return {"measure": {**one.measure.model_dump(), **said}}

    return edit


def with_proposed(definition: Definition) -> list[Fields]:
    """Returns the attributes of a data set with the edges that were proposed for them.

    Edges that conditions of the workload need are there too. Where the definition names a unit, values are
    kept, in a coarser unit if that one is too fine.

    Args:
        definition: The definition, as the catalog has it.

    Raises:
        InvalidInput: Nothing is proposed for any of them.
    """
    found, accepted = fields_of(definition.attributes), False
    for place, (one, fields) in enumerate(zip(definition.attributes, found, strict=True)):
        known = proposal_for(one, definition)
        if known is None or known.edges is None:
            continue
        accepted = True
        asked = fields.pop("propose")
        fields["edges"] = sorted({*known.edges, *_edges_of_tiles(definition, place)})
        if "unit" in asked and known.low is not None and known.high is not None:
            fields["measure"] = kept_between(known.low, known.high, asked["unit"])
    if not accepted:
        fix = (
            "`stream-dp schema show` says what is to come; `stream-dp schema apply` takes your own"
        )
        raise InvalidInput(definition.dataset, "no edges are proposed", fix)
    return found


def _edges_of_tiles(definition: Definition, place: int) -> Iterator[float]:
    """Yields the edges of a number at which conditions of the workload tell its cells apart."""
    assert isinstance(definition.mechanism, CalibratedSpec), "no other profile proposes edges"
    universe = universe_of(definition)
    number = universe.attributes[place]
    assert isinstance(number, Number), "edges are of numbers"
    for tile in tiles_of(definition.mechanism, universe):
        asked = tile.query.predicate
        if place in asked.attributes:
            cells = np.moveaxis(asked.mask, asked.attributes.index(place), 0)
            apart = (cells[1:] != cells[:-1]).reshape(len(cells) - 1, -1).any(axis=1)
            yield from (edge for edge, cut in zip(number.edges, apart, strict=False) if cut)


def kept_between(low: float, high: float, unit: float) -> Fields:
    """Returns how values between two bounds are kept: in a unit, or ten, a hundred, ... of it."""
    exact = Fraction(str(unit))
    while True:
        first, last = math.floor(Fraction(low) / exact), math.ceil(Fraction(high) / exact)
        if last - first <= MAX_UNITS:
            break
        exact *= 10
    return {"unit": float(exact), "low": float(first * exact), "high": float(last * exact)}


def dated_within(first: str | None, until: str | None) -> Callable[[DateAttribute], Fields]:
    """Returns the edit that widens the bounds of a date."""
    bounds = {"from": first, "until": until}
    said = {end: day for end, day in bounds.items() if day is not None}
    return lambda _: said
