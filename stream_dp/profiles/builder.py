"""From a definition to the objects of the core that serve it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from stream_dp.attribute_dates import Zone
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.attribute_versions import Declared, Schema
from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number
from stream_dp.core.rows.attributes.boolean import RowCondition
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.proposed_bounds import WantedBounds
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition, InvalidQuery
from stream_dp.messages import AttributeSpec, CalibratedSpec, Definition
from stream_dp.profiles.calibrated_profile import CALIBRATED
from stream_dp.profiles.line_units import privacy_of
from stream_dp.profiles.papers import PAPERS
from stream_dp.profiles.planned_tiles import tiles_of
from stream_dp.profiles.profile import Profile, Setup
from stream_dp.profiles.running_tiles import running_of

PROFILES: Final[Mapping[str, Profile[Any]]] = {
    profile.name: profile for profile in (CALIBRATED, *PAPERS)
}
"""By the value of ``mechanism.profile`` that chooses it."""


def profile_of(definition: Definition) -> Profile[Any]:
    """The profile that a definition names."""
    return PROFILES[definition.mechanism.profile]


def build(definition: Definition) -> tuple[Universe, Mechanism]:
    """The universe and a fresh mechanism of a data set.

    Raises:
        InvalidDefinition: The definition's parts do not fit together; names the field and the fix.
    """
    universe = universe_of(definition)
    privacy = privacy_of(definition)
    accuracy = Accuracy(definition.accuracy.error, definition.accuracy.failure_probability)
    setup = Setup(definition, universe, privacy, accuracy)
    return universe, profile_of(definition).make(definition.mechanism, setup)


def universe_of(definition: Definition) -> Universe:
    """The universe of a data set.

    Raises:
        InvalidDefinition: An attribute is not what it must be; names the field and the fix.
    """
    return Universe(tuple(_attributes(definition)))


def declared_in(definition: Definition) -> list[Declared]:
    """The newest attributes of a data set, as its schema takes them.

    Raises:
        InvalidDefinition: An attribute is not what it must be; names the field and the fix.
    """
    return [
        Declared(attribute, spec.was or (), spec.before, deprecated=spec.deprecated is True)
        for attribute, spec in zip(_attributes(definition), definition.attributes, strict=True)
    ]


def change_schema(mechanism: Mechanism, definition: Definition, schema: Schema) -> None:
    """Has a mechanism go on with another version of the attributes.

    Raises:
        InvalidDefinition: The data set cannot have another version.
    """
    if not mechanism.takes_schemas or definition.synthetic_rows:
        raise InvalidDefinition(
            "attributes",
            "the attributes of this data set cannot change: it has another profile than calibrated, other "
            "kinds of queries, or synthetic rows",
            "define a new data set",
        )
    assert isinstance(definition.mechanism, CalibratedSpec), (
        "no other profile takes another version"
    )
    universe = schema.newest.universe
    try:
        tiles, running = tiles_of(definition.mechanism, universe), running_of(definition, universe)
    except InvalidDefinition as fault:
        what = "running totals" if fault.field.startswith("running") else "the workload"
        fix = f"{what} cannot change: leave the edges, values and names that it asks about"
        raise InvalidDefinition(fault.field, fault.problem, fix) from None
    mechanism.change_schema(schema, tiles, running)


def line_of(definition: Definition) -> dict[str, str]:
    """Returns what a line (a block's privacy budget) may hold, in exact fractions: public, for the ledger."""
    return profile_of(definition).unit.holds(definition)


def epsilon_spent(definition: Definition, share: float) -> float:
    """The loss of a line that spent this share of its budget, as epsilon at the promised delta."""
    return profile_of(definition).unit.epsilon(definition, share)


def rows_of_a_phase(definition: Definition) -> int:
    """Returns how many waiting rows open a phase. The papers' mechanisms may need more than was asked for."""
    if definition.mechanism.papers is None:
        return definition.phase.min_rows
    return rows_that_open(build(definition)[1], definition)


def rows_that_open(mechanism: Mechanism, definition: Definition) -> int:
    """Returns how many waiting rows open a phase, where the definition's mechanism is there already."""
    return max(definition.phase.min_rows, mechanism.rows_to_open)


def _attributes(definition: Definition) -> list[Attribute]:
    """The attributes, of which some follow from others."""
    found = [_attribute(index, spec) for index, spec in enumerate(definition.attributes)]
    trees = {
        index: spec.where
        for index, spec in enumerate(definition.attributes)
        if spec.type == "boolean" and spec.where is not None
    }
    if not trees:
        return found
    plain = Universe(tuple(found))
    for index, tree in trees.items():
        boolean = found[index]
        assert isinstance(boolean, Boolean), "it is one by its type"
        condition = _condition(plain, tree, f"attributes.{index}.where")
        found[index] = replace(boolean, where=condition)
    return found


def _condition(universe: Universe, tree: dict[str, Any], field: str) -> RowCondition:
    """The condition of a boolean on other attributes of the same row."""
    try:
        predicate = compile_where(universe, tree)
    except InvalidQuery as fault:
        raise InvalidDefinition(
            fault.field.replace("where", field, 1), fault.problem, fault.fix
        ) from None
    if predicate.constant is not None:
        raise InvalidDefinition(field, "it holds for all rows, or for none", "write another one")
    attributes = [universe.attributes[index] for index in predicate.attributes]
    for one in attributes:
        if one.fold is not None or (isinstance(one, Category) and one.finds):
            raise InvalidDefinition(
                field,
                f"it is about {one.name}, which is not known of each row by itself",
                "name attributes without fold and without find",
            )
    names = tuple(one.name for one in attributes)
    return RowCondition(json.dumps(tree, sort_keys=True), names, predicate.mask)


def _attribute(index: int, spec: AttributeSpec) -> Attribute:
    name = spec.name
    absent: dict[str, Any] = {"missing": spec.missing, "na": spec.na or ()}
    try:
        if spec.type == "category":
            also = tuple((spec.also or {}).items())
            return Category(
                name,
                spec.values,
                other=spec.other,
                ordered=spec.ordered,
                also=also,
                fold=spec.fold,
                spare=0 if spec.find is None else spec.find.most - len(spec.values),
                finds=spec.find is not None,
                **absent,
            )
        if spec.type == "number":
            said, wanted = spec.measure, spec.propose
            return Number(
                name,
                spec.edges,
                integer=spec.integer,
                representatives=spec.representatives,
                measure=None if said is None else Measure(said.unit, said.low, said.high),
                wanted=None if wanted is None else WantedBounds(wanted.bins, wanted.share),
                fold=spec.fold,
                of=spec.of,
                **absent,
            )
        if spec.type == "date":
            zone = Zone(spec.timezone or "UTC")
            return Date(
                name,
                spec.by,
                spec.first,
                spec.until,
                zone=zone,
                epoch=spec.epoch,
                fold=spec.fold,
                **absent,
            )
        return Boolean(name, fold=spec.fold, **absent)
    except InvalidDefinition as fault:
        field = f"attributes.{index}.{fault.field}"
        raise InvalidDefinition(field, fault.problem, fault.fix) from None
