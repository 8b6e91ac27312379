"""Mechanisms beside rows and queries that follow from the schema alone. Seeded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.singles import singles
from stream_dp.lab.synthetic_stream import queries, resampled_rows, synthetic_rows
from stream_dp.lab.trial import Driven, drawn_block, trial
from stream_dp.profiles.advice import Name, Need, Workload, made_calibrated

FLIGHTS = Universe(
    (
        Category("carrier", tuple(map(str, range(16))), other=False),
        Category("origin", ("EWR", "JFK", "LGA"), other=False),
        Number("hour", (4, 8, 12, 16, 20), integer=True),
        Number("arr_delay", (-20, -10, 0, 10, 30, 60), integer=True, missing=True),
        Number("distance", (502, 872, 1389), integer=True),
    )
)
SMALL = Universe((Boolean("smoker"), Number("age", (20, 30, 40, 50, 60, 70, 80), integer=True)))
PRIVACY = Privacy(1.0, 1e-9)
YEAR = Need(FLIGHTS, PRIVACY, Accuracy(0.02, 0.01), n_rows=28_000, phases=12, queries=36_000)
FEW = Need(
    SMALL, PRIVACY, Accuracy(0.05, 0.01), n_rows=1_400, phases=2, queries=400, workload="predicates"
)


def test_a_few_queries_need_no_tables_beforehand() -> None:
    found = trial(replace(YEAR, queries=60), (Name.CALIBRATED, Name.WITHOUT_BASE))
    assert found[Name.CALIBRATED].opening == 0.0
    assert found[Name.CALIBRATED].spent == pytest.approx(found[Name.WITHOUT_BASE].spent, rel=0.1)
    assert trial(YEAR, (Name.CALIBRATED,), most=12)[Name.CALIBRATED].opening > 0.0


def test_tiles_are_asked_after_each_phase_and_counts_answer_no_tables() -> None:
    by_origin = PlannedTile(LinearQuery(EVERYTHING, range(1), (1,)), 1)
    long = PlannedTile(LinearQuery(Predicate.conjunction({2: np.arange(6) < 3}), range(1)), 2)
    need = replace(YEAR, phases=3, queries=0, tiles=(by_origin, long))
    found = trial(need, (Name.CALIBRATED, Name.WITHOUT_BASE, Name.COUNTS))
    assert {name: one.asked for name, one in found.items()} == dict.fromkeys(found, 6)
    assert found[Name.CALIBRATED].within == found[Name.WITHOUT_BASE].within == 6
    assert found[Name.COUNTS].within == 3
    assert 0.0 < found[Name.CALIBRATED].spent <= found[Name.WITHOUT_BASE].spent
    assert trial(replace(need, queries=9), (Name.COUNTS,))[Name.COUNTS].asked == 15


def test_the_price_of_one_query_is_what_the_mechanism_is_charged_for_it() -> None:
    found = {(one.kind, one.attribute): one for one in singles(YEAR)}
    assert list(found) == [
        ("count", "origin"),
        ("table", "origin"),
        ("average", "hour"),
        ("average", "arr_delay"),
        ("relative", "origin"),
    ]
    count = found["count", "origin"].share
    alone = made_calibrated(replace(YEAR, phases=1), Name.WITHOUT_BASE)
    alone.open_phase(YEAR.n_rows)
    quote = alone.quote(LinearQuery(Predicate.conjunction({1: np.arange(3) == 1}), range(1)))
    assert count == quote.charges[0].rho / UNITS
    shares = [one.share for one in found.values()]
    assert all(share is not None and count <= share < 0.1 for share in shares)
    few = singles(replace(YEAR, n_rows=30))
    assert {one.share for one in few} == {None}


def test_the_same_need_gives_the_same_trial_and_what_is_answered_is_within_the_error() -> None:
    need = replace(FEW, n_rows=5_000, queries=200)
    names = (Name.CALIBRATED, Name.COUNTS, Name.PURE_COUNTS, Name.TABLE, Name.BYPASS)
    first = trial(need, names)
    assert first == trial(need, names)
    for found in first.values():
        assert found.asked == 200
        # Of 200 answers each off with probability 1%, more than 20 are with probability below 1e-13.
        assert found.missed <= 20
        assert found.within + found.missed <= found.asked
        assert 0.0 < found.spent <= 1.0
    assert first[Name.CALIBRATED].opening > 0.0 == first[Name.COUNTS].opening
    assert first[Name.TABLE].easy == first[Name.TABLE].within + first[Name.TABLE].missed


def test_on_a_wide_universe_what_keeps_every_cell_is_left_out() -> None:
    wide = Universe(tuple(Category(f"a{i}", ("x", "y", "z"), other=False) for i in range(20)))
    need = replace(YEAR, universe=wide, phases=1, queries=20)
    assert list(trial(need, (Name.CALIBRATED, Name.TABLE, Name.BYPASS))) == [Name.CALIBRATED]


@pytest.mark.parametrize("workload", ["conjunctions", "predicates"])
def test_queries_end_with_the_newest_phase_and_differ(workload: Workload) -> None:
    asked = list(queries(FLIGHTS, np.random.default_rng(1), phase=9, n=600, workload=workload))
    assert len({(q.key, q.window) for q in asked}) == 600
    assert {q.window.stop for q in asked} == {9}
    assert {len(q.window) for q in asked} == {1, 2, 3, 4, 5, 6, 9}
    assert {len(q.predicate.attributes) for q in asked} == {1, 2, 3}
    conjunctions = sum(q.predicate.factors is not None for q in asked)
    assert conjunctions == 600 if workload == "conjunctions" else conjunctions < 400


def test_thresholds_are_all_that_there_are_and_then_repeat() -> None:
    ages = Universe((SMALL.attributes[1],))
    asked = list(queries(ages, np.random.default_rng(1), phase=1, n=40, workload="thresholds"))
    assert len({q.key for q in asked}) == 7
    for query in asked:
        held = query.predicate.mask.astype(int)
        assert held[0] == 1
        assert (np.diff(held) <= 0).all()


@pytest.mark.parametrize("n_rows", [1, 777, 20_001, 10**15 + 1])
def test_synthetic_rows_are_as_many_as_asked_skewed_and_correlated(n_rows: int) -> None:
    rows = synthetic_rows(FLIGHTS, np.random.default_rng(1), n_rows)
    assert rows.n_rows == n_rows
    assert rows.n_entries <= 20_000
    if rows.n_entries == 20_000:
        assert (np.diff(np.bincount(rows.codes[1])) < 0).all()
        assert np.corrcoef(rows.codes[0], rows.codes[2])[0, 1] > 0.15
    for codes, attribute in zip(rows.codes, FLIGHTS.attributes, strict=True):
        assert codes.dtype == attribute.dtype
        assert codes.max() < attribute.size


def test_rows_of_a_sample_are_drawn_together() -> None:
    sample = Rows(tuple(np.arange(3, dtype=np.uint8) for _ in range(2)))
    drawn = resampled_rows(sample, np.random.default_rng(1), 500)
    assert drawn.n_rows == 500
    assert np.array_equal(drawn.codes[0], drawn.codes[1])
    assert set(drawn.codes[0].tolist()) == {0, 1, 2}


# ---------------------------------------------------------------- persons


PERSONS = replace(
    FEW, privacy=Privacy(1.0, 1e-9, Unit(2, 3)), n_rows=20_000, n_counted=6_000, queries=60
)


def test_in_a_trial_of_persons_the_rows_that_do_not_count_are_blank() -> None:
    block = drawn_block(PERSONS, np.random.default_rng(1), None)
    rows = drawn_block(FEW, np.random.default_rng(1), None)
    data = Blocks(PERSONS.universe, [block, rows])
    assert data.sizes == [20_000, FEW.n_rows]
    assert data.marginal((), range(2)).tolist() == [6_000, FEW.n_rows]


def test_what_opening_a_phase_publishes_decides_about_more_looks_and_these_are_taken() -> None:
    data = Blocks(PERSONS.universe)
    data.append(drawn_block(PERSONS, np.random.default_rng(1), None))
    mechanism = made_calibrated(PERSONS, Name.CALIBRATED)
    driven = Driven(mechanism, SeededNoise(np.random.default_rng(1)))
    driven.open_phase(PERSONS.n_rows, data)
    assert mechanism.state.counted is not None
    assert mechanism.state.counted.known(0)
    assert driven.spent_share() > 2 * mechanism.state.first_looks / UNITS, (
        "tables were measured too"
    )


def test_of_persons_a_trial_keeps_its_promise_and_tries_what_can_protect_them() -> None:
    trials = trial(PERSONS, (Name.CALIBRATED, Name.COUNTS, Name.TABLE))
    assert trials.keys() == {Name.CALIBRATED}
    tried = trials[Name.CALIBRATED]
    assert tried.within > 0
    assert tried.missed <= 0.05 * tried.asked


def test_one_query_takes_more_of_a_line_where_persons_are_protected() -> None:
    rows = replace(PERSONS, privacy=PRIVACY, n_rows=6_000, n_counted=None)
    for of_rows, of_persons in zip(singles(rows), singles(PERSONS), strict=True):
        assert of_rows.share is not None
        assert of_persons.share is None or of_persons.share > 2 * of_rows.share
