"""The profile ``memory``: the thesis' mechanism, whose consistent set outlives the phases."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.memory import Memory
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.messages.definitions import MemorySpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import EpsilonLine
from stream_dp.profiles.papers import with_stages


def _make(settings: MemorySpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Memory:
        return Memory(
            setup.universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )

    return with_stages(settings, setup, make)


MEMORY = Profile(MemorySpec, _make, EpsilonLine())
