"""Counts slots by column, exactly, in the memory of one table and one chunk of slots.

A slot is the place of a row in a block. What is read of it is one code for each attribute of the table, and
perhaps a weight and numbers. The work follows from the number of slots and the sizes of the attributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Counts: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""One value for each slot, in the least unsigned type. Private."""

_CHUNK: Final = 2**17
"""Slots at a time: their cells stay in the cache of a processor."""

_LARGE_CHUNK: Final = 2**20
"""Slots at a time where the table is large itself. As many numbers below 2^32 add up exactly in floats."""

_LARGE_TABLE: Final = 2**15
_FEW_CELLS: Final = 24
"""Up to this number of cells it is quicker to compare each slot with each. Its time shows no value."""

_PAIRED_CELLS: Final = 64
_DIGIT_BITS: Final = 32


def count_slots(
    codes: Sequence[Column],
    sizes: Sequence[int],
    n_slots: int,
    *,
    weight: Column | None = None,
    digits: Sequence[Column] = (),
) -> Counts:
    """Counts the slots of each cell, or adds up what they count for.

    Args:
        codes: The code of each slot, one column for each attribute, shape (n_slots,).
        sizes: The number of codes of each attribute.
        n_slots: The number of slots.
        weight: 1 for a slot that counts and 0 for one that does not, shape (n_slots,). None if all count.
        digits: What each slot counts for, to the base 2^32, the lowest digit first. Empty for 1.

    Returns:
        int64, of shape ``sizes``.
    """
    n_cells = math.prod(sizes)
    n_ids = n_cells + (weight is not None)  # what does not count has the last id of the type
    kind = next(
        kind for kind in (np.uint8, np.uint16, np.uint32) if n_ids <= np.iinfo(kind).max + 1
    )
    n_bins = n_ids if weight is None or kind is np.uint32 else int(np.iinfo(kind).max) + 1
    table = np.zeros(n_bins, dtype=np.int64)
    pairs = np.zeros(2**16, dtype=np.int64)
    chunk = _CHUNK if n_bins <= _LARGE_TABLE else _LARGE_CHUNK
    for at in range(0, n_slots, chunk):
        part = slice(at, min(at + chunk, n_slots))
        ids = _cells([column[part] for column in codes], sizes, part.stop - at, kind)
        if weight is not None:
            ids = _without(ids, weight[part], n_cells)
        if digits:
            for place, digit in enumerate(digits):
                sums = np.bincount(ids, digit[part], minlength=n_bins)
                table += sums.astype(np.int64) << (_DIGIT_BITS * place)
        elif n_cells <= _FEW_CELLS:
            for cell in range(n_cells):
                table[cell] += np.count_nonzero(ids == kind(cell))
        elif kind is np.uint8 and n_cells <= _PAIRED_CELLS and len(ids) % 2 == 0:
            pairs += np.bincount(np.ascontiguousarray(ids).view(np.uint16), minlength=2**16)
        else:
            table += np.bincount(ids, minlength=n_bins)
    if n_cells <= _PAIRED_CELLS:
        both = pairs.reshape(2**8, 2**8)
        table[:n_cells] += (both.sum(axis=0) + both.sum(axis=1))[:n_cells]
    return table[:n_cells].reshape(tuple(sizes))


def _cells(codes: Sequence[Column], sizes: Sequence[int], n_slots: int, kind: Any) -> Column:
    """The cell of each slot as a number of mixed radix, shape (n_slots,)."""
    if not codes:
        return np.zeros(n_slots, dtype=kind)
    ids: Column = codes[0].astype(kind, copy=False)
    for column, size in zip(codes[1:], sizes[1:], strict=True):
        # Where the size itself does not fit, all attributes before it have one code, which is 0.
        ids = ids * kind(size % (int(np.iinfo(kind).max) + 1))
        ids += column.astype(kind, copy=False)
    return ids


def _without(ids: Column, weight: Column, n_cells: int) -> Column:
    """The ids, the last one for slots of weight 0. No branch depends on which these are."""
    kind = ids.dtype.type
    out = weight.astype(kind) - kind(1)  # 0 for a slot that counts, all ones for another
    if kind is not np.uint32:
        return ids | out
    return np.where(out == 0, ids, kind(n_cells))


def digits_of(numbers: Counts) -> tuple[Column, Column]:
    """Splits numbers of at least 0 and below 2^63 into the two digits that ``count_slots`` takes."""
    low = (numbers & 0xFFFF_FFFF).astype(np.uint32)
    return low, (numbers >> _DIGIT_BITS).astype(np.uint32)


def from_digits(low: Column, high: Column) -> Counts:
    """Inverse of ``digits_of``."""
    return low.astype(np.int64) + (high.astype(np.int64) << _DIGIT_BITS)
