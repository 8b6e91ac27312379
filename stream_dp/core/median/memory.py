"""The memory mechanism of Kim 2017 (Algorithm 3), to the letter: the thesis profile.

One median mechanism on a dataset that grows in phases, with a consistent set that remembers every phase. A
query is easy when the consistent set answers it, hard when the dataset had to be looked at; both flag and
answer are published.

What is built where the thesis slips or leaves something open:

- ``n_min`` uses ``ln(2k/alpha'_K)``, as its ``gamma_j`` does; as printed it is several times too small.
- The hard answer is an integer, ``count + discrete Laplace``, published over n; the easiness is an integer
  too (see ``median.EasinessTest``). Every constant is rounded towards privacy.
- A window of phases W is asked as the whole is, with ``|D_W|`` for ``|D|``, when it has the rows that phase j
  asks of the whole, ``j n_min``.
- The consistent set may be a polytope, which the thesis expects and does not build: with
  ``alpha'_j = alpha/(1440 j m ln N)`` and ``h_max = 40 j m ln N`` (see ``PhaseSettings.counted_rows``).

**Guarantee.** ``(H_K alpha, K tau)``-differential privacy (Theorem 5.1) for replacing one row of one block.
``privacy.epsilon`` is ``H_K alpha``, so every phase runs with ``alpha = epsilon / H_K``.

**The ledger's line.** After phase j was opened the line of every block reads ``alpha H_j``, whenever the
block came; this profile's lines are linear in epsilon, not in zCDP's rho. A line is never below the loss so
far: up to the end of phase j at most ``180 j m ln N`` thresholds are bad, each costs ``2 alpha'_i`` in its
phase i, and ``alpha'_i`` falls, so the worst for a block sealed in phase l is that all those allowed so far
fall into phase l: ``alpha/2 (1 + H_j - H_l)``, and ``alpha'_i / 2`` a phase for the good ones; together below
``alpha H_j``. A block that comes in phase l starts its line at ``alpha H_l``, not at ``alpha / l``: the hard
queries that earlier phases left over may all be asked in phase l, at a loss of ``alpha / 2`` to it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.logarithms import log_add
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.median.formulas import (
    harmonic,
    hypothesis_rows,
    inverse_privacy,
    reciprocal,
)
from stream_dp.core.median.phase_constants import (
    Constants,
    PhaseNoise,
    PhaseSettings,
    Representation,
    min_rows_as_printed,
    phases_of,
    resolution,
    rows_for_thresholds,
    share_of,
)
from stream_dp.core.median.phased import Phased
from stream_dp.core.rows.universe import Universe


def constants(settings: PhaseSettings) -> Constants:
    """The constants of Kim 2017, Algorithm 3, with its slips fixed.

    Where m is not given it is ``160000 ln(K k) ln(1/eps) / eps^2``, and what is proved for a polytope.

    Args:
        settings: What they follow from; ``epsilon`` is ``H_K alpha``.

    Raises:
        InvalidDefinition: The noise would be wider than the sampler draws.
    """
    k, K, N, eps = settings.queries_per_phase, settings.phases, settings.n_cells, settings.error
    alpha = settings.epsilon / harmonic(K)
    papers_m = hypothesis_rows(K * k, eps)
    m, proved_m, counted = settings.hypotheses(papers_m)
    inverse = [inverse_privacy(alpha, j * counted, N) for j in range(1, K + 1)]
    sensitivity = resolution(inverse[-1])
    # The thesis prints ln(2k/alpha) here, which is too small for its gamma_j.
    n_min = math.ceil(rows_for_thresholds(k, eps, inverse[0], Fraction(inverse[-1]), sensitivity))
    noises = [PhaseNoise(scale, Fraction(scale), j) for j, scale in enumerate(inverse, start=1)]
    each = phases_of(settings, counted, n_min, noises)
    return Constants(
        alpha=alpha,
        error=eps,
        queries_per_phase=k,
        hypothesis_rows=m,
        papers_hypothesis_rows=papers_m,
        proved_hypothesis_rows=proved_m,
        min_rows=n_min,
        min_rows_as_printed=min_rows_as_printed(N, alpha, eps, k, counted),
        sensitivity=sensitivity,
        failure_probability=2.0 * sum(phase.noise_failure for phase in each),  # Theorem 5.1
        phases=each,
    )


class Memory(Phased):
    """One data set under the memory mechanism.

    Args:
        universe: The possible rows: at most 2**20 cells for "entropic", 1,024 over all phases for "polytope".
        privacy: ``epsilon`` is the lifetime bound ``H_K alpha``; ``delta`` bounds the sum of all phases' tau.
        accuracy: ``error`` is the papers' eps, below 0.9; ``failure_probability`` bounds ``2 K delta``.
        queries_per_phase: k, at least 2; queries that a phase leaves unasked are not carried over.
        phases: K, at least 1.
        hypothesis_rows: m by hand, for far smaller blocks; None takes the least that is proved to suffice.
        representation: The representation of the consistent set. It affects accuracy only.

    Raises:
        InvalidDefinition: A setting is out of range, tau or the failure probability exceeds its limit, or
            the numbers are too large to be run; names the field and the fix.
    """

    name = "memory"
    accountant = "basic composition (Kim 2017, Theorem 5.1); a line is linear in epsilon"

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        queries_per_phase: int,
        phases: int,
        hypothesis_rows: int | None = None,
        representation: Representation = "entropic",
    ) -> None:
        settings = PhaseSettings.checked(
            universe,
            privacy,
            accuracy,
            queries_per_phase=queries_per_phase,
            phases=phases,
            hypothesis_rows=hypothesis_rows,
            representation=representation,
        )
        facts = constants(settings)
        super().__init__(
            universe, privacy, accuracy, facts, representation=representation, blocks=phases
        )
        self._lines = _lines(facts, privacy)

    def _take_in(self, n_rows: int) -> None:
        self._set.add_block(n_rows)

    def _price(self, phase: int) -> tuple[Charge, ...]:
        before, after = self._lines[phase - 1], self._lines[phase]
        step = (after[0] - before[0], after[1] - before[1])
        return (*(Charge(block, *step) for block in range(phase - 1)), Charge(phase - 1, *after))

    def _set_window(self, window: range) -> range:
        return window

    @property
    def _set_sizes(self) -> list[int]:
        return self._sizes


def _lines(facts: Constants, privacy: Privacy) -> list[tuple[int, int]]:
    """Returns what every block's line reads before the first phase and after each.

    The last reading is at most ``UNITS``.
    """
    lines, whole = [(0, 0)], harmonic(len(facts.phases))
    loss, log_delta = Fraction(0), -math.inf
    for phase in facts.phases:
        loss += reciprocal(phase.phase)
        log_delta = log_add(log_delta, phase.log_tau.total)
        delta = max(share_of(log_delta, privacy.delta), lines[-1][1])
        lines.append((math.ceil(UNITS * loss / whole), delta))
    return lines
