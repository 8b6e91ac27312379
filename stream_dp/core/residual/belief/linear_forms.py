"""Queries as linear forms in interactions.

Counts over attributes A split into one part for each subset T of A: what the attributes in T say
together beyond what any fewer of them say (the T-residual: summed over A without T, centred along
every axis of T). The parts are orthogonal, so a query with weights q answers

    sum over T of <x_T, residual_T>,   x_T = q averaged over A without T, centred along T,

and where the residuals carry uncorrelated errors of variance v_T in their own subspaces, the answer's
variance is ``sum of v_T * |x_T|^2`` (Xiao, He, Zhang, Kifer 2023, who plan releases with it).

An ordered attribute of many cells has a part for each of its levels (``levels``) in place of one. Then T says
for each attribute at which level it is in T, and there are more norms and variances than subsets. Everything
else, and above all the spectrum, is as for other attributes: it holds the levels of an attribute added up.

Layout. The *spectrum* of an array over A with sizes n_1..n_k is one array of shape
``(n_1 + 1, ..., n_k + 1)`` that holds all parts: index 0 along an axis means that the attribute is
not in T, index 1 + j is its cell j. *Subsets* are listed in the order of ``subsets(k)``, in which the
first attribute counts most, as in ``array.reshape((2,) * k).ravel()``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import LinearQuery, Predicate, factors_of
from stream_dp.core.residual.belief.levels import axes_of

if TYPE_CHECKING:
    from stream_dp.core.residual.belief.residuals import WindowView

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_Cell = TypeVar("_Cell")

MAX_SPECTRUM = 2**22
"""Most entries of a spectrum that is worth building: 32 MiB. Three attributes of 160 cells, or 13 of 2."""

_NEGLIGIBLE = 1e-20

_MOST_FORMS = 4096
"""Forms of conditions that are kept, because each is asked for several times."""

_KEPT_CELLS = 4096
"""The most cells of such a condition."""


@cache
def subsets(k: int) -> tuple[tuple[bool, ...], ...]:
    """Returns which of k attributes are in T, for each T."""
    return tuple(product((False, True), repeat=k))


def spectrum(array: Floats, *, first_axis: int = 0, average: bool) -> Floats:
    """All parts of ``array`` at once, along the axes from ``first_axis`` on.

    Args:
        array: An array with one axis for each attribute.
        first_axis: The first axis to split. Earlier axes are kept.
        average: Average over the attributes outside T (weights of a query), else sum (counts).
    """
    for axis in range(first_axis, array.ndim):
        total = array.sum(axis=axis, keepdims=True)
        mean = total / array.shape[axis]
        array = np.concatenate([mean if average else total, array - mean], axis=axis)
    return array


def table(spectrum: Floats, *, axes: range) -> Floats:
    """The array of counts whose parts ``spectrum`` holds along ``axes``: undoes summing ones."""
    for axis in axes:
        size = spectrum.shape[axis] - 1
        head, tail = np.split(spectrum, [1], axis=axis)
        spectrum = tail + head / size
    return spectrum


def variance(norms: Floats, variances: Floats) -> Floats:
    """``norms @ variances``, where an infinite variance counts only for a part that is there.

    Args:
        norms: Squared norms |x_T|^2, shape (rows, parts).
        variances: v_T, shape (parts,) or (parts, n); infinity where nothing was measured.
    """
    return variance_of_parted(norms, *part_infinite(variances))


def part_infinite(variances: Floats) -> tuple[Floats, Floats | None]:
    """The variances with 0 for the infinite ones; and 1.0 where these are, or None for nowhere."""
    known = np.isfinite(variances)
    if known.all():
        return variances, None
    return np.where(known, variances, 0.0), (~known).astype(np.float64)


def variance_of_parted(norms: Floats, known: Floats, unknown: Floats | None) -> Floats:
    """``variance`` of what ``part_infinite`` returned, for callers that ask about the same often."""
    result: Floats = norms @ known
    if unknown is not None:
        result[norms @ unknown > 0.0] = math.inf
    return result


def spread(cells: Sequence[_Cell], live: Mask | None, nothing: _Cell) -> list[_Cell]:
    """The cells of all answers, where those that are not ``live`` are ``nothing``.

    Args:
        cells: One for each live answer.
        live: as in ``Form``.
        nothing: What stands for an answer that is zero by definition.
    """
    if live is None:
        return list(cells)
    some = iter(cells)
    return [next(some) if is_live else nothing for is_live in live.tolist()]


@dataclass(frozen=True, slots=True)
class Events:
    """Estimated counts of every sub-conjunction of a conjunction over k attributes.

    Attributes:
        counts: Shape (2^k, answers): rows for which the conditions in the subset hold.
        shares: c_i / n_i, the share of each attribute's cells that its condition selects.
        spreads: The squared norm of each centred condition, at each level of its attribute. With one level
            that is c_i (1 - c_i / n_i). Where the norms of the answers differ, it is the largest.
        complement: Whether the answer is the number of rows outside the conjunction.
    """

    counts: Floats
    shares: tuple[float, ...]
    spreads: tuple[tuple[float, ...], ...]
    complement: bool


class Conjunction:
    """One condition an attribute, or the complement of that; never builds its mask.

    Residuals are centred, so a centred condition and the condition itself give the same product: one
    vector of weights an attribute turns a spectrum into a count, and one small matrix, columns "no
    condition" and "condition", into the counts of all sub-conjunctions at once.

    Args:
        attributes: Ascending.
        factors: The cells in which each condition holds: some, not all, of its attribute's.
        complement: Whether the rows outside are counted.
        shape: Sizes of all attributes of the universe. Without it, all attributes have one level.
    """

    conjunctive = True
    live = None
    n_answers = 1

    def __init__(
        self,
        attributes: tuple[int, ...],
        factors: tuple[Mask, ...],
        *,
        complement: bool = False,
        shape: tuple[int, ...] = (),
    ) -> None:
        self.attributes = attributes
        self.complement = complement
        self._factors = factors
        self._axes = axes_of(shape) if shape else None
        self._shares: list[float] = []
        self._spreads: list[tuple[float, ...]] = []
        norms = [1.0]
        for attribute, factor in zip(attributes, factors, strict=True):
            size = factor.size
            share = factor.tobytes().count(1) / size  # faster than numpy counts few cells
            spreads: tuple[float, ...] = (share * (1.0 - share) * size,)
            if self._axes is not None and attribute in self._axes.graded:
                found = self._axes.chains[attribute].norms(factor.astype(np.float64))
                spreads = tuple(found[1:].tolist())
            norms = [norm * part for norm in norms for part in (share**2, *spreads)]
            self._shares.append(share)
            self._spreads.append(spreads)
        if complement:
            norms[0] = (1.0 - math.prod(self._shares)) ** 2
        self.norms = np.array([norms])

    @property
    def typical(self) -> Floats:
        if self._axes is None:
            return np.asarray(self.norms[0])
        norms = np.ones(1)
        for attribute, factor in zip(self.attributes, self._factors, strict=True):
            along = self._axes.chains[attribute].typical_norms(factor)
            norms = np.multiply.outer(norms, along).ravel()
        if self.complement:
            norms[0] = self.norms[0, 0]
        return norms

    def values(self, view: WindowView) -> Floats:
        counts = view.spectrum
        for factor, share in zip(self._factors, self._shares, strict=True):
            weights = np.empty(factor.size + 1)
            weights[0], weights[1:] = share, factor
            counts = weights @ counts.reshape(weights.size, -1)
        return np.atleast_1d(view.total - counts if self.complement else counts)

    def events(self, view: WindowView) -> Events:
        counts = view.spectrum
        for factor, share in zip(self._factors, self._shares, strict=True):
            counts = counts.reshape(factor.size + 1, -1).T @ _columns(factor, share)
        shares, spreads = tuple(self._shares), tuple(self._spreads)
        return Events(counts.reshape(-1, 1), shares, spreads, self.complement)

    def total(self, counts: Floats) -> Floats:
        inside = counts
        for factor in self._factors:
            inside = np.tensordot(inside, factor.astype(np.float64), axes=(0, 0))
        return np.array([counts.sum() - inside if self.complement else inside])


class TableForm:
    """Any predicate, and its table over grouped attributes: one answer a cell, row-major as asked.

    Args:
        predicate: The rows that count.
        group_by: Grouped attributes in the order asked.
        shape: Sizes of all attributes of the universe.
        weights: Some attributes, ascending, and what a row counts for by its cell of them, of their sizes.
            None where each counts 1.
        among: Attributes of the table that it is read off, where that has more than the answer depends on.

    Attributes: the same for each ``Form``.
        attributes: Ascending; every answer depends on no others.
        n_answers: The number of answers.
        live: The answers that are not zero by definition, shape (n_answers,). None means all answers.
        norms: |x_T|^2, shape (rows, parts): a row for each live answer, or one that serves all.
        typical: |x_T|^2 of queries like this one, shape (parts,): a table for all of them is planned by it.
        conjunctive: Whether each answer is a conjunction or its complement; else they may be any predicates.
    """

    def __init__(
        self,
        predicate: Predicate,
        group_by: tuple[int, ...],
        shape: tuple[int, ...],
        weights: tuple[tuple[int, ...], Floats] | None = None,
        among: tuple[int, ...] = (),
    ) -> None:
        weighted = () if weights is None else weights[0]
        self.attributes = tuple(sorted({*predicate.attributes, *group_by, *weighted, *among}))
        self._sizes = tuple(shape[a] for a in self.attributes)
        self._chains = axes_of(shape).layout(self.attributes).chains
        rest = tuple(a for a in self.attributes if a not in group_by)
        self._order = tuple(self.attributes.index(a) for a in (*group_by, *rest))
        self._n_grouped = len(group_by)
        self.n_answers = math.prod(shape[a] for a in group_by)
        mask = np.broadcast_to(predicate.along(self.attributes), self._sizes)
        grouped_first = mask.transpose(self._order)
        self._masks = grouped_first.reshape(self.n_answers, *grouped_first.shape[len(group_by) :])
        axes = tuple(range(1, self._masks.ndim))
        live: Mask = np.asarray(self._masks.any(axis=axes))
        self.live: Mask | None = None if live.all() else live
        if weights is not None:
            along = [
                n if a in weights[0] else 1
                for a, n in zip(self.attributes, self._sizes, strict=True)
            ]
            each = np.broadcast_to(weights[1].reshape(along), self._sizes).transpose(self._order)
            self._masks = np.multiply(self._masks, each.reshape(self._masks.shape))
        self._masks = self._masks[live]
        self._cells = np.flatnonzero(live)
        self._factors: dict[int, Mask] | None = None
        if predicate.factors is not None and weights is None:
            self._factors = dict(zip(predicate.attributes, predicate.factors, strict=True))
        self._grouped = group_by
        self.conjunctive = self._factors is not None

    @cached_property
    def _weights(self) -> Floats:
        """x_T of each answer over the attributes that are not grouped, shape (answers, n + 1, ...)."""
        return spectrum(self._masks.astype(np.float64), first_axis=1, average=True)

    @cached_property
    def norms(self) -> Floats:
        weights = self._weights
        rest = [self._chains[i] for i in self._order[self._n_grouped :]]
        for axis, chain in enumerate(rest, start=1):
            weights = chain.resolved(weights, axis)
        squares = np.square(weights)
        for axis, chain in enumerate(rest, start=1):
            squares = np.add.reduceat(squares, chain.offsets, axis=axis)
        squares[squares < _NEGLIGIBLE] = 0.0
        grouped, alike = self._norms_of_cells()
        together = grouped[:, :, None] * squares.reshape(len(squares), 1, -1)
        sizes = [1 + self._chains[i].finest for i in self._order]
        norms = together.reshape(-1, *sizes).transpose(0, *(1 + p for p in np.argsort(self._order)))
        norms = norms.reshape(len(norms), -1)
        alike = alike and self.conjunctive  # then the cells of a table all have the same norms
        return np.asarray(norms[:1] if alike else norms)

    @property
    def typical(self) -> Floats:
        if self._factors is None:
            return np.asarray(self.norms.mean(axis=0))
        norms = np.ones(1)
        for attribute, chain in zip(self.attributes, self._chains, strict=True):
            if attribute in self._grouped:
                along = chain.of_cells.mean(axis=0)
            else:
                along = chain.typical_norms(self._factors[attribute])
            norms = np.multiply.outer(norms, along).ravel()
        return norms

    def _norms_of_cells(self) -> tuple[Floats, bool]:
        """Norms of the live cells of the grouped attributes, shape (rows, parts), and whether all are alike.

        A cell selects one of n: 1/n^2 averaged over, 1 - 1/n centred. Along a chain the cells differ in how
        much of that is at which level.
        """
        norms, alike = np.ones((1, 1)), True
        for axis in self._order[: self._n_grouped]:
            chain = self._chains[axis]
            own = chain.of_cells
            if chain.finest == 1:
                own = own[:1]
            norms = norms[:, None, :, None] * own[None, :, None, :]
            norms = norms.reshape(norms.shape[0] * norms.shape[1], -1)
            if chain.finest > 1:
                alike = False
            elif not alike:
                norms = np.repeat(norms, chain.size, axis=0)
        if not alike:
            norms = np.tile(norms, (self.n_answers // len(norms), 1))[self._cells]
        return norms, alike

    def values(self, view: WindowView) -> Floats:
        """Best linear unbiased estimates, live answers only; unknown residuals count as 0."""
        known = table(view.spectrum.transpose(self._order), axes=range(self._n_grouped))
        known = known.reshape(self.n_answers, -1)[self._cells]
        return np.asarray(np.einsum("ar,ar->a", self._weights.reshape(len(known), -1), known))

    def events(self, view: WindowView) -> Events | None:
        """Counts of all sub-conjunctions, where each live answer is a conjunction or its complement."""
        if self._factors is None or not len(self._cells):
            return None
        # Along each axis, first without a condition and then with it: one for all answers, or each cell
        # of an attribute that is grouped.
        counts = view.spectrum
        shares, spreads, conditions = [], [], []
        for attribute, n, chain in zip(self.attributes, self._sizes, self._chains, strict=True):
            parts = counts.reshape(n + 1, -1).T
            if attribute in self._grouped:
                share = 1.0 / n
                norms = chain.of_any_cell
                without = parts[:, :1]
                counts = np.concatenate([without, parts[:, 1:] + share * without], axis=1)
            else:
                factor = self._factors[attribute]
                share = np.count_nonzero(factor) / n
                norms = chain.norms(factor.astype(np.float64))
                counts = parts @ _columns(factor, share)
            shares.append(share)
            several = chain.finest > 1
            spreads.append(tuple(norms[1:].tolist()) if several else (share * (1.0 - share) * n,))
            conditions.append(counts.shape[1] - 1)
        counts = counts.reshape([1 + c for c in conditions])
        every = np.empty((2 ** len(conditions), len(self._cells)))
        for index, subset in enumerate(subsets(len(conditions))):
            part_slice = tuple(slice(1, None) if member else slice(1) for member in subset)
            part = np.broadcast_to(counts[part_slice], conditions).transpose(self._order)
            every[index] = part.reshape(-1)[self._cells]
        return Events(every, tuple(shares), tuple(spreads), complement=False)

    def total(self, counts: Floats) -> Floats:
        """The live answers for a table of counts over ``attributes``."""
        known = counts.transpose(self._order).reshape(self.n_answers, -1)[self._cells]
        return np.asarray((self._masks.reshape(len(known), -1) * known).sum(axis=1))


class Together:
    """The answers of several forms over the same attributes, to be promised and measured together."""

    conjunctive = False
    live = None

    def __init__(self, parts: Sequence[TableForm]) -> None:
        self.attributes = parts[0].attributes
        assert all(part.attributes == self.attributes for part in parts), "they share a table"
        self._parts = parts
        self.norms = np.concatenate([part.norms for part in parts])
        self.n_answers = len(self.norms)

    @property
    def typical(self) -> Floats:
        return np.asarray(self.norms.mean(axis=0))

    def values(self, view: WindowView) -> Floats:
        return np.concatenate([part.values(view) for part in self._parts])

    def events(self, view: WindowView) -> None:
        del view

    def total(self, counts: Floats) -> Floats:
        return np.concatenate([part.total(counts) for part in self._parts])


Form: TypeAlias = Conjunction | TableForm | Together
"""One or more answers, each linear in the counts over the same attributes: see ``TableForm``."""


def _columns(condition: Mask, share: float) -> Floats:
    """Returns what no condition, and this one, make of their axis of a spectrum, shape (size + 1, 2)."""
    columns = np.zeros((condition.size + 1, 2))
    columns[0] = 1.0, share
    columns[1:, 1] = condition
    return columns


def form_of(query: LinearQuery, shape: tuple[int, ...]) -> Form:
    """Returns the form of a query that is not a constant.

    Args:
        query: The query.
        shape: Sizes of all attributes of the universe.
    """
    predicate = query.predicate
    conjunction = None
    if not query.group_by:
        is_small = predicate.n_cells <= _KEPT_CELLS
        conjunction = (_kept_conjunction_of if is_small else _conjunction_of)(predicate, shape)
    return conjunction or TableForm(predicate, query.group_by, shape)


def _conjunction_of(predicate: Predicate, shape: tuple[int, ...]) -> Conjunction | None:
    if predicate.factors is not None:
        return Conjunction(predicate.attributes, predicate.factors, shape=shape)
    outside = factors_of(~predicate.mask)
    if outside is None:
        return None
    return Conjunction(predicate.attributes, outside, complement=True, shape=shape)


_kept_conjunction_of = lru_cache(_MOST_FORMS)(_conjunction_of)


@cache
def conjunctions_log(sizes: tuple[int, ...]) -> float:
    """Logarithm of the number of conjunctions over attributes of these sizes: prod(2^n - 1)."""
    return math.fsum(n * math.log(2.0) + math.log1p(-(2.0**-n)) for n in sizes)
