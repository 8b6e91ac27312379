"""What was spent, read from the published ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BlockSpending", "MemoryPhase", "Odometer"]

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
class MemoryPhase:
    """The newest phase of a data set under the memory profile, whose phases are paid as a whole.

    Attributes:
        asked: Questions of this phase so far.
        queries: Questions that it has.
        hard_limit: Hard answers that there may be up to its end, those of earlier phases included.
        count_scale: Scale of the noise of a hard answer, in rows.
    """

    phase: int
    asked: int
    queries: int
    hard_limit: int
    count_scale: float


@dataclass
class Odometer:
    """A data set's phases and their spending, folded from its ledger entries in order.

    Attributes:
        looks: Looks at the rows, those that a crash lost included.
        memory: None under another profile, and before the first phase.
    """

    blocks: list[BlockSpending] = field(default_factory=list)
    looks: int = 0
    retired: bool = False
    memory: MemoryPhase | None = None

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
                odometer._charge(entry)
            elif entry["kind"] == "retired":
                odometer.retired = True
        return odometer

    def _charge(self, entry: Mapping[str, Any]) -> None:
        looks = 0
        for look in entry["looks"]:
            if look.get("mechanism") != "memory":
                looks += 1
            elif look["kind"] == "phase":  # pays for the phase, looks at nothing
                self.memory = MemoryPhase(
                    look["phase"], 0, look["queries"], look["hard_limit"], look["count_scale"]
                )
            else:
                looks += 1
                if self.memory is not None:
                    self.memory.asked += 1
                first, stop = look["window"]
                for block in self.blocks[first:stop]:
                    block.looks += 1
        self.looks += looks
        for block, rho, delta in entry["charges"]:
            self.blocks[block].spent += max(rho, delta) / _UNITS
            self.blocks[block].looks += looks

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def most_spent(self) -> float:
        """Share of the line that is spent most."""
        return max((block.spent for block in self.blocks), default=0.0)
