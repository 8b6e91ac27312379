"""A look of an answer that may take several: what it measures, and what the next step has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Refused
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks.joined_look import JoinedLook
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.rows.blocks import Blocks

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
