"""What the topics tell, and what of it each view shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.core.budget.accountant import epsilon_of, rho_max
from stream_dp.messages import ChangeSchema, Definition
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Views
from tests.answers import count_answer, table_answer
from tests.client.test_accounts import RULES, Book, part
from tests.pipeline.world import definition

DEFINITION = definition(
    "people",
    attributes=[
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
        {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True},
        {"name": "smoker", "type": "boolean", "missing": True},
    ],
    phase={"min_rows": 100},
)


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


def answer(
    query_id: str, difficulty: str = "hard", count: int = 30, **fields: Any
) -> dict[str, Any]:
    path = "certified" if difficulty == "easy" else "measured"
    said = {"query_id": query_id, "difficulty": difficulty, "path": path, "phase": 1, **fields}
    found: dict[str, Any] = json.loads(count_answer(count, 2.4, n=120, **said).to_bytes())
    return found


def take(published: PublishedState, role: str, document: dict[str, Any], at: int = 0) -> None:
    value = json.dumps({"version": 1, "dataset": "people", **document}).encode()
    key = f"people ann {document['query_id']}" if role == "standing" else "people"
    published.take(role, key, value, at)


def by_city(
    query_id: str, counts: list[int], bars: list[float | None], **more: Any
) -> dict[str, Any]:
    axes, about = {"city": ["Bonn", "Graz"]}, {"query_id": query_id, "phase": 1, **more}
    found: dict[str, Any] = json.loads(table_answer(axes, counts, bars, n=120, **about).to_bytes())
    return found


def seen(section: bytes) -> Any:
    return json.loads(section)


def test_the_newest_attributes_are_shown_with_their_version(published: PublishedState) -> None:
    before = Definition.read(DEFINITION)
    city = {
        **DEFINITION["attributes"][0],
        "values": ["Bonn", "Graz", "Linz"],
        "also": {"Gratz": "Graz"},
    }
    change = {"version": 1, "dataset": "people", "change": "schema", "schema_version": 2}
    attributes = [city, *DEFINITION["attributes"][1:]]
    after = before.changed(ChangeSchema.read({**change, "attributes": attributes}), 2)
    take(published, "catalog", json.loads(after.to_bytes()))
    schema = seen(Views(published).public("people")["schema"])
    assert (schema["version"], schema["first_phase"]) == (2, 2)
    assert schema["attributes"][0]["values"] == ["Bonn", "Graz", "Linz"]


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
    shown = {"datasets", "schema", "dataset", "answers", "tiles", "running", "events"}
    assert set(public) == shown
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
    take(published, "answers", {**answer("q4"), "status": "quoted", "value": None})
    take(published, "answers", by_city("q5", [24, 36], [1.2, 2.4]))
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
    for role in ("answers", "events", "rejected", "queries", "running"):
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


def test_only_answers_show_their_question(published: PublishedState) -> None:
    """What is refused may be a row that was sent to the wrong topic."""
    for query_id in ("q1", "q3"):
        asked = {"query_id": query_id, "kind": "sum", "attribute": f"for {query_id}"}
        take(published, "queries", {"analyst": "ann", **asked})
    shown = {one["query_id"]: one for one in seen(Views(published).public("people")["answers"])}
    assert shown["q1"]["question"] == 'SELECT SUM("for q1")'
    assert not any("for q3" in str(each) for each in shown.values())


# ---------------------------------------------------------------- tiles


def stand(published: PublishedState, query_id: str, **fields: Any) -> None:
    query = {"query_id": query_id, "where": {"attribute": "age", "ge": 30}, **fields}
    head = {"analyst": "ann", "query_id": query_id, "query": query, "since_phase": 0}
    take(published, "standing", {**head, "next_loss": {"share": 0.01, "blocks": 1}})


def tiles(published: PublishedState) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen(Views(published).public("people")["tiles"])
    return sorted(found, key=lambda tile: str(tile["query_id"]))


@pytest.fixture
def standing(published: PublishedState) -> PublishedState:
    """The same, with a standing query ``late`` that two phases have answered."""
    take(published, "answers", answer("late@1"), at=1)  # topics have no mutual order
    stand(published, "late")
    take(published, "answers", answer("late@2", count=60, phase=2), at=2)
    return published


def test_a_tile_has_the_answers_of_its_phases_until_its_query_ends(
    standing: PublishedState,
) -> None:
    (tile,) = tiles(standing)
    points = [(one["phase"], one["value"], one["at"]) for one in tile["history"]]
    assert points == [(1, 0.25, 1), (2, 0.5, 2)]
    assert (tile["words"], tile["sql"], tile["next_loss"]) == ("age >= 30", "age >= 30", 0.01)
    found = seen(Views(standing).public("people")["answers"])
    questions = {one["query_id"]: one.get("question") for one in found}
    nothing = dict.fromkeys(("q1", "q2", "q3"))
    assert questions == {"late@1": "age >= 30", "late@2": "age >= 30", **nothing}
    standing.take("standing", "people ann late", None, 4)
    assert tiles(standing) == []


def test_a_refused_phase_says_why_and_a_table_has_the_cells_of_the_newest(
    standing: PublishedState,
) -> None:
    reason = {"code": "budget_exhausted", "message": "nothing is left", "retriable": False}
    refused = {"analyst": "ann", "status": "refused", "kind": "predicate", "reason": reason}
    take(standing, "answers", {**refused, "query_id": "late@3"})
    stand(standing, "by", kind="table", group_by=["city"], where=None)
    for phase in (1, 2):
        counts = [12 * phase, 120 - 12 * phase]
        take(standing, "answers", by_city(f"by@{phase}", counts, [1.2, None], phase=phase))
    by, late = tiles(standing)
    assert late["history"][-1]["refused"] == "nothing is left"
    assert by["cells"] == [["Bonn", 0.2, 0.01, "20.00% ± 1.00%"], ["Graz", 0.8, None, "80.00%"]]
    assert by["in_all"] == 2
    assert [one["cells"][0][1] for one in by["history"]] == [0.1, 0.2]


def test_what_is_remembered_of_a_tile_is_bounded(standing: PublishedState) -> None:
    for phase in range(3, 200):
        take(standing, "answers", answer(f"late@{phase}", phase=phase))
    (tile,) = tiles(standing)
    assert [one["phase"] for one in tile["history"]] == list(range(140, 200))


# ---------------------------------------------------------------- running totals


def tick(published: PublishedState, hour: int, day: int = 21, **more: Any) -> None:
    """Totals of a day at an hour: of two cities, and of those who are 30 or older."""
    counts = [300.0 * hour, 100.0 * hour - 250.0]
    of_tick: dict[str, Any] = {
        "count_bar": 90.0,
        "count_bar_all_ticks": 120.5,
        "last_counts": counts,
        "last_count_bar": 80.0,
    }
    by_city = {"group_by": ["city"], "labels": [["Bonn", "Graz"]], "counts": counts, **of_tick}
    old = {"where": {"attribute": "age", "ge": 30}, "counts": counts[:1], **of_tick}
    document = {
        "since": f"2026-11-{day}",
        "until": f"2026-11-{day}T{hour:02}:00+01:00",
        "tick": hour,
        "ticks": 24,
        "rows": 500 * hour,
        "confidence": 0.99,
        "share": 0.01,
        "tiles": [by_city, {**old, "last_counts": counts[:1]}],
        **more,
    }
    take(published, "running", document)


def so_far(published: PublishedState) -> Any:
    return seen(Views(published).public("people")["running"])


def opened(published: PublishedState, since: str, until: str) -> None:
    event = {"event": "phase_opened", "phase": 2, "rows": 900, "since": since, "until": until}
    take(published, "events", event)


def test_the_tiles_of_a_period_have_its_newest_tick_and_its_course(
    published: PublishedState,
) -> None:
    assert so_far(published) is None
    for hour in (2, 1, 2, 3):  # a tick may come again
        tick(published, hour)
    found = so_far(published)
    assert (found["rows"], found["until"]) == (1500, "03:00")
    by_city, old = found["tiles"]
    assert by_city["title"] == "2026-11-21 so far: people by city, until 03:00"
    assert old["title"] == "2026-11-21 so far: people where age >= 30, until 03:00"
    bonn, graz = ["Bonn", 900.0, 90.0, "900 ± 90"], ["Graz", 50.0, 90.0, "0 to 140"]
    assert (by_city["cells"], by_city["in_all"]) == ([bonn, graz], 2)
    assert old["cells"] == [["", 900.0, 90.0, "900 ± 90"]]
    course = by_city["courses"][1]
    assert course["name"] == "Graz"
    assert course["points"] == [
        ["01:00", 0.0, 0.0, "0 to 0"],
        ["02:00", 0.0, 70.5, "0 to 70"],
        ["03:00", 50.0, 120.5, "0 to 170"],
    ]
    assert [course["name"] for course in old["courses"]] == [""]


@pytest.mark.parametrize("phase_comes_first", [False, True])
def test_totals_end_with_the_phase_of_their_period(
    published: PublishedState, phase_comes_first: bool
) -> None:
    """Topics have no mutual order."""
    steps = [lambda: tick(published, 24), lambda: opened(published, "2026-11-20", "2026-11-22")]
    for step in steps[::-1] if phase_comes_first else steps:
        step()
    assert so_far(published) is None
    tick(published, 1, day=22)
    assert so_far(published)["until"] == "01:00"
    opened(published, "2026-11-20", "2026-11-22")
    assert so_far(published) is not None, "that is another period"


def test_only_the_newest_period_is_kept_and_of_many_ticks_and_cells_some(
    published: PublishedState,
) -> None:
    for minute in range(1, 1000):
        until = f"2026-11-21T{minute // 60:02}:{minute % 60:02}+01:00"
        tick(published, 3, tick=minute, ticks=1440, until=until)
    kept = published.datasets["people"].running
    points = so_far(published)["tiles"][0]["courses"][0]["points"]
    assert len(points) <= 120
    assert [points[0][0], points[-1][0]] == ["00:01", "16:39"]
    assert points == sorted(points)
    tick(published, 1, day=22)
    tick(published, 24, day=21, until="2026-11-22")  # the day before closes
    assert so_far(published)["tiles"][0]["title"].startswith("2026-11-22 so far")
    assert len(kept._course) == 1
    wide = {"labels": [[str(one) for one in range(100)]], "counts": [1.0] * 100}
    bars = {"count_bar": 9.0, "count_bar_all_ticks": 9.0, "last_count_bar": 9.0}
    tile = {"group_by": ["age"], **wide, **bars, "last_counts": [1.0] * 100}
    tick(published, 2, day=22, tiles=[tile])
    (found,) = so_far(published)["tiles"]
    assert (len(found["cells"]), found["in_all"], len(found["courses"])) == (40, 100, 2)


def test_who_does_not_see_a_data_set_sees_no_totals_and_a_retired_one_has_none(
    published: PublishedState,
) -> None:
    tick(published, 3)
    take(published, "catalog", {**DEFINITION, "dataset": "other"})
    published.take("catalog", "zoo", json.dumps({**DEFINITION, "dataset": "zoo"}).encode(), 0)
    sections = Views(published).public("people", frozenset({"zoo"}))
    assert seen(sections["running"]) is None
    assert b"so far" not in b"".join(sections.values())
    assert so_far(published) is not None
    published.take("catalog", "people", b"", 0)
    assert so_far(published) is None


# ---------------------------------------------------------------- shares of analysts


def shares(book: Book) -> dict[str, dict[str, Any]]:
    """What the page gets of each analyst."""
    published = PublishedState()
    for at, entry in enumerate(book.entries):
        take(published, "ledger", entry, 1000 + at)
    published.datasets["people"].retired = True  # it needs no definition then
    found = seen(Views(published).public("people")["dataset"])["shares"]
    return {one["who"]: one for one in found}


def test_the_page_gets_the_newest_phase_and_the_one_with_least_left() -> None:
    book = Book(RULES, phases=3)
    book.charge("finance", (0, part(0.3), 0), (2, part(0.1), 0))
    found = shares(book)
    assert list(found) == ["the owner", "finance", "nightly", "team-*", "*", "the rest"]
    lines = {
        "newest": {"phase": 3, "spent": pytest.approx(0.1), "left": pytest.approx(0.3)},
        "worst": {"phase": 1, "spent": pytest.approx(0.3), "left": pytest.approx(0.1)},
    }
    rule = {"who": "finance", "entry": "finance", "share": 0.4, "kept": 0.4}
    assert found["finance"] == {**rule, **lines}
    assert found["nightly"]["owner"] is True
    assert found["the rest"]["kept"] == 0.15


def test_of_many_phases_the_page_looks_at_the_last_sixty() -> None:
    book = Book(RULES, phases=100)
    book.charge("finance", (0, part(0.4), 0), (99, part(0.1), 0))
    finance = shares(book)["finance"]
    assert (finance["worst"]["phase"], finance["newest"]["phase"]) == (100, 100)
    assert finance["worst"]["left"] == pytest.approx(0.3)


def test_there_is_nothing_to_show_without_shares_or_where_a_newer_release_wrote_them() -> None:
    newer = {"analysts": {"ann": {"share": 0.5, "of_a_newer_release": True}}}
    assert shares(Book()) == shares(Book(newer)) == {}
    before = shares(Book(RULES, phases=0)).values()
    assert all("newest" not in one and "worst" not in one for one in before)
