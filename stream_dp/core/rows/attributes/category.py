"""Attributes that are a value out of a list."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Literal

import numpy as np

from stream_dp.core.rows.attributes.attribute_base import AttributeBase, first_of
from stream_dp.core.rows.column_values import (
    MAX_VALUE,
    Codes,
    Column,
    Scalar,
    parsed_number,
    scalars_of,
)
from stream_dp.errors import InvalidDefinition


@dataclass(frozen=True)
class Category(AttributeBase):
    """A value out of a declared list.

    Cells: the values in order, then ``other`` (every unlisted value), then ``missing``. A missing value goes
    to ``missing``, else to ``other``, else to cell 0; an unlisted one to ``other``, else to ``missing``, else
    to cell 0. In a row a whole number stands for its decimal text, another float for its shortest one, and
    a bool for "true" or "false".

    Attributes:
        values: The declared list.
        other: Whether unlisted values have a cell.
        missing: Whether missing values have a cell.
        ordered: Whether the order of the list is one of the values. Unlisted ones have no place in it.
        na: Texts of values that count as missing.
        also: Other spellings of listed values, such as former ones, and the value that each counts as.
        spare: The number of cells for values that are found later.
        finds: Whether values are found. Rows then keep what they say until their block is sealed.
        fold: Whether the first or the last row of a person that has a value says it.

    Raises:
        InvalidDefinition: No values, a repeated or an overlong one, too many cells, or a spelling that is
            listed or of a value that is not.
    """

    name: str
    values: tuple[str, ...]
    other: bool = True
    missing: bool = False
    ordered: bool = False
    na: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    spare: int = 0
    finds: bool = False
    fold: Literal["first", "last"] | None = None

    @property
    def has_order(self) -> bool:
        return self.ordered

    @property
    def orders_all(self) -> bool:
        return self.ordered and not self.other

    def __post_init__(self) -> None:
        self._check()
        field_path = "values"
        if not self.values and not self.spare:
            raise InvalidDefinition(
                field_path, "no value is listed", "list the values to tell apart"
            )
        for value in self.values:
            if not isinstance(value, str) or len(value) > MAX_VALUE or not _is_text(value):
                raise InvalidDefinition(
                    field_path,
                    "a value is not a string",
                    f"use strings of at most {MAX_VALUE} characters",
                )
        if len(set(self.values)) != len(self.values):
            raise InvalidDefinition(field_path, "a value is listed twice", "list each value once")
        self._check_na((*self.values, *dict(self.also)))
        for spelling, value in self.also:
            if spelling in self.values or value not in self.values:
                raise InvalidDefinition(
                    "also",
                    "it has a value that is listed, or counts one as a value that is not",
                    "name spellings that values lacks, and the listed value that each counts as",
                )
        self._check_size(field_path)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        extra = ("other",) * self.other + ("missing",) * self.missing
        # A listed value may itself be called "other"; labels still tell the cells apart.
        told = tuple(f"({e})" if e in self.values else e for e in extra)
        return (*self.values, *self._spares, *told)

    @cached_property
    def _spares(self) -> tuple[str, ...]:
        """What stands for values that are found later. No text of a row has such a character."""
        n = len(self.values)
        return tuple(f"\0{cell}" for cell in range(n, n + self.spare))

    @property
    def told(self) -> Sequence[bool]:
        listed, spare = (True,) * len(self.values), (False,) * self.spare
        return (*listed, *spare, *(True,) * (self.other + self.missing))

    def with_found(self, values: Sequence[str]) -> Category:
        """The same cells, where the first spare ones are of these values by now."""
        return replace(self, values=(*self.values, *values), spare=self.spare - len(values))

    @cached_property
    def samples(self) -> tuple[Scalar, ...]:
        unlisted = "?" * (1 + max(map(len, (*self.values, ""))))
        return (*self.values, *self._spares, *(unlisted,) * self.other, *(None,) * self.missing)

    @cached_property
    def other_cell(self) -> int | None:
        """The cell of unlisted values; None when not declared."""
        return len(self.values) + self.spare if self.other else None

    @cached_property
    def cell_of(self) -> Mapping[object, int]:
        """Cell of each listed value, under every scalar but a bool that may stand for it in a row."""
        table: dict[object, int] = {}
        cells = {value: cell for cell, value in enumerate((*self.values, *self._spares))}
        cells |= {spelling: cells[value] for spelling, value in self.also}
        for value, cell in cells.items():
            table[value] = cell
            number = _number_spelt(value)
            if number is not None:
                table[number] = cell
        return table

    @cached_property
    def _missing_code(self) -> int:
        return first_of(self.missing_cell, self.other_cell)

    @cached_property
    def _unlisted_code(self) -> int:
        return first_of(self.other_cell, self.missing_cell)

    def encode(self, column: Column) -> Codes:
        """Codes of a column, shape (n_entries,). Total: no value raises, but for its length."""
        values, types = scalars_of(self.without_na(column))
        if bool in types:  # True == 1 as a key, but they stand for different texts
            values = [v if type(v) is not bool else _bool_text(v) for v in values]
        table = self.cell_of
        if type(None) in types:
            table = {**table, None: self._missing_code}
        codes = np.fromiter(
            map(table.get, values, repeat(self._unlisted_code)), self.dtype, len(values)
        )
        if float in types:
            is_nan = np.fromiter(map(operator.ne, values, values), np.bool_, len(values))
            codes[is_nan] = self._missing_code
        return codes


def _number_spelt(text: str) -> int | float | None:
    """The number whose text in a row is exactly ``text``, if there is one."""
    number = parsed_number(text)
    if isinstance(number, float) and not number.is_integer():
        return number if repr(number) == text else None
    return number if isinstance(number, int) and str(number) == text else None


def _bool_text(value: Scalar) -> str:
    return "true" if value else "false"


def _is_text(value: str) -> bool:
    """Returns whether a string can be written as UTF-8: JSON lets half a surrogate pair through."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
