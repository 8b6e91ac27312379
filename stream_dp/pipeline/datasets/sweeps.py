"""The sweeps of one data set: they make changes in all rows that are kept, at times that are public.

A sweep keeps every slab again, because it is private which ones have rows of a person. It goes slab by slab,
and each step is a commit: a worker that takes over in between goes on where it ended. No other record of the
data set is done before the sweep is. Its receipt is sent with the commit that ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stream_dp.errors import RowsGone
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.transcript import sweep_entry
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.rows.waiting.row_times import EVERY_TIME
from stream_dp.pipeline.spending.line_accounts import LineAccounts, SweepFacts
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse
from stream_dp.receipts import public_key, signature

_SWEEPS: Final = "sweeps"  # the fact that says how many there were
UNDER_WAY: Final = "sweeping"
"""The fact that says that a sweep is under way."""
BATCHES: Final = "batches swept"
"""The fact that says below which offset batches are to be deleted."""
_LOST: Final = "changes lost"  # the fact that says of how many batches changes were lost
_MOST_CHANGES: Final = 5_000_000


@dataclass(eq=False)
class Sweeps:
    """The sweeps of one data set."""

    _engine: Engine
    _draft: Draft
    _rows: PrivateRows
    _accounts: LineAccounts
    _looks: PaidLooks
    _fuse: Fuse

    # ------------------------------------------------------------ public facts

    def due(self) -> int | None:
        """When the next sweep begins, or goes on, in milliseconds; None while no change waits."""
        erasure, places = self._engine.definition.erasure, self._rows.waiting.places
        if erasure is None:
            return None
        if self.under_way:
            return 0
        waiting = [places[number] for number in places.with_changes]
        if sum(one.n_changes for one in waiting) >= _MOST_CHANGES:
            return 0
        first = min((one.dated_ms for one in waiting), default=None)
        return None if first is None else first + erasure.sweep_ms

    @property
    def under_way(self) -> bool:
        """Whether a sweep has begun and not ended."""
        return bool(self._draft.facts.get(UNDER_WAY))

    def facts(self, window: range) -> SweepFacts:
        """What is said with answers about some phases. Nothing where their rows are as they were sealed."""
        if self._engine.definition.erasure is None:
            return SweepFacts()
        most = self._engine.mechanism.changed_rows.at_most(window)
        return SweepFacts(changed_at_most=most) if most else SweepFacts()

    def expected(self, n_changes: tuple[int, int]) -> dict[str, object]:
        """What the outcome of a batch says of its changes; nothing if there are none."""
        due, erasure = self.due(), self._engine.definition.erasure
        if n_changes == (0, 0) or due is None or erasure is None:
            return {}
        return {
            "changes": sum(n_changes),
            "change_number": self._rows.waiting.n_changed,
            "due": self._engine.times.written(max(due, self._draft.dated_ms, 0)),
        }

    @property
    def batches_below(self) -> int:
        """The offset of the topic of batches below which they are to be deleted; 0 where they are by now."""
        return 0 if self.under_way else int(self._draft.facts.get(BATCHES, "0"))

    def batches_deleted(self) -> None:
        """Commits that they are."""
        self._draft.note(BATCHES, "0")
        self._draft.commit()

    # ------------------------------------------------------------ a sweep

    async def take(self, *, now: bool = False) -> bool:
        """Takes the next step of a sweep, if one is due, and commits it.

        Args:
            now: Whether changes are not to wait any longer.

        Returns:
            Whether there was anything to do. More may be.
        """
        due = self.due()
        if due is None or (self._draft.dated_ms < due and not now):
            return False
        if not self.under_way:
            await self._begin()
        elif not await self._step():
            await self._end()
        self._draft.commit()
        return True

    async def _begin(self) -> None:
        """Keeps the rows in memory as slabs, and says what the sweep may change."""
        waiting = self._rows.waiting
        last = max(one.offset for one in waiting.places.every)
        self._draft.note(BATCHES, str(last + 1))
        await waiting.keep_lot()
        self._draft.note(UNDER_WAY, "1")
        changed = dict(self._to_change())
        for block, most in changed.items():
            self._engine.mechanism.changed_rows.add(block, most)
        self._draft.publish(sweep_entry(changed))
        self._accounts.changed()

    def _to_change(self) -> Iterator[tuple[int, int]]:
        """The blocks that the sweep changes, and the most rows of each that it may change."""
        unit, waits = self._engine.unit, self._rows.waiting.places.every
        assert unit is not None, "it is persons who are erased"
        for phase, slabs in self._rows.blocks.owners.after.items():
            first = min(slabs.values())
            later = [one.changes for one in waits if one.after > first]
            most = sum(unit.rows_per_phase * persons + rows for persons, rows in later)
            if most:
                yield phase - 1, most

    def promised(self) -> dict[str, str]:
        """What the first entry of the ledger says of sweeps: the public key of their receipts."""
        erases = self._engine.definition.erasure is not None
        return {"receipts": public_key(self._rows.waiting.secret)} if erases else {}

    def retire(self) -> None:
        """Forgets all: no row is kept any more."""
        self._draft.note(UNDER_WAY, "")

    async def _step(self) -> bool:
        """Keeps the next slab again; returns whether there was one left."""
        waiting, blocks = self._rows.waiting, self._rows.blocks
        self._fuse(CrashPoint.IN_SWEEP)
        if await waiting.change_a_lot(EVERY_TIME):
            return True
        through = waiting.n_changed
        for phase, slabs in blocks.owners.after.items():
            for at, after in slabs.items():
                if after < through:
                    try:
                        await blocks.change(phase - 1, at, waiting.changes.after(after), through)
                    except RowsGone:
                        await self._looks.say_gone(phase)
                        raise
                    return True
        return False

    def say_lost(self, batch_ids: Sequence[str]) -> None:
        """Drafts that the changes of some batches are nowhere any more, so that their sender asks again."""
        known = int(self._draft.facts.get(_LOST, "0"))
        self._draft.note(_LOST, str(known + len(batch_ids)))
        for batch_id in batch_ids:
            producer, blank, sequence = batch_id.partition(" ")
            counted = {"producer": producer, "sequence": sequence}
            named = counted if blank else {"batch_id": batch_id}
            self._draft.announce("changes_lost", **named)

    async def _end(self) -> None:
        """Forgets the changes, and queues the receipt."""
        await self._rows.forget_persons()
        waiting = self._rows.waiting
        sweep = int(self._draft.facts.get(_SWEEPS, "0")) + 1
        phases = sorted(self._rows.blocks.owners.after)
        receipt = {
            "sweep": sweep,
            "phases": (phases[0], phases[-1]) if phases else None,
            "change_number": waiting.n_changed,
            "changes": sum(one.n_changes for one in waiting.places.every),
            "lost": int(self._draft.facts.get(_LOST, "0")),
            "at": self._engine.times.written(max(self._draft.dated_ms, 0)),
        }
        signed = {"dataset": self._draft.dataset, **receipt}
        receipt["signature"] = signature(waiting.secret, signed)
        waiting.forget_changes()
        self._draft.note(_SWEEPS, str(sweep))
        self._draft.note(UNDER_WAY, "")
        self._draft.write_ledger("sweep", receipt)
        self._draft.announce("swept", **receipt)
        self._accounts.changed()
