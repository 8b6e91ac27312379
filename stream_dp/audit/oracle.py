"""The verdict of dp-accounting, Google's library, on a line and on the looks that were charged to it.

It composes in Renyi divergence. Gaussian noise is taken as it is. A look that is pure, or pure but for a
delta, is taken as the randomised response that dominates all such looks (Kairouz, Oh & Viswanath 2015). The
deltas of the looks are taken off the promised one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream_dp.audit.line_limits import Line, LossEvent
from stream_dp.audit.numbers import best_order

_Floats = npt.NDArray[np.float64]

_LEAST_ORDER: Final = 1.01


class Oracle:
    """Answers for one data set's lines.

    Args:
        line: The line. It is not that of a papers' profile, whose tests the library does not know.
        epsilon: The promised epsilon.
        delta: The promised delta.
    """

    def __init__(self, line: Line, epsilon: float, delta: float) -> None:
        self._line = line
        self._epsilon = epsilon
        self._delta = Fraction(delta)

    @cached_property
    def _best_order(self) -> float:
        return best_order(float(self._line.whole * self._line.squares), self._epsilon)

    @cached_property
    def _orders(self) -> tuple[float, ...]:
        if self._line.linear:
            return (math.inf,)  # where a pure look's divergence is its epsilon
        return (*sorted({self._best_order, *(1.0 + 2.0 ** (step / 2) for step in range(-10, 60))}),)

    @property
    def tells(self) -> bool:
        """Whether the library knows a bound that is near enough: it leaves out orders below 1.01."""
        return self._line.linear or self._best_order > _LEAST_ORDER

    def full(self) -> float:
        """Epsilon, at the promised delta, of a line that is full; of as many as a person is in."""
        if self._line.linear:
            return float(self._line.whole)
        events, _ = _library()
        whole = events.ZCDpEvent(float(self._line.whole * self._line.squares))
        divergence = _composed(whole, self._orders)
        return self._epsilon_of(divergence, self._line.delta)

    def spent(self, losses: Mapping[LossEvent, int], delta: Fraction) -> float:
        """Epsilon, at the promised delta, of looks at one block that were taken so often each.

        Args:
            losses: The number of looks of each kind that were taken.
            delta: Sum of the looks' own.
        """
        if not losses:
            return 0.0
        each = np.stack([_composed(self._event(event), self._orders) for event in losses])
        return self._epsilon_of(np.array([*losses.values()]) @ each, delta)

    def _event(self, event: LossEvent) -> Any:
        events, _ = _library()
        if event.kind == "gaussian":
            return events.GaussianDpEvent(math.sqrt(event.size) / self._line.rows)
        # With two answers, of which the wrong one is exp(epsilon) times less likely.
        return events.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(min(event.size, 700.0))), 2)

    def _epsilon_of(self, divergence: _Floats, delta: Fraction) -> float:
        if self._line.linear:
            return float(divergence[0])
        _, rdp = _library()
        left = float(self._delta - delta * self._line.failures)
        found, _ = rdp.compute_epsilon(self._orders, divergence, left)
        return float(found)


def _library() -> Any:
    import dp_accounting  # only here: it takes seconds to load
    from dp_accounting.rdp import rdp_privacy_accountant

    return dp_accounting, rdp_privacy_accountant


@lru_cache(maxsize=4_096)
def _composed(event: Any, orders: tuple[float, ...]) -> _Floats:
    """The library's divergence of one event at these orders, shape (n_orders,). Nobody may write to it."""
    events, rdp = _library()
    accountant = rdp.RdpAccountant(orders, events.NeighboringRelation.REPLACE_ONE)
    divergence = np.array(accountant.compose(event).rdp)
    divergence.flags.writeable = False
    return divergence
