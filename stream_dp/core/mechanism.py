"""The one interface behind which every mechanism answers.

A mechanism is public knowledge: a fold over what was published, without a reference to the data. When it
needs the data it describes a *look*: what will be asked, how noisy, and what that costs. The pipeline makes
the charge durable, only then takes the look, and gives the release back to be folded in:

    step = mechanism.answer(query)
    if isinstance(step, Look):
        await commit(charge of step)                  # charge before looking
        release = step.take(noise, data)              # the only place that sees the data
        mechanism.absorb(release)                     # post-processing from here on
        outcome = mechanism.conclude(query, step, release)

Folding the same definition, phases, looks and releases in the same order gives the same state, so a restart
replays them. A look whose charge was committed but whose release was lost in a crash is told to ``lost``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_dp.core.accounting import Charge
from stream_dp.core.blocks import Blocks
from stream_dp.core.noise import NoiseSource
from stream_dp.core.outcome import Outcome
from stream_dp.core.query import LinearQuery


class Release(Protocol):
    """What a look gave: published from the moment it is committed, integers only."""

    def to_bytes(self) -> bytes:
        """Bytes that ``Mechanism.release_from_bytes`` reads back, first byte a version."""
        ...


class Look(Protocol):
    """One priced query to the data, decided from public facts only."""

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What it costs, one entry a block; at most one a block."""
        ...

    @property
    def description(self) -> dict[str, object]:
        """Public facts for the ledger: kind, attributes, blocks, scales. JSON-ready."""
        ...

    def reserve(self, noise: NoiseSource) -> None:
        """Draws the noise it will need into the pool; called before the charge is committed."""
        ...

    def take(self, noise: NoiseSource, data: Blocks) -> Release:
        """Looks at the data. Called once, after the charge is durable; cannot fail on drawn values."""
        ...


@dataclass(frozen=True, slots=True)
class Quote:
    """What an answer would cost now; nothing is spent."""

    outcome: Outcome | None
    charges: tuple[Charge, ...]


class Mechanism(Protocol):
    """One data set's mechanism. Holds no reference to the data."""

    def opens(self, waiting: int, min_rows: int) -> bool:
        """Whether ``waiting`` rows open a phase now; ``min_rows`` is the data set's setting."""
        ...

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Adds a sealed block of ``n_rows`` rows; returns the looks that opening it asks for, in order."""
        ...

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        """Records a charge as spent; called when its commit is durable, and on replay."""
        ...

    def answer(self, query: LinearQuery) -> Outcome | Look:
        """Answers from public knowledge, refuses, or says which look it needs."""
        ...

    def absorb(self, release: Release) -> None:
        """Folds a release into what is known."""
        ...

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome:
        """The answer to ``query`` after ``release`` was absorbed."""
        ...

    def quote(self, query: LinearQuery) -> Quote:
        """Exact price of ``query`` now; changes nothing."""
        ...

    def remembered(self) -> dict[bytes, bytes]:
        """Verified answers first given since the last call, to be stored for repeats."""
        ...

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        """Takes stored verified answers back after a restart."""
        ...

    def lost(self, look: dict[str, object]) -> None:
        """A look (its ``description``) was charged, but a crash lost its release."""
        ...

    def release_from_bytes(self, data: bytes) -> Release:
        """Inverse of ``Release.to_bytes``. Raises CorruptState."""
        ...


__all__ = ["Look", "Mechanism", "Quote", "Release"]
