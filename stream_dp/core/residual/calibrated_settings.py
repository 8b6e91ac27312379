"""The settings of a data set of the calibrated profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.keys.found_values import FindSettings
from stream_dp.core.residual.plan.targets import NO_LIMITS, Limits
from stream_dp.core.running.running_periods import RunningSettings

LARGEST: Final = 0.97
"""The largest share of a line that is measured unasked, looks at the rows that count included."""


@dataclass(frozen=True, slots=True)
class CalibratedSettings:
    """The settings of a data set. They are public, and never change.

    Attributes:
        on_exhausted: Whether a query that no line can pay for is answered without a promise, or refused.
        base_share: The part of each new line that is spent when its phase opens; None derives it.
        queries_per_phase: The number of different queries that a block is asked in its life, by the phases
            that follow one another; None for the default.
        pacing: Whether part of young lines is kept for the phases to come. None keeps it where the plan
            learns and lines are short.
        limits: What queries may ask for.
        approximate: Whether looks with a delta of their own are charged to the same lines.
        tiles: The queries that are expected in each phase. A part of each line is kept for them. Empty for
            generic ones.
        kept: The number of blocks, the last ones, whose rows are kept. No look reads the others. None keeps
            all.
        grows: Whether more is measured of sealed blocks once queries have paid enough for it.
        largest: The largest share of a line that is measured unasked once the plan learns.
        aim: How precise answers are worth having; None where queries that say nothing get the error of the
            data set. With an aim the plan does not learn: openings have a rule of their own.
        finds: How values of attributes are found, by the index of the attribute.
        running: What running totals are about; None without them.
        late: Whether a block gets its late rows once, and is measured again with them.
    """

    on_exhausted: Literal["unverified", "refuse"] = "unverified"
    base_share: float | None = None
    queries_per_phase: int | None = None
    pacing: bool | None = None
    limits: Limits = NO_LIMITS
    approximate: bool = False
    tiles: tuple[PlannedTile, ...] = ()
    kept: int | None = None
    grows: bool = True
    largest: float = LARGEST
    aim: Aim | None = None
    finds: Mapping[int, FindSettings] = field(default_factory=dict)
    running: RunningSettings | None = None
    late: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> CalibratedSettings:
        return self  # nothing changes it

    @property
    def learns(self) -> bool:
        """Whether the plan of later phases learns from what is asked: nobody has described it."""
        described = self.queries_per_phase, self.base_share, self.aim
        return all(said is None for said in described) and not self.tiles
