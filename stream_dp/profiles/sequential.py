"""The profile ``sequential``: a new median mechanism in every phase, on all rows so far."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.sequential import Sequential
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.messages.definitions import SequentialSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import EpsilonLine
from stream_dp.profiles.papers import with_stages


def _make(settings: SequentialSpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Sequential:
        return Sequential(
            setup.universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
            composition=settings.composition,
        )

    return with_stages(settings, setup, make)


SEQUENTIAL = Profile(SequentialSpec, _make, EpsilonLine())
