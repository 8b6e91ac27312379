"""The choice of what to do with a query, from public numbers only.

A query over N rows is promised an error of at most ``error * N`` except with probability beta. In
order of preference:

1. *certified*: what is published pins it down already, by its variance alone;
2. *bounded*: smaller counts that are published leave no more room than the error allows;
3. *measured*: the data is looked at, exactly as precisely as is lacking, while the lines allow it;
4. *unproven*: nothing can be promised any more.

Whether to measure depends on published values (step 2), so beta is split: a fifth for the bounds,
four fifths for the measurement. A query that step 1 settles never comes that far and has all of it.
For a table query the promise, and beta, are each cell's own.

To measure there are two ways, chosen as skis are rented or bought: a *count* answers this query
alone; a *table*, the marginal over the query's attributes, serves every later one on them. Both
bring the blocks of the window down to a common level of variance, so that the sum just fits; a block
that is better than that already pays nothing (water-filling: least total loss for counts).

Nothing here sees the data: variances, values and prices are all published or follow from the schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, Lines, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, erased_blocks
from stream_dp.core.budget.share_bounds import Room
from stream_dp.core.randomness.noise_sources import (
    GRID_STEPS,
    MAX_SCALE,
    MIN_SCALE,
    grid_index,
    grid_sigma,
)
from stream_dp.core.residual.belief.anytime import BOUNDS, z_learned, z_steered
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.belief.packages import Package
from stream_dp.core.residual.belief.shelf import Shelf

ROUNDING: Final = 2.0**-44
"""What floats may add to an error, as a share of the rows: matters above 1e12 rows only."""

_TIE = 1.0 + 1e-9  # floats that should be equal are


RENT_SHARE: Final = 0.3
"""Counts are measured until the loss paid for them on one set of attributes passes this share of what its
table would cost."""

_BUY_PART: Final = 1 / 50
"""A table may cost at most this part of what is left of a line."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The accuracy promised, as quantiles.

    Attributes:
        error: Largest error, as a share of the rows.
        z: Two-sided quantile for evidence that nobody chose.
        z_steered: The same for evidence that others may have chosen by what was published.
        z_learned: The same for openings of several phases where the plan learns.
        log_bounds_failure: Logarithm of the probability with which bounds may fail.
    """

    error: float
    z: float
    z_steered: float
    z_learned: float
    log_bounds_failure: float

    @classmethod
    def of(cls, accuracy: Accuracy, *, kept: float = 0.0) -> Terms:
        """The terms of a promise.

        Args:
            accuracy: The promise.
            kept: The part of its failure probability that is kept for something else.
        """
        log_beta = math.log(accuracy.failure_probability) + math.log1p(-kept)
        return cls(
            accuracy.error,
            two_sided(log_beta),
            z_steered(log_beta),
            z_learned(log_beta),
            log_beta + math.log(BOUNDS),
        )


@dataclass(frozen=True, slots=True)
class Certified:
    """The published values already promise the answer."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """The answer lies between bounds that are close enough: rows, shape (answers,)."""

    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class MeasureCounts:
    """A look to take: the marginal over the query's attributes, or the answer alone.

    Attributes:
        package: The tables that are measured for the marginal; None for the answer alone.
        steps: Block and step of the public grid of scales, in the order of the blocks.
        charges: The price, one entry a block.
    """

    package: Package | None
    steps: tuple[tuple[int, int], ...]
    charges: tuple[Charge, ...]

    def steps_of(self, step: int) -> tuple[int, ...]:
        """The step of each table of a marginal that is measured at ``step``."""
        return _steps_of(self.package, step)

    @property
    def total(self) -> int:
        """Units of loss, added up over the blocks."""
        return sum(charge.rho for charge in self.charges)


class Lack(StrEnum):
    """The reason why a promise cannot be kept."""

    TILES = "tiles"
    """What is left would do, but is kept for the tiles that the definition declares."""
    PACE = "pace"
    """What is left would do, but is kept for the phases to come."""
    LATE = "late"
    """What is left would do, but is kept to measure a phase again with its late rows."""
    SHARE = "share"
    """What is left would do, but is not for the one who pays for the query to spend, or not yet."""
    ERASED = "erased"
    """What is left would do, but the rows of some block are erased."""
    BUDGET = "budget"
    """What is left of some line does not do."""
    ROWS = "rows"
    """Not even untouched lines would do: the window has too few rows."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """No promise can be kept: rows between which the answer lies all the same, shape (answers,)."""

    low: Floats
    high: Floats
    lack: Lack


Decision = Certified | Bounded | MeasureCounts | Unproven

Units: TypeAlias = npt.NDArray[np.int64]
"""Units of lines, or steps of the grid of scales, one for each block."""


class Prices:
    """Exact prices, in units, of scales on the public grid.

    Attributes:
        table: The squared sensitivity of a table (``Budget``).
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Prices:
        return self  # each is worked out once

    def __init__(self, budget: Budget) -> None:
        self.table = budget.table
        self._budget = budget
        self._rho = float(budget.rho)
        self._units: dict[tuple[int, int], int] = {}

    def units(self, step: int, squared_sensitivity: int) -> int:
        """Units of a line that discrete Gaussian noise of this step costs, rounded up."""
        key = (step, squared_sensitivity)
        units = self._units.get(key)
        if units is None:
            rho = gaussian_rho(grid_sigma(step), squared_sensitivity=squared_sensitivity)
            units = self._units[key] = self._budget.charge(0, rho).rho
        return units

    def squared_sensitivity(self, n_answers: int) -> int:
        """The squared sensitivity: a row changes one count by 1, or a table as its price says."""
        return 1 if n_answers == 1 else self.table

    def share(self, variance: float, squared_sensitivity: int) -> float:
        """The share of a line that noise of this variance costs, which no line may have; in floats."""
        return squared_sensitivity / (2.0 * variance * self._rho) if variance > 0.0 else math.inf

    def share_of(self, rho: float) -> float:
        """The share of a line that a zCDP loss is; in floats."""
        return rho / self._rho

    def of(self, rho: Fraction) -> int:
        """Units of a line that a look with this zCDP loss costs, rounded up."""
        return self._budget.charge(0, rho).rho

    def total(self, steps: Sequence[int], squared_sensitivity: int) -> int:
        """Units that noise of all these steps costs together."""
        return sum([self.units(step, squared_sensitivity) for step in steps])

    def least_step(
        self, units: int, squared_sensitivity: int, package: Package | None = None
    ) -> int | None:
        """The most precise step that costs at most ``units``, of one look or of all tables of a package.

        None if none is that cheap.
        """
        if units <= 0:
            return None
        rho = units / UNITS * self._rho
        sigma = math.sqrt(squared_sensitivity / (2.0 * rho))
        # Two steps short of the float's answer, then forward to the exact one.
        step = max(FIRST_STEP, math.floor(GRID_STEPS * math.log2(sigma)) - 2)
        while step <= LAST_STEP:
            if self.total(_steps_of(package, step), squared_sensitivity) <= units:
                return step
            step += 1
        return None


_LONG: Final = 500
_SHORT: Final = 50
_PART_OF_SHORT: Final = 0.15
"""A line that pays for ``_LONG`` queries needs no pace. Where it pays for fewer than ``_SHORT``, queries may
take this part while it is alone: what they leave is worth more once it is known what is asked."""


class BudgetAllocator:
    """The units that each block may still spend, and those paid on each set of attributes: a fold.

    An early phase must not exhaust a line that every later window needs. So measurements may bring a line
    of base share b only to ``b + (1 - b)(1 - 2^-(age + 1))``, where ``age`` is its age in phases.

    Args:
        pacing: Whether to keep part of young lines for the phases to come. It pays where far more is asked
            than the lines can pay for.
        kept: The number of blocks, the last ones, whose rows are kept. The others have no room. None keeps
            all.

    Attributes:
        bare: The number of first blocks whose rows are lost. They have no room either.
        again: Returns the units that are kept to measure blocks again, of each line of a window. None if none
            are.
        price: Returns the share of the newest line that a query costs, in the mean. With it the pace follows
            from how many a line pays for: it is slow where these are few, and there is none where they are
            many. None keeps the pace always.
    """

    def __init__(self, *, pacing: bool = False, kept: int | None = None) -> None:
        self.lines = Lines()
        self.bare = 0
        self.price: Callable[[], float] | None = None
        self._pacing = pacing
        self._rows_kept = kept
        self._base: list[float] = []
        self._rent = Shelf[tuple[int, ...], dict[int, int]](dict, dict)
        self.again: Room | None = None
        self._most = UNITS
        self._kept: Room | None = None
        self._payer: Room | None = None

    def open(self) -> int:
        """Adds a line; returns its block's index."""
        self._base.append(0.0)
        return self.lines.open()

    def opened(self, block: int, share: float) -> None:
        """Records the share of a line that was spent unasked. The pace is about what that leaves."""
        self._base[block] = share

    def within(
        self, most: int | None, kept: Room | None = None, payer: Room | None = None
    ) -> BudgetAllocator:
        """The same lines for one query.

        Args:
            most: Units that it may take of each; None for no limit.
            kept: Units of each line of a window that are kept from it.
            payer: Units that the one who pays for it may spend of each line of a window now. It keeps a part
                for later phases by itself. None where nobody's part is bounded.
        """
        limited = copy(self)
        limited._most = UNITS if most is None else most  # noqa: SLF001 - of its own kind
        limited._kept = kept  # noqa: SLF001 - of its own kind
        limited._payer = payer  # noqa: SLF001 - of its own kind
        return limited

    def lack(self, window: range, fits: Callable[[Units], bool]) -> Lack:
        """The reason why a look has too little room now.

        Args:
            window: The blocks of the look.
            fits: Whether it fits into a room: units of each line of the window.
        """
        rooms: tuple[tuple[Lack, Room], ...] = (
            (Lack.TILES, self.room_of_tiles),
            (Lack.PACE if self._payer is None else Lack.SHARE, self.left),
            (Lack.LATE, self._unerased),
            (Lack.ERASED, self.lines.left),
            (Lack.BUDGET, lambda window: np.full(len(window), UNITS)),
        )
        return next((lack for lack, room in rooms if fits(room(window))), Lack.ROWS)

    @property
    def erased(self) -> int:
        """The number of first blocks whose rows are erased, or lost."""
        return max(self.bare, erased_blocks(len(self.lines), self._rows_kept))

    def left(self, window: range) -> Units:
        """Units that each line has left for looks, 0 where the rows are erased, shape (len(window),).

        What is kept to measure a block again is not left.
        """
        left = self._unerased(window)
        return left if self.again is None else np.maximum(left - self.again(window), 0)

    def _unerased(self, window: range) -> Units:
        left = self.lines.left(window)
        left[: max(0, self.erased - window.start)] = 0
        return left

    def room(self, window: range) -> Units:
        """Units that each block may spend now, shape (len(window),)."""
        room = self.room_of_tiles(window)
        if self._kept is None:
            return room
        free = np.maximum(self.lines.left(window) - self._kept(window), 0)
        return np.asarray(np.minimum(room, free))

    def room_of_tiles(self, window: range) -> Units:
        """The same if nothing is kept for tiles."""
        left = self.left(window)
        if self._payer is not None:
            left = np.minimum(left, self._payer(window))
        elif (part := self.part_now(window)).min(initial=1.0) < 1.0:
            share = np.array(self._base[window.start : window.stop])
            kept = (1.0 - share) * (1.0 - part)
            left = np.maximum(left - np.ceil(kept * UNITS).astype(np.int64), 0)
        return np.asarray(np.minimum(left, self._most))

    def part_now(self, window: range) -> Floats:
        """The part of what is left of each line after openings that may be spent by now; (len(window),)."""
        if not self._pacing:
            return np.ones(len(window))
        if self.price is not None:
            price = self.price()
            if price <= 1.0 / _LONG:
                return np.ones(len(window))
            if len(self.lines) == 1 and price > 1.0 / _SHORT:
                return np.full(len(window), _PART_OF_SHORT)
        age = len(self.lines) - 1 - np.arange(window.start, window.stop)
        return np.asarray(1.0 - np.exp2(-(age + 1.0)))

    def rented(self, attributes: tuple[int, ...], block: int, units: int) -> None:
        """Records a count measured on ``attributes``."""
        rent = self._rent.own(attributes)
        rent[block] = rent.get(block, 0) + units

    def bought(self, attributes: tuple[int, ...], block: int) -> None:
        """Records that the table over ``attributes`` was measured: rent counts from 0 again."""
        if block in (self._rent.get(attributes) or ()):
            del self._rent.own(attributes)[block]

    def rent(self, attributes: tuple[int, ...], window: range) -> int:
        """Units paid for counts on ``attributes`` since the table was measured last."""
        rent = self._rent.get(attributes) or {}
        return sum(units for b, units in rent.items() if b in window)


def plan(evidence: Evidence, terms: Terms, prices: Prices, allocator: BudgetAllocator) -> Decision:
    """Decides; changes nothing."""
    margin = for_noise(terms.error) * evidence.n_rows
    if certifies(evidence, terms.error, terms.z_steered):
        return Certified()
    low, high = evidence.interval(terms.log_bounds_failure)
    if (high - low).max() <= 2.0 * margin * _TIE:
        return Bounded(low, high)
    limit = (margin / terms.z_steered) ** 2
    room = allocator.room(evidence.window)
    count = count_look(evidence, prices, room, limit)
    may_buy = evidence.buys and (count is None or _may_buy(evidence, prices, allocator, count))
    if count is not None and not may_buy:
        return count
    drawable = may_buy and evidence.package.n_counts <= MAX_TABLE_CELLS
    table = table_look(evidence, prices, room, limit) if drawable else None
    if table is not None and (count is None or buys(evidence, allocator, count.total, table)):
        return table
    if count is not None:
        return count
    return Unproven(low, high, _lack(count_look, evidence, prices, allocator, limit))


def certifies(evidence: Evidence, error: float, z: float) -> bool:
    """Whether every answer is within ``error`` of the rows, at ``z`` deviations."""
    margin = for_noise(error) * evidence.n_rows
    return z * math.sqrt(max(evidence.variances.tolist())) <= margin * _TIE


def for_noise(error: float) -> float:
    """What noise may take of an error, as a share of the rows. Floats have the rest, half of a tiny one."""
    return max(error - ROUNDING, error / 2.0)


def plan_total(
    evidence: Evidence, terms: Terms, prices: Prices, allocator: BudgetAllocator
) -> Certified | MeasureCounts | Lack:
    """The same for a sum whose terms are at most 1 in size: by its table alone, and without bounds."""
    limit = (terms.error * evidence.n_rows / terms.z) ** 2
    if max(evidence.variances.tolist()) <= limit * _TIE:
        return Certified()
    table = table_look(evidence, prices, allocator.room(evidence.window), limit)
    return _lack(table_look, evidence, prices, allocator, limit) if table is None else table


def plan_fresh(
    evidence: Evidence, terms: Terms, prices: Prices, allocator: BudgetAllocator
) -> MeasureCounts | Lack:
    """Plans counts that promise the answer by their own noise alone, whatever is known already."""
    limit = (terms.error * evidence.n_rows / terms.z) ** 2
    count = count_alone(evidence, prices, allocator.room(evidence.window), limit)
    return _lack(count_alone, evidence, prices, allocator, limit) if count is None else count


def _lack(
    way: Callable[[Evidence, Prices, Units, float], MeasureCounts | None],
    evidence: Evidence,
    prices: Prices,
    allocator: BudgetAllocator,
    limit: float,
) -> Lack:
    """Returns why a way to measure, such as ``count_look``, has too little room now."""
    return allocator.lack(
        evidence.window, lambda room: way(evidence, prices, room, limit) is not None
    )


def _may_buy(
    evidence: Evidence, prices: Prices, allocator: BudgetAllocator, count: MeasureCounts
) -> bool:
    """Returns whether a table could be preferred to ``count``. If not, its price need not be worked out."""
    dearer = prices.table / prices.squared_sensitivity(evidence.form.n_answers)
    at_least = evidence.table_cost_ratio() * dearer * count.total
    rent = allocator.rent(evidence.form.attributes, evidence.window)
    return at_least <= count.total or RENT_SHARE * at_least <= rent


def buys(evidence: Evidence, allocator: BudgetAllocator, price: int, table: MeasureCounts) -> bool:
    """Whether a table is preferred to a look that answers this query alone, for ``price`` units."""
    if table.total <= price:
        return True
    if allocator.rent(evidence.form.attributes, evidence.window) < RENT_SHARE * table.total:
        return False
    left = allocator.lines.left(evidence.window)
    first = evidence.window.start
    return all(c.rho <= _BUY_PART * left[c.block - first] for c in table.charges)


def count_look(
    evidence: Evidence, prices: Prices, room: Units, limit: float
) -> MeasureCounts | None:
    """The cheapest counts that bring the variance down to ``limit``; None if the room is too small.

    Args:
        evidence: What is known about the query.
        prices: The prices of noise scales, in units of a line.
        room: Units that each block may spend, shape (len(window),).
        limit: The largest variance that is precise enough.
    """
    first, most = most_precise_counts(evidence, prices, room)
    now = evidence.by_block()
    levels = water_fill(now, lowest_of(most > 0.0, evidence.after_count(most), now), limit)
    return None if levels is None else counts_at(evidence, prices, first, most, levels)


def lowest_of(can_pay: npt.NDArray[np.bool_], after: Floats, now: Floats) -> Floats:
    """What each block can be brought down to: a block without room stays, to the last bit, as it is."""
    return np.where(can_pay, np.minimum(after, now), now)


def most_precise_counts(evidence: Evidence, prices: Prices, room: Units) -> tuple[Units, Floats]:
    """The least step of counts that each block can pay for, and its precision: 0 where there is none."""
    squared_sensitivity = prices.squared_sensitivity(evidence.form.n_answers)
    first, can_pay = least_steps(room, lambda units: prices.least_step(units, squared_sensitivity))
    return first, np.where(can_pay, _precision(first), 0.0)


def counts_at(
    evidence: Evidence, prices: Prices, first: Units, most: Floats, levels: Floats
) -> MeasureCounts:
    """The counts that bring the largest variance of each block down to a level.

    Args:
        evidence: What is known about the query.
        prices: The prices of noise scales, in units of a line.
        first: The least step that each block can pay for, shape (len(window),).
        most: Its precision, 0 where there is none, shape (len(window),).
        levels: The variances to reach, shape (len(window),). A block that is there already pays nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # what is known for sure lacks nothing
        lacks = 1.0 / levels - 1.0 / evidence.by_block()
    pays = (lacks > 0.0) & (most > 0.0)
    steps = first.copy()
    steps[pays] = np.maximum(step_below(lacks[pays] ** -0.5 * _TIE), first[pays])
    return _priced(evidence, prices, steps, pays)


def count_alone(
    evidence: Evidence, prices: Prices, room: Units, limit: float
) -> MeasureCounts | None:
    """The cheapest counts whose own variance is at most ``limit``, whatever else is known.

    Takes what ``count_look`` takes. The look covers all blocks of the window that it tells more of.
    """
    first, most = most_precise_counts(evidence, prices, room)
    looks = evidence.looks
    with np.errstate(divide="ignore"):
        lowest = np.where(looks, 1.0 / most, 0.0)
    levels = water_fill(np.where(looks, np.inf, 0.0), lowest, limit)
    if levels is None:
        return None
    steps = first.copy()
    steps[looks] = step_below(np.sqrt(levels[looks]) * _TIE)
    return _priced(evidence, prices, np.maximum(steps, first), looks)


def table_look(
    evidence: Evidence, prices: Prices, room: Units, limit: float
) -> MeasureCounts | None:
    """The same as ``count_look`` for the marginal over the query's attributes."""
    now, package = evidence.by_block(), evidence.package
    first, can_pay = least_steps(
        room, lambda units: prices.least_step(units, prices.table, package)
    )
    most = np.where(can_pay, _precisions_of(package, first), 0.0)
    levels = water_fill(now, lowest_of(can_pay, evidence.after_table(most), now), limit)
    if levels is None:
        return None
    steps = coarsest(
        first, lambda tried: evidence.after_table(_precisions_of(package, tried)) <= levels * _TIE
    )
    return _priced(evidence, prices, steps, levels < now, package)


def least_steps(
    room: Units, least_step: Callable[[int], int | None]
) -> tuple[Units, npt.NDArray[np.bool_]]:
    """The least step that each block can pay for, and whether it can pay for any.

    Args:
        room: Units that each block may spend, shape (blocks,).
        least_step: The least step that costs at most some units.
    """
    steps = [least_step(units) for units in room.tolist()]
    can_pay = np.array([step is not None for step in steps])
    return np.array([LAST_STEP if step is None else step for step in steps], np.int64), can_pay


def coarsest(first: Units, are_enough: Callable[[Units], npt.NDArray[np.bool_]]) -> Units:
    """The coarsest step of each block that is precise enough, by bisection from ``first`` on."""
    low, high = first, np.full(len(first), LAST_STEP + 1)  # low is enough, high is not
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, low)
        enough = are_enough(middle)
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _priced(
    evidence: Evidence,
    prices: Prices,
    steps: Units,
    pays: npt.NDArray[np.bool_],
    package: Package | None = None,
) -> MeasureCounts:
    chosen = tuple(
        (block, step)
        for block, step, pay in zip(evidence.window, steps.tolist(), pays.tolist(), strict=True)
        if pay
    )
    by_block = [
        prices.table if package else prices.squared_sensitivity(evidence.n_answers_at(block))
        for block, _ in chosen
    ]
    charges = tuple(
        Charge(block, prices.total(_steps_of(package, step), squared_sensitivity))
        for (block, step), squared_sensitivity in zip(chosen, by_block, strict=True)
    )
    return MeasureCounts(package, chosen, charges)


def water_fill(
    now: Floats, lowest: Floats, limit: float, weights: Floats | None = None
) -> Floats | None:
    """Variances between ``lowest`` and ``now`` with a common level, whose sum is ``limit``.

    Args:
        now: Variances, infinity allowed, shape (blocks,).
        lowest: What each can be brought down to, shape (blocks,).
        limit: What they may sum to.
        weights: What each counts for in the sum, shape (blocks,). None counts each once.

    Returns:
        ``now`` where the sum fits already; None where even ``lowest`` sums to more.
    """

    def summed(levels: Floats) -> float:
        if weights is None:
            return float(levels.sum())
        return float((levels * weights)[weights > 0.0].sum())

    if summed(now) <= limit:
        return now
    if not summed(lowest) <= limit:
        return None
    # The sum of clip(level, lowest, now) is piecewise linear and grows: find the piece, then the level.
    corners = np.unique(np.concatenate([lowest, now[np.isfinite(now)]]))
    low, high = 0, len(corners)
    while high - low > 1:
        middle = (low + high) // 2
        if summed(np.clip(corners[middle], lowest, now)) <= limit:
            low = middle
        else:
            high = middle
    level = corners[low]
    rising = (lowest <= level) & (level < now)
    if rising.any():
        n_rising = np.count_nonzero(rising) if weights is None else weights[rising].sum()
        if n_rising:
            level += (limit - summed(np.clip(level, lowest, now))) / n_rising
    return np.asarray(np.clip(level, lowest, now))


FIRST_STEP = grid_index(float(MIN_SCALE))
LAST_STEP = grid_index(float(MAX_SCALE))


@cache
def scales() -> Floats:
    """All scales of the public grid as floats; exact, like the doubling from octave to octave."""
    octave = [float(grid_sigma(k)) for k in range(GRID_STEPS)]
    doublings = np.arange(FIRST_STEP // GRID_STEPS, LAST_STEP // GRID_STEPS + 1)
    return np.ldexp(octave, doublings[:, None]).ravel()[: LAST_STEP - FIRST_STEP + 1]


@cache
def _precisions() -> Floats:
    return scales() ** -2.0


def _precision(steps: Units) -> Floats:
    """Returns the precision, 1/variance, of noise at these steps."""
    return np.asarray(_precisions()[np.minimum(steps, LAST_STEP) - FIRST_STEP])


def _steps_of(package: Package | None, step: int) -> tuple[int, ...]:
    """The step of each table of a package that is measured at ``step``; the same for counts alone."""
    if package is None or package.offsets == (0,):
        return (step,)
    return tuple(min(step + offset, LAST_STEP) for offset in package.offsets)


def _precisions_of(package: Package, steps: Units) -> Floats:
    """The precision of each table of a package at these steps, shape (tables, blocks)."""
    if package.offsets == (0,):
        return _precision(steps)[None]
    return np.stack([_precision(steps + offset) for offset in package.offsets])


def variance_after(evidence: Evidence, measure: MeasureCounts) -> float:
    """The largest variance of any answer after a planned look."""
    n_tables = 1 if measure.package is None else len(measure.package.offsets)
    precision = np.zeros((n_tables, len(evidence.window)))
    for block, step in measure.steps:
        each = [float(grid_sigma(own) ** -2) for own in measure.steps_of(step)]
        precision[:, block - evidence.window.start] = each
    if measure.package is None:
        after = evidence.variances_after_count(precision[0])
    else:
        after = evidence.variances_after_table(precision)
    return float(after.sum(axis=1).max())


def step_below(sigma: Floats) -> Units:
    """The coarsest step whose scale is at most ``sigma``."""
    return np.searchsorted(scales(), sigma, side="right") - 1 + FIRST_STEP


MAX_TABLE_CELLS = 2**16
"""Most cells of one look at a block: noise is drawn at some 100,000 cells a second."""

MOST_DRAWN: Final = 2**22
"""Draws of noise for one query: its measurements fit into one commit."""
