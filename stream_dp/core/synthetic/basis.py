"""Published values that synthetic rows of one window can follow, and the rows that follow them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import Floats, table
from stream_dp.core.residual.belief.local_fit import non_negative
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.residual.belief.sums import ratio_bar
from stream_dp.core.synthetic.cliques import model_of
from stream_dp.core.synthetic.rows import drawn, whole_rows

_Integers: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Gap:
    """The distance between the rows and the truth, by way of what was published, in shares.

    Attributes:
        distance: The largest distance of the rows to what was published, over the cells of a table or to
            one answer.
        error_bar: The distance that what was published may have from the truth.
    """

    distance: float
    error_bar: float

    @property
    def error(self) -> float:
        return self.distance + self.error_bar


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Rows in place of those of a window. All gaps hold at once with probability ``confidence``.

    Attributes:
        window: The phases that the rows stand for.
        n_rows: The number of rows in those blocks. It is public.
        columns: The cell of each synthetic row, one array of int64, shape (rows,), an attribute.
        fitted: Each published table of one or two attributes that the rows were fitted to.
        others: Each published table of two attributes that they were not fitted to.
        answers: Each published answer, about this very window, to a query that was hard.
    """

    window: range
    n_rows: int
    columns: tuple[_Integers, ...] = field(repr=False)
    fitted: Mapping[tuple[int, ...], Gap] = field(default_factory=dict)
    others: Mapping[tuple[int, ...], Gap] = field(default_factory=dict)
    answers: tuple[Gap, ...] = ()
    confidence: float = 1.0


class Basis(ABC):
    """The published values of a mechanism about a window, in a form that rows can follow."""

    @abstractmethod
    def rows(self, n_rows: int, generator: np.random.Generator) -> Synthetic:
        """Draws ``n_rows`` rows, at least 1, by public randomness."""


@dataclass(frozen=True)
class CellShares(Basis):
    """One hypothesis: the share of each cell of the universe. Nothing is proved about its rows.

    Attributes:
        window: The phases that the rows stand for.
        size: The number of rows in those blocks. It is public.
        shape: Cells of each attribute.
        shares: The share of each cell, row-major, shape (n_cells,). Not negative.
    """

    window: range
    size: int
    shape: tuple[int, ...]
    shares: Floats = field(repr=False)

    def rows(self, n_rows: int, generator: np.random.Generator) -> Synthetic:
        counts = whole_rows(self.shares / self.shares.sum(), n_rows, generator)
        rows = generator.permutation(np.repeat(np.arange(counts.size), counts))
        return Synthetic(self.window, self.size, tuple(np.unravel_index(rows, self.shape)))


@dataclass(frozen=True)
class PrunedShares(CellShares):
    """A hypothesis that agrees with published answers: the rows are compared with each of them.

    Attributes:
        answers: Cells and share of each published answer about this very window.
        error_bar: The largest distance of each answer from the truth, as a share.
        confidence: The probability that all of them are that near.
    """

    answers: Sequence[tuple[_Mask, Fraction]] = field(repr=False)
    error_bar: float
    confidence: float

    def rows(self, n_rows: int, generator: np.random.Generator) -> Synthetic:
        rows = super().rows(n_rows, generator)
        found = _table(rows.columns, self.shape).reshape(-1)
        gaps = tuple(
            Gap(abs(float(found[cells].sum()) - float(share)), self.error_bar)
            for cells, share in self.answers
        )
        return replace(rows, answers=gaps, confidence=self.confidence)


@dataclass(frozen=True)
class NoisyTable(Basis):
    """A published table of the whole universe, with noise of one scale in each cell.

    Attributes:
        window: The phases that the rows stand for.
        size: The number of rows in those blocks. It is public.
        counts: The noisy counts, of the universe's shape.
        deviation: The standard deviation of the noise of a cell, in rows.
        failure_probability: The probability that some cell is further off than stated.
    """

    window: range
    size: int
    counts: Floats = field(repr=False)
    deviation: float
    failure_probability: float

    def rows(self, n_rows: int, generator: np.random.Generator) -> Synthetic:
        published = self.counts / self.size
        shares = non_negative(published, 1.0).reshape(-1)
        rows = CellShares(self.window, self.size, published.shape, shares).rows(n_rows, generator)
        z = two_sided(math.log(self.failure_probability / published.size))
        distance = float(np.abs(_table(rows.columns, published.shape) - published).max())
        gap = Gap(distance, z * self.deviation / self.size)
        attributes = tuple(range(published.ndim))
        return replace(rows, fitted={attributes: gap}, confidence=1.0 - self.failure_probability)


@dataclass(frozen=True)
class SmallTables(Basis):
    """Published tables of one and two attributes, to which a graphical model is fitted.

    Attributes:
        window: The phases that the rows are to stand for.
        shape: Cells of each attribute.
        tables: Everything published.
        failure_probability: The probability that some cell is further off than stated.
    """

    window: range
    shape: tuple[int, ...]
    tables: ResidualMemory = field(repr=False)
    failure_probability: float

    def rows(self, n_rows: int, generator: np.random.Generator) -> Synthetic:
        tables, shape = self.tables, self.shape
        window = _with_tables(tables, len(shape), self.window)
        model = model_of(tables, shape, window)
        columns = drawn(model.conditionals, n_rows, generator)
        every = sorted(
            model.fitted | model.others, key=lambda attributes: (len(attributes), attributes)
        )
        n_cells = sum(math.prod(shape[a] for a in attributes) for attributes in every)
        z = two_sided(math.log(self.failure_probability / max(1, n_cells)))
        gaps = {attributes: _gap(tables, attributes, window, columns, z) for attributes in every}
        return Synthetic(
            window=window,
            n_rows=tables.rows(window),
            columns=columns,
            fitted={
                attributes: gaps[attributes] for attributes in every if attributes in model.fitted
            },
            others={
                attributes: gaps[attributes] for attributes in every if attributes in model.others
            },
            confidence=1.0 - self.failure_probability,
        )


def _with_tables(tables: ResidualMemory, n_attributes: int, window: range) -> range:
    """The window, without its newest phase where that one lacks tables which all before it have."""
    before = window[:-1]
    lacking = any(
        tables.measured((a,), before) and not tables.measured((a,), window)
        for a in range(n_attributes)
    )
    return before if before and lacking else window


def _gap(
    tables: ResidualMemory,
    attributes: tuple[int, ...],
    window: range,
    columns: tuple[_Integers, ...],
    z: float,
) -> Gap:
    """Returns how far rows are from a published table, whose counts are shares of the rows that count."""
    view = tables.view(attributes, window)
    n_rows = max(1.0, view.total)
    published = table(view.spectrum, axes=range(len(attributes))) / n_rows
    found = _table([columns[a] for a in attributes], published.shape)
    # One cell: averaged over an attribute it weighs 1/n^2, centred along it 1 - 1/n.
    norms = np.ones(1)
    for chain in view.layout.chains:
        norms = np.multiply.outer(norms, chain.of_any_cell).ravel()
    variance = float(view.variance(norms[None, :])[0])
    distance = float(np.abs(found - published).max())
    if view.layout.total_known:
        return Gap(distance, z * math.sqrt(variance) / n_rows)
    # How many rows count is estimated too, and each cell is part of them.
    of_rows = float(view.variances[0])
    bars = [
        ratio_bar(count, n_rows, (variance, of_rows), of_rows / published.size, z)
        for count in (published * n_rows).ravel().tolist()
    ]
    return Gap(distance, max(1.0 if bar is None else bar for bar in bars))


def _table(columns: Sequence[_Integers], shape: tuple[int, ...]) -> Floats:
    """Share of each cell among rows, shape ``shape``."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    counts = np.bincount(cells, minlength=math.prod(shape))
    return np.asarray(counts.reshape(shape) / len(cells))
