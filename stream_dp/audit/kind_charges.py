"""The charges that looks of other kinds than counts must have, each of which has a share of a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import ClassVar, Final

from stream_dp.audit.line_limits import Line, named
from stream_dp.audit.look_facts import Look, OpenBlocks, Owed, Runs, each_of
from stream_dp.audit.numbers import (
    UNITS,
    Wrong,
    as_written,
    exact,
    exp,
    ln,
    n_cells,
    tail,
    whole,
    wholes,
)
from stream_dp.messages import Definition

APPROXIMATE: Final = frozenset(
    {"median", "mode", "between", "interior_point", "adaptive_threshold"}
)
"""Kinds whose looks have a delta of their own."""

_SLACK: Final = Fraction(1, 10**9)


def is_approximate(definition: Definition) -> bool:
    """Returns whether looks with a delta of their own are charged to a definition's lines."""
    return definition.finds or not APPROXIMATE.isdisjoint(named(definition))


class KindLooks:
    """The prices of the looks of other kinds.

    Args:
        definition: The definition of the data set.
        line: The line that they are charged to.
        data: The blocks that they may read.
        runs: Who has paid for which run.
    """

    def __init__(self, definition: Definition, line: Line, data: OpenBlocks, runs: Runs) -> None:
        self._line, self._data, self._runs = line, data, runs
        self._settings = {name: getattr(definition.kinds, name) for name in named(definition)}

    def owed(self, look: Look) -> Owed:
        """Returns what a look costs each block that it reads, as ``Looks.owed`` does."""
        return self.known[look["kind"]](self, look)

    def _thresholds(self, look: Look) -> Owed:
        """A tree of counts, or a partition of the bins and the tree of its segments."""
        epsilon, _ = self._promise(look)
        n_bins = n_cells(self._data.sizes, [whole(look, "attribute")])
        if self._settings["threshold"].partition:
            sweep = 1 / exact(look, "offset_scale") + 2 / exact(look, "scale")
            _keeps(2 * sweep + exact(look, "tree_epsilon"), epsilon)
        else:
            sensitivity = 2 * (n_bins - 1).bit_length() - 1
            _keeps(sensitivity / exact(look, "scale"), epsilon)
        yield from self._each(wholes(look, "blocks"), epsilon)

    def _stable(self, look: Look) -> Owed:
        """A distance with noise that must pass a threshold, or else nothing is said."""
        epsilon, delta = self._promise(look)
        n_cells(self._data.sizes, [whole(look, "attribute")])
        scale = exact(look, "scale")
        _keeps(1 / scale, epsilon)
        _fails(tail(scale, whole(look, "threshold")), delta)
        yield from self._each(wholes(look, "blocks"), epsilon, delta)

    def _prefix_batch(self, look: Look) -> Owed:
        """An exponential mechanism over histograms of m rows; a row of the data moves the misfit by m."""
        epsilon, _ = self._promise(look)
        _keeps(2 * whole(look, "hypothesis_rows") * exact(look, "rate"), epsilon)
        yield from self._each(self._data.window(look), epsilon)

    def _correlated_vector(self, look: Look) -> Owed:
        """Randomised response of each row."""
        epsilon, _ = self._promise(look)
        agreement = exact(look, "agreement")
        if agreement >= 1:
            raise Wrong("its responses are the rows themselves")
        _keeps(ln((1 + agreement) / (1 - agreement)), epsilon)
        yield from self._each([whole(look, "block")], epsilon)

    def _between(self, look: Look) -> Owed:
        """A run of comparisons; each look of it needs thresholds that are far enough apart."""
        epsilon, delta = self._promise(look)
        facts: tuple[object, ...] = (exact(look, "offset_scale"), exact(look, "scale"))
        answers = whole(look, "answers")
        if answers != self._settings["between"].answers:
            raise Wrong(f"its run may answer {answers} times, and the definition says otherwise")
        kept, failing = _comparisons(look, answers)
        _keeps(kept, epsilon)
        _fails(failing, delta)
        yield from self._run(look, facts, epsilon, delta)

    def _interior_point(self, look: Look) -> Owed:
        epsilon, delta = self._promise(look)
        kept, failing = _comparisons(look, 1)
        _keeps(kept, epsilon)
        _fails(failing, delta)
        yield from self._run(look, self._searched(look), epsilon, delta)

    def _adaptive_threshold(self, look: Look) -> Owed:
        """Interior points of chunks between secret cuts, of which a row moves four at most."""
        epsilon, delta = self._promise(look)
        chunks, scale = whole(look, "chunks"), exact(look, "cut_scale")
        if chunks != self._settings["adaptive_threshold"].chunks:
            raise Wrong(f"it has {chunks} chunks, and the definition says otherwise")
        levels = (chunks - 1).bit_length()
        kept, failing = _comparisons(look, 1)
        _keeps(4 * kept + (2 * levels - 1) / scale, epsilon)
        n_rows = sum(self._data.rows[block] for block in self._data.window(look))
        # The largest error of a cut with which two of them cannot meet.
        room = (n_rows // chunks - 1) // 2
        cuts = (chunks - 1) * _sum_tail(levels, scale, room)
        switched = sum((exp(i * kept) for i in range(4)), Fraction(0))
        _fails(failing * switched + cuts, delta)
        yield from self._run(look, self._searched(look), epsilon, delta)

    def _searched(self, look: Look) -> tuple[object, ...]:
        """Returns the facts that stay the same in a run that searches for points."""
        ends = self._data.window(look)
        n_cells(self._data.sizes, [whole(look, "attribute")])
        return exact(look, "offset_scale"), exact(look, "scale"), look["attribute"], ends

    def _run(
        self,
        look: Look,
        facts: tuple[object, ...],
        epsilon: Fraction,
        delta: Fraction,
    ) -> Owed:
        """A run is paid for with its first look, by every block that it may ever read."""
        name, number = f"run of {look['kind']}", whole(look, "run")
        begins = self._runs.begins(name, number)
        joining = self._runs.joining(name, number, facts, self._data.window(look))
        if joining and not begins:
            raise Wrong(f"it reads phase {joining[0] + 1}, which has not paid for run {number}")
        yield from self._each(joining, epsilon, delta)

    def _each(
        self, blocks: Iterable[int], epsilon: Fraction, delta: Fraction = Fraction(0)
    ) -> Owed:
        return each_of(blocks, self._line, self._line.pure(epsilon, delta))

    def _promise(self, look: Look) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) of a look of another kind, which the definition must give it."""
        kind, line = look["kind"], self._line
        share = as_written(self._settings[kind].share)
        part = Fraction(math.floor(share * UNITS), UNITS)
        cost, delta = part * line.whole, part * line.delta if kind in APPROXIMATE else Fraction(0)
        promised = look["loss"]
        epsilon = exact(promised, "epsilon")
        if abs(epsilon * epsilon / 2 - cost) > _SLACK * cost:
            taken = float(epsilon * epsilon / 2 / line.whole)
            raise Wrong(f"it takes {taken:.6g} of a line, and the definition says {float(share):g}")
        found = exact(promised, "delta") if delta else Fraction(0)
        if abs(found - delta) > _SLACK * delta:
            raise Wrong(
                f"its delta is {float(found):.6g}, and by the definition {float(delta):.6g}"
            )
        return epsilon, found

    known: ClassVar[Mapping[str, Callable[[KindLooks, Look], Owed]]] = {
        "threshold": _thresholds,
        "median": _stable,
        "mode": _stable,
        "prefix_batch": _prefix_batch,
        "correlated_vector": _correlated_vector,
        "between": _between,
        "interior_point": _interior_point,
        "adaptive_threshold": _adaptive_threshold,
    }


def _comparisons(look: Look, answers: int) -> tuple[Fraction, Fraction]:
    """Returns (epsilon, delta) of a run of comparisons that ends after ``answers`` answers "between".

    The run pays ``1/b`` for its offset, of scale b, and each "between" ``3/lam`` for noise of scale lam. That
    holds while ``lam ln 3`` integers are left between the thresholds. It fails where the offset leaves fewer.
    """
    offset_scale, scale = exact(look, "offset_scale"), exact(look, "scale")
    low, high = wholes(look, "thresholds")
    largest = (high - low - 1 - math.ceil(scale * ln(3))) // 2
    if largest < 0:
        raise Wrong(
            f"its thresholds are {high - low} rows apart, which is too near for any privacy"
        )
    return 1 / offset_scale + 3 * answers / scale, tail(offset_scale, largest + 1)


_ROOT_OF_2: Final = Fraction(14142135623730950488016887242097, 10**31)
"""Rounded up."""


def _sum_tail(terms: int, scale: Fraction, most: int) -> Fraction:
    """A bound on the probability that a sum of ``terms`` discrete Laplace draws exceeds ``most`` in size.

    ``2 exp(-min(t^2 / (8 L b^2), t / (2 sqrt(2) b)))``, from ``E exp(s X) <= 1 / (1 - s^2 b^2)``.
    """
    if most < 0:
        return Fraction(1)
    by_variance = Fraction(most * most) / (8 * terms * scale * scale)
    return 2 * exp(-min(by_variance, most / (2 * _ROOT_OF_2 * scale)))


def _keeps(kept: Fraction, epsilon: Fraction) -> None:
    if kept > epsilon * (1 + Fraction(1, 10**40)):
        raise Wrong(
            f"its noise keeps epsilon {float(kept):.9g}, and {float(epsilon):.9g} was paid for"
        )


def _fails(failing: Fraction, delta: Fraction) -> None:
    if failing > delta * (1 + Fraction(1, 10**40)):
        raise Wrong(
            f"it fails with probability {float(failing):.9g}, and delta {float(delta):.9g} was paid for"
        )
