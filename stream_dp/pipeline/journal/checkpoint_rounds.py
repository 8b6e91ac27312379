"""Rounds of checkpoints: what the next owner begins with, and what may be deleted below.

A round begins when nothing is under way: then the states of all data sets of a partition are copied, and a
``begin`` says all that marks have said. Work goes on while a checkpoint of each is written, and an ``end``
that says where they are. A reader begins with the newest ``end`` that a later entry names, so that it reads
from its ``begin`` on.

Answers are not in states. Where few of those below ``begin`` are still kept, checkpoints carry them, and the
journal is deleted below ``begin``. Where there are many, the journal keeps them, and is deleted below the
first one.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from stream_dp.errors import CorruptState, ServerUnavailable
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.contents import Carried, contents_below
from stream_dp.pipeline.journal.entries import Round
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.ids import Ids
from stream_dp.state.schema import Checkpoint, State

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Often:
    """How often rounds are.

    Attributes:
        n_bytes: What a next owner has to read when there is one, at least, see ``Owned.to_read``. It is half
            of all states and indexes, too: so what is written is in proportion.
        per_id: The entries to be deleted for each id that is carried, at least.
    """

    n_bytes: int = 16 << 20
    per_id: int = 8


@dataclass
class _Begun:
    """A round that has begun.

    Attributes:
        owned: The partition.
        at: Where it begins.
        states: The state of each data set there.
        ids: The index of each.
    """

    owned: Owned
    at: int
    states: dict[str, State] = field(repr=False)
    ids: dict[str, Ids] = field(repr=False)


class _Abandoned(Exception):
    """A round that is not finished. The next one is another one."""


@dataclass(eq=False, repr=False)
class Rounds:
    """Makes rounds of the partitions that a worker owns."""

    _journal: Journal
    _releaser: Releaser
    _often: Often
    _context: Context
    _begun: asyncio.Queue[_Begun] = field(default_factory=asyncio.Queue, init=False)
    _under_way: set[int] = field(default_factory=set, init=False)

    async def after(self) -> None:
        """Begins what is due. The caller sees to it that no step is under way."""
        for partition, owned in self._journal.owned().items():
            if partition not in self._under_way and self._is_due(owned):
                begun = await self._begin(owned)
                if begun is not None:
                    self._under_way.add(partition)
                    self._begun.put_nowait(begun)

    def _is_due(self, owned: Owned) -> bool:
        if owned.to_read < self._often.n_bytes:
            return False
        try:
            sizes = [chain.build().n_bytes + chain.ids.n_bytes for chain in owned.chains.values()]
        except CorruptState:
            # What cannot be served would be forgotten: no state can be written of it.
            owned.to_read = 0  # asked again later
            _log.warning(
                "partition %d of the journal stays as long as it is, for a data set in it cannot be served",
                owned.partition,
            )
            return False
        return owned.to_read >= sum(sizes) // 2

    async def _begin(self, owned: Owned) -> _Begun | None:
        await self._releaser.settled()
        if owned.superseded:
            return None
        owned.marks.take({**self._releaser.told(owned.partition), "released": owned.expected})
        states, ids = {}, {}
        for name, chain in owned.chains.items():
            states[name], ids[name] = chain.build().copied(), chain.ids.copied()
        at = await self._journal.begin(owned)
        return None if at is None else _Begun(owned, at, states, ids)

    async def run(self) -> None:
        """Goes on with what has begun, until cancelled."""
        while True:
            begun = await self._begun.get()
            try:
                await self._finish(begun)
            except (_Abandoned, ServerUnavailable) as error:
                _log.warning(
                    "a round of checkpoints of partition %d of the journal was given up: %s",
                    *(begun.owned.partition, error or "another worker has taken over"),
                )
                begun.owned.to_read = 0  # then later
            finally:
                self._under_way.discard(begun.owned.partition)

    @property
    def busy(self) -> bool:
        """Whether a round is under way."""
        return bool(self._under_way)

    async def _finish(self, begun: _Begun) -> None:
        carries = self._may_carry(begun)
        carried = await self._carried(begun) if carries else {}
        checkpoints: dict[str, int] = {}
        for name, state in begun.states.items():
            some = carried.get(name, {})
            value = await asyncio.to_thread(_checkpoint, state, begun.ids[name], some)
            checkpoints[name] = await self._write(begun.owned, name, value)
            del value  # it may be hundreds of megabytes
            _move(begun.owned.chains[name], some, checkpoints[name])
        self._context.fuse(CrashPoint.BEFORE_CHECKPOINT)
        if not await self._journal.end(begun.owned, Round(begun.at, checkpoints)):
            raise _Abandoned
        self._context.fuse(CrashPoint.AFTER_CHECKPOINT)
        first = begun.at if carries else await asyncio.to_thread(_first_kept, begun)
        await self._journal.forget(begun.owned, first)

    async def _write(self, owned: Owned, name: str, value: bytes) -> int:
        """Appends a checkpoint, and reads it again: what is below is to be deleted. Returns where it is."""
        at = await self._journal.write(owned, "checkpoint", name, value)
        if at is None:
            raise _Abandoned
        found = await self._journal.history.entry_at(owned.partition, at)
        if found is None or (found.kind, found.name, found.value) != ("checkpoint", name, value):
            raise _Abandoned("a checkpoint is not there as it was written")
        return at

    # ------------------------------------------------------------ what is carried

    def _may_carry(self, begun: _Begun) -> bool:
        """Whether so few ids are below that it pays to carry what is under them."""
        cut = begun.at - begun.owned.first
        live = sum(ids.below(begun.at) for ids in begun.ids.values())
        return cut > 0 and live * self._often.per_id <= cut

    async def _carried(self, begun: _Begun) -> dict[str, Carried]:
        """Reads what is to be deleted, for what is still kept of it."""
        journal, beats = self._journal, self._context.heartbeat
        try:
            return await contents_below(journal, begun.owned, begun.at, begun.ids, beats)
        except CorruptState as error:
            raise _Abandoned(str(error)) from error


def _checkpoint(state: State, ids: Ids, carried: Carried) -> bytes:
    pairs = {pair: value for pair, (value, _) in carried.items()}
    return Checkpoint(state=state, carried=pairs, ids=ids.to_bytes()).to_bytes()


def _first_kept(begun: _Begun) -> int:
    """The offset below which nothing is needed that checkpoints do not carry."""
    found = (ids.first() for ids in begun.ids.values())
    return min((at for at in found if at is not None), default=begun.at)


def _move(chain: JournalChain, carried: Carried, offset: int) -> None:
    """Says that contents are in a checkpoint from now on, unless they were dropped meanwhile."""
    for pair, (_, before) in carried.items():
        if chain.ids.is_at(pair, before):
            chain.ids.move(pair, offset)
