"""Blocks as they are stored: what is kept of their slabs, and how they come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.slabs import Slab, SlabIndex

SALT = bytes(range(100, 116))


def drawn_order(seed: int) -> Callable[[int], npt.NDArray[np.intp]]:
    """An order of slots that is the same in every run."""
    draws = np.random.default_rng(seed)
    return draws.permutation


def slabs_again(slabs: Iterable[Slab]) -> tuple[Slab, ...]:
    """Slabs as they come back from what is kept, with each column compared with its index."""
    found = []
    for slab in slabs:
        parts = slab.stored(SALT)
        index = SlabIndex.from_bytes(parts[0])
        assert [index.has(place, part) for place, part in enumerate(parts[1:], 1)] == [True] * (
            len(parts) - 1
        )
        found.append(Slab.of_stored(parts))
    return tuple(found)


def block_again(block: Block) -> Block:
    """A block as it comes back."""
    return replace(block, slabs=slabs_again(block.slabs), ordered=slabs_again(block.ordered))


def stored_lengths(slabs: Iterable[Slab]) -> list[list[int]]:
    """The length of each part of each slab."""
    return [[len(part) for part in slab.stored(SALT)] for slab in slabs]


def block_lengths(block: Block) -> list[list[int]]:
    """The length of all that is kept of a block."""
    return stored_lengths((*block.slabs, *block.ordered))
