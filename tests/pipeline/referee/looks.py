"""P6: a look is announced and paid for before it reads private rows, and is taken once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from stream_dp.state.schema import StateTable
from tests.pipeline.held import Held, Said
from tests.pipeline.trail import Committed, Looked
from tests.pipeline.world import World

_RELEASED, _LOST = b"\x01", b"\x02"


def looks_are_charged(world: World) -> Iterator[str]:
    """P6: before data is read, the same process has announced the look and paid for these blocks.

    Its charge is on the journal then, and counts. A zombie may look on: its charge was there when it was
    followed. A run of looks, or a segment of tests, is paid for once a block, with the first look that reads
    it.
    """
    last: dict[tuple[int, str], tuple[Said, list[_Run]]] = {}
    paid_phase: set[tuple[str, int]] = set()
    paid_run: dict[_Run, set[int]] = defaultdict(set)
    for event in world.trail:
        if isinstance(event, Committed) and event.said is not None:
            name, paid = event.dataset, {charge.block for charge in event.said.charges}
            runs = _runs(event.process, name, event.said)
            last[event.process, name] = event.said, runs
            paid_phase |= {(name, block) for block in paid}
            for run in runs:
                paid_run[run] |= paid
        elif isinstance(event, Looked):
            said, runs = last.get((event.process, event.dataset), (None, []))
            if said is None or not said.looks:
                yield f"P6: {event.dataset} was read without an announcement"
            elif runs:
                if not any(set(event.blocks) <= paid_run[run] for run in runs):
                    yield f"P6: {event.dataset} was read beyond the blocks that its run has paid for"
            elif said.charges and not set(event.blocks) <= {one.block for one in said.charges}:
                yield f"P6: {event.dataset} was read beyond the blocks that were paid for"
            elif any((event.dataset, block) not in paid_phase for block in event.blocks):
                yield f"P6: {event.dataset} has read a block that nothing was ever charged to"
    for held in world.durable().values():
        yield from _settled_once(held)


def _settled_once(held: Held) -> Iterator[str]:
    """Nothing is paid back, and each look that was announced is settled by one release, or as lost."""
    for one in held.said:
        if any(charge.rho < 0 or charge.delta < 0 for charge in one.charges):
            yield f"P6: {held.name} has forgotten a charge"
        settled = sum(entry[:1] in (_RELEASED, _LOST) for entry in one.transcript)
        settled += sum(  # ticks, by the number of their period and their own
            table is StateTable.RUNNING and b" " in key and value is not None
            for (table, key), value in one.puts.items()
        )
        if settled != len(one.settled):
            yield f"P6: commit {one.number} of {held.name} settles {len(one.settled)} looks by {settled}"


_Run = tuple[Any, ...]


def _runs(process: int, name: str, said: Said) -> list[_Run]:
    """The runs and segments that the announced looks belong to; a segment ends with its process."""
    runs: list[_Run] = [(name, look["kind"], look["run"]) for look in said.looks if "run" in look]
    return [*runs, *((name, process, look["segment"]) for look in said.looks if "segment" in look)]
