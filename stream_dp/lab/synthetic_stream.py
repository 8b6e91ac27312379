"""Rows and queries to try mechanisms on, drawn from a schema alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Offsets
from stream_dp.core.rows.universe import Universe
from stream_dp.profiles.advice import RECENT, Workload

Cells: TypeAlias = npt.NDArray[np.intp]
Draw: TypeAlias = Callable[[int], Cells]

_MOST_ENTRIES: Final = 20_000
_MOST_CELLS: Final = 2**16
_COMMON: Final = 0.5
_TRIES: Final = 20


# ---------------------------------------------------------------- queries


def single_or_subset(rng: np.random.Generator) -> Draw:
    """Draws cells of an attribute of some size: one of them as often as a subset of any size below all."""

    def draw(size: int) -> Cells:
        if rng.random() < 0.5:
            return rng.integers(size, size=1)
        return np.sort(rng.choice(size, rng.integers(1, size), replace=False))

    return draw


def conjunction(universe: Universe, rng: np.random.Generator, draw: Draw) -> dict[int, Cells]:
    """Conditions on 1 to 3 attributes: the cells of each, ascending."""
    n_attributes = rng.integers(1, min(3, len(universe.shape)) + 1)
    chosen = np.sort(rng.choice(len(universe.shape), n_attributes, replace=False))
    return {int(a): draw(universe.shape[a]) for a in chosen}


def queries(
    universe: Universe, rng: np.random.Generator, *, phase: int, n: int, workload: Workload
) -> Iterator[LinearQuery]:
    """``n`` queries after phase ``phase``, half about all phases so far, half about the last few.

    No two are the same, unless there are too few. Thresholds are about the first attribute. Of a set of
    attributes that has more than 65,536 cells together the last ones are left out.
    """
    asked: set[tuple[bytes, int]] = set()
    for _ in range(n):
        for _ in range(_TRIES):
            predicate = _DRAWS[workload](universe, rng)
            whole = rng.random() < 0.5
            length = phase if whole else min(phase, int(rng.integers(1, RECENT + 1)))
            if predicate.constant is None and (predicate.key, length) not in asked:
                break
        asked.add((predicate.key, length))
        yield LinearQuery(predicate, range(phase - length, phase))


def _conjunction(universe: Universe, rng: np.random.Generator) -> Predicate:
    asked = conjunction(universe, rng, single_or_subset(rng))
    fitting = _fitting(universe, asked)
    sizes = {attribute: np.arange(universe.shape[attribute]) for attribute in fitting}
    return Predicate.conjunction({a: np.isin(cells, asked[a]) for a, cells in sizes.items()})


def _predicate(universe: Universe, rng: np.random.Generator) -> Predicate:
    attributes = _fitting(universe, conjunction(universe, rng, single_or_subset(rng)))
    shape = tuple(universe.shape[a] for a in attributes)
    return Predicate.of_mask(attributes, rng.random(shape) < 0.5)


def _threshold(universe: Universe, rng: np.random.Generator) -> Predicate:
    size = universe.shape[0]
    return Predicate.conjunction({0: np.arange(size) < rng.integers(1, size)})


_DRAWS: Final[Mapping[Workload, Callable[[Universe, np.random.Generator], Predicate]]] = {
    "conjunctions": _conjunction,
    "predicates": _predicate,
    "thresholds": _threshold,
}


def _fitting(universe: Universe, attributes: Iterable[int]) -> list[int]:
    kept, n_cells = [], 1
    for attribute in attributes:
        n_cells *= universe.shape[attribute]
        if n_cells <= _MOST_CELLS:
            kept.append(attribute)
    return kept


# ---------------------------------------------------------------- rows


def synthetic_rows(universe: Universe, rng: np.random.Generator, n_rows: int) -> Rows:
    """Rows that follow the schema alone: skewed, with some correlation.

    The shares of an attribute's cells fall as 1, 1/2, 1/3 and so on. Half of the time a row's quantile among
    them is a number that its attributes have in common, otherwise one of its own. At most 20,000 rows are
    drawn; beyond that each stands for several.
    """
    n_entries = min(n_rows, _MOST_ENTRIES)
    common = rng.random(n_entries)
    codes = []
    for attribute in universe.attributes:
        weights = np.cumsum(1.0 / np.arange(1, attribute.size + 1))
        quantiles = np.where(rng.random(n_entries) < _COMMON, common, rng.random(n_entries))
        cells = np.searchsorted(weights[:-1] / weights[-1], quantiles, side="right")
        codes.append(cells.astype(attribute.dtype))
    return Rows(tuple(codes), _repeated(n_rows, n_entries), _middles(universe, codes))


def _middles(universe: Universe, codes: Sequence[Codes]) -> dict[int, Offsets]:
    """Values in the middle of their cells, as far as the universe keeps values of rows."""
    found: dict[int, Offsets] = {}
    for index, attribute in universe.measured.items():
        ends = np.array(attribute.measured_ends)
        offsets = ends.sum(axis=1) // 2 - ends.min()
        found[index] = offsets.astype(np.uint32)[codes[index]]
    return found


def resampled_rows(sample: Rows, rng: np.random.Generator, n_rows: int) -> Rows:
    """Rows drawn from a public sample of one row an entry, with replacement; at most 20,000 different."""
    n_entries = min(n_rows, _MOST_ENTRIES)
    indices = rng.integers(sample.n_entries, size=n_entries)
    codes = tuple(column[indices] for column in sample.codes)
    measures = {index: offsets[indices] for index, offsets in sample.measures.items()}
    return Rows(codes, _repeated(n_rows, n_entries), measures)


def _repeated(n_rows: int, n_entries: int) -> npt.NDArray[np.int64]:
    each, more = divmod(n_rows, n_entries)
    return each + (np.arange(n_entries) < more).astype(np.int64)
