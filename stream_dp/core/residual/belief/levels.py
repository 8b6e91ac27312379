"""Nested groups of neighbouring cells: ordered attributes of many cells, level by level.

A range of an attribute of n cells has about n/4 times the squared norm of one cell. So what a table of the
cells says of a range is noisy. An ordered attribute of more than 24 cells therefore has a *chain* of levels:
level 1 has the fewest groups of neighbouring cells, each level splits the groups of the one before, and the
last one has the cells themselves. A range is made of few groups of each level, so tables of groups make it
cheap.

What the cells say splits into one part for each level: what its groups say beyond those of the level before.
As functions on the cells the parts are orthogonal. Level 0 is one group of all cells. An attribute without a
chain of its own has level 0 and its cells, and everything here is then what ``linear_forms`` says of it.

A table with noise of variance s^2 on each group counts groups of at least M cells. An answer that weighs its
groups with u errs with the variance ``s^2 |u|^2``. That is at most ``s^2 / M`` times the squared norm of u as
a function on the cells. So ``s^2 / M`` is the variance stated in each part that the table speaks of. It is
exact where all groups have the same number of cells, and a bound elsewhere (docs/proofs, Theorem 18).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.cell_shape import Shape

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Levels: TypeAlias = tuple[int, ...]
"""One level for each of some attributes, each from 0 on."""
Part: TypeAlias = tuple[int, ...]
"""A residual, or a table, as the components that it is about: an attribute at a level each."""
Slices: TypeAlias = tuple[int | slice, ...]

_BRANCHING: Final = 5
"""The number of groups, or cells, that make a group of the level before."""

_FEWEST: Final = 4
"""The fewest groups that are worth a level of their own."""

_SHIFTS: Final = 64

_SHIFTED_CELLS: Final = 2**14
"""About the most cells of all shifted copies of a condition together, which take a millisecond."""

_MAX_LAYOUTS: Final = 4096


@dataclass(frozen=True)
class LevelChain:
    """The levels of one attribute.

    Attributes:
        counts: The groups of each level from 1 on, ascending. The last one counts the cells.
    """

    counts: tuple[int, ...]

    @classmethod
    def of(cls, n: int) -> LevelChain:
        """The chain of an ordered attribute of ``n`` cells. Stored tables go by it, so it never changes."""
        counts = [n]
        while counts[0] // _BRANCHING >= _FEWEST:
            counts.insert(0, counts[0] // _BRANCHING)
        return cls(tuple(counts))

    @property
    def finest(self) -> int:
        """The level of the cells."""
        return len(self.counts)

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.counts[-1]

    def n_groups(self, level: int) -> int:
        """The groups of a level. Level 0 has one."""
        return self.counts[level - 1] if level else 1

    def level_of(self, n_groups: int) -> int:
        """The level that has this number of groups. Raises ValueError if there is none."""
        return self.counts.index(n_groups) + 1

    @cached_property
    def groups(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The group of each cell, at each level from 0 on, shape (size,) each."""
        of_cell = np.arange(self.size)
        found = [of_cell]
        for fine, coarse in zip(self.counts[::-1], (*self.counts[-2::-1], 1), strict=True):
            of_cell = of_cell * coarse // fine
            found.append(of_cell)
        return tuple(found[::-1])

    @cached_property
    def cells(self) -> tuple[Floats, ...]:
        """The cells of each group, at each level from 0 on, shape (groups,) each."""
        return tuple(np.bincount(of_cell).astype(np.float64) for of_cell in self.groups)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The cells of the smallest group, at each level from 0 on."""
        return tuple(int(cells.min()) for cells in self.cells)

    @cached_property
    def _starts(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The first cell of each group, at each level from 0 on."""
        return tuple(np.searchsorted(g, np.arange(g[-1] + 1)) for g in self.groups)

    @cached_property
    def _heads(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The first group in each group of the level before, at each level from 1 on."""
        return tuple(np.searchsorted(p, np.arange(p[-1] + 1)) for p in self._parents)

    @cached_property
    def _parents(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The group of the level before that each group is in, at each level from 1 on."""
        pairs = zip(self.groups, self._starts[1:], strict=False)
        return tuple(before[starts] for before, starts in pairs)

    def grouped(self, array: npt.NDArray[Any], axis: int, level: int) -> npt.NDArray[Any]:
        """The sums of each group of a level along an axis of cells."""
        if level == self.finest:
            return array
        return np.asarray(np.add.reduceat(array, self._starts[level], axis=axis))

    def split(self, sums: Floats, axis: int, level: int) -> list[Floats]:
        """The parts of a table of groups of a level, along one axis.

        Returns:
            The sum over the axis, which is kept with one entry. Then, for each level from 1 to ``level``, how
            far the mean of each of its groups is from the mean of the group that it is in.
        """
        parts, finer = [], sums
        for now in range(level, 0, -1):
            coarser = np.add.reduceat(finer, self._heads[now - 1], axis=axis)
            means = coarser / _along(self.cells[now - 1], axis, finer.ndim)
            means = means.take(self._parents[now - 1], axis=axis)
            own = finer if now == self.finest else finer / _along(self.cells[now], axis, finer.ndim)
            parts.append(own - means)
            finer = coarser
        return [finer, *reversed(parts)]

    def resolved(self, weights: Floats, axis: int) -> Floats:
        """Weights along an axis of a spectrum, in coordinates that keep norms and have the levels one by one.

        Args:
            weights: The mean along the axis, then centred weights: 1 + size entries.
            axis: The axis.

        Returns:
            The same with 1 + n_1 + ... + n_L entries along the axis.
        """
        if self.finest == 1:
            return weights
        mean, centred = np.split(weights, [1], axis=axis)
        parts = self.split(centred, axis, self.finest)[1:]
        scaled = [
            part * np.sqrt(_along(self.cells[level], axis, part.ndim))
            for level, part in enumerate(parts, start=1)
        ]
        return np.concatenate([mean, *scaled], axis=axis)

    @cached_property
    def offsets(self) -> list[int]:
        """Where the levels from 0 on begin along an axis that ``resolved`` returned."""
        return [0, *np.cumsum((1, *self.counts[:-1])).tolist()]

    def norms(self, weights: Floats) -> Floats:
        """Squared norms of weights on the cells, level by level.

        Args:
            weights: Weights on the cells, shape (..., size).

        Returns:
            Shape (..., 1 + levels). Level 0 has the squared mean.
        """
        sums, energies = weights, [np.square(weights).sum(axis=-1)]
        for level in range(self.finest - 1, -1, -1):
            sums = np.add.reduceat(sums, self._heads[level], axis=-1)
            energies.append(np.square(sums) @ (1.0 / self.cells[level]))
        stacked = np.stack(energies[::-1], axis=-1)
        levels = np.maximum(np.diff(stacked, axis=-1), 0.0)
        # What is left of an energy by rounding is nothing.
        levels[levels < _NEGLIGIBLE * stacked[..., -1:]] = 0.0
        return np.concatenate([stacked[..., :1] / self.size, levels], axis=-1)

    @cached_property
    def of_cells(self) -> Floats:
        """``norms`` of each single cell, shape (size, 1 + levels)."""
        inverse = np.stack(
            [1.0 / cells[of_cell] for cells, of_cell in zip(self.cells, self.groups, strict=True)],
            axis=-1,
        )
        mean = np.full((self.size, 1), 1.0 / self.size**2)
        return np.concatenate([mean, np.diff(inverse, axis=-1)], axis=-1)

    @cached_property
    def of_any_cell(self) -> Floats:
        """The largest of ``of_cells`` at each level, shape (1 + levels,)."""
        return np.asarray(self.of_cells.max(axis=0))

    def typical_norms(self, condition: Mask) -> Floats:
        """The mean of ``norms`` over conditions of the same form elsewhere, shape (1 + levels,).

        What one condition needs of a level may be nothing by chance, and a table is for more than one query.
        """
        if self.finest == 1:
            share = np.count_nonzero(condition) / self.size
            return np.array([share * share, share * (1.0 - share) * self.size])
        n_shifts = min(_SHIFTS, max(4, _SHIFTED_CELLS // self.size))
        shifts = np.unique(np.linspace(0, self.size, n_shifts, endpoint=False).astype(np.intp))
        index = (np.arange(self.size) + shifts[:, None]) % self.size
        return np.asarray(self.norms(condition.astype(np.float64)[index]).mean(axis=0))


_NEGLIGIBLE: Final = 1e-12


@cache
def flat(n: int) -> LevelChain:
    """The chain of an attribute that has one level."""
    return LevelChain((n,))


_chain = cache(LevelChain.of)


@lru_cache(maxsize=4096)
def range_norms(chain: LevelChain, n_cells: int) -> Floats:
    """``typical_norms`` of a range of neighbouring cells."""
    return chain.typical_norms(np.arange(chain.size) < n_cells)


_STRIDE: Final = 2**16
"""More attributes than there ever are: the number of a component stays as it is when some are added."""


class Axes:
    """The attributes of a universe with their chains.

    A *component* is an attribute at a level from 1 on, as one number. At the level of the cells it is the
    index of the attribute. Components are never stored.

    Args:
        shape: The sizes of the attributes.
        total_known: Whether the number of rows is public. If not, a row becomes blank, and the number of rows
            is estimated like all else that tables say.

    Attributes:
        chains: The chain of each attribute.
        graded: The attributes of more than one level.
    """

    def __init__(self, shape: tuple[int, ...], *, total_known: bool = True) -> None:
        self.shape = shape
        self.total_known = total_known
        ordered = shape.ordered if isinstance(shape, Shape) else frozenset[int]()
        self.chains = tuple(_chain(n) if a in ordered else flat(n) for a, n in enumerate(shape))
        self.graded = frozenset(a for a, chain in enumerate(self.chains) if chain.finest > 1)
        self._of: dict[int, tuple[int, int]] = {}
        for attribute, chain in enumerate(self.chains):
            for level in range(1, chain.finest + 1):
                self._of[self.component(attribute, level)] = attribute, level
        self._layouts: dict[tuple[int, ...], Layout] = {}

    def component(self, attribute: int, level: int) -> int:
        coarser = self.chains[attribute].finest - level
        return attribute + coarser * _STRIDE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axes) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.shape, self.total_known

    def __deepcopy__(self, memo: dict[int, Any]) -> Axes:
        return self  # nothing changes it

    def of(self, component: int) -> tuple[int, int]:
        """The attribute and the level of a component."""
        return self._of[component]

    def part(self, attributes: tuple[int, ...], levels: Levels) -> Part:
        """The components of attributes at these levels, without those at level 0."""
        pairs = zip(attributes, levels, strict=True)
        return tuple(self.component(a, level) for a, level in pairs if level)

    def attributes(self, part: Part) -> tuple[int, ...]:
        """The attributes of a residual or a table."""
        return tuple(self.of(component)[0] for component in part)

    def members(self, part: Part) -> list[tuple[LevelChain, int]]:
        """The chain of each attribute of a residual or a table, and its level."""
        return [(self.chains[a], level) for a, level in map(self.of, part)]

    def groups(self, part: Part) -> tuple[int, ...]:
        """The groups along each axis of a table, which are cells at the last level."""
        return tuple(chain.n_groups(level) for chain, level in self.members(part))

    def layout(self, attributes: tuple[int, ...]) -> Layout:
        """The parts of a spectrum over these attributes."""
        layout = self._layouts.get(attributes)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[attributes] = Layout(self, attributes)
        return layout


class Layout:
    """The parts of a spectrum over some attributes, one for each choice of a level of each attribute.

    The first attribute counts most. Where no attribute has more than one level, the parts are the subsets.

    Attributes:
        attributes: Ascending.
        total_known: Whether the number of rows, which is the empty part, is public.
        chains: The chain of each attribute.
        graded: Whether an attribute has more than one level.
        levels: The levels of each part.
        parts: The components of each part.
        slices: Where the cells of each part lie in a spectrum. Parts of the same attributes share them.
    """

    def __init__(self, axes: Axes, attributes: tuple[int, ...]) -> None:
        self.attributes = attributes
        self.total_known = axes.total_known
        self.chains = tuple(axes.chains[a] for a in attributes)
        self.graded = any(chain.finest > 1 for chain in self.chains)
        self.finest: Levels = tuple(chain.finest for chain in self.chains)
        self.levels, self.slices = _parts_at(self.finest)
        self.parts = tuple(axes.part(attributes, levels) for levels in self.levels)

    @cached_property
    def dimensions(self) -> tuple[int, ...]:
        """The number of independent numbers that each part has."""
        return tuple(
            math.prod(
                c.n_groups(t) - c.n_groups(t - 1)
                for c, t in zip(self.chains, levels, strict=True)
                if t
            )
            for levels in self.levels
        )

    def levels_of(self, shape: tuple[int, ...]) -> Levels:
        """The levels of a table of this shape. Raises ValueError if a chain has no such level."""
        return tuple(chain.level_of(n) for chain, n in zip(self.chains, shape, strict=True))

    def groups_at(self, levels: Levels) -> tuple[int, ...]:
        """The groups of each attribute at these levels: the shape of a table."""
        return tuple(c.n_groups(t) for c, t in zip(self.chains, levels, strict=True))

    def reach(self, levels: Levels) -> Floats:
        """Precision that a table at these levels, of precision 1 on each group, brings to each part."""
        reach = [1.0]
        for chain, level in zip(self.chains, levels, strict=True):
            width, size = chain.widths[level], chain.size
            within = (float(width * (t <= level)) for t in range(1, chain.finest + 1))
            along = (width / size, *within)
            reach = [r * part for r in reach for part in along]
        return np.array(reach)

    def spoken_of(self, levels: Levels) -> list[tuple[int, int, int]]:
        """The parts that a table at these levels speaks of, by index, without what is public.

        Next to each part stands how many times its cells are summed up in the table, and how many of them the
        smallest group has. A precision of 1 on each count brings the part the second by the first.
        """
        found = []
        first = 1 if self.total_known else 0
        for index, part in enumerate(self.levels[first:], start=first):
            if any(t > level for t, level in zip(part, levels, strict=True)):
                continue
            summed, width = 1, 1
            for chain, t, level in zip(self.chains, part, levels, strict=True):
                width *= chain.widths[level]
                summed *= 1 if t else chain.size
            found.append((index, summed, width))
        return found

    def variances(self, levels: Levels, variance: float) -> list[tuple[int, float]]:
        """The variance that a table at these levels brings to each part, without what is public.

        Args:
            levels: The level of each attribute.
            variance: The variance of the noise on each count.
        """
        return [(i, variance * summed / width) for i, summed, width in self.spoken_of(levels)]

    def split(self, table: Floats, levels: Levels) -> dict[int, Floats]:
        """The parts of a table at these levels, by their index; without axes of attributes at level 0."""
        found: list[tuple[tuple[int, ...], Floats]] = [((), table)]
        for axis, (chain, level) in enumerate(zip(self.chains, levels, strict=True)):
            found = [
                ((*part, t), along)
                for part, array in found
                for t, along in enumerate(chain.split(array, axis, level))
            ]
        index = {part: number for number, part in enumerate(self.levels)}
        return {
            index[part]: array.reshape([n for n, t in zip(array.shape, part, strict=True) if t])
            for part, array in found
        }

    def spread(self, index: int, residual: Floats) -> Floats:
        """A part that ``split`` returned, as one entry for each cell."""
        members = [(c, t) for c, t in zip(self.chains, self.levels[index], strict=True) if t]
        for axis, (chain, level) in enumerate(members):
            if level < chain.finest:
                residual = residual.take(chain.groups[level], axis=axis)
        return residual


@lru_cache(maxsize=1024)
def _parts_at(finest: Levels) -> tuple[tuple[Levels, ...], tuple[Slices, ...]]:
    """All levels up to the finest ones, and where the cells of each part lie in a spectrum."""
    every = tuple(product(*(range(level + 1) for level in finest)))
    slices = (tuple(slice(1, None) if level else 0 for level in levels) for levels in every)
    return every, tuple(slices)


def grouped(counts: npt.NDArray[Any], groups: tuple[int, ...]) -> npt.NDArray[Any]:
    """The sums of groups of neighbouring cells.

    Args:
        counts: A table, one axis an attribute.
        groups: The groups of each attribute: its cells, or a level of its chain.
    """
    for axis, (n_groups, n_cells) in enumerate(zip(groups, counts.shape, strict=True)):
        if n_groups != n_cells:
            chain = _chain(n_cells)
            counts = chain.grouped(counts, axis, chain.level_of(n_groups))
    return counts


def _along(array: Floats, axis: int, n_axes: int) -> Floats:
    """An array of one axis, to be used along ``axis`` of one with ``n_axes``."""
    shape = [1] * n_axes
    shape[axis] = len(array)
    return array.reshape(shape)


def axes_of(shape: tuple[int, ...], *, total_known: bool = True) -> Axes:
    """The attributes of a universe of this shape with their chains; takes what ``Axes`` takes."""
    return _axes_of(shape, total_known=total_known)


_axes_of = lru_cache(maxsize=64)(Axes)
