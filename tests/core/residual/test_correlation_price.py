"""The look at products costs what two rows can differ by (docs/proofs, Theorem 32 (a)).

What each row adds is worked out from its cells, and all pairs of rows are compared in exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.budget.parameters import Aim, Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Product
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from tests.core.residual.host import PRIVACY, Host, dearest, filled, names, where

X, Y = (0.0, 1.0, 2.0, 50.0), (-3.0, 0.0, 0.5)
UNIVERSE = names(4, 3, 2)
SHARES = np.array([[4, 3, 1], [3, 9, 2], [1, 3, 6], [0.01, 0.02, 0.05]])
SOME = where(UNIVERSE.shape, {2: [0]})


def product_look(condition: Predicate, privacy: Privacy = PRIVACY) -> tuple[SumLook, Host]:
    """The first look at products, which is the last one of the query."""
    block = filled(UNIVERSE, np.stack([0.7 * SHARES, 0.3 * SHARES], axis=-1), 40_000)
    options: dict[str, Any] = {"aim": Aim(0.4, 0.5, 0.9, 0.9, 0.9), "privacy": privacy}
    it = Host(UNIVERSE, block, noise=3, error=0.1, beta=0.1, **options)
    for look in it.mechanism.opened():
        it.take(look)
    it.ask(LinearQuery(condition, range(1), (), Product((0, 1), (X, Y))))
    last: Any = it.looks[-1]
    assert isinstance(last.look, SumLook)
    return last.look, it


def added(look: SumLook) -> npt.NDArray[np.int64]:
    """What a row of each cell adds to the sum, and to the count: shape (2, cells)."""
    total = look.query.total
    assert isinstance(total, Product)
    numbers = np.rint(np.multiply.outer(*total.factors)).astype(np.int64)[..., None]
    inside = np.broadcast_to(look.query.predicate.along((0, 1, 2)), UNIVERSE.shape)
    each = (2 * numbers - look.shape.centre) * inside, inside
    return np.array([one.ravel() for one in each], dtype=np.int64)


@pytest.mark.parametrize("condition", [EVERYTHING, SOME], ids=["all rows", "some rows"])
@pytest.mark.parametrize("persons", [False, True])
def test_it_costs_the_largest_distance_of_two_rows(condition: Predicate, persons: bool) -> None:
    look, _ = product_look(condition, Privacy(1.0, 1e-9, Unit(1, 1)) if persons else PRIVACY)
    (_, of_sums, of_counts), shape = look.steps[0], look.shape
    tau, sigma = grid_sigma(of_sums), grid_sigma(of_counts) if shape.counts else None
    rows = [row[:, None] for row in added(look).T]
    price = dearest(rows, [tau, sigma], blank=persons)
    assert shape.rho(tau, sigma) == price
    narrow = Fraction(max(abs(int(row[0, 0])) for row in rows) - 1)
    assert (narrow / tau) ** 2 < 2 * price, "a range that is one unit too short would cost less"


def test_it_adds_up_what_each_row_counts_for() -> None:
    look, it = product_look(SOME)
    (table,) = it.data.marginal((0, 1, 2), range(1))
    assert exact_sums(look, it.data, 0)[:, 0].tolist() == (added(look) @ table.ravel()).tolist()


def test_values_far_out_count_as_the_last_bin_within() -> None:
    look, _ = product_look(EVERYTHING)
    assert isinstance(look.query.total, Product)
    far, near = look.query.total.factors[0][3], look.query.total.factors[0][2]
    assert far == near
    assert "product" in look.description
