"""What the topics tell, and what of it each view shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.core.budget.accountant import epsilon_of, rho_max
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.query_words import queries
from stream_dp.web.page_data.views import Views

DEFINITION: dict[str, Any] = {
    "version": 1,
    "dataset": "people",
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
        {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True},
        {"name": "smoker", "type": "boolean", "missing": True},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 100},
}


@pytest.fixture
def published() -> PublishedState:
    """One phase of 120 rows is open, with one charge, an easy, a hard and a refused answer."""
    published = PublishedState()
    entries: list[dict[str, Any]] = [
        {"kind": "dataset"},
        {"kind": "phase", "phase": 1, "rows": 120},
        {"kind": "charge", "looks": [{"kind": "tables"}], "charges": [[0, 2**49, 0]]},
    ]
    for seq, entry in enumerate(entries):
        take(published, "ledger", {"seq": seq, **entry}, at=1000 + seq)
    take(published, "catalog", DEFINITION)
    take(published, "events", {"event": "batch_accepted", "batch_id": "b", "waiting": 7, "rows": 7})
    for query_id, difficulty in (("q1", "easy"), ("q2", "hard")):
        take(published, "answers", answer(query_id, difficulty))
    refused = {"status": "refused", "reason": {"code": "cuts_bin", "message": "it cuts a bin"}}
    take(published, "answers", {"query_id": "q3", "analyst": "ann", **refused})
    return published


def answer(query_id: str, difficulty: str) -> dict[str, Any]:
    return {
        "query_id": query_id,
        "analyst": "ann",
        "status": "answered",
        "kind": "predicate",
        "value": 0.25,
        "count": 30,
        "n": 120,
        "difficulty": difficulty,
        "path": "certified" if difficulty == "easy" else "measured",
        "privacy_loss": {"share": 0.0, "blocks": 0},
        "budget": {"spent": 0.5, "left": 0.5},
        "phase": 1,
        "window": [1, 1],
    }


def take(published: PublishedState, role: str, document: dict[str, Any], at: int = 0) -> None:
    value = json.dumps({"version": 1, "dataset": "people", **document}).encode()
    published.take(role, "people", value, at)


def seen(section: bytes) -> Any:
    return json.loads(section)


def test_a_data_set_is_what_its_records_tell(published: PublishedState) -> None:
    sections = Views(published).public("people")
    detail = seen(sections["dataset"])
    assert (detail["phases"], detail["rows"], detail["waiting"]) == (1, 120, 7)
    assert (detail["opens_at"], detail["spent"], detail["looks"]) == (100, 0.5, 1)
    assert (detail["easy"], detail["hard"], detail["refused"]) == (1, 1, 1)
    assert detail["spending"] == [[1000, 0.0], [1001, 0.0], [1002, 0.5]]
    (phase,) = detail["phase_list"]
    assert (phase["opened"], phase["easy"], phase["hard"]) == (1001, 1, 1)
    assert [one["query_id"] for one in seen(sections["answers"])] == ["q3", "q2", "q1"]


def test_records_that_come_twice_count_once(published: PublishedState) -> None:
    before = Views(published).public("people")
    take(published, "answers", answer("q1", "easy"), at=5000)
    take(published, "ledger", {"seq": 1, "kind": "phase", "phase": 1, "rows": 120}, at=5000)
    assert Views(published).public("people") == before


def asked(sections: dict[str, bytes]) -> list[str | None]:
    return [one.get("question") for one in seen(sections["answers"])]


def test_an_analyst_sees_the_queries_of_answers_no_rejection_and_nothing_of_the_worker(
    published: PublishedState,
) -> None:
    reason = {"code": "bad_json", "message": "it is not JSON at line 7"}
    place = {"topic": "t", "partition": 0, "offset": 3}
    take(published, "rejected", {**place, "reason": reason})
    where = {"attribute": "city", "eq": "Graz"}
    take(published, "queries", {"analyst": "ann", "query_id": "q2", "where": where})
    unanswered = {"attribute": "city", "eq": "Bonn"}
    take(published, "queries", {"analyst": "ann", "query_id": "q9", "where": unanswered})
    views = Views(published)
    public = views.public("people")
    assert set(public) == {"datasets", "schema", "dataset", "answers", "tiles", "events"}
    assert asked(public) == [None, "city = 'Graz'", None]
    for secret in (b"line 7", b"q9", b"= 'Bonn'"):
        assert secret not in b"".join(public.values())
    operator = views.operator("people")
    assert seen(operator["rejected"])[0]["said"] == "rejected t[0]@3: it is not JSON at line 7"
    assert {name: operator[name] for name in public} == public


def test_an_answer_stands_beside_the_query_that_it_answers_whatever_comes_under_its_id(
    published: PublishedState,
) -> None:
    for city, more in (("Bonn", {"quote": True}), ("Graz", {}), ("Bonn", {})):
        where = {"attribute": "city", "eq": city}
        take(published, "queries", {"analyst": "ann", "query_id": "q2", "where": where, **more})
    assert asked(Views(published).public("people")) == [None, "city = 'Graz'", None]


def test_quotes_are_no_answers_and_large_tables_are_told_by_their_size(
    published: PublishedState,
) -> None:
    quote = {**answer("q4", "hard"), "status": "quoted", "value": None}
    take(published, "answers", quote)
    table = {
        "attributes": ["city"],
        "labels": [["Bonn", "Graz"]],
        "values": [0.2, 0.3],
        "counts": [24, 36],
        "error_bars": [0.01, 0.02],
    }
    take(published, "answers", {**answer("q5", "easy"), "kind": "table", "table": table})
    newest = seen(Views(published).public("people")["answers"])[0]
    assert (newest["query_id"], newest["said"], newest["widest"]) == ("q5", "2 cells ± 2.00%", 0.02)
    assert "table" not in newest


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, (None, None, None)),
        ({"synthetic_rows": 50}, ("city, age, smoker", None, None)),
        ({"retention": {"phases": 3}}, (None, 3, None)),
        ({"retention": {"answers": {"days": 30}}}, (None, None, 30)),
    ],
)
def test_poor_synthetic_rows_and_how_long_rows_and_answers_are_kept_are_told(
    published: PublishedState, more: dict[str, Any], told: tuple[Any, ...]
) -> None:
    take(published, "catalog", {**DEFINITION, **more})
    schema = seen(Views(published).public("people")["schema"])
    kept = schema["kept_phases"], schema["kept_answers_days"]
    assert (schema["opening"]["poor_rows"], *kept) == told


def test_a_page_says_to_whom_is_promised_and_what_a_person_in_every_phase_has_lost(
    published: PublishedState,
) -> None:
    public = Views(published).public("people")
    assert seen(public["schema"])["promised_to"] == "every row, for ever"
    assert seen(public["schema"])["counting"] is None
    assert seen(public["dataset"])["in_every_phase"] is None
    unit = {"key": "user_id", "rows_per_phase": 4, "phases": 1}
    take(published, "catalog", {**DEFINITION, "privacy": {**DEFINITION["privacy"], "unit": unit}})
    take(published, "ledger", {"seq": 3, "kind": "phase", "phase": 2, "rows": 120})
    charge = {"kind": "charge", "looks": [{"kind": "tables"}], "charges": [[1, 2**50, 0]]}
    take(published, "ledger", {"seq": 4, **charge})
    public = Views(published).public("people")
    assert seen(public["schema"])["promised_to"] == "every person, in any one phase"
    counting = "at most 4 rows with the same user_id count in a phase"
    assert seen(public["schema"])["counting"] == counting
    assert seen(public["dataset"])["epsilon"] == pytest.approx(1.0)
    lost = epsilon_of(rho_max(1.0, 1e-9) * 3 / 2, 1e-9)
    assert seen(public["dataset"])["in_every_phase"] == pytest.approx(lost)


def test_a_retired_data_set_stays_on_the_list_and_is_not_chosen(published: PublishedState) -> None:
    published.take("catalog", "people", b"", 0)
    take(published, "catalog", {**DEFINITION, "dataset": "other"})
    published.take("catalog", "zoo", json.dumps({**DEFINITION, "dataset": "zoo"}).encode(), 0)
    published.take("catalog", "people", b"", 0)
    take(published, "catalog", DEFINITION)  # of a worker that slept
    sections = Views(published).public("")
    states = {one["name"]: one["state"] for one in seen(sections["datasets"])}
    assert states == {"people": "retired", "zoo": "live"}
    assert seen(sections["schema"])["name"] == "zoo"


STOPPED = {"event": "stopped", "reason": {"code": "stopped", "message": "the journal was cut"}}
CHARGED = {"kind": "phase", "phase": 2, "rows": 120}


@pytest.mark.parametrize(
    ("event", "over"),
    [
        ({"event": "quarantined"}, ("ledger", {"seq": 4, **CHARGED})),
        (STOPPED, ("ledger", {"seq": 4, **CHARGED})),
        (STOPPED, ("events", {"event": "repaired"})),
    ],
)
def test_a_quarantine_or_a_stop_is_over_when_something_is_paid_for_or_repaired(
    published: PublishedState, event: dict[str, Any], over: tuple[str, dict[str, Any]]
) -> None:
    views, name = Views(published), event["event"]

    def state() -> str:
        return str(seen(views.public("people")["datasets"])[0]["state"])

    take(published, "events", event, at=5000)
    assert state() == name
    take(published, "ledger", {"seq": 3, **CHARGED}, at=4000)  # the topics have no mutual order
    assert state() == name
    take(published, *over, at=6000)
    assert state() == "live"
    take(published, "events", event, at=7000)
    assert state() == name


def test_what_nobody_understands_changes_nothing(published: PublishedState) -> None:
    before = Views(published).public("people")
    for role in ("answers", "events", "rejected", "queries"):
        for value in (b"", b"{", b"[1]", b'{"version": 1}', b"\xff\xfe"):
            published.take(role, "people", value, 0)
    assert Views(published).public("people") == before


def test_a_long_history_keeps_its_shape_in_few_points() -> None:
    published = PublishedState()
    take(published, "ledger", {"seq": 0, "kind": "phase", "phase": 1, "rows": 9})
    for seq in range(1, 5000):
        charge = {"kind": "charge", "looks": [{"kind": "tables"}], "charges": [[0, 2**36, 0]]}
        take(published, "ledger", {"seq": seq, **charge}, at=seq)
    points = published.datasets["people"].spending
    assert len(points) <= 400
    assert points[0] == (0, 0.0)
    assert list(points[-1]) == [4999, pytest.approx(4999 * 2**36 / 2**50)]
    assert points == sorted(points)


@pytest.mark.parametrize(
    "condition",
    [
        "city = 'Bonn'",
        "age >= 30 AND age < 45",
        "city IN ('Bonn', 'Graz') OR smoker = TRUE",
        "(city = 'Bonn' OR city = 'Graz') AND age < 18",
        "NOT (age >= 30 AND city = 'Bonn') AND smoker IS NOT NULL",
        "city <> 'Bonn' AND age BETWEEN 18 AND 44",
        "city = 'other' OR smoker IS NULL",
    ],
)
def test_a_query_in_words_is_the_sql_that_asks_for_it(condition: str) -> None:
    attributes = DEFINITION["attributes"]
    where = sql.parse(condition, attributes)["where"]
    message = {"analyst": "ann", "query_id": "q", "where": where}
    ((name, words),) = queries(record(message))
    assert name == ("people", "ann", "q")
    assert sql.parse(words, attributes)["where"] == where, words


@pytest.mark.parametrize(
    "where", [{"zyzzyva": 1}, {"not": {"name": "zyzzyva"}}, {"all": [{"zyzzyva": []}]}]
)
def test_what_is_no_condition_is_not_shown_to_operators_either(where: dict[str, Any]) -> None:
    """It may be a row that somebody has sent to the wrong topic."""
    message = {"analyst": "ann", "query_id": "q", "where": where}
    ((_, words),) = queries(record(message))
    assert "an invalid condition" in words
    assert "zyzzyva" not in words


def test_tables_windows_and_other_kinds_have_words_too() -> None:
    window = {"last_phases": 3}
    asked = [
        {"query_id": "a", "where": None},
        {"query_id": "b", "kind": "table", "group_by": ["city", "age"], "window": window},
        {"query_id": "c", "kind": "quantile", "attribute": "age", "rank": 0.9},
        {"query_id": "d", "kind": "nonsense"},
        {"query_id": "e", "where": {"all": 7}},
        {
            "query_id": "f",
            "kind": "sum",
            "attribute": "age",
            "where": {"attribute": "age", "ge": 18},
            "group_by": ["city"],
        },
        {"query_id": "g", "kind": "sum", "attribute": "age", "mean": True, "count_rows": True},
        {
            "query_id": "h",
            "kind": "share",
            "share_of": {"attribute": "smoker", "eq": True},
            "where": {"attribute": "age", "ge": 18},
        },
        {
            "query_id": "i",
            "kind": "difference",
            "where": {"attribute": "age", "ge": 18},
            "window": window,
            "minus_window": {"previous_phases": 3},
        },
        {"query_id": "k", "where": None, "window": {"last": "7 days"}, "series": "day"},
        {"query_id": "l", "where": None, "window": {"since": "2026-11-01", "until": "2026-11-08"}},
        {"query_id": "m", "where": None, "window": {"phases": [3, 7]}},
        {
            "query_id": "n",
            "kind": "difference",
            "window": {"last": "7 days"},
            "minus_window": {"previous": "7 days"},
        },
        {
            "query_id": "j",
            "kind": "difference",
            "group_by": ["city"],
            "minus_window": {"last_phases": 2},
        },
    ]
    found = {name[2]: words for name, words in queries(record({"analyst": "x", "queries": asked}))}
    assert found == {
        "a": "every row",
        "b": "SELECT city, age, COUNT(*) GROUP BY city, age, last 3 phases",
        "c": "SELECT QUANTILE(age, 0.9)",
        "f": "SELECT city, SUM(age) WHERE age >= 18 GROUP BY city",
        "g": "SELECT COUNT(*), AVG(age)",
        "h": "SELECT COUNT(*) FILTER (WHERE smoker = TRUE) / COUNT(*) WHERE age >= 18",
        "i": "difference age >= 18, last 3 phases, minus the 3 phases before",
        "j": "difference GROUP BY city, minus the last 2 phases",
        "k": "every row, last 7 days, by day",
        "l": "every row, since 2026-11-01 until 2026-11-08",
        "m": "every row, phases 3 to 7",
        "n": "difference, last 7 days, minus the 7 days before",
    }


def record(message: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, "dataset": "people", **message}).encode()


def test_only_answers_show_their_question(published: PublishedState) -> None:
    """What is refused may be a row that was sent to the wrong topic."""
    for query_id in ("q1", "q3"):
        asked = {
            "query_id": query_id,
            "analyst": "ann",
            "kind": "sum",
            "attribute": f"for {query_id}",
        }
        take(published, "queries", asked)
    shown = {one["query_id"]: one for one in seen(Views(published).public("people")["answers"])}
    assert shown["q1"]["question"] == 'SELECT SUM("for q1")'
    assert not any("for q3" in str(each) for each in shown.values())
