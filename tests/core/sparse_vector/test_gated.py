"""Gates before a maximum-entropy set: what they cost, how right they are, and the thesis' conjecture."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.median.consistent_set import Entropic
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.sparse_vector.gated import Gated, Prior, Scales
from stream_dp.core.sparse_vector.gates import CountLook, CountRelease, threshold
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.conftest import Drive, universe_of
from tests.noise import SeededNoise

PRIVACY, ACCURACY = Privacy(1.0, 1e-9), Accuracy(0.05, 0.05)
ROWS = 30_000


CELLS = universe_of(4, 4)


def gated(segments: int = 20, prior: Prior = "uniform") -> Gated:
    return Gated(CELLS, PRIVACY, ACCURACY, segments=segments, prior=prior)


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize("segments", [1, 20, 300])
def test_a_segment_costs_its_part_and_hardly_less(segments: int) -> None:
    """By the exact scales: (1/b_t + 2/b_q)^2 / 2 for the gate, 1/(2 sigma^2) for the measurement."""
    part = Budget.of(PRIVACY).rho / segments
    scales = Scales.of(part)
    gate = 1 / scales.threshold + 2 / scales.query
    assert scales.rho == gate**2 / 2 + 1 / (2 * scales.count**2)
    assert 0.9 * part < scales.rho <= part
    assert float(scales.query / scales.threshold) == pytest.approx(math.sqrt(2), rel=0.03)


def test_a_block_pays_once_a_segment_however_many_queries_touch_it() -> None:
    mechanism = gated()
    run = Drive(CELLS, mechanism, SeededNoise(1))
    run.open(np.ones(16), ROWS)
    run.open(np.ones(16), ROWS)
    half = np.arange(16) < 8
    price = Budget.of(PRIVACY).charge(0, mechanism.scales.rho).rho
    assert price <= UNITS / 20
    for _ in range(3):  # uniform, so the prediction stands
        assert run.ask(run.query(half, range(1))).path is Path.GATED
    assert [rho for rho, _ in run.lines] == [price, 0]
    for _ in range(3):
        assert run.ask(run.query(half)).path is Path.GATED
    assert [rho for rho, _ in run.lines] == [price, price]
    assert mechanism.quote(run.query(half)).charges == ()


def test_a_prediction_that_is_far_off_is_measured_ends_the_segment_and_is_remembered() -> None:
    mechanism = gated()
    run = Drive(CELLS, mechanism, SeededNoise(1))
    run.open([9] + [1] * 15, ROWS)
    query = run.query(np.arange(16) == 0)
    first = run.ask(query)
    assert first.path is Path.MEASURED
    assert first.value == pytest.approx(9 / 24, abs=0.05)
    paid = run.lines[0][0]
    assert len(mechanism.quote(query).charges) == 1  # the segment has ended
    again = run.ask(query)
    assert again.path is Path.GATED
    assert again.value == pytest.approx(9 / 24, abs=0.05)
    assert run.lines[0][0] == 2 * paid
    assert run.ask(run.query(np.arange(16) < 4)).path is Path.GATED
    assert (mechanism.asked, mechanism.hard) == (3, 1)


def test_no_line_passes_its_budget() -> None:
    mechanism = gated(segments=5)
    run = Drive(CELLS, mechanism, SeededNoise(1))
    rng = np.random.default_rng(2)
    run.open(rng.dirichlet(np.full(16, 0.3)), 10 * ROWS)
    for _ in range(400):
        outcome = run.ask(run.query(rng.random(16) < 0.5))
        if isinstance(outcome, Refused):
            break
    assert outcome.code is RefusalCode.BUDGET_EXHAUSTED
    assert 0.85 * UNITS < run.lines[0][0] <= UNITS
    assert mechanism.hard == 5


@pytest.mark.parametrize("segments", [20, 60, 300])
def test_a_threshold_keeps_its_promise_in_every_segment_that_a_line_pays_for(segments: int) -> None:
    """Scales are rounded up to the grid, so a line may pay for a few segments more than were asked for."""
    mechanism, n_rows = gated(segments), 10**7
    mechanism.open_phase(n_rows)
    look = mechanism.answer(LinearQuery(EVERYTHING, range(1)))
    assert isinstance(look, CountLook)
    assert look.gate is not None
    (charge,) = look.charges
    paid_for = UNITS // charge.rho
    assert segments <= paid_for <= 1.1 * segments
    assert look.gate.threshold == threshold(
        error=ACCURACY.error,
        n_rows=n_rows,
        threshold_scale=mechanism.scales.threshold,
        query_scale=mechanism.scales.query,
        segments=paid_for,
        failure_probability=ACCURACY.failure_probability / 2,
    )


# ---------------------------------------------------------------- answers


def test_answers_are_within_the_error_as_often_as_promised() -> None:
    """Over twelve drifting phases, 25 queries each; false alarms at five standard deviations."""
    mechanism = gated(segments=40, prior="carry_over")
    run, rng = Drive(CELLS, mechanism, SeededNoise(4)), np.random.default_rng(5)
    shares, missed, answered = rng.dirichlet(np.full(16, 0.5)), 0, 0
    for phase in range(12):
        shares = 0.9 * shares + 0.1 * rng.dirichlet(np.full(16, 0.5))
        run.open(shares, 3 * ROWS)
        for _ in range(25):
            start = int(rng.integers(max(0, phase - 3), phase + 1))
            query = run.query(rng.random(16) < 0.5, range(start, phase + 1))
            outcome = run.ask(query)
            if isinstance(outcome, Answered):
                answered += 1
                missed += abs(outcome.value - run.truth(query)) > 0.05
                assert outcome.error_bar == 0.05
                assert outcome.confidence == 0.95
    assert answered > 250
    assert missed <= answered * 0.05 + 5 * math.sqrt(answered * 0.05 * 0.95)
    assert mechanism.hard < answered / 2


def hard_queries(prior: Prior, noise: NoiseSource, *, drifting: bool) -> int:
    """Of 6 phases with 15 queries each about the newest one."""
    mechanism = gated(segments=15, prior=prior)
    run, rng = Drive(CELLS, mechanism, noise), np.random.default_rng(6)
    shares = rng.dirichlet(np.full(16, 0.4))
    for phase in range(6):
        if drifting:
            shares = rng.dirichlet(np.full(16, 0.4))
        run.open(shares, ROWS)
        for _ in range(15):
            assert isinstance(
                run.ask(run.query(rng.random(16) < 0.5, range(phase, phase + 1))), Answered
            )
    return mechanism.hard


def test_carrying_over_saves_hard_queries_on_data_that_stay_as_they_were() -> None:
    """What section 5.3 of the thesis conjectures; where every phase is another the two are alike."""
    counts = {
        (prior, drifting): hard_queries(prior, SeededNoise(7), drifting=drifting)
        for prior in ("uniform", "carry_over")
        for drifting in (False, True)
    }
    assert counts["carry_over", False] < 0.5 * counts["uniform", False]
    assert counts["carry_over", True] > 0.6 * counts["uniform", True]


def test_the_prior_is_the_mixture_of_the_blocks_before() -> None:
    first = np.arange(4) == 0
    plain, carried = Entropic(4, 10**6), Entropic(4, 10**6, carry_over=True)
    for entropic in (plain, carried):
        for n_rows in (1_000, 3_000):
            entropic.add_block(n_rows)
        entropic.prune(first, range(1), Fraction(9, 10), Fraction(1, 10**4))
        entropic.add_block(500)
    assert plain.point()[2] == pytest.approx([0.25] * 4)
    mixed = (plain.point()[0] + 3 * plain.point()[1]) / 4
    assert carried.point()[2] == pytest.approx(0.99 * mixed + 0.01 / 4, abs=1e-3)
    for entropic in (plain, carried):
        assert entropic.point()[0][0] == pytest.approx(0.9, abs=2e-4)


# ---------------------------------------------------------------- refusals and restarts


def test_refusals_follow_from_public_facts() -> None:
    mechanism = gated()
    query = LinearQuery(EVERYTHING, range(1))

    def code(asked: LinearQuery) -> RefusalCode:
        outcome = mechanism.answer(asked)
        assert isinstance(outcome, Refused)
        assert mechanism.quote(asked).outcome == outcome
        return outcome.code

    assert code(query) is RefusalCode.NO_PHASE
    assert not mechanism.opens(9, 10)
    mechanism.open_phase(mechanism.min_rows - 1)
    assert code(query) is RefusalCode.WINDOW_TOO_SMALL
    assert code(LinearQuery(EVERYTHING, range(2))) is RefusalCode.INVALID_QUERY
    assert code(LinearQuery(EVERYTHING, range(1), (0,))) is RefusalCode.UNSUPPORTED_KIND
    mechanism.open_phase(mechanism.min_rows)
    assert isinstance(mechanism.answer(LinearQuery(EVERYTHING, range(1, 2))), CountLook)
    with pytest.raises(InvalidDefinition, match="segments"):
        gated(segments=0)


def test_a_restart_begins_a_new_segment_at_a_new_charge() -> None:
    run = Drive(CELLS, gated(), SeededNoise(1))
    run.open([9] + [1] * 15, ROWS)
    even = run.query(np.arange(16) % 2 == 1)
    for cell in (0, 3):
        run.ask(run.query(np.arange(16) == cell))
    run.ask(even)
    assert run.mechanism.quote(even).charges == ()
    again = run.replayed(gated())
    here, there = run.mechanism.answer(even), again.answer(even)
    assert there.gate.number == here.gate.number + 1
    assert len(there.charges) == 1
    assert here.gate.predicted == there.gate.predicted
    assert here.gate.threshold == there.gate.threshold
    # And the new segment's release is folded wherever the old one was.
    release = run.mechanism.release_from_bytes(there.take(SeededNoise(2), run.data).to_bytes())
    for mechanism in (run.mechanism, again):
        mechanism.absorb(release)
    assert repr(run.mechanism) == repr(again)


def test_a_lost_look_keeps_its_charge_and_loses_its_segment() -> None:
    run = Drive(CELLS, gated(), SeededNoise(1))
    run.open(np.ones(16), ROWS)
    query = run.query(np.arange(16) < 8)
    run.lose(query)
    paid = run.lines[0][0]
    assert paid > 0
    assert run.mechanism.asked == 0
    run.ask(query)
    assert run.lines[0][0] == 2 * paid
    again = run.replayed(gated())
    assert (again.asked, again.hard) == (1, 0)


def test_a_release_has_the_same_length_whether_or_not_it_was_measured() -> None:
    run = Drive(CELLS, gated(), SeededNoise(1))
    run.open([9] + [1] * 15, ROWS)
    for cell in (0, 5):
        run.ask(run.query(np.arange(16) == cell))
    assert len({len(entry) for entry in run.transcript if isinstance(entry, bytes)}) == 1


def test_a_release_of_another_segment_is_refused() -> None:
    with pytest.raises(CorruptState, match="segment"):
        gated().absorb(CountRelease(3, range(1), EVERYTHING, False, 0))


def test_no_repr_tells_the_offset() -> None:
    run = Drive(CELLS, gated(), SeededNoise(1))
    run.open([12_345] + [1] * 15, ROWS)
    look = run.mechanism.answer(run.query(np.arange(16) == 0))
    release = look.take(SeededNoise(2), run.data)
    assert release.measured
    for item in (run.mechanism, look, release):
        assert "offset" not in repr(item)
