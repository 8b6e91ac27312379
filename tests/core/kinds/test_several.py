"""Counts next to other kinds are what they are alone."""

from __future__ import annotations

from stream_dp.core.kinds.with_kinds import WithKinds
from stream_dp.core.mechanism import LinearMechanism, Mechanism, Remembering
from stream_dp.core.residual.calibrated import Calibrated


def test_nothing_that_counts_say_of_themselves_is_left_to_a_default() -> None:
    every = vars(Mechanism).keys() | vars(Remembering).keys()
    public = {name for name in every if not name.startswith("_")}
    said = public & (vars(Calibrated).keys() | vars(LinearMechanism).keys())
    left = said - vars(WithKinds).keys()
    assert left == {"published_budget"} & said, "it would say what a mechanism says by default"
