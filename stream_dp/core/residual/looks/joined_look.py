"""The look of a query over several versions of the schema: one look for each, taken together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import fields, part
from stream_dp.core.mechanism import Look
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.looks.sum_look import SumLook, SumRelease
from stream_dp.core.residual.looks.table_looks import FORMAT, CountsLook, CountsRelease
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
