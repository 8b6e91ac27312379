"""What the median family looks at: a phase, which pays, and each query of it, which was paid for."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, fields, pack_window, wide
from stream_dp.core.mechanism import Look, LookSort, Release
from stream_dp.core.median.easiness import Easiness, EasinessTest
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks, count_of
from stream_dp.core.rows.universe import Universe

# ---------------------------------------------------------------- the mechanism


_FORMAT: Final = Format("release of a phase")
_PHASE, _QUERY = 0, 1


@dataclass(frozen=True, slots=True)
class PhaseRelease:
    """A phase was opened and paid for; nothing was looked at."""

    phase: int

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(fields("<BI", _PHASE, self.phase))


@dataclass(frozen=True, slots=True)
class PhaseLook(Look):
    """The charge of a whole phase, made when it opens. It looks at nothing."""

    phase: int
    charges: tuple[Charge, ...]
    facts: dict[str, object]

    @property
    def sort(self) -> LookSort:
        return LookSort.SEALED

    @property
    def description(self) -> dict[str, object]:
        return self.facts

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
    hard: bool = field(repr=False)
    noisy_count: int = field(repr=False)

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on the query alone."""
        return _FORMAT.pack(
            fields("<BIQ", _QUERY, self.phase, self.index),
            pack_window(self.window),
            fields("<?", self.hard),
            wide(self.noisy_count),
            self.predicate.to_bytes(),
        )


@dataclass(frozen=True, slots=True)
class QueryLook(Look):
    """The test of one query and, should it be hard, its answer; one look, paid for with its phase."""

    phase: int
    index: int
    query: LinearQuery
    n_rows: int
    inverse_privacy: int
    gate: EasinessTest
    easiness: Easiness = field(repr=False)
    easy_share: Fraction
    facts: dict[str, object]
    charges: tuple[Charge, ...] = ()

    @property
    def reads(self) -> range:
        return self.query.window

    @property
    def sort(self) -> LookSort:
        return LookSort.SEALED

    @property
    def description(self) -> dict[str, object]:
        return self.facts

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
        predicate, window = self.query.predicate, self.query.window
        count = count_of(data, predicate, window)
        units = self.gate.units(self.easiness(count))
        hard = not self.gate.is_easy(units, noise=of_easiness, index=index)
        noisy = count + of_count
        return QueryRelease(self.phase, self.index, window, predicate, hard, noisy * hard)


def release_of(universe: Universe, data: bytes) -> Release:
    """The release that has these bytes.

    Raises:
        CorruptState: They do not decode.
    """
    reader = _FORMAT.read(data)
    kind, phase = reader.fields("<BI")
    if kind == _PHASE:
        reader.end()
        return PhaseRelease(phase)
    reader.require(kind == _QUERY, "is of an unknown kind")
    (index,) = reader.fields("<Q")
    window = reader.window()
    (hard,) = reader.fields("<?")
    noisy = reader.wide()
    predicate = Predicate.from_bytes(universe, reader.rest())
    return QueryRelease(phase, index, window, predicate, hard, noisy)
