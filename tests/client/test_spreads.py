"""STDDEV and VARIANCE of a number whose values are kept: their bars cover whatever lies in the bins."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from stream_dp import sql
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.sql.plan.statement_plan import Published
from tests.answers import table_answer, table_of

EDGES = [0, 10, 100, 1000]
LABELS = ["< 0", "0 to 10", "10 to 100", "100 to 1000", ">= 1000"]
KEPT = {"unit": 0.01, "low": 0.0, "high": 2000.0}
AMOUNT: dict[str, Any] = {"name": "amount", "type": "number", "edges": EDGES, "measure": KEPT}


def made(
    aggregate: str,
    counts: Sequence[float],
    bar: float,
    of_cells: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Any, Any, tuple[str, ...]]:
    """The value, its bar and the notes, for counts of bins with this half width in rows.

    ``of_cells`` replaces the bars that hold for all cells at once.
    """
    n = 100_000
    of_cells = of_cells or {"error_bars_simultaneous": [bar / n] * 5}
    answer = table_answer({"amount": LABELS}, counts, bar, n=n, cells=of_cells)
    table = table_of(f"SELECT {aggregate} FROM people", [AMOUNT | more], answer)
    ((value, half),) = table.rows
    return value, half, table.notes


COUNTS = [0, 9_000, 9_000, 9_000, 9_000]
UNKNOWN: dict[str, Any] = {"error_bars_simultaneous": [None] * 5}


def test_bars_that_hold_at_once_if_they_are_wider_serve_where_no_others_are_known() -> None:
    at_once = made("STDDEV_POP(amount)", COUNTS, 150.0)
    wider = made("STDDEV_POP(amount)", COUNTS, 120.0, {**UNKNOWN, "wider": 1.25})
    assert wider == at_once
    assert wider[1] > made("STDDEV_POP(amount)", COUNTS, 120.0)[1]
    counted = {"count_bars": [150.0] * 5, "wider": 1.0}
    assert made("STDDEV_POP(amount)", COUNTS, 9_000.0, counted) == at_once, "shares need more"


def test_a_deviation_by_bars_of_single_bins_says_which_confidence_all_of_them_leave() -> None:
    value, half, notes = made("STDDEV_POP(amount)", COUNTS, 120.0, UNKNOWN)
    assert (value, half) == made("STDDEV_POP(amount)", COUNTS, 120.0)[:2]
    assert any(note.endswith("a confidence of at least 95%") for note in notes)
    assert not any("at least" in note for note in made("STDDEV_POP(amount)", COUNTS, 120.0)[2])


def test_a_deviation_that_is_unknown_says_how_many_rows_there_may_be() -> None:
    value, _, notes = made("STDDEV_POP(amount)", [0, 20, 0, 50, 0], 90.0)
    assert value is None
    assert any("too few rows, or none: all rows: 70 ± 450 rows" in note for note in notes)


def splits(counts: Sequence[int], bar: int, ends: Sequence[tuple[float, float]]) -> Iterator[Any]:
    """The rows, their sum and the sum of their squares, for each way to put rows on the ends of bins."""
    choices = [
        [
            (below + above, below * low + above * high, below * low**2 + above * high**2)
            for rows in range(max(0, count - bar), count + bar + 1)
            for below in range(rows + 1)
            for above in (rows - below,)
        ]
        for count, (low, high) in zip(counts, ends, strict=True)
    ]
    for each in itertools.product(*choices):
        yield [sum(column) for column in zip(*each, strict=True)]


@pytest.mark.parametrize("aggregate", ["VAR_POP", "VAR_SAMP", "STDDEV_POP"])
@pytest.mark.parametrize("representatives", [None, (-1.0, 9.9, 99.9, 999.9, 2000.0)])
@pytest.mark.parametrize(
    ("counts", "bar", "most"),
    [
        ([0, 5, 4, 6, 3], 0, 1.05),
        ([0, 9, 0, 0, 6], 0, 1.02),
        ([0, 0, 0, 8, 0], 0, 1.02),
        ([0, 2, 2, 3, 2], 1, 1.6),
        ([0, 6, 0, 2, 0], 1, 1.3),
    ],
)
def test_the_bar_is_the_largest_distance_to_a_variance_that_rows_can_have(
    counts: list[int], bar: int, most: float, representatives: Any, aggregate: str
) -> None:
    """Each row lies on one of the ends of its bin, as all do that vary most, and most that vary least.

    With representatives near the upper ends it is the smallest variance that is far away.
    """
    value, half, _ = made(f"{aggregate}(amount)", counts, bar, representatives=representatives)
    less = aggregate == "VAR_SAMP"
    ends = [(0.0, 0.0), (0.0, 10.0), (10.0, 100.0), (100.0, 1000.0), (1000.0, 2000.0)]
    found = [
        max(0.0, squares - total**2 / rows) / (rows - less)
        for rows, total, squares in splits(counts, bar, ends)
        if rows > less
    ]
    if aggregate == "STDDEV_POP":
        found = [math.sqrt(each) for each in found]
    worst = max(abs(each - value) for each in found)
    assert worst <= half * (1.0 + 1e-9)
    assert half <= most * worst, "the bar is no excuse"


@pytest.mark.parametrize(
    "number",
    [
        Number("x", (0, 10, 100, 1000), measure=Measure(0.01, 0.0, 2000.0)),
        Number("x", (-5, 0, 7, 200), integer=True, measure=Measure(1.0, -20.0, 100.0)),
        Number("x", (-0.35, 0.25, 1.05, 7.0), measure=Measure(0.1, -1.0, 5.0)),
        Number("x", (3, 8, 12), measure=Measure(5.0, 0.0, 20.0)),
        Number("x", (1, 2), integer=True, representatives=(0, 1, 9), measure=Measure(2.0, 0.0, 8.0)),
    ],
)  # fmt: skip
def test_the_ends_of_bins_are_what_their_least_and_largest_rows_are_kept_as(number: Number) -> None:
    measure = number.measure
    assert measure is not None
    attribute = {"type": "number", **asdict(number), "measure": asdict(measure)}
    (output,) = sql.plan("SELECT VAR_POP(x)", [attribute]).outputs
    assert isinstance(output.expression, Published)
    lows, middles, highs = zip(*output.expression.bins, strict=True)
    kept = measure.value(np.array(number.measured_ends[: len(lows)])).T
    assert lows == pytest.approx(kept[0], abs=1e-12)
    assert highs == pytest.approx(kept[1], abs=1e-12)
    assert all(
        low <= middle <= high for low, middle, high in zip(lows, middles, highs, strict=True)
    )


def test_whatever_rows_a_table_has_their_deviation_is_within_its_bar() -> None:
    """With exact counts, so no bar may fail."""
    draw = random.Random(7)
    number = Number("amount", tuple(EDGES), measure=Measure(0.01, 0.0, 2000.0))
    assert number.measure is not None
    for _ in range(20):
        size = draw.choice([2, 5, 40])
        values = [draw.choice([-3.0, 4.0, 9.995, 99.996, 2.0 * draw.random() * 10 ** draw.randint(0, 4)])
                  for _ in range(size)]  # fmt: skip
        codes, offsets = number.encode_measured(np.array(values))
        counts = np.bincount(codes, minlength=5).tolist()
        kept = number.measure.value(offsets.astype(np.int64))
        for aggregate, ddof in (("STDDEV_POP", 0), ("STDDEV", 1)):
            value, half, _ = made(f"{aggregate}(amount)", counts, 0.0)
            assert abs(value - math.sqrt(np.var(kept, ddof=ddof))) <= half * (1.0 + 1e-9) + 1e-6
