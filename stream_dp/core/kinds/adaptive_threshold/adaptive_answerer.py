"""Kind ``adaptive_threshold``: rows up to a point, with an error that does not grow with the bins.

The source and the guarantee are in ``adaptive_law``; runs, charges and crashes are in ``points``. A run is
about the rows that its window had when it began, which no later phase alters.
"""

from __future__ import annotations

from dataclasses import replace

from stream_dp.core.kinds.adaptive_threshold.adaptive_law import AdaptivePlan, AdaptiveThresholds
from stream_dp.core.kinds.kind_answerer import KindTerms
from stream_dp.core.kinds.points import PointRelease, PointRun, PointRuns, RunKey
from stream_dp.core.outcome import Answered, Path
from stream_dp.core.rows.encoded_rows import MAX_ROWS


class Adaptive(PointRuns[AdaptiveThresholds]):
    """All thresholds of each ordered attribute and window.

    Args:
        chunks: Into how many the rows are cut, at least 2.
        queries: For how many looks of a run an error is promised; beyond them none is stated.
    """

    name = "adaptive_threshold"

    def __init__(self, terms: KindTerms, chunks: int, queries: int) -> None:
        super().__init__(terms)
        loss = self._loss
        self._largest = AdaptivePlan(
            loss.epsilon, loss.delta, MAX_ROWS, chunks, queries, self._failure_probability
        )

    @property
    def min_rows(self) -> int:
        return self._largest.min_rows

    def _new(self, n_rows: int) -> AdaptiveThresholds:
        return AdaptiveThresholds(replace(self._largest, n_rows=n_rows))

    def _free(
        self, run: PointRun[AdaptiveThresholds], run_key: RunKey, code: int
    ) -> Answered | None:
        estimate = run.state.answer(code)
        return None if estimate is None else self._answered(run, estimate)

    def _folded(self, run: PointRun[AdaptiveThresholds], release: PointRelease) -> Answered:
        return self._answered(run, run.state.absorb(release.code, release.sides))

    def _answered(self, run: PointRun[AdaptiveThresholds], estimate: int) -> Answered:
        plan = run.state.plan
        bar = plan.error / plan.n_rows if run.looks <= plan.n_queries else None
        return Answered(
            estimate=estimate,
            n=plan.n_rows,
            error_bar=bar,
            error_bar_simultaneous=bar,
            confidence=1.0 - self._failure_probability,
            path=Path.CERTIFIED,
        )
