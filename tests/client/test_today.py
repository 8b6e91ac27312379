"""A client asks about today so far, in SQL and as a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stream_dp.client import Query, Refusal
from tests.client.world_client import SessionClient, WorldSession
from tests.pipeline.clocked import BY_CLOCK, at, clock, columns
from tests.pipeline.test_running import RUNNING
from tests.pipeline.world import World

BY_CARRIER = "SELECT carrier, COUNT(*) AS n FROM flights WHERE day = CURRENT_DATE GROUP BY carrier"


def at_noon(world: World) -> None:
    world.now_ms = at(1, 12)
    clock(world)


@pytest.fixture
def client() -> Iterator[Any]:
    session = WorldSession()
    client = SessionClient(session)
    session.world.now_ms = at(1, 7)
    session.world.define("flights", phase=BY_CLOCK, running=RUNNING)
    session.world.batch("flights", "first", columns=columns(3_000), time="2026-11-01")
    session.run()
    at_noon(session.world)
    session.run()
    yield client
    session.end()


def test_a_table_says_until_when_it_counts(client: Any) -> None:
    table = client.sql(BY_CARRIER)
    counts = dict(zip(("AA", "UA", "other"), (row[1] for row in table.rows), strict=True))
    assert counts["AA"] == pytest.approx(1500, abs=200)
    assert any("until 2026-11-01T12:00+01:00" in note for note in table.notes)
    assert client.quote_sql(BY_CARRIER).together.low == 0.0


def test_a_query_has_the_open_periods(client: Any) -> None:
    asked = Query("carrier = 'AA'", window={"last": "1 day", "running": True})
    answer = client.ask_query("flights", asked)
    assert answer.running[0].rows == answer.n == 3_000
    assert answer.running[0].until == "2026-11-01T12:00+01:00"
    assert answer.privacy_loss.share == 0.0


def test_what_no_tile_tells_is_a_refusal_with_a_fix(client: Any) -> None:
    with pytest.raises(Refusal, match="their tiles are"):
        client.sql("SELECT COUNT(*) FROM flights WHERE day = CURRENT_DATE AND delay >= 10")
