"""A data set as its owner and its next owner have it: both find the same, and nothing is found too late."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from stream_dp.errors import CorruptState
from stream_dp.pipeline.journal.chain import JournalChain, Stored
from stream_dp.state.ids import NOWHERE, Ids
from stream_dp.state.schema import ROTATED, Checkpoint, Commit, Pair, State, StateTable
from tests.indexes import counts

NAME = "flights"


def answer(name: str) -> Pair:
    return StateTable.ANSWER, name.encode()


def outcome(name: str) -> Pair:
    return StateTable.OUTCOME, name.encode()


def taken(name: str) -> Pair:
    return StateTable.TAKEN, name.encode()


class Owner:
    """Decides commits, and has them land later, in order."""

    def __init__(self, chain: JournalChain | None = None) -> None:
        self.chain = JournalChain(NAME) if chain is None else chain
        self.chain.build()
        self.journal: dict[int, bytes] = {}
        self.offset = 100
        self.under_way: deque[tuple[Commit, bytes]] = deque()

    def decide(self, pairs: dict[Pair, bytes | None]) -> None:
        assert self.chain.state is not None
        commit = self.chain.state.drafted(pairs)
        stored, trail = commit.to_bytes()
        self.chain.add(commit, trail)
        self.under_way.append((commit, stored))

    def land(self) -> int:
        commit, stored = self.under_way.popleft()
        self.offset += 3
        self.journal[self.offset] = stored
        self.chain.landed(commit, self.offset)
        return self.offset

    def commit(self, pairs: dict[Pair, bytes | None]) -> int:
        self.decide(pairs)
        return self.land()


def read(journal: dict[int, bytes], checkpoint: tuple[int, bytes] | None = None) -> JournalChain:
    """The chain as the next owner reads it."""
    chain = JournalChain(NAME)
    if checkpoint is not None:
        chain.begins(*checkpoint)
    for offset in sorted(journal):
        chain.follows(offset, journal[offset])
    return chain


# ---------------------------------------------------------------- what has not landed


def test_an_answer_that_is_put_again_is_found_as_it_was_put_last() -> None:
    owner = Owner()
    owner.decide({answer("a"): b"first"})
    assert owner.chain.find([answer("a"), answer("b")]) == {answer("a"): Stored(b"first")}
    owner.decide({answer("a"): b"second"})
    assert owner.chain.find([answer("a")]) == {answer("a"): Stored(b"second")}
    owner.land()
    assert owner.chain.find([answer("a")]) == {answer("a"): Stored(b"second")}
    at = owner.land()
    (found,) = owner.chain.find([answer("a")]).values()
    assert found.found.offset == at
    assert found.found.fits(b"second")
    assert not found.found.fits(b"first")


def test_the_id_of_a_batch_is_taken_from_the_commit_on_that_takes_it() -> None:
    owner = Owner()
    assert owner.chain.find([outcome("b")]) == {}
    owner.decide({taken("b"): b""})
    assert owner.chain.find([outcome("b")]) == {outcome("b"): Stored()}
    owner.land()
    (found,) = owner.chain.find([outcome("b")]).values()
    assert (found.value, found.found.offset) == (None, NOWHERE)
    owner.decide({outcome("c"): b"accepted", taken("c"): b""})
    assert owner.chain.find([outcome("c")]) == {outcome("c"): Stored(b"accepted")}
    owner.land()
    (found,) = owner.chain.find([outcome("c")]).values()
    assert found.found.fits(b"accepted")


def test_what_has_landed_is_in_memory_no_more() -> None:
    owner = Owner()
    for number in range(20):
        owner.commit(
            {answer(f"{number}"): b"x" * 100, outcome(f"{number}"): b"y", taken(f"{number}"): b""}
        )
    assert owner.chain._unlanded == {}


# ---------------------------------------------------------------- two who read the same


def _pairs(draw: random.Random, number: int) -> dict[Pair, bytes | None]:
    """What a commit of some kind puts."""
    content = b"%d" % draw.randrange(1_000)
    kinds: list[dict[Pair, bytes | None]] = [
        {answer(str(draw.randrange(12))): content},
        {outcome(str(draw.randrange(9))): content, taken(str(draw.randrange(9))): b""},
        {ROTATED: b"%d" % number},
        {ROTATED: b"%d" % number, answer(str(draw.randrange(12))): content},
        {(StateTable.FACT, b"%d" % draw.randrange(4)): draw.choice([content, None])},
        {(StateTable.CURSOR, b"in:0"): b"%d" % number},
    ]
    return draw.choice(kinds)


def _all_of(chain: JournalChain) -> tuple[Any, ...]:
    pairs = [make(str(n)) for make in (answer, outcome) for n in range(12)]
    state = chain.build()
    return (
        (state.number, state.trail, state.sum, state.pairs),
        {pair: found.found for pair, found in chain.find(pairs).items()},
        counts(chain.ids),
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_next_owner_finds_what_the_last_one_found(seed: int) -> None:
    """From all commits, and from a checkpoint anywhere, with answers below it carried or not."""
    draw = random.Random(seed)
    owner, checkpoint = Owner(), None
    for number in range(60):
        owner.decide(_pairs(draw, number))
        while owner.under_way and draw.random() < 0.6:
            owner.land()
        if not owner.under_way and draw.random() < 0.1:
            carried = _carried(owner) if draw.random() < 0.5 else {}
            state, ids = owner.chain.build().copied(), owner.chain.ids.copied()
            made = Checkpoint(state=state, carried=carried, ids=ids.to_bytes())
            owner.offset += 1
            checkpoint = owner.offset, made.to_bytes()
            for pair in carried:
                owner.chain.ids.move(pair, owner.offset)
    while owner.under_way:
        owner.land()
    journal, below = owner.journal, -1 if checkpoint is None else checkpoint[0]
    if checkpoint is None:
        assert _all_of(read(journal)) == _all_of(owner.chain)
    behind = {offset: stored for offset, stored in journal.items() if offset > below}
    assert _all_of(read(behind, checkpoint)) == _all_of(owner.chain)
    # A reader may meet commits again that the checkpoint has, as between the begin of a round and its end.
    assert _all_of(read(journal, checkpoint)) == _all_of(owner.chain)


def _carried(owner: Owner) -> dict[Pair, bytes]:
    """All that is kept by then, from where it is."""
    found: dict[Pair, bytes] = {}
    for offset, stored in owner.journal.items():
        commit, _ = Commit.from_bytes(stored)
        found |= {p: v for p, v in commit.by_id() if owner.chain.ids.is_at(p, offset)}
    return found


# ---------------------------------------------------------------- what is not whole


def journal_of(n_commits: int) -> dict[int, bytes]:
    owner = Owner()
    for number in range(n_commits):
        owner.commit({answer(str(number)): b"x", (StateTable.FACT, b"n"): b"%d" % number})
    return owner.journal


@pytest.mark.parametrize("which", range(3))
def test_a_commit_that_is_missing_or_another_one_stops_it_for_ever(which: int) -> None:
    sound, other = journal_of(4), journal_of(4)
    offset = sorted(sound)[which]
    for changed in (
        {at: stored for at, stored in sound.items() if at != offset},
        {**sound, offset: other[offset]},
        {**sound, offset: sound[offset][:-1]},
    ):
        chain = read(changed)
        for _ in range(2):
            with pytest.raises(CorruptState):
                chain.build()
        assert chain.problem
        assert chain.state is None
    assert read(sound).build().number == 4


def test_another_data_sets_checkpoint_is_refused() -> None:
    state = State("trains")
    checkpoint = Checkpoint(state=state, ids=Ids().to_bytes()).to_bytes()
    with pytest.raises(CorruptState, match="that of trains"):
        read({}, (7, checkpoint)).build()


# ---------------------------------------------------------------- what is behind


def test_a_commit_that_came_a_second_time_is_not_behind() -> None:
    """As where an append was repeated, and the first attempt came late: its output has left long ago."""
    journal = journal_of(4)
    first, second, third, fourth = sorted(journal)
    late = {fourth + 3: journal[second]}
    assert [one.offset for one in read(journal | late).behind(third)] == [third, fourth]
    state = read({at: journal[at] for at in (first, second, third)}).build()
    checkpoint = fourth + 1, Checkpoint(state=state).to_bytes()
    tail = {fourth + 2: journal[second], fourth + 3: journal[fourth], fourth + 4: journal[third]}
    assert [one.offset for one in read(tail, checkpoint).behind(0)] == [fourth + 3]


def test_what_does_not_decode_ends_what_is_behind() -> None:
    journal = journal_of(4)
    offsets = sorted(journal)
    journal[offsets[2]] = b"none"
    chain = read(journal)
    assert [one.offset for one in chain.behind(offsets[1])] == offsets[1:2]
