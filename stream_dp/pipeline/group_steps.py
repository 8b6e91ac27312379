"""Steps of a group of records: decided, those of one data set in the order of their log, and committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.holdings import Holdings
from stream_dp.pipeline.intake.backlog import Backlog, Piece
from stream_dp.pipeline.intake.decider import Decider, Known
from stream_dp.pipeline.intake.decoder import Request, decode
from stream_dp.pipeline.intake.ownership import REJECTED, Ownership
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.together import together
from stream_dp.pipeline.watch.crash_points import CrashPoint

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Data sets in hand at the same time: what is drawn for their looks is in memory."""

UNREADABLE: Final = InvalidMessage(
    "value", "the worker fails when it reads this", "send it in another form", reason="unreadable"
)


@dataclass(eq=False, repr=False)
class GroupSteps:
    """Does what was taken, step by step."""

    _ownership: Ownership
    _backlog: Backlog
    _holdings: Holdings
    _decider: Decider
    _releaser: Releaser
    _context: Context

    def enqueue(self, record: Record, request: Request | None, *, suspect: bool = False) -> None:
        if not self._ownership.is_mine(record):
            return  # revoked in the meantime; its next owner reads it again
        self._backlog.add(Piece(record, request, suspect=suspect))
        self._ownership.taken(record)

    def decode(self, record: Record) -> Request | None:
        self._context.metrics.record(record)
        try:
            return decode(record, self._ownership.partitions)
        except InvalidInput as error:
            self.reject(record, error)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - anyone who finds such a record must not stop the rest
            # Reading depends on nothing but the record, and has changed nothing yet. No word of the error: it
            # may quote a row.
            _log.error(
                "a record of %s cannot be read: %s", record.topic_partition, type(error).__name__
            )
            self.reject(record, UNREADABLE)
        return None

    def reject(self, record: Record, error: InvalidInput) -> None:
        """Rejects a record that belongs to no data set; it is read, and rejected, again after a crash."""
        self._releaser.gathered.tell(record.partition, self._decider.rejection(record, error))

    async def take(self) -> None:
        """Decides pieces of records and commits them, those of one data set in the order of their log."""
        self._context.fuse(CrashPoint.AFTER_DECODE)
        # A rebalance may take the partition away at any step; its next owner reads these records again.
        pieces = list(self._backlog)
        names = dict.fromkeys(piece.dataset for piece in pieces)
        unknown = [one for one in pieces if one.dataset and one.dataset not in self._holdings]
        wanted = [one.dataset for one in unknown if await self._decider.is_admitted(one)]
        await self._holdings.look_up([*dict.fromkeys(wanted)])
        steps = self._backlog.step(self._decider.values_of)
        known = await self._decider.known([request for _, request in steps if request is not None])
        of_none: list[tuple[Piece, Request]] = []
        by_name: dict[str, list[tuple[Piece, Request]]] = {}
        for piece, request in steps:
            if request is None:
                piece.finished = True
            elif piece.dataset in self._holdings.datasets:
                by_name.setdefault(piece.dataset, []).append((piece, request))
            else:
                of_none.append((piece, request))
        # While the charge of one data set is on its way to the journal, the others go on.
        await together(
            [partial(self._decide, some, known) for some in by_name.values()],
            at_once=_AT_ONCE,
        )
        await self._decide_undefined(of_none, known)
        await self._commit(names)
        self._reject_unknown()
        for name in names:
            if not self._backlog.drop_finished(name):
                self._holdings.forget_undefined(name)
        unfinished = self._backlog.unfinished()
        for topic_partition in {piece.record.topic_partition for piece in pieces}:
            taken = self._ownership.next_offset(topic_partition)
            if taken is not None:
                done = unfinished.get(topic_partition, taken)
                self._releaser.gathered.watermarks[topic_partition] = done

    async def _decide(self, steps: Sequence[tuple[Piece, Request]], known: Known) -> None:
        """Decides pieces of one data set, up to the first one that is not finished with that."""
        for piece, request in steps:
            if not self._ownership.is_mine(piece.record):
                continue
            await self._decide_one(piece, request, known)
            if not piece.finished:
                return

    async def _decide_undefined(self, steps: Iterable[tuple[Piece, Request]], known: Known) -> None:
        """Decides pieces of names without a data set, in the order in which they came.

        Their rejections are noted as one mark over each log, and nothing below that mark may be undecided. So
        a piece waits for those below it, and those of its name that came later wait for it.
        """
        in_order = sorted(steps, key=lambda step: step[0].arrival)
        undecided = self._backlog.unfinished({piece.arrival for piece, _ in in_order})
        waiting: set[str] = set()
        for piece, request in in_order:
            record, name = piece.record, piece.dataset
            if not self._ownership.is_mine(record):
                continue
            first = undecided.get(record.topic_partition, record.offset)
            if name not in waiting and (name in self._holdings.datasets or first >= record.offset):
                await self._decide_one(piece, request, known)
            if not piece.finished:
                waiting.add(name)
                undecided[record.topic_partition] = min(first, record.offset)

    async def _decide_one(self, piece: Piece, request: Request, known: Known) -> None:
        decision = self._decider.handle(piece, request, known)
        await self._holdings.guarded(piece.dataset, decision)
        # One that was revoked is left to its next owner, with all that is to leave for it.
        if (dataset := self._holdings.datasets.get(piece.dataset)) is not None:
            self._releaser.gathered.append(dataset.draft.collect())

    async def _commit(self, names: Iterable[str]) -> None:
        """Commits what is drafted for these data sets."""
        for dataset in filter(None, map(self._holdings.datasets.get, names)):
            dataset.draft.commit()
            # It has the journal take what is to be collected, if it erases anything.
            await self._holdings.guarded(dataset.name, dataset.drop_kept())
            dataset.draft.commit()
            self._releaser.gathered.append(dataset.draft.collect())

    def _reject_unknown(self) -> None:
        """Notes, before they leave, which records are rejected for want of a data set."""
        unknown, self._decider.unknown = self._decider.unknown, []
        for record, outgoing in unknown:
            if self._ownership.is_mine(record):
                self._releaser.gathered.tell(record.partition, outgoing)
                mark = REJECTED + record.topic_partition
                self._releaser.gathered.watermarks[mark] = record.offset + 1
