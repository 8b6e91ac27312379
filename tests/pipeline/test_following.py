"""Redis follows the journal: after a while it has what the journal has, whatever it had before."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from random import randbytes
from typing import Any

import pytest

from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import Decided
from stream_dp.pipeline.journal import redis_follower
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.state.private_names import Named, name_of, part_name, salted
from stream_dp.state.schema import ROTATED, Pair, State, StateTable
from stream_dp.state.view import ViewChange
from tests.view import MemoryView


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, and places are compared when a test says so."""
    monkeypatch.setattr(redis_follower, "_GATHER_S", 0.001)
    monkeypatch.setattr(redis_follower, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(redis_follower, "_LONGEST_WAIT_S", 0.002)
    monkeypatch.setattr(redis_follower, "_ANSWER_S", 0.05)


class Watched(MemoryView):
    """Notes what is asked of it, and has something else happen before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.before.pop(name, lambda: None)()

    async def apply(self, changes: Sequence[ViewChange]) -> Collection[str]:
        self._called("apply")
        return await super().apply(changes)

    async def rewrite(self, state: State) -> None:
        state = state.copied()
        self._called("rewrite")
        await asyncio.sleep(0)
        await super().rewrite(state)

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        self._called("place")
        return await super().place(datasets)

    async def keep(
        self, dataset: str, parts: Mapping[bytes, bytes], place: tuple[int, bytes]
    ) -> None:
        self._called("keep")
        await super().keep(dataset, parts, place)


def parts_of(value: bytes) -> dict[bytes, bytes]:
    """A value in Redis: what stands here, and a second part."""
    return {name_of(value): value, part_name(name_of(value), 1): b"column of " + value}


class Owner:
    """Owns a data set, and has a view follow it."""

    def __init__(self, view: Watched) -> None:
        self.view = view
        self.state: State | None = State("flights")
        self.following = RedisFollower(view, self._owned, Context())
        self._task: asyncio.Task[None] | None = None

    def _owned(self, name: str) -> State | None:
        return self.state if name == "flights" else None

    def commit(
        self,
        n: int = 1,
        size: int = 1,
        *,
        rotates: bool = False,
        keeps: bytes = b"",
        erases: bytes = b"",
    ) -> None:
        """Commits that are on the journal. The last one names a value, or erases one."""
        for _ in range(n - 1):
            self.following.follow([self.decide(size, rotates=rotates)])
        self.following.follow([self.decide(size, rotates=rotates, keeps=keeps, erases=erases)])

    def decide(
        self, size: int = 1, *, rotates: bool = False, keeps: bytes = b"", erases: bytes = b""
    ) -> Decided:
        """A commit that is not on the journal yet."""
        assert self.state is not None
        number = self.state.number
        pairs: dict[Pair, bytes | None] = {(StateTable.FACT, b"n %d" % number): randbytes(size)}
        pairs[StateTable.ANSWER, b"ana q%d" % number] = b"answer %d" % number
        if rotates:
            pairs[ROTATED] = b"%d" % number
        for value, is_erased in ((keeps, False), (erases, True)):
            if value:
                name = name_of(value)
                named, of = Named(name, (0, 1)).to_bytes(), name.hex().encode()
                pairs[StateTable.KEPT, b"block " + of] = None if is_erased else named
                pairs[StateTable.KEPT, b"gone block " + of] = named if is_erased else None
        commit = self.state.drafted(pairs)
        stored, trail = commit.to_bytes()
        self.state.apply(commit, trail)
        return Decided(commit, trail, stored, kept=parts_of(keeps) if keeps else {})

    def keep(self, value: bytes, *, dataset: str = "flights") -> None:
        """Reads a value that Redis lacks."""
        for name, part in parts_of(value).items():
            self.following.keep(dataset, name, part)

    def begins(self) -> None:
        assert self.state is not None
        self.following.begin("flights", self.state.number, self.state.trail)

    async def follows(self) -> None:
        """Waits until the view has all."""
        if self._task is None:
            self._task = asyncio.create_task(self.following.run())
        done = asyncio.create_task(self.following.joined())
        await asyncio.wait({done, self._task}, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert done.done(), "it does not follow"

    async def compares(self) -> None:
        """A minute passes."""
        self.following.compare()
        await self.follows()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_followed(self) -> bool:
        assert self.state is not None
        there = self.view.states.get("flights", State("flights"))
        mine = self.state
        same = (there.number, there.trail, there.sum) == (mine.number, mine.trail, mine.sum)
        return same and there.pairs == mine.pairs


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    one = Owner(Watched())
    yield one
    await one.stop()


# ---------------------------------------------------------------- commits, one after another


async def test_commits_are_applied_in_order_and_many_at_once(owner: Owner) -> None:
    owner.commit(150)
    assert owner.following.behind == 150
    await owner.follows()
    assert owner.is_followed
    assert owner.view.calls.count("apply") == 3
    assert owner.view.calls.count("rewrite") == 0
    assert owner.following.behind == 0
    now, _ = owner.view.generations["flights"]
    assert now[StateTable.ANSWER, b"ana q149"] == b"answer 149"


async def test_commits_of_a_moment_are_applied_together(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.follows()
    monkeypatch.setattr(redis_follower, "_GATHER_S", 60.0)
    for _ in range(5):
        owner.commit()
        await asyncio.sleep(0.001)
    assert owner.following.behind == 5
    await owner.follows()  # which waits for it, and so it gathers no longer
    assert owner.is_followed
    assert owner.view.calls.count("apply") == 1


async def test_values_come_with_their_commit_and_go_with_the_one_that_erases_them(
    owner: Owner,
) -> None:
    rows = salted(b"rows")
    owner.commit(2, keeps=rows)
    await owner.follows()
    assert owner.view.values["flights"] == parts_of(rows)
    owner.commit(erases=rows)
    await owner.follows()
    assert owner.view.values["flights"] == {}
    assert "keep" not in owner.view.calls


async def test_what_ends_the_process_ends_it_too(owner: Owner) -> None:
    for _ in range(20):  # also just as it is woken up
        task = asyncio.create_task(owner.following.run())
        await asyncio.sleep(0.001)
        owner.commit()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)


# ---------------------------------------------------------------- whatever was there


def is_empty(view: MemoryView) -> None:
    vars(view).update(vars(MemoryView()))


def is_older(view: MemoryView) -> None:
    """As it was before the last commits, with rows that were erased since."""
    view.states["flights"] = State("flights", 1, bytes(32), 5, {(StateTable.FACT, b"old"): b"1"})
    view.values["flights"] = {b"erased": b"rows"}


def is_of_another_history(view: MemoryView) -> None:
    """With the same number of commits."""
    view.states["flights"].trail = bytes(32)
    view.values["flights"] = {b"another": b"rows"}


def is_ahead(view: MemoryView) -> None:
    view.states["flights"].number += 500
    view.values["flights"] = {b"another": b"rows"}


FAULTS = [is_empty, is_older, is_of_another_history, is_ahead]


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_does_not_fit_the_next_commit_is_written_anew(
    owner: Owner, fault: Callable[[MemoryView], None]
) -> None:
    rows = salted(b"rows")
    owner.commit(5, keeps=rows)
    await owner.follows()
    fault(owner.view)
    owner.commit(3)
    await owner.follows()
    assert owner.is_followed
    assert owner.view.values["flights"].keys() <= parts_of(rows).keys()
    owner.commit(2)
    await owner.follows()
    assert owner.is_followed


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_put_in_place_meanwhile_does_not_stay_for_longer_than_a_minute(
    owner: Owner, fault: Callable[[MemoryView], None]
) -> None:
    """Also where the data set has no further commit: erased rows may be in an older copy."""
    rows = salted(b"rows")
    owner.commit(5, keeps=rows)
    await owner.follows()
    fault(owner.view)
    await owner.compares()
    assert owner.is_followed
    assert owner.view.values["flights"].keys() <= parts_of(rows).keys()


async def test_where_it_is_as_it_was_left_nothing_is_written(owner: Owner) -> None:
    """At a take-over, too: Redis may have gigabytes."""
    owner.commit(5)
    await owner.follows()
    calls = owner.view.calls
    calls.clear()
    await owner.compares()
    assert calls == ["place"]
    next_one = Owner(owner.view)
    next_one.state = copy.deepcopy(owner.state)
    calls.clear()
    next_one.begins()
    await next_one.follows()
    assert calls == ["place"]
    next_one.commit(2)
    await next_one.follows()
    assert next_one.is_followed
    assert "rewrite" not in calls
    await next_one.stop()


async def test_a_data_set_that_is_taken_over_during_a_step_is_compared_at_once(
    owner: Owner,
) -> None:
    owner.view.states["flights"] = State("flights", 9)
    owner.view.before["apply"] = owner.begins
    commit = State("trains").drafted({})
    stored, trail = commit.to_bytes()
    owner.following.follow([Decided(commit, trail, stored)])
    await owner.follows()
    assert owner.is_followed


# ---------------------------------------------------------------- former and later owners


async def test_what_was_let_go_of_is_for_others_to_write(owner: Owner) -> None:
    owner.commit(5)
    await owner.follows()
    owner.view.down = True
    owner.commit(3)
    owner.following.keep("flights", b"name", b"value")
    await asyncio.sleep(0.01)
    owner.state = None
    owner.following.let_go(lambda _: False)
    assert owner.following.behind == 0
    owner.view.down = False
    calls = owner.view.calls
    await owner.follows()
    await asyncio.sleep(0.01)
    assert owner.view.states["flights"].number == 5
    assert "keep" not in calls
    assert "rewrite" not in calls


# ---------------------------------------------------------------- outages


async def test_what_it_misses_waits_up_to_a_bound_and_is_written_anew_then(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_follower, "_MOST_BYTES", 4_000)
    owner.commit(2)
    await owner.follows()
    owner.view.down = True
    owner.commit(10)
    assert owner.following.behind == 10
    await asyncio.sleep(0.01)
    assert owner.following.contact.away_since is not None
    for _ in range(100):
        owner.commit()
        assert owner.following._n_bytes <= 4_000
    assert owner.following.behind < 50
    owner.view.down = False
    await owner.follows()
    assert owner.is_followed
    assert owner.following.contact.away_since is None
    owner.commit(2)
    await owner.follows()
    assert owner.is_followed


async def test_below_the_bound_all_of_it_is_applied(owner: Owner) -> None:
    owner.commit(2)
    await owner.follows()
    owner.view.down = True
    owner.commit(100)
    await asyncio.sleep(0.01)
    owner.view.down = False
    await owner.follows()
    assert owner.is_followed
    assert "rewrite" not in owner.view.calls


async def test_what_becomes_due_while_it_is_written_anew_is_written_once_more(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_follower, "_MOST_BYTES", 4_000)
    owner.commit(5)
    await owner.follows()
    is_empty(owner.view)
    owner.view.calls, owner.view.before = [], {}
    owner.view.before["rewrite"] = lambda: owner.commit(size=5_000)
    owner.commit()
    await owner.follows()
    assert owner.is_followed


async def test_what_came_back_older_is_compared_at_once(owner: Owner) -> None:
    """After an outage it may be another server, or a replica that was behind."""
    owner.commit(5)
    await owner.follows()
    owner.view.down = True
    owner.commit()
    await asyncio.sleep(0.01)
    is_older(owner.view)
    owner.view.down = False
    await owner.follows()
    assert owner.is_followed
    owner.view.down = True
    owner.following.compare()
    await asyncio.sleep(0.01)
    is_older(owner.view)
    owner.view.down = False
    await owner.follows()
    assert owner.is_followed


# ---------------------------------------------------------------- reading


async def test_nothing_is_read_from_there_while_it_is_away(owner: Owner) -> None:
    pair, rows = (StateTable.ANSWER, b"ana q0"), salted(b"rows")
    owner.commit(keeps=rows)
    await owner.follows()
    assert await owner.following.answers("flights", [pair]) == {pair: b"answer 0"}
    names = [*reversed(parts_of(rows)), b"of nothing"]
    found = [parts_of(rows).get(name) for name in names]
    assert await owner.following.kept("flights", names) == found
    owner.view.down = True
    assert await owner.following.answers("flights", [pair]) == {}
    assert await owner.following.kept("flights", names) == [None] * 3
    owner.commit()
    await asyncio.sleep(0.01)
    owner.view.down = False
    if owner.following.contact.away_since is not None:
        assert await owner.following.answers("flights", [pair]) == {}, "nobody waits for it"
    await owner.follows()
    assert await owner.following.answers("flights", [pair]) == {pair: b"answer 0"}


async def test_a_server_that_does_not_answer_in_time_is_not_waited_for(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(owner.view, "kept", hangs)
    monkeypatch.setattr(owner.view, "answers", hangs)
    async with asyncio.timeout(5):
        assert await owner.following.kept("flights", [b"name", b"other"]) == [None, None]
        assert await owner.following.answers("flights", []) == {}


# ---------------------------------------------------------------- values that it lacks


async def test_values_that_it_lacked_are_kept_while_they_are_named(owner: Owner) -> None:
    rows = salted(b"rows")
    owner.commit(keeps=rows)
    await owner.follows()
    owner.view.values.clear()
    owner.keep(rows)
    owner.keep(b"erased")
    owner.keep(b"of others", dataset="trains")
    await owner.follows()
    assert owner.view.values == {"flights": parts_of(rows)}
    assert owner.view.calls.count("keep") == 1, "all parts in one round trip"


async def test_a_value_waits_for_the_commit_that_names_it(owner: Owner) -> None:
    """If that commit is never on the journal, no later one would erase the value."""
    rows = salted(b"rows")
    owner.commit()
    await owner.follows()
    decided = owner.decide(keeps=rows)
    owner.keep(rows)
    await owner.follows()
    assert owner.view.values["flights"] == {}
    owner.following.follow([decided])
    await owner.follows()
    assert owner.view.values["flights"] == parts_of(rows)


@pytest.mark.parametrize("is_written", [True, False])
async def test_values_of_a_commit_that_a_rewrite_has_are_kept_after_it(
    owner: Owner, is_written: bool
) -> None:
    rows = salted(b"rows")
    owner.commit(2)
    await owner.follows()
    is_older(owner.view)
    decided = owner.decide(keeps=rows)
    if is_written:  # before it is on the journal
        await owner.compares()
        assert owner.is_followed
    owner.following.follow([decided])
    await owner.follows()
    assert owner.is_followed
    assert owner.view.values["flights"] == parts_of(rows)


async def test_no_more_values_wait_than_there_is_room_for(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads the topic faster than Redis takes what it lacked."""
    values = [bytes([number]) * 30 for number in range(20)]
    for value in values:
        owner.commit(keeps=value)
    await owner.follows()
    owner.view.values.clear()
    monkeypatch.setattr(redis_follower, "_MOST_BYTES", 100)
    for value in values:
        owner.following.keep("flights", name_of(value), value)
    assert len(owner.following._values) == 3
    await owner.follows()
    assert len(owner.view.values["flights"]) == 3
    owner.following.keep("flights", name_of(values[-1]), values[-1])
    await owner.follows()
    assert len(owner.view.values["flights"]) == 4
