"""The phases of one data set: when one opens, which time it covers, and what opening it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from stream_dp.core.bisection import least
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.mechanism import Look
from stream_dp.core.rows.encoded_rows import MAX_ROWS
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Batch
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.late_rows import LateRows
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.sweeps import Sweeps
from stream_dp.pipeline.datasets.ticking import Ticking
from stream_dp.pipeline.datasets.transcript import phase_entry
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.rows.waiting.row_times import Dates, TimeSpan, late_time
from stream_dp.pipeline.rows.waiting.waiting_rows import Taken
from stream_dp.pipeline.spending.line_accounts import LineAccounts
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse
from stream_dp.profiles.share_settings import check_opening

TOO_FEW: Final = (
    "the phase has too few rows for the share of the line: send edges with `stream-dp schema apply`"
)
"""Why nothing is proposed for a number."""


class Phases:
    """The phases of one data set.

    Attributes:
        spans: The stretch of time that each phase covers. None for phases of which no time is known.
        ticking: The ticks of the periods that wait.
        late: The rows that come to phases late.
        sweeps: The sweeps that change rows which came before.
    """

    def __init__(
        self,
        engine: Engine,
        draft: Draft,
        rows: PrivateRows,
        accounts: LineAccounts,
        looks: PaidLooks,
        fuse: Fuse,
    ) -> None:
        self._engine, self._draft, self._rows = engine, draft, rows
        self._accounts, self._looks, self._fuse = accounts, looks, fuse
        self.ticking = Ticking(engine, draft, rows, looks)
        self.spans: list[TimeSpan | None] = []
        self.late = LateRows(engine, draft, rows, accounts, looks, fuse, self.spans)
        self.sweeps = Sweeps(engine, draft, rows, accounts, looks, fuse)

    # ------------------------------------------------------------ public facts

    @property
    def needed(self) -> int | None:
        """The number of rows that must wait to open the next phase. None when no phase is left."""
        min_rows = self._engine.definition.phase.min_rows
        opens = partial(self._engine.mechanism.opens, min_rows=min_rows)
        rows = least(range(MAX_ROWS), opens)
        return rows if rows < MAX_ROWS else None

    @property
    def n_to_come(self) -> int:
        """The most phases that the rows that wait can open."""
        waiting = self._rows.waiting
        return len(waiting.gathering.periods) or bool(waiting.n_rows_to_come)

    @property
    def due(self) -> int | None:
        """When the clock leads to the next tick, closes a period or completes a phase, in milliseconds.

        Or when a sweep is due. None if nothing is.
        """
        tick, periods = self.ticking.due(), self._rows.waiting.gathering.periods
        due = [None if tick is None else tick.at_ms, self.late.due(), self.sweeps.due()]
        due += [periods[0].due] if periods else []
        return min((at for at in due if at is not None), default=None)

    def dates(self, window: range) -> Dates:
        """Returns the time at which the phases of ``window`` begin and have ended, as messages write it."""
        return self._engine.times.dates(self.spans[window.start : window.stop])

    # ------------------------------------------------------------ batches

    async def close_ended(self, batch: TimeSpan | None = None) -> bool:
        """Takes the next tick, completes or opens a phase, if that is due by the clock or by a batch.

        A period with too few rows joins the next one. What is done is committed: if a crash comes before the
        record in hand is done with, the record comes again and finds it done.

        Args:
            batch: What the batch in hand is about.

        Returns:
            Whether anything was done. More may be due.
        """
        times, waiting = self._engine.times, self._rows.waiting
        waiting.set_times(times.at(waiting.gathering, self._draft.dated_ms))
        if await self._before_the_end(ends=times.ends(waiting.gathering, batch)):
            self._draft.commit()
            return True
        while times.ends(waiting.gathering, batch):
            if self._may_open:
                await self._open(ended_by=batch)
                self._draft.commit()
                return True
            waiting.set_times(times.joined(waiting.gathering, batch))
        return False

    async def _before_the_end(self, *, ends: bool) -> bool:
        """Does what is due next, if anything is before a period closes: also its last tick."""
        gathering, tick, late = self._rows.waiting.gathering, self.ticking.due(), self.late.due()
        closes = gathering.periods[0].due if ends else None
        now = -1 if gathering.now is None else gathering.now
        until = now if closes is None else min(now, closes)
        if late is not None and late <= (until if tick is None else min(until, tick.at_ms)):
            await self.late.complete(self.late.n_complete + 1)
            return True
        if tick is not None and tick.at_ms <= until:
            await self.ticking.take(tick.period)
            return True
        last = self.ticking.last() if ends else None
        if last is not None:
            await self.ticking.take(last, closes=True)
        return last is not None

    async def accept(self, batch: Batch, taken: Taken, span: TimeSpan | None) -> bytes:
        """Takes a batch in, and opens a phase when rows alone decide and are enough; returns its outcome.

        Args:
            batch: The batch. If it is of a source or producer, the commit sets which one is next.
            taken: What it brings.
            span: What its rows are about.
        """
        counted, times, waiting = batch.counted, self._engine.times, self._rows.waiting
        rows = taken.rows
        assert self._draft.expects(counted), "the caller refuses others"
        if counted is not None:
            self._draft.passed(counted.key, counted.next)
        if batch.source is not None and batch.source.position is not None:
            self._draft.passed(batch.source.position_key, batch.source.position)
        before, joins = waiting.gathering, self.late.phase_of(span, rows.n_rows)
        if joins is None:
            splits = len(waiting.universes) == 1
            gathering, period = times.with_batch(
                before, span, dated_ms=self._draft.dated_ms, splits=splits
            )
            late = gathering.late > before.late
        else:
            gathering, period, late = before, late_time(joins).start, True
            self._accounts.changed()
        waiting.set_times(gathering)
        if period > 0 and span is not None:
            self.ticking.begin(span, self._draft.dated_ms)
        came = self.ticking.place(period)
        await waiting.join(batch, taken, self._accounts.in_hand.record, period, came)
        opens = times.phase.calendar is None and self._may_open
        about: dict[str, object] = self.sweeps.expected(taken.n_changes)
        if times.phase.calendar is not None:
            about |= {**times.dates([span]), "late": late, "late_phase": joins}
        outcome = waiting.store_outcome(
            batch,
            "batch_accepted",
            rows=rows.n_rows,
            waiting=0 if opens else waiting.n_rows_to_come,
            phase=len(self.spans) + opens,
            **about,
        )
        if opens:
            await self._open()
        return outcome

    async def close(self) -> bool:
        """Opens a phase of the rows that wait, although their period may not have ended, or more could join.

        Returns:
            Whether there were enough rows.
        """
        if not self._may_close:
            return False
        if (last := self.ticking.last()) is not None:
            await self.ticking.take(last, closes=True)
            self._draft.commit()
        self.closed(len(self.spans) + 1)
        await self._open()
        return True

    def closed(self, phase: int) -> None:
        """Announces that a phase is open or opens now, also to a client that closes its period again."""
        is_open = phase <= len(self.spans)
        dates = self._engine.times.dates(
            self.spans[phase - 1 : phase] if is_open else [self._rows.waiting.gathering.span]
        )
        waiting = self._rows.waiting.n_rows_to_come if is_open else 0
        self._draft.announce("phase_closed", phase=phase, waiting=waiting, **dates)

    @property
    def _may_open(self) -> bool:
        """Whether the rows that wait are enough to open a phase."""
        min_rows = self._engine.definition.phase.min_rows
        return self._engine.mechanism.opens(self._rows.waiting.n_first_rows, min_rows)

    @property
    def _may_close(self) -> bool:
        """Whether the rows that wait are enough for a phase that is asked for.

        They may be fewer than open one by themselves, as long as opening leaves each what is kept for it.
        """
        if self._may_open:
            return True
        definition, mechanism = self._engine.definition, self._engine.mechanism
        n_rows, paying = self._rows.waiting.n_first_rows, self._accounts.paying
        if not mechanism.opens(n_rows, definition.least_to_close(n_rows)):
            return False
        rules = {"analysts": paying.analysts, "owner": paying.owner}
        try:
            check_opening(definition.model_copy(update=rules), mechanism, n_rows)
        except InvalidDefinition:
            return False
        return True

    # ------------------------------------------------------------ opening

    async def _open(self, *, ended_by: TimeSpan | None = None) -> None:
        """Opens a phase of the first period that waits, and takes the looks that this asks for."""
        kept = self._engine.definition.kept_phases
        await self.late.complete(erased_blocks(len(self.spans) + 1, kept))
        self.ticking.seal()
        n_rows, gathering = await self._seal(), self._rows.waiting.gathering
        self._rows.waiting.set_times(self._engine.times.after_phase(gathering, ended_by))
        self.spans.append(gathering.span)
        self._draft.publish(phase_entry(n_rows, gathering.span))
        erased = erased_blocks(len(self.spans), kept)
        self._rows.blocks.erase(erased)
        self._announce(n_rows, erased, gathering.late)
        mechanism, looks, self._looks.releases = self._engine.mechanism, self._looks, 0
        with self._accounts.asked_by(None):
            opening = mechanism.open_phase(n_rows)
        if self._rows.blocks.data.erased:
            self._rows.drop_secrets()
        if opening:
            known = self._engine.found
            await self._take(opening)
            self._fuse(CrashPoint.IN_PHASE)
            await self._find(known)
            with self._accounts.asked_by(None):
                more = mechanism.opened()
            if more:
                await self._take(more)
        else:
            looks.synthesize()
        with self._accounts.asked_by(None):
            grown = mechanism.growth()
        await looks.grow(grown)

    async def _find(self, known: Mapping[int, Sequence[str]]) -> None:
        """Puts the rows of the new block into the cells of values that its looks have found.

        Args:
            known: The values that were known before.
        """
        blocks, engine = self._rows.blocks, self._engine
        if engine.mechanism.found is None:
            return
        if engine.found != known:
            await blocks.find_again(len(blocks) - 1)
            n_new = sum(len(of) - len(known[at]) for at, of in engine.found.items())
            self._draft.announce("values_found", phase=len(blocks), values=n_new)
        self._list()
        blocks.drop_texts(engine.mechanism.found.texts_over(len(blocks)))

    def _list(self) -> None:
        """Has the catalog say what is known by now."""
        found = self._engine.cataloged.to_bytes()
        self._draft.release(Outgoing("catalog", self._draft.dataset, found))

    async def _take(self, opening: Sequence[Look]) -> None:
        """Takes looks of an opening. What they propose leaves with the commit of what they released."""
        known = self._engine.definition.proposals or ()
        await self._looks.take(opening)
        new = (self._engine.definition.proposals or ())[len(known) :]
        for one in new:
            said = one.model_dump() if one.edges else {"attribute": one.attribute, "note": TOO_FEW}
            self._draft.announce("bounds_proposed", phase=len(self.spans), **said)
        if new:
            self._list()

    async def _seal(self) -> int:
        """Seals the rows of the first period as the next block. It is kept before the commit that names it.

        Returns:
            The number of its rows.
        """
        rows, waiting, blocks = self._rows, self._rows.waiting, self._rows.blocks
        times, n_rows = waiting.gathering.first, waiting.n_first_rows
        self._fuse(CrashPoint.BEFORE_KEEP)
        whose = await rows.whose(times)
        await rows.forget_persons()
        marks, uses = rows.used.counted(whose, self._engine.unit)
        await rows.keep(len(blocks), times, whose, marks)
        if uses is not None:
            await rows.used.add(uses)
        if self.late.taken and whose is not None and marks is not None:
            await rows.counted.keep(len(blocks) + 1, whose, marks)
        self._fuse(CrashPoint.AFTER_KEEP)
        blocks.data.sealed(n_rows)
        self._accounts.open_line()
        waiting.forget(times)
        return n_rows

    def _announce(self, n_rows: int, erased: int, late: int) -> None:
        phase = len(self.spans)
        dates = self.dates(range(phase - 1, phase))
        known = {key: date for key, date in dates.items() if date is not None}
        due = {"erased": erased} if erased else {}
        opened = {"phase": phase, "rows": n_rows}
        self._draft.write_ledger("phase", {**opened, **due, **known})
        by_calendar = {"late_batches": late} if self._engine.times.phase.every else {}
        self._draft.announce("phase_opened", **opened, **known, **by_calendar)
