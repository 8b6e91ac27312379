"""The price of a bundle: what is quoted, what is paid, and that quoting changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.mechanism import BundleQuote, Look, Mechanism, dearest
from stream_dp.core.outcome import Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Total
from stream_dp.core.residual.belief.shelf import Shelf
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.rehearsal import CalibratedRehearsal
from tests.core.residual.host import SIZES, Host, aimed, opened, stream, where

HALF = LinearQuery(where(SIZES, {0: range(3)}), range(2))
SUM = Total(2, (0.0, 1.0, 2.5, 4.0))


def paid_for(it: Host, queries: list[LinearQuery]) -> tuple[tuple[Charge, ...], list[Any]]:
    """Asks all queries; returns what they cost together, and the outcomes."""
    before = len(it.charges)
    outcomes = it.ask_all(queries)
    return summed(it.charges[before:]), outcomes


def seen(it: Host, queries: list[LinearQuery]) -> list[object]:
    """What the mechanism knows about each query, and what it would do with it."""
    mechanism, state, found = it.mechanism, it.state, list[object]()
    for query in queries:
        evidence = state.evidence(query)
        found += [mechanism.quote(query), evidence.values.tolist(), evidence.variances.tolist()]
        found.append(evidence.by_block().tolist())
        found.append(state.spending.allocator.rent(query.attributes, query.window))
    found.append(mechanism.lines.left().tolist())
    return [*found, dict(state.repeats._verified), repr(mechanism)]


def bounded(outcomes: list[Any]) -> bool:
    return any(getattr(outcome, "path", None) is Path.BOUNDED for outcome in outcomes)


@pytest.mark.parametrize("base_share", [0.0, None])
@pytest.mark.parametrize("pacing", [True, False])
def test_a_bundle_without_bounded_answers_costs_what_was_quoted_unit_for_unit(
    base_share: float | None, pacing: bool
) -> None:
    """At an error at which no bound on these rows is close enough."""
    # What the data set measures more by itself is in test_growing.
    options: dict[str, Any] = {"base_share": base_share, "pacing": pacing, "grows": False}
    it = opened(4, error=0.003, on_exhausted="refuse", **options)
    queries = stream(3, 60, 4)
    bundle = it.mechanism.quote_together(queries)
    added = Mechanism.rehearse(it.mechanism, sparing=False)
    singly = summed(c for query in queries for c in added.quote(query).charges)
    paid, outcomes = paid_for(it, queries)
    assert not bounded(outcomes)
    assert bundle.low == bundle.high == paid != singly
    assert dearest(paid) > UNITS / 100
    for quote, outcome in zip(bundle.quotes, outcomes, strict=True):
        assert (quote.outcome is None) is (getattr(outcome, "path", None) is Path.MEASURED)
        assert isinstance(quote.outcome, Refused) is isinstance(outcome, Refused)


def test_it_costs_less_than_the_queries_quoted_one_by_one() -> None:
    it = opened(4, error=0.01, base_share=0.0)
    queries = stream(3, 60, 4)
    single = summed(c for query in queries for c in it.mechanism.quote(query).charges)
    assert dearest(it.mechanism.quote_together(queries).high) < 0.8 * dearest(single)


def test_bounded_answers_make_a_range_that_the_price_lies_near() -> None:
    """An answer that is bounded skips a look that a later query would have used: no end is a promise."""
    it = opened(4, error=0.05, base_share=0.0)
    queries = stream(3, 60, 4)
    bundle = it.mechanism.quote_together(queries)
    paid, outcomes = paid_for(it, queries)
    assert bounded(outcomes)
    assert 0.95 * dearest(bundle.low) <= dearest(paid) <= 1.05 * dearest(bundle.high)
    assert dearest(bundle.low) < dearest(bundle.high)


def test_quoting_changes_nothing() -> None:
    it = opened(3, base_share=0.0, n=5_000)
    first, then = stream(3, 40, 3), stream(4, 40, 3)
    paid_for(it, first)
    before = seen(it, first + then)
    bundle = it.mechanism.quote_together(first + then)
    assert bundle.high
    assert seen(it, first + then) == before
    assert it.mechanism.remembered() == {}
    twin = it.restarted()
    assert it.mechanism.quote_together(first + then) == bundle
    assert twin.mechanism.quote_together(first + then) == bundle
    twin.noise = copy.deepcopy(it.noise)
    assert paid_for(it, then) == paid_for(twin, then)


def test_a_copy_and_its_original_go_on_apart() -> None:
    it = opened(2, base_share=0.0, n=5_000)
    queries = stream(3, 40, 2)
    paid_for(it, queries[:20])
    other, untouched = it.restarted(), it.restarted()
    other.mechanism = CalibratedRehearsal(it.mechanism, bounds=True).fork
    other.noise, untouched.noise = (copy.deepcopy(it.noise) for _ in range(2))
    of_other = paid_for(other, queries[20:])
    assert paid_for(it, queries[20:]) == of_other == paid_for(untouched, queries[20:])


def test_the_test_notices_a_copy_that_shares_what_it_changes() -> None:
    """The two tests above can fail."""
    it = opened(2, base_share=0.0, n=5_000)
    queries = stream(3, 20, 2)
    before = seen(it, queries)
    rehearsal = CalibratedRehearsal(it.mechanism, bounds=True)
    rehearsal.fork = copy.copy(it.mechanism)
    for query in queries:
        rehearsal.quote(query)
    assert seen(it, queries) != before


def test_a_query_that_comes_twice_is_paid_once_and_no_later_query_passes_a_line() -> None:
    it = opened(error=0.004, base_share=0.0, pacing=False, on_exhausted="refuse")
    query = replace(HALF, window=range(1))
    bundle = it.mechanism.quote_together([query, query])
    assert dearest(bundle.quotes[0].charges) > 0
    assert bundle.quotes[1].charges == ()
    many = [
        LinearQuery(where(SIZES, {a: range(cells)}), range(1), (b,))
        for a, n in enumerate(SIZES)
        for cells in range(1, n)
        for b in range(4)
        if b != a
    ]
    bundle = it.mechanism.quote_together(many)
    assert UNITS / 2 < dearest(bundle.high) <= UNITS
    refused = [q.outcome for q in bundle.quotes if isinstance(q.outcome, Refused)]
    assert {outcome.code for outcome in refused} == {RefusalCode.BUDGET_EXHAUSTED}


def test_what_earlier_queries_would_publish_answers_later_ones_in_the_order_asked() -> None:
    it = opened(2, error=0.01, base_share=0.0)
    tables = [LinearQuery(EVERYTHING, range(2), (a,)) for a in range(4)]
    parts = [LinearQuery(where(SIZES, {0: [k]}), range(2)) for k in range(6)]
    for queries, paying in (([*tables, *parts], 4), ([parts[0], tables[0]], 2)):
        bundle = it.mechanism.quote_together(queries)
        paid = [bool(quote.charges) for quote in bundle.quotes]
        assert paid == [number < paying for number in range(len(queries))]


# ---------------------------------------------------------------- queries at the prices of now


def test_queries_that_are_priced_separately_add_up_once_each() -> None:
    it = opened(error=0.004, base_share=0.0)
    one = LinearQuery(where(SIZES, {0: [0]}), range(1))
    two = LinearQuery(EVERYTHING, range(1), (0,))
    first, second = it.mechanism.quote(one).charges, it.mechanism.quote(two).charges
    assert dearest(first) != dearest(second)
    dear = Mechanism.rehearse(it.mechanism, sparing=False)
    assert [dear.quote(q).charges for q in (one, one, two)] == [first, (), second]
    spared = Mechanism.rehearse(it.mechanism, sparing=True)
    total = summed(c for q in (one, one, two) for c in spared.quote(q).charges)
    assert total == max(first, second, key=dearest)


def test_nothing_asked_costs_nothing() -> None:
    assert opened().mechanism.quote_together([]) == BundleQuote((), (), ())


# ---------------------------------------------------------------- what copies share


def test_a_shelf_copies_a_value_only_when_it_is_about_to_change() -> None:
    shelf = Shelf[str, list[int]](list, list)
    shelf.own("a").append(1)
    shelf.own("b").append(2)
    held = shelf.get("a")
    other = copy.deepcopy(shelf)
    assert other.get("a") is held
    other.own("a").append(3)
    shelf.own("b").append(4)
    other.own("c").append(5)
    assert [shelf.get(key) for key in "abc"] == [[1], [2, 4], None]
    assert [other.get(key) for key in "abc"] == [[1, 3], [2], [5]]
    again = other.own("a")
    assert other.own("a") is again
    assert (list(shelf), list(other), len(other)) == (["a", "b"], ["a", "b", "c"], 3)


# ---------------------------------------------------------------- other kinds of queries


def test_a_relative_error_is_priced_stage_by_stage_for_a_count_like_todays_estimate() -> None:
    it = opened(2)
    query = aimed(HALF, relative=0.01, at_most=0.5)
    bundle = it.mechanism.quote_together([query, query])
    first, again = bundle.quotes
    assert first.expected
    assert again.charges == ()
    single = it.mechanism.quote(query)
    assert dearest(first.charges) == pytest.approx(dearest(single.charges), rel=0.5)
    assert it.mechanism.quote_together([query, query]) == bundle


@pytest.mark.parametrize("error", [0.02, 0.005])
def test_sums_of_a_bundle_cost_what_was_quoted_and_quoting_them_changes_nothing(
    error: float,
) -> None:
    it = opened(3, error=error, base_share=0.0)
    half, every = (LinearQuery(p, range(3)) for p in (HALF.predicate, EVERYTHING))
    queries = [
        replace(half, total=SUM),
        replace(every, group_by=(1,), total=SUM),
        replace(every, group_by=(1,)),
        replace(half, window=range(1, 3), total=SUM, rows=EVERYTHING),
        replace(every, total=SUM),
        half,
    ]
    before = [it.mechanism.quote(query) for query in queries]
    bundle = it.mechanism.quote_together([*queries, *queries])
    assert it.mechanism.quote_together([*queries, *queries]) == bundle
    assert [it.mechanism.quote(query) for query in queries] == before
    assert any(isinstance(it.step(query), SumLook) for query in queries)
    paid, _ = paid_for(it, [*queries, *queries])
    assert bundle.low == bundle.high == paid
    assert dearest(paid) > 0
    assert not any(quote.charges for quote in bundle.quotes[len(queries) :])
    assert it.mechanism.quote_together(queries).high == ()


def test_fresh_queries_of_a_bundle_are_all_paid_and_serve_no_other_one() -> None:
    it = opened(2, error=0.01, base_share=0.0)
    fresh = replace(HALF, fresh=True)
    queries = [fresh, fresh, HALF, HALF]
    bundle = it.mechanism.quote_together(queries)
    paid, _ = paid_for(it, queries)
    assert bundle.low == bundle.high == paid
    assert [bool(quote.charges) for quote in bundle.quotes] == [True, True, True, False]


@pytest.mark.parametrize("base_share", [None, 0.0])
def test_the_error_of_a_mean_is_priced_for_a_count_like_todays_estimate(
    base_share: float | None,
) -> None:
    """Where little is known a pilot comes first, and the price is that of all looks."""
    it = opened(2, base_share=base_share)
    query = aimed(replace(HALF, total=SUM), mean=0.02)
    bundle = it.mechanism.quote_together([query])
    single = it.mechanism.quote(query)
    assert bundle.quotes[0].charges == single.charges
    assert single.expected is (base_share == 0.0)
    if single.expected:
        assert single.most is not None
        first: Any = it.step(query)
        assert isinstance(first, Look)
        assert dearest(first.charges) < dearest(single.charges) < single.most
    assert it.mechanism.quote_together([query]) == bundle
