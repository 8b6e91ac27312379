"""What was asked lately is remembered within bounds, and what is remembered does not depend on the order."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

import numpy as np
import pytest

from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Rank
from stream_dp.core.residual.base_release.demand import MOST, PHASES, Asked, Demand, is_name
from stream_dp.core.residual.belief.levels import axes_of

AXES = axes_of((50, 40, 3))


def query(i: int, window: range = range(1), **options: object) -> LinearQuery:
    """One of 2,000 conjunctions."""
    first, second = (np.arange(n) == i // step % n for n, step in ((50, 1), (40, 50)))
    return LinearQuery(Predicate.conjunction({0: first, 1: second}), window, **options)  # type: ignore[arg-type]


def note(demand: Demand, numbers: Iterable[int], phase: int, window: range = range(1)) -> None:
    for i in numbers:
        demand.note(query(i, window), phase, 1.0)


def told(demand: Demand, phase: int) -> list[int]:
    return [asked.digest for asked in demand.queries(phase)]


def restored(stored: dict[bytes, bytes]) -> Demand:
    other = Demand(AXES)
    other.recall(stored)
    return other


def test_a_quantile_counts_as_the_table_of_its_bins_with_what_its_ranks_need() -> None:
    """Rows up to half of four bins, less half of all rows: 1/4 of each cell, of a table by two groups."""
    query = LinearQuery(EVERYTHING, range(1), (1,), rank=Rank(0, 0.5, (0, 1, 2, 3)))
    axes = axes_of((4, 2), total_known=False)
    found = Asked.of(query, 1, 1.0, axes)
    assert (found.attributes, found.table, found.cells) == ((0, 1), True, (b"", b""))
    # By hand: no noise has more than 4 * (1/2)^2 in one group. A row that becomes blank counts half.
    assert found.price == pytest.approx(0.5 * 4 * 0.25)
    assert Asked.from_bytes(found.to_bytes(1), axes) == (1, found)


@pytest.mark.parametrize("n", [5, MOST, 900])
def test_the_order_of_queries_does_not_matter(n: int) -> None:
    numbers, found = list(range(n)), []
    for seed in range(3):
        random.Random(seed).shuffle(numbers)
        demand = Demand(AXES)
        note(demand, [*numbers, *numbers[: n // 2]], 1)
        found.append((told(demand, 1), demand.total(1)))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == min(n, MOST)


def test_how_many_were_asked_is_known_exactly_up_to_the_bound_and_about_beyond_it() -> None:
    demand = Demand(AXES)
    note(demand, range(MOST - 1), 1)
    assert demand.total(1) == MOST - 1
    note(demand, range(1500), 1)
    # The digests are what they are: this is no draw, and 1,500 is within four deviations of the estimate.
    assert abs(demand.total(1) / 1500 - 1.0) < 4.0 / (MOST - 2) ** 0.5


def test_what_is_stored_is_bounded_and_gives_the_same_again() -> None:
    demand, stored, sizes = Demand(AXES), dict[bytes, bytes](), []
    for phase in range(1, PHASES + 20):
        first = phase % 3
        note(demand, range(first, first + (700 if phase % 2 else 90), 2), phase, range(phase))
        stored |= demand.remembered()
        sizes.append(len(stored))
        other = restored(stored)
        assert (other.last, other.before) == (demand.last, demand.before)
        for some in (demand.last, demand.before):
            assert told(other, some) == told(demand, some)
            assert other.queries(some) == demand.queries(some)
            for asked in demand.queries(some)[::50]:
                same = asked.digest, phase, 12
                assert other.rarity(*same) == demand.rarity(*same)
    assert all(map(is_name, stored))
    assert max(sizes) <= 2 * MOST + PHASES


def test_it_goes_on_after_a_restart_as_if_there_had_been_none() -> None:
    demand, stored = Demand(AXES), dict[bytes, bytes]()
    for phase, part in ((1, range(400)), (1, range(300, 500)), (3, range(450)), (4, range(10))):
        other = restored(stored)
        for one in (demand, other):
            note(one, part, phase, range(phase))
        assert told(other, phase) == told(demand, phase)
        stored |= demand.remembered()
        stored |= other.remembered()
        assert told(restored(stored), phase) == told(demand, phase)


def test_a_query_that_comes_again_in_each_phase_is_not_rare_and_a_new_one_is() -> None:
    demand = Demand(AXES)
    for phase in range(1, 9):
        note(demand, (0, phase), phase, range(phase - 1, phase))
    by_age = {demand.rarity(asked.digest, 8, 8) for asked in demand.queries(8)}
    assert by_age == {(1.0, 8), (8.0, 1)}


def test_where_more_is_asked_than_is_remembered_a_tile_does_not_look_rare() -> None:
    """Of phases that may have dropped a query, nothing is said."""
    demand = Demand(AXES)
    for phase in range(1, 7):
        note(demand, range(1500 if phase in (2, 5) else 250), phase, range(phase - 1, phase))
    assert {demand.rarity(asked.digest, 6, 6)[0] for asked in demand.queries(6)} == {1.0}


def test_the_same_question_with_another_error_or_length_is_another_one() -> None:
    demand = Demand(AXES)
    for window, error in ((range(3), 1.0), (range(2, 3), 1.0), (range(2, 3), 0.5)):
        demand.note(query(0, window), 3, error)
    every, last, precise = sorted(
        demand.queries(3), key=lambda asked: (asked.phases or 9, asked.error), reverse=True
    )
    assert (every.phases, last.phases, precise.phases) == (None, 1, 1)
    assert precise.price == pytest.approx(4.0 * last.price)
    assert precise.norms == pytest.approx([4.0 * norm for norm in last.norms])


def test_what_no_table_answers_is_left_out() -> None:
    demand = Demand(AXES)
    demand.note(query(0, fresh=True), 1, 1.0)
    demand.note(LinearQuery(Predicate.conjunction({}), range(1)), 1, 1.0)
    assert demand.last == 0
    assert demand.remembered() == {}


def test_a_copy_learns_apart() -> None:
    demand = Demand(AXES)
    demand.note(query(0), 1, 1.0)
    other = copy.deepcopy(demand)
    other.note(query(1), 1, 1.0)
    assert (demand.total(1), other.total(1)) == (1.0, 2.0)
