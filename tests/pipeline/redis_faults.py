"""What may happen to Redis, which decides nothing: it goes back, is emptied, or has what never was."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.pipeline.world import World
from tests.view import MemoryView


def as_of_now(view: MemoryView) -> MemoryView:
    """A copy of what Redis has."""
    copied = MemoryView()
    copied.states = {name: state.copied() for name, state in view.states.items()}
    copied.generations = {
        name: (dict(now), dict(before)) for name, (now, before) in view.generations.items()
    }
    copied.values = {name: dict(values) for name, values in view.values.items()}
    return copied


class RedisFaults:
    """Faults of the Redis of a world."""

    def __init__(self, world: World, choice: random.Random) -> None:
        self._world = world
        self._choice = choice
        self._copies: list[MemoryView] = [MemoryView()]

    def remember(self) -> None:
        """Keeps a copy, to which Redis may go back."""
        self._copies.append(as_of_now(self._world.view))

    def happens(self, fault: str) -> None:
        """One of the faults happens, to all data sets or to one."""
        faults: dict[str, Callable[[], MemoryView]] = {
            "Redis older": self._older,
            "Redis emptied": MemoryView,
            "Redis of another history": self._of_another_history,
            "Redis wrong in a byte": self._wrong,
        }
        other, now = faults[fault](), self._world.view
        names = sorted(now.states)
        if not names or self._choice.random() < 0.5:
            self._world.view = other
            return
        name = self._choice.choice(names)
        held: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
            (now.states, other.states),
            (now.generations, other.generations),
            (now.values, other.values),
        )
        for mine, theirs in held:
            mine.pop(name, None)
            if name in theirs:
                mine[name] = theirs[name]

    def _older(self) -> MemoryView:
        return as_of_now(self._choice.choice(self._copies))

    def _of_another_history(self) -> MemoryView:
        """A copy that is of other commits, with other answers and values."""
        view = self._older()
        self._world.spoiled |= view.states.keys()
        for name, state in view.states.items():
            state.trail = self._choice.choice((state.trail, self._choice.randbytes(32)))
            state.number += self._choice.choice((0, 0, 5, 500))
            parts: list[dict[Any, bytes]]
            parts = [*view.generations.get(name, ()), view.values.get(name, {})]
            for part in parts:
                part.update({key: value + b"?" for key, value in part.items()})
        return view

    def _wrong(self) -> MemoryView:
        """One byte of each data set is another one."""
        view = as_of_now(self._world.view)
        self._world.spoiled |= view.states.keys()
        for name, state in view.states.items():
            parts: list[dict[Any, bytes]]
            parts = [state.pairs, *view.generations.get(name, ()), view.values.get(name, {})]
            filled = [part for part in parts if part]
            what = self._choice.randrange(len(filled) + 2)
            if what < len(filled):
                held = filled[what]
                key = self._choice.choice(list(held))
                held[key] = self._changed(held[key])
            elif what == len(filled):
                state.trail = self._changed(state.trail)
            else:
                state.number ^= 1
        return view

    def _changed(self, value: bytes) -> bytes:
        if not value:
            return b"?"
        at = self._choice.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << self._choice.randrange(8)]) + value[at + 1 :]
