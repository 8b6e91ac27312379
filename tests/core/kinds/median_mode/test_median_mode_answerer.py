"""Medians and modes of windows: the exact cell or no answer, a look for each new query.

Statistical tests have seeded noise and fail by chance with probability at most 1e-6.
"""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.kinds.kind_answerer import KindLook
from stream_dp.core.kinds.median_mode.stable_answerer import (
    MOST_DEALT,
    MOST_VOTES,
    Medians,
    Modes,
    StableRelease,
    _Stable,
)
from stream_dp.core.outcome import Found, Path, RefusalCode, Refused
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.kinds.conftest import beside
from tests.noise import QuickNoise

ALARM = 1e-6
UNIVERSE = Universe(
    (
        Number("age", (18, 30, 45)),
        Category("city", ("Bonn", "Graz", "Lyon"), other=False),
        Boolean("smoker", missing=True),
        Number("income", (100, 200), missing=True),
    )
)
AGE, CITY, SMOKER, INCOME = range(4)


def rows(ages: list[int], cities: str = "") -> dict[str, list[Any]]:
    """One row an age; cities by their first letters, repeated."""
    names = {"B": "Bonn", "G": "Graz", "L": "Lyon"}
    n = len(ages)
    return {
        "age": ages,
        "city": [names[letter] for letter in (cities or "B") * n][:n],
        "smoker": [None] * n,
        "income": [None] * n,
    }


CLEAR = rows([10] * 100 + [25] * 300 + [60] * 100, "GGGB")
"""The median is in the second bin by 150 rows, Graz the mode by 250."""


@pytest.mark.parametrize(
    ("answerer", "kind", "attribute", "code", "settings"),
    [
        (Medians, "median", AGE, 1, {}),
        (Modes, "mode", CITY, 1, {}),
        (Modes, "mode", SMOKER, 2, {}),
        (Modes, "mode", SMOKER, 2, {"groups": 300}),
    ],
)
def test_what_is_stable_is_named_for_one_look_at_each_block_and_repeated_for_nothing(
    answerer: type[_Stable], kind: str, attribute: int, code: int, settings: Any
) -> None:
    world = beside(answerer, UNIVERSE, **settings)
    for _ in range(3):
        world.open(CLEAR)
    first = world.ask(kind, attribute, last=2)
    low, high = (0.0, 1.0) if kind == "median" else (None, None)
    assert first == Found(attribute, code, 1000, low, high, Path.MEASURED)
    assert world.rho == {1: pytest.approx(0.1 * UNITS), 2: pytest.approx(0.1 * UNITS)}
    assert world.delta == {1: pytest.approx(0.1 * UNITS), 2: pytest.approx(0.1 * UNITS)}
    for _ in range(2):
        again = world.ask(kind, attribute, last=2)
        assert (again.code, again.path) == (code, Path.REPEAT)
        world.restart()
    assert world.ask(kind, attribute).path is Path.MEASURED
    assert world.rho == {0: world.rho[0], 1: 2 * world.rho[0], 2: 2 * world.rho[0]}


@pytest.mark.parametrize(
    ("answerer", "kind", "attribute"), [(Medians, "median", AGE), (Modes, "mode", CITY)]
)
def test_what_a_row_could_change_is_not_named_and_no_answer_is_an_answer_too(
    answerer: type[_Stable], kind: str, attribute: int
) -> None:
    world = beside(answerer, UNIVERSE)
    world.open(rows([10] * 100 + [25] * 100, "BG"))
    first = world.ask(kind, attribute)
    assert first == Found(attribute, None, 200, None, None, Path.MEASURED)
    spent = dict(world.rho)
    world.restart()
    assert world.ask(kind, attribute) == Found(attribute, None, 200, None, None, Path.REPEAT)
    assert world.rho == spent


def test_a_cell_is_named_as_often_as_the_plan_says_and_noise_a_tenth_off_is_noticed() -> None:
    """60 rows must be replaced to move the median."""
    world = beside(Medians, UNIVERSE)
    world.open(rows([10] * 68 + [25] * 187))
    look = world.answerer.answer(world.asked("median", AGE))
    (counts,) = world.data.marginal((AGE,), range(1))
    n_looks, expected = 16_000, look.plan.release_probability(60)
    for factor, right in ((1.0, True), (0.9, False), (1.1, False)):
        noise = QuickNoise(2, factor)
        codes = [look.test(counts, noise) for _ in range(n_looks)]
        assert set(codes) == {None, 1}
        chance = stats.binomtest(codes.count(1), n_looks, expected).pvalue
        assert (chance > ALARM) == right, chance


def test_a_lost_look_stays_paid_and_the_query_is_a_new_look() -> None:
    world = beside(Medians, UNIVERSE)
    world.open(CLEAR)
    world.lose("median", AGE)
    world.restart()
    assert world.ask("median", AGE).path is Path.MEASURED
    assert world.rho[0] == pytest.approx(0.2 * UNITS)


@pytest.mark.parametrize(
    ("kind", "attribute", "words"),
    [
        ("median", CITY, "a category and its values have no order"),
        ("median", SMOKER, "ask median of a number"),
        ("median", INCOME, "ask quantile with the rank 0.5"),
    ],
)
def test_a_median_is_refused_where_ranks_are_not_public(
    kind: str, attribute: int, words: str
) -> None:
    world = beside(Medians, UNIVERSE)
    world.open(CLEAR)
    refused = world.ask(kind, attribute)
    assert (refused.code, words in refused.message) == (RefusalCode.INVALID_QUERY, True)


@pytest.mark.parametrize(
    ("answerer", "kind", "settings", "needed"),
    [
        (Medians, "median", {}, 135),
        (Modes, "mode", {}, 135),
        (Modes, "mode", {"groups": 150}, 150),
    ],
)
def test_a_window_in_which_nothing_could_be_named_is_refused_with_what_it_needs(
    answerer: type[_Stable], kind: str, settings: Any, needed: int
) -> None:
    world = beside(answerer, UNIVERSE, **settings)
    world.open(rows([25] * (needed - 1)))
    refused = world.ask(kind, AGE)
    assert refused.code is RefusalCode.WINDOW_TOO_SMALL
    assert f"at least {needed} rows" in refused.message
    world.open(rows([25]))
    look = world.answerer.answer(world.asked(kind, AGE))
    assert isinstance(look, KindLook)
    assert look.plan.release_probability(look.plan.threshold + 1) > 0.5  # type: ignore[attr-defined]


def test_more_rows_than_are_dealt_are_refused_and_vote_themselves() -> None:
    for groups, refused in ((1000, True), (None, False)):
        world = beside(Modes, UNIVERSE, groups=groups)
        world.data.append(SimpleNamespace(n_rows=MOST_DEALT + 1))
        world.answerer.open_phase(MOST_DEALT + 1)
        step = world.answerer.answer(world.asked("mode", CITY))
        assert isinstance(step, Refused) == refused
        if isinstance(step, Refused):
            assert "at most 2,000,000 rows" in step.message


@pytest.mark.parametrize("groups", [134, MOST_DEALT + 1])
def test_groups_that_could_name_nothing_are_refused_with_the_definition(groups: int) -> None:
    with pytest.raises(InvalidDefinition, match="at least 135"):
        beside(Modes, UNIVERSE, groups=groups)


def test_bytes_have_one_length_and_others_are_corrupt() -> None:
    answerer = beside(Medians, UNIVERSE).answerer
    for release in (StableRelease(b"k" * 16, AGE, 3), StableRelease(b"k" * 16, AGE, None)):
        data = release.to_bytes()
        assert len(data) == 23
        assert answerer.release_from_bytes(data) == release
    for bad in (
        b"",
        b"\x02" + data[1:],
        data[:-1],
        data + b"\0",
        StableRelease(b"k" * 16, AGE, 4).to_bytes(),
        StableRelease(b"k" * 16, 4, 0).to_bytes(),
    ):
        with pytest.raises(CorruptState):
            answerer.release_from_bytes(bad)


def test_groups_that_would_need_too_much_memory_are_refused_before_anything_is_paid() -> None:
    many = Universe((Number("id", tuple(range(9_999))), Boolean("smoker")))
    groups = MOST_VOTES // 10_000
    world = beside(Modes, many, groups=groups + 1)
    world.open([{"id": 3, "smoker": True, "count": 10_000}])
    assert world.ask("mode", 0).code is RefusalCode.INVALID_QUERY
    assert world.rho == {}
    assert world.ask("mode", 1).code == 1
    fewer = beside(Modes, many, groups=groups)
    fewer.open([{"id": 3, "smoker": True, "count": 10_000}])
    assert fewer.ask("mode", 0).code == 4


def test_a_window_of_many_phases_is_counted_in_the_memory_of_one() -> None:
    many = Universe((Number("id", tuple(range(39_999))),))
    world = beside(Modes, many)
    for number in range(40):
        world.open([{"id": 3 + number % 2, "count": 1_000}, {"id": 4, "count": 1_000}])
    tracemalloc.start()
    try:
        assert world.ask("mode", 0).code == 5
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 8 * 40_000
