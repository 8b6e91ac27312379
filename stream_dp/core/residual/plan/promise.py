"""The promise of a data set of the calibrated profile, and the prices that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.levels import Axes, axes_of
from stream_dp.core.residual.looks.counted_rows import FAILURE
from stream_dp.core.residual.plan.planner import Prices, Terms


@dataclass(frozen=True)
class Promise:
    """What is promised for each row and for each answer. It is public, and never changes.

    Attributes:
        shape: The sizes of the universe's attributes.
        budget: The lifetime promise for each row.
        accuracy: The promise for each answer, and for each cell of a table.
        rows_shape: The same, with 1 for attributes that no plan is about: those that new rows do not have, or
            have on a grid. None where there are none.
    """

    shape: tuple[int, ...]
    budget: Budget
    accuracy: Accuracy
    rows_shape: tuple[int, ...] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Promise:
        return self  # prices are worked out once

    @property
    def total_known(self) -> bool:
        """Whether all rows count, so that their number is public."""
        return self.budget.total_known

    @property
    def planned_shape(self) -> tuple[int, ...]:
        """The sizes of the attributes that plans are about, and 1 for all others."""
        return self.shape if self.rows_shape is None else self.rows_shape

    @property
    def axes(self) -> Axes:
        """The attributes that plans are about, with their chains."""
        return axes_of(self.planned_shape, total_known=self.total_known)

    @property
    def failure(self) -> float:
        """The failure probability of an answer."""
        return self.accuracy.failure_probability

    @property
    def confidence(self) -> float:
        """The probability with which the bar of an answer covers."""
        return 1.0 - self.failure

    @property
    def for_rows(self) -> float:
        """The part of the failure probability that is kept for the number of rows that count."""
        return 0.0 if self.total_known else FAILURE

    @cached_property
    def of_noise(self) -> float:
        """The failure probability that is left for noise."""
        return (1.0 - self.for_rows) * self.failure

    @cached_property
    def z_of_noise(self) -> float:
        """The half width, in standard deviations, of a bar that has all that is left for noise."""
        return two_sided(math.log(self.of_noise))

    @cached_property
    def z(self) -> float:
        """The half width, in standard deviations, of a bar that has all of the failure probability."""
        return two_sided(math.log(self.failure))

    @cached_property
    def terms(self) -> Terms:
        """The accuracy, as quantiles."""
        return Terms.of(self.accuracy, kept=self.for_rows)

    @cached_property
    def prices(self) -> Prices:
        """The prices of noise scales."""
        return Prices(self.budget)
