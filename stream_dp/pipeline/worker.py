"""Groups of records in, commits, then releases. Knows no Faust: the app hands it records and a sender.

A group is decoded, looked up and decided: a few data sets at the same time, and the records of each in log
order. It is committed once a data set (and once more for each paid look): the releaser has the journal take
it, and sends what follows while the next group is decided. Progress is on the journal alone: each commit
moves its data set's cursor, and a topic's watermark follows when all below it is committed and has left.

Who does what: ``ownership`` knows which records are this worker's, ``backlog`` what was taken of them and is
not finished, ``holdings`` their data sets, ``decider`` what a record does, ``releaser`` what leaves,
``checkpoint_rounds`` what the next owner begins with, and ``redis_follower`` what Redis has of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time
from typing import Any

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.errors import Fenced, ServerUnavailable, UnsafeTopics
from stream_dp.messages import DATASET_PATTERN
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.holdings import Holdings
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.group_steps import UNREADABLE, GroupSteps
from stream_dp.pipeline.intake.backlog import Backlog
from stream_dp.pipeline.intake.decider import Decider
from stream_dp.pipeline.intake.decoder import partition_in
from stream_dp.pipeline.intake.due_closings import DueClosings
from stream_dp.pipeline.intake.ownership import AskBounds, Ownership
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.intake.swept_batches import SweptBatches
from stream_dp.pipeline.journal.checkpoint_rounds import Often, Rounds
from stream_dp.pipeline.journal.contents import Contents
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.newest import Newest, dataset_of
from stream_dp.pipeline.journal.owned_partition import JournalCut, Owned
from stream_dp.pipeline.journal.published_commits import COMPARED
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.journal.releaser import Releaser, Send
from stream_dp.pipeline.journal.unsent import unsent
from stream_dp.pipeline.kafka.topic_log import InputCut, InputReader, KeyedTopic, TopicLog
from stream_dp.pipeline.queries.standing_runner import StandingRunner
from stream_dp.pipeline.repair.attempts import MOST_ATTEMPTS, Trying
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import CountingCluster
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.slab_files import SlabFiles
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.pipeline.watch.metrics import Figures
from stream_dp.state.view import View
from stream_dp.tokens import Verifier

_log = logging.getLogger(__name__)

_KEEP_S = 60.0
_PARKED_S = 86_400.0


@dataclass(frozen=True)
class WorkerTopics:
    """The topics that a worker reads again and writes.

    Attributes:
        log: The journal.
        rows: The batches of rows, to be read again.
        kept: The private topic of blocks.
        outputs: The output topics, by role. Of some, what was published is compared with the journal.
        partitions: The number of partitions of each input topic, all alike.
    """

    log: TopicLog
    rows: InputReader
    kept: KeyedTopic
    outputs: Mapping[str, TopicLog]
    partitions: int


@dataclass(frozen=True)
class WorkerRules:
    """What the operator of a worker has set.

    Attributes:
        facts: What the journal is to say of the deployment.
        key_file: What the key file of persons holds; None without one.
        verifier: What verifies the tokens that queries carry. None where they need none.
        files: Where sealed rows are kept. None for the topic of blocks, and Redis.
        cache: The memory for columns that looks have read.
        cluster: Counts large looks. None to count all of them in the worker.
        often: How often there are rounds of checkpoints.
        batches_last_s: How long batches stay on their topic, in seconds.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    key_file: bytes | None = field(default=None, repr=False)
    verifier: Verifier | None = None
    files: SlabFiles | None = None
    cache: ColumnCache = field(default_factory=ColumnCache)
    cluster: CountingCluster | None = None
    often: Often = field(default_factory=Often)
    batches_last_s: float = 30 * 86_400.0


class Worker:
    """Everything between the records of the assigned partitions and what is released for them.

    Args:
        view: Redis.
        noise: Makes the source of noise of a data set. Several data sets may be in hand at the same time.
        send: Sends what leaves.
        topics: The topics that it reads again and writes.
        rules: What its operator has set.
        context: What its parts have in common.

    Attributes:
        ownership: The partitions that are this worker's, and its reading positions.
        backlog: The records that were taken and are not finished.
        context: What its parts have in common. The heartbeat beats with every group taken and released, and
            with every data set taken over.
        journal: What is durable of their data sets.
        following: Has Redis follow the journal. Its ``run`` is a task of the worker.
        releaser: Appends and sends what was decided. Its ``run`` is another one.
        rounds: Writes checkpoints beside all else. Its ``run`` is another one.
        closings: Has the clock read where a period is due. Its ``run`` is another one.
        datasets: The data sets that are loaded, by name.
        parked: The published facts of data sets that are not loaded, since they were not in use for long.
        stopped: The data sets that cannot be served -> why.
    """

    def __init__(
        self,
        view: View,
        noise: Callable[[], NoiseSource],
        send: Send,
        topics: WorkerTopics,
        rules: WorkerRules | None = None,
        context: Context | None = None,
    ) -> None:
        self._rules = rules = rules or WorkerRules()
        self.context = context = context or Context()
        ownership = self.ownership = Ownership(topics.partitions)
        self._journal_cut: dict[str, int] = {}
        journal = self.journal = Journal(
            topics.log,
            facts=rules.facts,
            is_held=lambda partition: partition in ownership.held,
            entered=self._release_again,
            outputs=[topics.outputs[role] for role in COMPARED if role in topics.outputs],
            context=context,
        )
        self.following = RedisFollower(view, lambda name: self._holdings.owned(name), context)
        self._newest = Newest(topics.outputs, topics.partitions)
        releaser = self.releaser = Releaser(journal, self.following, send, self._newest, context)
        contents = Contents(journal, self.following)
        repeating = StandingRunner(contents, context)
        self._trying = Trying(journal)
        tools = Tools(
            Keeper(topics.kept, context, self.following, rules.files),
            topics.rows,
            topics.partitions,
            releaser.appended,
            noise,
            context,
            rules.key_file,
            rules.cache,
            rules.cluster,
        )
        holdings = self._holdings = Holdings(
            ownership, releaser, journal, repeating, self._trying, self.following, tools
        )
        self.datasets: Mapping[str, Dataset] = holdings.datasets
        self.parked: Mapping[str, Figures] = holdings.parked
        self.stopped: Mapping[str, str] = holdings.stopped
        self.rounds = Rounds(journal, releaser, rules.often, context)
        self._swept = SweptBatches(journal, releaser, holdings, topics.rows)
        decider = Decider(contents, holdings, ownership, repeating, rules.verifier, context)
        self.closings = DueClosings(self.datasets, send)
        self.backlog = Backlog()
        self._steps = GroupSteps(ownership, self.backlog, holdings, decider, releaser, context)
        self._to_take_over = False
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._cut_short: Exception | None = None
        self.context.metrics.worker = self

    # ------------------------------------------------------------ status

    @property
    def cut(self) -> Mapping[str, int]:
        """``topic:partition`` -> the offset up to which it was read, where its log was cut before that."""
        return self.ownership.cut | self._journal_cut

    @property
    def aside(self) -> frozenset[int]:
        """The partitions that were assigned and are not held, since their part of the journal was cut."""
        return frozenset(partition_in(place) for place in self._journal_cut)

    @property
    def ready(self) -> bool:
        """Whether partitions are read and their data sets loaded, so that requests are answered."""
        return self.ownership.reads and not self._to_take_over and self._cut_short is None

    @property
    def behind(self) -> int:
        """Records that were taken and are not finished; more are to be taken while they are few."""
        return len(self.backlog)

    @property
    def busy(self) -> bool:
        """Whether something is in hand: a group, a take-over, or a release."""
        takes_over = self._to_take_over or self._newest.looks
        in_hand = self._lock.locked() or self.behind > 0
        return takes_over or in_hand or self.releaser.busy or self.rounds.busy

    # ------------------------------------------------------------ life

    def cut_short(self, error: Exception) -> None:
        """Begins no step any more: what is in memory is not to be trusted."""
        self._cut_short = self._cut_short or error

    def assigned(self, partitions: Iterable[int], generation: int = 0) -> None:
        """Holds these partitions from now on; ``run_owner`` takes over their data sets.

        Args:
            partitions: The partitions that the worker holds from now on.
            generation: The generation of the consumer group, see ``Ownership.enter``.
        """
        if generation != self.ownership.generation:
            # Nothing of another generation counts, not even what is held all along.
            self.ownership.enter(generation)
            self._let_go()
        self._journal_cut.clear()
        some_are_new = self.ownership.assigned(partitions)
        self._let_go()
        if some_are_new:
            self._to_take_over = True
            self._wake.set()

    def revoked(self, partitions: Iterable[int]) -> None:
        """Lets go of partitions at once; what is still buffered for them is left to their next owner."""
        self.ownership.revoked(partitions)
        self._let_go()

    def _let_go(self) -> None:
        self._holdings.let_go()
        self.releaser.let_go()
        self.backlog.keep(self.ownership.is_mine)

    async def pass_over(self, topic_partition: str, start: int, end: int) -> None:
        """Moves a position from ``start`` to ``end``, between which the log holds no record."""
        async with self._whole():
            if topic_partition in self.backlog.unfinished():
                return
            if self.ownership.pass_over(topic_partition, start, end):
                self.releaser.gathered.watermarks[topic_partition] = end
                await self.releaser.hand_over()

    async def put_down(self) -> None:
        """Releases its partitions, unless it failed on a record. To be called when it takes nothing more."""
        ended_by = self._cut_short
        if ended_by is None or isinstance(ended_by, _Stopped | UnsafeTopics):
            doubtful = self.ownership.doubtful()
            for partition, owned in self.journal.owned().items():
                if partition not in doubtful and not self.releaser.busy:
                    await self.releaser.mark(owned, left=True)

    async def run_keeper(self) -> None:
        """Keeps rows that wait for long apart from their batches, until cancelled.

        A data set that was not in use for a day does not stay in memory.
        """
        while True:
            await asyncio.sleep(_KEEP_S)
            await self.tidy()

    async def tidy(self) -> None:
        """Does once what ``run_keeper`` does every minute."""
        before_ms = 1000 * (time() - self._rules.batches_last_s / 4)
        for name in list(self.datasets):
            async with self._whole():
                dataset = self.datasets.get(name)
                if dataset is None:
                    continue
                at_once = self._swept.below(self.journal.partition_of(name)) > 0
                idle = monotonic() - dataset.used_at > _PARKED_S and not self.behind
                parks = idle and dataset.phases.due is None and not at_once
                # What waits is kept apart where its batches are to be deleted at once, or where nobody looks
                # at how old they are from now on.
                keeping = dataset.keep_waiting(math.inf if at_once or parks else before_ms)
                await self._holdings.guarded(name, keeping)
                await self._swept.let_clean(dataset)
                if self.datasets.get(name) is not dataset:
                    continue  # it was revoked meanwhile, and is for its next owner
                self.releaser.gathered.append(dataset.draft.collect())
                if parks:
                    self._holdings.park(name)
                await self.releaser.hand_over()
        async with self._whole():
            await self._swept.delete()
            await self.releaser.hand_over()

    async def run_owner(self) -> None:
        """Takes over the data sets of partitions as they are assigned, until cancelled.

        What a former owner committed and did not release is released then. Records do not wait for it: the
        first one of a data set takes it over too.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            generation = self.ownership.generation
            for name in sorted({name for one in await self._entered() for name in one.chains}):
                async with self._whole():
                    if self.ownership.generation == generation and self.ownership.is_held(name):
                        if name not in self._holdings:
                            await self._take_over(name)
                            await self.releaser.hand_over()
                        self.context.heartbeat.beat()
            self._to_take_over = self._wake.is_set()
            if not self._to_take_over:
                await self._send_newest_again()

    async def _send_newest_again(self) -> None:
        """Sends the newest record of a key again, where an older one has come behind it."""
        try:
            for one in await self._newest.late(self.ownership.held, self.ownership.is_held):
                _log.warning(
                    "the newest record of data set %s on %s is sent again: a worker that others took for "
                    "dead has sent an older one behind it",
                    *(dataset_of(one.key), one.role),
                )
                partition = self.journal.partition_of(dataset_of(one.key))
                self.releaser.gathered.tell(partition, one)
            await self.releaser.hand_over()
        except ServerUnavailable as error:
            _log.warning(
                "whether old records came last on compacted topics was not seen: %s", error
            )

    async def _entered(self) -> Sequence[Owned]:
        """What the journal says of each partition that is held."""

        async def entered(partition: int) -> list[Owned]:
            try:
                return [await self.journal.entered(partition)]
            except Fenced:
                if partition in self.ownership.held:
                    raise
                return []  # revoked in the meantime
            except JournalCut as error:
                # Held no more, until the partitions are assigned again.
                _log.error("%s", error)
                self.revoked([partition])
                self._journal_cut[f"journal:{partition}"] = error.read
                return []

        found = await asyncio.gather(*map(entered, sorted(self.ownership.held)))
        return [one for some in found for one in some]

    async def positions(self, ask: AskBounds) -> dict[str, int]:
        """Returns where reading goes on, see ``Ownership.positions``.

        Args:
            ask: Asks the broker where the logs begin and end.

        Returns:
            ``topic:partition`` -> the offset. Logs that were cut are left out, and so are partitions of which
            the journal was.
        """

        async def ask_held(read: Mapping[str, int]) -> dict[str, tuple[int, int]]:
            aside = self.aside
            return {
                place: bounds
                for place, bounds in (await ask(read)).items()
                if partition_in(place) not in aside
            }

        await self._entered()
        marks = {at: one.marks for at, one in self.journal.owned().items()}
        positions = await self.ownership.positions(ask_held, marks)
        for topic_partition in list(self.ownership.cut):
            await self._say_cut(topic_partition)
        return positions

    async def found_cut(self, topic_partition: str, read: int, end: int) -> None:
        """Notes for ever that an input ends before what was read of it: soon it may have grown again."""
        self.ownership.found_cut(topic_partition, read, end)
        await self._say_cut(topic_partition)

    async def _say_cut(self, topic_partition: str) -> None:
        owned = self.journal.owned().get(partition_in(topic_partition))
        read = self.ownership.cut[topic_partition]
        if owned is not None and owned.marks.cut.get(topic_partition, 0) < read:
            await self.journal.mark(owned, cut={topic_partition: read})

    def _release_again(self, owned: Owned) -> None:
        """Queues what a former owner committed and may not have released."""
        self.releaser.gathered.outgoing += unsent(owned)
        self.releaser.gathered.ends[owned.partition] = owned.expected

    async def _take_over(self, name: str) -> None:
        try:
            await self._holdings.guarded(name, self._holdings.take_over(name))
        except InputCut as error:
            await self.found_cut(error.topic_partition, error.read, error.end)
            raise

    @contextlib.asynccontextmanager
    async def _whole(self) -> AsyncIterator[None]:
        """Allows one step at a time. After a step that was cut short, the state in memory is worth nothing.

        Raises:
            Exception: The error that cut an earlier step short. Only a new worker may go on, from the store.
        """
        async with self._lock:
            if self._cut_short is not None:
                raise self._cut_short
            try:
                yield
            except Exception as error:
                self._cut_short = error
                raise
            except BaseException:
                self._cut_short = _Stopped("this worker was stopped; start another one")
                raise

    # ------------------------------------------------------------ a group

    async def take(self, records: Sequence[Record]) -> None:
        """Takes a group of records, and does one step of each data set that has something to do.

        What a step does of a data set is bounded, so that no data set keeps the others waiting for longer.
        What is left over waits for the next call.
        """
        async with self._whole():
            fresh = [record for record in records if self.ownership.is_fresh(record)]
            self.context.fuse(CrashPoint.AFTER_FETCH)
            for record in fresh:
                if await self._is_suspicious(record):
                    await self._finish()
                    await self._take_carefully(record)
                else:
                    self._steps.enqueue(record, self._steps.decode(record))
            await self._step()

    async def _finish(self) -> None:
        """Does all that waits."""
        while self.behind:
            await self._step()

    async def _step(self) -> None:
        """One step of each data set that has something to do, in the order of its records."""
        if self.behind:
            await self._steps.take()
            await self.rounds.after()
        self.context.heartbeat.beat()
        await self.releaser.hand_over()

    async def _is_suspicious(self, record: Record) -> bool:
        """Returns whether the last worker may have died at this record. Called once for each record."""
        if not self.ownership.in_doubt(record):
            return False
        name = (record.key or b"").decode(errors="replace")
        if name not in self._holdings and re.fullmatch(DATASET_PATTERN, name):
            await self._holdings.look_up([name])
            self._holdings.forget_undefined(name)
        dataset = self.datasets.get(name)
        if dataset is not None and record.offset < dataset.draft.cursor.get(
            record.topic_partition, 0
        ):
            return False  # its outcome was committed
        self.ownership.doubted(record)
        return True

    async def _take_carefully(self, record: Record) -> None:
        """Takes one of the first records after a worker has died, which may be the one that killed it.

        Attempts are counted on the journal beforehand, since a process that dies counts nothing. After too
        many the record is rejected unread if it cannot even be decoded, and else its data set is
        quarantined: other data sets go on.
        """
        record_id, decoding = record.record_id, f"decode {record.record_id}"
        owned = await self.journal.entered(record.partition)
        begins = partial(self._trying.begins, owned)
        suspect = await begins(record_id) > MOST_ATTEMPTS
        try:
            if suspect and await begins(decoding) > 1:
                _log.error("record %s is rejected unread: the worker died of it", record_id)
                self._steps.reject(record, UNREADABLE)
                self._steps.enqueue(record, None)
            else:
                request = self._steps.decode(record)
                if suspect:
                    await self._trying.ends(decoding)
                self._steps.enqueue(record, request, suspect=suspect)
            await self._finish()
        except (asyncio.CancelledError, ServerUnavailable, Fenced):
            await self._trying.ends(record_id)  # not the record's fault
            raise
        await self._trying.ends(record_id)


class _Stopped(RuntimeError):
    """A step was cut short from outside."""
