"""What commands are made of that take a partition of the journal over for a moment.

They do it as a worker does, by an epoch. So there is one who may append to a partition at any time, and a
worker that runs nevertheless is followed and ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.errors import Fenced, InvalidInput, StreamDPError
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.entries import Kind
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.published_commits import COMPARED
from stream_dp.pipeline.journal.releaser import Send
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import InputReader, LogEntry, TopicLog
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.state.codec import OutboxRecord, outbox_to_bytes
from stream_dp.state.schema import Checkpoint, Pair, Pairs, State, StateTable
from stream_dp.state.view import View

_FILLED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Offline:
    """The topics and Redis, for a command.

    Attributes:
        log: The journal.
        rows: The batches of rows.
        blocks: The topic of blocks.
        keeper: Private values, read from that topic alone.
        view: Redis.
        outputs: The output topics, by role.
        inputs: The input topics, by role.
        names: The names of the input topics, by role.
        send: Sends records to output topics.
        noise: Makes a source of noise.
        facts: What an epoch says of the deployment.
        key_file: What the key file of persons holds; None without one.
    """

    log: TopicLog
    rows: InputReader
    blocks: TopicLog
    keeper: Keeper
    view: View
    outputs: Mapping[str, TopicLog]
    inputs: Mapping[str, TopicLog]
    names: Mapping[str, str]
    send: Send
    noise: Callable[[], NoiseSource]
    facts: Mapping[str, Any]
    key_file: bytes | None = None
    context: Context = field(default_factory=Context)

    def journal(self, *, repairs: bool = False) -> Journal:
        """The journal, of which nothing is owned yet.

        Args:
            repairs: Whether partitions that were cut may be entered.
        """
        return Journal(
            self.log,
            facts=self.facts,
            is_held=lambda _: True,
            outputs=() if repairs else [self.outputs[role] for role in COMPARED],
            repairs=repairs,
            context=self.context,
        )


@asynccontextmanager
async def taken_over(journal: Journal, partition: int) -> AsyncIterator[Owned]:
    """Takes a partition over for the time of this context, and says goodbye then.

    Raises:
        CorruptState: The partition was cut.
        Fenced: A worker has taken it over meanwhile.
    """
    owned = await journal.entered(partition)
    try:
        yield owned
    except StreamDPError:
        with contextlib.suppress(StreamDPError):
            await leave(journal, owned)
        raise
    await leave(journal, owned)


def state_of(owned: Owned, name: str) -> State:
    """The state of a data set.

    Raises:
        InvalidInput: There is no such data set.
        CorruptState: It is not whole.
    """
    if name not in owned.chains:
        raise no_dataset("NAME", name)
    return owned.chains[name].build()


def no_dataset(option: str, name: str) -> InvalidInput:
    """The error for a name that no data set has."""
    return InvalidInput(option, f"there is no data set {name!r}", "see: stream-dp dataset list")


async def filled(log: TopicLog, partition: int, entry: LogEntry, wanted: int) -> int:
    """Fills a partition with entries that say nothing, until it ends at an offset or beyond.

    Returns:
        Where it ends.

    Raises:
        ServerUnavailable: No broker answers.
    """
    bounds, what = partial(log.bounds, partition), "filling a topic"
    while (end := (await patiently(bounds, what))[1]) < wanted:
        some = [entry] * min(_FILLED_AT_ONCE, wanted - end)
        await patiently(partial(log.append, partition, some), what)
    return end


async def write(journal: Journal, owned: Owned, kind: Kind, name: str, value: bytes) -> int:
    """Appends an entry of any size; returns where it begins.

    Raises:
        Fenced: Another one has taken the partition over.
    """
    at = await journal.write(owned, kind, name, value)
    if at is None:
        raise followed(owned)
    return at


async def restart(journal: Journal, owned: Owned, made: Checkpoint) -> None:
    """Has the journal begin a data set with a checkpoint: what is below counts no more.

    Raises:
        Fenced: Another one has taken the partition over.
    """
    name, value = made.state.dataset, replace(made, restarts=True).to_bytes()
    at = await write(journal, owned, "restart", name, value)
    chain = owned.chains[name] = JournalChain(name)
    chain.begins(at, value, restarts=True)


async def commit(
    journal: Journal, owned: Owned, name: str, pairs: Pairs, out: Sequence[OutboxRecord] = ()
) -> None:
    """Makes a commit of a data set. The next owner sends what leaves after it.

    Raises:
        Fenced: Another one has taken the partition over.
    """
    chain = owned.chains[name]
    made = chain.build().drafted(pairs, out=outbox_to_bytes(out) if out else b"")
    stored, trail = made.to_bytes()
    chain.add(made, trail)
    chain.landed(made, await write(journal, owned, "commit", name, stored))


def facts(changes: Mapping[str, str]) -> dict[Pair, bytes]:
    """Public facts as pairs."""
    return {(StateTable.FACT, name.encode()): text.encode() for name, text in changes.items()}


async def leave(journal: Journal, owned: Owned, **more: object) -> None:
    """Says goodbye, unless the owner before did not: then the next one has to find out why.

    Raises:
        Fenced: Another one has taken the partition over.
    """
    if not await journal.mark(owned, **{"left": not owned.marks.inherited, **more}):
        raise followed(owned)


def followed(owned: Owned) -> Fenced:
    """The error for a command that a worker has followed."""
    return Fenced(
        f"a worker has taken partition {owned.partition} of the journal over; stop all workers, and try again"
    )
