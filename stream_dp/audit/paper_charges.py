"""The charges that phases and queries of the papers' profiles must have, from their constants.

The loss of docs/proofs, Theorem 7, is computed again: a phase is paid for as a whole when it opens, from the
width of its noise, its limits and the probability tau that its thresholds turn out bad too often. A line is
linear in epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

from stream_dp.audit.line_limits import Due, LookLoss, Span
from stream_dp.audit.look_facts import Look, sizes_of
from stream_dp.audit.numbers import (
    UNITS,
    Wrong,
    as_written,
    exact,
    exp,
    ln,
    n_cells,
    reading,
    whole,
    wholes,
    window,
)
from stream_dp.messages import Definition, PhasedSpec

_FIRST_PART: Final = Fraction(607_927, 10**6)
"""The share of epsilon and delta for the first stage. Stage s has this share over s^2; the sum is below 1."""

_ROUND: Final = Fraction(1, 10**9)
"""The tolerance of tau, because both sides compute logarithms of binomials in floats."""


@dataclass(frozen=True, slots=True)
class _CheckedStage:
    """The parameters of a mechanism of the family.

    Attributes:
        queries: k, the queries of a phase.
        epsilon: The epsilon of all its phases together.
        delta: The delta of all its phases together.
        parts: Its part of the whole epsilon and delta.
    """

    number: int
    queries: int
    epsilon: Fraction
    delta: Fraction
    parts: tuple[Fraction, Fraction]


class Papers:
    """The prices of a data set under one of them. It remembers which queries were asked.

    Attributes:
        composes: Whether the oracle can compose what the looks lose.
    """

    composes: Final = False

    def __init__(self, definition: Definition, settings: PhasedSpec) -> None:
        self._settings = settings
        self._profile = definition.mechanism.profile
        self._privacy = definition.privacy
        self._error = as_written(definition.accuracy.error)
        sizes = sizes_of(definition)
        self._sizes = sizes
        self._ln_cells = ln(math.prod(sizes))
        self._phases = settings.n_phases
        self._doubled = 2 if settings.representation == "polytope" else 1
        self._stage = self._stage_of(1)
        self._thresholds: dict[int, int] = {}  # of the phases that are paid for
        self._rows_of_hypothesis: int | None = None
        self._asked = self._asked_before = 0

    def owed(self, look: Look, rows: Sequence[int]) -> list[tuple[int, Due]]:
        """Returns what a look costs, as ``Looks.owed`` does."""
        with reading():
            if look.get("mechanism") != self._profile:
                raise Wrong(f"it is of the profile {look.get('mechanism')!r}, not {self._profile}")
            if look.get("kind") == "phase":
                return self._phase(look, rows)
            if look.get("kind") == "query":
                return self._query(look, rows)
        raise Wrong(f"the profile {self._profile} takes no look {look.get('kind')!r}")

    # ------------------------------------------------------------ looks

    def _phase(self, look: Look, rows: Sequence[int]) -> list[tuple[int, Due]]:
        """Opening a phase reads nothing and pays for all that will be asked in it."""
        phase = whole(look, "phase")
        if phase != len(rows) or phase > self._phases:
            raise Wrong(f"it pays for phase {phase}, and {len(rows)} of {self._phases} are open")
        self._same_stage(look, self._stage)
        self._constants(look, phase)
        self._asked_before = self._asked
        self._thresholds[phase] = whole(look, "last_threshold")
        return self._priced(self._stage, phase)

    def _query(self, look: Look, rows: Sequence[int]) -> list[tuple[int, Due]]:
        """One of the queries that are paid for; with the first of a new stage, what that costs."""
        phase, owed = whole(look, "phase"), []
        if phase != len(rows):
            raise Wrong(f"it is of phase {phase}, and {len(rows)} are open")
        if phase not in self._thresholds:
            raise Wrong(f"it is of phase {phase}, which nothing was paid for")
        if self._settings.doubling and look.get("stage") == self._stage.number + 1:
            owed = self._begin(look, phase)
        self._same_stage(look, self._stage)
        self._constants(look, phase)
        index = whole(look, "index")
        if index != self._asked:
            raise Wrong(f"it is query {index}, and {self._asked} were asked before it")
        self._asked += 1
        if self._asked - self._asked_before > self._stage.queries:
            raise Wrong(f"it is one more than the {self._stage.queries} queries of its phase")
        ends = window(look)
        if ends.stop > len(rows):
            raise Wrong(f"it reads phase {ends.stop}, which is not open yet")
        if self._profile != "memory" and ends != range(len(rows)):
            raise Wrong(
                f"the profile {self._profile} reads all phases together, and this look does not"
            )
        n_cells(self._sizes, wholes(look, "attributes"))
        self._test(look, phase, sum(rows[ends.start : ends.stop]))
        return owed

    def _begin(self, look: Look, phase: int) -> list[tuple[int, Due]]:
        """Enters the next stage, which pays for all phases that are open."""
        self._stage = self._stage_of(self._stage.number + 1)
        self._asked = self._asked_before = 0
        self._rows_of_hypothesis = None
        self._constants(look, phase)
        listed = wholes(look, "last_thresholds")
        self._thresholds = dict(zip(range(1, phase + 1), listed, strict=True))
        found = []
        for number in range(1, phase + 1):
            found += self._priced(self._stage, number)
        return found

    def _stage_of(self, number: int) -> _CheckedStage:
        settings, privacy = self._settings, self._privacy
        queries = settings.n_queries
        epsilon, delta = as_written(privacy.epsilon), Fraction(privacy.delta)
        if not settings.doubling:
            return _CheckedStage(1, queries, epsilon, delta, (Fraction(1), Fraction(1)))
        part = _FIRST_PART / number**2
        # A stage's own promise is written as two floats.
        own_epsilon, own_delta = as_written(float(epsilon * part)), Fraction(float(delta * part))
        parts = own_epsilon / epsilon, own_delta / delta
        return _CheckedStage(number, queries * 2 ** (number - 1), own_epsilon, own_delta, parts)

    def _same_stage(self, look: Look, stage: _CheckedStage) -> None:
        if self._settings.doubling and look.get("stage") != stage.number:
            raise Wrong(f"it is of stage {look.get('stage')}, and stage {stage.number} is in force")

    # ------------------------------------------------------------ constants

    def _constants(self, look: Look, phase: int) -> None:
        """Checks that noise and limits are those that the price of the phase is proved for."""
        stage, steps = self._stage, phase if self._profile == "memory" else 1
        says_queries = look["kind"] == "phase" or "queries" in look
        if says_queries and whole(look, "queries") != stage.queries:
            raise Wrong(f"it allows {look['queries']} queries, and its phase has {stage.queries}")
        if look["kind"] == "phase" or "stage" in look:
            self._rows_of_hypothesis = self._hypothesis_rows(look)
            limit = 20 * steps * self._counted * self._ln_cells
            if whole(look, "hard_limit") > limit:
                raise Wrong(
                    f"it allows {look['hard_limit']} hard answers; its price is for {int(limit)}"
                )
        least = 720 * steps * self._counted * self._ln_cells / self._alpha(phase)
        if exact(look, "count_scale") < least:
            raise Wrong(
                f"its answers have noise of scale {look['count_scale']}; its price is for {math.ceil(least)}"
            )

    def _hypothesis_rows(self, look: Look) -> int:
        found, wanted = whole(look, "hypothesis_rows"), self._settings.hypothesis_rows
        if found < 1 or wanted not in {None, found}:
            raise Wrong(f"its hypotheses have {found} rows, and the definition says {wanted}")
        if self._rows_of_hypothesis not in {None, found}:
            raise Wrong(
                f"its hypotheses have {found} rows, and had {self._rows_of_hypothesis} before"
            )
        return found

    @property
    def _counted(self) -> int:
        """m, or 2 m for a polytope, which may have twice as many hard queries."""
        assert self._rows_of_hypothesis is not None, "checked before"
        return self._doubled * self._rows_of_hypothesis

    def _alpha(self, phase: int) -> Fraction:
        """The papers' alpha in a phase."""
        whole_loss = self._stage.epsilon / _harmonic(self._phases)
        return whole_loss if self._profile == "memory" else whole_loss / phase

    def _test(self, look: Look, phase: int, n_rows: int) -> None:
        """Checks that the flag is as private as an answer, and its thresholds far enough apart."""
        gate = look["gate"]
        units, sensitivity = whole(gate, "units"), whole(gate, "sensitivity")
        scale, width = exact(look, "gate_scale"), exact(look, "count_scale")
        # One row moves the easiness by 1 / (err n), and rounding it by a unit at most.
        if units / (self._error * n_rows) + 1 + Fraction(units, 2**120) > sensitivity:
            raise Wrong(
                f"one row moves its test by more than the {sensitivity} units it has noise for"
            )
        if scale < sensitivity * width:
            raise Wrong("the noise of its test is smaller than that of its answer")
        slip = 1 / width if self._profile == "memory" else self._alpha(phase)
        if exact(gate, "step") < 2 * scale * ln(2 * self._stage.queries / slip):
            raise Wrong("the thresholds of its test are nearer to each other than its price is for")
        promised = self._thresholds[phase]
        if whole(gate, "last") < promised:
            raise Wrong(
                f"its last threshold is {gate['last']}, and its phase was paid for {promised}"
            )

    # ------------------------------------------------------------ prices

    def _priced(self, stage: _CheckedStage, phase: int) -> list[tuple[int, Due]]:
        """Returns what opening a phase costs each block that is there."""
        found = []
        for block in range(phase):
            loss, delta = self._step(block, phase)
            rho = math.ceil(loss * stage.parts[0])
            failing = Span(*(math.ceil(end * stage.parts[1]) for end in delta))
            found.append((block, Due(Span(rho, rho), failing, LookLoss())))
        return found

    def _step(self, block: int, phase: int) -> tuple[int, Span]:
        """Units of the stage's own budget: what the line reads after a phase, less what it read before."""
        joined = block + 1
        if self._profile == "memory":
            first = 1  # a line of the memory profile reads the same for all blocks
            before = phase - 1 if joined < phase else 0
        else:
            first, before = joined, phase - 1
        old, new = self._reads(first, before), self._reads(first, phase)
        steps = new[1].least - old[1].most, new[1].most - old[1].least
        return new[0] - old[0], Span(max(0, steps[0]), max(0, steps[1]))

    def _reads(self, first: int, last: int) -> tuple[int, Span]:
        """Returns the reading of a line that has paid for the phases ``first`` to ``last``."""
        if last < first:
            return 0, Span(0, 0)
        loss = _harmonic(last) - _harmonic(first - 1)
        units = math.ceil(UNITS * loss / _harmonic(self._phases))
        low = high = Fraction(0)
        for phase in range(first, last + 1):
            bounds = self._tau(phase, self._thresholds[phase])
            low, high = low + bounds[0], high + bounds[1]
        ends = (math.ceil(UNITS * tau / self._stage.delta) for tau in (low, high))
        return units, Span(*(max(1, min(UNITS, end)) for end in ends))

    def _tau(self, phase: int, last: int) -> tuple[Fraction, Fraction]:
        """Bounds on the probability that a phase has too many bad thresholds.

        ``exp(-4.99 M) + Pr[Bin(n, c) > M]`` with ``M = m ln N``, n queries and ``c = 2^-L / (2 - 2^-L)``. In
        phase j of the memory profile both M and n are j times as large.
        """
        steps = phase if self._profile == "memory" else 1
        extent = steps * self._counted * self._ln_cells
        n_queries = steps * self._stage.queries
        drawn = Fraction(_binomial_tail(n_queries, 1.0 / (2.0 ** (last + 1) - 1.0), int(extent)))
        tau = exp(-Fraction(499, 100) * extent) + drawn
        # What is charged bounds the rounding of its own logarithms, which grows with the trials.
        rounding = 1.0 + math.expm1(min(700.0, 4e-15 * math.lgamma(n_queries + 1)))
        return tau * (1 - _ROUND), tau * (1 + _ROUND) * Fraction(rounding) + Fraction(1, 10**300)


def _binomial_tail(n: int, p: float, k: int) -> float:
    """``Pr[Bin(n, p) > k]``."""
    from scipy.special import betainc  # only here: it takes a while to load

    return 0.0 if k >= n else float(betainc(k + 1, n - k, p))


@cache
def _harmonic(n: int) -> Fraction:
    """``1 + 1/2 + ... + 1/n``, to 150 digits."""
    one = 1 << 512
    return Fraction(sum(one // i for i in range(1, n + 1)), one)
