"""The profile ``median``: Roth and Roughgarden's mechanism on one fixed data set."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.sequential import Median
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.messages.definitions import MedianSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import EpsilonLine
from stream_dp.profiles.papers import with_stages


def _make(settings: MedianSpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Median:
        return Median(
            setup.universe,
            privacy,
            accuracy,
            queries=queries,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )

    return with_stages(settings, setup, make)


MEDIAN = Profile(MedianSpec, _make, EpsilonLine())
