"""The constants of the median family: public, all of them, before the first row arrives.

What ``sequential`` and ``memory`` share of it: how settings are checked, how a constant is rounded, and what
the two probabilities of failing may come to. The formulas themselves are in ``formulas``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.logarithms import ln_bounds, log2_bounds, log_add
from stream_dp.core.budget.parameters import Accuracy, Privacy, as_written
from stream_dp.core.median.consistent_set.polytope import sufficient_rows
from stream_dp.core.median.easiness import MIN_UNITS, EasinessTest
from stream_dp.core.median.formulas import (
    MAX_ERROR,
    MIN_ERROR,
    LogTau,
    hard_limit,
    log_tau,
    noise_failure,
)
from stream_dp.core.randomness.noise_sources import MAX_SCALE
from stream_dp.core.rows.encoded_rows import MAX_ROWS
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition

Representation: TypeAlias = Literal["exhaustive", "entropic", "polytope"]

_UNITS_WANTED: Final = 256
"""The units of an easiness' sensitivity. Its rounding is then 1% of what the noise covers."""


@dataclass(frozen=True, slots=True)
class PhaseSettings:
    """What the constants of a mechanism follow from.

    Attributes:
        n_cells: N, at least 2.
        epsilon: The whole loss.
        error: eps, in ``[MIN_ERROR, MAX_ERROR)``.
        queries_per_phase: k, at least 2.
        phases: K, at least 1.
        rows: m by hand; None takes the papers' number, or what is proved to suffice for a polytope. Privacy
            holds for any; for a smaller one tau grows, and hard queries may run out.
        representation: The representation of the consistent set.
    """

    n_cells: int
    epsilon: Fraction
    error: Fraction
    queries_per_phase: int
    phases: int
    rows: int | None = None
    representation: Representation = "entropic"

    @classmethod
    def checked(
        cls,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        queries_per_phase: int,
        phases: int,
        hypothesis_rows: int | None = None,
        representation: Representation = "entropic",
    ) -> PhaseSettings:
        """The settings of a definition for which the constants are defined.

        Raises:
            InvalidDefinition: They are not. It names the field and the fix.
        """
        error = as_written(accuracy.error)
        if universe.n_cells < 2:
            raise InvalidDefinition(
                "attributes", "the universe has a single cell", "declare an attribute with two"
            )
        if not MIN_ERROR <= error < MAX_ERROR:
            raise InvalidDefinition(
                "accuracy.error",
                f"this profile takes {float(MIN_ERROR)} to below {float(MAX_ERROR)}",
                "give a share such as 0.1",
            )
        if privacy.delta == 0.0:
            raise InvalidDefinition(
                "privacy.delta",
                "is zero, and this mechanism loses privacy with a small probability tau",
                "give a number such as 1e-9",
            )
        for name, value, least, fix in (
            ("queries_per_phase", queries_per_phase, 2, "say how many queries a phase may ask"),
            ("phases", phases, 1, "say how many phases may be opened"),
            ("hypothesis_rows", hypothesis_rows, 1, "leave it out to take the papers' number"),
        ):
            if value is not None and value < least:
                raise InvalidDefinition(f"mechanism.{name}", f"is below {least}", fix)
        if representation not in get_args(Representation):
            raise InvalidDefinition(
                "mechanism.representation",
                f"there is no {representation!r}",
                'use "entropic", "polytope" or "exhaustive"',
            )
        epsilon = as_written(privacy.epsilon)
        return cls(
            universe.n_cells,
            epsilon,
            error,
            queries_per_phase,
            phases,
            hypothesis_rows,
            representation,
        )

    def hypotheses(self, papers: int) -> tuple[int, int, int]:
        """The rows of a hypothesis.

        Args:
            papers: m by the papers' formula.

        Returns:
            The m in force; the m from which on hard queries do not run out, which is the papers' or far
            smaller for a polytope; and the rows that alpha', ``h_max`` and tau count.
        """
        is_polytope = self.representation == "polytope"
        proved = sufficient_rows(self.n_cells, self.error) if is_polytope else papers
        rows = proved if self.rows is None else self.rows
        return rows, proved, self.counted_rows(rows)

    def counted_rows(self, rows: int) -> int:
        """The rows that alpha', ``h_max`` and tau count: m, and 2 m for a polytope.

        Its limit on hard queries is ``40 m ln N`` for ``20 m ln N`` (Roth & Roughgarden 2010, section 5), so
        the proof's count of bad thresholds doubles with all its parts; alpha' is halved to make up for it.
        """
        return 2 * rows if self.representation == "polytope" else rows


@dataclass(frozen=True, slots=True)
class PhaseConstants:
    """The constants that hold while phase j is the newest one.

    Attributes:
        phase: The number j of the phase, from 1.
        inverse_privacy: ``1 / alpha'``, the scale of a hard answer's noise in rows.
        inverse_slip: ``1 / x``, where x is what all good queries of the phase may cost twice: alpha' in the
            memory mechanism, alpha in the others; in the logarithm of gamma.
        hard_limit: ``h_max``, counted as the mechanism counts hard queries.
        min_rows: The number of rows that a window must have.
        last_threshold: The L at ``min_rows``. A larger window has no smaller one.
        tau_threshold: The L that ``log_tau`` is about.
        log_tau: A bound on the probability that privacy is lost in this phase, in logarithms.
        noise_failure: A bound on the probability that the noise of some query of this phase is too large.
    """

    phase: int
    inverse_privacy: int
    inverse_slip: Fraction
    hard_limit: int
    min_rows: int
    last_threshold: int
    tau_threshold: int
    log_tau: LogTau
    noise_failure: float


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of a mechanism, all public before the first row arrives.

    Attributes:
        alpha: The papers' alpha, of which the whole loss is a multiple.
        error: eps.
        queries_per_phase: k.
        hypothesis_rows: m in force.
        papers_hypothesis_rows: m by the papers' formula.
        proved_hypothesis_rows: m from which on no query is refused for want of hard ones.
        min_rows: ``n_min``: rows that open a phase.
        min_rows_as_printed: ``n_min`` as the papers print it, for comparison.
        sensitivity: Units that the easiness' sensitivity is resolved into.
        failure_probability: The probability that some answer of any phase is further than ``error`` from the
            truth. The noise alone decides, whatever m: see ``Phased.conclude``.
        phases: One entry a phase.
    """

    alpha: Fraction
    error: Fraction
    queries_per_phase: int
    hypothesis_rows: int
    papers_hypothesis_rows: int
    proved_hypothesis_rows: int
    min_rows: int
    min_rows_as_printed: int
    sensitivity: int
    failure_probability: float
    phases: tuple[PhaseConstants, ...]

    @property
    def log_tau_terms(self) -> LogTau:
        """Both terms of tau, summed over all phases."""
        terms = [phase.log_tau for phase in self.phases]
        return LogTau(
            _log_sum(term.concentration for term in terms),
            _log_sum(term.last_index for term in terms),
        )

    @property
    def log_tau(self) -> float:
        """Logarithm of the sum of all phases' tau."""
        return self.log_tau_terms.total

    @property
    def proved(self) -> bool:
        """Whether m is large enough for the proof that hard queries do not run out."""
        return self.hypothesis_rows >= self.proved_hypothesis_rows


class PhaseNoise(NamedTuple):
    """The noise of a phase, and what it allows.

    Attributes:
        inverse_privacy: ``1 / alpha'``.
        inverse_slip: ``1 / x``, see ``PhaseConstants``.
        shares: The number of phases whose queries and rows of a hypothesis it counts: one, or all so far.
    """

    inverse_privacy: int
    inverse_slip: Fraction
    shares: int


def phases_of(
    settings: PhaseSettings, counted: int, min_rows: int, noises: Sequence[PhaseNoise]
) -> tuple[PhaseConstants, ...]:
    """Returns the constants of each phase.

    Args:
        settings: What they follow from.
        counted: The rows of a hypothesis that alpha', ``h_max`` and tau count.
        min_rows: ``n_min``.
        noises: The noise of each phase. Where they count all phases so far, tau is about the least L of all.
    """
    k, n_cells, error = settings.queries_per_phase, settings.n_cells, settings.error
    sensitivity = resolution(noises[-1].inverse_privacy)
    lasts = [
        EasinessTest.of(
            n_rows=phase * min_rows,
            n_queries=k,
            error=error,
            inverse_privacy=noise.inverse_privacy,
            inverse_slip=noise.inverse_slip,
            sensitivity=sensitivity,
        ).last
        for phase, noise in enumerate(noises, start=1)
    ]
    found = []
    for phase, (noise, last) in enumerate(zip(noises, lasts, strict=True), start=1):
        bad = last if noises[-1].shares == 1 else min(lasts)
        width = float(error * phase * min_rows / noise.inverse_privacy)
        found.append(
            PhaseConstants(
                phase=phase,
                inverse_privacy=noise.inverse_privacy,
                inverse_slip=noise.inverse_slip,
                hard_limit=hard_limit(noise.shares * counted, n_cells),
                min_rows=phase * min_rows,
                last_threshold=last,
                tau_threshold=bad,
                log_tau=log_tau(noise.shares * counted, n_cells, noise.shares * k, bad),
                noise_failure=noise_failure(k, width),
            )
        )
    return tuple(found)


def resolution(inverse_privacy: int) -> int:
    """Units for an easiness' sensitivity, where the noise is widest.

    Raises:
        InvalidDefinition: The noise would be wider than the sampler draws.
    """
    sensitivity = min(_UNITS_WANTED, math.floor(MAX_SCALE / inverse_privacy))
    if sensitivity < MIN_UNITS:
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            f"the noise would be about 2**{(inverse_privacy * MIN_UNITS).bit_length()} wide, and the sampler "
            f"draws up to 2**{MAX_SCALE.numerator.bit_length() - 1}",
            "raise accuracy.error or privacy.epsilon, lower mechanism.phases, or set "
            "mechanism.hypothesis_rows by hand",
        )
    return sensitivity


def rows_for_thresholds(
    k: int, eps: Fraction, inverse_privacy: int, inverse_slip: Fraction, sensitivity: int
) -> Fraction:
    """Rows from which on ``L >= floor(1.125 log2 k)``: ``30 ln(2k/x) log2(k) / (alpha' eps)``.

    The second summand pays for the floors and ceilings of the gate's integers.
    """
    _, logarithm = ln_bounds(2 * k * inverse_slip)
    _, log2_k = log2_bounds(k)
    exact = 30 * inverse_privacy * logarithm * log2_k / eps
    return exact + (15 * log2_k + 2) / (sensitivity * eps)


def min_rows_as_printed(
    n_cells: int, alpha: Fraction, error: Fraction, n_queries: int, rows: int
) -> int:
    """``n_min = 21600 m ln(2k/alpha) log2(k) ln N / (alpha eps)``, rounded up, as all the papers print it."""
    _, logarithm = ln_bounds(2 * n_queries / alpha)
    _, log2_k = log2_bounds(n_queries)
    _, ln_cells = ln_bounds(n_cells)
    return math.ceil(21_600 * rows * ln_cells * logarithm * log2_k / (alpha * error))


def check_bounds(facts: Constants, privacy: Privacy, accuracy: Accuracy) -> None:
    """Refuses parameters that fail with too high a probability or need too many rows.

    Raises:
        InvalidDefinition: A number is above its limit. The error names the setting and the fix.
    """
    if not facts.log_tau <= math.log(privacy.delta):
        terms = facts.log_tau_terms
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            "with this many rows in a hypothesis, privacy may be lost with probability "
            f"{_shown(facts.log_tau)} (concentration {_shown(terms.concentration)}, last threshold "
            f"{_shown(terms.last_index)}), above privacy.delta",
            "raise mechanism.hypothesis_rows or mechanism.queries_per_phase, or privacy.delta",
        )
    if facts.failure_probability > accuracy.failure_probability:
        raise InvalidDefinition(
            "accuracy.failure_probability",
            f"the noise of some query is too large with probability up to {facts.failure_probability:.3g}, "
            "above this limit",
            "raise mechanism.queries_per_phase (phases and their noise grow with it), or this limit",
        )
    if facts.min_rows > MAX_ROWS:
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            f"a phase would need {facts.min_rows:.3g} rows, and a block holds {MAX_ROWS:.3g}",
            "raise accuracy.error or privacy.epsilon, lower mechanism.phases or "
            "mechanism.queries_per_phase, or set mechanism.hypothesis_rows by hand",
        )


def _log_sum(logs: Iterable[float]) -> float:
    """``log(exp(a) + exp(b) + ...)`` without leaving log space."""
    total = -math.inf
    for log in logs:
        total = log_add(total, log)
    return total


def _shown(log: float) -> str:
    """A probability from its logarithm, also one that no float holds."""
    if log == -math.inf:
        return "0"
    return f"{math.exp(log):.2g}" if log > -600.0 else f"10**{log / math.log(10.0):.0f}"


def share_of(log_probability: float, delta: float) -> int:
    """A probability in units of ``delta / 2**50``, rounded up; at least one and at most all of them."""
    share = math.exp(min(0.0, log_probability - math.log(delta)))
    return max(1, min(UNITS, math.ceil(share * (1.0 + 1e-12) * UNITS)))
