"""Synthetic rows: from every representation and from the belief, and how far off they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm

from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.median.doubling_stages import Doubling
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phase_constants import Representation
from stream_dp.core.median.sequential import Median, Sequential
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Concentrated
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.weights import GrowingWeights
from stream_dp.core.synthetic import synthetic
from stream_dp.core.synthetic.basis import SmallTables, Synthetic
from stream_dp.core.synthetic.cliques import model_of
from stream_dp.core.synthetic.rows import Conditional, drawn, whole_rows
from tests.core.conftest import Drive, universe_of
from tests.noise import QuickNoise, SeededNoise

Columns = list[npt.NDArray[np.int64]]


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def shares(columns: Any, attributes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Of each cell of a table, shape (size of each attribute)."""
    sizes = tuple(shape[a] for a in attributes)
    cells = np.ravel_multi_index([columns[a] for a in attributes], sizes)
    return np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes) / len(cells)


# ---------------------------------------------------------------- from a consistent set


def memory(cells: Universe, representation: Representation, **settings: Any) -> Memory:
    return Memory(
        cells,
        Privacy(1.0, 1e-6),
        Accuracy(0.5 if representation == "exhaustive" else 0.1, 0.05),
        queries_per_phase=100,
        phases=2,
        representation=representation,
        **settings,
    )


@pytest.mark.parametrize("representation", ["exhaustive", "entropic", "polytope"])
def test_the_rows_are_as_close_to_hard_answers_as_promised(representation: Representation) -> None:
    cells = universe_of(2, 2)
    rows = 9 if representation == "exhaustive" else None
    mechanism = memory(cells, representation, hypothesis_rows=rows)
    run = Drive(cells, mechanism, SeededNoise(1))
    for parts in ([8, 0, 1, 0], [7, 1, 1, 0]):  # ninths, as nine rows have them
        run.open(parts, 10**17)
        for chosen in ([1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 1, 1]):
            run.ask(run.query(chosen))
    window, n_rows = range(2), 10**6
    found = synthetic(mechanism, window, n_rows, generator())
    assert [len(column) for column in found.columns] == [n_rows] * 2
    assert (found.n_rows, found.window) == (2 * 10**17, window)
    answered = [c for c, about, _ in mechanism.hard_answers if about == window]
    assert len(found.answers) == len(answered) > 0
    lacking = max(0.0, 1.0 - float(mechanism.hypothesis(window).sum()))
    assert max(gap.distance for gap in found.answers) <= 0.02 * mechanism.constants.error + lacking
    inside = shares(found.columns, (0, 1), cells.shape).reshape(-1)
    for cells_of, gap in zip(answered, found.answers, strict=True):
        assert abs(inside[cells_of].sum() - run.truth(run.query(cells_of))) <= gap.error
    # The first phase alone is another window, with answers of its own.
    assert synthetic(mechanism, range(1), 100, generator()).answers


def test_rows_of_a_sequential_phase_follow_its_own_answers() -> None:
    cells = universe_of(2, 2)
    mechanism = Sequential(
        cells, Privacy(1.0, 1e-9), Accuracy(0.1, 0.05), queries_per_phase=20, phases=2
    )
    run = Drive(cells, mechanism, SeededNoise(1))
    with pytest.raises(ValueError, match="window"):
        synthetic(mechanism, range(1), 10, generator())
    for parts in ([1, 0, 0, 0], [0, 0, 0, 1]):
        run.open(parts, 10**18)
        for cell in np.eye(4):
            run.ask(run.query(cell))
    found = synthetic(mechanism, range(2), 10_000, generator())
    assert len(found.answers) == 3 < len(mechanism.hard_answers)
    both = shares(found.columns, (0, 1), cells.shape)
    assert both[[0, 1], [0, 1]] == pytest.approx([0.5, 0.5], abs=0.03)
    with pytest.raises(ValueError, match="window"):
        synthetic(mechanism, range(1), 10, generator())
    with pytest.raises(ValueError, match="rows"):
        synthetic(mechanism, range(2), 0, generator())


def test_without_answers_the_rows_are_uniform_and_nothing_is_promised() -> None:
    cells = universe_of(2, 2)
    run = Drive(cells, memory(cells, "entropic"), SeededNoise(1))
    run.open([1, 0, 0, 0], 10**17)
    found = synthetic(run.mechanism, range(1), 400, generator())
    assert shares(found.columns, (0, 1), cells.shape).tolist() == [[0.25, 0.25], [0.25, 0.25]]
    assert (found.answers, dict(found.fitted), dict(found.others)) == ((), {}, {})


def test_rows_of_doubling_are_those_of_the_guess_in_force() -> None:
    cells = universe_of(2, 2)

    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Median:
        return Median(cells, privacy, accuracy, queries=queries)

    mechanism = Doubling(make, Privacy(4.0, 1e-6), Accuracy(0.1, 0.05), first=20)
    run = Drive(cells, mechanism, SeededNoise(1))
    run.open([3, 1, 0, 0], 10**17)
    run.ask(run.query([1, 0, 0, 0]))
    found = synthetic(mechanism, range(1), 1_000, generator())
    again = synthetic(mechanism.mechanism, range(1), 1_000, generator())
    assert len(found.answers) == 1
    assert [c.tolist() for c in found.columns] == [c.tolist() for c in again.columns]


# ---------------------------------------------------------------- from a histogram


def test_rows_of_weights_follow_their_histogram_and_promise_nothing() -> None:
    cells, accuracy = universe_of(2, 2), Accuracy(0.1, 0.05)
    mechanism = GrowingWeights(cells, accuracy, Concentrated(Privacy(1.0, 1e-6)))
    run = Drive(cells, mechanism, QuickNoise(1))
    run.open([1, 0, 0, 0], 10**5)
    for _ in range(20):
        run.ask(run.query([1, 0, 0, 0]))
    found = synthetic(mechanism, range(1), 10_000, generator())
    both = shares(found.columns, (0, 1), cells.shape).reshape(-1)
    assert both == pytest.approx(mechanism.shares, abs=4 / 10_000)
    assert both[0] > 0.8
    assert (found.answers, dict(found.fitted)) == ((), {})
    with pytest.raises(ValueError, match="nothing that rows could follow"):
        synthetic(mechanism, range(0), 10, generator())


def test_rows_of_the_gated_mechanism_follow_its_set() -> None:
    cells = universe_of(2, 2)
    mechanism = Gated(cells, Privacy(1.0, 1e-6), Accuracy(0.05, 0.05), segments=20)
    run = Drive(cells, mechanism, QuickNoise(1))
    run.open([1, 0, 0, 0], 10**6)
    run.open([0, 0, 0, 1], 3 * 10**6)
    for phase in range(2):
        for cell in np.eye(4):
            run.ask(run.query(cell, range(phase, phase + 1)))
    found = synthetic(mechanism, range(2), 1_000, generator())
    both = shares(found.columns, (0, 1), cells.shape).reshape(-1)
    assert both == pytest.approx([0.25, 0, 0, 0.75], abs=0.05)
    assert found.n_rows == 4 * 10**6


def test_rows_of_a_whole_table_are_within_its_gap_of_the_truth() -> None:
    cells = universe_of(3, 2)
    mechanism = WholeTable(cells, Privacy(1.0, 1e-9), Accuracy(0.1, 1e-6))
    run = Drive(cells, mechanism, QuickNoise(1))
    with pytest.raises(ValueError, match="no table"):
        synthetic(mechanism, range(1), 10, generator())
    run.open([5, 3, 0, 0, 1, 1], 1_000)
    found = synthetic(mechanism, range(1), 1_000, generator())
    truth = run.data.marginal((0, 1), range(1))[0] / 1_000
    gap = found.fitted[0, 1]
    assert np.abs(shares(found.columns, (0, 1), cells.shape) - truth).max() <= gap.error
    assert 0.0 < gap.distance < gap.error < 0.1
    for _ in range(3):
        run.open([0, 0, 1, 0, 0, 0], 2**62)
    found = synthetic(mechanism, range(1, 4), 1_000, generator())
    of_each = shares(found.columns, (0, 1), cells.shape).ravel()
    assert of_each.tolist() == [0, 0, 1, 0, 0, 0], "more rows than 64 bits can hold"


# ---------------------------------------------------------------- from the belief


class Published:
    """A calibrated data set of one phase or more, as far as it is public, and the truth beside it."""

    def __init__(self, universe: Universe, noise: NoiseSource, **settings: Any) -> None:
        self.shape = universe.shape
        self.mechanism = Calibrated(
            universe, Privacy(1.0, 1e-9), Accuracy(0.02, 1e-6), CalibratedSettings(**settings)
        )
        self.columns: Columns = [np.empty(0, dtype=np.int64) for _ in self.shape]
        self._universe, self._noise, self._data = universe, noise, Blocks(universe)

    def open(self, columns: Columns, *, lost: bool = False) -> None:
        codes = zip(columns, self._universe.attributes, strict=True)
        block = Block.seal(self._universe, Rows(tuple(c.astype(a.dtype) for c, a in codes)))
        self._data.append(block)
        both = zip(self.columns, columns, strict=True)
        self.columns = [np.concatenate([old, new]) for old, new in both]
        for look in self.mechanism.open_phase(block.n_rows):
            self.mechanism.charged(look.charges)
            if lost:
                self.mechanism.lost(look.description)
            else:
                self.mechanism.absorb(look.take(self._noise, self._data))

    def rows(self, n_rows: int, seed: int = 1, phases: int = 1) -> Synthetic:
        return synthetic(self.mechanism, range(phases), n_rows, generator(seed))

    def truth(self, *attributes: int) -> Any:
        return shares(self.columns, attributes, self.shape)


@pytest.fixture
def publish() -> Callable[..., Published]:
    """``publish(2, 3, seed=1)``: without a phase yet, of attributes with so many cells."""

    def publish(*sizes: int, seed: int = 1, **settings: Any) -> Published:
        return Published(universe_of(*sizes), QuickNoise(seed), **settings)

    return publish


def chain(shape: tuple[int, ...], n_rows: int, seed: int = 1) -> Columns:
    """Rows in which each attribute depends on the one before it."""
    rng = generator(seed)
    level = rng.random(n_rows)
    columns = []
    for size in shape:
        level = np.where(rng.random(n_rows) < 0.7, level, rng.random(n_rows) ** 2)
        columns.append(np.minimum((level * size).astype(np.int64), size - 1))
    return columns


def test_every_published_table_is_within_its_gap_of_the_truth(
    publish: Callable[..., Published],
) -> None:
    """At a failure probability of 1e-6 for all tables and all cells at once."""
    published = publish(4, 3, 5, 2, 6, 3, 4, 2, 2)
    for phase in range(2):
        published.open(chain(published.shape, 30_000, seed=phase))
    found = published.rows(5_000, phases=2)
    n = len(published.shape)
    assert found.n_rows == 60_000
    assert {*found.fitted, *found.others} == {
        *((a,) for a in range(n)),
        *combinations(range(n), 2),
    }
    for attributes, gap in [*found.fitted.items(), *found.others.items()]:
        rows = shares(found.columns, attributes, published.shape)
        assert np.abs(rows - published.truth(*attributes)).max() <= gap.error
    # What they were fitted to they match up to noise and rounding.
    assert max(gap.distance for gap in found.fitted.values()) < 0.004
    assert max(gap.error_bar for gap in found.fitted.values()) < 0.02


def test_rows_keep_what_attributes_say_together(
    publish: Callable[..., Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a chain the neighbours depend on each other most; without edges they would be far off."""

    def worst() -> float:
        found = published.rows(10_000)
        pairs = combinations(range(4), 2)
        return max(
            float(np.abs(shares(found.columns, p, published.shape) - published.truth(*p)).max())
            for p in pairs
        )

    published = publish(4, 4, 4, 4)
    published.open(chain(published.shape, 100_000))
    assert worst() < 0.01
    monkeypatch.setattr("stream_dp.core.synthetic.cliques._together", lambda *_: None)
    assert worst() > 0.05


def test_the_strongest_dependence_wins_where_not_all_fit_in(
    publish: Callable[..., Published],
) -> None:
    """Three attributes of 20 cells are too many for one clique: the two weak pairs with the third lose."""
    rng = generator()
    n_rows = 200_000
    first = rng.integers(20, size=n_rows)
    second = np.where(rng.random(n_rows) < 0.9, first, rng.integers(20, size=n_rows))
    third = np.where(rng.random(n_rows) < 0.3, second, rng.integers(20, size=n_rows))
    published = publish(20, 20, 20)
    published.open([first, second, third])
    found = published.rows(10_000)
    assert (0, 1) in found.fitted
    assert (1, 2) in found.fitted
    assert set(found.others) == {(0, 2)}


def test_noise_alone_joins_hardly_anything(publish: Callable[..., Published]) -> None:
    """Of 276 pairs of independent attributes 1% is joined: 11 or more with probability 2e-4."""
    published = publish(*[2, 3, 4, 8] * 6, base_share=0.7)
    published.open(
        [generator(a).integers(size, size=30_000) for a, size in enumerate(published.shape)]
    )
    found = published.rows(100)
    assert len(found.others) > 276 - 11
    # Attributes that do depend on each other are joined.
    published = publish(*[2, 3, 4, 8] * 6, base_share=0.7)
    published.open(chain(published.shape, 30_000))
    assert len(published.rows(100).others) < 276 - 23


def test_the_rows_are_as_many_as_asked_for_and_follow_from_the_generator(
    publish: Callable[..., Published],
) -> None:
    published = publish(4, 3, 5)
    published.open(chain(published.shape, 20_000))
    for n_rows in (1, 2, 97, 5_000):
        first, again, other = (published.rows(n_rows, seed) for seed in (1, 1, 2))
        assert [column.shape for column in first.columns] == [(n_rows,)] * 3
        as_lists = [[column.tolist() for column in one.columns] for one in (first, again, other)]
        assert as_lists[0] == as_lists[1]
        assert as_lists[0] != as_lists[2] or n_rows < 3
    with pytest.raises(ValueError, match="rows"):
        published.rows(0)


@pytest.mark.parametrize("sizes", [(2,), (700, 2), (2,) * 64])
def test_any_number_of_attributes_is_served(
    sizes: tuple[int, ...], publish: Callable[..., Published]
) -> None:
    published = publish(*sizes, base_share=0.7)
    published.open(chain(published.shape, 5_000))
    found = published.rows(1_000)
    assert len(found.columns) == len(sizes)
    for attribute, size in enumerate(sizes):
        column = found.columns[attribute]
        assert 0 <= column.min() <= column.max() < size
        far = shares(found.columns, (attribute,), sizes) - published.truth(attribute)
        assert np.abs(far).max() <= found.fitted[(attribute,)].error


def test_where_nothing_was_published_the_rows_are_uniform_and_nothing_is_promised(
    publish: Callable[..., Published],
) -> None:
    published = publish(4, 2, base_share=0.0)
    published.open(chain(published.shape, 5_000))
    found = published.rows(800)
    assert (dict(found.fitted), dict(found.others)) == ({}, {})
    assert shares(found.columns, (0, 1), published.shape) == pytest.approx(
        np.full((4, 2), 1 / 8), abs=0.02
    )


def test_a_phase_whose_tables_were_lost_is_left_out(publish: Callable[..., Published]) -> None:
    published = publish(4, 3)
    published.open(chain(published.shape, 20_000))
    published.open(chain(published.shape, 10_000), lost=True)
    found = published.rows(1_000, phases=2)
    assert (found.window, found.n_rows) == (range(1), 20_000)
    assert set(found.fitted) == {(0,), (1,), (0, 1)}
    published.open(chain(published.shape, 30_000))  # which makes up for it
    assert published.rows(1_000, phases=3).window == range(3)


def test_the_rows_follow_from_what_was_published_alone(publish: Callable[..., Published]) -> None:
    """From the published tables, folded somewhere else, the same rows come."""
    published = publish(4, 3, 5)
    published.open(chain(published.shape, 20_000))
    original = published.mechanism.state.belief.tables
    pairs = list(combinations(range(3), 2))
    copy = ResidualMemory(published.shape)
    copy.open_block(20_000)
    assert model_of(copy, published.shape, range(1)).fitted == frozenset()
    for pair in pairs:
        view = original.view(pair, range(1))
        counts = view.spectrum[1:, 1:] + view.spectrum[1:, :1] / published.shape[pair[1]]
        counts += view.spectrum[:1, 1:] / published.shape[pair[0]]
        counts += 20_000 / counts.size
        copy.absorb(pair, 0, counts, float(view.variances[3]))
    model = model_of(copy, published.shape, range(1))
    columns = drawn(model.conditionals, 5_000, generator())
    for pair in pairs:
        far = shares(columns, pair, published.shape) - published.truth(*pair)
        assert np.abs(far).max() < 0.01


# ---------------------------------------------------------------- where few of the rows count


def of_persons(seed: int, deviation: float) -> tuple[ResidualMemory, npt.NDArray[np.float64]]:
    """Published tables of a phase in which 3,000 of 9,000 rows count; and the share of each pair of cells."""
    rng, tables = np.random.default_rng(seed), ResidualMemory((3, 2), total_known=False)
    counts = np.array([[1500.0, 300.0], [600.0, 0.0], [0.0, 600.0]])
    tables.open_block(9000)
    for attributes, exact in (
        ((0,), counts.sum(axis=1)),
        ((1,), counts.sum(axis=0)),
        ((0, 1), counts),
    ):
        tables.absorb(attributes, 0, exact + rng.normal(0.0, deviation, exact.shape), deviation**2)
    return tables, counts / counts.sum()


def test_rows_follow_shares_of_the_rows_that_count() -> None:
    """As shares of all rows, they would be spread over all cells until the numbers fit."""
    tables, exact = of_persons(1, 5.0)
    found = SmallTables(range(1), (3, 2), tables, 0.05).rows(20_000, generator())
    assert found.n_rows == 9000, "the public number"
    np.testing.assert_allclose(shares(found.columns, (0, 1), (3, 2)), exact, atol=0.01)
    assert max(gap.distance for gap in found.fitted.values()) < 0.01


def test_their_gaps_take_in_that_the_number_of_rows_that_count_is_estimated() -> None:
    """All shares that the noise of a cell and of that number allow together, found one by one."""
    tables, _ = of_persons(1, 60.0)
    found = SmallTables(range(1), (3, 2), tables, 0.05).rows(2000, generator())
    view = tables.view((0,), range(1))
    cells, rows = view.spectrum[1:] + view.total / 3, view.total
    of_rows, of_residual = view.variances
    z = norm.isf(0.05 / (3 + 2 + 6) / 2)
    possible = np.linspace(-1.0, 2.0, 300_001)
    deviation = np.sqrt((1 / 3 - possible) ** 2 * of_rows + 2 / 3 * of_residual)
    bars = []
    for count in cells:
        inside = possible[np.abs(count - possible * rows) <= z * deviation]
        bars.append(np.abs(inside - count / rows).max())
    assert found.fitted[0,].error_bar == pytest.approx(max(bars), abs=2e-5)
    as_if_public = z * math.sqrt(of_rows / 9 + 2 / 3 * of_residual) / rows
    assert found.fitted[0,].error_bar != pytest.approx(as_if_public, rel=0.01)


# ---------------------------------------------------------------- whole rows


def test_rounding_is_unbiased_and_within_its_bound() -> None:
    """2,000 roundings of 30 cells to 100 rows; a bound at 1e-6 that no one share passes."""
    rng = generator(2)
    wanted = rng.dirichlet(np.ones(30))
    left = 100 - int(np.floor(100 * wanted).sum())
    chosen = rng.random(30) < 0.5
    found = []
    for _ in range(2_000):
        counts = whole_rows(wanted, 100, rng)
        assert counts.sum() == 100
        assert np.all(np.abs(counts - 100 * wanted) < left + 1)
        found.append(counts[chosen].sum() / 100)
    bound = math.sqrt(left * math.log(2 / 1e-6) / 2) / 100
    assert np.max(np.abs(np.array(found) - wanted[chosen].sum())) <= bound
    assert np.mean(found) == pytest.approx(wanted[chosen].sum(), abs=bound / 10)
    assert left < 30


def test_cells_are_off_by_less_than_a_row_and_columns_by_hardly_more() -> None:
    """200 groups: rounded each by itself, they would leave a cell's column off by some four rows."""
    rng = generator(3)
    given = rng.dirichlet(np.ones(4), 200)
    given[:50, 0], given[:50, 1] = 0.0, given[:50, 0] + given[:50, 1]
    model = [Conditional(1, (), rng.dirichlet(np.ones(200))), Conditional(0, (1,), given)]
    for n_rows in (150, 1_007, 50_000):
        child, parent = drawn(model, n_rows, rng)
        counts = np.zeros((200, 4), dtype=np.int64)
        np.add.at(counts, (parent, child), 1)
        assert np.abs(counts.sum(axis=1) - n_rows * model[0].shares).max() < 1
        off = counts - counts.sum(axis=1)[:, None] * given
        assert np.abs(off).max() < 1
        assert np.abs(np.cumsum(off, axis=0)).max() < 2
        assert counts[:50, 0].sum() == 0


def test_within_equal_parents_values_meet_other_attributes_at_random() -> None:
    """Two children of one parent are independent given it: 1,000 rows, at 5 standard deviations."""
    half = np.full((1, 2), 0.5)
    model = [Conditional(0, (), np.ones(1)), Conditional(1, (0,), half), Conditional(2, (0,), half)]
    _, one, other = drawn(model, 1_000, generator(4))
    assert one.sum() == other.sum() == 500
    assert 0 < abs(int((one & other).sum()) - 250) < 5 * math.sqrt(1_000 / 16)
