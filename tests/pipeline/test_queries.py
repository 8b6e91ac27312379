"""What an analyst gets: answers, refusals, quotes, and the same again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_dp.core.outcome import Refused
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import LinearQuery
from stream_dp.messages import TOPICS
from stream_dp.pipeline.queries.compiler import MOST_CELLS
from stream_dp.pipeline.queries.query_answerer import MOST_PAID, _outcome
from tests.pipeline.flights import (
    AA,
    BY_CARRIER,
    CUT,
    LAST,
    LATE,
    UNMEASURED,
    asked,
    asked_in_turn,
    assert_said,
    judged,
    opened,
    spent,
)

pytestmark = judged


async def test_before_the_first_phase_a_query_is_refused_for_good(world: Any, process: Any) -> None:
    world.define("flights")
    early = {"query_id": "early", "where": AA}
    [refused] = await asked(process, early)
    assert refused["reason"]["code"] == "no_phase"
    assert "new id" in refused["reason"]["message"]
    world.cells("flights", "first")
    await process.run()
    again, later = await asked(process, early, {"where": AA})
    assert again == refused
    assert later["status"] == "answered"


async def test_the_same_id_gets_the_same_bytes_and_is_paid_once(first: Any, process: Any) -> None:
    paid = set()
    for where in ([AA, LATE], [AA, LATE], [LATE, AA]):  # the same predicate in other words
        [answer] = await asked(process, {"query_id": "q", "where": {"all": where}})
        assert answer["path"] == "measured"
        paid.add(spent(first))
    assert len(paid) == 1
    assert len(first.released("answers")) == 3


async def test_an_id_belongs_to_one_analyst(process: Any, first: Any) -> None:
    for analyst in ("ana", "bob"):
        [answer] = await asked(process, {"query_id": "q", "where": AA}, analyst=analyst)
        assert (answer["analyst"], answer["status"]) == (analyst, "answered")


@pytest.mark.parametrize(
    "other",
    [
        {"where": LATE},
        {"where": AA, **LAST},
        {"where": AA, "kind": "table", "group_by": ["cancelled"]},
        {"where": AA, "quote": True},
        {"where": AA, "fresh": True},
        {"where": AA, "error": 0.02},
        {"where": AA, "at_most": 0.5},
        {"where": AA, "series": "phase"},
        {"where": {"attribute": "carrier", "eq": "DL"}},
        {},
    ],
    ids=str,
)
async def test_an_id_is_not_used_for_another_query(
    first: Any, process: Any, other: dict[str, Any]
) -> None:
    [answer] = await asked(process, {"query_id": "q", "where": AA})
    paid = spent(first)
    [rejection] = await asked(process, {"query_id": "q", **other})
    assert rejection["reason"]["code"] == "id_reused"
    assert (rejection["analyst"], rejection["query_id"]) == ("ana", "q")
    assert await asked(process, {"query_id": "q", "where": AA}) == [answer]
    assert spent(first) == paid


async def test_a_query_refused_under_an_id_keeps_the_id(first: Any, process: Any) -> None:
    queries = [{"query_id": "q", "where": where} for where in (CUT, CUT, AA)]
    found = await asked_in_turn(process, *queries)
    assert [reply["reason"]["code"] for reply in found] == ["cuts_bin", "cuts_bin", "id_reused"]


async def test_a_quote_says_the_price_spends_nothing_and_is_not_stored(
    first: Any, process: Any
) -> None:
    asks = {"query_id": "q", "where": AA}
    [quote] = await asked(process, {**asks, "quote": True})
    assert quote["status"] == "quoted"
    assert quote["privacy_loss"]["share"] > 0
    assert "value" not in quote
    assert spent(first) == 0
    assert first.held("flights").answers == {}
    [answer] = await asked(process, asks)  # a quote does not use its id up
    assert answer["status"] == "answered"
    assert answer["privacy_loss"] == quote["privacy_loss"]


async def test_a_quote_that_cannot_be_answered_is_refused_and_not_stored(
    first: Any, process: Any
) -> None:
    quote = {"query_id": "q", "where": CUT, "quote": True}
    found = await asked_in_turn(process, quote, {"query_id": "q", "where": AA})
    assert [reply["status"] for reply in found] == ["refused", "answered"]


@pytest.mark.parametrize("item", [{}, BY_CARRIER])
async def test_a_fresh_answer_is_charged_under_each_new_id_and_once_under_its_own(
    first: Any, process: Any, item: dict[str, Any]
) -> None:
    plain = {"where": AA, **item}
    fresh = {**plain, "fresh": True}
    [quote] = await asked(process, {**fresh, "quote": True})
    price = quote["privacy_loss"]["share"]
    assert price > 0
    await asked(process, plain)
    paid = [spent(first)]
    for query_id in ("a", "b", "a"):
        [answer] = await asked(process, {"query_id": query_id, **fresh})
        paid.append(spent(first))
        assert answer["privacy_loss"]["share"] == price
        assert (answer["path"], answer["difficulty"]) == ("measured", "hard")
        assert "error_bar_anytime" not in answer
    assert paid[1] - paid[0] == paid[2] - paid[1] > 0
    assert paid[3] == paid[2]
    [reused] = await asked(process, {"query_id": "a", **plain})
    assert reused["reason"]["code"] == "id_reused"


async def test_a_profile_without_fresh_answers_refuses_them(process: Any) -> None:
    await opened(process, mechanism={"profile": "counts"})
    fresh_sum = {"where": None, "kind": "sum", "attribute": "delay"}
    cases = [({}, "unsupported_kind", "fresh"), (fresh_sum, "invalid_message", "fresh")]
    await assert_said(process, cases, where=AA, fresh=True)


async def test_a_window_longer_than_the_history_is_clamped_and_says_so(
    first: Any, process: Any
) -> None:
    long, every = await asked(process, {"where": AA, "window": {"last_phases": 3}}, {"where": AA})
    assert long["window"] == [1, 1]
    assert "clamped to the 1 phases" in long["note"]
    assert "note" not in every
    first.cells("flights", "second")
    await process.run()
    [last] = await asked(process, {"where": AA, **LAST})
    assert (last["window"], last["n"]) == ([2, 2], 21_000)


async def test_items_of_a_message_are_answered_each_in_order(first: Any, process: Any) -> None:
    wheres = {"one": AA, "cut": CUT, "two": AA}
    items = [{"query_id": name, "where": where} for name, where in wheres.items()]
    record = first.ask_many(
        "flights", [*items[:2], {**items[0], "where": LATE}, items[2], items[2]]
    )
    await process.run()
    found = [(reply["query_id"], reply["status"]) for reply in first.released("answers")]
    assert found == [("one", "answered"), ("cut", "refused"), *[("two", "answered")] * 2]
    assert first.rejection(record)["query_id"] == "one"
    assert first.answer("two")["path"] == "repeat"


async def test_a_message_may_hold_thousands_of_queries(first: Any, process: Any) -> None:
    """Its commits stay small, and the order is kept."""
    await asked(process, *[{"where": AA}] * 2_500)
    assert len(first.answers()) == 2_500
    commits = [len(entry.value) for entries in first.journal for entry in entries]
    assert max(commits) < 2 << 20


WIDE = [
    {"name": "a", "type": "category", "values": [f"a{n}" for n in range(175)], "other": False},
    {"name": "b", "type": "category", "values": [f"b{n}" for n in range(200)], "other": False},
    {"name": "c", "type": "boolean"},
]


async def test_the_largest_table_fits_into_a_record_and_a_larger_one_costs_nothing(
    world: Any, process: Any
) -> None:
    rows = {"cells": [{"a": "a1", "b": "b1", "count": 10**9}]}
    await opened(process, rows=rows, attributes=WIDE, mechanism=UNMEASURED, phase={"min_rows": 10})
    [largest] = await asked(process, {"kind": "table", "group_by": ["a", "b"]})
    assert len(largest["table"]["values"]) == MOST_CELLS
    sizes = [len(e.outgoing.value) for e in world.trail if hasattr(e, "outgoing")]
    assert max(sizes) < TOPICS["answers"].max_message_bytes - 100_000
    paid = spent(world)
    [larger] = await asked(process, {"kind": "table", "group_by": ["a", "b", "c"]})
    assert larger["reason"]["code"] == "too_many_cells"
    assert spent(world) == paid


OPERATORS = ["attribute", "eq", "in", "ge", "lt", "between", "is_missing", "all", "any", "not"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["carrier", "delay", "AA", "other", "", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*OPERATORS, "carrier"]), inner, max_size=3)
    ),
    max_leaves=12,
)
WHERES = st.dictionaries(st.sampled_from(["attribute", "eq", "all", "any", "not"]), JSON)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(wheres=st.lists(WHERES, max_size=8))
async def test_whatever_is_asked_has_exactly_one_outcome(
    make_world: Any, wheres: list[Any]
) -> None:
    world = make_world()
    process = await world.owner()
    await opened(process, mechanism=UNMEASURED)
    for n, where in enumerate(wheres):
        world.ask("flights", f"q{n}", where)
    await process.run()
    await process.kill()
    assert json.dumps(world.released("answers"))
    assert world.complaints() == []


async def test_a_budget_that_is_spent_leads_to_refusals_and_never_beyond(
    world: Any, process: Any
) -> None:
    accuracy = {"error": 0.0005, "failure_probability": 0.01}
    await opened(process, accuracy=accuracy, mechanism=UNMEASURED, on_exhausted="refuse")
    names = ["carrier", "delay", "cancelled"]
    groups = [[name for bit, name in enumerate(names) if n >> bit & 1] for n in range(1, 8)]
    found = await asked(process, *({"kind": "table", "group_by": group} for group in groups))
    codes = {answer.get("reason", {}).get("code") for answer in found}
    assert codes & {"budget_exhausted", "window_too_small"}
    assert spent(world) <= 1


async def test_what_would_be_paid_in_more_phases_than_a_ledger_entry_names_is_refused(
    first: Any, process: Any
) -> None:
    """A mechanism of 8,193 phases, each without a table yet, in the place of the one with one phase."""
    dataset = process.worker.datasets["flights"]
    for _ in range(MOST_PAID):
        dataset.mechanism.open_phase(10**9)
    window = range(MOST_PAID + 1)
    query = LinearQuery(compile_where(dataset.universe, AA), window)
    outcome, *charges = await _outcome(dataset, "ana", query)
    assert isinstance(outcome, Refused)
    assert "8,192 phases" in outcome.message
    assert charges == [(), ()]
    step = dataset.mechanism.answer(LinearQuery(query.predicate, window[1:]))
    assert len(step.charges) == MOST_PAID
    [answer] = await asked(process, {"where": AA})
    assert answer["path"] == "measured"
