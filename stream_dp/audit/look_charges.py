"""The charges that looks must have, from their scales and sensitivities: all profiles but the papers'."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Final

from stream_dp.audit.cell_count import has_order
from stream_dp.audit.kind_charges import KindLooks
from stream_dp.audit.line_limits import Due, Line, LookLoss, LossEvent, named
from stream_dp.audit.look_facts import Look, OpenBlocks, Owed, Runs, each_of
from stream_dp.audit.numbers import (
    Wrong,
    as_written,
    exact,
    grid,
    n_cells,
    reading,
    whole,
    wholes,
)
from stream_dp.audit.running_charges import RunningCharges
from stream_dp.calendar_periods import span_of, zone_of
from stream_dp.messages import AttributeSpec, Definition, NumberAttribute


class Looks:
    """The prices of a data set's looks. It remembers who has paid for which run and segment.

    Attributes:
        composes: Whether the oracle can compose what the looks lose.
    """

    composes: Final = True

    def __init__(self, definition: Definition, line: Line) -> None:
        self._definition = definition
        self._line = line
        self._data, self._runs = OpenBlocks(definition), Runs()
        self._sizes = self._data.sizes
        self._kinds = KindLooks(definition, line, self._data, self._runs)
        self._finding: dict[int, set[int]] = {}  # the blocks that have paid, by the attribute
        self._fails: dict[int, Fraction] = {}  # what their looks fail with together, by the block
        self._running = RunningCharges(line)
        self._steps: dict[tuple[int, int], Due] = {}
        self._taken = {*definition.mechanism.looks, *named(definition)}

    def change(
        self, attributes: Sequence[AttributeSpec], indices: Sequence[int], first: int
    ) -> None:
        """Takes another version of the attributes, see ``OpenBlocks.change``."""
        self._data.change(attributes, indices, first)

    def begin_running(self, entry: Mapping[str, Any]) -> None:
        """Takes the entry that begins the running totals of a period, see ``RunningCharges.begin``."""
        with reading():
            self._running.begin(entry, self._sizes)

    def owes_running(self, until: str) -> bool:
        """Whether a block that covers a time up to this has not paid for running totals.

        Args:
            until: When its phase ends, as the ledger writes it.
        """
        zone = zone_of(self._definition.phase.timezone)
        return self._running.owes(span_of(until, zone)[0] // 60_000)

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
        self._data.rows = rows
        if not isinstance(kind, str) or kind not in self._taken:
            profile = self._definition.mechanism.profile
            raise Wrong(f"the profile {profile} takes no look {kind!r} under this definition")
        with reading():
            of_kind = kind in KindLooks.known
            owed = list(self._kinds.owed(look) if of_kind else self._known[kind](self, look))
        for block, _ in owed:
            if type(block) is not int or not 0 <= block < len(rows):
                raise Wrong(f"it reads phase {block + 1}, which is not open yet")
            self._data.has_rows(block)
        return owed

    # ------------------------------------------------------------ counts

    def _tables(self, look: Look) -> Owed:
        """Disjoint cells of one block, or disjoint groups of them."""
        parts = look.get("tables")
        if not isinstance(parts, list) or not parts:
            raise Wrong("it lists no tables")
        for part in parts:
            attributes, block, step, *grouped = part
            n_cells(self._sizes, attributes)
            self._data.has(block, attributes)
            for groups in grouped:
                self._are_groups(attributes, groups)
            yield block, self._measured(step, self._line.table)

    def _are_groups(self, attributes: Sequence[int], groups: Sequence[int]) -> None:
        """Refuses numbers of groups that the cells of these attributes cannot be counted in."""
        if len(groups) != len(attributes):
            raise Wrong("it does not say of each attribute how its cells are grouped")
        for attribute, n_groups in zip(attributes, groups, strict=True):
            size, ordered = self._sizes[attribute], has_order(self._data.attributes[attribute])
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
            self._data.has(block, look["attributes"])
            yield block, self._measured(step, squared_sensitivity)

    def _joined(self, look: Look) -> Owed:
        """Counts or sums of several versions of the attributes, each of blocks of its own."""
        looks, known = look.get("looks"), ("counts", "sums", "shares")
        if not isinstance(looks, list) or any(one.get("kind") not in known for one in looks):
            raise Wrong("it does not list looks at counts or sums")
        for one in looks:
            yield from self._known[one["kind"]](self, one)

    def _grouped(self, look: Look) -> tuple[list[int], bool]:
        """Returns the attributes that a look groups by, and whether it has several answers.

        Where some of its cells are counted together, there are fewer answers, and these are disjoint too.
        """
        answers, attributes = whole(look, "answers"), wholes(look, "attributes")
        n_cells(self._sizes, attributes)
        groups = wholes(look, "group_by")
        cells = n_cells(self._sizes, groups)
        fits = 0 < answers <= cells if look.get("merged") is True else answers == cells
        if not set(groups) <= set(attributes) or not fits:
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
            (index,) = added
            versions = [self._data.has(block, added)[index] for block, *_ in look["blocks"]]
            for attribute in {id(one): one for one in versions}.values():
                self._kept(attribute, look)
        elif len(set(added)) != 2 or look.get("measured", False):  # products are of bins
            raise Wrong("it does not add up the products of two attributes")
        yield from self._added_up(look, rests=look["rests"])

    def _shares(self, look: Look) -> Owed:
        """Sums of ones and zeros, each of which stands for as many units as its range says."""
        yield from self._added_up(look, rests=False)

    def _added_up(self, look: Look, *, rests: bool) -> Owed:
        fixed = {*look["attributes"]} - {*look["group_by"]}
        if look["kind"] == "sums":
            fixed &= {look.get("attribute"), *look.get("product", ())}
        if any(_counts_phases(self._data.attributes[index]) for index in fixed):
            raise Wrong("it adds up numbers that rows in other phases change")
        (low, high), centre = look["range"], look["centre"]
        if any(type(number) is not int for number in (low, high, centre)) or low > high:
            raise Wrong("its range and its centre are not those of whole numbers")
        _, several = self._grouped(look)
        all_in = look["every_row"]
        if type(all_in) is not bool or type(rests) is not bool or (all_in and rests):
            raise Wrong("it does not say which rows are in an answer")
        ends = 2 * low - centre, 2 * high - centre
        for block, *steps in look["blocks"]:
            self._data.has(block, look["attributes"])
            yield block, self._summed(ends, steps, several=several, all_in=all_in, rests=rests)

    @staticmethod
    def _kept(attribute: object, look: Look) -> None:
        """Compares a look with the values that a version keeps of an attribute, if it does.

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

    def _keys(self, look: Look) -> Owed:
        """The looks of all levels at the values that rows say, of which some are named (Theorem 34).

        The block that opens pays for all windows that it is in, and each block of them has paid.
        """
        index, block, levels = whole(look, "attribute"), whole(look, "block"), look.get("levels")
        n_cells(self._sizes, [index])
        attribute = self._data.attributes[index]
        find = attribute.find if attribute.type == "category" else None
        if find is None or not isinstance(levels, list):
            raise Wrong("it finds values of an attribute of which all are listed")
        if [level.get("phases") for level in levels] != list(find.windows):
            raise Wrong("its windows are not those of the definition")
        unit, loss, fails = self._line.unit, LookLoss(), Fraction(0)
        rows = 1 if unit is None or unit.lifetime else unit.rows_per_phase
        price = Fraction(self._line.table, 2 * rows)
        for level in levels:
            sigma, failure = exact(level, "sigma"), exact(level, "failure")
            jump = whole(level, "threshold") - 1
            if jump < 1 or _log_tail(float(sigma), jump) > math.log(failure) + _SLACK:
                raise Wrong("a value of one row alone is named more often than it says")
            event = LossEvent("gaussian", float(sigma**2 / (2 * price)))
            loss += self._line.summed(price / sigma**2, event)
            fails += failure
        self._fails[block] = self._fails.get(block, Fraction(0)) + fails
        if self._fails[block] > self._line.delta:
            raise Wrong("values of one row alone are named more often than the line allows")
        self._finding.setdefault(index, set()).add(block)
        for phases in find.windows:
            window = range(block + 1 - phases, block + 1)
            readable = [b for b in window if not self._data.is_erased(b)]
            ends = (block + 1) % phases == 0 and len(readable) == phases
            if ends and not self._finding[index].issuperset(window):
                raise Wrong("a phase of its window has not paid for it")
        # No charge names the delta, which the definition bounds.
        due = self._line.due(loss)
        return iter([(block, replace(due, loss=replace(loss, delta=fails)))])

    def _tick(self, look: Look) -> Owed:
        """The block pays for all ticks of a period as it opens."""
        self._running.tick(look)
        return iter(())

    def _periods(self, look: Look) -> Owed:
        block = whole(look, "block")
        return ((block, due) for due in self._running.sealed(look))

    def _table(self, look: Look) -> Owed:
        n_cells(self._sizes, wholes(look, "attributes"))
        loss = self._line.gaussian(exact(look, "sigma"), squared_sensitivity=2)
        return each_of(self._data.window(look), self._line, loss)

    def _count(self, look: Look) -> Owed:
        return each_of(self._data.window(look), self._line, self._one_count(look))

    def _gate(self, look: Look) -> Owed:
        """A segment and the count that ends it, with the first query that reads the block."""
        of_threshold, of_query = exact(look, "threshold_scale"), exact(look, "query_scale")
        count = self._one_count(look)
        tested = self._line.pure(1 / of_threshold + 2 / of_query)
        facts = (of_threshold, of_query, exact(look, "count_scale"), look.get("noise"))
        window = self._data.window(look)
        unpaid = self._runs.joining("segment", whole(look, "segment"), facts, window)
        return each_of(unpaid, self._line, tested + count)

    def _one_count(self, look: Look) -> LookLoss:
        scale = exact(look, "count_scale")
        if look.get("noise") == "gaussian":
            return self._line.gaussian(scale, squared_sensitivity=1)
        if look.get("noise") == "laplace":
            return self._line.pure(1 / scale)
        raise Wrong(f"no price is known for {look.get('noise')!r} noise")

    _known: ClassVar[Mapping[str, Callable[[Looks, Look], Owed]]] = {
        "tables": _tables,
        "counts": _counts,
        "joined": _joined,
        "rows": _row_counts,
        "keys": _keys,
        "tick": _tick,
        "periods": _periods,
        "sums": _sums,
        "shares": _shares,
        "table": _table,
        "count": _count,
        "gate": _gate,
    }


_SLACK: Final = 1e-9


def _log_tail(sigma: float, jump: int) -> float:
    """Logarithm of a bound on the probability that discrete Gaussian noise is at least ``jump``."""
    variance = sigma * sigma
    series = -math.log(-math.expm1(-jump / variance))
    return -jump * jump / (2.0 * variance) + series - 0.5 * math.log(2.0 * math.pi * variance)


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


def _counts_phases(attribute: AttributeSpec) -> bool:
    """Whether what an attribute says of a person in a phase may change with rows in other phases."""
    return isinstance(attribute, NumberAttribute) and attribute.fold == "since"
