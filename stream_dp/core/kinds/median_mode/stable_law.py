"""Answers that are released only where they are stable: medians and modes.

Propose-test-release with an integer distance (lecture notes on stable median, subsample-and-aggregate and
propose-test-release; the papers behind them: Dwork and Lei 2009, Smith and Thakurta 2013, Nissim,
Raskhodnikova, Smith 2007).

Let ``distance`` be the least number of rows to replace so that the answer changes. The answer is released if
``distance`` plus discrete Laplace noise of scale ``1 / epsilon`` exceeds K, else nothing is said.

**Guarantee.** (epsilon, delta)-differential privacy for replacing one row, a refusal included, where K is
the least integer with ``p^K / (1 + p) <= delta``, ``p = exp(-epsilon)``. *Proof.* If neighbours have one
answer, their distances differ by at most 1, and both outcomes by a factor of at most ``exp(epsilon)``. If
they have two, both distances are 1: they refuse with equal probability, and release with ``Pr[noise >= K] =
p^K / (1 + p)``.

Each call is a whole look with its own loss, refusals too. Nothing secret is left behind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np

from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.randomness.exact_choice import permutation
from stream_dp.core.randomness.laplace import scale_from, tail_point
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource

NEVER: Final = 2**62
"""A distance no data has: the answer is the same whatever the rows are."""


@dataclass(frozen=True)
class StablePlan:
    """The test of a distance; public.

    Attributes:
        epsilon: The epsilon of one look.
        delta: The delta of one look.
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon, self.delta)

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon, self.delta)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of the distance's noise, ``1 / epsilon``."""
        return scale_from(1 / self.epsilon)

    @cached_property
    def threshold(self) -> int:
        """K."""
        return tail_point(self.scale, self.delta)

    def release_probability(self, distance: int) -> float:
        """Probability that an answer of this distance is released; a true distance must never be shown."""
        p, excess = math.exp(-1.0 / self.scale), self.threshold - distance
        if excess >= 0:
            return p ** (excess + 1) / (1.0 + p)
        return 1.0 - p**-excess / (1.0 + p)

    def release(self, answer: int, distance: int, noise: NoiseSource) -> int | None:
        """The look: ``answer``, or None for "no answer".

        Args:
            answer: Exact. Private.
            distance: The least number of rows to replace that changes it, at least 1. Private.
            noise: The source of randomness.
        """
        noisy = distance + int(noise.laplace(self.scale, 1)[0])
        return answer if noisy > self.threshold else None


def order_statistic(counts: IntArray, rank: int) -> tuple[int, int]:
    """The bin of the row at ``rank`` in order, and how many rows must be replaced to move it. Private.

    ``min(h - lt, le - h + 1)`` with lt rows before the bin and le up to it, each where there is a bin on that
    side.

    Args:
        counts: Rows in each bin, exact, shape (n_bins,).
        rank: h, from 1 to the number of rows; the lower median's is ``ceil(n / 2)``.
    """
    up_to = np.cumsum(counts)
    if not 1 <= rank <= up_to[-1]:
        raise ValueError(f"no row has the rank {rank}")
    found = int(np.searchsorted(up_to, rank))
    below = int(up_to[found] - counts[found])
    distances = [NEVER]
    if found > 0:
        distances.append(rank - below)
    if found < len(counts) - 1:
        distances.append(int(up_to[found]) - rank + 1)
    return found, min(distances)


def stable_median(plan: StablePlan, counts: IntArray, noise: NoiseSource) -> int | None:
    """The lower median's bin if it is stable: one look.

    Args:
        plan: The public parameters of the look.
        counts: Rows in each bin, exact, shape (n_bins,); at least one row. Private.
        noise: The source of randomness.
    """
    return plan.release(*order_statistic(counts, -(-int(counts.sum()) // 2)), noise)


def mode(frequencies: IntArray) -> tuple[int, int]:
    """The most frequent label, the smaller of equals, and how many answers to alter to change it. Private.

    Against another label that is g answers behind: ``(g + 1) // 2`` if it wins ties against the mode, else
    ``g // 2 + 1``; a label that nobody gave counts too.

    Args:
        frequencies: Answers with each label, exact, shape (n_labels,).
    """
    best = int(np.argmax(frequencies))
    behind = int(frequencies[best]) - frequencies
    to_alter = np.where(np.arange(len(frequencies)) < best, (behind + 1) // 2, behind // 2 + 1)
    to_alter[best] = NEVER
    return best, int(to_alter.min())


def stable_mode(plan: StablePlan, counts: IntArray, noise: NoiseSource) -> int | None:
    """The most frequent bin if it is stable, that is, if it leads by enough rows: one look.

    Args:
        plan: The public parameters of the look.
        counts: Rows in each bin, exact, shape (n_bins,). Private.
        noise: The source of randomness.
    """
    return plan.release(*mode(counts), noise)


def disjoint_mode(
    plan: StablePlan, n_groups: int, counts: IntArray, noise: NoiseSource
) -> int | None:
    """Subsample and aggregate: rows are dealt to groups, each answers, a stable mode is released.

    The way for answers whose stability is hard to tell. That of the rows' own mode is not: ``stable_mode``
    tests it without the detour, and names it with fewer rows.

    **Guarantee.** ``StablePlan``'s: a row sits in one group, so replacing it alters one answer. The deal is
    drawn without the data and every deal is as likely, so it may as well be the same for neighbours.

    Args:
        plan: The test of the mode.
        n_groups: Groups, each of ``n_rows // n_groups`` rows or one more.
        counts: Rows in each bin, exact, shape (n_bins,); at least a row a group. Private.
        noise: The source of randomness.

    Returns:
        The label that most groups have as their most frequent bin, or None for "no answer".
    """
    n_rows = int(counts.sum())
    if not 1 <= n_groups <= n_rows:
        raise ValueError(f"{n_rows} rows are too few for {n_groups} groups")
    group = np.empty(n_rows, dtype=np.int64)
    group[permutation(noise, n_rows)] = np.arange(n_rows) % n_groups
    bins = np.repeat(np.arange(len(counts)), counts)
    return plan.release(*mode(_votes(bins, group, n_groups, len(counts))), noise)


def _votes(bins: IntArray, group: IntArray, n_groups: int, n_bins: int) -> IntArray:
    """Groups whose most frequent bin each bin is, shape (n_bins,), from the bin and the group of each row."""
    table = np.bincount(group * n_bins + bins, minlength=n_groups * n_bins)
    answers = table.reshape(n_groups, n_bins).argmax(axis=1)
    return np.bincount(answers, minlength=n_bins).astype(np.int64)
