"""One noisy table of the whole universe for each block, with all of its line.

Where a universe fits in a table, the honest baseline: every cell gets discrete Gaussian noise once, and each
query is a sum of cells. What is certified follows from the scale alone: nothing is tested, nothing is paid
later. Dwork & Roth 2014, section 3.3 (histogram queries), with zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Budget, Charge, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.encoding import Format, fields, integers
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource, grid_index, grid_sigma
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe, check_kept_cells
from stream_dp.core.sparse_vector.composition import Concentrated
from stream_dp.core.sparse_vector.predicate_mechanism import PredicateMechanism
from stream_dp.core.synthetic.basis import NoisyTable

_FORMAT: Final = Format("table")


@dataclass(frozen=True, slots=True)
class TableRelease:
    """A block's noisy counts, int64, shape that of the universe. Published."""

    block: int
    counts: IntArray = field(repr=False)

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(fields("<I", self.block), integers(self.counts))


@dataclass(frozen=True, slots=True)
class TableLook(Look):
    """All cells of one block with noise of one scale."""

    block: int
    shape: tuple[int, ...]
    sigma: Fraction
    charges: tuple[Charge, ...]

    @property
    def description(self) -> dict[str, object]:
        return {
            "kind": "table",
            "window": [self.block, self.block + 1],
            "attributes": list(range(len(self.shape))),
            "sigma": float(self.sigma),
        }

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve("gaussian", self.sigma, math.prod(self.shape))

    def take(self, noise: NoiseSource, data: Blocks) -> TableRelease:
        every = tuple(range(len(self.shape)))
        counts = data.marginal(every, range(self.block, self.block + 1))[0]
        draws = noise.gaussian(self.sigma, counts.size)
        return TableRelease(self.block, counts + draws.reshape(counts.shape))


class WholeTable(PredicateMechanism):
    """Answers from the blocks' noisy tables, or not at all.

    Args:
        universe: The possible rows, in at most 2**20 cells.
        privacy: ``delta`` above 0.

    Attributes:
        sigma: The noise of a cell, in rows: a row moves between two of them, so ``rho = 1 / sigma^2``.

    Raises:
        InvalidDefinition: The universe has too many cells, or delta is 0.
    """

    def __init__(self, universe: Universe, privacy: Privacy, accuracy: Accuracy) -> None:
        check_kept_cells(universe.n_cells)
        super().__init__(universe, accuracy, Concentrated(privacy))
        rho = Budget.of(privacy).rho
        self.sigma = grid_sigma(grid_index(float(rho) ** -0.5) + 1)
        self._z = NormalDist().inv_cdf(1.0 - accuracy.failure_probability / 2.0)
        self._tables: dict[int, IntArray] = {}

    def counts(self, window: range) -> npt.NDArray[np.float64]:
        """The noisy counts of a window, shape that of the universe; rounded from 2**53 rows on.

        Raises:
            ValueError: A block of it has no table: it is not there, or its table was lost.
        """
        if not window or not all(block in self._tables for block in window):
            raise ValueError("a block of the window has no table")
        # One block alone may hold 2**62 rows: a sum of integers would wrap.
        tables = [self._tables[block].astype(np.float64) for block in window]
        return np.asarray(sum(tables))

    def basis(self, window: range) -> NoisyTable:
        counts, deviation = self.counts(window), float(self.sigma) * math.sqrt(len(window))
        return NoisyTable(
            window, self._rows(window), counts, deviation, self._accuracy.failure_probability
        )

    def error_bar(self, n_cells: int, n_blocks: int) -> float:
        """Returns the error, in rows, of a predicate over ``n_cells`` of each of ``n_blocks`` blocks.

        It holds except with the failure probability. A predicate over most cells errs like its complement.
        """
        held = min(n_cells, self._universe.n_cells - n_cells)
        return self._z * float(self.sigma) * math.sqrt(held * n_blocks)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        super().open_phase(n_rows)
        block = len(self._sizes) - 1
        charges = self._charges(
            range(block, block + 1), gaussian_rho(self.sigma, squared_sensitivity=2)
        )
        return (TableLook(block, self._universe.shape, self.sigma, charges),)

    def _step(self, query: LinearQuery) -> Outcome | Look:
        """A predicate over most cells is answered by the others: the number of rows is public."""
        predicate, window = query.predicate, query.window
        shape, n_cells = self._universe.shape, self._universe.n_cells
        held = int(np.count_nonzero(predicate.mask))
        held *= n_cells // math.prod(shape[a] for a in predicate.attributes)
        inside = 2 * held <= n_cells
        n_rows = self._rows(window)
        if self.error_bar(held, len(window)) > self._accuracy.error * n_rows:
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED,
                "the tables of the window are too noisy for this many cells, and their blocks are spent",
            )
        if not all(block in self._tables for block in window):
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED, "the table of a block was paid for and lost"
            )
        others = tuple(a for a in range(len(shape)) if a not in predicate.attributes)
        wanted = predicate.mask if inside else ~predicate.mask
        count = sum(int(self._tables[block].sum(axis=others)[wanted].sum()) for block in window)
        return self._answered(count if inside else n_rows - count, n_rows, Path.CERTIFIED)

    def absorb(self, release: Release) -> None:
        assert isinstance(release, TableRelease), "a release of another mechanism"
        self._tables[release.block] = release.counts

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome:
        raise AssertionError("a whole table answers without a look")

    def release_from_bytes(self, data: bytes) -> Release:
        reader = _FORMAT.read(data)
        (block,) = reader.fields("<I")
        counts = reader.integers(*self._universe.shape)
        reader.end()
        return TableRelease(block, counts)
