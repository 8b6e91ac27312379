"""The precision that an answer is worth having, where its query names none.

A data set may say which error it aims at, as a share of the answer itself (``Aim``). How precise a look must
be then follows from the *size* of the answer, which nobody knows beforehand: published values tell it. So an
answer comes about in one of three ways, each with a bar of its own (``Deviations``):

1. *free*: what was measured as phases opened is precise enough, or the best estimates are, by the bars that
   hold at all times;
2. a *pilot* finds out how large the answer is. It is taken once at the most;
3. the *last look*, as precise as the size that is published asks for. The answer is what it finds by itself.

What nothing affordable makes useful gets no last look: the answer says what is known, and what more would
take. The proof is docs/proofs, Theorem 24. All decisions follow from published values, queries and
prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Aim
from stream_dp.core.outcome import (
    Answered,
    Differences,
    Outcome,
    Quantiles,
    Summed,
    TableAnswered,
    Use,
    Useful,
)
from stream_dp.core.queries.query import Indicator, LinearQuery, Product
from stream_dp.core.randomness.noise_sources import GRID_STEPS
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks.counted_rows import FAILURE
from stream_dp.core.residual.plan.planner import Prices, step_below
from stream_dp.core.residual.plan.sum_price import value_ends

OPENING: Final = 0.2
"""The part of the failure probability that is for what was measured as phases opened."""

ALL_TIMES: Final = 0.05
"""The part that is for the best estimates, no matter who chose what was measured, and when they are read."""

PILOT: Final = 0.05
"""The part that is for a pilot by itself."""

LAST: Final = 0.7
"""The part that is for the last look, which is what an answer pays for. All parts add up to 1."""

_OF_ROWS: Final = 0.8
"""The part of the rows of a table that its cells of the typical size and larger ones hold."""

OF_ROWS_OF_RANK: Final = 0.5
"""The size of a quantile, as a share of the rows: a tenth of the size is a rank within 5%."""

OF_CORRELATION: Final = 0.5
"""The size of a correlation: a tenth of the size is an error of 0.05."""

_LEAST_SHARE: Final = 0.2
"""A share of the rows that is smaller is measured as if it were this large."""

_OF_EASY: Final = 0.2
"""The part of an easy look that a pilot takes at the most."""

_MOST_OPENED: Final = 64
"""The most cells of a column that is measured as a phase opens."""

TOGETHER: Final = 0.1
"""The share of a line that all columns together take as a phase opens, at the most."""

_ROUNDED: Final = 2.0 ** (1.0 / GRID_STEPS)
"""By how much a scale of the public grid may be smaller than the one asked for."""

_LEAST_SURE: Final = 0.5
"""An answer is not planned for as if its size were less than this part of the estimate."""

_OF_TYPICAL: Final = 0.3
"""The standard deviation of a typical size, as a part of that of each number, for about a dozen of them."""

_TWICE: Final = 2.0

_BETTER: Final = 0.75
"""An easy look is worth its price if it makes the bar this part of what it was, or less."""

_FEW: Final = 3
"""Numbers that are too few to be moved towards their mean."""

_Look = TypeVar("_Look")


@dataclass(frozen=True, slots=True)
class Deviations:
    """The half widths of bars, in standard deviations, and the failure probabilities that they leave.

    Attributes:
        plain: With all of the failure probability, as a query with an error of its own has it.
        opening: The bars of what was measured as phases opened have this many.
        pilot: The bar of a pilot by itself has this many.
        last: The bar of the last look by itself has this many.
        all_times: The failure probability of the bars that hold at all times.
        wider: No bar is more than this many times as wide if it is to miss a tenth less often. That tenth is
            for the number of rows that count, where it is private.
    """

    plain: float
    opening: float
    pilot: float
    last: float
    all_times: float
    wider: float

    @classmethod
    def of(cls, accuracy: Accuracy) -> Deviations:
        """The deviations of a promise: the parts of its failure probability add up to it."""
        beta = accuracy.failure_probability
        log_beta = math.log(beta)
        opening, pilot, last = (
            two_sided(log_beta + math.log(part)) for part in (OPENING, PILOT, LAST)
        )
        # The more often a bar misses, the more it grows.
        wider = two_sided(log_beta + math.log((1.0 - FAILURE) * LAST)) / last
        return cls(two_sided(log_beta), opening, pilot, last, ALL_TIMES * beta, wider)


# ---------------------------------------------------------------- sizes


def moved_together(values: Floats, deviation: float, power: float = 1.0) -> Floats:
    """Estimates moved towards their mean by as much of their differences as noise explains, shape (n,).

    Without it noise makes some cells of a table look large and others small.

    Args:
        values: Estimates, shape (n,).
        deviation: The standard deviation of each. Infinite where nothing is known: then they are guesses.
        power: How often they are moved by the same factor.

    James and Stein 1961, around the mean (Efron and Morris 1973).
    """
    if len(values) <= _FEW or not math.isfinite(deviation):
        return values
    centre = values.mean()
    spread = float(np.square(values - centre).sum())
    if spread <= 0.0:
        return values
    kept = max(0.0, 1.0 - (len(values) - _FEW) * deviation**2 / spread)
    return np.asarray(centre + kept**power * (values - centre))


def typical(values: Floats, deviation: float) -> float:
    """The largest size such that the numbers of at least this size add up to 80% of all of them; 0 for none.

    Args:
        values: Estimates, shape (n,).
        deviation: The standard deviation of each.

    Noise makes one of the smaller numbers look smaller still. Of a dozen cells that differ by a quarter, with
    noise of a third of their size, moving them twice leaves 2% of that, and an error of 6%. Moving them once
    leaves 4%, and an error of 8%.
    """
    moved = moved_together(values, deviation, _TWICE)
    falling = -np.sort(-moved)
    total = float(moved.sum())  # where noise is below 0, it is above 0 elsewhere
    if not total > 0.0:
        return 0.0
    place = np.searchsorted(np.cumsum(falling), _OF_ROWS * total * (1.0 - 1e-12))
    return max(0.0, float(falling[min(int(place), len(falling) - 1)]))


def size_of_counts(values: Floats, deviation: float) -> float:
    """The size of a count, or of the typical cell of a table, in rows."""
    return max(0.0, float(values[0])) if len(values) == 1 else typical(values, deviation)


def distances(query: LinearQuery, means: Floats) -> Floats:
    """The sizes of means and of shares, shape (n,).

    A mean is as large as its distance from the nearer end of its range, a share as large as itself, or 0.2.

    Args:
        query: A query with a total.
        means: Estimates in the attribute's own unit, or shares, shape (n,).
    """
    if isinstance(query.total, Indicator):
        return np.maximum(means, _LEAST_SHARE)
    low, high = value_ends(query)
    return np.maximum(np.minimum(means - low, high - means), 0.0)


def surely(values: Floats, deviation: float) -> float:
    """The part of its estimated size that an answer has for all but one standard deviation of the size.

    The typical size of several numbers errs less than each of them.
    """
    size = size_of_counts(values, deviation)
    if not size > 0.0 or not math.isfinite(deviation):
        return 1.0
    off = deviation if len(values) == 1 else _OF_TYPICAL * deviation
    return max(_LEAST_SURE, 1.0 - off / size)


def aims_at_mean(query: LinearQuery) -> bool:
    """Whether the mean of a sum is what counts: it is asked for, or the query is for a share."""
    return query.target.of_mean or isinstance(query.total, Indicator | Product)


# ---------------------------------------------------------------- how useful an answer is


def part_of_size(query: LinearQuery, outcome: Outcome, z: float) -> float | None:
    """The widest bar of an answer as a part of the answer's size; infinite where there is no bar.

    Args:
        query: What is asked.
        outcome: The answer, from published values.
        z: The deviations of its bars, about.

    Returns:
        None for an outcome that has no size.
    """
    match outcome:
        case Answered(count=count, n=n, error_bar=bar):
            return _part(_known(bar) * n, max(0.0, count))
        case TableAnswered(cells=cells):
            counts = np.array([cell.count for cell in cells])
            widest = max(_known(cell.error_bar) * cell.n for cell in cells)
            return _part(widest, size_of_counts(counts, widest / z))
        case Summed() if aims_at_mean(query):
            means = large_means(query, outcome, z)
            return max((_part(mean.bar, mean.size) for mean in means), default=math.inf)
        case Summed(cells=cells):
            totals = np.abs([cell.total for cell in cells])
            widest = max(_known(cell.total_bar) for cell in cells)
            return _part(widest, size_of_counts(totals, widest / z))
        case Quantiles(cells=cells):
            rows = np.array([max(0.0, cell.rows) for cell in cells])
            least = size_of_counts(rows, 0.0)
            large = [cell for cell in cells if cell.rows >= least]
            return max(_part(_known(cell.bar), cell.rows * OF_ROWS_OF_RANK) for cell in large)
        case Differences(cells=cells):
            return max(_part(_known(cell.share_bar), cell.larger) for cell in cells)
    return None


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, a share or a correlation.

    Attributes:
        value: Its estimate, in its own unit.
        bar: The half width around it; infinite where nothing is known.
        size: Its size: see ``distances``.
    """

    value: float
    bar: float
    size: float


def large_means(query: LinearQuery, outcome: Summed, z: float) -> list[Mean]:
    """The means of an answer whose bars count: those of cells that are not small.

    Args:
        query: What is asked. Its means are what counts.
        outcome: as in ``part_of_size``.
        z: as in ``part_of_size``.
    """
    cells = outcome.cells
    if isinstance(query.total, Product):
        return [Mean(cell.mean or 0.0, _known(cell.mean_bar), OF_CORRELATION) for cell in cells]
    counts = np.array([cell.count for cell in cells])
    widest = max(_known(cell.count_bar) for cell in cells)
    least = size_of_counts(counts, widest / z)
    large = [cell for cell in cells if cell.count >= least > 0.0]
    means = np.array([cell.mean or 0.0 for cell in large])
    bars = [_known(cell.mean_bar) for cell in large]
    return list(map(Mean, means.tolist(), bars, distances(query, means).tolist()))


def grade(part: float, aim: Aim, planned: float = 0.0) -> Useful:
    """How useful an answer is whose bar is this part of its size.

    Args:
        part: The widest bar as a part of the size that the answer says.
        aim: What the data set aims at.
        planned: The part that its last look was planned for. The answer is as useful as that, as long as the
            size that was known then is within its bar.
    """
    for most, hoped, useful in (
        (aim.share, _about(aim.share), Useful.YES),
        (aim.rough, _hoped(aim.rough, _LEAST_SURE), Useful.ROUGH),
    ):
        if part <= (_about(most) if 0.0 < planned <= hoped else most * _TIE):
            return useful
    return Useful.NO


def _about(part: float) -> float:
    """The part of its size that a bar is, if the size is smaller by this part of it than it was thought."""
    return part * (1.0 + part) * _TIE


def _hoped(part: float, surely: float) -> float:
    """The part that a look may be planned for, because the size may be larger by one standard deviation."""
    return _about(part) * (2.0 - surely)


def use_of(
    part: float,
    aim: Aim,
    price: float,
    *,
    planned: float = 0.0,
    guarded: bool = False,
    first: float = 0.0,
) -> Use:
    """The same with what more would take.

    Args:
        part: as in ``grade``.
        aim: as in ``grade``.
        price: The share of a line that the error aimed at would take; infinite where nobody can say.
        planned: as in ``grade``.
        guarded: Whether a look was affordable but for what may be taken unasked by now.
        first: The part of the price that is for looks which do not depend on the error aimed at.
    """
    useful, known = grade(part, aim, planned), math.isfinite(price)
    rough = first + (price - first) * (aim.share / aim.rough) ** 2 if known else math.inf
    return Use(
        useful,
        part,
        price if known and useful is not Useful.YES else None,
        rough if known and useful is Useful.NO else None,
        guarded,
    )


def _part(bar: float, size: float) -> float:
    if bar == 0.0:
        return 0.0
    return bar / size if size > 0.0 else math.inf


def _known(bar: float | None) -> float:
    return math.inf if bar is None else bar


# ---------------------------------------------------------------- what to pay


@dataclass(frozen=True, slots=True)
class Rule:
    """What an answer may take, as shares of a line.

    Attributes:
        aim: The settings of the data set.
        at_most: The most that its query names; None where it says nothing.
    """

    aim: Aim
    at_most: float | None = None

    @property
    def most(self) -> int:
        """Units that an answer takes of any line at the most."""
        share = self.aim.query_share if self.at_most is None else self.at_most
        return math.floor(share * UNITS)

    @property
    def pilot(self) -> float:
        """The share of a line that a pilot takes at the most."""
        return _OF_EASY * self._easy_share

    @property
    def easy(self) -> int:
        """Units that an answer takes of any line without a second thought."""
        return math.floor(self._easy_share * UNITS)

    @property
    def _easy_share(self) -> float:
        easy = self.aim.easy_share
        return easy if self.at_most is None else min(easy, self.at_most)

    def choose(
        self,
        price: float,
        part: float,
        surely: float,
        left: Callable[[int], int],
        look: Callable[[float, int], _Look | None],
    ) -> tuple[float, _Look] | None:
        """The last look to take, and the part of the answer's size that its bar is to be; None for none.

        Args:
            price: The share of a line that a look within ``aim.share`` of the size would take by itself. It
                is inverse to the square of the part.
            part: The part of the size that the bar is of what is known. Where that is rough already, only
                an easy look is worth its price.
            surely: The part of the size that the answer has, most likely: its estimate may be too high. A
                rough answer is planned for that much if it can be paid for, so that it is seldom of no use.
            left: Returns what is left to take of every line, of a number of units for all looks.
            look: Returns the look that is within a part of the size, where all looks take at most some units
                of any line; None if there is none.
        """
        aim = self.aim
        if not math.isfinite(price) or part <= aim.share:
            return None

        def bought(units: int) -> float:
            """The part of the size that units buy, one step of the grid of scales less."""
            if units <= 0:
                return math.inf
            return float(aim.share * math.sqrt(price * UNITS / units) * _ROUNDED)

        wanted = [(aim.share, self.easy if self.at_most is None else self.most)]
        for_easy = bought(left(self.easy))
        if aim.share < for_easy <= min(aim.rough, _BETTER * part):
            wanted.append((for_easy, self.easy))
        if part > aim.rough:
            for_most = bought(left(self.most))
            wanted.append((aim.rough * surely, self.most))
            # The size is an estimate: what is nearly rough by it may turn out to be so.
            if for_most <= min(_hoped(aim.rough, surely), _BETTER * part):
                wanted.append((for_most, self.most))
        for bar, units in wanted:
            found = look(bar, units)
            if found is not None:
                return bar, found
        return None


def share_of_line(
    bar: float, z: float, prices: Prices, *, phases: int = 1, squared_sensitivity: int = 1
) -> float:
    """The share of each line that counts within ``bar`` rows take; infinite for a bar of 0.

    Args:
        bar: Half width, in rows, of a count over all phases together.
        z: The same in standard deviations.
        prices: The prices of noise scales.
        phases: The phases that are looked at, all with the same noise.
        squared_sensitivity: The square of how much a row changes all counts together.
    """
    return phases * prices.share((bar / z) * (bar / z), squared_sensitivity)


# ---------------------------------------------------------------- openings


def opening_columns(
    sizes: Sequence[int], n_rows: int, aim: Aim, z: float, prices: Prices, *, phases: int = 1
) -> list[tuple[int, int]]:
    """The single columns that are measured as a phase opens, as index and step of the public grid of scales.

    Each has the bar that is aimed at for a cell of average size, about windows of a number of phases, or the
    bar that an easy look buys, if that is rough. The cheapest come first.

    Args:
        sizes: The cells of each attribute.
        n_rows: The rows of the phase that count.
        aim: The settings of the data set.
        z: The half width of the bars in standard deviations.
        prices: The prices of noise scales.
        phases: The phases of the windows that are planned for.
    """
    least = prices.least_step(math.floor(aim.easy_share * UNITS), prices.table)
    if least is None or n_rows < 1:
        return []
    found = []
    for column, cells in enumerate(sizes):
        if not 1 < cells <= _MOST_OPENED:
            continue
        scale = aim.share * n_rows * math.sqrt(phases) / cells / z
        price = prices.share(scale**2, prices.table)
        if price * (aim.share / aim.rough) ** 2 <= aim.easy_share:
            step = max(least, int(step_below(np.array([scale]))[0]))
            found.append((prices.units(step, prices.table), column, step))
    kept, left = [], math.floor(TOGETHER * UNITS)
    for units, column, step in sorted(found):
        left -= units
        if left < 0:
            break
        kept.append((column, step))
    return sorted(kept)


_TIE: Final = 1.0 + 1e-9
