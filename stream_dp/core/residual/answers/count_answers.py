"""Answers to queries for counts: estimates, and the half widths of their error bars.

Everything here follows from published values. Whether a query is answered, and what is measured first, is
decided in ``ways``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from scipy.special import chdtri

from stream_dp.core.outcome import Answered, Path, TableAnswered
from stream_dp.core.published.rank_gap import range_width, wider_for
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.anytime import ALL_TIMES, promised_bars, z_learned, z_steered
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.joined_evidence import JoinedForm
from stream_dp.core.residual.belief.linear_forms import (
    Floats,
    Form,
    conjunctions_log,
    form_of,
    spread,
)
from stream_dp.core.residual.looks.counted_rows import CountedRows
from stream_dp.core.residual.plan.planner import ROUNDING, Bounded, Unproven, for_noise
from stream_dp.core.residual.plan.promise import Promise

_EQUAL: Final = 2.0**-50  # numbers that differ by less, relatively, are one

Row: TypeAlias = tuple[float, ...]
"""One answer: its count as it was estimated, then its bars as shares of the rows, NaN where there is none.

The bars are its own, the simultaneous one, and the one for all times.
"""

_ZERO: Row = (0.0, 0.0, 0.0, 0.0)


class CountAnswers:
    """Makes the answers of one data set.

    Args:
        promise: The promise for each answer, and for each cell of a table.
        belief: The public knowledge about all blocks.
        evidence: Returns what is known about a query.
    """

    def __init__(
        self, promise: Promise, belief: Belief, evidence: Callable[[LinearQuery], Evidence]
    ) -> None:
        self._promise = promise
        self._belief = belief
        self._evidence = evidence
        self._simultaneous: dict[tuple[tuple[int, ...], bool], float] = {}

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
            margin, failure = for_noise(error) * evidence.n_rows, self._promise.of_noise
            anytime = evidence.anytime(error * evidence.n_rows, failure)
            within = np.minimum(anytime, margin).tolist()
            answer = self._estimated(
                query, evidence, within, anytime.tolist(), Path.CERTIFIED, error
            )
            return told_apart(answer, z_learned(math.log(failure)))
        z = self._promise.z_of_noise if z is None else z
        bars = bars_of(evidence, z)
        answer = self._estimated(query, evidence, bars, bars, Path.CERTIFIED)
        return told_apart(answer, z, evidence.deviation_of_cells(query))

    def by_promise(
        self, query: LinearQuery, evidence: Evidence, error: float, path: Path
    ) -> Answered | TableAnswered:
        """The best estimates, which are as precise as the ``error`` asked for needs: a share of the rows."""
        bars, anytime = self.promised(evidence, error)
        answer = self._estimated(query, evidence, bars.tolist(), anytime.tolist(), path, error)
        return told_apart(answer, z_steered(math.log(self._promise.of_noise)))

    def promised(self, evidence: Evidence, error: float) -> tuple[Floats, Floats]:
        """Half widths, in rows, that keep a promise of an ``error``, and those that hold at all times."""
        margin, failure = for_noise(error) * evidence.n_rows, self._promise.of_noise
        anytime = evidence.anytime(error * evidence.n_rows, failure)
        return promised_bars(evidence.variances, anytime, margin, failure), anytime

    def by_variance(
        self, query: LinearQuery, evidence: Evidence, z: float, path: Path
    ) -> Answered | TableAnswered:
        """The best estimates, with bars that hold at a time which does not depend on the noise."""
        bars, anytime = bars_of(evidence, z), self._bars_for_all_times(evidence)
        return told_apart(self._estimated(query, evidence, bars, anytime, path), z)

    def _bars_for_all_times(self, evidence: Evidence, failure: float | None = None) -> list[float]:
        """Half widths, in rows, of the best estimates of a query that asks for no error of its own."""
        margin = self._promise.accuracy.error * evidence.n_rows
        failure = self._promise.of_noise if failure is None else failure
        return each(evidence.anytime(margin, failure).tolist(), len(evidence.values))

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
        own, always = (each(some, len(values)) for some in (bars, anytime))
        simultaneous = list(map(max, self._simultaneous_by_variance(evidence, values), own))
        return self._outcome(query, evidence.form, values, (own, simultaneous, always), path, error)

    def at_all_times(
        self, query: LinearQuery, evidence: Evidence, failure: float
    ) -> Answered | TableAnswered:
        """The best estimates, with bars that fail at any time with the probability ``failure``."""
        bars = self.bars_at_all_times(evidence, failure)
        return self._around(query, evidence.form, evidence.values.tolist(), bars, Path.CERTIFIED)

    def bars_at_all_times(self, evidence: Evidence, failure: float) -> list[float]:
        """Half widths, in rows, of all live answers, that fail at any time with this probability."""
        return self._bars_for_all_times(evidence, failure / ALL_TIMES)

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
        form = self._evidence(query).form
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
        form, bars = form_of(query, self._promise.shape), [z * math.sqrt(variance)]
        return self._around(query, form, [value], bars, Path.CERTIFIED)

    def _around(
        self, query: LinearQuery, form: Form, values: list[float], bars: list[float], path: Path
    ) -> Answered | TableAnswered:
        """An answer with its own bars, and no other ones."""
        none = [math.nan] * len(values)
        return self._outcome(query, form, values, (bars, none, none), path)

    def by_final_look(
        self, query: LinearQuery, values: Floats, variance: float, z: float
    ) -> Answered | TableAnswered:
        """The answer that the last look of a relative error is by itself; takes what ``by_look`` takes."""
        evidence, found = self._evidence(query), values.tolist()
        simultaneous = self._simultaneous_by_variance(evidence, found)
        bars = [z * math.sqrt(variance)], simultaneous, self._anytime(evidence, found)
        return self._outcome(query, evidence.form, found, bars, Path.MEASURED)

    def by_bounds(
        self, query: LinearQuery, evidence: Evidence, bounded: Bounded, error: float
    ) -> Answered | TableAnswered:
        """The best estimates within bounds that are close enough for the ``error`` asked for."""
        margin = for_noise(error) * evidence.n_rows
        nearest, farthest = bounded.high - margin, bounded.low + margin
        values = evidence.values.clip(np.minimum(nearest, farthest), farthest)  # within both
        return self.by_interval(query, evidence, values, bounded, Path.BOUNDED, error)

    def by_interval(
        self,
        query: LinearQuery,
        evidence: Evidence,
        values: Floats,
        known: Bounded | Unproven,
        path: Path,
        error: float = math.nan,
    ) -> Answered | TableAnswered:
        """Values with bars that reach to the far end of what is possible."""
        form, answers = evidence.form, values.tolist()
        bars = np.maximum(known.high - values, values - known.low).tolist()
        simultaneous = self._simultaneous_by_variance(evidence, answers)
        if form.conjunctive:
            half = math.log(self._promise.failure / 2.0)
            low, high = evidence.interval(half - self._conjunctions_log(form))
            reaches = np.maximum(high - values, values - low).tolist()
            simultaneous = list(map(min, simultaneous, reaches))
        anytime = self._anytime(evidence, answers)
        return self._outcome(query, form, answers, (bars, simultaneous, anytime), path, error)

    def _anytime(self, evidence: Evidence, values: list[float]) -> list[float]:
        """Half widths around ``values`` that hold for the answers to this query at all times at once."""
        bars, centres = self._bars_for_all_times(evidence), evidence.values.tolist()
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
        reaches = each([z * math.sqrt(one) for one in variances.tolist()], len(values))
        return [
            reach + abs(value - centre)
            for reach, value, centre in zip(reaches, values, centres.tolist(), strict=True)
        ]

    def _z_simultaneous(self, form: Form | JoinedForm) -> float:
        """Deviations that no predicate of the class served exceeds, at half the failure probability.

        For conjunctions a union bound. For all predicates Cauchy's inequality against the whole
        table, whose normalised error is chi-squared with as many degrees of freedom as cells, and one less
        where the number of rows is public, so that the error has no part in it. A predicate's own count would
        bring a dimension more, and is left out: see ``_simultaneous_by_variance``.
        """
        if isinstance(form, JoinedForm):
            return self._z_of(form, form.n_cells)
        key = (form.attributes, form.conjunctive)
        if key not in self._simultaneous:
            n_cells = math.prod(self._promise.shape[a] for a in form.attributes)
            self._simultaneous[key] = self._z_of(form, n_cells)
        return self._simultaneous[key]

    def _z_of(self, form: Form | JoinedForm, n_cells: int) -> float:
        half = self._promise.failure / 2.0
        if form.conjunctive:
            return two_sided(math.log(half) - self._conjunctions_log(form))
        return math.sqrt(float(chdtri(n_cells - self._belief.total_known, half)))

    def _conjunctions_log(self, form: Form | JoinedForm) -> float:
        return conjunctions_log(tuple(self._promise.shape[a] for a in form.attributes))

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
        total = float(self._belief.rows(query.window))
        rows: list[Row] = [
            (value, *(_share(bar, total, error) for bar in bars_of_one))
            for value, *bars_of_one in zip(values, *bars, strict=True)
        ]
        return self.answered(query, spread(rows, form.live, _ZERO), path)

    def answered(
        self, query: LinearQuery, rows: Iterable[Row], path: Path
    ) -> Answered | TableAnswered:
        """The outcome of the rows of all answers."""
        n = self._belief.rows(query.window)
        cells = [self._answered(row, n, path) for row in rows]
        if not query.group_by:
            return cells[0]
        shape = tuple(self._promise.shape[a] for a in query.group_by)
        return TableAnswered(tuple(cells), shape, path)

    def _answered(self, row: Row, n: int, path: Path) -> Answered:
        estimate, bar, simultaneous, anytime = row
        return Answered(
            estimate,
            n,
            bar if bar < 1.0 else None,
            min(simultaneous, 1.0) if bar < 1.0 and not math.isnan(simultaneous) else None,
            self._promise.confidence,
            path,
            min(anytime, 1.0) if bar < 1.0 and not math.isnan(anytime) else None,
        )

    def exactly(self, query: LinearQuery, evidence: Evidence) -> Answered | TableAnswered:
        """The answer to a query of which all is public."""
        rows: list[Row] = [(value, 0.0, 0.0, 0.0) for value in evidence.values.tolist()]
        return self.answered(query, spread(rows, evidence.form.live, _ZERO), Path.CERTIFIED)

    def certain(self, query: LinearQuery, count: int) -> Answered | TableAnswered:
        """The answer to a predicate that holds for every row, or for none."""
        n_answers = math.prod(self._promise.shape[a] for a in query.group_by)
        rows = [(float(count), 0.0, 0.0, 0.0)] * n_answers
        return self.answered(query, rows, Path.CERTIFIED)


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
    # All cells that surely have no row are one more number.
    n = n_live + (n_live < len(answer.cells))
    apart = math.inf if deviation is None else range_width(n, z) * deviation
    return replace(answer, wider=wider_for(max(1, n_live), z) / z, apart=finite(apart))


def _share(bar: float, total: float, error: float) -> float:
    """A half width as a share of all rows, with what floats may add."""
    share = bar / total + ROUNDING
    return error if math.isclose(share, error, rel_tol=_EQUAL) else share


def bars_of(evidence: Evidence, z: float) -> list[float]:
    """The half widths of the live answers, ``z`` deviations wide."""
    return [z * math.sqrt(variance) for variance in evidence.variances.tolist()]


def each(numbers: list[float], n: int) -> list[float]:
    """Returns a number for each of n answers, where one may serve all of them."""
    return numbers * (n // len(numbers))


def finite(bar: float) -> float | None:
    """A half width; None where nothing is known."""
    return bar if math.isfinite(bar) else None
