"""What an answer that is not useful proposes to ask instead."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.core.measure import Measure
from stream_dp.core.outcome import Use, Useful
from stream_dp.core.parameters import Aim
from stream_dp.core.universe import Category, Number, Universe
from stream_dp.messages import QueryFields
from stream_dp.pipeline.usefulness import use_fields

UNIVERSE = Universe(
    (
        Number("stay", (1, 7, 21, 60), measure=Measure(1.0, 0.0, 365.0)),
        Number("age", (18, 65), measure=Measure(1.0, 0.0, 120.0)),
        Category("ward", ("a", "b")),
    )
)
LIMIT = "limit large values: "


def suggested(**fields: Any) -> str:
    query = QueryFields.model_validate({"query_id": "q", "kind": "predicate", **fields})
    use = Use(Useful.NO, 2.0, 7.0, 2.0)
    found = use_fields(use, Aim(0.1, 0.25), query, UNIVERSE, more_phases=False)["suggestion"]
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ({"mean": True}, f"{LIMIT}AVG(LEAST(stay, 60))"),
        ({}, f"{LIMIT}SUM(LEAST(stay, 60))"),
        ({"up_to": 21}, "ask again when more phases are open"),
        ({"group_by": ["ward"], "up_to": 21}, "ask about all of ward together"),
    ],
)
def test_a_sum_of_few_large_values_is_proposed_up_to_an_edge(
    fields: dict[str, Any], last: str
) -> None:
    assert suggested(kind="sum", attribute="stay", **fields).split("; ")[-1] == last


def test_no_limit_is_proposed_where_it_would_hardly_help() -> None:
    assert LIMIT not in suggested(kind="sum", attribute="age")
    assert LIMIT not in suggested(group_by=["ward"])
    assert LIMIT not in suggested(kind="quantile", attribute="stay", rank=0.5)
