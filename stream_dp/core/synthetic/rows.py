"""Whole rows from shares, with as little rounding as possible; the randomness is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

_Floats: TypeAlias = npt.NDArray[np.float64]
_Integers: TypeAlias = npt.NDArray[np.int64]

_GOLDEN: Final = 0.6180339887498949
"""Steps of this size, modulo 1, spread evenly over any stretch of their sequence."""


@dataclass(frozen=True, slots=True)
class Conditional:
    """How one attribute depends on attributes that are drawn before it.

    Attributes:
        attribute: Index of the one that is drawn.
        parents: Indices of those it depends on.
        shares: Of each of its cells, within each cell of the parents: shape (size of each parent, size),
            sums to 1 along the last axis.
    """

    attribute: int
    parents: tuple[int, ...]
    shares: _Floats


def drawn(
    model: Sequence[Conditional], n_rows: int, generator: np.random.Generator
) -> tuple[_Integers, ...]:
    """Draws rows one attribute after the other.

    Among the rows that agree on the parents a cell gets its expected number, rounded up or down without
    bias: random draws would be off by its square root. The roundings of neighbouring groups differ by golden
    steps, so that alike ones make up for each other where they are added up.

    Args:
        model: Each attribute once, after its parents.

    Returns:
        The cell of each row, one array of shape (n_rows,) an attribute, in the order of their indices.
    """
    columns: dict[int, _Integers] = {}
    for one in model:
        sizes = one.shares.shape[:-1]
        cells = [columns[parent] for parent in one.parents]
        group = np.ravel_multi_index(cells, sizes) if cells else np.zeros(n_rows, dtype=np.int64)
        present, members = np.unique(group, return_counts=True)
        shares = one.shares.reshape(-1, one.shares.shape[-1])[present]
        ends = np.cumsum(shares * members[:, None], axis=1)
        starts = (generator.random() + _GOLDEN * np.arange(len(present))) % 1.0
        marks = np.minimum(np.floor(ends + starts[:, None]), members[:, None]).astype(np.int64)
        marks[:, -1] = members
        counts = np.diff(marks, axis=1, prepend=0)
        # Within a group the values meet the other attributes at random.
        mixed = generator.permutation(n_rows)
        order = mixed[np.argsort(group[mixed], kind="stable")]
        column = np.empty(n_rows, dtype=np.int64)
        column[order] = np.repeat(np.tile(np.arange(counts.shape[1]), len(present)), counts.ravel())
        columns[one.attribute] = column
    return tuple(columns[attribute] for attribute in sorted(columns))


def whole_rows(shares: _Floats, n_rows: int, generator: np.random.Generator) -> _Integers:
    """Whole rows whose expected shares are exactly these.

    A cell gets the whole part of ``share * n_rows`` for sure; the rows that are left, fewer than there are
    cells, are drawn independently by the remainders. By Hoeffding a predicate's count is off by
    ``sqrt(left ln(2/beta) / 2)`` rows at most, except with probability beta.

    Args:
        shares: Sum to 1, shape (n_cells,).
    """
    wanted = shares * n_rows
    counts = np.floor(wanted).astype(np.int64)
    left = n_rows - int(counts.sum())
    if left > 0:
        rest = wanted - counts
        counts += generator.multinomial(left, rest / rest.sum())
    return counts


__all__ = ["Conditional", "drawn", "whole_rows"]
