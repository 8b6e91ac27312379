"""What is durable of a ``World``, and whether a worker that takes over finds just that."""

from __future__ import annotations

import copy
from typing import Any

from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.state.schema import Pair, StateTable
from tests.indexes import counts
from tests.pipeline.held import Held
from tests.pipeline.world import World
from tests.view import MemoryView

SOON = Often(n_bytes=40_000, per_id=1)
"""Rounds of checkpoints as often as a short test needs them."""


def durable(world: World) -> dict[str, dict[str, Any]]:
    """What is durable of each data set, which later commits leave alone."""
    parts = ("answers", "previous", "batches", "previous_batches", "taken", "ledger")
    return {
        name: {"pairs": dict(held.pairs)} | {part: copy.copy(getattr(held, part)) for part in parts}
        for name, held in world.durable().items()
    }


def contents(held: Held) -> dict[Pair, bytes]:
    """All answers and outcomes that are kept, by their ids."""
    tables = (
        (StateTable.ANSWER, held.previous | held.answers),
        (StateTable.OUTCOME, held.previous_batches | held.batches),
    )
    return {(table, key.encode()): value for table, some in tables for key, value in some.items()}


async def differences(world: World) -> list[str]:
    """Where a worker that takes over now differs from the journal, which is read here by rules of its own."""
    process = await world.owner()
    await process.run()
    found = [f"partition {at} is not served" for at in sorted(process.worker.aside)]
    found += [f"{name} is stopped: {why}" for name, why in process.worker.stopped.items()]
    if not found:
        for name, held in world.durable().items():
            found += [f"{name}: other {one}" for one in await differ(process.worker.journal, held)]
    await process.kill()
    return found


async def differ(journal: Journal, held: Held) -> list[str]:
    """In what the chain of a data set is not what was durable of it."""
    chain, kept = journal.chain(held.name), contents(held)
    there = {pair: one.found for pair, one in chain.find(kept).items()}
    wanted = (
        *(len(held.answers), len(held.previous.keys() - held.answers)),
        *(len(held.batches), len(held.previous_batches.keys() - held.batches)),
        len(held.taken),
    )
    is_alike = {
        "pairs": chain.build().pairs == held.pairs,
        "number of commits": chain.build().number == held.seq,
        "ids": there.keys() == kept.keys(),
        "contents": await journal.contents(held.name, there) == kept,
        f"numbers of ids ({counts(chain.ids)}, not {wanted})": (*counts(chain.ids),) == wanted,
    }
    return [what for what, is_so in is_alike.items() if not is_so]


async def lost_by_a_take_over(world: World) -> list[str]:
    """What the next worker makes of the journal, and of nothing else: where it is not what was committed."""
    before = durable(world)
    world.view, world.often = MemoryView(), Often()  # it makes no round of its own
    found = await differences(world)
    after = durable(world)
    for name, parts in before.items():
        found += [
            f"{name}: other {part}" for part, was in parts.items() if after[name][part] != was
        ]
    return found + world.complaints()
