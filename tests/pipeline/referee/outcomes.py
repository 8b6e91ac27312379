"""P4: every record has exactly one outcome, and nothing is left to do once all is read."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from stream_dp.state.codec import answer_from_bytes
from tests.pipeline.held import Held, batch_name
from tests.pipeline.referee.evidence import asked_in, id_of, parsed
from tests.pipeline.referee.standing_queries import answers_of_standing
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def one_outcome(world: World) -> Iterator[str]:
    """P4: every record has exactly one outcome, however often it is repeated."""
    rejected = world.rejections()
    answers = {name for name, r in world.answers().items()}
    batches: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in world.events():
        if named := batch_name(event):
            batches[event["dataset"], named].append(event)
    unrefused: set[tuple[str, str, str | None]] = set()
    taken: set[tuple[str, str]] = set()
    for record in (record for records in world.log.values() for record in records):
        position = record.topic, record.partition, record.offset
        here = rejected.get(position, [])
        # A rejected query names who asked it.
        whole = [reply for reply in here if "analyst" not in reply]
        if len(whole) > 1:
            yield f"P4: {position} was rejected in {len(whole)} ways"
        if whole:
            continue
        if record.role == "datasets":
            kind = "dataset_accepted" if record.value is not None else "dataset_retired"
            of = (record.key or b"").decode()
            if not any(event["dataset"] == of for event in world.events(kind)):
                yield f"P4: {position} has no event {kind}"
            continue
        document = parsed(record)
        if document is None:
            yield f"P4: {position} has no outcome"
        elif "clock" in document:
            pass  # what it leads to is in P16
        elif record.role == "batches":
            batch = document["dataset"], batch_name(document)
            taken.add(batch)
            others = "batch_known", "changes_lost"
            said = [e["event"] for e in batches[batch] if e["event"] not in others]
            # What a producer that counts was refused, it sends again under its number. So does a source.
            in_order = "producer" in document or document.get("source") is not None
            again = in_order and said.count("batch_refused") == 1
            below = "producer" in document and not said and batches[batch]
            if said.count("batch_accepted") > 1 or not (
                (len(said) - again in (0, 1) and said) or below
            ):
                yield f"P4: batch {batch} has {len(said)} outcomes"
        else:
            for item in asked_in(document):
                name = document["dataset"], document["analyst"], id_of(item)
                if isinstance(item, dict) and item.get("standing") is not None:
                    if not here and not any(
                        event.outgoing.key == " ".join(map(str, name))
                        for event in world.trail
                        if isinstance(event, Sent) and event.outgoing.role == "standing"
                    ):
                        yield f"P4: the standing query {name} at {position} is not listed"
                    continue
                # Where the id was used for another query, that one has the answer.
                if not any(
                    reply.get("query_id") == name[2] and reply["reason"]["code"] != "id_reused"
                    for reply in here
                ):
                    unrefused.add(name)
                    if name not in answers:
                        yield f"P4: {name} at {position} has no outcome"
    for name in answers - unrefused - answers_of_standing(world):
        yield f"P4: {name} was answered though every record that asked it was rejected"
    for batch in batches.keys() - taken:
        yield f"P4: batch {batch} has an outcome though every record of it was rejected"


def reserved_ids(world: World) -> Iterator[str]:
    """P4: an id is refused as that of a standing query's answer if it may be one, and has no answer yet.

    Whether such an answer comes is up to the standing query, see P9.
    """
    for name, held in world.durable().items():
        kept: set[str] = set()
        since: set[str] = set()
        for one in held.said:
            if one.rotates:
                kept, since = since, set()
            for reply in (json.loads(record.value or b"") for record in one.records("rejected")):
                if reply["reason"]["code"] != "id_reserved" or "analyst" not in reply:
                    continue  # a quote of several queries is rejected as a record, and names nobody
                asked = f"{reply['analyst']} {reply['query_id']}"
                if not re.fullmatch("[^ ]+ .+@[0-9]{1,10}", asked):
                    yield f"P4: {name} has refused {asked}, which is not reserved"
                if asked in kept | since:
                    yield f"P4: {name} has refused {asked} as reserved, and it is answered"
            since |= one.answers.keys()


def at_rest(world: World) -> Iterator[str]:
    """Nothing is left to do once all is read."""
    left = Counter(
        (event.outgoing.role, event.outgoing.key, event.outgoing.value)
        for event in world.trail
        if isinstance(event, Sent)
    )
    for name, held in world.durable().items():
        for role, key, value in _to_leave(held):
            if not left[role, key, value]:
                yield f"P4: {name} has committed a record of {role} that never left"
        if held.intents and "quarantined" not in held.meta:  # a worker that died of it took no step
            yield f"P5: {name} has an open look"
    read = _read(world)
    for topic_partition, records in world.log.items():
        if records and read.get(topic_partition, 0) != len(records):
            yield f"P4: {topic_partition} was read to {read.get(topic_partition)} of {len(records)}"


def _to_leave(held: Held) -> Iterator[tuple[str, str, bytes]]:
    """What the commits of a data set have to release. Of a compacted topic that is the newest of a key."""
    newest: dict[tuple[str, str], bytes] = {}
    for one in held.said:
        for record in one.out:
            if isinstance(record, str):
                answer = answer_from_bytes(one.answers[record]).answer
                yield "answers", held.name, answer
            elif record.role in ("catalog", "synthetic", "standing"):
                newest[record.role, (record.key or b"").decode()] = record.value or b""
            else:
                yield record.role, (record.key or b"").decode(), record.value or b""
    for (role, key), value in newest.items():
        yield role, key, value


def _read(world: World) -> dict[str, int]:
    """How far the inputs were read, by the marks that count, and by the last worker, which says it soon."""
    found = dict(world.processes[-1].watermarks)
    for entries in world.journal:
        in_force = b""
        for entry in entries:
            headers = dict(entry.headers)
            if headers["kind"] == b"epoch":
                in_force = headers["epoch"]
            if headers["kind"] in (b"mark", b"begin") and headers["epoch"] == in_force:
                for place, at in json.loads(entry.value).get("watermarks", {}).items():
                    found[place] = max(at, found.get(place, 0))
    return found
