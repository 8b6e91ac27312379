"""A person with many rows: docs/proofs, Theorem 20, and what the guarantee says of a row and a person."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, epsilon_of, rho_max
from stream_dp.core.budget.parameters import Privacy, Unit
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.sum_price import SumShape

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("guarantee.md", "persons.md", "proofs/persons.md")
PAGE = "".join((DOCS / page).read_text() for page in PAGES)
EPSILON, DELTA = 1.0, 1e-9
RHO = rho_max(EPSILON, DELTA)


def budget(rows_per_phase: int, phases: int) -> Budget:
    return Budget.of(Privacy(EPSILON, DELTA, Unit(rows_per_phase, phases)))


# ---------------------------------------------------------------- the tables of the pages


def cells(first: str) -> list[str]:
    """The other cells of the row of a table of the pages that begins with ``first``."""
    (found,) = re.findall(rf"^\| {re.escape(first)} \|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in found.split("|")]


def losses(times: Iterable[int | Fraction], digits: int) -> list[str]:
    """Epsilon of that many times a full line."""
    return [f"{epsilon_of(RHO * n, DELTA):.{digits}f}" for n in times]


def test_the_losses_of_rows_in_one_phase_and_in_several_are_those_on_the_page() -> None:
    assert float(RHO) == pytest.approx(0.014973057673586676, rel=1e-12)
    assert cells("all in one phase, `k²·rho`") == losses((k * k for k in range(1, 11)), 4)
    assert cells("each in a phase of its own, `k·rho`") == losses(range(1, 11), 4)
    phases = [int(found.split()[0]) for found in cells("rows in each phase")]
    for rows in (1, 2, 4, 10):
        assert cells(str(rows)) == losses((n * rows**2 for n in phases), 3)
    assert losses([12, 144], 3)[0] == "3.713"
    assert float(losses([144], 1)[0]) > 14.0, "as if 12 rows in 12 phases were in one"
    assert losses([2, 4], 3) == ["1.437", "2.070"], "replacing a person by another"


def test_a_person_who_stays_on_loses_what_the_page_says() -> None:
    phases = [int(found) for found in cells("phases")]
    assert cells("epsilon") == losses((Fraction(n, 12) for n in phases), 4)


def test_the_scale_of_what_takes_a_whole_line_is_that_on_the_page() -> None:
    named = re.findall(r"P = (\d+), k = (\d+)", " ".join(cells("one line")))
    scales = [math.sqrt(0.5 / float(budget(int(k), int(phases)).rho)) for phases, k in named]
    assert cells("scale") == [f"{scale:.1f}" for scale in scales]


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(("rows", "phases"), [(1, 1), (1, 12), (4, 12), (255, 10_000)])
def test_a_line_of_persons_holds_what_all_rows_of_one_can_spend(rows: int, phases: int) -> None:
    of_persons = budget(rows, phases)
    assert of_persons.rho * phases * rows**2 == RHO
    assert of_persons.table == 1
    assert not of_persons.total_known
    assert of_persons.epsilon(Charge(0, UNITS)) == pytest.approx(EPSILON, abs=1e-9)


# ---------------------------------------------------------------- what a person can change

SHAPE = (2, 2, 2)
TABLES = [t for order in (1, 2, 3) for t in combinations(range(3), order)]
ROWS = list(product(*map(range, SHAPE)))
Person = tuple[tuple[int, ...], ...]


def persons(most: int) -> Iterator[Person]:
    """All rows that a person with at most so many can have."""
    for number in range(most + 1):
        yield from combinations_with_replacement(ROWS, number)


def changes(one: Person, other: Person) -> list[int]:
    """The squared distance of each table if one person takes another's place; () is nobody."""
    found = []
    for table in TABLES:
        counts: Counter[tuple[int, ...]] = Counter()
        for person, sign in ((one, 1), (other, -1)):
            for row in person:
                counts[tuple(row[a] for a in table)] += sign
        found.append(sum(number**2 for number in counts.values()))
    return found


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_person_changes_a_table_by_more_than_the_square_and_some_change_all_so(k: int) -> None:
    blank = [changes(person, ()) for person in persons(k)]
    assert np.max(blank, axis=0).tolist() == [k**2] * len(TABLES)
    assert max(map(sum, blank)) == 7 * k**2, "all tables at once: the square is exact"
    if k > 1:
        assert max(map(sum, blank)) > 7 * k, "so a price of k is too low"


@pytest.mark.parametrize("k", [1, 2, 3])
def test_replacing_a_person_changes_tables_by_twice_the_square(k: int) -> None:
    everyone = list(persons(k))
    replaced = [changes(one, other) for one, other in combinations(everyone, 2)]
    assert np.max(replaced, axis=0).tolist() == [2 * k**2] * len(TABLES)
    assert max(map(sum, replaced)) == 14 * k**2


def test_replacing_a_person_changes_sums_by_up_to_four_times_the_price_and_not_by_twice() -> None:
    """What one row adds to (sum, count), where numbers from -5 to 5 are added up."""
    shape = SumShape(-5, 5, 0, grouped=False, every_row=True, blank=True)
    tau = Fraction(1000)
    sigma = tau * Fraction(shape.ratio()).limit_denominator(1000)
    ends = [(x, 1) for x in (-shape.size, 0, shape.size)]
    worst = max(
        ((one[0] - other[0]) ** 2 / tau**2 + (one[1] - other[1]) ** 2 / sigma**2) / 2
        for one in ends
        for other in ends
    )
    assert 2 * shape.rho(tau, sigma) < worst <= 4 * shape.rho(tau, sigma)


# ---------------------------------------------------------------- exact deltas of a count

Price = Callable[[int, int], int]


@cache
def law(sigma: float) -> np.ndarray:
    """The probabilities of the discrete Gaussian, from -12 to 12 deviations."""
    x = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    weights = np.exp(-np.square(x) / (2.0 * sigma**2))
    return np.asarray(weights / weights.sum())


def exact_delta(sigma: float, k: int, phases: int) -> float:
    """Delta at ``EPSILON`` of one count in each phase that a person with k rows in each of them shifts.

    The logarithm of the ratio of both laws is linear in the sum of the noise, whose law is a convolution.
    """
    one = law(sigma)
    noise = one
    for _ in range(phases - 1):
        noise = np.convolve(noise, one)
    x = np.arange(len(noise)) - len(noise) // 2
    ratio = (2.0 * k * x + phases * k**2) / (2.0 * sigma**2)
    return float(noise @ np.maximum(0.0, 1.0 - np.exp(np.minimum(EPSILON - ratio, 50.0))))


def sigma_of(line: Fraction) -> float:
    """The scale of a count that takes a whole line."""
    return math.sqrt(0.5 / float(line))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("phases", [1, 2, 12])
def test_a_count_that_takes_a_whole_line_keeps_the_promise_to_a_person(k: int, phases: int) -> None:
    line = budget(k, phases)
    found = exact_delta(sigma_of(line.rho), k, phases)
    assert 1.6e-10 < found < 1.9e-10, "which is within delta, and near what zCDP allows"
    step = Prices(line).least_step(UNITS, line.table)
    assert step is not None
    assert exact_delta(float(grid_sigma(step)), k, phases) <= DELTA


GOLDEN = {
    "as one row": (lambda k, _: 1, {2: 3.2e-4, 3: 8.7e-3, 5: 8.2e-2, 10: 0.41}),
    "by the rows": (lambda k, _: k, {2: 2.0e-6, 3: 5.4e-5, 5: 9.6e-4, 10: 1.2e-2}),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_person_who_is_priced_too_low_is_noticed(name: str) -> None:
    price, wanted = GOLDEN[name]
    for k, delta in wanted.items():
        found = exact_delta(sigma_of(RHO / price(k, 1)), k, 1)
        assert found == pytest.approx(delta, rel=0.05)
        assert found > 1000 * DELTA


def test_a_line_that_forgets_the_phases_of_a_person_is_noticed() -> None:
    assert exact_delta(sigma_of(RHO), 1, 12) > 1000 * DELTA
    assert exact_delta(sigma_of(RHO / 12), 1, 12) <= DELTA
