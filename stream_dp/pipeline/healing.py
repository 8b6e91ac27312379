"""Brings data sets up to the journal, when a worker takes their partition over.

A store may have gone back: a replica that lagged was made primary, an older copy was put in place, or all
of it is gone. What the journal has beyond that is applied again, commit by commit, as it stands: nothing is
decided, drawn or priced again. Rows are not on the journal. Those of a phase are in its block, which is on a
private topic, and those that wait are read again from the batches that the records name.

A data set of which the store has another history than the journal is set aside and built again: what is in
the store alone was never seen. Rows that are nowhere any more are noted as gone. A data set that cannot be
healed stops alone.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from secrets import token_bytes
from time import monotonic
from typing import Any, TypeVar

from stream_dp.core.accounting import Charge
from stream_dp.core.blocks import Block
from stream_dp.core.lifetimes import Numbers
from stream_dp.core.persons import Digests, Persons, PersonSecret
from stream_dp.core.universe import Rows
from stream_dp.errors import (
    CorruptState,
    Fenced,
    GoneBack,
    InvalidInput,
    StoreError,
    StoreUnavailable,
)
from stream_dp.messages import Definition
from stream_dp.pipeline import ingesting
from stream_dp.pipeline.chains import Chain, Reader, entries_of, judged
from stream_dp.pipeline.closing import FOR_LIFE
from stream_dp.pipeline.dataset import DEFINED_IN, PERSON, settling
from stream_dp.pipeline.decoding import ingested
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.journal import Appends, Entered, Reading, fold
from stream_dp.pipeline.keeping import PERSONS, WAITING, Finder, Keeper, field_of
from stream_dp.pipeline.logs import EndsBefore, Log
from stream_dp.pipeline.logs import Rows as RowLog
from stream_dp.pipeline.lost_rows import GONE, Gone, given_up
from stream_dp.pipeline.reserving import (
    calls_for,
    counted,
    forget,
    reserve_again,
    reserved_from_bytes,
)
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.profiles.building import build
from stream_dp.profiles.lines import privacy_of
from stream_dp.state.journal import (
    Accepted,
    Checkpoint,
    CommitRecord,
    is_record,
    summed,
    transition_of,
)
from stream_dp.state.ledger import extend
from stream_dp.state.store import ORIGIN, TRAIL_BYTES, Note, Place, Snapshot, Store, Transition

__all__ = ["Healing", "records_of"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_UNREADABLE = "the secret of its digests is gone"

_STEP_BYTES = 2**23
_ID_BYTES = 4_096  # that an id counts with: it is an entry of its own in a set of the store
_MORE_BYTES = 128  # that an outcome counts with beside its id and content

_NO_LOOKS: frozenset[int] = frozenset()


def records_of(snapshot: Snapshot) -> list[tuple[int, CommitRecord, bytes]]:
    """The records that a store keeps until they have left: number, record and trail."""
    return [
        (seq, *CommitRecord.from_bytes(stored))
        for seq, stored in snapshot.outbox
        if is_record(stored)
    ]


class Healing:
    """Heals the data sets of a partition.

    Args:
        rows: The batches of rows, to be read again.
        keeper: What is kept of blocks.
        partitions: The number of partitions of each input topic.
        key_file: What the key file of persons holds; None without one.
    """

    def __init__(
        self,
        log: Log,
        rows: RowLog,
        keeper: Keeper,
        store: Store,
        *,
        partitions: int,
        key_file: bytes | None,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self.healed: dict[str, int] = {}
        self._log = log
        self.rows = rows
        self.keeper = keeper
        self.store = store
        self.partitions = partitions
        self.key_file = key_file
        self.fuse = fuse
        self.heartbeat = heartbeat

    async def __call__(self, journal: Appends, partition: int, entered: Entered) -> None:
        """Heals what there is to heal in a partition; what cannot be healed is in its ``problems``."""
        patients: dict[str, _Patient] = {}
        for name, why in entered.problems.items():
            # A repair has found it not to be whole. Its name stays in the store, so that it is not free.
            await persistently(partial(self.store.acquire, name, token=entered.epoch, new=True))
            _log.error("data set %s cannot be served: %s", name, why)
        for name, chain in entered.chains.items():
            if name in entered.problems:
                continue
            try:
                patient = await self._examined(journal, partition, entered, name, chain)
            except (StoreUnavailable, Fenced):
                raise
            except (CorruptState, InvalidInput) as error:
                self._stops(entered, name, error)
                continue
            if patient is not None:
                patients[name] = patient
        late = [patient for patient in patients.values() if patient.began_after(entered.first)]
        if late:
            reading = Reading(
                self._log, partition, Note(entered.first), {}, heartbeat=self.heartbeat
            )
            async for _ in reading.to(entered.expected):
                pass
            for patient in late:
                if patient.name not in reading.chains:
                    raise patient.is_cut()
                patient.knows(reading.chains[patient.name])
        if patients:
            await self._treat(partition, entered, patients)

    def _stops(self, entered: Entered, name: str, error: Exception) -> None:
        entered.problems[name] = str(error)
        _log.error("data set %s cannot be served: %s", name, error)

    async def _examined(
        self, journal: Appends, partition: int, entered: Entered, name: str, chain: Chain
    ) -> _Patient | None:
        """Compares a data set with its chain, appends what the store alone has; returns it if it is ill."""
        at = chain.place
        if chain.gap:
            raise CorruptState(
                f"the journal has commits of {name}, and not all of those before them: its topic was cut. "
                f"Restore the topic, or see: stream-dp journal mend --dataset {name}"
            )
        if chain.seq is not None and judged(chain, at.seq, at.trail, ()) == "equal":
            return None
        acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
        snapshot = await persistently(acquire)
        kept = records_of(snapshot)
        if chain.seq is None and at.seq > 0:
            if snapshot.trail == ORIGIN:
                await self._keep(snapshot)
                snapshot = await persistently(acquire)
                kept = records_of(snapshot)
            if kept and kept[0][1].prev == ORIGIN and kept[0][0] > 1:
                await self._first(journal, partition, entered, snapshot)
                chain.seq, chain.trail, chain.met = snapshot.seq, snapshot.trail, True
                return None
            chain.seq, chain.trail = 0, ORIGIN
        if chain.seq == 0 and _is_late(snapshot, kept, entered.served):
            await self._set_aside(snapshot)
            chain.seq, chain.trail, chain.met, chain.missing = 0, ORIGIN, True, None
            return None
        verdict = judged(chain, snapshot.seq, snapshot.trail, kept)
        if verdict == "equal":
            return None
        if verdict == "ahead":
            assert chain.seq is not None, "what is ahead continues a chain that is known"
            stored = dict(snapshot.outbox)
            for seq, _, trail in kept:
                if seq == chain.seq + 1:
                    entries = entries_of("commit", name, stored[seq], entered.epoch)
                    await journal.append_entries(partition, entered, entries)
                    chain.seq, chain.trail = seq, trail
            chain.met, chain.missing = True, None
            return None
        if chain.seq == 0 and not chain.missing:
            raise CorruptState(
                f"the store has commit {snapshot.seq} of {name}, and the journal has nothing of it: its "
                f"topic was cut. Restore the topic, or see: stream-dp journal mend --dataset {name}"
            )
        # A copy from before batches were given up has them, and they have been sent again since.
        has_more = chain.gives_up and len(snapshot.pending) > 0
        return _Patient(
            self,
            snapshot,
            chain,
            is_behind=verdict == "behind" and snapshot.seq > 0 and not has_more,
            token=entered.epoch,
            released=entered.marks.released.get(name, 0),
        )

    async def _set_aside(self, snapshot: Snapshot) -> None:
        """Has a data set be unknown again. Nothing of it has left."""
        rebuild = partial(self.store.rebuild, snapshot.dataset, snapshot.token, seq=0, trail=ORIGIN)
        await persistently(rebuild)
        await forget(self.store, snapshot.dataset, snapshot.token, fuse=self.fuse)
        _log.warning(
            "data set %s is as if it had never been defined: a worker that was followed by another one has "
            "defined it, and nothing of that has left",
            snapshot.dataset,
        )

    async def _keep(self, snapshot: Snapshot) -> None:
        """Keeps the blocks of a data set that an earlier release has left, and notes it in a commit.

        It settles the looks that were announced, of which the checkpoint that follows says nothing.
        """
        name, secret = snapshot.dataset, snapshot.vault.get(PERSON)
        meta = {}
        if secret is not None:
            meta[field_of(PERSONS)] = await self.keeper.keep(name, PERSONS, secret)
        for index in range(len(snapshot.spent) - snapshot.n_blocks, len(snapshot.spent)):
            read = partial(self.store.block, name, snapshot.token, index)
            block = await persistently(read)
            meta[field_of(index + 1)] = await self.keeper.keep(name, index + 1, block)
            self.heartbeat.beat()
        if snapshot.pending:
            found = await self.keeper.keep(name, WAITING, *snapshot.pending)
            meta[field_of(WAITING)] = f"{found} {len(snapshot.pending)}"
        await persistently(partial(self.store.commit, settling(snapshot, meta)))

    async def _first(
        self, journal: Appends, partition: int, entered: Entered, snapshot: Snapshot
    ) -> None:
        """Puts a data set on the journal that an earlier release has left: it had no journal."""
        name = snapshot.dataset
        stored = await persistently(partial(self.store.outcomes, name))
        ledger = await persistently(partial(self.store.ledger, name))
        # Where the rows that wait came from is not known any more. They are kept.
        checkpoint = summed(snapshot, stored, ledger)
        entries = entries_of("checkpoint", name, checkpoint.to_bytes(), entered.epoch)
        await journal.append_entries(partition, entered, entries)
        _log.info("data set %s is on the journal now", name)

    # ------------------------------------------------------------ one reading for all who are ill

    async def _treat(
        self, partition: int, entered: Entered, patients: Mapping[str, _Patient]
    ) -> None:
        starts = [patient.start for patient in patients.values()]
        offset, epoch = min(starts)
        first, _ = await self._log.bounds(partition)
        reader = Reader(epoch if offset >= first else 0)
        end, began, read_to = entered.expected, monotonic(), max(offset, first)
        finder = self.keeper.finder(patients)
        for patient in patients.values():
            await self._guarded(entered, patient, patient.begins(finder))
        async for piece in self._log.read(partition, offset, end):
            for at, entry in piece:
                read_to = at + 1
                found = reader.read(at, entry)
                if found is None or found.name not in patients:
                    continue
                patient = patients[found.name]
                restarts = found.kind == "restart"
                if restarts:
                    entered.problems.pop(patient.name, None)  # of what counts no more
                if patient.name in entered.problems or at < patient.start[0]:
                    continue
                taken = fold(patient.chain, found)
                if taken is not None:
                    step = patient.takes(taken, found.value, restarts=restarts)
                    await self._guarded(entered, patient, step)
            self.heartbeat.beat()
        if read_to < end:  # an end that comes too soon would be healed to, and gone on from
            raise EndsBefore(f"the journal was read to {read_to}, and ends at {end}")
        for patient in patients.values():
            if patient.name not in entered.problems:
                await self._guarded(entered, patient, patient.ends())
            if patient.name not in entered.problems:
                self.healed[patient.name] = patient.commits
                entered.chains[patient.name] = patient.chain
                _log.warning(
                    "data set %s is healed: %d commits came back from the journal in %.1f s",
                    *(patient.name, patient.commits, monotonic() - began),
                )

    async def _guarded(self, entered: Entered, patient: _Patient, step: Awaitable[None]) -> None:
        try:
            await step
        except (StoreUnavailable, Fenced, GoneBack):
            raise  # nothing is wrong with the data set
        except (StoreError, InvalidInput, CorruptState) as error:
            self._stops(entered, patient.name, error)


def _is_late(
    snapshot: Snapshot, kept: Sequence[tuple[int, CommitRecord, bytes]], served: int
) -> bool:
    """Whether a data set that the journal does not know was defined by an owner that another one followed.

    The later one had healed the partition, and did not know of it. It may have rejected what was for it. The
    former one could still commit: a name that is not known has no owner in the store, nor has anything in one
    that has gone back.
    """
    begins = bool(kept) and kept[0][1].prev == ORIGIN and kept[0][0] == 1
    return begins and int(snapshot.meta.get(DEFINED_IN, served)) < served


class _Patient:
    """A data set that is brought up to its chain.

    Attributes:
        name: Its name.
        chain: Its chain, read again from where it begins.
        start: The offset and the epoch from which on it is read.
        commits: The number of commits that came back.
    """

    def __init__(
        self,
        healing: Healing,
        snapshot: Snapshot,
        chain: Chain,
        *,
        is_behind: bool,
        token: int,
        released: int,
    ) -> None:
        self.name = snapshot.dataset
        self.commits = 0
        # Where this begins, and the looks that are announced there. A checkpoint leaves none behind.
        self._began = (snapshot.seq, frozenset(snapshot.intents)) if is_behind else (0, _NO_LOOKS)
        self._healing = healing
        self._store = healing.store
        self._token = token
        self._released = released
        self._is_behind = is_behind
        self._has_other = snapshot.seq > 0
        self._lacks_answers = False
        self._secret = snapshot.vault.get(PERSON)
        self._secret_name = snapshot.meta.get(field_of(PERSONS))
        self._runs = [one for one in snapshot.vault if one not in (PERSON, GONE)]
        self._gone = self._noted = Gone()
        self._dropped = False  # whether batches that wait were given up since the last seal
        self._gathered: list[tuple[CommitRecord, bytes, bytes]] = []
        self._reserved: tuple[Digests, Numbers] | None = None
        self._calls = 0  # that have reserved for the next seal
        self._finder: Finder  # from when it begins
        self.knows(chain)
        if is_behind:
            assert chain.missing is not None, "so it was judged"
            self.start = chain.missing
            place = replace(chain.place, note=replace(chain.place.note, offset=self.start[0]))
            self.chain = Chain(place, seq=snapshot.seq, trail=snapshot.trail, met=True)
            self._at(snapshot.seq, snapshot.head, snapshot.trail)
            self._pending = list(snapshot.pending)
            self._gone = self._noted = Gone.from_bytes(snapshot.vault.get(GONE, b""))
            self._define(snapshot.definition)
            self._phases = len(snapshot.spent)
        else:
            self.chain = Chain.cut(Place(0, 0, ORIGIN))
            self._at(0, bytes(32), ORIGIN)
            self._pending = []
            self._phases = 0

    def began_after(self, first: int) -> bool:
        """Whether it is built again from nothing, and its chain is known from the store's place on alone."""
        return (
            not self._is_behind
            and self._known.base is None
            and self._known.place.note.offset > first
        )

    def knows(self, chain: Chain) -> None:
        """Takes what its chain says: where to begin, what is erased, and whether rows still wait."""
        self._known = chain
        self.start = chain.base or (0, 0)
        self._erased = chain.erased
        self._has_seals = chain.seals > 0  # so rows that waited are in a phase by now

    @property
    def _is_retired(self) -> bool:
        """Whether the journal says that all its rows are erased for ever."""
        return self._erased == math.inf

    def _at(self, seq: int, head: bytes, trail: bytes) -> None:
        self._seq, self._head, self._trail = seq, head, trail

    def _define(self, definition: bytes | None) -> None:
        assert definition is not None, "its first commit brings one"
        self._definition = Definition.read(json.loads(definition))
        self._universe, self._mechanism = build(self._definition)

    def is_cut(self) -> Fenced:
        """The error where nothing of it is found any more: owners alone cut the journal."""
        return Fenced(
            f"what the journal had of {self.name} was cut off while it was read, so another worker has taken "
            "over. This worker ends, and the next one reads what is there now"
        )

    async def begins(self, finder: Finder) -> None:
        """Sets another history aside.

        Args:
            finder: Finds what is kept of all who are healed together.
        """
        self._finder = finder
        if not self._is_behind:
            if self._has_other:
                _log.warning(
                    "data set %s: what the store has of it does not lead on to what the journal has, so it "
                    "is set aside; see docs/operations.md, 'A history that was set aside'",
                    self.name,
                )
            rebuild = partial(self._store.rebuild, self.name, self._token, seq=0, trail=ORIGIN)
            await persistently(rebuild)

    async def takes(
        self, taken: CommitRecord | Checkpoint, stored: bytes, *, restarts: bool = False
    ) -> None:
        """Takes the next record of its chain, or a checkpoint. One that restarts it counts for all before."""
        if restarts:
            self._gathered, self._pending, self._phases = [], [], 0
            self._gone = self._noted = Gone()
            self._dropped, self._reserved = False, None
            self._at(0, bytes(32), ORIGIN)
        if isinstance(taken, Checkpoint):
            if self._seq == 0 and not self._gathered and taken.seq > 0:
                await self._restore(taken)
                self._began = taken.seq, _NO_LOOKS
            return
        assert self.chain.trail is not None, "it was just read"
        self._gathered.append((taken, self.chain.trail, stored))
        if taken.definition is not None:
            self._define(taken.definition)
            await self._forget_persons()
            await self._find_secret(taken.meta)
        if taken.sealed is not None or taken.erase:
            await self._apply()

    async def _forget_persons(self) -> None:
        """Erases what persons have used in the history that was set aside: a store keeps it until then."""
        unit = privacy_of(self._definition).unit
        if unit is not None and unit.lifetime:
            await forget(self._store, self.name, self._token, fuse=self._healing.fuse)

    async def _find_secret(self, meta: Mapping[str, str]) -> None:
        """Takes the secret of the digests of persons that a record names.

        What the store has may be of another history, in which another worker has defined the data set. With
        that one, what a person has used so far would be somebody else's.
        """
        name = meta.get(field_of(PERSONS))
        if name and (self._secret is None or name != self._secret_name):
            self._secret = await self._finder.find(self.name, PERSONS, name)
            self._secret_name = name

    async def ends(self) -> None:
        """Applies what is left.

        Raises:
            CorruptState: The journal does not have all of it.
            Fenced: It has nothing of it any more.
        """
        await self._apply()
        if self.chain.trail is None:
            raise self.is_cut()
        if (self._seq, self._trail) != (self.chain.seq, self.chain.trail):
            unit = self._definition.privacy.unit
            way = f", or see: stream-dp dataset close {self.name}"
            if unit is not None and unit.lifetime:
                way = f". {FOR_LIFE}"
            raise CorruptState(
                f"the journal does not have all commits of {self.name}: it begins after the first one, and "
                f"has no checkpoint. Restore the newest copy of Redis{way}"
            )
        if self._lacks_answers:
            raise CorruptState(
                f"the journal does not have all answers of {self.name} that are kept: it was cut where it "
                f"was still needed. Restore the topic, or see: stream-dp journal mend --dataset {self.name}"
            )
        unit = self._definition.privacy.unit
        if unit is not None and self._secret is None and not self._is_retired:
            raise CorruptState(f"{self.name}: {_UNREADABLE}")

    async def _apply(self) -> None:
        """Applies what was gathered, with the rows of all of it that are somewhere."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        said = [gone for record, *_ in gathered for gone in given_up(record.transcript)]
        self._dropped = self._dropped or any(gone.batches for gone in said)
        block = await self._block(gathered[-1][0])
        batches = [one for record, *_ in gathered for one in record.accepted]
        rows = await self._rows_of(batches) if block is None and not self._is_retired else {}
        if gathered[-1][0].sealed is not None and block is None and len(rows) < len(batches):
            block = self._bare_block()
        for record, trail, stored in gathered:
            found = [rows.get((one.topic_partition, one.offset)) for one in record.accepted]
            pending = [] if block is not None else [one for one in found if one is not None]
            seal, self._calls = None, 0
            if record.sealed is not None:
                waiting = [*self._pending, *pending]
                kept = record.meta.get(field_of(self._phases + 1))
                seal = block
                if seal is None:
                    seal = await self._sealed(waiting, record.sealed, kept)
                await self._reserve()
                self._pending, pending, self._dropped = [], [], False
                self._phases += 1
                self._gone = replace(self._gone, batches=0)
                if seal == b"" and self._phases > self._erased:
                    self._gone = Gone(phases=self._phases)
            elif block is None and not self._is_retired:
                lost = len(found) - len(pending)
                self._gone = replace(self._gone, batches=self._gone.batches + lost)
            for given in given_up(record.transcript):
                self._gone = self._gone.beyond(given)
            self._pending += pending
            vault = dict.fromkeys(self._runs, b"") if record.transcript or record.intent else {}
            if vault:
                self._runs = []
            if self._secret is not None and record.seq == 1:
                vault[PERSON] = self._secret
            if self._gone != self._noted:
                vault[GONE] = self._gone.to_bytes()
                self._noted = self._gone
            if record.erase:
                vault, pending, self._pending = {}, [], []
            transition = transition_of(
                replace(record, settles=self._settled(record)),
                trail,
                token=self._token,
                head=self._head,
                outbox=stored if record.seq > self._released else None,
                pending=pending,
                seal=seal,
                reserved=self._calls,
                vault=vault,
                drops_outcomes=self._definition.kept_answers_days is not None,
            )
            await self._commit(transition)

    def _settled(self, record: CommitRecord) -> list[int]:
        """The looks that a record settles, but for those that a checkpoint has dropped.

        Earlier releases wrote checkpoints while looks were announced, and settled these later.
        """
        began, announced = self._began
        return [seq for seq in record.settles if seq > began or seq in announced]

    async def _commit(self, transition: Transition) -> None:
        await persistently(partial(self._store.commit, transition))
        if transition.rotate:
            self._lacks_answers = False
        self._at(transition.seq + 1, transition.new_head, transition.new_trail)
        self.commits += 1
        self._healing.heartbeat.beat()
        self._healing.fuse(CrashPoint.IN_HEALING)

    # ------------------------------------------------------------ rows

    async def _rows_of(self, batches: Sequence[Accepted]) -> dict[tuple[str, int], bytes]:
        """The stored rows of batches, read where they came from. Those that are there no more are left out.

        Where a topic was cut, other records may have their offsets by now, or the empty ones that
        ``stream-dp topics accept-cut`` has filled it with.

        Raises:
            CorruptState: A batch has other rows by now.
        """
        wanted: dict[str, dict[int, Accepted]] = defaultdict(dict)
        for one in batches:
            wanted[one.topic_partition][one.offset] = one
        found: dict[tuple[str, int], bytes] = {}
        for topic_partition, by_offset in wanted.items():
            async for record in self._healing.rows.records(topic_partition, sorted(by_offset)):
                one = by_offset[record.offset]
                request = ingested(record, self._healing.partitions)
                if request is None or request.dataset != self.name:
                    continue
                if request.batch.name != one.batch_id:
                    continue
                rows = ingesting.rows_of(
                    request.batch, self._universe, self._persons(one.batch_id), self._in_order
                )
                if rows.n_rows != one.rows:
                    raise CorruptState(f"{self.name}: batch {one.batch_id} has other rows by now")
                found[topic_partition, record.offset] = rows.to_bytes()
                self._healing.heartbeat.beat()
        return found

    @property
    def _in_order(self) -> frozenset[int]:
        return self._mechanism.in_order

    def _persons(self, batch_id: str) -> Persons | None:
        unit = self._definition.privacy.unit
        if unit is None:
            return None
        if self._secret is None:
            raise CorruptState(f"{self.name}: {_UNREADABLE}")
        secret = PersonSecret.from_bytes(self._secret, self.name, self._healing.key_file)
        return Persons(unit.key, secret.value, batch_id)

    async def _block(self, record: CommitRecord) -> bytes | None:
        """The block that a commit has sealed, without its rows. None if it sealed none, or is not kept.

        Where later commits erase the rows, nothing stands in their place.
        """
        phase = self._phases + 1
        if record.sealed is None:
            return None
        return await self._kept(phase, record.meta.get(field_of(phase)))

    async def _kept(self, phase: int, name: str | None) -> bytes | None:
        if self._is_retired:
            return b""  # nothing is kept of it, nor of what its persons have used
        block: bytes | None = b""
        if phase > self._erased:
            block = None if name is None else await self._finder.find_block(self.name, phase, name)
        unit = privacy_of(self._definition).unit
        if unit is not None and unit.lifetime:
            # Those who added rows have used units, which are reserved again before the phase is sealed.
            reserved = None if name is None else await self._finder.find(self.name, phase, name, 1)
            if reserved is None:
                return None
            self._reserved = reserved_from_bytes(reserved)
        return block

    def _bare_block(self) -> bytes:
        """What stands in place of the next phase's block, whose rows are nowhere: nothing.

        Raises:
            CorruptState: Nor is it known what its persons have used for life.
        """
        unit = privacy_of(self._definition).unit
        if unit is not None and unit.lifetime and self._reserved is None:
            raise CorruptState(
                f"{self.name}: what the persons of phase {self._phases + 1} have used for life is on no "
                "topic any more, and neither are their rows"
            )
        return b""

    async def _kept_waiting(self, kept: str) -> list[bytes | None]:
        """The rows that waited when an earlier release left them. None for those that are kept no more."""
        name, _, count = kept.partition(" ")
        return [
            await self._finder.find(self.name, WAITING, name, number)
            for number in range(int(count or 0))
        ]

    async def _reserve(self) -> None:
        """Reserves again what the persons of the next phase have used, if that is for life."""
        if self._reserved is not None:
            (digests, rows), self._reserved = self._reserved, None
            self._calls = calls_for(len(digests))
            await reserve_again(
                self._store,
                self.name,
                self._token,
                phase=self._phases + 1,
                digests=digests,
                rows=rows,
            )

    async def _sealed(self, waiting: Sequence[bytes], n_rows: int, kept: str | None) -> bytes:
        """What the store is to have of the block of a phase, sealed again from its rows.

        Args:
            waiting: The rows.
            n_rows: The number of rows that it had.
            kept: The name under which it was kept.
        """
        found = [Rows.from_bytes(self._universe, stored) for stored in waiting]
        there = sum(rows.n_rows for rows in found)
        if there < n_rows or (there > n_rows and self._dropped):
            # A worker that died here may have found fewer, and batches that were given up may be there again.
            return self._bare_block()
        if there > n_rows:
            raise CorruptState(f"{self.name}: a phase of {n_rows} rows has {there} by now")
        rows = Rows.concat(found)
        marks, reserved = await counted(
            self._store,
            self.name,
            self._token,
            phase=self._phases + 1,
            rows=rows,
            unit=privacy_of(self._definition).unit,
            fuse=self._healing.fuse,
        )
        if reserved is not None:
            assert rows.whose is not None, "something was reserved"
            self._calls = calls_for(len(rows.whose.digests))
        block = Block.seal(self._universe, rows, self._in_order, counted=marks).to_bytes()
        return await self._finder.keep_again(self.name, self._phases + 1, kept, block)

    # ------------------------------------------------------------ checkpoints

    async def _restore(self, checkpoint: Checkpoint) -> None:
        """Begins from a checkpoint: the phases one after the other, then all the rest, in steps.

        Every phase was a commit at least, so there are numbers for those in between. Their trail is one that
        no history has: if this is cut short, the next worker begins again.
        """
        self._define(checkpoint.definition)
        self._erased = math.inf if checkpoint.retired else max(self._erased, checkpoint.erased)
        phases = len(checkpoint.spent)
        rotates = bool(checkpoint.previous or checkpoint.previous_batches)
        first = checkpoint.seq - max(phases, rotates) - 1
        unfinished = token_bytes(TRAIL_BYTES)
        if first < 0:
            raise CorruptState(f"{self.name}: a checkpoint has more phases than commits")
        previous = _in_steps(_outcomes(checkpoint.previous, checkpoint.previous_batches), first)
        first -= len(previous) - 1
        taken = _in_steps([(one, _ID_BYTES) for one in sorted(checkpoint.taken)], first)
        first -= len(taken) - 1
        outcomes = _in_steps(_outcomes(checkpoint.answers, checkpoint.batches), first)
        first -= len(outcomes) - 1
        rebuild = partial(
            self._store.rebuild,
            self.name,
            self._token,
            seq=first,
            trail=unfinished,
            head=checkpoint.before,
        )
        await persistently(rebuild)
        self._at(first, checkpoint.before, unfinished)
        await self._forget_persons()
        await self._find_secret(checkpoint.meta)
        begin = Transition(
            dataset=self.name,
            token=self._token,
            seq=first,
            head=self._head,
            new_head=self._head,
            trail=unfinished,
            new_trail=unfinished,
            definition=checkpoint.definition,
            vault={} if self._secret is None else {PERSON: self._secret},
            **_stored(previous[0]),  # which are rotated in the end
        )
        # The first phase brings the definition, or the last commit does where there is none.
        for phase, (rho, delta) in enumerate(checkpoint.spent, start=1):
            block = await self._kept(phase, checkpoint.meta.get(field_of(phase)))
            if block is None:
                block, self._gone = self._bare_block(), Gone(phase)
            self._calls = 0
            await self._reserve()
            sealed = replace(
                begin,
                seq=self._seq,
                seal=block,
                reserved=self._calls,
                charges=[Charge(phase - 1, rho, delta)],
            )
            await self._commit(sealed)
            begin = replace(begin, definition=None, vault={}, answers={}, batches={})
            self._phases += 1
        if begin.answers or begin.batches:
            await self._commit(replace(begin, seq=self._seq))
            begin = replace(begin, definition=None, vault={}, answers={}, batches={})
        steps: list[dict[str, Any]] = [
            *map(_stored, previous[1:]),
            *({"taken": ids} for ids in taken[:-1]),
            *map(_stored, outcomes[:-1]),
        ]
        if len(outcomes) > 1:
            steps[1 - len(outcomes)]["rotate"], rotates = rotates, False
        for step in steps:
            await self._commit(replace(begin, seq=self._seq, **step))
            begin = replace(begin, definition=None, vault={})
        waiting: list[bytes | None] = []
        if not self._has_seals and not checkpoint.retired:
            rows = await self._rows_of(checkpoint.accepted)
            waiting += await self._kept_waiting(checkpoint.meta.get(field_of(WAITING), ""))
            waiting += (rows.get((one.topic_partition, one.offset)) for one in checkpoint.accepted)
        self._pending = [one for one in waiting if one is not None]
        if not checkpoint.retired:
            self._gone = replace(self._gone, batches=len(waiting) - len(self._pending))
            self._noted = self._gone
            begin = replace(begin, vault={**begin.vault, GONE: self._gone.to_bytes()})
        await self._commit(
            replace(
                begin,
                seq=self._seq,
                new_head=reduce(extend, checkpoint.ledger, self._head),
                new_trail=checkpoint.trail,
                meta=checkpoint.meta,
                cursor=checkpoint.cursor,
                rotate=rotates,
                **_stored(outcomes[-1]),
                taken=taken[-1],
                pending=[] if checkpoint.retired else self._pending,
                erased=0 if checkpoint.retired else checkpoint.erased,
                transcript=checkpoint.transcript,
                verified=checkpoint.verified,
                ledger=checkpoint.ledger,
                erase=checkpoint.retired,
            )
        )
        self._lacks_answers = checkpoint.partial


def _outcomes(
    answers: Mapping[str, bytes], batches: Mapping[str, bytes]
) -> list[tuple[tuple[str, str, bytes], int]]:
    """Outcomes of requests and of batches as what ``_in_steps`` cuts and ``_stored`` puts together again."""
    return [
        ((kind, name, content), len(name) + len(content) + _MORE_BYTES)
        for kind, some in (("answers", answers), ("batches", batches))
        for name, content in some.items()
    ]


def _stored(some: Sequence[tuple[str, str, bytes]]) -> dict[str, Any]:
    """What a transition stores of outcomes."""
    found: dict[str, Any] = {"answers": {}, "batches": {}}
    for kind, name, content in some:
        found[kind][name] = content
    return found


def _in_steps(sized: Sequence[tuple[T, int]], most: int) -> list[list[T]]:
    """Cuts a list into one or more steps, so that none is too large for the store, or holds it up for long.

    Args:
        sized: The items, each with the bytes that it counts with.
        most: The most steps before the last one. There was a commit for each few of the items, so that it is
            enough.
    """
    total = sum(size for _, size in sized)
    n_steps = min(total // _STEP_BYTES, most) + 1
    steps: list[list[T]] = [[] for _ in range(n_steps)]
    before = 0
    for item, size in sized:
        steps[before * n_steps // total].append(item)
        before += size
    return steps
