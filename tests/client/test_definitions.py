"""What is asked of the delta of a new definition, and how precise answers are where it does not say so."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import InvalidDefinition
from stream_dp.messages import CalibratedSpec, Definition, large_delta, large_epsilon
from stream_dp.messages.definition.promise_specs import PrivacySpec, UnitSpec
from tests.pipeline import world


def definition(delta: float, min_rows: int) -> Definition:
    privacy = {"epsilon": 1.0, "delta": delta}
    return Definition.read(world.definition("a", privacy=privacy, phase={"min_rows": min_rows}))


@pytest.mark.parametrize("min_rows", [1, 2, 3, 7, 10, 49, 1000, 20_000, 10**15, 2**62])
def test_delta_is_at_most_one_in_the_rows_of_a_phase(min_rows: int) -> None:
    """What the refusal says to write is accepted; a little more than one in the rows is not."""
    if min_rows > 1:
        with pytest.raises(InvalidDefinition) as caught:
            definition(1.0001 / min_rows, min_rows).check_new()
        assert caught.value.field == "privacy.delta"
        most = float(caught.value.fix.split(";")[0].removeprefix("use at most "))
        definition(most, min_rows).check_new()
        assert Fraction(1, 2 * min_rows) < Fraction(str(most)) <= Fraction(1, min_rows)
    for delta in (0.9999 / min_rows, float(f"{1 / min_rows:.3g}") if min_rows % 10 == 0 else 0, 0):
        definition(delta, min_rows).check_new()


@given(n_rows=st.integers(1, 2**62))
def test_a_delta_of_which_nothing_was_said_is_refused_for_no_phase(n_rows: int) -> None:
    said = large_delta(0.999, n_rows)
    assert said is not None
    usual = float(said.split("below ")[1].removesuffix(" is usual"))
    assert large_delta(usual, n_rows) is None
    definition(usual, n_rows).check_new()


def test_a_data_set_keeps_the_pacing_that_was_the_default_when_it_was_defined() -> None:
    """A definition is stored with all of its settings, so another default changes no data set."""
    stored = json.loads(definition(1e-9, 20_000).to_bytes())
    assert stored["accuracy"]["failure_probability"] == 0.01
    stored["mechanism"]["pacing"] = True
    mechanism = Definition.read(stored).mechanism
    assert isinstance(mechanism, CalibratedSpec)
    assert mechanism.pacing


def test_a_large_epsilon_is_said_in_odds_of_guessing() -> None:
    for epsilon, odds, right in (
        (3.0, "20.1", "95.3%"),
        (4.2, "66.7", "98.5%"),
        (20.0, "485,165,195.4", "over 99.9%"),
    ):
        row = PrivacySpec(epsilon=epsilon, delta=1e-9)
        said = large_epsilon(row) or ""
        assert f"about a row, all answers together may turn even odds into {odds} to 1" in said
        assert f"right {right} of the time; with epsilon 1 it is 2.7 to 1" in said
    unit = UnitSpec(key="user", rows_per_phase=1, phases=1)
    assert "about a person" in (large_epsilon(row.model_copy(update={"unit": unit})) or "")
    assert large_epsilon(PrivacySpec(epsilon=2.999, delta=1e-9)) is None


PERSONS = {"epsilon": 1.0, "delta": 1e-9, "unit": {"key": "id", "rows_per_phase": 1, "phases": 12}}


def read(named: dict[str, Any]) -> Definition:
    return Definition.read(world.definition("people", **{"accuracy": {}, **named}))


@pytest.mark.parametrize(
    ("named", "error", "aim"),
    [
        ({}, 0.02, 0.1),
        ({"accuracy": {"failure_probability": 0.05}}, 0.02, 0.1),
        ({"accuracy": {"aim": 0.2}}, 0.02, 0.2),
        ({"accuracy": {"aim": 0.2, "error": 0.05}}, 0.05, 0.2),
        ({"accuracy": {"error": 0.05}}, 0.05, None),
        ({"mechanism": {"profile": "counts"}}, 0.02, None),
    ],
)
def test_a_definition_that_names_no_error_aims_at_a_tenth_of_each_answer(
    named: dict[str, Any], error: float, aim: float | None
) -> None:
    found = read(named)
    assert (found.accuracy.error, found.accuracy.aim) == (error, aim)
    assert Definition.read(json.loads(found.to_bytes())) == found


def test_the_precision_is_told_in_one_sentence() -> None:
    within = "answers lie within 5% of the rows {}, except one in 100"
    for named, said in (
        ({}, "answers aim at 10% of themselves; the error bars hold, except one in 100"),
        ({"accuracy": {"error": 0.05}}, within.format("asked")),
        ({"accuracy": {"error": 0.05}, "privacy": PERSONS}, within.format("that count")),
    ):
        assert read(named).precision == said
