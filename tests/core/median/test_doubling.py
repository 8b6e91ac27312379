"""Guesses of the number of queries: their parts, their beginnings, and what a crash leaves."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.doubling_stages import Doubling, StageLook
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phased import Phased
from stream_dp.core.median.sequential import Median, Sequential
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.conftest import Drive, universe_of
from tests.noise import SeededNoise

KINDS = ("median", "sequential", "memory")


def doubling(universe: Universe, kind: str = "median", first: int = 4) -> Doubling:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Phased:
        if kind == "median":
            return Median(universe, privacy, accuracy, queries=queries, representation="polytope")
        made = Sequential if kind == "sequential" else Memory
        return made(
            universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=2,
            representation="polytope",
        )

    # Few queries a phase leave the memory mechanism's noise a large failure probability.
    failure = 0.9 if kind == "memory" else 0.05
    return Doubling(make, Privacy(1.0, 1e-9), Accuracy(0.1, failure), first=first)


CELLS = universe_of(2, 2)


def test_the_parts_of_all_stages_sum_to_less_than_the_whole() -> None:
    """``6/(pi^2 s^2)`` each, and hardly less."""
    stages = [doubling(CELLS)._stage(s) for s in range(1, 8)]
    for s, stage in enumerate(stages, start=1):
        for part in stage.parts:
            assert part < 6 / (np.pi * s) ** 2
            assert float(part) == pytest.approx(6 / (np.pi * s) ** 2, rel=1e-6)
        assert stage.mechanism.constants.queries_per_phase == 4 * 2 ** (s - 1)
    assert Fraction(607_927, 10**6) * sum(1 / Fraction(s) ** 2 for s in range(1, 1_000)) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_stage_answers_its_queries_and_then_the_next_begins(kind: str) -> None:
    mechanism = doubling(CELLS, kind, 64 if kind == "memory" else 4)
    first = mechanism.mechanism.constants.queries_per_phase
    run = Drive(CELLS, mechanism, SeededNoise(3))
    run.open([5, 3, 1, 2], 10**15)
    paid = [run.lines[0][0]]
    query = run.query([1, 0, 0, 0])
    for s in (1, 2):
        for turn in range(first * 2 ** (s - 1)):
            assert mechanism.stage == (s if turn else max(1, s - 1))
            outcome = run.ask(query)
            assert abs(outcome.value - run.truth(query)) <= 0.1
            if not turn:  # a new stage knows nothing
                assert outcome.path is Path.MEASURED
        paid.append(run.lines[0][0])
    assert mechanism.stage == 2
    assert paid[1] == paid[0] > 0  # the first stage was paid with the phase
    assert paid[2] > paid[1]
    if kind == "median":
        assert paid[2] / UNITS == pytest.approx((1 + 1 / 4) * 6 / np.pi**2, rel=1e-6)


def test_the_last_stage_that_the_rows_allow_refuses_what_is_beyond_it() -> None:
    mechanism = doubling(CELLS)
    enough = [mechanism._stage(s).mechanism.rows_to_open for s in (1, 2, 3)]
    assert enough == sorted(enough)
    run = Drive(CELLS, mechanism, SeededNoise(3))
    run.open([1, 1, 1, 1], enough[1])
    query = run.query([1, 0, 0, 0])
    for _ in range(4 + 8):
        assert isinstance(run.ask(query), Answered)
    for _ in range(2):
        refused = run.ask(query)
        assert refused.code is RefusalCode.QUERIES_EXHAUSTED
    assert mechanism.stage == 2
    assert mechanism.quote(query).outcome == refused


def test_whether_the_rows_suffice_for_the_next_stage_is_worked_out_once_a_phase() -> None:
    made: list[int] = []

    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Phased:
        made.append(queries)
        return Sequential(
            CELLS, privacy, accuracy, queries_per_phase=queries, phases=2, representation="polytope"
        )

    mechanism = Doubling(make, Privacy(1.0, 1e-9), Accuracy(0.1, 0.05), first=4)
    run = Drive(CELLS, mechanism, SeededNoise(3))
    for _ in range(2):
        run.open([1, 1, 1, 1], mechanism.rows_to_open)
        for _ in range(4):
            assert isinstance(run.ask(run.query([1, 0, 0, 0])), Answered)
        for _ in range(3):
            assert isinstance(run.ask(run.query([1, 0, 0, 0])), Refused)
    assert made == [4, 8, 8]


@pytest.mark.parametrize("kind", ["sequential", "memory"])
def test_a_phase_opens_under_the_stage_in_force(kind: str) -> None:
    mechanism = doubling(CELLS, kind, 64 if kind == "memory" else 4)
    first = mechanism.mechanism.constants.queries_per_phase
    run = Drive(CELLS, mechanism, SeededNoise(3))
    run.open([1, 2, 3, 4], 10**15)
    for _ in range(first + 1):
        run.ask(run.query([1, 0, 0, 0]))
    assert mechanism.stage == 2
    run.open([1, 2, 3, 4], 10**15)
    assert mechanism.stage == 2
    query = run.query([1, 0, 0, 0])
    for _ in range(2 * first):
        assert isinstance(run.ask(query), Answered)
    assert mechanism.stage == 2
    assert isinstance(run.ask(query), Answered)
    assert mechanism.stage == 3
    assert all(rho <= UNITS and delta <= UNITS for rho, delta in run.lines)
    # No more than the parts of three stages, each on two blocks.
    parts = sum(float(mechanism._stage(s).parts[0]) for s in (1, 2, 3))
    assert all(rho <= UNITS * parts + 20 for rho, _ in run.lines)


def test_a_quote_tells_what_the_next_stage_will_cost_and_begins_nothing() -> None:
    mechanism = doubling(CELLS)
    run = Drive(CELLS, mechanism, SeededNoise(3))
    run.open([1, 1, 1, 1], 10**15)
    query = run.query([1, 0, 0, 0])
    assert mechanism.quote(query).charges == ()
    for _ in range(4):
        run.ask(query)
    quote = mechanism.quote(query)
    assert quote.outcome is None
    (charge,) = quote.charges
    assert charge.rho / UNITS == pytest.approx(6 / np.pi**2 / 4, rel=1e-6)
    assert mechanism.stage == 1
    look = mechanism.answer(query)
    assert isinstance(look, StageLook)
    assert look.charges == quote.charges
    assert mechanism.stage == 1  # nothing was looked at yet


def test_nothing_is_asked_of_a_phase_that_is_not_paid_for() -> None:
    mechanism: Mechanism = doubling(CELLS)
    (look,) = mechanism.open_phase(10**15)
    query = LinearQuery(EVERYTHING, range(1))
    outcome = mechanism.answer(query)
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.RETRY_AFTER
    assert mechanism.quote(query).outcome == outcome
    mechanism.charged(look.charges)
    assert isinstance(mechanism.answer(query), StageLook)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [(2,), (4,), (4, 5)])
def test_a_replay_gives_the_same_state_whichever_look_a_crash_lost(
    kind: str, lost: tuple[int, ...]
) -> None:
    """Also the look that a stage begins with: its charge stands, and the stage has begun."""
    first = 64 if kind == "memory" else 4
    run = Drive(CELLS, doubling(CELLS, kind, first), SeededNoise(3))
    run.open([5, 3, 1, 2], 10**15)
    rng = np.random.default_rng(1)
    for turn in range(first - 4 + 7):
        query = run.query(rng.random(4) < 0.5)
        (run.lose if turn - (first - 4) in lost else run.ask)(query)
    assert run.mechanism.stage == 2
    again = run.replayed(doubling(CELLS, kind, first))
    assert again.stage == 2
    inner, copy = run.mechanism.mechanism, again.mechanism
    assert (inner.asked, inner.hard) == (copy.asked, copy.hard)
    for _ in range(3):
        query = run.query(rng.random(4) < 0.5)
        here, there = run.mechanism.answer(query), again.answer(query)
        assert here.description == there.description
        assert here.look.easy_share == there.look.easy_share
        json.dumps(here.description)


def test_a_transcript_out_of_order_is_refused() -> None:
    run = Drive(CELLS, doubling(CELLS), SeededNoise(3))
    run.open([1, 1, 1, 1], 10**15)
    query = run.query([1, 0, 0, 0])
    for _ in range(13):
        run.ask(query)
    assert run.mechanism.stage == 3
    again = doubling(CELLS)
    again.open_phase(10**15)
    last = again.release_from_bytes(run.transcript[-1])
    with pytest.raises(CorruptState, match="stage 3"):
        again.absorb(last)


def test_the_first_stage_must_be_possible() -> None:
    with pytest.raises(InvalidDefinition):
        doubling(CELLS, first=1)


def test_the_budget_is_that_of_all_stages() -> None:
    published = doubling(CELLS).published_budget
    assert published["epsilon"] == 1.0
    assert published["stage"] == 1
    assert published["stage_epsilon"] == pytest.approx(6 / np.pi**2, rel=1e-6)
    json.dumps(published)
