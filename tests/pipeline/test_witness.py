"""What the ledger topic is compared with, entry by entry; the real topic and store are in tests/faults."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from stream_dp.errors import CorruptState, RolledBack
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.witness import Take, Witness
from stream_dp.state import ledger
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Transition

KEY = b"flights"


class Topic:
    """A ledger topic in memory, which remembers from where it was read."""

    def __init__(self, *records: tuple[bytes, bytes], partitions: int = 1) -> None:
        self.partitions = partitions
        self._records: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
        self.starts: Mapping[int, int] = {}
        for key, value in records:
            self.add(key, value)

    def add(self, key: bytes, *values: bytes) -> None:
        self._records[partition_of(key, self.partitions)] += [(key, value) for value in values]

    async def read(self, starts: Mapping[int, int], take: Take) -> dict[int, int]:
        self.starts = dict(starts)
        for number, start in starts.items():
            for key, value in self._records[number][start:]:
                take(number, key, value)
        return {number: len(records) for number, records in enumerate(self._records)}


def chain(*bodies: dict[str, Any], name: str = "flights") -> list[bytes]:
    head, entries = ledger.GENESIS, []
    for index, body in enumerate(bodies):
        entry, head = ledger.append(head, index, name, "charge", body)
        entries.append(entry)
    return entries


async def charge(store: LocalStore, *entries: bytes, name: str = "flights") -> LocalStore:
    """Appends entries to the ledger of a data set, which is created by its first one."""
    before = await store.acquire(name)
    head = before.head
    for entry in entries:
        head = ledger.extend(head, entry)
    await store.commit(
        Transition(
            dataset=name,
            token=before.token,
            seq=before.seq,
            head=before.head,
            new_head=head,
            definition=None if before.definition else b"definition",
            ledger=entries,
        )
    )
    return store


async def check(topic: Topic, store: LocalStore) -> None:
    """By a worker that has just started, and remembers nothing."""
    await Witness(topic, "ledger").check(store, lambda _: True)


ONE, TWO, THREE, FOUR = chain({"n": 1}, {"n": 2}, {"n": 3}, {"n": 4})
_, OTHER = chain({"n": 1}, {"n": 20})


@pytest.mark.parametrize(
    ("published", "stored"),
    [
        ([], [ONE]),
        ([ONE], [ONE]),
        ([ONE, TWO], [ONE, TWO, THREE]),
        ([TWO, ONE, TWO, ONE], [ONE, TWO]),
        ([ONE, b"{", b"\xff", b"[]"], [ONE]),
    ],
    ids=["nothing published", "equal", "store ahead", "sent again", "not ours"],
)
async def test_a_store_that_knows_all_that_was_published_is_good(
    published: list[bytes], stored: list[bytes]
) -> None:
    topic, store = Topic(*((KEY, entry) for entry in published)), LocalStore()
    await charge(store, *stored)
    await check(topic, store)
    await check(topic, store)


@pytest.mark.parametrize(
    ("published", "stored"),
    [
        ([ONE], []),
        ([ONE, TWO], [ONE]),
        ([ONE, TWO], [ONE, OTHER]),
        ([ONE, TWO], [ONE, OTHER, THREE]),
        ([ONE, TWO, OTHER], [ONE, OTHER]),
    ],
    ids=["emptied", "older", "another history", "grown since", "spent twice already"],
)
async def test_a_store_that_has_forgotten_or_tells_another_history_is_not(
    published: list[bytes], stored: list[bytes]
) -> None:
    topic, store = Topic(*((KEY, entry) for entry in published)), LocalStore()
    if stored:
        await charge(store, *stored)
    for _ in range(2):
        with pytest.raises(RolledBack, match="flights"):
            await check(topic, store)
    await Witness(topic, "ledger").check(store, lambda _: False)
    with pytest.raises(RolledBack, match="flights"):
        await check(topic, store)


async def test_an_entry_under_another_key_says_nothing() -> None:
    await check(Topic((b"other", ONE)), LocalStore())


async def test_what_was_compared_is_not_read_again() -> None:
    topic, store = Topic((KEY, ONE), (KEY, TWO)), LocalStore()
    await charge(store, ONE, TWO)
    await check(topic, store)
    assert topic.starts == {0: 0}
    await charge(store, THREE)
    topic.add(KEY, THREE)
    await check(topic, store)
    assert topic.starts == {0: 2}
    await check(topic, store)
    assert topic.starts == {0: 3}


async def test_a_copy_of_any_age_is_compared_with_all_that_it_lacks() -> None:
    """Copies are taken before and after each check and each charge, and one comes back at the end."""
    topic, store, copies = Topic(partitions=2), LocalStore(), []
    histories = {name: chain(*({"n": n} for n in range(3)), name=name) for name in ("a", "b", "c")}
    for round_ in range(3):
        for name, entries in histories.items():
            copies.append((copy.deepcopy(store), False))
            await charge(store, entries[round_], name=name)
            topic.add(name.encode(), entries[round_])
            if round_ != 1:
                await check(topic, store)
    copies.append((copy.deepcopy(store), True))
    for found, is_newest in copies:
        if is_newest:
            await check(topic, found)
        else:
            for _ in range(2):
                with pytest.raises(RolledBack):
                    await check(topic, found)
    await check(topic, store)


async def test_a_topic_that_was_made_again_is_read_as_a_whole() -> None:
    topic, store = Topic((KEY, ONE), (KEY, TWO)), LocalStore()
    await charge(store, ONE, TWO)
    await check(topic, store)
    await Witness(topic, "a later one").check(store, lambda _: True)
    assert topic.starts == {0: 0}


async def test_a_data_set_that_only_another_worker_holds_does_not_stop_this_one() -> None:
    topic, store = Topic((KEY, ONE), (b"trains", chain({}, name="trains")[0])), LocalStore()
    await charge(store, ONE)
    await Witness(topic, "ledger").check(store, lambda name: name == "flights")
    with pytest.raises(RolledBack, match="trains"):
        await Witness(topic, "ledger").check(store, lambda name: name == "trains")


async def test_a_store_that_goes_back_during_a_check_keeps_nothing_that_is_not_true_of_it() -> None:
    store = await charge(LocalStore(), ONE, TWO)
    topic = Topic((KEY, ONE), (KEY, TWO))
    await check(topic, store)
    older = copy.deepcopy(store)
    await charge(store, THREE)
    topic.add(KEY, THREE)

    class Restored(LocalStore):
        """Another copy from the moment on that the topic was read."""

        async def compare(self, place: str, end: int, found: Any) -> tuple[str, ...]:
            return await older.compare(place, end, found)

        async def note_listed(self, place: str, start: int, end: int, names: Any) -> None:
            await older.note_listed(place, start, end, names)

    restored = Restored()
    restored.__dict__.update(store.__dict__)
    for found in (restored, older):
        with pytest.raises(RolledBack):
            await check(topic, found)


@pytest.mark.parametrize("what", ["spent", "entry", "cut"])
async def test_a_store_whose_sums_are_not_those_of_its_ledger_is_not_served(
    world: Any, what: str
) -> None:
    """With what is spent set to 0 a worker would spend it again."""
    world.define("flights")
    world.cells("flights", "b")
    world.ask("flights", "q", {"attribute": "carrier", "eq": "AA"})
    await world.run()
    held = world.store._datasets["flights"]
    assert sum(rho for rho, _ in held.spent) > 0
    if what == "spent":
        held.spent = [(0, 0) for _ in held.spent]
    elif what == "entry":
        held.ledger[-1] = held.ledger[-1].replace(b'"rho"', b'"rh0"').replace(b"1", b"2", 1)
    else:
        del held.ledger[-1]
    process = world.process()
    world.ask("flights", "later", {"attribute": "carrier", "eq": "UA"})

    async def serve() -> None:
        await process.assign()
        await process.run()

    with pytest.raises(CorruptState, match=r"flights: what Redis says|ledger entry \d+"):
        await serve()
    await process.kill()
