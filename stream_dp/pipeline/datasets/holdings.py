"""The data sets of the partitions in hand: taken over from their former owner, and let go of again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stream_dp.errors import (
    CorruptState,
    Fenced,
    InvalidDefinition,
    ServerUnavailable,
    WrongSetting,
)
from stream_dp.messages import Definition, Event, Reason, standing_key
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.intake.ownership import Ownership
from stream_dp.pipeline.intake.records import Decided, Outgoing, Record, plain
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.queries.standing_runner import StandingRunner
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS, Trying
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.pipeline.watch.metrics import Figures, figures
from stream_dp.state.schema import Commit, State, StateTable

_log = logging.getLogger(__name__)

_MOVED: Final = (StateTable.FACT, b"moved")
_QUARANTINED: Final = (StateTable.FACT, b"quarantined")

_UNREADABLE: Final = (CorruptState, ValueError, TypeError, LookupError)
"""What reading a data set raises if what is durable of it is not ours."""


@dataclass(eq=False, repr=False)
class Holdings:
    """The names that this worker has looked up, each with its data set or the fact that it has none.

    Attributes:
        datasets: Name -> the data set, as of its take-over and every commit since.
        stopped: Name -> why it cannot be served. Others are.
        parked: Name -> the published facts of a data set that was not in use for long. What is durable of it
            is in memory, and the rest is not: the next record of it loads it again.
    """

    _ownership: Ownership
    _releaser: Releaser
    _journal: Journal
    _repeating: StandingRunner
    _trying: Trying
    _following: RedisFollower
    _tools: Tools
    datasets: dict[str, Dataset] = field(default_factory=dict, init=False)
    stopped: dict[str, str] = field(default_factory=dict, init=False)
    parked: dict[str, Figures] = field(default_factory=dict, init=False)
    _undefined: set[str] = field(default_factory=set, init=False)

    def __contains__(self, name: str) -> bool:
        """Returns whether this name was looked up, defined or not."""
        return name in self.datasets or name in self._undefined or name in self.stopped

    def owned(self, name: str) -> State | None:
        """What Redis is to have of a data set. None for one that this worker does not own."""
        owned = self._journal.owned().get(self._journal.partition_of(name))
        chain = None if owned is None else owned.chains.get(name)
        return None if chain is None else chain.state

    # ------------------------------------------------------------ letting go

    def let_go(self) -> None:
        """Forgets the data sets of partitions that are not held any more."""
        self._journal.keep(self._ownership.held)
        self._following.let_go(self._ownership.is_held)
        self._undefined = set(filter(self._ownership.is_held, self._undefined))
        by_names: tuple[dict[str, Any], ...] = (self.datasets, self.stopped, self.parked)
        for by_name in by_names:
            for name in [name for name in by_name if not self._ownership.is_held(name)]:
                left = by_name.pop(name)
                if isinstance(left, Dataset):
                    left.rows.let_go()

    def park(self, name: str) -> None:
        """Forgets a data set that is not in use, but for what is durable of it."""
        self.parked[name] = figures(self.datasets[name])
        self._unload(name)

    def stop(self, name: str, error: CorruptState) -> None:
        """Serves a data set no more, of which the journal lacks something. Nothing may be in hand of it."""
        _log.error("data set %s cannot be served: %s", name, error)
        self._unload(name)
        self._stop(name, _why(error))

    def _unload(self, name: str) -> None:
        dataset = self.datasets.pop(name)
        self._releaser.gathered.append(dataset.draft.collect())
        dataset.rows.let_go()

    def forget_undefined(self, name: str) -> None:
        """Forgets a name that nobody has defined: there is no end of them."""
        self._undefined.discard(name)

    async def guarded(self, name: str, step: Awaitable[None]) -> None:
        """Runs a step of one data set that may be revoked in the meantime: its next owner goes on.

        Raises:
            Fenced: This worker believes to hold it all along: then it is wrong about the world, and stops.
        """
        generation = self._ownership.generation
        try:
            await step
        except Fenced:
            if generation == self._ownership.generation and self._ownership.is_held(name):
                raise
            _log.info("data set %s was handed to another worker", name)

    # ------------------------------------------------------------ creating and taking over

    async def create(self, definition: Definition, record: Record) -> Dataset:
        """Drafts a data set under a name that was looked up and has none.

        Raises:
            InvalidDefinition: No data set can be made of the definition. Nothing is left of it.
            Fenced: Another worker was quicker.
        """
        name = definition.dataset
        definition.check_new()
        owned = await self._journal.entered(self._journal.partition_of(name))
        chain = JournalChain(name)
        dataset = Dataset(chain, definition, self._tools)
        dataset.draft.dated_ms = record.timestamp_ms
        dataset.begins(record.record_id)
        await dataset.define()
        self.forget_undefined(name)
        owned.chains[name] = chain
        self.datasets[name] = dataset
        return dataset

    async def look_up(self, names: Sequence[str]) -> None:
        """Takes over those of these names that are data sets, and notes that the others are none."""
        for name in names:
            await self.guarded(name, self._look_up(name))

    async def _look_up(self, name: str) -> None:
        generation = self._ownership.generation
        owned = await self._journal.entered(self._journal.partition_of(name))
        if name in owned.chains:
            await self.take_over(name)
        elif generation == self._ownership.generation and self._ownership.is_held(name):
            self._undefined.add(name)

    async def take_over(self, name: str) -> None:
        """Makes this worker the owner of a data set.

        Raises:
            WrongSetting: It cannot be with this key file, or this store of rows.
        """
        cause = f"the take-over of {name}"
        owned = await self._journal.entered(self._journal.partition_of(name))
        attempts = await self._trying.begins(owned, cause)
        try:
            await self._load(owned, name, cause, is_deadly=attempts > MOST_ATTEMPTS)
        except (asyncio.CancelledError, ServerUnavailable, Fenced, WrongSetting):
            await self._trying.ends(cause)  # not its fault
            raise
        if attempts <= MOST_ATTEMPTS:
            await self._trying.ends(cause)

    async def _load(self, owned: Owned, name: str, cause: str, *, is_deadly: bool) -> None:
        chain, dataset, why = owned.chain(name), None, MOVED
        try:
            facts = chain.build().pairs
            # A worker that died of what a data set holds does not hold it again until an operator has looked.
            is_deadly = is_deadly or facts.get(_QUARANTINED, b"").decode() == cause
            if not facts.get(_MOVED):
                inherited = owned.marks.inherited
                dataset = await Dataset.stored(
                    chain, self._tools, replays=not is_deadly, inherited=inherited
                )
        except _UNREADABLE as error:
            why = _why(error)
            _log.error("data set %s cannot be served: %s", name, why)
        if not self._journal.is_mine(owned):
            raise Fenced(f"{name}: its partition was handed over meanwhile")
        if dataset is None:
            self._stop(name, why)
            return
        self.datasets[name] = dataset
        self.parked.pop(name, None)
        self._following.begin(name, dataset.draft.state.number, dataset.draft.state.trail)
        if is_deadly:
            if not dataset.quarantined:
                dataset.quarantine(cause)
            dataset.draft.commit()
            await self._read_in_quarantine(owned, dataset, cause)
        else:
            if given_up := await dataset.recover():
                self._tools.context.metrics.rows_lost(name, given_up)
                _log.error("data set %s goes on without rows that are nowhere any more", name)
            await self._repeating.recall(dataset)
        self._releaser.gathered.append(dataset.draft.collect())
        self._erase_again(chain, dataset)

    async def _read_in_quarantine(self, owned: Owned, dataset: Dataset, cause: str) -> None:
        """Reads the rows that wait, to keep them when their batches are about to be deleted.

        Workers may have died of just that, so it is tried once.
        """
        task = f"reading what waits, after {cause}"
        if dataset.retired or await self._trying.begins(owned, task) > 1:
            return
        try:
            await dataset.rows.waiting.read()
        except (*_UNREADABLE, ServerUnavailable, WrongSetting) as error:
            _log.error(
                "rows of data set %s that wait cannot be read, and may be gone when it is let out of "
                "quarantine: %s",
                *(dataset.name, type(error).__name__),
            )
        await self._trying.ends(task)

    def _erase_again(self, chain: JournalChain, dataset: Dataset) -> None:
        """Queues what erases compacted records again.

        A worker that slept may have put a definition, or synthetic rows, behind the record that erased them.
        """
        name = dataset.name
        erased = [Outgoing("catalog", name, b"")] if dataset.retired else []
        if dataset.retired and dataset.definition.synthetic_rows:
            erased.append(Outgoing("synthetic", name, b""))
        for analyst, query_id in dataset.standing_queries.ended:
            erased.append(Outgoing("standing", standing_key(name, analyst, query_id), b""))
        # They say the present commit: what says an older one, or none, would count as late behind the record
        # that erased them, see newest.py.
        state = dataset.draft.state
        present = Commit(dataset=name, number=state.number, prev=b"", nonce=b"", pairs={}, sum=0)
        commit = Decided(present, state.trail, chain=chain)
        self._releaser.gathered.outgoing += [(commit, one) for one in erased]

    def _stop(self, name: str, why: str) -> None:
        self.stopped[name] = why
        outgoing = Outgoing("events", name, stopped(name, why).to_bytes())
        self._releaser.gathered.tell(self._journal.partition_of(name), outgoing)


def _why(error: Exception) -> str:
    """Why a data set cannot be read, in words that say nothing of what was read."""
    return (
        str(error)
        if isinstance(error, CorruptState | InvalidDefinition)  # definitions are public
        else f"what is durable of it does not decode ({type(error).__name__})"
    )


def stopped(dataset: str, why: str) -> Event:
    """The event that says why nobody can serve a data set."""
    reason = Reason(code="stopped", message=plain(why))
    return Event(dataset=dataset, event="stopped", reason=reason)
