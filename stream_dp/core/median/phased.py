"""The parts that the median family's mechanisms share: phases paid as a whole, and the test of one query.

A query is easy when the consistent set answers it, hard when the dataset had to be looked at; both flag and
answer are published (Roth & Roughgarden 2010, Fig. 1). The mechanisms (``sequential``, ``memory``) differ in
the constants of each phase, in what a phase costs each block, and in whether the consistent set remembers the
phases before it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import ROWS_ERASED, LinearMechanism, Look, Quote, Release
from stream_dp.core.median.consistent_set import (
    ConsistentSet,
    Entropic,
    Exhaustive,
    Mask,
    Polytope,
)
from stream_dp.core.median.consistent_set.set_interface import block_shares
from stream_dp.core.median.easiness import Easiness, EasinessTest
from stream_dp.core.median.phase_constants import (
    Constants,
    PhaseConstants,
    Representation,
    check_bounds,
)
from stream_dp.core.median.phase_looks import (
    PhaseLook,
    PhaseRelease,
    QueryLook,
    QueryRelease,
    release_of,
)
from stream_dp.core.outcome import Answered, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.rows.universe import Universe
from stream_dp.core.synthetic.basis import PrunedShares
from stream_dp.errors import CorruptState

# ---------------------------------------------------------------- the mechanism


class OutstandingCharges:
    """The units of rho and of delta that each block still owes for phases that were opened."""

    def __init__(self) -> None:
        self._left: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"OutstandingCharges({len(self._left)} blocks)"

    def open(self) -> None:
        """Adds a block that owes nothing."""
        self._left.append((0, 0))

    def owe(self, charges: Iterable[Charge]) -> None:
        self._add(charges, 1)

    def pay(self, charges: Iterable[Charge]) -> None:
        self._add(charges, -1)

    def _add(self, charges: Iterable[Charge], sign: int) -> None:
        for charge in charges:
            rho, delta = self._left[charge.block]
            self._left[charge.block] = rho + sign * charge.rho, delta + sign * charge.delta

    @property
    def refusal(self) -> Refused | None:
        """The refusal of every query while something is owed. None if nothing is owed."""
        if all(rho <= 0 and delta <= 0 for rho, delta in self._left):
            return None
        return Refused(
            RefusalCode.RETRY_AFTER, "the newest phase is not paid for yet", retriable=True
        )


class Phased(LinearMechanism):
    """One data set under a mechanism of the family: holds published values only.

    Every query costs one of its phase's k looks, repeats included, and its look is announced before it is
    taken. The loss of a phase is charged when the phase opens, so a look's own charge is empty.

    *A lost look counts as a hard query.* It was announced with its number; nothing of it was published, so it
    tells nothing (its release cannot fail because of what was drawn), and whatever its threshold was, it may
    be taken for a bad one: then ``i`` and ``h`` grow by one, as for a hard query. ``h`` stays at most
    ``h_max``, for a look is announced only below it, so the proof's count of bad thresholds, and with it the
    supermartingale behind tau (which only gains from a hard query), stands as it is.

    Decisions depend on the definition, the sizes of blocks, releases and lost looks: folding the same ones in
    the same order gives the same state.

    Attributes:
        constants: The constants of its promise.
        asked: The queries looked at in all phases, lost looks included.
        hard: The hard queries of all phases, lost looks included.
        hard_answers: The published facts about hard queries: cells, window, share.

    Raises:
        InvalidDefinition: Tau or the failure probability exceeds its limit, or the numbers are too large to
            be run; names the field and the fix.
    """

    name: ClassVar[str]
    """What the ledger calls the mechanism."""
    accountant: ClassVar[str]
    """How its loss is summed, for people."""

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        facts: Constants,
        *,
        representation: Representation,
        blocks: int,
    ) -> None:
        check_bounds(facts, privacy, accuracy)
        self._universe = universe
        self._privacy = privacy
        self._representation = representation
        self.constants = facts
        self._blocks = blocks
        self._set = self._fresh_set()
        self._outstanding = OutstandingCharges()
        self._sizes: list[int] = []
        self._bare = 0
        self.asked = 0
        self._asked_before = 0  # until the newest phase opened
        self.hard = 0
        self._hard_before = 0  # what the limit on hard queries does not count
        self.hard_answers: list[tuple[Mask, range, Fraction]] = []

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(phase={len(self._sizes)}, asked={self.asked}, hard={self.hard})"
        )

    def _fresh_set(self) -> ConsistentSet:
        """A consistent set about which nothing was published yet."""
        n_cells, rows = self._universe.n_cells, self.constants.hypothesis_rows
        if self._representation == "exhaustive":
            return Exhaustive(n_cells, rows, self._blocks)
        if self._representation == "entropic":
            return Entropic(n_cells, rows)
        return Polytope(n_cells, self._blocks)

    # ------------------------------------------------------------ what a mechanism decides for itself

    @abstractmethod
    def _take_in(self, n_rows: int) -> None:
        """Makes the consistent set ready for a block of ``n_rows`` rows, already counted."""

    @abstractmethod
    def _price(self, phase: int) -> tuple[Charge, ...]:
        """Returns what opening a phase costs, one entry a block. It is called once a phase, in order."""

    @abstractmethod
    def _set_window(self, window: range) -> range:
        """A window of phases as blocks of the consistent set."""

    @property
    @abstractmethod
    def _set_sizes(self) -> list[int]:
        """Rows that each block of the consistent set stands for."""

    def _wrong_window(self, window: range) -> Refused | None:
        """Returns why a window of open phases is not served. None if it is."""
        n_rows = self._rows(window)
        if n_rows < self._phase.min_rows:
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"the window has {n_rows:,} rows and phase {len(self._sizes)} asks for "
                f"{self._phase.min_rows:,}; ask about more phases",
            )
        return None

    # ------------------------------------------------------------ public facts

    @property
    def rows_to_open(self) -> int:
        """``n_min``: waiting rows below which no phase opens."""
        return self.constants.min_rows

    def hypothesis(self, window: range) -> npt.NDArray[np.float64]:
        """Share of each cell in a window, by the consistent set's point; shape (n_cells,), sum 1 at most.

        Raises:
            ValueError: The set is empty, or the window is not served.
        """
        if not self._sizes or window.stop > len(self._sizes) or self._wrong_window(window):
            raise ValueError("no query about this window is answered")
        weights = block_shares(self._set_sizes, self._set_window(window))
        return np.asarray(weights @ self._set.point())

    def basis(self, window: range) -> PrunedShares:
        shares = self.hypothesis(window)
        return PrunedShares(
            window,
            self._rows(window),
            self._universe.shape,
            shares,
            [(cells, share) for cells, about, share in self.hard_answers if about == window],
            float(self.constants.error) / 100.0,
            1.0 - self.constants.failure_probability,
        )

    @property
    def published_budget(self) -> dict[str, object]:
        """The promise and the constants behind it, for people and for the ledger; JSON-ready."""
        facts = self.constants
        log_ten = math.log(10.0)
        return {
            "accountant": self.accountant,
            "epsilon": self._privacy.epsilon,
            "alpha": float(facts.alpha),
            "delta": self._privacy.delta,
            "log10_tau": facts.log_tau / log_ten,
            "log10_tau_concentration": facts.log_tau_terms.concentration / log_ten,
            "log10_tau_last_threshold": _finite(facts.log_tau_terms.last_index / log_ten),
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
            "proved_hypothesis_rows": facts.proved_hypothesis_rows,
            "alpha_prime": [1.0 / p.inverse_privacy for p in facts.phases],
            "hard_limit": [p.hard_limit for p in facts.phases],
            "min_rows": facts.min_rows,
            "min_rows_as_printed": facts.min_rows_as_printed,
            "representation": self._representation,
        }

    # ------------------------------------------------------------ phases and charges

    def opens(self, waiting: int, min_rows: int) -> bool:
        """Returns whether ``waiting`` rows open a phase.

        They do if they are as many as the setting and the proof ask for, and if a phase is left. None is
        once rows are lost: each phase pays for looks at all rows.
        """
        phases_left = len(self._sizes) < len(self.constants.phases) and not self._bare
        return phases_left and waiting >= max(min_rows, self.constants.min_rows)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Opens a phase with a block of ``n_rows`` rows.

        Raises:
            ValueError: No phase is left, or the block is smaller than ``min_rows``; ``opens`` says so before.
        """
        if not self.opens(n_rows, 0):
            raise ValueError("no phase opens with this block; ask opens() first")
        self._sizes.append(n_rows)
        self._outstanding.open()
        self._asked_before = self.asked
        self._take_in(n_rows)
        j = len(self._sizes)
        charges = self._price(j)
        self._outstanding.owe(charges)
        description: dict[str, object] = {
            "kind": "phase",
            "mechanism": self.name,
            "phase": j,
            "rows": n_rows,
            "count_scale": self._phase.inverse_privacy,
            "gate_scale": self.constants.sensitivity * self._phase.inverse_privacy,
            **self.described_phase,
        }
        return (PhaseLook(j, charges, description),)

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._outstanding.pay(look_charges)

    @property
    def described_phase(self) -> dict[str, object]:
        """The facts that the price of the newest phase follows from, JSON-ready."""
        return {
            "hard_limit": self._phase.hard_limit,
            "queries": self.constants.queries_per_phase,
            "hypothesis_rows": self.constants.hypothesis_rows,
            "last_threshold": self._phase.tau_threshold,
        }

    @property
    def _phase(self) -> PhaseConstants:
        return self.constants.phases[len(self._sizes) - 1]

    def _rows(self, window: range) -> int:
        return sum(self._sizes[block] for block in window)

    # ------------------------------------------------------------ queries

    def unsupported(self, kind: str) -> Refused:
        if kind != "table":
            return super().unsupported(kind)
        return Refused(
            RefusalCode.UNSUPPORTED_KIND,
            f"the {self.name} profile answers predicate queries only; ask each cell as one",
        )

    def _answer(self, query: LinearQuery) -> Outcome | QueryLook:
        refused = self._refusal(query)
        return self._look(query) if refused is None else refused

    def _quote(self, query: LinearQuery) -> Quote:
        """Returns what asking would cost: one of the phase's queries, but no privacy beyond the phase's."""
        return Quote(self._refusal(query), ())

    def _refusal(self, query: LinearQuery) -> Refused | None:
        """Returns why the query is not looked at, from public facts only. None if it is."""
        k = self.constants.queries_per_phase
        is_last = len(self._sizes) == len(self.constants.phases)
        what_next = "; it was the last phase" if is_last else "; ask again in the next phase"
        if not self._sizes:
            return Refused(
                RefusalCode.NO_PHASE,
                f"no phase is open yet: the first opens when {self.rows_to_open:,} rows wait; ask again "
                "under a new id then",
            )
        if query.window.stop > len(self._sizes):
            return Refused(
                RefusalCode.INVALID_QUERY, "the window reaches beyond the phases that are open"
            )
        unpaid = self._outstanding.refusal
        if unpaid is not None:
            return unpaid
        if query.window.start < self._bare:
            return ROWS_ERASED
        if self.asked - self._asked_before >= k:
            return Refused(
                RefusalCode.QUERIES_EXHAUSTED,
                f"all {k:,} queries of phase {len(self._sizes)} were asked{what_next}",
            )
        if self.hard - self._hard_before >= self._phase.hard_limit:
            return Refused(
                RefusalCode.HARD_QUERIES_EXHAUSTED,
                f"all {self._phase.hard_limit:,} hard queries that phase {len(self._sizes)} allows were "
                f"answered{what_next}",
            )
        if self._set.empty:
            return Refused(
                RefusalCode.INCONSISTENT,
                "no hypothesis agrees with all published answers: no query can be answered any more",
            )
        return self._wrong_window(query.window)

    def _look(self, query: LinearQuery) -> QueryLook:
        window, phase = query.window, self._phase
        n_rows = self._rows(window)
        distribution = self._set.distribution(
            query.predicate.whole_mask(self._universe), self._set_window(window)
        )
        gate = EasinessTest.of(
            n_rows=n_rows,
            n_queries=self.constants.queries_per_phase,
            error=self.constants.error,
            inverse_privacy=phase.inverse_privacy,
            inverse_slip=phase.inverse_slip,
            sensitivity=self.constants.sensitivity,
        )
        assert gate.last >= phase.last_threshold, "a larger window has no smaller last threshold"
        description: dict[str, object] = {
            "kind": "query",
            "mechanism": self.name,
            "phase": phase.phase,
            "index": self.asked,
            "window": [window.start, window.stop],
            "attributes": list(query.predicate.attributes),
            "predicate": query.predicate.key.hex(),
            "count_scale": phase.inverse_privacy,
            "gate_scale": gate.scale,
            "gate": {
                "units": gate.one,
                "sensitivity": gate.sensitivity,
                "step": gate.step,
                "last": gate.last,
            },
        }
        if distribution.effective_size is not None:
            description["effective_size"] = round(distribution.effective_size)
        return QueryLook(
            phase=phase.phase,
            index=self.asked,
            query=query,
            n_rows=n_rows,
            inverse_privacy=phase.inverse_privacy,
            gate=gate,
            easiness=Easiness(distribution, self.constants.error, n_rows),
            easy_share=distribution.lower_median,
            facts=description,
        )

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
            self.hard += 1
            n_rows = self._rows(release.window)
            cells = release.predicate.whole_mask(self._universe)
            share = Fraction(release.noisy_count, n_rows)
            self.hard_answers.append((cells, release.window, share))
            self._set.prune(
                cells, self._set_window(release.window), share, self.constants.error / 50
            )

    def rows_gone(self, n_blocks: int) -> None:
        self._bare = n_blocks

    def lost(self, look: dict[str, object]) -> None:
        if look["kind"] == "phase":
            return  # its charge stands, and there was nothing else to it
        self._count(look["phase"], look["index"])
        self.hard += 1

    def _count(self, phase: object, index: object) -> None:
        if (phase, index) != (len(self._sizes), self.asked):
            raise CorruptState(
                f"the transcript has query {index} of phase {phase} where query {self.asked} of phase "
                f"{len(self._sizes)} belongs"
            )
        self.asked += 1

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome:
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
        bar = float(self.constants.error)
        return Answered(
            estimate=count,
            n=n_rows,
            error_bar=bar,
            error_bar_simultaneous=bar,
            confidence=1.0 - self.constants.failure_probability,
            path=Path.MEASURED if release.hard else Path.GATED,
        )

    # ------------------------------------------------------------ restarts

    def release_from_bytes(self, data: bytes) -> Release:
        return release_of(self._universe, data)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
