"""Quantiles of a data set: free where the counts of the bins are known, and measured as a table elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.outcome import Path, Quantiles, RefusalCode, Refused
from stream_dp.core.queries.conditions import compile_rank
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from tests.core.conftest import Drive

UNIVERSE = Universe(
    (
        Category("city", ("v0", "v1"), other=False),
        Category("step", tuple(f"v{i}" for i in range(5)), other=False, ordered=True),
    )
)
SHARES = np.array([[1, 4, 3, 1, 1], [1, 1, 1, 2, 5]])


def driven(**settings: Any) -> Drive:
    mechanism = Calibrated(
        UNIVERSE,
        Privacy(1.0, 1e-9),
        Accuracy(0.02, 0.01),
        CalibratedSettings(**{"base_share": 0.0, **settings}),
    )
    drive = Drive(UNIVERSE, mechanism, SeededNoise(np.random.default_rng(3)))
    drive.open(SHARES, 20_000)
    return drive


def asked(
    share: float, *, group_by: tuple[str, ...] = (), error: float | None = None
) -> LinearQuery:
    rank, predicate = compile_rank(UNIVERSE, "step", share, None, group_by)
    groups = tuple(UNIVERSE.index(name) for name in group_by)
    return LinearQuery(predicate, range(1), groups, target=Target(share=error), rank=rank)


def ask(drive: Drive, query: LinearQuery) -> Quantiles:
    outcome = drive.ask(query)
    assert isinstance(outcome, Quantiles)
    return outcome


def bins(outcome: Quantiles) -> list[tuple[int, int]]:
    return [(cell.first, cell.last) for cell in outcome.cells]


def test_a_quantile_is_measured_once_and_all_others_are_free() -> None:
    drive = driven()
    query = asked(0.5, group_by=("city",), error=0.01)
    quote = drive.mechanism.quote(query)
    look = drive.mechanism.answer(query)
    assert isinstance(look, TablesLook)
    assert look.charges == quote.charges
    assert quote.error_bar <= 0.01
    first = ask(drive, query)
    assert first.path is Path.MEASURED
    assert bins(first) == [(1, 1), (3, 4)] or bins(first) == [(1, 2), (3, 4)]
    for other in (asked(0.5), asked(0.9, error=0.03), asked(0.9, group_by=("city",))):
        assert ask(drive, other).path is Path.CERTIFIED


def test_what_opened_answers_with_the_bar_of_its_own_precision() -> None:
    drive = driven(base_share=0.3)
    precise, coarse = (ask(drive, asked(0.25, error=error)) for error in (0.005, 0.2))
    assert precise.path is coarse.path is Path.CERTIFIED
    assert precise.cells == coarse.cells, "nobody chose what was measured"


def test_without_budget_the_bins_are_those_that_are_known() -> None:
    drive = driven()
    unknown = ask(drive, asked(0.5, error=1e-5))
    assert unknown.path is Path.UNVERIFIED
    assert unknown.cells[0].likely is None
    ask(drive, asked(0.5, error=0.01))
    known = ask(drive, asked(0.5, error=1e-5))
    assert known.path is Path.UNVERIFIED
    assert known.cells[0].likely is not None


def test_a_price_that_is_too_high_is_refused_with_the_price() -> None:
    drive = driven()
    query = asked(0.5, error=0.01)
    dear = replace(query, target=Target(share=0.01, at_most=1e-6))
    refused = drive.mechanism.answer(dear)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH


def test_the_least_and_the_largest_value_have_an_open_end() -> None:
    drive = driven(base_share=0.3)
    (least,), (largest,) = (ask(drive, asked(share)).cells for share in (0.0, 1.0))
    assert (least.first, least.likely) == (0, (least.last, least.last))
    assert (largest.last, largest.likely) == (4, (largest.first, largest.first))


@pytest.mark.parametrize("more", [{"fresh": True}, {"difference": (range(1), range(1))}])
def test_a_quantile_is_asked_alone(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a quantile is asked alone"):
        replace(asked(0.5), **more)


def test_too_many_cells_are_refused() -> None:
    wide = Universe(
        (
            Number("a", tuple(map(float, range(1_000)))),
            Category("b", tuple(map(str, range(80))), other=False),
        )
    )
    mechanism = Calibrated(
        wide, Privacy(1.0, 1e-9), Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
    )
    mechanism.open_phase(20_000)
    rank, _ = compile_rank(wide, "a", 0.5, None, ("b",))
    refused = mechanism.answer(LinearQuery(EVERYTHING, range(1), (1,), rank=rank))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.TOO_MANY_CELLS
