"""Which reply reaches which of those who wait, without a broker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from stream_dp.messages import Reason, Rejected
from tests.client.world_client import QuietMailbox

RECORD = ("queries", 0, 7)


@pytest.fixture
def mailbox() -> Iterator[QuietMailbox]:
    with contextlib.closing(QuietMailbox()) as made:
        yield made


def answer(analyst: str, query_id: str) -> bytes:
    reason = {"code": "no_phase", "message": "no phase is open yet"}
    of = {"version": 1, "dataset": "people", "analyst": analyst, "query_id": query_id}
    return json.dumps({**of, "status": "refused", "reason": reason}).encode()


def rejection(query_id: str | None = None) -> bytes:
    topic, partition, offset = RECORD
    reason = Reason(code="unknown_dataset", message="there is none of this name")
    return Rejected(
        topic=topic, partition=partition, offset=offset, query_id=query_id, reason=reason
    ).to_bytes()


def test_an_answer_reaches_all_that_wait_for_it_and_nobody_else(mailbox: QuietMailbox) -> None:
    first, second = (mailbox.expect(("answer", "people", "ann", "q")) for _ in range(2))
    others = [
        mailbox.expect(("answer", "people", "bob", "q")),
        mailbox.expect(("answer", "people", "ann", "q2")),
        mailbox.expect(("answer", "trains", "ann", "q")),
    ]
    mailbox.deliver("answers", answer("ann", "q"))
    assert first.done()
    assert second.done()
    assert not any(other.done() for other in others)


def test_a_rejection_reaches_who_waits_for_it_though_it_came_first(mailbox: QuietMailbox) -> None:
    future = mailbox.expect(("answer", "people", "ann", "q"))
    mailbox.deliver("rejected", rejection())
    mailbox.expect_rejection(future, RECORD, "q")
    assert future.done()
    assert isinstance(future.result(), Rejected)


@pytest.mark.parametrize("comes_first", [False, True])
def test_the_rejection_of_one_query_of_a_record_reaches_that_query_alone(
    mailbox: QuietMailbox, comes_first: bool
) -> None:
    futures = {name: mailbox.expect(("answer", "people", "ann", name)) for name in ("a", "b")}
    if comes_first:
        mailbox.deliver("rejected", rejection("b"))
    for name, future in futures.items():
        mailbox.expect_rejection(future, RECORD, name)
    if not comes_first:
        mailbox.deliver("rejected", rejection("b"))
    assert {name: future.done() for name, future in futures.items()} == {"a": False, "b": True}
