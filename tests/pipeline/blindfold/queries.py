"""What is asked in the lives of several profiles."""

from __future__ import annotations

from typing import Any, Final

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}
SHORT = {"attribute": "cancelled", "eq": False}

COUNTS: Final = (
    {"where": AA},
    {"where": {"any": [AA, LATE]}},
    {"where": LATE, "window": {"last_phases": 1}},
    {"where": SHORT},
    {"where": {"all": [AA, SHORT]}},
)
OF_PAPERS: Final = (
    {"where": AA},
    {"where": SHORT},
    {"where": {"all": [AA, SHORT]}},
    {"where": AA, "window": {"last_phases": 1}},
)

STANDING: Final[tuple[dict[str, Any], ...]] = (
    *({**query, "standing": True} for query in COUNTS),
    {"kind": "table", "group_by": ["carrier"], "standing": True},
    {"where": LATE, "window": {"last_phases": 1}, "standing": True, "alert": {"above": 0.1}},
    {"kind": "sum", "attribute": "delay", "where": SHORT, "standing": True},
)

SUMS: Final[list[dict[str, Any]]] = [
    {"kind": "sum", "attribute": "delay", "where": SHORT},
    {"kind": "sum", "attribute": "delay", "group_by": ["carrier"], "count_rows": True},
    {"kind": "sum", "attribute": "delay", "where": AA, "error": {"mean": 3.0}},
    {"kind": "share", "share_of": SHORT, "where": AA},
    {
        "kind": "difference",
        "where": SHORT,
        "window": {"last_phases": 1},
        "minus_window": {"last_phases": 2},
    },
    {"kind": "share", "share_of": SHORT, "group_by": ["cancelled"], "error": {"value": 0.2}},
    {"kind": "quantile", "attribute": "delay", "rank": 0.5, "group_by": ["carrier"], "error": 0.01},
]
