"""How often bars miss where rows were erased, the worst that somebody can choose (docs/proofs, Theorem 39).

After the opening was published, a hundredth of the rows is erased, all of them in cells whose number is too
large there. Each look has noise of its own in each cell, so cells are counted. False alarms:
each count is too large by chance with probability at most 1e-6.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import Path, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from tests.core.residual.host import ALARM, Host, names
from tests.noise import QuickNoise

pytestmark = pytest.mark.slow

CELLS, TRIALS = 1_000, 100
PER_CELL = 2_000
N_ROWS = CELLS * PER_CELL
BETA = 0.01
ROUGH, SHARP = 60 / N_ROWS, 25 / N_ROWS
"""The error of the opening's tables, and that of a query that needs a look."""
MOST = int(binom.isf(ALARM, CELLS * TRIALS, BETA))

Ints = npt.NDArray[np.int64]


def a_block(counts: Ints) -> Block:
    codes = np.flatnonzero(counts).astype(np.uint16)
    return Block.seal(names(CELLS), Rows((codes,), counts[codes]), order=np.arange)


def off(answer: Any, counts: Ints) -> npt.NDArray[np.bool_]:
    """The cells whose bars do not reach these numbers of rows."""
    assert isinstance(answer, TableAnswered)
    told = np.array([[one.estimate, (one.error_bar or np.nan) * one.n] for one in answer.cells])
    return np.abs(told[:, 0] - counts) > told[:, 1]


def misses(factor: float = 1.0, *, mixes: bool = False) -> Counter[str]:
    """How often bars miss the rows that are left, and how often they miss those that were sealed.

    Args:
        factor: How much wider the noise is than it is said to be.
        mixes: Whether nobody says that rows were changed.
    """
    found = Counter[str]()
    table = LinearQuery(EVERYTHING, range(1), (0,))
    for trial in range(TRIALS):
        sealed = np.full(CELLS, PER_CELL)
        host = Host(
            names(CELLS),
            a_block(sealed),
            noise=QuickNoise(trial, factor),
            error=ROUGH,
            beta=BETA,
            base_share=0.04,
        )
        before = host.mechanism.state.evidence_at_opening(table).values
        worst = np.argsort(before)[-CELLS // 20 :]
        left = sealed.copy()
        left[worst] -= N_ROWS // 100 // len(worst)
        host.data = Blocks(names(CELLS), [a_block(left)])
        if not mixes:
            host.mechanism.changed_rows.add(0, N_ROWS // 100)
        again = host.mechanism.state.evidence_at_opening(table)
        assert (again.values == before).all(), "what was measured as the phase opened stays"
        answer = host.ask(LinearQuery(EVERYTHING, range(1), (0,), target=Target(share=SHARP)))
        assert answer.path is Path.MEASURED
        found["left"] += int(np.count_nonzero(off(answer, left)))
        found["sealed"] += int(np.count_nonzero(off(answer, sealed)))
    return found


def test_bars_hold_for_the_rows_that_are_left() -> None:
    found = misses()
    assert found["left"] <= MOST
    assert found["left"] > MOST // 2, "bars are no wider than they need to be"
    assert found["sealed"] > 3 * MOST, "they are about the rows that are left"


def test_noise_that_is_a_tenth_wider_misses_too_often() -> None:
    assert misses(1.1)["left"] > MOST


def test_bars_of_looks_at_different_rows_do_not_hold() -> None:
    """Where a look enters the memory, it is mixed with what was measured of the rows as they were."""
    assert misses(mixes=True)["left"] > 3 * MOST
