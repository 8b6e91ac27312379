"""A view in memory. Tests put any state into it, copy it, and switch it off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from stream_dp.errors import CorruptState, StoreUnavailable
from stream_dp.state.schema import BY_ID, Pair, State, Table, check_sum
from stream_dp.state.view import Change

__all__ = ["MemoryView"]


class MemoryView:
    """Implements ``View`` for one process. ``copy.deepcopy`` gives the view as of an instant.

    Attributes:
        states: The offset of the owner's epoch, and the state, of each data set.
        generations: Answers and outcomes of each data set, since the last rotation and before it.
        values: Private values of each data set, by their names.
        down: Whether it is out of reach.
    """

    def __init__(self) -> None:
        self.states: dict[str, tuple[int, State]] = {}
        self.generations: dict[str, tuple[dict[Pair, bytes], dict[Pair, bytes]]] = {}
        self.values: dict[str, dict[bytes, bytes]] = {}
        self.down = False

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        await self.ping()
        last = {change.dataset: self._put(change) for change in changes}
        return [last[change.dataset] for change in changes]

    def _put(self, change: Change) -> bool:
        owner, state = self.states.get(change.dataset, (0, State(change.dataset)))
        place, after = (state.number, state.trail), (change.number, change.trail)
        if owner > change.owner or place not in (after, (change.number - 1, change.prev)):
            return False
        if place == after:
            return True
        now, before = self.generations.get(change.dataset, ({}, {}))
        now, before = ({}, now) if change.rotates else (now, before)
        self.generations[change.dataset] = now, before
        for pair, value in change.pairs.items():
            for held in (now, before) if pair[0] in BY_ID else (state.pairs,):
                held.pop(pair, None)
            if value is not None and pair[0] is not Table.TAKEN:
                (now if pair[0] in BY_ID else state.pairs)[pair] = value
        values = {**self.values.get(change.dataset, {}), **change.kept}
        self.values[change.dataset] = {n: v for n, v in values.items() if n not in change.gone}
        state.number, state.trail, state.sum = change.number, change.trail, change.sum
        self.states[change.dataset] = change.owner, state
        return True

    async def rewrite(self, state: State, owner: int, kept: Collection[bytes]) -> bool:
        await self.ping()
        if self.states.get(state.dataset, (0, None))[0] > owner:
            return False
        self.states[state.dataset] = owner, state.copied()
        values = self.values.get(state.dataset, {}).items()
        self.values[state.dataset] = {name: value for name, value in values if name in kept}
        return True

    async def forget(self, dataset: str) -> None:
        await self.ping()
        for held in (self.states, self.generations, self.values):
            held.pop(dataset, None)

    async def state(self, dataset: str) -> State | None:
        await self.ping()
        try:
            state = self.states[dataset][1].copied()
            check_sum(state.pairs, state.sum, dataset)
        except (KeyError, CorruptState):
            return None
        return state

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        await self.ping()
        found = {name: self.states[name][1] for name in datasets if name in self.states}
        return {name: (state.number, state.trail) for name, state in found.items()}

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        await self.ping()
        now, before = self.generations.get(dataset, ({}, {}))
        there = before | now
        return {pair: there[pair] for pair in pairs if pair in there}

    async def owner(self, dataset: str) -> int:
        await self.ping()
        return self.states.get(dataset, (0, None))[0]

    async def contents(self, dataset: str) -> AsyncIterator[Mapping[Pair, bytes]]:
        await self.ping()
        now, before = self.generations.get(dataset, ({}, {}))
        yield before | now

    async def kept(self, dataset: str, name: bytes) -> bytes | None:
        await self.ping()
        return self.values.get(dataset, {}).get(name)

    async def keep(self, dataset: str, name: bytes, value: bytes, owner: int) -> None:
        await self.ping()
        if self.states.get(dataset, (0, None))[0] <= owner:
            self.values.setdefault(dataset, {})[name] = value

    async def cursors(self, dataset: str, keys: Sequence[str] | None) -> dict[str, int]:
        await self.ping()
        _, state = self.states.get(dataset, (0, State(dataset)))
        found = state.table(Table.CURSOR)
        if keys is None:
            return {key.decode(): int(value) for key, value in found.items()}
        return {key: int(found[key.encode()]) for key in keys if key.encode() in found}

    async def ping(self) -> None:
        if self.down:
            raise StoreUnavailable("the view is switched off")

    async def usage(self) -> None:
        await self.ping()

    async def close(self) -> None:
        pass
