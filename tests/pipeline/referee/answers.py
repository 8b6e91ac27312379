"""P1: a query has one answer, however often it leaves, and what leaves is what is stored."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from stream_dp.state.codec import answer_from_bytes
from tests.pipeline.referee.evidence import asked_in, commits_by_then, parsed
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def same_answer(world: World) -> Iterator[str]:
    """P1, and: what leaves is what is stored."""
    seen: dict[tuple[str, ...], set[bytes]] = defaultdict(set)
    quotes = _quotes(world)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "answers":
            reply = json.loads(event.outgoing.value)
            name = reply["dataset"], reply["analyst"], reply["query_id"]
            if name in quotes:
                continue
            seen[name].add(event.outgoing.value)
            of = f"{name[1]} {name[2]}"
            stored = [one.answers[of] for one in commits_by_then(world, event) if of in one.answers]
            if event.outgoing.value not in {answer_from_bytes(one).answer for one in stored}:
                yield f"P1: {name} left before it was stored"
    # An id that is not kept any more is a new one: P10 says that it was not kept.
    given = Counter(
        (dataset, *answered.split(" ", 1))
        for dataset, held in world.durable().items()
        for one in held.said
        for answered in one.answers
    )
    for answered, values in seen.items():
        if len(values) > max(1, given[answered]):
            yield f"P1: {answered} has {len(values)} different answers"


def _quotes(world: World) -> set[tuple[str, ...]]:
    """Quotes are not answers: they spend nothing, are not stored, and the next one may differ."""
    found: set[tuple[str, ...]] = set()
    for topic_partition, records in world.log.items():
        for record in records if topic_partition.startswith("in.queries:") else ():
            document = parsed(record) or {}
            for item in asked_in(document):
                if isinstance(item, dict) and item.get("quote") and "query_id" in item:
                    found.add((document["dataset"], document["analyst"], item["query_id"]))
    return found
