"""P11: answers are kept for as long as the definition says, and then they rotate."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.pipeline.referee.evidence import records_of
from tests.pipeline.world import World

_DAY_MS = 86_400_000


def kept_long_enough(world: World) -> Iterator[str]:
    """P11: answers rotate when the time of the definition has passed since the last time, by the records."""
    for name, held in world.durable().items():
        days, last = None, 0
        for one in held.said:
            if one.definition is not None:
                retention = json.loads(one.definition).get("retention", {})
                days = retention.get("answers", {}).get("days")
            said = one.meta.get("answers rotated")
            if said is None:
                continue
            if days is None or int(said) - last < days * _DAY_MS:
                yield f"P11: commit {one.number} of {name} rotates answers out of turn"
            last = int(said)
        times = [one.timestamp_ms for one in records_of(world, name)]
        if days is not None and max(times, default=-1) - last >= days * _DAY_MS:
            yield f"P11: the answers of {name} rotate no more"
