"""A graphical model of the belief: which attributes depend on which, as far as was published.

The universe may have 1e18 cells, so no table of it is ever built. Attributes are joined one by one, each to
those before it that tell most about it (a Chow-Liu tree, with up to three parents in place of one: Chow and
Liu 1968; Zhang et al. 2017), and its distribution given these is the maximum-entropy fit to the published
tables of one and two attributes among them. Attributes that are not joined are independent given the others.

**Noise is not structure.** What two attributes say together beyond each alone is estimated with a known
variance, so the energy that noise by itself would give it is known too. Energy that noise alone would reach
with probability 1% is worth nothing; other estimates are scaled down by the noise's part of their energy
(James and Stein 1961).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Final

import numpy as np
from scipy.special import chdtri

from stream_dp.core.residual.belief.linear_forms import Floats, table
from stream_dp.core.residual.belief.local_fit import maximum_entropy, non_negative
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.synthetic.rows import Conditional

MAX_PARENTS: Final = 3
MAX_CLIQUE_CELLS: Final = 2**11
"""With more than one parent; a single one comes with its published table, however large."""

_FALSE_ALARM: Final = 0.01
"""The probability of joining two attributes that are independent."""

_Attributes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """The conditionals to draw rows from, and the published tables of the window.

    Attributes:
        conditionals: The conditionals, in the order in which to draw.
        fitted: The published tables of one and two attributes that the conditionals were fitted to.
        others: The published tables of two attributes that they were not fitted to.
    """

    conditionals: tuple[Conditional, ...]
    fitted: frozenset[_Attributes]
    others: frozenset[_Attributes]


def model_of(tables: ResidualMemory, shape: tuple[int, ...], window: range) -> Model:
    """Fits a model to what is published of a window.

    Args:
        tables: The residuals of the published tables.
        shape: Sizes of the universe's attributes.
        window: Holds at least one row.
    """
    n_rows = max(1.0, tables.view((), window).likely_total)
    known = [a for a in range(len(shape)) if tables.measured((a,), window)]
    pairs = [pair for pair in combinations(known, 2) if tables.measured(pair, window)]
    singles = [np.full(size, n_rows / size) for size in shape]
    for a in known:
        singles[a] = non_negative(table(tables.view((a,), window).spectrum, axes=range(1)), n_rows)
    likely: dict[_Attributes, Floats] = {(a,): counts for a, counts in enumerate(singles)}
    worth = np.zeros((len(shape), len(shape)))
    for a, b in pairs:
        together = _together(tables, window, (a, b), singles[a], singles[b])
        if together is not None:
            likely[a, b] = together
            worth[a, b] = worth[b, a] = _information(together)
    joined = _joined(worth, shape)
    conditionals = tuple(_conditional(a, parents, likely, shape) for a, parents in joined)
    used = {
        tuple(sorted(pair))
        for a, parents in joined
        for pair in combinations((a, *parents), 2)
        if tuple(sorted(pair)) in likely
    }
    return Model(
        conditionals,
        frozenset(used | {(a,) for a in known}),
        frozenset(set(pairs) - used),
    )


def _together(
    tables: ResidualMemory, window: range, pair: _Attributes, one: Floats, other: Floats
) -> Floats | None:
    """Returns likely counts of two attributes. None if noise alone explains their joint counts.

    Args:
        tables: The residuals of the published tables.
        window: The absolute indices of the blocks.
        pair: The two attributes.
        one: Likely counts of the first attribute, shape (its size,).
        other: Likely counts of the second attribute, shape (its size,).
    """
    view = tables.view(pair, window)
    n_rows = max(1.0, view.likely_total)
    apart = np.outer(one, other) / n_rows
    centred = apart - apart.mean(axis=0) - apart.mean(axis=1, keepdims=True) + apart.mean()
    beyond = view.spectrum[1:, 1:] - centred
    energy = float(np.square(beyond).sum())
    # The noise of the pair itself, and what that of each alone brings through their product.
    n_free = (one.size - 1) * (other.size - 1)
    noise = view.noise((True, True))
    noise += view.noise((True, False)) * _spread(other / n_rows)
    noise += view.noise((False, True)) * _spread(one / n_rows)
    if energy <= noise * chdtri(n_free, _FALSE_ALARM) / n_free:
        return None
    return non_negative(apart + (1.0 - noise / energy) * beyond, n_rows)


def _spread(shares: Floats) -> float:
    return float(np.square(shares - shares.mean()).sum())


def _information(counts: Floats) -> float:
    """Mutual information of a table of two attributes, in nats."""
    shares = counts / counts.sum()
    apart = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    present = shares > 0.0
    return max(0.0, float((shares[present] * np.log(shares[present] / apart[present])).sum()))


def _joined(worth: Floats, shape: tuple[int, ...]) -> list[tuple[int, _Attributes]]:
    """Each attribute with its parents, which come before it and belong together.

    The next attribute is always the one that can be joined at the greatest worth: that of its pairs with
    the parents, added up.
    """
    n = len(shape)
    sizes = np.array(shape, dtype=np.float64)
    best = np.zeros(n)
    parents: list[_Attributes] = [()] * n
    left = set(range(n))
    joined: list[tuple[int, _Attributes]] = []
    strongest = worth.max(axis=1)
    while left:
        # Where nothing is to be gained, the most informative attribute starts a new clique.
        newest = max(left, key=lambda a: (best[a], strongest[a], -a))
        left.remove(newest)
        joined.append((newest, parents[newest]))
        before = parents[newest]
        subsets = chain.from_iterable(combinations(before, k) for k in range(MAX_PARENTS))
        for others in subsets:
            candidate = (newest, *others)
            cells = math.prod(shape[a] for a in candidate)
            worths = worth[list(candidate)]
            gain = np.where((worths > 0.0).all(axis=0), worths.sum(axis=0), 0.0)
            if others:
                gain[cells * sizes > MAX_CLIQUE_CELLS] = 0.0
            for a in left:
                if gain[a] > best[a]:
                    best[a], parents[a] = gain[a], candidate
    return joined


def _conditional(
    attribute: int,
    parents: _Attributes,
    likely: dict[_Attributes, Floats],
    shape: tuple[int, ...],
) -> Conditional:
    """The distribution of an attribute given its parents."""
    own = likely[attribute,]
    clique = tuple(sorted((attribute, *parents)))
    targets = {
        tuple(clique.index(a) for a in part): likely[part]
        for k in (2, 1)
        for part in combinations(clique, k)
        if part in likely
    }
    sizes = tuple(shape[a] for a in clique)
    counts = maximum_entropy(sizes, targets, float(own.sum()))
    counts = counts.transpose([clique.index(a) for a in (*parents, attribute)])
    total = counts.sum(axis=-1, keepdims=True)
    # A cell of the parents that this fit leaves empty may be filled by another's.
    shares = np.where(total > 0.0, counts, own) / np.where(total > 0.0, total, own.sum())
    return Conditional(attribute, parents, shares)
