"""The consistent set as a convex body: fractional histograms, sampled by a walk.

Roth & Roughgarden 2010, section 5 ("efficient implementation"): a hypothesis is a fractional histogram with
at most ``m`` rows, ``C_0 = {F >= 0, |F|_1 <= m}``, and a hard answer cuts the body by two half-spaces,
``|f(F) - a| <= eps/50``. Over phases the body is the product of one such body a phase, cut by the joint
half-spaces: what Kim 2017, section 1 expects to work.

**Which m it is for.** In shares ``F/m`` the body does not depend on m, which enters through the noise and
the limit on hard queries alone: ``alpha' = alpha/(1440 m ln N)``, ``h_max = 40 m ln N``. Uncut, a query that
n of N cells satisfy is Beta(n, N + 1 - n): the body is as wide as hypotheses of N + 1 rows are, however large
m. So it agrees with the other two sets where m is about N, and is much wider than they are with the papers'
m, where they sit at one point. ``sufficient_rows`` is the m that it needs.

**Which answers stay right.** Easiness and median are those of the same sample. An easy query has 51% of the
hypotheses within eps, so their median is (Roth & Roughgarden 2010, Lemma 4.5), and that is so for any set of
hypotheses, a sample too. One that has not mixed makes queries hard that need not be; it touches neither
privacy nor the answers that are given.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg

from stream_dp.core.median.consistent_set.set_interface import (
    Distribution,
    HardAnswer,
    Mask,
    block_shares,
    on_grid,
)
from stream_dp.errors import InvalidDefinition

MAX_VARIABLES: Final = 1_024
"""Largest product of cells and phases. A sample takes time as its square, about a second for 256."""

LEAST_DEPTH: Final = 1e-6
"""A body whose deepest point is closer to its walls, in the measure of the uncut body, is not entered."""

_Floats: TypeAlias = npt.NDArray[np.float64]
_CHAINS: Final = 32
_WARM_UP: Final = 8  # trajectories
_TRAJECTORY: Final = 3.0  # in units of the body's half width, on average
_MAX_REFLECTIONS: Final = 40  # a wall, in one trajectory
_TOUCHING: Final = 1e-300  # least distance to a wall: it may be divided by


def sufficient_rows(n_cells: int, error: Fraction) -> int:
    """Rows m from which on the limit of ``40 m ln N`` hard queries is never reached, for any dataset.

    ``m = ln(100/eps) N / (40 ln(1/0.9585) ln N)``, rounded up; as many as there are cells, whatever k is.

    With the noise as small as Lemmas 4.3 and 4.4 have it, the body keeps every ``(1 - s) D + s F`` with
    ``s = eps/100`` and any F of the uncut body, for its queries are within s of D's: in N dimensions a share
    of ``s^N`` of the uncut volume. A hard query takes 6% of the volume (Lemma 5.4), here 4.15% so that the
    sample's easiness may be off by 1/50. So there are at most ``N ln(100/eps) / ln(1/0.9585)`` of them; in j
    phases, each a factor of the product, j times as many. Roth & Roughgarden's m (their Lemma 5.3) shows
    this for almost all datasets, and for fixed queries.
    """
    hard = n_cells * math.log(100.0 / float(error)) / -math.log(0.9585)
    return math.ceil(hard / (40.0 * math.log(n_cells)))


class Polytope:
    """Uniform points of the body, by reflections.

    *The walk.* A chain moves straight at a normal velocity and is reflected at walls, for a random time that
    does not depend on where it is; then it draws a new velocity. The flow is reversible and keeps volume, so
    uniform points stay uniform (Polyak & Gryazina 2014; with normal velocities Afshar & Domke 2015). One that
    meets too many walls stays where it was, which keeps that too. Lengths are measured by the curvature of
    the logarithmic barrier at its centre: so the body is about as wide in every direction. Chains start at
    the deepest point, which linear programming finds. Cells that no answer tells apart share their total
    uniformly, so after every trajectory they are drawn again, exactly.

    *Reproducible.* The walk's randomness is public, and a function of blocks and answers: so is the sample,
    whatever was asked in between. A machine that rounds otherwise draws another sample, as good.

    Args:
        phases: The largest number of blocks that will be added.
        draws: Points of the sample, a multiple of 32; how many independent ones it is worth is told by
            ``Distribution.effective_size``.

    Raises:
        InvalidDefinition: Cells times phases exceed ``MAX_VARIABLES``.
    """

    def __init__(self, n_cells: int, phases: int, *, draws: int = 512) -> None:
        if n_cells * phases > MAX_VARIABLES:
            raise InvalidDefinition(
                "mechanism.representation",
                f"a polytope takes up to {MAX_VARIABLES:,} cells times phases, and these are more",
                'use "entropic", or fewer cells or phases',
            )
        if draws % _CHAINS or draws < 2 * _CHAINS:
            raise ValueError(
                f"the draws must be a multiple of {_CHAINS}, two for each chain at least"
            )
        self._n_cells = n_cells
        self._rounds = draws // _CHAINS
        self._sizes: list[int] = []
        self._answers: list[HardAnswer] = []
        self._body: _Body | None = None
        self._sample: _Floats | None = None

    @property
    def empty(self) -> bool:
        """Whether the body has no inside, or one too thin for the walk (less deep than ``LEAST_DEPTH``).

        The body is deeper than eps/200 while every hard answer was within eps/100 of the truth.
        """
        return self._walls.depth < LEAST_DEPTH

    def add_block(self, n_rows: int) -> None:
        self._sizes.append(n_rows)
        self._body = self._sample = None

    def prune(self, mask: Mask, window: range, answer: Fraction, tolerance: Fraction) -> None:
        self._answers.append(HardAnswer.of(mask, window, answer, tolerance))
        self._body = self._sample = None

    def distribution(self, mask: Mask, window: range) -> Distribution:
        shares = self.sample()[..., mask].sum(axis=-1) @ block_shares(self._sizes, window)
        nodes = on_grid(shares)
        return Distribution.of_nodes(nodes, effective_size=_effective_size(nodes))

    def point(self) -> _Floats:
        return np.asarray(self.sample().mean(axis=(0, 1)))

    def sample(self) -> _Floats:
        """Points of the body in shares of m, shape (trajectories, chains, n_blocks, n_cells).

        Raises:
            ValueError: The set is empty.
        """
        if self._sample is None:
            if self.empty:
                raise ValueError("the consistent set is empty")
            self._sample = self._walls.sample(self._rounds, self._seed())
        return self._sample

    @property
    def _walls(self) -> _Body:
        if self._body is None:
            slabs = [np.outer(block_shares(self._sizes, a.window), a.mask) for a in self._answers]
            self._body = _Body(
                np.array(slabs).reshape(-1, len(self._sizes), self._n_cells),
                np.array([answer.value for answer in self._answers]),
                np.array([answer.tolerance for answer in self._answers]),
            )
        return self._body

    def _seed(self) -> int:
        state = hashlib.sha256(repr((self._n_cells, self._sizes)).encode())
        for answer in self._answers:
            state.update(repr((answer.window, answer.value, answer.tolerance)).encode())
            state.update(np.packbits(answer.mask).tobytes())
        return int.from_bytes(state.digest(), "little")


class _Body:
    """A product of simplices cut by slabs.

    A block's cells and its unused mass, ``1 - sum of cells``, are its ``n_cells + 1`` entries: all of them
    alike, not negative, of sum 1. Walls are the entries of all blocks, then the upper, then the lower side of
    each slab; the variables are the cells.

    Args:
        slabs: Weight of each cell in each answer, shape (n_answers, n_blocks, n_cells).
        values: Shape (n_answers,).
        tolerances: Shape (n_answers,).
    """

    def __init__(self, slabs: _Floats, values: _Floats, tolerances: _Floats) -> None:
        self._n_answers, self._n_blocks, self._n_cells = slabs.shape
        self._slabs = slabs.reshape(self._n_answers, self._n_blocks * self._n_cells)
        self._values, self._tolerances = values, tolerances
        self._kinds, self._order = _alike(slabs)
        self._deep, self.depth = self._deepest()

    def _entries(self, cells: _Floats) -> _Floats:
        """Cells of the last axis, followed block by block by the unused mass."""
        blocks = cells.reshape(*cells.shape[:-1], self._n_blocks, self._n_cells)
        unused = 1.0 - blocks.sum(axis=-1, keepdims=True)
        return np.concatenate([blocks, unused], axis=-1).reshape(*cells.shape[:-1], -1)

    def _slack(self, entries: _Floats) -> _Floats:
        """Distance to every wall, shape (..., n_walls)."""
        off = self._cells(entries) @ self._slabs.T - self._values
        return np.concatenate([entries, self._tolerances - off, self._tolerances + off], axis=-1)

    def _cells(self, entries: _Floats) -> _Floats:
        blocks = entries.reshape(*entries.shape[:-1], self._n_blocks, self._n_cells + 1)
        return blocks[..., :-1].reshape(*entries.shape[:-1], -1)

    def _deepest(self) -> tuple[_Floats, float]:
        """The point furthest from all walls, and how far; 1 is the centre of the uncut body.

        An entry is measured by its mean in the uncut body, a slab by its tolerance. A depth below 0 is that
        of answers that contradict each other.
        """
        mean = 1.0 / (self._n_cells + 1)
        n_variables = self._n_blocks * self._n_cells
        centre = np.full(n_variables, mean)
        if not self._n_answers:
            return centre, 1.0
        ones = np.kron(np.eye(self._n_blocks), np.ones(self._n_cells))
        tolerances = self._tolerances[:, None]
        slabs = self._slabs * mean / tolerances
        off = self._values / self._tolerances
        depth = np.ones((n_variables + self._n_blocks + 2 * self._n_answers, 1))
        from scipy import optimize  # only here: every worker would load it at its start

        result = optimize.linprog(
            np.append(np.zeros(n_variables), -1.0),
            A_ub=np.hstack([np.vstack([-np.eye(n_variables), ones, slabs, -slabs]), depth]),
            b_ub=np.concatenate(
                [np.zeros(n_variables), np.full(self._n_blocks, 1.0 / mean), 1.0 + off, 1.0 - off]
            ),
            bounds=(None, None),
            method="highs",
        )
        if result.x is None:
            return centre, -math.inf
        return result.x[:-1] * mean, float(result.x[-1])

    # ------------------------------------------------------------ the walk

    def sample(self, rounds: int, seed: int) -> _Floats:
        """Points after each trajectory, shape (rounds, chains, n_blocks, n_cells)."""
        noise = np.random.default_rng(seed)
        move = self._reflections(noise) if self._n_answers else None
        entries = np.repeat(self._entries(self._deep)[None], _CHAINS, axis=0)
        points = np.empty((rounds, _CHAINS, self._n_blocks, self._n_cells))
        for trajectory in range(-_WARM_UP, rounds):
            if move is not None:
                entries = move(entries)
            entries = self._redrawn(entries, noise)
            if trajectory >= 0:
                points[trajectory] = self._cells(entries).reshape(points.shape[1:])
        return points

    def _reflections(self, noise: np.random.Generator) -> Callable[[_Floats], _Floats]:
        """One trajectory of all chains."""
        centre, factor = self._centre()
        slack = self._slack(self._entries(centre))
        normals = self._slack_of_moves(np.eye(len(centre)))
        # Inner products of the walls' normals, in the measure in which the body is round.
        products = normals.T @ linalg.cho_solve(factor, normals)

        def move(entries: _Floats) -> _Floats:
            # Independent at all walls, brought back to moves: normal with that measure's covariance.
            velocity = (noise.standard_normal((len(entries), len(slack))) / slack) @ products
            duration = _TRAJECTORY * noise.uniform(0.5, 1.5)
            return self._reflected(entries, velocity, products, duration)

        return move

    def _slack_of_moves(self, moves: _Floats) -> _Floats:
        """Returns how a move of the cells changes the distance to every wall, shape (n_moves, n_walls)."""
        origin = np.zeros_like(moves)
        return self._slack(self._entries(moves)) - self._slack(self._entries(origin))

    def _redrawn(self, entries: _Floats, noise: np.random.Generator) -> _Floats:
        """Divides the mass of alike entries among them again, uniformly."""
        fresh = noise.standard_exponential(entries.shape)
        whole = np.add.reduceat(entries[:, self._order], self._kinds, axis=1)
        drawn = np.add.reduceat(fresh[:, self._order], self._kinds, axis=1)
        sizes = np.diff(self._kinds, append=len(self._order))
        entries[:, self._order] = fresh[:, self._order] * np.repeat(whole / drawn, sizes, axis=1)
        return entries

    def _reflected(
        self, entries: _Floats, velocity: _Floats, products: _Floats, duration: float
    ) -> _Floats:
        """Returns where every chain is after ``duration``. One that met too many walls is where it was."""
        norms, places = np.diag(products), np.arange(len(entries))
        slack = np.maximum(self._slack(entries), _TOUCHING)
        left = np.full(len(entries), duration)
        rate = np.empty_like(slack)
        for _ in range(_MAX_REFLECTIONS * slack.shape[1]):
            wall = np.divide(velocity, slack, out=rate).argmin(axis=1)
            approach = np.maximum(-velocity[places, wall], _TOUCHING)
            time = np.minimum(slack[places, wall] / approach, left)
            slack += np.multiply(velocity, time[:, None], out=rate)
            # Rounding must not put a chain behind a wall: it would never meet that wall again.
            np.maximum(slack, _TOUCHING, out=slack)
            left -= time
            moving = left > 0.0
            if not moving.any():
                return slack[:, : entries.shape[1]]
            velocity += (2.0 * moving * approach / norms[wall])[:, None] * products[wall]
        return np.where(moving[:, None], entries, slack[:, : entries.shape[1]])

    def _centre(self) -> tuple[_Floats, tuple[_Floats, bool]]:
        """Returns where the logarithmic barrier is least, and its curvature there, factored.

        It uses Newton's method.
        """
        cells = self._deep
        normals = self._slack_of_moves(np.eye(len(cells)))
        for _ in range(100):
            slack = self._slack(self._entries(cells))
            slope = -(normals @ (1.0 / slack))
            factor = linalg.cho_factor(self._curvature(slack), lower=True)
            step = -linalg.cho_solve(factor, slope)
            decrement = -float(slope @ step)
            if decrement < 1e-6:
                break
            # Half the way to the nearest wall, or so far that the barrier is sure to fall.
            nearest = -float(np.min(step @ normals / slack))
            length = min(1.0, 0.5 / max(nearest, 0.5))
            cells = cells + step * max(length, 1.0 / (1.0 + math.sqrt(decrement)))
        return cells, factor

    def _curvature(self, slack: _Floats) -> _Floats:
        """Second derivatives of the barrier, shape (n_variables, n_variables)."""
        n_entries = self._n_blocks * (self._n_cells + 1)
        blocks = slack[:n_entries].reshape(self._n_blocks, self._n_cells + 1)
        upper, lower = slack[n_entries : n_entries + self._n_answers], slack[-self._n_answers :]
        total = (self._slabs.T * (upper**-2.0 + lower**-2.0)) @ self._slabs
        total += np.diag(blocks[:, :-1].reshape(-1) ** -2.0)
        total += np.kron(np.diag(blocks[:, -1] ** -2.0), np.ones((self._n_cells, self._n_cells)))
        return np.asarray(total)


def _alike(slabs: _Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Groups of entries that no answer tells apart: where each starts, in an order of all entries."""
    n_answers, n_blocks, n_cells = slabs.shape
    entries = np.zeros((n_answers + 1, n_blocks, n_cells + 1))
    entries[:-1, :, :-1] = slabs
    entries[-1] = np.arange(n_blocks)[:, None]
    _, group = np.unique(entries.reshape(n_answers + 1, -1), axis=1, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    starts = np.flatnonzero(np.diff(group.reshape(-1)[order], prepend=-1))
    return starts, order


def _effective_size(values: _Floats) -> float:
    """Returns how many independent draws tell as much about the mean.

    It compares the spread of the chains' means with the spread of all values, to about a quarter.

    Args:
        values: The values of all chains, shape (trajectories, chains).
    """
    spread, of_means = float(values.var()), float(values.mean(axis=0).var(ddof=1))
    if of_means <= spread / values.shape[0]:
        return float(values.size)
    return float(values.shape[1] * spread / of_means)
