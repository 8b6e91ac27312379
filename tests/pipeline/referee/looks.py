"""P6: a look is announced and paid for before it reads private rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.pipeline.trail import Committed, Looked
from tests.pipeline.world import World


def looks_are_charged(world: World) -> Iterator[str]:
    """P6: before data is read, the same process has announced the look and paid for these blocks.

    A zombie may look on: its charge was kept when it was fenced. A run of looks, or a segment of tests, is
    paid for once a block, with the first look that reads it.
    """
    last: dict[tuple[int, str], Committed] = {}
    paid_phase: set[tuple[str, int]] = set()
    paid_run: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for event in world.trail:
        if isinstance(event, Committed):
            name, paid = event.transition.dataset, {c.block for c in event.transition.charges}
            last[event.process, name] = event
            paid_phase |= {(name, block) for block in paid}
            for run in _runs(event):
                paid_run[run] |= paid
        elif isinstance(event, Looked):
            before = last.get((event.process, event.dataset))
            if before is None or before.transition.intent is None:
                yield f"P6: {event.dataset} was read without an announcement"
            elif runs := _runs(before):
                if not any(set(event.blocks) <= paid_run[run] for run in runs):
                    yield f"P6: {event.dataset} was read beyond the blocks that its run has paid for"
            elif before.transition.charges and not set(event.blocks) <= {
                charge.block for charge in before.transition.charges
            }:
                yield f"P6: {event.dataset} was read beyond the blocks that were paid for"
            elif any((event.dataset, block) not in paid_phase for block in event.blocks):
                yield f"P6: {event.dataset} has read a block that nothing was ever charged to"
    for name, held in world.store._datasets.items():
        charged: Counter[int] = Counter()
        for happened in world.trail:
            if isinstance(happened, Committed) and happened.transition.dataset == name:
                for charge in happened.transition.charges:
                    charged[charge.block] += charge.rho
        if [charged[block] for block in range(len(held.spent))] != [rho for rho, _ in held.spent]:
            yield f"P6: {name} has forgotten a charge"


def _runs(event: Committed) -> list[tuple[object, ...]]:
    """The runs and segments that the announced looks belong to; a segment ends with its process."""
    name = event.transition.dataset
    looks = json.loads(event.transition.intent or b"[]")
    runs = [(name, look["kind"], look["run"]) for look in looks if "run" in look]
    return [*runs, *((name, event.process, look["segment"]) for look in looks if "segment" in look)]
