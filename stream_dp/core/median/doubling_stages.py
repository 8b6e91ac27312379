"""A mechanism of the median family for an unknown number of queries: stages that double.

Roth & Roughgarden 2010, section 3 (its end): where k is not known, stage it, and start again with twice as
many when the stage was too low. Stage s = 1, 2, ... allows ``2^(s-1) k_0`` queries (a phase, where there are
phases) and runs on all blocks with the part ``6/(pi^2 s^2)`` of epsilon, of delta and of the failure
probability. However many stages there are, the parts sum to less than one, so the whole is as private as one
mechanism with all of epsilon: by basic composition, for which stage runs follows from the number of queries
asked, and is public.

A stage asks for the more rows the later it is: its part falls with ``s^2``, and k grows. While the blocks do
not have them, queries beyond the stage are refused as they are without doubling. A new stage begins with a
consistent set that knows nothing, and is paid with the look of the query that it begins with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.budget.parameters import Accuracy, Privacy, as_written
from stream_dp.core.encoding import Format, fields
from stream_dp.core.mechanism import LinearMechanism, Look, LookSort, Quote, Release
from stream_dp.core.median.phased import OutstandingCharges, Phased
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.synthetic.basis import PrunedShares
from stream_dp.errors import CorruptState, InvalidDefinition

_FIRST_PART: Final = Fraction(607_927, 10**6)  # below 6 / pi^2
_FORMAT: Final = Format("release of a stage")


@dataclass(frozen=True, slots=True)
class StageRelease:
    """A release, and under which stage; from the first of a stage on that stage is in force."""

    stage: int
    release: Release

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(fields("<I", self.stage), self.release.to_bytes())


@dataclass(frozen=True, slots=True)
class StageLook(Look):
    """A look of the mechanism that runs under one stage."""

    stage: int
    look: Look
    charges: tuple[Charge, ...]
    facts: dict[str, object]

    @property
    def reads(self) -> Sequence[int]:
        return self.look.reads

    @property
    def sort(self) -> LookSort:
        return self.look.sort

    @property
    def description(self) -> dict[str, object]:
        return self.facts

    def reserve(self, noise: NoiseSource) -> None:
        self.look.reserve(noise)

    def take(self, noise: NoiseSource, data: Blocks) -> StageRelease:
        return StageRelease(self.stage, self.look.take(noise, data))


@dataclass(frozen=True, slots=True)
class _Stage:
    """A mechanism on all blocks so far, and what it cost to begin with them.

    Attributes:
        parts: Its part of epsilon and of delta.
    """

    number: int
    mechanism: Phased
    parts: tuple[Fraction, Fraction]
    charges: tuple[Charge, ...] = ()


class Doubling(LinearMechanism):
    """One data set under stages of the number of queries.

    Args:
        make: A mechanism without blocks for ``(privacy, accuracy, queries)``; the same for the same.
        privacy: The privacy of all stages together.
        accuracy: The accuracy of all stages together.
        first: ``k_0``, queries of the first stage.

    Raises:
        InvalidDefinition: ``make`` raises it for the first stage.
    """

    def __init__(
        self,
        make: Callable[[Privacy, Accuracy, int], Phased],
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        first: int,
    ) -> None:
        self._make = make
        self._privacy = privacy
        self._accuracy = accuracy
        self._first = first
        self._sizes: list[int] = []
        self._bare = 0
        self._outstanding = OutstandingCharges()
        self._now = self._stage(1)
        self._next: _Stage | None = None
        self._next_known = False  # until a phase or a stage begins

    def __repr__(self) -> str:
        return f"Doubling(stage={self._now.number}, {self._now.mechanism!r})"

    @property
    def stage(self) -> int:
        """Number of the stage in force, from 1."""
        return self._now.number

    @property
    def mechanism(self) -> Phased:
        """The mechanism that runs under the stage in force."""
        return self._now.mechanism

    @property
    def rows_to_open(self) -> int:
        """Waiting rows below which no phase opens."""
        return self.mechanism.rows_to_open

    def basis(self, window: range) -> PrunedShares:
        return self.mechanism.basis(window)

    @property
    def published_budget(self) -> dict[str, object]:
        """The promise of all stages, and the constants of the one in force; JSON-ready."""
        return {
            **self.mechanism.published_budget,
            "accountant": "stages that double, each with 6/(pi^2 s^2) of epsilon and delta; a line is "
            "linear in epsilon",
            "epsilon": self._privacy.epsilon,
            "delta": self._privacy.delta,
            "stage": self.stage,
            "stage_epsilon": self.mechanism.published_budget["epsilon"],
            "stage_delta": self.mechanism.published_budget["delta"],
        }

    # ------------------------------------------------------------ stages

    def _stage(self, number: int) -> _Stage:
        part = _FIRST_PART / number**2
        epsilon = float(as_written(self._privacy.epsilon) * part)
        delta = float(Fraction(self._privacy.delta) * part)
        failure = self._accuracy.failure_probability * float(part)
        mechanism = self._make(
            Privacy(epsilon, delta),
            Accuracy(self._accuracy.error, failure),
            self._first * 2 ** (number - 1),
        )
        parts = (
            as_written(epsilon) / as_written(self._privacy.epsilon),
            Fraction(delta) / Fraction(self._privacy.delta),
        )
        return _Stage(number, mechanism, parts)

    def _following(self) -> _Stage | None:
        """The next stage on the blocks that there are. None where they are too few rows for it, or lost."""
        if not self._next_known and not self._bare:
            self._next, self._next_known = self._begun(self.stage + 1), True
        return self._next

    def _begun(self, number: int) -> _Stage | None:
        try:
            fresh = self._stage(number)
        except InvalidDefinition:
            return None
        charges: list[Charge] = []
        for n_rows in self._sizes:
            if not fresh.mechanism.opens(n_rows, 0):
                return None
            charges += self._opened(fresh, n_rows)[1]
        return replace(fresh, charges=summed(charges))

    def _opened(self, stage: _Stage, n_rows: int) -> tuple[Sequence[Look], tuple[Charge, ...]]:
        """Opens a phase of a stage; its looks, and what they cost in units of the whole budget."""
        looks = stage.mechanism.open_phase(n_rows)
        # The stage's own mechanism is told at once: whether it is paid for is watched here.
        for look in looks:
            stage.mechanism.charged(look.charges)
        rho, delta = stage.parts
        return looks, tuple(
            Charge(c.block, math.ceil(c.rho * rho), math.ceil(c.delta * delta))
            for look in looks
            for c in look.charges
        )

    def _enter(self, number: object) -> None:
        """Takes the stage that a release or a lost look was made under.

        Raises:
            CorruptState: It is neither the one in force nor the next.
        """
        if number == self.stage:
            return
        following = self._following() if number == self.stage + 1 else None
        if following is None:
            raise CorruptState(f"the transcript has stage {number} where stage {self.stage} is")
        self._now, self._next, self._next_known = following, None, False
        self._outstanding.owe(following.charges)

    # ------------------------------------------------------------ phases and charges

    def opens(self, waiting: int, min_rows: int) -> bool:
        return self.mechanism.opens(waiting, min_rows)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        looks, charges = self._opened(self._now, n_rows)
        self._sizes.append(n_rows)
        self._outstanding.open()
        self._outstanding.owe(charges)
        self._next, self._next_known = None, False
        (look,) = looks
        return (StageLook(self.stage, look, charges, self._described(self._now, look)),)

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._outstanding.pay(look_charges)

    def _described(self, stage: _Stage, look: Look) -> dict[str, object]:
        return {
            **look.description,
            **stage.mechanism.described_phase,
            "stage": stage.number,
        }

    # ------------------------------------------------------------ queries

    def unsupported(self, kind: str) -> Refused:
        return self._outstanding.refusal or self.mechanism.unsupported(kind)

    def _answer(self, query: LinearQuery) -> Outcome | Look:
        unpaid = self._outstanding.refusal
        if unpaid is not None:
            return unpaid
        stage = self._serving(query)
        step = stage.mechanism.answer(query)
        if isinstance(step, Outcome):
            return step
        described: dict[str, object] = self._described(stage, step)
        charges: tuple[Charge, ...] = ()
        if stage is self._next:
            opened, charges = stage.mechanism.constants.phases[: len(self._sizes)], stage.charges
            described["last_thresholds"] = [phase.tau_threshold for phase in opened]
        return StageLook(stage.number, step, charges, described)

    def _quote(self, query: LinearQuery) -> Quote:
        unpaid = self._outstanding.refusal
        if unpaid is not None:
            return Quote(unpaid, ())
        stage = self._serving(query)
        outcome = stage.mechanism.quote(query).outcome
        charged = outcome is None and stage is self._next
        return Quote(outcome, stage.charges if charged else ())

    def _serving(self, query: LinearQuery) -> _Stage:
        """The stage in force, or the next where this one's queries were asked and the rows suffice."""
        outcome = self.mechanism.quote(query).outcome
        if isinstance(outcome, Refused) and outcome.code is RefusalCode.QUERIES_EXHAUSTED:
            return self._following() or self._now
        return self._now

    def absorb(self, release: Release) -> None:
        assert isinstance(release, StageRelease), "a release of another mechanism"
        self._enter(release.stage)
        self.mechanism.absorb(release.release)

    def rows_gone(self, n_blocks: int) -> None:
        self._bare, self._next, self._next_known = n_blocks, None, False
        self.mechanism.rows_gone(n_blocks)

    def lost(self, look: dict[str, object]) -> None:
        self._enter(look["stage"])
        self.mechanism.lost(look)

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome:
        assert isinstance(look, StageLook), "a look of another mechanism"
        assert isinstance(release, StageRelease), "a release of another mechanism"
        outcome = self.mechanism.conclude(query, look.look, release.release)
        assert isinstance(outcome, Outcome), "one look answers a query of this profile"
        return outcome

    # ------------------------------------------------------------ restarts

    def release_from_bytes(self, data: bytes) -> Release:
        reader = _FORMAT.read(data)
        (stage,) = reader.fields("<I")
        return StageRelease(stage, self.mechanism.release_from_bytes(reader.rest()))
