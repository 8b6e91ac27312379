"""What the journal of a ``World`` says is done with, read by rules of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.pipeline.world import World


def _said(world: World, partition: int) -> list[tuple[str, dict[str, Any]]]:
    """The epochs, and the marks that count, of a partition: the kind of each, and what it says."""
    found, in_force = [], b""
    for entry in world.journal[partition]:
        headers = dict(entry.headers)
        kind = headers["kind"].decode()
        in_force = headers["epoch"] if kind == "epoch" else in_force
        if kind in ("epoch", "mark", "begin") and headers["epoch"] == in_force:
            found.append((kind, json.loads(entry.value)))
    return found


def watermarks(world: World) -> dict[str, int]:
    """``topic:partition`` -> up to where it is done with, and other marks of that kind."""
    found: dict[str, int] = {}
    for said in _each(world, "watermarks"):
        for name, offset in said.items():
            found[name] = max(offset, found.get(name, 0))
    return found


def _each(world: World, fact: str) -> Iterator[dict[str, int]]:
    for partition in range(world.partitions):
        for _, said in _said(world, partition):
            yield said.get(fact, {})


def _last(world: World, fact: str) -> dict[str, int]:
    """What marks have said last of each name, but for those of which it is nothing."""
    found: dict[str, int] = {}
    for said in _each(world, fact):
        found |= said
    return {name: number for name, number in found.items() if number}


def cuts(world: World) -> dict[str, int]:
    """``topic:partition`` -> up to where it was read, of those that were cut."""
    return _last(world, "cut")


def trying(world: World) -> dict[str, int]:
    """What workers may die of -> how often it was begun and not finished."""
    return _last(world, "trying")


def left(world: World) -> list[bool]:
    """Whether the last owner of each partition said goodbye."""
    found = []
    for partition in range(world.partitions):
        goodbye = False
        for kind, said in _said(world, partition):
            goodbye = said.get("left", goodbye) if kind == "mark" else False
        found.append(goodbye)
    return found


def tried(world: World) -> list[str]:
    """The records that workers have taken alone since one may have died of them, in order."""
    found = []
    for partition in range(world.partitions):
        for kind, said in _said(world, partition):
            for task, times in said.get("trying", {}).items():
                if kind == "mark" and times and " " not in task:
                    found.append(task)
    return found
