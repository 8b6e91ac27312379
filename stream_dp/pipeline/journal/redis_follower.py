"""Redis as it follows the journal: written behind it, and asked before it where that is quicker.

It decides nothing. It may be empty, older, of another deployment, wrong or away: what it has under an id or a
name is compared with its digest, and what it lacks is read from the topics. While it is away, what it misses
is kept up to a bound, and then each data set is rewritten.

A private value is put with the commit that names it first. One that Redis lacks, as after it was away, is put
when it is read, if Redis stands where this worker has put it last. So one that is erased stays erased.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final

from stream_dp.core.encoding import IDENTITY_BYTES
from stream_dp.errors import StoreError
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import Decided
from stream_dp.pipeline.watch.health import Contact
from stream_dp.state.schema import ORIGIN, Pair, State
from stream_dp.state.view import View, ViewChange

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 64 << 20
_AT_ONCE: Final = 64
_GATHER_S: Final = 0.02  # many commits cost little more than one
_COMPARE_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
_ANSWER_S: Final = 1.0

_Place = tuple[int, bytes]  # the number of a commit, and the trail behind it
_NOWHERE: Final[_Place] = (0, ORIGIN)


class RedisFollower:
    """Writes what is on the journal to Redis, in a task of its own, and reads from there.

    Args:
        view: Redis.
        owned: The state of a data set; None for one that this worker does not own.

    Attributes:
        contact: Whether Redis answers, and since when not.
    """

    def __init__(self, view: View, owned: Callable[[str], State | None], context: Context) -> None:
        self.contact = Contact()
        self._view = view
        self._owned = owned
        self._heartbeat = context.heartbeat
        self._waiting: deque[Decided] = deque()
        self._n_bytes = 0
        self._values: deque[tuple[str, bytes, bytes]] = deque()
        self._values_bytes = 0
        self._at: dict[str, _Place] = {}  # the commit to which each data set was written
        self._rewrite: dict[str, None] = {}  # in the order in which it became due
        self._compare_at = monotonic() + _COMPARE_S
        self._wake = asyncio.Event()
        self._awaited = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()

    @property
    def behind(self) -> int:
        """The number of commits that Redis does not have yet; a data set to be rewritten counts as one."""
        return len(self._waiting) + len(self._rewrite)

    # ------------------------------------------------------------ writing

    def follow(self, commits: Sequence[Decided]) -> None:
        """Takes commits that are on the journal, those of one data set in order."""
        self._waiting += commits
        self._n_bytes += sum(map(_size, commits))
        if self._n_bytes > _MOST_BYTES:
            self._rewrite |= dict.fromkeys(one.dataset for one in self._waiting)
            self._waiting.clear()
            self._n_bytes = 0
        self._wake_up()

    def keep(self, dataset: str, name: bytes, value: bytes) -> None:
        """Takes a part of a private value that Redis lacks. Looks read them faster than Redis takes them."""
        if self.contact.away_since is None and self._values_bytes + len(value) <= _MOST_BYTES:
            self._values.append((dataset, name, value))
            self._values_bytes += len(value)
            self._wake_up()

    def begin(self, dataset: str, number: int, trail: bytes) -> None:
        """Begins with a data set that was taken over. It is rewritten if Redis has another commit of it.

        Args:
            dataset: The data set.
            number: The number of its commits.
            trail: The trail behind the last of them.
        """
        self._at[dataset] = number, trail
        self.compare()

    def compare(self) -> None:
        """Has it compared now where Redis stands."""
        self._compare_at = 0.0
        self._wake_up()

    def let_go(self, is_held: Callable[[str], bool]) -> None:
        """Forgets the data sets that are not held any more: others write them."""
        self._waiting = deque(one for one in self._waiting if is_held(one.dataset))
        self._n_bytes = sum(map(_size, self._waiting))
        self._rewrite = dict.fromkeys(filter(is_held, self._rewrite))
        self._at = {name: at for name, at in self._at.items() if is_held(name)}

    def _wake_up(self) -> None:
        self._done.clear()
        self._wake.set()

    async def joined(self) -> None:
        """Returns when Redis has all of it. It may be away for hours."""
        if not self._done.is_set():
            self._awaited.set()
            await self._done.wait()

    async def run(self) -> None:
        """Writes what waits, and compares now and then, until cancelled."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                if monotonic() >= self._compare_at:
                    self._compare_at = monotonic() + _COMPARE_S
                    await self._compare()
                while await self._step():
                    self._heartbeat.beat()
                if self.contact.away_since is not None:
                    _log.warning("Redis answers again")
                self.contact.heard()
                wait_s = _FIRST_WAIT_S
                if monotonic() >= self._compare_at:  # as where one was taken over during a step
                    continue
                self._done.set()
                self._awaited.clear()
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it may swallow a cancellation, and nothing ends this loop.
                    async with asyncio.timeout(max(0.0, self._compare_at - monotonic())):
                        await self._wake.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GATHER_S):
                        await self._awaited.wait()
            except StoreError as error:
                if self.contact.away_since is None:
                    _log.warning("Redis does not follow, and nothing waits for it: %s", error)
                self.contact.lost()
                self._compare_at = 0.0  # so that it is asked something before it counts as back
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _step(self) -> bool:
        """Writes some of what waits; returns whether there was anything."""
        if self._rewrite:
            await self._write_anew(next(iter(self._rewrite)))
        elif self._waiting:
            await self._apply(list(islice(self._waiting, _AT_ONCE)))
        else:
            return bool(self._values) and await self._keep(self._values[0][0])
        return True

    async def _apply(self, some: Sequence[Decided]) -> None:
        fresh = [one for one in some if one.commit.number > self._at.get(one.dataset, _NOWHERE)[0]]
        changes = [ViewChange(one.commit, one.trail, one.kept) for one in fresh]
        refused = await self._view.apply(changes)
        self._rewrite |= dict.fromkeys(refused)
        self._at |= {one.dataset: (one.commit.number, one.trail) for one in fresh}
        for one in some:
            if self._waiting and self._waiting[0] is one:  # and was not forgotten meanwhile
                self._waiting.popleft()
                self._n_bytes -= _size(one)
            if one not in fresh or one.dataset in refused:  # a rewrite has the rest of it
                for name, value in one.kept.items():
                    self.keep(one.dataset, name, value)

    async def _keep(self, dataset: str) -> bool:
        """Writes private values where Redis has all commits of their data set; returns whether it has."""
        state, at = self._owned(dataset), self._at.get(dataset, _NOWHERE)
        if state is not None and state.number != at[0]:
            return False  # if the commit that names one never gets onto the journal, nothing would erase it
        named = set() if state is None else state.kept()
        parts: dict[bytes, bytes] = {}
        for _ in range(_AT_ONCE):
            if not self._values or self._values[0][0] != dataset:
                break
            _, name, value = self._values.popleft()
            self._values_bytes -= len(value)
            if name[:IDENTITY_BYTES] in named:
                parts[name] = value
        if parts:
            await self._view.keep(dataset, parts, at)
        return True

    async def _write_anew(self, name: str) -> None:
        del self._rewrite[name]  # it may become due again meanwhile
        state = self._owned(name)
        if state is None:
            return
        at = state.number, state.trail
        try:
            await self._view.rewrite(state)
        except StoreError:
            self._rewrite[name] = None
            raise
        self._at[name] = at

    async def _compare(self) -> None:
        """Has rewritten what is not where this worker wrote it: erased rows may be there again."""
        names = [name for name in self._at if self._owned(name) is not None]
        places = await self._view.place(names)
        waiting = {one.dataset for one in self._waiting}
        for name in filter(self._at.__contains__, names):  # others were let go of meanwhile
            if name not in waiting and places.get(name, _NOWHERE) != self._at[name]:
                self._rewrite[name] = None

    # ------------------------------------------------------------ reading

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> Mapping[Pair, bytes]:
        """What Redis has under some ids; nothing while it is away. Nobody has checked it."""
        found: Mapping[Pair, bytes] | None = await self._asked(self._view.answers, dataset, pairs)
        return {} if found is None else found

    async def kept(self, dataset: str, names: Sequence[bytes]) -> list[bytes | None]:
        """What Redis has under the names of parts of private values. Nobody has checked it.

        None stands for what it lacks, and for all of it while it is away.
        """
        found: list[bytes | None] | None = await self._asked(self._view.kept, dataset, names)
        return [None] * len(names) if found is None else found

    async def _asked(self, read: Callable[..., Any], *arguments: object) -> Any:
        if self.contact.away_since is not None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await read(*arguments)
        except (StoreError, TimeoutError) as error:
            _log.warning("Redis does not answer, so the topics are read: %s", type(error).__name__)
            return None


def _size(one: Decided) -> int:
    return len(one.stored) + sum(map(len, one.kept.values()))
