"""What the promises are judged by: the journal, the records that came in, and the commits that were made."""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stream_dp.messages import Definition
from stream_dp.pipeline.lost_rows import given_up
from stream_dp.pipeline.records import Record
from stream_dp.state.journal import Accepted, CommitRecord
from stream_dp.state.store import Snapshot
from tests.pipeline.trail import Committed, Looked, Sent
from tests.pipeline.world import World

record_of = functools.lru_cache(10_000)(CommitRecord.from_bytes)


def journaled(world: World) -> dict[str, list[CommitRecord]]:
    """What counts of the journal, by data set, read by rules of its own."""
    return {name: [one.record for one in chain] for name, chain in chains_of(world).items()}


def journaled_by_then(world: World, event: Sent) -> list[CommitRecord]:
    """What counted of the journal of a data set when a record about it left."""
    return [
        one.record
        for one in chains_of(world).get(event.commit[0], ())
        if one.offset < event.journal[one.partition]  # it follows from entries before it alone
    ]


class Valid(NamedTuple):
    """An entry of the journal that counts."""

    partition: int
    offset: int
    record: CommitRecord
    trail: bytes


def chains_of(world: World) -> dict[str, list[Valid]]:
    """The entries that count, by data set; the referee reads them once."""
    if world.chains is not None:
        return world.chains
    chains: dict[str, list[Valid]] = defaultdict(list)
    for partition, entries in enumerate(world.journal):
        in_force = 0
        for offset, entry in enumerate(entries):
            headers = dict(entry.headers)
            epoch = int(headers["epoch"])
            if headers["type"] == b"epoch":
                in_force = max(in_force, epoch)
            elif headers["type"] == b"commit" and epoch == in_force:
                record, trail = record_of(entry.value)
                chain = chains[entry.key.decode()]
                last, at = (chain[-1].record.seq, chain[-1].trail) if chain else (0, bytes(32))
                if (record.seq - 1, record.prev) == (last, at):
                    chain.append(Valid(partition, offset, record, trail))
    return dict(chains)


def history(world: World) -> Iterator[Sent | Committed | Looked]:
    """The trail without the commits that never were, and without those that came back."""
    nonces = {
        (name, record.seq): record.nonce
        for name, records in journaled(world).items()
        for record in records
    }
    seen = set()
    for event in world.trail:
        if isinstance(event, Committed):
            commit = event.transition.dataset, event.transition.seq + 1
            if not event.record:
                continue  # of a checkpoint
            record = record_of(event.record)[0]
            if nonces.get(commit) != record.nonce or commit in seen:
                continue
            seen.add(commit)
        yield event


def records_of(world: World, name: str) -> Iterator[Record]:
    """The records that name a data set."""
    for record in (record for records in world.log.values() for record in records):
        if (parsed(record) or {}).get("dataset") == name:
            yield record


def parsed(record: Record) -> dict[str, Any] | None:
    try:
        document = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def asked_in(document: Mapping[str, Any]) -> list[Any]:
    """What gets a reply of its own: each query, or a quote for several of them together."""
    if document.get("quote") == "together" and "queries" in document:
        return [document]
    return list(document.get("queries", [document]))


def id_of(item: Any) -> str | None:
    query_id = item.get("query_id") if isinstance(item, dict) else None
    valid = isinstance(query_id, str) and re.fullmatch(r"[\x21-\x7e]{1,128}", query_id)
    return query_id if valid else None


def batch_name(said: Mapping[str, Any]) -> str | None:
    """The name of a batch in a message: its id, or its producer and number. None if it has neither."""
    if "producer" in said:
        return f"{said['producer']} {said.get('sequence')}"
    name = said.get("batch_id")
    return name if isinstance(name, str) else None


def first_batches(world: World) -> dict[str, dict[str, Record]]:
    """The first record of each batch that was not rejected, by data set and name of the batch.

    Of a producer that counts its batches, a number that was refused is used again: the first record that was
    not refused has it.
    """
    rejected = world.rejections()
    found: dict[str, dict[str, Record]] = defaultdict(dict)
    for topic_partition, records in world.log.items():
        if not topic_partition.startswith("in.batches:"):
            continue
        for record in records:
            if (record.topic, record.partition, record.offset) in rejected:
                continue
            document = parsed(record) or {}
            named = batch_name(document) if "unreadable" not in document else None
            if named is not None and not ("producer" in document and _is_broken(document)):
                found[document["dataset"]].setdefault(named, record)
    return found


def _is_broken(document: Mapping[str, Any]) -> bool:
    """Whether a batch is refused whatever its data set is: the scenarios leave columns out."""
    return "columns" in document and len(document["columns"]) < 2


def given_up_batches(world: World, name: str) -> set[str | None]:
    """The batches that waited, are on their topic no more, and were given up by a commit."""
    return set[str | None]().union(*given_up_by_commit(world, name).values())


def given_up_by_commit(world: World, name: str) -> dict[int, set[str | None]]:
    """Number of a commit -> the batches that it gave up. It says how many of those that waited are lost.

    Those that a store still had came first: an older copy has the beginning.
    """
    waiting: list[Accepted] = []
    found: dict[int, set[str | None]] = {}
    for record in journaled(world).get(name, []) if world.expired else ():
        waiting += record.accepted
        if record.sealed is not None:
            waiting.clear()
        for gone in given_up(record.transcript):
            nowhere = [a for a in waiting if f"{a.topic_partition}:{a.offset}" in world.expired]
            lost = nowhere[len(nowhere) - gone.batches :]
            waiting = [one for one in waiting if one not in lost]
            found[record.seq] = {one.batch_id for one in lost}
    return found


def every_block(world: World, name: str) -> list[bytes]:
    """The blocks of the store, and before them those that it had and has erased."""
    held = world.held(name)
    seals = [
        event.transition.seal
        for event in world.trail
        if isinstance(event, Committed) and event.transition.dataset == name
    ]
    erased = len(held.spent) - len(held.blocks)
    before = [seal for seal in seals if seal is not None][:erased]
    return [world.block_of(stored) for stored in [*before, *held.blocks]]


def definition_of(snapshot: Snapshot) -> Any:
    return Definition.read(json.loads(snapshot.definition or b""))


def grows(event: Committed) -> bool:
    looks = json.loads(event.transition.intent or b"[]")
    return any(look.get("reason") == "growth" for look in looks)
