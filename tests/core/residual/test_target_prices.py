"""A query's own error and price: how precise its answer is, what it costs, and when a repeat serves."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    RefusalCode,
    Refused,
    Summed,
    TableAnswered,
)
from stream_dp.core.outcome import widest_bar as widest
from stream_dp.core.queries.query import LinearQuery, Predicate, Total
from stream_dp.core.residual.plan.targets import Limits
from stream_dp.core.residual.public_state import PublicState
from tests.core.residual.test_calibrated import Host, conjunction, host

HALF = Predicate.conjunction({0: np.array([True] * 3 + [False] * 3)})
TABLE = LinearQuery(HALF, range(2), (1, 2))


def asked(target: Target, query: LinearQuery | None = None) -> LinearQuery:
    return replace(LinearQuery(HALF, range(2)) if query is None else query, target=target)


def fresh(**options: Any) -> Host:
    return host(2, base_share=0.0, pacing=False, **options)


def price(it: Host, query: LinearQuery) -> float:
    """The largest share of any line that the query would take."""
    return max((c.rho for c in it.mechanism.quote(query).charges), default=0) / UNITS


def bar(outcome: Outcome) -> float:
    found = widest(outcome)
    assert found is not None
    return found


def test_a_target_changes_nothing_of_what_a_query_is_known_by() -> None:
    plain = LinearQuery(HALF, range(2))
    assert asked(Target(share=0.001)).key == plain.key
    assert asked(Target(share=0.001)) != plain


@pytest.mark.parametrize("share", [0.1, 0.02, 0.005, 0.002])
@pytest.mark.parametrize("query", [None, TABLE], ids=["count", "table"])
def test_an_answer_is_as_precise_as_its_query_asks_and_no_more(
    share: float, query: LinearQuery | None
) -> None:
    it = fresh()
    outcome = it.ask(asked(Target(share=share), query))
    assert isinstance(outcome, Answered | TableAnswered)
    assert outcome.path is Path.MEASURED
    assert 0.85 * share < bar(outcome) <= share * (1 + 1e-6)


def test_an_error_in_rows_is_that_share_of_the_rows() -> None:
    one, other = fresh(), fresh()
    rows = one.ask(asked(Target(value=200.0)))
    share = other.ask(asked(Target(share=200.0 / 40_000)))
    assert rows == share
    assert one.charges == other.charges


def test_an_error_of_a_sum_is_in_its_own_unit() -> None:
    total = Total(3, (0.0, 10.0, 20.0, 30.0, 50.0))
    query = LinearQuery(HALF, range(2), total=total)
    it = fresh()
    outcome = it.ask(asked(Target(value=20_000.0), query))
    assert isinstance(outcome, Summed)
    bar_of_total = outcome.cells[0].total_bar
    assert bar_of_total is not None
    assert 0.85 * 20_000.0 < bar_of_total <= 20_000.0 * (1 + 1e-6)


def test_the_price_of_a_count_goes_with_the_inverse_square_of_its_error() -> None:
    it = fresh()
    prices = [price(it, asked(Target(share=share))) for share in (0.04, 0.02, 0.01, 0.005)]
    assert all(3.6 < finer / coarser < 4.4 for coarser, finer in pairwise(prices))


def test_the_error_of_the_data_set_counts_where_a_query_names_none() -> None:
    one, other = fresh(error=0.01), fresh(error=0.05)
    plain = LinearQuery(HALF, range(2))
    first, second = one.ask(plain), other.ask(asked(Target(share=0.01)))
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert first == second
    assert one.charges == other.charges


# ---------------------------------------------------------------- quotes


@pytest.mark.parametrize("base_share", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.1, 0.02, 0.004])
def test_a_quote_names_the_error_bar_that_the_answer_has(base_share: float, share: float) -> None:
    """Exactly, for all that follows from variances; answers between bounds say their own interval."""
    it = host(3, base_share=base_share, pacing=False)
    rng, seen = np.random.default_rng(3), set[Path]()
    for group_by in ((), (1,), (0, 2)) * 6:
        query = LinearQuery(conjunction(rng), range(3), group_by, target=Target(share=share))
        quote = it.mechanism.quote(query)
        charged = len(it.charges)
        outcome = it.ask(query)
        assert isinstance(outcome, Answered | TableAnswered)
        assert tuple(it.charges[charged:]) == quote.charges
        assert not quote.expected
        assert quote.error_bar == pytest.approx(bar(outcome), rel=1e-9)
        seen.add(outcome.path)
    assert seen <= {Path.MEASURED, Path.CERTIFIED, Path.BOUNDED, Path.REPEAT}


# ---------------------------------------------------------------- repeats


def test_a_looser_query_after_a_tighter_one_is_free_but_has_a_bar_of_its_own() -> None:
    """Others may have asked the tighter one until the estimate was off, so its bar is not for this one."""
    it = fresh()
    tight = it.ask(asked(Target(share=0.002)))
    charged = list(it.charges)
    loose = it.ask(asked(Target(share=0.01)))
    assert isinstance(tight, Answered)
    assert isinstance(loose, Answered)
    assert (loose.count, loose.path) == (tight.count, Path.CERTIFIED)
    assert 1.5 * bar(tight) < bar(loose) < 0.01
    assert it.charges == charged


def test_a_tighter_query_after_a_looser_one_pays_what_is_lacking_and_is_remembered() -> None:
    it, alone = fresh(), fresh()
    loose = it.ask(asked(Target(share=0.01)))
    tight = asked(Target(share=0.005))
    paid = price(it, tight)
    assert 0.70 < paid / price(alone, tight) < 0.80, "three quarters are lacking"
    found = it.ask(tight)
    assert isinstance(loose, Answered)
    assert isinstance(found, Answered)
    assert found.path is Path.MEASURED
    assert bar(found) <= 0.005 * (1 + 1e-6) < bar(loose)
    again = it.ask(asked(Target(share=0.01)))
    assert isinstance(again, Answered)
    assert (again.count, again.path) == (found.count, Path.CERTIFIED)
    assert bar(found) < bar(again) < bar(loose)
    assert it.restarted().ask(tight) == replace(found, path=Path.REPEAT)


@pytest.mark.parametrize("query", [None, TABLE], ids=["count", "table"])
def test_a_repeat_never_has_a_wider_bar_than_asked(query: LinearQuery | None) -> None:
    rng = np.random.default_rng(8)
    it = fresh()
    for share in (0.002 * 40.0 ** rng.random(40)).tolist():
        outcome = it.ask(asked(Target(share=share), query))
        assert bar(outcome) <= share * (1 + 1e-5)


def test_the_check_of_repeats_catches_a_copy_that_serves_whatever_it_remembers() -> None:
    class Careless(PublicState):
        def repeated(self, query: LinearQuery) -> Answered | TableAnswered | None:
            known = next(iter(self.repeats._verified.values()), None)
            if known is None:
                return None
            return self.repeats._given(query, self.repeats._read(query, known)[0])

    it = fresh()
    it.mechanism.state.__class__ = Careless
    it.ask(asked(Target(share=0.01)))
    assert bar(it.ask(asked(Target(share=0.005)))) > 0.005 * (1 + 1e-5)


# ---------------------------------------------------------------- prices that may not be passed


@pytest.mark.parametrize("query", [None, TABLE], ids=["count", "table"])
def test_a_query_that_would_take_more_than_it_may_is_refused_with_its_price(
    query: LinearQuery | None,
) -> None:
    it = fresh()
    wanted = price(it, asked(Target(share=0.01), query))
    refused = it.ask(asked(Target(share=0.01, at_most=0.9 * wanted), query))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert not it.charges
    said = float(refused.message.split("take ")[1].split("%")[0]) / 100
    assert wanted <= said <= 1.02 * wanted, "and that much is enough"
    outcome = it.ask(asked(Target(share=0.01, at_most=said), query))
    assert isinstance(outcome, Answered | TableAnswered)
    assert max(c.rho for c in it.charges) <= said * UNITS


def test_what_is_free_may_be_asked_at_any_price() -> None:
    it = fresh()
    it.ask(asked(Target(share=0.01)))
    assert isinstance(it.ask(asked(Target(share=0.01, at_most=1e-12))), Answered)


def test_a_sum_is_refused_by_its_price_too() -> None:
    query = LinearQuery(HALF, range(2), total=Total(3, (0.0, 1.0, 2.0, 3.0, 5.0)))
    it = fresh()
    wanted = price(it, asked(Target(share=0.01), query))
    refused = it.ask(asked(Target(share=0.01, at_most=0.5 * wanted), query))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert not it.charges


def test_the_definition_limits_queries_that_name_no_price() -> None:
    it = fresh(limits=Limits(query_share=0.001))
    refused = it.ask(asked(Target(share=0.001)))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert isinstance(it.ask(asked(Target(share=0.001, at_most=0.5))), Answered)


def test_no_query_may_ask_for_less_than_the_least_error() -> None:
    it = fresh(limits=Limits(least_error=0.01))
    for target in (Target(share=0.009), Target(value=0.009 * 40_000)):
        refused = it.ask(asked(target))
        assert isinstance(refused, Refused)
        assert refused.code is RefusalCode.INVALID_QUERY
    assert isinstance(it.ask(asked(Target(share=0.01))), Answered)


def test_a_price_that_no_line_could_pay_is_not_called_too_high() -> None:
    """Where even the whole line would not do, the answer is what it is without a price."""
    it = fresh()
    outcome = it.ask(asked(Target(value=0.5, at_most=0.1)))
    assert isinstance(outcome, Answered)
    assert outcome.path is Path.UNVERIFIED
    assert not it.charges


def test_a_look_of_a_query_with_a_target_is_replayed_like_any_other() -> None:
    it = fresh()
    step = it.mechanism.answer(asked(Target(share=0.003, at_most=0.9)))
    assert isinstance(step, Look)
    assert step.description == it.mechanism.answer(asked(Target(share=0.003))).description  # type: ignore[union-attr]
    assert math.isclose(price(it, asked(Target(share=0.003))), step.charges[0].rho / UNITS)
