"""Recommends a mechanism for a schema, a row rate, an accuracy and a number of queries, before rows exist.

Every price comes from the mechanism that would charge it; what is worked out here is only how many such
prices a line adds up to. Queries are spread evenly over the phases: after each, half of them are about all
rows so far, half about the last 1 to ``RECENT`` phases. All phases have the same number of rows.

What a calibrated data set spends depends on the queries, and so only a trial tells (``lab.trial``). The same
holds for tiles: a trial asks each of them after each phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import UNITS, Budget, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy, as_written
from stream_dp.core.kinds.kind_answerer import loss_of
from stream_dp.core.kinds.median_mode.stable_law import StablePlan
from stream_dp.core.kinds.threshold.count_tree import Tree, TreePlan
from stream_dp.core.median.formulas import harmonic, hypothesis_rows
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phase_constants import min_rows_as_printed
from stream_dp.core.median.phased import Phased
from stream_dp.core.median.sequential import Median, Sequential, least_composition
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import MAX_SCALE
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.attributes import Boolean
from stream_dp.core.rows.encoded_rows import MAX_ROWS
from stream_dp.core.rows.universe import Universe, check_kept_cells
from stream_dp.core.sparse_vector.composition import (
    Basic,
    Composition,
    Concentrated,
    composition_of,
)
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.predicate_mechanism import PredicateMechanism
from stream_dp.core.sparse_vector.weights import GrowingWeights
from stream_dp.errors import InvalidDefinition

RECENT: Final = 6
SERVES: Final = 0.99
"""Part of the queries from which on a mechanism counts as serving them."""

_ANY_UNIVERSE: Final = Universe((Boolean("any"),))
_ANY_QUERY: Final = LinearQuery(Predicate.conjunction({0: np.array([True, False])}), range(1))
_MOST_QUERIES: Final = 10**15
_ERRORS: Final = (1e-9, 0.89)
_STABLE_SHARE: Final = 0.1
"""One look for an exact median is planned at this share of a line."""

Fields: TypeAlias = Mapping[str, object]
Workload: TypeAlias = Literal["conjunctions", "predicates", "thresholds"]
"""Conditions on 1 to 3 attributes that all hold; any sets of their cells; "at most" on the one attribute."""


class Name(StrEnum):
    """A mechanism, as people are told of it."""

    CALIBRATED = "calibrated"
    UNDECLARED = "calibrated (not declared)"
    WITHOUT_BASE = "calibrated (no base)"
    COUNTS = "counts"
    PURE_COUNTS = "counts (delta 0)"
    TABLE = "whole_table"
    BYPASS = "bypass"
    WEIGHTS = "weights"
    GATED = "gated"
    MEDIAN = "median"
    SEQUENTIAL = "sequential"
    MEMORY = "memory"
    TREE = "kind threshold"
    STABLE = "kind median"


@dataclass(frozen=True)
class Need:
    """The demands on a data set.

    Attributes:
        universe: The possible rows. For thresholds, those of the one ordered attribute.
        n_rows: The rows of each phase.
        phases: The number of phases in the life of the data set.
        queries: The number of different queries in the life of the data set, apart from tiles.
        workload: The kind of the queries.
        tiles: What is asked after each phase, about a window that ends with it.
        n_counted: The rows of each phase that count, where persons are protected. None if that may be all.
    """

    universe: Universe
    privacy: Privacy
    accuracy: Accuracy
    n_rows: int
    phases: int
    queries: int
    workload: Workload = "conjunctions"
    tiles: tuple[PlannedTile, ...] = ()
    n_counted: int | None = None

    @property
    def counted(self) -> int:
        """The rows of each phase that count, at most."""
        return self.n_rows if self.n_counted is None else self.n_counted

    def with_rows(self, n_rows: int) -> Need:
        """The same with phases of ``n_rows`` rows, of which the same share counts."""
        counted = self.n_counted and max(1, self.n_counted * n_rows // self.n_rows)
        return replace(self, n_rows=n_rows, n_counted=counted)

    @property
    def asked(self) -> int:
        """All different queries in the life of the data set, tiles included."""
        return self.queries + len(self.tiles) * self.phases

    @property
    def pure(self) -> bool:
        """Whether the promise is epsilon alone."""
        return self.privacy.delta == 0.0

    def with_error(self, error: float) -> Need:
        return replace(self, accuracy=Accuracy(error, self.accuracy.failure_probability))


@dataclass(frozen=True)
class Trial:
    """The result of a mechanism on a stream of queries that was drawn publicly.

    Attributes:
        asked: The number of queries.
        within: The number of these that are answered within the error.
        missed: The number of these that are answered, but further off.
        easy: The number of these that are answered without a look.
        opening: The part of a line that opening a phase takes.
        spent: The part of the fullest line that was spent at the end.
    """

    asked: int
    within: int
    missed: int
    easy: int
    opening: float
    spent: float


@dataclass(frozen=True)
class Estimate:
    """An estimate of what one mechanism can do for a need.

    Attributes:
        part: The share of the queries that it surely answers within the error. None if only a trial tells.
        share: The share of the fullest line that all queries take. Above 1 it is what they would take. None
            if unknown.
        error: The least error that it can promise to all queries, as a share of the rows. None if there is
            none or only a trial tells.
        rows: The least rows a phase with which it can promise the error to all queries. None as for
            ``error``. If a mechanism of the papers cannot be run, the number is the one that they print.
        queries: The most queries that it surely affords. None if their number does not matter.
        opening: The part of a line that opening a phase takes.
        definition: The fields of a definition under which a data set does this. Empty if there is a problem.
        problem: The reason why it cannot serve at all. None if it can.
        distance: The number of rows that must be replaced to change an answer, if the answer is to be
            released (stable median).
    """

    name: Name
    part: float | None = 0.0
    share: float | None = None
    error: float | None = None
    rows: int | None = None
    queries: int | None = None
    opening: float = 0.0
    definition: Fields = field(default_factory=dict)
    problem: str | None = None
    distance: int | None = None

    @property
    def serves(self) -> bool:
        return self.part is not None and self.part >= SERVES

    def tried(self, trial: Trial, need: Need) -> Estimate:
        """Returns the estimate with what a trial showed, as if all queries were like those that it asked.

        Looks cost as much as they did until the line is full; easy queries are answered to the end. The trial
        overrules a formula for the least error or rows that says the opposite about the need's own.
        """
        asked = max(1, trial.asked)
        wanted = (trial.spent - trial.opening) / asked * need.asked
        afforded = min(1.0, (1.0 - trial.opening) / wanted) if wanted else 1.0
        hard = trial.within + trial.missed - trial.easy
        found = replace(
            self,
            part=(trial.easy + hard * afforded) / asked,
            share=trial.opening + wanted,
            opening=trial.opening,
        )
        error, rows = found.error, found.rows
        if found.serves:
            error = None if error is None else min(error, need.accuracy.error)
            rows = None if rows is None else min(rows, need.n_rows)
        elif error is not None and error <= need.accuracy.error:
            error = rows = None
        return replace(found, error=error, rows=rows)


def estimates(need: Need) -> tuple[Estimate, ...]:
    """Every mechanism that could be meant, in the order in which they are shown."""
    names: tuple[Name, ...]
    if need.tiles:
        names = (*FOR_PERSONS, Name.PURE_COUNTS if need.pure else Name.COUNTS)
    else:
        names = tuple(
            name
            for name in Name
            if (need.workload == "thresholds" or name not in {Name.TREE, Name.STABLE})
            and name is not Name.UNDECLARED
        )
    return tuple(_estimate(need, name) for name in names)


def _estimate(need: Need, name: Name) -> Estimate:
    if need.privacy.unit is not None and name not in FOR_PERSONS:
        return Estimate(name, problem=_ROWS_ONLY)
    return (_estimate_of_tiles if need.tiles else _estimate_of_queries)(need, name)


def _estimate_of_queries(need: Need, name: Name) -> Estimate:
    if need.pure and name not in {Name.PURE_COUNTS, Name.BYPASS, Name.WEIGHTS}:
        return Estimate(name, problem="its promise needs a delta above 0")
    try:
        return _ESTIMATES[name](need)
    except InvalidDefinition as fault:
        return Estimate(name, problem=fault.problem)


def _estimate_of_tiles(need: Need, name: Name) -> Estimate:
    """Only a trial tells what tiles take, because one often makes another one free."""
    if need.pure and name is not Name.PURE_COUNTS:
        return Estimate(name, problem="its promise needs a delta above 0")
    if name in {Name.COUNTS, Name.PURE_COUNTS}:
        return Estimate(name, part=None, definition={"mechanism": {"profile": "counts"}})
    settings: Fields = {"profile": "calibrated"}
    if name is Name.WITHOUT_BASE:
        settings = _settings_without_base(need)
    elif need.queries:
        settings = {**settings, **_expecting(need)}
    mechanism = made_calibrated(need, name)
    return Estimate(
        name,
        part=None,
        opening=mechanism.opening_units(need.counted) / UNITS,
        definition={"mechanism": settings},
    )


def made_calibrated(need: Need, name: Name) -> Calibrated:
    """The calibrated mechanism that is meant by a name."""
    declared = bool(need.tiles) and name is Name.CALIBRATED
    settings = CalibratedSettings(
        base_share=0.0 if name is Name.WITHOUT_BASE else None,
        queries_per_phase=None if need.tiles and not need.queries else queries_per_phase(need),
        pacing=name is Name.WITHOUT_BASE and need.phases > 1,
        tiles=need.tiles if declared else (),
    )
    return Calibrated(need.universe, need.privacy, need.accuracy, settings)


def recommended(found: Sequence[Estimate]) -> Estimate:
    """The one to use: of those that serve the one that takes least of a line, else the one that answers most.

    Of equal ones it is the first.
    """
    serving = [estimate for estimate in found if estimate.serves]
    if serving:
        return min(serving, key=lambda estimate: 1.0 if estimate.share is None else estimate.share)
    return max((e for e in found if e.problem is None), key=lambda e: e.part or 0.0)


def least_error(need: Need) -> float | None:
    """The least error of one single query about one phase, with all of its line.

    Where persons are protected it is a share of the rows that count.
    """
    if need.privacy.unit is not None:
        return _least_error(need, _one_count_of_persons)
    return _least_error(*_one_count(need))


def least_rows(need: Need) -> int | None:
    """The least rows of a phase about which one single query can be answered, with all of its line."""
    if need.privacy.unit is not None:
        return _least(1, MAX_ROWS, lambda n: _one_count_of_persons(need.with_rows(n)) <= 1.0)
    one, share = _one_count(need)
    return _least(1, MAX_ROWS, lambda n: share(replace(one, n_rows=n)) <= 1.0)


def _one_count(need: Need) -> tuple[Need, Callable[[Need], float]]:
    return replace(need, phases=1, queries=1), partial(_of_counts, composition_of(need.privacy))


def _one_count_of_persons(need: Need) -> float:
    """Returns the share of a line that one count about one phase takes, with the look at its rows.

    Infinite if the look leaves nothing that an error could be a share of.
    """
    mechanism = made_calibrated(replace(need, queries=1, tiles=()), Name.WITHOUT_BASE)
    n_rows = mechanism.openings.margin(need.counted)
    if n_rows == 0:
        return math.inf
    sigma = need.accuracy.error * n_rows / mechanism.state.terms.z_steered
    scale = min(Fraction(sigma), MAX_SCALE)
    loss = gaussian_rho(scale, squared_sensitivity=1) / mechanism.state.promise.budget.rho
    return mechanism.state.first_looks / UNITS + float(loss)


# ---------------------------------------------------------------- lines


def windows(phase: int) -> Iterator[tuple[int, float]]:
    """Yields how many phases the queries after phase ``phase`` are about, and what part of them are."""
    yield phase, 0.5
    for last in range(1, RECENT + 1):
        yield min(last, phase), 0.5 / RECENT


def most_thresholds(need: Need) -> int:
    """Returns how many different queries about thresholds there are in the life of the data set."""
    phases = range(1, need.phases + 1)
    n_windows = sum(len({length for length, _ in windows(phase)}) for phase in phases)
    return n_windows * (need.universe.shape[0] - 1)


def _fullest(need: Need, price: Callable[[int], float]) -> float:
    """Returns the share of the fullest line that all queries take.

    Args:
        need: The need of the data set.
        price: The share of each line that one query about a number of phases takes.
    """
    prices = [0.0, *(price(length) for length in range(1, need.phases + 1))]
    if math.isinf(max(prices)):
        return math.inf
    steps = np.zeros(need.phases + 1)
    for phase in range(1, need.phases + 1):
        for length, part in windows(phase):
            steps[phase - length] += part * prices[length]
            steps[phase] -= part * prices[length]
    return need.queries / need.phases * float(np.cumsum(steps).max())


def _quoted(mechanism: PredicateMechanism, n_rows: int) -> float:
    """Returns the share of each line that a new query about ``n_rows`` rows takes.

    Infinite if a line cannot pay it.
    """
    mechanism.open_phase(n_rows)
    quote = mechanism.quote(_ANY_QUERY)
    return quote.charges[0].rho / UNITS if quote.outcome is None else math.inf


def _part_of_windows(need: Need, served: Callable[[int, int], bool]) -> float:
    """Part of the queries about a window that is served, told by its phases and the newest phase."""
    parts = (
        part
        for phase in range(1, need.phases + 1)
        for length, part in windows(phase)
        if served(length, phase)
    )
    return math.fsum(parts) / need.phases


# ---------------------------------------------------------------- searches


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The least number from ``low`` on that holds; None where not even ``high`` does."""
    if not holds(high):
        return None
    return least(range(low, high), holds)


def _least_error(need: Need, share: Callable[[Need], float]) -> float | None:
    low, high = _ERRORS
    if share(need.with_error(high)) > 1.0:
        return None
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        if share(need.with_error(middle)) <= 1.0:
            high = middle
        else:
            low = middle
    return high


def _afforded(queries: int, share: float) -> int:
    """Returns how many queries a line can afford if this many take ``share`` of it."""
    return min(_MOST_QUERIES, math.floor(queries / share))


# ---------------------------------------------------------------- mechanisms


def _calibrated(need: Need) -> Estimate:
    """Rows and error are those from which on a base release alone can certify all generic queries."""
    mechanism = made_calibrated(need, Name.CALIBRATED)
    product, error = mechanism.openings.certifying_product(), need.accuracy.error
    rows = _least(
        1,
        MAX_ROWS,
        lambda n: mechanism.openings.margin(need.with_rows(n).counted) * error >= product,
    )
    return Estimate(
        Name.CALIBRATED,
        part=None,
        error=certified_error(need),
        rows=rows,
        opening=mechanism.opening_units(need.counted) / UNITS,
        definition={"mechanism": {"profile": "calibrated"} | _expecting(need)},
    )


def certifying_rows(need: Need) -> float:
    """The rows by which noise may move a query about one phase, if all of its line certifies every query."""
    return made_calibrated(need, Name.CALIBRATED).openings.certifying_product()


def certified_error(need: Need) -> float | None:
    """The least error that a base release can promise to every generic query, with all of a line.

    It is a share of the rows that count. None if there is none.
    """
    mechanism = made_calibrated(need, Name.CALIBRATED)
    n_rows = mechanism.openings.margin(need.counted)
    return _possible(mechanism.openings.certifying_product() / n_rows) if n_rows else None


def queries_per_phase(need: Need) -> int:
    """Returns the different queries in each phase, if they are spread evenly over the phases."""
    return -(-need.queries // need.phases) + len(need.tiles)


def _expecting(need: Need) -> dict[str, object]:
    return {"queries_per_phase": queries_per_phase(need)}


def _without_base(need: Need) -> Estimate:
    return Estimate(
        Name.WITHOUT_BASE, part=None, definition={"mechanism": _settings_without_base(need)}
    )


def _settings_without_base(need: Need) -> dict[str, object]:
    # Only without a base release does pacing answer more, and only where there are phases to come.
    return _NO_BASE | ({"pacing": True} if need.phases > 1 else {})


_NO_BASE: Final[dict[str, object]] = {"profile": "calibrated", "base_share": 0.0}


def _of_counts(composition: Composition, need: Need) -> float:
    def price(length: int) -> float:
        counts = FreshCounts(_ANY_UNIVERSE, need.accuracy, composition)
        return _quoted(counts, length * need.n_rows)

    return _fullest(need, price)


def _counts(need: Need) -> Estimate:
    return _by_composition(need, Name.COUNTS, Concentrated(need.privacy), {})


def _pure_counts(need: Need) -> Estimate:
    promise = {"privacy": {"epsilon": need.privacy.epsilon, "delta": 0.0}}
    return _by_composition(need, Name.PURE_COUNTS, Basic(need.privacy), promise)


def _by_composition(need: Need, name: Name, composition: Composition, promise: Fields) -> Estimate:
    share = partial(_of_counts, composition)
    wanted = share(need)
    return Estimate(
        name,
        part=min(1.0, 1.0 / wanted),
        share=wanted if math.isfinite(wanted) else None,
        error=_least_error(need, share),
        rows=_least(1, MAX_ROWS, lambda n: share(replace(need, n_rows=n)) <= 1.0),
        queries=_afforded(need.queries, wanted),
        definition={**promise, "mechanism": {"profile": "counts"}},
    )


def _weights(need: Need) -> Estimate:
    """Returns the estimate as if every query were hard."""
    check_kept_cells(need.universe.n_cells)
    composition = composition_of(need.privacy)

    def price(phase: int) -> float:
        weights = GrowingWeights(_ANY_UNIVERSE, need.accuracy, composition)
        return _quoted(weights, phase * need.n_rows)

    share = need.queries / need.phases * sum(map(price, range(1, need.phases + 1)))
    whole = _part_of_windows(need, lambda length, phase: length == phase)
    return Estimate(
        Name.WEIGHTS,
        part=whole * min(1.0, 1.0 / share),
        queries=_afforded(need.queries, share),
        definition={"mechanism": {"profile": "weights"}},
    )


def _bypass(need: Need) -> Estimate:
    check_kept_cells(need.universe.n_cells)
    return Estimate(Name.BYPASS, part=None, definition={"mechanism": {"profile": "bypass"}})


def _table(need: Need) -> Estimate:
    """Rows and error are those of the hardest predicate: half of all cells, in one phase."""
    table = WholeTable(need.universe, need.privacy, need.accuracy)
    off = table.error_bar(need.universe.n_cells // 2, 1)
    serves = off <= need.accuracy.error * need.n_rows
    return Estimate(
        Name.TABLE,
        part=1.0 if serves else None,
        share=1.0,
        error=_possible(off / need.n_rows),
        rows=math.ceil(off / need.accuracy.error),
        opening=1.0,
        definition={"mechanism": {"profile": "whole_table"}},
    )


def _possible(error: float) -> float | None:
    return error if error < 1.0 else None


def _tree(need: Need) -> Estimate:
    (n_bins,) = need.universe.shape
    budget = Budget.of(need.privacy)
    hardest = range(max(range(1, n_bins), key=int.bit_count))

    def error_bar(share: float) -> float:
        plan = TreePlan(n_bins, loss_of(budget, share, approximate=False).epsilon)
        tree = Tree.of(plan, [np.zeros(n_bins - 1, dtype=np.int64)], need.n_rows)
        return tree.error_bar_of(hardest, need.accuracy.failure_probability)

    least = error_bar(1.0)
    # A bar is as 1 / epsilon, and a price as epsilon^2.
    wanted = (least / (need.accuracy.error * need.n_rows)) ** 2
    share = math.ceil(1e4 * wanted) / 1e4
    kinds = {"threshold": {"share": min(1.0, share)}}
    return Estimate(
        Name.TREE,
        part=1.0 if wanted <= 1.0 else 0.0,
        share=share,
        error=_possible(least / need.n_rows),
        rows=math.ceil(least / need.accuracy.error),
        definition={"mechanism": _NO_BASE, "kinds": kinds},
    )


def _stable(need: Need) -> Estimate:
    """It answers another query: the exact median, or nothing."""
    budget = Budget.of(need.privacy, approximate=True)
    loss = loss_of(budget, _STABLE_SHARE, approximate=True)
    plan = StablePlan(loss.epsilon, loss.delta)
    sure = 1.0 - need.accuracy.failure_probability
    return Estimate(
        Name.STABLE,
        share=loss.charge(budget, 0).rho / UNITS,
        queries=math.floor(1.0 / _STABLE_SHARE),
        distance=_least(1, MAX_ROWS, lambda rows: plan.release_probability(rows) >= sure),
        definition={
            "mechanism": _NO_BASE,
            "kinds": {"median": {"share": _STABLE_SHARE}},
        },
    )


def _gated(need: Need) -> Estimate:
    """Returns the estimate as if every query were hard and about every phase."""

    def rows(segments: int) -> int:
        return Gated(_ANY_UNIVERSE, need.privacy, need.accuracy, segments=segments).min_rows

    check_kept_cells(need.universe.n_cells)
    beyond = _least(1, need.queries + 1, lambda n: rows(n) > need.n_rows)
    segments = need.queries if beyond is None else beyond - 1
    if segments == 0:
        return Estimate(Name.GATED, rows=rows(1), queries=0)
    return Estimate(
        Name.GATED,
        part=segments / need.queries,
        queries=segments,
        definition={"mechanism": {"profile": "gated", "segments": min(segments, 10**6)}},
    )


def _phased(need: Need, name: Name) -> tuple[Phased, dict[str, Any]]:
    """A mechanism of the papers and its settings, with whichever representation needs fewer rows.

    Raises:
        InvalidDefinition: It cannot be run with these numbers.
    """
    k = max(2, queries_per_phase(need))
    make: type[Phased] = _PAPERS[name]
    found, faults = [], []
    for representation in ("entropic", "polytope"):
        settings: dict[str, Any] = {"representation": representation}
        if name is Name.MEDIAN:
            settings["queries"] = k
        else:
            settings |= {"queries_per_phase": k, "phases": need.phases}
        try:
            mechanism = make(need.universe, need.privacy, need.accuracy, **settings)
        except InvalidDefinition as fault:
            faults.append(fault)
        else:
            found.append((mechanism, {"profile": str(name), **settings}))
    if not found:
        raise faults[0]
    return min(found, key=lambda pair: pair[0].rows_to_open)


def _papers(need: Need, name: Name) -> Estimate:
    """The median mechanism and what grew out of it, with the papers' constants."""
    if name is Name.MEDIAN and need.phases > 1:
        return Estimate(name, problem="for one table that does not grow")
    try:
        mechanism, settings = _phased(need, name)
    except InvalidDefinition as fault:
        return Estimate(name, rows=_printed_rows(need, name), problem=fault.problem)

    def share(need: Need) -> float:
        try:
            return _phased(need, name)[0].rows_to_open / need.n_rows
        except InvalidDefinition:
            return math.inf

    def served(length: int, phase: int) -> bool:
        enough = mechanism.constants.phases[phase - 1].min_rows
        return length == phase or (name is Name.MEMORY and length * need.n_rows >= enough)

    serves = mechanism.rows_to_open <= need.n_rows
    return Estimate(
        name,
        part=_part_of_windows(need, served) if serves else 0.0,
        share=1.0 if serves else None,
        error=_least_error(need, share),
        rows=mechanism.rows_to_open,
        definition={"mechanism": settings},
    )


def _printed_rows(need: Need, name: Name) -> int:
    """Rows a phase as the papers print them, for what cannot be run."""
    k, error = max(2, queries_per_phase(need)), as_written(need.accuracy.error)
    alpha, composition = as_written(need.privacy.epsilon) / harmonic(need.phases), Fraction(1)
    if name is Name.SEQUENTIAL:
        composition = least_composition(as_written(need.privacy.epsilon), k, need.phases)
    rows = hypothesis_rows(k * need.phases if name is Name.MEMORY else k, error)
    return min_rows_as_printed(need.universe.n_cells, alpha / composition, error, k, rows)


_ROWS_ONLY: Final = "it promises something to rows only"
FOR_PERSONS: Final = (Name.CALIBRATED, Name.UNDECLARED, Name.WITHOUT_BASE)
"""The mechanisms that can protect a person with many rows. They can declare tiles, too."""

_PAPERS: Final[Mapping[Name, type[Phased]]] = {
    Name.MEDIAN: Median,
    Name.SEQUENTIAL: Sequential,
    Name.MEMORY: Memory,
}
_ESTIMATES: Final[Mapping[Name, Callable[[Need], Estimate]]] = {
    Name.CALIBRATED: _calibrated,
    Name.WITHOUT_BASE: _without_base,
    Name.COUNTS: _counts,
    Name.PURE_COUNTS: _pure_counts,
    Name.TABLE: _table,
    Name.BYPASS: _bypass,
    Name.WEIGHTS: _weights,
    Name.GATED: _gated,
    **{name: partial(_papers, name=name) for name in _PAPERS},
    Name.TREE: _tree,
    Name.STABLE: _stable,
}
