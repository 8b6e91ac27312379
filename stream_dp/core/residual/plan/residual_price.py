"""Prices of residuals, and of one kind of query alone: Lemmas A and B of ``docs/planning.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stream_dp.core.residual.belief.levels import Axes, Part


def residual_price(axes: Axes, part: Part) -> float:
    """The weight of tables that a precision of 1 of a residual takes (Lemma A).

    The number of rows, which is the empty residual, is free where it is public.
    """
    members = axes.members(part)
    price = math.prod(1.0 / c.widths[level] - 1.0 / c.widths[level - 1] for c, level in members)
    if not axes.total_known or any(level > 1 for _, level in members):
        return price
    # A public count of all rows makes residuals at level 1 cheaper, and no others.
    return price - math.prod(-1.0 / chain.size for chain, _ in members)


def standalone_price(axes: Axes, attributes: tuple[int, ...], norms: Sequence[float]) -> float:
    """The least weight of any tables that bring such a query to a variance of 1 (Lemma B).

    Args:
        axes: The attributes of the universe.
        attributes: Those that the query depends on, ascending.
        norms: |x_T|^2 for each T, in the order of ``Layout``.
    """
    roots = 0.0
    for norm, part in zip(norms, axes.layout(attributes).parts, strict=True):
        if norm > 0.0:
            roots += math.sqrt(norm * residual_price(axes, part))
    return roots * roots
