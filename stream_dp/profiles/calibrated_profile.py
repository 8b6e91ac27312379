"""The profile ``calibrated``: a memory of residuals, and the other kinds of queries next to it."""

from __future__ import annotations

from stream_dp.core.budget.parameters import Aim, as_written
from stream_dp.core.kinds.kind_answerer import KindTerms
from stream_dp.core.kinds.with_kinds import WithKinds
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.residual.base_release.base_plan import CAP
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import LARGEST, CalibratedSettings
from stream_dp.core.residual.keys.found_values import FindSettings
from stream_dp.core.residual.plan.targets import Limits
from stream_dp.messages.definition.profile_specs import CalibratedSpec
from stream_dp.messages.definition.promise_specs import AccuracySpec
from stream_dp.profiles.kinds import chosen
from stream_dp.profiles.line_units import RhoLine, budget_of, is_approximate
from stream_dp.profiles.planned_tiles import tiles_of
from stream_dp.profiles.profile import Profile, Setup
from stream_dp.profiles.running_tiles import running_of


def _make(settings: CalibratedSpec, setup: Setup) -> Mechanism:
    """Counts, and the other kinds that the definition names."""
    kinds = chosen(setup.definition.kinds)
    said = CalibratedSettings(
        on_exhausted=setup.definition.on_exhausted,
        base_share=settings.base_share,
        queries_per_phase=settings.queries_per_phase,
        pacing=settings.pacing,
        limits=Limits(setup.definition.accuracy.least_error, setup.definition.accuracy.query_share),
        approximate=is_approximate(setup.definition),
        tiles=tiles_of(settings, setup.universe),
        kept=setup.definition.kept_phases,
        grows=settings.growth is None,
        # Other kinds pay from the same lines, and no plan knows of them.
        largest=CAP if kinds else LARGEST,
        aim=aim_of(setup.definition.accuracy),
        finds={
            index: FindSettings(as_written(one.find.share), one.find.windows)
            for index, one in enumerate(setup.definition.attributes)
            if one.type == "category" and one.find
        },
        running=running_of(setup.definition, setup.universe),
        late=setup.definition.phase.late is not None,
    )
    if not kinds:
        return Calibrated(setup.universe, setup.privacy, setup.accuracy, said)
    budget, failure = budget_of(setup.definition), setup.accuracy.failure_probability
    answerers = [
        answerer(KindTerms(setup.universe, budget, spec.pop("share"), failure), **spec)
        for answerer, spec in kinds
    ]
    return WithKinds(setup.universe, setup.privacy, setup.accuracy, said, answerers)


def aim_of(said: AccuracySpec) -> Aim | None:
    """How precise answers are worth having, with the defaults of what a definition does not name."""
    if said.aim is None:
        return None
    names = ("rough", "easy_share", "query_share", "day_share")
    named = {name: value for name in names if (value := getattr(said, name)) is not None}
    return Aim(said.aim, **named)


CALIBRATED = Profile(CalibratedSpec, _make, RhoLine())
