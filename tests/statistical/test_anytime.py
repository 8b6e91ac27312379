"""Bars that hold whenever a query is asked, against someone who asks it when its estimate is furthest off.

Each trial is a block with fresh noise and one fixed sequence of tables. After every table the estimate of
a fixed query is compared with the truth, and one miss at any time counts. False alarms: each test fails by
chance with probability at most 1e-6. The plain bar, which spends nothing on the choice of the time, is the
broken copy that the same tests catch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.query import LinearQuery, Predicate
from stream_dp.core.residual.belief.anytime import anytime_bars
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.forms import Floats, form_of

SIZES = (3, 4, 2)
COUNTS = np.arange(1, 25).reshape(SIZES) * 40
BETA = 0.05
ALARM = 1e-6
N_TRIALS = 400

Bars = Callable[[Floats], Floats]
Tables = Sequence[tuple[tuple[int, ...], float]]
"""The attributes that are measured, one after another, and the variance of the noise on each cell."""

PROMISED = 900.0
"""The variance that the promise asks for, in the middle of those that come about."""


def anytime(variances: Floats) -> Floats:
    return anytime_bars(variances, PROMISED, BETA)


def plain(variances: Floats) -> Floats:
    """The broken copy: it spends nothing on the choice of the time."""
    return np.asarray(norm.isf(BETA / 2) * np.sqrt(variances))


def select(size: int, *cells: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[list(cells)] = True
    return mask


QUERY = LinearQuery(Predicate.conjunction({0: select(3, 0, 2), 1: select(4, 1, 2)}), range(1))
TRUTH = float(COUNTS[np.ix_([0, 2], [1, 2])].sum())

TABLES: Tables = [
    ((0, 1), 4_000.0),
    *(
        (attributes, 4_000.0 * 0.7**i)
        for i in range(6)
        for attributes in ((0,), (1, 2), (0, 1, 2), (0, 2), (0, 1))
    ),
]
"""Tables that share some interactions of the query and not others, each time finer."""


def missed(bars: Bars, rng: np.random.Generator) -> bool:
    """Whether the estimate is outside its bar at any time."""
    belief, form = Belief(SIZES), form_of(QUERY, SIZES)
    belief.open_block(int(COUNTS.sum()))
    for attributes, variance in TABLES:
        others = tuple(a for a in range(len(SIZES)) if a not in attributes)
        counts = COUNTS.sum(axis=others).astype(np.float64)
        noise = rng.normal(0.0, math.sqrt(variance), counts.shape)
        belief.absorb_table(attributes, 0, counts + noise, variance)
        evidence = belief.evidence(form, QUERY.key, range(1))
        if abs(evidence.values.item() - TRUTH) > bars(evidence.variances).item():
            return True
    return False


def p_value(n_missed: int, n_trials: int) -> float:
    return float(binomtest(n_missed, n_trials, BETA, alternative="greater").pvalue)


@pytest.mark.parametrize("bars", [anytime, plain], ids=["anytime", "broken copy"])
def test_a_query_that_is_asked_when_it_is_furthest_off_keeps_its_anytime_bar(bars: Bars) -> None:
    rng = np.random.default_rng(1)
    n_missed = sum(missed(bars, rng) for _ in range(N_TRIALS))
    assert (p_value(n_missed, N_TRIALS) > ALARM) is (bars is anytime)


@pytest.mark.parametrize("bars", [anytime, plain], ids=["anytime", "broken copy"])
def test_where_all_looks_say_the_same_number_their_scales_may_be_chosen_too(bars: Bars) -> None:
    """Counts of one query in one phase, each as precise as suits somebody who has seen the others."""
    rng = np.random.default_rng(3)
    n_trials, n_looks = 4_000, 100
    precision = np.full(n_trials, 0.2 / PROMISED)
    errors = rng.normal(0.0, 1.0, n_trials) / np.sqrt(precision)
    off = np.abs(errors) > bars(1.0 / precision)
    for _ in range(n_looks):
        deviations = np.abs(errors) * np.sqrt(precision)
        added = precision * np.where(deviations > 2.0, 0.01, 0.1)  # slower where it is off
        fresh = rng.normal(0.0, 1.0, n_trials) / np.sqrt(added)
        errors = (precision * errors + added * fresh) / (precision + added)
        precision = precision + added
        off |= np.abs(errors) > bars(1.0 / precision)
    assert (p_value(int(off.sum()), n_trials) > ALARM) is (bars is anytime)


def test_bars_of_what_is_known_exactly_or_not_at_all() -> None:
    bars = anytime_bars(np.array([0.0, PROMISED, math.inf]), PROMISED, 0.01)
    assert bars[0] == 0.0
    assert bars[1] / math.sqrt(PROMISED) == pytest.approx(
        math.sqrt(1.125 * (math.log(9.0) + 2.0 * math.log(100.0))), rel=1e-12
    )
    assert bars[2] == math.inf
