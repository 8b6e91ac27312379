"""Online interior point: tells for any number of adaptive points on which side of some row they lie.

Bun, Steinke, Ullman 2016, Definition 5.14, Proposition 5.15, Figure 8; with thresholds that do not depend
on how many rows there are, so that no padding or subsampling is needed.

The count ``#{rows <= y}`` is asked of BetweenThresholds. BELOW and ABOVE are passed on; the first point for
which it says BETWEEN is kept and answered ABOVE; from then on a point is BELOW if it lies before the kept
one and ABOVE otherwise, for ever, without the data.

**Guarantee.** (epsilon, delta)-differential privacy for replacing, adding or removing one row: that moves
the count by at most 1, and thresholds and scales are constants; what follows the first BETWEEN is
post-processing.

**Accuracy.** Let e be the error of BetweenThresholds for k points at failure probability beta. The
thresholds are ``e + 1`` and ``min_rows - e - 1`` with ``min_rows = 2 (e + 1) + min_gap``. On ``min_rows``
rows or more, but for beta: every point before all rows is answered BELOW, every point from the last row on
ABOVE, and a kept point has a row at or before it and one after it.

**State.** Public: the kept point, and whether the search was given up; a fold over published answers.
Secret: the offset of BetweenThresholds until a point is kept, and nothing afterwards. If the secret is lost
before, or an answer is lost on its way out, the mechanism is abandoned. On data that grow the kept point is
interior for the rows of the moment when it was kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.core.kinds.between.between_law import BetweenPlan, BetweenThresholds
from stream_dp.core.kinds.loss import Loss, Secret
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.noise_sources import NoiseSource


@dataclass(frozen=True)
class InteriorPlan:
    """The requirements and the promises of a run. They are public.

    Attributes:
        epsilon: The epsilon of the whole run.
        delta: The delta of the whole run.
        n_points: k, the number of points for which accuracy is promised. Privacy holds for any number.
        failure_probability: beta, the probability that some answer is wrong.
    """

    epsilon: Fraction
    delta: Fraction
    n_points: int
    failure_probability: float

    def __post_init__(self) -> None:
        if self.n_points < 1 or not 0.0 < self.failure_probability < 1.0:
            raise ValueError("a run has points, and a failure probability between 0 and 1")

    @cached_property
    def between(self) -> BetweenPlan:
        return BetweenPlan(self.epsilon, self.delta)

    @property
    def loss(self) -> Loss:
        return self.between.loss

    @cached_property
    def error(self) -> int:
        """e, in rows."""
        return self.between.error(self.n_points, self.failure_probability)

    @property
    def min_rows(self) -> int:
        """Rows from which on accuracy is promised."""
        return 2 * (self.error + 1) + self.between.min_gap

    @property
    def low(self) -> int:
        return self.error + 1

    @property
    def high(self) -> int:
        return self.min_rows - self.error - 1

    def draw(self, noise: NoiseSource) -> Secret:
        """The secret of one run."""
        return self.between.draw(noise)

    @property
    def secret_size(self) -> int:
        """Integers in the secret."""
        return 1


class InteriorPoint:
    """The public state of one run: a fold over its answers.

    Attributes:
        plan: The plan of the run.
        point: The point that was kept, once there is one.
    """

    __slots__ = ("_between", "plan", "point")

    def __init__(self, plan: InteriorPlan) -> None:
        self.plan = plan
        self.point: int | None = None
        self._between = BetweenThresholds(plan.between)

    def __repr__(self) -> str:
        return f"InteriorPoint(point={self.point})"

    @property
    def abandoned(self) -> bool:
        """Whether no answer can be given any more."""
        return self.point is None and self._between.halted

    def answer(self, point: int) -> Side | None:
        """BELOW or ABOVE, if that is known without the data; else ``look`` must be asked."""
        if self.point is None:
            return None
        return Side.BELOW if point < self.point else Side.ABOVE

    def look(self, count: int, *, secret: Secret, noise: NoiseSource) -> Side:
        """Returns what BetweenThresholds says.

        Commit the side, fold it in with ``absorb``, and publish it.

        Args:
            count: The exact number of rows at or before the point. Private.
            secret: The secret of the run.
            noise: The source of randomness.

        Raises:
            RuntimeError: A point is kept already, or the run was abandoned.
        """
        return self._between.look(count, self.plan.low, self.plan.high, secret=secret, noise=noise)

    def absorb(self, point: int, side: Side) -> Side:
        """Folds a published output in; the answer to the point, BELOW or ABOVE."""
        self._between.absorb(side)
        if side is Side.BETWEEN:
            self.point = point
            return Side.ABOVE
        return side

    def lost(self) -> None:
        """An output may have been taken, but was never published: the run is abandoned."""
        self._between.lost()
