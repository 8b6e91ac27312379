"""Synthetic rows in place of those of a window: post-processing of what was published, and so free.

*From a consistent set* (``Phased``, ``Doubling``, ``Gated``): the rows follow one hypothesis, the set's
``point``: the mean of all, or the point of maximum entropy; a window's shares are those of its blocks,
weighted by their public sizes. *From weights*: the one histogram there is. *From a whole table*: its cells,
none below zero. *From the calibrated profile*: a graphical model fitted to the published tables of one and
two attributes (``cliques``).

**How far off.** What was published is within its error bar of the truth, and how far the finished rows are
from it, rounding included, is simply counted: a ``Gap``. Both together bound the distance to the truth. About
everything else nothing is proved: one hypothesis, or one model, need not be right where nobody has looked.
For a consistent set the first part is bounded beforehand, by ``eps/50`` (Kim 2017, Lemma 3.3), rounding and
what a polytope's point lacks of the whole mass aside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.baselines.table import WholeTable
from stream_dp.core.kinds.several import WithKinds
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.doubling import Doubling
from stream_dp.core.median.phased import Phased
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.forms import Floats, table
from stream_dp.core.residual.belief.local_fit import non_negative
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.weights import GrowingWeights
from stream_dp.core.synthetic.cliques import model_of
from stream_dp.core.synthetic.rows import drawn, whole_rows

_Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gap:
    """Between the rows and the truth, by way of what was published; shares.

    Attributes:
        distance: Largest distance of the rows to what was published: over the cells of a table, or of one
            answer.
        error_bar: How far that may be from the truth.
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
        n_rows: How many rows those have; public.
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


def synthetic(
    mechanism: Mechanism, window: range, n_rows: int, generator: np.random.Generator
) -> Synthetic:
    """Draws ``n_rows`` rows for a window.

    Args:
        window: Open phases. Where a crash lost the tables of the newest one, the rows stand for those
            before it.
        n_rows: As many as are wanted, at least 1; the window's own number is public.
        generator: Public randomness, for the rounding and the order of the rows.

    Raises:
        ValueError: No hypothesis agrees with all published answers, the mechanism does not answer about the
            window or has nothing that rows could follow, or ``n_rows`` is below 1.
    """
    if n_rows < 1:
        raise ValueError("no rows were asked for")
    if isinstance(mechanism, Doubling):
        mechanism = mechanism.mechanism
    if isinstance(mechanism, WithKinds):
        mechanism = mechanism.counts
    if isinstance(mechanism, Calibrated):
        return _of_belief(mechanism, window, n_rows, generator)
    if isinstance(mechanism, Phased):
        return _of_set(mechanism, window, n_rows, generator)
    if isinstance(mechanism, WholeTable):
        return _of_whole_table(mechanism, window, n_rows, generator)
    if isinstance(mechanism, Gated):
        return _of_shares(mechanism, mechanism.hypothesis(window), window, n_rows, generator)
    if isinstance(mechanism, GrowingWeights) and window == range(len(mechanism.sizes)):
        return _of_shares(mechanism, mechanism.shares, window, n_rows, generator)
    raise ValueError(f"nothing that rows could follow: {mechanism!r} about {window}")


def _of_shares(
    mechanism: Phased | Gated | WholeTable | GrowingWeights,
    shares: Floats,
    window: range,
    n_rows: int,
    generator: np.random.Generator,
) -> Synthetic:
    """Rows that follow the shares of all cells; nothing is proved about them yet."""
    counts = whole_rows(shares / shares.sum(), n_rows, generator)
    rows = generator.permutation(np.repeat(np.arange(counts.size), counts))
    columns = tuple(np.unravel_index(rows, mechanism.shape))
    return Synthetic(window, sum(mechanism.sizes[block] for block in window), columns)


def _of_set(
    mechanism: Phased, window: range, n_rows: int, generator: np.random.Generator
) -> Synthetic:
    rows = _of_shares(mechanism, mechanism.hypothesis(window), window, n_rows, generator)
    found = _table(rows.columns, mechanism.shape).reshape(-1)
    bar = float(mechanism.constants.error) / 100.0
    answers = tuple(
        Gap(abs(float(found[cells].sum()) - float(share)), bar)
        for cells, about, share in mechanism.hard_answers
        if about == window
    )
    return replace(rows, answers=answers, confidence=1.0 - mechanism.constants.failure_probability)


def _of_whole_table(
    mechanism: WholeTable, window: range, n_rows: int, generator: np.random.Generator
) -> Synthetic:
    noisy = mechanism.counts(window)
    published = noisy / sum(mechanism.sizes[block] for block in window)
    shares = non_negative(published, 1.0).reshape(-1)
    rows = _of_shares(mechanism, shares, window, n_rows, generator)
    failure = mechanism.accuracy.failure_probability
    z = two_sided(math.log(failure / published.size))
    distance = float(np.abs(_table(rows.columns, mechanism.shape) - published).max())
    gap = Gap(distance, z * float(mechanism.sigma) * math.sqrt(len(window)) / rows.n_rows)
    attributes = tuple(range(len(mechanism.shape)))
    return replace(rows, fitted={attributes: gap}, confidence=1.0 - failure)


def _of_belief(
    mechanism: Calibrated, window: range, n_rows: int, generator: np.random.Generator
) -> Synthetic:
    tables, shape = mechanism.belief.tables, mechanism.shape
    window = _with_tables(tables, len(shape), window)
    model = model_of(tables, shape, window)
    columns = drawn(model.conditionals, n_rows, generator)
    every = sorted(
        model.fitted | model.others, key=lambda attributes: (len(attributes), attributes)
    )
    failure = mechanism.accuracy.failure_probability
    n_cells = sum(math.prod(shape[a] for a in attributes) for attributes in every)
    z = two_sided(math.log(failure / max(1, n_cells)))
    gaps = {attributes: _gap(tables, attributes, window, columns, z) for attributes in every}
    return Synthetic(
        window=window,
        n_rows=tables.rows(window),
        columns=columns,
        fitted={attributes: gaps[attributes] for attributes in every if attributes in model.fitted},
        others={attributes: gaps[attributes] for attributes in every if attributes in model.others},
        confidence=1.0 - failure,
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
    """How far rows are from a published table."""
    view = tables.view(attributes, window)
    published = table(view.spectrum, axes=range(len(attributes))) / view.n_rows
    found = _table([columns[a] for a in attributes], published.shape)
    # One cell: averaged over an attribute it weighs 1/n^2, centred along it 1 - 1/n.
    norms = np.ones(1)
    for n in published.shape:
        norms = np.multiply.outer(norms, [1.0 / n**2, 1.0 - 1.0 / n]).ravel()
    deviation = math.sqrt(float(view.variance(norms[None, :])[0]))
    return Gap(float(np.abs(found - published).max()), z * deviation / view.n_rows)


def _table(columns: Sequence[_Integers], shape: tuple[int, ...]) -> Floats:
    """Share of each cell among rows, shape ``shape``."""
    cells = np.ravel_multi_index(tuple(columns), shape)
    counts = np.bincount(cells, minlength=math.prod(shape))
    return np.asarray(counts.reshape(shape) / len(cells))


__all__ = ["Gap", "Synthetic", "synthetic"]
