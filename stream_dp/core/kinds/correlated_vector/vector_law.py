"""Search queries about one private bit a row: a vector near the private one, drawn once for all queries.

Bun, Steinke, Ullman 2016, section 4 and Figure 5. The private vector is x in {-1, 1}^n, a bit a row. A
query is a set of vectors v in {-1, 1}^n; a good answer y agrees a little with x, and with each v as much as
that alone implies: ``|<y - a x, x>|`` and all ``|<y - a x, v>|`` are at most a tolerance.

Randomized response: each y_i is x_i with probability ``(1 + a) / 2``, else its opposite, drawn once when
the row arrives and published for ever. It answers every query, and rows that arrive later only make y
longer.

**Guarantee.** ``ln((1 + a) / (1 - a))``-differential privacy for replacing one row's bit, whatever is
asked, and no more: the response is public once it is drawn. *Nothing is secret*; a row whose response is
lost before it was published is drawn again, because nobody has seen it.

**Accuracy** holds for queries fixed before y is drawn: any loss at all has probability at most
``2 (1 + number of vectors) exp(-tolerance^2 / (2 n))``. Who sees y can ask a query that it fails: ``{y}``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.logarithms import exp_bounds
from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource

Signs: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Ones and minus ones."""

_CASES: Final = 1 << 52
_BITS: Final = 200


@dataclass(frozen=True)
class ResponsePlan:
    """The faithfulness of the response. It is public.

    Attributes:
        epsilon: The loss of each row, once and for all.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon)

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon)

    @cached_property
    def keeps(self) -> int:
        """The number of cases that keep a bit: ``2^52 / (1 + exp(-epsilon))`` or less.

        There are 2^52 cases, all equally likely.
        """
        _, above = exp_bounds(self.epsilon, _BITS)
        return max(_CASES // 2, math.floor(_CASES / (1 + Fraction(above, 1 << _BITS))))

    @property
    def agreement(self) -> Fraction:
        """a, the mean of ``x_i y_i``; ``tanh(epsilon / 2)`` or a little less."""
        return Fraction(2 * self.keeps, _CASES) - 1

    def respond(self, bits: Signs, noise: NoiseSource) -> IntArray:
        """The look at rows that just arrived: their responses, shape (n,), to be published as they are.

        Args:
            bits: Their private bits, ones and minus ones, shape (n,). Private.
            noise: The source of randomness.
        """
        if np.any(np.abs(bits) != 1):
            raise ValueError("a bit is 1 or -1")
        kept = noise.uniform(_CASES, len(bits)) < self.keeps
        return np.where(kept, bits, -bits).astype(np.int64)

    def error_bar(self, n_rows: int, failure_probability: float) -> float | None:
        """Returns the most by which the mean of ``v_i y_i / a`` is off that of ``v_i x_i``.

        The bound is Hoeffding's inequality. It holds for one vector v fixed before y is drawn, except with
        ``failure_probability``. None if the bound says nothing.
        """
        of_response = math.sqrt(2.0 * math.log(2.0 / failure_probability) / n_rows)
        agreement = float(self.agreement)
        return of_response / agreement if of_response < agreement else None
