"""Statements about the present: their window says running, and no clock is read."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery

SCHEMA: list[dict[str, Any]] = [
    {"name": "status", "type": "category", "values": ["paid", "open"]},
    {"name": "booked", "type": "date", "cells": "day", "start": "2026-01-01", "end": "2026-12-31"},
]


@pytest.mark.parametrize(
    ("condition", "window"),
    [
        ("day = CURRENT_DATE", {"last": "1 day"}),
        ("day >= CURRENT_DATE", {"last": "1 day"}),
        ("day > CURRENT_DATE - INTERVAL '7 days'", {"last": "7 days"}),
        ("day >= CURRENT_DATE - INTERVAL '6' DAY", {"last": "7 days"}),
        ("day > CURRENT_DATE - 7 AND day <= CURRENT_DATE", {"last": "7 days"}),
        ("day BETWEEN CURRENT_DATE - 6 AND CURRENT_DATE", {"last": "7 days"}),
        ("day > CURRENT_DATE - INTERVAL '1 week'", {"last": "7 days"}),
        ("month = DATE_TRUNC('month', CURRENT_DATE)", {"last": "1 month"}),
        ("DATE_TRUNC('week', day) = DATE_TRUNC('week', CURRENT_DATE)", {"last": "1 week"}),
        ("day >= DATE '2026-11-01' AND day <= CURRENT_DATE", {"since": "2026-11-01"}),
    ],
)
def test_the_window_ends_with_the_present(condition: str, window: dict[str, str]) -> None:
    text = f"SELECT COUNT(*) FROM t WHERE status = 'paid' AND {condition}"
    found = sql.parse(text, SCHEMA, dataset="t")
    assert found == {
        "kind": "predicate",
        "where": {"attribute": "status", "eq": "paid"},
        "window": {**window, "running": True},
    }


def test_a_table_of_today_needs_no_other_condition() -> None:
    text = "SELECT status, COUNT(*) FROM t WHERE day = CURRENT_DATE GROUP BY status"
    found = sql.parse(text, SCHEMA, dataset="t")
    assert found["window"] == {"last": "1 day", "running": True}
    assert (found["kind"], found["where"]) == ("table", None)


@pytest.mark.parametrize(
    "condition",
    [
        "day = CURRENT_DATE - 1",
        "day < CURRENT_DATE",
        "day >= NOW() - INTERVAL '7 days'",
        "day = CURRENT_DATE OR status = 'paid'",
        "day > CURRENT_DATE - INTERVAL '7 hours'",
        "booked = CURRENT_DATE",
        "week = CURRENT_DATE",
        "day = CURRENT_DATE AND day > CURRENT_DATE - 7",
        "day = CURRENT_DATE AND day >= DATE '2026-11-01'",
        "phase = 3 AND day <= CURRENT_DATE",
        "day <= CURRENT_DATE",
    ],
)
def test_other_forms_of_the_present_are_refused_in_words(condition: str) -> None:
    with pytest.raises(InvalidQuery, match=r"line 1, column \d+: .*(present|beginning twice)"):
        sql.parse(f"SELECT COUNT(*) FROM t WHERE {condition}", SCHEMA, dataset="t")


def test_days_up_to_the_present_are_a_series() -> None:
    text = (
        "SELECT day, COUNT(*) FROM t WHERE status = 'paid' AND day > CURRENT_DATE - 7 GROUP BY day"
    )
    found = sql.parse(text, SCHEMA, dataset="t")
    assert found["window"] == {"last": "7 days", "running": True}
    assert found["series"] == "day"
