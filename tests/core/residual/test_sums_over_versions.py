"""Sums over several versions of the number that they add up (docs/proofs, Theorem 33)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Aim, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Refused, Summed, Useful
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Total, total_of
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.looks.composed_looks import JoinedLook
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.rows.attribute_versions import Declared
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.measured_values import Measure
from tests.core.residual.host import dearest
from tests.core.residual.versioned import NARROW, OLD, WIDE, Versioned

CHANGE = NARROW, WIDE
FINE = Target(value=20_000.0)


def sums_of(look: Any) -> tuple[SumLook, ...]:
    """The looks at sums that a look joins, in the order of their blocks."""
    joined = getattr(look, "look", look)
    assert isinstance(joined, JoinedLook)
    assert all(isinstance(one, SumLook) for one in joined.looks)
    return tuple(one for one in joined.looks if isinstance(one, SumLook))


def loss(look: SumLook, step: tuple[int, int, int], numbers: list[int]) -> Fraction:
    """The loss of the two rows that a block's look tells apart best, of all rows that a version may have.

    Rows are in a group each, or outside the condition. The numbers are what they may count for.
    """
    groups = np.eye(2 if look.n_answers > 1 else 1, dtype=np.int64)
    rows = [np.outer((2 * n - look.shape.centre, 1), group) for group in groups for n in numbers]
    outside = [] if look.shape.every_row else [np.zeros_like(rows[0])]
    tau, sigma = (grid_sigma(one) for one in step[1:])
    return dearest([*rows, *outside], [tau, sigma if look.shape.counts else None])


@pytest.mark.parametrize("by", [(), ("city",)], ids=["one sum", "groups"])
@pytest.mark.parametrize("name", ["spent", "age"])
@pytest.mark.parametrize("where", [{}, {"city": [0]}], ids=["all rows", "some rows"])
def test_each_phase_pays_for_its_own_range(
    name: str, by: tuple[str, ...], where: dict[str, list[int]]
) -> None:
    host = Versioned(1, of=CHANGE, base_share=0.0)
    step = host.step(host.sum_of(name, host.where(**where), *by, target=FINE))
    looks = sums_of(step)
    assert len(looks) == 2
    for block, look in enumerate(looks):
        version = host.schema.at(block).universe
        number: Any = version.attributes[version.index(name)]
        if name == "spent":
            numbers = [round(end) for end in (number.measure.low, number.measure.high)]
        else:
            numbers = [round(value / look.values.unit) for value in number.values]
        (planned,) = look.steps
        rho = loss(look, planned, numbers)
        assert [charge.rho for charge in look.charges] == [host.state.prices.of(rho)]
    if name == "spent":
        old, new = (look.charges[0].rho for look in looks)
        assert old < new, "its rows count for half as much at the most"


@pytest.mark.parametrize("name", ["spent", "age"])
def test_looks_add_up_what_rows_count_for_in_their_phase(name: str) -> None:
    """Exact, but for the noise."""
    host, found = Versioned(2, of=CHANGE, base_share=0.0), Fraction(0)
    query = host.sum_of(name, host.where(city=[0]), target=FINE)
    for look in sums_of(host.step(query)):
        for block, *_ in look.steps:
            ((total,), (count,)) = exact_sums(look, host.data, block).tolist()
            found += Fraction(total + look.shape.centre * count, 2) * Fraction(
                repr(look.values.unit)
            )
    assert float(found) == pytest.approx(host.counted_for(name, {"city": ["Bonn"]}), rel=1e-12)


@pytest.mark.parametrize("name", ["spent", "age"])
def test_the_variance_of_a_sum_is_that_of_its_looks(name: str) -> None:
    host = Versioned(2, of=CHANGE, base_share=0.0)
    query = host.sum_of(name, target=FINE)
    looks = sums_of(host.step(query))
    found = host.ask(query)
    variance = sum(
        (look.values.unit / 2.0 * float(grid_sigma(step[1]))) ** 2
        for look in looks
        for step in look.steps
    )
    assert sum(len(look.steps) for look in looks) == 4
    sums, largest = host.state.sums(query).sums, query.total.largest if query.total else 1.0
    assert math.sqrt(sums.moments.totals[0]) * largest == pytest.approx(math.sqrt(variance))
    (cell,) = found.cells
    assert cell.total_bar == pytest.approx(host.state.promise.z * math.sqrt(variance), rel=1e-3)
    assert cell.total_bar <= 20_000.0


@pytest.mark.parametrize("share", [0.0, 0.3], ids=["on demand", "from tables"])
@pytest.mark.parametrize("name", ["spent", "age"])
def test_sums_are_what_rows_count_for_in_their_phase(name: str, share: float) -> None:
    host = Versioned(2, of=CHANGE, base_share=share, beta=1e-9)
    every = host.counted_for(name)
    bonn = host.counted_for(name, {"city": ["Bonn"]})
    other = host.counted_for(name, {"city": ["Lyon", "Oslo"]})
    for target in (Target(value=200_000.0), Target(mean=10.0)):
        (alone,) = host.ask(host.sum_of(name, target=target)).cells
        (some,) = host.ask(host.sum_of(name, host.where(city=[0]), target=target)).cells
        table = host.ask(host.sum_of(name, host.where(), "city", target=target)).cells
        truths = every, bonn, bonn, other
        for cell, exact in zip((alone, some, table[0], table[2]), truths, strict=True):
            assert cell.total_bar < 0.2 * every
            assert abs(cell.total - exact) <= cell.total_bar
        n = sum(len(columns["city"]) for columns in host.sent)
        assert abs(alone.mean - every / n) <= alone.mean_bar


def test_where_no_look_was_taken_old_bins_end_at_the_old_bounds() -> None:
    """A row of 50 or more counts for 50 to 100 in the old phase, and for 50 to 200 in the new one."""
    host = Versioned(1, of=CHANGE, base_share=0.3)
    query = host.sum_of("spent")
    low, high = host.state.versions.sums_between(query, at_opening=False)
    above = [sum(number >= 50 for number in columns["spent"]) for columns in host.sent]
    below = sum(len(columns["spent"]) for columns in host.sent) - sum(above)
    ends = 50.0 * sum(above), 50.0 * below + 100.0 * above[0] + 200.0 * above[1]
    for known, end in zip((low, high), ends, strict=True):
        off = 200.0 * math.sqrt(known.sums.moments.totals[0])
        assert 0.0 < off < 0.01 * end
        assert abs(200.0 * known.sums.totals[0] - end) < 5.0 * off


def test_what_was_added_up_before_a_change_serves_after_it() -> None:
    host = Versioned(1, of=(NARROW, NARROW), base_share=0.0)
    before = host.ask(host.sum_of("spent", target=FINE)).cells[0]
    host.schema = host.schema.changed([Declared(one) for one in WIDE], 2)
    host.mechanism.change_schema(host.schema, ())
    query = replace(host.sum_of("spent", target=Target(value=20_000.0)), window=range(2))
    again = host.step(query)
    assert isinstance(again, Summed), "it is published"
    assert again.cells[0].total == pytest.approx(before.total)
    assert again.cells[0].total_bar == pytest.approx(before.total_bar)


@pytest.mark.parametrize("old", [NARROW, WIDE], ids=["one range", "two ranges"])
def test_what_bins_alone_say_does_not_keep_a_look_back(old: Any) -> None:
    """Tables put the sum between the ends of bins, within half of itself. A look is worth its price."""
    host = Versioned(1, 20_000, of=(NARROW, old), base_share=0.3, aim=Aim(0.1))
    query = host.sum_of("spent")
    assert isinstance(host.step(query), Look)
    outcome = host.ask(query)
    (cell,) = outcome.cells
    assert outcome.use.useful is Useful.YES
    assert abs(cell.total - host.counted_for("spent")) <= cell.total_bar <= 0.1 * cell.total


CLAMPED: dict[str, tuple[dict[str, list[int]], int]] = {
    "all": ({}, 2),
    "of some rows": ({"city": [0]}, 2),
    "of the bin that the bound cuts": ({"spent": [1]}, 2),
    "of a bin below it": ({"spent": [0]}, 0),
}


@pytest.mark.parametrize(("chosen", "until"), CLAMPED.values(), ids=CLAMPED)
def test_it_is_told_up_to_where_bounds_are_narrower(
    chosen: dict[str, list[int]], until: int
) -> None:
    host = Versioned(2, of=CHANGE, base_share=0.0)
    query = host.sum_of("spent", host.where(**chosen))
    assert host.mechanism.recorded(query).clamped_until == until
    assert host.mechanism.recorded(replace(query, window=range(2, 4))).clamped_until == 0
    assert host.mechanism.recorded(replace(query, window=range(1))).clamped_until == (until and 1)
    assert host.mechanism.recorded(host.sum_of("age")).clamped_until == 0


def test_a_sum_in_older_attributes_says_so_too() -> None:
    host = Versioned(1, of=CHANGE, base_share=0.0)
    number: Any = NARROW[2]
    query = LinearQuery(EVERYTHING, range(1), (), total_of(2, number))
    assert host.mechanism.recorded(query).clamped_until == 1


FINER = (*NARROW[:2], Number("spent", (50.0, 80.0, 100.0), measure=Measure(1.0, 0.0, 200.0)))


@pytest.mark.parametrize(("limit", "told"), [(50.0, True), (80.0, False), (100.0, True)])
def test_a_limit_that_cuts_an_older_bin_is_refused(limit: float, *, told: bool) -> None:
    """No old row counts for more than 100, so a limit from there on cuts none of their bins."""
    host = Versioned(1, of=(NARROW, FINER), base_share=0.0)
    query = host.sum_of("spent", target=FINE)
    assert isinstance(query.total, Total)
    limited = replace(query, total=query.total.up_to(limit))
    assert isinstance(host.step(limited), Look if told else Refused)
    assert not host.mechanism.recorded(limited).clamped_until, "no bound is below the limit"


PAID = Number("spent", (10.0,), measure=Measure(1.0, 0.0, 20.0), missing=True)


def test_rows_that_do_not_have_the_number_count_for_nothing() -> None:
    """They say that it is missing. A look is taken at the other phases alone."""
    host = Versioned(1, of=(OLD, (*OLD, PAID)), base_share=0.0)
    query = host.sum_of("spent", host.where(spent=[0, 1]), target=Target(value=2_000.0))
    (look,) = sums_of(host.step(query))
    assert [step[0] for step in look.steps] == [1]
    (cell,) = host.ask(query).cells
    exact = sum(min(number, 20) for number in host.sent[1]["spent"])
    assert abs(cell.total - exact) <= cell.total_bar <= 2_000.0
    every = host.step(replace(query, rows=EVERYTHING))
    assert isinstance(every, Summed)
    assert every.cells[0].rows == 40_000, "those without the number too"
