"""Quantiles of a data set: free where the counts of the bins are known, and measured as a table elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import Path, Quantiles, RefusalCode
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Rank
from stream_dp.core.residual.looks.table_looks import TablesLook
from tests.core.residual.host import Host, aimed, filled, names

CITY, STEP = range(2)
UNIVERSE = names(2, 5)
SHARES = np.array([[1, 4, 3, 1, 1], [1, 1, 1, 2, 5]])


def driven(**settings: Any) -> Host:
    block = filled(UNIVERSE, SHARES, 20_000)
    return Host(UNIVERSE, block, noise=3, **{"base_share": 0.0, **settings})


def asked(share: float, *group_by: int, error: float | None = None) -> LinearQuery:
    rank = Rank(STEP, share, tuple(range(5)))
    return LinearQuery(EVERYTHING, range(1), group_by, target=Target(share=error), rank=rank)


def bins(outcome: Quantiles) -> list[tuple[int, int]]:
    return [(cell.first, cell.last) for cell in outcome.cells]


def test_a_quantile_is_measured_once_and_all_others_are_free() -> None:
    it, query = driven(), asked(0.5, CITY, error=0.01)
    quote = it.mechanism.quote(query)
    look = it.step(query)
    assert isinstance(look, TablesLook)
    assert look.charges == quote.charges
    assert (quote.error_bar or 1.0) <= 0.01
    first = it.ask(query)
    assert first.path is Path.MEASURED
    assert bins(first) == [(1, 1), (3, 4)] or bins(first) == [(1, 2), (3, 4)]
    for other in (asked(0.5), asked(0.9, error=0.03), asked(0.9, CITY)):
        assert it.ask(other).path is Path.CERTIFIED


def test_what_opened_answers_with_the_bar_of_its_own_precision() -> None:
    it = driven(base_share=0.3)
    precise, coarse = (it.ask(asked(0.25, error=error)) for error in (0.005, 0.2))
    assert precise.path is coarse.path is Path.CERTIFIED
    assert precise.cells == coarse.cells, "nobody chose what was measured"


def test_without_budget_the_bins_are_those_that_are_known() -> None:
    it = driven()
    errors = (1e-5, 0.01, 1e-5)
    unknown, _, known = (it.ask(asked(0.5, error=error)) for error in errors)
    assert unknown.path is known.path is Path.UNVERIFIED
    assert unknown.cells[0].likely is None
    assert known.cells[0].likely is not None


def test_a_price_that_is_too_high_is_refused_with_the_price() -> None:
    refused = driven().step(aimed(asked(0.5, error=0.01), at_most=1e-6))
    assert refused.code is RefusalCode.PRICE_TOO_HIGH


def test_the_least_and_the_largest_value_have_an_open_end() -> None:
    it = driven(base_share=0.3)
    (least,), (largest,) = (it.ask(asked(share)).cells for share in (0.0, 1.0))
    assert (least.first, least.likely) == (0, (least.last, least.last))
    assert (largest.last, largest.likely) == (4, (largest.first, largest.first))


@pytest.mark.parametrize("more", [{"fresh": True}, {"difference": (range(1), range(1))}])
def test_a_quantile_is_asked_alone(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a quantile is asked alone"):
        replace(asked(0.5), **more)


def test_too_many_cells_are_refused() -> None:
    it = Host(names(1_001, 80), base_share=0.0)
    it.mechanism.open_phase(20_000)
    rank = Rank(0, 0.5, tuple(range(1_001)))
    refused = it.step(LinearQuery(EVERYTHING, range(1), (1,), rank=rank))
    assert refused.code is RefusalCode.TOO_MANY_CELLS
