"""Sums and means: weighted forms in the same residuals that counts are estimated from.

A sum adds a number up that stands for each cell of an attribute; it is linear in the counts, so its estimate
and its variance are those of ``linear_forms`` with weights in place of a mask. A mean is the ratio of a sum
and a count, both estimated from the same tables. Its bar is Fieller's (1954): m is a possible mean just when
``S - m C`` is within z deviations of 0, where S and C are the estimated sum and count; the variance of that
difference is quadratic in m, and so is the condition.

Sums that were measured for a query are remembered with their counts. In each block these, and what tables
say, are independent estimates of the same pair of numbers. So they are combined with the inverses of their
covariances for weights (Gauss-Markov).

Where the values of rows are kept (``Kept``), tables say how many rows there are, and not what they count for.
So the total of a block is known from looks alone. In other blocks tables only say between which ends it lies
(docs/proofs, Theorem 19).

A share is the mean of a number that is 1 in the part that is asked about and 0 elsewhere. Both its total and
its count are counts of rows, so what was measured for such counts serves it too (docs/proofs,
Theorem 17).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stream_dp.core.queries.query import Indicator, LinearQuery, Mask, Predicate, Product, Total
from stream_dp.core.residual.belief.bounds import one_sided
from stream_dp.core.residual.belief.linear_forms import Floats, Form, TableForm, Together, variance
from stream_dp.core.residual.belief.residuals import ResidualMemory

_Numbers: TypeAlias = Any
"""A float, or an array of them."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Estimates of the live answers, and their covariances, shape (answers,) each.

    Attributes:
        totals: The totals, in units of the largest value. Guesses where nothing is known.
        counts: The counts, in rows.
        moments: The covariances of totals and counts.
        live: The positions of the live answers, shape (n_answers,). None if all are live. The others are 0.
    """

    totals: Floats
    counts: Floats
    moments: Moments
    live: Mask | None

    @property
    def pairs(self) -> list[Pair]:
        """The answers one by one."""
        return pairs_of(self.totals, self.counts, self.moments)


class Pair(NamedTuple):
    """An estimated total, the number of its rows, the variances of both, and their covariance."""

    total: float
    rows: float
    variances: tuple[float, float]
    covariance: float

    def bar(self, z: float, least: float) -> float | None:
        """The half width around the mean: see ``ratio_bar``."""
        return ratio_bar(*self, z, least)


def pairs_of(totals: Floats, counts: Floats, moments: Moments) -> list[Pair]:
    """Totals and counts with their covariances, one by one."""
    variances = zip(moments.totals.tolist(), moments.counts.tolist(), strict=True)
    each = totals.tolist(), counts.tolist(), variances, moments.both.tolist()
    return list(map(Pair, *each))


def form_of_total(query: LinearQuery, shape: tuple[int, ...]) -> Form:
    """The sum, in units of its largest value; and with it the count of all rows, where that is asked too."""
    assert query.total is not None, "the query has a total"
    total = _weighted(query, shape, query.total.weights / query.total.largest)
    if query.rows is None:
        return total
    # The count of all rows is read off the same table as the sum.
    along = query.total.attributes, np.ones_like(query.total.weights)
    rows = TableForm(query.rows, query.group_by, shape, along, among=query.attributes)
    return Together([total, rows])


def _weighted(query: LinearQuery, shape: tuple[int, ...], weights: Floats) -> TableForm:
    """Returns the form of the rows that have a number, each counted with its weight."""
    assert query.total is not None, "the query has a total"
    along = query.total.attributes, weights
    return TableForm(query.predicate, query.group_by, shape, along, among=query.attributes)


@dataclass(frozen=True, slots=True)
class SumEstimate:
    """Independent estimates of sums and of the counts of their rows, in one block.

    Attributes:
        totals: The sums, in the attribute's own unit, shape (n_answers,).
        counts: The counts, in rows, shape (n_answers,).
        of_totals: The variance of each sum.
        of_counts: The variance of each count. 0 where it is public.
        both: The covariance of a sum and its count.
    """

    totals: Floats
    counts: Floats
    of_totals: float
    of_counts: float
    both: float

    def added_up(self, chosen: Mask) -> SumEstimate:
        """The sum of some answers of a GROUP BY and its count; ``chosen`` has shape (n_answers,)."""
        n = int(np.count_nonzero(chosen))
        totals, counts = (each[chosen].sum(keepdims=True) for each in (self.totals, self.counts))
        return SumEstimate(totals, counts, n * self.of_totals, n * self.of_counts, n * self.both)

    def of_the_rest(self) -> SumEstimate:
        """The same about a share: the rows that count and are not in its part."""
        return SumEstimate(
            self.counts - self.totals,
            self.counts,
            self.of_totals - 2.0 * self.both + self.of_counts,
            self.of_counts,
            self.of_counts - self.both,
        )

    def combined(self, other: SumEstimate) -> SumEstimate:
        """The best estimate from this one and an independent one."""
        moments, gains = Moments(self.of_totals, self.both, self.of_counts).with_look(
            Moments(other.of_totals, other.both, other.of_counts)
        )
        totals, counts = gains.moved(self.totals, self.counts, other.totals, other.counts)
        return SumEstimate(
            totals, counts, float(moments.totals), float(moments.counts), float(moments.both)
        )


@dataclass(frozen=True, slots=True)
class _Gains:
    """The gains with which a look moves the estimates of a total and of its count."""

    of_total: _Numbers
    of_total_by_count: _Numbers
    of_count_by_total: _Numbers
    of_count: _Numbers

    def moved(
        self, totals: Floats, counts: Floats, seen_totals: Floats, seen_counts: Floats
    ) -> tuple[Floats, Floats]:
        """Totals and counts that take a look in, each of shape (answers,)."""
        by_total, by_count = seen_totals - totals, seen_counts - counts
        return (
            totals + self.of_total * by_total + self.of_total_by_count * by_count,
            counts + self.of_count_by_total * by_total + self.of_count * by_count,
        )


@dataclass(frozen=True, slots=True)
class Moments:
    """Covariances of estimates of a total and of its count: numbers, or arrays of one shape.

    An infinite variance means that nothing is known; its covariance is then 0.
    """

    totals: _Numbers
    both: _Numbers
    counts: _Numbers

    def each(self, change: Callable[[_Numbers], _Numbers]) -> Moments:
        """The same with a change made to each of the three."""
        return Moments(change(self.totals), change(self.both), change(self.counts))

    def with_look(self, look: Moments) -> tuple[Moments, _Gains]:
        """The covariances after an independent look, and the gains of the estimates.

        A look always says something of both. With covariances K and R the gain is ``K (K + R)^-1`` and the
        result is the gain times R. So nothing that is infinite or singular has to be inverted.
        """
        known, counted = np.isfinite(self.totals), np.isfinite(self.counts)
        total, count = np.where(known, self.totals, 0.0), np.where(counted, self.counts, 0.0)
        both = np.where(known & counted, self.both, 0.0)
        # First the count alone, then the total by what the count leaves of it.
        by_count = _inverse(count + look.counts)
        slope = np.where(counted, (both + look.both) * by_count, 0.0)
        left = _inverse(total + look.totals - slope * (both + look.both))
        of_total = np.where(known, (total - slope * both) * left, 1.0)
        of_count_by_total = np.where(known, (both - slope * count) * left, 0.0)
        gains = _Gains(
            of_total,
            np.where(counted, both * by_count, 0.0) - slope * of_total,
            of_count_by_total,
            np.where(counted, count * by_count, 1.0) - slope * of_count_by_total,
        )
        # A variance that is 0 may come out below 0 by rounding.
        after = Moments(
            np.maximum(gains.of_total * look.totals + gains.of_total_by_count * look.both, 0.0),
            gains.of_total * look.both + gains.of_total_by_count * look.counts,
            np.maximum(gains.of_count_by_total * look.both + gains.of_count * look.counts, 0.0),
        )
        return after, gains

    def without_totals(self, where: Mask | np.bool_) -> Moments:
        """The same with nothing known of the totals, where it says so; of a shape that spreads to theirs."""
        return Moments(
            np.where(where, math.inf, self.totals), np.where(where, 0.0, self.both), self.counts
        )

    def with_one(self, variance: float, *, of_totals: bool) -> tuple[Moments, _Gains]:
        """The covariances after an independent look at the totals alone, or at the counts alone.

        Args:
            variance: The variance of the look. Positive.
            of_totals: Whether it is a look at the totals.
        """
        seen, other = (self.totals, self.counts) if of_totals else (self.counts, self.totals)
        known = np.isfinite(seen)
        held = np.where(known, seen, 0.0)
        gain = np.where(known, held / (held + variance), 1.0)
        moved = np.where(known, self.both / (held + variance), 0.0)
        after, both = gain * variance, (1.0 - gain) * self.both
        rest = np.where(known, np.maximum(other - moved * self.both, 0.0), other)
        none = np.zeros_like(gain)
        if of_totals:
            return Moments(after, both, rest), _Gains(gain, none, moved, none)
        return Moments(rest, both, after), _Gains(none, moved, none, gain)

    def of(self, slopes: Floats) -> Floats:
        """Variances of ``total - slope * count``, which are never below 0 but for rounding."""
        if not slopes.any():
            return np.asarray(self.totals)
        known = np.isfinite(self.totals) & np.isfinite(self.counts)
        total, both, count = (
            np.where(known, each, 0.0) for each in (self.totals, self.both, self.counts)
        )
        found = np.maximum(total - 2.0 * slopes * both + slopes * slopes * count, 0.0)
        return np.where(known, found, math.inf)


def _inverse(numbers: _Numbers) -> Floats:
    """1 by each number, and 0 for 0: what is known already gains nothing."""
    array = np.asarray(numbers, dtype=np.float64)
    return np.divide(1.0, array, out=np.zeros_like(array), where=array > 0.0)


def sum_key(query: LinearQuery) -> bytes:
    """Identifies what is added up, whatever else is counted and whatever the window."""
    return replace(query, rows=None).key


def groups_of(
    query: LinearQuery, attributes: Iterable[int]
) -> Iterator[tuple[bytes, int, Mask | None]]:
    """The queries with GROUP BY of which some answers add up to this one, where its condition is a product.

    Args:
        query: A query with a total. One with a GROUP BY has no such queries.
        attributes: The attributes that may be grouped by.

    Yields:
        The key of the query, the attribute that it groups by, and the cells to add up, shape (n_cells,). None
        for all of them.
    """
    factors, total = query.predicate.factors, query.total
    if query.group_by or factors is None or query.predicate.constant is False:
        return
    assert total is not None, "the query has a total"
    conditions = dict(zip(query.predicate.attributes, factors, strict=True))
    for attribute in sorted(attributes):
        ungrouped = _without(total, attribute, conditions.get(attribute))
        if ungrouped is not None:
            others = Predicate.conjunction(_others(conditions, attribute))
            grouped = LinearQuery(others, query.window, (attribute,), ungrouped)
            yield grouped.key, attribute, conditions.get(attribute)


def _without(
    total: Total | Indicator | Product, attribute: int, condition: Mask | None
) -> Total | Indicator | Product | None:
    """Returns what is added up without a condition on an attribute; None where that is something else."""
    if not isinstance(total, Indicator):
        return None if attribute in total.attributes else total
    factors = total.predicate.factors
    if factors is None:
        return None
    of_part = dict(zip(total.predicate.attributes, factors, strict=True))
    inside = of_part.get(attribute)
    if inside is None or condition is None:
        if inside is not condition:
            return None
    elif (inside != condition).any():
        return None
    return Indicator(Predicate.conjunction(_others(of_part, attribute)))


def _others(conditions: Mapping[int, Mask], attribute: int) -> dict[int, Mask]:
    return {a: factor for a, factor in conditions.items() if a != attribute}


def part_query(query: LinearQuery) -> LinearQuery | None:
    """The count of the rows in the part that a share is about; None for a sum."""
    if not isinstance(query.total, Indicator):
        return None
    return LinearQuery(query.total.predicate, query.window, query.group_by)


def rest_of_share(query: LinearQuery) -> LinearQuery | None:
    """The share of the rows that are not in the part that this share is about; None for a sum."""
    if not isinstance(query.total, Indicator):
        return None
    rest = query.predicate.and_also(query.total.predicate.complement)
    return replace(query, total=Indicator(rest))


def rows_query(query: LinearQuery, *, total_known: bool) -> LinearQuery | None:
    """The count of rows that a query asks for next to its total, if that is a number of its own.

    None where it asks for none, where it is the public number of all rows, and where all rows have a number.
    """
    rows = query.rows
    if rows is None or rows == query.predicate or is_total(rows, query.group_by, known=total_known):
        return None
    return LinearQuery(rows, query.window, query.group_by)


def is_total(predicate: Predicate, group_by: tuple[int, ...], *, known: bool) -> bool:
    """Whether a count is the number of all rows, where that is known."""
    return known and predicate.constant is True and not group_by


@dataclass(frozen=True, slots=True)
class CountedAlone:
    """A count that bears on a share, in one block, and that no look at this share published.

    Attributes:
        values: The counts, in rows, shape (n_answers,).
        variance: The variance of each.
        of_part: Whether it is of the share's part, or of all its rows.
    """

    values: Floats
    variance: float
    of_part: bool


class SumEvidence:
    """The public knowledge about one query with a total over one window. Only ``Belief`` makes it.

    Args:
        query: What is asked.
        shape: Sizes of all attributes of the universe.
        tables: What the tables say.
        looks: What looks at these very sums said, by block.
        ends: Numbers of the cells, in the attribute's own unit, for which rows count in blocks without such
            looks. Only for values that are kept, and None for the values themselves.
        counted: What looks at the count of a share's part alone, or of its rows alone, said, by block.

    Attributes:
        total_known: Whether all rows count, so that their number is public.
        asked: The query about the blocks of each version of the attributes of which some rows may count.
        looked: Whether a look at these very sums takes part.
        live: The answers that are not zero by definition, shape (n_answers,). None if all are live.
    """

    def __init__(
        self,
        query: LinearQuery,
        shape: tuple[int, ...],
        tables: ResidualMemory,
        looks: Mapping[int, SumEstimate],
        ends: Floats | None = None,
        counted: Mapping[int, tuple[CountedAlone, ...]] | None = None,
    ) -> None:
        assert query.total is not None, "the query has a total"
        self.query, self.window, self.largest = query, query.window, query.total.largest
        self.total_known = tables.total_known
        self.asked: tuple[LinearQuery, ...] = (query,)
        self._tables = tables
        self._looks = {block: look for block, look in looks.items() if block in query.window}
        self._counted = {b: counts for b, counts in (counted or {}).items() if b in query.window}
        values = (query.total.weights if ends is None else ends) / self.largest
        self._bounds = ends is not None
        self._parts = [
            _weighted(query, shape, each) for each in (values, np.ones_like(values), values + 1.0)
        ]
        self.looked, self.live = bool(self._looks), self._parts[0].live

    @property
    def kept(self) -> bool:
        """Whether the values of rows are added up, which no table knows."""
        return self.query.total is not None and self.query.total.kept is not None

    @property
    def rows_by_block(self) -> list[int]:
        """Rows of each block of the window; public."""
        return [self._tables.rows(range(block, block + 1)) for block in self.window]

    @cached_property
    def sums(self) -> Sums:
        """The best estimates, and how good they are."""
        view = self._tables.view(self._parts[0].attributes, self.window)
        totals, counts = (part.values(view) for part in self._parts[:2])
        if self._measured:
            moments = self.by_block.each(lambda of_blocks: of_blocks.sum(axis=1))
            totals, counts = self._with_looks(totals, counts)
        else:
            moments = _moments(*(view.variance(part.norms) for part in self._parts))
            if self.kept and not self._bounds:
                moments = moments.without_totals(np.True_)
        return Sums(totals, counts, moments, self.live)

    @cached_property
    def by_block(self) -> Moments:
        """Covariances in each block, each of shape (answers, len(window))."""
        found = self._from_tables.each(np.array)
        for block, (after, _) in self._measured.items():
            at = block - self.window.start
            found.totals[:, at], found.both[:, at] = after.totals, after.both
            found.counts[:, at] = after.counts
        return found

    def after(self, of_totals: Floats, both: Floats, of_counts: Floats) -> Moments:
        """``by_block`` if each block were looked at with these covariances, each of shape (len(window),).

        They are in units of the largest value, as all that this class gives.
        """
        after, _ = self.by_block.with_look(Moments(of_totals, both, of_counts))
        return after

    def _with_looks(self, totals: Floats, counts: Floats) -> tuple[Floats, Floats]:
        for block, (_, looks) in self._measured.items():
            view = self._tables.view(self._parts[0].attributes, range(block, block + 1))
            before = [part.values(view) for part in self._parts[:2]]
            now = before[0], before[1]
            for gains, seen_totals, seen_counts in looks:
                now = gains.moved(*now, seen_totals, seen_counts)
            totals, counts = totals + (now[0] - before[0]), counts + (now[1] - before[1])
        return totals, counts

    @cached_property
    def _measured(self) -> dict[int, tuple[Moments, list[tuple[_Gains, Floats, Floats]]]]:
        """The covariances in each block that was looked at, and what each look moves, one after another.

        Counts that were measured alone come first, and the look at these very sums is the last one.
        """
        live = slice(None) if self.live is None else self.live
        unit, found = 1.0 / self.largest, {}
        for block in {**self._counted, **self._looks}:
            at, looks = block - self.window.start, []
            moments = self._from_tables.each(partial(np.take, indices=at, axis=1))
            for count in self._counted.get(block, ()):
                moments, gains = moments.with_one(count.variance, of_totals=count.of_part)
                looks.append((gains, count.values[live], count.values[live]))
            if (look := self._looks.get(block)) is not None:
                scaled = Moments(look.of_totals * unit * unit, look.both * unit, look.of_counts)
                moments, gains = moments.with_look(scaled)
                looks.append((gains, look.totals[live] / self.largest, look.counts[live]))
            found[block] = moments, looks
        return found

    @cached_property
    def _from_tables(self) -> Moments:
        variances = self._tables.variances(self._parts[0].attributes, self.window)
        moments = _moments(*(variance(part.norms, variances) for part in self._parts))
        if not self.kept:
            return moments
        looked = np.array([block in self._looks for block in self.window])
        return moments.without_totals(looked if self._bounds else np.True_)


def _moments(of_totals: Floats, of_counts: Floats, of_sums: Floats) -> Moments:
    """Covariances from the variances of two numbers and of their sum."""
    known = np.isfinite(of_totals) & np.isfinite(of_counts) & np.isfinite(of_sums)
    both = np.zeros(of_sums.shape)
    both[known] = 0.5 * (of_sums[known] - of_totals[known] - of_counts[known])
    return Moments(of_totals, both, of_counts)


def least_deviations(n_groups: int, failure: float) -> float:
    """How many deviations the count of a group must be above zero for its mean to be told.

    With this, no mean of a group without rows is told, for all groups together.

    Args:
        n_groups: The number of groups.
        failure: The probability that the mean of some group without rows is told after all.
    """
    return one_sided(math.log(failure) - math.log(n_groups))


def ratio_bar(
    total: float,
    count: float,
    variances: tuple[float, float],
    covariance: float,
    z: float,
    least: float = 0.0,
) -> float | None:
    """Half width around ``total / count`` of all ratios that are possible at z deviations; None for all.

    Args:
        total: The total, in units of the largest value.
        count: The count, in rows.
        variances: The variances of total and count.
        covariance: The covariance of total and count.
        z: The half width of the interval, in standard deviations.
        least: Standard deviations that the count must be above zero, see ``least_deviations``. No ratio is
            told of one that is less.
    """
    of_total, of_count = variances
    if not count > max(0.0, least * math.sqrt(of_count)) or not math.isfinite(of_total):
        return None
    square = count * count - z * z * of_count
    if not square > 0.0:
        return None
    middle = total * count - z * z * covariance
    constant = total * total - z * z * of_total
    root = math.sqrt(max(0.0, middle * middle - square * constant))
    ratio = total / count
    return max((middle + root) / square - ratio, ratio - (middle - root) / square)
