"""What a look gave is for those it is committed for: until then no log line or traceback may tell it."""

from __future__ import annotations

import numpy as np
import pytest

from stream_dp.core.baselines.whole_noisy_table import TableRelease
from stream_dp.core.kinds.between.between_answerer import BetweenRelease
from stream_dp.core.kinds.correlated_vector.vector_answerer import ResponsesRelease
from stream_dp.core.kinds.median_mode.stable_answerer import StableRelease
from stream_dp.core.kinds.points import PointRelease, RunKey
from stream_dp.core.kinds.prefix_batch.batch_answerer import BatchRelease
from stream_dp.core.kinds.threshold.curve_answerer import CurvesRelease
from stream_dp.core.mechanism import Release
from stream_dp.core.median.doubling_stages import StageRelease
from stream_dp.core.median.phase_looks import QueryRelease
from stream_dp.core.outcome import Side
from stream_dp.core.queries.query import EVERYTHING
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.looks.table_looks import CountsRelease, Part, TablesRelease
from stream_dp.core.residual.plan.sum_price import SumShape
from stream_dp.core.sparse_vector.gates import CountRelease

WINDOW, KEY = range(2), bytes(16)
KEYS, SHAPE = (KEY, KEY, KEY), SumShape(0, 9, 9, grouped=True, every_row=True)
ZEROS, ONES = np.zeros((2, 2), dtype=np.int64), np.ones((2, 2), dtype=np.int64)

EASY, HARD = (QueryRelease(1, 0, WINDOW, EVERYTHING, hard, 7 * hard) for hard in (False, True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (EASY, HARD),
        (StageRelease(1, EASY), StageRelease(1, HARD)),
        (CountRelease(1, WINDOW, EVERYTHING, False, 0), CountRelease(1, WINDOW, EVERYTHING, True, 7)),
        (TablesRelease((Part((0, 1), 0, 5),), (ZEROS,)), TablesRelease((Part((0, 1), 0, 5),), (ONES,))),
        (CountsRelease(KEY, (0,), ((0, 5),), ZEROS), CountsRelease(KEY, (0,), ((0, 5),), ONES)),
        (SumRelease(KEYS, (0,), 1.0, SHAPE, ((0, 5, 5),), ZEROS[None]),
         SumRelease(KEYS, (0,), 1.0, SHAPE, ((0, 5, 5),), ONES[None])),
        (TableRelease(0, ZEROS), TableRelease(0, ONES)),
        (CurvesRelease(0, (1,), (b"1",)), CurvesRelease(0, (1,), (b"2",))),
        (StableRelease(KEY, 0, None), StableRelease(KEY, 0, 3)),
        (BatchRelease(0, WINDOW, 4, 0.1, {KEY: 1}), BatchRelease(0, WINDOW, 4, 0.1, {KEY: 2})),
        (ResponsesRelease(0, b"1"), ResponsesRelease(0, b"2")),
        (BetweenRelease(1, WINDOW, KEY, Side.BELOW), BetweenRelease(1, WINDOW, KEY, Side.ABOVE)),
        (
            PointRelease(1, RunKey(0, WINDOW), 3, (Side.BELOW,)),
            PointRelease(1, RunKey(0, WINDOW), 3, (Side.ABOVE,)),
        ),
    ],
    ids=lambda release: type(release).__name__,
)  # fmt: skip
def test_the_repr_of_a_release_is_the_same_whatever_was_drawn(one: Release, other: Release) -> None:
    assert one.to_bytes() != other.to_bytes()
    assert repr(one) == repr(other)
