"""Bars that hold whenever a query is asked, against somebody who asks or has more measured as suits best.

Each trial is a block with fresh noise. After every look the estimate of a fixed query is compared with the
truth, and one miss at any time counts. False alarms: each test fails by chance with probability at most 1e-6.
The broken copies are the plain bar, which spends nothing on the choice of the time, and a bar that takes all
directions for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.residual.belief.anytime import Directions, z_steered
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import Floats, form_of

SIZES = (3, 4, 2)
COUNTS = np.arange(1, 25).reshape(SIZES) * 40
BETA = 0.05
ALARM = 1e-6
N_TRIALS = 100

Tables = Sequence[tuple[tuple[int, ...], float]]
"""The attributes that are measured, one after another, and the variance of the noise on each cell."""

PROMISED = 900.0
"""The variance that the promise asks for, in the middle of those that come about."""

MARGIN = z_steered(math.log(BETA)) * math.sqrt(PROMISED)

Bars = Callable[[Floats], Floats]
"""Half widths for variances of the directions, shape (trials, directions)."""


def anytime(variances: Floats) -> Floats:
    one, none = np.ones((variances.shape[1], 1)), np.zeros(1)
    return Directions(variances, one, math.inf * one, none).bars(MARGIN, BETA)


def plain(variances: Floats) -> Floats:
    """The broken copy: it spends nothing on the choice of the time."""
    return np.asarray(norm.isf(BETA / 2) * np.sqrt(variances.sum(axis=1)))


def one_for_all(variances: Floats) -> Floats:
    """The broken copy: it takes all directions for one."""
    return anytime(variances.sum(axis=1, keepdims=True))


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


def missed(rng: np.random.Generator, *, is_plain: bool) -> bool:
    """Whether the estimate is outside its bar at any time."""
    belief, form = Belief(SIZES), form_of(QUERY, SIZES)
    belief.open_block(int(COUNTS.sum()))
    for attributes, variance in TABLES:
        others = tuple(a for a in range(len(SIZES)) if a not in attributes)
        counts = COUNTS.sum(axis=others).astype(np.float64)
        noise = rng.normal(0.0, math.sqrt(variance), counts.shape)
        belief.absorb_table(attributes, 0, counts + noise, variance)
        evidence = belief.evidence(form, QUERY.key, range(1))
        bar = plain(evidence.variances[:, None]) if is_plain else evidence.anytime(MARGIN, BETA)
        if abs(evidence.values.item() - TRUTH) > bar.item():
            return True
    return False


def p_value(n_missed: int, n_trials: int) -> float:
    return float(binomtest(n_missed, n_trials, BETA, alternative="greater").pvalue)


@pytest.mark.parametrize("is_plain", [False, True], ids=["anytime", "broken copy"])
def test_a_query_that_is_asked_when_it_is_furthest_off_keeps_its_anytime_bar(
    is_plain: bool,
) -> None:
    rng = np.random.default_rng(1)
    n_missed = sum(missed(rng, is_plain=is_plain) for _ in range(N_TRIALS))
    assert (p_value(n_missed, N_TRIALS) > ALARM) is not is_plain


@pytest.mark.parametrize("bars", [anytime, plain], ids=["anytime", "broken copy"])
def test_where_all_looks_say_the_same_number_their_scales_may_be_chosen_too(bars: Bars) -> None:
    """Counts of one query in one phase, each as precise as suits somebody who has seen the others."""
    rng = np.random.default_rng(3)
    n_trials, n_looks = 4_000, 100
    precision = np.full(n_trials, 0.2 / PROMISED)
    errors = rng.normal(0.0, 1.0, n_trials) / np.sqrt(precision)
    off = np.abs(errors) > bars(1.0 / precision[:, None])
    for _ in range(n_looks):
        deviations = np.abs(errors) * np.sqrt(precision)
        added = precision * np.where(deviations > 2.0, 0.01, 0.1)  # slower where it is off
        fresh = rng.normal(0.0, 1.0, n_trials) / np.sqrt(added)
        errors = (precision * errors + added * fresh) / (precision + added)
        precision = precision + added
        off |= np.abs(errors) > bars(1.0 / precision[:, None])
    assert (p_value(int(off.sum()), n_trials) > ALARM) is (bars is anytime)


@pytest.mark.parametrize("n_directions", [3, 30])
@pytest.mark.parametrize("bars", [anytime, one_for_all, plain])
def test_whoever_refines_the_directions_of_one_sign_stays_within_the_bar(
    bars: Bars, n_directions: int
) -> None:
    """Residuals, or phases, of a query whose errors somebody knows. Three take one bar for all unharmed."""
    rng = np.random.default_rng(5)
    n_trials, every = 1_000, np.arange(1_000)
    variances = np.full((n_trials, n_directions), PROMISED / n_directions)
    errors = rng.normal(0.0, np.sqrt(variances))
    errors *= np.sign(errors.sum(axis=1, keepdims=True))
    off = np.zeros(n_trials, dtype=np.bool_)
    for _ in range(20 * n_directions):
        off |= np.abs(errors.sum(axis=1)) > bars(variances)
        worst = np.argmin(errors / np.sqrt(variances), axis=1)
        before, mean = variances[every, worst], errors[every, worst]
        after = 0.7 * before
        errors[every, worst] = rng.normal(0.7 * mean, np.sqrt(after * 0.3))
        variances[every, worst] = after
    holds = bars is anytime or (bars is one_for_all and n_directions == 3)
    assert (p_value(int(off.sum()), n_trials) > ALARM) is holds


def by_matrices(directions: Directions, margin: float, failure: float) -> float:
    """The bar of one answer by linear algebra, each direction a row and a column."""
    promised = (margin / z_steered(math.log(failure))) ** 2
    n_blocks = directions.known.shape[1]
    kept = (directions.norms[0] > 0.0) & (directions.known > 0.0).any(axis=1)
    norms = directions.norms[0, kept]
    least, variance, squares, logs = 0.125 * len(norms) * n_blocks / promised, 0.0, 0.0, 0.0
    for block in range(n_blocks):
        start = np.maximum(least, 0.125 / (norms * directions.before[kept, block]))
        precisions = np.diag(1.0 / (norms * directions.known[kept, block]))
        precisions += directions.counted[block]
        weights = np.linalg.pinv(precisions, hermitian=True).sum(axis=1)
        variance += weights.sum()
        squares += float((start * weights**2).sum())
        ratio = np.linalg.slogdet(precisions + np.diag(start)), np.log(start).sum()
        logs += float(ratio[0].logabsdet - ratio[1])
    factor = logs - 2.0 * math.log(0.1 * failure)
    return math.sqrt((variance + squares) * factor)


def test_the_boundary_is_that_of_linear_algebra() -> None:
    rng = np.random.default_rng(6)
    for n_parts, n_blocks in ((1, 1), (3, 1), (3, 4), (7, 2)):
        norms = rng.uniform(0.01, 1.0, (1, n_parts))
        before = rng.uniform(100.0, 1e5, (n_parts, n_blocks))
        before[rng.random(before.shape) < 0.3] = math.inf
        known = before / rng.uniform(1.0, 50.0, before.shape)
        known[np.isinf(known)] = rng.uniform(100.0, 1e4)
        counted = rng.uniform(0.0, 0.01, n_blocks)
        for counts in (np.zeros(n_blocks), counted):
            given = Directions(norms, known, before, counts)
            expected = by_matrices(given, MARGIN, BETA)
            assert given.bars(MARGIN, BETA).item() == pytest.approx(expected, rel=1e-9)


def test_where_counts_alone_tell_what_tables_do_not_they_share_the_boundary() -> None:
    nothing = np.full((3, 1), math.inf)
    given = Directions(np.array([[0.2, 0.3, 0.1]]), nothing, nothing, np.array([0.02]))
    expected = by_matrices(given, MARGIN, BETA)
    assert given.bars(MARGIN, BETA).item() == pytest.approx(expected, rel=1e-9)


def test_bars_of_what_is_known_exactly_or_not_at_all() -> None:
    bars = anytime(np.array([[0.0], [PROMISED], [math.inf]]))
    assert bars[0] == 0.0
    assert bars[1] / math.sqrt(PROMISED) == pytest.approx(
        math.sqrt(1.125 * (math.log(9.0) - 2.0 * math.log(0.1 * BETA))), rel=1e-12
    )
    assert bars[2] == math.inf
