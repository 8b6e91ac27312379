"""Tiles: standing queries with their history, from the topics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.messages import QueryFields
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.query_words import sql_of
from stream_dp.web.page_data.views import Views

PEOPLE = "people"


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
