"""What a view promises, in memory and on servers; and what only a server can get wrong."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import traceback
from collections import ChainMap, Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

from stream_dp.core.encoding import IDENTITY_BYTES
from stream_dp.errors import StoreError, StoreRefused, StoreUnavailable
from stream_dp.state import redis_view
from stream_dp.state.private_names import Named, part_name
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import BY_ID, ORIGIN, ROTATED, Pair, Pairs, State, StateTable
from stream_dp.state.view import Usage, View, ViewChange
from tests.view import MemoryView
from tests.waiting import until

PREFIX, JOURNAL = "test", "kQ3vJ0XmRz2aZ1b-c_dEfg"
ANSWER = (StateTable.ANSWER, b"ann a1")
OUTCOME = (StateTable.OUTCOME, b"b1")
A, B, C = (bytes([number]) * 16 for number in (0, 7, 255))  # names of private values
A_1, A_2, C_1 = part_name(A, 1), part_name(A, 2), part_name(C, 1)
NAMES = ("state", "answers", "answers-old", "kept")


def key(part: str, dataset: str = "flights", prefix: str = PREFIX) -> str:
    return f"{{{prefix}:{dataset}}}:{part}"


def field(pair: Pair) -> bytes:
    return b"%d " % pair[0] + pair[1]


def view_of(url: str, **options: Any) -> RedisView:
    return RedisView(url, **{"prefix": PREFIX, "journal": JOURNAL, **options})


@contextmanager
def command(url: str) -> Iterator[Any]:
    with redis.Redis.from_url(url) as client:
        yield client


def named(what: str, name: bytes) -> Pair:
    return StateTable.KEPT, f"{what} {name.hex()}".encode()


def naming(name: bytes, n_parts: int = 1) -> bytes:
    return Named(name, tuple(range(n_parts))).to_bytes()


class Owner:
    """An owner of a data set, with the state that the journal has."""

    def __init__(self, dataset: str = "flights") -> None:
        self.state = State(dataset)

    def change(
        self,
        pairs: Pairs | None = None,
        *,
        rotates: bool = False,
        kept: Mapping[bytes, bytes] | None = None,
        gone: Iterable[bytes] = (),
    ) -> ViewChange:
        """The next commit, in its state already.

        Args:
            pairs: What it puts.
            rotates: Whether it begins a generation of answers.
            kept: The parts of the private values that it names for the first time.
            gone: The names of those that it erases.
        """
        puts = dict(pairs or {})
        if rotates:
            puts[ROTATED] = b"%d" % self.state.number
        for name, n_parts in Counter(part[:IDENTITY_BYTES] for part in kept or ()).items():
            puts |= {named("block", name): naming(name, n_parts), named("gone block", name): None}
        known = ChainMap[Pair, Any](puts, self.state.pairs)
        for name in gone:
            there = known.get(named("block", name)) or naming(name)
            puts |= {named("block", name): None, named("gone block", name): there}
        commit = self.state.drafted(puts)
        _, trail = commit.to_bytes()
        assert self.state.apply(commit, trail)
        return ViewChange(commit, trail, kept or {})

    @property
    def place(self) -> tuple[int, bytes]:
        return self.state.number, self.state.trail


async def applied(view: View, changes: Sequence[ViewChange]) -> list[bool]:
    """Has commits applied; returns, for each, whether its data set stands behind its last one."""
    refused = await view.apply(changes)
    return [change.commit.dataset not in refused for change in changes]


class Place:
    """One place where a view is, and what may happen to it there."""

    def __init__(self, kind: str, url: str | None, prefix: str) -> None:
        self.url = url
        self.prefix = prefix
        self._memory = MemoryView()
        self._opened: list[View] = []

    def view(self) -> View:
        """The view, as one more worker would open it."""
        if self.url is None:
            return self._memory
        self._opened.append(view_of(self.url, prefix=self.prefix))
        return self._opened[-1]

    def put(self, pair: Pair, value: bytes | None, dataset: str = "flights") -> None:
        """Puts a pair into a state, past the view."""
        if self.url is not None:
            with command(self.url) as client:
                at = key("state", dataset, self.prefix)
                if value is None:
                    assert client.hdel(at, field(pair)) == 1
                else:
                    client.hset(at, field(pair), value)
        elif value is None:
            del self._memory.states[dataset].pairs[pair]
        else:
            self._memory.states[dataset].pairs[pair] = value

    def lose(self, *datasets: str) -> None:
        """Loses all of some data sets, as FLUSHALL loses it of all."""
        for name in datasets:
            if self.url is None:
                for held in (
                    self._memory.states,
                    self._memory.generations,
                    self._memory.values,
                ):
                    held.pop(name, None)
            else:
                with command(self.url) as client:
                    client.delete(*(key(part, name, self.prefix) for part in NAMES))

    def evict(self, dataset: str) -> None:
        """Loses the state of a data set and nothing else."""
        if self.url is None:
            del self._memory.states[dataset]
        else:
            with command(self.url) as client:
                assert client.delete(key("state", dataset, self.prefix)) == 1

    async def close(self) -> None:
        for view in self._opened:
            await view.close()


@pytest.fixture(params=["memory", "valkey", "redis"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Every place where a view can be. A new one joins by one line."""
    url = None
    if request.param != "memory":
        url = request.getfixturevalue(f"{request.param}_server")
    place = Place(request.param, url, f"test-{tmp_path.name}-{os.getpid()}")
    yield place
    await place.close()


@pytest.fixture
def view(place: Place) -> View:
    return place.view()


@pytest.fixture
async def views() -> AsyncIterator[Callable[..., RedisView]]:
    """``views(url)``: a view that is closed at the end."""
    made: list[RedisView] = []

    def make(url: str, **options: Any) -> RedisView:
        made.append(view_of(url, **options))
        return made[-1]

    yield make
    for view in made:
        await view.close()


# What is applied --------------------------------------------------------------------------------


async def test_of_a_data_set_that_is_not_there_nothing_is_found(view: View) -> None:
    assert await view.state("flights") is None
    assert await view.place(["flights"]) == {}
    assert await view.answers("flights", [ANSWER, OUTCOME]) == {}
    assert await view.kept("flights", [A]) == [None]
    assert await view.cursors("flights", ["queries:0"]) == {}
    assert await view.place([]) == await view.answers("flights", []) == {}
    assert await applied(view, []) == []
    owner = Owner()
    owner.change()
    await view.keep("flights", {A: b"row"}, owner.place)
    assert await view.kept("flights", [A]) == [None]


async def test_a_state_comes_back_as_its_commits_add_it_up(view: View) -> None:
    owner, draws = Owner(), random.Random(7)
    keys = [b"", b" ", b"head", b"a b", bytes(range(256)), *(b"%d" % n for n in range(20))]
    tables = [
        StateTable.FACT,
        StateTable.INTENT,
        StateTable.VERIFIED,
        StateTable.WAITING,
        StateTable.KEPT,
    ]
    for number in range(1, 41):
        pairs: dict[Pair, bytes | None] = {
            (draws.choice(tables), draws.choice(keys)): draws.choice(
                [None, b"", draws.randbytes(draws.randrange(50))]
            )
            for _ in range(10)
        }
        pairs[StateTable.ANSWER, b"%d" % number] = b"an answer"
        pairs[StateTable.TAKEN, b"%d" % number] = b""
        assert await applied(view, [owner.change(pairs)]) == [True]
        assert await view.state("flights") == owner.state
        assert await view.place(["flights", "weather"]) == {"flights": (number, owner.state.trail)}
    assert len(owner.state.pairs) > 40


async def test_changes_of_several_data_sets_go_together_and_one_refusal_stops_its_own_alone(
    view: View,
) -> None:
    flights, weather, trains = (Owner(dataset=name) for name in ("flights", "weather", "trains"))
    weather.change()  # never applied
    changes = [
        flights.change({(StateTable.FACT, b"a"): b"1"}),
        weather.change(),
        trains.change(),
        flights.change({(StateTable.FACT, b"a"): b"2"}),
        weather.change(),
    ]
    assert await applied(view, changes) == [True, False, True, True, False]
    assert await view.state("flights") == flights.state
    assert await view.state("trains") == trains.state
    assert await view.state("weather") is None
    await view.rewrite(weather.state)
    assert await applied(view, [weather.change()]) == [True]


async def test_a_change_that_was_put_may_be_put_again(view: View) -> None:
    owner = Owner()
    first = owner.change({ANSWER: b"answer"}, rotates=True)
    assert await applied(view, [first]) == [True]
    assert await applied(view, [first]) == [True]
    series = [
        owner.change({OUTCOME: b"outcome"}, rotates=True),
        owner.change({(StateTable.FACT, b"a"): b"1"}),
        owner.change({(StateTable.FACT, b"a"): b"2"}),
    ]
    assert await applied(view, series) == [True] * 3
    assert await applied(view, series) == [True] * 3, "as after a lost reply"
    assert await applied(view, [first, *series]) == [True] * 4
    assert await applied(view, series[:1]) == [False], "it is not the last one"
    assert await view.state("flights") == owner.state
    assert await view.answers("flights", [ANSWER, OUTCOME]) == {
        ANSWER: b"answer",
        OUTCOME: b"outcome",
    }


@pytest.mark.parametrize("kind", ["skips", "repeats", "forks", "begins", "trail"])
async def test_a_change_of_another_state_is_refused_and_leaves_no_trace(
    view: View, kind: str
) -> None:
    owner = Owner()
    await applied(view, [owner.change({(StateTable.FACT, b"a"): b"%d" % n}) for n in range(3)])
    await applied(view, [owner.change(kept={B: b"value"})])
    known = owner.state.copied()
    changes: dict[str, Any] = {"rotates": True, "kept": {A: b"new"}, "gone": [B]}
    pairs = {(StateTable.FACT, b"a"): b"other", ANSWER: b"other"}
    of: dict[str, Any] = {}
    if kind == "skips":
        owner.change()
    change = owner.change(pairs, **changes)
    if kind == "repeats":  # another history that led to the same number
        of = {"number": known.number, "prev": ORIGIN}
    elif kind == "forks":
        of = {"prev": b"x" * 32}
    elif kind == "begins":
        change = Owner().change(pairs, **changes)
    elif kind == "trail":  # a digit more in the number and less in the trail is no match
        of = {"number": change.commit.number * 10}
    change = replace(change, commit=replace(change.commit, **of))
    assert await applied(view, [change]) == [False]
    assert await view.state("flights") == known
    assert await view.answers("flights", [ANSWER]) == {}
    assert await view.kept("flights", [A, B]) == [None, b"value"]


async def test_a_change_of_hundred_thousand_words_and_some_megabytes_is_put(view: View) -> None:
    owner = Owner()
    facts: Pairs = {(StateTable.FACT, b"%d" % n): b"x" for n in range(30_000)}
    answers: Pairs = {(StateTable.ANSWER, b"%d" % n): b"y" for n in range(30_000)}
    large: Pairs = {(StateTable.VERIFIED, b"%d" % n): bytes(3_000_000) for n in range(4)}
    kept = {b"%16d" % n: random.Random(n).randbytes(3_000_000) for n in range(4)}
    kept |= {b"%16d" % n: b"rows" for n in range(4, 5_000)}
    kept |= {part_name(b"%16d" % 5_000, n): b"column" for n in range(5_000)}
    assert await applied(view, [owner.change({**facts, **answers, **large}, kept=kept)]) == [True]
    assert await view.state("flights") == owner.state
    assert len(await view.answers("flights", list(answers))) == 30_000
    await view.rewrite(owner.state)
    assert await view.state("flights") == owner.state
    assert len(await view.answers("flights", list(answers))) == 30_000
    assert await view.kept("flights", [*kept]) == [*kept.values()]
    names = {name[:16] for name in kept}
    dropped = owner.change(dict.fromkeys([*facts, *answers, *large]), gone=names)
    assert await applied(view, [dropped]) == [True]
    assert await view.state("flights") == owner.state
    assert {table for table, _ in owner.state.pairs} == {StateTable.KEPT}
    assert await view.answers("flights", list(answers)) == {}
    assert await view.kept("flights", [*kept]) == [None] * len(kept)


# What a repair reads ----------------------------------------------------------------------------


async def test_all_contents_under_ids_are_found_the_newer_generation_last(view: View) -> None:
    assert await view.contents("flights") == {}
    owner = Owner()
    many: Pairs = {(StateTable.ANSWER, b"ann a%d" % n): b"answer %d" % n for n in range(2_500)}
    taken = (StateTable.TAKEN, b"b1")
    first = owner.change({**many, ANSWER: b"older", OUTCOME: b"outcome", taken: b""})
    assert await applied(view, [first]) == [True]
    assert await applied(view, [owner.change({ANSWER: b"newer"}, rotates=True)]) == [True]
    assert await view.contents("flights") == {**many, ANSWER: b"newer", OUTCOME: b"outcome"}
    assert await applied(view, [owner.change(rotates=True)]) == [True]
    assert await view.contents("flights") == {ANSWER: b"newer"}


# Rewriting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_pairs", [0, 1, 20_000])
async def test_a_rewrite_leaves_answers_and_nothing_else_that_was_there(
    view: View, n_pairs: int
) -> None:
    other = Owner()
    pairs = {ANSWER: b"answer", (StateTable.FACT, b"old"): b"x", (StateTable.FACT, b"1"): b"former"}
    await applied(view, [other.change(pairs), other.change({OUTCOME: b"outcome"}, rotates=True)])
    owner = Owner()
    facts: Pairs = {(StateTable.FACT, b"%d" % n): b"%d" % n for n in range(n_pairs)}
    owner.change({ROTATED: other.state.pairs[ROTATED], **facts})
    await view.rewrite(owner.state)
    assert await view.state("flights") == owner.state
    assert await view.place(["flights"]) == {"flights": (owner.state.number, owner.state.trail)}
    assert await view.answers("flights", [ANSWER, OUTCOME]) == {
        ANSWER: b"answer",
        OUTCOME: b"outcome",
    }
    assert await applied(view, [owner.change()]) == [True]


async def test_a_rewrite_puts_the_state_as_of_its_call(view: View) -> None:
    owner = Owner()
    owner.change({(StateTable.FACT, b"%d" % n): b"x" for n in range(10_000)})
    known = owner.state.copied()
    rewriting = asyncio.create_task(view.rewrite(owner.state))
    await asyncio.sleep(0)
    later = owner.change({(StateTable.FACT, b"later"): b"x"})
    await rewriting
    assert await view.state("flights") == known
    assert await applied(view, [later]) == [True]
    assert await view.state("flights") == owner.state


# Private values ---------------------------------------------------------------------------------


async def test_private_values_are_kept_by_name_until_they_are_erased(view: View) -> None:
    owner, names = Owner(), [A, A_1, A_2, B, C]
    values = [b"index", b"row", b"another", b"", bytes(range(256))]
    kept = dict(zip(names, values, strict=True))
    await applied(view, [owner.change(kept=kept)])
    assert await view.kept("flights", names) == values
    assert await view.kept("flights", [C, C_1, A_2, C]) == [values[4], None, values[2], values[4]]
    assert await view.kept("weather", [A, B]) == [None, None]
    assert await view.kept("flights", []) == []
    assert sorted(await view.kept_names("flights")) == sorted(names)
    assert await view.kept_names("weather") == []
    await applied(view, [owner.change(gone=[A, b"unknown".ljust(16)])])
    assert await view.kept("flights", names) == [None, None, None, *values[3:]], "all of its parts"
    await applied(view, [owner.change(kept={A: b"in one commit", A_1: b"x"}, gone=[A])])
    assert await view.kept("flights", [A, A_1]) == [None, None]


async def test_a_private_value_is_kept_later_where_the_view_stands_and_nowhere_else(
    view: View,
) -> None:
    owner = Owner()
    await applied(view, [owner.change(kept={A: b"row"})])
    former = owner.place
    await view.keep("flights", {B: b"late", A_1: b"its second part"}, former)
    await view.keep("flights", {A: b"again"}, former)
    assert await view.kept("flights", [A, A_1, B]) == [b"again", b"its second part", b"late"]
    assert await view.place(["flights"]) == {"flights": former}, "it stays where it is"
    await applied(view, [owner.change(gone=[A])])
    number, trail = owner.place
    for place in (former, (number, former[1]), (number + 1, trail), (number * 10, trail)):
        await view.keep("flights", {A: b"erased", B: b"of another place"}, place)
        assert await view.kept("flights", [A, B]) == [None, b"late"]
    assert await view.state("flights") == owner.state
    assert await applied(view, [owner.change()]) == [True]


@pytest.mark.parametrize("erased", [(), (A,), (A, B), (A, B, C)])
async def test_a_rewrite_erases_every_private_value_that_the_state_does_not_name(
    view: View, erased: Sequence[bytes]
) -> None:
    owner, values = (
        Owner(),
        {A: b"1", A_1: b"1, too", A_2: b"and 1", B: b"2", C: b"3", C_1: b"3, too"},
    )
    await applied(view, [owner.change(kept=values)])
    owner.change(gone=erased)
    await view.rewrite(owner.state)
    found = await view.kept("flights", [*values])
    assert found == [None if name[:16] in erased else value for name, value in values.items()]


async def test_the_first_commit_of_a_data_set_erases_what_is_left_of_a_former_one(
    place: Place, view: View
) -> None:
    """As where a server that evicts has dropped its state alone."""
    former, owner = Owner(), Owner()
    await applied(view, [former.change({ANSWER: b"answer"}, kept={A: b"row"})])
    place.evict("flights")
    assert await applied(view, [owner.change(kept={B: b"new"})]) == [True]
    assert await view.kept("flights", [A, B]) == [None, b"new"]
    assert await view.contents("flights") == {}


# Generations ------------------------------------------------------------------------------------


async def test_a_rotation_keeps_one_former_generation_of_answers(view: View) -> None:
    owner = Owner()
    asked: list[Pair] = [(StateTable.ANSWER, b"%d" % n) for n in range(4)]

    async def found() -> dict[Pair, bytes]:
        return await view.answers("flights", [*asked, OUTCOME])

    await applied(view, [owner.change({asked[0]: b"0", OUTCOME: b"first"})])
    await applied(view, [owner.change({asked[1]: b"1"}, rotates=True)])
    assert await found() == {asked[0]: b"0", asked[1]: b"1", OUTCOME: b"first"}
    await applied(view, [owner.change({OUTCOME: b"second"})])
    assert await found() == {asked[0]: b"0", asked[1]: b"1", OUTCOME: b"second"}
    await applied(view, [owner.change({asked[2]: b"2"}, rotates=True)])
    assert await found() == {asked[1]: b"1", asked[2]: b"2", OUTCOME: b"second"}
    await applied(view, [owner.change(rotates=True)])
    assert await found() == {asked[2]: b"2"}
    await applied(view, [owner.change(rotates=True)])
    assert await found() == {}
    await applied(view, [owner.change(rotates=True), owner.change({asked[3]: b"3"})])
    assert await found() == {asked[3]: b"3"}


async def test_a_rewrite_leaves_no_answers_of_before_the_last_rotation(
    place: Place, view: View
) -> None:
    """As where Redis went back to a copy: they would stay until answers have rotated twice more."""
    owner = Owner()
    await applied(view, [owner.change({ANSWER: b"answer"})])
    await applied(view, [owner.change({OUTCOME: b"outcome"}, rotates=True)])
    for _ in range(2):
        owner.change(rotates=True)  # that the copy lacks
    await view.rewrite(owner.state)
    assert await view.contents("flights") == {}
    owner.change()
    await applied(view, [owner.change({OUTCOME: b"another"}, rotates=True)])
    await view.rewrite(owner.state)
    await applied(view, [owner.change({ANSWER: b"new"})])
    owner.change()
    await view.rewrite(owner.state)
    assert await view.contents("flights") == {ANSWER: b"new"}, "they did not rotate meanwhile"


# What is wrong in a byte ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ((StateTable.SPENT, b"0"), b"10 21"),
        ((StateTable.SPENT, b"0"), b""),
        ((StateTable.SPENT, b"0"), None),
        ((StateTable.SPENT, b"1"), b"10 20"),
        ((StateTable.FACT, b"0"), b"10 20"),
    ],
)
async def test_a_state_that_is_wrong_in_a_byte_counts_as_none_until_it_is_rewritten(
    place: Place, view: View, pair: Pair, value: bytes | None
) -> None:
    owner = Owner()
    await applied(
        view, [owner.change({(StateTable.SPENT, b"0"): b"10 20", (StateTable.FACT, b"a"): b"b"})]
    )
    assert await view.state("flights") == owner.state
    place.put(pair, value)
    assert await view.state("flights") is None
    assert await applied(view, [owner.change({(StateTable.FACT, b"a"): b"c"})]) == [True]
    assert await view.state("flights") is None, "a later commit does not hide it"
    await view.rewrite(owner.state)
    assert await view.state("flights") == owner.state


async def test_cursors_are_found_without_the_state(place: Place, view: View) -> None:
    owner = Owner()
    cursors = {
        (StateTable.CURSOR, b"queries:0"): b"7",
        (StateTable.CURSOR, "Quelle ä".encode()): b"0",
    }
    await applied(view, [owner.change({**cursors, (StateTable.FACT, b"other"): b"9"})])
    place.put((StateTable.FACT, b"other"), b"8")
    asked = ["queries:0", "other", "Quelle ä"]
    assert await view.cursors("flights", asked) == {"queries:0": 7, "Quelle ä": 0}


# All implementations ----------------------------------------------------------------------------


async def test_a_view_that_is_out_of_reach_is_unavailable_in_every_call(make_server: Any) -> None:
    server, memory = make_server(), MemoryView()
    view = view_of(server.url)
    owner = Owner()
    change = owner.change({ANSWER: b"answer"})
    both: Sequence[View] = (view, memory)
    for one in both:
        await applied(one, [change])
    server.kill()
    memory.down = True
    for one in both:
        calls: list[Awaitable[object]] = [
            one.apply([owner.change()]),
            one.rewrite(owner.state),
            one.state("flights"),
            one.place(["flights"]),
            one.answers("flights", [ANSWER]),
            one.kept("flights", [A]),
            one.kept_names("flights"),
            one.keep("flights", {A: b"value"}, owner.place),
            one.cursors("flights", ["queries:0"]),
            one.contents("flights"),
            one.usage(),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call
    server.start()
    memory.down = False
    for one in both:
        await one.rewrite(owner.state)
        assert await one.state("flights") == owner.state
        await one.close()


@pytest.mark.parametrize("seed", range(3))
async def test_a_server_and_memory_say_the_same_of_any_series_of_calls(
    make_server: Any, views: Any, seed: int
) -> None:
    draws = random.Random(seed)
    url = make_server().url
    memory, server = MemoryView(), views(url)
    owners = [Owner(), Owner()]
    history: list[ViewChange] = []
    pairs: list[Pair] = [(t, b"%d" % n) for t in (StateTable.FACT, *BY_ID) for n in range(3)]
    names = [A, A_1, B, C, C_1]
    said: dict[str, set[object]] = {}

    async def same(name: str, *arguments: Any) -> None:
        one, other = [await getattr(view, name)(*arguments) for view in (memory, server)]
        assert one == other, (name, arguments)
        said.setdefault(name, set()).add(repr(one))

    for _ in range(400):
        owner = draws.choice(owners)
        kind = draws.choice(["next"] * 4 + ["old"] * 2 + ["rewrite", "follow", "keep"])
        if kind == "next":
            history += [
                owner.change(
                    {p: draws.choice([b"x", b"y", None]) for p in draws.sample(pairs, 3)},
                    rotates=draws.random() < 0.2,
                    kept=dict.fromkeys(draws.choice([[A], [A, A_1], [B], [C, C_1]]), b"v"),
                    gone=draws.sample([A, B, C], draws.randrange(2)),
                )
                for _ in range(draws.randrange(1, 3))
            ]
            await same("apply", history[-2:])
        elif kind == "old" and history:
            await same("apply", [draws.choice(history[-4:])])
        elif kind == "rewrite":
            await same("rewrite", owner.state)
        elif kind == "keep":
            some = dict.fromkeys(draws.sample(names, draws.randrange(3)), b"kept")
            await same("keep", "flights", some, owner.place)
        elif kind == "follow":
            owners = [owner, copy.deepcopy(owner)]
        await same("state", "flights")
        await same("place", ["flights", "weather"])
        await same("answers", "flights", pairs[3:])
        await same("contents", "flights")
        await same("kept", "flights", names)
        for name in names:
            await same("kept", "flights", [name])
    assert said["apply"] == {"set()", "{'flights'}"}
    assert min(len(said[name]) for name in ("state", "answers")) > 20
    assert said["kept"] > {"[None]", "[b'v']", "[b'kept']"}


# Servers: keys ----------------------------------------------------------------------------------


async def test_every_key_of_a_data_set_is_in_one_slot_and_has_no_time_to_live(
    make_server: Any, views: Any, dump: Any
) -> None:
    url = make_server().url
    view = views(url)
    for name in ("flights", "weather"):
        owner = Owner(dataset=name)
        await applied(view, [owner.change({ANSWER: b"answer"}, kept={A: b"row"})])
        await applied(view, [owner.change({ANSWER: b"answer"}, rotates=True)])
        await view.rewrite(owner.state)
        await applied(view, [owner.change({(StateTable.FACT, b"a"): b"b"})])
    contents = dump(url, f"{{{PREFIX}")
    with command(url) as client:
        assert client.dbsize() == len(contents)
    expected = {key(part, name).encode() for part in NAMES for name in ("flights", "weather")}
    assert contents.keys() == expected
    assert {ttl for _, ttl, _ in contents.values()} == {-1}
    for name in ("flights", "weather"):
        tag = f"{PREFIX}:{name}".encode()
        assert {key_slot(key(part, name).encode()) for part in NAMES} == {key_slot(tag)}


async def test_of_a_former_journal_nothing_stays_once_a_data_set_is_on_the_new_one(
    make_server: Any, views: Any, dump: Any
) -> None:
    url = make_server().url
    former, owner = Owner(), Owner()
    facts: list[Pairs] = [{(StateTable.FACT, b"%d" % n): b"former"} for n in range(3)]
    changes = [former.change({ANSWER: b"former", **f}, kept={A: b"former"}) for f in facts]
    assert all(await applied(views(url), changes))
    view = views(url, journal="another")
    assert await applied(view, [owner.change({(StateTable.FACT, b"a"): b"b"})]) == [False]
    await view.rewrite(owner.state)
    assert await applied(view, [owner.change({OUTCOME: b"outcome"})]) == [True]
    assert "former" not in str(dump(url, ""))
    assert await view.contents("flights") == {OUTCOME: b"outcome"}
    assert await view.state("flights") == owner.state
    assert await views(url, prefix="another").place(["flights"]) == {}


@pytest.mark.parametrize("prefix", ["", "a{b", "a}"])
async def test_a_prefix_or_name_that_would_break_the_hash_tag_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="braces"):
        view_of("redis://127.0.0.1:1", prefix=prefix)
    if prefix:
        view = view_of("redis://127.0.0.1:1")
        with pytest.raises(ValueError, match="braces"):
            await view.state(prefix)
        await view.close()


@pytest.mark.parametrize("part", NAMES)
async def test_a_key_that_something_else_has_written_is_refused_and_then_rewritten(
    make_server: Any, views: Any, part: str
) -> None:
    url = make_server().url
    view = views(url)
    owner = Owner()
    await applied(view, [owner.change({ANSWER: b"answer"})])
    await view.rewrite(owner.state)
    with command(url) as client:
        client.delete(key(part))
        client.set(key(part), "something else")
    await view.state("flights")
    await view.place(["flights"])
    await view.answers("flights", [ANSWER])
    await view.kept("flights", [A])
    await view.keep("flights", {C: b"late"}, owner.place)
    await view.cursors("flights", ["queries:0"])
    pairs = {ANSWER: b"answer", (StateTable.FACT, b"a"): b"b"}
    change = owner.change(pairs, kept={B: b"new"})
    harmless = part == "answers-old"  # what the change does not write
    assert await applied(view, [change]) == [harmless]
    await view.rewrite(owner.state)
    assert await view.state("flights") == owner.state
    change = owner.change(pairs, rotates=True, kept={C: b"newer"}, gone=[A])
    assert await applied(view, [change]) == [True]
    assert await view.answers("flights", [ANSWER]) == {ANSWER: b"answer"}
    assert await view.kept("flights", [A, C]) == [None, b"newer"]


@pytest.mark.parametrize(
    "head",
    [
        "",
        "x",
        "5 1",
        "x 1 {trail} {sum}",
        "5 x {trail} {sum}",
        "5 1 {trail}00 {sum}",
        "5 1 {trail} {sum}0",
        "5 1 {trail}",
        None,
    ],
)
async def test_a_head_that_does_not_decode_counts_as_no_state_and_is_rewritten(
    make_server: Any, views: Any, head: str | None
) -> None:
    url = make_server().url
    view = views(url)
    owner = Owner()
    await applied(view, [owner.change({(StateTable.FACT, b"a"): b"b"})])
    with command(url) as client:
        if head is None:
            client.hdel(key("state"), "head")
        else:
            trail, of = owner.state.trail.hex(), f"{owner.state.sum:032x}"
            client.hset(key("state"), "head", head.format(trail=trail, sum=of))
    assert await view.state("flights") is None
    assert await view.place(["flights"]) == {}
    await view.rewrite(owner.state)
    assert await view.state("flights") == owner.state


@pytest.mark.parametrize("name", [b"99 a", b"x a", b"", b"20 ann a1", b"\xff"])
async def test_a_field_that_is_no_pair_of_a_state_makes_it_none(
    make_server: Any, views: Any, name: bytes
) -> None:
    url = make_server().url
    view = views(url)
    owner = Owner()
    await applied(view, [owner.change({(StateTable.FACT, b"a"): b"b"})])
    with command(url) as client:
        client.hset(key("state"), name, "x")
    assert await view.state("flights") is None


async def test_a_cursor_that_is_no_number_is_missing(make_server: Any, views: Any) -> None:
    url = make_server().url
    view = views(url)
    owner = Owner()
    await applied(
        view, [owner.change({(StateTable.CURSOR, b"a"): b"7", (StateTable.CURSOR, b"b"): b"8"})]
    )
    with command(url) as client:
        client.hset(key("state"), "3 a", "x")
    assert await view.cursors("flights", ["a", "b"]) == {"b": 8}


# Servers: what they do and say ------------------------------------------------------------------


async def test_many_changes_take_one_round_trip(
    make_server: Any, views: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    class Counted(redis.asyncio.Redis):
        def pipeline(self, *arguments: Any, **options: Any) -> Any:
            sent.append(1)
            return super().pipeline(*arguments, **options)

        async def execute_command(self, *arguments: Any, **options: Any) -> Any:
            sent.append(1)
            return await super().execute_command(*arguments, **options)

    url = make_server().url
    client, view = Counted.from_url(url), views(url)
    monkeypatch.setattr(view, "_client", client)
    owners = [Owner(dataset=f"set-{n}") for n in range(50)]
    assert all(
        await applied(view, [owner.change() for owner in owners])
    )  # the script comes to know
    sent.clear()
    changes = [owner.change({ANSWER: b"a"}) for _ in range(3) for owner in owners]
    assert await applied(view, changes) == [True] * 150
    assert len(sent) == 1
    assert len(await view.place([owner.state.dataset for owner in owners])) == 50
    assert await view.answers("set-7", [ANSWER]) == {ANSWER: b"a"}
    assert len(sent) == 3
    await client.aclose()


async def test_connections_that_were_closed_are_opened_again(make_server: Any, views: Any) -> None:
    url = make_server().url
    view = views(url)
    owner = Owner()
    assert await applied(view, [owner.change()]) == [True]
    for _ in range(3):
        with command(url) as client:
            assert client.client_kill_filter(_type="normal", skipme=True) >= 1
        assert await applied(view, [owner.change(), owner.change()]) == [True, True]
    assert await view.state("flights") == owner.state


async def test_a_view_that_is_closed_has_no_connections(make_server: Any) -> None:
    view = view_of(make_server().url)
    assert await view.place(["flights"]) == {}
    opened = view._client.connection_pool._available_connections
    assert [one.is_connected for one in opened] == [True]
    await view.close()
    assert not any(one.is_connected for one in opened)


async def test_a_server_that_evicts_is_served_as_any_other(make_server: Any, views: Any) -> None:
    url = make_server(maxmemory_policy="allkeys-random", appendonly="no").url
    view = views(url)
    with command(url) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 8_000_000)
    owners = [Owner(dataset=f"set-{n}") for n in range(20)]
    refused = 0
    for round_ in range(20):
        for owner in owners:
            value = random.Random(round_).randbytes(50_000)
            pairs: Pairs = {
                (StateTable.ANSWER, b"%d" % round_): value,
                (StateTable.FACT, b"a"): value,
            }
            if not (await applied(view, [owner.change(pairs)]))[0]:
                refused += 1
                await view.rewrite(owner.state)
            found = await view.state(owner.state.dataset)
            assert found is None or found == owner.state
    assert refused > 0
    used = await view.usage()
    assert used.memory < 1.5 * used.limit


@pytest.mark.parametrize("options", ["?protocol=2", "?protocol=3", "cluster"])
async def test_both_protocol_versions_and_a_cluster_work_alike(
    make_server: Any, views: Any, options: str
) -> None:
    is_cluster = options == "cluster"
    of = {"cluster_enabled": "yes", "cluster_require_full_coverage": "no"} if is_cluster else {}
    url = make_server(**of).url
    with command(url) as client:
        if is_cluster:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    view = views(url, cluster=True) if is_cluster else views(url + options)
    owners = [Owner(dataset=name) for name in ("flights", "weather", "trains")]
    pairs = {ANSWER: b"answer", (StateTable.CURSOR, b"a"): b"1"}
    changes = [
        owner.change({**pairs, (StateTable.FACT, b"%d" % n): b"x"}, kept={A: b"value"})
        for n in range(20)
        for owner in owners
    ]
    assert await applied(view, changes) == [True] * 60
    with command(url) as plain:
        plain.script_flush()
    assert await applied(view, [owner.change(rotates=True) for owner in owners]) == [True] * 3
    for owner in owners:
        name = owner.state.dataset
        await view.rewrite(owner.state)
        assert await view.state(name) == owner.state
        assert await view.answers(name, [ANSWER]) == {ANSWER: b"answer"}
        assert await view.kept(name, [A]) == [b"value"]
        assert await view.cursors(name, ["a"]) == {"a": 1}
    assert set(await view.place([owner.state.dataset for owner in owners])) == {
        "flights",
        "weather",
        "trains",
    }
    assert (await view.usage()).memory > 0


async def test_it_says_what_it_has_used_of_its_own_limit_or_of_its_host(
    make_server: Any, views: Any
) -> None:
    url = make_server().url
    view = views(url)
    before = await view.usage()
    assert before.limit > before.memory > 0
    with command(url) as client:
        client.config_set("maxmemory", 1 << 30)
        client.config_set("maxmemory-policy", "allkeys-lru")
    await applied(view, [Owner().change({ANSWER: b"x" * 1_500_000})])
    after = await view.usage()
    assert after.limit == 1 << 30
    assert 1_500_000 <= after.memory - before.memory < 15_000_000  # with buffers of clients


async def test_of_a_cluster_the_node_with_the_least_left_is_told(monkeypatch: Any) -> None:
    class Node:
        def __init__(self, used: int, limit: int) -> None:
            self.info = {
                "used_memory": str(used),
                "mem_not_counted_for_evict": "10",
                "maxmemory": str(limit),
            }

        async def execute_command(self, _: str) -> dict[str, str]:
            return self.info

    async def nodes(_: object) -> list[Any]:
        return [Node(510, 10_000), Node(410, 500), Node(610, 1_000)]

    monkeypatch.setattr(redis_view, "nodes", nodes)
    view = view_of("redis://127.0.0.1:1")
    assert await view.usage() == Usage(400, 500)
    await view.close()


SECRET = b"the-row-of-a-person"


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        (["CONFIG SET", "maxmemory", "1"], StoreRefused, "out of memory"),
        (["CONFIG SET", "min-replicas-to-write", "1"], StoreRefused, "lacks the replicas"),
        (["REPLICAOF", "127.0.0.1", "1"], StoreRefused, "is a replica"),
        (["ACL SETUSER", "default", "-evalsha", "-eval"], StoreRefused, "denies our user"),
        (["ACL SETUSER", "default", "-hset"], StoreError, "refuse"),
        (["ACL SETUSER", "default", ">password"], StoreRefused, "user or password"),
    ],
)
async def test_no_error_says_what_was_to_be_stored(
    make_server: Any, settings: list[str], kind: type[StoreError], words: str
) -> None:
    url, owner = make_server().url, Owner()
    view = view_of(url)
    assert await applied(view, [owner.change()]) == [True]
    await view.close()
    with command(url) as client:
        if settings[-1] == ">password":
            settings = ["ACL SETUSER", "default", "resetpass", ">password"]
        client.execute_command(*settings[0].split(" "), *settings[1:])
    place, view = owner.place, view_of(url)
    change = owner.change({(StateTable.FACT, b"a"): SECRET, ANSWER: SECRET}, kept={A: SECRET})
    calls: list[Awaitable[object]] = [
        view.apply([change]),
        view.keep("flights", {A: SECRET}, place),
    ]
    if words != "out of memory":  # a script that has dropped something may write something instead
        calls.append(view.rewrite(owner.state))
    for call in calls:
        with pytest.raises(kind, match=words) as caught:
            await call
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)
        assert SECRET.decode() not in shown
        assert SECRET.hex() not in shown
    assert SECRET.decode() not in repr(change) + repr(owner.state)
    await view.close()
