"""P4: every record has exactly one outcome, and nothing is left to do once all is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.pipeline.referee.evidence import asked_in, batch_name, id_of, parsed
from tests.pipeline.referee.standing_queries import answers_of_standing
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def one_outcome(world: World) -> Iterator[str]:
    """P4: every record has exactly one outcome, however often it is repeated."""
    rejected = world.rejections()
    answers = {name for name, r in world.answers().items()}
    batches: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for event in world.events():
        if (named := batch_name(event)) is not None:
            batches[event["dataset"], named].append(event)
    unrefused: set[tuple[str, str, str | None]] = set()
    taken: set[tuple[str, str | None]] = set()
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
        elif record.role == "batches":
            batch = document["dataset"], batch_name(document)
            taken.add(batch)
            said = [e["event"] for e in batches[batch] if e["event"] != "batch_known"]
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
                # Where the id was used for another query, or is that of a standing query's answer, that one
                # has the answer.
                if not any(
                    reply.get("query_id") == name[2]
                    and reply["reason"]["code"] not in ("id_reused", "id_reserved")
                    for reply in here
                ):
                    unrefused.add(name)
                    if name not in answers:
                        yield f"P4: {name} at {position} has no outcome"
    for name in answers - unrefused - answers_of_standing(world):
        yield f"P4: {name} was answered though every record that asked it was rejected"
    for batch in batches.keys() - taken:
        yield f"P4: batch {batch} has an outcome though every record of it was rejected"


def at_rest(world: World) -> Iterator[str]:
    """Nothing is left to do once all is read."""
    for name, held in world.store._datasets.items():
        if held.outbox:
            yield f"P4: {name} has {len(held.outbox)} commits that were never released"
        if held.intents and "quarantined" not in held.meta:  # a worker that died of it took no step
            yield f"P5: {name} has an open look"
    for topic_partition, records in world.log.items():
        read = world.store._watermarks.get(topic_partition, 0)
        if records and read != len(records):
            yield f"P4: {topic_partition} was read to {read} of {len(records)}"
