"""What is said of a mechanism beforehand is what it then charges, promises and asks for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.kinds.kind_answerer import loss_of
from stream_dp.core.kinds.threshold.count_tree import Tree, TreePlan
from stream_dp.core.median.memory import Memory
from stream_dp.core.outcome import Answered, Path, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.sparse_vector.composition import Basic, Concentrated
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.weights import GrowingWeights
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven, drawn_block
from stream_dp.profiles.advice import (
    SERVES,
    Estimate,
    Name,
    Need,
    Trial,
    estimates,
    least_error,
    least_rows,
    made_calibrated,
    most_thresholds,
    recommended,
    windows,
)
from stream_dp.profiles.opening_price import opening_of
from tests.core.conftest import universe_of

PRIVACY = Privacy(1.0, 1e-9)
ACCURACY = Accuracy(0.05, 0.01)
HALF = Predicate.conjunction({0: np.array([True, False])})


@pytest.fixture
def need() -> Need:
    return Need(universe_of(2, 4), PRIVACY, ACCURACY, n_rows=3_000, phases=4, queries=400)


@pytest.fixture
def thresholds() -> Need:
    return Need(
        universe_of(37),
        PRIVACY,
        ACCURACY,
        n_rows=40_000,
        phases=2,
        queries=60,
        workload="thresholds",
    )


def of(need: Need, name: Name) -> Estimate:
    return next(estimate for estimate in estimates(need) if estimate.name is name)


# ---------------------------------------------------------------- prices are the mechanisms' own


@pytest.mark.parametrize(
    ("name", "composition"), [(Name.COUNTS, Concentrated), (Name.PURE_COUNTS, Basic)]
)
def test_counts_cost_what_their_quotes_add_up_to_on_the_fullest_line(
    need: Need, name: Name, composition: type[Concentrated | Basic]
) -> None:
    counts = FreshCounts(need.universe, need.accuracy, composition(need.privacy))
    spent = np.zeros(need.phases)
    for phase in range(1, need.phases + 1):
        counts.open_phase(need.n_rows)
        for length, part in windows(phase):
            quote = counts.quote(LinearQuery(HALF, range(phase - length, phase)))
            assert len(quote.charges) == length
            for charge in quote.charges:
                spent[charge.block] += need.queries / need.phases * part * charge.rho / UNITS
    assert of(need, name).share == pytest.approx(spent.max(), rel=1e-9)


def test_windows_are_half_about_everything_and_half_about_the_last_phases() -> None:
    assert list(windows(1)) == [(1, 0.5), *[(1, 0.5 / 6)] * 6]
    assert [length for length, _ in windows(9)] == [9, 1, 2, 3, 4, 5, 6]
    assert sum(part for _, part in windows(9)) == pytest.approx(1.0)


def test_opening_a_calibrated_phase_takes_what_its_looks_are_charged(need: Need) -> None:
    (look,) = Calibrated(need.universe, PRIVACY, ACCURACY).open_phase(need.n_rows)
    assert of(need, Name.CALIBRATED).opening == look.charges[0].rho / UNITS


def test_weights_afford_as_many_hard_queries_as_their_quotes_fill_a_line(need: Need) -> None:
    one = replace(need, phases=1, n_rows=200_000)
    weights = GrowingWeights(one.universe, ACCURACY, Concentrated(PRIVACY))
    weights.open_phase(one.n_rows)
    (charge,) = weights.quote(LinearQuery(HALF, range(1))).charges
    assert of(one, Name.WEIGHTS).queries == UNITS // charge.rho > 0


def test_gated_affords_the_most_segments_that_a_phase_has_rows_for(need: Need) -> None:
    rich = replace(need, n_rows=30_000)
    segments = of(rich, Name.GATED).queries
    assert segments is not None

    def rows(n: int) -> int:
        return Gated(need.universe, PRIVACY, ACCURACY, segments=n).min_rows

    assert 1 < segments < rich.queries
    assert rows(segments) <= rich.n_rows < rows(segments + 1)


def test_a_whole_table_answers_the_hardest_predicate_from_the_rows_that_are_named(
    need: Need,
) -> None:
    rows = of(need, Name.TABLE).rows
    assert rows is not None
    for n_rows, kind in ((rows, Answered), (rows - 1, Refused)):
        table = WholeTable(need.universe, PRIVACY, ACCURACY)
        (look,) = table.open_phase(n_rows)
        table.charged(look.charges)
        table.absorb(table.release_from_bytes(b"\x01\0\0\0\0" + bytes(8 * need.universe.n_cells)))
        assert isinstance(table.answer(LinearQuery(HALF, range(1))), kind)
        part = of(replace(need, n_rows=n_rows), Name.TABLE).part
        assert part == (1.0 if kind is Answered else None)


def test_trees_take_the_least_share_of_a_line_whose_bar_is_the_error(thresholds: Need) -> None:
    found = of(thresholds, Name.TREE)
    assert found.share is not None
    assert found.share < 1.0

    def worst(share: float) -> float:
        plan = TreePlan(37, loss_of(Budget.of(PRIVACY), share, approximate=False).epsilon)
        tree = Tree.of(plan, [np.zeros(36, dtype=np.int64)], thresholds.n_rows)
        return max(tree.error_bar_of(range(stop), 0.01) for stop in range(1, 38))

    assert worst(found.share) <= ACCURACY.error * thresholds.n_rows < worst(found.share - 2e-4)
    assert found.definition["kinds"] == {"threshold": {"share": found.share}}
    assert found.rows is not None
    assert not of(replace(thresholds, n_rows=found.rows - 1), Name.TREE).serves
    assert of(replace(thresholds, n_rows=found.rows), Name.TREE).serves


def test_memory_asks_for_its_own_rows_and_where_it_cannot_be_run_for_the_papers() -> None:
    need = Need(universe_of(4, 4), PRIVACY, Accuracy(0.1, 0.01), 10**9, 3, 300)
    polytope = Memory(
        need.universe,
        PRIVACY,
        need.accuracy,
        queries_per_phase=100,
        phases=3,
        representation="polytope",
    )
    found = of(need, Name.MEMORY)
    assert found.rows == polytope.rows_to_open
    assert found.part == 0.0
    assert of(replace(need, n_rows=polytope.rows_to_open * 3), Name.MEMORY).part == 1.0
    precise = replace(need, universe=universe_of(16, 16, 16), phases=12).with_error(0.02)
    wide = of(precise, Name.MEMORY)
    assert wide.rows is not None
    assert wide.rows > 10**16
    assert wide.problem is not None


@pytest.mark.parametrize("name", [Name.COUNTS, Name.PURE_COUNTS, Name.TABLE])
def test_the_least_rows_and_the_least_error_are_the_least(need: Need, name: Name) -> None:
    found = of(need, name)
    assert found.rows is not None
    assert of(replace(need, n_rows=found.rows), name).part == 1.0
    assert of(replace(need, n_rows=found.rows - 1), name).part != 1.0
    if found.error is not None:
        assert of(need.with_error(found.error * 1.001), name).part == 1.0
        assert of(need.with_error(found.error * 0.99), name).part != 1.0


def test_a_single_count_tells_what_error_is_possible_at_all(need: Need) -> None:
    error = least_error(need)
    assert error is not None
    counts = FreshCounts(need.universe, Accuracy(error, 0.01), Concentrated(PRIVACY))
    counts.open_phase(need.n_rows)
    assert not isinstance(counts.answer(LinearQuery(HALF, range(1))), Refused)
    better = FreshCounts(need.universe, Accuracy(0.99 * error, 0.01), Concentrated(PRIVACY))
    better.open_phase(need.n_rows)
    assert isinstance(better.answer(LinearQuery(HALF, range(1))), Refused)
    assert least_rows(need.with_error(error)) == pytest.approx(need.n_rows, abs=1)


def test_there_are_only_so_many_thresholds(thresholds: Need) -> None:
    # After phase 1 one window, after phase 2 two: all of them and the last one.
    assert most_thresholds(thresholds) == 3 * 36


# ---------------------------------------------------------------- what is recommended


def test_under_a_pure_promise_only_pure_mechanisms_are_left(need: Need) -> None:
    pure = replace(need, privacy=Privacy(1.0, 0.0), queries=5)
    names = [e.name for e in estimates(pure) if e.problem is None]
    assert names == [Name.PURE_COUNTS, Name.BYPASS, Name.WEIGHTS]
    assert recommended(estimates(pure)).name is Name.PURE_COUNTS


def test_with_the_rows_of_the_papers_their_mechanism_serves(need: Need) -> None:
    rich = replace(need, n_rows=10**17, phases=1)
    assert of(rich, Name.MEMORY).serves
    assert of(rich, Name.MEDIAN).definition == {
        "mechanism": {"profile": "median", "representation": "polytope", "queries": 400}
    }


def test_what_takes_least_is_recommended_and_the_first_of_equals() -> None:
    table = Estimate(Name.TABLE, part=1.0, share=0.1)
    calibrated = Estimate(Name.CALIBRATED, part=1.0, share=0.5)
    without_base = Estimate(Name.WITHOUT_BASE, part=SERVES, share=0.3)
    assert recommended([calibrated, without_base, table]) is table
    assert recommended([calibrated, without_base]) is without_base
    assert recommended([calibrated, replace(without_base, share=0.5)]) is calibrated
    few = replace(calibrated, part=0.9)
    assert recommended([table, few, Estimate(Name.COUNTS, part=1.0, share=0.2)]) is table
    assert recommended([replace(table, part=None), few]) is few


def test_tiles_are_for_what_answers_all_of_them_and_are_planned_as_a_data_set_does(
    need: Need,
) -> None:
    table = PlannedTile(LinearQuery(EVERYTHING, range(1), (1,)), 1)
    tiled = replace(need, queries=0, tiles=(table, PlannedTile(LinearQuery(HALF, range(1)), None)))
    assert tiled.asked == 2 * need.phases
    assert [e.name for e in estimates(tiled)] == [
        Name.CALIBRATED,
        Name.UNDECLARED,
        Name.WITHOUT_BASE,
        Name.COUNTS,
    ]
    declared = Calibrated(
        need.universe,
        PRIVACY,
        ACCURACY,
        CalibratedSettings(tiles=tiled.tiles),
    )
    (look,) = declared.open_phase(need.n_rows)
    assert of(tiled, Name.CALIBRATED).opening == look.charges[0].rho / UNITS
    generic = Calibrated(need.universe, PRIVACY, ACCURACY)
    opening = generic.openings.release(need.n_rows).units / UNITS
    assert of(tiled, Name.UNDECLARED).opening == opening


def test_a_trial_of_fewer_queries_stands_for_all_and_easy_ones_stay_free(need: Need) -> None:
    calibrated = of(need, Name.CALIBRATED)
    trial = Trial(asked=100, within=98, missed=1, easy=60, opening=0.2, spent=0.3)
    few = calibrated.tried(trial, replace(need, queries=100))
    assert (few.part, few.share) == (pytest.approx(0.99), pytest.approx(0.3))
    many = calibrated.tried(trial, replace(need, queries=1_600))
    assert (many.part, many.share) == (pytest.approx(0.6 + 0.39 / 2), pytest.approx(1.8))


# ---------------------------------------------------------------- persons


class Quiet(SeededNoise):
    """Looks whose noise is 0, so that what a median phase costs is what it costs."""

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)


def of_persons(need: Need, n_counted: int = 4_000) -> Need:
    return replace(need, privacy=Privacy(1.0, 1e-9, Unit(2, 3)), n_rows=20_000, n_counted=n_counted)


def opened(need: Need, name: Name) -> tuple[Calibrated, Driven, Blocks]:
    data = Blocks(need.universe)
    data.append(drawn_block(need, np.random.default_rng(1), None))
    mechanism = made_calibrated(need, name)
    driven = Driven(mechanism, Quiet(np.random.default_rng(1)))
    driven.open_phase(need.n_rows, data)
    return mechanism, driven, data


def test_opening_a_phase_of_persons_takes_the_look_at_its_rows_and_tables_for_those_that_count(
    need: Need,
) -> None:
    asked = of_persons(need)
    mechanism, driven, _ = opened(asked, Name.CALIBRATED)
    found = opening_of(mechanism, asked.universe.names, asked.counted)
    assert found is not None
    assert found.share == of(asked, Name.CALIBRATED).opening == driven.spent_share()
    assert found.share > mechanism.state.first_looks / UNITS > 0.01
    # Copies that take all rows to count, or forget what the look may be off.
    for rows in (asked.n_rows, asked.counted):
        units = mechanism.state.first_looks + mechanism.openings.release(rows).units
        assert units / UNITS != driven.spent_share()


def test_the_least_error_of_persons_is_the_least_that_a_look_keeps(need: Need) -> None:
    asked = of_persons(need)
    least = least_error(asked)
    assert least is not None
    rows = least_error(replace(asked, privacy=PRIVACY, n_rows=asked.counted, n_counted=None))
    assert rows is not None
    assert least > 2 * rows
    for factor, path in ((1.05, Path.MEASURED), (0.95, Path.UNVERIFIED)):
        _, driven, data = opened(
            replace(asked.with_error(least * factor), queries=1, phases=1), Name.WITHOUT_BASE
        )
        outcome = driven.ask(LinearQuery(HALF, range(1)), data)
        assert isinstance(outcome, Answered)
        assert outcome.path is path


def test_where_so_few_rows_count_that_nobody_can_tell_there_is_no_least_error(need: Need) -> None:
    assert least_error(of_persons(need, 20)) is None
    rows = least_rows(of_persons(need, 20))
    assert rows is not None
    assert rows > 20_000


def test_for_persons_what_protects_rows_only_is_ruled_out(need: Need) -> None:
    for estimate in estimates(of_persons(need)):
        protects = estimate.name in {Name.CALIBRATED, Name.WITHOUT_BASE}
        assert (estimate.problem is None) is protects


def test_a_trial_overrules_a_formula_that_says_the_opposite_of_it(need: Need) -> None:
    formula = Estimate(Name.CALIBRATED, part=None, error=0.711, rows=54_045)
    asked = need.with_error(0.05).with_rows(3_800)
    served = formula.tried(Trial(400, 400, 0, 390, 0.2, 0.3), asked)
    assert served.serves
    assert (served.error, served.rows) == (0.05, 3_800), "so it was said to need 71.1%"
    short = replace(formula, error=0.04, rows=3_000)
    missed = short.tried(Trial(400, 200, 0, 100, 0.2, 1.0), asked)
    assert not missed.serves
    assert (missed.error, missed.rows) == (None, None)
    kept = short.tried(Trial(400, 400, 0, 390, 0.2, 0.3), asked)
    assert (kept.error, kept.rows) == (0.04, 3_000)
