"""P8: rows are erased when they are due, wherever they are, and nothing reads them from then on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from stream_dp.state.private_names import Named
from tests.pipeline.held import Held
from tests.pipeline.referee.evidence import was_lost
from tests.pipeline.trail import Committed, Looked
from tests.pipeline.world import World


def erased_in_time(world: World) -> Iterator[str]:
    """P8: the commit of a seal erases the rows that are due with it, and no look reads them from then on.

    The same holds for rows that a commit of its own gives up, because they are nowhere. A zombie may look on
    at what it holds: what it has committed itself counts.
    """
    erased: Counter[tuple[int, str]] = Counter()
    sealed: Counter[str] = Counter()
    bare: Counter[str] = Counter()
    for event in world.trail:
        if isinstance(event, Committed) and event.said is not None:
            name, said = event.dataset, event.said
            sealed[name] += len(said.phases)
            bare[name] = max(bare[name], said.bare)
            due = max(sealed[name] - _kept_phases(world.held(name)), bare[name], 0)
            erased[event.process, name] = due
            is_retired = world.held(name).retired and not said.blocks
            if said.blocks != set(range(due + 1, sealed[name] + 1)) and not is_retired:
                yield f"P8: {name} has sealed phase {sealed[name]} and not erased {due} phases"
        elif isinstance(event, Looked) and any(
            block < erased[event.process, event.dataset] for block in event.blocks
        ):
            yield f"P8: {event.dataset} was read where its rows are erased"
    for name, held in world.durable().items():
        due = max(sealed[name] - _kept_phases(held), bare[name], 0)
        has = set() if held.retired else set(range(due + 1, sealed[name] + 1))
        if held.block_numbers != has:
            yield f"P8: {name} has the rows of phases {held.block_numbers}, and not of {has}"


def erased_elsewhere(world: World) -> Iterator[str]:
    """P8: what is erased is on the private topic no more, and nothing else is.

    What a former worker has written since nobody may have seen yet. Nor what a worker had written that died
    before its commit: somebody looks for that when rows are erased the next time but one.
    """
    for name, held in world.durable().items():
        to_erase = [key for key in held.named() if key.startswith("gone ")]
        if to_erase and "quarantined" not in held.meta:
            yield f"P8: {name} has {len(to_erase)} private values that were never erased"
        looked = int(held.meta.get("kept looked", "0 0").split()[0])
        keys = {f"{name}/{one.hex()}".encode() for one in held.names}
        begins = 0
        for key, parts in world.kept_log:
            at, begins = begins, begins + len(parts)
            if not key.startswith(f"{name}/".encode()) or key not in world.kept or key in keys:
                continue
            was_named = bytes.fromhex(key.partition(b"/")[2].decode()) in held.ever
            if was_named and not to_erase:
                yield f"P8: {name} has erased a private value, and the topic has it"
            elif key not in world.kept_late and (held.retired or at < looked):
                yield f"P8: {name} has left a private value that no commit names"
        for what, named in held.named().items():
            if not what.startswith("gone ") and not _is_there(world, name, named):
                yield f"P8: {name} has no {what} any more, and it is not to be erased"


def _is_there(world: World, name: str, named: Named) -> bool:
    key = f"{name}/{named.name.hex()}".encode()
    return key in world.kept or was_lost(world, name, named)


def _kept_phases(held: Held) -> int:
    """The number of phases, the last ones, whose rows a data set keeps."""
    retention = json.loads(held.definition or b"{}").get("retention")
    return int((retention or {}).get("phases", 10**9))
