"""Queries that cannot be answered: each is refused or rejected in words, by its field, and for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.flights import (
    AA,
    BEFORE,
    CUT,
    FLOWN,
    GONE,
    LAST,
    LATE,
    TWO_ATTRIBUTES,
    TWO_ROWS,
    UA,
    VERY_LATE,
    asked,
    assert_said,
    judged,
    opened,
    spent,
)

pytestmark = judged

KINDS: dict[str, Any] = {
    "threshold": {"share": 0.2},
    "prefix_batch": {"share": 0.1},
    "between": {"share": 0.15, "answers": 2},
    "interior_point": {"share": 0.1, "points": 100},
    "adaptive_threshold": {"share": 0.2, "chunks": 4, "queries": 50},
}
EVERY_KIND: dict[str, Any] = {"kinds": KINDS, "privacy": {"epsilon": 20.0, "delta": 1e-6}}
EARLY = {"attribute": "delay", "lt": 0}
NOBODY: dict[str, Any] = {"where": {"any": []}}

FORM, QUERY, ATTRIBUTE = "invalid_message", "invalid_query", "unknown_attribute"
OF_KINDS: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "threshold": [
        ({"attribute": "carrier"}, QUERY, "no order"),
        ({"attribute": "speed"}, ATTRIBUTE, "attribute: "),
        ({"attribute": "delay", "where": AA}, QUERY, "one attribute"),
        (
            {"attribute": "delay", "where": {"not": {"attribute": "delay", "between": [0, 9]}}},
            QUERY,
            "one range",
        ),
        ({"attribute": "delay", "group_by": ["carrier"]}, FORM, "remove it"),
    ],
    "predicate": [({"rank": 0.5}, FORM, "remove it")],
    "quantile": [
        ({}, FORM, "add it"),
        ({"rank": 1.5}, FORM, "rank"),
        ({"attribute": "carrier", "rank": 0.5}, QUERY, "have no order"),
        ({"attribute": "speed", "rank": 0.5}, ATTRIBUTE, "attribute"),
        ({"group_by": ["delay"], "rank": 0.5}, QUERY, "whose quantile is asked"),
        ({**NOBODY, "rank": 0.5}, QUERY, "no row can satisfy it"),
        ({"where": {"attribute": "delay", "lt": 7}, "rank": 0.5}, "cuts_bin", "ask < 0 or < 10"),
        ({"error": {"value": 50}, "rank": 0.5}, FORM, "share of the rows"),
        ({"error": {"relative": 0.1}, "rank": 0.5}, FORM, "relative error"),
        ({"count_rows": True, "rank": 0.5}, FORM, "count_rows: remove it"),
    ],
    "prefix_batch": [
        (
            {"wheres": [EARLY, {"attribute": "delay", "lt": 5}]},
            "cuts_bin",
            "wheres[1].lt: this cuts the bin",
        ),
        ({"wheres": [EARLY, AA]}, QUERY, "wheres[1]: a batch is about"),
        ({"attribute": "speed", "wheres": [EARLY]}, ATTRIBUTE, "attribute: there is no such"),
        ({"wheres": []}, FORM, "add it"),
        ({"wheres": [EARLY] * 1_001}, FORM, "1000"),
        ({"wheres": [EARLY], "rank": 0.5}, FORM, "remove it"),
    ],
    "between": [
        ({"low": 0.1, "high": 0.3}, FORM, "needs where"),
        ({"where": AA, "low": 0.1}, FORM, "needs high"),
        ({"where": AA, "low": 0.3, "high": 0.3}, FORM, "not below high"),
        ({"where": AA, "low": 0.1, "high": 1.3}, FORM, "high"),
        ({"where": AA, "low": 0.3, "high": 0.301}, "window_too_small", "rows apart"),
    ],
    "interior_point": [
        ({"attribute": "delay"}, FORM, "needs where"),
        ({"attribute": "delay", "where": LATE}, QUERY, "lt or le"),
    ],
    "adaptive_threshold": [({"where": AA}, FORM, "needs attribute")],
    "mode": [({"attribute": "delay"}, "unsupported_kind", 'on by "mode" under "kinds"')],
}
ON_DELAY = ("quantile", "prefix_batch")


async def test_what_does_not_fit_its_kind_is_refused_in_words_before_any_look(world: Any) -> None:
    await opened(world, **EVERY_KIND)
    before = spent(world)
    cases = [
        ({"kind": kind, **({"attribute": "delay"} if kind in ON_DELAY else {}), **query}, *said)
        for kind, queries in OF_KINDS.items()
        for query, *said in queries
    ]
    await assert_said(world, cases)  # type: ignore[arg-type]
    assert spent(world) == before


SUM, SHARE = {"kind": "sum", "attribute": "delay"}, {"kind": "share", "share_of": VERY_LATE}
OF_SUMS: list[tuple[dict[str, Any], str, str]] = [
    ({**SUM, "attribute": "carrier"}, QUERY, "no numbers"),
    ({**SUM, "attribute": "carrier", "count_rows": True}, QUERY, "no numbers"),
    ({**SUM, "group_by": ["delay"]}, QUERY, "other attributes"),
    ({**SUM, "where": {"attribute": "delay", "is_missing": True}}, QUERY, "no row"),
    ({**SUM, "where": CUT}, "cuts_bin", "cuts the bin"),
    ({**SHARE, "share_of": AA, "where": UA}, QUERY, "the share is 0"),
    ({**SHARE, "share_of": AA, "where": {"all": [AA, VERY_LATE]}}, QUERY, "the share is 1"),
    ({**SHARE, "share_of": AA, **NOBODY}, QUERY, "where: no row can satisfy it"),
    ({**SHARE, "share_of": CUT}, "cuts_bin", "share_of.ge: this cuts the bin"),
    (
        {**SHARE, "share_of": {"all": [{"attribute": "town", "eq": 1}]}},
        ATTRIBUTE,
        "share_of.all[0].attribute",
    ),
    ({"kind": "share"}, FORM, 'kind "share" needs share_of: add it'),
    ({**SHARE, "fresh": True}, FORM, 'kind "share" has no fresh: remove it'),
    ({**SHARE, "error": {"relative": 0.1}}, FORM, "no relative error"),
    ({**SHARE, "error": {"mean": 0.1}}, FORM, 'write {"value": 0.01}'),
    ({**SHARE, "error": {"value": 1.5}}, FORM, "below 1"),
    ({"kind": "predicate", "share_of": AA}, FORM, 'kind "predicate" has no share_of'),
]


async def test_sums_and_shares_that_cannot_be_are_refused_in_words(world: Any) -> None:
    await opened(world, rows=TWO_ROWS, attributes=TWO_ATTRIBUTES)
    await assert_said(world, OF_SUMS)


OF_DIFFERENCES: list[tuple[dict[str, Any], str, str]] = [
    ({**BEFORE, "where": None}, QUERY, "where: every row satisfies it, so the difference is 0"),
    ({**BEFORE, **NOBODY}, QUERY, "where: no row can satisfy it, so the difference is 0"),
    ({}, FORM, 'kind "difference" needs minus_window: add it'),
    (
        {"minus_window": {"previous_phases": 1}},
        FORM,
        "no phase comes before a window of all phases",
    ),
    (
        {"minus_window": {"last_phases": 2}, "window": {"last_phases": 2}},
        FORM,
        "minus_window is the window itself",
    ),
    ({"minus_window": {}}, FORM, "write either last_phases, previous_phases or previous"),
    (
        {"minus_window": {"last_phases": 1, "previous_phases": 1}},
        FORM,
        "write either last_phases, previous_phases or previous",
    ),
    ({**BEFORE, "fresh": True}, FORM, 'kind "difference" has no fresh: remove it'),
    ({**BEFORE, "error": {"value": 0.1}}, FORM, "write it as a number such as 0.01"),
    ({**BEFORE, "error": {"relative": 0.1}}, FORM, "no relative error"),
    ({**BEFORE, "kind": "predicate"}, FORM, 'kind "predicate" has no minus_window'),
]


async def test_differences_that_cannot_be_are_refused_in_words(world: Any) -> None:
    await opened(world)
    windows = [
        (BEFORE, "window_too_small", "no phase before"),
        ({"minus_window": {"last_phases": 9}}, "window_too_small", "same phases"),
        ({**BEFORE, "quote": True}, "window_too_small", "before"),
    ]
    await assert_said(world, windows, kind="difference", where=LATE)
    reasons = [answer["reason"] for answer in world.answers().values()]
    assert [reason["retriable"] for reason in reasons] == [True] * 3
    for phase in (2, 3):
        world.cells("flights", f"{phase}")
    await assert_said(world, OF_DIFFERENCES, kind="difference", where=LATE)


TWO_NUMBERS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "edges": [20, 40, 60], "integer": True},
    {"name": "hours", "type": "number", "edges": [10, 30, 50], "integer": True},
    {"name": "smoker", "type": "boolean"},
]


async def test_correlations_that_cannot_be_are_refused_in_words(world: Any) -> None:
    rows = {"cells": [{"age": 10, "hours": 20, "smoker": True, "count": 40_000}]}
    await opened(world, rows=rows, attributes=TWO_NUMBERS)
    cases = [
        ({"attribute": "smoker"}, QUERY, "has no numbers"),
        ({"other": "age"}, QUERY, "it is age itself"),
        (NOBODY, QUERY, "no row can satisfy it"),
        *(
            ({"error": error}, FORM, "error")
            for error in (0.05, {"relative": 0.1}, {"mean": 0.1}, {"value": 1.5})
        ),
    ]
    await assert_said(world, cases, kind="correlation", attribute="age", other="hours")


OTHERS: dict[str, dict[str, Any]] = {
    "counts": {"profile": "counts"},
    "whole_table": {"profile": "whole_table"},
    "gated": {"profile": "gated", "segments": 20},
}


@pytest.mark.parametrize("profile", OTHERS)
async def test_other_profiles_say_what_to_ask_instead(world: Any, profile: str) -> None:
    rows = {"cells": [{"carrier": "AA", "count": 10**6}]}
    await opened(world, rows=rows, mechanism=OTHERS[profile])
    cases: list[tuple[dict[str, Any], str, str]] = [
        (SHARE, "unsupported_kind", "ask for both counts"),
        (
            {"kind": "difference", "where": AA, **BEFORE},
            "unsupported_kind",
            "each window and subtract",
        ),
        (
            {"kind": "quantile", "attribute": "delay", "rank": 0.5},
            "unsupported_kind",
            "calibrated",
        ),
        ({"where": AA, "error": 0.01}, QUERY, "error: "),
        ({"where": AA, "at_most": 0.01}, QUERY, "at_most: "),
        ({"where": AA, "fresh": True}, "unsupported_kind", "fresh"),
    ]
    await assert_said(world, cases)
    [plain] = await asked(world, {"where": AA})
    assert plain["status"] == "answered"


async def test_the_papers_mechanisms_do_not_answer_sums(world: Any) -> None:
    world.define_memory("thesis")
    query = {"kind": "sum", "attribute": "carrier"}
    await assert_said(world, [(query, "unsupported_kind", "")], dataset="thesis")


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"kind": "share", "share_of": LATE, "where": AA},
        {"share_of": {"all": [LATE, AA]}, "where": {"all": [AA]}},
    ),
    (
        {"kind": "difference", "where": LATE, **BEFORE},
        {"where": {"not": {"not": LATE}}},
    ),
    ({"where": {"any": [GONE, FLOWN]}, "fresh": True}, {"where": None}),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (SAME[0][0], {"share_of": {"attribute": "delay", "lt": 10}}),
    (SAME[1][0], {"minus_window": {"previous_phases": 2}}),
    (SUM, {"count_rows": True}),
    ({"where": AA, "error": 0.01}, {"error": 0.02}),
    ({"where": AA, **LAST}, {"window": None}),
]


@pytest.mark.parametrize(("query", "changes"), [*SAME, *OTHER], ids=str)
async def test_an_id_stands_for_one_query_in_whatever_words(
    world: Any, query: dict[str, Any], changes: dict[str, Any]
) -> None:
    await opened(world)
    world.cells("flights", "second")
    named = {"query_id": "q", **query}
    await world.run()
    [answer] = await asked(world, named)
    [other] = await asked(world, {**named, **changes})
    if (query, changes) in SAME:
        assert other == answer
    else:
        assert other["reason"]["code"] == "id_reused"
    assert await asked(world, named) == [answer]
