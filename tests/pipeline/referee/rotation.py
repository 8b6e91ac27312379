"""P11: answers are kept for as long as the definition says, and then they rotate."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.pipeline.referee.evidence import journaled, records_of
from tests.pipeline.world import World

_DAY_MS = 86_400_000


def kept_long_enough(world: World) -> Iterator[str]:
    """P11: answers rotate when the time of the definition has passed since the last time, by the records."""
    for name, chain in journaled(world).items():
        days, last = None, 0
        for record in chain:
            if record.definition is not None:
                retention = json.loads(record.definition).get("retention", {})
                days = retention.get("answers", {}).get("days")
            said = record.meta.get("answers rotated")
            if said is None:
                if record.rotate:
                    yield f"P11: commit {record.seq} of {name} rotates answers and does not say when"
                continue
            if days is None or record.rotate != (last > 0) or int(said) - last < days * _DAY_MS:
                yield f"P11: commit {record.seq} of {name} rotates answers out of turn"
            last = int(said)
        times = [one.timestamp_ms for one in records_of(world, name)]
        if days is not None and max(times, default=-1) - last >= days * _DAY_MS:
            yield f"P11: the answers of {name} rotate no more"
