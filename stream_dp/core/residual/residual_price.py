"""Prices of residuals, and of one kind of query alone: Lemmas A and B of ``docs/mechanisms.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress, product

from stream_dp.core.residual.belief.levels import Chain, flat


def residual_price(sizes: Sequence[int | Chain], levels: Sequence[int] = ()) -> float:
    """Returns the price of a precision of 1 of the residual over attributes of these sizes (Lemma A).

    Args:
        sizes: The cells of each attribute, or its chain.
        levels: The level of each attribute, from 1 on. Empty where all are at level 1.
    """
    chains = list(map(_chain, sizes))
    steps = [
        1.0 / chain.widths[level] - 1.0 / chain.widths[level - 1]
        for chain, level in zip(chains, levels or [1] * len(chains), strict=True)
    ]
    # The count of all rows is public, which makes residuals at level 1 cheaper, and no others.
    first = max(levels, default=1) == 1
    public = math.prod(-1.0 / chain.size for chain in chains) if first else 0.0
    return math.prod(steps) - public


def standalone_price(norms: Sequence[float], sizes: Sequence[int | Chain]) -> float:
    """The least rho of any release of tables that brings such a query to a variance of 1 (Lemma B).

    Args:
        norms: |x_T|^2 for each T, in the order of ``Layout``.
        sizes: The cells of each attribute, or its chain.
    """
    chains = list(map(_chain, sizes))
    roots = 0.0
    every = product(*(range(chain.finest + 1) for chain in chains))
    for norm, levels in zip(norms, every, strict=True):
        if any(levels) and norm > 0.0:
            members = list(compress(chains, levels))
            roots += math.sqrt(norm * residual_price(members, [t for t in levels if t]))
    return roots * roots


def _chain(size: int | Chain) -> Chain:
    return size if isinstance(size, Chain) else flat(size)


__all__ = ["residual_price", "standalone_price"]
