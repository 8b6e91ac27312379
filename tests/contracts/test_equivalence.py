"""The stores are one: the same steps have the same results, whatever they are."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.errors import CorruptState, Fenced, StoreError
from stream_dp.state.ledger import GENESIS, append, verify
from stream_dp.state.local import LocalStore
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import AccountLimit, Note, Place, Released, Reservation, Transition
from stream_dp.state.taken import taken_id

DATASETS = ("flights", "weather")
ERASED_ASIDE = ("pending", "blocks", "vault", "transcript", "verified")
HASHES = ("vault", "verified")

few = st.integers(0, 3)
ids = st.sampled_from(["a", "b", "ä|\n", ""])
contents = st.binary(max_size=6)
some = st.lists(contents, max_size=3)
ONES, TWOS = b"\1" * 7, b"\2" * 7
TAKES = [taken_id("a"), b"ab" + ONES + ONES, b"ab" + ONES + TWOS, b"ab" + TWOS + ONES]
"""Where two of them lie next to each other, there is a third one that is not there."""
takes = st.sampled_from(TAKES)
amounts = st.sampled_from(
    [0, 1, 2, UNITS // 2, UNITS // 2 + 1, UNITS - 1, UNITS, UNITS + 1, 2**53, 2**64]
)
offsets = st.sampled_from([0, 1, 9, 10, 2**53, 2**53 + 1, 2**64, 2**64 + 1])


limits = st.lists(
    st.builds(AccountLimit, few, ids, *[st.sampled_from([0, 1, 2, UNITS // 2 + 1, UNITS])] * 2),
    max_size=2,
    unique_by=lambda one: one.block,
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly absent, so that most transitions have few faults."""
    return st.none() | st.none() | strategy


changes = st.fixed_dictionaries(
    {},
    optional={
        "meta": st.dictionaries(ids, ids, max_size=2),
        "cursor": st.dictionaries(ids, offsets, max_size=2),
        "rotate": st.sampled_from([False] * 3 + [True]),
        "answers": st.dictionaries(ids, contents, max_size=2),
        "batches": st.dictionaries(ids, contents, max_size=1),
        "taken": st.lists(takes, max_size=2),
        "pending": some,
        "seal": contents,
        "erased": st.integers(0, 3),
        "charges": st.lists(st.builds(Charge, few, amounts, amounts), max_size=3),
        "limits": limits,
        "transcript": some,
        "verified": st.dictionaries(contents, contents, max_size=2),
        "intent": contents,
        "settles": st.lists(st.integers(1, 6), max_size=2),
        "outbox": contents,
        "vault": st.dictionaries(ids, contents, max_size=2),
        "erase": st.sampled_from([False] * 9 + [True]),
    },
)


notes = st.builds(Note, st.integers(0, 2**63), few, few)


@dataclass(frozen=True)
class At:
    """Where the owner of a data set stands."""

    token: int
    seq: int
    head: bytes
    trail: bytes
    entries: int
    defined: bool


class Stores(RuleBasedStateMachine):
    """Gives a LocalStore and a RedisStore the same steps, right and wrong ones."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.local = LocalStore()
        self.prefix = f"same-{secrets.token_hex(8)}"
        self.redis = RedisStore.from_url(self.url, prefix=self.prefix)
        self.at: dict[str, At] = {}
        self.found: dict[str, Place] = {}
        self.done: list[Transition] = []

    def both(self, step: Callable[[Any], Any]) -> Any:
        """The result of a step, which must be the same for both: a value, or an error and its words.

        A key that an error names begins with the prefix of all keys in Redis alone.
        """

        async def attempt(store: Any) -> object:
            try:
                return await step(store)
            except StoreError as error:
                said = str(error)
                for dataset in DATASETS:
                    said = said.replace(f"the key {{{self.prefix}:{dataset}}}:", "the key ")
                return (type(error), said)

        async def compare() -> object:
            one, other = await attempt(self.local), await attempt(self.redis)
            assert one == other
            return one

        return self.runner.run(compare())

    @initialize()
    def take_all(self) -> None:
        for dataset in DATASETS:
            self.acquire(dataset)

    @rule(dataset=st.sampled_from(DATASETS), further=st.none() | st.sampled_from([-1, 0, 1, 90]))
    def acquire(self, dataset: str, further: int | None = None) -> None:
        """With the next token, or with a given one that may be too small."""
        token = None if further is None else max(self.at[dataset].token + further, 0)
        taken = self.both(lambda store: store.acquire(dataset, token=token))
        if further == -1:
            assert taken[0] is Fenced
            return
        entries = self.both(lambda store: store.ledger(dataset))
        assert verify(entries, head=taken.head) == taken.head
        assert all(rho <= UNITS and delta <= UNITS for rho, delta in taken.spent)
        defined = taken.definition is not None
        self.at[dataset] = At(
            taken.token, taken.seq, taken.head, taken.trail, len(entries), defined
        )

    @rule(
        dataset=st.sampled_from(DATASETS),
        changes=changes,
        entries=st.integers(0, 2),
        definition=st.sampled_from([True] * 7 + [False]),
        fault=optional(st.sampled_from(["token", "seq", "head", "trail"])),
    )
    def commit(
        self,
        dataset: str,
        changes: dict[str, Any],
        entries: int,
        definition: bool,
        fault: str | None,
    ) -> None:
        self.transit(dataset, changes, entries, definition=definition, fault=fault)

    def transit(
        self,
        dataset: str,
        changes: dict[str, Any],
        entries: int,
        *,
        definition: bool = True,
        fault: str | None = None,
    ) -> None:
        at = self.at[dataset]
        new_head, ledger = (GENESIS if fault == "head" else at.head), []
        start = new_head
        for index in range(at.entries, at.entries + entries):
            entry, new_head = append(new_head, index, dataset, "charge", {})
            ledger.append(entry)
        transition = Transition(
            dataset=dataset,
            token=at.token + (fault == "token"),
            seq=at.seq + (fault == "seq"),
            trail=bytes([9]) * 32 if fault == "trail" else at.trail,
            new_trail=hashlib.sha256(at.trail + b"a record").digest(),
            head=start,
            new_head=new_head,
            ledger=ledger,
            definition=b"d" if definition == (not at.defined) else None,
            **changes,
        )
        if self.both(lambda store: store.commit(transition)) is None:
            trail, count = transition.new_trail, at.entries + entries
            self.at[dataset] = At(at.token, at.seq + 1, new_head, trail, count, True)
            self.done.append(transition)

    @rule(back=st.integers(1, 3), changed=st.booleans())
    def repeat(self, back: int, changed: bool) -> None:
        if len(self.done) >= back:
            again = self.done[-back]
            if changed:
                again = replace(again, meta={**again.meta, "changed": "yes"})
            self.both(lambda store: store.commit(again))

    @rule(
        dataset=st.sampled_from(DATASETS),
        through=st.integers(0, 8),
        old=st.booleans(),
        partition=st.sampled_from(["", "t:0", "t:1"]),
        note=notes,
    )
    def released(self, dataset: str, through: int, old: bool, partition: str, note: Note) -> None:
        done = Released(self.at[dataset].token - old, through, partition, note)
        self.both(lambda store: store.mark({dataset: done}))

    @rule(partition=st.sampled_from(["t:0", "t:1"]))
    def place(self, partition: str) -> None:
        self.found = self.both(lambda store: store.places(lambda _: partition))

    @rule(partition=st.sampled_from(["t:0", "t:1"]), note=notes)
    def note(self, partition: str, note: Note) -> None:
        """The places may be old ones by now."""
        found = self.found
        self.both(lambda store: store.note(partition, dict.fromkeys(found, note), found))
        self.both(lambda store: store.places(lambda _: partition))

    @rule(
        partition=st.sampled_from(["t:0", "t:1"]),
        note=notes,
        names=st.lists(st.sampled_from([*DATASETS, "never"]), max_size=2),
        watermarks=st.dictionaries(st.sampled_from(["a:0", "a:1"]), st.integers(0, 2**60)),
    )
    def note_listed(
        self, partition: str, note: Note, names: list[str], watermarks: dict[str, int]
    ) -> None:
        self.both(lambda store: store.note_listed(partition, note, names, watermarks))
        self.both(lambda store: store.listed(partition))

    @rule(
        dataset=st.sampled_from(DATASETS),
        further=st.sampled_from([-1, 0, 1]),
        seq=few,
        trail=st.binary(min_size=32, max_size=32),
    )
    def rebuild(self, dataset: str, further: int, seq: int, trail: bytes) -> None:
        token = max(self.at[dataset].token + further, 0)
        step = self.both(lambda store: store.rebuild(dataset, token, seq=seq, trail=trail))
        if step is None:
            self.at[dataset] = At(token, seq, GENESIS, trail, 0, False)

    @rule(dataset=st.sampled_from(DATASETS))
    def set_aside(self, dataset: str) -> None:
        """Nobody reads it, so it has no call of its own."""
        held = self.local._aside.get(dataset)
        here = {part: len(getattr(held, part)) for part in ERASED_ASIDE if held is not None}
        keys = {part: f"{self.redis._key(dataset, 'aside')}:{part}" for part in ERASED_ASIDE}

        async def lengths() -> dict[str, int]:
            return {
                part: await self.redis._command("HLEN" if part in HASHES else "LLEN", key)
                for part, key in keys.items()
            }

        there = self.runner.run(lengths())
        assert {part: n for part, n in here.items() if n} == {p: n for p, n in there.items() if n}

    @rule(dataset=st.sampled_from(DATASETS))
    def outcomes(self, dataset: str) -> None:
        self.both(lambda store: store.outcomes(dataset))

    @rule(dataset=st.sampled_from(DATASETS), fields=st.lists(ids, max_size=3))
    def look_up(self, dataset: str, fields: list[str]) -> None:
        self.both(lambda store: store.answers({dataset: fields}))
        self.both(lambda store: store.batches(dict.fromkeys(DATASETS, fields)))
        self.both(lambda store: store.taken(dataset, TAKES))

    @rule(dataset=st.sampled_from(DATASETS), index=st.integers(0, 4), old=st.booleans())
    def read_block(self, dataset: str, index: int, old: bool) -> None:
        token = self.at[dataset].token - old
        self.both(lambda store: store.block(dataset, token, index))

    @rule(watermarks=st.dictionaries(ids, offsets, max_size=2), topic=ids, count=st.integers(1, 9))
    def shared(self, watermarks: dict[str, int], topic: str, count: int) -> None:
        self.both(lambda store: store.mark(watermarks=watermarks))
        self.both(lambda store: store.watermarks())
        self.both(lambda store: store.partitions(topic, count))
        self.both(lambda store: store.attempts(topic))
        if count == 1:
            self.both(lambda store: store.clear_attempts(topic))
        self.both(lambda store: store.datasets())

    @rule(holder=st.sampled_from(["one", "two"]), partitions=st.sets(few))
    def hold(self, holder: str, partitions: set[int]) -> None:
        self.both(lambda store: store.hold(holder, partitions))

    @rule(
        dataset=st.sampled_from(DATASETS),
        ahead=st.sampled_from([1, 1, 1, 1, 0, 2]),
        persons=st.lists(few, min_size=1, max_size=3),
        rows=few,
        wrong=st.sampled_from([0] * 5 + [1]),
        old=st.sampled_from([False] * 5 + [True]),
    )
    def reserve(
        self, dataset: str, ahead: int, persons: list[int], rows: int, wrong: int, old: bool
    ) -> None:
        token = self.at[dataset].token - old
        sealed = len(self.local._datasets[dataset].spent)
        phase = max(sealed + ahead, 1)
        digests = np.array([[person * 63] * 12 for person in persons], dtype=np.uint8)

        async def units(store: Any) -> list[int]:
            found = await store.units(dataset, token, phase, digests)
            listed: list[int] = found.tolist()
            return listed

        found = self.both(units)
        before = found if isinstance(found, list) else [0] * len(persons)
        reservation = Reservation(
            dataset=dataset,
            token=token,
            phase=phase,
            digests=digests,
            before=np.array(before) + wrong,
            rows=np.array([rows + at for at in range(len(persons))]),
        )
        self.both(lambda store: store.reserve(reservation))
        self.both(units)

    @rule(dataset=st.sampled_from(DATASETS))
    def seal(self, dataset: str) -> None:
        """What is reserved for this phase is used from now on."""
        self.transit(dataset, {"seal": b"block"}, 1)

    @rule(dataset=st.sampled_from(DATASETS), old=st.booleans())
    def forget(self, dataset: str, old: bool) -> None:
        """The stores erase in steps of their own size, and agree on whether they may."""
        token = self.at[dataset].token - old

        async def forgotten(store: Any) -> None:
            await store.forget_persons(dataset, token)

        self.both(forgotten)

    def teardown(self) -> None:
        try:
            for dataset in DATASETS:
                self.acquire(dataset)
                self.outcomes(dataset)
                self.set_aside(dataset)
                self.look_up(dataset, ["a", "b", "ä|\n", ""])
        finally:
            self.runner.run(self.redis.close())
            self.runner.close()


SERVERS = ["valkey_server", "redis_server"]


@pytest.mark.parametrize("server", SERVERS)
def test_both_say_alike_that_something_was_reserved_for_a_later_phase(
    request: pytest.FixtureRequest, server: str
) -> None:
    stores = type("Stores", (Stores,), {"url": request.getfixturevalue(server)})()
    try:
        stores.take_all()
        stores.seal(dataset="weather")
        stores.reserve(ahead=1, dataset="weather", old=False, persons=[0, 2], rows=0, wrong=0)
        stores.rebuild(dataset="weather", further=0, seq=0, trail=bytes(32))
        place = stores.at["weather"]
        digests = np.full((1, 12), 2 * 63, dtype=np.uint8)

        async def units(store: Any) -> None:
            await store.units("weather", place.token, 1, digests)

        kind, said = stores.both(units)
        assert kind is CorruptState
        assert "the key persons holds something that is not ours" in said
    finally:
        stores.teardown()


@pytest.mark.parametrize("server", SERVERS)
def test_a_redis_store_does_what_a_local_store_does(
    request: pytest.FixtureRequest, server: str
) -> None:
    machine = type("Stores", (Stores,), {"url": request.getfixturevalue(server)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
