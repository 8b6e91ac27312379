"""Standing queries: answered in each phase by themselves, listed with their price, and ended."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stream_dp.display.answer_cells import main_figures
from stream_dp.errors import CorruptState
from stream_dp.messages import AlertSpec, BudgetShares, PredicateAnswer, PrivacyLoss, QueryFields
from stream_dp.pipeline.queries import standing_queries
from stream_dp.pipeline.queries.standing_queries import Moment, StandingQueries
from tests.pipeline.flights import (
    AA,
    BEFORE,
    BY_CARRIER,
    LAST,
    LATE,
    UNMEASURED,
    answered,
    asked,
    assert_said,
    judged,
    next_phase,
    ran,
)

pytestmark = judged

TILE: dict[str, Any] = {"query_id": "late", "where": LATE, "standing": True}
END: dict[str, Any] = {"query_id": "late", "standing": False}


@pytest.fixture
async def waiting(world: Any, process: Any) -> Any:
    """A world with a data set that has no phase yet."""
    return await ran(process, lambda world: world.define("flights", mechanism=UNMEASURED))


def _listed(world: Any) -> dict[str, Any]:
    """The newest record of each standing query that the topic keeps."""
    found = {}
    for event in world.trail:
        outgoing = getattr(event, "outgoing", None)
        if outgoing is not None and outgoing.role == "standing":
            found[outgoing.key] = outgoing.value
    return {key: value for key, value in found.items() if value}


async def test_it_is_answered_whenever_a_phase_opens_before_any_other_query(
    waiting: Any, process: Any
) -> None:
    await asked(process, TILE)
    assert waiting.answers() == {}
    for phase in (1, 2):
        await next_phase(process)
        answer = waiting.answer(f"late@{phase}")
        assert (answer["status"], answer["phase"], answer["analyst"]) == ("answered", phase, "ana")
        assert answer["window"] == [1, phase]
        [by_hand] = await asked(process, {"where": LATE})
        assert by_hand["privacy_loss"]["share"] == 0.0, "the standing query has paid"


async def test_its_answer_is_at_once_the_one_that_the_query_would_get_by_hand(
    first: Any, process: Any
) -> None:
    await asked(process, TILE)
    (sent,) = first.released("answers")
    assert (sent["query_id"], sent["status"]) == ("late@1", "answered")
    assert await asked(process, {"query_id": "late@1", "where": LATE}) == [sent]


@pytest.mark.parametrize("query_id", ["late@2", "late@02", "never@1", "a@b@2"])
async def test_the_id_of_an_answer_to_come_cannot_be_asked_by_hand(
    first: Any, process: Any, query_id: str
) -> None:
    await asked(process, {**TILE, **LAST, "alert": {"above": 0}})
    pair = [{"query_id": "a"}, {"query_id": "b"}]
    records = [
        first.ask("flights", query_id, LATE, **LAST),
        first.ask("flights", query_id, LATE, quote=True),
        first.ask_many("flights", [{"where": LATE, "query_id": query_id}]),
        first.ask_many("flights", pair, quote="together", query_id=query_id),
    ]
    await process.run()
    assert {first.rejection(record)["reason"]["code"] for record in records} == {"id_reserved"}
    await next_phase(process, phases=2)
    windows = {query_id: answer["window"] for (_, _, query_id), answer in first.answers().items()}
    assert windows == {f"late@{phase}": [phase, phase] for phase in (1, 2, 3)}
    assert [event["phase"] for event in first.events("alert")] == [2, 3]


async def test_the_id_of_an_answer_that_never_comes_is_refused_all_the_same(
    first: Any, process: Any
) -> None:
    """Nothing stands, as where the query that was to stand was rejected."""
    [rejected] = await asked(process, {"query_id": "late@2", "where": LATE})
    await next_phase(process)
    await process.settled()
    assert rejected["reason"]["code"] == "id_reserved"


async def test_ids_that_no_answer_of_a_standing_query_has_may_be_asked(
    first: Any, process: Any
) -> None:
    names = ("@2", "late@", "late@2.0", "late@b", "late@12345678901")
    found = await asked(process, *({"query_id": name, "where": LATE} for name in names))
    assert [answer["status"] for answer in found] == ["answered"] * len(names)


async def test_what_cannot_stand_or_end_is_rejected_in_words(first: Any, process: Any) -> None:
    at_2, message = {"query_id": "late@2"}, "ends with @ and a number"
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({**at_2, "standing": True}, "invalid_message", message),
        ({**at_2, "standing": False}, "invalid_message", message),
        (
            {**TILE, "query_id": "gate", "where": {"attribute": "gate", "eq": 1}},
            "unknown_attribute",
            "",
        ),
        ({**TILE, "alert": {"above": 0.3}}, "invalid_message", "alert: a window of all phases"),
    ]
    await assert_said(process, cases)
    [limited] = await asked(process, TILE, at_most=0.1)
    assert "at_most" in limited["reason"]["message"]
    assert first.answers() == {} == _listed(first)


async def test_another_one_under_the_same_id_in_the_same_phase_is_answered_from_the_next_one_on(
    first: Any, process: Any
) -> None:
    await asked(process, TILE)
    before = first.answer("late@1")
    await asked(process, END)
    await asked(process, {"query_id": "late", "standing": True, **BY_CARRIER})
    assert first.answer("late@1") == before
    await next_phase(process)
    assert (before["kind"], first.answer("late@2")["kind"]) == ("predicate", "table")


async def test_it_may_begin_and_be_answered_and_end_in_one_commit(first: Any, process: Any) -> None:
    await asked(process, {"where": LATE})
    for query_id, stands in (("a", True), ("a", False), ("b", True), ("b", False), ("c", True)):
        first.ask("flights", query_id, LATE if stands else None, standing=stands)
    await process.run()
    (one,) = [each for each in first.held("flights").said if "ana a@1" in each.answers]
    assert one.answers.keys() == {"ana a@1", "ana b@1", "ana c@1"}
    assert '["ana","a"]' in one.meta["standing ended"]
    assert first.complaints() == []
    await ran(process, lambda world: world.produce("datasets", None, key="flights"))


async def test_the_topic_lists_it_with_the_price_of_its_newest_answer(
    waiting: Any, process: Any
) -> None:
    await asked(process, {**TILE, **LAST})
    (before,) = waiting.released("standing")
    assert before == {
        "version": 1,
        "dataset": "flights",
        "analyst": "ana",
        "query_id": "late",
        "query": {"query_id": "late", "where": LATE, **LAST},
        "since_phase": 0,
    }
    await next_phase(process)
    paid = waiting.answer("late@1")["privacy_loss"]
    assert paid["share"] > 0
    assert waiting.released("standing")[-1] == {**before, "phase": 1, "next_loss": paid}


async def test_its_own_analyst_ends_it(first: Any, process: Any) -> None:
    await asked(process, TILE, {"query_id": "aa", "where": AA, "standing": True})
    await asked(process, END, analyst="bo")
    assert _listed(first).keys() == {"flights ana late", "flights ana aa"}
    await asked(process, END)
    assert _listed(first).keys() == {"flights ana aa"}
    await next_phase(process)
    assert answered(first) == {"late@1", "aa@1", "aa@2"}


async def test_one_that_is_refused_in_a_phase_goes_on(waiting: Any, process: Any) -> None:
    await asked(process, {**TILE, "kind": "difference", **BEFORE})
    await next_phase(process, phases=2)
    found = [waiting.answer(f"late@{phase}")["status"] for phase in (1, 2)]
    assert found == ["refused", "answered"]


async def test_another_query_under_its_id_is_rejected(first: Any, process: Any) -> None:
    await asked(process, TILE)
    [other] = await asked(process, {**TILE, "where": AA})
    assert other["reason"]["code"] == "id_reused"
    assert await asked(process, TILE) == [None], "it stands already"
    assert len(first.answers()) == 1


async def test_there_may_only_be_so_many(
    first: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_queries, "MOST_STANDING", 2)
    tiles = [{**TILE, "query_id": f"late-{n}"} for n in range(3)]
    *_, rejected = await asked(process, *tiles)
    assert rejected["reason"]["code"] == "too_many_standing"
    await asked(process, {"query_id": "late-0", "standing": False}, tiles[2])
    assert _listed(first).keys() == {"flights ana late-1", "flights ana late-2"}


async def test_retiring_a_data_set_ends_all(first: Any, process: Any) -> None:
    await asked(process, TILE)
    await ran(process, lambda world: world.produce("datasets", None, key="flights"))
    assert _listed(first) == {}
    [late] = await asked(process, {**TILE, "query_id": "other"})
    assert late["reason"]["code"] == "retired"


async def test_many_are_answered_in_several_steps(waiting: Any, process: Any) -> None:
    """More than one step may come to, and all before the query that comes behind the batch."""
    tiles = [{**TILE, "query_id": f"q{n}", "window": {"last_phases": n + 1}} for n in range(150)]
    await asked(process, *tiles)
    await next_phase(process)
    assert [query_id for _, _, query_id in waiting.answers()] == [f"q{n}@1" for n in range(150)]


# ---------------------------------------------------------------- alerts


@pytest.mark.parametrize(
    ("alert", "raised"),
    [
        ({"above": 0.3}, [1, 2]),
        ({"below": 0.5}, [1, 2]),
        ({"above": 0.375}, []),  # the bar holds the number
        ({"below": 0.385}, []),
        ({"above": 0.5}, []),
    ],
)
async def test_an_alert_is_an_event_in_each_phase_in_which_it_holds(
    waiting: Any, process: Any, alert: dict[str, float], raised: list[int]
) -> None:
    """Of 21,000 rows 8,000 are late."""
    await asked(process, {**TILE, **LAST, "alert": alert})
    await next_phase(process, phases=2)
    said = {"version": 1, "dataset": "flights", "event": "alert", "analyst": "ana"}
    assert waiting.events("alert") == [
        {**said, "phase": phase, "query_id": f"late@{phase}", "since_phase": 1} for phase in raised
    ]


async def test_none_is_raised_by_phases_that_were_open_when_it_was_set(
    first: Any, process: Any
) -> None:
    """Its analyst may have seen their answers, and the bars then promise nothing."""
    two = {**TILE, "alert": {"above": 0.3}, "window": {"last_phases": 2}}
    more = {**TILE, "query_id": "more", "kind": "difference", "alert": {"above": -0.5}, **BEFORE}
    await asked(process, two, more)
    await next_phase(process)
    assert first.events("alert") == []
    await next_phase(process)
    found = {(event["query_id"], event["since_phase"]) for event in first.events("alert")}
    assert found == {("late@3", 3), ("more@3", 3)}


async def test_a_table_says_which_cells(waiting: Any, process: Any) -> None:
    by = {"kind": "table", "group_by": ["carrier", "cancelled"], "alert": {"above": 0.25}}
    await asked(process, {"query_id": "by", "standing": True, **by})
    await next_phase(process)
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


def _stored(meta: dict[str, str]) -> StandingQueries:
    return StandingQueries("flights", meta, meta.__setitem__)


def _begins(queries: StandingQueries, *names: str, phase: int = 0) -> list[Any]:
    return [
        queries.begin(
            "ana", QueryFields.read({"query_id": name, "standing": True}), phase=phase, since_ms=5
        )
        for name in names
    ]


def test_slots_are_used_again_and_the_order_is_that_of_the_beginnings() -> None:
    meta: dict[str, str] = {}
    queries = _stored(meta)
    _, b, _ = _begins(queries, *"abc")
    assert queries.find("ana", "b") == b
    queries.end(b)
    _begins(queries, "d", phase=3)
    slots = sorted(name for name in meta if name[-1].isdigit() and meta[name])
    assert slots == ["standing 0", "standing 1", "standing 2"]
    assert [entry.query_id for entry in _stored(meta)] == ["a", "c", "d"]


def test_those_that_ended_are_known_until_they_stand_again() -> None:
    meta: dict[str, str] = {}
    queries = _stored(meta)
    for _ in range(2):
        for entry in _begins(queries, *"ab"):
            queries.end(entry)
    assert queries.ended == [("ana", "a"), ("ana", "b")]
    _begins(queries, "a")
    again = _stored(meta)
    assert again.ended == [("ana", "b")]
    assert [entry.query_id for entry in again] == ["a"]


def test_of_those_that_ended_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every end would write a longer list, for ever."""
    monkeypatch.setattr(standing_queries, "_MOST_ENDED", 2)
    meta: dict[str, str] = {}
    queries = _stored(meta)
    for entry in _begins(queries, *"abcd"):
        queries.end(entry)
    assert queries.ended == _stored(meta).ended == [("ana", "c"), ("ana", "d")]


GOLDEN = Path(__file__).parents[1] / "golden"


def test_standing_queries_stored_by_earlier_releases_stay_readable() -> None:
    """Version by version, and the newest is written byte for byte the same."""
    text = (GOLDEN / "standing-v1.json").read_text()
    meta = {"standing 7": text, "standing 3": "", "standing answered": "4 2 1700000000001"}
    queries = _stored(meta)
    (entry,) = queries
    assert (entry.analyst, entry.query_id, entry.since_phase, entry.alert_since) == (
        "ana",
        "late",
        3,
        4,
    )
    assert entry.to_text() == text
    assert (queries.number(entry), queries.dated_ms) == (4, 1_700_000_000_001)
    assert (queries.due(Moment(4)), queries.due(Moment(5))) == ([], [entry])
    assert (queries.is_due(Moment(4)), queries.is_due(Moment(5))) == (False, True)


@pytest.mark.parametrize("text", ["{", "{}", '{"version":2,"serial":1}', "[]"])
def test_what_cannot_be_read_stops_its_data_set(text: str) -> None:
    with pytest.raises(CorruptState, match=r"flights: .* slot 3"):
        _stored({"standing 3": text})
