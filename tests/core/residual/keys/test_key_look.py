"""What a look for keys publishes, and what that reveals of one row or person."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.keys.found_values import FindSettings, FoundValues
from stream_dp.core.residual.keys.key_levels import KeyLevel, least_jump
from stream_dp.core.residual.keys.key_look import KeyLook, KeyRelease
from stream_dp.core.rows.attributes import Boolean, Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.key_texts import texts_of
from stream_dp.core.rows.person_slots import Slots, digests
from stream_dp.core.rows.universe import Universe

KEY = 1
UNIVERSE = Universe((Boolean("new"), Category("key", (), spare=5, finds=True)))

SIGMA, FAILURE = Fraction(2), Fraction(1, 10_000)
JUMP = least_jump(SIGMA, FAILURE)
REACH = 30
NOISE = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / (2 * float(SIGMA) ** 2))
NOISE /= NOISE.sum()


def level(phases: int = 1) -> KeyLevel:
    return KeyLevel(phases, SIGMA, 1 + JUMP, FAILURE, Fraction(1))


def block_of(
    keys: Sequence[object], persons: Sequence[object] | None = None, most: int = 1
) -> Block:
    """A block of rows that say these keys, and of at most so many of each person."""
    none = np.empty(0, np.uint8)
    rows = Rows((np.zeros(len(keys), np.uint8), none), texts={KEY: texts_of(keys, 16)})
    if persons is None:
        return Block.seal(UNIVERSE, rows)
    whose = Slots(digests(b"s" * 32, persons), np.arange(len(keys), dtype=np.uint64))
    owned = Rows(rows.codes, None, {}, whose, rows.texts)
    return Block.seal(UNIVERSE, owned, counted=whose.counted(most))


def look_at(block: int, rows: Sequence[int], *levels: KeyLevel, named: Sequence[str] = ()) -> Any:
    windows = tuple(one.window(block) or range(0) for one in levels)
    return KeyLook(KEY, block, levels, windows, tuple(rows), frozenset(named), ())


class Given:
    """Noise that gives the same draw again and again, or draws in order."""

    def __init__(self, *draws: int) -> None:
        self.draws, self.sizes = itertools.cycle(draws), list[int]()

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        self.sizes.append(size)
        return np.fromiter(itertools.islice(self.draws, size), np.int64, size)


def said(release: KeyRelease) -> dict[str, int]:
    (window,) = release.windows
    return {text.decode(): count for text, count in window.counts}


# ---------------------------------------------------------------- what is counted


def test_rows_are_counted_and_persons_are_counted_once() -> None:
    keys = ["a", "a", "b", 5, "5", None, "", "x" * 17, True, [1]]
    assert Blocks(UNIVERSE, [block_of(keys)]).keys(KEY, range(1)) == {
        b"a": 2,
        b"b": 1,
        b"5": 2,
        b"true": 1,
    }
    persons = ["p", "p", "p", "q", "r", "p", "p", "p", "p", "p"]
    owned = Blocks(UNIVERSE, [block_of(keys, persons, most=3), block_of(["a", "b"], ["p", "r"])])
    assert owned.keys(KEY, range(1)) == {b"a": 1, b"b": 1, b"5": 2}
    assert owned.keys(KEY, range(2)) == {b"a": 1, b"b": 2, b"5": 2}


def test_a_look_says_names_and_keys_that_reach_the_threshold() -> None:
    keys = ["many"] * 50 + ["some"] * 9 + ["few"] * 8 + ["named"]
    data = Blocks(UNIVERSE, [block_of(keys)])
    look = look_at(0, [len(keys)], level(), named=["named", "gone"])
    assert JUMP == 8
    assert said(look.take(Given(0), data)) == {"many": 50, "some": 9, "named": 1, "gone": 0}
    assert said(look.take(Given(1), data)) == {
        "many": 51, "some": 10, "few": 9, "named": 2, "gone": 1,
    }  # fmt: skip
    release = look.take(PooledNoise(), data)
    assert KeyRelease.from_bytes(release.to_bytes()) == release


def test_windows_end_with_their_last_block() -> None:
    blocks = [block_of(["a"] * 20), block_of(["a"] * 20 + ["b"] * 3)]
    data = Blocks(UNIVERSE, blocks)
    first = look_at(0, [20, 0], level(), level(2)).take(Given(0), data)
    assert [one.window for one in first.windows] == [range(1)]
    both = look_at(1, [23, 43], level(), level(2))
    assert [*both.reads] == [0, 1]
    windows = both.take(Given(0), data).windows
    assert [(one.window, dict(one.counts)) for one in windows] == [
        (range(1, 2), {b"a": 20}),
        (range(2), {b"a": 40}),
    ]


def test_the_number_of_draws_follows_from_public_numbers() -> None:
    for keys in (["a"] * 30, [f"k{n}" for n in range(30)]):
        noise = Given(0)
        look_at(0, [30], level(), named=["a", "z"]).take(noise, Blocks(UNIVERSE, [block_of(keys)]))
        assert noise.sizes == [32]


def test_each_key_has_a_draw_of_its_own() -> None:
    keys = [key for key in "abcd" for _ in range(20)]
    noise = Given(*range(-2, 1_000))
    look = look_at(0, [len(keys)], level(), named=["c"])
    found = said(look.take(noise, Blocks(UNIVERSE, [block_of(keys)])))
    assert found == {"c": 18, "a": 19, "b": 20, "d": 21}


def test_values_take_cells_by_their_counts() -> None:
    keys = ["b"] * 30 + ["a"] * 30 + ["c"] * 40 + ["d"] * 20 + ["listed", "?", "old"]
    listed = Category(
        "key", ("listed",), spare=3, finds=True, missing=True, na=("?",), also=(("old", "listed"),)
    )
    universe = Universe((Boolean("new"), listed))
    budget = Budget.of(Privacy(1.0, 1e-9), approximate=True)
    found = FoundValues(universe, budget, {KEY: FindSettings(Fraction(1, 10), (1,))})
    data = Blocks(UNIVERSE, [block_of(keys)])
    look: Any
    (look,) = found.looks(0, lambda window: 123 * len(window), erased=0)
    assert 0.0999 * UNITS < look.charges[0].rho <= found.units <= 0.1 * UNITS + 2
    assert sum(level.failure for level in look.levels) == Fraction(1e-9 / 2)
    assert found.absorb(look.take(Given(400), data)) == ("c", "a", "b")
    assert found.attributes[KEY].values == ("listed", "c", "a", "b")
    assert found.attributes[KEY].size == listed.size == 6
    assert found.since == {(KEY, "c"): 0, (KEY, "a"): 0, (KEY, "b"): 0}
    assert found.absorb(look.take(Given(400), data)) == ()
    (late,) = found.looks(1, lambda window: 123 * len(window), erased=2)
    assert (late.reads, late.rows) == ([], (0,))


def test_no_estimate_takes_in_what_a_look_has_counted() -> None:
    """Noise has helped to name a value, so its count is too large on average."""
    finds = {KEY: FindSettings(Fraction(1, 10), (1,))}
    settings = CalibratedSettings(approximate=True, base_share=0.0, finds=finds)
    mechanism = Calibrated(UNIVERSE, Privacy(1.0, 1e-9), Accuracy(0.1, 0.01), settings)
    (look,) = mechanism.open_phase(30)
    first = np.arange(UNIVERSE.shape[KEY]) == 0
    query = LinearQuery(Predicate.conjunction({KEY: first}), range(1))
    before = mechanism.state.evidence(query)
    noise: Any = Given(400)
    mechanism.absorb(look.take(noise, Blocks(UNIVERSE, [block_of(["a"] * 30)])))
    after = mechanism.state.evidence(query)
    assert mechanism.state.found is not None
    assert mechanism.state.found.values == {KEY: ("a",)}
    assert (after.values.tolist(), after.variances.tolist()) == (
        before.values.tolist(),
        before.variances.tolist(),
    )


# ---------------------------------------------------------------- what it reveals


def law_of(count: int, *, named: bool = False) -> dict[object, float]:
    """What a look says of a key that so many rows have, and how probably, by the code itself."""
    found: dict[object, float] = {}
    data = Blocks(UNIVERSE, [block_of(["k"] * count + [None])])
    look = look_at(0, [count + 1], level(), named=["k"] if named else [])
    for draw, probability in zip(range(-REACH, REACH + 1), NOISE, strict=True):
        saying = said(look.take(Given(draw), data)).get("k")
        found[saying] = found.get(saying, 0.0) + float(probability)
    return found


def both(*laws: Mapping[object, float]) -> dict[object, float]:
    """What is said of several keys, whose draws are independent."""
    return {
        tuple(what for what, _ in each): math.prod(p for _, p in each)
        for each in itertools.product(*(law.items() for law in laws))
    }


def delta(p: Mapping[object, float], q: Mapping[object, float], epsilon: float) -> float:
    """The least delta with which ``p`` and ``q`` are alike at ``epsilon``, in both directions."""
    one = sum(max(0.0, p.get(x, 0.0) - math.exp(epsilon) * q.get(x, 0.0)) for x in {*p, *q})
    other = sum(max(0.0, q.get(x, 0.0) - math.exp(epsilon) * p.get(x, 0.0)) for x in {*p, *q})
    return max(one, other)


def delta_of_rho(rho: float, epsilon: float) -> float:
    """What zCDP leaves at ``epsilon``: Canonne, Kamath, Steinke 2020, Corollary 13."""
    orders = 1 + np.exp(np.linspace(-6, 6, 4000))
    logs = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1)
    return float(np.exp((logs + orders * np.log1p(-1 / orders)).min()))


MANY = 1 + JUMP


@pytest.mark.parametrize(
    ("before", "after", "lone"),
    [
        pytest.param((1, 0), (0, 1), 1, id="a row says a key of its own, then another"),
        pytest.param((1, MANY), (0, MANY + 1), 1, id="a key of its own, then one of many"),
        pytest.param((MANY, MANY), (MANY - 1, MANY + 1), 0, id="one of many, then another"),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_a_row_that_is_replaced(
    before: tuple[int, int], after: tuple[int, int], lone: int, epsilon: float
) -> None:
    """Within ``rho = 1/sigma^2`` and a delta of the failure, by Theorem 34."""
    found = delta(both(*map(law_of, before)), both(*map(law_of, after)), epsilon)
    assert found <= lone * float(FAILURE) + delta_of_rho(float(1 / SIGMA**2), epsilon)
    assert found > 0.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_a_person_of_three_keys(epsilon: float) -> None:
    """One of their own, one of many, and one with a name, which is always said."""
    p = both(law_of(1), law_of(MANY + 2), law_of(8, named=True))
    q = both(law_of(0), law_of(MANY + 1), law_of(7, named=True))
    rho = float(3 / (2 * SIGMA**2))
    assert delta(p, q, epsilon) <= 3 * float(FAILURE) + delta_of_rho(rho, epsilon)


def test_a_key_of_one_row_is_named_about_as_seldom_as_it_must_be() -> None:
    named = 1.0 - law_of(1)[None]
    assert 0.5 * float(FAILURE) < named <= float(FAILURE)


SLOTS = (None, *itertools.product("pq", "ab"))


def histories() -> Iterator[list[Sequence[Any]]]:
    """All histories of two blocks of two slots. A slot is blank, or a person's row with a key."""
    for slots in itertools.product(SLOTS, repeat=4):
        yield [slots[:2], slots[2:]]


def evidence(history: Sequence[Sequence[Any]], most: int) -> list[dict[bytes, int]]:
    """The counts of each window of one and of two blocks."""
    blocks = [
        block_of([s and s[1] for s in slots], [s and s[0] for s in slots], most)
        for slots in history
    ]
    data = Blocks(UNIVERSE, blocks)
    return [data.keys(KEY, window) for window in (range(1), range(1, 2), range(2))]


@pytest.mark.parametrize("most", [1, 2])
def test_a_person_moves_few_counts_by_one_and_nobody_elses(most: int) -> None:
    """All histories of two persons and two keys: what the proof of Theorem 34 says of evidence."""
    compared = 0
    for history in histories():
        for person in "pq":
            rows = [[s for s in slots if s and s[0] == person] for slots in history]
            if not any(rows):
                continue
            compared += 1
            blank = [[None if s and s[0] == person else s for s in slots] for slots in history]
            counted = [min(len(own), most) for own in rows]
            mine = {key.encode() for own in rows for _, key in own}
            windows = (counted[:1], counted[1:], counted)
            for with_rows, without, most_keys in zip(
                evidence(history, most), evidence(blank, most), windows, strict=True
            ):
                moved = {
                    key: with_rows.get(key, 0) - without.get(key, 0)
                    for key in with_rows.keys() | without.keys()
                }
                changed = {key for key, by in moved.items() if by}
                assert set(moved.values()) <= {0, 1}
                assert len(changed) <= sum(most_keys)
                assert changed <= mine
    assert compared == 1_088
