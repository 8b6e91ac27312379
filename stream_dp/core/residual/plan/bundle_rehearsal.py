"""Prices of several queries together: each is planned on a copy of everything that was published.

A look of the copy is charged to the copy, and absorbed as if it had published what is estimated already, with
the variance that it would really have. So no later query of the bundle pays for the same thing again. Plans
follow from estimates, variances and charges alone, all of them public, and so does this.

Estimates decide one thing only: whether smaller counts bound an answer so closely that no look is needed
(``planner``, step 2). A sparing rehearsal goes by the bounds of today's estimates, and the other one bounds
nothing. If no answer turns out to be bounded, both prices are exactly what is paid, to the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.levels import grouped
from stream_dp.core.residual.belief.linear_forms import Floats, table
from stream_dp.core.residual.belief.sums import rows_query
from stream_dp.core.residual.looks.staged_look import StagedLook
from stream_dp.core.residual.looks.sum_look import SumLook, SumRelease
from stream_dp.core.residual.looks.table_looks import (
    CountsLook,
    CountsRelease,
    TablesLook,
    TablesRelease,
)


def imagined(
    belief: Belief, look: Look, evidence_of: Callable[[LinearQuery], Evidence]
) -> TablesRelease | CountsRelease | SumRelease | None:
    """A release of what is estimated already, in whole rows; None for a look that publishes something else.

    Args:
        belief: What is known.
        look: The look that is not taken.
        evidence_of: What is known about a query.
    """
    if isinstance(look, StagedLook):
        look = look.look
    match look:
        case TablesLook(parts=parts):
            views = [belief.tables.view(p.attributes, range(p.block, p.block + 1)) for p in parts]
            tables = [table(v.spectrum, axes=range(v.spectrum.ndim)) for v in views]
            counted = (
                grouped(cells, part.groups or cells.shape)
                for cells, part in zip(tables, parts, strict=True)
            )
            return TablesRelease(parts, tuple(map(_whole, counted)), look.reason)
        case CountsLook(query=query, attributes=attributes, steps=steps):
            values = np.zeros((len(steps), look.n_answers))
            for row, (block, _) in zip(values, steps, strict=True):
                here = LinearQuery(query.predicate, range(block, block + 1), query.group_by)
                row[:] = _counts(evidence_of(here))
            return CountsRelease(query.key, attributes, steps, _whole(values), query.fresh)
        case SumLook(steps=steps):
            sums = [_sums(belief, look, block, evidence_of) for block, _, _ in steps]
            return look.released(_whole(np.array(sums)))
    return None


def _counts(evidence: Evidence) -> Floats:
    """The estimates of all answers, shape (n_answers,)."""
    return _spread(evidence.values, evidence.form.live, evidence.form.n_answers)


def _spread(estimates: Floats, live: Mask | None, n_answers: int) -> Floats:
    """Estimates of the live answers among all of them, of which the others are 0."""
    if live is None:
        return estimates
    every = np.zeros(n_answers)
    every[live] = estimates
    return every


def _sums(
    belief: Belief, look: SumLook, block: int, evidence_of: Callable[[LinearQuery], Evidence]
) -> Floats:
    """Returns the values that a look would publish of one block, shape (vectors, answers)."""
    query = replace(look.query, window=range(block, block + 1))
    assert query.total is not None, "the query has a total"
    sums, shape, n = belief.sums(query).sums, look.shape, look.n_answers
    totals = _spread(sums.totals, sums.live, n) * query.total.largest
    counts = _spread(sums.counts, sums.live, n)
    if not shape.counts:
        counts = np.full(n, float(belief.rows(query.window)))
    found = [2.0 * totals / look.values.unit - shape.centre * counts]
    if shape.counts:
        found.append(counts)
    if shape.rests:
        every = rows_query(query, total_known=belief.total_known)
        assert every is not None, "the look counts them"
        found.append(_counts(evidence_of(every)) - counts)
    return np.array(found)


def _whole(estimates: Floats) -> npt.NDArray[np.int64]:
    return np.rint(estimates).astype(np.int64)
