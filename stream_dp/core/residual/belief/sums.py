"""Sums and means: weighted forms in the same residuals that counts are estimated from.

A sum adds a number up that stands for each cell of an attribute; it is linear in the counts, so its estimate
and its variance are those of ``forms`` with weights in place of a mask. A mean is the ratio of a sum and a
count, both estimated from the same tables. Its bar is Fieller's (1954): m is a possible mean just when
``S - m C`` is within z deviations of 0, where S and C are the estimated sum and count; the variance of that
difference is quadratic in m, and so is the condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from stream_dp.core.query import LinearQuery, Mask
from stream_dp.core.residual.belief.forms import Floats, Form, TableForm, Together
from stream_dp.core.residual.belief.residuals import ResidualMemory


@dataclass(frozen=True, slots=True)
class Sums:
    """Estimates of the live answers, and their second moments, shape (answers,) each.

    Attributes:
        totals: The totals, in units of the largest value.
        counts: The counts, in rows.
        variance_of_totals: The variances of the totals. Infinite if nothing is known.
        variance_of_counts: The variances of the counts. Infinite if nothing is known.
        covariances: The covariances of totals and counts.
        live: The positions of the live answers, shape (n_answers,). None if all are live. The others are 0.
        rows: All rows of each answer, including rows without a number, shape (n_answers,). None if the query
            does not count them.
        variance_of_rows: The variances of ``rows``.
    """

    totals: Floats
    counts: Floats
    variance_of_totals: Floats
    variance_of_counts: Floats
    covariances: Floats
    live: Mask | None
    rows: Floats | None = None
    variance_of_rows: Floats | None = None


def form_of_total(query: LinearQuery, shape: tuple[int, ...]) -> Form:
    """The sum, in units of its largest value; and with it the count of all rows, where that is asked too."""
    assert query.total is not None, "the query has a total"
    total = _weighted(query, shape, np.array(query.total.values) / query.total.largest)
    return total if query.rows is None else Together([total, _rows(query, shape)])


def _weighted(query: LinearQuery, shape: tuple[int, ...], weights: Floats) -> TableForm:
    """Returns the form of the rows that have a number, each counted with its weight."""
    assert query.total is not None, "the query has a total"
    along = query.total.attribute, weights
    among = query.attributes
    return TableForm(query.predicate, query.group_by, shape, along, among=among)


def _rows(query: LinearQuery, shape: tuple[int, ...]) -> TableForm:
    """The count of all rows, read off the same table as the sum."""
    assert query.total is not None, "the query has a total"
    assert query.rows is not None, "the query counts rows"
    along = query.total.attribute, np.ones(len(query.total.values))
    return TableForm(query.rows, query.group_by, shape, along, among=query.attributes)


def sums(query: LinearQuery, shape: tuple[int, ...], tables: ResidualMemory) -> Sums:
    """Returns what the tables say about a query with a total."""
    assert query.total is not None, "the query has a total"
    values = np.array(query.total.values) / query.total.largest
    weights = values, np.ones(len(values)), values + 1.0
    parts = [_weighted(query, shape, each) for each in weights]
    view = tables.view(parts[0].attributes, query.window)
    totals, counts, _ = (part.values(view) for part in parts)
    of_totals, of_counts, of_both = (view.variance(part.norms) for part in parts)
    known = np.isfinite(of_both)
    covariances = np.zeros(len(of_both))
    covariances[known] = 0.5 * (of_both - of_totals - of_counts)[known]
    found = Sums(totals, counts, of_totals, of_counts, covariances, parts[0].live)
    if query.rows is None:
        return found
    form = _rows(query, shape)
    rows, of_rows = np.zeros(form.n_answers), np.zeros(form.n_answers)
    live = slice(None) if form.live is None else form.live
    rows[live], of_rows[live] = form.values(view), view.variance(form.norms)
    return replace(found, rows=rows, variance_of_rows=of_rows)


def ratio_bar(
    total: float, count: float, variances: tuple[float, float], covariance: float, z: float
) -> float | None:
    """Half width around ``total / count`` of all ratios that are possible at z deviations; None for all.

    Args:
        total: The total, in units of the largest value.
        count: The count, in rows.
        variances: The variances of total and count.
        covariance: The covariance of total and count.
        z: The half width of the interval, in standard deviations.
    """
    of_total, of_count = variances
    square = count * count - z * z * of_count
    if count <= 0.0 or not square > 0.0 or not math.isfinite(of_total):
        return None
    middle = total * count - z * z * covariance
    constant = total * total - z * z * of_total
    root = math.sqrt(max(0.0, middle * middle - square * constant))
    ratio = total / count
    return max((middle + root) / square - ratio, ratio - (middle - root) / square)


__all__ = ["Sums", "form_of_total", "ratio_bar", "sums"]
