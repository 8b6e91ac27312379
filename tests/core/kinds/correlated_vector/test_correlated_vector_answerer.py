"""Responses to a private bit: drawn once a block, free ever after.

Statistical tests have seeded noise and fail by chance with probability at most 1e-6.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.kinds.correlated_vector.vector_answerer import (
    MOST_RESPONSES,
    CorrelatedVectors,
    ResponsesRelease,
)
from stream_dp.core.outcome import Path, RefusalCode, Responses
from stream_dp.core.rows.attributes import Boolean, Category
from stream_dp.core.rows.blocks import MAX_ORDERED
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.kinds.conftest import beside

ALARM = 1e-6
UNIVERSE = Universe(
    (Category("city", ("Bonn", "Graz"), other=False), Boolean("smoker", missing=True))
)
CITY, SMOKER = range(2)

Signs = npt.NDArray[np.int64]


def rows(bits: str) -> dict[str, list[Any]]:
    """One row a letter: true, false or missing."""
    values = {"t": True, "f": False, "m": None}
    return {"city": ["Bonn"] * len(bits), "smoker": [values[letter] for letter in bits]}


def signs(outcome: Responses) -> Signs:
    packed = np.frombuffer(outcome.bits, dtype=np.uint8)
    return 2 * np.unpackbits(packed, count=outcome.n).astype(np.int64) - 1


@pytest.fixture
def smokers() -> Callable[..., Any]:
    """``smokers(share=0.3, factor=1.0)``."""

    def make(**settings: Any) -> Any:
        return beside(
            CorrelatedVectors, UNIVERSE, **{"share": 0.3, "attribute": "smoker", **settings}
        )

    return make


def test_rows_respond_once_when_their_phase_opens_and_queries_are_free(
    smokers: Callable[..., Any],
) -> None:
    world = smokers()
    for bits in ("tfm" * 5, "t" * 9, "f" * 24):
        world.open(rows(bits))
    assert world.rho == {block: pytest.approx(0.3 * UNITS) for block in range(3)}
    whole = world.ask("correlated_vector", SMOKER)
    latest = world.ask("correlated_vector", SMOKER, last=2)
    assert (whole.n, latest.n, whole.path) == (48, 33, Path.CERTIFIED)
    assert signs(latest).tolist() == signs(whole)[15:].tolist()
    spent = dict(world.rho)
    world.restart()
    assert world.ask("correlated_vector", SMOKER) == whole
    assert world.rho == spent
    assert not any(world.delta.values())


def test_responses_agree_as_often_as_stated_and_stand_in_order_of_arrival(
    smokers: Callable[..., Any],
) -> None:
    """At an epsilon of 2 a response a tenth less faithful, or told backwards, is noticed."""
    bits = ("t" * 500 + "m" * 250 + "f" * 250) * 40
    truth = np.where(np.array(list(bits)) == "t", 1, -1)
    world = smokers(share=1.0)
    world.open(rows(bits))
    outcome = world.ask("correlated_vector", SMOKER)
    assert outcome.agreement == pytest.approx(0.36, abs=0.01)

    def chance(y: Signs, agreement: float) -> float:
        kept = int(np.sum(y == truth))
        return float(stats.binomtest(kept, len(truth), (1 + agreement) / 2).pvalue)

    y = signs(outcome)
    assert chance(y, outcome.agreement) > ALARM
    assert chance(y, 0.9 * outcome.agreement) < ALARM
    assert chance(y[::-1], outcome.agreement) < ALARM


def test_the_error_bar_covers_for_a_vector_that_was_fixed_beforehand(
    smokers: Callable[..., Any],
) -> None:
    """Of 1000 vectors; half as wide it would not."""
    rng = np.random.default_rng(5)
    truth = rng.choice([-1, 1], 4000)
    vectors = rng.choice([-1, 1], (1000, 4000))
    world = smokers(share=1.0)
    world.open(rows("".join("t" if x > 0 else "f" for x in truth)))
    outcome = world.ask("correlated_vector", SMOKER)
    assert outcome.confidence == 0.95
    estimates = vectors @ signs(outcome) / outcome.n / outcome.agreement
    errors = np.abs(estimates - vectors @ truth / outcome.n)
    wrong = int(np.sum(errors > outcome.error_bar))
    assert stats.binomtest(wrong, 1000, 0.05, alternative="greater").pvalue > ALARM
    too_narrow = int(np.sum(errors > outcome.error_bar / 2))
    assert stats.binomtest(too_narrow, 1000, 0.05, alternative="greater").pvalue < ALARM
    seen = signs(outcome) @ signs(outcome) / outcome.n / outcome.agreement
    assert abs(seen - signs(outcome) @ truth / outcome.n) > outcome.error_bar


def test_few_rows_have_responses_and_no_error_bar(smokers: Callable[..., Any]) -> None:
    world = smokers()
    world.open(rows("tf"))
    assert world.ask("correlated_vector", SMOKER).error_bar is None


def test_what_a_crash_lost_is_drawn_and_paid_again_when_the_next_phase_opens(
    smokers: Callable[..., Any],
) -> None:
    world = smokers()
    world.open(rows("tft"), lost=True)
    for _ in range(2):
        refused = world.ask("correlated_vector", SMOKER)
        assert (refused.code, refused.retriable) == (RefusalCode.RETRY_AFTER, True)
        world.restart()
    world.open(rows("ff"))
    assert world.ask("correlated_vector", SMOKER).n == 5
    assert world.rho == {0: pytest.approx(0.6 * UNITS), 1: pytest.approx(0.3 * UNITS)}


@pytest.mark.parametrize(
    ("sizes", "attribute", "code", "words"),
    [
        ((10,), CITY, RefusalCode.INVALID_QUERY, "drawn to smoker alone"),
        ((MAX_ORDERED + 1,), SMOKER, RefusalCode.INVALID_QUERY, "more than 4,194,304"),
        ((10,), SMOKER, RefusalCode.BUDGET_EXHAUSTED, "no room"),
        ((MOST_RESPONSES // 4,) * 5, SMOKER, RefusalCode.INVALID_QUERY, "at most 16,777,216"),
    ],
)
def test_what_has_no_responses_is_refused_in_words(
    smokers: Callable[..., Any],
    sizes: tuple[int, ...],
    attribute: int,
    code: RefusalCode,
    words: str,
) -> None:
    world = smokers()
    for size in sizes:
        world.data.append(SimpleNamespace(n_rows=size))
        looks = world.answerer.open_phase(size)
        assert len(looks) == (size <= MAX_ORDERED)  # and none of them can be paid
    refused = world.ask("correlated_vector", attribute)
    assert (refused.code, words in refused.message) == (code, True)


@pytest.mark.parametrize("attribute", ["city", "nobody"])
def test_a_setting_that_names_no_boolean_is_refused(
    smokers: Callable[..., Any], attribute: str
) -> None:
    with pytest.raises(InvalidDefinition, match=r"correlated_vector\.attribute"):
        smokers(attribute=attribute)


def test_bytes_have_the_length_of_the_rows_and_others_are_corrupt(
    smokers: Callable[..., Any],
) -> None:
    world = smokers()
    for bits in ("tf" * 6, "t" * 8):
        world.open(rows(bits))
    lengths = [len(entry) for entry in world.transcript if isinstance(entry, bytes)]
    assert lengths == [5 + 2, 5 + 1]
    data = world.transcript[1]
    assert world.answerer.release_from_bytes(data).to_bytes() == data
    broken = (b"", b"\x01", b"\x02" + data[1:], data[:-1], data + b"\0")
    for bad in itertools.chain(broken, [ResponsesRelease(2, data[5:]).to_bytes()]):
        with pytest.raises(CorruptState):
            world.answerer.release_from_bytes(bad)
