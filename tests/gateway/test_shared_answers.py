"""What connections share: a statement that was asked before is not sent again, unless it is about today."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.gateway.published_facts import FactsReader
from stream_dp.gateway.shared_answers import SharedAnswers, WaitingRooms
from stream_dp.messages import Event

SCHEMA = [{"name": "status", "type": "category", "values": ["paid", "open"]}]


@dataclass
class Client:
    """A client that notes the ids of queries, and answers with nothing."""

    ids: list[str] = field(default_factory=list)
    rows: tuple[Any, ...] = ()
    columns: tuple[Any, ...] = ()
    answers: tuple[Any, ...] = ()

    async def ask_statements(self, asked: list[Any], **_: Any) -> list[Any]:
        self.ids += [item["query_id"] for one in asked for item in one.items]
        return [self]


@pytest.mark.parametrize(
    ("condition", "n_sent"),
    [("day >= DATE '2026-11-01'", 1), ("day = CURRENT_DATE", 3), ("status = 'paid'", 1)],
)
async def test_a_refresh_is_sent_again_where_a_tick_may_have_come(
    condition: str, n_sent: int
) -> None:
    text, client = f"SELECT COUNT(*) FROM orders WHERE {condition}", Client()
    plan, shared = sql.plan(text, SCHEMA, dataset="orders"), SharedAnswers(WaitingRooms())
    about: dict[str, Any] = {"last_phases": None, "at_most": None}
    for _ in range(3):
        await shared.of(client, "ana", text, "orders", plan, state=(1, 0, 1), **about)  # type: ignore[arg-type]
    assert len(client.ids) == len(set(client.ids)) == n_sent


async def test_late_rows_give_new_answers_as_a_phase_does() -> None:
    text, client = "SELECT COUNT(*) FROM orders WHERE status = 'paid'", Client()
    plan, shared = sql.plan(text, SCHEMA, dataset="orders"), SharedAnswers(WaitingRooms())
    about: dict[str, Any] = {"last_phases": None, "at_most": None}
    reader = FactsReader(None)  # type: ignore[arg-type]
    for event in (
        Event(dataset="orders", event="phase_opened", phase=9, rows=10),
        Event(dataset="orders", event="phase_complete", phase=2, rows=0),
        Event(dataset="orders", event="phase_complete", phase=3, rows=7),
        Event(dataset="orders", event="phase_complete", phase=4, rows=0),
    ):
        reader.announce(event)
        state = *reader.phases["orders"], 1
        await shared.of(client, "ana", text, "orders", plan, state=state, **about)  # type: ignore[arg-type]
    assert reader.phases["orders"] == (9, 3)
    assert len(client.ids) == len(set(client.ids)) == 2
