"""A data set with a large budget in one worker of this process, and the same rows in SQLite."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.messages import read_answer
from tests.pipeline.conftest import make_world as make_world
from tests.pipeline.conftest import world as world
from tests.pipeline.conftest import worlds as worlds

SALES: list[dict[str, Any]] = [
    {"name": "country", "type": "category", "values": ["AT", "BE", "DE", "FR"], "other": False},
    {"name": "channel", "type": "category", "values": ["shop", "web", "web app"], "missing": True},
    {"name": "amount", "type": "number", "edges": [10, 20, 50], "integer": True, "missing": True},
    {"name": "paid", "type": "boolean"},
]

_CELLS = [
    (country, channel, amount, paid, 40 * (i + 1) * (j + 2) * (k + 1) + (900 if paid else 100))
    for i, country in enumerate(("AT", "BE", "DE", "FR"))
    for j, channel in enumerate(("shop", "web", "web app", None, "phone"))
    for k, amount in enumerate((9, 14.5, 34.5, 50, None))
    for paid in (False, True)
]
"""Each amount is what its bin counts for in a sum: the middle, or an outer edge of whole numbers."""

DIMENSIONS = {
    "countries": sql.Dimension(
        "countries",
        "code",
        {"code": "text", "region": "text", "members": "integer"},
        {code: {"region": region, "members": members} for code, region, members in (
            ("AT", "Alps", 9), ("DE", "North", 84), ("BE", "North", 12))},
    )
}  # fmt: skip

Ask = Callable[[str], Awaitable[ResultTable]]


@pytest.fixture(scope="session")
def truth() -> Iterator[sqlite3.Connection]:
    """The rows in a table called sales, in SQLite, with the public table."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE sales (country, channel, amount, paid)")
    for *row, n in _CELLS:
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", [row] * n)
    connection.execute("CREATE TABLE countries (code, region, members)")
    for code, said in DIMENSIONS["countries"].rows.items():
        connection.execute("INSERT INTO countries VALUES (?, ?, ?)", (code, *said.values()))
    yield connection
    connection.close()


@pytest.fixture
async def ask(world: Any) -> Ask:
    """``await ask(statement)``: the table, by way of messages to a worker and its answers."""
    names = [attribute["name"] for attribute in SALES]
    cells = [{**dict(zip(names, row, strict=True)), "count": n} for *row, n in _CELLS]
    settings: dict[str, Any] = {
        "attributes": SALES,
        "privacy": {"epsilon": 20.0, "delta": 1e-9},
        "accuracy": {"error": 0.01, "failure_probability": 1e-9},
        "phase": {"min_rows": sum(n for *_, n in _CELLS)},
        "mechanism": {"profile": "calibrated", "base_share": 0.0},
        "kinds": {kind: {"share": 0.01} for kind in ("threshold", "median", "mode")},
    }
    first = (
        lambda w: w.define("sales", **settings),
        lambda w: w.batch("sales", "first", cells=cells),
    )
    await world.run(rounds=first)
    numbers = itertools.count()

    async def asked(statement: str) -> ResultTable:
        plan = sql.plan(statement, SALES, dataset="sales", dimensions=DIMENSIONS)
        items = [{"query_id": f"q{next(numbers)}", **fields} for fields in plan.queries]
        if items:
            await world.run(rounds=(lambda world: world.ask_many("sales", items),))
        replies = [
            read_answer(json.dumps(world.answer(item["query_id"])).encode()) for item in items
        ]
        found = Statement(statement, "sales", plan).table(replies)
        if not isinstance(found, ResultTable):
            raise found
        return found

    return asked
