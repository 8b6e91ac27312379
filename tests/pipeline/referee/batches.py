"""P12: a batch counts once for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from stream_dp.state.codec import OutboxRecord
from stream_dp.state.journal import CommitRecord
from stream_dp.state.taken import taken_id
from tests.pipeline.referee.evidence import batch_name, journaled
from tests.pipeline.world import World


def batches_once(world: World) -> Iterator[str]:
    """P12: a batch counts once for ever. Of one that counts and whose outcome is not kept, just that is said.

    The batches of a producer that counts them are accepted in order and without gaps.
    """
    for name, chain in journaled(world).items():
        held = world.store._datasets.get(name)
        rotates = any(
            json.loads(r.definition or b"{}").get("retention", {}).get("answers") for r in chain[:1]
        )
        accepted: set[str] = set()
        with_id: set[str] = set()
        following: dict[str, int] = {}
        kept: set[str] = set()
        since: set[str] = set()
        for record in chain:
            now = {one.batch_id for one in record.accepted}
            for said in _said_to_be_known(record):
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
            if record.rotate:
                kept, since = since, set()
            since |= record.batches.keys()
            for one in record.accepted:
                if one.batch_id in accepted:
                    yield f"P12: batch {one.batch_id} of {name} counts twice"
                accepted.add(one.batch_id)
                with_id |= {one.batch_id} & record.batches.keys()
                producer, blank, sequence = one.batch_id.rpartition(" ")
                if blank:
                    if following.get(producer, int(sequence)) != int(sequence):
                        yield f"P12: batch {one.batch_id} of {name} is not the next one"
                    following[producer] = int(sequence) + 1
        if held is None:
            continue
        if held.taken != ({taken_id(one) for one in with_id} if rotates else set()):
            yield f"P12: {name} has not all ids of the {len(with_id)} batches that count, or more"
        stored = {key: at for key, at in held.cursor.items() if key.startswith("producer ")}
        if stored != {f"producer {producer}": at for producer, at in following.items()}:
            yield f"P12: {name} has counted other batches of its producers than it has accepted"


def _said_to_be_known(record: CommitRecord) -> Iterator[dict[str, Any]]:
    """What a commit lets out of batches that count already, and of which no outcome is kept."""
    for one in record.outbox:
        if isinstance(one, OutboxRecord) and one.role == "events" and one.value:
            said = json.loads(one.value)
            if said["event"] == "batch_known":
                yield said


def _numbers_behind(producer: str, names: Iterable[str]) -> Iterator[int]:
    """The numbers that follow those of a producer's batches among these."""
    for name in names:
        of, blank, sequence = name.rpartition(" ")
        if blank and of == producer:
            yield int(sequence) + 1
