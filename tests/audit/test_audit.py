"""A short form of ``make audit``: lower bounds on epsilon, measured through the worker.

The bounds are statistical, and the noise is the operating system's. A bound is wrong with probability
``RISK`` at most. So the tests that compare one with a promise that is kept fail by chance with 1e-6 at most,
all of them together.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import math
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.messages import KindsSpec, MechanismSpec
from tests.noise import ScriptedNoise
from tests.slow import rest_is_slow

_FILE = Path(__file__).with_name("audit.py")


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("stream_dp_audit", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


audit = _load()

RISK = 1e-6 / 50
RUNS = 160
"""Of each side. They are enough to find a worker without noise, whatever the profile or kind."""

CASES = [name for name in audit.CASES if "doubling" not in name]
"""Guesses that double run the mechanisms that are here by themselves; ``make audit`` has them all."""


class Silent(ScriptedNoise):
    """Adds nothing to any count; other draws are real ones."""

    def geometric_half(self, limit: int) -> int:
        return PooledNoise().geometric_half(limit)


def bound_of(case: Any, copy: Any, runs: int) -> float:
    found = asyncio.run(audit.scores(case, copy, runs))
    bound = audit.bounded(*found, delta=case.delta, confidence=1.0 - RISK)
    return float(bound.epsilon)


@pytest.mark.parametrize("name", rest_is_slow(CASES, first=1))
def test_no_more_than_the_promise_can_be_seen(name: str) -> None:
    """False-alarm rate ``RISK``."""
    case = audit.CASES[name]()
    copy = audit.Copy(all_queries=False)
    assert bound_of(case, copy, RUNS) <= case.claim


@pytest.mark.parametrize(
    "name",
    rest_is_slow(
        [
            "counts",
            "calibrated, sums",
            "calibrated, values",
            "calibrated, shares",
            "calibrated, correlations",
            "calibrated, person",
            "calibrated, erased, person",
            "calibrated, returning person",
            "calibrated, running totals",
            "calibrated, running totals, person",
            "calibrated, late rows",
            "calibrated, late rows, person",
            "calibrated, a world that reacts",
            "kind median",
            "kind interior_point",
            "memory",
        ],
        first=1,
    ),
)
def test_so_many_runs_find_a_worker_without_noise(name: str) -> None:
    """The test above can fail."""
    case = audit.CASES[name]()
    assert bound_of(case, audit.Copy(noise=Silent, all_queries=False), RUNS) > case.claim


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts, pure", "kind correlated_vector"])
def test_no_more_can_be_seen_when_a_worker_restarts_and_is_asked_again(name: str) -> None:
    """False-alarm rate ``RISK``. The second worker has the journal of the first."""
    case = audit.CASES[name]()
    assert bound_of(case, audit.COPIES[audit.WHOLE], RUNS) <= case.claim


@pytest.mark.parametrize(
    ("name", "copy", "runs"),
    rest_is_slow(
        [
            ("calibrated, found values, person", "each look has all of delta", 180),
            ("calibrated, naming, person", "tau - 1", 1500),
            ("counts, pure", "half the noise", 600),
            ("kind correlated_vector", "half the noise", 600),
            ("counts, pure", "forgets a charge", 700),
            ("kind correlated_vector", "draws again", 450),
            ("calibrated, person", "counts every row", 700),
            ("calibrated, erased, person", "free looks at changed blocks", 900),
            ("calibrated, erased, person", "chooses anew", 1200),
            ("calibrated, running totals, person", "ticks count every row", 1200),
            ("calibrated, a world that reacts", "now and then exact", 900),
        ],
        first=1,
        unpack=True,
    ),
)
def test_a_broken_copy_goes_above_the_promise(name: str, copy: str, runs: int) -> None:
    case = audit.CASES[name]()
    broken = dataclasses.replace(audit.EVERY_COPY[copy], deliveries=6 if "again" in copy else 1)
    assert bound_of(case, broken, runs) > case.claim


@pytest.mark.slow
def test_a_loss_that_only_rows_show_which_react_is_not_seen_without_them() -> None:
    """Of one day there is nothing to wait for. False-alarm rate ``RISK``; docs/proofs, Theorem 35."""
    case = audit.reacting(days=1)
    assert bound_of(case, audit.EVERY_COPY["now and then exact"], 900) <= case.claim


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_a_bound_is_below_the_exact_epsilon_and_near_it_with_many_runs(epsilon: float) -> None:
    """Of randomized response, whose epsilon is known. The seed is fixed, so there is no false alarm."""
    draw = np.random.default_rng(round(10 * epsilon))
    kept = 1.0 / (1.0 + math.exp(-epsilon))
    one, other = draw.random(40_000) < kept, draw.random(40_000) < 1.0 - kept
    scores = one.astype(float), other.astype(float)
    bound = audit.bounded(*scores, delta=0.0, confidence=0.999)
    assert 0.8 * epsilon < bound.epsilon < epsilon
    assert bound.runs == 28_000
    with_delta = audit.bounded(*scores, delta=0.1, confidence=0.999)
    assert with_delta.epsilon < math.log((kept - 0.1) / (1.0 - kept))


def test_bounds_on_runs_that_tell_nothing_are_hardly_ever_above_zero() -> None:
    """So the event is chosen on other runs than it is counted on: at 90%, of 200 bounds at most 20 are wrong.

    More than 40 have a probability below 1e-4; the seed is fixed.
    """
    draw = np.random.default_rng(5)
    bounds = [
        audit.bounded(*draw.normal(size=(2, 200)), delta=0.0, confidence=0.9).epsilon
        for _ in range(200)
    ]
    assert sum(bound > 0.0 for bound in bounds) <= 40


def test_every_profile_and_kind_is_audited() -> None:
    """A new one is audited as soon as it can be chosen, or this fails."""
    cases = [audit._read(make().definition) for make in audit.CASES.values()]
    specs: tuple[Any, ...] = typing.get_args(typing.get_args(MechanismSpec)[0])
    profiles = [
        spec.model_fields["profile"].annotation for spec in specs if hasattr(spec, "model_fields")
    ]
    assert {case.mechanism.profile for case in cases} == {
        name for profile in profiles for name in typing.get_args(profile)
    }
    turned_on = {kind for case in cases for kind, spec in case.kinds if spec is not None}
    assert turned_on == set(KindsSpec.model_fields)
