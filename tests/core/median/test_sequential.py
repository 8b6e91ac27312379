"""The median mechanism and its sequential composition against their constants and promises."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Lines
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.consistent_set.polytope import sufficient_rows
from stream_dp.core.median.formulas import last_threshold, noise_failure, width_for
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.memory import constants as memory_constants
from stream_dp.core.median.phase_constants import Constants, PhaseSettings, Representation
from stream_dp.core.median.sequential import (
    Median,
    Sequential,
    composes,
    constants,
    least_composition,
)
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition
from tests.core.conftest import Drive, universe_of
from tests.noise import SeededNoise

SEED = 20_261_121
REPRESENTATIONS: tuple[Representation, ...] = ("exhaustive", "entropic", "polytope")


def phase_settings(**settings: Any) -> PhaseSettings:
    usual = {"n_cells": 16, "epsilon": Fraction(1), "error": Fraction(1, 10)}
    return PhaseSettings(**{**usual, "queries_per_phase": 100, "phases": 1, **settings})


def facts(
    *, failure_probability: float = 0.9, composition: Fraction | None = None, **settings: Any
) -> Constants:
    return constants(phase_settings(**settings), failure_probability, composition)


# ---------------------------------------------------------------- constants


def test_the_published_constants_of_the_median_mechanism_come_out() -> None:
    """k = 100, eps = 0.1, alpha = 1, N = 16."""
    found = facts()
    (phase,) = found.phases
    assert found.alpha == 1
    assert found.hypothesis_rows == 169_660_740
    assert 1 / phase.inverse_privacy == pytest.approx(2.953e-12, rel=2e-4)
    assert found.min_rows == pytest.approx(3.577e15, rel=2e-4)
    assert found.min_rows_as_printed == pytest.approx(found.min_rows, rel=1e-9)
    assert phase.hard_limit == math.floor(20 * 169_660_740 * math.log(16))
    assert found.failure_probability == pytest.approx(0.51, abs=0.005)  # at n_min alone


def test_a_polytope_has_twice_the_hard_queries_at_half_the_loss() -> None:
    """Spec: ``alpha' = alpha/(1440 m ln N)``, ``h_max = 40 m ln N``, tau of 2 m; and m of its own."""
    plain, polytope = facts(rows=50), facts(rows=50, representation="polytope")
    one, other = plain.phases[0], polytope.phases[0]
    assert other.inverse_privacy == math.ceil(1440 * 50 * math.log(16))
    assert other.hard_limit == math.floor(40 * 50 * math.log(16))
    assert other.log_tau.concentration == pytest.approx(2 * one.log_tau.concentration)
    assert polytope.min_rows == pytest.approx(2 * plain.min_rows, rel=1e-3)
    assert facts(representation="polytope").hypothesis_rows == sufficient_rows(16, Fraction(1, 10))
    assert facts(representation="polytope").proved
    assert not facts(representation="polytope", rows=23).proved
    memory = memory_constants(phase_settings(phases=3, rows=50, representation="polytope"))
    for j, phase in enumerate(memory.phases, start=1):
        whole = 1440 * j * 50 * math.log(16) * (1 + 1 / 2 + 1 / 3)
        assert phase.inverse_privacy == pytest.approx(whole, rel=1e-9, abs=1)
        assert phase.hard_limit == math.floor(40 * j * 50 * math.log(16))


@pytest.mark.parametrize("representation", ["entropic", "polytope"])
@pytest.mark.parametrize("phases", [1, 2, 12])
def test_every_phase_has_thresholds_enough(representation: Representation, phases: int) -> None:
    """``L >= floor(1.125 log2 k)`` at ``j n_min`` rows, by the n_min of the first phase's alpha."""
    for k in (*range(2, 40), 2**8, 10**4, 2**16):
        found = facts(queries_per_phase=k, phases=phases, representation=representation, rows=1)
        assert all(phase.last_threshold >= last_threshold(k) for phase in found.phases)


@pytest.mark.parametrize("phases", [1, 3, 12])
def test_every_phase_runs_the_median_mechanism_with_its_part_of_the_loss(phases: int) -> None:
    found = facts(phases=phases, rows=40)
    harmonic = sum(1 / j for j in range(1, phases + 1))
    for j, phase in enumerate(found.phases, start=1):
        alpha = 1 / (harmonic * j)
        assert phase.inverse_privacy == math.ceil(720 * 40 * math.log(16) / alpha)
        assert 1 / phase.inverse_slip == pytest.approx(alpha)
        assert phase.min_rows == j * found.min_rows
        assert phase.hard_limit == math.floor(20 * 40 * math.log(16))  # of its own queries alone


def test_the_condition_on_the_number_of_phases() -> None:
    """``K <= c_K (2k/alpha)^(c_K - 1)`` with ``alpha = epsilon/(c_K H_K)``, and the least such c_K."""
    for k, phases in ((2, 2), (100, 12), (100, 1_000), (10**4, 50)):
        harmonic = sum(1 / j for j in range(1, phases + 1))

        def holds(c: float, k: int = k, phases: int = phases, harmonic: float = harmonic) -> bool:
            return phases <= c * (2 * k * c * harmonic) ** (c - 1)

        least = least_composition(Fraction(1), k, phases)
        assert holds(float(least) + 1e-9)
        assert not holds(float(least) - 0.001)
        for c in (Fraction(11, 10), Fraction(3, 2), Fraction(2), Fraction(3)):
            assert composes(c, Fraction(1), k, phases) == holds(float(c))
    assert least_composition(Fraction(1), 100, 1) == 1
    assert float(least_composition(Fraction(1), 100, 12)) == 1.328
    with pytest.raises(InvalidDefinition, match="too small for 12 phases") as caught:
        facts(phases=12, composition=Fraction(13, 10))
    assert "1.328" in caught.value.fix


def test_the_least_composition_asks_for_the_fewest_rows() -> None:
    at = [
        facts(phases=12, composition=c).min_rows
        for c in (None, Fraction(14, 10), Fraction(2), Fraction(3))
    ]
    assert at == sorted(at)


def test_a_phase_waits_for_the_rows_that_the_failure_probability_asks_for() -> None:
    for k in (2, 16, 100, 10**4):
        for wanted in (0.5, 0.05, 1e-6):
            found = facts(queries_per_phase=k, failure_probability=wanted, phases=3, rows=10)
            assert found.failure_probability <= wanted
            assert noise_failure(k, width_for(k, wanted)) == pytest.approx(wanted)
    assert facts(failure_probability=0.6).min_rows == facts(failure_probability=0.99).min_rows


def test_the_tau_of_all_phases_is_their_sum() -> None:
    found = facts(queries_per_phase=50, phases=3, rows=1)
    total = sum(math.exp(p.log_tau.concentration) for p in found.phases)
    total += sum(math.exp(p.log_tau.last_index) for p in found.phases)
    assert math.exp(found.log_tau) == pytest.approx(total)
    assert math.exp(found.phases[0].log_tau.concentration) == pytest.approx(16**-4.99)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"privacy": Privacy(3.0, 1e-9), "queries_per_phase": 2}, "privacy.epsilon"),
        ({"privacy": Privacy(1.0, 0.0)}, "privacy.delta"),
        ({"hypothesis_rows": 1, "queries_per_phase": 1_000}, "mechanism.hypothesis_rows"),
        ({"queries_per_phase": 1}, "mechanism.queries_per_phase"),
        ({"phases": 0}, "mechanism.phases"),
        ({"composition": 0.5}, "mechanism.composition"),
        ({"representation": "exhaustive"}, "mechanism.representation"),
        ({"accuracy": Accuracy(0.001, 0.05)}, "mechanism.hypothesis_rows"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, Any], field: str) -> None:
    arguments: dict[str, Any] = {"queries_per_phase": 100, "phases": 3, **settings}
    privacy = arguments.pop("privacy", Privacy(1.0, 1e-9))
    accuracy = arguments.pop("accuracy", Accuracy(0.1, 0.05))
    with pytest.raises(InvalidDefinition) as caught:
        Sequential(universe_of(4, 4), privacy, accuracy, **arguments)
    assert caught.value.field == field


# ---------------------------------------------------------------- the ledger's line


def test_a_block_pays_for_the_phases_that_it_is_in() -> None:
    """``(H_j - H_(l-1)) / H_K`` of epsilon, rounded up; the first block in the end all of it."""
    cells = universe_of(2, 2)
    mechanism = Sequential(
        cells, Privacy(1.0, 0.9), Accuracy(0.1, 0.9), queries_per_phase=100, phases=3, hypothesis_rows=1
    )  # fmt: skip
    run = Drive(cells, mechanism, SeededNoise(SEED))
    whole = Fraction(11, 6)
    for j in range(1, 4):
        run.open([1, 1, 1, 1], 2**45)
        for came, (rho, delta) in enumerate(run.lines, start=1):
            loss = sum((Fraction(1, i) for i in range(came, j + 1)), Fraction(0))
            assert rho == math.ceil(UNITS * loss / whole)
            assert 0 < delta <= UNITS
    assert run.lines[0][0] == UNITS
    taus = [math.exp(phase.log_tau.total) for phase in mechanism.constants.phases]
    for came, (_, delta) in enumerate(run.lines):
        assert delta / UNITS == pytest.approx(sum(taus[came:]) / 0.9)
        assert delta / UNITS >= sum(taus[came:]) / 0.9 * (1 - 1e-12)


def test_a_line_is_full_after_hundreds_of_phases_and_never_overdrawn() -> None:
    """A restart opens them all again: each must cost a moment, however many there were."""
    mechanism = Sequential(
        universe_of(2, 2), Privacy(1.0, 1e-6), Accuracy(0.2, 0.05), queries_per_phase=1000, phases=300
    )  # fmt: skip
    lines = Lines()
    for _ in range(300):
        lines.open()
        (look,) = mechanism.open_phase(mechanism.rows_to_open)
        mechanism.charged(look.charges)
        lines.charge(look.charges)
    assert lines.spent(0).rho == UNITS
    assert lines.spent(299).rho < UNITS / 1000


# ---------------------------------------------------------------- answers


def _median(cells: Universe, representation: Representation, **settings: Any) -> Median:
    if representation == "exhaustive":
        settings = {"hypothesis_rows": 9, **settings}
    return Median(
        cells,
        Privacy(1.0, 1e-9),
        Accuracy(0.1, 0.01),
        queries=60,
        representation=representation,
        **settings,
    )


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_the_median_mechanism_answers_within_the_error_with_every_representation(
    representation: Representation,
) -> None:
    cells = universe_of(2, 2)
    mechanism = _median(cells, representation)
    run = Drive(cells, mechanism, SeededNoise(4))
    run.open([5, 3, 1, 2], 10**17)
    rng, paths = np.random.default_rng(3), []
    for _ in range(60):
        query = run.query(rng.random(4) < 0.5)
        outcome = run.ask(query)
        if isinstance(outcome, Refused):  # nine rows hold no answer to eps/50
            assert representation == "exhaustive"
            assert outcome.code is RefusalCode.INCONSISTENT
            break
        assert abs(outcome.value - run.truth(query)) <= 0.1
        assert outcome.error_bar == 0.1
        paths.append(outcome.path)
    assert Path.MEASURED in paths
    if representation != "exhaustive":
        assert paths.count(Path.GATED) > paths.count(Path.MEASURED)
        assert isinstance(run.ask(query), Refused)  # k were asked


@pytest.mark.slow
def test_a_polytope_serves_hundreds_of_cells_far_below_the_papers_rows() -> None:
    """128 cells and a million times fewer rows than the papers' m asks for, with the same promise."""
    cells = universe_of(8, 16)
    mechanism = _median(cells, "polytope")
    assert mechanism.rows_to_open < 1e-5 * _median(cells, "entropic").rows_to_open
    run = Drive(cells, mechanism, SeededNoise(5))
    rng = np.random.default_rng(8)
    run.open(rng.dirichlet(np.full(128, 0.2)), mechanism.rows_to_open)
    paths = []
    values = np.arange(8)
    for wanted in (*values, values[:4], values[2:7], values[::2]):  # of the first attribute
        query = run.query(np.isin(np.arange(128) // 16, wanted))
        step = mechanism.answer(query)
        assert 50 < step.description["effective_size"] <= 512  # type: ignore[union-attr, operator]
        outcome = run.ask(query)
        assert outcome.error_bar == 0.1
        assert abs(outcome.value - run.truth(query)) <= 0.1
        paths.append(outcome.path)
    assert Path.MEASURED in paths
    assert paths[-3:] == [Path.GATED] * 3  # sums of what was answered


def test_memory_over_polytopes_remembers_earlier_phases() -> None:
    """The product body: what a hard answer to the first phase said still answers about it in the second."""
    cells = universe_of(2, 4)
    mechanism = Memory(
        cells,
        Privacy(1.0, 1e-9),
        Accuracy(0.1, 0.01),
        queries_per_phase=40,
        phases=3,
        representation="polytope",
    )
    assert mechanism.constants.proved
    run = Drive(cells, mechanism, SeededNoise(6))
    first = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    shares = [10, 6, 1, 1, 1, 1, 1, 1]
    run.open(shares, 2 * 10**13)
    assert run.ask(run.query(first)).path is Path.MEASURED
    assert run.ask(run.query(first)).path is Path.GATED
    run.open(shares, 10**13)
    assert run.ask(run.query(first, range(1))).path is Path.GATED
    whole = run.ask(run.query(first))
    assert whole.value == pytest.approx(16 / 22, abs=0.1)
    rng = np.random.default_rng(1)
    for _ in range(20):
        query = run.query(rng.random(8) < 0.5)
        assert abs(run.ask(query).value - run.truth(query)) <= 0.1


def _sequential(cells: Universe, representation: Representation = "polytope") -> Sequential:
    return Sequential(
        cells,
        Privacy(1.0, 1e-9),
        Accuracy(0.1, 0.05),
        queries_per_phase=20,
        phases=3,
        representation=representation,
        hypothesis_rows=None if representation == "polytope" else 30,
    )


def test_a_new_phase_forgets_what_the_one_before_it_published() -> None:
    """As many hard queries again, about the whole dataset; the limit counts those of the phase alone."""
    cells = universe_of(2, 4)
    mechanism = _sequential(cells)
    run = Drive(cells, mechanism, SeededNoise(6))
    shares, first = [10, 6, 1, 1, 1, 1, 1, 1], np.array([1, 1, 0, 0, 0, 0, 0, 0])
    for _ in range(3):
        run.open(shares, 10**14)
        assert run.ask(run.query(first)).path is Path.MEASURED
        assert run.ask(run.query(first)).path is Path.GATED
        for _ in range(18):
            assert isinstance(run.ask(run.query(first)), Answered)
        refused = run.ask(run.query(first))
        assert refused.code is RefusalCode.QUERIES_EXHAUSTED
    assert mechanism.asked == 60
    assert mechanism.hard == 3


def test_a_query_is_about_the_whole_dataset() -> None:
    cells = universe_of(2, 2)
    run = Drive(cells, _sequential(cells), SeededNoise(6))
    run.open([1, 1, 1, 1], 10**14)
    run.open([1, 1, 1, 1], 10**14)
    for window in (range(1), range(1, 2)):
        refused = run.ask(run.query([1, 0, 0, 0], window))
        assert refused.code is RefusalCode.INVALID_QUERY
        assert "leave the window out" in refused.message
    assert isinstance(run.ask(run.query([1, 0, 0, 0])), Answered)


def test_the_limit_on_hard_queries_binds_in_each_phase_anew() -> None:
    cells = universe_of(2, 2)
    mechanism = Sequential(
        cells, Privacy(1.0, 0.9), Accuracy(0.1, 0.5), queries_per_phase=100, phases=2, hypothesis_rows=1
    )  # fmt: skip
    limit = math.floor(20 * math.log(4))
    assert [phase.hard_limit for phase in mechanism.constants.phases] == [limit, limit]
    run = Drive(cells, mechanism, SeededNoise(6))
    for _ in range(2):
        run.open([1, 1, 1, 1], 10**12)
        for _ in range(limit):
            run.lose(run.query([1, 0, 0, 0]))
        refused = run.ask(run.query([1, 0, 0, 0]))
        assert refused.code is RefusalCode.HARD_QUERIES_EXHAUSTED


def test_the_budget_is_public_and_json() -> None:
    median: Mechanism = _median(universe_of(2, 2), "polytope")
    published: Any = median.published_budget
    assert published["accuracy_proved"] is True
    assert published["hypothesis_rows"] == published["proved_hypothesis_rows"] == 12
    assert published["papers_hypothesis_rows"] > 10**8
    assert published["log10_tau"] < -9
    assert published["failure_probability"] <= 0.01
    json.dumps(published)
