"""The charges that looks must have, from their scales and sensitivities: all profiles but the papers'."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias

from stream_dp.audit.cell_count import has_order, size_of
from stream_dp.audit.line_limits import Due, Line, LookLoss, LossEvent, named
from stream_dp.audit.numbers import (
    UNITS,
    Wrong,
    as_written,
    exact,
    exp,
    grid,
    ln,
    n_cells,
    reading,
    tail,
    whole,
    wholes,
    window,
)
from stream_dp.messages import Definition, NumberAttribute

Look: TypeAlias = Mapping[str, Any]
Owed: TypeAlias = Iterator[tuple[int, Due]]

APPROXIMATE: Final = frozenset(
    {"median", "mode", "between", "interior_point", "adaptive_threshold"}
)
"""Kinds whose looks have a delta of their own."""

_SLACK: Final = Fraction(1, 10**9)


def erased(definition: Definition, phases: int) -> int:
    """Returns the number of first phases without rows, once this number of phases has opened."""
    kept = definition.kept_phases
    return 0 if kept is None else max(phases - kept, 0)


def is_approximate(definition: Definition) -> bool:
    """Returns whether looks with a delta of their own are charged to a definition's lines."""
    return not APPROXIMATE.isdisjoint(named(definition))


@dataclass(slots=True)
class _Paid:
    """A run or a segment: one secret, paid for once by each block that it reads.

    Attributes:
        facts: The facts that must be the same in all of its looks.
    """

    facts: tuple[object, ...]
    blocks: set[int] = field(default_factory=set)


class Looks:
    """The prices of a data set's looks. It remembers who has paid for which run and segment.

    Attributes:
        composes: Whether the oracle can compose what the looks lose.
    """

    composes: Final = True

    def __init__(self, definition: Definition, line: Line) -> None:
        self._definition = definition
        self._line = line
        self._sizes = sizes_of(definition)
        self._ordered = list(map(has_order, definition.attributes))
        self._paid: dict[str, dict[int, _Paid]] = {}
        self._steps: dict[tuple[int, int], Due] = {}
        self._rows: Sequence[int] = ()
        self._settings = {name: getattr(definition.kinds, name) for name in named(definition)}
        self._taken = {*definition.mechanism.looks, *self._settings}

    def owed(self, look: Look, rows: Sequence[int]) -> list[tuple[int, Due]]:
        """Returns what a look costs each block that it reads, by the block's index, from 0.

        A block may come more than once.

        Args:
            look: The look, as the ledger describes it.
            rows: The number of rows of each open block.

        Raises:
            Wrong: The look's facts do not fit together, or do not fit the definition.
        """
        kind = look.get("kind")
        self._rows = rows
        if not isinstance(kind, str) or kind not in self._taken:
            profile = self._definition.mechanism.profile
            raise Wrong(f"the profile {profile} takes no look {kind!r} under this definition")
        with reading():
            owed = list(self._known[kind](self, look))
        for block, _ in owed:
            if type(block) is not int or not 0 <= block < len(rows):
                raise Wrong(f"it reads phase {block + 1}, which is not open yet")
            self._has_rows(block)
        return owed

    def _window(self, look: Look) -> range:
        """The phases that it is about; all of them are open."""
        found = window(look)
        if found.stop > len(self._rows):
            raise Wrong(f"it reads phase {found.stop}, which is not open yet")
        self._has_rows(found.start)
        return found

    def _has_rows(self, block: int) -> None:
        """Refuses a look at rows that were erased when the newest phase opened."""
        if block < erased(self._definition, len(self._rows)):
            raise Wrong(f"it reads phase {block + 1}, whose rows are erased")

    # ------------------------------------------------------------ counts

    def _tables(self, look: Look) -> Owed:
        """Disjoint cells of one block, or disjoint groups of them."""
        parts = look.get("tables")
        if not isinstance(parts, list) or not parts:
            raise Wrong("it lists no tables")
        for part in parts:
            attributes, block, step, *grouped = part
            n_cells(self._sizes, attributes)
            for groups in grouped:
                self._are_groups(attributes, groups)
            yield block, self._measured(step, self._line.table)

    def _are_groups(self, attributes: Sequence[int], groups: Sequence[int]) -> None:
        """Refuses numbers of groups that the cells of these attributes cannot be counted in."""
        if len(groups) != len(attributes):
            raise Wrong("it does not say of each attribute how its cells are grouped")
        for attribute, n_groups in zip(attributes, groups, strict=True):
            size, ordered = self._sizes[attribute], self._ordered[attribute]
            if type(n_groups) is not int or not (
                n_groups == size or (ordered and 2 <= n_groups < size)
            ):
                raise Wrong(f"it counts {n_groups} groups of an attribute of {size} cells")

    def _measured(self, step: int, squared_sensitivity: int) -> Due:
        """The price of Gaussian noise of a step of the grid."""
        known = self._steps.get((step, squared_sensitivity))
        if known is None:
            loss = self._line.gaussian(grid(step), squared_sensitivity=squared_sensitivity)
            known = self._steps[step, squared_sensitivity] = self._line.due(loss)
        return known

    def _counts(self, look: Look) -> Owed:
        """The cells of a GROUP BY are disjoint; a single count moves by one."""
        _, several = self._grouped(look)
        if look.get("fresh", True) is not True:
            raise Wrong("it says neither that it is fresh nor nothing of it")
        squared_sensitivity = self._line.table if several else 1
        for block, step in look["blocks"]:
            yield block, self._measured(step, squared_sensitivity)

    def _grouped(self, look: Look) -> tuple[list[int], bool]:
        """Returns the attributes that a look groups by, and whether it has several answers."""
        answers, attributes = whole(look, "answers"), wholes(look, "attributes")
        n_cells(self._sizes, attributes)
        groups = wholes(look, "group_by")
        if not set(groups) <= set(attributes) or answers != n_cells(self._sizes, groups):
            raise Wrong(f"it says that it has {answers} answers, and its GROUP BY has others")
        return groups, answers > 1

    def _row_counts(self, look: Look) -> Owed:
        """How many rows of a block count."""
        if not self._line.blank:
            raise Wrong("it counts all rows, whose number is public")
        for block, step in look["blocks"]:
            yield block, self._measured(step, 1)

    def _sums(self, look: Look) -> Owed:
        """Rows as vectors, each of which adds ``(x, 1)`` to one answer, or nothing.

        What a look loses is half of the largest squared distance between two of these, in units of the noise.
        Where a row becomes blank, it is the largest squared distance from one that adds nothing.
        """
        groups, _ = self._grouped(look)
        alone = "product" not in look
        added = [whole(look, "attribute")] if alone else wholes(look, "product")
        if not {*added} <= {*look["attributes"]} or {*added} & {*groups}:
            raise Wrong("it adds up, or groups by, what it does not depend on")
        if alone:
            self._kept(self._definition.attributes[added[0]], look)
        elif len(set(added)) != 2 or look.get("measured", False):  # products are of bins
            raise Wrong("it does not add up the products of two attributes")
        yield from self._added_up(look, rests=look["rests"])

    def _shares(self, look: Look) -> Owed:
        """Sums of ones and zeros, each of which stands for as many units as its range says."""
        yield from self._added_up(look, rests=False)

    def _added_up(self, look: Look, *, rests: bool) -> Owed:
        (low, high), centre = look["range"], look["centre"]
        if any(type(number) is not int for number in (low, high, centre)) or low > high:
            raise Wrong("its range and its centre are not those of whole numbers")
        _, several = self._grouped(look)
        all_in = look["every_row"]
        if type(all_in) is not bool or type(rests) is not bool or (all_in and rests):
            raise Wrong("it does not say which rows are in an answer")
        ends = 2 * low - centre, 2 * high - centre
        for block, *steps in look["blocks"]:
            yield block, self._summed(ends, steps, several=several, all_in=all_in, rests=rests)

    @staticmethod
    def _kept(attribute: object, look: Look) -> None:
        """Compares a look with the values that the definition keeps of an attribute, if it does.

        Which bins the condition leaves is recorded as a digest. So the ends need only be those of some bins.
        """
        measure = attribute.measure if isinstance(attribute, NumberAttribute) else None
        if look.get("measured", False) is not (measure is not None):
            raise Wrong("it and the definition do not agree on whether values of rows are added up")
        if measure is None:
            return
        assert isinstance(attribute, NumberAttribute), "only numbers are kept"
        low, high = look["range"]
        lows, highs = _ends_of_bins(attribute)
        if as_written(look["unit"]) != as_written(measure.unit):
            raise Wrong("its unit is not that of the definition")
        if low not in lows or (high not in highs and high != low + 1):
            raise Wrong("its range does not reach from the end of a bin to the end of a bin")

    def _summed(
        self,
        ends: tuple[int, int],
        steps: Sequence[int],
        *,
        several: bool,
        all_in: bool,
        rests: bool,
    ) -> Due:
        """The price of noise of one or two steps of the grid on sums, and on counts, of one block."""
        public = all_in and not several and not self._line.blank
        if len(steps) != (1 if public else 2):
            raise Wrong("it has too few scales, or too many")
        scales = [grid(step) for step in steps]
        # A row as (answer, its part of the sum, of the count, of the count of rows without a number).
        kinds = [(answer, end, 1, 0) for answer in range(1 + several) for end in ends]
        nothing = (0, 0, 0, 0)
        if not all_in:
            kinds.append(nothing)
        if rests:
            kinds += [(answer, 0, 0, 1) for answer in range(1 + several)]
        others = [nothing] if self._line.blank else kinds
        square = max(_apart(one, other, scales) for one in kinds for other in others)
        if square == 0:
            raise Wrong("it says that no row can change it")
        event = LossEvent("gaussian", float(1 / square))
        return self._line.due(self._line.summed(square / 2, event))

    def _table(self, look: Look) -> Owed:
        n_cells(self._sizes, wholes(look, "attributes"))
        loss = self._line.gaussian(exact(look, "sigma"), squared_sensitivity=2)
        due = self._line.due(loss)
        for block in self._window(look):
            yield block, due

    def _count(self, look: Look) -> Owed:
        due = self._line.due(self._one_count(look))
        for block in self._window(look):
            yield block, due

    def _gate(self, look: Look) -> Owed:
        """A segment and the count that ends it, with the first query that reads the block."""
        of_threshold, of_query = exact(look, "threshold_scale"), exact(look, "query_scale")
        count = self._one_count(look)
        tested = self._line.pure(1 / of_threshold + 2 / of_query)
        facts = (of_threshold, of_query, exact(look, "count_scale"), look.get("noise"))
        due = self._line.due(tested + count)
        for block in self._joining("segment", whole(look, "segment"), facts, self._window(look)):
            yield block, due

    def _one_count(self, look: Look) -> LookLoss:
        scale = exact(look, "count_scale")
        if look.get("noise") == "gaussian":
            return self._line.gaussian(scale, squared_sensitivity=1)
        if look.get("noise") == "laplace":
            return self._line.pure(1 / scale)
        raise Wrong(f"no price is known for {look.get('noise')!r} noise")

    def _joining(
        self, name: str, number: int, facts: tuple[object, ...], blocks: Iterable[int]
    ) -> list[int]:
        """Those of ``blocks`` that pay for a run or a segment with this look."""
        known = self._paid.setdefault(name, {})
        if number == len(known) + 1:
            known[number] = _Paid(facts)
        if number not in known:
            raise Wrong(f"it is of {name} {number}, after {name} {len(known)}")
        if known[number].facts != facts:
            raise Wrong(f"the scales of {name} {number} are not those that it began with")
        unpaid = [block for block in blocks if block not in known[number].blocks]
        known[number].blocks.update(unpaid)
        return unpaid

    # ------------------------------------------------------------ other kinds

    def _thresholds(self, look: Look) -> Owed:
        """A tree of counts, or a partition of the bins and the tree of its segments."""
        epsilon, _ = self._promise(look)
        n_bins = n_cells(self._sizes, [whole(look, "attribute")])
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
        n_cells(self._sizes, [whole(look, "attribute")])
        scale = exact(look, "scale")
        _keeps(1 / scale, epsilon)
        _fails(tail(scale, whole(look, "threshold")), delta)
        yield from self._each(wholes(look, "blocks"), epsilon, delta)

    def _prefix_batch(self, look: Look) -> Owed:
        """An exponential mechanism over histograms of m rows; a row of the data moves the misfit by m."""
        epsilon, _ = self._promise(look)
        _keeps(2 * whole(look, "hypothesis_rows") * exact(look, "rate"), epsilon)
        yield from self._each(self._window(look), epsilon)

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
        n_rows = sum(self._rows[block] for block in self._window(look))
        # The largest error of a cut with which two of them cannot meet.
        room = (n_rows // chunks - 1) // 2
        cuts = (chunks - 1) * _sum_tail(levels, scale, room)
        switched = sum((exp(i * kept) for i in range(4)), Fraction(0))
        _fails(failing * switched + cuts, delta)
        yield from self._run(look, self._searched(look), epsilon, delta)

    def _searched(self, look: Look) -> tuple[object, ...]:
        """Returns the facts that stay the same in a run that searches for points."""
        ends = self._window(look)
        n_cells(self._sizes, [whole(look, "attribute")])
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
        begins = number not in self._paid.get(name, {})
        joining = self._joining(name, number, facts, self._window(look))
        if joining and not begins:
            raise Wrong(f"it reads phase {joining[0] + 1}, which has not paid for run {number}")
        yield from self._each(joining, epsilon, delta)

    def _each(
        self, blocks: Iterable[int], epsilon: Fraction, delta: Fraction = Fraction(0)
    ) -> Owed:
        due = self._line.due(self._line.pure(epsilon, delta))
        for block in blocks:
            yield block, due

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

    _known: ClassVar[Mapping[str, Callable[[Looks, Look], Owed]]] = {
        "tables": _tables,
        "counts": _counts,
        "rows": _row_counts,
        "sums": _sums,
        "shares": _shares,
        "table": _table,
        "count": _count,
        "gate": _gate,
        "threshold": _thresholds,
        "median": _stable,
        "mode": _stable,
        "prefix_batch": _prefix_batch,
        "correlated_vector": _correlated_vector,
        "between": _between,
        "interior_point": _interior_point,
        "adaptive_threshold": _adaptive_threshold,
    }


def _apart(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int], scales: Sequence[Fraction]
) -> Fraction:
    """The squared distance between what two rows add to sums and counts, in units of the noise."""
    of_sums, of_counts = scales[0], scales[-1]
    here = one[0] == other[0]
    found = Fraction(0)
    for index, scale in ((1, of_sums), (2, of_counts), (3, of_counts)):
        if index > 1 and len(scales) == 1:
            break  # the number of all rows is public
        first, second = one[index], other[index]
        square = (first - second) ** 2 if here else first**2 + second**2
        found += square / scale**2
    return found


def _ends_of_bins(attribute: NumberAttribute) -> tuple[set[int], set[int]]:
    """The least and the largest numbers of units of the values in each bin, as a definition keeps them.

    The value below an edge may round up to it, so what is below a bin's upper edge may count as the edge.
    """
    measure = attribute.measure
    assert measure is not None, "the values are kept"
    unit = as_written(measure.unit)

    def units(value: Fraction) -> int:
        inside = min(max(value, as_written(measure.low)), as_written(measure.high))
        return round(inside / unit)  # half way to the even one

    edges = [as_written(edge) for edge in attribute.edges]
    below = [
        Fraction(math.ceil(edge) - 1)
        if attribute.integer
        else as_written(math.nextafter(float(edge), -math.inf))
        for edge in edges
    ]
    lows = {units(as_written(measure.low)), *map(units, edges)}
    return lows, {*map(units, below), units(as_written(measure.high))}


def sizes_of(definition: Definition) -> tuple[int, ...]:
    """Cells of each attribute."""
    return tuple(map(size_of, definition.attributes))


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
