"""P10: a commit is on the journal before anything that follows from it leaves, and ids are used once."""

from __future__ import annotations

from collections.abc import Iterator

from stream_dp.pipeline.intake.records import place_in
from stream_dp.state.private_names import Named
from stream_dp.state.schema import StateTable, weight
from tests.pipeline.held import Held
from tests.pipeline.referee.evidence import commits_by_then
from tests.pipeline.trail import Committed, Sent
from tests.pipeline.world import World


def on_the_journal(world: World) -> Iterator[str]:
    """P10: the journal has a commit before what follows from it leaves. No id that is kept is used again."""
    trails = {
        (name, offset): one.trail
        for name, held in world.durable().items()
        for one in held.valid
        for offset in (one.offset, *one.again)
    }
    for event in world.trail:
        if isinstance(event, Sent):
            name, commit = event.commit
            there = len(commits_by_then(world, event))
            place = place_in(event.outgoing.headers)
            if commit > there:
                yield f"P10: {event.outgoing.role} of {name} left before commit {commit} was on the journal"
            elif place is not None and not trails.get((name, place.offset), b"").startswith(
                place.trail
            ):
                yield f"P10: {event.outgoing.role} of {name} says that it follows from another commit"
    first = {key: at for at, (key, _) in reversed([*enumerate(world.kept_log)])}
    for event in world.trail:
        if isinstance(event, Committed) and event.said is not None:
            for (table, what), value in event.said.puts.items():
                if table is StateTable.KEPT and value is not None:
                    key = f"{event.dataset}/{Named.from_bytes(value).name.hex()}".encode()
                    if first.get(key, event.kept) >= event.kept:
                        yield f"P10: {event.dataset} has named {what.decode()} before it was kept"
    for held in world.durable().values():
        yield from _ids_once(held)
        if sum(weight(pair, value) for pair, value in held.pairs.items()) % 2**128 != held.sum:
            yield f"P10: the state of {held.name} is not the one whose sum was committed"


def _ids_once(held: Held) -> Iterator[str]:
    answers: tuple[set[str], set[str]] = set(), set()
    batches: tuple[set[str], set[str]] = set(), set()
    for one in held.said:
        if one.rotates:
            answers, batches = (set(), answers[0]), (set(), batches[0])
        if one.answers.keys() & (answers[0] | answers[1]):
            yield f"P10: commit {one.number} of {held.name} answers an id again that is kept"
        if one.batches.keys() & (batches[0] | batches[1]):
            yield f"P10: commit {one.number} of {held.name} takes an id again that is kept"
        answers[0].update(one.answers)
        batches[0].update(one.batches)
