"""Which reply reaches which of those who wait, without a broker."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stream_dp.broker import Broker
from stream_dp.client.kafka.mailbox import Mailbox
from stream_dp.messages import Reason, Rejected, Topics

RECORD = ("queries", 0, 7)


class _Silence:
    """A consumer that nothing ever comes to."""

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        time.sleep(0.01)
        return {}

    def close(self) -> None:
        pass


class _Alone(Mailbox):
    """A mailbox whose replies come from the test."""

    def _open(self, config: dict[str, object]) -> Any:
        return _Silence()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with contextlib.closing(_Alone(Broker("127.0.0.1:1"), {}, Topics())) as made:
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


def test_an_answer_reaches_all_that_wait_for_it_and_nobody_else(mailbox: Mailbox) -> None:
    first, second = (mailbox.expect(("answer", "people", "ann", "q")) for _ in range(2))
    others = [
        mailbox.expect(("answer", "people", "bob", "q")),
        mailbox.expect(("answer", "people", "ann", "q2")),
        mailbox.expect(("answer", "trains", "ann", "q")),
    ]
    mailbox._sort("answers", answer("ann", "q"))
    assert first.done()
    assert second.done()
    assert not any(other.done() for other in others)


def test_a_rejection_reaches_who_waits_for_it_though_it_came_first(mailbox: Mailbox) -> None:
    future = mailbox.expect(("answer", "people", "ann", "q"))
    mailbox._sort("rejected", rejection())
    mailbox.expect_rejection(future, RECORD, "q")
    assert future.done()
    assert isinstance(future.result(), Rejected)


@pytest.mark.parametrize("comes_first", [False, True])
def test_the_rejection_of_one_query_of_a_record_reaches_that_query_alone(
    mailbox: Mailbox, comes_first: bool
) -> None:
    futures = {name: mailbox.expect(("answer", "people", "ann", name)) for name in ("a", "b")}
    if comes_first:
        mailbox._sort("rejected", rejection("b"))
    for name, future in futures.items():
        mailbox.expect_rejection(future, RECORD, name)
    if not comes_first:
        mailbox._sort("rejected", rejection("b"))
    assert {name: future.done() for name, future in futures.items()} == {"a": False, "b": True}
