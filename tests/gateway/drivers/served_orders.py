"""The data set ``orders`` on real servers, and what drivers ask about it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from stream_dp.client import Client

N: Final = 20_000
_DEFINITION: Final[dict[str, Any]] = {
    "dataset": "orders",
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "other": False},
        {"name": "size", "type": "number", "edges": [0, 10, 50, 100], "integer": True},
        {"name": "weight", "type": "number", "edges": [0, 0.5, 2, 4]},
        {"name": "paid", "type": "boolean"},
        {
            "name": "month",
            "type": "date",
            "by": "month",
            "from": "2026-01-01",
            "until": "2026-05-01",
        },
    ],
    "privacy": {"epsilon": 10.0, "delta": 1e-9},
    "accuracy": {"error": 0.05, "failure_probability": 1e-6},
    "phase": {"min_rows": N},
}
_COLUMNS: Final[dict[str, list[Any]]] = {
    "city": [("Bonn", "Graz", "Lyon")[i % 4 % 3] for i in range(N)],
    "size": [i % 100 for i in range(N)],
    "weight": [i % 8 / 2 for i in range(N)],
    "paid": [i % 5 > 0 for i in range(N)],
    "month": [f"2026-0{1 + i % 4}-15" for i in range(N)],
}

Rows = list[tuple[Any, ...]]


class Asked(NamedTuple):
    """A statement with the values of its parameters."""

    sql: str
    values: tuple[Any, ...] = ()

    def written(self, mark: str) -> str:
        """The statement with another mark than ``$1`` for each parameter; ``{}`` stands for its number."""
        return re.sub(r"\$(\d)", lambda found: mark.format(found[1]), self.sql)

    @property
    def in_order(self) -> tuple[Any, ...]:
        """The values as their parameters stand in the statement, for marks without numbers."""
        return tuple(self.values[int(number) - 1] for number in re.findall(r"\$(\d)", self.sql))

    @property
    def literal(self) -> str:
        """The statement with its values in it."""
        return re.sub(r"\$(\d)", lambda found: _literal(self.values[int(found[1]) - 1]), self.sql)


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"(ARRAY[{', '.join(map(_literal, value))}])"
    return str(value) if isinstance(value, bool | int | float | Decimal) else f"'{value}'"


_COUNT: Final = "SELECT COUNT(*) AS n FROM orders WHERE"
ASKED: Final = {
    "groups": Asked("SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"),
    "months": Asked("SELECT month, AVG(size) AS mean FROM orders GROUP BY month ORDER BY month"),
    "dates": Asked(
        "SELECT DATE_TRUNC('month', month) AS begins, COUNT(*) AS n FROM orders "
        "WHERE month >= $1 AND month < $2 GROUP BY begins ORDER BY begins",
        (dt.date(2026, 1, 1), dt.date(2026, 5, 1)),
    ),
    "truths": Asked("SELECT paid, COUNT(*) AS n FROM orders GROUP BY paid ORDER BY paid"),
    "text": Asked(f"{_COUNT} city = $1", ("Graz",)),
    "whole": Asked(f"{_COUNT} size >= $1", (10,)),
    "real": Asked(f"{_COUNT} weight < $1", (0.5,)),
    "numeric": Asked(f"{_COUNT} weight >= $1", (Decimal("0.5"),)),
    "truth": Asked(f"{_COUNT} paid = $1", (True,)),
    "date": Asked(f"{_COUNT} month >= $1", (dt.date(2026, 3, 1),)),
    "array": Asked(f"{_COUNT} city = ANY($1)", (["Bonn", "Graz"],)),
    "several": Asked(f"{_COUNT} city = $2 AND size >= $1 AND month < $3", (10, "Lyon", dt.date(2026, 4, 1))),
}  # fmt: skip
"""Statements with values of each type."""


WRONG: Final = "SELECT COUNT(*) FROM orders WHERE nix = 1"
WRONG_AT: Final = WRONG.index("nix") + 1
"""Where its error is, counted from 1."""


def fill(client: Client) -> None:
    """Defines ``orders`` and opens its phase. Several processes may do so."""
    client.define(_DEFINITION)
    assert client.send("orders", columns=_COLUMNS, batch_id="orders").phase == 1


def expected(client: Client, asked: Asked) -> Rows:
    """The rows that a driver reads: as ``Client.sql`` gives them, and bars after all selected columns."""
    client.sql(asked.literal)  # bars of a repeated answer may be wider than at first
    table = client.sql(asked.literal)
    places = sorted(range(len(table.columns)), key=lambda at: table.columns[at].bar_of is not None)
    return [tuple(_read(row[place]) for place in places) for row in table.rows]


def _read(value: Any) -> Any:
    """A value as a driver reads it: a date as one."""
    is_date = isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value)
    return dt.date.fromisoformat(value) if is_date else value


def plain(rows: Sequence[Sequence[Any]]) -> Rows:
    """Rows of a driver as tuples."""
    return [tuple(row) for row in rows]
