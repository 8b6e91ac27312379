"""The factor of running totals: its golden numbers, what it decodes to, and how far it is from the best."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from stream_dp.core.running.tick_factor import TickFactor, factor_of
from tests.core.running.periods import Ints, lower_bound
from tests.slow import rest_is_slow


def matrix_of(factor: TickFactor) -> Ints:
    matrix = np.zeros((factor.ticks, factor.ticks), dtype=np.int64)
    for tick in range(1, factor.ticks + 1):
        matrix[tick - 1, :tick] = factor.row(tick)
    return matrix


def exact_decoder(matrix: Ints) -> list[list[Fraction]]:
    """The rows of L with L R = A, in fractions."""
    ticks, rows = len(matrix), []
    for last in range(ticks):
        row = [Fraction(0)] * ticks
        for at in range(last, -1, -1):
            rest = sum((row[k] * int(matrix[k, at]) for k in range(at + 1, last + 1)), Fraction(0))
            row[at] = (1 - rest) / int(matrix[at, at])
        rows.append(row)
    return rows


def test_the_factor_of_four_ticks() -> None:
    factor = factor_of(4)
    assert matrix_of(factor).tolist() == [
        [839, 0, 0, 0],
        [420, 868, 0, 0],
        [315, 434, 916, 0],
        [262, 326, 458, 1024],
    ]
    assert factor.column_square == 1048820
    rows = exact_decoder(matrix_of(factor))
    exact = [sum((weight**2 for weight in row), Fraction(0)) for row in rows]
    assert exact[:2] == [Fraction(1, 703921), Fraction(904625, 530350975504)]
    assert factor.variances == pytest.approx([float(one) for one in exact], rel=1e-12)
    for tick, row in enumerate(rows, 1):
        assert factor.weights(tick) == pytest.approx([float(w) for w in row[:tick]], abs=1e-15)


@pytest.mark.parametrize(
    ("ticks", "digest", "square", "largest", "last", "price"),
    [
        (24, "0c25ea13672860cf", 1049384, 3.47241393246e-06, 2.98013287745e-06, 3.6438956),
        (31, "9e373cd22f72d30b", 1049384, 3.76695926635e-06, 3.18279208572e-06, 3.9529868),
        (1440, "54645ba04e2b9fa3", 1050054, 9.69995927051e-06, 6.96767497308e-06, 10.185481),
    ],
)
def test_golden_factors(
    ticks: int, digest: str, square: int, largest: float, last: float, price: float
) -> None:
    factor = factor_of(ticks)
    stored = matrix_of(factor).astype("<i8").tobytes()
    assert hashlib.sha256(stored).hexdigest().startswith(digest)
    assert factor.column_square == square
    assert factor.variances.max() == pytest.approx(largest, rel=1e-11)
    assert factor.variances[-1] == pytest.approx(last, rel=1e-11)
    assert factor.price == pytest.approx(price, abs=5e-7)


@pytest.mark.parametrize("ticks", [1, 2, 5, 24, 168])
def test_totals_and_rates_decode_exactly_what_came(ticks: int) -> None:
    factor, matrix = factor_of(ticks), matrix_of(factor_of(ticks))
    for tick in range(1, ticks + 1):
        for after in {0, tick // 2, tick - 1}:
            weights = factor.weights(tick, after)
            came = weights @ matrix[:tick]
            wanted = (np.arange(ticks) >= after) & (np.arange(ticks) < tick)
            assert came == pytest.approx(wanted.astype(float), abs=1e-12)
            assert factor.variance(tick, after) == pytest.approx(float(weights @ weights))


def test_each_row_is_largest_on_the_diagonal() -> None:
    """Else a tick that is taken again could cost more than is charged for it."""
    for ticks in (1, 2, 3, 7, 24, 31, 168, 1440):
        factor = factor_of(ticks)
        for tick in range(1, ticks + 1):
            row = factor.row(tick)
            assert row.max() == row[-1] > 0 <= row.min()


@pytest.mark.parametrize("ticks", rest_is_slow([24, 25, 36, 48, 96, 168, 288, 744, 1440], first=7))
def test_the_price_is_within_a_tenth_of_what_any_factors_cost(ticks: int) -> None:
    """Acceptance: at most 10.5% above the bound, and 3.65 and 10.19 counts for 24 and 1,440 ticks."""
    price, bound = factor_of(ticks).price, lower_bound(ticks)
    assert bound <= price <= 1.105 * bound
    assert price <= {24: 3.65, 1440: 10.19}.get(ticks, price)
    assert root_price(ticks) > 1.2 * bound


def root_price(ticks: int) -> float:
    """What the square root costs whose columns are not made equally long; it is its own decoder."""
    roots = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, ticks))])
    return float((roots @ roots) ** 2)


def test_disjoint_ticks_and_totals_one_by_one_cost_a_count_for_each() -> None:
    ones = np.eye(24, dtype=np.int64)
    assert TickFactor(ones).price == pytest.approx(24)
    assert TickFactor(np.tri(24, dtype=np.int64)).price == pytest.approx(24)
    assert lower_bound(24) < factor_of(24).price < 24


def test_the_price_grows_with_the_ticks() -> None:
    prices = [factor_of(ticks).price for ticks in range(1, 60)]
    assert prices[0] == pytest.approx(1.0)
    assert all(later > earlier for earlier, later in pairwise(prices))
