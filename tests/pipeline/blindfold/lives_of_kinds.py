"""A life for every kind of queries."""

from __future__ import annotations

from typing import Any, Final

from stream_dp.core.kinds.between.between_answerer import BetweenLook
from stream_dp.core.kinds.correlated_vector.vector_answerer import ResponsesLook
from stream_dp.core.kinds.median_mode.stable_answerer import StableLook
from stream_dp.core.kinds.points import PointLook
from stream_dp.core.kinds.prefix_batch.batch_answerer import BatchLook
from stream_dp.core.kinds.threshold.curve_answerer import CurvesLook
from tests.pipeline.blindfold.life import Life
from tests.pipeline.blindfold.queries import AA, LATE

_WIDE: Final = {"privacy": {"epsilon": 20.0, "delta": 1e-7}}


def _kind(name: str, look: type, *queries: Any, rows: int = 21, **settings: Any) -> Life:
    in_order = name == "correlated_vector"
    definition = {**_WIDE, "kinds": {name: settings}}
    return Life(definition, queries, frozenset({look}), rows=rows, in_order=in_order)


def _points(kind: str) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "attribute": "delay", "where": {"attribute": "delay", "lt": edge}}
        for edge in (0, 10, 30, 10)
    ]


_OF_DELAY: Final = (
    {"kind": "threshold", "attribute": "delay", "where": {"attribute": "delay", "ge": 30}},
    {"kind": "threshold", "attribute": "delay"},
    {
        "kind": "threshold",
        "attribute": "delay",
        "where": {"attribute": "delay", "lt": 10},
        "window": {"last_phases": 1},
    },
)
KINDS: Final[dict[str, Life]] = {
    "threshold": _kind("threshold", CurvesLook, *_OF_DELAY, share=0.2),
    "threshold, partition": _kind("threshold", CurvesLook, *_OF_DELAY, share=0.2, partition=True),
    "median": _kind("median", StableLook, {"kind": "median", "attribute": "delay"}, share=0.05),
    "mode": _kind(
        "mode",
        StableLook,
        {"kind": "mode", "attribute": "carrier"},
        {"kind": "mode", "attribute": "cancelled", "window": {"last_phases": 1}},
        share=0.05,
    ),
    "mode, groups": _kind(
        "mode", StableLook, {"kind": "mode", "attribute": "cancelled"}, share=0.05, groups=1000
    ),
    "prefix_batch": _kind(
        "prefix_batch",
        BatchLook,
        {
            "kind": "prefix_batch",
            "attribute": "delay",
            "wheres": [{"attribute": "delay", "ge": 30}],
        },
        share=0.2,
    ),
    "correlated_vector": _kind(
        "correlated_vector",
        ResponsesLook,
        {"kind": "correlated_vector", "attribute": "cancelled"},
        share=0.3,
        attribute="cancelled",
    ),
    "between": _kind(
        "between",
        BetweenLook,
        {"kind": "between", "where": AA, "low": 0.1, "high": 0.3},
        {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
        {"kind": "between", "where": LATE, "low": 0.3, "high": 0.5},
        share=0.15,
        answers=2,
    ),
    "interior_point": _kind(
        "interior_point", PointLook, *_points("interior_point"), share=0.1, points=100
    ),
    "adaptive_threshold": _kind(
        "adaptive_threshold",
        PointLook,
        *_points("adaptive_threshold"),
        share=0.2,
        chunks=4,
        queries=50,
    ),
}
