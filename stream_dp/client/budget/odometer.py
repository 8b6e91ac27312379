"""Computes the spent budget from the published ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stream_dp.client.budget.share_position import OWNER, UNITS, Holder, Parts, Position, ShareRules
from stream_dp.errors import InvalidInput
from stream_dp.messages import ChangeAnalysts

_PAID_BY_PHASE = {"median", "sequential", "memory"}


@dataclass
class BlockSpending:
    """The block of one phase and its line (its privacy budget).

    Attributes:
        spent: The spent share of the line, in [0, 1].
        looks: The number of paid looks at the block.
        since: The time at which the phase begins, as a date or with an offset. None where it is not known.
        until: The time at which it has ended: it does not belong to the phase.
        charged: All that was charged to the line, in units.
        paid: What each analyst and the owner have paid of it, since the data set has shares.
    """

    rows: int
    spent: float = 0.0
    looks: int = 0
    since: str | None = None
    until: str | None = None
    charged: Parts = field(default_factory=Parts)
    paid: dict[str, Parts] = field(default_factory=dict)


@dataclass
class MemoryPhase:
    """The newest phase under one of the papers' profiles, which pay for a phase as a whole.

    Attributes:
        asked: The number of queries of this phase so far, in the current stage.
        queries: The number of queries that the phase allows.
        hard_limit: The largest number of hard answers. Under the memory profile it counts all phases up to
            the end of this one, and otherwise this phase alone.
        count_scale: The scale of the noise of a hard answer, in rows.
        stage: The current stage of the number of queries. It is 1 without doubling.
    """

    phase: int
    asked: int
    queries: int
    hard_limit: int
    count_scale: float
    stage: int = 1


def _phase(look: Mapping[str, Any]) -> MemoryPhase:
    """The phase or stage that begins with a look."""
    said = {name: look[name] for name in ("phase", "queries", "hard_limit", "count_scale")}
    return MemoryPhase(asked=0, stage=look.get("stage", 1), **said)


@dataclass
class Odometer:
    """The phases of a data set and their spending, computed from its ledger entries in order.

    Attributes:
        looks: The number of looks at the rows, including looks that a crash lost.
        memory: The newest phase under the papers' profiles. None under others and before the first phase.
        filled: The newest phase that has got late rows. 0 without one.
    """

    blocks: list[BlockSpending] = field(default_factory=list)
    looks: int = 0
    retired: bool = False
    memory: MemoryPhase | None = None
    filled: int = 0
    _written: Mapping[str, Any] | None = field(default=None, repr=False)
    _rules: ShareRules | None = field(default=None, repr=False)
    _seen: set[int] = field(default_factory=set, repr=False)

    @classmethod
    def read(cls, entries: Iterable[Mapping[str, Any]]) -> Odometer:
        """Adds entries in order. A repeated entry counts once."""
        odometer = cls()
        for entry in entries:
            odometer.add(entry)
        return odometer

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Adds the next entry. Returns False for a repeated entry, which counts once."""
        if entry["seq"] in self._seen:
            return False
        self._seen.add(entry["seq"])
        if entry["kind"] == "phase":
            since, until = entry.get("since"), entry.get("until")
            self.blocks.append(BlockSpending(entry["rows"], since=since, until=until))
        elif entry["kind"] == "late":
            self.blocks[entry["phase"] - 1].rows += entry["rows"]
            self.filled = entry["phase"] if entry["rows"] else self.filled
        elif entry["kind"] == "charge":
            self._charge(entry)
        elif entry["kind"] in ("dataset", "analysts"):
            found = entry.get("definition", {}) if entry["kind"] == "dataset" else entry
            self._written = found if "analysts" in found else None
            self._rules = None
        elif entry["kind"] == "written_off":
            for block, *_ in entry["charges"]:
                self.blocks[block].spent = 1.0
                self.blocks[block].charged = Parts(UNITS, UNITS)
        elif entry["kind"] == "retired":
            self.retired = True
        return True

    def _charge(self, entry: Mapping[str, Any]) -> None:
        looks = 0
        for look in entry["looks"]:
            if look.get("mechanism") not in _PAID_BY_PHASE:
                looks += 1
            elif look["kind"] == "phase":  # it pays for the phase but does not look at the rows
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
        as_owner = "analyst" not in entry or entry.get("paid_by") == "owner"
        account = OWNER if as_owner else entry["analyst"]
        for number, rho, delta in entry["charges"]:
            block = self.blocks[number]
            block.spent += max(rho, delta) / UNITS
            block.looks += looks
            block.charged = block.charged.plus(rho, delta)
            if self._written is not None:
                block.paid[account] = block.paid.get(account, Parts()).plus(rho, delta)

    # ------------------------------------------------------------ shares

    @property
    def rules(self) -> ShareRules | None:
        """What is allowed to whom now. None where everybody may ask, and spend all of each line.

        Raises:
            InvalidMessage: A newer release wrote the rules.
        """
        if self._written is not None and self._rules is None:
            read = ChangeAnalysts.said_in("any", self._written)
            self._rules = ShareRules(read.analysts, read.owner)
        return self._rules

    def position(self, analyst: str, phase: int) -> Position:
        """Returns what an analyst has spent of one phase and may still charge, in units.

        Args:
            analyst: The name of the analyst, or ``shares.OWNER``.
            phase: The number of the phase, from 1.

        Raises:
            InvalidInput: The data set has no shares.
        """
        rules = self.rules
        if rules is None:
            raise InvalidInput(
                "analyst", "everybody may spend all of each line of this data set", "name nobody"
            )
        block = self.blocks[phase - 1]
        return rules.position(analyst, block.paid, block.charged)

    def holders(self, *, last: int | None = None) -> list[Holder]:
        """Returns what the owner, each entry and each analyst have spent. Empty without shares.

        Args:
            last: The number of phases to look at, newest last. Default: all.
        """
        rules = self.rules
        if rules is None:
            return []
        blocks = self.blocks[-last:] if last else self.blocks
        lines, wholes = [block.paid for block in blocks], [block.charged for block in blocks]
        return list(rules.holders(lines, wholes, first=len(self.blocks) - len(blocks) + 1))

    @property
    def since(self) -> str | None:
        """The time at which the first phase begins. None where it is not known."""
        return self.blocks[0].since if self.blocks else None

    @property
    def until(self) -> str | None:
        """The time at which the newest phase has ended. None where it is not known."""
        return self.blocks[-1].until if self.blocks else None

    @property
    def rows(self) -> int:
        """The number of rows in all blocks."""
        return sum(block.rows for block in self.blocks)

    @property
    def most_spent(self) -> float:
        """The largest spent share of any line."""
        return max((block.spent for block in self.blocks), default=0.0)
