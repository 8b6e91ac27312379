"""Correlations of a data set: one look at products, and looks at columns that nobody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Aim, Target
from stream_dp.core.outcome import Path, RefusalCode, Useful
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Product
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import CountsLook
from tests.core.residual.host import Host, filled, names, where

N = 48_842
UNIVERSE = names(10, 8, 2)
X, Y = np.arange(10.0), np.arange(8.0)
SOME = where(UNIVERSE.shape, {2: [0]})


def shares(slope: float = 0.3) -> Any:
    """Two columns that fall off to both sides, and go together the more the larger the slope is."""
    x, y = (X - 4.5) / 2.0, (Y - 3.5) / 1.6
    law = np.exp(-0.5 * (x[:, None] ** 2 + y[None, :] ** 2 - 2 * slope * np.outer(x, y)))
    return np.stack([0.7 * law, 0.3 * law], axis=-1)


def correlation_of(table: Any) -> float:
    law = table / table.sum()
    u, v = X - law.sum(axis=1) @ X, Y - law.sum(axis=0) @ Y
    return float(u @ law @ v / np.sqrt((law.sum(axis=1) @ u**2) * (law.sum(axis=0) @ v**2)))


def driven(slope: float = 0.3, **settings: Any) -> Host:
    block = filled(UNIVERSE, shares(slope), N)
    return Host(UNIVERSE, block, noise=3, error=0.05, **settings)


def asked(
    error: float | None = None, *, at_most: float | None = None, where: Predicate = EVERYTHING
) -> LinearQuery:
    total = Product((0, 1), (tuple(X), tuple(Y)), error)
    return LinearQuery(where, range(1), (), total, target=Target(share=error, at_most=at_most))


def measured(it: Host) -> list[type]:
    """The kind of each look: columns are counted, and products added up."""
    looks: Any = it.looks
    return [type(look.look) for look in looks]


def rho(it: Host) -> float:
    """What all looks took of the line."""
    return sum(look.charges[0].rho for look in it.looks) / UNITS


def test_a_correlation_takes_one_cheap_look_where_columns_are_known() -> None:
    it, truth = driven(aim=Aim(0.1)), correlation_of(shares().sum(axis=-1))
    quote = it.mechanism.quote(asked())
    answer = it.ask(asked())
    (cell,) = answer.cells
    assert measured(it) == [SumLook]
    assert it.looks[0].charges == quote.charges
    assert cell.mean_ends[0] <= truth <= cell.mean_ends[1]
    assert cell.mean_bar < 0.08
    assert rho(it) < 0.011
    assert answer.use.useful in (Useful.YES, Useful.ROUGH)
    again = it.ask(asked())
    assert (again.path, again.cells) == (Path.REPEAT, answer.cells)
    assert not it.looks


def test_a_condition_takes_looks_at_both_columns_first() -> None:
    it = driven(aim=Aim(0.1))
    answer = it.ask(asked(where=SOME))
    assert measured(it) == [CountsLook, CountsLook, SumLook]
    (cell,) = answer.cells
    assert cell.mean_ends[0] <= correlation_of(shares()[..., 0]) <= cell.mean_ends[1]
    assert cell.mean_bar < 0.14
    assert answer.use.useful is Useful.ROUGH
    assert rho(it) < 0.03


def test_an_error_that_is_named_is_kept() -> None:
    answer = driven(base_share=0.0).ask(asked(0.03))
    assert (answer.path, answer.use) == (Path.MEASURED, None)
    assert answer.cells[0].mean_bar <= 0.03


def test_a_price_that_is_too_high_is_said() -> None:
    refused = driven(base_share=0.0).step(asked(0.01, at_most=0.001))
    assert refused.code is RefusalCode.PRICE_TOO_HIGH


def test_an_error_that_no_line_pays_for_is_refused_where_the_data_set_refuses() -> None:
    refused, step = (
        driven(on_exhausted=each).step(asked(0.00001)) for each in ("refuse", "unverified")
    )
    assert refused.code is RefusalCode.WINDOW_TOO_SMALL
    assert step.path is Path.UNVERIFIED
    assert step.cells[0].mean_ends == (-1.0, 1.0)


@pytest.mark.parametrize("slope", [-0.9, 0.0, 0.9])
def test_ends_hold_and_are_within_one_of_zero(slope: float) -> None:
    (cell,) = driven(slope, aim=Aim(0.1)).ask(asked()).cells
    low, high = cell.mean_ends
    assert -1.0 <= low <= correlation_of(shares(slope).sum(axis=-1)) <= high <= 1.0


@pytest.mark.parametrize("base_share", [None, 0.0])
def test_the_price_is_named_where_no_look_is_affordable_and_buys_the_answer(
    base_share: float | None,
) -> None:
    """Looks at columns are part of it, also for one who has paid for a rough answer before."""
    it = driven(aim=Aim(0.1, easy_share=1e-4, query_share=1e-3), base_share=base_share)
    answer = it.ask(asked(where=SOME))
    assert not it.looks
    for bar in (0.14, 0.08):
        most = 1.1 * (answer.use.rough_price or answer.use.aim_price)
        answer = it.ask(asked(where=SOME, at_most=most))
        assert measured(it) == [CountsLook, CountsLook, SumLook]
        assert rho(it) <= most
        assert answer.cells[0].mean_bar < bar
        assert answer.use.useful is Useful.ROUGH
        again = it.ask(asked(where=SOME, at_most=most))
        assert not it.looks
        assert again.cells == answer.cells
    assert answer.use.aim_price is None, "it has been paid"
