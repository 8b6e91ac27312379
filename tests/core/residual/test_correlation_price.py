"""The look at products costs what two rows can differ by (docs/proofs, Theorem 32 (a)).

What each row adds is worked out from its cells, and all pairs of rows are compared in exact fractions.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Product
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.composed_looks import StagedLook
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from tests.core.conftest import Drive

X, Y = (0.0, 1.0, 2.0, 50.0), (-3.0, 0.0, 0.5)
UNIVERSE = Universe(
    (
        Category("x", tuple(f"v{i}" for i in range(4)), other=False, ordered=True),
        Category("y", tuple(f"v{i}" for i in range(3)), other=False, ordered=True),
        Category("group", ("v0", "v1"), other=False),
    )
)
SHARES = np.array([[4, 3, 1], [3, 9, 2], [1, 3, 6], [0.01, 0.02, 0.05]])
SOME = Predicate.conjunction({2: np.array([True, False])})


def product_look(where: Predicate, **privacy: Any) -> tuple[SumLook, Drive]:
    aim = Aim(0.4, 0.5, 0.9, 0.9, 0.9)
    mechanism = Calibrated(
        UNIVERSE, Privacy(1.0, 1e-9, **privacy), Accuracy(0.1, 0.1), CalibratedSettings(aim=aim)
    )
    drive = Drive(UNIVERSE, mechanism, SeededNoise(np.random.default_rng(3)))
    drive.open(np.stack([0.7 * SHARES, 0.3 * SHARES], axis=-1), 40_000)
    for opening in mechanism.opened():
        drive.look(opening)
    query = LinearQuery(where, range(1), (), Product((0, 1), (X, Y)))
    step = mechanism.answer(query)
    while isinstance(step, StagedLook):
        if isinstance(step.look, SumLook):
            return step.look, drive
        step = mechanism.conclude(query, step, drive.look(step))
    pytest.fail("products are looked at")


def added(look: SumLook, cell: tuple[int, ...]) -> tuple[int, int]:
    """What a row of a cell adds to the sum, and to the count."""
    total = look.query.total
    assert isinstance(total, Product)
    if not look.query.predicate.along((0, 1, 2))[
        0, 0, min(cell[2], look.query.predicate.n_cells - 1)
    ]:
        return 0, 0
    number = int(total.factors[0][cell[0]]) * int(total.factors[1][cell[1]])
    return 2 * number - look.shape.centre, 1


@pytest.mark.parametrize("where", [EVERYTHING, SOME], ids=["all rows", "some rows"])
@pytest.mark.parametrize("persons", [False, True])
def test_it_costs_the_largest_distance_of_two_rows(where: Predicate, persons: bool) -> None:
    look, _ = product_look(where, **({"unit": Unit(1, 1)} if persons else {}))
    (_, of_sums, of_counts), shape = look.steps[0], look.shape
    tau, sigma = grid_sigma(of_sums), grid_sigma(of_counts) if shape.counts else None
    rows = [added(look, cell) for cell in np.ndindex(*UNIVERSE.shape)]
    blank = [(0, 0)] if persons else rows
    exact = max(
        (Fraction(a - c) / tau) ** 2 + (0 if sigma is None else (Fraction(b - d) / sigma) ** 2)
        for (a, b), (c, d) in itertools.product(rows, blank)
    )
    assert shape.rho(tau, sigma) == exact / 2
    narrow = Fraction(max(abs(a) for a, _ in rows) - 1)
    assert (narrow / tau) ** 2 < exact, "a range that is one unit too short would cost less"


def test_it_adds_up_what_each_row_counts_for() -> None:
    look, drive = product_look(SOME)
    (table,) = drive.data.marginal((0, 1, 2), range(1))
    expected = np.zeros(2, dtype=np.int64)
    for cell in np.ndindex(*UNIVERSE.shape):
        expected += int(table[cell]) * np.array(added(look, cell))
    assert exact_sums(look, drive.data, 0)[:, 0].tolist() == expected.tolist()


def test_values_far_out_count_as_the_last_bin_within() -> None:
    look, _ = product_look(EVERYTHING)
    assert isinstance(look.query.total, Product)
    far, near = look.query.total.factors[0][3], look.query.total.factors[0][2]
    assert far == near
    assert "product" in look.description
