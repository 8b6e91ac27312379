"""Other attributes of a data set: one edit each, and what the worker would refuse of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from stream_dp.cli.text.schema_changes import proposal_for
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
    from stream_dp.pipeline.datasets.engine import Engine  # which takes a while to load

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


def fields_of(one: AttributeSpec) -> Fields:
    """Returns an attribute as a definition writes it."""
    return one.model_dump(mode="json", exclude_none=True, exclude_defaults=True, by_alias=True)


def _named(definition: Definition, name: str) -> AttributeSpec:
    """Returns an attribute, by its name or by one that it had.

    Raises:
        InvalidInput: There is none of this name.
    """
    for one in definition.attributes:
        if name in one.names:
            return one
    names = ", ".join(one.name for one in definition.attributes)
    raise InvalidInput(name, f"{definition.dataset} has no such attribute", f"use one of {names}")


def _found(definition: Definition, name: str, kind: type[A]) -> A:
    """Returns an attribute of a kind.

    Raises:
        InvalidInput: There is no such attribute, or it has another type.
    """
    one = _named(definition, name)
    if not isinstance(one, kind):
        raise InvalidInput(name, f"it is a {one.type}", _FITTING[one.type])
    return one


_FITTING = {
    "category": "a category has values: use add-value, rename --of or merge",
    "number": "a number has edges: use split, or widen where its values are kept",
    "date": "a date has bounds: use widen with --from or --until",
    "boolean": "it has two values for ever: use rename or deprecate",
}


def _replaced(definition: Definition, changed: object, **fields: Any) -> list[Fields]:
    """Returns the attributes of a data set, with some fields of one of them replaced."""
    return [fields_of(one) | (fields if one is changed else {}) for one in definition.attributes]


def with_values(definition: Definition, name: str, added: Sequence[str]) -> list[Fields]:
    """Returns the attributes of a data set, with more values of a category.

    Raises:
        InvalidInput: There is no such category, or it has one of the values.
    """
    one = _found(definition, name, CategoryAttribute)
    for value in added:
        if value in one.values or value in (one.also or {}):
            raise InvalidInput(one.name, f"it has the value {value} already", "leave it out")
    return _replaced(definition, one, values=[*one.values, *added])


def with_edges(definition: Definition, name: str, added: Sequence[float]) -> list[Fields]:
    """Returns the attributes of a data set, with more edges of a number.

    Raises:
        InvalidInput: There is no such number, or its edges cannot be split.
    """
    one = _found(definition, name, NumberAttribute)
    if one.representatives is not None:
        fix = "write the edges and the representatives into a file, and use apply"
        raise InvalidInput(one.name, "it has representatives, one for each bin", fix)
    if one.propose is not None:
        fix = "use accept, or write edges of your own into a file, and use apply"
        raise InvalidInput(one.name, "its edges are still to be proposed", fix)
    return _replaced(definition, one, edges=sorted({*one.edges, *added}))


def with_bounds(definition: Definition, name: str, bounds: Mapping[str, float]) -> list[Fields]:
    """Returns the attributes of a data set, with other bounds of the values that are kept of a number.

    Raises:
        InvalidInput: There is no such number, or its values are not kept.
    """
    one = _found(definition, name, NumberAttribute)
    if one.measure is None:
        fix = "values can be kept from the beginning only: add an attribute with another name"
        raise InvalidInput(one.name, "its values are not kept", fix)
    return _replaced(definition, one, measure={**one.measure.model_dump(), **bounds})


def with_periods(definition: Definition, name: str, bounds: Mapping[str, str]) -> list[Fields]:
    """Returns the attributes of a data set, with other bounds of a date.

    Raises:
        InvalidInput: There is no such date.
    """
    return _replaced(definition, _found(definition, name, DateAttribute), **bounds)


def deprecated(definition: Definition, name: str) -> list[Fields]:
    """Returns the attributes of a data set, one of which rows need not have any more.

    Raises:
        InvalidInput: There is no such attribute.
    """
    return _replaced(definition, _named(definition, name), deprecated=True)


def renamed(definition: Definition, old: str, new: str) -> list[Fields]:
    """Returns the attributes of a data set, one of them under another name.

    Raises:
        InvalidInput: There is no such attribute, or another one has the name.
    """
    if any(new in one.names and old not in one.names for one in definition.attributes):
        raise InvalidInput(new, "another attribute has or had this name", "choose another one")
    one = _named(definition, old)
    return _replaced(definition, one, name=new, was=[name for name in one.names if name != new])


def counted_as(
    definition: Definition, name: str, old: Sequence[str], new: str, *, is_new: bool = False
) -> list[Fields]:
    """Returns the attributes of a data set, with values of a category that count as another one.

    Args:
        definition: The definition.
        name: The category.
        old: The values.
        new: What they count as.
        is_new: Whether this must not be a value yet.

    Raises:
        InvalidInput: There is no such category or value, or the new one is there.
    """
    one = _found(definition, name, CategoryAttribute)
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
    return _replaced(definition, one, values=values, also={**also, **dict.fromkeys(gone, new)})


def with_proposed(definition: Definition) -> list[Fields]:
    """Returns the attributes of a data set with the edges that were proposed for them.

    Edges that conditions of the workload need are there too. Where the definition names a unit, values are
    kept, in a coarser unit if that one is too fine.

    Args:
        definition: The definition, as the catalog has it.

    Raises:
        InvalidInput: Nothing is proposed for any of them.
    """
    found, accepted = [*map(fields_of, definition.attributes)], False
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
    import numpy as np

    from stream_dp.core.rows.attributes import Number
    from stream_dp.profiles.builder import universe_of
    from stream_dp.profiles.planned_tiles import tiles_of

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
    from stream_dp.core.rows.measured_values import MAX_UNITS

    exact = Fraction(str(unit))
    while True:
        first, last = math.floor(Fraction(low) / exact), math.ceil(Fraction(high) / exact)
        if last - first <= MAX_UNITS:
            break
        exact *= 10
    return {"unit": float(exact), "low": float(first * exact), "high": float(last * exact)}
