"""The index of ids says what a dictionary would say, in 28 bytes an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.errors import CorruptState
from stream_dp.state import ids as module
from stream_dp.state.ids import NOWHERE, IdPlace, Ids
from stream_dp.state.schema import Pair, StateTable
from tests.indexes import counts

ANSWER, OUTCOME, TAKEN = StateTable.ANSWER, StateTable.OUTCOME, StateTable.TAKEN
LARGEST = 2**48 - 2
"""The largest offset."""


def digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=6).digest()


def key(number: int) -> bytes:
    return b"id %d" % number


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few ids, so that a test has many of them."""
    monkeypatch.setattr(module, "_NEWEST", 4)
    monkeypatch.setattr(module, "_MERGED", 40)


def filled(n: int, table: StateTable = ANSWER, *, start: int = 0) -> Ids:
    index = Ids()
    for number in range(start, start + n):
        index.put({(table, key(number)): b"value %d" % number}, number)
    return index


def found(index: Ids | Model, *pair: Any) -> IdPlace | None:
    return index.find([pair]).get(pair)


def n_runs(index: Ids) -> int:
    return max(len(places._runs) for places in index._all())


# What it says.


def test_a_copy_fits_only_if_it_is_the_content() -> None:
    index = Ids()
    index.put({(ANSWER, b"x"): b"an answer"}, 7)
    (found,) = index.find([(ANSWER, b"x")]).values()
    assert found.fits(b"an answer")
    assert not found.fits(b"another one")
    assert not IdPlace(NOWHERE, b"").fits(b"")


@pytest.mark.parametrize("offset", [-1, LARGEST + 1])
def test_an_offset_out_of_range_is_refused_and_changes_nothing(offset: int) -> None:
    index = filled(1)
    with pytest.raises(ValueError, match="no record"):
        index.put({(ANSWER, key(0)): b"new"}, offset)
    with pytest.raises(ValueError, match="no record"):
        index.move((ANSWER, key(0)), offset)
    assert found(index, ANSWER, key(0)) == IdPlace(0, digest(b"value 0"))


def test_a_table_that_is_not_found_by_id_is_refused() -> None:
    index = Ids()
    calls: list[Callable[[], Any]] = [
        lambda: index.put({(StateTable.FACT, b"x"): b""}, 1),
        lambda: index.move((StateTable.FACT, b"x"), 1),
        lambda: index.find([(StateTable.FACT, b"x")]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="no table FACT"):
            call()


# Generations.


@pytest.mark.usefixtures("small")
def test_an_id_that_is_taken_stays_so_for_ever_and_its_outcome_is_said_while_it_is_kept() -> None:
    index = Ids()
    for number in range(50):
        index.put({(OUTCOME, key(number)): b"done"}, number)
        index.put({(TAKEN, key(number)): b""}, number)
        index.put({(TAKEN, key(number)): b""}, number + 1)
    assert found(index, OUTCOME, key(3)) == IdPlace(3, digest(b"done"))
    assert found(index, TAKEN, key(3)) == IdPlace(NOWHERE, b"")
    for _ in range(3):
        index.rotate()
        index.move((TAKEN, key(3)), 99)
    assert found(index, OUTCOME, key(3)) == found(index, TAKEN, key(3)) == IdPlace(NOWHERE, b"")
    assert found(index, ANSWER, key(3)) is None
    assert found(index, OUTCOME, key(50)) is None
    assert counts(index) == [0, 0, 0, 0, 50]
    assert index.below(LARGEST) == 0


# It says what a dictionary would say.


class Model:
    """The same with dictionaries."""

    def __init__(self) -> None:
        self.current: dict[Pair, tuple[bytes, int]] = {}
        self.previous: dict[Pair, tuple[bytes, int]] = {}
        self.taken: set[bytes] = set()

    def put(self, contents: Mapping[Pair, bytes], offset: int) -> None:
        for pair, value in contents.items():
            if pair[0] is TAKEN:
                self.taken.add(pair[1])
            else:
                self.previous.pop(pair, None)
                self.current[pair] = (value, offset)

    def move(self, pair: Pair, offset: int) -> None:
        for kept in (self.current, self.previous):
            if pair in kept:
                kept[pair] = (kept[pair][0], offset)

    def rotate(self) -> None:
        self.current, self.previous = {}, self.current

    def find(self, pairs: Iterable[Pair]) -> dict[Pair, IdPlace]:
        found = {}
        for pair in pairs:
            kept = {**self.current, **self.previous}.get(pair)
            if kept is not None:
                found[pair] = IdPlace(kept[1], digest(kept[0]))
            elif pair[0] is not ANSWER and pair[1] in self.taken:
                found[pair] = IdPlace(NOWHERE, b"")
        return found

    def counts(self) -> list[int]:
        numbers = [
            sum(pair[0] is table for pair in kept)
            for table in (ANSWER, OUTCOME)
            for kept in (self.current, self.previous)
        ]
        return [*numbers, len(self.taken)]

    def below(self, end: int) -> int:
        kept = {**self.current, **self.previous}
        return sum(offset < end for _, offset in kept.values())

    def first(self) -> int | None:
        kept = {**self.current, **self.previous}
        return min((offset for _, offset in kept.values()), default=None)


def same_first_bytes(table: StateTable, key: bytes) -> bytes:
    """Ids whose hashes differ in one of the last bytes alone."""
    return bytes(8) + bytes((table,)) + key.ljust(7)


def many_zeros(table: StateTable, key: bytes) -> bytes:
    """Hashes that end with zero bytes, and one that has no other."""
    number = int(key.split()[1]) * 3 + table - ANSWER
    return number.to_bytes(1).ljust(16, b"\0")


KEYS = [key(number) for number in range(25)]
PAIRS = st.tuples(st.sampled_from([ANSWER, OUTCOME, TAKEN]), st.sampled_from(KEYS))
CONTENTS = st.dictionaries(PAIRS, st.binary(max_size=1), max_size=6)
OFFSETS = st.one_of(st.integers(0, 40), st.just(LARGEST))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), CONTENTS, OFFSETS),
        st.tuples(st.just("put"), CONTENTS, OFFSETS),
        st.tuples(st.just("move"), PAIRS, OFFSETS),
        st.tuples(st.sampled_from(["rotate", "compact", "bytes"])),
    ),
    max_size=150,
)
EVERY = [(table, each) for each in KEYS for table in (ANSWER, OUTCOME, TAKEN)]
ALL = [("put", {pair: b""}, 1) for pair in EVERY]


@pytest.mark.parametrize("hashed", [module._hash, same_first_bytes, many_zeros])
@given(steps=STEPS)
@example(steps=[*ALL, ("rotate",), *ALL[::2], ("bytes",), *ALL[::3], ("rotate",), *ALL[::5]])
def test_it_agrees_with_dictionaries(
    hashed: Callable[[StateTable, bytes], bytes], steps: list[tuple[Any, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NEWEST", 3)
        patch.setattr(module, "_MERGED", 12)
        patch.setattr(module, "_hash", hashed)
        index, model = Ids(), Model()
        for name, *arguments in steps:
            if name == "bytes":
                index = Ids.from_bytes(index.to_bytes())
            else:
                getattr(index, name)(*arguments)
                getattr(model, name, lambda: None)(*arguments)
            assert counts(index) == model.counts()
        for end in (0, 1, 7, 41, LARGEST, LARGEST + 1):
            assert index.below(end) == model.below(end)
        assert index.first() == model.first()
        expected = model.find(EVERY)
        assert index.find(EVERY) == expected
        for pair in EVERY:
            assert found(index, *pair) == expected.get(pair)
            assert index.is_at(pair, 1) is (pair in expected and expected[pair].offset == 1)


# Memory and time.


def test_an_id_takes_28_bytes_and_one_that_is_taken_16() -> None:
    index = filled(10_000)
    assert 10_000 * 28 <= index.n_bytes <= 10_000 * 28 + 4096 * 200
    index.compact()
    assert index.n_bytes == 10_000 * 28
    index = filled(10_000, TAKEN)
    index.compact()
    assert index.n_bytes == 10_000 * 16
    assert Ids.from_bytes(index.to_bytes()).n_bytes == 10_000 * 16


@pytest.mark.usefixtures("small")
def test_there_are_few_runs_and_putting_never_merges_many_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merge, merged = module._merged, []

    def counting(runs: list[module._Run]) -> module._Run:
        run = merge(runs)
        merged.append(len(run[0]))
        return run

    monkeypatch.setattr(module, "_merged", counting)
    index = filled(400)
    assert max(merged) <= 40
    assert 10 <= n_runs(index) <= 20, "runs of 20 to 40, and a few smaller ones"
    index.compact()
    assert n_runs(index) == 1
    assert max(merged) == 400
    merged.clear()
    index.compact()
    index.to_bytes()
    assert not merged, "it is compact already"
    monkeypatch.setattr(module, "_MERGED", 1000)
    assert n_runs(filled(999)) <= 8, "each is more than twice as large as the next"
    assert sum(merged) <= 10 * 999, "an id is merged some few times"


# As bytes.


def mixed() -> Ids:
    index = filled(3)
    index.rotate()
    for number in range(3, 6):
        index.put({(ANSWER, key(number)): b""}, number)
        index.put({(OUTCOME, key(number)): b""}, number)
        index.put({(TAKEN, key(number)): b""}, number)
    return index


@pytest.mark.usefixtures("small")
def test_the_bytes_follow_from_what_it_says_and_not_from_how_it_came_to_be() -> None:
    one, other = filled(20), Ids()
    for number in reversed(range(20)):
        other.put({(ANSWER, key(number)): b""}, 77)
        other.compact()
        other.put({(ANSWER, key(number)): b"value %d" % number}, number)
    assert one.to_bytes() == other.to_bytes()
    assert Ids.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()


def test_an_index_that_was_read_can_be_changed() -> None:
    data = mixed().to_bytes()
    index = Ids.from_bytes(data)
    index.put({(ANSWER, key(0)): b"new"}, 50)
    index.move((ANSWER, key(1)), 60)
    assert index.is_at((ANSWER, key(0)), 50)
    assert index.is_at((ANSWER, key(1)), 60)
    assert counts(index) == [4, 2, 3, 0, 3]
    assert data == mixed().to_bytes()


def broken() -> Iterator[Any]:
    data = mixed().to_bytes()
    first = 1 + 8  # after the version and the number of answers
    ids, places = slice(first, first + 48), slice(first + 48, first + 84)
    yield pytest.param(data + b"\0", "bytes after its end", id="trailing")
    yield pytest.param(b"\2" + data[1:], "version unknown", id="version")
    yield pytest.param(b"\1" + b"\xff" * 8 + data[first:], "cut short", id="number")
    hashes = [data[ids][at : at + 16] for at in (0, 16, 32)]
    assert hashes == sorted(hashes)
    for name, order in {"reversed": (2, 1, 0), "last two": (0, 2, 1), "twice": (0, 1, 1)}.items():
        other = b"".join(hashes[at] for at in order)
        yield pytest.param(data[:first] + other + data[ids.stop :], "not in order", id=name)
    for name, place in {"gone": b"\xff" * 12, "offset": b"\xff" * 6 + bytes(6)}.items():
        other = place + data[places][12:]
        changed = data[: places.start] + other + data[places.stop :]
        yield pytest.param(changed, "offset that it cannot have", id=name)


@pytest.mark.parametrize(("data", "problem"), list(broken()))
def test_broken_bytes_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptState, match=f"a stored index of ids .*{problem}"):
        Ids.from_bytes(data)
