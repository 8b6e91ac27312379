"""Attributes as the catalog has them, what a worker makes of them, and conditions, written shortly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stream_dp.core.rows.universe import Universe
from stream_dp.messages import Definition
from stream_dp.profiles import builder


def universe_of(attributes: Sequence[dict[str, Any]]) -> Universe:
    """The universe that a worker builds of attributes."""
    promise = {"privacy": {"epsilon": 1.0, "delta": 1e-9}, "accuracy": {"error": 0.02}}
    head = {"version": 1, "dataset": "t", "phase": {"min_rows": 5}}
    return builder.universe_of(Definition.read({**head, **promise, "attributes": attributes}))


def of(attribute: str, **comparison: Any) -> dict[str, Any]:
    """``of("age", ge=30)`` is a comparison of an attribute; a list is given as ``in_``."""
    return {"attribute": attribute, **{name.rstrip("_"): one for name, one in comparison.items()}}


def counted(where: Any, **more: Any) -> dict[str, Any]:
    """The fields of a count of the rows of a condition."""
    return {"kind": "predicate", "where": where, **more}


SCHEMA: list[dict[str, Any]] = [
    {"name": "size", "type": "category", "values": ["S", "M", "L", "XL"], "ordered": True, "other": False,
     "missing": True},
    {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "missing": True},
    {"name": "age", "type": "number", "edges": [18, 30, 31, 65], "integer": True, "missing": True},
    {"name": "paid", "type": "boolean", "missing": True},
    {"name": "mon", "type": "date", "by": "month", "from": "2025-10-01", "until": "2026-02-01"},
    {"name": "at", "type": "date", "by": "day", "from": "2025-10-27", "until": "2025-11-05", "missing": True},
    {"name": "wd", "type": "date", "by": "weekday"},
]  # fmt: skip
MORE: list[dict[str, Any]] = [
    *SCHEMA,
    {"name": "share", "type": "number", "edges": [0.5, 2.0]},
    {"name": "hour", "type": "date", "by": "hour_of_day", "missing": True},
    {"name": "wk", "type": "date", "by": "week", "from": "2025-09-29", "until": "2025-11-03"},
    {"name": "late", "type": "boolean"},
    {"name": "listed", "type": "category", "values": ["a", "b"], "other": False},
    {"name": "grade", "type": "category", "values": ["low", "high"], "ordered": True},
]
