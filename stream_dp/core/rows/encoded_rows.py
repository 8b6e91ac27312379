"""Rows as codes of cells, before they are sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.key_texts import Texts
from stream_dp.core.rows.measured_values import Offsets
from stream_dp.core.rows.person_slots import Slots
from stream_dp.errors import InvalidBatch

if TYPE_CHECKING:
    from stream_dp.core.rows.universe import Universe

MAX_ROWS = 2**62
"""Most rows that a batch, and a block, may count: their sums stay inside int64."""

Counts: TypeAlias = npt.NDArray[np.int64]

NOT_IN_FORCE: Codes = np.empty(0, np.uint8)


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
            column if index in in_force else NOT_IN_FORCE
            for index, column in enumerate(self.codes[: len(universe.attributes)])
        )
        measures = {at: units for at, units in self.measures.items() if at in universe.measured}
        texts = {at: said for at, said in self.texts.items() if at in universe.found}
        return replace(self, codes=codes, measures=measures, texts=texts)

    def and_of(self, others: Sequence[Rows]) -> Rows:
        """The same entries with what ``others`` say of attributes that are not in force here."""
        found = self
        for other in others:
            both = zip_longest(found.codes, other.codes, fillvalue=NOT_IN_FORCE)
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
            np.concatenate(columns) if sizes == [*map(len, columns)] else NOT_IN_FORCE
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


def _joined(parts: Sequence[Mapping[int, npt.NDArray[Any]]]) -> dict[int, npt.NDArray[Any]]:
    """One column for each attribute of which all parts have one."""
    return {
        index: np.concatenate([part[index] for part in parts])
        for index in parts[0]
        if all(index in part for part in parts)
    }


def exact_sum(counts: Counts) -> int:
    """Sum of non-negative counts as a Python int; exact where int64 would wrap."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFF_FFFF).sum())


def check_total(n_rows: int, field_path: str, most: int = MAX_ROWS) -> None:
    """Raises InvalidBatch when int64 sums could wrap."""
    if n_rows > most:
        words = f"the counts sum to more than 2**{most.bit_length() - 1}"
        raise InvalidBatch(field_path, words, "send fewer rows")
