"""The number of rows that count, where it is private: the look at it, and what follows from that.

Where a person is protected, only some rows of each person count, and how many do in a phase is private. An
error is promised as a share of the rows that count, so the margin of an answer needs a number that these rows
reach. A look at this number is taken when a phase opens, and no estimate takes it in. So, given its noise,
margins are constants, and the noise of everything else is independent of them. Where no table says how many
rows count, the look says it in answers too (docs/proofs, Theorem 21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.encoding import fields
from stream_dp.core.mechanism import Look
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.bounds import one_sided
from stream_dp.core.residual.looks.table_looks import FORMAT
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.blocks import Blocks

ROWS: Final = 8
"""The kind of a measurement of the rows that count."""

PART: Final = 50
"""One line pays for this number of such looks."""

FAILURE: Final = 0.1
"""The part of the failure probability with which a margin may be too large."""


@dataclass(frozen=True, slots=True)
class RowsLook(Look):
    """Measures the number of rows of a block that count.

    Attributes:
        block: Index of the block.
        step: The step of the public grid of scales.
    """

    block: int
    step: int
    charges: tuple[Charge, ...]

    @classmethod
    def at(cls, block: int, prices: Prices) -> RowsLook:
        """The look at a block that is taken when its phase opens."""
        step = prices.least_step(UNITS // PART, 1)
        assert step is not None, "the coarsest noise costs next to nothing"
        return cls(block, step, (Charge(block, prices.units(step, 1)),))

    @property
    def description(self) -> dict[str, object]:
        return {"kind": "rows", "blocks": [[self.block, self.step]]}

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve("gaussian", grid_sigma(self.step), 1)

    def take(self, noise: NoiseSource, data: Blocks) -> RowsRelease:
        (counted,) = data.marginal((), range(self.block, self.block + 1))
        (drawn,) = noise.gaussian(grid_sigma(self.step), 1)
        return RowsRelease(self.block, self.step, int(counted) + int(drawn))


@dataclass(frozen=True, slots=True)
class RowsRelease:
    """The published number of rows of a block that count, with its noise."""

    block: int
    step: int
    value: int

    def to_bytes(self) -> bytes:
        return FORMAT.pack(fields("<BIiq", ROWS, self.block, self.step, self.value))

    @classmethod
    def from_bytes(cls, data: bytes) -> RowsRelease:
        """Inverse of ``to_bytes``. Raises CorruptState."""
        reader = FORMAT.read(data)
        kind, block, step, value = reader.fields("<BIiq")
        reader.require(kind == ROWS, "is of an unknown kind")
        reader.end()
        return cls(block, step, value)


class CountedRows:
    """The numbers of rows that count, as far as published: a fold over such looks.

    Args:
        accuracy: The promise for each answer.
    """

    def __init__(self, accuracy: Accuracy) -> None:
        beta = accuracy.failure_probability
        self._z_low = one_sided(math.log(FAILURE * beta))
        self._found: dict[int, tuple[int, float]] = {}  # what was published, and its variance

    def absorb(self, release: RowsRelease) -> None:
        """Folds in a look."""
        self._found[release.block] = release.value, float(grid_sigma(release.step)) ** 2

    def forget(self, block: int) -> None:
        """Forgets the look at a block, which has more rows from now on."""
        self._found.pop(block, None)

    def known(self, block: int) -> bool:
        """Whether the look at a block was published."""
        return block in self._found

    def at_least(self, window: range) -> float:
        """A number that the rows of a window that count reach, but for a tenth of the failure probability."""
        value, variance = self.estimate(window)
        return max(0.0, value - self._z_low * math.sqrt(variance))

    def shortfall(self, look: RowsLook) -> float:
        """By how much ``at_least`` falls short of the rows of a block that count, in the middle."""
        return self._z_low * float(grid_sigma(look.step))

    def estimate(self, window: range) -> tuple[float, float]:
        """The number of rows that count, and its variance. A block without a look adds nothing to either."""
        found = [self._found[block] for block in window if block in self._found]
        return float(sum(value for value, _ in found)), math.fsum(own for _, own in found)
