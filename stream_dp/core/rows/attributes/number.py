"""Attributes that are a number, known up to its bin."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes.attribute_base import AttributeBase
from stream_dp.core.rows.column_values import (
    Codes,
    Column,
    Scalar,
    floats_of,
    number_text,
    parsed_number,
    scalars_of,
)
from stream_dp.core.rows.measured_values import Measure, Offsets
from stream_dp.core.rows.proposed_bounds import WantedBounds
from stream_dp.errors import InvalidDefinition

NumberFold: TypeAlias = Literal["count", "sum", "min", "max", "first", "last", "since"]

_LARGEST_EDGE = 1e300
_EXACT = 2**53  # integers up to here are floats without rounding


@dataclass(frozen=True)
class Number(AttributeBase):
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
        fold: What it says of a person: how many rows they have, the sum, the least, the largest, the first or
            the last value, or how many phases ago they were there before.
        of: The name of the boolean that is to be true of the person for that; None where all count.

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
    fold: NumberFold | None = None
    of: str | None = None

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
        return floats_of(*scalars_of(column))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        step = 1 if self.integer else 0
        between = [_range_label(low, high - step) for low, high in pairwise(self.edges)]
        first, last = f"< {number_text(self.edges[0])}", f">= {number_text(self.edges[-1])}"
        if math.isfinite(self.least):
            first = _range_label(self.least, self.edges[0] - step)
        return (first, *between, last, *("missing",) * self.missing)

    @property
    def least(self) -> float:
        """The least number that there is, below the first edge: 1 where rows or phases are counted."""
        counts = self.integer and self.in_no_row and self.edges[0] > 1.0
        return 1.0 if counts else -math.inf

    @cached_property
    def edge_labels(self) -> tuple[str, ...]:
        """The text of each edge."""
        return tuple(map(number_text, self.edges))

    @cached_property
    def samples(self) -> tuple[Scalar, ...]:
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
        values, _ = scalars_of(self.without_na(column))
        code_of = {v: self._code(v) for v in set(values)}
        return np.fromiter(map(code_of.__getitem__, values), self.dtype, len(values))

    def _bin(self, numbers: npt.NDArray[np.float64]) -> Codes:
        codes = np.searchsorted(self._edge_array, numbers, side="right").astype(self.dtype)
        codes[np.isnan(numbers)] = self._missing_code
        return codes

    def _code(self, value: Scalar) -> int:
        number = parsed_number(value) if isinstance(value, str) else value
        if number is None or number != number:
            return self._missing_code
        return bisect_right(self.edges, number)


def _is_exact_float(number: object) -> bool:
    if type(number) not in (int, float):
        return False
    try:
        return math.isfinite(number) and float(number) == number  # type: ignore[arg-type]
    except OverflowError:
        return False


def _range_label(low: float, high: float) -> str:
    return number_text(low) if low == high else f"{number_text(low)} to {number_text(high)}"
