"""The interface that every representation of the consistent set offers.

The consistent set ``C`` of Roth & Roughgarden 2010 and Kim 2017 consists of hypothetical datasets, one block
of ``hypothesis_rows`` rows a phase, that agree with everything published so far. It is a function of
published values alone. Its representation touches accuracy, never privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A predicate on the whole universe, shape (n_cells,), row-major."""

_GRID: Final = 2.0**50


def block_shares(sizes: Sequence[int], window: range) -> npt.NDArray[np.float64]:
    """Share of each block's rows in a window, shape (len(sizes),); 0 outside."""
    shares = np.zeros(len(sizes))
    total = sum(sizes[window.start : window.stop])
    for block in window:
        shares[block] = sizes[block] / total
    return shares


def on_grid(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Brought into [0, 1] and rounded to multiples of 2**-50."""
    return np.asarray(np.rint(np.clip(shares, 0.0, 1.0) * _GRID) / _GRID)


@dataclass(frozen=True, slots=True)
class HardAnswer:
    """A published hard answer: ``|f^W - value| <= tolerance``."""

    mask: Mask = field(repr=False)
    window: range
    value: float
    tolerance: float

    @classmethod
    def of(cls, mask: Mask, window: range, answer: Fraction, tolerance: Fraction) -> HardAnswer:
        """Builds it from the arguments of ``ConsistentSet.prune``. The mask may change afterwards."""
        return cls(mask.copy(), window, float(answer), float(tolerance))


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a predicate query's answer on a hypothesis drawn from the consistent set.

    Attributes:
        values: The exact answers, as shares of rows in [0, 1], strictly ascending.
        weights: The weights of the values, one positive integer each. Their scale means nothing.
        effective_size: The number of independent draws that the values are worth. None if none were drawn.
    """

    values: tuple[Fraction, ...]
    weights: tuple[int, ...]
    effective_size: float | None = None

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.weights) > 0, "a distribution has support"

    @classmethod
    def of_nodes(
        cls, nodes: npt.NDArray[np.float64], *, effective_size: float | None = None
    ) -> Distribution:
        """Builds it from equally likely shares of any shape that are ``on_grid``."""
        values, weights = np.unique(nodes, return_counts=True)
        exact = tuple(Fraction(value) for value in values.tolist())
        return cls(exact, tuple(weights.tolist()), effective_size)

    @property
    def mean(self) -> Fraction:
        pairs = zip(self.values, self.weights, strict=True)
        return sum((v * w for v, w in pairs), Fraction(0)) / sum(self.weights)

    @property
    def lower_median(self) -> Fraction:
        """The smallest value that at least half of the weight does not exceed.

        The papers leave the median of an even or weighted set open; this choice is always a value that
        some hypothesis takes, and lies wherever more than half of the weight lies.
        """
        total, passed = sum(self.weights), 0
        for value, weight in zip(self.values, self.weights, strict=True):
            passed += weight
            if 2 * passed >= total:
                return value
        raise AssertionError("the weights sum to their total")


class ConsistentSet(Protocol):
    """The hypotheses that agree with every answer published so far.

    Blocks are numbered from 0 in the order they were added; a window is a non-empty range of them. For a
    hypothesis ``S = S_1 || ... || S_j`` and a window ``W`` a predicate query ``f`` takes the value
    ``f^W(S) = sum over l in W of n_l / n_W * f(S_l)`` (Kim 2017, section 5.1, with ``W`` everything).
    """

    @property
    def empty(self) -> bool:
        """Whether no hypothesis agrees with all answers."""
        ...

    def add_block(self, n_rows: int) -> None:
        """Takes the product with all hypotheses of one more block, which stands for ``n_rows`` rows."""
        ...

    def distribution(self, mask: Mask, window: range) -> Distribution:
        """Returns the distribution of ``f^W`` over the set.

        Raises:
            ValueError: The set is empty.
        """
        ...

    def prune(self, mask: Mask, window: range, answer: Fraction, tolerance: Fraction) -> None:
        """Removes every hypothesis with ``|f^W(S) - answer| > tolerance``."""
        ...

    def point(self) -> npt.NDArray[np.float64]:
        """One distribution over the cells for each block that agrees with all answers, as the whole set does.

        Shape (n_blocks, n_cells). A block's shares sum to 1 at most.

        Raises:
            ValueError: The set is empty.
        """
        ...
