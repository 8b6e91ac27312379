"""The profile ``whole_table``: one noisy table of the whole universe in each phase."""

from __future__ import annotations

from stream_dp.core.baselines.table import WholeTable
from stream_dp.core.mechanism import Mechanism
from stream_dp.messages.definitions import WholeTableSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import RhoLine


def _make(settings: WholeTableSpec, setup: Setup) -> Mechanism:
    del settings
    return WholeTable(setup.universe, setup.privacy, setup.accuracy)


WHOLE_TABLE = Profile(WholeTableSpec, _make, RhoLine())
