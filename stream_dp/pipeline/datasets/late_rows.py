"""The late rows of one data set: which phase they come to, and when a phase is complete.

A batch about a closed period waits for the phase of that period, as long as the definition takes late rows.
Then they come to the block of this phase, once, and it is measured again with them (docs/proofs, Theorem 37).
Everything here follows from the log and the state, as for phases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.transcript import late_entry
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.rows.waiting.row_times import TimeSpan, late_time
from stream_dp.pipeline.spending.line_accounts import LateFacts, LineAccounts
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse


@dataclass(eq=False)
class LateRows:
    """The late rows of one data set.

    Attributes:
        spans: The stretch of time that each phase covers.
        n_complete: The number of first phases that get no more rows.
    """

    _engine: Engine
    _draft: Draft
    _rows: PrivateRows
    _accounts: LineAccounts
    _looks: PaidLooks
    _fuse: Fuse
    spans: list[TimeSpan | None]
    n_complete: int = field(default=0, init=False)

    @property
    def taken(self) -> bool:
        """Whether late rows come to the phase of their period."""
        return self._engine.times.phase.late is not None

    # ------------------------------------------------------------ public facts

    def due(self) -> int | None:
        """When the next phase is complete, in milliseconds; None where none is to be."""
        if self.n_complete == len(self.spans):
            return None
        span = self.spans[self.n_complete]
        return self._engine.times.phase.complete_at(0 if span is None else span.until)

    def phase_of(self, batch: TimeSpan | None, n_rows: int) -> int | None:
        """The phase that a batch comes to late; None for one that joins a phase to come.

        Rows about a time without a phase come to the next one, as those of a period with too few rows do.
        Rows of other attributes than those of the phase cannot come to it.

        Args:
            batch: What the batch is about.
            n_rows: The number of its rows.
        """
        gathering = self._rows.waiting.gathering
        closed, now = gathering.closed, gathering.now
        if (
            not self.taken
            or batch is None
            or closed is None
            or now is None
            or batch.since >= closed
        ):
            return None
        known = ((phase, span) for phase, span in enumerate(self.spans, 1) if span is not None)
        later = ((phase, span) for phase, span in known if span.until > batch.since)
        phase, span = next(later, (0, batch))
        if phase <= self.n_complete or not self._fits(phase, n_rows):
            return None
        ends = self._engine.times.phase.complete_at(
            span.until if span.since < batch.until else batch.until
        )
        return None if ends is None or ends <= now else phase

    def _fits(self, phase: int, n_rows: int) -> bool:
        """Whether rows of today's attributes can come to a phase."""
        waiting, blocks = self._rows.waiting, self._rows.blocks
        universes = self._engine.rows_universes([phase - 1, *waiting.blocks_to_come])
        together = blocks.data.sizes[phase - 1] + waiting.n_rows_of(late_time(phase)) + n_rows
        return len(universes) == 1 and together <= universes[0].max_rows

    def facts(self, window: range) -> LateFacts:
        """What is said with answers about some phases. Nothing where no more rows come to them."""
        found = LateFacts()
        if not self.taken or window.stop <= self.n_complete:
            return found
        waiting, times = self._rows.waiting, self._engine.times
        phases = range(max(window.start, self.n_complete) + 1, window.stop + 1)
        n_rows = sum(waiting.n_rows_of(late_time(phase)) for phase in phases)
        if n_rows:
            found["late_waiting"] = n_rows
        span = self.spans[window.stop - 1]
        ends = None if span is None else times.phase.complete_at(span.until)
        if ends is not None:
            found["complete_at"] = times.written(ends)
        return found

    # ------------------------------------------------------------ phases that are complete

    async def complete(self, phases: int) -> None:
        """Has the first phases get their late rows, and no more from then on."""
        while self.taken and self.n_complete < phases:
            await self._complete_next()

    async def _complete_next(self) -> None:
        index, phase, rows = self.n_complete, self.n_complete + 1, self._rows
        times = late_time(phase)
        n_rows = rows.waiting.n_rows_of(times)
        if n_rows:
            await self._add(index, times, n_rows)
        rows.counted.forget(phase)
        self.n_complete = phase
        self._announce(phase, n_rows)
        with self._accounts.asked_by(None):
            looks = self._engine.mechanism.complete(index, n_rows)
        if looks:
            await self._looks.take(looks)
        elif n_rows:
            self._looks.synthesize()

    async def _add(self, index: int, times: range, n_rows: int) -> None:
        """Adds late rows to a block. They are kept before the commit that names them."""
        waiting, blocks, unit = self._rows.waiting, self._rows.blocks, self._engine.unit
        if index >= blocks.data.erased:
            self._fuse(CrashPoint.BEFORE_KEEP)
            whose = await self._rows.whose(times)
            marks = await self._rows.counted.late(index + 1, whose, unit)
            await self._rows.keep(index, times, whose, marks)
            self._fuse(CrashPoint.AFTER_KEEP)
        blocks.data.add_rows(index, n_rows)
        waiting.forget(times)

    def _announce(self, phase: int, n_rows: int) -> None:
        self._draft.publish(late_entry(n_rows))
        self._draft.write_ledger("late", {"phase": phase, "rows": n_rows})
        dates = self._engine.times.dates([self.spans[phase - 1]])
        self._draft.announce("phase_complete", phase=phase, rows=n_rows, **dates)
        self._accounts.changed()
