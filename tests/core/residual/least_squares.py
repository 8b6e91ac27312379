"""Generalised least squares on all cells of a small universe: a second computation of what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.levels import Axes, grouped
from stream_dp.core.residual.belief.linear_forms import form_of
from tests.core.residual.host import where

Floats = npt.NDArray[np.float64]

N_ROWS = 1000
"""The rows of each block. Where their number is private it is public how many may count."""


@dataclass(frozen=True)
class Measured:
    """A table at any level, as it was published."""

    attributes: tuple[int, ...]
    block: int
    table: Floats
    variance: float


@dataclass(frozen=True)
class Counted:
    """A count of its own, as it was published."""

    mask: Floats
    block: int
    value: float
    variance: float


def random_history(
    shape: tuple[int, ...], rng: np.random.Generator, n: int, n_blocks: int = 1
) -> list[Measured]:
    """Noisy tables: of overlapping attributes, at any level, of any block, some of them repeated."""
    axes, history = Axes(shape), []
    for _ in range(n):
        size = int(rng.integers(1, len(shape) + 1))
        attributes = tuple(sorted(rng.choice(len(shape), size, replace=False).tolist()))
        layout = axes.layout(attributes)
        levels = tuple(int(rng.integers(1, chain.finest + 1)) for chain in layout.chains)
        table = rng.normal(50, 30, layout.groups_at(levels))
        block, variance = int(rng.integers(n_blocks)), float(rng.uniform(0.5, 40))
        history.append(Measured(attributes, block, table, variance))
    return history


def belief_of(
    shape: tuple[int, ...],
    history: Sequence[Measured],
    n_blocks: int = 1,
    *,
    total_known: bool = True,
    n_rows: int = N_ROWS,
) -> Belief:
    belief = Belief(shape, total_known=total_known)
    for _ in range(n_blocks):
        belief.open_block(n_rows)
    for m in history:
        belief.absorb_table(m.attributes, m.block, m.table, m.variance)
    return belief


def equations(
    shape: tuple[int, ...], history: Sequence[Measured | Counted], block: int
) -> tuple[Floats, Floats]:
    """Every count that was measured of a block, as an equation about all cells with noise of variance 1.

    Returns:
        Coefficients, shape (counts, cells), and right-hand sides.
    """
    units = np.eye(math.prod(shape)).reshape(*shape, -1)
    rows, values = [np.zeros((0, math.prod(shape)))], [np.zeros(0)]
    for m in (m for m in history if m.block == block):
        deviation = math.sqrt(m.variance)
        if isinstance(m, Counted):
            rows.append(m.mask.reshape(1, -1) / deviation)
            values.append(np.array([m.value / deviation]))
            continue
        rest = tuple(a for a in range(len(shape)) if a not in m.attributes)
        of_cells = grouped(units.sum(axis=rest), (*m.table.shape, units.shape[-1]))
        rows.append(of_cells.reshape(m.table.size, -1) / deviation)
        values.append(m.table.ravel() / deviation)
    return np.concatenate(rows), np.concatenate(values)


def least_squares(
    shape: tuple[int, ...],
    masks: Sequence[Floats],
    history: Sequence[Measured | Counted],
    window: range,
    *,
    total_known: bool = True,
    n_rows: int = N_ROWS,
) -> tuple[Floats, Floats]:
    """The best estimates of ``<mask, counts>``, and their variances; infinite where nothing is known.

    The best linear unbiased estimate is the shortest combination of the equations that gives the mask. Where
    the number of rows is public, that is one more equation, without noise.
    """
    weights = np.stack([mask.ravel() for mask in masks], axis=1)
    estimates, variances = np.zeros(len(masks)), np.zeros(len(masks))
    centre = np.eye(len(weights)) - total_known / len(weights)
    for block in window:
        design, values = equations(shape, history, block)
        unknown = (design @ centre).T
        combinations = np.linalg.lstsq(unknown, centre @ weights, rcond=1e-12)[0]
        reached = np.isclose(unknown @ combinations, centre @ weights, atol=1e-9).all(axis=0)
        estimates += values @ combinations
        if total_known:
            estimates += n_rows * (weights - design.T @ combinations).mean(axis=0)
        variances += np.where(reached, np.square(combinations).sum(axis=0), math.inf)
    return estimates, variances


def masks_of(shape: tuple[int, ...], query: LinearQuery) -> list[Floats]:
    """The answers' masks over the whole universe, in the order asked."""
    every = tuple(range(len(shape)))
    masks = []
    for cell in np.ndindex(*(shape[a] for a in query.group_by)):
        chosen = {a: [value] for a, value in zip(query.group_by, cell, strict=True)}
        inside = query.predicate.along(every) & where(shape, chosen).along(every)
        masks.append(np.broadcast_to(inside, shape).astype(np.float64))
    return masks


def queries(shape: tuple[int, ...], rng: np.random.Generator) -> list[LinearQuery]:
    """Conjunctions, their complements, any masks, tables of these, and the number of rows itself."""

    def some(size: int) -> list[int]:
        """Neighbours, but not all cells."""
        low = int(rng.integers(0, size - 1))
        return list(range(low, min(size - 1, low + int(rng.integers(1, size)))))

    every, window = tuple(range(len(shape))), range(1)
    one = where(shape, {0: some(shape[0])})
    two = where(shape, {0: some(shape[0]), 1: some(shape[1])})
    anything = Predicate.of_mask(every, rng.random(shape) < 0.5)
    return [
        LinearQuery(EVERYTHING, window),
        LinearQuery(one, window),
        LinearQuery(one.complement, window),
        LinearQuery(two, window),
        LinearQuery(two.complement, window),
        LinearQuery(anything, window),
        LinearQuery(EVERYTHING, window, (1, 0)),
        LinearQuery(two.complement, window, (1,)),
        LinearQuery(anything, window, (0,)),
    ]


def known(
    belief: Belief, shape: tuple[int, ...], query: LinearQuery, window: range
) -> tuple[Floats, Floats, Floats]:
    """Values, variances, and covariances with the estimated number of rows, of all answers.

    They are exact zeros where an answer is zero by definition.
    """
    form = form_of(query, shape)
    evidence = belief.evidence(form, query.key, window)
    found = np.zeros((3, form.n_answers))
    live = slice(None) if form.live is None else form.live
    covariances = evidence.covariances_with_total()
    found[:, live] = np.broadcast_arrays(evidence.values, evidence.variances, covariances)
    return found[0], found[1], found[2]
