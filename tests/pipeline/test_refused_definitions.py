"""Definitions that cannot hold: each is rejected by its field, in words, and leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.messages import Definition
from tests.pipeline.flights import TWO_ATTRIBUTES, judged
from tests.pipeline.held import held_of
from tests.pipeline.world import MEMORY, definition

pytestmark = judged

LAW = "retention: the profile"
PAPERS: dict[str, dict[str, Any]] = {
    "median": {"profile": "median", "queries": 10},
    "sequential": {"profile": "sequential", "queries_per_phase": 10, "phases": 3},
    "memory": {"profile": "memory", "queries_per_phase": 10, "phases": 3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "gated": {"profile": "gated", "segments": 20},
    "weights": {"profile": "weights"},
    "bypass": {"profile": "bypass"},
}
LOOK_ONCE: dict[str, dict[str, Any]] = {
    "counts": {"profile": "counts"},
    "whole_table": {"profile": "whole_table"},
}
FARE = {"name": "fare", "type": "number", "edges": [50, 100, 200], "missing": True}
MEASURE = {"unit": 0.01, "low": 0, "high": 400}
MONTH = {
    "name": "month",
    "type": "date",
    "by": "month",
    "timezone": "Europe/Berlin",
    "epoch": "ms",
    "from": "2026-01-01",
    "until": "2026-05-01",
    "missing": True,
}

Case = tuple[dict[str, Any], str]
"""What a definition has besides, and words that say what is wrong with it."""

PLAIN: list[Case] = [
    ({"proposals": [{"attribute": "delay"}]}, "proposals"),
    ({"found": []}, "found"),
    (
        {"versions": [{"schema_version": 1, "first_phase": 1, "attributes": TWO_ATTRIBUTES}]},
        "versions",
    ),
    ({"attributes": []}, "attributes"),
    ({"attributes": [{"name": "a", "type": "boolean"}] * 2}, "attributes"),
    ({"attributes": [{"name": "a", "type": "text"}]}, "attributes.0"),
    ({"attributes": [{"name": "a", "type": "number", "edges": [2, 1]}]}, "attributes.0.edges"),
    (
        {"attributes": [{"name": "a", "type": "category", "values": ["\ud800"]}]},
        "attributes.0.values",
    ),
    ({"attributes": [{"name": "\ud800", "type": "boolean"}]}, "message"),
    ({"privacy": {"epsilon": 0, "delta": 1e-9}}, "privacy.epsilon"),
    ({"privacy": {"epsilon": "1", "delta": 1e-9}}, "privacy.epsilon"),
    ({"phase": {"min_rows": 0}}, "phase.min_rows"),
    ({"phase": {"min_rows": 2**63}}, "phase.min_rows"),
    ({"mechanism": {"profile": "laplace"}}, "mechanism"),
    ({"mechanism": {"profile": "memory"}}, "mechanism"),
    ({"mechanism": {"profile": "memory", "queries_per_phase": 2, "phases": 1}}, "accuracy"),
    ({"dataset": "Flights"}, "dataset"),
    ({"dataset": "{a}"}, "dataset"),
    ({"dataset": "../a"}, "dataset"),
    ({"dataset": ""}, "dataset"),
    ({"dataset": "a" * 64}, "dataset"),
    ({"kinds": {"mode": {"share": 0.05, "groups": 100}}}, "kinds.mode.groups: at this share fewer"),
    *(({"synthetic_rows": n}, "synthetic_rows") for n in (-1, 10_001, 2.5, True)),
    ({"synthetic_rows": 10, "mechanism": LOOK_ONCE["counts"]}, "has no synthetic rows"),
]
RETENTIONS: list[dict[str, Any]] = [
    {"phases": 0},
    {"phases": 1.5},
    {},
    {"phases": 1, "days": 2},
    {"answers": {}},
    {"answers": {"days": 0}},
    {"answers": {"phases": 2}},
]
RETENTION: list[Case] = [
    *(
        ({"mechanism": mechanism, "retention": {"phases": 3}}, LAW)
        for mechanism in (*PAPERS.values(), *OTHERS.values())
    ),
    *(({"retention": retention}, "retention") for retention in RETENTIONS),
]
LIMITS: list[Case] = [
    (
        {"accuracy": {"error": 0.02, "query_share": 0.1}, "mechanism": LOOK_ONCE["counts"]},
        "accuracy.query_share",
    ),
    (
        {"accuracy": {"error": 0.02, "least_error": 0.01}, "mechanism": LOOK_ONCE["whole_table"]},
        "accuracy.least_error",
    ),
    ({"accuracy": {"error": 0.02, "least_error": 0.03}}, "accuracy.least_error"),
    ({"accuracy": {"error": 0.02, "query_share": 0}}, "accuracy.query_share"),
]
VALUES: list[Case] = [
    *(
        ({"attributes": [TWO_ATTRIBUTES[0], {**FARE, "measure": measure}]}, words)
        for measure, words in (
            ({"unit": 0, "low": 0, "high": 1}, "attributes.1.measure.unit"),
            ({"unit": 0.01, "low": 0}, "attributes.1.measure.high"),
            ({"unit": 0.01, "low": 0, "high": 1, "more": 1}, "attributes.1.measure"),
            ({"unit": 0.3, "low": 0, "high": 1}, "attributes.1.measure.high"),
            ({"unit": 1, "low": 7, "high": 7}, "attributes.1.measure.high"),
            ({"unit": 0.0001, "low": 0, "high": 400}, "attributes.1.measure.unit"),
        )
    ),
    *(
        (
            {"attributes": [TWO_ATTRIBUTES[0], {**FARE, "measure": MEASURE}], "mechanism": other},
            "attributes.1.measure needs the profile",
        )
        for other in (*PAPERS.values(), *OTHERS.values(), *LOOK_ONCE.values())
    ),
    (
        {"attributes": [{**FARE, "measure": MEASURE}], "phase": {"min_rows": 2**41}},
        "phase.min_rows is above",
    ),
]
PROPOSE = {"name": "fare", "type": "number", "propose": {}}
PROPOSALS: list[Case] = [
    *(
        ({"attributes": [{**PROPOSE, **changes}]}, words)
        for changes, words in (
            ({"edges": [1, 2]}, "remove one of the two"),
            ({"propose": {"bins": 1}}, "attributes.0.propose.bins"),
            ({"propose": {"share": 0.6}}, "attributes.0.propose.share"),
            ({"propose": {"unit": 0}}, "attributes.0.propose.unit"),
            ({"propose": {"unit": 0.5}, "integer": True}, "propose.unit is fractional"),
            ({"measure": MEASURE}, "none are known yet"),
            ({"representatives": [0.0] * 403}, "none are known yet"),
            ({"propose": None}, "attributes.0.edges"),
        )
    ),
    *(
        ({"attributes": [PROPOSE], **more}, words)
        for more, words in (
            ({"mechanism": LOOK_ONCE["counts"]}, "this profile"),
            ({"synthetic_rows": 100}, "synthetic rows"),
            ({"kinds": {"median": {"share": 0.1}}}, "other kinds do not"),
            ({"mechanism": {"base_share": 0.96}}, "more than a line"),
        )
    ),
    (
        {"attributes": [{**PROPOSE, "name": n, "propose": {"share": 0.3}} for n in "ab"]},
        "more than half a line",
    ),
]
DATES: list[Case] = [
    ({"attributes": [{**MONTH, **changes}]}, field)
    for changes, field in (
        ({"from": "2026-1-1"}, "attributes.0.from"),
        ({"from": None}, "attributes.0.from"),
        ({"by": "decade"}, "attributes.0.by"),
        ({"timezone": "Mars"}, "attributes.0.timezone"),
        ({"epoch": "us"}, "attributes.0.epoch"),
        ({"until": "2026-01-15"}, "attributes.0.until"),
        ({"first": "2026-01-01"}, "attributes.0"),
    )
]
THESIS: list[Case] = [
    ({**MEMORY, "privacy": {"epsilon": 2.0, "delta": 0.01}, "mechanism": mechanism}, words)
    for mechanism, words in (
        ({"profile": "median"}, "queries"),
        ({**PAPERS["median"], "phases": 2}, "mechanism: it has an unknown field"),
        ({**PAPERS["sequential"], "phases": 9, "composition": 1.01}, "composition"),
        ({**PAPERS["memory"], "representation": "grid"}, "representation"),
        ({**PAPERS["memory"], "doubling": "yes"}, "doubling"),
    )
]
RULES: list[Case] = [
    ({"analysts": {"ann": {"share": 0.7}, "bob": {"share": 0.4}}}, "a line is 1"),
    ({"analysts": {"ann": {"share": 0.7}}, "owner": {"share": 0.4}}, "a line is 1"),
    ({"analysts": {"ann": {"together": 0.2}}}, "applies to patterns"),
    ({"analysts": {"a*": {"share": 0.3, "together": 0.2}}}, "at most together"),
    ({"analysts": {"*-team": {"share": 0.1}}}, "put one * at the end"),
    ({"analysts": {"a*b": {}, "a*": {}}}, "put one * at the end"),
    ({"analysts": {"**": {}}}, "put one * at the end"),
    ({"analysts": {"ann": {"owner": True, "share": 0.1}}}, "remove share"),
]
OPENINGS: list[Case] = [
    (
        {"mechanism": {"base_share": 0.3}, "analysts": {"ann": {"share": 0.8}}},
        "and 0.2 is left for that",
    ),
    (
        {**MEMORY, "analysts": {"ann": {"share": 0.2}}},
        "pays for all queries of a phase",
    ),
]


def wrong(world: Any, told: list[tuple[Any, str, dict[str, Any]]]) -> Iterator[Any]:
    """What of these records is not rejected in these words."""
    for record, words, document in told:
        reason = world.rejection(record)["reason"]
        if reason["code"] not in {"invalid_definition", "invalid_message"}:
            yield document, reason
        if words not in reason["message"]:
            yield document, reason["message"]


async def test_a_definition_that_cannot_hold_is_rejected_by_its_field_and_leaves_no_trace(
    world: Any, process: Any
) -> None:
    told = [
        (world.define(**{"dataset": "flights", **changes}), words, changes)
        for cases in (PLAIN, RETENTION, LIMITS, VALUES, PROPOSALS, DATES, THESIS, RULES, OPENINGS)
        for changes, words in cases
    ]
    await process.run()
    assert [*wrong(world, told)] == []
    assert held_of(world) == {} == dict(process.worker.datasets)
    world.define("flights", mechanism={"base_share": 0.3}, analysts={"ann": {"share": 0.6}})
    await process.run()
    assert [event["event"] for event in world.events()] == ["dataset_accepted"]
    change = {"version": 1, "dataset": "flights", "change": "analysts"}
    told = [(world.produce("datasets", {**change, **case}), words, case) for case, words in RULES]
    await process.run()
    assert [*wrong(world, told)] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"epsilon": 2.0, "delta": 1e-9}},
        {"accuracy": {"error": 0.03, "failure_probability": 0.01}},
        {"phase": {"min_rows": 1}},
        {"on_exhausted": "refuse"},
        {"mechanism": {"profile": "memory", "queries_per_phase": 2, "phases": 1}},
        {"attributes": [{"name": "carrier", "type": "category", "values": ["AA"]}]},
    ],
)
async def test_a_definition_never_changes(
    world: Any, process: Any, changes: dict[str, Any]
) -> None:
    world.define("flights")
    await process.run()
    before = process.worker.datasets["flights"].definition
    record = world.define("flights", **changes)
    await process.run()
    assert world.rejection(record)["reason"]["code"] == "dataset_exists"
    assert process.worker.datasets["flights"].definition == before


# ---------------------------------------------------------------- frozen bytes

GOLDEN = Path(__file__).parents[1] / "golden/definitions"


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_definitions_that_earlier_releases_wrote_are_read_and_written_back_alike(
    file: Path,
) -> None:
    stored = file.read_bytes()
    read = Definition.read(json.loads(stored))
    assert read.to_bytes() == stored
    assert hash(read) == hash(Definition.read(json.loads(stored)))


def test_what_a_definition_does_not_name_is_not_in_its_bytes() -> None:
    plain = Definition.read(definition("flights")).to_bytes()
    assert b"null" not in plain
    for name in ("retention", "measure", "least_error", "query_share", "analysts", "threshold"):
        assert name not in plain.decode()
