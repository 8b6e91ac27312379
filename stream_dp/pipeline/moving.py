"""Moves a data set to another deployment: out of one for good, then into another.

Both take the partition of the data set over as a worker does, by an epoch on the journal. So at any time
there is one who may append to it, and a worker that runs nevertheless is fenced. First the former deployment
says on its journal that the data set has left: it is never served there again, whatever becomes of Redis.
Only then is its folder whole. So its budget is never spent in two places, if one folder goes into one
deployment: two deployments do not know of each other, and nothing here can notice a second one.

What goes in is a checkpoint, and a commit that publishes the definition and the ledger once more. The next
worker heals the data set from them, as if Redis had been lost.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_bytes, token_hex
from typing import Final, Literal

from stream_dp.errors import CorruptState, InvalidInput
from stream_dp.messages import Definition
from stream_dp.pipeline.chains import Chain, Found, entries_of
from stream_dp.pipeline.dataset import ledger_length
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import Fuse, unarmed
from stream_dp.pipeline.healing import Healing
from stream_dp.pipeline.journal import Entered, Heal, Journal, committed
from stream_dp.pipeline.keeping import LOOKED, WAITED, WAITING, Keeper, field_of
from stream_dp.pipeline.logs import Kept, Log, Rows
from stream_dp.pipeline.lost_rows import GONE
from stream_dp.pipeline.needs import JOURNAL
from stream_dp.pipeline.retrying import patiently, persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.journal import NONCE_BYTES, Checkpoint, CommitRecord, noting, summed
from stream_dp.state.moved import MovedFolder, MovingFolder
from stream_dp.state.store import ORIGIN, Place, Snapshot, Store

__all__ = ["Moving"]

_KEPT: Final = field_of("")
_COUNTED: Final = ("source ", "producer ")
"""How the names of sources and producers begin in a cursor. Others are those of this deployment's topics."""


@dataclass(frozen=True, kw_only=True)
class Moving:
    """Moves data sets out of a deployment, or into it. No worker of it should run.

    Attributes:
        log: The journal.
        rows: The batches of rows.
        kept: What is kept of blocks.
        store: The working copy.
        published: Reads the ledger of a data set on its topic, each entry once.
        identity: The name of the journal, which changes if it is deleted and created again.
        facts: What an epoch says of the deployment.
        key_file: What the key file of persons holds; None without one.
        blocks: Whether the store has blocks that are healed, or only their places on the topic.
    """

    log: Log
    rows: Rows
    kept: Kept
    store: Store
    published: Callable[[str], Awaitable[Sequence[bytes]]]
    identity: str
    facts: Mapping[str, object]
    key_file: bytes | None
    blocks: Literal["store", "topic"] = "store"
    fuse: Fuse = unarmed

    async def out(self, name: str, folder: MovingFolder) -> None:
        """Ends a data set in this deployment for good, and writes it to a folder. To repeat it is harmless.

        Raises:
            InvalidInput: There is no such data set, it is retired, a worker died in a look at it, or rows of
                it are lost and not given up.
            CorruptState: It cannot be healed, or something is not kept of it. It has not left then.
            LedgerBroken: Its ledger has a fault. It has not left then.
        """
        keeper = Keeper(self.kept, self.log.partitions, blocks=self.blocks)
        healing = Healing(
            self.log,
            self.rows,
            keeper,
            self.store,
            partitions=self.log.partitions,
            key_file=self.key_file,
            fuse=self.fuse,
            heartbeat=Heartbeat(),
        )

        async def heal(journal: Journal, partition: int, entered: Entered) -> None:
            await healing(journal, partition, entered)
            if name in entered.problems:
                raise CorruptState(entered.problems[name])
            acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
            snapshot = await persistently(acquire)
            if snapshot.seq == 0:
                raise InvalidInput(
                    "NAME", f"there is no data set {name!r}", "see: stream-dp dataset list"
                )
            if snapshot.meta.get("retired") == "1":
                raise InvalidInput("NAME", f"{name} is retired, so it has no rows", "leave it")
            if snapshot.vault.get(GONE) and not snapshot.meta.get("moved"):
                raise InvalidInput(
                    "NAME",
                    f"rows of {name} are lost, and no worker has given them up yet",
                    "start a worker, stop it again, and export then",
                )
            if snapshot.intents:
                raise InvalidInput(
                    "NAME",
                    f"a look of {name} was announced and not taken",
                    "start a worker, stop it again, and export then",
                )
            if snapshot.outbox and not snapshot.meta.get("moved"):
                raise InvalidInput(
                    "NAME",
                    f"answers or ledger entries of {name} have not left yet, or nobody has noted it",
                    "start a worker, stop it again, and export then",
                )
            await self._write_rows(snapshot, folder)  # what cannot be written has not left
            if not snapshot.meta.get("moved"):
                await self._say_moved(journal, partition, entered, snapshot)

        entered = await self._entered(name, heal)
        acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
        snapshot = await persistently(acquire)
        outcomes = await persistently(partial(self.store.outcomes, name))
        entries = await self._whole_ledger(snapshot)
        folder.add("checkpoint", summed(snapshot, outcomes, entries).to_bytes())
        folder.finish(name, snapshot.meta["moved"])

    async def _say_moved(
        self, journal: Journal, partition: int, entered: Entered, snapshot: Snapshot
    ) -> None:
        commit = noting(snapshot, {"moved": token_hex(8)})
        record = await committed(self.store, commit)
        entries = entries_of("commit", snapshot.dataset, record, entered.epoch)
        await journal.append_entries(partition, entered, entries)
        chain = entered.chains[snapshot.dataset]
        chain.seq, chain.trail = commit.seq + 1, commit.new_trail

    async def _whole_ledger(self, snapshot: Snapshot) -> list[bytes]:
        """All entries: the last ones of the store, and those before them of the topic.

        Raises:
            LedgerBroken: They do not fit together.
        """
        last = await persistently(partial(self.store.ledger, snapshot.dataset))
        length = ledger_length(snapshot)
        is_whole = len(last) == length
        published = [] if is_whole else await self.published(snapshot.dataset)
        return ledger.joined(published, last, length)

    async def _write_rows(self, snapshot: Snapshot, folder: MovingFolder) -> None:
        """Writes what is private of a data set, and looks whether the rest of it is whole."""
        name, chain = snapshot.dataset, ledger.Chain(snapshot.dataset)
        for entry in await self._whole_ledger(snapshot):
            chain.add(entry)
        chain.check_head(snapshot.head)
        if tuple(chain.charged) != snapshot.spent:
            raise CorruptState(f"{name}: what is spent is not what its ledger says was charged")
        named = {
            f"{field.removeprefix(_KEPT)}/{what}"
            for field, what in snapshot.meta.items()
            if field.startswith(_KEPT) and field != field_of(WAITING)
        }
        prefix, found = f"{name}/", set[str]()
        partition = partition_of(name.encode(), self.log.partitions)
        for key, place in (await self.kept.places([name], partition)).items():
            end = key.decode(errors="replace").removeprefix(prefix)
            if end.rpartition("/")[0] in named:
                value = await self.kept.fetch(key, place)
                if value is None:
                    raise CorruptState(f"{name}: a value that is kept of it is not what it was")
                folder.add("kept", value, end)
                found.add(end)
        for phase in range(len(snapshot.spent) - snapshot.n_blocks + 1, len(snapshot.spent) + 1):
            if f"{phase}/{snapshot.meta.get(field_of(phase))}/0" not in found:
                raise CorruptState(f"{name}: the rows of phase {phase} are not kept any more")
        for rows in snapshot.pending:
            folder.add("waiting", rows)

    async def into(self, folder: MovedFolder) -> str:
        """Puts a data set from a folder into this deployment; returns its name. The next worker heals it.

        To repeat it after a crash is harmless, until the data set has commits here.

        Raises:
            InvalidInput: A data set of this name was here before, or the folder is not right.
            CorruptState: Something in the folder does not decode.
        """
        ((_, stored),) = folder.contents("checkpoint")
        checkpoint, name = Checkpoint.from_bytes(stored), folder.manifest.dataset
        definition = Definition.read(json.loads(checkpoint.definition))
        if not checkpoint.dataset == definition.dataset == name:
            raise InvalidInput("FOLDER", "its parts are of several data sets", "export again")

        async def heal(journal: Journal, partition: int, entered: Entered) -> None:
            acquire = partial(self.store.acquire, name, token=entered.epoch, new=False)
            snapshot = await persistently(acquire)
            chain = entered.chains.get(name) or Chain.noted(Place(0, 0, ORIGIN))
            begun = (chain.seq, chain.trail) == (checkpoint.seq, checkpoint.trail)
            if not begun and (chain.seq or snapshot.seq):
                raise InvalidInput(
                    "FOLDER",
                    f"a data set {name!r} is or was here",
                    "if you have imported this folder here before, that has been completed. Import a folder "
                    "into one deployment only",
                )
            await self._append(journal, partition, entered, folder, chain, checkpoint, begun=begun)

        await self._entered(name, heal)
        return name

    async def _append(
        self,
        journal: Journal,
        partition: int,
        entered: Entered,
        folder: MovedFolder,
        chain: Chain,
        checkpoint: Checkpoint,
        *,
        begun: bool,
    ) -> None:
        """Appends a data set to the journal, after all that its records name."""
        name, entries, published_ledger = checkpoint.dataset, [], checkpoint.ledger
        if not begun:
            for end, value in folder.contents("kept"):
                put = partial(self.kept.put, [(f"{name}/{end}".encode(), value)])
                await patiently(put, "writing rows")
            waiting = [rows for _, rows in folder.contents("waiting")]
            found = await Keeper(self.kept, self.log.partitions).keep(name, WAITING, *waiting)
            checkpoint = replace(
                checkpoint,
                # The topics of this deployment are read from their beginning. Sources and producers go on
                # where they were.
                cursor={at: to for at, to in checkpoint.cursor.items() if at.startswith(_COUNTED)},
                meta={
                    **checkpoint.meta,
                    "moved": "",
                    field_of(WAITING): f"{found} {len(waiting)}",
                    WAITED: "",
                    LOOKED: "",
                    JOURNAL: "",
                },
                accepted=(),
            )
            # All entries of the ledger are published again, and the last ones are in the store.
            checkpoint = checkpoint.tail()
            chain.checkpoint(checkpoint, (entered.expected, entered.epoch))
            entries += entries_of("checkpoint", name, checkpoint.to_bytes(), entered.epoch)
        published = [OutboxRecord("catalog", name.encode(), (), checkpoint.definition)]
        published += [OutboxRecord("ledger", name.encode(), (), one) for one in published_ledger]
        record = CommitRecord(
            dataset=name,
            seq=checkpoint.seq + 1,
            prev=checkpoint.trail,
            nonce=token_bytes(NONCE_BYTES),
            outbox=published,
        )
        stored, trail = record.to_bytes()
        commit = Found("commit", name, stored, entered.expected + len(entries), entered.epoch)
        chain.commit(record, trail, commit)
        entries += entries_of("commit", name, stored, entered.epoch)
        await journal.append_entries(partition, entered, entries)
        # So the store lists its name, and the next worker looks for it.
        entered.chains[name] = chain

    async def _entered(self, name: str, heal: Heal) -> Entered:
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
        )
        return await journal.entered(journal.partition_of(name))
