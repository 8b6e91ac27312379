"""The tables that are measured together where a query needs the counts of all cells of its attributes.

Without levels that is one table. Along a chain (``levels``), tables of groups next to it make ranges cheaper:
the noise of a range then comes from a few groups of each level. The multiplicative algorithm of optimal
design says how precise each table is, for queries of the form asked, wherever they lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Final

import numpy as np

from stream_dp.core.randomness.noise_sources import GRID_STEPS
from stream_dp.core.residual.belief.levels import Floats, Layout

_ROUNDS: Final = 120
_LEAST_SHARE: Final = 0.01
"""Tables that take less of the price are not measured."""

_FINENESS: Final = 2.0
"""Steps in which norms double."""

_NOTHING: Final = 1e-6

_WORTH: Final = 0.9
"""Several tables are measured where they cost at most this part of one."""


@dataclass(frozen=True)
class Package:
    """Tables over the same attributes, which differ in how the cells are grouped.

    Attributes:
        groups: The groups, or cells, of each attribute, for each table.
        offsets: The steps of the grid of scales by which each table is coarser than the package.
        reach: Precision that a precision of 1 of each table brings to each residual, shape (parts, tables).
    """

    groups: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    reach: Floats

    @property
    def n_counts(self) -> int:
        """The counts of all tables together."""
        return sum(math.prod(groups) for groups in self.groups)

    @cached_property
    def shares(self) -> Floats:
        """The precision of each table in a package of precision 1. They add up to 1 or more."""
        return np.exp2(-2.0 * np.array(self.offsets) / GRID_STEPS)

    @cached_property
    def brought(self) -> Floats:
        """Precision that a package of precision 1 brings to each residual, shape (parts,)."""
        return self.reach @ self.shares


def package(layout: Layout, typical: Floats | None) -> Package:
    """The package that costs about the least for some queries.

    Args:
        layout: The attributes.
        typical: Squared norms of the queries, an entry for each part of the layout. None where no attribute
            has more than one level: then there is one package only.
    """
    if typical is None or not typical[1:].any():
        return _package(layout, ())
    # Queries that are nearly alike share a package: it is worked out once.
    norms = typical[1:] / typical[1:].max()
    known = norms > _NOTHING
    steps = np.rint(_FINENESS * np.log2(norms, where=known, out=np.zeros_like(norms)))
    return _package(layout, tuple(np.where(known, np.exp2(steps / _FINENESS), 0.0).tolist()))


@lru_cache(maxsize=1024)
def _package(layout: Layout, typical: tuple[float, ...]) -> Package:
    whole = layout.reach(layout.finest)[:, None]
    if not typical:
        return Package((layout.groups_at(layout.finest),), (0,), whole)
    levels = list(product(*(range(1, chain.finest + 1) for chain in layout.chains)))
    reach = np.stack([layout.reach(each) for each in levels], axis=1)[1:]
    norms = np.array(typical)
    shares = np.full(len(levels), 1.0 / len(levels))
    for _ in range(_ROUNDS):
        shares *= np.sqrt((norms / np.square(reach @ shares)) @ reach)
        shares /= shares.sum()
    shares = np.where(shares < _LEAST_SHARE, 0.0, shares)
    shares /= shares.sum()
    precision = reach @ shares
    if not (precision[norms > 0.0] > 0.0).all():
        return Package((layout.groups_at(layout.finest),), (0,), whole)
    used = norms > 0.0
    alone, together = (norms[used] @ (1.0 / p[used]) for p in (whole[1:, 0], precision))
    if together > _WORTH * alone:
        return Package((layout.groups_at(layout.finest),), (0,), whole)
    chosen = [i for i, share in enumerate(shares) if share > 0.0]
    # Rounded towards precision, so that the shares add up to 1 at least.
    offsets = np.floor(-0.5 * GRID_STEPS * np.log2(shares[chosen])).astype(int)
    return Package(
        tuple(layout.groups_at(levels[i]) for i in chosen),
        tuple(offsets.tolist()),
        np.stack([layout.reach(levels[i]) for i in chosen], axis=1),
    )
