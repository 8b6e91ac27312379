"""The attributes of a data set, version by version, and what rows of older phases say in the newest one.

An attribute that changes its cells gets another index, and so does one that is added. The index that it had
stays as it was: what was published of it keeps its meaning, and serves queries for ever. Where its values are
kept within wider bounds alone, its index stays, and only sums ask which version a row has. All of this is
public (docs/proofs, Theorem 33).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number, is_on_grid
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition

Mask = npt.NDArray[np.bool_]

_EARLY = "0001-01-01T00:00"
"""A time before all bounds of dates."""


@dataclass(frozen=True)
class Declared:
    """An attribute as a version of the schema declares it.

    Attributes:
        attribute: The attribute.
        was: Names that it had before.
        before: What rows say that do not have it yet. None for a missing value.
        deprecated: Whether rows need not have it any more.
    """

    attribute: Attribute
    was: tuple[str, ...] = ()
    before: object = None
    deprecated: bool = False


@dataclass(frozen=True)
class Relation:
    """What rows in the cells of an attribute may say, by the cells of a newer version of it.

    Attributes:
        maybe: Whether rows in an old cell may be in a new one, shape (old cells, new cells).
        counts_as: The same for the cells that they count as. Rows that had no cell of their own count as
            ``other``, whatever values were declared later.
    """

    maybe: Mask
    counts_as: Mask

    @cached_property
    def place(self) -> npt.NDArray[np.intp]:
        """The new cell of the rows in each old cell, shape (old cells,). -1 where it may be several."""
        one = self.counts_as.sum(axis=1) == 1
        return np.where(one, self.counts_as.argmax(axis=1), -1)

    def surely(self, mask: Mask, axis: int) -> Mask:
        """Marks, along an axis of new cells, the old cells whose rows are in a mask whatever they say."""
        outside = np.tensordot(~mask, self.counts_as.astype(np.int64), axes=(axis, 1)) > 0
        return np.moveaxis(~outside, -1, axis)

    def possibly(self, mask: Mask, axis: int) -> Mask:
        """Marks the old cells whose rows may be in a mask."""
        inside = np.tensordot(mask, self.maybe.astype(np.int64), axes=(axis, 1)) > 0
        return np.moveaxis(inside, -1, axis)


@dataclass(frozen=True)
class Version:
    """The attributes that the rows of some phases have.

    Attributes:
        first: The first block with them.
        universe: What rows are encoded with.
        indices: The index of each attribute of the newest version that this one has, by its place there: for
            ever the same attribute, whatever its names and cells.
        declared: The attributes, in the same order.
    """

    first: int
    universe: Universe
    indices: tuple[int, ...]
    declared: tuple[Declared, ...]

    def with_found(self, index: int, values: Sequence[str]) -> Version:
        """The same version, where values of an attribute were found."""
        if index not in self.indices:
            return self
        place, declared = self.indices.index(index), list(self.declared)
        attribute = declared[place].attribute
        assert isinstance(attribute, Category), "others find no values"
        declared[place] = replace(declared[place], attribute=attribute.with_found(values))
        attributes = list(self.universe.attributes)
        attributes[index] = declared[place].attribute
        universe = replace(self.universe, attributes=tuple(attributes))
        return replace(self, universe=universe, declared=tuple(declared))

    def names_at(self, place: int) -> set[str]:
        """The names that the attribute at a place has and had; none where there is no such attribute."""
        if place >= len(self.declared):
            return set()
        one = self.declared[place]
        return {one.attribute.name, *one.was}


@dataclass(frozen=True)
class Schema:
    """All versions of the attributes of one data set. It is public, and a change makes a new one.

    Attributes:
        versions: The versions, the oldest first.
    """

    versions: tuple[Version, ...]
    _relations: dict[tuple[int, int], Relation] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, declared: Sequence[Declared]) -> Schema:
        """The schema of a data set that has one version.

        Raises:
            InvalidDefinition: No attribute, too many, or two of one name.
        """
        universe = Universe(tuple(one.attribute for one in declared))
        return cls((Version(0, universe, universe.in_force, tuple(declared)),))

    @property
    def newest(self) -> Version:
        """The version that queries are asked in."""
        return self.versions[-1]

    def at(self, block: int) -> Version:
        """The version of a block."""
        return next(v for v in reversed(self.versions) if v.first <= block)

    def shape_at(self, block: int) -> tuple[int, ...]:
        """The cells of each attribute in the rows of a block, 1 for those that they do not have."""
        return self.at(block).universe.rows_shape

    def with_found(self, index: int, values: Sequence[str]) -> Schema:
        """The same versions, where values of an attribute were found: its cells stay."""
        return Schema(tuple(version.with_found(index, values) for version in self.versions))

    # ------------------------------------------------------------ a change

    def changed(self, declared: Sequence[Declared], first: int) -> Schema:
        """The schema with one more version.

        Args:
            declared: The attributes of it, with all that there were before.
            first: The first block with them.

        Raises:
            InvalidDefinition: It changes what must not change; names the field and the fix.
        """
        newest = self.newest
        known: dict[str, int] = {}
        for place, one in enumerate(newest.declared):
            known |= dict.fromkeys((one.attribute.name, *one.was), place)
        places: dict[int, int] = {}  # by the place before, the place in what is declared now
        for at, one in enumerate(declared):
            found = {known[name] for name in (one.attribute.name, *one.was) if name in known}
            if len(found) > 1 or found & places.keys():
                raise InvalidDefinition(
                    f"attributes.{at}.was",
                    "it takes the place of two attributes, or of one that another takes",
                    "give each attribute one successor, or keep it under its name",
                )
            places |= dict.fromkeys(found, at)
        for place, one in enumerate(newest.declared):
            if place not in places:
                raise InvalidDefinition(
                    "attributes",
                    f"there is no {one.attribute.name} any more",
                    'leave it there, with "deprecated": true if rows will not have it',
                )
        order = [places[place] for place in range(len(newest.declared))]
        order += [at for at in range(len(declared)) if at not in places.values()]
        attributes, indices = list(newest.universe.attributes), []
        for place, at in enumerate(order):
            one = declared[at]
            if place >= len(newest.declared):
                self._check_added(at, one)
                indices.append(len(attributes))
                attributes.append(one.attribute)
                continue
            index, old = newest.indices[place], newest.declared[place].attribute
            _check_change(at, old, one.attribute)
            if _is_same(old, one.attribute):
                attributes[index] = one.attribute  # by its name, or by what is missing
            else:
                index = len(attributes)
                attributes.append(one.attribute)
            indices.append(index)
        now = tuple(declared[at] for at in order)
        names = {one.attribute.name for one in now}
        former = {
            name: index
            for index, one in zip(indices, now, strict=True)
            for name in one.was
            if name not in names
        }
        universe = Universe(tuple(attributes), tuple(indices), former)
        version = Version(first, universe, tuple(indices), now)
        return Schema((*(v for v in self.versions if v.first < first), version))

    def _check_added(self, at: int, one: Declared) -> None:
        if isinstance(one.attribute, Category) and one.attribute.finds:
            raise InvalidDefinition(
                f"attributes.{at}.find",
                "each line has kept delta for finding values since the first phase, or has not",
                "list values, or define a new data set",
            )
        if one.before is None and not one.attribute.missing:
            raise InvalidDefinition(
                f"attributes.{at}",
                "rows of older phases say nothing of it",
                'add "missing": true, or "before" with the value that they count as',
            )

    def rows_universe(self, block: int) -> Universe:
        """What the rows of a block are encoded with. Their columns may have the names of any version.

        Columns of attributes that the block does not have say nothing. One that another version does not
        have may be absent.
        """
        if len(self.versions) == 1:
            return self.versions[0].universe
        version = self.at(block)
        universe = version.universe
        former: dict[str, int] = {}
        ignored: set[str] = set()
        for place in range(len(self.newest.declared)):
            names = {name for v in self.versions for name in v.names_at(place)}
            if place < len(version.indices):
                former |= dict.fromkeys(names - {*universe.names}, version.indices[place])
            else:
                ignored |= names
        always = min(len(v.indices) for v in self.versions)
        declared = list(zip(version.indices, version.declared, strict=True))
        return replace(
            universe,
            former=former,
            ignored=frozenset(ignored - {*universe.names}),
            optional=frozenset(
                index
                for place, (index, one) in enumerate(declared)
                if place >= always or one.deprecated
            ),
            before={index: one.before for index, one in declared if one.before is not None},
        )

    def has(self, block: int, indices: Sequence[int]) -> bool:
        """Whether the rows of a block have all of some attributes."""
        return {*indices} <= {*self.at(block).indices}

    # ------------------------------------------------------------ across versions

    @cached_property
    def grids(self) -> dict[int, int]:
        """The first block of each attribute whose edges are still to be proposed, by its index."""
        universe = self.newest.universe
        return {
            index: next(v.first for v in self.versions if index in v.indices)
            for index in universe.in_force
            if is_on_grid(universe.attributes[index])
        }

    def index_at(self, index: int, version: Version) -> int | None:
        """The index that an attribute of the newest version has in an older one; None if it has none."""
        try:
            place = self.newest.indices.index(index)
        except ValueError:
            return index  # of an older version itself
        return version.indices[place] if place < len(version.indices) else None

    def relation(self, old: int, new: int) -> Relation:
        """What rows of an attribute say in a newer version of it."""
        found = self._relations.get((old, new))
        if found is None:
            attributes = self.newest.universe.attributes
            found = self._relations[old, new] = relation_of(attributes[old], attributes[new])
        return found

    def before_cell(self, index: int) -> int:
        """The cell of an attribute that rows are in which do not have it yet."""
        declared = self.newest.declared[self.newest.indices.index(index)]
        return int(declared.attribute.encode([declared.before])[0])


def relation_of(old: Attribute, new: Attribute) -> Relation:
    """What rows in the cells of an attribute may say in another version of it.

    Every value that a row may have is in the cells of some sample of the two.
    """
    raw = [*_samples(old, new)]
    before, after = old.encode(raw), new.encode(raw)
    maybe = np.zeros((old.size, new.size), np.bool_)
    maybe[before, after] = True
    counts_as = maybe.copy()
    others = [one.other_cell for one in (old, new) if isinstance(one, Category)]
    if len(others) == 2 and None not in others:
        counts_as[others[0]] = False
        counts_as[others[0], others[1]] = True
    return Relation(maybe, counts_as)


def _samples(old: Attribute, new: Attribute) -> list[Any]:
    raw: list[Any] = [*old.samples, *new.samples, *old.na, *new.na, None]
    if isinstance(old, Category) and isinstance(new, Category):
        raw += [spelling for spelling, _ in (*old.also, *new.also)]
        # A value with another name now was not said by that name before.
        renamed = {value for spelling, value in new.also if spelling in old.cell_of}
        raw = [value for value in raw if value not in renamed or value in old.cell_of]
        raw.append("?" * (2 + max(len(str(value)) for value in raw)))
    if isinstance(old, Date) and isinstance(new, Date) and old.edges:
        raw = [*old.edge_labels, *new.edge_labels, *old.na, *new.na, _EARLY, None]
    return raw


def _is_same(old: Attribute, new: Attribute) -> bool:
    """Whether all that is published of one is also about the other: labels may differ, cells do not."""
    if old.size != new.size or not np.array_equal(relation_of(old, new).maybe, np.eye(old.size)):
        return False
    if isinstance(old, Number) and isinstance(new, Number):
        return (old.edges, old.values) == (new.edges, new.values)
    return True


def _check_change(at: int, old: Attribute, new: Attribute) -> None:
    """Refuses what a version must not change.

    Raises:
        InvalidDefinition: Another type, unit, time zone or order, or less than there was.
    """
    field_path = f"attributes.{at}"
    if type(old) is not type(new):
        raise InvalidDefinition(
            f"{field_path}.type", "it has another type", "add an attribute with another name"
        )
    if old.missing and not new.missing:
        raise InvalidDefinition(
            f"{field_path}.missing", "missing values have a cell", "leave it as it is"
        )
    is_other = old.fold == "since" and replace(old, name=new.name) != new
    if isinstance(old, Boolean) and isinstance(new, Boolean):
        is_other = old.where != new.where
    if old.fold != new.fold or is_other:
        raise InvalidDefinition(
            f"{field_path}.fold", "rows are folded otherwise", "add an attribute with another name"
        )
    match old, new:
        case Category(), Category():
            _check_values(field_path, old, new)
        case Number(), Number():
            _check_measure(field_path, old, new)
        case Date(), Date():
            if (old.by, old.zone, old.epoch) != (new.by, new.zone, new.epoch):
                raise InvalidDefinition(
                    field_path,
                    "it has other periods, another time zone or another epoch",
                    "add an attribute with another name",
                )
            fits = new.edges[:1] <= old.edges[:1] and old.edges[-1:] <= new.edges[-1:]
            if not fits:
                raise InvalidDefinition(
                    f"{field_path}.from", "it has fewer periods", "use bounds at least as wide"
                )
        case Boolean(), Boolean():
            pass


def _check_values(field_path: str, old: Category, new: Category) -> None:
    if (old.finds or new.finds) and replace(old, name=new.name) != new:
        raise InvalidDefinition(
            f"{field_path}.find",
            "values of it are found, and it changes",
            "leave all but its name as it is in the catalog, or add another attribute",
        )
    if old.ordered != new.ordered or (old.other and not new.other):
        raise InvalidDefinition(
            field_path,
            "it has another order, or no cell for other values any more",
            "leave ordered and other as they are",
        )
    gone = [value for value in old.values if value not in new.cell_of]
    if gone:
        raise InvalidDefinition(
            f"{field_path}.values",
            f"there is no {gone[0]} any more",
            'leave it there, or write in "also" which value it counts as',
        )
    kept = [new.cell_of[value] for value in old.values]
    if old.ordered and kept != sorted(kept):
        raise InvalidDefinition(
            f"{field_path}.values", "its values have another order", "leave their order"
        )


def _check_measure(field_path: str, old: Number, new: Number) -> None:
    if old.integer != new.integer:
        raise InvalidDefinition(
            f"{field_path}.integer", "it changes", "add an attribute with another name"
        )
    if is_on_grid(old) or (old.measure is None and new.measure is None):
        return
    if old.measure is None or new.measure is None or old.measure.unit != new.measure.unit:
        raise InvalidDefinition(
            f"{field_path}.measure",
            "values are kept in another unit, or in one version only",
            "leave its unit, or add an attribute with another name",
        )
    if new.measure.low > old.measure.low or new.measure.high < old.measure.high:
        raise InvalidDefinition(
            f"{field_path}.measure", "its bounds are less wide", "use bounds at least as wide"
        )
