"""How precise answers are where a definition does not say so, and how it is put into words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.messages import Definition

FIELDS: dict[str, Any] = {
    "version": 1,
    "dataset": "people",
    "attributes": [{"name": "smoker", "type": "boolean"}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "phase": {"min_rows": 20_000},
}
PERSONS = {
    "privacy": {**FIELDS["privacy"], "unit": {"key": "id", "rows_per_phase": 1, "phases": 12}}
}
COUNTS = {"mechanism": {"profile": "counts"}}


@pytest.mark.parametrize(
    ("named", "error", "aim"),
    [
        ({}, 0.02, 0.1),
        ({"accuracy": {}}, 0.02, 0.1),
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
    definition = Definition.read({**FIELDS, **named})
    assert (definition.accuracy.error, definition.accuracy.aim) == (error, aim)
    assert Definition.read(json.loads(definition.to_bytes())) == definition


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, "answers aim at 10% of themselves; the error bars hold, except one in 100"),
        ({"accuracy": {"error": 0.05}}, "answers lie within 5% of the rows asked, except one in 100"),
        ({"accuracy": {"error": 0.05}, **PERSONS},
         "answers lie within 5% of the rows that count, except one in 100"),
    ],
)  # fmt: skip
def test_the_precision_is_told_in_one_sentence(named: dict[str, Any], said: str) -> None:
    assert Definition.read({**FIELDS, **named}).precision == said
