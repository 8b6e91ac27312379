"""The price of opening a phase of the calibrated profile, and what that certifies, in public words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.residual.base_release.expected_queries import ALL_PHASES, conjunction_norms
from stream_dp.core.residual.calibrated import Calibrated

_LARGE: Final = 0.2

_MOVED: Final = 0.25
"""The part of the rows of a table that noise may move before synthetic rows count as poor."""

_NARROW: Final = 7
"""Attributes up to which queries about three are looked at."""

_TRIED_SIZES: Final = 512
"""How many sizes of a phase the range of an announcement is worked out for."""

_BETWEEN: Final = 0.005
"""By what part of itself a price may change between two of these sizes: scales of noise are on a grid."""

_NUMBERS: Final = ("no", "one", "two", "three")


@dataclass(frozen=True)
class Opening:
    """The effect of opening a phase on the line of its block.

    Attributes:
        share: The share of the line that it spends.
        certifies: What is free from then on, in words, for windows that may be short before those that must
            be longer. Empty if nothing is.
        one_by_one: The number of expected queries that a whole line would pay for one by one; infinite if
            none is expected to cost anything.
        expected: The number of different queries that are expected in each phase.
        named: Whether the definition says which queries are expected, or how many.
        blurred: What synthetic rows of one phase would say little about, in words; None for nothing.
    """

    share: float
    certifies: tuple[str, ...]
    one_by_one: float
    expected: int
    named: bool
    blurred: str | None

    @property
    def large(self) -> bool:
        """Whether it spends so much of a line that it deserves a warning."""
        return self.share >= _LARGE

    @property
    def scarce(self) -> bool:
        """Whether a line cannot pay for the queries of one phase on demand."""
        return self.expected > self.one_by_one


@dataclass(frozen=True)
class Announced:
    """What opening a phase takes of the line of its block, as the owner is told beforehand.

    Attributes:
        n_rows: The fewest and the most rows that count of a phase that the range is about.
        least: The least share of the line.
        most: The largest share of the line, for a phase of these sizes.
        ever: A share that no opening exceeds, whatever the phase, nor together with what is measured later
            because far more is asked than expected.
    """

    n_rows: tuple[int, int]
    least: float
    most: float
    ever: float


def announced(
    mechanism: Mechanism, n_counted: int, most_counted: int | None = None
) -> Announced | None:
    """Returns what opening a phase takes if ``n_counted`` to ``most_counted`` rows of it count.

    Where persons are protected, the release follows from a noisy number of rows that count. The range allows
    for the noise.

    Args:
        mechanism: The mechanism of the data set.
        n_counted: The rows of the smallest phase that count.
        most_counted: The rows of the largest one that count. None for twice as many.

    Returns:
        What opening takes; None where the profile does not say.
    """
    if not isinstance(mechanism, Calibrated):
        return None
    n_rows = n_counted, 2 * n_counted if most_counted is None else most_counted
    off = n_rows[1] - mechanism.openings.margin(n_rows[1])
    first, last = max(1, n_rows[0] - off), n_rows[1] + off
    sizes = (first * (last / first) ** (i / (_TRIED_SIZES - 1)) for i in range(_TRIED_SIZES))
    found = {mechanism.opening_units(n) for n in sorted({first, last, *map(round, sizes)})}
    look = mechanism.state.first_looks
    beyond = mechanism.opening_units(n_counted) - mechanism.openings.units(n_counted)
    ever = mechanism.openings.most_measured + beyond
    least = look + (min(found) - look) * (1.0 - _BETWEEN)
    most = min(ever, look + (max(found) - look) * (1.0 + _BETWEEN))
    return Announced(n_rows, least / UNITS, most / UNITS, min(1.0, ever / UNITS))


def opening_of(mechanism: Mechanism, names: Sequence[str], n_counted: int) -> Opening | None:
    """Returns the effect of opening a phase of which ``n_counted`` rows count. None for the other profiles.

    Args:
        mechanism: The mechanism of the data set.
        names: The names of the attributes.
        n_counted: The rows of the phase that count. Where persons are protected these are at most all rows.
    """
    if not isinstance(mechanism, Calibrated):
        return None
    n_rows = mechanism.openings.margin(n_counted)
    each = mechanism.openings.price_on_demand(n_rows) if n_rows else math.inf
    return Opening(
        mechanism.openings.units(n_counted) / UNITS,
        _certified(mechanism, names, n_rows),
        1.0 / each if each else math.inf,
        mechanism.openings.plan.queries,
        mechanism.openings.plan.expected.is_named,
        _blurred(mechanism, names, n_rows),
    )


def _blurred(counts: Calibrated, names: Sequence[str], n_rows: int) -> str | None:
    """The columns, and the number of pairs of the others, that the base release says too little about."""
    reach, shape = counts.openings.reach(n_rows), counts.state.shape

    def blurred(attributes: tuple[int, ...]) -> bool:
        sizes = [shape[a] for a in attributes]
        if reach is None:
            return True
        norms = conjunction_norms(counts.state.promise.axes, attributes, [1] * len(sizes))
        variance = reach.variance(attributes, norms)
        # Half of what the noise of all cells adds up to is the part of the rows that it moves.
        moved = 0.5 * math.sqrt(2.0 / math.pi) * math.prod(sizes) * math.sqrt(variance)
        return moved > _MOVED * n_rows

    columns = [a for a in range(len(shape)) if blurred((a,))]
    pairs = list(combinations((a for a in range(len(shape)) if a not in columns), 2))
    lost = sum(map(blurred, pairs))
    parts = []
    if columns:
        parts.append(", ".join(names[a] for a in columns))
    if 2 * lost > len(pairs):
        others = " of the other" if columns else " of"
        some = "the pair" if len(pairs) == 1 else f"{lost} of the {len(pairs)} pairs"
        parts.append(f"{some}{others} columns")
    return " and ".join(parts) or None


def _certified(counts: Calibrated, names: Sequence[str], n_rows: int) -> tuple[str, ...]:
    reach = counts.openings.reach(n_rows)
    if reach is None:
        return ()
    found: dict[int, list[str]] = defaultdict(list)
    shape, axes = counts.state.shape, counts.state.promise.axes
    some = [a for a, n in enumerate(axes.shape) if n > 1]
    for kind in ("tables of", "conditions on"):
        for order in range(1, min(len(some), 3 if len(some) <= _NARROW else 2) + 1):
            phases = {}
            for attributes in combinations(some, order):
                sizes = [shape[a] for a in attributes]
                cells = [1 if kind == "tables of" else max(1, n // 2) for n in sizes]
                norms = conjunction_norms(axes, attributes, cells)
                phases[attributes] = reach.phases(attributes, norms)
            columns = f"{_NUMBERS[order]} column{'s' if order > 1 else ''}"
            for window, words in _grouped(phases, names):
                found[window].append(f"{kind} {columns}{words}")
    return tuple(
        f"{'any window' if window == 1 else f'windows of {window} phases or more'}: "
        f"{', '.join(found[window])}"
        for window in sorted(found)
    )


def _grouped(phases: dict[tuple[int, ...], float], names: Sequence[str]) -> list[tuple[int, str]]:
    """The window from which on all of these queries are certified, or most of them and which are not."""
    largest = max(phases.values())
    if largest <= ALL_PHASES:
        return [(int(largest), "")]
    far = [attributes for attributes, least in phases.items() if least > ALL_PHASES]
    without: list[int] = []
    while far:  # the attribute that is in most of what is left
        members = [a for attributes in far for a in attributes]
        without.append(max(sorted(set(members)), key=members.count))
        far = [attributes for attributes in far if without[-1] not in attributes]
    rest = [least for t, least in phases.items() if not set(t) & set(without)]
    if not rest or 2 * len(without) >= len(names):
        return []
    left_out = ", ".join(names[a] for a in sorted(without))
    return [(int(max(rest)), f" (not {left_out})")]
