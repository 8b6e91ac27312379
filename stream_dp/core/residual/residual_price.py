"""Prices of residuals, and of one kind of query alone: Lemmas A and B of ``docs/mechanisms.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stream_dp.core.residual.belief.forms import subsets


def residual_price(sizes: Sequence[int]) -> float:
    """Returns the price of a precision of 1 of the residual over attributes of these sizes (Lemma A)."""
    return math.prod(1.0 - 1.0 / n for n in sizes) - math.prod(-1.0 / n for n in sizes)


def standalone_price(norms: Sequence[float], sizes: Sequence[int]) -> float:
    """The least rho of any release of tables that brings such a query to a variance of 1 (Lemma B).

    Args:
        norms: |x_T|^2 for each subset T, in the order of ``forms.subsets``.
        sizes: The cells of each attribute.
    """
    roots = 0.0
    for norm, subset in zip(norms, subsets(len(sizes)), strict=True):
        if any(subset) and norm > 0.0:
            inside = [n for n, member in zip(sizes, subset, strict=True) if member]
            roots += math.sqrt(norm * residual_price(inside))
    return roots * roots


__all__ = ["residual_price", "standalone_price"]
