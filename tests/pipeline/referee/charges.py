"""P2: what was released has been charged before, on the journal."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from stream_dp.core.budget.accountant import UNITS
from tests.pipeline.referee.evidence import commits_by_then
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def never_under_count(world: World) -> Iterator[str]:
    """P2: at every instant the journal has charged at least what was released."""
    cost: dict[str, dict[str, float]] = defaultdict(dict)
    for event in world.trail:
        if not isinstance(event, Sent) or event.outgoing.role != "answers":
            continue
        reply = json.loads(event.outgoing.value)
        if reply["status"] != "answered" or reply.get("path") != "measured":
            continue
        paid = cost[reply["dataset"]]
        # Each answer's bytes count: another answer under the same id was another look.
        paid[event.outgoing.value.decode()] = reply["privacy_loss"]["share"]
        released = sum(paid.values()) * UNITS
        if released > _charged_by_then(world, event) * (1 + 1e-12):
            yield f"P2: {reply['dataset']} has released more than it charged"


def _charged_by_then(world: World, event: Sent) -> int:
    """What the journal had charged, of each line the larger part, when something left."""
    lines: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for one in commits_by_then(world, event):
        for charge in one.charges:
            lines[charge.block][0] += charge.rho
            lines[charge.block][1] += charge.delta
    return sum(map(max, lines.values()))
