"""What every store promises. One suite, run against all of them."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.errors import (
    BudgetExceeded,
    Conflict,
    DuplicateId,
    Fenced,
    GoneBack,
    StoreError,
    StreamDPError,
)
from stream_dp.state.ledger import GENESIS, verify
from stream_dp.state.store import (
    LEDGER_TAIL,
    ORIGIN,
    AccountLimit,
    Counts,
    Note,
    Outcomes,
    Place,
    Released,
    Reservation,
    account_of,
)
from stream_dp.state.taken import TAKEN, taken_id
from tests.contracts.conftest import Owner, blocks_of

PRIVATE = b"a row about somebody"
NOTHING = Outcomes({}, {}, {}, {}, frozenset())


async def test_a_data_set_that_does_not_exist_is_empty_and_not_listed(backend: Any) -> None:
    store = backend.store()
    snapshot = await store.acquire("flights")
    assert snapshot.definition is None
    assert (snapshot.token, snapshot.seq, snapshot.head) == (1, 0, GENESIS)
    assert snapshot.pending == snapshot.spent == snapshot.outbox == ()
    assert snapshot.n_blocks == 0
    assert snapshot.meta == snapshot.cursor == snapshot.verified == snapshot.intents == {}
    assert snapshot.vault == {}
    assert await store.datasets() == ()
    assert await store.ledger("flights") == []


async def test_of_a_name_that_nobody_defines_nothing_is_stored(backend: Any, own: Any) -> None:
    store = backend.store()
    names = ["flights", "weather", "trains"]
    await (await own(store, "weather")).commit(definition=b"w")
    await store.acquire("trains", new=False)
    assert await store.missing(names) == {"flights", "trains"}
    assert await store.missing([]) == frozenset()
    await store.acquire("trains")
    assert await store.missing(names) == {"flights"}


async def test_a_data_set_exists_from_its_first_commit_on(backend: Any, own: Any) -> None:
    store = backend.store()
    await (await own(store, "weather")).commit(definition=b"w")
    await (await own(store, "flights")).commit(definition=b"f")
    await own(store, "never-defined")
    assert await store.datasets() == ("flights", "weather")
    assert await backend.store().datasets() == ("flights", "weather")


async def test_a_snapshot_is_all_that_was_committed(backend: Any, owner: Any) -> None:
    snapshot = await backend.store().acquire("flights")
    assert snapshot.token == owner.token + 1
    assert (snapshot.seq, snapshot.head) == (2, owner.head)
    assert snapshot.definition == b"definition"
    assert snapshot.meta == {"phase": "1"}
    assert snapshot.cursor == {"queries:0": 5, "batches:0": 7}
    assert snapshot.pending == (b"row 1",)
    assert snapshot.n_blocks == 2
    assert snapshot.vault == {"offset": b"secret one"}
    assert snapshot.spent == ((10, 20), (0, 0))
    assert snapshot.transcript == (b"measurement 0",)
    assert snapshot.verified == {b"v1": b"verified one"}
    assert snapshot.intents == {1: b"look 1"}
    assert snapshot.outbox == ((1, b"records 1"), (2, b"records 2"))


async def test_a_look_sees_what_a_snapshot_has_but_secrets_and_takes_nothing_over(
    backend: Any, owner: Any
) -> None:
    store = backend.store()
    before = backend.dump()
    seen = await store.look("flights")
    nothing = await store.look("other")
    assert backend.dump() == before
    await owner.commit(answers={"a2": b"answer two"})  # it is still the owner
    assert (seen.n_answers, seen.n_batches) == (1, 1)
    assert (seen.snapshot.token, seen.snapshot.seq) == (owner.token, 2)
    assert await store.block("flights", seen.snapshot.token, 0) == b"block 0"
    assert len(seen.ledger) == 2
    assert verify(seen.ledger) == seen.snapshot.head
    assert (nothing.snapshot.seq, nothing.n_answers, [*nothing.ledger]) == (0, 0, [])
    later = await store.look("flights")
    assert (later.snapshot.seq, later.n_answers) == (3, 2)
    taken = await store.acquire("flights")
    assert later.snapshot == replace(taken, token=owner.token, vault={})
    assert "row 1" not in repr(later)


async def test_a_look_is_of_one_instant_while_the_owner_commits(backend: Any, owner: Any) -> None:
    store, looks = backend.store(), []
    at_work = True

    async def look() -> None:
        while at_work:
            looks.append(await store.look("flights"))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    for number in range(100):
        await owner.commit(
            answers={f"later {number}": b"answer"},
            transcript=[b"%d" % number],
            pending=[b"row"],
            cursor={"queries:0": 10 + number},
        )
        if number % 3 == 0:
            await asyncio.sleep(0.003)
    at_work = False
    await looking
    seen = [one for one in looks if one is not None]
    assert seen
    for one in seen:
        at = one.snapshot.seq - 2
        assert verify(one.ledger) == one.snapshot.head
        assert (one.n_answers, len(one.snapshot.pending)) == (1 + at, 1 + at)
        assert one.snapshot.transcript == (b"measurement 0", *(b"%d" % n for n in range(at)))
        assert at == 0 or one.snapshot.cursor["queries:0"] == 9 + at


async def test_data_sets_know_nothing_of_each_other(backend: Any, owner: Any, own: Any) -> None:
    other = await own(backend.store(), "weather")
    await other.commit(answers={"a1": b"x"}, batches={"b1": b"y"}, seal=b"z")
    assert await blocks_of(backend.store(), "flights") == [b"block 0", b"block 1"]
    assert await blocks_of(backend.store(), "weather") == [b"z"]
    assert await owner.store.answers({"flights": ["a1"]}) == {("flights", "a1"): b"answer one"}


# Checks -----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], type[StreamDPError]]] = {
    "an old token": ({"token": 0}, Fenced),
    "a token from the future": ({"token": 2}, Fenced),
    "an earlier seq": ({"seq": 1}, Conflict),
    "a later seq": ({"seq": 3}, Conflict),
    "another head": ({"head": bytes(32)}, Conflict),
    "a second definition": ({"definition": b"definition"}, Conflict),
    "a known answer": ({"answers": {"a0": b"", "a1": b"answer one"}}, DuplicateId),
    "a known batch": ({"batches": {"b0": b"", "b1": b"batch one"}}, DuplicateId),
    "a cursor that goes back": ({"cursor": {"batches:0": 8, "queries:0": 4}}, Conflict),
    "too much rho": ({"charges": [Charge(1, 1), Charge(0, UNITS - 9)]}, BudgetExceeded),
    "too much delta": ({"charges": [Charge(1, 1), Charge(0, 0, UNITS - 19)]}, BudgetExceeded),
    "too much in two parts": ({"charges": [Charge(0, UNITS - 10), Charge(0, 1)]}, BudgetExceeded),
    "a charge beyond 64 bits": ({"charges": [Charge(0, 2**80)]}, BudgetExceeded),
    "more rho than an account may": ({"limits": [AccountLimit(0, "ann", 0, 1)]}, BudgetExceeded),
    "more delta than an account may": ({"limits": [AccountLimit(2, "ann", 1, 0)]}, BudgetExceeded),
    "a block that is not there": ({"charges": [Charge(3, 1)]}, Conflict),
    "a look that was not announced": ({"settles": [1, 2]}, Conflict),
}


@pytest.mark.parametrize("fault", REFUSED)
async def test_a_refused_commit_leaves_no_trace(backend: Any, owner: Any, fault: str) -> None:
    changes, error = REFUSED[fault]
    valid: dict[str, Any] = {
        "meta": {"phase": "2"},
        "cursor": {"queries:0": 6, "new:0": 1},
        "answers": {"a2": b"answer two"},
        "batches": {"b2": b"batch two"},
        "pending": [b"row 2"],
        "seal": b"block 2",
        "charges": [Charge(0, 1, 1), Charge(2, 1, 1)],
        "transcript": [b"measurement 1"],
        "verified": {b"v1": b"other", b"v2": b"verified two"},
        "intent": b"look 3",
        "settles": [1],
        "outbox": b"records 3",
        "vault": {"offset": b"", "cuts": b"secret two"},
    }
    before = backend.dump()
    with pytest.raises(error):
        await owner.store.commit(owner.transition(**{**valid, **changes}))
    assert backend.dump() == before
    # The fault alone was to blame.
    await owner.commit(**valid)
    assert backend.dump() != before


async def test_a_data_set_without_a_definition_takes_no_commit(backend: Any, own: Any) -> None:
    owner = await own(backend.store())
    before = backend.dump()
    with pytest.raises(Conflict, match="definition"):
        await owner.store.commit(owner.transition(definition=None, meta={"a": "b"}))
    assert backend.dump() == before


async def test_a_commit_of_a_data_set_that_nobody_took_is_fenced(backend: Any, own: Any) -> None:
    owner = await own(backend.store())
    with pytest.raises(Fenced):
        await owner.store.commit(replace(owner.transition(), dataset="weather"))
    assert (await owner.store.acquire("weather", new=False)).token == 0
    assert await owner.store.datasets() == ()


async def test_a_former_owner_can_write_nothing(backend: Any, owner: Any, own: Any) -> None:
    successor = await own(backend.store())
    before = backend.dump()
    with pytest.raises(
        Fenced, match=r"another worker has taken over, or the store was emptied\. This"
    ):
        await owner.store.commit(owner.transition(meta={"zombie": "yes"}))
    assert await owner.store.mark({"flights": Released(owner.token, 2)}) == ("flights",)
    assert backend.dump() == before
    await successor.commit(meta={"zombie": "no"})


async def test_a_cursor_may_stand_still_but_never_go_back(backend: Any, owner: Any) -> None:
    await owner.commit(cursor={"queries:0": 5})
    # Neighbours that are one floating-point number; and text order would put 9 above 10.
    for low, high in ((9, 10), (2**53, 2**53 + 1), (2**63 - 2, 2**63 - 1), (10**30, 10**30 + 1)):
        await owner.commit(cursor={"queries:0": high})
        before = backend.dump()
        with pytest.raises(Conflict, match="backwards"):
            await owner.store.commit(owner.transition(cursor={"queries:0": low}))
        assert backend.dump() == before
    assert (await owner.store.acquire("flights")).cursor["queries:0"] == 10**30 + 1


async def test_a_budget_can_be_spent_to_the_last_unit_and_not_beyond(
    backend: Any, owner: Any
) -> None:
    await owner.commit(charges=[Charge(0, UNITS - 11, UNITS - 21)])
    await owner.commit(charges=[Charge(0, 1, 0)])
    await owner.commit(charges=[Charge(0, 0, 1)])
    before = backend.dump()
    for charge in (Charge(0, 1, 0), Charge(0, 0, 1)):
        with pytest.raises(BudgetExceeded, match="block 0"):
            await owner.store.commit(owner.transition(charges=[charge]))
    assert backend.dump() == before
    await owner.commit(charges=[Charge(0, 0, 0), Charge(1, UNITS, UNITS)])
    snapshot = await owner.store.acquire("flights")
    assert snapshot.spent == ((UNITS, UNITS), (UNITS, UNITS))


async def test_every_unit_of_a_charge_counts(backend: Any, owner: Any) -> None:
    expected = 10
    for charge in (UNITS // 2 + 1, 1, UNITS // 4 + 3, 7):
        await owner.commit(charges=[Charge(0, charge), Charge(0, 1)])
        expected += charge + 1
    assert (await owner.store.acquire("flights")).spent[0] == (expected, 20)


async def test_a_block_can_be_charged_in_the_commit_that_seals_it(backend: Any, owner: Any) -> None:
    before = backend.dump()
    with pytest.raises(BudgetExceeded):
        await owner.store.commit(owner.transition(seal=b"block 2", charges=[Charge(2, UNITS + 1)]))
    assert backend.dump() == before
    await owner.commit(seal=b"block 2", charges=[Charge(2, UNITS, 3)])
    assert (await owner.store.acquire("flights")).spent == ((10, 20), (0, 0), (UNITS, 3))


async def test_an_account_charges_no_block_beyond_what_it_may(backend: Any, owner: Any) -> None:
    async def charge(*charges: Charge, most: int, account: str = "ann") -> None:
        limits = [AccountLimit(one.block, account, most, most) for one in charges]
        await owner.commit(charges=charges, limits=limits)

    await charge(Charge(0, UNITS // 2, 3), Charge(1, 1), most=UNITS // 2 + 2)
    await charge(Charge(0, 5), most=5, account="")
    before = backend.dump()
    for one, what in ((Charge(0, 3), "rho"), (Charge(0, 0, UNITS // 2), "delta")):
        limit = AccountLimit(0, "ann", UNITS // 2 + 2, UNITS // 2 + 2)
        with pytest.raises(BudgetExceeded, match=f"block 0 an account may spend less {what}"):
            await owner.store.commit(owner.transition(charges=[one], limits=[limit]))
    assert backend.dump() == before
    await charge(Charge(0, 2), most=UNITS // 2 + 2)
    meta = (await owner.store.acquire("flights")).meta
    found = {account_of(name): value for name, value in meta.items() if account_of(name)}
    assert found == {
        (0, "ann"): f"{UNITS // 2 + 2} 3",
        (1, "ann"): "1 0",
        (0, ""): "5 0",
    }


# Order ------------------------------------------------------------------------------------------


async def test_sealing_takes_what_waited_and_keeps_what_came_with_it(
    backend: Any, owner: Any
) -> None:
    await owner.commit(pending=[b"row 2", b"row 3"])
    assert (await owner.store.acquire("flights")).pending == (b"row 1", b"row 2", b"row 3")
    owner.token += 1
    await owner.commit(seal=b"rows 1 to 3", pending=[b"row 4", b"row 5"])
    await owner.commit(pending=[b"row 6"])
    snapshot = await owner.store.acquire("flights")
    assert snapshot.pending == (b"row 4", b"row 5", b"row 6")
    assert await blocks_of(owner.store, "flights") == [b"block 0", b"block 1", b"rows 1 to 3"]


async def test_a_secret_is_kept_until_it_is_replaced_or_dropped(backend: Any, owner: Any) -> None:
    await owner.commit(vault={"cuts": b"secret two"})
    await owner.commit()
    await owner.commit(vault={"offset": b"secret three"})
    assert (await owner.store.acquire("flights")).vault == {
        "offset": b"secret three",
        "cuts": b"secret two",
    }
    owner.token += 1
    await owner.commit(vault={"cuts": b"", "offset": b"secret four", "never kept": b""})
    assert (await owner.store.acquire("flights")).vault == {"offset": b"secret four"}


async def test_a_secret_may_come_with_the_definition(backend: Any, own: Any) -> None:
    store = backend.store()
    await (await own(store, "weather")).commit(definition=b"w", vault={"person": PRIVATE})
    snapshot = await store.acquire("weather")
    assert (snapshot.definition, snapshot.vault) == (b"w", {"person": PRIVATE})


async def test_lists_keep_their_order(backend: Any, owner: Any) -> None:
    measurements = [b"m%d" % i for i in range(40)]
    for start in range(0, 40, 8):
        await owner.commit(entries=3, transcript=measurements[start : start + 8])
    snapshot = await owner.store.acquire("flights")
    assert snapshot.transcript == (b"measurement 0", *measurements)
    entries = await owner.store.ledger("flights")
    assert len(entries) == owner.entries == 17
    assert verify(entries, head=snapshot.head, dataset="flights") == owner.head


async def test_of_a_ledger_the_last_entries_are_kept_and_the_head_of_all(
    backend: Any, owner: Any
) -> None:
    whole = await owner.store.ledger("flights")
    for some in (1, LEDGER_TAIL - 4, 1, 2, 3):
        whole += (await owner.commit(entries=some)).ledger
        assert await owner.store.ledger("flights") == whole[-LEDGER_TAIL:]
    assert len(whole) > LEDGER_TAIL
    assert (await owner.store.acquire("flights")).head == verify(whole)
    owner.token += 1
    whole += (await owner.commit(entries=LEDGER_TAIL + 5)).ledger
    assert await owner.store.ledger("flights") == whole[-LEDGER_TAIL:]
    assert (await backend.store().acquire("flights")).head == verify(whole)


async def test_a_store_counts_the_ids_of_each_kind(backend: Any, owner: Any) -> None:
    before = await owner.store.counts("flights")
    assert before == Counts.of(await owner.store.outcomes("flights"))
    await owner.commit(answers={"x1": b"1", "x2": b"2"}, batches={"y": b"3"})
    await owner.commit(rotate=True, answers={"x3": b"4"})
    now = Counts(1, 0, before.answers + 2, before.batches + 1, before.taken)
    assert await owner.store.counts("flights") == now
    assert (now.rotated, now.fresh()) == (
        before.answers + before.batches + 3,
        (1, 0, 0, 0, now.taken),
    )
    fresh = await owner.store.outcomes("flights", rotated=False)
    assert Counts.of(fresh) == now.fresh()
    assert await owner.store.counts("never") == Counts(0, 0, 0, 0, 0)


async def test_a_data_set_may_begin_again_with_another_head(backend: Any, owner: Any) -> None:
    head = bytes(range(32))
    await owner.store.rebuild("flights", 9, seq=5, trail=bytes(32), head=head)
    snapshot = await owner.store.acquire("flights", token=9)
    assert snapshot.head == head
    again = Owner(owner.store, snapshot)
    await again.commit(definition=b"definition", entries=1)
    assert (await owner.store.acquire("flights", token=9)).head == again.head != head


async def test_an_announced_look_stays_open_until_it_is_settled(backend: Any, owner: Any) -> None:
    await owner.commit(intent=b"look 3")
    assert (await owner.store.acquire("flights")).intents == {1: b"look 1", 3: b"look 3"}
    owner.token += 1
    await owner.commit(settles=[1], intent=b"look 4")
    assert (await owner.store.acquire("flights")).intents == {3: b"look 3", 4: b"look 4"}
    owner.token += 1
    with pytest.raises(Conflict, match="look"):
        await owner.store.commit(owner.transition(settles=[1]))
    await owner.commit(settles=[3, 4])
    assert (await owner.store.acquire("flights")).intents == {}


async def test_a_look_cannot_be_settled_by_the_commit_that_announces_it(
    backend: Any, owner: Any
) -> None:
    with pytest.raises(Conflict, match="look"):
        await owner.store.commit(owner.transition(intent=b"look 3", settles=[3]))


async def test_the_outbox_keeps_records_until_they_are_released(backend: Any, owner: Any) -> None:
    for number in range(3, 13):
        await owner.commit(outbox=b"records %d" % number)
    await owner.commit()
    await owner.store.mark({"flights": Released(owner.token, 9)})
    await owner.store.mark({"flights": Released(owner.token, 9)})
    await owner.store.mark({"flights": Released(owner.token, 4)})
    snapshot = await owner.store.acquire("flights")
    assert snapshot.outbox == ((10, b"records 10"), (11, b"records 11"), (12, b"records 12"))
    await owner.store.mark({"flights": Released(snapshot.token, 13)})
    assert (await owner.store.acquire("flights")).outbox == ()


async def test_marks_of_many_data_sets_are_made_though_one_has_another_owner(
    backend: Any, owner: Any, own: Any
) -> None:
    other = await own(backend.store(), "weather")
    await other.commit(outbox=b"records")
    await backend.store().acquire("flights")
    released = {
        "flights": Released(owner.token, 2),
        "nobody": Released(1, 1),
        "weather": Released(other.token, 1),
    }
    fenced = await owner.store.mark(released, {"queries:0": 7})
    assert fenced == ("flights", "nobody")
    assert await owner.store.watermarks() == {"queries:0": 7}
    assert (await owner.store.acquire("weather")).outbox == ()
    assert len((await owner.store.acquire("flights")).outbox) == 2


async def test_commits_of_many_data_sets_are_each_whole_or_not_at_all(
    backend: Any, owner: Any, own: Any
) -> None:
    """What one is refused for does not touch the others; all of them again are done already."""
    store = backend.store()
    weather, trains, buses = [await own(store, name) for name in ("weather", "trains", "buses")]
    await weather.commit()
    await trains.commit(answers={"a1": b"known"})
    await store.acquire("trains")
    many = [
        weather.transition(answers={"a1": b"fair"}),
        trains.transition(answers={"a2": b"late"}),
        owner.transition(answers={"a0": b"", "a1": b"again"}),
        buses.transition(outbox=b"records"),
    ]
    for _ in range(2):
        refused = await store.commit_all(many)
        assert [type(error) for error in refused] == [type(None), Fenced, DuplicateId, type(None)]
        assert "'a1'" in str(refused[2])
    assert await store.answers({"weather": ["a1"], "trains": ["a2"], "flights": ["a0"]}) == {
        ("weather", "a1"): b"fair"
    }
    assert "buses" in await store.datasets()
    assert await store.commit_all([]) == []


async def test_a_retired_data_set_loses_its_rows_and_keeps_its_history(
    backend: Any, owner: Any
) -> None:
    ledger = await owner.store.ledger("flights")
    retirement = await owner.commit(erase=True, answers={"a2": b"answer two"}, intent=b"look 3")
    snapshot = await owner.store.acquire("flights")
    owner.token += 1
    assert snapshot.pending == snapshot.transcript == ()
    assert snapshot.n_blocks == 0
    assert snapshot.verified == snapshot.vault == {}
    assert snapshot.definition == b"definition"
    assert snapshot.meta == {"phase": "1"}
    assert snapshot.cursor == {"queries:0": 5, "batches:0": 7}
    assert snapshot.spent == ((10, 20), (0, 0))
    assert snapshot.intents == {1: b"look 1", 3: b"look 3"}
    assert len(snapshot.outbox) == 2
    store = owner.store
    assert await store.ledger("flights") == [*ledger, *retirement.ledger]
    assert await store.answers({"flights": ["a1", "a2"]}) == {
        ("flights", "a1"): b"answer one",
        ("flights", "a2"): b"answer two",
    }
    assert await store.batches({"flights": ["b1"]}) == {("flights", "b1"): b"batch one"}
    assert await store.datasets() == ("flights",)

    before = backend.dump()
    for rows in ({"pending": [PRIVATE]}, {"seal": PRIVATE}, {"vault": {"offset": PRIVATE}}):
        with pytest.raises(Conflict, match="retired"):
            await store.commit(owner.transition(**rows))
    assert backend.dump() == before
    await owner.commit(cursor={"queries:0": 9}, answers={"a3": b"refused: retired"})


async def test_rows_and_secrets_that_come_with_a_retirement_are_not_kept(
    backend: Any, owner: Any
) -> None:
    rows = {"pending": [PRIVATE], "seal": PRIVATE, "vault": {"cuts": PRIVATE}}
    await owner.commit(erase=True, charges=[Charge(2, 1)], **rows)
    snapshot = await owner.store.acquire("flights")
    assert snapshot.pending == ()
    assert snapshot.n_blocks == 0
    assert snapshot.vault == {}
    assert snapshot.spent == ((10, 20), (0, 0), (1, 0))
    assert PRIVATE.decode() not in repr(backend.dump())


async def test_rows_are_erased_with_the_commit_that_says_so(backend: Any, owner: Any) -> None:
    await owner.commit(seal=PRIVATE, vault={"offset": b""})
    shown = backend.url is not None  # a LocalStore shows no rows in any repr
    assert (PRIVATE.decode() in repr(backend.dump())) is shown
    seal = owner.transition(seal=b"block 3", erased=3, charges=[Charge(3, 5)])
    for _ in range(2):  # the same commit again is done already
        await owner.store.commit(seal)
        assert PRIVATE.decode() not in repr(backend.dump())
    owner.moved(seal)
    snapshot = await backend.store().acquire("flights")
    owner.token += 1
    assert snapshot.n_blocks == 1
    assert await owner.store.block("flights", owner.token, 3) == b"block 3"
    assert snapshot.spent == ((10, 20), (0, 0), (0, 0), (5, 0))
    assert snapshot.transcript == (b"measurement 0",)
    await owner.commit(
        seal=b"block 4", erased=1
    )  # what is erased stays erased, and nothing else goes
    await owner.commit(seal=b"block 5")
    assert await blocks_of(backend.store(), "flights") == [b"block 3", b"block 4", b"block 5"]


async def test_nothing_is_charged_to_a_block_whose_rows_are_erased(
    backend: Any, owner: Any
) -> None:
    before = backend.dump()
    for wrong, said in (
        (owner.transition(erased=1, charges=[Charge(0, 1)]), "rows of block 0 are erased"),
        (owner.transition(seal=b"block 2", erased=4), "block 3 is not sealed"),
    ):
        with pytest.raises(Conflict, match=said):
            await owner.store.commit(wrong)
    assert backend.dump() == before
    await owner.commit(erased=1, charges=[Charge(1, 1)])
    before = backend.dump()
    with pytest.raises(Conflict, match="rows of block 0 are erased"):
        await owner.store.commit(owner.transition(charges=[Charge(0, 1)]))
    assert backend.dump() == before
    await owner.commit(erased=2)
    assert await blocks_of(backend.store(), "flights") == []


# Blocks -----------------------------------------------------------------------------------------


async def test_a_block_keeps_its_index_when_blocks_before_it_are_erased(
    backend: Any, owner: Any
) -> None:
    await owner.commit(seal=b"block 2")
    for erased in range(3):
        await owner.commit(erased=erased)
        read = [await owner.store.block("flights", owner.token, n) for n in range(erased, 3)]
        assert read == [b"block 0", b"block 1", b"block 2"][erased:]
        for index in (*range(erased), 3, 2**40):
            with pytest.raises(Conflict, match=f"no rows of block {index} to read"):
                await owner.store.block("flights", owner.token, index)
    with pytest.raises(ValueError, match="not negative"):
        await owner.store.block("flights", owner.token, -1)


async def test_only_the_owner_reads_blocks(backend: Any, owner: Any) -> None:
    """Another one may have sealed other rows under the same index."""
    former = owner.token
    token = (await backend.store().acquire("flights")).token
    for wrong, name in ((former, "flights"), (token + 1, "flights"), (0, "nobody")):
        with pytest.raises(Fenced):
            await owner.store.block(name, wrong, 0)
    before = backend.dump()
    assert await owner.store.block("flights", token, 0) == b"block 0"
    assert backend.dump() == before


async def test_a_retired_data_set_has_no_block_to_read(backend: Any, owner: Any) -> None:
    await owner.commit(erase=True)
    with pytest.raises(Conflict, match="no rows of block 0"):
        await owner.store.block("flights", owner.token, 0)


# Repetition -------------------------------------------------------------------------------------


async def test_the_same_transition_again_is_done_already(backend: Any, owner: Any) -> None:
    transition = await owner.commit(
        answers={"a2": b"x"},
        batches={"b2": b"y"},
        pending=[b"row 2"],
        seal=b"block 2",
        charges=[Charge(0, UNITS - 10)],
        settles=[1],
        transcript=[b"m"],
        outbox=b"records",
    )
    before = backend.dump()
    await owner.store.commit(transition)
    await backend.store().commit(transition)
    assert backend.dump() == before
    # Once something followed it, it is one that starts from another state.
    await owner.commit()
    with pytest.raises(Conflict):
        await owner.store.commit(transition)


async def test_another_transition_from_the_same_state_is_a_conflict(
    backend: Any, owner: Any
) -> None:
    """Without ledger entries both lead to the same seq and head, and are not the same."""
    for one, other in (
        ({"answers": {"a2": b"0.17"}}, {"answers": {"a2": b"0.18"}}),
        ({"pending": [b"ab", b"c"]}, {"pending": [b"a", b"bc"]}),
        ({"transcript": [b"x"]}, {"pending": [b"x"]}),
        ({"meta": {"a": "b"}}, {"meta": {"a": "b", "c": "d"}}),
    ):
        rival = owner.transition(entries=0, **other)
        transition = await owner.commit(entries=0, **one)
        assert rival.new_head == transition.new_head
        before = backend.dump()
        with pytest.raises(Conflict):
            await owner.store.commit(rival)
        assert backend.dump() == before


async def test_a_repetition_after_a_takeover_is_fenced(backend: Any, owner: Any) -> None:
    transition = await owner.commit(answers={"a2": b"x"})
    await backend.store().acquire("flights")
    with pytest.raises(Fenced):
        await owner.store.commit(transition)


# Contents ---------------------------------------------------------------------------------------


async def test_any_bytes_and_any_text_come_back(backend: Any, owner: Any) -> None:
    every = bytes(range(256))
    ids = ["", " ", "analyst|1", "{flights}", "naïve 票 \U0001f6eb", "a\nb\r\n", "\x00", "%s $1"]
    await owner.commit(
        meta={name: name for name in ids},
        cursor=dict.fromkeys(ids, 1),
        answers=dict.fromkeys(ids, every),
        batches=dict.fromkeys(ids, b""),
        pending=[every, b"", b"\r\n"],
        transcript=[b"", every],
        verified={every: b"", b"": every, b"\xff\x00": b"\x00"},
        intent=b"",
        outbox=b"",
        vault=dict.fromkeys(ids, every),
    )
    snapshot = await owner.store.acquire("flights")
    assert snapshot.meta == {"phase": "1", **{name: name for name in ids}}
    assert set(snapshot.cursor) == {"queries:0", "batches:0", *ids}
    assert snapshot.pending == (b"row 1", every, b"", b"\r\n")
    assert snapshot.transcript == (b"measurement 0", b"", every)
    assert snapshot.verified == {
        b"v1": b"verified one",
        every: b"",
        b"": every,
        b"\xff\x00": b"\x00",
    }
    assert snapshot.intents == {1: b"look 1", 3: b""}
    assert snapshot.vault == {"offset": b"secret one", **dict.fromkeys(ids, every)}
    assert snapshot.outbox[-1] == (3, b"")
    asked = {"flights": ids}
    assert await owner.store.answers(asked) == {("flights", name): every for name in ids}
    assert await owner.store.batches(asked) == {("flights", name): b"" for name in ids}
    owner.token += 1
    await owner.commit(seal=every)
    assert (await blocks_of(owner.store, "flights"))[-1] == every


async def test_a_lookup_finds_what_is_stored_of_many_data_sets(
    backend: Any, owner: Any, own: Any
) -> None:
    await owner.commit(answers={"a2": b"2", "a3": b""})
    await (await own(backend.store(), "weather")).commit(answers={"a1": b"1"})
    store = owner.store
    asked = {"flights": ["a3", "none", "a1", "a3"], "weather": ["a1", "a2"], "trains": ["a1"]}
    assert await store.answers(asked) == {
        ("flights", "a3"): b"",
        ("flights", "a1"): b"answer one",
        ("weather", "a1"): b"1",
    }
    assert await store.answers({}) == await store.answers({"flights": []}) == {}
    assert await store.batches({"flights": ["a1", "b1"], "weather": ["b1"]}) == {
        ("flights", "b1"): b"batch one"
    }


async def test_one_commit_may_hold_ten_thousand_answers(backend: Any, owner: Any) -> None:
    many = 10_000
    answers = {f"analyst|{i}": b"answer %d" % i for i in range(many)}
    await owner.commit(
        entries=0,
        meta={f"m{i}": str(i) for i in range(many)},
        cursor={f"t:{i}": i for i in range(many)},
        answers=answers,
        batches={f"b{i}x": b"%d" % i for i in range(many)},
        pending=[b"row %d" % i for i in range(many + 1)],
        transcript=[b"m%d" % i for i in range(many)],
        verified={b"%d" % i: b"v%d" % i for i in range(many)},
        vault={f"s{i}": b"s%d" % i for i in range(many)},
    )
    snapshot = await owner.store.acquire("flights")
    owner.token += 1
    assert len(snapshot.meta) == many + 1
    assert len(snapshot.cursor) == many + 2
    assert snapshot.pending[1:] == tuple(b"row %d" % i for i in range(many + 1))
    assert snapshot.transcript[1:] == tuple(b"m%d" % i for i in range(many))
    assert len(snapshot.verified) == len(snapshot.vault) == many + 1
    assert await owner.store.answers({"flights": list(answers)}) == {
        ("flights", name): answer for name, answer in answers.items()
    }
    before = backend.dump()
    # The last of many is found, wherever a chunk of a script ends.
    for place in (0, 1_999, 2_000, 3_999, 4_000, many - 1):
        fresh = {f"new|{i}": b"" for i in range(many)}
        ids = [*fresh]
        ids[place] = f"analyst|{place}"
        with pytest.raises(DuplicateId, match=rf"analyst\|{place}'"):
            await owner.store.commit(owner.transition(answers=dict.fromkeys(ids, b"")))
    assert backend.dump() == before


async def test_a_commit_that_no_server_would_take_is_refused_beforehand(
    backend: Any, owner: Any
) -> None:
    before = backend.dump()
    with pytest.raises(StoreError, match="256 MiB"):
        await owner.store.commit(owner.transition(pending=[bytes(1 << 20)] * 257))
    assert backend.dump() == before


async def test_many_looks_and_records_can_be_open_at_once(backend: Any, owner: Any) -> None:
    for _ in range(300):
        await owner.commit(entries=0, intent=b"look", outbox=b"records")
    await owner.commit(settles=[1, *range(3, 303)])
    await owner.store.mark({"flights": Released(owner.token, 301)})
    snapshot = await owner.store.acquire("flights")
    assert snapshot.intents == {}
    assert snapshot.outbox == ((302, b"records"),)


@pytest.mark.parametrize("name", ["", "Flights", "a}b", "{a}", "a:b", ".a", "a" * 64, "a\n"])
async def test_a_name_that_could_reach_other_keys_is_refused(backend: Any, name: str) -> None:
    store = backend.store()
    for call in (
        store.acquire(name),
        store.answers({name: ["a"]}),
        store.batches({"flights": ["a"], name: ["a"]}),
        store.ledger(name),
        store.counts(name),
        store.mark({name: Released(1, 1)}),
    ):
        with pytest.raises(ValueError, match="name"):
            await call


async def test_errors_and_reprs_carry_no_rows(backend: Any, owner: Any) -> None:
    """They may carry ids and places, which are public."""
    secret = PRIVATE.decode()
    everything = owner.transition(
        pending=[PRIVATE],
        seal=PRIVATE,
        vault={"cuts": PRIVATE},
        transcript=[PRIVATE],
        outbox=PRIVATE,
        intent=PRIVATE,
    )
    assert secret not in repr(everything)
    await owner.commit(pending=[PRIVATE])
    await owner.commit(seal=PRIVATE, pending=[PRIVATE], vault={"cuts": PRIVATE})
    snapshot = await owner.store.acquire("flights")
    assert PRIVATE in snapshot.pending
    assert await owner.store.block("flights", snapshot.token, 2) == PRIVATE
    assert snapshot.vault["cuts"] == PRIVATE
    assert secret not in repr(snapshot)
    assert secret not in repr(owner.store)
    owner.token += 1
    for changes, _ in REFUSED.values():
        with pytest.raises(StreamDPError) as caught:
            await owner.store.commit(
                owner.transition(**{"pending": [PRIVATE], "seq": 0, **changes})
            )
        assert secret not in str(caught.value)


# What belongs to no data set --------------------------------------------------------------------


async def test_watermarks_never_fall(backend: Any) -> None:
    store = backend.store()
    assert await store.watermarks() == {}
    await store.mark(watermarks={"queries:0": 10, "queries:1": 9})
    await backend.store().mark(watermarks={"queries:0": 9, "queries:1": 10, "batches:0": 0})
    await store.mark(watermarks={})
    assert await store.watermarks() == {"queries:0": 10, "queries:1": 10, "batches:0": 0}
    await store.mark(watermarks={"queries:0": 2**53 + 1})
    await store.mark(watermarks={"queries:0": 2**53})
    assert (await store.watermarks())["queries:0"] == 2**53 + 1
    with pytest.raises(ValueError, match="negative"):
        await store.mark(watermarks={"queries:0": -1})


async def test_a_partition_count_is_recorded_once(backend: Any) -> None:
    store = backend.store()
    assert await store.partitions("queries", 12) == 12
    assert await store.partitions("queries", 24) == 12
    assert await backend.store().partitions("queries", 6) == 12
    assert await store.partitions("batches", 6) == 6


async def test_a_constant_is_recorded_once_for_all_workers(backend: Any) -> None:
    store = backend.store()
    assert await store.constant("secret", b"\xff\x00 one") == b"\xff\x00 one"
    assert await store.constant("secret", b"two") == b"\xff\x00 one"
    assert await backend.store().constant("secret", b"three") == b"\xff\x00 one"
    assert await store.constant("another", b"") == b""


async def test_attempts_at_a_place_are_counted_until_cleared(backend: Any) -> None:
    store = backend.store()
    assert [await store.attempts("queries:0:17") for _ in range(3)] == [1, 2, 3]
    assert await backend.store().attempts("queries:0:18") == 1
    await store.clear_attempts("queries:0:17")
    assert await store.attempts("queries:0:17") == 1
    assert await store.attempts("queries:0:18") == 2, "another task is not done yet"


async def test_a_partition_that_is_not_put_down_is_known_to_its_next_holder(backend: Any) -> None:
    store = backend.store()
    assert await store.hold("one", {0, 1, 2}) == set()
    assert await store.hold("one", [1, 2, 3]) == set()
    assert await backend.store().hold("two", [0, 1, 2]) == {1, 2}
    assert await store.hold("two", [1, 2]) == {1, 2}, "asked again, the same"
    assert await store.hold("two", [2]) == {2}
    assert await store.hold("three", [1]) == set(), "whoever put it down had it in hand no more"
    assert await store.hold("one", []) == set()
    assert await store.hold("four", [0, 1, 2, 3]) == {1, 2}
    assert await store.hold("four", ()) == set()
    assert await store.hold("one", [0, 1, 2, 3]) == set()


async def test_a_safe_store_has_no_problems(backend: Any) -> None:
    assert await backend.store().problems() == ()


async def test_cursors_are_read_by_their_places(backend: Any, own: Any) -> None:
    store = backend.store()
    owner = await own(store, "flights")
    assert await store.cursors("flights", ["batches:0"]) == {}
    await owner.commit(definition=b"f", cursor={"batches:0": 7, "source t@i:1": 2**53 + 1})
    places = ["source t@i:1", "never", "batches:0"]
    assert await backend.store().cursors("flights", places) == {
        "batches:0": 7,
        "source t@i:1": 2**53 + 1,
    }
    assert await store.cursors("flights") == {"batches:0": 7, "source t@i:1": 2**53 + 1}
    assert await store.cursors("trains", places) == await store.cursors("trains") == {}


# Who owns it, by a token that is given ----------------------------------------------------------


async def test_a_token_that_is_given_is_taken_unless_a_larger_one_is_stored(
    backend: Any, owner: Any
) -> None:
    store = backend.store()
    assert (await store.acquire("flights", token=90)).token == 90
    before = backend.dump()
    for smaller in (0, 9, 89):
        with pytest.raises(Fenced):
            await store.acquire("flights", token=smaller)
    assert backend.dump() == before
    with pytest.raises(Fenced):
        await owner.commit()
    # Digits alone would have it that 100 comes before 90.
    assert (await store.acquire("flights", token=100)).token == 100
    assert (await store.acquire("flights")).token == 101


async def test_the_same_token_again_is_the_same_owner(backend: Any, own: Any) -> None:
    store = backend.store()
    first = Owner(store, await store.acquire("flights", token=7))
    transition = await first.commit(answers={"a1": b"x"})
    again = await backend.store().acquire("flights", token=7)
    assert (again.token, again.seq, again.trail) == (7, 1, transition.new_trail)
    await first.commit()


async def test_a_token_for_what_does_not_exist_begins_it_only_if_it_may(backend: Any) -> None:
    store = backend.store()
    before = backend.dump()
    assert (await store.acquire("flights", token=5, new=False)).token == 0
    assert backend.dump() == before
    assert (await store.acquire("flights", token=5)).token == 5


# The trail --------------------------------------------------------------------------------------


async def test_a_commit_of_another_history_is_a_conflict(backend: Any, own: Any) -> None:
    """Without ledger entries nothing but the trail tells two histories of the same length apart."""
    owner = await own(backend.store())
    assert (owner.seq, owner.trail) == (0, ORIGIN)
    await owner.commit(entries=0)
    before = backend.dump()
    for other in (ORIGIN, bytes([7]) * 32):
        with pytest.raises(Conflict, match="another history"):
            await owner.store.commit(owner.transition(entries=0, trail=other))
    assert backend.dump() == before
    behind = (await owner.commit(entries=0)).new_trail
    assert (await owner.store.acquire("flights")).trail == behind


@pytest.mark.parametrize("field", ["trail", "new_trail"])
async def test_a_trail_has_32_bytes(backend: Any, owner: Any, field: str) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        owner.transition(**{field: bytes(31)})


# How far the store and the journal agree --------------------------------------------------------


async def test_a_place_says_where_the_store_has_each_data_set(backend: Any, own: Any) -> None:
    store = backend.store()
    assert await store.places(str) == {}
    flights, weather = await own(store, "flights"), await own(store, "weather")
    await flights.commit()
    await flights.commit()
    await weather.commit()
    await store.note_listed("t:0", Note(4, 1), ["trains"])
    assert await backend.store().places(lambda _: "t:0") == {
        "flights": Place(1, 2, flights.trail),
        "trains": Place(0, 0, ORIGIN),
        "weather": Place(1, 1, weather.trail),
    }
    assert await store.datasets() == ("flights", "weather"), "what is only named does not exist"


async def test_a_note_is_of_one_partition_and_only_of_the_place_at_which_it_was_found(
    backend: Any, own: Any
) -> None:
    store = backend.store()
    flights, weather = await own(store, "flights"), await own(store, "weather")
    await flights.commit()
    await weather.commit()
    found = await store.places("t:{}".format)
    large = Note(2**53 + 1, 2**53 + 3, 1)
    await weather.commit()
    await store.note("t:flights", {"flights": large}, found)
    await store.note("t:weather", {"weather": large}, found)
    now = await backend.store().places("t:{}".format)
    assert now["flights"].note == large
    assert now["weather"].note == Note(), "it has moved on"
    assert (await store.places(lambda _: "t:other"))["flights"].note == Note()
    # The same number of commits of another history.
    other = replace(now["weather"], trail=flights.trail)
    await store.note("t:weather", {"weather": large}, {"weather": other})
    assert (await store.places("t:{}".format))["weather"].note == Note()
    await store.note("t:weather", {"weather": large}, now)
    assert (await store.places("t:{}".format))["weather"].note == large


async def test_a_note_of_what_is_only_named_is_not_kept(backend: Any) -> None:
    store = backend.store()
    await store.note_listed("t:0", Note(4, 1), ["trains"])
    found = await store.places(lambda _: "t:0")
    await store.note("t:0", {"trains": Note(4, 1)}, found)
    assert await store.places(lambda _: "t:0") == found


async def test_what_was_read_from_behind_the_note_that_is_there_is_not_noted(backend: Any) -> None:
    """The store has gone back since, and lacks what lies between."""
    store = backend.store()
    await store.note_listed("t:0", Note(4, 1), ["trains"], since=0)
    for since in (4, 4, 0):  # a reply was lost; and another worker has noted more meanwhile
        await store.note_listed("t:0", Note(6, 2), ["flights"], {"batches:0": 3}, since=since)
    before = backend.dump()
    with pytest.raises(GoneBack, match="not noted any more"):
        await store.note_listed("t:0", Note(8, 3), ["ships"], {"batches:0": 9}, since=7)
    with pytest.raises(Fenced):
        await store.note_listed("t:0", Note(9, 1), ["ships"], {"batches:0": 9}, since=4)
    assert backend.dump() == before
    await store.note_listed("t:0", Note(8, 3), [], since=6)
    assert await store.listed("t:0") == Note(8, 3)


async def test_how_far_names_are_listed_is_noted_with_names_and_watermarks(backend: Any) -> None:
    store = backend.store()
    await store.mark(watermarks={"queries:0": 9, "batches:0": 3})
    assert await store.listed("t:0") == Note()
    said = {"queries:0": 7, "batches:0": 10, "rejected queries:0": 2**53 + 1}
    await store.note_listed("t:0", Note(2**53 + 1, 3), ["flights"], said)
    assert await backend.store().watermarks() == said | {"queries:0": 9}, "none of them goes down"
    await store.note_listed("t:1", Note(8, 2), [])
    other = backend.store()
    assert [await other.listed(f"t:{at}") for at in range(3)] == [
        Note(2**53 + 1, 3),
        Note(8, 2),
        Note(),
    ]
    assert set(await other.places(str)) == {"flights"}


async def test_what_is_released_is_noted_with_it(backend: Any, owner: Any) -> None:
    store, note = owner.store, Note(12, 3, 1)
    assert await store.mark({"flights": Released(owner.token, 1, "t:0", note)}) == ()
    assert (await store.places(lambda _: "t:0"))["flights"].note == note
    # Without one, what was noted stays; a former owner notes nothing.
    await store.mark({"flights": Released(owner.token, 2)})
    successor = await store.acquire("flights")
    assert successor.outbox == ()
    late = Released(owner.token, 2, "t:0", Note(99, 9, 2))
    assert await store.mark({"flights": late}) == ("flights",)
    assert (await store.places(lambda _: "t:0"))["flights"].note == note


async def test_a_store_behind_what_is_released_is_a_conflict_and_notes_nothing(
    backend: Any, owner: Any
) -> None:
    before = backend.dump()
    ahead = Released(owner.token, 3, "t:0", Note(12, 3, 3))
    with pytest.raises(Conflict, match="stands at seq 2"):
        await owner.store.mark({"flights": ahead})
    assert backend.dump() == before


async def test_a_data_set_that_is_behind_keeps_no_other_from_being_marked(
    owner: Any, own: Any
) -> None:
    store = owner.store
    trains = await own(store, "trains")
    await trains.commit(outbox=b"left")
    note = Note(9, 3, trains.seq)
    released = {
        "flights": Released(owner.token, owner.seq + 1),
        "trains": Released(trains.token, trains.seq, "t:0", note),
    }
    with pytest.raises(Conflict, match="stands at seq 2"):
        await store.mark(released, {"queries:0": 7})
    assert await store.watermarks() == {"queries:0": 7}
    assert (await store.places(lambda _: "t:0"))["trains"].note == note
    assert (await store.acquire("trains")).outbox == ()


async def test_the_outcomes_are_all_that_is_stored_under_ids(backend: Any, owner: Any) -> None:
    assert await owner.store.outcomes("nobody") == NOTHING
    many = {f"a {number} \u00e4": b"%d" % number for number in range(3_000)}
    taken = [taken_id(name) for name in many]
    await owner.commit(answers={**many, "": b"\xff"}, batches={"b2": b""}, taken=taken)
    assert await backend.store().outcomes("flights") == (
        {"a1": b"answer one", "": b"\xff", **many},
        {"b1": b"batch one", "b2": b""},
        {},
        {},
        frozenset(taken),
    )


async def test_an_answer_is_kept_until_answers_have_rotated_twice(backend: Any, owner: Any) -> None:
    store = owner.store
    asked = {"flights": ["a1", "a2", "a3"], "weather": ["a1"]}

    async def kept() -> dict[str, bytes]:
        return {name: answer for (_, name), answer in (await store.answers(asked)).items()}

    await owner.commit(rotate=True, answers={"a2": b"two"})
    assert await kept() == {"a1": b"answer one", "a2": b"two"}
    two, batches, one = {"a2": b"two"}, {"b1": b"batch one"}, {"a1": b"answer one"}
    assert await store.outcomes("flights") == (two, {}, one, batches, frozenset())
    for known in ({"a2": b""}, {"a3": b"", "a1": b""}):
        before = backend.dump()
        with pytest.raises(DuplicateId, match=r"'a[12]' is stored already"):
            await store.commit(owner.transition(answers=known))
        assert backend.dump() == before
    with pytest.raises(DuplicateId, match="'a2'"):
        await store.commit(owner.transition(rotate=True, answers={"a2": b""}))
    await owner.commit(rotate=True, answers={"a1": b"another"})
    assert await kept() == {"a1": b"another", "a2": b"two"}
    await owner.commit(rotate=True)
    assert await kept() == {"a1": b"another"}
    await owner.commit(rotate=True)
    assert await kept() == {}
    await owner.commit(answers={"a2": b"again"})
    assert await store.outcomes("flights") == ({"a2": b"again"}, {}, {}, {}, frozenset())


ONE, TWO, THREE = (taken_id(name) for name in ("b1", "b2", "b3"))
NEAR = ONE[:2] + bytes(14), ONE[:2] + bytes(13) + b"\1"
"""They lie in the field of the first one, and the ends of two of them hold what looks like a third."""


async def test_an_id_is_taken_for_ever_and_its_outcome_is_kept_until_two_rotations(
    backend: Any, owner: Any
) -> None:
    store, asked = backend.store(), {"flights": ["b1", "b2", "b3"], "weather": ["b2"]}
    await owner.commit(batches={"b2": b"batch two", "b3": b"refused"}, taken=[TWO])
    found = {"b1": b"batch one", "b2": b"batch two", "b3": b"refused"}
    for _ in range(2):
        assert await store.batches(asked) == {("flights", name): of for name, of in found.items()}
        before = backend.dump()
        for known in ("b1", "b2", "b3"):
            with pytest.raises(DuplicateId, match=f"batch '{known}' is stored already"):
                await owner.store.commit(owner.transition(batches={known: b""}))
        assert backend.dump() == before
        await owner.commit(rotate=True)
    assert await store.batches(asked) == {("flights", "b2"): TAKEN}
    assert await store.outcomes("flights") == ({}, {}, {}, {}, frozenset({TWO}))
    with pytest.raises(DuplicateId, match=f"the id of a batch with {TWO.hex()} is taken already"):
        await owner.store.commit(owner.transition(batches={"b2": b""}, taken=[TWO]))
    await owner.commit(batches={"b3": b"batch three"}, taken=[THREE])
    assert await store.batches(asked) == {
        ("flights", "b2"): TAKEN,
        ("flights", "b3"): b"batch three",
    }


async def test_ids_that_are_taken_are_told_from_those_that_look_like_them(
    backend: Any, owner: Any
) -> None:
    assert await owner.store.taken("flights", [ONE, *NEAR]) == set()
    await owner.commit(taken=[ONE, *NEAR])
    like = ONE[:2] + bytes(12) + b"\1\0", ONE[:2] + ONE[9:] + bytes(7), TWO
    for there in ((), like[:1]):
        await owner.commit(taken=list(there))
        found = {ONE, *NEAR, *there}
        assert await owner.store.taken("flights", [*like, *NEAR, ONE]) == found
        assert (await owner.store.outcomes("flights")).taken == found
        assert (await owner.store.look("flights")).n_taken == len(found)
    assert await owner.store.taken("flights", []) == set()
    assert await owner.store.taken("weather", [ONE]) == set()
    before = backend.dump()
    for taken in ([TWO, THREE, TWO], [TWO, NEAR[1]], [like[0]]):
        with pytest.raises(DuplicateId, match=taken[-1].hex()):
            await owner.store.commit(owner.transition(taken=taken))
        assert backend.dump() == before
    with pytest.raises(ValueError, match="16 bytes are kept"):
        owner.transition(taken=[b"short"])


async def test_a_retired_data_set_keeps_what_is_taken(backend: Any, owner: Any) -> None:
    await owner.commit(batches={"b2": b"batch two"}, taken=[TWO])
    await owner.commit(erase=True, rotate=True)
    await owner.commit(rotate=True)
    assert await owner.store.batches({"flights": ["b2"]}) == {("flights", "b2"): TAKEN}


async def test_a_rotation_that_is_repeated_or_refused_moves_nothing(
    backend: Any, owner: Any
) -> None:
    transition = owner.transition(
        rotate=True, answers={"a2": b"two"}, batches={"b2": b"two"}, taken=[taken_id("b2")]
    )
    await owner.store.commit(transition)
    before = backend.dump()
    await owner.store.commit(transition)
    with pytest.raises(Conflict):
        await owner.store.commit(owner.transition(rotate=True, seq=9))
    assert backend.dump() == before


# Beginning anew ---------------------------------------------------------------------------------

ANEW = bytes([7]) * 32


def aside(backend: Any) -> dict[str, Any]:
    """What is set aside of "flights", by its part."""
    kept = backend.dump()
    if backend.url is None:
        held = kept["_aside"].get("flights")
        return (
            {}
            if held is None
            else {
                one.name: getattr(held, one.name) for one in fields(held) if getattr(held, one.name)
            }
        )
    marker = b"flights}:aside:"
    return {
        key.partition(marker)[2].decode(): content
        for key, (_, _, content) in kept.items()
        if marker in key
    }


async def test_what_is_rebuilt_begins_with_nothing_at_the_place_that_is_given(
    backend: Any, owner: Any
) -> None:
    store = owner.store
    await store.mark({"flights": Released(owner.token, 1, "t:0", Note(9, 1, 1))})
    await store.rebuild("flights", 8, seq=5, trail=ANEW)
    with pytest.raises(Fenced):
        await owner.commit()
    assert (await store.places(lambda _: "t:0"))["flights"] == Place(8, 5, ANEW)
    assert await store.outcomes("flights") == NOTHING
    assert await store.ledger("flights") == []
    assert await store.datasets() == ()
    snapshot = await store.acquire("flights", token=8)
    assert (snapshot.seq, snapshot.head, snapshot.trail) == (5, GENESIS, ANEW)
    assert snapshot.definition is None
    assert snapshot.pending == snapshot.spent == snapshot.outbox == ()
    assert snapshot.n_blocks == 0
    assert snapshot.transcript == ()
    assert snapshot.meta == snapshot.cursor == snapshot.verified == snapshot.intents == {}
    assert snapshot.vault == {}
    # It goes on from there, and what was set aside is in nobody's way.
    again = Owner(store, snapshot)
    await again.commit(answers={"a1": b"another"}, cursor={"queries:0": 1}, seal=b"block")
    assert await store.answers({"flights": ["a1"]}) == {("flights", "a1"): b"another"}
    assert (await store.acquire("flights")).spent == ((0, 0),)


async def test_an_unfinished_beginning_is_dropped_and_what_was_set_aside_stays(
    backend: Any, owner: Any
) -> None:
    assert aside(backend) == {}
    await owner.store.rebuild("flights", 8, seq=5, trail=ANEW)
    first = aside(backend)
    assert {"vault", "blocks", "answers"} <= first.keys()
    await owner.store.rebuild("flights", 9, seq=4, trail=bytes([8]) * 32)
    assert aside(backend) == first
    assert (await owner.store.acquire("flights", token=9)).seq == 4


async def test_what_was_finished_is_set_aside_whole_and_not_mixed_with_what_was_before(
    backend: Any, owner: Any
) -> None:
    await owner.store.rebuild("flights", 8, seq=5, trail=ANEW)
    again = Owner(owner.store, await owner.store.acquire("flights", token=8))
    await again.commit(answers={"a1": b"another"})
    await owner.store.rebuild("flights", 9, seq=0, trail=ORIGIN)
    kept = aside(backend)
    assert "answers" in kept
    assert not {"vault", "blocks", "pending"} & kept.keys(), "they are of an earlier history"
    assert "another" in repr(kept["answers"])


SECRET = {"pending", "blocks", "vault"}


async def begun_anew(owner: Any) -> Any:
    """The owner of "flights" when what there was of it is set aside, and a new one is defined."""
    await owner.store.rebuild("flights", 8, seq=5, trail=ANEW)
    again = Owner(owner.store, await owner.store.acquire("flights", token=8))
    await again.commit(definition=b"another", seal=b"another block", pending=[b"another row"])
    return again


async def test_a_data_set_that_is_retired_leaves_no_rows_in_what_was_set_aside(
    backend: Any, owner: Any
) -> None:
    again = await begun_anew(owner)
    before = aside(backend)
    assert before.keys() >= SECRET
    await again.commit(erase=True)
    gone = SECRET | {"transcript", "verified"}
    assert aside(backend) == {part: held for part, held in before.items() if part not in gone}


async def test_rows_that_are_erased_are_erased_from_what_was_set_aside_too(
    backend: Any, owner: Any
) -> None:
    again = await begun_anew(owner)
    before = aside(backend)
    await again.commit(seal=b"one more", meta={"phase": "2"})
    assert aside(backend) == before, "nothing was erased"
    refused = again.transition(erased=3)
    with pytest.raises(Conflict):
        await again.store.commit(refused)
    assert aside(backend) == before, "nor by a commit that is refused"
    await again.commit(erased=1)
    assert aside(backend) == {part: held for part, held in before.items() if part not in SECRET}
    assert await blocks_of(backend.store(), "flights") == [b"one more"]


async def test_what_persons_have_used_is_not_set_aside(backend: Any, owner: Any) -> None:
    digests = np.full((1, 12), 7, np.uint8)
    reservation = Reservation(
        dataset="flights",
        token=owner.token,
        phase=3,
        digests=digests,
        before=np.array([0]),
        rows=np.array([2]),
    )
    await owner.store.reserve(reservation)
    await begun_anew(owner)
    assert "persons" not in aside(backend)


async def test_a_former_owner_cannot_begin_anew(backend: Any, owner: Any) -> None:
    await owner.store.acquire("flights", token=10)
    before = backend.dump()
    with pytest.raises(Fenced):
        await backend.store().rebuild("flights", 9, seq=0, trail=ORIGIN)
    assert backend.dump() == before


async def test_what_was_forgotten_whole_can_begin_anew(backend: Any, own: Any) -> None:
    store = backend.store()
    await store.rebuild("flights", 3, seq=0, trail=ORIGIN)
    assert aside(backend) == {}
    assert await store.places(str) == {"flights": Place(3, 0, ORIGIN)}
    await Owner(store, await store.acquire("flights", token=3)).commit(definition=b"f")
    assert await store.datasets() == ("flights",)
