"""Moves a data set to another deployment: out of one for good, then into another.

Both take the partition of the data set over as a worker does, by an epoch on the journal. First the former
deployment says in a commit that the data set has left: it is never served there again. Only then is its
folder whole. So its budget is never spent in two places, if one folder goes into one deployment: two
deployments do not know of each other, and nothing here can notice a second one.

What goes in is a checkpoint that begins a chain, and a commit that publishes the definition and the ledger
once more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from secrets import token_hex
from typing import Final

from stream_dp.errors import CorruptState, InvalidInput, LedgerBroken
from stream_dp.messages import Definition
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.draft import LEDGER
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.sweeps import BATCHES, UNDER_WAY
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.datasets.transcript import GONE
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import Releasable
from stream_dp.pipeline.journal.contents import contents_below
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.repair import offline
from stream_dp.pipeline.repair.offline import Offline, state_of, taken_over
from stream_dp.pipeline.repair.witnesses import Witnesses
from stream_dp.pipeline.repair.write_off import lacking, leads_to, unlike
from stream_dp.pipeline.rows.private_values import LOOKED
from stream_dp.pipeline.rows.waiting.waiting_rows import Waits
from stream_dp.pipeline.spending.in_hand import IN_HAND
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.moved import MovedFolder, MovingFolder
from stream_dp.state.private_names import Named
from stream_dp.state.schema import ERASED, Checkpoint, Pair, State, StateTable, sum_of

_MOVED: Final = "moved"
_COUNTED: Final = (b"source ", b"position ", b"producer ")
"""How the names of sources and producers begin in a cursor. Others are those of this deployment's topics."""
_LEFT_BEHIND: Final = frozenset(name.encode() for name in (_MOVED, LOOKED, BATCHES, *IN_HAND))
"""The facts that mean something in one deployment alone."""

_AGAIN: Final = "start a worker, stop it again, and export then"


async def take_out(tools: Offline, name: str, folder: MovingFolder) -> None:
    """Ends a data set in this deployment for good, and writes it to a folder. To repeat it is harmless.

    No worker of the deployment should run.

    Raises:
        InvalidInput: There is no such data set, it is retired, a worker died in a look at it, or rows of it
            are lost and not given up. The error says what to do.
        CorruptState: It is not whole, or something is not kept of it. It has not left then.
        LedgerBroken: Its ledger is not what it has charged. It has not left then.
    """
    journal = tools.journal()
    async with taken_over(journal, journal.partition_of(name)) as owned:
        state = state_of(owned, name)
        has_moved = state.fact(_MOVED)
        if not has_moved:
            _check(state)
            await _keep_waiting(tools, journal, owned, name)
        ledger = await _ledger(tools, state)
        await _write_kept(tools, state, folder)
        folder.add("ledger", b"\n".join(ledger))
        ids, beats = owned.chains[name].ids, tools.context.heartbeat
        kept = await contents_below(journal, owned, owned.expected, {name: ids}, beats)
        if not has_moved:
            has_moved = token_hex(8)
            await offline.commit(journal, owned, name, offline.facts({_MOVED: has_moved}))
        carried = {pair: value for pair, (value, _) in kept[name].items()}
        made = Checkpoint(state=state, carried=carried, ids=ids.to_bytes())
        folder.add("checkpoint", made.to_bytes())
        folder.finish(name, has_moved)


async def _keep_waiting(tools: Offline, journal: Journal, owned: Owned, name: str) -> None:
    """Keeps rows that wait as private values: the other deployment has other batches."""
    chain = owned.chains[name]
    if not chain.build().table(StateTable.WAITING):
        return
    of_dataset = Tools(
        tools.keeper,
        tools.rows,
        tools.log.partitions,
        _refused,
        tools.noise,
        tools.context,
        key_file=tools.key_file,
    )
    dataset = await Dataset.stored(chain, of_dataset)
    if dataset.draft.dirty:
        raise _not_given_up(name)
    await dataset.keep_waiting(float("inf"))
    for one in dataset.draft.collect().commits:
        at = await offline.write(journal, owned, "commit", name, one.stored)
        chain.landed(one.commit, at)


async def _ledger(tools: Offline, state: State) -> Sequence[bytes]:
    """The whole ledger, which is what the state says that was charged.

    Raises:
        InvalidInput: Entries of it have not left yet.
        CorruptState: It has a gap.
        LedgerBroken: It is another one.
    """
    name, partitions = state.dataset, tools.log.partitions
    topic = {"ledger": tools.outputs["ledger"]}
    witnesses = Witnesses(topic, partitions, partition_of(name.encode(), partitions))
    await witnesses.read()
    ledger = witnesses.said[name].ledgers(name)[0]
    if count := lacking(state, ledger):
        why = f"{count:,} entries of the ledger of {name} are not on its topic yet"
        raise InvalidInput("NAME", why, _AGAIN)
    if why := unlike(state, ledger):
        raise LedgerBroken(len(ledger) - 1, f"{name}: {why}")
    if len(ledger) > int(state.fact(LEDGER)):
        raise LedgerBroken(len(ledger) - 1, f"it is not what {name} has charged")
    return ledger


async def _write_kept(tools: Offline, state: State, folder: MovingFolder) -> None:
    """Writes the private values that a state names."""
    name = state.dataset
    for what, stored in state.table(StateTable.KEPT).items():
        if what.startswith(ERASED.encode()):
            continue
        parts, kind = await tools.keeper.whole(name, Named.from_bytes(stored)), what.split()[0]
        if parts is not None:
            for part in parts:
                folder.add("kept", part, what.decode())
        elif kind in (b"block", b"weight", b"ordered"):
            phase = int(what.split()[1])
            raise InvalidInput(
                "NAME",
                f"the topic of blocks lacks the rows of phase {phase} of {name}",
                "put the topic back. If you cannot, start a worker and ask something new about phase "
                f"{phase}: it gives up the rows up to there. Or give up all rows: stream-dp journal repair "
                f"--write-off {name} --apply. Then export again",
            )
        elif kind != b"run":  # a run whose secret is lost ends
            raise CorruptState(
                f"{name}: the topic of blocks lacks what is kept as {what.decode()}. Put it back"
            )


async def bring_in(tools: Offline, folder: MovedFolder) -> str:
    """Puts a data set from a folder into this deployment; returns its name. The next worker serves it.

    To repeat it after a crash is harmless, until the data set has commits here.

    Raises:
        InvalidInput: A data set of this name was here before, or the folder is not right.
        CorruptState: Something in the folder does not decode.
    """
    ((_, stored),) = folder.contents("checkpoint")
    ((_, lines),) = folder.contents("ledger")
    checkpoint, name = Checkpoint.from_bytes(stored), folder.manifest.dataset
    definition = checkpoint.state.pairs[StateTable.DEFINITION, b""]
    if not checkpoint.state.dataset == Definition.read(json.loads(definition)).dataset == name:
        raise InvalidInput("FOLDER", "its parts are of several data sets", "export again")
    ledger = lines.split(b"\n")
    if not leads_to(checkpoint.state, ledger):
        raise InvalidInput("FOLDER", "it has another ledger than its data set", "export again")
    journal = tools.journal()
    async with taken_over(journal, journal.partition_of(name)) as owned:
        if not _has_begun(owned, checkpoint.state):
            await _begin(tools, journal, owned, folder, checkpoint)
        engine = Engine(Definition.read(json.loads(definition)))
        engine.fold(checkpoint.state.numbered(StateTable.TRANSCRIPT))
        published = [OutboxRecord("catalog", name.encode(), (), engine.cataloged.to_bytes())]
        published += [OutboxRecord("ledger", name.encode(), (), entry) for entry in ledger]
        await offline.commit(journal, owned, name, {}, published)
    return name


async def _begin(
    tools: Offline, journal: Journal, owned: Owned, folder: MovedFolder, checkpoint: Checkpoint
) -> None:
    """Has the journal begin a data set, after all that it names."""
    former = checkpoint.state
    name, kept = former.dataset, former.table(StateTable.KEPT)
    pairs = {pair: value for pair, value in former.pairs.items() if _goes(pair)}
    for what, some in groupby(folder.contents("kept"), key=itemgetter(0)):
        (named,) = await tools.keeper.keep(name, [[part for _, part in some]])
        was = kept.pop(what.encode(), None)
        if was is None or Named.from_bytes(was).name != named.name:
            raise _OTHER_VALUES
        pairs[StateTable.KEPT, what.encode()] = named.to_bytes()
    if any(not what.startswith((ERASED.encode(), b"run ")) for what in kept):
        raise _OTHER_VALUES
    state = State(name, former.number, former.trail, sum_of(pairs), pairs)
    await offline.restart(journal, owned, replace(checkpoint, state=state))


def _has_begun(owned: Owned, former: State) -> bool:
    """Whether this import broke off after the data set had begun.

    Raises:
        InvalidInput: Another data set of this name is or was here, or this one with commits of its own.
    """
    name = former.dataset
    if name not in owned.chains:
        return False
    here = owned.chains[name].build()
    if (here.number, here.trail) == (former.number, former.trail) and not here.fact(_MOVED):
        return True
    raise InvalidInput(
        "FOLDER",
        f"a data set {name!r} is or was here",
        "if you have imported this folder here before, that has been completed. Import a folder into one "
        "deployment only",
    )


async def _refused(_: Releasable) -> None:
    raise AssertionError("nothing is looked at")


def _check(state: State) -> None:
    """Refuses what cannot leave."""
    name = state.dataset
    if state.fact("retired") == "1":
        raise InvalidInput("NAME", f"{name} is retired, so it has no rows", "leave it")
    if state.fact(GONE):
        raise _not_given_up(name)
    if state.table(StateTable.INTENT):
        raise InvalidInput("NAME", f"a look of {name} was announced and not taken", _AGAIN)
    waits = map(Waits.from_bytes, state.table(StateTable.WAITING).values())
    if state.fact(UNDER_WAY) or any(one.n_changes for one in waits):
        raise InvalidInput(
            "NAME",
            f"changes of rows of {name} wait for a sweep, and the other deployment has other batches",
            f"start a worker, have it begin with Client().sweep({name!r}), wait for the receipt, stop the "
            "worker, and export then",
        )


_OTHER_VALUES = InvalidInput(
    "FOLDER", "its private values are not those of its data set", "export again"
)


def _not_given_up(name: str) -> InvalidInput:
    why = f"rows of {name} are lost, and no worker has given them up yet"
    return InvalidInput("NAME", why, _AGAIN)


def _goes(pair: Pair) -> bool:
    """Whether a pair means something in another deployment."""
    table, key = pair
    if table is StateTable.CURSOR:
        return key.startswith(_COUNTED)
    return table is not StateTable.KEPT and not (table is StateTable.FACT and key in _LEFT_BEHIND)
