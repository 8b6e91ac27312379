"""Standing queries: answered in each phase by themselves, listed with their price, and ended."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stream_dp.display.answer_cells import main_figures
from stream_dp.errors import CorruptState
from stream_dp.messages import (
    AlertSpec,
    BudgetShares,
    PredicateAnswer,
    PrivacyLoss,
    QueryFields,
)
from stream_dp.pipeline.queries import standing_queries
from stream_dp.pipeline.queries.standing_queries import StandingQueries

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


@pytest.fixture
async def waiting(world: Any, process: Any) -> Any:
    """A world with a data set that has no phase yet."""
    world.define("flights", mechanism={"base_share": 0.0})
    await process.run()
    return world


def _listed(world: Any) -> dict[str, Any]:
    """The newest record of each standing query that the topic keeps."""
    found = {}
    for event in world.trail:
        outgoing = getattr(event, "outgoing", None)
        if outgoing is not None and outgoing.role == "standing":
            found[outgoing.key] = outgoing.value
    return {key: value for key, value in found.items() if value}


async def test_it_is_answered_whenever_a_phase_opens(waiting: Any, process: Any) -> None:
    waiting.ask("flights", "late", LATE, standing=True)
    await process.run()
    assert waiting.answers() == {}
    for phase in (1, 2):
        waiting.cells("flights", f"batch-{phase}")
        await process.run()
        answer = waiting.answer(f"late@{phase}")
        assert (answer["status"], answer["phase"], answer["analyst"]) == ("answered", phase, "ana")
        assert answer["window"] == [1, phase]


async def test_it_is_answered_at_once_where_a_phase_is_open(first: Any, process: Any) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    assert first.answer("late@1")["status"] == "answered"


async def test_its_answer_is_the_one_that_the_query_would_get_by_hand(
    first: Any, process: Any
) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    sent = first.released("answers")
    first.ask("flights", "late@1", LATE)
    await process.run()
    assert first.released("answers") == [*sent, sent[-1]]


@pytest.mark.parametrize("query_id", ["late@2", "late@02", "never@1", "a@b@2"])
async def test_the_id_of_an_answer_to_come_cannot_be_asked_by_hand(
    first: Any, process: Any, query_id: str
) -> None:
    first.ask("flights", "late", LATE, standing=True, window={"last_phases": 1}, alert={"above": 0})
    await process.run()
    asked = [
        first.ask("flights", query_id, LATE, window={"last_phases": 1}),
        first.ask("flights", query_id, LATE, quote=True),
        first.ask_many("flights", [{"where": LATE, "query_id": query_id}]),
        first.ask_many(
            "flights", [{"query_id": "a"}, {"query_id": "b"}], quote="together", query_id=query_id
        ),
    ]
    await process.run()
    assert {first.rejection(record)["reason"]["code"] for record in asked} == {"id_reserved"}
    for phase in (2, 3):
        first.cells("flights", f"batch-{phase}")
        await process.run()
    windows = {query_id: answer["window"] for (_, _, query_id), answer in first.answers().items()}
    assert windows == {f"late@{phase}": [phase, phase] for phase in (1, 2, 3)}
    assert [event["phase"] for event in first.events("alert")] == [2, 3]


async def test_the_id_of_an_answer_that_never_comes_is_refused_all_the_same(
    first: Any, process: Any
) -> None:
    """Nothing stands, as where the query that was to stand was rejected."""
    asked = first.ask("flights", "late@2", LATE)
    await process.run()
    first.cells("flights", "batch-2")
    await process.run()
    await process.settled()
    assert first.rejection(asked)["reason"]["code"] == "id_reserved"
    assert first.complaints() == []


@pytest.mark.parametrize("query_id", ["@2", "late@", "late@2.0", "late@b", "late@12345678901"])
async def test_ids_that_no_answer_of_a_standing_query_has_may_be_asked(
    first: Any, process: Any, query_id: str
) -> None:
    first.ask("flights", query_id, LATE)
    await process.run()
    assert first.answer(query_id)["status"] == "answered"


@pytest.mark.parametrize("standing", [True, False])
async def test_the_id_of_an_answer_is_not_that_of_a_standing_query(
    first: Any, process: Any, *, standing: bool
) -> None:
    record = first.ask("flights", "late@2", standing=standing)
    await process.run()
    assert "ends with @ and a number" in first.rejection(record)["reason"]["message"]


async def test_another_one_under_the_same_id_in_the_same_phase_is_answered_from_the_next_one_on(
    first: Any, process: Any
) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    before = first.answer("late@1")
    first.ask("flights", "late", standing=False)
    first.ask("flights", "late", standing=True, kind="table", group_by=["carrier"])
    await process.run()
    assert first.answer("late@1") == before
    first.cells("flights", "second")
    await process.run()
    assert (before["kind"], first.answer("late@2")["kind"]) == ("predicate", "table")


async def test_it_may_begin_and_be_answered_and_end_in_one_commit(first: Any, process: Any) -> None:
    first.ask("flights", "known", LATE)
    await process.run()
    for query_id, stands in (("a", True), ("a", False), ("b", True), ("b", False), ("c", True)):
        first.ask("flights", query_id, LATE if stands else None, standing=stands)
    await process.run()
    (one,) = [each for each in first.held("flights").said if "ana a@1" in each.answers]
    assert one.answers.keys() == {"ana a@1", "ana b@1", "ana c@1"}
    assert '["ana","a"]' in one.meta["standing ended"]
    assert first.complaints() == []
    first.produce("datasets", None, key="flights")
    await process.run()
    assert first.complaints() == []


async def test_it_pays_before_any_other_query_of_the_phase(waiting: Any, process: Any) -> None:
    waiting.ask("flights", "late", LATE, standing=True)
    await process.run()
    waiting.cells("flights", "first")
    await process.run()
    waiting.ask("flights", "by-hand", LATE)
    await process.run()
    assert waiting.answer("late@1")["path"] == "measured"
    assert waiting.answer("by-hand")["privacy_loss"]["share"] == 0.0


async def test_the_topic_lists_it_with_the_price_of_its_newest_answer(
    waiting: Any, process: Any
) -> None:
    waiting.ask("flights", "late", LATE, standing=True, window={"last_phases": 1})
    await process.run()
    listed = {"query_id": "late", "where": LATE, "window": {"last_phases": 1}}
    (before,) = waiting.released("standing")
    assert before == {
        "version": 1,
        "dataset": "flights",
        "analyst": "ana",
        "query_id": "late",
        "query": listed,
        "since_phase": 0,
    }
    waiting.cells("flights", "first")
    await process.run()
    paid = waiting.answer("late@1")["privacy_loss"]
    assert paid["share"] > 0
    assert waiting.released("standing")[-1] == {**before, "phase": 1, "next_loss": paid}


async def test_a_tombstone_ends_it(first: Any, process: Any) -> None:
    first.ask("flights", "late", LATE, standing=True)
    first.ask("flights", "aa", AA, standing=True)
    await process.run()
    first.ask("flights", "late", standing=False)
    await process.run()
    assert _listed(first).keys() == {"flights ana aa"}
    first.cells("flights", "second")
    await process.run()
    assert {query_id for _, _, query_id in first.answers()} == {"late@1", "aa@1", "aa@2"}


async def test_only_its_own_analyst_ends_it(first: Any, process: Any) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    first.ask_many("flights", [{"query_id": "late", "standing": False}], analyst="bo")
    await process.run()
    assert _listed(first).keys() == {"flights ana late"}


async def test_one_that_is_refused_in_a_phase_goes_on(waiting: Any, process: Any) -> None:
    before = {"window": {"last_phases": 1}, "minus_window": {"previous_phases": 1}}
    waiting.ask("flights", "more", LATE, kind="difference", standing=True, **before)
    await process.run()
    for phase in (1, 2):
        waiting.cells("flights", f"batch-{phase}")
        await process.run()
    assert waiting.answer("more@1")["status"] == "refused"
    assert waiting.answer("more@2")["status"] == "answered"


async def test_what_can_never_be_answered_does_not_begin(first: Any, process: Any) -> None:
    unknown = first.ask("flights", "wrong", {"attribute": "gate", "eq": "B1"}, standing=True)
    limited = first.ask_many(
        "flights", [{"query_id": "late", "where": LATE, "standing": True}], at_most=0.1
    )
    await process.run()
    assert first.rejection(unknown)["reason"]["code"] == "unknown_attribute"
    assert "at_most" in first.rejection(limited)["reason"]["message"]
    assert first.answers() == {} == _listed(first)


async def test_another_query_under_its_id_is_rejected(first: Any, process: Any) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    other = first.ask("flights", "late", AA, standing=True)
    again = first.ask("flights", "late", LATE, standing=True)
    await process.run()
    assert first.rejection(other)["reason"]["code"] == "id_reused"
    assert first.rejections().keys() == {(other.topic, other.partition, other.offset)}
    assert again.offset > other.offset
    assert len(first.answers()) == 1


async def test_there_may_only_be_so_many(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_queries, "MOST_STANDING", 2)
    records = [first.ask("flights", f"late-{n}", LATE, standing=True) for n in range(3)]
    await process.run()
    assert first.rejection(records[2])["reason"]["code"] == "too_many_standing"
    first.ask("flights", "late-0", standing=False)
    first.ask("flights", "late-2", LATE, standing=True)
    await process.run()
    assert _listed(first).keys() == {"flights ana late-1", "flights ana late-2"}


async def test_retiring_a_data_set_ends_all(first: Any, process: Any) -> None:
    first.ask("flights", "late", LATE, standing=True)
    await process.run()
    first.produce("datasets", None, key="flights")
    await process.run()
    assert _listed(first) == {}
    late = first.ask("flights", "other", LATE, standing=True)
    await process.run()
    assert first.rejection(late)["reason"]["code"] == "retired"


async def test_many_are_answered_in_several_steps(waiting: Any, process: Any) -> None:
    """More than one step may come to, and all before the query that comes behind the batch."""
    items = [
        {"query_id": f"q{n}", "where": LATE, "standing": True, "window": {"last_phases": n + 1}}
        for n in range(150)
    ]
    waiting.ask_many("flights", items)
    await process.run()
    waiting.cells("flights", "first")
    await process.run()
    assert [query_id for _, _, query_id in waiting.answers()] == [f"q{n}@1" for n in range(150)]


# ---------------------------------------------------------------- alerts


async def _alerts(world: Any, process: Any, alert: dict[str, float], where: Any = LATE) -> Any:
    world.ask("flights", "late", where, standing=True, alert=alert, window={"last_phases": 1})
    await process.run()
    for phase in (1, 2):
        world.cells("flights", f"batch-{phase}")
        await process.run()
    return world.events("alert")


async def test_an_alert_is_an_event_in_each_phase_in_which_it_holds(
    waiting: Any, process: Any
) -> None:
    """Of 21,000 rows 8,000 are late."""
    assert await _alerts(waiting, process, {"above": 0.3}) == [
        {
            "version": 1,
            "dataset": "flights",
            "event": "alert",
            "phase": phase,
            "query_id": f"late@{phase}",
            "analyst": "ana",
            "since_phase": 1,
        }
        for phase in (1, 2)
    ]


@pytest.mark.parametrize("alert", [{"above": 0.375}, {"below": 0.385}, {"above": 0.5}])
async def test_none_is_raised_where_the_bar_holds_the_number(
    waiting: Any, process: Any, alert: dict[str, float]
) -> None:
    assert await _alerts(waiting, process, alert) == []


async def test_one_below_is_raised_too(waiting: Any, process: Any) -> None:
    assert len(await _alerts(waiting, process, {"below": 0.5})) == 2


async def test_none_is_raised_by_phases_that_were_open_when_it_was_set(
    first: Any, process: Any
) -> None:
    """Its analyst may have seen their answers, and the bars then promise nothing."""
    window = {"window": {"last_phases": 2}}
    first.ask("flights", "late", LATE, standing=True, alert={"above": 0.3}, **window)
    previous = {"window": {"last_phases": 1}, "minus_window": {"previous_phases": 1}}
    first.ask(
        "flights", "more", LATE, kind="difference", standing=True, alert={"above": -0.5}, **previous
    )
    await process.run()
    for phase in (2, 3):
        assert first.events("alert") == []
        first.cells("flights", f"batch-{phase}")
        await process.run()
    found = {(event["query_id"], event["since_phase"]) for event in first.events("alert")}
    assert found == {("late@3", 3), ("more@3", 3)}


async def test_one_about_all_phases_is_refused_once_a_phase_is_open(
    first: Any, process: Any
) -> None:
    record = first.ask("flights", "late", LATE, standing=True, alert={"above": 0.3})
    await process.run()
    assert first.rejection(record)["reason"]["message"].startswith("alert: a window of all phases")
    assert first.answers() == {}


async def test_a_table_says_which_cells(waiting: Any, process: Any) -> None:
    waiting.ask(
        "flights",
        "by",
        kind="table",
        group_by=["carrier", "cancelled"],
        standing=True,
        alert={"above": 0.25},
    )
    await process.run()
    waiting.cells("flights", "first")
    await process.run()
    (event,) = waiting.events("alert")
    assert event["cells"] == ["AA, false", "UA, true"]


def _on_the_value(alert: AlertSpec, value: float, bar: float | None) -> bool:
    """A broken copy: it looks at the value alone, and noise raises it every second time."""
    del bar
    return value > alert.above if alert.above is not None else value < (alert.below or 0.0)


@pytest.mark.parametrize("raises", [AlertSpec.holds, _on_the_value])
def test_a_false_alert_is_a_bar_that_misses(raises: Callable[..., bool]) -> None:
    """So it comes at most as often as bars miss, whatever the truth is, as docs/proofs, Theorem 13, says."""
    eighths = [n / 8 for n in range(9)]
    misses = []
    for number, truth, value, bar in product(eighths, eighths, eighths, [0.0, 0.125, 0.25]):
        false_above = truth <= number and raises(AlertSpec(above=number), value, bar)
        false_below = truth >= number and raises(AlertSpec(below=number), value, bar)
        if false_above or false_below:
            misses.append(abs(value - truth) > bar)
    assert misses
    assert all(misses) == (raises is AlertSpec.holds)


def test_an_answer_without_a_bar_raises_no_alert() -> None:
    assert not AlertSpec(above=0.1).holds(0.9, None)
    assert not AlertSpec(below=0.9).holds(0.1, None)


def _counted(**bars: Any) -> PredicateAnswer:
    return PredicateAnswer(
        dataset="flights",
        query_id="late@3",
        analyst="ana",
        value=0.5,
        count=500,
        n=1000,
        difficulty="easy",
        path="certified",
        privacy_loss=PrivacyLoss(share=0.0),
        budget=BudgetShares(spent=0.0, left=1.0),
        phase=3,
        window=(2, 3),
        **bars,
    )


@pytest.mark.parametrize(
    ("anytime", "plain", "for_all_times"), [(0.2, 0.1, 0.2), (None, 0.1, 0.1), (1.0, 0.1, 1.0)]
)
def test_a_bar_for_all_times_takes_the_place_of_the_plain_one_where_there_is_one(
    anytime: float | None, plain: float, for_all_times: float
) -> None:
    answer = _counted(error_bar=plain, error_bar_anytime=anytime)
    assert [*main_figures(answer)] == [("", 0.5, plain)]
    assert [*main_figures(answer, "anytime")] == [("", 0.5, for_all_times)]


# ---------------------------------------------------------------- what is stored


def test_slots_are_used_again_and_the_order_is_that_of_the_beginnings() -> None:
    meta: dict[str, str] = {}
    queries = StandingQueries("flights", meta, meta.__setitem__)
    for name in ("a", "b", "c"):
        query = QueryFields.read({"query_id": name, "standing": True})
        queries.begin("ana", query, phase=0, since_ms=5)
    found = queries.find("ana", "b")
    assert found is not None
    queries.end(found)
    query = QueryFields.read({"query_id": "d", "standing": True})
    queries.begin("ana", query, phase=3, since_ms=6)
    slots = sorted(name for name in meta if name[-1].isdigit() and meta[name])
    assert slots == ["standing 0", "standing 1", "standing 2"]
    again = StandingQueries("flights", meta, meta.__setitem__)
    assert [entry.query_id for entry in again] == ["a", "c", "d"]


GOLDEN = Path(__file__).parents[1] / "golden"


def test_those_that_ended_are_known_until_they_stand_again() -> None:
    meta: dict[str, str] = {}
    queries = StandingQueries("flights", meta, meta.__setitem__)
    for _ in range(2):
        for name in ("a", "b"):
            query = QueryFields.read({"query_id": name, "standing": True})
            queries.end(queries.begin("ana", query, phase=0, since_ms=5))
    assert queries.ended == [("ana", "a"), ("ana", "b")]
    query = QueryFields.read({"query_id": "a", "standing": True})
    queries.begin("ana", query, phase=0, since_ms=5)
    again = StandingQueries("flights", meta, meta.__setitem__)
    assert again.ended == [("ana", "b")]
    assert [entry.query_id for entry in again] == ["a"]


def test_of_those_that_ended_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every end would write a longer list, for ever."""
    monkeypatch.setattr(standing_queries, "_MOST_ENDED", 2)
    meta: dict[str, str] = {}
    queries = StandingQueries("flights", meta, meta.__setitem__)
    for name in "abcd":
        query = QueryFields.read({"query_id": name, "standing": True})
        queries.end(queries.begin("ana", query, phase=0, since_ms=5))
    assert queries.ended == [("ana", "c"), ("ana", "d")]
    assert StandingQueries("flights", meta, meta.__setitem__).ended == queries.ended


def test_standing_queries_stored_by_earlier_releases_stay_readable() -> None:
    """Version by version, and the newest is written byte for byte the same."""
    text = (GOLDEN / "standing-v1.json").read_text()
    meta = {"standing 7": text, "standing 3": "", "standing answered": "4 2 1700000000001"}
    queries = StandingQueries("flights", meta, meta.__setitem__)
    (entry,) = queries
    assert (entry.analyst, entry.query_id, entry.since_phase, entry.alert_since) == (
        "ana",
        "late",
        3,
        4,
    )
    assert entry.to_text() == text
    assert (queries.phase, queries.dated_ms) == (4, 1_700_000_000_001)
    assert (queries.due(4), queries.due(5)) == ([], [entry])
    assert (queries.is_due(4), queries.is_due(5)) == (False, True)


@pytest.mark.parametrize("text", ["{", "{}", '{"version":2,"serial":1}', "[]"])
def test_what_cannot_be_read_stops_its_data_set(text: str) -> None:
    meta = {"standing 3": text}
    with pytest.raises(CorruptState, match=r"flights: .* slot 3"):
        StandingQueries("flights", meta, meta.__setitem__)
