"""What was spent, read from the published ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BlockSpending", "Odometer"]

_UNITS = 2**50


@dataclass
class BlockSpending:
    """One phase's block and its line.

    Attributes:
        spent: Share of the line, in [0, 1].
        looks: Paid looks that touched it.
    """

    rows: int
    spent: float = 0.0
    looks: int = 0


@dataclass
class Odometer:
    """A data set's phases and their spending, folded from its ledger entries in order."""

    blocks: list[BlockSpending] = field(default_factory=list)
    looks: int = 0
    retired: bool = False

    @classmethod
    def read(cls, entries: Iterable[Mapping[str, Any]]) -> Odometer:
        """Folds entries; one that is seen twice counts once."""
        odometer = cls()
        seen: set[int] = set()
        for entry in entries:
            if entry["seq"] in seen:
                continue
            seen.add(entry["seq"])
            if entry["kind"] == "phase":
                odometer.blocks.append(BlockSpending(entry["rows"]))
            elif entry["kind"] == "charge":
                odometer.looks += len(entry["looks"])
                for block, rho, delta in entry["charges"]:
                    spending = odometer.blocks[block]
                    spending.spent += max(rho, delta) / _UNITS
                    spending.looks += len(entry["looks"])
            elif entry["kind"] == "retired":
                odometer.retired = True
        return odometer

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def most_spent(self) -> float:
        return max((block.spent for block in self.blocks), default=0.0)
