"""Attributes that are a date, known up to its period of the calendar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from stream_dp.attribute_dates import CYCLES, HOUR, Zone, calendar_of, label_of, labels_of
from stream_dp.core.rows.attributes.attribute_base import AttributeBase
from stream_dp.core.rows.column_values import SCALARS, Codes, Column, Scalar, floats_of, scalars_of
from stream_dp.core.rows.row_moments import DAY, MONTH, TIME, DateColumn, from_texts, on_clocks
from stream_dp.errors import InvalidDefinition

_PER_SECOND = {"s": 1, "ms": 1000}
_PRECISION = {
    **dict.fromkeys(("year", "quarter", "month", "month_of_year"), MONTH),
    **dict.fromkeys(("week", "day", "weekday"), DAY),
    **dict.fromkeys(("hour", "hour_of_day"), TIME),
}
"""How precise a date must be to tell its period."""


@dataclass(frozen=True)
class Date(AttributeBase):
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
        fold: Whether the first or the last row of a person that has a value says it.

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
    fold: Literal["first", "last"] | None = None

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
    def samples(self) -> tuple[Scalar, ...]:
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
        scalars, types = scalars_of(values)
        texts = [v.strip() if type(v) is str else "" for v in scalars]
        moments = from_texts(texts)
        if self.epoch is not None:
            # A label of a cell, such as 07 or 2026, is not a number of seconds.
            unlabelled = (
                None if type(v) is bool or text in self.cell_of else v
                for v, text in zip(scalars, texts, strict=True)
            )
            numbers = floats_of(list(unlabelled), types)
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


def _iso(value: object) -> object:
    """The text of a date of Python, numpy or pandas; other values as they are."""
    if type(value) in SCALARS:
        return value
    if isinstance(value, np.datetime64):
        return str(value)
    written = getattr(value, "isoformat", None)
    return written() if callable(written) else value
