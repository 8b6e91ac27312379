"""The memory mechanism against its constants, its promises, and workload W6."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize, stats

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.median.formulas import harmonic, last_threshold
from stream_dp.core.median.memory import Memory, constants
from stream_dp.core.median.phase_constants import Constants, PhaseSettings
from stream_dp.core.median.phase_looks import QueryLook
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import Kind, NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.conftest import Drive, block_of, universe_of
from tests.noise import FakeNoise, SeededNoise
from tests.slow import rest_is_slow

SEED = 20_261_121


def random_counts(
    rng: np.random.Generator, universe: Universe, n_rows: int
) -> npt.NDArray[np.int64]:
    shares = rng.dirichlet([0.3] * universe.n_cells)
    counts = np.array([int(share * 2**50) * (n_rows >> 50) for share in shares], dtype=np.int64)
    counts[0] += n_rows - counts.sum()
    return counts.reshape(universe.shape)


def random_query(rng: np.random.Generator, universe: Universe, window: range) -> LinearQuery:
    attributes = tuple(range(len(universe.shape)))
    return LinearQuery(Predicate.of_mask(attributes, rng.random(universe.shape) < 0.5), window)


def small(rows: int = 1, **settings: object) -> Memory:
    """Four cells and constants set by hand: phases open from about a million rows on."""
    arguments: dict[str, object] = {
        "queries_per_phase": 100,
        "phases": 3,
        "hypothesis_rows": rows,
        **settings,
    }
    return Memory(
        universe_of(2, 2),
        Privacy(1.0, 0.9),
        Accuracy(0.1, 0.9),
        **arguments,  # type: ignore[arg-type]
    )


def opened(memory: Memory, phases: int = 1) -> Drive:
    rng, cells = np.random.default_rng(1), universe_of(2, 2)
    run = Drive(cells, memory, SeededNoise(SEED))
    for _ in range(phases):
        run.open_counts(random_counts(rng, cells, 2**55))
    return run


# ---------------------------------------------------------------- constants


def of(**settings: Any) -> Constants:
    usual = {"n_cells": 16, "epsilon": Fraction(1), "error": Fraction(1, 10)}
    return constants(PhaseSettings(**{**usual, "queries_per_phase": 100, "phases": 3, **settings}))


def test_the_published_constants_come_out() -> None:
    """k = 100, eps = 0.1, alpha = 1, N = 16, K = 1."""
    facts = of(phases=1)
    assert facts.alpha == 1
    assert facts.hypothesis_rows == 169_660_740
    assert 1 / facts.phases[0].inverse_privacy == pytest.approx(2.953e-12, rel=2e-4)
    assert facts.min_rows_as_printed == pytest.approx(3.577e15, rel=2e-4)
    assert facts.min_rows / facts.min_rows_as_printed == pytest.approx(6.0, abs=0.05)


def test_n_min_is_the_mended_formula() -> None:
    facts = of(
        n_cells=64, epsilon=Fraction(2), error=Fraction(1, 20), queries_per_phase=300, phases=4
    )
    m, ln_n = facts.hypothesis_rows, math.log(64)
    alpha = 2.0 / (1 + 1 / 2 + 1 / 3 + 1 / 4)
    last_alpha = alpha / (720 * 4 * m * ln_n)
    n_min = 21_600 * m * math.log(600 / last_alpha) * math.log2(300) * ln_n / (alpha * 0.05)
    assert facts.min_rows == pytest.approx(n_min, rel=1e-9)
    assert facts.min_rows > n_min * (1 - 1e-12)
    assert m == math.ceil(160_000 * math.log(4 * 300) * math.log(20.0) / 0.05**2)
    for j, phase in enumerate(facts.phases, start=1):
        assert phase.hard_limit == math.floor(20 * j * m * ln_n)
        assert 1 / phase.inverse_privacy == pytest.approx(alpha / (720 * j * m * ln_n))
        assert phase.min_rows == j * facts.min_rows


@pytest.mark.parametrize("rows", [None, 1, 50])
@pytest.mark.parametrize("error", [Fraction(1, 10), Fraction(1, 20)])
def test_every_phase_has_thresholds_enough_at_n_min(rows: int | None, error: Fraction) -> None:
    """``L >= floor(1.125 log2 k)``; at powers of 2**8 the floor gives no slack at all."""
    for k in (*range(2, 70), 2**8, 2**8 + 1, 10**4, 2**16, 2**24):
        facts = of(error=error, queries_per_phase=k, rows=rows)
        least = last_threshold(k)
        assert all(phase.last_threshold >= least for phase in facts.phases)
        assert facts.phases[-1].last_threshold == least  # and not much more rows than needed


@pytest.mark.slow
def test_every_phase_has_thresholds_enough_at_n_min_for_every_k() -> None:
    for k in range(2, 10**4 + 1):
        facts = of(queries_per_phase=k)
        least = last_threshold(k)
        assert all(phase.last_threshold >= least for phase in facts.phases)


def test_the_harmonic_number_is_rounded_up_by_next_to_nothing() -> None:
    for n in (1, 2, 3, 50):
        exact = sum((Fraction(1, i) for i in range(1, n + 1)), Fraction(0))
        assert 0 <= harmonic(n) - exact < Fraction(1, 2**180)
    assert harmonic(1) == 1


def test_the_total_tau_is_the_sum_over_phases() -> None:
    facts = of(queries_per_phase=50, rows=2)
    total = 0.0
    for j, phase in enumerate(facts.phases, start=1):
        last = min(p.last_threshold for p in facts.phases)
        chance = 2.0**-last / (2.0 - 2.0**-last)
        binomial = float(stats.binom.sf(math.floor(2 * j * math.log(16)), 50 * j, chance))
        concentration = math.exp(-4.99 * 2 * j * math.log(16))
        assert math.exp(phase.log_tau.concentration) == pytest.approx(concentration)
        assert math.exp(phase.log_tau.last_index) == pytest.approx(binomial)
        total += concentration + binomial
    assert math.exp(facts.log_tau) == pytest.approx(total)


# ---------------------------------------------------------------- the ledger's line


def test_the_lines_are_theorem_5_1() -> None:
    """After phase j every block's line reads ``H_j / H_K`` of epsilon; after the last, all of it."""
    run = opened(small(), 0)
    whole = Fraction(1) + Fraction(1, 2) + Fraction(1, 3)
    rng = np.random.default_rng(1)
    for j in range(1, 4):
        run.open_counts(random_counts(rng, run.universe, 2**55))
        so_far = sum((Fraction(1, i) for i in range(1, j + 1)), Fraction(0))
        assert {rho for rho, _ in run.lines} == {math.ceil(UNITS * so_far / whole)}
        assert all(0 < delta <= UNITS for _, delta in run.lines)
    assert {rho for rho, _ in run.lines} == {UNITS}


@pytest.mark.parametrize("phases", [1, 3, 6])
def test_no_line_is_below_the_worst_loss_so_far(phases: int) -> None:
    """The worst loss of a block that came in phase l, up to phase j, by linear programming.

    At most 180 i m ln N bad thresholds up to phase i, each 2 alpha'_i in its own phase, and alpha'_i / 2 a
    phase beside them. ``alpha / l`` for a new block would be too little from l = 3 on.
    """
    facts = of(n_cells=4, queries_per_phase=50, phases=phases, rows=1)
    alpha, bad = float(facts.alpha), 180.0 * math.log(4)
    primes = np.array([1.0 / phase.inverse_privacy for phase in facts.phases])
    for came in range(1, phases + 1):
        for j in range(came, phases + 1):
            cost = np.where(np.arange(1, j + 1) >= came, 2.0 * primes[:j], 0.0)
            worst = optimize.linprog(
                -cost,
                A_ub=np.tril(np.ones((j, j))),
                b_ub=bad * np.arange(1, j + 1),
            )
            assert worst.fun is not None
            loss = -worst.fun + primes[came - 1 : j].sum() / 2.0
            assert loss <= alpha * float(harmonic(j))
            if came == j >= 3:
                assert loss > alpha / came


# ---------------------------------------------------------------- definitions that are refused


def refusal(**settings: object) -> InvalidDefinition:
    arguments: dict[str, object] = {
        "privacy": Privacy(1.0, 1e-9),
        "accuracy": Accuracy(0.1, 0.05),
        "queries_per_phase": 100,
        "phases": 3,
        **settings,
    }
    cells = arguments.pop("universe", universe_of(4, 4))
    with pytest.raises(InvalidDefinition) as caught:
        Memory(
            cells,  # type: ignore[arg-type]
            arguments.pop("privacy"),  # type: ignore[arg-type]
            arguments.pop("accuracy"),  # type: ignore[arg-type]
            **arguments,  # type: ignore[arg-type]
        )
    return caught.value


def test_rows_a_hypothesis_that_would_lose_privacy_are_refused_with_both_terms() -> None:
    error = refusal(hypothesis_rows=1, queries_per_phase=1_000)
    assert error.field == "mechanism.hypothesis_rows"
    assert "concentration" in str(error)
    assert "last threshold" in str(error)
    assert "privacy.delta" in str(error)


def test_noise_that_fails_too_often_is_refused() -> None:
    error = refusal(queries_per_phase=2)
    assert error.field == "accuracy.failure_probability"
    assert "queries_per_phase" in error.fix


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"privacy": Privacy(1.0, 0.0)}, "privacy.delta"),
        ({"accuracy": Accuracy(0.9, 0.05)}, "accuracy.error"),
        ({"accuracy": Accuracy(1e-7, 0.05)}, "accuracy.error"),
        ({"queries_per_phase": 1}, "mechanism.queries_per_phase"),
        ({"phases": 0}, "mechanism.phases"),
        ({"hypothesis_rows": 0}, "mechanism.hypothesis_rows"),
        ({"representation": "polyhedral"}, "mechanism.representation"),
        ({"representation": "exhaustive"}, "mechanism.representation"),
        ({"accuracy": Accuracy(0.001, 0.05)}, "mechanism.hypothesis_rows"),  # noise beyond 2**50
        ({"accuracy": Accuracy(0.02, 0.05)}, "mechanism.hypothesis_rows"),  # more rows than a block
        ({"universe": universe_of(2**11, 2**10)}, "attributes"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, object], field: str) -> None:
    assert refusal(**settings).field == field


def test_settings_are_taken_as_written() -> None:
    """0.1 is a tenth, not the float nearest to it."""
    assert small().constants.error == Fraction(1, 10)


# ---------------------------------------------------------------- workload W6


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4), (4, 4, 4)])
def test_w6a_with_the_papers_constants_every_answer_is_within_the_error(
    sizes: tuple[int, ...],
) -> None:
    cells = universe_of(*sizes)
    memory = Memory(cells, Privacy(1.0, 1e-9), Accuracy(0.1, 0.05), queries_per_phase=60, phases=3)
    run = Drive(cells, memory, SeededNoise(6))
    rng = np.random.default_rng(len(sizes))
    paths = []
    for j in range(1, 4):
        run.open_counts(random_counts(rng, cells, 2 * 10**17))
        for _ in range(60):
            query = random_query(rng, cells, range(j))
            outcome = run.ask(query)
            assert abs(outcome.count - run.truth(query) * outcome.n) <= 0.1 * outcome.n
            assert outcome.error_bar == 0.1
            assert outcome.confidence > 1.0 - 1e-6
            paths.append(outcome.path)
            if outcome.path is Path.MEASURED:
                assert outcome.count == pytest.approx(
                    run.truth(query) * outcome.n, abs=0.001 * outcome.n
                )
        assert isinstance(run.ask(query), Refused)
    facts = memory.published_budget
    assert set(paths) == {Path.GATED, Path.MEASURED}
    assert paths.count(Path.GATED) > paths.count(Path.MEASURED)
    assert memory.hard == paths.count(Path.MEASURED) <= memory.constants.phases[-1].hard_limit
    assert facts["epsilon"] == pytest.approx(
        float(memory.constants.alpha) * (1 + 1 / 2 + 1 / 3), rel=1e-12
    )
    assert facts["log10_tau"] < -1e8  # type: ignore[operator]
    json.dumps(facts)


def test_w6b_with_few_rows_a_hypothesis_the_hard_limit_binds_and_refuses() -> None:
    cells = universe_of(2, 3)
    memory = Memory(
        cells,
        Privacy(1.0, 0.1),
        Accuracy(0.1, 0.05),
        queries_per_phase=1_000,
        phases=3,
        hypothesis_rows=1,
    )
    limits = [math.floor(20 * j * math.log(6)) for j in (1, 2, 3)]
    assert [phase.hard_limit for phase in memory.constants.phases] == limits
    run = Drive(cells, memory, SeededNoise(7))
    rng = np.random.default_rng(9)
    for j, limit in enumerate(limits, start=1):
        run.open_counts(random_counts(rng, cells, 10**17))
        for _ in range(200):
            query = random_query(rng, cells, range(j))
            outcome = run.ask(query)
            if isinstance(outcome, Refused):
                break
            assert outcome.error_bar == outcome.error_bar_simultaneous == 0.1
            assert abs(outcome.count - run.truth(query) * outcome.n) <= 0.1 * outcome.n
        assert outcome.code is RefusalCode.HARD_QUERIES_EXHAUSTED
        assert f"{limit}" in outcome.message
        assert memory.hard == limit
    assert "last phase" in outcome.message
    assert run.ask(query) == outcome  # and stays so


def test_an_emptied_set_refuses_for_good() -> None:
    """Few rows listed one by one: no dataset of two rows is within eps/50 of a third."""
    memory = small(2, representation="exhaustive", phases=2, queries_per_phase=1_000)
    run = Drive(universe_of(2, 2), memory, SeededNoise(3))
    counts = np.array([[1, 1], [1, 0]], dtype=np.int64) * 10**15
    run.open_counts(counts)
    query = LinearQuery(
        Predicate.of_mask((0, 1), np.array([[True, False], [False, False]])), range(1)
    )
    outcome = run.ask(query)
    assert outcome.path is Path.MEASURED
    for phase in range(2):
        outcome = run.ask(query)
        assert outcome.code is RefusalCode.INCONSISTENT
        if phase == 0:
            run.open_counts(counts)


# ---------------------------------------------------------------- refusals of queries


def test_before_the_first_phase_every_query_is_refused() -> None:
    outcome = small().answer(LinearQuery(EVERYTHING, range(1)))
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.NO_PHASE


def test_queries_beyond_k_are_refused_and_unused_ones_are_not_carried_over() -> None:
    memory = small(50, queries_per_phase=20)
    run = opened(memory)
    query = LinearQuery(EVERYTHING, range(1))
    for _ in range(15):
        assert isinstance(run.ask(query), Answered)
    run.open_counts(random_counts(np.random.default_rng(2), run.universe, 2**55))
    query = LinearQuery(EVERYTHING, range(2))
    for _ in range(20):
        assert isinstance(run.ask(query), Answered)
    outcome = run.ask(query)
    assert outcome.code is RefusalCode.QUERIES_EXHAUSTED
    assert "ask again in the next phase" in outcome.message


def test_a_window_needs_the_rows_that_the_phase_asks_of_the_whole() -> None:
    memory, cells = small(50), universe_of(2, 2)
    run = Drive(cells, memory, SeededNoise(SEED))
    n_min = memory.rows_to_open
    for n_rows in (n_min, n_min, 2 * n_min):
        run.open_counts(np.array([[n_rows, 0], [0, 0]], dtype=np.int64))
    codes = {}
    for start in range(3):
        for stop in range(start + 1, 4):
            outcome = run.ask(LinearQuery(EVERYTHING, range(start, stop)))
            codes[start, stop] = outcome.code if isinstance(outcome, Refused) else None
    small_windows = [(0, 1), (1, 2), (2, 3), (0, 2)]
    assert [window for window, code in codes.items() if code] == sorted(small_windows)
    assert {codes[w] for w in small_windows} == {RefusalCode.WINDOW_TOO_SMALL}


def test_a_window_of_phases_not_open_is_refused() -> None:
    outcome = opened(small()).ask(LinearQuery(EVERYTHING, range(2)))
    assert outcome.code is RefusalCode.INVALID_QUERY


def test_nothing_is_asked_of_a_phase_that_is_not_paid_for() -> None:
    memory = small()
    run = opened(memory)
    (look,) = memory.open_phase(2**55)
    run.data.append(
        block_of(run.universe, random_counts(np.random.default_rng(3), run.universe, 2**55))
    )
    query = LinearQuery(EVERYTHING, range(2))
    outcome = memory.answer(query)
    assert isinstance(outcome, Refused)
    assert outcome.code is RefusalCode.RETRY_AFTER
    assert outcome.retriable
    memory.charged(look.charges[:1])
    assert isinstance(memory.answer(query), Refused)
    memory.charged(look.charges[1:])
    assert isinstance(memory.answer(query), QueryLook)


def test_phases_open_from_n_min_rows_on_and_not_beyond_the_last() -> None:
    memory = small()
    assert not memory.opens(memory.rows_to_open - 1, 1)
    assert memory.opens(memory.rows_to_open, 1)
    assert not memory.opens(memory.rows_to_open, memory.rows_to_open + 1)
    with pytest.raises(ValueError, match="opens"):
        memory.open_phase(memory.rows_to_open - 1)
    opened(memory, 3)
    assert not memory.opens(2**62, 1)
    with pytest.raises(ValueError, match="opens"):
        memory.open_phase(2**55)


# ---------------------------------------------------------------- looks


class Recorder(FakeNoise):
    """A noise source that lists what is asked of it, and gives what it is told to."""

    def __init__(self, draw: int = 0, index: int = 0) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._draw, self._index = draw, index

    def laplace(self, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
        self.calls.append(("laplace", scale, size))
        return np.full(size, self._draw, dtype=np.int64)

    def geometric_half(self, limit: int) -> int:
        self.calls.append(("geometric", limit))
        return self._index

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        self.calls.append(("reserve", kind, scale, size))


def looked(run: Drive, mask: list[list[bool]]) -> QueryLook:
    predicate = Predicate.of_mask((0, 1), np.array(mask))
    look = run.mechanism.answer(LinearQuery(predicate, range(len(run.data))))
    assert isinstance(look, QueryLook)
    return look


def test_easy_and_hard_looks_draw_the_same_and_weigh_the_same() -> None:
    """The constant predicate is easy, one with a share far from the prediction hard."""
    run = Drive(universe_of(2, 2), small(1_000), SeededNoise(SEED))
    run.open_counts(np.array([[10**15, 10**15], [0, 0]], dtype=np.int64))
    bytes_of = []
    for mask in ([[True, False], [True, False]], [[True, True], [False, False]]):
        recorder, look = Recorder(), looked(run, mask)
        look.reserve(recorder)
        release = look.take(recorder, run.data)
        scales = Fraction(look.gate.scale), Fraction(look.inverse_privacy)
        assert recorder.calls == [
            *(("reserve", "laplace", scale, 1) for scale in scales),
            *(("laplace", scale, 1) for scale in scales),
            ("geometric", look.gate.last),
        ]
        bytes_of.append((release.hard, len(release.to_bytes())))
    assert [hard for hard, _ in bytes_of] == [False, True]
    assert bytes_of[0][1] == bytes_of[1][1]


def test_a_hard_answer_is_the_exact_count_plus_its_noise() -> None:
    """Also above 2**53, where a float would be off."""
    run = Drive(universe_of(2, 2), small(1_000), SeededNoise(SEED))
    run.open_counts(np.array([[2**60 + 1, 2**59 + 3], [0, 1]], dtype=np.int64))
    look = looked(run, [[True, True], [False, False]])
    release = look.take(Recorder(draw=-12_345), run.data)
    assert release.hard
    assert release.noisy_count == 2**60 + 2**59 + 4 - 12_345
    run.mechanism.absorb(release)
    outcome = run.mechanism.conclude(look.query, look, release)
    assert outcome.count == release.noisy_count
    assert outcome.path is Path.MEASURED


def test_an_easy_answer_is_the_median_and_releases_no_count() -> None:
    run = Drive(universe_of(2, 2), small(1_000), SeededNoise(SEED))
    run.open_counts(np.array([[10**15, 10**15], [10**15 + 7, 10**15]], dtype=np.int64))
    look = looked(run, [[True, True], [False, False]])
    release = look.take(Recorder(draw=5), run.data)
    assert not release.hard
    assert release.noisy_count == 0
    outcome = run.mechanism.conclude(look.query, look, release)
    assert outcome.count == round(look.easy_share * outcome.n)
    assert outcome.value == pytest.approx(0.5)
    assert outcome.path is Path.GATED


def test_an_answer_is_clipped_to_what_a_count_can_be_but_the_release_is_not() -> None:
    run = Drive(universe_of(2, 2), small(1_000), SeededNoise(SEED))
    run.open_counts(np.array([[0, 0], [0, 10**15]], dtype=np.int64))
    look = looked(run, [[True, True], [False, False]])
    release = look.take(Recorder(draw=-9), run.data)
    assert release.noisy_count == -9
    outcome = run.mechanism.conclude(look.query, look, release)
    assert outcome.count == 0


@pytest.mark.parametrize(
    ("n_looks", "factor"), rest_is_slow([(800, 1.25), (4_000, 1.1)], first=1, unpack=True)
)
def test_the_noise_of_a_hard_answer_has_its_scale_and_not_another(
    n_looks: int, factor: float
) -> None:
    """By the sum of magnitudes; false alarm 1e-6."""
    run = Drive(universe_of(2, 2), small(1), SeededNoise(1))
    run.open_counts(np.array([[10**15, 10**15], [0, 0]], dtype=np.int64))
    look, noise = looked(run, [[True, True], [False, False]]), SeededNoise(2)
    releases = [look.take(noise, run.data) for _ in range(n_looks)]
    assert all(release.hard for release in releases)
    total = sum(abs(release.noisy_count - 2 * 10**15) for release in releases)

    def p_value(scale: float) -> float:
        law = stats.gamma(len(releases), scale=scale)
        return 2.0 * min(float(law.cdf(total)), float(law.sf(total)))

    assert p_value(look.inverse_privacy) > 1e-6
    assert p_value(factor * look.inverse_privacy) < 1e-6
    assert p_value(look.inverse_privacy / factor) < 1e-6


class Quantiles(Recorder):
    """In place of draws the quantiles of their law, each once: an average over them is exact."""

    def __init__(self, n_noise: int) -> None:
        super().__init__()
        self.levels = (np.arange(n_noise) + 0.5) / n_noise
        self.index = 0

    def laplace(self, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
        level = self.levels[self.index]
        return np.full(size, round(stats.laplace.ppf(level, scale=float(scale))), dtype=np.int64)

    def geometric_half(self, limit: int) -> int:
        return self._index


def test_the_gate_opens_as_often_as_its_law_says_and_not_with_noise_10_percent_off() -> None:
    """A query whose easiness lies a noise scale above the lowest threshold, over all quantiles of noise."""
    cells = universe_of(2, 2)
    memory = small(10**4)
    n_rows = memory.rows_to_open
    run = Drive(cells, memory, SeededNoise(1))
    # The prediction is 1/2: at a distance of eps ln(4/3) the easiness is 3/4.
    inside = round((0.5 + 0.1 * math.log(4 / 3)) * n_rows)
    run.open_counts(np.array([[inside, 0], [0, n_rows - inside]], dtype=np.int64))
    look = looked(run, [[True, True], [False, False]])
    gate = look.gate
    per_row = (
        gate.units(look.easiness(inside - 10**4)) - gate.units(look.easiness(inside))
    ) / 10**4
    inside -= round((gate.base + gate.scale - gate.units(look.easiness(inside))) / per_row)
    data = Blocks(cells)
    data.append(block_of(cells, np.array([[inside, 0], [0, n_rows - inside]], dtype=np.int64)))
    above = (gate.units(look.easiness(inside)) - gate.base) / gate.scale
    assert above == pytest.approx(1.0, abs=0.05)

    noise, n_hard = Quantiles(1_000), 0
    for noise.index in range(1_000):
        n_hard += look.take(noise, data).hard
    for scale, agrees in ((1.0, True), (1.1, False), (1 / 1.1, False)):
        law = math.exp(-above / scale) / 2.0
        assert (abs(n_hard / 1_000 - law) < 0.002) == agrees
    noise._index = 1  # the next threshold is a step, many noise scales, higher
    for noise.index in range(0, 1_000, 100):
        assert look.take(noise, data).hard


# ---------------------------------------------------------------- crashes and restarts


def test_a_lost_look_counts_as_a_hard_query() -> None:
    memory = small()
    run = opened(memory)
    assert memory.constants.phases[0].hard_limit == 27
    for lost in range(27):
        assert (memory.asked, memory.hard) == (lost, lost)
        run.lose(LinearQuery(EVERYTHING, range(1)))
    outcome = run.ask(LinearQuery(EVERYTHING, range(1)))
    assert outcome.code is RefusalCode.HARD_QUERIES_EXHAUSTED


def test_a_lost_phase_look_keeps_its_charge_and_costs_no_query() -> None:
    memory = small()
    (look,) = memory.open_phase(2**55)
    memory.charged(look.charges)
    memory.lost(json.loads(json.dumps(look.description)))
    assert (memory.asked, memory.hard) == (0, 0)
    assert isinstance(memory.answer(LinearQuery(EVERYTHING, range(1))), QueryLook)


def story(noise: NoiseSource, memory: Memory, seed: int) -> Drive:
    """Three phases of random queries over random windows, some of them lost."""
    rng, cells = np.random.default_rng(seed), universe_of(2, 2)
    run = Drive(cells, memory, noise)
    for j in range(1, 4):
        run.open_counts(random_counts(rng, cells, 2**57))
        for _ in range(12):
            start = int(rng.integers(j))
            query = random_query(rng, cells, range(start, int(rng.integers(start + 1, j + 1))))
            if rng.random() < 0.15:
                run.lose(query)
            else:
                assert isinstance(run.ask(query), Answered)
    return run


def test_releases_out_of_order_are_refused() -> None:
    run = story(SeededNoise(4), small(10**6), 5)
    again = small(10**6)
    queries = [entry for entry in run.transcript[2:] if isinstance(entry, bytes)]
    first = run.transcript[0]
    assert isinstance(first, int)
    again.open_phase(first)
    with pytest.raises(CorruptState, match="belongs"):
        again.absorb(again.release_from_bytes(queries[1]))


# ---------------------------------------------------------------- what decides


def test_decisions_follow_from_published_values_alone() -> None:
    """Other rows, the same releases: looks, refusals, easy answers and the empty set are the same."""
    first = story(SeededNoise(4), small(10**6), 5)
    other = first.replayed(small(10**6))
    rng = np.random.default_rng(8)
    elsewhere = Drive(first.universe, other, SeededNoise(9))
    elsewhere.data = Blocks(first.universe)
    for n_rows in first.data.sizes:
        elsewhere.data.append(block_of(first.universe, random_counts(rng, first.universe, n_rows)))
    for _ in range(20):
        query = random_query(rng, first.universe, range(3))
        here, there = first.mechanism.answer(query), other.answer(query)
        assert isinstance(here, QueryLook)
        assert isinstance(there, QueryLook)
        assert (here.description, here.easy_share) == (there.description, there.easy_share)
        # Only the release carries what the rows said; folding the same one keeps the two alike.
        release = here.take(first.noise, first.data)
        for memory, look in ((first.mechanism, here), (other, there)):
            memory.absorb(release)
            memory.conclude(query, look, release)


def test_no_repr_tells_a_count() -> None:
    run = Drive(universe_of(2, 2), small(1_000), SeededNoise(1))
    secret = 123_456_789_012_345
    run.open_counts(np.array([[secret, 10**15], [3_456, 10**15]], dtype=np.int64))
    look = looked(run, [[True, False], [False, False]])
    release = look.take(SeededNoise(2), run.data)
    run.mechanism.absorb(release)
    assert release.hard
    for item in (run.mechanism, look, release):
        assert str(secret) not in repr(item)
