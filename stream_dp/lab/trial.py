"""Tries mechanisms on synthetic rows with a stream of queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.accountant import UNITS, Charge, Lines, summed
from stream_dp.core.mechanism import Look, Mechanism, Release
from stream_dp.core.outcome import Answered, Difficulty, Outcome, Path, Summed, TableAnswered
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.sparse_vector.bypass import Bypass
from stream_dp.core.sparse_vector.composition import Basic, Concentrated, composition_of
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.synthetic_stream import queries, resampled_rows, synthetic_rows
from stream_dp.profiles.advice import FOR_PERSONS, Name, Need, Trial, made_calibrated

MOST_QUERIES: Final = 1_200
"""The queries of a trial, unless the caller says otherwise."""
_MOST_OF_PERSONS: Final = 400
"""The same where persons are protected: there each query takes several times as long, and units are tried."""
_MOST_CELLS: Final = 2**14
_SEED: Final = 1


Promised: TypeAlias = Answered | TableAnswered | Summed


def promised(outcome: Outcome) -> Promised | None:
    """Returns an outcome that is an answer with an error bar that it promises, and None for others."""
    if isinstance(outcome, Promised) and outcome.path is not Path.UNVERIFIED:
        return outcome
    return None


class Driven:
    """A mechanism whose looks are charged before they are taken, as in the pipeline.

    Attributes:
        lines: What was charged to each block.
        looks: The number of queries that asked for a look.
    """

    def __init__(self, mechanism: Mechanism, noise: NoiseSource) -> None:
        self.mechanism = mechanism
        self.looks = 0
        self.lines = Lines()
        self._noise = noise

    def open_phase(self, n_rows: int, data: Blocks) -> None:
        self.lines.open()
        self._take_all(self.mechanism.open_phase(n_rows), data)
        self._take_all(self.mechanism.opened(), data)
        self._take_all(self.mechanism.growth(), data)

    def ask(self, query: LinearQuery, data: Blocks) -> Outcome:
        step, paid = self.mechanism.answer(query), list[Charge]()
        while not isinstance(step, Outcome):
            self.looks += 1
            paid += step.charges
            step = self.mechanism.conclude(query, step, self.take(step, data))
        self._take_all(self.mechanism.was_asked(query, summed(paid)), data)
        return step

    def spent_share(self) -> float:
        """The highest share of any block's line that was spent."""
        return 1.0 - float(self.lines.left().min()) / UNITS

    def _take_all(self, looks: Sequence[Look], data: Blocks) -> None:
        for look in looks:
            self.take(look, data)

    def charge(self, charges: tuple[Charge, ...]) -> None:
        """Records what was spent."""
        self.mechanism.charged(charges)
        self.lines.charge(charges)

    def take(self, look: Look, data: Blocks) -> Release:
        """Charges a look, takes it, and folds its release in."""
        look.reserve(self._noise)
        self.charge(look.charges)
        release = look.take(self._noise, data)
        self.mechanism.absorb(release)
        return release


class ExactCounts:
    """Exact answers from marginals that are kept: fast enough to score every query."""

    def __init__(self, data: Blocks) -> None:
        self._data = data
        self._tables: dict[tuple[tuple[int, ...], int, int], npt.NDArray[np.int64]] = {}

    def count(self, query: LinearQuery) -> int:
        predicate, window = query.predicate, query.window
        key = (predicate.attributes, window.start, window.stop)
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) > 2000:
                self._tables.clear()
            counts = self._data.marginal(predicate.attributes, window)
            table = self._tables[key] = counts.sum(axis=0)
        return int(table[predicate.mask].sum())


@dataclass
class _Score:
    """One mechanism's answers so far."""

    driven: Driven
    asked: int = 0
    opening: float = 0.0
    within: int = 0
    missed: int = 0
    easy: int = 0

    def ask(self, query: LinearQuery, data: Blocks, exact: int, margin: float) -> None:
        """Asks a count, and compares it with the exact one."""
        outcome = self._answered(query, data)
        if isinstance(outcome, Answered):
            is_within = abs(outcome.count - exact) <= margin
            self.within += is_within
            self.missed += not is_within

    def ask_tile(self, query: LinearQuery, data: Blocks) -> None:
        """Asks a tile. It counts as within the error if the answer promises that."""
        self.within += self._answered(query, data) is not None

    def _answered(self, query: LinearQuery, data: Blocks) -> Promised | None:
        self.asked += 1
        outcome = promised(self.driven.ask(query, data))
        self.easy += outcome is not None and outcome.path.difficulty is Difficulty.EASY
        return outcome

    def result(self) -> Trial:
        """What the trial has shown."""
        return Trial(
            asked=self.asked,
            within=self.within,
            missed=self.missed,
            easy=self.easy,
            opening=self.opening,
            spent=self.driven.spent_share(),
        )


def trial(
    need: Need,
    names: Sequence[Name],
    *,
    sample: Rows | None = None,
    most: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> dict[Name, Trial]:
    """Asks mechanisms the same queries, spread evenly over the phases. The draws are the same every time.

    Tiles are asked after each phase, before the other queries.

    Args:
        need: The need of the data set.
        names: The mechanisms to try. One that keeps every cell is skipped if there are many cells.
        sample: Public rows to draw from. None makes synthetic rows.
        most: The largest number of queries in all. None takes as many as tell what more would.
        tick: A function that is called after each phase.
    """
    if most is None:
        most = MOST_QUERIES if need.privacy.unit is None else _MOST_OF_PERSONS
    most = min(need.queries, most)
    rng = np.random.default_rng(_SEED)
    made = {name: _mechanism(need, name) for name in names}
    scores = {
        name: _Score(Driven(mechanism, SeededNoise(np.random.default_rng([_SEED, number]))))
        for number, (name, mechanism) in enumerate(made.items())
        if mechanism is not None
    }
    data = Blocks(need.universe)
    for phase in range(1, need.phases + 1):
        data.append(drawn_block(need, rng, sample))
        n = most * phase // need.phases - most * (phase - 1) // need.phases
        asked = queries(need.universe, rng, phase=phase, n=n, workload=need.workload)
        _ask_in_phase(need, phase, data, list(asked), list(scores.values()))
        tick()
    return {name: score.result() for name, score in scores.items()}


def _ask_in_phase(
    need: Need,
    phase: int,
    data: Blocks,
    asked: Sequence[LinearQuery],
    scores: Sequence[_Score],
) -> None:
    """Opens a phase of each mechanism, and asks the tiles and the queries."""
    for score in scores:
        score.driven.open_phase(need.n_rows, data)
        if phase == 1:
            score.opening = score.driven.spent_share()
    for tile in need.tiles:
        window = range(max(0, phase - (tile.phases or phase)), phase)
        for score in scores:
            score.ask_tile(replace(tile.query, window=window), data)
    truth = ExactCounts(data)
    for query in asked:
        exact = truth.count(query)
        margin = need.accuracy.error * need.counted * len(query.window)
        for score in scores:
            score.ask(query, data, exact, margin)


def drawn_block(need: Need, rng: np.random.Generator, sample: Rows | None) -> Block:
    """The rows of one phase, drawn at random. Where persons are protected, some of them are blank.

    Those that count are drawn like all others: which rows of a person count follows from no content.

    Args:
        need: The need of the data set.
        rng: The source of the draws.
        sample: Public rows to draw from. None makes synthetic rows.
    """
    if sample is None:
        rows = synthetic_rows(need.universe, rng, need.counted)
    else:
        rows = resampled_rows(sample, rng, need.counted)
    block = Block.seal(need.universe, rows)
    if need.privacy.unit is None:
        return block
    return replace(block, n_rows=need.n_rows)


def _mechanism(need: Need, name: Name) -> Mechanism | None:
    if need.privacy.unit is not None and name not in FOR_PERSONS:
        return None
    match name:
        case Name.CALIBRATED | Name.UNDECLARED | Name.WITHOUT_BASE:
            return made_calibrated(need, name)
        case Name.COUNTS:
            return FreshCounts(need.universe, need.accuracy, Concentrated(need.privacy))
        case Name.PURE_COUNTS:
            return FreshCounts(need.universe, need.accuracy, Basic(need.privacy))
        case Name.TABLE if need.universe.n_cells <= _MOST_CELLS:
            return WholeTable(need.universe, need.privacy, need.accuracy)
        case Name.BYPASS if need.universe.n_cells <= _MOST_CELLS:
            return Bypass(need.universe, need.accuracy, composition_of(need.privacy))
    return None
