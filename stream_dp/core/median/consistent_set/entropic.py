"""The consistent set by its centre: the point of maximum entropy, and how far hypotheses stray from it.

With as many rows a hypothesis as the papers ask for, all but an exponentially small share of the consistent
set lies at one point (Sanov; Gibbs conditioning): of all distributions that satisfy the published answers,
the one nearest to uniform. Around it hypotheses fluctuate by about ``1 / sqrt(hypothesis_rows)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from stream_dp.core.median.consistent_set.set_interface import (
    Distribution,
    HardAnswer,
    Mask,
    block_shares,
    on_grid,
)
from stream_dp.core.rows.universe import check_kept_cells

_Floats: TypeAlias = npt.NDArray[np.float64]
_NODES: Final = 65  # odd: the middle one is the mean, and so the median
# A violation this small, as a share of an answer's tolerance, is rounding: the answers do not contradict.
_ROUNDING: Final = 1e-3


@dataclass(frozen=True, slots=True)
class _Solution:
    """The point of maximum entropy and the fluctuations around it.

    Attributes:
        points: One distribution a block, shape (n_blocks, n_cells).
        weights: Share of each block in each answered query's window, shape (n_answers, n_blocks).
        inside: Each answered query's share of each block at the point, shape (n_answers, n_blocks).
        shifts: The mean distance of each query from its value at the point, shape (n_answers,).
        covariance: Cholesky factor of the answered queries' covariance plus their slack, or None without any.
        feasible: Whether the answers do not contradict each other.
    """

    points: _Floats
    weights: _Floats
    inside: _Floats
    shifts: _Floats
    covariance: tuple[_Floats, bool] | None
    feasible: bool


class Entropic:
    """The minimiser of ``sum over l of KL(p_l || prior_l)`` given the answers, with Gaussian fluctuations.

    Deterministic, without sampling. The point is found by an interior-point method on the dual problem, from
    the same start whenever it is asked for after a change: the result is a function of blocks and answers,
    not of the queries asked in between. A query's value is taken as normal around its value at the point,
    with the covariance of ``hypothesis_rows`` independent rows a block, conditioned on the answered queries
    keeping within their bounds: each enters as a normal observation with the moments of the density that
    the tilted set has between its two ends, and with the rounding of shares to multiples of
    ``1 / hypothesis_rows``. It is given as ``_NODES`` equally likely quantiles.

    Args:
        carry_over: Whether a new block is expected to look like the blocks before it: its prior is then their
            point, weighted by size, with 1% of uniform in it so that nothing is ruled out. Else every prior
            is uniform, as in the papers.

    Raises:
        InvalidDefinition: The universe has more than ``MAX_KEPT_CELLS`` cells.
    """

    def __init__(self, n_cells: int, hypothesis_rows: int, *, carry_over: bool = False) -> None:
        check_kept_cells(n_cells)
        self._n_cells = n_cells
        self._rows = float(hypothesis_rows)
        self._carry_over = carry_over
        self._sizes: list[int] = []
        self._log_priors: list[_Floats] = []
        self._answers: list[HardAnswer] = []
        self._solution: _Solution | None = None

    @property
    def empty(self) -> bool:
        return not self._solved.feasible

    def add_block(self, n_rows: int) -> None:
        log_prior = np.zeros(self._n_cells)
        if self._carry_over and self._sizes and not self.empty:
            earlier = block_shares(self._sizes, range(len(self._sizes))) @ self._solved.points
            log_prior = np.log(0.99 * earlier + 0.01 / self._n_cells)
        self._log_priors.append(log_prior)
        self._sizes.append(n_rows)
        self._solution = None

    def prune(self, mask: Mask, window: range, answer: Fraction, tolerance: Fraction) -> None:
        self._answers.append(HardAnswer.of(mask, window, answer, tolerance))
        self._solution = None

    def distribution(self, mask: Mask, window: range) -> Distribution:
        solved = self._solved
        if not solved.feasible:
            raise ValueError("the consistent set is empty")
        mean, variance = self._moments(solved, mask, window)
        steps = special.ndtri((np.arange(_NODES) + 0.5) / _NODES)
        return Distribution.of_nodes(on_grid(mean + np.sqrt(variance) * steps))

    def point(self) -> _Floats:
        """The distribution of each block at the point of maximum entropy, shape (n_blocks, n_cells)."""
        if self.empty:
            raise ValueError("the consistent set is empty")
        return self._solved.points.copy()

    def _moments(self, solved: _Solution, mask: Mask, window: range) -> tuple[float, float]:
        weights = block_shares(self._sizes, window)
        inside = solved.points[:, mask].sum(axis=1)
        mean = float(weights @ inside)
        variance = float(weights**2 @ (inside * (1.0 - inside))) / self._rows
        if solved.covariance is not None:
            shared = np.zeros(len(self._answers))
            for i, answer in enumerate(self._answers):
                both = solved.points[:, mask & answer.mask].sum(axis=1)
                products = weights * solved.weights[i]
                shared[i] = products @ (both - inside * solved.inside[i]) / self._rows
            gain = linalg.cho_solve(solved.covariance, shared)
            mean += float(gain @ solved.shifts)
            variance -= float(gain @ shared)
        return mean, max(0.0, variance)

    @property
    def _solved(self) -> _Solution:
        if self._solution is None:
            self._solution = self._solve()
        return self._solution

    def _solve(self) -> _Solution:
        n_answers = len(self._answers)
        if not n_answers:
            points = np.asarray(special.softmax(np.array(self._log_priors), axis=1))
            none = np.zeros((0, len(points)))
            return _Solution(points, none, none, np.zeros(0), None, feasible=True)
        masks = np.array([answer.mask for answer in self._answers], dtype=np.float64)
        weights = np.array([block_shares(self._sizes, answer.window) for answer in self._answers])
        values = np.array([answer.value for answer in self._answers])
        tolerances = np.array([answer.tolerance for answer in self._answers])
        dual = _Dual(np.array(self._log_priors), masks, weights, values, tolerances)
        multipliers = dual.solve()
        points = dual.points(multipliers)
        predicted = dual.predict(points)
        slight = _ROUNDING * float(tolerances.min())
        violation = float(np.max(np.abs(predicted - values) - tolerances))
        feasible = violation <= slight or _least_violation(dual) <= 1e-6 * slight
        centres, slack = _inside(multipliers * self._rows, values, tolerances)
        # A block's share is a multiple of 1 / rows: no hypothesis keeps closer to an answer than that.
        slack += np.einsum("il,il->i", weights, weights) / (12.0 * self._rows**2)
        covariance = dual.covariance(points) / self._rows + np.diag(slack)
        ridge = 1e-12 * float(np.max(np.diag(covariance)))
        factor = linalg.cho_factor(covariance + ridge * np.eye(n_answers), lower=True)
        inside = np.array([points[:, answer.mask].sum(axis=1) for answer in self._answers])
        return _Solution(points, weights, inside, centres - predicted, factor, feasible)


class _Dual:
    """``F(x) = sum over l of log Z_l(x) + x . values + tolerances . |x|`` and its minimiser.

    The dual of the entropy problem: ``p_l`` is proportional to
    ``exp(log_prior_l - sum over i of x_i weights_il f_i)``; a positive multiplier holds its query at the
    upper bound. Shapes: ``log_priors`` (n_blocks, n_cells), ``masks`` (n_answers, n_cells), ``weights``
    (n_answers, n_blocks), the rest (n_answers,).
    """

    _MAX_STEPS: Final = 200
    _TO_BOUNDARY: Final = 0.99
    _CENTRING: Final = 0.2
    _DIVERGED: Final = 1e12
    _STUCK: Final = 1e-6

    def __init__(
        self,
        log_priors: _Floats,
        masks: _Floats,
        weights: _Floats,
        values: _Floats,
        tolerances: _Floats,
    ) -> None:
        self.log_priors = log_priors
        self.masks, self.weights = masks, weights
        self.values, self.tolerances = values, tolerances

    def points(self, x: _Floats) -> _Floats:
        return np.asarray(
            special.softmax(self.log_priors - (x * self.weights.T) @ self.masks, axis=1)
        )

    def predict(self, points: _Floats) -> _Floats:
        return np.asarray(np.einsum("il,li->i", self.weights, points @ self.masks.T))

    def covariance(self, points: _Floats) -> _Floats:
        """Covariance of the answered queries for one row a block, shape (n_answers, n_answers)."""
        total = np.zeros((len(self.values), len(self.values)))
        for block, point in enumerate(points):
            weights = self.weights[:, block]
            touched = np.flatnonzero(weights)
            masks = self.masks[touched]
            inside = masks @ point
            own = (masks * point) @ masks.T - np.outer(inside, inside)
            total[np.ix_(touched, touched)] += own * np.outer(weights[touched], weights[touched])
        return total

    def solve(self) -> _Floats:
        """The multipliers, by a primal-dual interior-point method; shape (n_answers,).

        ``x = up - down`` with both positive; ``above`` and ``below`` are the room left to the upper and
        the lower bound. At the solution every product ``up * above`` and ``down * below`` is zero. Stops at
        the last step it can take where the answers contradict each other: the caller sees the violation.
        """
        n_answers = len(self.values)
        # By Pinsker every predicate is then within 3% of the smallest tolerance of its value at the solution.
        least_gap = 1e-3 * float(self.tolerances.min()) ** 2
        least_off = 1e-3 * _ROUNDING * float(self.tolerances.min())
        up, down = np.ones(n_answers), np.ones(n_answers)
        above, below = self.tolerances.copy(), self.tolerances.copy()
        points = self.points(up - down)
        slope = self.values - self.predict(points)
        for _ in range(self._MAX_STEPS):
            off_above, off_below = slope + self.tolerances - above, self.tolerances - slope - below
            gap = float(up @ above + down @ below)
            off = float(max(np.max(np.abs(off_above)), np.max(np.abs(off_below))))
            if gap <= least_gap and off <= least_off:
                break
            if max(float(up.max()), float(down.max())) > self._DIVERGED:
                break
            goal = self._CENTRING * gap / (2 * n_answers)
            curvature = self.covariance(points)
            freedom = up / above + down / below
            aim_up = goal / above - up - up / above * off_above
            aim_down = goal / below - down - down / below * off_below
            try:
                factor = linalg.cho_factor(curvature + np.diag(1.0 / freedom))
                move = linalg.cho_solve(factor, (aim_up - aim_down) / freedom)
            except linalg.LinAlgError:
                break
            bend = curvature @ move
            steps = (
                aim_up - up / above * bend,
                aim_down + down / below * bend,
                off_above + bend,
                off_below - bend,
            )
            start = (up, down, above, below)
            length = min(1.0, *(self._longest(v, d) for v, d in zip(start, steps, strict=True)))
            merit = off + gap
            for _ in range(40):
                up, down, above, below = (v + length * d for v, d in zip(start, steps, strict=True))
                points = self.points(up - down)
                slope = self.values - self.predict(points)
                off_now = max(
                    float(np.max(np.abs(slope + self.tolerances - above))),
                    float(np.max(np.abs(self.tolerances - slope - below))),
                )
                if off_now + float(up @ above + down @ below) <= (1.0 - 1e-4 * length) * merit:
                    break
                length /= 2.0
            if length < self._STUCK:
                break  # as far as rounding lets it come
        return up - down

    def _longest(self, values: _Floats, steps: _Floats) -> float:
        """The longest step that keeps ``values`` positive, a little shortened."""
        falling = steps < 0.0
        if not falling.any():
            return 1.0
        return self._TO_BOUNDARY * float(np.min(-values[falling] / steps[falling]))


def _inside(tilt: _Floats, values: _Floats, tolerances: _Floats) -> tuple[_Floats, _Floats]:
    """Mean and variance of each answered query between its bounds, shapes (n_answers,).

    Seen from the bound it leans against, the set's density falls as ``exp(-|tilt| s)`` over the
    ``2 * tolerance`` up to the other bound; without a tilt it is level.
    """
    width = 2.0 * tolerances
    x = np.clip(np.abs(tilt) * width, 0.0, 700.0)
    small = x < 1e-4
    safe = np.where(small, 1.0, x)
    depth = np.where(small, 0.5 - x / 12.0, 1.0 / safe - 1.0 / np.expm1(safe))
    spread = np.where(small, 1.0 / 12.0, safe**-2 - 0.25 / np.sinh(safe / 2.0) ** 2)
    return values + np.sign(tilt) * (tolerances - depth * width), spread * width**2


def _least_violation(dual: _Dual) -> float:
    """The least by which some answer must be missed, by linear programming; infinite where it fails."""
    n_answers, n_blocks = dual.weights.shape
    n_cells = dual.masks.shape[1]
    rows = (dual.weights[:, :, None] * dual.masks[:, None, :]).reshape(n_answers, -1)
    excess = np.full((n_answers, 1), -1.0)
    from scipy import optimize  # only here: every worker would load it at its start

    result = optimize.linprog(
        np.append(np.zeros(n_blocks * n_cells), 1.0),
        A_ub=np.block([[rows, excess], [-rows, excess]]),
        b_ub=np.concatenate([dual.values + dual.tolerances, dual.tolerances - dual.values]),
        A_eq=np.hstack([np.kron(np.eye(n_blocks), np.ones(n_cells)), np.zeros((n_blocks, 1))]),
        b_eq=np.ones(n_blocks),
        method="highs",
    )
    return float("inf") if result.fun is None else float(result.fun)
