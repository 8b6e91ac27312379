"""Answers to queries from what is known: estimates, and the half widths of their error bars.

Everything here follows from published values. Whether a query is answered, and what is measured first, is
decided in ``calibrated``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from scipy.special import chdtri

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import (
    Answered,
    Path,
    Quantile,
    Quantiles,
    RowsThatCount,
    Sum,
    Summed,
    TableAnswered,
    ends_of,
)
from stream_dp.core.published.quantile import hulls, likely
from stream_dp.core.published.rank_gap import range_width, wider_for
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.anytime import ALL_TIMES, promised_bars, z_learned, z_steered
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.linear_forms import (
    Floats,
    Form,
    Mask,
    conjunctions_log,
    form_of,
)
from stream_dp.core.residual.belief.rank_forms import rank_places
from stream_dp.core.residual.belief.sums import (
    SumEvidence,
    is_total,
    least_deviations,
    ratio_bar,
    rows_query,
)
from stream_dp.core.residual.looks.counted_rows import FAILURE, CountedRows
from stream_dp.core.residual.looks.table_looks import CountsRelease
from stream_dp.core.residual.plan.planner import ROUNDING, Bounded, Unproven, for_noise
from stream_dp.core.residual.plan.sum_price import WholeValues, counted_values

_EQUAL: Final = 2.0**-50  # numbers that differ by less, relatively, are one

Row: TypeAlias = tuple[float, ...]
"""One answer: its count as it was estimated, then its bars as shares of the rows, NaN where there is none.

The bars are its own, the simultaneous one, and the one for all times.
"""

_Share: TypeAlias = tuple[float, float] | None
"""An estimated share of the rows that count, and its half width; None where nothing is known of it."""

_ZERO: Row = (0.0, 0.0, 0.0, 0.0)

_NO_SUM: Final = Sum(0.0, 0.0, 0.0, 0.0, None, None)
"""The answer for a cell that no row can be in."""


class AnswerMaker:
    """Makes the answers of one data set.

    Args:
        shape: The sizes of the universe's attributes.
        accuracy: The promise for each answer, and for each cell of a table.
        belief: The public knowledge about all blocks.
        evidence: Returns what is known about a query.
        kept: The part of the failure probability of a promise that is kept for the number of rows that count.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        accuracy: Accuracy,
        belief: Belief,
        evidence: Callable[[LinearQuery], Evidence],
        *,
        kept: float = 0.0,
    ) -> None:
        self._shape = shape
        self._accuracy = accuracy
        self._z = two_sided(math.log(accuracy.failure_probability))
        self._promised = (1.0 - kept) * accuracy.failure_probability
        self._z_promised = two_sided(math.log(self._promised))
        self._confidence = 1.0 - accuracy.failure_probability
        self._belief = belief
        self._evidence = evidence
        self._simultaneous: dict[tuple[tuple[int, ...], bool], float] = {}

    @property
    def confidence(self) -> float:
        """The probability with which the bar of an answer covers."""
        return self._confidence

    def by_opening(
        self,
        query: LinearQuery,
        evidence: Evidence,
        z: float | None = None,
        *,
        error: float | None = None,
    ) -> Answered | TableAnswered:
        """What was measured as phases opened. It stays as it is, so its bar holds at all times.

        Args:
            query: A query for counts.
            evidence: What was measured as phases opened.
            z: The half width of the bars in standard deviations. None takes that of the promise.
            error: The error asked for, as a share of the rows, where what was asked before decided how
                precise later phases are, and ``evidence`` is as precise. Then it is the bar
                (docs/proofs, Theorem 13 (d)). None where the definition decided.
        """
        if error is not None:
            margin = for_noise(error) * evidence.n_rows
            anytime = evidence.anytime(error * evidence.n_rows, self._promised)
            within = np.minimum(anytime, margin).tolist()
            answer = self._estimated(
                query, evidence, within, anytime.tolist(), Path.CERTIFIED, error
            )
            return told_apart(answer, z_learned(math.log(self._promised)))
        z = self._z_promised if z is None else z
        bars = _bars(evidence, z)
        answer = self._estimated(query, evidence, bars, bars, Path.CERTIFIED)
        return told_apart(answer, z, evidence.deviation_of_cells(query))

    def by_promise(
        self, query: LinearQuery, evidence: Evidence, error: float, path: Path
    ) -> Answered | TableAnswered:
        """The best estimates, which are as precise as the ``error`` asked for needs: a share of the rows."""
        margin, failure = error * evidence.n_rows, self._promised
        anytime = evidence.anytime(margin, failure)
        bars = promised_bars(
            evidence.variances, anytime, for_noise(error) * evidence.n_rows, failure
        )
        answer = self._estimated(query, evidence, bars.tolist(), anytime.tolist(), path, error)
        return told_apart(answer, z_steered(math.log(failure)))

    def by_variance(
        self, query: LinearQuery, evidence: Evidence, z: float, path: Path
    ) -> Answered | TableAnswered:
        """The best estimates, with bars that hold at a time which does not depend on the noise."""
        bars, anytime = _bars(evidence, z), self._bars_for_all_times(evidence)
        return told_apart(self._estimated(query, evidence, bars, anytime, path), z)

    def _bars_for_all_times(self, evidence: Evidence) -> list[float]:
        """Half widths, in rows, of the best estimates of a query that asks for no error of its own."""
        margin = self._accuracy.error * evidence.n_rows
        bars: list[float] = evidence.anytime(margin, self._promised).tolist()
        return bars

    def rank_bars(self, evidence: Evidence, error: float | None) -> Floats:
        """Half widths, in rows, of the live answers of a linear form, shape (answers,).

        A bar misses to either side with probability at most half of that of an answer (docs/proofs,
        Theorem 23).

        Args:
            evidence: What is known about the form.
            error: The error asked for, as a share of the rows. None where it decided no look.
        """
        slack = ROUNDING * evidence.n_rows
        if error is None:
            bars = np.array(_bars(evidence, self._z_promised))
        else:
            failure, margin = self._promised, for_noise(error) * evidence.n_rows
            anytime = evidence.anytime(error * evidence.n_rows, failure)
            bars = promised_bars(evidence.variances, anytime, margin, failure)
        return np.broadcast_to(bars + slack, evidence.values.shape)

    def quantiles(
        self,
        query: LinearQuery,
        evidence: Sequence[Evidence],
        error: float | None,
        path: Path,
    ) -> Quantiles:
        """The bins that quantiles lie in.

        Args:
            query: A query for a quantile.
            evidence: What is known about each of ``rank_places``, and about the number of rows.
            error: The error asked for, as a share of the rows. None where it decided no look.
            path: How the answer came about.
        """
        bars = [self.rank_bars(each, error) for each in evidence[:-1]]
        values, live = [each.values for each in evidence], evidence[-1].form.live
        return self.quantiles_within(query, values, bars, live, path)

    def quantiles_within(
        self,
        query: LinearQuery,
        values: Sequence[Floats],
        bars: Sequence[Floats],
        live: Mask | None,
        path: Path,
    ) -> Quantiles:
        """The bins that quantiles lie in.

        Args:
            query: A query for a quantile.
            values: The estimates of each form of ``rank_forms``, live answers only.
            bars: The half widths around all of them but the last, which counts the rows.
            live: The answers that rows can be in. None for all of them.
            path: How the answer came about.
        """
        rank = query.rank
        assert rank is not None, "a quantile is asked"
        *passed, of_rows = values
        places = rank_places(query, self._shape)
        starts = [rank.bins[place] for place in (0, *(place + 1 for place in places))]
        ends = [rank.bins[place] for place in (*places, -1)]
        passes = widths = np.empty((len(of_rows), 0))
        if passed:
            passes, widths = np.stack(passed, axis=1), np.stack(list(bars), axis=1)
        first, last = hulls(passes, widths)
        found = last if rank.share == 0.0 else first if rank.share == 1.0 else likely(passes)
        widest = widths.max(axis=1, initial=0.0)
        cells: list[Quantile] = []
        for place, low, high, bar, rows in zip(
            *(one.tolist() for one in (found, first, last, widest, of_rows)), strict=True
        ):
            told = len(rank.bins) == 1 or (low, high) != (0, len(ends) - 1)
            likely_bins = (starts[place], ends[place]) if told else None
            cells.append(Quantile(likely_bins, starts[low], ends[high], _finite(bar), rows))
        if live is not None:
            some, nothing = iter(cells), Quantile(None, rank.bins[0], rank.bins[-1], 0.0, 0.0)
            cells = [next(some) if is_live else nothing for is_live in live.tolist()]
        n = self._belief.rows(query.window)
        return Quantiles(rank.attribute, tuple(cells), n, self._confidence, path)

    def _estimated(
        self,
        query: LinearQuery,
        evidence: Evidence,
        bars: list[float],
        anytime: list[float],
        path: Path,
        error: float = math.nan,
    ) -> Answered | TableAnswered:
        """The best estimates, with their own half widths and those for all times."""
        values = evidence.values.tolist()
        own, always = (_each(some, len(values)) for some in (bars, anytime))
        simultaneous = list(map(max, self._simultaneous_by_variance(evidence, values), own))
        return self._outcome(query, evidence.form, values, (own, simultaneous, always), path, error)

    def by_itself(self, query: LinearQuery, release: CountsRelease) -> Answered | TableAnswered:
        """The answer of a fresh look: its own noise is all that it errs by."""
        counts = release.values.sum(axis=0).astype(np.float64)
        return self.by_look(query, counts, variance_of(release.steps), self._z)

    def at_all_times(
        self, query: LinearQuery, evidence: Evidence, failure: float
    ) -> Answered | TableAnswered:
        """The best estimates, with bars that fail at any time with the probability ``failure``."""
        bars = self.bars_at_all_times(evidence, failure)
        return self._around(query, evidence.form, evidence.values.tolist(), bars, Path.CERTIFIED)

    def bars_at_all_times(self, evidence: Evidence, failure: float) -> list[float]:
        """Half widths, in rows, of all live answers, that fail at any time with this probability."""
        margin = self._accuracy.error * evidence.n_rows
        bars: list[float] = evidence.anytime(margin, failure / ALL_TIMES).tolist()
        return _each(bars, len(evidence.values))

    def by_look(
        self, query: LinearQuery, values: Floats, variance: float, z: float
    ) -> Answered | TableAnswered:
        """The answer that a look is by itself, ``z`` deviations wide.

        Args:
            query: A query for counts.
            values: What the look has published of all blocks together, shape (n_answers,).
            variance: The variance of each.
            z: The half width of the bars in standard deviations.
        """
        form = form_of(query, self._shape)
        found = (values if form.live is None else values[form.live]).tolist()
        bars = [z * math.sqrt(variance)] * len(found)
        answer = self._around(query, form, found, bars, Path.MEASURED)
        return told_apart(answer, z, math.sqrt(variance))

    def by_rows_that_count(
        self, query: LinearQuery, counted: CountedRows, z: float
    ) -> Answered | TableAnswered:
        """All rows that count, as the looks at their number tell, ``z`` deviations wide.

        Args:
            query: A count without a condition.
            counted: What was published of the number of rows that count.
            z: The half width of the bar in standard deviations.
        """
        value, variance = counted.estimate(query.window)
        bars = [z * math.sqrt(variance)]
        return self._around(query, form_of(query, self._shape), [value], bars, Path.CERTIFIED)

    def _around(
        self, query: LinearQuery, form: Form, values: list[float], bars: list[float], path: Path
    ) -> Answered | TableAnswered:
        """An answer with its own bars, and no other ones."""
        none = [math.nan] * len(values)
        return self._outcome(query, form, values, (bars, none, none), path)

    def by_final_look(self, query: LinearQuery, release: CountsRelease, z: float) -> Answered:
        """The answer that the last look of a relative error is by itself, ``z`` deviations wide."""
        evidence, values = self._evidence(query), [float(release.values.sum())]
        bar = z * math.sqrt(variance_of(release.steps))
        simultaneous = self._simultaneous_by_variance(evidence, values)
        bars = [bar], simultaneous, self._anytime(evidence, values)
        outcome = self._outcome(query, evidence.form, values, bars, Path.MEASURED)
        assert isinstance(outcome, Answered), "one count"
        return outcome

    def by_bounds(
        self, query: LinearQuery, evidence: Evidence, bounded: Bounded, error: float
    ) -> Answered | TableAnswered:
        margin = for_noise(error) * evidence.n_rows
        nearest, farthest = bounded.high - margin, bounded.low + margin
        values = evidence.values.clip(np.minimum(nearest, farthest), farthest)  # within both
        return self.by_interval(query, evidence, values, bounded, Path.BOUNDED, error)

    def summed(
        self,
        query: LinearQuery,
        path: Path,
        evidence: SumEvidence | None = None,
        *,
        failure: float | None = None,
        at_opening: bool = False,
        all_times: float | None = None,
    ) -> Summed:
        """Sums and means; each bar holds for a query fixed beforehand.

        A mean is told where its count is above zero, with the confidence of the answer for all groups
        together. So no group without rows has one.

        Args:
            query: A query with a total.
            path: How the answer came about.
            evidence: What the answer rests on. None takes all that is known.
            failure: The probability with which each bar misses. None takes that of the data set.
            at_opening: Whether ``evidence`` is what was measured as phases opened.
            all_times: The probability with which the bar of the count of all rows misses at any time. None
                for a bar that holds if nobody chose what was measured.
        """
        assert query.total is not None, "the query has a total"
        n, unit = self._belief.rows(query.window), query.total.largest
        failure = self._accuracy.failure_probability if failure is None else failure
        z = two_sided(math.log(failure))
        evidence = self._belief.sums(query) if evidence is None else evidence
        least = least_deviations(max(1, len(evidence.sums.counts)), failure)
        known, slack = evidence.sums, ROUNDING * n
        # What looks add up is rounded to units, by so much a row.
        rounded = WholeValues.of(query).slack if evidence.looked else 0.0
        values = counted_values(query)
        lowest, highest = min(values), max(values)
        between = self._between(query, evidence, z, least, at_opening=at_opening)
        cells: list[Sum] = []
        for total, count, of_total, of_count, both in zip(
            known.totals.tolist(),
            known.counts.tolist(),
            known.variance_of_totals.tolist(),
            known.variance_of_counts.tolist(),
            known.covariances.tolist(),
            strict=True,
        ):
            if between is None:
                half = z * math.sqrt(of_total)
                bar = ratio_bar(total, count, (of_total, of_count), both, z, least)
                mean = None if bar is None else total / count
            else:
                (total, half), (mean, bar) = between[len(cells)]
            total, half = total * unit, (half + slack) * unit + rounded * n
            if mean is not None and bar is not None:
                mean, bar = mean * unit, bar * unit + rounded
            cells.append(
                _sum(
                    (count, _finite(z * math.sqrt(of_count) + slack)),
                    (total, _finite(half)),
                    (mean, bar),
                    (lowest, highest),
                    (count, count) if of_count == 0.0 else (0.0, float(n)),
                )
            )
        if known.live is not None:
            some = iter(cells)
            cells = [next(some) if is_live else _NO_SUM for is_live in known.live.tolist()]
        if query.rows is not None:
            cells = self._with_rows(query, cells, all_times)
        return Summed(tuple(cells), n, self._confidence, path)

    def _between(
        self,
        query: LinearQuery,
        evidence: SumEvidence,
        z: float,
        least: float,
        *,
        at_opening: bool,
    ) -> list[tuple[tuple[float, float], tuple[float | None, float | None]]] | None:
        """Totals and means with their half widths, where no look says what rows of some block count for.

        They lie between those of the least and of the largest values that the cells allow. Each of these is
        estimated, and the bar reaches to the far end of both (docs/proofs, Theorem 19).

        Returns:
            One pair of a total and its bar, and of a mean and its bar, for each live answer, in units of the
            largest value. None where looks, or tables, say what all rows count for.
        """
        if not evidence.kept or np.isfinite(evidence.sums.variance_of_totals).all():
            return None
        ends = [
            list(
                zip(
                    found.totals.tolist(),
                    found.counts.tolist(),
                    found.variance_of_totals.tolist(),
                    found.variance_of_counts.tolist(),
                    found.covariances.tolist(),
                    strict=True,
                )
            )
            for found in (
                each.sums for each in self._belief.sums_between(query, at_opening=at_opening)
            )
        ]
        answers = []
        for low, high in zip(*ends, strict=True):
            bars = [z * math.sqrt(one[2]) for one in (low, high)]
            ratios = [
                ratio_bar(total, count, (of_total, of_count), both, z, least)
                for total, count, of_total, of_count, both in (low, high)
            ]
            mean: tuple[float | None, float | None] = (None, None)
            if ratios[0] is not None and ratios[1] is not None:
                mean = _hull(low[0] / low[1], ratios[0], high[0] / high[1], ratios[1])
            answers.append((_hull(low[0], bars[0], high[0], bars[1]), mean))
        return answers

    def _with_rows(
        self, query: LinearQuery, cells: list[Sum], all_times: float | None
    ) -> list[Sum]:
        """The same with the count of all rows."""
        n, z = self._belief.rows(query.window), self._z
        known = self._belief.total_known
        every = rows_query(query, total_known=known)
        if every is None:
            assert query.rows is not None, "all rows are counted"
            public = is_total(query.rows, query.group_by, known=known)
            if query.rows == query.predicate and not public:
                return [replace(c, rows=c.count, rows_bar=c.count_bar) for c in cells]
            return [replace(cell, rows=float(n), rows_bar=0.0) for cell in cells]
        evidence = self._evidence(every)
        if all_times is None:
            reaches = [z * s for s in _deviations(evidence.variances, len(evidence.values))]
        else:
            reaches = self.bars_at_all_times(evidence, all_times)
        bars = [reach + ROUNDING * n for reach in reaches]
        found = list(
            zip(evidence.values.clip(0.0, float(n)).tolist(), map(_finite, bars), strict=True)
        )
        live = evidence.form.live
        if live is not None:
            some = iter(found)
            found = [next(some) if is_live else (0.0, 0.0) for is_live in live.tolist()]
        return [
            replace(cell, rows=count, rows_bar=bar)
            for cell, (count, bar) in zip(cells, found, strict=True)
        ]

    def by_interval(
        self,
        query: LinearQuery,
        evidence: Evidence,
        values: Floats,
        known: Bounded | Unproven,
        path: Path,
        error: float = math.nan,
    ) -> Answered | TableAnswered:
        form, answers = evidence.form, values.tolist()
        bars = np.maximum(known.high - values, values - known.low).tolist()
        simultaneous = self._simultaneous_by_variance(evidence, answers)
        if form.conjunctive:
            half = math.log(self._accuracy.failure_probability / 2.0)
            low, high = evidence.interval(half - self._conjunctions_log(form))
            reaches = np.maximum(high - values, values - low).tolist()
            simultaneous = list(map(min, simultaneous, reaches))
        anytime = self._anytime(evidence, answers)
        return self._outcome(query, form, answers, (bars, simultaneous, anytime), path, error)

    def _anytime(self, evidence: Evidence, values: list[float]) -> list[float]:
        """Half widths around ``values`` that hold for the answers to this query at all times at once."""
        bars = _each(self._bars_for_all_times(evidence), len(values))
        centres = evidence.values.tolist()
        return [
            abs(value - centre) + bar
            for value, centre, bar in zip(values, centres, bars, strict=True)
        ]

    def _simultaneous_by_variance(self, evidence: Evidence, values: list[float]) -> list[float]:
        """Half widths around ``values`` that hold for all predicates of the class served at once.

        For all predicates that is a statement about what the tables say, to which the distance from
        there to ``values`` is added, whatever counts of their own those took in.
        """
        z = self._z_simultaneous(evidence.form)
        centres, variances = evidence.values, evidence.variances
        if not evidence.form.conjunctive:
            centres, variances = evidence.by_tables()
        return [
            z * deviation + abs(value - centre)
            for deviation, value, centre in zip(
                _deviations(variances, len(values)), values, centres.tolist(), strict=True
            )
        ]

    def _z_simultaneous(self, form: Form) -> float:
        """Deviations that no predicate of the class served exceeds, at half the failure probability.

        For conjunctions a union bound. For all predicates Cauchy's inequality against the whole
        table, whose normalised error is chi-squared with as many degrees of freedom as cells, and one less
        where the number of rows is public, so that the error has no part in it. A predicate's own count would
        bring a dimension more, and is left out: see ``_simultaneous_by_variance``.
        """
        key = (form.attributes, form.conjunctive)
        z = self._simultaneous.get(key)
        if z is None:
            half = self._accuracy.failure_probability / 2.0
            if form.conjunctive:
                z = two_sided(math.log(half) - self._conjunctions_log(form))
            else:
                n_cells = math.prod(self._shape[a] for a in form.attributes)
                z = math.sqrt(float(chdtri(n_cells - self._belief.total_known, half)))
            self._simultaneous[key] = z
        return z

    def _conjunctions_log(self, form: Form) -> float:
        return conjunctions_log(tuple(self._shape[a] for a in form.attributes))

    def _outcome(
        self,
        query: LinearQuery,
        form: Form,
        values: list[float],
        bars: tuple[list[float], list[float], list[float]],
        path: Path,
        error: float = math.nan,
    ) -> Answered | TableAnswered:
        """Puts answers together: estimates as they are, bars as shares, zeros where nothing can be.

        A bar that is the ``error`` asked for, but for the last bits, is that error.
        """
        n_rows = self._belief.rows(query.window)
        total = float(n_rows)
        rows: list[Row] = [
            (value, *(_share(bar, total, error) for bar in bars_of_one))
            for value, *bars_of_one in zip(values, *bars, strict=True)
        ]
        if form.live is not None:
            live = iter(rows)
            rows = [next(live) if is_live else _ZERO for is_live in form.live.tolist()]
        return self.answered(query, rows, n_rows, path)

    def answered(
        self, query: LinearQuery, rows: Iterable[Row], n: int, path: Path
    ) -> Answered | TableAnswered:
        cells = [self._answered(row, n, path) for row in rows]
        if not query.group_by:
            return cells[0]
        return TableAnswered(tuple(cells), tuple(self._shape[a] for a in query.group_by), path)

    def _answered(self, row: Row, n: int, path: Path) -> Answered:
        estimate, bar, simultaneous, anytime = row
        return Answered(
            estimate,
            n,
            bar if bar < 1.0 else None,
            min(simultaneous, 1.0) if bar < 1.0 and not math.isnan(simultaneous) else None,
            self._confidence,
            path,
            min(anytime, 1.0) if bar < 1.0 and not math.isnan(anytime) else None,
        )

    def among(
        self,
        query: LinearQuery,
        evidence: Evidence,
        counts: Sequence[float],
        bars: Sequence[float | None],
        counted: CountedRows,
    ) -> list[RowsThatCount]:
        """What is known of the rows that count, and of counts as shares of them.

        A share is a ratio of two estimates. Its bar covers all ratios that are possible, and is put around
        the ratio of the numbers that stand in the answer (docs/proofs, Theorem 21).

        Args:
            query: A query for counts.
            evidence: What the answer rests on.
            counts: The counts that stand in the answer, shape (n_answers,).
            bars: Their half widths in rows; None where none is known.
            counted: What was published of the number of rows that count.
        """
        by_tables = math.isfinite(evidence.view.variances[0])
        live = evidence.form.live
        lives = [True] * len(counts) if live is None else live.tolist()
        given = [
            (count, bar) for count, bar, is_live in zip(counts, bars, lives, strict=True) if is_live
        ]
        rows, bar, shares = (
            self._among_by_tables(evidence, given)
            if by_tables
            else self._among_by_looks(query.window, evidence, counted)
        )
        n = self._belief.rows(query.window)
        surplus = max(0.0, 1.0 - counted.at_least(query.window) / n)
        known = RowsThatCount(min(max(rows, 0.0), float(n)), bar, surplus)
        found = iter(shares)
        zero = replace(known, share=0.0, share_bar=0.0)
        return [
            _around(known, next(found), count) if is_live else zero
            for is_live, count in zip(lives, counts, strict=True)
        ]

    def among_apart(
        self,
        window: range,
        counts: Sequence[float],
        bars: Sequence[float | None],
        counted: CountedRows,
        wider: float,
    ) -> list[RowsThatCount]:
        """What is known of the rows that count, where nobody chose the bars of counts by their number.

        The looks at the number of rows have a tenth of the failure probability, and the bars the rest: so a
        share holds whatever else was measured (docs/proofs, Theorem 24).

        Args:
            window: The blocks.
            counts: The counts that stand in the answer, shape (n_answers,).
            bars: Their half widths in rows; None where none is known.
            counted: What was published of the number of rows that count.
            wider: A bar that misses a tenth less often is this many times as wide, at the most.
        """
        found, variance = counted.estimate(window)
        unknown = sum(self._belief.rows(range(b, b + 1)) for b in window if not counted.known(b))
        rows, deviation = found + unknown / 2.0, math.sqrt(variance)
        off = two_sided(math.log(FAILURE * self._accuracy.failure_probability)) * deviation
        n = self._belief.rows(window)
        known = RowsThatCount(
            min(max(rows, 0.0), float(n)),
            self._z * deviation + unknown / 2.0,
            max(0.0, 1.0 - counted.at_least(window) / n),
        )
        return [
            _around(
                known,
                _ratio(
                    count,
                    None if bar is None else bar * wider,
                    rows,
                    (found - off, found + unknown + off),
                ),
                count,
            )
            for count, bar in zip(counts, bars, strict=True)
        ]

    def _among_by_tables(
        self, evidence: Evidence, given: Sequence[tuple[float, float | None]]
    ) -> tuple[float, float, list[_Share]]:
        """The rows that count by published tables, their half width, and the share of each live answer.

        A table tells of the count and of all rows with the same noise. The bar of their ratio is Fieller's,
        as that of a mean is. An answer that only other counts bound has its bar from them, at a fifth of the
        failure probability, and the rest is for the number of rows.
        """
        z, n_live = self._z, len(evidence.values)
        rows, of_rows = evidence.view.total, float(evidence.view.variances[0])
        off = two_sided(math.log(0.8 * self._accuracy.failure_probability)) * math.sqrt(of_rows)
        shares: list[_Share] = []
        for count, of_count, both, (value, own) in zip(
            evidence.values.tolist(),
            _each(evidence.variances.tolist(), n_live),
            _each(evidence.covariances_with_total().tolist(), n_live),
            given,
            strict=True,
        ):
            if not math.isfinite(of_count):
                shares.append(_ratio(value, own, rows, (rows - off, rows + off)))
                continue
            # As many deviations as the count has, if it has more.
            wide = z if own is None or of_count == 0.0 else max(z, own / math.sqrt(of_count))
            bar = ratio_bar(count, rows, (of_count, of_rows), both, wide)
            shares.append(None if bar is None else (count / rows, bar + ROUNDING))
        return rows, z * math.sqrt(of_rows), shares

    def _among_by_looks(
        self, window: range, evidence: Evidence, counted: CountedRows
    ) -> tuple[float, float, list[_Share]]:
        """The same where no table says how many rows count: by the looks at their number.

        A look decides how precise counts are, so its noise and theirs are not independent. Each therefore has
        half of the failure probability. Of a block whose look is missing, any number of rows may count.
        """
        found, variance = counted.estimate(window)
        unknown = sum(self._belief.rows(range(b, b + 1)) for b in window if not counted.known(b))
        rows, deviation = found + unknown / 2.0, math.sqrt(variance)
        z = two_sided(math.log(self._accuracy.failure_probability / 2.0))
        fewest, most = found - z * deviation, found + unknown + z * deviation
        shares: list[_Share] = []
        for count, own in zip(
            evidence.values.tolist(),
            _deviations(evidence.variances, len(evidence.values)),
            strict=True,
        ):
            bar = z * own if math.isfinite(own) else None
            shares.append(_ratio(count, bar, rows, (fewest, most)))
        return rows, self._z * deviation + unknown / 2.0, shares

    def certain(self, query: LinearQuery, count: int, n_rows: int) -> Answered | TableAnswered:
        """The answer to a predicate that holds for every row, or for none."""
        n_answers = math.prod(self._shape[a] for a in query.group_by)
        rows = [(float(count), 0.0, 0.0, 0.0)] * n_answers
        return self.answered(query, rows, n_rows, Path.CERTIFIED)


def told_apart(
    answer: Answered | TableAnswered, z: float, deviation: float | None = None
) -> Answered | TableAnswered:
    """The same answer, with what holds for all its cells at once: docs/proofs, Theorem 26.

    Args:
        answer: A count, which stays as it is, or a table.
        z: The half width of each bar in standard deviations, or that of bars which miss more often.
        deviation: The noise of each count, where that of each cell is independent and of the same law.
            None for any other noise: then only bars tell.
    """
    if isinstance(answer, Answered):
        return answer
    n_live = sum(cell.error_bar != 0.0 for cell in answer.cells)
    n = n_live + (
        n_live < len(answer.cells)
    )  # all cells that surely have no row are one more number
    apart = math.inf if deviation is None else range_width(n, z) * deviation
    return replace(answer, wider=wider_for(max(1, n_live), z) / z, apart=_finite(apart))


def _sum(
    counted: tuple[float, float | None],
    added_up: tuple[float, float | None],
    average: tuple[float | None, float | None],
    values: tuple[float, float],
    rows: tuple[float, float],
) -> Sum:
    """A sum of a cell, within what rows can count for.

    Args:
        counted: The estimated rows, and their half width.
        added_up: The same of the total, in the attribute's own unit.
        average: The same of the mean.
        values: The least and the largest value that a row can count for.
        rows: The fewest and the most rows that can count.
    """
    (count, count_bar), (total, total_bar), (mean, mean_bar) = counted, added_up, average
    lowest, highest = values
    if mean_bar is not None and mean_bar > highest - lowest > 0.0:
        mean_bar = None  # it says less than that a mean lies between the values
    fewest, most = rows
    ends = [number * value for number in rows for value in values]
    return Sum(
        count=min(max(count, fewest), most),
        count_bar=count_bar,
        total=min(max(total, min(ends)), max(ends)),
        total_bar=total_bar,
        mean=None if mean is None or mean_bar is None else min(max(mean, lowest), highest),
        mean_bar=mean_bar,
        count_ends=ends_of(count, count_bar, fewest, most),
        total_ends=ends_of(total, total_bar, min(ends), max(ends)),
        mean_ends=None
        if mean is None or mean_bar is None
        else ends_of(mean, mean_bar, lowest, highest),
    )


def _share(bar: float, total: float, error: float) -> float:
    """A half width as a share of all rows, with what floats may add."""
    share = bar / total + ROUNDING
    return error if math.isclose(share, error, rel_tol=_EQUAL) else share


def _ratio(count: float, bar: float | None, rows: float, ends: tuple[float, float]) -> _Share:
    """A count by a number of rows, and how far the ratios reach that both half widths leave; None for any."""
    fewest, most = ends
    if bar is None or fewest <= 0.0:
        return None
    share = count / rows
    low, high = max(0.0, count - bar) / most, max(0.0, count + bar) / fewest
    return share, max(high - share, share - low) + ROUNDING


def _around(known: RowsThatCount, share: _Share, count: float) -> RowsThatCount:
    """The same with the share that a count is, and a bar around that which covers as much."""
    if known.rows <= 0.0:
        return known if share is None else replace(known, share=share[0], share_bar=share[1])
    given = min(1.0, max(0.0, count / known.rows))
    if share is None:
        return replace(known, share=given)
    estimate, bar = share
    return replace(known, share=given, share_bar=bar + abs(given - estimate))


def variance_of(steps: Iterable[tuple[int, int]]) -> float:
    """The variance of a sum of counts, one of each block, from their steps of the grid of scales."""
    return math.fsum(float(grid_sigma(step)) ** 2 for _, step in steps)


def _hull(low: float, below: float, high: float, above: float) -> tuple[float, float]:
    """The middle and the half width of what reaches from ``below`` under low to ``above`` over high."""
    middle = (low + high) / 2.0
    half = max(high + above - middle, middle - low + below)
    return (middle, math.inf) if math.isnan(half) else (middle, half)


def _finite(bar: float) -> float | None:
    return bar if math.isfinite(bar) else None


def _bars(evidence: Evidence, z: float) -> list[float]:
    """The half widths of the live answers, ``z`` deviations wide."""
    return [z * math.sqrt(variance) for variance in evidence.variances.tolist()]


def _deviations(variances: Floats, n: int) -> list[float]:
    """Returns the standard deviations of n answers. One variance may serve all of them."""
    return _each([math.sqrt(variance) for variance in variances.tolist()], n)


def _each(numbers: list[float], n: int) -> list[float]:
    """Returns a number for each of n answers, where one may serve all of them."""
    return numbers * (n // len(numbers))
