"""No mean of a group without rows: the mean of a group is told once its count is surely above zero."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import Path, Sum
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Total
from stream_dp.core.residual import answer_maker
from stream_dp.core.residual.answers.count_answers import AnswerMaker
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.sums import least_deviations, ratio_bar

ALARM = 1e-6
BETA = 0.1
GROUPS, EMPTY, BINS = 60, 50, 4
VALUES = (0.0, 15.0, 45.0, 80.0)
QUERY = LinearQuery(EVERYTHING, range(1), (0,), Total(1, VALUES))
SCALE = 20.0


def truth() -> npt.NDArray[np.int64]:
    """Rows in each group and bin. The first groups have none."""
    rows = np.random.default_rng(1).integers(100, 300, (GROUPS, BINS))
    rows[:EMPTY] = 0
    return rows


def told(draw: np.random.Generator, query: LinearQuery = QUERY) -> tuple[Sum, ...]:
    """What an answer says of each group, after a table was measured."""
    rows = truth()
    belief = Belief(rows.shape)
    belief.open_block(int(rows.sum()))
    noisy = rows + draw.normal(0.0, SCALE, rows.shape)
    belief.absorb_table((0, 1), 0, noisy, SCALE**2)
    maker = AnswerMaker(rows.shape, Accuracy(0.02, BETA), belief, lambda _: pytest.fail("unused"))
    return maker.summed(query, Path.CERTIFIED).cells


@pytest.mark.parametrize("alone", [False, True])
def test_no_mean_of_a_group_without_rows_is_told_for_all_groups_together(
    monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    """The share of answers with such a mean is what the law says. False alarm: one in a million."""
    if alone:  # a copy that looks at each group by itself
        monkeypatch.setattr(
            answer_maker, "least_deviations", lambda _, beta: least_deviations(1, beta)
        )
    draw, rounds = np.random.default_rng(2), 400
    wrong = 0
    for _ in range(rounds):
        cells = told(draw)
        wrong += any(cell.mean is not None for cell in cells[:EMPTY])
        assert all(cell.mean is not None for cell in cells[EMPTY:])
    one = BETA / GROUPS  # of a normal count of deviation 1, above what it must be above
    law = 1.0 - (1.0 - one) ** EMPTY
    assert bool(binomtest(wrong, rounds, law).pvalue < ALARM) is alone
    assert bool(binomtest(wrong, rounds, BETA, "greater").pvalue < ALARM) is alone


@pytest.mark.parametrize("n_groups", [1, 2, 400, 30_000])
@pytest.mark.parametrize("beta", [0.1, 0.01, 1e-9])
def test_some_empty_group_is_taken_for_one_with_rows_with_the_stated_probability_at_most(
    n_groups: int, beta: float
) -> None:
    each = float(norm.sf(least_deviations(n_groups, beta)))
    together = -math.expm1(n_groups * math.log1p(-each))
    assert together <= beta * (1.0 + 1e-9)
    assert n_groups * each == pytest.approx(beta)


def test_a_count_that_may_be_zero_has_no_ratio() -> None:
    variances, least = (4.0, 25.0), least_deviations(400, 0.01)
    edge = 5.0 * float(norm.isf(0.01 / 400))
    assert ratio_bar(3.0, 1.001 * edge, variances, 0.0, 2.0, least) is not None
    assert ratio_bar(3.0, 0.999 * edge, variances, 0.0, 2.0, least) is None
    assert ratio_bar(3.0, 0.999 * edge, variances, 0.0, 2.0) is not None
    assert ratio_bar(3.0, 1.0, (0.0, 0.0), 0.0, 2.0, least) == pytest.approx(0.0)
    assert ratio_bar(0.0, 0.0, (0.0, 0.0), 0.0, 2.0, least) is None


def test_one_mean_needs_no_more_than_its_bar_does() -> None:
    """With one group Fieller's interval decides: the count is above zero at both sides of the bar."""
    cells = told(np.random.default_rng(3), LinearQuery(EVERYTHING, range(1), (), Total(1, VALUES)))
    assert len(cells) == 1
    assert cells[0].mean is not None
    for beta in (0.1, 0.01, 1e-9):
        assert least_deviations(1, beta) < norm.isf(beta / 2.0)
