"""P8: rows are erased when they are due, wherever they are, and nothing reads them from then on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from stream_dp.pipeline.keeping import field_of
from tests.pipeline.trail import Committed, Looked
from tests.pipeline.world import World


def erased_in_time(world: World) -> Iterator[str]:
    """P8: the commit of a seal erases the rows that are due with it, and no look reads them from then on.

    The same holds for rows that a commit of its own gives up, because they are nowhere. A zombie may look on
    at what it holds: what it has committed itself counts.
    """
    sealed: Counter[str] = Counter()
    bare: Counter[str] = Counter()
    erased: Counter[tuple[int, str]] = Counter()
    for event in world.trail:
        if isinstance(event, Committed) and event.transition.seal is not None:
            name = event.transition.dataset
            sealed[name] += 1
        if isinstance(event, Committed):
            name = event.transition.dataset
            due = max(0, sealed[name] - _kept_phases(world, name))
            if event.transition.seal is None:
                bare[name] = max(bare[name], event.transition.erased)
            erased[event.process, name] = max(due, bare[name])
            if event.transition.seal is not None and event.transition.erased != due:
                yield f"P8: {name} has sealed phase {sealed[name]} and not erased {due} phases"
        elif isinstance(event, Looked) and any(
            block < erased[event.process, event.dataset] for block in event.blocks
        ):
            yield f"P8: {event.dataset} was read where its rows are erased"
    for name, held in world.store._datasets.items():
        if held.retired or held.definition is None:
            continue
        if len(held.blocks) != min(sealed[name] - bare[name], _kept_phases(world, name)):
            yield f"P8: {name} has the rows of {len(held.blocks)} phases of {sealed[name]}"


def erased_elsewhere(world: World) -> Iterator[str]:
    """P8: rows that are erased are nowhere else: not on the private topic, nor in what was set aside.

    What a former worker has written since nobody may have seen yet.
    """
    for name, held in world.store._datasets.items():
        aside = world.store._aside.get(name)
        erases = held.retired or len(held.spent) > len(held.blocks)
        if erases and aside is not None and (aside.pending or aside.blocks or aside.vault):
            yield f"P8: {name} has erased rows, and not those that were set aside"
        if held.definition is None:
            continue
        due = max(0, len(held.spent) - _kept_phases(world, name))
        for key in world.kept.keys() - world.kept_late:
            of, what, kept, number = key.decode().split("/")
            if of != name:
                continue
            is_erased = what.isdecimal() and int(what) <= due
            if is_erased and number == "1":  # what persons have used, and is used up for life
                is_erased = held.meta.get(field_of(int(what))) != kept
            if held.retired or is_erased:
                yield f"P8: {name} has erased rows, and not what is kept as {what} on the topic"


def _kept_phases(world: World, name: str) -> int:
    """The number of phases, the last ones, whose rows a data set keeps."""
    retention = json.loads(world.held(name).definition or b"{}").get("retention")
    return int((retention or {}).get("phases", 10**9))
