"""The median mechanism, on one fixed dataset and again in every phase.

*Median*: Roth & Roughgarden 2010 (Fig. 1), Kim 2017 (Algorithm 1). One dataset, k queries;
``alpha' = alpha/(720 m ln N)``, ``gamma = 4/(alpha' eps n) ln(2k/alpha)``, ``h_max = 20 m ln N``,
``n_min = 30 ln(2k/alpha) log2(k)/(alpha' eps)``. ``(alpha, tau)``-differential privacy.

*Sequential*: Kim 2017 (Algorithm 2). Phase j runs a new median mechanism on all rows so far, with
``c_K alpha/j`` for alpha: noise of the same share, for the dataset grew as j did. It needs
``K <= c_K (2k/alpha)^(c_K - 1)`` so that the ``n_min`` of alpha, from every phase, is enough in all of them.
``(c_K H_K alpha, K tau)``-differential privacy (Theorem 4.1); ``privacy.epsilon`` is ``c_K H_K alpha``.

What is built where the sources leave something open:

- A median mechanism is the sequential one with a single phase, where ``c_K`` is 1.
- The hard answer and the easiness are integers, as in the memory mechanism (``EasinessTest``). Every
  constant is rounded towards privacy.
- ``n_min`` promises little about accuracy: at k = 100 the noise of some query is too large with probability
  0.51. So a phase waits for as many more rows as ``accuracy.failure_probability`` asks for.
- With a polytope (Roth & Roughgarden 2010, section 5, "efficient") ``alpha' = alpha/(1440 m ln N)`` and
  ``h_max = 40 m ln N`` (see ``PhaseSettings.counted_rows``).
- A query is about the whole dataset: its mechanism knows no parts.

**The ledger's line.** Phase j costs ``c_K alpha / j`` to every block that is there: a block that came in
phase l has spent ``c_K alpha (H_j - H_(l-1))`` after it, and the line is linear in epsilon. A phase's
mechanism counts its hard queries alone, so nothing is left over to later blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.logarithms import ln_bounds, log_add
from stream_dp.core.budget.parameters import Accuracy, Privacy, as_written
from stream_dp.core.median.formulas import (
    harmonic,
    hypothesis_rows,
    inverse_privacy,
    reciprocal,
    width_for,
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
from stream_dp.core.outcome import RefusalCode, Refused
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition


def least_composition(epsilon: Fraction, n_queries: int, phases: int) -> Fraction:
    """The least ``c_K`` with ``K <= c_K (2k/alpha)^(c_K - 1)``, in thousandths; 1 for a single phase.

    Every phase's loss, ``epsilon / (H_K j)``, is the same for all ``c_K``: a larger one asks for more rows
    and gives nothing.
    """
    thousandths = range(1_000, 1_000 * (phases + 1))
    composing = least(
        thousandths, lambda c: composes(Fraction(c, 1_000), epsilon, n_queries, phases)
    )
    return Fraction(composing, 1_000)


def composes(c: Fraction, epsilon: Fraction, n_queries: int, phases: int) -> bool:
    """Returns whether ``K <= c_K (2k/alpha)^(c_K - 1)``, with ``alpha = epsilon / (c_K H_K)``.

    It compares logarithms.
    """
    low, _ = ln_bounds(2 * n_queries * c * harmonic(phases) / epsilon)
    return ln_bounds(phases)[1] <= ln_bounds(c)[0] + (c - 1) * low or (c == 1 and phases == 1)


def constants(
    settings: PhaseSettings, failure_probability: float, composition: Fraction | None = None
) -> Constants:
    """The constants of Kim 2017, Algorithm 2; with one phase those of Algorithm 1.

    Where m is not given it is ``160000 ln(k) ln(1/eps) / eps^2``, and what is proved for a polytope.

    Args:
        settings: What they follow from; ``epsilon`` is ``c_K H_K alpha``.
        failure_probability: The probability that the noise of some query of some phase is too large. Each
            phase has an equal part.
        composition: ``c_K``; None takes the least.

    Raises:
        InvalidDefinition: ``c_K`` is too small for the number of phases, epsilon is too large for the proof,
            or the noise would be wider than the sampler draws.
    """
    k, K, N, eps = settings.queries_per_phase, settings.phases, settings.n_cells, settings.error
    c = _composition(settings, composition)
    alpha = settings.epsilon / (c * harmonic(K))
    papers_m = hypothesis_rows(k, eps)
    m, proved_m, counted = settings.hypotheses(papers_m)
    alphas = [c * alpha / j for j in range(1, K + 1)]
    inverse = [inverse_privacy(alpha_j, counted, N) for alpha_j in alphas]
    sensitivity = resolution(inverse[-1])
    width = Fraction(width_for(k, failure_probability / K) * (1.0 + 1e-9))
    enough = [
        max(rows_for_thresholds(k, eps, scale, 1 / alpha_j, sensitivity), width * scale / eps) / j
        for j, (alpha_j, scale) in enumerate(zip(alphas, inverse, strict=True), start=1)
    ]
    printed = min_rows_as_printed(N, alpha, eps, k, counted)
    n_min = max(printed, *(math.ceil(rows) for rows in enough))
    noises = [PhaseNoise(scale, 1 / a, 1) for a, scale in zip(alphas, inverse, strict=True)]
    each = phases_of(settings, counted, n_min, noises)
    return Constants(
        alpha=alpha,
        error=eps,
        queries_per_phase=k,
        hypothesis_rows=m,
        papers_hypothesis_rows=papers_m,
        proved_hypothesis_rows=proved_m,
        min_rows=n_min,
        min_rows_as_printed=printed,
        sensitivity=sensitivity,
        failure_probability=sum(phase.noise_failure for phase in each),
        phases=each,
    )


def _composition(settings: PhaseSettings, wanted: Fraction | None) -> Fraction:
    """``c_K``: the least that composes where none is wanted."""
    epsilon, k, K = settings.epsilon, settings.queries_per_phase, settings.phases
    if epsilon > min(k, 100):
        raise InvalidDefinition(
            "privacy.epsilon",
            f"is above {min(k, 100)}, beyond what the mechanism's proof covers",
            "give a smaller one",
        )
    c = least_composition(epsilon, k, K) if wanted is None else wanted
    if c < 1 or not composes(c, epsilon, k, K):
        raise InvalidDefinition(
            "mechanism.composition",
            f"is too small for {K:,} phases of {k:,} queries",
            f"leave it out to take {float(least_composition(epsilon, k, K)):g}",
        )
    return c


@dataclass(slots=True)
class _Line:
    """The cost to a block of the phases that it has been in.

    Attributes:
        loss: The sum of the phases' losses, in multiples of ``c_K alpha``.
        log_tau: The logarithm of the sum of the phases' taus.
        units: The units of both, as charged.
    """

    loss: Fraction = Fraction(0)
    log_tau: float = -math.inf
    units: tuple[int, int] = (0, 0)


class Sequential(Phased):
    """One data set under a new median mechanism in every phase, on all rows so far.

    Args:
        universe: The possible rows: at most 2**20 cells for "entropic", 1,024 for "polytope".
        privacy: ``epsilon`` is the lifetime bound ``c_K H_K alpha``; ``delta`` bounds the sum of all taus.
        accuracy: ``error`` is the papers' eps, below 0.9; phases wait for enough rows that the noise of any
            query is too large with at most ``failure_probability``.
        queries_per_phase: k, at least 2; queries that a phase leaves unasked are not carried over.
        phases: K, at least 1.
        hypothesis_rows: m by hand, for far smaller blocks; None takes the least that is proved to suffice.
        representation: The representation of the consistent set. It affects accuracy only.
        composition: ``c_K``. None takes the smallest one that composes over the number of phases.

    Raises:
        InvalidDefinition: A setting is out of range, tau exceeds ``privacy.delta``, or the numbers are too
            large to be run; names the field and the fix.
    """

    name = "sequential"
    accountant = "basic composition (Kim 2017, Theorem 4.1); a line is linear in epsilon"

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
        composition: float | None = None,
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
        c = None if composition is None else as_written(composition)
        facts = constants(settings, accuracy.failure_probability, c)
        super().__init__(
            universe, privacy, accuracy, facts, representation=representation, blocks=1
        )
        self._whole = harmonic(phases)
        self._lines: list[_Line] = []

    def _take_in(self, n_rows: int) -> None:
        self._set = self._fresh_set()
        self._set.add_block(self._set_sizes[0])
        self._hard_before = self.hard

    def _price(self, phase: int) -> tuple[Charge, ...]:
        log_tau = self.constants.phases[phase - 1].log_tau.total
        self._lines.append(_Line())
        charges = []
        for block, line in enumerate(self._lines):
            before = line.units
            line.loss += reciprocal(phase)
            line.log_tau = log_add(line.log_tau, log_tau)
            line.units = (
                math.ceil(UNITS * line.loss / self._whole),
                share_of(line.log_tau, self._privacy.delta),
            )
            charges.append(Charge(block, line.units[0] - before[0], line.units[1] - before[1]))
        return tuple(charges)

    def _set_window(self, window: range) -> range:
        return range(1)

    @property
    def _set_sizes(self) -> list[int]:
        return [sum(self._sizes)]

    def _wrong_window(self, window: range) -> Refused | None:
        if window != range(len(self._sizes)):
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"the {self.name} profile answers about all phases together; leave the window out",
            )
        return None


class Median(Sequential):
    """One fixed dataset under the median mechanism: a single phase, sealed when ``min_rows`` wait.

    Args as for ``Sequential``.
    """

    name = "median"
    accountant = "the median mechanism's own (Kim 2017, Theorem 3.1); a line is linear in epsilon"

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        queries: int,
        hypothesis_rows: int | None = None,
        representation: Representation = "entropic",
    ) -> None:
        super().__init__(
            universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=1,
            hypothesis_rows=hypothesis_rows,
            representation=representation,
        )
