"""The columns of a batch in all their forms, and their values as plain scalars."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.row_moments import DateColumn
from stream_dp.errors import InvalidBatch

MAX_VALUE = 256
MAX_SCALAR = 4096
"""Most characters of a value in a row. What a longer one says would show in the time that its batch takes."""

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Column: TypeAlias = Sequence[object] | npt.NDArray[Any]
Scalar: TypeAlias = str | int | float | bool | None
SCALARS = frozenset({str, int, float, bool, type(None)})


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


def number_text(number: float) -> str:
    """A number for people: 30, not 30.0."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def scalars_of(column: Column) -> tuple[Sequence[Scalar], set[type]]:
    """The column's values as plain scalars, everything else as None; and the types among them."""
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    types = set(map(type, values))
    if not types <= SCALARS:
        if types & {list, dict}:
            _check_length(_spelt(v) for v in values if isinstance(v, list | dict))
        values = [v if type(v) in SCALARS else _plain(v) for v in values]
        types = set(map(type, values))
    if str in types:
        _check_length(values if types == {str} else (v for v in values if type(v) is str))
    return values, types


def text_of(value: object) -> str | None:
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


def _plain(value: object) -> Scalar:
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


def floats_of(values: Sequence[Scalar], types: set[type]) -> npt.NDArray[np.float64]:
    """The numbers of a column of scalars; NaN stands for anything else."""
    if str not in types:
        try:
            return np.array(values, dtype=np.float64)  # None becomes NaN
        except OverflowError:  # an integer above 1e308
            pass
    number_of = {v: _nearest(v) for v in set(values)}
    return np.fromiter(map(number_of.__getitem__, values), np.float64, len(values))


def parsed_number(text: str) -> int | float | None:
    """The number that a text says; None where it says none."""
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:  # int also refuses more than 4,300 digits; float reads them as infinite
            continue
    return None


def _nearest(value: Scalar) -> float:
    """The number that a value says, as a float; NaN where it says none."""
    number = parsed_number(value) if isinstance(value, str) else value
    if number is None:
        return math.nan
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
