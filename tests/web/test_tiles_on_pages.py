"""Tiles: standing queries with their history, from the topics and in a real browser."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.messages import QueryFields
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.query_words import sql_of
from stream_dp.web.page_data.views import Views

PEOPLE = "people"
TOKEN = "operator-token-of-this-test"
Open = Callable[..., Any]


# ---------------------------------------------------------------- from the topics


def _listed(query_id: str = "late", **fields: Any) -> dict[str, Any]:
    query = {"query_id": query_id, "where": {"attribute": "age", "ge": 30}, **fields}
    head = {"version": 1, "dataset": PEOPLE, "analyst": "ana", "query_id": query_id}
    return {**head, "query": query, "since_phase": 0, "next_loss": {"share": 0.01, "blocks": 1}}


def _answer(query_id: str, phase: int, **changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": PEOPLE,
        "query_id": query_id,
        "analyst": "ana",
        "status": "answered",
        "kind": "predicate",
        "n": 1000,
        "value": 0.1 * phase,
        "count": 100 * phase,
        "error_bar": 0.02,
        "difficulty": "hard",
        "path": "measured",
        "privacy_loss": {"share": 0.01, "blocks": 1},
        "budget": {"spent": 0.1, "left": 0.9},
        "phase": phase,
        "window": [phase, phase],
        **changes,
    }


def _take(published: PublishedState, role: str, document: dict[str, Any], at: int = 0) -> None:
    key = document["dataset"]
    if role == "standing":
        key = f"{key} {document['analyst']} {document['query_id']}"
    published.take(role, key, json.dumps(document).encode(), at)


@pytest.fixture
def published() -> PublishedState:
    """A data set with two phases and a standing query."""
    made = PublishedState()
    definition = {
        "version": 1,
        "dataset": PEOPLE,
        "attributes": [{"name": "age", "type": "number", "edges": [30]}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.1},
        "phase": {"min_rows": 2000},
    }
    made.take("catalog", PEOPLE, json.dumps(definition).encode(), 0)
    _take(made, "answers", _answer("late@1", 1), at=1)  # topics have no mutual order
    _take(made, "standing", _listed())
    _take(made, "answers", _answer("late@2", 2), at=2)
    _take(made, "answers", _answer("by-hand", 2), at=3)
    return made


def _tiles(published: PublishedState) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Views(published).public(PEOPLE)["tiles"])
    return found


def test_a_tile_has_the_answers_of_its_phases_in_order(published: PublishedState) -> None:
    (tile,) = _tiles(published)
    assert [(one["phase"], one["value"], one["at"]) for one in tile["history"]] == [
        (1, 0.1, 1),
        (2, 0.2, 2),
    ]
    assert (tile["words"], tile["sql"], tile["next_loss"]) == ("age >= 30", "age >= 30", 0.01)


def test_a_tombstone_takes_the_tile_away(published: PublishedState) -> None:
    published.take("standing", f"{PEOPLE} ana late", None, 4)
    assert _tiles(published) == []


def test_the_answers_of_a_standing_query_stand_next_to_what_it_asks(
    published: PublishedState,
) -> None:
    answers = json.loads(Views(published).public(PEOPLE)["answers"])
    questions = {one["query_id"]: one.get("question") for one in answers}
    assert questions == {"late@1": "age >= 30", "late@2": "age >= 30", "by-hand": None}


def test_a_refused_phase_says_why_and_a_table_has_the_cells_of_the_newest(
    published: PublishedState,
) -> None:
    reason = {"code": "budget_exhausted", "message": "nothing is left", "retriable": False}
    head = {"version": 1, "dataset": PEOPLE, "analyst": "ana", "status": "refused"}
    _take(
        published, "answers", {**head, "query_id": "late@3", "kind": "predicate", "reason": reason}
    )
    _take(published, "standing", _listed("by", kind="table", group_by=["age"], where=None))
    for phase in (1, 2):
        table = {
            "attributes": ["age"],
            "labels": [["< 30", ">= 30"]],
            "values": [0.1 * phase, 1 - 0.1 * phase],
            "counts": [100, 900],
            "error_bars": [0.01, None],
        }
        answer = _answer(f"by@{phase}", phase, kind="table", table=table)
        for name in ("value", "count", "error_bar"):
            del answer[name]
        _take(published, "answers", answer)
    by, late = sorted(_tiles(published), key=lambda tile: tile["query_id"])
    assert late["history"][-1]["refused"] == "nothing is left"
    assert by["cells"] == [["< 30", 0.2, 0.01], [">= 30", 0.8, None]]
    assert by["in_all"] == 2
    assert [one["cells"][0] for one in by["history"]] == [["< 30", 0.1, 0.01], ["< 30", 0.2, 0.01]]


def test_what_is_remembered_of_a_tile_is_bounded(published: PublishedState) -> None:
    for phase in range(3, 200):
        _take(published, "answers", _answer(f"late@{phase}", phase))
    (tile,) = _tiles(published)
    assert [one["phase"] for one in tile["history"]] == list(range(140, 200))


@pytest.mark.parametrize(
    ("fields", "sql"),
    [
        ({}, ""),
        ({"where": {"attribute": "age", "ge": 30}}, "age >= 30"),
        (
            {"kind": "table", "group_by": ["city"], "where": {"attribute": "age", "lt": 30}},
            "SELECT city, COUNT(*) WHERE age < 30 GROUP BY city",
        ),
        ({"kind": "sum", "attribute": "age"}, "SELECT SUM(age)"),
        ({"kind": "sum", "attribute": "age", "mean": True}, "SELECT AVG(age)"),
        (
            {"kind": "share", "share_of": {"attribute": "smoker", "eq": True}},
            "SELECT COUNT(*) FILTER (WHERE smoker = TRUE) / COUNT(*)",
        ),
        ({"kind": "quantile", "attribute": "age", "rank": 0.5}, "SELECT QUANTILE(age, 0.5)"),
        (
            {"kind": "quantile", "attribute": "age", "rank": 0.0, "group_by": ["city"]},
            "SELECT city, QUANTILE(age, 0) GROUP BY city",
        ),
        ({"kind": "mode", "attribute": "age"}, "SELECT MODE(age)"),
        ({"kind": "median", "attribute": "age"}, None),
        ({"kind": "threshold", "attribute": "age"}, None),
        ({"error": 0.01}, None),
    ],
)
def test_a_link_carries_sql_where_there_is_any(fields: dict[str, Any], sql: str | None) -> None:
    from stream_dp.sql import parse

    query = QueryFields.read({"query_id": "q", **fields})
    assert sql_of(query) == sql
    if sql:
        attributes = [
            {
                "name": "city",
                "type": "category",
                "values": ["Bonn"],
                "other": True,
                "missing": False,
            },
            {"name": "age", "type": "number", "edges": [30.0], "integer": True, "missing": False},
            {"name": "smoker", "type": "boolean", "missing": False},
        ]
        again = QueryFields.read({"query_id": "q", **parse(sql, attributes)})
        assert (again.kind, again.group_by, again.attribute) == (
            query.kind,
            query.group_by,
            query.attribute,
        )


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def worker(module_deployment: Any) -> Any:
    """Answers about people; three phases with three tiles."""
    worker = module_deployment.worker(web_operator_token=TOKEN)
    worker.wait_ready()
    with module_deployment.client(analyst="ana") as client:
        client.define(
            {
                "dataset": PEOPLE,
                "attributes": [
                    {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
                    {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True},
                    {"name": "smoker", "type": "boolean"},
                ],
                "privacy": {"epsilon": 2.0, "delta": 1e-9},
                "accuracy": {"error": 0.1, "failure_probability": 0.01},
                "phase": {"min_rows": 5000},
            }
        )
        client.stand(PEOPLE, "smoker", query_id="smokers", last_phases=1, alert={"above": 0.2})
        client.stand(PEOPLE, "SELECT city, COUNT(*) GROUP BY city", query_id="=cities")
        client.stand(PEOPLE, "SELECT AVG(age)", query_id="age")
        for phase in (1, 2, 3):
            client.send(PEOPLE, columns=_rows(phase, 5000))
    return worker


def _rows(seed: int, n: int) -> dict[str, list[object]]:
    draw = random.Random(seed)
    return {
        "city": [draw.choice(["Bonn", "Bonn", "Graz", "Oslo"]) for _ in range(n)],
        "age": [draw.randrange(90) for _ in range(n)],
        "smoker": [draw.random() < 0.2 + 0.1 * seed for _ in range(n)],
    }


@pytest.fixture
def visit(browser: Any, worker: Any) -> Iterator[Open]:
    """``visit("/ask?q=smoker", width=390)``: a page in a profile of its own, let in."""
    pages = []

    def visit(path: str, **how: Any) -> Any:
        page = browser.open(f"{worker.url}/#token={TOKEN}", **how)
        pages.append(page)
        page.until_text("This link enters as", "#who")
        page.click("#enter")
        page.until_text(PEOPLE, "#head")
        page.go(f"{worker.url}{path}")
        page.until_text(PEOPLE, "#head")
        return page

    yield visit
    for page in pages:
        page.close()


@pytest.mark.kafka
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_tiles_show_their_answers_history_and_cost(
    visit: Open, width: int, dark: bool, shots: Callable[[Any, str], None]
) -> None:
    page = visit("/ask", width=width, dark=dark)
    page.until_text("phase 3", "#standing")
    page.until("document.querySelectorAll('#standing svg').length === 3")
    said = page.text("#standing")
    assert "smoker = TRUE, last 1 phases" in said
    assert "alert when the whole bar is above 0.2" in said
    assert "the next answer" in said
    pictures = page.evaluate(
        "[...document.querySelectorAll('#standing svg')].map((one) => one.getAttribute('aria-label'))"
    )
    assert sum(label.startswith("Over time: 1:") for label in pictures) == 2
    assert sum("Bonn" in label for label in pictures) == 1
    assert page.evaluate("document.querySelectorAll('#standing details tbody tr').length") == 3
    page.until_text("alert: smokers@3", "#events")
    page.evaluate(
        "document.querySelectorAll('#standing details').forEach((one) => { one.open = true; })"
    )
    shots(page, f"tiles-{width}")
    assert (page.overflow(), page.pale(), page.errors()) == ([], [], [])


@pytest.mark.kafka
def test_a_tile_links_to_its_question_and_can_be_downloaded(visit: Open) -> None:
    page = visit("/ask")
    page.until_text("phase 3", "#standing")
    links = page.evaluate(
        "[...document.querySelectorAll('#standing a')].map((one) => one.getAttribute('href'))"
    )
    assert f"/ask?dataset={PEOPLE}&q=smoker+%3D+TRUE&last=1" in links
    page.go(page.evaluate("location.origin") + links[0])
    page.until("document.querySelector('#question').value")
    page.until("document.querySelector('#answer-card').hidden")
    csv = page.evaluate(
        "import('/static/tiles.js').then(({ csvOf }) => csvOf({"
        "cells: [['=1+1', 0.5, null], ['a, \"b\"', 0.25, 0.1]], history: ["
        "{ phase: 2, at: 0, cost: 0, path: 'certified', cells: [['-5', 1, 0.5], ['\\rx', -1, 0.5]] },"
        "{ phase: 3, at: 0, cost: 0.01, path: 'measured', cells: [['=1+1', 0.5, null]] }] }))"
    )
    assert csv.split("\r\n")[1:] == [
        "2,1970-01-01T00:00:00.000Z,-5,1,0.5,0,certified,",
        '2,1970-01-01T00:00:00.000Z,"\'\rx",-1,0.5,0,certified,',
        "3,1970-01-01T00:00:00.000Z,'=1+1,0.5,,0.01,measured,",
        '3,1970-01-01T00:00:00.000Z,"a, ""b""",0.25,0.1,0.01,measured,',
        "",
    ]


@pytest.mark.kafka
def test_a_question_becomes_a_tile_and_is_ended(visit: Open) -> None:
    page = visit("/ask?q=age+%3E%3D+30&last=2")
    page.until("document.querySelector('#question').value === 'age >= 30'")
    assert page.evaluate("document.querySelector('#window').value") == "2"
    page.click("#stand")
    page.until_text("Write a name for the tile first", "#says")
    page.write("#name", "grown-up")
    page.click("#stand")
    page.until_text("grown-up is answered in each phase", "#says")
    page.until_text("age >= 30, last 2 phases", "#standing")
    page.until("document.querySelector('[data-key=\"end dashboard grown-up\"]')")
    page.click('[data-key="end dashboard grown-up"]')
    page.until("!document.querySelector('#standing').innerText.includes('grown-up')")


@pytest.mark.kafka
def test_a_question_that_fails_puts_the_last_answer_away(visit: Open) -> None:
    page = visit("/ask")
    page.until("document.querySelector('#dataset').value")
    page.write("#question", "smoker")
    page.click("#ask")
    page.until("!document.querySelector('#answer-card').hidden")
    page.until_text("Link to this question", "#answer")
    page.until_text("smoker", "#answers")
    page.write("#question", "gate = 'B1'")
    page.click("#ask")
    page.until("document.querySelector('#says').classList.contains('wrong')")
    assert page.evaluate("document.querySelector('#answer-card').hidden")
