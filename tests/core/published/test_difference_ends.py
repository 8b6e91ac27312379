"""A difference of two answers reaches just as far as the ends of both allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from stream_dp.core.outcome import Answered, Difference, Path, RowsThatCount, TableAnswered
from stream_dp.core.published.difference import difference_of

N = 8
SHARES = [Fraction(i, 4) for i in range(5)]
BARS = [Fraction(i, 4) for i in range(4)]
CONFIDENCE = 0.9375


def answer(share: Fraction | None, bar: Fraction | None) -> Answered:
    """An answer whose count is ``N`` times its share."""
    value, width = (None if one is None else float(one) for one in (share, bar))
    among = RowsThatCount(float(N), 0.0, 0.0, value, width)
    count = 0.0 if value is None else N * value
    return Answered(count, N, width, None, CONFIDENCE, Path.MEASURED, among=among)


def shown(one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]) -> Difference:
    (cell,) = difference_of(answer(*one), answer(*other), range(1)).cells
    return cell


def in_quadrature(one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]) -> Difference:
    """A broken copy: as if both errors were independent and normal."""
    bar = float(one[1] ** 2 + other[1] ** 2) ** 0.5
    return Difference(float(one[0] - other[0]), bar, N * float(one[0] - other[0]), N * bar)


def truths(share: Fraction, bar: Fraction) -> Iterator[Fraction]:
    """What the exact share may be, if its bar holds."""
    low, high = max(Fraction(0), share - bar), min(Fraction(1), share + bar)
    return (low + (high - low) * Fraction(i, 4) for i in range(5))


def farthest(
    make: Callable[[tuple[Fraction, Fraction], tuple[Fraction, Fraction]], Difference],
) -> Iterator[tuple[float, float, float]]:
    """The bars of all differences, with how far the exact ones may be, as shares and as parts of N rows."""
    sides = list(itertools.product(SHARES, BARS))
    for one, other in itertools.product(sides, sides):
        found = make(one, other)
        assert found.share_bar is not None
        assert found.count_bar is not None
        reach = max(
            abs(first - second - Fraction(found.share))
            for first, second in itertools.product(truths(*one), truths(*other))
        )
        assert found.count == N * found.share
        yield found.share_bar, found.count_bar / N, float(reach)


def test_the_bar_reaches_to_the_farthest_difference_and_no_farther() -> None:
    for of_share, of_count, reach in farthest(shown):
        assert of_share == of_count == reach


def test_a_copy_that_takes_the_errors_for_independent_is_noticed() -> None:
    assert any(of_share < reach for of_share, _, reach in farthest(in_quadrature))


def test_the_answer_says_how_sure_both_are_together_and_how_they_came_about() -> None:
    one, other = answer(SHARES[1], BARS[1]), answer(SHARES[2], BARS[1])
    found = difference_of(one, other, range(2, 3))
    assert found.confidence == pytest.approx(2 * CONFIDENCE - 1)
    assert (found.minus, found.n_rows, found.path) == (range(2, 3), (N, N), Path.MEASURED)
    assert found.cells[0].larger == 0.5
    unsure = TableAnswered((other, answer(None, None)), (2,), Path.UNVERIFIED)
    sure = TableAnswered((one, one), (2,), Path.CERTIFIED)
    table = difference_of(sure, unsure, range(1))
    assert table.path is Path.UNVERIFIED
    assert (table.cells[1].share_bar, table.cells[1].count_bar) == (None, None)
