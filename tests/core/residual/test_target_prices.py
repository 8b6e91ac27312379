"""A query's own error and price: how precise its answer is, what it costs, and when a repeat serves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered, Path, RefusalCode
from stream_dp.core.outcome import widest_bar as widest
from stream_dp.core.queries.query import LinearQuery, Total
from stream_dp.core.residual.answers.repeats import Repeats
from stream_dp.core.residual.plan.targets import Limits
from tests.core.residual.host import SIZES, Host, aimed, conjunction, opened, where

COUNT = LinearQuery(where(SIZES, {0: range(3)}), range(2))
TABLE = replace(COUNT, group_by=(1, 2))
SUM = replace(COUNT, total=Total(3, (0.0, 10.0, 20.0, 30.0, 50.0)))
counts = pytest.mark.parametrize("query", [COUNT, TABLE], ids=["count", "table"])


def unknown(**options: Any) -> Host:
    return opened(2, base_share=0.0, pacing=False, **options)


def price(it: Host, query: LinearQuery) -> float:
    """The largest share of any line that the query would take."""
    return max((c.rho for c in it.mechanism.quote(query).charges), default=0) / UNITS


def bar(outcome: Any) -> float:
    found = widest(outcome)
    assert found is not None
    return found


@pytest.mark.parametrize("share", [0.1, 0.02, 0.005, 0.002])
@counts
def test_an_answer_is_as_precise_as_its_query_asks_and_no_more(
    share: float, query: LinearQuery
) -> None:
    outcome = unknown().ask(aimed(query, share=share))
    assert outcome.path is Path.MEASURED
    assert 0.85 * share < bar(outcome) <= share * (1 + 1e-6)


@pytest.mark.parametrize(
    ("error", "target"), [(0.02, {"value": 200.0}), (0.02, {"share": 0.005}), (0.005, {})]
)
def test_an_error_in_rows_is_that_share_of_the_rows(error: float, target: dict[str, float]) -> None:
    """And the error of the data set counts where a query names none."""
    one, other = unknown(error=error), unknown(error=0.05)
    assert one.ask(aimed(COUNT, **target)) == other.ask(aimed(COUNT, share=0.005))
    assert one.charges == other.charges


def test_an_error_of_a_sum_is_in_its_own_unit() -> None:
    (cell,) = unknown().ask(aimed(SUM, value=20_000.0)).cells
    assert 0.85 * 20_000.0 < cell.total_bar <= 20_000.0 * (1 + 1e-6)


def test_the_price_of_a_count_goes_with_the_inverse_square_of_its_error() -> None:
    it = unknown()
    prices = [price(it, aimed(COUNT, share=share)) for share in (0.04, 0.02, 0.01, 0.005)]
    assert all(3.6 < finer / coarser < 4.4 for coarser, finer in pairwise(prices))


@pytest.mark.parametrize("base_share", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.1, 0.02, 0.004])
def test_a_quote_names_the_error_bar_that_the_answer_has(base_share: float, share: float) -> None:
    """Exactly, for all that follows from variances; answers between bounds say their own interval."""
    it = opened(3, base_share=base_share, pacing=False)
    rng = np.random.default_rng(3)
    for group_by in ((), (1,), (0, 2)) * 6:
        query = aimed(LinearQuery(conjunction(rng), range(3), group_by), share=share)
        quote = it.mechanism.quote(query)
        charged = len(it.charges)
        outcome = it.ask(query)
        assert tuple(it.charges[charged:]) == quote.charges
        assert not quote.expected
        assert quote.error_bar == pytest.approx(bar(outcome), rel=1e-9)
        assert outcome.path is not Path.UNVERIFIED


# ---------------------------------------------------------------- repeats


def test_a_looser_query_after_a_tighter_one_is_free_but_has_a_bar_of_its_own() -> None:
    """Others may have asked the tighter one until the estimate was off, so its bar is not for this one."""
    it = unknown()
    assert aimed(COUNT, share=0.002).key == COUNT.key, "it is the same query"
    tight, loose = (it.ask(aimed(COUNT, share=share)) for share in (0.002, 0.01))
    assert not it.looks
    assert (loose.count, loose.path) == (tight.count, Path.CERTIFIED)
    assert 1.5 * bar(tight) < bar(loose) < 0.01


def test_a_tighter_query_after_a_looser_one_pays_what_is_lacking_and_is_remembered() -> None:
    it, alone = unknown(), unknown()
    loose = it.ask(aimed(COUNT, share=0.01))
    tight = aimed(COUNT, share=0.005)
    assert 0.70 < price(it, tight) / price(alone, tight) < 0.80, "three quarters are lacking"
    found = it.ask(tight)
    assert found.path is Path.MEASURED
    assert bar(found) <= 0.005 * (1 + 1e-6) < bar(loose)
    again = it.ask(aimed(COUNT, share=0.01))
    assert (again.count, again.path) == (found.count, Path.CERTIFIED)
    assert bar(found) < bar(again) < bar(loose)
    assert it.restarted().ask(tight) == replace(found, path=Path.REPEAT)


@counts
def test_a_repeat_never_has_a_wider_bar_than_asked(query: LinearQuery) -> None:
    rng = np.random.default_rng(8)
    it = unknown()
    for share in (0.002 * 40.0 ** rng.random(40)).tolist():
        assert bar(it.ask(aimed(query, share=share))) <= share * (1 + 1e-5)


def test_the_check_of_repeats_catches_a_copy_that_serves_whatever_it_remembers() -> None:
    class Careless(Repeats):
        def answer(self, query: LinearQuery) -> Any:
            known = next(iter(self._verified.values()), None)
            return known and self._given(query, self._read(query, known)[0])

    it = unknown()
    it.state.repeats.__class__ = Careless
    it.ask(aimed(COUNT, share=0.01))
    assert bar(it.ask(aimed(COUNT, share=0.005))) > 0.005 * (1 + 1e-5)


# ---------------------------------------------------------------- prices that may not be passed


@pytest.mark.parametrize("query", [COUNT, TABLE, SUM], ids=["count", "table", "sum"])
def test_a_query_that_would_take_more_than_it_may_is_refused_with_its_price(
    query: LinearQuery,
) -> None:
    it = unknown()
    wanted = price(it, aimed(query, share=0.01))
    refused = it.ask(aimed(query, share=0.01, at_most=0.9 * wanted))
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert not it.charges
    said = float(refused.message.split("take ")[1].split("%")[0]) / 100
    assert wanted <= said <= 1.02 * wanted, "and that much is enough"
    look = it.step(aimed(query, share=0.01, at_most=said))
    assert isinstance(look, Look)
    assert max(c.rho for c in look.charges) <= said * UNITS


def test_what_is_free_may_be_asked_at_any_price() -> None:
    it = unknown()
    it.ask(aimed(COUNT, share=0.01))
    assert isinstance(it.ask(aimed(COUNT, share=0.01, at_most=1e-12)), Answered)


@pytest.mark.parametrize(
    ("limits", "target", "code", "allowed"),
    [
        (
            {"query_share": 0.001},
            {"share": 0.001},
            RefusalCode.PRICE_TOO_HIGH,
            {"share": 0.001, "at_most": 0.5},
        ),
        ({"least_error": 0.01}, {"share": 0.009}, RefusalCode.INVALID_QUERY, {"share": 0.01}),
        ({"least_error": 0.01}, {"value": 360.0}, RefusalCode.INVALID_QUERY, {"value": 400.0}),
    ],
)
def test_the_definition_limits_what_queries_may_ask_for(
    limits: dict[str, float], target: dict[str, float], code: RefusalCode, allowed: dict[str, float]
) -> None:
    it = unknown(limits=Limits(**limits))
    assert it.ask(aimed(COUNT, **target)).code is code
    assert isinstance(it.ask(aimed(COUNT, **allowed)), Answered)


def test_a_price_that_no_line_could_pay_is_not_called_too_high() -> None:
    """Where even the whole line would not do, the answer is what it is without a price."""
    it = unknown()
    assert it.ask(aimed(COUNT, value=0.5, at_most=0.1)).path is Path.UNVERIFIED
    assert not it.charges


def test_a_price_changes_nothing_of_the_look_that_it_pays_for() -> None:
    it = unknown()
    plain, priced = (it.step(aimed(COUNT, share=0.003, **more)) for more in ({}, {"at_most": 0.9}))
    assert priced.description == plain.description
    assert priced.charges == plain.charges
