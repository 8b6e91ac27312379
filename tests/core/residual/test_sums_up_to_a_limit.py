"""Sums of numbers up to a limit, ``SUM(LEAST(stay, 21))``: docs/proofs, Theorem 19."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Summed
from stream_dp.core.queries.conditions import compile_total
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Category, Number, Universe
from stream_dp.errors import InvalidQuery
from tests.noise import QuickNoise

STAY = Number("stay", (1, 2, 4, 7, 14, 21, 30, 60), measure=Measure(1.0, 0.0, 365.0))
STAYS = Universe((STAY, Category("ward", ("a", "b"), other=False)))
N_ROWS = 4_000
LENGTHS = np.exp(np.random.default_rng(1).normal(1.2, 0.8, N_ROWS))
KEPT = np.rint(LENGTHS)
"""What each row counts for."""
ROWS = {"stay": LENGTHS.tolist(), "ward": ["a", "b"] * (N_ROWS // 2)}


def asked(up_to: float | None = None, **target: Any) -> LinearQuery:
    total, _, predicate = compile_total(STAYS, "stay", None, (), up_to)
    return LinearQuery(predicate, range(1), (), total, None, Target(**target))


def rows() -> Blocks:
    data = Blocks(STAYS)
    data.append(Block.seal(STAYS, STAYS.encode_columns(ROWS)))
    return data


@pytest.mark.parametrize("up_to", STAY.edges)
def test_rows_beyond_the_limit_count_for_the_limit(up_to: float) -> None:
    """Exact, for each edge: the look adds up min(u, c), and pays for the range up to c."""
    query, size = asked(up_to), int(up_to)
    values = WholeValues.of(query)
    assert (values.low, values.high) == (0, size)
    look = SumLook(query, values, SumShape(0, size, size, False, True), ((0, 0, 0),), 1, ())
    ((doubled,),) = exact_sums(look, rows(), 0)
    assert (int(doubled) + size * N_ROWS) / 2 == np.minimum(KEPT, up_to).sum()


@pytest.mark.parametrize(("up_to", "fix"), [(5.0, "4 or 7"), (0.0, "1 or 2"), (400.0, "30 or 60")])
def test_a_limit_that_is_no_edge_is_refused_with_the_nearest(up_to: float, fix: str) -> None:
    with pytest.raises(InvalidQuery, match=fix) as fault:
        asked(up_to)
    assert fault.value.field == "up_to"


def test_bins_count_as_their_middles_up_to_the_limit_where_no_values_are_kept() -> None:
    plain = Universe((replace(STAY, measure=None),))
    total, _, _ = compile_total(plain, "stay", None, (), 7.0)
    assert total.largest == 7.0
    assert total.values == (1.0, 1.5, 3.0, 5.5, 7.0, 7.0, 7.0, 7.0, 7.0)


def test_a_limit_is_all_that_a_query_pays_for() -> None:
    mechanism = Calibrated(
        STAYS, Privacy(8.0, 1e-6), Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
    )
    assert not mechanism.open_phase(N_ROWS)
    narrow, wide = asked(7.0, value=4_000.0), asked(value=4_000.0)
    prices = [sum(c.rho for c in mechanism.quote(query).charges) for query in (narrow, wide)]
    assert 1_000 * prices[0] < prices[1]
    look = mechanism.answer(narrow)
    assert isinstance(look, Look)
    mechanism.charged(look.charges)
    release = look.take(QuickNoise(7), rows())
    mechanism.absorb(release)
    answer = mechanism.conclude(narrow, look, release)
    assert isinstance(answer, Summed)
    (cell,) = answer.cells
    assert cell.total_bar is not None
    assert abs(cell.total - np.minimum(KEPT, 7.0).sum()) <= cell.total_bar <= 4_000.0
