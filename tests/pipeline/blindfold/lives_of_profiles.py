"""A life for every profile, and for what a definition can change about it."""

from __future__ import annotations

from typing import Any, Final

from stream_dp.core.baselines.whole_noisy_table import TableLook
from stream_dp.core.median.phase_looks import PhaseLook, QueryLook
from stream_dp.core.residual.keys.key_look import KeyLook
from stream_dp.core.residual.looks.composed_looks import JoinedLook
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.running.tick_look import TickLook
from stream_dp.core.sparse_vector.gates import CountLook
from tests.pipeline.blindfold.life import Life
from tests.pipeline.blindfold.queries import AA, COUNTS, LATE, OF_PAPERS, SHORT, STANDING, SUMS
from tests.pipeline.world import attributes_with_levels

PURE: Final = {"epsilon": 1.0, "delta": 0}
_GATED: Final = frozenset({CountLook})
_PAPERS: Final = frozenset({PhaseLook, QueryLook})


def _profile(profile: str, **settings: Any) -> dict[str, Any]:
    return {"mechanism": {"profile": profile, **settings}}


def _of_papers(profile: str, *, phases: int = 2, **settings: Any) -> Life:
    mechanism = {"profile": profile, "hypothesis_rows": 3, "representation": "entropic", **settings}
    if profile != "median":
        mechanism["phases"] = phases
    definition = {"mechanism": mechanism, "privacy": {"epsilon": 2.0, "delta": 1e-7}}
    return Life(definition, OF_PAPERS, _PAPERS, papers=True, rows=10**6, phases=phases)


DATED: Final[dict[str, Any]] = {
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"], "ordered": True},
        {
            "name": "delay",
            "type": "date",
            "by": "day",
            "from": "1970-01-01",
            "until": "1970-03-01",
            "timezone": "Europe/Berlin",
            "epoch": "s",
        },
        {"name": "cancelled", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.05},
}
"""A date with 61 cells, and so two levels."""
AIMED: Final = {
    "error": 0.02,
    "failure_probability": 0.01,
    "aim": 0.1,
    "query_share": 0.4,
    "day_share": 0.9,
}
KEPT: Final[dict[str, Any]] = {
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {
            "name": "delay",
            "type": "number",
            "edges": [0, 10, 30],
            "integer": True,
            "measure": {"unit": 1, "low": -10, "high": 60},
        },
        {"name": "cancelled", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.001},
}

NUMBERED: Final[dict[str, Any]] = {
    "attributes": [
        {"name": "carrier", "type": "number", "edges": [2, 3], "integer": True},
        {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
        {"name": "cancelled", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.001},
}
"""Two numbers, which may go together."""

PROFILES: Final[dict[str, Life]] = {
    "calibrated, standing queries": Life(
        {"mechanism": {"base_share": 0.001}}, STANDING, frozenset({CountsLook, SumLook})
    ),
    "calibrated": Life(
        {"mechanism": {"base_share": 0.001}, "synthetic_rows": 30},
        [
            *COUNTS,
            {"kind": "table", "group_by": ["carrier", "cancelled"]},
            {"where": AA, "fresh": True},
            *SUMS,
        ],
        frozenset({TablesLook, CountsLook, SumLook}),
    ),
    "calibrated, values are kept": Life(
        KEPT,
        [{"where": AA}, *SUMS, {"kind": "sum", "attribute": "delay", "where": LATE}],
        frozenset({TablesLook, CountsLook, SumLook}),
    ),
    "calibrated, bounds of values change": Life(
        KEPT,
        [*SUMS, {"kind": "sum", "attribute": "delay", "where": LATE}],
        frozenset({TablesLook, SumLook, JoinedLook}),
        changed=[
            KEPT["attributes"][0],
            {**KEPT["attributes"][1], "measure": {"unit": 1, "low": -10, "high": 90}},
            KEPT["attributes"][2],
        ],
    ),
    "calibrated, correlations": Life(
        NUMBERED,
        [
            {
                "kind": "correlation",
                "attribute": "delay",
                "other": "carrier",
                "error": {"value": 0.1},
            },
            {
                "kind": "correlation",
                "attribute": "carrier",
                "other": "delay",
                "where": {"attribute": "cancelled", "eq": False},
                "error": {"value": 0.4},
            },
        ],
        frozenset({CountsLook, SumLook}),
        numbered=True,
    ),
    "calibrated, attributes change": Life(
        {"mechanism": {"base_share": 0.001}},
        [
            {"where": AA},
            {"where": SHORT},
            {"where": LATE, "fresh": True},
            {"kind": "table", "group_by": ["carrier", "cancelled"]},
            {"kind": "sum", "attribute": "delay", "where": AA},
        ],
        frozenset({TablesLook, CountsLook, JoinedLook}),
        changed=[
            {"name": "carrier", "type": "category", "values": ["AA", "UA", "DL"]},
            {"name": "delay", "type": "number", "edges": [0, 10, 20, 30], "integer": True},
            {"name": "cancelled", "type": "boolean"},
            {"name": "seat", "type": "category", "values": ["window", "aisle"], "missing": True},
        ],
    ),
    "calibrated, values are found": Life(
        {
            "attributes": [
                {
                    "name": "carrier",
                    "type": "category",
                    "find": {"most": 10, "windows": [1, 2], "share": 0.2},
                },
                {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
                {"name": "cancelled", "type": "boolean"},
            ],
            "mechanism": {"base_share": 0.001},
        },
        [
            {"where": AA},
            {"where": SHORT},
            {"kind": "table", "group_by": ["carrier", "cancelled"]},
            {"where": {"attribute": "carrier", "is_other": True}, "fresh": True},
        ],
        frozenset({TablesLook, CountsLook, KeyLook}),
        in_order=True,
    ),
    "calibrated, bounds are proposed": Life(
        {
            "attributes": [
                {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
                {"name": "delay", "type": "number", "propose": {"bins": 5}, "integer": True},
                {"name": "cancelled", "type": "boolean"},
            ],
            "mechanism": {"base_share": 0.01},
        },
        [
            {"where": {"attribute": "delay", "lt": 10}},
            {"where": {"attribute": "delay", "lt": 3}, "error": 0.004},
            {"kind": "table", "group_by": ["cancelled"]},
        ],
        frozenset({TablesLook, CountsLook}),
        changed=[
            {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
            {"name": "delay", "type": "number", "edges": [-2, 3, 10, 40], "integer": True},
            {"name": "cancelled", "type": "boolean"},
        ],
    ),
    "calibrated, running totals": Life(
        {
            "mechanism": {"base_share": 0.02},
            "phase": {"every": "1 day", "min_rows": 100, "close": {"after": "1 hour"}},
            "running": {
                "every": "6 hours",
                "within_rows": 300,
                "tiles": [
                    {"group_by": ["carrier"]},
                    {"where": {"attribute": "cancelled", "eq": True}},
                ],
            },
        },
        COUNTS,
        frozenset({TickLook, TablesLook}),
        ticks=True,
    ),
    "calibrated, late rows": Life(
        {
            "mechanism": {"base_share": 0.02},
            "phase": {
                "every": "1 day",
                "min_rows": 100,
                "close": {"after": "1 hour"},
                "late": {"within": "1 day"},
            },
        },
        COUNTS,
        frozenset({TablesLook}),
        ticks=True,
        late=True,
    ),
    "calibrated, rows are erased": Life(
        {"mechanism": {"base_share": 0.001}, "retention": {"phases": 1}},
        [*COUNTS, {"where": SHORT, "fresh": True}, {"where": AA, "error": {"relative": 0.1}}],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, persons are erased": Life(
        {
            **KEPT,
            "privacy": {
                "epsilon": 16.0,
                "delta": 1e-9,
                "unit": {"key": "user_id", "rows_per_phase": 2, "phases": 2},
            },
            "erasure": {"within": "24 hours", "row": "trip"},
        },
        [
            *COUNTS,
            {"where": {"all": [AA, LATE]}, "error": 0.01},
            {"kind": "table", "group_by": ["carrier", "cancelled"], "error": 0.01},
            {"where": SHORT, "fresh": True},
            {"kind": "sum", "attribute": "delay", "where": SHORT},
        ],
        frozenset({TablesLook, CountsLook, SumLook}),
        in_order=True,
        erases=True,
    ),
    "calibrated, records are erased": Life(
        {
            "attributes": [
                *KEPT["attributes"],
                {"name": "away", "type": "number", "fold": "since", "phases": 2},
                {"name": "trips", "type": "number", "edges": [2], "fold": "count"},
            ],
            "privacy": {
                "epsilon": 16.0,
                "delta": 1e-9,
                "unit": {"key": "user_id", "rows_per_phase": 1, "phases": 1},
            },
            "erasure": {"within": "24 hours"},
        },
        [
            *COUNTS,
            {"once": "away"},
            {"kind": "table", "group_by": ["away", "trips"], "error": 0.02},
            {"where": SHORT, "once": "away", "fresh": True},
        ],
        frozenset({TablesLook, CountsLook, JoinedLook}),
        in_order=True,
        erases=True,
    ),
    "calibrated, levels": Life(
        {"attributes": attributes_with_levels(), "mechanism": {"base_share": 0.05}},
        [
            {"where": {"attribute": "delay", "lt": 33}},
            {"where": {"attribute": "delay", "lt": 50}, "error": 0.004},
            {"where": {"all": [AA, {"attribute": "delay", "lt": 41}]}},
            {"kind": "table", "group_by": ["delay"]},
            {"where": {"attribute": "delay", "lt": 41}, "fresh": True},
        ],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, dates": Life(
        DATED,
        [
            {"where": {"attribute": "delay", "lt": "1970-02-03"}},
            {"where": {"attribute": "delay", "between": ["1970-01-01", "1970-01"]}, "error": 0.004},
            {"where": {"all": [{"attribute": "carrier", "ge": "UA"}, SHORT]}},
            {"kind": "table", "group_by": ["delay"]},
            {"where": {"attribute": "delay", "lt": "1970-02-03"}, "fresh": True},
        ],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, errors of queries": Life(
        {"mechanism": {"base_share": 0.0}},
        [
            {"where": AA, "error": {"relative": 0.3}, "at_most": 0.5},
            {"where": SHORT, "error": {"relative": 0.1}, "at_most": 0.001},
            {"where": LATE, "error": 0.2, "quote": True},
            {"where": LATE, "error": {"value": 400}},
        ],
        frozenset({CountsLook}),
        rows=2100,
    ),
    "calibrated, aim": Life(
        {"accuracy": AIMED},
        [
            {"where": AA},
            {"where": {"all": [AA, LATE, SHORT]}},
            {"kind": "table", "group_by": ["carrier", "delay", "cancelled"]},
            {"kind": "sum", "attribute": "delay", "group_by": ["carrier"], "mean": True},
        ],
        frozenset({TablesLook, SumLook}),
        rows=2100,
    ),
    "gated": Life(
        {**_profile("gated", segments=20), "synthetic_rows": 30}, COUNTS, _GATED, rows=2100
    ),
    "gated, carried over": Life(
        _profile("gated", segments=20, prior="carry_over"), COUNTS, _GATED, rows=2100
    ),
    "counts": Life(_profile("counts"), COUNTS, _GATED),
    "counts, pure": Life({**_profile("counts"), "privacy": PURE}, COUNTS, _GATED),
    "whole_table": Life(
        {**_profile("whole_table"), "synthetic_rows": 30}, COUNTS, frozenset({TableLook})
    ),
    "weights": Life(_profile("weights"), COUNTS, _GATED, rows=2100),
    "weights, pure": Life({**_profile("weights"), "privacy": PURE}, COUNTS, _GATED, rows=2100),
    "weights, fixed": Life(_profile("weights", growing=False), COUNTS, _GATED, rows=2100, phases=1),
    "bypass": Life(_profile("bypass"), COUNTS, _GATED, rows=2100),
    "bypass, pure": Life({**_profile("bypass"), "privacy": PURE}, COUNTS, _GATED, rows=2100),
    "median": _of_papers("median", queries=20, phases=1),
    "sequential": _of_papers("sequential", queries_per_phase=20),
    "memory": _of_papers("memory", queries_per_phase=100, hypothesis_rows=6),
    "median, doubling": _of_papers("median", queries=4, doubling=True, phases=1),
    "sequential, doubling": _of_papers("sequential", queries_per_phase=4, doubling=True),
    "memory, doubling": _of_papers(
        "memory", queries_per_phase=100, hypothesis_rows=6, doubling=True
    ),
}
