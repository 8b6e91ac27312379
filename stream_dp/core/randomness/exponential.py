"""The exponential mechanism: one of several candidates, likelier the better its score.

McSherry and Talwar 2007; Dwork & Roth 2014, Definition 3.4. Scores are integers and the choice is exact: no
float takes part. ``batch_law`` is the same mechanism over histograms too many to list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import repeat

from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.randomness.exact_choice import choose, exp_bounds
from stream_dp.core.randomness.noise_sources import NoiseSource


@dataclass(frozen=True, slots=True)
class Exponential:
    """Candidate r is chosen with probability proportional to ``exp(epsilon score(r) / (2 D))``.

    Replacing one row moves every exponent by half of epsilon, and so their normaliser: epsilon in all.

    Attributes:
        epsilon: The epsilon of one choice.
        sensitivity: D: the most that replacing one row moves any score by.
        monotone: Whether one neighbour's scores are nowhere below the other's, whichever two they are. Then
            the normaliser moves with them, and the exponent is not halved (Dwork & Roth 2014, section 3.4).

    Raises:
        ValueError: epsilon or the sensitivity is not positive.
    """

    epsilon: Fraction
    sensitivity: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon)
        if self.sensitivity < 1:
            raise ValueError(f"the sensitivity must be positive: {self.sensitivity}")

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon)

    @property
    def rate(self) -> Fraction:
        """The factor by which one more point multiplies the odds, as a logarithm."""
        return self.epsilon / (self.sensitivity * (1 if self.monotone else 2))

    def choose(self, noise: NoiseSource, scores: Sequence[int]) -> int:
        """The index of one candidate.

        How long it takes follows from the scores; a server must keep that time from everybody.

        Args:
            noise: The source of randomness.
            scores: One a candidate, private.

        Raises:
            ValueError: There is no candidate.
        """
        if not scores:
            raise ValueError("there is no candidate to choose from")
        best = max(scores)
        exponents = [self.rate * (best - score) for score in scores]

        def bounds(precision: int) -> tuple[Sequence[int], Sequence[int]]:
            low, high = zip(*map(exp_bounds, exponents, repeat(precision)), strict=True)
            return low, high

        return choose(noise, bounds)
