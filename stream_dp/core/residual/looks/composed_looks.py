"""Looks that are made of others: those over several versions of the schema, and those taken in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import fields, part
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Refused
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks.sum_look import SumLook, SumRelease
from stream_dp.core.residual.looks.table_looks import FORMAT, CountsLook, CountsRelease, TablesLook
from stream_dp.core.rows.blocks import Blocks

JOINED: int = 9
"""The kind of a measurement of several versions."""


@dataclass(frozen=True, slots=True)
class JoinedLook(Look):
    """Looks at blocks of their own, which are charged and published together.

    Attributes:
        looks: The looks.
    """

    looks: tuple[CountsLook | SumLook, ...]
    charges: tuple[Charge, ...]

    @property
    def description(self) -> dict[str, object]:
        return {"kind": "joined", "looks": [look.description for look in self.looks]}

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Block and step of the public grid of scales, of all looks at counts."""
        return tuple(
            step for look in self.looks if isinstance(look, CountsLook) for step in look.steps
        )

    def reserve(self, noise: NoiseSource) -> None:
        for look in self.looks:
            look.reserve(noise)

    def take(self, noise: NoiseSource, data: Blocks) -> JoinedRelease:
        return JoinedRelease(tuple(look.take(noise, data) for look in self.looks))


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRelease:
    """What the looks have published, in their order."""

    releases: tuple[CountsRelease | SumRelease, ...]

    def to_bytes(self) -> bytes:
        return FORMAT.pack(
            fields("<BH", JOINED, len(self.releases)),
            *(part(release.to_bytes()) for release in self.releases),
        )

    @classmethod
    def from_bytes(cls, data: bytes, read: Callable[[bytes], object]) -> JoinedRelease:
        """Inverse of ``to_bytes``.

        Args:
            data: The bytes of a release.
            read: Reads what one look has published.

        Raises:
            CorruptState: The bytes do not decode.
        """
        reader = FORMAT.read(data)
        kind, n = reader.fields("<BH")
        reader.require(kind == JOINED, "is of an unknown kind")
        releases = [read(reader.required()) for _ in range(n)]
        reader.end()
        found = tuple(one for one in releases if isinstance(one, CountsRelease | SumRelease))
        reader.require(len(found) == n > 0, "joins something else than counts and sums")
        return cls(found)


AnyLook: TypeAlias = CountsLook | JoinedLook | TablesLook | SumLook
"""A look that a query may need."""


@dataclass(frozen=True, slots=True)
class StagedLook(Look):
    """A look of an answer that may take several.

    Attributes:
        look: What is measured.
        final: Whether the answer is what this look finds by itself.
        paid: Units that the query has taken of each block's line, those of this look included.
        part: The part of the size of the answer that the bar of a last look is planned for. 0 where the query
            says how precise it is to be.
        found: What looks before it have found that the answer needs, by attribute: counts of bins, shape
            (n_cells,), and their variance.
    """

    look: AnyLook
    charges: tuple[Charge, ...]
    final: bool
    paid: Mapping[int, int] = field(repr=False)
    part: float = 0.0
    found: Mapping[int, tuple[Floats, float]] = field(default_factory=dict, repr=False)

    @property
    def description(self) -> dict[str, object]:
        return self.look.description

    def reserve(self, noise: NoiseSource) -> None:
        self.look.reserve(noise)

    def take(self, noise: NoiseSource, data: Blocks) -> Release:
        return self.look.take(noise, data)


def staged(
    look: AnyLook | Refused, paid: Mapping[int, int], *, final: bool, part: float = 0.0
) -> StagedLook | Refused:
    """A look on top of what its query has paid so far; the refusal of one as it is."""
    if isinstance(look, Refused):
        return look
    total = dict(paid)
    for charge in look.charges:
        total[charge.block] = total.get(charge.block, 0) + charge.rho
    return StagedLook(look, look.charges, final, total, part)
