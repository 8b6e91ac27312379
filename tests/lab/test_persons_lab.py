"""How many rows of persons count, and which number of them suits a data set."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.rows.attributes import Boolean, Number
from stream_dp.core.rows.person_slots import Slots, digests, ranks
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.person_counts import (
    Census,
    Counting,
    CountingChoice,
    best_rows,
    choice_of,
    chosen,
    of_unit,
)
from stream_dp.lab.synthetic_stream import synthetic_rows
from stream_dp.profiles.advice import SERVES, Name, Need, Trial, made_calibrated

UNIVERSE = Universe((Boolean("smoker"), Number("age", (20, 30, 40, 50, 60, 70, 80), integer=True)))


def keys_of(n_rows: int, seed: int = 1) -> list[object]:
    """Keys of which few are frequent, and some are none."""
    rng = np.random.default_rng(seed)
    return [None if key == 7 else int(key) for key in rng.zipf(1.6, n_rows)]


def census_of(keys: list[object], min_rows: int) -> Census:
    counting = Counting(min_rows)
    for start in range(0, len(keys), 70):
        counting.take(keys[start : start + 70])
    census = counting.census()
    assert census is not None
    return census


def sealed(keys: list[object], k: int) -> int:
    """The rows of one phase that a worker counts."""
    whose = Slots(digests(bytes(32), keys), ranks(bytes(32), "batch", len(keys)))
    return int(whose.counted(k).sum())


@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000])
def test_as_many_rows_count_as_a_worker_counts_in_the_phases_of_the_file(k: int) -> None:
    keys = keys_of(1_000)
    census = census_of(keys, 300)
    phases = [keys[start : start + 300] for start in (0, 300, 600)]
    assert census.counted(k) == sum(sealed(phase, k) for phase in phases)
    assert (census.n_phases, census.n_rows) == (3, 900), "the last 100 rows wait"
    assert census.n_keyless == sum(phase.count(None) for phase in phases)
    assert census.persons_a_phase * 3 == sum(len(set(phase) - {None}) for phase in phases)
    if k < 10:  # a copy that forgets where phases end
        assert sealed(keys[:900], k) < census.counted(k)


def test_rows_that_are_too_few_for_a_phase_are_one_and_none_are_no_census() -> None:
    census = census_of(["a", "a", "b", None], 10)
    assert (census.n_phases, census.n_rows, census.counted(1), census.n_keyless) == (1, 4, 2, 1)
    assert Counting(10).census() is None


def test_two_ways_to_write_a_key_are_one_person() -> None:
    assert census_of([17, 17.0, "17", " 17 "], 4).counted(1) == 1


def test_nobody_can_read_persons_in_the_repr() -> None:
    assert repr(census_of(keys_of(300), 300)) == "Census(n_phases=1, n_rows=300)"


def test_noise_never_falls_with_the_rows_a_person_and_the_surplus_always_does() -> None:
    census = census_of(keys_of(3_000), 1_000)
    shown = census.shown((3,))
    assert shown[:4] == [1, 2, 3, 4]
    for fewer, more in pairwise(shown):
        assert census.noise(fewer) <= census.noise(more)
        assert census.counted(fewer) < census.counted(more)
    assert census.noise(1) == 1.0


@pytest.mark.parametrize("noise", [0.0, 0.4, 3.0, 17.5, 1e6])
def test_the_best_number_of_rows_has_the_least_noise_and_surplus_together(noise: float) -> None:
    census = census_of(keys_of(3_000), 1_000)

    def together(k: int) -> float:
        return noise * k + (census.n_rows - census.counted(k)) / census.n_phases

    best = best_rows(census, noise)
    assert together(best) == pytest.approx(min(map(together, range(1, 256))))
    if noise == 3.0:  # a copy that takes persons of all phases for those of one
        assert together(best_rows(census, noise / census.n_phases)) > together(best)


def need(error: float) -> Need:
    return Need(UNIVERSE, Privacy(1.0, 1e-9), Accuracy(error, 0.01), 20_000, 4, 80)


EVERYONE: list[object] = [str(i % 1_000) for i in range(20_000)]
"""20 rows of each of 1,000 persons."""


def test_where_the_accuracy_leaves_room_many_rows_of_a_person_count_and_else_one() -> None:
    census = census_of(EVERYONE, 20_000)
    sample = synthetic_rows(UNIVERSE, np.random.default_rng(3), 2_000)
    loose = choice_of(need(0.3), census, sample, 1)
    assert loose.unit.rows_per_phase > 1
    assert loose.answered >= SERVES
    assert loose.counted == pytest.approx(loose.unit.rows_per_phase / 20)
    tight = choice_of(need(0.005), census, sample, 1)
    assert tight.unit.rows_per_phase == 1
    assert tight.answered < SERVES


def test_of_what_answers_the_queries_most_phases_are_chosen_else_what_answers_most() -> None:
    def choice(phases: int, answered: float) -> CountingChoice:
        return CountingChoice(Unit(1, phases), 0.5, answered, Trial(100, 100, 0, 50, 0.1, 0.5))

    found = [choice(1, 1.0), choice(4, 0.995), choice(12, 0.9)]
    assert chosen(found).unit.phases == 4
    assert chosen([choice(1, 0.8), choice(4, 0.4)]).unit.phases == 1


def test_a_need_with_another_unit_has_its_prices_and_its_rows_that_count() -> None:
    asked = of_unit(need(0.1), census_of(EVERYONE, 20_000), Unit(5, 3))
    assert (asked.n_rows, asked.counted) == (20_000, 5_000)
    rows = made_calibrated(need(0.1), Name.CALIBRATED).state.promise.budget.rho
    assert made_calibrated(asked, Name.CALIBRATED).state.promise.budget.rho == rows / 75
    assert asked.with_rows(40_000).counted == 10_000
