"""Privacy loss: one line a block, counted in integers.

A line holds two sums: the zCDP parameter rho of everything that looked at the block, and the
probabilities delta' with which a look may break its promise. A look that is rho-zCDP costs
(rho, 0); one that is (e, d)-differentially private costs (e^2 / 2, d). A look is allowed only while
both sums stay within the budget of every block it touches, and is charged before it is taken; a
privacy filter over such adaptively chosen costs keeps the promise (Feldman and Zrnic 2021;
Whitehouse, Ramdas, Rogers, Wu 2023).

Sums are integers in units of budget / 2**50. The cost of a look follows from the exact rational
scale of its sampler and is rounded up, so Python and a Redis script compare the same numbers, and
what is recorded is never less than what was spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Privacy
from stream_dp.errors import BudgetExceeded, InvalidDefinition

UNITS = 2**50


@dataclass(frozen=True, slots=True)
class Charge:
    """Privacy loss of one look on one block, in units of its budget / 2**50 (rounded up).

    Attributes:
        block: Index of the block, from 0.
        rho: zCDP part, units of rho_max / 2**50.
        delta: Approximation part delta', units of its budget / 2**50.
    """

    block: int
    rho: int
    delta: int = 0


def gaussian_rho(sigma: Fraction, *, squared_sensitivity: int) -> Fraction:
    """The exact zCDP loss of integer counts with discrete Gaussian noise of scale ``sigma``.

    Args:
        sigma: Scale in rows, positive.
        squared_sensitivity: Largest squared L2 distance between the counts of neighbours that differ in one
            row: 1 for one predicate, and for disjoint cells ``Budget.table``.

    Canonne, Kamath, Steinke 2020, Theorem 14.
    """
    return Fraction(squared_sensitivity) / (2 * sigma * sigma)


@lru_cache
def rho_max(epsilon: float, delta: float) -> Fraction:
    """The largest rho, rounded down, for which rho-zCDP implies (epsilon, delta).

    A binary float returned as the fraction it is; 0 for ``delta`` 0, which zCDP never implies.

    Canonne, Kamath, Steinke 2020, Corollary 13, with the order of Renyi divergence minimised over.
    """
    if delta <= 0.0:
        return Fraction(0)
    low, _ = _turning(lambda rho: not _implies(rho, epsilon, delta), 0.0, epsilon)
    return Fraction(low)


@lru_cache
def epsilon_of(rho: Fraction, delta: float) -> float:
    """The smallest epsilon, rounded up, for which rho-zCDP implies (epsilon, delta).

    Infinite for ``delta`` 0 unless nothing was spent.
    """
    if rho <= 0:
        return 0.0
    if delta <= 0.0:
        return math.inf
    rho_up = math.nextafter(float(rho), math.inf)
    # Below 0 the formula stays valid; the loss is never reported negative.
    _, high = _turning(lambda epsilon: _implies(rho_up, epsilon, delta), -1.0, 1.0)
    return max(0.0, high)


def _turning(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The two floats next to each other from the first of which to the second a condition turns true.

    Args:
        holds: The condition: it holds from some number on.
        low: A number for which it does not hold.
        high: A larger number, above 0, from which on the search begins.
    """
    while not holds(high):
        low, high = high, 2.0 * high
    while (middle := 0.5 * (low + high)) not in {low, high}:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def _implies(rho: float, epsilon: float, delta: float) -> bool:
    """Returns whether the conversion proves (epsilon, delta) for rho, rounding errors included."""
    order = _best_order(rho, epsilon)
    terms = (
        (order - 1.0) * order * rho,
        -(order - 1.0) * epsilon,
        -math.log(order - 1.0),
        order * math.log1p(-1.0 / order),
        -math.log(delta),
    )
    # Every order a > 1 gives a valid bound; only the comparison itself must not be rounded our way.
    return math.fsum(terms) + 2.0**-45 * sum(map(abs, terms)) <= 0.0


def _best_order(rho: float, epsilon: float) -> float:
    """The order a > 1 that minimises (a-1)(a rho - epsilon) - log(a-1) + a log(1 - 1/a).

    Its derivative, (2a-1) rho - epsilon + log(1 - 1/a), grows in a: bisect ln(a-1).
    """

    def derivative(a: float) -> float:
        return (2.0 * a - 1.0) * rho - epsilon + math.log1p(-1.0 / a)

    low, high = math.log(1e-9), math.log((abs(epsilon) + 1.0) / rho + 2.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if derivative(1.0 + math.exp(middle)) < 0.0 else (low, middle)
    return 1.0 + math.exp(low)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that every line may hold, and exact prices in its units.

    Attributes:
        privacy: The promise that a full line still keeps.
        rho: The largest sum of rho, at the price of one row.
        delta: The largest sum of delta'; 0 for a data set whose looks are all pure zCDP.
        table: The squared sensitivity of counts of which each row is in one: 2 where a row moves from one to
            another, 1 where it becomes blank.
    """

    privacy: Privacy
    rho: Fraction
    delta: Fraction
    table: int = 2

    @classmethod
    def of(cls, privacy: Privacy, *, approximate: bool = False) -> Budget:
        """The budget that ``privacy`` allows.

        A person of whom k rows count in each of P phases moves every count by k in each, which costs P k^2
        times as much as one row (docs/proofs, Theorem 20). A row that is moved in another phase costs two
        (Theorem 41).

        Args:
            privacy: The guarantee.
            approximate: Whether some looks have a delta of their own. Then half of delta is kept for them;
                else the conversion from zCDP has all of it. Where persons are protected only looks for keys
                do (docs/proofs, Theorem 34).

        Raises:
            InvalidDefinition: delta is 0.
        """
        if privacy.delta <= 0.0:
            raise InvalidDefinition(
                "privacy.delta",
                "is 0, and Gaussian noise needs more",
                'give one such as 1e-9, or a profile that needs none: "counts" or "bypass"',
            )
        kept = privacy.delta / 2.0 if approximate else 0.0
        rho = rho_max(privacy.epsilon, privacy.delta - kept)
        unit = privacy.unit
        if unit is None:
            return cls(privacy, rho, Fraction(kept))
        return cls(privacy, rho / unit.squares, Fraction(kept) / unit.failures, table=1)

    @property
    def total_known(self) -> bool:
        """Whether the number of rows that count is public: a row is replaced, and none becomes blank."""
        return self.privacy.unit is None

    def charge(self, block: int, rho: Fraction, delta: Fraction = Fraction(0)) -> Charge:
        """The price of a look on one block, rounded up to whole units.

        Raises:
            BudgetExceeded: The look has a delta' and this budget keeps none for it.
        """
        return Charge(block, _units(rho, self.rho), _units(delta, self.delta))

    def epsilon(self, charge: Charge) -> float:
        """The loss in words for people: epsilon, at the promised delta, of a line that spent this.

        Conversion is at what the delta' of the looks leave of delta, at least half of it. The loss is that of
        a person with as many rows as count in as many phases as the unit has, whose lines all spent this.
        """
        unit = self.privacy.unit
        rows, failures = (1, 1) if unit is None else (unit.squares, unit.failures)
        spent = Fraction(charge.delta, UNITS) * self.delta * failures
        left = math.nextafter(float(Fraction(self.privacy.delta) - spent), 0.0)
        return epsilon_of(Fraction(charge.rho, UNITS) * self.rho * rows, left)


def _units(part: Fraction, whole: Fraction) -> int:
    if part == 0:
        return 0
    if whole == 0:
        raise BudgetExceeded("this data set keeps no budget for a look of this kind")
    return math.ceil(part * UNITS / whole)


def summed(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """All that is charged to each block as one charge, in the order of the blocks."""
    total: dict[int, tuple[int, int]] = {}
    for charge in charges:
        rho, delta = total.get(charge.block, (0, 0))
        total[charge.block] = (rho + charge.rho, delta + charge.delta)
    return tuple(Charge(block, rho, delta) for block, (rho, delta) in sorted(total.items()))


class SpentUnits:
    """Units of rho and of delta' charged to each block, shape (2, blocks); it grows."""

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = np.zeros((2, 16), dtype=np.int64)

    def of(self, window: range) -> npt.NDArray[np.int64]:
        """The units of a window, shape (2, len(window))."""
        self.reach(window.stop)
        return self.units[:, window.start : window.stop : window.step]

    def add(self, charge: Charge) -> None:
        """Adds a charge."""
        self.reach(charge.block + 1)
        self.units[:, charge.block] += charge.rho, charge.delta

    def reach(self, n_blocks: int) -> None:
        """Makes room for this number of blocks."""
        while n_blocks > self.units.shape[1]:
            self.units = np.concatenate([self.units, np.zeros_like(self.units)], axis=1)


class Lines:
    """The spending of each block, in units: a fold over durable charges."""

    __slots__ = ("_size", "_spent")

    def __init__(self) -> None:
        self._spent = SpentUnits()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Lines({self._size} blocks)"

    def open(self) -> int:
        """Adds a line on which nothing is spent; returns its block's index."""
        self._size += 1
        self._spent.reach(self._size)
        return self._size - 1

    def spent(self, block: int) -> Charge:
        """Everything charged to ``block`` so far."""
        self._check(block)
        return Charge(block, *self._spent.units[:, block].tolist())

    def left(self, blocks: range | None = None) -> npt.NDArray[np.int64]:
        """Units of rho not yet spent, shape (len(blocks),); every block by default."""
        blocks = range(self._size) if blocks is None else blocks
        if len(blocks):
            self._check(blocks[0])
            self._check(blocks[-1])
        return np.asarray(UNITS - self._spent.of(blocks)[0])

    def worst(self, blocks: range) -> Charge:
        """The highest rho and the highest delta' spent on any of ``blocks``, under its index."""
        rho, delta = self._spent.of(blocks)
        return Charge(blocks[int(rho.argmax())], int(rho.max()), int(delta.max()))

    def afford(self, charges: Iterable[Charge]) -> bool:
        """Returns whether every block has room for all of ``charges`` together."""
        for wanted in summed(charges):
            spent = self.spent(wanted.block)
            if spent.rho + wanted.rho > UNITS or spent.delta + wanted.delta > UNITS:
                return False
        return True

    def charge(self, charges: Iterable[Charge]) -> None:
        """Records what was spent.

        Raises:
            BudgetExceeded: Some block has no room; nothing was recorded.
        """
        charges = tuple(charges)
        if any(charge.rho < 0 or charge.delta < 0 for charge in charges):
            raise ValueError("a charge is never negative")
        if not self.afford(charges):
            raise BudgetExceeded("a charge would pass the budget of a block")
        for charge in charges:
            self._spent.add(charge)

    def _check(self, block: int) -> None:
        if not 0 <= block < self._size:
            raise IndexError(f"no block {block}; there are {self._size}")
