"""Attributes and their cells; rows to cells.

The universe is the product of the attributes' cells. Row to cell is total: whatever a row contains, it counts
in exactly one cell, so no row's content ever decides whether a batch is accepted. Only structure is refused,
with a text that is the same for every value: names, lengths of columns, counts, and values of thousands of
characters.
"""

from __future__ import annotations

import difflib
import json
import math
import operator
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import pairwise, product, repeat, zip_longest
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.attribute_dates import CYCLES, HOUR, Zone, calendar_of, label_of, labels_of
from stream_dp.core.rows.key_texts import Texts, texts_of
from stream_dp.core.rows.measured_values import MAX_MEASURED_ROWS, Measure, Offsets
from stream_dp.core.rows.person_slots import MAX_KEY_BYTES, Persons, Slots
from stream_dp.core.rows.proposed_bounds import WantedBounds
from stream_dp.core.rows.row_moments import DAY, MONTH, TIME, DateColumn, from_texts, on_clocks
from stream_dp.errors import InvalidBatch, InvalidDefinition, InvalidQuery

MAX_ATTRIBUTES = 64
MAX_CELLS = 65_536
MAX_KEPT_CELLS = 2**20
"""Largest universe of which a mechanism keeps every cell."""
MAX_FLAT = 24
"""Most cells of an ordered attribute whose neighbouring cells are never measured in groups."""
MAX_NAME = 64
MAX_VALUE = 256
MAX_SCALAR = 4096
"""Most characters of a value in a row. What a longer one says would show in the time that its batch takes."""
MAX_ROWS = 2**62
"""Most rows that a batch, and a block, may count: their sums stay inside int64."""

COUNT = "count"
"""Key of the count in the ``cells`` form of a batch; no attribute may have this name."""

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Counts: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = Sequence[object] | npt.NDArray[Any]

_Scalar: TypeAlias = str | int | float | bool | None
_SCALARS = frozenset({str, int, float, bool, type(None)})
_BOOLEAN_WORDS = (("false", "no", "off", "f", "n"), ("true", "yes", "on", "t", "y"))
_LARGEST_EDGE = 1e300
_EXACT = 2**53  # integers up to here are floats without rounding


class Shape(tuple[int, ...]):  # noqa: SLOT001 - a tuple cannot have slots with names
    """Cells of each attribute of a universe, of which some are ordered and have many cells.

    Args:
        sizes: The cells of each attribute.
        ordered: The attributes with more than ``MAX_FLAT`` cells that have an order.
    """

    ordered: frozenset[int]

    def __new__(cls, sizes: Iterable[int], ordered: Iterable[int]) -> Self:
        self = super().__new__(cls, sizes)
        self.ordered = frozenset(a for a in ordered if self[a] > MAX_FLAT)
        return self

    def __getnewargs__(self) -> tuple[tuple[int, ...], frozenset[int]]:
        return tuple(self), self.ordered

    def __eq__(self, other: object) -> bool:
        ordered = other.ordered if isinstance(other, Shape) else frozenset()
        return tuple.__eq__(self, other) is True and self.ordered == ordered

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.ordered)) if self.ordered else tuple.__hash__(self)


class _Attribute:
    """The base of the four kinds of attribute: cells with labels, and codes of the smallest width.

    A fault names a field of the attribute, and never what was written there.
    """

    name: str
    missing: bool
    na: tuple[str, ...]

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
    def samples(self) -> tuple[_Scalar, ...]:
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
        return _first(self.missing_cell)

    @cached_property
    def _na(self) -> frozenset[str]:
        return frozenset(text.strip() for text in self.na)

    def without_na(self, column: Column) -> Column:
        """The same column, with None in place of the values that are declared missing."""
        if not self.na or (isinstance(column, np.ndarray) and column.dtype.kind == "M"):
            return column
        values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
        return [None if _text_of(value) in self._na else value for value in values]

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


@dataclass(frozen=True, eq=False)
class Repeated:
    """A column that says its values once, and for each row which of them it holds. Private.

    Attributes:
        values: The values that rows may hold. There may be values that no row holds.
        indices: The index into ``values`` of each row's value, shape (n_entries,).
    """

    values: Sequence[object] = field(repr=False)
    indices: npt.NDArray[np.integer[Any]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)


AnyColumn: TypeAlias = Column | Repeated | DateColumn
"""A column in any form that a batch may have."""


@dataclass(frozen=True)
class Category(_Attribute):
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
    def samples(self) -> tuple[_Scalar, ...]:
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
        return _first(self.missing_cell, self.other_cell)

    @cached_property
    def _unlisted_code(self) -> int:
        return _first(self.other_cell, self.missing_cell)

    def encode(self, column: Column) -> Codes:
        """Codes of a column, shape (n_entries,). Total: no value raises, but for its length."""
        values, types = _scalars(self.without_na(column))
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


@dataclass(frozen=True)
class Number(_Attribute):
    """A number, known up to the bin it falls into.

    Cells: ``edges`` e1 < ... < ek make k + 1 bins, left-closed, the outer ones open; then ``missing``. A
    numeric string is parsed, a bool is 0 or 1, an infinite value goes to an end bin. A missing value goes to
    ``missing``, else to cell 0.

    Attributes:
        edges: The values at which bins begin.
        integer: Values are whole, so that ``> 29`` is ``>= 30``; a fractional value counts as its floor.
        representatives: What a value of each bin counts for in a sum, one more than edges; None takes the
            middle of each bin, and of an outer one its edge.
        measure: How the values of rows are kept for sums; None keeps their bins only.
        na: Texts of values that count as missing. The text of a number is its shortest one.
        wanted: What is to be proposed for it; None where its edges are known.

    Raises:
        InvalidDefinition: Edges that do not increase, are not finite, or not whole where ``integer``;
            representatives that are not one a bin, or not in theirs; or a unit that is not whole where
            ``integer``.
    """

    name: str
    edges: tuple[float, ...]
    integer: bool = False
    missing: bool = False
    representatives: tuple[float, ...] | None = None
    measure: Measure | None = None
    na: tuple[str, ...] = ()
    wanted: WantedBounds | None = None

    def __post_init__(self) -> None:
        self._check()
        field_path = "edges"
        if not self.edges:
            raise InvalidDefinition(field_path, "no edge is given", "give at least one")
        if not all(_is_exact_float(e) for e in self.edges):
            raise InvalidDefinition(
                field_path, "an edge is not a finite 64-bit float", "use finite numbers up to 2**53"
            )
        edges = tuple(float(e) + 0.0 for e in self.edges)  # + 0.0 turns -0.0 into 0.0
        if max(map(abs, edges)) > _LARGEST_EDGE:
            raise InvalidDefinition(
                field_path,
                f"an edge is beyond {_LARGEST_EDGE:g}",
                "leave room for a number beyond it",
            )
        if any(low >= high for low, high in pairwise(edges)):
            raise InvalidDefinition(field_path, "the edges do not increase", "sort them, each once")
        if self.integer and not all(e.is_integer() for e in edges):
            raise InvalidDefinition(
                field_path, "an edge is fractional", 'use whole edges, or leave out "integer"'
            )
        object.__setattr__(self, "edges", edges)
        if self.representatives is not None:
            self._check_representatives(self.representatives)
        if self.integer and self.measure is not None and not float(self.measure.unit).is_integer():
            raise InvalidDefinition(
                "measure.unit",
                "it is fractional, and values are whole",
                'use a whole unit, or leave out "integer"',
            )
        self._check_na()
        self._check_size(field_path)

    def _check_representatives(self, representatives: tuple[float, ...]) -> None:
        field_path = "representatives"
        if len(representatives) != len(self.edges) + 1:
            raise InvalidDefinition(
                field_path,
                f"there are {len(representatives)} for {len(self.edges) + 1} bins",
                "give one a bin: one more than edges",
            )
        if [bisect_right(self.edges, r) for r in representatives] != list(
            range(len(self.edges) + 1)
        ):
            raise InvalidDefinition(
                field_path,
                "one is not in its bin",
                "give a number of each bin, in the order of the bins",
            )

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The number that a row counts for in a sum, by its cell; 0 for a missing one."""
        values = self.representatives
        if values is None:
            step = 1.0 if self.integer else 0.0
            middles = ((low + high - step) / 2.0 for low, high in pairwise(self.edges))
            values = (self.edges[0] - step, *middles, self.edges[-1])
        return (*values, *(0.0,) * self.missing)

    @cached_property
    def binning_error(self) -> float:
        """The largest distance of a value between the outer edges to what it counts for."""
        step = 1.0 if self.integer else 0.0
        ends = [
            max(value - low, high - step - value)
            for value, (low, high) in zip(self.values[1:], pairwise(self.edges), strict=False)
        ]
        return max(ends, default=0.0)

    def half_width(self, number: float) -> float | None:
        """Half the width of the bin that a number falls into; None for the outer bins, which have no end."""
        cell = bisect_right(self.edges, number)
        if not 0 < cell < len(self.edges):
            return None
        step = 1.0 if self.integer else 0.0
        return (self.edges[cell] - step - self.edges[cell - 1]) / 2.0

    @cached_property
    def measured_ends(self) -> tuple[tuple[int, int], ...]:
        """The least and the largest number of units that a row of each cell counts for, one pair a cell.

        Both are the lower end for missing values, which no sum adds up.
        """
        assert self.measure is not None, "the values are kept"
        lows, highs = map(self._units, self._bin_ends)
        ends = list(zip(lows.tolist(), highs.tolist(), strict=True))
        return (*ends, *((self.measure.ends[0],) * 2,) * self.missing)

    @cached_property
    def values_within_ends(self) -> tuple[float, ...]:
        """``values``, each between the ends of what a row of its cell counts for; 0 for a missing one."""
        assert self.measure is not None, "the values are kept"
        lows, highs = self.measure.value(np.array(self.measured_ends)).T
        within: list[float] = np.clip(self.values, lows, highs).tolist()
        if self.missing_cell is not None:
            within[self.missing_cell] = 0.0
        return tuple(within)

    @cached_property
    def _offset_ends(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The same in units above the lower end, as two arrays, shape (size,)."""
        assert self.measure is not None, "the values are kept"
        lows, highs = np.array(self.measured_ends, dtype=np.int64).T - self.measure.ends[0]
        return lows, highs

    def outside(self, column: Column) -> npt.NDArray[np.bool_]:
        """Marks the numbers of a column that count as one of the two ends because they lie beyond it."""
        assert self.measure is not None, "the values are kept"
        numbers = self._floats(column)
        return (numbers < self.measure.low) | (numbers > self.measure.high)

    def has_fractions(self, column: Column) -> bool:
        """Whether some number of a column is not whole."""
        numbers = self._floats(column)
        return bool((np.isfinite(numbers) & (numbers != np.floor(numbers))).any())

    @property
    def may_be_whole(self) -> bool:
        """Whether ``integer`` could be set, and is not."""
        whole = (*self.edges, 1.0 if self.measure is None else self.measure.unit)
        return not self.integer and all(float(number).is_integer() for number in whole)

    def numbers(self, codes: Codes, offsets: Offsets) -> list[float | None]:
        """A number for each row that has its cell and counts for its units. None stands for a missing one."""
        assert self.measure is not None, "the values are kept"
        lows, highs = self._bin_ends
        values = self.measure.value(offsets.astype(np.int64) + self.measure.ends[0])
        bins = np.minimum(codes, len(self.edges))
        found: list[float | None] = np.clip(values, lows[bins], highs[bins]).tolist()
        if self.missing:
            for row in np.flatnonzero(codes == self.missing_cell).tolist():
                found[row] = None
        return found

    def _units(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        assert self.measure is not None, "the values are kept"
        return self.measure.units(np.floor(numbers) if self.integer else numbers)

    def _floats(self, column: Column) -> npt.NDArray[np.float64]:
        """The numbers of a column; NaN stands for anything else."""
        column = self.without_na(column)
        if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
            return column.astype(np.float64)
        return _floats(*_scalars(column))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        step = 1 if self.integer else 0
        between = [_range_label(low, high - step) for low, high in pairwise(self.edges)]
        ends = f"< {number_text(self.edges[0])}", f">= {number_text(self.edges[-1])}"
        return (ends[0], *between, ends[1], *("missing",) * self.missing)

    @cached_property
    def edge_labels(self) -> tuple[str, ...]:
        """The text of each edge."""
        return tuple(map(number_text, self.edges))

    @cached_property
    def samples(self) -> tuple[_Scalar, ...]:
        lowest = math.nextafter(self.edges[0], -math.inf)
        return (lowest, *self.edges, *(None,) * self.missing)

    @cached_property
    def _edge_array(self) -> npt.NDArray[np.float64]:
        return np.array(self.edges)

    @property
    def _bin_ends(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The least and the largest number of each bin, shape (n_bins,) each."""
        below = np.nextafter(self._edge_array, -math.inf)
        return np.array([-math.inf, *self.edges]), np.array([*below, math.inf])

    @cached_property
    def _floats_suffice(self) -> bool:
        """Whether rounding an integer to a float never carries it over an edge."""
        return max(map(abs, self.edges)) < _EXACT

    def encode(self, column: Column) -> Codes:
        """Codes of a column, shape (n_entries,). Total: no value raises, but for its length."""
        return self._bin(self._floats(column)) if self._floats_suffice else self._exact(column)

    def encode_measured(self, column: Column) -> tuple[Codes, Offsets]:
        """Codes of a column, and the units above the lower end that its rows count for.

        What a row counts for lies between the ends of its cell.
        """
        assert self.measure is not None, "the values are kept"
        numbers, (lows, highs) = self._floats(column), self._offset_ends
        codes = self._bin(numbers) if self._floats_suffice else self._exact(column)
        offsets = self._units(numbers) - self.measure.ends[0]
        return codes, np.clip(offsets, lows[codes], highs[codes]).astype(np.uint32)

    def _exact(self, column: Column) -> Codes:
        """Codes of a column by comparisons that no rounding of an integer to a float comes into."""
        values, _ = _scalars(self.without_na(column))
        code_of = {v: self._code(v) for v in set(values)}
        return np.fromiter(map(code_of.__getitem__, values), self.dtype, len(values))

    def _bin(self, numbers: npt.NDArray[np.float64]) -> Codes:
        codes = np.searchsorted(self._edge_array, numbers, side="right").astype(self.dtype)
        codes[np.isnan(numbers)] = self._missing_code
        return codes

    def _code(self, value: _Scalar) -> int:
        number = _parse_number(value) if isinstance(value, str) else value
        if number is None or number != number:
            return self._missing_code
        return bisect_right(self.edges, number)


@dataclass(frozen=True)
class Boolean(_Attribute):
    """True or false.

    Cells: false, true, then ``missing``. A row may say it with a bool, 0 or 1, or as text: "true" or "false",
    "yes" or "no", "on" or "off", "t" or "f", "y" or "n" (all in any case), "1" or "0". Anything else goes to
    ``missing``, else to cell 0.

    Attributes:
        missing: Whether missing values have a cell.
        na: Texts of values that count as missing.
    """

    name: str
    missing: bool = False
    na: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check()
        self._check_na()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return ("false", "true", *("missing",) * self.missing)

    @property
    def has_order(self) -> bool:
        return False

    @cached_property
    def samples(self) -> tuple[_Scalar, ...]:
        return (False, True, *(None,) * self.missing)

    @cached_property
    def cell_of(self) -> Mapping[object, int]:
        """Cell of each scalar that says true or false."""
        table: dict[object, int] = {False: 0, True: 1, "0": 0, "1": 1}
        for cell, words in enumerate(_BOOLEAN_WORDS):
            for word in words:
                spellings = product(*zip(word, word.upper(), strict=True))
                table.update(("".join(letters), cell) for letters in spellings)
        return table

    def encode(self, column: Column) -> Codes:
        """Codes of a column, shape (n_entries,). Total: no value raises, but for its length."""
        values, _ = _scalars(self.without_na(column))
        unknown = repeat(self._missing_code)
        return np.fromiter(map(self.cell_of.get, values, unknown), self.dtype, len(values))


@dataclass(frozen=True)
class Date(_Attribute):
    """A date, with or without a time, known up to the period of the calendar that it falls into.

    Cells: what is before ``first``, each period, what is from ``until`` on; or each weekday, month of the
    year or hour of the day; then ``missing``. A row says it as in ISO 8601, see ``row_moments``, at least as
    precisely as the periods are, or by the label of a cell. What has an offset from UTC is an instant, and
    counts by what clocks in the time zone showed then; what has none says what they showed. Anything else
    goes to ``missing``, else to cell 0.

    Attributes:
        by: The period: "year", "quarter", "month", "week", "day" or "hour", or one that comes again:
            "weekday", "month_of_year" or "hour_of_day".
        first: Where the first period begins, as ISO 8601 writes it; None where they come again.
        until: Where the last one ends; None takes two years.
        zone: The time zone whose clocks are meant.
        epoch: What numbers count, from 1970-01-01T00:00Z: "s" or "ms"; None understands none.
        missing: Whether missing values have a cell.
        na: Texts of values that count as missing.

    Raises:
        InvalidDefinition: A bound does not begin a period, or there are too many periods or none.
    """

    name: str
    by: str
    first: str | None = None
    until: str | None = None
    zone: Zone = field(default_factory=lambda: Zone("UTC"))
    epoch: str | None = None
    missing: bool = False
    na: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check()
        if self.comes_again:
            for field_path, bound in (("from", self.first), ("until", self.until)):
                if bound is not None:
                    raise InvalidDefinition(
                        field_path, f"each {self.by} comes again, without bounds", "leave it out"
                    )
        self._check_na()
        self._check_size("until")

    @property
    def comes_again(self) -> bool:
        """Whether the periods come again and again, and have no bounds."""
        return self.by in CYCLES

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """The moments at which periods begin, and the one at which the last one ends; none for a cycle."""
        return () if self.comes_again else calendar_of(self.by, self.first, self.until)

    @cached_property
    def edge_labels(self) -> tuple[str, ...]:
        """The label of the period that begins at each edge."""
        return tuple(label_of(self.by, edge) for edge in self.edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        periods = labels_of(self.by, self.first, self.until)
        if not self.comes_again:
            periods = (f"< {periods[0]}", *periods, f">= {self.edge_labels[-1]}")
        return (*periods, *("missing",) * self.missing)

    @cached_property
    def samples(self) -> tuple[_Scalar, ...]:
        periods = self.labels[:-1] if self.missing else self.labels
        return (*periods, *(None,) * self.missing)

    @cached_property
    def cell_of(self) -> Mapping[object, int]:
        """Cell of each label that a row may say."""
        return {sample: cell for cell, sample in enumerate(self.samples) if sample is not None}

    def encode(self, column: Column) -> Codes:
        """Codes of a column, shape (n_entries,). Total: no value raises, but for its length."""
        if isinstance(column, np.ndarray) and column.dtype.kind == "M":
            column = [None if np.isnat(moment) else str(moment) for moment in column]
        values = [_iso(v) for v in self.without_na(column)]
        scalars, types = _scalars(values)
        texts = [v.strip() if type(v) is str else "" for v in scalars]
        moments = from_texts(texts)
        if self.epoch is not None:
            # A label of a cell, such as 07 or 2026, is not a number of seconds.
            unlabelled = (
                None if type(v) is bool or text in self.cell_of else v
                for v, text in zip(scalars, texts, strict=True)
            )
            numbers = _floats(list(unlabelled), types)
            moments = moments.or_else(DateColumn.from_epoch(numbers, _PER_SECOND[self.epoch]))
        codes = self.encode_moments(moments)
        rest = np.flatnonzero(moments.precision < _PRECISION[self.by]).tolist()
        if rest:
            labelled = (self.cell_of.get(texts[row], self._missing_code) for row in rest)
            codes[rest] = np.fromiter(labelled, self.dtype, len(rest))
        return codes

    def encode_moments(self, moments: DateColumn) -> Codes:
        """Codes of a column of dates, shape (n_entries,)."""
        shown = on_clocks(moments, self.zone)
        if self.by == "weekday":
            cells = (shown // (24 * HOUR) + 3) % 7  # 1970 began with a Thursday
        elif self.by == "hour_of_day":
            cells = shown // HOUR % 24
        elif self.by == "month_of_year":
            months = shown.astype("datetime64[s]").astype("datetime64[M]")
            cells = months.astype(np.int64) % 12
        else:
            cells = np.searchsorted(np.array(self.edges), shown, side="right")
        known = moments.precision >= _PRECISION[self.by]
        return np.where(known, cells, self._missing_code).astype(self.dtype)


_PER_SECOND = {"s": 1, "ms": 1000}
_PRECISION = {
    **dict.fromkeys(("year", "quarter", "month", "month_of_year"), MONTH),
    **dict.fromkeys(("week", "day", "weekday"), DAY),
    **dict.fromkeys(("hour", "hour_of_day"), TIME),
}
"""How precise a date must be to tell its period."""

Attribute: TypeAlias = Category | Number | Boolean | Date


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
        whose = None if persons is None else _whose(persons, columns[persons.key])
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
        whose = None if persons is None else _whose(persons, [row.get(persons.key) for row in rows])
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
        codes: list[Codes] = [_NOT_IN_FORCE] * len(self.attributes)
        measures: dict[int, Offsets] = {}
        texts: dict[int, Texts] = {}
        for index, column in zip(self.in_force, columns, strict=True):
            if index in self.measured:
                codes[index], measures[index] = _measured(self.measured[index], column)
            elif index in self.found:
                texts[index] = _texts(self.found[index], column)
            else:
                codes[index] = _codes(self.attributes[index], column)
        return Rows(tuple(codes), counts, measures, whose, texts)

    def _check_names(
        self, field_path: str, given: set[str], persons: Persons | None, *, complete: bool
    ) -> None:
        names = self.names if persons is None else (*self.names, persons.key)
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
        if complete and persons is not None and persons.key not in given:
            raise InvalidBatch(
                field_path, f"there is no column {persons.key}", "it says whose row each is"
            )
        absent = [
            spellings[0]
            for index, spellings in self._spellings
            if index not in self.optional and given.isdisjoint(spellings)
        ]
        if complete and absent:
            raise InvalidBatch(
                field_path,
                f"there is no column {', '.join(absent)}",
                "add a column for every attribute",
            )


_NOT_IN_FORCE: Codes = np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows, not yet sealed. Private, but for how many there are.

    Attributes:
        codes: One array an attribute, shape (n_entries,), of its cells. Empty for one that is not in force.
        counts: Rows that each entry stands for, shape (n_entries,); None when one each.
        measures: Attribute -> units above its lower end that a row of each entry counts for, shape
            (n_entries,). Its keys are the attributes that the universe measures.
        whose: Says whose row each entry is, where persons are protected; None where rows are. An entry counts
            one row then.
        texts: Attribute -> what each entry says of a key. An entry counts one row then.
    """

    codes: tuple[Codes, ...] = field(repr=False)
    counts: Counts | None = field(default=None, repr=False)
    measures: Mapping[int, Offsets] = field(default_factory=dict, repr=False)
    whose: Slots | None = field(default=None, repr=False)
    texts: Mapping[int, Texts] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        one_by_one = self.whose is None and not self.texts
        assert one_by_one or self.counts is None, "rows of persons or with keys come one by one"

    def __repr__(self) -> str:
        return f"Rows(n_rows={self.n_rows})"

    @property
    def n_entries(self) -> int:
        return max(map(len, (*self.codes, *self.texts.values())))

    @cached_property
    def n_rows(self) -> int:
        """Rows counted; public."""
        return self.n_entries if self.counts is None else exact_sum(self.counts)

    def within(self, universe: Universe) -> Rows:
        """The same entries without what they say of attributes that are not in force."""
        in_force = {*universe.in_force}
        codes = tuple(
            column if index in in_force else _NOT_IN_FORCE
            for index, column in enumerate(self.codes[: len(universe.attributes)])
        )
        measures = {at: units for at, units in self.measures.items() if at in universe.measured}
        texts = {at: said for at, said in self.texts.items() if at in universe.found}
        return replace(self, codes=codes, measures=measures, texts=texts)

    def and_of(self, others: Sequence[Rows]) -> Rows:
        """The same entries with what ``others`` say of attributes that are not in force here."""
        found = self
        for other in others:
            both = zip_longest(found.codes, other.codes, fillvalue=_NOT_IN_FORCE)
            codes = tuple(one if len(one) else more for one, more in both)
            measures = {**other.measures, **found.measures}
            texts = {**other.texts, **found.texts}
            found = replace(found, codes=codes, measures=measures, texts=texts)
        return found

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """All entries of ``parts`` (at least one) in order; all of them say whose they are, or none.

        Rows say of an attribute what all parts do.

        Raises:
            InvalidBatch: Together they count more than 2**62 rows.
        """
        check_total(sum(p.n_rows for p in parts), "batch")
        sizes = [p.n_entries for p in parts]
        codes = tuple(
            np.concatenate(columns) if sizes == [*map(len, columns)] else _NOT_IN_FORCE
            for columns in zip(*(p.codes for p in parts), strict=False)
        )
        measures = _joined([p.measures for p in parts])
        texts = _joined([p.texts for p in parts])
        owned = [p.whose for p in parts if p.whose is not None]
        if owned:
            assert len(owned) == len(parts), "a data set protects persons, or rows"
            return cls(codes, None, measures, Slots.concat(owned), texts)
        if all(p.counts is None for p in parts):
            return cls(codes, None, measures, None, texts)
        return cls(codes, np.concatenate([p.entry_counts for p in parts]), measures)

    @property
    def entry_counts(self) -> Counts:
        """Rows that each entry stands for, shape (n_entries,)."""
        return np.ones(self.n_entries, dtype=np.int64) if self.counts is None else self.counts


def is_on_grid(attribute: Attribute) -> bool:
    """Whether edges are still to be proposed for an attribute, so that it has those of a fixed grid."""
    return isinstance(attribute, Number) and attribute.wanted is not None


def _codes(attribute: Attribute, column: AnyColumn) -> Codes:
    if isinstance(column, Repeated):
        return np.take(attribute.encode(column.values), column.indices)
    if isinstance(column, DateColumn):
        assert isinstance(attribute, Date), "the caller refuses dates for other attributes"
        return attribute.encode_moments(column)
    return attribute.encode(column)


def _joined(parts: Sequence[Mapping[int, npt.NDArray[Any]]]) -> dict[int, npt.NDArray[Any]]:
    """One column for each attribute of which all parts have one."""
    return {
        index: np.concatenate([part[index] for part in parts])
        for index in parts[0]
        if all(index in part for part in parts)
    }


def _texts(attribute: Category, column: AnyColumn) -> Texts:
    assert not isinstance(column, DateColumn), "the caller refuses dates for other attributes"
    if isinstance(column, Repeated):
        return np.take(_texts(attribute, column.values), column.indices, axis=0)
    return texts_of(attribute.without_na(column), MAX_KEY_BYTES)


def _whose(persons: Persons, column: AnyColumn) -> Slots:
    assert not isinstance(column, DateColumn), "the caller refuses such keys"
    if isinstance(column, Repeated):
        digests = np.take(persons.digests(column.values), column.indices, axis=0)
    else:
        digests = persons.digests(column)
    return Slots(digests, persons.ranks(len(digests)))


def _measured(attribute: Number, column: AnyColumn) -> tuple[Codes, Offsets]:
    assert not isinstance(column, DateColumn), "the caller refuses dates for a number"
    if not isinstance(column, Repeated):
        return attribute.encode_measured(column)
    codes, offsets = attribute.encode_measured(column.values)
    return np.take(codes, column.indices), np.take(offsets, column.indices)


def exact_sum(counts: Counts) -> int:
    """Sum of non-negative counts as a Python int; exact where int64 would wrap."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFF_FFFF).sum())


def number_text(number: float) -> str:
    """A number for people: 30, not 30.0."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def unknown_name(name: object, names: Sequence[str], field_path: str) -> InvalidQuery:
    """The error for a name that no attribute has, with the near ones. It does not repeat the name."""
    near = difflib.get_close_matches(name[:MAX_NAME], names, 3) if isinstance(name, str) else []
    fix = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(names)}"
    return InvalidQuery(field_path, "there is no such attribute", fix, reason="unknown_attribute")


def _all_mappings(items: Sequence[object]) -> bool:
    return all(issubclass(kind, Mapping) for kind in set(map(type, items)))


def _scalars(column: Column) -> tuple[Sequence[_Scalar], set[type]]:
    """The column's values as plain scalars, everything else as None; and the types among them."""
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    types = set(map(type, values))
    if not types <= _SCALARS:
        if types & {list, dict}:
            _check_length(_spelt(v) for v in values if isinstance(v, list | dict))
        values = [v if type(v) in _SCALARS else _plain(v) for v in values]
        types = set(map(type, values))
    if str in types:
        _check_length(values if types == {str} else (v for v in values if type(v) is str))
    return values, types


def _iso(value: object) -> object:
    """The text of a date of Python, numpy or pandas; other values as they are."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, np.datetime64):
        return str(value)
    written = getattr(value, "isoformat", None)
    return written() if callable(written) else value


def _text_of(value: object) -> str | None:
    """The text by which a definition may declare a value missing; None for other types."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return None
    try:
        return number_text(float(value))
    except OverflowError:
        return str(value)


def _spelt(nested: object) -> str:
    """A list or an object as text, about as long as it was sent."""
    try:
        return json.dumps(nested, default=str)
    except RecursionError:
        return " " * (MAX_SCALAR + 1)


def _check_length(texts: Iterable[str]) -> None:
    """Raises InvalidBatch, in the same words whatever a value says."""
    if max(map(len, texts), default=0) > MAX_SCALAR:
        raise InvalidBatch(
            "value",
            f"a value is longer than {MAX_SCALAR:,} characters",
            f"cut it; no declared value is longer than {MAX_VALUE}",
        )


def _plain(value: object) -> _Scalar:
    """Returns the plain scalar inside a subclass such as numpy's. None if the value is not a scalar."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):  # True and False included: bool has no subclass
        return value if type(value) is bool else int(value)
    if isinstance(value, float) or (isinstance(value, Decimal) and not value.is_snan()):
        return float(value)
    return None


def _floats(values: Sequence[_Scalar], types: set[type]) -> npt.NDArray[np.float64]:
    """The numbers of a column of scalars; NaN stands for anything else."""
    if str not in types:
        try:
            return np.array(values, dtype=np.float64)  # None becomes NaN
        except OverflowError:  # an integer above 1e308
            pass
    number_of = {v: _nearest(v) for v in set(values)}
    return np.fromiter(map(number_of.__getitem__, values), np.float64, len(values))


def _number_spelt(text: str) -> int | float | None:
    """The number whose text in a row is exactly ``text``, if there is one."""
    number = _parse_number(text)
    if isinstance(number, float) and not number.is_integer():
        return number if repr(number) == text else None
    return number if isinstance(number, int) and str(number) == text else None


def _parse_number(text: str) -> int | float | None:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:  # int also refuses more than 4,300 digits; float reads them as infinite
            continue
    return None


def _nearest(value: _Scalar) -> float:
    """The number that a value says, as a float; NaN where it says none."""
    number = _parse_number(value) if isinstance(value, str) else value
    if number is None:
        return math.nan
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _first(*cells: int | None) -> int:
    return next((cell for cell in cells if cell is not None), 0)


def _bool_text(value: _Scalar) -> str:
    return "true" if value else "false"


def _is_text(value: str) -> bool:
    """Returns whether a string can be written as UTF-8: JSON lets half a surrogate pair through."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _is_exact_float(number: object) -> bool:
    if type(number) not in (int, float):
        return False
    try:
        return math.isfinite(number) and float(number) == number  # type: ignore[arg-type]
    except OverflowError:
        return False


def _range_label(low: float, high: float) -> str:
    return number_text(low) if low == high else f"{number_text(low)} to {number_text(high)}"


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


def check_total(n_rows: int, field_path: str, most: int = MAX_ROWS) -> None:
    """Raises InvalidBatch when int64 sums could wrap."""
    if n_rows > most:
        words = f"the counts sum to more than 2**{most.bit_length() - 1}"
        raise InvalidBatch(field_path, words, "send fewer rows")
