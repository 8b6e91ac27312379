"""A view in memory. Tests put any state into it, copy it, and switch it off."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stream_dp.core.encoding import IDENTITY_BYTES
from stream_dp.errors import StoreUnavailable
from stream_dp.state.schema import BY_ID, ROTATED, Pair, State, StateTable, sum_of
from stream_dp.state.view import ViewChange


class MemoryView:
    """Implements ``View`` for one process. ``copy.deepcopy`` gives the view as of an instant.

    Attributes:
        states: The state of each data set.
        generations: Answers and outcomes of each data set, since the last rotation and before it.
        values: Parts of private values of each data set, by their names.
        down: Whether it is out of reach.
    """

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.generations: dict[str, tuple[dict[Pair, bytes], dict[Pair, bytes]]] = {}
        self.values: dict[str, dict[bytes, bytes]] = {}
        self.down = False

    async def apply(self, changes: Sequence[ViewChange]) -> Collection[str]:
        self._reached()
        done = {change.commit.dataset: self._put(change) for change in changes}
        return {name for name, is_done in done.items() if not is_done}

    def _put(self, change: ViewChange) -> bool:
        commit, trail = change.commit, change.trail
        state = self.states.get(commit.dataset, State(commit.dataset))
        place, after = (state.number, state.trail), (commit.number, trail)
        if place not in (after, (commit.number - 1, commit.prev)):
            return False
        if place == after:
            return True
        if commit.number == 1:
            self._forget(commit.dataset)
        now, before = self.generations.get(commit.dataset, ({}, {}))
        now, before = ({}, now) if commit.rotates else (now, before)
        self.generations[commit.dataset] = now, before
        for pair, value in commit.pairs.items():
            for held in (now, before) if pair[0] in BY_ID else (state.pairs,):
                held.pop(pair, None)
            if value is not None and pair[0] is not StateTable.TAKEN:
                (now if pair[0] in BY_ID else state.pairs)[pair] = value
        values = self.values[commit.dataset] = {
            **self.values.get(commit.dataset, {}),
            **change.kept,
        }
        for named in commit.erased():
            for name in named.fields():
                values.pop(name, None)
        state.number, state.trail, state.sum = commit.number, trail, commit.sum
        self.states[commit.dataset] = state
        return True

    async def rewrite(self, state: State) -> None:
        self._reached()
        there = self.states.get(state.dataset)
        if there is None or there.pairs.get(ROTATED) != state.pairs.get(ROTATED):
            self._forget(state.dataset)
        self.states[state.dataset] = state.copied()
        values, named = self.values.get(state.dataset, {}), state.kept()
        self.values[state.dataset] = {
            n: v for n, v in values.items() if n[:IDENTITY_BYTES] in named
        }

    def _forget(self, dataset: str) -> None:
        self.generations.pop(dataset, None)
        self.values.pop(dataset, None)

    async def state(self, dataset: str) -> State | None:
        self._reached()
        state = self.states.get(dataset)
        return None if state is None or sum_of(state.pairs) != state.sum else state.copied()

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        self._reached()
        found = {name: self.states[name] for name in datasets if name in self.states}
        return {name: (state.number, state.trail) for name, state in found.items()}

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        there = await self.contents(dataset)
        return {pair: there[pair] for pair in pairs if pair in there}

    async def contents(self, dataset: str) -> dict[Pair, bytes]:
        self._reached()
        now, before = self.generations.get(dataset, ({}, {}))
        return before | now

    async def kept(self, dataset: str, names: Sequence[bytes]) -> list[bytes | None]:
        self._reached()
        return [self.values.get(dataset, {}).get(name) for name in names]

    async def kept_names(self, dataset: str) -> list[bytes]:
        self._reached()
        return list(self.values.get(dataset, {}))

    async def keep(
        self, dataset: str, parts: Mapping[bytes, bytes], place: tuple[int, bytes]
    ) -> None:
        self._reached()
        state = self.states.get(dataset, State(dataset))
        if (state.number, state.trail) == place:
            self.values.setdefault(dataset, {}).update(parts)

    async def cursors(self, dataset: str, keys: Sequence[str]) -> dict[str, int]:
        self._reached()
        found = self.states.get(dataset, State(dataset)).table(StateTable.CURSOR)
        return {key: int(found[key.encode()]) for key in keys if key.encode() in found}

    def _reached(self) -> None:
        if self.down:
            raise StoreUnavailable("the view is switched off")

    async def usage(self) -> None:
        self._reached()

    async def close(self) -> None:
        pass
