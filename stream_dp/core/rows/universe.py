"""The universe of a data set, and how rows become its cells.

The universe is the product of the attributes' cells. Row to cell is total: whatever a row contains, it counts
in exactly one cell, so no row's content ever decides whether a batch is accepted. Only structure is refused,
with a text that is the same for every value: names, lengths of columns, counts, and values of thousands of
characters.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes import Attribute, Category, Date, Number, is_on_grid
from stream_dp.core.rows.attributes.attribute_base import COUNT, MAX_NAME
from stream_dp.core.rows.cell_shape import MAX_FLAT, Shape
from stream_dp.core.rows.column_values import AnyColumn, Codes, Column, Repeated
from stream_dp.core.rows.encoded_rows import MAX_ROWS, NOT_IN_FORCE, Counts, Rows, check_total
from stream_dp.core.rows.key_texts import Texts, texts_of
from stream_dp.core.rows.measured_values import MAX_MEASURED_ROWS, Offsets
from stream_dp.core.rows.person_slots import MAX_KEY_BYTES, Persons, Slots
from stream_dp.core.rows.row_moments import DateColumn
from stream_dp.errors import InvalidBatch, InvalidDefinition, InvalidQuery

_T = TypeVar("_T", bound=np.generic)

MAX_ATTRIBUTES = 64
MAX_KEPT_CELLS = 2**20
"""Largest universe of which a mechanism keeps every cell."""


@dataclass(frozen=True)
class Universe:
    """The finite set of possible rows: the product of the cells of the attributes in force.

    Attributes:
        attributes: All attributes. One that a later version of the schema has replaced stays where it is, so
            that an index means the same for ever.
        in_force: The indices of those that rows are encoded with. Default: all.
        former: Names that attributes in force had before, and their indices.
        optional: The indices of attributes in force whose column may be absent.
        ignored: Names of columns that a batch may have and that say nothing here.
        before: What a row says that lacks an optional column, by the index of the attribute; else nothing.

    Raises:
        InvalidDefinition: No attribute in force, more than 64, or two of one name.
    """

    attributes: tuple[Attribute, ...]
    in_force: tuple[int, ...] = ()
    former: Mapping[str, int] = field(default_factory=dict)
    optional: frozenset[int] = frozenset()
    ignored: frozenset[str] = frozenset()
    before: Mapping[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.in_force:
            object.__setattr__(self, "in_force", tuple(range(len(self.attributes))))
        if not 1 <= len(self.in_force) <= MAX_ATTRIBUTES:
            raise InvalidDefinition(
                "attributes",
                f"there are {len(self.in_force)} of them",
                f"declare 1 to {MAX_ATTRIBUTES}",
            )
        for position, name in enumerate(self.names):
            if name in self.names[:position]:
                raise InvalidDefinition(
                    f"attributes.{position}.name",
                    "an attribute before it has this name",
                    "rename one",
                )

    @cached_property
    def current(self) -> tuple[Attribute, ...]:
        """The attributes in force."""
        return tuple(self.attributes[index] for index in self.in_force)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes in force."""
        return tuple(a.name for a in self.current)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Cells of each attribute: a ``Shape`` where one with an order has more than ``MAX_FLAT``."""
        return self._shaped(tuple(a.size for a in self.attributes))

    @cached_property
    def rows_shape(self) -> tuple[int, ...]:
        """The same with one cell for each attribute that is not in force: what blocks of rows have."""
        if len(self.in_force) == len(self.attributes):
            return self.shape
        sizes = (a.size if i in self.in_force else 1 for i, a in enumerate(self.attributes))
        return self._shaped(tuple(sizes))

    @cached_property
    def planned_shape(self) -> tuple[int, ...]:
        """The same with one cell for each attribute on a grid, too: no plan is about these."""
        grids = {i for i in self.in_force if is_on_grid(self.attributes[i])}
        return self._shaped(tuple(1 if i in grids else n for i, n in enumerate(self.rows_shape)))

    def _shaped(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        ordered = [i for i, a in enumerate(self.attributes) if a.has_order]
        return Shape(sizes, ordered) if any(sizes[i] > MAX_FLAT for i in ordered) else sizes

    @cached_property
    def n_cells(self) -> int:
        """Cells of the universe; a Python int, for it may pass 2**64."""
        return math.prod(self.rows_shape)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Index of each attribute in force by its name, or by one that it had before."""
        return {**self.former, **dict(zip(self.names, self.in_force, strict=True))}

    @cached_property
    def measured(self) -> Mapping[int, Number]:
        """The attributes in force of which the values of rows are kept, by their index, ascending."""
        numbers = ((i, self.attributes[i]) for i in sorted(self.in_force))
        return {i: a for i, a in numbers if isinstance(a, Number) and a.measure is not None}

    @cached_property
    def folded(self) -> Mapping[int, Attribute]:
        """The attributes in force that say of a person what all rows of theirs say together."""
        return {
            index: self.attributes[index]
            for index in self.in_force
            if self.attributes[index].fold is not None
        }

    @cached_property
    def may_be_absent(self) -> frozenset[int]:
        """The attributes in force whose column may be absent: some folds are in no row."""
        absent = (index for index, one in self.folded.items() if one.in_no_row)
        return self.optional.union(absent)

    @cached_property
    def found(self) -> Mapping[int, Category]:
        """The attributes in force whose values are found."""
        return {
            index: one
            for index in self.in_force
            if isinstance(one := self.attributes[index], Category) and one.finds
        }

    @cached_property
    def _spellings(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The index of each attribute in force, and the names that its column may have."""
        return tuple(
            (index, (name, *(old for old, of in self.former.items() if of == index)))
            for index, name in zip(self.in_force, self.names, strict=True)
        )

    @property
    def max_rows(self) -> int:
        """Most rows that a block may count."""
        return MAX_MEASURED_ROWS if self.measured else MAX_ROWS

    def index(self, name: str, field_path: str = "attribute") -> int:
        """Index of the attribute called ``name``.

        Raises:
            InvalidQuery: There is none, at ``field_path`` of the query; says which names are near.
        """
        try:
            return self.positions[name]
        except (KeyError, TypeError):
            raise unknown_name(name, self.names, field_path) from None

    def encode_columns(
        self, columns: Mapping[str, AnyColumn], persons: Persons | None = None
    ) -> Rows:
        """Rows given column by column: one entry a row.

        Args:
            columns: A column for each attribute, and one of keys if there are ``persons``.
            persons: Reads whose rows these are; None where rows are protected.

        Raises:
            InvalidBatch: A column is absent, unknown or no list, or lengths differ.
        """
        self._check_names("columns", set(columns), persons, complete=True)
        if any(isinstance(c, str | bytes) for c in columns.values()):
            raise InvalidBatch("columns", "a column is not a list", "give a list of values")
        dates = {name for name, i in self.positions.items() if isinstance(self.attributes[i], Date)}
        if any(
            isinstance(c, DateColumn)
            for name, c in columns.items()
            if name not in dates and name not in self.ignored
        ):
            raise InvalidBatch(
                "columns",
                "a column of dates belongs to an attribute of another type",
                "send it as text, such as by a cast to pa.string()",
            )
        if len({len(c) for c in columns.values()}) > 1:
            raise InvalidBatch("columns", "lengths differ", "give every column one value a row")
        whose = None if persons is None else _whose(persons, columns)
        n_entries = len(next(iter(columns.values()), ()))
        given = [
            next((columns[n] for n in names if n in columns), [self.before.get(i)] * n_entries)
            for i, names in self._spellings
        ]
        return self._encoded(given, whose=whose)

    def encode_rows(
        self, rows: Sequence[Mapping[str, object]], persons: Persons | None = None
    ) -> Rows:
        """Rows given one by one; an absent attribute is a missing value, and a row without a key blank.

        Args:
            rows: The rows.
            persons: Reads whose rows these are; None where rows are protected.

        Raises:
            InvalidBatch: A row is not a mapping, or has a key that is not an attribute.
        """
        if not _all_mappings(rows):
            raise InvalidBatch("rows", "a row is not an object", "give name and value pairs")
        self._check_names("rows", set().union(*rows), persons, complete=False)
        whose = None
        if persons is not None:
            keys = {name: [row.get(name) for row in rows] for name in persons.columns}
            whose = _whose(persons, keys)
        return self._encoded(self._columns_of(rows), whose=whose)

    def encode_cells(self, cells: Sequence[Mapping[str, object]]) -> Rows:
        """Rows given as cells with a ``count`` each; an absent attribute is a missing value.

        They do not say whose they are, so a data set that protects persons does not take them.

        Raises:
            InvalidBatch: A fault as for rows, or a count is absent, not an integer or negative, or the counts
                sum to more than 2**62.
        """
        if not _all_mappings(cells):
            raise InvalidBatch("cells", "a cell is not an object", "give name and value pairs")
        self._check_names("cells", set().union(*cells) - {COUNT}, None, complete=False)
        counts = [cell.get(COUNT) for cell in cells]
        if not all(type(c) is int and c >= 0 for c in counts):
            raise InvalidBatch(
                "cells.count", "a count is not a whole number from 0", "give every cell one"
            )
        if self.found:
            raise InvalidBatch(
                "cells", "the values of an attribute are found, row by row", "send rows or columns"
            )
        check_total(sum(counts), "cells.count", self.max_rows)  # type: ignore[arg-type]
        return self._encoded(self._columns_of(cells), np.array(counts, dtype=np.int64))

    def _columns_of(self, rows: Sequence[Mapping[str, object]]) -> list[list[object]]:
        """A column for each attribute in force."""
        columns = []
        for index, (name, *former) in self._spellings:
            absent = self.before.get(index)
            if former:
                names = (name, *former)
                column = [next((row[n] for n in names if n in row), absent) for row in rows]
            else:
                column = [row.get(name, absent) for row in rows]
            columns.append(column)
        return columns

    def _encoded(
        self,
        columns: Sequence[AnyColumn],
        counts: Counts | None = None,
        whose: Slots | None = None,
    ) -> Rows:
        """The rows of columns, one for each attribute in force."""
        codes: list[Codes] = [NOT_IN_FORCE] * len(self.attributes)
        measures: dict[int, Offsets] = {}
        texts: dict[int, Texts] = {}
        for index, column in zip(self.in_force, columns, strict=True):
            attribute = self.attributes[index]
            if isinstance(column, DateColumn):
                assert isinstance(attribute, Date), "dates are refused for other attributes"
                codes[index] = attribute.encode_moments(column)
                continue
            values = column.values if isinstance(column, Repeated) else column
            if index in self.found:
                texts[index] = _spread(
                    texts_of(attribute.without_na(values), MAX_KEY_BYTES), column
                )
            elif index in self.measured:
                found, units = self.measured[index].encode_measured(values)
                codes[index], measures[index] = _spread(found, column), _spread(units, column)
            else:
                codes[index] = _spread(attribute.encode(values), column)
        return Rows(tuple(codes), counts, measures, whose, texts)

    def _check_names(
        self, field_path: str, given: set[str], persons: Persons | None, *, complete: bool
    ) -> None:
        keys = () if persons is None else persons.columns
        names = (*self.names, *keys)
        # The offending name is not repeated: in a row it is content.
        if given - {*names, *self.former, *self.ignored}:
            raise InvalidBatch(
                field_path,
                "a name is not an attribute of the data set",
                f"use {', '.join(names)}",
            )
        for _, spellings in self._spellings if self.former else ():
            if len(given.intersection(spellings)) > 1:
                raise InvalidBatch(
                    field_path,
                    f"there are two columns for {spellings[0]}, which had another name before",
                    "send one of them",
                )
        for key, says in zip(keys, ("whose", "which"), strict=False):
            if complete and key not in given:
                raise InvalidBatch(
                    field_path, f"there is no column {key}", f"it says {says} row each is"
                )
        absent = [
            spellings[0]
            for index, spellings in self._spellings
            if index not in self.may_be_absent and given.isdisjoint(spellings)
        ]
        if complete and absent:
            raise InvalidBatch(
                field_path,
                f"there is no column {', '.join(absent)}",
                "add a column for every attribute",
            )


def _spread(found: npt.NDArray[_T], column: AnyColumn) -> npt.NDArray[_T]:
    """What was found for the values of a column, for each row."""
    return np.take(found, column.indices, axis=0) if isinstance(column, Repeated) else found


def _whose(persons: Persons, columns: Mapping[str, AnyColumn]) -> Slots:
    column = columns[persons.key]
    assert not isinstance(column, DateColumn), "the caller refuses such keys"
    values = column.values if isinstance(column, Repeated) else column
    keys = () if persons.row is None else [_plain(columns[name]) for name in persons.columns]
    return persons.slots(_spread(persons.digests(values), column), tuple(keys))


def _plain(column: AnyColumn) -> Column:
    """The values of a column one by one."""
    assert not isinstance(column, DateColumn), "the caller refuses such keys"
    if isinstance(column, Repeated):
        return [column.values[index] for index in column.indices.tolist()]
    return column


def _all_mappings(items: Sequence[object]) -> bool:
    return all(issubclass(kind, Mapping) for kind in set(map(type, items)))


def unknown_name(name: object, names: Sequence[str], field_path: str) -> InvalidQuery:
    """The error for a name that no attribute has, with the near ones. It does not repeat the name."""
    near = difflib.get_close_matches(name[:MAX_NAME], names, 3) if isinstance(name, str) else []
    fix = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(names)}"
    return InvalidQuery(field_path, "there is no such attribute", fix, reason="unknown_attribute")


def check_kept_cells(n_cells: int) -> None:
    """Refuses a universe of which not every cell can be kept.

    Raises:
        InvalidDefinition: It has more than ``MAX_KEPT_CELLS``.
    """
    if n_cells > MAX_KEPT_CELLS:
        raise InvalidDefinition(
            "attributes",
            f"the universe has {n_cells:,} cells and this profile keeps every one",
            f'stay below {MAX_KEPT_CELLS:,} cells, or use the profile "calibrated"',
        )
