"""Attributes that are true or false."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product, repeat
from typing import Literal

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes.attribute_base import AttributeBase
from stream_dp.core.rows.column_values import Codes, Column, Scalar, scalars_of

TRUE = 1
"""The cell of rows of which it is true."""

_BOOLEAN_WORDS = (("false", "no", "off", "f", "n"), ("true", "yes", "on", "t", "y"))


@dataclass(frozen=True)
class RowCondition:
    """A condition on other attributes of a row.

    Attributes:
        tree: The condition as JSON.
        names: The attributes that it depends on.
        mask: The cells of these for which it holds, in their order.
    """

    tree: str
    names: tuple[str, ...]
    mask: npt.NDArray[np.bool_] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Boolean(AttributeBase):
    """True or false.

    Cells: false, true, then ``missing``. A row may say it with a bool, 0 or 1, or as text: "true" or "false",
    "yes" or "no", "on" or "off", "t" or "f", "y" or "n" (all in any case), "1" or "0". Anything else goes to
    ``missing``, else to cell 0.

    Attributes:
        missing: Whether missing values have a cell.
        na: Texts of values that count as missing.
        fold: "any": of a person it is true if it is true of any of their rows. "first" or "last": it is what
            that row says.
        where: What makes it true of a row; None where rows say it.
    """

    name: str
    missing: bool = False
    na: tuple[str, ...] = ()
    fold: Literal["any", "first", "last"] | None = None
    where: RowCondition | None = None

    def __post_init__(self) -> None:
        self._check()
        self._check_na()

    @property
    def in_no_row(self) -> bool:
        return self.where is not None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return ("false", "true", *("missing",) * self.missing)

    @property
    def has_order(self) -> bool:
        return False

    @cached_property
    def samples(self) -> tuple[Scalar, ...]:
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
        values, _ = scalars_of(self.without_na(column))
        unknown = repeat(self._missing_code)
        return np.fromiter(map(self.cell_of.get, values, unknown), self.dtype, len(values))
