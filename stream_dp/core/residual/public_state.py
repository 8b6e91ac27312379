"""Everything published about one data set, what it promises, and what its lines have left.

All ways of answering (``ways``) decide from this, and from this alone. It holds no reference to the data:
it is a fold over phases, charges and releases.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.changed_rows import ChangedRows
from stream_dp.core.mechanism import Release
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.across_versions import AcrossVersions
from stream_dp.core.residual.answers.count_answers import CountAnswers
from stream_dp.core.residual.answers.repeats import Repeats
from stream_dp.core.residual.base_release.growth import Bought
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.levels import axes_of
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.belief.measured_keys import MeasuredKeys
from stream_dp.core.residual.belief.sums import SumEstimate, SumEvidence, form_of_total
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.keys.found_values import FoundValues
from stream_dp.core.residual.keys.key_look import KeyRelease
from stream_dp.core.residual.line_rules import LineRules
from stream_dp.core.residual.looks.composed_looks import JoinedRelease
from stream_dp.core.residual.looks.counted_rows import CountedRows, RowsLook, RowsRelease
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.looks.table_looks import BASE, QUERY, CountsRelease, TablesRelease
from stream_dp.core.residual.plan.planner import Terms, certifies
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.residual.plan.targets import terms_of
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.running.periods_look import PeriodsRelease
from stream_dp.core.running.running_periods import RunningPeriods
from stream_dp.core.running.tick_look import TickRelease

_MOST_SUBSETS: Final = 6
"""Sizes of sets of attributes whose counts are known to be there after a look at a share."""


class PublicState:
    """What a data set of the calibrated profile has published, promises and may still spend.

    Args:
        promise: What is promised for each row and for each answer.
        settings: The settings of the data set.

    Attributes:
        shape: The sizes of the universe's attributes.
        prices: The prices of noise scales.
        terms: The accuracy, as quantiles.
        spending: What queries may take of the lines.
        bought: What was measured of each block unasked, and what queries have paid on it.
        counted: What is published of the number of rows that count; None where all do.
        belief: Everything published so far.
        measured: The keys under which counts were measured.
        answers: Makes answers of what is known.
        repeats: The verified answers.
        versions: What is known over several versions of the attributes.
        found: The values that were found. None where all are listed.
        running: The periods that have running totals. None without them.
        learns: Whether what opens a later phase depends on what was asked before.
        filled: The blocks that have got late rows, in order.
        changed: The blocks of which rows were erased or corrected since they were sealed.
    """

    def __init__(
        self,
        promise: Promise,
        settings: CalibratedSettings,
        found: FoundValues | None = None,
        running: RunningPeriods | None = None,
    ) -> None:
        self.promise = promise
        self.found, self.running = found, running
        self.settings = settings
        self.shape, self.prices, self.terms = promise.shape, promise.prices, promise.terms
        known = promise.total_known
        self.learns = settings.learns
        self.filled: list[int] = []
        self.changed = ChangedRows(self.rows)
        self.spending = LineRules(settings)
        self.bought = Bought(self.prices)
        self.counted = None if known else CountedRows(promise.accuracy)
        self.belief = Belief(self.shape, total_known=known)
        self.measured = MeasuredKeys(len(self.shape), total_known=known)
        self.answers = CountAnswers(promise, self.belief, self.evidence)
        self.repeats = Repeats(self)
        self.versions = AcrossVersions(self)

    # ------------------------------------------------------------ what is known

    def rows(self, window: range) -> int:
        """Rows of the window, those that do not count included; public."""
        return self.belief.rows(window)

    def rows_at_least(self, window: range) -> float:
        """Rows of the window that count, or a lower end of their number: errors are shares of this."""
        rows = self.belief.rows(window)
        return rows if self.counted is None else min(self.counted.at_least(window), rows)

    def rows_of(self, block: int) -> int:
        """The rows that errors about a block are shares of."""
        return math.floor(self.rows_at_least(range(block, block + 1)))

    @property
    def first_looks(self) -> int:
        """Units of a line that the looks before a base release take."""
        found = 0 if self.found is None else self.found.units
        found += 0 if self.running is None else self.running.most.units
        return found + self.rows_look

    @property
    def rows_look(self) -> int:
        """Units of a line that the look at the rows that count takes. 0 where all count."""
        return 0 if self.counted is None else RowsLook.at(0, self.prices).charges[0].rho

    def terms_for(self, query: LinearQuery) -> Terms:
        """The accuracy that a query asks for, its error as a share of the rows of its window.

        Where not all rows count, a share of those that do is a smaller share of all.
        """
        n_rows = self.rows(query.window)
        terms = terms_of(self.terms, query, n_rows)
        if self.counted is None or query.target.value is not None or n_rows == 0:
            return terms
        return replace(terms, error=terms.error * self.rows_at_least(query.window) / n_rows)

    def evidence(self, query: LinearQuery, among: tuple[bytes, int] | None = None) -> Evidence:
        """Returns what is known about a query.

        Args:
            query: The query.
            among: The key of counts that this query's is one of too, and its place. None for none.
        """
        if (joined := self.versions.evidence(query)) is not None:
            return joined
        form = (form_of if query.total is None else form_of_total)(query, self.shape)
        complement = self.measured.complement_of(query)
        return self.belief.evidence(
            form, query.key, query.window, complement=complement, among=among
        )

    def evidence_at_opening(self, query: LinearQuery, _: object = None) -> Evidence:
        """Returns what was measured of a query as phases opened, last running totals among that."""
        if (joined := self.versions.evidence(query, at_opening=True)) is not None:
            return joined
        complement = self.measured.complement_of(query)
        return self.belief.at_opening(
            form_of(query, self.shape), query.window, query.key, complement
        )

    def at_opening(self, query: LinearQuery) -> Evidence | None:
        """What was measured as phases opened, where it alone is as precise as a query for counts asks.

        Whether it is follows from the definition, the rows and the query. So nobody can steer the answer.
        """
        if query.target.relative is not None:
            return None
        terms = self.terms_for(query)
        evidence = self.evidence_at_opening(query)
        z = terms.z_learned if self.is_learned(query.window) else terms.z
        return evidence if certifies(evidence, terms.error, z) else None

    def is_learned(self, window: range) -> bool:
        """Whether what was asked before decided how precise the openings of a window are."""
        return self.learns and len(window) > 1

    def sums(self, query: LinearQuery) -> SumEvidence:
        """Returns what is known about a query with a total."""
        return self.versions.joined_sums(query, self.belief.sums)

    def sums_at_opening(self, query: LinearQuery) -> SumEvidence:
        """Returns what was measured of a query with a total as phases opened."""
        return self.versions.joined_sums(query, self.belief.sums_at_opening)

    def alone(self, query: LinearQuery, release: Release | None = None) -> SumEvidence:
        """Returns what one look alone says about a query with a total; nothing where there is none."""
        releases = release.releases if isinstance(release, JoinedRelease) else (release,)
        looks = {
            block: estimate
            for one in releases
            if isinstance(one, SumRelease)
            for block, estimate in self._estimates(one)
        }
        return self.versions.joined_sums(query, partial(self.belief.sums_alone, looks=looks))

    def change_schema(self, schema: Schema) -> None:
        """Goes on with another version of the attributes, which new rows have."""
        universe = schema.newest.universe
        promise = replace(self.promise, shape=universe.shape, rows_shape=universe.planned_shape)
        self.promise, self.shape = promise, promise.shape
        self.versions.change(schema)
        self.belief.add_attributes(self.shape)
        self.measured.add_attributes(len(self.shape))
        self.answers = CountAnswers(promise, self.belief, self.evidence)

    # ------------------------------------------------------------ the fold

    def open_block(self, n_rows: int) -> int:
        """Adds a block of which only the number of rows is known; returns its index."""
        self.versions.forget()
        self.belief.open_block(n_rows)
        return self.spending.allocator.open()

    def add_rows(self, block: int, n_rows: int) -> None:
        """Adds rows to a block. What was published of it before is not about these."""
        self.versions.forget()
        self.belief.add_rows(block, n_rows)
        self.bought.forget(block)
        self.filled.append(block)
        if self.counted is not None:
            self.counted.forget(block)

    def n_filled(self, window: range) -> int:
        """The number of blocks of a window that have got late rows."""
        first, last = (bisect_left(self.filled, end) for end in (window.start, window.stop))
        return last - first

    def is_changed(self, window: range) -> bool:
        """Whether rows of a window may have been erased or corrected since they were sealed.

        What was measured before is about the rows as they were sealed. A look from then on is about those
        that are left, so it answers by itself and enters no memory (docs/proofs, Theorem 39).
        """
        return self.changed.any_of(window)

    def expect_tiles(self) -> None:
        """Keeps a part of the lines for the declared tiles again, once the rows of a new phase are known."""
        if self.spending.reserve is not None and len(self.belief):
            self.spending.reserve.opened(len(self.belief), self.rows_at_least)

    def absorb(self, release: Release) -> None:
        """Folds a release into what is known."""
        self.versions.forget()
        match release:
            case KeyRelease():
                assert self.found is not None, "where all values are listed nobody looks for more"
                self.found.absorb(release)
            case TickRelease():
                assert self.running is not None, "without running totals there are no ticks"
                self.running.absorb(release)
            case PeriodsRelease():
                self._absorb_periods(release)
            case RowsRelease():
                assert self.counted is not None, "where all rows count nobody looks at their number"
                self.counted.absorb(release)
                self.expect_tiles()
            case JoinedRelease():
                for one in release.releases:
                    self.absorb(one)
            case TablesRelease():
                self._absorb_tables(release)
            case CountsRelease():
                self._absorb_counts(release)
            case SumRelease():
                self._absorb_sums(release)
            case _:
                raise TypeError("not a release of this mechanism")
        if self.spending.reserve is not None and isinstance(
            release, TablesRelease | CountsRelease | SumRelease
        ):
            parts = release.parts if isinstance(release, TablesRelease) else (release,)
            self.spending.reserve.published([a for part in parts for a in part.attributes])

    def _absorb_periods(self, release: PeriodsRelease) -> None:
        for attributes, key, variance, values in release.evidence:
            if key:
                self.measured.add_count(key, (attributes,))
                self.belief.absorb_count(key, release.block, values, variance, opening=True)
            else:
                table = values.reshape([self.shape[a] for a in attributes])
                self.measured.add_table(attributes)
                self.belief.absorb_table(attributes, release.block, table, variance, opening=True)

    def _absorb_tables(self, release: TablesRelease) -> None:
        opening, axes = release.reason == BASE, axes_of(self.shape)
        for part, table in zip(release.parts, release.tables, strict=True):
            attributes, block = part.attributes, part.block
            self.measured.add_table(attributes)
            variance = float(grid_sigma(part.step) ** 2)
            counts = table.astype(np.float64)
            if block not in self.changed:
                self.belief.absorb_table(attributes, block, counts, variance, opening=opening)
            self.spending.allocator.bought(attributes, block)
            if release.reason == QUERY:
                self.bought.pay(block, self.prices.units(part.step, self.prices.table))
            else:
                components = axes.part(attributes, axes.layout(attributes).levels_of(table.shape))
                units = self.bought.buy(block, components, part.step, opening=opening)
                self.spending.allocator.opened(block, units / UNITS)

    def _absorb_counts(self, release: CountsRelease) -> None:
        if release.fresh:
            return  # it answers one query, and enters no memory
        self.measured.add_count(release.key, (release.attributes,))
        squared_sensitivity = self.prices.squared_sensitivity(release.values.shape[1])
        for (block, step), values in zip(release.steps, release.values, strict=True):
            variance = float(grid_sigma(step) ** 2)
            if block not in self.changed:
                self.belief.absorb_count(release.key, block, values.astype(np.float64), variance)
            self._paid(release.attributes, block, self.prices.units(step, squared_sensitivity))

    def _absorb_sums(self, release: SumRelease) -> None:
        for number, (block, estimate) in enumerate(self._estimates(release)):
            if block not in self.changed:
                self._believe_sums(release, number, estimate)
            _, *steps = release.steps[number]
            self._paid(release.attributes, block, self.prices.of(release.shape.rho_at(*steps)))

    def _believe_sums(self, release: SumRelease, number: int, estimate: SumEstimate) -> None:
        """Folds what a release says of its block with a number into what is known."""
        shape, attributes = release.shape, release.attributes
        of_sums, of_counts, of_rows = release.keys
        block, _, counted = release.steps[number]
        self.belief.absorb_sums(of_sums, attributes, block, estimate)
        if shape.counts:
            # The counts serve queries for counts too, which may depend on one attribute less.
            fewer = attributes, *combinations(attributes, len(attributes) - 1)
            for key in (of_counts, of_rows) if shape.rests else (of_counts,):
                self.measured.add_count(key, fewer)
            variance = float(grid_sigma(counted) ** 2)
            counts = release.values[number, 1].astype(np.float64)
            self.belief.absorb_count(of_counts, block, counts, variance, of_share=release.is_share)
            if shape.rests:
                every = counts + release.values[number, 2]
                self.belief.absorb_count(of_rows, block, every, 2.0 * variance)
        if release.is_share:
            # So do those of the part, and both may depend on some of the attributes alone.
            sizes = range(1, min(len(attributes), _MOST_SUBSETS))
            subsets = chain.from_iterable(combinations(attributes, k) for k in sizes)
            self.measured.add_count(of_rows, (attributes, *subsets))
            self.belief.absorb_count(
                of_rows, block, estimate.totals, estimate.of_totals, of_share=True
            )

    def _estimates(self, release: SumRelease) -> Iterator[tuple[int, SumEstimate]]:
        """The blocks of a release, and what it says of each."""
        for number, (block, _, _) in enumerate(release.steps):
            yield block, release.estimates(self.rows(range(block, block + 1)), number)

    def _paid(self, attributes: tuple[int, ...], block: int, units: int) -> None:
        """Notes what a query has paid for counts or sums that depend on some attributes."""
        self.spending.allocator.rented(attributes, block, units)
        self.bought.pay(block, units)
