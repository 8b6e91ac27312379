"""Commits make a chain, and add up to one state, whose sum finds any changed byte."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.encoding import fields, part
from stream_dp.errors import CorruptState
from stream_dp.state import schema
from stream_dp.state.private_names import Named
from stream_dp.state.schema import (
    BY_ID,
    ERASED,
    NONCE_BYTES,
    ORIGIN,
    Checkpoint,
    Commit,
    Pair,
    Pairs,
    State,
    StateTable,
    sum_of,
    weight,
)

CURSOR, SPENT, FACT, INTENT = (
    StateTable.CURSOR,
    StateTable.SPENT,
    StateTable.FACT,
    StateTable.INTENT,
)
IN_STATE = [table for table in StateTable if table not in BY_ID]

THREE: list[Pairs] = [
    {(StateTable.DEFINITION, b""): b"{}", (CURSOR, b"queries:0"): b"1"},
    {
        (SPENT, b"1"): b"1024 0",
        (INTENT, b"2"): b"[]",
        (CURSOR, b"queries:0"): b"1",
        (StateTable.KEPT, b"block 1"): b"name",
    },
    {
        (INTENT, b"2"): None,
        (StateTable.TRANSCRIPT, b"0"): b"\x01r",
        (StateTable.ANSWER, b"ana q1"): b"d{}",
        (StateTable.TAKEN, b"b1"): b"",
        (CURSOR, b"queries:0"): b"2",
    },
]
"""Three commits: one that defines a data set, one that charges, and one that answers."""

FROZEN = [
    (
        "a2f13cbc2341c51d2113bc14043b25e06ac7c5b1167087f87965f5f7a0a32e5b",
        "5ea7353d9d1825ca814844621781037c",
    ),
    (
        "561b9c4caf925f6c561569f237e8b3c5a97114e0b3e2088f2b1f0636555d0bb5",
        "49901e463eeb661cfd90c82ad9724f1f",
    ),
    (
        "0c94ffdeedacb66baa60ce1d4bf51213f804074240eacbb53bb0074c387c07c0",
        "5c6cd91b7ddd1c9277f463d7e2937e4c",
    ),
]
"""The trail and the sum after each of them. They may never change."""


def nonce(number: int) -> bytes:
    return bytes((number,)) * NONCE_BYTES


def committed(state: State, pairs: Pairs, *, number: int = 0, out: bytes = b"") -> Commit:
    """A commit that was made and applied."""
    commit = state.drafted(pairs, nonce=nonce(number), out=out)
    _, trail = commit.to_bytes()
    assert state.apply(commit, trail)
    return commit


def chain() -> tuple[State, list[Commit]]:
    """The state after the three commits, and the commits."""
    state = State("flights")
    return state, [committed(state, pairs, number=n) for n, pairs in enumerate(THREE)]


def applied(state: State, commit: Commit) -> bool:
    return state.apply(commit, commit.to_bytes()[1])


# The chain.


def test_trails_and_sums_are_the_same_in_every_release() -> None:
    state, found = State("flights"), []
    for number, pairs in enumerate(THREE):
        committed(state, pairs, number=number, out=b"out")
        found.append((state.trail.hex(), f"{state.sum:032x}"))
    assert found == FROZEN


def test_a_trail_is_a_digest_of_the_one_before_it_and_of_all_that_the_commit_says() -> None:
    state = State("flights", 7, bytes(range(32)))
    commit = state.drafted({(FACT, b"a"): b"1", (FACT, b"b"): None}, nonce=nonce(3), out=b"out")
    content = (
        part(b"flights")
        + fields(">Q", 8)
        + bytes(range(32))
        + nonce(3)
        + weight((FACT, b"a"), b"1").to_bytes(16)
        + part(b"out")
        + fields(">I", 2)
        + (b"\x02" + part(b"a") + part(b"1"))
        + (b"\x02" + part(b"b") + part(None))
    )
    stored, trail = commit.to_bytes()
    assert zlib.decompress(stored[1:]) == content
    assert trail == hashlib.sha256(bytes(range(32)) + content).digest()


def test_a_commit_comes_back_with_its_trail() -> None:
    state = State("fl\u00fcge", 2**40, bytes(range(32)))
    pairs = {(table, b"key %d" % table): b"\x00" * table for table in StateTable}
    commit = state.drafted({**pairs, (FACT, b""): None, (FACT, b"x"): b""}, out=b"out")
    stored, trail = commit.to_bytes()
    assert Commit.from_bytes(stored) == (commit, trail)


def test_whatever_changes_in_a_commit_changes_its_trail() -> None:
    commit = State("flights").drafted({(FACT, b"a"): b"1"}, nonce=nonce(0))
    others: list[Commit] = [
        replace(commit, dataset="flight"),
        replace(commit, number=2),
        replace(commit, prev=bytes(31) + b"\x01"),
        replace(commit, nonce=nonce(1)),
        replace(commit, sum=commit.sum + 1),
        replace(commit, out=b"o"),
        replace(commit, pairs={(FACT, b"a"): b"2"}),
        replace(commit, pairs={(FACT, b"a"): None}),
        replace(commit, pairs={(FACT, b"a1"): b""}),
        replace(commit, pairs={(INTENT, b"a"): b"1"}),
        replace(commit, pairs={}),
    ]
    assert len(others) > len(inspect.signature(Commit).parameters) - 1
    assert len({one.to_bytes()[1] for one in [commit, *others]}) == len(others) + 1


def test_two_workers_that_decide_the_same_make_two_histories() -> None:
    one, other = (State("flights").drafted({(FACT, b"a"): b"1"}) for _ in range(2))
    assert one.nonce != other.nonce
    assert one.to_bytes()[1] != other.to_bytes()[1]


# What continues a state.


def test_commits_add_up_to_pairs_without_what_is_found_by_its_id() -> None:
    state, commits = chain()
    assert state.pairs == {
        (StateTable.DEFINITION, b""): b"{}",
        (CURSOR, b"queries:0"): b"2",
        (SPENT, b"1"): b"1024 0",
        (StateTable.KEPT, b"block 1"): b"name",
        (StateTable.TRANSCRIPT, b"0"): b"\x01r",
    }
    assert (state.number, state.trail) == (3, commits[-1].to_bytes()[1])
    assert sum_of(state.pairs) == state.sum
    assert dict(commits[-1].by_id()) == {
        (StateTable.ANSWER, b"ana q1"): b"d{}",
        (StateTable.TAKEN, b"b1"): b"",
    }


def test_a_commit_that_is_there_already_is_a_repeat_and_changes_nothing() -> None:
    state, commits = chain()
    before = state.copied()
    for commit in commits:
        assert not applied(state, commit)
    assert state == before


def after(state: State, pairs: Pairs) -> Commit:
    """A commit to be refused: its number, trail and sum are right."""
    return state.drafted(pairs, nonce=nonce(9))


def refused(state: State, commit: Commit, why: str) -> None:
    before = state.copied()
    with pytest.raises(CorruptState, match=rf"^flights: .*{why}"):
        applied(state, commit)
    assert state == before, "nothing is taken of it"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 5}, "commit 5 does not continue commit 3"),  # a gap
        ({"prev": bytes(32)}, "commit 4 does not continue commit 3"),
        ({"prev": ORIGIN[:31] + b"\x01"}, "commit 4 does not continue commit 3"),
        ({"dataset": "trains"}, "commit 4 does not continue commit 3"),
        ({"sum": 0}, "commit 4 was made of another state"),
        ({"pairs": {(FACT, b"a"): b"2"}}, "commit 4 was made of another state"),
    ],
)
def test_a_commit_of_another_history_is_refused(change: Any, why: str) -> None:
    state, _ = chain()
    refused(state, replace(after(state, {(FACT, b"a"): b"1"}), **change), why)


def test_a_commit_of_a_fork_is_refused_by_what_lies_behind_the_fork() -> None:
    one, other = State("flights"), State("flights")
    committed(one, {(FACT, b"a"): b"1"}, number=1)
    committed(other, {(FACT, b"a"): b"1"}, number=2)
    assert (one.pairs, one.sum) == (other.pairs, other.sum)
    refused(one, after(other, {(FACT, b"a"): b"2"}), "does not continue")


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ({(StateTable.DEFINITION, b""): b"{ }"}, "a definition would change"),
        ({(StateTable.TRANSCRIPT, b"0"): b"other"}, "a transcript would change"),
        ({(CURSOR, b"queries:0"): b"1"}, "a cursor would go backwards"),
        ({(CURSOR, b"queries:0"): None}, "a cursor does not decode"),
        ({(CURSOR, b"queries:0"): b""}, "a cursor does not decode"),
        ({(CURSOR, b"queries:0"): b"x"}, "a cursor does not decode"),
        ({(CURSOR, b"queries:0"): b"3 4"}, "a cursor does not decode"),
        ({(CURSOR, b"queries:1"): b"-1"}, "a cursor does not decode"),
        ({(SPENT, b"1"): b"1023 0"}, "a spent would go backwards"),
        ({(SPENT, b"1"): b"999 0"}, "a spent would go backwards"),
        ({(SPENT, b"1"): b"1025"}, "a spent does not decode"),
        ({(SPENT, b"1"): b"1025 -1"}, "a spent does not decode"),
        ({(SPENT, b"1"): None}, "a spent does not decode"),
        ({(SPENT, b"2"): b""}, "a spent does not decode"),
        ({(SPENT, b"2"): b"x 1"}, "a spent does not decode"),
        ({(SPENT, b"1"): b"%d 0" % (UNITS + 1)}, "more than the line of block 1 is spent"),
        ({(SPENT, b"2"): b"0 %d" % (UNITS + 1)}, "more than the line of block 2 is spent"),
    ],
)
def test_what_no_commit_may_do_is_refused(pairs: Pairs, why: str) -> None:
    state, _ = chain()
    refused(state, after(state, pairs), why)
    good = committed(state, {(FACT, b"a"): b"1"})
    assert state.number == good.number == 4, "a good one is still taken"


def test_a_line_may_be_spent_to_its_end_and_no_number_is_cut_off() -> None:
    state, _ = chain()
    committed(state, {(SPENT, b"1"): b"%d %d" % (UNITS, UNITS), (CURSOR, b"s"): b"%d" % 2**70})
    committed(state, {(SPENT, b"1"): b"%d %d" % (UNITS, UNITS), (CURSOR, b"s"): b"%d" % 2**70})
    refused(state, after(state, {(CURSOR, b"s"): b"%d" % (2**70 - 1)}), "would go backwards")


def test_the_tables_of_a_state_are_read_by_key_and_by_number() -> None:
    state = State("flights")
    committed(
        state, {(StateTable.TRANSCRIPT, b"%d" % n): b"entry %d" % n for n in reversed(range(12))}
    )
    assert state.numbered(StateTable.TRANSCRIPT) == [b"entry %d" % n for n in range(12)]
    committed(state, {(FACT, b"a"): b"1"})
    assert state.table(FACT) == {b"a": b"1"}


def test_the_bytes_of_a_state_are_known_without_counting_them_again() -> None:
    state, _ = chain()
    committed(state, {(FACT, b"a"): b"1", (StateTable.ANSWER, b"ana q2"): bytes(1000)})
    committed(state, {(FACT, b"a"): None, (FACT, b"gone"): None, (INTENT, b"3"): bytes(70)})
    assert state.n_bytes == State("flights", pairs=dict(state.pairs)).n_bytes
    assert 70 + sum(map(len, state.pairs.values())) > state.n_bytes - 16 * len(state.pairs) > 70


# Private values that it names.


def test_a_commit_says_which_private_values_nobody_may_keep_after_it_with_all_their_parts() -> None:
    state = State("flights")
    kept, other, gone = (Named(bytes([n]) * 16, tuple(range(n, 2 * n + 1))) for n in (1, 2, 3))
    block, erased = (StateTable.KEPT, b"block 1 0"), (StateTable.KEPT, f"{ERASED}block".encode())
    first = committed(
        state,
        {
            block: kept.to_bytes(),
            (StateTable.KEPT, b"block 2 0"): other.to_bytes(),
            erased: gone.to_bytes(),
            (FACT, ERASED.encode()): b"of another table",
        },
    )
    assert first.erased() == [gone]
    assert state.kept() == {kept.name, other.name}
    second = committed(state, {block: None, erased: kept.to_bytes()})
    assert second.erased() == [kept]
    assert state.kept() == {other.name}
    assert committed(state, {erased: None}).erased() == []


# Sums.

values = st.binary(max_size=6)
some_pairs = st.dictionaries(st.tuples(st.sampled_from(IN_STATE), values), values, max_size=6)


@settings(deadline=None)
@given(some_pairs)
def test_a_sum_finds_any_byte_that_changed_and_any_pair_that_is_missing_or_more(
    pairs: dict[Pair, bytes],
) -> None:
    said = sum(weight(pair, value) for pair, value in pairs.items()) % 2**128
    assert sum_of(pairs) == said
    others: list[dict[Pair, bytes]] = [pairs | {(FACT, b"one more"): b""}]
    for (table, key), value in pairs.items():
        rest = {pair: one for pair, one in pairs.items() if pair != (table, key)}
        others.append(rest)
        for at in range(len(value)):
            changed = value[:at] + bytes((value[at] ^ 1,)) + value[at + 1 :]
            others.append(pairs | {(table, key): changed})
        others += [
            pairs | {(table, key): value + b"\x00"},
            rest | {(table, key + b"more than six"): value},
            *(rest | {(of, key): value} for of in IN_STATE if (of, key) not in pairs),
        ]
    for other in others:
        assert sum_of(other) != said


def test_a_byte_does_not_move_between_a_key_and_its_value() -> None:
    assert weight((FACT, b"ab"), b"c") != weight((FACT, b"a"), b"bc")


def test_what_is_dropped_or_found_by_its_id_weighs_nothing() -> None:
    assert weight((FACT, b"a"), None) == 0
    for table in BY_ID:
        assert weight((table, b"a"), b"b") == 0
    assert weight((FACT, b"a"), b"") != 0


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.none() | values)))
def test_the_sum_that_commits_carry_is_that_of_the_pairs(
    changes: list[dict[bytes, bytes | None]],
) -> None:
    state = State("flights")
    for change in changes:
        committed(state, {(FACT, key): value for key, value in change.items()})
        assert sum_of(state.pairs) == state.sum
        assert 0 <= state.sum < 2**128


# What is stored.


def damaged(data: bytes) -> list[bytes]:
    """Every beginning of some bytes, and copies in which one byte is another one."""
    draws = random.Random(5)
    beginnings = [data[:length] for length in range(len(data))]
    flipped = [
        data[:at] + bytes((data[at] ^ draws.randrange(1, 256),)) + data[at + 1 :]
        for at in range(len(data))
        for _ in range(3)
    ]
    return [*beginnings, *flipped, data + b"\x00"]


def checkpoint() -> Checkpoint:
    state, _ = chain()
    carried = {(StateTable.ANSWER, b"ana q1"): b"d{}", (StateTable.OUTCOME, b"b1"): b""}
    return Checkpoint(state=state, carried=carried, ids=b"\x01ids", restarts=True)


def test_a_damaged_checkpoint_is_refused_or_is_another_one() -> None:
    one = checkpoint()
    stored = one.to_bytes()
    problems = []
    for data in damaged(stored):
        with contextlib.suppress(CorruptState):
            assert Checkpoint.from_bytes(data) != one
            continue
        problems.append(data)
    assert len(problems) > len(stored), "every beginning, and more"


def test_a_damaged_commit_is_refused_or_has_another_trail() -> None:
    _, commits = chain()
    stored, trail = commits[-1].to_bytes()
    for data in damaged(stored):
        with contextlib.suppress(CorruptState):
            assert Commit.from_bytes(data)[1] != trail


@pytest.mark.parametrize("read", [Commit.from_bytes, Checkpoint.from_bytes])
def test_no_error_quotes_what_is_stored(read: Callable[[bytes], object]) -> None:
    with pytest.raises(CorruptState) as caught:
        read(b"\x01d{} secret")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_checkpoint_whose_pairs_are_not_those_of_its_sum_is_refused() -> None:
    one = checkpoint()
    one.state.pairs[CURSOR, b"queries:0"] = b"1"
    with pytest.raises(CorruptState, match="whose sum was committed"):
        Checkpoint.from_bytes(one.to_bytes())


def stored_commit(content: bytes, *, version: int = 1) -> bytes:
    return bytes((version,)) + zlib.compress(content)


def content_of(pairs: bytes) -> bytes:
    return part(b"flights") + fields(">Q", 1) + bytes(32 + 16 + 16) + part(b"") + pairs


GOOD = b"\x02" + part(b"a") + part(b"1")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (content_of(fields(">I", 1) + b"\x63" + GOOD[1:]), "a table unknown to this release"),
        (content_of(fields(">I", 1) + b"\x00" + GOOD[1:]), "a table unknown to this release"),
        (content_of(fields(">I", 2) + GOOD + GOOD), "a pair twice"),
        (content_of(fields(">I", 2) + GOOD), "cut short"),
        (content_of(fields(">I", 0) + GOOD), "bytes after its end"),
        (content_of(fields(">I", 1) + b"\x02" + part(None) + part(b"")), "lacks a part"),
        (part(b"\xff") + content_of(b"")[11:], "not UTF-8"),
    ],
)
def test_a_commit_that_no_release_wrote_is_refused(content: bytes, why: str) -> None:
    assert Commit.from_bytes(stored_commit(content_of(fields(">I", 1) + GOOD)))
    with pytest.raises(CorruptState, match=f"^a stored commit .*{why}"):
        Commit.from_bytes(stored_commit(content))


def test_a_few_bytes_that_would_fill_the_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "_LARGEST", 1_000)
    large = State("flights").drafted({(FACT, b"a"): bytes(2_000)})
    with pytest.raises(CorruptState, match="too large"):
        Commit.from_bytes(large.to_bytes()[0])


def test_a_number_of_a_table_is_never_used_again() -> None:
    """Tables that are gone keep their numbers, here too."""
    assert {table.name: int(table) for table in StateTable} == {
        "DEFINITION": 1,
        "FACT": 2,
        "CURSOR": 3,
        "SPENT": 4,
        "TRANSCRIPT": 5,
        "INTENT": 6,
        "VERIFIED": 7,
        "WAITING": 8,
        "KEPT": 9,
        "RUNNING": 10,
        "ANSWER": 20,
        "OUTCOME": 21,
        "TAKEN": 22,
    }


def test_no_repr_shows_what_is_stored() -> None:
    state, commits = chain()
    for one in (state, commits[-1], checkpoint()):
        assert "d{}" not in repr(one)
        assert "1024" not in repr(one)
