"""P12: a batch counts once for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import first_batches
from tests.pipeline.world import World


def batches_once(world: World) -> Iterator[str]:
    """P12: a batch counts once for ever. Of one that counts and whose outcome is not kept, just that is said.

    The batches of a producer that counts them are accepted in order and without gaps. So are the ranges of a
    source.
    """
    for held in world.durable().values():
        yield from _of(held)
        yield from _ranges(world, held)


def _of(held: Held) -> Iterator[str]:
    name = held.name
    accepted: set[str] = set()
    with_id: set[str] = set()
    following: dict[str, int] = {}
    kept: set[str] = set()
    since: set[str] = set()
    for one in held.said:
        now = set(one.accepted)
        for said in one.events("batch_known"):
            named, producer = batch_name(said), said.get("producer")
            if producer is None and named not in accepted | now:
                yield f"P12: {named} of {name} is said to count and does not"
            if named in kept | since:
                yield f"P12: the outcome of {named} of {name} is kept and not told"
            counts = said.get("next_sequence", 0)
            if producer is not None and not said["sequence"] < counts <= max(
                [following.get(producer, 0), *_numbers_behind(producer, now)]
            ):
                yield f"P12: {named} of {name} is said to count, and so are those below {counts}"
        if one.rotates:
            kept, since = since, set()
        since |= one.batches.keys()
        for named in one.accepted:
            if named in accepted:
                yield f"P12: batch {named} of {name} counts twice"
            accepted.add(named)
            with_id |= {named} & one.batches.keys()
            producer, blank, sequence = named.rpartition(" ")
            if blank:
                if following.get(producer, int(sequence)) != int(sequence):
                    yield f"P12: batch {named} of {name} is not the next one"
                following[producer] = int(sequence) + 1
    retention = json.loads(held.definition or b"{}").get("retention") or {}
    rotates = retention.get("answers") is not None
    if held.taken != (with_id if rotates else set()):
        yield f"P12: {name} has not all ids of the {len(with_id)} batches that count, or more"
    counted = {key: at for key, at in held.cursor.items() if key.startswith("producer ")}
    if counted != {f"producer {producer}": at for producer, at in following.items()}:
        yield f"P12: {name} has counted other batches of its producers than it has accepted"


def _ranges(world: World, held: Held) -> Iterator[str]:
    first, following = first_batches(world).get(held.name, {}), dict[str, int]()
    for named in (named for one in held.said for named in one.accepted):
        if named not in first:
            continue  # all its records were rejected, which breaks P4
        source = json.loads(first[named].value or b"").get("source")
        if source is not None:
            place = f"source {source['topic']}@{source['id']}:{source['partition']}"
            if following.get(place, source["first"]) != source["first"]:
                yield f"P12: {named} of {held.name} does not begin where the last range of its source ended"
            following[place] = source["last"] + 1
    counted = {key: at for key, at in held.cursor.items() if key in following}
    if counted != following:
        yield f"P12: {held.name} has counted other ranges of its sources than it has accepted"


def _numbers_behind(producer: str, names: Iterable[str]) -> Iterator[int]:
    """The numbers that follow those of a producer's batches among these."""
    for name in names:
        of, blank, sequence = name.rpartition(" ")
        if blank and of == producer:
            yield int(sequence) + 1
