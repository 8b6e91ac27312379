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

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


def _spent(world: Any) -> Any:
    return world.held("flights").spent


async def test_before_the_first_phase_a_query_is_refused_for_good(world: Any, process: Any) -> None:
    world.define("flights")
    await process.run()
    world.ask("flights", "early", AA)
    await process.run()
    assert world.answer("early")["reason"]["code"] == "no_phase"
    assert "new id" in world.answer("early")["reason"]["message"]
    world.cells("flights", "first")
    await process.run()
    world.ask("flights", "early", AA)
    world.ask("flights", "later", AA)
    await process.run()
    assert world.answer("early")["reason"]["code"] == "no_phase"
    assert world.answer("later")["status"] == "answered"
    assert world.complaints() == []


async def test_the_same_id_gets_the_same_bytes_and_is_paid_once(first: Any, process: Any) -> None:
    for _ in range(3):
        first.ask("flights", "q", {"all": [AA, LATE]})
        await process.run()
    spent = _spent(first)
    first.ask("flights", "q", {"all": [LATE, AA]})  # the same predicate in other words
    await process.run()
    assert len(first.released("answers")) == 4
    assert first.answer("q")["path"] == "measured"
    assert _spent(first) == spent
    assert first.complaints() == []


async def test_an_id_belongs_to_one_analyst(first: Any, process: Any) -> None:
    item = {"query_id": "q", "where": AA}
    for analyst in ("ana", "bob"):
        first.ask_many("flights", [item], analyst=analyst)
        await process.run()
    assert {name[1] for name in first.answers()} == {"ana", "bob"}
    assert first.complaints() == []


@pytest.mark.parametrize(
    "other",
    [
        {"where": LATE},
        {"where": AA, "window": {"last_phases": 1}},
        {"where": AA, "kind": "table", "group_by": ["cancelled"]},
        {"where": AA, "quote": True},
        {"where": {"attribute": "carrier", "eq": "DL"}},
        {},
    ],
)
async def test_an_id_is_not_used_for_another_query(
    first: Any, process: Any, other: dict[str, Any]
) -> None:
    first.ask("flights", "q", AA)
    await process.run()
    answer, spent = first.answer("q"), _spent(first)
    record = first.ask("flights", "q", **other)
    await process.run()
    rejection = first.rejection(record)
    assert rejection["reason"]["code"] == "id_reused"
    assert (rejection["analyst"], rejection["query_id"]) == ("ana", "q")
    assert first.answer("q") == answer
    assert _spent(first) == spent
    assert first.complaints() == []


async def test_a_query_refused_under_an_id_keeps_the_id(first: Any, process: Any) -> None:
    cut = {"attribute": "delay", "ge": 7}
    for where in (cut, cut, AA):
        first.ask("flights", "q", where)
        await process.run()
    assert [reply["status"] for reply in first.released("answers")] == ["refused", "refused"]
    assert first.released("rejected")[0]["reason"]["code"] == "id_reused"
    assert first.complaints() == []


async def test_a_quote_says_the_price_spends_nothing_and_is_not_stored(
    first: Any, process: Any
) -> None:
    first.ask("flights", "q", AA, quote=True)
    await process.run()
    quote = first.answer("q")
    assert quote["status"] == "quoted"
    assert quote["privacy_loss"]["share"] > 0
    assert "value" not in quote
    assert _spent(first) == [(0, 0)]
    assert first.held("flights").answers == {}
    first.ask("flights", "q", AA)  # a quote does not use its id up
    await process.run()
    answer = first.answer("q")
    assert answer["status"] == "answered"
    assert answer["privacy_loss"] == quote["privacy_loss"]
    assert first.complaints() == []


@pytest.mark.parametrize("item", [{}, {"kind": "table", "group_by": ["carrier"]}])
async def test_a_fresh_answer_is_charged_under_each_new_id_and_once_under_its_own(
    first: Any, process: Any, item: dict[str, Any]
) -> None:
    asked = {"where": AA, **item, "fresh": True}
    first.ask("flights", "quote", **asked, quote=True)
    await process.run()
    (price,) = (first.answer("quote")["privacy_loss"]["share"],)
    assert price > 0
    first.ask("flights", "plain", **{**asked, "fresh": None})
    await process.run()
    spent = [_spent(first)[0][0]]
    for query_id in ("a", "b", "a"):
        first.ask("flights", query_id, **asked)
        await process.run()
        spent.append(_spent(first)[0][0])
    answer = first.answer("b")
    assert answer["privacy_loss"]["share"] == price
    assert (answer["path"], answer["difficulty"]) == ("measured", "hard")
    assert "error_bar_anytime" not in answer
    assert spent[1] - spent[0] == spent[2] - spent[1] > 0
    assert spent[3] == spent[2]
    record = first.ask("flights", "a", **{**asked, "fresh": None})
    await process.run()
    assert first.rejection(record)["reason"]["code"] == "id_reused"
    assert first.complaints() == []


async def test_a_profile_without_fresh_answers_refuses_them(world: Any, process: Any) -> None:
    world.define("flights", mechanism={"profile": "counts"})
    world.cells("flights", "batch", n=100)
    await process.run()
    world.ask("flights", "q", AA, fresh=True)
    world.ask("flights", "sum", kind="sum", attribute="delay", fresh=True)
    await process.run()
    assert world.answer("q")["reason"]["code"] == "unsupported_kind"
    assert "fresh" in world.answer("q")["reason"]["message"]
    (rejected,) = world.released("rejected")
    assert "fresh" in rejected["reason"]["message"]


async def test_a_quote_that_cannot_be_answered_is_refused_and_not_stored(
    first: Any, process: Any
) -> None:
    first.ask("flights", "q", {"attribute": "delay", "ge": 7}, quote=True)
    await process.run()
    assert first.answer("q")["status"] == "refused"
    first.ask("flights", "q", AA)
    await process.run()
    assert first.answer("q")["status"] == "answered"


async def test_a_window_longer_than_the_history_is_clamped_and_says_so(
    first: Any, process: Any
) -> None:
    first.ask("flights", "long", AA, window={"last_phases": 3})
    first.ask("flights", "all", AA)
    await process.run()
    assert first.answer("long")["window"] == [1, 1]
    assert "clamped to the 1 phases" in first.answer("long")["note"]
    assert "note" not in first.answer("all")
    first.cells("flights", "second")
    await process.run()
    first.ask("flights", "last", AA, window={"last_phases": 1})
    await process.run()
    assert first.answer("last")["window"] == [2, 2]
    assert first.answer("last")["n"] == 21_000


async def test_items_of_a_message_are_answered_each_in_order(first: Any, process: Any) -> None:
    items = [
        {"query_id": "one", "where": AA},
        {"query_id": "cut", "where": {"attribute": "delay", "ge": 7}},
        {"query_id": "one", "where": LATE},
        {"query_id": "two", "where": AA},
        {"query_id": "two", "where": AA},
    ]
    record = first.ask_many("flights", items)
    await process.run()
    found = [(reply["query_id"], reply["status"]) for reply in first.released("answers")]
    assert found == [
        ("one", "answered"),
        ("cut", "refused"),
        ("two", "answered"),
        ("two", "answered"),
    ]
    assert first.rejection(record)["query_id"] == "one"
    assert first.answer("two")["path"] == "repeat"
    assert first.complaints() == []


async def test_a_message_may_hold_thousands_of_queries(first: Any, process: Any) -> None:
    """Its commits stay small, and the order is kept."""
    items = [{"query_id": f"q{n}", "where": AA} for n in range(2_500)]
    first.ask_many("flights", items)
    await process.run()
    assert len(first.answers()) == 2_500
    commits = [len(entry.value) for entries in first.journal for entry in entries]
    assert max(commits) < 2 << 20
    assert first.complaints() == []


WIDE = [
    {"name": "a", "type": "category", "values": [f"a{n}" for n in range(175)], "other": False},
    {"name": "b", "type": "category", "values": [f"b{n}" for n in range(200)], "other": False},
    {"name": "c", "type": "boolean"},
]


async def test_the_largest_table_fits_into_a_record_and_a_larger_one_costs_nothing(
    world: Any, process: Any
) -> None:
    world.define("flights", attributes=WIDE, mechanism={"base_share": 0.0}, phase={"min_rows": 10})
    await process.run()
    world.batch("flights", "first", cells=[{"a": "a1", "b": "b1", "count": 10**9}])
    await process.run()
    world.ask("flights", "largest", kind="table", group_by=["a", "b"])
    await process.run()
    assert len(world.answer("largest")["table"]["values"]) == MOST_CELLS
    sizes = [len(e.outgoing.value) for e in world.trail if hasattr(e, "outgoing")]
    assert max(sizes) < TOPICS["answers"].max_message_bytes - 100_000
    spent = _spent(world)
    world.ask("flights", "larger", kind="table", group_by=["a", "b", "c"])
    await process.run()
    assert world.answer("larger")["reason"]["code"] == "too_many_cells"
    assert _spent(world) == spent


WORDS = [
    "attribute",
    "eq",
    "in",
    "ge",
    "lt",
    "between",
    "is_missing",
    "all",
    "any",
    "not",
    "carrier",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["carrier", "delay", "AA", "other", "", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    wheres=st.lists(
        st.dictionaries(st.sampled_from(["attribute", "eq", "all", "any", "not"]), JSON), max_size=8
    )
)
async def test_whatever_is_asked_has_exactly_one_outcome(
    make_world: Any, wheres: list[Any]
) -> None:
    world = make_world()
    process = world.process()
    await process.assign()
    world.define("flights", mechanism={"base_share": 0.0})
    await process.run()
    world.cells("flights", "first")
    await process.run()
    for n, where in enumerate(wheres):
        world.ask("flights", f"q{n}", where)
    await process.run()
    await process.kill()
    assert json.dumps(world.released("answers"))
    assert world.complaints() == []


async def test_a_budget_that_is_spent_leads_to_refusals_and_never_beyond(
    world: Any, process: Any
) -> None:
    world.define(
        "flights",
        accuracy={"error": 0.0005, "failure_probability": 0.01},
        mechanism={"base_share": 0.0},
        on_exhausted="refuse",
    )
    await process.run()
    world.cells("flights", "first")
    await process.run()
    names = ["carrier", "delay", "cancelled"]
    for n in range(8):
        chosen = [name for bit, name in enumerate(names) if n >> bit & 1]
        if chosen:
            world.ask("flights", f"q{n}", kind="table", group_by=chosen)
    await process.run()
    codes = {a.get("reason", {}).get("code") for a in world.answers().values()}
    assert codes & {"budget_exhausted", "window_too_small"}
    assert all(rho <= 2**50 for rho, _ in _spent(world))
    assert world.complaints() == []


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
    first.ask("flights", "one", AA)
    await process.run()
    assert first.answer("one")["path"] == "measured"
