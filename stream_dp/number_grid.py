"""Edges for numbers of which nobody knows the range: the same for all of them, and chosen without any row.

For each sign there are four steps an octave, from 2^-10 to 2^40. So a bin, but that of 0, is at most a
quarter as wide as its numbers are large. There are 403 bins, the outer ones open. Whole numbers have the
whole ones of these edges, and 0.
"""

from __future__ import annotations

from functools import cache
from math import ldexp
from typing import Final

_FIRST_OCTAVE: Final = -10
_END: Final = 40
_STEPS: Final = 4


@cache
def grid_edges(*, whole: bool = False) -> tuple[float, ...]:
    """Returns the edges of the grid, ascending.

    Args:
        whole: Whether all numbers are whole.
    """
    octaves = range(_FIRST_OCTAVE, _END)
    sizes = [ldexp(1.0 + step / _STEPS, octave) for octave in octaves for step in range(_STEPS)]
    sizes.append(ldexp(1.0, _END))
    if whole:
        sizes = [0.0, *(size for size in sizes if size.is_integer())]
    return *(-size for size in reversed(sizes) if size), *sizes
