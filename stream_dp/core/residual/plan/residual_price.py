"""Prices of residuals, and of one kind of query alone: Lemmas A and B of ``docs/planning.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress, product

from stream_dp.core.residual.belief.levels import LevelChain, flat


def residual_price(
    sizes: Sequence[int | LevelChain], levels: Sequence[int] = (), *, total_known: bool = True
) -> float:
    """The weight of tables that a precision of 1 of the residual over some attributes takes (Lemma A).

    Args:
        sizes: The cells of each attribute, or its chain. Empty for the number of rows, which is free where it
            is public.
        levels: The level of each attribute, from 1 on. Empty where all are at level 1.
        total_known: Whether the number of rows is public.
    """
    chains = list(map(_chain, sizes))
    steps = [
        1.0 / chain.widths[level] - 1.0 / chain.widths[level - 1]
        for chain, level in zip(chains, levels or [1] * len(chains), strict=True)
    ]
    if not total_known or max(levels, default=1) > 1:
        return math.prod(steps)
    # A public count of all rows makes residuals at level 1 cheaper, and no others.
    return math.prod(steps) - math.prod(-1.0 / chain.size for chain in chains)


def standalone_price(
    norms: Sequence[float], sizes: Sequence[int | LevelChain], *, total_known: bool = True
) -> float:
    """The least weight of any tables that bring such a query to a variance of 1 (Lemma B).

    Args:
        norms: |x_T|^2 for each T, in the order of ``Layout``.
        sizes: The cells of each attribute, or its chain.
        total_known: Whether the number of rows is public.
    """
    chains = list(map(_chain, sizes))
    roots = 0.0
    every = product(*(range(chain.finest + 1) for chain in chains))
    for norm, levels in zip(norms, every, strict=True):
        if norm > 0.0:
            members, inside = list(compress(chains, levels)), [t for t in levels if t]
            roots += math.sqrt(norm * residual_price(members, inside, total_known=total_known))
    return roots * roots


def _chain(size: int | LevelChain) -> LevelChain:
    return size if isinstance(size, LevelChain) else flat(size)
