"""Whole rows from shares, with as little rounding as possible; the randomness is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Floats: TypeAlias = npt.NDArray[np.float64]
_Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Conditional:
    """The dependence of one attribute on attributes that are drawn before it.

    Attributes:
        attribute: The index of the attribute that is drawn.
        parents: The indices of the attributes that it depends on.
        shares: The share of each of its cells within each cell of the parents, shape (size of each parent,
            size). It sums to 1 along the last axis.
    """

    attribute: int
    parents: tuple[int, ...]
    shares: _Floats


def drawn(
    model: Sequence[Conditional], n_rows: int, generator: np.random.Generator
) -> tuple[_Integers, ...]:
    """Draws rows one attribute after the other.

    Among the rows that agree on the parents a cell gets its expected number, rounded up or down. What
    rounding takes from a cell is carried over to the next such rows, so that sums over many of them are off
    by about a row too: random draws would leave them off by their square roots.

    Args:
        model: Each attribute once, after its parents.
        n_rows: The number of rows to draw.
        generator: Public randomness.

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
        counts = _rounded(shares * members[:, None], members)
        # Within a group the values meet the other attributes at random.
        mixed = generator.permutation(n_rows)
        order = mixed[np.argsort(group[mixed], kind="stable")]
        column = np.empty(n_rows, dtype=np.int64)
        column[order] = np.repeat(np.tile(np.arange(counts.shape[1]), len(present)), counts.ravel())
        columns[one.attribute] = column
    return tuple(columns[attribute] for attribute in sorted(columns))


def _rounded(wanted: _Floats, totals: _Integers) -> _Integers:
    """Each number rounded up or down, so that rows keep their sums and columns nearly do.

    Args:
        wanted: Shape (groups, cells), not negative.
        totals: Sum of each group, shape (groups,).
    """
    counts = np.floor(wanted).astype(np.int64)
    rests = wanted - counts
    left = totals - counts.sum(axis=1)
    carried = np.zeros(wanted.shape[1])
    for group in np.flatnonzero(left):
        carried += rests[group]
        # A cell of exactly its whole number keeps it: an impossible one stays empty.
        claims = np.where(rests[group] > 0.0, carried, -np.inf)
        up = np.argpartition(claims, -left[group])[-left[group] :]
        counts[group, up] += 1
        carried[up] -= 1.0
    return counts


def whole_rows(shares: _Floats, n_rows: int, generator: np.random.Generator) -> _Integers:
    """Whole rows whose expected shares are exactly these.

    A cell gets the whole part of ``share * n_rows`` for sure; the rows that are left, fewer than there are
    cells, are drawn independently by the remainders. By Hoeffding a predicate's count is off by
    ``sqrt(left ln(2/beta) / 2)`` rows at most, except with probability beta.

    Args:
        shares: Sum to 1, shape (n_cells,).
        n_rows: The number of rows to draw.
        generator: Public randomness.
    """
    wanted = shares * n_rows
    counts = np.floor(wanted).astype(np.int64)
    left = n_rows - int(counts.sum())
    if left > 0:
        rest = wanted - counts
        counts += generator.multinomial(left, rest / rest.sum())
    return counts
