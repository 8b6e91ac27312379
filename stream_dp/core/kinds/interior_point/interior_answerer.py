"""Kind ``interior_point``: on which side of some row points lie, until one between the rows is found.

Source and guarantee: ``core/kinds/interior_point/interior_law.py``; runs, charges and crashes: ``points``.
"""

from __future__ import annotations

from stream_dp.core.kinds.interior_point.interior_law import InteriorPlan, InteriorPoint
from stream_dp.core.kinds.kind_answerer import KindTerms
from stream_dp.core.kinds.points import PointRelease, PointRun, PointRuns, RunKey
from stream_dp.core.outcome import Path, Placed, Side


class Interior(PointRuns[InteriorPoint]):
    """One interior point for each ordered attribute and window.

    Args:
        points: For how many looks of a run confidence is promised; beyond them none is stated.
    """

    name = "interior_point"

    def __init__(self, terms: KindTerms, points: int) -> None:
        super().__init__(terms)
        loss = self._loss
        self._plan = InteriorPlan(loss.epsilon, loss.delta, points, self._failure_probability)

    @property
    def min_rows(self) -> int:
        return self._plan.min_rows

    def _new(self, n_rows: int) -> InteriorPoint:
        del n_rows
        return InteriorPoint(self._plan)

    def _free(self, run: PointRun[InteriorPoint], run_key: RunKey, code: int) -> Placed | None:
        side = run.state.answer(code)
        return None if side is None else self._placed(run, run_key, side)

    def _folded(self, run: PointRun[InteriorPoint], release: PointRelease) -> Placed:
        (said,) = release.sides
        return self._placed(run, release.run_key, run.state.absorb(release.code, said))

    def _placed(self, run: PointRun[InteriorPoint], run_key: RunKey, side: Side) -> Placed:
        promised = run.looks <= self._plan.n_points
        return Placed(
            side=side,
            n=self._rows(run_key.window),
            error_bar=None,
            confidence=1.0 - self._failure_probability if promised else None,
            path=Path.CERTIFIED,
            attribute=run_key.attribute,
            code=run.state.point,
        )
