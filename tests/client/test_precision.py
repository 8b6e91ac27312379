"""How precise answers are where a definition does not say so, and how it is put into words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.messages import Definition
from tests.pipeline.world import definition

UNIT = {"key": "id", "rows_per_phase": 1, "phases": 12}
PERSONS = {"privacy": {"epsilon": 1.0, "delta": 1e-9, "unit": UNIT}}
COUNTS = {"mechanism": {"profile": "counts"}}


def read(named: dict[str, Any]) -> Definition:
    return Definition.read(definition("people", **{"accuracy": {}, **named}))


@pytest.mark.parametrize(
    ("named", "error", "aim"),
    [
        ({}, 0.02, 0.1),
        ({"accuracy": {"failure_probability": 0.05}}, 0.02, 0.1),
        ({"accuracy": {"aim": 0.2}}, 0.02, 0.2),
        ({"accuracy": {"aim": 0.2, "error": 0.05}}, 0.05, 0.2),
        ({"accuracy": {"error": 0.05}}, 0.05, None),
        (COUNTS, 0.02, None),
    ],
)
def test_a_definition_that_names_no_error_aims_at_a_tenth_of_each_answer(
    named: dict[str, Any], error: float, aim: float | None
) -> None:
    definition = read(named)
    assert (definition.accuracy.error, definition.accuracy.aim) == (error, aim)
    assert Definition.read(json.loads(definition.to_bytes())) == definition


def test_the_precision_is_told_in_one_sentence() -> None:
    within = "answers lie within 5% of the rows {}, except one in 100"
    for named, said in (
        ({}, "answers aim at 10% of themselves; the error bars hold, except one in 100"),
        ({"accuracy": {"error": 0.05}}, within.format("asked")),
        ({"accuracy": {"error": 0.05}, **PERSONS}, within.format("that count")),
    ):
        assert read(named).precision == said
