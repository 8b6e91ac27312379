"""The parts that the papers' profiles share: a known number of queries, or stages that double it."""

from __future__ import annotations

from collections.abc import Callable

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.doubling import Doubling
from stream_dp.core.median.phased import Phased
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.messages.definitions import PhasedSpec
from stream_dp.profiles.base import Setup


def with_stages(
    settings: PhasedSpec, setup: Setup, make: Callable[[Privacy, Accuracy, int], Phased]
) -> Mechanism:
    """The mechanism for as many queries as the settings say, or for stages that begin with as many.

    Args:
        settings: The settings of a papers' profile.
        setup: The universe, guarantee and accuracy of the data set.
        make: Makes the mechanism for a promise, an accuracy and a number of queries in each phase.
    """
    if settings.doubling:
        return Doubling(make, setup.privacy, setup.accuracy, first=settings.n_queries)
    return make(setup.privacy, setup.accuracy, settings.n_queries)
