"""What the four kinds of attribute have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.rows.column_values import Column, Scalar, text_of
from stream_dp.errors import InvalidDefinition

MAX_CELLS = 65_536
MAX_NAME = 64

COUNT = "count"
"""Key of the count in the ``cells`` form of a batch; no attribute may have this name."""


class AttributeBase:
    """The base of the four kinds of attribute: cells with labels, and codes of the smallest width.

    A fault names a field of the attribute, and never what was written there.
    """

    name: str
    missing: bool
    na: tuple[str, ...]
    fold: str | None = None
    """How rows of a person are folded; None where one of them speaks for all."""

    @property
    def in_no_row(self) -> bool:
        """Whether rows say nothing of it themselves, because it is about all rows of a person."""
        return self.fold in ("count", "since")

    @property
    def labels(self) -> tuple[str, ...]:
        """One label a cell, for people."""
        raise NotImplementedError

    @property
    def told(self) -> Sequence[bool]:
        """Whether each cell is told of: not if it is for a value that is not found yet."""
        return (True,) * self.size

    @property
    def has_order(self) -> bool:
        """Whether values can be compared, so that neighbouring cells belong together."""
        return True

    @property
    def orders_all(self) -> bool:
        """Whether every value but a missing one has a place in the order."""
        return self.has_order

    @property
    def samples(self) -> tuple[Scalar, ...]:
        """A value of each cell, as a row may say it."""
        raise NotImplementedError

    @cached_property
    def size(self) -> int:
        """Number of cells."""
        return len(self.labels)

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Smallest unsigned integer that holds every code."""
        return np.dtype(np.uint8 if self.size <= 256 else np.uint16)

    @cached_property
    def missing_cell(self) -> int | None:
        """The cell of missing values, always the last; None when not declared."""
        return self.size - 1 if self.missing else None

    @cached_property
    def _missing_code(self) -> int:
        """The cell that a missing value counts in."""
        return first_of(self.missing_cell)

    @cached_property
    def _na(self) -> frozenset[str]:
        return frozenset(text.strip() for text in self.na)

    def without_na(self, column: Column) -> Column:
        """The same column, with None in place of the values that are declared missing."""
        if not self.na or (isinstance(column, np.ndarray) and column.dtype.kind == "M"):
            return column
        values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
        return [None if text_of(value) in self._na else value for value in values]

    def _check_na(self, listed: Iterable[str] = ()) -> None:
        if self.na and not self.missing:
            raise InvalidDefinition(
                "na", "values that are missing have no cell", 'add "missing": true, or remove na'
            )
        if not self._na.isdisjoint(listed):
            raise InvalidDefinition("na", "a value is listed too", "remove it from one of the two")

    def _check(self) -> None:
        name = self.name
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
            raise InvalidDefinition(
                "name", "an attribute needs a name", f"use 1 to {MAX_NAME} characters"
            )
        if not name.isprintable() or name != name.strip():
            raise InvalidDefinition(
                "name",
                "it has unprintable characters or blanks at its ends",
                "remove them",
            )
        if name == COUNT:
            raise InvalidDefinition(
                "name",
                "it is taken: batches of cells carry their counts under it",
                'use another, such as "n_items"',
            )

    def _check_size(self, field_path: str) -> None:
        if not 2 <= self.size <= MAX_CELLS:
            raise InvalidDefinition(
                field_path,
                f"the attribute has {self.size} cells",
                f"give it 2 to {MAX_CELLS}; one cell tells rows apart by nothing",
            )


def first_of(*cells: int | None) -> int:
    """The first of some cells that is declared; cell 0 where none is."""
    return next((cell for cell in cells if cell is not None), 0)
