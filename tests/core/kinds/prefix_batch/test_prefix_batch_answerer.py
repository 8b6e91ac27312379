"""Batches of conditions: answered within their error, charged once, free again, refused in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.kinds.kind_answerer import KindTerms
from stream_dp.core.kinds.prefix_batch.batch_answerer import (
    LONGEST_S,
    Batches,
    BatchLook,
    BatchRelease,
)
from stream_dp.core.outcome import BatchAnswered, Outcome, Path, Refused
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attributes import Boolean, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState
from tests.noise import QuickNoise

UNIVERSE = Universe((Number("x", tuple(range(1, 32)), integer=True), Boolean("b")))
BUDGET = Budget.of(Privacy(1.0, 1e-9))
BELOW = tuple({"attribute": "x", "lt": edge} for edge in range(1, 32))
CROSSING = tuple({"attribute": "x", "between": [low, low + 9]} for low in range(1, 21))


def asked(
    wheres: Sequence[dict[str, Any]] = BELOW, blocks: range = range(1), attribute: int = 0
) -> KindQuery:
    predicates = tuple(compile_where(UNIVERSE, where) for where in wheres)
    return KindQuery("prefix_batch", blocks, attribute, predicates=predicates)


def answerer(
    *sizes: int, share: float = 0.5, failure: float = 1e-6, universe: Universe = UNIVERSE
) -> Batches:
    """With a block of each size."""
    batches = Batches(KindTerms(universe, BUDGET, share, failure))
    for size in sizes:
        batches.open_phase(size)
    return batches


def blocks(*sizes: int) -> Blocks:
    """Of so many rows; each block has more of the large values than the one before."""
    data = Blocks(UNIVERSE)
    for number, size in enumerate(sizes):
        rng = np.random.default_rng(number)
        values = np.minimum(31, rng.geometric(0.3 / (number + 1), size) - 1)
        columns = {"x": values.tolist(), "b": [False] * size}
        data.append(Block.seal(UNIVERSE, UNIVERSE.encode_columns(columns)))
    return data


def truth(query: KindQuery, data: Blocks) -> list[float]:
    counts = data.marginal((0,), query.window).sum(axis=0)
    shares = [np.broadcast_to(p.mask, counts.shape) @ counts for p in query.predicates]
    return [float(share) / int(counts.sum()) for share in shares]


def answered(batches: Batches, query: KindQuery, data: Blocks, noise: NoiseSource) -> BatchAnswered:
    step: Any = batches.answer(query)
    if isinstance(step, BatchLook):
        release = step.take(noise, data)
        batches.absorb(batches.release_from_bytes(release.to_bytes()))
        step = batches.conclude(query, step, release)
    assert isinstance(step, BatchAnswered), step
    return step


def off(found: BatchAnswered, query: KindQuery, data: Blocks) -> float:
    return max(abs(a - b) for a, b in zip(found.values, truth(query, data), strict=True))


@pytest.mark.parametrize(("wheres", "n"), [(BELOW, 10), (CROSSING[::4], 2)])
def test_all_answers_are_within_the_one_error(wheres: Any, n: int) -> None:
    """False alarm 1e-5; a copy that mixes up the order is off."""
    sizes = 20_000, 30_000
    data, query = blocks(*sizes), asked(wheres, range(2))
    for seed in range(n):
        found = answered(answerer(*sizes), query, data, QuickNoise(seed))
        assert off(found, query, data) <= found.error_bar < 0.4
        assert found.confidence == 1 - 1e-6
        broken = dataclasses.replace(found, values=found.values[::-1])
        assert off(broken, query, data) > found.error_bar


def test_a_batch_is_one_look_on_each_block_and_free_again() -> None:
    sizes = 20_000, 30_000
    data, query, batches = blocks(*sizes), asked(blocks=range(2)), answerer(*sizes)
    look = batches.answer(query)
    assert isinstance(look, BatchLook)
    for block, charge in enumerate(look.charges):
        assert charge.block == block
        assert UNITS // 2 - 1 <= charge.rho <= UNITS // 2 + 1
        assert charge.delta == 0
    assert look.plan.epsilon**2 / 2 <= Fraction(1, 2) * BUDGET.rho
    first = answered(batches, query, data, QuickNoise(1))
    assert first.path is Path.MEASURED
    again = batches.answer(asked(blocks=range(2)))
    assert isinstance(again, BatchAnswered)
    assert (again.values, again.path) == (first.values, Path.REPEAT)
    some = batches.answer(asked(BELOW[::-5], range(2)))
    assert isinstance(some, BatchAnswered)
    assert (some.values, some.path) == (first.values[::-5], Path.CERTIFIED)
    for other in (asked(), asked([{"attribute": "x", "between": [1, 9]}], range(2))):
        assert isinstance(batches.answer(other), BatchLook)


def test_a_restart_reads_the_same_answers_and_refuses_others() -> None:
    data, query, batches = blocks(20_000), asked(), answerer(20_000)
    look = batches.answer(query)
    assert isinstance(look, BatchLook)
    stored = look.take(QuickNoise(1), data).to_bytes()
    first = batches.conclude(query, look, batches.release_from_bytes(stored))
    restarted = answerer(20_000)
    restarted.absorb(restarted.release_from_bytes(stored))
    again = restarted.answer(query)
    assert isinstance(first, BatchAnswered)
    assert isinstance(again, BatchAnswered)
    assert (again.values, again.error_bar) == (first.values, first.error_bar)
    assert len(stored) == len(look.take(QuickNoise(2), blocks(20_000)).to_bytes())
    for bad in (b"", b"\x09" + stored[1:], stored[:-1], stored[:9], stored[:-1] + b"\xff"):
        with pytest.raises(CorruptState):
            restarted.release_from_bytes(bad)


def test_a_histogram_in_which_no_row_satisfies_a_condition_is_read_again() -> None:
    release = BatchRelease(0, range(1), 40, 0.2, {bytes([n] * 16): 0 for n in range(2)})
    again = answerer(20_000).release_from_bytes(release.to_bytes())
    assert again == release
    for rows in ({}, {bytes(16): 41}):
        with pytest.raises(CorruptState):
            answerer(20_000).release_from_bytes(dataclasses.replace(release, rows=rows).to_bytes())


def refusal(step: Outcome | object) -> str:
    assert isinstance(step, Refused)
    return f"{step.code}: {step.message}"


def test_too_few_rows_are_refused_with_the_number_that_is_enough() -> None:
    words = refusal(answerer(500).answer(asked()))
    assert words.startswith("window_too_small: window: it has 500 rows")
    enough = int(words.partition("at least ")[2].partition(" rows")[0].replace(",", ""))
    assert 500 < enough < 20_000
    assert isinstance(answerer(enough).answer(asked()), BatchLook)
    assert "window_too_small" in refusal(answerer(enough - 2).answer(asked()))


def test_what_cannot_be_drawn_in_time_is_refused() -> None:
    batches = answerer(10**9)
    assert "any two are nested or disjoint" in refusal(batches.answer(asked(CROSSING)))
    assert isinstance(batches.answer(asked(CROSSING[::4])), BatchLook)
    wide = Universe((Number("x", tuple(range(2_000))),))
    many = tuple(compile_where(wide, {"attribute": "x", "ge": edge}) for edge in range(2_000))
    for n_conditions, words in ((999, "999 conditions are too many"), (2_000, "too many")):
        query = KindQuery("prefix_batch", range(1), 0, predicates=many[:n_conditions])
        assert words in refusal(answerer(10**9, universe=wide).answer(query))
    query = KindQuery("prefix_batch", range(1), 0, predicates=many[:500])
    assert isinstance(answerer(10**9, universe=wide).answer(query), BatchLook)


def test_conditions_on_another_attribute_are_refused() -> None:
    mixed = (BELOW[0], {"all": [BELOW[1], {"attribute": "b", "eq": True}]})
    assert "wheres[1]" in refusal(answerer(20_000).answer(asked(mixed)))


def test_every_row_and_no_row_are_conditions_too() -> None:
    constants: Any = ({"all": []}, {"any": []}, {"attribute": "b", "eq": True})
    found = answered(answerer(9_000), asked(constants, attribute=1), blocks(9_000), QuickNoise(1))
    assert found.values[:2] == (1.0, 0.0)
    assert found.values[2] <= found.error_bar


def test_constants_alone_are_a_batch() -> None:
    found = answered(answerer(9_000), asked([{"all": []}]), blocks(9_000), QuickNoise(1))
    assert found.values == (1.0,)


def test_how_long_a_look_lasts_follows_from_public_sizes() -> None:
    for wheres in (BELOW, BELOW[:3], CROSSING[::4]):
        look = answerer(20_000).answer(asked(wheres))
        assert isinstance(look, BatchLook)
        assert 0.0 < look.seconds <= 2 * LONGEST_S
        assert look.description == {
            "attribute": 0,
            "window": [0, 1],
            "conditions": len(wheres),
            "hypothesis_rows": look.plan.hypothesis_rows,
            "epsilon": float(look.plan.epsilon),
            "rate": str(look.plan.rate),
        }
