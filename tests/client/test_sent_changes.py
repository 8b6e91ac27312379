"""Persons are erased and rows corrected by a client, which gets a receipt that it checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stream_dp.client import AcceptedChanges, Client, Rejection
from stream_dp.errors import InvalidInput, RequestTimeout, StreamDPError
from stream_dp.messages import TOPICS
from tests.client.world_client import AsyncSessionClient, SessionClient, WorldSession
from tests.waiting import PATIENCE_S, until

HOURS_9 = 9 * 3_600_000
SHOP: dict[str, Any] = {
    "dataset": "shop",
    "attributes": [{"name": "page", "type": "category", "values": ["home", "cart"]}],
    "privacy": {
        "epsilon": 4.0,
        "delta": 1e-9,
        "unit": {"key": "customer", "rows_per_phase": 2, "phases": 1},
    },
    "accuracy": {"error": 0.05, "failure_probability": 1e-6},
    "phase": {"min_rows": 1000},
    "erasure": {"within": "24 hours", "row": "order"},
}
FIX = {"person": "C-1", "row": "o-1", "set": {"page": "cart"}}


def sweep(session: WorldSession) -> None:
    """Nine hours pass, and the worker notices."""
    session.world.now_ms += HOURS_9
    session.send("in.batches", "shop", b'{"version":1,"dataset":"shop","clock":true}', ())


@pytest.fixture
def shop(session: WorldSession) -> Client:
    """A client, and a data set of which 10 persons have rows that wait."""
    session.world.key_file = bytes(range(64))
    session.world.now_ms = 1_790_000_000_000
    client = SessionClient(session)
    client.define(SHOP)
    keys = {"customer": [f"C-{n}" for n in range(10)], "order": [f"o-{n}" for n in range(10)]}
    client.send("shop", columns={"page": ["home"] * 10, **keys})
    session.sent.clear()
    return client


def batches(session: WorldSession) -> list[dict[str, Any]]:
    return [json.loads(value or b"") for topic, _, value, _ in session.sent]


def test_persons_are_erased_and_the_receipt_is_that_of_the_sweep(
    shop: Client, session: WorldSession
) -> None:
    accepted = shop.erase("shop", ["C-1", None, "nobody"], batch_id="gone")
    (event,) = accepted.events
    assert (event.event, event.batch, event.changes) == ("batch_accepted", "gone-1", 3)
    assert accepted.change_numbers == (1,)
    assert accepted.due == "2026-09-21T22:13:20+00:00"
    assert shop.erase("shop", ["C-1", None, "nobody"], batch_id="gone") == accepted
    fixed = shop.correct("shop", [FIX, None])
    assert fixed.change_numbers == (2,)
    sweep(session)
    for one in (accepted, fixed):
        swept = shop.receipt("shop", *one.change_numbers)
        assert (swept.event, swept.sweep, swept.change_number) == ("swept", 1, 2)
        assert (swept.changes, swept.lost) == (5, 0)
    assert session.world.events("swept") == [json.loads(swept.to_bytes())]


def test_a_receipt_is_awaited_and_no_longer_than_asked(shop: Client, session: WorldSession) -> None:
    (number,) = shop.erase("shop", ["C-1"]).change_numbers
    with pytest.raises(RequestTimeout, match=r"no sweep of shop has made change 1 within 0.01 s"):
        shop.receipt("shop", number, timeout_s=0.01)
    with ThreadPoolExecutor(1) as pool:
        awaited = pool.submit(shop.receipt, "shop", number)
        until(lambda: session.mailbox._followers)
        sweep(session)
        assert awaited.result(PATIENCE_S).change_number == 1
        later = pool.submit(shop.receipt, "shop", number + 1)
        until(lambda: session.mailbox._followers)
        shop.close()
        with pytest.raises(StreamDPError, match="the client was closed"):
            later.result(PATIENCE_S)


def test_a_request_of_many_persons_is_sent_in_batches_that_fit(
    shop: Client, session: WorldSession
) -> None:
    told: list[Any] = []
    accepted = shop.erase("shop", (f"C-{n}" for n in range(25_000)), on_accepted=told.append)
    assert [len(batch["erase"]) for batch in batches(session)] == [10_000, 10_000, 5_000]
    assert accepted.change_numbers == (1, 2, 3)
    assert told == [*accepted.events]
    session.sent.clear()
    page = "x" * 1_000
    changes = [{**FIX, "row": f"o-{n}", "set": {"page": page}} for n in range(9_000)]
    shop.correct("shop", changes, batch_id="fix")
    assert [entry for batch in batches(session) for entry in batch["correct"]] == changes
    assert [batch["batch_id"] for batch in batches(session)] == [f"fix-{n}" for n in range(1, 5)]
    limit = TOPICS["batches"].max_value_bytes
    assert all(len(value or b"") <= limit for _, _, value, _ in session.sent)


def test_changes_that_were_lost_are_said_and_have_no_receipt(
    shop: Client, session: WorldSession
) -> None:
    lost = {"version": 1, "dataset": "shop", "event": "changes_lost", "batch_id": "gone-1"}
    numbers = shop.erase("shop", ["C-1"], batch_id="gone").change_numbers
    other = shop.erase("shop", ["C-2"]).change_numbers
    with ThreadPoolExecutor(1) as pool:
        awaited = pool.submit(shop.receipt, "shop", *numbers)
        until(lambda: session.mailbox._followers)
        value = json.dumps(lost).encode()
        session.records["events"].append(("shop", value))
        session.mailbox.deliver("events", value)
        with pytest.raises(StreamDPError, match="send them again under another id"):
            awaited.result(PATIENCE_S)
    sweep(session)
    with pytest.raises(StreamDPError, match="lost changes of this request before they were made"):
        shop.receipt("shop", *numbers)
    assert shop.receipt("shop", *other).sweep == 1


def test_a_receipt_that_the_data_set_has_not_signed_is_refused(
    shop: Client, session: WorldSession
) -> None:
    numbers = shop.erase("shop", ["C-1"]).change_numbers
    sweep(session)
    good = shop.receipt("shop", *numbers)
    records = session.records["ledger"]
    for change in ({"changes": 7}, {"at": "2026-01-01"}, {"signature": "x"}, {"lost": None}):
        entry = json.loads(records[-1][1] or b"")
        session.records["ledger"] = [*records[:-1], ("shop", json.dumps(entry | change).encode())]
        with pytest.raises(StreamDPError, match="the receipt of sweep 1 is not that of shop"):
            shop.receipt("shop", *numbers)
    session.records["ledger"] = records
    assert shop.receipt("shop", *numbers) == good


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: c.erase("shop", []), "it names nobody and nothing"),
        (lambda c: c.erase("shop", ["x" * 5_000_000]), "no key is that long"),
        (lambda c: c.erase("shpo", ["C-1"]), "did you mean shop"),
        (lambda c: c.erase("flights", ["C-1"]), "nobody can be erased from flights"),
        (lambda c: c.correct("flights", [FIX]), "nobody can be erased from flights"),
        (lambda c: c.receipt("flights", 1), "nobody can be erased from flights"),
        (lambda c: c.sweep("flights"), "nobody can be erased from flights"),
        (lambda c: c.receipt("shop"), "pass those of accepted batches"),
    ],
)
def test_what_cannot_be_erased_is_refused_before_anything_is_sent(
    shop: Client, session: WorldSession, ask: Callable[[Client], object], words: str
) -> None:
    session.world.define("flights")
    session.run()
    with pytest.raises(InvalidInput, match=words):
        ask(shop)
    assert session.sent == []


def test_rows_without_keys_of_their_own_and_changes_of_a_wrong_form_are_refused(
    shop: Client,
) -> None:
    with pytest.raises(Rejection, match="does not say what becomes of a row"):
        shop.correct("shop", [{"person": "C-1", "row": "o-1"}])
    shop.define({**SHOP, "dataset": "visits", "erasure": {"within": "24 hours"}})
    with pytest.raises(InvalidInput, match="the rows of visits have no keys of their own"):
        shop.correct("visits", [FIX])


async def test_a_task_erases_and_gets_the_receipt(shop: Client, session: WorldSession) -> None:
    del shop
    async with AsyncSessionClient(session) as client:
        accepted = await client.erase("shop", ["C-1"])
        assert isinstance(accepted, AcceptedChanges)
        with pytest.raises(RequestTimeout):
            await client.receipt("shop", *accepted.change_numbers, timeout_s=0.01)
