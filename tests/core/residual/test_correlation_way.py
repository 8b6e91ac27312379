"""Correlations of a data set: one look at products, and looks at columns that nobody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Path, RefusalCode, Refused, Summed, Useful
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Product
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.composed_looks import StagedLook
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import CountsLook
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from tests.core.conftest import Drive

N = 48_842
UNIVERSE = Universe(
    (
        Category("x", tuple(f"v{i}" for i in range(10)), other=False, ordered=True),
        Category("y", tuple(f"v{i}" for i in range(8)), other=False, ordered=True),
        Category("group", ("v0", "v1"), other=False),
    )
)
X, Y = np.arange(10.0), np.arange(8.0)


def shares(slope: float) -> Any:
    """Two columns that fall off to both sides, and go together the more the larger the slope is."""
    x, y = (X - 4.5) / 2.0, (Y - 3.5) / 1.6
    law = np.exp(-0.5 * (x[:, None] ** 2 + y[None, :] ** 2 - 2 * slope * np.outer(x, y)))
    return np.stack([0.7 * law, 0.3 * law], axis=-1)


def correlation_of(table: Any, x: Any = X, y: Any = Y) -> float:
    law = table / table.sum()
    u, v = x - law.sum(axis=1) @ x, y - law.sum(axis=0) @ y
    return float(u @ law @ v / np.sqrt((law.sum(axis=1) @ u**2) * (law.sum(axis=0) @ v**2)))


def driven(slope: float = 0.3, *, aim: Aim | None = None, **settings: Any) -> Drive:
    mechanism = Calibrated(
        UNIVERSE,
        Privacy(1.0, 1e-9),
        Accuracy(0.05, 0.01),
        CalibratedSettings(**{"aim": aim, **settings}),
    )
    drive = Drive(UNIVERSE, mechanism, SeededNoise(np.random.default_rng(3)))
    drive.open(shares(slope), N)
    return drive


def asked(
    error: float | None = None, *, at_most: float | None = None, where: Predicate = EVERYTHING
) -> LinearQuery:
    total = Product((0, 1), (tuple(X), tuple(Y)), error)
    return LinearQuery(where, range(1), (), total, target=Target(share=error, at_most=at_most))


def ask(drive: Drive, query: LinearQuery) -> tuple[Summed, list[Look]]:
    step, looks = drive.mechanism.answer(query), list[Look]()
    while isinstance(step, Look):
        looks.append(step)
        step = drive.mechanism.conclude(query, step, drive.look(step))
    assert isinstance(step, Summed), step
    return step, looks


def measured(looks: list[Look]) -> list[type[Look]]:
    """The kind of each look: columns are counted, and products added up."""
    return [type(look.look) for look in looks if isinstance(look, StagedLook)]


def test_a_correlation_takes_one_cheap_look_where_columns_are_known() -> None:
    drive = driven(aim=Aim(0.1))
    truth = correlation_of(shares(0.3).sum(axis=-1))
    quote = drive.mechanism.quote(asked())
    answer, looks = ask(drive, asked())
    (cell,) = answer.cells
    (look,) = looks
    assert measured([look]) == [SumLook]
    assert look.charges == quote.charges
    assert cell.mean_ends is not None
    assert cell.mean_ends[0] <= truth <= cell.mean_ends[1]
    assert cell.mean_bar is not None
    assert cell.mean_bar < 0.08
    assert look.charges[0].rho < 0.011 * 2**50
    assert answer.use is not None
    assert answer.use.useful in (Useful.YES, Useful.ROUGH)
    again, looks = ask(drive, asked())
    assert again.path is Path.REPEAT
    assert again.cells == answer.cells
    assert not looks


def test_a_condition_takes_looks_at_both_columns_first() -> None:
    drive = driven(aim=Aim(0.1))
    where = Predicate.conjunction({2: np.array([True, False])})
    answer, looks = ask(drive, asked(where=where))
    assert measured(looks) == [CountsLook, CountsLook, SumLook]
    (cell,) = answer.cells
    truth = correlation_of(shares(0.3)[..., 0])
    assert cell.mean_ends is not None
    assert cell.mean_ends[0] <= truth <= cell.mean_ends[1]
    assert cell.mean_bar is not None
    assert cell.mean_bar < 0.14
    assert answer.use is not None
    assert answer.use.useful is Useful.ROUGH
    assert sum(look.charges[0].rho for look in looks) < 0.03 * 2**50


def test_an_error_that_is_named_is_kept() -> None:
    drive = driven(base_share=0.0)
    answer, _ = ask(drive, asked(0.03))
    (cell,) = answer.cells
    assert answer.path is Path.MEASURED
    assert cell.mean_bar is not None
    assert cell.mean_bar <= 0.03
    assert answer.use is None


def test_a_price_that_is_too_high_is_said() -> None:
    refused = driven(base_share=0.0).mechanism.answer(asked(0.01, at_most=0.001))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH


@pytest.mark.parametrize("on_exhausted", ["refuse", "unverified"])
def test_an_error_that_no_line_pays_for_is_refused_where_the_data_set_refuses(
    on_exhausted: str,
) -> None:
    step = driven(on_exhausted=on_exhausted).mechanism.answer(asked(0.00001))
    if on_exhausted == "refuse":
        assert isinstance(step, Refused)
        assert step.code is RefusalCode.WINDOW_TOO_SMALL
    else:
        assert isinstance(step, Summed)
        assert step.path is Path.UNVERIFIED
        assert step.cells[0].mean_ends == (-1.0, 1.0)


@pytest.mark.parametrize("slope", [-0.9, 0.0, 0.9])
def test_ends_hold_and_are_within_one_of_zero(slope: float) -> None:
    drive = driven(slope, aim=Aim(0.1))
    (cell,) = ask(drive, asked())[0].cells
    assert cell.mean_ends is not None
    low, high = cell.mean_ends
    assert -1.0 <= low <= correlation_of(shares(slope).sum(axis=-1)) <= high <= 1.0


@pytest.mark.parametrize("base_share", [None, 0.0])
def test_the_price_is_named_where_no_look_is_affordable_and_buys_the_answer(
    base_share: float | None,
) -> None:
    """Looks at columns are part of it, also for one who has paid for a rough answer before."""
    aim = Aim(0.1, easy_share=1e-4, query_share=1e-3)
    drive = driven(aim=aim, base_share=base_share)
    where = Predicate.conjunction({2: np.array([True, False])})
    answer, looks = ask(drive, asked(where=where))
    assert not looks
    for useful, bar in ((Useful.ROUGH, 0.14), (Useful.ROUGH, 0.08)):
        use = answer.use
        assert use is not None
        price = use.rough_price or use.aim_price
        assert price is not None
        most = 1.1 * price
        answer, looks = ask(drive, asked(where=where, at_most=most))
        assert measured(looks) == [CountsLook, CountsLook, SumLook]
        assert sum(look.charges[0].rho for look in looks) <= most * 2**50
        (cell,) = answer.cells
        assert cell.mean_bar is not None
        assert cell.mean_bar < bar
        assert answer.use is not None
        assert answer.use.useful is useful
        again, looks = ask(drive, asked(where=where, at_most=most))
        assert not looks
        assert again.cells == answer.cells
    assert answer.use is not None
    assert answer.use.aim_price is None, "it has been paid"
