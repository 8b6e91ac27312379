"""The look by which a block pays for the running totals of its periods, and what they say of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import fields, part
from stream_dp.core.mechanism import Look
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks.table_looks import FORMAT
from stream_dp.core.rows.blocks import Blocks

PERIODS: Final = 12
"""The kind of a measurement that ends the running totals of a block's periods."""


class LastTotal(NamedTuple):
    """What last ticks say of a tile of a block.

    Attributes:
        attributes: The attributes that it depends on.
        key: The key of the count under a condition. Empty for a table over all rows.
        variance: The variance of the independent noise on each count.
        values: The counts, shape (n_answers,); of a table in the order of its attributes.
    """

    attributes: tuple[int, ...]
    key: bytes
    variance: float
    values: Floats


@dataclass(frozen=True, slots=True)
class PeriodsLook(Look):
    """Has a block pay for the running totals of its periods. It reads nothing: ticks have done that.

    Attributes:
        block: The block that opens, by its absolute index.
        periods: The numbers of its periods.
        evidence: What these say of the block together. Empty where that is not known.
    """

    block: int
    periods: tuple[int, ...]
    evidence: tuple[LastTotal, ...] = field(repr=False)
    charges: tuple[Charge, ...]

    @property
    def reads(self) -> Sequence[int]:
        return ()

    @property
    def description(self) -> dict[str, object]:
        return {"kind": "periods", "block": self.block, "periods": list(self.periods)}

    def take(self, noise: NoiseSource, data: Blocks) -> PeriodsRelease:
        del noise, data
        return PeriodsRelease(self.block, self.evidence)


@dataclass(frozen=True, slots=True)
class PeriodsRelease:
    """What the running totals of a block's periods say of its rows."""

    block: int
    evidence: tuple[LastTotal, ...]

    def to_bytes(self) -> bytes:
        parts = []
        for attributes, key, variance, values in self.evidence:
            n = len(attributes)
            parts += [fields(f"<B{n}Hd", n, *attributes, variance), part(key)]
            parts.append(part(values.astype("<f8").tobytes()))
        head = fields("<BIH", PERIODS, self.block, len(self.evidence))
        return FORMAT.pack(head, *parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> PeriodsRelease:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode.
        """
        reader = FORMAT.read(data)
        kind, block, n_tiles = reader.fields("<BIH")
        reader.require(kind == PERIODS, "is of an unknown kind")
        found = []
        for _ in range(n_tiles):
            (n,) = reader.fields("<B")
            *attributes, variance = reader.fields(f"<{n}Hd")
            key, values = reader.part() or b"", reader.required()
            found.append(LastTotal(tuple(attributes), key, variance, np.frombuffer(values, "<f8")))
        reader.end()
        return cls(block, tuple(found))
