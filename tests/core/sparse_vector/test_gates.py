"""The integer sparse vector test: its privacy by exact enumeration, its threshold by the law of its noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.sparse_vector.gates import (
    Segment,
    predicted_rows,
    segment_loss,
    tail,
    threshold,
)
from tests.noise import ScriptedNoise, SeededNoise

THRESHOLD_SCALE, QUERY_SCALE = Fraction(3, 2), Fraction(2)
REACH = 24  # further noise has a probability below 1e-5, and is left out on both sides alike


def law(scale: Fraction) -> dict[int, float]:
    """Discrete Laplace, up to ``REACH``."""
    p = math.exp(-1 / scale)
    return {x: (1 - p) / (1 + p) * p ** abs(x) for x in range(-REACH, REACH + 1)}


LIMIT = 4  # the threshold without its noise


@cache
def below(distance: int, offset: int, query_scale: Fraction) -> float:
    """Probability that a prediction so far off stands, given the threshold's noise; by every draw."""
    total = 0.0
    for draw, chance in law(query_scale).items():
        noise = ScriptedNoise(offset, draw)
        segment = Segment.begin(noise, threshold_scale=THRESHOLD_SCALE, query_scale=QUERY_SCALE)
        total += chance * segment.is_below(
            noise, count=100 + distance, predicted=100, threshold=LIMIT
        )
    return total


def runs(distances: tuple[int, ...], broken: str = "") -> list[float]:
    """Probability that the first query is above, the second, ..., none."""
    weights = np.array(list(law(THRESHOLD_SCALE).values()))
    scale = QUERY_SCALE / 3 if broken == "a third of the noise" else QUERY_SCALE
    found, so_far = [], np.ones_like(weights)
    for place, distance in enumerate(distances):
        stands = np.array([below(distance, x, scale) for x in range(-REACH, REACH + 1)])
        if broken == "every second threshold with its sign flipped" and place % 2:
            stands = stands[::-1]
        if broken == "the threshold drawn anew for every query":
            stands = np.full_like(stands, weights @ stands)
        found.append(float(weights @ (so_far * (1.0 - stands))))
        so_far = so_far * stands
    return [*found, float(weights @ so_far)]


def worst_log_ratio(broken: str = "") -> float:
    """Over runs of five queries and their neighbours: every count one up, one down, or as it was."""
    worst = 0.0
    for distances in ((4, 4, 4, 4, 4), (0, 5, 0, 5, 9), (12, 12, 12, 12, 12), (1, 1, 1, 1, 14)):
        here = runs(distances, broken)
        for moves in itertools.product((-1, 0, 1), repeat=5):
            there = runs(tuple(np.add(distances, moves).tolist()), broken)
            worst = max(worst, *(abs(math.log(p / q)) for p, q in zip(here, there, strict=True)))
    return worst


def test_a_segment_is_as_private_as_it_costs() -> None:
    """By exact enumeration: every run, every neighbour, every draw; and it is not far below."""
    loss = float(segment_loss(THRESHOLD_SCALE, QUERY_SCALE))
    assert loss == pytest.approx(1 / 1.5 + 2 / 2)
    assert 0.75 * loss < worst_log_ratio() <= loss


@pytest.mark.parametrize(
    "broken",
    [
        "a third of the noise",
        "the threshold drawn anew for every query",
        "every second threshold with its sign flipped",
    ],
)
def test_a_broken_segment_is_not(broken: str) -> None:
    assert worst_log_ratio(broken) > 1.05 * float(segment_loss(THRESHOLD_SCALE, QUERY_SCALE))


def test_the_thresholds_noise_is_drawn_once_a_segment() -> None:
    noise = ScriptedNoise(3, 0, 0, 0)
    segment = Segment.begin(noise, threshold_scale=THRESHOLD_SCALE, query_scale=QUERY_SCALE)
    assert segment.is_below(noise, count=26, predicted=20, threshold=4)  # 6 < 4 + 3
    assert segment.is_below(noise, count=14, predicted=20, threshold=4)
    assert not segment.is_below(noise, count=27, predicted=20, threshold=4)
    assert noise.asked == [THRESHOLD_SCALE, *[QUERY_SCALE] * 3]
    assert not segment.open
    with pytest.raises(ValueError, match="ended"):
        segment.is_below(noise, count=20, predicted=20, threshold=4)
    assert "3" not in repr(segment)


def test_there_is_no_gate_with_a_threshold_below_one() -> None:
    segment = Segment(QUERY_SCALE, 0)
    with pytest.raises(ValueError, match="below 1"):
        segment.is_below(ScriptedNoise(0), count=20, predicted=20, threshold=0)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(400)])
@pytest.mark.parametrize("probability", [0.4, 0.01, 1e-9])
def test_the_tail_is_the_least_that_is_passed_as_seldom(
    scale: Fraction, probability: float
) -> None:
    reach = tail(scale, probability)
    law_of = stats.dlaplace(1 / float(scale))
    assert law_of.sf(reach - 1) <= probability * (1 + 1e-9)
    assert reach <= 1 or law_of.sf(reach - 2) > probability


def test_a_prediction_that_is_too_far_off_passes_as_seldom_as_promised() -> None:
    """And not seldomer than by the union bound's own slack: one unit more in the threshold breaks it."""
    error, n_rows, segments, beta = 0.01, 100_000, 20, 0.1
    found = threshold(
        error=error,
        n_rows=n_rows,
        threshold_scale=Fraction(30),
        query_scale=Fraction(42),
        segments=segments,
        failure_probability=beta,
    )
    high, own = tail(Fraction(30), beta / (2 * segments)), tail(Fraction(42), beta / 2)
    assert found == 1_000 + 3 - high - own
    off = 1_001  # rows: just too far
    # A threshold below its tail and noise above its own never let it pass.
    assert not Segment(Fraction(42), high - 1).is_below(
        ScriptedNoise(1 - own), count=5_000 + off, predicted=5_000, threshold=found
    )
    assert Segment(Fraction(42), high - 1).is_below(
        ScriptedNoise(1 - own), count=5_000 + off, predicted=5_000, threshold=found + 1
    )
    assert (
        stats.dlaplace(1 / 30).sf(high - 1) * segments + stats.dlaplace(1 / 42).sf(own - 1) <= beta
    )


def test_a_run_of_segments_misses_no_more_than_promised() -> None:
    """Wrong predictions only, in segments that end: 3,000 tests, at most beta of them below.

    The false alarm rate is that of 5 standard deviations.
    """
    noise, beta, segments = SeededNoise(3), 0.1, 8
    limit = threshold(
        error=0.01,
        n_rows=10_000,
        threshold_scale=Fraction(4),
        query_scale=Fraction(6),
        segments=segments,
        failure_probability=beta,
    )
    assert limit >= 1
    missed = 0
    segment = Segment(Fraction(6), 0, open=False)
    for _ in range(3_000):
        if not segment.open:
            segment = Segment.begin(noise, threshold_scale=Fraction(4), query_scale=Fraction(6))
        missed += segment.is_below(noise, count=601, predicted=500, threshold=limit)
    assert missed <= 3_000 * beta + 5 * math.sqrt(3_000 * beta)
    assert missed > 0


def test_a_prediction_is_a_whole_number_of_rows() -> None:
    assert [predicted_rows(Fraction(p), 100) for p in ("-0.2", "0", "0.123", "1.4")] == [
        0,
        0,
        12,
        100,
    ]
