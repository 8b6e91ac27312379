"""Answers about sealed blocks and open periods together. They rest on what is published, and are free.

The noise of blocks and of periods is independent: estimates and variances add up (docs/proofs, Theorem 36).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from stream_dp.core.outcome import Answered, Outcome, Path, RefusalCode, Refused, TableAnswered
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.count_answers import told_apart
from stream_dp.core.residual.belief.anytime import z_learned
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.belief.sums import is_total
from stream_dp.core.residual.plan.planner import ROUNDING
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.running.counts_so_far import CountsSoFar

_NOT_MEASURED: Final = Refused(
    RefusalCode.NOT_RUNNING,
    "window: nothing that is published answers this about the closed phases of the window; ask about those "
    "first, without running, and then about all again under a new id",
    retriable=True,
)


def answer_so_far(
    state: PublicState, query: LinearQuery, sealed: range, came: CountsSoFar
) -> Outcome:
    """The answer about sealed blocks and the rows of open periods.

    Args:
        state: What is published.
        query: The query, about the sealed blocks if there are any.
        sealed: The sealed blocks of the window. There may be none.
        came: What ticks say of the open periods.
    """
    n = came.n_rows + (state.rows(sealed) if sealed else 0)
    if n == 0:
        return Refused(RefusalCode.WINDOW_TOO_SMALL, "the window holds no rows")
    found = _sealed(state, query, came) if sealed else (came.values, _bars(state, came.variances))
    if found is None:
        return _NOT_MEASURED
    confidence, cells = state.promise.confidence, list[Answered]()
    for estimate, rows in zip(*(one.tolist() for one in found), strict=True):
        bar = rows / n + ROUNDING if rows else 0.0
        known = bar if bar < 1.0 else None
        cells.append(Answered(estimate, n, known, None, confidence, Path.CERTIFIED))
    if not query.group_by:
        return cells[0]
    shape = tuple(state.shape[a] for a in query.group_by)
    return told_apart(TableAnswered(tuple(cells), shape, Path.CERTIFIED), state.promise.z)


def _bars(state: PublicState, variances: Floats, *, learned: bool = False) -> Floats:
    """Half widths of estimates whose precision nobody chose by what was published."""
    z = z_learned(math.log(state.promise.failure)) if learned else state.promise.z
    return np.asarray(z * np.sqrt(variances))


def _sealed(
    state: PublicState, query: LinearQuery, came: CountsSoFar
) -> tuple[Floats, Floats] | None:
    """The counts of sealed blocks and open periods together, with their bars; None where one is not known.

    What was measured as phases opened is added up. Where it does not tell all, what else was measured is
    taken with bars that hold whenever it is asked, at half of the failure probability.
    """
    if query.predicate.constant is False:
        return came.values, _bars(state, came.variances)
    if is_total(query.predicate, query.group_by, known=state.belief.total_known):
        return came.values + state.rows(query.window), _bars(state, came.variances)
    opened = state.evidence_at_opening(query)
    if np.isfinite(opened.variances).all():
        variances = came.variances + _of_all(opened, opened.variances)
        bars = _bars(state, variances, learned=state.is_learned(query.window))
        return came.values + _of_all(opened, opened.values), bars
    evidence, half = state.evidence(query), state.promise.failure / 2.0
    bars = evidence.anytime(state.promise.accuracy.error * evidence.n_rows, half)
    if not np.isfinite(bars).all():
        return None
    bars = _of_all(evidence, bars) + two_sided(math.log(half)) * np.sqrt(came.variances)
    return came.values + _of_all(evidence, evidence.values), bars


def _of_all(evidence: Evidence, of_live: Floats) -> Floats:
    """Numbers of all answers, 0 where an answer is zero by definition, from those of live answers."""
    form = evidence.form
    if form.live is None:
        return np.broadcast_to(of_live, (form.n_answers,))
    found = np.zeros(form.n_answers)
    found[form.live] = of_live
    return found
