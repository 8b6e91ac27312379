"""What was spent, read from the published ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BlockSpending", "MemoryPhase", "Odometer"]

_UNITS = 2**50
_PAID_BY_PHASE = {"median", "sequential", "memory"}


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
    """The newest phase of a data set under one of the papers' profiles, whose phases are paid as a whole.

    Attributes:
        asked: Queries of this phase so far, under the stage in force.
        queries: Queries that it has.
        hard_limit: Hard answers that there may be: under the memory profile up to its end, those of earlier
            phases included, else of its own.
        count_scale: Scale of the noise of a hard answer, in rows.
        stage: Which stage of the number of queries is in force; 1 without doubling.
    """

    phase: int
    asked: int
    queries: int
    hard_limit: int
    count_scale: float
    stage: int = 1


def _phase(look: Mapping[str, Any]) -> MemoryPhase:
    """The phase, or the stage, that a look begins with."""
    return MemoryPhase(
        look["phase"],
        0,
        look["queries"],
        look["hard_limit"],
        look["count_scale"],
        look.get("stage", 1),
    )


@dataclass
class Odometer:
    """A data set's phases and their spending, folded from its ledger entries in order.

    Attributes:
        looks: Looks at the rows, those that a crash lost included.
        memory: None under the calibrated profile, and before the first phase.
    """

    blocks: list[BlockSpending] = field(default_factory=list)
    looks: int = 0
    retired: bool = False
    memory: MemoryPhase | None = None
    _seen: set[int] = field(default_factory=set, repr=False)

    @classmethod
    def read(cls, entries: Iterable[Mapping[str, Any]]) -> Odometer:
        """Folds entries; one that is seen twice counts once."""
        odometer = cls()
        for entry in entries:
            odometer.add(entry)
        return odometer

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Folds the next entry; False for one that was there before, which counts once."""
        if entry["seq"] in self._seen:
            return False
        self._seen.add(entry["seq"])
        if entry["kind"] == "phase":
            self.blocks.append(BlockSpending(entry["rows"]))
        elif entry["kind"] == "charge":
            self._charge(entry)
        elif entry["kind"] == "retired":
            self.retired = True
        return True

    def _charge(self, entry: Mapping[str, Any]) -> None:
        looks = 0
        for look in entry["looks"]:
            if look.get("mechanism") not in _PAID_BY_PHASE:
                looks += 1
            elif look["kind"] == "phase":  # pays for the phase, looks at nothing
                self.memory = _phase(look)
            else:
                looks += 1
                if self.memory is not None:
                    if look.get("stage", 1) > self.memory.stage:
                        self.memory = _phase(look)
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
