"""Redis follows the journal: after a while it has what the journal has, whatever it had before."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from random import randbytes
from typing import Any

import pytest

from stream_dp.pipeline import following
from stream_dp.pipeline.following import Following
from stream_dp.pipeline.records import Decided
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.schema import ROTATED, Commit, State, Table
from tests.pipeline.world import World
from tests.view import MemoryView

AA = {"attribute": "carrier", "eq": "AA"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, and places are compared when a test says so."""
    monkeypatch.setattr(following, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(following, "_LONGEST_WAIT_S", 0.002)
    monkeypatch.setattr(following, "_ANSWER_S", 0.05)


class Watched(MemoryView):
    """Notes what is asked of it, and has something else happen before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.before.pop(name, lambda: None)()

    async def apply(self, commits: Sequence[tuple[Commit, bytes]]) -> Collection[str]:
        self._called("apply")
        return await super().apply(commits)

    async def rewrite(self, state: State) -> None:
        state = state.copied()
        self._called("rewrite")
        await asyncio.sleep(0)
        await super().rewrite(state)

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        self._called("place")
        return await super().place(datasets)


class Owner:
    """Owns a data set, and has a view follow it."""

    def __init__(self, view: MemoryView) -> None:
        self.view = view
        self.state: State | None = State("flights")
        self.following = Following(view, self._owned, heartbeat=Heartbeat())
        self._task: asyncio.Task[None] | None = None

    def _owned(self, name: str) -> State | None:
        return self.state if name == "flights" else None

    def commit(self, n: int = 1, size: int = 1, *, rotates: bool = False) -> None:
        """Commits that are on the journal."""
        assert self.state is not None
        for _ in range(n):
            number = self.state.number
            pairs: dict[Any, bytes | None] = {(Table.FACT, b"n %d" % number): randbytes(size)}
            pairs[Table.ANSWER, b"ana q%d" % number] = b"answer %d" % number
            if rotates:
                pairs[ROTATED] = b"%d" % number
            commit = self.state.drafted(pairs)
            stored, trail = commit.to_bytes()
            self.state.apply(commit, trail)
            self.following.follow([Decided(commit, trail, stored)])

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
    assert owner.view.calls.count("apply") == 3  # type: ignore[attr-defined]
    assert owner.view.calls.count("rewrite") == 0  # type: ignore[attr-defined]
    assert owner.following.behind == 0
    now, _ = owner.view.generations["flights"]
    assert now[Table.ANSWER, b"ana q149"] == b"answer 149"


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
    """As it was before the last commits."""
    view.states["flights"] = State("flights", 1, bytes(32), 5, {(Table.FACT, b"old"): b"1"})


def is_of_another_history(view: MemoryView) -> None:
    """With the same number of commits."""
    view.states["flights"].trail = bytes(32)


def is_ahead(view: MemoryView) -> None:
    view.states["flights"].number += 500


FAULTS = [is_empty, is_older, is_of_another_history, is_ahead]


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_does_not_fit_the_next_commit_is_written_anew(
    owner: Owner, fault: Callable[[MemoryView], None]
) -> None:
    owner.commit(5)
    await owner.follows()
    fault(owner.view)
    owner.commit(3)
    await owner.follows()
    assert owner.is_followed
    owner.commit(2)
    await owner.follows()
    assert owner.is_followed


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_put_in_place_meanwhile_does_not_stay_for_longer_than_a_minute(
    owner: Owner, fault: Callable[[MemoryView], None]
) -> None:
    """Also where the data set has no further commit."""
    owner.commit(5)
    await owner.follows()
    fault(owner.view)
    await owner.compares()
    assert owner.is_followed


async def test_places_are_compared_again_and_again(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_COMPARE_S", 0.01)
    owner.commit(5)
    await owner.compares()
    for fault in FAULTS:
        fault(owner.view)
        await asyncio.sleep(0.05)
        assert owner.is_followed


async def test_answers_of_an_older_copy_do_not_stay(owner: Owner) -> None:
    """They would be there until answers have rotated twice more."""
    owner.commit(2)
    await owner.follows()
    older = copy.deepcopy((owner.view.states, owner.view.generations))
    for _ in range(2):
        owner.commit(rotates=True)
    await owner.follows()
    pair = (Table.ANSWER, b"ana q0")
    assert await owner.view.answers("flights", [pair]) == {}
    owner.view.states, owner.view.generations = older
    assert await owner.view.answers("flights", [pair]) == {pair: b"answer 0"}
    await owner.compares()
    assert owner.is_followed
    assert await owner.view.contents("flights") == {}


async def test_a_former_owner_that_writes_meanwhile_is_made_up_for(owner: Owner) -> None:
    """It does not know yet that it was followed."""
    owner.commit(5)
    await owner.follows()
    later = Owner(owner.view)
    later.state = copy.deepcopy(owner.state)
    later.begins()
    later.commit(2)
    await later.follows()
    assert later.is_followed
    await owner.compares()
    assert owner.is_followed
    await later.compares()
    assert later.is_followed
    await later.stop()


async def test_where_it_is_as_it_was_left_nothing_is_written(owner: Owner) -> None:
    """At a take-over, too: Redis may have gigabytes."""
    owner.commit(5)
    await owner.follows()
    calls: list[str] = owner.view.calls  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_next_owner_writes_anew_what_is_not_where_the_journal_is(
    owner: Owner, fault: Callable[[MemoryView], None]
) -> None:
    owner.commit(5)
    await owner.follows()
    fault(owner.view)
    next_one = Owner(owner.view)
    next_one.state = copy.deepcopy(owner.state)
    next_one.begins()
    await next_one.follows()
    assert next_one.is_followed
    await next_one.stop()


async def test_a_data_set_that_is_taken_over_during_a_step_is_compared_at_once(
    owner: Owner,
) -> None:
    owner.view.states["flights"] = State("flights", 9)
    owner.view.before["apply"] = owner.begins  # type: ignore[attr-defined]
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
    await asyncio.sleep(0.01)
    owner.state = None
    owner.following.let_go(lambda _: False)
    assert owner.following.behind == 0
    owner.view.down = False
    calls: list[str] = owner.view.calls  # type: ignore[attr-defined]
    await owner.follows()
    await asyncio.sleep(0.01)
    assert owner.view.states["flights"].number == 5
    assert "rewrite" not in calls


# ---------------------------------------------------------------- outages


async def test_what_it_misses_waits_up_to_a_bound_and_is_written_anew_then(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_MOST_BYTES", 4_000)
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
    assert "rewrite" not in owner.view.calls  # type: ignore[attr-defined]


async def test_what_becomes_due_while_it_is_written_anew_is_written_once_more(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_MOST_BYTES", 4_000)
    owner.commit(5)
    await owner.follows()
    is_empty(owner.view)
    owner.view.calls, owner.view.before = [], {}  # type: ignore[attr-defined]
    owner.view.before["rewrite"] = lambda: owner.commit(size=5_000)  # type: ignore[attr-defined]
    owner.commit()
    await owner.follows()
    assert owner.is_followed


async def test_an_outage_in_the_middle_of_a_rewrite_is_made_up_for(owner: Owner) -> None:
    def down() -> None:
        owner.view.down = True

    owner.commit(5)
    await owner.follows()
    is_ahead(owner.view)
    owner.view.before["rewrite"] = down  # type: ignore[attr-defined]
    owner.following.compare()
    await asyncio.sleep(0.02)
    assert owner.following.behind == 1
    owner.view.down = False
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
    pair = (Table.ANSWER, b"ana q0")
    owner.commit()
    await owner.follows()
    assert await owner.following.answers("flights", [pair]) == {pair: b"answer 0"}
    owner.view.down = True
    assert await owner.following.answers("flights", [pair]) == {}
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

    monkeypatch.setattr(owner.view, "answers", hangs)
    async with asyncio.timeout(5):
        assert await owner.following.answers("flights", []) == {}


# ---------------------------------------------------------------- of a worker


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_worker_has_redis_follow_whatever_it_has(
    world: World, fault: Callable[[MemoryView], None]
) -> None:
    process = world.process()
    await process.assign()
    world.define("flights", mechanism={"base_share": 0.0}, retention={"phases": 1})
    await process.run()
    for number in range(3):
        world.cells("flights", f"b{number}")
        world.ask("flights", f"q{number}", AA)
        await process.run()
    await process.settled()
    fault(world.view)
    world.ask("flights", "q0", AA)
    world.ask("flights", "new", {"attribute": "delay", "ge": 10}, window={"last_phases": 1})
    await process.run()
    process.worker.following.compare()
    await process.settled()
    await process.kill()
    assert world.view.states["flights"].number == world.held("flights").seq
    assert world.answer("new")["status"] == "answered"
    assert world.complaints() == []


async def test_a_worker_that_serves_without_redis_forgets_nothing(world: World) -> None:
    """Commits that the bound has dropped come with the state."""
    process = world.process()
    await process.assign()
    world.view_away = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "_MOST_BYTES", 1_000)
        world.define("flights", mechanism={"base_share": 0.0})
        for number in range(5):
            world.cells("flights", f"b{number}")
            world.ask("flights", f"q{number}", AA)
            await process.run()
        assert process.worker.following.behind < 5
    world.view_away = False
    await process.settled()
    await process.kill()
    assert world.view.states["flights"].pairs == world.held("flights").pairs
    assert world.complaints() == []
