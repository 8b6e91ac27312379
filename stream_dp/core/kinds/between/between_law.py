"""BetweenThresholds: many adaptive counts, of which only those near a threshold cost anything.

Bun, Steinke, Ullman 2016, Theorem 5.8, Lemmas 5.9 and 5.10, Figure 7; with discrete noise, and for any
number of answers between the thresholds.

Thresholds ``low < high``; one offset mu, drawn once, moves them towards each other. A count with fresh
noise is BELOW if it is less than ``low + mu``, else ABOVE if it is more than ``high - mu``, else BETWEEN;
at the last BETWEEN that the plan allows the mechanism halts. Every BELOW and ABOVE is free, however many
there are.

**Guarantee.** (epsilon, delta)-differential privacy for all answers together, whatever queries are asked in
the light of earlier answers, as long as replacing one row moves each count by at most 1 and each gap ``high
- low`` is at least ``min_gap``. Thresholds may differ from query to query, if they are public.

*Proof*, for c answers BETWEEN. Noise: mu of scale at least ``2 / epsilon``, and nu of scale lam, at least
``6 c / epsilon``. Take a run with offset mu on one dataset x and one with mu + 1 on its neighbour x'; that
costs a factor ``exp(epsilon / 2)``. Drop ``mu > M``, of probability at most delta. Else the interval of
BETWEEN on x' is ``[low + mu + 1, high - mu - 1]`` with ``W >= high - low - 2 M - 1 >= N`` integers. BELOW
on x is BELOW on x', for the count rises by 1 at most and the threshold by 1; so is ABOVE: such factors only
grow. BETWEEN: as intervals of nu, that of x' lies in that of x and is 2 shorter; each end weighs at most
``(exp(2 / lam) - 1) / (1 - exp(-W / lam))`` of what is left when 2 are cut off, so the ratio is at most ``1
+ (3 / 2) (exp(epsilon / (3 c)) - 1) <= exp(epsilon / (2 c))`` with ``N = ceil(lam ln 3)``. Multiply.

**State.** Public: how many answers were BETWEEN, a fold over the answers. Secret: mu. It is committed with
the charge, before the first answer; if it is lost the mechanism is abandoned. Drawing mu again for each
answer, or an offset for each threshold of its own, would void the proof. An answer that a crash lost before
it was published counts as BETWEEN: ``lost``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.core.kinds.loss import Loss, Secret, checked_privacy
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.laplace import reach, scale_from, tail_point
from stream_dp.core.randomness.noise_sources import NoiseSource


@dataclass(frozen=True)
class BetweenPlan:
    """Scales and the gap that they need; public.

    Attributes:
        epsilon: The epsilon of the whole run.
        delta: The delta of the whole run.
        n_between: c: how many answers may be BETWEEN, at least 1.
    """

    epsilon: Fraction
    delta: Fraction
    n_between: int = 1

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon, self.delta)
        if self.n_between < 1:
            raise ValueError(f"at least one answer must be allowed between: {self.n_between}")

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon, self.delta)

    @cached_property
    def offset_scale(self) -> Fraction:
        """Scale of mu in rows, ``2 / epsilon``."""
        return scale_from(2 / self.epsilon)

    @cached_property
    def noise_scale(self) -> Fraction:
        """Scale of a count's noise in rows, ``6 c / epsilon``."""
        return scale_from(6 * self.n_between / self.epsilon)

    @cached_property
    def largest_offset(self) -> int:
        """M: the offset is larger with probability at most delta."""
        return tail_point(self.offset_scale, self.delta) - 1

    @cached_property
    def min_width(self) -> int:
        """N: integers that are left between the thresholds, at least."""
        return reach(self.noise_scale, Fraction(1, 3))

    @cached_property
    def min_gap(self) -> int:
        """The least ``high - low`` for which privacy is proved."""
        return 2 * self.largest_offset + 1 + self.min_width

    def error(self, n_queries: int, failure_probability: float) -> int:
        """e, but for ``failure_probability``, of ``n_queries`` answers before the halt.

        BELOW says that the count is at most ``low + e``, ABOVE that it is at least ``high - e``, BETWEEN
        that it is in ``[low - e, high + e]``. Lemma 5.10, for integers.
        """
        each = Fraction(failure_probability) / (n_queries + 1)
        return reach(self.offset_scale, each) + reach(self.noise_scale, each)

    def draw(self, noise: NoiseSource) -> Secret:
        """The offset mu; once a run."""
        return Secret(noise.laplace(self.offset_scale, 1).tolist())

    def thresholds(self, low: int, high: int, secret: Secret) -> tuple[int, int]:
        """The thresholds that noisy counts are compared with. Private."""
        (offset,) = secret.values
        return low + offset, high - offset


class BetweenThresholds:
    """The public state of one run: a fold over its answers.

    Attributes:
        plan: The plan of the run.
        left: The number of answers that may still be BETWEEN.
    """

    __slots__ = ("left", "plan")

    def __init__(self, plan: BetweenPlan) -> None:
        self.plan = plan
        self.left = plan.n_between

    def __repr__(self) -> str:
        return f"BetweenThresholds(left={self.left})"

    @property
    def halted(self) -> bool:
        return self.left == 0

    def look(self, count: int, low: int, high: int, *, secret: Secret, noise: NoiseSource) -> Side:
        """Returns the side of the thresholds on which ``count`` lies, with noise.

        Commit the side, fold it in with ``absorb``, and publish it.

        Args:
            count: The exact count. Replacing one row must move it by at most 1. Private.
            low: The lower threshold. Public.
            high: The upper threshold, at least ``plan.min_gap`` above ``low``. Public.
            secret: The secret of the run.
            noise: The source of randomness.

        Raises:
            ValueError: The gap is too small for the plan's privacy.
            RuntimeError: The run has halted.
        """
        if self.halted:
            raise RuntimeError("the run has halted: another answer would not be paid for")
        if high - low < self.plan.min_gap:
            raise ValueError(
                f"the thresholds are {high - low} apart; privacy needs {self.plan.min_gap}"
            )
        lowest, highest = self.plan.thresholds(low, high, secret)
        noisy = count + int(noise.laplace(self.plan.noise_scale, 1)[0])
        if noisy < lowest:  # before ABOVE: a large offset lets the two overlap
            return Side.BELOW
        return Side.ABOVE if noisy > highest else Side.BETWEEN

    def absorb(self, side: Side) -> None:
        """Folds a published answer in."""
        if side is Side.BETWEEN:
            self.left -= 1

    def lost(self) -> None:
        """An answer may have been taken, but was never published."""
        self.absorb(Side.BETWEEN)
