"""The profile ``gated``: gates before the maximum-entropy set."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.messages.definitions import GatedSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import RhoLine


def _make(settings: GatedSpec, setup: Setup) -> Mechanism:
    return Gated(
        setup.universe,
        setup.privacy,
        setup.accuracy,
        segments=settings.segments,
        prior=settings.prior,
    )


GATED = Profile(GatedSpec, _make, RhoLine())
