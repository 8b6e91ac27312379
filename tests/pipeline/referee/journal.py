"""P10: a commit is on the journal before anything that follows from it leaves.

The store has what the journal has, and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.pipeline.referee.evidence import journaled, journaled_by_then
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def on_the_journal(world: World) -> Iterator[str]:
    """P10: the journal has a commit before what follows from it leaves, and all that the store has."""
    for event in world.trail:
        if isinstance(event, Sent):
            name, commit = event.commit
            if commit and len(journaled_by_then(world, event)) < commit:
                yield f"P10: {event.outgoing.role} of {name} left before commit {commit} was on the journal"
    records = journaled(world)
    for name, held in world.store._datasets.items():
        chain = records.get(name, [])
        if held.seq != len(chain):
            yield f"P10: the journal has {len(chain)} commits of {name}, and the store {held.seq}"
            continue
        answers: dict[str, bytes] = {}
        previous: dict[str, bytes] = {}
        batches: dict[str, bytes] = {}
        earlier: dict[str, bytes] = {}
        for record in chain:
            if record.rotate:
                answers, previous = {}, answers
                batches, earlier = {}, batches
            if record.answers.keys() & (answers.keys() | previous.keys()):
                yield f"P10: commit {record.seq} of {name} answers an id again that is kept"
            if record.batches.keys() & (batches.keys() | earlier.keys()):
                yield f"P10: commit {record.seq} of {name} takes an id again that is kept"
            answers |= record.answers
            batches |= record.batches
        if (answers, previous) != (held.answers, held.previous):
            yield f"P10: the journal has other answers of {name} than the store"
        if (batches, earlier) != (held.batches, held.previous_batches):
            yield f"P10: the journal has other outcomes of batches of {name} than the store"
        spent: Counter[tuple[int, str]] = Counter()
        for record in chain:
            for charge in record.charges:
                spent[charge.block, "rho"] += charge.rho
                spent[charge.block, "delta"] += charge.delta
        lines = [(spent[block, "rho"], spent[block, "delta"]) for block in range(len(held.spent))]
        if lines != held.spent:
            yield f"P10: the journal has other charges to {name} than the store"
