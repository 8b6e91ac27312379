"""Every profile, kind and look has a life in which it is compared."""

from __future__ import annotations

import typing
from typing import Any

from stream_dp.core.residual.looks.counted_rows import RowsLook
from stream_dp.messages import KindsSpec, MechanismSpec
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.lives_of_kinds import KINDS
from tests.pipeline.blindfold.lives_of_profiles import PROFILES
from tests.pipeline.blindfold.statistics_of_looks import STATISTICS, looks


def test_every_profile_kind_and_look_is_compared() -> None:
    """A new one is compared as soon as it can be chosen, or this fails."""
    specs: tuple[Any, ...] = typing.get_args(typing.get_args(MechanismSpec)[0])
    profiles = {
        spec.model_fields["profile"].annotation for spec in specs if hasattr(spec, "model_fields")
    }
    chosen = {life.definition.get("mechanism", {}).get("profile") for life in PROFILES.values()}
    assert {typing.get_args(profile)[0] for profile in profiles} == (chosen - {None}) | {
        "calibrated"
    }
    assert {kind for life in KINDS.values() for kind in life.definition["kinds"]} == set(
        KindsSpec.model_fields
    )
    taken = {look for life in LIVES.values() for look in life.looks}
    taken.add(RowsLook)  # only where persons are protected: ``test_whose_rows_alike``
    assert looks() == taken == set(STATISTICS)
