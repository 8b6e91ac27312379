"""Goes on after the journal was cut: records of it are gone that had been acknowledged.

A repair takes the partition over with an epoch that is larger than all others by far, and judges each data
set of it. Where the store has everything that was seen, the data set begins again on the journal with what
the store has. Where it has not, the data set is stopped, unless the operator has it closed, see ``closing``.

The order of steps makes that safe. First, entries that only take up room fill the partition up to beyond
every offset that it ever had. So a former owner never finds its next entry where it expects it. A reader who
meets them knows that a repair was begun, and serves nothing before it reads that one is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from secrets import token_bytes
from typing import Final, Literal, Protocol

from stream_dp.errors import CorruptState, RowsGone
from stream_dp.messages import Definition, Event
from stream_dp.pipeline import closing
from stream_dp.pipeline.chains import Chain, Found, entries_of, fill, judged, repair_entries
from stream_dp.pipeline.dataset import PERSON, settling
from stream_dp.pipeline.decoding import partition_in, partition_of
from stream_dp.pipeline.fuse import Fuse, unarmed
from stream_dp.pipeline.healing import Healing, records_of
from stream_dp.pipeline.journal import (
    Entered,
    Journal,
    Marks,
    Reading,
    check_topics,
    committed,
    fold,
)
from stream_dp.pipeline.keeping import PERSONS, WAITING, Keeper, field_of
from stream_dp.pipeline.logs import Entry, Kept, Log, Rows
from stream_dp.pipeline.lost_rows import GONE, Gone
from stream_dp.pipeline.needs import JOURNAL
from stream_dp.pipeline.records import Record
from stream_dp.pipeline.releasing import queued
from stream_dp.pipeline.retrying import patiently, persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.pipeline.witnesses import Said, Witnesses, digest
from stream_dp.state import ledger as ledgers
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.journal import NONCE_BYTES, Checkpoint, CommitRecord, noting, summed
from stream_dp.state.local import LocalStore
from stream_dp.state.looking import LookedAt
from stream_dp.state.store import ORIGIN, JournalStore, Note, Place, Snapshot, Store

__all__ = ["BEYOND", "Judged", "Repairing", "Verdict", "cut_partitions"]

_log = logging.getLogger(__name__)

BEYOND: Final = 1 << 16
"""Entries by which a partition is filled beyond the last offset that anyone has noted: more than a worker has
under way at once."""

_AT_ONCE: Final = 1_000
_FILLED_AT_ONCE: Final = 16_000
_FILLING: Final = "filling the journal"

Verdict = Literal["whole", "heals", "store", "lost"]
"""What becomes of a data set: nothing; a worker heals it from the journal; it begins again with what the
store has; or what was seen of it is neither in the store nor on the journal."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a data set.

    Attributes:
        dataset: Its name.
        verdict: What becomes of it.
        stored: The number of commits that the store has.
        journaled: The number of commits that the journal has without a gap.
        seen: The largest number of a commit that a record on an output topic names.
        why: Why it is lost; empty if it is not.
        for_life: Whether it protects persons for life, so that it cannot be closed.
        unkept: The number of its phases of which nothing but the store knows what their persons have used for
            life. If there are any, it cannot be healed from the journal when the store is lost.
    """

    dataset: str
    verdict: Verdict
    stored: int
    journaled: int
    seen: int
    why: str = ""
    unkept: int = 0
    for_life: bool = False


class RepairedStore(Store, LookedAt, Protocol):
    """A store that can be looked at as well, without taking anything over."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a partition: from its beginning on, and from what the store has noted on."""

    reading: Reading
    noted: Mapping[str, Chain]
    end: int


@dataclass(frozen=True, kw_only=True)
class Repairing:
    """Repairs one partition of the journal. No worker of the deployment should run; one that does is fenced.

    Attributes:
        partition: The partition.
        log: The journal.
        rows: The batches of rows.
        kept: What is kept of blocks.
        store: The working copy.
        identity: The name of the journal, which changes if it is deleted and created again.
        facts: What an epoch says of the deployment.
        key_file: What the key file of persons holds; None without one.
        outputs: The output topics that are witnesses, by role.
        inputs: The topics ``batches`` and ``queries``, by role.
        names: The names of these topics, by role.
        closes: The data sets that are closed if they are lost.
        whole: Whether they are closed also if nothing shows that something of them is lost.
        progress: Called now and then with a role, and how many records were read of how many.
        witnesses: What was read of the output topics, once it was.
    """

    partition: int
    log: Log
    rows: Rows
    kept: Kept
    store: RepairedStore
    identity: str
    facts: Mapping[str, object]
    key_file: bytes | None
    outputs: Mapping[str, Log]
    inputs: Mapping[str, Log]
    names: Mapping[str, str]
    closes: frozenset[str] = frozenset()
    whole: bool = False
    fuse: Fuse = unarmed
    progress: Callable[[str, int, int], None] = lambda *_: None
    witnesses: list[Witnesses] = field(default_factory=list, repr=False)

    @property
    def _key(self) -> str:
        return f"{self.identity}:{self.partition}"

    # ------------------------------------------------------------ looking

    async def is_cut(self) -> bool:
        """Returns whether the partition was cut, or a repair is not finished.

        It was cut if the store or an output topic shows what the journal lacks.
        """
        read = await self._read()
        cut_at, _ = await self._cut(read)
        return cut_at is not None or any(
            one.verdict == "lost" and one.dataset not in read.reading.stopped
            for one, _ in await self._judge(read, cut_at)
        )

    async def judged(self) -> list[Judged]:
        """Says what was found of each data set of the partition. Changes nothing.

        Raises:
            StoreError: The store does not answer, or refuses.
            ServerUnavailable: No broker answers.
        """
        reading = await self._read()
        cut_at, _ = await self._cut(reading)
        return [one for one, _ in await self._judge(reading, cut_at)]

    async def _read(self, reaches: int = 0) -> _Read:
        """Reads all of it: up to every offset that was acknowledged, unless it was cut before that."""
        places = await self._places()
        listed = await persistently(partial(self.store.listed, self._key))
        noted_at = [listed.offset, *(place.note.offset for place in places.values())]
        first, end = await self._bounds(reaches=max(reaches, *noted_at))
        reading = Reading(self.log, self.partition, Note(first), {}, heartbeat=Heartbeat())
        noted = {name: Chain.noted(place) for name, place in places.items()}
        async for found in reading.to(end):
            if found.kind in ("commit", "checkpoint", "restart") and found.name in noted:
                fold(noted[found.name], found)
            self.progress("journal", found.offset + 1 - first, end - first)
        return _Read(reading, noted, end)

    async def _cut(self, read: _Read) -> tuple[int | None, int]:
        """Where the partition was cut, None if it was not; and the offset up to which it was known."""
        listed = await persistently(partial(self.store.listed, self._key))
        furthest = max(listed.offset, *(one.place.note.offset for one in read.noted.values()), 0)
        reader = read.reading.reader
        if reader.repairing:
            return (read.end if reader.filled is None else reader.filled), furthest
        return (read.end if read.end < furthest else None), furthest

    async def _judge(self, read: _Read, cut_at: int | None) -> list[tuple[Judged, Chain | None]]:
        """What was found of each data set, and what the journal says of it."""
        if not self.witnesses:
            keeps = bool(self.closes)
            self.witnesses.append(
                Witnesses(
                    self.outputs,
                    self.log.partitions,
                    self.partition,
                    keeps=keeps,
                    progress=self.progress,
                )
            )
        (witnesses,) = self.witnesses
        await witnesses.read()
        chains, stopped = read.reading.chains, read.reading.stopped
        found: list[tuple[Judged, Chain | None]] = []
        for name in sorted({*read.noted, *chains, *stopped, *witnesses.said}):
            place = read.noted[name].place if name in read.noted else Place(0, 0, ORIGIN)
            chain = chains.get(name)
            said = witnesses.said.get(name) or Said()
            on_journal = chain is not None and (chain.seq or chain.gap)
            # One that is stopped stays so, though the outputs that have shown more may have expired by now.
            if place.seq or on_journal or said.commit or said.entries or name in stopped:
                one = await self._judge_one(name, place, read, cut_at, said)
                found.append((one, chain))
        return found

    async def _judge_one(
        self, name: str, place: Place, read: _Read, cut_at: int | None, said: Said
    ) -> Judged:
        chain, noted = read.reading.chains.get(name), read.noted.get(name)
        journaled = 0 if chain is None else chain.seq or 0

        def judged_as(verdict: Verdict, why: str = "") -> Judged:
            closes = verdict == "lost" or self.whole
            for_life = closes and closing.protects_for_life(said.ledger)
            return Judged(name, verdict, place.seq, journaled, said.commit, why, for_life=for_life)

        if said.forked is not None:
            return judged_as(
                "lost",
                f"topic ledger has two entries {said.forked:,}: the journal and Redis had gone back "
                "together, and budget was spent again",
            )
        verdict: Verdict
        from_note = None
        is_trusted = noted is not None and name not in read.reading.stopped and not noted.gap
        # What lies before the cut and was noted there is what a worker goes on from. Where nothing was noted
        # and the journal has nothing, as on a new topic, there is nothing to go on from.
        is_known = noted is not None and noted.seq is not None
        is_before = cut_at is None or place.note.offset <= cut_at
        if noted is not None and is_trusted and is_known and is_before:
            from_note = await self._from_note(name, noted)
        if chain is not None and (chain.seq, chain.trail) == (place.seq, place.trail):
            verdict, known = "whole", place.seq
        elif from_note is not None:
            verdict, known = from_note
        elif place.seq > journaled:
            verdict, known = "store", place.seq
        elif chain is None or chain.gap or (name in read.reading.stopped and not journaled):
            return judged_as("lost", "the journal lacks commits of it, and so does the store")
        else:
            verdict, known = "heals", journaled
        if said.commit > known:
            return judged_as(
                "lost",
                f"topic {said.topic} shows its commit {said.commit:,}, and the store and the journal have "
                f"{known:,} commits of it",
            )
        if verdict != "heals" and (why := await self._contradicted(name, said)):
            return judged_as("lost", why)
        found = judged_as(verdict)
        return replace(found, unkept=await self._unkept(name)) if verdict == "store" else found

    async def _unkept(self, name: str) -> int:
        """The number of phases whose reservations are not kept, of a data set that protects persons for life.

        The store says what a person has used in all, if it is asked for that person. It cannot say in which
        phases, nor who they are, so a reservation that is not kept cannot be made again.
        """
        seen = await persistently(partial(self.store.look, name))
        if seen is None or seen.snapshot.definition is None:
            return 0
        unit = Definition.read(json.loads(seen.snapshot.definition)).privacy.unit
        if unit is None or not unit.lifetime or seen.snapshot.meta.get("retired") == "1":
            return 0
        there = await self._there(name)
        phases = range(1, len(seen.snapshot.spent) + 1)
        return sum(_key(seen.snapshot, phase, 1) not in there for phase in phases)

    async def _there(self, name: str) -> set[str]:
        """The keys under which something is kept of a data set."""
        places = await self.kept.places([name], self.partition)
        return {key.decode(errors="replace") for key in places}

    async def _from_note(self, name: str, noted: Chain) -> tuple[Verdict, int] | None:
        """What a worker finds that reads on from the store's note, and how many commits there are then."""
        seen = await persistently(partial(self.store.look, name))
        if seen is None:
            return None
        snapshot = seen.snapshot
        verdict = judged(noted, snapshot.seq, snapshot.trail, records_of(snapshot))
        if verdict in ("equal", "ahead"):
            return "store", snapshot.seq  # the journal lacks what was before
        return "heals", noted.seq or 0

    async def _contradicted(self, name: str, said: Said) -> str:
        """Why the store has another history than what was seen; empty if it has not."""
        entries = said.ledger
        if entries and (why := await self._other_ledger(name, entries)):
            return why
        names = list(said.answers)
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            answers = await persistently(partial(self.store.answers, {name: some}))
            for (_, at), answer in answers.items():
                mine = closing.answer_in(answer)
                if said.answers[at] not in (mine, digest(mine)):
                    return "the store has another answer under an id than the topic"
        return ""

    async def _other_ledger(self, name: str, entries: Sequence[bytes]) -> str:
        """Why the store has another ledger than the topic; empty if it has not, as far as both go.

        The store has the last entries alone. The first of them says what the entry before it leads to.
        """
        last, stored = len(entries) - 1, await persistently(partial(self.store.ledger, name))
        first = int(ledgers.read(stored[0])["seq"]) if stored else 0
        if last >= first + len(stored):
            return f"the store lacks entry {last:,} of the ledger on the topic"
        if last >= first:
            same = stored[last - first] == entries[last]
        else:  # where the topic ends before the entries of the store, nothing can be compared
            head = reduce(ledgers.extend, entries, ledgers.GENESIS)
            same = last < first - 1 or ledgers.read(stored[0])["prev"] == head.hex()
        return (
            "" if same else f"the store has a different entry {last:,} of the ledger on the topic"
        )

    # ------------------------------------------------------------ repairing

    async def repair(self) -> list[Judged]:
        """Repairs the partition; returns what was found of each data set. To repeat it is harmless.

        Those that are lost are stopped, or closed if that was asked for.

        Raises:
            StoreError: The store does not answer, or refuses.
            InvalidInput: A data set cannot be closed. Nothing of the partition is served before a repair of
                it is finished.
            OtherTopics: The inputs are not those with which the journal was written.
        """
        read = await self._read()
        check_topics(self.facts, read.reading.facts)
        cut_at, furthest = await self._cut(read)
        judged_ones = await self._judge(read, cut_at)
        begins_again = any(one.verdict in ("store", "lost") for one, _ in judged_ones)
        if cut_at is not None or begins_again or (self.closes and self.whole):
            await self._fill(max(furthest, read.end if cut_at is None else cut_at) + BEYOND)
        found: list[Judged] = []

        async def heal(journal: Journal, partition: int, entered: Entered) -> None:
            del partition
            found.extend(await self._repaired(journal, entered))

        journal = Journal(
            self.log,
            self.store,
            identity=self.identity,
            facts=self.facts,
            is_held=lambda _: True,
            heal=heal,
            ledger=None,
            fuse=self.fuse,
            heartbeat=Heartbeat(),
            repairs=True,
        )
        await journal.entered(self.partition)
        return found

    async def _fill(self, wanted: int) -> None:
        """Fills the partition up to an offset beyond every one that it had."""
        _, end = await self._bounds()
        while end < wanted:
            some = fill(min(_FILLED_AT_ONCE, wanted - end))
            first = await patiently(partial(self.log.append, self.partition, some), _FILLING)
            end = (await self._bounds())[1] if first is None else first + len(some)

    async def _repaired(self, journal: Journal, entered: Entered) -> list[Judged]:
        await self._say(journal, entered, done=False, stopped=entered.problems)
        read = await self._read(entered.expected)
        cut_at, _ = await self._cut(read)
        judged_ones = await self._judge(read, cut_at)
        stopped = {}
        for one, chain in judged_ones:
            if one.dataset in self.closes and (self.whole or one.verdict == "lost"):
                await self._close(journal, entered, read, one, chain)
            elif one.verdict == "store":
                await self._begin_again(journal, entered, one.dataset)
            elif one.verdict == "lost":
                stopped[one.dataset] = _next_step(one)
        await self._mark(journal, entered)
        await self._say(journal, entered, done=True, stopped=stopped)
        for name in stopped:  # so that its name is not free
            acquire = partial(self.store.acquire, name, token=entered.epoch, new=True)
            await persistently(acquire)
        entered.problems = stopped
        return [one for one, _ in judged_ones]

    async def _mark(self, journal: Journal, entered: Entered) -> None:
        """Puts what is done with on the journal: what it said of that may be among what is lost.

        What is gone at its beginning is judged by now as well.
        """
        stored = await persistently(self.store.watermarks)
        marks = Marks({at: to for at, to in stored.items() if partition_in(at) == self.partition})
        first, _ = await self._bounds()
        entries = entries_of("mark", "", marks.to_bytes({"begins": first}), entered.epoch)
        await journal.append_entries(self.partition, entered, entries)

    async def _say(
        self, journal: Journal, entered: Entered, *, done: bool, stopped: Mapping[str, str]
    ) -> None:
        entries = repair_entries(entered.epoch, done=done, stopped=stopped)
        await journal.append_entries(self.partition, entered, entries)

    async def _begin_again(self, journal: Journal, entered: Entered, name: str) -> None:
        """Has the journal begin a data set again with what the store has of it."""
        acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
        snapshot = await persistently(acquire)
        meta, gone = await self._keep(snapshot)
        if meta or gone or snapshot.intents:
            commit = settling(snapshot, meta)
            if gone:  # the next worker gives them up
                commit = replace(commit, vault={GONE: gone.to_bytes()})
            await persistently(partial(self.store.commit, commit))
            snapshot = await persistently(acquire)
        checkpoint = summed(
            snapshot,
            await persistently(partial(self.store.outcomes, name)),
            await persistently(partial(self.store.ledger, name)),
        )
        # A checkpoint says nothing of what has not left. A commit that follows it does, and tells clients.
        released = entered.marks.released.get(name, 0)
        outbox = [one for _, some, _ in queued(snapshot.outbox, released) for one in some]
        if not snapshot.meta.get("moved"):
            outbox.append(OutboxRecord("events", name.encode(), (), _repaired(name).to_bytes()))
        follows = None
        if outbox:
            follows = await committed(self.store, noting(snapshot, {}, outbox=outbox))
        await self._restart(journal, entered, checkpoint, follows)

    async def _keep(self, snapshot: Snapshot) -> tuple[dict[str, str], Gone]:
        """Keeps what the topic of blocks lacks of a data set.

        Returns:
            The facts that name it, and the rows that the store lacks too and has no note of.
        """
        name, meta = snapshot.dataset, dict[str, str]()
        if snapshot.meta.get("retired") == "1":
            return meta, Gone()
        gone = noted = Gone.from_bytes(snapshot.vault.get(GONE, b""))
        keeper, there = Keeper(self.kept, self.log.partitions), await self._there(name)
        finder = keeper.finder([name])
        secret = snapshot.vault.get(PERSON)
        if secret is not None and _key(snapshot, PERSONS) not in there:
            meta[field_of(PERSONS)] = await keeper.keep(name, PERSONS, secret)
        for index in range(len(snapshot.spent) - snapshot.n_blocks, len(snapshot.spent)):
            if _key(snapshot, index + 1) not in there:
                read = partial(self.store.block, name, snapshot.token, index)
                stored, known = await persistently(read), snapshot.meta.get(field_of(index + 1))
                with contextlib.suppress(
                    RowsGone
                ):  # then the next look finds that, and gives them up
                    block = await keeper.block(name, index + 1, known, stored)
                    if block:
                        reserved = await finder.find(name, index + 1, known, 1) if known else None
                        values = [block] if reserved is None else [block, reserved]
                        meta[field_of(index + 1)] = await keeper.keep(name, index + 1, *values)
                    else:  # healing has put it in place of rows that are lost, or were due to be erased
                        gone = replace(gone, phases=max(gone.phases, index + 1))
        if snapshot.pending or gone.batches:  # where they came from is not known any more
            found = await keeper.keep(name, WAITING, *snapshot.pending)
            # Those that are lost count as well, so that a healing notes again that they are.
            meta[field_of(WAITING)] = f"{found} {len(snapshot.pending) + gone.batches}"
        elif snapshot.meta.get(field_of(WAITING)):
            meta[field_of(WAITING)] = ""
        if snapshot.meta.get(JOURNAL):
            meta[JOURNAL] = ""  # its offsets are those of checkpoints before the cut
        return meta, Gone() if gone == noted else gone

    async def _restart(
        self, journal: Journal, entered: Entered, checkpoint: Checkpoint, follows: bytes | None
    ) -> None:
        """Has the journal begin a data set again: with a checkpoint, and with a commit if one follows."""
        name, epoch = checkpoint.dataset, entered.epoch
        entries = entries_of("restart", name, checkpoint.to_bytes(), epoch)
        at = Found("restart", name, b"", entered.expected, epoch)
        if follows is not None:
            entries += entries_of("commit", name, follows, epoch)
        await journal.append_entries(self.partition, entered, entries)
        places = await self._places()
        chain = Chain.noted(replace(places.get(name, Place(0, 0, ORIGIN)), note=Note()))
        chain.restart(checkpoint, at)
        if follows is not None:
            fold(chain, Found("commit", name, follows, at.offset + 1, epoch))
        entered.chains[name] = chain

    # ------------------------------------------------------------ closing

    async def _close(
        self, journal: Journal, entered: Entered, read: _Read, one: Judged, chain: Chain | None
    ) -> None:
        """Has the journal begin a data set again with what is known of it, and all rows written off."""
        name = one.dataset
        acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
        snapshot = await persistently(acquire)
        (witnesses,) = self.witnesses
        said = witnesses.said.get(name) or Said()
        bases = []
        if snapshot.definition is not None:
            stored = await persistently(partial(self.store.outcomes, name))
            entries = await persistently(partial(self.store.ledger, name))
            bases.append(summed(snapshot, stored, entries))
        if chain is not None and chain.seq:
            bases += await self._on_journal(name, chain, read, entered)
        base, ledger = closing.chosen(name, bases, said)
        inputs = await self._inputs(name, base)
        if inputs.unread:
            _log.warning(
                "%d records of the input topics of %s are gone that may have counted. A batch among them "
                "that no event names would count again if it is sent again, and so would what a source has "
                "sent with them, in other pieces",
                *(inputs.unread, name),
            )
        closed = closing.closed(
            name,
            base,
            said,
            ledger,
            inputs=inputs,
            seq=1 + max(one.stored, one.journaled, one.seen),
            waiting=len(snapshot.pending),
            secret=await self._secret(snapshot, base),
        )
        record = CommitRecord(
            dataset=name,
            seq=closed.checkpoint.seq + 1,
            prev=closed.checkpoint.trail,
            nonce=token_bytes(NONCE_BYTES),
            outbox=closed.outbox,
        )
        follows, _ = record.to_bytes()
        await self._restart(journal, entered, closed.checkpoint, follows)
        _log.warning("data set %s is closed: its rows up to now are written off", name)

    async def _on_journal(
        self, name: str, chain: Chain, read: _Read, entered: Entered
    ) -> list[Checkpoint]:
        """What is left of a data set on the journal, without its rows. Nothing if that cannot be built."""
        scratch = LocalStore()
        healing = Healing(
            self.log,
            _NoRows(),
            Keeper(self.kept, self.log.partitions),
            scratch,
            partitions=self.log.partitions,
            key_file=self.key_file,
            fuse=unarmed,
            heartbeat=Heartbeat(),
        )
        place = Place(0, 0, ORIGIN)
        alone = replace(chain, place=place, met=False, gap=False, erased=closing.NO_ROWS)
        there = Entered(max(1, entered.epoch), read.end, {name: alone}, read.reading.marks)
        await healing(_Nowhere(), self.partition, there)
        if name in there.problems:
            _log.warning("what the journal has of %s is left out: %s", name, there.problems[name])
            return []
        snapshot = await scratch.acquire(name)
        return [summed(snapshot, await scratch.outcomes(name), await scratch.ledger(name))]

    async def _inputs(self, name: str, base: Checkpoint | None) -> closing.Inputs:
        """What is on the input topics of a data set up to now: it is done with."""
        inputs = closing.Inputs(dict(base.cursor) if base is not None else {})
        for role, log in self.inputs.items():
            partition = partition_of(name.encode(), log.partitions)
            place = f"{self.names[role]}:{partition}"
            bounds = partial(log.bounds, partition, reaches=inputs.cursor.get(place, 0))
            first, end = await patiently(bounds, f"reading {role}")
            inputs.passed(place, first, end)
            if role != "batches":
                continue
            async for piece in log.read(partition, first, end):
                for offset, entry in piece:
                    if entry.key == name.encode():
                        inputs.batch(self.names[role], partition, offset, entry, log.partitions)
                self.progress(role, piece[-1][0] + 1 - first, end - first)
        return inputs

    async def _secret(self, snapshot: Snapshot, base: Checkpoint | None) -> str:
        """The name under which the secret of the digests of persons is kept; empty if there is none."""
        if base is not None and (named := base.meta.get(field_of(PERSONS))):
            return named
        name = snapshot.dataset
        if (secret := snapshot.vault.get(PERSON)) is not None:
            return await Keeper(self.kept, self.log.partitions).keep(name, PERSONS, secret)
        prefix = f"{name}/{PERSONS}/"
        for key in await self.kept.places([name], self.partition):
            if key.startswith(prefix.encode()):
                return key.decode(errors="replace").removeprefix(prefix).partition("/")[0]
        return ""

    # ------------------------------------------------------------ reading

    async def _bounds(self, *, reaches: int = 0) -> tuple[int, int]:
        bounds = partial(self.log.bounds, self.partition, reaches=reaches)
        return await patiently(bounds, "reading the journal")

    async def _places(self) -> dict[str, Place]:
        places = await persistently(partial(self.store.places, lambda _: self._key))
        return {
            name: place
            for name, place in places.items()
            if partition_of(name.encode(), self.log.partitions) == self.partition
        }


async def cut_partitions(store: JournalStore, log: Log, identity: str) -> dict[int, str]:
    """The partitions of the journal that are not served -> why. It only reads.

    Args:
        store: The store.
        log: The journal.
        identity: The name of the journal, which changes if it is deleted and created again.
    """
    places = await store.places(
        lambda name: f"{identity}:{partition_of(name.encode(), log.partitions)}"
    )

    async def why(partition: int) -> str:
        listed = await store.listed(f"{identity}:{partition}")
        notes = [
            place.note.offset
            for name, place in places.items()
            if partition_of(name.encode(), log.partitions) == partition
        ]
        furthest = max(listed.offset, *notes, 0)
        _, end = await log.bounds(partition, reaches=furthest)
        if end < furthest:
            return f"it was read to offset {furthest:,}, and ends at {end:,}"
        reading = Reading(log, partition, Note(furthest), {}, heartbeat=Heartbeat())
        async for _ in reading.to(end):
            pass
        return "its repair was begun and is not finished" if reading.reader.repairing else ""

    numbers = range(log.partitions)
    found = await asyncio.gather(*map(why, numbers))  # to say that it was cut may take ten seconds
    return {partition: said for partition, said in zip(numbers, found, strict=True) if said}


def _key(snapshot: Snapshot, what: str | int, number: int = 0) -> str:
    """The key under which a data set says that something of it is kept."""
    return f"{snapshot.dataset}/{what}/{snapshot.meta.get(field_of(what))}/{number}"


def _repaired(dataset: str) -> Event:
    """The event that says that a data set is served again, after ``stopped``."""
    note = "the journal was repaired, and has all that Redis has of it"
    return Event(dataset=dataset, event="healed", commits=0, note=note)


def _next_step(lost: Judged) -> str:
    """Why a data set is stopped, and what its operator can do."""
    name = lost.dataset
    way = f". {closing.FOR_LIFE}" if lost.for_life else f", or run `stream-dp dataset close {name}`"
    return (
        f"the journal was cut, and {lost.why}. Restore the newest copy of Redis and run "
        f"`stream-dp journal mend --dataset {name}`{way}"
    )


class _Nowhere:
    """Appends nothing: what is built in memory is compared with nothing."""

    async def append_entries(
        self, partition: int, entered: Entered, entries: Sequence[Entry]
    ) -> None:
        raise CorruptState("a store in memory has nothing that the journal lacks")


class _NoRows:
    """No rows: those of a data set that is closed are written off."""

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        del topic_partition, offsets
        nothing: tuple[Record, ...] = ()
        for record in nothing:
            yield record
