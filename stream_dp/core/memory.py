"""The memory mechanism of Kim 2017 (Algorithm 3), to the letter: the thesis profile.

One median mechanism on a dataset that grows in phases, with a consistent set that remembers every phase. A
query is easy when the consistent set answers it, hard when the dataset had to be looked at; both flag and
answer are published.

What is built where the thesis slips or leaves something open:

- ``n_min`` uses ``ln(2k/alpha'_K)``, as its ``gamma_j`` does; as printed it is several times too small.
- The hard answer is an integer, ``count + discrete Laplace``, published over n; the easiness is an integer
  too (see ``median.Gate``). Every constant is rounded towards privacy.
- A window of phases W is asked as the whole is, with ``|D_W|`` for ``|D|``, when it has the rows that phase j
  asks of the whole, ``j n_min``.

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
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import numpy as np

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.blocks import Blocks
from stream_dp.core.consistent_set import ConsistentSet, Entropic, Exhaustive, Mask
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.median import (
    MAX_ERROR,
    MIN_ERROR,
    MIN_UNITS,
    Easiness,
    Gate,
    LogTau,
    hard_limit,
    hypothesis_rows,
    inverse_privacy,
    ln_bounds,
    log2_bounds,
    log_add,
    log_tau,
    noise_failure,
)
from stream_dp.core.noise import MAX_SCALE, NoiseSource
from stream_dp.core.outcome import Answered, Outcome, Path, RefusalCode, Refused
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.query import Predicate, Question
from stream_dp.core.universe import MAX_ROWS, Universe
from stream_dp.errors import CorruptState, InvalidDefinition

Representation: TypeAlias = Literal["exhaustive", "entropic"]

_UNITS_WANTED: Final = (
    256  # of an easiness' sensitivity: its rounding is then 1% of what the noise covers
)


@dataclass(frozen=True, slots=True)
class PhaseConstants:
    """What holds while phase j is the newest one.

    Attributes:
        phase: j, from 1.
        inverse_privacy: ``1 / alpha'_j``, the scale of a hard answer's noise in rows.
        hard_limit: ``h_max``: hard queries of all phases so far, cumulative.
        min_rows: Rows that a window must have, ``j n_min``.
        last_threshold: L at ``min_rows``; a larger window has no smaller one.
        log_tau: Bound on the probability that privacy is lost in this phase, in logarithms.
        noise_failure: Bound on the probability that the noise of some query of this phase is too large.
    """

    phase: int
    inverse_privacy: int
    hard_limit: int
    min_rows: int
    last_threshold: int
    log_tau: LogTau
    noise_failure: float


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of Algorithm 3, all public before the first row arrives.

    Attributes:
        alpha: Privacy loss of a first phase; ``privacy.epsilon / H_K``.
        error: eps.
        queries_per_phase: k.
        hypothesis_rows: m in force.
        papers_hypothesis_rows: m by the formula, from which on no query is refused.
        min_rows: ``n_min``: rows that open a phase.
        min_rows_as_printed: ``n_min`` as the thesis prints it, for comparison; see the module's docstring.
        sensitivity: Units that the easiness' sensitivity is resolved into.
        phases: One entry a phase.
    """

    alpha: Fraction
    error: Fraction
    queries_per_phase: int
    hypothesis_rows: int
    papers_hypothesis_rows: int
    min_rows: int
    min_rows_as_printed: int
    sensitivity: int
    phases: tuple[PhaseConstants, ...]

    @property
    def log_tau(self) -> float:
        """Logarithm of the sum of all phases' tau."""
        total = -math.inf
        for phase in self.phases:
            total = log_add(total, phase.log_tau.total)
        return total

    @property
    def failure_probability(self) -> float:
        """``2 K delta``: some answer of any phase is further than ``error`` from the truth (Theorem 5.1).

        The noise alone decides, whatever m: see ``Memory.conclude``.
        """
        return 2.0 * sum(phase.noise_failure for phase in self.phases)

    @property
    def proved(self) -> bool:
        """Whether m is large enough for the proof that hard queries do not run out."""
        return self.hypothesis_rows >= self.papers_hypothesis_rows


def harmonic(n: int) -> Fraction:
    """``H_n = 1 + 1/2 + ... + 1/n``, rounded up by less than ``n 2**-192``."""
    # Exact fractions would have a denominator of thousands of digits.
    return sum((_part(i) for i in range(1, n + 1)), Fraction(0))


def _part(i: int) -> Fraction:
    one = 1 << 192
    return Fraction(-(-one // i), one)


def constants(
    *,
    n_cells: int,
    epsilon: Fraction,
    error: Fraction,
    queries_per_phase: int,
    phases: int,
    rows: int | None = None,
) -> Constants:
    """The constants of Kim 2017, Algorithm 3, with its slips mended.

    Args:
        n_cells: N, at least 2.
        epsilon: The whole loss, ``H_K alpha``.
        error: eps, in ``[MIN_ERROR, MAX_ERROR)``.
        queries_per_phase: k, at least 2.
        phases: K.
        rows: m by hand; None takes ``160000 ln(K k) ln(1/eps) / eps^2``. Privacy holds for any; for a smaller
            one tau grows, and hard queries may run out.

    Raises:
        InvalidDefinition: The noise would be wider than the sampler draws.
    """
    k, K, N, eps = queries_per_phase, phases, n_cells, error
    alpha = epsilon / harmonic(K)
    papers_m = hypothesis_rows(K * k, eps)
    m = papers_m if rows is None else rows
    inverse = [inverse_privacy(alpha, j * m, N) for j in range(1, K + 1)]
    sensitivity = min(_UNITS_WANTED, math.floor(MAX_SCALE / inverse[-1]))
    if sensitivity < MIN_UNITS:
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            f"the noise would be about 2**{(inverse[-1] * MIN_UNITS).bit_length()} wide, and the sampler "
            f"draws up to 2**{MAX_SCALE.numerator.bit_length() - 1}",
            "raise accuracy.error or privacy.epsilon, lower mechanism.phases, or set "
            "mechanism.hypothesis_rows by hand",
        )
    n_min = _min_rows(k, eps, inverse[0], inverse[-1], sensitivity)
    gates = [
        Gate.of(
            n_rows=j * n_min,
            n_queries=k,
            error=eps,
            inverse_privacy=inverse[j - 1],
            sensitivity=sensitivity,
        )
        for j in range(1, K + 1)
    ]
    last = min(gate.last for gate in gates)
    return Constants(
        alpha=alpha,
        error=eps,
        queries_per_phase=k,
        hypothesis_rows=m,
        papers_hypothesis_rows=papers_m,
        min_rows=n_min,
        min_rows_as_printed=min_rows_as_printed(N, alpha, eps, k, m),
        sensitivity=sensitivity,
        phases=tuple(
            PhaseConstants(
                phase=j,
                inverse_privacy=inverse[j - 1],
                hard_limit=hard_limit(j * m, N),
                min_rows=j * n_min,
                last_threshold=gates[j - 1].last,
                log_tau=log_tau(j * m, N, j * k, last),
                noise_failure=noise_failure(k, float(eps * j * n_min / inverse[j - 1])),
            )
            for j in range(1, K + 1)
        ),
    )


def _min_rows(k: int, eps: Fraction, first: int, last: int, sensitivity: int) -> int:
    """``n_min = 30 ln(2k/alpha'_K) log2(k) / (alpha'_1 eps)``, where the thesis prints ``ln(2k/alpha)``.

    That is ``21600 m ln(2k/alpha'_K) log2(k) ln N / (alpha eps)``. The second summand pays for the floors and
    ceilings of the gate's integers, so that every phase has ``L >= floor(1.125 log2 k)``.
    """
    _, logarithm = ln_bounds(2 * k * last)
    _, log2_k = log2_bounds(k)
    exact = 30 * first * logarithm * log2_k / eps
    return math.ceil(exact + (15 * log2_k + 2) / (sensitivity * eps))


def min_rows_as_printed(
    n_cells: int, alpha: Fraction, error: Fraction, queries_per_phase: int, rows: int
) -> int:
    """``n_min = 21600 m ln(2k/alpha) log2(k) ln N / (alpha eps)``, rounded up; too small for ``gamma_j``."""
    _, logarithm = ln_bounds(2 * queries_per_phase / alpha)
    _, log2_k = log2_bounds(queries_per_phase)
    _, ln_cells = ln_bounds(n_cells)
    return math.ceil(21_600 * rows * logarithm * log2_k * ln_cells / (alpha * error))


# ---------------------------------------------------------------- looks and releases

_VERSION: Final = 1
_PHASE, _QUERY = 0, 1
_HEADER: Final = struct.Struct("<BBI")  # version, kind, phase
_BODY: Final = struct.Struct("<QII?16sH")  # index, window, hard, noisy count, number of attributes


@dataclass(frozen=True, slots=True)
class PhaseRelease:
    """A phase was opened and paid for; nothing was looked at."""

    phase: int

    def to_bytes(self) -> bytes:
        return _HEADER.pack(_VERSION, _PHASE, self.phase)


@dataclass(frozen=True, slots=True)
class PhaseLook:
    """The charge of a whole phase, made when it opens. It looks at nothing."""

    phase: int
    charges: tuple[Charge, ...]
    description: dict[str, object]

    def reserve(self, noise: NoiseSource) -> None:
        """Nothing is drawn."""

    def take(self, noise: NoiseSource, data: Blocks) -> PhaseRelease:
        return PhaseRelease(self.phase)


@dataclass(frozen=True, slots=True)
class QueryRelease:
    """``(d, a)`` of one query, with what was asked. Published.

    Attributes:
        index: Number of the query, from 0, over all phases.
        hard: d.
        noisy_count: ``a`` in rows where hard; 0 where easy, for ``a`` then follows from the consistent set.
    """

    phase: int
    index: int
    window: range
    predicate: Predicate
    hard: bool
    noisy_count: int

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on the query alone."""
        attributes = self.predicate.attributes
        body = _BODY.pack(
            self.index,
            self.window.start,
            self.window.stop,
            self.hard,
            self.noisy_count.to_bytes(16, "little", signed=True),
            len(attributes),
        )
        places = struct.pack(f"<{len(attributes)}H", *attributes)
        cells = np.packbits(self.predicate.mask).tobytes()
        return _HEADER.pack(_VERSION, _QUERY, self.phase) + body + places + cells


@dataclass(frozen=True, slots=True)
class QueryLook:
    """The test of one query and, should it be hard, its answer; one look, paid for with its phase."""

    phase: int
    index: int
    question: Question
    n_rows: int
    inverse_privacy: int
    gate: Gate
    easiness: Easiness = field(repr=False)
    easy_share: Fraction
    description: dict[str, object]

    @property
    def charges(self) -> tuple[Charge, ...]:
        return ()

    def reserve(self, noise: NoiseSource) -> None:
        for scale in self._scales:
            noise.reserve("laplace", scale, 1)

    @property
    def _scales(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.gate.scale), Fraction(self.inverse_privacy)

    def take(self, noise: NoiseSource, data: Blocks) -> QueryRelease:
        """Draws, counts and compares the same way whether the query turns out easy or hard."""
        gate_scale, count_scale = self._scales
        of_easiness = int(noise.laplace(gate_scale, 1)[0])
        of_count = int(noise.laplace(count_scale, 1)[0])
        index = noise.geometric_half(self.gate.last)
        predicate, window = self.question.predicate, self.question.window
        tables = data.marginal(predicate.attributes, window)
        count = sum(int(table[predicate.mask].sum()) for table in tables)
        units = self.gate.units(self.easiness(count))
        hard = not self.gate.is_easy(units, noise=of_easiness, index=index)
        noisy = count + of_count
        return QueryRelease(self.phase, self.index, window, predicate, hard, noisy * hard)


# ---------------------------------------------------------------- the mechanism


class Memory:
    """One data set under the memory mechanism: holds published values only. A ``mechanism.Mechanism``.

    Every query costs one of its phase's k looks, repeats included, and its look is announced before it is
    taken. The loss of a phase is charged when the phase opens, so a look's own charge is empty.

    *A lost look counts as a hard query.* It was announced with its number; nothing of it was published, so it
    tells nothing (its release cannot fail because of what was drawn), and whatever its threshold was, it may
    be taken for a bad one: then ``i`` and ``h`` grow by one, as for a hard query. ``h`` stays at most
    ``h_max``, for a look is announced only below it, so the proof's count of bad thresholds, and with it the
    supermartingale behind tau (which only gains from a hard query), stands as it is.

    Decisions depend on the definition, the sizes of blocks, releases and lost looks: folding the same ones in
    the same order gives the same state.

    Args:
        universe: At most 2**20 cells for "entropic".
        privacy: ``epsilon`` is the lifetime bound ``H_K alpha``; ``delta`` bounds the sum of all phases' tau.
        accuracy: ``error`` is the papers' eps, below 0.9; ``failure_probability`` bounds ``2 K delta``.
        queries_per_phase: k, at least 2; queries that a phase leaves unasked are not carried over.
        phases: K, at least 1.
        hypothesis_rows: m by hand, for far smaller blocks; None takes the papers'.
        representation: Of the consistent set; touches accuracy only.
        max_tau: A further limit on the sum of all phases' tau; None leaves it to ``privacy.delta``.

    Raises:
        InvalidDefinition: A setting is out of range, tau or the failure probability exceeds its limit, or
            the numbers are too large to be run; names the field and the fix.
    """

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
        max_tau: float | None = None,
    ) -> None:
        error = _as_written(accuracy.error)
        _check(universe, privacy, error, queries_per_phase, phases, hypothesis_rows)
        self._universe = universe
        self._privacy = privacy
        self._representation = representation
        self._constants = constants(
            n_cells=universe.n_cells,
            epsilon=_as_written(privacy.epsilon),
            error=error,
            queries_per_phase=queries_per_phase,
            phases=phases,
            rows=hypothesis_rows,
        )
        _check_bounds(self._constants, privacy, accuracy, max_tau)
        self._set: ConsistentSet = _consistent_set(representation, universe, self._constants)
        self._lines = _lines(self._constants, privacy)
        self._spent: list[tuple[int, int]] = []
        self._sizes: list[int] = []
        self._asked = 0
        self._asked_before = 0  # until the newest phase opened
        self._hard = 0

    def __repr__(self) -> str:
        return f"Memory(phase={len(self._sizes)}, asked={self._asked}, hard={self._hard})"

    # ------------------------------------------------------------ public facts

    @property
    def constants(self) -> Constants:
        return self._constants

    @property
    def min_rows(self) -> int:
        """``n_min``: waiting rows below which no phase opens."""
        return self._constants.min_rows

    @property
    def asked(self) -> int:
        """Queries looked at in all phases, lost looks included."""
        return self._asked

    @property
    def hard(self) -> int:
        """Hard queries of all phases, lost looks included."""
        return self._hard

    @property
    def published_budget(self) -> dict[str, object]:
        """The promise and the constants behind it, for people and for the ledger; JSON-ready."""
        facts = self._constants
        log_ten = math.log(10.0)
        return {
            "accountant": "basic composition (Kim 2017, Theorem 5.1); a line is linear in epsilon",
            "epsilon": self._privacy.epsilon,
            "alpha": float(facts.alpha),
            "delta": self._privacy.delta,
            "log10_tau": facts.log_tau / log_ten,
            "log10_tau_terms": [
                [p.log_tau.concentration / log_ten, _finite(p.log_tau.last_index / log_ten)]
                for p in facts.phases
            ],
            "error": float(facts.error),
            "failure_probability": facts.failure_probability,
            "accuracy_proved": facts.proved,
            "queries_per_phase": facts.queries_per_phase,
            "phases": len(facts.phases),
            "hypothesis_rows": facts.hypothesis_rows,
            "papers_hypothesis_rows": facts.papers_hypothesis_rows,
            "alpha_prime": [1.0 / p.inverse_privacy for p in facts.phases],
            "hard_limit": [p.hard_limit for p in facts.phases],
            "min_rows": facts.min_rows,
            "min_rows_as_printed": facts.min_rows_as_printed,
            "representation": self._representation,
        }

    # ------------------------------------------------------------ phases and charges

    def opens(self, waiting: int, min_rows: int) -> bool:
        """Whether ``waiting`` rows open a phase: as many as setting and proof ask for, and a phase left."""
        phases_left = len(self._sizes) < len(self._constants.phases)
        return phases_left and waiting >= max(min_rows, self._constants.min_rows)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Opens a phase with a block of ``n_rows`` rows.

        Raises:
            ValueError: No phase is left, or the block is smaller than ``min_rows``; ``opens`` says so before.
        """
        if not self.opens(n_rows, 0):
            raise ValueError("no phase opens with this block; ask opens() first")
        self._sizes.append(n_rows)
        self._spent.append((0, 0))
        self._set.add_block(n_rows)
        self._asked_before = self._asked
        j = len(self._sizes)
        before, after = self._lines[j - 1], self._lines[j]
        step = (after[0] - before[0], after[1] - before[1])
        charges = (
            *(Charge(block, *step) for block in range(j - 1)),
            Charge(j - 1, *after),
        )
        description: dict[str, object] = {
            "kind": "phase",
            "mechanism": "memory",
            "phase": j,
            "rows": n_rows,
            "count_scale": self._phase.inverse_privacy,
            "gate_scale": self._constants.sensitivity * self._phase.inverse_privacy,
            "hard_limit": self._phase.hard_limit,
            "queries": self._constants.queries_per_phase,
        }
        return (PhaseLook(j, charges, description),)

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        for charge in look_charges:
            rho, delta = self._spent[charge.block]
            self._spent[charge.block] = rho + charge.rho, delta + charge.delta

    @property
    def _phase(self) -> PhaseConstants:
        return self._constants.phases[len(self._sizes) - 1]

    # ------------------------------------------------------------ questions

    def answer(self, question: Question) -> Outcome | Look:
        refused = self._refusal(question)
        return self._look(question) if refused is None else refused

    def quote(self, question: Question) -> Quote:
        """What asking would cost: one of the phase's queries, but no privacy beyond the phase's."""
        return Quote(self._refusal(question), ())

    def _refusal(self, question: Question) -> Refused | None:
        """Why the question is not looked at; from public facts only."""
        k = self._constants.queries_per_phase
        if question.group_by:
            return Refused(
                RefusalCode.UNSUPPORTED_KIND,
                "the memory profile answers predicate questions only; ask each cell as one",
            )
        if not self._sizes:
            return Refused(
                RefusalCode.NO_PHASE,
                f"no phase is open yet: the first opens when {self.min_rows:,} rows wait; ask again "
                "under a new id then",
            )
        if question.window.stop > len(self._sizes):
            return Refused(
                RefusalCode.INVALID_QUERY, "the window reaches beyond the phases that are open"
            )
        line = self._lines[len(self._sizes)]
        if any(spent[0] < line[0] or spent[1] < line[1] for spent in self._spent):
            return Refused(
                RefusalCode.RETRY_AFTER, "the newest phase is not paid for yet", retriable=True
            )
        if self._asked - self._asked_before >= k:
            return Refused(
                RefusalCode.QUERIES_EXHAUSTED,
                f"all {k:,} queries of phase {len(self._sizes)} were asked{self._what_next()}",
            )
        if self._hard >= self._phase.hard_limit:
            return Refused(
                RefusalCode.HARD_QUERIES_EXHAUSTED,
                f"all {self._phase.hard_limit:,} hard queries up to phase {len(self._sizes)} were "
                f"answered{self._what_next()}",
            )
        if self._set.empty:
            return Refused(
                RefusalCode.INCONSISTENT,
                "no hypothesis agrees with all published answers: no query can be answered any more",
            )
        n_rows = sum(self._sizes[block] for block in question.window)
        if n_rows < self._phase.min_rows:
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"the window has {n_rows:,} rows and phase {len(self._sizes)} asks for "
                f"{self._phase.min_rows:,}; ask about more phases",
            )
        return None

    def _what_next(self) -> str:
        if len(self._sizes) == len(self._constants.phases):
            return "; it was the last phase"
        return "; ask again in the next phase"

    def _look(self, question: Question) -> QueryLook:
        window, phase = question.window, self._phase
        n_rows = sum(self._sizes[block] for block in window)
        distribution = self._set.distribution(self._mask(question.predicate), window)
        gate = Gate.of(
            n_rows=n_rows,
            n_queries=self._constants.queries_per_phase,
            error=self._constants.error,
            inverse_privacy=phase.inverse_privacy,
            sensitivity=self._constants.sensitivity,
        )
        assert gate.last >= phase.last_threshold, "a larger window has no smaller last threshold"
        return QueryLook(
            phase=phase.phase,
            index=self._asked,
            question=question,
            n_rows=n_rows,
            inverse_privacy=phase.inverse_privacy,
            gate=gate,
            easiness=Easiness(distribution, self._constants.error, n_rows),
            easy_share=distribution.lower_median,
            description={
                "kind": "query",
                "mechanism": "memory",
                "phase": phase.phase,
                "index": self._asked,
                "window": [window.start, window.stop],
                "attributes": list(question.predicate.attributes),
                "predicate": question.predicate.key.hex(),
                "count_scale": phase.inverse_privacy,
                "gate_scale": gate.scale,
            },
        )

    def _mask(self, predicate: Predicate) -> Mask:
        """The predicate on the whole universe, shape (n_cells,)."""
        shape = [1] * len(self._universe.shape)
        for attribute in predicate.attributes:
            shape[attribute] = self._universe.shape[attribute]
        whole = np.broadcast_to(predicate.mask.reshape(shape), self._universe.shape)
        return np.ascontiguousarray(whole).reshape(-1)

    def absorb(self, release: Release) -> None:
        """Counts a release, and prunes the consistent set by a hard one.

        Raises:
            CorruptState: It is not the next release.
        """
        if isinstance(release, PhaseRelease):
            return
        assert isinstance(release, QueryRelease), "a release of another mechanism"
        self._count(release.phase, release.index)
        if release.hard:
            self._hard += 1
            n_rows = sum(self._sizes[block] for block in release.window)
            self._set.prune(
                self._mask(release.predicate),
                release.window,
                Fraction(release.noisy_count, n_rows),
                self._constants.error / 50,
            )

    def lost(self, look: dict[str, object]) -> None:
        if look["kind"] == "phase":
            return  # its charge stands, and there was nothing else to it
        self._count(look["phase"], look["index"])
        self._hard += 1

    def _count(self, phase: object, index: object) -> None:
        if (phase, index) != (len(self._sizes), self._asked):
            raise CorruptState(
                f"the transcript has query {index} of phase {phase} where query {self._asked} of phase "
                f"{len(self._sizes)} belongs"
            )
        self._asked += 1

    def conclude(self, question: Question, look: Look, release: Release) -> Outcome:
        """The answer, within ``error`` of the truth whatever m and the consistent set are.

        Unless the noise was too large, a hard answer is off by ``eps/100`` at most, and the easiness behind
        an easy one was 3/4 - 1/100 or more. Were half of the set's weight further than eps from the truth,
        it would be at most ``1/2 + 1/(2e)``, less than 0.69; so more than half is within eps, and the median
        too. What a large m adds is that queries are easy often enough (Kim 2017, Theorem 5.1).
        """
        assert isinstance(look, QueryLook), "a look of another mechanism"
        assert isinstance(release, QueryRelease), "a release of another mechanism"
        n_rows = look.n_rows
        count = release.noisy_count if release.hard else round(look.easy_share * n_rows)
        bar = float(self._constants.error)
        return Answered(
            count=min(n_rows, max(0, count)),
            n=n_rows,
            error_bar=bar,
            error_bar_simultaneous=bar,
            confidence=1.0 - self._constants.failure_probability,
            path=Path.MEASURED if release.hard else Path.GATED,
        )

    # ------------------------------------------------------------ restarts

    def remembered(self) -> dict[bytes, bytes]:
        """Nothing: in this profile a repeat is a query like any other."""
        return {}

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        """Nothing was remembered."""

    def release_from_bytes(self, data: bytes) -> Release:
        try:
            version, kind, phase = _HEADER.unpack_from(data)
            if version != _VERSION:
                raise CorruptState("a release is stored in a version that this one does not know")
            if kind == _PHASE and len(data) == _HEADER.size:
                return PhaseRelease(phase)
            if kind != _QUERY:
                raise CorruptState("a stored release is of unknown kind")
            index, start, stop, hard, noisy, n_attributes = _BODY.unpack_from(data, _HEADER.size)
            places = _HEADER.size + _BODY.size
            attributes = struct.unpack_from(f"<{n_attributes}H", data, places)
            shape = tuple(self._universe.shape[a] for a in attributes)
        except (struct.error, IndexError) as error:
            raise CorruptState("a stored release is cut short or of another universe") from error
        packed = np.frombuffer(data, dtype=np.uint8, offset=places + 2 * n_attributes)
        n_cells = math.prod(shape)
        if packed.size != -(-n_cells // 8) or not start < stop:
            raise CorruptState("a stored release has the wrong length")
        mask = np.unpackbits(packed, count=n_cells).astype(np.bool_).reshape(shape)
        return QueryRelease(
            phase,
            index,
            range(start, stop),
            Predicate.of_mask(attributes, mask),
            hard,
            int.from_bytes(noisy, "little", signed=True),
        )


# ---------------------------------------------------------------- construction


def _as_written(value: float) -> Fraction:
    """The decimal number that someone wrote, not the float nearest to it: 0.1 is 1/10."""
    return Fraction(repr(value))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _consistent_set(
    representation: Representation, universe: Universe, facts: Constants
) -> ConsistentSet:
    if representation == "exhaustive":
        return Exhaustive(universe.n_cells, facts.hypothesis_rows, len(facts.phases))
    if representation == "entropic":
        return Entropic(universe.n_cells, facts.hypothesis_rows)
    raise InvalidDefinition(
        "mechanism.representation",
        f"there is no {representation!r}",
        'use "entropic" or "exhaustive"',
    )


def _check(
    universe: Universe,
    privacy: Privacy,
    error: Fraction,
    queries_per_phase: int,
    phases: int,
    rows: int | None,
) -> None:
    if universe.n_cells < 2:
        raise InvalidDefinition(
            "attributes", "the universe has a single cell", "declare an attribute with two"
        )
    if not MIN_ERROR <= error < MAX_ERROR:
        raise InvalidDefinition(
            "accuracy.error",
            f"the memory profile takes {float(MIN_ERROR)} to below {float(MAX_ERROR)}",
            "give a share such as 0.1",
        )
    if privacy.delta == 0.0:
        raise InvalidDefinition(
            "privacy.delta",
            "is zero, and the memory mechanism loses privacy with a small probability tau",
            "give a number such as 1e-9",
        )
    if queries_per_phase < 2:
        raise InvalidDefinition(
            "mechanism.queries_per_phase", "is below 2", "say how many queries a phase may ask"
        )
    if phases < 1:
        raise InvalidDefinition(
            "mechanism.phases", "is below 1", "say how many phases may be opened"
        )
    if rows is not None and rows < 1:
        raise InvalidDefinition(
            "mechanism.hypothesis_rows", "is below 1", "leave it out to take the papers' number"
        )


def _check_bounds(
    facts: Constants, privacy: Privacy, accuracy: Accuracy, max_tau: float | None
) -> None:
    field_name, limit = "privacy.delta", privacy.delta
    if max_tau is not None and max_tau < limit:
        field_name, limit = "mechanism.max_tau", max_tau
    if not facts.log_tau <= (math.log(limit) if limit > 0.0 else -math.inf):
        terms = [log.concentration for log in (p.log_tau for p in facts.phases)]
        indices = [log.last_index for log in (p.log_tau for p in facts.phases)]
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            f"with {facts.hypothesis_rows:,} rows a hypothesis privacy may be lost with probability "
            f"{_shown(facts.log_tau)} (concentration {_shown(_log_sum(terms))}, last threshold "
            f"{_shown(_log_sum(indices))}), above the {limit:g} of {field_name}",
            f"raise mechanism.hypothesis_rows or mechanism.queries_per_phase, or {field_name}",
        )
    if facts.failure_probability > accuracy.failure_probability:
        raise InvalidDefinition(
            "accuracy.failure_probability",
            f"the noise of some query is too large with probability up to {facts.failure_probability:.3g}, "
            f"above {accuracy.failure_probability:g}",
            "raise mechanism.queries_per_phase (phases and their noise grow with it), or this limit",
        )
    if facts.min_rows > MAX_ROWS:
        raise InvalidDefinition(
            "mechanism.hypothesis_rows",
            f"a phase would need {facts.min_rows:.3g} rows, and a block holds {MAX_ROWS:.3g}",
            "raise accuracy.error or privacy.epsilon, lower mechanism.phases or "
            "mechanism.queries_per_phase, or set mechanism.hypothesis_rows by hand",
        )


def _log_sum(logs: list[float]) -> float:
    total = -math.inf
    for log in logs:
        total = log_add(total, log)
    return total


def _shown(log: float) -> str:
    """A probability from its logarithm, also one that no float holds."""
    if log == -math.inf:
        return "0"
    return f"{math.exp(log):.2g}" if log > -600.0 else f"10**{log / math.log(10.0):.0f}"


def _lines(facts: Constants, privacy: Privacy) -> list[tuple[int, int]]:
    """What every block's line reads after each phase, from none on; the last is at most ``UNITS``."""
    lines, whole = [(0, 0)], harmonic(len(facts.phases))
    loss, log_delta = Fraction(0), -math.inf
    for phase in facts.phases:
        loss += _part(phase.phase)
        log_delta = log_add(log_delta, phase.log_tau.total)
        share = math.exp(min(0.0, log_delta - math.log(privacy.delta)))
        delta = min(UNITS, math.ceil(share * (1.0 + 1e-12) * UNITS))
        lines.append((math.ceil(UNITS * loss / whole), max(delta, lines[-1][1], 1)))
    return lines


__all__ = [
    "Constants",
    "Memory",
    "PhaseConstants",
    "PhaseLook",
    "PhaseRelease",
    "QueryLook",
    "QueryRelease",
    "Representation",
    "constants",
    "harmonic",
    "min_rows_as_printed",
]
