"""What opening a phase takes is announced as a range, and no charge of an opening is outside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven, drawn_block
from stream_dp.messages import Definition
from stream_dp.profiles.advice import Need
from stream_dp.profiles.builder import build
from stream_dp.profiles.line_units import privacy_of
from stream_dp.profiles.opening_price import announced

ATTRIBUTES = [
    {"name": "ward", "type": "category", "values": [f"w{n}" for n in range(12)]},
    {"name": "age", "type": "number", "edges": [*range(10, 100, 10)]},
    {"name": "urgent", "type": "boolean"},
]
PERSONS = {"epsilon": 1.0, "delta": 1e-9, "unit": {"key": "id", "rows_per_phase": 1, "phases": 12}}


def made(**changed: Any) -> tuple[Definition, Universe, Mechanism]:
    document = {
        "version": 1,
        "dataset": "hospital",
        "attributes": ATTRIBUTES,
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.05},
        "phase": {"min_rows": 3_000},
        **changed,
    }
    definition = Definition.read(document)
    return definition, *build(definition)


CASES: list[dict[str, Any]] = [
    {},
    {"accuracy": {"error": 0.01}},
    {"accuracy": {"error": 0.003}},
    {"mechanism": {"base_share": 0.2}},
    {"mechanism": {"queries_per_phase": 900}},
    {"accuracy": {"error": 0.05, "aim": 0.1}},
    {"privacy": PERSONS},
    {"privacy": PERSONS, "accuracy": {"error": 0.2}},
    {"privacy": PERSONS, "accuracy": {"error": 0.2, "aim": 0.1}},
    {"kinds": {"correlated_vector": {"attribute": "urgent", "share": 0.01}}},
]


def opened(
    definition: Definition,
    universe: Universe,
    mechanism: Mechanism,
    n_rows: int,
    counted: int,
    seed: int,
) -> tuple[Driven, Blocks]:
    """A data set with a phase of drawn rows, and these rows."""
    promised = Accuracy(definition.accuracy.error, 0.01)
    need = Need(universe, privacy_of(definition), promised, n_rows, 1, 1, n_counted=counted)
    driven, data = Driven(mechanism, SeededNoise(np.random.default_rng(seed))), Blocks(universe)
    data.append(drawn_block(need, np.random.default_rng([seed, 1]), None))
    driven.open_phase(n_rows, data)
    return driven, data


def taken(
    definition: Definition, universe: Universe, n_rows: int, counted: int, seed: int
) -> float:
    """The part of a line that opening a phase has taken in the end, with a look at the rows that count."""
    _, mechanism = build(definition)
    if definition.privacy.unit is None:
        looks = mechanism.open_phase(n_rows)
        return sum(charge.rho for look in looks for charge in look.charges) / UNITS
    driven, _ = opened(definition, universe, mechanism, n_rows, counted, seed)
    return driven.spent_share()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_opening_of_a_phase_takes_what_was_not_announced(case: dict[str, Any]) -> None:
    definition, universe, mechanism = made(**case)
    said = announced(mechanism, 3_000)
    assert said is not None
    assert said.n_rows == (3_000, 6_000)
    assert 0.0 <= said.least <= said.most <= said.ever <= 1.0
    for seed, n_rows in enumerate((3_000, 3_171, 3_623, 4_242, 5_501, 6_000)):
        found = taken(definition, universe, n_rows, n_rows, seed)
        assert said.least <= found <= said.most, n_rows
    for seed, n_rows in enumerate((1, 40, 700, 9_001, 70_000)):
        assert taken(definition, universe, n_rows, n_rows, seed) <= said.ever, n_rows


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nor_does_one_whose_number_of_rows_is_known(case: dict[str, Any]) -> None:
    definition, universe, mechanism = made(**case)
    said = announced(mechanism, 1_234, 1_234)
    assert said is not None
    for seed in range(4):
        assert said.least <= taken(definition, universe, 1_234, 1_234, seed) <= said.most


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nor_does_one_of_any_size(case: dict[str, Any]) -> None:
    """Every number of rows that the range is about, and of a phase of persons also those that noise makes."""
    _, _, mechanism = made(**case)
    said = announced(mechanism, 3_000)
    assert said is not None
    found = [mechanism.opening_units(n) for n in range(3_000, 6_001)]
    shares = [units / UNITS for units in found if units is not None]
    assert len(shares) == 3_001
    assert said.least <= min(shares) <= max(shares) <= said.most
    everywhere = (mechanism.opening_units(n) or 0 for n in range(1, 60_000, 37))
    assert max(everywhere) <= said.ever * UNITS


def test_what_is_measured_later_unasked_stays_below_what_no_phase_exceeds() -> None:
    """A first phase is asked far more than expected, so more of it is measured."""
    definition, universe, mechanism = made(accuracy={"error": 0.004}, phase={"min_rows": 20_000})
    said = announced(mechanism, 20_000)
    assert said is not None
    assert said.ever == pytest.approx(0.97)
    driven, data = opened(definition, universe, mechanism, 20_000, 20_000, 2)
    own, grown = driven.spent_share(), 0
    rng = np.random.default_rng(4)
    for _ in range(120):
        factors = {a: rng.random(n) < 0.4 for a, n in enumerate(universe.shape)}
        query, before = LinearQuery(Predicate.conjunction(factors), range(1)), driven.spent_share()
        asked = sum(charge.rho for charge in driven.mechanism.quote(query).charges) / UNITS
        driven.ask(query, data)
        more = driven.spent_share() - before - asked
        assert more >= -1e-12
        own, grown = own + more, grown + (more > 1e-6)
    assert grown > 0, "more was measured"
    assert own <= said.ever + 1e-9


@pytest.mark.parametrize("profile", ["whole_table", "counts", "bypass"])
def test_the_other_profiles_announce_nothing(profile: str) -> None:
    _, _, mechanism = made(mechanism={"profile": profile})
    assert announced(mechanism, 3_000) is None
