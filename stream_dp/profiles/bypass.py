"""The profile ``bypass``: multiplicative weights that plain counts train."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.sparse_vector.bypass import Bypass
from stream_dp.core.sparse_vector.composition import composition_of
from stream_dp.messages.definitions import BypassSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import RhoLine


def _make(settings: BypassSpec, setup: Setup) -> Mechanism:
    del settings
    return Bypass(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        on_exhausted=setup.definition.on_exhausted,
    )


BYPASS = Profile(BypassSpec, _make, RhoLine())
