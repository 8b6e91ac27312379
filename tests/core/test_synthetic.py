"""Synthetic rows: from every representation, and how far off they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_dp.core.memory import Memory
from stream_dp.core.noise import NoiseSource
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.phased import Representation
from stream_dp.core.sequential import Sequential
from stream_dp.core.synthetic import synthetic, whole_rows
from stream_dp.core.universe import Universe

MakeNoise = Callable[[int], NoiseSource]


def memory(cells: Universe, representation: Representation, **settings: Any) -> Memory:
    return Memory(
        cells,
        Privacy(1.0, 1e-6),
        Accuracy(0.5 if representation == "exhaustive" else 0.1, 0.05),
        queries_per_phase=100,
        phases=2,
        representation=representation,
        **settings,
    )


@pytest.mark.parametrize("representation", ["exhaustive", "entropic", "polytope"])
def test_the_rows_are_as_close_to_hard_answers_as_promised(
    representation: Representation,
    make_universe: Callable[..., Universe],
    make_seeded_noise: MakeNoise,
    drive: Any,
) -> None:
    cells = make_universe(2, 2)
    rows = 9 if representation == "exhaustive" else None
    mechanism = memory(cells, representation, hypothesis_rows=rows)
    run = drive(cells, mechanism, make_seeded_noise(1))
    for shares in ([8, 0, 1, 0], [7, 1, 1, 0]):  # ninths, as nine rows have them
        run.open(shares, 10**17)
        for chosen in ([1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 1, 1]):
            run.ask(run.question(chosen))
    window, n_rows = range(2), 10**9
    found = synthetic(mechanism, window, n_rows, np.random.default_rng(1))
    assert found.counts.sum() == n_rows
    assert found.counts.dtype == np.int64
    assert found.rounding < 1e-8
    hard = [(c, share) for c, about, share in mechanism.hard_answers if about == window]
    assert found.hard_queries == len(hard)
    for chosen, share in hard:
        off = abs(float(found.counts[chosen].sum()) / n_rows - float(share))
        assert off <= found.worst
        assert abs(found.counts[chosen].sum() / n_rows - run.truth(run.question(chosen))) <= (
            found.proved_error + found.rounding
        )
    assert found.worst <= found.proved_error
    # The first phase alone is another window, with answers of its own.
    assert synthetic(mechanism, range(1), 100, np.random.default_rng(1)).hard_queries > 0


def test_rows_of_a_sequential_phase_follow_its_own_answers(
    make_universe: Callable[..., Universe], make_seeded_noise: MakeNoise, drive: Any
) -> None:
    cells = make_universe(2, 2)
    mechanism = Sequential(
        cells, Privacy(1.0, 1e-9), Accuracy(0.1, 0.05), queries_per_phase=20, phases=2
    )
    run = drive(cells, mechanism, make_seeded_noise(1))
    with pytest.raises(ValueError, match="window"):
        synthetic(mechanism, range(1), 10, np.random.default_rng(1))
    for shares in ([1, 0, 0, 0], [0, 0, 0, 1]):
        run.open(shares, 10**18)
        for cell in np.eye(4):
            run.ask(run.question(cell))
    found = synthetic(mechanism, range(2), 10_000, np.random.default_rng(1))
    assert found.hard_queries == 3 < len(mechanism.hard_answers)
    assert found.counts[[0, 3]] == pytest.approx([5_000, 5_000], abs=0.03 * 10_000)
    with pytest.raises(ValueError, match="window"):
        synthetic(mechanism, range(1), 10, np.random.default_rng(1))
    with pytest.raises(ValueError, match="rows"):
        synthetic(mechanism, range(2), 0, np.random.default_rng(1))


def test_without_answers_the_rows_are_uniform_and_nothing_is_promised(
    make_universe: Callable[..., Universe], make_seeded_noise: MakeNoise, drive: Any
) -> None:
    cells = make_universe(2, 2)
    run = drive(cells, memory(cells, "entropic"), make_seeded_noise(1))
    run.open([1, 0, 0, 0], 10**17)
    found = synthetic(run.mechanism, range(1), 400, np.random.default_rng(1))
    assert found.counts.tolist() == [100] * 4
    assert (found.hard_queries, found.worst, found.rounding) == (0, 0.0, 0.0)


def test_rounding_is_unbiased_and_within_its_bound() -> None:
    """2,000 roundings of 30 cells to 100 rows; a bound at 1e-6 that no one share passes."""
    rng = np.random.default_rng(2)
    shares = rng.dirichlet(np.ones(30))
    chosen = rng.random(30) < 0.5
    found = []
    for _ in range(2_000):
        counts, left = whole_rows(shares, 100, rng)
        assert counts.sum() == 100
        assert np.all(np.abs(counts - 100 * shares) < left + 1)
        found.append(counts[chosen].sum() / 100)
    bound = math.sqrt(left * math.log(2 / 1e-6) / 2) / 100
    assert np.max(np.abs(np.array(found) - shares[chosen].sum())) <= bound
    assert np.mean(found) == pytest.approx(shares[chosen].sum(), abs=bound / 10)
    assert left < 30
