"""A promise without a number: a data set has the synthetic rows it asked for, of its newest phase."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def synthetic_rows_hold(world: World) -> Iterator[str]:
    """A data set that asked for synthetic rows has them, and they are of the newest phase.

    One that did not ask, or is retired, has none.
    """
    newest: dict[str, bytes] = {}
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "synthetic":
            newest[event.outgoing.key] = event.outgoing.value
    for name, held in world.durable().items():
        if held.definition is None:
            continue
        wanted = json.loads(held.definition)["synthetic_rows"]
        found = json.loads(newest.get(name) or b"null")
        if not wanted and name in newest:
            yield f"{name} has synthetic rows that nobody asked for"
        elif held.retired and newest.get(name):
            yield f"{name} is retired and has synthetic rows"
        elif wanted and held.spent and not held.retired:
            if (found or {}).get("phase") != len(held.spent):
                yield f"{name} has no synthetic rows of phase {len(held.spent)}"
            elif {len(column["codes"]) for column in found["columns"].values()} != {wanted}:
                yield f"{name} has not {wanted} synthetic rows"
