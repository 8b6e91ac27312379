"""The periods that have running totals and are not sealed: a fold over what was published.

A period is charged for all its ticks before the first one is taken, and its block pays as it opens
(docs/proofs, Theorem 36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.running.periods_look import LastTotal, PeriodsLook
from stream_dp.core.running.running_plan import MOST_SHARE, RunningPlan
from stream_dp.core.running.running_totals import RunningTotals, table_of, whole_periods
from stream_dp.core.running.tick_factor import factor_of
from stream_dp.core.running.tick_look import TickRelease


@dataclass(frozen=True, slots=True)
class RunningSettings:
    """What running totals are about.

    Attributes:
        within: The largest bar of a total, in rows.
        tiles: The counts and tables.
        most_ticks: The most ticks of a period.
    """

    within: float
    tiles: tuple[LinearQuery, ...]
    most_ticks: int


@dataclass(slots=True)
class RunningPeriod:
    """A period, and what its ticks have published.

    Attributes:
        number: Its number: when it begins, in minutes since 1970.
        totals: What its ticks have published.
        units: What it costs a line by now.
        version: The version of the tiles that it is about, from 0.
        stopped: Whether it has no more ticks.
    """

    number: int
    totals: RunningTotals = field(repr=False)
    units: int
    version: int = 0
    stopped: bool = False

    @property
    def next_tick(self) -> int | None:
        """The number of the next tick; None if it has no more."""
        tick = self.totals.tick + 1
        return None if self.stopped or tick > self.totals.plan.factor.ticks else tick


class RunningPeriods:
    """The periods of one data set.

    Args:
        settings: What running totals are about.
        promise: What is promised for each row and for each answer.

    Attributes:
        settings: The same, of periods to come.
        most: The plan of a period with as many ticks as one can have.
        open: Those that are not sealed, by their numbers.

    Raises:
        InvalidDefinition: They take too much of a line, or publish too many numbers.
    """

    def __init__(self, settings: RunningSettings, promise: Promise) -> None:
        self.open: dict[int, RunningPeriod] = {}
        self._next: tuple[list[RunningPeriod], bool] = [], False
        self._versions: list[tuple[RunningSettings, Promise]] = []
        self.change(settings, promise)

    def change(self, settings: RunningSettings, promise: Promise) -> None:
        """Has periods to come be about other tiles."""
        self.settings, self._promise = settings, promise
        self._versions.append((settings, promise))
        self.most = self.plan(settings.most_ticks)

    def is_current(self, period: RunningPeriod) -> bool:
        """Whether a period is about the newest version of the tiles."""
        return period.version == len(self._versions) - 1

    def plan(self, ticks: int) -> RunningPlan:
        """The plan of a period that begins now, with a number of ticks."""
        return RunningPlan.within(self.settings.within, self._promise, self.settings.tiles, ticks)

    def affords(self, plan: RunningPlan) -> bool:
        """Whether a block that all open periods joined could pay for one more."""
        return self._together([*self._prices(), plan.units]) <= MOST_SHARE * UNITS

    # ------------------------------------------------------------ ticks

    def begin(self, number: int, plan: RunningPlan) -> RunningPeriod:
        """Begins the running totals of a period, which has paid for all ticks of its plan."""
        return self._opened(number, plan, len(self._versions) - 1)

    def begun(self, number: int, ticks: int, step: int, version: int) -> RunningPeriod:
        """Goes on with a period that has begun, about the tiles that there were then.

        Args:
            number: Its number.
            ticks: The ticks that it has.
            step: The step of the grid of scales.
            version: The version of the tiles.
        """
        settings, promise = self._versions[version]
        plan = RunningPlan(promise, settings.tiles, step, factor_of(ticks))
        return self._opened(number, plan, version)

    def _opened(self, number: int, plan: RunningPlan, version: int) -> RunningPeriod:
        period = self.open[number] = RunningPeriod(number, RunningTotals(plan), plan.units, version)
        return period

    def absorb(self, release: TickRelease) -> None:
        """Folds in what a tick has published."""
        if (period := self.open.get(release.period)) is not None:
            period.totals.absorb(release)

    def lost(self, look: Mapping[str, object]) -> None:
        """A look (its ``description``) was taken, and a crash lost what it found.

        A period pays again for a tick that is taken again. Where no line could, it has no more ticks.
        """
        match look:
            case {"kind": "tick", "period": int(number)} if number in self.open:
                period = self.open[number]
                again = period.units + period.totals.plan.units_again(period.totals.tick + 1)
                prices = [*self._prices(but=number), again]
                period.stopped = self._together(prices) > MOST_SHARE * UNITS
                period.units = period.units if period.stopped else again

    # ------------------------------------------------------------ the seal

    def sealed(self, until: int, *, whole: bool) -> None:
        """The rows of all periods that begin before a time are in the block that opens next.

        Args:
            until: The time, in minutes since 1970.
            whole: Whether each row of the block came in a tick that was taken.
        """
        self._next = [one for number, one in self.open.items() if number < until], whole
        for one in self._next[0]:
            del self.open[one.number]

    def looks(self, block: int) -> list[PeriodsLook]:
        """The look by which a new block pays for its periods; none where it has none."""
        (periods, whole), self._next = self._next, ([], False)
        if not periods:
            return []
        charge = Charge(block, self._together([one.units for one in periods]))
        totals = [one.totals for one in periods]
        alike = len({one.plan.tiles for one in totals}) == 1
        evidence = tuple(_evidence(totals)) if whole and alike else ()
        return [PeriodsLook(block, tuple(one.number for one in periods), evidence, (charge,))]

    def _prices(self, but: int = 0) -> Iterator[int]:
        return (one.units for number, one in self.open.items() if number != but)

    def _together(self, prices: Sequence[int]) -> int:
        """What a block costs that periods with these prices have joined."""
        return max(prices) if self._promise.total_known else sum(prices)


def _evidence(totals: Sequence[RunningTotals]) -> Iterator[LastTotal]:
    """What the last ticks of the periods of a block say of its rows."""
    plan = totals[0].plan
    for number, tile in enumerate(plan.tiles):
        found = whole_periods(totals, number)
        if found is None:
            return
        values, variance = found
        if tile.predicate == EVERYTHING:
            table = table_of(plan, number, values)
            yield LastTotal(tuple(sorted(tile.group_by)), b"", variance, table.reshape(-1))
        else:
            yield LastTotal(tile.attributes, tile.key, variance, values)
