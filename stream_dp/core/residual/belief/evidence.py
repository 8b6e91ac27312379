"""Everything published that bears on one query, whatever it was published for.

Tables feed the residual memory. A count of one predicate, measured for one query, is remembered
under its key and combined, block by block, with what the tables say about the same predicate; the
noises are independent, so the weights are inverse variances. Measured sums are remembered in the same
way; see ``sums``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief import bounds
from stream_dp.core.residual.belief.anytime import Directions
from stream_dp.core.residual.belief.linear_forms import Floats, Form, variance
from stream_dp.core.residual.belief.packages import Package, package
from stream_dp.core.residual.belief.rank_forms import RankForms
from stream_dp.core.residual.belief.residuals import ResidualMemory, WindowView
from stream_dp.core.residual.belief.shelf import Shelf
from stream_dp.core.residual.belief.sums import (
    CountedAlone,
    SumEstimate,
    SumEvidence,
    groups_of,
    is_total,
    part_query,
    rest_of_share,
    sum_key,
)

_MOST_BARS = 4096
"""Bars of one view that are kept."""


@dataclass(frozen=True, slots=True)
class _Count:
    """Measured answers to one query on one block, with independent noise of ``variance`` on each."""

    values: Floats
    variance: float

    def combined(self, other: _Count) -> _Count:
        """Returns the mean of both, weighted by their precisions."""
        combined = 1.0 / (1.0 / self.variance + 1.0 / other.variance)
        weight = combined / other.variance
        return _Count(self.values + weight * (other.values - self.values), combined)


_Estimate = TypeVar("_Estimate", _Count, SumEstimate)


def _combine(known: dict[int, _Estimate], block: int, another: _Estimate) -> None:
    """Takes another estimate of a block in."""
    before = known.get(block)
    known[block] = another if before is None else before.combined(another)


class Belief:
    """The public knowledge about all blocks: a fold over published tables and counts.

    Args:
        shape: The sizes of the universe's attributes.
        total_known: Whether all rows count, so that their number is public.

    Attributes:
        tables: The knowledge from the tables alone.
    """

    def __init__(self, shape: tuple[int, ...], *, total_known: bool = True) -> None:
        self._shape, self.total_known = shape, total_known
        self.tables = ResidualMemory(shape, total_known=total_known)
        self._opening = ResidualMemory(shape, total_known=total_known)
        self._counts = Shelf[bytes, dict[int, _Count]](dict, dict)
        # The same without those of looks at shares.
        self._alone = Shelf[bytes, dict[int, _Count]](dict, dict)
        self._opened = Shelf[bytes, dict[int, _Count]](dict, dict)  # those of running totals
        self._sums = Shelf[bytes, dict[int, SumEstimate]](dict, dict)
        self._summed: set[int] = set()  # what the looks with several sums depend on

    def add_attributes(self, shape: tuple[int, ...]) -> None:
        """Goes on with more attributes; those that there are stay as they are."""
        self._shape = shape
        self.tables.add_attributes(shape)
        self._opening.add_attributes(shape)

    def __repr__(self) -> str:
        return f"Belief({self.tables!r}, {len(self._counts)} predicates)"

    def __len__(self) -> int:
        return len(self.tables)

    def open_block(self, n_rows: int) -> None:
        """Adds a block of which only the number of rows is known."""
        self.tables.open_block(n_rows)
        self._opening.open_block(n_rows)

    def add_rows(self, block: int, n_rows: int) -> None:
        """Forgets what was measured of a block, which has more rows from now on."""
        self.tables.add_rows(block, n_rows)
        self._opening.add_rows(block, n_rows)
        for shelf in (self._counts, self._alone, self._opened, self._sums):
            for key in shelf:
                if block in (shelf.get(key) or ()):
                    del shelf.own(key)[block]

    def rows(self, window: range) -> int:
        """Rows of the window, those that do not count included; public."""
        return self.tables.rows(window)

    def absorb_table(
        self,
        attributes: tuple[int, ...],
        block: int,
        table: Floats,
        variance: float,
        *,
        opening: bool = False,
    ) -> None:
        """Folds in a marginal of one block with independent noise of ``variance`` on each cell.

        Args:
            attributes: Indices, ascending.
            block: The absolute index of the block.
            table: Noisy counts.
            variance: The variance of the noise on each.
            opening: Whether it was measured because the phase opened.
        """
        self.tables.absorb(attributes, block, table, variance)
        if opening:
            self._opening.absorb(attributes, block, table, variance)

    def absorb_count(
        self,
        key: bytes,
        block: int,
        values: Floats,
        variance: float,
        *,
        of_share: bool = False,
        opening: bool = False,
    ) -> None:
        """Folds in measured answers to one query on one block.

        Args:
            key: Identifies what was asked, whatever the window.
            block: The absolute index of the block.
            values: All its answers, shape (n_answers,).
            variance: The variance of the independent noise on each.
            of_share: Whether a look at a share published it. The share itself remembers that look as a whole.
            opening: Whether it was measured before the phase opened, or because it did.
        """
        count = _Count(np.asarray(values, dtype=np.float64), variance)
        shelves = [self._counts] if of_share else [self._counts, self._alone]
        for shelf in [*shelves, self._opened] if opening else shelves:
            _combine(shelf.own(key), block, count)

    def evidence(
        self,
        form: Form,
        key: bytes,
        window: range,
        *,
        complement: bytes | None = None,
        among: tuple[bytes, int] | None = None,
    ) -> Evidence:
        """Returns what is known about a query over a window.

        Args:
            form: The form of the query.
            key: Identifies the query, whatever the window.
            window: The absolute indices of the blocks.
            complement: Identifies the query about the rows that this one leaves out. Its counts serve as
                well, if the number of rows is public. None for a query that more than one count answers.
            among: The key of counts that this query's is one of too, and its place. None for none.
        """
        counts = self._inside(self._counts, key, window, complement)
        if among is not None:
            for block, several in self._inside(self._counts, among[0], window, None).items():
                one = _Count(several.values[among[1]][None], several.variance)
                _combine(counts, block, one)
        return Evidence(form, window, self.tables, self._opening, counts)

    def has_counts(self, key: bytes, window: range) -> bool:
        """Whether counts of some block of a window were measured under a key."""
        return bool(self._inside(self._counts, key, window, None))

    def at_opening(
        self, form: Form, window: range, key: bytes = b"", complement: bytes | None = None
    ) -> Evidence:
        """Returns what was measured of a query as phases opened: nobody chose it by what was published.

        It takes what ``evidence`` takes; without a key it tells what tables alone do.
        """
        counts = self._inside(self._opened, key, window, complement)
        return Evidence(form, window, self._opening, self._opening, counts)

    def _inside(
        self,
        shelf: Shelf[bytes, dict[int, _Count]],
        key: bytes,
        window: range,
        complement: bytes | None,
    ) -> dict[int, _Count]:
        """Returns what counts under a key, and under its complement's, say about blocks of the window."""
        inside = {b: c for b, c in (shelf.get(key) or {}).items() if b in window}
        if complement is not None and self.total_known:
            for block, outside in (shelf.get(complement) or {}).items():
                if block in window:
                    n_rows = self.rows(range(block, block + 1))
                    _combine(inside, block, _Count(n_rows - outside.values, outside.variance))
        return inside

    def passed(self, query: LinearQuery, forms: RankForms) -> tuple[Evidence, ...]:
        """Returns what is known of each form of a quantile."""
        counts = self._inside(self._counts, query.table.key, query.window, None)
        return tuple(
            Evidence(form, query.window, self.tables, self._opening, _weighed(counts, cells))
            for form, cells in forms
        )

    def absorb_sums(
        self, key: bytes, attributes: tuple[int, ...], block: int, estimate: SumEstimate
    ) -> None:
        """Folds in measured sums of one block.

        Args:
            key: The key of the query for these sums, as ``sum_key`` returns it.
            attributes: All that they depend on.
            block: The absolute index of the block.
            estimate: The measured sums and counts.
        """
        _combine(self._sums.own(key), block, estimate)
        if len(estimate.totals) > 1:
            self._summed.update(attributes)

    def sums(self, query: LinearQuery) -> SumEvidence:
        """Returns what is known about a query with a total."""
        looks, counted = self._looks_at(query), self._counted_alone(query)
        return SumEvidence(query, self._shape, self.tables, looks, counted=counted)

    def sums_at_opening(self, query: LinearQuery) -> SumEvidence:
        """Returns what was measured of a query with a total as phases opened."""
        return SumEvidence(query, self._shape, self._opening, {})

    def sums_between(
        self, query: LinearQuery, *, at_opening: bool = False
    ) -> tuple[SumEvidence, SumEvidence]:
        """Returns what is known of two totals between which the one of a query lies.

        Rows of blocks without a look count for the least, or the largest, value of their cells. Only where
        the values of rows are kept.

        Args:
            query: A query with a total.
            at_opening: Whether only what was measured as phases opened takes part.
        """
        assert query.total is not None, "the query has a total"
        kept = query.total.kept
        assert kept is not None, "the values of rows are kept"
        tables = self._opening if at_opening else self.tables
        looks = {} if at_opening else self._looks_at(query)
        lows, highs = kept.unit * np.array(kept.ends, dtype=np.float64).T
        return (
            SumEvidence(query, self._shape, tables, looks, lows),
            SumEvidence(query, self._shape, tables, looks, highs),
        )

    def _looks_at(self, query: LinearQuery) -> dict[int, SumEstimate]:
        """Returns what looks said about a query with a total, by block."""
        looks = dict(self._sums.get(sum_key(query)) or {})
        for key, attribute, condition in groups_of(query, self._summed):
            cells = np.ones(self._shape[attribute], np.bool_) if condition is None else condition
            for block, groups in (self._sums.get(key) or {}).items():
                _combine(looks, block, groups.added_up(cells))
        rest = rest_of_share(query)
        for block, others in (self._sums.get(rest.key) or {} if rest else {}).items():
            _combine(looks, block, others.of_the_rest())
        return looks

    def _counted_alone(self, query: LinearQuery) -> dict[int, tuple[CountedAlone, ...]]:
        """Returns the measured counts of a share's part and of its rows, by block; nothing for a sum."""
        part = part_query(query)
        if part is None:
            return {}
        found: dict[int, tuple[CountedAlone, ...]] = {}
        rows = LinearQuery(query.predicate, query.window, query.group_by)
        for counted in (part, rows):
            if is_total(counted.predicate, counted.group_by, known=self.total_known):
                continue
            inside = self._inside(self._alone, counted.key, query.window, counted.complement_key)
            for block, count in inside.items():
                alone = CountedAlone(count.values, count.variance, counted is part)
                found[block] = (*found.get(block, ()), alone)
        return found

    def sums_alone(
        self, query: LinearQuery, looks: Mapping[int, SumEstimate] | None = None
    ) -> SumEvidence:
        """Returns what some looks alone say about a query with a total, by block; none if left out."""
        nothing = ResidualMemory(self._shape, total_known=self.total_known)
        for block in range(query.window.stop):
            nothing.open_block(self.rows(range(block, block + 1)))
        return SumEvidence(query, self._shape, nothing, looks or {})


class Evidence:
    """The public knowledge about one query over one window. Only ``Belief`` makes it.

    Attributes:
        n_rows: Rows of the window, those that do not count included; public.
        values: The best estimates of the live answers in rows, shape (answers,).
        variances: The variances of ``values``, shape (answers,), or (1,) if all are equal. Infinite
            if unknown.
    """

    def __init__(
        self,
        form: Form,
        window: range,
        tables: ResidualMemory,
        opening: ResidualMemory,
        counts: dict[int, _Count],
    ) -> None:
        self.form = form
        self.window = window
        self.view: WindowView = tables.view(form.attributes, window)
        self.n_rows = self.view.n_rows
        self._tables = tables
        self._opening = opening
        self._counts = counts

    @cached_property
    def values(self) -> Floats:
        values = self.form.values(self.view)
        for block, count in self._counts.items():
            here = range(block, block + 1)
            from_tables = self.form.values(self._tables.view(self.form.attributes, here))
            known = self._from_tables[:, block - self.window.start]
            gain = 1.0 / (1.0 + count.variance / known)
            counted = count.values if self.form.live is None else count.values[self.form.live]
            values = np.asarray(values + gain * (counted - from_tables))
        return values

    @cached_property
    def variances(self) -> Floats:
        if self._counts:
            return np.asarray(self.variances_by_block.sum(axis=1))
        return self.view.variance(self.form.norms)

    @cached_property
    def package(self) -> Package:
        """What is measured where a table over the form's attributes is: its cells, or groups of these too."""
        layout = self.view.layout
        return package(layout, self.form.typical if layout.graded else None)

    @property
    def looks(self) -> Mask:
        """The blocks that a look would tell more of, shape (len(window),)."""
        return np.ones(len(self.window), np.bool_)

    buys = True
    """Whether a table may be measured in place of counts."""

    @property
    def rows_that_count(self) -> tuple[float, float] | None:
        """How many rows count, as tables say it, and the variance of that. None if they do not."""
        rows, variance = self.view.total, float(self.view.variances[0])
        return (rows, variance) if math.isfinite(variance) else None

    def n_answers_at(self, block: int) -> int:
        """The numbers that a look would publish of a block."""
        del block
        return self.form.n_answers

    def by_tables(self) -> tuple[Floats, Floats]:
        """``values`` and ``variances`` as they are without the remembered counts."""
        return self.form.values(self.view), self.view.variance(self.form.norms)

    def deviation_of_cells(self, query: LinearQuery) -> float | None:
        """The deviation of what each cell of a column adds to its count, independently of the others.

        What is known of the number of all rows adds the same to each cell, which is left out here. None for
        any query but one for a column of all rows, and where nothing is known of it.
        """
        if len(self.form.attributes) != 1 or query.predicate.constant is not True:
            return None
        if self._counts or self.view.layout.graded or not query.group_by:
            return None
        deviation = math.sqrt(float(self.view.variances[-1]))
        return deviation if math.isfinite(deviation) else None

    @cached_property
    def variances_by_block(self) -> Floats:
        """Variance of each answer in each block, shape (answers, len(window)), or (1, ...) if alike."""
        return _inverse(_inverse(self._from_tables) + self._counted)

    def by_block(self) -> Floats:
        """Largest variance of any answer in each block, shape (len(window),)."""
        return np.asarray(self.variances_by_block.max(axis=0))

    def variances_after_count(self, precision: Floats) -> Floats:
        """``variances_by_block`` if a count were measured with this precision (1/variance) in each block."""
        return _inverse(_inverse(self.variances_by_block) + precision)

    def after_count(self, precision: Floats) -> Floats:
        """``by_block`` if a count were measured with this precision in each block."""
        return np.asarray(self.variances_after_count(precision).max(axis=0))

    def after_table(self, precision: Floats) -> Floats:
        """``by_block`` if the marginal over the attributes were measured with this precision in each block.

        Args:
            precision: The precision of each table of the ``package``, shape (tables, len(window)).
        """
        return np.asarray(self.variances_after_table(precision).max(axis=0))

    def table_cost_ratio(self) -> float:
        """A lower bound: how many times the precision that a count needs a table needs instead.

        A table of precision p adds at most ``p * max(reach_T / |x_T|^2)`` to the precision of the
        answer: the derivative of ``1 / sum(|x_T|^2 / (1/v_T + reach_T p))`` is a weighted mean of
        these ratios, with weights that sum to at most 1. Several tables count as one, at their precisions.
        """
        norms, reach = self.form.norms, self.package.brought
        ratios = np.divide(norms, reach, out=np.full(norms.shape, np.inf), where=norms > 0.0)
        return float(ratios[:, 1 if self.view.layout.total_known else 0 :].min())

    def covariances_with_total(self) -> Floats:
        """The covariance of each live answer with the estimated number of rows that count, shape (answers,).

        It is 0 where that number is public, and has no meaning where nothing is known of it.
        """
        of_total = np.where(np.isfinite(self._of_tables[0]), self._of_tables[0], 0.0)
        weights = np.sqrt(self.form.norms[:, :1])
        shared = weights * of_total
        # A count with noise of its own takes the place of what the tables say, by this part.
        moved = np.where(self._counted > 0.0, self._from_tables, 0.0) * self._counted
        kept = 1.0 / (1.0 + moved)
        return np.asarray((shared * kept).sum(axis=1))

    def anytime(self, margin: float, failure_probability: float) -> Floats:
        """Half widths of the live answers that hold at all times, of the shape of ``variances``."""
        if self._counts or len(self.form.norms) > 1:
            return self._anytime(margin, failure_probability)
        # Many conditions have the same norms, and the view lasts until something new is published.
        key = self.form.norms.tobytes(), margin, failure_probability
        bars = self.view.bars.get(key)
        if bars is None:
            if len(self.view.bars) == _MOST_BARS:
                self.view.bars.clear()
            bars = self.view.bars[key] = self._anytime(margin, failure_probability)
        return bars

    def _anytime(self, margin: float, failure_probability: float) -> Floats:
        before = self._opening.variances(self.form.attributes, self.window)
        directions = Directions(self.form.norms, self._of_tables, before, self._counted)
        return directions.bars(margin, failure_probability)

    def interval(self, log_failure: float) -> tuple[Floats, Floats]:
        """Bounds in rows on each live answer that fail together with this probability."""
        return self._sides.interval(log_failure)

    def likely(self) -> Floats:
        """The live answers in rows as a local fit has them; likely, not promised."""
        return self.form.total(self.view.likely)

    def variances_after_table(self, precision: Floats) -> Floats:
        """``variances_by_block`` after the same look as in ``after_table``."""
        reach = self.package.reach
        brought = reach * precision if reach.shape[1] == 1 else reach @ precision
        raised = _inverse(self._precisions + brought)
        from_tables = variance(self.form.norms, raised)
        return _inverse(_inverse(from_tables) + self._counted)

    @cached_property
    def _sides(self) -> bounds.Sides:
        return bounds.sides(self.form, self.view, self.values, self.variances)

    @cached_property
    def _of_tables(self) -> Floats:
        """v_T in each block, shape (2^k, len(window))."""
        return self._tables.variances(self.form.attributes, self.window)

    @cached_property
    def _precisions(self) -> Floats:
        return _inverse(self._of_tables)

    @cached_property
    def _from_tables(self) -> Floats:
        """Variance of each answer in each block by the tables alone, shape (rows, len(window))."""
        return variance(self.form.norms, self._of_tables)

    @cached_property
    def _counted(self) -> Floats:
        """Precision of the remembered counts in each block, shape (len(window),)."""
        precision = np.zeros(len(self.window))
        for block, count in self._counts.items():
            precision[block - self.window.start] = 1.0 / count.variance
        return precision


def _weighed(counts: Mapping[int, _Count], cells: Floats) -> dict[int, _Count]:
    """Returns what the counts of a table say of sums of its cells.

    Args:
        counts: The counts of all cells in each block.
        cells: What each cell counts for, shape (answers, cells of each).
    """
    if not counts:
        return {}
    squares = float(np.square(cells).sum(axis=1).max())  # the same for all, or more than each has
    return {
        block: _Count(
            (count.values.reshape(cells.shape) * cells).sum(axis=1), count.variance * squares
        )
        for block, count in counts.items()
    }


def _inverse(array: Floats) -> Floats:
    """Variances to precisions and back; 0 and infinity are each other's inverse."""
    with np.errstate(divide="ignore"):
        return 1.0 / array
